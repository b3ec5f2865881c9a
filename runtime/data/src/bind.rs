//! Binds a dataset to a compiled model: the data that its programs run on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use hgnnc_dataset::{Dataset, Features, LabelData, LabelValues, Step};
use hgnnc_executable::Executable;
use hgnnc_graph::Adjacency;
use hgnnc_graph::{
    EdgeList, GraphCache, GraphPart, MetapathOptions, NO_ORIGINAL, Origin, RelationOptions, SemanticGraph,
    SemanticGraphs, SgbError,
};
use hgnnc_ir::dataflow::{Binding, Dataflow, GraphDecl, InputDecl, KeptInEdges, Matrix, PatternDecl, SelfLoops};
use hgnnc_ir::training::{self, Fanout, MiniBatch, Training};
use hgnnc_ir::types::{DType, Graph, Layout, Space, VertexType};
use hgnnc_ir::{Op, PathDecl, PathRows, VertexRows};

use crate::bound::{BoundData, GroundTruth, InputData, SamplingInputs, Shuffle, Target, Topology, WalkStep};
use crate::candidates::Candidates;
use crate::error::{ExecError, Result};
use crate::link_walks::{self, LinkWalks};
use crate::own::Own;
use crate::past::{Builders, Past, Source};
use crate::stacks;

/// Options of [`bind`] for a model and a dataset.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BindOptions {
    /// Name of the split; by default the model's own, or the first of the trained vertex type.
    pub split: Option<String>,
    /// Most bytes of one semantic graph.
    pub graph_budget: Option<u64>,
    /// Caches metapath graphs beside the dataset, in files of at most this many bytes in total, and reads cached ones.
    pub graph_cache: Option<u64>,
    /// Requires neither labels nor a split: only outputs are computed.
    pub outputs_only: bool,
    /// Does not materialize the graphs of metapaths that could be factored, nor those of their hops: the compiler plans
    /// which ones it needs, and [`materialize`](crate::materialize) builds them.
    pub defer_metapaths: bool,
    /// Reads the edges of this rank's vertices only, where the rest of a relation has no use: data for
    /// [`divide`](crate::ranks::divide), not for programs of one process.
    pub own: Option<Own>,
}

/// Builds the semantic graphs of a model and collects its inputs, labels and split.
///
/// # Errors
/// A vertex type, relation, label or split that the dataset does not have, features of another width or storage,
/// or a semantic graph that cannot be built.
pub fn bind(executable: &Executable, dataset: &Dataset, options: &BindOptions) -> Result<BoundData> {
    let flow = &executable.infer;
    let mut binder = Binder::new(flow, dataset, options)?;
    let training = executable.training.as_ref().filter(|_| !options.outputs_only);
    // Label and split errors are reported before graphs are built.
    let held_out = training.map_or(Ok(None), |training| binder.held_out(training))?;
    let started = Instant::now();
    let past = Past::new(flow, &binder.relations, dataset)?;
    let builders = Builders::new(dataset, past.as_ref(), options);
    binder.link_walks = link_walks::of_model(&binder, &builders)?;
    binder.build_graphs(&builders, executable.training.as_ref())?;
    let batch = executable.training.as_ref().and_then(|training| training.batch.as_ref());
    let drawn = match batch {
        Some(batch) if !options.outputs_only => binder.drawn(&builders, batch)?,
        Some(_) | None => SamplingInputs::default(),
    };
    let drawn = SamplingInputs { links: std::mem::take(&mut binder.link_walks), ..drawn };
    let sgb_s = started.elapsed().as_secs_f64();
    binder.read_train_labels(executable.training.as_ref().and_then(|training| training.split.as_deref()))?;
    let mut data = BoundData {
        dataset: dataset.name.clone(),
        num_vertices: binder.types.iter().map(|&t| dataset.vertex_types[t].count).collect(),
        sgb_s,
        drawn,
        left_out: binder.left_out(&builders),
        ..BoundData::default()
    };
    for decl in &flow.patterns {
        data.patterns.push(binder.pattern(decl)?);
    }
    let own = executable.training.as_ref().and_then(|training| training.split.as_deref());
    for decl in &flow.inputs {
        data.inputs.push(binder.input(decl, own)?);
    }
    let trained = training.map_or(&[][..], |training| &training.trained);
    for trained in trained {
        let truth = match &trained.target {
            training::Target::Vertices { vertex, label } => {
                let labels = Some(binder.target(*vertex, label)?);
                let split = binder.split(*vertex, own)?;
                binder.check_labelled(*vertex, label, split)?;
                let parts = split.map(|split| &dataset.splits[split]);
                let parts = parts.map(|split| [split.train.clone(), split.val.clone(), split.test.clone()]);
                GroundTruth { vertex: Some(*vertex), labels, parts: parts.unwrap_or_default() }
            }
            training::Target::Links(target) => {
                data.held_out = held_out.clone().unwrap_or_default();
                let links = target.graphs.iter().map(|graph| match data.drawn.links.get(graph.index()) {
                    Some(Some(walks)) => walks.len(),
                    _ => binder.graphs[graph.index()].len(),
                });
                let links = links.sum();
                let num = |part: &[Vec<(u32, u32)>]| part.iter().map(Vec::len).sum();
                let nums: [usize; 3] = [links, num(&data.held_out[0]), num(&data.held_out[1])];
                if nums.iter().any(|&num| num >= u32::MAX as usize) {
                    return Err(ExecError::Unsupported("there are 2^32 links or more to learn".into()));
                }
                GroundTruth { vertex: None, labels: None, parts: nums.map(|num| (0..num as u32).collect()) }
            }
        };
        data.truths.push(truth);
    }
    let candidates: Vec<_> = flow.graphs.iter().map(|decl| binder.candidates(decl)).collect();
    let named = binder.graphs.into_iter().zip(&flow.graphs).zip(candidates);
    let topology = |((edges, decl), candidates): ((Edges, &GraphDecl), _)| Topology {
        candidates,
        ..edges.into_topology(&decl.name)
    };
    data.graphs = named.map(topology).collect();
    data.origins = binder.origins;
    for (graph, decl) in data.graphs.iter_mut().zip(&flow.graphs) {
        graph.shuffle = decl.shuffle.map(|permutations| Shuffle { vertex: decl.dst, permutations });
    }
    data.shuffle(0, 0);
    for (graph, part) in data.graphs.iter_mut().zip(binder.parts) {
        graph.part = part.map(Arc::new);
    }
    for (graph, pairs) in binder.deferred {
        data.graphs[graph].deferred = Some(pairs);
    }
    stacks::derive(flow, &mut data.num_vertices, &mut data.graphs)?;
    Ok(data)
}

