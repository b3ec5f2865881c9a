//! What a placement saves.

use crate::Table;
use crate::place::greedy;
use crate::placement::Placement;

/// What happened, or would have happened, to the accesses of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Rows that batches needed.
    pub accesses: u64,
    /// Of them, those in the fast memory.
    pub hits: u64,
    /// Bytes between the two memories for the others.
    pub bytes_missed: u64,
    /// The same if nothing were kept.
    pub bytes_without: u64,
    /// Milliseconds of misses, by the time of each.
    pub miss_ms: f64,
}

impl Outcome {
    /// Of a placement and how often each row was needed, by table and vertex.
    ///
    /// # Panics
    /// When these are not the rows of the placement.
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

    /// Of so many accesses to one table, of which so many were hits.
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

    /// Both together.
    pub fn add(&mut self, other: &Outcome) {
        self.accesses += other.accesses;
        self.hits += other.hits;
        self.bytes_missed += other.bytes_missed;
        self.bytes_without += other.bytes_without;
        self.miss_ms += other.miss_ms;
    }

    /// Part of the accesses that were hits; 1 where there were none.
    pub fn hit_rate(&self) -> f64 {
        if self.accesses == 0 { 1.0 } else { self.hits as f64 / self.accesses as f64 }
    }
}

/// The most that any placement, which nothing changes while training goes on, could have done: each number by a placement of its
/// own.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Best {
    /// Highest hit rate.
    pub hit_rate: f64,
    /// Fewest bytes.
    pub bytes_missed: u64,
    /// Shortest time.
    pub miss_ms: f64,
}

/// The best that so many bytes could have done with known accesses, but for less than a row.
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
