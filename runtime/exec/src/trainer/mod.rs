//! Trains and evaluates a compiled model.

mod batches;
mod measure;
mod options;
mod saved;
mod timing;

pub use options::{Arenas, Epoch, MemoryNeeded, Outcome, OutputRows, TrainOptions};

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hgnnc_ir::artifact::{self, Artifact, Criterion, Kernels, Part, Stop, Task, Training};
use hgnnc_ir::kernel::Program;
use hgnnc_ptx::Target;

use crate::batches::Batches;
use crate::checkpoint::Progress;
use crate::data::{BoundData, Target as Labels};
use crate::device::{Compiled, Device, DeviceEngine};
use crate::engine::{Engine, EngineOptions};
use crate::error::{ExecError, Result};
use crate::executor::{Executor, Rows, part_index};
use crate::links::LinkMeasures;
use crate::metrics::Tally;
use crate::planned::Planned;
use crate::times::Times;
use timing::{Timing, WARM_UP};

/// A model bound to data, with its parameters.
#[derive(Debug)]
pub struct Trainer {
    artifact: Artifact,
    executor: Executor,
    options: TrainOptions,
    seed: u64,
    epochs: u64,
    progress: Progress,
    /// Parameters of the best epoch, in the memory of this machine.
    best: Vec<Vec<f32>>,
    /// The epoch whose parameters these are: a device keeps its own copy, and is asked for it now and then.
    best_of: Option<u64>,
    /// When it was asked last.
    best_read: Instant,
    /// When a checkpoint was written last.
    saved: Instant,
    timing: Timing,
    /// Room for the counts of metrics.
    tally: Tally,
    /// Measures links, where the model predicts them.
    links: Option<LinkMeasures>,
    /// Has there been an evaluation since links were measured?
    links_behind: bool,
    warnings: Vec<String>,
    outcome: Outcome,
}

/// Programs of the engine.
const INFER: usize = 0;
pub(crate) const TRAIN: usize = 1;

fn engine_options(options: &TrainOptions) -> EngineOptions {
    EngineOptions { threads: options.threads, memory_budget: options.memory_budget, code: options.code }
}

/// The programs that run on the whole graph, in the order of their numbers.
fn programs(artifact: &Artifact) -> Vec<&Program> {
    let Kernels { infer, train, .. } = &artifact.kernels;
    std::iter::once(infer).chain(train.as_ref().filter(|_| artifact.batch.is_none())).collect()
}

fn seed_of(artifact: &Artifact, options: &TrainOptions) -> u64 {
    options.seed.or(artifact.training.as_ref().map(|training| training.seed)).unwrap_or(0)
}

fn check_version(artifact: &Artifact) -> Result<()> {
    if artifact.version != artifact::VERSION {
        return Err(ExecError::Version { found: artifact.version, expected: artifact::VERSION });
    }
    Ok(())
}

/// Refuses a cache where nothing goes through it.
fn no_cache(artifact: &Artifact, options: &TrainOptions) -> Result<()> {
    match options.cache {
        None => Ok(()),
        Some(_) => Err(ExecError::Unsupported(format!(
            "a cache is for training on batches, and `{}` is trained on the whole graph: give it a `batch`, or leave the \
             cache out",
            artifact.model
        ))),
    }
}

impl Trainer {
    /// Binds a model to data on this processor and initialises its parameters, or resumes where the options say so.
    ///
    /// # Errors
    /// Another format version, data that does not fit, too little memory, or a checkpoint that cannot be resumed.
    pub fn new(artifact: Artifact, data: BoundData, options: TrainOptions) -> Result<Self> {
        check_version(&artifact)?;
        if artifact.batch.is_some() {
            let batches = Batches::new(&artifact, data, engine_options(&options), options.cache)?;
            let not_cached = batches.not_cached();
            let mut trainer = Self::with(batches.into(), artifact, options)?;
            trainer.warnings.extend(not_cached.iter().map(|vertex| {
                format!("the sparse features of `{vertex}` are not cached: only rows of one length are")
            }));
            return Ok(trainer);
        }
        no_cache(&artifact, &options)?;
        let engine = Engine::new(&programs(&artifact), data, engine_options(&options))?;
        Self::with(engine.into(), artifact, options)
    }

