//! A folder with all results of a run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hgnnc_train::Report;
use tempfile::TempDir;

use crate::outputs::{NamedFile, check_folder, write_file, write_report};
use crate::{Error, Prepared, Rescued, Unsaved, artifact};

/// A folder that appears with all its files atomically, or not at all.
///
/// The files are written to a temporary sibling folder, which is then renamed. A rename never replaces a non-empty
/// folder, so two runs with the same target both keep their results.
#[derive(Debug)]
pub struct RunFolder {
    target: PathBuf,
}

impl RunFolder {
    /// Parameters of the best epoch.
    pub const WEIGHTS: &str = "weights.safetensors";
    /// The model with these parameters (`docs/artifact.md`).
    pub const ARTIFACT: &str = "model.hgnnx";
    /// The JSON report (`docs/report.md`).
    pub const REPORT: &str = "report.json";
    /// The messages of the run.
    pub const LOG: &str = "log.txt";

    /// Detects problems with the target before training.
    ///
    /// # Errors
    /// A file, a folder that holds something, or a place that cannot be written.
    pub fn new(target: &Path) -> Result<Self, Error> {
        check_folder(target)?;
        let entries = fs::read_dir(target).ok().map(|mut entries| entries.next().is_some());
        if entries == Some(true) {
            return Err(Error::input(format!(
                "`{}` holds files already, of another run perhaps: name a folder that is not there, or empty",
                target.display()
            )));
        }
        // A symbolic link keeps pointing to its folder.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.into());
        let parent = parent_of(&target);
        let existing = parent.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
        tempfile::tempdir_in(existing).map_err(|error| Error::write(existing, &error))?;
        Ok(Self { target })
    }

    /// Refuses outputs inside the folder, which must be empty when it is renamed. Each has the name of its option.
    ///
    /// # Errors
    /// The first output that lies in it.
    pub fn check_outside(&self, outputs: &[NamedFile<'_>]) -> Result<(), Error> {
        let target = resolved(&self.target);
        for (option, path) in outputs {
            if let Some(path) = path.filter(|path| resolved(path).starts_with(&target)) {
                return Err(Error::input(format!(
                    "`{}` ({option}) lies in the folder of `-o`, which holds {}, {}, {} and {} only: name another \
                     place",
                    path.display(),
                    Self::WEIGHTS,
                    Self::ARTIFACT,
                    Self::REPORT,
                    Self::LOG
                )));
            }
        }
        Ok(())
    }

    /// Writes the parameters, the artifact, the report and the text of the log.
    ///
    /// # Errors
    /// When one of the files cannot be written: the parameters are then in another place.
    pub fn keep(&self, prepared: &mut Prepared, report: &Report, log: &str) -> Result<(), Unsaved> {
        let folder = match self.temporary() {
            Ok(folder) => folder,
            Err(error) => {
                prepared.save_weights(&self.target.join(Self::WEIGHTS))?;
                return Err(error.into());
            }
        };
        let path = folder.path();
        prepared.save_weights(&path.join(Self::WEIGHTS))?;
        let rest = artifact::save(&path.join(Self::ARTIFACT), prepared, Some(report))
            .and_then(|()| write_report(&path.join(Self::REPORT), report))
            .and_then(|()| write_file(&path.join(Self::LOG), log.as_bytes()));
        // The folder is removed with the parameters in it.
        rest.map_err(|error| prepared.save_elsewhere(error))?;
        Ok(self.name(folder)?)
    }

    /// Writes the parameters of the best epoch after training has failed ([`Prepared::rescue`]), and the text of the
    /// log, which `log` returns after it has heard what was written.
    ///
    /// # Errors
    /// When the log cannot be written, or the folder not be created. `log` hears of parameters that cannot be written.
    pub fn rescue(
        &self,
        prepared: &mut Prepared,
        log: impl FnOnce(Result<Rescued, Error>) -> String,
    ) -> Result<(), Error> {
        let folder = match self.temporary() {
            Ok(folder) => folder,
            Err(error) => {
                log(prepared.rescue(&self.target.join(Self::WEIGHTS)));
                return Err(error);
            }
        };
        let log = log(prepared.rescue(&folder.path().join(Self::WEIGHTS)));
        write_file(&folder.path().join(Self::LOG), log.as_bytes())?;
        self.name(folder)
    }

    /// A new sibling folder whose name starts with that of the target.
    fn temporary(&self) -> Result<TempDir, Error> {
        let parent = parent_of(&self.target);
        let made = fs::create_dir_all(parent).and_then(|()| {
            let mut prefix = std::ffi::OsString::from(".");
            prefix.push(self.target.file_name().unwrap_or_default());
            prefix.push(".");
            let mut builder = tempfile::Builder::new();
            #[cfg(unix)]
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
            builder.prefix(&prefix).tempdir_in(parent)
        });
        made.map_err(|error| Error::write(parent, &error))
    }

    /// Renames the finished folder to the target.
    fn name(&self, folder: TempDir) -> Result<(), Error> {
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
                Err(Error::Machine(format!(
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
