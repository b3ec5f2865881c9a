//! Baseline that ignores the graph: a linear model of the features of the labelled vertices.
//!
//! A score says little beside none to compare it with: features alone often come close to it. The model is a softmax
//! regression (one class), a logistic regression for each class (several), or a linear regression (numbers), trained by
//! full-batch Adam from zero. The same data give the same numbers; the work is bounded, whatever their size.

use std::collections::BTreeMap;
use std::time::Instant;

use hgnnc_data::metrics::{Predictions, Tally};
use hgnnc_data::{BoundData, Target};
use hgnnc_dataset::Features;
use hgnnc_ir::training::{Metric, Part, Task};

use crate::report::{BaselineReport, Metrics};

/// Multiply-adds of training, and of the outputs of each part, at most.
const MOST_WORK: u64 = 2_000_000_000;
/// Steps of training.
const STEPS: u64 = 300;
/// Steps at least: fewer vertices are used rather than fewer steps.
const LEAST_STEPS: u64 = 60;
/// Steps between two measurements of the validation part.
const MEASURED_EVERY: u64 = 10;
/// Learning rate, of rows of norm 1 in the mean.
const RATE: f64 = 0.1;
/// Weight decay, as a part of the gradient.
const DECAY: f64 = 2e-4;

/// The baseline of bound data with a label of vertices; `None` without vertices to learn from. `features` are those of the
/// labelled type.
pub fn baseline(features: Option<&Features>, data: &BoundData, task: Task) -> Option<BaselineReport> {
    let started = Instant::now();
    let target = data.labels()?;
    let width = match task {
        Task::Classify { classes } => classes,
        Task::MultiLabel { labels } => labels,
        Task::Regress { width } => width,
        Task::Link => return None,
    };
    if width == 0 || data.part(Part::Train).is_empty() {
        return None;
    }
    let labels = Labels { target, task, width };
    let stored = |rows: &[u32]| features.map_or(1, |features| stored(features, rows)).max(1);
    let whole = |part: Part| data.part(part);
    // Multiply-adds of a step: the outputs, and the gradient of the weights.
    let step_work = |rows: &[u32]| 2 * stored(rows) as u64 * width as u64;
    let train = spaced(whole(Part::Train), step_work(whole(Part::Train)) * LEAST_STEPS);
    let parts = [Part::Train, Part::Val, Part::Test].map(|part| {
        let rows = if part == Part::Train { train.clone() } else { whole(part).to_vec() };
        let work = stored(&rows) as u64 * width as u64;
        // The validation part is measured many times.
        let times = if part == Part::Val { STEPS / MEASURED_EVERY } else { 1 };
        (part, spaced(&rows, work * times))
    });
    let steps = (MOST_WORK / step_work(&train).max(1)).clamp(LEAST_STEPS, STEPS);
    let (kind, steps, model) = match features {
        Some(features) => {
            let model = learn(features, &labels, &train, &parts[1].1, steps);
            (
                match task {
                    Task::Classify { .. } => "softmax regression",
                    Task::MultiLabel { .. } => "logistic regression",
                    Task::Regress { .. } | Task::Link => "linear regression",
                },
                steps,
                model,
            )
        }
        None => (
            match task {
                Task::Classify { .. } => "majority class",
                Task::MultiLabel { .. } => "majority of each class",
                Task::Regress { .. } | Task::Link => "mean",
            },
            0,
            Model::constant(&labels, &train),
        ),
    };
    let mut metrics = Metrics::new();
    let mut vertices = BTreeMap::new();
    for (part, rows) in parts.iter().filter(|(_, rows)| !rows.is_empty()) {
        let found = labels.metrics(&model.outputs(features, rows), rows);
        vertices.insert(part.name(), rows.len());
        metrics.insert(part.name(), found);
    }
    let seconds = started.elapsed().as_secs_f64();
    Some(BaselineReport { kind, features: features.map_or(0, Features::dim), steps, vertices, metrics, seconds })
}