    /// As [`Trainer::new`], on a device. The budget is for the memory there.
    ///
    /// # Errors
    /// As [`Trainer::new`]; kernels without PTX, or a device that fails.
    pub fn on_device(
        artifact: Artifact,
        data: BoundData,
        device: Box<dyn Device>,
        options: TrainOptions,
    ) -> Result<Self> {
        check_version(&artifact)?;
        if artifact.batch.is_some() {
            return Err(ExecError::Unsupported(
                "training on batches is for this processor only so far: use `--device cpu`".into(),
            ));
        }
        if data.orders.any() {
            return Err(ExecError::Unsupported("a device takes vertices in the order of the dataset only".into()));
        }
        no_cache(&artifact, &options)?;
        let target = device.target().with_precision(options.precision);
        let programs = programs(&artifact);
        let engine = DeviceEngine::new(&programs, data, device, target, options.memory_budget)?;
        Self::with(engine.into(), artifact, options)
    }

    fn with(mut executor: Executor, artifact: Artifact, options: TrainOptions) -> Result<Self> {
        let training = artifact.training.as_ref();
        let seed = seed_of(&artifact, &options);
        let epochs = options.epochs.or(training.map(|t| t.epochs)).unwrap_or(0);
        executor.init_params(&artifact.infer, seed)?;
        let links = LinkMeasures::new(&artifact, executor.data(), engine_options(&options))?;
        let progress = Progress::new(&artifact.model, seed, executor.data().orders.kind());
        let mut trainer = Self {
            artifact,
            executor,
            options,
            seed,
            epochs,
            progress,
            best: vec![],
            best_of: None,
            best_read: Instant::now(),
            saved: Instant::now(),
            timing: Timing::default(),
            tally: Tally::default(),
            links,
            links_behind: true,
            warnings: vec![],
            outcome: Outcome::Finished,
        };
        trainer.check_target()?;
        if let Some(training) = &trainer.artifact.training {
            trainer.executor.count_result(INFER, &training.output, training.task)?;
        }
        if trainer.options.resume {
            trainer.resume()?;
        }
        Ok(trainer)
    }

    /// What a trainer of this model would take. Nothing of that size is allocated. Of one that is trained on batches, what
    /// evaluation takes: batches take what they need.
    ///
    /// # Errors
    /// Data that does not fit the programs.
    pub fn memory_needed(artifact: &Artifact, data: &mut BoundData, options: &TrainOptions) -> Result<MemoryNeeded> {
        let planned = Planned::new(&programs(artifact), data, engine_options(options))?;
        let arenas = Arenas { all: planned.arena(None), infer: planned.arena(Some(INFER)) };
        Ok(MemoryNeeded { arenas, bytes: planned.parts(data).iter().map(|part| part.1).sum() })
    }

    /// As [`Trainer::memory_needed`], of a device of this kind.
    ///
    /// # Errors
    /// Data that does not fit the programs, or a kernel without PTX.
    pub fn device_memory_needed(artifact: &Artifact, data: &mut BoundData, target: Target) -> Result<MemoryNeeded> {
        let compiled = Compiled::new(&programs(artifact), data, target)?;
        let arenas = Arenas { all: compiled.arena(None), infer: compiled.arena(Some(INFER)) };
        Ok(MemoryNeeded { arenas, bytes: compiled.memory().bytes() })
    }

    /// Memory for values.
    pub fn arenas(&self) -> Arenas {
        Arenas { all: self.executor.arena(None), infer: self.executor.arena(Some(INFER)) }
    }

    /// The training block.
    fn training(&self) -> Result<&Training> {
        match (&self.artifact.training, &self.artifact.train) {
            (Some(training), Some(_)) => Ok(training),
            _ => Err(ExecError::Unsupported(format!(
                "the model `{}` has no `train` block, so it cannot be trained",
                self.artifact.model
            ))),
        }
    }

