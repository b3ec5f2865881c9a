//! Identity of a training run: hashes of its program, train block and data. A checkpoint stores it, so that another run
//! is not resumed from it by mistake.
//!
//! Two runs have the same identity if they compute the same bits from the same checkpoint on the same machine. The
//! number of epochs, threads, the device, disabled passes and the seed of the command line are not part of it: they may
//! change rounding or the length of a run.

use std::collections::{BTreeMap, BTreeSet};

use hgnnc_dataset::dataset::LabelValues;
use hgnnc_dataset::{Dataset, Features};
use hgnnc_executable::{Executable, Fingerprint};
use hgnnc_ir::dataflow::{Binding, Matrix};
use hgnnc_ir::training::{self, Fanout};
use hgnnc_ir::types::Graph;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::bind::{BindOptions, Binder};
use crate::error::Result;

/// Name of the train block setting that holds the seed.
pub const SEED: &str = "seed";

/// The identity of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Identity {
    program: Program,
    /// Settings of the train block by name.
    training: BTreeMap<String, String>,
    /// Hashes of the arrays that the program reads, by a readable description.
    data: BTreeMap<String, Content>,
    /// Values of the constants of the model's file. Absent in checkpoints of older versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    constants: BTreeMap<String, String>,
    /// The constants whose values the caller gave.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    set: BTreeSet<String>,
}

/// A [`Fingerprint`], with hashes as hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Program {
    results: BTreeMap<String, String>,
    operations: BTreeMap<String, u64>,
    params: BTreeMap<String, String>,
}

/// An array of the dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Content {
    count: u64,
    hash: String,
}

/// Differences between a run and the run of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Difference {
    /// Differing constants, of those that the caller of one of the runs gave.
    pub constants: Vec<String>,
    pub program: Vec<String>,
    /// Differing settings of the train blocks.
    pub training: Vec<String>,
    pub data: Vec<String>,
}

impl Difference {
    /// Whether the runs are the same.
    pub fn is_empty(&self) -> bool {
        self.constants.is_empty() && self.program.is_empty() && self.training.is_empty() && self.data.is_empty()
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Settings are short, and an optimizer has at most six.
        let parts = [
            ("a constant", &self.constants, 12),
            ("the program", &self.program, 4),
            ("the train block", &self.training, 12),
            ("the data", &self.data, 4),
        ];
        let mut separator = "";
        for (what, lines, most) in parts.into_iter().filter(|(_, lines, _)| !lines.is_empty()) {
            let more = lines.len().saturating_sub(most);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let shown = &lines[..lines.len().min(most)];
            write!(f, "{separator}{what} has changed ({}{more})", shown.join(", "))?;
            separator = "; ";
        }
        Ok(())
    }
}

impl Identity {
    /// Computes the identity from a model before any pass (its forward program is in `infer`, as for
    /// [`bind`](crate::bind())), the settings of its train block, and its data.
    ///
    /// # Errors
    /// A vertex type, relation or split that the dataset does not have.
    pub fn new(
        model: &Executable,
        training: BTreeMap<String, String>,
        dataset: &Dataset,
        options: &BindOptions,
    ) -> Result<Self> {
        let Fingerprint { results, operations, params } = Fingerprint::new(&model.infer);
        let results = results.into_iter().map(|(name, hash)| (name, format!("{hash:032x}"))).collect();
        let data = contents(model, dataset, options)?;
        let program = Program { results, operations, params };
        Ok(Self { program, training, data, constants: BTreeMap::new(), set: BTreeSet::new() })
    }

    /// The same with the values of the file's constants, and the names of those that the caller gave. These are compared,
    /// whether the program depends on them or not.
    #[must_use]
    pub fn with_constants<'a>(
        mut self,
        values: &BTreeMap<String, f64>,
        set: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.constants = values.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        self.set = set.into_iter().map(str::to_owned).collect();
        self
    }

    /// Value of a train block setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.training.get(name).map(String::as_str)
    }

    /// Differences from `now`, ignoring the settings in `except`.
    pub fn difference(&self, now: &Self, except: &[&str]) -> Difference {
        let program = self.program.difference(&now.program);
        let shown = |value: Option<&String>| value.map_or("none".to_owned(), String::clone);
        let training = changed(&self.training, &now.training).filter(|(name, ..)| !except.contains(&&name[..]));
        let training =
            training.map(|(name, before, now)| format!("{name} {} -> {}", shown(before), shown(now))).collect();
        let data = changed(&self.data, &now.data).filter_map(|(name, before, now)| match (before, now) {
            (Some(before), Some(now)) if before.count != now.count => {
                Some(format!("{name}: {} -> {}", before.count, now.count))
            }
            (Some(_), Some(_)) => Some(format!("{name}: other values")),
            // Different programs read different arrays, so only the program is reported.
            _ if !program.is_empty() => None,
            (Some(_), None) => Some(format!("{name}: gone")),
            (None, _) => Some(format!("{name}: new")),
        });
        let constants = self.set.union(&now.set).filter_map(|name| {
            let (before, now) = (self.constants.get(name), now.constants.get(name));
            (before != now).then(|| format!("`{name}` {} -> {}", shown(before), shown(now)))
        });
        Difference { constants: constants.collect(), data: data.collect(), program, training }
    }
}

