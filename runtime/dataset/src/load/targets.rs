//! Loads labels, splits and held-out links.

use toml::Value;

use super::fields::{At, Loader, NamedFile};
use super::format::{LABEL, LINK_SPLIT, SPLIT};
use super::{RelationSketch, TypeSketch, called, times, type_named, unique};
use crate::checks;
use crate::dataset::{Dataset, EdgeLabel, EdgeSplit, LabelData, LabelValues, LinkSplitData, Links, SplitData};
use crate::error::DataError;
use crate::npy::Dtype;

/// The rows of a label or a split, by position: the vertices of a type, or the edges of a relation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowsOf {
    Vertices(usize),
    Edges(usize),
}

/// The vertex types and relations that labels and splits may name.
pub(super) type Sketches<'a> = (&'a [TypeSketch], &'a [RelationSketch]);

impl RowsOf {
    /// Resolves the vertex type or the relation that a table names.
    fn named(loader: &mut Loader, at: At<'_>, (types, relations): Sketches<'_>) -> Option<RowsOf> {
        if let (Some(_), Some(relation)) = (at.get("vertex_type"), at.get("relation")) {
            return loader.bad(at, "relation", "left out: the table has a `vertex_type`", relation);
        }
        if at.get("relation").is_none() {
            return type_named(loader, at, "vertex_type", types).map(RowsOf::Vertices);
        }
        let name = loader.string(at, "relation")?;
        let found = relations.iter().position(|relation| relation.name == name);
        if found.is_none() {
            loader.fail::<()>(DataError::UnknownName {
                at: at.name.into(),
                field: "relation".into(),
                name,
                what: "relation".into(),
                known: super::list(relations.iter().map(|relation| &relation.name[..])),
            });
        }
        found.map(RowsOf::Edges)
    }

    fn name<'s>(self, (types, relations): Sketches<'s>) -> &'s str {
        match self {
            RowsOf::Vertices(ty) => &types[ty].name,
            RowsOf::Edges(relation) => &relations[relation].name,
        }
    }

    /// Number of rows; `None` if it is not known for a fault.
    fn count(self, (types, relations): Sketches<'_>) -> Option<usize> {
        match self {
            RowsOf::Vertices(ty) => types[ty].count,
            RowsOf::Edges(relation) => relations[relation].edges,
        }
    }

    /// The word for a row.
    fn row(self) -> &'static str {
        match self {
            RowsOf::Vertices(_) => "vertex",
            RowsOf::Edges(_) => "edge",
        }
    }

    /// The word for the whole.
    fn kind(self) -> &'static str {
        match self {
            RowsOf::Vertices(_) => "vertex type",
            RowsOf::Edges(_) => "relation",
        }
    }
}

/// A `[[label]]`: what it is of, and its values, unless it has a fault.
pub(super) struct Label {
    of: Option<RowsOf>,
    data: Option<EdgeLabel>,
}

/// Gives the labels and splits to the vertex types and relations that they are of.
pub(super) fn add_to(dataset: &mut Dataset, labels: Vec<Label>, splits: Vec<(RowsOf, EdgeSplit)>) {
    for label in labels {
        match label {
            Label { of: Some(RowsOf::Vertices(vertex_type)), data: Some(EdgeLabel { name, values, class_names }) } => {
                dataset.labels.push(LabelData { name, vertex_type, values, class_names });
            }
            // A relation with a fault is missing; then the dataset is refused.
            Label { of: Some(RowsOf::Edges(relation)), data: Some(label) } => {
                dataset.relations.get_mut(relation).into_iter().for_each(|of| of.labels.push(label.clone()));
            }
            Label { .. } => {}
        }
    }
    for (of, split) in splits {
        match of {
            RowsOf::Vertices(vertex_type) => {
                let EdgeSplit { name, train, val, test } = split;
                dataset.splits.push(SplitData { name, vertex_type, train, val, test });
            }
            RowsOf::Edges(relation) => {
                dataset.relations.get_mut(relation).into_iter().for_each(|of| of.splits.push(split.clone()));
            }
        }
    }
}

