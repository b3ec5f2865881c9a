//! The module that counts how outputs compare with labels: see [`super::GpuCompiler::counts`].

use super::THREADS;

/// Rows that a block has at a time: one for each warp.
pub const PER_BLOCK: usize = THREADS / 32;
/// Most blocks; then each has several times as many rows.
const MOST_BLOCKS: usize = 1024;

/// Parts of a split that are counted: each has an entry.
pub const PARTS: usize = 3;
/// Entries of its table.
pub const TABLE: usize = 3 + 3 * PARTS;

/// How outputs are compared with labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Labels {
    /// One class for each row: a number from 0, or a negative one for none. The class with the largest output is
    /// guessed.
    Classes,
    /// A number for each output, which stands for a label above 0.5. Labels with positive outputs are guessed.
    Several,
}

/// The entry of a part.
pub fn name(part: usize) -> String {
    format!("part{part}")
}

/// Blocks of an entry, for so many rows.
pub fn blocks(rows: usize) -> usize {
    rows.div_ceil(PER_BLOCK).clamp(1, MOST_BLOCKS)
}

/// 32-bit numbers of the counts of a part: for each output how often it was guessed and right, not guessed but right,
/// guessed but not right; then the number of rows of which all is right.
pub fn words(width: usize) -> usize {
    3 * width + 1
}
