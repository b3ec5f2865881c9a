//! Trained parameters and where they go when something fails: training may have taken days.

use std::fmt;
use std::path::{Path, PathBuf};

use hgnnc_train::{Report, checkpoint};

use crate::outputs::check_folder;
use crate::{Error, Prepared, artifact};

/// Trained parameters that could not be written where they should be.
#[derive(Debug)]
pub struct Unsaved {
    /// Why not.
    pub error: Error,
    /// The file in a new temporary folder that they were written to instead. `None`: that failed as well, or `error`
    /// says where they are.
    pub elsewhere: Option<PathBuf>,
}

impl fmt::Display for Unsaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        match self.elsewhere_text() {
            Some(text) => write!(f, "; {text}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Unsaved {}

impl From<Error> for Unsaved {
    /// An error after which the parameters are not written elsewhere.
    fn from(error: Error) -> Self {
        Unsaved { error, elsewhere: None }
    }
}

impl Unsaved {
    /// A line about the file that was written instead, if there is one.
    pub fn elsewhere_text(&self) -> Option<String> {
        self.elsewhere.as_ref().map(|path| format!("the parameters were written to {} instead", path.display()))
    }
}

/// Parameters that were written after training had failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rescued {
    /// Those of the best epoch.
    Best,
    /// Those of this epoch, from 0: the last ones that were read from a device before it failed.
    Earlier(u64),
    /// None: those of the best epoch were on the device only.
    Lost,
}

impl Rescued {
    /// A line about the parameters and the file that has them.
    pub fn text(self, file: &Path) -> String {
        match self {
            Rescued::Best => format!("the parameters of the best epoch were written to {}", file.display()),
            Rescued::Earlier(epoch) => format!(
                "the parameters of epoch {}, the last ones that were read from the device, were written to {}",
                epoch + 1,
                file.display()
            ),
            Rescued::Lost => {
                "the parameters of the best epoch were on the device, or with other processes, and are lost: `--checkpoint` \
                 keeps them"
                    .into()
            }
        }
    }
}

impl Prepared {
    /// Writes the current parameters to a file, or else to a new temporary folder. Atomic.
    ///
    /// # Errors
    /// When the file cannot be written; an old one is then unchanged.
    pub fn save_weights(&mut self, path: &Path) -> Result<(), Unsaved> {
        let saved = self.trainer.save_weights(path);
        saved.map_err(|error| self.save_elsewhere(error.into()))
    }

    /// Writes the model with its current parameters and the report of its training as an artifact, or else the
    /// parameters to a new temporary folder. Atomic.
    ///
    /// # Errors
    /// When the file cannot be written; an old one is then unchanged.
    pub fn save_artifact(&mut self, path: &Path, report: &Report) -> Result<(), Unsaved> {
        let saved = artifact::save(path, self, Some(report));
        saved.map_err(|error| self.save_elsewhere(error))
    }

    /// Writes the current parameters to a new temporary folder after an error.
    pub(crate) fn save_elsewhere(&mut self, error: Error) -> Unsaved {
        let model = self.trainer.executable().model.clone();
        // A fresh folder, not writable by other users.
        let folder = tempfile::Builder::new().prefix(&format!("hgnnc-{model}-")).tempdir().ok();
        let elsewhere = folder.and_then(|folder| {
            let path = folder.path().join(format!("{model}.safetensors"));
            self.trainer.save_weights(&path).ok()?;
            let _ = folder.keep();
            Some(path)
        });
        Unsaved { error, elsewhere }
    }

    /// Writes the parameters of the best epoch to a file after training has failed; after a device has failed, the best
    /// ones that were read from it. Writes nothing if there are none.
    ///
    /// # Errors
    /// When the file cannot be written; an old one is then unchanged.
    pub fn rescue(&mut self, path: &Path) -> Result<Rescued, Error> {
        let best = self.trainer.best_epoch();
        Ok(match self.trainer.save_best(path)? {
            Some(epoch) if Some(epoch) == best => Rescued::Best,
            Some(epoch) => Rescued::Earlier(epoch),
            None => Rescued::Lost,
        })
    }

    /// The error of the last checkpoint, if that could not be written; it says which one the folder has. Training goes
    /// on after such an error.
    pub fn unsaved_checkpoint(&self, folder: &Path) -> Option<Error> {
        let error = self.trainer.unsaved()?;
        let before = match checkpoint::progress_of(folder) {
            Some(progress) => {
                format!("the checkpoint in `{}` is that after epoch {}", folder.display(), progress.epochs_done)
            }
            None => format!("there is no checkpoint in `{}`", folder.display()),
        };
        Some(Error::Machine(format!("the last checkpoint could not be written: {error}; {before}")))
    }
}

/// Locks the folder of a run's checkpoints until the lock is dropped.
///
/// # Errors
/// A folder that cannot be created or that another run uses, a checkpoint that a new run would overwrite, or no
/// checkpoint to resume from.
pub fn lock_checkpoints(folder: &Path, resumed: bool) -> Result<checkpoint::Lock, Error> {
    check_folder(folder)?;
    checkpoint::check_start(folder, resumed)?;
    let lock = checkpoint::Lock::new(folder)?;
    // Another run may have ended in the meantime.
    checkpoint::check_start(folder, resumed)?;
    Ok(lock)
}
