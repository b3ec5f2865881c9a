//! Loss, accuracy, F1 and regression errors of a set of vertices.

use hgnnc_ir::training::{Metric, Task};

use crate::bound::Target;

/// Inputs of the metrics of a split part.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Predictions<'a> {
    /// Outputs, `width` per vertex: logits or regression values.
    pub outputs: &'a [f32],
    pub width: usize,
    /// Loss of each vertex.
    pub row_loss: Option<&'a [f32]>,
    /// Labels or regression targets.
    pub target: &'a Target,
    /// Vertices of the part.
    pub rows: &'a [u32],
    /// Task, which determines how outputs are interpreted.
    pub task: Task,
}

impl Predictions<'_> {
    /// Value of a metric; `None` without vertices or for a metric of another task. `tally` is scratch space.
    pub fn metric(&self, metric: Metric, tally: &mut Tally) -> Option<f64> {
        if self.rows.is_empty() {
            return None;
        }
        match metric {
            Metric::Loss => Some(self.add_losses(0.0)? / self.rows.len() as f64),
            Metric::Accuracy | Metric::MicroF1 | Metric::MacroF1 => {
                self.tally(tally).then(|| tally.metric(metric, self.task, self.rows.len())).flatten()
            }
            Metric::Mae | Metric::Rmse => self.add_differences(Differences::default())?.metric(metric, self.rows.len()),
            // Of links, which have no rows of vertices.
            _ => None,
        }
    }

    fn output(&self, row: u32) -> &[f32] {
        &self.outputs[row as usize * self.width..(row as usize + 1) * self.width]
    }

    /// Counts per class or label into `tally`. Returns false if the task has no classes.
    pub fn tally(&self, tally: &mut Tally) -> bool {
        tally.counts.clear();
        tally.right = 0;
        self.add_counts(tally)
    }

    /// Adds counts per class or label. Returns false if the task has no classes.
    fn add_counts(&self, tally: &mut Tally) -> bool {
        let Tally { counts, right } = tally;
        counts.resize(self.width, Counts::default());
        match (self.target, self.task) {
            (Target::Classes(labels), Task::Classify { .. }) => {
                for &row in self.rows {
                    let guess = arg_max(self.output(row));
                    let label = usize::try_from(labels[row as usize]).ok();
                    if label == Some(guess) {
                        counts[guess].hits += 1;
                        *right += 1;
                        continue;
                    }
                    if let Some(slot) = counts.get_mut(guess) {
                        slot.false_alarms += 1;
                    }
                    if let Some(slot) = label.and_then(|l| counts.get_mut(l)) {
                        slot.missed += 1;
                    }
                }
            }
            (Target::Rows(targets), Task::MultiLabel { labels }) => {
                for &row in self.rows {
                    let wanted = &targets[row as usize * labels..];
                    let mut all_right = true;
                    for ((slot, &x), &t) in counts.iter_mut().zip(self.output(row)).zip(wanted) {
                        match (x > 0.0, t > 0.5) {
                            (true, true) => slot.hits += 1,
                            (true, false) => slot.false_alarms += 1,
                            (false, true) => slot.missed += 1,
                            (false, false) => {}
                        }
                        all_right &= (x > 0.0) == (t > 0.5);
                    }
                    *right += u64::from(all_right);
                }
            }
            _ => return false,
        }
        true
    }

    /// `sum` and the losses of all vertices, added one by one.
    fn add_losses(&self, sum: f64) -> Option<f64> {
        let losses = self.row_loss?;
        Some(self.rows.iter().fold(sum, |sum, &row| sum + f64::from(losses[row as usize])))
    }

    /// Adds the differences from the targets of a regression, vertex by vertex.
    fn add_differences(&self, Differences { mut absolute, mut squared, .. }: Differences) -> Option<Differences> {
        let (Target::Rows(targets), Task::Regress { width }) = (self.target, self.task) else { return None };
        for &row in self.rows {
            let wanted = &targets[row as usize * width..][..width];
            let differences = self.output(row).iter().zip(wanted).map(|(&x, &t)| f64::from(x) - f64::from(t));
            absolute += differences.clone().map(f64::abs).sum::<f64>();
            squared += differences.map(|d| d * d).sum::<f64>();
        }
        Some(Differences { absolute, squared, width })
    }
}

/// Sums of the differences between outputs and targets.
#[derive(Clone, Copy, Default, Debug)]
struct Differences {
    absolute: f64,
    squared: f64,
    /// Numbers of a vertex.
    width: usize,
}

