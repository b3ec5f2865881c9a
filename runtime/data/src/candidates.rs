//! The vertices that can take the place of an end of a link.

use std::ops::Range;

/// The rows that can take the place of an end of a link: all vertices of its type, or the rows of all of them as of the same
/// cutoff. These are blocks of consecutive rows, each with a row for each vertex in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidates {
    /// The first row of each block, ascending; at least one.
    starts: Vec<u32>,
    count: usize,
}

impl Candidates {
    /// All vertices of a type.
    pub fn all(count: usize) -> Self {
        Self { starts: vec![0], count }
    }

    /// Those of `count` vertices with rows as of cutoffs, given the cutoff of each row, ascending. A block has a row for each
    /// vertex: where only some are read as of a cutoff, no link is.
    pub fn as_of_cutoffs(cutoffs: &[i64], count: usize) -> Self {
        let mut starts = vec![];
        let mut first = 0;
        for block in cutoffs.chunk_by(|a, b| a == b) {
            if block.len() == count {
                starts.push(first);
            }
            first += block.len() as u32;
        }
        if starts.is_empty() { Self::all(count) } else { Self { starts, count } }
    }

    /// The number of candidates of each end.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The candidates for the place of a row.
    pub fn of(&self, row: u32) -> Range<u32> {
        let start = self.starts[self.starts.partition_point(|start| *start <= row) - 1];
        start..start + self.count as u32
    }

    /// The row of the vertex of `row` among the candidates for the place of `other`.
    pub fn at(&self, row: u32, other: u32) -> u32 {
        row - self.of(row).start + self.of(other).start
    }

    /// The row of a vertex that reads all that there is.
    pub fn latest(&self, vertex: u32) -> u32 {
        self.starts[self.starts.len() - 1] + vertex
    }
}

#[cfg(test)]
mod tests {
    use super::Candidates;

    #[test]
    fn all_vertices_are_one_block() {
        let all = Candidates::all(7);
        assert_eq!((all.of(0), all.of(6), all.at(3, 5), all.latest(2), all.count()), (0..7, 0..7, 3, 2, 7));
        assert_eq!(Candidates::all(0).count(), 0);
    }

    #[test]
    fn rows_as_of_a_cutoff_are_a_block_if_all_vertices_have_one() {
        // Vertex 1 alone is read as of 4.
        let rows = Candidates::as_of_cutoffs(&[3, 3, 3, 4, 9, 9, 9], 3);
        assert_eq!((rows.of(0), rows.of(2), rows.of(4), rows.of(6)), (0..3, 0..3, 4..7, 4..7));
        assert_eq!((rows.at(2, 5), rows.at(5, 0), rows.latest(1)), (6, 1, 5));
    }
}
