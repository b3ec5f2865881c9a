//! Plans the files of a partition: which array of the source becomes which, and the `dataset.toml` that names them.
//!
//! Fields that the format does not know are left out, since the files that they may name would have another order.

use std::collections::HashSet;

use hgnnc_dataset::SplitData;
use hgnnc_dataset::load::FIELDS;
use hgnnc_dataset::write::stem;
use toml::{Table, Value};

use crate::array::{Integers, Rows};
use crate::error::Result;
use crate::source::{Source, tables};

/// Index space of the rows of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// The vertices of a type.
    Vertices(usize),
    /// The edges of a relation.
    Edges(usize),
}

/// A file of the source in messages: its name, and the item that it belongs to.
#[derive(Clone, Debug)]
pub struct Place {
    /// Name of the file.
    pub file: String,
    /// Such as ``relation `writes` ``.
    pub at: String,
}

/// Files that are written together.
pub struct Job {
    /// The first of them, by which the job is known.
    pub file: String,
    /// Arrays of these files, with their sources.
    pub kind: JobKind,
    /// Bytes that it reads, for its share of the progress.
    pub bytes: u64,
}

/// Arrays that a job writes, with their sources.
pub enum JobKind {
    /// Rows in their new order.
    Rows {
        /// Index space of the rows; `None` if they keep their order.
        of: Option<Of>,
        /// The rows in the source.
        rows: Rows,
        /// Where they are from.
        place: Place,
    },
    /// Rows of different lengths, of the vertices of a type, with their offsets (in the first file).
    Ragged {
        /// The vertex type.
        ty: usize,
        /// The offsets in the source, one more than there are vertices.
        offsets: Integers,
        /// Arrays with the elements of all rows, each with its new file.
        elements: Vec<(Rows, String)>,
        /// Where the offsets are from.
        place: Place,
    },
    /// The edges of a relation, by the owner of the destination, and for several ranks by that of the source.
    Edges {
        /// The relation.
        relation: usize,
        /// Positions and ends by the owner of the source.
        out: Option<OutFiles>,
    },
    /// The number that each vertex of a type has in the source.
    Numbers(usize),
    /// The vertices or edges of a part of a split, of 0: train, 1: val, 2: test.
    Split {
        /// Index space of the ids.
        of: Of,
        /// Position of the split among those of all vertex types, or of the relation.
        split: usize,
        /// The part.
        part: usize,
    },
    /// Held-out links: sources, relations, destinations.
    Links {
        /// The three rows in the source.
        rows: [Integers; 3],
        /// Where they are from.
        place: Place,
    },
}

/// Files of the edges of a relation by the owner of the source.
#[derive(Clone, Debug)]
pub struct OutFiles {
    /// Positions of the edges.
    pub edges: String,
    /// Their ends.
    pub ends: String,
}

/// The files of a partition.
pub struct Plan {
    /// Jobs that write the arrays, in the order of `dataset.toml`.
    pub jobs: Vec<Job>,
    /// The new `dataset.toml`.
    pub table: Table,
    /// File of the numbers of each vertex type.
    pub numbers: Vec<String>,
    /// Files of the out-edges of each relation.
    pub out: Vec<Option<OutFiles>>,
}

