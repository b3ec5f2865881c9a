//! From a model and a dataset to a trainer that is bound to a machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use hgnnc_codegen_cpu::sampler;
use hgnnc_cpu::{CpuBackend, EngineOptions, thread_pool};
use hgnnc_cuda::{DeviceBackend, SharedDevice};
use hgnnc_data::{BindOptions, BoundData, ExecError, Identity, OrderOptions, bind, materialize, order_vertices};
use hgnnc_diag::SourceMap;
use hgnnc_driver::{
    Analyzed, CpuOptions, Disabled, LowerError, LowerOptions, Lowered, REORDER_VERTICES, SizeInfo, compile_cpu, lower,
    plan_graphs, settings,
};
use hgnnc_executable::{Executable, GraphPlan, Kernels};
use hgnnc_graph::{Dataset, GraphCache, show_bytes};
use hgnnc_ir::kernel::{Body, Program};
use hgnnc_ir::training::Target;
use hgnnc_kernels::simd::Dispatch;
use hgnnc_machine::Machine;
use hgnnc_ptx::PtxCompiler;
use hgnnc_train::{MemoryNeeded, Report, TrainOptions, Trainer, checkpoint};
use rayon::ThreadPool;

use crate::device::{self, Device, Opened};
use crate::{Error, Naming, Observer, dataset, source};

/// A model's tables bound to a dataset.
pub struct Bound {
    /// The data, with the graphs that are materialized.
    pub data: BoundData,
    /// The sizes that passes compare.
    pub sizes: SizeInfo,
    /// The plan of the materialized graphs; `None` if the model has no metapath that could be factored.
    pub graphs: Option<GraphPlan>,
}

/// Binds a model's tables to a dataset, and plans which metapaths are materialized.
pub fn bind_sizes(
    model: &Analyzed,
    dataset: &Dataset,
    options: &BindOptions,
    lower: &LowerOptions,
    pool: &ThreadPool,
) -> Result<Bound, Error> {
    let deferring = BindOptions { defer_metapaths: true, ..options.clone() };
    let tables = tables(model);
    let mut data = pool.install(|| bind(&tables, dataset, &deferring))?;
    let mut graphs = None;
    if !model.flow.metapaths.is_empty() {
        let lower = LowerOptions { sizes: Some(data.sizes()), ..lower.clone() };
        let plan = plan_graphs(model, &lower).map_err(|error| Error::from(LowerError::from(error)))?;
        let flow = &model.flow;
        pool.install(|| materialize(&mut data, flow, dataset, options, &plan.materialized))?;
        graphs = Some(plan);
    }
    let sizes = data.sizes();
    Ok(Bound { data, sizes, graphs })
}

/// The tables of a model, equal to those of the compiled one: passes only change values.
fn tables(model: &Analyzed) -> Executable {
    Executable {
        model: model.name.clone(),
        train: None,
        infer: model.flow.clone(),
        score: None,
        head: None,
        kernels: Kernels::default(),
        training: model.train.as_ref().map(|t| t.training.clone()),
        batch: None,
        families: model.families.clone(),
        graphs: None,
        cpu: None,
        sampler: None,
    }
}

/// A trainer with the times of its preparation.
pub struct Prepared {
    /// Bound to the data.
    pub trainer: Trainer,
    /// Source files of the model.
    pub sources: SourceMap,
    /// Name of the trained output.
    pub output: Option<String>,
    /// Whether that output is per pair of vertices (link prediction).
    pub scores_pairs: bool,
    /// What rows and columns of outputs are called; empty unless outputs are what it is for.
    pub naming: Naming,
    /// The relations of the dataset, in their order.
    pub relations: Vec<String>,
    /// Sizes of the data.
    pub sizes: SizeInfo,
    /// Seconds to load the dataset.
    pub load_s: f64,
    /// Seconds from the source to a bound plan, without the semantic graph build and the initial values.
    pub compile_s: f64,
}

impl Prepared {
    /// The report of what the trainer did. Metrics that are not finite are among its warnings.
    ///
    /// # Errors
    /// When the device fails.
    pub fn report(&mut self) -> Result<Report, Error> {
        let mut report = self.trainer.report()?;
        report.load_s += self.load_s;
        report.compile_s = self.compile_s;
        let found = self.not_finite(&report);
        report.warnings.extend(found);
        Ok(report)
    }

