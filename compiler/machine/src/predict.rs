//! The roofline model: predicts the run time of a kernel from its work.

use crate::Machine;

/// The work of a kernel.
///
/// Operations are counted by issue cost: multiply-adds, other arithmetic (addition, product, comparison, selection,
/// conversion), and special functions, which take an instruction sequence or a special unit (`exp`, `log`, `tanh`,
/// division, square root, …) and are all priced as an `exp`.
///
/// Bytes are counted by footprint: each distinct byte once, no matter how often it is read. Rows read by index are
/// counted as [`Gather`]s, not as streamed bytes.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Work {
    /// Number of multiply-adds, fused or not.
    pub products: f64,
    /// Number of other arithmetic operations.
    pub simple: f64,
    /// Number of special function evaluations.
    pub special: f64,
    /// Distinct bytes read sequentially.
    pub read: f64,
    /// Distinct bytes written sequentially.
    pub written: f64,
    /// Row gathers, with their reuse.
    pub gathers: Vec<Gather>,
    /// Number of barriers among all cores.
    pub barriers: f64,
    /// Does the work run on one core only?
    pub serial: bool,
    /// Comparisons of sorting: `n log2 n` for `n` keys.
    pub comparisons: f64,
    /// Steps of binary searches: `log2 n` in `n` numbers.
    pub search_steps: f64,
    /// Overhead cycles of a core beyond arithmetic and memory: starting a row, locating a row by its index, passing a
    /// value between the parts of a kernel. They count if [`Machine::cycle_s`] is not 0.
    pub cycles: f64,
}

/// Rows of a buffer that are read by index.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Gather {
    /// Number of row reads, repeats included.
    pub reads: f64,
    /// Number of distinct rows read.
    pub distinct: f64,
    /// Size of a row in bytes.
    pub row_bytes: f64,
    /// Are the indices ascending and the rows only summed, so that many loads are in flight? Then a cache delivers them
    /// at streaming bandwidth, and rows narrower than a cache line share it.
    pub ahead: bool,
}

impl Work {
    /// FLOPs: 2 per multiply-add, 1 per other operation, special functions included.
    pub fn flops(&self) -> f64 {
        2.0 * self.products + self.simple + self.special
    }

    /// Distinct bytes streamed, read or written.
    pub fn footprint(&self) -> f64 {
        self.read + self.written + self.gathered_footprint()
    }

    /// Bytes of all gathered rows, repeats included.
    pub fn gathered(&self) -> f64 {
        self.gathers.iter().fold(0.0, |sum, g| sum + g.reads * g.row_bytes)
    }

    /// Bytes of all distinct gathered rows.
    pub fn gathered_footprint(&self) -> f64 {
        self.gathers.iter().fold(0.0, |sum, g| sum + g.distinct * g.row_bytes)
    }

    /// Arithmetic intensity: FLOPs per byte of footprint.
    pub fn intensity(&self) -> f64 {
        if self.footprint() > 0.0 { self.flops() / self.footprint() } else { 0.0 }
    }

    /// Adds the work of another kernel.
    pub fn add(&mut self, other: &Work) {
        self.products += other.products;
        self.simple += other.simple;
        self.special += other.special;
        self.read += other.read;
        self.written += other.written;
        self.gathers.extend(&other.gathers);
        self.barriers += other.barriers;
        self.serial &= other.serial;
        self.comparisons += other.comparisons;
        self.search_steps += other.search_steps;
        self.cycles += other.cycles;
    }
}

/// The resource that bounds a kernel's run time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bound {
    /// Compute-bound: the arithmetic units.
    Compute,
    /// Memory-bound, by a level of [`Machine::levels`].
    Memory(usize),
    /// Latency-bound by the launch itself.
    Launch,
}

