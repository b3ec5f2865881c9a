//! Forecast for the feature cache: expected accesses of each vertex, and the cost of a miss.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use hgnnc_graph::processors::free;
use hgnnc_ir::random::{bits, mask_key};
use hgnnc_sample::{Batch, BatchKey};

use crate::batches::loader::{MiniBatch, MiniBatchLoader};
use crate::buffer::HostBuffer;
use crate::error::Result;

/// Epoch number of presampled batches, which no trained epoch has.
const PRESAMPLED: u64 = u64::MAX;
/// Maximum number of presampled batches; more do not change the hot set (see docs/results.md).
pub const MOST_PRESAMPLED: u64 = 1024;
/// Rows per timing of a miss, and repetitions.
const TIMED: (usize, u64) = (2048, 7);

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

/// Nanoseconds of `one` per row for scattered rows: the minimum of several attempts, each on other rows, which are not
/// in a CPU cache.
fn time(rows: usize, mut one: impl FnMut(usize)) -> f64 {
    if rows == 0 {
        return 0.0;
    }
    let attempt = |attempt: u64| {
        let key = mask_key(0, attempt, 0);
        let timed: Vec<usize> =
            (0..TIMED.0 as u64).map(|at| ((u64::from(bits(key, at)) * rows as u64) >> 32) as usize).collect();
        let start = Instant::now();
        timed.iter().for_each(|&row| one(row));
        start.elapsed().as_nanos() as f64 / TIMED.0 as f64
    };
    (0..TIMED.1).map(attempt).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds per row read.
pub fn time_reads(numbers: &[f32], width: usize) -> f64 {
    let mut scratch = vec![0.0; TIMED.0 * width];
    let mut at = 0;
    time(numbers.len() / width.max(1), |row| {
        scratch[at * width..][..width].copy_from_slice(&numbers[row * width..][..width]);
        at = (at + 1) % TIMED.0;
    })
}

/// Nanoseconds per row read and write-back, over several arrays.
pub fn time_moves(slabs: &[&HostBuffer], rows: usize, width: usize) -> f64 {
    let mut scratch = vec![0.0; TIMED.0 * width];
    let mut at = 0;
    time(rows, |row| {
        for slab in slabs {
            let here = &mut scratch[at * width..][..width];
            // SAFETY: nothing else uses the buffer before training begins.
            here.copy_from_slice(unsafe { slab.read(row * width, width) });
            // SAFETY: as above.
            unsafe { slab.write(row * width, width) }.copy_from_slice(here);
        }
        at = (at + 1) % TIMED.0;
    })
}
