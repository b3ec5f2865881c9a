//! The module that copies rows: see [`super::GpuCompiler::rows`].

use super::THREADS;

/// The entry that copies rows of the matrix to consecutive ones.
pub const GATHER: &str = "gather";
/// The entry that copies consecutive rows to those of the matrix.
pub const SCATTER: &str = "scatter";
/// Entries of its table.
pub const TABLE: usize = 5;
/// The most elements that a launch copies: their numbers, and those of the next ones of all threads, have 32 bits.
pub const MOST_ELEMENTS: usize = 1 << 31;
/// Most blocks; then each thread copies several elements.
const MOST_BLOCKS: usize = 4096;

/// Blocks for so many elements.
pub fn blocks(elements: usize) -> usize {
    elements.div_ceil(THREADS).clamp(1, MOST_BLOCKS)
}
