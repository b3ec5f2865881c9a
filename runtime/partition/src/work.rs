//! The folder of a partition in the making, and what of it is done.
//!
//! It lies beside the target, so that the finished dataset is renamed into place. Its name is that of the target, so that
//! a run with `resume` finds what a killed one has left.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::Options;
use crate::counts::Counts;
use crate::error::{PartitionError, Result};

/// Name of the file that says what is done.
const STATE: &str = "state.json";

/// Suffix of the folder's name.
const SUFFIX: &str = ".hgnnc-partition";

/// Progress of a partition, as stored. A field is set after the file that it speaks of is complete.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct State {
    /// Identity of the source's files, and the options.
    source: String,
    options: String,
    /// Hash of the edges of each relation.
    pub edges: Option<Vec<String>>,
    /// Whether the file of neighbours is complete.
    pub sorted: bool,
    /// Passes of which the assignment is stored.
    pub passes: usize,
    /// Numbers of edges and mirrors.
    pub counts: Option<Counts>,
    /// The written arrays, by name, with hashes of what they were made of.
    pub files: BTreeMap<String, String>,
}

/// The folder of a partition in the making.
pub struct Work {
    /// Its path.
    pub folder: PathBuf,
    state: Mutex<State>,
    /// Locked while the folder is used.
    _lock: File,
}

/// The folder in which the partition `target` is made.
pub fn folder(target: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(SUFFIX);
    target.with_file_name(name)
}

impl Work {
    /// Makes the folder for `target`, or opens the one that a killed run has left.
    ///
    /// # Errors
    /// When another process uses it; with `resume` when there is none, or when it is of another source or other options.
    pub fn open(target: &Path, stamp: &str, options: &Options, resume: bool) -> Result<Work> {
        let folder = folder(target);
        let lock_path = folder.join("lock");
        let state_path = folder.join(STATE);
        let new = State { source: stamp.into(), options: options.key(), ..State::default() };
        if resume && !state_path.is_file() {
            return Err(PartitionError::NothingToResume(folder));
        }
        std::fs::create_dir_all(&folder).map_err(PartitionError::io(&folder))?;
        let lock = File::options().create(true).write(true).truncate(false).open(&lock_path);
        let lock = lock.map_err(PartitionError::io(&lock_path))?;
        if lock.try_lock().is_err() {
            return Err(PartitionError::Busy(folder));
        }
        let state = if resume {
            let wrong = |reason: String| PartitionError::read(&state_path, reason);
            let text = std::fs::read_to_string(&state_path).map_err(|error| wrong(error.to_string()))?;
            let state: State = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            let other = |difference| Err(PartitionError::OtherRun { folder: folder.clone(), difference });
            if state.source != new.source {
                return other("another dataset, or of this one before its files were changed,");
            }
            if state.options != new.options {
                return other("other options");
            }
            state
        } else {
            clear(&folder)?;
            new
        };
        let new_folder = folder.join("new");
        std::fs::create_dir_all(&new_folder).map_err(PartitionError::io(&new_folder))?;
        let work = Work { folder, state: Mutex::new(state), _lock: lock };
        work.done(|_| {})?;
        Ok(work)
    }

    /// The path of a file of the work.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The path of a file of the partition.
    pub fn new_path(&self, name: &str) -> PathBuf {
        self.folder.join("new").join(name)
    }

    /// Snapshot of the progress so far.
    pub fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that something is done.
    pub fn done(&self, note: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        note(&mut state);
        let path = self.folder.join(STATE);
        let text = serde_json::to_vec(&*state).map_err(|error| PartitionError::read(&path, error))?;
        // Renamed, so that a kill leaves the old or the new one. The arrays that it speaks of are not flushed to the disk
        // either: after a crash of the machine a partition starts again.
        let new = path.with_extension("new");
        std::fs::write(&new, text).map_err(PartitionError::io(&new))?;
        std::fs::rename(&new, &path).map_err(PartitionError::io(&path))
    }

    /// Renames the partition to `target`, and removes the folder.
    pub fn finish(self, target: &Path) -> Result<()> {
        std::fs::rename(self.folder.join("new"), target).map_err(PartitionError::io(target))?;
        // The partition is complete, whatever is left beside it.
        let _ = std::fs::remove_dir_all(&self.folder);
        Ok(())
    }

    /// Removes the folder, of a run that cannot be continued.
    pub fn remove(self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Removes everything but the lock.
fn clear(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(PartitionError::io(folder))? {
        let entry = entry.map_err(PartitionError::io(folder))?;
        let path = entry.path();
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(&path),
            _ if entry.file_name() == "lock" => Ok(()),
            _ => std::fs::remove_file(&path),
        };
        removed.map_err(PartitionError::io(&path))?;
    }
    Ok(())
}
