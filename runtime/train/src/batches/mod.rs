//! Mini-batch training: a sampled subgraph per step, evaluation on the full graph.
//!
//! [`hgnnc_loader`] prepares batches ahead of training. Two sessions share the work: one runs the mini-batch program and
//! is loaded with each batch; the trainer's own holds the full graph, evaluates, and holds all parameters while training
//! is paused (`param_sync`). Embedding tables (one row per vertex) stay where the full-graph session has them, or in host
//! memory: each batch gathers the rows of its vertices and scatters the updated rows back, with their optimizer states;
//! the optimizer updates only rows in the batch, using the global step (as PyTorch's SparseAdam does). A feature cache may
//! sit in between, and then they are in host memory. Batches may read historical embeddings of the bottom layer
//! (`historical_embeddings`).

// Tables are memory of the full-graph session; see `ParamStore::share`.
#![allow(unsafe_code)]

mod historical_embeddings;
mod param_sync;
mod stats;
mod tables;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hgnnc_data::buffer::HostBuffer;
use hgnnc_data::{Arena, BoundData, ExecError, InputData, Result, StateId};
use hgnnc_executable::{Executable, Role};
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::dataflow::{Dataflow, InputDecl};
use hgnnc_ir::types::VertexType;
use hgnnc_loader::cache::report::CacheReport;
use hgnnc_loader::cache::{Cache, EmbeddingTable, not_kept};
use hgnnc_loader::historical_embeddings::{HotVertices, choose};
use hgnnc_loader::loader::GraphInput;
use hgnnc_loader::pipeline::{Line, make_all};
use hgnnc_loader::{BatchPart, BatchSpan, CacheOptions, MiniBatch, MiniBatchLoader, Pipeline, internal};
use hgnnc_sample::BatchKey;
use hgnnc_session::{Backend, HostRows, RowStore, Rows, Session, StepKey};
use hgnnc_trace::Times;

use crate::not_finite::{self, Found};
use crate::report::BatchReport;
use crate::trainer::TrainOptions;
use historical_embeddings::HistoricalEmbeddings;
use tables::Table;

pub use stats::sizes_of;

/// Index of the mini-batch program in its session.
const STEP: usize = 0;

/// The most threads that load batches for a machine with threads of its own. Loading is then most of the work: 10 to 15 ms
/// for a batch of 1024 seeds on a graph of ogbn-mag's size, of which a GPU computes the loss in 1 ms.
const MOST_LOADING: usize = 8;

/// Mini-batch trainer state: session, loader and caches.
pub struct Batches {
    step: Box<dyn Session>,
    layout: BatchLayout,
    loader: Arc<MiniBatchLoader>,
    pool: Arc<rayon::ThreadPool>,
    /// Bytes that opening the session and filling the cache have sent to other ranks.
    sent_to_open: u64,
    /// Names of the parameters of the mini-batch program, without stacks of them.
    names: Vec<String>,
    states: Vec<StateId>,
    /// Embedding tables by parameter, and after all parameters the full-size optimizer states. `None` for dense
    /// parameters, which are in one of the sessions. States of dense parameters are in the mini-batch session while it
    /// trains.
    arrays: Vec<Option<Table>>,
    /// By parameter: whether its table is the memory of the full-graph session.
    shared: Vec<bool>,
    /// Whether the mini-batch session has the current dense parameters.
    in_step: bool,
    pipeline: Option<Pipeline>,
    /// Threads that load batches.
    loading: usize,
    /// Whether batches are loaded while others are computed.
    load_ahead: bool,
    /// Options of the feature cache; the cache itself exists from the first batch on.
    cache_options: Option<CacheOptions>,
    cache: Option<Cache>,
    /// Embeddings that several batches share.
    reuse: Option<HistoricalEmbeddings>,
    /// Planned memory of the largest batch so far.
    largest: Arena,
    /// Total milliseconds of the parts of batches, and the number of batches.
    totals: BatchReport,
    batches: u64,
    /// Start and end times of parts, recorded only when tracing.
    spans: Option<Vec<BatchSpan>>,
}

