//! How a model is trained: what a `train` block says, for compiler and runtime.

use std::fmt;

use crate::dataflow::{Dataflow, Step, reversed};
use crate::ops::Direction;
use crate::types::{Graph, VertexType};

/// The training configuration of a `train` block.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Training {
    /// The terms of the loss that compare an output with its ground truth, in their order; at least one, unless the
    /// loss is a number that the model computes. Metrics of a loss of one such term have no name of a term.
    pub trained: Vec<Trained>,
    /// Whether the loss has terms that compare nothing with a ground truth. Their weighted sum is the result
    /// [`LOSS_NUMBER`] of an evaluation.
    pub has_number: bool,
    /// Maximum number of epochs.
    pub epochs: u64,
    /// Early stopping, if configured.
    pub stop: Option<Stop>,
    /// The criterion of the best epoch, by which runs are compared as well.
    pub select: Criterion,
    /// The epoch whose parameters are kept.
    pub keep: Keep,
    /// Metrics to report after each epoch.
    pub metrics: Vec<Metric>,
    /// The dataset split, unless the command line names another.
    pub split: Option<String>,
    /// The dataset, unless the command line names a folder (`synth acm`).
    pub dataset: Option<String>,
    /// The random seed, unless the command line gives one.
    pub seed: u64,
    /// Mini-batch training on sampled subgraphs. `None`: every step uses the whole graph.
    pub batch: Option<MiniBatch>,
}

impl Training {
    /// The first output that is compared with a ground truth. Predicted classes, scores of classes and the baseline are
    /// those of it, and mini-batches are of its vertices or links.
    pub fn first(&self) -> Option<&Trained> {
        self.trained.first()
    }

    /// The rows of the first trained output.
    pub fn target(&self) -> Option<&Target> {
        self.first().map(|trained| &trained.target)
    }

    /// The type of the seed vertices of mini-batches; `None` without mini-batches of vertices.
    pub fn seeds(&self) -> Option<VertexType> {
        let batch = self.batch.as_ref()?;
        match self.target() {
            Some(target) => target.vertex(),
            None => batch.all_of,
        }
    }

    /// The links that the loss scores. Their term is the only one with a ground truth.
    pub fn links(&self) -> Option<&LinkTarget> {
        match self.target()? {
            Target::Links(links) => Some(links),
            Target::Vertices { .. } => None,
        }
    }

    /// The links that the loss scores, to be changed.
    pub fn links_mut(&mut self) -> Option<&mut LinkTarget> {
        match &mut self.trained.first_mut()?.target {
            Target::Links(links) => Some(links),
            Target::Vertices { .. } => None,
        }
    }

    /// The loss and `metrics` of all trained outputs that they fit, in the order of the terms.
    pub fn measures(&self, metrics: &[Metric]) -> Vec<Measure> {
        let of_all = Measure { metric: Metric::Loss, term: None };
        let fitting = |task: Task, term: Option<usize>| {
            let fitting = metrics.iter().filter(move |metric| **metric != Metric::Loss && metric.fits(task));
            fitting.map(move |&metric| Measure { metric, term })
        };
        let mut all = vec![of_all];
        match &self.trained[..] {
            [only] => all.extend(fitting(only.task, None)),
            several => {
                for (index, trained) in several.iter().enumerate() {
                    all.push(Measure { metric: Metric::Loss, term: Some(index) });
                    all.extend(fitting(trained.task, Some(index)));
                }
            }
        }
        all
    }

    /// The name of a measure in reports and in the language: `loss`, or, of a term of several, `logits.loss`.
    pub fn measure_name(&self, measure: Measure) -> String {
        match measure.term.and_then(|term| self.trained.get(term)) {
            Some(trained) => format!("{}.{}", trained.name, measure.metric.name()),
            None => measure.metric.name().to_owned(),
        }
    }

    /// The rule by which the epoch is chosen whose parameters are kept, in reports and in the language: `val.loss`, or `last`.
    pub fn selection(&self) -> String {
        match self.keep {
            Keep::Best => self.criterion_name(self.select),
            Keep::Last => LAST.to_owned(),
        }
    }

