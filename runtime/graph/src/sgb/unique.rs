//! Metapaths whose pairs are their paths over a vertex between, each once.

use std::sync::Arc;

use super::{Adjacency, MetapathOptions, SemanticGraphs, SgbError, Step};

/// Where the paths of a metapath are at a vertex between, such that no other path joins the same ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Middle {
    /// After how many steps.
    pub place: usize,
    /// Number of the paths, which is that of the pairs.
    pub pairs: u64,
}

impl SemanticGraphs<'_> {
    /// The vertices between of a metapath over which one path joins each of its pairs: where each start reaches at most one
    /// of them, or each end is reached from at most one. `None` where none are known, or the part before or after them has
    /// more pairs than the whole.
    ///
    /// Either part is the graph of a relation, or of a metapath; multiple edges of a relation would make several paths.
    /// Takes time in the number of edges of the relations, and for a part of several steps in its pairs.
    ///
    /// # Errors
    /// When the steps do not join.
    pub fn middle(&self, steps: &[Step]) -> Result<Option<Middle>, SgbError> {
        self.ends("", steps, false)?;
        let single = |adjacency: &Adjacency| adjacency.indptr.windows(2).all(|row| row[1] - row[0] <= 1);
        let forward: Vec<bool> = steps.iter().map(|&step| single(&self.step(step))).collect();
        let backward: Vec<bool> = steps.iter().map(|&step| single(&self.step(step.flipped()))).collect();
        // Nearest to the middle first: the two parts are then about as large.
        let mut places: Vec<usize> = (1..steps.len()).collect();
        places.sort_by_key(|&place| place.abs_diff(steps.len() - place));
        for place in places {
            let (first, second) = steps.split_at(place);
            let once = forward[..place].iter().all(|&one| one) || backward[place..].iter().all(|&one| one);
            if !once || [first, second].into_iter().any(|part| part.len() == 1 && !self.step(part[0]).distinct) {
                continue;
            }
            let (before, after) = (self.reached(&flipped(first)), self.reached(second));
            let pairs = pairs(&before, &after);
            let smaller = |part: &[Step], ways: &[u64]| part.len() == 1 || ways.iter().sum::<u64>() <= pairs;
            if smaller(first, &before) && smaller(second, &after) {
                return Ok(Some(Middle { place, pairs }));
            }
        }
        Ok(None)
    }

    /// Number of distinct (start, end) pairs of a metapath.
    ///
    /// # Errors
    /// When the steps do not join.
    pub fn pairs(&self, steps: &[Step]) -> Result<u64, SgbError> {
        self.ends("", steps, false)?;
        Ok(self.reached(steps).iter().sum())
    }

    /// How many distinct ends each start reaches.
    fn reached(&self, steps: &[Step]) -> Vec<u64> {
        let chain: Vec<Arc<Adjacency>> = steps.iter().map(|&step| self.step(step)).collect();
        let indptr = super::walk::Rows::new(&chain, false, MetapathOptions::DEFAULT_MEMORY_BUDGET / 4).count();
        indptr.windows(2).map(|row| row[1] - row[0]).collect()
    }
}

/// The way back.
fn flipped(steps: &[Step]) -> Vec<Step> {
    steps.iter().rev().map(|step| step.flipped()).collect()
}

fn pairs(before: &[u64], after: &[u64]) -> u64 {
    before.iter().zip(after).fold(0, |sum: u64, (&a, &b)| sum.saturating_add(a.saturating_mul(b)))
}
