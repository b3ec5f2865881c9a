//! From a model and a dataset to the data of its programs, before there is a machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hgnnc_cpu::thread_pool;
use hgnnc_data::{BindOptions, BoundData, Identity, Own, bind, materialize};
use hgnnc_dataset::{Dataset, Extended};
use hgnnc_diag::SourceMap;
use hgnnc_driver::{
    Analyzed, Diagnostics, Disabled, LowerError, LowerOptions, PRECOMPUTE, SizeInfo, UnknownName, check_unseen,
    plan_graphs, precomputed, settings,
};
use hgnnc_executable::{Executable, GraphPlan, Kernels};
use hgnnc_ir::dataflow::{GraphDecl, VertexTypeDecl};
use hgnnc_ir::training::Target;
use hgnnc_ir::{Dataflow, OutputKind, Space, VertexType};
use hgnnc_machine::Machine;
use hgnnc_train::TrainOptions;
use hgnnc_train::baseline::baseline;
use hgnnc_train::report::BaselineReport;
use rayon::ThreadPool;

use crate::artifact::Description;
use crate::job::{DataSource, Job, Purpose};
use crate::parts::Parts;
use crate::precompute::{disable_what_does_not_fit, fill_precomputed};
use crate::results::relation_of_rows;
use crate::source::{Meeting, Opened};
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
    bind_planned(model, dataset, options, lower, (plan_graphs, pool))
}

/// Decides which metapaths of a model are materialized.
type GraphPlanner = fn(&Analyzed, &LowerOptions) -> Result<GraphPlan, UnknownName>;

/// [`bind_sizes`], with the plan of a kind of programs.
pub(crate) fn bind_planned(
    model: &Analyzed,
    dataset: &Dataset,
    options: &BindOptions,
    lower: &LowerOptions,
    (plan_graphs, pool): (GraphPlanner, &ThreadPool),
) -> Result<Bound, Error> {
    let split = options.split.clone().or_else(|| model.split.clone());
    let deferring = BindOptions { split, defer_metapaths: true, ..options.clone() };
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
        rank: [None, None],
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

/// A job whose model is bound to its dataset.
pub(crate) struct BoundJob {
    pub opened: Opened,
    pub model: Analyzed,
    /// Taken by the machine; a device that fails does not give it back.
    pub data: BoundData,
    pub sizes: SizeInfo,
    /// The plan of the materialized graphs.
    pub graphs: Option<GraphPlan>,
    /// `None` once it is needed no more.
    pub dataset: Option<Arc<Dataset>>,
    /// By vertex type: the first vertex of each part, if ranks own those of a partitioned dataset.
    pub parts: Arc<[Vec<usize>]>,
    pub pool: Arc<ThreadPool>,
    /// The options of the job, with its identity.
    pub options: TrainOptions,
    /// The passes of the job that are disabled.
    pub disabled: Disabled,
    bind_options: BindOptions,
    pub description: Description,
    /// Name of the trained output.
    pub output: Option<String>,
    pub scores_pairs: bool,
    pub naming: Naming,
    /// Names of the classes of the trained label.
    pub classes: Vec<String>,
    pub baseline: Option<BaselineReport>,
    /// The constants of the model that the job sets.
    pub constants: BTreeMap<String, f64>,
    /// By output of vertices: the rows that are asked for.
    pub rows_asked: Option<BTreeMap<String, Vec<u32>>>,
    /// By vertex type of the model: whether each vertex is asked about.
    pub ends_asked: Option<Vec<Vec<bool>>>,
    /// Seconds to load the dataset.
    pub load_s: f64,
    /// Seconds of the front end.
    pub front_s: f64,
}

impl BoundJob {
    /// The options of a compilation for the processor.
    pub fn lower_options(&self) -> LowerOptions {
        LowerOptions {
            disabled: self.disabled.clone(),
            sizes: Some(self.sizes.clone()),
            graphs: self.graphs.clone(),
            evaluation_only: self.is_artifact(),
            ..LowerOptions::default()
        }
    }

    /// Binds the model to the dataset again, after a device has had the data and failed.
    pub fn bind_again(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        if let (true, Some(dataset)) = (self.data.num_vertices.is_empty(), &self.dataset) {
            let options = self.lower_options();
            let mut bound = bind_sizes(&self.model, dataset, &self.bind_options, &options, &self.pool)?;
            let how = (&self.bind_options, &self.options);
            fill_precomputed(&self.model, &mut bound, dataset, how, &self.disabled, &self.pool, observer)?;
            (self.data, self.sizes, self.graphs) = (bound.data, bound.sizes, bound.graphs);
        }
        Ok(())
    }

    /// The relations of the dataset, in their order.
    pub fn relations(&self) -> Vec<String> {
        let names = |dataset: &Arc<Dataset>| dataset.relations.iter().map(|relation| relation.name.clone()).collect();
        self.dataset.as_ref().map_or_else(Vec::new, names)
    }

    /// Whether the model is trained on mini-batches.
    pub fn on_batches(&self) -> bool {
        self.model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some())
    }

    /// Source files of the model, unless it is an artifact.
    pub fn sources(&self) -> Option<&SourceMap> {
        match &self.opened {
            Opened::Text(analysis) => Some(&analysis.sources),
            Opened::Artifact { .. } => None,
        }
    }

    fn is_artifact(&self) -> bool {
        matches!(self.opened, Opened::Artifact { .. })
    }
}

