//! The time that steps of programs take.

use hgnnc_ir::types::Phase;

use crate::plan::{Plan, Step};

/// Time spent, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Times {
    /// Forward, backward, update.
    pub phases: [f64; 3],
    /// By stage, in the order of [`hgnnc_ir::Stage::ALL`].
    pub stages: [f64; 5],
}

/// Position of parameter updates in the shares of a step.
const PU: usize = 4;

impl Times {
    pub(crate) fn add(&mut self, step: &Step, nanos: f64) {
        let phase = match step.phase {
            Phase::Forward => 0,
            Phase::Backward => 1,
            Phase::Update => 2,
        };
        // Updates may be part of a step of the backward pass.
        let update = nanos * f64::from(step.shares[PU]);
        self.phases[2] += update;
        self.phases[phase] += nanos - update;
        for (total, share) in self.stages.iter_mut().zip(step.shares) {
            *total += nanos * f64::from(share);
        }
    }
}

/// What one step of a program took.
#[derive(Clone, PartialEq, Debug)]
pub struct StepTime<'a> {
    /// The step.
    pub step: &'a Step,
    /// Mean milliseconds of a run.
    pub ms: f64,
}

/// What a program took since it was last asked.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Clock {
    /// Number of runs.
    pub runs: u64,
    /// Nanoseconds of all runs: the steps of the prelude, then those of a run.
    pub nanos: Vec<f64>,
    /// Nanoseconds of taking over new parameters and states.
    pub commit: f64,
}

impl Clock {
    pub fn new(plan: &Plan) -> Self {
        Self { nanos: vec![0.0; plan.prelude.len() + plan.steps.len()], ..Self::default() }
    }

    /// Mean milliseconds of a run.
    pub fn ms(&self, nanos: f64) -> f64 {
        nanos * 1e-6 / self.runs.max(1) as f64
    }
}
