//! Statistics of mini-batches, for reports and profiles.

use std::time::Instant;

use hgnnc_data::{Arena, BoundData, Result, Topology};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_loader::{BatchPart, BatchSpan, internal};
use hgnnc_session::Exchanged;

use super::Batches;
use super::historical_embeddings::HistoricalEmbeddings;
use crate::report::BatchReport;

impl Batches {
    /// Adds the time of a part of a batch to the totals, and records its span when tracing.
    pub(super) fn record(&mut self, part: BatchPart, batch: u64, start: Instant, end: Instant) {
        let totals = &mut self.totals;
        let ms = match part {
            BatchPart::Sample => &mut totals.sample_ms,
            BatchPart::Features => &mut totals.gather_ms,
            BatchPart::Graphs => &mut totals.graphs_ms,
            BatchPart::Wait => &mut totals.wait_ms,
            BatchPart::Bind => &mut totals.bind_ms,
            BatchPart::Rows => &mut totals.rows_ms,
            BatchPart::Compute => &mut totals.compute_ms,
            BatchPart::Values => &mut totals.values_ms,
        };
        *ms += 1e3 * (end - start).as_secs_f64();
        if let Some(spans) = &mut self.spans {
            spans.push(BatchSpan { part, batch, start, end });
        }
    }

    /// Resets the totals: means cover the batches from here on.
    pub fn forget_times(&mut self) {
        (self.totals, self.batches) = (BatchReport::default(), 0);
    }

    /// Starts recording spans of the parts of batches.
    pub fn trace_spans(&mut self) {
        self.spans = Some(vec![]);
    }

    /// Spans recorded since [`Batches::trace_spans`].
    pub fn end_spans(&mut self) -> Vec<BatchSpan> {
        self.spans.take().unwrap_or_default()
    }

    /// Sizes of the next batch, which is consumed without being computed.
    pub fn sizes_of_next(&mut self) -> Result<SizeInfo> {
        let pipeline = self.pipeline.as_mut().ok_or_else(|| internal("no batches are made"))?;
        let mut mini_batch = pipeline.wait()?;
        // Binding adds what kernels need, such as source counts and active vertices.
        let data = std::mem::take(&mut mini_batch.data);
        mini_batch.data = self.step.load(data, &mut mini_batch.inputs)?;
        let sizes = sizes_of(self.step.data());
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.give_back(mini_batch);
        }
        Ok(sizes)
    }

    /// Means over all batches so far.
    pub fn report(&self) -> BatchReport {
        let mean = |ms: f64| ms / self.batches.max(1) as f64;
        BatchReport {
            per_epoch: self.num_batches(),
            sample_ms: mean(self.totals.sample_ms),
            graphs_ms: mean(self.totals.graphs_ms),
            gather_ms: mean(self.totals.gather_ms),
            bind_ms: mean(self.totals.bind_ms),
            rows_ms: mean(self.totals.rows_ms),
            compute_ms: mean(self.totals.compute_ms),
            wait_ms: mean(self.totals.wait_ms),
            values_ms: mean(self.totals.values_ms),
            cache: self.cache.as_ref().map(|cache| cache.report(&self.loader)),
            reuse: self.reuse.as_ref().map(HistoricalEmbeddings::report),
        }
    }

    /// The exchanges of batches with other processes so far.
    pub fn exchanged(&self) -> Exchanged {
        let asked = Exchanged { sent_bytes: self.loader.sent_bytes(), ..Exchanged::default() };
        self.step.exchanged() + asked
    }

    /// Bytes that mini-batches have sent to other ranks.
    pub fn sent_by_steps(&self) -> u64 {
        self.exchanged().sent_bytes - self.sent_to_open
    }

    /// Planned memory of everything, with that of evaluations.
    pub fn arena(&self, whole: Arena) -> Arena {
        let step = self.largest;
        Arena {
            run: whole.run + step.run,
            fixed: whole.fixed + step.fixed,
            partials: whole.partials + step.partials,
            scratch: whole.scratch + step.scratch,
        }
    }
}

/// Sizes of a batch. Graphs that are never traversed from their sources have no CSR: their sources are counted here.
pub fn sizes_of(data: &BoundData) -> SizeInfo {
    let mut sizes = data.sizes();
    let sources = |topology: &Topology| {
        let mut sources = topology.csc.indices.clone();
        sources.sort_unstable();
        sources.dedup();
        sources.len() as u64
    };
    for (ends, graph) in sizes.ends.iter_mut().zip(&data.graphs) {
        if graph.csr.indptr.is_empty() {
            ends.sources = sources(graph);
        }
    }
    for (columns, pattern) in sizes.columns.iter_mut().zip(&data.patterns) {
        if pattern.csr.indptr.is_empty() {
            *columns = sources(pattern);
        }
    }
    sizes
}
