//! Rows of an adjacency by how many edges they have.
//!
//! Degrees of real graphs are skewed, so what suits a row depends on its degree by orders of magnitude, not by ones:
//! classes are powers of two. Class 0 has the rows without edges, class `c` those with `2^(c-1)` to `2^c - 1` edges.
//! Within a class no row is twice as long as another, and the class of a degree is its number of significant bits.
//!
//! Finding classes reads the row offsets only. Nothing is reordered: [`DegreeClasses`] are lists of rows beside a
//! graph.

use rayon::prelude::*;
use serde::Serialize;

/// Number of classes that 64-bit degrees have.
const CLASSES: usize = u64::BITS as usize + 1;

/// Rows that are sorted at once: enough to pay for handing them to a thread.
const BLOCK_ROWS: usize = 1 << 15;

/// The class of a degree: 0 of 0, 1 of 1, 2 of 2 and 3, 3 of 4 to 7, ...
pub fn degree_class(degree: u64) -> usize {
    (u64::BITS - degree.leading_zeros()) as usize
}

/// The least and the largest degree of a class below 65.
pub fn class_degrees(class: usize) -> (u64, u64) {
    match class {
        0 => (0, 0),
        _ => (1 << (class - 1), u64::MAX >> (u64::BITS as usize - class)),
    }
}

/// The rows of one direction of a graph, grouped by degree class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DegreeClasses {
    /// All rows, by class; ascending within a class. `[rows]`
    pub order: Vec<u32>,
    /// Offset of each class in `order`, and the number of rows. The last class holds `max_degree`; classes below it may
    /// be empty. `[classes + 1]`
    pub starts: Vec<u32>,
    /// Number of edges of the rows of each class. `[classes]`
    pub edges: Vec<u64>,
    /// Largest number of edges of one row; 0 without rows.
    pub max_degree: u64,
}

impl DegreeClasses {
    /// Classes of the rows with offsets `indptr` (`[rows + 1]`, ascending): a stable counting sort, parallel over rows.
    /// Two passes over the offsets, one over the rows. The result does not depend on the number of threads.
    ///
    /// Panics if there are 2^32 rows or more; vertex ids have 32 bits.
    pub fn of(indptr: &[u64]) -> DegreeClasses {
        let rows = indptr.len().saturating_sub(1);
        let num_rows = u32::try_from(rows).expect("vertices have 32-bit ids");
        let degrees = |block: usize| {
            let first = block * BLOCK_ROWS;
            indptr[first..=rows.min(first + BLOCK_ROWS)].windows(2).map(|ends| ends[1] - ends[0])
        };
        let count = |block: usize| {
            let mut counts = DegreeCounts::default();
            degrees(block).for_each(|degree| counts.add(degree));
            counts
        };
        let counts: Vec<DegreeCounts> = (0..rows.div_ceil(BLOCK_ROWS)).into_par_iter().map(count).collect();
        let mut all = DegreeCounts::default();
        counts.iter().for_each(|counts| all.merge(counts));

        let classes = if rows == 0 { 0 } else { degree_class(all.max_degree) + 1 };
        let mut starts = vec![0u32];
        let mut order = vec![0u32; rows];
        // Each block of rows writes its own range of each class.
        let mut parts: Vec<Vec<&mut [u32]>> = counts.iter().map(|_| Vec::with_capacity(classes)).collect();
        let mut rest = &mut order[..];
        for class in 0..classes {
            for (counts, parts) in counts.iter().zip(&mut parts) {
                let (part, after) = rest.split_at_mut(counts.rows[class] as usize);
                parts.push(part);
                rest = after;
            }
            starts.push(num_rows - rest.len() as u32);
        }
        parts.into_par_iter().enumerate().for_each(|(block, mut parts)| {
            let mut next = [0usize; CLASSES];
            for (row, degree) in (block as u32 * BLOCK_ROWS as u32..).zip(degrees(block)) {
                let class = degree_class(degree);
                parts[class][next[class]] = row;
                next[class] += 1;
            }
        });
        DegreeClasses { order, starts, edges: all.edges[..classes].to_vec(), max_degree: all.max_degree }
    }

    /// Number of classes up to that of the largest degree; 0 without rows.
    pub fn num_classes(&self) -> usize {
        self.edges.len()
    }

    /// The rows of a class, ascending; empty for a class that does not exist.
    pub fn rows(&self, class: usize) -> &[u32] {
        let at = |class: usize| self.starts.get(class).map_or(self.order.len(), |&start| start as usize);
        &self.order[at(class)..at(class + 1)]
    }

    /// Bytes of the lists.
    pub fn bytes(&self) -> u64 {
        4 * (self.order.len() + self.starts.len()) as u64 + 8 * self.edges.len() as u64
    }
}

/// Number of rows and edges of each degree class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DegreeCounts {
    rows: [u64; CLASSES],
    edges: [u64; CLASSES],
    max_degree: u64,
}

impl Default for DegreeCounts {
    fn default() -> DegreeCounts {
        DegreeCounts { rows: [0; CLASSES], edges: [0; CLASSES], max_degree: 0 }
    }
}

impl DegreeCounts {
    /// Counts one row of `degree` edges.
    pub fn add(&mut self, degree: u64) {
        self.add_rows(1, degree);
    }

