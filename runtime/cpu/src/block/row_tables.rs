//! Rows of tables in stores, gathered before a block of their update and scattered after it.

use std::ops::Range;

use hgnnc_data::buffer::HostBuffer;
use hgnnc_session::TableRows;

use crate::plan::Region;

/// A table that the blocks of a region update.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct BlockTable<'a> {
    pub region: &'a Region,
    pub table: TableRows<'a>,
    /// The memory of the session for the rows of the batch.
    pub slab: &'a HostBuffer,
    /// Elements of a row of the region.
    pub width: usize,
    /// Whether rows are gathered before: those of parameters are there already.
    pub gathers: bool,
}

impl BlockTable<'_> {
    /// Whether the blocks of this region update the table.
    pub fn is_of(&self, region: &Region) -> bool {
        std::ptr::eq(self.region, region)
    }

    fn rows(&self, block: &Range<usize>) -> Range<usize> {
        let width = self.table.store.width();
        block.start * self.width / width..block.end * self.width / width
    }

    /// Gathers the rows of a block, if they are not there.
    pub fn gather(&self, block: &Range<usize>) {
        if self.gathers {
            let (rows, width) = (self.rows(block), self.table.store.width());
            // SAFETY: the rows of a block belong to one task, and only blocks of this region access the table.
            let into = unsafe { self.slab.write(rows.start * width, rows.len() * width) };
            self.table.store.read(&self.table.rows[rows], into);
        }
    }

    /// Scatters the new rows of a block.
    pub fn scatter(&self, block: &Range<usize>) {
        let (rows, width) = (self.rows(block), self.table.store.width());
        // SAFETY: as above; the rows of the store are distinct, as the caller of `update_rows` promises.
        unsafe {
            let from = self.slab.read(rows.start * width, rows.len() * width);
            self.table.store.write(&self.table.rows[rows], from);
        }
    }
}
