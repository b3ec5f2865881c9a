//! Loads labels, splits and held-out links.

use toml::Value;

use super::fields::{At, Loader, NamedFile};
use super::format::{LABEL, LINK_SPLIT, SPLIT};
use super::{RelationSketch, TypeSketch, called, type_named, unique};
use crate::checks;
use crate::dataset::{LabelData, LabelValues, LinkSplitData, Links, SplitData};
use crate::error::DataError;
use crate::npy::Dtype;

/// The labels, each with its vertex type (also if the label itself has a fault).
pub(super) fn labels(
    loader: &mut Loader,
    root: At<'_>,
    types: &[TypeSketch],
) -> Vec<(Option<usize>, Option<LabelData>)> {
    let mut labels = Vec::new();
    let mut names = Vec::new();
    for (i, table) in loader.tables(root, "label").into_iter().enumerate() {
        let of = table.get("vertex_type").and_then(Value::as_str);
        let name = table.get("name").and_then(Value::as_str).unwrap_or("y");
        let called = match of {
            Some(of) => format!("label `{name}` of vertex type `{of}`"),
            None => called("label", table, i),
        };
        let at = At::new(table, LABEL, &called);
        let ty = type_named(loader, at, "vertex_type", types);
        let label = ty.and_then(|ty| label(loader, at, ty, types[ty].count?));
        if let Some(of) = of {
            names.push(format!("{of}.{name}"));
        }
        labels.push((ty, label));
    }
    unique(loader, "labels", names.iter().map(|n| &n[..]));
    labels
}

