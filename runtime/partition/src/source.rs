//! The dataset that is partitioned: its description, and its arrays as mapped files.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use hgnnc_dataset::npy::Npy;
use hgnnc_dataset::{DataError, Dataset, files};
use toml::{Table, Value};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::array::{Integers, Window};
use crate::error::{PartitionError, Result};
use crate::progress::Progress;

/// Edges that are read at once.
pub const CHUNK: usize = 1 << 16;

/// The most vertices of all types: they are numbered in 32 bits, and one number is none.
pub const MOST_VERTICES: u64 = u32::MAX as u64 - 1;

/// The most vertex types: each has two classes of balance, of 16 bits.
pub const MOST_TYPES: usize = 1 << 14;

/// An opened dataset. Its vertices have numbers of their own across all types: those of type `t` are
/// `first[t]..first[t + 1]`.
pub struct Source {
    /// Its folder.
    pub folder: PathBuf,
    /// `dataset.toml`.
    pub table: Table,
    /// Names, counts and splits.
    pub outline: Dataset,
    /// The number of the first vertex of each type, and behind it the number of all vertices.
    pub first: Vec<usize>,
    /// The ends of the edges of each relation.
    pub edges: Vec<Edges>,
    /// Hash of the description, and of names, sizes and times of the files: equal if nothing was changed.
    pub stamp: String,
}

/// The ends of the edges of a relation.
pub struct Edges {
    src: Integers,
    dst: Integers,
    /// Number of vertices of the types of both ends.
    bounds: (usize, usize),
    folder: PathBuf,
    names: EdgeNames,
}

/// Names of a relation, its file, and the types of its ends, for messages.
struct EdgeNames {
    file: String,
    relation: String,
    src: String,
    dst: String,
}

impl Source {
    /// Opens the dataset in `folder`.
    ///
    /// # Errors
    /// Faults of its description and of the heads of its files.
    pub fn open(folder: &Path) -> Result<Source> {
        let outline = Dataset::outline(folder)?;
        let path = folder.join("dataset.toml");
        let text = files::read_to_string(&path).map_err(|error| PartitionError::read(&path, error))?;
        let table: Table = text.parse().map_err(|error| PartitionError::read(&path, error))?;
        let mut first = vec![0];
        for ty in &outline.vertex_types {
            first.push(first[first.len() - 1] + ty.count);
        }
        let vertices = first[first.len() - 1] as u64;
        if vertices > MOST_VERTICES {
            return Err(PartitionError::Vertices { vertices, most: MOST_VERTICES });
        }
        let types = outline.vertex_types.len();
        if types > MOST_TYPES {
            return Err(PartitionError::Types { types, most: MOST_TYPES });
        }
        let stamp = stamp(folder, &text, &table);
        let mut source = Source { folder: folder.to_path_buf(), table, outline, first, edges: vec![], stamp };
        let edges =
            tables(&source.table, "relation").map(|(_, table)| source.edges_of(table)).collect::<Result<_>>()?;
        source.edges = edges;
        Ok(source)
    }

    fn edges_of(&self, table: &Table) -> Result<Edges> {
        let text = |field: &str| table.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let names = EdgeNames { file: text("file"), relation: text("name"), src: text("src"), dst: text("dst") };
        let npy = self.npy(&names.file)?;
        let all = npy.shape().get(1).copied().unwrap_or(0);
        let column = |at: usize| {
            let value = table.get("columns").and_then(|columns| columns.get(at)).and_then(Value::as_integer);
            value.and_then(|value| usize::try_from(value).ok()).filter(|&value| value <= all)
        };
        let columns = column(0).unwrap_or(0)..column(1).unwrap_or(all);
        let count = |name: &str| {
            let ty = self.outline.vertex_type(name);
            ty.map_or(0, |ty| self.outline.vertex_types[ty].count)
        };
        Ok(Edges {
            src: Integers::row(&npy, 0, columns.clone()),
            dst: Integers::row(&npy, 1, columns),
            bounds: (count(&names.src), count(&names.dst)),
            folder: self.folder.clone(),
            names,
        })
    }

    /// Maps a file of the dataset.
    pub fn npy(&self, file: &str) -> Result<Npy> {
        let path = self.folder.join(file);
        Npy::open(&path).map_err(|problem| PartitionError::read(&path, format!("it {problem}")))
    }

    /// Number of vertices of all types.
    pub fn num_vertices(&self) -> usize {
        self.first[self.first.len() - 1]
    }

    /// Number of edges of all relations.
    pub fn num_edges(&self) -> u64 {
        self.edges.iter().map(|edges| edges.len() as u64).sum()
    }

    /// Bytes of the ids of all edges.
    pub fn edge_bytes(&self) -> u64 {
        self.edges.iter().map(|edges| edges.len() as u64 * edges.bytes()).sum()
    }