/// Reads, checks and loads a job, and builds its graphs, of which `machine` decides those that are materialized. Everything
/// else is for any machine.
///
/// # Errors
/// A model or dataset that is wrong or that do not fit together.
pub(crate) fn bind_job(
    purpose: Purpose,
    job: &Job,
    machine: Option<Machine>,
    observer: &mut dyn Observer,
) -> Result<BoundJob, Error> {
    let start = Instant::now();
    let (mut options, mut disabled) = (job.options.clone(), job.disabled.clone());
    if let Some(processors) = too_many_threads(options.threads) {
        observer.note(format!("warning: {} threads share {processors} processors: fewer are faster", options.threads));
    }
    let mut opened = job.model.open(&job.constants)?;
    let mut known = BTreeMap::new();
    let own = match &opened {
        Opened::Text(analysis) => {
            source::accept(analysis, &analysis.diagnostics, observer)?;
            purpose.check(analysis.model.as_ref())?;
            known.clone_from(&analysis.constants);
            let training = analysis.model.as_ref().and_then(|model| model.train.as_ref());
            training.and_then(|train| train.training.dataset.clone())
        }
        Opened::Artifact { artifact, .. } => {
            if purpose == Purpose::Train {
                return Err(Error::input(format!(
                    "`{}` is a trained model, which `eval` and `infer` take: train its source, perhaps from these \
                     parameters (`--init`)",
                    artifact.path().display()
                )));
            }
            let model = artifact.analyzed(&[]);
            purpose.check(Some(&model))?;
            model.train.and_then(|train| train.training.dataset)
        }
    };
    if purpose == Purpose::Infer {
        job.outputs.iter().try_for_each(|output| opened.ask_for(output))?;
    }
    let mut front_s = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let pool = thread_pool(options.threads)?;
    let mut dataset = match &job.data {
        DataSource::Loaded(dataset) => Arc::clone(dataset),
        other => {
            let asked = if let DataSource::Folder(folder) = other { Some(&**folder) } else { None };
            let folder = dataset::folder(own.as_deref(), job.model.folder(), asked, &pool, observer)?;
            Arc::new(dataset::load(&folder, &pool)?)
        }
    };
    let parts = match &job.ranks {
        Some(ranks) => Some(Parts::of(&dataset, ranks.comm.size(), observer)?),
        None => None,
    };
    let asked = match &job.new {
        Some(new) => {
            let (asked, extended) = asked_about(purpose, new, &dataset, &pool)?;
            dataset = Arc::new(extended);
            Some(asked)
        }
        None => None,
    };
    let mut load_s = start.elapsed().as_secs_f64();
    let how = Meeting { split: job.split.as_deref(), purpose, graph_budget: options.memory_budget };
    let mut model = opened.meet(&mut dataset, how, observer, &pool)?;
    let description = match &opened {
        Opened::Text(_) => {
            let training = model.train.as_ref().map(|train| &train.training);
            let (flow, families) = model.complete_program();
            Description::new(&flow, (&model.outputs, &families), training, &dataset)
        }
        Opened::Artifact { artifact, .. } => artifact.description().clone(),
    };
    if let (Opened::Text(analysis), Some(asked)) = (&opened, &asked) {
        let added = |vertex: VertexType| asked.added_of(&model.flow, vertex, &dataset);
        let mut found = Diagnostics::default();
        check_unseen(&model, added, &mut found);
        source::accept(analysis, &found, observer)?;
    }
    let output = model.train.as_ref().and_then(|t| Some(t.training.first()?.output.clone()));
    let scores_pairs = model.train.as_ref().is_some_and(|t| t.training.links().is_some());
    if let (Purpose::Score, Some(trained)) = (purpose, &output)
        && job.outputs.iter().any(|asked| asked != trained)
    {
        return Err(Error::input(format!("pairs are scored by the output that is trained, `{trained}`")));
    }
    let parts = parts.map_or_else(Arc::default, |parts| parts.of_model(&model.flow, &dataset));
    let (label_features, classes) = label_of(&model, &dataset);
    let naming = match purpose {
        Purpose::Infer => {
            let named = asked.as_ref().map_or(&*dataset, |asked| &asked.new);
            Naming::new(&model, (named, &dataset), &description)
        }
        _ => Naming::default(),
    };
    let ends_asked = asked.as_ref().map(|asked| asked.ends(&model.flow, &dataset));
    let rows_asked = asked.map(|asked| asked.rows(&model.flow, &dataset));
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
            let (tables, mut settings) = (tables(&model), settings(&model));
            if let Some(ranks) = &job.ranks {
                settings.insert("sections".into(), ranks.sections.to_string());
                if let Some(first) = parts.iter().find(|parts| !parts.is_empty()) {
                    settings.insert("parts".into(), first.len().to_string());
                }
                if ranks.split.shares_relations() {
                    settings.insert("share".into(), "relations".into());
                }
                if ranks.replicas > 1 {
                    settings.insert("replicas".into(), ranks.replicas.to_string());
                }
            }
            let identity = pool.install(|| Identity::new(&tables, settings, &dataset, &bind_options))?;
            Some(identity.with_constants(&known, job.constants.iter().map(|(name, _)| &name[..])))
        };
    }
    load_s += start.elapsed().as_secs_f64();
    let start = Instant::now();
    if purpose != Purpose::Train {
        // Evaluations of the whole graph compute what they need.
        disabled.passes.push(PRECOMPUTE.into());
    } else if job.ranks.as_ref().is_some_and(|ranks| ranks.split.shares_relations()) {
        if precomputed(&model, &disabled).is_some() {
            observer.note(format!(
                "{PRECOMPUTE}: processes that share relations compute no rows before training: batches sample what these are computed from"
            ));
        }
        disabled.passes.push(PRECOMPUTE.into());
    } else {
        let limits = (options.memory_budget, job.ranks.as_ref());
        disable_what_does_not_fit(&model, &dataset, limits, &mut disabled, observer)?;
    }
    let of_whole_graph = match &job.ranks {
        Some(_) => source::prepare_for_ranks(&mut model, &disabled, (&dataset, &pool), observer)?,
        None => {
            source::prepare(&mut model, &disabled, Some((&dataset, &pool)))?;
            disabled.clone()
        }
    };
    front_s += start.elapsed().as_secs_f64();
    let start = Instant::now();
    // Rows that are computed before training are those of the whole graph.
    let reads_own = model.precomputed.is_none();
    let own = job.ranks.as_ref().filter(|ranks| reads_own && ranks.comm.size() > 1).map(|ranks| Own {
        division: ranks.division(ranks.comm.size(), &parts),
        rank: ranks.comm.rank(),
        distribute: ranks.distribute,
    });
    let bind_options = BindOptions { own, ..bind_options };
    let evaluation_only = matches!(opened, Opened::Artifact { .. });
    let bind_lower = LowerOptions { disabled: of_whole_graph, machine, evaluation_only, ..LowerOptions::default() };
    let mut bound = bind_sizes(&model, &dataset, &bind_options, &bind_lower, &pool)?;
    let how = (&bind_options, &options);
    fill_precomputed(&model, &mut bound, &dataset, how, &bind_lower.disabled, &pool, observer)?;
    let Bound { data, mut sizes, graphs } = bound;
    if job.ranks.is_some() {
        sizes = sizes.with_estimated_stacks(&model.flow);
    }
    load_s += start.elapsed().as_secs_f64() - data.sgb_s;
    // Rank 0 writes the report.
    let has_baseline =
        job.baseline && !purpose.is_of_outputs() && job.ranks.as_ref().is_none_or(|ranks| ranks.comm.rank() == 0);
    let baseline = model.train.as_ref().filter(|_| has_baseline).and_then(|spec| {
        let features = label_features.and_then(|ty| dataset.vertex_types[ty].features.as_ref());
        baseline(features, &data, spec.training.first()?.task)
    });
    let set = job.constants.iter().filter_map(|(name, _)| Some((name.clone(), *known.get(name)?)));
    let constants = set.collect();
    // The front end has already warned of empty relations.
    let is_hop =
        |graph: usize| model.flow.metapaths.iter().any(|path| path.hops.iter().any(|hop| hop.index() == graph));
    let own = data.graphs.iter().zip(&model.flow.graphs).enumerate().filter(|(graph, _)| !is_hop(*graph));
    // Outputs are computed without walks, so nothing is known of links of metapaths.
    let is_known = |decl: &GraphDecl| !(decl.is_walked() && purpose.is_of_outputs());
    let metapaths = own.map(|(_, graph)| graph).filter(|(_, decl)| decl.steps.len() > 1 && is_known(decl));
    for (graph, _) in metapaths.filter(|(graph, _)| graph.all_edges() == 0) {
        observer.note(format!("warning: the semantic graph `{}` has no edges", graph.name));
    }
    from_cache(&data).into_iter().for_each(|line| observer.note(line));
    Ok(BoundJob {
        opened,
        model,
        data,
        sizes,
        graphs,
        dataset: Some(dataset),
        parts,
        pool,
        options,
        disabled,
        bind_options,
        description,
        output,
        scores_pairs,
        naming,
        classes,
        baseline,
        constants,
        rows_asked,
        ends_asked,
        load_s,
        front_s,
    })
}

