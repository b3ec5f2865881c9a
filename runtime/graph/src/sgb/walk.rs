//! Rows of a product of adjacency matrices, one at a time, in parallel over rows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::PathMatrix;
use super::pool::Pool;
use super::sets::{Segment, Sets};
use super::sums::{Only, Sums};
use crate::csr::{cut, row_blocks};
use crate::degrees::DegreeCounts;
use crate::memory::zeros;

/// The values computed per row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The set of columns.
    Reachable,
    /// Columns with their number of paths.
    Counted,
}

/// Blocks of rows per thread: balances rows of different sizes.
const BLOCKS_PER_THREAD: usize = 32;

/// The rows of a product.
pub(super) struct Rows<'a> {
    segments: Vec<Segment<'a>>,
    self_loops: bool,
    num_rows: usize,
}

/// Entries of all rows.
pub(super) struct Filled<C> {
    pub cols: Vec<u32>,
    pub counts: Option<Vec<C>>,
    /// Whether a count did not fit 64 bits.
    pub overflow: bool,
}

/// Size of a product.
#[derive(Default)]
pub(super) struct Size {
    pub pairs: u64,
    pub self_pairs: u64,
    /// Degree counts of the rows.
    pub of_rows: DegreeCounts,
    /// Degree counts of the columns.
    pub of_cols: DegreeCounts,
}

impl<'a> Rows<'a> {
    /// Rows of the product of `matrices`; with `self_loops`, (v, v) is added with count 1 if it is missing. The bitmaps
    /// of each segment take at most `budget` bytes.
    pub fn new(matrices: &'a [Arc<PathMatrix>], self_loops: bool, budget: u64) -> Rows<'a> {
        let segment = |(i, matrix): (usize, &'a Arc<PathMatrix>)| {
            let before = i.checked_sub(1).map(|before| &*matrices[before]);
            Segment::new(matrix, before, budget)
        };
        let num_rows = matrices.first().map_or(0, |s| s.num_rows());
        Rows { segments: matrices.iter().enumerate().map(segment).collect(), self_loops, num_rows }
    }

    fn sets(&self) -> Pool<Sets, impl Fn() -> Sets> {
        Pool::new(|| Sets::new(&self.segments))
    }

    fn sums(&self) -> Pool<Sums, impl Fn() -> Sums> {
        Pool::new(|| Sums::new(&self.segments))
    }

    fn reach(&self, sets: &mut Sets, row: usize) -> Option<&'a [u32]> {
        sets.reach(&self.segments, row, self.self_loops)
    }

