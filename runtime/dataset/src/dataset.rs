//! A dataset in memory.
//!
//! `docs/dataset.md` describes the files it is loaded from. In memory ids are `u32` and offsets `u64`.
//!
//! This module only holds the data; [`crate::load`] reads the files.

use std::borrow::Cow;
use std::path::PathBuf;

use rayon::prelude::*;

use crate::npy::FloatArray;

/// A loaded and validated heterogeneous graph with features, targets and splits.
///
/// Vertex types and relations are referred to by their position.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Dataset {
    /// The folder it was loaded from; empty for a dataset built in memory.
    pub folder: PathBuf,
    pub name: String,
    /// One-line description from `dataset.toml`.
    pub title: Option<String>,
    /// Program, version and seed of the generator, for synthetic data.
    pub generator: Option<String>,
    /// Vertex types, in file order.
    pub vertex_types: Vec<VertexTypeData>,
    /// Relations, in file order.
    pub relations: Vec<RelationData>,
    /// Labels of the vertex types, classes or real targets.
    pub labels: Vec<LabelData>,
    /// Train/validation/test splits of vertices.
    pub splits: Vec<SplitData>,
    /// Held-out links of link prediction.
    pub link_splits: Vec<LinkSplitData>,
    /// Metapaths declared in `dataset.toml`.
    pub metapaths: Vec<MetapathData>,
}

/// A vertex type: `count` vertices with ids `0..count`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct VertexTypeData {
    pub name: String,
    pub count: usize,
    /// Feature rows, one per vertex; `None` for a type without features.
    pub features: Option<Features>,
    /// Further features, each with a name.
    pub fields: Vec<FieldData>,
    /// Kind (`rdf:type`) of each vertex, for RDF data.
    pub kinds: Option<Kinds>,
    /// The names of the vertices where they came from.
    pub ids: Option<VertexIds>,
    /// A time of each vertex, in a unit of the dataset's own. `[count]`
    pub time: Option<Vec<i64>>,
    /// How the columns of the features were made, in their order.
    pub transforms: Vec<Transform>,
}

/// Features of a vertex type that have a name.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct FieldData {
    pub name: String,
    /// One row per vertex.
    pub values: Features,
}

impl VertexTypeData {
    /// The features (`None`), or the field of this name.
    pub fn features_of(&self, field: Option<&str>) -> Option<&Features> {
        match field {
            None => self.features.as_ref(),
            Some(name) => self.fields.iter().find(|field| field.name == name).map(|field| &field.values),
        }
    }
}

/// The ids that the vertices of a type have outside of the dataset, one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VertexIds {
    /// Integers. `[count]`
    Integer(Vec<i64>),
    /// Texts: that of vertex `v` is `bytes[offsets[v]..offsets[v + 1]]`.
    #[allow(missing_docs, reason = "fields are named for what they hold")]
    Text { offsets: Vec<u64>, bytes: String },
}

impl VertexIds {
    /// Number of ids.
    pub fn len(&self) -> usize {
        match self {
            VertexIds::Integer(ids) => ids.len(),
            VertexIds::Text { offsets, .. } => offsets.len().saturating_sub(1),
        }
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of a vertex, as text. Panics if there is no such vertex.
    pub fn text(&self, vertex: usize) -> Cow<'_, str> {
        match self {
            VertexIds::Integer(ids) => ids[vertex].to_string().into(),
            VertexIds::Text { offsets, bytes } => bytes[offsets[vertex] as usize..offsets[vertex + 1] as usize].into(),
        }
    }
}

impl<'a> FromIterator<&'a str> for VertexIds {
    fn from_iter<I: IntoIterator<Item = &'a str>>(ids: I) -> VertexIds {
        let (mut offsets, mut bytes) = (vec![0], String::new());
        for id in ids {
            bytes.push_str(id);
            offsets.push(bytes.len() as u64);
        }
        VertexIds::Text { offsets, bytes }
    }
}

