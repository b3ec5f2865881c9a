//! Makes a dataset of arrays in memory, with the checks that loading makes. Messages name the key that an array was
//! given by.

use crate::checks::{self, Bound, Place};
use crate::dataset::{
    Dataset, DenseFeatures, EdgeLabel, EdgeSplit, Features, FieldData, LabelData, LabelValues, LinkSplitData, Links,
    RelationData, SparseFeatures, SplitData, VertexIds, VertexTypeData,
};
use crate::error::{DataError, DataErrors};
use crate::load::MAX_VERTICES;
use crate::npy::FloatArray;

/// A value with the key that it was given by.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Named<'a, T> {
    pub key: &'a str,
    pub value: T,
}

/// The rows of labels and splits that were given to a builder, by position: the vertices of a type, or the edges of a relation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenRows {
    /// The vertices of a type.
    Vertices(usize),
    /// The edges of a relation, in their order.
    Edges(usize),
}

impl GivenRows {
    /// The word for one row, and for several.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            GivenRows::Vertices(_) => ("vertex", "vertices"),
            GivenRows::Edges(_) => ("edge", "edges"),
        }
    }
}

/// Features that were given to a builder. Rows are of vertices.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum GivenFeatures<'a> {
    /// Row-major. `rows: f32[count, dim]`
    Dense { dim: usize, rows: FloatArray },
    /// CSR form with `dim` columns, those of a row in any order, of so many stored values.
    /// `indptr: [count + 1]`, `indices: [stored]`, `data: f32[stored]`
    Sparse { dim: usize, indptr: &'a [i64], indices: &'a [i64], data: FloatArray },
}

/// Labels that were given to a builder. Rows are of vertices or edges.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum GivenLabels {
    /// The class of each row, -1 for none.
    Single { classes: usize, of: Vec<i64> },
    /// 0 or 1 for each class, row-major; a row of -1 has no label.
    Multi { classes: usize, rows: Vec<f32> },
    /// Numbers, row-major; a row with a value that is not a number has no label.
    Real { dim: usize, rows: Vec<f32> },
}

/// The links of one relation that a part of a split holds out.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct GivenLinks<'a> {
    pub key: &'a str,
    pub relation: usize,
    pub src: &'a [i64],
    pub dst: &'a [i64],
    /// A time of each link. All relations of a part that have links have times, or none has.
    pub time: Option<Named<'a, &'a [i64]>>,
}

/// A dataset in the making. Vertex types and relations are named by the positions that their methods return.
#[derive(Clone, Debug)]
pub struct Builder {
    dataset: Dataset,
    errors: Vec<DataError>,
}

impl Builder {
    /// An empty dataset.
    pub fn new(name: &str) -> Builder {
        Builder { dataset: Dataset { name: name.to_owned(), ..Dataset::default() }, errors: Vec::new() }
    }

    /// Adds a fault.
    pub fn fail(&mut self, key: &str, problem: impl Into<String>) {
        self.errors.push(DataError::Given { key: key.to_owned(), problem: problem.into() });
    }

    fn keep<T>(&mut self, found: Result<T, DataError>) -> Option<T> {
        found.map_err(|error| self.errors.push(error)).ok()
    }

    /// Checks the length of an array of one axis.
    fn len(&mut self, key: &str, at: &str, found: usize, expected: usize, per: &str) -> Option<()> {
        if found == expected {
            return Some(());
        }
        self.fail(key, format!("{at} has {expected} {per}, so it should have as many entries, but it has {found}"));
        None
    }

    /// Checks the number of values of rows `dim` wide.
    fn rows(&mut self, key: &str, at: &str, found: usize, (rows, dim): (usize, usize), per: &str) -> Option<()> {
        if rows.checked_mul(dim) == Some(found) {
            return Some(());
        }
        let have = found.checked_div(dim).unwrap_or(0);
        self.fail(key, format!("{at} has {rows} {per}, so it should have as many rows, but it has {have}"));
        None
    }

    fn type_at(&self, ty: usize) -> String {
        format!("vertex type `{}`", self.dataset.vertex_types[ty].name)
    }

    fn relation_at(&self, relation: usize) -> String {
        format!("relation `{}`", self.dataset.relations[relation].name)
    }

    fn rows_at(&self, of: GivenRows) -> String {
        match of {
            GivenRows::Vertices(ty) => self.type_at(ty),
            GivenRows::Edges(relation) => self.relation_at(relation),
        }
    }

