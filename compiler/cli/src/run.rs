//! Prepares a trainer from a model file and a dataset; `hgnnc eval` and `hgnnc infer`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use hgnnc_codegen_cpu::sampler;
use hgnnc_cpu::{CpuBackend, EngineOptions, thread_pool};
use hgnnc_cuda::{DeviceBackend, SharedDevice};
use hgnnc_data::{BindOptions, BoundData, ExecError, Identity, OrderOptions, bind, materialize, order_vertices};
use hgnnc_diag::SourceMap;
use hgnnc_driver::{
    Analyzed, CpuOptions, LowerError, LowerOptions, Lowered, REORDER_VERTICES, SizeInfo, compile_cpu, lower,
    plan_graphs, settings,
};
use hgnnc_executable::{Executable, GraphPlan, Kernels};
use hgnnc_graph::{Dataset, npy, show_bytes};
use hgnnc_ir::OutputKind;
use hgnnc_ir::kernel::{Body, Program};
use hgnnc_ir::training::Target;
use hgnnc_kernels::simd::Dispatch;
use hgnnc_machine::Machine;
use hgnnc_ptx::PtxCompiler;
use hgnnc_train::{MemoryNeeded, Report, TrainOptions, Trainer, checkpoint, weights};
use rayon::ThreadPool;

use crate::args::{Device, DeviceArgs, EvalArgs, InferArgs, ModelArgs};
use crate::data;
use crate::device::{self, Opened};
use crate::failure::Failure;
use crate::output::{check_apart, check_readable, check_writable, note, print, write};
use crate::source;
use crate::switches::{DisableArgs, Switches};

/// A model's tables bound to a dataset.
pub struct Bound {
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
) -> Result<Bound, Failure> {
    let deferring = BindOptions { defer_metapaths: true, ..options.clone() };
    let tables = tables(model);
    let mut data = pool.install(|| bind(&tables, dataset, &deferring))?;
    let mut graphs = None;
    if !model.flow.metapaths.is_empty() {
        let lower = LowerOptions { sizes: Some(data.sizes()), ..lower.clone() };
        let plan = plan_graphs(model, &lower).map_err(|error| source::not_lowered(LowerError::from(error)))?;
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
    /// The relations of the dataset, in their order.
    pub relations: Vec<String>,
    /// Sizes of the data.
    pub sizes: SizeInfo,
    /// Seconds to load the dataset.
    pub load_s: f64,
    /// Seconds from the source to a bound plan, without the semantic graph build and the initial values.
    pub compile_s: f64,
}

/// Purpose of a preparation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Train,
    Measure,
    Infer,
    Score,
}

impl Purpose {
    /// Whether labels and splits are not needed.
    pub fn is_of_outputs(self) -> bool {
        matches!(self, Purpose::Infer | Purpose::Score)
    }

