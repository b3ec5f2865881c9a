//! Datasets written in the layouts of other libraries.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use hgnnc_dataset::write::{WriteError, new_folder};
use hgnnc_dataset::{Dataset, Features, LabelData, LabelValues, SplitData, VertexTypeData};

use crate::error::shown;
use crate::{hgb, ogb, pyg, tables};

/// A layout that a dataset is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// CSV files and an `import.toml` that reads them back: see [`crate::tables`].
    Tables,
    /// The text files of the Heterogeneous Graph Benchmark: see [`crate::hgb`].
    Hgb,
    /// The files of the Open Graph Benchmark's heterogeneous graphs: see [`crate::ogb`].
    Ogb,
    /// Arrays, and a `load.py` that makes a `HeteroData` of them: see [`crate::pyg`].
    Pyg,
}

impl Layout {
    /// All layouts, in the order in which they are listed to users.
    pub const ALL: [Layout; 4] = [Layout::Tables, Layout::Hgb, Layout::Ogb, Layout::Pyg];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Tables => "tables",
            Layout::Hgb => "hgb",
            Layout::Ogb => "ogb",
            Layout::Pyg => "pyg",
        }
    }

    /// A line of help about the files that an export writes.
    pub fn about(self) -> &'static str {
        match self {
            Layout::Tables => "CSV files, and an import.toml with which `data import tables` reads them back",
            Layout::Hgb => "The text files of the Heterogeneous Graph Benchmark (node.dat, link.dat, ...)",
            Layout::Ogb => "The files of the Open Graph Benchmark, as those of ogbn-mag",
            Layout::Pyg => "Arrays, and a load.py that makes a HeteroData of PyG of them",
        }
    }
}

/// Why a dataset was not exported. The target is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The layout cannot hold the dataset.
    #[error("{0}")]
    Refused(String),
    /// The folder could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes a dataset to the folder `target`, which appears complete or not at all. Returns notes on what the layout does
/// not hold.
///
/// # Errors
/// When `target` is there and is not an empty folder, a file cannot be written, or a name cannot stand in the layout.
pub fn export(layout: Layout, dataset: &Dataset, target: &Path) -> Result<Vec<String>, ExportError> {
    let mut notes = Notes(Vec::new());
    new_folder(target, |folder| match layout {
        Layout::Hgb => hgb::write(dataset, folder, &mut notes),
        Layout::Ogb => ogb::write(dataset, folder, &mut notes),
        Layout::Tables => tables::write(dataset, folder, &mut notes),
        Layout::Pyg => pyg::write(dataset, folder),
    })?;
    Ok(notes.0)
}

/// Notes on what is not written.
pub(crate) struct Notes(Vec<String>);

impl Notes {
    pub fn add(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }

    /// Notes what a layout has no place for.
    pub fn unheld(&mut self, layout: &str, holds: &Holds, dataset: &Dataset) {
        let list =
            |names: Vec<&str>| names.iter().map(|name| format!("`{}`", shown(name))).collect::<Vec<_>>().join(", ");
        let mut note = |what: &str, names: Vec<&str>| {
            if !names.is_empty() {
                self.0.push(format!("{layout} has no place for {what}, which {} would need: left out", list(names)));
            }
        };
        let of_types = |has: fn(&VertexTypeData) -> bool| -> Vec<&str> {
            dataset.vertex_types.iter().filter(|v| has(v)).map(|v| &v.name[..]).collect()
        };
        note("kinds of vertices", of_types(|v| v.kinds.is_some()));
        note("fields beside the features", of_types(|v| !v.fields.is_empty()));
        note(
            "how features were made (they are written as the model sees them)",
            of_types(|v| !v.transforms.is_empty()),
        );
        note(
            "how features of edges were made (they are written as the model sees them)",
            dataset.relations.iter().filter(|r| !r.transforms.is_empty()).map(|r| &r.name[..]).collect(),
        );
        if !holds.vertex_times {
            note("times of vertices", of_types(|v| v.time.is_some()));
        }
        if !holds.edge_attributes {
            let times = dataset.relations.iter().filter(|r| r.time.is_some()).map(|r| &r.name[..]).collect();
            note("times of edges", times);
            let features = dataset.relations.iter().filter(|r| r.features.is_some()).map(|r| &r.name[..]).collect();
            note("features of edges", features);
        }
        if !holds.edge_labels {
            let labelled = dataset.relations.iter().filter(|r| !r.labels.is_empty()).map(|r| &r.name[..]).collect();
            note("labels and splits of edges", labelled);
        }
        let links = dataset.link_splits.iter().skip(holds.link_splits).map(|l| &l.name[..]).collect();
        note(if holds.link_splits == 0 { "links that are held out" } else { "several link splits" }, links);
        let with_times = dataset.link_splits.iter().take(holds.link_splits).filter(|split| {
            let mut parts = [&split.val, &split.test].into_iter();
            parts.any(|links| links.time.is_some() && !links.is_empty())
        });
        note("times of links that are held out", with_times.map(|split| &split.name[..]).collect());
        note("metapaths", dataset.metapaths.iter().map(|m| &m.name[..]).collect());
    }
}

