//! Output has bounded size and contains no control characters.

use hgnnc_diag::render::{MAX_SHOWN, coloured, plain};
use hgnnc_diag::{Diagnostic, FileId, SourceMap, Span, codes};

fn at(file: FileId, text: &str, word: &str, message: &str) -> Diagnostic {
    let start = text.find(word).expect("the word is there");
    Diagnostic::at(codes::UNKNOWN_NAME, Span::new(file, start, start + word.len()), message, "here")
}

#[test]
fn shows_the_part_of_a_long_line_that_is_wrong() {
    let text = format!("first\n{}wrong{}\nlast\n", "a".repeat(1000), "b".repeat(1000));
    let mut sources = SourceMap::default();
    let file = sources.add("long.hgnn", text.clone());
    let report = plain(&sources, [&at(file, &text, "wrong", "wrong name")]);
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines[1], "  ┌─ long.hgnn:2:1001");
    assert_eq!(lines[3], format!("2 │ …{}wrong{}…", "a".repeat(50), "b".repeat(145)));
    assert_eq!(lines[4], format!("  │ {}^^^^^ here", " ".repeat(51)));
}

#[test]
fn cuts_a_long_message() {
    let report = plain(&SourceMap::default(), [&Diagnostic::new(codes::UNKNOWN_NAME, "x".repeat(1_000_000))]);
    assert!(report.len() < 3000, "{} bytes", report.len());
}

#[test]
fn labels_on_both_sides_of_a_cut_stay_on_their_line() {
    let text = format!("near {} far\n", "a".repeat(10_000));
    let mut sources = SourceMap::default();
    let file = sources.add("long.hgnn", text.clone());
    let far = Span::new(file, text.len() - 4, text.len() - 1);
    let report = plain(&sources, [&at(file, &text, "near", "two places").label(far, "there")]);
    assert!(report.contains("long.hgnn:1:1\n"), "{report}");
    assert!(report.contains("there") && report.lines().all(|line| line.chars().count() < 300), "{report}");
}

#[test]
fn escapes_what_a_terminal_obeys() {
    let text = "let \u{1b}[31mred\u{202e} = foo\r\nnext\n";
    let mut sources = SourceMap::default();
    let file = sources.add("\u{1b}]0;title\u{7}.hgnn", text);
    let report = at(file, text, "foo", "no \u{1b}[2Jname\nerror: forged").note("\u{9b}31m").help("\u{7}");
    let shown = plain(&sources, [&report]);
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    assert!(shown.contains(r"let \u{1b}[31mred\u{202e} = foo"), "{shown}");
    assert!(shown.contains(r"no \u{1b}[2Jname\u{a}error: forged"), "{shown}");
    assert!(shown.contains(":1:17\n"), "the column is that of the source: {shown}");
    // Colour escapes are added by the renderer itself.
    let shown = coloured(&sources, [&report]);
    assert!(shown.contains("\u{1b}[") && !shown.contains("\u{1b}[2J") && !shown.contains("\u{1b}[31mred"), "{shown:?}");
}

#[test]
fn says_how_many_diagnostics_are_not_shown() {
    let text = "x".repeat(600);
    let mut sources = SourceMap::default();
    let file = sources.add("many.hgnn", text);
    let all: Vec<Diagnostic> = (0..300)
        .map(|i| {
            let code = if i % 2 == 0 { codes::UNUSED_LET } else { codes::UNKNOWN_NAME };
            Diagnostic::at(code, Span::new(file, i, i + 1), "wrong", "")
        })
        .collect();
    let shown = plain(&sources, &all);
    assert_eq!(shown.matches("error[").count(), MAX_SHOWN);
    assert_eq!(shown.matches("warning[").count(), 0, "errors come first");
    assert!(shown.ends_with("and 50 more errors and 150 more warnings: only the first 100 diagnostics are shown\n"));
    assert!(plain(&sources, &all[..MAX_SHOWN]).ends_with("^\n\n"));
}

#[test]
fn spans_at_the_ends_of_lines_and_files() {
    for text in ["", "\n", "a", "a\n", "a\r\nb", "é\n\n"] {
        let mut sources = SourceMap::default();
        let file = sources.add("ends.hgnn", text);
        for start in 0..=text.len() {
            for end in start..=text.len() {
                let report = Diagnostic::at(codes::UNKNOWN_NAME, Span::new(file, start, end), "wrong", "here");
                assert!(plain(&sources, [&report]).contains("ends.hgnn:"), "{text:?} {start}..{end}");
            }
        }
    }
}
