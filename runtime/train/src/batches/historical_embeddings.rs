//! Keeps historical embeddings, and gives them to later batches: see [`hgnnc_loader::historical_embeddings`].

// Stores are made whose rows are written; see `hgnnc_session::HostRows`.
#![allow(unsafe_code)]

use hgnnc_data::Result;
use hgnnc_data::buffer::HostBuffer;
use hgnnc_ir::batch::{BatchInput, BatchLayout, HistoricalRows};
use hgnnc_ir::training;
use hgnnc_loader::{MiniBatch, internal};
use hgnnc_session::{HostRows, RowStore, Rows, Session};

use crate::report::ReuseReport;

/// The embeddings that the batches of a window have kept so far.
pub(super) struct HistoricalEmbeddings {
    pub options: training::Reuse,
    /// Elements of a row, by [`BatchLayout::historical`] and value.
    widths: Vec<Vec<usize>>,
    /// By [`BatchLayout::historical`] and value, once the hot vertices are known: a row for each of them.
    tables: Vec<Vec<Box<dyn RowStore>>>,
    /// By [`BatchLayout::historical`] and row: the step that computed it.
    steps: Vec<Vec<u64>>,
    /// Rows that a batch keeps.
    kept: Vec<f32>,
    /// Whether the hot vertices have been chosen.
    pub chosen: bool,
    report: ReuseReport,
}

impl HistoricalEmbeddings {
    /// Empty tables for the batches of a layout.
    pub fn new(options: training::Reuse, layout: &BatchLayout) -> Self {
        let widths: Vec<Vec<usize>> = layout.historical.iter().map(|reused| reused.values.clone()).collect();
        Self {
            options,
            tables: vec![],
            steps: vec![vec![]; widths.len()],
            widths,
            kept: vec![],
            chosen: false,
            report: ReuseReport { share: options.share, batches: options.batches, ..ReuseReport::default() },
        }
    }

    /// Whether the next batch, after `done` of `num` in its epoch, starts a window.
    pub fn is_between(&self, done: u64, num: u64) -> bool {
        done.is_multiple_of(self.options.batches) || done >= num
    }

    /// Copies the embeddings that a batch reads into its inputs, before a step.
    pub fn give(&mut self, mini_batch: &mut MiniBatch, layout: &BatchLayout, step: u64) -> Result<()> {
        for (index, input) in layout.inputs.iter().enumerate() {
            let &BatchInput::Historical { rows, value } = input else { continue };
            let (from, table) = (&mini_batch.reused_rows[rows].from, &self.tables[rows][value]);
            let into = mini_batch.inputs[index].elements();
            table.read(from, &mut into[..from.len() * table.width()])?;
        }
        for (reused_rows, steps) in mini_batch.reused_rows.iter().zip(&self.steps) {
            let oldest = reused_rows.from.iter().map(|&row| step - steps[row as usize]).max();
            self.report.oldest = self.report.oldest.max(oldest.unwrap_or(0));
            self.report.rows_taken += reused_rows.len() as u64;
            self.report.edges_saved += reused_rows.edges_not_drawn;
        }
        self.report.edges_sampled += mini_batch.edges as u64;
        Ok(())
    }

    /// Copies the embeddings that a batch has computed for later ones, after its step.
    pub fn keep(
        &mut self,
        mini_batch: &MiniBatch,
        (session, program): (&mut dyn Session, usize),
        step: u64,
    ) -> Result<()> {
        for (number, reused_rows) in mini_batch.reused_rows.iter().enumerate() {
            // The first row of a table starts a window.
            let Some(&first) = reused_rows.to.first() else { continue };
            let len = first as usize + reused_rows.kept.len();
            self.steps[number].resize(first as usize, 0);
            self.steps[number].resize(len, step);
            for (value, table) in self.tables[number].iter().enumerate() {
                let name = HistoricalRows::name(number, value);
                let Some(Rows { numbers, .. }) = session.read(program, &name)? else {
                    return Err(internal(&format!("nothing computes `{name}`")));
                };
                self.kept.clear();
                for &row in &reused_rows.kept {
                    self.kept.extend_from_slice(&numbers[row as usize * table.width()..][..table.width()]);
                }
                // Each row of the table is kept once in a window.
                table.write(&reused_rows.to, &self.kept)?;
            }
            self.report.rows_kept += reused_rows.kept.len() as u64;
        }
        Ok(())
    }

    /// Statistics of the run so far.
    pub fn report(&self) -> ReuseReport {
        self.report.clone()
    }

    /// Forgets the kept embeddings at the start of a run.
    pub fn begin(&mut self) {
        self.steps.iter_mut().for_each(Vec::clear);
    }

    /// Makes room for the embeddings of the hot vertices; records their number and the seconds of choosing them.
    pub fn note_choice(&mut self, hot: &[usize], seconds: f64) {
        let table = |rows: usize, width: usize| -> Box<dyn RowStore> {
            // SAFETY: rows are kept by one thread, after the batch that computed them, and given before the next one runs.
            Box::new(unsafe { HostRows::new(HostBuffer::zeros(rows * width), width) })
        };
        let tables = hot.iter().zip(&self.widths);
        self.tables = tables.map(|(&rows, widths)| widths.iter().map(|&width| table(rows, width)).collect()).collect();
        (self.chosen, self.report.hot, self.report.choose_s) = (true, hot.iter().sum::<usize>() as u64, seconds);
    }
}