/// Evenly spaced rows of a part, as many as stay within [`MOST_WORK`], if all of them take `work`.
fn spaced(rows: &[u32], work: u64) -> Vec<u32> {
    let every = work.div_ceil(MOST_WORK).max(1) as usize;
    rows.iter().copied().step_by(every).collect()
}

/// Number of stored elements of rows.
fn stored(features: &Features, rows: &[u32]) -> usize {
    match features {
        Features::Dense(x) => rows.len() * x.dim,
        Features::Sparse(x) => rows.iter().map(|&row| x.row(row as usize).0.len()).sum(),
    }
}

/// Labels, and what is predicted of them.
struct Labels<'a> {
    target: &'a Target,
    task: Task,
    /// Numbers of an output.
    width: usize,
}

impl Labels<'_> {
    /// Target outputs of a vertex: 1 for its classes and 0 for others, or its numbers.
    fn wanted(&self, row: u32, into: &mut [f32]) {
        match self.target {
            Target::Classes(labels) => {
                into.fill(0.0);
                if let Some(class) = usize::try_from(labels[row as usize]).ok().and_then(|class| into.get_mut(class)) {
                    *class = 1.0;
                }
            }
            Target::Rows(rows) => into.copy_from_slice(&rows[row as usize * self.width..][..self.width]),
        }
    }

    /// The metrics of outputs of some vertices.
    fn metrics(&self, outputs: &[f32], rows: &[u32]) -> BTreeMap<String, f64> {
        let target = match self.target {
            Target::Classes(labels) => Target::Classes(rows.iter().map(|&row| labels[row as usize]).collect()),
            Target::Rows(all) => {
                let of_row = |&row: &u32| &all[row as usize * self.width..][..self.width];
                Target::Rows(rows.iter().flat_map(of_row).copied().collect())
            }
        };
        let positions: Vec<u32> = (0..rows.len() as u32).collect();
        let (width, task) = (self.width, self.task);
        let all = Predictions { outputs, width, row_loss: None, target: &target, rows: &positions, task };
        let value = |metric: Metric| Some((metric.name().to_owned(), all.metric(metric, &mut Tally::default())?));
        Metric::ALL.into_iter().filter_map(value).collect()
    }

    /// How good the outputs of some vertices are; larger is better.
    fn score(&self, outputs: &[f32], rows: &[u32]) -> Option<f64> {
        let found = self.metrics(outputs, rows);
        found.get("micro_f1").copied().or_else(|| found.get("rmse").map(|rmse| -rmse))
    }
}

/// A linear model of scaled features.
#[derive(Clone)]
struct Model {
    /// `[features, width]`
    weights: Vec<f32>,
    /// `[width]`
    bias: Vec<f32>,
    /// Standardization of dense features, `(x - shift) * scale`. Sparse ones have one factor, for all.
    shift: Vec<f32>,
    scale: Vec<f32>,
}

impl Model {
    /// A model whose outputs are those of most vertices, or the mean of all.
    fn constant(labels: &Labels<'_>, rows: &[u32]) -> Model {
        let mut mean = vec![0.0f64; labels.width];
        let mut wanted = vec![0.0; labels.width];
        for &row in rows {
            labels.wanted(row, &mut wanted);
            mean.iter_mut().zip(&wanted).for_each(|(mean, &x)| *mean += f64::from(x) / rows.len() as f64);
        }
        let output = |mean: f64| match labels.task {
            // A class is predicted where its output is above 0.
            Task::MultiLabel { .. } => (mean - 0.5) as f32,
            _ => mean as f32,
        };
        let bias = mean.into_iter().map(output).collect();
        Model { weights: vec![], bias, shift: vec![], scale: vec![] }
    }

