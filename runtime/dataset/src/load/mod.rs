//! Loads and validates a dataset folder.
//!
//! All faults are reported in one run: a part that cannot be read suppresses only the checks that depend on it. Not
//! checked here: the counts claimed by `[[metapath]]`, since each check costs a semantic graph build.

mod fields;
mod format;
mod targets;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use toml::{Table, Value};

pub use self::format::FIELDS;

use self::fields::{At, Loader, NO_MASK};
use self::format::{
    EDGE_FEATURES, METAPATH, RELATION, ROOT, TRANSFORM, VERTEX_FEATURES, VERTEX_FIELD, VERTEX_IDS, VERTEX_TYPE,
};
use crate::checks;
use crate::dataset::Step;
use crate::dataset::{
    Dataset, DenseFeatures, Features, FieldData, Kinds, MetapathData, RelationData, SparseFeatures, Transform,
    TransformKind, VertexIds, VertexTypeData,
};
use crate::error::{DataError, DataErrors};
use crate::files;
use crate::npy::{Dtype, FloatArray};

impl Dataset {
    /// Loads the dataset in `folder`: reads `dataset.toml`, maps its files and checks all of them.
    ///
    /// Errors with all faults, in the order of `dataset.toml`.
    pub fn load(folder: impl AsRef<Path>) -> Result<Dataset, DataErrors> {
        let folder = folder.as_ref();
        let mut loader = Loader::new(folder);
        let dataset = load(folder, &mut loader);
        match dataset {
            Some(dataset) if loader.errors.is_empty() => Ok(dataset),
            _ => Err(DataErrors { folder: folder.to_path_buf(), errors: loader.errors }),
        }
    }
}

impl Dataset {
    /// Reads `dataset.toml` and the splits of vertices, and checks the shapes and element types of all other files
    /// without reading them, for programs that stream them: features, ids, times, kinds, labels, links and edges are
    /// missing or empty in the result.
    ///
    /// Errors with all faults of `dataset.toml`, of splits and of the heads of files; those of elements are not found.
    pub fn outline(folder: impl AsRef<Path>) -> Result<Dataset, DataErrors> {
        let folder = folder.as_ref();
        let mut loader = Loader::new(folder);
        loader.outline = true;
        match load(folder, &mut loader) {
            Some(dataset) if loader.errors.is_empty() => Ok(dataset),
            _ => Err(DataErrors { folder: folder.to_path_buf(), errors: loader.errors }),
        }
    }
}

/// Upper bound on the vertices of one type. Ids would allow four times as many. The bound stops a mistyped count before
/// arrays of that size are allocated.
pub(crate) const MAX_VERTICES: u64 = 1 << 30;

/// The version of `dataset.toml` that is read.
const FORMAT: i64 = 1;

/// The part of a vertex type that later tables refer to; `count` is `None` if the type itself has a fault.
struct TypeSketch {
    name: String,
    count: Option<usize>,
}

/// The part of a relation that later tables refer to; a field is `None` if it has a fault.
struct RelationSketch {
    name: String,
    ends: Option<(usize, usize)>,
    edges: Option<usize>,
}

