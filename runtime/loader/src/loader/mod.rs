//! Mini-batch loader: sampling, feature gathering and graph construction.

mod distributed;
mod graphs;
mod link_rows;
mod ranks;
mod remote_rows;
mod remote_sparse;
mod reused_rows;
mod rows;
mod shuffled;
mod sizes;
mod uses;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hgnnc_ir::EdgeShare;
use hgnnc_ir::batch::{BatchGraph, BatchInput, BatchLayout, BatchPattern};
use hgnnc_ir::dataflow::{Binding, Dataflow, PatternDecl};
use hgnnc_ir::random::{bits, mask_key};
use hgnnc_ir::training::{self, Training};
use hgnnc_ir::types::{DType, Graph, Layout, Space, Type, VertexType};
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_sample::{Batch, BatchKey, Block, Compiled, Edges, Fanout, GraphError, Plan, SampleGraph, Sampler};

use crate::historical_embeddings::{CachedVertices, HotVertices};
use crate::internal;
use crate::pairs::{PairRoom, PairSource, Pairs};
use distributed::Owners;
use hgnnc_data::buffer::{HostBuffer, SharedBuffer};
use hgnnc_data::stacks;
use hgnnc_data::{Adjacency, BoundData, InputData, Topology};
use hgnnc_data::{ExecError, Result};
use hgnnc_executable::sampler::SamplerCompiler;
use hgnnc_session::{HostRows, Rank, RowStore};
pub use ranks::OwnedRows;
use ranks::{Numbering, Share};
use remote_rows::RemoteRows;
use remote_sparse::RemoteSparse;
pub use reused_rows::ReusedRows;
use uses::Uses;

/// RNG stream of the seed vertex shuffle, separate from others of the same seed.
const STREAM: u32 = 0x0bad_5eed;

/// An input of the full graph.
#[derive(Clone)]
pub enum GraphInput {
    /// A row of numbers for each vertex or edge.
    Rows(Arc<dyn RowStore>),
    /// The same in the memory of a machine, which copies the rows of a batch itself: a batch has their numbers.
    Numbered,
    /// The stored elements of a sparse matrix. Its rows have varying lengths, and their places are those of its pattern,
    /// which is host memory.
    Sparse(SharedBuffer),
    /// A class for each vertex, -1 without one.
    Classes(Arc<[i32]>),
    /// Counters, which the engine provides.
    Nothing,
}

impl GraphInput {
    /// The numbers of an input of this type.
    pub fn of(ty: &Type, numbers: SharedBuffer) -> Self {
        match ty.layout {
            Layout::Sparse(_) => GraphInput::Sparse(numbers),
            Layout::Dense => GraphInput::Rows(Arc::new(HostRows::of_shared(&numbers, width(ty)))),
        }
    }
}

/// Elements of a row of an input.
fn width(ty: &Type) -> usize {
    ty.dims.iter().map(|dim| dim.fixed().unwrap_or(0)).product()
}

/// Prepares mini-batches. Shared by threads.
pub struct MiniBatchLoader {
    /// The in-edges to sample from: all, or those of the vertices of this process.
    graph: Arc<SampleGraph<'static>>,
    /// By relation: the number of edges of the whole graph, and in it that of the first edge of `graph`.
    of_whole: Vec<(u64, u32)>,
    plan: Plan,
    /// The first hop, where ranks share the relations to the seeds; `plan` has the others.
    first: Plan,
    /// The vertices that may have historical embeddings.
    hot: Option<HotVertices>,
    /// By vertex type: the edges that the last hop samples for these, where ranks have divided the edges.
    drawn_of_hot: Vec<HashMap<u32, u64>>,
    /// Generated sampling loops, if enabled.
    code: Option<Compiled>,
    layout: BatchLayout,
    /// Vertex type names of the full graph.
    types: Vec<String>,
    /// Tables of the mini-batch program.
    tables: Dataflow,
    /// Data requirements of its kernels.
    uses: Uses,
    /// By input of the mini-batch program.
    inputs: Vec<GraphInput>,
    /// Adjacency of the full graph's sparse matrices.
    patterns: Arc<Vec<Adjacency>>,
    seeds: Seeds,
    train: Vec<u32>,
    size: usize,
    /// The share of this process, if several load batches together.
    share: Option<Share>,
    /// Orders of the last epochs.
    orders: Mutex<Vec<Order>>,
}

