//! Checkpoint files. A resumed run continues bit for bit where the checkpoint was saved.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use hgnnc_data::{ExecError, Identity, OrderKind, Result};
use hgnnc_dataset::atomic;
use serde::{Deserialize, Serialize};

use crate::weights::{self, Tensor};

/// Version of the checkpoint format.
const VERSION: u32 = 1;
/// Version of a checkpoint with rows in files of their own, which older programs cannot read.
const IN_PARTS: u32 = 2;
/// No run counts as far as this.
const MOST: u64 = 1 << 53;

/// State of a run without its tensors. Floating-point numbers are stored as their bits.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Progress {
    version: u32,
    /// Name of the model.
    pub model: String,
    /// Seed of parameter initialization and dropout masks.
    pub seed: u64,
    pub epochs_done: u64,
    pub steps_done: u64,
    /// Epoch with the best parameters so far.
    pub best_epoch: Option<u64>,
    /// Bits of the selection criterion in the best epoch.
    best_bits: Option<u64>,
    /// Bits of the best value seen by early stopping.
    stop_bits: Option<u64>,
    /// Epochs since the best value of early stopping.
    pub stop_since: u64,
    /// Whether early stopping ended the run.
    pub stopped: bool,
    /// Bits of the training loss of each epoch.
    loss_bits: Vec<u64>,
    /// Progress within an unfinished epoch of mini-batches.
    #[serde(default)]
    pub within: Within,
    /// Vertex order, on which the last bits of results depend. Absent in checkpoints of older versions and for an order
    /// given by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderKind>,
    /// Files with the rows of tables, where several processes have trained together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
    /// Program, train block and data of the run. Absent in checkpoints of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// Files beside a checkpoint, each with the rows of tables that one of several processes had.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Parts {
    /// One more than that of the checkpoint before, so that its files stay until this one is complete.
    pub generation: u64,
    /// Steps that were done.
    pub step: u64,
    /// Number of files.
    pub files: usize,
    /// The tensors whose rows are in them.
    pub tensors: Vec<PartTensor>,
}

/// A tensor whose rows are in several files, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct PartTensor {
    pub name: String,
    pub shape: Vec<usize>,
    /// Number of rows in each file.
    pub rows: Vec<u64>,
}

impl Parts {
    fn name(&self, index: usize) -> String {
        format!("rows-{}-{index}-of-{}.safetensors", self.generation, self.files)
    }

