//! The times of a run.

use crate::times::Times;

/// Epochs whose times are not reported: caches and clocks settle.
pub(super) const WARM_UP: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Timing {
    pub epochs: Vec<f64>,
    pub phases: [Vec<f64>; 3],
    pub stages: [f64; 5],
    pub stage_epochs: usize,
    pub infer: Vec<f64>,
    pub train_s: f64,
}

impl Timing {
    /// Notes phases and stages of an epoch, whose time is there already.
    pub fn add(&mut self, times: &Times) {
        for (list, nanos) in self.phases.iter_mut().zip(times.phases) {
            list.push(nanos * 1e-6);
        }
        if self.epochs.len() > WARM_UP {
            self.stage_epochs += 1;
            for (total, nanos) in self.stages.iter_mut().zip(times.stages) {
                *total += nanos * 1e-6;
            }
        }
    }

    /// As [`Timing::add`], of an epoch whose launches a device has timed. The first one is forgotten as soon as there is
    /// another: code is loaded meanwhile.
    pub fn add_of_device(&mut self, times: &Times) {
        if self.stage_epochs == 1 && self.epochs.len() == 2 {
            self.phases.iter_mut().for_each(Vec::clear);
            (self.stages, self.stage_epochs) = ([0.0; 5], 0);
        }
        for (list, nanos) in self.phases.iter_mut().zip(times.phases) {
            list.push(nanos * 1e-6);
        }
        self.stage_epochs += 1;
        for (total, nanos) in self.stages.iter_mut().zip(times.stages) {
            *total += nanos * 1e-6;
        }
    }
}
