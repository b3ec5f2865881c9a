//! Which processors threads run on.
//!
//! Kernels take less than a millisecond, and a thread that has nothing to do meanwhile sleeps. When it is woken, a system with
//! few processors may put it onto the one where its waker is at work, and move it away only milliseconds later: the work of two
//! threads is done by one. Where there are as many threads as processors, each thread therefore has its own.

/// The processors of the threads of a pool.
///
/// Threads inherit where they may run from the thread that starts them, so each thread that a thread of a pool may start
/// calls [`Processors::bind`] of its own pool, or [`free`].
#[derive(Clone, Debug, Default)]
pub struct Processors {
    own: Vec<usize>,
}

impl Processors {
    /// One for each of so many threads, where the process may use exactly so many. Fewer threads are better off where the
    /// system puts them, because other processes may have as few; more have to take turns anyway.
    pub fn for_threads(threads: usize) -> Self {
        let allowed = system::allowed();
        Self { own: if allowed.len() == threads { allowed } else { vec![] } }
    }

    /// Any for each thread.
    pub fn any() -> Self {
        Self::default()
    }

    /// Keeps the calling thread, of this number in its pool, on its processor. A system that refuses does no harm.
    pub fn bind(&self, number: usize) {
        match self.own.get(number) {
            Some(&own) => system::allow(&[own]),
            None => free(),
        }
    }
}

/// The number of threads of a pool: what is asked for, or, with 0, as many as the system runs at one time.
pub fn threads(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Lets the calling thread run wherever the process may.
pub fn free() {
    system::allow(&system::allowed());
}

/// A pool of so many threads, each on a processor of its own where there are as many. `start` is called by each thread first.
pub fn pool(threads: usize, start: impl Fn() + Send + Sync + 'static) -> rayon::ThreadPoolBuilder {
    let processors = Processors::for_threads(threads);
    rayon::ThreadPoolBuilder::new().num_threads(threads).start_handler(move |number| {
        processors.bind(number);
        start();
    })
}

/// Starts the pool of all that runs outside of a pool of its own, with so many threads (0: one per processor), unless it is there
/// already. Where nobody does, the first use starts it, and panics where threads cannot be started.
///
/// # Errors
/// When so many threads cannot be started.
pub fn start(asked: usize) -> std::io::Result<()> {
    let Err(error) = pool(threads(asked), || {}).build_global() else { return Ok(()) };
    // Without a source the pool is there already.
    match std::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>()) {
        Some(source) => Err(std::io::Error::new(source.kind(), format!("{} threads: {source}", threads(asked)))),
        None => Ok(()),
    }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::process::getpid;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// Those of the first thread of the process, which is never bound.
    pub(super) fn allowed() -> Vec<usize> {
        let set = sched_getaffinity(Some(getpid()));
        set.map_or(vec![], |set| (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
    }

    pub(super) fn allow(processors: &[usize]) {
        let mut set = CpuSet::new();
        processors.iter().for_each(|&processor| set.set(processor));
        if !processors.is_empty() {
            // Where it is refused, the thread stays where it may run now.
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

    /// Where the calling thread may run.
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
