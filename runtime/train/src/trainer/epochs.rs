//! Training loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hgnnc_data::{ExecError, Result};
use hgnnc_ir::training::{Criterion, Keep, Stop};
use hgnnc_session::{Clock, Rows, Session, StepKey};
use hgnnc_trace::Times;

use super::timing::{Timing, WARM_UP};
use super::{Epoch, Outcome, TRAIN, Trainer};
use crate::not_finite;
use crate::weights;

impl Trainer {
    /// Trains until all epochs are done, early stopping ends the run, or `stop` is set, then restores the parameters of
    /// the best epoch (an interrupted run first writes its current ones to the checkpoint). `on_epoch` is called on a
    /// thread of the pool. From the second epoch on nothing is allocated, except by checkpoints and for the
    /// workspace of large products.
    ///
    /// A failed checkpoint is a warning, and is retried when the next one is due. [`Trainer::unsaved`] returns the
    /// error if the last one failed.
    ///
    /// # Errors
    /// A non-finite loss (the parameters before that epoch, or of the best epoch, are kept), a non-finite criterion or
    /// parameter at the end, or a device failure.
    pub fn run(&mut self, stop: &AtomicBool, on_epoch: &mut (dyn FnMut(&Epoch) + Send)) -> Result<Outcome> {
        let training = self.check_trainable()?;
        let (select, early) = ((training.select, training.keep), training.stop);
        let outcome = if self.batches.is_some() {
            let outcome = self.train(select, early, stop, on_epoch);
            // The first error is the cause.
            let ended = self.end_batches();
            outcome.and_then(|outcome| ended.map(|()| outcome))
        } else {
            // Handing work to the pool allocates occasionally, so the entire loop runs inside it.
            let pool = Arc::clone(&self.pool);
            pool.install(|| self.train(select, early, stop, on_epoch))
        };
        // All processes that train together have such a loss.
        if let Err(ExecError::Diverged { .. } | ExecError::NotFinite { .. }) = &outcome {
            let _ = self.collect_best();
        }
        outcome
    }

    fn train(
        &mut self,
        (select, keep): (Criterion, Keep),
        early: Option<Stop>,
        stop: &AtomicBool,
        on_epoch: &mut (dyn FnMut(&Epoch) + Send),
    ) -> Result<Outcome> {
        let started = Instant::now();
        self.saved = started;
        let remaining = self.epochs.saturating_sub(self.progress.epochs_done);
        self.reserve(remaining)?;
        let mut outcome = if self.progress.stopped { Outcome::StoppedEarly } else { Outcome::Finished };
        while self.progress.epochs_done < self.epochs && !self.progress.stopped {
            if self.session.agree(stop.load(Ordering::Relaxed))? {
                outcome = Outcome::Interrupted;
                break;
            }
            let epoch = self.progress.epochs_done;
            let Some((loss, ms)) = self.train_epoch(epoch, stop, on_epoch)? else {
                outcome = Outcome::Interrupted;
                break;
            };
            self.progress.epochs_done += 1;
            self.progress.push_loss(loss);
            let watched = early.map(|e| e.criterion);
            let (selected, stopping) = self.measure(select, watched)?;
            self.measure_all()?;
            let better = |criterion: Criterion, new: f64, old: Option<f64>| {
                new.is_finite()
                    && old.is_none_or(
                        |old| if criterion.measure.metric.smaller_is_better() { new < old } else { new > old },
                    )
            };
            self.not_finite = selected.filter(|value| !value.is_finite()).or(self.not_finite);
            // An epoch with non-finite parameters is never the best, however good its metric.
            let best = keep == Keep::Best
                && selected.is_some_and(|value| better(select, value, self.progress.best()))
                && self.current()?.params().are_finite().unwrap_or(true);
            if let (true, Some(value)) = (best, selected) {
                self.progress.set_best(epoch, value);
                self.keep_best(epoch)?;
            }
            if let (Some(early), Some(value)) = (early, stopping) {
                if better(early.criterion, value, self.progress.stop_best()) {
                    self.progress.set_stop_best(value);
                } else {
                    self.progress.stop_since += 1;
                }
                if self.progress.stop_since >= early.patience {
                    self.progress.stopped = true;
                    outcome = Outcome::StoppedEarly;
                }
            }
            // Before its checkpoint: a run that is killed between the two goes on before this epoch, and tells of it again.
            let warning = self.pending_warning.take();
            let (epochs, warning, metrics) = (self.epochs, warning.as_deref(), &self.measured[..]);
            let criterion = selected.map(|value| (&self.criterion[..], value));
            on_epoch(&Epoch { epoch, epochs, loss, criterion, metrics, best, ms, within: None, warning });
            self.save_now_and_then()?;
            let remain = self.progress.epochs_done < self.epochs && !self.progress.stopped;
            let limit = self.options.max_time.filter(|_| remain);
            if limit.map_or(Ok(false), |limit| self.session.agree(started.elapsed() >= limit))? {
                outcome = Outcome::TimeLimit;
                break;
            }
        }
        // Even if the checkpoint fails, the best parameters may be saved elsewhere.
        let saved = self.save_checkpoint();
        self.restore_best()?;
        self.session.collect_params()?;
        self.unsaved = tolerated(saved)?;
        self.timing.train_s += started.elapsed().as_secs_f64();
        self.outcome = outcome;
        if outcome != Outcome::Interrupted {
            self.check_trained()?;
        }
        Ok(outcome)
    }

