//! Performance counters of a run.

use crate::cache::SECTOR;
use crate::ops::Class;
use crate::registers::{Lanes, lanes};

/// Accesses to global memory. A request is one instruction of a warp, with the lanes that execute it together.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct GlobalTraffic {
    pub requests: u64,
    /// Distinct sectors of 32 bytes, summed over requests.
    pub sectors: u64,
    /// Fewest possible sectors: distinct bytes of a request / 32, rounded up, summed over requests.
    pub ideal_sectors: u64,
    /// Distinct bytes, summed over requests.
    pub bytes: u64,
}

/// Accesses to shared memory. A wavefront serves each of the 32 banks of 4 bytes once; lanes that access the same word
/// share it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SharedTraffic {
    pub requests: u64,
    /// Number of wavefronts; those of a request are serialized.
    pub wavefronts: u64,
    /// Number of wavefronts without bank conflicts: 1, or up to 2 and 4 for accesses of 8 and 16 bytes, one per active
    /// half or quarter of a warp.
    pub ideal_wavefronts: u64,
}

/// The counters of one or several runs.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Warp instructions by class, in the order of [`Class::ALL`]. A diverged warp executes an instruction once per
    /// group of lanes.
    pub warp: [u64; Class::ALL.len()],
    /// Lane instructions by class. Lanes with a false guard do not count.
    pub lane: [u64; Class::ALL.len()],
    /// Floating-point operations: fma 2; additions, products, divisions and special functions 1 (packed pairs twice
    /// that); m·n·k·2 of a matrix product; atomic additions 1. Minima, comparisons and conversions 0.
    pub flops: u64,
    /// The part of `flops` in matrix products.
    pub mma_flops: u64,
    /// Loads from global memory, including the sources of `cp.async`.
    pub global_loads: GlobalTraffic,
    /// Stores to global memory.
    pub global_stores: GlobalTraffic,
    /// Atomic operations on global memory.
    pub global_atomics: GlobalTraffic,
    /// Loads from shared memory; each matrix of `ldmatrix` takes at least one wavefront.
    pub shared_loads: SharedTraffic,
    /// Stores to shared memory, including the destinations of `cp.async`.
    pub shared_stores: SharedTraffic,
    /// Atomic operations on shared memory; lanes of one bank are serialized.
    pub shared_atomics: SharedTraffic,
    /// Sectors that hit in the cache.
    pub cache_hits: u64,
    /// Bytes fetched from device memory.
    pub device_read_bytes: u64,
    /// Bytes written back to device memory on eviction; dirty sectors still cached do not count.
    pub device_written_bytes: u64,
    /// Branches with a guard.
    pub branches: u64,
    /// Branches that split the active lanes.
    pub divergent_branches: u64,
    /// Barriers passed, summed over blocks.
    pub barriers: u64,
    /// Number of executed blocks.
    pub blocks: u64,
}

impl Counters {
    /// Warp instructions of a class.
    pub fn warp_of(&self, class: Class) -> u64 {
        self.warp[class as usize]
    }

    /// Lane instructions of a class.
    pub fn lane_of(&self, class: Class) -> u64 {
        self.lane[class as usize]
    }

    /// Warp instructions of all classes.
    pub fn warp_total(&self) -> u64 {
        self.warp.iter().sum()
    }

    /// Lane instructions of all classes.
    pub fn lane_total(&self) -> u64 {
        self.lane.iter().sum()
    }

    /// Adds the counters of another run.
    pub fn merge(&mut self, other: &Counters) {
        let Counters {
            warp,
            lane,
            flops,
            mma_flops,
            global_loads,
            global_stores,
            global_atomics,
            shared_loads,
            shared_stores,
            shared_atomics,
            cache_hits,
            device_read_bytes,
            device_written_bytes,
            branches,
            divergent_branches,
            barriers,
            blocks,
        } = other;
        self.warp.iter_mut().zip(warp).for_each(|(a, b)| *a += b);
        self.lane.iter_mut().zip(lane).for_each(|(a, b)| *a += b);
        self.flops += flops;
        self.mma_flops += mma_flops;
        self.global_loads.merge(global_loads);
        self.global_stores.merge(global_stores);
        self.global_atomics.merge(global_atomics);
        self.shared_loads.merge(shared_loads);
        self.shared_stores.merge(shared_stores);
        self.shared_atomics.merge(shared_atomics);
        self.cache_hits += cache_hits;
        self.device_read_bytes += device_read_bytes;
        self.device_written_bytes += device_written_bytes;
        self.branches += branches;
        self.divergent_branches += divergent_branches;
        self.barriers += barriers;
        self.blocks += blocks;
    }
}