    /// Reads and checks all edges, and returns a hash of those of each relation.
    pub fn check(&self, progress: &Progress<'_>, mut with: impl FnMut(usize, &Chunk)) -> Result<Vec<String>> {
        let mut hashes = vec![];
        for (relation, edges) in self.edges.iter().enumerate() {
            let mut hash = Xxh3::new();
            edges.each(|range, chunk| {
                hash.update(bytemuck::cast_slice(&chunk.src));
                hash.update(bytemuck::cast_slice(&chunk.dst));
                with(relation, chunk);
                progress.add(range.len() as u64 * edges.bytes())
            })?;
            hashes.push(format!("{:032x}", hash.digest128()));
        }
        Ok(hashes)
    }

    /// The numbers of the vertices of a type.
    pub fn vertices(&self, ty: usize) -> Range<usize> {
        self.first[ty]..self.first[ty + 1]
    }

    /// The numbers of the first vertices of the types of the ends of a relation.
    pub fn ends(&self, relation: usize) -> (usize, usize) {
        let of = &self.outline.relations[relation];
        (self.first[of.src], self.first[of.dst])
    }
}

impl Edges {
    /// Number of edges.
    pub fn len(&self) -> usize {
        self.src.len()
    }

    /// Bytes of the ids of one edge in its file.
    pub fn bytes(&self) -> u64 {
        2 * self.src.npy().dtype().bytes() as u64
    }

    /// Reads the ids of the ends of some edges.
    ///
    /// # Errors
    /// Names the first edge whose end does not exist.
    pub fn read(&self, range: Range<usize>, chunk: &mut Chunk) -> Result<()> {
        let bytes = range.len() as u64 * self.bytes();
        self.src.ids(range.clone(), self.bounds.0, &mut chunk.src).map_err(|edge| self.wrong(edge, true))?;
        self.dst.ids(range, self.bounds.1, &mut chunk.dst).map_err(|edge| self.wrong(edge, false))?;
        chunk.window.pass(self.src.npy(), bytes as usize);
        Ok(())
    }

    /// Reads all edges, a chunk at a time.
    pub fn each(&self, mut with: impl FnMut(Range<usize>, &Chunk) -> Result<()>) -> Result<()> {
        let mut chunk = Chunk::default();
        for range in self.chunks() {
            self.read(range.clone(), &mut chunk)?;
            with(range, &chunk)?;
        }
        Ok(())
    }

    /// The positions of the edges of each chunk.
    pub fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let len = self.len();
        (0..len).step_by(CHUNK).map(move |from| from..len.min(from + CHUNK))
    }

    fn wrong(&self, edge: usize, is_src: bool) -> PartitionError {
        let names = &self.names;
        let (ids, bound, what, ty) = match is_src {
            true => (&self.src, self.bounds.0, "source", &names.src),
            false => (&self.dst, self.bounds.1, "destination", &names.dst),
        };
        let error = DataError::IdOutOfRange {
            file: names.file.clone(),
            at: format!("relation `{}`", names.relation),
            what: what.into(),
            place: format!("edge {edge}"),
            value: ids.at(edge),
            bound_of: format!("vertex type `{ty}`"),
            bound: bound as u64,
            more: 0,
        };
        PartitionError::data(&self.folder, error)
    }
}

/// Ids of the ends of edges that were read, each within its vertex type.
#[derive(Default)]
pub struct Chunk {
    /// Ids of sources.
    pub src: Vec<u32>,
    /// Ids of destinations.
    pub dst: Vec<u32>,
    window: Window,
}

/// The tables of `[[key]]` with their positions.
pub fn tables<'a>(table: &'a Table, key: &str) -> impl Iterator<Item = (usize, &'a Table)> + use<'a> {
    let all = table.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    all.iter().filter_map(Value::as_table).enumerate()
}

/// A hash of the description, and of the size and the time of all files that it may name.
fn stamp(folder: &Path, text: &str, table: &Table) -> String {
    let mut hash = Xxh3::new();
    hash.update(text.as_bytes());
    let mut names = vec![];
    strings(&Value::Table(table.clone()), &mut names);
    for name in names {
        let Ok(found) = std::fs::metadata(folder.join(&name)) else { continue };
        let time = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        hash.update(format!("{name} {} {}\n", found.len(), time.as_nanos()).as_bytes());
    }
    format!("{:032x}", hash.digest128())
}

/// All texts of a value that end as files of arrays do.
fn strings(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::String(name) if name.len() < 4096 => names.push(name.clone()),
        Value::Array(all) => all.iter().for_each(|value| strings(value, names)),
        Value::Table(table) => table.values().for_each(|value| strings(value, names)),
        _ => {}
    }
}

/// A hash of contents, for the identity of the source.
pub fn hash_text(text: &str) -> String {
    format!("{:032x}", xxh3_128(text.as_bytes()))
}
