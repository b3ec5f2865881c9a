//! Training and evaluation of compiled models.
//!
//! [`Trainer`] is the training loop: epochs or mini-batches, early stopping, the best epoch, metrics, [`weights`],
//! [`checkpoint`]s and the [`report`]. It runs on any [`hgnnc_session::Backend`], and names none.
//!
//! This crate parses neither the source language nor dataset files, and compiles no models.

pub mod batches;
pub mod checkpoint;
mod links;
mod not_finite;
pub mod report;
pub mod trainer;
pub mod weights;

pub use report::Report;
pub use trainer::{Arenas, Epoch, MemoryNeeded, Outcome, OutputRows, TrainOptions, Trainer};
