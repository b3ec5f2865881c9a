//! Where compiler and runtime meet: two programs and what training needs to know.

use crate::batch::BatchLayout;
use crate::dataflow::Dataflow;
use crate::kernel;
use crate::types::{Graph, VertexType};

/// A compiled model.
#[derive(Clone, PartialEq, Debug)]
pub struct Artifact {
    /// Name of the model.
    pub model: String,
    /// One training step: forward, backward and update. Results: `loss`.
    pub train: Option<Dataflow>,
    /// Evaluation (no dropout). Results: each output of vertices by name, and, where the model is trained on vertices,
    /// `row_loss`: the loss of each vertex, `V[]`. Same tables as `train`, but for batches. Where the model scores
    /// links, also what [`Artifact::score`] is given.
    pub infer: Dataflow,
    /// The scores of pairs of vertices: a result `NAME.GRAPH` for each output of links and graph of links, f32
    /// `edges(GRAPH)[]`. Inputs are [`crate::dataflow::Binding::Given`] by results of `infer`. Its graphs are those of links;
    /// parameters have their positions, and one element where it does not use them.
    pub score: Option<Dataflow>,
    /// The programs as kernels, which is what the runtime executes.
    pub kernels: Kernels,
    /// How to train. `None` for a model without a `train` block.
    pub training: Option<Training>,
    /// How [`Artifact::train`] belongs to the whole graph, where it is the program of a batch: then it has tables of its
    /// own.
    pub batch: Option<BatchLayout>,
    /// What computes values that batches reuse, where they do ([`MiniBatch::reuse`]).
    pub bottom: Option<Bottom>,
}

/// The program of values that batches reuse: what the bottom layer gives to vertices. Forward only, on a batch of which they
/// are the seeds, whose one hop has the fan-outs of the last hop of [`MiniBatch`].
#[derive(Clone, PartialEq, Debug)]
pub struct Bottom {
    /// Results: [`crate::batch::Reused::name`] of each value. Parameters are those of [`Artifact::train`], in the same order.
    pub flow: Dataflow,
    /// The same as kernels.
    pub kernels: kernel::Program,
    /// How it belongs to the whole graph.
    pub layout: BatchLayout,
}

/// The programs of an artifact as kernels.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Kernels {
    /// [`Artifact::train`].
    pub train: Option<kernel::Program>,
    /// [`Artifact::infer`].
    pub infer: kernel::Program,
    /// [`Artifact::score`].
    pub score: Option<kernel::Program>,
}

/// The training block.
#[derive(Clone, PartialEq, Debug)]
pub struct Training {
    /// Name of the output that is trained.
    pub output: String,
    /// What it belongs to, and what it is compared with.
    pub target: Target,
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

/// What a trained output belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Vertices, compared with a label.
    Vertices {
        /// Their type.
        vertex: VertexType,
        /// Name of the label in the dataset.
        label: String,
    },
    /// Pairs of vertices, which are links of a relation or not.
    Links(LinkTarget),
}

impl Target {
    /// The vertex type of the output, if it belongs to vertices.
    pub fn vertex(&self) -> Option<VertexType> {
        match self {
            Target::Vertices { vertex, .. } => Some(*vertex),
            Target::Links(_) => None,
        }
    }
}

/// How links are learned: those of a batch are told from pairs that are none.
///
/// A link of a batch is never a message of that batch: from the graphs of its relation, in either direction, and from those
/// of `exclude`, the edges that join its ends are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkTarget {
    /// The graphs of links that are scored, by their position in the table of the whole graph.
    pub graphs: Vec<Graph>,
    /// Pairs that are none, for each link of a batch.
    pub negatives: Negatives,
    /// Relations that repeat links, as their inverses: position in the table of relations.
    pub exclude: Vec<u32>,
}

/// How pairs that are no links are drawn: one end of a link is replaced, the destination and the source in turns (where an
/// end is joined to all others, there is none).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negatives {
    /// For each link, at least 1.
    pub count: u32,
    /// By what it is replaced.
    pub by: NegativeEnds,
}

/// Ends of pairs that are no links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NegativeEnds {
    /// Any vertex of the type, all alike.
    Uniform,
    /// That of another link of the batch, of the same relation: a vertex with many links is likely to be drawn.
    InBatch,
}

/// How a step of training draws a subgraph. The step is the whole program on that subgraph.
#[derive(Clone, PartialEq, Debug)]
pub struct MiniBatch {
    /// Seeds of a batch: vertices, or links, that the loss is of. At least 1.
    pub size: usize,
    /// In-edges that a vertex draws, `[hops][graphs]`: hops counted from the seeds, graphs by their position in
    /// the table of the whole graph, which [`Artifact::infer`] has.
    ///
    /// As many hops as the program of a batch needs (`hops` of its [`crate::batch::BatchLayout`]): empty where the loss
    /// sees no neighbours. Graphs that the loss does not depend on have numbers as well, which mean nothing.
    pub fanouts: Vec<Vec<Fanout>>,
    /// Which values of the bottom layer batches take from a table.
    pub reuse: Option<Reuse>,
}

