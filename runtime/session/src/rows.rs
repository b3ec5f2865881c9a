//! Matrices of which a mini-batch takes some rows, wherever they lie.

// Rows are scattered by several threads; see `HostRows::new`.
#![allow(unsafe_code)]

use std::any::Any;
use std::ops::Range;
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

    /// Copies rows to these places of `into`, which are counted in rows.
    ///
    /// # Errors
    /// When the memory of the rows cannot be read, as by [`RowStore::read`].
    fn read_to(&self, rows: &[u32], places: &[u32], into: &mut [f32]) -> Result<()> {
        let width = self.width();
        let mut copied = vec![0.0; rows.len() * width];
        self.read(rows, &mut copied)?;
        for (&place, row) in places.iter().zip(copied.chunks_exact(width.max(1))) {
            into[place as usize * width..][..width].copy_from_slice(row);
        }
        Ok(())
    }

    /// Copies rows back, on this thread. The rows are distinct, and nothing else accesses them meanwhile.
    ///
    /// # Errors
    /// When the memory of the rows cannot be written: never if it is host memory.
    fn write(&self, rows: &[u32], from: &[f32]) -> Result<()>;

    /// Whether all rows are host memory, so that a few of them cost no more than their bytes: programs may then copy
    /// them block by block.
    fn is_host_memory(&self) -> bool;

    /// Rows that this process has itself, of a matrix that several have divided: they cost nothing to speak of.
    fn own(&self) -> Range<usize> {
        0..0
    }

    /// Nanoseconds to read one of the other rows, where that is not measured: by a network that is assumed.
    fn assumed_ns(&self) -> Option<f64> {
        None
    }

    /// All elements by row, if they are host memory that nobody writes: programs may then read them in place.
    fn shared(&self) -> Option<SharedBuffer> {
        None
    }

    /// The store as its back end knows it, whose sessions may copy rows without the host. `None` for host memory.
    fn as_any(&self) -> Option<&dyn Any> {
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

    /// Copies rows back on the threads of the current pool. The rows are distinct, and nothing else accesses them
    /// meanwhile.
    ///
    /// # Errors
    /// Those of [`RowStore::write`].
    fn scatter(&self, rows: &[u32], from: &[f32]) -> Result<()> {
        let tasks = from.par_chunks((TASK * self.width()).max(1)).zip(rows.par_chunks(TASK));
        tasks.try_for_each(|(from, rows)| self.write(rows, from))
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

/// A pointer to a store is a store.
macro_rules! forward {
    ($($pointer:ty),*) => { $(
        impl<S: RowStore + ?Sized> RowStore for $pointer {
            fn num_rows(&self) -> usize {
                (**self).num_rows()
            }

            fn width(&self) -> usize {
                (**self).width()
            }

            fn read(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
                (**self).read(rows, into)
            }

            fn read_to(&self, rows: &[u32], places: &[u32], into: &mut [f32]) -> Result<()> {
                (**self).read_to(rows, places, into)
            }

            fn write(&self, rows: &[u32], from: &[f32]) -> Result<()> {
                (**self).write(rows, from)
            }

            fn is_host_memory(&self) -> bool {
                (**self).is_host_memory()
            }

            fn own(&self) -> Range<usize> {
                (**self).own()
            }

            fn assumed_ns(&self) -> Option<f64> {
                (**self).assumed_ns()
            }

            fn shared(&self) -> Option<SharedBuffer> {
                (**self).shared()
            }

            fn as_any(&self) -> Option<&dyn Any> {
                (**self).as_any()
            }
        }
    )* };
}

forward!(&S, Arc<S>);

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

    /// Rows of this many elements that nobody writes.
    pub fn of_shared(numbers: &SharedBuffer, width: usize) -> Self {
        // SAFETY: rows of a read-only buffer are never written, see `write_row`.
        unsafe { Self::new(numbers.slab(), width) }
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
    /// Without such a row, or if the rows are shared.
    pub fn write_row(&self, row: usize, from: &[f32]) {
        assert!(!self.buffer.is_frozen(), "shared rows are not written");
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
    fn num_rows(&self) -> usize {
        self.buffer.len() / self.width.max(1)
    }

    fn width(&self) -> usize {
        self.width
    }

    fn read(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
        for (to, &row) in into.chunks_exact_mut(self.width.max(1)).zip(rows) {
            self.read_row(row as usize, to);
        }
        Ok(())
    }

    fn write(&self, rows: &[u32], from: &[f32]) -> Result<()> {
        for (from, &row) in from.chunks_exact(self.width.max(1)).zip(rows) {
            self.write_row(row as usize, from);
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
        // SAFETY: this thread alone uses the rows, or threads of a pool distinct ones.
        let mut rows = unsafe { HostRows::new(HostBuffer::of(&[0.0, 0.5, 1.0, 1.5, 2.0, 2.5]), 2) };
        let mut taken = [0.0; 4];
        rows.gather(&[2, 0], &mut taken).expect("host memory");
        assert_eq!(taken, [2.0, 2.5, 0.0, 0.5]);
        rows.scatter(&[1, 2], &[-1.0, -2.0, -3.0, -4.0]).expect("host memory");
        assert_eq!(rows.elements(), [0.0, 0.5, -1.0, -2.0, -3.0, -4.0]);
    }

    #[test]
    fn rows_without_elements_are_no_work() {
        // SAFETY: there are none.
        let rows = unsafe { HostRows::new(HostBuffer::zeros(0), 0) };
        rows.gather(&[0, 1, 2], &mut []).expect("host memory");
        assert_eq!(rows.num_rows(), 0);
    }

    #[test]
    fn only_rows_that_nobody_writes_are_read_in_place() {
        let numbers = HostBuffer::of(&[0.0, 0.5, 1.0, 1.5]);
        // SAFETY: nothing uses the rows.
        assert!(unsafe { HostRows::new(HostBuffer::zeros(4), 2) }.shared().is_none());
        let rows = HostRows::of_shared(&numbers.freeze(), 2);
        assert_eq!(rows.shared().as_deref(), Some(&[0.0, 0.5, 1.0, 1.5][..]));
        assert_eq!(rows.num_rows(), 2);
    }
}
