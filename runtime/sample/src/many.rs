//! Many batches, several at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hgnnc_graph::processors::free;

use crate::batch::Batch;
use crate::plan::{BatchKey, SampleError};
use crate::sampler::Sampler;
use crate::walk::{WalkError, Walks};
use crate::walker::Walker;

/// Samples batches `0..num` with a thread for each of the samplers, which keep what they have allocated. `job` gives seeds
/// (a list for each vertex type) and key of a batch; `done` takes each batch as it is ready, in no certain order. A batch
/// depends on its job alone, not on who samples it.
///
/// Batches, not parts of one, are what threads divide: they share nothing, and there are always enough of them.
///
/// Errors with the first job, by time, that has one; others may be sampled or not then.
pub fn sample_each<'s>(
    samplers: &mut [(Sampler<'_>, Batch)],
    num: usize,
    job: impl Fn(usize) -> (&'s [Vec<u32>], BatchKey) + Sync,
    done: impl Fn(usize, &Batch) + Sync,
) -> Result<(), SampleError> {
    divide(samplers, num, |(sampler, batch), index| {
        let (seeds, key) = job(index);
        sampler.sample(seeds, key, batch)?;
        done(index, batch);
        Ok(())
    })
}

/// As [`sample_each`], for walks from seeds of the type where the metapath begins.
pub fn walk_each<'s>(
    walkers: &mut [(Walker<'_>, Walks)],
    num: usize,
    job: impl Fn(usize) -> (&'s [u32], BatchKey) + Sync,
    done: impl Fn(usize, &Walks) + Sync,
) -> Result<(), WalkError> {
    divide(walkers, num, |(walker, walks), index| {
        let (seeds, key) = job(index);
        walker.walk(seeds, key, walks)?;
        done(index, walks);
        Ok(())
    })
}

/// Does work `0..num` with a thread for each worker; stops at the first error.
fn divide<W: Send, E: Send>(
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
        // Where no more threads can be started, those that are there do the work.
        let all = &all;
        let spawn = |worker| std::thread::Builder::new().spawn_scoped(scope, move || (free(), all(worker)).1).ok();
        let threads: Vec<_> = others.iter_mut().map_while(spawn).collect();
        let result = all(own);
        threads.into_iter().fold(result, |result, thread| {
            result.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
}
