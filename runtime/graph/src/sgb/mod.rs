//! Semantic graph build (SGB): from relations and metapaths to [`SemanticGraph`]s.
//!
//! A semantic graph leads from the start vertices of its path (sources) to the end vertices (destinations); the graph
//! of a single forward step is the relation itself. The graph of a metapath is a product of adjacency matrices,
//! computed row by row (Gustavson): for each destination the path is walked backwards, one vertex set per step, so that
//! no intermediate product is stored unless the plan finds that storing it saves work. If memory allows, rows are
//! collected in one pass and concatenated; otherwise they are counted, then filled. Allocated are the result (twice for
//! a moment when it is concatenated), one set per thread and the stored intermediates, all within the budget.
//!
//! Edge weights do not affect metapaths. Metapath graphs are neither sampled nor lazy.

pub mod cache;
mod edge_list;
mod error;
mod instances;
mod metapath;
mod middle_vertex;
mod part;
mod plan;
mod pool;
mod sets;
mod sums;
mod walk;

use std::sync::{Arc, Mutex, OnceLock};

use hgnnc_dataset::dataset::{Dataset, Step};

use crate::csr::{Adjacency, NO_ORIGINAL, SemanticGraph, csc_of, rows_of};
use crate::degrees::ClassInfo;
use crate::shared::Shared;
use crate::transpose::transpose;

pub use self::cache::{Entry, EntryContents, EntryGraph, EntryRows, GraphCache, Key as CacheKey};
pub use self::edge_list::EdgeList;
pub use self::error::{SgbError, show_bytes};
pub use self::instances::{InstanceCounts, Instances};
pub(crate) use self::instances::{edges_of_step, latest_times};
pub use self::metapath::Origin;
pub use self::middle_vertex::Middle;
use self::part::EdgesAt;
pub use self::part::{GraphPart, Loops};
use self::plan::Plan;

/// How a relation becomes a semantic graph. Default: forward, duplicates kept, no self loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelationOptions {
    /// Swap sources and destinations.
    pub reverse: bool,
    /// Merge equal edges: weights are added; `original` is the first one's.
    pub dedup: bool,
    /// Add the edge (v, v), of weight 1, where it is missing. Errors if the ends are different vertex types.
    pub self_loops: bool,
}

/// How a metapath becomes a semantic graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetapathOptions {
    /// Store the number of path instances of each pair; without it the graph only says which pairs are reachable.
    pub counted: bool,
    /// Add the pair (v, v), counted once, where it is missing. Errors if the ends are different vertex types.
    pub self_loops: bool,
    /// Largest size in bytes of the result ([`SemanticGraph::bytes`]). Each stored intermediate and the bitmap rows of
    /// each matrix may take a quarter of it.
    pub memory_budget: u64,
}

impl MetapathOptions {
    /// 4 GiB: about 350 million pairs, or 500 million in a symmetric graph.
    pub const DEFAULT_MEMORY_BUDGET: u64 = 4 << 30;
}

impl Default for MetapathOptions {
    fn default() -> MetapathOptions {
        MetapathOptions { counted: false, self_loops: false, memory_budget: Self::DEFAULT_MEMORY_BUDGET }
    }
}

/// Estimated cost of a metapath graph, without building it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Vertices of the type at which the metapath starts.
    pub rows: usize,
    /// Vertices of the type at which it ends.
    pub cols: usize,
    /// Path instances, exact (saturated at `u128::MAX`).
    pub instances: u128,
    /// Upper bound on the distinct pairs.
    pub max_pairs: u64,
    /// Bytes of the uncounted graph if it had `max_pairs` pairs.
    pub max_bytes: u64,
    /// Approximate number of edges that one pass touches.
    pub work: f64,
}