/// The arrays of a semantic graph, shared and not copied.
pub(crate) fn topology_of(graph: SemanticGraph) -> Topology {
    let SemanticGraph { name, num_src, num_dst, csc, csr, .. } = graph;
    Topology { name, num_src, num_dst, csc, csr, ..Topology::default() }
}

/// A metapath as steps over relations of the dataset.
pub(crate) fn steps_of(binder: &Binder<'_>, decl: &GraphDecl) -> Vec<Step> {
    let step =
        |s: &hgnnc_ir::dataflow::Step| Step { relation: binder.relations[s.relation as usize], reverse: s.reverse };
    decl.steps.iter().map(step).collect()
}

/// The edges of a semantic graph.
pub(crate) enum Edges {
    Graph(SemanticGraph),
    /// See [`Topology::listed`].
    List(EdgeList),
}

impl Edges {
    fn len(&self) -> usize {
        match self {
            Edges::Graph(graph) => graph.num_edges(),
            Edges::List(edges) => edges.src.len(),
        }
    }

    /// Weight of each edge. Edges without weights in the dataset have weight 1, in programs and in samplers.
    fn weights(&self) -> Vec<f32> {
        let weight = match self {
            Edges::Graph(graph) => &graph.weight,
            Edges::List(edges) => &edges.weight,
        };
        weight.clone().unwrap_or_else(|| vec![1.0; self.len()])
    }

    fn counts(&self) -> Vec<f32> {
        match self {
            Edges::Graph(graph) => edge_counts(graph),
            Edges::List(edges) => vec![1.0; edges.src.len()],
        }
    }

    /// Source of each edge.
    pub fn sources(&self) -> &[u32] {
        match self {
            Edges::Graph(graph) => &graph.csc.indices,
            Edges::List(edges) => &edges.src,
        }
    }

    /// Destination of each edge.
    pub fn destinations(&self) -> Vec<u32> {
        match self {
            Edges::Graph(graph) => {
                let rows = graph.csc.indptr.windows(2).zip(0..);
                rows.flat_map(|(row, vertex)| (row[0]..row[1]).map(move |_| vertex)).collect()
            }
            Edges::List(edges) => edges.dst.clone(),
        }
    }

