//! The examples of `hgnnc explain`: examples of syntax errors report their code, all others parse.

use hgnnc_diag::{Code, Diagnostics, SourceMap, codes, render};
use hgnnc_syntax::{format, parse};

/// The code blocks of one kind in an explanation.
fn examples<'s>(explanation: &'s str, kind: &str) -> Vec<&'s str> {
    let fence = format!("```{kind}\n");
    explanation.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or(rest)).collect()
}

fn report(text: &str) -> (Vec<Code>, String) {
    let mut sources = SourceMap::default();
    let file = sources.add("example", text);
    let mut diagnostics = Diagnostics::default();
    let module = parse(file, text, &mut diagnostics);
    if diagnostics.is_empty() && format(&module, text) != text {
        // More compact than the formatter's layout, but printable.
        assert_eq!(report(&format(&module, text)).1, "");
    }
    let found = diagnostics.iter().map(|d| d.code).collect();
    (found, render::plain(&sources, diagnostics.iter()))
}

#[test]
fn examples_of_explanations() {
    for code in Code::all() {
        for text in examples(code.explanation(), "hgnn") {
            let (_, reports) = report(text);
            assert_eq!(reports, "", "{code}");
        }
        for text in examples(code.explanation(), "hgnn,error") {
            let (found, reports) = report(text);
            if code == codes::TOO_DEEP {
                // An abridged example, which does not parse.
            } else if code.name().starts_with("E01") {
                assert!(found.contains(&code), "{code}: {found:?}\n{reports}");
            } else {
                assert_eq!(reports, "", "{code}");
            }
        }
    }
}
