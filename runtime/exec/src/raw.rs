//! Memory that the steps of a plan share, and the only place besides the `gemm` call and the kernel
//! dispatch that is not checked by the compiler.
//!
//! A step runs on many threads, each reading inputs and writing its own rows of the step's outputs, all
//! within a few large slabs. Why that is sound: the plan places every value that lives during a step in
//! its own range of a slab ([`crate::plan::memory`] checks it), a step writes its outputs only, and tasks
//! have disjoint rows of them.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;

/// A range of a slab.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// Index of the slab.
    pub slab: u32,
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl Buffer {
    /// Do they share elements?
    pub fn meets(&self, other: &Buffer) -> bool {
        self.slab == other.slab && self.offset < other.offset + other.len && other.offset < self.offset + self.len
    }
}

/// Numbers at a stable address, aligned for any vector.
#[derive(Debug)]
pub struct Slab {
    cells: Box<[UnsafeCell<f32>]>,
    /// The first cell at the start of a cache line.
    first: usize,
    len: usize,
}

/// Elements of a cache line.
const LINE: usize = 16;

// SAFETY: all shared access goes through `read` and `write`, whose callers keep writes disjoint.
unsafe impl Sync for Slab {}

impl Slab {
    /// `len` zeros. Large slabs take memory page by page when they are first written.
    pub fn zeros(len: usize) -> Self {
        // The system gives zeroed pages; alignment is found within, because aligned allocations are zeroed by hand.
        let cells = Box::into_raw(vec![0.0f32; len + LINE].into_boxed_slice());
        // SAFETY: `UnsafeCell<f32>` has the layout of `f32`, and the box is not used otherwise.
        let cells = unsafe { Box::from_raw(cells as *mut [UnsafeCell<f32>]) };
        let first = cells.as_ptr().align_offset(LINE * size_of::<f32>());
        assert!(first < LINE, "an address of a number is a whole number of numbers");
        Self { cells, first, len }
    }

    /// A copy of numbers.
    pub fn of(numbers: &[f32]) -> Self {
        let mut slab = Self::zeros(numbers.len());
        slab.elements().copy_from_slice(numbers);
        slab
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
        // The cells are one allocation of `f32`s without padding; `UnsafeCell` allows writing through `&self`.
        self.cells[self.first..].as_ptr().cast_mut().cast::<f32>()
    }

    /// All elements.
    pub fn elements(&mut self) -> &mut [f32] {
        // SAFETY: the allocation holds `len` initialised elements from there on, and `&mut self` excludes all other access.
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
        assert!(start <= self.len && len <= self.len - start, "a write stays in its slab");
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.pointer().add(start), len) }
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
