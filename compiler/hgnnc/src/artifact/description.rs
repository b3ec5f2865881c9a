//! The metadata of an artifact: its JSON form, and the forms of the runtime that it is made of.
//! `docs/artifact.md` describes every field, and a test compares it with this file.

use std::collections::BTreeMap;

use hgnnc_dataset::Dataset;
use hgnnc_dataset::dataset::{LabelValues, Transform, TransformKind, VertexIds};
use hgnnc_ir::dataflow::{Binding, GraphDecl, Matrix};
use hgnnc_ir::outputs::{FamilyOutput, FamilyRows};
use hgnnc_ir::training::{
    Criterion, Keep, LAST, LinkLoss, LinkTarget, Measure, Metric, MiniBatch, NegativeEnds, Negatives, Part,
    RankingLoss, Stop, Target, Task, Trained, Training,
};
use hgnnc_ir::types::{Graph, Layout, VertexType};
use hgnnc_ir::{Dataflow, Dim, Op, PathRows};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The version of the format that this program writes, and the newest that it reads.
pub const VERSION: u32 = 7;

/// The metadata of an artifact.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Version of the format.
    pub artifact: u32,
    /// Version of the program that wrote it.
    pub hgnnc: String,
    /// Name of the model.
    pub model: String,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// The outputs of semantic graphs and of edges. Version 1 had none.
    #[serde(default)]
    pub families: Vec<FamilyForm>,
    /// The prediction of the model and its metrics; `None` for a model without a `train` block.
    pub evaluation: Option<Evaluation>,
    /// Vertex types of the model, in the order of the program.
    pub vertices: Vec<VertexSchema>,
    /// Relations of the model, in the order of the program.
    pub relations: Vec<RelationSchema>,
    /// How the parameters were trained, where that is known.
    pub training: Option<Summary>,
    /// The forward program in the text form of the dataflow IR, with the dataset's names.
    pub program: String,
}

/// An output of semantic graphs or of their edges: the program has a result for each of the graphs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyForm {
    /// Name of the output in the model.
    pub output: String,
    /// The word of its declaration: `graphs` for a row of each graph, `edges` for one of each edge.
    pub rows: String,
    /// The semantic graphs, in their order.
    pub members: Vec<MemberForm>,
}

/// The result of a semantic graph.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberForm {
    /// Name of the semantic graph in the program.
    pub graph: String,
    /// Name of the result in the program.
    pub result: String,
}

/// The prediction of a model and its metrics.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Name of the trained output, the first one of several.
    pub output: String,
    /// The kind of prediction.
    pub task: TaskForm,
    /// The labels or links that the output is compared with.
    pub target: TargetForm,
    /// The loss, where it is more than the comparison of this output. Versions before 3 had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossForm>,
    /// Names of the metrics, as in reports.
    pub metrics: Vec<String>,
    /// The metric that selected the parameters, `PART.METRIC`.
    pub select: String,
    /// The metric of early stopping.
    pub stop: Option<StopForm>,
    /// The split of the dataset, if the model names one.
    pub split: Option<String>,
    /// The synthetic dataset that the model names (`synth acm`).
    pub dataset: Option<String>,
    /// The seed of the model.
    pub seed: u64,
    /// The number of epochs of the model.
    pub epochs: u64,
    /// Seeds of a mini-batch, if it was trained on mini-batches.
    pub batch: Option<usize>,
}

/// A loss that is a sum of terms.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossForm {
    /// The factor of the first output's term.
    pub weight: f64,
    /// Whether there are terms that compare nothing.
    pub number: bool,
    /// The terms that compare further outputs.
    pub terms: Vec<TermForm>,
}

/// A term of the loss that compares an output.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TermForm {
    /// Name of the term in reports.
    pub name: String,
    /// Name of the output.
    pub output: String,
    /// The factor of the term.
    pub weight: f64,
    /// The kind of prediction.
    pub task: TaskForm,
    /// The labels that the output is compared with.
    pub target: TargetForm,
}

/// The kind of prediction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum TaskForm {
    /// One class of several; the output has their logits.
    Class { width: usize },
    /// Any of several classes; the output has their logits.
    Multilabel { width: usize },
    /// Real numbers.
    Numbers { width: usize },
    /// Whether pairs of vertices are linked.
    Links,
}

