//! Times of programs by phase and stage.

use hgnnc_ir::types::Phase;

/// Accumulated nanoseconds by phase and stage.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Times {
    /// Forward, backward and update.
    pub phases: [f64; 3],
    /// By stage, in the order of [`hgnnc_ir::Stage::ALL`].
    pub stages: [f64; 5],
}

/// Index of parameter updates in the stage shares of a step.
const PU: usize = 4;

impl Times {
    /// Adds the nanoseconds of a step of a phase, divided among the stages by their shares.
    pub fn add(&mut self, phase: Phase, shares: [f32; 5], nanos: f64) {
        let phase = match phase {
            Phase::Forward => 0,
            Phase::Backward => 1,
            Phase::Update => 2,
        };
        // A backward step may contain parameter updates.
        let update = nanos * f64::from(shares[PU]);
        self.phases[2] += update;
        self.phases[phase] += nanos - update;
        for (total, share) in self.stages.iter_mut().zip(shares) {
            *total += nanos * f64::from(share);
        }
    }

    /// Adds the nanoseconds of making new parameters current.
    pub fn add_update(&mut self, nanos: f64) {
        self.phases[2] += nanos;
        self.stages[PU] += nanos;
    }
}
