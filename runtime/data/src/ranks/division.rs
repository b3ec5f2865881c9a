//! The division of vertices among ranks.

use std::ops::Range;
use std::sync::Arc;

use hgnnc_ir::types::VertexType;

/// The division of vertices among ranks, by sections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Division {
    /// Number of sections of the vertices of a type.
    pub sections: usize,
    /// Number of ranks, not more than sections.
    pub ranks: usize,
    /// By vertex type: the first vertex of each part of a partitioned dataset. Sections are spread evenly over parts.
    /// Types without parts are divided evenly.
    pub parts: Arc<[Vec<usize>]>,
}

impl Division {
    /// Sections of nearly equal length.
    pub fn even(sections: usize, ranks: usize) -> Self {
        Self { sections, ranks, parts: Arc::default() }
    }

    /// The sections of a rank.
    pub fn sections_of(&self, rank: usize) -> Range<usize> {
        self.sections * rank / self.ranks..self.sections * (rank + 1) / self.ranks
    }

    /// The division of the vertices of a type, of which there are `count`.
    pub fn vertices(&self, vertex: VertexType, count: usize) -> Divided<'_> {
        let parts = self.parts.get(vertex.index()).map_or(&[][..], Vec::as_slice);
        Divided { division: self, parts, count }
    }

    /// The even division of `count` rows that are no vertices.
    pub fn rows(&self, count: usize) -> Divided<'_> {
        Divided { division: self, parts: &[], count }
    }
}

/// Rows of one kind that are divided among ranks.
#[derive(Clone, Copy, Debug)]
pub struct Divided<'a> {
    division: &'a Division,
    parts: &'a [usize],
    count: usize,
}

impl Divided<'_> {
    /// The first row of a section; for the number of sections: the number of rows.
    pub fn border(self, section: usize) -> usize {
        let (parts, sections) = (self.parts.len().max(1), self.division.sections);
        // The section begins in this part, `after / sections` of the way through it.
        let (part, after) = (section * parts / sections, section * parts % sections);
        let first = |part: usize| if part == 0 { 0 } else { self.parts.get(part).map_or(self.count, |&first| first) };
        let len = first(part + 1).min(self.count) - first(part).min(self.count);
        first(part).min(self.count) + (len as u128 * after as u128 / sections as u128) as usize
    }

    /// The rows that a rank owns.
    pub fn of_rank(self, rank: usize) -> Range<usize> {
        let sections = self.division.sections_of(rank);
        self.border(sections.start)..self.border(sections.end)
    }

    /// The first row of each rank, and the number of all.
    pub fn borders(self) -> Vec<usize> {
        (0..self.division.ranks).map(|rank| self.of_rank(rank).start).chain([self.count]).collect()
    }

    /// The rank that owns a row. For many rows, [`Divided::borders`] are looked up faster.
    pub fn owner(self, row: usize) -> usize {
        let (mut first, mut last) = (0, self.division.ranks - 1);
        while first < last {
            let middle = (first + last) / 2;
            match self.of_rank(middle).end <= row {
                true => first = middle + 1,
                false => last = middle,
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vertex_is_owned_by_the_rank_whose_range_has_it() {
        for (sections, ranks) in [(1, 1), (6, 2), (7, 3), (24, 5), (24, 24)] {
            let parts = Arc::new([vec![], vec![0, 3, 3, 20], vec![0], vec![0, 0, 5, 6, 7]]);
            let division = Division { sections, ranks, parts };
            for (vertices, of) in [0, 1, 3, 23, 100].into_iter().flat_map(|count| (0..5).map(move |of| (count, of))) {
                let divided = division.vertices(VertexType::new(of), vertices);
                let borders = divided.borders();
                assert_eq!((borders[0], borders[ranks]), (0, vertices));
                for vertex in 0..vertices {
                    let owner = divided.owner(vertex);
                    assert!(divided.of_rank(owner).contains(&vertex), "{vertex} of {vertices}");
                    assert_eq!(owner, borders[1..].partition_point(|&border| border <= vertex));
                }
            }
        }
    }

    #[test]
    fn ranks_own_the_parts_of_a_dataset_with_as_many() {
        let firsts = vec![0, 7, 8, 30];
        let division = Division { sections: 24, ranks: 4, parts: Arc::new([firsts.clone()]) };
        let borders = division.vertices(VertexType::new(0), 31).borders();
        assert_eq!(borders, [0, 7, 8, 30, 31]);
        // Sections do not depend on the number of ranks, so that two ranks own the parts of two each.
        let halves = Division { ranks: 2, ..division };
        assert_eq!(halves.vertices(VertexType::new(0), 31).borders(), [0, 8, 31]);
    }

    #[test]
    fn sections_without_parts_have_nearly_equal_lengths() {
        let division = Division::even(7, 1);
        let lens = |section| division.rows(100).border(section + 1) - division.rows(100).border(section);
        assert!((0..7).map(lens).all(|len| len == 14 || len == 15));
    }
}
