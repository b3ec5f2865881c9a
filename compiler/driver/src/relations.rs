//! Assigns the relations to the seeds of mini-batches to ranks, where ranks share relations ([`Split::Relations`]).
//!
//! A rank samples the edges of its relations to the seeds and all beneath their sources (the sub-metatree of Heta: Zhong et
//! al. 2024, arXiv 2408.09697, §4, whose weights are static sizes instead). Its load is the expected number of these edges,
//! and the rows of tables that it needs: a rank owns one part of the rows, so the others come from other ranks, and their
//! gradients go back. Relations whose sources have a table in common need many rows twice when they are on two ranks, and
//! once on one. Loads are therefore functions of sets of relations, not sums of weights.
//!
//! The time of a rank is that of its edges, its rows, and the rows that it has for others; the slowest rank decides, and
//! the sum of all among equal ones. Up to [`ALL_WAYS`] relations are tried in all ways (4140 for eight). More of them: the
//! heaviest first to the rank that is best for it, then moves and swaps while they gain.
//!
//! [`Split::Relations`]: crate::Split::Relations

use std::collections::HashMap;

use hgnnc_ir::Dataflow;
use hgnnc_ir::batch::{BatchGraph, BatchLayout, WithinHops};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::training::MiniBatch;
use hgnnc_ir::types::{Graph, Param};

/// Most relations whose ways to be assigned are all tried.
const ALL_WAYS: usize = 8;
/// Most rounds of moves and swaps.
const ROUNDS: usize = 8;
/// Bytes of an element of a row.
const ELEMENT: f64 = 4.0;

/// The work of a rank with some of the relations, expected for a mini-batch.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// Sampled edges: those to the seeds, and all beneath them.
    pub edges: f64,
    /// Bytes of the rows of tables with learned rows that these edges lead to, whichever rank owns them.
    pub row_bytes: f64,
}

/// Seconds of what ranks do with relations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RelationTimes {
    /// Of a sampled edge, with all that is computed for it.
    pub edge_s: f64,
    /// Of a byte between two ranks.
    pub byte_s: f64,
}

impl Default for RelationTimes {
    /// RGCN on the graph of ogbn-mag's size, on one core: 65 ms for a batch of 132 000 edges. 10 Gbit/s.
    fn default() -> Self {
        Self { edge_s: 5e-7, byte_s: 8e-10 }
    }
}

/// The relations of each rank.
#[derive(Clone, PartialEq, Debug)]
pub struct Relations {
    /// By semantic graph of the model: the rank that aggregates its edges to the seeds.
    pub rank_of: Vec<usize>,
    /// The semantic graphs to the seeds, ascending.
    pub graphs: Vec<Graph>,
    /// By rank: its expected work.
    pub loads: Vec<Load>,
}

/// A model on mini-batches whose relations ranks share.
#[derive(Clone, Copy)]
pub struct RelationModel<'a> {
    /// The program of the whole graph.
    pub flow: &'a Dataflow,
    /// Its program of mini-batches.
    pub layout: &'a BatchLayout,
    /// Size and fan-outs of mini-batches.
    pub batch: &'a MiniBatch,
    /// Sizes of the data of `flow`. Without them, all relations weigh the same.
    pub sizes: Option<&'a SizeInfo>,
}

