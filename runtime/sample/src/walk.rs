//! Random walks along a metapath: plan and result.

use crate::graph::SampleGraph;
use crate::plan::{BatchKey, SampleError};

/// Random walks along a metapath, against the direction of its edges: from a destination to its sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkPlan {
    /// Positions of relations in the graph, from the seeds on: the first leads into their type, each next one into the
    /// source type of the one before.
    pub metapath: Vec<usize>,
    /// Number of walks from each seed.
    pub walks: u32,
    /// Number of end vertices kept per seed: the most visited ones; ties go to smaller ids.
    pub top_k: u32,
}

/// End vertices of the walks and their visits: a CSC over seeds and kept vertices. Refilled in place, so that its
/// allocations are reused by the next batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walks {
    /// Vertices of the end type by compact id, in the order of first occurrence. If it is the type of the seeds, these
    /// come first. `[known]`
    pub vertices: Vec<u32>,
    /// Row offsets of the seeds. `[seeds + 1]`
    pub indptr: Vec<u64>,
    /// Compact id of the end vertex of each edge; edges of a seed ascend by vertex, not by compact id. `[edges]`
    pub indices: Vec<u32>,
    /// Number of walks that ended at the vertex, per edge. `[edges]`
    pub visits: Vec<u32>,
}

/// Why no walks were made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// The metapath has no relations.
    #[error("a walk needs a metapath of at least one relation")]
    NoSteps,
    /// A position exceeds the number of relations.
    #[error("step {step} of the metapath is relation {relation}, but the graph has {relations}")]
    NoSuchRelation {
        /// Number of the step, from 0.
        step: usize,
        /// Position of the relation.
        relation: usize,
        /// Number of relations of the graph.
        relations: usize,
    },
    /// A relation does not lead into the source type of the one before.
    #[error(
        "step {step} of the metapath is relation `{relation}` into vertex type {into}, but the step before leads to vertex type {at}"
    )]
    Broken {
        /// Number of the step, from 0.
        step: usize,
        /// Name of the step's relation.
        relation: String,
        /// Position of the relation's destination type.
        into: usize,
        /// Position of the current vertex type.
        at: usize,
    },
    /// A seed is not a vertex, or occurs twice.
    #[error(transparent)]
    Seeds(#[from] SampleError),
}

impl WalkPlan {
    /// Positions of the vertex types of seeds and end vertices; validates the metapath.
    pub(crate) fn endpoints(&self, graph: &SampleGraph<'_>) -> Result<(usize, usize), WalkError> {
        let relations = graph.relations();
        let mut ends: Option<(usize, usize)> = None;
        for (step, &r) in self.metapath.iter().enumerate() {
            let Some(relation) = relations.get(r) else {
                return Err(WalkError::NoSuchRelation { step, relation: r, relations: relations.len() });
            };
            let (from, at) = ends.unwrap_or((relation.dst_type, relation.dst_type));
            if relation.dst_type != at {
                let (relation, into) = (relation.name.clone(), relation.dst_type);
                return Err(WalkError::Broken { step, relation, into, at });
            }
            ends = Some((from, relation.src_type));
        }
        ends.ok_or(WalkError::NoSteps)
    }

    /// The random keys of the steps. Each depends on the whole metapath, so that walks along different metapaths are
    /// independent.
    pub(crate) fn keys(&self, key: BatchKey) -> Vec<u64> {
        key.of_steps(&self.metapath)
    }
}

impl Walks {
    /// Starts with the seeds of a type.
    pub(crate) fn start(
        &mut self,
        graph: &SampleGraph<'_>,
        (seed_type, end_type): (usize, usize),
        seeds: &[u32],
    ) -> Result<(), WalkError> {
        let count = graph.counts()[seed_type];
        if let Some(position) = seeds.iter().position(|&v| v as usize >= count) {
            let (vertex_type, vertex) = (seed_type, seeds[position]);
            return Err(SampleError::SeedOutOfRange { vertex_type, position, vertex, count }.into());
        }
        self.vertices.clear();
        if seed_type == end_type {
            self.vertices.extend_from_slice(seeds);
        }
        self.indptr.clear();
        self.indptr.push(0);
        self.indices.clear();
        self.visits.clear();
        Ok(())
    }
}