    /// A warning for each metric that is not finite.
    pub fn not_finite(&self, report: &Report) -> Vec<String> {
        let all = report.metrics.iter().flat_map(|(part, metrics)| metrics.iter().map(move |metric| (part, metric)));
        let found = all.filter(|(_, (_, value))| !value.is_finite());
        found.map(|(part, (name, value))| format!("`{part}.{name}` is {value}")).collect()
    }
}

/// Purpose of a preparation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Training; needs a `train` block, labels and a split.
    Train,
    /// Metrics of given weights; needs the same.
    Measure,
    /// Outputs of given weights; needs neither labels nor a split.
    Infer,
    /// Scores of given pairs of vertices; needs a loss of links.
    Score,
}

impl Purpose {
    /// Whether labels and splits are not needed.
    pub fn is_of_outputs(self) -> bool {
        matches!(self, Purpose::Infer | Purpose::Score)
    }

    /// Checks that there is a train block, which names the labels, if the purpose needs one.
    fn check(self, model: Option<&Analyzed>) -> Result<(), Error> {
        let wrong = |model: &Analyzed, what: &str| {
            Err(Error::input(format!("the model `{}` has no `train` block, so {what}", model.name)))
        };
        match (self, model) {
            (Purpose::Train, Some(model)) if model.train.is_none() => wrong(model, "it cannot be trained"),
            (Purpose::Measure, Some(model)) if model.train.is_none() => {
                wrong(model, "there is nothing to measure it by")
            }
            (Purpose::Score, Some(model)) => {
                let target = model.train.as_ref().map(|spec| &spec.training.target);
                match target {
                    Some(Target::Links(_)) => Ok(()),
                    _ => Err(Error::input(format!(
                        "the model `{}` has no loss of links, so it scores no pairs: leave `--links` out",
                        model.name
                    ))),
                }
            }
            _ => Ok(()),
        }
    }
}

/// What to prepare.
#[derive(Clone, Debug)]
pub struct Job {
    /// The model, a `.hgnn` file.
    pub model: PathBuf,
    /// The folder of the dataset; `None` for the one that the model names.
    pub data: Option<PathBuf>,
    /// The split; `None` for the one that the model names.
    pub split: Option<String>,
    /// Most bytes of the cache of metapath graphs beside the dataset; `None` for no cache.
    pub graph_cache: Option<u64>,
    /// Where to run.
    pub device: Device,
    /// Disabled passes and fusions.
    pub disabled: Disabled,
    /// The output that is asked for, by a job whose purpose is outputs. Outputs of edges are computed only then.
    pub output: Option<String>,
    /// The options of the engine.
    pub options: TrainOptions,
}

impl Job {
    /// A job with the default of everything else: the dataset and the split that the model names, any device.
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            data: None,
            split: None,
            graph_cache: Some(GraphCache::DEFAULT_LIMIT),
            device: Device::Auto,
            disabled: Disabled::default(),
            output: None,
            options: TrainOptions::default(),
        }
    }
}

