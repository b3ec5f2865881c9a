//! What each kernel of training takes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Result;
use crate::plan::StepKind;
use crate::trainer::{TRAIN, Trainer};

/// Epochs that are not measured: caches and clocks settle.
const WARM_UP: u64 = 3;

/// Times of training, in milliseconds, of an epoch each: medians over the epochs.
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
    let (mut epochs_ms, mut kernels_ms, mut copies_ms): (Vec<f64>, Vec<Vec<f64>>, Vec<f64>) = Default::default();
    for epoch in 0..WARM_UP.saturating_add(epochs) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        trainer.engine().forget_times();
        let (_, ms) = trainer.train_epoch(epoch)?;
        if epoch < WARM_UP {
            continue;
        }
        epochs_ms.push(ms);
        let steps = trainer.engine().step_times(TRAIN);
        let (copies, kernels): (Vec<_>, Vec<_>) =
            steps.iter().partition(|step| matches!(step.step.kind, StepKind::Copy { .. }));
        copies_ms.push(copies.iter().map(|step| step.ms).sum());
        kernels_ms.resize(kernels.len(), vec![]);
        for (all, step) in kernels_ms.iter_mut().zip(kernels) {
            all.push(step.ms);
        }
    }
    Ok(Profile {
        epochs: epochs_ms.len() as u64,
        epoch_ms: median(epochs_ms),
        kernels_ms: kernels_ms.into_iter().map(median).collect(),
        copies_ms: median(copies_ms),
    })
}

/// The middle one; 0 of none. A mean would show what else the machine did.
fn median(mut ms: Vec<f64>) -> f64 {
    ms.sort_by(f64::total_cmp);
    let middle = |at: usize| ms.get(at).copied().unwrap_or(0.0);
    (middle(ms.len().saturating_sub(1) / 2) + middle(ms.len() / 2)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0]), 3.0);
        assert_eq!(median(vec![9.0, 1.0, 4.0, 2.0]), 3.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
    }
}
