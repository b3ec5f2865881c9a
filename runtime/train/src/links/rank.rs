//! Ranks of links among all pairs with one end replaced.
//!
//! For a link (u, v) of a relation, all vertices v' of the type of v are ranked by the score of (u, v'), and all u' by
//! that of (u', v). Known links of any part are excluded, except the link itself (the *filtered* setting of Bordes et
//! al., NIPS 2013). Recommendations are measured by the ranks of all of a source's links of a part among all v', of which only
//! those of earlier parts are excluded.
//!
//! Of links as of cutoffs, these are the vertices as of the same cutoff, and the links of the same period. Equal scores
//! share the mean of their ranks, so that a constant model ranks badly.

use std::ops::Range;

use hgnnc_data::{Candidates, Result};
use hgnnc_ir::training::Metric;
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

    /// The mean over ranks; `None` for a metric of another kind.
    pub fn metric(&self, metric: Metric) -> Option<f64> {
        let sum = match metric {
            Metric::Mrr => self.reciprocal,
            Metric::Hits1 => self.hits[0] as f64,
            Metric::Hits3 => self.hits[1] as f64,
            Metric::Hits10 => self.hits[2] as f64,
            _ => return None,
        };
        Some(sum / self.count as f64)
    }
}

/// Most destinations of a source that are recommended.
const RECOMMENDED: f64 = 20.0;

/// Sums over the sources of links, from which metrics of recommendations are computed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Recommendations {
    /// Sources that have links in the part.
    pub count: u64,
    /// Sum of the share of links that are recommended.
    pub recall: f64,
    /// Sum of the gain, Σ 1 / log₂(1 + rank) over the recommended links, relative to that of the best order.
    pub gain: f64,
}

impl Recommendations {
    /// Adds a source by the ranks of its links.
    fn add(&mut self, ranks: &[f64]) {
        let gain = |rank: f64| 1.0 / (1.0 + rank).log2();
        let recommended = || ranks.iter().filter(|rank| **rank <= RECOMMENDED);
        let best = (1..=ranks.len()).map(|rank| rank as f64).take_while(|rank| *rank <= RECOMMENDED);
        self.count += 1;
        self.recall += recommended().count() as f64 / ranks.len() as f64;
        self.gain += recommended().map(|&rank| gain(rank)).sum::<f64>() / best.map(gain).sum::<f64>();
    }

    /// The mean over sources; `None` for a metric of another kind.
    pub fn metric(&self, metric: Metric) -> Option<f64> {
        let sum = match metric {
            Metric::Recall20 => self.recall,
            Metric::Ndcg20 => self.gain,
            _ => return None,
        };
        Some(sum / self.count as f64)
    }
}

/// Replaced end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CorruptedEnd {
    Destination,
    Source,
}

/// A batch of ranking queries: links of one graph that share these kept ends.
#[derive(Clone)]
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

/// Links to rank, by graph: the rows at both ends, those that can take the place of one, and the links that are left out.
pub(super) struct Queries<'a> {
    pub links: &'a [Vec<(u32, u32)>],
    pub rows: &'a [(usize, usize)],
    pub candidates: &'a [[Candidates; 2]],
    pub known: &'a [KnownLinks],
}

impl Queries<'_> {
    /// Ranks of links with either end replaced. Processes that train together share the batches of queries by `whole`,
    /// the session of all of them.
    pub fn rank(&self, scorer: &mut Scorer, whole: &mut dyn Session) -> Result<Ranks> {
        let batches = [self.batches(CorruptedEnd::Destination), self.batches(CorruptedEnd::Source)].concat();
        let mut all = Ranks::default();
        self.ranks(&batches, scorer, whole)?.into_iter().for_each(|rank| all.add(rank));
        Ok(all)
    }

    /// Recommendations for the sources of links, as [`Queries::rank`].
    pub fn recommend(&self, scorer: &mut Scorer, whole: &mut dyn Session) -> Result<Recommendations> {
        let batches = self.batches(CorruptedEnd::Destination);
        let ranks = self.ranks(&batches, scorer, whole)?;
        let mut all = Recommendations::default();
        let mut first = 0;
        for batch in &batches {
            let own = &ranks[first..first + batch.links.len()];
            batch.of_end.iter().for_each(|links| all.add(&own[links.clone()]));
            first += batch.links.len();
        }
        Ok(all)
    }

    fn batches(&self, replaced: CorruptedEnd) -> Vec<QueryBatch> {
        let of_graph = |(graph, links): (usize, &Vec<(u32, u32)>)| {
            let [sources, destinations] = &self.candidates[graph];
            let candidates = if replaced == CorruptedEnd::Destination { destinations } else { sources };
            query_batches(graph, replaced, links, candidates)
        };
        self.links.iter().enumerate().flat_map(of_graph).collect()
    }

    /// The rank of each link, by batch.
    fn ranks(&self, batches: &[QueryBatch], scorer: &mut Scorer, whole: &mut dyn Session) -> Result<Vec<f64>> {
        let mut own = vec![];
        let mut rest = &batches[whole.own_part(batches.len())];
        while let Some(first) = rest.first() {
            // Adds batches of other graphs while there is room.
            let mut num = 0;
            let mut pairs = 0;
            for batch in rest {
                let own = batch.candidates.iter().map(ExactSizeIterator::len).sum::<usize>();
                let another = num == 0 || batch.graph != rest[num - 1].graph && batch.replaced == first.replaced;
                if num > 0 && (!another || pairs + own > PAIRS) {
                    break;
                }
                (num, pairs) = (num + 1, pairs + own);
            }
            let (now, later) = rest.split_at(num);
            rest = later;
            let sets: Vec<Pairs> = now.iter().map(|batch| batch.pairs(self.rows[batch.graph].1)).collect();
            let named: Vec<(usize, &Pairs)> = now.iter().map(|batch| batch.graph).zip(&sets).collect();
            scorer.score(&named)?;
            for batch in now {
                let pool = scorer.pool();
                let scores = scorer.scores(batch.graph)?;
                let ranks = pool.install(|| batch.ranks(scores, &self.known[batch.graph]));
                own.extend(ranks.into_iter().map(f64::to_bits));
            }
        }
        Ok(whole.of_all(&own)?.concat().into_iter().map(f64::from_bits).collect())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gain_is_relative_to_the_best_order() {
        let of = |ranks: &[f64]| {
            let mut all = Recommendations::default();
            all.add(ranks);
            [Metric::Recall20, Metric::Ndcg20].map(|metric| all.metric(metric).expect("it is measured"))
        };
        assert_eq!(of(&[1.0, 2.0, 3.0]), [1.0, 1.0]);
        assert_eq!(of(&[20.0, 21.0]), [0.5, (1.0 / 21f64.log2()) / (1.0 + 1.0 / 3f64.log2())]);
        // More links than are recommended.
        let ranks: Vec<f64> = (1..=40).map(f64::from).collect();
        assert_eq!(of(&ranks), [0.5, 1.0]);
        // Two of the same score share the mean of their ranks, and gain less than in any order.
        assert!(of(&[1.5, 1.5])[1] < 1.0);
        let mut all = Recommendations::default();
        all.add(&[1.0]);
        all.add(&[30.0]);
        assert_eq!(all.metric(Metric::Recall20), Some(0.5));
        assert_eq!(all.metric(Metric::Mrr), None);
    }
}