/// Reads, checks, loads, builds graphs, compiles and binds.
///
/// # Errors
/// A model or dataset that is wrong or that do not fit together, and a machine without the device or the memory.
pub fn prepare(purpose: Purpose, job: &Job, observer: &mut dyn Observer) -> Result<Prepared, Error> {
    let start = Instant::now();
    let (mut options, disabled) = (job.options.clone(), job.disabled.clone());
    if let Some(processors) = too_many_threads(options.threads) {
        observer.note(format!("warning: {} threads share {processors} processors: fewer are faster", options.threads));
    }
    let device = device::open(job.device, observer)?;
    let mut analysis = source::read(&job.model)?;
    source::accept(&analysis, &analysis.diagnostics, observer)?;
    purpose.check(analysis.model.as_ref())?;
    if let (Purpose::Infer, Some(model), Some(output)) = (purpose, &mut analysis.model, &job.output) {
        ask_for(model, output)?;
    }
    let mut front_s = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let pool = thread_pool(options.threads)?;
    let folder = dataset::folder(&analysis, &job.model, job.data.as_deref(), &pool, observer)?;
    let dataset = dataset::load(&folder, &pool)?;
    let mut load_s = start.elapsed().as_secs_f64();
    let mut model = source::meet(&mut analysis, &dataset, job.split.as_deref(), purpose, observer, &pool)?;
    let output = model.train.as_ref().map(|t| t.training.output.clone());
    let scores_pairs = model.train.as_ref().is_some_and(|t| matches!(t.training.target, Target::Links(_)));
    let naming = if purpose == Purpose::Infer { Naming::new(&model, &dataset) } else { Naming::default() };
    if purpose == Purpose::Infer {
        model.forget_training();
    }

    let start = Instant::now();
    let bind_options = BindOptions {
        split: job.split.clone(),
        graph_budget: options.memory_budget,
        graph_cache: job.graph_cache,
        outputs_only: purpose.is_of_outputs(),
        ..BindOptions::default()
    };
    if options.checkpoint.is_some() {
        options.identity = {
            let (tables, settings) = (tables(&model), settings(&model));
            Some(pool.install(|| Identity::new(&tables, settings, &dataset, &bind_options))?)
        };
    }
    load_s += start.elapsed().as_secs_f64();
    let start = Instant::now();
    source::prepare(&mut model, &disabled)?;
    front_s += start.elapsed().as_secs_f64();
    let start = Instant::now();
    let machine = device.as_ref().and_then(|opened| Machine::sheet(opened.device.target().name()));
    let bind_lower = LowerOptions { disabled: disabled.clone(), machine, ..LowerOptions::default() };
    let Bound { mut data, mut sizes, graphs } = bind_sizes(&model, &dataset, &bind_options, &bind_lower, &pool)?;
    load_s += start.elapsed().as_secs_f64() - data.sgb_s;
    // The front end has already warned of empty relations.
    let is_hop =
        |graph: usize| model.flow.metapaths.iter().any(|path| path.hops.iter().any(|hop| hop.index() == graph));
    let own = data.graphs.iter().zip(&model.flow.graphs).enumerate().filter(|(graph, _)| !is_hop(*graph));
    let metapaths = own.map(|(_, graph)| graph).filter(|(_, decl)| decl.steps.len() > 1);
    for (graph, _) in metapaths.filter(|(graph, _)| graph.all_edges() == 0) {
        observer.note(format!("warning: the semantic graph `{}` has no edges", graph.name));
    }
    from_cache(&data).into_iter().for_each(|line| observer.note(line));

    let relations = dataset.relations.iter().map(|relation| relation.name.clone()).collect();
    // The dataset stays loaded only if a device may fail and the processor takes over.
    let dataset = device.is_some().then_some(dataset);
    let start = Instant::now();
    let mut lower_options = LowerOptions { disabled, sizes: Some(sizes.clone()), graphs, ..LowerOptions::default() };
    // Mini-batches on a device have not been measured: it has to be asked for.
    let on_batches = model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some());
    let device = match device {
        Some(opened) if opened.optional && on_batches && purpose == Purpose::Train => {
            observer.note("running on the processor: name a device (`--device cuda`) to train on batches there".into());
            None
        }
        device => device,
    };
    let attempt = match device {
        None => None,
        Some(Opened { device, optional }) => {
            let data = std::mem::take(&mut data);
            let machine = (device, &pool);
            match on_device((&model, purpose), lower_options.clone(), data, machine, options.clone(), observer)? {
                Ok(trainer) => Some(trainer),
                Err(error) if !optional => return Err(error.into()),
                Err(error) => {
                    observer.note(device::on_the_processor(&error));
                    None
                }
            }
        }
    };
    let trainer = match attempt {
        Some(trainer) => trainer,
        None => {
            // The failed device attempt consumed the bound data.
            if let (true, Some(dataset)) = (data.num_vertices.is_empty(), &dataset) {
                let bound = bind_sizes(&model, dataset, &bind_options, &lower_options, &pool)?;
                lower_options.sizes = Some(bound.sizes.clone());
                (data, sizes, lower_options.graphs) = (bound.data, bound.sizes, bound.graphs);
            }
            on_processor((&model, purpose), lower_options, data, &pool, options, observer)?
        }
    };
    let compile_s = front_s + start.elapsed().as_secs_f64() - trainer.init_s();
    let sources = analysis.sources;
    Ok(Prepared { trainer, sources, output, scores_pairs, naming, relations, sizes, load_s, compile_s })
}

/// Adds an output of edges to a model's program. Other outputs are there.
///
/// # Errors
/// When the model has no output of this name.
pub fn ask_for(model: &mut Analyzed, output: &str) -> Result<(), Error> {
    if model.outputs.iter().any(|name| name == output) {
        model.ask_for(output);
        return Ok(());
    }
    let names: Vec<String> = model.inferred().map(|name| format!("`{name}`")).collect();
    Err(Error::input(format!("the model has no output `{output}`; it has {}", names.join(", "))))
}

