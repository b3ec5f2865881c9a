//! Where compiler and runtime meet: two programs and what training needs to know.

use crate::batch::BatchLayout;
use crate::dataflow::Dataflow;
use crate::kernel;
use crate::types::VertexType;

/// Version of this format. The runtime refuses others.
pub const VERSION: u32 = 3;

/// A compiled model.
#[derive(Clone, PartialEq, Debug)]
pub struct Artifact {
    /// [`VERSION`] of the compiler that made it.
    pub version: u32,
    /// Name of the model.
    pub model: String,
    /// One training step: forward, backward and update. Results: `loss`.
    pub train: Option<Dataflow>,
    /// Evaluation (no dropout). Results: each output by name, and, where the model is trained,
    /// `row_loss`: the loss of each vertex, `V[]`. Same tables as `train`, but for batches.
    pub infer: Dataflow,
    /// Both programs as kernels, which is what the runtime executes.
    pub kernels: Kernels,
    /// How to train. `None` for a model without a `train` block.
    pub training: Option<Training>,
    /// How [`Artifact::train`] belongs to the whole graph, where it is the program of a batch: then it has tables of its
    /// own.
    pub batch: Option<BatchLayout>,
}

/// The programs of an artifact as kernels.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Kernels {
    /// [`Artifact::train`].
    pub train: Option<kernel::Program>,
    /// [`Artifact::infer`].
    pub infer: kernel::Program,
}

/// The training block.
#[derive(Clone, PartialEq, Debug)]
pub struct Training {
    /// Name of the output that is trained.
    pub output: String,
    /// Its vertex type.
    pub vertex: VertexType,
    /// Name of the label in the dataset.
    pub label: String,
    /// What the outputs are compared with, and so how they are read.
    pub task: Task,
    /// Number of epochs.
    pub epochs: u64,
    /// Early stopping.
    pub stop: Option<Stop>,
    /// What decides the best epoch, whose parameters are kept.
    pub select: Criterion,
    /// Metrics to report.
    pub metrics: Vec<Metric>,
    /// The split, unless the command line names another.
    pub split: Option<String>,
    /// The dataset, unless the command line names a folder (`synth acm`).
    pub dataset: Option<String>,
    /// The seed, unless the command line gives one.
    pub seed: u64,
    /// Training on sampled subgraphs. `None`: every step sees the whole graph.
    pub batch: Option<MiniBatch>,
}

/// How a step of training draws a subgraph. The step is the whole program on that subgraph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MiniBatch {
    /// Seeds of a batch: vertices of [`Training::vertex`] that the loss is of. At least 1.
    pub size: usize,
    /// In-edges that a vertex draws, `[hops][graphs]`: hops counted from the seeds, graphs by their position in
    /// the table of the whole graph, which [`Artifact::infer`] has. `None`: all of them. At least 1 otherwise.
    ///
    /// As many hops as the program of a batch needs (`hops` of its [`crate::batch::BatchLayout`]): empty where the loss
    /// sees no neighbours. Graphs that the loss does not depend on have numbers as well, which mean nothing.
    pub fanouts: Vec<Vec<Option<u32>>>,
}

/// What an output predicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// One class of several; the output holds logits.
    Classify {
        /// Number of classes.
        classes: usize,
    },
    /// Several labels at once; the output holds one logit each.
    MultiLabel {
        /// Number of labels.
        labels: usize,
    },
    /// Real numbers.
    Regress {
        /// How many.
        width: usize,
    },
}

/// A quantity measured on a part of the split.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Metric {
    /// Mean loss.
    Loss,
    /// Share of vertices whose class is right (several labels: whose labels are all right).
    Accuracy,
    /// F1 of the pooled counts.
    MicroF1,
    /// Mean of the classes' F1.
    MacroF1,
    /// Mean absolute error.
    Mae,
    /// Root of the mean squared error.
    Rmse,
}

impl Metric {
    /// Name in the language and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Loss => "loss",
            Metric::Accuracy => "accuracy",
            Metric::MicroF1 => "micro_f1",
            Metric::MacroF1 => "macro_f1",
            Metric::Mae => "mae",
            Metric::Rmse => "rmse",
        }
    }

    /// All metrics.
    pub const ALL: [Metric; 6] =
        [Metric::Loss, Metric::Accuracy, Metric::MicroF1, Metric::MacroF1, Metric::Mae, Metric::Rmse];

    /// Is a smaller value better?
    pub fn smaller_is_better(self) -> bool {
        matches!(self, Metric::Loss | Metric::Mae | Metric::Rmse)
    }
}

/// The part of a split.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// Trained on.
    Train,
    /// Chosen by.
    Val,
    /// Reported.
    Test,
}

impl Part {
    /// Name in the language and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Val => "val",
            Part::Test => "test",
        }
    }
}

/// A metric on a part: `val.loss`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Criterion {
    /// On what.
    pub part: Part,
    /// Which.
    pub metric: Metric,
}

/// `stop when C has not improved for N epochs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop {
    /// What is watched.
    pub criterion: Criterion,
    /// Epochs without improvement.
    pub patience: u64,
}
