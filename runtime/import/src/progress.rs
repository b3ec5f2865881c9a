//! How far an import is, and notes on what it decides.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Is told how far an import is, and its notes.
pub trait Observer: Send + Sync {
    /// `read` bytes of files are read, of `total` bytes; compressed files count as they are on the disk.
    fn progress(&self, read: u64, total: u64) {
        let _ = (read, total);
    }

    /// Something that the source has and a dataset does not hold, or that was decided in reading it.
    fn note(&self, text: &str) {
        let _ = text;
    }
}

/// Counts bytes for an [`Observer`]. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Progress(Option<Arc<Counts>>);

struct Counts {
    read: AtomicU64,
    total: AtomicU64,
    observer: Arc<dyn Observer>,
}

impl Progress {
    pub fn new(observer: Arc<dyn Observer>) -> Progress {
        Progress(Some(Arc::new(Counts { read: AtomicU64::new(0), total: AtomicU64::new(0), observer })))
    }

    /// Adds a file that will be read to the total.
    pub fn expect(&self, path: &Path) {
        if let (Some(counts), Ok(file)) = (&self.0, std::fs::metadata(path)) {
            counts.total.fetch_add(file.len(), Ordering::Relaxed);
        }
    }

    /// Adds bytes to those that are read.
    pub fn add(&self, bytes: u64) {
        if let Some(counts) = &self.0 {
            let read = counts.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
            counts.observer.progress(read, counts.total.load(Ordering::Relaxed));
        }
    }

    pub fn note(&self, text: impl AsRef<str>) {
        if let Some(counts) = &self.0 {
            counts.observer.note(text.as_ref());
        }
    }
}

/// Counts the bytes that are read through it.
pub(crate) struct Counted<R> {
    pub inner: R,
    pub progress: Progress,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.progress.add(read as u64);
        Ok(read)
    }
}
