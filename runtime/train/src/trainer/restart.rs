//! Further runs of a bound trainer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hgnnc_data::{ExecError, Result};

use super::timing::Timing;
use super::{Outcome, Trainer};
use crate::checkpoint::Progress;

impl Trainer {
    /// Begins a run with another seed. Parameters, optimizer states, progress, times and warnings are those of a new
    /// trainer with that seed, so that the run gives the same bits; programs and data stay bound.
    ///
    /// # Errors
    /// When a device fails.
    pub fn restart(&mut self, seed: u64) -> Result<()> {
        let pool = Arc::clone(&self.pool);
        pool.install(|| self.reset(seed))
    }

    fn reset(&mut self, seed: u64) -> Result<()> {
        match &mut self.batches {
            Some(batches) => batches.restart(&mut *self.session)?,
            None => {
                let params = self.session.params();
                for state in 0..params.states().len() {
                    let zeros = vec![0.0; params.read_state(state)?.len()];
                    params.write_state(state, &zeros)?;
                }
            }
        }
        let started = Instant::now();
        self.session.params().init(&self.executable.infer, seed)?;
        let init_s = started.elapsed().as_secs_f64();
        let mut progress = Progress::new(&self.executable.model, seed, self.session.data().orders.kind());
        progress.identity = self.progress.identity.take();
        self.seed = seed;
        self.progress = progress;
        (self.best, self.best_of, self.best_on_device) = (vec![], None, false);
        self.timing = Timing { init_s, train_s: init_s, ..Timing::default() };
        self.link_metrics_stale = true;
        if let Some(head) = &mut self.head {
            head.invalidate();
        }
        self.warnings.truncate(self.lasting_warnings);
        (self.pending_warning, self.unsaved, self.not_finite) = (None, None, None);
        self.outcome = Outcome::Finished;
        Ok(())
    }

    /// Overwrites the parameters with those that [`Trainer::own_params`] returned.
    ///
    /// # Errors
    /// Parameters of another model, or a device failure.
    pub fn set_own_params(&mut self, values: &[Vec<f32>]) -> Result<()> {
        let params = self.current()?.params();
        for (index, values) in values.iter().enumerate() {
            if index >= params.num_params() || params.own_len(index) != values.len() {
                return Err(ExecError::Unsupported("internal error: parameters of another model".into()));
            }
            params.write_own(index, values)?;
        }
        self.session.collect_params()
    }

    /// Sets [`TrainOptions::max_time`](super::TrainOptions::max_time) of the runs to come.
    pub fn limit_time(&mut self, limit: Option<Duration>) {
        self.options.max_time = limit;
    }

    /// Seed of the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}
