//! Aligned host memory that the steps of a plan share, with unchecked disjoint access.
//!
//! A step runs on many threads; each reads the inputs of the step and writes its own rows of the outputs, all within a
//! few large allocations (slabs). This is sound because the plan places all values that are live at the same time in
//! disjoint ranges of a slab, a step writes only its outputs, and its tasks have disjoint rows of them.

#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use memmap2::MmapMut;

/// A range of elements of a slab.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct BufferRange {
    pub slab: u32,
    pub offset: usize,
    pub len: usize,
}

impl BufferRange {
    /// Whether the ranges overlap.
    pub fn meets(&self, other: &BufferRange) -> bool {
        self.slab == other.slab && self.offset < other.offset + other.len && other.offset < self.offset + self.len
    }
}

/// The address of the first element of a buffer.
#[derive(Clone, Copy, Debug)]
struct Elements(NonNull<f32>);

// SAFETY: a buffer that owns its elements, or shares them read-only, keeps their allocation alive.
unsafe impl Send for Elements {}
// SAFETY: shared access is read-only, as `HostBuffer::frozen` demands, or goes through `read` and `write`, whose
// callers keep writes disjoint.
unsafe impl Sync for Elements {}

/// `f32` elements at a stable, cache-line-aligned address.
#[derive(Debug)]
pub struct HostBuffer {
    /// First of `len` elements, which no other buffer aliases unless the buffer is frozen.
    data: Elements,
    len: usize,
    /// Whether the elements are read-only.
    frozen: bool,
    /// Owner of the allocation.
    _memory: Arc<Memory>,
}

/// An allocation of one or more buffers, accessed only through their pointers.
#[derive(Debug)]
#[expect(dead_code, reason = "kept, not read")]
enum Memory {
    Allocated(Vec<f32>),
    /// Zeroed by the operating system on first write.
    Mapped(MmapMut),
}

/// Read-only elements that several owners share.
#[derive(Clone, Debug)]
pub struct SharedBuffer {
    data: Elements,
    len: usize,
    /// Owner of the allocation.
    _memory: Arc<Memory>,
}

impl SharedBuffer {
    /// A read-only [`HostBuffer`] over the same elements, without a copy.
    pub fn slab(&self) -> HostBuffer {
        HostBuffer { data: self.data, len: self.len, frozen: true, _memory: Arc::clone(&self._memory) }
    }
}

impl std::ops::Deref for SharedBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `len` initialised, read-only elements; `_memory` keeps them allocated.
        unsafe { std::slice::from_raw_parts(self.data.0.as_ptr(), self.len) }
    }
}

impl AsRef<[f32]> for SharedBuffer {
    fn as_ref(&self) -> &[f32] {
        self
    }
}

/// [`HostBuffer::grow`] over-allocates by one part in this many, more than batch sizes vary.
pub const SLACK: usize = 8;
/// Elements of a cache line.
const LINE: usize = 16;
/// Allocations of at least this many bytes are mapped, so that they get huge pages.
const MAPPED: usize = 8 << 20;

impl HostBuffer {
    /// A buffer of `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let slab = Self::zeros_each([len]).pop();
        slab.expect("one length gives one slab")
    }

    /// One zeroed buffer per length, all in one allocation, so that small buffers get huge pages as well.
    pub fn zeros_each(lens: impl IntoIterator<Item = usize>) -> Vec<Self> {
        let lens: Vec<usize> = lens.into_iter().collect();
        let total: usize = lens.iter().map(|len| len.next_multiple_of(LINE)).sum();
        let (memory, first) = Memory::zeros(total);
        let memory = Arc::new(memory);
        let mut start = 0;
        let slab = |&len: &usize| {
            // SAFETY: the allocation has `total` elements from `first` on, and the starts of buffers are at most that.
            let data = Elements(unsafe { first.add(start) });
            start += len.next_multiple_of(LINE);
            Self { data, len, frozen: false, _memory: Arc::clone(&memory) }
        };
        lens.iter().map(slab).collect()
    }

    /// Reallocates with some slack if the buffer has fewer than `len` elements; its contents are then lost. Meant for
    /// memory that is reused for mini-batches of varying size.
    pub fn grow(&mut self, len: usize) {
        if self.len < len {
            *self = Self::zeros(len + len / SLACK);
        }
    }

    /// A buffer with a copy of `numbers`.
    pub fn of(numbers: &[f32]) -> Self {
        let mut slab = Self::zeros(numbers.len());
        slab.elements().copy_from_slice(numbers);
        slab
    }

    /// A read-only view that other threads may keep.
    ///
    /// # Safety
    /// The buffer is never written again.
    pub unsafe fn frozen(&self) -> SharedBuffer {
        SharedBuffer { data: self.data, len: self.len, _memory: Arc::clone(&self._memory) }
    }

    /// Another buffer of some of the same elements, not to be accessed yet.
    ///
    /// # Panics
    /// If there are no such elements.
    pub fn alias_part(&self, part: Range<usize>) -> Alias {
        assert!(part.start <= part.end && part.end <= self.len, "a part stays in its slab");
        // SAFETY: the start is in bounds.
        let data = Elements(unsafe { self.data.0.add(part.start) });
        Alias(Self { data, len: part.len(), frozen: self.frozen, _memory: Arc::clone(&self._memory) })
    }

    /// Makes the buffer read-only.
    pub fn freeze(self) -> SharedBuffer {
        SharedBuffer { data: self.data, len: self.len, _memory: self._memory }
    }

    /// Whether the buffer is read-only.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// The elements, if the buffer is read-only.
    pub fn shared(&self) -> Option<SharedBuffer> {
        self.frozen.then(|| SharedBuffer { data: self.data, len: self.len, _memory: Arc::clone(&self._memory) })
    }

    /// Number of `f32` elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn pointer(&self) -> *mut f32 {
        self.data.0.as_ptr()
    }

    /// All elements for writing.
    ///
    /// # Panics
    /// If the buffer is frozen.
    pub fn elements(&mut self) -> &mut [f32] {
        assert!(!self.frozen, "frozen numbers are not written");
        // SAFETY: `len` initialised elements are the slab's own, and `&mut self` excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.len) }
    }

    /// All elements, also of a frozen buffer.
    pub fn view(&mut self) -> &[f32] {
        // SAFETY: `&mut self` excludes all other access, unless the elements are frozen and only read.
        unsafe { self.read(0, self.len) }
    }

    /// Elements `start..start + len`.
    ///
    /// # Safety
    /// These elements are not written while the slice lives.
    pub unsafe fn read(&self, start: usize, len: usize) -> &[f32] {
        assert!(start <= self.len && len <= self.len - start, "a read stays in its slab");
        // SAFETY: in bounds by the assertion; no writes by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer().add(start), len) }
    }

    /// Elements `start..start + len` for writing.
    ///
    /// # Safety
    /// These elements are not otherwise read or written while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn write(&self, start: usize, len: usize) -> &mut [f32] {
        assert!(start <= self.len && len <= self.len - start && !self.frozen, "a write stays in its slab");
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.pointer().add(start), len) }
    }
}