    /// Errors if the run has no usable result: non-finite parameters, or no epoch that could be the best.
    fn check_trained(&mut self) -> Result<()> {
        if self.current()?.params().are_finite() != Some(true) {
            if !self.session.writes_files() {
                return Err(ExecError::NotFinite { what: "parameters are not finite after training".into() });
            }
            let values = self.params()?;
            let shapes = self.shapes();
            let mut found =
                shapes.iter().zip(&values).filter_map(|((name, shape), data)| weights::not_finite(name, shape, data));
            if let Some(first) = found.next() {
                let what = format!("parameters are not finite after training: {first}");
                return Err(ExecError::NotFinite { what });
            }
        }
        let last = self.executable.training.as_ref().is_some_and(|training| training.keep == Keep::Last);
        match (self.not_finite, self.progress.best_epoch) {
            (Some(value), None) if !last => {
                let what = format!("`{}` is {value} after every epoch, so that none is the best one", self.criterion);
                Err(ExecError::NotFinite { what })
            }
            _ => Ok(()),
        }
    }

    /// Reserves space for the records of `epochs` epochs, so that the loop does not allocate.
    fn reserve(&mut self, epochs: u64) -> Result<()> {
        let room = usize::try_from(epochs).unwrap_or(0).min(1 << 20);
        let Timing { epochs: times, phases, infer, .. } = &mut self.timing;
        for list in phases.iter_mut().chain([times, infer]) {
            list.reserve(room);
        }
        self.progress.reserve(epochs);
        if self.best.is_empty() {
            self.best = self.own_params()?;
        }
        Ok(())
    }

    /// Writes a checkpoint if one is due. A failed one is retried when the next is due.
    pub(super) fn save_now_and_then(&mut self) -> Result<()> {
        let due = self.saved.elapsed() >= self.options.checkpoint_every;
        if self.options.checkpoint.is_none() || !self.session.agree(due)? {
            return Ok(());
        }
        let failed_before = self.unsaved.is_some();
        let saved = self.save_checkpoint();
        if saved.as_ref().is_err_and(|error| !is_tolerated(error)) {
            self.restore_best()?;
        }
        self.unsaved = tolerated(saved)?;
        self.saved = Instant::now();
        // Warns once, however often it fails.
        match &self.unsaved {
            Some(error) if !failed_before => self.warn(format!(
                "no checkpoint could be written after epoch {}: {error}; training goes on, and the next one is tried",
                self.progress.epochs_done
            )),
            None if failed_before => {
                self.warn(format!("a checkpoint could be written again after epoch {}", self.progress.epochs_done));
            }
            _ => {}
        }
        Ok(())
    }

    /// Records a warning during training.
    fn warn(&mut self, warning: String) {
        self.pending_warning = Some(warning.clone());
        self.warnings.push(warning);
    }

    /// Error of the last checkpoint, if it failed.
    pub fn unsaved(&self) -> Option<&ExecError> {
        self.unsaved.as_ref()
    }

    /// Trains one epoch and returns its loss and milliseconds; `None` if it was stopped.
    fn train_epoch(
        &mut self,
        epoch: u64,
        stop: &AtomicBool,
        on_batch: &mut (dyn FnMut(&Epoch) + Send),
    ) -> Result<Option<(f64, f64)>> {
        match self.batches {
            Some(_) => self.train_batches(epoch, stop, on_batch),
            None => self.train_step(epoch).map(Some),
        }
    }

