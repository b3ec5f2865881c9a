//! Metapaths whose pairs are their paths over a vertex between, each once.

use std::sync::Arc;

use super::{Adjacency, SemanticGraphs, SgbError, Step};

impl SemanticGraphs<'_> {
    /// After how many steps a path of the metapath is at a vertex between such that no other path joins the same ends: where
    /// each start reaches at most one such vertex, or each end is reached from at most one. `None` where no such place is
    /// known. With the number of pairs, which is that of the paths.
    ///
    /// Either part is the graph of a relation, or of a metapath; multiple edges of a relation would make several paths.
    /// Takes time in the number of edges of the relations.
    ///
    /// # Errors
    /// When the steps do not join.
    pub fn middle(&self, steps: &[Step]) -> Result<Option<(usize, u64)>, SgbError> {
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
            let ways = |part: &[Step]| self.reached(part);
            return Ok(Some((place, pairs(&ways(&flipped(first)), &ways(second)))));
        }
        Ok(None)
    }

    /// How many distinct ends each start reaches.
    fn reached(&self, steps: &[Step]) -> Vec<u64> {
        let chain: Vec<Arc<Adjacency>> = steps.iter().map(|&step| self.step(step)).collect();
        let indptr = super::walk::Rows::new(&chain, false).count();
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
