//! The report of a run: one JSON object.

use std::collections::BTreeMap;

use serde::Serialize;

/// Median, smallest and largest of some times in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Of these times; zeros where there are none.
    pub fn of(times: &[f64]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Self { median, min, max }
    }
}

/// A semantic graph of the report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GraphReport {
    /// Name in the model.
    pub name: String,
    /// Destinations.
    pub rows: usize,
    /// Sources.
    pub cols: usize,
    /// Edges.
    pub edges: u64,
    /// Are they in memory? Otherwise what is summed over them is summed along their paths.
    pub listed: bool,
    /// Of a metapath whose edges are listed: were they read from the cache beside the dataset? Otherwise they were built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<bool>,
    /// How long that took, both incidences, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sgb_ms: Option<f64>,
}

/// Means of the batches of a run, in milliseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct BatchReport {
    /// Batches of an epoch.
    pub per_epoch: u64,
    /// Sampling, beside the computation of other batches.
    pub sample_ms: f64,
    /// Making graphs of what was sampled, likewise.
    pub graphs_ms: f64,
    /// Copying rows of features, likewise.
    pub gather_ms: f64,
    /// Planning the program for the sizes of the batch.
    pub bind_ms: f64,
    /// Copying rows of parameters and optimiser states, there and back.
    pub rows_ms: f64,
    /// What depends on no parameter, forward, backward and update.
    pub compute_ms: f64,
    /// Waiting for the batch: what sampling and gathering cost, that nothing hides.
    pub wait_ms: f64,
    /// Computing values of hot vertices that batches take: see [`BatchReport::reuse`].
    pub values_ms: f64,
    /// Where there is a fast memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheReport>,
    /// Where batches reuse values of the bottom layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<ReuseReport>,
}

/// What batches of a run took of the bottom layer from a table. A row is what the layer gives to a vertex.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ReuseReport {
    /// Part of the vertices of each type that may be in the table.
    pub share: f64,
    /// Batches that take the same values.
    pub batches: u64,
    /// Vertices that may be in it.
    pub hot: u64,
    /// Rows that were computed.
    pub rows_computed: u64,
    /// Rows that batches took.
    pub rows_taken: u64,
    /// Edges of the sampled batches.
    pub edges_sampled: u64,
    /// Edges that batches would have had besides, for the vertices whose rows they took.
    pub edges_not_drawn: u64,
    /// Edges that rows were computed from.
    pub edges_computed: u64,
    /// Edges that were saved: those not drawn, less those that rows were computed from.
    pub edges_saved: i64,
    /// The most updates between computing a row and taking it.
    pub oldest: u64,
    /// Seconds of computing rows.
    pub seconds: f64,
    /// Seconds of sampling for that, beside the computation of batches.
    pub sample_s: f64,
    /// Seconds of choosing who may be in the table, before training.
    pub choose_s: f64,
}

/// What a fast memory in front of the rows of vertices did in a run. A row is needed once by each batch that has its vertex.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct CacheReport {
    /// How its bytes were divided.
    pub policy: &'static str,
    /// Bytes that it might have.
    pub limit: u64,
    /// Bytes of the rows in it.
    pub bytes: u64,
    /// Bytes of all rows that could be.
    pub bytes_of_all: u64,
    /// Batches that were sampled before training to know what is needed often.
    pub presampled: u64,
    /// Seconds of that.
    pub presample_s: f64,
    /// Seconds of all that was done before training: that, timing misses, choosing rows and copying them.
    pub setup_s: f64,
    /// Part of the needed rows that were in it.
    pub hit_rate: f64,
    /// Bytes between the two memories: misses, and what filled the fast one and was written back from it.
    pub bytes_moved: u64,
    /// Those of misses.
    pub bytes_missed: u64,
    /// What misses would be without it.
    pub bytes_without: u64,
    /// By array.
    pub tables: Vec<CachedRows>,
    /// What each policy would have done in as many bytes.
    pub policies: BTreeMap<&'static str, Saved>,
    /// The most that could have been done by rows that stay: each number by rows of its own choice.
    pub best: Saved,
}

/// The rows of one array.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct CachedRows {
    /// Features, or a learned parameter with its optimiser states.
    pub name: String,
    /// All rows.
    pub rows: usize,
    /// Rows in the fast memory.
    pub kept: usize,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Is it learned, and so written as well?
    pub learned: bool,
    /// Nanoseconds of a miss, measured.
    pub miss_ns: f64,
    /// Rows that batches needed.
    pub accesses: u64,
    /// Part of them that was in the fast memory.
    pub hit_rate: f64,
    /// Bytes of the others.
    pub bytes_missed: u64,
}

/// What some choice of rows is worth.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Saved {
    /// Part of the needed rows that are in the fast memory.
    pub hit_rate: f64,
    /// Bytes of the others.
    pub bytes_missed: u64,
    /// Milliseconds of the others, by the measured time of each.
    pub miss_ms: f64,
}

/// The report of a training or evaluation run. Times are in milliseconds per epoch, after warm-up, unless named `_s`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Where it ran.
    pub device: String,
    /// Number of threads.
    pub threads: usize,
    /// Seed.
    pub seed: u64,
    /// Epochs that ran, those before a resume included.
    pub epochs: u64,
    /// The epoch whose parameters were kept, counted from 1 as everywhere a user meets one: `losses[best_epoch - 1]` is its loss.
    pub best_epoch: Option<u64>,
    /// How the run ended: `finished`, `stopped early` or `interrupted`.
    pub outcome: String,
    /// Seconds of loading the dataset.
    pub load_s: f64,
    /// Seconds of building semantic graphs.
    pub sgb_s: f64,
    /// Seconds of compiling; the caller knows.
    pub compile_s: f64,
    /// Seconds of training, evaluation included.
    pub train_s: f64,
    /// Forward, backward and update.
    pub epoch_ms: Spread,
    /// Forward. On a device, of up to two of the epochs before those that `epoch_ms` is of, launch by launch: a launch with
    /// kernels of several phases or stages is divided by their blocks and elements. Absent for one without a clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_ms: Option<Spread>,
    /// Backward, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backward_ms: Option<Spread>,
    /// Update, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_ms: Option<Spread>,
    /// One evaluation of all outputs.
    pub infer_ms: Spread,
    /// Mean by stage, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_ms: Option<BTreeMap<&'static str, f64>>,
    /// Where training is on batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchReport>,
    /// Largest resident set of the process.
    pub peak_rss_bytes: u64,
    /// Memory for values, planned before anything ran.
    pub arena_bytes: u64,
    /// What of it an evaluation alone would need.
    pub infer_arena_bytes: u64,
    /// Memory on an accelerator.
    pub device_bytes: u64,
    /// By part and metric.
    pub metrics: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    /// All semantic graphs.
    pub semantic_graphs: Vec<GraphReport>,
    /// Elements of all parameters.
    pub params: u64,
    /// Training loss of each epoch.
    pub losses: Vec<f64>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
