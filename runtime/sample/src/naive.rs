//! What sampling means, written down: the oracle.

use std::collections::{BTreeMap, HashMap, HashSet};

use hgnnc_ir::random::bits;

use crate::batch::Batch;
use crate::graph::SampleGraph;
use crate::plan::{BatchKey, Plan, SampleError};
use crate::walk::{WalkError, WalkPlan, Walks};

/// Samples one batch as the documentation of the crate says, vertex by vertex.
///
/// `seeds` are a list for each vertex type, without doubles. Errors as [`SampleError`] says.
pub fn sample(graph: &SampleGraph<'_>, plan: &Plan, seeds: &[Vec<u32>], key: BatchKey) -> Result<Batch, SampleError> {
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
            for dst in batch.fresh(hop, dst_type) {
                let block = &mut batch.blocks[r];
                let vertex = batch.vertices[dst_type][dst];
                let row = graph.in_edges(r, vertex);
                let taken = take(row.len() as u32, fanout.of(row.len() as u32), key.of(r), vertex);
                for edge in taken.into_iter().map(|t| row.start + t as usize) {
                    let source = relation.sources()[edge];
                    let id = *compact[src_type].entry(source).or_insert_with(|| {
                        batch.vertices[src_type].push(source);
                        batch.vertices[src_type].len() as u32 - 1
                    });
                    block.src.push(id);
                    block.edge.push(edge as u32);
                }
                block.indptr.push(block.src.len() as u64);
            }
        }
        batch.mark(hop + 1);
    }
    Ok(batch)
}

/// `num` distinct numbers below `degree`, in order: Floyd's method.
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

/// Walks along a metapath from `seeds`, without doubles, as the documentation of the crate says, walk by walk.
///
/// Errors as [`WalkError`] says.
pub fn walk(graph: &SampleGraph<'_>, plan: &WalkPlan, seeds: &[u32], key: BatchKey) -> Result<Walks, WalkError> {
    let ends = plan.ends(graph)?;
    let mut walks = Walks::default();
    walks.start(graph, ends, seeds)?;
    let mut seen = HashSet::new();
    if let Some(&vertex) = seeds.iter().find(|&&seed| !seen.insert(seed)) {
        return Err(SampleError::DuplicateSeed { vertex_type: ends.0, vertex }.into());
    }
    let keys = plan.keys(key);
    for &seed in seeds {
        let end = |walk: u32| {
            plan.metapath.iter().zip(&keys).try_fold(seed, |vertex, (&r, &key)| {
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
        for (vertex, visits) in kept {
            let id = walks.vertices.iter().position(|&known| known == vertex).unwrap_or_else(|| {
                walks.vertices.push(vertex);
                walks.vertices.len() - 1
            });
            walks.src.push(id as u32);
            walks.visits.push(visits);
        }
        walks.indptr.push(walks.src.len() as u64);
    }
    Ok(walks)
}