/// The rows of an embedding table or of its states, through the cache if there is one.
fn store_of<'a>(arrays: &'a [Option<Table>], cache: Option<&'a Cache>, array: usize) -> Result<Box<dyn RowStore + 'a>> {
    let slow = arrays[array].as_ref().ok_or_else(|| internal("rows of a dense parameter"))?;
    Ok(match cache.zip(slow.host()).and_then(|(cache, slow)| cache.rows(array, slow)) {
        Some(cached) => Box::new(cached),
        None => Box::new(slow.store()),
    })
}

/// The rows behind a cache.
fn slow_of(arrays: &[Option<Table>], array: usize) -> &HostRows {
    arrays[array].as_ref().and_then(Table::host).expect("cached arrays are tables and their states, in host memory")
}

/// A batch computed up to its loss.
pub(crate) struct Computed {
    mini_batch: Box<MiniBatch>,
    /// Mean loss over the seed vertices.
    pub loss: f64,
    /// Number of seed vertices.
    pub seeds: usize,
}

/// Inputs of the full graph that the loader gathers rows of: copies of those of `data`.
pub(crate) fn graph_inputs(tables: &Dataflow, data: &BoundData) -> Vec<GraphInput> {
    let copy = |(input, decl): (&InputData, &InputDecl)| match input {
        InputData::Numbers(numbers) => GraphInput::of(&decl.ty, HostBuffer::of(numbers).freeze()),
        InputData::Classes(classes) => GraphInput::Classes(classes[..].into()),
        InputData::Held(_)
        | InputData::Rows(_)
        | InputData::StepNumber
        | InputData::EpochNumber
        | InputData::Missing => GraphInput::Nothing,
    };
    data.inputs.iter().zip(&tables.inputs).map(copy).collect()
}

