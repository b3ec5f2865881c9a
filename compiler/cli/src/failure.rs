//! Failures of a command and their exit codes.

use std::path::Path;
use std::process::ExitCode;

use hgnnc_data::ExecError;
use hgnnc_graph::{DataError, DataErrors, SgbError};

use crate::output::note;

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

    /// A file that cannot be read; counts as wrong input.
    pub fn read(path: &Path, error: &std::io::Error) -> Self {
        Failure::input(format!("cannot read `{}`: {error}", path.display()))
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

impl From<DataErrors> for Failure {
    fn from(errors: DataErrors) -> Self {
        let pointer = match &errors.errors[..] {
            [DataError::NotADataset { .. }] => {
                "; a dataset is a folder with a `dataset.toml`: docs/dataset.md and `hgnnc data format` describe it"
            }
            _ => "",
        };
        Failure::input(format!("{errors}{pointer}"))
    }
}

impl From<SgbError> for Failure {
    fn from(error: SgbError) -> Self {
        match error {
            SgbError::OverBudget { .. } | SgbError::TooManyEdges { .. } => Failure::Machine(error.to_string()),
            _ => Failure::input(error.to_string()),
        }
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        if error.is_machine() { Failure::Machine(error.to_string()) } else { Failure::input(error.to_string()) }
    }
}
