//! Reference implementation of sampling and walks: the oracle of the tests.

use std::collections::{BTreeMap, HashMap, HashSet};

use hgnnc_ir::random::bits;

use crate::batch::Batch;
use crate::graph::SampleGraph;
use crate::historical::HistoricalVertices;
use crate::plan::{BatchKey, Fanout, Plan, SampleError};
use crate::walk::{WalkError, WalkPlan, Walks};
use crate::weight::exponential;

/// Samples one batch as defined in the crate's documentation, vertex by vertex.
///
/// `seeds` has a list without duplicates for each vertex type. Errors as [`SampleError`] describes.
pub fn sample(graph: &SampleGraph<'_>, plan: &Plan, seeds: &[Vec<u32>], key: BatchKey) -> Result<Batch, SampleError> {
    sample_with_historical(graph, plan, seeds, key, &HistoricalVertices::default())
}

/// As [`sample`], without edges of historical vertices in the last hop.
pub fn sample_with_historical(
    graph: &SampleGraph<'_>,
    plan: &Plan,
    seeds: &[Vec<u32>],
    key: BatchKey,
    historical: &HistoricalVertices,
) -> Result<Batch, SampleError> {
    let mut batch = Batch::default();
    batch.start(graph, plan, seeds)?;
    let mut compact: Vec<HashMap<u32, u32>> = vec![HashMap::new(); graph.counts().len()];
    for (vertex_type, seeds) in seeds.iter().enumerate() {
        for (id, &vertex) in seeds.iter().enumerate() {
            if compact[vertex_type].insert(vertex, id as u32).is_some() {
                return Err(SampleError::DuplicateSeed { vertex_type, vertex });
            }
        }
    }
    for (hop, fanouts) in plan.fanouts.iter().enumerate() {
        for (r, (relation, &fanout)) in graph.relations().iter().zip(fanouts).enumerate() {
            let (src_type, dst_type) = (relation.src_type, relation.dst_type);
            let walk = graph.walk_plan(r, fanout);
            let steps = walk.as_ref().map(|(_, plan)| plan.keys(key)).unwrap_or_default();
            for dst in batch.fresh(hop, dst_type) {
                let vertex = batch.vertices[dst_type][dst];
                let block = &mut batch.blocks[r];
                if hop + 1 == plan.num_hops() && historical.has(dst_type, vertex) {
                    block.indptr.push(block.indices.len() as u64);
                    continue;
                }
                let row = graph.in_edges(r, vertex);
                let degree = row.len() as u32;
                let edge = |t: u32| (relation.sources()[row.start + t as usize], row.start as u32 + t);
                // Sources, and the id or visits of each edge.
                let taken: Vec<(u32, u32)> = match (fanout, &walk) {
                    (Fanout::All | Fanout::AtMost(_), _) => {
                        take(degree, fanout.of(degree), key.of(r), vertex).into_iter().map(edge).collect()
                    }
                    (Fanout::Weighted(most), _) => {
                        // Validating the plan ensured that there are weights.
                        let weights = &relation.weights().unwrap_or_default()[row.clone()];
                        take_by_weight(weights, most, key.of(r), vertex).into_iter().map(edge).collect()
                    }
                    (Fanout::Latest(most), _) => {
                        let ranks = &relation.weights().unwrap_or_default()[row.clone()];
                        let mut order: Vec<u32> = (0..degree).collect();
                        order.sort_by(|&a, &b| ranks[a as usize].total_cmp(&ranks[b as usize]));
                        order.truncate(most as usize);
                        order.sort();
                        order.into_iter().map(edge).collect()
                    }
                    (Fanout::Walks { .. }, Some((walked, plan))) => visited(walked, plan, &steps, vertex),
                    // Validating the plan ensured that there is a metapath.
                    (Fanout::Walks { .. }, None) => vec![],
                };
                for (source, edge) in taken {
                    let id = *compact[src_type].entry(source).or_insert_with(|| {
                        batch.vertices[src_type].push(source);
                        batch.vertices[src_type].len() as u32 - 1
                    });
                    block.indices.push(id);
                    block.eids.push(edge);
                }
                block.indptr.push(block.indices.len() as u64);
            }
        }
        batch.mark(hop + 1);
    }
    Ok(batch)
}

