//! Sampling plans, batch keys, and errors of sampling.

use hgnnc_ir::random::mask_key;
pub use hgnnc_ir::training::Fanout;

use crate::graph::{Relation, SampleGraph};

/// Fan-outs of each hop (from the seeds), and within it of each relation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Plan {
    pub fanouts: Vec<Vec<Fanout>>,
}

impl Plan {
    /// The same fan-out for all relations, one for each hop.
    pub fn uniform(hops: &[Fanout], relations: usize) -> Plan {
        Plan { fanouts: hops.iter().map(|&fanout| vec![fanout; relations]).collect() }
    }

    /// The relations that `hop` samples: the fan-out is not zero for their largest in-degree.
    pub(crate) fn drawn(&self, graph: &SampleGraph<'_>, hop: usize) -> Vec<usize> {
        let draws = |(relation, fanout): (&Relation<'_>, &Fanout)| fanout.of(relation.max_degree()) > 0;
        let each = graph.relations().iter().zip(&self.fanouts[hop]).enumerate();
        each.filter(|(_, it)| draws(*it)).map(|(r, _)| r).collect()
    }

    /// Number of hops, one per layer of the model.
    pub fn num_hops(&self) -> usize {
        self.fanouts.len()
    }
}

/// Identifies a batch; seeds its random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Number of the batch within the epoch, from 0.
    pub batch: u64,
}

/// Separates the random numbers of samplers from those of dropout masks with the same seed.
const STREAM: u32 = 0x5a3b_1e55;

/// Separates the random numbers of walks from both.
const WALKS: u32 = 0x77a1_4b02;

impl BatchKey {
    /// The random key of one relation.
    pub(crate) fn of(self, relation: usize) -> u64 {
        let batch = mask_key(self.seed, self.epoch, STREAM);
        mask_key(batch, self.batch, relation as u32)
    }

    /// The random keys of the steps of a metapath, given as a list of relations.
    pub(crate) fn of_steps(self, metapath: &[usize]) -> Vec<u64> {
        let batch = mask_key(mask_key(self.seed, self.epoch, WALKS), self.batch, WALKS);
        let path = metapath.iter().fold(batch, |key, &relation| mask_key(key, relation as u64, WALKS));
        (0..metapath.len()).map(|step| mask_key(path, step as u64, WALKS)).collect()
    }
}

/// Why a batch could not be sampled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum SampleError {
    /// The number of seed lists differs from the number of vertex types.
    #[error("there are seeds for {found} vertex types, but the graph has {expected}")]
    SeedTypes {
        /// Types of the graph.
        expected: usize,
        found: usize,
    },
    /// A seed is not a vertex of its type.
    #[error("seed {position} of vertex type {vertex_type} is {vertex}, but there are {count} vertices")]
    SeedOutOfRange {
        /// Position of the type.
        vertex_type: usize,
        /// Position of the seed.
        position: usize,
        vertex: u32,
        /// Vertices of the type.
        count: usize,
    },
    /// A seed occurs twice.
    #[error("seed {vertex} of vertex type {vertex_type} is given more than once")]
    DuplicateSeed {
        /// Position of the type.
        vertex_type: usize,
        vertex: u32,
    },
    /// A hop has not one fan-out per relation.
    #[error("hop {hop} has {found} fan-outs, but the graph has {expected} relations")]
    Fanouts {
        hop: usize,
        /// Relations of the graph.
        expected: usize,
        found: usize,
    },
    /// A weighted fan-out of a relation without weights, or one of the latest edges without their ranks.
    #[error("hop {hop} draws from relation `{relation}` by weight, but its edges have none")]
    NoWeights { hop: usize, relation: String },
    /// A fan-out by walks of a relation without a metapath.
    #[error("hop {hop} walks along relation `{relation}`, which has no path")]
    NoPath { hop: usize, relation: String },
    /// More edges of one relation than 32 bits can count.
    #[error("hops up to {hop} take {edges} edges of relation `{relation}`, but a batch holds fewer than 2^32")]
    TooManyEdges {
        hop: usize,
        relation: String,
        /// Number of edges of all hops up to this one.
        edges: u64,
    },
}