impl Batches {
    /// Opens the session of a model with mini-batches; `whole` holds the full graph, and `copied` its inputs if they are
    /// not in the memory of this process.
    pub fn new(
        executable: &Executable,
        backend: &mut dyn Backend,
        whole: &mut dyn Session,
        copied: Option<Vec<GraphInput>>,
        &TrainOptions { cache: cache_options, load_ahead, memory_budget, .. }: &TrainOptions,
    ) -> Result<Self> {
        let (Some(training), Some(kernels), Some(layout)) =
            (&executable.training, executable.kernels(Role::Train), &executable.batch)
        else {
            return Err(internal("the model has no program for batches"));
        };
        let Some(batch) = &training.batch else {
            return Err(internal("the model has no batches"));
        };
        if whole.data().orders.any() {
            return Err(ExecError::Unsupported("batches take vertices in the order of the dataset only".into()));
        }
        let input = |(index, (input, decl)): (usize, (&InputData, &InputDecl))| match (input, whole.shared_input(index))
        {
            (InputData::Classes(classes), _) => GraphInput::Classes(classes[..].into()),
            (_, Some(numbers)) => GraphInput::of(&decl.ty, numbers),
            (_, None) => GraphInput::Nothing,
        };
        let in_session = || whole.data().inputs.iter().zip(&executable.infer.inputs).enumerate().map(input).collect();
        let inputs = copied.unwrap_or_else(in_session);
        let of_whole = (&executable.infer, training);
        let sampler = executable.sampler.as_ref();
        let mut loader = MiniBatchLoader::new(kernels, layout, batch, whole.data(), &inputs, of_whole, sampler)?;
        if !backend.reads_host_memory() {
            loader.gather_all();
        }
        if let Some(rank) = backend.rank() {
            loader.share(rank, kernels, sampler);
            loader.divide_inputs(&|input| whole.own_rows_of_input(input))?;
        }
        let reuse = batch.reuse.map(|reuse| HistoricalEmbeddings::new(reuse, layout));
        // A cache keeps rows of host memory.
        let by_machine = cache_options.is_none();
        let left = if by_machine { loader.leave_rows(&mut |input| whole.rows_of_input(input)) } else { vec![] };
        let mut step = backend.session(&[Role::Train], loader.empty()?)?;
        left.into_iter().for_each(|(input, rows)| step.take_rows_of(input, rows));
        let threads = backend.pool().current_num_threads();
        // Historical embeddings need batches in their order, and ranks make them together.
        let in_order = reuse.is_some() || backend.rank().is_some() || !load_ahead;
        let one_thread = backend.reads_host_memory() || in_order;
        let loading = if one_thread { 1 } else { (threads / 2).clamp(1, MOST_LOADING) };
        let own = step.params();
        let num_params = own.num_params();
        let names = kernels.tables.params[..num_params].iter().map(|param| param.name.clone()).collect();
        let states = own.states().to_vec();
        let num_of_whole = whole.params().num_params();
        // Stacks of parameters are those of the program of batches.
        let lens: Vec<usize> = states
            .iter()
            .map(|state| match state.0.index() {
                param if param < num_of_whole => whole.params().len(param),
                stack => own.len(stack),
            })
            .collect();
        let sent_to_open = step.exchanged().sent_bytes;
        let mut batches = Self {
            step,
            sent_to_open,
            layout: layout.clone(),
            loader: Arc::new(loader),
            pool: Arc::clone(backend.pool()),
            names,
            states,
            arrays: vec![],
            shared: vec![],
            in_step: false,
            pipeline: None,
            loading,
            load_ahead,
            cache_options,
            cache: None,
            reuse,
            largest: Arena::default(),
            totals: BatchReport::default(),
            batches: 0,
            spans: None,
        };
        let num_vertices = whole.data().num_vertices.clone();
        let num_rows = |param: usize| batches.rows_of(param).map(|of_batch| batches.num_rows(of_batch, &num_vertices));
        let width = |param: usize, len: usize| num_rows(param).map_or(len, |rows| len / rows.max(1));
        let of_batch = |rows: VertexType| batches.layout.vertices[rows.index()].vertex;
        let own_len = |whole: &dyn Session, param: usize, len: usize| {
            let Some((of, rows)) = batches.rows_of(param).map(of_batch).zip(num_rows(param)) else { return len };
            len / rows.max(1) * whole.own_rows(of, rows).len()
        };
        let (mut arrays, mut shared) = (vec![], vec![]);
        for param in 0..num_params {
            if batches.rows_of(param).is_none() {
                arrays.push(None);
                shared.push(false);
                continue;
            }
            let len = whole.params().len(param);
            let width = width(param, len);
            if by_machine && let Some(rows) = whole.params().rows_of_table(param, width) {
                arrays.push(Some(Table::Machine(rows)));
                shared.push(true);
                continue;
            }
            // SAFETY: rows are gathered and scattered between runs of the sessions.
            let buffer = whole.params().share(param).map(|alias| unsafe { alias.buffer() });
            shared.push(buffer.is_some());
            let buffer = buffer.unwrap_or_else(|| HostBuffer::zeros(own_len(whole, param, len)));
            // SAFETY: the vertices of a batch are distinct, and nothing else uses the rows during its run.
            arrays.push(Some(Table::Host(unsafe { HostRows::new(buffer, width) })));
        }
        let states: Vec<(usize, usize)> =
            batches.states.iter().zip(&lens).map(|((param, _), &len)| (param.index(), len)).collect();
        let of_tables = states.iter().filter(|(param, _)| num_rows(*param).is_some());
        let sizes: Vec<(usize, usize)> =
            of_tables.map(|&(param, len)| (len / width(param, len).max(1), width(param, len))).collect();
        // A budget of the machine's memory is for what it cannot do without.
        let by_machine = by_machine && memory_budget.is_none();
        let mut of_machine = if by_machine { backend.zero_rows(&sizes)? } else { vec![] }.into_iter();
        let mut in_host = vec![];
        for (param, len) in states {
            let rows = num_rows(param).and_then(|_| of_machine.next());
            if rows.is_none() {
                in_host.push((arrays.len(), width(param, len), own_len(whole, param, len)));
            }
            arrays.push(rows.map(Table::Machine));
        }
        let buffers = HostBuffer::zeros_each(in_host.iter().map(|&(.., len)| len));
        for ((array, width, _), buffer) in in_host.into_iter().zip(buffers) {
            // SAFETY: as above.
            arrays[array] = Some(Table::Host(unsafe { HostRows::new(buffer, width) }));
        }
        (batches.arrays, batches.shared) = (arrays, shared);
        Ok(batches)
    }

