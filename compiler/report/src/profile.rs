//! The data structure of a profile.

use std::collections::BTreeMap;

use hgnnc_machine::Machine;
use serde::{Deserialize, Serialize};

/// Value of the field [`Profile::format`].
pub const FORMAT: &str = "hgnnc profile";
/// Version of the structure, incremented when older readers would misread it.
pub const VERSION: u32 = 1;

/// Time and work of training, kernel by kernel. Times are milliseconds per run unless named otherwise.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Profile {
    pub format: String,
    pub version: u32,
    /// Name of the program, such as `Han.train`.
    pub program: String,
    /// Path of the model file.
    pub model: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Name of the processor or device.
    pub device: String,
    /// Compilation target: `cpu`, `sm_80`, `sm_90`.
    pub target: String,
    pub threads: usize,
    /// Peak rates and memory levels of the machine.
    pub machine: Machine,
    /// Unit of measurement: an epoch or a mini-batch.
    pub run: Run,
    /// Number of measured runs.
    pub runs: u64,
    /// Number of runs per epoch.
    pub runs_per_epoch: u64,
    /// Wall time of a run: the median over epochs, or the mean over batches.
    pub run_ms: f64,
    /// Wall time of the fastest run.
    pub run_min_ms: f64,
    /// Wall time of the slowest run.
    pub run_max_ms: f64,
    /// Profiling overhead between two runs, not part of any run.
    pub overhead_ms: f64,
    pub copies_ms: f64,
    /// Copying new parameters and optimizer states that are not updated in place.
    pub commit_ms: f64,
    /// The remainder of a run: launch overhead, the loss, the training loop.
    pub between_ms: f64,
    /// Waiting for other processes between two runs, to decide together whether there is another one; part of a run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub agreeing_ms: f64,
    /// Times of mini-batch work outside of kernels; `None` for full-batch training.
    pub batch: Option<Batch>,
    /// One-time costs before training.
    pub once: Once,
    /// Kernels of a run in execution order; on a device, its launches.
    pub kernels: Vec<Kernel>,
    /// Live bytes over a run, if known.
    pub memory: Option<Memory>,
    /// Hardware and system event counts.
    pub counters: Counters,
    /// Outputs of semantic graphs after the measured runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graph_weights: Vec<GraphWeights>,
    /// By part of the split: how classes are told apart after the measured runs. Empty where the task has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, Classes>,
    /// The processes that train together, in their order; all else is of the first of them. Empty for one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Rank>,
}

fn is_zero(ms: &f64) -> bool {
    *ms == 0.0
}

/// A run on one of several processes. Times are milliseconds, medians over epochs or means over batches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rank {
    /// Number of the process, from 0.
    pub rank: usize,
    /// A run, with all that this process waits for.
    pub run_ms: f64,
    /// The run without `waiting_ms` and `loading_ms`.
    pub computing_ms: f64,
    /// Waiting for other processes, with nothing else to do.
    pub waiting_ms: f64,
    /// Waiting for the next mini-batch to be made.
    pub loading_ms: f64,
    /// Bytes sent to other processes in a run.
    pub sent_bytes: f64,
    /// Exchanges with other processes in a run.
    pub exchanges: f64,
    /// Peak memory of the process, in bytes.
    pub peak_bytes: u64,
}

/// The predictions of the vertices of a part, class by class.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Classes {
    /// By class.
    pub scores: Vec<ClassScore>,
    /// Number of vertices by true class (row) and predicted class (column); `None` where a vertex has several classes,
    /// and for many classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Vec<Vec<u64>>>,
}

/// Scores of one class.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ClassScore {
    /// Name of the class in the dataset, or its number.
    pub name: String,
    /// Vertices of the class.
    pub support: u64,
    pub precision: f64,
    pub recall: f64,
    pub f1: f64,
}

/// An output of semantic graphs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GraphWeights {
    /// Name of the output.
    pub output: String,
    /// Name of each semantic graph and its value, the mean of its elements if it has several.
    pub weights: Vec<(String, f64)>,
}

/// Unit of repetition: an epoch or a mini-batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Run {
    /// A full-batch training step.
    Epoch,
    /// A mini-batch training step.
    Batch,
}

impl Run {
    /// The name in texts: `epoch` or `batch`.
    pub fn name(self) -> &'static str {
        match self {
            Run::Epoch => "epoch",
            Run::Batch => "batch",
        }
    }
}

