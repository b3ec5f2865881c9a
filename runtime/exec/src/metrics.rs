//! Loss, accuracy, F1 and regression errors of a set of vertices.

use hgnnc_ir::artifact::{Metric, Task};

use crate::data::Target;

/// What the metrics of a part are computed from.
#[derive(Clone, Copy, Debug)]
pub struct Predictions<'a> {
    /// Outputs, `width` per vertex: logits, or predicted numbers.
    pub outputs: &'a [f32],
    /// Outputs per vertex.
    pub width: usize,
    /// Loss of each vertex.
    pub row_loss: Option<&'a [f32]>,
    /// What they are compared with.
    pub target: &'a Target,
    /// The vertices.
    pub rows: &'a [u32],
    /// How outputs are read.
    pub task: Task,
}

impl Predictions<'_> {
    /// A metric; `None` where it means nothing: no vertices, or a metric of another task. `counts` is room for the
    /// counts of each class; what is in it does not matter.
    pub fn metric(&self, metric: Metric, counts: &mut Vec<Counts>) -> Option<f64> {
        if self.rows.is_empty() {
            return None;
        }
        match metric {
            Metric::Loss => {
                let losses = self.row_loss?;
                let sum: f64 = self.rows.iter().map(|&r| f64::from(losses[r as usize])).sum();
                Some(sum / self.rows.len() as f64)
            }
            Metric::Accuracy => self.accuracy(),
            Metric::MicroF1 => self.count(counts).then(|| {
                let (mut hit, mut wrong) = (0, 0);
                for c in counts {
                    hit += 2 * c.hits;
                    wrong += c.missed + c.false_alarms;
                }
                ratio(hit, hit + wrong)
            }),
            Metric::MacroF1 => self.count(counts).then(|| {
                // Classes that are neither there nor predicted have no F1. Of several labels, all count.
                let all = matches!(self.task, Task::MultiLabel { .. });
                let (mut sum, mut used) = (0.0, 0u32);
                for c in counts.iter().filter(|c| all || c.hits + c.missed + c.false_alarms > 0) {
                    sum += ratio(2 * c.hits, 2 * c.hits + c.missed + c.false_alarms);
                    used += 1;
                }
                if used == 0 { 0.0 } else { sum / f64::from(used) }
            }),
            Metric::Mae => self.mean_difference(f64::abs),
            Metric::Rmse => self.mean_difference(|d| d * d).map(f64::sqrt),
        }
    }

    fn output(&self, row: u32) -> &[f32] {
        &self.outputs[row as usize * self.width..(row as usize + 1) * self.width]
    }

    fn accuracy(&self) -> Option<f64> {
        let right = match (self.target, self.task) {
            (Target::Classes(labels), Task::Classify { .. }) => {
                let right = |r: &&u32| i32::try_from(arg_max(self.output(**r))) == Ok(labels[**r as usize]);
                self.rows.iter().filter(right).count()
            }
            (Target::Rows(targets), Task::MultiLabel { labels }) => {
                let all_right = |r: &&u32| {
                    let wanted = &targets[**r as usize * labels..];
                    self.output(**r).iter().zip(wanted).all(|(&x, &t)| (x > 0.0) == (t > 0.5))
                };
                self.rows.iter().filter(all_right).count()
            }
            _ => return None,
        };
        Some(right as f64 / self.rows.len() as f64)
    }

    /// Counts of each class or label. False for a task that has none.
    fn count(&self, counts: &mut Vec<Counts>) -> bool {
        counts.clear();
        counts.resize(self.width, Counts::default());
        match (self.target, self.task) {
            (Target::Classes(labels), Task::Classify { .. }) => {
                for &row in self.rows {
                    let guess = arg_max(self.output(row));
                    let label = usize::try_from(labels[row as usize]).ok();
                    if label == Some(guess) {
                        counts[guess].hits += 1;
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
                    for ((slot, &x), &t) in counts.iter_mut().zip(self.output(row)).zip(wanted) {
                        match (x > 0.0, t > 0.5) {
                            (true, true) => slot.hits += 1,
                            (true, false) => slot.false_alarms += 1,
                            (false, true) => slot.missed += 1,
                            (false, false) => {}
                        }
                    }
                }
            }
            _ => return false,
        }
        true
    }

    fn mean_difference(&self, f: impl Fn(f64) -> f64) -> Option<f64> {
        let (Target::Rows(targets), Task::Regress { width }) = (self.target, self.task) else { return None };
        let mut sum = 0.0;
        for &row in self.rows {
            let wanted = &targets[row as usize * width..];
            sum += self.output(row).iter().zip(wanted).map(|(&x, &t)| f(f64::from(x) - f64::from(t))).sum::<f64>();
        }
        Some(sum / (self.rows.len() * width).max(1) as f64)
    }
}

/// Counts of one class.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    hits: u64,
    missed: u64,
    false_alarms: u64,
}

/// `a / b`, 0 where there is nothing.
fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Position of the largest number, the first of equals.
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
        // Predicted: 0, 1, 0, 1; class 3 is neither there nor predicted.
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
        near(predictions.metric(Metric::Loss, &mut vec![]), 2.5);
        near(predictions.metric(Metric::Accuracy, &mut vec![]), 0.5);
        near(predictions.metric(Metric::MicroF1, &mut vec![]), 0.5);
        // F1: 2/3, 1/2, 0.
        near(predictions.metric(Metric::MacroF1, &mut vec![]), (2.0 / 3.0 + 0.5) / 3.0);
        assert_eq!(predictions.metric(Metric::Mae, &mut vec![]), None);
        assert_eq!(Predictions { rows: &[], ..predictions }.metric(Metric::Loss, &mut vec![]), None);
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
        near(predictions.metric(Metric::Accuracy, &mut vec![]), 0.0);
        near(predictions.metric(Metric::MicroF1, &mut vec![]), 4.0 / 6.0);
        near(predictions.metric(Metric::MacroF1, &mut vec![]), (2.0 / 3.0 + 2.0 / 3.0) / 2.0);
        let regress = Predictions { task: Task::Regress { width: 2 }, ..predictions };
        near(regress.metric(Metric::Mae, &mut vec![]), (1.0 + 1.0 + 2.0 + 2.0) / 4.0);
        near(regress.metric(Metric::Rmse, &mut vec![]), (10.0f64 / 4.0).sqrt());
    }
}
