//! Times of programs by phase, stage and step.

use hgnnc_ir::types::Phase;

use crate::plan::{Plan, Step};

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
    pub(crate) fn add(&mut self, step: &Step, nanos: f64) {
        let phase = match step.phase {
            Phase::Forward => 0,
            Phase::Backward => 1,
            Phase::Update => 2,
        };
        // A backward step may contain parameter updates.
        let update = nanos * f64::from(step.shares[PU]);
        self.phases[2] += update;
        self.phases[phase] += nanos - update;
        for (total, share) in self.stages.iter_mut().zip(step.shares) {
            *total += nanos * f64::from(share);
        }
    }
}

/// Time of one step of a program.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct StepTime<'a> {
    pub step: &'a Step,
    /// Mean milliseconds per run.
    pub ms: f64,
}

/// Accumulated times of a program since the last reset.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Clock {
    pub runs: u64,
    /// Total nanoseconds: the steps of the prelude, then those of a run.
    pub nanos: Vec<f64>,
    /// Nanoseconds of committing new parameters and states.
    pub commit: f64,
}

impl Clock {
    pub fn new(plan: &Plan) -> Self {
        Self { nanos: vec![0.0; plan.prelude.len() + plan.steps.len()], ..Self::default() }
    }

    /// Mean milliseconds per run.
    pub fn ms(&self, nanos: f64) -> f64 {
        nanos * 1e-6 / self.runs.max(1) as f64
    }
}
