//! Training on batches: a sampled subgraph at a time ([`hgnnc_sample`]), evaluation on the whole graph.
//!
//! [`source`] makes batches, [`pipeline`] makes them while others are computed. Two engines share the work: one has the
//! program of a batch and is bound to one after another, one has the whole graph. That one holds all parameters while
//! nothing is trained, and always those with a row for each vertex, of which a batch takes the rows of its vertices and
//! gives them back. So do their optimiser states; an optimiser moves only rows that a batch has, by the number of the step
//! (as SparseAdam of PyTorch does). Between both may be a fast memory of limited size ([`cache`]). Values of the bottom
//! layer may serve several batches ([`reuse`]).

mod cache;
mod moves;
mod pairs;
mod pipeline;
mod reuse;
mod source;
mod spans;
mod tell;

pub use cache::CacheOptions;
pub use spans::{BatchPart, BatchSpan};

use std::sync::Arc;
use std::time::{Duration, Instant};

use hgnnc_ir::artifact::Artifact;
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::kernel::Program;
use hgnnc_sample::BatchKey;

use crate::data::{BoundData, InputData};
use crate::engine::{Engine, EngineOptions, collect_states};
use crate::error::{ExecError, Result};
use crate::plan::StateId;
use crate::planned::Arena;
use crate::raw::Slab;
use crate::report::BatchReport;
use crate::times::Times;
use cache::{Cache, Learned, not_kept};
use moves::slow;
use pipeline::{Pipeline, Ready};
use reuse::{Reuse, Wanted};
use source::{Made, Source, Whole};

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
    source: Arc<Source>,
    states: Vec<StateId>,
    /// Optimiser states, as large as their parameters. Those without rows are in the engine while it trains.
    state_slabs: Vec<Slab>,
    /// Does the engine of batches have the parameters and states that are not of rows?
    in_step: bool,
    pipeline: Option<Pipeline>,
    /// What is asked of a fast memory, and the memory once there have been batches.
    cache_options: Option<CacheOptions>,
    cache: Option<Cache>,
    /// Values that several batches take.
    reuse: Option<Reuse>,
    /// Memory of the largest batch so far.
    largest: Arena,
    /// What batches took, in all, in milliseconds, and how many they were.
    took: BatchReport,
    batches: u64,
    /// When this was, if somebody wants to know.
    spans: Option<Vec<BatchSpan>>,
}

/// Where parameters and their rows are while batches are computed.
struct Whereabouts<'b> {
    whole: &'b Engine,
    step: &'b Engine,
    cache: Option<&'b Cache>,
    /// What makes batches.
    source: &'b Source,
}