    /// Number of entries of every `stride`-th row, scaled to all rows.
    pub fn estimate(&self, stride: usize) -> u64 {
        let pool = self.sets();
        let sampled: Vec<usize> = (0..self.num_rows).step_by(stride).collect();
        let entries: u64 = sampled
            .par_iter()
            .map(|&row| {
                pool.with(|sets| {
                    let entries = self.reach(sets, row).map_or_else(|| sets.len(), <[u32]>::len);
                    sets.clear();
                    entries as u64
                })
            })
            .sum();
        let scaled = u128::from(entries) * self.num_rows as u128 / sampled.len().max(1) as u128;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Row offsets: the first pass.
    pub fn count(&self) -> Vec<u64> {
        let mut indptr = vec![0u64; self.num_rows + 1];
        let pool = self.sets();
        let block = self.num_rows.div_ceil(BLOCKS_PER_THREAD * rayon::current_num_threads()).max(1);
        indptr[1..].par_chunks_mut(block).enumerate().for_each(|(i, degrees)| {
            pool.with(|sets| {
                for (r, degree) in degrees.iter_mut().enumerate() {
                    *degree = self.reach(sets, i * block + r).map_or_else(|| sets.len(), <[u32]>::len) as u64;
                    sets.clear();
                }
            });
        });
        for row in 0..self.num_rows {
            indptr[row + 1] += indptr[row];
        }
        indptr
    }

    /// Entries of the rows at the offsets from [`count`](Self::count): the second pass.
    pub fn fill<C: Copy + Default + Send>(
        &self,
        indptr: &[u64],
        mode: Mode,
        convert: impl Fn(u64) -> C + Sync,
    ) -> Filled<C> {
        let pairs = indptr[self.num_rows] as usize;
        let mut cols: Vec<u32> = zeros(pairs);
        let blocks = row_blocks(indptr, BLOCKS_PER_THREAD * rayon::current_num_threads());
        let parts = cut(&mut cols, indptr, &blocks);
        let place = |row: usize, base: u64| (indptr[row] - base) as usize..(indptr[row + 1] - base) as usize;
        match mode {
            Mode::Reachable => {
                let pool = self.sets();
                blocks.into_par_iter().zip(parts).for_each(|(rows, cols)| {
                    let base = indptr[rows.start];
                    pool.with(|sets| rows.for_each(|row| self.emit_set(sets, row, &mut cols[place(row, base)])));
                });
                Filled { cols, counts: None, overflow: false }
            }
            Mode::Counted => {
                let mut counts: Vec<C> = zeros(pairs);
                let overflow = AtomicBool::new(false);
                let pool = self.sums();
                let count_parts = cut(&mut counts, indptr, &blocks);
                blocks.into_par_iter().zip(parts).zip(count_parts).for_each(|((rows, cols), counts)| {
                    let base = indptr[rows.start];
                    pool.with(|sums| {
                        for row in rows {
                            let place = place(row, base);
                            let only = sums.walk(&self.segments, row, self.self_loops);
                            let (cols, counts) = (&mut cols[place.clone()], &mut counts[place]);
                            if self.emit_sum(sums, only, cols, counts, &convert) {
                                overflow.store(true, Ordering::Relaxed);
                            }
                        }
                    });
                });
                Filled { cols, counts: Some(counts), overflow: overflow.into_inner() }
            }
        }
    }

    /// Writes the columns of a row; `cols` has exactly their number.
    fn emit_set(&self, sets: &mut Sets, row: usize, cols: &mut [u32]) {
        match self.reach(sets, row) {
            Some(row) => {
                cols.copy_from_slice(row);
                sets.clear();
            }
            None => sets.emit(cols),
        }
    }

    /// Writes columns and counts of the row that was walked. Returns whether a count overflowed.
    fn emit_sum<C: Copy>(
        &self,
        sums: &mut Sums,
        only: Option<Only>,
        cols: &mut [u32],
        counts: &mut [C],
        convert: &impl Fn(u64) -> C,
    ) -> bool {
        match (only, self.segments.last()) {
            (Some(only), Some(last)) => sums.emit_only((only, last.matrix), cols, counts, convert),
            _ => sums.emit(cols, counts, convert),
        }
    }

    /// Row offsets and entries in one pass, which holds all entries twice for a moment.
    pub fn collect<C: Copy + Default + Send + Sync>(
        &self,
        mode: Mode,
        convert: impl Fn(u64) -> C + Sync,
    ) -> (Vec<u64>, Filled<C>) {
        let size = self.num_rows.div_ceil(BLOCKS_PER_THREAD * rayon::current_num_threads()).max(1);
        let rows = |block: usize| block * size..((block + 1) * size).min(self.num_rows);
        let blocks = 0..self.num_rows.div_ceil(size);
        let parts: Vec<Part<C>> = match mode {
            Mode::Reachable => {
                let pool = self.sets();
                let part = |block| pool.with(|sets| self.reach_rows(sets, rows(block)));
                blocks.into_par_iter().map(part).collect()
            }
            Mode::Counted => {
                let pool = self.sums();
                let part = |block| pool.with(|sums| self.sum_rows(sums, rows(block), &convert));
                blocks.into_par_iter().map(part).collect()
            }
        };
        let mut indptr = Vec::with_capacity(self.num_rows + 1);
        indptr.push(0);
        let mut ends = 0;
        for part in &parts {
            indptr.extend(part.degrees.iter().map(|&degree| {
                ends += u64::from(degree);
                ends
            }));
        }
        let join = |of: fn(&Part<C>) -> &Vec<u32>| joined(&parts, ends as usize, of);
        let filled = Filled {
            cols: join(|part| &part.cols),
            counts: (mode == Mode::Counted).then(|| joined(&parts, ends as usize, |part| &part.counts)),
            overflow: parts.iter().any(|part| part.overflow),
        };
        (indptr, filled)
    }

    fn reach_rows<C>(&self, sets: &mut Sets, rows: Range<usize>) -> Part<C> {
        let mut part = Part::of(rows.len());
        for row in rows {
            let start = part.cols.len();
            match self.reach(sets, row) {
                Some(row) => {
                    part.cols.extend_from_slice(row);
                    sets.clear();
                }
                None => {
                    part.cols.resize(start + sets.len(), 0);
                    sets.emit(&mut part.cols[start..]);
                }
            }
            part.degrees.push((part.cols.len() - start) as u32);
        }
        part
    }

    fn sum_rows<C: Copy + Default>(&self, sums: &mut Sums, rows: Range<usize>, convert: &impl Fn(u64) -> C) -> Part<C> {
        let mut part = Part::of(rows.len());
        for row in rows {
            let start = part.cols.len();
            let only = sums.walk(&self.segments, row, self.self_loops);
            let len = match (only, self.segments.last()) {
                (Some(only), Some(last)) => last.matrix.range(only.row).len(),
                _ => sums.len(),
            };
            part.cols.resize(start + len, 0);
            part.counts.resize(start + len, C::default());
            let (cols, counts) = (&mut part.cols[start..], &mut part.counts[start..]);
            part.overflow |= self.emit_sum(sums, only, cols, counts, convert);
            part.degrees.push(len as u32);
        }
        part
    }

    /// Counts entries, self pairs and degrees, without storing the product.
    pub fn measure(&self) -> Size {
        let num_cols = self.segments.last().map_or(0, |s| s.matrix.num_cols);
        // Column degrees are counted as well: a row has a column once, so 32 bits suffice.
        let pool = Pool::new(|| (Sets::new(&self.segments), vec![0u32; num_cols]));
        let block = self.num_rows.div_ceil(BLOCKS_PER_THREAD * rayon::current_num_threads()).max(1);
        let blocks = self.num_rows.div_ceil(block);
        let measure = |i: usize| {
            pool.with(|(sets, columns)| {
                let mut size = Size::default();
                for row in i * block..((i + 1) * block).min(self.num_rows) {
                    let (reached, own) = match self.reach(sets, row) {
                        Some(reached) => (reached, reached.binary_search(&(row as u32)).is_ok()),
                        None => {
                            let own = sets.contains(row);
                            (sets.list(), own)
                        }
                    };
                    size.pairs += reached.len() as u64;
                    size.of_rows.add(reached.len() as u64);
                    size.self_pairs += u64::from(own);
                    reached.iter().for_each(|&c| columns[c as usize] += 1);
                    sets.clear();
                }
                size
            })
        };
        let mut size = (0..blocks).into_par_iter().map(measure).reduce(Size::default, |mut a, b| {
            a.pairs += b.pairs;
            a.self_pairs += b.self_pairs;
            a.of_rows.merge(&b.of_rows);
            a
        });
        let columns: Vec<Vec<u32>> = pool.all().into_iter().map(|(_, columns)| columns).collect();
        for c in 0..num_cols {
            size.of_cols.add(columns.iter().map(|columns| u64::from(columns[c])).sum());
        }
        size
    }
}

/// The entries of a block of rows.
struct Part<C> {
    degrees: Vec<u32>,
    cols: Vec<u32>,
    /// Empty unless paths are counted.
    counts: Vec<C>,
    overflow: bool,
}

impl<C> Part<C> {
    fn of(rows: usize) -> Part<C> {
        Part { degrees: Vec::with_capacity(rows), cols: vec![], counts: vec![], overflow: false }
    }
}

/// Concatenates one array of all parts.
fn joined<C: Sync, T: Copy + Default + Send + Sync>(
    parts: &[Part<C>],
    len: usize,
    of: fn(&Part<C>) -> &Vec<T>,
) -> Vec<T> {
    let mut all: Vec<T> = zeros(len);
    let mut rest = &mut all[..];
    let mut places = vec![];
    for part in parts {
        let (own, after) = rest.split_at_mut(of(part).len());
        places.push(own);
        rest = after;
    }
    places.into_par_iter().zip(parts).for_each(|(place, part)| place.copy_from_slice(of(part)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_rows_tell_about_all() {
        // A ring: row v has the columns v + 1 and v + 2.
        let rows = 10;
        let cols: Vec<u32> = (0..rows).flat_map(|v| [(v + 1) % rows, (v + 2) % rows]).collect();
        let indptr: Vec<u64> = (0..=u64::from(rows)).map(|v| 2 * v).collect();
        let ring = Arc::new(PathMatrix {
            indptr: indptr.into(),
            cols: cols.into(),
            counts: None,
            num_cols: rows as usize,
            distinct: true,
        });
        // Two steps lead from v to v + 2, v + 3 and v + 4.
        let matrices = [ring.clone(), ring];
        let walked = Rows::new(&matrices, false, 1 << 20);
        for stride in [1, 2, 3, 7, 100] {
            assert_eq!(walked.estimate(stride), 30, "{stride}");
        }
    }
}