fn load(folder: &Path, loader: &mut Loader) -> Option<Dataset> {
    let text = match files::read_to_string(&folder.join("dataset.toml")) {
        Ok(text) => text,
        Err(e) => {
            if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                loader.errors.extend(DataErrors::not_a_dataset(folder).errors);
                return None;
            }
            let file = folder.join("dataset.toml");
            let reason = match e.kind() {
                ErrorKind::InvalidData => format!("`{}` is not UTF-8 text", file.display()),
                _ => format!("`{}` cannot be read: {e}", file.display()),
            };
            return loader.fail(DataError::NotADataset { folder: folder.to_path_buf(), reason });
        }
    };
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(e) => return loader.fail(DataError::Toml { message: e.to_string().trim_end().to_string() }),
    };
    let root = At::new(&table, ROOT, "the dataset");
    // A file without `format` has version 1, the only one so far.
    if let Some(format) = root.get("format").filter(|format| format.as_integer() != Some(FORMAT)) {
        return loader.bad(root, "format", &format!("{FORMAT}, which is what this program reads"), format);
    }
    let name = loader.string(root, "name");
    let title = loader.optional_string(root, "title");
    let generator = loader.optional_string(root, "generator");

    let mut types = Vec::new();
    let mut vertex_types = Vec::new();
    for (i, table) in loader.tables(root, "vertex_type").into_iter().enumerate() {
        let (name, data) = vertex_type(loader, table, i);
        types.push(name);
        vertex_types.extend(data);
    }
    if types.is_empty() && loader.errors.is_empty() {
        loader.fail::<()>(DataError::MissingField {
            at: root.name.into(),
            field: "vertex_type".into(),
            expected: "at least one [[vertex_type]]".into(),
        });
    }
    unique(loader, "vertex types", types.iter().map(|t| &t.name[..]));

    let mut sketches = Vec::new();
    let mut relations = Vec::new();
    for (i, table) in loader.tables(root, "relation").into_iter().enumerate() {
        let (sketch, data) = relation(loader, table, i, &types);
        sketches.push(sketch);
        relations.extend(data);
    }
    unique(loader, "relations", sketches.iter().map(|r| &r.name[..]));

    let labels = targets::labels(loader, root, (&types, &sketches));
    let splits = targets::splits(loader, root, (&types, &sketches), &labels);
    let link_splits = targets::link_splits(loader, root, &types, &sketches);

    let mut metapaths = Vec::new();
    for (i, table) in loader.tables(root, "metapath").into_iter().enumerate() {
        metapaths.extend(metapath(loader, table, i, &types, &sketches));
    }
    unique(loader, "metapaths", metapaths.iter().map(|m: &MetapathData| &m.name[..]));

    let mut dataset = Dataset {
        folder: folder.to_path_buf(),
        name: name?,
        title,
        generator,
        vertex_types,
        relations,
        link_splits,
        metapaths,
        ..Dataset::default()
    };
    targets::add_to(&mut dataset, labels, splits);
    Some(dataset)
}

fn unique<'a>(loader: &mut Loader, what: &str, names: impl Iterator<Item = &'a str>) {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&str> = names.filter(|n| !n.is_empty() && !seen.insert(*n)).collect();
    for name in twice {
        loader.errors.push(DataError::Duplicate { what: what.into(), name: name.into() });
    }
}

/// The name of a table in messages: its `name`, or its position if it has none.
fn called(kind: &str, table: &Table, position: usize) -> String {
    match table.get("name").and_then(Value::as_str) {
        Some(name) => format!("{kind} `{name}`"),
        None => format!("{kind} number {}", position + 1),
    }
}

/// Resolves the vertex type that `field` names.
fn type_named(loader: &mut Loader, at: At<'_>, field: &str, types: &[TypeSketch]) -> Option<usize> {
    let name = loader.string(at, field)?;
    let found = types.iter().position(|t| t.name == name);
    if found.is_none() {
        loader.fail::<()>(DataError::UnknownName {
            at: at.name.into(),
            field: field.into(),
            name,
            what: "vertex type".into(),
            known: list(types.iter().map(|t| &t.name[..])),
        });
    }
    found
}

/// A short list of names for a message.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.filter(|n| !n.is_empty()).collect();
    let mut text = names.iter().take(12).map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => text.push_str("none"),
        n if n > 12 => text.push_str(&format!(" and {} more", n - 12)),
        _ => {}
    }
    text
}

fn vertex_type(loader: &mut Loader, table: &Table, position: usize) -> (TypeSketch, Option<VertexTypeData>) {
    let called = called("vertex type", table, position);
    let at = At::new(table, VERTEX_TYPE, &called);
    let name = loader.string(at, "name");
    let count = loader.count_within(at, "count", 0, MAX_VERTICES, "at most 2^30");
    let sketch = TypeSketch { name: name.clone().unwrap_or_default(), count };
    let Some(count) = count else { return (sketch, None) };
    let features = match at.get("features") {
        None => None,
        Some(Value::Table(inner)) => {
            let called = format!("features of {called}");
            features(loader, At::new(inner, VERTEX_FEATURES, &called), count)
        }
        Some(other) => loader.bad(at, "features", "a table", other),
    };
    let fields = fields_of(loader, at, &called, count);
    let kinds = if at.get("kind_file").is_some() { kinds(loader, at, count) } else { None };
    let ids = match at.get("ids") {
        None => None,
        Some(Value::Table(inner)) => {
            let called = format!("ids of {called}");
            vertex_ids(loader, At::new(inner, VERTEX_IDS, &called), count)
        }
        Some(other) => loader.bad(at, "ids", "a table", other),
    };
    let time = times(loader, at, "time", count, "vertex");
    // The width of features that are at fault is not known.
    let absent = at.get("features").is_none();
    let width = features.as_ref().map(Features::dim).or(absent.then_some(0));
    let transforms = width.map_or_else(Vec::new, |width| transforms(loader, at, &called, width));
    (sketch, name.map(|name| VertexTypeData { name, count, features, fields, kinds, ids, time, transforms }))
}

