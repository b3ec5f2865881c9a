//! Links of a metapath as random walks draw them.
//!
//! metapath2vec (Dong et al., KDD 2017, eq. 4) learns from walks along metapaths, each step of which goes to one of the
//! neighbours, all of them as probable. A link is the first and the last vertex of a walk along the whole metapath. So pairs are
//! drawn as often as walks join them, and the pairs of the metapath, which may be very many, are never listed.
//!
//! Neighbours without a way to the last type are left out of a step, so that every walk arrives.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use hgnnc_dataset::Step;
use hgnnc_graph::{Adjacency, RelationOptions};
use hgnnc_ir::random::{bits, mask_key};

use crate::bind::{Binder, failed_graph};
use crate::error::Result;
use crate::past::{Builders, Source};

/// RNG stream of the steps of walks, separate from others of the same seed.
const STREAM: u32 = 0x3a1c_5eed;

/// The walks along one metapath, from its first vertex type to its last one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LinkWalks {
    /// The vertices that walks start at: those of the first type with a way to the last one. Ascending.
    starts: Vec<u32>,
    /// By step: the neighbours to choose from of each vertex where the step begins.
    steps: Vec<Adjacency>,
}

impl LinkWalks {
    /// The walks along these steps, each with the out-neighbours of the vertices where it begins: a row of `steps[0]` for each
    /// vertex of the first type. Every neighbour is a row of the step behind.
    pub fn new(mut steps: Vec<Adjacency>) -> Self {
        for at in (0..steps.len().saturating_sub(1)).rev() {
            let (before, behind) = steps.split_at_mut(at + 1);
            let leads_on = |vertex: u32| !row(&behind[0], vertex).is_empty();
            let step = &mut before[at];
            if !step.indices.iter().all(|&vertex| leads_on(vertex)) {
                *step = kept(step, leads_on);
            }
        }
        let count = steps.first().map_or(0, |first| first.indptr.len().saturating_sub(1));
        let starts = (0..count as u32).filter(|&vertex| !row(&steps[0], vertex).is_empty()).collect();
        Self { starts, steps }
    }

    /// Number of walks of an epoch: one from each vertex where walks start.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether no walk arrives.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The link that a walk of an epoch draws, source and destination: a function of the seed, the epoch and `number`, which tells
    /// the walk from others of the epoch. `walk` is the position of its start.
    pub fn link(&self, walk: usize, number: u64, (seed, epoch): (u64, u64)) -> (u32, u32) {
        let start = self.starts[walk];
        let key = mask_key(seed, epoch, STREAM);
        let step = |vertex: u32, (at, step): (u64, &Adjacency)| {
            let neighbours = row(step, vertex);
            let drawn = bits(mask_key(key, at, STREAM), number);
            neighbours[((u64::from(drawn) * neighbours.len() as u64) >> 32) as usize]
        };
        (start, (0..).zip(&self.steps).fold(start, step))
    }

    /// Size of the arrays in bytes.
    pub fn bytes(&self) -> u64 {
        let of_step = |step: &Adjacency| 8 * step.indptr.len() + 4 * step.indices.len();
        (4 * self.starts.len() + self.steps.iter().map(of_step).sum::<usize>()) as u64
    }
}

/// By graph of a model: the walks that draw its links, if it is one of links of a metapath. Empty without such graphs, and where
/// outputs only are computed.
///
/// # Errors
/// A relation that cannot be walked.
pub(crate) fn of_model(binder: &Binder<'_>, builders: &Builders<'_>) -> Result<Vec<Option<Arc<LinkWalks>>>> {
    let graphs = &binder.flow.graphs;
    if binder.options.outputs_only || !graphs.iter().any(|decl| decl.is_walked()) {
        return Ok(vec![]);
    }
    let mut known: HashMap<Step, Adjacency> = HashMap::new();
    let mut walks = vec![];
    for decl in graphs {
        if !decl.is_walked() {
            walks.push(None);
            continue;
        }
        let Source { builder, steps, .. } = builders.of(binder, decl);
        let mut neighbours = vec![];
        for step in steps {
            let of_step = match known.entry(step) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    // In-edges of the reverse are out-edges.
                    let options = RelationOptions { reverse: !step.reverse, ..RelationOptions::default() };
                    let graph = builder.relation(step.relation, options);
                    new.insert(graph.map_err(|error| failed_graph(&decl.name, error))?.csc)
                }
            };
            neighbours.push(of_step.clone());
        }
        walks.push(Some(Arc::new(LinkWalks::new(neighbours))));
    }
    Ok(walks)
}

