//! Device memory: allocations separated by gaps, with a shadow state of which bytes are initialised and which blocks of
//! the running kernel accessed them.

use std::collections::{HashMap, VecDeque};

use crate::fault::FaultKind;

/// Address of the first allocation; small numbers are never valid addresses.
const FIRST: u64 = 0x7_0000_0000;
/// Smallest gap between allocations, in bytes.
const GAP: u64 = 4096;
/// Number of freed allocations kept for messages.
const REMEMBERED: usize = 1024;

/// The global memory of a device.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Memory {
    allocations: Vec<Allocation>,
    end: u64,
    freed: VecDeque<(String, u64, u64)>,
    /// Addresses of the variables of each module that ran on this memory.
    pub(crate) modules: HashMap<u64, Vec<u64>>,
    /// Number of the next block; see [`Users`].
    next_block: u32,
}

#[derive(Clone, Debug)]
struct Allocation {
    name: String,
    base: u64,
    bytes: Vec<u8>,
    /// 1 for each initialised byte.
    written: Vec<u8>,
    constant: bool,
    /// Last accesses of each granule by the running kernel; allocated on the first access by a kernel.
    users: Vec<Users>,
    /// log2 of the bytes of a granule: 2, less after narrower accesses.
    granule: u32,
}

/// Last accesses of a granule. Block numbers are unique across launches, so the state is never cleared.
#[derive(Clone, Copy, Default, Debug)]
struct Users {
    /// Number of the last writing block, shifted by 1, and whether its write was strong (atomic or ordered).
    writer: u32,
    /// Number of the last reading block, shifted by 1, and whether other blocks of the launch read as well.
    reader: u32,
}

/// A faulting access: kind and message.
pub(crate) type Wrong = (FaultKind, String);

/// An invalid host access to memory, with the reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct AccessError(pub String);

/// Kind of an access by a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Read,
    /// `.nc`: memory that this launch must not write.
    ReadOnly,
    Write,
    /// Atomic or ordered; does not race with other strong accesses.
    StrongRead,
    StrongWrite,
}

impl Memory {
    /// A memory without allocations.
    pub fn new() -> Memory {
        Memory { end: FIRST, ..Memory::default() }
    }

    /// Allocates uninitialised bytes, aligned to `align` and to 256 bytes.
    ///
    /// # Panics
    ///
    /// If `align` is not a power of two.
    pub fn alloc(&mut self, name: &str, bytes: usize, align: u64) -> u64 {
        assert!(align.is_power_of_two(), "an alignment is a power of two");
        let base = (self.end + GAP).next_multiple_of(align.max(256));
        self.end = base + bytes as u64;
        self.allocations.push(Allocation {
            name: name.to_owned(),
            base,
            bytes: vec![0; bytes],
            written: vec![0; bytes],
            constant: false,
            users: Vec::new(),
            granule: 2,
        });
        base
    }

    pub(crate) fn make_constant(&mut self, base: u64) {
        if let Ok(at) = self.allocations.binary_search_by_key(&base, |a| a.base) {
            self.allocations[at].constant = true;
        }
    }

    pub(crate) fn is_constant(&self, at: usize) -> bool {
        self.allocations[at].constant
    }

    /// Frees the allocation that starts at `base`.
    pub fn free(&mut self, base: u64) -> Result<(), AccessError> {
        let at = self
            .allocations
            .binary_search_by_key(&base, |a| a.base)
            .map_err(|_| AccessError(format!("no allocation begins at {}", self.describe(base))))?;
        let gone = self.allocations.remove(at);
        if self.freed.len() == REMEMBERED {
            self.freed.pop_front();
        }
        self.freed.push_back((gone.name, gone.base, gone.bytes.len() as u64));
        Ok(())
    }

