//! Estimates the bytes that gathers read from memory, by simulating an LRU cache of a given size.
//!
//! A traversal visits its rows one after another and reads one row per edge. The order of the visits decides which of
//! them are still cached. Only a sample of the gathered rows is simulated, chosen by a hash of their ids, in a cache
//! scaled down by the same factor (SHARDS: Waldspurger, Park, Garthwaite, Ahmad, FAST 2015, §3). The sample does not
//! depend on the order, so two orders are compared on the same rows.

use std::collections::BTreeMap;

use super::{Gather, Order, adjacency};

/// Bytes of a cache line.
const LINE: f64 = 64.0;
/// Smallest sample of a table, in rows (all rows of a smaller table): gives an error of about one per cent.
const FOLLOWED: f64 = 32_768.0;

/// The bytes that a gather reads from memory with an LRU cache of `cache_bytes`. `owners` orders the rows of the
/// traversal, `others` the gathered rows; `None` is the identity.
pub fn missed_bytes(gather: &Gather<'_>, owners: Option<&Order>, others: Option<&Order>, cache_bytes: f64) -> f64 {
    // Rows shorter than a line share it with their neighbours. Widths with the same number of rows per line are
    // simulated together.
    let mut by_line: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    let mut missed = 0.0;
    for &(row_bytes, times) in &gather.rows {
        let per_line = (LINE / row_bytes).floor().max(1.0) as u32;
        let (unit_bytes, units) = (row_bytes.max(LINE), gather.num_others.div_ceil(per_line as usize));
        if units as f64 * unit_bytes <= cache_bytes {
            // Compulsory misses: each line is read once.
            missed += times * units.min(gather.other.len()) as f64 * unit_bytes;
        } else {
            by_line.entry(per_line).or_default().push((unit_bytes, times));
        }
    }
    missed
        + by_line.iter().map(|(&line, units)| followed(gather, owners, others, cache_bytes, line, units)).sum::<f64>()
}

/// Simulates a sample of units of `per_line` rows, given by (bytes, reads per epoch).
fn followed(
    gather: &Gather<'_>,
    owners: Option<&Order>,
    others: Option<&Order>,
    cache_bytes: f64,
    per_line: u32,
    of: &[(f64, f64)],
) -> f64 {
    let units = gather.num_others.div_ceil(per_line as usize);
    let rate = (FOLLOWED / units as f64).min(1.0);
    let threshold = (rate * f64::from(u32::MAX)) as u32;
    let mut slots = 0;
    let slot_of: Vec<u32> = (0..units as u32)
        .map(|unit| {
            let is_followed = mix(unit) <= threshold;
            slots += u32::from(is_followed);
            if is_followed { slots - 1 } else { NONE }
        })
        .collect();
    let others = others.filter(|_| per_line > 1);
    let unit_of = |row: u32| others.map_or(row, |order| order.rank[row as usize]) / per_line;
    let cache = |&(bytes, _): &(f64, f64)| Lru::new(slots as usize, (cache_bytes / bytes * rate).max(1.0) as usize);
    let mut caches: Vec<Lru> = of.iter().map(cache).collect();
    let mut misses = vec![0u64; of.len()];
    for row in 0..gather.indptr.len().saturating_sub(1) {
        let row = owners.map_or(row, |order| order.original[row] as usize);
        for &other in adjacency(gather.indptr, gather.other, row) {
            let unit = unit_of(other);
            // Most units are outside the sample: the hash is cheaper than a look-up.
            if mix(unit) <= threshold {
                let slot = slot_of[unit as usize];
                caches.iter_mut().zip(&mut misses).for_each(|(cache, misses)| *misses += u64::from(cache.lacks(slot)));
            }
        }
    }
    of.iter().zip(misses).map(|(&(bytes, times), misses)| times * misses as f64 * bytes / rate).sum()
}

/// Index of no slot.
const NONE: u32 = u32::MAX;

