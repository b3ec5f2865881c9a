//! Mini-batch training: a sampled subgraph per step, evaluation on the full graph.
//!
//! [`hgnnc_loader`] prepares batches ahead of training. Two engines share the work: one runs the mini-batch program and
//! is rebound to each batch; the other holds the full graph, evaluates, and holds all parameters while training is
//! paused ([`param_sync`]). Embedding tables (one row per vertex) always stay there: each batch gathers the rows of its
//! vertices and scatters the updated rows back, with their optimizer states; the optimizer updates only rows in the
//! batch, using the global step (as PyTorch's SparseAdam does). A feature cache may sit between the engines. Batches may
//! read historical embeddings of the bottom layer ([`historical_embeddings`]).

mod historical_embeddings;
mod param_sync;
mod stats;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hgnnc_cpu::{Engine, EngineOptions};
use hgnnc_data::buffer::HostBuffer;
use hgnnc_data::tables::collect_states;
use hgnnc_data::{Arena, BoundData, ExecError, InputData, Result, StateId};
use hgnnc_executable::Executable;
use hgnnc_executable::cpu::CpuPrograms;
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::loops::VerifiedLoops;
use hgnnc_loader::cache::{Cache, EmbeddingTable, not_kept};
use hgnnc_loader::historical_embeddings::{choose, make_super_batches};
use hgnnc_loader::loader::GraphInput;
use hgnnc_loader::pipeline::{RefreshBatch, make_all};
use hgnnc_loader::{BatchPart, BatchSpan, CacheOptions, MiniBatch, MiniBatchLoader, Pipeline, Ready, internal};
use hgnnc_sample::BatchKey;
use hgnnc_trace::Times;

use crate::report::BatchReport;
use historical_embeddings::HistoricalEmbeddings;
use param_sync::slow;

/// Index of the mini-batch program in its engine.
const STEP: usize = 0;

/// Mini-batch trainer state: both engines, loader and caches.
pub(crate) struct Batches {
    /// Full-graph engine: evaluates, and holds parameters.
    pub whole: Engine,
    step: Engine,
    program: VerifiedLoops,
    layout: BatchLayout,
    loader: Arc<MiniBatchLoader>,
    states: Vec<StateId>,
    /// Full-size optimizer states. Those of dense parameters are in the mini-batch engine while it trains.
    state_slabs: Vec<HostBuffer>,
    /// Whether the mini-batch engine has the current dense parameters.
    in_step: bool,
    pipeline: Option<Pipeline>,
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

/// Engines and cache, which together hold the current parameters during a step.
struct StepEngines<'b> {
    whole: &'b Engine,
    step: &'b Engine,
    cache: Option<&'b Cache>,
    /// Loader of the batches.
    loader: &'b MiniBatchLoader,
}

/// A batch computed up to its loss.
pub(crate) struct Computed {
    mini_batch: Box<MiniBatch>,
    /// Mean loss over the seed vertices.
    pub loss: f64,
    /// Number of seed vertices.
    pub seeds: usize,
}

