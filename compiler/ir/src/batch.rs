//! The layout of a mini-batch program relative to the program of the whole graph.
//!
//! A mini-batch is a sampled subgraph of `L` hops. Its vertices are numbered per type in order of discovery: the seed
//! vertices first, then hop 1, and so on. A vertex discovered at hop `h < L` has its in-edges sampled. The vertices
//! within `h` hops are therefore a prefix of all vertices of their type, and a value that the loss needs only within
//! `h` hops has rows for this prefix alone.

use crate::types::{Graph, Input, Param, Pattern, VertexType};

/// The vertices of a type within a number of hops of the seeds, a prefix of the vertices of the batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WithinHops {
    /// The vertex type in the program of the whole graph.
    pub vertex: VertexType,
    /// Maximum distance from the seeds, in hops.
    pub hops: usize,
}

/// A graph of the mini-batch program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BatchGraph {
    /// The sampled in-edges of the vertices within a number of hops.
    Sampled {
        /// The graph in the program of the whole graph.
        graph: Graph,
        /// Maximum distance of the destinations from the seeds; sources are at most one hop farther.
        hops: usize,
    },
    /// Vertex pairs to score. Both endpoints are seeds.
    Links {
        /// The graph in the program of the whole graph.
        graph: Graph,
    },
    /// Edges along permutations of the vertices within a number of hops, drawn anew for each batch: each of them has as
    /// many in-edges and out-edges as there are permutations.
    Shuffled {
        /// Sources and destinations, a vertex type of the batch.
        rows: VertexType,
        /// Number of permutations, at least 1.
        permutations: u32,
    },
    /// Identity edges from each vertex of a longer prefix to the same vertex of a shorter one, or of the same; a gather along
    /// them takes the first rows.
    First {
        /// The destinations, a vertex type of the batch.
        rows: VertexType,
    },
    /// Identity edges from each vertex with a historical embedding to the same vertex among all; a scatter along them
    /// inserts the cached rows.
    Historical {
        /// Position of the vertices in [`BatchLayout::historical`].
        rows: usize,
    },
}

/// An input of the mini-batch program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BatchInput {
    /// The rows of the batch's vertices or edges in an input of the whole-graph program.
    Whole(Input),
    /// Historical embeddings, read from the cache.
    Historical {
        /// Position of the vertices in [`BatchLayout::historical`].
        rows: usize,
        /// Position of the value in [`HistoricalRows::values`].
        value: usize,
    },
}

/// Vertices of a type whose bottom-layer embedding is historical (read from the cache). They sample no
/// in-edges in the last hop. They were discovered in the hop before it; vertices discovered earlier have
/// sampled their in-edges already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoricalRows {
    /// The batch's vertex type with one row per such vertex.
    pub rows: VertexType,
    /// The batch's vertex type that contains them: all vertices within `L - 1` hops.
    pub of: VertexType,
    /// Elements per row of each cached value.
    pub values: Vec<usize>,
}

impl HistoricalRows {
    /// The result name of a cached value in the program that computes it.
    pub fn name(rows: usize, value: usize) -> String {
        format!("reused.{rows}.{value}")
    }
}

/// A sparse feature matrix of the mini-batch program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchPattern {
    /// The matrix in the program of the whole graph.
    pub pattern: Pattern,
    /// Its rows, a vertex type of the batch.
    pub rows: VertexType,
}

/// Maps the tables of the mini-batch program to those of the whole-graph program. Both have the same parameters
/// in the same order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BatchLayout {
    /// Receptive field of the loss, in hops.
    pub hops: usize,
    /// The vertex types, indexed by the batch's [`VertexType`]. A type of [`BatchLayout::historical`] has fewer rows; its
    /// entry names the prefix that contains them.
    pub vertices: Vec<WithinHops>,
    /// The graphs, indexed by the batch's [`Graph`].
    pub graphs: Vec<BatchGraph>,
    /// The sparse feature matrices, indexed by the batch's [`Pattern`].
    pub patterns: Vec<BatchPattern>,
    /// The inputs, indexed by the batch's [`Input`]. Step and epoch counters come after them and have no entry.
    pub inputs: Vec<BatchInput>,
    /// Embedding tables (parameters with one row per vertex of a type) and the distance of their vertices. A batch
    /// reads and updates only the rows of its own vertices.
    pub rows: Vec<(Param, WithinHops)>,
    /// Vertices with historical embeddings, one entry per vertex type of the whole graph that has any.
    pub historical: Vec<HistoricalRows>,
}

impl BatchLayout {
    /// The position in [`BatchLayout::historical`] of the entry whose rows are this vertex type of the batch,
    /// if there is one.
    pub fn reused_rows(&self, vertex: VertexType) -> Option<usize> {
        self.historical.iter().position(|reused| reused.rows == vertex)
    }

    /// Maximum `hops` among the sampled copies of a graph. `None` if the program does not use the graph.
    pub fn deepest(&self, graph: Graph) -> Option<usize> {
        let hops = |it: &BatchGraph| match *it {
            BatchGraph::Sampled { graph: of, hops } if of == graph => Some(hops),
            BatchGraph::Sampled { .. }
            | BatchGraph::Links { .. }
            | BatchGraph::Shuffled { .. }
            | BatchGraph::First { .. }
            | BatchGraph::Historical { .. } => None,
        };
        self.graphs.iter().filter_map(hops).max()
    }
}