/// Optional parts of a dataset that a layout can store.
pub(crate) struct Holds {
    pub vertex_times: bool,
    /// Times and features of edges.
    pub edge_attributes: bool,
    /// Labels of edges, and their splits.
    pub edge_labels: bool,
    /// Number of link splits.
    pub link_splits: usize,
}

/// The one label and the splits of each vertex type that are written in a layout of one label of each type.
pub(crate) struct Targets<'a> {
    pub label: Option<&'a LabelData>,
    pub splits: Vec<&'a SplitData>,
}

impl<'a> Targets<'a> {
    /// Those of a vertex type; labels after its first one are noted, and so are splits beyond a number.
    pub fn of(dataset: &'a Dataset, ty: usize, layout: &str, most_splits: usize, notes: &mut Notes) -> Targets<'a> {
        let name = shown(&dataset.vertex_types[ty].name);
        let mut labels = dataset.labels.iter().filter(|label| label.vertex_type == ty);
        let label = labels.next();
        for other in labels {
            let other = shown(&other.name);
            notes.add(format!("{layout} has one label of each type: `{other}` of `{name}` is left out"));
        }
        let mut splits: Vec<&SplitData> = dataset.splits.iter().filter(|split| split.vertex_type == ty).collect();
        for other in splits.iter().skip(most_splits) {
            let other = shown(&other.name);
            notes.add(format!("{layout} has one split of each type: `{other}` of `{name}` is left out"));
        }
        splits.truncate(most_splits);
        Targets { label, splits }
    }
}

/// The vertices of a label that have one, but are in no part of the split.
pub(crate) fn outside(label: &LabelData, split: &SplitData, count: usize) -> usize {
    let parts = [&split.train, &split.val, &split.test];
    let is_outside =
        |v: usize| label.is_labelled(v) && !parts.iter().any(|part| part.binary_search(&(v as u32)).is_ok());
    (0..count).filter(|&v| is_outside(v)).count()
}

/// Notes the vertices of a split that do not have this label: they have another one, which is not written.
pub(crate) fn note_unlabelled(label: &LabelData, split: &SplitData, of: &VertexTypeData, notes: &mut Notes) {
    let parts = [&split.train, &split.val, &split.test];
    let count = parts.into_iter().flatten().filter(|&&v| !label.is_labelled(v as usize)).count();
    if count > 0 {
        let (of, split, label) = (shown(&of.name), shown(&split.name), shown(&label.name));
        notes.add(format!(
            "{count} vertices of `{of}` in split `{split}` have no label `{label}`: they are left out of it"
        ));
    }
}

/// The names of the classes of a label; their numbers where they have none.
pub(crate) fn class_names(values: &LabelValues, names: &[String]) -> Vec<String> {
    let classes = match values {
        LabelValues::Single { classes, .. } | LabelValues::Multi { classes, .. } => *classes,
        LabelValues::Real { dim, .. } => *dim,
    };
    if names.len() == classes { names.to_vec() } else { (0..classes).map(|class| class.to_string()).collect() }
}

/// Names of classes as the format holds them: none if they are their numbers.
pub(crate) fn named_classes(names: Vec<String>) -> Vec<String> {
    if names.iter().enumerate().all(|(class, name)| *name == class.to_string()) { Vec::new() } else { names }
}

/// Why ids of a vertex type cannot stand in a text file of fields, if they cannot: they are kept exactly, or not at all.
pub(crate) fn unwritable_ids(of: &VertexTypeData, is_wrong: impl Fn(&str) -> bool) -> Option<String> {
    let ids = of.ids.as_ref()?;
    let mut keys = crate::keys::Keys::default();
    for vertex in 0..ids.len() {
        let id = ids.text(vertex);
        let why = if id.is_empty() {
            "is empty"
        } else if is_wrong(&id) {
            "holds characters that separate fields, or blanks at an end"
        } else if !keys.add(&id).is_some_and(|(_, new)| new) {
            "is that of two vertices"
        } else {
            continue;
        };
        return Some(format!("ids of vertex type `{}` are left out: the id `{}` {why}", shown(&of.name), shown(&id)));
    }
    None
}

/// A text file, optionally compressed with gzip.
pub(crate) struct TextFile {
    path: PathBuf,
    out: Out,
}

enum Out {
    Plain(BufWriter<File>),
    // The state of some builds of the compressor is large.
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl TextFile {
    /// Creates a file, and the folders that it is in. One whose name ends in `.gz` is compressed.
    pub fn create(path: &Path) -> Result<TextFile, WriteError> {
        let wrong = |error| WriteError::io(path)(error);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(wrong)?;
        }
        let file = BufWriter::with_capacity(1 << 16, File::create(path).map_err(wrong)?);
        let gzip = path.extension().is_some_and(|end| end == "gz");
        let out = match gzip {
            true => Out::Gzip(Box::new(GzEncoder::new(file, Compression::default()))),
            false => Out::Plain(file),
        };
        Ok(TextFile { path: path.to_path_buf(), out })
    }