/// A batch that has been computed up to its loss.
pub(crate) struct Computed {
    made: Box<Made>,
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
            (InputData::Classes(classes), _) => Whole::Classes(classes.clone()),
            (_, Some(numbers)) => Whole::Numbers(numbers),
            (_, None) => Whole::Nothing,
        };
        let inputs = whole.data().inputs.iter().enumerate().map(input).collect();
        let of_whole = (&artifact.infer, training);
        let mut source = Source::new(program, layout, batch, whole.data(), inputs, of_whole, options.code)?;
        if cache_options.is_some() {
            source.gather_all();
        }
        let reuse = match (batch.reuse, &artifact.bottom) {
            (Some(reuse), Some(bottom)) => Some(Reuse::new(reuse, bottom, &source, options)?),
            (Some(_), None) => return Err(internal("the model has no program for what batches reuse")),
            (None, _) => None,
        };
        let step = Engine::new(&[program], source.empty()?, options)?;
        let states = collect_states(&[program]);
        let mut batches = Self {
            whole,
            step,
            program: program.clone(),
            layout: layout.clone(),
            source: Arc::new(source),
            states,
            state_slabs: vec![],
            in_step: false,
            pipeline: None,
            cache_options,
            cache: None,
            reuse,
            largest: Arena::default(),
            took: BatchReport::default(),
            batches: 0,
            spans: None,
        };
        let lens: Vec<usize> = batches.states.iter().map(|state| batches.whole.param_len(state.0.index())).collect();
        batches.state_slabs = Slab::zeros_each(lens);
        Ok(batches)
    }

    /// Number of batches of an epoch.
    pub fn num_batches(&self) -> u64 {
        self.source.num_batches()
    }

    /// The optimiser states.
    pub fn states(&self) -> &[StateId] {
        &self.states
    }

    /// The elements of an optimiser state.
    pub fn state(&mut self, index: usize) -> &mut [f32] {
        self.bring_back();
        self.state_slabs[index].elements()
    }

    /// The elements of a parameter.
    pub fn param(&mut self, index: usize) -> &mut [f32] {
        self.bring_back();
        self.whole.param(index)
    }

    /// Seeds of a batch.
    pub fn size(&self) -> u64 {
        self.source.size()
    }

    /// Begins to make batches: this one, and all after it before an epoch.
    pub fn begin(&mut self, first: BatchKey, epochs: u64) -> Result<()> {
        self.choose_hot(first.seed)?;
        if let (Some(options), None) = (self.cache_options, &self.cache) {
            self.make_cache(options, first.seed)?;
        }
        let values = self.reuse.as_mut().map(|reuse| {
            reuse.begin();
            (Arc::clone(&reuse.source), reuse.options.batches)
        });
        self.pipeline = Some(Pipeline::new(Arc::clone(&self.source), values, first, epochs)?);
        Ok(())
    }

    /// Chooses the vertices whose values batches reuse, if they do.
    fn choose_hot(&mut self, seed: u64) -> Result<()> {
        let Some(reuse) = self.reuse.as_mut().filter(|reuse| !reuse.chosen) else { return Ok(()) };
        let start = Instant::now();
        let (resting, hot) = reuse::choose(&self.source, reuse.options.share, seed, self.step.threads())?;
        let source = Arc::get_mut(&mut self.source).ok_or_else(|| internal("batches are made already"))?;
        source.rest(resting);
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
        let source = Arc::get_mut(&mut self.source).ok_or_else(|| internal("batches are made already"))?;
        let arrays = num_params + states.len();
        self.cache = Some(Cache::new(options, seed, source, &learned, (&slow, arrays), threads)?);
        Ok(())
    }

    /// Samples an epoch that is not trained, and counts what it would need of the cache, if there is one.
    pub fn foresee(&mut self, seed: u64, epoch: u64) -> Result<()> {
        let Some(options) = self.cache_options else { return Ok(()) };
        self.choose_hot(seed)?;
        if self.cache.is_none() {
            self.make_cache(options, seed)?;
        }
        let (source, cache) = (&self.source, &mut self.cache);
        let (order, mut maker, mut made) = (source.order(seed, epoch), source.maker()?, Made::default());
        for batch in 0..source.num_batches() {
            source.sample(&mut maker, &order, BatchKey { seed, epoch, batch }, &mut made)?;
            if let Some(cache) = cache {
                cache.count(source, &made.sampled);
            }
        }
        Ok(())
    }

    /// Vertex types with features that a cache would not keep.
    pub fn not_cached(&self) -> Vec<String> {
        if self.cache_options.is_some() { not_kept(&self.source) } else { vec![] }
    }

    /// Are batches made?
    pub fn is_making(&self) -> bool {
        self.pipeline.is_some()
    }

    /// No more batches are wanted.
    pub fn end(&mut self) {
        self.pipeline = None;
        self.bring_back();
    }

    /// Computes the next batch up to its loss.
    pub fn compute(&mut self, key: BatchKey, step: u64, times: &mut Times) -> Result<Computed> {
        let mut made = loop {
            let pipeline = self.pipeline.as_mut().ok_or_else(|| internal("no batches are made"))?;
            let start = Instant::now();
            let next = pipeline.next()?;
            let waited = Instant::now();
            self.took(BatchPart::Wait, key.batch, start, waited);
            match next {
                Ready::Batch(made) => break made,
                Ready::Wanted(wanted) => {
                    self.compute_wanted(wanted, key, step)?;
                    self.took(BatchPart::Values, key.batch, waited, Instant::now());
                }
            }
        };
        assert_eq!(made.key, Some(key), "batches are made in the order in which they are computed");
        let [sample, graphs, features] = made.seconds.map(Duration::from_secs_f64);
        if let Some(at) = made.began[0] {
            self.took(BatchPart::Sample, key.batch, at, at + sample);
        }
        if let Some(at) = made.began[1] {
            self.took(BatchPart::Features, key.batch, at, at + features);
            self.took(BatchPart::Graphs, key.batch, at + features, at + features + graphs);
        }
        self.batches += 1;
        self.hand_over();
        let start = Instant::now();
        if let Some(reuse) = &mut self.reuse {
            reuse.give(&mut made, &self.source, step);
        }
        let data = std::mem::take(&mut made.data);
        made.data = self.step.rebind(&[&self.program], data, &mut made.inputs)?;
        self.took(BatchPart::Bind, key.batch, start, Instant::now());
        let arena = self.step.arena(None);
        if arena.bytes() > self.largest.bytes() {
            self.largest = arena;
        }
        let start = Instant::now();
        if let Some(cache) = &mut self.cache {
            cache.count(&self.source, &made.sampled);
        }
        self.rows(&made, true);
        self.took(BatchPart::Rows, key.batch, start, Instant::now());
        let start = Instant::now();
        self.step.run_prelude(STEP, times);
        self.step.run_until_update(STEP, key.seed, step, key.epoch, times);
        self.took(BatchPart::Compute, key.batch, start, Instant::now());
        let loss = match self.step.result(STEP, "loss") {
            Some((_, [loss])) => f64::from(*loss),
            _ => return Err(ExecError::Unsupported("the training program has no scalar result `loss`".into())),
        };
        let seeds = made.seeds;
        Ok(Computed { made, loss, seeds })
    }

    /// Computes values that batches take, before a step.
    fn compute_wanted(&mut self, mut wanted: Box<Wanted>, key: BatchKey, step: u64) -> Result<()> {
        self.hand_over();
        let Some(reuse) = &mut self.reuse else { return Err(internal("nobody reuses values")) };
        let (whole, step_engine, source) = (&self.whole, &self.step, &self.source);
        let from = Whereabouts { whole, step: step_engine, cache: self.cache.as_ref(), source };
        reuse.compute(&mut wanted, &from, (key.seed, step, key.epoch))?;
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.give_back_wanted(wanted);
        }
        Ok(())
    }

    /// Takes the update of a computed batch over.
    pub fn update(&mut self, computed: Computed, seed: u64, step: u64, times: &mut Times) {
        let batch = computed.made.key.map_or(0, |key| key.batch);
        let start = Instant::now();
        self.step.run_updates(STEP, seed, step, times);
        self.step.commit(STEP);
        self.took(BatchPart::Compute, batch, start, Instant::now());
        let start = Instant::now();
        self.rows(&computed.made, false);
        self.took(BatchPart::Rows, batch, start, Instant::now());
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.give_back(computed.made);
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
            let mut made = loop {
                if let Ready::Batch(made) = pipeline.next()? {
                    break made;
                }
            };
            self.step.rebind(&[&self.program], std::mem::take(&mut made.data), &mut made.inputs)?;
        }
        self.end();
        Ok(self.source.clif()? + &self.step.clif(&["train"])?)
    }
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batches({} in an epoch)", self.num_batches())
    }
}