/// How some columns of a table became columns of features, with the numbers that were fitted to the table: what a
/// vertex that comes later must go through as well.
#[derive(Clone, Debug, PartialEq)]
pub struct Transform {
    /// Columns of the table.
    pub columns: Vec<String>,
    /// Operation that is applied to their values.
    pub kind: TransformKind,
}

/// Operation of a [`Transform`], with its fitted parameters.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum TransformKind {
    /// A feature `(x - shift) * scale` for each column; a missing value counts as `missing` (of one per column).
    Numbers { shift: Vec<f64>, scale: Vec<f64>, missing: Vec<f64> },
    /// A feature for each category, 1 for the value's own; with a separator, for each of the values between them. A
    /// missing or unknown value has none.
    OneHot { categories: Vec<String>, separator: Option<String> },
    /// A feature for each bucket, 1 for the one that holds the value: bucket `i` begins at `bounds[i - 1]` (inclusive)
    /// and ends at `bounds[i]`. A missing value is in none.
    Buckets { bounds: Vec<f64> },
    /// The `width` numbers between separators.
    Vector { separator: String, width: usize },
}

impl Transform {
    /// Number of features.
    pub fn width(&self) -> usize {
        match &self.kind {
            TransformKind::Numbers { shift, .. } => shift.len(),
            TransformKind::OneHot { categories, .. } => categories.len(),
            TransformKind::Buckets { bounds } => bounds.len() + 1,
            TransformKind::Vector { width, .. } => *width,
        }
    }
}

/// A finer classification of the vertices of one type.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Kinds {
    pub names: Vec<String>,
    /// Kind of each vertex, an index into `names`. `[count]`
    pub of: Vec<u32>,
}

/// Feature rows of a vertex type.
#[derive(Clone, Debug)]
pub enum Features {
    /// Every value is stored.
    Dense(DenseFeatures),
    /// The rows are in CSR form.
    Sparse(SparseFeatures),
}

impl Features {
    /// Number of feature columns.
    pub fn dim(&self) -> usize {
        match self {
            Features::Dense(x) => x.dim,
            Features::Sparse(x) => x.dim,
        }
    }

    /// Whether the rows are in CSR form.
    pub fn is_sparse(&self) -> bool {
        matches!(self, Features::Sparse(_))
    }

    /// Some of the rows, in the order of `rows`. Panics if there is no such row.
    #[must_use]
    pub fn rows(&self, rows: impl Iterator<Item = usize>) -> Features {
        let mut taken = self.without_rows();
        taken.extend(self, rows);
        taken
    }

    /// Features of the same kind and width, without rows.
    #[must_use]
    pub fn without_rows(&self) -> Features {
        match self {
            Features::Dense(x) => Features::Dense(DenseFeatures { dim: x.dim, rows: FloatArray::default() }),
            Features::Sparse(x) => Features::Sparse(SparseFeatures {
                dim: x.dim,
                indptr: vec![0],
                indices: vec![],
                data: FloatArray::default(),
            }),
        }
    }

    /// Adds some rows of features of the same kind and width. Panics if there is no such row, or the kinds differ.
    pub fn extend(&mut self, source: &Features, rows: impl Iterator<Item = usize>) {
        match (self, source) {
            (Features::Dense(known), Features::Dense(new)) => {
                let mut all = known.rows.to_vec();
                rows.for_each(|row| all.extend_from_slice(new.row(row)));
                known.rows = all.into();
            }
            (Features::Sparse(known), Features::Sparse(new)) => {
                let mut values = known.data.to_vec();
                for row in rows {
                    let (columns, row) = new.row(row);
                    known.indices.extend_from_slice(columns);
                    values.extend_from_slice(row);
                    known.indptr.push(known.indices.len() as u64);
                }
                known.data = values.into();
            }
            (Features::Dense(_), Features::Sparse(_)) | (Features::Sparse(_), Features::Dense(_)) => {
                panic!("features are of the same kind")
            }
        }
    }

