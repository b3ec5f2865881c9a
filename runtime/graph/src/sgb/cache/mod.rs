//! Metapath graphs on disk, in the folder `.hgnnc-cache` beside `dataset.toml`.
//!
//! A file is named by a hash of all that its graph depends on ([`Key`]): the edges of the relations on the path, the numbers
//! of vertices, the steps and the options. Nothing has to be invalidated: data that change have another key, and what nobody
//! asks for any more goes when the folder has reached its limit, least recently used first.
//!
//! - *Kept* is what took longer to build than it takes to read ([`pays`]); in-edges only, since the out-edges are made
//!   faster than read.
//! - *Written* is a temporary file, which is then renamed: readers see all of a file or none, whoever writes at the same time.
//!   It is not flushed to the disk; what a crash leaves is found out when it is read.
//! - *Read* files are believed when length, key and checksum agree and the edges are those of a graph. Any other file counts
//!   as missing, and is replaced.
//!
//! A folder that cannot be read or written is no error: graphs are built then, as without a cache.

mod file;
mod key;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::csr::Csc;
use crate::dataset::Dataset;

pub(super) use self::file::Stored;
use self::file::{Header, Read};
pub(super) use self::key::Key;

/// Name of the folder.
pub const FOLDER: &str = ".hgnnc-cache";

const EXTENSION: &str = "graph";

/// How the names of files begin that are being written.
const TEMPORARY: &str = ".tmp-";

/// A file that is being written for longer belongs to a process that is no more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Bytes that are read, compared and checked in a second by two threads, with the memory they come to (measured: docs/results.md).
const READ_BYTES_PER_S: f64 = 2.5e9;

/// Seconds that a file takes however short it is: hashing, looking and opening.
const READ_S: f64 = 2e-4;

/// Whether a graph that took so long to build is read faster from a file of so many bytes.
pub fn pays(build: Duration, bytes: u64) -> bool {
    build.as_secs_f64() > READ_S + bytes as f64 / READ_BYTES_PER_S
}

/// In-edges, and how many paths each pair has where that is counted.
pub(super) type Incoming = (Csc, Option<Vec<f32>>);

/// Metapath graphs of one dataset on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphCache {
    folder: PathBuf,
    limit: u64,
    /// Keep graphs whether or not that pays.
    eager: bool,
}

/// A file of a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// When it was last read or written.
    pub used: SystemTime,
    /// What its first lines say; `None` for a file that is none of ours, or damaged there. The edges are not looked at.
    pub graph: Option<EntryGraph>,
}

/// The graph of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryGraph {
    /// The steps of its metapath.
    pub steps: String,
    /// Vertices on the source side.
    pub num_src: u64,
    /// Vertices on the destination side.
    pub num_dst: u64,
    /// Edges.
    pub pairs: u64,
    /// With the number of paths of each pair.
    pub counted: bool,
    /// How long it took to build.
    pub build: Duration,
}

impl GraphCache {
    /// 2 GiB.
    pub const DEFAULT_LIMIT: u64 = 2 << 30;

    /// The cache beside a dataset, whose files may have `limit` bytes together. `None` for a dataset that was made in memory, and
    /// on processors that store numbers the other way round.
    pub fn beside(dataset: &Dataset, limit: u64) -> Option<GraphCache> {
        let here = !dataset.folder.as_os_str().is_empty() && cfg!(target_endian = "little");
        here.then(|| GraphCache::of(&dataset.folder, limit))
    }

    /// The cache in a folder of a dataset, which need not be loaded.
    pub fn of(dataset_folder: &Path, limit: u64) -> GraphCache {
        GraphCache { folder: dataset_folder.join(FOLDER), limit, eager: false }
    }

    /// Keeps graphs also where building them is faster than reading.
    pub fn keeping_all(mut self) -> GraphCache {
        self.eager = true;
        self
    }

    /// Its folder, which need not exist.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its files, least recently used first. What cannot be read is not there.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.files().filter_map(|path| self.entry(path)).collect();
        entries.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        entries
    }

    /// Removes all that is in it, and says how many files and bytes that were. What others have put there stays.
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
        // Fails where something is left, which is then not ours.
        let _ = fs::remove_dir(&self.folder);
        Ok((files, bytes))
    }

    /// The in-edges of a graph, with counts, if they are here. `Err` is how many pairs a graph has that does not fit.
    pub(super) fn find(
        &self,
        key: Key,
        (num_src, num_dst): (usize, usize),
        counted: bool,
        fits: impl Fn(u64) -> bool,
    ) -> Result<Option<Incoming>, u64> {
        let Ok(Read { mut file, header, length }) = file::open(&self.path(key)) else { return Ok(None) };
        let expected = (key, num_src as u64, num_dst as u64, counted);
        if (header.key, header.num_src, header.num_dst, header.counted) != expected {
            return Ok(None);
        }
        if header.total_bytes() != Some(length) {
            return Ok(None);
        }
        // Before anything of its size is allocated; a wrong number here is found by its length.
        if !fits(header.pairs) {
            return Err(header.pairs);
        }
        let Ok((csc, counts)) = file::read_arrays(&mut file, &header) else { return Ok(None) };
        // Only what is used last stays, if time can be written.
        let _ = file.set_modified(SystemTime::now());
        Ok(Some((csc, counts)))
    }

    /// Whether there is a file of this name.
    pub(super) fn has(&self, key: Key) -> bool {
        self.path(key).is_file()
    }

    /// Writes a graph that took `build` to build, if that pays. Says whether it is there now.
    pub(super) fn keep(&self, key: Key, steps: &str, graph: &Stored<'_>, build: Duration) -> bool {
        let header = Header::new(key, steps, graph, build);
        let Some(bytes) = header.total_bytes() else { return false };
        (self.eager || pays(build, bytes)) && bytes <= self.limit && self.write(&header, graph).is_ok()
    }

    fn write(&self, header: &Header, graph: &Stored<'_>) -> io::Result<()> {
        // The folder of the dataset is there; a cache does not make it anew.
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
        file::write(temporary.as_file_mut(), header, graph)?;
        let path = self.path(header.key);
        temporary.persist(&path).map_err(|error| error.error)?;
        self.make_room(&path);
        Ok(())
    }

    /// Removes files, least recently used first, until the rest is within the limit; not the one that was just written.
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

    fn path(&self, key: Key) -> PathBuf {
        self.folder.join(format!("{key}.{EXTENSION}"))
    }

    fn entry(&self, path: PathBuf) -> Option<Entry> {
        let metadata = fs::metadata(&path).ok()?;
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let readable = file::open(&path).ok().filter(|read| read.header.total_bytes() == Some(read.length));
        Some(Entry { path, bytes: metadata.len(), used, graph: readable.map(|read| read.header.graph()) })
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let is_key =
            |stem: &std::ffi::OsStr| stem.len() == 32 && stem.to_string_lossy().bytes().all(|b| b.is_ascii_hexdigit());
        let is_graph = move |path: &PathBuf| {
            path.extension().is_some_and(|e| e == EXTENSION) && path.file_stem().is_some_and(is_key) && path.is_file()
        };
        self.all_files().filter(is_graph)
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