/// Ground truth that an output is compared with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetForm {
    /// A label of vertices.
    Label {
        /// The vertex type, by its name in the model.
        vertex: String,
        /// The label, by its name in the dataset.
        label: String,
        /// Names of the classes or numbers; empty where the dataset has none.
        classes: Vec<String>,
    },
    /// Links of relations.
    Links {
        /// The graphs of links that are scored, by name.
        graphs: Vec<String>,
        /// The loss of their scores by its name in the language, unless it is `binary_cross_entropy`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss: Option<String>,
        /// The margin of `margin_ranking`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        margin: Option<f64>,
        /// The temperature of `self_adversarial`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        temperature: Option<f64>,
        /// Negative samples of a link.
        negatives: u32,
        /// How their ends are drawn: `uniform`, `in_batch`, `shared` or `shared_destinations`.
        by: String,
        /// Whether two samples join an end with itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        self_loops: bool,
        /// Relations that repeat the links, by name.
        exclude: Vec<String>,
    },
}

/// Early stopping.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopForm {
    /// `PART.METRIC`.
    pub criterion: String,
    /// Epochs without improvement.
    pub patience: u64,
}

/// A vertex type, and the dataset that the model was trained on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VertexSchema {
    /// Name in the model.
    pub name: String,
    /// Name in the dataset.
    pub dataset: String,
    /// Vertices of this type in training.
    pub count: usize,
    /// The features that the program reads.
    pub features: Option<FeatureSchema>,
    /// The fields of the dataset that the program reads beside them. Since version 4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldSchema>,
    /// Whether parameters have a row for each vertex (`embedding[n]`, `onehot`).
    pub rows: bool,
    /// Hash of the ids of the vertices in their order (XXH3, 128 bits, hexadecimal), if the dataset has ids.
    pub ids: Option<String>,
    /// How the columns of the features were made of tables.
    pub transforms: Vec<TransformForm>,
}

/// Features of a vertex type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureSchema {
    /// Number of columns of the matrix.
    pub width: usize,
    /// Whether they are stored as CSR.
    pub sparse: bool,
}

/// Features of a vertex type that have a name in the dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldSchema {
    /// Name in the dataset.
    pub name: String,
    /// Columns that another dataset must have as well.
    pub width: usize,
    /// Whether they are stored as CSR.
    pub sparse: bool,
}

/// A relation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationSchema {
    /// Name in the model.
    pub name: String,
    /// Name in the dataset.
    pub dataset: String,
    /// Vertex type of the sources, by its name in the model.
    pub source: String,
    /// Vertex type of the destinations.
    pub destination: String,
    /// Whether the program reads weights of its edges.
    pub weight: bool,
    /// Width of the edge features that the program reads.
    pub features: Option<usize>,
}

/// A transform of columns of a table to features, with its fitted numbers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "see `TransformKind`")]
pub enum TransformForm {
    Numbers { columns: Vec<String>, shift: Vec<f64>, scale: Vec<f64>, missing: Vec<f64> },
    OneHot { columns: Vec<String>, categories: Vec<String>, separator: Option<String> },
    Buckets { columns: Vec<String>, bounds: Vec<f64> },
    Vector { columns: Vec<String>, separator: String, width: usize },
}

/// How parameters were trained.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Name of the dataset.
    pub dataset: String,
    /// Seed of the run.
    pub seed: u64,
    /// Epochs of the run.
    pub epochs: u64,
    /// Epoch of the parameters, from 1.
    pub best_epoch: Option<u64>,
    /// Metrics by part of the split. Those that are not finite are left out.
    pub metrics: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Description {
    /// Describes a model with the names of a dataset, before any pass.
    pub(crate) fn new(
        flow: &Dataflow,
        (outputs, families): (&[String], &[FamilyOutput]),
        training: Option<&Training>,
        dataset: &Dataset,
    ) -> Self {
        // A loss that compares nothing is not measured.
        let evaluation = training.and_then(|training| Evaluation::new(flow, training, dataset));
        // Older versions read what they know.
        let has_terms = evaluation.as_ref().is_some_and(|of| of.loss.is_some());
        let has_fields =
            flow.inputs.iter().any(|input| matches!(input.binding, Binding::Features(_, Matrix::Field(_))));
        let has_labels = train_labels(flow).next().is_some();
        let keeps_last = training.is_some_and(|training| training.keep == Keep::Last);
        let is_new = |graph: &GraphDecl| graph.past || graph.kept.is_some();
        let has_times_or_limits = flow.graphs.iter().any(is_new)
            || flow.inputs.iter().any(|input| matches!(input.binding, Binding::Time(_) | Binding::EdgeTime(_)));
        let has_cutoff_rows = flow.paths.iter().any(|path| path.rows == PathRows::Cutoffs);
        let compares_links = flow.values.iter().any(|data| matches!(data.op, Op::LinkLoss(_)));
        let walks_links = flow.graphs.iter().any(GraphDecl::is_walked);
        let has_hard_samples = training.and_then(Training::links).is_some_and(|links| {
            let is_adversarial = matches!(links.loss, LinkLoss::Ranking(RankingLoss::SelfAdversarial(_)));
            links.negatives.self_loops || is_adversarial
        });
        let needed = [
            (has_hard_samples, VERSION),
            (compares_links || walks_links || has_cutoff_rows, 6),
            (has_labels || has_times_or_limits, 5),
            (has_fields || keeps_last, 4),
            (has_terms, 3),
        ];
        Self {
            artifact: needed.into_iter().find(|(is_needed, _)| *is_needed).map_or(2, |(_, version)| version),
            hgnnc: env!("CARGO_PKG_VERSION").into(),
            model: flow.name.clone(),
            outputs: outputs.to_vec(),
            families: families.iter().map(|family| FamilyForm::new(flow, family)).collect(),
            evaluation,
            vertices: (0..flow.vertex_types.len()).map(|row| vertex(flow, VertexType::new(row), dataset)).collect(),
            relations: relations(flow),
            training: None,
            program: hgnnc_ir::print(flow),
        }
    }
}

