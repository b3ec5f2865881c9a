//! Warnings about a checked model that depend on what reaches an output of its program.

use std::collections::BTreeMap;

use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};
use hgnnc_lower::{DeclaredParam, Program};
use hgnnc_sema::Checked;

/// Reports constructs that are valid and probably not intended, and parameters that would not be trained.
pub fn report(checked: &Checked, program: &Program, trained: bool, diagnostics: &mut Diagnostics) {
    for doubt in &checked.doubts {
        if doubt.of.is_none_or(|value| program.is_live(value)) {
            diagnostics.push(doubt.report.clone());
        }
    }
    no_gradient(checked, &program.params, diagnostics);
    if trained && program.flow.params.is_empty() {
        diagnostics.push(Diagnostic::at(
            codes::NOTHING_TO_TRAIN,
            checked.span,
            format!("model `{}` has no parameter that the loss depends on", checked.model.name),
            "nothing to train",
        ));
    }
}

/// Warns about declarations in the model's file none of whose parameters reaches an output, unless they are
/// part of something that was said to be unused.
fn no_gradient(checked: &Checked, params: &[DeclaredParam], diagnostics: &mut Diagnostics) {
    let file = checked.span.file;
    // Spans of unused declarations and values, with the furthest end of all that start no later.
    let mut said: Vec<Span> = checked.unused.iter().copied().filter(|span| span.file == file).collect();
    said.sort();
    let mut furthest = 0;
    for span in &mut said {
        furthest = furthest.max(span.end);
        span.end = furthest;
    }
    let mut by_span: BTreeMap<Span, (bool, bool, &str)> = BTreeMap::new();
    for param in params {
        let entry = by_span.entry(param.span).or_insert((false, false, &param.name));
        entry.0 |= param.live;
        // One that only stands in the other branch of an `if` is not read.
        entry.1 |= param.read;
    }
    for (span, (live, read, name)) in by_span {
        let before = said.partition_point(|known| known.start <= span.start);
        let said = before > 0 && span.end <= said[before - 1].end;
        if !live && read && !said && span.file == file {
            diagnostics.push(Diagnostic::at(
                codes::NO_GRADIENT,
                span,
                format!("parameter `{name}` does not influence any output"),
                "left out of the compiled model",
            ));
        }
    }
}