/// The order of the seed vertices in an epoch.
struct Order {
    seed: u64,
    epoch: u64,
    vertices: Arc<[u32]>,
}

/// Targets of the batch loss.
enum Seeds {
    /// Vertices of one type.
    Vertices(VertexType),
    /// Links; their end vertices are the seed vertices.
    Links(PairSource),
}

/// Per-thread state of a loader.
pub struct LoaderWorker<'s> {
    sampling: Sampling<'s>,
    pairs: PairRoom,
    numberings: Vec<Numbering>,
    /// Where batches are sampled in order: the vertices with historical embeddings, which sample no neighbours in the
    /// last hop.
    cached: Option<CachedVertices>,
}

/// The ways to sample the neighbours of the seeds.
enum Sampling<'s> {
    Alone(Box<Sampler<'s>>),
    /// Where ranks share relations, the first hop is sampled apart.
    Relations {
        first: Box<Sampler<'s>>,
        later: Box<Sampler<'s>>,
    },
    /// By the owners of the vertices.
    Owners(Box<Owners<'s>>),
}

/// A mini-batch ready for the engine.
#[derive(Default)]
pub struct MiniBatch {
    /// Seed, epoch and number of the batch.
    pub key: Option<BatchKey>,
    /// Number of seed vertices or links, of all ranks.
    pub seeds: usize,
    /// The sampled vertices and edges.
    pub sampled: Batch,
    /// The edges to the seeds, by relation, where ranks share the relations: `sampled` has those of later hops.
    to_seeds: Vec<Block>,
    /// By relation and destination: the number of its first in-edge in the whole graph, if the owners of vertices have sampled.
    first_edges: Vec<Vec<u32>>,
    /// Pairs to score, by link graph.
    pairs: Vec<Pairs>,
    /// Vertices with historical embeddings, by [`BatchLayout::historical`].
    pub reused_rows: Vec<ReusedRows>,
    /// Rows of tables that this rank owns, where several load batches together.
    pub owned: Vec<OwnedRows>,
    /// Number of sampled edges.
    pub edges: usize,
    /// Graphs and labels of the batch.
    pub data: BoundData,
    /// Elements of each input that the engine holds.
    pub inputs: Vec<HostBuffer>,
    /// Start of sampling, and start of gathering.
    pub began: [Option<Instant>; 2],
    /// Seconds of sampling, of building graphs, and of gathering rows.
    pub seconds: [f64; 3],
}

impl MiniBatchLoader {
    /// Creates a loader for a mini-batch program. `data` and `inputs` are those of the full graph.
    pub fn new(
        program: &Program,
        layout: &BatchLayout,
        batch: &training::MiniBatch,
        data: &BoundData,
        inputs: &[GraphInput],
        (tables, training): (&Dataflow, &Training),
        compiler: Option<&Arc<dyn SamplerCompiler>>,
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
        let (mut all, mut shared) = (vec![], vec![]);
        for (index, (decl, graph)) in tables.graphs.iter().zip(&data.graphs).enumerate() {
            // Link pairs are drawn by negative sampling, and vertices of a batch are shuffled among themselves.
            let none = decl.links || decl.shuffle.is_some() || walked_only(index);
            let ends = (decl.src.index(), decl.dst.index());
            let weights = data.drawn.weights.get(index).and_then(|weights| weights.as_deref().map(Cow::Borrowed));
            shared.push((!none).then(|| graph.csc.indices.clone()));
            all.push(Edges { weights, ..edges(&decl.name, ends, (&graph.csc, graph.num_dst), none) });
        }
        let steps = data.drawn.steps.iter().map(|step| {
            let ends = (step.src.index(), step.dst.index());
            let Edges { name, src_type, dst_type, indptr, indices, .. } =
                edges(&step.name, ends, (&step.csc, data.num_vertices[step.dst.index()]), false);
            let (name, indptr, indices) =
                (name.into_owned().into(), indptr.into_owned().into(), indices.into_owned().into());
            Edges { name, src_type, dst_type, indptr, indices, weights: None }
        });
        let graph = SampleGraph::sharing(data.num_vertices.clone(), all, &shared)
            .and_then(|graph| graph.with_paths(steps.collect(), data.drawn.paths.clone()))
            .map_err(unsupported)?;
        // Without machine code the sampler runs in Rust.
        let code = compiler.and_then(|compiler| Compiled::new(&graph, plan.clone(), compiler).ok());
        let patterns = data.patterns.iter().map(|pattern| pattern.csc.clone()).collect();
        let of_batch = |input: &BatchInput| match *input {
            BatchInput::Whole(from) => inputs[from.index()].clone(),
            BatchInput::Historical { .. } => GraphInput::Nothing,
        };
        let types: Vec<String> = tables.vertex_types.iter().map(|vertex| vertex.name.clone()).collect();
        let seeds = match training.links() {
            Some(target) => {
                let source = PairSource::new(target, tables, data);
                source.check(&types)?;
                Seeds::Links(source)
            }
            None => Seeds::Vertices(training.seeds().expect("mini-batches have seeds")),
        };
        // Of a part of a graph, it has the consecutive in-edges of consecutive vertices.
        let first_edge = |graph: &Topology| if graph.num_edges() > 0 { graph.number_in_whole(0) } else { 0 };
        let of_whole = data.graphs.iter().map(|graph| (graph.all_edges(), first_edge(graph))).collect();
        let mut loader = Self {
            graph: Arc::new(graph),
            of_whole,
            plan,
            first: Plan { fanouts: vec![] },
            hot: None,
            drawn_of_hot: vec![],
            code,
            layout: layout.clone(),
            types,
            tables: program.tables.clone(),
            uses: Uses::of(program, layout),
            inputs: layout.inputs.iter().map(of_batch).collect(),
            patterns: Arc::new(patterns),
            seeds,
            train: data.seeds(batch).into_owned(),
            size: batch.size,
            share: None,
            orders: Mutex::default(),
        };
        loader.gather_what_is_not_shared();
        Ok(loader)
    }

    /// Loads the share of one rank from now on. The ranks make all batches together, in the same order.
    pub fn share(&mut self, rank: Rank, program: &Program, compiler: Option<&Arc<dyn SamplerCompiler>>) {
        let share = Share::new(rank, program, &self.layout, &self.seeds);
        if share.relations().is_some() {
            // The first hop is sampled apart.
            self.first = Plan { fanouts: self.plan.fanouts.drain(..1.min(self.plan.fanouts.len())).collect() };
            let compiled = |compiler| Compiled::new(&self.graph, self.plan.clone(), compiler).ok();
            self.code = compiler.and_then(compiled).filter(|_| self.plan.num_hops() > 0);
        }
        self.share = Some(share);
    }

    /// Has the rows that ranks have divided read from their owners, from now on. `own_rows` gives those of this rank, of an
    /// input of the full graph.
    ///
    /// # Errors
    /// When another rank has ended.
    pub fn divide_inputs(&mut self, own_rows: &dyn Fn(usize) -> Option<SharedBuffer>) -> Result<()> {
        let Some(share) = &mut self.share else { return Ok(()) };
        let edges_of_ranks = if share.by_owners() { share.edges_of_ranks(&self.graph)? } else { vec![] };
        for (index, (decl, from)) in self.tables.inputs.iter().zip(&self.layout.inputs).enumerate() {
            let BatchInput::Whole(whole) = *from else { continue };
            let (Layout::Dense, DType::F32) = (decl.ty.layout, decl.ty.dtype) else { continue };
            let borders = match decl.ty.space {
                Space::Vertices(of) if share.rank.distribute.features => {
                    let of = self.layout.vertices[of.index()].vertex.index();
                    share.borders(of, self.graph.counts()[of])
                }
                Space::Edges(of) if share.by_owners() => match self.layout.graphs[of.index()] {
                    BatchGraph::Sampled { graph, .. } => edges_of_ranks[graph.index()].clone(),
                    _ => continue,
                },
                _ => continue,
            };
            let own = own_rows(whole.index()).unwrap_or_else(|| HostBuffer::zeros(0).freeze());
            let own = HostRows::of_shared(&own, width(&decl.ty));
            let rows = Arc::new(RemoteRows::new(share.rank.clone(), borders, own, Arc::clone(&share.sent)));
            self.inputs[index] = GraphInput::Rows(Arc::clone(&rows) as Arc<dyn RowStore>);
            share.remote.push((index, rows));
        }
        if share.rank.distribute.features {
            for (pattern, &BatchPattern { rows, .. }) in self.layout.patterns.iter().enumerate() {
                let of = self.layout.vertices[rows.index()].vertex.index();
                let borders = share.borders(of, self.graph.counts()[of]);
                share.sparse.push(RemoteSparse { pattern, borders, inputs: vec![] });
            }
        }
        for (index, (decl, from)) in self.tables.inputs.iter().zip(&self.layout.inputs).enumerate() {
            let (Layout::Sparse(pattern), BatchInput::Whole(whole)) = (decl.ty.layout, *from) else { continue };
            let divided = share.sparse.iter_mut().find(|sparse| sparse.pattern == pattern.index());
            if let Some(sparse) = divided {
                let own = own_rows(whole.index()).unwrap_or_else(|| HostBuffer::zeros(0).freeze());
                self.inputs[index] = GraphInput::Sparse(own.clone());
                sparse.inputs.push((index, own));
            }
        }
        self.gather_what_is_not_shared();
        Ok(())
    }

    /// Gathers the rows of vertices with an input that programs cannot read in place.
    fn gather_what_is_not_shared(&mut self) {
        for (decl, input) in self.tables.inputs.iter().zip(&self.inputs) {
            if let (Layout::Dense, Space::Vertices(vertex), GraphInput::Rows(store)) =
                (decl.ty.layout, decl.ty.space, input)
                && store.shared().is_none()
            {
                self.uses.direct[vertex.index()] = false;
            }
        }
    }

    /// Sets the vertices that may have historical embeddings.
    ///
    /// # Errors
    /// When another rank has ended, whose edges some of them have.
    pub fn reuse(&mut self, hot: HotVertices) -> Result<()> {
        if let Some(share) = self.share.as_ref().filter(|share| share.by_owners()) {
            self.drawn_of_hot = self.ask_drawn(share, &hot.vertices)?;
        }
        self.hot = Some(hot);
        Ok(())
    }

    /// Batches to come reuse nothing, until they are told again.
    pub fn forget_hot(&mut self) {
        self.hot = None;
        self.drawn_of_hot.clear();
    }

    /// Correspondence between the mini-batch program and the full graph.
    pub fn layout(&self) -> &BatchLayout {
        &self.layout
    }

    /// Vertex count of each type in the full graph.
    pub fn counts(&self) -> &[usize] {
        self.graph.counts()
    }

    /// Edges that the last hop samples for a vertex, over all relations; an upper bound for walks. Where ranks have divided the
    /// edges, for own and for hot vertices.
    pub(crate) fn drawn_of(&self, vertex_type: usize, vertex: u32) -> u64 {
        if let Some(&told) = self.drawn_of_hot.get(vertex_type).and_then(|known| known.get(&vertex)) {
            return told;
        }
        let Some(fanouts) = self.plan.fanouts.last() else { return 0 };
        let into = self.graph.relations().iter().zip(fanouts).enumerate();
        let of =
            |(r, (_, fanout)): (usize, (_, &Fanout))| u64::from(fanout.of(self.graph.in_edges(r, vertex).len() as u32));
        into.filter(|(_, (relation, _))| relation.dst_type == vertex_type).map(of).sum()
    }

    /// Gathers all vertex rows from now on, even those that kernels could read in place: a device with separate memory
    /// does not hold them.
    pub fn gather_all(&mut self) {
        self.uses.direct.fill(false);
    }

    /// Leaves rows of inputs to the machine from now on, where it has them: `rows_of` returns its matrix for an input of
    /// the full graph. Returns that matrix for each such input of the mini-batch program.
    pub fn leave_rows(
        &mut self,
        rows_of: &mut dyn FnMut(usize) -> Option<Arc<dyn RowStore>>,
    ) -> Vec<(usize, Arc<dyn RowStore>)> {
        let mut left = vec![];
        // Inputs of stacks are put together from those of their members.
        if self.num_inputs() > self.layout.inputs.len() {
            return left;
        }
        for (index, from) in self.layout.inputs.iter().enumerate() {
            if let (&BatchInput::Whole(whole), GraphInput::Rows(_)) = (from, &self.inputs[index])
                && let Some(matrix) = rows_of(whole.index())
            {
                self.inputs[index] = GraphInput::Numbered;
                left.push((index, matrix));
            }
        }
        left
    }

    /// Reads the rows of an input of the mini-batch program from another store.
    pub fn replace_input(&mut self, index: usize, store: Arc<dyn RowStore>) {
        self.inputs[index] = GraphInput::Rows(store);
        self.gather_what_is_not_shared();
    }

    /// Tables of the mini-batch program, and its inputs in the full graph.
    pub fn inputs(&self) -> (&Dataflow, &[GraphInput]) {
        (&self.tables, &self.inputs)
    }

    /// Full-graph out-degrees of the vertices of a mini-batch vertex type.
    pub fn out_degrees(&self, vertex: VertexType) -> Vec<u32> {
        let vertex = self.layout.vertices[vertex.index()].vertex.index();
        let mut degrees = vec![0u32; self.graph.counts()[vertex]];
        for relation in self.graph.relations().iter().filter(|relation| relation.src_type == vertex) {
            relation.sources().iter().for_each(|&source| degrees[source as usize] += 1);
        }
        degrees
    }

    /// Number of batches per epoch.
    pub fn num_batches(&self) -> u64 {
        self.train.len().div_ceil(self.size) as u64
    }

    /// Seed vertices per batch.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// Creates the state of a thread that samples all batches in their order, from the first of a window on: those of
    /// a model with historical embeddings depend on the ones before.
    pub fn worker_in_order(&self) -> Result<LoaderWorker<'_>> {
        let cached = self.hot.as_ref().map(|_| CachedVertices::new(&self.layout, self.counts()));
        Ok(LoaderWorker { cached, ..self.worker()? })
    }

    /// Creates the state of a thread that samples single batches, without historical embeddings.
    pub fn worker(&self) -> Result<LoaderWorker<'_>> {
        let sampler = || match &self.code {
            Some(code) => Sampler::compiled(&self.graph, code),
            None => Sampler::new(&self.graph, self.plan.clone()),
        };
        let sampling = match &self.share {
            Some(share) if share.by_owners() => Ok(Sampling::Owners(Box::new(Owners::new(self, share)?))),
            share => match share.as_ref().and_then(Share::relations) {
                Some(own) => Sampler::new(&self.graph, self.plan_of_relations(own))
                    .and_then(|first| Ok(Sampling::Relations { first: Box::new(first), later: Box::new(sampler()?) })),
                None => sampler().map(|alone| Sampling::Alone(Box::new(alone))),
            },
        };
        let sampling = sampling.map_err(unsupported)?;
        Ok(LoaderWorker { sampling, pairs: PairRoom::default(), numberings: vec![], cached: None })
    }

    /// Text of the generated sampling loops; empty without generated code.
    pub fn sampler_text(&self) -> String {
        self.code.as_ref().map_or_else(String::new, |code| code.text(&self.graph, &self.types))
    }

    /// [`MiniBatchLoader::order`], which threads that load batches of the same epoch share.
    pub fn shared_order(&self, seed: u64, epoch: u64) -> Arc<[u32]> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = orders.iter().find(|order| (order.seed, order.epoch) == (seed, epoch)) {
            return Arc::clone(&known.vertices);
        }
        let vertices: Arc<[u32]> = self.order(seed, epoch).into();
        // Threads are in one epoch, or in two that follow each other.
        orders.truncate(1);
        orders.insert(0, Order { seed, epoch, vertices: Arc::clone(&vertices) });
        vertices
    }

    /// Shuffled seed vertices of an epoch.
    pub fn order(&self, seed: u64, epoch: u64) -> Vec<u32> {
        let key = mask_key(seed, epoch, STREAM);
        let mut order: Vec<(u32, u32)> = self.train.iter().map(|&v| (bits(key, u64::from(v)), v)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, v)| v).collect()
    }

    /// Loads a batch, a pure function of the run's seed, the epoch and the batch index. False if another rank makes no
    /// more batches, and so none can be made.
    pub fn make(
        &self,
        worker: &mut LoaderWorker<'_>,
        order: &[u32],
        key: BatchKey,
        mini_batch: &mut MiniBatch,
    ) -> Result<bool> {
        let start = Instant::now();
        if !self.begin_with_others()? || !self.sample(worker, order, key, mini_batch)? {
            return Ok(false);
        }
        mini_batch.began[0] = Some(start);
        mini_batch.seconds[0] = start.elapsed().as_secs_f64();
        self.complete(mini_batch)?;
        let start = Instant::now();
        let made = self.share_rows(&mut worker.numberings, mini_batch)?;
        mini_batch.seconds[1] += start.elapsed().as_secs_f64();
        Ok(made)
    }

    /// Samples a batch and exchanges its vertices with other ranks, for the routes of rows among them. False if another
    /// rank makes no more batches.
    ///
    /// # Errors
    /// A graph that cannot be sampled, or a rank that has ended.
    pub fn routes(
        &self,
        worker: &mut LoaderWorker<'_>,
        order: &[u32],
        key: BatchKey,
        mini_batch: &mut MiniBatch,
    ) -> Result<bool> {
        if !self.begin_with_others()? || !self.sample(worker, order, key, mini_batch)? {
            return Ok(false);
        }
        for pattern in 0..self.layout.patterns.len() {
            self.remote_sparse(pattern, mini_batch)?;
        }
        for (index, rows) in self.share.iter().flat_map(|share| &share.remote) {
            let MiniBatch { sampled, to_seeds, .. } = &*mini_batch;
            rows.count(self.numbers_of(&self.tables.inputs[*index].ty, (sampled, to_seeds))?)?;
        }
        self.share_rows(&mut worker.numberings, mini_batch)
    }

    /// Gathers rows and builds graphs of a sampled batch.
    pub fn complete(&self, mini_batch: &mut MiniBatch) -> Result<()> {
        let start = Instant::now();
        mini_batch.edges = mini_batch.sampled.num_edges();
        self.rows_of_inputs(mini_batch)?;
        let copied = start.elapsed().as_secs_f64();
        self.graphs(mini_batch)?;
        let done = start.elapsed().as_secs_f64();
        mini_batch.began[1] = Some(start);
        (mini_batch.seconds[1], mini_batch.seconds[2]) = (done - copied, copied);
        Ok(())
    }

    /// Samples a batch without gathering rows or building graphs. False if another rank makes no more batches.
    ///
    /// # Errors
    /// A graph that cannot be sampled, or a rank that has ended.
    pub fn sample(
        &self,
        worker: &mut LoaderWorker<'_>,
        order: &[u32],
        key: BatchKey,
        mini_batch: &mut MiniBatch,
    ) -> Result<bool> {
        let first = (key.batch as usize * self.size).min(order.len());
        let mut seeds = vec![vec![]; self.graph.counts().len()];
        let own = &order[first..(first + self.size).min(order.len())];
        (mini_batch.key, mini_batch.seeds) = (Some(key), own.len());
        if let (Some(cached), Some(hot)) = (&mut worker.cached, &self.hot)
            && key.batch.is_multiple_of(hot.window)
        {
            cached.clear();
        }
        match &self.seeds {
            Seeds::Vertices(vertex) => {
                let count = self.graph.counts()[vertex.index()];
                let mine = self.share.as_ref().and_then(|share| share.own_seeds(own, |seed| (seed, *vertex, count)));
                seeds[vertex.index()] = match mine {
                    Some(mine) => own.iter().zip(mine).filter(|(_, mine)| *mine).map(|(&seed, _)| seed).collect(),
                    None => own.to_vec(),
                };
            }
            Seeds::Links(source) => {
                let mine =
                    self.share.as_ref().and_then(|share| share.own_seeds(own, |link| source.destination(link, key)));
                source.draw((own, mine.as_deref()), key, &mut worker.pairs, &mut seeds, &mut mini_batch.pairs);
            }
        }
        let cached = worker.cached.as_mut().zip(self.hot.as_ref());
        let alone = match (&mut worker.sampling, &self.share) {
            (Sampling::Alone(sampler), _) => Some(sampler),
            (Sampling::Relations { first, later }, _) => {
                return self.sample_relations(first, later, &seeds, key, mini_batch).map(|()| true);
            }
            (Sampling::Owners(owners), Some(share)) => {
                let historical = cached.as_ref().map(|(cached, _)| cached.vertices());
                if !self.sample_by_owners(share, owners, (&seeds, key), historical, mini_batch)? {
                    return Ok(false);
                }
                None
            }
            (Sampling::Owners(..), None) => return Err(internal("owners of vertices that one process shares")),
        };
        if let Some(sampler) = alone {
            let sampled = match &cached {
                Some((cached, _)) => {
                    sampler.sample_with_historical(&seeds, key, cached.vertices(), &mut mini_batch.sampled)
                }
                None => sampler.sample(&seeds, key, &mut mini_batch.sampled),
            };
            sampled.map_err(unsupported)?;
        }
        match cached {
            Some((cached, hot)) => {
                let drawn = |vertex_type, vertex| self.drawn_of(vertex_type, vertex);
                let (layout, sampled) = (&self.layout, &mini_batch.sampled);
                cached.take((layout, &hot.vertices), sampled, drawn, &mut mini_batch.reused_rows);
            }
            None => {
                mini_batch.reused_rows.clear();
                mini_batch.reused_rows.resize(self.layout.historical.len(), ReusedRows::default());
            }
        }
        if let Seeds::Links(source) = &self.seeds {
            source.exclude(&worker.pairs, &mut mini_batch.sampled);
        }
        Ok(true)
    }

    /// The graph of the model that a graph of the mini-batch program was sampled from.
    fn whole_graph(&self, of_batch: Graph) -> Option<Graph> {
        match *self.layout.graphs.get(of_batch.index())? {
            BatchGraph::Sampled { graph, .. } => Some(graph),
            _ => None,
        }
    }

    /// Full-graph ids of the batch's vertices of a type.
    pub fn vertices<'b>(&self, batch: &'b Batch, vertex: VertexType) -> &'b [u32] {
        let known = self.layout.vertices[vertex.index()];
        &batch.vertices[known.vertex.index()][..batch.known[known.hops][known.vertex.index()] as usize]
    }

    /// Data without vertices, to create an engine with.
    pub fn empty(&self) -> Result<BoundData> {
        let graph = |name: &str| Topology::from_csc(name, 0, 0, vec![0], vec![]);
        let pattern = |decl: &PatternDecl| Topology::from_csc("", decl.columns, 0, vec![0], vec![]);
        let input = |(index, input): (usize, &BatchInput)| match (input, &self.inputs[index]) {
            (BatchInput::Historical { .. }, _) | (_, GraphInput::Rows(_) | GraphInput::Sparse(_)) => InputData::Held(0),
            (_, GraphInput::Numbered) => InputData::Rows(vec![]),
            (_, GraphInput::Classes(_)) => InputData::Classes(vec![]),
            (_, GraphInput::Nothing) => match self.tables.inputs[index].binding {
                Binding::IsLink(_) => InputData::Held(0),
                _ => InputData::Missing,
            },
        };
        let own = &self.tables.graphs[..self.layout.graphs.len()];
        let mut data = BoundData {
            num_vertices: vec![0; self.layout.vertices.len()],
            graphs: own.iter().map(|decl| graph(&decl.name)).collect::<Result<_>>()?,
            patterns: self.tables.patterns.iter().map(pattern).collect::<Result<_>>()?,
            inputs: self.layout.inputs.iter().enumerate().map(input).collect(),
            ..BoundData::default()
        };
        for decl in self.tables.graphs[data.graphs.len()..].iter().take_while(|decl| decl.share == EdgeShare::Samples) {
            data.graphs.push(graph(&decl.name)?);
        }
        stacks::derive(&self.tables, &mut data.num_vertices, &mut data.graphs)?;
        for decl in &self.tables.graphs[data.graphs.len()..] {
            data.graphs.push(graph(&decl.name)?);
        }
        if let Some(share) = &self.share {
            share.complete_empty(&self.tables, &mut data);
        }
        data.inputs.resize(self.num_inputs(), InputData::Held(0));
        Ok(data)
    }

    /// Number of inputs that a batch fills: those of the program of the whole graph, then those of stacks. Counters and
    /// ranks follow.
    fn num_inputs(&self) -> usize {
        let first = self.layout.inputs.len();
        let of_stacks = self.tables.inputs[first..].iter().map_while(|decl| stacks::of_members(&self.tables, decl));
        first + of_stacks.count()
    }
}

fn unsupported(error: impl std::fmt::Display) -> ExecError {
    ExecError::Unsupported(error.to_string())
}

/// In-edges of a relation (CSC), or an empty relation if `none`. Copied, because samplers outlive the engine's data.
fn edges<'d>(
    name: &'d str,
    (src_type, dst_type): (usize, usize),
    (incoming, num_dst): (&'d Adjacency, usize),
    none: bool,
) -> Edges<'d> {
    let (indptr, indices) = match none {
        true => (Cow::Owned(vec![0; num_dst + 1]), Cow::Owned(vec![])),
        false => (Cow::Borrowed(&incoming.indptr[..]), Cow::Borrowed(&incoming.indices[..])),
    };
    Edges { name: Cow::Borrowed(name), src_type, dst_type, indptr, indices, weights: None }
}
