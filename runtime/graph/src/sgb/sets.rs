//! Sets of vertices reached by one row, step by step.
//!
//! A set is a bitmap. A sparse set also lists its vertices, sorted at the end. A dense set has no list, and its bitmap
//! is scanned instead: an insertion is then one instruction, and a row stored as a bitmap is added word by word.

use pulp::Arch;
use rayon::prelude::*;

use super::PathMatrix;

/// Scanning a word costs about an eighth of listing and sorting an entry.
pub(super) const WORDS_PER_ENTRY: usize = 8;

/// Merging a word of a bitmap costs about a quarter of inserting an entry.
const WORDS_PER_BIT: usize = 4;

/// Cost of merging a bitmap row of `num_cols` columns, in entries.
pub(super) fn bit_cost(num_cols: usize) -> f64 {
    num_cols.div_ceil(64).div_ceil(WORDS_PER_BIT) as f64
}

/// A matrix to walk along, with some rows stored as bitmaps.
pub(super) struct Segment<'a> {
    pub matrix: &'a PathMatrix,
    /// Number of columns that occur at all: a set of that size is complete.
    reached: usize,
    bitmaps: Bitmaps,
}

/// Rows stored as bitmaps.
#[derive(Default)]
struct Bitmaps {
    words: usize,
    /// Index of each row's bitmap, or `NONE`; empty if there are none.
    place: Vec<u32>,
    bits: Vec<u64>,
}

const NONE: u32 = u32::MAX;

impl<'a> Segment<'a> {
    /// A segment that follows `before`. Rows that are visited more than once and have many entries are stored as
    /// bitmaps, within `budget` bytes in total.
    pub fn new(matrix: &'a PathMatrix, before: Option<&PathMatrix>, budget: u64) -> Segment<'a> {
        let bitmaps = before.map_or_else(Bitmaps::default, |before| Bitmaps::new(matrix, before, budget));
        Segment { matrix, reached: columns(matrix), bitmaps }
    }
}

/// Number of columns that occur.
fn columns(matrix: &PathMatrix) -> usize {
    let words = matrix.num_cols.div_ceil(64);
    let union = |mut a: Vec<u64>, b: Vec<u64>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a |= b);
        a
    };
    let parts = matrix.cols.par_chunks(matrix.cols.len().div_ceil(rayon::current_num_threads()).max(1 << 14));
    let bits = parts.map(|cols| {
        let mut bits = vec![0u64; words];
        cols.iter().for_each(|&c| bits[c as usize / 64] |= 1 << (c % 64));
        bits
    });
    bits.reduce(Vec::new, |a, b| if a.is_empty() { b } else { union(a, b) })
        .iter()
        .map(|w| w.count_ones() as usize)
        .sum()
}

impl Bitmaps {
    fn new(matrix: &PathMatrix, before: &PathMatrix, budget: u64) -> Bitmaps {
        let words = matrix.num_cols.div_ceil(64);
        let is_long = |row: usize| matrix.range(row).len() * WORDS_PER_BIT >= words.max(1);
        if !(0..matrix.num_rows()).any(is_long) {
            return Bitmaps::default();
        }
        let mut visits = vec![0u8; matrix.num_rows()];
        for &row in before.cols.iter() {
            visits[row as usize] = visits[row as usize].saturating_add(1);
        }
        let most = (budget / (8 * words as u64)).min(u64::from(NONE)) as usize;
        let rows: Vec<usize> =
            (0..matrix.num_rows()).filter(|&row| visits[row] > 1 && is_long(row)).take(most).collect();
        let (mut bits, mut place) = (vec![0u64; rows.len() * words], vec![NONE; matrix.num_rows()]);
        rows.iter().enumerate().for_each(|(at, &row)| place[row] = at as u32);
        bits.par_chunks_mut(words).zip(rows).for_each(|(bits, row)| {
            matrix.row(row).iter().for_each(|&c| bits[c as usize / 64] |= 1 << (c % 64));
        });
        Bitmaps { words, place, bits }
    }

    fn row(&self, row: usize) -> Option<&[u64]> {
        let at = *self.place.get(row).filter(|&&at| at != NONE)? as usize;
        self.bits.get(at * self.words..(at + 1) * self.words)
    }
}