    /// The name of a criterion in reports and in the language: `val.loss`.
    pub fn criterion_name(&self, criterion: Criterion) -> String {
        format!("{}.{}", criterion.part.name(), self.measure_name(criterion.measure))
    }
}

/// The epoch whose parameters a run keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// The best one by [`Training::select`].
    Best,
    /// The last one, whatever its metrics.
    Last,
}

/// The word for [`Keep::Last`] in the language and in reports.
pub const LAST: &str = "last";

/// A term of the loss that compares an output with its ground truth.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Trained {
    /// Name of the term in reports: that of its output, with a number where several terms are of it.
    pub name: String,
    /// Name of the output.
    pub output: String,
    /// The factor of the term in the loss.
    pub weight: f64,
    /// The rows of that output and their ground truth.
    pub target: Target,
    /// The kind of prediction, which fixes loss and interpretation of the output.
    pub task: Task,
}

/// The result with the loss of each vertex in the term at this position, of an evaluation.
pub fn row_loss(term: usize) -> String {
    if term == 0 { ROW_LOSS.to_owned() } else { format!("{ROW_LOSS}.{}", term + 1) }
}

/// The result with the loss of each vertex in the first term.
pub const ROW_LOSS: &str = "row_loss";

/// The result with the weighted sum of the terms without a ground truth, of an evaluation.
pub const LOSS_NUMBER: &str = "loss_number";

/// Is this the name of a result that training adds to the outputs of a model?
pub fn is_of_loss(result: &str) -> bool {
    let of_term = |rest: &str| rest.is_empty() || rest.starts_with('.');
    ["loss", LOSS_NUMBER].contains(&result) || result.strip_prefix(ROW_LOSS).is_some_and(of_term)
}

/// The rows of a trained output and their ground truth.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum Target {
    /// Vertices, which are compared with a label.
    Vertices {
        vertex: VertexType,
        /// Name of the label in the dataset.
        label: String,
    },
    /// Vertex pairs, which are classified as link or no link.
    Links(LinkTarget),
}

impl Target {
    /// The vertex type of the output; `None` for links.
    pub fn vertex(&self) -> Option<VertexType> {
        match self {
            Target::Vertices { vertex, .. } => Some(*vertex),
            Target::Links(_) => None,
        }
    }
}

/// Configuration of link prediction, which learns to tell the links of a batch from negative samples.
///
/// Links of a batch are no messages in that batch: the edges between the endpoints of a link are removed from the
/// graphs of its relation, in either direction, and from those of `exclude`.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkTarget {
    /// The graphs of links to score, by position in the tables of the whole graph.
    pub graphs: Vec<Graph>,
    /// The loss of their scores.
    pub loss: LinkLoss,
    /// Negative sampling for the links of a batch.
    pub negatives: Negatives,
    /// Relations that repeat the links, for example their inverses: positions in the table of relations.
    pub exclude: Vec<u32>,
}

/// A graph of links whose links are edges of another graph as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepeatedLinks {
    /// The graph of links, by its position in [`LinkTarget::graphs`].
    pub graph: usize,
    /// Whether the edges go from the destination of a link to its source.
    pub reverse: bool,
}

impl LinkTarget {
    /// The links that edges of a graph may repeat: those of the same relation or metapath, walked in either direction, and, if it
    /// is a relation of [`LinkTarget::exclude`], all links between its vertex types. `tables` are those of the whole graph.
    pub fn repeated_by(&self, tables: &Dataflow, graph: Graph) -> Vec<RepeatedLinks> {
        let decl = &tables.graphs[graph.index()];
        if decl.links || decl.steps.is_empty() {
            return vec![];
        }
        let is_excluded = matches!(decl.steps[..], [Step { relation, .. }] if self.exclude.contains(&relation));
        let backwards = reversed(&decl.steps);
        let of_graph = |(position, of): (usize, &Graph)| {
            let links = &tables.graphs[of.index()];
            let repeats = is_excluded || links.steps == decl.steps || links.steps == backwards;
            let ways = [(false, (links.src, links.dst)), (true, (links.dst, links.src))];
            let fitting = ways.into_iter().filter(move |&(_, ends)| repeats && ends == (decl.src, decl.dst));
            fitting.map(move |(reverse, _)| RepeatedLinks { graph: position, reverse })
        };
        self.graphs.iter().enumerate().flat_map(of_graph).collect()
    }

