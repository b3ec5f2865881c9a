//! Metrics of link prediction: classification of links against negatives, and ranking.

mod curve;
mod rank;
mod scorer;

use hgnnc_data::{BoundData, Candidates, Result, Topology, part_index};
use hgnnc_executable::Executable;
use hgnnc_ir::random::mask_key;
use hgnnc_ir::training::{LinkLoss, Metric, Part, Ranking};
use hgnnc_ir::types::Graph;
use hgnnc_loader::negatives;
use hgnnc_session::{Backend, Session};
use rayon::prelude::*;

use curve::{Corrupted, ScoreMetrics};
use rank::{Queries, Ranks, Recommendations};
pub(crate) use scorer::memory;
use scorer::{Pairs, Scorer};

/// RNG stream of evaluation negatives, the same for every model, run and epoch.
const STREAM: u32 = 0x0e7a_15ed;
/// In place of an epoch, for the walks that an evaluation draws links of metapaths by.
const WALKS: u64 = u64::MAX;

/// Evaluates link scores by classification and ranking.
pub(crate) struct LinkMeasures {
    scorer: Scorer,
    loss: LinkLoss,
    /// Weight of negatives in the loss, relative to a link.
    negatives: f64,
    parts: [LinkPart; 3],
    /// Rows at the sources and destinations of each link graph.
    rows: Vec<(usize, usize)>,
    /// Those that can take the place of an end, for each link graph.
    candidates: Vec<[Candidates; 2]>,
    known: Vec<KnownLinks>,
}

/// Links of a part with the metrics computed since the last evaluation.
struct LinkPart {
    links: Vec<Vec<(u32, u32)>>,
    /// As many negatives by graph, of any two vertices.
    others: Vec<Vec<(u32, u32)>>,
    /// As many corrupted links by graph, drawn as in training.
    replaced: Vec<Vec<(u32, u32)>>,
    /// By graph, the position of the link that each of them corrupts.
    corrupted: Vec<Vec<u32>>,
    separation: Option<ScoreMetrics>,
    ranks: Option<Ranks>,
    recommendations: Option<Recommendations>,
}

/// Negatives of a graph, with the position of the link of each.
type Negatives = (Vec<u32>, Vec<(u32, u32)>);

/// Links of a graph, over all parts.
pub(super) struct KnownLinks {
    by_src: Vec<(u32, u32)>,
    by_dst: Vec<(u32, u32)>,
}

/// The range of a sorted list with this first element.
fn behind(pairs: &[(u32, u32)], end: u32) -> &[(u32, u32)] {
    let first = pairs.partition_point(|pair| pair.0 < end);
    let last = first + pairs[first..].partition_point(|pair| pair.0 == end);
    &pairs[first..last]
}

impl KnownLinks {
    fn of<'l>(links: impl Iterator<Item = &'l (u32, u32)>) -> Self {
        let mut by_src: Vec<(u32, u32)> = links.copied().collect();
        by_src.sort_unstable();
        by_src.dedup();
        let mut by_dst: Vec<(u32, u32)> = by_src.iter().map(|&(src, dst)| (dst, src)).collect();
        by_dst.sort_unstable();
        Self { by_src, by_dst }
    }

    fn has(&self, pair: (u32, u32)) -> bool {
        self.by_src.binary_search(&pair).is_ok()
    }

    /// Destinations linked from a source, deduplicated.
    pub(super) fn of_source(&self, src: u32) -> &[(u32, u32)] {
        behind(&self.by_src, src)
    }

    /// Sources linked to a destination, deduplicated.
    pub(super) fn of_destination(&self, dst: u32) -> &[(u32, u32)] {
        behind(&self.by_dst, dst)
    }
}