fn row(step: &Adjacency, vertex: u32) -> &[u32] {
    let vertex = vertex as usize;
    &step.indices[step.indptr[vertex] as usize..step.indptr[vertex + 1] as usize]
}

/// Those of the neighbours that are kept.
fn kept(step: &Adjacency, keeps: impl Fn(u32) -> bool) -> Adjacency {
    let (mut indptr, mut indices) = (vec![0], vec![]);
    for vertex in 0..step.indptr.len().saturating_sub(1) as u32 {
        indices.extend(row(step, vertex).iter().copied().filter(|&neighbour| keeps(neighbour)));
        indptr.push(indices.len() as u64);
    }
    Adjacency { indptr: indptr.into(), indices: indices.into(), eids: vec![].into() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn adjacency(rows: &[&[u32]]) -> Adjacency {
        let mut indptr = vec![0];
        rows.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u64));
        Adjacency { indptr: indptr.into(), indices: rows.concat().into(), eids: vec![].into() }
    }

    /// The probability of each link of a walk from a start, by summing over all walks.
    fn exact(walks: &LinkWalks, start: u32) -> HashMap<u32, f64> {
        let mut at = HashMap::from([(start, 1.0)]);
        for step in &walks.steps {
            let mut next = HashMap::new();
            for (vertex, probability) in at {
                let neighbours = row(step, vertex);
                for &neighbour in neighbours {
                    *next.entry(neighbour).or_insert(0.0) += probability / neighbours.len() as f64;
                }
            }
            at = next;
        }
        at
    }

    /// Vertex 1 leads to vertex 2 of the middle only, which leads nowhere; parallel edges count twice.
    #[test]
    fn links_are_drawn_as_often_as_uniform_steps_arrive() {
        let walks = LinkWalks::new(vec![
            adjacency(&[&[0, 0, 1, 2], &[2], &[], &[1, 3]]),
            adjacency(&[&[0, 1, 2], &[2], &[], &[4, 4, 4, 0]]),
        ]);
        assert_eq!(walks.starts, [0, 3]);
        const EPOCHS: u64 = 40_000;
        for (walk, &start) in walks.starts.iter().enumerate() {
            let mut drawn: HashMap<u32, f64> = HashMap::new();
            for epoch in 0..EPOCHS {
                let (src, dst) = walks.link(walk, walk as u64, (7, epoch));
                assert_eq!(src, start);
                *drawn.entry(dst).or_default() += 1.0 / EPOCHS as f64;
            }
            let exact = exact(&walks, start);
            let mut ends: Vec<u32> = exact.keys().chain(drawn.keys()).copied().collect();
            ends.sort_unstable();
            ends.dedup();
            for end in ends {
                let [drawn, exact] = [&drawn, &exact].map(|of| of.get(&end).copied().unwrap_or(0.0));
                // Five standard deviations.
                let bound = 5.0 * (exact * (1.0 - exact) / EPOCHS as f64).sqrt();
                assert!((drawn - exact).abs() <= bound, "{start} -> {end}: {drawn}, not {exact}");
            }
        }
    }

    /// Walks of one epoch from the same vertex, by their numbers, and those of other seeds, are independent.
    #[test]
    fn walks_are_functions_of_seed_epoch_and_number() {
        let all: Vec<u32> = (0..1000).collect();
        let walks = LinkWalks::new(vec![adjacency(&[&all])]);
        let link = |number, key| walks.link(0, number, key);
        assert_eq!(link(3, (1, 2)), link(3, (1, 2)));
        for (number, key) in [(4, (1, 2)), (3, (2, 2)), (3, (1, 3))] {
            assert_ne!(link(3, (1, 2)), link(number, key), "{number} {key:?}");
        }
    }

    #[test]
    fn a_metapath_that_nothing_walks_has_no_links() {
        let walks = LinkWalks::new(vec![adjacency(&[&[0], &[1]]), adjacency(&[&[], &[]])]);
        assert!(walks.is_empty());
        assert_eq!(walks.len(), 0);
    }
}
