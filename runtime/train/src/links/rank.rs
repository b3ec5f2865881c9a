//! Ranks of links among all pairs with one end replaced.
//!
//! For a link (u, v) of a relation, all vertices v' of the type of v are ranked by the score of (u, v'), and all u' by
//! that of (u', v). Known links of any part are excluded, except the link itself (the *filtered* setting of Bordes et
//! al., NIPS 2013). Of links as of cutoffs, these are the vertices as of the same cutoff, and the links of the same period. Equal scores share the mean of their ranks, so that a constant model ranks badly.

use std::ops::Range;

use hgnnc_data::{Candidates, Result};
use hgnnc_session::Session;
use rayon::prelude::*;

use super::KnownLinks;
use super::scorer::{Pairs, Scorer};

/// Pairs scored per batch.
const PAIRS: usize = 1 << 21;

/// Sums over ranks, from which metrics are computed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Ranks {
    /// Number of ranks: two per link.
    pub count: u64,
    /// Sum of 1 / rank.
    pub reciprocal: f64,
    /// Number of ranks that are at most 1, 3 and 10.
    pub hits: [u64; 3],
}

impl Ranks {
    fn add(&mut self, rank: f64) {
        self.count += 1;
        self.reciprocal += 1.0 / rank;
        for (hits, most) in self.hits.iter_mut().zip([1.0, 3.0, 10.0]) {
            *hits += u64::from(rank <= most);
        }
    }
}

/// Replaced end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CorruptedEnd {
    Destination,
    Source,
}

/// A batch of ranking queries: links of one graph that share these kept ends.
struct QueryBatch {
    graph: usize,
    replaced: CorruptedEnd,
    /// Links, sorted by the kept end.
    links: Vec<(u32, u32)>,
    ends: Vec<u32>,
    /// Link range of each kept end.
    of_end: Vec<Range<usize>>,
    /// For each kept end, the candidates for the other end.
    candidates: Vec<Range<u32>>,
}

/// Ranks of links, by graph, of which the rows at both ends and those that can take the place of one are given. Processes that train together
/// share the batches of queries: `whole` is their session.
pub(super) fn rank(
    scorer: &mut Scorer,
    whole: &mut dyn Session,
    links: &[Vec<(u32, u32)>],
    (rows, candidates): (&[(usize, usize)], &[[Candidates; 2]]),
    known: &[KnownLinks],
) -> Result<Ranks> {
    let mut works = vec![];
    for replaced in [CorruptedEnd::Destination, CorruptedEnd::Source] {
        for (graph, links) in links.iter().enumerate() {
            let [sources, destinations] = &candidates[graph];
            let candidates = if replaced == CorruptedEnd::Destination { destinations } else { sources };
            works.extend(query_batches(graph, replaced, links, candidates));
        }
    }
    let mut own = vec![];
    let mut rest = &works[whole.own_part(works.len())];
    while let Some(first) = rest.first() {
        // Adds batches of other graphs while there is room.
        let mut num = 0;
        let mut pairs = 0;
        for work in rest {
            let own = work.candidates.iter().map(ExactSizeIterator::len).sum::<usize>();
            let another = num == 0 || work.graph != rest[num - 1].graph && work.replaced == first.replaced;
            if num > 0 && (!another || pairs + own > PAIRS) {
                break;
            }
            (num, pairs) = (num + 1, pairs + own);
        }
        let (now, later) = rest.split_at(num);
        rest = later;
        let sets: Vec<Pairs> = now.iter().map(|work| work.pairs(rows[work.graph].1)).collect();
        let named: Vec<(usize, &Pairs)> = now.iter().map(|work| work.graph).zip(&sets).collect();
        scorer.score(&named)?;
        for work in now {
            let pool = scorer.pool();
            let scores = scorer.scores(work.graph)?;
            let ranks = pool.install(|| work.ranks(scores, &known[work.graph]));
            own.extend(ranks.into_iter().map(f64::to_bits));
        }
    }
    let mut all = Ranks::default();
    whole.of_all(&own)?.concat().into_iter().for_each(|rank| all.add(f64::from_bits(rank)));
    Ok(all)
}

