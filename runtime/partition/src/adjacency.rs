//! Streams the neighbours of all vertices, in the order in which vertices are assigned.
//!
//! Edges come relation by relation, and an assignment needs all neighbours of a vertex at once. Each edge becomes two
//! half-edges, which are sorted by the position of their vertex outside of memory: they are written to buckets of
//! consecutive positions, and each bucket is sorted in memory by counting. What results is one file that each pass reads
//! from its beginning to its end: for each position the degree and the positions of the neighbours.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rayon::prelude::*;

use crate::error::{PartitionError, Result};
use crate::memory::sorted_words;
use crate::progress::{Observer, Progress, Stage};
use crate::scatter::{Scatter, Target};
use crate::source::Source;

/// Words of the file that are read or written at once.
const WORDS: usize = 1 << 20;

/// Bytes of a half-edge in a bucket: its position in the bucket, and that of its neighbour.
const HALF: u64 = 8;

/// Counts the edges of each vertex, at its position, self loops left out; only those of `used` relations. Takes the hash of
/// the edges of each relation.
///
/// # Errors
/// An edge whose end does not exist. A vertex with 2^32 - 1 edges or more.
pub fn degrees(
    source: &Source,
    used: &[bool],
    positions: &[u32],
    progress: &Progress<'_>,
) -> Result<(Vec<u32>, Vec<String>)> {
    let mut degrees = vec![0u32; positions.len()];
    let hashes = source.check(progress, |relation, chunk| {
        let (src, dst) = source.ends(relation);
        if !used[relation] {
            return;
        }
        for (&s, &d) in chunk.src.iter().zip(&chunk.dst) {
            let (s, d) = (src + s as usize, dst + d as usize);
            let one = u32::from(s != d);
            for end in [positions[s] as usize, positions[d] as usize] {
                degrees[end] = degrees[end].saturating_add(one);
            }
        }
    })?;
    if degrees.contains(&u32::MAX) {
        let reason = "a vertex has more than 2^32 - 2 edges; `--by hash` or `--by range` take any number";
        return Err(PartitionError::read(&source.folder, reason));
    }
    Ok((degrees, hashes))
}

/// Consecutive positions whose half-edges are sorted together.
struct Bucket {
    /// The first position, and the one behind the last.
    begin: usize,
    end: usize,
    halves: u64,
}

impl Bucket {
    /// Words of its neighbours, and of a degree for each position.
    fn words(&self) -> u64 {
        self.halves + (self.end - self.begin) as u64
    }
}

/// Divides the positions: a bucket has at most `most` words, or one vertex.
fn buckets(degrees: &[u32], most: u64) -> Vec<Bucket> {
    let mut all: Vec<Bucket> = vec![];
    for (position, &degree) in degrees.iter().enumerate() {
        match all.last_mut() {
            Some(last) if last.words() + u64::from(degree) < most => {
                last.end = position + 1;
                last.halves += u64::from(degree);
            }
            _ => all.push(Bucket { begin: position, end: position + 1, halves: u64::from(degree) }),
        }
    }
    all
}

/// Writes the neighbours of each position to `file`; the half-edges are in a file beside it meanwhile.
pub fn write(
    source: &Source,
    used: &[bool],
    positions: &[u32],
    degrees: &[u32],
    file: &Path,
    observer: &dyn Observer,
) -> Result<()> {
    let buckets = buckets(degrees, sorted_words(source.num_edges()));
    let halves: u64 = buckets.iter().map(|bucket| bucket.halves).sum();
    let progress = Progress::new(observer, Stage::Sort, 2 * HALF * halves)?;
    let unsorted = file.with_extension("halves");
    scatter(source, used, positions, &buckets, &unsorted, &progress)?;
    let words = halves + positions.len() as u64;
    drop(Target::create(file, &[], 4 * words)?);
    // Half-edges in front of each bucket in the unsorted file, and words in front of it in the sorted one.
    let mut before = vec![(0, 0)];
    for bucket in &buckets {
        let (halves, words) = before[before.len() - 1];
        before.push((halves + bucket.halves, words + bucket.words()));
    }
    (&buckets, &before[..buckets.len()]).into_par_iter().try_for_each(|(bucket, &(halves, words))| {
        let read = |error| PartitionError::read(&unsorted, error);
        let mut from = File::open(&unsorted).map_err(read)?;
        from.seek(SeekFrom::Start(HALF * halves)).map_err(read)?;
        let mut to = File::options().write(true).open(file).map_err(PartitionError::io(file))?;
        to.seek(SeekFrom::Start(4 * words)).map_err(PartitionError::io(file))?;
        let from = BufReader::with_capacity(WORDS, from.take(HALF * bucket.halves));
        let mut to = BufWriter::with_capacity(WORDS, to);
        let degrees = &degrees[bucket.begin..bucket.end];
        sort(degrees, from, &mut to, &unsorted, file)?;
        to.flush().map_err(PartitionError::io(file))?;
        progress.add(HALF * bucket.halves)
    })?;
    // Frees its disk; what fails to be removed is in the work folder, which is removed in the end.
    let _ = std::fs::remove_file(&unsorted);
    Ok(())
}