    /// Stored values: `rows * dim` for dense features, `nnz` for sparse ones.
    pub fn num_stored(&self) -> usize {
        match self {
            Features::Dense(x) => x.rows.len(),
            Features::Sparse(x) => x.data.len(),
        }
    }
}

/// Dense rows. `x: f32[rows, dim]`, row-major, usually still in a mapped file.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct DenseFeatures {
    pub dim: usize,
    /// `rows * dim` values.
    pub rows: FloatArray,
}

impl DenseFeatures {
    /// Row `row`, `dim` values. Panics if there is no such row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.rows[row * self.dim..(row + 1) * self.dim]
    }
}

/// Sparse rows in CSR form. `x: f32[rows, dim]`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SparseFeatures {
    pub dim: usize,
    /// Row offsets into `indices` and `data`. `[rows + 1]`
    pub indptr: Vec<u64>,
    /// Column of each stored value, strictly ascending within a row, each less than `dim`. `[nnz]`
    pub indices: Vec<u32>,
    /// Stored values, one per entry of `indices`. `[nnz]`
    pub data: FloatArray,
}

impl SparseFeatures {
    /// The elements of dense rows that are not zero; `None` if there are more than `most`. `dense: f32[rows, dim]`, with
    /// `dim` at least 1.
    pub fn from_dense(dense: &[f32], dim: usize, most: usize) -> Option<Self> {
        let lens: Vec<usize> = dense.par_chunks(dim).with_min_len(ROWS_AT_ONCE).map(num_nonzeros).collect();
        let num_stored: usize = lens.iter().sum();
        if num_stored > most {
            return None;
        }
        let mut indptr = vec![0];
        indptr.extend(lens.iter().scan(0, |end, &len| {
            *end += len as u64;
            Some(*end)
        }));
        let (mut indices, mut data) = (Vec::with_capacity(num_stored), Vec::with_capacity(num_stored));
        for row in dense.chunks(dim) {
            for (column, &number) in row.iter().enumerate().filter(|(_, number)| **number != 0.0) {
                indices.push(column as u32);
                data.push(number);
            }
        }
        Some(Self { dim, indptr, indices, data: data.into() })
    }

    /// Whether dense rows have these elements, to the bit, and otherwise zeros. `dense: f32[rows, dim]`.
    pub fn equals_dense(&self, dense: &[f32]) -> bool {
        let is_row = |(row, numbers): (usize, &[f32])| {
            let (columns, stored) = self.row(row);
            let is_stored = |(&column, value): (&u32, &f32)| numbers[column as usize].to_bits() == value.to_bits();
            columns.iter().zip(stored).all(is_stored) && num_nonzeros(numbers) == columns.len()
        };
        let num_rows = self.indptr.len().saturating_sub(1);
        dense.len() == num_rows * self.dim
            && dense.par_chunks(self.dim.max(1)).enumerate().with_min_len(ROWS_AT_ONCE).all(is_row)
    }

    /// Columns and values of row `row`. Panics if there is no such row.
    pub fn row(&self, row: usize) -> (&[u32], &[f32]) {
        let range = self.indptr[row] as usize..self.indptr[row + 1] as usize;
        (&self.indices[range.clone()], &self.data[range])
    }
}

/// Rows of one task, when dense rows are read.
const ROWS_AT_ONCE: usize = 64;

fn num_nonzeros(row: &[f32]) -> usize {
    row.iter().map(|&number| u32::from(number != 0.0)).sum::<u32>() as usize
}

