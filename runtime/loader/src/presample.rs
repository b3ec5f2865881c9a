//! Presampling: the accesses of an epoch that is sampled and not trained.

use std::sync::atomic::{AtomicU32, Ordering};

use hgnnc_data::Result;
use hgnnc_graph::processors::free;
use hgnnc_sample::{Batch, BatchKey};

use crate::loader::{MiniBatch, MiniBatchLoader};

/// Epoch number of presampled batches, which no trained epoch has.
const PRESAMPLED: u64 = u64::MAX;
/// Maximum number of presampled batches; more do not change the hot set (see docs/results.md).
pub const MOST_PRESAMPLED: u64 = 1024;

/// Accesses of each vertex by the batches of an untrained epoch, by table. `rows` is the number of rows of each table;
/// `needed` returns the vertices that a batch accesses.
pub fn presample(
    loader: &MiniBatchLoader,
    seed: u64,
    batches: u64,
    rows: &[usize],
    threads: usize,
    needed: &(dyn for<'b> Fn(&'b Batch, usize) -> &'b [u32] + Sync),
) -> Result<Vec<Vec<u32>>> {
    // Samples that other processes take part in are drawn in their order.
    let threads = if loader.samples_with_others() { 1 } else { threads };
    let counts: Vec<Vec<AtomicU32>> = rows.iter().map(|&rows| (0..rows).map(|_| AtomicU32::new(0)).collect()).collect();
    let order = loader.order(seed, PRESAMPLED);
    let next = AtomicU32::new(0);
    let work = || -> Result<()> {
        let (mut worker, mut mini_batch) = (loader.worker()?, MiniBatch::default());
        loop {
            let batch = u64::from(next.fetch_add(1, Ordering::Relaxed));
            if batch >= batches {
                return Ok(());
            }
            loader.sample(&mut worker, &order, BatchKey { seed, epoch: PRESAMPLED, batch }, &mut mini_batch)?;
            for (table, counts) in counts.iter().enumerate() {
                for &vertex in needed(&mini_batch.sampled, table) {
                    counts[vertex as usize].fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        // If no more threads can be started, the existing ones do the work.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, || (free(), work()).1).ok();
        let others: Vec<_> = (1..threads.max(1)).map_while(spawn).collect();
        let own = work();
        others.into_iter().fold(own, |result, other| {
            result.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })?;
    Ok(counts.into_iter().map(|counts| counts.into_iter().map(AtomicU32::into_inner).collect()).collect())
}
