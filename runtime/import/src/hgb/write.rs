//! Writes the files of the benchmark.

use std::collections::HashMap;
use std::path::Path;

use hgnnc_dataset::{Dataset, LabelData, LabelValues, Links, SplitData};
use serde_json::{Map, Value, json};

use super::{INFO, LABELS, LINKS, NODES, TEST_LABELS, TEST_LINKS, VAL_IDS, VAL_LINKS};
use crate::error::shown;
use crate::export::{
    ExportError, Holds, Joined, Notes, Number, Targets, TextFile, class_names, dense_rows, note_unlabelled, outside,
    unwritable_ids,
};

/// Writes the files to an empty folder.
pub(crate) fn write(dataset: &Dataset, folder: &Path, notes: &mut Notes) -> Result<(), ExportError> {
    notes.unheld(
        "HGB",
        &Holds { vertex_times: false, edge_attributes: false, edge_labels: false, link_splits: 1 },
        dataset,
    );
    let targets = targets(dataset, notes);
    // PyG looks for the classes of type 0.
    let mut order: Vec<usize> = (0..dataset.vertex_types.len()).collect();
    order.sort_by_key(|&ty| targets.first().is_none_or(|(label, _)| label.vertex_type != ty));
    let mut first = vec![0u64; order.len()];
    let mut number = vec![0usize; order.len()];
    let mut next = 0;
    for (position, &ty) in order.iter().enumerate() {
        (first[ty], number[ty]) = (next, position);
        next += dataset.vertex_types[ty].count as u64;
    }
    let writer = Writer { dataset, folder, first, number };
    let named = writer.nodes(&order, notes)?;
    writer.links(LINKS, dataset.relations.iter().enumerate().map(|(i, r)| (i, &r.src_ids[..], &r.dst_ids[..])))?;
    if let Some(split) = dataset.link_splits.first() {
        writer.held_out(TEST_LINKS, &split.test)?;
        writer.held_out(VAL_LINKS, &split.val)?;
    }
    writer.labels(&targets, &named, notes)?;
    writer.info(&order, &targets, notes)
}

/// The labels of classes that are written, with their splits.
fn targets<'a>(dataset: &'a Dataset, notes: &mut Notes) -> Vec<(&'a LabelData, Option<&'a SplitData>)> {
    let mut all = Vec::new();
    for ty in 0..dataset.vertex_types.len() {
        let Targets { label, splits } = Targets::of(dataset, ty, "HGB", 1, notes);
        match label {
            Some(label) if matches!(label.values, LabelValues::Real { .. }) => {
                let (name, ty) = (shown(&label.name), shown(&dataset.vertex_types[ty].name));
                notes.add(format!("HGB has labels of classes only: `{name}` of `{ty}`, of real numbers, is left out"));
            }
            Some(label) => all.push((label, splits.first().copied())),
            None => {}
        }
    }
    // The label that is written first in the dataset is the benchmark's.
    all.sort_by_key(|(label, _)| dataset.labels.iter().position(|other| std::ptr::eq(other, *label)));
    all
}

struct Writer<'a> {
    dataset: &'a Dataset,
    folder: &'a Path,
    /// The first id of each vertex type, and its number.
    first: Vec<u64>,
    number: Vec<usize>,
}