/// The number of processors, if it is below the number of threads.
fn too_many_threads(threads: usize) -> Option<usize> {
    std::thread::available_parallelism().ok().map(usize::from).filter(|&processors| processors < threads)
}

/// A one-line note of the graphs read from the cache.
fn from_cache(data: &BoundData) -> Option<String> {
    let read = data
        .graphs
        .iter()
        .zip(&data.origins)
        .filter_map(|(graph, origin)| origin.filter(|o| o.cached).map(|o| (graph, o)));
    let read: Vec<String> =
        read.map(|(graph, origin)| format!("{} ({:.1} ms)", graph.name, 1e3 * origin.took.as_secs_f64())).collect();
    (!read.is_empty()).then(|| format!("semantic graphs from the cache beside the dataset: {}", read.join(", ")))
}

/// Compiles a model for this processor and binds it to data.
fn on_processor(
    (model, purpose): (&Analyzed, Purpose),
    lower_options: LowerOptions,
    mut data: BoundData,
    pool: &Arc<ThreadPool>,
    options: TrainOptions,
    observer: &mut dyn Observer,
) -> Result<Trainer, Error> {
    let budget = options.memory_budget;
    let (sizes, cpu_options) = (lower_options.sizes.clone(), cpu_options(&options));
    let generate = |lowered: &mut Lowered| pool.install(|| compile_cpu(lowered, sizes.as_ref(), &cpu_options));
    let needed = |lowered: &mut Lowered, data: &mut BoundData| {
        generate(lowered);
        let mut backend = cpu_backend(&lowered.executable, pool, &options);
        Ok(Trainer::memory_needed(&lowered.executable, &mut backend, data, budget)?)
    };
    // Reordering does not pay for a single evaluation, and its permuted copies could exceed a memory budget.
    let disabled = lower_options.disabled.has_pass(REORDER_VERTICES);
    let orders = purpose == Purpose::Train && budget.is_none() && !disabled;
    let mut lowered = lower_within(model, lower_options, &mut data, budget, needed, observer)?;
    lowered.executable = for_purpose(lowered.executable, purpose);
    generate(&mut lowered);
    let executable = lowered.executable;
    if orders {
        let order_options = order_options(&executable, &options);
        let ordered = pool.install(|| order_vertices(&executable, &mut data, &order_options))?;
        if let (true, Some(line)) = (ordered.applied, ordered.explain.last()) {
            observer.note(format!("{REORDER_VERTICES}: {line}"));
        }
    }
    let backend = cpu_backend(&executable, pool, &options);
    Ok(Trainer::new(executable, Box::new(backend), data, options)?)
}

/// The processor as a back end for an executable with code for it.
pub fn cpu_backend(executable: &Executable, pool: &Arc<ThreadPool>, options: &TrainOptions) -> CpuBackend {
    let &TrainOptions { threads, features, .. } = options;
    let options = EngineOptions { threads, dispatch: Dispatch::new(features), room: None };
    CpuBackend::new(executable, Arc::clone(pool), options)
}

/// Code mode, kernel features and SIMD level that the CPU back end compiles for.
pub fn cpu_options(options: &TrainOptions) -> CpuOptions {
    CpuOptions::new(options.code, options.features, Dispatch::new(options.features).level())
}

/// Options of the vertex order: the number of epochs in which it must pay off, and the stored order of a resumed run.
pub fn order_options(executable: &Executable, options: &TrainOptions) -> OrderOptions {
    let epochs = executable.training.as_ref().map_or(1, |training| options.epochs.unwrap_or(training.epochs));
    let resumed = options.checkpoint.as_deref().filter(|_| options.resume).and_then(checkpoint::order_of);
    OrderOptions { epochs, cache_bytes: None, resumed }
}

/// Evaluation needs neither mini-batch programs nor samplers.
fn for_purpose(mut executable: Executable, purpose: Purpose) -> Executable {
    if purpose != Purpose::Train && executable.batch.take().is_some() {
        (executable.train, executable.kernels.train) = (None, None);
    }
    executable
}

