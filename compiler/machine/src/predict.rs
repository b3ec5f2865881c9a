//! How long work takes.

use crate::Machine;

/// What a kernel does.
///
/// Operations are counted by what a processor issues: a multiply-add, any other arithmetic (addition, product,
/// comparison, selection, conversion), and the functions that take a sequence of instructions or a unit of their own
/// (`exp`, `log`, `tanh`, division, square root, …), which cost as much as an `exp`.
///
/// Bytes are counted by footprint: each distinct byte once, however often the kernel reads it. Rows that are read by
/// index are [`Gather`]s and not streamed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Work {
    /// Multiply-adds.
    pub products: f64,
    /// Other arithmetic.
    pub simple: f64,
    /// Special functions.
    pub special: f64,
    /// Distinct bytes read in order.
    pub read: f64,
    /// Distinct bytes written.
    pub written: f64,
    /// Rows read by index.
    pub gathers: Vec<Gather>,
    /// Points where all cores wait for each other.
    pub barriers: f64,
    /// Is there work for one core only?
    pub serial: bool,
    /// Cycles of a core that are neither arithmetic nor memory: beginning a row, finding a row by its index, passing a
    /// value from one part of a kernel to the next. They count where [`Machine::cycle_s`] is not 0.
    pub cycles: f64,
}

/// Rows read by index.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Gather {
    /// How many rows are read, repeats counted.
    pub reads: f64,
    /// How many different rows.
    pub distinct: f64,
    /// Bytes of a row.
    pub row_bytes: f64,
    /// Do indices ascend, and is nothing done with a row but adding it up, so that many are on their way at once? Then a
    /// cache gives them as fast as in order, and rows narrower than a line share it.
    pub ahead: bool,
}

impl Work {
    /// FLOPs: 2 for a multiply-add, 1 for everything else, special functions included.
    pub fn flops(&self) -> f64 {
        2.0 * self.products + self.simple + self.special
    }

    /// Distinct bytes that are read or written.
    pub fn footprint(&self) -> f64 {
        self.read + self.written + self.gathered_footprint()
    }

    /// Bytes of all rows that are gathered, repeats counted.
    pub fn gathered(&self) -> f64 {
        self.gathers.iter().fold(0.0, |sum, g| sum + g.reads * g.row_bytes)
    }

    /// Distinct bytes that are gathered.
    pub fn gathered_footprint(&self) -> f64 {
        self.gathers.iter().fold(0.0, |sum, g| sum + g.distinct * g.row_bytes)
    }

    /// FLOPs per byte of the footprint.
    pub fn intensity(&self) -> f64 {
        if self.footprint() > 0.0 { self.flops() / self.footprint() } else { 0.0 }
    }

    /// Does all of another kernel as well.
    pub fn add(&mut self, other: &Work) {
        self.products += other.products;
        self.simple += other.simple;
        self.special += other.special;
        self.read += other.read;
        self.written += other.written;
        self.gathers.extend(&other.gathers);
        self.barriers += other.barriers;
        self.serial &= other.serial;
        self.cycles += other.cycles;
    }
}

/// What limits a kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// A level of memory, by its position in [`Machine::levels`].
    Memory(usize),
    /// Its beginning and end.
    Launch,
}

/// How long work takes, in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// Arithmetic.
    pub compute_s: f64,
    /// Reading and writing beside arithmetic.
    pub memory_s: f64,
    /// Reading and writing that is waited for.
    pub waiting_s: f64,
    /// Beginning, end and barriers.
    pub launch_s: f64,
    /// The level of memory that the footprint fits.
    pub level: usize,
    /// What limits it.
    pub bound: Bound,
}

impl Prediction {
    /// `max(bytes / bandwidth, flops / peak) + waiting + launch`, where bytes are those that it does not wait for.
    pub fn seconds(&self) -> f64 {
        self.compute_s.max(self.memory_s) + self.waiting_s + self.launch_s
    }
}

