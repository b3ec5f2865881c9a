//! Options and results of training.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hgnnc_data::{Arena, Identity};
use hgnnc_executable::gpu::Precision;
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_ir::training::Part;
use hgnnc_ir::types::VertexType;
use hgnnc_loader::CacheOptions;
use hgnnc_machine::{CodeMode, KernelFeatures};

/// Options of a trainer; `None` means the model's own setting.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct TrainOptions {
    /// Number of threads; 0: one per CPU.
    pub threads: usize,
    /// Memory limit in bytes.
    pub memory_budget: Option<u64>,
    /// Precision of dense products on a device; the CPU always uses f32.
    pub precision: Precision,
    /// Seed of parameter initialization and dropout masks.
    pub seed: Option<u64>,
    pub epochs: Option<u64>,
    /// Ends training after the epoch in which it has taken this long; for each call of
    /// [`Trainer::run`](super::Trainer::run).
    pub max_time: Option<Duration>,
    /// Whether each epoch measures the metrics of the train block ([`Epoch::metrics`]).
    pub measure_all: bool,
    /// Folder that checkpoints are written to.
    pub checkpoint: Option<PathBuf>,
    /// Whether to resume from the checkpoint in that folder.
    pub resume: bool,
    /// Identity of this run: stored in checkpoints, and compared when resuming. `None` if unknown.
    pub identity: Option<Identity>,
    /// Allows resuming a checkpoint of another program, train block or data, with a warning.
    pub allow_changed: bool,
    pub checkpoint_every: Duration,
    /// Where the programs of this run are to be machine code; for the compiler.
    pub code: CodeMode,
    /// Enabled CPU kernel features.
    pub features: KernelFeatures,
    /// Feature cache for mini-batches.
    pub cache: Option<CacheOptions>,
    /// Whether the next mini-batch is loaded while one is computed; otherwise before it.
    pub load_ahead: bool,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            memory_budget: None,
            precision: Precision::default(),
            seed: None,
            epochs: None,
            max_time: None,
            measure_all: false,
            checkpoint: None,
            resume: false,
            identity: None,
            allow_changed: false,
            checkpoint_every: Duration::from_secs(60),
            code: CodeMode::default(),
            features: KernelFeatures::ALL,
            cache: None,
            load_ahead: true,
        }
    }
}

/// Progress report after an epoch, or after a batch of an unfinished one.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Epoch<'a> {
    /// Epoch index, from 0.
    pub epoch: u64,
    /// Number of planned epochs.
    pub epochs: u64,
    pub loss: f64,
    /// Name of the selection criterion (`val.loss`) and its value.
    pub criterion: Option<(&'a str, f64)>,
    /// With [`TrainOptions::measure_all`], at the end of an epoch: the loss and the metrics of the train block for the
    /// training and the validation part, by their names in reports, without those that rank links.
    pub metrics: &'a [(Part, Arc<str>, f64)],
    /// Whether it is the best epoch so far.
    pub best: bool,
    /// Milliseconds of forward, backward and update.
    pub ms: f64,
    /// Batches done and batches per epoch, for an unfinished epoch; `loss` is the mean over the batches done.
    pub within: Option<(u64, u64)>,
    /// A non-fatal problem since the previous report.
    pub warning: Option<&'a str>,
}

/// How a training run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All epochs are done.
    Finished,
    /// Early stopping ended the run.
    StoppedEarly,
    /// [`TrainOptions::max_time`] ended the run: the epoch was finished, and a checkpoint written if a folder is set.
    TimeLimit,
    /// The stop flag was set: the epoch was finished, and a checkpoint written if a folder is set.
    Interrupted,
}

impl Outcome {
    /// Name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::StoppedEarly => "stopped early",
            Outcome::TimeLimit => "time limit",
            Outcome::Interrupted => "interrupted",
        }
    }
}

/// An output of the model for all vertices of its type.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct OutputRows {
    pub rows: usize,
    pub width: usize,
    /// Elements of all rows, `[rows, width]`.
    pub data: Vec<f32>,
}

/// An output of a family of semantic graphs: a row for each of them, or for each of their edges.
#[derive(Clone, PartialEq, Debug)]
pub struct FamilyOutputRows {
    /// Index space of the rows: semantic graphs or their edges.
    pub rows: FamilyRows,
    /// Elements of a row.
    pub width: usize,
    /// By semantic graph, in the order of the model.
    pub graphs: Vec<GraphOutputRows>,
}

/// A relation or metapath whose pairs of vertices a model scores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScoredLinks {
    /// The name of the relation in the dataset, or of the metapath in the model.
    pub name: String,
    /// Whether it is a relation.
    pub of_relation: bool,
    /// Numbers of sources and destinations.
    pub ends: (usize, usize),
}

/// The rows of one semantic graph in an output of a family.
#[derive(Clone, PartialEq, Debug)]
pub struct GraphOutputRows {
    /// Name of the semantic graph in the model.
    pub name: String,
    /// Vertex types of its sources and destinations.
    pub ends: (VertexType, VertexType),
    /// Source and destination of each row's edge, in the numbers of the dataset, by destination and then by source;
    /// empty if the rows belong to semantic graphs.
    pub edges: Vec<(u32, u32)>,
    /// Elements of all rows.
    pub data: Vec<f32>,
}

/// Planned memory for values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Arenas {
    pub all: Arena,
    pub infer: Arena,
}
