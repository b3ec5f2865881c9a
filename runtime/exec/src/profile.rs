//! What each kernel of training takes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Result;
use crate::plan::StepKind;
use crate::trainer::{TRAIN, Trainer};

/// Epochs that are not measured: caches and clocks settle.
const WARM_UP: u64 = 3;

/// Times of training, in milliseconds, of an epoch each.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// Number of epochs that were measured.
    pub epochs: u64,
    /// A whole epoch: forward, backward and update.
    pub epoch_ms: f64,
    /// Each kernel of the launches, in their order. The prelude belongs to no epoch.
    pub kernels_ms: Vec<f64>,
    /// Copies between kernels.
    pub copies_ms: f64,
}

/// Trains for a few epochs, or until `stop` is set, and measures each kernel. Nothing is evaluated, and no epoch is kept
/// as the best.
///
/// # Errors
/// A model that cannot be trained, or a loss that is not finite.
pub fn profile(trainer: &mut Trainer, epochs: u64, stop: &AtomicBool) -> Result<Profile> {
    trainer.check_trainable()?;
    let mut found = Profile::default();
    let mut copies_ms = 0.0;
    for epoch in 0..WARM_UP.saturating_add(epochs) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if epoch == WARM_UP {
            trainer.engine().forget_times();
        }
        let (_, ms) = trainer.train_epoch(epoch)?;
        if epoch >= WARM_UP {
            found.epochs += 1;
            found.epoch_ms += ms;
        }
    }
    if found.epochs == 0 {
        return Ok(found);
    }
    found.epoch_ms /= found.epochs as f64;
    for step in trainer.engine().step_times(TRAIN) {
        match step.step.kind {
            StepKind::Region(_) | StepKind::Product(_) => found.kernels_ms.push(step.ms),
            StepKind::Copy { .. } => copies_ms += step.ms,
        }
    }
    found.copies_ms = copies_ms;
    Ok(found)
}
