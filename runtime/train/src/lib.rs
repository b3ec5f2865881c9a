//! Training and evaluation of compiled models.
//!
//! [`Trainer`] is the training loop: epochs or mini-batches, early stopping, the best epoch, metrics, [`weights`],
//! [`checkpoint`]s and the [`report`]. It runs on any [`hgnnc_session::Backend`], and names none.
//!
//! This crate parses neither the source language nor dataset files, and compiles no models.

pub mod baseline;
pub mod batches;
pub mod checkpoint;
mod links;
mod memory;
mod not_finite;
pub mod report;
pub mod trainer;
pub mod weights;

use hgnnc_data::Result;
use hgnnc_session::Session;

pub use memory::MemoryNeeded;
pub use report::{RankReport, Report};
pub use trainer::{
    Arenas, Epoch, FamilyOutputRows, GraphOutputRows, Outcome, OutputRows, ScoredLinks, TrainOptions, Trainer,
};

/// Copies the parameters to a session of another program with the same parameters. Those that it does not use have one
/// element there.
fn copy_params(from: &mut dyn Session, to: &mut dyn Session) -> Result<()> {
    let mut numbers = vec![];
    for param in 0..to.params().num_params() {
        let len = from.params().len(param);
        if to.params().len(param) == len {
            numbers.resize(len, 0.0);
            from.params().read(param, &mut numbers)?;
            to.params().write(param, &numbers)?;
        }
    }
    Ok(())
}