/// A relation: typed edges `src -> dst`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct RelationData {
    pub name: String,
    /// Vertex type of the sources.
    pub src: usize,
    /// Vertex type of the destinations.
    pub dst: usize,
    /// Source of each edge, in file order. `[E]`
    pub src_ids: Vec<u32>,
    /// Destination of each edge. `[E]`
    pub dst_ids: Vec<u32>,
    /// Weight of each edge. `[E]`
    pub weight: Option<FloatArray>,
    /// Feature row of each edge. `f32[E, dim]`
    pub features: Option<DenseFeatures>,
    /// A time of each edge, in a unit of the dataset's own. `[E]`
    pub time: Option<Vec<i64>>,
    /// How the columns of the features were made, in their order.
    pub transforms: Vec<Transform>,
    /// Labels of the edges.
    pub labels: Vec<EdgeLabel>,
    /// Train/validation/test splits of the edges.
    pub splits: Vec<EdgeSplit>,
}

/// A label of the edges of a relation, whose values have a row for each edge, in file order.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeLabel {
    /// Name, `y` unless given.
    pub name: String,
    /// Class ids, class sets or real values.
    pub values: LabelValues,
    /// Names of the classes, `classes` of them; may be empty.
    pub class_names: Vec<String>,
}

/// Disjoint sets of labelled edges, by their positions in the file, ascending. A part missing from the data is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct EdgeSplit {
    pub name: String,
    pub train: Vec<u32>,
    pub val: Vec<u32>,
    pub test: Vec<u32>,
}

impl RelationData {
    /// Number of edges, duplicates included.
    pub fn num_edges(&self) -> usize {
        self.src_ids.len()
    }

    /// The label of the edges that is called `name`.
    pub fn label(&self, name: &str) -> Option<&EdgeLabel> {
        self.labels.iter().find(|label| label.name == name)
    }

    /// Keeps some edges, each once, with all that is known of them, in the order of `edges`.
    ///
    /// # Panics
    /// When there is no such edge.
    pub fn keep(&mut self, edges: &[usize]) {
        let taken = |all: &[f32], dim: usize| -> FloatArray {
            edges.iter().flat_map(|&e| all[e * dim..(e + 1) * dim].iter().copied()).collect::<Vec<f32>>().into()
        };
        self.weight = self.weight.take().map(|all| taken(&all, 1));
        if let Some(features) = &mut self.features {
            features.rows = taken(&features.rows, features.dim);
        }
        self.time = self.time.take().map(|all| edges.iter().map(|&e| all[e]).collect());
        self.labels.iter_mut().for_each(|label| label.values.keep(edges));
        if !self.splits.is_empty() {
            const GONE: u32 = u32::MAX;
            let mut number = vec![GONE; self.src_ids.len()];
            edges.iter().zip(0..).for_each(|(&edge, new)| number[edge] = new);
            for EdgeSplit { train, val, test, .. } in &mut self.splits {
                for part in [train, val, test] {
                    *part = part.iter().map(|&edge| number[edge as usize]).filter(|&new| new != GONE).collect();
                    part.sort_unstable();
                }
            }
        }
        self.src_ids = edges.iter().map(|&e| self.src_ids[e]).collect();
        self.dst_ids = edges.iter().map(|&e| self.dst_ids[e]).collect();
    }
}

/// Labels of one vertex type.
#[derive(Clone, Debug)]
pub struct LabelData {
    /// Name, `y` unless given.
    pub name: String,
    /// Vertex type it belongs to.
    pub vertex_type: usize,
    /// Class ids, class sets or real values.
    pub values: LabelValues,
    /// Names of the classes, `classes` of them; may be empty.
    pub class_names: Vec<String>,
}

impl LabelData {
    /// Whether `vertex` has a label. Panics if there is no such vertex.
    pub fn is_labelled(&self, vertex: usize) -> bool {
        self.values.is_labelled(vertex)
    }

    /// Number of labelled vertices.
    pub fn num_labelled(&self) -> usize {
        self.values.num_labelled()
    }

