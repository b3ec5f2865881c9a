//! Plans the multiplication of the adjacency matrices of a metapath.
//!
//! Walking the whole chain row by row is the left-associated product without its intermediates: a row of `A·B` is used
//! once, in that row. Storing a product `B·C` further right can pay, because many rows pass through the same vertices.
//! The plan splits the chain into segments: the first is one step, each other one a step or a stored product (planned
//! recursively). Cost is the number of matrix entries touched, estimated by path counts:
//!
//! - at boundary m, vertex v is visited by at most `min(paths arriving at v, rows)` rows, and
//! - a row of segment m..j has at most `min(paths leaving v, columns reached)` entries,
//!
//! so `Σ_v visits(v) · entries(v)` bounds the work of the segment, and `Σ_v entries(v)` its size when stored. The
//! vectors of path counts take time in the number of edges, never in the size of a product.

use std::ops::Range;
use std::sync::Arc;

use super::PathMatrix;
use super::sets::bit_cost;
use super::walk::{Mode, Rows};

/// Longer chains are walked step by step: the tables of path counts grow with the square of the length.
pub(super) const MAX_PLANNED_STEPS: usize = 8;

/// Storing an entry (two passes, memory) costs about as much as touching this many.
const STORE_COST: f64 = 4.0;

/// How to compute the rows of a product.
pub(super) struct Plan {
    /// The matrices to walk along, in order.
    pub segments: Vec<Arc<PathMatrix>>,
    /// Upper bound on the distinct pairs.
    pub max_pairs: u64,
    /// Approximate number of entries that one pass over all rows touches.
    pub work: f64,
    /// The best splits of the chain; `None` for a chain that is not split.
    costs: Option<Costs>,
    counted: bool,
    store_budget: u64,
}

impl Plan {
    /// Plans the product of `chain` (not empty), with path counts if `counted`, storing intermediates of at most
    /// `store_budget` bytes each. Only estimates: until [`store`](Self::store) no product is computed.
    pub fn new(chain: Vec<Arc<PathMatrix>>, store_budget: u64, counted: bool) -> Plan {
        let k = chain.len();
        if k == 1 || k > MAX_PLANNED_STEPS {
            let (max_pairs, work) = bound(&chain);
            return Plan { segments: chain, max_pairs, work, costs: None, counted, store_budget };
        }
        let tables = Tables::new(&chain, store_budget, counted);
        let costs = Costs::new(&tables);
        let max_pairs = tables.entries(0..k).ceil().min(u64::MAX as f64) as u64;
        Plan { segments: chain, max_pairs, work: costs.walk(0..k), costs: Some(costs), counted, store_budget }
    }

    /// Computes the intermediates that pay and walks along them from now on.
    pub fn store(self) -> Plan {
        match &self.costs {
            Some(costs) => {
                let how = (self.counted, self.store_budget);
                let segments = costs.store(&self.segments, 0..self.segments.len(), how);
                Plan { segments, costs: None, ..self }
            }
            None => self,
        }
    }
}

/// Total number of paths through `chain`, saturated at `u128::MAX`.
pub(super) fn count_paths(chain: &[Arc<PathMatrix>]) -> u128 {
    let Some(last) = chain.last() else { return 0 };
    let mut from = vec![1u128; last.num_cols];
    for step in chain.iter().rev() {
        from = (0..step.num_rows())
            .map(|v| step.row(v).iter().fold(0u128, |sum, &c| sum.saturating_add(from[c as usize])))
            .collect();
    }
    from.iter().fold(0, |sum: u128, &n| sum.saturating_add(n))
}

/// Upper bounds on the pairs and the work of a chain walked step by step.
pub(super) fn bound(chain: &[Arc<PathMatrix>]) -> (u64, f64) {
    let rows = chain[0].num_rows();
    let mut arriving = vec![1f64; rows];
    let mut work = 0.0;
    for step in chain {
        let mut next = vec![0f64; step.num_cols];
        for (v, &n) in arriving.iter().enumerate() {
            for &c in step.row(v) {
                next[c as usize] += n;
            }
            work += n.min(rows as f64) * step.row(v).len() as f64;
        }
        arriving = next;
    }
    let pairs: f64 = arriving.iter().map(|n| n.min(rows as f64)).sum();
    (pairs.ceil().min(u64::MAX as f64) as u64, work)
}