impl Differences {
    fn metric(self, metric: Metric, vertices: usize) -> Option<f64> {
        let count = (vertices * self.width).max(1) as f64;
        match metric {
            Metric::Mae => Some(self.absolute / count),
            Metric::Rmse => Some((self.squared / count).sqrt()),
            _ => None,
        }
    }
}

/// Sums from which all metrics of a part are computed, for outputs that come some rows at a time. The metrics are those
/// of [`Predictions::metric`] for all rows together, to the last bit.
#[derive(Clone, Default, Debug)]
pub struct MetricSums {
    vertices: usize,
    loss: Option<f64>,
    /// `None` for a task without classes.
    tally: Option<Tally>,
    differences: Option<Differences>,
}

impl MetricSums {
    /// Adds vertices.
    pub fn add(&mut self, predictions: &Predictions<'_>) {
        let first = self.vertices == 0;
        self.vertices += predictions.rows.len();
        self.loss = self.loss.or(first.then_some(0.0)).and_then(|sum| predictions.add_losses(sum));
        self.differences = predictions.add_differences(self.differences.unwrap_or_default());
        let mut tally = self.tally.take().unwrap_or_default();
        self.tally = predictions.add_counts(&mut tally).then_some(tally);
    }

    /// Value of a metric; `None` without vertices or for a metric of another task.
    pub fn metric(&self, metric: Metric, task: Task) -> Option<f64> {
        let vertices = Some(self.vertices).filter(|&vertices| vertices > 0)?;
        match metric {
            Metric::Loss => Some(self.loss? / vertices as f64),
            Metric::Mae | Metric::Rmse => self.differences?.metric(metric, vertices),
            _ => self.tally.as_ref()?.metric(metric, task, vertices),
        }
    }
}

/// Confusion counts of one class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counts {
    hits: u64,
    missed: u64,
    false_alarms: u64,
}

/// Confusion counts per class or label, and the number of vertices with all outputs right.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    counts: Vec<Counts>,
    right: u64,
}

impl Tally {
    /// Sets the counts from `[true positive, false negative, false positive]` per class or label.
    pub fn set(&mut self, counts: &[u32], right: u64) {
        self.counts.clear();
        let of_class = |three: &[u32]| {
            let [hits, missed, false_alarms] = [0, 1, 2].map(|i| three.get(i).copied().map_or(0, u64::from));
            Counts { hits, missed, false_alarms }
        };
        self.counts.extend(counts.chunks(3).map(of_class));
        self.right = right;
    }

    /// All counts, which are added to those of other vertices by [`Tally::of_all`].
    pub fn numbers(&self) -> Vec<u64> {
        let of_class = self.counts.iter().flat_map(|of| [of.hits, of.missed, of.false_alarms]);
        std::iter::once(self.right).chain(of_class).collect()
    }

    /// The counts of all vertices, from those of some of them each.
    pub fn of_all<'a>(parts: impl IntoIterator<Item = &'a [u64]>) -> Self {
        let mut all = Self::default();
        for numbers in parts {
            let Some((right, counts)) = numbers.split_first() else { continue };
            all.right += right;
            all.counts.resize(all.counts.len().max(counts.len() / 3), Counts::default());
            for (sum, of) in all.counts.iter_mut().zip(counts.as_chunks::<3>().0) {
                sum.hits += of[0];
                sum.missed += of[1];
                sum.false_alarms += of[2];
            }
        }
        all
    }

    /// Whether this metric is computed from counts.
    pub fn has(metric: Metric) -> bool {
        matches!(metric, Metric::Accuracy | Metric::MicroF1 | Metric::MacroF1)
    }

    /// Value of a metric over `vertices` vertices. `None` without vertices, and for metrics not computed from counts.
    pub fn metric(&self, metric: Metric, task: Task, vertices: usize) -> Option<f64> {
        if vertices == 0 {
            return None;
        }
        match metric {
            Metric::Accuracy => Some(self.right as f64 / vertices as f64),
            Metric::MicroF1 => {
                let (mut hit, mut wrong) = (0, 0);
                for c in &self.counts {
                    hit += 2 * c.hits;
                    wrong += c.missed + c.false_alarms;
                }
                Some(ratio(hit, hit + wrong))
            }
            Metric::MacroF1 => {
                // Classes that neither occur nor are predicted have no F1. With several labels per vertex, all count.
                let all = matches!(task, Task::MultiLabel { .. });
                let (mut sum, mut used) = (0.0, 0u32);
                for c in self.counts.iter().filter(|c| all || c.hits + c.missed + c.false_alarms > 0) {
                    sum += ratio(2 * c.hits, 2 * c.hits + c.missed + c.false_alarms);
                    used += 1;
                }
                Some(if used == 0 { 0.0 } else { sum / f64::from(used) })
            }
            // Not computed from counts of classes.
            _ => None,
        }
    }
}

