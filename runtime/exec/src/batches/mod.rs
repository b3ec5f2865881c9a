//! Training on batches: a sampled subgraph at a time ([`hgnnc_sample`]), evaluation on the whole graph.
//!
//! [`loader`] makes batches, [`pipeline`] makes them while others are computed. Two engines share the work: one has the
//! program of a batch and is bound to one after another, one has the whole graph. That one holds all parameters while
//! nothing is trained, and always those with a row for each vertex, of which a batch takes the rows of its vertices and
//! gives them back. So do their optimiser states; an optimiser moves only rows that a batch has, by the number of the step
//! (as SparseAdam of PyTorch does). Between both may be a fast memory of limited size ([`cache`]). Values of the bottom
//! layer may serve several batches ([`reuse`]).

mod cache;
mod historical_embeddings;
mod loader;
mod pairs;
mod param_sync;
mod pipeline;
mod spans;
mod stats;

pub use cache::CacheOptions;
pub use spans::{BatchPart, BatchSpan};

use std::sync::Arc;
use std::time::{Duration, Instant};

use hgnnc_ir::artifact::Artifact;
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::kernel::Program;
use hgnnc_sample::BatchKey;

use crate::buffer::HostBuffer;
use crate::data::{BoundData, InputData};
use crate::engine::{Engine, EngineOptions, collect_states};
use crate::error::{ExecError, Result};
use crate::exec_plan::Arena;
use crate::plan::StateId;
use crate::report::BatchReport;
use crate::times::Times;
use cache::{Cache, Learned, not_kept};
use historical_embeddings::{HistoricalEmbeddings, RefreshBatch};
use loader::{MiniBatch, MiniBatchLoader, WholeInput};
use param_sync::slow;
use pipeline::{Pipeline, Ready};

/// What cannot be.
fn internal(what: &str) -> ExecError {
    ExecError::Unsupported(format!("internal error: {what}"))
}

/// The program of a batch, in its engine.
const STEP: usize = 0;

/// Both engines, and what is between them.
pub(crate) struct Batches {
    /// Evaluates, and holds parameters.
    pub whole: Engine,
    step: Engine,
    program: Program,
    layout: BatchLayout,
    loader: Arc<MiniBatchLoader>,
    states: Vec<StateId>,
    /// Optimiser states, as large as their parameters. Those without rows are in the engine while it trains.
    state_slabs: Vec<HostBuffer>,
    /// Does the engine of batches have the parameters and states that are not of rows?
    in_step: bool,
    pipeline: Option<Pipeline>,
    /// What is asked of a fast memory, and the memory once there have been batches.
    cache_options: Option<CacheOptions>,
    cache: Option<Cache>,
    /// Values that several batches take.
    reuse: Option<HistoricalEmbeddings>,
    /// Memory of the largest batch so far.
    largest: Arena,
    /// What batches took, in all, in milliseconds, and how many they were.
    totals: BatchReport,
    batches: u64,
    /// When this was, if somebody wants to know.
    spans: Option<Vec<BatchSpan>>,
}

/// Where parameters and their rows are while batches are computed.
struct StepEngines<'b> {
    whole: &'b Engine,
    step: &'b Engine,
    cache: Option<&'b Cache>,
    /// What makes batches.
    loader: &'b MiniBatchLoader,
}

/// A batch that has been computed up to its loss.
pub(crate) struct Computed {
    mini_batch: Box<MiniBatch>,
    /// Mean over its seeds.
    pub loss: f64,
    /// How many these are.
    pub seeds: usize,
}