/// Exact size of a metapath graph.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MetapathStats {
    /// Vertices of the type at which the metapath starts.
    pub rows: usize,
    /// Vertices of the type at which it ends.
    pub cols: usize,
    /// Distinct (start, end) pairs, those with start = end included.
    pub pairs: u64,
    /// Pairs with start = end; 0 where the ends are different vertex types.
    pub self_pairs: u64,
    /// Path instances (saturated at `u128::MAX`).
    #[serde(serialize_with = "path_count")]
    pub instances: u128,
    /// Largest number of distinct end vertices of one start vertex.
    pub max_degree: u64,
    /// Degree classes of the start vertices, by distinct end vertices.
    pub out_classes: Vec<ClassInfo>,
    /// Degree classes of the end vertices, by distinct start vertices.
    pub in_classes: Vec<ClassInfo>,
}

/// A sparse matrix in CSR form, the operand of a walk. Columns ascend within a row; duplicates may occur.
#[derive(Debug)]
pub(crate) struct PathMatrix {
    indptr: Shared<u64>,
    cols: Shared<u32>,
    /// Path instances of each entry of a product; `None`: 1 each.
    counts: Option<Vec<u64>>,
    num_cols: usize,
    /// Whether no row has a column twice.
    distinct: bool,
}

impl PathMatrix {
    fn num_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.indptr[row] as usize..self.indptr[row + 1] as usize
    }

    fn row(&self, row: usize) -> &[u32] {
        &self.cols[self.range(row)]
    }
}

/// Builds semantic graphs of one dataset. The adjacency of a relation is built on first use and kept.
pub struct SemanticGraphs<'a> {
    dataset: &'a Dataset,
    /// Per relation: adjacency by source, and by destination.
    adjacency: Vec<[OnceLock<Arc<PathMatrix>>; 2]>,
    cache: Option<GraphCache>,
    /// Per relation: hashes of its sources and destinations.
    contents: Vec<OnceLock<[u128; 2]>>,
    /// Per relation: whether it is symmetric.
    symmetric: Vec<OnceLock<bool>>,
    /// The edges that were read of relations at some of their vertices.
    edges_at: Mutex<Vec<Arc<EdgesAt>>>,
}

impl<'a> SemanticGraphs<'a> {
    /// A builder for `dataset`, without adjacency yet.
    pub fn new(dataset: &'a Dataset) -> SemanticGraphs<'a> {
        let adjacency = dataset.relations.iter().map(|_| Default::default()).collect();
        let contents = dataset.relations.iter().map(|_| OnceLock::new()).collect();
        let symmetric = dataset.relations.iter().map(|_| OnceLock::new()).collect();
        SemanticGraphs { dataset, adjacency, cache: None, contents, symmetric, edges_at: Mutex::default() }
    }

    /// The dataset.
    pub fn dataset(&self) -> &'a Dataset {
        self.dataset
    }

