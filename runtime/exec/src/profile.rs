//! What each kernel of training takes.

use std::sync::atomic::{AtomicBool, Ordering};

use hgnnc_ptx::Entry;

use crate::device::KernelCounters;
use crate::engine::{Engine, StepTime};
use crate::error::{ExecError, Result};
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

/// What entries of training did on a device, an epoch each.
#[derive(Clone, Debug, Default)]
pub struct DeviceProfile {
    /// Number of epochs that were measured.
    pub epochs: u64,
    /// Median milliseconds of a whole epoch. `None` for a device without a clock.
    pub epoch_ms: Option<f64>,
    /// The entries, in their order.
    pub entries: Vec<EntryProfile>,
}

/// What an entry did.
#[derive(Clone, Debug)]
pub struct EntryProfile {
    /// The entry, with its kernels.
    pub entry: Entry,
    /// Median milliseconds, launched by itself. `None` for a device without a clock.
    pub ms: Option<f64>,
    /// What it did. `None` for a device that does not count.
    pub counters: Option<KernelCounters>,
}

/// Trains for a few epochs, or until `stop` is set, and measures each kernel. Nothing is evaluated, and no epoch is kept
/// as the best.
///
/// # Errors
/// A model that cannot be trained, or a loss that is not finite.
pub fn profile(trainer: &mut Trainer, epochs: u64, stop: &AtomicBool) -> Result<Profile> {
    check(trainer)?;
    let (mut epochs_ms, mut kernels_ms, mut copies_ms): (Vec<f64>, Vec<Vec<f64>>, Vec<f64>) = Default::default();
    for epoch in 0..WARM_UP.saturating_add(epochs) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        engine(trainer)?.forget_times();
        let (_, ms) = trainer.train_step(epoch)?;
        if epoch < WARM_UP {
            continue;
        }
        epochs_ms.push(ms);
        let steps = engine(trainer)?.step_times(TRAIN);
        let (copies, kernels): (Vec<StepTime>, Vec<StepTime>) =
            steps.into_iter().partition(|step| matches!(step.step.kind, StepKind::Copy { .. }));
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

/// Is there a step that can be measured again and again?
fn check(trainer: &Trainer) -> Result<()> {
    trainer.check_trainable()?;
    if trainer.artifact().batch.is_some() {
        return Err(ExecError::Unsupported(
            "kernels are measured on the whole graph, and this model is trained on batches: leave `batch` out of its \
             train block, or see `batches` in the report of `train`"
                .into(),
        ));
    }
    Ok(())
}

fn engine(trainer: &mut Trainer) -> Result<&mut Engine> {
    trainer.engine().ok_or_else(|| ExecError::Unsupported("steps are measured on this processor only".into()))
}

/// As [`profile`], on a device. One that counts executes one epoch, and nothing else: each is like the other. One with a
/// clock measures epochs as they are, and as many in which every entry is launched by itself.
///
/// # Errors
/// A model that cannot be trained, a loss that is not finite, or a device that fails.
pub fn profile_device(trainer: &mut Trainer, epochs: u64, stop: &AtomicBool) -> Result<DeviceProfile> {
    check(trainer)?;
    let counts = trainer.device().is_some_and(|device| device.counters(TRAIN).is_some());
    let (warm_up, epochs) = if counts { (0, 1) } else { (WARM_UP, epochs) };
    let (mut epochs_ms, mut entries_ms): (Vec<f64>, Vec<Vec<f64>>) = Default::default();
    let mut measured = 0;
    for epoch in 0..warm_up + epochs {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if !counts {
            let (_, ms) = trainer.train_step(epoch)?;
            epochs_ms.push(ms);
        }
        let times = trainer.train_launch_by_launch(epoch)?;
        // How long counting took is of no use to anybody.
        let times = times.filter(|_| !counts).unwrap_or_default();
        if epoch < warm_up {
            epochs_ms.clear();
            continue;
        }
        measured += 1;
        entries_ms.resize(times.len(), vec![]);
        for (all, ms) in entries_ms.iter_mut().zip(times) {
            all.push(ms);
        }
    }
    let Some(device) = trainer.device() else { return Ok(DeviceProfile::default()) };
    let counters = device.counters(TRAIN);
    let mut entries_ms = entries_ms.into_iter().map(median);
    let entry = |entry: &Entry| EntryProfile {
        entry: entry.clone(),
        ms: entries_ms.next(),
        counters: counters.as_ref().and_then(|all| all.get(&entry.name[..])).copied().cloned(),
    };
    let entries = device.entries(TRAIN).into_iter().map(entry).collect();
    let epoch_ms = (!epochs_ms.is_empty()).then(|| median(epochs_ms));
    Ok(DeviceProfile { epochs: measured, epoch_ms, entries })
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