    /// Shapes of the tensors, by name.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.tensors.iter().map(|tensor| (&tensor.name[..], &tensor.shape[..]))
    }

    /// Whether each tensor has as many rows as its files.
    fn are_complete(&self) -> bool {
        let complete = |tensor: &PartTensor| {
            let rows = tensor.rows.iter().try_fold(0u64, |sum, &rows| sum.checked_add(rows));
            let expected = tensor.shape.first().map(|&rows| rows as u64);
            tensor.rows.len() == self.files && expected.is_some() && rows == expected
        };
        let names: BTreeSet<&String> = self.tensors.iter().map(|tensor| &tensor.name).collect();
        self.generation < MOST && names.len() == self.tensors.len() && self.tensors.iter().all(complete)
    }

    /// The text in a file, which tells it from one of another checkpoint.
    fn text(&self, index: usize) -> String {
        format!("rows {index} of {} of checkpoint {} after step {}", self.files, self.generation, self.step)
    }

    /// Checks that this process sees the files of all.
    ///
    /// # Errors
    /// Names a file that is not there.
    pub fn check_there(&self, folder: &Path) -> Result<()> {
        match (0..self.files).map(|file| folder.join(self.name(file))).find(|path| !path.is_file()) {
            Some(path) => {
                let reason = "another process has written it, and it is not there: all processes need the same folder";
                Err(ExecError::Io { action: "find", path, source: std::io::Error::other(reason) })
            }
            None => Ok(()),
        }
    }

    /// Reads some rows of tensors, by name. Files without any of them are not read.
    ///
    /// # Errors
    /// A file that cannot be read, or has other tensors.
    pub fn read(&self, folder: &Path, wanted: &BTreeMap<&str, Range<usize>>) -> Result<BTreeMap<String, Vec<f32>>> {
        let mut found: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        for file in 0..self.files {
            // By tensor: its rows in this file that are wanted, counted from the first one there.
            let of_tensor = |tensor: &PartTensor| {
                let first = tensor.rows[..file].iter().sum::<u64>() as usize;
                let end = first + tensor.rows[file] as usize;
                let rows = wanted.get(&tensor.name[..])?;
                let rows = rows.start.clamp(first, end) - first..rows.end.clamp(first, end) - first;
                (!rows.is_empty()).then_some(rows)
            };
            let rows: Vec<Option<Range<usize>>> = self.tensors.iter().map(of_tensor).collect();
            if rows.iter().all(Option::is_none) {
                continue;
            }
            let path = folder.join(self.name(file));
            let read = weights::read(&path)?;
            let shape = |tensor: &PartTensor| {
                (tensor.name.clone(), [&[tensor.rows[file] as usize], &tensor.shape[1..]].concat())
            };
            weights::check(&path, &read, &self.tensors.iter().map(shape).collect::<Vec<_>>())?;
            if read.text != Some(self.text(file)) {
                let reason = "is a file of another checkpoint than the one beside it".into();
                return Err(ExecError::Weights { path, reason });
            }
            for (tensor, rows) in self.tensors.iter().zip(rows) {
                let width = tensor.shape[1..].iter().product::<usize>();
                let rows = rows.unwrap_or_default();
                let elements = &read.tensors[&tensor.name].1[rows.start * width..rows.end * width];
                found.entry(tensor.name.clone()).or_default().extend_from_slice(elements);
            }
        }
        for tensor in &self.tensors {
            found.entry(tensor.name.clone()).or_default();
        }
        Ok(found)
    }
}

/// Progress within an epoch of mini-batches.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Within {
    pub batches: u64,
    /// Batches per epoch and seed vertices per batch. A resumed run must have the same.
    pub of: (u64, u64),
    /// Seed vertices of the batches done.
    seeds: u64,
    /// Bits of the sum of their losses.
    sum_bits: u64,
}

impl Within {
    /// Adds a batch with its mean loss over `seeds` seed vertices.
    pub fn add(&mut self, loss: f64, seeds: usize) {
        self.batches += 1;
        self.seeds += seeds as u64;
        self.sum_bits = (f64::from_bits(self.sum_bits) + loss * seeds as f64).to_bits();
    }

    /// Mean loss of the batches so far, weighted by their seed vertices.
    pub fn loss(&self) -> f64 {
        f64::from_bits(self.sum_bits) / self.seeds.max(1) as f64
    }
}

impl Progress {
    /// Progress of a new run, with the vertex order if it has a name.
    pub fn new(model: &str, seed: u64, order: Option<OrderKind>) -> Self {
        Self { version: VERSION, model: model.to_owned(), seed, order, ..Self::default() }
    }

    /// Whether the counts are consistent, so that no arithmetic on them overflows.
    fn is_of_a_run(&self) -> bool {
        let counts = [self.epochs_done, self.steps_done, self.stop_since, self.within.batches, self.within.seeds];
        counts.iter().all(|&count| count < MOST)
            && self.losses().len() as u64 == self.epochs_done
            && self.best_epoch.is_none_or(|best| best < self.epochs_done)
    }

    /// Selection criterion in the best epoch.
    pub fn best(&self) -> Option<f64> {
        self.best_bits.map(f64::from_bits)
    }

    /// Records a new best epoch.
    pub fn set_best(&mut self, epoch: u64, value: f64) {
        self.best_epoch = Some(epoch);
        self.best_bits = Some(value.to_bits());
    }

    /// Best value seen by early stopping.
    pub fn stop_best(&self) -> Option<f64> {
        self.stop_bits.map(f64::from_bits)
    }

    /// Records an improvement for early stopping.
    pub fn set_stop_best(&mut self, value: f64) {
        self.stop_bits = Some(value.to_bits());
        self.stop_since = 0;
    }

    /// Appends the training loss of an epoch.
    pub fn push_loss(&mut self, loss: f64) {
        self.loss_bits.push(loss.to_bits());
    }

