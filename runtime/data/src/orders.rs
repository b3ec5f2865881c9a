//! The orders of vertices that bound data has.

use std::sync::Arc;

use hgnnc_graph::order::Order;
use hgnnc_ir::types::VertexType;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Rows per parallel task.
pub const CHUNK: usize = 1 << 13;

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
    pub types: Vec<Option<Arc<Order>>>,
    /// By graph and destination: displacement from the positions of its edges to those in the dataset (modulo 2^32).
    pub moved: Vec<Option<Vec<u32>>>,
    /// Kind of the order; `None` if the caller provided it.
    pub kind: Option<OrderKind>,
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
    pub fn moved(&self, graph: usize) -> Option<&[u32]> {
        self.moved.get(graph)?.as_deref()
    }

    /// Size of the order arrays in bytes.
    pub fn bytes(&self) -> u64 {
        let types: usize = self.types.iter().flatten().map(|order| 2 * order.original.len()).sum();
        let moved: usize = self.moved.iter().flatten().map(Vec::len).sum();
        4 * (types + moved) as u64
    }
}

/// Permutes rows into existing memory: row `i` of `to` is row `pick[i]` of `from`.
pub fn copy_rows<T: Copy + Send + Sync>(from: &[T], pick: &[u32], to: &mut [T]) {
    let width = to.len() / pick.len().max(1);
    if width == 0 {
        return;
    }
    to.par_chunks_mut(CHUNK * width).zip(pick.par_chunks(CHUNK)).for_each(|(to, pick)| {
        for (to, &row) in to.chunks_exact_mut(width).zip(pick) {
            to.copy_from_slice(&from[row as usize * width..(row as usize + 1) * width]);
        }
    });
}
