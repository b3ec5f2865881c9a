//! Path counts of one row to each vertex that it reaches.

use pulp::Arch;

use super::PathMatrix;
use super::sets::{Segment, Set, WORDS_PER_ENTRY};

/// One count per vertex and segment: the state of a row while its paths are counted. Counts saturate.
pub(super) struct Sums {
    sums: Vec<Sum>,
    arch: Arch,
}

struct Sum {
    /// Number of paths to each vertex.
    count: Vec<u64>,
    /// The vertices with paths. While they are listed no bits are set: a nonzero `count` marks a member.
    set: Set,
}

/// The one row of the last segment that all paths of a row go through, and the number of paths to it.
#[derive(Clone, Copy)]
pub(super) struct Only {
    pub row: usize,
    paths: u64,
}

impl Sums {
    pub fn new(segments: &[Segment<'_>]) -> Sums {
        let sum = |segment: &Segment<'_>| {
            let cols = segment.matrix.num_cols;
            Sum { count: vec![0; cols], set: Set::new(cols) }
        };
        Sums { sums: segments.iter().map(sum).collect(), arch: Arch::new() }
    }

    /// Counts the paths of `row` to each column in the last sum; all sums must be clear. If all paths go through one
    /// row of the last segment, returns that row instead. With `self_loops` there is a path to the row itself, if there
    /// is no other.
    pub fn walk(&mut self, segments: &[Segment<'_>], row: usize, self_loops: bool) -> Option<Only> {
        let start = [row as u32];
        let last = segments.len().saturating_sub(1);
        for (i, segment) in segments.iter().enumerate() {
            let (done, rest) = self.sums.split_at_mut(i);
            let (from, paths): (&[u32], Option<&[u64]>) = match done.last() {
                Some(before) => (&before.set.list, Some(&before.count)),
                None => (&start, None),
            };
            if let (&[only], true) = (from, i == last && segment.matrix.distinct && !self_loops) {
                return Some(Only { row: only as usize, paths: paths.map_or(1, |paths| paths[only as usize]) });
            }
            let into = &mut rest[0];
            into.unite(segment.matrix, from, paths);
            if i < last {
                into.set.list_all(self.arch);
            }
        }
        if let Some(last) = self.sums.last_mut().filter(|last| self_loops && last.count[row] == 0) {
            last.put(row as u32, 1);
        }
        None
    }

    /// Number of columns of the current row.
    pub fn len(&self) -> usize {
        self.sums.last().map_or(0, |sum| sum.set.len(self.arch))
    }

    /// Writes columns (ascending) and path counts of the current row, and clears all sums. Returns whether a count
    /// overflowed.
    pub fn emit<C>(&mut self, cols: &mut [u32], counts: &mut [C], convert: &impl Fn(u64) -> C) -> bool {
        let mut overflow = false;
        if let Some(last) = self.sums.last_mut() {
            last.set.write(self.arch, cols);
            last.set.list.clear();
            for (&c, slot) in cols.iter().zip(counts) {
                let n = std::mem::take(&mut last.count[c as usize]);
                overflow |= n == u64::MAX;
                *slot = convert(n);
            }
        }
        self.clear();
        overflow
    }

    /// As `emit`, for paths that all go through one row of the last segment.
    pub fn emit_only<C: Copy>(
        &mut self,
        (only, segment): (Only, &PathMatrix),
        cols: &mut [u32],
        counts: &mut [C],
        convert: &impl Fn(u64) -> C,
    ) -> bool {
        self.clear();
        cols.copy_from_slice(segment.row(only.row));
        let Some(own) = &segment.counts else {
            counts.fill(convert(only.paths));
            return only.paths == u64::MAX && !cols.is_empty();
        };
        let mut overflow = false;
        for (slot, &n) in counts.iter_mut().zip(&own[segment.range(only.row)]) {
            let n = n.saturating_mul(only.paths);
            overflow |= n == u64::MAX;
            *slot = convert(n);
        }
        overflow
    }

    fn clear(&mut self) {
        self.sums.iter_mut().for_each(Sum::clear);
    }
}

impl Sum {
    /// Adds the rows `from` of a matrix, weighted by the number of paths to each, to an empty sum.
    fn unite(&mut self, matrix: &PathMatrix, from: &[u32], paths: Option<&[u64]>) {
        let entries: usize = from.iter().map(|&v| matrix.range(v as usize).len()).sum();
        self.set.dense = entries * WORDS_PER_ENTRY >= self.set.bits.len();
        for &v in from {
            let (range, n) = (matrix.range(v as usize), paths.map_or(1, |paths| paths[v as usize]));
            let cols = &matrix.cols[range.clone()];
            match &matrix.counts {
                Some(own) => cols.iter().zip(&own[range]).for_each(|(&c, &w)| self.put(c, n.saturating_mul(w))),
                None => cols.iter().for_each(|&c| self.put(c, n)),
            }
        }
    }

    /// Adds `n` paths to a vertex; `n` is not zero, since zero means unvisited.
    fn put(&mut self, v: u32, n: u64) {
        let sum = &mut self.count[v as usize];
        if self.set.dense {
            self.set.bits[v as usize / 64] |= 1 << (v % 64);
        } else if *sum == 0 {
            self.set.list.push(v);
        }
        *sum = sum.saturating_add(n);
    }

    /// Every vertex with paths is listed here.
    fn clear(&mut self) {
        self.set.list.iter().for_each(|&c| self.count[c as usize] = 0);
        self.set.clear();
    }
}
