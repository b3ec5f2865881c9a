//! Counts of predicted and true classes.

use hgnnc_ir::training::Task;

use crate::bound::Target;
use crate::metrics::{Predictions, arg_max};

/// Counts of a set of vertices, for each class and for each pair of classes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClassCounts {
    /// By class: vertices of it that are predicted, that are missed, and vertices of others that are predicted as of it.
    each: Vec<[u64; 3]>,
    /// `[classes, classes]`: true class, predicted class. `None` with several classes per vertex, or too many classes.
    matrix: Option<Vec<u64>>,
}

impl ClassCounts {
    /// Most classes of a confusion matrix.
    pub const MOST_CONFUSED: usize = 100;

    /// Adds vertices. Those without a class, and tasks without classes, add nothing.
    pub fn add(&mut self, predictions: &Predictions<'_>) {
        let Predictions { outputs, width, target, rows, task, .. } = *predictions;
        let output = |row: u32| &outputs[row as usize * width..(row as usize + 1) * width];
        match (target, task) {
            (Target::Classes(labels), Task::Classify { .. }) => {
                self.each.resize(width, [0; 3]);
                if width <= Self::MOST_CONFUSED {
                    self.matrix.get_or_insert_default().resize(width * width, 0);
                }
                for &row in rows {
                    let Some(label) = usize::try_from(labels[row as usize]).ok().filter(|&label| label < width) else {
                        continue;
                    };
                    let guess = arg_max(output(row));
                    if let Some(matrix) = &mut self.matrix {
                        matrix[label * width + guess] += 1;
                    }
                    if label == guess {
                        self.each[label][0] += 1;
                    } else {
                        self.each[label][1] += 1;
                        self.each[guess][2] += 1;
                    }
                }
            }
            (Target::Rows(targets), Task::MultiLabel { labels }) => {
                self.each.resize(width, [0; 3]);
                for &row in rows {
                    let wanted = &targets[row as usize * labels..];
                    for ((count, &x), &t) in self.each.iter_mut().zip(output(row)).zip(wanted) {
                        match (x > 0.0, t > 0.5) {
                            (true, true) => count[0] += 1,
                            (false, true) => count[1] += 1,
                            (true, false) => count[2] += 1,
                            (false, false) => {}
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// All counts, which are added to those of other vertices by [`ClassCounts::of_all`].
    pub fn numbers(&self) -> Vec<u64> {
        let matrix = self.matrix.iter().flatten().copied();
        std::iter::once(self.each.len() as u64).chain(self.each.as_flattened().iter().copied()).chain(matrix).collect()
    }

    /// The counts of all vertices, from those of some of them each.
    pub fn of_all<'a>(parts: impl IntoIterator<Item = &'a [u64]>) -> Self {
        let mut all = Self::default();
        for numbers in parts {
            let Some((&classes, counts)) = numbers.split_first() else { continue };
            let Some((each, matrix)) = counts.split_at_checked(3 * classes as usize) else { continue };
            all.each.resize(classes as usize, [0; 3]);
            let sums = all.each.as_flattened_mut().iter_mut();
            sums.zip(each).for_each(|(sum, count)| *sum += count);
            if !matrix.is_empty() {
                let sums = all.matrix.get_or_insert_default();
                sums.resize(matrix.len(), 0);
                sums.iter_mut().zip(matrix).for_each(|(sum, count)| *sum += count);
            }
        }
        all
    }

    /// By class: vertices of it that are predicted, that are missed, and vertices of others that are predicted as of it.
    pub fn each(&self) -> &[[u64; 3]] {
        &self.each
    }

    /// Rows of the confusion matrix: vertices by true class (row) and predicted class (column).
    pub fn confusion(&self) -> Option<Vec<Vec<u64>>> {
        let matrix = self.matrix.as_ref()?;
        Some(matrix.chunks(self.each.len().max(1)).map(<[u64]>::to_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_class_per_vertex() {
        let target = Target::Classes(vec![0, 1, 1, 2, -1]);
        // Predictions: 0, 1, 0, 1; the last vertex has no class.
        let outputs = [[3.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 5.0, 4.0], [0.0, 0.0, 9.0]];
        let outputs = outputs.as_flattened();
        let task = Task::Classify { classes: 3 };
        let all = Predictions { outputs, width: 3, row_loss: None, target: &target, rows: &[0, 1, 2, 3, 4], task };
        let mut counts = ClassCounts::default();
        counts.add(&all);
        assert_eq!(counts.each(), [[1, 0, 1], [1, 1, 1], [0, 1, 0]]);
        assert_eq!(counts.confusion(), Some(vec![vec![1, 0, 0], vec![1, 1, 0], vec![0, 1, 0]]));
        // Some rows at a time.
        let mut parts = ClassCounts::default();
        let mut own = vec![];
        for rows in [&[0, 1][..], &[2, 3], &[4], &[]] {
            let mut part = ClassCounts::default();
            [&mut parts, &mut part].into_iter().for_each(|counts| counts.add(&Predictions { rows, ..all }));
            own.push(part.numbers());
        }
        assert_eq!(parts, counts);
        assert_eq!(ClassCounts::of_all(own.iter().map(|numbers| &numbers[..])), counts);
    }

    #[test]
    fn several_classes_per_vertex() {
        let target = Target::Rows(vec![1.0, 0.0, 1.0, 1.0]);
        let (outputs, task) = (&[2.0, 1.0, -1.0, 3.0], Task::MultiLabel { labels: 2 });
        let mut counts = ClassCounts::default();
        counts.add(&Predictions { outputs, width: 2, row_loss: None, target: &target, rows: &[0, 1], task });
        assert_eq!(counts.each(), [[1, 1, 0], [1, 0, 1]]);
        assert_eq!(counts.confusion(), None);
        let twice = ClassCounts::of_all([&counts.numbers()[..], &counts.numbers()]);
        assert_eq!((twice.each(), twice.confusion()), (&[[2, 2, 0], [2, 0, 2]][..], None));
    }

    #[test]
    fn many_classes_have_no_matrix() {
        let classes = ClassCounts::MOST_CONFUSED + 1;
        let target = Target::Classes(vec![7]);
        let (outputs, task) = (&vec![0.0; classes], Task::Classify { classes });
        let mut counts = ClassCounts::default();
        counts.add(&Predictions { outputs, width: classes, row_loss: None, target: &target, rows: &[0], task });
        assert_eq!((counts.each()[0], counts.each()[7], counts.confusion()), ([0, 0, 1], [0, 1, 0], None));
    }
}
