//! Hardware and operating system counters of launches.
//!
//! On Linux every thread of the engine opens counters for itself (`perf_event_open`, user mode only), and the launching
//! thread reads all of them between launches. Where counters are missing or not permitted, the result says so with the
//! reason; it is not an error.

use std::time::Duration;

/// An event that is counted per thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "variants and fields are named for what they hold")]
pub enum Event {
    Cycles,
    Instructions,
    /// Read misses in the L1 data cache.
    L1dMisses,
    /// Misses in the last-level cache.
    LlcMisses,
    PageFaults,
    /// Context switches, voluntary or not.
    ContextSwitches,
}

impl Event {
    /// All events; hardware events first.
    pub const ALL: [Event; 6] = [
        Event::Cycles,
        Event::Instructions,
        Event::L1dMisses,
        Event::LlcMisses,
        Event::PageFaults,
        Event::ContextSwitches,
    ];

    /// Name in texts and reports.
    pub fn name(self) -> &'static str {
        match self {
            Event::Cycles => "cycles",
            Event::Instructions => "instructions",
            Event::L1dMisses => "l1d_misses",
            Event::LlcMisses => "llc_misses",
            Event::PageFaults => "page_faults",
            Event::ContextSwitches => "context_switches",
        }
    }

    /// Whether the hardware counts it, not the operating system.
    pub fn is_hardware(self) -> bool {
        !matches!(self, Event::PageFaults | Event::ContextSwitches)
    }
}

/// Unavailable events with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Missing {
    pub events: Vec<Event>,
    /// Reason, and a remedy.
    pub reason: String,
}

/// Counters of the steps of a program, prelude first.
#[derive(Debug)]
pub struct Counting {
    threads: Vec<imp::Thread>,
    events: Vec<Event>,
    missing: Vec<Missing>,
    last: Vec<f64>,
    /// Counts by step and event.
    steps: Vec<Vec<f64>>,
    /// Number of counted runs.
    pub runs: u64,
}

impl Counting {
    /// Opens counters on all threads of a pool, for a program with `steps` steps.
    pub fn new(pool: &rayon::ThreadPool, steps: usize) -> Self {
        let mut threads = pool.broadcast(|_| imp::Thread::open());
        // If an event fails on one thread, it is missing for all.
        let events: Vec<Event> =
            Event::ALL.into_iter().filter(|&event| threads.iter().all(|thread| thread.has(event))).collect();
        let mut missing: Vec<Missing> = vec![];
        for event in Event::ALL.into_iter().filter(|event| !events.contains(event)) {
            let reason = threads.iter().find_map(|thread| thread.why_not(event)).unwrap_or_default();
            match missing.iter_mut().find(|known| known.reason == reason) {
                Some(known) => known.events.push(event),
                None => missing.push(Missing { events: vec![event], reason }),
            }
        }
        threads.iter_mut().for_each(|thread| thread.enable(&events));
        let mut counting =
            Self { threads, missing, last: vec![], steps: vec![vec![0.0; events.len()]; steps], events, runs: 0 };
        counting.last = counting.read();
        counting
    }

    /// Sums over all threads.
    fn read(&mut self) -> Vec<f64> {
        let mut sums = vec![0.0; self.events.len()];
        for thread in &mut self.threads {
            for (sum, count) in sums.iter_mut().zip(thread.read(&self.events)) {
                *sum += count;
            }
        }
        sums
    }

    /// Reads the counters as the base of the next difference.
    pub fn begin(&mut self) {
        self.last = self.read();
    }

    /// Attributes the counts since [`Counting::begin`] to these steps, by their shares.
    pub fn end(&mut self, shares: impl Iterator<Item = (usize, f64)>) {
        let now = self.read();
        for (step, share) in shares {
            for ((sum, now), last) in self.steps[step].iter_mut().zip(&now).zip(&self.last) {
                *sum += share * (now - last).max(0.0);
            }
        }
    }

    /// Available events, missing events, and counts per run by step.
    pub fn finish(self) -> (Vec<Event>, Vec<Missing>, Vec<Vec<f64>>) {
        let runs = self.runs.max(1) as f64;
        let mean = |counts: Vec<f64>| counts.into_iter().map(|count| count / runs).collect();
        (self.events, self.missing, self.steps.into_iter().map(mean).collect())
    }
}