    fn num_rows(&self, of: GivenRows) -> usize {
        match of {
            GivenRows::Vertices(ty) => self.dataset.vertex_types[ty].count,
            GivenRows::Edges(relation) => self.dataset.relations[relation].num_edges(),
        }
    }

    /// The names and values of the labels of rows.
    fn labels_of(&self, of: GivenRows) -> Vec<(&str, &LabelValues)> {
        match of {
            GivenRows::Vertices(ty) => {
                let of_type = self.dataset.labels.iter().filter(|label| label.vertex_type == ty);
                of_type.map(|label| (&label.name[..], &label.values)).collect()
            }
            GivenRows::Edges(relation) => {
                let of_relation = self.dataset.relations[relation].labels.iter();
                of_relation.map(|label| (&label.name[..], &label.values)).collect()
            }
        }
    }

    /// Adds `count` vertices of a new type, and returns its position.
    pub fn vertex_type(&mut self, key: &str, name: &str, count: usize) -> usize {
        if name.is_empty() {
            self.fail(key, "a vertex type has a name");
        } else if self.dataset.vertex_type(name).is_some() {
            self.fail(key, format!("there are two vertex types `{name}`"));
        }
        let mut count = count;
        if count as u64 > MAX_VERTICES {
            self.fail(key, format!("there are {count} vertices of type `{name}`; a type has at most 2^30"));
            count = 0;
        }
        self.dataset.vertex_types.push(VertexTypeData { name: name.to_owned(), count, ..VertexTypeData::default() });
        self.dataset.vertex_types.len() - 1
    }

    /// Features of a vertex type.
    pub fn features(&mut self, ty: usize, key: &str, given: GivenFeatures<'_>) {
        let at = self.type_at(ty);
        if let Some(x) = self.feature_rows(ty, key, &at, given) {
            self.dataset.vertex_types[ty].features = Some(x);
        }
    }

    /// Dense features of a vertex type. `rows: f32[count, dim]`
    pub fn dense(&mut self, ty: usize, key: &str, dim: usize, rows: FloatArray) {
        self.features(ty, key, GivenFeatures::Dense { dim, rows });
    }

    fn dense_rows(
        &mut self,
        key: &str,
        at: &str,
        (count, dim): (usize, usize),
        rows: FloatArray,
        per: &str,
    ) -> Option<DenseFeatures> {
        if dim as u64 > u64::from(u32::MAX) {
            self.fail(key, format!("rows of {dim} features; they have fewer than 2^32"));
            return None;
        }
        self.rows(key, at, rows.len(), (count, dim), per)?;
        self.keep(checks::finite(Place { file: key, at }, &rows, |i| (i / dim, i % dim)))?;
        Some(DenseFeatures { dim, rows })
    }

    /// Sparse features of a vertex type, in CSR form; `dim` columns. The columns of a row may be in any order.
    pub fn sparse(&mut self, ty: usize, key: &str, dim: usize, (indptr, indices, data): (&[i64], &[i64], FloatArray)) {
        self.features(ty, key, GivenFeatures::Sparse { dim, indptr, indices, data });
    }

    /// Further features of a vertex type, with a name of their own.
    pub fn field(&mut self, ty: usize, key: &str, name: &str, given: GivenFeatures<'_>) {
        let of = self.type_at(ty);
        match name {
            "" => return self.fail(key, "a field has a name"),
            // The name by which models read the features that have none.
            "features" => return self.fail(key, "a field has a name of its own, other than `features`"),
            _ if self.dataset.vertex_types[ty].features_of(Some(name)).is_some() => {
                return self.fail(key, format!("there are two fields `{name}` of {of}"));
            }
            _ => {}
        }
        if let Some(values) = self.feature_rows(ty, key, &format!("field `{name}` of {of}"), given) {
            self.dataset.vertex_types[ty].fields.push(FieldData { name: name.to_owned(), values });
        }
    }

    /// Features with a row for each vertex of a type, when they have no fault.
    fn feature_rows(&mut self, ty: usize, key: &str, at: &str, given: GivenFeatures<'_>) -> Option<Features> {
        let count = self.dataset.vertex_types[ty].count;
        match given {
            GivenFeatures::Dense { dim, rows } => {
                self.dense_rows(key, at, (count, dim), rows, "vertices").map(Features::Dense)
            }
            GivenFeatures::Sparse { dim, indptr, indices, data } => {
                self.sparse_rows(key, at, (count, dim), (indptr, indices, data)).map(Features::Sparse)
            }
        }
    }

