//! Ranks of links among all pairs with one end replaced.
//!
//! For a link (u, v) of a relation, all vertices v' of the type of v are ranked by the score of (u, v'), and all u' by
//! that of (u', v). Known links of any part are excluded, except the link itself (the *filtered* setting of Bordes et
//! al., NIPS 2013). Equal scores share the mean of their ranks, so that a constant model ranks badly.

use std::ops::Range;

use hgnnc_data::Result;
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
}

/// Ranks of links, by graph; `ends` are the source and destination counts of each graph. Processes that train together
/// share the batches of queries: `whole` is their session.
pub(super) fn rank(
    scorer: &mut Scorer,
    whole: &mut dyn Session,
    links: &[Vec<(u32, u32)>],
    ends: &[(usize, usize)],
    known: &[KnownLinks],
) -> Result<Ranks> {
    let mut works = vec![];
    for replaced in [CorruptedEnd::Destination, CorruptedEnd::Source] {
        for (graph, links) in links.iter().enumerate() {
            let candidates = if replaced == CorruptedEnd::Destination { ends[graph].1 } else { ends[graph].0 };
            works.extend(query_batches(graph, replaced, links, PAIRS.div_ceil(candidates.max(1))));
        }
    }
    let mut own = vec![];
    let mut rest = &works[whole.own_rows(works.len())];
    while let Some(first) = rest.first() {
        // Adds batches of other graphs while there is room.
        let mut num = 0;
        let mut pairs = 0;
        for work in rest {
            let (num_src, num_dst) = ends[work.graph];
            let own = work.ends.len() * if work.replaced == CorruptedEnd::Destination { num_dst } else { num_src };
            let another = num == 0 || work.graph != rest[num - 1].graph && work.replaced == first.replaced;
            if num > 0 && (!another || pairs + own > PAIRS) {
                break;
            }
            (num, pairs) = (num + 1, pairs + own);
        }
        let (now, later) = rest.split_at(num);
        rest = later;
        let sets: Vec<Pairs> = now.iter().map(|work| work.pairs(ends[work.graph])).collect();
        let named: Vec<(usize, &Pairs)> = now.iter().map(|work| work.graph).zip(&sets).collect();
        scorer.score(&named)?;
        for work in now {
            let pool = scorer.pool();
            let scores = scorer.scores(work.graph)?;
            let ranks = pool.install(|| work.ranks(scores, ends[work.graph], &known[work.graph]));
            own.extend(ranks.into_iter().map(f64::to_bits));
        }
    }
    let mut all = Ranks::default();
    whole.of_all(&own)?.concat().into_iter().for_each(|rank| all.add(f64::from_bits(rank)));
    Ok(all)
}

/// Splits the queries of a graph's links into batches of at most `most` pairs.
fn query_batches(graph: usize, replaced: CorruptedEnd, links: &[(u32, u32)], most: usize) -> Vec<QueryBatch> {
    let kept = |&(src, dst): &(u32, u32)| if replaced == CorruptedEnd::Destination { src } else { dst };
    let mut links = links.to_vec();
    links.sort_unstable_by_key(|link| (kept(link), *link));
    let by_end: Vec<&[(u32, u32)]> = links.chunk_by(|a, b| kept(a) == kept(b)).collect();
    let work = |ends: &[&[(u32, u32)]]| {
        let mut work = QueryBatch { graph, replaced, links: ends.concat(), ends: vec![], of_end: vec![] };
        let mut first = 0;
        for links in ends {
            work.ends.push(kept(&links[0]));
            work.of_end.push(first..first + links.len());
            first += links.len();
        }
        work
    };
    by_end.chunks(most.max(1)).map(work).collect()
}

impl QueryBatch {
    /// Every kept end paired with every vertex of the other side.
    fn pairs(&self, (num_src, num_dst): (usize, usize)) -> Pairs {
        match self.replaced {
            CorruptedEnd::Destination => {
                let each = self.ends.len() as u64;
                let src = std::iter::repeat_n(&self.ends, num_dst).flatten().copied().collect();
                Pairs { indptr: (0..=num_dst as u64).map(|dst| dst * each).collect(), src }
            }
            CorruptedEnd::Source => {
                let mut indptr = vec![0; num_dst + 1];
                self.ends.iter().for_each(|&dst| indptr[dst as usize + 1] = num_src as u64);
                for dst in 0..num_dst {
                    indptr[dst + 1] += indptr[dst];
                }
                Pairs { indptr, src: std::iter::repeat_n(0..num_src as u32, self.ends.len()).flatten().collect() }
            }
        }
    }

    /// Rank of each link. Scores are in the order of [`QueryBatch::pairs`], with kept ends ascending.
    fn ranks(&self, scores: &[f32], (num_src, num_dst): (usize, usize), known: &KnownLinks) -> Vec<f64> {
        let num = if self.replaced == CorruptedEnd::Destination { num_dst } else { num_src };
        let of_end = |position: usize| -> Vec<f64> {
            let at = |other: usize| match self.replaced {
                CorruptedEnd::Destination => scores[other * self.ends.len() + position],
                CorruptedEnd::Source => scores[position * num_src + other],
            };
            let all: Vec<f32> = (0..num).map(at).collect();
            let others = match self.replaced {
                CorruptedEnd::Destination => known.of_source(self.ends[position]),
                CorruptedEnd::Source => known.of_destination(self.ends[position]),
            };
            let rank = |&(src, dst): &(u32, u32)| {
                let own = if self.replaced == CorruptedEnd::Destination { dst } else { src };
                let score = all[own as usize];
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
                    .map(|other| all[other as usize]);
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
