//! Files and folders that are read and written: checks before the work, and atomic writes.

use std::path::{Path, PathBuf};

use hgnnc_data::ExecError;
use hgnnc_dataset::{atomic, files};
use hgnnc_train::Report;

use crate::Error;

/// Checks before the work that a result can be written.
///
/// # Errors
/// A folder of this name, no folder to put the file into, or one that cannot be written.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    let wrong = |why: String| Err(Error::input(format!("`{}` cannot be written: {why}", path.display())));
    if path.is_dir() {
        return wrong("it is a folder".to_string());
    }
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        return wrong(format!("there is no folder `{}`", folder.display()));
    }
    Ok(atomic::check_writable(path).map_err(ExecError::io("write", path))?)
}

/// Checks before the work that an input can be read.
///
/// # Errors
/// When it cannot.
pub fn check_readable(path: &Path) -> Result<(), Error> {
    Ok(files::open(path).map(drop).map_err(ExecError::io("read", path))?)
}

/// An input or output file, with its role for messages.
pub type NamedFile<'a> = (&'a str, Option<&'a Path>);

/// Refuses outputs that coincide with each other or with an input: a model, weights, or a file of the dataset. Pipes
/// and devices may be named more than once.
///
/// # Errors
/// The first output that coincides with another file.
pub fn check_apart(outputs: &[NamedFile<'_>], inputs: &[NamedFile<'_>], dataset: Option<&Path>) -> Result<(), Error> {
    let given =
        |&(what, path): &NamedFile<'_>| path.and_then(|path| Some((what.to_owned(), path.to_owned(), place(path)?)));
    let written: Vec<_> = outputs.iter().filter_map(given).collect();
    let read: Vec<_> = inputs.iter().filter_map(given).collect();
    for (index, (what, path, place)) in written.iter().enumerate() {
        let wrong = |why: String| Err(Error::input(format!("`{}` {why}", path.display())));
        if let Some((other, ..)) = written[..index].iter().find(|other| other.2 == *place) {
            return wrong(format!("cannot be both {other} and {what}"));
        }
        if let Some((other, ..)) = read.iter().find(|other| other.2 == *place) {
            return wrong(format!("is {other}, and {what} would be written over it: name another file"));
        }
        if dataset.is_some_and(|folder| is_of_dataset(folder, place)) {
            return wrong(format!("belongs to the dataset, and {what} would be written over it: name another file"));
        }
    }
    Ok(())
}

/// The resolved path of a file or a file to be created; `None` for pipes and devices.
fn place(path: &Path) -> Option<PathBuf> {
    match std::fs::canonicalize(path) {
        Ok(found) => found.is_file().then_some(found),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(std::fs::canonicalize(folder).ok()?.join(path.file_name()?))
        }
    }
}

/// Whether this is the `dataset.toml` or one of its files. The files may be symbolic links to outside the folder.
fn is_of_dataset(folder: &Path, path: &Path) -> bool {
    let Ok(text) = files::read_to_string(&folder.join("dataset.toml")) else { return false };
    // Any quoted text may be a file name; other texts match no existing file.
    let mut names = text.split(['"', '\'']).filter(|name| !name.is_empty()).chain(["dataset.toml"]);
    names.any(|name| place(&folder.join(name)).is_some_and(|place| place == path))
}

/// Checks that a folder can be created, without creating it.
///
/// # Errors
/// A file of this name, or in place of a folder around it; it counts as wrong input.
pub fn check_folder(folder: &Path) -> Result<(), Error> {
    match folder.ancestors().find(|p| p.exists()) {
        Some(found) if !found.is_dir() => {
            Err(Error::input(format!("`{}` cannot be a folder: `{}` is a file", folder.display(), found.display())))
        }
        _ => Ok(()),
    }
}

/// Creates an output folder.
///
/// # Errors
/// That of [`check_folder`], or a folder that cannot be written.
pub fn make_folder(folder: &Path) -> Result<(), Error> {
    check_folder(folder)?;
    std::fs::create_dir_all(folder).map_err(|error| Error::write(folder, &error))
}

/// Writes a file atomically. Removes temporary files left by killed runs.
///
/// # Errors
/// When it cannot be written; an old file is then unchanged.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    atomic::remove_leftovers(path);
    Ok(atomic::write(path, bytes).map_err(ExecError::io("write", path))?)
}

/// Writes a report as JSON (`docs/report.md`).
///
/// # Errors
/// When the file cannot be written.
pub fn write_report(path: &Path, report: &Report) -> Result<(), Error> {
    write_file(path, report_text(report)?.as_bytes())
}

/// A report as JSON, with a line end.
pub(crate) fn report_text(report: &Report) -> Result<String, Error> {
    let mut text = serde_json::to_string_pretty(report)
        .map_err(|error| Error::Machine(format!("cannot write the report: {error}")))?;
    text.push('\n');
    Ok(text)
}
