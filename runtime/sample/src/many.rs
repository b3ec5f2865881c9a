//! Many batches, several at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::batch::Batch;
use crate::plan::{BatchKey, SampleError};
use crate::sampler::Sampler;

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
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = |(sampler, batch): &mut (Sampler<'_>, Batch)| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= num || failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let (seeds, key) = job(index);
            if let Err(error) = sampler.sample(seeds, key, batch) {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
            done(index, batch);
        }
    };
    let Some((own, others)) = samplers.split_first_mut() else { return Ok(()) };
    std::thread::scope(|scope| {
        let threads: Vec<_> = others.iter_mut().map(|pair| scope.spawn(|| work(pair))).collect();
        let result = work(own);
        threads.into_iter().fold(result, |result, thread| {
            result.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
}
