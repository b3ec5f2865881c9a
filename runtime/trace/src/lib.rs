//! Measurements of runs and of the machine.
//!
//! - [`Times`] accumulates the time of steps by phase and stage.
//! - [`Trace`] records launches: spans of tasks by thread ([`Spans`]) or hardware counters ([`counters`]). Both add
//!   overhead, so neither is active in measured epochs.
//! - [`machine_bench`] measures the roofline of this machine, and keeps it in a file.
//! - [`os`] asks the operating system for the memory of the process.
//!
//! This crate knows no models: callers say what a step is.

pub mod counters;
pub mod machine_bench;
pub mod os;
mod spans;
mod times;

pub use counters::{Counting, Event, Missing};
pub use spans::{KernelSpan, Spans, TaskSpan};
pub use times::Times;

/// Active trace of an engine.
#[derive(Debug)]
pub enum Trace {
    /// Spans of tasks by thread.
    Spans(Spans),
    /// Hardware counters.
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