impl Writer<'_> {
    fn id(&self, ty: usize, vertex: u32) -> u64 {
        self.first[ty] + u64::from(vertex)
    }

    /// Returns whether the names of each type are written.
    fn nodes(&self, order: &[usize], notes: &mut Notes) -> Result<Vec<bool>, ExportError> {
        let mut out = TextFile::create(&self.folder.join(NODES))?;
        let mut named = vec![false; order.len()];
        for &ty in order {
            let of = &self.dataset.vertex_types[ty];
            let wrong = unwritable_ids(of, |id| id.contains(['\t', '\n', '\r']));
            named[ty] = of.ids.is_some() && wrong.is_none();
            wrong.into_iter().for_each(|why| notes.add(why));
            let ids = of.ids.as_ref().filter(|_| named[ty]);
            let number = self.number[ty];
            let mut line = |vertex: usize, values: Option<&[f32]>| {
                let id = self.id(ty, vertex as u32);
                let name = ids.map(|ids| ids.text(vertex)).unwrap_or_default();
                match values {
                    Some(values) => out.line(format_args!("{id}\t{name}\t{number}\t{}", Joined(values, ','))),
                    None => out.line(format_args!("{id}\t{name}\t{number}")),
                }
            };
            match &of.features {
                Some(x) if x.dim() > 0 => dense_rows(x, of.count, |vertex, values| line(vertex, Some(values)))?,
                _ => (0..of.count).try_for_each(|vertex| line(vertex, None))?,
            }
        }
        out.finish()?;
        Ok(named)
    }

    fn links<'d>(
        &self,
        name: &str,
        lists: impl Iterator<Item = (usize, &'d [u32], &'d [u32])>,
    ) -> Result<(), ExportError> {
        let mut out = TextFile::create(&self.folder.join(name))?;
        for (relation, src, dst) in lists {
            let of = &self.dataset.relations[relation];
            for (edge, (&s, &d)) in src.iter().zip(dst).enumerate() {
                let weight = of.weight.as_ref().map_or(1.0, |weight| weight[edge]);
                let (head, tail) = (self.id(of.src, s), self.id(of.dst, d));
                // As floating-point numbers, which the benchmark's files have.
                let weight = Number(weight).to_string();
                let point = if weight.contains(['.', 'e']) { "" } else { ".0" };
                out.line(format_args!("{head}\t{tail}\t{relation}\t{weight}{point}"))?;
            }
        }
        Ok(out.finish()?)
    }

    fn held_out(&self, name: &str, links: &Links) -> Result<(), ExportError> {
        if links.is_empty() {
            return Ok(());
        }
        let mut out = TextFile::create(&self.folder.join(name))?;
        for ((&s, &relation), &d) in links.src.iter().zip(&links.relation).zip(&links.dst) {
            let of = &self.dataset.relations[relation as usize];
            out.line(format_args!("{}\t{}\t{relation}\t1.0", self.id(of.src, s), self.id(of.dst, d)))?;
        }
        Ok(out.finish()?)
    }

    fn labels(
        &self,
        targets: &[(&LabelData, Option<&SplitData>)],
        named: &[bool],
        notes: &mut Notes,
    ) -> Result<(), ExportError> {
        if targets.is_empty() {
            return Ok(());
        }
        let mut known = TextFile::create(&self.folder.join(LABELS))?;
        let mut test = TextFile::create(&self.folder.join(TEST_LABELS))?;
        let has_split = targets.iter().any(|(_, split)| split.is_some());
        let mut val = has_split.then(|| TextFile::create(&self.folder.join(VAL_IDS))).transpose()?;
        for &(label, split) in targets {
            let ty = label.vertex_type;
            let of = &self.dataset.vertex_types[ty];
            let name = shown(&of.name);
            let line = |out: &mut TextFile, vertex: u32| {
                let text = of.ids.as_ref().filter(|_| named[ty]).map(|ids| ids.text(vertex as usize));
                let (id, number, classes) = (self.id(ty, vertex), self.number[ty], classes_of(label, vertex));
                out.line(format_args!("{id}\t{}\t{number}\t{classes}", text.unwrap_or_default()))
            };
            let Some(split) = split else {
                notes.add(format!("`{name}` has no split: all its labels are in `{LABELS}`"));
                (0..of.count as u32)
                    .filter(|&v| label.is_labelled(v as usize))
                    .try_for_each(|v| line(&mut known, v))?;
                continue;
            };
            let mut learned: Vec<u32> = split.train.iter().chain(&split.val).copied().collect();
            learned.sort_unstable();
            // A split is of vertices with any label of the type.
            let has = |v: &u32| label.is_labelled(*v as usize);
            learned.iter().copied().filter(has).try_for_each(|vertex| line(&mut known, vertex))?;
            split.test.iter().copied().filter(has).try_for_each(|vertex| line(&mut test, vertex))?;
            if let Some(val) = &mut val {
                split.val.iter().copied().filter(has).try_for_each(|vertex| val.line(self.id(ty, vertex)))?;
            }
            note_unlabelled(label, split, of, notes);
            let left_out = outside(label, split, of.count);
            if left_out > 0 {
                notes.add(format!("{left_out} vertices of `{name}` have a label but are in no part of split `{}`: HGB has only labels to train on and to test, so these labels are left out", shown(&split.name)));
            }
        }
        known.finish()?;
        test.finish()?;
        val.into_iter().try_for_each(TextFile::finish)?;
        self.note_classes(targets, notes);
        Ok(())
    }

    fn note_classes(&self, targets: &[(&LabelData, Option<&SplitData>)], notes: &mut Notes) {
        for (label, _) in targets {
            let LabelValues::Multi { classes, rows, labelled } = &label.values else { continue };
            let name = shown(&self.dataset.vertex_types[label.vertex_type].name);
            let counts = rows.chunks_exact(*classes).zip(labelled).filter(|(_, labelled)| **labelled);
            let counts: Vec<usize> = counts.map(|(row, _)| row.iter().filter(|&&y| y != 0.0).count()).collect();
            if counts.iter().all(|&count| count == 1) {
                notes.add(format!(
                    "every vertex of `{name}` has one class: the files do not tell that it could have several"
                ));
            }
            if counts.contains(&0) {
                notes.add(format!("some vertices of `{name}` have a label of no class, an empty field, which loaders other than hgnnc's refuse"));
            }
        }
    }

    fn info(
        &self,
        order: &[usize],
        targets: &[(&LabelData, Option<&SplitData>)],
        notes: &mut Notes,
    ) -> Result<(), ExportError> {
        let dataset = self.dataset;
        let numbered = |values: Vec<Value>| -> Value {
            values
                .into_iter()
                .enumerate()
                .map(|(number, value)| (number.to_string(), value))
                .collect::<Map<_, _>>()
                .into()
        };
        let types = order.iter().map(|&ty| dataset.vertex_types[ty].name.clone().into()).collect();
        let mut seen: HashMap<(usize, String, usize), &str> = HashMap::new();
        let mut links = Vec::new();
        for of in &dataset.relations {
            let (src, dst) = (&dataset.vertex_types[of.src].name, &dataset.vertex_types[of.dst].name);
            let meaning = format!("{src}-{}-{dst}", of.name);
            if let Some(other) = seen.insert((of.src, pyg_name(&meaning, dst), of.dst), &of.name) {
                notes.add(format!(
                    "PyG takes relations `{}` and `{}` for one: of a name with `-` it takes a part",
                    shown(other),
                    shown(&of.name)
                ));
            }
            links.push(json!({"start": self.number[of.src], "end": self.number[of.dst], "meaning": meaning}));
        }
        let classes = targets.iter().map(|(label, _)| {
            let names = class_names(&label.values, &label.class_names).into_iter().map(Value::from).collect();
            (self.number[label.vertex_type].to_string(), numbered(names))
        });
        let info = json!({
            "dataset": dataset.name,
            "node.dat": {"node type": numbered(types)},
            "link.dat": {"link type": numbered(links)},
            "label.dat": {"node type": Value::Object(classes.collect())},
        });
        let mut out = TextFile::create(&self.folder.join(INFO))?;
        out.line(format_args!("{info:#}"))?;
        Ok(out.finish()?)
    }
}

/// The classes of a vertex, with commas between them.
fn classes_of(label: &LabelData, vertex: u32) -> String {
    match &label.values {
        LabelValues::Single { of, .. } => of[vertex as usize].to_string(),
        LabelValues::Multi { classes, rows, .. } => {
            let row = &rows[vertex as usize * classes..(vertex as usize + 1) * classes];
            let set = row.iter().enumerate().filter(|(_, y)| **y != 0.0).map(|(class, _)| class.to_string());
            set.collect::<Vec<_>>().join(",")
        }
        LabelValues::Real { .. } => String::new(),
    }
}

/// The name that PyG gives to a relation.
fn pyg_name(meaning: &str, dst: &str) -> String {
    let part = meaning.split('-').nth(1).unwrap_or_default();
    let is_dst = part == dst || part.chars().skip(1).eq(dst.chars());
    if is_dst { "to".into() } else { part.into() }
}