/// Numbers of paths through ranges `i..j` of a chain: upper bounds for estimates, so the precision of `f64` suffices.
struct PathCounts {
    /// `leaving[i][j - i - 1][v]`: paths through `i..j` that leave vertex v of boundary i.
    leaving: Vec<Vec<Vec<f64>>>,
    /// `arriving[i][j - i - 1][v]`: paths through `i..j` that arrive at vertex v of boundary j.
    arriving: Vec<Vec<Vec<f64>>>,
}

impl PathCounts {
    fn new(chain: &[Arc<PathMatrix>]) -> PathCounts {
        let k = chain.len();
        let mut leaving: Vec<Vec<Vec<f64>>> = vec![Vec::new(); k];
        let mut arriving: Vec<Vec<Vec<f64>>> = vec![Vec::new(); k];
        for i in (0..k).rev() {
            let step = &chain[i];
            let degree: Vec<f64> = (0..step.num_rows()).map(|v| step.row(v).len() as f64).collect();
            let further: Vec<Vec<f64>> = leaving.get(i + 1).map_or(Vec::new(), |next| {
                next.iter()
                    .map(|on| {
                        let sum = |v: usize| step.row(v).iter().map(|&c| on[c as usize]).sum();
                        (0..step.num_rows()).map(sum).collect()
                    })
                    .collect()
            });
            leaving[i].push(degree);
            leaving[i].extend(further);
        }
        for i in 0..k {
            let mut at = vec![1f64; chain[i].num_rows()];
            for step in &chain[i..] {
                let mut next = vec![0f64; step.num_cols];
                for (v, &n) in at.iter().enumerate().filter(|(_, n)| **n > 0.0) {
                    for &c in step.row(v) {
                        next[c as usize] += n;
                    }
                }
                arriving[i].push(next.clone());
                at = next;
            }
        }
        PathCounts { leaving, arriving }
    }

    fn leaving(&self, i: usize, j: usize) -> &[f64] {
        &self.leaving[i][j - i - 1]
    }

    fn arriving(&self, i: usize, j: usize) -> &[f64] {
        &self.arriving[i][j - i - 1]
    }

    /// Number of columns that paths through `i..j` reach.
    fn columns(&self, i: usize, j: usize) -> f64 {
        self.arriving(i, j).iter().filter(|n| **n > 0.0).count() as f64
    }

    /// Number of rows from which paths through `i..j` leave.
    fn rows(&self, i: usize, j: usize) -> f64 {
        self.leaving(i, j).iter().filter(|n| **n > 0.0).count() as f64
    }

    /// Upper bound on the distinct pairs of `i..j`.
    fn entries(&self, i: usize, j: usize) -> f64 {
        let (columns, rows) = (self.columns(i, j), self.rows(i, j));
        let by_row: f64 = self.leaving(i, j).iter().map(|n| n.min(columns)).sum();
        let by_column: f64 = self.arriving(i, j).iter().map(|n| n.min(rows)).sum();
        by_row.min(by_column)
    }

    /// Bound on the entries touched when rows that started at `i` go through segment `m..j`, at a cost of at most `row`
    /// entries per row.
    fn segment(&self, i: usize, m: usize, j: usize, row: f64) -> f64 {
        let (rows, columns) = (self.rows(i, m), self.columns(m, j));
        let visits = self.arriving(i, m).iter().map(|n| n.min(rows));
        visits.zip(self.leaving(m, j)).map(|(visits, n)| visits * n.min(columns).min(row)).sum()
    }
}

/// Costs of the splits of a chain, computed once to compare many plans.
pub(super) struct Tables {
    num_steps: usize,
    /// `entries[i][j]`: bound on the entries of `i..j`.
    entries: Vec<Vec<f64>>,
    /// `segment[i][m][j]`: bound on the entries touched when rows that started at `i` go through `m..j`.
    segment: Vec<Vec<Vec<f64>>>,
    entry_bytes: f64,
    store_budget: f64,
}

