//! Counts the edges and mirrors of each rank.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::progress::{Observer, Progress, Stage};
use crate::source::{Chunk, Source};

/// Numbers of edges and mirrors.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counts {
    /// Of each relation.
    pub relations: Vec<EdgeCounts>,
    /// Of each vertex type.
    pub mirrors: Vec<MirrorCounts>,
}

/// Numbers of edges of a relation.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EdgeCounts {
    /// Edges whose destination each rank owns.
    pub in_edges: Vec<u64>,
    /// Edges whose source each rank owns.
    pub out_edges: Vec<u64>,
    /// Edges whose ends have different owners.
    pub cut: u64,
}

/// Numbers of vertices of a type that each rank reads and does not own.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MirrorCounts {
    /// Sources of its in-edges.
    pub sources: Vec<u64>,
    /// Destinations of its out-edges.
    pub destinations: Vec<u64>,
}

/// Ranks whose mirrors are found in one pass over the edges: a bit of a byte for each.
const GROUP: usize = 8;

/// Reads all edges once for every eight ranks. `ranks` are those of all vertices.
pub fn count(source: &Source, ranks: &[u16], num: usize, observer: &dyn Observer) -> Result<Counts> {
    let progress = Progress::new(observer, Stage::Count, source.edge_bytes() * num.div_ceil(GROUP) as u64)?;
    let zeros = || vec![0; num];
    let types = source.outline.vertex_types.len();
    let mirrors = MirrorCounts { sources: zeros(), destinations: zeros() };
    let mut counts = Counts { relations: vec![], mirrors: vec![mirrors; types] };
    let masks = || -> Vec<AtomicU8> { (0..ranks.len()).map(|_| AtomicU8::new(0)).collect() };
    let (sources, destinations) = (masks(), masks());
    for first in (0..num).step_by(GROUP) {
        let group = first..num.min(first + GROUP);
        for relation in 0..source.edges.len() {
            let found = edges(source, relation, ranks, num, &group, (&sources, &destinations), &progress)?;
            if first == 0 {
                counts.relations.push(found);
            }
        }
        for (ty, mirrors) in counts.mirrors.iter_mut().enumerate() {
            for (masks, counts) in [(&sources, &mut mirrors.sources), (&destinations, &mut mirrors.destinations)] {
                for mask in &masks[source.vertices(ty)] {
                    let mask = mask.swap(0, Ordering::Relaxed);
                    group.clone().for_each(|rank| counts[rank] += u64::from(mask >> (rank - first) & 1));
                }
            }
        }
    }
    Ok(counts)
}

/// Counts the edges of a relation, and marks the mirrors of a group of ranks: in the first masks sources, in the second
/// destinations.
fn edges(
    source: &Source,
    relation: usize,
    ranks: &[u16],
    num: usize,
    group: &Range<usize>,
    masks: (&[AtomicU8], &[AtomicU8]),
    progress: &Progress<'_>,
) -> Result<EdgeCounts> {
    let edges = &source.edges[relation];
    let (src, dst) = source.ends(relation);
    let mark = |mask: &AtomicU8, rank: usize| {
        if group.contains(&rank) {
            let bit = 1 << (rank - group.start);
            // Most mirrors are marked before: a read leaves the line shared.
            if mask.load(Ordering::Relaxed) & bit == 0 {
                mask.fetch_or(bit, Ordering::Relaxed);
            }
        }
    };
    let zeros = || EdgeCounts { in_edges: vec![0; num], out_edges: vec![0; num], cut: 0 };
    let chunks: Vec<Range<usize>> = edges.chunks().collect();
    // Blocks of chunks, so that a thread reads consecutive ones.
    let blocks: Vec<EdgeCounts> = chunks
        .par_chunks(64)
        .map(|chunks| {
            let (mut counts, mut chunk) = (zeros(), Chunk::default());
            for range in chunks {
                edges.read(range.clone(), &mut chunk)?;
                for (&s, &d) in chunk.src.iter().zip(&chunk.dst) {
                    let (s, d) = (src + s as usize, dst + d as usize);
                    let (from, to) = (usize::from(ranks[s]), usize::from(ranks[d]));
                    counts.in_edges[to] += 1;
                    counts.out_edges[from] += 1;
                    if from != to {
                        counts.cut += 1;
                        mark(&masks.0[s], to);
                        mark(&masks.1[d], from);
                    }
                }
                progress.add(range.len() as u64 * edges.bytes())?;
            }
            Ok(counts)
        })
        .collect::<Result<_>>()?;
    Ok(blocks.into_iter().fold(zeros(), |mut sum, block| {
        sum.in_edges.iter_mut().zip(block.in_edges).for_each(|(sum, more)| *sum += more);
        sum.out_edges.iter_mut().zip(block.out_edges).for_each(|(sum, more)| *sum += more);
        sum.cut += block.cut;
        sum
    }))
}
