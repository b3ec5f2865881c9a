//! Feature cache: selects the vertex rows to keep in a fast memory of limited size, when all rows are in a slow one.
//!
//! A mini-batch needs the rows of its vertices: features, and embedding rows with their optimizer state. A [`Table`] is
//! one array of such rows (or several that move together), [`place`] divides the bytes of the fast memory among the
//! rows of all tables by a [`Policy`], and a [`Placement`] records the cached rows. The placement is static, decided
//! before training: the sampled vertices are random, but access frequencies are determined by graph, seeds and
//! fan-outs, and estimated by presampling. [`Outcome`] is the simulated saving of a placement for a given access trace,
//! and [`best`] an upper bound over all placements.
//!
//! # Policies
//!
//! - [`Policy::Random`] and [`Policy::Degree`] (PaGraph, Lin et al., SoCC 2020) ignore seeds and fan-outs.
//! - [`Policy::Hotness`] keeps the rows that presampling accessed most (GNNLab, Yang et al., EuroSys 2022).
//! - [`Policy::Shares`] gives each table bytes in proportion to its accesses times the miss time per byte, and keeps
//!   its hottest rows (Heta, Zhong et al., PVLDB 18(9) 2025): a small row is expensive for its size, and an embedding
//!   row is written as well as read.
//! - [`Policy::Penalty`] weighs each row by the same two numbers: the expected milliseconds saved per byte. Shares give
//!   a table with a long tail of cold rows bytes that a hot row elsewhere would use better.
//!
//! # Non-goals
//!
//! No memory, threads or clocks: the caller counts accesses, measures misses and copies rows. No eviction during
//! training.

#![forbid(unsafe_code)]

mod outcome;
mod place;
mod placement;

pub use outcome::{Best, Outcome, best};
pub use place::{Forecast, Policy, place};
pub use placement::{Placement, Slots};

/// Rows of the vertices of one type that are cached as a unit.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Name of the array, for reports.
    pub name: String,
    /// Bytes of a row, optimizer state included.
    pub row_bytes: u64,
    /// Whether the batch that reads a row also writes it.
    pub written: bool,
    /// Nanoseconds of a miss: reading a row from the slow memory and, if `written`, writing it back.
    pub miss_ns: f64,
}

impl Table {
    /// Bytes that a miss moves.
    pub fn miss_bytes(&self) -> u64 {
        self.row_bytes * if self.written { 2 } else { 1 }
    }
}