impl GlobalTraffic {
    fn merge(&mut self, other: &GlobalTraffic) {
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.ideal_sectors += other.ideal_sectors;
        self.bytes += other.bytes;
    }
}

impl SharedTraffic {
    fn merge(&mut self, other: &SharedTraffic) {
        self.requests += other.requests;
        self.wavefronts += other.wavefronts;
        self.ideal_wavefronts += other.ideal_wavefronts;
    }
}

/// Counts a request of `bytes` per lane and calls `line` with each accessed line of 128 bytes (its address) and its
/// sectors.
pub(crate) fn count_global(
    traffic: &mut GlobalTraffic,
    addresses: &Lanes,
    mask: u32,
    bytes: u64,
    mut line: impl FnMut(u64, u64),
) {
    let first = addresses[0];
    if mask == u32::MAX && (1..32).all(|lane| addresses[lane] == first + lane as u64 * bytes) {
        // Fast path for consecutive addresses.
        let end = first + 32 * bytes;
        for at in first / 128..end.div_ceil(128) {
            let from = (first.max(at * 128) - at * 128) / SECTOR;
            let to = (end.min(at * 128 + 128) - at * 128).div_ceil(SECTOR);
            line(at * 128, (1 << to) - (1 << from));
        }
        traffic.requests += 1;
        traffic.sectors += end.div_ceil(SECTOR) - first / SECTOR;
        traffic.ideal_sectors += bytes;
        traffic.bytes += 32 * bytes;
        return;
    }
    let mut sorted = [0; 32];
    let mut n = 0;
    let mut ascending = true;
    for lane in lanes(mask) {
        sorted[n] = addresses[lane];
        ascending &= n == 0 || sorted[n - 1] <= sorted[n];
        n += 1;
    }
    let sorted = &mut sorted[..n];
    if !ascending {
        sorted.sort_unstable();
    }
    let (mut end, mut distinct) = (0, 0);
    let (mut next_sector, mut sectors) = (0, 0);
    // Current line, and its sectors.
    let (mut at, mut used) = (u64::MAX, 0);
    for &address in sorted.iter() {
        let stop = address + bytes;
        if stop <= end {
            continue;
        }
        distinct += stop - address.max(end);
        end = stop;
        for sector in (address / SECTOR).max(next_sector)..stop.div_ceil(SECTOR) {
            sectors += 1;
            if sector / 4 != at {
                if used != 0 {
                    line(at * 128, used);
                }
                (at, used) = (sector / 4, 0);
            }
            used |= 1 << (sector % 4);
        }
        next_sector = stop.div_ceil(SECTOR);
    }
    if used != 0 {
        line(at * 128, used);
    }
    traffic.requests += 1;
    traffic.sectors += sectors;
    traffic.ideal_sectors += distinct.div_ceil(SECTOR);
    traffic.bytes += distinct;
}

/// Counts a request of `bytes` per lane at these offsets.
pub(crate) fn count_shared(traffic: &mut SharedTraffic, offsets: &Lanes, mask: u32, bytes: u64) {
    traffic.requests += 1;
    if bytes == 4 && mask == u32::MAX && (1..32).all(|lane| offsets[lane] == offsets[0] + 4 * lane as u64) {
        traffic.ideal_wavefronts += 1;
        traffic.wavefronts += 1;
        return;
    }
    let lanes_at_once = if bytes <= 4 { 32 } else { 128 / bytes as usize };
    for first in (0..32).step_by(lanes_at_once) {
        let group = mask & (u32::MAX >> (32 - lanes_at_once)) << first;
        if group != 0 {
            traffic.ideal_wavefronts += 1;
            traffic.wavefronts += conflicts(offsets, group, bytes);
        }
    }
}