    /// Writes bytes from the host.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let (at, offset) = self.outside(address, bytes.len())?;
        let allocation = &mut self.allocations[at];
        allocation.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        allocation.written[offset..offset + bytes.len()].fill(1);
        Ok(())
    }

    /// Sets `len` bytes to `value` from the host.
    pub fn fill(&mut self, address: u64, len: usize, value: u8) -> Result<(), AccessError> {
        let (at, offset) = self.outside(address, len)?;
        let allocation = &mut self.allocations[at];
        allocation.bytes[offset..offset + len].fill(value);
        allocation.written[offset..offset + len].fill(1);
        Ok(())
    }

    /// Marks `len` bytes as uninitialised, for memory that is reused.
    pub fn forget(&mut self, address: u64, len: usize) -> Result<(), AccessError> {
        let (at, offset) = self.outside(address, len)?;
        self.allocations[at].written[offset..offset + len].fill(0);
        Ok(())
    }

    /// Reads bytes from the host; all must be initialised.
    pub fn read(&self, address: u64, len: usize) -> Result<Vec<u8>, AccessError> {
        let (at, offset) = self.outside(address, len)?;
        let allocation = &self.allocations[at];
        if let Some(first) = allocation.written[offset..offset + len].iter().position(|&w| w == 0) {
            let place = allocation.place(offset + first);
            return Err(AccessError(format!("reads {place}, which has not been written")));
        }
        Ok(allocation.bytes[offset..offset + len].to_vec())
    }

    fn outside(&self, address: u64, len: usize) -> Result<(usize, usize), AccessError> {
        self.find(address, len).map_err(|(_, message)| AccessError(message))
    }

    /// The allocation that contains these bytes, and the offset in it.
    pub(crate) fn find(&self, address: u64, len: usize) -> Result<(usize, usize), Wrong> {
        let after = self.allocations.partition_point(|a| a.base <= address);
        if let Some(at) = after.checked_sub(1) {
            let allocation = &self.allocations[at];
            let offset = (address - allocation.base) as usize;
            if offset <= allocation.bytes.len() && allocation.bytes.len() - offset >= len {
                return Ok((at, offset));
            }
        }
        Err((FaultKind::OutOfBounds, format!("{len} bytes at {}", self.describe(address))))
    }

    /// As [`Memory::find`], trying allocation `guess` first.
    #[inline]
    pub(crate) fn find_near(&self, guess: usize, address: u64, len: usize) -> Result<(usize, usize), Wrong> {
        if let Some(allocation) = self.allocations.get(guess) {
            let offset = address.wrapping_sub(allocation.base) as usize;
            if offset < allocation.bytes.len() && allocation.bytes.len() - offset >= len {
                return Ok((guess, offset));
            }
        }
        self.find(address, len)
    }

    /// Describes an address by its allocation, or the nearest one below.
    pub(crate) fn describe(&self, address: u64) -> String {
        let inside = |base: u64, bytes: u64| address >= base && address < base + bytes.max(1);
        if let Some((name, base, _)) = self.freed.iter().rev().find(|&&(_, base, bytes)| inside(base, bytes)) {
            return format!("offset {} of `{name}`, which has been freed", address - base);
        }
        let after = self.allocations.partition_point(|a| a.base <= address);
        let below = after.checked_sub(1).map(|at| &self.allocations[at]);
        let above = self.allocations.get(after);
        let near = |distance: u64| distance < GAP * 256;
        match (below, above) {
            (_, Some(a)) if a.base - address <= GAP / 2 => {
                format!("offset -{} of `{}` ({} bytes)", a.base - address, a.name, a.bytes.len())
            }
            (Some(b), _) if near((address - b.base).saturating_sub(b.bytes.len() as u64)) => {
                format!("offset {} of `{}` ({} bytes)", address - b.base, b.name, b.bytes.len())
            }
            _ => format!("address {address:#x}, where nothing is allocated"),
        }
    }

    /// Starts a launch of `blocks` blocks; returns the number of its first block, which is not 0.
    pub(crate) fn begin_launch(&mut self, blocks: u32) -> u32 {
        match self.next_block.checked_add(blocks) {
            Some(next) if next < (1 << 31) - 1 => {
                let first = self.next_block + 1;
                self.next_block = next;
                first
            }
            _ => {
                self.allocations.iter_mut().for_each(|a| a.users.clear());
                self.next_block = blocks;
                1
            }
        }
    }

    /// The bytes of a load. `at` and `offset` come from `find`.
    #[inline]
    pub(crate) fn load(&mut self, at: usize, offset: usize, len: usize, by: Access) -> Result<&[u8], Wrong> {
        let allocation = &mut self.allocations[at];
        let range = offset..offset + len;
        if !all_are(&allocation.written[range.clone()], 1) {
            return Err(allocation.unwritten(offset, len));
        }
        allocation.note(offset, len, by)?;
        Ok(&allocation.bytes[range])
    }

    /// The bytes of a store, to be written; see [`Memory::load`].
    #[inline]
    pub(crate) fn store(&mut self, at: usize, offset: usize, len: usize, by: Access) -> Result<&mut [u8], Wrong> {
        let allocation = &mut self.allocations[at];
        if allocation.constant {
            return Err((FaultKind::ReadOnly, format!("writes to {}, which is constant", allocation.place(offset))));
        }
        allocation.note(offset, len, by)?;
        put_all(&mut allocation.written[offset..offset + len], 1);
        Ok(&mut allocation.bytes[offset..offset + len])
    }
}

/// Reads up to 8 bytes as a value. Avoids a call of `memcpy`, since it runs per lane.
#[inline]
pub(crate) fn get(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        ref bytes => bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    }
}

