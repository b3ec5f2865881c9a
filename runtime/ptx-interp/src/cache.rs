//! A model of the last-level cache (L2).
//!
//! Set-associative, 16 ways, LRU; lines of 128 bytes in 4 sectors of 32 bytes that are fetched individually, as in
//! current GPUs. Stores allocate without fetching, and dirty sectors are written back on eviction.

/// Bytes of a sector, the unit of every transfer.
pub const SECTOR: u64 = 32;
const LINE: u64 = 128;
const WAYS: usize = 16;

/// Contents of the cache. Kernels that run one after the other on the same cache reuse its contents.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Sets of ways, most recently used first: line number plus 1, then 4 valid and 4 dirty bits of the sectors.
    ways: Vec<u64>,
    sets: u64,
    counters: CacheCounters,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheCounters {
    pub hits: u64,
    pub read: u64,
    pub written: u64,
}

impl Cache {
    /// An empty cache of about `bytes` bytes: at least 2 KiB, an integral number of sets.
    pub fn new(bytes: u64) -> Cache {
        let sets = (bytes / (LINE * WAYS as u64)).max(1);
        Cache { ways: vec![0; sets as usize * WAYS], sets, counters: CacheCounters::default() }
    }

    /// Capacity of the cache in bytes.
    pub fn bytes(&self) -> u64 {
        self.sets * LINE * WAYS as u64
    }

    /// Empties the cache. Returns the bytes of dirty sectors written back.
    pub fn flush(&mut self) -> u64 {
        let dirty: u32 = self.ways.iter().map(|way| (way & 0xf).count_ones()).sum();
        self.ways.fill(0);
        u64::from(dirty) * SECTOR
    }

    /// Takes the counts since the last call.
    pub(crate) fn take_counters(&mut self) -> CacheCounters {
        std::mem::take(&mut self.counters)
    }

    /// Accesses sectors (4 bits) of the line that holds `address`.
    pub(crate) fn access(&mut self, address: u64, sectors: u64, write: bool) {
        let line = address / LINE;
        // Adjacent lines map to different sets; hashing the upper bits avoids conflicts at large powers of two.
        let set = ((line ^ (line >> 13)) % self.sets) as usize;
        let ways = &mut self.ways[set * WAYS..(set + 1) * WAYS];
        let tag = line + 1;
        let at = ways.iter().position(|way| way >> 8 == tag);
        let mut way = match at {
            Some(at) => ways[at],
            None => {
                let out = ways[WAYS - 1];
                self.counters.written += u64::from((out & 0xf).count_ones()) * SECTOR;
                tag << 8
            }
        };
        let missing = sectors & !(way >> 4);
        self.counters.hits += u64::from((sectors & (way >> 4)).count_ones());
        if !write {
            self.counters.read += u64::from(missing.count_ones()) * SECTOR;
        }
        way |= sectors << 4 | if write { sectors } else { 0 };
        let last = at.unwrap_or(WAYS - 1);
        ways.copy_within(0..last, 1);
        ways[0] = way;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cache: &mut Cache, lines: std::ops::Range<u64>) -> u64 {
        lines.for_each(|line| cache.access(line * LINE, 0xf, false));
        cache.take_counters().read
    }

    #[test]
    fn keeps_what_fits() {
        let mut cache = Cache::new(1 << 16);
        assert_eq!(read(&mut cache, 0..512), 1 << 16);
        assert_eq!(read(&mut cache, 0..512), 0);
        // LRU: a loop over more than the capacity never hits.
        assert_eq!(read(&mut cache, 0..1024), 1 << 16);
        assert_eq!(read(&mut cache, 0..1024), 2 << 16);
    }

    #[test]
    fn sectors_come_one_by_one_and_dirty_ones_go_back() {
        let mut cache = Cache::new(2048);
        cache.access(0, 0b0001, false);
        cache.access(0, 0b0011, false);
        let counters = cache.take_counters();
        assert_eq!((counters.read, counters.hits), (64, 1));
        cache.access(0, 0b1100, true);
        assert_eq!(cache.take_counters().written, 0);
        (1..17).for_each(|line| cache.access(line * LINE, 1, false));
        assert_eq!(cache.take_counters().written, 64);
        cache.access(0, 1, true);
        assert_eq!(cache.flush(), 32);
    }
}