impl RelationModel<'_> {
    /// The semantic graphs to the seeds, ascending.
    pub fn graphs_to_seeds(&self) -> Vec<Graph> {
        let to_seeds = |what: &BatchGraph| match *what {
            BatchGraph::Sampled { graph, hops: 0 } => Some(graph),
            _ => None,
        };
        let mut graphs: Vec<Graph> = self.layout.graphs.iter().filter_map(to_seeds).collect();
        graphs.sort_by_key(|graph| graph.index());
        graphs
    }

    /// The load of a rank that aggregates the edges of these graphs to the seeds, where any neighbour is as likely as any
    /// other one.
    pub fn load(&self, own: &[Graph]) -> Load {
        let (Some(sizes), Some(first)) = (self.sizes, own.first()) else {
            return Load { edges: own.len() as f64, row_bytes: 0.0 };
        };
        let graphs = &self.flow.graphs;
        let all = |vertex: usize| sizes.vertices[vertex] as f64;
        let seeds = graphs[first.index()].dst.index();
        let mut known = vec![vec![0.0; self.flow.vertex_types.len()]];
        known[0][seeds] = (self.batch.size as f64).min(all(seeds));
        let (mut new, mut edges) = (known[0].clone(), 0.0);
        let mut is_own = vec![false; graphs.len()];
        own.iter().for_each(|graph| is_own[graph.index()] = true);
        for hop in 0..self.layout.hops {
            let mut drawn = vec![0.0; new.len()];
            for (index, decl) in graphs.iter().enumerate() {
                let used = match hop {
                    0 => is_own[index],
                    _ => self.layout.deepest(Graph::new(index)).is_some_and(|deepest| deepest >= hop),
                };
                if used {
                    let degree = sizes.edges[index] as f64 / all(decl.dst.index()).max(1.0);
                    let most = self.batch.fanouts.get(hop).and_then(|fanouts| fanouts[index].most());
                    let of_hop = new[decl.dst.index()] * most.map_or(degree, |most| degree.min(most.into()));
                    drawn[decl.src.index()] += of_hop;
                    edges += of_hop;
                }
            }
            let mut next = known[hop].clone();
            for (index, (next, drawn)) in next.iter_mut().zip(drawn).enumerate() {
                // Some vertices are drawn twice, and some were reached before.
                new[index] = (all(index) - *next).max(0.0) * (1.0 - (-drawn / all(index).max(1.0)).exp());
                *next += new[index];
            }
            if hop == 0 {
                // Of all that was reached, the seeds included, the in-edges of all relations follow.
                new.clone_from(&next);
            }
            known.push(next);
        }
        let row_bytes = |(param, within): &(Param, WithinHops)| {
            let width: usize = self.flow.params[param.index()].dims.iter().filter_map(|dim| dim.fixed()).product();
            known[within.hops][within.vertex.index()] * width as f64 * ELEMENT
        };
        Load { edges, row_bytes: self.layout.rows.iter().map(row_bytes).sum() }
    }

    /// The loads of ranks, from the rank of each graph.
    pub fn loads(&self, rank_of: &[usize], ranks: usize) -> Vec<Load> {
        let all = self.graphs_to_seeds();
        let own = |rank: usize| all.iter().copied().filter(|graph| rank_of[graph.index()] == rank).collect::<Vec<_>>();
        (0..ranks).map(|rank| self.load(&own(rank))).collect()
    }
}

/// Seconds of the slowest rank, and of all of them together.
fn seconds(loads: &[Load], times: RelationTimes) -> [f64; 2] {
    let ranks = loads.len() as f64;
    let rows: f64 = loads.iter().map(|load| load.row_bytes).sum();
    let of_rank = |load: &Load| {
        let for_others = (rows - load.row_bytes) / ranks;
        let from_others = load.row_bytes * (1.0 - 1.0 / ranks);
        // Rows there, and gradients back.
        times.edge_s * load.edges + 2.0 * times.byte_s * (from_others + for_others)
    };
    let all = loads.iter().map(of_rank);
    [all.clone().fold(0.0, f64::max), all.sum()]
}

/// Whether one time is less than another, by more than rounding.
fn is_less(a: [f64; 2], b: [f64; 2]) -> bool {
    let less = |a: f64, b: f64| a < b * (1.0 - 1e-9);
    less(a[0], b[0]) || (!less(b[0], a[0]) && less(a[1], b[1]))
}

/// Assigns relations to ranks. Each rank has one at least, if there are enough.
pub fn assign_relations(model: &RelationModel<'_>, ranks: usize, times: RelationTimes) -> Relations {
    let graphs = model.graphs_to_seeds();
    let alone = |graph: &Graph| seconds(&[model.load(&[*graph])], times)[0];
    let mut heaviest: Vec<(Graph, f64)> = graphs.iter().map(|graph| (*graph, alone(graph))).collect();
    heaviest.sort_by(|a, b| b.1.total_cmp(&a.1));
    let heaviest: Vec<Graph> = heaviest.into_iter().map(|(graph, _)| graph).collect();
    let search = Search { model, graphs: &heaviest, ranks, times };
    let of_heaviest = match heaviest.len() <= ALL_WAYS {
        true => search.all_ways(),
        false => search.descent(search.greedy()),
    };
    let mut rank_of = vec![0; model.flow.graphs.len()];
    heaviest.iter().zip(of_heaviest).for_each(|(graph, rank)| rank_of[graph.index()] = rank);
    let loads = model.loads(&rank_of, ranks);
    Relations { rank_of, graphs, loads }
}

