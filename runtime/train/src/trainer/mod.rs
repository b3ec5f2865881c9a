//! Training and evaluation of a compiled model.

mod batches;
mod check;
mod checkpointing;
mod epochs;
pub(crate) mod head;
mod inference;
mod options;
mod restart;
mod timing;

pub use options::{Arenas, Epoch, FamilyOutputRows, GraphOutputRows, Outcome, OutputRows, ScoredLinks, TrainOptions};

use std::sync::Arc;
use std::time::Instant;

use hgnnc_data::metrics::Tally;
use hgnnc_data::{BoundData, ExecError, Result};
use hgnnc_executable::{Executable, Role};
use hgnnc_ir::training::{Keep, Measure, Metric, Part, Training, row_loss};
use hgnnc_session::{Backend, Session};

use crate::batches::{Batches, graph_inputs};
use crate::checkpoint::Progress;
use crate::links::LinkMeasures;
use crate::memory::{MemoryNeeded, plan, plan_within};
use head::Head;
use timing::Timing;

/// A model bound to data, with its parameters.
#[derive(Debug)]
pub struct Trainer {
    executable: Executable,
    /// Name of the machine, for reports.
    machine: String,
    /// Threads of this process that it uses.
    pool: Arc<rayon::ThreadPool>,
    /// Programs on the full graph: evaluation, and training unless it is on mini-batches.
    session: Box<dyn Session>,
    /// Mini-batch training, if the model has it.
    batches: Option<Box<Batches>>,
    options: TrainOptions,
    seed: u64,
    epochs: u64,
    progress: Progress,
    /// Host copy of the parameters of the best epoch.
    best: Vec<Vec<f32>>,
    /// Epoch of that copy: a device keeps a newer one, which is downloaded periodically.
    best_of: Option<u64>,
    /// Whether the session keeps the parameters of the best epoch in its own memory.
    best_on_device: bool,
    /// Time of the last download.
    best_read: Instant,
    /// Time of the last checkpoint.
    saved: Instant,
    timing: Timing,
    /// Scratch for metric counts.
    tally: Tally,
    /// Link metrics, for models that predict links.
    links: Option<LinkMeasures>,
    /// The prediction head, if it is a program of its own.
    head: Option<Head>,
    /// Whether the link metrics are older than the last evaluation.
    link_metrics_stale: bool,
    warnings: Vec<String>,
    /// Number of those that are of the model and its data, and not of the run.
    lasting_warnings: usize,
    /// Metrics of the last epoch, if each epoch measures them.
    measured: Vec<(Part, Arc<str>, f64)>,
    /// Those metrics, with their names in reports.
    measures: Vec<(Measure, Arc<str>)>,
    /// Results with the loss of each vertex, by trained output.
    row_losses: Vec<String>,
    /// Name of the selection criterion in reports.
    criterion: String,
    /// A warning that has not been reported yet.
    pending_warning: Option<String>,
    /// Error of the last checkpoint.
    unsaved: Option<ExecError>,
    /// A non-finite value of the selection criterion.
    not_finite: Option<f64>,
    outcome: Outcome,
}

/// Program indices in the full-graph session.
pub(crate) const INFER: usize = 0;
/// The training program, unless it is trained on mini-batches.
pub const TRAIN: usize = 1;

/// The programs of the full-graph session, in index order.
pub(crate) fn roles(executable: &Executable) -> &'static [Role] {
    match executable.kernels.train.is_some() && executable.batch.is_none() {
        true => &[Role::Infer, Role::Train],
        false => &[Role::Infer],
    }
}

fn seed_of(executable: &Executable, options: &TrainOptions) -> u64 {
    options.seed.or(executable.training.as_ref().map(|training| training.seed)).unwrap_or(0)
}

/// The error of a feature cache without mini-batches.
fn no_cache(executable: &Executable) -> ExecError {
    ExecError::Unsupported(format!(
        "a cache is for training on batches, and `{}` is trained on the whole graph: give it a `batch`, or leave the \
         cache out",
        executable.model
    ))
}

/// The metrics that each epoch reports, with their names: none, unless the options ask for them. Those that rank
/// links take too long for that.
fn measures_of_epochs(training: &Training, options: &TrainOptions) -> Vec<(Measure, Arc<str>)> {
    if !options.measure_all {
        return vec![];
    }
    let quick: Vec<Metric> = training.metrics.iter().copied().filter(|metric| metric.ranking().is_none()).collect();
    let named = |measure: Measure| (measure, training.measure_name(measure).into());
    training.measures(&quick).into_iter().map(named).collect()
}

impl Trainer {
    /// Binds a model to data on a machine and initialises its parameters, or resumes if the options say so. The back end
    /// is not needed afterwards: its sessions are.
    ///
    /// # Errors
    /// Data that does not fit, a program that the machine does not execute, too little memory, a device failure, or a
    /// checkpoint that cannot be resumed.
    pub fn new(
        executable: Executable,
        mut backend: Box<dyn Backend>,
        data: BoundData,
        options: TrainOptions,
    ) -> Result<Self> {
        let pool = Arc::clone(backend.pool());
        pool.install(|| Self::bound(executable, &mut *backend, data, options))
    }

