//! Statistics of epoch times.

use hgnnc_trace::Times;

/// Warm-up epochs, whose times are not reported.
pub(super) const WARM_UP: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Timing {
    pub epochs: Vec<f64>,
    pub phases: [Vec<f64>; 3],
    pub stages: [f64; 5],
    pub stage_epochs: usize,
    pub infer: Vec<f64>,
    /// Seconds that the initial values took.
    pub init_s: f64,
    pub train_s: f64,
    /// Bytes that steps on the whole graph sent to other ranks.
    pub sent_bytes: u64,
}

impl Timing {
    /// Adds phase and stage times of an epoch, whose total is already recorded.
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

    /// [`Timing::add`] for an epoch timed launch by launch on a device. The first such epoch is discarded once there is
    /// another: it includes code loading.
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
