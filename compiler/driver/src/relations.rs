//! Assigns the relations to the seeds of mini-batches to ranks, where ranks share relations ([`Split::Relations`]).
//!
//! The work of a relation is the expected number of sampled edges: its own to the seeds, and all beneath their sources,
//! which the rank computes for itself (the sub-metatree of Heta: Zhong et al. 2024, arXiv 2408.09697, algorithm 2, whose
//! weights are static sizes instead). The heaviest relation goes to the rank with the least work, then the next one: the
//! makespan is at most 4/3 of the least (Graham 1969).
//!
//! [`Split::Relations`]: crate::Split::Relations

use hgnnc_ir::Dataflow;
use hgnnc_ir::batch::{BatchGraph, BatchLayout};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::training::MiniBatch;
use hgnnc_ir::types::{Graph, VertexType};

/// The relations of each rank.
#[derive(Clone, PartialEq, Debug)]
pub struct Relations {
    /// By semantic graph of the model: the rank that aggregates its edges to the seeds.
    pub rank_of: Vec<usize>,
    /// By semantic graph to the seeds, ascending: its expected number of sampled edges a batch, with those beneath them.
    pub work: Vec<(Graph, f64)>,
}

impl Relations {
    /// The expected number of sampled edges a batch of each rank.
    pub fn work_of_ranks(&self, ranks: usize) -> Vec<f64> {
        let mut all = vec![0.0; ranks];
        self.work.iter().for_each(|&(graph, work)| all[self.rank_of[graph.index()]] += work);
        all
    }
}

/// Assigns relations to ranks. `flow` is the program of the whole graph, and `sizes` are those of its data.
pub fn assign_relations(
    flow: &Dataflow,
    layout: &BatchLayout,
    batch: &MiniBatch,
    sizes: Option<&SizeInfo>,
    ranks: usize,
) -> Relations {
    let to_seeds = |what: &BatchGraph| match *what {
        BatchGraph::Sampled { graph, hops: 0 } => Some(graph),
        _ => None,
    };
    let beneath = Beneath { flow, layout, batch, sizes };
    let mut work: Vec<(Graph, f64)> = layout.graphs.iter().filter_map(to_seeds).map(|g| (g, 1.0)).collect();
    if sizes.is_some() {
        work.iter_mut().for_each(|(graph, work)| *work = beneath.edges(*graph, 0, batch.size as f64));
    }
    work.sort_by_key(|(graph, _)| graph.index());
    let mut heaviest = work.clone();
    heaviest.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (mut rank_of, mut load) = (vec![0; flow.graphs.len()], vec![0.0f64; ranks]);
    for (graph, work) in heaviest {
        let least = (0..ranks).min_by(|&a, &b| load[a].total_cmp(&load[b])).unwrap_or(0);
        rank_of[graph.index()] = least;
        load[least] += work;
    }
    Relations { rank_of, work }
}

/// Expected numbers of sampled edges, where neighbours are uniformly distributed.
struct Beneath<'a> {
    flow: &'a Dataflow,
    layout: &'a BatchLayout,
    batch: &'a MiniBatch,
    sizes: Option<&'a SizeInfo>,
}

impl Beneath<'_> {
    /// The edges of a graph to so many vertices in a hop, and all beneath their sources.
    fn edges(&self, graph: Graph, hop: usize, vertices: f64) -> f64 {
        let decl = &self.flow.graphs[graph.index()];
        let count =
            |vertex: VertexType| self.sizes.map_or(1.0, |sizes| (sizes.vertices[vertex.index()] as f64).max(1.0));
        let degree = self.sizes.map_or(1.0, |sizes| sizes.edges[graph.index()] as f64 / count(decl.dst));
        let most = self.batch.fanouts.get(hop).and_then(|fanouts| fanouts[graph.index()].most());
        let edges = vertices * most.map_or(degree, |most| degree.min(most.into()));
        let all = count(decl.src);
        // Some sources are drawn twice.
        let sources = all * (1.0 - (-edges / all).exp());
        let used = |next: Graph| self.layout.deepest(next).is_some_and(|deepest| deepest > hop);
        let next = (0..self.flow.graphs.len()).map(Graph::new);
        let into = next.filter(|&next| used(next) && self.flow.graphs[next.index()].dst == decl.src);
        edges + into.map(|next| self.edges(next, hop + 1, sources)).sum::<f64>()
    }
}
