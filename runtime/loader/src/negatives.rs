//! Negative sampling: pairs of vertices that are not linked, for training and for evaluation.
//!
//! A candidate is a function of a key and a counter alone, and is drawn again while it is a link. Negatives thus depend
//! neither on threads nor on what was drawn before, except that those of an evaluation are distinct.

use std::collections::HashSet;

use hgnnc_data::Candidates;
use hgnnc_ir::random::bits;

/// Number of times an evaluation draws a negative that is a link again.
const TRIES: u64 = 16;

/// Draws candidates until one is accepted.
#[derive(Clone, Copy)]
pub(crate) struct Draws {
    /// Of the run and its stream of random numbers.
    pub key: u64,
    /// Most candidates of one negative.
    pub tries: u64,
}

impl Draws {
    /// A number below `of`, uniform up to a bias of `of / 2^32`: the one with this position among all numbers of the key.
    pub fn number(self, position: u64, of: usize) -> usize {
        ((u64::from(bits(self.key, position)) * of as u64) >> 32) as usize
    }

    /// The first candidate that is accepted, given the number of the attempt; `None` if none is. A vertex that is linked to
    /// all others has no negatives.
    pub fn first(
        self,
        candidate: impl Fn(u64) -> (u32, u32),
        mut accepted: impl FnMut((u32, u32)) -> bool,
    ) -> Option<(u32, u32)> {
        (0..self.tries).map(candidate).find(|&pair| accepted(pair))
    }
}

/// Draws a negative for each link, if there is one, for an evaluation: any two candidates for its ends, or (`replace`) the link
/// with its destination and its source replaced by turns. All are distinct, and each has the position of its link.
pub fn of_evaluation(
    links: &[(u32, u32)],
    replace: bool,
    [sources, destinations]: &[Candidates; 2],
    is_link: impl Fn((u32, u32)) -> bool,
    key: u64,
) -> Vec<(u32, (u32, u32))> {
    let draws = Draws { key, tries: TRIES };
    let mut drawn = HashSet::new();
    let negative = |(index, &(src, dst)): (u64, &(u32, u32))| {
        let candidate = |attempt| {
            let end = |end: u64, of: &Candidates, own| {
                of.of(own).start + draws.number(2 * (index * TRIES + attempt) + end, of.count()) as u32
            };
            match replace {
                false => (end(0, sources, src), end(1, destinations, dst)),
                true if index % 2 == 0 => (src, end(1, destinations, dst)),
                true => (end(0, sources, src), dst),
            }
        };
        let pair = draws.first(candidate, |pair| !is_link(pair) && drawn.insert(pair))?;
        Some((index as u32, pair))
    };
    (0..).zip(links).filter_map(negative).collect()
}
