//! Progress of a partition, for the caller.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{PartitionError, Result};
use crate::memory::Needs;

/// A stage of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stage {
    /// Ids of edges are checked, and degrees counted.
    Check,
    /// Edges are sorted by vertices, in a file.
    Sort,
    /// The vertices are streamed and assigned to ranks, for the time that is given, of how many.
    Pass(usize, usize),
    /// Cut edges, and the edges and mirrors of each rank are counted.
    Count,
    /// The files of the partition are written.
    Write,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Check => f.write_str("checking edges"),
            Stage::Sort => f.write_str("sorting edges"),
            Stage::Pass(pass, all) => write!(f, "pass {pass} of {all}"),
            Stage::Count => f.write_str("counting mirrors"),
            Stage::Write => f.write_str("writing"),
        }
    }
}

/// Is told how far a partition is. All methods have a default that does nothing.
pub trait Observer: Sync {
    /// Called before the work, with what it takes.
    fn begin(&self, needs: &Needs) {
        let _ = needs;
    }

    /// `done` of `total` bytes of a stage are processed. May be called by several threads. `Break` ends the run as a
    /// kill would: what is done is kept.
    fn progress(&self, stage: Stage, done: u64, total: u64) -> ControlFlow<()> {
        let _ = (stage, done, total);
        ControlFlow::Continue(())
    }

    /// A line for the user.
    fn note(&self, line: &str) {
        let _ = line;
    }
}

/// An observer that ignores everything.
impl Observer for () {}

/// The progress of one stage.
pub struct Progress<'a> {
    observer: &'a dyn Observer,
    stage: Stage,
    done: AtomicU64,
    total: u64,
}

impl<'a> Progress<'a> {
    /// At the beginning of a stage.
    pub fn new(observer: &'a dyn Observer, stage: Stage, total: u64) -> Result<Progress<'a>> {
        let progress = Progress { observer, stage, done: AtomicU64::new(0), total };
        progress.add(0)?;
        Ok(progress)
    }

    /// Counts processed bytes.
    pub fn add(&self, bytes: u64) -> Result<()> {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        match self.observer.progress(self.stage, done.min(self.total), self.total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(PartitionError::Stopped),
        }
    }
}
