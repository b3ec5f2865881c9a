//! Tasks: labels and splits of vertices, and links that are held out.

use std::collections::HashSet;
use std::path::PathBuf;

use hgnnc_dataset::npy::Npy;
use hgnnc_dataset::{LabelData, LabelValues, LinkSplitData, Links, SplitData};
use serde::Deserialize;

use super::arrays::{is_float, numbers};
use super::{FileFormat, Import};
use crate::error::shown;

#[derive(Deserialize)]
pub(super) struct Task {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    num_classes: Option<usize>,
    #[serde(default)]
    train_set: Option<Vec<Set>>,
    #[serde(default)]
    validation_set: Option<Vec<Set>>,
    #[serde(default)]
    test_set: Option<Vec<Set>>,
}

#[derive(Deserialize)]
struct Set {
    #[serde(default, rename = "type")]
    ty: Option<String>,
    data: Vec<Data>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    name: Option<String>,
    format: FileFormat,
    path: String,
}

impl Set {
    fn named(&self, names: &[&str]) -> Option<&Data> {
        self.data.iter().find(|data| data.name.as_deref().is_some_and(|name| names.contains(&name)))
    }

    fn seeds(&self) -> Option<&Data> {
        // The latter two are older names.
        self.named(&["seeds", "seed_nodes", "node_pairs"])
    }
}

/// A value for each vertex, unless there is no memory for them: `num` of metadata.yaml costs a user nothing.
fn filled<T: Clone>(value: T, count: usize) -> Option<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    all.resize(count, value);
    Some(all)
}

/// Names of the parts of a task, as messages have them.
const PARTS: [&str; 3] = ["train_set", "validation_set", "test_set"];

/// The seeds of a part.
struct Seeds {
    part: usize,
    array: Npy,
    path: PathBuf,
}

/// Labels of some vertices of a type.
struct Labelled {
    vertices: Vec<u32>,
    path: PathBuf,
    array: Npy,
}

