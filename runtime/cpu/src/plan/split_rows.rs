//! Split rows: high-degree rows whose edges are divided into pieces for load balance, with their tasks and memory.
//!
//! Such a row is executed in passes, as the kernel IR specifies: row operations, a reduction of each piece, combination
//! of the pieces and further row operations, and so on. [`crate::edge_passes`] assigns operations to passes.

use std::ops::Range;

use super::{BlockOp, Local, Place};
use crate::plan::Level;

/// Split rows of a region.
#[derive(Clone, PartialEq, Debug)]
pub struct SplitRows {
    /// Edges per piece; the last piece of a row may have fewer.
    pub piece: usize,
    /// Numbers of the split rows, ascending.
    pub rows: Vec<u32>,
    /// First piece of each row, and the number of pieces.
    pub first: Vec<u32>,
    /// Range of `rows` of each row task.
    pub row_tasks: Vec<Range<usize>>,
    /// Range of pieces of each piece task.
    pub piece_tasks: Vec<Range<usize>>,
    /// Memory for values that later passes read.
    pub areas: Areas,
}

/// Memory of split rows in the partials slab: an area per row, and per reduction one partial result per piece.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Areas {
    /// Offset of a row value in the area of its row; by local, `None` for others.
    pub in_row: Vec<Option<usize>>,
    /// Elements per piece that precede the partial results of an edge reduction; by local, `None` for others.
    pub in_piece: Vec<Option<usize>>,
    /// Elements per row, and per piece.
    pub lens: (usize, usize),
    /// Start of the row areas, and of the partial results.
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
        for op in ops.iter().filter(|op| op.op.reduces_edges()) {
            areas.in_piece[op.out as usize] = Some(areas.lens.1);
            areas.lens.1 += locals[op.out as usize].width;
        }
        areas
    }
}

impl SplitRows {
    /// Rows with more than `piece` edges. `indptr` are edge positions of all rows. At most `tasks` tasks per pass. `None`
    /// if no row is that large.
    pub fn of(piece: usize, indptr: &[u64], tasks: usize, (ops, locals): (&[BlockOp], &[Local])) -> Option<Self> {
        let degrees = indptr.windows(2).zip(0..);
        let rows: Vec<u32> =
            degrees.filter(|(ends, _)| (ends[1] - ends[0]) as usize > piece).map(|(_, row)| row).collect();
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

    /// Index in `rows` of a piece's row, and the edges of the piece; `indptr` as in [`SplitRows::of`].
    pub fn edges_of(&self, piece: usize, indptr: &[u64]) -> (usize, Range<u64>) {
        let at = self.first.partition_point(|&first| first as usize <= piece) - 1;
        let row = self.rows[at] as usize;
        let start = indptr[row] + (piece - self.first[at] as usize) as u64 * self.piece as u64;
        (at, start..indptr[row + 1].min(start + self.piece as u64))
    }

    /// Pieces of the row at an index in `rows`.
    pub fn pieces_of(&self, at: usize) -> Range<usize> {
        self.first[at] as usize..self.first[at + 1] as usize
    }

    /// Whether these rows are a single split row.
    pub fn has(&self, rows: &Range<usize>) -> bool {
        rows.len() == 1 && self.rows.binary_search(&(rows.start as u32)).is_ok()
    }

    /// Start of the area of a row, by its index in `rows`.
    pub fn row_area(&self, at: usize) -> usize {
        self.areas.starts.0 + at * self.areas.lens.0
    }

    /// Number of pieces of all rows.
    pub fn num_pieces(&self) -> usize {
        self.pieces_of(self.rows.len() - 1).end
    }

    /// Start of the partial results of a reduced local, one per piece.
    pub fn parts(&self, local: usize) -> Option<usize> {
        Some(self.areas.starts.1 + self.areas.in_piece[local]? * self.num_pieces())
    }
}

#[cfg(test)]
mod tests {
    use hgnnc_kernel_ir::kernel::Pieces;

    use super::*;

    #[test]
    fn rows_are_cut_from_their_first_edge_on() {
        let indptr = [0, 3, 10, 10, 13, 19];
        let split = |piece| SplitRows::of(piece, &indptr, 2, (&[], &[]));
        let piece = |least, most| Pieces { least, most }.len(19);
        assert_eq!((piece(3, 100), piece(1, 3), piece(1, 4)), (3, 7, 5), "19 edges, a third and a quarter of them");
        let cut = split(3).expect("two rows are longer than 3");
        assert_eq!((cut.piece, &cut.rows[..], &cut.first[..]), (3, &[1, 4][..], &[0, 3, 5][..]));
        let edges: Vec<_> = (0..5).map(|piece| cut.edges_of(piece, &indptr)).collect();
        assert_eq!(edges, [(0, 3..6), (0, 6..9), (0, 9..10), (1, 13..16), (1, 16..19)]);
        assert_eq!((cut.row_tasks, cut.piece_tasks), (vec![0..1, 1..2], vec![0..3, 3..5]));
        assert_eq!(split(7), None, "no row has more than 7 edges");
        assert_eq!(split(5).map(|cut| (cut.piece, cut.rows)), Some((5, vec![1, 4])));
    }
}
