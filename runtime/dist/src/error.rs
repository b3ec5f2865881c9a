//! What goes wrong between ranks.

use std::time::Duration;

/// Why ranks cannot work together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// There is no MPI library for the launcher.
    #[error("`{launcher}` started this process, but no MPI library for it was found:\n{}", tried.join("\n"))]
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
        /// The library.
        library: String,
        /// Number of processes that the library sees.
        seen: usize,
    },
    /// A rank has ended the job.
    #[error("rank {rank} has ended: {reason}")]
    Ended {
        /// The rank.
        rank: usize,
        /// Its reason.
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
        /// For how long.
        since: Duration,
    },
    /// The thread that calls the MPI library is not there.
    #[error("the thread that calls the MPI library has ended")]
    Gone,
    /// A function of the MPI library failed.
    #[error("{function} of {library} failed with code {code}")]
    Library {
        /// The function.
        function: &'static str,
        /// The library.
        library: String,
        /// What it returned.
        code: i32,
    },
}

/// Numbers in words.
fn list(ranks: &[usize]) -> String {
    ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