    /// Position of each edge in the file of its relation; `None` for a metapath.
    pub fn original(&self) -> Option<&Vec<u32>> {
        match self {
            Edges::Graph(graph) => graph.original.as_ref(),
            Edges::List(edges) => Some(&edges.original),
        }
    }

    /// The arrays, shared and not copied.
    fn into_topology(self, name: &str) -> Topology {
        let name = name.to_owned();
        match self {
            Edges::Graph(graph) => Topology { name, ..topology_of(graph) },
            Edges::List(EdgeList { num_src, num_dst, src, dst, .. }) => {
                let csc = Adjacency { indices: src.into(), ..Adjacency::default() };
                Topology { name, num_src, num_dst, csc, listed: Some(dst), ..Topology::default() }
            }
        }
    }
}

/// The number of paths of each edge.
pub(crate) fn edge_counts(graph: &SemanticGraph) -> Vec<f32> {
    graph.counts.clone().unwrap_or_else(|| vec![1.0; graph.num_edges()])
}

/// A builder of semantic graphs, with the metapath cache if that is enabled.
pub(crate) fn graph_builder<'a>(dataset: &'a Dataset, options: &BindOptions) -> SemanticGraphs<'a> {
    let cache = options.graph_cache.and_then(|limit| GraphCache::beside(dataset, limit));
    SemanticGraphs::new(dataset).with_cache(cache)
}

pub(crate) struct Binder<'a> {
    pub(crate) flow: &'a Dataflow,
    pub(crate) dataset: &'a Dataset,
    pub(crate) options: &'a BindOptions,
    /// Dataset vertex type of each vertex type of the model.
    pub(crate) types: Vec<usize>,
    /// Dataset relation of each relation of the model.
    pub(crate) relations: Vec<usize>,
    pub(crate) graphs: Vec<Edges>,
    /// By graph of which some edges were read: the rest. Shorter than the graphs if the last ones were read whole.
    parts: Vec<Option<GraphPart>>,
    /// Origin of each metapath graph.
    origins: Vec<Option<Origin>>,
    /// Graphs whose edges are not materialized, with their edge counts.
    deferred: Vec<(usize, u64)>,
    /// By graph, the walks that draw its links, as in [`SamplingInputs::links`].
    link_walks: Vec<Option<Arc<LinkWalks>>>,
    /// The labels that are inputs, by vertex type and name: sparse rows, 0 outside of the training part.
    train_labels: HashMap<(VertexType, String), Features>,
}

impl<'a> Binder<'a> {
    /// Resolves the vertex types and relations of a model in a dataset.
    pub fn new(flow: &'a Dataflow, dataset: &'a Dataset, options: &'a BindOptions) -> Result<Self> {
        let mut binder = Self {
            flow,
            dataset,
            options,
            types: vec![],
            relations: vec![],
            graphs: vec![],
            parts: vec![],
            origins: vec![],
            deferred: vec![],
            link_walks: vec![],
            train_labels: HashMap::new(),
        };
        binder.names()?;
        Ok(binder)
    }
}

/// The error of a name that a dataset does not have.
pub(crate) fn missing(dataset: &Dataset, what: &str, name: &str, known: impl Iterator<Item = String>) -> ExecError {
    let known: Vec<String> = known.map(|k| format!("`{k}`")).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    ExecError::Unsupported(format!("the dataset `{}` has no {what} `{name}`; it has {known}", dataset.name))
}