/// Features with a name, of the vertex type that messages call `of`.
fn fields_of(loader: &mut Loader, at: At<'_>, of: &str, count: usize) -> Vec<FieldData> {
    let (mut names, mut fields) = (vec![], vec![]);
    for (i, table) in loader.tables(at, "field").into_iter().enumerate() {
        let called = format!("{} of {of}", called("field", table, i));
        let at = At::new(table, VERTEX_FIELD, &called);
        let mut name = loader.string(at, "name");
        if let Some(given) = name.take_if(|name| name == "features") {
            let expected = "a name of its own (`features` is that of `[vertex_type.features]`)";
            name = loader.bad(at, "name", expected, &Value::String(given));
        }
        let values = features(loader, at, count);
        names.extend(name.clone());
        fields.extend(name.zip(values).map(|(name, values)| FieldData { name, values }));
    }
    unique(loader, &format!("fields of {of}"), names.iter().map(|name| &name[..]));
    fields
}

/// The times in the file that an optional field names.
fn times(loader: &mut Loader, at: At<'_>, field: &'static str, count: usize, per: &str) -> Option<Vec<i64>> {
    let file = loader.optional_file(at, field).ok()??;
    loader.shape(&file, &[Some(count)], &format!("[{count}] (one time per {per})"))?;
    if loader.outline { loader.integer_type(&file).and(None) } else { loader.integers(&file) }
}

fn vertex_ids(loader: &mut Loader, at: At<'_>, count: usize) -> Option<VertexIds> {
    let kind = loader.string(at, "kind")?;
    match &kind[..] {
        "integer" => {
            let file = loader.file(at, "file")?;
            loader.shape(&file, &[Some(count)], &format!("[{count}] (one id per vertex)"))?;
            if loader.outline {
                return loader.integer_type(&file).and(None);
            }
            loader.integers(&file).map(VertexIds::Integer)
        }
        "text" => text_ids(loader, at, count),
        _ => loader.bad(at, "kind", "`integer` or `text`", &Value::String(kind)),
    }
}

fn text_ids(loader: &mut Loader, at: At<'_>, count: usize) -> Option<VertexIds> {
    let (offsets_file, bytes_file) = (loader.file(at, "offsets"), loader.file(at, "bytes"));
    let (offsets_file, bytes_file) = (offsets_file?, bytes_file?);
    loader.shape(&offsets_file, &[Some(count + 1)], &format!("[{}] (vertices + 1)", count + 1))?;
    loader.shape(&bytes_file, &[None], "[bytes] (one axis)")?;
    if bytes_file.npy.dtype() != Dtype::U8 {
        return loader.wrong_dtype(&bytes_file, "uint8");
    }
    if loader.outline {
        return loader.integer_type(&offsets_file).and(None);
    }
    let ends = loader.integers(&offsets_file)?;
    let found = checks::text_ids(offsets_file.place(), &bytes_file.file, &ends, bytes_file.npy.bytes().to_vec());
    loader.keep(found)
}

/// How the features of a vertex type or relation were made; their widths add up to that of the features.
fn transforms(loader: &mut Loader, at: At<'_>, of: &str, dim: usize) -> Vec<Transform> {
    let mut all = Vec::new();
    for (i, table) in loader.tables(at, "transform").into_iter().enumerate() {
        let called = format!("transform number {} of {of}", i + 1);
        match transform(loader, At::new(table, TRANSFORM, &called)) {
            Some(found) => all.push(found),
            None => return Vec::new(),
        }
    }
    // A width is at most 2^32, and there are as many of them as lines of text.
    let width: u64 = all.iter().map(|t| t.width() as u64).sum();
    if !all.is_empty() && width != dim as u64 {
        loader.fail::<()>(DataError::BadField {
            at: at.name.to_string(),
            field: "transform".into(),
            expected: format!("as wide as the features, {dim}"),
            found: format!("{width} wide"),
        });
    }
    all
}

