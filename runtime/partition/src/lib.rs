//! Partitions a dataset for several ranks, as a stream: memory grows with the number of vertices, not with that of edges.
//!
//! [`partition`] writes a dataset of the ordinary format in which the vertices of each rank are consecutive within their
//! type, and the edges of each relation within the relation, by the owner of the destination. Beside it stands
//! `partition.json` ([`Partition`]) with the borders of the ranks, counts, and files of out-edges and of the numbers that
//! the vertices had. Vertices and edges of one rank stay in the order of the source. `docs/partition.md` has it all.
//!
//! ```text
//! Source -> adjacency (sorted outside of memory) -> assign (passes) -> counts -> plan -> write -> rename
//! ```
//!
//! Each stage notes in the work folder what it has done ([`work`]), so that a killed run can be resumed. The result depends
//! on the source and the options only, not on the number of threads or on where a run was resumed.
//!
//! This crate does not train, and exchanges nothing between processes.

#![forbid(unsafe_code)]

mod adjacency;
mod array;
mod assign;
mod counts;
mod error;
mod manifest;
mod memory;
mod plan;
mod progress;
mod run;
mod scatter;
mod source;
pub mod work;
mod write;

pub use error::PartitionError;
pub use manifest::{Partition, RelationParts, SourceIdentity, TypeParts};
pub use memory::Needs;
pub use progress::{Observer, Stage};
pub use run::partition;

/// The most ranks of a partition.
pub const MOST_RANKS: usize = 4096;

/// The most passes over the vertices.
pub const MOST_PASSES: usize = 1000;

/// How vertices are assigned to ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// By chance, balanced: no regard to edges.
    Hash,
    /// Ranges of the source's order.
    Range,
    /// Restreamed Fennel: each vertex to the rank of most of its neighbours, balanced.
    Fennel,
}

impl By {
    /// All ways, by name.
    pub const ALL: [By; 3] = [By::Fennel, By::Hash, By::Range];

    /// Its name in options and files.
    pub fn name(self) -> &'static str {
        match self {
            By::Hash => "hash",
            By::Range => "range",
            By::Fennel => "fennel",
        }
    }

    /// A line of help.
    pub fn about(self) -> &'static str {
        match self {
            By::Hash => "By chance, without regard to edges",
            By::Range => "Ranges of vertices, for datasets whose neighbours have close numbers",
            By::Fennel => "Streamed several times, each vertex to the rank of most of its neighbours",
        }
    }
}

/// How a dataset is partitioned.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Number of ranks, 1 to [`MOST_RANKS`].
    pub ranks: usize,
    /// How vertices are assigned.
    pub by: By,
    /// Times that the vertices are streamed, where they are: 1 to [`MOST_PASSES`].
    pub passes: usize,
    /// Names of the relations whose edges decide; all of them if empty.
    pub relations: Vec<String>,
    /// The split whose training vertices are balanced; the first one of each vertex type if not given.
    pub split: Option<String>,
    /// Seed of what is dealt, and of the order of the stream, which without it is the stored one.
    pub seed: Option<u64>,
    /// Bytes of memory that the run may take; any number if not given.
    pub available: Option<u64>,
    /// Continues a run that was interrupted.
    pub resume: bool,
}

impl Options {
    /// For this number of ranks, with five passes.
    pub fn new(ranks: usize) -> Options {
        Options {
            ranks,
            by: By::Fennel,
            passes: 5,
            relations: vec![],
            split: None,
            seed: None,
            available: None,
            resume: false,
        }
    }

    /// Canonical text of the options that the result depends on.
    fn key(&self) -> String {
        let Options { ranks, by, passes, relations, split, seed, available: _, resume: _ } = self;
        let passes = if matches!(by, By::Fennel) { *passes } else { 0 };
        format!("{ranks} {} {passes} {relations:?} {split:?} {seed:?}", by.name())
    }
}
