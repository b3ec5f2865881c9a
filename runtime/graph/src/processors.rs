//! Thread affinity.
//!
//! Kernels take less than a millisecond, and idle threads sleep in between. On systems with few processors the
//! scheduler may wake a thread on the busy processor of its waker and migrate it only milliseconds later, so that two
//! threads share one processor. Pools with as many threads as processors therefore pin each thread to a processor of
//! its own.

/// The processors of the threads of a pool.
///
/// Threads inherit the affinity of the thread that spawns them, so every thread spawned by a pool thread calls
/// [`Processors::bind`] of its own pool, or [`free`].
#[derive(Clone, Debug, Default)]
pub struct Processors {
    own: Vec<usize>,
}

impl Processors {
    /// One processor per thread, if the process may use exactly `threads` of them; otherwise no pinning. Fewer threads
    /// are better placed by the scheduler, since other processes may pin theirs as well; more threads have to share
    /// processors anyway.
    pub fn for_threads(threads: usize) -> Self {
        let allowed = system::allowed();
        Self { own: if allowed.len() == threads { allowed } else { vec![] } }
    }

    /// A pool without pinning.
    pub fn any() -> Self {
        Self::default()
    }

    /// Pins the calling thread, number `number` of its pool. Failure is ignored.
    pub fn bind(&self, number: usize) {
        match self.own.get(number) {
            Some(&own) => system::allow(&[own]),
            None => free(),
        }
    }
}

/// The number of threads of a pool: `asked`, or the available parallelism for 0.
pub fn threads(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Resets the affinity of the calling thread to all processors of the process.
pub fn free() {
    system::allow(&system::allowed());
}

/// A builder of a pool of `threads` threads, pinned if there is one per processor. Each thread calls `start` first.
pub fn pool(threads: usize, start: impl Fn() + Send + Sync + 'static) -> rayon::ThreadPoolBuilder {
    let processors = Processors::for_threads(threads);
    rayon::ThreadPoolBuilder::new().num_threads(threads).start_handler(move |number| {
        processors.bind(number);
        start();
    })
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::process::getpid;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// The processors of the first thread of the process, which is never pinned.
    pub(super) fn allowed() -> Vec<usize> {
        let set = sched_getaffinity(Some(getpid()));
        set.map_or(vec![], |set| (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
    }

    pub(super) fn allow(processors: &[usize]) {
        let mut set = CpuSet::new();
        processors.iter().for_each(|&processor| set.set(processor));
        if !processors.is_empty() {
            // On failure the affinity stays as it is.
            let _ = sched_setaffinity(None, &set);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn allowed() -> Vec<usize> {
        vec![]
    }

    pub(super) fn allow(_: &[usize]) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::collections::BTreeSet;

    use rustix::thread::{CpuSet, sched_getaffinity};

    use super::*;

    /// The affinity of the calling thread.
    fn here() -> Vec<usize> {
        let set = sched_getaffinity(None).expect("a thread may ask that");
        (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
    }

    #[test]
    fn as_many_threads_as_processors_have_one_each() {
        let all = system::allowed();
        let pool = pool(all.len(), || {}).build().expect("threads");
        let own = pool.broadcast(|_| here());
        assert!(own.iter().all(|own| own.len() == 1), "{own:?}");
        assert_eq!(own.iter().flatten().collect::<BTreeSet<_>>(), all.iter().collect());
    }

    #[test]
    fn other_threads_run_anywhere() {
        let all = system::allowed();
        let pool = pool(all.len() + 1, || {}).build().expect("threads");
        assert!(pool.broadcast(|_| here()).iter().all(|own| *own == all));
    }

    #[test]
    fn what_a_bound_thread_starts_can_be_freed() {
        let all = system::allowed();
        let pool = pool(all.len(), || {}).build().expect("threads");
        let (started, freed, inner) = pool.install(|| {
            let started = std::thread::spawn(here).join().expect("no panic");
            let freed = std::thread::spawn(|| {
                free();
                here()
            });
            let inner = super::pool(all.len(), || {}).build().expect("threads");
            (started, freed.join().expect("no panic"), inner.broadcast(|_| here()))
        });
        assert_eq!(started.len(), 1, "threads inherit");
        assert_eq!(freed, all);
        assert_eq!(inner.iter().flatten().collect::<BTreeSet<_>>(), all.iter().collect());
    }
}
