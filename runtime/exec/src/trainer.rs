//! Trains and evaluates a compiled model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hgnnc_ir::artifact::{self, Artifact, Criterion, Kernels, Metric, Part, Stop, Task, Training};
use hgnnc_ir::kernel::Program;
use hgnnc_ir::types::{Dim, Stage};
use hgnnc_ptx::Target;

use crate::checkpoint::{self, Progress};
use crate::data::{BoundData, Target as Labels};
use crate::device::{Compiled, Device, DeviceEngine};
use crate::engine::{Engine, EngineOptions, Times};
use crate::error::{ExecError, Result};
use crate::executor::{Executor, Rows, part_index};
use crate::metrics::{Predictions, Tally};
use crate::native::CodeMode;
use crate::planned::{Arena, Planned};
use crate::proc;
use crate::report::{GraphReport, Report, Spread};
use crate::weights::{self, Tensor};

/// Epochs whose times are not reported: caches and clocks settle.
const WARM_UP: usize = 3;

/// How to train; what is `None` comes from the model.
#[derive(Clone, PartialEq, Debug)]
pub struct TrainOptions {
    /// Number of threads; 0: one per processor.
    pub threads: usize,
    /// Refuse to start above this many bytes.
    pub memory_budget: Option<u64>,
    /// Seed of parameters and masks.
    pub seed: Option<u64>,
    /// Number of epochs.
    pub epochs: Option<u64>,
    /// Folder of checkpoints.
    pub checkpoint: Option<PathBuf>,
    /// Continue from the checkpoint in that folder.
    pub resume: bool,
    /// Time between two checkpoints.
    pub checkpoint_every: Duration,
    /// How chains of operations are executed.
    pub code: CodeMode,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            memory_budget: None,
            seed: None,
            epochs: None,
            checkpoint: None,
            resume: false,
            checkpoint_every: Duration::from_secs(60),
            code: CodeMode::default(),
        }
    }
}

/// An epoch that has just ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Epoch {
    /// Its number, from 0.
    pub epoch: u64,
    /// How many are planned.
    pub epochs: u64,
    /// Training loss.
    pub loss: f64,
    /// The criterion that selects the best epoch, and its value.
    pub criterion: Option<(Criterion, f64)>,
    /// Is it the best epoch so far?
    pub best: bool,
    /// Milliseconds of forward, backward and update.
    pub ms: f64,
}

/// How training ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All epochs are done.
    Finished,
    /// Early stopping.
    StoppedEarly,
    /// The stop flag was set: the epoch was finished, and a checkpoint written where there is a folder for it.
    Interrupted,
}

impl Outcome {
    /// The words of the report.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::StoppedEarly => "stopped early",
            Outcome::Interrupted => "interrupted",
        }
    }
}

/// An output of the model for all vertices of its type.
#[derive(Clone, PartialEq, Debug)]
pub struct OutputRows {
    /// Number of vertices.
    pub rows: usize,
    /// Numbers per vertex.
    pub width: usize,
    /// `rows * width` numbers.
    pub data: Vec<f32>,
}

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
    timing: Timing,
    /// Room for the counts of metrics.
    tally: Tally,
    warnings: Vec<String>,
    outcome: Outcome,
}

#[derive(Debug, Default)]
struct Timing {
    epochs: Vec<f64>,
    phases: [Vec<f64>; 3],
    stages: [f64; 5],
    stage_epochs: usize,
    infer: Vec<f64>,
    train_s: f64,
}

/// Programs of the engine.
const INFER: usize = 0;
pub(crate) const TRAIN: usize = 1;

/// Memory for values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arenas {
    /// Of training, evaluations included.
    pub all: Arena,
    /// Of evaluations alone.
    pub infer: Arena,
}

/// What a trainer takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryNeeded {
    /// Memory for values.
    pub arenas: Arenas,
    /// Bytes of all: values, parameters, states, graphs and features.
    pub bytes: u64,
}

fn engine_options(options: &TrainOptions) -> EngineOptions {
    EngineOptions { threads: options.threads, memory_budget: options.memory_budget, code: options.code }
}

