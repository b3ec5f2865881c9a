//! Given inputs that are mostly zeros.
//!
//! A matrix of word counts has thousands of columns and a few dozen numbers a row: its product with weights is the largest
//! of a layer, and nearly all of it are zeros. Its elements that are not zero are bound like a sparse feature of the
//! dataset, once. Each pass compares the rows that it is given with them, which costs one read of the rows: a caller who
//! changes one number gets the programs that read all of them.

use std::path::Path;

use hgnnc_dataset::{Dataset, Features, FieldData, SparseFeatures};
use hgnnc_driver::{Analysis, Analyzed, SourceMap, place_of_feature};

use super::{LayerJob, TensorInfo};
use crate::{dataset, source};

/// Rows of fewer columns cost little more than to read them.
const LEAST_COLUMNS: usize = 64;

/// The most elements that are not zero, as a part of all: one of them costs what several of a dense product do.
const MOST: f64 = 1.0 / 8.0;

/// A given input that is mostly zeros.
#[derive(Debug)]
pub(super) struct SparseInput {
    name: String,
    /// Its position among the given inputs.
    pub position: usize,
    rows: SparseFeatures,
}

impl SparseInput {
    /// The elements of an input that are not zero, if there are few.
    pub fn new(position: usize, info: &TensorInfo, numbers: &[f32]) -> Option<Self> {
        let &[_, columns] = &info.shape[..] else { return None };
        if columns < LEAST_COLUMNS || numbers.is_empty() {
            return None;
        }
        let rows = SparseFeatures::from_dense(numbers, columns, (MOST * numbers.len() as f64) as usize)?;
        Some(Self { name: info.name.clone(), position, rows })
    }

    /// Whether an input has these rows.
    pub fn is(&self, inputs: &[&[f32]]) -> bool {
        self.rows.equals_dense(inputs[self.position])
    }

    /// The line of an explanation.
    pub fn note(&self) -> String {
        let all = self.rows.dim * self.rows.indptr.len().saturating_sub(1);
        let share = 100.0 * self.rows.indices.len() as f64 / all as f64;
        format!("sparse inputs: {share:.1} % of the given `{}` are not zero, and only these are read", self.name)
    }
}

/// Takes the inputs out of the list whose zeros an operation of the model would fill, and analyzes the model with the
/// others declared sparse; `None` if none is left, or a file of the model has changed since it was analyzed before.
pub(super) fn analyze(job: &LayerJob, before: &SourceMap, inputs: &mut Vec<SparseInput>) -> Option<Analysis> {
    let mut names = vec![];
    let mut last = None;
    inputs.retain(|input| {
        let with = [&names[..], &[input.name.clone()]].concat();
        let analysis = source::analyze_sparse_text(Path::new(&job.name), &job.text, &with);
        let is_right = analysis.model.is_some() && analysis.sources.files() == before.files();
        if is_right {
            (names, last) = (with, Some(analysis));
        }
        is_right
    });
    last
}

/// The dataset with the rows of sparse inputs in the place of its own; `None` if there are none.
pub(super) fn with_rows(dataset: &Dataset, model: &Analyzed, inputs: &[SparseInput]) -> Option<Dataset> {
    if inputs.is_empty() {
        return None;
    }
    let summary = dataset::summary(dataset);
    let mut dataset = dataset.clone();
    for input in inputs {
        let Some(place) = place_of_feature(model, &input.name, &summary) else { continue };
        let vertex = &mut dataset.vertex_types[place.vertex];
        let values = Features::Sparse(input.rows.clone());
        match place.field {
            None => vertex.features = Some(values),
            Some(name) => {
                vertex.fields.retain(|known| known.name != name);
                vertex.fields.push(FieldData { name, values });
            }
        }
    }
    Some(dataset)
}
