//! Vertex reordering for cache locality: vertices with nearby ids share neighbours, so gathers hit the cache more
//! often.
//!
//! Reordering happens once, when data is bound: graphs, inputs, labels and splits all use the new ids. User-visible and
//! stored data use the ids of the dataset: outputs, embedding tables, checkpoints, and dropout masks, which are
//! functions of dataset ids.
//!
//! Edges keep their order within a row, so the sum over the edges of a row has the same terms in the same order. Sums
//! over all rows (weight gradients, the loss) change their order, and rows cross tile boundaries at other edges; both
//! affect only the last bits.

mod choose;
mod gathers;
mod renumber;

use std::sync::Arc;

use hgnnc_graph::order::Order;
use hgnnc_ir::types::VertexType;
use serde::{Deserialize, Serialize};

pub use choose::{OrderOptions, Ordered, order_vertices};
pub use gathers::{unsupported_reason, uses_global_rng};
pub(crate) use renumber::copy_rows;
pub use renumber::renumber;

/// Kind of vertex order. Together with data and program it determines the order; the CPU and the number of
/// epochs do not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderKind {
    /// Order of the dataset.
    Dataset,
    /// Vertices by descending degree.
    Degree,
    /// Order of first use in gathers.
    FirstUse,
    /// Clusters, seeded with the classes of the training part if there are any.
    Clusters,
}

impl OrderKind {
    /// Description that completes *vertices are in the order*.
    pub fn words(self) -> &'static str {
        match self {
            Self::Dataset => "of the dataset",
            Self::Degree => "of their degrees",
            Self::FirstUse => "of their first use",
            Self::Clusters => "of clusters",
        }
    }
}

/// Vertex renumbering of bound data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Orders {
    /// By vertex type; empty for the order of the dataset.
    types: Vec<Option<Arc<Order>>>,
    /// By graph and destination: displacement from the positions of its edges to those in the dataset (modulo 2^32).
    moved: Vec<Option<Vec<u32>>>,
    /// Kind of the order; `None` if the caller provided it.
    kind: Option<OrderKind>,
}

impl Orders {
    /// Whether any type is renumbered.
    pub fn any(&self) -> bool {
        self.types.iter().any(Option::is_some)
    }

    /// Kind of the order; `None` if the caller provided it.
    pub fn kind(&self) -> Option<OrderKind> {
        if self.any() { self.kind } else { Some(OrderKind::Dataset) }
    }

    /// Order of one vertex type.
    pub fn of(&self, vertex: VertexType) -> Option<&Order> {
        self.types.get(vertex.index())?.as_deref()
    }

    /// Displacement of the edges of each destination of a graph.
    pub(crate) fn moved(&self, graph: usize) -> Option<&[u32]> {
        self.moved.get(graph)?.as_deref()
    }

    /// Size of the order arrays in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let types: usize = self.types.iter().flatten().map(|order| 2 * order.original.len()).sum();
        let moved: usize = self.moved.iter().flatten().map(Vec::len).sum();
        4 * (types + moved) as u64
    }
}
