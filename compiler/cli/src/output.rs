//! What the command writes: standard output, standard error and files.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hgnnc_diag::terminal::escaped;
use hgnnc_exec::{ExecError, weights};
use hgnnc_graph::files;

use crate::failure::Failure;

/// Prints text for people to standard output and ends the line. Names of sources and datasets in it are not obeyed by a
/// terminal.
pub fn print(text: &str) -> Result<(), Failure> {
    let text = escaped(text);
    log(&text);
    write_out(&text)
}

/// Prints what programs read (JSON, IR, code) to standard output as it is. Shown on a terminal, it is made safe as well.
pub fn print_data(text: &str) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() { print(text) } else { write_out(text) }
}

/// The lines that the user was told, where a command keeps them.
static LOG: Mutex<Option<String>> = Mutex::new(None);

/// From here on, what is told is kept for [`logged`] as well.
pub fn keep_log() {
    *LOG.lock().unwrap_or_else(PoisonError::into_inner) = Some(String::new());
}

/// Everything that was told since [`keep_log`].
pub fn logged() -> String {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

/// Keeps a text of whole lines without showing it.
pub fn log(text: &str) {
    if let Some(log) = &mut *LOG.lock().unwrap_or_else(PoisonError::into_inner) {
        log.push_str(text);
        if !text.ends_with('\n') {
            log.push('\n');
        }
    }
}

/// Ends the line. A closed pipe (`hgnnc … | head`) is not an error, a full disk is.
fn write_out(text: &str) -> Result<(), Failure> {
    if text.ends_with('\n') { print_exactly(text) } else { print_exactly(&format!("{text}\n")) }
}

/// Prints to standard output, to the byte.
pub fn print_exactly(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Machine(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Tells the user something on standard error, whatever its names hold. Where that is closed there is nobody to tell.
pub fn note(line: &str) {
    let line = escaped(line);
    log(&line);
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Finds before the work what would keep its result from being written after it.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::input(format!("`{}` cannot be written: {why}", path.display())));
    if path.is_dir() {
        return wrong("it is a folder".to_string());
    }
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        return wrong(format!("there is no folder `{}`", folder.display()));
    }
    Ok(weights::check_writable(path)?)
}

/// Finds before the work whether files that are read can be.
pub fn check_readable(path: &Path) -> Result<(), Failure> {
    let failed = |source| ExecError::Io { action: "read", path: path.into(), source };
    Ok(files::open(path).map(drop).map_err(failed)?)
}

/// A file that a command reads or writes, with what it is for people.
pub type Named<'a> = (&'a str, Option<&'a Path>);

/// Refuses to write two things into one file, or over what is read: a model, weights, or a file of the dataset. Pipes and
/// devices may be named more than once.
pub fn check_apart(outputs: &[Named<'_>], inputs: &[Named<'_>], dataset: Option<&Path>) -> Result<(), Failure> {
    let given =
        |&(what, path): &Named<'_>| path.and_then(|path| Some((what.to_owned(), path.to_owned(), place(path)?)));
    let written: Vec<_> = outputs.iter().filter_map(given).collect();
    let read: Vec<_> = inputs.iter().filter_map(given).collect();
    for (index, (what, path, place)) in written.iter().enumerate() {
        let wrong = |why: String| Err(Failure::input(format!("`{}` {why}", path.display())));
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

/// Where a file is or would be, without links; `None` for what is no file.
fn place(path: &Path) -> Option<PathBuf> {
    match std::fs::canonicalize(path) {
        Ok(found) => found.is_file().then_some(found),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(std::fs::canonicalize(folder).ok()?.join(path.file_name()?))
        }
    }
}

/// Is this a file that a `dataset.toml` names, or that one itself? Files may be links that lead out of the folder.
fn is_of_dataset(folder: &Path, path: &Path) -> bool {
    let Ok(text) = files::read_to_string(&folder.join("dataset.toml")) else { return false };
    // Whatever stands between quotes may be a file; what does not is none that is there.
    let mut names = text.split(['"', '\'']).filter(|name| !name.is_empty()).chain(["dataset.toml"]);
    names.any(|name| place(&folder.join(name)).is_some_and(|place| place == path))
}

/// Makes a folder for output. Something else in its place is the user's mistake.
pub fn make_folder(folder: &Path) -> Result<(), Failure> {
    check_folder(folder)?;
    std::fs::create_dir_all(folder).map_err(|error| Failure::write(folder, &error))
}

/// Can a folder stand here? Nothing is made.
pub fn check_folder(folder: &Path) -> Result<(), Failure> {
    match folder.ancestors().find(|p| p.exists()) {
        Some(found) if !found.is_dir() => {
            Err(Failure::input(format!("`{}` cannot be a folder: `{}` is a file", folder.display(), found.display())))
        }
        _ => Ok(()),
    }
}

/// Writes a file that is complete or, after a failure, as it was. Removes what killed runs have left beside it.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    weights::remove_leftovers(path);
    Ok(weights::write_atomically(path, bytes)?)
}
