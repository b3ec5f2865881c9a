//! Statistics of the feature cache, as part of a report.

use std::collections::BTreeMap;

use serde::Serialize;

/// Feature cache statistics of a run. A batch accesses each row of its vertices once.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct CacheReport {
    /// Name of the placement policy.
    pub policy: &'static str,
    /// Capacity of the cache in bytes.
    pub limit: u64,
    /// Bytes of the cached rows.
    pub bytes: u64,
    /// Bytes of all cacheable rows.
    pub bytes_of_all: u64,
    /// Batches sampled before training to estimate access frequencies.
    pub presampled: u64,
    /// Seconds of presampling before training.
    pub presample_s: f64,
    /// Seconds of all preparation: presampling, timing misses, placing and copying rows.
    pub setup_s: f64,
    /// Fraction of accesses that hit.
    pub hit_rate: f64,
    /// Bytes between the two memories: misses, fills and write-backs.
    pub bytes_moved: u64,
    /// Bytes fetched because of misses.
    pub bytes_missed: u64,
    /// Bytes of accesses, which would all miss without the cache.
    pub bytes_without: u64,
    /// Statistics by array of rows.
    pub tables: Vec<CachedTable>,
    /// Outcome of each policy at the same capacity.
    pub policies: BTreeMap<&'static str, Saved>,
    /// Optimum over static placements, separately for each figure.
    pub best: Saved,
}

/// Cache statistics of one array.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct CachedTable {
    /// Features, or an embedding table with its optimizer states.
    pub name: String,
    /// Total number of its rows.
    pub rows: usize,
    /// Number of cached rows.
    pub kept: usize,
    pub row_bytes: u64,
    /// Whether the rows are trained, and so written back.
    pub learned: bool,
    /// Measured nanoseconds per miss.
    pub miss_ns: f64,
    /// Row accesses of batches.
    pub accesses: u64,
    /// Fraction of them that hit.
    pub hit_rate: f64,
    /// Bytes fetched because of misses.
    pub bytes_missed: u64,
}

/// Outcome of a placement.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Saved {
    /// Fraction of accesses that hit.
    pub hit_rate: f64,
    /// Bytes fetched because of misses.
    pub bytes_missed: u64,
    /// Milliseconds of misses, by the measured time of each.
    pub miss_ms: f64,
}