/// The labels, each with what it is of (also if the label itself has a fault).
pub(super) fn labels(loader: &mut Loader, root: At<'_>, sketches: Sketches<'_>) -> Vec<Label> {
    let mut labels = Vec::new();
    let mut names = Vec::new();
    for (i, table) in loader.tables(root, "label").into_iter().enumerate() {
        let text = |field: &str| table.get(field).and_then(Value::as_str);
        let name = text("name").unwrap_or("y");
        let called = match (text("vertex_type"), text("relation")) {
            (Some(of), _) => format!("label `{name}` of vertex type `{of}`"),
            (None, Some(of)) => format!("label `{name}` of relation `{of}`"),
            (None, None) => called("label", table, i),
        };
        let at = At::new(table, LABEL, &called);
        let of = RowsOf::named(loader, at, sketches);
        let data = of.and_then(|of| label(loader, at, (of.count(sketches)?, of.row())));
        match (text("vertex_type"), text("relation")) {
            (Some(of), _) => names.push(format!("{of}.{name}")),
            (None, Some(of)) => names.push(format!("relation {of}.{name}")),
            (None, None) => {}
        }
        labels.push(Label { of, data });
    }
    unique(loader, "labels", names.iter().map(|n| &n[..]));
    labels
}

/// Number of rows of a label, and the word for one.
type Rows = (usize, &'static str);

fn label(loader: &mut Loader, at: At<'_>, rows: Rows) -> Option<EdgeLabel> {
    let name = if at.get("name").is_some() { loader.string(at, "name")? } else { "y".to_string() };
    let kind = if at.get("kind").is_some() { loader.string(at, "kind")? } else { "single".to_string() };
    let values = match &kind[..] {
        "single" => single(loader, at, rows),
        "multi" => multi(loader, at, rows),
        "real" => real(loader, at, rows),
        _ => loader.bad(at, "kind", "`single`, `multi` or `real`", &Value::String(kind)),
    }?;
    let class_names = loader.strings(at, "class_names")?;
    let classes = match &values {
        LabelValues::Single { classes, .. } | LabelValues::Multi { classes, .. } => *classes,
        LabelValues::Real { dim, .. } => *dim,
    };
    if !class_names.is_empty() && class_names.len() != classes {
        return loader.fail(DataError::BadField {
            at: at.name.into(),
            field: "class_names".into(),
            expected: format!("{classes} names"),
            found: format!("{} names", class_names.len()),
        });
    }
    // Without its elements a label does not say which rows have one.
    if loader.outline {
        return None;
    }
    if let Some(file) = at.get("file").and_then(Value::as_str) {
        loader.check_count(at, "labelled", file, values.num_labelled() as u64);
    }
    Some(EdgeLabel { name, values, class_names })
}

fn single(loader: &mut Loader, at: At<'_>, (count, row): Rows) -> Option<LabelValues> {
    let classes = num_classes(loader, at)?;
    let file = loader.file(at, "file")?;
    loader.shape(&file, &[Some(count)], &format!("[{count}] (one class per {row})"))?;
    if loader.outline {
        return loader.integer_type(&file).map(|()| LabelValues::Single { classes, of: vec![] });
    }
    let all = loader.integers(&file)?;
    let found = checks::classes(file.place(), &all, classes);
    loader.keep(found).map(|of| LabelValues::Single { classes, of })
}

/// Number of classes. Bounded, because arrays with an entry per class are allocated from this number alone.
fn num_classes(loader: &mut Loader, at: At<'_>) -> Option<usize> {
    loader.count_within(at, "classes", 1, 1 << 24, "from 1 to 2^24")
}

fn multi(loader: &mut Loader, at: At<'_>, (count, row): Rows) -> Option<LabelValues> {
    let classes = num_classes(loader, at)?;
    let file = loader.file(at, "file")?;
    let expected = format!("[{count}, {classes}] (one row per {row}, one column per class)");
    loader.shape(&file, &[Some(count), Some(classes)], &expected)?;
    if loader.outline {
        mask(loader, at, (count, row))?;
        return Some(LabelValues::Multi { classes, rows: vec![], labelled: vec![] });
    }
    let mut rows: Vec<f32> = match file.npy.dtype() {
        Dtype::F16 | Dtype::F32 | Dtype::F64 => loader.floats(&file)?.to_vec(),
        // Only 0, 1 and -1 pass the check below, so rounding of larger integers does not matter.
        _ => match file.npy.to_i64() {
            Some(all) => all.into_iter().map(|v| v as f32).collect(),
            None => return loader.wrong_dtype(&file, "float32, uint8, bool or int32"),
        },
    };
    let mut labelled = mask(loader, at, (count, row))?;
    loader.keep(checks::zero_one(file.place(), &mut rows, &mut labelled, classes))?;
    Some(LabelValues::Multi { classes, rows, labelled })
}

fn real(loader: &mut Loader, at: At<'_>, (count, row): Rows) -> Option<LabelValues> {
    let file = loader.file(at, "file")?;
    let dim = match file.npy.shape() {
        [_] => 1,
        [_, dim] => *dim,
        _ => 0,
    };
    let expected = format!("[{count}, dim] or [{count}] (one row per {row})");
    // A width of 0 would let a header of a few bytes claim any number of rows.
    let axes = [Some(count), (dim == 0).then_some(1)];
    loader.shape(&file, if file.npy.shape().len() == 1 { &axes[..1] } else { &axes[..] }, &expected)?;
    if at.get("dim").is_some() {
        let declared = loader.count(at, "dim")?;
        if declared != dim as u64 {
            let (file, at, field) = (file.file.clone(), at.name.into(), "dim".into());
            return loader.fail(DataError::WrongCount { at, field, declared, file, found: dim as u64 });
        }
    }
    if loader.outline {
        loader.float_type(&file)?;
        mask(loader, at, (count, row))?;
        return Some(LabelValues::Real { dim, rows: vec![], labelled: vec![] });
    }
    let mut rows = loader.floats(&file)?.to_vec();
    let labelled = mask(loader, at, (count, row))?;
    for (values, _) in rows.chunks_exact_mut(dim).zip(&labelled).filter(|(_, l)| !**l) {
        values.fill(0.0);
    }
    loader.finite(&file, &rows, |i| (i / dim, i % dim))?;
    Some(LabelValues::Real { dim, rows, labelled })
}

/// Whether each row has a label according to `mask_file`; all rows without one.
fn mask(loader: &mut Loader, at: At<'_>, (count, row): Rows) -> Option<Vec<bool>> {
    let Some(file) = loader.optional_file(at, "mask_file").ok()? else { return Some(vec![true; count]) };
    loader.shape(&file, &[Some(count)], &format!("[{count}] (one entry per {row})"))?;
    if loader.outline {
        return Some(vec![]);
    }
    let all = loader.integers(&file)?;
    if let Some(row) = all.iter().position(|&m| m != 0 && m != 1) {
        return loader.fail(DataError::NotZeroOne {
            file: file.file.clone(),
            at: at.name.into(),
            row,
            column: 0,
            value: all[row] as f64,
            expected: "0 or 1".into(),
        });
    }
    Some(all.iter().map(|&m| m == 1).collect())
}

pub(super) fn splits(
    loader: &mut Loader,
    root: At<'_>,
    sketches: Sketches<'_>,
    labels: &[Label],
) -> Vec<(RowsOf, EdgeSplit)> {
    let mut splits = Vec::new();
    let mut names = Vec::new();
    for (i, table) in loader.tables(root, "split").into_iter().enumerate() {
        let called = called("split", table, i);
        let at = At::new(table, SPLIT, &called);
        let (name, of) = (loader.string(at, "name"), RowsOf::named(loader, at, sketches));
        if let (Some(name), Some(of)) = (&name, of) {
            names.push(format!("{name}` ({} `{}", of.kind(), of.name(sketches)));
        }
        let Some((count, of)) = of.and_then(|of| Some((of.count(sketches)?, of))) else { continue };
        // If a label of these rows has a fault, the set of labelled ones is unknown.
        let mine: Vec<_> = labels.iter().filter(|label| label.of == Some(of)).collect();
        let known: Option<Vec<&LabelValues>> = mine.iter().map(|label| Some(&label.data.as_ref()?.values)).collect();
        if mine.is_empty() {
            loader.errors.push(DataError::UnknownName {
                at: called.clone(),
                field: of.kind().replace(' ', "_"),
                name: of.name(sketches).to_owned(),
                what: "[[label]]".into(),
                known: super::list(labels.iter().filter_map(|label| Some(label.of?.name(sketches)))),
            });
        }
        let rows = Members { count, of, name: of.name(sketches), labels: known.as_deref() };
        let parts: Vec<Option<Vec<u32>>> = [("train", "train_size"), ("val", "val_size"), ("test", "test_size")]
            .into_iter()
            .map(|(part, size)| split_part(loader, at, part, size, &rows))
            .collect();
        let Some(parts) = parts.into_iter().collect::<Option<Vec<_>>>() else { continue };
        let Ok([train, val, test]) = <[Vec<u32>; 3]>::try_from(parts) else { continue };
        let found = checks::disjoint(at.name, of.row(), [("train", &train), ("val", &val), ("test", &test)]);
        if let (Some(name), true) = (name, found.is_empty()) {
            splits.push((of, EdgeSplit { name, train, val, test }));
        }
        loader.errors.extend(found);
    }
    unique(loader, "splits", names.iter().map(|n| &n[..]));
    splits
}

/// The rows that a split divides.
struct Members<'a> {
    count: usize,
    of: RowsOf,
    name: &'a str,
    /// Their labels; `None` if one has a fault.
    labels: Option<&'a [&'a LabelValues]>,
}

