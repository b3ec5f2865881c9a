//! Metapath graphs and precomputed rows on disk, in the folder `.hgnnc-cache` beside `dataset.toml`.
//!
//! A file is named by a hash of everything its contents depend on ([`Key`]). For a graph these are the edges of the
//! relations on the path, the vertex counts, the steps and the options; for rows the program that computes them and the
//! data that it reads, which the caller hashes. No entry is ever invalidated: changed data have another key, and stale
//! files are evicted, least recently used first, when the folder exceeds its limit.
//!
//! - A graph and rows are *stored* if they took longer to build than they take to read ([`pays`]); of a graph in-edges
//!   only, since the transpose is faster than reading the out-edges.
//! - A file is *written* under a temporary name and renamed, so that readers see a whole file or none under concurrent
//!   writers. It is not flushed to the disk; damage from a crash is detected on reading.
//! - A file is *read* if length, key and checksum agree and the edges form a graph. Any other file is a miss, and is
//!   replaced.
//!
//! A folder that cannot be read or written is no error: graphs and rows are then built as without a cache.

mod file;
mod key;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hgnnc_dataset::dataset::Dataset;

use crate::csr::Adjacency;

pub(super) use self::file::Stored;
use self::file::{Header, Kind, Read};
pub use self::key::Key;

/// Name of the cache folder, beside `dataset.toml`.
pub const FOLDER: &str = ".hgnnc-cache";

/// Prefix of the names of files being written.
const TEMPORARY: &str = ".tmp-";

/// A temporary file older than this was left by a process that has ended.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Bytes read, compared and verified per second by two threads, including the page faults of the result (measured:
/// docs/results.md).
const READ_BYTES_PER_S: f64 = 2.5e9;

/// Seconds that reading a file takes regardless of its size: hashing, look-up and opening.
const READ_S: f64 = 2e-4;

/// Whether what took `build` to build is read faster from a file of `bytes` bytes.
pub fn pays(build: Duration, bytes: u64) -> bool {
    build.as_secs_f64() > READ_S + bytes as f64 / READ_BYTES_PER_S
}

/// In-edges, with the number of paths of each pair for a counted metapath.
pub(super) type Incoming = (Adjacency, Option<Vec<f32>>);

/// On-disk cache of the metapath graphs of one dataset, and of rows that are computed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphCache {
    folder: PathBuf,
    limit: u64,
    /// Store whether or not that pays.
    eager: bool,
}

/// One file in the cache folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Path of the file.
    pub path: PathBuf,
    /// Length of the file.
    pub bytes: u64,
    /// Time of the last read or write.
    pub used: SystemTime,
    /// Contents of its header; `None` if the file is no cache file or its header is damaged. The arrays are not read.
    pub contents: Option<EntryContents>,
}

impl Entry {
    /// The graph, if it is one.
    pub fn graph(&self) -> Option<&EntryGraph> {
        match &self.contents {
            Some(EntryContents::Graph(graph)) => Some(graph),
            Some(EntryContents::Rows(_)) | None => None,
        }
    }
}

/// The contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryContents {
    /// The graph of a metapath.
    Graph(EntryGraph),
    /// Rows that were computed before training.
    Rows(EntryRows),
}

/// The rows in an entry, from its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRows {
    /// The data that they are computed from, informative.
    pub source: String,
    /// The number of rows in the file.
    pub rows: u64,
    /// Elements of a row.
    pub width: u64,
    /// Time that computing them took.
    pub build: Duration,
}

/// The graph in an entry, from its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryGraph {
    /// Steps of the metapath, informative.
    pub steps: String,
    /// Number of vertices on the source side.
    pub num_src: u64,
    /// Number of vertices on the destination side.
    pub num_dst: u64,
    /// Number of edges (distinct pairs).
    pub pairs: u64,
    /// Whether the number of paths of each pair is stored.
    pub counted: bool,
    /// Time the build took.
    pub build: Duration,
}

impl GraphCache {
    /// Default size limit of the folder: 2 GiB.
    pub const DEFAULT_LIMIT: u64 = 2 << 30;

    /// The cache beside a dataset, limited to `limit` bytes in total. `None` for a dataset built in memory, and on
    /// big-endian processors.
    pub fn beside(dataset: &Dataset, limit: u64) -> Option<GraphCache> {
        let here = !dataset.folder.as_os_str().is_empty() && cfg!(target_endian = "little");
        here.then(|| GraphCache::of(&dataset.folder, limit))
    }

    /// The cache in a dataset folder; the dataset need not be loaded.
    pub fn of(dataset_folder: &Path, limit: u64) -> GraphCache {
        GraphCache { folder: dataset_folder.join(FOLDER), limit, eager: false }
    }

    /// Stores graphs even if building them is faster than reading them.
    pub fn keeping_all(mut self) -> GraphCache {
        self.eager = true;
        self
    }

