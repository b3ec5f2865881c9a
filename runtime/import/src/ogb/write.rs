//! Writes a graph of several types as tables, as `ogbn-mag` has them.

use std::fmt::Display;
use std::path::Path;

use hgnnc_dataset::{Dataset, LabelValues, RelationData};

use super::JOINER;
use crate::error::shown;
use crate::export::{
    ExportError, Holds, Notes, Targets, TextFile, class_names, dense_rows, named_classes, note_unlabelled, outside,
    unwritable_ids,
};

/// Writes the folders `raw`, `split` and `mapping` to an empty folder.
pub(crate) fn write(dataset: &Dataset, folder: &Path, notes: &mut Notes) -> Result<(), ExportError> {
    names(dataset)?;
    notes.unheld(
        "OGB",
        &Holds { vertex_times: true, edge_attributes: true, edge_labels: false, link_splits: 0 },
        dataset,
    );
    let writer = Writer { dataset, folder };
    // `ogb` asks to download a newer version where it is not there.
    writer.column(&folder.join("RELEASE_v1.txt"), [&dataset.name])?;
    writer.vertex_types(notes)?;
    writer.relations(notes)?;
    writer.targets(notes)
}

/// Refuses names that cannot be those of folders, or that pandas takes for missing values.
fn names(dataset: &Dataset) -> Result<(), ExportError> {
    const MISSING: [&str; 8] = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"];
    let types = dataset.vertex_types.iter().map(|v| ("vertex type", &v.name[..]));
    let relations = dataset.relations.iter().map(|r| ("relation", &r.name[..]));
    let splits = dataset.splits.iter().map(|s| ("split", &s.name[..]));
    for (what, name) in types.chain(relations).chain(splits) {
        let separates = name.contains(JOINER) || name.contains(['/', '\\', ',', '"', '\n', '\r', '\0']);
        if separates || MISSING.contains(&name) || name.starts_with('.') || name.trim() != name || name.len() > 80 {
            return Err(ExportError::Refused(format!(
                "OGB has folders with the names of types, relations and splits, and {what} `{}` cannot be one: no `{JOINER}`, `/`, comma or quote, and not a word for a missing value; give it another name in `dataset.toml`",
                shown(name)
            )));
        }
    }
    Ok(())
}

struct Writer<'a> {
    dataset: &'a Dataset,
    folder: &'a Path,
}