/// A buffer of elements that another buffer has as well.
#[derive(Debug)]
pub struct Alias(HostBuffer);

impl Alias {
    /// Access to the shared elements.
    ///
    /// # Safety
    /// Through one of the two buffers, no element is accessed while it is written through the other.
    pub unsafe fn buffer(self) -> HostBuffer {
        self.0
    }
}

/// The slabs of a plan, as the tasks of its steps share them: each reads and writes its own ranges.
///
/// Accesses are safe by the promise of who made the value, once for a run of a plan that was checked for conflicts.
#[derive(Clone, Copy, Debug)]
pub struct PlannedSlabs<'a> {
    slabs: &'a [HostBuffer],
}

impl<'a> PlannedSlabs<'a> {
    /// Slabs for the steps of a plan.
    ///
    /// # Safety
    /// All accesses through this value and its copies are those of a plan in which ranges that are live at the same
    /// time are disjoint, a step writes only its outputs, which are none of its operands (of an exchange, what lies around
    /// its operand), and each element of them is written by one task. So while a slice of [`Self::write`] is used, no other
    /// accesses its elements, and while one of [`Self::read`] is used, none writes them. Nothing else accesses the slabs
    /// while the value exists.
    pub unsafe fn new(slabs: &'a [HostBuffer]) -> Self {
        Self { slabs }
    }

    /// Elements `start..start + len` of a slab.
    ///
    /// # Panics
    /// If the slab does not hold them; as below.
    #[inline(always)]
    pub fn read(self, slab: u32, start: usize, len: usize) -> &'a [f32] {
        // SAFETY: promised where the value was made.
        unsafe { self.slabs[slab as usize].read(start, len) }
    }

    /// The elements of a range.
    #[inline(always)]
    pub fn of(self, range: BufferRange) -> &'a [f32] {
        self.read(range.slab, range.offset, range.len)
    }

    /// Elements `start..start + len` of a slab for writing.
    #[inline(always)]
    pub fn write(self, slab: u32, start: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: promised where the value was made.
        unsafe { self.slabs[slab as usize].write(start, len) }
    }
}

impl Memory {
    /// Allocates at least `len` zeros; the pointer to the first is cache-line-aligned.
    fn zeros(len: usize) -> (Self, NonNull<f32>) {
        let bytes = len * size_of::<f32>();
        if bytes >= MAPPED
            && let Ok(mut mapped) = MmapMut::map_anon(bytes)
        {
            // Without huge pages the mapping has small ones.
            #[cfg(target_os = "linux")]
            drop(mapped.advise(memmap2::Advice::HugePage));
            // Pages are aligned for any element type.
            let first = NonNull::new(mapped.as_mut_ptr().cast::<f32>()).expect("a mapping is somewhere");
            return (Self::Mapped(mapped), first);
        }
        let mut numbers = vec![0.0f32; len + LINE];
        let skipped = numbers.as_ptr().align_offset(LINE * size_of::<f32>());
        let first = NonNull::from(&mut numbers[skipped..]).cast::<f32>();
        (Self::Allocated(numbers), first)
    }
}

/// One value per worker thread of a pool. Locks are uncontended: each thread has its own.
#[derive(Debug)]
pub struct PerThread<T> {
    slots: Box<[Slot<T>]>,
}

/// Cache lines of its own, since each use writes the lock.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<T>(Mutex<T>);

impl<T> PerThread<T> {
    /// One value for each of `threads` threads.
    pub fn new(threads: usize, make: impl Fn() -> T) -> Self {
        Self { slots: (0..threads).map(|_| Slot(Mutex::new(make()))).collect() }
    }

    /// The values of all threads.
    pub fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(|slot| slot.0.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// The value of the calling thread, number `thread` of the pool.
    ///
    /// # Panics
    /// If there is no such thread, or its value is in use.
    pub fn with<R>(&self, thread: usize, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut *match self.slots[thread].0.try_lock() {
            Ok(slot) => slot,
            // A task panicked, and its value is overwritten by the next one.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => panic!("internal error: two tasks use the memory of thread {thread}"),
        })
    }
}
