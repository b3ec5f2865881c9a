//! Renders diagnostics as text for a terminal or a test, using `codespan-reporting`.
//!
//! The size of the output is bounded for any source: at most [`MAX_SHOWN`] diagnostics, with long lines and messages
//! cut. Control characters are escaped.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use codespan_reporting::diagnostic as cs;
use codespan_reporting::files::{self, Files};
use codespan_reporting::term;

use crate::terminal::{escaped, escaped_line, is_obeyed};
use crate::{Diagnostic, MAX_ERRORS, Severity, SourceFile, SourceMap};

/// Maximum number of diagnostics to print; the rest is only counted.
pub const MAX_SHOWN: usize = 100;

/// Maximum number of columns of a source line to print, around the primary label.
const MAX_COLUMNS: usize = 200;

/// Maximum number of characters of a message, label, note or help.
const MAX_MESSAGE: usize = 2000;

/// Number of lines kept around a label. `codespan-reporting` prints up to three.
const CONTEXT: usize = 8;

/// Renders diagnostics without colour.
pub fn plain<'a>(sources: &SourceMap, diagnostics: impl IntoIterator<Item = &'a Diagnostic>) -> String {
    let config = term::Config::default();
    let mut text = String::new();
    let left_out = each(sources, diagnostics, |files, diagnostic| {
        // Writing to a string cannot fail, and every span refers to a file of the map.
        let _ = term::emit_to_string(&mut text, &config, files, diagnostic);
    });
    text + &left_out
}

/// Renders diagnostics with ANSI colours.
pub fn coloured<'a>(sources: &SourceMap, diagnostics: impl IntoIterator<Item = &'a Diagnostic>) -> String {
    let styles = term::Styles::default();
    let config = term::Config::default();
    let mut buffer = term::termcolor::Ansi::new(Vec::new());
    let left_out = each(sources, diagnostics, |files, diagnostic| {
        let mut writer = term::StylesWriter::new(&mut buffer, &styles);
        // Writing to memory cannot fail, and every span refers to a file of the map.
        let _ = term::emit_to_write_style(&mut writer, &config, files, diagnostic);
    });
    String::from_utf8_lossy(&buffer.into_inner()).into_owned() + &left_out
}

/// Passes the diagnostics to print to `emit`, errors before warnings, each with excerpts of its sources. Returns a line
/// with the number of omitted diagnostics.
fn each<'a>(
    sources: &SourceMap,
    diagnostics: impl IntoIterator<Item = &'a Diagnostic>,
    mut emit: impl FnMut(&Excerpts, &cs::Diagnostic<usize>),
) -> String {
    let all: Vec<&Diagnostic> = diagnostics.into_iter().collect();
    let is_error = |diagnostic: &&&Diagnostic| diagnostic.severity() == Severity::Error;
    let errors = all.iter().filter(is_error).count();
    let mut shown_errors = errors.min(MAX_SHOWN);
    let mut shown_warnings = (all.len() - errors).min(MAX_SHOWN - shown_errors);
    // Checking stopped at this number of errors.
    let at_least = if errors >= MAX_ERRORS { "at least " } else { "" };
    let left_out = left_out(at_least, errors - shown_errors, all.len() - errors - shown_warnings);
    let mut lines: HashMap<usize, Vec<usize>> = HashMap::new();
    for diagnostic in all {
        let left = match diagnostic.severity() {
            Severity::Error => &mut shown_errors,
            Severity::Warning => &mut shown_warnings,
        };
        if *left == 0 {
            continue;
        }
        *left -= 1;
        let (files, diagnostic) = to_codespan(sources, diagnostic, &mut lines);
        emit(&files, &diagnostic);
    }
    left_out
}

fn left_out(at_least: &str, errors: usize, warnings: usize) -> String {
    let count = |number: usize, what: &str| match number {
        0 => None,
        1 => Some(format!("1 more {what}")),
        _ => Some(format!("{number} more {what}s")),
    };
    let counts: Vec<String> = [count(errors, "error"), count(warnings, "warning")].into_iter().flatten().collect();
    match counts[..] {
        [] => String::new(),
        _ => format!("and {at_least}{}: only the first {MAX_SHOWN} diagnostics are shown\n", counts.join(" and ")),
    }
}

fn to_codespan(
    sources: &SourceMap,
    diagnostic: &Diagnostic,
    line_starts: &mut HashMap<usize, Vec<usize>>,
) -> (Excerpts, cs::Diagnostic<usize>) {
    let base = match diagnostic.severity() {
        Severity::Error => cs::Diagnostic::error(),
        Severity::Warning => cs::Diagnostic::warning(),
    };
    // The primary label comes first; it decides which part of a long line is printed.
    let labels: Vec<(cs::LabelStyle, &crate::Label)> = diagnostic
        .primary
        .iter()
        .map(|l| (cs::LabelStyle::Primary, l))
        .chain(diagnostic.secondary.iter().map(|l| (cs::LabelStyle::Secondary, l)))
        .collect();
    let mut excerpts = Excerpts(BTreeMap::new());
    for &(_, label) in &labels {
        let id = label.span.file.0 as usize;
        excerpts.0.entry(id).or_insert_with(|| {
            let file = sources.file(label.span.file);
            let starts = line_starts.entry(id).or_insert_with(|| files::line_starts(&file.text).collect());
            let spans = labels.iter().filter(|(_, l)| l.span.file == label.span.file);
            let spans: Vec<Range<usize>> = spans.map(|(_, l)| l.span.start as usize..l.span.end as usize).collect();
            Excerpt::new(file, starts, &spans)
        });
    }
    let label = |(style, label): (cs::LabelStyle, &crate::Label)| {
        let id = label.span.file.0 as usize;
        let moved = &excerpts.0[&id].moved;
        let range = moved[&(label.span.start as usize)]..moved[&(label.span.end as usize)];
        cs::Label::new(style, id, range).with_message(message(&label.text))
    };
    let notes = diagnostic
        .notes
        .iter()
        .map(|note| format!("note: {}", cut(&escaped(note))))
        .chain(diagnostic.help.iter().map(|help| format!("help: {}", cut(&escaped(help)))));
    let diagnostic = base
        .with_code(diagnostic.code.name())
        .with_message(message(&diagnostic.message))
        .with_labels(labels.into_iter().map(label).collect())
        .with_notes(notes.collect());
    (excerpts, diagnostic)
}

