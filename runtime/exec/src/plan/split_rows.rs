//! Rows with so many edges that they are cut into pieces: which they are, which tasks they make, and where parts lie.
//!
//! Such a row is executed in rounds, as the kernel IR says: what rows compute first, a reduction of each piece, the
//! parts added up and what rows compute from them, and so on. [`crate::stages`] says which operations a round has.

use std::ops::Range;

use super::{BlockOp, Local, Place, reduces_edges};
use crate::plan::Level;

/// The rows of a region that are cut.
#[derive(Clone, PartialEq, Debug)]
pub struct SplitRows {
    /// Edges of a piece; the last of a row may have fewer.
    pub piece: usize,
    /// The rows, ascending.
    pub rows: Vec<u32>,
    /// The first piece of each row, and the number of all.
    pub first: Vec<u32>,
    /// Positions in `rows` of the rows of each task.
    pub row_tasks: Vec<Range<usize>>,
    /// Numbers of the pieces of each task.
    pub piece_tasks: Vec<Range<usize>>,
    /// Where rows and pieces keep what later rounds read.
    pub areas: Areas,
}

/// The memory of cut rows, in the slab of partial results: an area for each row, and for each reduction the parts of all
/// pieces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Areas {
    /// Where a value of rows lies in the area of its row; by local, `None` for all others.
    pub in_row: Vec<Option<usize>>,
    /// Elements of a piece that lie before the parts of a reduction over edges; by local, `None` for all others.
    pub in_piece: Vec<Option<usize>>,
    /// Elements of a row, and of a piece.
    pub lens: (usize, usize),
    /// Where the areas of rows begin, and the parts.
    pub starts: (usize, usize),
}

impl Areas {
    fn of(ops: &[BlockOp], locals: &[Local]) -> Self {
        let mut areas =
            Self { in_row: vec![None; locals.len()], in_piece: vec![None; locals.len()], ..Self::default() };
        for (local, slot) in locals.iter().zip(&mut areas.in_row) {
            if local.level == Level::Row && matches!(local.place, Place::Scratch) {
                *slot = Some(areas.lens.0);
                areas.lens.0 += local.width;
            }
        }
        for op in ops.iter().filter(|op| reduces_edges(&op.kind)) {
            areas.in_piece[op.out as usize] = Some(areas.lens.1);
            areas.lens.1 += locals[op.out as usize].width;
        }
        areas
    }
}

impl SplitRows {
    /// The rows with more than `piece` edges, among `candidates`: all rows that may have so many, in any order. `indptr` are
    /// the first edges of all rows. At most `tasks` tasks share a round. `None` where no row is so long.
    pub fn of(
        piece: usize,
        candidates: &[u32],
        indptr: &[u64],
        tasks: usize,
        (ops, locals): (&[BlockOp], &[Local]),
    ) -> Option<Self> {
        let split = |row: u32| (indptr[row as usize + 1] - indptr[row as usize]) as usize > piece;
        let mut rows: Vec<u32> = candidates.iter().copied().filter(|&row| split(row)).collect();
        rows.sort_unstable();
        let mut first = vec![0u32];
        for &row in &rows {
            let edges = (indptr[row as usize + 1] - indptr[row as usize]) as usize;
            first.push(first[first.len() - 1] + edges.div_ceil(piece) as u32);
        }
        let divided = |count: usize| -> Vec<Range<usize>> {
            let each = count.div_ceil(tasks).max(1);
            (0..count).step_by(each).map(|start| start..count.min(start + each)).collect()
        };
        let (row_tasks, piece_tasks) = (divided(rows.len()), divided(first[rows.len()] as usize));
        let some = !rows.is_empty();
        some.then(|| Self { piece, rows, first, row_tasks, piece_tasks, areas: Areas::of(ops, locals) })
    }

    /// The position in `rows` of the row of a piece, and its edges; `indptr` as in [`SplitRows::of`].
    pub fn edges_of(&self, piece: usize, indptr: &[u64]) -> (usize, Range<u64>) {
        let at = self.first.partition_point(|&first| first as usize <= piece) - 1;
        let row = self.rows[at] as usize;
        let start = indptr[row] + (piece - self.first[at] as usize) as u64 * self.piece as u64;
        (at, start..indptr[row + 1].min(start + self.piece as u64))
    }

    /// The pieces of the row at a position in `rows`.
    pub fn pieces_of(&self, at: usize) -> Range<usize> {
        self.first[at] as usize..self.first[at + 1] as usize
    }

    /// Are these rows one that is cut?
    pub fn has(&self, rows: &Range<usize>) -> bool {
        rows.len() == 1 && self.rows.binary_search(&(rows.start as u32)).is_ok()
    }

    /// Where the area of a row (by its position in `rows`) begins.
    pub fn row_area(&self, at: usize) -> usize {
        self.areas.starts.0 + at * self.areas.lens.0
    }

    /// Number of pieces.
    pub fn num_pieces(&self) -> usize {
        self.pieces_of(self.rows.len() - 1).end
    }

    /// Where the parts of a local that is reduced begin, one for each piece.
    pub fn parts(&self, local: usize) -> Option<usize> {
        Some(self.areas.starts.1 + self.areas.in_piece[local]? * self.num_pieces())
    }
}

#[cfg(test)]
mod tests {
    use hgnnc_ir::kernel::Pieces;

    use super::*;

    #[test]
    fn rows_are_cut_from_their_first_edge_on() {
        let indptr = [0, 3, 10, 10, 13, 19];
        let split = |piece, candidates: &[u32]| SplitRows::of(piece, candidates, &indptr, 2, (&[], &[]));
        let piece = |least, most| Pieces { least, most }.len(19);
        assert_eq!((piece(3, 100), piece(1, 3), piece(1, 4)), (3, 7, 5), "19 edges, a third and a quarter of them");
        // By degree class, as they come.
        let cut = split(3, &[0, 3, 1, 4]).expect("two rows are longer than 3");
        assert_eq!((cut.piece, &cut.rows[..], &cut.first[..]), (3, &[1, 4][..], &[0, 3, 5][..]));
        let edges: Vec<_> = (0..5).map(|piece| cut.edges_of(piece, &indptr)).collect();
        assert_eq!(edges, [(0, 3..6), (0, 6..9), (0, 9..10), (1, 13..16), (1, 16..19)]);
        assert_eq!((cut.row_tasks, cut.piece_tasks), (vec![0..1, 1..2], vec![0..3, 3..5]));
        assert_eq!(split(7, &[1, 4]), None, "no row has more than 7 edges");
        assert_eq!(split(5, &[4, 1]).map(|cut| (cut.piece, cut.rows)), Some((5, vec![1, 4])));
        assert_eq!(split(3, &[]), None);
    }
}
