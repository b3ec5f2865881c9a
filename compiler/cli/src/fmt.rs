//! `hgnnc fmt`: writes files in canonical form.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use hgnnc_driver::{Formatted, reformat};

use crate::args::FmtArgs;
use crate::failure::Failure;
use crate::output::{note, print_exactly};
use crate::source;

/// The argument that stands for standard input.
const STDIN: &str = "-";

/// Formats every file, continuing after failures.
pub fn fmt(args: &FmtArgs) -> Result<ExitCode, Failure> {
    let mut worst: Option<Failure> = None;
    let mut changes = false;
    for path in &args.files {
        match format_file(path, args.check) {
            Ok(changed) => changes |= changed,
            Err(failure) => {
                failure.print();
                if worst.as_ref().is_none_or(|worst| matches!(worst, Failure::Input(_))) {
                    worst = Some(failure);
                }
            }
        }
    }
    match worst {
        Some(worst) => Ok(worst.exit_code()),
        None if args.check && changes => Ok(ExitCode::from(1)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Whether the canonical form differs from the file. Rewrites the file unless `check` is set.
fn format_file(path: &Path, check: bool) -> Result<bool, Failure> {
    let stdin = path == Path::new(STDIN);
    let (name, text) = if stdin {
        let mut bytes = vec![];
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        read.map_err(|error| Failure::input(format!("cannot read standard input: {error}")))?;
        ("<standard input>".to_owned(), hgnnc::decode("<standard input>", bytes)?)
    } else {
        // Standard input and pipes cannot be rewritten in place.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(Failure::input(format!("`{}` is not a file (`-` formats standard input)", path.display())));
        }
        (path.display().to_string(), hgnnc::text(path)?)
    };
    let Formatted { sources, diagnostics, text: formatted } = reformat(&name, &text);
    let Some(formatted) = formatted else {
        source::show(&sources, diagnostics.iter());
        return Err(Failure::Input(None));
    };
    let changed = formatted != text;
    match (check, stdin) {
        (true, _) if changed => note(&format!("{name} is not formatted")),
        (true, _) => {}
        (false, true) => print_exactly(&formatted)?,
        (false, false) if changed => hgnnc::write_file(path, formatted.as_bytes())?,
        (false, false) => {}
    }
    Ok(changed)
}
