//! Which rows of vertices a fast memory of limited size keeps, where all rows are in a slow one.
//!
//! A batch needs the rows of its vertices: features, and learned parameters with their optimiser states. A [`Table`] is one
//! array of such rows (or several that move together), [`place`] divides the bytes of the fast memory among the rows of all
//! tables by a [`Policy`], and a [`Placement`] says of each row where it is. What is kept is decided once, before training: which
//! vertices are drawn is random, but how often is a property of graph, seeds and fan-outs, which sampling some batches
//! tells. [`Outcome`] is what a placement would have saved of known accesses, and [`best`] the most that any
//! placement could have.
//!
//! # Policies
//!
//! - [`Policy::Random`] and [`Policy::Degree`] (PaGraph, Lin et al., SoCC 2020) know nothing of seeds and fan-outs.
//! - [`Policy::Hotness`] keeps what presampling met most often (GNNLab, Yang et al., EuroSys 2022).
//! - [`Policy::Shares`] gives each table bytes in proportion to its accesses times the time of a miss for each byte, and keeps the
//!   hottest of its rows (Heta, Zhong et al., PVLDB 18(9) 2025): a small row is expensive for its size, and a learned one is
//!   written as well as read.
//! - [`Policy::Penalty`] weighs each row on its own by the same two numbers: the milliseconds that it is expected to save for each byte.
//!   Shares give a table with a long tail of cold rows bytes that a hot row elsewhere would use better.
//!
//! # What is not here
//!
//! Memory, threads and clocks: who has them counts accesses, measures misses and copies rows. Nothing is evicted while
//! training goes on.

mod outcome;
mod place;
mod placement;

pub use outcome::{Best, Outcome, best};
pub use place::{Forecast, Policy, place};
pub use placement::{Placement, Slots};

/// Rows of the vertices of one type that are moved together.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Name of the array.
    pub name: String,
    /// Bytes of a row, optimiser states included.
    pub row_bytes: u64,
    /// Is a row written by the batch that read it?
    pub written: bool,
    /// Nanoseconds of a miss: a row read from the slow memory and, if it is written, written there.
    pub miss_ns: f64,
}

impl Table {
    /// Bytes that a miss moves.
    pub fn miss_bytes(&self) -> u64 {
        self.row_bytes * if self.written { 2 } else { 1 }
    }
}
