//! Who is hot: the vertices that most batches need a value of the bottom layer for.

use hgnnc_sample::{Batch, Resting};

use crate::batches::cache::{MOST_PRESAMPLED, presample};
use crate::batches::loader::MiniBatchLoader;
use crate::error::Result;

/// The share of the vertices of each type whose values most batches of an epoch would take, of equally many those of smaller
/// ids, and how many these are. Batches of an epoch that is never trained are sampled, as for a cache.
pub fn choose(loader: &MiniBatchLoader, share: f64, seed: u64, threads: usize) -> Result<(Resting, u64)> {
    let layout = loader.layout();
    let known = |table: usize| layout.vertices[layout.reused[table].of.index()];
    let rows: Vec<usize> = (0..layout.reused.len()).map(|table| loader.counts()[known(table).vertex.index()]).collect();
    let mut resting = Resting::none(loader.counts().len());
    let num_hot = |rows: usize| (share * rows as f64).round() as usize;
    if rows.iter().all(|&rows| num_hot(rows) == 0) {
        return Ok((resting, 0));
    }
    let batches = loader.num_batches().min(MOST_PRESAMPLED);
    let counts = presample(loader, seed, batches, &rows, threads, &|sampled, table| {
        let known = known(table);
        fresh(sampled, known.hops, known.vertex.index())
    })?;
    let mut hot = 0;
    for (table, counts) in counts.iter().enumerate() {
        let mut order: Vec<u32> = (0..counts.len() as u32).collect();
        order.sort_by_key(|&vertex| (std::cmp::Reverse(counts[vertex as usize]), vertex));
        order.truncate(num_hot(counts.len()));
        order.iter().for_each(|&vertex| resting.add(known(table).vertex.index(), vertex));
        hot += order.len() as u64;
    }
    Ok((resting, hot))
}

/// The vertices of a type that are so many hops from the seeds, and no fewer.
pub fn fresh(sampled: &Batch, hops: usize, vertex_type: usize) -> &[u32] {
    let before = hops.checked_sub(1).map_or(0, |before| sampled.known[before][vertex_type]) as usize;
    &sampled.vertices[vertex_type][before..sampled.known[hops][vertex_type] as usize]
}