    fn sparse_rows(
        &mut self,
        key: &str,
        at: &str,
        (count, dim): (usize, usize),
        (ends, columns, data): (&[i64], &[i64], FloatArray),
    ) -> Option<SparseFeatures> {
        let place = Place { file: key, at };
        if ends.len() != count + 1 {
            let found = ends.len().saturating_sub(1);
            self.fail(key, format!("{at} has {count} vertices, so it should have as many rows, but it has {found}"));
            return None;
        }
        if columns.len() != data.len() {
            self.fail(key, format!("has {} columns for {} stored values", columns.len(), data.len()));
            return None;
        }
        if dim as u64 > u64::from(u32::MAX) {
            self.fail(key, format!("rows of {dim} features; they have fewer than 2^32"));
            return None;
        }
        let indptr = self.keep(checks::indptr(place, ends, data.len()))?;
        let position = |i: usize| format!("row {} (position {i})", checks::row_of(&indptr, i));
        let bound = Bound { what: "column", count: dim, of: "a row" };
        let indices = self.keep(checks::ids(place, columns, position, bound))?;
        let (indices, data) = ordered(&indptr, indices, data);
        self.keep(checks::column_order(place, &indptr, &indices))?;
        let element = |i: usize| (checks::row_of(&indptr, i), indices[i] as usize);
        self.keep(checks::finite(place, &data, element))?;
        Some(SparseFeatures { dim, indptr, indices, data })
    }

    /// The ids of the vertices of a type where they came from.
    pub fn ids(&mut self, ty: usize, key: &str, ids: VertexIds) {
        let (at, count) = (self.type_at(ty), self.dataset.vertex_types[ty].count);
        if self.len(key, &at, ids.len(), count, "vertices").is_some() {
            self.dataset.vertex_types[ty].ids = Some(ids);
        }
    }

    /// A time of each vertex of a type.
    pub fn time(&mut self, ty: usize, key: &str, time: Vec<i64>) {
        let (at, count) = (self.type_at(ty), self.dataset.vertex_types[ty].count);
        if self.len(key, &at, time.len(), count, "vertices").is_some() {
            self.dataset.vertex_types[ty].time = Some(time);
        }
    }

    /// Adds a relation between two vertex types, and returns its position. The two arrays have an entry per edge.
    pub fn relation(
        &mut self,
        name: &str,
        (src, dst): (usize, usize),
        key: &str,
        (src_ids, dst_ids): (&[i64], &[i64]),
    ) -> usize {
        if name.is_empty() {
            self.fail(key, "a relation has a name");
        } else if self.dataset.relation(name).is_some() {
            self.fail(key, format!("there are two relations `{name}`"));
        }
        let at = format!("relation `{name}`");
        if src_ids.len() != dst_ids.len() {
            self.fail(key, format!("has {} sources and {} destinations", src_ids.len(), dst_ids.len()));
        }
        let mut ends = |ty: usize, what: &str, ids: &[i64]| {
            let of = self.type_at(ty);
            let bound = Bound { what, count: self.dataset.vertex_types[ty].count, of: &of };
            let found = checks::ids(Place { file: key, at: &at }, ids, |i| format!("edge {i}"), bound);
            self.keep(found).unwrap_or_default()
        };
        let (src_ids, dst_ids) = (ends(src, "source", src_ids), ends(dst, "destination", dst_ids));
        let relation = RelationData { name: name.to_owned(), src, dst, src_ids, dst_ids, ..RelationData::default() };
        self.dataset.relations.push(relation);
        self.dataset.relations.len() - 1
    }

    /// A weight of each edge.
    pub fn weight(&mut self, relation: usize, key: &str, weight: FloatArray) {
        let (at, edges) = (self.relation_at(relation), self.dataset.relations[relation].num_edges());
        if self.len(key, &at, weight.len(), edges, "edges").is_none() {
            return;
        }
        let found = checks::finite(Place { file: key, at: &at }, &weight, |i| (i, 0));
        if self.keep(found).is_some() {
            self.dataset.relations[relation].weight = Some(weight);
        }
    }

