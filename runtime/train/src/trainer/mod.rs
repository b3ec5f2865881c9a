//! Training and evaluation of a compiled model.

mod batches;
mod check;
mod checkpointing;
mod epochs;
mod inference;
mod options;
mod timing;

pub use options::{Arenas, Epoch, MemoryNeeded, Outcome, OutputRows, TrainOptions};

use std::time::Instant;

use hgnnc_cpu::{Engine, EngineOptions, ExecPlan};
use hgnnc_cuda::{Compiled, Device, DeviceEngine};
use hgnnc_data::metrics::Tally;
use hgnnc_data::{BoundData, ExecError, Result};
use hgnnc_executable::cpu::{CpuProgram, CpuPrograms};
use hgnnc_executable::gpu::{GpuCompiler, Target};
use hgnnc_executable::{Executable, Kernels};
use hgnnc_ir::kernel::Program;
use hgnnc_ir::loops::{self};
use hgnnc_ir::training::Part;

use crate::backend::{Backend, part_index};
use crate::batches::Batches;
use crate::checkpoint::Progress;
use crate::links::LinkMeasures;
use timing::Timing;

/// A model bound to data, with its parameters.
#[derive(Debug)]
pub struct Trainer {
    executable: Executable,
    backend: Backend,
    options: TrainOptions,
    seed: u64,
    epochs: u64,
    progress: Progress,
    /// Host copy of the parameters of the best epoch.
    best: Vec<Vec<f32>>,
    /// Epoch of that copy: a device keeps a newer one, which is downloaded periodically.
    best_of: Option<u64>,
    /// Time of the last download.
    best_read: Instant,
    /// Time of the last checkpoint.
    saved: Instant,
    timing: Timing,
    /// Scratch for metric counts.
    tally: Tally,
    /// Link metrics, for models that predict links.
    links: Option<LinkMeasures>,
    /// Whether the link metrics are older than the last evaluation.
    link_metrics_stale: bool,
    warnings: Vec<String>,
    /// A warning that has not been reported yet.
    pending_warning: Option<String>,
    /// Error of the last checkpoint.
    unsaved: Option<ExecError>,
    /// A non-finite value of the selection criterion.
    not_finite: Option<f64>,
    outcome: Outcome,
}

/// Program indices in the engine.
const INFER: usize = 0;
pub(crate) const TRAIN: usize = 1;

fn engine_options(options: &TrainOptions) -> EngineOptions {
    let &TrainOptions { threads, memory_budget, features, .. } = options;
    EngineOptions { threads, memory_budget, features }
}

/// [`programs`] for the CPU.
fn cpu_programs<'p>(executable: &Executable, cpu: &'p CpuPrograms) -> Vec<&'p CpuProgram> {
    std::iter::once(&cpu.infer).chain(cpu.train.as_ref().filter(|_| executable.batch.is_none())).collect()
}

fn no_code(executable: &Executable) -> ExecError {
    ExecError::Unsupported(format!("no code for a processor was generated for `{}`", executable.model))
}

/// Full-graph programs in index order.
fn programs(executable: &Executable) -> Vec<&Program> {
    let Kernels { infer, train, .. } = &executable.kernels;
    std::iter::once(infer).chain(train.as_ref().filter(|_| executable.batch.is_none())).collect()
}

fn seed_of(executable: &Executable, options: &TrainOptions) -> u64 {
    options.seed.or(executable.training.as_ref().map(|training| training.seed)).unwrap_or(0)
}

/// Errors if a feature cache is requested without mini-batches.
fn no_cache(executable: &Executable, options: &TrainOptions) -> Result<()> {
    match options.cache {
        None => Ok(()),
        Some(_) => Err(ExecError::Unsupported(format!(
            "a cache is for training on batches, and `{}` is trained on the whole graph: give it a `batch`, or leave the \
             cache out",
            executable.model
        ))),
    }
}

impl Trainer {
    /// Binds a model to data on the CPU and initialises its parameters, or resumes if the options say so.
    ///
    /// # Errors
    /// An executable without code for a processor, data that does not fit, too little memory, or a checkpoint that cannot
    /// be resumed.
    pub fn new(mut executable: Executable, data: BoundData, options: TrainOptions) -> Result<Self> {
        // It is bound below, and not needed afterwards.
        let cpu = executable.cpu.take().ok_or_else(|| no_code(&executable))?;
        if executable.batch.is_some() {
            let batches = Batches::new((&executable, &cpu), data, engine_options(&options), options.cache)?;
            let not_cached = batches.not_cached();
            let mut trainer = Self::with(batches.into(), executable, Some(&cpu), options)?;
            trainer.warnings.extend(not_cached.iter().map(|vertex| {
                format!("the sparse features of `{vertex}` are not cached: only rows of one length are")
            }));
            return Ok(trainer);
        }
        no_cache(&executable, &options)?;
        let engine = Engine::new(&cpu_programs(&executable, &cpu), data, engine_options(&options))?;
        Self::with(engine.into(), executable, Some(&cpu), options)
    }

