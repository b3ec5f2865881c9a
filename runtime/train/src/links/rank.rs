//! Ranks of links among all pairs with one end replaced.
//!
//! For a link (u, v) of a relation, all vertices v' of the type of v are ranked by the score of (u, v'), and all u' by
//! that of (u', v). Known links of any part are excluded, except the link itself (the *filtered* setting of Bordes et
//! al., NIPS 2013). Recommendations are measured by the ranks of all of a source's links of a part among all v', of which only
//! those of earlier parts are excluded.
//!
//! Of links as of cutoffs, these are the vertices as of the same cutoff, and the links of the same period. Equal scores
//! share the mean of their ranks, so that a constant model ranks badly.
//!
//! Where the score is linear in the row of the replaced end, the scores of links with all vertices are a product of matrices; else
//! the pairs are scored one by one.

use std::borrow::Cow;
use std::ops::Range;

use hgnnc_data::{Candidates, Result};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::training::Metric;
use hgnnc_session::Session;
use rayon::prelude::*;

use super::KnownLinks;
use super::scorer::{GROUPS, Pairs, Replacements, Scorer};

/// Pairs scored per batch, one by one.
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

/// A batch of ranking queries: links of one graph that share these kept ends.
#[derive(Clone)]
struct QueryBatch {
    graph: usize,
    /// The end that is replaced (`In`: the destination).
    replaced: Direction,
    /// The candidates, if their scores are a product; `None`: pairs are scored one by one.
    product: Option<Replacements>,
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
        let batches = [self.batches(Direction::In, scorer), self.batches(Direction::Out, scorer)].concat();
        let mut all = Ranks::default();
        self.ranks(&batches, scorer, whole)?.into_iter().for_each(|rank| all.add(rank));
        Ok(all)
    }

    /// Recommendations for the sources of links, as [`Queries::rank`].
    pub fn recommend(&self, scorer: &mut Scorer, whole: &mut dyn Session) -> Result<Recommendations> {
        let batches = self.batches(Direction::In, scorer);
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

    fn batches(&self, replaced: Direction, scorer: &Scorer) -> Vec<QueryBatch> {
        let of_graph = |(graph, links): (usize, &Vec<(u32, u32)>)| {
            let ([sources, destinations], rows) = (&self.candidates[graph], self.rows[graph]);
            let (candidates, rows) = if replaced == Direction::In { (destinations, rows.1) } else { (sources, rows.0) };
            // Rows as of different cutoffs have different candidates.
            let product = scorer.replacements(graph, replaced).filter(|_| candidates.count() == rows);
            query_batches((graph, replaced), product, links, candidates)
        };
        self.links.iter().enumerate().flat_map(of_graph).collect()
    }

    /// The rank of each link, by batch.
    fn ranks(&self, batches: &[QueryBatch], scorer: &mut Scorer, whole: &mut dyn Session) -> Result<Vec<f64>> {
        let (mut own, mut matrix) = (vec![], vec![]);
        let mut rest = &batches[whole.own_part(batches.len())];
        while let Some(first) = rest.first() {
            if let Some(product) = first.product {
                let (now, later) = rest.split_at(scored_together(rest, product));
                rest = later;
                let columns = product_scores(now, product, scorer, &mut matrix)?;
                let mut scores = &matrix[..];
                for batch in now {
                    let (of_batch, others) = scores.split_at(batch.ends.len() * columns);
                    scores = others;
                    let ranks = scorer.pool().install(|| batch.ranks(of_batch, &self.known[batch.graph]));
                    own.extend(ranks.into_iter().map(f64::to_bits));
                }
                continue;
            }
            // Adds batches of other graphs while there is room.
            let mut num = 0;
            let mut pairs = 0;
            for batch in rest {
                let own = batch.candidates.iter().map(ExactSizeIterator::len).sum::<usize>();
                let another = num == 0 || batch.graph != rest[num - 1].graph && batch.replaced == first.replaced;
                if num > 0 && (!another || batch.product.is_some() || pairs + own > PAIRS) {
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
                let ranks = pool.install(|| batch.ranks(&batch.by_end(scores), &self.known[batch.graph]));
                own.extend(ranks.into_iter().map(f64::to_bits));
            }
        }
        Ok(whole.of_all(&own)?.concat().into_iter().map(f64::from_bits).collect())
    }
}

/// Splits the queries of a graph's links into batches.
fn query_batches(
    (graph, replaced): (usize, Direction),
    product: Option<Replacements>,
    links: &[(u32, u32)],
    candidates: &Candidates,
) -> Vec<QueryBatch> {
    let most = match product {
        Some(product) => product.kept_together(candidates.count()),
        None => PAIRS.div_ceil(candidates.count().max(1)),
    };
    let kept = |&(src, dst): &(u32, u32)| if replaced == Direction::In { src } else { dst };
    let other = |&(src, dst): &(u32, u32)| if replaced == Direction::In { dst } else { src };
    let mut links = links.to_vec();
    links.sort_unstable_by_key(|link| (kept(link), *link));
    let by_end: Vec<&[(u32, u32)]> = links.chunk_by(|a, b| kept(a) == kept(b)).collect();
    let work = |ends: &[&[(u32, u32)]]| {
        let links = ends.concat();
        let mut work = QueryBatch { graph, replaced, product, links, ends: vec![], of_end: vec![], candidates: vec![] };
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
    match product {
        // A batch has ends of several places, which threads share, and some of each.
        Some(_) => {
            let of_place = most.div_ceil(GROUPS);
            let places: Vec<_> = by_end.chunks(by_end.len().div_ceil(GROUPS).max(1)).collect();
            let batches = places.first().map_or(0, |place| place.len().div_ceil(of_place));
            let of_batch = |batch: usize| places.iter().filter_map(move |place| place.chunks(of_place).nth(batch));
            (0..batches).map(|batch| work(&of_batch(batch).flatten().copied().collect::<Vec<_>>())).collect()
        }
        None => by_end.chunks(most.max(1)).map(work).collect(),
    }
}

/// Counts the batches that are scored with the first one while there is room: those of other graphs whose ends are replaced by the
/// same vertices.
fn scored_together(batches: &[QueryBatch], product: Replacements) -> usize {
    let first = &batches[0];
    let most = product.kept_together(first.candidates[0].len());
    let (mut num, mut ends) = (1, first.ends.len());
    for pair in batches.windows(2) {
        let [before, batch] = pair else { break };
        let alike = (batch.replaced, batch.product) == (first.replaced, first.product) && batch.graph != before.graph;
        ends += batch.ends.len();
        if !alike || ends > most {
            break;
        }
        num += 1;
    }
    num
}

/// Fills in the scores of the kept ends of batches with all vertices, by end; returns the number of vertices.
fn product_scores(
    batches: &[QueryBatch],
    product: Replacements,
    scorer: &mut Scorer,
    matrix: &mut Vec<f32>,
) -> Result<usize> {
    let columns = batches[0].candidates[0].len();
    let kept: Vec<(usize, &[u32])> = batches.iter().map(|batch| (batch.graph, &batch.ends[..])).collect();
    let rows: usize = kept.iter().map(|(_, kept)| kept.len()).sum();
    matrix.resize(rows * columns, 0.0);
    scorer.score_replaced(&kept, (batches[0].replaced, product), (matrix, columns))?;
    Ok(columns)
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
                Direction::In => {
                    candidates.clone().for_each(|dst| indptr[dst as usize + 1] = ends.len() as u64);
                    src.extend(std::iter::repeat_n(ends, candidates.len()).flatten());
                }
                Direction::Out => {
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

    /// The scores of [`QueryBatch::pairs`], by kept end.
    fn by_end<'s>(&self, scores: &'s [f32]) -> Cow<'s, [f32]> {
        if self.replaced == Direction::Out {
            return Cow::Borrowed(scores);
        }
        let mut first = 0;
        let mut rows = vec![];
        for block in self.blocks() {
            let (ends, all) = (block.len(), self.candidates[block.start].len());
            let scores = &scores[first..first + ends * all];
            rows.extend((0..ends).map(|end| (scores, end, ends)));
            first += ends * all;
        }
        let row = |(scores, end, ends): (&[f32], usize, usize)| -> Vec<f32> {
            scores.iter().skip(end).step_by(ends).copied().collect()
        };
        Cow::Owned(rows.into_par_iter().map(row).collect::<Vec<_>>().concat())
    }

    /// Rank of each link, from the scores of each kept end with its candidates.
    fn ranks(&self, scores: &[f32], known: &KnownLinks) -> Vec<f64> {
        let mut first = 0;
        let of_end = self.candidates.iter().map(|candidates| {
            first += candidates.len();
            &scores[first - candidates.len()..first]
        });
        let of_end: Vec<&[f32]> = of_end.collect();
        let ranks = |(position, all): (usize, &[f32])| -> Vec<f64> {
            let start = self.candidates[position].start;
            let others = match self.replaced {
                Direction::In => known.of_source(self.ends[position]),
                Direction::Out => known.of_destination(self.ends[position]),
            };
            let rank = |&(src, dst): &(u32, u32)| {
                let own = if self.replaced == Direction::In { dst } else { src };
                let score = all[(own - start) as usize];
                let (mut above, mut equal) = count(all, score);
                for &(_, other) in others.iter().filter(|pair| pair.1 != own) {
                    let known = all[(other - start) as usize];
                    (above, equal) =
                        (above - u64::from(known > score), equal.saturating_sub(u64::from(known == score)));
                }
                // Excludes the link itself from its ties; half of the remaining ties rank before it.
                let equal = equal.saturating_sub(1);
                // NaN ranks last.
                if score.is_nan() { all.len() as f64 } else { 1.0 + above as f64 + equal as f64 / 2.0 }
            };
            self.links[self.of_end[position].clone()].iter().map(rank).collect()
        };
        of_end.into_par_iter().enumerate().map(ranks).collect::<Vec<_>>().concat()
    }
}

/// Counts the scores that are above one, and those that equal it.
fn count(scores: &[f32], score: f32) -> (u64, u64) {
    scores.chunks(1 << 16).fold((0, 0), |(above, equal), scores| {
        // Numbers of 32 bits are counted as many at a time as scores are compared.
        let (more, same) = scores
            .iter()
            .fold((0u32, 0u32), |(more, same), &x| (more + u32::from(x > score), same + u32::from(x == score)));
        (above + u64::from(more), equal + u64::from(same))
    })
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