/// Mixes the bits of a number (the finaliser "lowbias32", C. Wellons).
pub(super) fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// An LRU list as a doubly linked ring in an array, from the most to the least recently used slot.
struct Lru {
    /// Next and previous slot; the last entry is the head of the ring.
    links: Vec<[u32; 2]>,
    held: usize,
    capacity: usize,
}

impl Lru {
    fn new(slots: usize, capacity: usize) -> Self {
        let mut links = vec![[NONE; 2]; slots + 1];
        links[slots] = [slots as u32; 2];
        Self { links, held: 0, capacity }
    }

    /// Uses a slot; returns whether it was a miss.
    fn lacks(&mut self, slot: u32) -> bool {
        let ring = self.links.len() as u32 - 1;
        let lacks = self.links[slot as usize][0] == NONE;
        if !lacks {
            self.unlink(slot);
        } else if self.held == self.capacity {
            let last = self.links[ring as usize][0];
            self.unlink(last);
            self.links[last as usize] = [NONE; 2];
        } else {
            self.held += 1;
        }
        let first = self.links[ring as usize][1];
        self.links[slot as usize] = [ring, first];
        self.links[first as usize][0] = slot;
        self.links[ring as usize][1] = slot;
        lacks
    }

    fn unlink(&mut self, slot: u32) {
        let [before, after] = self.links[slot as usize];
        self.links[before as usize][1] = after;
        self.links[after as usize][0] = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of misses, by a linear search of the list.
    fn naive(accesses: &[u32], capacity: usize) -> usize {
        let (mut list, mut misses) = (vec![], 0);
        for &row in accesses {
            let held = list.iter().position(|&other| other == row);
            misses += usize::from(held.is_none());
            if let Some(at) = held {
                list.remove(at);
            }
            list.insert(0, row);
            list.truncate(capacity);
        }
        misses
    }

    #[test]
    fn the_least_recently_used_row_is_replaced() {
        let accesses: Vec<u32> = (0..4000u32).map(|i| mix(i) % 97 % (3 + i % 41)).collect();
        for capacity in [1, 2, 7, 30, 60] {
            let gather = Gather {
                indptr: &[0, 1500, 4000],
                other: &accesses,
                num_others: 97,
                rows: vec![(64.0, 1.0)],
                ..Gather::default()
            };
            let expected = 64.0 * naive(&accesses, capacity) as f64;
            assert_eq!(missed_bytes(&gather, None, None, 64.0 * capacity as f64), expected, "{capacity} rows");
        }
    }

    #[test]
    fn short_rows_share_lines_by_their_order() {
        // Rows 0 and 2 alternate; as neighbours they share a line.
        let other: Vec<u32> = (0..100).map(|i| if i % 2 == 0 { 0 } else { 2 }).collect();
        let gather =
            Gather { indptr: &[0, 100], other: &other, num_others: 4, rows: vec![(32.0, 1.0)], ..Gather::default() };
        assert_eq!(missed_bytes(&gather, None, None, 64.0), 6400.0);
        let near = Order::of(vec![0, 2, 1, 3]);
        assert_eq!(missed_bytes(&gather, None, Some(&near), 64.0), 64.0);
    }

    #[test]
    fn a_sample_tells_what_the_whole_table_misses() {
        // More rows than the sample, of which few are read often.
        let rows = 200_000u32;
        let other: Vec<u32> = (0..400_000u32).map(|i| (mix(i) % rows) >> (mix(i ^ 0x5555) % 9)).collect();
        let gather = Gather {
            indptr: &[0, other.len() as u64],
            other: &other,
            num_others: rows as usize,
            rows: vec![(256.0, 1.0)],
            ..Gather::default()
        };
        let capacity = 20_000;
        let mut whole = Lru::new(rows as usize, capacity);
        let expected = 256.0 * other.iter().filter(|&&row| whole.lacks(row)).count() as f64;
        let found = missed_bytes(&gather, None, None, 256.0 * capacity as f64);
        assert!((found / expected - 1.0).abs() < 0.03, "{found} instead of {expected}");
    }
}
