//! Historical embeddings: bottom-layer embeddings of hot vertices, computed by one mini-batch and read by others.
//!
//! The batches of an epoch are grouped into windows. The first batch of a window that computes the embedding of a hot
//! vertex keeps it in a table; later batches of the window whose last hop but one reaches the vertex sample no
//! neighbours of it, and read the embedding as a constant (GNNAutoScale, Fey et al., ICML 2021; which vertices:
//! NeutronOrch, Ai et al., PVLDB 17(8) 2024). With windows of `n` batches, an embedding is at most `n - 1` updates stale,
//! and the bottom layer learns from each hot vertex once per window.
//!
//! This module selects the hot vertices, and follows on the loader thread which of them the table has. The trainer keeps
//! the embeddings.

mod hot_vertices;
mod table;

pub use hot_vertices::choose;
pub use table::{CachedVertices, HotVertices};