impl Program {
    fn difference(&self, now: &Self) -> Vec<String> {
        let mut lines = vec![];
        for (name, before, now) in changed(&self.params, &now.params) {
            lines.push(match (before, now) {
                (Some(before), Some(now)) => format!("parameter `{name}`: {before} -> {now}"),
                (Some(_), None) => format!("parameter `{name}` is gone"),
                (None, _) => format!("parameter `{name}` is new"),
            });
        }
        let operations = changed(&self.operations, &now.operations);
        lines.extend(
            operations.map(|(op, before, now)| format!("{op}: {} -> {}", before.unwrap_or(&0), now.unwrap_or(&0))),
        );
        if lines.is_empty() {
            let results = changed(&self.results, &now.results);
            lines.extend(results.map(|(name, ..)| format!("`{name}` combines its operations in another way")));
        }
        lines
    }
}

/// Describes the differences of two maps.
fn changed<'a, T: PartialEq>(
    before: &'a BTreeMap<String, T>,
    now: &'a BTreeMap<String, T>,
) -> impl Iterator<Item = (&'a String, Option<&'a T>, Option<&'a T>)> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    names.into_iter().map(|name| (name, before.get(name), now.get(name))).filter(|(_, before, now)| before != now)
}

/// Hashes the parts of a dataset that a model reads: vertex counts, and the edges, weights, features, labels and
/// splits that it uses.
fn contents(model: &Executable, dataset: &Dataset, options: &BindOptions) -> Result<BTreeMap<String, Content>> {
    let flow = &model.infer;
    let binder = Binder::new(flow, dataset, options)?;
    // Arrays as bytes with their element counts, each once.
    let mut arrays: BTreeMap<String, (usize, Vec<&[u8]>)> = BTreeMap::new();
    for decl in &flow.vertex_types {
        let count = dataset.vertex_type(&decl.dataset_name).map_or(0, |of| dataset.vertex_types[of].count);
        arrays.insert(format!("vertices of `{}`", decl.dataset_name), (count, vec![]));
    }
    let relation = |index: u32| &dataset.relations[binder.relations[index as usize]];
    let of_graph = |graph: &Graph| flow.graphs[graph.index()].steps.iter().map(|step| step.relation);
    let mut relations: BTreeSet<u32> = flow.graphs.iter().flat_map(|graph| &graph.steps).map(|s| s.relation).collect();
    let mut weighted: BTreeSet<u32> = BTreeSet::new();

    let own = model.training.as_ref().and_then(|training| training.split.as_deref());
    let mut labels = vec![];
    let mut splits = BTreeSet::new();
    for input in &flow.inputs {
        match &input.binding {
            Binding::Features(vertex, Matrix::TrainLabels(label)) => {
                labels.push((*vertex, label));
                splits.extend(binder.split(*vertex, own)?);
            }
            Binding::Features(vertex, matrix) => {
                let of = &dataset.vertex_types[binder.types[vertex.index()]];
                let field = if let Matrix::Field(field) = matrix { Some(&field[..]) } else { None };
                let name = match field {
                    Some(field) => format!("features `{field}` of `{}`", of.name),
                    None => format!("features of `{}`", of.name),
                };
                match of.features_of(field) {
                    None => {}
                    Some(Features::Dense(x)) => {
                        arrays.insert(name, (x.rows.len(), vec![bytes(&x.rows)]));
                    }
                    Some(Features::Sparse(x)) => {
                        let parts = vec![bytes(&x.indptr), bytes(&x.indices), bytes(&x.data)];
                        arrays.insert(name, (x.data.len(), parts));
                    }
                }
            }
            Binding::Label(vertex, label) => labels.push((*vertex, label)),
            Binding::Time(vertex) => {
                let of = &dataset.vertex_types[binder.types[vertex.index()]];
                if let Some(times) = &of.time {
                    arrays.insert(format!("times of `{}`", of.name), (times.len(), vec![bytes(times)]));
                }
            }
            Binding::EdgeTime(graph) => {
                for of in of_graph(graph).map(relation) {
                    if let Some(times) = &of.time {
                        let name = format!("times of the edges of `{}`", of.name);
                        arrays.insert(name, (times.len(), vec![bytes(times)]));
                    }
                }
            }
            Binding::EdgeWeight(graph) => weighted.extend(of_graph(graph)),
            Binding::EdgeFeatures(graph) => {
                for of in of_graph(graph).map(relation) {
                    if let Some(x) = &of.features {
                        let name = format!("features of the edges of `{}`", of.name);
                        arrays.insert(name, (x.rows.len(), vec![bytes(&x.rows)]));
                    }
                }
            }
            // Derived from the edges, the split or the run.
            Binding::TrainMask(_)
            | Binding::EdgeCount(_)
            | Binding::EdgeRank(..)
            | Binding::IsLink(_)
            | Binding::Given(_)
            | Binding::Precomputed(..)
            | Binding::StepNumber
            | Binding::EpochNumber => {}
        }
    }
    if let Some(training) = &model.training {
        for target in training.trained.iter().map(|trained| &trained.target) {
            match target {
                training::Target::Vertices { vertex, label } => {
                    labels.push((*vertex, label));
                    splits.extend(binder.split(*vertex, training.split.as_deref())?);
                }
                training::Target::Links(links) => {
                    relations.extend(&links.exclude);
                    let split = match links.has_held_out(flow) {
                        true => binder.link_split(training.split.as_deref())?,
                        false => None,
                    };
                    for (part, links) in split.into_iter().flat_map(|of| [("validation", &of.val), ("test", &of.test)])
                    {
                        let parts = vec![bytes(&links.src), bytes(&links.relation), bytes(&links.dst)];
                        arrays.insert(format!("{part} links"), (links.len(), parts));
                    }
                }
            }
        }
        for hop in training.batch.iter().flat_map(|batch| &batch.fanouts) {
            let graphs = hop.iter().enumerate().filter(|(_, fanout)| matches!(fanout, Fanout::Weighted(_)));
            weighted.extend(graphs.flat_map(|(graph, _)| of_graph(&Graph::new(graph)).collect::<Vec<_>>()));
        }
    }
    let several = splits.len() > 1;
    for split in splits {
        let split = &dataset.splits[split];
        let of = match several {
            true => format!(" of `{}`", dataset.vertex_types[split.vertex_type].name),
            false => String::new(),
        };
        for (part, vertices) in [("train", &split.train), ("val", &split.val), ("test", &split.test)] {
            arrays.insert(format!("{part} part of the split{of}"), (vertices.len(), vec![bytes(vertices)]));
        }
    }
    // Times decide which edges there are, and which are drawn.
    let latest = |training: &hgnnc_ir::training::Training| {
        let fanouts = training.batch.iter().flat_map(|batch| batch.fanouts.iter().flatten());
        fanouts.into_iter().any(|fanout| matches!(fanout, Fanout::Latest(_)))
    };
    if flow.graphs.iter().any(|graph| graph.past) || model.training.as_ref().is_some_and(latest) {
        for of in binder.types.iter().map(|&of| &dataset.vertex_types[of]) {
            if let Some(times) = &of.time {
                arrays.insert(format!("times of `{}`", of.name), (times.len(), vec![bytes(times)]));
            }
        }
        for of in relations.iter().map(|&index| relation(index)) {
            if let Some(times) = &of.time {
                let name = format!("times of the edges of `{}`", of.name);
                arrays.insert(name, (times.len(), vec![bytes(times)]));
            }
        }
    }
    for of in relations.iter().map(|&index| relation(index)) {
        arrays.insert(
            format!("edges of `{}`", of.name),
            (of.src_ids.len(), vec![bytes(&of.src_ids), bytes(&of.dst_ids)]),
        );
    }
    for of in weighted.iter().map(|&index| relation(index)) {
        if let Some(weight) = &of.weight {
            arrays.insert(format!("weights of `{}`", of.name), (weight.len(), vec![bytes(weight)]));
        }
    }
    for (vertex, label) in labels {
        let of = binder.types[vertex.index()];
        let Some(found) = dataset.label(of, label) else { continue };
        let parts = match &found.values {
            LabelValues::Single { of, .. } => vec![bytes(of)],
            LabelValues::Multi { rows, labelled, .. } | LabelValues::Real { rows, labelled, .. } => {
                vec![bytes(rows), bytes(labelled)]
            }
        };
        let name = format!("label `{label}` of `{}`", dataset.vertex_types[of].name);
        arrays.insert(name, (dataset.vertex_types[of].count, parts));
    }
    let content = |(name, (count, parts)): (String, (usize, Vec<&[u8]>))| {
        (name, Content { count: count as u64, hash: format!("{:032x}", hash_of(&parts)) })
    };
    Ok(arrays.into_par_iter().map(content).collect())
}

fn bytes<T: bytemuck::NoUninit>(array: &[T]) -> &[u8] {
    bytemuck::cast_slice(array)
}

/// Hash of the lengths and contents of arrays. Large arrays are hashed in pieces, in parallel.
fn hash_of(arrays: &[&[u8]]) -> u128 {
    const PIECE: usize = 4 << 20;
    let mut hashes: Vec<u8> = vec![];
    for array in arrays {
        hashes.extend((array.len() as u64).to_le_bytes());
        let pieces: Vec<u128> = array.par_chunks(PIECE).map(xxh3_128).collect();
        pieces.iter().for_each(|piece| hashes.extend(piece.to_le_bytes()));
    }
    xxh3_128(&hashes)
}