impl FamilyForm {
    fn new(flow: &Dataflow, family: &FamilyOutput) -> Self {
        let member = |(graph, result): &(Graph, String)| MemberForm {
            graph: flow.graphs[graph.index()].name.clone(),
            result: result.clone(),
        };
        Self {
            output: family.name.clone(),
            rows: family.rows.name().into(),
            members: family.members.iter().map(member).collect(),
        }
    }

    /// The output, of a program.
    ///
    /// # Errors
    /// The name that means nothing.
    pub(super) fn family(&self, flow: &Dataflow) -> Result<FamilyOutput, String> {
        let rows = [FamilyRows::Graphs, FamilyRows::Edges].into_iter().find(|known| known.name() == self.rows);
        let member = |of: &MemberForm| {
            let graph = flow.graphs.iter().position(|decl| decl.name == of.graph);
            let graph = graph.ok_or_else(|| format!("there is no graph `{}`", of.graph))?;
            Ok((Graph::new(graph), of.result.clone()))
        };
        Ok(FamilyOutput {
            name: self.output.clone(),
            rows: rows.ok_or_else(|| format!("there are no outputs of `{}`", self.rows))?,
            members: self.members.iter().map(member).collect::<Result<_, String>>()?,
        })
    }
}

/// The features of a vertex type that a program reads, by field; `None` for those of the dataset's `features`.
pub(super) fn features(flow: &Dataflow, vertex: VertexType) -> BTreeMap<Option<String>, FeatureSchema> {
    let read = flow.inputs.iter().filter_map(|input| {
        let (of, field) = match &input.binding {
            Binding::Features(of, Matrix::Features) => (of, None),
            Binding::Features(of, Matrix::Field(field)) => (of, Some(field.clone())),
            _ => return None,
        };
        let width = input.ty.dims.first()?.fixed().filter(|_| *of == vertex)?;
        Some((field, FeatureSchema { width, sparse: matches!(input.ty.layout, Layout::Sparse(_)) }))
    });
    read.collect()
}

/// The labels that a program reads in the training part of a split: vertex type, label, and number of columns.
pub(super) fn train_labels(flow: &Dataflow) -> impl Iterator<Item = (VertexType, &str, usize)> {
    flow.inputs.iter().filter_map(|input| match &input.binding {
        Binding::Features(of, Matrix::TrainLabels(label)) => Some((*of, &label[..], input.ty.dims.first()?.fixed()?)),
        _ => None,
    })
}

/// The features that a program reads, as a schema has them: those without a name, and fields.
pub(super) fn in_schema(flow: &Dataflow, vertex: VertexType) -> (Option<FeatureSchema>, Vec<FieldSchema>) {
    let mut read = features(flow, vertex);
    let unnamed = read.remove(&None);
    let field =
        |(name, FeatureSchema { width, sparse }): (Option<String>, _)| Some(FieldSchema { name: name?, width, sparse });
    (unnamed, read.into_iter().filter_map(field).collect())
}

