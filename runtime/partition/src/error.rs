//! Reasons why a dataset was not partitioned.

use std::io;
use std::path::{Path, PathBuf};

use hgnnc_dataset::write::WriteError;
use hgnnc_dataset::{DataError, DataErrors};
use hgnnc_graph::show_bytes;

/// Why a dataset was not partitioned. The target is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// The source is no dataset, or has faults.
    #[error(transparent)]
    Data(#[from] DataErrors),
    /// The target is taken, or a file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The number of ranks is zero or too large.
    #[error("a dataset is partitioned for 1 to {most} ranks, not for {ranks}")]
    Ranks {
        /// Ranks that were asked for.
        ranks: usize,
        /// The most ranks of a partition.
        most: usize,
    },
    /// The number of passes is zero or too large.
    #[error("the vertices are streamed 1 to {most} times, not {passes} times")]
    Passes {
        /// Passes that were asked for.
        passes: usize,
        /// The most passes.
        most: usize,
    },
    /// The names of relations or splits that were given are not those of the dataset.
    #[error("the dataset has no {of} `{name}`; it has {known}")]
    Unknown {
        /// `relation` or `split`.
        of: &'static str,
        /// The name that was given.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// There are more vertices than numbers of 32 bits.
    #[error("the dataset has {vertices} vertices in all, and at most {most} can be partitioned")]
    Vertices {
        /// Vertices of all types.
        vertices: u64,
        /// The most vertices.
        most: u64,
    },
    /// There are more vertex types than the classes of balance can tell apart.
    #[error("the dataset has {types} vertex types, and at most {most} can be partitioned")]
    Types {
        /// Vertex types of the dataset.
        types: usize,
        /// The most vertex types.
        most: usize,
    },
    /// The machine has too little memory.
    #[error(
        "the partition needs {} of memory, and {} are free: free some, or take a machine with more{}",
        show_bytes(*needed), show_bytes(*available),
        if *simpler < *available { format!("; `--by hash` needs {}", show_bytes(*simpler)) } else { String::new() }
    )]
    Memory {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        available: u64,
        /// Bytes that the assignment by hash needs.
        simpler: u64,
    },
    /// There is nothing to resume.
    #[error("there is nothing to resume: `{}` does not exist; run the command without `--resume`", .0.display())]
    NothingToResume(PathBuf),
    /// The interrupted run in the folder was of another dataset, or had other options.
    #[error(
        "`{}` is what an interrupted run of {difference} left: resume with what that run was given, or run the command \
         without `--resume`, which starts again",
        folder.display()
    )]
    OtherRun {
        /// The folder of the interrupted run.
        folder: PathBuf,
        /// Difference between the two runs, in words.
        difference: &'static str,
    },
    /// Another process partitions into the same folder.
    #[error("another process writes `{}`: wait for its end", .0.display())]
    Busy(PathBuf),
    /// A file of the work folder or a partition cannot be read.
    #[error("cannot read `{}`: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause of the failure, in words.
        reason: String,
    },
    /// The observer has ended the run. What was done is kept.
    #[error("the partition was stopped; it can be resumed")]
    Stopped,
}

impl PartitionError {
    /// A failure of the operating system at a path that is written.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> PartitionError + use<> {
        let inner = WriteError::io(path);
        move |error| PartitionError::Write(inner(error))
    }

    pub(crate) fn read(path: &Path, reason: impl ToString) -> PartitionError {
        PartitionError::Read { path: path.to_path_buf(), reason: reason.to_string() }
    }

    /// A fault of the source dataset.
    pub(crate) fn data(folder: &Path, error: DataError) -> PartitionError {
        PartitionError::Data(DataErrors { folder: folder.to_path_buf(), errors: vec![error] })
    }

    /// Whether another run with `--resume` can continue where this one ended.
    pub fn can_resume(&self) -> bool {
        matches!(self, PartitionError::Write(WriteError::Io { .. }) | PartitionError::Stopped)
    }
}

/// The result of functions that read, assign or write.
pub type Result<T> = std::result::Result<T, PartitionError>;