fn transform(loader: &mut Loader, at: At<'_>) -> Option<Transform> {
    let kind = loader.string(at, "kind");
    let columns = loader.strings(at, "columns");
    let (kind, columns) = (kind?, columns?);
    if columns.is_empty() {
        return loader.fail(DataError::MissingField {
            at: at.name.into(),
            field: "columns".into(),
            expected: "at least one column".into(),
        });
    }
    let kind = match &kind[..] {
        "numbers" => TransformKind::Numbers {
            shift: loader.numbers(at, "shift", Some(columns.len()))?,
            scale: loader.numbers(at, "scale", Some(columns.len()))?,
            missing: loader.numbers(at, "missing", Some(columns.len()))?,
        },
        "one_hot" => TransformKind::OneHot {
            categories: loader.strings(at, "categories")?,
            separator: if at.get("separator").is_some() { Some(loader.string(at, "separator")?) } else { None },
        },
        "buckets" => TransformKind::Buckets { bounds: loader.numbers(at, "bounds", None)? },
        "vector" => TransformKind::Vector {
            separator: loader.string(at, "separator")?,
            width: loader.count_within(at, "width", 0, u64::from(u32::MAX), "below 2^32")?,
        },
        _ => return loader.bad(at, "kind", "`numbers`, `one_hot`, `buckets` or `vector`", &Value::String(kind)),
    };
    Some(Transform { columns, kind })
}

fn kinds(loader: &mut Loader, at: At<'_>, count: usize) -> Option<Kinds> {
    let names = loader.strings(at, "kind_names")?;
    let file = loader.file(at, "kind_file")?;
    loader.shape(&file, &[Some(count)], &format!("[{count}] (one entry per vertex)"))?;
    if loader.outline {
        return loader.integer_type(&file).and(None);
    }
    let all = loader.integers(&file)?;
    let of = loader.ids(&file, &all, "kind", |i| format!("vertex {i}"), names.len(), "`kind_names`")?;
    Some(Kinds { names, of })
}

fn features(loader: &mut Loader, at: At<'_>, count: usize) -> Option<Features> {
    let kind = loader.string(at, "kind")?;
    let dim = loader.count_within(at, "dim", 0, u64::from(u32::MAX), "below 2^32 (column ids have 32 bits)");
    match &kind[..] {
        "dense" => dense(loader, at, count, dim?, "vertex").map(Features::Dense),
        "csr" => sparse(loader, at, count, dim?).map(Features::Sparse),
        _ => loader.bad(at, "kind", "`dense` or `csr`", &Value::String(kind)),
    }
}

fn dense(loader: &mut Loader, at: At<'_>, count: usize, dim: usize, per: &str) -> Option<DenseFeatures> {
    let file = loader.file(at, "file")?;
    loader.shape(&file, &[Some(count), Some(dim)], &format!("[{count}, {dim}] (one row per {per})"))?;
    if loader.outline {
        loader.float_type(&file)?;
        return Some(DenseFeatures { dim, rows: FloatArray::default() });
    }
    let rows = loader.floats(&file)?;
    loader.finite(&file, &rows, |i| (i / dim, i % dim))?;
    rows.release_pages();
    Some(DenseFeatures { dim, rows })
}