impl Tables {
    pub fn new(chain: &[Arc<PathMatrix>], store_budget: u64, counted: bool) -> Tables {
        let (k, paths) = (chain.len(), PathCounts::new(chain));
        let part = |i: usize, j: usize| if i < j { paths.entries(i, j) } else { 0.0 };
        let entries = (0..k).map(|i| (0..=k).map(|j| part(i, j)).collect()).collect();
        let segment = |i: usize, m: usize, j: usize| {
            // Without counts, rows with many entries are stored as bitmaps.
            let row = if counted { f64::INFINITY } else { bit_cost(chain[j - 1].num_cols) };
            paths.segment(i, m, j, row)
        };
        let cuts = |i: usize, m: usize| (0..=k).map(|j| if i < m && m < j { segment(i, m, j) } else { 0.0 }).collect();
        let segment = (0..k).map(|i| (0..k).map(|m| cuts(i, m)).collect()).collect();
        let entry_bytes = if counted { 12.0 } else { 4.0 };
        Tables { num_steps: k, entries, segment, entry_bytes, store_budget: store_budget as f64 }
    }

    pub fn entries(&self, part: Range<usize>) -> f64 {
        self.entries[part.start][part.end]
    }

    /// Bound on the bytes of a stored range.
    pub fn bytes(&self, part: Range<usize>) -> f64 {
        self.entries(part) * self.entry_bytes
    }

    /// Cost of computing and storing a range.
    pub fn store_cost(&self, part: Range<usize>, costs: &Costs) -> f64 {
        2.0 * costs.walk(part.clone()) + self.write_cost(part)
    }

    /// Cost of writing the entries of a range.
    pub fn write_cost(&self, part: Range<usize>) -> f64 {
        STORE_COST * self.entries(part)
    }
}

/// The cheapest last split of every range of a chain.
pub(super) struct Costs {
    /// `best[i][j]`: cost of walking `i..j`, and where its last segment starts.
    best: Vec<Vec<(f64, usize)>>,
}

impl Costs {
    pub fn new(tables: &Tables) -> Costs {
        let k = tables.num_steps;
        let mut costs = Costs { best: vec![vec![(f64::INFINITY, 0); k + 1]; k] };
        for len in 1..=k {
            for i in 0..=k - len {
                let j = i + len;
                if len == 1 {
                    costs.best[i][j] = (tables.entries(i..j), i);
                }
                for m in i + 1..j {
                    let stored = if j - m == 1 {
                        0.0
                    } else if tables.bytes(m..j) > tables.store_budget {
                        continue;
                    } else {
                        tables.store_cost(m..j, &costs)
                    };
                    let cost = costs.walk(i..m) + tables.segment[i][m][j] + stored;
                    // Later splits give shorter segments; on a tie the split without a stored product wins.
                    if cost <= costs.walk(i..j) {
                        costs.best[i][j] = (cost, m);
                    }
                }
            }
        }
        costs
    }

    pub fn walk(&self, part: Range<usize>) -> f64 {
        self.best[part.start][part.end].0
    }

    /// The segments of a range of `chain`; computes the products that the plan stores.
    fn store(&self, chain: &[Arc<PathMatrix>], part: Range<usize>, how: (bool, u64)) -> Vec<Arc<PathMatrix>> {
        let mut segments = Vec::new();
        let mut end = part.end;
        while end > part.start {
            let start = self.best[part.start][end].1;
            segments.push(match end - start {
                1 => Arc::clone(&chain[start]),
                _ => Arc::new(product(&self.store(chain, start..end, how), how)),
            });
            end = start;
        }
        segments.reverse();
        segments
    }
}

/// The product of segments. Counts saturate, and products of saturated counts stay saturated.
fn product(segments: &[Arc<PathMatrix>], (counted, budget): (bool, u64)) -> PathMatrix {
    let rows = Rows::new(segments, false, budget);
    let indptr = rows.count();
    let mode = if counted { Mode::Counted } else { Mode::Reachable };
    let filled = rows.fill(&indptr, mode, |count| count);
    let num_cols = segments.last().map_or(0, |s| s.num_cols);
    PathMatrix { indptr: indptr.into(), cols: filled.cols.into(), counts: filled.counts, num_cols, distinct: true }
}