/// The ids of a part of a split, ascending.
fn split_part(
    loader: &mut Loader,
    at: At<'_>,
    part: &'static str,
    size: &'static str,
    rows: &Members<'_>,
) -> Option<Vec<u32>> {
    let Some(file) = loader.optional_file(at, part).ok()? else { return Some(Vec::new()) };
    loader.shape(&file, &[None], "[n] (one axis)")?;
    let all = loader.integers(&file)?;
    loader.check_count(at, size, &file.file, all.len() as u64);
    let place = |i: usize| format!("position {i} of `{part}`");
    let (row, bound_of) = (rows.of.row(), format!("{} `{}`", rows.of.kind(), rows.name));
    let mut ids = loader.ids(&file, &all, row, place, rows.count, &bound_of)?;
    loader.keep(checks::labelled(file.place(), (part, row), &ids, rows.labels.unwrap_or_default()))?;
    ids.sort_unstable();
    Some(ids)
}

pub(super) fn link_splits(
    loader: &mut Loader,
    root: At<'_>,
    types: &[TypeSketch],
    relations: &[RelationSketch],
) -> Vec<LinkSplitData> {
    let mut splits = Vec::new();
    for (i, table) in loader.tables(root, "link_split").into_iter().enumerate() {
        let called = called("link split", table, i);
        let at = At::new(table, LINK_SPLIT, &called);
        let name = loader.string(at, "name");
        let val = links(loader, at, ["val", "val_edges", "val_time"], types, relations);
        let test = links(loader, at, ["test", "test_edges", "test_time"], types, relations);
        if let (Some(name), Some(val), Some(test)) = (name, val, test) {
            splits.push(LinkSplitData { name, val, test });
        }
    }
    unique(loader, "link splits", splits.iter().map(|s| &s.name[..]));
    splits
}

