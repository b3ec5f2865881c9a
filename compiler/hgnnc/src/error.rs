//! Errors of this crate, and their rendering as text.

use std::fmt;
use std::path::Path;

use hgnnc_data::ExecError;
use hgnnc_dataset::{DataError, DataErrors};
use hgnnc_diag::{Diagnostics, SourceMap, render};
use hgnnc_driver::{Diagnostic, LowerError, unknown_name};
use hgnnc_graph::SgbError;

/// Why something could not be done.
#[derive(Debug)]
pub enum Error {
    /// The model has errors, or does not fit the dataset: all diagnostics, warnings too.
    Model(Box<(SourceMap, Diagnostics)>),
    /// A disabled pass or fusion does not exist.
    Switch(Box<Diagnostic>),
    /// The input is wrong.
    Input(String),
    /// The machine failed, or has too little memory.
    Machine(String),
}

impl Error {
    /// Wrong input.
    pub fn input(message: impl Into<String>) -> Self {
        Error::Input(message.into())
    }

    /// A file that cannot be read; counts as wrong input.
    pub fn read(path: &Path, error: &std::io::Error) -> Self {
        Error::Input(format!("cannot read `{}`: {error}", path.display()))
    }

    /// A file or folder that cannot be written.
    pub fn write(path: &Path, error: &std::io::Error) -> Self {
        Error::Machine(format!("cannot write `{}`: {error}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Model(found) => f.write_str(&render::plain(&found.0, found.1.iter())),
            Error::Switch(found) => f.write_str(&render::plain(&SourceMap::default(), [&**found])),
            Error::Input(message) | Error::Machine(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

impl From<LowerError> for Error {
    /// Whether a kernel stores the value of a disabled fusion `value:NAME` is known only after lowering.
    fn from(error: LowerError) -> Self {
        match error {
            LowerError::Name(error) => Error::Switch(Box::new(unknown_name(&error))),
            error => Error::Input(error.to_string()),
        }
    }
}

impl From<DataErrors> for Error {
    fn from(errors: DataErrors) -> Self {
        let pointer = match &errors.errors[..] {
            [DataError::NotADataset { .. }] => {
                "; a dataset is a folder with a `dataset.toml`: docs/dataset.md and `hgnnc data format` describe it"
            }
            _ => "",
        };
        Error::Input(format!("{errors}{pointer}"))
    }
}

impl From<SgbError> for Error {
    fn from(error: SgbError) -> Self {
        match error {
            SgbError::OverBudget { .. }
            | SgbError::TooManyEdges { .. }
            | SgbError::TooManyInstances { .. }
            | SgbError::TooManyCutoffRows { .. }
            | SgbError::TooManyPeriods { .. } => Error::Machine(error.to_string()),
            _ => Error::Input(error.to_string()),
        }
    }
}

impl From<ExecError> for Error {
    fn from(error: ExecError) -> Self {
        if error.is_machine() { Error::Machine(error.to_string()) } else { Error::Input(error.to_string()) }
    }
}