impl Batches {
    /// Of a model that is trained on batches, and the data of the whole graph.
    pub fn new(
        artifact: &Artifact,
        data: BoundData,
        options: EngineOptions,
        cache_options: Option<CacheOptions>,
    ) -> Result<Self> {
        let (Some(training), Some(program), Some(layout)) =
            (&artifact.training, &artifact.kernels.train, &artifact.batch)
        else {
            return Err(internal("the model has no program for batches"));
        };
        let Some(batch) = &training.batch else {
            return Err(internal("the model has no batches"));
        };
        if data.orders.any() {
            return Err(ExecError::Unsupported("batches take vertices in the order of the dataset only".into()));
        }
        let whole = Engine::new(&[&artifact.kernels.infer], data, options)?;
        let input = |(index, input): (usize, &InputData)| match (input, whole.frozen_input(index)) {
            (InputData::Classes(classes), _) => WholeInput::Classes(classes.clone()),
            (_, Some(numbers)) => WholeInput::Numbers(numbers),
            (_, None) => WholeInput::Nothing,
        };
        let inputs = whole.data().inputs.iter().enumerate().map(input).collect();
        let of_whole = (&artifact.infer, training);
        let mut loader = MiniBatchLoader::new(program, layout, batch, whole.data(), inputs, of_whole, options.code)?;
        if cache_options.is_some() {
            loader.gather_all();
        }
        let reuse = match (batch.reuse, &artifact.bottom) {
            (Some(reuse), Some(bottom)) => Some(HistoricalEmbeddings::new(reuse, bottom, &loader, options)?),
            (Some(_), None) => return Err(internal("the model has no program for what batches reuse")),
            (None, _) => None,
        };
        let step = Engine::new(&[program], loader.empty()?, options)?;
        let states = collect_states(&[program]);
        let mut batches = Self {
            whole,
            step,
            program: program.clone(),
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
        let lens: Vec<usize> = batches.states.iter().map(|state| batches.whole.param_len(state.0.index())).collect();
        batches.state_slabs = HostBuffer::zeros_each(lens);
        Ok(batches)
    }

    /// Number of batches of an epoch.
    pub fn num_batches(&self) -> u64 {
        self.loader.num_batches()
    }

    /// The optimiser states.
    pub fn states(&self) -> &[StateId] {
        &self.states
    }

    /// The elements of an optimiser state.
    pub fn state(&mut self, index: usize) -> &mut [f32] {
        self.store_dense_params();
        self.state_slabs[index].elements()
    }

    /// The elements of a parameter.
    pub fn param(&mut self, index: usize) -> &mut [f32] {
        self.store_dense_params();
        self.whole.param(index)
    }

    /// Seeds of a batch.
    pub fn size(&self) -> u64 {
        self.loader.size()
    }

    /// Begins to make batches: this one, and all after it before an epoch.
    pub fn begin(&mut self, first: BatchKey, epochs: u64) -> Result<()> {
        self.choose_hot(first.seed)?;
        if let (Some(options), None) = (self.cache_options, &self.cache) {
            self.make_cache(options, first.seed)?;
        }
        let values = self.reuse.as_mut().map(|reuse| {
            reuse.begin();
            (Arc::clone(&reuse.loader), reuse.options.batches)
        });
        self.pipeline = Some(Pipeline::new(Arc::clone(&self.loader), values, first, epochs)?);
        Ok(())
    }

    /// Chooses the vertices whose values batches reuse, if they do.
    fn choose_hot(&mut self, seed: u64) -> Result<()> {
        let Some(reuse) = self.reuse.as_mut().filter(|reuse| !reuse.chosen) else { return Ok(()) };
        let start = Instant::now();
        let (resting, hot) =
            historical_embeddings::choose(&self.loader, reuse.options.share, seed, self.step.threads())?;
        let loader = Arc::get_mut(&mut self.loader).ok_or_else(|| internal("batches are made already"))?;
        loader.rest(resting);
        reuse.note_choice(hot, start.elapsed().as_secs_f64());
        Ok(())
    }

    /// May a run pause after so many batches of an epoch, and another one go on? Not where the batches behind them take values
    /// that were computed with parameters which are gone.
    pub fn may_pause(&self, done: u64) -> bool {
        self.reuse.as_ref().is_none_or(|reuse| reuse.is_between(done, self.num_batches()))
    }

    /// Fills the fast memory for batches of this seed.
    fn make_cache(&mut self, options: CacheOptions, seed: u64) -> Result<()> {
        let num_params = self.step.num_params();
        let learned = |param: usize| {
            let vertex = self.rows_of(param)?;
            let of_param = (0..self.states.len()).filter(|&state| self.states[state].0.index() == param);
            let rows = self.whole.data().num_vertices[self.layout.vertices[vertex.index()].vertex.index()];
            Some(Learned {
                name: self.program.tables.params[param].name.clone(),
                vertex,
                arrays: std::iter::once(param).chain(of_param.map(|state| num_params + state)).collect(),
                width: self.whole.param_len(param) / rows.max(1),
                rows,
            })
        };
        let learned: Vec<Learned> = (0..num_params).filter_map(learned).collect();
        let (whole, states, threads) = (&self.whole, &self.state_slabs, self.step.threads());
        let slow = |array| slow(whole, states, array);
        let loader = Arc::get_mut(&mut self.loader).ok_or_else(|| internal("batches are made already"))?;
        let arrays = num_params + states.len();
        self.cache = Some(Cache::new(options, seed, loader, &learned, (&slow, arrays), threads)?);
        Ok(())
    }

    /// Samples an epoch that is not trained, and counts what it would need of the cache, if there is one.
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

    /// Vertex types with features that a cache would not keep.
    pub fn not_cached(&self) -> Vec<String> {
        if self.cache_options.is_some() { not_kept(&self.loader) } else { vec![] }
    }

    /// Are batches made?
    pub fn is_loading(&self) -> bool {
        self.pipeline.is_some()
    }

    /// No more batches are wanted.
    pub fn end(&mut self) {
        self.pipeline = None;
        self.store_dense_params();
    }

    /// Computes the next batch up to its loss.
    pub fn compute(&mut self, key: BatchKey, step: u64, times: &mut Times) -> Result<Computed> {
        let mut mini_batch = loop {
            let pipeline = self.pipeline.as_mut().ok_or_else(|| internal("no batches are made"))?;
            let start = Instant::now();
            let next = pipeline.next()?;
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

    /// Computes values that batches take, before a step.
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

    /// Takes the update of a computed batch over.
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

    /// The engine that computes batches, and its program.
    pub fn step(&mut self) -> (&mut Engine, usize) {
        (&mut self.step, STEP)
    }

    /// The Cranelift IR of the machine code that batches are sampled with, and that the first one is computed with.
    pub fn clif(&mut self) -> Result<String> {
        self.begin(BatchKey { seed: 0, epoch: 0, batch: 0 }, 1)?;
        if let Some(pipeline) = &mut self.pipeline {
            let mut mini_batch = loop {
                if let Ready::Batch(mini_batch) = pipeline.next()? {
                    break mini_batch;
                }
            };
            self.step.rebind(&[&self.program], std::mem::take(&mut mini_batch.data), &mut mini_batch.inputs)?;
        }
        self.end();
        Ok(self.loader.clif()? + &self.step.clif(&["train"])?)
    }
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batches({} in an epoch)", self.num_batches())
    }
}
