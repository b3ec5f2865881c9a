//! Counts the accesses of a request.

use hgnnc_machine::counters::{GlobalTraffic, SharedTraffic};

use crate::cache::SECTOR;
use crate::registers::{Lanes, lanes};

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
