//! Errors as the exceptions of `hgnnc._errors`.

use hgnnc::Error;
use hgnnc_dataset::DataErrors;
use hgnnc_diag::{Diagnostics, Severity, SourceMap, render};
use pyo3::prelude::*;

/// A diagnostic: severity, code, message, (line, column) of begin and end, text of the label, notes and help.
pub type Found = (&'static str, String, String, Option<[usize; 4]>, String, Vec<String>, Vec<String>);

/// Diagnostics with the places of their primary labels; lines and columns count from 1, columns in characters.
pub fn diagnostics(sources: &SourceMap, found: &Diagnostics) -> Vec<Found> {
    let place = |file: &str, byte: u32| {
        let before = file.get(..byte as usize).unwrap_or(file);
        let line = before.matches('\n').count() + 1;
        (line, before.rsplit('\n').next().unwrap_or("").chars().count() + 1)
    };
    let one = |diagnostic: &hgnnc_diag::Diagnostic| {
        let severity = if diagnostic.severity() == Severity::Error { "error" } else { "warning" };
        let span = diagnostic.primary.as_ref().map(|label| {
            let text = &sources.file(label.span.file).text;
            let (begin, end) = (place(text, label.span.start), place(text, label.span.end));
            [begin.0, begin.1, end.0, end.1]
        });
        let label = diagnostic.primary.as_ref().map_or(String::new(), |label| label.text.clone());
        let code = diagnostic.code.to_string();
        (severity, code, diagnostic.message.clone(), span, label, diagnostic.notes.clone(), diagnostic.help.clone())
    };
    found.iter().map(one).collect()
}

/// An exception of the given class.
fn raise<'py>(py: Python<'py>, class: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    match py.import("hgnnc._errors").and_then(|module| module.getattr(class)?.call1(arguments)) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The exception for an error of the library.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Model(found) => {
            let coloured = render::coloured(&found.0, found.1.iter());
            raise(py, "ModelError", (error.to_string(), coloured, diagnostics(&found.0, &found.1)))
        }
        Error::Switch(_) | Error::Input(_) => raise(py, "InputError", (error.to_string(),)),
        Error::Machine(_) => raise(py, "MachineError", (error.to_string(),)),
    }
}

/// The exception for faults of a dataset.
pub fn data_error(py: Python<'_>, errors: DataErrors) -> PyErr {
    raise(py, "DataError", (Error::from(errors).to_string(),))
}

/// The exception for something else that a machine could not do.
pub fn machine_error(py: Python<'_>, text: String) -> PyErr {
    raise(py, "MachineError", (text,))
}
