//! Spans, diagnostics and the table of their codes.
//!
//! A [`Diagnostic`] is built beside the check that finds the mistake and collected in a
//! [`Diagnostics`]; nothing here decides what is a mistake. Rendering lives in [`render`], the stories
//! behind the codes in `explain/`, one file per code.

pub mod codes;
pub mod habits;
pub mod render;
pub mod terminal;

use std::collections::HashSet;
use std::fmt;

pub use codes::Code;

/// A file of a [`SourceMap`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// A byte range of a source file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// A range of `file`.
    pub fn new(file: FileId, start: usize, end: usize) -> Self {
        // Sources over 4 GiB are refused when they are added to the map.
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

/// A named text.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Name shown in reports: a path, or `std::han`.
    pub name: String,
    /// Contents.
    pub text: String,
}

impl SourceMap {
    /// Adds a file.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        self.files.push(SourceFile { name: name.into(), text: text.into() });
        FileId((self.files.len() - 1) as u32)
    }

    /// The file of that id.
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// All files in the order in which they were added.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// `model.hgnn:14:22`: the file, line and column (from 1, in characters) of a byte. `None` where there is no such file.
    pub fn place(&self, file: u32, byte: u32) -> Option<String> {
        let file = self.files.get(file as usize)?;
        let before = file.text.get(..byte as usize)?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some(format!("{}:{}:{}", file.name, before.matches('\n').count() + 1, line.chars().count() + 1))
    }

    /// The text under a span.
    pub fn text(&self, span: Span) -> &str {
        self.file(span.file).text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}

/// How bad.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The program is fine but probably not what was meant.
    Warning,
    /// The program has no meaning.
    Error,
}

/// A span with something to say.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What, in the user's words. May be empty.
    pub text: String,
}

/// One mistake: where to edit, why, and the way out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Its stable code.
    pub code: Code,
    /// Headline.
    pub message: String,
    /// Where to edit. `None` when the mistake is not in a source file.
    pub primary: Option<Label>,
    /// The spans that explain it.
    pub secondary: Vec<Label>,
    /// Facts that have no span (a file and a field of the dataset).
    pub notes: Vec<String>,
    /// What to do.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// A diagnostic at a span; `label` says what is wrong there.
    pub fn at(code: Code, span: Span, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self { primary: Some(Label { span, text: label.into() }), ..Self::new(code, message) }
    }

    /// A diagnostic without a place.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), primary: None, secondary: vec![], notes: vec![], help: vec![] }
    }

    /// Adds a span that explains it.
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

    /// Adds a way out.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }

    /// Error or warning, by its code.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// Errors after which checking stops: nobody corrects so many at once, and a suggestion for each takes time.
const MAX_ERRORS: usize = 1000;

/// What a compilation has found so far.
#[derive(Clone, Default, Debug)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Code and primary label of those in `list` that have a place.
    places: HashSet<(Code, Label)>,
    errors: usize,
}

impl Diagnostics {
    /// Adds one, unless the same was said already (templates are checked once per use).
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if let Some(primary) = &diagnostic.primary
            && !self.places.insert((diagnostic.code, primary.clone()))
        {
            return;
        }
        self.errors += usize::from(diagnostic.severity() == Severity::Error);
        self.list.push(diagnostic);
    }

    /// Is there an error among them?
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Are there so many errors that looking for more is of no use? Loops over declarations and statements stop then.
    pub fn has_enough(&self) -> bool {
        self.errors >= MAX_ERRORS
    }

    /// Keeps those that `keep` says yes to.
    pub fn retain(&mut self, keep: impl FnMut(&Diagnostic) -> bool) {
        self.list.retain(keep);
        self.errors = self.list.iter().filter(|kept| kept.severity() == Severity::Error).count();
    }

    /// Is there nothing at all?
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// All, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// Sorts by file and position: the order in which a reader meets them.
    pub fn sort(&mut self) {
        self.list.sort_by_key(|d| d.primary.as_ref().map(|l| l.span));
    }

    /// Moves all of `other` behind these.
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
