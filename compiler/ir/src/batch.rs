//! How the program of a batch belongs to the program of the whole graph.
//!
//! A batch is a sampled subgraph. Its vertices are numbered by type in the order in which they were reached: the seeds
//! first, then what is one hop from them, and so on. A vertex that was reached within `h` hops and is `L` hops at most from
//! the seeds in all has its in-edges drawn where `h < L`. So whatever the program computes on vertices within `h` hops are
//! the first rows of what it would compute on all of them, and every value has only as many rows as the loss depends on.

use crate::types::{Graph, Input, Param, Pattern, VertexType};

/// Rows that are known within a number of hops.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Known {
    /// The type in the program of the whole graph.
    pub vertex: VertexType,
    /// Vertices of this type at most so many hops from the seeds.
    pub hops: usize,
}

/// A graph of the program of a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BatchGraph {
    /// The sampled in-edges of the vertices that are known within a number of hops.
    Sampled {
        /// The graph in the program of the whole graph.
        graph: Graph,
        /// Hops of its destinations; its sources are one more hop away at most.
        hops: usize,
    },
    /// Pairs to score: both ends are seeds.
    Links {
        /// The graph in the program of the whole graph.
        graph: Graph,
    },
    /// From each vertex within more hops to itself within fewer: what takes the first rows.
    First {
        /// The vertices within fewer hops, a type of the batch.
        rows: VertexType,
    },
    /// From each vertex whose values are taken from elsewhere to itself among all: what puts them there.
    Reused {
        /// Position in [`BatchLayout::reused`].
        rows: usize,
    },
}

/// An input of the program of a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BatchInput {
    /// Rows of an input of the program of the whole graph.
    Whole(Input),
    /// Values that are taken from elsewhere.
    Reused {
        /// Position in [`BatchLayout::reused`].
        rows: usize,
        /// Position in [`Reused::values`].
        value: usize,
    },
}

/// Vertices of a type that draw nothing in the last hop, because what would come of it is taken from elsewhere. They are
/// the ones that the last hop but one reached first: all others have drawn their in-edges before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reused {
    /// A type of the batch that has a row for each.
    pub rows: VertexType,
    /// The type of the batch among which they are: all within one hop fewer than the last.
    pub of: VertexType,
    /// Numbers of a row, for each of their values.
    pub values: Vec<usize>,
}

impl Reused {
    /// The name of a value, as a result of the program that computes it.
    pub fn name(rows: usize, value: usize) -> String {
        format!("reused.{rows}.{value}")
    }
}

/// A sparse feature matrix of the program of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchPattern {
    /// The matrix in the program of the whole graph.
    pub pattern: Pattern,
    /// Its rows, a type of the batch.
    pub rows: VertexType,
}

/// The tables of the program of a batch, beside those of the program of the whole graph. Parameters are the same and in the
/// same order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BatchLayout {
    /// How far from the seeds the loss sees.
    pub hops: usize,
    /// Vertex types, by [`VertexType`] of the batch. For those of [`BatchLayout::reused`], which have fewer rows: what they are
    /// among.
    pub vertices: Vec<Known>,
    /// Graphs, by [`Graph`] of the batch.
    pub graphs: Vec<BatchGraph>,
    /// Sparse features, by [`Pattern`] of the batch.
    pub patterns: Vec<BatchPattern>,
    /// Inputs, by [`Input`] of the batch. Counters of steps and epochs follow, which are nowhere else.
    pub inputs: Vec<BatchInput>,
    /// Parameters with a row for each vertex of a type, and how many hops these are away: a batch has the rows of its
    /// vertices.
    pub rows: Vec<(Param, Known)>,
    /// Whose values are taken from elsewhere, by their type in the program of the whole graph.
    pub reused: Vec<Reused>,
}

impl BatchLayout {
    /// Whose values a vertex type of the batch has, if it is such a type: position in [`BatchLayout::reused`].
    pub fn reused_rows(&self, vertex: VertexType) -> Option<usize> {
        self.reused.iter().position(|reused| reused.rows == vertex)
    }

    /// Most hops of the destinations of a sampled graph; `None` where the program does not use it.
    pub fn deepest(&self, graph: Graph) -> Option<usize> {
        let hops = |it: &BatchGraph| match *it {
            BatchGraph::Sampled { graph: of, hops } if of == graph => Some(hops),
            BatchGraph::Sampled { .. }
            | BatchGraph::Links { .. }
            | BatchGraph::First { .. }
            | BatchGraph::Reused { .. } => None,
        };
        self.graphs.iter().filter_map(hops).max()
    }
}