    /// The rows of some vertices as a matrix of `count` rows: one-hot rows of classes, others as they are. Further vertices
    /// and those without a label have rows of 0. Panics if there is no such vertex.
    pub fn rows_of(&self, vertices: &[u32], count: usize) -> SparseFeatures {
        let dim = match self.values {
            LabelValues::Single { classes, .. } | LabelValues::Multi { classes, .. } => classes,
            LabelValues::Real { dim, .. } => dim,
        };
        let mut chosen = vec![false; count];
        vertices.iter().for_each(|&vertex| chosen[vertex as usize] = true);
        let (mut indptr, mut indices, mut data) = (Vec::with_capacity(count + 1), vec![], vec![]);
        indptr.push(0);
        for (vertex, is_chosen) in chosen.into_iter().enumerate() {
            match &self.values {
                _ if !is_chosen => {}
                LabelValues::Single { of, .. } => {
                    if let Ok(class) = u32::try_from(of[vertex]) {
                        indices.push(class);
                        data.push(1.0);
                    }
                }
                LabelValues::Multi { rows, .. } | LabelValues::Real { rows, .. } => {
                    let row = rows[vertex * dim..][..dim].iter().enumerate();
                    for (column, &value) in row.filter(|(_, value)| **value != 0.0) {
                        indices.push(column as u32);
                        data.push(value);
                    }
                }
            }
            indptr.push(indices.len() as u64);
        }
        SparseFeatures { dim, indptr, indices, data: data.into() }
    }
}

/// Values of a label, a row for each vertex or edge.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum LabelValues {
    /// One class per row (multi-class).
    Single {
        classes: usize,
        /// Class of each row, -1 = none. `[count]`
        of: Vec<i32>,
    },
    /// Any number of classes per row (multi-label).
    Multi {
        classes: usize,
        /// 0 or 1, row-major; rows without a label are 0. `f32[count, classes]`
        rows: Vec<f32>,
        /// Whether each row has a label. `[count]`
        labelled: Vec<bool>,
    },
    Real {
        dim: usize,
        /// Row-major; rows without a label are 0. `f32[count, dim]`
        rows: Vec<f32>,
        /// Whether each row has a label. `[count]`
        labelled: Vec<bool>,
    },
}

impl LabelValues {
    /// Whether a row has a label. Panics if there is no such row.
    pub fn is_labelled(&self, row: usize) -> bool {
        match self {
            LabelValues::Single { of, .. } => of[row] >= 0,
            LabelValues::Multi { labelled, .. } | LabelValues::Real { labelled, .. } => labelled[row],
        }
    }

    /// Number of labelled rows.
    pub fn num_labelled(&self) -> usize {
        match self {
            LabelValues::Single { of, .. } => of.iter().filter(|&&y| y >= 0).count(),
            LabelValues::Multi { labelled, .. } | LabelValues::Real { labelled, .. } => {
                labelled.iter().filter(|&&y| y).count()
            }
        }
    }

    /// Keeps some rows, in the order of `rows`. Panics if there is no such row.
    pub fn keep(&mut self, kept: &[usize]) {
        match self {
            LabelValues::Single { of, .. } => *of = kept.iter().map(|&row| of[row]).collect(),
            LabelValues::Multi { classes: width, rows, labelled }
            | LabelValues::Real { dim: width, rows, labelled } => {
                *rows = kept.iter().flat_map(|&row| rows[row * *width..][..*width].iter().copied()).collect();
                *labelled = kept.iter().map(|&row| labelled[row]).collect();
            }
        }
    }

    /// Adds rows without a label.
    pub fn add_unlabelled(&mut self, count: usize) {
        match self {
            LabelValues::Single { of, .. } => of.extend(std::iter::repeat_n(-1, count)),
            LabelValues::Multi { classes: width, rows, labelled }
            | LabelValues::Real { dim: width, rows, labelled } => {
                rows.extend(std::iter::repeat_n(0.0, *width * count));
                labelled.extend(std::iter::repeat_n(false, count));
            }
        }
    }
}