    /// Runs one training step on the full graph, and returns its loss and milliseconds. The update is committed only if
    /// the loss is finite.
    ///
    /// # Errors
    /// A loss that is not finite, or a device failure.
    pub fn train_step(&mut self, epoch: u64) -> Result<(f64, f64)> {
        let mut times = Times::default();
        // Times of warm-up epochs are not reported if there are more epochs.
        let by_launch = self.session.clock() == Clock::Launches;
        let timed = by_launch && self.timing.epochs.len() < WARM_UP;
        self.session.time_launches(timed);
        let start = Instant::now();
        let key = StepKey { seed: self.seed, step: self.progress.steps_done + 1, epoch };
        let sent_before = self.session.exchanged().sent_bytes;
        self.session.run(TRAIN, key, &mut times)?;
        let loss = self.read_loss()?;
        self.check_finite(loss, epoch, "the epoch before", None)?;
        self.session.update(TRAIN, key, &mut times)?;
        self.session.time_launches(false);
        self.timing.sent_bytes += self.session.exchanged().sent_bytes - sent_before;
        // The machine is idle now; its own clock is more accurate.
        let on_device = self.session.elapsed_ms()?;
        let of_launches = (timed && times != Times::default()).then(|| times.phases.iter().sum::<f64>() * 1e-6);
        let ms = of_launches.or(on_device).unwrap_or_else(|| start.elapsed().as_secs_f64() * 1e3);
        self.progress.steps_done += 1;
        self.timing.epochs.push(ms);
        match by_launch {
            false => self.timing.add(&times),
            true if of_launches.is_some() => self.timing.add_of_device(&times),
            true => {}
        }
        Ok((loss, ms))
    }

    /// A training step on the full graph that `run` executes in its own way, for profiles.
    ///
    /// # Errors
    /// Those of `run`, and a loss that is not finite.
    pub fn train_step_by<R>(
        &mut self,
        epoch: u64,
        run: impl FnOnce(&mut dyn Session, StepKey) -> Result<R>,
    ) -> Result<R> {
        let key = StepKey { seed: self.seed, step: self.progress.steps_done + 1, epoch };
        let outcome = run(&mut *self.session, key)?;
        self.progress.steps_done += 1;
        let loss = self.read_loss()?;
        self.check_finite(loss, epoch, "the epoch before", None)?;
        Ok(outcome)
    }

    /// Loss of the last training step.
    fn read_loss(&mut self) -> Result<f64> {
        match self.session.read(TRAIN, "loss")? {
            Some(Rows { numbers: [loss], .. }) => Ok(f64::from(*loss)),
            _ => Err(ExecError::Unsupported("the training program has no scalar result `loss`".into())),
        }
    }

    /// Refuses a loss that is not finite. `found` is its cause, where that is known already.
    pub(super) fn check_finite(
        &mut self,
        loss: f64,
        epoch: u64,
        before: &str,
        found: Option<not_finite::Found>,
    ) -> Result<()> {
        if loss.is_finite() {
            return Ok(());
        }
        let kept = match self.progress.best_epoch {
            Some(best) => format!("epoch {}, the best one", best + 1),
            None => before.to_owned(),
        };
        // Re-executes the forward pass with the parameters of this step, and if some of them are not finite, the step
        // that produced them.
        let step = (self.seed, self.progress.steps_done + 1, epoch);
        if let Some(batches) = &mut self.batches {
            batches.store_params(&mut *self.session)?;
        }
        let mut cause = found.or_else(|| not_finite::of_loss(&self.executable, &mut *self.session, step));
        self.restore_best()?;
        // Several processes have rows of their own, which are not those of a whole step.
        if self.session.process().1 == 1
            && let Some(not_finite::Found::Param(name)) = cause
        {
            cause = not_finite::of_update(&self.executable, &mut *self.session, step, &name, &self.best);
        }
        let cause = cause.map(|found| Box::new(found.into_cause()));
        Err(ExecError::Diverged { epoch, loss, kept, cause })
    }
}

/// Whether an error, such as a full disk, may be gone when the next checkpoint is due.
pub(super) fn is_tolerated(error: &ExecError) -> bool {
    matches!(error, ExecError::Io { .. } | ExecError::OtherRank { .. })
}

/// Separates tolerated checkpoint errors from fatal ones.
fn tolerated(saved: Result<()>) -> Result<Option<ExecError>> {
    match saved {
        Ok(()) => Ok(None),
        Err(error) if is_tolerated(&error) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}