    /// Number of batches per epoch.
    pub fn num_batches(&self) -> u64 {
        self.loader.num_batches()
    }

    /// Parameter and slot of each optimizer state.
    pub fn states(&self) -> &[StateId] {
        &self.states
    }

    /// An optimizer state, or its rows on this process, once the parameters are in the full-graph session.
    fn state(&mut self, index: usize) -> Result<&mut Table> {
        let array = self.step.params().num_params() + index;
        self.arrays[array].as_mut().ok_or_else(|| internal("a state without memory"))
    }

    /// Elements of an optimizer state, or of its rows on this process, once the parameters are in the full-graph session.
    pub fn read_state(&mut self, index: usize) -> Result<Vec<f32>> {
        self.state(index)?.read()
    }

    /// Overwrites what [`Batches::read_state`] reads.
    pub fn write_state(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.state(index)?.write(numbers)
    }

    /// The vertex type of the whole graph whose vertices have the rows of an optimizer state.
    pub fn rows_of_state(&self, index: usize) -> Option<VertexType> {
        let of_batch = self.rows_of(self.states[index].0.index())?;
        Some(self.layout.vertices[of_batch.index()].vertex)
    }

    /// Seed vertices per batch.
    pub fn size(&self) -> u64 {
        self.loader.size()
    }

    /// Starts loading batches from `first` to the last of epoch `epochs - 1`.
    pub fn begin(&mut self, whole: &BoundData, first: BatchKey, epochs: u64) -> Result<()> {
        let before = self.loader.sent_bytes();
        self.choose_hot(first.seed)?;
        if let (Some(options), None) = (self.cache_options, &self.cache) {
            self.make_cache(options, whole, first.seed)?;
        }
        self.sent_to_open += self.loader.sent_bytes() - before;
        let loader = Arc::clone(&self.loader);
        if let Some(reuse) = &mut self.reuse {
            reuse.begin();
        }
        let make = move |line: &Line<'_>| make_all(&loader, first, epochs, line);
        self.pipeline = Some(Pipeline::new(self.loading, self.load_ahead, make)?);
        Ok(())
    }

