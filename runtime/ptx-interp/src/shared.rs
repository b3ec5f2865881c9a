//! Shared memory of a block, with race detection.
//!
//! Two accesses to a byte by different threads, at least one a write, must be ordered: by a barrier between warps, or
//! within a warp by a `.sync` instruction of both lanes. (Strictly, PTX only guarantees memory ordering for
//! `bar.warp.sync`; all `.sync` instructions count here.) Lanes of one instruction are never ordered.

use crate::fault::FaultKind;
use crate::memory::{Wrong, all_are, get, put};
use crate::registers::LANES;

/// Base of the shared-memory window in the generic address space.
pub(crate) const SHARED_WINDOW: u64 = 0x7f00_0000_0000;

/// Log of synchronisations between lanes of a warp, or warps of a block. Answers happens-before queries.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncLog {
    /// Number of synchronisations so far.
    pub time: u32,
    /// Time of the last synchronisation of all members.
    all: u32,
    /// Partial synchronisations since then, ascending.
    some: Vec<(u32, u32)>,
}

/// Limit of partial synchronisations kept individually; beyond it, only the last one of each mask is kept.
const KEPT: usize = 256;

impl SyncLog {
    /// The members in `mask` synchronise, out of `everyone`.
    pub fn meet(&mut self, mask: u32, everyone: u32) {
        self.time += 1;
        if mask & everyone == everyone {
            self.all = self.time;
            self.some.clear();
        } else if let Some(last) = self.some.last_mut().filter(|last| last.0 == mask) {
            last.1 = self.time;
        } else {
            if self.some.len() >= KEPT {
                self.some.retain(|&(old, _)| old != mask);
            }
            self.some.push((mask, self.time));
        }
    }

    /// Whether everything `members` did at `time` happens before the next action of `other`.
    #[inline]
    pub fn ordered(&self, members: u32, time: u32, other: u32) -> bool {
        members == other || self.all > time || self.ordered_slowly(members, time, other)
    }

    /// Whether `member` has synchronised with any other after `time`.
    fn met(&self, member: u32, time: u32) -> bool {
        self.all > time || self.some.iter().any(|&(mask, at)| at > time && mask & member != 0)
    }

