//! Tracks, on the loader thread, the vertices whose embeddings the batches of a window have kept.

use hgnnc_ir::batch::BatchLayout;
use hgnnc_sample::{Batch, HistoricalVertices};

use super::hot_vertices::fresh;
use crate::loader::ReusedRows;

/// The vertices that may have a historical embedding, and for how long they keep it.
#[derive(Clone, Debug)]
pub struct HotVertices {
    /// The vertices.
    pub vertices: HistoricalVertices,
    /// Batches of a window.
    pub window: u64,
}

/// The vertices whose embeddings the batches of a window have kept so far.
#[derive(Clone, Debug)]
pub struct CachedVertices {
    vertices: HistoricalVertices,
    /// By [`BatchLayout::historical`] and vertex: its row in the table; unspecified for other vertices.
    rows: Vec<Vec<u32>>,
    /// By [`BatchLayout::historical`]: the rows of the table.
    counts: Vec<u32>,
}

impl CachedVertices {
    /// An empty table; `counts` are the vertices of each type.
    pub fn new(layout: &BatchLayout, counts: &[usize]) -> Self {
        let rows = layout.historical.iter().map(|it| vec![0; counts[layout.vertices[it.of.index()].vertex.index()]]);
        let rows: Vec<Vec<u32>> = rows.collect();
        Self { vertices: HistoricalVertices::none(counts.len()), counts: vec![0; rows.len()], rows }
    }

    /// Starts a window.
    pub fn clear(&mut self) {
        self.vertices.clear();
        self.counts.fill(0);
    }

    /// The vertices in the table.
    pub fn vertices(&self) -> &HistoricalVertices {
        &self.vertices
    }

    /// The rows that a batch reads from the table, and those that it adds to it. It was sampled without in-edges of the
    /// vertices in the table; `drawn` gives the edges that a vertex of a type would sample in the last hop.
    pub fn take(
        &mut self,
        (layout, hot): (&BatchLayout, &HistoricalVertices),
        batch: &Batch,
        drawn: impl Fn(usize, u32) -> u64,
        into: &mut Vec<ReusedRows>,
    ) {
        into.clear();
        for (number, reused) in layout.historical.iter().enumerate() {
            let known = layout.vertices[reused.of.index()];
            let vertex_type = known.vertex.index();
            let all = &batch.vertices[vertex_type][..batch.known[known.hops][vertex_type] as usize];
            // Vertices of earlier hops have sampled their in-edges.
            let first = all.len() - fresh(batch, known.hops, vertex_type).len();
            let mut own = ReusedRows::default();
            for (row, &vertex) in all.iter().enumerate() {
                if self.vertices.has(vertex_type, vertex) {
                    if row >= first {
                        own.rows.push(row as u32);
                        own.from.push(self.rows[number][vertex as usize]);
                        own.edges_not_drawn += drawn(vertex_type, vertex);
                    }
                } else if hot.has(vertex_type, vertex) {
                    let to = &mut self.counts[number];
                    self.rows[number][vertex as usize] = *to;
                    own.kept.push(row as u32);
                    own.to.push(*to);
                    *to += 1;
                }
            }
            into.push(own);
        }
        for (own, reused) in into.iter().zip(&layout.historical) {
            let known = layout.vertices[reused.of.index()];
            for &row in &own.kept {
                self.vertices.add(known.vertex.index(), batch.vertices[known.vertex.index()][row as usize]);
            }
        }
    }
}
