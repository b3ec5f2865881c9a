//! Random walks along a metapath: what to walk, and what was visited.

use crate::graph::SampleGraph;
use crate::plan::{BatchKey, SampleError};

/// Walks along a metapath, against the direction of its edges: from a destination to the sources that it hears of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkPlan {
    /// Positions of relations in the graph, from the seeds on: the first leads into their type, each other one into the type
    /// that the one before comes from.
    pub metapath: Vec<usize>,
    /// Walks from each seed.
    pub walks: u32,
    /// Vertices that are kept of those where the walks of a seed end: the most visited, of equally visited ones those of smaller
    /// ids.
    pub top_k: u32,
}

/// Where walks end, and how many: a CSC of seeds and the vertices that were kept. Made anew in place: what it has allocated
/// serves the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walks {
    /// Vertices of the type at the end of the metapath by compact id, in the order of their first occurrence. If it is the
    /// type of the seeds, these come first. `[known]`
    pub vertices: Vec<u32>,
    /// Where the edges of each seed start. `[seeds + 1]`
    pub indptr: Vec<u64>,
    /// Vertex of each edge as compact id; those of a seed ascend by vertex, not by id. `[edges]`
    pub src: Vec<u32>,
    /// Walks that ended there, for each edge. `[edges]`
    pub visits: Vec<u32>,
}

/// Why nothing was walked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// A metapath of no relations.
    #[error("a walk needs a metapath of at least one relation")]
    NoSteps,
    /// A position that no relation has.
    #[error("step {step} of the metapath is relation {relation}, but the graph has {relations}")]
    NoSuchRelation {
        /// From 0.
        step: usize,
        /// The position.
        relation: usize,
        /// Relations of the graph.
        relations: usize,
    },
    /// A relation that does not begin where the one before ends.
    #[error(
        "step {step} of the metapath is relation `{relation}` into vertex type {into}, but the step before leads to vertex type {at}"
    )]
    Broken {
        /// From 0.
        step: usize,
        /// Name of its relation.
        relation: String,
        /// Position of the type that the relation leads into.
        into: usize,
        /// Position of the type where walks are.
        at: usize,
    },
    /// Seeds that are none, or doubles.
    #[error(transparent)]
    Seeds(#[from] SampleError),
}

impl WalkPlan {
    /// Positions of the vertex types of the seeds and of the ends, if the metapath is one.
    pub(crate) fn ends(&self, graph: &SampleGraph<'_>) -> Result<(usize, usize), WalkError> {
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

    /// The keys of its steps. The whole metapath is in each, so that other metapaths of the same batch walk apart.
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
        self.src.clear();
        self.visits.clear();
        Ok(())
    }
}
