//! `train -o DIR`: a folder with all results of a run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hgnnc_train::Report;
use tempfile::TempDir;

use crate::failure::Failure;
use crate::output::{check_folder, logged, write};
use crate::run::write_report;

/// Parameters of the best epoch.
pub const WEIGHTS: &str = "weights.safetensors";
/// The model with these parameters (`docs/artifact.md`).
pub const ARTIFACT: &str = "model.hgnnx";
/// The JSON report (`docs/report.md`).
const REPORT: &str = "report.json";
/// The lines shown on the terminal.
const LOG: &str = "log.txt";

/// A folder that appears with all its files atomically, or not at all.
///
/// The files are written to a temporary sibling folder, which is then renamed. A rename never replaces a non-empty
/// folder, so two runs with the same target both keep their results.
pub struct RunFolder {
    target: PathBuf,
}

impl RunFolder {
    /// Detects problems with the target before training.
    pub fn new(target: &Path) -> Result<Self, Failure> {
        check_folder(target)?;
        let entries = fs::read_dir(target).ok().map(|mut entries| entries.next().is_some());
        if entries == Some(true) {
            return Err(Failure::input(format!(
                "`{}` holds files already, of another run perhaps: name a folder that is not there, or empty",
                target.display()
            )));
        }
        // A symbolic link keeps pointing to its folder.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.into());
        let parent = parent_of(&target);
        let existing = parent.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
        tempfile::tempdir_in(existing).map_err(|error| Failure::write(existing, &error))?;
        Ok(Self { target })
    }

    /// Refuses outputs inside the folder, which must be empty when it is renamed.
    pub fn check_outside(&self, outputs: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
        let target = resolved(&self.target);
        for (option, path) in outputs {
            if let Some(path) = path.filter(|path| resolved(path).starts_with(&target)) {
                return Err(Failure::input(format!(
                    "`{}` ({option}) lies in the folder of `-o`, which holds {WEIGHTS}, {ARTIFACT}, {REPORT} and {LOG} only: name another place",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Writes the parameters (by `save_weights`), the report with the artifact (by `save_artifact`), and the log so far.
    pub fn keep<T>(
        &self,
        run: &mut T,
        save_weights: impl FnOnce(&mut T, &Path) -> Result<(), Failure>,
        save_artifact: impl FnOnce(&mut T, &Path, &Report) -> Result<(), Failure>,
        report: Option<&Report>,
    ) -> Result<(), Failure> {
        let parent = parent_of(&self.target);
        let made = fs::create_dir_all(parent).and_then(|()| folder_beside(&self.target));
        let folder = match made {
            Ok(folder) => folder,
            Err(error) => {
                // `save_weights` has a fallback location for parameters.
                save_weights(run, &self.target.join(WEIGHTS))?;
                return Err(Failure::write(parent, &error));
            }
        };
        save_weights(run, &folder.path().join(WEIGHTS))?;
        if let Some(report) = report {
            save_artifact(run, &folder.path().join(ARTIFACT), report)?;
            write_report(&folder.path().join(REPORT), report)?;
        }
        write(&folder.path().join(LOG), logged().as_bytes())?;
        self.name(folder)
    }

    /// Renames the finished folder to the target.
    fn name(&self, folder: TempDir) -> Result<(), Failure> {
        let path = folder.keep();
        match fs::rename(&path, &self.target) {
            Ok(()) => {
                // The rename is durable once the parent folder is flushed; not every system supports that.
                let _ = fs::File::open(parent_of(&self.target)).and_then(|parent| parent.sync_all());
                Ok(())
            }
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists => {
                        "it was filled while this run went on".to_owned()
                    }
                    _ => error.to_string(),
                };
                let place = another_name(&path, &self.target);
                Err(Failure::Machine(format!(
                    "cannot write `{}`: {why}; all of this run is in `{}` instead",
                    self.target.display(),
                    place.display()
                )))
            }
        }
    }
}

/// Moves a folder to the first free name among `target-2`, `target-3`, …; on failure it keeps its temporary name.
fn another_name(folder: &Path, target: &Path) -> PathBuf {
    const ATTEMPTS: usize = 1000;
    for number in 2..ATTEMPTS {
        let mut name = target.as_os_str().to_owned();
        name.push(format!("-{number}"));
        if fs::rename(folder, &name).is_ok() {
            return name.into();
        }
    }
    folder.to_owned()
}

/// A new sibling folder whose name starts with that of `target`.
fn folder_beside(target: &Path) -> std::io::Result<TempDir> {
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix.push(".");
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    builder.prefix(&prefix).tempdir_in(parent_of(target))
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Resolves symbolic links in the existing part of a path.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let found = path.ancestors().find_map(|part| Some((fs::canonicalize(part).ok()?, path.strip_prefix(part).ok()?)));
    found.map_or(path.clone(), |(existing, rest)| existing.join(rest))
}