/// `a / b`, or 0 if `b` is 0.
fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Index of the largest element, the first among equals.
pub fn arg_max(x: &[f32]) -> usize {
    let mut best = 0;
    for (i, v) in x.iter().enumerate() {
        if *v > x[best] {
            best = i;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: Option<f64>, expected: f64) {
        assert!(got.is_some_and(|g| (g - expected).abs() < 1e-9), "{got:?} instead of {expected}");
    }

    #[test]
    fn one_class_per_vertex() {
        let target = Target::Classes(vec![0, 1, 1, 2, -1]);
        // Predictions: 0, 1, 0, 1; class 3 neither occurs nor is predicted.
        let outputs = [
            [3.0, 1.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 0.0],
            [1.0, 1.0, 0.0, 0.0],
            [0.0, 5.0, 4.0, 0.0],
            [0.0, 0.0, 9.0, 0.0],
        ];
        let predictions = Predictions {
            outputs: outputs.as_flattened(),
            width: 4,
            row_loss: Some(&[1.0, 2.0, 3.0, 4.0, 100.0]),
            target: &target,
            rows: &[0, 1, 2, 3],
            task: Task::Classify { classes: 4 },
        };
        near(predictions.metric(Metric::Loss, &mut Tally::default()), 2.5);
        near(predictions.metric(Metric::Accuracy, &mut Tally::default()), 0.5);
        near(predictions.metric(Metric::MicroF1, &mut Tally::default()), 0.5);
        // F1: 2/3, 1/2, 0.
        near(predictions.metric(Metric::MacroF1, &mut Tally::default()), (2.0 / 3.0 + 0.5) / 3.0);
        assert_eq!(predictions.metric(Metric::Mae, &mut Tally::default()), None);
        assert_eq!(Predictions { rows: &[], ..predictions }.metric(Metric::Loss, &mut Tally::default()), None);
    }

    #[test]
    fn several_labels_and_numbers() {
        let target = Target::Rows(vec![1.0, 0.0, 1.0, 1.0]);
        let predictions = Predictions {
            outputs: &[2.0, 1.0, -1.0, 3.0],
            width: 2,
            row_loss: None,
            target: &target,
            rows: &[0, 1],
            task: Task::MultiLabel { labels: 2 },
        };
        near(predictions.metric(Metric::Accuracy, &mut Tally::default()), 0.0);
        near(predictions.metric(Metric::MicroF1, &mut Tally::default()), 4.0 / 6.0);
        near(predictions.metric(Metric::MacroF1, &mut Tally::default()), (2.0 / 3.0 + 2.0 / 3.0) / 2.0);
        let regress = Predictions { task: Task::Regress { width: 2 }, ..predictions };
        near(regress.metric(Metric::Mae, &mut Tally::default()), (1.0 + 1.0 + 2.0 + 2.0) / 4.0);
        near(regress.metric(Metric::Rmse, &mut Tally::default()), (10.0f64 / 4.0).sqrt());
    }

    /// Sums of some rows at a time give the bits of all rows together.
    #[test]
    fn sums_of_parts() {
        let numbers = |count: usize, seed: usize| (0..count).map(move |i| ((i * 7 + seed) as f32 * 0.37).sin());
        let (outputs, row_loss): (Vec<f32>, Vec<f32>) = (numbers(40, 1).collect(), numbers(20, 2).collect());
        let classes = Target::Classes((0..20).map(|i| i % 3 - 1).collect());
        let labels = Target::Rows(numbers(40, 3).map(|x| f32::from(u8::from(x > 0.0))).collect());
        let targets = Target::Rows(numbers(40, 4).collect());
        let rows: Vec<u32> = (0..20).rev().collect();
        for (target, task) in [
            (&classes, Task::Classify { classes: 2 }),
            (&labels, Task::MultiLabel { labels: 2 }),
            (&targets, Task::Regress { width: 2 }),
        ] {
            let row_loss = Some(&row_loss[..]);
            let all = Predictions { outputs: &outputs, width: 2, row_loss, target, rows: &rows, task };
            let mut sums = MetricSums::default();
            rows.chunks(6).for_each(|rows| sums.add(&Predictions { rows, ..all }));
            for metric in Metric::ALL {
                let expected = all.metric(metric, &mut Tally::default());
                assert_eq!(sums.metric(metric, task).map(f64::to_bits), expected.map(f64::to_bits), "{metric:?}");
            }
            assert_eq!(MetricSums::default().metric(Metric::Loss, task), None);
        }
    }
}