    /// The features of a row, scaled, by column.
    fn row<'a>(&'a self, features: &'a Features, row: u32) -> Box<dyn Iterator<Item = (usize, f32)> + 'a> {
        match features {
            Features::Dense(x) => {
                let scaled = x.row(row as usize).iter().zip(self.shift.iter().zip(&self.scale));
                Box::new(scaled.map(|(x, (shift, scale))| (x - shift) * scale).enumerate())
            }
            Features::Sparse(x) => {
                let (columns, values) = x.row(row as usize);
                let scale = self.scale[0];
                Box::new(columns.iter().zip(values).map(move |(&column, x)| (column as usize, x * scale)))
            }
        }
    }

    /// The outputs of a row.
    fn output(&self, features: &Features, row: u32, into: &mut [f32]) {
        into.copy_from_slice(&self.bias);
        let width = into.len();
        for (column, x) in self.row(features, row) {
            let weights = &self.weights[column * width..][..width];
            into.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += x * weight);
        }
    }

    /// The outputs of some rows. `[rows, width]`
    fn outputs(&self, features: Option<&Features>, rows: &[u32]) -> Vec<f32> {
        let width = self.bias.len();
        let mut all = vec![0.0; rows.len() * width];
        for (into, &row) in all.chunks_mut(width).zip(rows) {
            match features {
                Some(features) => self.output(features, row, into),
                None => into.copy_from_slice(&self.bias),
            }
        }
        all
    }
}

/// A model with the scales of features and weights of 0: a row of `rows` has the norm 1 in the mean, and the columns of
/// dense ones the same spread.
fn scaled(features: &Features, rows: &[u32], width: usize) -> Model {
    let count = rows.len().max(1) as f64;
    let (shift, scale) = match features {
        Features::Dense(x) => {
            let (mut mean, mut square) = (vec![0.0f64; x.dim], vec![0.0f64; x.dim]);
            for &row in rows {
                for ((mean, square), &x) in mean.iter_mut().zip(&mut square).zip(x.row(row as usize)) {
                    *mean += f64::from(x) / count;
                    *square += f64::from(x) * f64::from(x) / count;
                }
            }
            let all = (x.dim as f64).sqrt().max(1.0);
            let scale = mean.iter().zip(&square).map(|(mean, square)| {
                let spread = (square - mean * mean).max(0.0).sqrt();
                // A column that is the same everywhere says nothing.
                if spread > 1e-6 * square.sqrt() { (1.0 / (spread * all)) as f32 } else { 0.0 }
            });
            let scale = scale.collect();
            (mean.into_iter().map(|mean| mean as f32).collect(), scale)
        }
        Features::Sparse(x) => {
            let square = |&row: &u32| x.row(row as usize).1.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
            let norm = (rows.iter().map(square).sum::<f64>() / count).sqrt();
            (vec![], vec![if norm > 0.0 { (1.0 / norm) as f32 } else { 1.0 }])
        }
    };
    Model { weights: vec![0.0; features.dim() * width], bias: vec![0.0; width], shift, scale }
}

