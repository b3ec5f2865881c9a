//! When the parts of batches were.

use std::time::Instant;

/// What is done for a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BatchPart {
    /// Sampling, beside the computation of other batches.
    Sample,
    /// Copying rows of features, likewise.
    Features,
    /// Making graphs of what was sampled, likewise.
    Graphs,
    /// Waiting for all of that.
    Wait,
    /// Computing values of hot vertices, which this batch and others take.
    Values,
    /// Planning the program for the sizes of the batch.
    Bind,
    /// Copying rows of parameters and optimiser states, there and back.
    Rows,
    /// Kernels, and taking over what they computed.
    Compute,
}

impl BatchPart {
    /// For text and reports.
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

    /// Is it done by the thread that makes batches, and not by the one that computes them?
    pub fn is_beside(self) -> bool {
        matches!(self, BatchPart::Sample | BatchPart::Features | BatchPart::Graphs)
    }
}

/// When something was done for a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchSpan {
    /// What.
    pub part: BatchPart,
    /// Number of the batch in its epoch.
    pub batch: u64,
    /// When it began.
    pub start: Instant,
    /// When it was done.
    pub end: Instant,
}
