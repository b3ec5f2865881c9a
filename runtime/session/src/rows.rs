//! Rows of host memory, of which a mini-batch takes some.

// Rows are scattered by several threads; see `HostRows::new`.
#![allow(unsafe_code)]

use hgnnc_data::buffer::HostBuffer;
use rayon::prelude::*;

/// A matrix in host memory with a row for each vertex of a type: features, embeddings, or their optimizer states.
pub trait RowStore: Sync {
    /// Elements of a row.
    fn width(&self) -> usize;

    /// Copies rows, in this order, on this thread. `into` has their elements.
    fn read(&self, rows: &[u32], into: &mut [f32]);

    /// Copies rows back, on this thread. The rows are distinct, and nothing else accesses them meanwhile.
    fn write(&self, rows: &[u32], from: &[f32]);

    /// Copies rows on the threads of the current pool.
    fn gather(&self, rows: &[u32], into: &mut [f32]) {
        let tasks = into.par_chunks_mut((TASK * self.width()).max(1)).zip(rows.par_chunks(TASK));
        tasks.for_each(|(into, rows)| self.read(rows, into));
    }

    /// Copies rows back on the threads of the current pool. The rows are distinct, and nothing else accesses them
    /// meanwhile.
    fn scatter(&self, rows: &[u32], from: &[f32]) {
        let tasks = from.par_chunks((TASK * self.width()).max(1)).zip(rows.par_chunks(TASK));
        tasks.for_each(|(from, rows)| self.write(rows, from));
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
    fn width(&self) -> usize {
        (**self).width()
    }

    fn read(&self, rows: &[u32], into: &mut [f32]) {
        (**self).read(rows, into);
    }

    fn write(&self, rows: &[u32], from: &[f32]) {
        (**self).write(rows, from);
    }
}

/// Rows of a buffer.
#[derive(Debug)]
pub struct HostRows {
    buffer: HostBuffer,
    width: usize,
}

impl HostRows {
    /// Rows of this many elements, which several threads may read and write.
    ///
    /// # Safety
    /// A row is written by one thread at a time, while no other reads it, and nothing else accesses the buffer while
    /// rows are read or written. This is so in training on mini-batches: only updates write rows, the vertices of a
    /// batch are distinct, and caches are filled and written back between batches.
    pub unsafe fn new(buffer: HostBuffer, width: usize) -> Self {
        Self { buffer, width }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.buffer.len() / self.width.max(1)
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements.
    pub fn elements(&mut self) -> &mut [f32] {
        self.buffer.elements()
    }

    /// Copies a row.
    ///
    /// # Panics
    /// Without such a row.
    pub fn read_row(&self, row: usize, into: &mut [f32]) {
        // SAFETY: nothing writes the row meanwhile, as was promised to `new`.
        into.copy_from_slice(unsafe { self.buffer.read(row * self.width, self.width) });
    }

    /// Overwrites a row.
    ///
    /// # Panics
    /// Without such a row.
    pub fn write_row(&self, row: usize, from: &[f32]) {
        // SAFETY: nothing else accesses the row meanwhile, as was promised to `new`.
        unsafe { self.buffer.write(row * self.width, self.width) }.copy_from_slice(from);
    }

    /// Copies a row of another matrix of the same width.
    ///
    /// # Panics
    /// Without such rows.
    pub fn copy_row(&self, row: usize, from: &HostRows, of: usize) {
        // SAFETY: nothing writes the row meanwhile, as was promised to `new`.
        self.write_row(row, unsafe { from.buffer.read(of * from.width, from.width) });
    }
}

impl RowStore for HostRows {
    fn width(&self) -> usize {
        self.width
    }

    fn read(&self, rows: &[u32], into: &mut [f32]) {
        for (to, &row) in into.chunks_exact_mut(self.width.max(1)).zip(rows) {
            self.read_row(row as usize, to);
        }
    }

    fn write(&self, rows: &[u32], from: &[f32]) {
        for (from, &row) in from.chunks_exact(self.width.max(1)).zip(rows) {
            self.write_row(row as usize, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_gathered_in_order_and_scattered_back() {
        // SAFETY: this thread alone uses the rows, or threads of a pool distinct ones.
        let mut rows = unsafe { HostRows::new(HostBuffer::of(&[0.0, 0.5, 1.0, 1.5, 2.0, 2.5]), 2) };
        let mut taken = [0.0; 4];
        rows.gather(&[2, 0], &mut taken);
        assert_eq!(taken, [2.0, 2.5, 0.0, 0.5]);
        rows.scatter(&[1, 2], &[-1.0, -2.0, -3.0, -4.0]);
        assert_eq!(rows.elements(), [0.0, 0.5, -1.0, -2.0, -3.0, -4.0]);
    }

    #[test]
    fn rows_without_elements_are_no_work() {
        // SAFETY: there are none.
        let rows = unsafe { HostRows::new(HostBuffer::zeros(0), 0) };
        rows.gather(&[0, 1, 2], &mut []);
        assert!(rows.is_empty());
    }
}