    /// [`Trainer::new`] on a device, with the budget for device memory. Links are scored on the CPU.
    ///
    /// # Errors
    /// The errors of [`Trainer::new`], kernels without PTX, or a device failure.
    pub fn on_device(
        mut executable: Executable,
        data: BoundData,
        (device, compiler): (Box<dyn Device>, &'static dyn GpuCompiler),
        options: TrainOptions,
    ) -> Result<Self> {
        if executable.batch.is_some() {
            return Err(ExecError::Unsupported(
                "training on batches is for this processor only so far: use `--device cpu`".into(),
            ));
        }
        if data.orders.any() {
            return Err(ExecError::Unsupported("a device takes vertices in the order of the dataset only".into()));
        }
        no_cache(&executable, &options)?;
        let target = device.target().with_precision(options.precision);
        let programs = programs(&executable);
        let engine = DeviceEngine::new(&programs, data, device, (compiler, target), options.memory_budget)?;
        let cpu = executable.cpu.take();
        Self::with(engine.into(), executable, cpu.as_ref(), options)
    }

    fn with(
        mut backend: Backend,
        executable: Executable,
        cpu: Option<&CpuPrograms>,
        options: TrainOptions,
    ) -> Result<Self> {
        let training = executable.training.as_ref();
        let seed = seed_of(&executable, &options);
        let epochs = options.epochs.or(training.map(|t| t.epochs)).unwrap_or(0);
        backend.init_params(&executable.infer, seed)?;
        let links = LinkMeasures::new((&executable, cpu), backend.data(), engine_options(&options))?;
        let mut progress = Progress::new(&executable.model, seed, backend.data().orders.kind());
        progress.identity.clone_from(&options.identity);
        let mut trainer = Self {
            executable,
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
            link_metrics_stale: true,
            warnings: vec![],
            pending_warning: None,
            unsaved: None,
            not_finite: None,
            outcome: Outcome::Finished,
        };
        trainer.check_target()?;
        if let Some(training) = &trainer.executable.training {
            trainer.backend.count_result(INFER, &training.output, training.task)?;
        }
        if trainer.options.resume {
            trainer.resume()?;
        }
        Ok(trainer)
    }

    /// Memory that a trainer of this model needs, without allocating it. For mini-batch models that of evaluation:
    /// batch sizes are not known in advance.
    ///
    /// # Errors
    /// An executable without code for a processor, or data that does not fit the programs.
    pub fn memory_needed(
        executable: &Executable,
        data: &mut BoundData,
        options: &TrainOptions,
    ) -> Result<MemoryNeeded> {
        let cpu = executable.cpu.as_ref().ok_or_else(|| no_code(executable))?;
        let loops: Vec<&loops::VerifiedLoops> =
            cpu_programs(executable, cpu).iter().map(|program| &program.loops).collect();
        let exec_plan = ExecPlan::new(&loops, data, engine_options(options))?;
        let arenas = Arenas { all: exec_plan.arena(None), infer: exec_plan.arena(Some(INFER)) };
        Ok(MemoryNeeded { arenas, bytes: exec_plan.parts(data).iter().map(|part| part.1).sum() })
    }

    /// [`Trainer::memory_needed`] on a device of this kind.
    ///
    /// # Errors
    /// Data that does not fit the programs, or a kernel without PTX.
    pub fn device_memory_needed(
        executable: &Executable,
        data: &mut BoundData,
        (compiler, target): (&'static dyn GpuCompiler, Target),
    ) -> Result<MemoryNeeded> {
        let compiled = Compiled::new(&programs(executable), data, (compiler, target))?;
        let arenas = Arenas { all: compiled.arena(None), infer: compiled.arena(Some(INFER)) };
        Ok(MemoryNeeded { arenas, bytes: compiled.memory().bytes() })
    }

    /// Planned memory of training and of evaluation.
    pub fn arenas(&self) -> Arenas {
        Arenas { all: self.backend.arena(None), infer: self.backend.arena(Some(INFER)) }
    }

    fn rows(&self, part: Part) -> &[u32] {
        &self.backend.data().parts[part_index(part)]
    }

    /// Data bound to the model: graphs, labels and splits.
    pub fn data(&self) -> &BoundData {
        self.backend.data()
    }

    /// Number of CPU threads.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Compiled model of this trainer.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// CPU engine, for access to plans and times; `None` if a device runs the model.
    pub fn engine(&mut self) -> Option<&mut Engine> {
        match &mut self.backend {
            Backend::Cpu(engine) => Some(engine),
            Backend::Device(_) | Backend::Batches(_) => None,
        }
    }

    /// Device engine, if a device runs the model.
    pub fn device(&mut self) -> Option<&mut DeviceEngine> {
        match &mut self.backend {
            Backend::Cpu(_) | Backend::Batches(_) => None,
            Backend::Device(it) => Some(&mut it.engine),
        }
    }

    /// Text of the generated sampler of mini-batches, if there is one.
    pub fn sampler_text(&self) -> Option<String> {
        match &self.backend {
            Backend::Batches(it) => Some(it.sampler_text()),
            Backend::Cpu(_) | Backend::Device(_) => None,
        }
    }

    /// Warnings of the run so far.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Best epoch so far, counted from 0.
    pub fn best_epoch(&self) -> Option<u64> {
        self.progress.best_epoch
    }

    /// Whether there is a best epoch. After [`Trainer::run`] its parameters are current, even if the run failed
    /// (unless the device failed).
    pub fn has_best(&self) -> bool {
        self.progress.best_epoch.is_some()
    }

    /// Batches done of the current epoch, for mini-batch training.
    pub fn batches_done(&self) -> u64 {
        self.progress.within.batches
    }

    /// Epochs done, including those before a resume.
    pub fn epochs_done(&self) -> u64 {
        self.progress.epochs_done
    }
}
