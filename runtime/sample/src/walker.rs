//! Fast random walks.
//!
//! A walk has two dependent memory accesses per step: the row offset of the vertex, and the source of the chosen edge.
//! Walks of several seeds, about [`GROUP`] in total, therefore proceed together, step by step, in two passes: one
//! chooses edges and prefetches their sources, the other reads these and prefetches the row offsets of the next step.

use hgnnc_ir::random::{bits_from, low_round};

use crate::graph::{GraphError, SampleGraph};
use crate::id_map::IdMap;
use crate::plan::{BatchKey, SampleError};
use crate::prefetch::prefetch;
use crate::walk::{WalkError, WalkPlan, Walks};

/// Approximate number of walks of a group. Their cache lines fit in the first-level cache.
const GROUP: usize = 256;
/// Marks a walk that has ended early, in place of a vertex or an edge id, which are all smaller.
const ENDED: u32 = u32::MAX;

/// Runs walks; reuses its allocations.
#[derive(Default)]
pub(crate) struct Steps {
    /// First round of the random numbers, by step and walk. `[steps][walks]`
    first: Vec<Vec<u32>>,
    /// Current vertex of each walk of a group, alternating with the edge it takes.
    at: Vec<u32>,
    /// Visit counts of the end vertices of one seed. `[distinct ends]`
    counted: Vec<(u32, u32)>,
}

/// Parameters common to the walks of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Walked<'w> {
    pub graph: &'w SampleGraph<'w>,
    pub metapath: &'w [usize],
    /// Random key of each step.
    pub keys: &'w [u64],
    /// Number of walks from each seed, at least 1.
    pub walks: u32,
    pub top_k: u32,
}

/// Output arrays, which rows are appended to.
pub(crate) struct Endpoints<'e> {
    pub vertices: &'e mut Vec<u32>,
    pub visits: &'e mut Vec<u32>,
    pub indptr: &'e mut Vec<u64>,
}

impl Steps {
    /// Walks from `seeds` and appends the end vertices (not compact ids) and their visits; `arrived` is called with the
    /// end vertices of each group.
    pub fn walk(
        &mut self,
        walked: Walked<'_>,
        seeds: &[u32],
        ends: Endpoints<'_>,
        mut arrived: impl FnMut(&mut [u32]),
    ) {
        self.first.resize_with(walked.keys.len(), Vec::new);
        for (first, &key) in self.first.iter_mut().zip(walked.keys) {
            first.clear();
            first.extend((0..walked.walks).map(|walk| low_round(key, walk)));
        }
        let Endpoints { vertices, visits, indptr } = ends;
        for group in seeds.chunks((GROUP / walked.walks as usize).max(1)) {
            self.go(walked, group);
            let begin = vertices.len();
            self.count(walked, vertices, visits, indptr);
            arrived(&mut vertices[begin..]);
        }
    }

    /// Runs the walks of a group of seeds.
    fn go(&mut self, walked: Walked<'_>, seeds: &[u32]) {
        let (graph, walks) = (walked.graph, walked.walks as usize);
        let row_of = |step: usize| walked.metapath.get(step).map(|&r| graph.rows(r));
        if let Some(rows) = row_of(0) {
            seeds.iter().for_each(|&seed| rows.prefetch(seed));
        }
        self.at.clear();
        self.at.extend(seeds.iter().flat_map(|&seed| std::iter::repeat_n(seed, walks)));
        for (step, (&r, &key)) in walked.metapath.iter().zip(walked.keys).enumerate() {
            let (rows, sources) = (graph.rows(r), graph.relations()[r].sources());
            let first = &self.first[step][..];
            for (at, &seed) in self.at.chunks_exact_mut(walks).zip(seeds) {
                for (at, &first) in at.iter_mut().zip(first) {
                    let (start, degree) = if *at == ENDED { (0, 0) } else { rows.of(*at) };
                    let place = (u64::from(bits_from(first, key, seed)) * u64::from(degree)) >> 32;
                    *at = if degree == 0 { ENDED } else { start + place as u32 };
                    prefetch(sources.as_ptr(), *at as usize);
                }
            }
            let next = row_of(step + 1);
            for at in &mut self.at {
                *at = sources.get(*at as usize).copied().unwrap_or(ENDED);
                if let Some(rows) = &next {
                    rows.prefetch(*at);
                }
            }
        }
    }