/// Reuse of what the bottom layer gives to hot vertices, as NeutronOrch does (Ai et al., PVLDB 17(8) 2024, "NeutronOrch:
/// rethinking sample-based GNN training under CPU-GPU heterogeneous environments"). Batches of an epoch come in
/// super-batches. Before the first one of a super-batch the values are computed; all of them take these as constants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reuse {
    /// Part of the vertices of each type that are hot: those that most batches need the value for. From 0 to 1.
    pub share: f64,
    /// Batches of a super-batch, at least 1. A value is at most one update less old.
    pub batches: u64,
}

/// Which in-edges a vertex draws in a semantic graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fanout {
    /// All.
    All,
    /// So many, each as probable as any other, or all where there are fewer. At least 1 where a model says it; a sampler is
    /// told 0 for what nothing needs.
    AtMost(u32),
    /// So many by the weights of the dataset, of those with a positive one. At least 1. Graphs of one relation only.
    Weighted(u32),
    /// From the vertices where random walks along the graph's metapath end. The graph has no self loops of its own.
    Walks {
        /// Walks of each vertex. At least 1.
        walks: u32,
        /// Ends that are kept: the most visited, of equally visited ones those of smaller ids. At least 1.
        top: u32,
    },
}

impl Fanout {
    /// Edges drawn of a row of `degree` edges that can be; by walks, at most so many.
    #[inline]
    pub fn of(self, degree: u32) -> u32 {
        match self {
            Fanout::All => degree,
            Fanout::AtMost(most) | Fanout::Weighted(most) => degree.min(most),
            Fanout::Walks { walks, top } => walks.min(top),
        }
    }

    /// The most in-edges that it draws; `None`: as many as there are.
    pub fn most(self) -> Option<u32> {
        match self {
            Fanout::All => None,
            Fanout::AtMost(most) | Fanout::Weighted(most) => Some(most),
            Fanout::Walks { walks, top } => Some(walks.min(top)),
        }
    }
}

/// As it is written in a train block.
impl std::fmt::Display for Fanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fanout::All => write!(f, "all"),
            Fanout::AtMost(most) => write!(f, "{most}"),
            Fanout::Weighted(most) => write!(f, "weighted({most})"),
            Fanout::Walks { walks, top } => write!(f, "walks({walks}, top: {top})"),
        }
    }
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
    /// Whether a pair is a link; the output holds one logit.
    Link,
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
    /// Probability that a link scores higher than a pair that is none: area under the ROC curve.
    Auc,
    /// Area under the curve of precision by recall, as a sum of steps.
    AveragePrecision,
    /// Mean of 1 / rank of links among all pairs with one end replaced, known links left out.
    Mrr,
    /// Share of links that are ranked first.
    Hits1,
    /// Share of links that are among the first three.
    Hits3,
    /// Share of links that are among the first ten.
    Hits10,
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
            Metric::Auc => "auc",
            Metric::AveragePrecision => "average_precision",
            Metric::Mrr => "mrr",
            Metric::Hits1 => "hits_1",
            Metric::Hits3 => "hits_3",
            Metric::Hits10 => "hits_10",
        }
    }

    /// All metrics.
    pub const ALL: [Metric; 12] = [
        Metric::Loss,
        Metric::Accuracy,
        Metric::MicroF1,
        Metric::MacroF1,
        Metric::Mae,
        Metric::Rmse,
        Metric::Auc,
        Metric::AveragePrecision,
        Metric::Mrr,
        Metric::Hits1,
        Metric::Hits3,
        Metric::Hits10,
    ];

    /// Is it the rank of a link among all pairs?
    pub fn is_ranking(self) -> bool {
        matches!(self, Metric::Mrr | Metric::Hits1 | Metric::Hits3 | Metric::Hits10)
    }

    /// Does it say something about outputs of a task?
    pub fn fits(self, task: Task) -> bool {
        match self {
            Metric::Loss => true,
            Metric::Accuracy | Metric::MicroF1 | Metric::MacroF1 => {
                matches!(task, Task::Classify { .. } | Task::MultiLabel { .. })
            }
            Metric::Mae | Metric::Rmse => matches!(task, Task::Regress { .. }),
            Metric::Auc | Metric::AveragePrecision | Metric::Mrr | Metric::Hits1 | Metric::Hits3 | Metric::Hits10 => {
                task == Task::Link
            }
        }
    }

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