/// The vertex type of the trained label in the dataset, and the names of its classes.
fn label_of(model: &Analyzed, dataset: &Dataset) -> (Option<usize>, Vec<String>) {
    let found = model.train.as_ref().and_then(|spec| {
        let Target::Vertices { vertex, label } = spec.training.target()? else { return None };
        let ty = dataset.vertex_type(&model.flow.vertex_types[vertex.index()].dataset_name)?;
        Some((ty, dataset.label(ty, label).map_or(vec![], |label| label.class_names.clone())))
    });
    found.map_or((None, vec![]), |(ty, names)| (Some(ty), names))
}

/// Vertices of a dataset beside the graph, whose outputs are asked for.
struct Asked {
    new: Dataset,
    /// By vertex type of the graph: its vertices in the extended graph.
    vertices: Vec<Vec<u32>>,
    /// By vertex type of the graph: how many of them are new.
    added: Vec<usize>,
}

/// Extends a graph by the dataset in a folder.
fn asked_about(
    purpose: Purpose,
    folder: &Path,
    dataset: &Dataset,
    pool: &ThreadPool,
) -> Result<(Asked, Dataset), Error> {
    if purpose != Purpose::Infer {
        return Err(Error::input("new vertices have neither labels nor a split: only outputs are computed of them"));
    }
    let new = dataset::load(folder, pool)?;
    let extended = dataset.extended(&new).map_err(|errors| {
        let lines: Vec<String> = errors.0.iter().map(|line| format!("\n  {line}")).collect();
        let (folder, graph) = (folder.display(), dataset.folder.display());
        Error::input(format!("the data in `{folder}` cannot be added to the graph in `{graph}`:{}", lines.concat()))
    })?;
    let Extended { dataset: graph, vertices, added } = extended;
    Ok((Asked { new, vertices, added }, graph))
}

