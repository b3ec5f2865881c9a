//! compile(sources, options): source text to artifact, no I/O.
