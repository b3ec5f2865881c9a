//! How much to sample, and what for.

pub use hgnnc_ir::artifact::Fanout;
use hgnnc_ir::random::mask_key;

use crate::graph::{Relation, SampleGraph};

/// Fan-outs of each hop (from the seeds), and within it of each relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// `[hops][relations]`
    pub fanouts: Vec<Vec<Fanout>>,
}

impl Plan {
    /// The same fan-out for all relations, one for each hop.
    pub fn uniform(hops: &[Fanout], relations: usize) -> Plan {
        Plan { fanouts: hops.iter().map(|&fanout| vec![fanout; relations]).collect() }
    }

    /// The relations of which a hop takes edges, if there are any.
    pub(crate) fn drawn(&self, graph: &SampleGraph<'_>, hop: usize) -> Vec<usize> {
        let draws = |(relation, fanout): (&Relation<'_>, &Fanout)| fanout.of(relation.max_degree()) > 0;
        let each = graph.relations().iter().zip(&self.fanouts[hop]).enumerate();
        each.filter(|(_, it)| draws(*it)).map(|(r, _)| r).collect()
    }

    /// Number of hops.
    pub fn num_hops(&self) -> usize {
        self.fanouts.len()
    }
}

/// What tells batches apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    /// Of the run.
    pub seed: u64,
    /// From 0.
    pub epoch: u64,
    /// Within the epoch, from 0.
    pub batch: u64,
}

/// Keeps the numbers of samplers apart from those of masks with the same seed.
const STREAM: u32 = 0x5a3b_1e55;

/// Keeps the numbers of walks apart from both.
const WALKS: u32 = 0x77a1_4b02;

impl BatchKey {
    /// The key of one relation.
    pub(crate) fn of(self, relation: usize) -> u64 {
        let batch = mask_key(self.seed, self.epoch, STREAM);
        mask_key(batch, self.batch, relation as u32)
    }

    /// The keys of the steps along a metapath, a list of relations.
    pub(crate) fn of_steps(self, metapath: &[usize]) -> Vec<u64> {
        let batch = mask_key(mask_key(self.seed, self.epoch, WALKS), self.batch, WALKS);
        let path = metapath.iter().fold(batch, |key, &relation| mask_key(key, relation as u64, WALKS));
        (0..metapath.len()).map(|step| mask_key(path, step as u64, WALKS)).collect()
    }
}

/// Why nothing was sampled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A list of seeds for each vertex type.
    #[error("there are seeds for {found} vertex types, but the graph has {expected}")]
    SeedTypes {
        /// Types of the graph.
        expected: usize,
        /// Lists of seeds.
        found: usize,
    },
    /// A seed that is no vertex.
    #[error("seed {position} of vertex type {vertex_type} is {vertex}, but there are {count} vertices")]
    SeedOutOfRange {
        /// Position of the type.
        vertex_type: usize,
        /// Position of the seed.
        position: usize,
        /// The seed.
        vertex: u32,
        /// Vertices of the type.
        count: usize,
    },
    /// A seed that stands in the list twice.
    #[error("seed {vertex} of vertex type {vertex_type} is given more than once")]
    DuplicateSeed {
        /// Position of the type.
        vertex_type: usize,
        /// The seed.
        vertex: u32,
    },
    /// Fan-outs of a hop that are not as many as relations.
    #[error("hop {hop} has {found} fan-outs, but the graph has {expected} relations")]
    Fanouts {
        /// From the seeds.
        hop: usize,
        /// Relations of the graph.
        expected: usize,
        /// Fan-outs.
        found: usize,
    },
    /// A fan-out by weight of a relation without weights.
    #[error("hop {hop} draws from relation `{relation}` by weight, but its edges have none")]
    NoWeights {
        /// From the seeds.
        hop: usize,
        /// Its name.
        relation: String,
    },
    /// Walks of a relation without a path.
    #[error("hop {hop} walks along relation `{relation}`, which has no path")]
    NoPath {
        /// From the seeds.
        hop: usize,
        /// Its name.
        relation: String,
    },
    /// More edges of one relation than 32 bits can count.
    #[error("hops up to {hop} take {edges} edges of relation `{relation}`, but a batch holds fewer than 2^32")]
    TooManyEdges {
        /// From the seeds.
        hop: usize,
        /// Its name.
        relation: String,
        /// How many there would be, of all hops up to this one.
        edges: u64,
    },
}
