//! What batches are made of: graphs to sample from, and the numbers of the whole graph.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use hgnnc_ir::artifact::{Bottom, MiniBatch, Target, Training};
use hgnnc_ir::batch::{BatchGraph, BatchInput, BatchLayout, BatchPattern};
use hgnnc_ir::dataflow::{Binding, Dataflow, GraphDecl, PatternDecl};
use hgnnc_ir::kernel::{Body, Contents, Program, Rows, Source as Operand};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::random::{bits, mask_key};
use hgnnc_ir::types::{DType, Dim, Graph, Layout, Space, Type, VertexType};
use hgnnc_sample::{Batch, BatchKey, Compiled, Edges, Fanout, GraphError, Plan, Resting, SampleGraph, Sampler};

use super::cache::FastInput;
use super::pairs::{PairRoom, PairSource, Pairs};
use super::reuse::Taken;
use crate::data::{BoundData, Incidence, InputData, Topology, transpose_into};
use crate::error::{ExecError, Result};
use crate::native::CodeMode;
use crate::raw::{Frozen, Slab};

/// Keeps the order of seeds apart from other numbers of the same seed.
const STREAM: u32 = 0x0bad_5eed;

/// An input of the whole graph.
pub(super) enum Whole {
    Numbers(Frozen),
    Classes(Vec<i32>),
    /// Counters, which the engine makes.
    Nothing,
}

/// Makes batches. Threads share it.
pub(super) struct Source {
    graph: Arc<SampleGraph<'static>>,
    plan: Plan,
    /// Vertices that draw nothing in the last hop, because batches reuse what would come of it.
    resting: Resting,
    /// The loops of samplers, where they are generated.
    code: Option<Compiled>,
    layout: BatchLayout,
    /// Names of the vertex types of the whole graph.
    types: Vec<String>,
    /// The tables of the program of a batch.
    tables: Dataflow,
    /// What its kernels do with graphs and vertices.
    uses: Uses,
    inputs: Arc<Vec<Whole>>,
    /// Row positions and columns of the sparse matrices of the whole graph.
    patterns: Arc<Vec<Incidence>>,
    seeds: Seeds,
    train: Vec<u32>,
    size: usize,
    /// Inputs whose rows come from a fast memory, by number.
    fast: Vec<(usize, FastInput)>,
}

/// What the loss of a batch is of.
enum Seeds {
    /// Vertices of a type.
    Vertices(VertexType),
    /// Links, whose ends are the vertices that batches begin with.
    Links(PairSource),
    /// There is none: others say which vertices values are computed for.
    Others,
}

/// What a thread that makes batches has of its own.
pub(super) struct Maker<'s> {
    sampler: Sampler<'s>,
    pairs: PairRoom,
}

/// A batch that is ready for the engine.
#[derive(Default)]
pub(super) struct Made {
    /// Which one it is.
    pub key: Option<BatchKey>,
    pub seeds: usize,
    pub sampled: Batch,
    /// Pairs to score, by graph of links.
    pairs: Vec<Pairs>,
    /// Vertices whose values are taken from a table, by [`BatchLayout::reused`].
    pub taken: Vec<Taken>,
    /// Sampled edges.
    pub edges: usize,
    pub data: BoundData,
    pub inputs: Vec<Slab>,
    /// When it was begun to be sampled, and to be made of what was sampled.
    pub began: [Option<Instant>; 2],
    /// Seconds of sampling, of making graphs of what was sampled, and of copying rows.
    pub seconds: [f64; 3],
}

