//! Memory that the steps of a plan share, and the only place besides the `gemm` call and the kernel
//! dispatch that is not checked by the compiler.
//!
//! A step runs on many threads, each reading inputs and writing its own rows of the step's outputs, all
//! within a few large slabs. Why that is sound: the plan places every value that lives during a step in
//! its own range of a slab ([`crate::plan::memory`] checks it), a step writes its outputs only, and tasks
//! have disjoint rows of them.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapMut;

/// A range of a slab.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BufferRange {
    /// Index of the slab.
    pub slab: u32,
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl BufferRange {
    /// Do they share elements?
    pub fn meets(&self, other: &BufferRange) -> bool {
        self.slab == other.slab && self.offset < other.offset + other.len && other.offset < self.offset + self.len
    }
}

/// Numbers at a stable address, aligned for any vector.
#[derive(Debug)]
pub struct HostBuffer {
    /// The first element. The slab's own `len` elements of the memory from there on are no other slab's, unless they are
    /// frozen.
    data: NonNull<f32>,
    len: usize,
    /// May they only be read?
    frozen: bool,
    /// Keeps the memory.
    _memory: Arc<Memory>,
}

/// Memory of one slab or several, which is reached by their pointers only.
#[derive(Debug)]
#[expect(dead_code, reason = "kept, not read")]
enum Memory {
    Allocated(Vec<f32>),
    /// Zeroed by the system when it is first written.
    Mapped(MmapMut),
}

/// Numbers of a slab that nobody writes any more.
#[derive(Clone, Debug)]
pub struct SharedBuffer {
    data: NonNull<f32>,
    len: usize,
    /// Keeps the memory.
    _memory: Arc<Memory>,
}

impl SharedBuffer {
    /// The numbers as a slab that can only be read, without copying them.
    pub fn slab(&self) -> HostBuffer {
        HostBuffer { data: self.data, len: self.len, frozen: true, _memory: Arc::clone(&self._memory) }
    }
}

// SAFETY: the numbers are only read, as `HostBuffer::frozen` demands, and their memory is kept.
unsafe impl Send for SharedBuffer {}
// SAFETY: as above.
unsafe impl Sync for SharedBuffer {}

impl std::ops::Deref for SharedBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `len` initialised elements that nobody writes, in memory that is kept.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

/// Slabs that grow have room for one part in this many more than they need: batches differ by less.
pub const SLACK: usize = 8;
/// Elements of a cache line.
const LINE: usize = 16;
/// Bytes from which on memory is mapped: what is worth a few large pages.
const MAPPED: usize = 8 << 20;

// SAFETY: a slab owns its elements, and keeps the memory that they are in.
unsafe impl Send for HostBuffer {}
// SAFETY: all shared access goes through `read` and `write`, whose callers keep writes disjoint.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let slab = Self::zeros_each([len]).pop();
        slab.expect("one length gives one slab")
    }

    /// A slab of so many zeros for each length. Together they take large pages, where each alone would be too small.
    pub fn zeros_each(lens: impl IntoIterator<Item = usize>) -> Vec<Self> {
        let lens: Vec<usize> = lens.into_iter().collect();
        let total: usize = lens.iter().map(|len| len.next_multiple_of(LINE)).sum();
        let (memory, first) = Memory::zeros(total);
        let memory = Arc::new(memory);
        let mut start = 0;
        let slab = |&len: &usize| {
            // SAFETY: the memory has `total` elements from `first` on, and the starts of slabs are at most that.
            let data = unsafe { first.add(start) };
            start += len.next_multiple_of(LINE);
            Self { data, len, frozen: false, _memory: Arc::clone(&memory) }
        };
        lens.iter().map(slab).collect()
    }

    /// Has at least so many elements from now on, and some more, where it had fewer: what it held is then lost. For memory that
    /// is used again and again for a little more or less.
    pub fn grow(&mut self, len: usize) {
        if self.len < len {
            *self = Self::zeros(len + len / SLACK);
        }
    }

    /// A copy of numbers.
    pub fn of(numbers: &[f32]) -> Self {
        let mut slab = Self::zeros(numbers.len());
        slab.elements().copy_from_slice(numbers);
        slab
    }

    /// The numbers for other threads to read, for as long as they like.
    ///
    /// # Safety
    /// Nobody writes the slab from now on.
    pub unsafe fn frozen(&self) -> SharedBuffer {
        SharedBuffer { data: self.data, len: self.len, _memory: Arc::clone(&self._memory) }
    }

    /// The numbers, which nobody writes any more.
    pub fn freeze(self) -> SharedBuffer {
        SharedBuffer { data: self.data, len: self.len, _memory: self._memory }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Has it no elements?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn pointer(&self) -> *mut f32 {
        self.data.as_ptr()
    }

    /// All elements.
    ///
    /// # Panics
    /// When they may only be read.
    pub fn elements(&mut self) -> &mut [f32] {
        assert!(!self.frozen, "frozen numbers are not written");
        // SAFETY: `len` initialised elements are the slab's own, and `&mut self` excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.len) }
    }

    /// Elements `start..start + len`.
    ///
    /// # Safety
    /// Nothing writes these elements while the slice lives.
    pub unsafe fn read(&self, start: usize, len: usize) -> &[f32] {
        assert!(start <= self.len && len <= self.len - start, "a read stays in its slab");
        // SAFETY: in bounds by the assertion; no writes by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer().add(start), len) }
    }

    /// Elements `start..start + len`, to write.
    ///
    /// # Safety
    /// Nothing else reads or writes these elements while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn write(&self, start: usize, len: usize) -> &mut [f32] {
        assert!(start <= self.len && len <= self.len - start && !self.frozen, "a write stays in its slab");
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.pointer().add(start), len) }
    }
}

impl Memory {
    /// At least `len` zeros, and the first of them, at the start of a cache line.
    fn zeros(len: usize) -> (Self, NonNull<f32>) {
        let bytes = len * size_of::<f32>();
        if bytes >= MAPPED
            && let Ok(mut mapped) = MmapMut::map_anon(bytes)
        {
            // Where there are no large pages, small ones do.
            #[cfg(target_os = "linux")]
            drop(mapped.advise(memmap2::Advice::HugePage));
            // Pages are aligned for anything.
            let first = NonNull::new(mapped.as_mut_ptr().cast::<f32>()).expect("a mapping is somewhere");
            return (Self::Mapped(mapped), first);
        }
        let mut numbers = vec![0.0f32; len + LINE];
        let skipped = numbers.as_ptr().align_offset(LINE * size_of::<f32>());
        let first = NonNull::from(&mut numbers[skipped..]).cast::<f32>();
        (Self::Allocated(numbers), first)
    }
}

/// One value per worker thread.
#[derive(Debug)]
pub struct PerThread<T> {
    slots: Box<[UnsafeCell<T>]>,
}

// SAFETY: each slot is used by one thread at a time, as `with` demands.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    /// One value for each of `threads` threads.
    pub fn new(threads: usize, make: impl Fn() -> T) -> Self {
        Self { slots: (0..threads).map(|_| UnsafeCell::new(make())).collect() }
    }

    /// All values.
    pub fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(UnsafeCell::get_mut)
    }

    /// The value of the calling thread.
    ///
    /// # Safety
    /// `thread` is a number that no other thread uses at the same time, and `f` does not call `with` again.
    pub unsafe fn with<R>(&self, thread: usize, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: exclusive by the caller's promise.
        f(unsafe { &mut *self.slots[thread].get() })
    }
}
