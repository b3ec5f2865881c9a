//! Faults of imported files.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a dataset was not imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The files have faults.
    #[error("{0}")]
    Faults(Faults),
}

/// One fault, in the user's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file that has it.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: Option<u64>,
    /// Description of the fault, with the value and a way out.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file.display(), self.message),
            None => write!(f, "{}: {}", self.file.display(), self.message),
        }
    }
}

/// The faults of an import, in the order in which they were found. Displays the first 20, one per line.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The first ones of them.
    pub listed: Vec<Fault>,
    /// The number of all faults.
    pub count: u64,
}

impl Faults {
    /// Number of faults that are kept: a wrong column makes one in every row.
    const KEPT: usize = 1000;
    /// Number of faults that `Display` lists.
    const SHOWN: usize = 20;

    pub(crate) fn add(&mut self, file: &Path, line: Option<u64>, message: impl Into<String>) {
        self.count += 1;
        if self.listed.len() < Faults::KEPT {
            self.listed.push(Fault { file: file.to_path_buf(), line, message: message.into() });
        }
    }

    pub(crate) fn one(file: &Path, message: impl Into<String>) -> ImportError {
        let mut faults = Faults::default();
        faults.add(file, None, message);
        ImportError::Faults(faults)
    }

    /// The result, unless there are faults.
    pub(crate) fn or<T>(self, found: T) -> Result<T, ImportError> {
        if self.count == 0 { Ok(found) } else { Err(ImportError::Faults(self)) }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([fault], 1) = (&self.listed[..], self.count) {
            return fault.fmt(f);
        }
        write!(f, "{} errors:", self.count)?;
        for fault in self.listed.iter().take(Faults::SHOWN) {
            write!(f, "\n  {fault}")?;
        }
        let more = self.count.saturating_sub(Faults::SHOWN as u64);
        if more > 0 {
            write!(f, "\n  … and {more} more")?;
        }
        Ok(())
    }
}

/// The values that a column named and nobody knows: the first ten, and how many lines name such a value.
#[derive(Default)]
pub(crate) struct Unknown {
    first: Vec<String>,
    line: u64,
    count: u64,
}

impl Unknown {
    /// Number of values that a message shows.
    const SHOWN: usize = 10;

    pub fn add(&mut self, line: u64, value: &str) {
        if self.count == 0 {
            self.line = line;
        }
        self.count += 1;
        if self.first.len() < Unknown::SHOWN && !self.first.iter().any(|known| known == value) {
            self.first.push(shown(value));
        }
    }

    /// One fault for all of them.
    pub fn report(self, faults: &mut Faults, file: &Path, of: &str, way_out: &str) {
        if self.count == 0 {
            return;
        }
        let values = self.first.iter().map(|v| format!("`{v}`")).collect::<Vec<_>>().join(", ");
        let lines =
            if self.count == 1 { "this line names".into() } else { format!("{} lines from here on name", self.count) };
        let more = if self.first.len() == Unknown::SHOWN { ", …" } else { "" };
        faults.add(file, Some(self.line), format!("{lines} a {of} that is not there: {values}{more}; {way_out}"));
    }
}

/// A value in a message: short, and without control characters.
pub(crate) fn shown(value: &str) -> String {
    const LONGEST: usize = 60;
    let mut text = String::new();
    for c in value.chars().take(LONGEST) {
        match c.is_control() {
            true => text.extend(c.escape_debug()),
            false => text.push(c),
        }
    }
    if value.chars().nth(LONGEST).is_some() {
        text.push('…');
    }
    text
}