/// Whether a program has parameters with a row for each vertex of a type.
pub(super) fn has_rows(flow: &Dataflow, vertex: VertexType) -> bool {
    flow.params.iter().flat_map(|param| &param.dims).any(|dim| *dim == Dim::Count(vertex))
}

fn vertex(flow: &Dataflow, vertex: VertexType, dataset: &Dataset) -> VertexSchema {
    let decl = &flow.vertex_types[vertex.index()];
    let data = dataset.vertex_type(&decl.dataset_name).map(|of| &dataset.vertex_types[of]);
    let (features, fields) = in_schema(flow, vertex);
    let read = data.filter(|_| features.is_some());
    VertexSchema {
        name: decl.name.clone(),
        dataset: decl.dataset_name.clone(),
        count: data.map_or(0, |data| data.count),
        features,
        fields,
        rows: has_rows(flow, vertex),
        ids: data.and_then(|data| data.ids.as_ref()).map(hash_of_ids),
        transforms: read.iter().flat_map(|data| &data.transforms).map(TransformForm::from).collect(),
    }
}

/// The relations of a program.
pub(super) fn relations(flow: &Dataflow) -> Vec<RelationSchema> {
    let name = |vertex: VertexType| flow.vertex_types[vertex.index()].name.clone();
    let of = |graph: Graph, relation: usize| {
        flow.graphs.get(graph.index()).is_some_and(|decl| decl.steps.iter().any(|s| s.relation as usize == relation))
    };
    let schema = |(row, decl): (usize, &hgnnc_ir::dataflow::RelationDecl)| {
        let weight = flow.inputs.iter().any(|input| match input.binding {
            Binding::EdgeWeight(graph) => of(graph, row),
            _ => false,
        });
        let features = flow.inputs.iter().find_map(|input| match input.binding {
            Binding::EdgeFeatures(graph) if of(graph, row) => input.ty.dims.first()?.fixed(),
            _ => None,
        });
        RelationSchema {
            name: decl.name.clone(),
            dataset: decl.dataset_name.clone(),
            source: name(decl.src),
            destination: name(decl.dst),
            weight,
            features,
        }
    };
    flow.relations.iter().enumerate().map(schema).collect()
}

/// Hash of the ids of the vertices of a type, in their order.
pub(super) fn hash_of_ids(ids: &VertexIds) -> String {
    let mut hash = Xxh3::new();
    for vertex in 0..ids.len() {
        let text = ids.text(vertex);
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    format!("{:032x}", hash.digest128())
}

/// The kind of a label, and its number of classes or columns.
pub(super) fn kind_of(values: &LabelValues) -> TaskForm {
    match *values {
        LabelValues::Single { classes, .. } => TaskForm::Class { width: classes },
        LabelValues::Multi { classes, .. } => TaskForm::Multilabel { width: classes },
        LabelValues::Real { dim, .. } => TaskForm::Numbers { width: dim },
    }
}

impl Evaluation {
    /// `None` for a loss that compares nothing.
    fn new(flow: &Dataflow, training: &Training, dataset: &Dataset) -> Option<Self> {
        let criterion = |of: Criterion| training.criterion_name(of);
        let stop = training.stop.map(|stop| StopForm { criterion: criterion(stop.criterion), patience: stop.patience });
        let (first, further) = training.trained.split_first()?;
        let number = training.has_number;
        let term = |of: &Trained| TermForm {
            name: of.name.clone(),
            output: of.output.clone(),
            weight: of.weight,
            task: TaskForm::of(of.task),
            target: TargetForm::of(flow, &of.target, dataset),
        };
        let loss = LossForm { weight: first.weight, number, terms: further.iter().map(term).collect() };
        Some(Self {
            output: first.output.clone(),
            task: TaskForm::of(first.task),
            target: TargetForm::of(flow, &first.target, dataset),
            loss: Some(loss).filter(|loss| loss.weight != 1.0 || loss.number || !loss.terms.is_empty()),
            metrics: training.metrics.iter().map(|metric| metric.name().into()).collect(),
            select: training.selection(),
            stop,
            split: training.split.clone(),
            dataset: training.dataset.clone().filter(|name| name.starts_with("synth ")),
            seed: training.seed,
            epochs: training.epochs,
            batch: training.batch.as_ref().map(|batch| batch.size),
        })
    }

    /// The names of the trained outputs.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.output).chain(self.further().iter().map(|term| &term.output))
    }

    /// The task and the ground truth of each trained output.
    pub(super) fn targets(&self) -> impl Iterator<Item = (&TaskForm, &TargetForm)> {
        std::iter::once((&self.task, &self.target)).chain(self.further().iter().map(|term| (&term.task, &term.target)))
    }

    fn further(&self) -> &[TermForm] {
        self.loss.as_ref().map_or(&[], |loss| &loss.terms)
    }

    /// The training configuration, as evaluations read it: without fan-outs.
    ///
    /// # Errors
    /// The name that means nothing.
    pub(super) fn training(&self, flow: &Dataflow) -> Result<Training, String> {
        let loss = self.loss.as_ref();
        let first = Trained {
            name: self.output.clone(),
            output: self.output.clone(),
            weight: loss.map_or(1.0, |loss| loss.weight),
            target: self.target.target(flow)?,
            task: self.task.task(),
        };
        let mut trained = vec![first];
        for term in self.further() {
            trained.push(Trained {
                name: term.name.clone(),
                output: term.output.clone(),
                weight: term.weight,
                target: term.target.target(flow)?,
                task: term.task.task(),
            });
        }
        let metric = |name: &String| {
            let found = Metric::ALL.into_iter().find(|metric| metric.name() == name);
            found.ok_or_else(|| format!("there is no metric `{name}`"))
        };
        let stop = match &self.stop {
            Some(stop) => Some(Stop { criterion: criterion_of(&stop.criterion, &trained)?, patience: stop.patience }),
            None => None,
        };
        // Nothing is trained: by what other metric the best epoch would be known does not matter.
        let other = Criterion { part: Part::Val, measure: Measure { metric: Metric::Loss, term: None } };
        let (select, keep) = match &self.select[..] {
            LAST => (other, Keep::Last),
            criterion => (criterion_of(criterion, &trained)?, Keep::Best),
        };
        Ok(Training {
            trained,
            has_number: loss.is_some_and(|loss| loss.number),
            epochs: self.epochs,
            stop,
            select,
            keep,
            metrics: self.metrics.iter().map(metric).collect::<Result<_, _>>()?,
            split: self.split.clone(),
            dataset: self.dataset.clone(),
            seed: self.seed,
            batch: self.batch.map(|size| MiniBatch { size, all_of: None, fanouts: vec![], reuse: None }),
        })
    }
}