/// Extrapolates a count that was multiplexed, i.e. active for a part of the time only.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn scaled(count: u64, enabled: Option<Duration>, running: Option<Duration>) -> f64 {
    match (enabled, running) {
        (Some(enabled), Some(running)) if running > Duration::ZERO => {
            count as f64 * (enabled.as_secs_f64() / running.as_secs_f64()).max(1.0)
        }
        _ => count as f64,
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;

    use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
    use perf_event::{Builder, Counter};

    use super::{Event, scaled};

    /// Counters of a thread, or the reasons why they are missing.
    #[derive(Debug)]
    pub struct Thread(Vec<(Event, Result<Counter, String>)>);

    impl Thread {
        /// Opens counters for the calling thread.
        pub fn open() -> Self {
            Self(Event::ALL.map(|event| (event, open(event).map_err(|error| reason(event, &error)))).into())
        }

        pub fn has(&self, event: Event) -> bool {
            self.0.iter().any(|(known, counter)| *known == event && counter.is_ok())
        }

        pub fn why_not(&self, event: Event) -> Option<String> {
            let (_, counter) = self.0.iter().find(|(known, _)| *known == event)?;
            counter.as_ref().err().cloned()
        }

        /// Starts counting these events on this thread.
        pub fn enable(&mut self, events: &[Event]) {
            for (event, counter) in &mut self.0 {
                if let (true, Ok(counter)) = (events.contains(event), counter) {
                    // A counter that cannot be enabled stays at zero.
                    let _ = counter.enable();
                }
            }
        }

        /// Counts in the order of the events.
        pub fn read(&mut self, events: &[Event]) -> Vec<f64> {
            let counters = self.0.iter_mut().filter(|(event, _)| events.contains(event));
            let counts = counters.map(|(_, counter)| match counter.as_mut().map(Counter::read_full) {
                Ok(Ok(data)) => scaled(data.count(), data.time_enabled(), data.time_running()),
                _ => 0.0,
            });
            counts.collect()
        }
    }

    fn open(event: Event) -> io::Result<Counter> {
        match event {
            Event::Cycles => Builder::new(Hardware::CPU_CYCLES).build(),
            Event::Instructions => Builder::new(Hardware::INSTRUCTIONS).build(),
            Event::L1dMisses => {
                let misses = Cache { which: CacheId::L1D, operation: CacheOp::READ, result: CacheResult::MISS };
                Builder::new(misses).build()
            }
            Event::LlcMisses => Builder::new(Hardware::CACHE_MISSES).build(),
            Event::PageFaults => Builder::new(Software::PAGE_FAULTS).build(),
            // Context switches are kernel events, which `perf_event_paranoid` may forbid.
            Event::ContextSwitches => Builder::new(Software::CONTEXT_SWITCHES)
                .include_kernel()
                .build()
                .or_else(|_| Builder::new(Software::CONTEXT_SWITCHES).build()),
        }
    }

    /// Reason why a counter cannot be opened, with a remedy.
    fn reason(event: Event, error: &io::Error) -> String {
        let setting = || {
            std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
                .map_or(String::new(), |level| format!(" (kernel.perf_event_paranoid is {})", level.trim()))
        };
        match error.kind() {
            io::ErrorKind::PermissionDenied => format!(
                "not permitted{}: `sysctl kernel.perf_event_paranoid=2` or the capability CAP_PERFMON allows it, and in \
                 a container a seccomp profile with perf_event_open",
                setting()
            ),
            io::ErrorKind::NotFound | io::ErrorKind::Unsupported if event.is_hardware() => {
                "the processor offers no such counter: virtual machines often have no PMU, unless their host passes it \
                 on (for KVM with `-cpu host,pmu=on`)"
                    .into()
            }
            _ => format!("perf_event_open: {error}"),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::Event;

    /// Counters are unavailable on this platform.
    #[derive(Debug)]
    pub struct Thread;

    impl Thread {
        pub fn open() -> Self {
            Self
        }

        pub fn has(&self, _: Event) -> bool {
            false
        }

        pub fn why_not(&self, _: Event) -> Option<String> {
            Some("counters are read on Linux only".into())
        }

        pub fn enable(&mut self, _: &[Event]) {}

        pub fn read(&mut self, _: &[Event]) -> Vec<f64> {
            vec![]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_counted_or_missing_with_a_reason() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("two threads");
        let mut counting = Counting::new(&pool, 2);
        counting.begin();
        let fresh = std::hint::black_box(vec![1u8; 1 << 20]);
        counting.end([(0, 0.25), (1, 0.75)].into_iter());
        counting.runs = 1;
        drop(fresh);
        let (events, missing, steps) = counting.finish();
        let mut all: Vec<Event> = events.iter().chain(missing.iter().flat_map(|it| &it.events)).copied().collect();
        all.sort_unstable();
        assert_eq!(all, Event::ALL);
        assert!(missing.iter().all(|it| !it.reason.is_empty()), "{missing:?}");
        assert!(steps.len() == 2 && steps.iter().all(|step| step.len() == events.len()));
        for (quarter, rest) in steps[0].iter().zip(&steps[1]) {
            assert!((3.0 * quarter - rest).abs() <= 1e-9 * rest.abs(), "{steps:?}");
        }
    }

    #[test]
    fn counts_of_a_part_of_the_time_are_scaled() {
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(scaled(100, ms(4), ms(1)), 400.0);
        assert_eq!(scaled(100, ms(4), ms(4)), 100.0);
        assert_eq!(scaled(0, ms(4), ms(0)), 0.0);
        assert_eq!(scaled(7, None, None), 7.0);
    }
}