fn links(
    loader: &mut Loader,
    at: At<'_>,
    [field, size, time]: [&'static str; 3],
    types: &[TypeSketch],
    relations: &[RelationSketch],
) -> Option<Links> {
    let Some(file) = loader.optional_file(at, field).ok()? else { return Some(Links::default()) };
    loader.shape(&file, &[Some(3), None], "[3, links] (source, relation, destination)")?;
    let num = file.npy.shape()[1];
    loader.check_count(at, size, &file.file, num as u64);
    let time = times(loader, at, time, num, "link");
    if loader.outline {
        return loader.integer_type(&file).map(|()| Links::default());
    }
    let all = loader.integers(&file)?;
    let (sources, rest) = all.split_at(num);
    let (middle, destinations) = rest.split_at(num);
    let place = |i: usize| format!("link {i}");
    let relation = loader.ids(&file, middle, "relation", place, relations.len(), "the list of relations")?;
    let src = endpoints(loader, &file, sources, &relation, "source", types, |r| relations[r].ends.map(|e| e.0));
    let dst =
        endpoints(loader, &file, destinations, &relation, "destination", types, |r| relations[r].ends.map(|e| e.1));
    Some(Links { src: src?, relation, dst: dst?, time })
}

/// The source or destination ids of links; each is bounded by the vertex type of its own relation.
fn endpoints(
    loader: &mut Loader,
    file: &NamedFile<'_>,
    values: &[i64],
    relation: &[u32],
    what: &str,
    types: &[TypeSketch],
    type_of: impl Fn(usize) -> Option<usize>,
) -> Option<Vec<u32>> {
    let mut ids = Vec::with_capacity(values.len());
    for (i, (&value, &r)) in values.iter().zip(relation).enumerate() {
        let ty = type_of(r as usize)?;
        let bound = types[ty].count?;
        if value < 0 || value as u64 >= bound as u64 {
            let bound_of = format!("vertex type `{}`", types[ty].name);
            return loader.ids(file, &[value], what, |_| format!("link {i}"), bound, &bound_of).and(None);
        }
        ids.push(value as u32);
    }
    Some(ids)
}
