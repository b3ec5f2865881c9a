//! What the command writes: standard output, standard error and files.

use std::io::{ErrorKind, Write};
use std::path::Path;

use hgnnc_exec::weights;

use crate::failure::Failure;

/// Prints to standard output and ends the line. A closed pipe (`hgnnc … | head`) is not an error, a full disk is.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes())).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Machine(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Tells the user something on standard error. Where that is closed there is nobody to tell.
pub fn note(line: &str) {
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

/// Writes a file that is complete or, after a failure, as it was.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    Ok(weights::write_atomically(path, bytes)?)
}
