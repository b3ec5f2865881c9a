//! Computes and stores historical embeddings: see [`hgnnc_loader::historical_embeddings`].

use std::sync::Arc;
use std::time::Instant;

use hgnnc_data::Result;
use hgnnc_executable::{EmbeddingProducer, Role};
use hgnnc_ir::batch::{BatchInput, BatchLayout, HistoricalRows};
use hgnnc_ir::training;
use hgnnc_ir::types::VertexType;
use hgnnc_loader::pipeline::RefreshBatch;
use hgnnc_loader::{MiniBatch, MiniBatchLoader, internal};
use hgnnc_session::{Backend, Rows, Session, StepKey};
use hgnnc_trace::Times;

use super::{StepParams, store_of};
use crate::report::ReuseReport;

/// Index of the program of [`EmbeddingProducer`] in its session.
const VALUES: usize = 0;

/// Embeddings of the current super-batch, and the session that computes them.
pub(super) struct HistoricalEmbeddings {
    pub options: training::Reuse,
    session: Box<dyn Session>,
    layout: BatchLayout,
    /// Loader of the refresh batches.
    pub loader: Arc<MiniBatchLoader>,
    /// Embedding tables by [`hgnnc_ir::batch::BatchLayout::historical`] and value. `[rows, width]`
    tables: Vec<Vec<Vec<f32>>>,
    /// By [`hgnnc_ir::batch::BatchLayout::historical`] and row: the step before which the row was refreshed.
    steps: Vec<Vec<u64>>,
    /// Whether the hot vertices have been chosen.
    pub chosen: bool,
    report: ReuseReport,
}

impl HistoricalEmbeddings {
    /// Opens the refresh session for the batches of `loader`.
    pub fn new(
        options: training::Reuse,
        producer: &EmbeddingProducer,
        loader: &MiniBatchLoader,
        backend: &mut dyn Backend,
    ) -> Result<Self> {
        let mut of_producer = loader.of_producer(producer);
        if !backend.reads_host_memory() {
            of_producer.gather_all();
        }
        let tables: Vec<Vec<Vec<f32>>> =
            loader.layout().historical.iter().map(|reused| vec![vec![]; reused.values.len()]).collect();
        Ok(Self {
            options,
            session: backend.session(&[Role::Producer], of_producer.empty()?)?,
            layout: producer.layout.clone(),
            loader: Arc::new(of_producer),
            steps: vec![vec![]; tables.len()],
            tables,
            chosen: false,
            report: ReuseReport { share: options.share, batches: options.batches, ..ReuseReport::default() },
        })
    }

    /// Whether the next batch, after `done` of `num` in its epoch, reads no embedding computed earlier.
    pub fn is_between(&self, done: u64, num: u64) -> bool {
        done.is_multiple_of(self.options.batches) || done >= num
    }

    /// Refreshes the embeddings of the vertices of one refresh batch before a step.
    pub fn compute(&mut self, refresh: &mut RefreshBatch, from: &mut StepParams<'_>, key: StepKey) -> Result<()> {
        let start = Instant::now();
        let RefreshBatch { mini_batch, first, rows } = refresh;
        let data = std::mem::take(&mut mini_batch.data);
        mini_batch.data = self.session.load(data, &mut mini_batch.inputs)?;
        self.take_params(mini_batch, from)?;
        let times = &mut Times::default();
        self.session.run(VALUES, key, times)?;
        let layout = from.loader.layout();
        for (number, (tables, &(at, all))) in self.tables.iter_mut().zip(&*rows).enumerate() {
            for (value, table) in tables.iter_mut().enumerate() {
                let name = HistoricalRows::name(number, value);
                let Some(Rows { numbers, .. }) = self.session.read(VALUES, &name)? else {
                    return Err(internal(&format!("nothing computes `{name}`")));
                };
                let width = layout.historical[number].values[value];
                if *first {
                    // Discards the previous super-batch.
                    table.clear();
                    table.resize(all * width, f32::NAN);
                }
                let len = num_refreshed(mini_batch, number, from.loader) * width;
                table[at * width..][..len].copy_from_slice(&numbers[..len]);
            }
            if *first {
                self.steps[number].clear();
                self.steps[number].resize(all, 0);
            }
            let computed = num_refreshed(mini_batch, number, from.loader);
            self.steps[number][at..at + computed].fill(key.step);
            self.report.rows_computed += computed as u64;
        }
        self.report.edges_computed += mini_batch.edges as u64;
        self.report.seconds += start.elapsed().as_secs_f64();
        self.report.sample_s += mini_batch.seconds.iter().sum::<f64>();
        Ok(())
    }

