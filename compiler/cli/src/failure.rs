//! Failures of a command and their exit codes.

use std::path::Path;
use std::process::ExitCode;

use hgnnc_data::ExecError;
use hgnnc_dataset::DataErrors;
use hgnnc_graph::SgbError;

use crate::output::note;
use crate::source::Terminal;

/// A failure with its exit code.
#[derive(Debug)]
pub enum Failure {
    /// The input is wrong (exit code 1). `None`: the message was already shown.
    Input(Option<String>),
    /// Wrong usage (exit code 2). The message was already shown.
    Usage,
    /// The machine failed (exit code 3).
    Machine(String),
}

impl Failure {
    /// A failure of wrong input.
    pub fn input(message: impl Into<String>) -> Self {
        Failure::Input(Some(message.into()))
    }

    /// A file or folder that cannot be written.
    pub fn write(path: &Path, error: &std::io::Error) -> Self {
        Failure::Machine(format!("cannot write `{}`: {error}", path.display()))
    }

    /// Prints the message to standard error.
    pub fn print(&self) {
        if let Failure::Input(Some(message)) | Failure::Machine(message) = self {
            note(&format!("error: {message}"));
        }
    }

    /// The documented exit code.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Input(_) => ExitCode::from(1),
            Failure::Usage => ExitCode::from(2),
            Failure::Machine(_) => ExitCode::from(3),
        }
    }
}

impl From<hgnnc::Error> for Failure {
    /// Shows diagnostics.
    fn from(error: hgnnc::Error) -> Self {
        Terminal::default().failed(error)
    }
}

impl<E> From<E> for Failure
where
    E: OfRun,
    hgnnc::Error: From<E>,
{
    fn from(error: E) -> Self {
        hgnnc::Error::from(error).into()
    }
}

/// Errors of the crates that the library uses.
pub trait OfRun {}
impl OfRun for DataErrors {}
impl OfRun for SgbError {}
impl OfRun for ExecError {}