    /// Do labels and splits fit the training block?
    fn check_target(&mut self) -> Result<()> {
        let Some(training) = &self.artifact.training else { return Ok(()) };
        let data = self.executor.data();
        let (vertex, label) = match &training.target {
            artifact::Target::Vertices { vertex, label } => (*vertex, label),
            artifact::Target::Links(_) => {
                let links = data.parts[0].len();
                let size = training.batch.as_ref().map_or(0, |batch| batch.size);
                if self.artifact.batch.is_some() && (1..=size).contains(&links) {
                    self.warnings.push(format!(
                        "a batch holds all {links} links, so no link of their relations is a message in training: choose a \
                         smaller `batch`"
                    ));
                }
                return self.warn_of_missing_parts();
            }
        };
        let rows = data.num_vertices.get(vertex.index()).copied().unwrap_or(0);
        let what = || format!("the label `{label}`");
        let wrong = |found: String, expected: String| Err(ExecError::Shape { what: what(), found, expected });
        match (&data.target, training.task) {
            (None, _) => return wrong("no data".into(), format!("{rows} rows")),
            (Some(Labels::Classes(labels)), Task::Classify { classes }) => {
                if labels.len() != rows {
                    return wrong(format!("{} rows", labels.len()), rows.to_string());
                }
                if let Some(bad) = labels.iter().find(|&&l| l >= classes as i32) {
                    return wrong(format!("class {bad}"), format!("classes 0 to {}", classes.saturating_sub(1)));
                }
            }
            (Some(Labels::Rows(targets)), Task::MultiLabel { labels: width } | Task::Regress { width }) => {
                if targets.len() != rows * width {
                    return wrong(format!("{} numbers", targets.len()), format!("{rows} rows of {width}"));
                }
            }
            (Some(Labels::Classes(_)), Task::MultiLabel { .. } | Task::Regress { .. } | Task::Link) => {
                return wrong("one class per vertex".into(), "a row of numbers per vertex".into());
            }
            (Some(Labels::Rows(_)), Task::Classify { .. } | Task::Link) => {
                return wrong("a row of numbers per vertex".into(), "one class per vertex".into());
            }
        }
        for part in data.parts.iter().flatten() {
            if *part as usize >= rows {
                return wrong(
                    format!("vertex {part} in the split"),
                    format!("vertices 0 to {}", rows.saturating_sub(1)),
                );
            }
        }
        self.warn_of_missing_parts()
    }

    /// Tells what cannot be measured.
    fn warn_of_missing_parts(&mut self) -> Result<()> {
        let Some(training) = &self.artifact.training else { return Ok(()) };
        let criteria = [Some(training.select), training.stop.map(|s| s.criterion)];
        let mut missing: Vec<Criterion> =
            criteria.into_iter().flatten().filter(|c| self.rows(c.part).is_empty()).collect();
        missing.dedup();
        let measures = |c: &Criterion| self.links.as_ref().is_none_or(|links| links.can_measure(c.part, c.metric));
        let alone = criteria.into_iter().flatten().filter(|c| !missing.contains(c) && !measures(c));
        for c in alone.collect::<Vec<_>>() {
            self.warnings.push(format!(
                "all pairs of vertices are links, so `{}.{}` compares them with nothing: all epochs run, and the last one is kept",
                c.part.name(),
                c.metric.name()
            ));
        }
        for c in missing {
            self.warnings.push(format!(
                "the split has no {} part, so `{}.{}` cannot be measured: all epochs run, and the last one is kept",
                c.part.name(),
                c.part.name(),
                c.metric.name()
            ));
        }
        Ok(())
    }

    /// The training block, where there is something to train on.
    pub(crate) fn check_trainable(&self) -> Result<&Training> {
        let training = self.training()?;
        if self.rows(Part::Train).is_empty() {
            return Err(ExecError::Unsupported(match training.target {
                artifact::Target::Vertices { .. } => {
                    "the split has no vertices to train on: its `train` part is empty or missing".into()
                }
                artifact::Target::Links(_) => "there are no links to train on: their relations are empty".into(),
            }));
        }
        Ok(training)
    }

    fn rows(&self, part: Part) -> &[u32] {
        &self.executor.data().parts[part_index(part)]
    }

    /// Trains until all epochs are done, early stopping ends it, or `stop` is set; then the parameters of the best
    /// epoch are restored (an interrupted run keeps its current ones for the checkpoint, and restores after it).
    /// `on_epoch` is called by a thread of the engine. From the second epoch on nothing is allocated, but for checkpoints
    /// and the workspace of large products.
    ///
    /// # Errors
    /// A loss that is not finite (the parameters before that epoch, or of the best epoch, are kept), a
    /// checkpoint that cannot be written, or a device that fails.
    pub fn run(&mut self, stop: &AtomicBool, on_epoch: &mut (dyn FnMut(&Epoch) + Send)) -> Result<Outcome> {
        let training = self.check_trainable()?;
        let (select, early) = (training.select, training.stop);
        // Handing work over to the threads allocates now and then: they get all of it at once.
        match &self.executor {
            Executor::Cpu(engine) => engine.pool().install(|| self.train(select, early, stop, on_epoch)),
            Executor::Device(_) => self.train(select, early, stop, on_epoch),
            Executor::Batches(_) => {
                let outcome = self.train(select, early, stop, on_epoch);
                if let Executor::Batches(it) = &mut self.executor {
                    it.end();
                }
                outcome
            }
        }
    }