    /// Features of edges. `rows: f32[edges, dim]`
    pub fn edge_features(&mut self, relation: usize, key: &str, dim: usize, rows: FloatArray) {
        let (at, edges) = (self.relation_at(relation), self.dataset.relations[relation].num_edges());
        let found = self.dense_rows(key, &at, (edges, dim), rows, "edges");
        self.dataset.relations[relation].features = found;
    }

    /// A time of each edge.
    pub fn edge_time(&mut self, relation: usize, key: &str, time: Vec<i64>) {
        let (at, edges) = (self.relation_at(relation), self.dataset.relations[relation].num_edges());
        if self.len(key, &at, time.len(), edges, "edges").is_some() {
            self.dataset.relations[relation].time = Some(time);
        }
    }

    /// A label of vertices or edges. There are as many names of classes as classes, or none.
    pub fn label(&mut self, of: GivenRows, key: &str, name: &str, given: GivenLabels, class_names: Vec<String>) {
        let Some(values) = self.checked_label(of, key, name, given, &class_names) else { return };
        let name = name.to_owned();
        match of {
            GivenRows::Vertices(vertex_type) => {
                self.dataset.labels.push(LabelData { name, vertex_type, values, class_names });
            }
            GivenRows::Edges(relation) => {
                self.dataset.relations[relation].labels.push(EdgeLabel { name, values, class_names });
            }
        }
    }

    fn checked_label(
        &mut self,
        rows_of: GivenRows,
        key: &str,
        name: &str,
        given: GivenLabels,
        class_names: &[String],
    ) -> Option<LabelValues> {
        /// Most classes, as in files.
        const MAX_CLASSES: usize = 1 << 24;
        let (of_rows, count, (_, per)) = (self.rows_at(rows_of), self.num_rows(rows_of), rows_of.words());
        let at = format!("label `{name}` of {of_rows}");
        let place = Place { file: key, at: &at };
        let width = match &given {
            GivenLabels::Single { classes, .. } | GivenLabels::Multi { classes, .. } => *classes,
            GivenLabels::Real { dim, .. } => *dim,
        };
        if !(1..=MAX_CLASSES).contains(&width) {
            self.fail(key, format!("{at} has {width} classes or numbers; there are 1 to 2^24"));
            return None;
        }
        if !class_names.is_empty() && class_names.len() != width {
            self.fail(key, format!("{at} has {width} classes, but {} names of classes", class_names.len()));
            return None;
        }
        if self.labels_of(rows_of).iter().any(|(known, _)| *known == name) {
            self.fail(key, format!("there are two labels `{name}` of {of_rows}"));
            return None;
        }
        let values = match given {
            GivenLabels::Single { classes, of } => {
                self.len(key, &of_rows, of.len(), count, per)?;
                LabelValues::Single { classes, of: self.keep(checks::classes(place, &of, classes))? }
            }
            GivenLabels::Multi { classes, mut rows } => {
                self.rows(key, &of_rows, rows.len(), (count, classes), per)?;
                let mut labelled = vec![true; count];
                self.keep(checks::zero_one(place, &mut rows, &mut labelled, classes))?;
                LabelValues::Multi { classes, rows, labelled }
            }
            GivenLabels::Real { dim, mut rows } => {
                self.rows(key, &of_rows, rows.len(), (count, dim), per)?;
                let mut labelled = vec![true; count];
                for (values, labelled) in rows.chunks_exact_mut(dim).zip(&mut labelled) {
                    if values.iter().any(|v| v.is_nan()) {
                        values.fill(0.0);
                        *labelled = false;
                    }
                }
                self.keep(checks::finite(place, &rows, |i| (i / dim, i % dim)))?;
                LabelValues::Real { dim, rows, labelled }
            }
        };
        Some(values)
    }