impl Binder<'_> {
    fn missing(&self, what: &str, name: &str, known: impl Iterator<Item = String>) -> ExecError {
        missing(self.dataset, what, name, known)
    }

    /// The rows that can take the place of either end of links between rows as of cutoffs; `None` for other graphs.
    fn candidates(&self, decl: &GraphDecl) -> Option<[Candidates; 2]> {
        let [step] = decl.steps[..] else { return None };
        let of_links =
            |path: &&PathDecl| matches!(path.rows, PathRows::Links { .. }) && path.relations.contains(&step.relation);
        self.flow.paths.iter().find(of_links)?;
        let of_end = |rows: VertexType| {
            let mut paths = self.flow.paths.iter().filter(|path| path.vertex == rows);
            let vertex = paths.find_map(|path| path.cutoffs_of(self.flow))?;
            let data = |vertex: VertexType| &self.dataset.vertex_types[self.types[vertex.index()]];
            Some(Candidates::as_of_cutoffs(data(rows).time.as_ref()?, data(vertex).count))
        };
        Some([of_end(decl.src)?, of_end(decl.dst)?])
    }

    fn names(&mut self) -> Result<()> {
        let dataset = self.dataset;
        for decl in self.flow.vertex_types.iter().filter(|decl| decl.rows == VertexRows::Dataset) {
            let found = dataset.vertex_type(&decl.dataset_name).ok_or_else(|| {
                self.missing("vertex type", &decl.dataset_name, dataset.vertex_types.iter().map(|v| v.name.clone()))
            })?;
            self.types.push(found);
        }
        let names = dataset.relations.iter().enumerate().map(|(position, relation)| (&*relation.name, position));
        let known: HashMap<&str, usize> = names.collect();
        for decl in &self.flow.relations {
            let found = known.get(decl.dataset_name.as_str()).copied().ok_or_else(|| {
                self.missing("relation", &decl.dataset_name, dataset.relations.iter().map(|r| r.name.clone()))
            })?;
            let relation = &dataset.relations[found];
            let name = |t: usize| dataset.vertex_types[t].name.as_str();
            let expected = (self.types[decl.src.index()], self.types[decl.dst.index()]);
            if (relation.src, relation.dst) != expected {
                return Err(ExecError::Shape {
                    what: format!("the relation `{}`", relation.name),
                    found: format!("`{}` -> `{}`", name(relation.src), name(relation.dst)),
                    expected: format!("`{}` -> `{}`", name(expected.0), name(expected.1)),
                });
            }
            self.relations.push(found);
        }
        Ok(())
    }

    /// By graph: the edges of a relation of the dataset that a cutoff leaves out. Those of path instances and of rows as of
    /// cutoffs are listed without them.
    fn left_out(&self, builders: &Builders<'_>) -> Vec<Option<u64>> {
        let listed = |decl: &GraphDecl| {
            let mut relations = self.flow.paths.iter().flat_map(|path| &path.relations);
            relations.any(|relation| decl.steps.iter().any(|step| step.relation == *relation))
        };
        let of = |decl: &GraphDecl| builders.of(self, decl).left_out(&self.dataset.relations);
        self.flow.graphs.iter().map(|decl| if listed(decl) { None } else { of(decl) }).collect()
    }

    fn build_graphs(&mut self, builders: &Builders<'_>, training: Option<&Training>) -> Result<()> {
        // Graphs of stacks are made of these.
        let own = self.flow.graphs.iter().take_while(|decl| decl.derived.is_none()).count();
        let deferred: Vec<Option<u64>> = (0..own).map(|index| self.deferred(builders, index)).collect::<Result<_>>()?;
        let listed = self.listed(training);
        // Of one semantic graph there are many positions of in-edges, which stand one behind the other.
        let mut last: Option<(GraphDecl, SemanticGraph)> = None;
        for ((index, decl), deferred) in self.flow.graphs.iter().enumerate().zip(deferred) {
            if let Some(pairs) = deferred {
                let ends = [decl.src, decl.dst].map(|end| self.dataset.vertex_types[self.types[end.index()]].count);
                let graph = SemanticGraph::without_edges(decl.name.clone(), ends[0], ends[1]);
                self.graphs.push(Edges::Graph(graph));
                self.deferred.push((index, pairs));
                self.origins.push(None);
                continue;
            }
            let source = builders.of(self, decl);
            if listed[index]
                && let [step] = source.steps[..]
            {
                let mut edges = source.builder.edges(step).map_err(|error| failed(decl, error))?;
                source.restore(&mut edges.original);
                self.graphs.push(Edges::List(edges));
                self.origins.push(None);
                continue;
            }
            if let Some(KeptInEdges { at_most, position: Some(position) }) = decl.kept {
                let kept = Some(KeptInEdges { at_most, position: None });
                let whole = GraphDecl { name: String::new(), kept, ..decl.clone() };
                let graph = match last.take() {
                    Some((of, graph)) if of == whole => graph,
                    _ => self.build(builders, &whole)?.0,
                };
                self.graphs.push(Edges::Graph(graph.clone().in_edge(position)));
                self.origins.push(None);
                last = Some((whole, graph));
                continue;
            }
            if let Some(own) = self.own_ends(training, index) {
                let (graph, part) = self.build_part(&source, decl, &own)?;
                self.graphs.push(Edges::Graph(graph));
                self.parts.resize_with(index, || None);
                self.parts.push(Some(part));
                self.origins.push(None);
                continue;
            }
            let (graph, origin) = self.build(builders, decl)?;
            self.graphs.push(Edges::Graph(graph));
            self.origins.push(origin);
        }
        Ok(())
    }

    /// By graph: whether it is only read as a member of stacks, and has fewer edges than vertices.
    fn listed(&self, training: Option<&Training>) -> Vec<bool> {
        let flow = self.flow;
        let mut listed = vec![false; flow.graphs.len()];
        // Batches are sampled along the members, and links are drawn from them.
        match training {
            Some(training) if training.batch.is_some() || training.links().is_some() => return listed,
            _ => {}
        }
        for member in flow.stacks.iter().flat_map(|stack| &stack.members) {
            let decl = &flow.graphs[member.index()];
            let vertices: usize =
                [decl.src, decl.dst].map(|end| self.dataset.vertex_types[self.types[end.index()]].count).iter().sum();
            listed[member.index()] = match steps_of(self, decl)[..] {
                [step] => {
                    decl.self_loops == SelfLoops::Kept && self.dataset.relations[step.relation].src_ids.len() < vertices
                }
                _ => false,
            };
        }
        let mut read = |graph: Graph| listed[graph.index()] = false;
        for data in &flow.values {
            data.op.graph().into_iter().for_each(&mut read);
            let counted = if let Op::Count(space) = data.op { space } else { Space::Unit };
            for space in [data.ty.space, counted] {
                if let Space::Edges(graph) | Space::Endpoints(graph, _) = space {
                    read(graph);
                }
            }
        }
        flow.metapaths.iter().flat_map(|path| &path.hops).copied().for_each(&mut read);
        listed
    }

    fn metapath_options(&self, decl: &GraphDecl) -> MetapathOptions {
        let usual = MetapathOptions {
            counted: decl.counted,
            self_loops: decl.self_loops == SelfLoops::Added,
            ..MetapathOptions::default()
        };
        let memory_budget = self.options.graph_budget.unwrap_or(usual.memory_budget);
        MetapathOptions { memory_budget, ..usual }
    }

    /// Number of edges of a graph that is not materialized yet; `None` for others. Links of a metapath never are: walks draw
    /// as many in an epoch.
    fn deferred(&self, builders: &Builders<'_>, index: usize) -> Result<Option<u64>> {
        if self.flow.graphs[index].is_walked() {
            let walks = self.link_walks.get(index).and_then(Option::as_ref);
            return Ok(Some(walks.map_or(0, |walks| walks.len() as u64)));
        }
        let graph = Graph::new(index);
        let path = self.flow.metapaths.iter().find(|path| path.of == graph);
        let is_hop = self.flow.metapaths.iter().any(|path| path.hops.contains(&graph));
        if !self.options.defer_metapaths || path.is_none() && !is_hop {
            return Ok(None);
        }
        // Path counts are weights of linear sums, which are factored without them.
        let is_data =
            |decl: &InputDecl| decl.ty.space == Space::Edges(graph) && !matches!(decl.binding, Binding::EdgeCount(_));
        // Graphs of stacks are made of their members' edges.
        let is_member = self.flow.stacks.iter().any(|stack| stack.members.contains(&graph));
        if is_member || self.flow.inputs.iter().any(is_data) {
            return Ok(None);
        }
        let Source { dataset, builder, steps, .. } = builders.of(self, &self.flow.graphs[index]);
        let count = match steps[..] {
            [step] => Ok(Some(dataset.relations[step.relation].src_ids.len() as u64)),
            _ if is_hop => builder.pairs(&steps).map(Some),
            _ if path.is_some_and(|path| !path.once) => builder.estimate_pairs(&steps).map(Some),
            _ => builder.middle(&steps).map(|found| found.map(|middle| middle.pairs)),
        };
        count.map_err(|error| ExecError::Unsupported(error.to_string()))
    }

    /// Edge weights and walk steps that the fan-outs of mini-batches need.
    fn drawn(&self, builders: &Builders<'_>, batch: &MiniBatch) -> Result<SamplingInputs> {
        let asks =
            |graph: usize, what: fn(&Fanout) -> bool| batch.fanouts.iter().any(|hop| hop.get(graph).is_some_and(what));
        let (mut drawn, mut known) = (SamplingInputs::default(), vec![]);
        for (index, (decl, edges)) in self.flow.graphs.iter().zip(&self.graphs).enumerate() {
            let weighted = asks(index, |fanout| matches!(fanout, Fanout::Weighted(_)));
            let latest = asks(index, |fanout| matches!(fanout, Fanout::Latest(_)));
            drawn.weights.push(match (weighted, latest) {
                (_, true) => Some(self.recency(decl, edges)?),
                (true, false) => Some(edges.weights()),
                (false, false) => None,
            });
            let mut path = vec![];
            let walked = asks(index, |fanout| matches!(fanout, Fanout::Walks { .. }));
            let source = builders.of(self, decl);
            for (step, found) in decl.steps.iter().zip(&source.steps).rev().filter(|_| walked) {
                let step = (*step, decl.past);
                let position = known.iter().position(|other| *other == step);
                path.push(position.unwrap_or(known.len()));
                if position.is_none() {
                    known.push(step);
                    drawn.steps.push(self.drawn_step(source.builder, step.0, *found)?);
                }
            }
            drawn.paths.push(walked.then_some(path));
        }
        Ok(drawn)
    }

    fn drawn_step(
        &self,
        builder: &SemanticGraphs<'_>,
        step: hgnnc_ir::dataflow::Step,
        found: Step,
    ) -> Result<WalkStep> {
        let relation = &self.flow.relations[step.relation as usize];
        let (src, dst) = if step.reverse { (relation.dst, relation.src) } else { (relation.src, relation.dst) };
        let options = RelationOptions { reverse: step.reverse, ..RelationOptions::default() };
        let graph = builder
            .relation(found.relation, options)
            .map_err(|error| ExecError::Unsupported(format!("walks along `{}`: {error}", relation.name)))?;
        Ok(WalkStep { name: relation.name.clone(), src, dst, csc: topology_of(graph).csc })
    }

    /// Builds a graph; for a metapath also returns its origin.
    pub fn build(&self, builders: &Builders<'_>, decl: &GraphDecl) -> Result<(SemanticGraph, Option<Origin>)> {
        let source = builders.of(self, decl);
        let (mut graph, origin) = self.build_whole(&source, decl)?;
        source.restore(graph.original.as_deref_mut().unwrap_or_default());
        if decl.self_loops == SelfLoops::Removed {
            graph = graph.without_self_loops();
        }
        if let Some(kept) = decl.kept {
            graph = graph.at_most(kept.at_most);
            if let Some(position) = kept.position {
                graph = graph.in_edge(position);
            }
        }
        Ok((graph, origin))
    }

    /// Builds a graph with all self loops of its relation or metapath.
    fn build_whole(&self, source: &Source<'_, '_>, decl: &GraphDecl) -> Result<(SemanticGraph, Option<Origin>)> {
        let failed = |error: SgbError| failed(decl, error);
        let Source { builder, steps, .. } = source;
        match steps[..] {
            [] => {
                let count = self.dataset.vertex_types[self.types[decl.dst.index()]].count;
                let ids: Vec<u32> = (0..count as u32).collect();
                SemanticGraph::from_edges(decl.name.clone(), count, count, &ids, &ids)
                    .map_err(|e| ExecError::Unsupported(format!("semantic graph `{}`: {e}", decl.name)))
                    .map(|graph| (graph, None))
            }
            [step] => {
                let options = RelationOptions {
                    reverse: step.reverse,
                    self_loops: decl.self_loops == SelfLoops::Added,
                    ..RelationOptions::default()
                };
                builder.relation(step.relation, options).map_err(failed).map(|graph| (graph, None))
            }
            _ => {
                let built = builder.metapath_from(&decl.name, steps, self.metapath_options(decl)).map_err(failed);
                built.map(|(graph, origin)| (graph, Some(origin)))
            }
        }
    }

    /// Makes rows of the labels that are inputs, of the split that is asked for or the model's own.
    fn read_train_labels(&mut self, own: Option<&str>) -> Result<()> {
        for input in &self.flow.inputs {
            let Binding::Features(vertex, Matrix::TrainLabels(name)) = &input.binding else { continue };
            let of = self.types[vertex.index()];
            let label = self.label(*vertex, name)?;
            let split = self.split(*vertex, own)?.ok_or_else(|| {
                let of = &self.dataset.vertex_types[of].name;
                ExecError::Unsupported(format!(
                    "the model reads `{name}` of `{of}` in the training part of a split, and the dataset `{}` has no split \
                     of `{of}`",
                    self.dataset.name
                ))
            })?;
            let rows = label.rows_of(&self.dataset.splits[split].train, self.dataset.vertex_types[of].count);
            self.train_labels.insert((*vertex, name.clone()), Features::Sparse(rows));
        }
        Ok(())
    }

    /// A matrix of a vertex type.
    fn features(&self, vertex: VertexType, matrix: &Matrix) -> Result<&Features> {
        let data = &self.dataset.vertex_types[self.types[vertex.index()]];
        let (found, missing) = match matrix {
            Matrix::Features => (data.features_of(None), "no features".to_owned()),
            Matrix::Field(field) => (data.features_of(Some(field)), format!("no features `{field}`")),
            Matrix::TrainLabels(name) => {
                (self.train_labels.get(&(vertex, name.clone())), format!("no label `{name}` as an input"))
            }
        };
        found.ok_or_else(|| ExecError::Shape {
            what: format!("the vertex type `{}` of the dataset", data.name),
            found: missing,
            expected: "some".into(),
        })
    }

    fn pattern(&self, decl: &PatternDecl) -> Result<Topology> {
        let columns = decl.columns;
        let name = &self.flow.vertex_types[decl.vertex.index()].name;
        match self.features(decl.vertex, &decl.matrix)? {
            Features::Sparse(x) if x.dim == columns => {
                let rows = x.indptr.len().saturating_sub(1);
                Topology::from_csc(name, columns, rows, x.indptr.clone(), x.indices.clone())
            }
            other => Err(ExecError::Shape {
                what: format!("the feature matrix of `{name}`"),
                found: describe(other),
                expected: format!("{columns} sparse columns"),
            }),
        }
    }

    fn input(&self, decl: &InputDecl, split: Option<&str>) -> Result<InputData> {
        if let Some(members) = stacks::of_members(self.flow, decl) {
            let mut all = vec![];
            for member in &members {
                match self.input(member, split)? {
                    InputData::Numbers(numbers) => all.extend_from_slice(&numbers),
                    other => return Ok(other),
                }
            }
            return Ok(InputData::Numbers(all.into()));
        }
        Ok(match &decl.binding {
            Binding::Label(..) | Binding::TrainMask(_) if self.options.outputs_only => InputData::Missing,
            Binding::Features(vertex, matrix) => match (self.features(*vertex, matrix)?, decl.ty.layout) {
                (Features::Sparse(x), Layout::Sparse(_)) => InputData::Numbers(x.data.clone()),
                (Features::Dense(x), Layout::Dense) => InputData::Numbers(x.rows.clone()),
                (Features::Sparse(x), Layout::Dense) => {
                    let rows = x.indptr.len().saturating_sub(1);
                    let mut dense = vec![0.0; rows * x.dim];
                    for row in 0..rows {
                        let (columns, values) = x.row(row);
                        for (&c, &value) in columns.iter().zip(values) {
                            dense[row * x.dim + c as usize] = value;
                        }
                    }
                    InputData::Numbers(dense.into())
                }
                (found @ Features::Dense(_), Layout::Sparse(_)) => {
                    return Err(ExecError::Shape {
                        what: format!("the input `{}`", decl.name),
                        found: describe(found),
                        expected: "sparse columns".into(),
                    });
                }
            },
            Binding::Label(vertex, label) => match self.target(*vertex, label)? {
                Target::Classes(classes) if decl.ty.dtype == DType::I32 => InputData::Classes(classes),
                Target::Rows(rows) if decl.ty.dtype == DType::F32 => InputData::Numbers(rows.into()),
                Target::Classes(_) | Target::Rows(_) => {
                    return Err(ExecError::Shape {
                        what: format!("the label `{label}`"),
                        found: "another kind of label".into(),
                        expected: if decl.ty.dtype == DType::I32 { "one class per vertex" } else { "rows of numbers" }
                            .into(),
                    });
                }
            },
            Binding::TrainMask(vertex) => {
                let mut mask = vec![0.0; self.dataset.vertex_types[self.types[vertex.index()]].count];
                let split = self.split(*vertex, split)?.ok_or_else(|| {
                    ExecError::Unsupported(format!("the dataset `{}` has no split to train on", self.dataset.name))
                })?;
                for &row in &self.dataset.splits[split].train {
                    if let Some(slot) = mask.get_mut(row as usize) {
                        *slot = 1.0;
                    }
                }
                InputData::Numbers(mask.into())
            }
            Binding::EdgeWeight(graph) => InputData::Numbers(self.graphs[graph.index()].weights().into()),
            Binding::Time(vertex) => self.times(*vertex)?,
            Binding::EdgeTime(graph) => self.edge_times(*graph)?,
            Binding::EdgeCount(graph) => InputData::Numbers(self.graphs[graph.index()].counts().into()),
            Binding::EdgeFeatures(graph) => InputData::Numbers(self.edge_features(*graph, decl)?.into()),
            // Filled per mini-batch, by other programs, or from the bound graph.
            Binding::IsLink(_) | Binding::Given(_) | Binding::Precomputed(..) | Binding::EdgeRank(..) => {
                InputData::Missing
            }
            Binding::StepNumber => InputData::StepNumber,
            Binding::EpochNumber => InputData::EpochNumber,
        })
    }

    /// Feature rows in the order of the edges; zero for self loops that were added.
    fn edge_features(&self, graph: Graph, decl: &InputDecl) -> Result<Vec<f32>> {
        let step = match self.flow.graphs[graph.index()].steps[..] {
            [step] => Some(step),
            _ => None,
        };
        let features = step.and_then(|s| self.dataset.relations[self.relations[s.relation as usize]].features.as_ref());
        let original = self.graphs[graph.index()].original();
        let (Some(features), Some(original)) = (features, original) else {
            return Err(ExecError::Shape {
                what: format!("the edges of `{}`", self.flow.graphs[graph.index()].name),
                found: "no features".into(),
                expected: format!("the input `{}`", decl.name),
            });
        };
        let mut rows = vec![0.0; original.len() * features.dim];
        if features.dim > 0 {
            for (row, &from) in rows.chunks_exact_mut(features.dim).zip(original) {
                if from != NO_ORIGINAL {
                    row.copy_from_slice(features.row(from as usize));
                }
            }
        }
        Ok(rows)
    }

    fn label(&self, vertex: VertexType, name: &str) -> Result<&LabelData> {
        let of = self.types[vertex.index()];
        self.dataset.label(of, name).ok_or_else(|| {
            let known = self.dataset.labels.iter().filter(|l| l.vertex_type == of).map(|l| l.name.clone());
            self.missing("label", name, known)
        })
    }

    fn target(&self, vertex: VertexType, name: &str) -> Result<Target> {
        Ok(match &self.label(vertex, name)?.values {
            LabelValues::Single { of, .. } => Target::Classes(of.clone()),
            LabelValues::Multi { rows, .. } | LabelValues::Real { rows, .. } => Target::Rows(rows.clone()),
        })
    }

    /// Checks that every vertex of the split has this label. The dataset only guarantees some label per vertex.
    fn check_labelled(&self, vertex: VertexType, name: &str, split: Option<usize>) -> Result<()> {
        let (Some(label), Some(split)) = (self.dataset.label(self.types[vertex.index()], name), split) else {
            return Ok(());
        };
        let split = &self.dataset.splits[split];
        for (part, ids) in [("train", &split.train), ("val", &split.val), ("test", &split.test)] {
            if let Some(row) = ids.iter().find(|&&v| !label.is_labelled(v as usize)) {
                let is_it = |path: &PathDecl| path.rows == PathRows::Edges && path.vertex == vertex;
                let what = if self.flow.paths.iter().any(is_it) { "edge" } else { "vertex" };
                return Err(ExecError::Unsupported(format!(
                    "{what} {row} is in the `{part}` part of the split `{}`, but has no label `{name}`",
                    split.name
                )));
            }
        }
        Ok(())
    }

    /// Index of the split of a vertex type to use: the requested, the model's own or the first.
    pub fn split(&self, vertex: VertexType, own: Option<&str>) -> Result<Option<usize>> {
        let of = self.types[vertex.index()];
        let wanted = self.options.split.as_deref().or(own);
        let splits = || self.dataset.splits.iter().enumerate().filter(|(_, s)| s.vertex_type == of);
        match splits().find(|(_, s)| wanted.is_none_or(|w| s.name == w)) {
            Some((index, _)) => Ok(Some(index)),
            None => match wanted {
                Some(name) => Err(self.missing("split", name, splits().map(|(_, s)| s.name.clone()))),
                None => Ok(None),
            },
        }
    }
}

/// The error of a semantic graph that cannot be built.
pub(crate) fn failed(decl: &GraphDecl, error: SgbError) -> ExecError {
    failed_graph(&decl.name, error)
}

/// The error of the semantic graph of this name.
pub(crate) fn failed_graph(name: &str, error: SgbError) -> ExecError {
    match error {
        SgbError::OverBudget { .. }
        | SgbError::TooManyEdges { .. }
        | SgbError::TooManyInstances { .. }
        | SgbError::TooManyCutoffRows { .. }
        | SgbError::TooManyPeriods { .. } => ExecError::GraphTooLarge(error.to_string()),
        other => ExecError::Unsupported(format!("semantic graph `{name}`: {other}")),
    }
}

fn describe(features: &Features) -> String {
    let kind = if features.is_sparse() { "sparse" } else { "dense" };
    format!("{} {kind} columns", features.dim())
}