impl Import<'_> {
    pub(super) fn task(&mut self, task: &Task) {
        let name = task.name.clone().unwrap_or_else(|| "standard".into());
        let what = format!("task `{}`", shown(&name));
        let mut of_types: Vec<usize> = Vec::new();
        let mut links: [Links; 3] = Default::default();
        let mut vertices: Vec<(usize, [Vec<u32>; 3], Vec<Labelled>)> = Vec::new();
        let sets = [&task.train_set, &task.validation_set, &task.test_set];
        for (part, set) in
            sets.into_iter().enumerate().flat_map(|(part, sets)| sets.iter().flatten().map(move |s| (part, s)))
        {
            let Some(seeds) = set.seeds() else {
                self.wrong(format!("{what}: {} has no `seeds`", PARTS[part]));
                continue;
            };
            let Some(array) = self.array(&seeds.path, seeds.format) else { continue };
            let seeds = Seeds { part, path: self.path(&seeds.path), array };
            let is_links = set.ty.as_deref().is_some_and(|ty| ty.contains(':')) || seeds.array.shape().len() == 2;
            if is_links {
                self.links(set, &seeds, &what, &mut links);
                continue;
            }
            let Some(ty) = self.type_named(set.ty.as_deref(), &what) else { continue };
            let Some((ids, labelled)) = self.labelled(set, &seeds, ty) else { continue };
            let place = of_types.iter().position(|known| *known == ty).unwrap_or_else(|| {
                of_types.push(ty);
                vertices.push((ty, Default::default(), Vec::new()));
                of_types.len() - 1
            });
            vertices[place].1[part].extend(ids);
            vertices[place].2.extend(labelled);
        }
        for (ty, parts, labels) in vertices {
            self.vertex_task(task, &name, ty, parts, labels);
        }
        let [_, val, test] = links;
        if !val.is_empty() || !test.is_empty() {
            if self.dataset.link_splits.iter().any(|split| split.name == name) {
                self.wrong(format!("there are several tasks `{}` of links: give them names that differ", shown(&name)));
                return;
            }
            self.dataset.link_splits.push(LinkSplitData { name, val, test });
        }
    }

    /// The vertices of a set, and their labels.
    fn labelled(&mut self, set: &Set, seeds: &Seeds, ty: usize) -> Option<(Vec<u32>, Option<Labelled>)> {
        let count = self.dataset.vertex_types[ty].count;
        let &[number] = seeds.array.shape() else {
            return self.misshapen(&seeds.path, seeds.array.shape(), "seeds are [number], or [number, 2] of links");
        };
        let vertices = self.ids(&seeds.path, &seeds.array, 0, number, count)?;
        let Some(labels) = set.named(&["labels"]) else { return Some((vertices, None)) };
        let array = self.array(&labels.path, labels.format)?;
        let path = self.path(&labels.path);
        if array.shape().first() != Some(&number) || array.shape().len() > 2 {
            return self.misshapen(&path, array.shape(), &format!("there are {number} seeds: a label for each"));
        }
        Some((vertices.clone(), Some(Labelled { vertices, path, array })))
    }

    fn vertex_task(&mut self, task: &Task, name: &str, ty: usize, parts: [Vec<u32>; 3], labels: Vec<Labelled>) {
        let type_name = shown(&self.dataset.vertex_types[ty].name);
        if labels.is_empty() {
            self.wrong(format!("task `{}` has no `labels` of vertices of type `{type_name}` to learn", shown(name)));
            return;
        }
        let count = self.dataset.vertex_types[ty].count;
        let Some(values) = self.values(task, count, &labels) else { return };
        let label = if self.dataset.label(ty, "y").is_some() { name } else { "y" };
        let label = LabelData { name: label.into(), vertex_type: ty, values, class_names: Vec::new() };
        let Some(mut part_of) = filled(None::<usize>, count) else {
            self.wrong(format!("there is no memory for the parts of {count} vertices"));
            return;
        };
        for (part, vertices) in parts.iter().enumerate() {
            for &vertex in vertices {
                if !label.is_labelled(vertex as usize) {
                    self.wrong(format!(
                        "`{}` of task `{}` names vertex {vertex} of type `{type_name}`, which has no label",
                        PARTS[part],
                        shown(name)
                    ));
                    return;
                }
                if let Some(other) = part_of[vertex as usize].replace(part) {
                    self.wrong(format!(
                        "`{}` of task `{}` names vertex {vertex} of type `{type_name}`, which `{}` has already: a vertex is in one part, once",
                        PARTS[part],
                        shown(name),
                        PARTS[other]
                    ));
                    return;
                }
            }
        }
        if self.dataset.label(ty, &label.name).is_some()
            || self.dataset.splits.iter().any(|s| s.name == name && s.vertex_type == ty)
        {
            self.wrong(format!(
                "there are several tasks `{}` of vertices of type `{type_name}`: give them names that differ",
                shown(name)
            ));
            return;
        }
        self.dataset.labels.push(label);
        let [train, val, test] = parts.map(|mut part| {
            part.sort_unstable();
            part
        });
        self.dataset.splits.push(SplitData { name: name.into(), vertex_type: ty, train, val, test });
    }

    /// Labels of all vertices of a type: classes where they are integers, or there is a number of classes and each is
    /// one; any of several classes where rows are of 0 and 1; otherwise numbers.
    fn values(&mut self, task: &Task, count: usize, labels: &[Labelled]) -> Option<LabelValues> {
        let width = labels[0].array.shape().get(1).copied();
        if let Some(other) = labels.iter().find(|l| l.array.shape().get(1).copied() != width) {
            return self.misshapen(&other.path, other.array.shape(), "labels of a task are of one width");
        }
        let dim = width.unwrap_or(1);
        let all: Vec<_> = labels.iter().map(|l| numbers(&l.array)).collect();
        let known = || all.iter().flat_map(|rows| rows.iter().copied()).filter(|x| !x.is_nan());
        let whole = known().all(|x| x.fract() == 0.0);
        let floats = labels.iter().any(|l| is_float(&l.array));
        let (Some(mut labelled), Some(mut rows)) = (filled(false, count), filled(0f32, count.saturating_mul(dim)))
        else {
            self.wrong(format!("there is no memory for {dim} labels of each of {count} vertices"));
            return None;
        };
        for (of, numbers) in labels.iter().zip(&all) {
            for (i, &vertex) in of.vertices.iter().enumerate() {
                let row = &numbers[i * dim..(i + 1) * dim];
                if row.iter().any(|x| x.is_nan()) {
                    continue;
                }
                if let Some(x) = row.iter().find(|x| x.is_infinite()) {
                    self.faults.add(
                        &of.path,
                        None,
                        format!("row {i} holds `{x}`: labels are finite numbers, or NaN where there is none"),
                    );
                    return None;
                }
                labelled[vertex as usize] = true;
                rows[vertex as usize * dim..(vertex as usize + 1) * dim].copy_from_slice(row);
            }
        }
        if dim == 1 && whole && (!floats || task.num_classes.is_some()) {
            return self.classes(task, labels, &all, &rows, &labelled);
        }
        let bits = known().all(|x| x == 0.0 || x == 1.0);
        if width.is_some_and(|width| width > 1) && bits {
            return Some(LabelValues::Multi { classes: dim, rows, labelled });
        }
        Some(LabelValues::Real { dim, rows, labelled })
    }

    fn classes(
        &mut self,
        task: &Task,
        labels: &[Labelled],
        all: &[hgnnc_dataset::FloatArray],
        rows: &[f32],
        labelled: &[bool],
    ) -> Option<LabelValues> {
        const MOST: usize = 1 << 24;
        let largest = rows.iter().copied().fold(0.0, f32::max) as usize;
        let classes = task.num_classes.unwrap_or(largest.saturating_add(1));
        if classes > MOST || classes == 0 {
            self.wrong(format!("there are {classes} classes, and from 1 to 2^24 may be"));
            return None;
        }
        for (of, numbers) in labels.iter().zip(all) {
            if let Some(i) = numbers.iter().position(|&x| x >= classes as f32) {
                let x = numbers[i];
                self.faults.add(
                    &of.path,
                    None,
                    format!(
                        "row {i} is the class {x}: there are {classes}, from 0 on (`num_classes` in metadata.yaml)"
                    ),
                );
                return None;
            }
        }
        // A negative number is no class.
        let of = rows.iter().zip(labelled).map(|(&x, &known)| if known && x >= 0.0 { x as i32 } else { -1 }).collect();
        Some(LabelValues::Single { classes, of })
    }

    /// Adds the links of a set; those whose label is 0 are negative samples, which training and evaluation draw
    /// themselves.
    fn links(&mut self, set: &Set, seeds: &Seeds, what: &str, links: &mut [Links; 3]) {
        let Some(relation) = self.relation_named(set.ty.as_deref(), what) else { return };
        let &[number, 2] = seeds.array.shape() else {
            self.misshapen::<()>(
                &seeds.path,
                seeds.array.shape(),
                "links are [number, 2]: a source and a destination in each row",
            );
            return;
        };
        let of = &self.dataset.relations[relation];
        let bounds = [of.src, of.dst].map(|ty| self.dataset.vertex_types[ty].count);
        // Both columns in one array: each is checked by its own bound below.
        let Some(ids) = self.ids(&seeds.path, &seeds.array, 0, 2 * number, bounds[0].max(bounds[1])) else { return };
        let wrong = ids.chunks_exact(2).position(|link| link[0] as usize >= bounds[0] || link[1] as usize >= bounds[1]);
        if let Some(row) = wrong {
            let link = &ids[2 * row..2 * row + 2];
            self.faults.add(
                &seeds.path,
                None,
                format!(
                    "row {row} is {link:?}: sources go from 0 to below {}, destinations to below {}",
                    bounds[0], bounds[1]
                ),
            );
            return;
        }
        let mut positive = vec![true; number];
        if let Some(labels) = set.named(&["labels"]) {
            let Some(array) = self.array(&labels.path, labels.format) else { return };
            if array.shape() != [number] {
                let path = self.path(&labels.path);
                self.misshapen::<()>(&path, array.shape(), &format!("there are {number} links: a label for each"));
                return;
            }
            positive = numbers(&array).iter().map(|&x| x > 0.0).collect();
        }
        let mut known: [HashSet<(u32, u32, u32)>; 3] = Default::default();
        for (part, links) in links.iter().enumerate() {
            let rows = links.src.iter().zip(&links.relation).zip(&links.dst);
            known[part] = rows.map(|((&s, &r), &d)| (s, r, d)).collect();
        }
        for (link, _) in ids.chunks_exact(2).zip(&positive).filter(|(_, positive)| **positive) {
            let key = (link[0], relation as u32, link[1]);
            // Links to train on are the edges.
            let other = (1..3).find(|&part| part != seeds.part && known[part].contains(&key));
            if let Some(other) = other.filter(|_| seeds.part > 0) {
                let message = format!("the link {link:?} is in {} as well: it is in one part", PARTS[other]);
                self.faults.add(&seeds.path, None, message);
                return;
            }
            if known[seeds.part].insert(key) {
                links[seeds.part].src.push(link[0]);
                links[seeds.part].relation.push(relation as u32);
                links[seeds.part].dst.push(link[1]);
            }
        }
    }
}