/// `num` distinct numbers below `degree`, in sampling order: Floyd's method.
fn take(degree: u32, num: u32, key: u64, vertex: u32) -> Vec<u32> {
    if num == degree {
        return (0..degree).collect();
    }
    let mut taken = HashSet::new();
    let draw = |k: u32| {
        let j = degree - num + k;
        let random = u64::from(bits(key, u64::from(vertex) << 32 | u64::from(k)));
        let t = ((random * (u64::from(j) + 1)) >> 32) as u32;
        let new = if taken.contains(&t) { j } else { t };
        taken.insert(new);
        new
    };
    (0..num).map(draw).collect()
}

/// Positions of the `most` smallest keys `-ln u / w`, ascending.
fn take_by_weight(weights: &[f32], most: u32, key: u64, vertex: u32) -> Vec<u32> {
    let mut keys: Vec<(f64, u32)> = vec![];
    for (k, &weight) in (0..).zip(weights) {
        if weight > 0.0 {
            let random = bits(key, u64::from(vertex) << 32 | u64::from(k));
            keys.push((exponential(random) / f64::from(weight), k));
        }
    }
    keys.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut taken: Vec<u32> = keys.into_iter().take(most as usize).map(|(_, k)| k).collect();
    taken.sort();
    taken
}

/// Walks along a metapath from `seeds`, without duplicates, as defined in the crate's documentation, walk by walk.
///
/// Errors as [`WalkError`] describes.
pub fn walk(graph: &SampleGraph<'_>, plan: &WalkPlan, seeds: &[u32], key: BatchKey) -> Result<Walks, WalkError> {
    let ends = plan.endpoints(graph)?;
    let mut walks = Walks::default();
    walks.start(graph, ends, seeds)?;
    let mut seen = HashSet::new();
    if let Some(&vertex) = seeds.iter().find(|&&seed| !seen.insert(seed)) {
        return Err(SampleError::DuplicateSeed { vertex_type: ends.0, vertex }.into());
    }
    let keys = plan.keys(key);
    for &seed in seeds {
        let kept = visited(graph, plan, &keys, seed);
        for (vertex, visits) in kept {
            let id = walks.vertices.iter().position(|&known| known == vertex).unwrap_or_else(|| {
                walks.vertices.push(vertex);
                walks.vertices.len() - 1
            });
            walks.indices.push(id as u32);
            walks.visits.push(visits);
        }
        walks.indptr.push(walks.indices.len() as u64);
    }
    Ok(walks)
}

/// The kept end vertices of the walks of a seed, with their visits; ascending.
fn visited(graph: &SampleGraph<'_>, plan: &WalkPlan, keys: &[u64], seed: u32) -> Vec<(u32, u32)> {
    let end = |walk: u32| {
        plan.metapath.iter().zip(keys).try_fold(seed, |vertex, (&r, &key)| {
            let row = graph.in_edges(r, vertex);
            let random = u64::from(bits(key, u64::from(seed) << 32 | u64::from(walk)));
            let place = ((random * row.len() as u64) >> 32) as usize;
            // A vertex without in-edges ends the walk, which then counts nowhere.
            row.clone().nth(place).map(|edge| graph.relations()[r].sources()[edge])
        })
    };
    let mut visits = BTreeMap::<u32, u32>::new();
    (0..plan.walks).filter_map(end).for_each(|vertex| *visits.entry(vertex).or_default() += 1);
    let mut kept: Vec<(u32, u32)> = visits.into_iter().collect();
    kept.sort_by_key(|&(_, visits)| std::cmp::Reverse(visits));
    kept.truncate(plan.top_k as usize);
    kept.sort();
    kept
}