impl Asked {
    /// The number of new vertices of a type of the model.
    fn added_of(&self, flow: &Dataflow, vertex: VertexType, dataset: &Dataset) -> usize {
        let of = dataset.vertex_type(&flow.vertex_types[vertex.index()].dataset_name);
        // Types that were listed for the model are behind those of the graph.
        of.and_then(|of| self.added.get(of)).copied().unwrap_or(0)
    }

    /// By vertex type of the model: whether each of its vertices is asked about.
    fn ends(&self, flow: &Dataflow, dataset: &Dataset) -> Vec<Vec<bool>> {
        let marks = |vertex: &VertexTypeDecl| {
            let Some(of) = dataset.vertex_type(&vertex.dataset_name) else { return vec![] };
            let mut asked = vec![false; dataset.vertex_types[of].count];
            self.vertices.get(of).into_iter().flatten().for_each(|&vertex| asked[vertex as usize] = true);
            asked
        };
        flow.vertex_types.iter().map(marks).collect()
    }

    /// By output of vertices: the rows that are asked about.
    fn rows(self, flow: &Dataflow, dataset: &Dataset) -> BTreeMap<String, Vec<u32>> {
        let rows = |output: &hgnnc_ir::Output| {
            let (OutputKind::Result(name), Space::Vertices(ty)) = (&output.kind, flow.ty(output.value).space) else {
                return None;
            };
            // New edges follow those of the graph.
            if let Some(relation) = relation_of_rows(flow, ty) {
                let all = dataset.relations[dataset.relation(relation)?].num_edges();
                let new = self.new.relation(relation).map_or(0, |of| self.new.relations[of].num_edges());
                return Some((name.clone(), ((all - new) as u32..all as u32).collect()));
            }
            let of = dataset.vertex_type(&flow.vertex_types[ty.index()].dataset_name)?;
            Some((name.clone(), self.vertices.get(of)?.clone()))
        };
        flow.outputs.iter().filter_map(rows).collect()
    }
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
