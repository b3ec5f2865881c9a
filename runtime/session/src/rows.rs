//! Matrices of which a mini-batch takes some rows, wherever they lie.

// Rows are scattered by several threads; see `hgnnc_data::buffer`.
#![allow(unsafe_code)]

use std::sync::Arc;

use hgnnc_data::Result;
use hgnnc_data::buffer::{HostBuffer, SharedBuffer};
use rayon::prelude::*;

/// A matrix with a row for each vertex of a type or edge of a graph: features, embeddings, their optimizer states, or
/// historical embeddings.
pub trait RowStore: Send + Sync {
    /// Number of rows.
    fn num_rows(&self) -> usize;

    /// Elements of a row.
    fn width(&self) -> usize;

    /// Copies rows, in this order, on this thread. `into` has their elements.
    ///
    /// # Errors
    /// When the memory of the rows cannot be read: never if it is host memory.
    fn read(&self, rows: &[u32], into: &mut [f32]) -> Result<()>;

    /// Copies rows back, on this thread.
    ///
    /// # Errors
    /// When the memory of the rows cannot be written: never if it is host memory.
    ///
    /// # Safety
    /// The rows are distinct, and nothing else accesses them.
    unsafe fn write(&self, rows: &[u32], from: &[f32]) -> Result<()>;

    /// Whether all rows are host memory, so that a few of them cost no more than their bytes: programs may then copy
    /// them block by block.
    fn is_host_memory(&self) -> bool;

    /// All elements by row, if they are host memory that nobody writes: programs may then read them in place.
    fn shared(&self) -> Option<SharedBuffer> {
        None
    }

    /// Copies rows on the threads of the current pool.
    ///
    /// # Errors
    /// Those of [`RowStore::read`].
    fn gather(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
        let tasks = into.par_chunks_mut((TASK * self.width()).max(1)).zip(rows.par_chunks(TASK));
        tasks.try_for_each(|(into, rows)| self.read(rows, into))
    }

    /// Copies rows back on the threads of the current pool.
    ///
    /// # Errors
    /// Those of [`RowStore::write`].
    ///
    /// # Safety
    /// The rows are distinct, and nothing else accesses them.
    unsafe fn scatter(&self, rows: &[u32], from: &[f32]) -> Result<()> {
        let tasks = from.par_chunks((TASK * self.width()).max(1)).zip(rows.par_chunks(TASK));
        // SAFETY: promised by the caller.
        tasks.try_for_each(|(from, rows)| unsafe { self.write(rows, from) })
    }
}

/// Rows per task of a copy.
const TASK: usize = 512;

/// The rows of a store that a mini-batch has of a parameter, or of an optimizer state.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct TableRows<'a> {
    /// Number of the parameter; that of a state follows all parameters.
    pub array: usize,
    /// Positions in the store, each once.
    pub rows: &'a [u32],
    pub store: &'a dyn RowStore,
}

impl<S: RowStore + ?Sized> RowStore for &S {
    fn num_rows(&self) -> usize {
        (**self).num_rows()
    }

    fn width(&self) -> usize {
        (**self).width()
    }

    fn read(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
        (**self).read(rows, into)
    }

    unsafe fn write(&self, rows: &[u32], from: &[f32]) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { (**self).write(rows, from) }
    }

    fn is_host_memory(&self) -> bool {
        (**self).is_host_memory()
    }

    fn shared(&self) -> Option<SharedBuffer> {
        (**self).shared()
    }
}

impl<S: RowStore + ?Sized> RowStore for Arc<S> {
    fn num_rows(&self) -> usize {
        (**self).num_rows()
    }

    fn width(&self) -> usize {
        (**self).width()
    }

    fn read(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
        (**self).read(rows, into)
    }

    unsafe fn write(&self, rows: &[u32], from: &[f32]) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { (**self).write(rows, from) }
    }

    fn is_host_memory(&self) -> bool {
        (**self).is_host_memory()
    }

    fn shared(&self) -> Option<SharedBuffer> {
        (**self).shared()
    }
}

