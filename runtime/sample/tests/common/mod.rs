//! Small graphs to sample from.
#![allow(dead_code)]

use hgnnc_graph::SemanticGraph;
use hgnnc_ir::random::bits;
use hgnnc_sample::{Batch, BatchKey, DrawnEdges, Edges, GraphError, HopSampler, Plan, SampleGraph};

pub const KEY: BatchKey = BatchKey { seed: 7, epoch: 2, batch: 5 };

/// Source type, destination type, and edges from source to destination.
pub type Given = (usize, usize, Vec<(u32, u32)>);

/// A graph with the given relations, without weights.
pub fn graph(counts: &[usize], relations: &[Given]) -> SampleGraph<'static> {
    weighted_graph(counts, relations, |_, _| None).unwrap()
}

/// A graph with the given relations and the weight of each edge (by relation and position).
pub fn weighted_graph(
    counts: &[usize],
    relations: &[Given],
    weight: impl Fn(usize, usize) -> Option<f32>,
) -> Result<SampleGraph<'static>, GraphError> {
    let edges = relations.iter().enumerate().map(|(r, &(src_type, dst_type, ref edges))| {
        let (sources, destinations): (Vec<u32>, Vec<u32>) = edges.iter().copied().unzip();
        let (num_src, num_dst) = (counts[src_type], counts[dst_type]);
        let made = SemanticGraph::from_edges(format!("r{r}"), num_src, num_dst, &sources, &destinations).unwrap();
        let weights: Option<Vec<f32>> = (0..made.csc.indices.len()).map(|edge| weight(r, edge)).collect();
        Edges {
            name: made.name.into(),
            src_type,
            dst_type,
            indptr: made.csc.indptr.into_vec().into(),
            indices: made.csc.indices.into_vec().into(),
            weights: weights.map(Into::into),
        }
    });
    SampleGraph::new(counts.to_vec(), edges.collect())
}

/// Random relations between all pairs of types, some of them empty, with a few high-degree destinations and duplicate
/// edges. Weights are between 0.01 and 100; in every second relation every third is 0.
pub fn random_graph(seed: u64) -> SampleGraph<'static> {
    let mut at = 0;
    let mut random = |n: u32| {
        at += 1;
        ((u64::from(bits(seed, at)) * u64::from(n)) >> 32) as u32
    };
    let counts: Vec<usize> = (0..1 + random(4)).map(|_| 1 + random(300) as usize).collect();
    let mut relations = vec![];
    for src in 0..counts.len() {
        for dst in 0..counts.len() {
            let edges = if random(4) == 0 { 0 } else { random(3000) };
            let busy = random(counts[dst] as u32);
            let edge = |_| {
                let to = if random(3) == 0 { busy } else { random(counts[dst] as u32) };
                (random(counts[src] as u32), to)
            };
            relations.push((src, dst, (0..edges).map(edge).collect()));
        }
    }
    let weight = |r: usize, edge: usize| {
        let random = bits(seed, 1 << 40 | (r as u64) << 32 | edge as u64);
        Some(if r.is_multiple_of(2) && random.is_multiple_of(3) {
            0.0
        } else {
            10f32.powf(random as f32 / u32::MAX as f32 * 4.0 - 2.0)
        })
    };
    weighted_graph(&counts, &relations, weight).unwrap()
}

/// Two vertex types and `n` relations between each pair of them: so many that generated code loops over them.
pub fn graph_of_many_relations(seed: u64, n: usize) -> SampleGraph<'static> {
    let mut at = 0;
    let mut random = |n: u32| {
        at += 1;
        ((u64::from(bits(seed, at)) * u64::from(n)) >> 32) as u32
    };
    let counts = [50, 80];
    let mut relations = vec![];
    for (src, dst) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for _ in 0..n {
            let edges = (0..random(200)).map(|_| (random(counts[src] as u32), random(counts[dst] as u32)));
            relations.push((src, dst, edges.collect()));
        }
    }
    weighted_graph(&counts, &relations, |_, edge| Some(1.0 + edge as f32)).unwrap()
}

/// Every `step`-th vertex of each type, from the last.
pub fn seeds(graph: &SampleGraph<'_>, step: usize) -> Vec<Vec<u32>> {
    graph.counts().iter().map(|&count| (0..count as u32).rev().step_by(step).collect()).collect()
}

/// A random graph with enough edges that different samples differ.
pub fn busy_graph() -> SampleGraph<'static> {
    let edges = |graph: &SampleGraph| graph.relations().iter().map(|r| r.sources().len()).sum::<usize>();
    (0..).map(random_graph).find(|graph| graph.counts().len() > 1 && edges(graph) > 5000).expect("there is one")
}

/// Deviation of counts from the uniform distribution: (χ² - its mean) / its standard deviation, about 1 for uniform
/// counts. `scale` corrects for sampling without replacement.
pub fn deviation(counts: &[u64], scale: f64) -> f64 {
    let total: u64 = counts.iter().sum();
    let expected = total as f64 / counts.len() as f64;
    let chi: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum::<f64>() / scale;
    let freedom = (counts.len() - 1) as f64;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

/// Samplers that draw the edges of a third of the vertices each.
pub fn owners<'g>(graph: &'g SampleGraph<'g>, plan: &'g Plan) -> [HopSampler<'g>; 3] {
    [0, 1, 2].map(|_| HopSampler::new(graph, plan).unwrap())
}

/// A batch whose edges the owners draw, and whose sources the first one numbers.
pub fn sample_by_owners(
    (graph, plan): (&SampleGraph<'_>, &Plan),
    owners: &mut [HopSampler<'_>; 3],
    (seeds, key): (&[Vec<u32>], BatchKey),
    batch: &mut Batch,
) {
    owners[0].start(seeds, batch).unwrap();
    for hop in 0..plan.num_hops() {
        for (relation, of) in graph.relations().iter().enumerate() {
            let destinations = &batch.vertices[of.dst_type][batch.fresh(hop, of.dst_type)].to_vec();
            let owner = |vertex: u32| vertex as usize % owners.len();
            let own = |of: usize| destinations.iter().copied().filter(|&v| owner(v) == of).collect::<Vec<u32>>();
            let own = [0, 1, 2].map(own);
            let mut drawn = [0, 1, 2].map(|_| DrawnEdges::default());
            for ((owner, own), drawn) in owners.iter_mut().zip(&own).zip(&mut drawn) {
                owner.draw((hop, relation), key, own, drawn);
            }
            let mut next = [(0, 0); 3];
            let edges_of = |row: usize| {
                let of = destinations[row] as usize % drawn.len();
                let (vertex, edge) = next[of];
                let end = edge + drawn[of].counts[vertex] as usize;
                next[of] = (vertex + 1, end);
                [&drawn[of].sources[edge..end], &drawn[of].eids[edge..end]]
            };
            owners[0].add((hop, relation), batch, edges_of).unwrap();
        }
        owners[0].end_hop(hop, batch);
    }
}