impl Source {
    /// Of a program of batches and the data of the whole graph, whose inputs are `inputs`.
    pub fn new(
        program: &Program,
        layout: &BatchLayout,
        batch: &MiniBatch,
        data: &BoundData,
        inputs: Vec<Whole>,
        (tables, training): (&Dataflow, &Training),
        code: CodeMode,
    ) -> Result<Self> {
        let unsupported = |error: GraphError| ExecError::Unsupported(error.to_string());
        let num_graphs = tables.graphs.len();
        let fanout = |hop: usize, graph: usize| {
            let used = layout.deepest(Graph::new(graph)).is_some_and(|deepest| deepest >= hop);
            match batch.fanouts.get(hop) {
                _ if !used => Fanout::AtMost(0),
                Some(fanouts) => fanouts[graph],
                None => Fanout::All,
            }
        };
        let fanouts = (0..layout.hops).map(|hop| (0..num_graphs).map(|graph| fanout(hop, graph)).collect()).collect();
        let plan = Plan { fanouts };
        let walked_only = |graph: usize| {
            let drawn = plan.fanouts.iter().map(|fanouts| fanouts[graph]).filter(|f| *f != Fanout::AtMost(0));
            drawn.clone().count() > 0 && drawn.clone().all(|fanout| matches!(fanout, Fanout::Walks { .. }))
        };
        let of_graph = |(index, (decl, graph)): (usize, (&GraphDecl, &Topology))| Edges {
            weights: data.drawn.weights.get(index).and_then(|weights| weights.clone().map(Cow::Owned)),
            ..edges(
                &decl.name,
                (decl.src.index(), decl.dst.index()),
                (&graph.incoming, graph.num_dst),
                // Pairs are drawn otherwise.
                decl.links || walked_only(index),
            )
        };
        let all = tables.graphs.iter().zip(&data.graphs).enumerate().map(of_graph).collect();
        let steps = data.drawn.steps.iter().map(|step| {
            let ends = (step.src.index(), step.dst.index());
            edges(&step.name, ends, (&step.incoming, data.num_vertices[step.dst.index()]), false)
        });
        let resting = Resting::none(data.num_vertices.len());
        let graph = SampleGraph::new(data.num_vertices.clone(), all)
            .and_then(|graph| graph.with_paths(steps.collect(), data.drawn.paths.clone()))
            .map_err(unsupported)?;
        // Where no code can be generated, samplers run in Rust.
        let code = match code {
            CodeMode::Interpreted => None,
            CodeMode::Auto | CodeMode::Native => Compiled::new(&graph, plan.clone()).ok(),
        };
        let patterns = data.patterns.iter().map(|pattern| pattern.incoming.clone()).collect();
        Ok(Self {
            graph: Arc::new(graph),
            plan,
            resting,
            code,
            layout: layout.clone(),
            types: tables.vertex_types.iter().map(|vertex| vertex.name.clone()).collect(),
            tables: program.tables.clone(),
            uses: Uses::of(program, layout),
            inputs: Arc::new(inputs),
            patterns: Arc::new(patterns),
            seeds: match &training.target {
                Target::Vertices { vertex, .. } => Seeds::Vertices(*vertex),
                Target::Links(target) => Seeds::Links(PairSource::new(target, tables, &data.graphs)),
            },
            train: data.parts[0].clone(),
            size: batch.size,
            fast: vec![],
        })
    }

    /// Of values that batches reuse: on the same graph, with the fan-outs of the last hop.
    pub fn of_bottom(&self, bottom: &Bottom) -> Self {
        let used = |(graph, &fanout): (usize, &Fanout)| match bottom.layout.deepest(Graph::new(graph)) {
            Some(_) => fanout,
            None => Fanout::AtMost(0),
        };
        let last = self.plan.fanouts.last().into_iter().take(bottom.layout.hops);
        let plan = Plan { fanouts: last.map(|last| last.iter().enumerate().map(used).collect()).collect() };
        let code = self.code.as_ref().and_then(|_| Compiled::new(&self.graph, plan.clone()).ok());
        Self {
            graph: Arc::clone(&self.graph),
            plan,
            resting: Resting::default(),
            code,
            layout: bottom.layout.clone(),
            types: self.types.clone(),
            tables: bottom.kernels.tables.clone(),
            uses: Uses::of(&bottom.kernels, &bottom.layout),
            inputs: Arc::clone(&self.inputs),
            patterns: Arc::clone(&self.patterns),
            seeds: Seeds::Others,
            train: vec![],
            size: self.size,
            fast: vec![],
        }
    }

    /// Lets vertices rest from now on.
    pub fn rest(&mut self, resting: Resting) {
        self.resting = resting;
    }

    /// The vertices that rest.
    pub fn resting(&self) -> &Resting {
        &self.resting
    }

    /// How its program belongs to the whole graph.
    pub fn layout(&self) -> &BatchLayout {
        &self.layout
    }

    /// Vertices of each type of the whole graph.
    pub fn counts(&self) -> &[usize] {
        self.graph.counts()
    }

