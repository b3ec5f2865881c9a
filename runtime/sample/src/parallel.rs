//! Sampling of many batches in parallel.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hgnnc_graph::processors::free;

use crate::batch::Batch;
use crate::plan::{BatchKey, SampleError};
use crate::sampler::Sampler;
use crate::walk::{WalkError, Walks};
use crate::walker::Walker;

/// Samples batches `0..num` with one thread per sampler; samplers reuse their allocations. `job` returns the seeds (a
/// list per vertex type) and the key of a batch; `done` receives finished batches in no particular order. A batch
/// depends on its job alone, not on the thread.
///
/// Threads divide batches rather than parts of a batch: batches share no state, and there are always enough of them.
///
/// Stops at the first failing job and returns its error; later batches may or may not have been sampled by then.
pub fn sample_each<'s>(
    samplers: &mut [(Sampler<'_>, Batch)],
    num: usize,
    job: impl Fn(usize) -> (&'s [Vec<u32>], BatchKey) + Sync,
    done: impl Fn(usize, &Batch) + Sync,
) -> Result<(), SampleError> {
    run_all(samplers, num, |(sampler, batch), index| {
        let (seeds, key) = job(index);
        sampler.sample(seeds, key, batch)?;
        done(index, batch);
        Ok(())
    })
}

/// As [`sample_each`], for random walks from seeds of the destination type of the metapath's first relation.
pub fn walk_each<'s>(
    walkers: &mut [(Walker<'_>, Walks)],
    num: usize,
    job: impl Fn(usize) -> (&'s [u32], BatchKey) + Sync,
    done: impl Fn(usize, &Walks) + Sync,
) -> Result<(), WalkError> {
    run_all(walkers, num, |(walker, walks), index| {
        let (seeds, key) = job(index);
        walker.walk(seeds, key, walks)?;
        done(index, walks);
        Ok(())
    })
}

/// Runs `work` for `0..num` with one thread per worker; stops at the first error.
fn run_all<W: Send, E: Send>(
    workers: &mut [W],
    num: usize,
    work: impl Fn(&mut W, usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let all = |worker: &mut W| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= num || failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Err(error) = work(worker, index) {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
    };
    let Some((own, others)) = workers.split_first_mut() else { return Ok(()) };
    std::thread::scope(|scope| {
        // If no more threads can be spawned, the running ones do all the work.
        let all = &all;
        let spawn = |worker| std::thread::Builder::new().spawn_scoped(scope, move || (free(), all(worker)).1).ok();
        let threads: Vec<_> = others.iter_mut().map_while(spawn).collect();
        let result = all(own);
        threads.into_iter().fold(result, |result, thread| {
            result.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
}