/// Disjoint sets of labelled vertices. Ids ascend. A part missing from the data is empty.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SplitData {
    pub name: String,
    pub vertex_type: usize,
    pub train: Vec<u32>,
    pub val: Vec<u32>,
    pub test: Vec<u32>,
}

/// Held-out links; all edges of the relations are training links.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct LinkSplitData {
    pub name: String,
    pub val: Links,
    pub test: Links,
}

/// Links of any relation.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Links {
    pub src: Vec<u32>,
    pub relation: Vec<u32>,
    pub dst: Vec<u32>,
    /// A time of each link.
    pub time: Option<Vec<i64>>,
}

impl Links {
    /// Number of links, of all relations.
    pub fn len(&self) -> usize {
        self.src.len()
    }

    /// Whether it holds no links.
    pub fn is_empty(&self) -> bool {
        self.src.is_empty()
    }
}

/// A declared metapath. Its counts are claims of `dataset.toml`; loading does not check them.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct MetapathData {
    pub name: String,
    /// The steps, each starting at the vertex type where the one before ends.
    pub steps: Vec<Step>,
    /// Vertex type of the first vertex of a path.
    pub start: usize,
    /// Vertex type of the last vertex of a path.
    pub end: usize,
    /// Claimed distinct (start, end) pairs.
    pub pairs: Option<u64>,
    /// Claimed pairs with start = end.
    pub self_pairs: Option<u64>,
    /// Claimed number of paths.
    pub instances: Option<u64>,
    /// Claimed largest number of distinct end vertices of one start vertex.
    pub max_degree: Option<u64>,
}

impl Dataset {
    /// Position of the vertex type called `name`.
    pub fn vertex_type(&self, name: &str) -> Option<usize> {
        self.vertex_types.iter().position(|v| v.name == name)
    }

    /// Position of the relation called `name`.
    pub fn relation(&self, name: &str) -> Option<usize> {
        self.relations.iter().position(|r| r.name == name)
    }

    /// The metapath called `name`.
    pub fn metapath(&self, name: &str) -> Option<&MetapathData> {
        self.metapaths.iter().find(|m| m.name == name)
    }

    /// The label called `name` of vertex type `vertex_type`.
    pub fn label(&self, vertex_type: usize, name: &str) -> Option<&LabelData> {
        self.labels.iter().find(|l| l.vertex_type == vertex_type && l.name == name)
    }

    /// The split called `name` of vertex type `vertex_type`; without a name the first one of that type.
    pub fn split(&self, vertex_type: usize, name: Option<&str>) -> Option<&SplitData> {
        self.splits.iter().find(|s| s.vertex_type == vertex_type && name.is_none_or(|n| s.name == n))
    }

    /// Number of vertices of all types.
    pub fn num_vertices(&self) -> usize {
        self.vertex_types.iter().map(|v| v.count).sum()
    }

    /// Number of edges of all relations.
    pub fn num_edges(&self) -> usize {
        self.relations.iter().map(RelationData::num_edges).sum()
    }

    /// Vertex types at which `step` starts and ends. Panics if there is no such relation.
    pub fn step_ends(&self, step: Step) -> (usize, usize) {
        let relation = &self.relations[step.relation];
        if step.reverse { (relation.dst, relation.src) } else { (relation.src, relation.dst) }
    }
}

/// One step of a metapath: along a relation, or against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    /// Position of the relation in the dataset.
    pub relation: usize,
    /// Whether the step goes from the relation's destination to its source.
    pub reverse: bool,
}

impl Step {
    /// A step along `relation`.
    pub fn forward(relation: usize) -> Step {
        Step { relation, reverse: false }
    }

    /// A step against `relation`.
    pub fn reverse(relation: usize) -> Step {
        Step { relation, reverse: true }
    }

    /// The same step in the other direction.
    pub fn flipped(self) -> Step {
        Step { reverse: !self.reverse, ..self }
    }
}