/// All programs, in the order of their numbers.
fn programs(kernels: &Kernels) -> Vec<&Program> {
    std::iter::once(&kernels.infer).chain(&kernels.train).collect()
}

fn check_version(artifact: &Artifact) -> Result<()> {
    if artifact.version != artifact::VERSION {
        return Err(ExecError::Version { found: artifact.version, expected: artifact::VERSION });
    }
    Ok(())
}

impl Timing {
    /// Notes phases and stages of an epoch, whose time is there already.
    fn add(&mut self, times: &Times) {
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
}

impl Timing {
    /// As [`Timing::add`], of an epoch whose launches a device has timed. The first one is forgotten as soon as there is
    /// another: code is loaded meanwhile.
    fn add_of_device(&mut self, times: &Times) {
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

impl Trainer {
    /// Binds a model to data on this processor and initialises its parameters, or resumes where the options say so.
    ///
    /// # Errors
    /// Another format version, data that does not fit, too little memory, or a checkpoint that cannot be resumed.
    pub fn new(artifact: Artifact, data: BoundData, options: TrainOptions) -> Result<Self> {
        check_version(&artifact)?;
        let engine = Engine::new(&programs(&artifact.kernels), data, engine_options(&options))?;
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
        let target = device.target();
        let programs = programs(&artifact.kernels);
        let engine = DeviceEngine::new(&programs, data, device, target, options.memory_budget)?;
        Self::with(engine.into(), artifact, options)
    }

    fn with(mut executor: Executor, artifact: Artifact, options: TrainOptions) -> Result<Self> {
        let training = artifact.training.as_ref();
        let seed = options.seed.or(training.map(|t| t.seed)).unwrap_or(0);
        let epochs = options.epochs.or(training.map(|t| t.epochs)).unwrap_or(0);
        executor.init_params(&artifact.infer, seed)?;
        let progress = Progress::new(&artifact.model, seed);
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
            timing: Timing::default(),
            tally: Tally::default(),
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

    /// What a trainer of this model would take. Nothing of that size is allocated.
    ///
    /// # Errors
    /// Data that does not fit the programs.
    pub fn memory_needed(artifact: &Artifact, data: &mut BoundData, options: &TrainOptions) -> Result<MemoryNeeded> {
        let planned = Planned::new(&programs(&artifact.kernels), data, engine_options(options))?;
        let arenas = Arenas { all: planned.arena(None), infer: planned.arena(Some(INFER)) };
        Ok(MemoryNeeded { arenas, bytes: planned.parts(data).iter().map(|part| part.1).sum() })
    }

    /// As [`Trainer::memory_needed`], of a device of this kind.
    ///
    /// # Errors
    /// Data that does not fit the programs, or a kernel without PTX.
    pub fn device_memory_needed(artifact: &Artifact, data: &mut BoundData, target: Target) -> Result<MemoryNeeded> {
        let compiled = Compiled::new(&programs(&artifact.kernels), data, target)?;
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
        let rows = data.num_vertices.get(training.vertex.index()).copied().unwrap_or(0);
        let what = || format!("the label `{}`", training.label);
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
            (Some(Labels::Classes(_)), Task::MultiLabel { .. } | Task::Regress { .. }) => {
                return wrong("one class per vertex".into(), "a row of numbers per vertex".into());
            }
            (Some(Labels::Rows(_)), Task::Classify { .. }) => {
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
        let criteria = [Some(training.select), training.stop.map(|s| s.criterion)];
        let mut missing: Vec<Criterion> =
            criteria.into_iter().flatten().filter(|c| self.rows(c.part).is_empty()).collect();
        missing.dedup();
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
            return Err(ExecError::Unsupported(
                "the split has no vertices to train on: its `train` part is empty or missing".into(),
            ));
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
        let mut saved = Instant::now();
        let remaining = self.epochs.saturating_sub(self.progress.epochs_done);
        self.reserve(remaining)?;
        let mut outcome = if self.progress.stopped { Outcome::StoppedEarly } else { Outcome::Finished };
        while self.progress.epochs_done < self.epochs && !self.progress.stopped {
            if stop.load(Ordering::Relaxed) {
                outcome = Outcome::Interrupted;
                break;
            }
            let epoch = self.progress.epochs_done;
            let (loss, ms) = self.train_epoch(epoch)?;
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
                    self.progress.stop_since += 1;
                }
                if self.progress.stop_since >= early.patience {
                    self.progress.stopped = true;
                    outcome = Outcome::StoppedEarly;
                }
            }
            let criterion = selected.map(|value| (select, value));
            on_epoch(&Epoch { epoch, epochs: self.epochs, loss, criterion, best, ms });
            if self.options.checkpoint.is_some() && saved.elapsed() >= self.options.checkpoint_every {
                if let Err(error) = self.save_checkpoint() {
                    self.restore_best()?;
                    return Err(error);
                }
                saved = Instant::now();
            }
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

    /// One training step. The update is taken over only where the loss is finite.
    pub(crate) fn train_epoch(&mut self, epoch: u64) -> Result<(f64, f64)> {
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
            Executor::Cpu(_) => self.timing.add(&times),
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
        let loss = self.loss()?;
        if loss.is_finite() {
            return Ok(());
        }
        let kept = match self.progress.best_epoch {
            Some(best) => format!("epoch {}, the best one", best + 1),
            None => "the epoch before".to_owned(),
        };
        self.restore_best()?;
        Err(ExecError::Diverged { epoch, loss, kept })
    }

    /// The values of the two criteria after an epoch; evaluates only where one of them can be measured.
    fn measure(&mut self, select: Criterion, watched: Option<Criterion>) -> Result<(Option<f64>, Option<f64>)> {
        let possible = |c: Criterion| !self.rows(c.part).is_empty();
        if !possible(select) && !watched.is_some_and(possible) {
            return Ok((None, None));
        }
        self.infer_all()?;
        let selected = self.metric(select.part, select.metric)?;
        let watched = match watched {
            Some(same) if same == select => selected,
            Some(other) => self.metric(other.part, other.metric)?,
            None => None,
        };
        Ok((selected, watched))
    }

    /// Runs the evaluation program.
    fn infer_all(&mut self) -> Result<()> {
        let start = Instant::now();
        let (step, epoch) = (self.progress.steps_done, self.progress.epochs_done);
        self.executor.run_until_update(INFER, (self.seed, step, epoch), &mut Times::default())?;
        self.executor.run_updates(INFER, self.seed, step, &mut Times::default())?;
        let on_device = self.executor.elapsed_ms()?;
        let ms = on_device.unwrap_or_else(|| start.elapsed().as_secs_f64() * 1e3);
        if self.timing.infer.len() < self.timing.infer.capacity() || self.timing.infer.len() < 16 {
            self.timing.infer.push(ms);
        }
        Ok(())
    }

    /// A metric of the last evaluation. Of a device, no more than it takes is copied: counts where they will do.
    fn metric(&mut self, part: Part, metric: Metric) -> Result<Option<f64>> {
        let Some(training) = &self.artifact.training else { return Ok(None) };
        let (vertices, task) = (self.rows(part).len(), training.task);
        if vertices == 0 {
            return Ok(None);
        }
        if Tally::has(metric) && self.executor.count(part, &mut self.tally)? {
            return Ok(self.tally.metric(metric, task, vertices));
        }
        let needed = if metric == Metric::Loss { "row_loss" } else { &training.output };
        self.executor.fetch(INFER, needed)?;
        // Taken out while the rest of the trainer is looked at.
        let mut tally = std::mem::take(&mut self.tally);
        let value = self.metric_with(part, metric, &mut tally);
        self.tally = tally;
        Ok(value)
    }

    fn metric_with(&self, part: Part, metric: Metric, tally: &mut Tally) -> Option<f64> {
        let training = self.artifact.training.as_ref()?;
        let row_loss = self.executor.result(INFER, "row_loss").map(|rows| rows.numbers);
        // The loss needs no outputs.
        let outputs = self.executor.result(INFER, &training.output);
        let Rows { width, numbers: outputs } = match metric {
            Metric::Loss => Rows { width: 0, numbers: &[] },
            Metric::Accuracy | Metric::MicroF1 | Metric::MacroF1 | Metric::Mae | Metric::Rmse => outputs?,
        };
        let target = self.executor.data().target.as_ref()?;
        let rows = self.rows(part);
        Predictions { outputs, width, row_loss, target, rows, task: training.task }.metric(metric, tally)
    }

    /// Metrics of all parts with the current parameters: the loss, those of the model, and the usual ones of its task.
    ///
    /// # Errors
    /// When a device fails.
    pub fn evaluate(&mut self) -> Result<BTreeMap<&'static str, BTreeMap<&'static str, f64>>> {
        self.infer_all()?;
        let mut all = BTreeMap::new();
        for part in [Part::Train, Part::Val, Part::Test] {
            let mut values = BTreeMap::new();
            for metric in Metric::ALL {
                if let Some(value) = self.metric(part, metric)? {
                    values.insert(metric.name(), value);
                }
            }
            if !values.is_empty() {
                all.insert(part.name(), values);
            }
        }
        Ok(all)
    }

    /// An output with the current parameters; without a name, the trained one or the only one.
    ///
    /// # Errors
    /// When there is no such output, or a device fails.
    pub fn infer(&mut self, output: Option<&str>) -> Result<OutputRows> {
        let names: Vec<String> =
            self.executor.results(INFER).into_iter().filter(|&n| n != "row_loss").map(str::to_owned).collect();
        let trained = self.artifact.training.as_ref().map(|t| t.output.as_str());
        let name = output.or(trained).or(names.first().map(String::as_str)).unwrap_or("").to_owned();
        self.infer_all()?;
        self.executor.fetch(INFER, &name)?;
        match self.executor.result(INFER, &name) {
            Some(Rows { width, numbers }) => {
                Ok(OutputRows { rows: numbers.len() / width.max(1), width, data: numbers.to_vec() })
            }
            None => Err(ExecError::Unsupported(format!(
                "the model has no output `{name}`; it has {}",
                names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    /// Keeps the parameters of an epoch as the best ones: a device on itself. This machine gets them as often as there
    /// are checkpoints, so that they survive a device that fails, and when they are asked for.
    fn keep_best(&mut self, epoch: u64) -> Result<()> {
        match &mut self.executor {
            Executor::Cpu(engine) => {
                self.best.iter_mut().enumerate().for_each(|(i, kept)| kept.copy_from_slice(engine.param(i)));
                self.best_of = Some(epoch);
                Ok(())
            }
            Executor::Device(it) => {
                it.engine.keep_best()?;
                if self.best_read.elapsed() >= self.options.checkpoint_every { self.read_best() } else { Ok(()) }
            }
        }
    }

    /// Reads the parameters of the best epoch from a device, if this machine has older ones.
    fn read_best(&mut self) -> Result<()> {
        let Executor::Device(it) = &mut self.executor else { return Ok(()) };
        if self.best_of != self.progress.best_epoch {
            // A device that fails meanwhile leaves those that were there.
            let mut read: Vec<Vec<f32>> = self.best.iter().map(|kept| vec![0.0; kept.len()]).collect();
            read.iter_mut().enumerate().try_for_each(|(i, kept)| it.engine.read_best(i, kept))?;
            (self.best, self.best_of) = (read, self.progress.best_epoch);
        }
        self.best_read = Instant::now();
        Ok(())
    }

    fn restore_best(&mut self) -> Result<()> {
        if self.progress.best_epoch.is_some() {
            match &mut self.executor {
                Executor::Cpu(engine) => {
                    self.best.iter().enumerate().for_each(|(i, kept)| engine.param(i).copy_from_slice(kept));
                }
                Executor::Device(it) => it.engine.restore_best()?,
            }
        }
        Ok(())
    }

    /// The current parameters, in the order of the model.
    ///
    /// # Errors
    /// When a device fails.
    pub fn params(&mut self) -> Result<Vec<Vec<f32>>> {
        let mut params: Vec<Vec<f32>> =
            self.shapes().iter().map(|(_, shape)| vec![0.0; shape.iter().product()]).collect();
        for (i, param) in params.iter_mut().enumerate() {
            self.executor.read_param(i, param)?;
        }
        Ok(params)
    }

    /// Name and shape of every parameter.
    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let data = self.executor.data();
        let extent = |dim: &Dim| match *dim {
            Dim::Fixed(extent) => extent,
            Dim::Count(vertex) => data.num_vertices[vertex.index()],
        };
        self.artifact.infer.params.iter().map(|p| (p.name.clone(), p.dims.iter().map(extent).collect())).collect()
    }

    /// Writes the current parameters by name; after [`Trainer::run`] those of the best epoch.
    ///
    /// # Errors
    /// When the file cannot be written; an old one is then unchanged.
    pub fn save_weights(&mut self, path: &Path) -> Result<()> {
        let values = self.params()?;
        let shapes = self.shapes();
        let tensors = shapes.into_iter().zip(&values).map(|((name, shape), data)| (name, Tensor { shape, data }));
        weights::write(path, tensors.collect(), None)
    }

    /// Writes the parameters of the best epoch by name, and returns the epoch. Where a device has failed, the best one of
    /// which this machine has the parameters. Nothing without such an epoch.
    ///
    /// # Errors
    /// When the file cannot be written; an old one is then unchanged.
    pub fn save_best(&mut self, path: &Path) -> Result<Option<u64>> {
        // A device that has failed gives nothing: what was read before is still there.
        let _ = self.read_best();
        if self.best_of.is_some() {
            let shapes = self.shapes();
            let tensors =
                shapes.into_iter().zip(&self.best).map(|((name, shape), data)| (name, Tensor { shape, data }));
            weights::write(path, tensors.collect(), None)?;
        }
        Ok(self.best_of)
    }

    /// Reads parameters by name.
    ///
    /// # Errors
    /// When the file cannot be read or does not have exactly the parameters of the model.
    pub fn load_weights(&mut self, path: &Path) -> Result<()> {
        let file = weights::read(path)?;
        let shapes = self.shapes();
        weights::check(path, &file, &shapes)?;
        for (i, (name, _)) in shapes.iter().enumerate() {
            self.executor.set_param(i, &file.tensors[name].1)?;
        }
        Ok(())
    }

    fn save_checkpoint(&mut self) -> Result<()> {
        let Some(folder) = self.options.checkpoint.clone() else { return Ok(()) };
        self.read_best()?;
        let shapes = self.shapes();
        let params = self.params()?;
        let num_states = self.executor.states().len();
        let states: Vec<Vec<f32>> = (0..num_states).map(|i| self.executor.state(i)).collect::<Result<_>>()?;
        let mut tensors = vec![];
        for ((name, shape), data) in shapes.iter().zip(&params) {
            tensors.push((format!("param/{name}"), Tensor { shape: shape.clone(), data }));
        }
        if self.progress.best_epoch.is_some() {
            for ((name, shape), data) in shapes.iter().zip(&self.best) {
                tensors.push((format!("best/{name}"), Tensor { shape: shape.clone(), data }));
            }
        }
        for (&(param, slot), data) in self.executor.states().iter().zip(&states) {
            let (name, shape) = &shapes[param.index()];
            tensors.push((format!("state{slot}/{name}"), Tensor { shape: shape.clone(), data }));
        }
        checkpoint::save(&folder, &self.progress, tensors)
    }

    fn resume(&mut self) -> Result<()> {
        let Some(folder) = self.options.checkpoint.clone() else {
            return Err(ExecError::Unsupported("to resume, name the folder of the checkpoint".into()));
        };
        let (progress, file) = checkpoint::load(&folder, &self.artifact.model)?;
        let path = checkpoint::file_of(&folder);
        if self.options.seed.is_some_and(|seed| seed != progress.seed) {
            let reason =
                format!("was trained with seed {}, so it cannot be resumed with seed {}", progress.seed, self.seed);
            return Err(ExecError::Weights { path, reason });
        }
        let shapes = self.shapes();
        let mut expected: Vec<(String, Vec<usize>)> =
            shapes.iter().map(|(name, shape)| (format!("param/{name}"), shape.clone())).collect();
        if progress.best_epoch.is_some() {
            expected.extend(shapes.iter().map(|(name, shape)| (format!("best/{name}"), shape.clone())));
        }
        let states = self.executor.states().to_vec();
        expected.extend(states.iter().map(|&(param, slot)| {
            let (name, shape) = &shapes[param.index()];
            (format!("state{slot}/{name}"), shape.clone())
        }));
        weights::check(&path, &file, &expected)?;
        for (i, (name, _)) in shapes.iter().enumerate() {
            self.executor.set_param(i, &file.tensors[&format!("param/{name}")].1)?;
        }
        if progress.best_epoch.is_some() {
            self.best = shapes.iter().map(|(name, _)| file.tensors[&format!("best/{name}")].1.clone()).collect();
            self.best_of = progress.best_epoch;
            if let Executor::Device(it) = &mut self.executor {
                self.best.iter().enumerate().try_for_each(|(i, best)| it.engine.set_best(i, best))?;
            }
        }
        for (i, &(param, slot)) in states.iter().enumerate() {
            let name = format!("state{slot}/{}", shapes[param.index()].0);
            self.executor.set_state(i, &file.tensors[&name].1)?;
        }
        self.seed = progress.seed;
        self.progress = progress;
        Ok(())
    }

    /// The compiled model.
    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// The engine of this processor, to look at plans and times; `None` where a device runs the model.
    pub fn engine(&mut self) -> Option<&mut Engine> {
        match &mut self.executor {
            Executor::Cpu(engine) => Some(engine),
            Executor::Device(_) => None,
        }
    }

    /// The engine of the device that runs the model.
    pub fn device(&mut self) -> Option<&mut DeviceEngine> {
        match &mut self.executor {
            Executor::Cpu(_) => None,
            Executor::Device(it) => Some(&mut it.engine),
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

    /// Epochs done, those before a resume included.
    pub fn epochs_done(&self) -> u64 {
        self.progress.epochs_done
    }

    /// The report; evaluates all parts.
    ///
    /// # Errors
    /// When a device fails.
    pub fn report(&mut self) -> Result<Report> {
        let metrics = self.evaluate()?;
        let arenas = self.arenas();
        let data = self.executor.data();
        let semantic_graphs = data
            .graphs
            .iter()
            .map(|g| GraphReport { name: g.name.clone(), rows: g.num_dst, cols: g.num_src, edges: g.num_edges() })
            .collect();
        let warm = |times: &[f64]| Spread::of(if times.len() > WARM_UP { &times[WARM_UP..] } else { times });
        let timing = &self.timing;
        let per_epoch = |total: f64| if timing.stage_epochs == 0 { 0.0 } else { total / timing.stage_epochs as f64 };
        // A device without a clock does not know.
        let is_known = matches!(self.executor, Executor::Cpu(_))
            || timing.epochs.is_empty()
            || timing.phases.iter().any(|times| !times.is_empty());
        let known = |phase: usize| is_known.then(|| warm(&timing.phases[phase]));
        let stage_ms = Stage::ALL.iter().zip(timing.stages).map(|(s, total)| (s.name(), per_epoch(total)));
        Ok(Report {
            model: self.artifact.model.clone(),
            dataset: data.dataset.clone(),
            device: self.executor.name(),
            threads: self.executor.threads(),
            seed: self.seed,
            epochs: self.progress.epochs_done,
            best_epoch: self.progress.best_epoch,
            outcome: self.outcome.name().into(),
            load_s: data.load_s,
            sgb_s: data.sgb_s,
            compile_s: 0.0,
            train_s: timing.train_s,
            epoch_ms: warm(&timing.epochs),
            forward_ms: known(0),
            backward_ms: known(1),
            update_ms: known(2),
            infer_ms: warm(&timing.infer),
            stage_ms: known(0).map(|_| stage_ms.collect()),
            peak_rss_bytes: proc::peak_rss_bytes(),
            arena_bytes: arenas.all.bytes(),
            infer_arena_bytes: arenas.infer.bytes(),
            device_bytes: self.executor.device_bytes(),
            metrics,
            semantic_graphs,
            params: self.shapes().iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum(),
            losses: self.progress.losses().collect(),
            warnings: self.warnings.clone(),
        })
    }
}