fn label(loader: &mut Loader, at: At<'_>, vertex_type: usize, count: usize) -> Option<LabelData> {
    let name = if at.get("name").is_some() { loader.string(at, "name")? } else { "y".to_string() };
    let kind = if at.get("kind").is_some() { loader.string(at, "kind")? } else { "single".to_string() };
    let values = match &kind[..] {
        "single" => single(loader, at, count),
        "multi" => multi(loader, at, count),
        "real" => real(loader, at, count),
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
    // Without its elements a label does not say which vertices have one.
    if loader.outline {
        return None;
    }
    let label = LabelData { name, vertex_type, values, class_names };
    if let Some(file) = at.get("file").and_then(Value::as_str) {
        loader.check_count(at, "labelled", file, label.num_labelled() as u64);
    }
    Some(label)
}

fn single(loader: &mut Loader, at: At<'_>, count: usize) -> Option<LabelValues> {
    let classes = num_classes(loader, at)?;
    let file = loader.file(at, "file")?;
    loader.shape(&file, &[Some(count)], &format!("[{count}] (one class per vertex)"))?;
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

fn multi(loader: &mut Loader, at: At<'_>, count: usize) -> Option<LabelValues> {
    let classes = num_classes(loader, at)?;
    let file = loader.file(at, "file")?;
    let expected = format!("[{count}, {classes}] (one row per vertex, one column per class)");
    loader.shape(&file, &[Some(count), Some(classes)], &expected)?;
    if loader.outline {
        mask(loader, at, count)?;
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
    let mut labelled = mask(loader, at, count)?;
    loader.keep(checks::zero_one(file.place(), &mut rows, &mut labelled, classes))?;
    Some(LabelValues::Multi { classes, rows, labelled })
}

fn real(loader: &mut Loader, at: At<'_>, count: usize) -> Option<LabelValues> {
    let file = loader.file(at, "file")?;
    let dim = match file.npy.shape() {
        [_] => 1,
        [_, dim] => *dim,
        _ => 0,
    };
    let expected = format!("[{count}, dim] or [{count}] (one row per vertex)");
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
        mask(loader, at, count)?;
        return Some(LabelValues::Real { dim, rows: vec![], labelled: vec![] });
    }
    let mut rows = loader.floats(&file)?.to_vec();
    let labelled = mask(loader, at, count)?;
    for (values, _) in rows.chunks_exact_mut(dim).zip(&labelled).filter(|(_, l)| !**l) {
        values.fill(0.0);
    }
    loader.finite(&file, &rows, |i| (i / dim, i % dim))?;
    Some(LabelValues::Real { dim, rows, labelled })
}

/// Whether each row has a label according to `mask_file`; all rows without one.
fn mask(loader: &mut Loader, at: At<'_>, count: usize) -> Option<Vec<bool>> {
    let Some(file) = loader.optional_file(at, "mask_file").ok()? else { return Some(vec![true; count]) };
    loader.shape(&file, &[Some(count)], &format!("[{count}] (one entry per vertex)"))?;
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
    types: &[TypeSketch],
    labels: &[(Option<usize>, Option<LabelData>)],
) -> Vec<SplitData> {
    let mut splits = Vec::new();
    let mut names = Vec::new();
    for (i, table) in loader.tables(root, "split").into_iter().enumerate() {
        let called = called("split", table, i);
        let at = At::new(table, SPLIT, &called);
        let (name, ty) = (loader.string(at, "name"), type_named(loader, at, "vertex_type", types));
        if let (Some(name), Some(ty)) = (&name, ty) {
            names.push(format!("{name}` (vertex type `{}", types[ty].name));
        }
        let Some((count, ty)) = ty.and_then(|ty| Some((types[ty].count?, ty))) else { continue };
        // If a label of this type has a fault, the set of labelled vertices is unknown.
        let mine: Vec<_> = labels.iter().filter(|(of, _)| *of == Some(ty)).collect();
        let known: Option<Vec<&LabelData>> = mine.iter().map(|(_, l)| l.as_ref()).collect();
        if mine.is_empty() {
            loader.errors.push(DataError::UnknownName {
                at: called.clone(),
                field: "vertex_type".into(),
                name: types[ty].name.clone(),
                what: "[[label]]".into(),
                known: super::list(labels.iter().filter_map(|(of, _)| of.map(|t| &types[t].name[..]))),
            });
        }
        let parts: Vec<Option<Vec<u32>>> = [("train", "train_size"), ("val", "val_size"), ("test", "test_size")]
            .into_iter()
            .map(|(part, size)| split_part(loader, at, part, size, count, &types[ty].name, known.as_deref()))
            .collect();
        let Some(parts) = parts.into_iter().collect::<Option<Vec<_>>>() else { continue };
        let Ok([train, val, test]) = <[Vec<u32>; 3]>::try_from(parts) else { continue };
        let found = checks::disjoint(at.name, [("train", &train), ("val", &val), ("test", &test)]);
        if let (Some(name), true) = (name, found.is_empty()) {
            splits.push(SplitData { name, vertex_type: ty, train, val, test });
        }
        loader.errors.extend(found);
    }
    unique(loader, "splits", names.iter().map(|n| &n[..]));
    splits
}

/// The ids of a part of a split, ascending.
fn split_part(
    loader: &mut Loader,
    at: At<'_>,
    part: &'static str,
    size: &'static str,
    count: usize,
    type_name: &str,
    labels: Option<&[&LabelData]>,
) -> Option<Vec<u32>> {
    let Some(file) = loader.optional_file(at, part).ok()? else { return Some(Vec::new()) };
    loader.shape(&file, &[None], "[n] (one axis)")?;
    let all = loader.integers(&file)?;
    loader.check_count(at, size, &file.file, all.len() as u64);
    let place = |i: usize| format!("position {i} of `{part}`");
    let mut ids = loader.ids(&file, &all, "vertex", place, count, &format!("vertex type `{type_name}`"))?;
    loader.keep(checks::labelled(file.place(), part, &ids, labels.unwrap_or_default()))?;
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
        let val = links(loader, at, "val", "val_edges", types, relations);
        let test = links(loader, at, "test", "test_edges", types, relations);
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
    field: &'static str,
    size: &'static str,
    types: &[TypeSketch],
    relations: &[RelationSketch],
) -> Option<Links> {
    let Some(file) = loader.optional_file(at, field).ok()? else { return Some(Links::default()) };
    loader.shape(&file, &[Some(3), None], "[3, links] (source, relation, destination)")?;
    let num = file.npy.shape()[1];
    loader.check_count(at, size, &file.file, num as u64);
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
    Some(Links { src: src?, relation, dst: dst? })
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