/// Mean times per mini-batch outside of kernels, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// Neighbour sampling, concurrent with the computation of other batches.
    pub sampling_ms: f64,
    /// Gathering feature rows, concurrent with the computation of other batches.
    pub features_ms: f64,
    /// Building graphs from the sampled edges, concurrent with the computation of other batches.
    pub graphs_ms: f64,
    /// Waiting for the above: the part that overlap does not hide.
    pub waiting_ms: f64,
    /// Planning the program for the sizes of the batch.
    pub binding_ms: f64,
    /// Gathering rows of parameters, and those of optimizer states that their update does not gather itself.
    pub rows_ms: f64,
    /// Computing historical embeddings of hot vertices.
    pub values_ms: f64,
}

/// One-time costs, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Once {
    /// Time to load the dataset.
    pub load_ms: f64,
    /// Time of the semantic graph build.
    pub sgb_ms: f64,
    /// Time from the source to a bound plan.
    pub compile_ms: f64,
}

/// Measurements and predictions of a kernel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kernel {
    /// Number of the kernel in the program's text; on a device, of its launch.
    pub kernel: usize,
    /// The rows that it iterates over, or its matrix product.
    pub rows: String,
    /// Names of the buffers that it writes.
    pub stores: String,
    /// Stage that it is attributed to.
    pub stage: String,
    /// Direction: `forward`, `backward` or `update`.
    pub phase: String,
    /// Dense product (DM), topology-based (TB), element-wise (EW), data rearrangement (DR), or an exchange with other
    /// processes (EX).
    pub kind: String,
    /// Share of its time per stage, with sum 1: a kernel may contain work of several stages. Empty for an exchange.
    pub shares: BTreeMap<String, f64>,
    /// Measured time per run.
    pub measured_ms: f64,
    /// Measured time with a cache-resident working set, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_cache_ms: Option<f64>,
    /// The part of the measured time in which nothing was left to do but to wait for other processes; of exchanges only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_ms: Option<f64>,
    /// Predicted time; `None` without a prediction.
    pub predicted_ms: Option<f64>,
    /// Bottleneck: `compute`, `launch`, or a memory level.
    pub bound: String,
    /// The smallest memory level that holds its footprint.
    pub fits: String,
    /// Floating-point operations; a multiply-add counts 2.
    pub flops: f64,
    /// Distinct bytes read or written.
    pub footprint_bytes: f64,
    /// Bytes of all gathered rows, repeats included.
    pub gathered_bytes: f64,
    /// Bytes moved: distinct ones, plus repeats of gathers.
    pub moved_bytes: f64,
    /// Event counts per run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, f64>,
}

impl Kernel {
    /// Display name, such as `k7`.
    pub fn name(&self) -> String {
        format!("k{}", self.kernel)
    }

    /// Achieved floating-point operations per second.
    pub fn flops_per_s(&self) -> f64 {
        rate(self.flops, self.measured_ms)
    }

    /// Achieved bytes per second, of the bytes moved.
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.moved_bytes, self.measured_ms)
    }

    /// Arithmetic intensity: FLOPs per distinct byte.
    pub fn intensity(&self) -> f64 {
        if self.footprint_bytes > 0.0 { self.flops / self.footprint_bytes } else { 0.0 }
    }

    /// Share of the time spent waiting for memory beyond the core's caches, if measured.
    pub fn waits(&self) -> Option<f64> {
        self.in_cache_ms.filter(|_| self.measured_ms > 0.0).map(|ms| (1.0 - ms / self.measured_ms).max(0.0))
    }

    /// Measured time divided by predicted time.
    pub fn ratio(&self) -> Option<f64> {
        self.predicted_ms.filter(|&ms| ms > 0.0).map(|ms| self.measured_ms / ms)
    }
}

/// Rate per second of `amount` in `ms` milliseconds.
pub fn rate(amount: f64, ms: f64) -> f64 {
    if ms > 0.0 { amount / (ms * 1e-3) } else { 0.0 }
}

/// Memory of the values of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes of persistent values, computed once.
    pub fixed_bytes: u64,
    /// Live bytes at each kernel, in the order of the kernels.
    pub steps: Vec<Alive>,
}

impl Memory {
    /// The step with the largest number of live bytes, and that number.
    pub fn peak(&self) -> Option<(&Alive, u64)> {
        let bytes = |step: &Alive| step.bytes.values().sum::<u64>();
        let most = self.steps.iter().map(bytes).max()?;
        self.steps.iter().find(|step| bytes(step) == most).map(|step| (step, most))
    }
}

/// Live values at one step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Alive {
    /// The first kernel of the step.
    pub kernel: usize,
    /// Live bytes, by the stage of the kernel that produced the value.
    pub bytes: BTreeMap<String, u64>,
}

/// Availability of hardware and system counters.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Names of the counted events.
    pub events: Vec<String>,
    /// Events that could not be counted.
    pub missing: Vec<Missing>,
}

/// A group of events that could not be counted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// Names of the events.
    pub events: Vec<String>,
    /// The cause, and the remedy.
    pub reason: String,
}