/// Rows of a buffer.
#[derive(Debug)]
pub struct HostRows {
    buffer: HostBuffer,
    width: usize,
}

impl HostRows {
    /// Rows of this many elements.
    pub fn new(buffer: HostBuffer, width: usize) -> Self {
        Self { buffer, width }
    }

    /// Rows of this many elements that nobody writes.
    pub fn of_shared(numbers: &SharedBuffer, width: usize) -> Self {
        Self::new(numbers.slab(), width)
    }

    /// All elements.
    pub fn elements(&mut self) -> &mut [f32] {
        self.buffer.elements()
    }

    /// A row.
    ///
    /// # Safety
    /// Nothing writes the row while the slice is in use.
    ///
    /// # Panics
    /// Without such a row.
    pub unsafe fn row(&self, row: usize) -> &[f32] {
        // SAFETY: promised by the caller.
        unsafe { self.buffer.read(row * self.width, self.width) }
    }

    /// A row, to be written.
    ///
    /// # Safety
    /// Nothing else accesses the row while the slice is in use.
    ///
    /// # Panics
    /// Without such a row.
    #[expect(clippy::mut_from_ref, reason = "rows are disjoint")]
    pub unsafe fn row_mut(&self, row: usize) -> &mut [f32] {
        // SAFETY: promised by the caller.
        unsafe { self.buffer.write(row * self.width, self.width) }
    }
}

impl RowStore for HostRows {
    fn num_rows(&self) -> usize {
        self.buffer.len() / self.width.max(1)
    }

    fn width(&self) -> usize {
        self.width
    }

    fn read(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
        for (to, &row) in into.chunks_exact_mut(self.width.max(1)).zip(rows) {
            // SAFETY: rows are written by `write` and `row_mut` only, whose callers exclude other accesses.
            to.copy_from_slice(unsafe { self.row(row as usize) });
        }
        Ok(())
    }

    unsafe fn write(&self, rows: &[u32], from: &[f32]) -> Result<()> {
        for (from, &row) in from.chunks_exact(self.width.max(1)).zip(rows) {
            // SAFETY: the rows are distinct and otherwise unused, as the caller promises.
            unsafe { self.row_mut(row as usize) }.copy_from_slice(from);
        }
        Ok(())
    }

    fn is_host_memory(&self) -> bool {
        true
    }

    fn shared(&self) -> Option<SharedBuffer> {
        self.buffer.shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_gathered_in_order_and_scattered_back() {
        let mut rows = HostRows::new(HostBuffer::of(&[0.0, 0.5, 1.0, 1.5, 2.0, 2.5]), 2);
        let mut taken = [0.0; 4];
        rows.gather(&[2, 0], &mut taken).expect("host memory");
        assert_eq!(taken, [2.0, 2.5, 0.0, 0.5]);
        // SAFETY: the rows are distinct, and this is the only thread.
        unsafe { rows.scatter(&[1, 2], &[-1.0, -2.0, -3.0, -4.0]) }.expect("host memory");
        assert_eq!(rows.elements(), [0.0, 0.5, -1.0, -2.0, -3.0, -4.0]);
    }

    #[test]
    fn rows_without_elements_are_no_work() {
        let rows = HostRows::new(HostBuffer::zeros(0), 0);
        rows.gather(&[0, 1, 2], &mut []).expect("host memory");
        assert_eq!(rows.num_rows(), 0);
    }

    #[test]
    fn only_rows_that_nobody_writes_are_read_in_place() {
        let numbers = HostBuffer::of(&[0.0, 0.5, 1.0, 1.5]);
        assert!(HostRows::new(HostBuffer::zeros(4), 2).shared().is_none());
        let rows = HostRows::of_shared(&numbers.freeze(), 2);
        assert_eq!(rows.shared().as_deref(), Some(&[0.0, 0.5, 1.0, 1.5][..]));
        assert_eq!(rows.num_rows(), 2);
    }
}
