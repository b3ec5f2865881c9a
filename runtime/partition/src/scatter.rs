//! Writes a file in buckets: elements arrive in any order of buckets and stay in their order within one.
//!
//! The sizes of the buckets are known, so each has a place in the file and a buffer of its own, which is written at the
//! position of the bucket when it is full.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{PartitionError, Result};

/// Bytes of the buffers of a file together, unless these are smaller than [`LEAST`].
pub const BUFFERS: usize = 32 << 20;

/// The least and the most bytes of a buffer.
const LEAST: usize = 4 << 10;
const MOST: usize = 256 << 10;

/// Bytes of the buffers of one [`Scatter`] with this number of buckets.
pub fn buffer_bytes(buckets: usize) -> usize {
    buckets * (BUFFERS / buckets.max(1)).clamp(LEAST, MOST)
}

/// A file that is written at several positions.
#[derive(Clone)]
pub struct Target {
    file: Arc<File>,
    path: PathBuf,
}

impl Target {
    /// Creates a file that begins with `head` and is `bytes` long in all.
    pub fn create(path: &Path, head: &[u8], bytes: u64) -> Result<Target> {
        let io = || PartitionError::io(path);
        let file = File::create(path).map_err(io())?;
        file.set_len(bytes).map_err(io())?;
        let target = Target { file: Arc::new(file), path: path.to_path_buf() };
        target.write(head, 0)?;
        Ok(target)
    }

    /// Writes bytes at a position.
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        write_at(&self.file, bytes, at).map_err(PartitionError::io(&self.path))
    }
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

/// No two threads write one file.
#[cfg(not(unix))]
fn write_at(mut file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

/// The buckets of one array of a file.
pub struct Scatter {
    target: Target,
    /// The position in the file where the next bytes of each bucket are written.
    next: Vec<u64>,
    buffers: Vec<Vec<u8>>,
    capacity: usize,
}

impl Scatter {
    /// Buckets of these sizes in bytes, one behind the other from `base`.
    pub fn new(target: &Target, base: u64, sizes: impl IntoIterator<Item = u64>) -> Scatter {
        let mut at = base;
        let next: Vec<u64> = sizes
            .into_iter()
            .map(|size| {
                at += size;
                at - size
            })
            .collect();
        let capacity = buffer_bytes(next.len()) / next.len().max(1);
        // Memory is taken as buffers are filled.
        let buffers = vec![Vec::new(); next.len()];
        Scatter { target: target.clone(), next, buffers, capacity }
    }

    /// Appends bytes to a bucket.
    pub fn push(&mut self, bucket: usize, bytes: &[u8]) -> Result<()> {
        let buffer = &mut self.buffers[bucket];
        if buffer.len() + bytes.len() > self.capacity {
            self.flush(bucket)?;
            if bytes.len() >= self.capacity {
                self.target.write(bytes, self.next[bucket])?;
                self.next[bucket] += bytes.len() as u64;
                return Ok(());
            }
        }
        let buffer = &mut self.buffers[bucket];
        if buffer.capacity() == 0 {
            buffer.reserve_exact(self.capacity);
        }
        buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends a word of few bytes to a bucket: the same without a call to copy them.
    #[inline]
    pub fn push_word<const N: usize>(&mut self, bucket: usize, word: [u8; N]) -> Result<()> {
        let buffer = &mut self.buffers[bucket];
        // An empty buffer has no capacity yet.
        if buffer.capacity() - buffer.len() < N || buffer.len() + N > self.capacity {
            return self.push(bucket, &word);
        }
        buffer.extend_from_slice(&word);
        Ok(())
    }

    fn flush(&mut self, bucket: usize) -> Result<()> {
        let buffer = &mut self.buffers[bucket];
        if !buffer.is_empty() {
            self.target.write(buffer, self.next[bucket])?;
            self.next[bucket] += buffer.len() as u64;
            buffer.clear();
        }
        Ok(())
    }

    /// Writes what is left in the buffers.
    pub fn finish(mut self) -> Result<()> {
        (0..self.buffers.len()).try_for_each(|bucket| self.flush(bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_in_their_order_within_a_bucket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let target = Target::create(&path, b"head", 4 + 11).unwrap();
        let mut scatter = Scatter::new(&target, 4, [3, 0, 8]);
        for (bucket, bytes) in [(2, "abc"), (0, "x"), (2, "de"), (0, "yz"), (2, "fgh")] {
            scatter.push(bucket, bytes.as_bytes()).unwrap();
        }
        scatter.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"headxyzabcdefgh");
    }

    #[test]
    fn what_exceeds_a_buffer_is_written_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let long: Vec<u8> = (0..MOST as u32 + 9).map(|i| (i % 251) as u8).collect();
        let target = Target::create(&path, b"", long.len() as u64 + 2).unwrap();
        let mut scatter = Scatter::new(&target, 0, [long.len() as u64 + 2]);
        scatter.push(0, b"a").unwrap();
        scatter.push(0, &long).unwrap();
        scatter.push(0, b"b").unwrap();
        scatter.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [&b"a"[..], &long, b"b"].concat());
    }
}