/// One vertex set per segment: the state of a row while it is walked.
pub(super) struct Sets {
    sets: Vec<Set>,
    arch: Arch,
}

/// A vertex set: a bitmap if dense, else also an unordered list.
pub(super) struct Set {
    pub bits: Vec<u64>,
    /// For a dense set, valid only after [`Set::list_all`].
    pub list: Vec<u32>,
    pub dense: bool,
}

impl Sets {
    pub fn new(segments: &[Segment<'_>]) -> Sets {
        let set = |segment: &Segment<'_>| Set::new(segment.matrix.num_cols);
        Sets { sets: segments.iter().map(set).collect(), arch: Arch::new() }
    }

    /// Collects the columns of `row` in the last set; all sets must be clear. If they equal one row of the last
    /// segment, returns that row instead. With `self_loops` the row itself is one of its columns.
    pub fn reach<'a>(&mut self, segments: &[Segment<'a>], row: usize, self_loops: bool) -> Option<&'a [u32]> {
        let start = [row as u32];
        let last = segments.len().saturating_sub(1);
        for (i, segment) in segments.iter().enumerate() {
            let (done, rest) = self.sets.split_at_mut(i);
            let from: &[u32] = done.last().map_or(&start, |set| &set.list);
            let into = &mut rest[0];
            match *from {
                [only] if segment.matrix.distinct && i < last => {
                    into.list.extend_from_slice(segment.matrix.row(only as usize));
                }
                [only] if segment.matrix.distinct && !self_loops => return Some(segment.matrix.row(only as usize)),
                _ => into.unite(self.arch, segment, from),
            }
            if i < last {
                into.list_all(self.arch);
            }
        }
        if let Some(last) = self.sets.last_mut().filter(|_| self_loops) {
            last.insert(row as u32);
        }
        None
    }

    /// Size of the last set.
    pub fn len(&self) -> usize {
        self.sets.last().map_or(0, |set| set.len(self.arch))
    }

    /// Whether the last set has `v`.
    pub fn contains(&self, v: usize) -> bool {
        self.sets.last().and_then(|set| set.bits.get(v / 64)).is_some_and(|word| word >> (v % 64) & 1 == 1)
    }

    /// The last set, unordered.
    pub fn list(&mut self) -> &[u32] {
        let arch = self.arch;
        self.sets.last_mut().map_or(&[], |set| {
            set.list_all(arch);
            &set.list
        })
    }

    /// Writes the last set in ascending order, and clears all sets.
    pub fn emit(&mut self, cols: &mut [u32]) {
        if let Some(last) = self.sets.last_mut() {
            last.write(self.arch, cols);
        }
        self.clear();
    }

    /// Empties the sets of all segments.
    pub fn clear(&mut self) {
        self.sets.iter_mut().for_each(Set::clear);
    }
}

impl Set {
    pub fn new(num_vertices: usize) -> Set {
        Set { bits: vec![0; num_vertices.div_ceil(64)], list: Vec::new(), dense: false }
    }

    /// Adds the rows `from` of a segment to an empty set.
    fn unite(&mut self, arch: Arch, segment: &Segment<'_>, from: &[u32]) {
        let matrix = segment.matrix;
        let entries: usize = from.iter().map(|&v| matrix.range(v as usize).len()).sum();
        let words = self.bits.len();
        self.dense = entries * WORDS_PER_ENTRY >= words;
        if !self.dense {
            let cols = from.iter().flat_map(|&v| matrix.row(v as usize));
            cols.for_each(|&c| self.insert(c));
            return;
        }
        let mut unseen = 0;
        for &v in from {
            match segment.bitmaps.row(v as usize) {
                Some(row) => {
                    add(arch, &mut self.bits, row);
                    unseen += words / WORDS_PER_BIT;
                }
                None => {
                    let row = matrix.row(v as usize);
                    row.iter().for_each(|&c| self.bits[c as usize / 64] |= 1 << (c % 64));
                    unseen += row.len();
                }
            }
            // Checking for completeness costs about a word per entry.
            if unseen > 4 * words {
                unseen = 0;
                if count(arch, &self.bits) == segment.reached {
                    break;
                }
            }
        }
    }

