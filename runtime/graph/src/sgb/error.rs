//! Errors of the semantic graph build.

/// Why a semantic graph cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum SgbError {
    /// The metapath has no steps.
    #[error("metapath `{graph}` has no steps")]
    NoSteps { graph: String },
    /// A step names a relation that does not exist.
    #[error("semantic graph `{graph}` uses relation number {relation}, but the dataset has {relations}")]
    NoSuchRelation {
        graph: String,
        /// Position of the relation.
        relation: usize,
        relations: usize,
    },
    /// The steps do not join.
    #[error(
        "metapath `{graph}`: step {position} starts at vertex type `{starts}`, but the step before it ends at `{ends}`"
    )]
    StepsDoNotJoin {
        graph: String,
        /// Number of the step, from 1.
        position: usize,
        /// Vertex type at which the step starts.
        starts: String,
        /// Vertex type at which the previous step ends.
        ends: String,
    },
    /// Self loops were requested between different vertex types.
    #[error("self loops on `{graph}` make no sense: it leads from vertex type `{src}` to `{dst}`")]
    BipartiteSelfLoops {
        graph: String,
        /// Vertex type of the sources.
        src: String,
        /// Vertex type of the destinations.
        dst: String,
    },
    /// The graph exceeds the memory budget. Memory of its size was not allocated.
    #[error(
        "semantic graph `{graph}` would have {}{pairs} pairs and take {}, but the memory budget is {}",
        if *exact { "" } else { "up to " }, show_bytes(*bytes), show_bytes(*budget)
    )]
    OverBudget {
        graph: String,
        pairs: u64,
        /// Whether `pairs` is exact; otherwise it is an upper bound.
        exact: bool,
        /// Size of a graph with `pairs` pairs.
        bytes: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// The path instances exceed the memory budget. They were counted, not listed.
    #[error(
        "`{graph}` has {instances} path instances, up to {most} of them for one vertex; listing them takes {}, but the memory \
         budget is {}: write `{graph} at most {fitting} per vertex` to choose that many at random for each vertex",
        show_bytes(*bytes), show_bytes(*budget)
    )]
    TooManyInstances {
        graph: String,
        /// Number of instances to list.
        instances: u128,
        /// The most that end at one vertex.
        most: u64,
        /// Size of the listed instances with their graphs.
        bytes: u64,
        /// The budget in bytes.
        budget: u64,
        /// A limit per vertex that fits the budget.
        fitting: u64,
    },
    /// The rows of vertices as of cutoffs exceed the memory budget. They were counted, not listed.
    #[error(
        "vertices without a time are read as of the times of their readers: {names} would have {rows} rows and {edges} edges or \
         more, but the memory budget of a semantic graph is {}: write times in a coarser unit, such as days instead of seconds, or \
         give the vertices a time",
        show_bytes(*budget)
    )]
    TooManyCutoffRows {
        /// The vertex types that have such rows.
        names: String,
        /// The number of rows that were found until it was given up.
        rows: u64,
        /// The number of their in-edges.
        edges: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// The rows of the ends of links, as of the times before their periods, exceed the memory budget.
    #[error(
        "the ends of links are read as of the time before each period: {names} would have {rows} rows and {edges} edges or more, \
         but the memory budget of a semantic graph is {}: choose longer periods than {period}, `cutoff time every {}`",
        show_bytes(*budget), period.saturating_mul(10)
    )]
    TooManyPeriods {
        /// The vertex types that have such rows.
        names: String,
        /// The number of rows that were found until it was given up.
        rows: u64,
        /// The number of their in-edges.
        edges: u64,
        /// The length of a period in units of time.
        period: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// More edges than 32-bit edge ids can number.
    #[error("semantic graph `{graph}` would have {edges} edges, but edge ids have 32 bits")]
    TooManyEdges { graph: String, edges: u64 },
    /// A pair has more path instances than 64 bits hold.
    #[error("metapath `{graph}`: a pair has 2^64 path instances or more; use the reachable form")]
    CountOverflow { graph: String },
}

/// Formats a size in bytes with a unit, for messages.
pub fn show_bytes(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        10_000_000..=9_999_999_999 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}
