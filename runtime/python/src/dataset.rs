//! Datasets: loaded, built of arrays, and seen as arrays.

use std::path::PathBuf;
use std::sync::Arc;

use hgnnc_cpu::thread_pool;
use hgnnc_dataset::build::{GivenLabels, GivenLinks, GivenRows};
use hgnnc_dataset::dataset::LabelValues;
use hgnnc_dataset::{Builder, Features, FloatArray, GivenFeatures, Links, Named, VertexIds, schema_text};
use numpy::{PyArray1, PyArray2, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::arrays::{View, shared, slice};
use crate::errors::{data_error, exception, machine_error};

type Ints<'py> = PyReadonlyArray1<'py, i64>;
type Floats<'py> = Bound<'py, PyArray1<f32>>;
type Rows<'py> = Bound<'py, PyArray2<f32>>;

#[derive(FromPyObject)]
enum Ids<'py> {
    Integers(Ints<'py>),
    Texts(Vec<String>),
}

/// Dense rows, or width, offsets, columns and values of sparse ones.
#[derive(FromPyObject)]
enum FeatureSpec<'py> {
    Dense(Rows<'py>),
    Sparse(usize, Ints<'py>, Ints<'py>, Floats<'py>),
}

impl FeatureSpec<'_> {
    fn given(&self) -> PyResult<GivenFeatures<'_>> {
        Ok(match self {
            FeatureSpec::Dense(rows) => GivenFeatures::Dense { dim: rows.shape()[1], rows: shared(rows)? },
            FeatureSpec::Sparse(dim, indptr, indices, data) => GivenFeatures::Sparse {
                dim: *dim,
                indptr: slice(indptr)?,
                indices: slice(indices)?,
                data: shared(data)?,
            },
        })
    }
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct VertexSpec<'py> {
    key: String,
    name: String,
    count: usize,
    x: Option<(String, FeatureSpec<'py>)>,
    /// Further features: the key in the given dictionary, the name of the field, and its rows.
    fields: Vec<(String, String, FeatureSpec<'py>)>,
    ids: Option<(String, Ids<'py>)>,
    time: Option<(String, Ints<'py>)>,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct RelationSpec<'py> {
    key: String,
    name: String,
    src: usize,
    dst: usize,
    src_ids: Ints<'py>,
    dst_ids: Ints<'py>,
    weight: Option<(String, Floats<'py>)>,
    features: Option<(String, Rows<'py>)>,
    time: Option<(String, Ints<'py>)>,
}

#[derive(FromPyObject)]
enum LabelArray<'py> {
    Classes(Ints<'py>),
    Rows(Rows<'py>),
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LabelSpec<'py> {
    of: usize,
    edges: bool,
    key: String,
    name: String,
    kind: String,
    width: usize,
    values: LabelArray<'py>,
    class_names: Vec<String>,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SplitSpec<'py> {
    of: usize,
    edges: bool,
    name: String,
    parts: [(String, Ints<'py>); 3],
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LinksSpec<'py> {
    key: String,
    relation: usize,
    src: Ints<'py>,
    dst: Ints<'py>,
    time: Option<(String, Ints<'py>)>,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LinkSplitSpec<'py> {
    name: String,
    val: Vec<LinksSpec<'py>>,
    test: Vec<LinksSpec<'py>>,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Spec<'py> {
    name: String,
    vertices: Vec<VertexSpec<'py>>,
    relations: Vec<RelationSpec<'py>>,
    labels: Vec<LabelSpec<'py>>,
    splits: Vec<SplitSpec<'py>>,
    link_splits: Vec<LinkSplitSpec<'py>>,
}

/// The vertices of a type, or the edges of a relation.
fn rows_of(of: usize, edges: bool) -> GivenRows {
    if edges { GivenRows::Edges(of) } else { GivenRows::Vertices(of) }
}

/// Hands everything to a builder.
fn build(spec: &Spec<'_>) -> PyResult<Builder> {
    let mut builder = Builder::new(&spec.name);
    for vertex in &spec.vertices {
        let ty = builder.vertex_type(&vertex.key, &vertex.name, vertex.count);
        if let Some((key, x)) = &vertex.x {
            builder.features(ty, key, x.given()?);
        }
        for (key, name, values) in &vertex.fields {
            builder.field(ty, key, name, values.given()?);
        }
        match &vertex.ids {
            Some((key, Ids::Integers(ids))) => builder.ids(ty, key, VertexIds::Integer(slice(ids)?.to_vec())),
            Some((key, Ids::Texts(ids))) => builder.ids(ty, key, ids.iter().map(|id| &id[..]).collect()),
            None => {}
        }
        if let Some((key, time)) = &vertex.time {
            builder.time(ty, key, slice(time)?.to_vec());
        }
    }
    for given in &spec.relations {
        let ids = (slice(&given.src_ids)?, slice(&given.dst_ids)?);
        let relation = builder.relation(&given.name, (given.src, given.dst), &given.key, ids);
        if let Some((key, weight)) = &given.weight {
            builder.weight(relation, key, shared(weight)?);
        }
        if let Some((key, rows)) = &given.features {
            builder.edge_features(relation, key, rows.shape()[1], shared(rows)?);
        }
        if let Some((key, time)) = &given.time {
            builder.edge_time(relation, key, slice(time)?.to_vec());
        }
    }
    for label in &spec.labels {
        let given = match (&label.values, &label.kind[..]) {
            (LabelArray::Classes(of), _) => GivenLabels::Single { classes: label.width, of: slice(of)?.to_vec() },
            (LabelArray::Rows(rows), "multi") => GivenLabels::Multi { classes: label.width, rows: floats(rows)? },
            (LabelArray::Rows(rows), _) => GivenLabels::Real { dim: label.width, rows: floats(rows)? },
        };
        builder.label(rows_of(label.of, label.edges), &label.key, &label.name, given, label.class_names.clone());
    }
    for split in &spec.splits {
        let [train, val, test] = &split.parts;
        let part = |(key, ids): &'_ (String, Ints<'_>)| -> PyResult<(String, Vec<i64>)> {
            Ok((key.clone(), slice(ids)?.to_vec()))
        };
        let parts = [part(train)?, part(val)?, part(test)?];
        let named = parts.each_ref().map(|(key, ids)| Named { key, value: &ids[..] });
        builder.split(rows_of(split.of, split.edges), &split.name, named);
    }
    for split in &spec.link_splits {
        let (val, test) = (links(&split.val)?, links(&split.test)?);
        builder.link_split(&split.name, &val, &test);
    }
    Ok(builder)
}

fn floats(rows: &Rows<'_>) -> PyResult<Vec<f32>> {
    Ok(shared(rows)?.to_vec())
}

fn links<'a>(given: &'a [LinksSpec<'_>]) -> PyResult<Vec<GivenLinks<'a>>> {
    let one = |of: &'a LinksSpec<'_>| {
        let time = match &of.time {
            Some((key, time)) => Some(Named { key, value: slice(time)? }),
            None => None,
        };
        Ok(GivenLinks { key: &of.key, relation: of.relation, src: slice(&of.src)?, dst: slice(&of.dst)?, time })
    };
    given.iter().map(one).collect()
}

/// A validated dataset.
#[pyclass(frozen, module = "hgnnc._native")]
pub struct Dataset(pub Arc<hgnnc_dataset::Dataset>);

/// Source, relation and destination of held-out links, and their times.
type LinkViews = (View, View, View, Option<View>);

/// Name, kind and width of a label, its values, whether there is a label, and names of classes.
type LabelRow = (String, &'static str, usize, View, Option<View>, Vec<String>);

/// Name of a split, with its training, validation and test rows.
type SplitRow = (String, View, View, View);

impl Dataset {
    fn label(&self, name: &str, values: &LabelValues, class_names: &[String]) -> LabelRow {
        let rows = |rows: &[f32], labelled: &[bool], width: usize| {
            (View::new(&self.0, rows, &[labelled.len(), width]), Some(self.view(labelled)))
        };
        let (kind, width, (values, mask)) = match values {
            LabelValues::Single { classes, of } => ("class", *classes, (self.view(of), None)),
            LabelValues::Multi { classes, rows: values, labelled } => {
                ("multi", *classes, rows(values, labelled, *classes))
            }
            LabelValues::Real { dim, rows: values, labelled } => ("real", *dim, rows(values, labelled, *dim)),
        };
        (name.to_owned(), kind, width, values, mask, class_names.to_vec())
    }

    fn split(&self, name: &str, [train, val, test]: [&Vec<u32>; 3]) -> SplitRow {
        (name.to_owned(), self.view(train), self.view(val), self.view(test))
    }

    fn view<T: crate::arrays::Viewed>(&self, values: &[T]) -> View {
        View::new(&self.0, values, &[values.len()])
    }

    fn rows(&self, values: &FloatArray, dim: usize) -> View {
        View::new(&self.0, &values[..], &[values.len().checked_div(dim).unwrap_or(0), dim])
    }

    fn links(&self, links: &Links) -> LinkViews {
        let time = links.time.as_ref().map(|time| self.view(time));
        (self.view(&links.src), self.view(&links.relation), self.view(&links.dst), time)
    }
}

#[pymethods]
impl Dataset {
    /// Loads a folder.
    #[staticmethod]
    fn load(py: Python<'_>, folder: PathBuf) -> PyResult<Dataset> {
        let pool = thread_pool(0).map_err(|error| exception(py, &error.into()))?;
        let loaded = py.detach(|| pool.install(|| hgnnc_dataset::Dataset::load(&folder)));
        loaded.map(|dataset| Dataset(Arc::new(dataset))).map_err(|errors| data_error(py, errors))
    }

    /// Builds a dataset of arrays.
    #[staticmethod]
    fn build(py: Python<'_>, spec: &Bound<'_, PyAny>) -> PyResult<Dataset> {
        let spec: Spec<'_> = spec.extract()?;
        let builder = build(&spec)?;
        let pool = thread_pool(0).map_err(|error| exception(py, &error.into()))?;
        let built = py.detach(|| pool.install(|| builder.finish()));
        built.map(|dataset| Dataset(Arc::new(dataset))).map_err(|errors| data_error(py, errors))
    }

    /// Writes it to a new folder.
    fn write(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        let written = py.detach(|| self.0.write(&folder));
        written.map_err(|error| machine_error(py, error.to_string()))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn folder(&self) -> String {
        self.0.folder.display().to_string()
    }

    /// The schema of a model for it.
    fn schema(&self) -> String {
        schema_text(&self.0)
    }

    /// Name, count, kind and width of features, and number of stored values.
    fn vertices(&self) -> Vec<(String, usize, Option<&'static str>, usize, usize)> {
        let kind = |x: &Features| if x.is_sparse() { "sparse" } else { "dense" };
        let all = self.0.vertex_types.iter().map(|vertex| {
            let x = vertex.features.as_ref();
            let (dim, stored) = x.map_or((0, 0), |x| (x.dim(), x.num_stored()));
            (vertex.name.clone(), vertex.count, x.map(kind), dim, stored)
        });
        all.collect()
    }

    /// Name, source and destination type, number of edges.
    fn relations(&self) -> Vec<(String, usize, usize, usize)> {
        self.0.relations.iter().map(|r| (r.name.clone(), r.src, r.dst, r.num_edges())).collect()
    }

    /// Names of the fields of a vertex type.
    fn fields(&self, ty: usize) -> Vec<&str> {
        self.0.vertex_types[ty].fields.iter().map(|field| &field.name[..]).collect()
    }

    /// Dense features: those of a vertex type, or of the field of a name.
    #[pyo3(signature = (ty, field=None))]
    fn dense(&self, ty: usize, field: Option<&str>) -> Option<View> {
        match self.0.vertex_types[ty].features_of(field)? {
            Features::Dense(x) => Some(View::new(&self.0, &x.rows[..], &[self.0.vertex_types[ty].count, x.dim])),
            Features::Sparse(_) => None,
        }
    }

    /// Sparse features, likewise: width, offsets, columns and values.
    #[pyo3(signature = (ty, field=None))]
    fn sparse(&self, ty: usize, field: Option<&str>) -> Option<(usize, View, View, View)> {
        match self.0.vertex_types[ty].features_of(field)? {
            Features::Dense(_) => None,
            Features::Sparse(x) => Some((x.dim, self.view(&x.indptr), self.view(&x.indices), self.view(&x.data[..]))),
        }
    }

    fn ids<'py>(&self, py: Python<'py>, ty: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match &self.0.vertex_types[ty].ids {
            None => None,
            Some(VertexIds::Integer(ids)) => Some(Bound::new(py, self.view(ids))?.into_any()),
            Some(ids) => {
                let texts: Vec<_> = (0..ids.len()).map(|vertex| ids.text(vertex)).collect();
                Some(texts.into_pyobject(py)?.into_any())
            }
        })
    }

    fn time(&self, ty: usize) -> Option<View> {
        self.0.vertex_types[ty].time.as_ref().map(|time| self.view(time))
    }

    /// Sources and destinations.
    fn edges(&self, relation: usize) -> (View, View) {
        let relation = &self.0.relations[relation];
        (self.view(&relation.src_ids), self.view(&relation.dst_ids))
    }

    fn weight(&self, relation: usize) -> Option<View> {
        self.0.relations[relation].weight.as_ref().map(|weight| self.view(&weight[..]))
    }

    fn edge_features(&self, relation: usize) -> Option<View> {
        self.0.relations[relation].features.as_ref().map(|x| self.rows(&x.rows, x.dim))
    }

    fn edge_time(&self, relation: usize) -> Option<View> {
        self.0.relations[relation].time.as_ref().map(|time| self.view(time))
    }

    /// Vertex type, name, kind, width, values, whether there is a label, and names of classes.
    fn labels(&self) -> Vec<(usize, LabelRow)> {
        let all = self.0.labels.iter();
        all.map(|of| (of.vertex_type, self.label(&of.name, &of.values, &of.class_names))).collect()
    }

    /// The same of the edges of a relation.
    fn edge_labels(&self, relation: usize) -> Vec<LabelRow> {
        let all = self.0.relations[relation].labels.iter();
        all.map(|of| self.label(&of.name, &of.values, &of.class_names)).collect()
    }

    /// Vertex type, name, training, validation and test vertices.
    fn splits(&self) -> Vec<(usize, SplitRow)> {
        let all = self.0.splits.iter();
        all.map(|s| (s.vertex_type, self.split(&s.name, [&s.train, &s.val, &s.test]))).collect()
    }

    /// The same of the edges of a relation, by their positions.
    fn edge_splits(&self, relation: usize) -> Vec<SplitRow> {
        let all = self.0.relations[relation].splits.iter();
        all.map(|s| self.split(&s.name, [&s.train, &s.val, &s.test])).collect()
    }

    /// Name, validation and test links.
    fn link_splits(&self) -> Vec<(String, LinkViews, LinkViews)> {
        self.0.link_splits.iter().map(|s| (s.name.clone(), self.links(&s.val), self.links(&s.test))).collect()
    }
}
