//! Shows diagnostics.

use std::io::{IsTerminal, Write};

use hgnnc::{Error, Observer};
use hgnnc_diag::{Severity, render};
use hgnnc_driver::{Diagnostic, Diagnostics, SourceMap};

use crate::failure::Failure;
use crate::output::{log, note};

/// Shows what happens on the way on standard error.
#[derive(Clone, Copy, Default)]
pub struct Terminal {
    /// Whether notes go only to the log, and warnings nowhere.
    pub quiet: bool,
}

impl Observer for Terminal {
    fn note(&mut self, line: String) {
        if self.quiet { log(&line) } else { note(&line) }
    }

    fn warnings(&mut self, sources: &SourceMap, found: &Diagnostics) {
        if !self.quiet {
            show(sources, found.iter());
        }
    }
}

impl Terminal {
    /// Shows the diagnostics of an error.
    pub fn failed(self, error: Error) -> Failure {
        match error {
            Error::Model(found) => {
                show(&found.0, found.1.iter().filter(|d| !self.quiet || d.severity() == Severity::Error));
                Failure::Input(None)
            }
            Error::Switch(found) => {
                show(&SourceMap::default(), [&*found]);
                Failure::Usage
            }
            Error::Input(message) => Failure::input(message),
            Error::Machine(message) => Failure::Machine(message),
        }
    }
}

/// Shows diagnostics on standard error.
pub fn show<'a>(sources: &SourceMap, shown: impl IntoIterator<Item = &'a Diagnostic>) {
    let stderr = std::io::stderr();
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let shown: Vec<&Diagnostic> = shown.into_iter().collect();
    let plain = render::plain(sources, shown.iter().copied());
    if !plain.is_empty() {
        log(&plain);
    }
    let coloured = stderr.is_terminal() && !no_colour;
    let text = if coloured { render::coloured(sources, shown) } else { plain };
    // Errors on standard error are ignored: there is no other channel.
    let _ = stderr.lock().write_all(text.as_bytes());
}
