//! Report of a run, written as one JSON object.

use std::collections::BTreeMap;

use hgnnc_data::classes::ClassCounts;
use hgnnc_loader::cache::report::CacheReport;
use serde::Serialize;

/// Median, minimum and maximum of times in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Statistics of `times`; zeros if it is empty.
    pub fn of(times: &[f64]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Self { median, min, max }
    }
}

/// A semantic graph in the report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GraphReport {
    /// Name in the model.
    pub name: String,
    /// Number of destinations (CSC rows).
    pub rows: usize,
    /// Number of sources (CSC columns).
    pub cols: usize,
    /// Number of edges, materialized or not.
    pub edges: u64,
    /// Edges of a relation that a cutoff leaves out; absent without one, and for metapaths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<u64>,
    /// Whether the edges are materialized; otherwise aggregation is factored hop by hop.
    pub listed: bool,
    /// For a materialized metapath graph: whether it was read from the cache beside the dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<bool>,
    /// Build time of both adjacencies in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sgb_ms: Option<f64>,
}

/// An output of semantic graphs in the report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GraphWeights {
    /// Name of the output.
    pub output: String,
    /// By semantic graph, in the order of the model.
    pub weights: Vec<GraphWeight>,
}

/// Value of an output of semantic graphs for one of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GraphWeight {
    /// Name of the semantic graph.
    pub graph: String,
    /// The value; the mean of its elements if it has several.
    pub weight: f64,
}

/// One of the processes that train together, over the whole run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RankReport {
    /// From 0.
    pub rank: usize,
    /// Exchanges with other ranks.
    pub exchanges: u64,
    /// Bytes that were sent to other ranks.
    pub sent_bytes: u64,
    /// Those of them that were sent in steps of training, and not in evaluations.
    pub train_bytes: u64,
    /// Milliseconds of waiting for other ranks, with nothing else to do.
    pub wait_ms: f64,
    /// Milliseconds of all epochs, without evaluations.
    pub epochs_ms: f64,
    /// Peak resident set size in bytes.
    pub peak_rss_bytes: u64,
}

/// Means over the mini-batches of a run, in milliseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct BatchReport {
    /// Number of batches per epoch.
    pub per_epoch: u64,
    /// Sampling, overlapped with the computation of other batches.
    pub sample_ms: f64,
    /// Building the sampled graphs, overlapped.
    pub graphs_ms: f64,
    /// Gathering feature rows, overlapped.
    pub gather_ms: f64,
    /// Planning the program for the sizes of the batch.
    pub bind_ms: f64,
    /// Gathering rows of embedding tables, and those of optimizer states that their update does not gather itself.
    pub rows_ms: f64,
    /// Prelude, forward, backward and update.
    pub compute_ms: f64,
    /// Waiting for the loader: the part of sampling and gathering that is not overlapped.
    pub wait_ms: f64,
    /// Reading and keeping historical embeddings: see [`BatchReport::reuse`].
    pub values_ms: f64,
    /// Present with a feature cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheReport>,
    /// Present with historical embeddings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<ReuseReport>,
}

/// Historical embeddings in mini-batches. A row is the layer-1 embedding of a vertex.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ReuseReport {
    /// Fraction of the vertices of each type that may have historical embeddings.
    pub share: f64,
    /// Batches of a window, within which rows are shared.
    pub batches: u64,
    /// Number of hot vertices.
    pub hot: u64,
    /// Rows that batches computed and kept for later ones.
    pub rows_kept: u64,
    /// Rows that batches read.
    pub rows_taken: u64,
    /// Edges of the sampled batches.
    pub edges_sampled: u64,
    /// Edges that batches did not sample because the vertex had a historical embedding.
    pub edges_saved: u64,
    /// Maximum staleness, in parameter updates.
    pub oldest: u64,
    /// Seconds spent on choosing hot vertices, before training.
    pub choose_s: f64,
}

/// Scores of one class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClassScore {
    /// Name of the class in the dataset, or its number.
    pub name: String,
    /// Vertices of the class.
    pub support: u64,
    /// Part of the predictions of the class that are right; 0 without any.
    pub precision: f64,
    /// Part of the vertices of the class that are predicted as such; 0 without any.
    pub recall: f64,
    /// Harmonic mean of both.
    pub f1: f64,
}

/// The predictions of the vertices of a part, class by class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClassReport {
    /// By class.
    pub scores: Vec<ClassScore>,
    /// Number of vertices by true class (row) and predicted class (column). Absent where a vertex has several classes, and
    /// for more than [`ClassReport::MOST_CONFUSED`] classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Vec<Vec<u64>>>,
}

impl ClassReport {
    /// Most classes of a confusion matrix.
    pub const MOST_CONFUSED: usize = ClassCounts::MOST_CONFUSED;

