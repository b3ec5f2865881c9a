//! Metapaths in which each pair has exactly one path through a middle vertex.

use std::sync::Arc;

use super::{MetapathOptions, PathMatrix, SemanticGraphs, SgbError, Step};

/// The position of such a middle vertex on a metapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Middle {
    /// Number of steps before the middle vertex.
    pub place: usize,
    /// Number of paths, equal to the number of pairs.
    pub pairs: u64,
}

/// Entries that [`SemanticGraphs::estimate_pairs`] touches at most, about.
const EFFORT: f64 = 1e7;
/// Rows that it looks at nonetheless.
const LEAST_ROWS: usize = 500;

impl SemanticGraphs<'_> {
    /// Finds a middle vertex of a metapath such that one path joins each of its pairs: each start reaches at most one
    /// middle vertex, or each end is reached from at most one. `None` if there is none, or if the part before or after
    /// it has more pairs than the whole.
    ///
    /// Either part is the graph of a relation or of a metapath; a relation with multiple edges does not qualify. Takes
    /// time in the edges of the relations, and in the pairs of a part with several steps.
    ///
    /// # Errors
    /// When the steps do not join.
    pub fn middle(&self, steps: &[Step]) -> Result<Option<Middle>, SgbError> {
        self.endpoints("", steps, false)?;
        let single = |adjacency: &PathMatrix| adjacency.indptr.windows(2).all(|row| row[1] - row[0] <= 1);
        let forward: Vec<bool> = steps.iter().map(|&step| single(&self.step(step))).collect();
        let backward: Vec<bool> = steps.iter().map(|&step| single(&self.step(step.flipped()))).collect();
        // Closest to the centre first: the two parts then have similar sizes.
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
        self.endpoints("", steps, false)?;
        Ok(self.reached(steps).iter().sum())
    }

    /// About the number of distinct (start, end) pairs of a metapath, in at most about the time of [`EFFORT`] entries:
    /// exact if that is enough for all start vertices, else from some of them.
    ///
    /// # Errors
    /// When the steps do not join.
    pub fn estimate_pairs(&self, steps: &[Step]) -> Result<u64, SgbError> {
        self.endpoints("", steps, false)?;
        let chain: Vec<Arc<PathMatrix>> = steps.iter().map(|&step| self.step(step)).collect();
        let (_, work) = super::plan::bound(&chain);
        let rows = super::walk::Rows::new(&chain, false, MetapathOptions::DEFAULT_MEMORY_BUDGET / 4);
        let few = chain.first().map_or(0, |first| first.num_rows()) / LEAST_ROWS;
        Ok(rows.estimate(((work / EFFORT).ceil() as usize).min(few).max(1)))
    }

    /// Number of distinct end vertices of each start vertex.
    fn reached(&self, steps: &[Step]) -> Vec<u64> {
        let chain: Vec<Arc<PathMatrix>> = steps.iter().map(|&step| self.step(step)).collect();
        let indptr = super::walk::Rows::new(&chain, false, MetapathOptions::DEFAULT_MEMORY_BUDGET / 4).count();
        indptr.windows(2).map(|row| row[1] - row[0]).collect()
    }
}

fn flipped(steps: &[Step]) -> Vec<Step> {
    steps.iter().rev().map(|step| step.flipped()).collect()
}

fn pairs(before: &[u64], after: &[u64]) -> u64 {
    before.iter().zip(after).fold(0, |sum: u64, (&a, &b)| sum.saturating_add(a.saturating_mul(b)))
}
