//! When launches and their tasks ran, and on which thread.

use std::sync::Mutex;
use std::time::Instant;

/// Tasks of one step that follow each other on a thread in fewer nanoseconds are noted as one.
const GAP_NS: u64 = 2_000;

/// A launch that ran. Its steps are counted through the prelude and the steps of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelSpan {
    /// The first of its steps.
    pub first: usize,
    /// How many there are.
    pub steps: usize,
    /// When it began.
    pub start: Instant,
    /// When all of its tasks were done.
    pub end: Instant,
}

/// Tasks of one step that a thread executed, one right after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskSpan {
    /// The step, counted through the prelude and the steps of a run.
    pub step: usize,
    /// Number of tasks.
    pub tasks: u64,
    /// When the first one began.
    pub start: Instant,
    /// When the last one ended.
    pub end: Instant,
}

/// Launches, and the tasks of each thread.
#[derive(Debug)]
pub(crate) struct Spans {
    /// In their order.
    pub launches: Vec<KernelSpan>,
    /// By thread, in their order.
    threads: Vec<Mutex<Vec<TaskSpan>>>,
}

impl Spans {
    /// Of so many threads.
    pub fn new(threads: usize) -> Self {
        Self { launches: vec![], threads: std::iter::repeat_with(Mutex::default).take(threads.max(1)).collect() }
    }

    /// Notes a task of the calling thread, which is done.
    pub fn task(&self, step: usize, start: Instant) {
        let end = Instant::now();
        let thread = rayon::current_thread_index().unwrap_or(0).min(self.threads.len() - 1);
        // Each thread has its own: nobody waits, and nobody can have panicked with it.
        let Ok(mut own) = self.threads[thread].lock() else { return };
        match own.last_mut() {
            Some(last)
                if last.step == step && start.saturating_duration_since(last.end).as_nanos() < u128::from(GAP_NS) =>
            {
                (last.end, last.tasks) = (end, last.tasks + 1);
            }
            _ => own.push(TaskSpan { step, tasks: 1, start, end }),
        }
    }

    /// The tasks of each thread.
    pub fn into_parts(self) -> (Vec<KernelSpan>, Vec<Vec<TaskSpan>>) {
        let tasks = self.threads.into_iter().map(|own| own.into_inner().unwrap_or_default()).collect();
        (self.launches, tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_a_step_are_one_span_until_another_step_comes() {
        let spans = Spans::new(1);
        let start = Instant::now();
        spans.task(3, start);
        spans.task(3, Instant::now());
        spans.task(4, Instant::now());
        spans.task(3, Instant::now());
        let (_, tasks) = spans.into_parts();
        let found: Vec<(usize, u64)> = tasks[0].iter().map(|span| (span.step, span.tasks)).collect();
        assert_eq!(found, [(3, 2), (4, 1), (3, 1)]);
        assert!(tasks[0].is_sorted_by(|a, b| a.end <= b.start));
    }
}
