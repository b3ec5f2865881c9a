//! Tasks on the threads of the pool.

use rayon::prelude::*;

/// Runs tasks `0..tasks` on the threads of the pool.
pub(crate) fn parallel(tasks: usize, task: impl Fn(usize) + Sync + Send) {
    if tasks <= 1 || rayon::current_num_threads() == 1 {
        (0..tasks).for_each(task);
    } else {
        (0..tasks).into_par_iter().with_max_len(1).for_each(task);
    }
}