    /// Appends the rows of a group of seeds after their walks.
    fn count(&mut self, walked: Walked<'_>, vertices: &mut Vec<u32>, visits: &mut Vec<u32>, indptr: &mut Vec<u64>) {
        let kept = walked.top_k as usize;
        for ends in self.at.chunks_exact_mut(walked.walks as usize) {
            ends.sort_unstable();
            self.counted.clear();
            for same in ends.chunk_by(|a, b| a == b).filter(|same| same[0] != ENDED) {
                self.counted.push((same[0], same.len() as u32));
            }
            if self.counted.len() > kept {
                if kept > 0 {
                    self.counted.select_nth_unstable_by_key(kept - 1, |&(v, n)| (std::cmp::Reverse(n), v));
                }
                self.counted.truncate(kept);
                self.counted.sort_unstable();
            }
            vertices.extend(self.counted.iter().map(|&(vertex, _)| vertex));
            visits.extend(self.counted.iter().map(|&(_, visits)| visits));
            indptr.push(vertices.len() as u64);
        }
    }
}

/// Assigns compact ids to vertices, prefetching their words first.
pub(crate) fn label(table: &mut IdMap, vertices: &mut [u32], known: &mut Vec<u32>) {
    vertices.iter().for_each(|&vertex| prefetch(table.words().as_ptr(), vertex as usize));
    table.relabel(vertices, known);
}

/// Runs walks on one graph by one plan, for one batch after the other; each thread has its own walker. Its tables take
/// four bytes per vertex of the types of seeds and end vertices.
pub struct Walker<'g> {
    graph: &'g SampleGraph<'g>,
    plan: WalkPlan,
    /// Positions of the types of seeds and end vertices.
    ends: (usize, usize),
    /// Compact ids of the end vertices.
    table: IdMap,
    /// Detects duplicate seeds, if their type is not that of the end vertices.
    seen: Option<IdMap>,
    steps: Steps,
}

impl<'g> Walker<'g> {
    /// Errors when the metapath is not one of the graph.
    pub fn new(graph: &'g SampleGraph<'g>, plan: WalkPlan) -> Result<Walker<'g>, WalkerError> {
        let ends = plan.endpoints(graph)?;
        let table = IdMap::new(graph.counts()[ends.1])?;
        let seen = if ends.0 == ends.1 { None } else { Some(IdMap::new(graph.counts()[ends.0])?) };
        Ok(Walker { graph, plan, ends, table, seen, steps: Steps::default() })
    }

    /// Walks from `seeds`, without duplicates, into `walks`, reusing its memory. The result is bit-equal to
    /// [`naive::walk`](crate::naive::walk).
    ///
    /// Errors as [`WalkError`] describes; `walks` is invalid then.
    pub fn walk(&mut self, seeds: &[u32], key: BatchKey, walks: &mut Walks) -> Result<(), WalkError> {
        walks.start(self.graph, self.ends, seeds)?;
        self.table.forget();
        let table = match &mut self.seen {
            Some(seen) => {
                seen.forget();
                seen
            }
            None => &mut self.table,
        };
        for (id, &vertex) in seeds.iter().enumerate() {
            if !table.id(vertex, id as u32).1 {
                return Err(SampleError::DuplicateSeed { vertex_type: self.ends.0, vertex }.into());
            }
        }
        if self.plan.walks == 0 {
            walks.indptr.resize(seeds.len() + 1, 0);
            return Ok(());
        }
        let keys = self.plan.keys(key);
        let WalkPlan { metapath, walks: number, top_k } = &self.plan;
        let walked = Walked { graph: self.graph, metapath, keys: &keys, walks: *number, top_k: *top_k };
        let Walks { vertices, indptr, indices, visits } = walks;
        let ends = Endpoints { vertices: indices, visits, indptr };
        self.steps.walk(walked, seeds, ends, |ends| label(&mut self.table, ends, vertices));
        Ok(())
    }
}

/// Why a walker could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkerError {
    /// The metapath does not fit the graph.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// Memory for the tables could not be mapped.
    #[error(transparent)]
    Graph(#[from] GraphError),
}
