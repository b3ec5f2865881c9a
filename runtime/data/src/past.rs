//! Messages that are not later than the vertices that read them.
//!
//! Each step of a semantic graph with a cutoff brings messages from vertices to others. It leaves out the edges whose own time, or the
//! time of the vertex that they leave, is later than the time of the vertex where they arrive. Times are those that the dataset has.
//! Cutoffs never grow along a path to a vertex, so nothing that is later than it reaches it, over any number of hops. The edges that
//! are left are relations of a dataset of their own, of which graphs are built as of any other: kernels, samplers and programs know
//! nothing of times.

use std::collections::BTreeMap;

use hgnnc_dataset::{Dataset, RelationData, Step, VertexTypeData};
use hgnnc_graph::{NO_ORIGINAL, SemanticGraphs};
use hgnnc_ir::dataflow::{Dataflow, GraphDecl};

use crate::bind::{BindOptions, Binder, graph_builder, steps_of};
use crate::error::{ExecError, Result};

/// The relations of a dataset without edges that are later than where they arrive, for each direction that a model walks.
#[derive(Debug)]
pub(crate) struct Past {
    /// The vertex types, without features, and the relations of [`Past::walks`].
    pub dataset: Dataset,
    /// By relation of the dataset and direction: the relation of the steps.
    walks: BTreeMap<(usize, bool), usize>,
    /// The position of each edge in the dataset. `[walks][edges]`
    original: Vec<Vec<u32>>,
}

impl Past {
    /// The relations of the semantic graphs with a cutoff; `None` without any. `relations` are those of the model in the dataset.
    ///
    /// # Errors
    /// A vertex type without times that messages with times arrive at.
    pub fn new(flow: &Dataflow, relations: &[usize], dataset: &Dataset) -> Result<Option<Self>> {
        let mut past = None;
        for step in flow.graphs.iter().filter(|decl| decl.past).flat_map(|decl| &decl.steps) {
            let walk = (relations[step.relation as usize], step.reverse);
            let past: &mut Self = past.get_or_insert_with(|| Self::empty(dataset));
            if past.walks.contains_key(&walk) {
                continue;
            }
            let edges = kept(dataset, walk)?;
            past.walks.insert(walk, past.dataset.relations.len());
            past.dataset.relations.push(of_edges(&dataset.relations[walk.0], &edges));
            past.original.push(edges);
        }
        Ok(past)
    }

    fn empty(dataset: &Dataset) -> Self {
        let vertex = |of: &VertexTypeData| VertexTypeData {
            name: of.name.clone(),
            count: of.count,
            ..VertexTypeData::default()
        };
        let dataset = Dataset {
            // The cache of graphs lies beside the dataset, and is keyed by edges.
            folder: dataset.folder.clone(),
            name: dataset.name.clone(),
            vertex_types: dataset.vertex_types.iter().map(vertex).collect(),
            ..Dataset::default()
        };
        Self { dataset, walks: BTreeMap::new(), original: vec![] }
    }

    /// A step over the dataset as one over what is left of it.
    pub fn step(&self, step: Step) -> Step {
        Step { relation: self.walks[&(step.relation, step.reverse)], ..step }
    }

    /// The position in the dataset of each edge of a step over what is left of it.
    pub fn original(&self, step: Step) -> &[u32] {
        &self.original[step.relation]
    }
}

/// The edges of a relation, walked backwards or not, that are not later than where they arrive.
fn kept(dataset: &Dataset, (relation, reverse): (usize, bool)) -> Result<Vec<u32>> {
    let edges = &dataset.relations[relation];
    let (mut from, mut to) = ((edges.src, &edges.src_ids), (edges.dst, &edges.dst_ids));
    if reverse {
        std::mem::swap(&mut from, &mut to);
    }
    let all = 0..edges.num_edges();
    let (sent, own) = (&dataset.vertex_types[from.0].time, &edges.time);
    let Some(read) = &dataset.vertex_types[to.0].time else {
        if sent.is_some() || own.is_some() {
            return Err(ExecError::Unsupported(format!(
                "the vertex type `{}` of the dataset has no times, and messages with times arrive there along `{}`: with `cutoff time`, \
                 the schema must declare the times of these messages, or the dataset have a `time` of each vertex",
                dataset.vertex_types[to.0].name, edges.name
            )));
        }
        return Ok(all.map(|edge| edge as u32).collect());
    };
    let is_kept = |edge: &usize| {
        let cutoff = read[to.1[*edge] as usize];
        sent.as_ref().is_none_or(|sent| sent[from.1[*edge] as usize] <= cutoff)
            && own.as_ref().is_none_or(|own| own[*edge] <= cutoff)
    };
    Ok(all.filter(is_kept).map(|edge| edge as u32).collect())
}

/// Some edges of a relation, with their weights.
fn of_edges(relation: &RelationData, edges: &[u32]) -> RelationData {
    let ends = |ids: &[u32]| edges.iter().map(|&edge| ids[edge as usize]).collect();
    let weight = |all: &[f32]| edges.iter().map(|&edge| all[edge as usize]).collect::<Vec<f32>>().into();
    RelationData {
        name: relation.name.clone(),
        src: relation.src,
        dst: relation.dst,
        src_ids: ends(&relation.src_ids),
        dst_ids: ends(&relation.dst_ids),
        weight: relation.weight.as_deref().map(weight),
        ..RelationData::default()
    }
}

/// Builders of the semantic graphs of a model: of all edges of a dataset, and of those that a cutoff leaves.
pub(crate) struct Builders<'p> {
    dataset: &'p Dataset,
    all: SemanticGraphs<'p>,
    past: Option<(&'p Past, SemanticGraphs<'p>)>,
}

/// The edges that a semantic graph is built of.
pub(crate) struct Source<'b, 'p> {
    pub dataset: &'p Dataset,
    pub builder: &'b SemanticGraphs<'p>,
    /// The steps over relations of this dataset.
    pub steps: Vec<Step>,
    past: Option<&'p Past>,
}

impl<'p> Builders<'p> {
    pub fn new(dataset: &'p Dataset, past: Option<&'p Past>, options: &BindOptions) -> Self {
        let past = past.map(|past| (past, graph_builder(&past.dataset, options)));
        Self { dataset, all: graph_builder(dataset, options), past }
    }

    /// The edges of a semantic graph of the model.
    pub fn of(&self, binder: &Binder<'_>, decl: &GraphDecl) -> Source<'_, 'p> {
        let steps = steps_of(binder, decl);
        match &self.past {
            Some((past, builder)) if decl.past => Source {
                dataset: &past.dataset,
                builder,
                steps: steps.into_iter().map(|step| past.step(step)).collect(),
                past: Some(past),
            },
            _ => Source { dataset: self.dataset, builder: &self.all, steps, past: None },
        }
    }
}

impl Source<'_, '_> {
    /// Makes positions of edges of the graph those in the dataset.
    pub fn restore(&self, positions: &mut [u32]) {
        if let (Some(past), [step]) = (self.past, &self.steps[..]) {
            let original = past.original(*step);
            let of_edges = positions.iter_mut().filter(|position| **position != NO_ORIGINAL);
            of_edges.for_each(|position| *position = original[*position as usize]);
        }
    }

    /// The number of edges of a relation that the cutoff leaves out; `None` for other graphs.
    pub fn left_out(&self, relations: &[RelationData]) -> Option<u64> {
        let (past, [step]) = (self.past?, &self.steps[..]) else { return None };
        let (walk, _) = past.walks.iter().find(|(_, kept)| **kept == step.relation)?;
        Some((relations[walk.0].num_edges() - past.original(*step).len()) as u64)
    }
}
