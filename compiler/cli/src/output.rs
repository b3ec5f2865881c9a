//! Output of commands: standard output, standard error and files.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hgnnc_data::ExecError;
use hgnnc_diag::terminal::escaped;
use hgnnc_graph::{atomic, files};

use crate::failure::Failure;

/// Prints text and a newline to standard output. Control characters in names are escaped on a terminal.
pub fn print(text: &str) -> Result<(), Failure> {
    let text = escaped(text);
    log(&text);
    write_out(&text)
}

/// Prints machine-readable data (JSON, IR, code) unchanged; control characters are escaped only on a terminal.
pub fn print_data(text: &str) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() { print(text) } else { write_out(text) }
}

/// The messages so far, if a command keeps a log.
static LOG: Mutex<Option<String>> = Mutex::new(None);

/// Starts recording messages for [`logged`].
pub fn keep_log() {
    *LOG.lock().unwrap_or_else(PoisonError::into_inner) = Some(String::new());
}

/// All messages since [`keep_log`].
pub fn logged() -> String {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

/// Appends whole lines to the log without printing them.
pub fn log(text: &str) {
    if let Some(log) = &mut *LOG.lock().unwrap_or_else(PoisonError::into_inner) {
        log.push_str(text);
        if !text.ends_with('\n') {
            log.push('\n');
        }
    }
}

/// Prints a line. A closed pipe (`hgnnc … | head`) is not an error, a full disk is.
fn write_out(text: &str) -> Result<(), Failure> {
    if text.ends_with('\n') { print_exactly(text) } else { print_exactly(&format!("{text}\n")) }
}

/// Prints to standard output without changes.
pub fn print_exactly(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Machine(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a message to standard error, with control characters escaped. Errors are ignored: there is no other channel.
pub fn note(line: &str) {
    let line = escaped(line);
    log(&line);
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Checks before the work that a result can be written.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::input(format!("`{}` cannot be written: {why}", path.display())));
    if path.is_dir() {
        return wrong("it is a folder".to_string());
    }
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        return wrong(format!("there is no folder `{}`", folder.display()));
    }
    Ok(atomic::check_writable(path).map_err(ExecError::io("write", path))?)
}

/// Checks before the work that an input can be read.
pub fn check_readable(path: &Path) -> Result<(), Failure> {
    Ok(files::open(path).map(drop).map_err(ExecError::io("read", path))?)
}

/// An input or output file, with its role for messages.
pub type Named<'a> = (&'a str, Option<&'a Path>);

/// Refuses outputs that coincide with each other or with an input: a model, weights, or a file of the dataset. Pipes
/// and devices may be named more than once.
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

/// Creates an output folder. A file of that name is wrong input.
pub fn make_folder(folder: &Path) -> Result<(), Failure> {
    check_folder(folder)?;
    std::fs::create_dir_all(folder).map_err(|error| Failure::write(folder, &error))
}

/// Checks that a folder can be created, without creating it.
pub fn check_folder(folder: &Path) -> Result<(), Failure> {
    match folder.ancestors().find(|p| p.exists()) {
        Some(found) if !found.is_dir() => {
            Err(Failure::input(format!("`{}` cannot be a folder: `{}` is a file", folder.display(), found.display())))
        }
        _ => Ok(()),
    }
}

/// Writes a file atomically. Removes temporary files left by killed runs.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    atomic::remove_leftovers(path);
    Ok(atomic::write(path, bytes).map_err(ExecError::io("write", path))?)
}