    fn bound(
        mut executable: Executable,
        backend: &mut dyn Backend,
        data: BoundData,
        options: TrainOptions,
    ) -> Result<Self> {
        if data.orders.any() && !backend.takes_orders() {
            return Err(ExecError::Unsupported("a device takes vertices in the order of the dataset only".into()));
        }
        // The back end has it.
        executable.cpu = None;
        let mut warnings = vec![];
        if executable.batch.is_none() && options.cache.is_some() {
            return Err(no_cache(&executable));
        }
        let planned = plan_within(&executable, backend, data, options.memory_budget)?;
        let (mut session, batches);
        if executable.batch.is_some() {
            let copied = (!backend.reads_host_memory()).then(|| graph_inputs(&executable.infer, planned.data()));
            session = planned.open()?;
            let made = Batches::new(&executable, backend, &mut *session, copied, &options)?;
            warnings.extend(made.not_cached().iter().map(|vertex| {
                format!("the sparse features of `{vertex}` are not cached: only rows of one length are")
            }));
            batches = Some(Box::new(made));
        } else {
            session = planned.open()?;
            batches = None;
        }
        let training = executable.training.as_ref();
        let seed = seed_of(&executable, &options);
        let epochs = options.epochs.or(training.map(|t| t.epochs)).unwrap_or(0);
        let started = Instant::now();
        session.params().init(&executable.infer, seed)?;
        let init_s = started.elapsed().as_secs_f64();
        let training = executable.training.as_ref();
        let measures = training.map_or_else(Vec::new, |training| measures_of_epochs(training, &options));
        let criterion = training.map(|training| training.criterion_name(training.select)).unwrap_or_default();
        let row_losses = (0..training.map_or(0, |training| training.trained.len())).map(row_loss).collect();
        let links = LinkMeasures::new(&executable, backend, session.data())?;
        let head = Head::new(&executable, backend, session.data())?;
        let mut progress = Progress::new(&executable.model, seed, session.data().orders.kind());
        progress.identity.clone_from(&options.identity);
        let mut trainer = Self {
            executable,
            machine: backend.name(),
            pool: Arc::clone(backend.pool()),
            session,
            batches,
            options,
            seed,
            epochs,
            progress,
            best: vec![],
            best_of: None,
            best_on_device: false,
            best_read: Instant::now(),
            saved: Instant::now(),
            timing: Timing { init_s, train_s: init_s, ..Timing::default() },
            tally: Tally::default(),
            links,
            head,
            link_metrics_stale: true,
            warnings,
            lasting_warnings: 0,
            measured: vec![],
            measures,
            row_losses,
            criterion,
            pending_warning: None,
            unsaved: None,
            not_finite: None,
            outcome: Outcome::Finished,
        };
        trainer.check_target()?;
        let first = trainer.executable.training.as_ref().and_then(Training::first);
        if let (Some(trained), None) = (first, &trainer.head) {
            trainer.session.count_result(INFER, &trained.output, trained.task)?;
        }
        trainer.lasting_warnings = trainer.warnings.len();
        if trainer.options.resume {
            trainer.resume()?;
        }
        Ok(trainer)
    }

    /// Memory that a trainer of this model needs on a machine, without allocating it, and less if that helps to stay
    /// within a budget. For mini-batch models without the values of batches: their sizes are not known in advance.
    ///
    /// # Errors
    /// Data that does not fit the programs, or a program that the machine does not execute.
    pub fn memory_needed(
        executable: &Executable,
        backend: &mut dyn Backend,
        data: &mut BoundData,
        budget: Option<u64>,
    ) -> Result<MemoryNeeded> {
        let pool = Arc::clone(backend.pool());
        pool.install(|| {
            let (planned, needed) = plan(executable, backend, std::mem::take(data), budget)?;
            *data = planned.into_data();
            Ok(needed)
        })
    }

    /// Planned memory of training and of evaluation.
    pub fn arenas(&self) -> Arenas {
        match &self.batches {
            None => Arenas { all: self.session.arena(None), infer: self.session.arena(Some(INFER)) },
            Some(batches) => {
                let infer = self.session.arena(None);
                Arenas { all: batches.arena(infer), infer }
            }
        }
    }

    /// The full-graph session, with the current parameters.
    pub(crate) fn current(&mut self) -> Result<&mut dyn Session> {
        if let Some(batches) = &mut self.batches {
            batches.store_params(&mut *self.session)?;
        }
        Ok(&mut *self.session)
    }

    fn rows(&self, part: Part) -> &[u32] {
        self.session.data().part(part)
    }

    /// Data bound to the model: graphs, labels and splits.
    pub fn data(&self) -> &BoundData {
        self.session.data()
    }

    /// Number of CPU threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Compiled model of this trainer.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// The full-graph session, for profiles.
    pub fn session(&mut self) -> &mut dyn Session {
        &mut *self.session
    }

    /// Threads of this process that the machine uses.
    pub fn pool(&self) -> &Arc<rayon::ThreadPool> {
        &self.pool
    }

    /// Text of the generated sampler of mini-batches, if there is one.
    pub fn sampler_text(&self) -> Option<String> {
        self.batches.as_ref().map(|batches| batches.sampler_text())
    }

    /// Warnings of the run so far.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Best epoch so far, counted from 0.
    pub fn best_epoch(&self) -> Option<u64> {
        self.progress.best_epoch
    }

    /// The epoch whose parameters are kept, counted from 1.
    pub(super) fn kept_epoch(&self) -> Option<u64> {
        let done = Some(self.progress.epochs_done).filter(|&epochs| epochs > 0);
        match self.executable.training.as_ref().map(|training| training.keep) {
            Some(Keep::Last) => done,
            Some(Keep::Best) | None => self.progress.best_epoch.map(|epoch| epoch + 1),
        }
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

    /// Seconds that the initial values of the parameters took.
    pub fn init_s(&self) -> f64 {
        self.timing.init_s
    }

    /// Epochs done, including those before a resume.
    pub fn epochs_done(&self) -> u64 {
        self.progress.epochs_done
    }
}