    /// Writes a text as it is.
    pub fn put(&mut self, text: impl fmt::Display) -> Result<(), WriteError> {
        match &mut self.out {
            Out::Plain(out) => write!(out, "{text}"),
            Out::Gzip(out) => write!(out, "{text}"),
        }
        .map_err(WriteError::io(&self.path))
    }

    /// Writes a text and the end of a line.
    pub fn line(&mut self, text: impl fmt::Display) -> Result<(), WriteError> {
        self.put(format_args!("{text}\n"))
    }

    /// Writes what is left in buffers.
    pub fn finish(self) -> Result<(), WriteError> {
        let finish = || -> io::Result<()> {
            let mut out = match self.out {
                Out::Plain(out) => out,
                Out::Gzip(out) => out.finish()?,
            };
            out.flush()
        };
        finish().map_err(WriteError::io(&self.path))
    }
}

/// Calls `row` with each row of features, densely.
pub(crate) fn dense_rows<E>(
    features: &Features,
    count: usize,
    mut row: impl FnMut(usize, &[f32]) -> Result<(), E>,
) -> Result<(), E> {
    match features {
        Features::Dense(x) => (0..count).try_for_each(|v| row(v, x.row(v))),
        Features::Sparse(x) => {
            let mut dense = vec![0.0; x.dim];
            (0..count).try_for_each(|v| {
                dense.fill(0.0);
                let (columns, values) = x.row(v);
                columns.iter().zip(values).for_each(|(&column, &value)| dense[column as usize] = value);
                row(v, &dense)
            })
        }
    }
}

/// A number as a short text that reads back as the same number, by way of double precision as well.
pub(crate) struct Number(pub f32);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Number(x) = *self;
        // By its bits: subnormal numbers equal 0 on a thread that flushes them.
        let whole = x as i32;
        if whole.unsigned_abs() < 10_000_000 && (whole as f32).to_bits() == x.to_bits() {
            return write!(f, "{whole}");
        }
        let short = format!("{x:?}");
        if short.parse::<f64>().is_ok_and(|double| double as f32 == x) {
            f.write_str(&short)
        } else {
            write!(f, "{:?}", f64::from(x))
        }
    }
}

/// Values with a separator between them.
pub(crate) struct Joined<'a>(pub &'a [f32], pub char);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, &value) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_fmt(format_args!("{}", self.1))?;
            }
            Number(value).fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_as_the_same() {
        let shown = |x: f32| Number(x).to_string();
        assert_eq!([0.0, -3.0, 9_999_999.0, 0.5, 3e38].map(shown), ["0", "-3", "9999999", "0.5", "3e38"]);
        for x in [1e-45, -1e-45, f32::MIN_POSITIVE, 1e-7, -0.0, f32::MAX, f32::MIN, 0.1, 16_777_217.0] {
            assert_eq!(shown(x).parse::<f64>().map(|x| (x as f32).to_bits()), Ok(x.to_bits()), "{}", shown(x));
        }
    }
}
