//! Rows of tables in stores, gathered before a block of their update and scattered after it.

use std::ops::Range;

use hgnnc_data::buffer::PlannedSlabs;
use hgnnc_session::TableRows;

use crate::plan::Region;

/// Why copies do not fail.
const HOST: &str = "tables that blocks update are host memory";

/// A table that the blocks of a region update.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct BlockTable<'a> {
    pub region: &'a Region,
    pub table: TableRows<'a>,
    /// Index of the slab that the region reads and writes.
    pub index: u32,
    pub slabs: PlannedSlabs<'a>,
    /// Elements of a row of the region.
    pub width: usize,
    /// Elements of the largest block. Each thread has a part of the slab for its blocks, which stays in its cache.
    pub window: usize,
}

impl BlockTable<'_> {
    /// Whether the blocks of this region update the table.
    pub fn is_of(&self, region: &Region) -> bool {
        std::ptr::eq(self.region, region)
    }

    /// The place of a block in the slab, if a region accesses rows of the table there.
    pub fn place(&self, region: &Region, slab: u32) -> Option<usize> {
        (self.index == slab && self.is_of(region)).then(|| self.start())
    }

    fn start(&self) -> usize {
        self.window * rayon::current_thread_index().unwrap_or(0)
    }

    fn rows(&self, block: &Range<usize>) -> &[u32] {
        let width = self.table.store.width();
        &self.table.rows[block.start * self.width / width..block.end * self.width / width]
    }

    /// Gathers the rows of a block, which are host memory.
    pub fn gather(&self, block: &Range<usize>) {
        // This part of the slab belongs to the thread, and nothing but blocks of this region accesses the slab.
        let into = self.slabs.write(self.index, self.start(), block.len() * self.width);
        self.table.store.read(self.rows(block), into).expect(HOST);
    }

    /// Scatters the new rows of a block.
    pub fn scatter(&self, block: &Range<usize>) {
        let from = self.slabs.read(self.index, self.start(), block.len() * self.width);
        self.table.store.write(self.rows(block), from).expect(HOST);
    }
}
