//! Historical embeddings: layer-1 embeddings of hot vertices, refreshed once per several mini-batches.
//!
//! The batches of an epoch are grouped into super-batches, each sampled before its first batch is trained. Hot vertices
//! sample no neighbours in the last hop ([`HistoricalVertices`](hgnnc_sample::HistoricalVertices)). Before a
//! super-batch, a separate program computes the embeddings of its hot vertices with the current parameters, from
//! in-edges sampled with the fan-outs of that hop; all batches of the super-batch read them as constants (NeutronOrch,
//! Ai et al., PVLDB 17(8) 2024). An embedding is therefore at most `batches - 1` updates stale.
//!
//! This module selects the hot vertices, and samples super-batches on the loader thread. The trainer computes and
//! stores the embeddings.

mod hot_vertices;
mod super_batches;

pub use hot_vertices::choose;
pub use super_batches::make_super_batches;

/// Vertices per refresh batch: about as many as a mini-batch has in the hop before the last, so that it needs
/// about as much memory.
const REFRESH_BATCH_SIZE: usize = 16384;