/// Sorts the half-edges of a bucket by their positions: for each one its degree and its neighbours.
fn sort(degrees: &[u32], mut halves: impl Read, out: &mut impl Write, halves_path: &Path, path: &Path) -> Result<()> {
    let read = |error| PartitionError::read(halves_path, error);
    if let &[degree] = degrees {
        // The only vertex of its bucket may have any number of edges: they need no order.
        out.write_all(&degree.to_le_bytes()).map_err(PartitionError::io(path))?;
        for _ in 0..degree {
            let mut half = [0; HALF as usize];
            halves.read_exact(&mut half).map_err(read)?;
            out.write_all(&half[..4]).map_err(PartitionError::io(path))?;
        }
        return Ok(());
    }
    // Where the next neighbour of each vertex is written; each has its degree in front.
    let mut left: usize = degrees.iter().map(|&degree| degree as usize).sum();
    let mut words = vec![0u32; left + degrees.len()];
    let mut next = Vec::with_capacity(degrees.len());
    let mut at = 0;
    for &degree in degrees {
        words[at] = degree;
        next.push(at as u32 + 1);
        at += 1 + degree as usize;
    }
    let mut bytes = vec![0; left.min(1 << 14) * HALF as usize];
    while left > 0 {
        let now = left.min(1 << 14);
        let bytes = &mut bytes[..now * HALF as usize];
        halves.read_exact(bytes).map_err(read)?;
        for half in bytes.as_chunks::<{ HALF as usize }>().0 {
            let half = u64::from_le_bytes(*half);
            let next = &mut next[(half >> 32) as usize];
            words[*next as usize] = half as u32;
            *next += 1;
        }
        left -= now;
    }
    out.write_all(bytemuck::cast_slice(&words)).map_err(PartitionError::io(path))
}

/// Writes both halves of each edge to the bucket of its vertex.
fn scatter(
    source: &Source,
    used: &[bool],
    positions: &[u32],
    buckets: &[Bucket],
    file: &Path,
    progress: &Progress<'_>,
) -> Result<()> {
    let sizes = buckets.iter().map(|bucket| HALF * bucket.halves);
    let target = Target::create(file, &[], sizes.clone().sum())?;
    let mut out = Scatter::new(&target, 0, sizes);
    // The bucket of a position: the one that is found by its leading bits, or one behind it.
    let shift = positions.len().max(1).ilog2().saturating_sub(16);
    let firsts: Vec<u32> = (0..=positions.len() >> shift)
        .map(|block| buckets.partition_point(|bucket| bucket.end <= block << shift) as u32)
        .collect();
    for relation in (0..source.edges.len()).filter(|&relation| used[relation]) {
        let (src, dst) = source.ends(relation);
        let edges = &source.edges[relation];
        edges.each(|range, chunk| {
            for (&s, &d) in chunk.src.iter().zip(&chunk.dst) {
                let (s, d) = (positions[src + s as usize], positions[dst + d as usize]);
                if s == d {
                    continue;
                }
                for (own, other) in [(s, d), (d, s)] {
                    let mut bucket = firsts[own as usize >> shift] as usize;
                    while buckets[bucket].end <= own as usize {
                        bucket += 1;
                    }
                    let local = u64::from(own) - buckets[bucket].begin as u64;
                    // The file is read by this program on this machine; the neighbour comes first.
                    out.push_word(bucket, (local << 32 | u64::from(other)).to_le_bytes())?;
                }
            }
            progress.add(2 * HALF * range.len() as u64)
        })?;
    }
    out.finish()
}

/// Reads the neighbours of the positions, one after the other.
pub struct Neighbours<'a> {
    path: &'a Path,
    file: File,
    words: Vec<u32>,
    at: usize,
    len: usize,
}

impl<'a> Neighbours<'a> {
    /// Before the first position.
    pub fn open(path: &'a Path) -> Result<Neighbours<'a>> {
        let file = File::open(path).map_err(|error| PartitionError::read(path, error))?;
        Ok(Neighbours { path, file, words: vec![0; WORDS], at: 0, len: 0 })
    }

    /// Some of the next words, at most `most` of them and at least one.
    fn words(&mut self, most: usize) -> Result<&[u32]> {
        if self.at == self.len {
            let wrong = |error: &dyn ToString| PartitionError::read(self.path, error.to_string());
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
            let mut read = 0;
            while read < bytes.len() {
                match self.file.read(&mut bytes[read..]).map_err(|error| wrong(&error))? {
                    0 => break,
                    more => read += more,
                }
            }
            (self.at, self.len) = (0, read / 4);
            if self.len == 0 {
                return Err(wrong(&"it ends early"));
            }
        }
        let from = self.at;
        self.at = self.len.min(from + most);
        Ok(&self.words[from..self.at])
    }

    /// The neighbours of the next position, in pieces. Returns their number.
    pub fn next(&mut self, mut with: impl FnMut(&[u32])) -> Result<usize> {
        let degree = self.words(1)?[0] as usize;
        let mut left = degree;
        while left > 0 {
            let piece = self.words(left)?;
            left -= piece.len();
            with(piece);
        }
        Ok(degree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_bounded_but_for_one_vertex() {
        let all = buckets(&[1, 2, 0, 9, 1, 1, 1], 6);
        let found: Vec<_> = all.iter().map(|bucket| (bucket.begin, bucket.end, bucket.halves)).collect();
        assert_eq!(found, [(0, 3, 3), (3, 4, 9), (4, 7, 3)]);
        assert!(buckets(&[], 3).is_empty());
    }
}
