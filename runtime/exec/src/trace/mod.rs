//! Looks at the launches of an engine more closely than training does: who does what when ([`Spans`]), or what the
//! processor counts meanwhile ([`counters`]). Both take time of their own, so neither is done in epochs that are measured.

pub mod counters;
mod spans;

pub use counters::{Event, Missing};
pub use spans::{KernelSpan, TaskSpan};

pub(crate) use counters::Counting;
pub(crate) use spans::Spans;

/// What is looked at in the launches of an engine.
#[derive(Debug)]
pub(crate) enum Trace {
    /// Who does what when.
    Spans(Spans),
    /// What the processor counts.
    Counts(Counting),
}

impl Trace {
    /// Where tasks note when they ran, if they do.
    pub fn spans(&self) -> Option<&Spans> {
        match self {
            Trace::Spans(spans) => Some(spans),
            Trace::Counts(_) => None,
        }
    }
}