impl Writer<'_> {
    /// Writes a table without a header, a line for each value.
    fn column<T: Display>(&self, path: &Path, values: impl IntoIterator<Item = T>) -> Result<(), ExportError> {
        let mut out = TextFile::create(path)?;
        values.into_iter().try_for_each(|value| out.line(value))?;
        Ok(out.finish()?)
    }

    /// Writes a table with a header and one row.
    fn flags(&self, path: &Path, header: &str, flags: &[impl Display]) -> Result<(), ExportError> {
        let mut out = TextFile::create(path)?;
        out.line(header)?;
        out.line(flags.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))?;
        Ok(out.finish()?)
    }

    fn header(&self) -> String {
        self.dataset.vertex_types.iter().map(|v| &v.name[..]).collect::<Vec<_>>().join(",")
    }

    fn vertex_types(&self, notes: &mut Notes) -> Result<(), ExportError> {
        let types = &self.dataset.vertex_types;
        let counts: Vec<usize> = types.iter().map(|v| v.count).collect();
        self.flags(&self.folder.join("raw/num-node-dict.csv.gz"), &self.header(), &counts)?;
        for of in types {
            let folder = self.folder.join("raw/node-feat").join(&of.name);
            if let Some(x) = of.features.as_ref().filter(|x| x.dim() > 0 && of.count > 0) {
                let mut out = TextFile::create(&folder.join("node-feat.csv.gz"))?;
                dense_rows(x, of.count, |_, row| out.line(Floats(row)))?;
                out.finish()?;
                if x.is_sparse() {
                    notes.add(format!("sparse features of `{}` are written densely", shown(&of.name)));
                }
            }
            if let Some(time) = &of.time {
                self.column(&folder.join("node_year.csv.gz"), time)?;
            }
            // pandas reads the table: quotes hold commas and quotes, and a line ends where one does.
            match (unwritable_ids(of, |id| id.trim() != id || id.contains(['\n', '\r'])), &of.ids) {
                (Some(why), _) => notes.add(why),
                (None, Some(ids)) => {
                    let path = self.folder.join("mapping").join(format!("{}_entidx2name.csv.gz", of.name));
                    self.names(&path, "ent idx,ent name", (0..ids.len()).map(|vertex| ids.text(vertex)))?;
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Writes a table of numbers from 0 and names.
    fn names(
        &self,
        path: &Path,
        header: &str,
        names: impl Iterator<Item = impl AsRef<str>>,
    ) -> Result<(), ExportError> {
        let mut out = TextFile::create(path)?;
        out.line(header)?;
        for (index, name) in names.enumerate() {
            let name = name.as_ref();
            if name.contains([',', '"']) {
                out.line(format_args!("{index},\"{}\"", name.replace('"', "\"\"")))?;
            } else {
                out.line(format_args!("{index},{name}"))?;
            }
        }
        Ok(out.finish()?)
    }

    fn relations(&self, notes: &mut Notes) -> Result<(), ExportError> {
        let mut triplets = TextFile::create(&self.folder.join("raw/triplet-type-list.csv.gz"))?;
        for of in &self.dataset.relations {
            if of.num_edges() == 0 {
                let name = shown(&of.name);
                notes.add(format!(
                    "relation `{name}` has no edges, and OGB's reader does not read empty tables: left out"
                ));
                continue;
            }
            let ends = [of.src, of.dst].map(|ty| &self.dataset.vertex_types[ty].name[..]);
            triplets.line(format_args!("{},{},{}", ends[0], of.name, ends[1]))?;
            let folder = self.folder.join("raw/relations").join([ends[0], &of.name, ends[1]].join(JOINER));
            self.relation(of, &folder)?;
        }
        Ok(triplets.finish()?)
    }

    fn relation(&self, of: &RelationData, folder: &Path) -> Result<(), ExportError> {
        let mut out = TextFile::create(&folder.join("edge.csv.gz"))?;
        of.src_ids.iter().zip(&of.dst_ids).try_for_each(|(src, dst)| out.line(format_args!("{src},{dst}")))?;
        out.finish()?;
        self.column(&folder.join("num-edge-list.csv.gz"), [of.num_edges()])?;
        if let Some(x) = of.features.as_ref().filter(|x| x.dim > 0) {
            self.column(&folder.join("edge-feat.csv.gz"), (0..of.num_edges()).map(|edge| Floats(x.row(edge))))?;
        }
        if let Some(weight) = &of.weight {
            self.column(
                &folder.join("edge_weight.csv.gz"),
                weight.iter().map(|weight| Floats(std::slice::from_ref(weight))),
            )?;
        }
        if let Some(time) = &of.time {
            self.column(&folder.join("edge_time.csv.gz"), time)?;
        }
        Ok(())
    }

    fn targets(&self, notes: &mut Notes) -> Result<(), ExportError> {
        let types = &self.dataset.vertex_types;
        let mut has_label = Vec::new();
        let mut schemes: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut labels = Vec::new();
        for (ty, of) in types.iter().enumerate() {
            let Targets { label, splits } = Targets::of(self.dataset, ty, "OGB", usize::MAX, notes);
            has_label.push(if label.is_some() { "True" } else { "False" });
            let Some(label) = label else { continue };
            labels.push(label);
            let path = self.folder.join("raw/node-label").join(&of.name).join("node-label.csv.gz");
            match &label.values {
                LabelValues::Single { of, .. } => {
                    let class = |&class: &i32| if class < 0 { "nan".to_owned() } else { class.to_string() };
                    self.column(&path, of.iter().map(class))?;
                }
                LabelValues::Multi { classes: columns, rows, labelled }
                | LabelValues::Real { dim: columns, rows, labelled } => {
                    let nan = vec!["nan"; *columns].join(",");
                    let rows = rows.chunks_exact(*columns).zip(labelled);
                    self.column(
                        &path,
                        rows.map(|(row, &labelled)| if labelled { Floats(row).to_string() } else { nan.clone() }),
                    )?;
                }
            }
            self.note_kind(label, notes);
            for split in splits {
                for (part, vertices) in [("train", &split.train), ("valid", &split.val), ("test", &split.test)] {
                    let path =
                        self.folder.join("split").join(&split.name).join(&of.name).join(format!("{part}.csv.gz"));
                    // A split is of vertices with any label of the type.
                    self.column(&path, vertices.iter().filter(|&&v| label.is_labelled(v as usize)))?;
                    if vertices.is_empty() {
                        notes.add(format!(
                            "part `{part}` of split `{}` is empty, and OGB's reader does not read empty tables",
                            shown(&split.name)
                        ));
                    }
                }
                note_unlabelled(label, split, of, notes);
                let left_out = outside(label, split, of.count);
                if left_out > 0 {
                    notes.add(format!(
                        "{left_out} labelled vertices of `{}` are in no part of split `{}`",
                        shown(&of.name),
                        shown(&split.name)
                    ));
                }
                match schemes.iter_mut().find(|(name, _)| *name == split.name) {
                    Some((_, types)) => types.push(&of.name),
                    None => schemes.push((&split.name, vec![&of.name])),
                }
            }
        }
        self.flags(&self.folder.join("raw/nodetype-has-label.csv.gz"), &self.header(), &has_label)?;
        for (name, of) in schemes {
            let flags: Vec<&str> =
                types.iter().map(|v| if of.contains(&&v.name[..]) { "True" } else { "False" }).collect();
            let path = self.folder.join("split").join(name).join("nodetype-has-split.csv.gz");
            self.flags(&path, &self.header(), &flags)?;
        }
        self.classes(&labels, notes)
    }

    /// Says where the files do not tell what a label is.
    fn note_kind(&self, label: &hgnnc_dataset::LabelData, notes: &mut Notes) {
        let name = shown(&label.name);
        match &label.values {
            LabelValues::Real { dim, rows, .. } => {
                let is_class = *dim == 1 && rows.iter().all(|x| x.fract() == 0.0 && *x >= 0.0);
                let is_set = *dim > 1 && rows.iter().all(|x| *x == 0.0 || *x == 1.0);
                if is_class || is_set {
                    notes.add(format!(
                        "OGB's files do not say that label `{name}` is of real numbers: they read as classes"
                    ));
                }
            }
            LabelValues::Multi { classes: 1, .. } => {
                notes.add(format!("OGB's files do not say that vertices have several classes of label `{name}`"));
            }
            _ => {}
        }
    }

    fn classes(&self, labels: &[&hgnnc_dataset::LabelData], notes: &mut Notes) -> Result<(), ExportError> {
        let named = |label: &&hgnnc_dataset::LabelData| {
            let classes = class_names(&label.values, &label.class_names);
            let fewer = match &label.values {
                // The classes that the labels themselves tell.
                LabelValues::Single { of, .. } => {
                    of.iter().max().is_some_and(|&most| (most + 1) as usize != classes.len())
                }
                _ => false,
            };
            fewer || !named_classes(classes).is_empty()
        };
        match labels {
            [label] if named(label) => {
                let names = class_names(&label.values, &label.class_names);
                if names.iter().any(|name| name.trim() != name || name.contains(['\n', '\r'])) {
                    notes.add("names of classes are left out: one has blanks at an end, or several lines");
                    return Ok(());
                }
                let path = self.folder.join("mapping/labelidx2name.csv.gz");
                self.names(&path, "label idx,label name", names.into_iter())
            }
            [_] => Ok(()),
            _ => {
                if labels.iter().any(named) {
                    notes.add("OGB names the classes of one label: those of several types are left out");
                }
                Ok(())
            }
        }
    }
}

/// Numbers with commas between them, each with a point: `ogb` reads integers otherwise.
struct Floats<'a>(&'a [f32]);

impl Display for Floats<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, value) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            // As single precision if that reads back by way of double precision.
            let short = format!("{value:?}");
            if short.parse::<f64>().is_ok_and(|double| double as f32 == *value) {
                write!(f, "{comma}{short}")?;
            } else {
                write!(f, "{comma}{:?}", f64::from(*value))?;
            }
        }
        Ok(())
    }
}
