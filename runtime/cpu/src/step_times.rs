//! Times of the steps of a plan.

use crate::plan::{Plan, Step};

/// Time of one step of a program.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct StepTime<'a> {
    pub step: &'a Step,
    /// Mean milliseconds per run.
    pub ms: f64,
    /// Those of them in which nothing was left to do but to wait for other ranks.
    pub waited_ms: f64,
}

/// Accumulated times of a program since the last reset.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Clock {
    pub runs: u64,
    /// Total nanoseconds: the steps of the prelude, then those of a run.
    pub nanos: Vec<f64>,
    /// Those of them that were waits for other ranks.
    pub waited: Vec<f64>,
    /// Nanoseconds of committing new parameters and states.
    pub commit: f64,
}

impl Clock {
    pub fn new(plan: &Plan) -> Self {
        let zeros = vec![0.0; plan.prelude.len() + plan.steps.len()];
        Self { nanos: zeros.clone(), waited: zeros, ..Self::default() }
    }

    /// Mean milliseconds per run.
    pub fn ms(&self, nanos: f64) -> f64 {
        nanos * 1e-6 / self.runs.max(1) as f64
    }
}
