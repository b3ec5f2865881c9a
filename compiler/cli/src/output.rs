//! Output of commands: standard output, standard error and the log of a run.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use hgnnc_diag::terminal::escaped;

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