    /// The cache folder, which need not exist.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files, least recently used first. Unreadable files are skipped.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.files().filter_map(|path| self.entry(path)).collect();
        entries.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        entries
    }

    /// Removes all cache files; returns the number of files and bytes removed. Foreign files stay.
    ///
    /// Errors when a file cannot be removed.
    pub fn clear(&self) -> io::Result<(usize, u64)> {
        let (mut files, mut bytes) = (0, 0);
        for path in self.files() {
            let length = fs::metadata(&path).map_or(0, |m| m.len());
            match fs::remove_file(&path) {
                Ok(()) => (files, bytes) = (files + 1, bytes + length),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.remove_temporary(Duration::ZERO);
        // Fails if foreign files remain.
        let _ = fs::remove_dir(&self.folder);
        Ok((files, bytes))
    }

    /// Reads the in-edges of a graph, with counts, if they are stored. `Err` holds the number of pairs of a graph over
    /// the budget.
    pub(super) fn find(
        &self,
        key: Key,
        (num_src, num_dst): (usize, usize),
        counted: bool,
        fits: impl Fn(u64) -> bool,
    ) -> Result<Option<Incoming>, u64> {
        let path = self.path(Kind::Graph, key);
        let Ok(Read { mut file, header, length }) = file::open(Kind::Graph, &path) else { return Ok(None) };
        let [of_src, of_dst, pairs] = header.sizes;
        if (header.key, of_src, of_dst, header.counted) != (key, num_src as u64, num_dst as u64, counted) {
            return Ok(None);
        }
        if header.total_bytes() != Some(length) {
            return Ok(None);
        }
        // Checked before memory of its size is allocated; a wrong number is detected by the file length.
        if !fits(pairs) {
            return Err(pairs);
        }
        let Ok((csc, counts)) = file::read_graph(&mut file, &header) else { return Ok(None) };
        // Marks the entry as recently used, if the time can be written.
        let _ = file.set_modified(SystemTime::now());
        Ok(Some((csc, counts)))
    }

    /// Stores a graph that took `build` to build, if that pays. Returns whether it is stored.
    pub(super) fn keep(&self, key: Key, steps: &str, graph: &Stored<'_>, build: Duration) -> bool {
        self.store(Kind::Graph, &Header::of_graph(key, steps, graph, build), &graph.arrays(), build)
    }

    /// Reads rows of so many elements, if they are stored.
    pub fn find_rows(&self, key: Key, (rows, width): (usize, usize)) -> Option<Vec<f32>> {
        let Read { mut file, header, length } = file::open(Kind::Rows, &self.path(Kind::Rows, key)).ok()?;
        // Before memory of their size is allocated.
        if (header.key, header.sizes) != (key, [rows as u64, width as u64, 0]) || header.total_bytes() != Some(length) {
            return None;
        }
        let found = file::read_rows(&mut file, &header).ok()?;
        let _ = file.set_modified(SystemTime::now());
        Some(found)
    }

    /// Stores rows that took `build` to compute, if that pays. `source` says what of. Returns whether they are stored.
    pub fn keep_rows(
        &self,
        key: Key,
        source: &str,
        (rows, width): (usize, usize),
        numbers: &[f32],
        build: Duration,
    ) -> bool {
        let header = Header::of_rows(key, source, (rows, width), numbers, build);
        numbers.len() == rows * width && self.store(Kind::Rows, &header, &[bytemuck::cast_slice(numbers)], build)
    }

    /// Whether it pays, and is done.
    fn store(&self, kind: Kind, header: &Header, arrays: &[&[u8]], build: Duration) -> bool {
        let Some(bytes) = header.total_bytes() else { return false };
        (self.eager || pays(build, bytes)) && bytes <= self.limit && self.write(kind, header, arrays).is_ok()
    }

    fn write(&self, kind: Kind, header: &Header, arrays: &[&[u8]]) -> io::Result<()> {
        // Only the cache folder is created: the folder of the dataset must exist.
        match fs::create_dir(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.remove_temporary(ABANDONED);
        let mut builder = tempfile::Builder::new();
        builder.prefix(TEMPORARY);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut temporary = builder.tempfile_in(&self.folder)?;
        file::write(temporary.as_file_mut(), header, arrays)?;
        let path = self.path(kind, header.key);
        temporary.persist(&path).map_err(|error| error.error)?;
        self.make_room(&path);
        Ok(())
    }

    /// Evicts files, least recently used first, until the rest is within the limit; never `keep`, the file just
    /// written.
    fn make_room(&self, keep: &Path) {
        let entries = self.entries();
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        for entry in entries.iter().filter(|entry| entry.path != keep) {
            if bytes <= self.limit {
                break;
            }
            if fs::remove_file(&entry.path).is_ok() {
                bytes -= entry.bytes;
            }
        }
    }

    fn path(&self, kind: Kind, key: Key) -> PathBuf {
        self.folder.join(format!("{key}.{}", kind.extension()))
    }

    fn entry(&self, path: PathBuf) -> Option<Entry> {
        let metadata = fs::metadata(&path).ok()?;
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let kind = kind_of(&path)?;
        let readable = file::open(kind, &path).ok().filter(|read| read.header.total_bytes() == Some(read.length));
        Some(Entry { path, bytes: metadata.len(), used, contents: readable.map(|read| read.header.contents()) })
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let is_key =
            |stem: &std::ffi::OsStr| stem.len() == 32 && stem.to_string_lossy().bytes().all(|b| b.is_ascii_hexdigit());
        let is_entry =
            move |path: &PathBuf| kind_of(path).is_some() && path.file_stem().is_some_and(is_key) && path.is_file();
        self.all_files().filter(is_entry)
    }

    fn remove_temporary(&self, older: Duration) {
        let is_temporary =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TEMPORARY));
        for path in self.all_files().filter(is_temporary) {
            let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
            if modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= older)) {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn all_files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        fs::read_dir(&self.folder).into_iter().flatten().filter_map(|entry| entry.ok().map(|entry| entry.path()))
    }
}

/// The kind of a file, by its name.
fn kind_of(path: &Path) -> Option<Kind> {
    let extension = path.extension()?;
    Kind::ALL.into_iter().find(|kind| extension == kind.extension())
}