/// Writes the low bytes of a value.
#[inline]
pub(crate) fn put(bytes: &mut [u8], value: u64) {
    if let Ok(word) = <&mut [u8; 4]>::try_from(&mut *bytes) {
        *word = (value as u32).to_le_bytes();
    } else if let Ok(words) = <&mut [u8; 8]>::try_from(&mut *bytes) {
        *words = value.to_le_bytes();
    } else {
        bytes.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
}

/// Whether all bytes equal `value`. Fast path for words; longer ranges are checked without a branch per byte.
#[inline]
pub(crate) fn all_are(bytes: &[u8], value: u8) -> bool {
    match *bytes {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) == u32::from(value) * 0x0101_0101,
        ref bytes => bytes.iter().fold(0, |differs, &byte| differs | (byte ^ value)) == 0,
    }
}

/// Fills a few bytes without a call of `memset`.
#[inline]
fn put_all(bytes: &mut [u8], value: u8) {
    match bytes {
        [a, b, c, d] => [*a, *b, *c, *d] = [value; 4],
        bytes => bytes.fill(value),
    }
}

/// The accessing block, and the kind of access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub block: u32,
    /// Number of the first block of the launch.
    pub first: u32,
    pub how: Use,
}

impl Allocation {
    fn place(&self, offset: usize) -> String {
        format!("offset {offset} of `{}` ({} bytes)", self.name, self.bytes.len())
    }

    #[cold]
    fn unwritten(&self, offset: usize, len: usize) -> Wrong {
        let first = self.written[offset..offset + len].iter().position(|&w| w == 0).unwrap_or(0);
        (FaultKind::UninitialisedMemory, format!("reads {}, which has not been written", self.place(offset + first)))
    }

    /// Splits granules; the state of a granule holds for its parts.
    #[cold]
    fn refine(&mut self, granule: u32) {
        let times = 1 << (self.granule - granule);
        self.users = self.users.iter().flat_map(|&users| std::iter::repeat_n(users, times)).collect();
        self.granule = granule;
    }

    /// Records an access and detects races between blocks.
    #[inline]
    fn note(&mut self, offset: usize, len: usize, by: Access) -> Result<(), Wrong> {
        if self.constant {
            return Ok(());
        }
        let wanted = (len as u32 | 4 | offset as u32).trailing_zeros();
        if wanted < self.granule {
            self.refine(wanted);
        }
        if self.users.is_empty() {
            self.users = vec![Users::default(); self.bytes.len().div_ceil(1 << self.granule)];
        }
        for granule in offset >> self.granule..(offset + len).div_ceil(1 << self.granule) {
            let users = &mut self.users[granule];
            let (writer, reader) = (users.writer >> 1, users.reader >> 1);
            // Fast path: no other block has accessed the granule.
            let alone =
                (reader < by.first || users.reader == by.block << 1) && (writer < by.first || writer == by.block);
            match by.how {
                Use::Read | Use::ReadOnly if alone && (writer < by.first || by.how == Use::Read) => {
                    users.reader = by.block << 1;
                    continue;
                }
                Use::Write if alone => {
                    users.writer = by.block << 1;
                    continue;
                }
                _ => {}
            }
            // Only blocks of this launch can race.
            let written_by_other = writer >= by.first && writer != by.block;
            if by.how == Use::ReadOnly && writer >= by.first {
                let place = self.place(granule << self.granule);
                let message = format!("{place} is read with .nc, but was written in this launch");
                return Err((FaultKind::GlobalRace, message));
            }
            let strong_writer = users.writer & 1 == 1;
            let strong = matches!(by.how, Use::StrongRead | Use::StrongWrite);
            if written_by_other && !(strong && strong_writer) {
                let how =
                    if matches!(by.how, Use::Read | Use::ReadOnly | Use::StrongRead) { "read" } else { "written" };
                return Err(self.race(granule, Some(writer - by.first), "written", by, how));
            }
            match by.how {
                Use::Read | Use::ReadOnly if reader >= by.first && reader != by.block => {
                    users.reader = by.block << 1 | 1
                }
                Use::Read | Use::ReadOnly if reader == by.block => {}
                Use::Read | Use::ReadOnly => users.reader = by.block << 1,
                Use::StrongRead => {}
                Use::Write | Use::StrongWrite => {
                    if reader >= by.first && (reader != by.block || users.reader & 1 == 1) {
                        let other = (reader != by.block).then(|| reader - by.first);
                        return Err(self.race(granule, other, "read", by, "written"));
                    }
                    // A plain write stays recorded if the same block writes again strongly.
                    let weak = by.how == Use::Write || writer == by.block && !strong_writer;
                    users.writer = by.block << 1 | u32::from(!weak);
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn race(&self, granule: usize, other: Option<u32>, what: &str, by: Access, now: &str) -> Wrong {
        let place = self.place(granule << self.granule);
        let block = by.block - by.first;
        let other = other.map_or("another block".to_owned(), |other| format!("block {other}"));
        let message =
            format!("{place} is {now} by block {block} and {what} by {other} of the launch, not both atomically");
        (FaultKind::GlobalRace, message)
    }
}