    /// Looks metapaths up in `cache` before building them, and stores new ones there if that pays.
    pub fn with_cache(mut self, cache: Option<GraphCache>) -> SemanticGraphs<'a> {
        self.cache = cache;
        self
    }

    /// The graph of a relation, named like it (reversed: with `<` in front). Edges keep weight and `original`.
    ///
    /// Errors for a relation that does not exist, self loops between different vertex types, and too many edges.
    pub fn relation(&self, relation: usize, options: RelationOptions) -> Result<SemanticGraph, SgbError> {
        let name = self.dataset.relations.get(relation).map_or("", |r| &r.name);
        let graph = if options.reverse { format!("<{name}") } else { name.to_string() };
        let (src_type, dst_type) =
            self.endpoints(&graph, &[Step { relation, reverse: options.reverse }], options.self_loops)?;
        let data = &self.dataset.relations[relation];
        let (mut src, mut dst) = (&data.src_ids[..], &data.dst_ids[..]);
        if options.reverse {
            std::mem::swap(&mut src, &mut dst);
        }
        let (num_src, num_dst) = (self.count(src_type), self.count(dst_type));
        let num_file_edges = src.len();
        let (mut with_loops_src, mut with_loops_dst);
        if options.self_loops {
            let mut missing = vec![true; num_src];
            for (&s, _) in src.iter().zip(dst).filter(|(s, d)| s == d) {
                missing[s as usize] = false;
            }
            let loops = || missing.iter().enumerate().filter(|(_, m)| **m).map(|(v, _)| v as u32);
            (with_loops_src, with_loops_dst) = (src.to_vec(), dst.to_vec());
            with_loops_src.extend(loops());
            with_loops_dst.extend(loops());
            (src, dst) = (&with_loops_src, &with_loops_dst);
        }
        if src.len() >= NO_ORIGINAL as usize {
            return Err(SgbError::TooManyEdges { graph, edges: src.len() as u64 });
        }
        let (mut csc, mut original) = csc_of(num_dst, src, dst);
        let weight_of = |&i: &u32| data.weight.as_ref().and_then(|w| w.get(i as usize)).copied().unwrap_or(1.0);
        let mut weight: Option<Vec<f32>> = data.weight.as_ref().map(|_| original.iter().map(weight_of).collect());
        if options.dedup {
            dedup(&mut csc, &mut original, weight.as_mut());
        }
        for i in &mut original {
            if *i as usize >= num_file_edges {
                *i = NO_ORIGINAL;
            }
        }
        let csr = transpose(&csc, num_src);
        Ok(SemanticGraph { name: graph, num_src, num_dst, csc, csr, counts: None, weight, original: Some(original) })
    }

    /// Upper bound on the cost of a metapath graph, from path counts; takes time in the edges of its relations.
    ///
    /// Errors when the steps do not join.
    pub fn estimate(&self, steps: &[Step]) -> Result<Estimate, SgbError> {
        let (src_type, dst_type) = self.endpoints("", steps, false)?;
        let (rows, cols) = (self.count(src_type), self.count(dst_type));
        let chain: Vec<Arc<PathMatrix>> = steps.iter().map(|&s| self.step(s)).collect();
        let instances = plan::count_paths(&chain);
        let plan = Plan::new(chain, MetapathOptions::DEFAULT_MEMORY_BUDGET / 4, false);
        let max_bytes = graph_bytes(rows, cols, plan.max_pairs, false, self.is_symmetric_path(steps));
        Ok(Estimate { rows, cols, instances, max_pairs: plan.max_pairs, max_bytes, work: plan.work })
    }

    /// Exact size of a metapath graph, counted row by row without building it.
    ///
    /// Errors when the steps do not join.
    pub fn stats(&self, steps: &[Step]) -> Result<MetapathStats, SgbError> {
        let (src_type, dst_type) = self.endpoints("", steps, false)?;
        let chain: Vec<Arc<PathMatrix>> = steps.iter().map(|&s| self.step(s)).collect();
        let instances = plan::count_paths(&chain);
        let plan = Plan::new(chain, MetapathOptions::DEFAULT_MEMORY_BUDGET / 4, false).store();
        let size = walk::Rows::new(&plan.segments, false, MetapathOptions::DEFAULT_MEMORY_BUDGET / 4).measure();
        Ok(MetapathStats {
            rows: self.count(src_type),
            cols: self.count(dst_type),
            pairs: size.pairs,
            self_pairs: if src_type == dst_type { size.self_pairs } else { 0 },
            instances,
            max_degree: size.of_rows.max_degree(),
            out_classes: size.of_rows.classes(),
            in_classes: size.of_cols.classes(),
        })
    }

    /// The vertex types at which `steps` start and end; checks that the steps join.
    fn endpoints(&self, graph: &str, steps: &[Step], self_loops: bool) -> Result<(usize, usize), SgbError> {
        let relations = self.dataset.relations.len();
        if let Some(step) = steps.iter().find(|s| s.relation >= relations) {
            return Err(SgbError::NoSuchRelation { graph: graph.into(), relation: step.relation, relations });
        }
        let name = |ty: usize| self.dataset.vertex_types[ty].name.clone();
        let mut ends: Option<(usize, usize)> = None;
        for (i, &step) in steps.iter().enumerate() {
            let (from, to) = self.dataset.step_ends(step);
            match ends {
                Some((_, before)) if before != from => {
                    return Err(SgbError::StepsDoNotJoin {
                        graph: graph.into(),
                        position: i + 1,
                        starts: name(from),
                        ends: name(before),
                    });
                }
                _ => ends = Some((ends.map_or(from, |e| e.0), to)),
            }
        }
        let (src, dst) = ends.ok_or_else(|| SgbError::NoSteps { graph: graph.into() })?;
        if self_loops && src != dst {
            return Err(SgbError::BipartiteSelfLoops { graph: graph.into(), src: name(src), dst: name(dst) });
        }
        Ok((src, dst))
    }

    fn count(&self, vertex_type: usize) -> usize {
        self.dataset.vertex_types[vertex_type].count
    }

    /// PathMatrix from the start of `step` to its end.
    fn step(&self, step: Step) -> Arc<PathMatrix> {
        let made = self.adjacency[step.relation][usize::from(step.reverse)].get_or_init(|| {
            let relation = &self.dataset.relations[step.relation];
            let (from, to) = self.dataset.step_ends(step);
            let (rows, cols) = if step.reverse {
                (&relation.dst_ids, &relation.src_ids)
            } else {
                (&relation.src_ids, &relation.dst_ids)
            };
            let (csc, _) = csc_of(self.count(from), cols, rows);
            let (indptr, cols, num_cols) = (csc.indptr, csc.indices, self.count(to));
            let row = |ends: &[u64]| cols[ends[0] as usize..ends[1] as usize].windows(2).all(|pair| pair[0] < pair[1]);
            let distinct = indptr.windows(2).all(row);
            Arc::new(PathMatrix { indptr, cols, counts: None, num_cols, distinct })
        });
        Arc::clone(made)
    }
}