/// Plans the partition of a dataset for this number of ranks.
pub fn plan(source: &Source, ranks: usize) -> Result<Plan> {
    let mut planner = Planner { source, jobs: vec![], names: HashSet::new() };
    let mut table = kept(&source.table, "dataset.toml");
    let mut numbers = vec![];
    planner.each(&mut table, "vertex_type", |planner, ty, table| {
        let (name, at) = called("vertex type", table);
        let stem = stem(ty, &name);
        numbers.push(planner.free(format!("{stem}.number.npy")));
        let of = Of::Vertices(ty);
        planner.rows(table, "time", &format!("{stem}.time.npy"), of, &at)?;
        planner.rows(table, "kind_file", &format!("{stem}.kind.npy"), of, &at)?;
        if let Some(features) = table.get_mut("features").and_then(Value::as_table_mut) {
            planner.features(features, &format!("{stem}.x"), ty, &format!("features of {at}"))?;
        }
        planner.each(table, "field", |planner, index, table| {
            let (_, field) = called("field", table);
            planner.features(table, &format!("{stem}.field{index}"), ty, &format!("{field} of {at}"))
        })?;
        if let Some(ids) = table.get_mut("ids").and_then(Value::as_table_mut) {
            let at = format!("ids of {at}");
            planner.rows(ids, "file", &format!("{stem}.ids.npy"), of, &at)?;
            planner.ragged(ids, &["offsets", "bytes"], &format!("{stem}.ids"), ty, &at)?;
        }
        Ok(())
    })?;
    let mut out = vec![];
    planner.each(&mut table, "relation", |planner, relation, table| {
        let (name, at) = called("relation", table);
        let stem = stem(relation, &name);
        let file = planner.free(format!("{stem}.edges.npy"));
        let files = (ranks > 1).then(|| OutFiles {
            edges: planner.free(format!("{stem}.out.npy")),
            ends: planner.free(format!("{stem}.out.edges.npy")),
        });
        out.push(files.clone());
        table.remove("columns");
        table.insert("file".into(), Value::String(file.clone()));
        let edges = planner.source.edges[relation].len() as u64;
        let bytes = 8 * edges + files.as_ref().map_or(0, |_| 12 * edges);
        planner.jobs.push(Job { file, kind: JobKind::Edges { relation, out: files }, bytes });
        let of = Of::Edges(relation);
        planner.rows(table, "weight", &format!("{stem}.weight.npy"), of, &at)?;
        planner.rows(table, "time", &format!("{stem}.time.npy"), of, &at)?;
        if let Some(features) = table.get_mut("features").and_then(Value::as_table_mut) {
            planner.rows(features, "file", &format!("{stem}.x.npy"), of, &format!("features of {at}"))?;
        }
        Ok(())
    })?;
    planner.each(&mut table, "label", |planner, label, table| {
        let text = |field: &str| table.get(field).and_then(Value::as_str);
        let (name, outline) = (text("name").unwrap_or("y"), &planner.source.outline);
        let (of, at) = match (text("vertex_type"), text("relation")) {
            (Some(ty), _) => {
                (outline.vertex_type(ty).map(Of::Vertices), format!("label `{name}` of vertex type `{ty}`"))
            }
            (None, Some(relation)) => {
                (outline.relation(relation).map(Of::Edges), format!("label `{name}` of relation `{relation}`"))
            }
            (None, None) => return Ok(()),
        };
        let Some(of) = of else { return Ok(()) };
        planner.rows(table, "file", &format!("label{label}.npy"), of, &at)?;
        planner.rows(table, "mask_file", &format!("label{label}.known.npy"), of, &at)
    })?;
    planner.each(&mut table, "split", |planner, index, table| {
        let Some((of, split)) = planner.split_of(table) else { return Ok(()) };
        for (part, field) in ["train", "val", "test"].into_iter().enumerate() {
            if table.contains_key(field) {
                let file = planner.free(format!("split{index}.{field}.npy"));
                table.insert(field.into(), Value::String(file.clone()));
                let bytes = planner.split_bytes(of);
                planner.jobs.push(Job { file, kind: JobKind::Split { of, split, part }, bytes });
            }
        }
        Ok(())
    })?;
    planner.each(&mut table, "link_split", |planner, split, table| {
        let (_, at) = called("link split", table);
        for field in ["val", "test"] {
            let Some(from) = table.get(field).and_then(Value::as_str).map(str::to_owned) else { continue };
            let npy = planner.source.npy(&from)?;
            let links = npy.shape().get(1).copied().unwrap_or(0);
            let rows = [0, 1, 2].map(|row| Integers::row(&npy, row, 0..links));
            let file = planner.free(format!("links{split}.{field}.npy"));
            table.insert(field.into(), Value::String(file.clone()));
            let kind = JobKind::Links { rows, place: Place { file: from, at: at.clone() } };
            planner.jobs.push(Job { file, kind, bytes: 12 * links as u64 });
            let times = format!("{field}_time");
            planner.rows(table, &times, &format!("links{split}.{field}.time.npy"), None, &at)?;
        }
        Ok(())
    })?;
    for (ty, file) in numbers.iter().enumerate() {
        let bytes = 4 * source.vertices(ty).len() as u64;
        planner.jobs.push(Job { file: file.clone(), kind: JobKind::Numbers(ty), bytes });
    }
    Ok(Plan { jobs: planner.jobs, table, numbers, out })
}

struct Planner<'a> {
    source: &'a Source,
    jobs: Vec<Job>,
    /// Names of files, in lower case: some file systems do not tell capitals apart.
    names: HashSet<String>,
}