    fn insert(&mut self, v: u32) {
        let (word, bit) = (&mut self.bits[v as usize / 64], 1u64 << (v % 64));
        if *word & bit == 0 && !self.dense {
            self.list.push(v);
        }
        *word |= bit;
    }

    pub fn len(&self, arch: Arch) -> usize {
        if self.dense { count(arch, &self.bits) } else { self.list.len() }
    }

    /// Writes the set in ascending order. Clears the bits of a dense set.
    pub fn write(&mut self, arch: Arch, cols: &mut [u32]) {
        if self.dense {
            drain(arch, &mut self.bits, cols);
            self.dense = false;
        } else {
            self.list.sort_unstable();
            cols.copy_from_slice(&self.list);
        }
    }

    /// Lists the members of a dense set.
    pub fn list_all(&mut self, arch: Arch) {
        if self.dense {
            self.list.resize(count(arch, &self.bits), 0);
            list(arch, &self.bits, &mut self.list);
        }
    }

    pub fn clear(&mut self) {
        if self.dense {
            self.bits.fill(0);
        } else {
            self.list.iter().for_each(|&c| self.bits[c as usize / 64] = 0);
        }
        self.dense = false;
        self.list.clear();
    }
}

fn add(arch: Arch, into: &mut [u64], row: &[u64]) {
    arch.dispatch(|| into.iter_mut().zip(row).for_each(|(into, word)| *into |= word));
}

fn count(arch: Arch, bits: &[u64]) -> usize {
    arch.dispatch(|| bits.iter().map(|word| word.count_ones() as usize).sum())
}

/// Writes the set bits of `bits`, ascending, up to the length of `out`, and clears them.
fn drain(arch: Arch, bits: &mut [u64], out: &mut [u32]) {
    arch.dispatch(|| {
        let mut at = 0;
        for (i, word) in bits.iter_mut().enumerate() {
            at = write_word(std::mem::take(word), i as u32 * 64, out, at);
        }
    });
}

/// As `drain`, without clearing.
fn list(arch: Arch, bits: &[u64], out: &mut [u32]) {
    arch.dispatch(|| {
        let mut at = 0;
        for (i, &word) in bits.iter().enumerate() {
            at = write_word(word, i as u32 * 64, out, at);
        }
    });
}

/// Writes `base` + the position of each set bit of a word to `out` from `at` on; returns the next position.
///
/// The number of bits is unpredictable, so four are always written and then perhaps four more; the next word overwrites
/// the excess.
#[inline(always)]
fn write_word(mut word: u64, base: u32, out: &mut [u32], at: usize) -> usize {
    let end = at + word.count_ones() as usize;
    let mut next = || {
        let position = base + word.trailing_zeros();
        word &= word.wrapping_sub(1);
        position
    };
    let Some(room) = out.get_mut(at..at + 8) else {
        out[at..end].iter_mut().for_each(|slot| *slot = next());
        return end;
    };
    room[..4].iter_mut().for_each(|slot| *slot = next());
    if end > at + 4 {
        room[4..].iter_mut().for_each(|slot| *slot = next());
        if end > at + 8 {
            out[at + 8..end].iter_mut().for_each(|slot| *slot = next());
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_any_number_of_bits_are_written_in_order() {
        let arch = Arch::new();
        let words = [0, 1, u64::MAX, 0b1011, 0, 0xFF00, 1 << 63, 0x0101_0101_0101_0101, 0b11111, u64::MAX >> 55, 0];
        let expected: Vec<u32> =
            (0..64 * words.len() as u32).filter(|&v| words[v as usize / 64] >> (v % 64) & 1 == 1).collect();
        let (mut bits, mut out) = (words, vec![0; expected.len()]);
        assert_eq!(count(arch, &bits), expected.len());
        list(arch, &bits, &mut out);
        assert_eq!((&out, bits), (&expected, words));
        out.fill(0);
        drain(arch, &mut bits, &mut out);
        assert_eq!((out, bits), (expected, [0; 11]));
    }
}
