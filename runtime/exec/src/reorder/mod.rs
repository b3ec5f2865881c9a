//! Numbers vertices anew for one processor: near numbers share neighbours, so gathers find more in the cache.
//!
//! This happens once, when data is bound, and nothing below knows of it: graphs, inputs, labels and parts are all in the
//! new numbers. What a user sees or keeps is in the numbers of the dataset: outputs, parameters with a row for each vertex,
//! checkpoints, and the random masks, which belong to elements and not to places in memory.
//!
//! Edges stay in the order that they had within a row, so the sum over the edges of a row takes the same terms in the same
//! order. What changes is which rows follow each other: sums over all rows (gradients of weights, the loss) are added in
//! another order, and a row that crosses the border of a tile of edges crosses it elsewhere.

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

/// How vertices are ordered. With the data, and the program that gathers it, this says which number each has: neither the
/// processor nor the number of epochs matters beyond it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderKind {
    /// As the dataset has them.
    Dataset,
    /// Those with most edges first.
    Degree,
    /// As they are first reached from others.
    FirstUse,
    /// By clusters, around the classes of the training part where there are any.
    Clusters,
}

impl OrderKind {
    /// In words, behind *vertices are in the order*.
    pub fn words(self) -> &'static str {
        match self {
            Self::Dataset => "of the dataset",
            Self::Degree => "of their degrees",
            Self::FirstUse => "of their first use",
            Self::Clusters => "of clusters",
        }
    }
}

/// The numbers of vertices where they are not those of the dataset.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Orders {
    /// By vertex type; empty where all are those of the dataset.
    types: Vec<Option<Arc<Order>>>,
    /// For each graph and destination, what its edges' positions have to be increased by (modulo 2^32) to be those in the
    /// numbers of the dataset.
    moved: Vec<Option<Vec<u32>>>,
    /// How they were found; nothing where somebody has given them.
    kind: Option<OrderKind>,
}

impl Orders {
    /// Are there other numbers than those of the dataset?
    pub fn any(&self) -> bool {
        self.types.iter().any(Option::is_some)
    }

    /// How vertices are ordered; `None` in an order that somebody has given.
    pub fn kind(&self) -> Option<OrderKind> {
        if self.any() { self.kind } else { Some(OrderKind::Dataset) }
    }

    /// Of one vertex type.
    pub fn of(&self, vertex: VertexType) -> Option<&Order> {
        self.types.get(vertex.index())?.as_deref()
    }

    /// How far the edges of each destination of a graph have moved.
    pub(crate) fn moved(&self, graph: usize) -> Option<&[u32]> {
        self.moved.get(graph)?.as_deref()
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let types: usize = self.types.iter().flatten().map(|order| 2 * order.original.len()).sum();
        let moved: usize = self.moved.iter().flatten().map(Vec::len).sum();
        4 * (types + moved) as u64
    }
}