/// Compiles a model for a device and binds it to data.
///
/// # Errors
/// The outer error is wrong input; the inner error may be caused by the device.
fn on_device(
    (model, purpose): (&Analyzed, Purpose),
    mut lower_options: LowerOptions,
    mut data: BoundData,
    (device, pool): (Box<dyn hgnnc_cuda::Device>, &Arc<ThreadPool>),
    options: TrainOptions,
    observer: &mut dyn Observer,
) -> Result<Result<Trainer, ExecError>, Error> {
    let target = device.target().with_precision(options.precision);
    lower_options.machine = Machine::sheet(target.name());
    let budget = options.memory_budget;
    let device = SharedDevice::from(device);
    let open = |executable: &Executable| {
        DeviceBackend::new(executable, device.clone(), (&PtxCompiler, target), Arc::clone(pool))
    };
    let needed = |lowered: &mut Lowered, data: &mut BoundData| {
        let mut backend = open(&lowered.executable);
        Ok(Trainer::memory_needed(&lowered.executable, &mut backend, data, budget)?)
    };
    let mut lowered = lower_within(model, lower_options, &mut data, budget, needed, observer)?;
    lowered.executable = for_purpose(lowered.executable, purpose);
    // Samplers run on the processor.
    if lowered.executable.batch.is_some() {
        lowered.executable.sampler = sampler(options.code);
    }
    let backend = open(&lowered.executable);
    match Trainer::new(lowered.executable, Box::new(backend), data, options) {
        Err(error @ (ExecError::Memory { .. } | ExecError::Device { .. } | ExecError::Unsupported(_))) => {
            Ok(Err(error))
        }
        other => Ok(Ok(other?)),
    }
}

/// Lowers a model such that training fits into the memory budget, if there is one and rematerialization helps. `needed`
/// returns what a lowered model takes.
fn lower_within(
    model: &Analyzed,
    mut options: LowerOptions,
    data: &mut BoundData,
    budget: Option<u64>,
    needed: impl Fn(&mut Lowered, &mut BoundData) -> Result<MemoryNeeded, Error>,
    observer: &mut dyn Observer,
) -> Result<Lowered, Error> {
    /// Scratch memory and partial results are outside the compiler's model, and rematerialization may change them a
    /// little, so that a second attempt with a smaller arena can fit.
    const ATTEMPTS: usize = 3;
    let lower = |options: &LowerOptions| lower(model, options).map_err(Error::from);
    let mut lowered = lower(&options)?;
    let recomputes = !options.disabled.has_pass("rematerialize");
    if budget.is_some() && lowered.executable.batch.is_some() {
        observer.note("warning: a memory budget does not count the values of batches: they take what they need".into());
        return Ok(lowered);
    }
    let Some(budget) = budget.filter(|_| recomputes) else { return Ok(lowered) };
    let mut takes = needed(&mut lowered, data)?;
    for _ in 0..ATTEMPTS {
        let Some(values) = lowered.arena.and_then(|arena| arena.train) else { return Ok(lowered) };
        if takes.bytes() <= budget {
            break;
        }
        options.arena_budget = Some(values.saturating_sub(takes.bytes() - budget));
        let mut smaller = lower(&options)?;
        let less = needed(&mut smaller, data)?;
        if less.bytes() >= takes.bytes() {
            break;
        }
        (lowered, takes) = (smaller, less);
    }
    if takes.bytes() > budget {
        // What is refused below must be the least memory: who gives that much next time has to succeed.
        options.arena_budget = Some(0);
        lowered = lower(&options)?;
        takes = needed(&mut lowered, data)?;
    }
    if takes.bytes() > budget {
        return Err(Error::Machine(format!(
            "training needs at least {} ({}) even where values are recomputed instead of kept; the budget is {}{}",
            show_bytes(takes.bytes()),
            takes.detail(),
            show_bytes(budget),
            if sums_over_factored_metapaths(&lowered.executable.kernels) {
                "; the factored metapaths need tables (`--disable-pass factor_metapaths` materializes them instead)"
            } else {
                ""
            }
        )));
    }
    lowered.notes.iter().for_each(|line| observer.note(format!("memory budget: {line}")));
    Ok(lowered)
}

fn sums_over_factored_metapaths(kernels: &Kernels) -> bool {
    let programs = kernels.train.iter().chain([&kernels.infer]);
    programs.flat_map(Program::kernels).any(|kernel| matches!(kernel.body, Body::FactoredMetapath(_)))
}