impl Batches {
    /// Creates both engines for a model with mini-batches and the data of the full graph.
    pub fn new(
        (executable, cpu): (&Executable, &CpuPrograms),
        data: BoundData,
        options: EngineOptions,
        cache_options: Option<CacheOptions>,
    ) -> Result<Self> {
        let (Some(training), Some(program), Some(layout)) = (&executable.training, &cpu.train, &executable.batch)
        else {
            return Err(internal("the model has no program for batches"));
        };
        let Some(batch) = &training.batch else {
            return Err(internal("the model has no batches"));
        };
        if data.orders.any() {
            return Err(ExecError::Unsupported("batches take vertices in the order of the dataset only".into()));
        }
        let whole = Engine::new(&[&cpu.infer], data, options)?;
        let input = |(index, input): (usize, &InputData)| match (input, whole.frozen_input(index)) {
            (InputData::Classes(classes), _) => GraphInput::Classes(classes.clone()),
            (_, Some(numbers)) => GraphInput::Numbers(numbers),
            (_, None) => GraphInput::Nothing,
        };
        let inputs = whole.data().inputs.iter().enumerate().map(input).collect();
        let (kernels, of_whole) = (&program.loops.kernels, (&executable.infer, training));
        let mut loader =
            MiniBatchLoader::new(kernels, layout, batch, whole.data(), inputs, of_whole, cpu.sampler.as_ref())?;
        if cache_options.is_some() {
            loader.gather_all();
        }
        let reuse = match (batch.reuse, &executable.producer, &cpu.producer) {
            (Some(reuse), Some(producer), Some(program)) => {
                Some(HistoricalEmbeddings::new(reuse, (producer, program), &loader, options)?)
            }
            (Some(_), ..) => return Err(internal("the model has no program for what batches reuse")),
            (None, ..) => None,
        };
        let step = Engine::new(&[program], loader.empty()?, options)?;
        let states = collect_states(&[kernels]);
        let mut batches = Self {
            whole,
            step,
            program: program.loops.clone(),
            layout: layout.clone(),
            loader: Arc::new(loader),
            states,
            state_slabs: vec![],
            in_step: false,
            pipeline: None,
            cache_options,
            cache: None,
            reuse,
            largest: Arena::default(),
            totals: BatchReport::default(),
            batches: 0,
            spans: None,
        };
        // Stacks of parameters are those of the program of batches.
        let len = |state: &StateId| match state.0.index() {
            param if param < batches.whole.num_params() => batches.whole.param_len(param),
            stack => batches.step.param_len(stack),
        };
        let lens: Vec<usize> = batches.states.iter().map(len).collect();
        batches.state_slabs = HostBuffer::zeros_each(lens);
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

    /// Elements of an optimizer state.
    pub fn state(&mut self, index: usize) -> &mut [f32] {
        self.store_dense_params();
        self.state_slabs[index].elements()
    }

    /// Elements of a parameter.
    pub fn param(&mut self, index: usize) -> &mut [f32] {
        self.store_dense_params();
        self.whole.param(index)
    }

    /// Seed vertices per batch.
    pub fn size(&self) -> u64 {
        self.loader.size()
    }

    /// Starts loading batches from `first` to the last of epoch `epochs - 1`.
    pub fn begin(&mut self, first: BatchKey, epochs: u64) -> Result<()> {
        self.choose_hot(first.seed)?;
        if let (Some(options), None) = (self.cache_options, &self.cache) {
            self.make_cache(options, first.seed)?;
        }
        let loader = Arc::clone(&self.loader);
        self.pipeline = Some(match &mut self.reuse {
            None => Pipeline::new(move |line| make_all(&loader, first, epochs, line))?,
            Some(reuse) => {
                reuse.begin();
                let (refresh, size) = (Arc::clone(&reuse.loader), reuse.options.batches);
                Pipeline::new(move |line| make_super_batches((&loader, &refresh), first, epochs, size, line))?
            }
        });
        Ok(())
    }

    /// Chooses the hot vertices for historical embeddings on first use.
    fn choose_hot(&mut self, seed: u64) -> Result<()> {
        let Some(reuse) = self.reuse.as_mut().filter(|reuse| !reuse.chosen) else { return Ok(()) };
        let start = Instant::now();
        let (resting, hot) = choose(&self.loader, reuse.options.share, seed, self.step.threads())?;
        let loader = Arc::get_mut(&mut self.loader).ok_or_else(|| internal("batches are made already"))?;
        loader.rest(resting);
        reuse.note_choice(hot, start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Whether a run may pause after this many batches of an epoch and another continue: not while the next batches
    /// read embeddings computed with earlier parameters.
    pub fn may_pause(&self, done: u64) -> bool {
        self.reuse.as_ref().is_none_or(|reuse| reuse.is_between(done, self.num_batches()))
    }

    /// Presamples and fills the feature cache.
    fn make_cache(&mut self, options: CacheOptions, seed: u64) -> Result<()> {
        let num_params = self.step.num_params();
        let learned = |param: usize| {
            let vertex = self.rows_of(param)?;
            let of_param = (0..self.states.len()).filter(|&state| self.states[state].0.index() == param);
            let rows = self.whole.data().num_vertices[self.layout.vertices[vertex.index()].vertex.index()];
            Some(EmbeddingTable {
                name: self.program.kernels.tables.params[param].name.clone(),
                vertex,
                arrays: std::iter::once(param).chain(of_param.map(|state| num_params + state)).collect(),
                width: self.whole.param_len(param) / rows.max(1),
                rows,
            })
        };
        let learned: Vec<EmbeddingTable> = (0..num_params).filter_map(learned).collect();
        let (whole, states, threads) = (&self.whole, &self.state_slabs, self.step.threads());
        let slow = |array| slow(whole, states, array);
        let loader = Arc::get_mut(&mut self.loader).ok_or_else(|| internal("batches are made already"))?;
        let arrays = num_params + states.len();
        self.cache = Some(Cache::new(options, seed, loader, &learned, (&slow, arrays), threads)?);
        Ok(())
    }

    /// Samples an untrained epoch and counts its cache accesses, if there is a cache.
    pub fn simulate_cache(&mut self, seed: u64, epoch: u64) -> Result<()> {
        let Some(options) = self.cache_options else { return Ok(()) };
        self.choose_hot(seed)?;
        if self.cache.is_none() {
            self.make_cache(options, seed)?;
        }
        let (loader, cache) = (&self.loader, &mut self.cache);
        let (order, mut worker, mut mini_batch) = (loader.order(seed, epoch), loader.worker()?, MiniBatch::default());
        for batch in 0..loader.num_batches() {
            loader.sample(&mut worker, &order, BatchKey { seed, epoch, batch }, &mut mini_batch)?;
            if let Some(cache) = cache {
                cache.count(loader, &mini_batch.sampled);
            }
        }
        Ok(())
    }

    /// Vertex types with features that the cache does not support.
    pub fn not_cached(&self) -> Vec<String> {
        if self.cache_options.is_some() { not_kept(&self.loader) } else { vec![] }
    }

    /// Whether batches are being loaded.
    pub fn is_loading(&self) -> bool {
        self.pipeline.is_some()
    }

    /// Stops loading and moves the parameters back to the full-graph engine.
    pub fn end(&mut self) {
        self.pipeline = None;
        self.store_dense_params();
    }

    /// Computes the next batch up to its loss.
    pub fn compute(&mut self, key: BatchKey, step: u64, times: &mut Times) -> Result<Computed> {
        let mut mini_batch = loop {
            let pipeline = self.pipeline.as_mut().ok_or_else(|| internal("no batches are made"))?;
            let start = Instant::now();
            let next = pipeline.wait()?;
            let waited = Instant::now();
            self.record(BatchPart::Wait, key.batch, start, waited);
            match next {
                Ready::Batch(mini_batch) => break mini_batch,
                Ready::Refresh(refresh) => {
                    self.compute_refresh(refresh, key, step)?;
                    self.record(BatchPart::Values, key.batch, waited, Instant::now());
                }
            }
        };
        assert_eq!(mini_batch.key, Some(key), "batches are made in the order in which they are computed");
        let [sample, graphs, features] = mini_batch.seconds.map(Duration::from_secs_f64);
        if let Some(at) = mini_batch.began[0] {
            self.record(BatchPart::Sample, key.batch, at, at + sample);
        }
        if let Some(at) = mini_batch.began[1] {
            self.record(BatchPart::Features, key.batch, at, at + features);
            self.record(BatchPart::Graphs, key.batch, at + features, at + features + graphs);
        }
        self.batches += 1;
        self.load_dense_params();
        let start = Instant::now();
        if let Some(reuse) = &mut self.reuse {
            reuse.give(&mut mini_batch, &self.loader, step);
        }
        let data = std::mem::take(&mut mini_batch.data);
        mini_batch.data = self.step.rebind(&[&self.program], data, &mut mini_batch.inputs)?;
        self.record(BatchPart::Bind, key.batch, start, Instant::now());
        let arena = self.step.arena(None);
        if arena.bytes() > self.largest.bytes() {
            self.largest = arena;
        }
        let start = Instant::now();
        if let Some(cache) = &mut self.cache {
            cache.count(&self.loader, &mini_batch.sampled);
        }
        self.copy_embedding_rows(&mini_batch, true);
        self.record(BatchPart::Rows, key.batch, start, Instant::now());
        let start = Instant::now();
        self.step.run_prelude(STEP, times);
        self.step.run_until_update(STEP, key.seed, step, key.epoch, times);
        self.record(BatchPart::Compute, key.batch, start, Instant::now());
        let loss = match self.step.result(STEP, "loss") {
            Some((_, [loss])) => f64::from(*loss),
            _ => return Err(ExecError::Unsupported("the training program has no scalar result `loss`".into())),
        };
        let seeds = mini_batch.seeds;
        Ok(Computed { mini_batch, loss, seeds })
    }

    /// Refreshes the historical embeddings of some vertices before a step.
    fn compute_refresh(&mut self, mut refresh: Box<RefreshBatch>, key: BatchKey, step: u64) -> Result<()> {
        self.load_dense_params();
        let Some(reuse) = &mut self.reuse else { return Err(internal("nobody reuses values")) };
        let (whole, step_engine, loader) = (&self.whole, &self.step, &self.loader);
        let from = StepEngines { whole, step: step_engine, cache: self.cache.as_ref(), loader };
        reuse.compute(&mut refresh, &from, (key.seed, step, key.epoch))?;
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.give_back_refresh(refresh);
        }
        Ok(())
    }

    /// Applies the parameter update of a computed batch.
    pub fn update(&mut self, computed: Computed, seed: u64, step: u64, times: &mut Times) {
        let batch = computed.mini_batch.key.map_or(0, |key| key.batch);
        let start = Instant::now();
        self.step.run_updates(STEP, seed, step, times);
        self.step.commit(STEP);
        self.record(BatchPart::Compute, batch, start, Instant::now());
        let start = Instant::now();
        self.copy_embedding_rows(&computed.mini_batch, false);
        self.record(BatchPart::Rows, batch, start, Instant::now());
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.give_back(computed.mini_batch);
        }
    }

    /// Mini-batch engine and program index.
    pub fn step(&mut self) -> (&mut Engine, usize) {
        (&mut self.step, STEP)
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
