//! Ranks: the processes of one job, and what they exchange.
//!
//! Everything above [`Comm`] is independent of the engine. [`open`] chooses it: [`Alone`] without a launcher, [`mpi::Mpi`]
//! under one. [`threads::run`] runs virtual ranks as threads of one process, which tests compare with. [`nccl::Nccl`] takes
//! the devices of the ranks of another engine; no command uses it.
//!
//! Sums are taken in the order of the ranks ([`ordered_sum`]), so that they are the same on every rank, in every
//! repetition, and on every engine: reductions of MPI libraries are not, from four ranks on.

mod alone;
mod collective;
mod dynamic;
mod error;
pub mod launcher;
pub mod measure;
pub mod members;
pub mod mpi;
pub mod nccl;
pub mod network;
pub mod simgrid;
pub mod slices;
pub mod threads;
pub mod trace;
mod work;

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

pub use alone::Alone;
pub use collective::{all_gather, gather_texts, ordered_sum};
pub use error::CommError;
pub use launcher::Launcher;

/// Messages of one purpose. Exchanges of one tag are started in the same order on all ranks; those of different tags may
/// be started in any order, also by different threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Tag(pub u16);

impl Tag {
    /// Messages at the start and the end of a job.
    pub const CONTROL: Tag = Tag(0);
    /// Exchanges within a step of training.
    pub const STEP: Tag = Tag(1);
    /// Exchanges for batches that are prepared ahead of training.
    pub const AHEAD: Tag = Tag(2);
}

/// Bytes from every rank to every rank. The parts for a rank, or from one, lie in the order of the ranks, without gaps.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Bytes to send, by receiving rank.
    pub send: Vec<u8>,
    /// Number of bytes for each rank.
    pub send_counts: Vec<usize>,
    /// Place for what is received.
    pub recv: Vec<u8>,
    /// Number of bytes from each rank, which is what that rank sends.
    pub recv_counts: Vec<usize>,
}

/// The processes of a job. All ranks take part in every exchange.
pub trait Comm: Send + Sync + Debug {
    /// Number of this process, from 0.
    fn rank(&self) -> usize;

    /// Number of processes of the job, at least 1.
    fn size(&self) -> usize;

    /// The engine, in words.
    fn engine(&self) -> &str;

    /// Exchanges bytes, and returns when this rank has received its own.
    ///
    /// # Errors
    /// When another rank has ended, or sends another number of bytes.
    fn alltoallv(&self, tag: Tag, send: (&[u8], &[usize]), recv: (&mut [u8], &[usize])) -> Result<(), CommError>;

    /// Starts an exchange, and returns at once.
    ///
    /// # Errors
    /// As [`Comm::alltoallv`].
    fn start(&self, tag: Tag, exchange: Exchange) -> Result<Box<dyn Pending>, CommError>;

    /// Returns when all ranks have come here.
    ///
    /// # Errors
    /// When another rank has ended.
    fn barrier(&self) -> Result<(), CommError> {
        let ones = vec![1; self.size()];
        self.alltoallv(Tag::CONTROL, (&vec![0; ones.len()], &ones), (&mut vec![0; ones.len()], &ones))
    }

    /// Ends the job on all ranks: those that wait for this one get an error. On MPI this does not return.
    fn abort(&self, reason: &str);
}

/// An exchange that was started. Dropped, it is waited for.
pub trait Pending: Send {
    /// Waits until everything is received, and returns the buffers.
    ///
    /// # Errors
    /// As [`Comm::alltoallv`].
    fn wait(self: Box<Self>) -> Result<Exchange, CommError>;
}

/// The processes of this job: those of a launcher (`mpirun`, `srun`), or this one alone, which looks for no MPI.
///
/// # Errors
/// When a launcher started this process, and no MPI library is found, or one that does not belong to the launcher.
pub fn open() -> Result<Box<dyn Comm>, CommError> {
    match Launcher::of_environment(&|name| std::env::var(name).ok()) {
        None => Ok(Box::new(Alone)),
        Some(launcher) => Ok(Box::new(mpi::Mpi::open(&launcher)?)),
    }
}

/// Panics where counts and buffers do not belong together, which is a fault of the caller.
fn check(size: usize, bytes: usize, counts: &[usize]) {
    assert_eq!(counts.len(), size, "a count for each rank");
    assert_eq!(counts.iter().sum::<usize>(), bytes, "counts of all bytes");
}

/// The parts of a buffer, by rank.
fn parts(counts: &[usize]) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    counts.iter().scan(0, |start, &count| {
        let range = *start..*start + count;
        *start += count;
        Some(range)
    })
}
