//! Spans of the parts of mini-batches.

use std::time::Instant;

/// Part of the work on a mini-batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BatchPart {
    /// Sampling, overlapped with the computation of other batches.
    Sample,
    /// Gathering feature rows, overlapped.
    Features,
    /// Building the sampled graphs, overlapped.
    Graphs,
    /// Waiting for the loader.
    Wait,
    /// Reading historical embeddings, and keeping those of this batch.
    Values,
    /// Planning the program for the sizes of the batch.
    Bind,
    /// Gathering rows of embedding tables, and those of optimizer states that their update does not gather itself.
    Rows,
    /// Kernels and the parameter commit.
    Compute,
}

impl BatchPart {
    /// Name in texts and reports.
    pub fn name(self) -> &'static str {
        match self {
            BatchPart::Sample => "sampling",
            BatchPart::Features => "features",
            BatchPart::Graphs => "graphs",
            BatchPart::Wait => "waiting",
            BatchPart::Values => "reused values",
            BatchPart::Bind => "binding",
            BatchPart::Rows => "rows",
            BatchPart::Compute => "computing",
        }
    }

    /// Whether the loader thread does it, not the training thread.
    pub fn is_beside(self) -> bool {
        matches!(self, BatchPart::Sample | BatchPart::Features | BatchPart::Graphs)
    }
}

/// Span of one part of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct BatchSpan {
    pub part: BatchPart,
    /// Index of the batch in its epoch.
    pub batch: u64,
    pub start: Instant,
    pub end: Instant,
}