    /// Edges that the last hop draws of a vertex, of all relations; by walks, at most so many.
    pub fn drawn_of(&self, vertex_type: usize, vertex: u32) -> u64 {
        let Some(fanouts) = self.plan.fanouts.last() else { return 0 };
        let into = self.graph.relations().iter().zip(fanouts).enumerate();
        let of =
            |(r, (_, fanout)): (usize, (_, &Fanout))| u64::from(fanout.of(self.graph.in_edges(r, vertex).len() as u32));
        into.filter(|(_, (relation, _))| relation.dst_type == vertex_type).map(of).sum()
    }

    /// Gathers all rows of vertices from now on, also those that edges could read where they are: on a device with a
    /// memory of its own they are not there.
    pub fn gather_all(&mut self) {
        self.uses.direct.fill(false);
    }

    /// Takes the rows of these inputs from a fast memory where they are in it.
    pub fn keep(&mut self, inputs: Vec<(usize, FastInput)>) {
        self.fast = inputs;
    }

    /// The tables of the program of a batch, and the inputs of the whole graph.
    pub fn inputs(&self) -> (&BatchLayout, &Dataflow, &[Whole]) {
        (&self.layout, &self.tables, &self.inputs)
    }

    /// Out-edges of all vertices in the whole graph that a type of the batch is of.
    pub fn out_degrees(&self, vertex: VertexType) -> Vec<u32> {
        let vertex = self.layout.vertices[vertex.index()].vertex.index();
        let mut degrees = vec![0u32; self.graph.counts()[vertex]];
        for relation in self.graph.relations().iter().filter(|relation| relation.src_type == vertex) {
            relation.sources().iter().for_each(|&source| degrees[source as usize] += 1);
        }
        degrees
    }

    /// Number of batches of an epoch.
    pub fn num_batches(&self) -> u64 {
        self.train.len().div_ceil(self.size) as u64
    }

