//! Spans of launches and tasks, by thread.

use std::sync::Mutex;
use std::time::Instant;

/// Consecutive tasks of one step on a thread with a gap shorter than this many nanoseconds are one span.
const GAP_NS: u64 = 2_000;

/// Span of a launch. Steps are numbered through the prelude and the steps of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct KernelSpan {
    /// Index of its first step.
    pub first: usize,
    /// Number of its steps.
    pub steps: usize,
    pub start: Instant,
    /// End of its last task.
    pub end: Instant,
}

/// Span of consecutive tasks of one step on a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct TaskSpan {
    /// Index of the step, through the prelude and the steps of a run.
    pub step: usize,
    pub tasks: u64,
    pub start: Instant,
    pub end: Instant,
}

/// Spans of launches, and of the tasks of each thread.
#[derive(Debug)]
pub struct Spans {
    /// Spans of launches, in order.
    pub launches: Vec<KernelSpan>,
    /// Task spans by thread, in order.
    threads: Vec<Mutex<Vec<TaskSpan>>>,
}

impl Spans {
    /// Empty spans for this many threads.
    pub fn new(threads: usize) -> Self {
        Self { launches: vec![], threads: std::iter::repeat_with(Mutex::default).take(threads.max(1)).collect() }
    }

    /// Records a finished task of the calling thread.
    pub fn task(&self, step: usize, start: Instant) {
        let end = Instant::now();
        let thread = rayon::current_thread_index().unwrap_or(0).min(self.threads.len() - 1);
        // Uncontended, and never poisoned: each thread locks only its own.
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

    /// Launch spans, and the task spans of each thread.
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
        // However long the thread is away from the processor, there is no gap between these two.
        spans.task(3, start);
        spans.task(4, Instant::now());
        spans.task(3, Instant::now());
        let (_, tasks) = spans.into_parts();
        let found: Vec<(usize, u64)> = tasks[0].iter().map(|span| (span.step, span.tasks)).collect();
        assert_eq!(found, [(3, 2), (4, 1), (3, 1)]);
        assert!(tasks[0].is_sorted_by(|a, b| a.end <= b.start));
    }
}
