//! Errors of the communication between ranks.

use std::time::Duration;

/// An error of the communication between ranks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// There is no MPI library for the launcher.
    #[error("{launcher} started this process, but no MPI library for it was found:\n{}", tried.join("\n"))]
    NoLibrary {
        /// The launcher, in words.
        launcher: String,
        /// The libraries that were tried, with what is wrong with each.
        tried: Vec<String>,
    },
    /// The library does not see the processes of the launcher.
    #[error(
        "{launcher} started {started} processes, but {library} sees {seen}: they do not belong together; start with the \
         `mpirun` of that library, or name the library of the launcher in HGNNC_MPI"
    )]
    OtherLauncher {
        /// The launcher, in words.
        launcher: String,
        /// Number of its processes, in words.
        started: String,
        /// Version and path of the library.
        library: String,
        /// Number of processes that the library sees.
        seen: usize,
    },
    /// A rank has ended the job.
    #[error("rank {rank} has ended: {reason}")]
    Ended {
        /// The rank that has ended.
        rank: usize,
        /// The reason that it gave, or that was seen from outside.
        reason: String,
    },
    /// A rank sent another number of bytes than this one expects.
    #[error("rank {from} sent {sent} bytes to rank {to}, which expects {expected}: the ranks do different work")]
    Differs {
        /// The rank that sent.
        from: usize,
        /// The rank that received.
        to: usize,
        /// Bytes that were sent.
        sent: usize,
        /// Bytes that were expected.
        expected: usize,
    },
    /// Ranks do not answer.
    #[error("rank {rank} waits for rank {} since {} s", list(ranks), since.as_secs())]
    Silent {
        /// The rank that waits.
        rank: usize,
        /// The ranks that it waits for.
        ranks: Vec<usize>,
        /// Duration of the wait.
        since: Duration,
    },
    /// A setting of the environment is no number of seconds.
    #[error("HGNNC_RANK_TIMEOUT is `{value}`, which is not a whole number of seconds")]
    Timeout {
        /// Value of the variable.
        value: String,
    },
    /// The thread that exchanges messages has ended.
    #[error("the thread that exchanges messages with other ranks has ended")]
    Gone,
    /// NCCL, or the driver of its devices, is not on this machine.
    #[error("{what} was asked for, but not found:\n{}", tried.join("\n"))]
    NotFound {
        /// The library, in words.
        what: &'static str,
        /// The files that were tried, with what is wrong with each.
        tried: Vec<String>,
    },
    /// There is no device for a rank.
    #[error("{reason}")]
    NoDevice {
        /// The rank, and the devices of its machine, in words.
        reason: String,
    },
    /// A function of NCCL, or of the driver of its devices, failed.
    #[error("{function} of {library} failed: {reason}")]
    Failed {
        /// Name of the function.
        function: &'static str,
        /// Version and path of the library.
        library: String,
        /// The reason that the library gives.
        reason: String,
    },
    /// A function of the MPI library failed.
    #[error("{function} of {library} failed with code {code}")]
    Library {
        /// Name of the function.
        function: &'static str,
        /// Version and path of the library.
        library: String,
        /// Return code of the function.
        code: i32,
    },
}

/// Numbers with commas between them.
fn list(ranks: &[usize]) -> String {
    ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