impl Planner<'_> {
    /// Calls `with` for each table of `[[key]]`, with its position.
    fn each(
        &mut self,
        table: &mut Table,
        key: &str,
        mut with: impl FnMut(&mut Self, usize, &mut Table) -> Result<()>,
    ) -> Result<()> {
        let Some(all) = table.get_mut(key).and_then(Value::as_array_mut) else { return Ok(()) };
        all.iter_mut().filter_map(Value::as_table_mut).enumerate().try_for_each(|(i, table)| with(self, i, table))
    }

    /// The name of a file that is not planned yet.
    fn free(&mut self, file: String) -> String {
        let stem = file.strip_suffix(".npy").unwrap_or(&file);
        let names = std::iter::once(file.clone()).chain((2..).map(|n: u32| format!("{stem}-{n}.npy")));
        // There are more names than files.
        names.into_iter().find(|name| self.names.insert(name.to_ascii_lowercase())).unwrap_or_default()
    }

    /// The kind of elements that a split divides, and its position among those of all vertex types, or of its relation.
    fn split_of(&self, table: &Table) -> Option<(Of, usize)> {
        let text = |field: &str| table.get(field).and_then(Value::as_str);
        let (outline, name) = (&self.source.outline, text("name")?);
        match text("relation") {
            None => {
                let ty = outline.vertex_type(text("vertex_type")?)?;
                let is_it = |split: &SplitData| split.vertex_type == ty && split.name == name;
                Some((Of::Vertices(ty), outline.splits.iter().position(is_it)?))
            }
            Some(relation) => {
                let relation = outline.relation(relation)?;
                let splits = &outline.relations[relation].splits;
                Some((Of::Edges(relation), splits.iter().position(|split| split.name == name)?))
            }
        }
    }

    /// Bytes that are read to number the ids of a part of a split anew.
    fn split_bytes(&self, of: Of) -> u64 {
        match of {
            Of::Vertices(_) => 0,
            Of::Edges(relation) => {
                let edges = &self.source.edges[relation];
                edges.len() as u64 * edges.bytes()
            }
        }
    }

    /// Plans the rows in the file that `field` names, if there is one, as the file `new`. They keep their order if they are
    /// rows of no index space.
    fn rows(&mut self, table: &mut Table, field: &str, new: &str, of: impl Into<Option<Of>>, at: &str) -> Result<()> {
        let Some(from) = table.get(field).and_then(Value::as_str).map(str::to_owned) else { return Ok(()) };
        let rows = Rows::of(&self.source.npy(&from)?);
        let file = self.free(new.to_owned());
        table.insert(field.into(), Value::String(file.clone()));
        let bytes = (rows.len() * rows.bytes()) as u64;
        let kind = JobKind::Rows { of: of.into(), rows, place: Place { file: from, at: at.to_owned() } };
        self.jobs.push(Job { file, kind, bytes });
        Ok(())
    }

    /// Plans the rows of features of a vertex type, as files whose names begin with `stem`.
    fn features(&mut self, table: &mut Table, stem: &str, ty: usize, at: &str) -> Result<()> {
        self.rows(table, "file", &format!("{stem}.npy"), Of::Vertices(ty), at)?;
        self.ragged(table, &["indptr", "indices", "data"], stem, ty, at)
    }

    /// Plans rows of different lengths; the first field names the file of their offsets.
    fn ragged(&mut self, table: &mut Table, fields: &[&str], stem: &str, ty: usize, at: &str) -> Result<()> {
        let named = |field: &&str| table.get(*field).and_then(Value::as_str).map(str::to_owned);
        let Some(from) = fields.iter().map(named).collect::<Option<Vec<String>>>() else { return Ok(()) };
        let mut files = vec![];
        for field in fields {
            let file = self.free(format!("{stem}.{field}.npy"));
            table.insert((*field).into(), Value::String(file.clone()));
            files.push(file);
        }
        let offsets = Integers::all(&self.source.npy(&from[0])?);
        let mut elements = vec![];
        for (from, file) in from.iter().zip(&files).skip(1) {
            elements.push((Rows::of(&self.source.npy(from)?), file.clone()));
        }
        let bytes = elements.iter().map(|(rows, _)| (rows.len() * rows.bytes()) as u64).sum();
        let place = Place { file: from[0].clone(), at: at.to_owned() };
        let kind = JobKind::Ragged { ty, offsets, elements, place };
        self.jobs.push(Job { file: files.swap_remove(0), kind, bytes });
        Ok(())
    }
}

/// The name of a table, and what messages call it.
fn called(kind: &str, table: &Table) -> (String, String) {
    let name = table.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let at = format!("{kind} `{name}`");
    (name, at)
}

/// The fields of a table that the format knows. `kind` is its name in the list of fields.
fn kept(table: &Table, kind: &str) -> Table {
    let fields = FIELDS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, fields)| fields);
    let mut kept = Table::new();
    for &field in fields {
        let Some(value) = table.get(field) else { continue };
        let inner = match (kind, field) {
            ("dataset.toml", _) => format!("[[{field}]]"),
            ("[[vertex_type]]", "features" | "ids") => format!("[vertex_type.{field}]"),
            ("[[vertex_type]]", "field") => "[[vertex_type.field]]".into(),
            ("[[relation]]", "features") => "[relation.features]".into(),
            (_, "transform") => "[[vertex_type.transform]]".into(),
            _ => String::new(),
        };
        let value = match value {
            Value::Table(table) => Value::Table(self::kept(table, &inner)),
            Value::Array(all) if all.iter().all(Value::is_table) && !all.is_empty() => {
                let tables = all.iter().filter_map(Value::as_table);
                Value::Array(tables.map(|table| Value::Table(self::kept(table, &inner))).collect())
            }
            other => other.clone(),
        };
        kept.insert(field.into(), value);
    }
    kept
}

/// The description of the source without what the format does not know, for its identity.
pub fn description(source: &Source) -> String {
    kept(&source.table, "dataset.toml").to_string()
}

/// The positions of the relations with these names; all of them without names.
pub fn relations_named(source: &Source, names: &[String]) -> std::result::Result<Vec<bool>, String> {
    let count = tables(&source.table, "relation").count();
    if names.is_empty() {
        return Ok(vec![true; count]);
    }
    let mut used = vec![false; count];
    for name in names {
        match source.outline.relation(name) {
            Some(relation) => used[relation] = true,
            None => return Err(name.clone()),
        }
    }
    Ok(used)
}