    /// Seeds of a batch.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// What a thread needs to make batches.
    pub fn maker(&self) -> Result<Maker<'_>> {
        let sampler = match &self.code {
            Some(code) => Sampler::compiled(&self.graph, code),
            None => Sampler::new(&self.graph, self.plan.clone()),
        };
        let sampler = sampler.map_err(|error| ExecError::Unsupported(error.to_string()))?;
        Ok(Maker { sampler, pairs: PairRoom::default() })
    }

    /// The generated loops of samplers in Cranelift IR; nothing where there are none.
    pub fn clif(&self) -> Result<String> {
        let Some(code) = &self.code else { return Ok(String::new()) };
        code.text(&self.graph, &self.types).map_err(|error| ExecError::Unsupported(error.to_string()))
    }

    /// The seeds of an epoch in their order.
    pub fn order(&self, seed: u64, epoch: u64) -> Vec<u32> {
        let key = mask_key(seed, epoch, STREAM);
        let mut order: Vec<(u32, u32)> = self.train.iter().map(|&v| (bits(key, u64::from(v)), v)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, v)| v).collect()
    }

    /// Makes a batch: a function of the seed of the run, the epoch and the number of the batch in it.
    pub fn make(&self, maker: &mut Maker<'_>, order: &[u32], key: BatchKey, made: &mut Made) -> Result<()> {
        let start = Instant::now();
        self.sample(maker, order, key, made)?;
        made.began[0] = Some(start);
        made.seconds[0] = start.elapsed().as_secs_f64();
        self.complete(made)
    }

    /// Makes a batch of what was sampled.
    pub fn complete(&self, made: &mut Made) -> Result<()> {
        let start = Instant::now();
        made.edges = made.sampled.num_edges();
        self.rows_of_inputs(made)?;
        let copied = start.elapsed().as_secs_f64();
        self.graphs(made);
        let done = start.elapsed().as_secs_f64();
        made.began[1] = Some(start);
        (made.seconds[1], made.seconds[2]) = (done - copied, copied);
        Ok(())
    }

    /// Makes a batch around seeds, a list for each vertex type.
    pub fn make_around(&self, maker: &mut Maker<'_>, seeds: &[Vec<u32>], key: BatchKey, made: &mut Made) -> Result<()> {
        let start = Instant::now();
        made.key = Some(key);
        let sampled = maker.sampler.sample(seeds, key, &mut made.sampled);
        sampled.map_err(|error| ExecError::Unsupported(error.to_string()))?;
        made.seconds[0] = start.elapsed().as_secs_f64();
        self.complete(made)
    }

    /// Samples a batch, and does nothing else of what it needs.
    pub fn sample(&self, maker: &mut Maker<'_>, order: &[u32], key: BatchKey, made: &mut Made) -> Result<()> {
        let first = (key.batch as usize * self.size).min(order.len());
        let mut seeds = vec![vec![]; self.graph.counts().len()];
        let own = &order[first..(first + self.size).min(order.len())];
        (made.key, made.seeds) = (Some(key), own.len());
        match &self.seeds {
            Seeds::Vertices(vertex) => seeds[vertex.index()] = own.to_vec(),
            Seeds::Links(source) => source.draw(own, key, &mut maker.pairs, &mut seeds, &mut made.pairs),
            Seeds::Others => {}
        }
        let sampled = maker.sampler.sample_resting(&seeds, key, &self.resting, &mut made.sampled);
        sampled.map_err(|error| ExecError::Unsupported(error.to_string()))?;
        if let Seeds::Links(source) = &self.seeds {
            source.exclude(&maker.pairs, &mut made.sampled);
        }
        Ok(())
    }

    /// Vertices of a type of the batch, by their numbers in the whole graph.
    pub fn vertices<'b>(&self, batch: &'b Batch, vertex: VertexType) -> &'b [u32] {
        let known = self.layout.vertices[vertex.index()];
        &batch.vertices[known.vertex.index()][..batch.known[known.hops][known.vertex.index()] as usize]
    }

    /// The graphs of what was sampled. The blocks of the deepest ones are taken out of the batch.
    fn graphs(&self, made: &mut Made) {
        let Made { sampled, pairs, taken, data, .. } = made;
        data.num_vertices.clear();
        let rows = |v: usize| match (self.uses.direct[v], self.layout.reused_rows(VertexType::new(v))) {
            (_, Some(reused)) => taken[reused].len(),
            (true, None) => self.graph.counts()[self.layout.vertices[v].vertex.index()],
            (false, None) => self.vertices(sampled, VertexType::new(v)).len(),
        };
        data.num_vertices.extend((0..self.layout.vertices.len()).map(rows));
        data.graphs.resize_with(self.layout.graphs.len(), Topology::default);
        let deepest = |&index: &usize| match self.layout.graphs[index] {
            BatchGraph::Sampled { graph, hops } => self.layout.deepest(graph) == Some(hops),
            BatchGraph::First { .. } | BatchGraph::Links { .. } | BatchGraph::Reused { .. } => false,
        };
        let (last, first): (Vec<usize>, Vec<usize>) = (0..self.layout.graphs.len()).partition(deepest);
        for index in first.into_iter().chain(last.iter().copied()) {
            let decl = &self.tables.graphs[index];
            let topology = &mut data.graphs[index];
            topology.name.clone_from(&decl.name);
            topology.num_src = data.num_vertices[decl.src.index()];
            topology.num_dst = data.num_vertices[decl.dst.index()];
            (topology.ends, topology.classes) = ([None, None], Default::default());
            let Incidence { indptr, other, position } = &mut topology.incoming;
            let (indptr, other) = (indptr.make_mut(), other.make_mut());
            position.clear();
            let direct = self.uses.direct[decl.src.index()];
            let known = self.layout.vertices[decl.src.index()].vertex;
            let by_id = &sampled.vertices[known.index()];
            match self.layout.graphs[index] {
                BatchGraph::Sampled { graph, .. } => {
                    let block = &mut sampled.blocks[graph.index()];
                    let edges = block.indptr[topology.num_dst] as usize;
                    if direct {
                        other.clear();
                        other.extend(block.src[..edges].iter().map(|&id| by_id[id as usize]));
                    }
                    if last.contains(&index) {
                        std::mem::swap(indptr, &mut block.indptr);
                        // Later hops have rows of this type as well, without edges.
                        indptr.truncate(topology.num_dst + 1);
                        if !direct {
                            std::mem::swap(other, &mut block.src);
                        }
                    } else {
                        indptr.clear();
                        indptr.extend_from_slice(&block.indptr[..=topology.num_dst]);
                        if !direct {
                            other.clear();
                            other.extend_from_slice(&block.src[..edges]);
                        }
                    }
                }
                BatchGraph::Links { graph } => {
                    let Some(drawn) = self.pairs_of(pairs, graph) else { continue };
                    indptr.clear();
                    indptr.extend_from_slice(&drawn.indptr);
                    other.clear();
                    match direct {
                        true => other.extend(drawn.src.iter().map(|&id| by_id[id as usize])),
                        false => other.extend_from_slice(&drawn.src),
                    }
                }
                BatchGraph::Reused { rows } => taken[rows].edges(topology.num_dst, indptr, other),
                BatchGraph::First { .. } => {
                    indptr.clear();
                    indptr.extend(0..=topology.num_dst as u64);
                    other.clear();
                    match direct {
                        true => other.extend_from_slice(&by_id[..topology.num_dst]),
                        false => other.extend(0..topology.num_dst as u32),
                    }
                }
            }
            self.transpose(index, topology);
        }
        for (index, topology) in data.patterns.iter_mut().enumerate() {
            self.transpose(self.layout.graphs.len() + index, topology);
        }
    }

    /// The pairs of a batch along a graph of links.
    fn pairs_of<'p>(&self, pairs: &'p [Pairs], graph: Graph) -> Option<&'p Pairs> {
        let Seeds::Links(source) = &self.seeds else { return None };
        pairs.get(source.position(graph)?)
    }

    fn transpose(&self, index: usize, topology: &mut Topology) {
        let Topology { incoming, outgoing, num_src, .. } = topology;
        if self.uses.outgoing[index] {
            transpose_into(&incoming.indptr, &incoming.other, *num_src, outgoing);
        } else {
            *outgoing = Incidence::default();
        }
    }

    /// The rows of patterns and inputs that belong to what was sampled.
    fn rows_of_inputs(&self, made: &mut Made) -> Result<()> {
        let Made { sampled, pairs, taken, data, inputs, .. } = made;
        data.patterns.resize_with(self.layout.patterns.len(), Topology::default);
        let patterns = self.layout.patterns.iter().zip(&self.tables.patterns);
        for (topology, (&BatchPattern { pattern, rows }, decl)) in data.patterns.iter_mut().zip(patterns) {
            let (vertices, whole) = (self.vertices(sampled, rows), &self.patterns[pattern.index()]);
            topology.name.clone_from(&self.tables.vertex_types[rows.index()].name);
            (topology.num_dst, topology.num_src) = (vertices.len(), decl.columns);
            let Incidence { indptr, other, .. } = &mut topology.incoming;
            let (indptr, other) = (indptr.make_mut(), other.make_mut());
            indptr.clear();
            indptr.push(0);
            other.clear();
            for &vertex in vertices {
                other.extend_from_slice(&whole.other[stored(whole, vertex)]);
                indptr.push(other.len() as u64);
            }
            (topology.ends, topology.classes) = ([None, None], Default::default());
        }
        data.inputs.truncate(self.layout.inputs.len());
        data.inputs.resize(self.layout.inputs.len(), InputData::Missing);
        inputs.resize_with(self.layout.inputs.len(), || Slab::zeros(0));
        for (index, from) in self.layout.inputs.iter().enumerate() {
            let ty = &self.tables.inputs[index].ty;
            let from = match *from {
                BatchInput::Whole(from) => from,
                BatchInput::Reused { rows, value } => {
                    // Filled when the values are there.
                    let len = taken[rows].len() * self.layout.reused[rows].values[value];
                    inputs[index].grow(len);
                    data.inputs[index] = InputData::Held(len);
                    continue;
                }
            };
            match &self.inputs[from.index()] {
                Whole::Numbers(numbers) => {
                    let fast = self.fast.iter().find(|fast| fast.0 == index);
                    let len = match fast {
                        Some((_, fast)) => {
                            fast.gather(numbers, self.vertices(sampled, fast.vertex), &mut inputs[index])
                        }
                        None => self.rows_of(ty, numbers, sampled, &mut inputs[index])?,
                    };
                    data.inputs[index] = InputData::Held(len);
                }
                Whole::Classes(classes) => {
                    let Space::Vertices(vertex) = ty.space else { return Err(unknown(ty)) };
                    let rows = self.vertices(sampled, vertex).iter().map(|&v| classes[v as usize]);
                    data.inputs[index] = InputData::Classes(rows.collect());
                }
                Whole::Nothing => {
                    if let (Binding::IsLink(_), Space::Edges(graph)) = (&self.tables.inputs[index].binding, ty.space)
                        && let BatchGraph::Links { graph } = self.layout.graphs[graph.index()]
                        && let Some(drawn) = self.pairs_of(pairs, graph)
                    {
                        room(&mut inputs[index], drawn.is_link.len()).copy_from_slice(&drawn.is_link);
                        data.inputs[index] = InputData::Held(drawn.is_link.len());
                    }
                }
            }
        }
        Ok(())
    }

    /// The rows of an input that belong to what was sampled, or all where they are found by their numbers in the whole
    /// graph. Number of elements.
    fn rows_of(&self, ty: &Type, numbers: &Frozen, sampled: &Batch, into: &mut Slab) -> Result<usize> {
        if let (Layout::Dense, Space::Vertices(vertex)) = (ty.layout, ty.space)
            && self.uses.direct[vertex.index()]
        {
            *into = numbers.slab();
            return Ok(numbers.len());
        }
        if let Layout::Sparse(pattern) = ty.layout {
            let BatchPattern { pattern, rows } = self.layout.patterns[pattern.index()];
            let whole = &self.patterns[pattern.index()];
            let vertices = self.vertices(sampled, rows);
            let len = vertices.iter().map(|&vertex| stored(whole, vertex).len()).sum();
            let mut rest = room(into, len);
            for &vertex in vertices {
                let row = &numbers[stored(whole, vertex)];
                let (own, others) = rest.split_at_mut(row.len());
                own.copy_from_slice(row);
                rest = others;
            }
            return Ok(len);
        }
        let fixed = |dim: &Dim| dim.fixed().unwrap_or(0);
        let width: usize = ty.dims.iter().map(fixed).product();
        let rows = match ty.space {
            Space::Vertices(vertex) => self.vertices(sampled, vertex),
            Space::Edges(graph) => match self.layout.graphs[graph.index()] {
                BatchGraph::Sampled { graph, hops } => {
                    &sampled.blocks[graph.index()].edge[..sampled.edges_up_to(graph.index(), hops)]
                }
                BatchGraph::First { .. } | BatchGraph::Links { .. } | BatchGraph::Reused { .. } => {
                    return Err(unknown(ty));
                }
            },
            Space::Unit | Space::Index(_) | Space::Ends(..) => return Err(unknown(ty)),
        };
        let into = room(into, rows.len() * width);
        for (to, &row) in into.chunks_exact_mut(width.max(1)).zip(rows) {
            to.copy_from_slice(&numbers[row as usize * width..][..width]);
        }
        Ok(rows.len() * width)
    }

    /// Data of no vertices, to make an engine with.
    pub fn empty(&self) -> Result<BoundData> {
        let graph = |name: &str| Topology::from_csc(name, 0, 0, vec![0], vec![]);
        let pattern = |decl: &PatternDecl| Topology::from_csc("", decl.columns, 0, vec![0], vec![]);
        let whole = |input: &BatchInput| match *input {
            BatchInput::Whole(input) => Some(&self.inputs[input.index()]),
            BatchInput::Reused { .. } => None,
        };
        let input = |(index, input): (usize, &BatchInput)| match whole(input) {
            None | Some(Whole::Numbers(_)) => InputData::Held(0),
            Some(Whole::Classes(_)) => InputData::Classes(vec![]),
            Some(Whole::Nothing) => match self.tables.inputs[index].binding {
                Binding::IsLink(_) => InputData::Held(0),
                _ => InputData::Missing,
            },
        };
        Ok(BoundData {
            num_vertices: vec![0; self.layout.vertices.len()],
            graphs: self.tables.graphs.iter().map(|decl| graph(&decl.name)).collect::<Result<_>>()?,
            patterns: self.tables.patterns.iter().map(pattern).collect::<Result<_>>()?,
            inputs: self.layout.inputs.iter().enumerate().map(input).collect(),
            ..BoundData::default()
        })
    }
}