    /// Counts `rows` rows of `degree` edges each.
    pub fn add_rows(&mut self, rows: u64, degree: u64) {
        let class = degree_class(degree);
        self.rows[class] += rows;
        self.edges[class] += rows * degree;
        self.max_degree = self.max_degree.max(degree);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &DegreeCounts) {
        for class in 0..CLASSES {
            self.rows[class] += other.rows[class];
            self.edges[class] += other.edges[class];
        }
        self.max_degree = self.max_degree.max(other.max_degree);
    }

    /// Largest degree counted; 0 without rows.
    pub fn max_degree(&self) -> u64 {
        self.max_degree
    }

    /// The classes that have rows, ascending.
    pub fn classes(&self) -> Vec<ClassInfo> {
        (0..CLASSES)
            .filter(|&class| self.rows[class] > 0)
            .map(|class| {
                let (from, to) = class_degrees(class);
                ClassInfo { from, to, vertices: self.rows[class], edges: self.edges[class] }
            })
            .collect()
    }
}

/// A degree class, as `data info --json` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClassInfo {
    /// Smallest degree of the class.
    pub from: u64,
    /// Largest degree of the class.
    pub to: u64,
    /// Number of vertices of such a degree.
    pub vertices: u64,
    /// Number of edges of these vertices.
    pub edges: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offsets(degrees: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let ends = degrees.into_iter().scan(0, |end, degree| {
            *end += degree;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// Checks the invariants of the fields row by row.
    fn check(indptr: &[u64], classes: &DegreeClasses) {
        let degree = |row: u32| indptr[row as usize + 1] - indptr[row as usize];
        let rows = indptr.len() as u32 - 1;
        let mut sorted: Vec<u32> = (0..rows).collect();
        sorted.sort_by_key(|&row| degree_class(degree(row)));
        assert_eq!(classes.order, sorted, "a stable partition");
        assert_eq!(classes.starts.len(), classes.num_classes() + 1);
        for class in 0..classes.num_classes() {
            let (from, to) = class_degrees(class);
            assert!(classes.rows(class).iter().all(|&row| (from..=to).contains(&degree(row))), "class {class}");
            assert_eq!(classes.edges[class], classes.rows(class).iter().map(|&row| degree(row)).sum::<u64>());
        }
        assert_eq!(classes.max_degree, (0..rows).map(degree).max().unwrap_or(0));
        let mut counts = DegreeCounts::default();
        (0..rows).for_each(|row| counts.add(degree(row)));
        for info in counts.classes() {
            let class = degree_class(info.from);
            let (vertices, edges) = (classes.rows(class).len() as u64, classes.edges[class]);
            assert_eq!((info.vertices, info.edges, degree_class(info.to)), (vertices, edges, class));
        }
    }

    #[test]
    fn rows_are_grouped_by_powers_of_two() {
        let indptr = offsets([3, 0, 1, 8, 2, 0, 1]);
        let classes = DegreeClasses::of(&indptr);
        check(&indptr, &classes);
        assert_eq!(classes.order, [1, 5, 2, 6, 0, 4, 3]);
        assert_eq!(classes.starts, [0, 2, 4, 6, 6, 7]);
        assert_eq!((&classes.edges[..], classes.max_degree), (&[0, 2, 5, 0, 8][..], 8));
        let rows: Vec<&[u32]> = (0..6).map(|class| classes.rows(class)).collect();
        assert_eq!(rows, [&[1, 5][..], &[2, 6], &[0, 4], &[], &[3], &[]]);
    }

    #[test]
    fn without_rows_there_are_no_classes() {
        for indptr in [&[][..], &[0]] {
            let classes = DegreeClasses::of(indptr);
            assert_eq!((classes.num_classes(), &classes.starts[..], classes.max_degree), (0, &[0][..], 0));
            assert!(classes.order.is_empty() && classes.rows(0).is_empty());
        }
        for degree in [0, 1, 5] {
            let classes = DegreeClasses::of(&[0, degree]);
            assert_eq!((classes.rows(degree_class(degree)), classes.max_degree), (&[0][..], degree));
        }
    }

    #[test]
    fn classes_have_no_gaps() {
        assert_eq!(class_degrees(0), (0, 0));
        for class in 1..CLASSES {
            let (from, to) = class_degrees(class);
            assert_eq!(from, class_degrees(class - 1).1 + 1);
            assert_eq!((degree_class(from), degree_class(to)), (class, class));
        }
        assert_eq!(class_degrees(CLASSES - 1).1, u64::MAX);
    }

    #[test]
    fn the_number_of_threads_does_not_matter() {
        // Several blocks, the last one short, and one without long rows.
        let degree = |row: u64| match row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 {
            _ if row / BLOCK_ROWS as u64 == 1 => row % 2,
            hash => (hash % 41) * (hash % 3),
        };
        let indptr = offsets((0..4 * BLOCK_ROWS as u64 - 5).map(degree));
        let build = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| DegreeClasses::of(&indptr))
        };
        let one = build(1);
        check(&indptr, &one);
        assert_eq!([&one, &one], [&build(2), &build(3)]);
    }

    proptest! {
        #[test]
        fn any_degrees_are_partitioned(degrees in prop::collection::vec(0u64..70, 0..60)) {
            let indptr = offsets(degrees.iter().copied());
            let classes = DegreeClasses::of(&indptr);
            check(&indptr, &classes);
        }
    }
}