impl LinkMeasures {
    /// Creates the metrics of a link model from full-graph data. `None` for other models.
    pub fn new(executable: &Executable, backend: &mut dyn Backend, data: &BoundData) -> Result<Option<Self>> {
        let Some(training) = &executable.training else { return Ok(None) };
        let (Some(target), Some(trained)) = (training.links(), training.first()) else { return Ok(None) };
        let scorer = Scorer::new(executable, backend, target, &trained.output, &data.num_vertices)?;
        let topologies: Vec<&Topology> = target.graphs.iter().map(|graph| &data.graphs[graph.index()]).collect();
        let rows: Vec<(usize, usize)> = topologies.iter().map(|graph| (graph.num_src, graph.num_dst)).collect();
        let candidates: Vec<[Candidates; 2]> = topologies.iter().map(|graph| graph.candidates()).collect();
        // Of a metapath, the links of one epoch of walks, the same for all runs.
        let walked = |graph: &Graph| {
            let walks = data.drawn.links.get(graph.index())?.as_ref()?;
            Some((0..walks.len()).map(|walk| walks.link(walk, walk as u64, (graph.index() as u64, WALKS))).collect())
        };
        let trained = target.graphs.par_iter().zip(&topologies);
        let trained = trained.map(|(graph, topology)| walked(graph).unwrap_or_else(|| topology.edges()));
        let mut parts = vec![trained.collect::<Vec<Vec<(u32, u32)>>>()];
        for held_out in &data.held_out {
            // Data bound for outputs only has no held-out links.
            parts.push(if held_out.is_empty() { vec![vec![]; rows.len()] } else { held_out.clone() });
        }
        let known: Vec<KnownLinks> = (0..rows.len())
            .into_par_iter()
            .map(|graph| KnownLinks::of(parts.iter().flat_map(|part| &part[graph])))
            .collect();
        let parts = parts.into_iter().enumerate().map(|(part, links)| {
            let draw = |replace: bool| -> Vec<Negatives> {
                let of_graph = |graph: usize| {
                    let key = mask_key(part as u64, 2 * graph as u64 + u64::from(replace), STREAM);
                    let is_link = |pair| known[graph].has(pair);
                    negatives::of_evaluation(&links[graph], replace, &candidates[graph], is_link, key)
                        .into_iter()
                        .unzip()
                };
                (0..rows.len()).into_par_iter().map(of_graph).collect()
            };
            let (_, others) = draw(false).into_iter().unzip::<_, _, Vec<_>, _>();
            let (corrupted, replaced) = draw(true).into_iter().unzip();
            LinkPart { others, replaced, corrupted, links, separation: None, ranks: None, recommendations: None }
        });
        let parts: Vec<LinkPart> = parts.collect();
        let Ok(parts) = parts.try_into() else { unreachable!("there are three parts") };
        let (loss, negatives) = (target.loss, target.negatives.count.into());
        Ok(Some(Self { scorer, loss, negatives, parts, rows, candidates, known }))
    }

    /// Takes the results of the last evaluation and invalidates previous metrics.
    pub fn refresh(&mut self, session: &mut dyn Session, infer: usize) -> Result<()> {
        for part in &mut self.parts {
            (part.separation, part.ranks, part.recommendations) = (None, None, None);
        }
        self.scorer.refresh(session, infer)
    }

    /// Value of a metric over a part; `None` without links, or for a metric of another task. Processes that train together
    /// share the pairs to score: `whole` is their session.
    pub fn metric(&mut self, whole: &mut dyn Session, part: Part, metric: Metric) -> Result<Option<f64>> {
        let index = part_index(part);
        if self.parts[index].links.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        match metric.ranking() {
            Some(Ranking::BothEnds) => return self.ranks(whole, index).map(|found| found.metric(metric)),
            Some(Ranking::Destinations) => return self.recommendations(whole, index).map(|found| found.metric(metric)),
            None => {}
        }
        if self.parts[index].separation.is_none() {
            self.parts[index].separation = Some(self.separation(whole, index)?);
        }
        let separation = self.parts[index].separation.unwrap_or_default();
        Ok(match metric {
            Metric::Loss => separation.loss,
            Metric::Auc => separation.auc,
            Metric::AveragePrecision => separation.average_precision,
            _ => None,
        })
    }

    fn ranks(&mut self, whole: &mut dyn Session, part: usize) -> Result<Ranks> {
        let Self { scorer, parts, rows, candidates, known, .. } = self;
        let LinkPart { links, ranks, .. } = &mut parts[part];
        let found = match *ranks {
            Some(found) => found,
            None => Queries { links, rows, candidates, known }.rank(scorer, whole)?,
        };
        *ranks = Some(found);
        Ok(found)
    }

    fn recommendations(&mut self, whole: &mut dyn Session, part: usize) -> Result<Recommendations> {
        let Self { scorer, parts, rows, candidates, .. } = self;
        let (earlier, rest) = parts.split_at_mut(part);
        let LinkPart { links, recommendations, .. } = &mut rest[0];
        let found = match *recommendations {
            Some(found) => found,
            None => {
                let before = |graph: usize| earlier.iter().flat_map(move |part| &part.links[graph]);
                let known: Vec<KnownLinks> = (0..rows.len()).map(|graph| KnownLinks::of(before(graph))).collect();
                Queries { links, rows, candidates, known: &known }.recommend(scorer, whole)?
            }
        };
        *recommendations = Some(found);
        Ok(found)
    }