fn sparse(loader: &mut Loader, at: At<'_>, count: usize, dim: usize) -> Option<SparseFeatures> {
    // Open all three before giving up on one, so that each fault is reported.
    let (indptr, indices, data) = (loader.file(at, "indptr"), loader.file(at, "indices"), loader.file(at, "data"));
    let (indptr_file, indices_file, data_file) = (indptr?, indices?, data?);
    loader.shape(&indptr_file, &[Some(count + 1)], &format!("[{}] (vertices + 1)", count + 1))?;
    loader.shape(&indices_file, &[None], "[nnz] (one axis)")?;
    let nnz = indices_file.npy.shape()[0];
    loader.check_count(at, "nnz", &indices_file.file, nnz as u64);
    loader.shape(&data_file, &[Some(nnz)], &format!("[{nnz}] (as many as `{}`)", indices_file.file))?;

    if loader.outline {
        let types =
            [loader.integer_type(&indptr_file), loader.integer_type(&indices_file), loader.float_type(&data_file)];
        let empty = SparseFeatures { dim, indptr: vec![], indices: vec![], data: FloatArray::default() };
        return types.iter().all(Option::is_some).then_some(empty);
    }
    let ends = loader.integers(&indptr_file)?;
    let indptr = loader.keep(checks::indptr(indptr_file.place(), &ends, nnz))?;
    let row_of = |i: usize| checks::row_of(&indptr, i);

    let columns = loader.integers(&indices_file)?;
    let place = |i: usize| format!("row {} (position {i})", row_of(i));
    let indices = loader.ids(&indices_file, &columns, "column", place, dim, "`dim`")?;
    loader.keep(checks::column_order(indices_file.place(), &indptr, &indices))?;
    let data = loader.floats(&data_file)?;
    loader.finite(&data_file, &data, |i| (row_of(i), indices[i] as usize))?;
    Some(SparseFeatures { dim, indptr, indices, data })
}

fn relation(
    loader: &mut Loader,
    table: &Table,
    position: usize,
    types: &[TypeSketch],
) -> (RelationSketch, Option<RelationData>) {
    let called = called("relation", table, position);
    let at = At::new(table, RELATION, &called);
    let name = loader.string(at, "name");
    let (src, dst) = (type_named(loader, at, "src", types), type_named(loader, at, "dst", types));
    let ends = src.zip(dst);
    let mut sketch = RelationSketch { name: name.clone().unwrap_or_default(), ends, edges: None };
    let data = edges(loader, at, name.unwrap_or_default(), (ends, &mut sketch.edges), types);
    (sketch, data)
}

fn edges(
    loader: &mut Loader,
    at: At<'_>,
    name: String,
    (ends, count): (Option<(usize, usize)>, &mut Option<usize>),
    types: &[TypeSketch],
) -> Option<RelationData> {
    let file = loader.file(at, "file")?;
    loader.shape(&file, &[Some(2), None], "[2, edges] (row 0 sources, row 1 destinations)")?;
    let all = file.npy.shape()[1];
    let (begin, end) = columns(loader, at, all)?;
    let num = end - begin;
    *count = Some(num);
    loader.check_count(at, "edges", &file.file, num as u64);
    match file.npy.dtype() {
        Dtype::Bool => return loader.wrong_dtype(&file, NO_MASK),
        dtype if !dtype.is_integer() => return loader.wrong_dtype(&file, "int32 (or int64)"),
        _ => {}
    }

    let weight = match loader.optional_file(at, "weight") {
        Ok(None) => Some(None),
        Ok(Some(file)) => weight(loader, &file, num).map(Some),
        Err(()) => None,
    };
    let time = times(loader, at, "time", num, "edge");
    let features = match at.get("features") {
        None => Some(None),
        Some(Value::Table(inner)) => {
            let called = format!("features of {}", at.name);
            let at = At::new(inner, EDGE_FEATURES, &called);
            // The file determines the width; `dim` only confirms it.
            let dim = match loader.optional_count(at, "dim") {
                Some(dim) => Some(dim as usize),
                None => loader.file(at, "file").map(|f| f.npy.shape().get(1).copied().unwrap_or(1)),
            };
            dim.and_then(|dim| dense(loader, at, num, dim, "edge")).map(Some)
        }
        Some(other) => loader.bad(at, "features", "a table", other),
    };

    // The width of features that are at fault is not known.
    let width = features.as_ref().map(|features| features.as_ref().map_or(0, |x| x.dim));
    let transforms = width.map_or_else(Vec::new, |width| transforms(loader, at, at.name, width));
    let (src, dst) = ends?;
    // Check both endpoints before giving up, so that each fault is reported.
    let mut ids = |ty: usize, what: &str, range: std::ops::Range<usize>| {
        if loader.outline {
            return Some(vec![]);
        }
        let bound = types[ty].count?;
        file.npy.range_to_ids(range.start, range.end, bound).or_else(|| {
            let values = file.npy.range_to_i64(range.start, range.end)?;
            let bound_of = format!("vertex type `{}`", types[ty].name);
            loader.ids(&file, &values, what, |i| format!("edge {i}"), bound, &bound_of)
        })
    };
    let src_ids = ids(src, "source", begin..end);
    let dst_ids = ids(dst, "destination", all + begin..all + end);
    Some(RelationData {
        name,
        src,
        dst,
        src_ids: src_ids?,
        dst_ids: dst_ids?,
        weight: weight?,
        features: features?,
        time,
        transforms,
        ..RelationData::default()
    })
}

