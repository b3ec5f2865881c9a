//! Diagnostics as text for a terminal or a test, through `codespan-reporting`.

use codespan_reporting::diagnostic as cs;
use codespan_reporting::files::SimpleFiles;
use codespan_reporting::term;

use crate::{Diagnostic, Severity, SourceMap};

/// Renders without colour.
pub fn plain<'a>(sources: &SourceMap, diagnostics: impl IntoIterator<Item = &'a Diagnostic>) -> String {
    let mut files = SimpleFiles::new();
    for file in sources.files() {
        files.add(file.name.as_str(), file.text.as_str());
    }
    let config = term::Config::default();
    let mut text = String::new();
    for diagnostic in diagnostics {
        // Writing to a String cannot fail, and every span was made from a file of the map.
        let _ = term::emit_to_string(&mut text, &config, &files, &to_codespan(diagnostic));
    }
    text
}

/// Renders with the colours of a terminal.
pub fn coloured<'a>(sources: &SourceMap, diagnostics: impl IntoIterator<Item = &'a Diagnostic>) -> String {
    let styles = term::Styles::default();
    let mut buffer = term::termcolor::Ansi::new(Vec::new());
    let mut files = SimpleFiles::new();
    for file in sources.files() {
        files.add(file.name.as_str(), file.text.as_str());
    }
    for diagnostic in diagnostics {
        let mut writer = term::StylesWriter::new(&mut buffer, &styles);
        // Writing to memory cannot fail, and every span was made from a file of the map.
        let _ = term::emit_to_write_style(&mut writer, &term::Config::default(), &files, &to_codespan(diagnostic));
    }
    String::from_utf8_lossy(&buffer.into_inner()).into_owned()
}

fn to_codespan(diagnostic: &Diagnostic) -> cs::Diagnostic<usize> {
    let base = match diagnostic.severity() {
        Severity::Error => cs::Diagnostic::error(),
        Severity::Warning => cs::Diagnostic::warning(),
    };
    let label = |style, label: &crate::Label| {
        let range = label.span.start as usize..label.span.end as usize;
        cs::Label::new(style, label.span.file.0 as usize, range).with_message(&label.text)
    };
    let labels = diagnostic
        .primary
        .iter()
        .map(|l| label(cs::LabelStyle::Primary, l))
        .chain(diagnostic.secondary.iter().map(|l| label(cs::LabelStyle::Secondary, l)));
    let notes = diagnostic
        .notes
        .iter()
        .map(|note| format!("note: {note}"))
        .chain(diagnostic.help.iter().map(|help| format!("help: {help}")));
    base.with_code(diagnostic.code.name())
        .with_message(&diagnostic.message)
        .with_labels(labels.collect())
        .with_notes(notes.collect())
}
