//! Hot vertices: those whose layer-1 embedding most mini-batches need.

use hgnnc_data::Result;
use hgnnc_sample::{Batch, HistoricalVertices};

use crate::loader::MiniBatchLoader;
use crate::presample::{MOST_PRESAMPLED, presample};

/// Selects the fraction `share` of the vertices of each type that most batches of an epoch access, smaller ids first
/// among equals. Presamples an untrained epoch, as for the feature cache. Also returns the number of hot vertices, by
/// [`BatchLayout::historical`](hgnnc_ir::batch::BatchLayout::historical).
pub fn choose(
    loader: &MiniBatchLoader,
    share: f64,
    seed: u64,
    threads: usize,
) -> Result<(HistoricalVertices, Vec<usize>)> {
    let layout = loader.layout();
    let known = |table: usize| layout.vertices[layout.historical[table].of.index()];
    let rows: Vec<usize> =
        (0..layout.historical.len()).map(|table| loader.counts()[known(table).vertex.index()]).collect();
    let mut resting = HistoricalVertices::none(loader.counts().len());
    let hot: Vec<usize> = rows.iter().map(|&rows| (share * rows as f64).round() as usize).collect();
    if hot.iter().all(|&hot| hot == 0) {
        return Ok((resting, hot));
    }
    let batches = loader.num_batches().min(MOST_PRESAMPLED);
    let counts = presample(loader, seed, batches, &rows, threads, &|sampled, table| {
        let known = known(table);
        fresh(sampled, known.hops, known.vertex.index())
    })?;
    for (table, counts) in counts.iter().enumerate() {
        let mut order: Vec<u32> = (0..counts.len() as u32).collect();
        order.sort_by_key(|&vertex| (std::cmp::Reverse(counts[vertex as usize]), vertex));
        order.truncate(hot[table]);
        order.iter().for_each(|&vertex| resting.add(known(table).vertex.index(), vertex));
    }
    Ok((resting, hot))
}

/// Vertices of a type first reached at this hop from the seed vertices.
pub fn fresh(sampled: &Batch, hops: usize, vertex_type: usize) -> &[u32] {
    let before = hops.checked_sub(1).map_or(0, |before| sampled.known[before][vertex_type]) as usize;
    &sampled.vertices[vertex_type][before..sampled.known[hops][vertex_type] as usize]
}