/// The largest number of distinct words accessed in one bank.
fn conflicts(offsets: &Lanes, mask: u32, bytes: u64) -> u64 {
    let mut words = [0u64; 32];
    let mut n = 0;
    for lane in lanes(mask) {
        for part in 0..bytes.div_ceil(4).max(1) {
            words[n] = offsets[lane] / 4 + part;
            n += 1;
        }
    }
    // Consecutive addresses in lane order are free of bank conflicts.
    let mut span = (u64::MAX, 0);
    for &word in &words[..n] {
        span = (span.0.min(word), span.1.max(word));
    }
    if span.1 - span.0 < 32 {
        return 1;
    }
    words[..n].sort_unstable();
    let mut per_bank = [0u64; 32];
    let mut last = u64::MAX;
    for &word in &words[..n] {
        per_bank[(word % 32) as usize] += u64::from(word != last);
        last = word;
    }
    per_bank.into_iter().max().unwrap_or(1)
}

/// Counts atomic operations: lanes of one bank are serialized even at the same word.
pub(crate) fn count_shared_atomic(traffic: &mut SharedTraffic, offsets: &Lanes, mask: u32) {
    let mut per_bank = [0u64; 32];
    lanes(mask).for_each(|lane| per_bank[(offsets[lane] / 4 % 32) as usize] += 1);
    traffic.requests += 1;
    traffic.ideal_wavefronts += 1;
    traffic.wavefronts += per_bank.into_iter().max().unwrap_or(1);
}

/// Counts one matrix of `ldmatrix`: 8 rows of 16 bytes.
pub(crate) fn count_rows(traffic: &mut SharedTraffic, offsets: &Lanes, mask: u32) {
    traffic.ideal_wavefronts += 1;
    traffic.wavefronts += conflicts(offsets, mask, 16);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn global(bytes: u64, address: impl Fn(u64) -> u64) -> (u64, u64) {
        let mut traffic = GlobalTraffic::default();
        let addresses = std::array::from_fn(|lane| address(lane as u64));
        let mut seen = 0;
        count_global(&mut traffic, &addresses, u32::MAX, bytes, |_, sectors| seen += u64::from(sectors.count_ones()));
        assert_eq!(seen, traffic.sectors);
        (traffic.sectors, traffic.ideal_sectors)
    }

    #[test]
    fn sectors_of_a_request() {
        assert_eq!(global(4, |lane| 4096 + 4 * lane), (4, 4));
        assert_eq!(global(4, |lane| 4096 + 4 * (31 - lane)), (4, 4));
        assert_eq!(global(16, |lane| 4096 + 16 * lane), (16, 16));
        // Misaligned to the sector: one sector more than needed.
        assert_eq!(global(4, |lane| 4100 + 4 * lane), (5, 4));
        assert_eq!(global(4, |lane| 4096 + 128 * lane), (32, 4));
        assert_eq!(global(4, |_| 4096), (1, 1));
        assert_eq!(global(8, |lane| 4096 + 8 * (lane / 2)), (4, 4));
    }

    fn shared(bytes: u64, offset: impl Fn(u64) -> u64) -> (u64, u64) {
        let mut traffic = SharedTraffic::default();
        count_shared(&mut traffic, &std::array::from_fn(|lane| offset(lane as u64)), u32::MAX, bytes);
        (traffic.wavefronts, traffic.ideal_wavefronts)
    }

    #[test]
    fn bank_conflicts() {
        assert_eq!(shared(4, |lane| 4 * lane), (1, 1));
        assert_eq!(shared(4, |_| 64), (1, 1));
        assert_eq!(shared(2, |lane| 2 * lane), (1, 1));
        assert_eq!(shared(4, |lane| 8 * lane), (2, 1));
        assert_eq!(shared(4, |lane| 128 * lane), (32, 1));
        assert_eq!(shared(4, |lane| 132 * lane), (1, 1));
        assert_eq!(shared(8, |lane| 8 * lane), (2, 2));
        assert_eq!(shared(16, |lane| 16 * lane), (4, 4));
        assert_eq!(shared(16, |lane| 128 * lane), (32, 4));
        assert_eq!(shared(16, |lane| 144 * lane), (4, 4));
    }
}