    /// Checks that there is a train block, which names the labels, if the purpose needs one.
    fn check(self, model: Option<&Analyzed>) -> Result<(), Failure> {
        let wrong = |model: &Analyzed, what: &str| {
            Err(Failure::input(format!("the model `{}` has no `train` block, so {what}", model.name)))
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
                    _ => Err(Failure::input(format!(
                        "the model `{}` has no loss of links, so it scores no pairs: leave `--links` out",
                        model.name
                    ))),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Reads, checks, loads, builds graphs, compiles and binds. `say` receives progress notes.
pub fn prepare(
    purpose: Purpose,
    args: &ModelArgs,
    device: Device,
    disable: &DisableArgs,
    mut options: TrainOptions,
    warnings: bool,
    say: &mut dyn FnMut(String),
) -> Result<Prepared, Failure> {
    let start = Instant::now();
    let Switches { disabled, features } = disable.check()?;
    options.features = features;
    if let Some(processors) = too_many_threads(options.threads) {
        say(format!("warning: {} threads share {processors} processors: fewer are faster", options.threads));
    }
    let device = device::open(device, say)?;
    let mut analysis = source::read(&args.model)?;
    source::report(&analysis, &analysis.diagnostics, warnings)?;
    purpose.check(analysis.model.as_ref())?;
    let mut front_s = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let pool = thread_pool(options.threads)?;
    let folder = data::folder(&analysis, &args.model, args.data.as_deref(), &pool, &mut *say)?;
    let dataset = data::load(&folder, &pool)?;
    let mut load_s = start.elapsed().as_secs_f64();
    let mut model = source::meet(&mut analysis, &dataset, args.split.as_deref(), purpose, warnings, &pool)?;
    let output = model.train.as_ref().map(|t| t.training.output.clone());
    let scores_pairs = model.train.as_ref().is_some_and(|t| matches!(t.training.target, Target::Links(_)));
    if purpose == Purpose::Infer {
        forget_training(&mut model);
    }

    let start = Instant::now();
    let bind_options = BindOptions {
        split: args.split.clone(),
        graph_budget: options.memory_budget,
        graph_cache: args.graph_cache(),
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
        say(format!("warning: the semantic graph `{}` has no edges", graph.name));
    }
    from_cache(&data).into_iter().for_each(&mut *say);

    let relations = dataset.relations.iter().map(|relation| relation.name.clone()).collect();
    // The dataset stays loaded only if a device may fail and the processor takes over.
    let dataset = device.is_some().then_some(dataset);
    let start = Instant::now();
    let mut lower_options = LowerOptions { disabled, sizes: Some(sizes.clone()), graphs, ..LowerOptions::default() };
    // Mini-batches on a device have not been measured: it has to be asked for.
    let on_batches = model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some());
    let device = match device {
        Some(opened) if opened.optional && on_batches && purpose == Purpose::Train => {
            say("running on the processor: name a device (`--device cuda`) to train on batches there".into());
            None
        }
        device => device,
    };
    let attempt = match device {
        None => None,
        Some(Opened { device, optional }) => {
            let data = std::mem::take(&mut data);
            let machine = (device, &pool);
            match on_device((&model, purpose), lower_options.clone(), data, machine, options.clone(), say)? {
                Ok(trainer) => Some(trainer),
                Err(error) if !optional => return Err(error.into()),
                Err(error) => {
                    say(device::on_the_processor(&error));
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
            on_processor((&model, purpose), lower_options, data, &pool, options, say)?
        }
    };
    let compile_s = front_s + start.elapsed().as_secs_f64() - trainer.init_s();
    let sources = analysis.sources;
    Ok(Prepared { trainer, sources, output, scores_pairs, relations, sizes, load_s, compile_s })
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
    say: &mut dyn FnMut(String),
) -> Result<Trainer, Failure> {
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
    let mut lowered = lower_within(model, lower_options, &mut data, budget, needed, say)?;
    lowered.executable = for_purpose(lowered.executable, purpose);
    generate(&mut lowered);
    let executable = lowered.executable;
    if orders {
        let order_options = order_options(&executable, &options);
        let ordered = pool.install(|| order_vertices(&executable, &mut data, &order_options))?;
        if let (true, Some(line)) = (ordered.applied, ordered.explain.last()) {
            say(format!("{REORDER_VERTICES}: {line}"));
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
    say: &mut dyn FnMut(String),
) -> Result<Result<Trainer, ExecError>, Failure> {
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
    let mut lowered = lower_within(model, lower_options, &mut data, budget, needed, say)?;
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
    needed: impl Fn(&mut Lowered, &mut BoundData) -> Result<MemoryNeeded, Failure>,
    say: &mut dyn FnMut(String),
) -> Result<Lowered, Failure> {
    /// Scratch memory and partial results are outside the compiler's model, and rematerialization may change them a
    /// little, so that a second attempt with a smaller arena can fit.
    const ATTEMPTS: usize = 3;
    let lower = |options: &LowerOptions| lower(model, options).map_err(source::not_lowered);
    let mut lowered = lower(&options)?;
    let recomputes = !options.disabled.has_pass("rematerialize");
    if budget.is_some() && lowered.executable.batch.is_some() {
        say("warning: a memory budget does not count the values of batches: they take what they need".into());
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
        return Err(Failure::Machine(format!(
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
    lowered.notes.iter().for_each(|line| say(format!("memory budget: {line}")));
    Ok(lowered)
}

fn sums_over_factored_metapaths(kernels: &Kernels) -> bool {
    let programs = kernels.train.iter().chain([&kernels.infer]);
    programs.flat_map(Program::kernels).any(|kernel| matches!(kernel.body, Body::FactoredMetapath(_)))
}

/// Removes the train block: outputs need no labels and no split.
fn forget_training(model: &mut Analyzed) {
    model.train = None;
    let outputs = &model.outputs;
    model.flow.outputs.retain(|o| matches!(&o.kind, OutputKind::Result(name) if outputs.contains(name)));
}

/// The options of the engine. The number of threads also applies to loading the dataset and building semantic graphs.
pub fn options(device: &DeviceArgs) -> TrainOptions {
    TrainOptions {
        threads: device.threads.unwrap_or(0) as usize,
        memory_budget: device.memory_budget,
        precision: device.precision.of_products(),
        code: device.code.mode(),
        ..TrainOptions::default()
    }
}

/// Computes the metrics of a trained model.
pub fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.report {
        check_writable(path)?;
    }
    let read = [("the model", Some(&*args.model.model)), ("the weights", Some(&*args.weights))];
    check_apart(&[("the report", args.report.as_deref())], &read, args.model.data.as_deref())?;
    check_readable(&args.weights)?;
    let options = options(&args.device);
    let device = args.device.device;
    let mut prepared =
        prepare(Purpose::Measure, &args.model, device, &args.disable, options, true, &mut |line| note(&line))?;
    prepared.trainer.load_weights(&args.weights)?;
    let report = finish(&mut prepared)?;
    print(&metrics_text(&report))?;
    if let Some(path) = &args.report {
        write_report(path, &report)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the outputs of a trained model.
pub fn infer(args: &InferArgs) -> Result<ExitCode, Failure> {
    check_writable(&args.out)?;
    let read = [
        ("the model", Some(&*args.model.model)),
        ("the weights", Some(&*args.weights)),
        ("the pairs", args.links.as_deref()),
    ];
    check_apart(&[("the output", Some(&args.out))], &read, args.model.data.as_deref())?;
    check_readable(&args.weights)?;
    let options = options(&args.device);
    let device = args.device.device;
    if let Some(pairs) = &args.links {
        return score_links(args, pairs, options);
    }
    let mut prepared =
        prepare(Purpose::Infer, &args.model, device, &args.disable, options, true, &mut |line| note(&line))?;
    if let (true, Some(trained)) = (prepared.scores_pairs, &prepared.output)
        && args.output.as_ref().is_none_or(|asked| asked == trained)
    {
        return Err(Failure::input(format!(
            "the output `{trained}` belongs to pairs of vertices: give them with `--links FILE.npy`"
        )));
    }
    prepared.trainer.load_weights(&args.weights)?;
    let output = prepared.trainer.infer(args.output.as_deref().or(prepared.output.as_deref()))?;
    let bytes =
        npy::to_bytes(&[output.rows, output.width], &output.data).map_err(|error| Failure::write(&args.out, &error))?;
    write(&args.out, &bytes)?;
    let name = args.output.as_deref().or(prepared.output.as_deref()).unwrap_or("the output");
    warn_of_not_finite(name, &[output.rows, output.width], &output.data);
    print(&format!("wrote {} ({} rows of {})", args.out.display(), output.rows, output.width))?;
    Ok(ExitCode::SUCCESS)
}

/// Warns of values that are not finite; they are written nonetheless, since the rest may be of use.
fn warn_of_not_finite(name: &str, shape: &[usize], numbers: &[f32]) {
    if let Some(found) = weights::not_finite(name, shape, numbers) {
        note(&format!("warning: not all results are finite: {found}"));
    }
}

/// Writes the scores of pairs. They are given as an array of three rows: the source, the position of the relation in
/// the dataset, and the destination of each pair.
fn score_links(args: &InferArgs, pairs: &Path, options: TrainOptions) -> Result<ExitCode, Failure> {
    let wrong = |what: String| Failure::input(format!("{}: {what}", pairs.display()));
    let file = npy::Npy::open(pairs).map_err(|problem| wrong(problem.to_string()))?;
    let &[3, count] = file.shape() else {
        return Err(wrong(format!(
            "pairs are an array [3, pairs] (source, relation, destination), and this is {:?}",
            file.shape()
        )));
    };
    let numbers = file.to_i64().ok_or_else(|| wrong("pairs are whole numbers".into()))?;
    let device = args.device.device;
    let mut prepared =
        prepare(Purpose::Score, &args.model, device, &args.disable, options, true, &mut |line| note(&line))?;
    if let (Some(asked), Some(trained)) = (&args.output, &prepared.output)
        && asked != trained
    {
        return Err(Failure::input(format!("pairs are scored by the output that is trained, `{trained}`")));
    }
    prepared.trainer.load_weights(&args.weights)?;
    let graphs = prepared.trainer.link_graphs();
    let mut by_graph: Vec<Vec<(u32, u32)>> = vec![vec![]; graphs.len()];
    let mut places = Vec::with_capacity(count);
    for pair in 0..count {
        let [src, relation, dst] = [0, 1, 2].map(|row| numbers[row * count + pair]);
        let name = usize::try_from(relation).ok().and_then(|relation| prepared.relations.get(relation));
        let Some(name) = name else {
            let last = prepared.relations.len().saturating_sub(1);
            return Err(wrong(format!("pair {pair} is of relation {relation}; the dataset has 0 to {last}")));
        };
        let Some(graph) = graphs.iter().position(|(known, _)| known == name) else {
            return Err(wrong(format!(
                "pair {pair} is of relation {relation}, `{name}`, which the model does not score"
            )));
        };
        let (num_src, num_dst) = graphs[graph].1;
        let end = |vertex: i64, count: usize| u32::try_from(vertex).ok().filter(|&vertex| (vertex as usize) < count);
        let (Some(src), Some(dst)) = (end(src, num_src), end(dst, num_dst)) else {
            return Err(wrong(format!(
                "pair {pair} joins {src} and {dst}, but `{name}` has {num_src} sources and {num_dst} destinations"
            )));
        };
        places.push((graph, by_graph[graph].len()));
        by_graph[graph].push((src, dst));
    }
    let scores = prepared.trainer.score_pairs(&by_graph)?;
    let scores: Vec<f32> = places.into_iter().map(|(graph, place)| scores[graph][place]).collect();
    let bytes = npy::to_bytes(&[scores.len()], &scores).map_err(|error| Failure::write(&args.out, &error))?;
    write(&args.out, &bytes)?;
    warn_of_not_finite(prepared.output.as_deref().unwrap_or("the output"), &[scores.len()], &scores);
    print(&format!("wrote {} ({} scores)", args.out.display(), scores.len()))?;
    Ok(ExitCode::SUCCESS)
}

/// The report of a finished run. Warns of metrics that are not finite.
pub fn finish(prepared: &mut Prepared) -> Result<Report, Failure> {
    let mut report = prepared.trainer.report()?;
    report.load_s += prepared.load_s;
    report.compile_s = prepared.compile_s;
    for (part, metrics) in &report.metrics {
        for (name, value) in metrics.iter().filter(|(_, value)| !value.is_finite()) {
            let warning = format!("`{part}.{name}` is {value}");
            note(&format!("warning: {warning}"));
            report.warnings.push(warning);
        }
    }
    Ok(report)
}

/// Writes the report as JSON.
pub fn write_report(path: &Path, report: &Report) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(report)
        .map_err(|error| Failure::Machine(format!("cannot write the report: {error}")))?;
    text.push('\n');
    write(path, text.as_bytes())
}

/// The metrics of each part of the split, one line each.
pub fn metrics_text(report: &Report) -> String {
    let mut text = String::new();
    for part in ["train", "val", "test"] {
        let Some(metrics) = report.metrics.get(part) else { continue };
        let values: Vec<String> = metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
        text.push_str(&format!("{part:>5}: {}\n", values.join("  ")));
    }
    text
}