/// Searches for the fastest assignment: a rank for each graph.
struct Search<'a> {
    model: &'a RelationModel<'a>,
    /// The graphs to the seeds, by descending load.
    graphs: &'a [Graph],
    ranks: usize,
    times: RelationTimes,
}

impl Search<'_> {
    /// The load of a rank under an assignment of the first graphs.
    fn load(&self, rank_of: &[usize], rank: usize) -> Load {
        let own = self.graphs.iter().zip(rank_of).filter(|&(_, &of)| of == rank);
        self.model.load(&own.map(|(graph, _)| *graph).collect::<Vec<_>>())
    }

    /// The number of ranks with a graph.
    fn parts(&self) -> usize {
        self.ranks.min(self.graphs.len())
    }

    /// Tries all set partitions into as many parts as there are ranks, or graphs if those are fewer.
    fn all_ways(&self) -> Vec<usize> {
        let parts = self.parts();
        // By set of graphs, as bits.
        let mut known: HashMap<usize, Load> = HashMap::new();
        let mut best: Option<([f64; 2], Vec<usize>)> = None;
        let mut open = vec![(vec![], 0)];
        while let Some((rank_of, used)) = open.pop() {
            let left = self.graphs.len() - rank_of.len();
            if left == 0 {
                let of_rank = |rank: usize| {
                    let bits = rank_of.iter().rev().fold(0, |bits, &of| 2 * bits + usize::from(of == rank));
                    *known.entry(bits).or_insert_with(|| self.load(&rank_of, rank))
                };
                let found = seconds(&(0..self.ranks).map(of_rank).collect::<Vec<_>>(), self.times);
                if best.as_ref().is_none_or(|(known, _)| is_less(found, *known)) {
                    best = Some((found, rank_of));
                }
                continue;
            }
            // The next one goes to a rank with some, or to the first without: ranks are alike. The last to be pushed is
            // tried first.
            let with_some = if left > parts - used { used } else { 0 };
            for rank in (0..with_some).chain((used < parts).then_some(used)) {
                open.push(([&rank_of[..], &[rank]].concat(), used.max(rank + 1)));
            }
        }
        best.map_or(vec![], |(_, rank_of)| rank_of)
    }

    /// Each goes to the rank where the slowest is the fastest then.
    fn greedy(&self) -> Vec<usize> {
        let (mut rank_of, mut used, mut loads): (Vec<usize>, _, _) = (vec![], 0, vec![Load::default(); self.ranks]);
        for left in (1..=self.graphs.len()).rev() {
            let first = if left <= self.parts() - used { used } else { 0 };
            let mut best: Option<([f64; 2], usize, Load)> = None;
            for rank in first..self.parts().min(used + 1) {
                rank_of.push(rank);
                let before = std::mem::replace(&mut loads[rank], self.load(&rank_of, rank));
                let found = seconds(&loads, self.times);
                let load = std::mem::replace(&mut loads[rank], before);
                rank_of.pop();
                if best.is_none_or(|(known, ..)| is_less(found, known)) {
                    best = Some((found, rank, load));
                }
            }
            let Some((_, rank, load)) = best else { break };
            rank_of.push(rank);
            loads[rank] = load;
            used = used.max(rank + 1);
        }
        rank_of
    }

    /// Moves a graph to another rank, or swaps two, while that is faster.
    fn descent(&self, mut rank_of: Vec<usize>) -> Vec<usize> {
        let mut loads: Vec<Load> = (0..self.ranks).map(|rank| self.load(&rank_of, rank)).collect();
        let mut best = seconds(&loads, self.times);
        for _ in 0..ROUNDS {
            let before = best;
            for at in 0..rank_of.len() {
                let moves = (0..self.ranks).map(|rank| (at, rank));
                let swaps = (at + 1..rank_of.len()).map(|other| (other, self.ranks));
                for (other, rank) in moves.chain(swaps) {
                    let own = rank_of[at];
                    let mut tried = rank_of.clone();
                    match rank < self.ranks {
                        true => tried[at] = rank,
                        false => tried.swap(at, other),
                    }
                    let to = tried[at];
                    if to == own || !tried.contains(&own) {
                        continue;
                    }
                    let mut changed = loads.clone();
                    [own, to].into_iter().for_each(|rank| changed[rank] = self.load(&tried, rank));
                    let found = seconds(&changed, self.times);
                    if is_less(found, best) {
                        (best, rank_of, loads) = (found, tried, changed);
                    }
                }
            }
            if !is_less(best, before) {
                break;
            }
        }
        rank_of
    }
}