/// The in-edges of a graph with so many destinations, or none of them. Samplers have them in memory of their own: they live as long as batches are
/// made.
fn edges(
    name: &str,
    (src_type, dst_type): (usize, usize),
    (incoming, num_dst): (&Incidence, usize),
    none: bool,
) -> Edges<'static> {
    let (indptr, src) = match none {
        true => (vec![0; num_dst + 1], vec![]),
        false => (incoming.indptr.to_vec(), incoming.other.to_vec()),
    };
    let name = Cow::Owned(name.to_owned());
    Edges { name, src_type, dst_type, indptr: Cow::Owned(indptr), src: Cow::Owned(src), weights: None }
}

fn unknown(ty: &Type) -> ExecError {
    ExecError::Unsupported(format!("internal error: an input of type {ty:?} has no rows in a batch"))
}

/// Where the stored elements of a row are.
fn stored(whole: &Incidence, vertex: u32) -> std::ops::Range<usize> {
    whole.indptr[vertex as usize] as usize..whole.indptr[vertex as usize + 1] as usize
}

/// The first elements of a slab, which grows where it has fewer.
fn room(slab: &mut Slab, len: usize) -> &mut [f32] {
    slab.grow(len);
    &mut slab.elements()[..len]
}

/// What the kernels of a program do with graphs and vertices.
struct Uses {
    /// Which graphs and patterns are traversed from their sources, in the order of topologies.
    outgoing: Vec<bool>,
    /// Vertex types of which edges gather rows of inputs, and nothing else is computed for them or counts them: these have
    /// the numbers that they have in the whole graph, and no rows are copied.
    direct: Vec<bool>,
}

