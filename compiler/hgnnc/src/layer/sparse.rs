//! Given inputs that are mostly zeros.
//!
//! A matrix of word counts has thousands of columns and a few dozen numbers a row: its product with weights is the largest
//! of a layer, and nearly all of it are zeros. Its elements that are not zero are bound like a sparse feature of the
//! dataset, once. Each pass compares the rows that it is given with them, which costs one read of the rows: a caller who
//! changes one number gets the programs that read all of them.

use std::path::Path;
use std::sync::Arc;

use hgnnc_dataset::{Dataset, Features, FieldData, SparseFeatures};
use hgnnc_driver::{Analysis, FeaturePlace, SourceMap, place_of_feature};

use super::{LayerJob, TensorInfo};
use crate::{dataset, source};

/// Rows of fewer columns cost little more than to read them.
const LEAST_COLUMNS: usize = 64;

/// The most elements that are not zero, as a part of all: one of them costs what several of a dense product do.
const MOST: f64 = 1.0 / 8.0;

/// A model and its dataset, until inputs are known.
#[derive(Debug)]
pub(super) struct Source {
    pub job: LayerJob,
    sources: SourceMap,
    pub dataset: Arc<Dataset>,
    /// By given input: its place in the dataset, unless another feature of the model has the same.
    places: Vec<Option<FeaturePlace>>,
}

impl Source {
    pub fn new(job: &LayerJob, analysis: &Analysis, dataset: &Arc<Dataset>) -> Self {
        let summary = dataset::summary(dataset);
        let own_place = |name: &String| {
            let model = analysis.model.as_ref()?;
            let place = place_of_feature(model, name, &summary)?;
            let vertices = model.schema.vertices.iter();
            let all =
                vertices.flat_map(|info| info.matrices().map(move |field| format!("{}.{}", info.name, field.name)));
            let same = all.filter_map(|other| place_of_feature(model, &other, &summary));
            let same = same.filter(|other| (other.vertex, &other.field) == (place.vertex, &place.field)).count();
            (same == 1).then_some(place)
        };
        let places = job.given.iter().map(own_place).collect();
        Self { job: job.clone(), sources: analysis.sources.clone(), dataset: Arc::clone(dataset), places }
    }

    /// The inputs that are mostly zeros.
    pub fn sparse_inputs(&self, infos: &[&TensorInfo], inputs: &[&[f32]]) -> Vec<SparseInput> {
        let sparse = |position: usize| {
            SparseInput::new(position, self.places[position].clone()?, infos[position], inputs[position])
        };
        (0..self.places.len()).filter_map(sparse).collect()
    }

    /// Takes the inputs out of the list whose zeros an operation of the model would fill, and analyzes the model with the
    /// others declared sparse; `None` if none is left, or a file of the model has changed since it was analyzed before.
    pub fn analyze(&self, inputs: &mut Vec<SparseInput>) -> Option<Analysis> {
        let mut names = vec![];
        let mut last = None;
        inputs.retain(|input| {
            let with = [&names[..], std::slice::from_ref(&input.name)].concat();
            let analysis = source::analyze_sparse_text(Path::new(&self.job.name), &self.job.text, &with);
            let is_right = analysis.model.is_some() && analysis.sources.files() == self.sources.files();
            if is_right {
                (names, last) = (with, Some(analysis));
            }
            is_right
        });
        last
    }
}

/// A given input that is mostly zeros.
#[derive(Debug)]
pub(super) struct SparseInput {
    name: String,
    /// Its position among the given inputs.
    pub position: usize,
    place: FeaturePlace,
    rows: SparseFeatures,
}

impl SparseInput {
    /// The elements of an input that are not zero, if there are few.
    fn new(position: usize, place: FeaturePlace, info: &TensorInfo, numbers: &[f32]) -> Option<Self> {
        let &[_, columns] = &info.shape[..] else { return None };
        if columns < LEAST_COLUMNS || numbers.is_empty() {
            return None;
        }
        let rows = SparseFeatures::from_dense(numbers, columns, (MOST * numbers.len() as f64) as usize)?;
        Some(Self { name: info.name.clone(), position, place, rows })
    }

    /// Whether all elements are zero: rows that no training goes on with.
    pub fn is_empty(&self) -> bool {
        self.rows.indices.is_empty()
    }

    /// Whether an input has these rows.
    pub fn is(&self, inputs: &[&[f32]]) -> bool {
        self.rows.equals_dense(inputs[self.position])
    }

    /// Says how many elements are read, for [`Layer::explanations`](super::Layer::explanations).
    pub fn note(&self) -> String {
        let all = self.rows.dim * self.rows.indptr.len().saturating_sub(1);
        let share = 100.0 * self.rows.indices.len() as f64 / all as f64;
        format!("sparse inputs: {share:.1} % of the given `{}` are not zero, and only these are read", self.name)
    }
}

/// The dataset with the rows of sparse inputs in the place of its own; `None` if there are none.
pub(super) fn with_rows(dataset: &Dataset, inputs: &[SparseInput]) -> Option<Dataset> {
    if inputs.is_empty() {
        return None;
    }
    let mut dataset = dataset.clone();
    for SparseInput { place, rows, .. } in inputs {
        let vertex = &mut dataset.vertex_types[place.vertex];
        let values = Features::Sparse(rows.clone());
        match &place.field {
            None => vertex.features = Some(values),
            Some(name) => {
                vertex.fields.retain(|known| known.name != *name);
                vertex.fields.push(FieldData { name: name.clone(), values });
            }
        }
    }
    Some(dataset)
}