/// Trains a model on some rows, and returns that of the step that is best on others, which may be none.
fn learn(features: &Features, labels: &Labels<'_>, rows: &[u32], held_out: &[u32], steps: u64) -> Model {
    let width = labels.width;
    let mut model = scaled(features, rows, width);
    let numbers = matches!(labels.task, Task::Regress { .. });
    // Numbers begin at their mean, and errors are divided by their spread.
    let mut spread = vec![1.0f32; width];
    if numbers {
        model.bias = Model::constant(labels, rows).bias;
        let (mut wanted, mut square) = (vec![0.0; width], vec![0.0f64; width]);
        for &row in rows {
            labels.wanted(row, &mut wanted);
            for ((square, &x), &mean) in square.iter_mut().zip(&wanted).zip(&model.bias) {
                *square += f64::from(x - mean).powi(2) / rows.len() as f64;
            }
        }
        spread = square.into_iter().map(|square| square.sqrt().max(1e-12) as f32).collect();
    }
    let mut best: Option<(f64, Model)> = None;
    let mut adam = Adam::new(model.weights.len() + width);
    let mut gradient = vec![0.0f32; model.weights.len() + width];
    let (mut output, mut wanted) = (vec![0.0; width], vec![0.0; width]);
    for step in 1..=steps {
        gradient.fill(0.0);
        let (of_weights, of_bias) = gradient.split_at_mut(model.weights.len());
        for &row in rows {
            model.output(features, row, &mut output);
            labels.wanted(row, &mut wanted);
            match labels.task {
                Task::Classify { .. } => softmax(&mut output),
                Task::MultiLabel { .. } => output.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
                Task::Regress { .. } | Task::Link => {}
            }
            for ((x, wanted), spread) in output.iter_mut().zip(&wanted).zip(&spread) {
                *x = (*x - wanted) / (spread * rows.len() as f32);
            }
            for (column, x) in model.row(features, row) {
                let into = &mut of_weights[column * width..][..width];
                into.iter_mut().zip(&output).for_each(|(sum, error)| *sum += x * error);
            }
            of_bias.iter_mut().zip(&output).for_each(|(sum, error)| *sum += error);
        }
        of_weights.iter_mut().zip(&model.weights).for_each(|(sum, weight)| *sum += DECAY as f32 * weight);
        adam.step += 1;
        adam.update(0, &mut model.weights, of_weights, &[1.0]);
        adam.update(of_weights.len(), &mut model.bias, of_bias, &spread);
        if !held_out.is_empty() && (step % MEASURED_EVERY == 0 || step == steps) {
            let score = labels.score(&model.outputs(Some(features), held_out), held_out).unwrap_or(f64::NEG_INFINITY);
            if best.as_ref().is_none_or(|(before, _)| score > *before) {
                best = Some((score, model.clone()));
            }
        }
    }
    best.map_or(model, |(_, model)| model)
}

/// Adam (Kingma and Ba, ICLR 2015) with its usual moments.
struct Adam {
    first: Vec<f32>,
    second: Vec<f32>,
    step: i32,
}

impl Adam {
    fn new(len: usize) -> Adam {
        Adam { first: vec![0.0; len], second: vec![0.0; len], step: 0 }
    }

    /// Updates numbers whose moments begin at `at`. The rate is multiplied by `spread`, repeated.
    fn update(&mut self, at: usize, numbers: &mut [f32], gradient: &[f32], spread: &[f32]) {
        const BETA: (f32, f32) = (0.9, 0.999);
        let rate = RATE * (1.0 - f64::from(BETA.1).powi(self.step)).sqrt() / (1.0 - f64::from(BETA.0).powi(self.step));
        let moments = self.first[at..].iter_mut().zip(&mut self.second[at..]);
        for (((number, &g), (first, second)), spread) in
            numbers.iter_mut().zip(gradient).zip(moments).zip(spread.iter().cycle())
        {
            *first = BETA.0 * *first + (1.0 - BETA.0) * g;
            *second = BETA.1 * *second + (1.0 - BETA.1) * g * g;
            *number -= rate as f32 * spread * *first / (second.sqrt() + 1e-8);
        }
    }
}