impl Uses {
    fn of(program: &Program, layout: &BatchLayout) -> Self {
        let tables = &program.tables;
        let mut outgoing = vec![false; tables.graphs.len() + tables.patterns.len()];
        let mut direct = vec![true; tables.vertex_types.len()];
        let mut computed = |space: Space| match space {
            Space::Vertices(vertex) => direct[vertex.index()] = false,
            Space::Ends(graph, direction) => {
                let decl = &tables.graphs[graph.index()];
                direct[if direction == Direction::In { decl.dst } else { decl.src }.index()] = false;
            }
            Space::Unit | Space::Edges(_) | Space::Index(_) => {}
        };
        for decl in &program.buffers {
            let numbers = decl.ty.dtype == DType::F32 && !decl.ty.is_sparse();
            if !(numbers && matches!(decl.contents, Contents::Input(_))) {
                computed(decl.ty.space);
            }
        }
        for kernel in program.kernels() {
            match &kernel.body {
                Body::Gemm(gemm) => computed(gemm.rows),
                // Batches have no paths: their programs are made before sums go along them.
                Body::Paths(_) => {}
                Body::Traversal(traversal) => {
                    match traversal.rows {
                        Rows::Vertices(vertex) => computed(Space::Vertices(vertex)),
                        Rows::Edges(graph, direction) | Rows::Ends(graph, direction) => {
                            computed(Space::Ends(graph, direction));
                            outgoing[graph.index()] |= direction == Direction::Out;
                        }
                        Rows::Elements(pattern, direction) => {
                            outgoing[tables.graphs.len() + pattern.index()] |= direction == Direction::Out;
                        }
                        Rows::Once | Rows::Each(_) => {}
                    }
                    for operand in traversal.instrs.iter().flat_map(|instr| instr.op.operands()) {
                        if let Operand::Count(space) = operand.source {
                            computed(space);
                        }
                    }
                }
            }
        }
        layout.reused.iter().for_each(|reused| computed(Space::Vertices(reused.rows)));
        program.outputs.iter().for_each(|output| computed(output.ty.space));
        for (graph, direction) in program.ends() {
            computed(Space::Ends(graph, direction));
            outgoing[graph.index()] |= direction == Direction::Out;
        }
        tables.graphs.iter().for_each(|decl| direct[decl.dst.index()] = false);
        layout.patterns.iter().for_each(|pattern| direct[pattern.rows.index()] = false);
        for (_, known) in &layout.rows {
            let of_batch = layout.vertices.iter().position(|other| other == known);
            of_batch.into_iter().for_each(|vertex| direct[vertex] = false);
        }
        Self { outgoing, direct }
    }
}