    /// The scores of counts; classes are named by their numbers.
    pub fn new(counts: &ClassCounts) -> Self {
        let score = |(class, [hits, missed, false_alarms]): (usize, [u64; 3])| {
            let ratio = |of: u64, all: u64| if all == 0 { 0.0 } else { of as f64 / all as f64 };
            ClassScore {
                name: class.to_string(),
                support: hits + missed,
                precision: ratio(hits, hits + false_alarms),
                recall: ratio(hits, hits + missed),
                f1: ratio(2 * hits, 2 * hits + missed + false_alarms),
            }
        };
        Self { scores: counts.each().iter().copied().enumerate().map(score).collect(), confusion: counts.confusion() }
    }
}

/// Metrics by part of the split and name.
pub type Metrics = BTreeMap<&'static str, BTreeMap<String, f64>>;

/// Baseline that predicts from the features of the labelled vertices, without the graph.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BaselineReport {
    /// `softmax regression`, `logistic regression`, `linear regression`, or, without features, `majority class`, `majority
    /// of each class` or `mean`.
    pub kind: &'static str,
    /// Number of features; 0 without any.
    pub features: usize,
    /// Steps of training, each on all vertices of `vertices.train`; 0 where nothing was learned.
    pub steps: u64,
    /// Number of vertices that were used by part: of parts that would take too long, evenly spaced ones.
    pub vertices: BTreeMap<&'static str, usize>,
    /// Metrics of these vertices, without the loss.
    pub metrics: Metrics,
    /// Seconds that it took.
    pub seconds: f64,
}

/// One of several runs that differ in their seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SeedReport {
    pub seed: u64,
    pub epochs: u64,
    pub best_epoch: Option<u64>,
    /// As in [`Report::outcome`], or `failed`.
    pub outcome: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub train_s: f64,
    pub metrics: Metrics,
    pub losses: Vec<f64>,
}

/// The report of a training or evaluation run. Times are in milliseconds per epoch, after warm-up, unless named `_s`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Device or CPU model that ran the program.
    pub device: String,
    pub threads: usize,
    pub seed: u64,
    /// Epochs of the run, including those before a resume.
    pub epochs: u64,
    /// Epoch of the kept parameters, counted from 1 like all epochs shown to users: `losses[best_epoch -
    /// 1]` is its loss.
    pub best_epoch: Option<u64>,
    /// The rule that chose that epoch: a criterion such as `val.loss`, or `last`. Absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub select: Option<String>,
    /// How the run ended: `finished`, `stopped early`, `time limit` or `interrupted`.
    pub outcome: String,
    /// Seconds of loading the dataset.
    pub load_s: f64,
    /// Seconds of building semantic graphs.
    pub sgb_s: f64,
    /// Seconds of compiling, set by the caller.
    pub compile_s: f64,
    /// Seconds of training, initial values and evaluations included.
    pub train_s: f64,
    /// Forward, backward and update.
    pub epoch_ms: Spread,
    /// Forward pass. On a device, measured launch by launch in up to two of the epochs before those of `epoch_ms`; a
    /// launch with kernels of several phases or stages is divided by their blocks and elements. Absent for a
    /// device without a clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_ms: Option<Spread>,
    /// Backward pass, measured like `forward_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backward_ms: Option<Spread>,
    /// Parameter update, measured like `forward_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_ms: Option<Spread>,
    /// One evaluation of all outputs.
    pub infer_ms: Spread,
    /// Mean by stage, measured like `forward_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_ms: Option<BTreeMap<&'static str, f64>>,
    /// Present for mini-batch training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchReport>,
    /// Present where several processes train together; all other fields are those of rank 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankReport>,
    /// Peak resident set size of the process in bytes.
    pub peak_rss_bytes: u64,
    /// Planned bytes for values.
    pub arena_bytes: u64,
    /// Planned bytes for an evaluation alone.
    pub infer_arena_bytes: u64,
    /// Bytes in device memory.
    pub device_bytes: u64,
    /// By split part and metric.
    pub metrics: Metrics,
    /// By split part, for tasks with classes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<&'static str, ClassReport>,
    /// Baseline that uses features without the graph, set by the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineReport>,
    /// Values of the constants that the caller has set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub constants: BTreeMap<String, f64>,
    /// The runs, where there are several that differ in their seeds; all other fields are then those of the run whose
    /// parameters are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<SeedReport>,
    /// Means of `metrics` over `seeds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Metrics>,
    /// Their standard deviations, of samples (n - 1); 0 of one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub std: Option<Metrics>,
    pub semantic_graphs: Vec<GraphReport>,
    /// Outputs of semantic graphs, such as semantic attention, with the reported parameters. Absent for a model without
    /// such outputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub graph_weights: Vec<GraphWeights>,
    /// Total elements of all parameters.
    pub params: u64,
    /// Training loss of each epoch.
    pub losses: Vec<f64>,
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