/// More negative samples of a link are not drawn in evaluations.
const MOST_NEGATIVES: u32 = 1 << 16;

fn criterion_of(text: &str, trained: &[Trained]) -> Result<Criterion, String> {
    let wrong = || format!("`{text}` is no metric of a part, such as `val.loss`");
    let (part, measure) = text.split_once('.').ok_or_else(wrong)?;
    let part = [Part::Train, Part::Val, Part::Test].into_iter().find(|known| known.name() == part);
    // Names of outputs may have points.
    let (term, metric) = measure.rsplit_once('.').map_or((None, measure), |(term, metric)| (Some(term), metric));
    let metric = Metric::ALL.into_iter().find(|known| known.name() == metric);
    let term = match term {
        Some(name) => Some(trained.iter().position(|of| of.name == name).ok_or_else(wrong)?),
        None => None,
    };
    let measure = Measure { metric: metric.ok_or_else(wrong)?, term };
    Ok(Criterion { part: part.ok_or_else(wrong)?, measure })
}

impl TaskForm {
    fn of(task: Task) -> Self {
        match task {
            Task::Classify { classes } => Self::Class { width: classes },
            Task::MultiLabel { labels } => Self::Multilabel { width: labels },
            Task::Regress { width } => Self::Numbers { width },
            Task::Link => Self::Links,
        }
    }

    fn task(&self) -> Task {
        match *self {
            Self::Class { width } => Task::Classify { classes: width },
            Self::Multilabel { width } => Task::MultiLabel { labels: width },
            Self::Numbers { width } => Task::Regress { width },
            Self::Links => Task::Link,
        }
    }
}

