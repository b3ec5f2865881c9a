//! Source spans, diagnostics and the table of their codes.
//!
//! A [`Diagnostic`] is built next to the check that finds the problem and collected in [`Diagnostics`]; this
//! crate contains no checks. [`render`] prints diagnostics; `explain/` has the long explanation of each code,
//! one file per code.

#![forbid(unsafe_code)]

pub mod codes;
pub mod render;
pub mod synonyms;
pub mod terminal;

use std::collections::HashSet;
use std::fmt;

pub use codes::Code;

/// A file of a [`SourceMap`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// A byte range of a source file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Span {
    pub file: FileId,
    /// First byte of the range.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// A byte range of `file`.
    pub fn new(file: FileId, start: usize, end: usize) -> Self {
        // Files over 4 GiB are rejected when they are added to the map.
        Self { file, start: start as u32, end: end as u32 }
    }

    /// The range from the start of `self` to the end of `other`.
    pub fn to(self, other: Span) -> Span {
        Span { end: other.end.max(self.end), ..self }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}..{}", self.file.0, self.start, self.end)
    }
}

/// The source files of one compilation.
#[derive(Clone, Default, Debug)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

/// A named source text.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SourceFile {
    /// Name for reports: a path, or `std::han`.
    pub name: String,
    pub text: String,
}

impl SourceMap {
    /// Adds a file and returns its id.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        self.files.push(SourceFile { name: name.into(), text: text.into() });
        FileId((self.files.len() - 1) as u32)
    }

    /// The file with this id.
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// All files in insertion order, indexed by [`FileId`].
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// `model.hgnn:14:22`: file, line and column (from 1, in characters) of a byte. `None` if there is no such file.
    pub fn place(&self, file: u32, byte: u32) -> Option<String> {
        let file = self.files.get(file as usize)?;
        let before = file.text.get(..byte as usize)?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some(format!("{}:{}:{}", file.name, before.matches('\n').count() + 1, line.chars().count() + 1))
    }

    /// The source text of a span.
    pub fn text(&self, span: Span) -> &str {
        self.file(span.file).text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}

/// The severity of a diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The program is valid but probably not as intended.
    Warning,
    /// The program is invalid.
    Error,
}

/// A span with a message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Label {
    pub span: Span,
    /// The message, in the user's terms. May be empty.
    pub text: String,
}

/// One problem: where to edit, why, and how to fix it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Diagnostic {
    /// The code, which is stable across versions.
    pub code: Code,
    /// The headline, without code and severity.
    pub message: String,
    /// The span to edit. `None` if the problem is not in a source file.
    pub primary: Option<Label>,
    /// Spans that explain the problem.
    pub secondary: Vec<Label>,
    /// Facts without a span (a file and field of the dataset).
    pub notes: Vec<String>,
    /// Suggestions how to fix it.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// A diagnostic at a span; `label` names the problem there.
    pub fn at(code: Code, span: Span, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self { primary: Some(Label { span, text: label.into() }), ..Self::new(code, message) }
    }

    /// A diagnostic without a source location.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), primary: None, secondary: vec![], notes: vec![], help: vec![] }
    }

    /// Adds a span that explains the problem.
    #[must_use]
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// Adds a fact without a span.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Adds a suggestion how to fix the problem.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }

    /// The severity, given by the code.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// Number of errors after which checking stops: more are of no use at once, and a suggestion for each takes time.
const MAX_ERRORS: usize = 1000;

/// The diagnostics of a compilation so far.
#[derive(Clone, Default, Debug)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Codes and primary labels of the diagnostics in `list`, for deduplication.
    places: HashSet<(Code, Label)>,
    errors: usize,
}

impl Diagnostics {
    /// Adds a diagnostic, unless an equal one exists (templates are checked once per use).
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if let Some(primary) = &diagnostic.primary
            && !self.places.insert((diagnostic.code, primary.clone()))
        {
            return;
        }
        self.errors += usize::from(diagnostic.severity() == Severity::Error);
        self.list.push(diagnostic);
    }

    /// Does it contain an error?
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Is the maximum number of errors reached? Loops over declarations and statements stop then.
    pub fn has_enough(&self) -> bool {
        self.errors >= MAX_ERRORS
    }

    /// Keeps the diagnostics for which `keep` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&Diagnostic) -> bool) {
        self.list.retain(keep);
        self.errors = self.list.iter().filter(|kept| kept.severity() == Severity::Error).count();
    }

    /// Are there no diagnostics at all?
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The number of diagnostics, warnings included.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// All diagnostics, in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// Sorts by file and position, the reading order of the source.
    pub fn sort(&mut self) {
        self.list.sort_by_key(|d| d.primary.as_ref().map(|l| l.span));
    }

    /// Moves all diagnostics of `other` to the end.
    pub fn append(&mut self, other: Diagnostics) {
        for diagnostic in other.list {
            self.push(diagnostic);
        }
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