    /// Copies the current parameters to the refresh session; of embedding tables only the rows of its vertices.
    fn take_params(&mut self, mini_batch: &MiniBatch, from: &mut StepParams<'_>) -> Result<()> {
        let mut numbers = vec![];
        for param in 0..self.session.params().num_params() {
            let layout = &self.layout;
            let Some((_, known)) = layout.rows.iter().find(|(of, _)| of.index() == param) else {
                numbers.resize(from.dense.len(param), 0.0);
                from.dense.read(param, &mut numbers)?;
                self.session.params().write(param, &numbers)?;
                continue;
            };
            let Some(of_batch) = layout.vertices.iter().position(|other| other == known) else { continue };
            let vertices = self.loader.vertices(&mini_batch.sampled, VertexType::new(of_batch));
            let params = self.session.params();
            params.gather_rows(param, vertices, &*store_of(from.arrays, from.cache, param)?)?;
        }
        Ok(())
    }

    /// Gathers the embeddings that a batch reads into its inputs, before a step.
    pub fn give(&mut self, mini_batch: &mut MiniBatch, loader: &MiniBatchLoader, step: u64) {
        for (index, input) in loader.layout().inputs.iter().enumerate() {
            let &BatchInput::Historical { rows, value } = input else { continue };
            let width = loader.layout().historical[rows].values[value];
            let (reused_rows, table) = (&mini_batch.reused_rows[rows], &self.tables[rows][value]);
            let into = mini_batch.inputs[index].elements();
            for (to, &row) in into.chunks_exact_mut(width.max(1)).zip(&reused_rows.from) {
                to.copy_from_slice(&table[row as usize * width..][..width]);
            }
        }
        for (reused_rows, steps) in mini_batch.reused_rows.iter().zip(&self.steps) {
            let oldest = reused_rows.from.iter().map(|&row| step - steps[row as usize]).max();
            self.report.oldest = self.report.oldest.max(oldest.unwrap_or(0));
            self.report.rows_taken += reused_rows.len() as u64;
        }
        self.report.edges_sampled += mini_batch.edges as u64;
        self.report.edges_not_drawn +=
            mini_batch.reused_rows.iter().map(|reused_rows| reused_rows.edges_not_drawn).sum::<u64>();
    }

    /// Statistics of the run so far.
    pub fn report(&self) -> ReuseReport {
        let saved = self.report.edges_not_drawn as i64 - self.report.edges_computed as i64;
        ReuseReport { edges_saved: saved, ..self.report.clone() }
    }

    /// Empties the tables at the start of a run.
    pub fn begin(&mut self) {
        self.tables.iter_mut().flatten().for_each(Vec::clear);
        self.steps.iter_mut().for_each(Vec::clear);
    }

    /// Records the number of hot vertices and the seconds of choosing them.
    pub fn note_choice(&mut self, hot: u64, seconds: f64) {
        (self.chosen, self.report.hot, self.report.choose_s) = (true, hot, seconds);
    }
}

/// Number of vertices of a table in a refresh batch.
fn num_refreshed(mini_batch: &MiniBatch, number: usize, loader: &MiniBatchLoader) -> usize {
    let layout = loader.layout();
    let vertex_type = layout.vertices[layout.historical[number].of.index()].vertex.index();
    mini_batch.sampled.known[0][vertex_type] as usize
}
