//! Mini-batches: what a training step reads, sampled and gathered ahead of it.
//!
//! [`loader`] samples the neighbourhoods of seed vertices or links (negative ones are drawn beside them), gathers the rows
//! of features and labels, and builds the sampled graphs. A [`Pipeline`] does so on a thread, one batch ahead of
//! training. [`cache`] keeps the rows that batches access most in a fast memory, and [`historical_embeddings`] finds the
//! vertices whose embeddings several batches share; both know the accesses from an epoch sampled before training
//! ([`presample`]).
//!
//! This crate runs no programs: the trainer does, with the data of a [`MiniBatch`].

pub mod cache;
pub mod historical_embeddings;
pub mod loader;
pub mod negatives;
mod pairs;
pub mod pipeline;
pub mod presample;
mod spans;

use hgnnc_data::ExecError;

pub use cache::CacheOptions;
pub use hgnnc_cache::Policy as CachePolicy;
pub use loader::{MiniBatch, MiniBatchLoader};
pub use pipeline::Pipeline;
pub use spans::{BatchPart, BatchSpan};

/// An internal inconsistency, reported as an error.
pub fn internal(what: &str) -> ExecError {
    ExecError::Unsupported(format!("internal error: {what}"))
}
