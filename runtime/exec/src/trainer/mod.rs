//! Trains and evaluates a compiled model.

mod batches;
mod check;
mod checkpointing;
mod epochs;
mod inference;
mod options;
mod timing;

pub use options::{Arenas, Epoch, MemoryNeeded, Outcome, OutputRows, TrainOptions};

use std::time::Instant;

use hgnnc_ir::artifact::{Artifact, Kernels, Part};
use hgnnc_ir::kernel::Program;
use hgnnc_ptx::Target;

use crate::backend::{Backend, part_index};
use crate::batches::Batches;
use crate::checkpoint::Progress;
use crate::data::BoundData;
use crate::device::{Compiled, Device, DeviceEngine};
use crate::engine::{Engine, EngineOptions};
use crate::error::{ExecError, Result};
use crate::exec_plan::ExecPlan;
use crate::links::LinkMeasures;
use crate::metrics::Tally;
use timing::Timing;

/// A model bound to data, with its parameters.
#[derive(Debug)]
pub struct Trainer {
    artifact: Artifact,
    backend: Backend,
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
    /// The warning that the user has not been told yet.
    unsaid: Option<String>,
    /// Why the last checkpoint could not be written.
    unsaved: Option<ExecError>,
    /// A value of the criterion that is not finite.
    not_finite: Option<f64>,
    outcome: Outcome,
}

/// Programs of the engine.
const INFER: usize = 0;
pub(crate) const TRAIN: usize = 1;

fn engine_options(options: &TrainOptions) -> EngineOptions {
    let &TrainOptions { threads, memory_budget, code, features, .. } = options;
    EngineOptions { threads, memory_budget, code, features }
}

/// The programs that run on the whole graph, in the order of their numbers.
fn programs(artifact: &Artifact) -> Vec<&Program> {
    let Kernels { infer, train, .. } = &artifact.kernels;
    std::iter::once(infer).chain(train.as_ref().filter(|_| artifact.batch.is_none())).collect()
}

fn seed_of(artifact: &Artifact, options: &TrainOptions) -> u64 {
    options.seed.or(artifact.training.as_ref().map(|training| training.seed)).unwrap_or(0)
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

    fn with(mut backend: Backend, artifact: Artifact, options: TrainOptions) -> Result<Self> {
        let training = artifact.training.as_ref();
        let seed = seed_of(&artifact, &options);
        let epochs = options.epochs.or(training.map(|t| t.epochs)).unwrap_or(0);
        backend.init_params(&artifact.infer, seed)?;
        let links = LinkMeasures::new(&artifact, backend.data(), engine_options(&options))?;
        let mut progress = Progress::new(&artifact.model, seed, backend.data().orders.kind());
        progress.identity.clone_from(&options.identity);
        let mut trainer = Self {
            artifact,
            backend,
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
            unsaid: None,
            unsaved: None,
            not_finite: None,
            outcome: Outcome::Finished,
        };
        trainer.check_target()?;
        if let Some(training) = &trainer.artifact.training {
            trainer.backend.count_result(INFER, &training.output, training.task)?;
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
        let exec_plan = ExecPlan::new(&programs(artifact), data, engine_options(options))?;
        let arenas = Arenas { all: exec_plan.arena(None), infer: exec_plan.arena(Some(INFER)) };
        Ok(MemoryNeeded { arenas, bytes: exec_plan.parts(data).iter().map(|part| part.1).sum() })
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
        Arenas { all: self.backend.arena(None), infer: self.backend.arena(Some(INFER)) }
    }

    fn rows(&self, part: Part) -> &[u32] {
        &self.backend.data().parts[part_index(part)]
    }

    /// Graphs, labels and splits.
    pub fn data(&self) -> &BoundData {
        self.backend.data()
    }

    /// Number of threads of this processor.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// The compiled model.
    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// The engine of this processor, to look at plans and times; `None` where a device runs the model.
    pub fn engine(&mut self) -> Option<&mut Engine> {
        match &mut self.backend {
            Backend::Cpu(engine) => Some(engine),
            Backend::Device(_) | Backend::Batches(_) => None,
        }
    }

    /// The engine of the device that runs the model.
    pub fn device(&mut self) -> Option<&mut DeviceEngine> {
        match &mut self.backend {
            Backend::Cpu(_) | Backend::Batches(_) => None,
            Backend::Device(it) => Some(&mut it.engine),
        }
    }

    /// The machine code that the first batch is computed with, as Cranelift IR. `None` where training is on the whole graph.
    ///
    /// # Errors
    /// A machine for which no code can be generated, or nothing to train on.
    pub fn clif_of_batch(&mut self) -> Result<Option<String>> {
        self.check_trainable()?;
        match &mut self.backend {
            Backend::Batches(it) => it.clif().map(Some),
            Backend::Cpu(_) | Backend::Device(_) => Ok(None),
        }
    }

    /// Warnings so far.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The best epoch so far, counted from 0.
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
