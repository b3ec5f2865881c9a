//! Spans, diagnostics and their code table.