/// The predicted run time of a kernel and its parts, in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// Time of the arithmetic units.
    pub compute_s: f64,
    /// Memory time that overlaps with arithmetic.
    pub memory_s: f64,
    /// Memory time that does not overlap with arithmetic (exposed latency).
    pub waiting_s: f64,
    /// Time of the launch and of barriers.
    pub launch_s: f64,
    /// The innermost memory level that holds the footprint.
    pub level: usize,
    /// The resource that bounds the run time.
    pub bound: Bound,
}

impl Prediction {
    /// `max(compute, memory) + waiting + launch`, where memory is the part that overlaps with compute.
    pub fn seconds(&self) -> f64 {
        self.compute_s.max(self.memory_s) + self.waiting_s + self.launch_s
    }
}

/// Fraction of shared-memory (L3 or DRAM) time that is not overlapped with compute on a CPU. Out-of-order execution and
/// prefetchers hide the latency of a core's private caches, but not of shared levels. Measured against kernels whose
/// data fits the private caches (`tests/bench/predict.py`).
mod waits {
    /// Sequential accesses, which prefetchers cover.
    pub const IN_ORDER: f64 = 0.6;
    /// Row gathers from a shared cache.
    pub const ROWS_OF_CACHE: f64 = 1.0;
    /// Row gathers from main memory. Above 1, since the measured gather bandwidth is that of pure reads with
    /// addresses known far ahead.
    pub const ROWS_OF_MEMORY: f64 = 1.9;
}

impl Machine {
    /// Predicts the run time of a kernel.
    ///
    /// Compute: multiply-adds and simple operations cost the same, special functions have their own throughput. Memory:
    /// the footprint at the streaming bandwidth of the level that holds it, and gathers at the gather bandwidth of the
    /// level that holds the gathered rows, each row rounded up to whole cache lines. The first fetch of a gathered row
    /// is part of the footprint, so gathers cost the larger of the two times.
    ///
    /// Accesses to private caches overlap with compute. Accesses to shared levels are mostly exposed, unless the
    /// machine hides latency by multithreading ([`Machine::cycle_s`] is 0): then all memory time overlaps.
    ///
    /// Exposed memory time determines the bound if it exceeds everything else.
    pub fn predict(&self, work: &Work) -> Prediction {
        let share = if work.serial { self.fma_flops_one_core / self.fma_flops } else { 1.0 };
        let simple_per_s = 0.5 * self.fma_flops * share;
        let compute_s = (work.products + work.simple) / simple_per_s
            + work.special / (self.special_per_s * share)
            + self.sorting_s(work) / share
            + work.cycles * self.cycle_s / if work.serial { 1.0 } else { f64::from(self.cores) };

        let level = self.level_of_shares(work.footprint());
        let outer = &self.levels[level];
        let stream_s = (work.read + work.written) / outer.stream_bytes_per_s;
        let inner = self.level_of_common(work.gathered_footprint());
        let line = f64::from(self.line_bytes);
        let of_cache = inner + 1 < self.levels.len();
        let is_ahead = |g: &Gather| self.cycle_s > 0.0 && of_cache && g.ahead;
        let lines = |g: &Gather| match is_ahead(g) && g.row_bytes < line {
            true => g.reads * g.row_bytes,
            false => g.reads * (g.row_bytes / line).ceil() * line,
        };
        let lines = |ahead: bool| work.gathers.iter().filter(|g| is_ahead(g) == ahead).map(lines).sum::<f64>();
        let ahead_s = lines(true) / self.levels[inner].stream_bytes_per_s;
        let rows_s = lines(false) / self.levels[inner].gather_bytes_per_s;
        let fetch_s = work.gathered_footprint() / outer.stream_bytes_per_s;
        let is_waited_for = |level: usize| self.cycle_s > 0.0 && self.levels[level].shared;
        let of_rows = if of_cache { waits::ROWS_OF_CACHE } else { waits::ROWS_OF_MEMORY };
        // Splits memory time into an overlapped and an exposed part.
        let parts = |level: usize, seconds: f64, part: f64| match is_waited_for(level) {
            true => (0.0, part * seconds),
            false => (seconds, 0.0),
        };
        let (stream, fetch) = (parts(level, stream_s, waits::IN_ORDER), parts(level, fetch_s, waits::IN_ORDER));
        let rows = parts(inner, rows_s, of_rows);
        let rows = (rows.0 + ahead_s, rows.1);
        let memory_s = stream.0 + rows.0.max(fetch.0);
        let waiting_s = stream.1 + rows.1.max(fetch.1);

        let launch_s = self.launch_s + work.barriers * self.barrier_s;
        let (beside_s, rows_s, fetch_s, stream_s) = match waiting_s > compute_s.max(memory_s) {
            true => (waiting_s, rows.1, fetch.1, stream.1),
            false => (memory_s, rows.0, fetch.0, stream.0),
        };
        let bound = if launch_s >= compute_s.max(beside_s) {
            Bound::Launch
        } else if compute_s >= beside_s {
            Bound::Compute
        } else {
            Bound::Memory(if rows_s > fetch_s && rows_s > stream_s { inner } else { level })
        };
        Prediction { compute_s, memory_s, waiting_s, launch_s, level, bound }
    }

