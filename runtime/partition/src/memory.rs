//! Memory and disk that a partition takes.

use crate::scatter::{BUFFERS, buffer_bytes};
use crate::{By, Options};

/// Estimated memory and disk of a partitioning run, in bytes, and the size of its graph. Pages of mapped files, which
/// the system takes back when it needs them, are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Memory at its peak.
    pub memory: u64,
    /// Disk beside the partition while it is made.
    pub work_disk: u64,
    /// Number of vertices of all types.
    pub vertices: u64,
    /// Number of edges of all relations.
    pub edges: u64,
}

/// Words that a thread sorts at once: neighbours, and a degree for each vertex.
pub fn sorted_words(edges: u64) -> u64 {
    (1 << 21).max(2 * edges / 8192)
}

impl Needs {
    /// Estimate for a partition of a dataset with these numbers of vertices and edges.
    ///
    /// While vertices are assigned, there is per vertex: its position in the stream and its degree (4 + 4 bytes), then
    /// its rank and its class of balance (2 + 2) beside the position. While files are written: its rank, its new number
    /// and two masks of mirrors (2 + 4 + 2). `listed` vertices in splits take 4 bytes each. Nothing depends on the number
    /// of edges but the blocks of the sort, one of 16 MiB on each thread up to 8 billion edges.
    pub fn new(vertices: u64, edges: u64, listed: u64, threads: usize, options: &Options) -> Needs {
        let streamed = matches!(options.by, By::Fennel);
        // The words of a block, and for each vertex where its next neighbour is written; buffers to scatter half-edges.
        let sort = if streamed { threads as u64 * 8 * sorted_words(edges) + (2 * BUFFERS) as u64 } else { 0 };
        // Three arrays of a relation are written at a time, on each thread, and a chunk is read.
        let write = threads as u64 * (3 * buffer_bytes(options.ranks) as u64 + (4 << 20));
        // The window of a mapped file that is not given back yet.
        let windows = threads as u64 * (64 << 20);
        let memory = 8 * vertices + 4 * listed + sort.max(write) + windows + (16 << 20);
        let work_disk = if streamed { 24 * edges + 6 * vertices } else { 2 * vertices };
        Needs { memory, work_disk, vertices, edges }
    }
}
