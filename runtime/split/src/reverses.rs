//! Relations that hold the reverses of another one's edges.

use hgnnc_dataset::RelationData;
use rustc_hash::FxHashSet;

use crate::SplitError;

/// The share of reverses from which on a relation that was not named is suspected of telling of held-out edges.
pub const SUSPICIOUS: f64 = 0.5;

/// The reverses of a relation among all relations, by their positions.
pub(crate) struct Reverses {
    /// Those that are named or found; the relation itself, if it is symmetric.
    pub all: Vec<usize>,
    /// Those of them that hold the reverse of every edge, and were not named.
    pub found: Vec<usize>,
    /// Others that hold the reverses of this share of the edges, from [`SUSPICIOUS`] on.
    pub suspects: Vec<(usize, f64)>,
}

impl Reverses {
    /// `named` holds reverses of `relation`; others are looked for among those that `may_be`.
    ///
    /// # Errors
    /// A named one that does not lead from the destinations to the sources.
    pub fn find(
        relations: &[RelationData],
        relation: usize,
        named: &[usize],
        may_be: impl Fn(&RelationData) -> bool,
    ) -> Result<Reverses, SplitError> {
        let data = &relations[relation];
        named.iter().try_for_each(|&reverse| check(data, &relations[reverse]))?;
        let mut reverses = Reverses { all: named.to_vec(), found: vec![], suspects: vec![] };
        reverses.all.sort_unstable();
        reverses.all.dedup();
        for (other, of) in relations.iter().enumerate() {
            if reverses.all.contains(&other) || !may_be(of) {
                continue;
            }
            match reverse_share(data, of) {
                Some(1.0) => {
                    reverses.all.push(other);
                    reverses.found.push(other);
                }
                Some(share) if share >= SUSPICIOUS => reverses.suspects.push((other, share)),
                _ => {}
            }
        }
        Ok(reverses)
    }
}

/// Refuses a reverse that does not lead from the destinations of a relation to its sources.
pub(crate) fn check(relation: &RelationData, reverse: &RelationData) -> Result<(), SplitError> {
    if (relation.src, relation.dst) == (reverse.dst, reverse.src) {
        return Ok(());
    }
    Err(SplitError::NotReverse { relation: relation.name.clone(), reverse: reverse.name.clone() })
}

/// The share of the distinct edges of `relation` whose reverse is an edge of `other`; `None` if `other` does not lead the
/// other way, or `relation` has no edges. Self loops, which are their own reverses, do not count.
fn reverse_share(relation: &RelationData, other: &RelationData) -> Option<f64> {
    if (relation.src, relation.dst) != (other.dst, other.src) {
        return None;
    }
    let is_loop = |&(src, dst): &(u32, u32)| relation.src == relation.dst && src == dst;
    let edges = |data: &RelationData| -> FxHashSet<(u32, u32)> {
        data.src_ids.iter().copied().zip(data.dst_ids.iter().copied()).filter(|edge| !is_loop(edge)).collect()
    };
    let (forward, other) = (edges(relation), edges(other));
    let reversed = forward.iter().filter(|&&(src, dst)| other.contains(&(dst, src))).count();
    (!forward.is_empty()).then(|| reversed as f64 / forward.len() as f64)
}

/// One form for both directions of a symmetric edge.
pub(crate) fn undirected((src, dst): (u32, u32), symmetric: bool) -> (u32, u32) {
    if symmetric && src > dst { (dst, src) } else { (src, dst) }
}