/// What of the time that memory shared by all cores needs a processor's kernel waits for. A core overlaps its memory and its
/// arithmetic by what its instructions in flight and its prefetchers are ahead, which is enough for its own caches, and not
/// beyond. Found by kernels that were run with all that they touch in the caches of their core
/// (`tests/bench/predict.py`).
mod waits {
    /// In order: prefetchers are ahead.
    pub const IN_ORDER: f64 = 0.6;
    /// Rows by index from a cache.
    pub const ROWS_OF_CACHE: f64 = 1.0;
    /// Rows by index from memory. The rate that is measured is that of reading only, each address known long before.
    pub const ROWS_OF_MEMORY: f64 = 1.9;
}

impl Machine {
    /// How long a kernel takes.
    ///
    /// Arithmetic: a multiply-add and any other simple operation take the same time, special functions their own.
    /// Memory: the footprint at the streaming bandwidth of the level that it fits, and gathers at the gather bandwidth
    /// of the level that the gathered rows fit, each row rounded up to whole lines; the first fetch of a gathered
    /// row is part of the footprint, so of the two costs of gathering the larger counts.
    ///
    /// Arithmetic hides what is in the caches of a core. Of what all cores share, most is waited for, unless the machine has
    /// other threads to run meanwhile ([`Machine::cycle_s`] is 0): then arithmetic hides all.
    ///
    /// What it waits for limits it where that is more than all else.
    pub fn predict(&self, work: &Work) -> Prediction {
        let share = if work.serial { self.fma_flops_one_core / self.fma_flops } else { 1.0 };
        let simple_per_s = 0.5 * self.fma_flops * share;
        let compute_s = (work.products + work.simple) / simple_per_s
            + work.special / (self.special_per_s * share)
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
        // What is beside arithmetic, and what is waited for.
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

    /// `compute`, `launch`, or the name of a level of memory.
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
    use crate::{FORMAT, MemoryLevel};

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
            cores: 2,
            fma_flops: 2e9,
            fma_flops_one_core: 1e9,
            special_per_s: 1e8,
            line_bytes: 64,
            launch_s: 1e-9,
            barrier_s: 1e-8,
            cycle_s: 0.0,
            tensor: None,
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
        // 10 rows of 80 bytes, two lines each, read 1000 times, beside 1 MB in order.
        let gather = Gather { reads: 1000.0, distinct: 10.0, row_bytes: 80.0, ahead: false };
        let work = Work { read: 1e6, gathers: vec![gather], ..Work::default() };
        assert_eq!((work.gathered(), work.footprint()), (80_000.0, 1_000_800.0));
        let found = machine().predict(&work);
        assert_eq!((found.level, found.bound), (1, Bound::Memory(1)));
        assert!(close(found.memory_s, 1e6 / 1e9 + 1000.0 * 128.0 / 5e9), "{found:?}");
        // Of 100 rows one core cannot keep all.
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
        // A thousand rows from memory come on top.
        let far = Gather { reads: 1000.0, distinct: 1000.0, row_bytes: 64.0, ahead: false };
        let found = machine.predict(&Work { gathers: vec![far], ..work.clone() });
        let in_order = waits::IN_ORDER * 1e5 / 1e9;
        assert!(close(found.waiting_s, waits::ROWS_OF_MEMORY * 64_000.0 / 5e8 + in_order), "{found:?}");
        assert!(close(found.seconds(), found.compute_s + found.waiting_s + machine.launch_s));
        assert_eq!(found.bound, Bound::Compute);
        // From the caches of a core they do not.
        let near = Gather { distinct: 10.0, ..far };
        let found = machine.predict(&Work { gathers: vec![near], ..work.clone() });
        assert!(close(found.waiting_s, in_order + waits::IN_ORDER * 640.0 / 1e9), "their first fetch: {found:?}");
        assert!(close(found.memory_s, 64_000.0 / 5e9), "{found:?}");
        // Sums of stored elements are as fast as in order, and share lines.
        let ahead = Gather { row_bytes: 4.0, ahead: true, ..near };
        let found = machine.predict(&Work { gathers: vec![ahead], ..work.clone() });
        assert!(close(found.memory_s, 4_000.0 / 1e10), "{found:?}");
        // Where it waits for longer than all else takes, that limits it.
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