    /// Time of sorts and searches on all cores. A machine without rates for them is as slow at a comparison as at a
    /// special function.
    fn sorting_s(&self, work: &Work) -> f64 {
        let (comparisons_per_s, steps_per_s) = self
            .sorting
            .map_or((self.special_per_s, self.special_per_s), |rates| (rates.comparisons_per_s, rates.steps_per_s));
        work.comparisons / comparisons_per_s + work.search_steps / steps_per_s
    }

    /// `compute`, `launch`, or the name of a memory level.
    pub fn bound_name(&self, bound: Bound) -> &str {
        match bound {
            Bound::Compute => "compute",
            Bound::Launch => "launch",
            Bound::Memory(level) => self.levels.get(level).map_or("memory", |level| &level.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, FORMAT, MemoryLevel};

    /// Round numbers: 2 GFLOP/s, half of it on one core, 0.1 G special functions; a cache of 1 KB per core.
    fn machine() -> Machine {
        let level = |name: &str, bytes, shared, stream, gather| MemoryLevel {
            name: name.into(),
            bytes,
            shared,
            stream_bytes_per_s: stream,
            gather_bytes_per_s: gather,
        };
        Machine {
            format: FORMAT,
            name: "round".into(),
            target: "cpu".into(),
            capabilities: Capabilities::cpu(),
            cores: 2,
            fma_flops: 2e9,
            fma_flops_one_core: 1e9,
            special_per_s: 1e8,
            line_bytes: 64,
            launch_s: 1e-9,
            barrier_s: 1e-8,
            cycle_s: 0.0,
            tensor: None,
            sorting: None,
            levels: vec![level("L1", 1e3, false, 1e10, 5e9), level("DRAM", 1e9, true, 1e9, 5e8)],
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs()
    }

    #[test]
    fn arithmetic_by_what_is_issued() {
        let work = Work { products: 1e6, simple: 2e6, special: 1e6, serial: true, ..Work::default() };
        assert_eq!(work.flops(), 5e6);
        let found = machine().predict(&work);
        // Half of 1 GFLOP/s for 3 M operations, and half of 0.1 G/s for 1 M special functions.
        assert!(close(found.compute_s, 3e6 / 0.5e9 + 1e6 / 0.5e8), "{found:?}");
        assert_eq!(found.bound, Bound::Compute);
        let parallel = machine().predict(&Work { serial: false, ..work });
        assert!(close(parallel.compute_s, found.compute_s / 2.0));
    }

    #[test]
    fn gathers_are_served_by_the_level_that_their_rows_fit() {
        // 10 rows of 80 bytes (two cache lines each), read 1000 times, next to 1 MB of streaming.
        let gather = Gather { reads: 1000.0, distinct: 10.0, row_bytes: 80.0, ahead: false };
        let work = Work { read: 1e6, gathers: vec![gather], ..Work::default() };
        assert_eq!((work.gathered(), work.footprint()), (80_000.0, 1_000_800.0));
        let found = machine().predict(&work);
        assert_eq!((found.level, found.bound), (1, Bound::Memory(1)));
        assert!(close(found.memory_s, 1e6 / 1e9 + 1000.0 * 128.0 / 5e9), "{found:?}");
        // 100 rows exceed the private cache of a core.
        let many = Work { gathers: vec![Gather { distinct: 100.0, ..gather }], ..work };
        assert!(close(machine().predict(&many).memory_s, 1e6 / 1e9 + 1000.0 * 128.0 / 5e8));
        // Rows that are read once cost at least their first fetch.
        let once = Gather { reads: 100.0, distinct: 100.0, row_bytes: 1.0, ahead: false };
        let work = Work { read: 1e6, gathers: vec![once], ..Work::default() };
        assert!(close(machine().predict(&work).memory_s, 1e6 / 1e9 + 100.0 * 64.0 / 5e9));
    }

    #[test]
    fn a_processor_spends_cycles_and_waits_for_rows_from_memory() {
        let machine = Machine { cycle_s: 1e-9, ..machine() };
        let work = Work { products: 1e6, read: 1e5, cycles: 3e6, ..Work::default() };
        let found = machine.predict(&work);
        assert!(close(found.compute_s, 1e6 / 1e9 + 3e6 * 1e-9 / 2.0), "two cores share the cycles: {found:?}");
        assert_eq!(found.bound, Bound::Compute);
        assert!(close(machine.predict(&Work { serial: true, ..work.clone() }).compute_s, 1e6 / 0.5e9 + 3e6 * 1e-9));
        // A thousand rows gathered from main memory add exposed time.
        let far = Gather { reads: 1000.0, distinct: 1000.0, row_bytes: 64.0, ahead: false };
        let found = machine.predict(&Work { gathers: vec![far], ..work.clone() });
        let in_order = waits::IN_ORDER * 1e5 / 1e9;
        assert!(close(found.waiting_s, waits::ROWS_OF_MEMORY * 64_000.0 / 5e8 + in_order), "{found:?}");
        assert!(close(found.seconds(), found.compute_s + found.waiting_s + machine.launch_s));
        assert_eq!(found.bound, Bound::Compute);
        // Gathers from private caches add none.
        let near = Gather { distinct: 10.0, ..far };
        let found = machine.predict(&Work { gathers: vec![near], ..work.clone() });
        assert!(close(found.waiting_s, in_order + waits::IN_ORDER * 640.0 / 1e9), "their first fetch: {found:?}");
        assert!(close(found.memory_s, 64_000.0 / 5e9), "{found:?}");
        // Sums of stored elements stream, and share cache lines.
        let ahead = Gather { row_bytes: 4.0, ahead: true, ..near };
        let found = machine.predict(&Work { gathers: vec![ahead], ..work.clone() });
        assert!(close(found.memory_s, 4_000.0 / 1e10), "{found:?}");
        // Exposed time that exceeds everything else is the bound.
        let found = machine.predict(&Work { gathers: vec![Gather { reads: 1e5, ..far }], ..work });
        assert_eq!(found.bound, Bound::Memory(1));
    }

    #[test]
    fn small_kernels_are_bound_by_their_launch() {
        let found = machine().predict(&Work { barriers: 1.0, read: 1.0, ..Work::default() });
        assert_eq!(found.bound, Bound::Launch);
        assert!(close(found.seconds(), 1e-9 + 1e-8 + 1.0 / 1e10));
        assert_eq!(machine().bound_name(Bound::Memory(1)), "DRAM");
    }
}
