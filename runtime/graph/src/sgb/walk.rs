//! Rows of a product of adjacency matrices, one at a time, in parallel over rows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::Adjacency;
use crate::csr::{cut, row_blocks};
use crate::degrees::DegreeCounts;

/// What to compute per row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The set of columns.
    Reachable,
    /// Columns with their number of paths.
    Counted,
}

/// Blocks of rows per thread: enough for skewed rows to even out.
const BLOCKS_PER_THREAD: usize = 32;

/// The rows of a product.
pub(super) struct Rows<'a> {
    segments: Vec<&'a Adjacency>,
    /// For each segment, how many of its columns occur at all: a row that has that many is complete.
    reached: Vec<usize>,
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
    /// Entries of rows.
    pub of_rows: DegreeCounts,
    /// Entries of columns.
    pub of_cols: DegreeCounts,
}

impl<'a> Rows<'a> {
    /// Rows of the product of `segments`; with `self_loops` (v, v) is added where it is missing, counted once.
    pub fn new(segments: &'a [Arc<Adjacency>], self_loops: bool) -> Rows<'a> {
        let segments: Vec<&Adjacency> = segments.iter().map(|s| &**s).collect();
        let reached = segments
            .iter()
            .map(|s| {
                let mut bits = Bits::new(s.num_cols);
                s.cols.iter().filter(|c| bits.insert(**c)).count()
            })
            .collect();
        let num_rows = segments.first().map_or(0, |s| s.num_rows());
        Rows { segments, reached, self_loops, num_rows }
    }

    /// Row offsets: the first pass.
    pub fn count(&self) -> Vec<u64> {
        let mut indptr = vec![0u64; self.num_rows + 1];
        let pool = Pool::new(|| Sets::new(&self.segments));
        let block = self.num_rows.div_ceil(BLOCKS_PER_THREAD * rayon::current_num_threads()).max(1);
        indptr[1..].par_chunks_mut(block).enumerate().for_each(|(i, degrees)| {
            pool.with(|sets| {
                for (r, degree) in degrees.iter_mut().enumerate() {
                    *degree = self.reach(sets, i * block + r).map_or(sets.last().len(), <[u32]>::len) as u64;
                    sets.clear();
                }
            });
        });
        for row in 0..self.num_rows {
            indptr[row + 1] += indptr[row];
        }
        indptr
    }

    /// Entries of the rows at the offsets that [`count`](Self::count) found: the second pass.
    pub fn fill<C: Copy + Default + Send>(
        &self,
        indptr: &[u64],
        mode: Mode,
        convert: impl Fn(u64) -> C + Sync,
    ) -> Filled<C> {
        let pairs = indptr[self.num_rows] as usize;
        let mut cols = vec![0u32; pairs];
        let blocks = row_blocks(indptr, BLOCKS_PER_THREAD * rayon::current_num_threads());
        let parts = cut(&mut cols, indptr, &blocks);
        let place = |row: usize, base: u64| (indptr[row] - base) as usize..(indptr[row + 1] - base) as usize;
        match mode {
            Mode::Reachable => {
                let pool = Pool::new(|| Sets::new(&self.segments));
                blocks.into_par_iter().zip(parts).for_each(|(rows, cols)| {
                    let base = indptr[rows.start];
                    pool.with(|sets| {
                        for row in rows {
                            let cols = &mut cols[place(row, base)];
                            match self.reach(sets, row) {
                                Some(row) => cols.copy_from_slice(row),
                                None => sets.emit(cols),
                            }
                            sets.clear();
                        }
                    });
                });
                Filled { cols, counts: None, overflow: false }
            }
            Mode::Counted => {
                let mut counts = vec![C::default(); pairs];
                let overflow = AtomicBool::new(false);
                let pool = Pool::new(|| Sums::new(&self.segments));
                let count_parts = cut(&mut counts, indptr, &blocks);
                blocks.into_par_iter().zip(parts).zip(count_parts).for_each(|((rows, cols), counts)| {
                    let base = indptr[rows.start];
                    pool.with(|sums| {
                        for row in rows {
                            let place = place(row, base);
                            let (cols, counts) = (&mut cols[place.clone()], &mut counts[place]);
                            self.walk(sums, row);
                            if sums.emit(cols, counts, &convert) {
                                overflow.store(true, Ordering::Relaxed);
                            }
                        }
                    });
                });
                Filled { cols, counts: Some(counts), overflow: overflow.into_inner() }
            }
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
                let pool = Pool::new(|| Sets::new(&self.segments));
                let part = |block| pool.with(|sets| self.reach_rows(sets, rows(block)));
                blocks.into_par_iter().map(part).collect()
            }
            Mode::Counted => {
                let pool = Pool::new(|| Sums::new(&self.segments));
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

    fn reach_rows<C>(&self, sets: &mut Sets, rows: std::ops::Range<usize>) -> Part<C> {
        let mut part = Part::of(rows.len());
        for row in rows {
            let start = part.cols.len();
            match self.reach(sets, row) {
                Some(row) => part.cols.extend_from_slice(row),
                None => {
                    part.cols.resize(start + sets.last().len(), 0);
                    sets.emit(&mut part.cols[start..]);
                }
            }
            part.degrees.push((part.cols.len() - start) as u32);
            sets.clear();
        }
        part
    }

    fn sum_rows<C: Copy + Default>(
        &self,
        sums: &mut Sums,
        rows: std::ops::Range<usize>,
        convert: &impl Fn(u64) -> C,
    ) -> Part<C> {
        let mut part = Part::of(rows.len());
        for row in rows {
            let (start, len) = (part.cols.len(), self.walk(sums, row));
            part.cols.resize(start + len, 0);
            part.counts.resize(start + len, C::default());
            part.overflow |= sums.emit(&mut part.cols[start..], &mut part.counts[start..], convert);
            part.degrees.push(len as u32);
        }
        part
    }

    /// Sizes only.
    pub fn measure(&self) -> Size {
        let num_cols = self.segments.last().map_or(0, |s| s.num_cols);
        // With the entries of each column: a row has a column once, so 32 bits hold them.
        let pool = Pool::new(|| (Sets::new(&self.segments), vec![0u32; num_cols]));
        let block = self.num_rows.div_ceil(BLOCKS_PER_THREAD * rayon::current_num_threads()).max(1);
        let blocks = self.num_rows.div_ceil(block);
        let measure = |i: usize| {
            pool.with(|(sets, columns)| {
                let mut size = Size::default();
                for row in i * block..((i + 1) * block).min(self.num_rows) {
                    let (reached, own) = match self.reach(sets, row) {
                        Some(reached) => (reached, reached.binary_search(&(row as u32)).is_ok()),
                        None => (sets.last(), sets.contains(row)),
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

    /// Puts the columns of `row` into the last set of `sets`, which must be clear. Where they are a row of the last segment,
    /// gives this row instead.
    fn reach(&self, sets: &mut Sets, row: usize) -> Option<&'a [u32]> {
        let start = [row as u32];
        let last = self.segments.len().saturating_sub(1);
        for (i, segment) in self.segments.iter().enumerate() {
            let (done, rest) = sets.0.split_at_mut(i);
            let from: &[u32] = done.last().map_or(&start, |set| &set.list);
            if let (&[only], true, false) = (from, i == last && segment.distinct, self.self_loops) {
                return Some(segment.row(only as usize));
            }
            let into = &mut rest[0];
            'all: for &v in from {
                for &c in segment.row(v as usize) {
                    if into.bits.insert(c) {
                        into.list.push(c);
                    }
                }
                if into.list.len() == self.reached[i] {
                    break 'all;
                }
            }
        }
        if let Some(last) = sets.0.last_mut()
            && self.self_loops
            && last.bits.insert(row as u32)
        {
            last.list.push(row as u32);
        }
        None
    }

    /// Counts the paths of `row` to each column. Returns how many columns there are.
    fn walk(&self, sums: &mut Sums, row: usize) -> usize {
        let start = [row as u32];
        for (i, segment) in self.segments.iter().enumerate() {
            let (done, rest) = sums.0.split_at_mut(i);
            let (from, paths): (&[u32], Option<&[u64]>) = match done.last() {
                Some(before) => (&before.list, Some(&before.count)),
                None => (&start, None),
            };
            let into = &mut rest[0];
            for &v in from {
                let n = paths.map_or(1, |p| p[v as usize]);
                for e in segment.range(v as usize) {
                    let c = segment.cols[e];
                    let sum = &mut into.count[c as usize];
                    if *sum == 0 {
                        into.list.push(c);
                    }
                    *sum = sum.saturating_add(n.saturating_mul(segment.counts.as_ref().map_or(1, |w| w[e])));
                }
            }
        }
        let Some(last) = sums.0.last_mut() else { return 0 };
        if self.self_loops && last.count[row] == 0 {
            last.count[row] = 1;
            last.list.push(row as u32);
        }
        last.list.len()
    }
}

/// The entries of a block of rows.
struct Part<C> {
    degrees: Vec<u32>,
    cols: Vec<u32>,
    /// Of counted rows.
    counts: Vec<C>,
    overflow: bool,
}

impl<C> Part<C> {
    fn of(rows: usize) -> Part<C> {
        Part { degrees: Vec::with_capacity(rows), cols: vec![], counts: vec![], overflow: false }
    }
}

/// What parts have, one after another.
fn joined<C: Sync, T: Copy + Default + Send + Sync>(
    parts: &[Part<C>],
    len: usize,
    of: fn(&Part<C>) -> &Vec<T>,
) -> Vec<T> {
    let mut all = vec![T::default(); len];
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

/// One set of vertices per segment: a row's state while it is walked.
struct Sets(Vec<Set>);

struct Set {
    bits: Bits,
    list: Vec<u32>,
}

impl Sets {
    fn new(segments: &[&Adjacency]) -> Sets {
        Sets(segments.iter().map(|s| Set { bits: Bits::new(s.num_cols), list: Vec::new() }).collect())
    }

    fn contains(&self, v: usize) -> bool {
        self.0.last().is_some_and(|s| s.bits.contains(v))
    }

    /// The last set, in no order.
    fn last(&self) -> &[u32] {
        self.0.last().map_or(&[], |s| &s.list)
    }

    fn clear(&mut self) {
        for set in &mut self.0 {
            for &c in &set.list {
                set.bits.remove(c);
            }
            set.list.clear();
        }
    }

    /// Writes the last set in ascending order.
    fn emit(&mut self, cols: &mut [u32]) {
        let Some(last) = self.0.last_mut() else { return };
        // Reading every word beats sorting once a few words in ten have a vertex.
        if last.list.len() > last.bits.0.len() / 4 {
            for (col, c) in cols.iter_mut().zip(last.bits.iter()) {
                *col = c;
            }
        } else {
            last.list.sort_unstable();
            cols.copy_from_slice(&last.list);
        }
    }
}

/// One count per vertex and segment: a row's state while its paths are counted.
struct Sums(Vec<Sum>);

struct Sum {
    count: Vec<u64>,
    list: Vec<u32>,
}

impl Sums {
    fn new(segments: &[&Adjacency]) -> Sums {
        Sums(segments.iter().map(|s| Sum { count: vec![0; s.num_cols], list: Vec::new() }).collect())
    }

    /// Writes columns and path counts of the row at hand, columns ascending, and clears it. Returns whether a count
    /// overflowed.
    fn emit<C>(&mut self, cols: &mut [u32], counts: &mut [C], convert: &impl Fn(u64) -> C) -> bool {
        let mut overflow = false;
        if let Some(last) = self.0.last_mut() {
            let mut put = |(slot, count): (&mut u32, &mut C), c: u32, n: u64| {
                overflow |= n == u64::MAX;
                (*slot, *count) = (c, convert(n));
            };
            let places = cols.iter_mut().zip(counts);
            // Reading every count beats sorting where some columns in ten have one.
            if last.list.len() > last.count.len() / 8 {
                let counted = last.count.iter().enumerate().filter(|(_, n)| **n != 0);
                places.zip(counted).for_each(|(place, (c, &n))| put(place, c as u32, n));
            } else {
                last.list.sort_unstable();
                places.zip(&last.list).for_each(|(place, &c)| put(place, c, last.count[c as usize]));
            }
        }
        for sum in &mut self.0 {
            for &c in &sum.list {
                sum.count[c as usize] = 0;
            }
            sum.list.clear();
        }
        overflow
    }
}

/// A set of small integers.
struct Bits(Vec<u64>);

impl Bits {
    fn new(len: usize) -> Bits {
        Bits(vec![0; len.div_ceil(64)])
    }

    /// Adds `v`; returns whether it is new.
    fn insert(&mut self, v: u32) -> bool {
        let (word, bit) = (&mut self.0[v as usize / 64], 1u64 << (v % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn remove(&mut self, v: u32) {
        self.0[v as usize / 64] &= !(1u64 << (v % 64));
    }

    fn contains(&self, v: usize) -> bool {
        self.0.get(v / 64).is_some_and(|word| word >> (v % 64) & 1 == 1)
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(i as u32 * 64 + bit)
            })
        })
    }
}

/// Accumulators that threads take and give back: there are never more than threads at work.
struct Pool<T, F> {
    free: Mutex<Vec<T>>,
    make: F,
}

impl<T, F: Fn() -> T> Pool<T, F> {
    fn new(make: F) -> Pool<T, F> {
        Pool { free: Mutex::new(Vec::new()), make }
    }

    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let lock = || self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let taken = lock().pop();
        let mut one = taken.unwrap_or_else(&self.make);
        let result = work(&mut one);
        lock().push(one);
        result
    }

    /// All of them, once no thread is at work.
    fn all(self) -> Vec<T> {
        self.free.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