/// Bytes of a semantic graph: row offsets of both directions; source, destination and edge id of each pair; and its
/// count. A symmetric graph stores offsets and neighbours once.
fn graph_bytes(num_src: usize, num_dst: usize, pairs: u64, counted: bool, symmetric: bool) -> u64 {
    let (rows, ends) = if symmetric { (num_dst + 1, 1) } else { (num_src + num_dst + 2, 2) };
    (8 * rows as u64).saturating_add(pairs.saturating_mul(4 * (ends + 1 + u64::from(counted))))
}

/// Merges equal edges, which are adjacent in the CSC order.
fn dedup(csc: &mut Adjacency, original: &mut Vec<u32>, mut weight: Option<&mut Vec<f32>>) {
    let dst = rows_of(&csc.indptr);
    let mut kept = 0;
    let mut degree = vec![0u64; csc.indptr.len()];
    let src = csc.indices.make_mut();
    for e in 0..dst.len() {
        let same = kept > 0 && e > 0 && dst[e] == dst[e - 1] && src[e] == src[kept - 1];
        if same {
            if let Some(w) = weight.as_deref_mut() {
                w[kept - 1] += w[e];
            }
            continue;
        }
        src[kept] = src[e];
        original[kept] = original[e];
        if let Some(w) = weight.as_deref_mut() {
            w[kept] = w[e];
        }
        degree[dst[e] as usize + 1] += 1;
        kept += 1;
    }
    src.truncate(kept);
    original.truncate(kept);
    if let Some(w) = weight {
        w.truncate(kept);
    }
    for row in 1..degree.len() {
        degree[row] += degree[row - 1];
    }
    csc.indptr = degree.into();
}

/// `serde_json` without `arbitrary_precision` has no integers beyond 64 bits.
pub(crate) fn path_count<S: serde::Serializer>(instances: &u128, to: S) -> Result<S::Ok, S::Error> {
    match u64::try_from(*instances) {
        Ok(n) => to.serialize_u64(n),
        Err(_) => to.serialize_f64(*instances as f64),
    }
}