    fn separation(&mut self, whole: &mut dyn Session, part: usize) -> Result<ScoreMetrics> {
        let LinkPart { links, others, replaced, .. } = &self.parts[part];
        let joined = |graph: usize| [&links[graph][..], &others[graph], &replaced[graph]].concat();
        let joined: Vec<Vec<(u32, u32)>> = (0..links.len()).map(joined).collect();
        let scores = self.scores(whole, &joined)?;
        let [mut of_links, mut of_others, mut of_replaced] = [const { vec![] }; 3];
        let mut of_corrupted = vec![];
        let LinkPart { links, others, corrupted, .. } = &self.parts[part];
        for (graph, scores) in scores.iter().enumerate() {
            let (own, rest) = scores.split_at(links[graph].len());
            let (other, replaced) = rest.split_at(others[graph].len());
            of_links.extend_from_slice(own);
            of_others.extend_from_slice(other);
            of_replaced.extend_from_slice(replaced);
            of_corrupted.extend(corrupted[graph].iter().map(|&link| own[link as usize]));
        }
        let replaced = Corrupted { scores: &of_replaced, of: &of_corrupted, weight: self.negatives };
        Ok(ScoreMetrics::of(&of_links, &of_others, (self.loss, replaced)))
    }

    /// Whether this part has negatives for a metric.
    pub fn can_measure(&self, part: Part, metric: Metric) -> bool {
        let LinkPart { others, replaced, .. } = &self.parts[part_index(part)];
        let some = |pairs: &[Vec<(u32, u32)>]| pairs.iter().any(|pairs| !pairs.is_empty());
        match metric {
            Metric::Loss => some(replaced),
            Metric::Auc | Metric::AveragePrecision => some(others),
            _ => true,
        }
    }

    /// Scores of pairs, by link graph, in order. Vertex ids must be valid. Each process scores a part of them.
    pub fn scores(&mut self, whole: &mut dyn Session, pairs: &[Vec<(u32, u32)>]) -> Result<Vec<Vec<f32>>> {
        let own: Vec<&[(u32, u32)]> = pairs.iter().map(|pairs| &pairs[whole.own_part(pairs.len())]).collect();
        let scores = score_pairs(&mut self.scorer, &own, &self.rows)?;
        scores.into_iter().map(|scores| whole.all_rows(scores)).collect()
    }

    /// The rows that can take the place of the ends of links, for each link graph.
    pub fn candidates(&self) -> &[[Candidates; 2]] {
        &self.candidates
    }
}

impl std::fmt::Debug for LinkMeasures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LinkMeasures({} graphs)", self.rows.len())
    }
}

/// Pairs scored per graph and batch.
const PAIRS: usize = 1 << 20;

/// Scores any number of pairs, in order. `rows` are those at the sources and destinations of each graph.
fn score_pairs(scorer: &mut Scorer, pairs: &[&[(u32, u32)]], rows: &[(usize, usize)]) -> Result<Vec<Vec<f32>>> {
    let mut scores: Vec<Vec<f32>> = pairs.iter().map(|pairs| Vec::with_capacity(pairs.len())).collect();
    let mut first = 0;
    while pairs.iter().any(|pairs| pairs.len() > first) {
        let now = pairs.iter().map(|pairs| &pairs[first.min(pairs.len())..(first + PAIRS).min(pairs.len())]);
        let sets: Vec<(Pairs, Vec<u32>)> = now.zip(rows).map(|(pairs, rows)| by_destination(pairs, rows.1)).collect();
        let named: Vec<(usize, &Pairs)> = sets.iter().map(|(pairs, _)| pairs).enumerate().collect();
        scorer.score(&named)?;
        for (graph, (pairs, place)) in sets.iter().enumerate().filter(|(_, (pairs, _))| !pairs.src.is_empty()) {
            let own = &scorer.scores(graph)?[..pairs.src.len()];
            scores[graph].extend(place.iter().map(|&place| own[place as usize]));
        }
        first += PAIRS;
    }
    Ok(scores)
}

/// Sorts pairs by destination; also returns the position of each pair.
fn by_destination(pairs: &[(u32, u32)], num_dst: usize) -> (Pairs, Vec<u32>) {
    if pairs.is_empty() {
        return (Pairs::default(), vec![]);
    }
    let mut next = vec![0u64; num_dst + 1];
    pairs.iter().for_each(|&(_, dst)| next[dst as usize + 1] += 1);
    for dst in 0..num_dst {
        next[dst + 1] += next[dst];
    }
    let indptr = next.clone();
    let mut src = vec![0; pairs.len()];
    let place = pairs.iter().map(|&(from, to)| {
        let slot = &mut next[to as usize];
        src[*slot as usize] = from;
        *slot += 1;
        (*slot - 1) as u32
    });
    let place = place.collect();
    (Pairs { indptr, src }, place)
}
