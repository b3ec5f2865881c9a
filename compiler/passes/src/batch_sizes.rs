//! Estimates the sizes of mini-batches.

use hgnnc_ir::batch::{BatchGraph, BatchLayout, BatchPattern, HistoricalRows, WithinHops};
use hgnnc_ir::sizes::{Endpoints, SizeInfo};
use hgnnc_ir::training::{LinkTarget, MiniBatch, NegativeEnds, Target, Training};
use hgnnc_ir::{Dataflow, Direction, Graph, Space, VertexType};

/// Estimates the sizes of a mini-batch, for which its program is compiled. `flow` is the program of the whole graph,
/// `sizes` those of its data. Neighbours are assumed to be uniformly distributed.
pub fn batch_sizes(
    flow: &Dataflow,
    layout: &BatchLayout,
    training: &Training,
    batch: &MiniBatch,
    sizes: &SizeInfo,
) -> SizeInfo {
    let count = |vertex: VertexType| sizes.vertices[vertex.index()] as f64;
    // Hot vertices occur more often than others; how much is not known before sampling.
    let share = batch.reuse.map_or(0.0, |reuse| reuse.share);
    let type_of = |reused: &HistoricalRows| layout.vertices[reused.of.index()].vertex;
    // By hop: vertices reached so far, and edges of the vertices that are new in the hop.
    let mut known = vec![vec![0.0; flow.vertex_types.len()]];
    let mut pairs = vec![0.0; flow.graphs.len()];
    match training.target() {
        None | Some(Target::Vertices { .. }) => {
            let seeds = training.seeds();
            seeds.into_iter().for_each(|vertex| known[0][vertex.index()] = (batch.size as f64).min(count(vertex)));
        }
        Some(Target::Links(target @ LinkTarget { graphs, negatives, .. })) => {
            let shared = |end: VertexType| {
                let replaced =
                    |direction: &Direction, graph: Graph| flow.graph_end(graph, *direction) == Space::Vertices(end);
                let mut ends = negatives.by.shared().iter();
                let is_replaced = ends.any(|direction| graphs.iter().any(|&graph| replaced(direction, graph)));
                if is_replaced { f64::from(negatives.count) } else { 0.0 }
            };
            let all: f64 = graphs.iter().map(|graph| sizes.edges[graph.index()] as f64).sum();
            let drawn = &mut known[0];
            for graph in graphs {
                let links = sizes.edges[graph.index()] as f64;
                let links = links.min(batch.size as f64 * links / all.max(1.0));
                pairs[graph.index()] = links * own_pairs(target);
                // A negative pair differs from its link in one endpoint, a self loop in none.
                let decl = &flow.graphs[graph.index()];
                let self_loops = if negatives.self_loops && decl.src == decl.dst { 2.0 } else { 0.0 };
                let ends = links * (0.5 + 0.5 * (own_pairs(target) - self_loops));
                [decl.src, decl.dst].iter().for_each(|end| drawn[end.index()] += ends);
            }
            for (index, drawn) in drawn.iter_mut().enumerate() {
                let all = sizes.vertices[index] as f64;
                *drawn = all * (1.0 - (-*drawn / all.max(1.0)).exp());
                *drawn += (all - *drawn) * (shared(VertexType::new(index)) / all.max(1.0)).min(1.0);
            }
        }
    }
    let mut new = known[0].clone();
    let mut edges: Vec<Vec<f64>> = vec![];
    for hop in 0..layout.hops {
        let (mut drawn, mut of_graphs) = (vec![0.0; flow.vertex_types.len()], vec![]);
        for (index, graph) in flow.graphs.iter().enumerate() {
            let used = layout.deepest(Graph::new(index)).is_some_and(|deepest| deepest >= hop);
            let degree = sizes.edges[index] as f64 / count(graph.dst).max(1.0);
            let fanout = batch.fanouts.get(hop).and_then(|fanouts| fanouts.get(index)?.most());
            let mut taken = if used { fanout.map_or(degree, |fanout| degree.min(fanout.into())) } else { 0.0 };
            if hop + 1 == layout.hops && layout.historical.iter().any(|it| type_of(it) == graph.dst) {
                taken *= 1.0 - share;
            }
            of_graphs.push(new[graph.dst.index()] * taken);
            drawn[graph.src.index()] += of_graphs[index];
        }
        edges.push(of_graphs);
        let mut next = known[hop].clone();
        for (index, (next, drawn)) in next.iter_mut().zip(drawn).enumerate() {
            let all = sizes.vertices[index] as f64;
            // Some sampled vertices are drawn twice, and some were reached before.
            new[index] = (all - *next).max(0.0) * (1.0 - (-drawn / all.max(1.0)).exp());
            *next += new[index];
        }
        known.push(next);
    }
    let whole = |number: f64| number.ceil() as u64;
    let rows = |known_within: &WithinHops| known[known_within.hops][known_within.vertex.index()];
    let mut of_batch =
        SizeInfo { vertices: layout.vertices.iter().map(rows).map(whole).collect(), ..SizeInfo::default() };
    for reused in &layout.historical {
        let WithinHops { vertex, hops } = layout.vertices[reused.of.index()];
        let before = hops.checked_sub(1).map_or(0.0, |before| known[before][vertex.index()]);
        of_batch.vertices[reused.rows.index()] = whole(share * (known[hops][vertex.index()] - before));
    }
    let one_each = |rows: u64| (rows, Endpoints { sources: rows, destinations: rows, max_out: 1, max_in: 1 });
    for what in &layout.graphs {
        let (edges, ends) = match *what {
            BatchGraph::Sampled { graph, hops } => {
                let decl = &flow.graphs[graph.index()];
                let edges: f64 = edges[..=hops].iter().map(|of_hop| of_hop[graph.index()]).sum();
                let (sources, rows) = (known[hops + 1][decl.src.index()], known[hops][decl.dst.index()]);
                let of_whole = sizes.ends.get(graph.index()).copied().unwrap_or_default();
                let most = (batch.fanouts.iter().take(layout.hops))
                    .map(|fanouts| fanouts[graph.index()].most().map_or(u64::MAX, u64::from))
                    .max();
                let ends = Endpoints {
                    sources: whole(edges.min(sources)),
                    destinations: whole(edges.min(rows)),
                    max_out: of_whole.max_out.min(whole(rows)),
                    max_in: of_whole.max_in.min(most.unwrap_or(u64::MAX)),
                };
                (whole(edges), ends)
            }
            BatchGraph::Links { graph } => {
                let decl = &flow.graphs[graph.index()];
                let (pairs, negatives) = (pairs[graph.index()], training.links().map_or(1.0, own_pairs));
                let end = |vertex: VertexType| pairs.min(known[0][vertex.index()]);
                let of_whole = sizes.ends.get(graph.index()).copied().unwrap_or_default();
                let most = |links: u64| whole((links as f64 * negatives).min(pairs));
                let ends = Endpoints {
                    sources: whole(end(decl.src)),
                    destinations: whole(end(decl.dst)),
                    max_out: most(of_whole.max_out),
                    max_in: most(of_whole.max_in),
                };
                (whole(pairs), ends)
            }
            BatchGraph::Shuffled { rows, permutations } => {
                let (rows, each) = (of_batch.vertices[rows.index()], u64::from(permutations));
                (rows * each, Endpoints { sources: rows, destinations: rows, max_out: each, max_in: each })
            }
            BatchGraph::First { rows } => one_each(of_batch.vertices[rows.index()]),
            BatchGraph::Historical { rows } => one_each(of_batch.vertices[layout.historical[rows].rows.index()]),
        };
        of_batch.edges.push(edges);
        of_batch.ends.push(ends);
    }
    for &BatchPattern { pattern, rows } in &layout.patterns {
        let all = count(flow.patterns[pattern.index()].vertex).max(1.0);
        let (Some(&stored), Some(&columns)) = (sizes.stored.get(pattern.index()), sizes.columns.get(pattern.index()))
        else {
            // Known for some types only: then for none.
            (of_batch.stored, of_batch.columns) = (vec![], vec![]);
            break;
        };
        let stored = whole(stored as f64 * of_batch.vertices[rows.index()] as f64 / all);
        of_batch.stored.push(stored);
        of_batch.columns.push(columns.min(stored));
    }
    of_batch
}

/// The pairs of a link: itself and its own negative samples.
fn own_pairs(target: &LinkTarget) -> f64 {
    match target.negatives.by {
        NegativeEnds::Shared | NegativeEnds::SharedDestinations => 1.0,
        NegativeEnds::Uniform | NegativeEnds::InBatch => 1.0 + f64::from(target.negatives.count),
    }
}
