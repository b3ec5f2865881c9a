//! The keys of stored graphs and rows.

use std::fmt;

use hgnnc_dataset::dataset::Step;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::sgb::{MetapathOptions, SemanticGraphs};

/// Incremented with every change of the file format or of the hashed data.
pub(super) const VERSION: u32 = 1;

/// A 128-bit hash of everything that the graph of a metapath, or rows, depend on. Of a graph, names, weights and
/// features are not part of it: after a relation is renamed, its graphs are still found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub(super) u128);

impl Key {
    /// The key of rows, by a hash of all that they depend on.
    pub fn of_rows(hash: u128) -> Key {
        Key(hash)
    }

    /// The number, to be hashed with others.
    pub fn number(self) -> u128 {
        self.0
    }

    /// The key of the graph of a relation or metapath.
    pub fn new(graphs: &SemanticGraphs<'_>, steps: &[Step], options: MetapathOptions) -> Key {
        // Relations in order of their first use on the path, so that their order in the dataset does not matter.
        let mut relations: Vec<usize> = vec![];
        let mut hash = Xxh3::new();
        let mut put = |number: u64| hash.update(&number.to_le_bytes());
        put(u64::from(VERSION));
        put(u64::from(options.counted) | u64::from(options.self_loops) << 1);
        put(steps.len() as u64);
        for step in steps {
            let known = relations.iter().position(|&relation| relation == step.relation);
            put(known.unwrap_or(relations.len()) as u64);
            put(u64::from(step.reverse));
            if known.is_none() {
                relations.push(step.relation);
            }
        }
        for relation in relations {
            let data = &graphs.dataset.relations[relation];
            for number in [graphs.count(data.src), graphs.count(data.dst), data.src_ids.len()] {
                put(number as u64);
            }
            for half in graphs.content(relation) {
                put(half as u64);
                put((half >> 64) as u64);
            }
        }
        Key(hash.digest128())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl SemanticGraphs<'_> {
    /// Hashes of the sources and of the destinations of a relation, memoized.
    fn content(&self, relation: usize) -> [u128; 2] {
        *self.contents[relation].get_or_init(|| {
            let data = &self.dataset.relations[relation];
            let hash = |ids: &[u32]| xxh3_128(bytemuck::cast_slice(ids));
            let (src, dst) = rayon::join(|| hash(&data.src_ids), || hash(&data.dst_ids));
            [src, dst]
        })
    }
}