/// Splits the queries of a graph's links into batches.
fn query_batches(
    graph: usize,
    replaced: CorruptedEnd,
    links: &[(u32, u32)],
    candidates: &Candidates,
) -> Vec<QueryBatch> {
    let most = PAIRS.div_ceil(candidates.count().max(1));
    let kept = |&(src, dst): &(u32, u32)| if replaced == CorruptedEnd::Destination { src } else { dst };
    let other = |&(src, dst): &(u32, u32)| if replaced == CorruptedEnd::Destination { dst } else { src };
    let mut links = links.to_vec();
    links.sort_unstable_by_key(|link| (kept(link), *link));
    let by_end: Vec<&[(u32, u32)]> = links.chunk_by(|a, b| kept(a) == kept(b)).collect();
    let work = |ends: &[&[(u32, u32)]]| {
        let links = ends.concat();
        let mut work = QueryBatch { graph, replaced, links, ends: vec![], of_end: vec![], candidates: vec![] };
        let mut first = 0;
        for links in ends {
            work.ends.push(kept(&links[0]));
            // Links of one row as of a cutoff end at rows as of the same cutoff.
            work.candidates.push(candidates.of(other(&links[0])));
            work.of_end.push(first..first + links.len());
            first += links.len();
        }
        work
    };
    by_end.chunks(most.max(1)).map(work).collect()
}

impl QueryBatch {
    /// The kept ends that have the same candidates, as positions: ends are ascending, so they are consecutive.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> {
        let mut first = 0;
        self.candidates.chunk_by(|a, b| a == b).map(move |block| {
            first += block.len();
            first - block.len()..first
        })
    }

    /// Every kept end paired with every candidate for the other, among so many rows of destinations.
    fn pairs(&self, num_dst: usize) -> Pairs {
        let mut indptr = vec![0; num_dst + 1];
        let mut src = vec![];
        for block in self.blocks() {
            let candidates = self.candidates[block.start].clone();
            let ends = &self.ends[block];
            match self.replaced {
                CorruptedEnd::Destination => {
                    candidates.clone().for_each(|dst| indptr[dst as usize + 1] = ends.len() as u64);
                    src.extend(std::iter::repeat_n(ends, candidates.len()).flatten());
                }
                CorruptedEnd::Source => {
                    ends.iter().for_each(|&dst| indptr[dst as usize + 1] = candidates.len() as u64);
                    src.extend(std::iter::repeat_n(candidates, ends.len()).flatten());
                }
            }
        }
        for dst in 0..num_dst {
            indptr[dst + 1] += indptr[dst];
        }
        Pairs { indptr, src }
    }

    /// Rank of each link. Scores are in the order of [`QueryBatch::pairs`].
    fn ranks(&self, scores: &[f32], known: &KnownLinks) -> Vec<f64> {
        let mut places = Vec::with_capacity(self.ends.len());
        let mut first = 0;
        for block in self.blocks() {
            places.extend(block.clone().map(|position| (first, block.len(), position - block.start)));
            first += block.len() * self.candidates[block.start].len();
        }
        let of_end = |position: usize| -> Vec<f64> {
            let (start, num) = (self.candidates[position].start, self.candidates[position].len());
            let (first, ends, end) = places[position];
            let at = |other: usize| match self.replaced {
                CorruptedEnd::Destination => scores[first + other * ends + end],
                CorruptedEnd::Source => scores[first + end * num + other],
            };
            let all: Vec<f32> = (0..num).map(at).collect();
            let others = match self.replaced {
                CorruptedEnd::Destination => known.of_source(self.ends[position]),
                CorruptedEnd::Source => known.of_destination(self.ends[position]),
            };
            let rank = |&(src, dst): &(u32, u32)| {
                let own = if self.replaced == CorruptedEnd::Destination { dst } else { src };
                let score = all[(own - start) as usize];
                let count = |of: &mut dyn Iterator<Item = f32>| {
                    of.fold((0u64, 0u64), |(above, equal), x| {
                        (above + u64::from(x > score), equal + u64::from(x == score))
                    })
                };
                let (above, equal) = count(&mut all.iter().copied());
                let left_out = &mut others
                    .iter()
                    .map(|pair| pair.1)
                    .filter(|&other| other != own)
                    .map(|other| all[(other - start) as usize]);
                let (known_above, known_equal) = count(left_out);
                // Excludes the link itself from its ties; half of the remaining ties rank before it.
                let (above, equal) = (above - known_above, equal.saturating_sub(known_equal + 1));
                // NaN ranks last.
                if score.is_nan() { num as f64 } else { 1.0 + above as f64 + equal as f64 / 2.0 }
            };
            self.links[self.of_end[position].clone()].iter().map(rank).collect()
        };
        (0..self.ends.len()).into_par_iter().map(of_end).collect::<Vec<_>>().concat()
    }
}