    /// Whether a part of the links can be held out, which a dataset does of relations only.
    pub fn has_held_out(&self, tables: &Dataflow) -> bool {
        self.graphs.iter().any(|graph| !tables.graphs[graph.index()].is_walked())
    }
}

/// A loss of links. `s` is the score of a link, `n` that of a negative sample of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LinkLoss {
    /// The mean over all pairs of the binary cross entropy of their scores.
    BinaryCrossEntropy,
    /// A loss that compares each link with its own negative samples.
    Ranking(RankingLoss),
}

/// A loss that compares the score of each link with those of its own negative samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RankingLoss {
    /// `ln(1 + Σ e^(n - s))`, the cross entropy of choosing the link among its negative samples (sampled softmax, InfoNCE);
    /// the mean over links.
    CrossEntropy,
    /// `ln(1 + e^(n - s))` (Rendle et al., UAI 2009); the mean over negative samples.
    Bpr,
    /// `max(0, margin - s + n)` (Bordes et al., NeurIPS 2013); the mean over negative samples.
    Margin(f64),
    /// `ln(1 + e^(-s)) + Σ p ln(1 + e^n)`, where `p` is the softmax of `temperature · n` over the negative samples, and
    /// constant for the gradient (Sun et al., ICLR 2019, eq. 5 and 6); the mean over links.
    SelfAdversarial(f64),
}

impl LinkLoss {
    /// The name in the language.
    pub fn name(self) -> &'static str {
        match self {
            LinkLoss::BinaryCrossEntropy => "binary_cross_entropy",
            LinkLoss::Ranking(loss) => loss.name(),
        }
    }
}

impl RankingLoss {
    /// The name in the language.
    pub fn name(self) -> &'static str {
        match self {
            RankingLoss::CrossEntropy => "cross_entropy",
            RankingLoss::Bpr => "bpr",
            RankingLoss::Margin(_) => "margin_ranking",
            RankingLoss::SelfAdversarial(_) => "self_adversarial",
        }
    }
}

/// Negative sampling: each sample replaces one endpoint of a link, alternating between destination and source. An
/// endpoint that is linked to all candidates gets no sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negatives {
    /// Negative samples per link, at least 1.
    pub count: u32,
    /// The distribution of the replacement.
    pub by: NegativeEnds,
    /// Whether the first two samples of a link are its source and its destination joined with itself, where its relation
    /// joins a vertex type with itself. Ranks compare a link with these, and a score that grows with what both ends have in
    /// common gives them the most; samples of all vertices hardly ever are one.
    pub self_loops: bool,
}

impl fmt::Display for Negatives {
    /// As in the language.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, by, self_loops } = self;
        let self_loops = if *self_loops { ", self_loops: true" } else { "" };
        write!(f, "{}({count}{self_loops})", by.name())
    }
}

/// The distribution of the replacing endpoints of negative samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NegativeEnds {
    /// Uniform over the vertices of the type.
    Uniform,
    /// The endpoint of another link of the same relation in the batch; favours high-degree vertices.
    InBatch,
    /// Uniform over the vertices of the type, without replacement, once for each batch: all of its links are compared with
    /// these samples, in place of either endpoint ([`crate::link_rows`]).
    Shared,
    /// The same, in place of the destination only.
    SharedDestinations,
}

impl NegativeEnds {
    /// All of them.
    pub const ALL: [NegativeEnds; 4] =
        [NegativeEnds::Uniform, NegativeEnds::InBatch, NegativeEnds::Shared, NegativeEnds::SharedDestinations];

    /// The name in the language.
    pub fn name(self) -> &'static str {
        match self {
            NegativeEnds::Uniform => "uniform",
            NegativeEnds::InBatch => "in_batch",
            NegativeEnds::Shared => "shared",
            NegativeEnds::SharedDestinations => "shared_destinations",
        }
    }

    /// The endpoints that samples replace which all links of a batch share; none where each link has its own samples.
    pub fn shared(self) -> &'static [Direction] {
        match self {
            NegativeEnds::Uniform | NegativeEnds::InBatch => &[],
            NegativeEnds::Shared => &[Direction::In, Direction::Out],
            NegativeEnds::SharedDestinations => &[Direction::In],
        }
    }
}