impl TargetForm {
    fn of(flow: &Dataflow, target: &Target, dataset: &Dataset) -> Self {
        match target {
            Target::Vertices { vertex, label } => {
                let decl = &flow.vertex_types[vertex.index()];
                let data = dataset.vertex_type(&decl.dataset_name).and_then(|of| dataset.label(of, label));
                Self::Label {
                    vertex: decl.name.clone(),
                    label: label.clone(),
                    classes: data.map(|data| data.class_names.clone()).unwrap_or_default(),
                }
            }
            Target::Links(links) => Self::Links {
                graphs: links.graphs.iter().map(|graph| flow.graphs[graph.index()].name.clone()).collect(),
                loss: (links.loss != LinkLoss::BinaryCrossEntropy).then(|| links.loss.name().into()),
                margin: match links.loss {
                    LinkLoss::Ranking(RankingLoss::Margin(margin)) => Some(margin),
                    _ => None,
                },
                temperature: match links.loss {
                    LinkLoss::Ranking(RankingLoss::SelfAdversarial(temperature)) => Some(temperature),
                    _ => None,
                },
                negatives: links.negatives.count,
                by: links.negatives.by.name().into(),
                self_loops: links.negatives.self_loops,
                exclude: links.exclude.iter().map(|&of| flow.relations[of as usize].name.clone()).collect(),
            },
        }
    }

    /// The target, of a program.
    ///
    /// # Errors
    /// The name that means nothing.
    fn target(&self, flow: &Dataflow) -> Result<Target, String> {
        Ok(match self {
            TargetForm::Label { vertex, label, .. } => {
                let found = flow.vertex_types.iter().position(|decl| decl.name == *vertex);
                let vertex = VertexType::new(found.ok_or_else(|| format!("there is no vertex type `{vertex}`"))?);
                Target::Vertices { vertex, label: label.clone() }
            }
            TargetForm::Links { graphs, loss, margin, temperature, negatives, by, self_loops, exclude } => {
                let graph = |name: &String| {
                    let is_it = |decl: &GraphDecl| decl.name == *name && decl.links && decl.derived.is_none();
                    let found = flow.graphs.iter().position(is_it);
                    found.map(Graph::new).ok_or_else(|| format!("there is no graph of links `{name}`"))
                };
                let relation = |name: &String| {
                    let found = flow.relations.iter().position(|decl| decl.name == *name);
                    found.map(|row| row as u32).ok_or_else(|| format!("there is no relation `{name}`"))
                };
                let by = NegativeEnds::ALL.into_iter().find(|known| known.name() == by);
                let usual = |number: &Option<f64>| number.filter(|of| of.is_finite() && *of >= 0.0);
                let [margin, temperature] = [margin, temperature].map(usual);
                let losses = [
                    LinkLoss::BinaryCrossEntropy,
                    LinkLoss::Ranking(RankingLoss::CrossEntropy),
                    LinkLoss::Ranking(RankingLoss::Bpr),
                    LinkLoss::Ranking(RankingLoss::Margin(margin.unwrap_or(0.0))),
                    LinkLoss::Ranking(RankingLoss::SelfAdversarial(temperature.unwrap_or(0.0))),
                ];
                let loss = match loss {
                    Some(loss) => losses.into_iter().find(|known| known.name() == loss),
                    None => Some(LinkLoss::BinaryCrossEntropy),
                };
                Target::Links(LinkTarget {
                    graphs: graphs.iter().map(graph).collect::<Result<_, _>>()?,
                    loss: loss.ok_or("there is no such loss of links")?,
                    negatives: Negatives {
                        count: (*negatives).clamp(1, MOST_NEGATIVES),
                        by: by.ok_or("there is no such way to draw negative samples")?,
                        self_loops: *self_loops && by.is_some_and(|by| by.shared().is_empty()),
                    },
                    exclude: exclude.iter().map(relation).collect::<Result<_, _>>()?,
                })
            }
        })
    }
}

impl From<&Transform> for TransformForm {
    fn from(transform: &Transform) -> Self {
        let columns = transform.columns.clone();
        match transform.kind.clone() {
            TransformKind::Numbers { shift, scale, missing } => Self::Numbers { columns, shift, scale, missing },
            TransformKind::OneHot { categories, separator } => Self::OneHot { columns, categories, separator },
            TransformKind::Buckets { bounds } => Self::Buckets { columns, bounds },
            TransformKind::Vector { separator, width } => Self::Vector { columns, separator, width },
        }
    }
}

impl From<TransformForm> for Transform {
    fn from(form: TransformForm) -> Self {
        let (columns, kind) = match form {
            TransformForm::Numbers { columns, shift, scale, missing } => {
                (columns, TransformKind::Numbers { shift, scale, missing })
            }
            TransformForm::OneHot { columns, categories, separator } => {
                (columns, TransformKind::OneHot { categories, separator })
            }
            TransformForm::Buckets { columns, bounds } => (columns, TransformKind::Buckets { bounds }),
            TransformForm::Vector { columns, separator, width } => {
                (columns, TransformKind::Vector { separator, width })
            }
        };
        Self { columns, kind }
    }
}