    #[cold]
    fn ordered_slowly(&self, members: u32, time: u32, other: u32) -> bool {
        let mut rest = members & !other;
        if self.some.is_empty() {
            return rest == 0;
        }
        while rest != 0 {
            let mut reached = rest & rest.wrapping_neg();
            rest &= rest - 1;
            for &(mask, _) in self.some.iter().filter(|&&(_, at)| at > time) {
                if mask & reached != 0 {
                    reached |= mask;
                }
            }
            if reached & other == 0 {
                return false;
            }
        }
        true
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessor {
    pub warp: u32,
    pub lane: u32,
}

#[derive(Clone, Copy, Default, Debug)]
struct Write {
    /// Number of the writing thread plus 1; 0: none.
    thread: u32,
    atomic: bool,
    block_time: u32,
    warp_time: u32,
}

/// Reads that are not ordered among each other.
#[derive(Clone, Copy, Default, Debug)]
struct Reads {
    /// Mask of the reading warps.
    warps: u32,
    /// The last reading warp, and its lanes.
    last_warp: u32,
    lanes: u32,
    /// Times of the last read.
    block_time: u32,
    warp_time: u32,
}

#[derive(Clone, Copy, Default, Debug)]
struct History {
    write: Write,
    reads: Reads,
    /// The block of this history.
    block: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Read,
    Write,
    Atomic,
}

const WRITTEN: u8 = 1;
/// A `cp.async` to this byte is pending.
const PENDING: u8 = 2;

#[derive(Clone, Debug)]
pub(crate) struct Shared {
    bytes: Vec<u8>,
    state: Vec<u8>,
    history: Vec<History>,
    /// log2 of the bytes of a granule of `history`.
    granule: u32,
    block: u32,
    pub log: SyncLog,
    everyone: u32,
}

impl Shared {
    pub fn new(bytes: usize, warps: usize) -> Shared {
        Shared {
            bytes: vec![0; bytes],
            state: vec![0; bytes],
            history: vec![History::default(); bytes.div_ceil(4)],
            granule: 2,
            block: 0,
            log: SyncLog::default(),
            everyone: if warps >= LANES { u32::MAX } else { (1 << warps) - 1 },
        }
    }

    /// Marks all bytes as uninitialised for the next block.
    pub fn begin_block(&mut self) {
        self.state.fill(0);
        self.block += 1;
        self.log = SyncLog::default();
    }

    /// The warps of a mask have passed a barrier.
    pub fn meet(&mut self, warps: u32) {
        self.log.meet(warps, self.everyone);
    }

    fn place(&self, offset: usize) -> String {
        format!("offset {offset} of shared memory ({} bytes)", self.bytes.len())
    }

    /// Checks that the bytes lie in shared memory; returns their offset.
    #[inline]
    pub fn find(&self, address: u64, len: usize) -> Result<usize, Wrong> {
        let size = self.bytes.len();
        if address <= size as u64 && size - address as usize >= len {
            return Ok(address as usize);
        }
        let offset = if address < 1 << 32 { address.to_string() } else { format!("{address:#x}") };
        Err((FaultKind::OutOfBounds, format!("{len} bytes at offset {offset} of shared memory ({size} bytes)")))
    }

    /// Reads bytes; an error on a race or uninitialised bytes.
    #[inline]
    pub fn load(&mut self, offset: usize, len: usize, by: Accessor, warp: &SyncLog) -> Result<&[u8], Wrong> {
        self.check_state(offset, len, true)?;
        self.note(offset, len, by, warp, How::Read)?;
        Ok(&self.bytes[offset..offset + len])
    }

    /// The bytes of a store, to be written; an error on a race.
    #[inline]
    pub fn store(&mut self, offset: usize, len: usize, by: Accessor, warp: &SyncLog) -> Result<&mut [u8], Wrong> {
        self.check_state(offset, len, false)?;
        self.note(offset, len, by, warp, How::Write)?;
        self.state[offset..offset + len].iter_mut().for_each(|state| *state = WRITTEN);
        Ok(&mut self.bytes[offset..offset + len])
    }

    /// The bytes of an atomic operation, which races with plain accesses only.
    pub fn atomic(
        &mut self,
        offset: usize,
        len: usize,
        by: Accessor,
        warp: &SyncLog,
        new: impl FnOnce(u64) -> u64,
    ) -> Result<u64, Wrong> {
        self.check_state(offset, len, true)?;
        self.note(offset, len, by, warp, How::Atomic)?;
        let old = get(&self.bytes[offset..offset + len]);
        self.put(offset, len, new(old));
        Ok(old)
    }

    #[inline]
    fn put(&mut self, offset: usize, len: usize, value: u64) {
        put(&mut self.bytes[offset..offset + len], value);
        put(&mut self.state[offset..offset + len], u64::from_le_bytes([WRITTEN; 8]));
    }

    /// Starts a `cp.async`: until it is waited for, any other access to the bytes is a fault.
    pub fn begin_copy(&mut self, offset: usize, len: usize, by: Accessor, warp: &SyncLog) -> Result<(), Wrong> {
        self.check_state(offset, len, false)?;
        self.note(offset, len, by, warp, How::Write)?;
        self.state[offset..offset + len].iter_mut().for_each(|s| *s |= PENDING);
        Ok(())
    }

    /// Completes a `cp.async` after its thread has waited for it.
    pub fn end_copy(&mut self, offset: usize, bytes: &[u8], by: Accessor, warp: &SyncLog) -> Result<(), Wrong> {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.state[offset..offset + bytes.len()].fill(WRITTEN);
        self.note(offset, bytes.len(), by, warp, How::Write)
    }

    #[inline]
    fn check_state(&self, offset: usize, len: usize, read: bool) -> Result<(), Wrong> {
        let state = &self.state[offset..offset + len];
        let fine = all_are(state, WRITTEN) || !read && state.iter().all(|&s| s & PENDING == 0);
        if fine { Ok(()) } else { Err(self.wrong_state(offset, len, read)) }
    }

    #[cold]
    fn wrong_state(&self, offset: usize, len: usize, read: bool) -> Wrong {
        let place = self.place(offset);
        if self.state[offset..offset + len].iter().any(|s| s & PENDING != 0) {
            let what = if read { "reads" } else { "writes" };
            return (FaultKind::PendingCopy, format!("{what} {place} before `cp.async` to it has completed"));
        }
        (FaultKind::UninitialisedMemory, format!("reads {place}, which has not been written"))
    }

    #[cold]
    fn refine(&mut self, granule: u32) {
        let times = 1 << (self.granule - granule);
        self.history = self.history.iter().flat_map(|&h| std::iter::repeat_n(h, times)).collect();
        self.granule = granule;
    }

    /// Records an access and detects races.
    #[inline]
    fn note(&mut self, offset: usize, len: usize, by: Accessor, warp: &SyncLog, how: How) -> Result<(), Wrong> {
        let wanted = (len as u32 | 4 | offset as u32).trailing_zeros();
        if wanted < self.granule {
            self.refine(wanted);
        }
        let thread = by.warp * LANES as u32 + by.lane;
        let own = 1 << by.warp;
        for at in offset >> self.granule..(offset + len).div_ceil(1 << self.granule) {
            let history = &mut self.history[at];
            if history.block != self.block {
                *history = History { block: self.block, ..History::default() };
            }
            let (last, all) = (history.write, self.log.all);
            // Fast path: accessed by this thread only, or by all before their last synchronisation, or read by lanes of
            // one warp.
            let written_before = last.thread == 0 || last.thread == thread + 1 || last.block_time < all;
            let (before, now) = (history.reads, (self.log.time, warp.time));
            let together = before.warps == own && before.last_warp == by.warp;
            if written_before && how == How::Read && together && (before.block_time, before.warp_time) == now {
                history.reads.lanes |= 1 << by.lane;
                continue;
            }
            let read_before = before.warps == 0 || before.block_time < all;
            if written_before && read_before && how != How::Atomic {
                if how == How::Write {
                    history.write = Write { thread: thread + 1, atomic: false, block_time: now.0, warp_time: now.1 };
                    history.reads = Reads::default();
                } else {
                    history.reads = Reads {
                        warps: own,
                        last_warp: by.warp,
                        lanes: 1 << by.lane,
                        block_time: now.0,
                        warp_time: now.1,
                    };
                }
                continue;
            }
            let both_atomic = how == How::Atomic && last.atomic;
            if last.thread != 0 && last.thread != thread + 1 && !both_atomic {
                let (last_warp, last_lane) = ((last.thread - 1) / LANES as u32, (last.thread - 1) % LANES as u32);
                let ordered = if last_warp == by.warp {
                    warp.ordered(1 << last_lane, last.warp_time, 1 << by.lane)
                } else {
                    self.log.ordered(1 << last_warp, last.block_time, 1 << by.warp)
                };
                if !ordered {
                    let now = if how == How::Read { "read" } else { "written" };
                    return Err(self.race(at, last.thread - 1, "written", by, now));
                }
            }
            let reads = &mut history.reads;
            let own_past = reads.warps & own == 0
                || if reads.last_warp == by.warp {
                    warp.ordered(reads.lanes, reads.warp_time, 1 << by.lane)
                } else {
                    self.log.met(own, reads.block_time)
                };
            let past = own_past && self.log.ordered(reads.warps & !own, reads.block_time, own);
            if how != How::Read {
                if !past {
                    let other = if own_past || reads.last_warp != by.warp {
                        (reads.warps & !own).trailing_zeros() * LANES as u32
                    } else {
                        by.warp * LANES as u32 + (reads.lanes & !(1 << by.lane)).trailing_zeros()
                    };
                    return Err(self.race(at, other, "read", by, "written"));
                }
                // A plain write stays recorded if the same thread writes again atomically.
                let atomic = how == How::Atomic && (last.atomic || last.thread != thread + 1);
                history.write = Write { thread: thread + 1, atomic, block_time: self.log.time, warp_time: warp.time };
                *reads = Reads::default();
            } else {
                // Happens-before is transitive: writes ordered after this read are also ordered after the reads before
                // it.
                let lanes = if past || reads.last_warp != by.warp { 0 } else { reads.lanes };
                *reads = Reads {
                    warps: if past { own } else { reads.warps | own },
                    last_warp: by.warp,
                    lanes: lanes | 1 << by.lane,
                    block_time: self.log.time,
                    warp_time: warp.time,
                };
            }
        }
        Ok(())
    }

    #[cold]
    fn race(&self, granule: usize, other: u32, what: &str, by: Accessor, now: &str) -> Wrong {
        let place = self.place(granule << self.granule);
        let (warp, lane) = (other / LANES as u32, other % LANES as u32);
        let message = format!(
            "{place} is {now} by lane {} of warp {} and {what} by lane {lane} of warp {warp}, with nothing between that orders them",
            by.lane, by.warp
        );
        (FaultKind::SharedRace, message)
    }
}