/// Neighbour sampling for mini-batch training. A step runs the whole program on the sampled subgraph.
#[derive(Clone, PartialEq, Debug)]
pub struct MiniBatch {
    /// Seed vertices (or links) per batch, at least 1. The loss is taken over them.
    pub size: usize,
    /// Where the loss compares nothing with a ground truth: the vertex type that it goes over, whose vertices are all seeds
    /// of an epoch. `None`: the seeds are those of the training part.
    pub all_of: Option<VertexType>,
    /// Fan-outs, `[hops][graphs]`: hops counted from the seeds, graphs by position in the tables of the whole
    /// graph, which `Executable::infer` has.
    ///
    /// The number of hops is `hops` of the mini-batch program's [`crate::batch::BatchLayout`]; 0 if the loss depends on
    /// no neighbours. The entries of graphs that the loss does not depend on are meaningless.
    pub fanouts: Vec<Vec<Fanout>>,
    /// Historical embeddings, if mini-batches reuse them.
    pub reuse: Option<Reuse>,
}

/// Reuse of bottom-layer embeddings of hot vertices: historical embeddings (GNNAutoScale, Fey et al., ICML 2021,
/// "GNNAutoScale: scalable and expressive graph neural networks via historical embeddings") of those vertices that
/// NeutronOrch chooses (Ai et al., PVLDB 17(8) 2024). An epoch is divided into windows of batches. The first batch of a
/// window that computes the embedding of a hot vertex keeps it, and later batches of the window read it as a constant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reuse {
    /// Fraction of the vertices of each type that are hot, from 0 to 1: those whose embedding most batches need.
    pub share: f64,
    /// Batches per window, at least 1. A value is at most `batches - 1` updates old.
    pub batches: u64,
}

/// The in-edges that a vertex samples in a semantic graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fanout {
    /// All in-edges of the vertex.
    All,
    /// At most this many, uniform without replacement; all if there are fewer. At least 1 in a model; the sampler also
    /// accepts 0 for graphs that no value depends on.
    AtMost(u32),
    /// At most this many edges, weighted by the dataset's edge weights; edges of weight 0 are never drawn. At least 1.
    /// Only for graphs of a single relation.
    Weighted(u32),
    /// At most this many edges, those with the latest times: of the edge, or else of its source. Equal times go by the order
    /// of the edges. At least 1.
    Latest(u32),
    /// From the endpoints of random walks along the graph's metapath. The graph has no self loops of its own.
    Walks {
        /// Random walks per vertex, at least 1.
        walks: u32,
        /// Number of most visited endpoints to keep, at least 1; ties go to the smaller id.
        top: u32,
    },
}

impl Fanout {
    /// Number of edges sampled from `degree` candidates; an upper bound for random walks.
    #[inline]
    pub fn of(self, degree: u32) -> u32 {
        match self {
            Fanout::All => degree,
            Fanout::AtMost(most) | Fanout::Weighted(most) | Fanout::Latest(most) => degree.min(most),
            Fanout::Walks { walks, top } => walks.min(top),
        }
    }

    /// Maximum number of sampled in-edges; `None` if unlimited.
    pub fn most(self) -> Option<u32> {
        match self {
            Fanout::All => None,
            Fanout::AtMost(most) | Fanout::Weighted(most) | Fanout::Latest(most) => Some(most),
            Fanout::Walks { walks, top } => Some(walks.min(top)),
        }
    }
}

/// The syntax of a train block.
impl std::fmt::Display for Fanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fanout::All => write!(f, "all"),
            Fanout::AtMost(most) => write!(f, "{most}"),
            Fanout::Weighted(most) => write!(f, "weighted({most})"),
            Fanout::Latest(most) => write!(f, "latest({most})"),
            Fanout::Walks { walks, top } => write!(f, "walks({walks}, top: {top})"),
        }
    }
}

/// The kind of prediction of an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum Task {
    /// Single-label classification; the output holds logits.
    Classify { classes: usize },
    /// Multi-label classification; the output holds one logit per label.
    MultiLabel { labels: usize },
    /// Regression of real numbers.
    Regress {
        /// Numbers to predict per row.
        width: usize,
    },
    /// Link prediction; the output holds one logit per pair.
    Link,
}

