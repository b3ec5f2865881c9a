//! Why a semantic graph cannot be built.

/// Why a semantic graph cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SgbError {
    /// A metapath without steps.
    #[error("metapath `{graph}` has no steps")]
    NoSteps {
        /// The graph.
        graph: String,
    },
    /// A step along a relation that does not exist.
    #[error("semantic graph `{graph}` uses relation number {relation}, but the dataset has {relations}")]
    NoSuchRelation {
        /// The graph.
        graph: String,
        /// Position asked for.
        relation: usize,
        /// Number of relations.
        relations: usize,
    },
    /// Steps that do not join.
    #[error(
        "metapath `{graph}`: step {position} starts at vertex type `{starts}`, but the step before it ends at `{ends}`"
    )]
    StepsDoNotJoin {
        /// The graph.
        graph: String,
        /// Which step, from 1.
        position: usize,
        /// Vertex type at which it starts.
        starts: String,
        /// Vertex type at which the step before ends.
        ends: String,
    },
    /// Self loops between different vertex types.
    #[error("self loops on `{graph}` make no sense: it leads from vertex type `{src}` to `{dst}`")]
    BipartiteSelfLoops {
        /// The graph.
        graph: String,
        /// Vertex type of the sources.
        src: String,
        /// Vertex type of the destinations.
        dst: String,
    },
    /// The graph is larger than the caller allows. Nothing of its size was allocated.
    #[error(
        "semantic graph `{graph}` would have {}{pairs} pairs and take {}, but the memory budget is {}",
        if *exact { "" } else { "up to " }, show_bytes(*bytes), show_bytes(*budget)
    )]
    OverBudget {
        /// The graph.
        graph: String,
        /// Distinct pairs.
        pairs: u64,
        /// Whether `pairs` was counted; otherwise it is an upper bound.
        exact: bool,
        /// Bytes of a graph of that many pairs.
        bytes: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// More edges than 32-bit edge numbers can name.
    #[error("semantic graph `{graph}` would have {edges} edges, but edge numbers have 32 bits")]
    TooManyEdges {
        /// The graph.
        graph: String,
        /// Number of edges.
        edges: u64,
    },
    /// A pair has more path instances than 64 bits hold.
    #[error("metapath `{graph}`: a pair has 2^64 path instances or more; use the reachable form")]
    CountOverflow {
        /// The graph.
        graph: String,
    },
}

/// A number of bytes with a unit, for messages.
pub fn show_bytes(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        10_000_000..=9_999_999_999 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}
