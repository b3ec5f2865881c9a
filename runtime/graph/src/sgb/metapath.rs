//! The graph of a metapath, read from the cache or built.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::cache::{Incoming, Key, Stored};
use super::plan::Plan;
use super::walk::{Mode, Rows};
use super::{MetapathOptions, PathMatrix, SemanticGraphs, SgbError, Step, graph_bytes};
use crate::csr::{Adjacency, NO_ORIGINAL, SemanticGraph};
use crate::transpose::{transpose, transpose_cliques, transpose_symmetric};

/// Above this many touched edges a graph is refused by its upper bound, without an exact count.
const CHEAP_WORK: f64 = 2e10;

/// How a semantic graph was obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// It was read from the cache; otherwise it was built.
    pub cached: bool,
    /// It was built and then stored in the cache.
    pub stored: bool,
    /// Time to read or build it, including the transpose and storing it.
    pub took: Duration,
}

impl SemanticGraphs<'_> {
    /// The graph of a metapath: one edge per distinct (start, end) pair, start = source.
    ///
    /// Errors when the steps do not join, on self loops between different vertex types, when the result would be over
    /// the memory budget or 2^32 - 1 edges, and when a counted pair needs more than 64 bits.
    pub fn metapath(&self, name: &str, steps: &[Step], options: MetapathOptions) -> Result<SemanticGraph, SgbError> {
        self.metapath_from(name, steps, options).map(|(graph, _)| graph)
    }

    /// As [`metapath`](Self::metapath), with the origin of the graph.
    ///
    /// Errors as [`metapath`](Self::metapath) does.
    pub fn metapath_from(
        &self,
        name: &str,
        steps: &[Step],
        options: MetapathOptions,
    ) -> Result<(SemanticGraph, Origin), SgbError> {
        let started = Instant::now();
        let (src_type, dst_type) = self.endpoints(name, steps, options.self_loops)?;
        let (num_src, num_dst) = (self.count(src_type), self.count(dst_type));
        let asked = Asked { name, steps, options, num_src, num_dst, symmetric: self.is_symmetric_path(steps) };
        let disjoint_cliques = asked.symmetric && self.joins_cliques(steps);
        let transposed = |csc: &Adjacency| match asked.symmetric {
            true => {
                disjoint_cliques.then(|| transpose_cliques(csc)).flatten().unwrap_or_else(|| transpose_symmetric(csc))
            }
            false => transpose(csc, num_src),
        };
        let mut origin = Origin::default();
        let found = self.look_up(&asked)?;
        let (key, incoming) = (found.key, found.incoming.map(|(csc, counts)| (transposed(&csc), csc, counts)));
        // Rejects a stored graph that should be symmetric and is not: kernels index by edge ids without bounds checks.
        let incoming = incoming.filter(|(csr, csc, _)| csr.eids.iter().all(|&e| (e as usize) < csc.indices.len()));
        let (csr, csc, counts) = match incoming {
            Some(cached) => {
                origin.cached = true;
                cached
            }
            None => {
                let building = Instant::now();
                let (csc, counts) = self.multiply(&asked)?;
                if let (Some(key), Some(cache)) = (key, &self.cache) {
                    let graph = Stored { num_src, indptr: &csc.indptr, src: &csc.indices, counts: counts.as_deref() };
                    origin.stored = cache.keep(key, &self.label(steps), &graph, building.elapsed());
                }
                (transposed(&csc), csc, counts)
            }
        };
        let graph =
            SemanticGraph { name: name.into(), num_src, num_dst, csc, csr, counts, weight: None, original: None };
        origin.took = started.elapsed();
        Ok((graph, origin))
    }

    /// The cache's entry of a metapath. An entry obeys the budget by its exact pairs; a build checks an upper bound
    /// first, so an entry may be found that would not have been built within this budget.
    fn look_up(&self, asked: &Asked<'_>) -> Result<Found, SgbError> {
        let Some(cache) = &self.cache else { return Ok(Found::default()) };
        let key = Key::new(self, asked.steps, asked.options);
        let ends = (asked.num_src, asked.num_dst);
        match cache.find(key, ends, asked.options.counted, |pairs| asked.bytes(pairs) <= asked.options.memory_budget) {
            Ok(incoming) => Ok(Found { key: Some(key), incoming }),
            Err(pairs) => Err(asked.over(pairs, true)),
        }
    }

    /// Multiplies the adjacency matrices of a metapath; rows are destinations.
    fn multiply(&self, asked: &Asked<'_>) -> Result<Incoming, SgbError> {
        let options = asked.options;
        // Rows are destinations, so that the fill writes the CSC: walk the path backwards.
        let steps: Vec<Step> = asked.steps.iter().rev().map(|step| step.flipped()).collect();
        let chain: Vec<Arc<PathMatrix>> = steps.iter().map(|&step| self.step(step)).collect();
        let plan = Plan::new(chain, options.memory_budget / 4, options.counted);
        let loops = if options.self_loops { asked.num_dst as u64 } else { 0 };
        let max_pairs = plan.max_pairs.saturating_add(loops);
        let fits = |pairs: u64| asked.bytes(pairs) <= options.memory_budget;
        // The row offsets are the only part with a size independent of the pairs.
        if !fits(0) || (!fits(max_pairs) && plan.work > CHEAP_WORK) {
            return Err(asked.over(max_pairs, false));
        }
        let mode = if options.counted { Mode::Counted } else { Mode::Reachable };
        let plan = plan.store();
        let rows = Rows::new(&plan.segments, options.self_loops, options.memory_budget / 4);
        // Count first, then write entries to their final position; except where walking costs more than copying, if the
        // second copy fits the budget of intermediates.
        let convert = |count: u64| count as f32;
        let walks = if options.counted { plan.work } else { plan.work / 2.0 };
        let once = walks > max_pairs as f64 && asked.bytes(max_pairs) <= options.memory_budget / 4;
        let collected = once.then(|| rows.collect(mode, convert));
        let (indptr, filled) = match collected {
            Some((indptr, filled)) => (indptr, Some(filled)),
            None => (rows.count(), None),
        };
        let pairs = indptr[asked.num_dst];
        if !fits(pairs) {
            return Err(asked.over(pairs, true));
        }
        if pairs >= u64::from(NO_ORIGINAL) {
            return Err(SgbError::TooManyEdges { graph: asked.name.into(), edges: pairs });
        }
        let filled = filled.unwrap_or_else(|| rows.fill(&indptr, mode, convert));
        if filled.overflow {
            return Err(SgbError::CountOverflow { graph: asked.name.into() });
        }
        Ok((Adjacency { indptr: indptr.into(), indices: filled.cols.into(), eids: vec![].into() }, filled.counts))
    }

    /// Whether the graph is symmetric, with equal path counts in both directions: each step is undone by its mirror
    /// step, or both follow one symmetric relation.
    pub(super) fn is_symmetric_path(&self, steps: &[Step]) -> bool {
        let is_back = |(&step, &back): (&Step, &Step)| {
            step == back.flipped() || (step == back && self.is_symmetric(step.relation))
        };
        steps.iter().zip(steps.iter().rev()).all(is_back)
    }

    /// Whether a symmetric metapath yields a disjoint union of cliques with self loops: its first half reaches one
    /// vertex at most, so the path joins exactly the vertices that reach the same one.
    fn joins_cliques(&self, steps: &[Step]) -> bool {
        let (first, second) = steps.split_at(steps.len() / 2);
        let leads_to_one = |&step: &Step| self.step(step).indptr.windows(2).all(|row| row[1] - row[0] <= 1);
        first.len() == second.len()
            && first.iter().zip(second.iter().rev()).all(|(&step, &back)| step == back.flipped())
            && first.iter().all(leads_to_one)
    }

    /// Whether a relation is symmetric. Only relations without multiple edges qualify.
    fn is_symmetric(&self, relation: usize) -> bool {
        let data = &self.dataset.relations[relation];
        data.src == data.dst
            && *self.symmetric[relation].get_or_init(|| {
                let forward = self.step(Step::forward(relation));
                let has_back = |row: usize| {
                    forward.row(row).iter().all(|&end| forward.row(end as usize).binary_search(&(row as u32)).is_ok())
                };
                forward.distinct && (0..forward.num_rows()).into_par_iter().with_min_len(1 << 10).all(has_back)
            })
    }

    /// The steps in the notation of `dataset.toml`, stored for inspection of the cache.
    fn label(&self, steps: &[Step]) -> String {
        let step = |step: &Step| {
            let direction = if step.reverse { '<' } else { '>' };
            format!("{direction}{}", self.dataset.relations[step.relation].name)
        };
        steps.iter().map(step).collect::<Vec<_>>().join(" ")
    }
}

/// Result of a cache look-up of a metapath.
#[derive(Default)]
struct Found {
    /// The key, if there is a cache.
    key: Option<Key>,
    incoming: Option<Incoming>,
}

/// A request to build a metapath graph.
struct Asked<'a> {
    name: &'a str,
    steps: &'a [Step],
    options: MetapathOptions,
    num_src: usize,
    num_dst: usize,
    symmetric: bool,
}

impl Asked<'_> {
    /// Bytes of the graph with `pairs` pairs.
    fn bytes(&self, pairs: u64) -> u64 {
        graph_bytes(self.num_src, self.num_dst, pairs, self.options.counted, self.symmetric)
    }

    fn over(&self, pairs: u64, exact: bool) -> SgbError {
        let (bytes, budget) = (self.bytes(pairs), self.options.memory_budget);
        SgbError::OverBudget { graph: self.name.into(), pairs, exact, bytes, budget }
    }
}