/// Ranks that metrics of links are computed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ranking {
    /// Of each link among the pairs with one of its ends replaced, without all other links.
    BothEnds,
    /// Of all links of a source among its pairs with any destination, without the links of earlier parts.
    Destinations,
}

/// A quantity measured on one part of the split.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are standard metrics")]
pub enum Metric {
    Loss,
    /// Share of vertices with the right class (multi-label: with all labels right).
    Accuracy,
    /// F1 of the counts pooled over classes.
    MicroF1,
    /// Unweighted mean of the F1 of each class.
    MacroF1,
    Mae,
    Rmse,
    /// Area under the ROC curve: the probability that a link scores higher than a negative sample.
    Auc,
    /// Area under the precision-recall curve, as a sum of steps.
    AveragePrecision,
    /// Mean reciprocal rank of links among all pairs with one endpoint replaced, other known links filtered out.
    Mrr,
    /// Share of links ranked first (filtered).
    Hits1,
    /// Share of links ranked among the first three.
    Hits3,
    /// Share of links ranked among the first ten.
    Hits10,
    /// Share of a source's links that are among its first 20 destinations, those of training left out; mean over sources.
    Recall20,
    /// Normalised discounted cumulative gain of the first 20 destinations (Järvelin and Kekäläinen, TOIS 2002).
    Ndcg20,
}

impl Metric {
    /// The name in the language and in reports.
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
            Metric::Recall20 => "recall_20",
            Metric::Ndcg20 => "ndcg_20",
        }
    }

    /// All metrics, in the order of the enum.
    pub const ALL: [Metric; 14] = [
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
        Metric::Recall20,
        Metric::Ndcg20,
    ];

    /// The ranks that it is computed from, if any: of links among all pairs, which takes more time than other metrics.
    pub fn ranking(self) -> Option<Ranking> {
        match self {
            Metric::Loss
            | Metric::Accuracy
            | Metric::MicroF1
            | Metric::MacroF1
            | Metric::Mae
            | Metric::Rmse
            | Metric::Auc
            | Metric::AveragePrecision => None,
            Metric::Mrr | Metric::Hits1 | Metric::Hits3 | Metric::Hits10 => Some(Ranking::BothEnds),
            Metric::Recall20 | Metric::Ndcg20 => Some(Ranking::Destinations),
        }
    }

    /// Is the metric defined for outputs of the task?
    pub fn fits(self, task: Task) -> bool {
        match self {
            Metric::Loss => true,
            Metric::Accuracy | Metric::MicroF1 | Metric::MacroF1 => {
                matches!(task, Task::Classify { .. } | Task::MultiLabel { .. })
            }
            Metric::Mae | Metric::Rmse => matches!(task, Task::Regress { .. }),
            Metric::Auc
            | Metric::AveragePrecision
            | Metric::Mrr
            | Metric::Hits1
            | Metric::Hits3
            | Metric::Hits10
            | Metric::Recall20
            | Metric::Ndcg20 => task == Task::Link,
        }
    }

    /// Is a smaller value better?
    pub fn smaller_is_better(self) -> bool {
        matches!(self, Metric::Loss | Metric::Mae | Metric::Rmse)
    }
}

/// One part of a dataset split.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// Vertices or links that the loss is computed on.
    Train,
    /// Vertices or links that select the best epoch.
    Val,
    /// Vertices or links for the final report.
    Test,
}

impl Part {
    /// The name in the language and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Val => "val",
            Part::Test => "test",
        }
    }
}

/// A metric of a trained output, or the loss as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Measure {
    /// The metric that is measured.
    pub metric: Metric,
    /// The term, of a loss that compares several outputs with ground truth. `None` is the weighted sum of all terms for
    /// [`Metric::Loss`], and else a metric of the only trained output.
    pub term: Option<usize>,
}

/// A measure on a part: `val.loss`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Criterion {
    pub part: Part,
    pub measure: Measure,
}

/// `stop when C has not improved for N epochs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop {
    /// The metric that must improve.
    pub criterion: Criterion,
    /// Epochs without improvement before training stops.
    pub patience: u64,
}