/// The columns of a shared edge file that belong to this relation.
fn columns(loader: &mut Loader, at: At<'_>, all: usize) -> Option<(usize, usize)> {
    let Some(value) = at.get("columns") else { return Some((0, all)) };
    let numbers: Option<Vec<usize>> =
        value.as_array().and_then(|a| a.iter().map(|v| v.as_integer().and_then(|n| usize::try_from(n).ok())).collect());
    match numbers.as_deref() {
        Some(&[begin, end]) if begin <= end && end <= all => Some((begin, end)),
        _ => loader.bad(
            at,
            "columns",
            &format!("[begin, end] with 0 <= begin <= end <= {all} (edges in the file)"),
            value,
        ),
    }
}

fn weight(loader: &mut Loader, file: &fields::NamedFile<'_>, num: usize) -> Option<FloatArray> {
    loader.shape(file, &[Some(num)], &format!("[{num}] (one weight per edge)"))?;
    if loader.outline {
        return loader.float_type(file).map(|()| FloatArray::default());
    }
    let values = loader.floats(file)?;
    loader.finite(file, &values, |i| (i, 0))?;
    Some(values)
}

fn metapath(
    loader: &mut Loader,
    table: &Table,
    position: usize,
    types: &[TypeSketch],
    relations: &[RelationSketch],
) -> Option<MetapathData> {
    let called = called("metapath", table, position);
    let at = At::new(table, METAPATH, &called);
    let name = loader.string(at, "name");
    let pairs = loader.optional_count(at, "pairs");
    let self_pairs = loader.optional_count(at, "self_pairs");
    let instances = loader.optional_count(at, "instances");
    let max_degree = loader.optional_count(at, "max_degree");

    let written = loader.strings(at, "steps")?;
    if written.is_empty() {
        return loader.fail(DataError::MissingField {
            at: called.clone(),
            field: "steps".into(),
            expected: "at least one step, such as \">writes\"".into(),
        });
    }
    let mut steps = Vec::with_capacity(written.len());
    let mut ends: Option<(usize, usize)> = None;
    for (i, text) in written.iter().enumerate() {
        let (reverse, relation) = match (text.strip_prefix('>'), text.strip_prefix('<')) {
            (Some(r), _) => (false, r),
            (_, Some(r)) => (true, r),
            _ => {
                let found = Value::String(text.clone());
                return loader.bad(at, "steps", "`>relation` (forward) or `<relation` (reverse)", &found);
            }
        };
        let Some(relation) = relations.iter().position(|r| r.name == relation) else {
            return loader.fail(DataError::UnknownName {
                at: called.clone(),
                field: "steps".into(),
                name: relation.into(),
                what: "relation".into(),
                known: list(relations.iter().map(|r| &r.name[..])),
            });
        };
        let (src, dst) = relations[relation].ends?;
        let (from, to) = if reverse { (dst, src) } else { (src, dst) };
        if let Some((_, before)) = ends
            && before != from
        {
            return loader.fail(DataError::StepsDoNotJoin {
                at: called.clone(),
                position: i + 1,
                step: text.clone(),
                starts: types[from].name.clone(),
                ends: types[before].name.clone(),
            });
        }
        ends = Some((ends.map_or(from, |(start, _)| start), to));
        steps.push(Step { relation, reverse });
    }
    let (start, end) = ends?;
    for (field, ty) in [("rows", start), ("cols", end)] {
        let Some(count) = types[ty].count else { continue };
        if let Some(declared) = loader.optional_count(at, field)
            && declared != count as u64
        {
            loader.errors.push(DataError::BadField {
                at: called.clone(),
                field: field.into(),
                expected: format!("{count} (the vertices of `{}`)", types[ty].name),
                found: declared.to_string(),
            });
        }
    }
    Some(MetapathData { name: name?, steps, start, end, pairs, self_pairs, instances, max_degree })
}
