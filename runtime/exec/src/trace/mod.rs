//! Tracing of launches: per-thread spans ([`Spans`]) or hardware counters ([`counters`]). Both add overhead, so neither
//! is active in measured epochs.

pub mod counters;
mod spans;

pub use counters::{Event, Missing};
pub use spans::{KernelSpan, TaskSpan};

pub(crate) use counters::Counting;
pub(crate) use spans::Spans;

/// Active trace of an engine.
#[derive(Debug)]
pub(crate) enum Trace {
    Spans(Spans),
    Counts(Counting),
}

impl Trace {
    /// Span recorder, if spans are traced.
    pub fn spans(&self) -> Option<&Spans> {
        match self {
            Trace::Spans(spans) => Some(spans),
            Trace::Counts(_) => None,
        }
    }
}
