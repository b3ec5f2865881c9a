//! Simulated savings of a placement.

use crate::Table;
use crate::place::greedy;
use crate::placement::Placement;

/// Simulated cost of the accesses of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Number of row accesses of the batches.
    pub accesses: u64,
    /// Number of accesses to cached rows.
    pub hits: u64,
    /// Bytes transferred between the two memories for misses.
    pub bytes_missed: u64,
    /// Bytes that would be transferred without a cache.
    pub bytes_without: u64,
    /// Time of all misses, in milliseconds.
    pub miss_ms: f64,
}

impl Outcome {
    /// The outcome of a placement, given the accesses of each row by table and vertex.
    ///
    /// # Panics
    /// When the lists do not have the lengths of the placement's tables.
    pub fn of(placement: &Placement, tables: &[Table], accesses: &[Vec<u32>]) -> Outcome {
        let mut all = Outcome::default();
        for ((slots, table), counts) in placement.tables.iter().zip(tables).zip(accesses) {
            assert_eq!(slots.rows(), counts.len(), "the rows of the table");
            let total = counts.iter().map(|&count| u64::from(count)).sum();
            let hits = slots.vertices().iter().map(|&vertex| u64::from(counts[vertex as usize])).sum();
            all.add(&Outcome::of_table(table, total, hits));
        }
        all
    }

    /// The outcome of `accesses` to one table, `hits` of them to cached rows.
    pub fn of_table(table: &Table, accesses: u64, hits: u64) -> Outcome {
        let misses = accesses - hits;
        Outcome {
            accesses,
            hits,
            bytes_missed: misses * table.miss_bytes(),
            bytes_without: accesses * table.miss_bytes(),
            miss_ms: misses as f64 * table.miss_ns * 1e-6,
        }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Outcome) {
        self.accesses += other.accesses;
        self.hits += other.hits;
        self.bytes_missed += other.bytes_missed;
        self.bytes_without += other.bytes_without;
        self.miss_ms += other.miss_ms;
    }

    /// Share of the accesses that were hits; 1 without accesses.
    pub fn hit_rate(&self) -> f64 {
        if self.accesses == 0 { 1.0 } else { self.hits as f64 / self.accesses as f64 }
    }
}

/// Upper bounds over all static placements; each number may need a different placement.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Best {
    /// Highest possible hit rate, from 0 to 1.
    pub hit_rate: f64,
    /// Fewest bytes transferred for misses.
    pub bytes_missed: u64,
    /// Least time of misses, in milliseconds.
    pub miss_ms: f64,
}

/// The bounds for a cache of `bytes` and known accesses, exact up to one row.
pub fn best(bytes: u64, tables: &[Table], accesses: &[Vec<u32>]) -> Best {
    let rows: Vec<usize> = accesses.iter().map(Vec::len).collect();
    let of = |gain: fn(&Table) -> f64| {
        let worth: Vec<f64> = tables.iter().map(|table| gain(table) / table.row_bytes.max(1) as f64).collect();
        let placed = greedy(bytes, tables, &rows, |table, vertex| worth[table] * f64::from(accesses[table][vertex]));
        Outcome::of(&placed, tables, accesses)
    };
    Best {
        hit_rate: of(|_| 1.0).hit_rate(),
        bytes_missed: of(|table| table.miss_bytes() as f64).bytes_missed,
        miss_ms: of(|table| table.miss_ns).miss_ms,
    }
}
