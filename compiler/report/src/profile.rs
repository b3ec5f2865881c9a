//! The data of a profile.

use std::collections::BTreeMap;

use hgnnc_machine::Machine;
use serde::{Deserialize, Serialize};

/// What [`Profile::format`] says.
pub const FORMAT: &str = "hgnnc profile";
/// Version of the structure. It is raised where a reader of an older one would read something wrong.
pub const VERSION: u32 = 1;

/// What training does, kernel by kernel. Times are milliseconds of a run, unless they are named otherwise.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Name of the program, such as `Han.train`.
    pub program: String,
    /// The model's file.
    pub model: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Where it ran: a processor or a device.
    pub device: String,
    /// What was compiled for: `cpu`, `sm_80`, `sm_90`.
    pub target: String,
    /// Number of threads.
    pub threads: usize,
    /// What the machine can do.
    pub machine: Machine,
    /// What a run is.
    pub run: Run,
    /// Runs that were measured.
    pub runs: u64,
    /// Runs of an epoch.
    pub runs_per_epoch: u64,
    /// A run from its beginning to its end: the median of epochs, the mean of batches.
    pub run_ms: f64,
    /// The shortest run.
    pub run_min_ms: f64,
    /// The longest run.
    pub run_max_ms: f64,
    /// What measuring adds to training, between two runs and in none of them.
    pub overhead_ms: f64,
    /// Copies between kernels.
    pub copies_ms: f64,
    /// Taking over new parameters and states that have another place than the old ones.
    pub commit_ms: f64,
    /// All else of a run: the ends of launches, the loss, the loop.
    pub between_ms: f64,
    /// Of batches, what is done besides kernels.
    pub batch: Option<Batch>,
    /// What is done once, before training.
    pub once: Once,
    /// Kernels of a run; of a device its launches. In the order in which they run.
    pub kernels: Vec<Kernel>,
    /// Memory for values, if it is known.
    pub memory: Option<Memory>,
    /// What was counted.
    pub counters: Counters,
}

/// What is done again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Run {
    /// A training step on the whole graph.
    Epoch,
    /// One on a sampled part of it.
    Batch,
}

impl Run {
    /// `epoch` or `batch`.
    pub fn name(self) -> &'static str {
        match self {
            Run::Epoch => "epoch",
            Run::Batch => "batch",
        }
    }
}

/// What is done for a batch besides kernels, in milliseconds: means.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// Sampling, beside the computation of other batches.
    pub sampling_ms: f64,
    /// Copying rows of features, likewise.
    pub features_ms: f64,
    /// Making graphs of what was sampled, likewise.
    pub graphs_ms: f64,
    /// Waiting for all of that: what nothing hides.
    pub waiting_ms: f64,
    /// Planning the program for the sizes of the batch.
    pub binding_ms: f64,
    /// Copying rows of parameters and optimiser states, there and back.
    pub rows_ms: f64,
    /// Computing values of hot vertices that batches reuse.
    pub values_ms: f64,
}

/// What is done once, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Once {
    /// Loading the dataset.
    pub load_ms: f64,
    /// Semantic graph build.
    pub sgb_ms: f64,
    /// From the source to a bound plan.
    pub compile_ms: f64,
}

/// A kernel of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kernel {
    /// Its number in the program's text; of a device that of its launch.
    pub kernel: usize,
    /// The rows that it has, or its product.
    pub rows: String,
    /// The buffers that it writes.
    pub stores: String,
    /// The stage that it is accounted to.
    pub stage: String,
    /// Its direction: `forward`, `backward` or `update`.
    pub phase: String,
    /// Dense product (DM), topology-based (TB), element-wise (EW) or data rearrangement (DR).
    pub kind: String,
    /// Parts of its time by stage, which add up to 1: a kernel may do something of several.
    pub shares: BTreeMap<String, f64>,
    /// What it took.
    pub measured_ms: f64,
    /// What it took with all that it touches in the caches of its core, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_cache_ms: Option<f64>,
    /// What it is predicted to take on the machine; nothing where that is not predicted.
    pub predicted_ms: Option<f64>,
    /// What limits it: `compute`, `launch`, or a level of memory.
    pub bound: String,
    /// The level of memory that what it touches fits.
    pub fits: String,
    /// A multiply-add is 2, everything else 1.
    pub flops: f64,
    /// Distinct bytes that it reads or writes.
    pub footprint_bytes: f64,
    /// Bytes of rows that it reads by index, each time.
    pub gathered_bytes: f64,
    /// Bytes that it moves: distinct ones, and the repeats of gathers.
    pub moved_bytes: f64,
    /// What was counted in it, by event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, f64>,
}

impl Kernel {
    /// For people: `k7`.
    pub fn name(&self) -> String {
        format!("k{}", self.kernel)
    }

    /// What it reached.
    pub fn flops_per_s(&self) -> f64 {
        rate(self.flops, self.measured_ms)
    }

    /// Likewise, of the bytes that it moves.
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.moved_bytes, self.measured_ms)
    }

    /// FLOPs per distinct byte.
    pub fn intensity(&self) -> f64 {
        if self.footprint_bytes > 0.0 { self.flops / self.footprint_bytes } else { 0.0 }
    }

    /// The part of its time in which it waited for memory beyond the caches of its core, where that was measured.
    pub fn waits(&self) -> Option<f64> {
        self.in_cache_ms.filter(|_| self.measured_ms > 0.0).map(|ms| (1.0 - ms / self.measured_ms).max(0.0))
    }

    /// How many times as long as predicted it took.
    pub fn ratio(&self) -> Option<f64> {
        self.predicted_ms.filter(|&ms| ms > 0.0).map(|ms| self.measured_ms / ms)
    }
}

/// So much in so many milliseconds, per second.
pub fn rate(amount: f64, ms: f64) -> f64 {
    if ms > 0.0 { amount / (ms * 1e-3) } else { 0.0 }
}

/// Memory for the values of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes of values that are computed once and stay.
    pub fixed_bytes: u64,
    /// What is needed while each kernel runs, in the order of the kernels.
    pub steps: Vec<Alive>,
}

impl Memory {
    /// The step that needs most, and its bytes.
    pub fn peak(&self) -> Option<(&Alive, u64)> {
        let bytes = |step: &Alive| step.bytes.values().sum::<u64>();
        let most = self.steps.iter().map(bytes).max()?;
        self.steps.iter().find(|step| bytes(step) == most).map(|step| (step, most))
    }
}

/// The values that are needed at one time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Alive {
    /// The first kernel that runs then.
    pub kernel: usize,
    /// Bytes by stage of the kernel that made the value.
    pub bytes: BTreeMap<String, u64>,
}

/// What the processor and the system counted.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// What was counted.
    pub events: Vec<String>,
    /// What was not.
    pub missing: Vec<Missing>,
}

/// What was not counted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// What.
    pub events: Vec<String>,
    /// Why, and what helps.
    pub reason: String,
}