    /// Training loss of each epoch.
    pub fn losses(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.loss_bits.iter().map(|&bits| f64::from_bits(bits))
    }

    /// Reserves space for the losses of `epochs` epochs, so that training does not allocate.
    pub fn reserve(&mut self, epochs: u64) {
        self.loss_bits.reserve(usize::try_from(epochs).unwrap_or(0).min(1 << 20));
    }
}

/// Path of the checkpoint file in a folder.
pub fn file_of(folder: &Path) -> PathBuf {
    folder.join("checkpoint.safetensors")
}

/// Writes a checkpoint into a folder, which is created if needed. The previous checkpoint stays until the
/// new one is complete.
///
/// # Errors
/// When the folder cannot be created or written, or the disk is full.
pub fn save(folder: &Path, progress: &Progress, tensors: Vec<(String, Tensor<'_>)>) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| ExecError::Io { action: "make", path: folder.into(), source })?;
    let path = file_of(folder);
    let version = if progress.parts.is_some() { IN_PARTS } else { VERSION };
    let text = serde_json::to_string(&Progress { version, ..progress.clone() })
        .map_err(|e| ExecError::Weights { path: path.clone(), reason: format!("cannot be written: {e}") })?;
    weights::write(&path, tensors, Some(text))
}

/// Writes the file of one process of a checkpoint that is not complete yet. Atomic.
///
/// # Errors
/// When the folder cannot be created or written, or the disk is full.
pub fn save_part(folder: &Path, parts: &Parts, index: usize, tensors: Vec<(String, Tensor<'_>)>) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| ExecError::Io { action: "make", path: folder.into(), source })?;
    weights::write(&folder.join(parts.name(index)), tensors, Some(parts.text(index)))
}

/// Whether this is the name of a file with rows, or of one that a killed process has begun.
fn is_part(name: &str) -> bool {
    let begun = name.strip_prefix('.').filter(|name| name.ends_with(".hgnnc-tmp"));
    let numbers = |text: &str| {
        let (generation, rest) = text.strip_prefix("rows-")?.split_once('-')?;
        let (index, files) = rest.split_once("-of-")?;
        let (files, ending) = files.split_once('.')?;
        let ending = ending == "safetensors" || begun.is_some() && ending.starts_with("safetensors.");
        let are_numbers = [generation, index, files].into_iter().all(|number| number.parse::<u64>().is_ok());
        (ending && are_numbers).then_some(())
    };
    numbers(begun.unwrap_or(name)).is_some()
}

/// Removes files of earlier checkpoints, and of those that were never complete. Files that cannot be removed stay.
pub fn remove_old_parts(folder: &Path, current: Option<&Parts>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let names: Vec<String> = current.iter().flat_map(|parts| (0..parts.files).map(|file| parts.name(file))).collect();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if is_part(name) && !names.iter().any(|current| current == name) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether a weights file is a checkpoint.
pub fn is_one(file: &weights::File) -> bool {
    file.text.as_deref().is_some_and(|text| serde_json::from_str::<Progress>(text).is_ok())
}

/// Progress of the run in a checkpoint folder, without tensors; `None` if it cannot be read:
/// loading reports that error.
pub fn progress_of(folder: &Path) -> Option<Progress> {
    serde_json::from_str(&weights::read_text(&file_of(folder)).ok()??).ok()
}

/// Vertex order of the run in a checkpoint folder; `None` if the checkpoint does not name it or cannot be read.
pub fn order_of(folder: &Path) -> Option<OrderKind> {
    progress_of(folder)?.order
}

/// Exclusive lock of a checkpoint folder while this value lives. The operating system releases the lock
/// of a killed process.
#[derive(Debug)]
pub struct Lock {
    /// Open and locked; closing it releases the lock.
    file: std::fs::File,
    path: PathBuf,
    /// Folders created for the lock, innermost first.
    made: Vec<PathBuf>,
    /// Error of the lock call, if the file system has no locks.
    unlocked: Option<std::io::Error>,
}

impl Lock {
    /// Locks a folder, which is created if needed, and removes leftovers of killed runs.
    ///
    /// # Errors
    /// When another process has locked it, or it cannot be created or written.
    pub fn new(folder: &Path) -> Result<Self> {
        let path = folder.join("checkpoint.lock");
        let made: Vec<PathBuf> =
            folder.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.exists()).map(Into::into).collect();
        loop {
            std::fs::create_dir_all(folder).map_err(|source| ExecError::Io {
                action: "make",
                path: folder.into(),
                source,
            })?;
            // Opening a pipe would block until it has a reader.
            if path.exists() && !path.is_file() {
                return Err(ExecError::Weights { path, reason: "is not a file, and cannot be locked".into() });
            }
            let open = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            let file = open.map_err(|source| ExecError::Io { action: "write", path: path.clone(), source })?;
            let unlocked = match file.try_lock() {
                Ok(()) => None,
                Err(std::fs::TryLockError::WouldBlock) => {
                    let reason =
                        "is the checkpoint folder of a run that goes on: wait for its end, or name another folder";
                    return Err(ExecError::Weights { path: folder.into(), reason: reason.into() });
                }
                // Some network file systems have no locks.
                Err(std::fs::TryLockError::Error(error)) => Some(error),
            };
            // The previous owner may have removed the file before it was locked here; then the path leads to another
            // file.
            if unlocked.is_some() || is_at(&file, &path) {
                atomic::remove_leftovers(&file_of(folder));
                return Ok(Self { file, path, made, unlocked });
            }
        }
    }

    /// A warning for the user where the file system has no locks.
    pub fn warning(&self) -> Option<String> {
        let error = self.unlocked.as_ref()?;
        Some(format!("{} cannot be locked, so take care that no other run writes to it: {error}", self.path.display()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while locked, so that only this process's file is removed. Non-empty folders stay.
        if self.unlocked.is_none() && is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
            let _ = self.made.iter().try_for_each(std::fs::remove_dir);
        }
    }
}

/// Whether a path leads to an open file.
#[cfg(unix)]
fn is_at(file: &std::fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |found: std::fs::Metadata| (found.dev(), found.ino());
    file.metadata().is_ok_and(|own| std::fs::metadata(path).is_ok_and(|there| place(own) == place(there)))
}

/// Open files are not removed on this platform.
#[cfg(not(unix))]
fn is_at(_: &std::fs::File, _: &Path) -> bool {
    true
}

/// Checks that a run can start or resume in a folder; a new run would overwrite a checkpoint.
///
/// # Errors
/// There is a checkpoint and the run is not `resumed`, or there is none and it is.
pub fn check_start(folder: &Path, resumed: bool) -> Result<()> {
    let path = file_of(folder);
    let reason = match (path.exists(), resumed) {
        (true, true) | (false, false) => return Ok(()),
        (false, true) => "does not exist: there is no run to continue, leave `--resume` out to begin one".into(),
        (true, false) => {
            let of = progress_of(folder).map(|it| format!(" of `{}` after epoch {}", it.model, it.epochs_done));
            format!(
                "is a checkpoint{}, which this run would write over: continue it with `--resume`, or remove it or name another \
                 folder to begin anew",
                of.unwrap_or_default()
            )
        }
    };
    Err(ExecError::Weights { path, reason })
}

/// Reads a checkpoint and its tensors.
///
/// # Errors
/// When there is none, it is damaged, or it belongs to another model.
pub fn load(folder: &Path, model: &str) -> Result<(Progress, weights::File)> {
    let path = file_of(folder);
    check_start(folder, true)?;
    let file = weights::read(&path)?;
    let wrong = |reason: String| ExecError::Weights { path: path.clone(), reason };
    let text = file.text.as_deref().ok_or_else(|| wrong("is not a checkpoint: these are weights only".into()))?;
    let progress: Progress = serde_json::from_str(text).map_err(|e| wrong(format!("is not a checkpoint: {e}")))?;
    if ![VERSION, IN_PARTS].contains(&progress.version) {
        return Err(wrong(format!(
            "has format version {}, this runtime reads the versions {VERSION} and {IN_PARTS}",
            progress.version
        )));
    }
    if progress.model != model {
        return Err(wrong(format!("is a checkpoint of the model `{}`, not of `{model}`", progress.model)));
    }
    if !progress.is_of_a_run() || !progress.parts.as_ref().is_none_or(Parts::are_complete) {
        return Err(wrong("is damaged: no run has such counts of epochs, steps, losses and rows".into()));
    }
    Ok((progress, file))
}

/// Compares a run with the run of a checkpoint. Returns a warning if they differ or cannot be compared and `allowed` is
/// set. `except` lists settings that may differ.
///
/// # Errors
/// The runs differ or cannot be compared, and that is not `allowed`.
pub fn check_identity(
    path: &Path,
    before: Option<&Identity>,
    now: &Identity,
    allowed: bool,
    except: &[&str],
) -> Result<Option<String>> {
    const ANYWAY: &str = "`--resume --allow-changed` continues it all the same";
    let problem = match before {
        None => "was written by a version of hgnnc that did not note program, train block and data, so it is not known whether \
                 these have changed"
            .to_owned(),
        Some(before) => {
            let difference = before.difference(now, except);
            if difference.is_empty() {
                return Ok(None);
            }
            format!("is of another run: {difference}")
        }
    };
    if allowed {
        return Ok(Some(format!("{} {problem}", path.display())));
    }
    Err(ExecError::Weights { path: path.into(), reason: format!("{problem}; {ANYWAY}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_once() {
        let place = tempfile::tempdir().expect("a folder for a test");
        let folder = place.path().join("a/b");
        let lock = Lock::new(&folder).expect("free");
        assert_eq!(lock.warning(), None);
        let error = Lock::new(&folder).expect_err("locked").to_string();
        assert!(error.contains("is the checkpoint folder of a run that goes on"), "{error}");
        drop(lock);
        assert!(!place.path().join("a").exists(), "nothing is left behind");
        // A killed run holds no lock, and its temporary files are removed.
        std::fs::create_dir_all(&folder).expect("made");
        for name in ["checkpoint.lock", ".checkpoint.safetensors.abcdef.hgnnc-tmp"] {
            std::fs::write(folder.join(name), "").expect("written");
        }
        let lock = Lock::new(&folder).expect("free");
        assert_eq!(std::fs::read_dir(&folder).expect("listed").count(), 1);
        std::fs::write(file_of(&folder), "").expect("written");
        drop(lock);
        let names = std::fs::read_dir(&folder).expect("listed").flatten().map(|entry| entry.path());
        assert_eq!(names.collect::<Vec<_>>(), [file_of(&folder)]);
    }

    /// Checkpoints of older versions have neither batch progress nor vertex order.
    #[test]
    fn checkpoints_of_older_versions_are_read() {
        let folder = tempfile::tempdir().expect("a folder for a test");
        let new = Progress::new("Net", 3, Some(OrderKind::Clusters));
        let text = serde_json::to_string(&new).expect("serialises");
        assert!(text.contains(r#""order":"clusters""#), "{text}");
        let old = r#"{"version":1,"model":"Net","seed":3,"epochs_done":2,"steps_done":2,"best_epoch":1,"best_bits":0,
            "stop_bits":null,"stop_since":0,"stopped":false,"loss_bits":[0,0]}"#;
        for (text, order) in [(&text[..], new.order), (old, None)] {
            let w = ("param/w".to_owned(), Tensor { shape: vec![2], data: &[1.0, 2.0] });
            weights::write(&file_of(folder.path()), vec![w], Some(text.into())).expect("written");
            assert_eq!(order_of(folder.path()), order);
            let (progress, file) = load(folder.path(), "Net").expect("a checkpoint");
            assert_eq!((progress.order, progress.seed), (order, 3));
            assert_eq!(file.tensors["param/w"].1, [1.0, 2.0]);
        }
    }

    #[test]
    fn rows_are_read_from_the_files_that_have_them() {
        let folder = tempfile::tempdir().expect("a folder for a test");
        let tensor = PartTensor { name: "param/x".into(), shape: vec![5, 2], rows: vec![2, 0, 3] };
        let parts = Parts { generation: 7, step: 40, files: 3, tensors: vec![tensor] };
        assert!(parts.are_complete());
        let all: Vec<f32> = (0..10u8).map(f32::from).collect();
        for (file, rows) in [0..2, 2..2, 2..5].into_iter().enumerate() {
            let data = &all[2 * rows.start..2 * rows.end];
            let tensor = ("param/x".to_owned(), Tensor { shape: vec![rows.len(), 2], data });
            save_part(folder.path(), &parts, file, vec![tensor]).expect("written");
        }
        for rows in [0..5, 1..3, 2..5, 4..4] {
            let read = parts.read(folder.path(), &BTreeMap::from([("param/x", rows.clone())])).expect("read");
            assert_eq!(read["param/x"], all[2 * rows.start..2 * rows.end]);
        }
        // Files of other checkpoints are removed, and only these.
        let mine =
            ["rows.txt", "rows-best.safetensors", "rows-1-2-of-3.safetensors.txt"].map(|it| folder.path().join(it));
        mine.iter().for_each(|path| std::fs::write(path, "").expect("written"));
        std::fs::write(folder.path().join(".rows-6-1-of-3.safetensors.x1y2.hgnnc-tmp"), "").expect("written");
        let other = Parts { step: 41, ..parts.clone() };
        let error = other.read(folder.path(), &BTreeMap::from([("param/x", 0..1)])).expect_err("of another step");
        assert!(error.to_string().contains("of another checkpoint"), "{error}");
        parts.check_there(folder.path()).expect("all are there");
        assert!(Parts { files: 4, ..parts.clone() }.check_there(folder.path()).is_err());
        let next = Parts { generation: 8, ..parts.clone() };
        std::fs::write(folder.path().join(next.name(1)), "").expect("written");
        remove_old_parts(folder.path(), Some(&next));
        assert!(mine.iter().all(|path| path.exists()) && folder.path().join(next.name(1)).exists());
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 4);
        assert!(parts.read(folder.path(), &BTreeMap::from([("param/x", 0..1)])).is_err());
        let twice = Parts { tensors: [&parts.tensors[..], &parts.tensors].concat(), ..parts.clone() };
        assert!(!twice.are_complete(), "one tensor has its name");
        // Only those of files that add up.
        for (rows, shape) in [(vec![2, 3], vec![5, 2]), (vec![2, 0, 2], vec![5, 2]), (vec![u64::MAX, 1, 0], vec![])] {
            let tensor = PartTensor { name: "x".into(), shape, rows };
            assert!(!Parts { generation: 1, step: 1, files: 3, tensors: vec![tensor] }.are_complete());
        }
    }

    #[test]
    fn counts_that_no_run_has_are_refused() {
        let folder = tempfile::tempdir().expect("a folder for a test");
        let good = r#"{"version":1,"model":"Net","seed":3,"epochs_done":2,"steps_done":2,"best_epoch":1,"best_bits":0,
            "stop_bits":null,"stop_since":0,"stopped":false,"loss_bits":[0,0]}"#;
        for (from, to) in [
            ("\"steps_done\":2", "\"steps_done\":18446744073709551615"),
            ("\"stop_since\":0", "\"stop_since\":18446744073709551615"),
            ("\"epochs_done\":2", "\"epochs_done\":3"),
            ("\"best_epoch\":1", "\"best_epoch\":2"),
        ] {
            assert!(good.contains(from));
            weights::write(&file_of(folder.path()), vec![], Some(good.replace(from, to))).expect("written");
            let error = load(folder.path(), "Net").expect_err("damaged").to_string();
            assert!(error.contains("is damaged"), "{error}");
        }
    }

    #[test]
    fn what_is_no_checkpoint_has_no_order() {
        let folder = tempfile::tempdir().expect("a folder for a test");
        assert_eq!(order_of(folder.path()), None);
        for bytes in [&b""[..], b"text", &[255; 64], &[1, 0, 0, 0, 0, 0, 0, 0, b'{']] {
            std::fs::write(file_of(folder.path()), bytes).expect("written");
            assert_eq!(order_of(folder.path()), None);
        }
    }
}