    /// Chooses the hot vertices for historical embeddings on first use.
    fn choose_hot(&mut self, seed: u64) -> Result<()> {
        let Some(reuse) = self.reuse.as_mut().filter(|reuse| !reuse.chosen) else { return Ok(()) };
        let start = Instant::now();
        let (vertices, hot) = choose(&self.loader, reuse.options.share, seed, self.pool.current_num_threads())?;
        let loader = Arc::get_mut(&mut self.loader).ok_or_else(|| internal("batches are made already"))?;
        loader.reuse(HotVertices { vertices, window: reuse.options.batches })?;
        reuse.note_choice(&hot, start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Whether a run may pause after this many batches of an epoch and another continue: not while the next batches
    /// read embeddings computed with earlier parameters.
    pub fn may_pause(&self, done: u64) -> bool {
        self.reuse.as_ref().is_none_or(|reuse| reuse.is_between(done, self.num_batches()))
    }

    /// Presamples and fills the feature cache.
    fn make_cache(&mut self, options: CacheOptions, whole: &BoundData, seed: u64) -> Result<()> {
        let num_params = self.names.len();
        let learned = |param: usize| {
            let vertex = self.rows_of(param)?;
            let of_param = (0..self.states.len()).filter(|&state| self.states[state].0.index() == param);
            Some(EmbeddingTable {
                name: self.names[param].clone(),
                vertex,
                arrays: std::iter::once(param).chain(of_param.map(|state| num_params + state)).collect(),
                width: self.arrays[param].as_ref()?.store().width(),
                rows: self.num_rows(vertex, &whole.num_vertices),
            })
        };
        // Learned rows are not cached where several processes train: each step changes them at their owners.
        let learned: Vec<EmbeddingTable> =
            (0..num_params).filter(|_| !self.loader.is_shared()).filter_map(learned).collect();
        let (arrays, threads) = (&self.arrays, self.pool.current_num_threads());
        let slow = |array: usize| slow_of(arrays, array);
        let loader = Arc::get_mut(&mut self.loader).ok_or_else(|| internal("batches are made already"))?;
        self.cache = Some(Cache::new(options, seed, loader, &learned, (&slow, arrays.len()), threads)?);
        Ok(())
    }

    /// Samples the first epoch without training, and counts the accesses that a cache serves.
    pub fn simulate_cache(&mut self, options: CacheOptions, whole: &BoundData, seed: u64) -> Result<CacheReport> {
        self.choose_hot(seed)?;
        self.make_cache(options, whole, seed)?;
        let (loader, Some(mut cache)) = (&self.loader, self.cache.take()) else {
            return Err(internal("no cache was made"));
        };
        let (order, mut worker, mut mini_batch) =
            (loader.order(seed, 0), loader.worker_in_order()?, MiniBatch::default());
        for batch in 0..loader.num_batches() {
            loader.sample(&mut worker, &order, BatchKey { seed, epoch: 0, batch }, &mut mini_batch)?;
            cache.count(loader, &mini_batch.sampled);
        }
        Ok(cache.report(loader))
    }

    /// Vertex types with features that the cache does not support.
    pub fn not_cached(&self) -> Vec<String> {
        if self.cache_options.is_some() { not_kept(&self.loader) } else { vec![] }
    }

    /// Whether batches are being loaded.
    pub fn is_loading(&self) -> bool {
        self.pipeline.is_some()
    }

    /// Stops loading and moves the parameters back to the full-graph session.
    pub fn end(&mut self, whole: &mut dyn Session) -> Result<()> {
        self.pipeline = None;
        self.store_params(whole)
    }

    /// Forgets all that earlier runs have left: optimizer states, the feature cache, historical embeddings and times.
    pub fn restart(&mut self, whole: &mut dyn Session) -> Result<()> {
        self.end(whole)?;
        self.cache = None;
        let mut states = self.arrays[self.names.len()..].iter_mut().flatten();
        states.try_for_each(Table::clear)?;
        if let Some(reuse) = &mut self.reuse {
            *reuse = HistoricalEmbeddings::new(reuse.options, &self.layout);
            let loader = Arc::get_mut(&mut self.loader).ok_or_else(|| internal("batches are being made"))?;
            loader.forget_hot();
        }
        (self.largest, self.totals, self.batches) = (Arena::default(), BatchReport::default(), 0);
        Ok(())
    }

    /// Computes the next batch up to its loss.
    pub(crate) fn compute(
        &mut self,
        whole: &mut dyn Session,
        key: StepKey,
        batch: u64,
        times: &mut Times,
    ) -> Result<Computed> {
        let pipeline = self.pipeline.as_mut().ok_or_else(|| internal("no batches are made"))?;
        let start = Instant::now();
        let mut mini_batch = pipeline.wait()?;
        self.record(BatchPart::Wait, batch, start, Instant::now());
        let expected = BatchKey { seed: key.seed, epoch: key.epoch, batch };
        assert_eq!(mini_batch.key, Some(expected), "batches are made in the order in which they are computed");
        let [sample, graphs, features] = mini_batch.seconds.map(Duration::from_secs_f64);
        if let Some(at) = mini_batch.began[0] {
            self.record(BatchPart::Sample, batch, at, at + sample);
        }
        if let Some(at) = mini_batch.began[1] {
            self.record(BatchPart::Features, batch, at, at + features);
            self.record(BatchPart::Graphs, batch, at + features, at + features + graphs);
        }
        self.batches += 1;
        self.load_params(whole)?;
        if let Some(reuse) = &mut self.reuse {
            let start = Instant::now();
            reuse.give(&mut mini_batch, &self.layout, key.step)?;
            self.record(BatchPart::Values, batch, start, Instant::now());
        }
        let start = Instant::now();
        let data = std::mem::take(&mut mini_batch.data);
        mini_batch.data = self.step.load(data, &mut mini_batch.inputs)?;
        self.record(BatchPart::Bind, batch, start, Instant::now());
        let arena = self.step.arena(None);
        if arena.bytes() > self.largest.bytes() {
            self.largest = arena;
        }
        let start = Instant::now();
        if let Some(cache) = &mut self.cache {
            cache.count(&self.loader, &mini_batch.sampled);
        }
        self.gather_rows(&mini_batch)?;
        self.record(BatchPart::Rows, batch, start, Instant::now());
        let start = Instant::now();
        self.step.run(STEP, key, times)?;
        let loss = match self.step.read(STEP, "loss")? {
            Some(Rows { numbers: [loss], .. }) => f64::from(*loss),
            _ => return Err(ExecError::Unsupported("the training program has no scalar result `loss`".into())),
        };
        self.record(BatchPart::Compute, batch, start, Instant::now());
        if let Some(reuse) = &mut self.reuse {
            let start = Instant::now();
            reuse.keep(&mini_batch, (&mut *self.step, STEP), key.step)?;
            self.record(BatchPart::Values, batch, start, Instant::now());
        }
        let seeds = mini_batch.seeds;
        Ok(Computed { mini_batch, loss, seeds })
    }

    /// Explains the non-finite loss of a computed batch, which is still bound to its session.
    pub(crate) fn explain(&mut self, flow: &Dataflow, computed: &Computed, key: StepKey) -> Option<Found> {
        let Self { step, loader, layout, .. } = self;
        let vertices = |vertex: VertexType| {
            let known = vertex.index() < layout.vertices.len();
            known.then(|| loader.vertices(&computed.mini_batch.sampled, vertex).to_vec())
        };
        not_finite::of_batch_loss(flow, &mut **step, (key.seed, key.step, key.epoch), &vertices)
    }

    /// Applies the parameter update of a computed batch.
    pub(crate) fn update(&mut self, computed: Computed, key: StepKey, times: &mut Times) -> Result<()> {
        let batch = computed.mini_batch.key.map_or(0, |key| key.batch);
        let start = Instant::now();
        self.update_rows(&computed.mini_batch, key, times)?;
        self.record(BatchPart::Compute, batch, start, Instant::now());
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.give_back(computed.mini_batch);
        }
        Ok(())
    }

    /// Bytes in the memory of a device: those of the session, and of optimizer states of tables.
    pub fn device_bytes(&self) -> u64 {
        let states = self.arrays[self.names.len()..].iter().flatten().filter(|state| state.host().is_none());
        let elements = states.map(|state| state.store().num_rows() * state.store().width()).sum::<usize>();
        self.step.device_bytes() + 4 * elements as u64
    }

    /// Mini-batch session and the index of its program.
    pub fn step(&mut self) -> (&mut dyn Session, usize) {
        (&mut *self.step, STEP)
    }

    /// Text of the generated sampler.
    pub fn sampler_text(&self) -> String {
        self.loader.sampler_text()
    }
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batches({} in an epoch)", self.num_batches())
    }
}
