//! Outputs of a model that are not of vertices: rows of semantic graphs, and of their edges.

use crate::types::Graph;

/// The rows of an output of a family of semantic graphs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FamilyRows {
    /// One row for each semantic graph.
    Graphs,
    /// One row for each edge of each semantic graph.
    Edges,
}

impl FamilyRows {
    /// The word that declares such an output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Graphs => "graphs",
            Self::Edges => "edges",
        }
    }
}

/// An output of a family of semantic graphs: a program has a result for each of them, all of one width.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FamilyOutput {
    /// Its name in the model.
    pub name: String,
    /// Index space of its rows: semantic graphs or their edges.
    pub rows: FamilyRows,
    /// The semantic graphs in the order of their declaration, each with the name of its result.
    pub members: Vec<(Graph, String)>,
}
