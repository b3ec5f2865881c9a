//! How to train, and what is told of it.

use std::path::PathBuf;
use std::time::Duration;

use hgnnc_ir::artifact::Criterion;
use hgnnc_ptx::Precision;

use crate::batches::CacheOptions;
use crate::exec_plan::Arena;
use crate::identity::Identity;
use crate::kernel_features::KernelFeatures;
use crate::native::CodeMode;

/// How to train; what is `None` comes from the model.
#[derive(Clone, PartialEq, Debug)]
pub struct TrainOptions {
    /// Number of threads; 0: one per processor.
    pub threads: usize,
    /// Refuse to start above this many bytes.
    pub memory_budget: Option<u64>,
    /// How exact dense products on a device are; those of the processor are products of f32.
    pub precision: Precision,
    /// Seed of parameters and masks.
    pub seed: Option<u64>,
    /// Number of epochs.
    pub epochs: Option<u64>,
    /// Folder of checkpoints.
    pub checkpoint: Option<PathBuf>,
    /// Continue from the checkpoint in that folder.
    pub resume: bool,
    /// The identity of this run: checkpoints note it, and one of another run is not resumed. `None` where it is not known.
    pub identity: Option<Identity>,
    /// Resume the checkpoint of another program, train block or data, with a warning.
    pub allow_changed: bool,
    /// Time between two checkpoints.
    pub checkpoint_every: Duration,
    /// How chains of operations are executed.
    pub code: CodeMode,
    /// The kernels to choose from, on a CPU.
    pub features: KernelFeatures,
    /// A fast memory in front of the rows that batches need.
    pub cache: Option<CacheOptions>,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            memory_budget: None,
            precision: Precision::default(),
            seed: None,
            epochs: None,
            checkpoint: None,
            resume: false,
            identity: None,
            allow_changed: false,
            checkpoint_every: Duration::from_secs(60),
            code: CodeMode::default(),
            features: KernelFeatures::ALL,
            cache: None,
        }
    }
}

/// An epoch that has just ended, or a batch of one that goes on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Epoch<'a> {
    /// Its number, from 0.
    pub epoch: u64,
    /// How many are planned.
    pub epochs: u64,
    /// Training loss.
    pub loss: f64,
    /// The criterion that selects the best epoch, and its value.
    pub criterion: Option<(Criterion, f64)>,
    /// Is it the best epoch so far?
    pub best: bool,
    /// Milliseconds of forward, backward and update.
    pub ms: f64,
    /// Batches that are done, and all of them, of an epoch that goes on: `loss` is that of those.
    pub within: Option<(u64, u64)>,
    /// A fault since the last one, with which training goes on.
    pub warning: Option<&'a str>,
}

/// How training ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All epochs are done.
    Finished,
    /// Early stopping.
    StoppedEarly,
    /// The stop flag was set: the epoch was finished, and a checkpoint written where there is a folder for it.
    Interrupted,
}

impl Outcome {
    /// The words of the report.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::StoppedEarly => "stopped early",
            Outcome::Interrupted => "interrupted",
        }
    }
}

/// An output of the model for all vertices of its type.
#[derive(Clone, PartialEq, Debug)]
pub struct OutputRows {
    /// Number of vertices.
    pub rows: usize,
    /// Numbers per vertex.
    pub width: usize,
    /// `rows * width` numbers.
    pub data: Vec<f32>,
}

/// Memory for values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arenas {
    /// Of training, evaluations included.
    pub all: Arena,
    /// Of evaluations alone.
    pub infer: Arena,
}

/// What a trainer takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryNeeded {
    /// Memory for values.
    pub arenas: Arenas,
    /// Bytes of all: values, parameters, states, graphs and features.
    pub bytes: u64,
}