fn softmax(row: &mut [f32]) {
    let largest = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    row.iter_mut().for_each(|x| *x = (*x - largest).exp());
    let sum: f32 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use hgnnc_data::GroundTruth;
    use hgnnc_dataset::SparseFeatures;
    use hgnnc_dataset::dataset::DenseFeatures;

    const ROWS: usize = 60;

    fn data(target: Target) -> BoundData {
        let part = |range: std::ops::Range<u32>| range.collect();
        let parts = [part(0..30), part(30..45), part(45..60)];
        let truth = GroundTruth { labels: Some(target), parts, ..GroundTruth::default() };
        BoundData { truths: vec![truth], ..BoundData::default() }
    }

    /// Two columns that tell the class of a row, a constant one, and one of noise, at very different scales.
    fn dense() -> Features {
        let row = |row: usize| {
            let noise = ((row * 37 % 11) as f32 / 11.0) - 0.5;
            [1000.0 * ((row % 3) as f32 - 1.0) + noise, 1e-3 * (row % 3 / 2) as f32, 7.0, noise]
        };
        let rows: Vec<f32> = (0..ROWS).flat_map(row).collect();
        Features::Dense(DenseFeatures { dim: 4, rows: rows.into() })
    }

    #[test]
    fn features_that_tell_the_class_are_learned() {
        let data = data(Target::Classes((0..ROWS).map(|row| (row % 3) as i32).collect()));
        let task = Task::Classify { classes: 3 };
        let found = baseline(Some(&dense()), &data, task).expect("a baseline");
        assert_eq!((found.kind, found.features), ("softmax regression", 4));
        assert_eq!(found.vertices, [("train", 30), ("val", 15), ("test", 15)].into());
        assert_eq!(found.metrics["test"]["accuracy"], 1.0);
        assert!(!found.metrics["test"].contains_key("loss"));
        let again = baseline(Some(&dense()), &data, task).expect("a baseline");
        assert_eq!(again.metrics, found.metrics);
        // The same of sparse ones: a column for each class, and one that all rows have.
        let (indices, indptr) = ((0..ROWS as u32).flat_map(|row| [row % 3, 3]), (0..=ROWS as u64).map(|row| 2 * row));
        let (indices, indptr, data_of) = (indices.collect(), indptr.collect(), vec![0.5; 2 * ROWS].into());
        let sparse = Features::Sparse(SparseFeatures { dim: 4, indptr, indices, data: data_of });
        let found = baseline(Some(&sparse), &data, task).expect("a baseline");
        assert_eq!(found.metrics["test"]["macro_f1"], 1.0);
    }

    #[test]
    fn without_features_it_is_the_majority() {
        let data = data(Target::Classes((0..ROWS).map(|row| i32::from(row % 3 == 0)).collect()));
        let found = baseline(None, &data, Task::Classify { classes: 2 }).expect("a baseline");
        assert_eq!((found.kind, found.features, found.steps), ("majority class", 0, 0));
        assert_eq!(found.metrics["test"]["accuracy"], 10.0 / 15.0);
    }

    #[test]
    fn several_classes_and_numbers() {
        let rows = |of: &dyn Fn(usize) -> [f32; 2]| Target::Rows((0..ROWS).flat_map(of).collect());
        let tags = data(rows(&|row| [f32::from(u8::from(row % 3 == 0)), f32::from(u8::from(row % 3 != 1))]));
        let task = Task::MultiLabel { labels: 2 };
        let found = baseline(Some(&dense()), &tags, task).expect("a baseline");
        assert_eq!((found.kind, found.metrics["test"]["micro_f1"] > 0.9), ("logistic regression", true));
        let found = baseline(None, &tags, task).expect("a baseline");
        // The second class is that of most vertices, the first is not.
        assert_eq!((found.kind, found.metrics["test"]["accuracy"]), ("majority of each class", 5.0 / 15.0));
        let numbers = data(rows(&|row| [1e6 + 10.0 * (row % 3) as f32, 1e-3 * (row % 3) as f32]));
        let task = Task::Regress { width: 2 };
        let found = baseline(Some(&dense()), &numbers, task).expect("a baseline");
        let mean = baseline(None, &numbers, task).expect("a baseline");
        assert_eq!((found.kind, mean.kind), ("linear regression", "mean"));
        assert!(found.metrics["test"]["mae"] < 0.2 * mean.metrics["test"]["mae"], "{found:?} {mean:?}");
    }

    #[test]
    fn nothing_is_predicted_without_vertices_to_learn_from() {
        let truth = GroundTruth { labels: Some(Target::Classes(vec![0])), ..GroundTruth::default() };
        let empty = BoundData { truths: vec![truth], ..BoundData::default() };
        assert_eq!(baseline(None, &empty, Task::Classify { classes: 2 }), None);
        assert_eq!(baseline(None, &BoundData::default(), Task::Link), None);
    }
}
