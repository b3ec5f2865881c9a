//! Epochs of mini-batch training.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hgnnc_data::Result;
use hgnnc_loader::CacheOptions;
use hgnnc_loader::cache::report::CacheReport;
use hgnnc_sample::BatchKey;
use hgnnc_session::StepKey;
use hgnnc_trace::Times;

use super::{Epoch, Trainer, no_cache};
use crate::batches::Batches;

impl Trainer {
    /// Samples the first epoch of mini-batches without training, and counts the row accesses that a cache serves.
    ///
    /// # Errors
    /// A model that is trained on the whole graph, or too little memory.
    pub fn simulate_cache(&mut self, options: CacheOptions) -> Result<CacheReport> {
        match &mut self.batches {
            Some(batches) => batches.simulate_cache(options, self.session.data(), self.seed),
            None => Err(no_cache(&self.executable)),
        }
    }

    /// Trains on the remaining batches of an epoch and returns its loss and milliseconds. `None` if `stop` was set: the
    /// batches so far are done, and a resumed run continues with the next.
    pub(super) fn train_batches(
        &mut self,
        epoch: u64,
        stop: &AtomicBool,
        on_batch: &mut (dyn FnMut(&Epoch) + Send),
    ) -> Result<Option<(f64, f64)>> {
        let start = Instant::now();
        let mut times = Times::default();
        let (seed, epochs, first) = (self.seed, self.epochs, self.progress.within.batches);
        let Some(batches) = &mut self.batches else { return Ok(None) };
        let (num, size) = (batches.num_batches(), batches.size());
        if !batches.is_loading() {
            batches.begin(self.session.data(), BatchKey { seed, epoch, batch: first }, epochs)?;
        }
        for batch in first..num {
            let Some(batches) = &mut self.batches else { return Ok(None) };
            if batches.may_pause(batch) && self.session.agree(stop.load(Ordering::Relaxed))? {
                return Ok(None);
            }
            let (loss, seeds) = self.train_batch(BatchKey { seed, epoch, batch }, &mut times)?;
            let may_pause = self.batches.as_ref().is_some_and(|batches| batches.may_pause(batch + 1));
            let within = &mut self.progress.within;
            within.add(loss, seeds);
            within.of = (num, size);
            let (done, loss) = (within.batches, within.loss());
            if may_pause {
                self.save_now_and_then()?;
            }
            if done < num {
                let (ms, within) = (start.elapsed().as_secs_f64() * 1e3, Some((done, num)));
                let warning = self.pending_warning.take();
                let warning = warning.as_deref();
                on_batch(&Epoch {
                    epoch,
                    epochs,
                    loss,
                    criterion: None,
                    metrics: &[],
                    best: false,
                    ms,
                    within,
                    warning,
                });
            }
        }
        let loss = std::mem::take(&mut self.progress.within).loss();
        let ms = start.elapsed().as_secs_f64() * 1e3;
        self.timing.epochs.push(ms);
        self.timing.add(&times);
        Ok(Some((loss, ms)))
    }

    /// Trains on the next batch and returns its mean loss and its number of seed vertices. The update is committed only
    /// if the loss is finite.
    pub fn train_batch(&mut self, key: BatchKey, times: &mut Times) -> Result<(f64, usize)> {
        let Some(batches) = &mut self.batches else { return Ok((0.0, 0)) };
        let step = StepKey { seed: key.seed, step: self.progress.steps_done + 1, epoch: key.epoch };
        let computed = batches.compute(&mut *self.session, step, key.batch, times)?;
        let (loss, seeds) = (computed.loss, computed.seeds);
        let mut found = None;
        if loss.is_finite() {
            batches.update(computed, step, times)?;
        } else if let Some(flow) = &self.executable.train {
            found = batches.explain(flow, &computed, step);
        }
        self.check_finite(loss, key.epoch, "the batch before", found)?;
        self.progress.steps_done += 1;
        Ok((loss, seeds))
    }

    /// Trains for some steps, without measuring anything in between, and calls `between` before each of them with the
    /// number of steps that are done, and after the last one. Epochs follow each other.
    ///
    /// # Errors
    /// Those of a step, and of `between`.
    pub fn train_steps(&mut self, count: u64, between: &mut (dyn FnMut(u64) -> Result<()> + Send)) -> Result<()> {
        let Some(batches) = &mut self.batches else {
            let pool = Arc::clone(&self.pool);
            return pool.install(|| {
                for step in 0..count {
                    between(step)?;
                    self.train_step(step)?;
                }
                between(count)
            });
        };
        let (seed, of_epoch) = (self.seed, batches.num_batches().max(1));
        self.begin_batches(BatchKey { seed, epoch: 0, batch: 0 }, count.div_ceil(of_epoch))?;
        let mut times = Times::default();
        for step in 0..count {
            between(step)?;
            self.train_batch(BatchKey { seed, epoch: step / of_epoch, batch: step % of_epoch }, &mut times)?;
        }
        between(count)?;
        self.end_batches()
    }

    /// Starts loading mini-batches, for profiles.
    ///
    /// # Errors
    /// A graph that cannot be sampled, or too little memory.
    pub fn begin_batches(&mut self, first: BatchKey, epochs: u64) -> Result<()> {
        let Some(batches) = &mut self.batches else { return Ok(()) };
        batches.begin(self.session.data(), first, epochs)
    }

    /// Ends [`Trainer::begin_batches`].
    ///
    /// # Errors
    /// When a device fails.
    pub fn end_batches(&mut self) -> Result<()> {
        let Some(batches) = &mut self.batches else { return Ok(()) };
        batches.end(&mut *self.session)
    }

    /// Mini-batch training and its seed, for models with mini-batches.
    pub fn batches(&mut self) -> Option<(&mut Batches, u64)> {
        self.batches.as_mut().map(|batches| (&mut **batches, self.seed))
    }
}