    /// A split of labelled vertices or edges, after their labels: training, validation and test.
    pub fn split(&mut self, of: GivenRows, name: &str, parts: [Named<'_, &[i64]>; 3]) {
        let at = format!("split `{name}`");
        let (of_rows, count, (what, _)) = (self.rows_at(of), self.num_rows(of), of.words());
        let known = match of {
            GivenRows::Vertices(ty) => {
                self.dataset.splits.iter().any(|split| split.vertex_type == ty && split.name == name)
            }
            GivenRows::Edges(relation) => {
                self.dataset.relations[relation].splits.iter().any(|split| split.name == name)
            }
        };
        if known {
            return self.fail(parts[0].key, format!("there are two splits `{name}` of {of_rows}"));
        }
        let labels: Vec<&LabelValues> = self.labels_of(of).into_iter().map(|(_, values)| values).collect();
        if let (GivenRows::Edges(_), true) = (of, labels.is_empty()) {
            return self.fail(parts[0].key, format!("{of_rows} has no label, so nothing of it is divided"));
        }
        let mut errors = Vec::new();
        let mut found: Vec<Vec<u32>> = Vec::new();
        for (part, Named { key, value }) in ["train", "val", "test"].into_iter().zip(parts) {
            let place = Place { file: key, at: &at };
            let bound = Bound { what, count, of: &of_rows };
            let ids = checks::ids(place, value, |i| format!("position {i} of `{part}`"), bound);
            let ids = match ids {
                Ok(ids) => checks::labelled(place, (part, what), &ids, &labels).map(|()| ids),
                wrong => wrong,
            };
            match ids {
                Ok(mut ids) => {
                    ids.sort_unstable();
                    found.push(ids);
                }
                Err(error) => errors.push(error),
            }
        }
        if let Ok([train, val, test]) = <[Vec<u32>; 3]>::try_from(found) {
            errors.extend(checks::disjoint(&at, what, [("train", &train), ("val", &val), ("test", &test)]));
            let name = name.to_owned();
            match of {
                _ if !errors.is_empty() => {}
                GivenRows::Vertices(vertex_type) => {
                    self.dataset.splits.push(SplitData { name, vertex_type, train, val, test });
                }
                GivenRows::Edges(relation) => {
                    self.dataset.relations[relation].splits.push(EdgeSplit { name, train, val, test });
                }
            }
        }
        self.errors.extend(errors);
    }

    /// Held-out links: validation and test, each with any number of relations.
    pub fn link_split(&mut self, name: &str, val: &[GivenLinks<'_>], test: &[GivenLinks<'_>]) {
        if self.dataset.link_splits.iter().any(|split| split.name == name) {
            return self.fail(name, "there are two link splits of that name");
        }
        let (val, test) = (self.links((name, "val"), val), self.links((name, "test"), test));
        self.dataset.link_splits.push(LinkSplitData { name: name.to_owned(), val, test });
    }

    fn links(&mut self, (split, part): (&str, &str), given: &[GivenLinks<'_>]) -> Links {
        let at = format!("link split `{split}`");
        let timed = given.iter().find(|of| of.time.is_some());
        let mut links = Links { time: timed.map(|_| Vec::new()), ..Links::default() };
        for &GivenLinks { key, relation, src, dst, time } in given {
            if src.len() != dst.len() {
                self.fail(key, format!("has {} sources and {} destinations", src.len(), dst.len()));
                continue;
            }
            let time = match (time, timed) {
                (Some(Named { key, value }), _) => {
                    let at = format!("`{part}` of {at}, {}", self.relation_at(relation));
                    let Some(()) = self.len(key, &at, value.len(), src.len(), "links") else { continue };
                    value
                }
                // A relation without links cannot lack a time.
                (None, Some(timed)) if !src.is_empty() => {
                    let (own, other) = (self.relation_at(relation), self.relation_at(timed.relation));
                    let problem = format!(
                        "`{part}` of {at} has times of the links of {other}, but none of {own}: give all relations of \
                         a part times, or none"
                    );
                    self.fail(key, problem);
                    continue;
                }
                (None, _) => &[],
            };
            let RelationData { src: from, dst: to, .. } = self.dataset.relations[relation];
            let mut ends = |ty: usize, what: &str, ids: &[i64]| {
                let of = self.type_at(ty);
                let bound = Bound { what, count: self.dataset.vertex_types[ty].count, of: &of };
                let found = checks::ids(Place { file: key, at: &at }, ids, |i| format!("link {i}"), bound);
                self.keep(found)
            };
            let (src, dst) = (ends(from, "source", src), ends(to, "destination", dst));
            if let (Some(src), Some(dst)) = (src, dst) {
                links.relation.extend(std::iter::repeat_n(relation as u32, src.len()));
                links.src.extend(src);
                links.dst.extend(dst);
                links.time.iter_mut().for_each(|all| all.extend(time));
            }
        }
        links
    }

    /// The dataset.
    ///
    /// # Errors
    /// All faults, in the order in which they were given.
    pub fn finish(mut self) -> Result<Dataset, DataErrors> {
        if self.dataset.vertex_types.is_empty() && self.errors.is_empty() {
            self.fail("the data", "there are no vertex types");
        }
        match self.errors.is_empty() {
            true => Ok(self.dataset),
            false => Err(DataErrors { folder: Default::default(), errors: self.errors }),
        }
    }
}

/// Sorts the columns of each row; leaves rows alone that are in order.
fn ordered(indptr: &[u64], mut indices: Vec<u32>, data: FloatArray) -> (Vec<u32>, FloatArray) {
    let rows = || indptr.windows(2).map(|w| w[0] as usize..w[1] as usize);
    if rows().all(|row| indices[row].is_sorted()) {
        return (indices, data);
    }
    let mut data = data.to_vec();
    for row in rows() {
        let mut entries: Vec<(u32, f32)> =
            indices[row.clone()].iter().copied().zip(data[row.clone()].to_vec()).collect();
        entries.sort_by_key(|entry| entry.0);
        for (at, (column, value)) in row.zip(entries) {
            (indices[at], data[at]) = (column, value);
        }
    }
    (indices, data.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two papers, three authors, one relation.
    fn small() -> (Builder, usize, usize, usize) {
        let mut builder = Builder::new("small");
        let paper = builder.vertex_type("paper", "paper", 2);
        let author = builder.vertex_type("author", "author", 3);
        let writes = builder.relation("writes", (author, paper), "edges", (&[0, 2], &[1, 0]));
        (builder, paper, author, writes)
    }

    fn said(builder: Builder) -> String {
        builder.finish().expect_err("faults").to_string()
    }

    #[test]
    fn a_dataset_that_is_built_equals_the_one_that_is_written_and_loaded() {
        let (mut builder, paper, author, writes) = small();
        builder.dense(paper, "x", 2, vec![1.0, 2.0, 3.0, 4.0].into());
        // Columns in any order.
        builder.sparse(author, "s", 4, (&[0, 2, 2, 3], &[3, 1, 0], vec![1.0, 2.0, 3.0].into()));
        builder.ids(author, "ids", ["a", "b", "ü"].into_iter().collect());
        builder.weight(writes, "w", vec![0.5, 1.5].into());
        builder.label(GivenRows::Vertices(paper), "y", "y", GivenLabels::Single { classes: 2, of: vec![1, 0] }, vec![]);
        let part = |key, value| Named { key, value };
        builder.split(
            GivenRows::Vertices(paper),
            "masks",
            [part("train", &[1][..]), part("val", &[0]), part("test", &[])],
        );
        let of_edges = GivenLabels::Real { dim: 1, rows: vec![f32::NAN, 2.0] };
        builder.label(GivenRows::Edges(writes), "stars", "stars", of_edges, vec![]);
        builder.split(GivenRows::Edges(writes), "known", [part("train", &[1]), part("val", &[]), part("test", &[])]);
        let built = builder.finish().expect("no faults");
        let folder = tempfile::tempdir().expect("a folder");
        built.write(&folder.path().join("d")).expect("written");
        let loaded = Dataset::load(folder.path().join("d")).expect("loaded");
        assert_eq!(loaded.relations[0].src_ids, [0, 2]);
        assert_eq!(loaded.relations[0].weight, built.relations[0].weight);
        let Some(Features::Sparse(s)) = &loaded.vertex_types[1].features else { panic!("sparse") };
        assert_eq!(
            (&s.indptr[..], &s.indices[..], &s.data[..]),
            (&[0, 2, 2, 3][..], &[1, 3, 0][..], &[2.0, 1.0, 3.0][..])
        );
        assert_eq!(loaded.vertex_types[1].ids, built.vertex_types[1].ids);
        assert_eq!((&loaded.splits[0].train[..], &loaded.splits[0].val[..]), (&[1][..], &[0][..]));
        assert_eq!(loaded.labels[0].values, built.labels[0].values);
        assert_eq!(loaded.relations[0].labels, built.relations[0].labels);
        assert_eq!(loaded.relations[0].splits, built.relations[0].splits);
        assert_eq!(built.relations[0].splits[0].train, [1]);
    }

    #[test]
    fn a_vertex_type_has_several_fields() {
        let (mut builder, paper, author, _) = small();
        builder.dense(author, "x", 1, vec![1.0; 3].into());
        let year = GivenFeatures::Dense { dim: 1, rows: vec![2001.0, 2002.0, 2003.0].into() };
        builder.field(author, "year", "year", year.clone());
        let (indptr, indices): (&[i64], &[i64]) = (&[0, 2, 2, 3], &[3, 1, 0]);
        let words = GivenFeatures::Sparse { dim: 4, indptr, indices, data: vec![1.0, 2.0, 3.0].into() };
        builder.field(author, "words", "words", words.clone());
        let built = builder.clone().finish().expect("no faults");
        let folder = tempfile::tempdir().expect("a folder");
        built.write(&folder.path().join("d")).expect("written");
        let loaded = Dataset::load(folder.path().join("d")).expect("loaded");
        for of in [&built.vertex_types[author], &loaded.vertex_types[author]] {
            assert_eq!(of.fields.iter().map(|field| &field.name[..]).collect::<Vec<_>>(), ["year", "words"]);
            let Some(Features::Dense(year)) = of.features_of(Some("year")) else { panic!("dense") };
            assert_eq!((year.dim, &year.rows[..]), (1, &[2001.0, 2002.0, 2003.0][..]));
            let Some(Features::Sparse(words)) = of.features_of(Some("words")) else { panic!("sparse") };
            assert_eq!((words.dim, &words.indices[..], &words.data[..]), (4, &[1, 3, 0][..], &[2.0, 1.0, 3.0][..]));
            assert_eq!(of.features.as_ref().map(Features::dim), Some(1));
        }

        builder.field(author, "again", "year", year.clone());
        builder.field(author, "unnamed", "", year.clone());
        builder.field(author, "taken", "features", year.clone());
        builder.field(paper, "long", "year", year);
        builder.field(paper, "longer", "words", words);
        let wrong = GivenFeatures::Dense { dim: 1, rows: vec![1.0, f32::NAN].into() };
        builder.field(paper, "missing", "year", wrong);
        let text = said(builder);
        for part in [
            "`again`: there are two fields `year` of vertex type `author`",
            "`unnamed`: a field has a name",
            "`taken`: a field has a name of its own, other than `features`",
            "`long`: field `year` of vertex type `paper` has 2 vertices, so it should have as many rows, but it has 3",
            "`longer`: field `words` of vertex type `paper` has 2 vertices, so it should have as many rows, but it has 3",
            "`missing`: field `year` of vertex type `paper`, row 1, column 0 is NaN",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn all_faults_are_found_and_name_their_key() {
        let (mut builder, paper, author, writes) = small();
        builder.relation("cites", (paper, paper), "data['cites']", (&[0, 2, -1], &[0, 0, 0]));
        builder.relation("writes", (author, paper), "again", (&[], &[]));
        builder.dense(paper, "x", 2, vec![1.0, f32::NAN, 3.0, 4.0].into());
        builder.dense(author, "ax", 2, vec![1.0; 4].into());
        builder.weight(writes, "w", vec![0.5].into());
        builder.label(GivenRows::Vertices(paper), "y", "y", GivenLabels::Single { classes: 2, of: vec![2, 0] }, vec![]);
        let text = said(builder);
        for part in [
            "the dataset has 6 errors:",
            "`data['cites']`: relation `cites`, source of edge 1 is 2, but vertex type `paper` has 2, so ids go from 0 to \
             1 (and 1 more)",
            "`again`: there are two relations `writes`",
            "`x`: vertex type `paper`, row 0, column 1 is NaN",
            "`ax`: vertex type `author` has 3 vertices, so it should have as many rows, but it has 2",
            "`w`: relation `writes` has 2 edges, so it should have as many entries, but it has 1",
            "`y`: label `y` of vertex type `paper`, row 0 is class 2, but there are 2 classes",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn faults_of_labels_and_splits_of_edges_name_edges() {
        let (mut builder, _, _, writes) = small();
        let of = GivenRows::Edges(writes);
        let split = |builder: &mut Builder, name: &str, ids: &[i64]| {
            let part = |key, value| Named { key, value };
            builder.split(of, name, [part("train", ids), part("val", &[]), part("test", &[])]);
        };
        split(&mut builder, "early", &[0]);
        builder.label(of, "long", "y", GivenLabels::Single { classes: 2, of: vec![1, 0, 1] }, vec![]);
        builder.label(of, "y", "y", GivenLabels::Single { classes: 2, of: vec![-1, 1] }, vec![]);
        builder.label(of, "again", "y", GivenLabels::Single { classes: 2, of: vec![0, 1] }, vec![]);
        split(&mut builder, "unlabelled", &[0]);
        split(&mut builder, "twice", &[1, 1]);
        split(&mut builder, "far", &[2]);
        let text = said(builder);
        for part in [
            "`train`: relation `writes` has no label, so nothing of it is divided",
            "`long`: relation `writes` has 2 edges, so it should have as many entries, but it has 3",
            "`again`: there are two labels `y` of relation `writes`",
            "`train`: split `unlabelled`, position 0 of `train` is edge 0, which has no label",
            "split `twice`: edge 1 is twice in `train`",
            "`train`: split `far`, edge of position 0 of `train` is 2, but relation `writes` has 2",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn held_out_links_keep_their_times() {
        let (mut builder, paper, _, writes) = small();
        let cites = builder.relation("cites", (paper, paper), "cites", (&[], &[]));
        let none = GivenLinks { key: "none", relation: cites, src: &[], dst: &[], time: None };
        let times = |value: &'static [i64]| Some(Named { key: "time", value });
        let of_writes = GivenLinks { key: "w", relation: writes, src: &[2, 0], dst: &[0, 1], time: times(&[7, -3]) };
        let of_cites = GivenLinks { key: "c", relation: cites, src: &[1], dst: &[0], time: times(&[1 << 40]) };
        builder.link_split("later", &[none, of_writes, of_cites], &[GivenLinks { time: None, ..of_cites }]);
        let built = builder.finish().expect("no faults");
        let folder = tempfile::tempdir().expect("a folder");
        built.write(&folder.path().join("d")).expect("written");
        let loaded = Dataset::load(folder.path().join("d")).expect("loaded");
        for split in [&built.link_splits[0], &loaded.link_splits[0]] {
            assert_eq!(split.val.relation, [0, 0, 1]);
            assert_eq!(split.val.time.as_deref(), Some(&[7, -3, 1 << 40][..]));
            assert_eq!(split.test.time, None);
        }
    }

    #[test]
    fn times_of_held_out_links_are_of_all_relations_of_a_part() {
        let (mut builder, paper, _, writes) = small();
        let cites = builder.relation("cites", (paper, paper), "cites", (&[], &[]));
        let times = |value: &'static [i64]| Some(Named { key: "l.val.time", value });
        let of_writes = GivenLinks { key: "l.val", relation: writes, src: &[2], dst: &[0], time: times(&[1, 2]) };
        let of_cites = GivenLinks { key: "l.cites", relation: cites, src: &[1], dst: &[0], time: None };
        builder.link_split("l", &[of_cites, of_writes], &[]);
        let text = said(builder);
        for part in [
            "`l.val.time`: `val` of link split `l`, relation `writes` has 1 links, so it should have as many entries, but it \
             has 2",
            "`l.cites`: `val` of link split `l` has times of the links of relation `writes`, but none of relation `cites`: \
             give all relations of a part times, or none",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn splits_are_disjoint_and_labelled_and_links_in_range() {
        let (mut builder, paper, _, writes) = small();
        builder.label(
            GivenRows::Vertices(paper),
            "y",
            "y",
            GivenLabels::Real { dim: 1, rows: vec![f32::NAN, 2.0] },
            vec![],
        );
        let part = |key, value| Named { key, value };
        builder.split(
            GivenRows::Vertices(paper),
            "a",
            [part("a.train", &[0][..]), part("a.val", &[]), part("a.test", &[])],
        );
        builder.split(
            GivenRows::Vertices(paper),
            "b",
            [part("b.train", &[1][..]), part("b.val", &[1]), part("b.test", &[])],
        );
        builder.link_split(
            "l",
            &[],
            &[GivenLinks { key: "l.test", relation: writes, src: &[3], dst: &[0], time: None }],
        );
        let text = said(builder);
        for part in [
            "`a.train`: split `a`, position 0 of `train` is vertex 0, which has no label",
            "split `b`: vertex 1 is in both `train` and `val`",
            "`l.test`: link split `l`, source of link 0 is 3, but vertex type `author` has 3",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(said(Builder::new("empty")).contains("there are no vertex types"));
    }
}