    fn train(
        &mut self,
        select: Criterion,
        early: Option<Stop>,
        stop: &AtomicBool,
        on_epoch: &mut (dyn FnMut(&Epoch) + Send),
    ) -> Result<Outcome> {
        let started = Instant::now();
        self.saved = started;
        if let (Executor::Batches(it), 0) = (&mut self.executor, self.epochs) {
            it.foresee(self.seed, 0)?;
        }
        let remaining = self.epochs.saturating_sub(self.progress.epochs_done);
        self.reserve(remaining)?;
        let mut outcome = if self.progress.stopped { Outcome::StoppedEarly } else { Outcome::Finished };
        while self.progress.epochs_done < self.epochs && !self.progress.stopped {
            if stop.load(Ordering::Relaxed) {
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
            let better = |criterion: Criterion, new: f64, old: Option<f64>| {
                !new.is_nan()
                    && old.is_none_or(|old| if criterion.metric.smaller_is_better() { new < old } else { new > old })
            };
            let best = selected.is_some_and(|value| better(select, value, self.progress.best()));
            if let (true, Some(value)) = (best, selected) {
                self.progress.set_best(epoch, value);
                self.keep_best(epoch)?;
            }
            if let (Some(early), Some(value)) = (early, stopping) {
                if better(early.criterion, value, self.progress.stop_best()) {
                    self.progress.set_stop_best(value);
                } else {
                    self.progress.stop_since = self.progress.stop_since.saturating_add(1);
                }
                if self.progress.stop_since >= early.patience {
                    self.progress.stopped = true;
                    outcome = Outcome::StoppedEarly;
                }
            }
            let criterion = selected.map(|value| (select, value));
            on_epoch(&Epoch { epoch, epochs: self.epochs, loss, criterion, best, ms, within: None });
            self.save_now_and_then()?;
        }
        // Whoever cannot save a checkpoint may still save the best parameters elsewhere.
        let saved = self.save_checkpoint();
        self.restore_best()?;
        saved?;
        self.timing.train_s += started.elapsed().as_secs_f64();
        self.outcome = outcome;
        Ok(outcome)
    }

    /// Room for the records of so many epochs, so that the loop does not allocate.
    fn reserve(&mut self, epochs: u64) -> Result<()> {
        let room = usize::try_from(epochs).unwrap_or(0).min(1 << 20);
        let Timing { epochs: times, phases, infer, .. } = &mut self.timing;
        for list in phases.iter_mut().chain([times, infer]) {
            list.reserve(room);
        }
        self.progress.reserve(epochs);
        if self.best.is_empty() {
            self.best = self.params()?;
        }
        Ok(())
    }

    /// Writes a checkpoint where it is time for one.
    fn save_now_and_then(&mut self) -> Result<()> {
        if self.options.checkpoint.is_some() && self.saved.elapsed() >= self.options.checkpoint_every {
            if let Err(error) = self.save_checkpoint() {
                self.restore_best()?;
                return Err(error);
            }
            self.saved = Instant::now();
        }
        Ok(())
    }

    /// One epoch: its loss and milliseconds; `None` where it was stopped within.
    fn train_epoch(
        &mut self,
        epoch: u64,
        stop: &AtomicBool,
        on_batch: &mut (dyn FnMut(&Epoch) + Send),
    ) -> Result<Option<(f64, f64)>> {
        match self.executor {
            Executor::Batches(_) => self.train_batches(epoch, stop, on_batch),
            Executor::Cpu(_) | Executor::Device(_) => self.train_step(epoch).map(Some),
        }
    }

    /// One training step. The update is taken over only where the loss is finite.
    pub(crate) fn train_step(&mut self, epoch: u64) -> Result<(f64, f64)> {
        let mut times = Times::default();
        // The times of these epochs are not reported where there are more.
        let timed = self.timing.epochs.len() < WARM_UP && matches!(self.executor, Executor::Device(_));
        self.executor.time_launches(timed);
        let start = Instant::now();
        let step = self.progress.steps_done + 1;
        self.executor.run_until_update(TRAIN, (self.seed, step, epoch), &mut times)?;
        self.check_loss(epoch)?;
        self.executor.run_updates(TRAIN, self.seed, step, &mut times)?;
        if let Executor::Cpu(_) = self.executor {
            let update = Instant::now();
            self.executor.commit(TRAIN);
            let commit = update.elapsed().as_nanos() as f64;
            times.phases[2] += commit;
            times.stages[4] += commit;
        }
        self.executor.time_launches(false);
        // A device is done now, and knows better how long it took.
        let on_device = self.executor.elapsed_ms()?;
        let of_launches = (timed && times != Times::default()).then(|| times.phases.iter().sum::<f64>() * 1e-6);
        let ms = of_launches.or(on_device).unwrap_or_else(|| start.elapsed().as_secs_f64() * 1e3);
        self.progress.steps_done += 1;
        self.timing.epochs.push(ms);
        match self.executor {
            Executor::Cpu(_) | Executor::Batches(_) => self.timing.add(&times),
            Executor::Device(_) if of_launches.is_some() => self.timing.add_of_device(&times),
            Executor::Device(_) => {}
        }
        Ok((self.loss()?, ms))
    }

    /// One training step on a device, launch by launch: milliseconds of each, if it has a clock.
    pub(crate) fn train_launch_by_launch(&mut self, epoch: u64) -> Result<Option<Vec<f64>>> {
        let step = self.progress.steps_done + 1;
        let Executor::Device(it) = &mut self.executor else { return Ok(None) };
        let times = it.engine.run_timed(TRAIN, self.seed, step, epoch)?;
        self.progress.steps_done += 1;
        self.check_loss(epoch)?;
        Ok(times)
    }

    /// The loss of the last training step.
    fn loss(&self) -> Result<f64> {
        match self.executor.result(TRAIN, "loss") {
            Some(Rows { numbers: [loss], .. }) => Ok(f64::from(*loss)),
            _ => Err(ExecError::Unsupported("the training program has no scalar result `loss`".into())),
        }
    }

    /// Refuses a loss that is not finite.
    fn check_loss(&mut self, epoch: u64) -> Result<()> {
        self.executor.fetch(TRAIN, "loss")?;
        self.check_finite(self.loss()?, epoch, "the epoch before")
    }

    fn check_finite(&mut self, loss: f64, epoch: u64, before: &str) -> Result<()> {
        if loss.is_finite() {
            return Ok(());
        }
        let kept = match self.progress.best_epoch {
            Some(best) => format!("epoch {}, the best one", best + 1),
            None => before.to_owned(),
        };
        self.restore_best()?;
        Err(ExecError::Diverged { epoch, loss, kept })
    }

    /// Graphs, labels and splits.
    pub fn data(&self) -> &BoundData {
        self.executor.data()
    }

    /// Number of threads of this processor.
    pub fn threads(&self) -> usize {
        self.executor.threads()
    }

    /// The compiled model.
    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// The engine of this processor, to look at plans and times; `None` where a device runs the model.
    pub fn engine(&mut self) -> Option<&mut Engine> {
        match &mut self.executor {
            Executor::Cpu(engine) => Some(engine),
            Executor::Device(_) | Executor::Batches(_) => None,
        }
    }

    /// The engine of the device that runs the model.
    pub fn device(&mut self) -> Option<&mut DeviceEngine> {
        match &mut self.executor {
            Executor::Cpu(_) | Executor::Batches(_) => None,
            Executor::Device(it) => Some(&mut it.engine),
        }
    }

    /// The machine code that the first batch is computed with, as Cranelift IR. `None` where training is on the whole graph.
    ///
    /// # Errors
    /// A machine for which no code can be generated, or nothing to train on.
    pub fn clif_of_batch(&mut self) -> Result<Option<String>> {
        self.check_trainable()?;
        match &mut self.executor {
            Executor::Batches(it) => it.clif().map(Some),
            Executor::Cpu(_) | Executor::Device(_) => Ok(None),
        }
    }

    /// Warnings so far.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The best epoch so far.
    pub fn best_epoch(&self) -> Option<u64> {
        self.progress.best_epoch
    }

    /// Has an epoch been the best one? After [`Trainer::run`] its parameters are the current ones, also where it failed
    /// (unless it was the device that failed).
    pub fn has_best(&self) -> bool {
        self.progress.best_epoch.is_some()
    }

    /// Batches done of the epoch after those, where training is on batches.
    pub fn batches_done(&self) -> u64 {
        self.progress.within.batches
    }

    /// Epochs done, those before a resume included.
    pub fn epochs_done(&self) -> u64 {
        self.progress.epochs_done
    }
}