fn message(text: &str) -> String {
    cut(&escaped_line(text))
}

/// Cuts a text after [`MAX_MESSAGE`] characters.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The lines of a source around the labels of one diagnostic.
struct Excerpt {
    name: String,
    text: String,
    /// Byte offset of each line in `text`.
    starts: Vec<usize>,
    /// Line number in the source of each line, from 1.
    numbers: Vec<usize>,
    /// Maps label boundaries in the source to byte offsets in `text`.
    moved: HashMap<usize, usize>,
    /// Maps these offsets in `text` to columns in the source, from 1.
    columns: HashMap<usize, usize>,
}

impl Excerpt {
    fn new(file: &SourceFile, line_starts: &[usize], spans: &[Range<usize>]) -> Self {
        let line_of = |offset: usize| line_starts.partition_point(|&start| start <= offset) - 1;
        // Label boundaries by line, in the order of the labels.
        let mut ends: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for offset in spans.iter().flat_map(|span| [span.start, span.end]) {
            ends.entry(line_of(offset)).or_default().push(offset);
        }
        let mut excerpt = Self {
            name: escaped_line(&file.name).into_owned(),
            text: String::new(),
            starts: vec![],
            numbers: vec![],
            moved: HashMap::new(),
            columns: HashMap::new(),
        };
        let mut next = 0;
        for &line in ends.keys() {
            for line in line.saturating_sub(CONTEXT).max(next)..(line + CONTEXT + 1).min(line_starts.len()) {
                let start = line_starts[line];
                let end = line_starts.get(line + 1).copied().unwrap_or(file.text.len());
                excerpt.add(&file.text, line, start..end, ends.get(&line).map_or(&[], Vec::as_slice));
                next = line + 1;
            }
        }
        excerpt
    }

    fn add(&mut self, text: &str, line: usize, range: Range<usize>, ends: &[usize]) {
        self.starts.push(self.text.len());
        self.numbers.push(line + 1);
        let whole = &text[range.clone()];
        let shown = whole.strip_suffix('\n').map_or(whole, |line| line.strip_suffix('\r').unwrap_or(line));
        let columns = shown.chars().count();
        let column_of = |offset: usize| shown.char_indices().take_while(|(i, _)| range.start + i < offset).count();
        let mut visible = 0..columns;
        if columns > MAX_COLUMNS {
            let focus = ends.first().map_or(0, |&end| column_of(end));
            let first = focus.saturating_sub(MAX_COLUMNS / 4).min(columns - MAX_COLUMNS);
            visible = first..first + MAX_COLUMNS;
        }
        let mut at = vec![];
        if visible.start > 0 {
            self.text.push('…');
        }
        for c in shown.chars().skip(visible.start).take(visible.len()) {
            at.push(self.text.len());
            if is_obeyed(c) && c != '\t' { self.text.extend(c.escape_unicode()) } else { self.text.push(c) }
        }
        at.push(self.text.len());
        if visible.end < columns {
            self.text.push('…');
        }
        for &end in ends {
            let column = column_of(end);
            let place = at[column.clamp(visible.start, visible.end) - visible.start];
            self.moved.insert(end, place);
            self.columns.entry(place).or_insert(column + 1);
        }
        if whole.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

/// Excerpts by the number of their file.
struct Excerpts(BTreeMap<usize, Excerpt>);

impl Excerpts {
    fn get(&self, id: usize) -> Result<&Excerpt, files::Error> {
        self.0.get(&id).ok_or(files::Error::FileMissing)
    }
}

impl<'a> Files<'a> for Excerpts {
    type FileId = usize;
    type Name = &'a str;
    type Source = &'a str;

    fn name(&'a self, id: usize) -> Result<&'a str, files::Error> {
        Ok(&self.get(id)?.name)
    }

    fn source(&'a self, id: usize) -> Result<&'a str, files::Error> {
        Ok(&self.get(id)?.text)
    }

    fn line_index(&'a self, id: usize, byte_index: usize) -> Result<usize, files::Error> {
        Ok(self.get(id)?.starts.partition_point(|&start| start <= byte_index) - 1)
    }

    fn line_number(&'a self, id: usize, line_index: usize) -> Result<usize, files::Error> {
        let numbers = &self.get(id)?.numbers;
        let missing = files::Error::LineTooLarge { given: line_index, max: numbers.len() };
        numbers.get(line_index).copied().ok_or(missing)
    }

    fn column_number(&'a self, id: usize, line_index: usize, byte_index: usize) -> Result<usize, files::Error> {
        let file = self.get(id)?;
        match file.columns.get(&byte_index) {
            Some(column) => Ok(*column),
            None => Ok(files::column_index(&file.text, self.line_range(id, line_index)?, byte_index) + 1),
        }
    }

    fn line_range(&'a self, id: usize, line_index: usize) -> Result<Range<usize>, files::Error> {
        let file = self.get(id)?;
        let missing = files::Error::LineTooLarge { given: line_index, max: file.starts.len() };
        let start = *file.starts.get(line_index).ok_or(missing)?;
        Ok(start..file.starts.get(line_index + 1).copied().unwrap_or(file.text.len()))
    }
}
