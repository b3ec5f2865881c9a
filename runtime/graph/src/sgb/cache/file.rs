//! The file of a stored graph: a header of 96 bytes, the steps (informative), and the arrays as they are in memory.
//!
//! ```text
//! 0  magic, 8 bytes       32 num_src   56 build time, us   80 checksum, 16 bytes
//! 8  version, flags       40 num_dst   64 bytes of steps
//! 16 key, 16 bytes        48 pairs     72 0
//! 96 steps, zeros up to a multiple of 8; indptr u64[num_dst + 1]; src u32[pairs]; counts f32[pairs] if counted
//! ```
//!
//! All numbers are little-endian. The checksum (XXH3, 128 bits) covers the bytes before it, the steps, and the
//! checksums of the arrays in blocks of 1 MiB, so that several threads can read and verify.

use std::fs::File;
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use rayon::prelude::*;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::key::{Key, VERSION};
use super::{EntryGraph, Incoming};
use crate::csr::{Adjacency, row_blocks};
use crate::files;
use crate::memory::zeros;

const MAGIC: [u8; 8] = *b"hgnncSG\n";

const HEADER_BYTES: usize = 96;

/// Offset of the checksum in the header.
const CHECKSUM: usize = 80;

const PIECE: usize = 1 << 20;

/// Limit of the informative steps; longer ones are truncated.
const MAX_STEPS_BYTES: usize = 4096;

const COUNTED: u32 = 1;

/// In-edges to be stored.
pub struct Stored<'a> {
    pub num_src: usize,
    pub indptr: &'a [u64],
    pub src: &'a [u32],
    pub counts: Option<&'a [f32]>,
}

impl Stored<'_> {
    /// The arrays as bytes, in file order.
    fn arrays(&self) -> [&[u8]; 3] {
        let counts = self.counts.map_or(&[][..], bytemuck::cast_slice);
        [bytemuck::cast_slice(self.indptr), bytemuck::cast_slice(self.src), counts]
    }
}

/// The header of a file.
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Header {
    pub key: Key,
    pub counted: bool,
    pub num_src: u64,
    pub num_dst: u64,
    pub pairs: u64,
    build_us: u64,
    steps: Vec<u8>,
    checksum: u128,
}

impl Header {
    pub fn new(key: Key, steps: &str, graph: &Stored<'_>, build: Duration) -> Header {
        let end = (0..=steps.len().min(MAX_STEPS_BYTES)).rev().find(|&end| steps.is_char_boundary(end)).unwrap_or(0);
        let mut steps = steps.as_bytes()[..end].to_vec();
        steps.resize(end.next_multiple_of(8), 0);
        let mut header = Header {
            key,
            counted: graph.counts.is_some(),
            num_src: graph.num_src as u64,
            num_dst: graph.indptr.len() as u64 - 1,
            pairs: graph.src.len() as u64,
            build_us: build.as_micros() as u64,
            steps,
            checksum: 0,
        };
        header.checksum = header.checksum_with(&checksums(&graph.arrays()));
        header
    }

    /// Length of the whole file in bytes; `None` on overflow.
    pub fn total_bytes(&self) -> Option<u64> {
        let indptr = self.num_dst.checked_add(1)?.checked_mul(8)?;
        let entries = self.pairs.checked_mul(if self.counted { 8 } else { 4 })?;
        ((HEADER_BYTES + self.steps.len()) as u64).checked_add(indptr)?.checked_add(entries)
    }

    pub fn graph(&self) -> EntryGraph {
        let text = String::from_utf8_lossy(&self.steps);
        EntryGraph {
            steps: text.trim_end_matches('\0').to_owned(),
            num_src: self.num_src,
            num_dst: self.num_dst,
            pairs: self.pairs,
            counted: self.counted,
            build: Duration::from_micros(self.build_us),
        }
    }

    fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(if self.counted { COUNTED } else { 0 }).to_le_bytes());
        put(16, &self.key.0.to_le_bytes());
        for (at, number) in [
            (32, self.num_src),
            (40, self.num_dst),
            (48, self.pairs),
            (56, self.build_us),
            (64, self.steps.len() as u64),
        ] {
            put(at, &number.to_le_bytes());
        }
        put(CHECKSUM, &self.checksum.to_le_bytes());
        bytes
    }

    fn checksum_with(&self, pieces: &[u128]) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(&self.bytes()[..CHECKSUM]);
        hash.update(&self.steps);
        pieces.iter().for_each(|piece| hash.update(&piece.to_le_bytes()));
        hash.digest128()
    }
}

/// An open file whose header was parsed.
pub struct Read {
    /// Positioned at the arrays.
    pub file: File,
    pub header: Header,
    pub length: u64,
}

/// Opens a file of this version and parses its header. Does not read the arrays.
pub fn open(path: &Path) -> io::Result<Read> {
    let mut file = files::open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact(&mut bytes)?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let wide = |at: usize| u128::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let [version, flags] = [8, 12].map(|at| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i])));
    let steps = number(64);
    if bytes[..8] != MAGIC || version != VERSION || flags > COUNTED || number(72) != 0 {
        return Err(foreign());
    }
    if steps % 8 != 0 || steps > MAX_STEPS_BYTES as u64 {
        return Err(foreign());
    }
    let mut header = Header {
        key: Key(wide(16)),
        counted: flags == COUNTED,
        num_src: number(32),
        num_dst: number(40),
        pairs: number(48),
        build_us: number(56),
        steps: vec![0; steps as usize],
        checksum: wide(CHECKSUM),
    };
    file.read_exact(&mut header.steps)?;
    Ok(Read { file, header, length })
}

/// Reads the arrays after the header of a file whose length is [`Header::total_bytes`].
///
/// Errors when they cannot be read, fail the checksum, or are not the edges of a graph.
pub fn read_arrays(file: &mut File, header: &Header) -> io::Result<Incoming> {
    let (rows, pairs) = (header.num_dst as usize, header.pairs as usize);
    let (mut indptr, mut src) = (zeros::<u64>(rows + 1), zeros::<u32>(pairs));
    let mut counts: Vec<f32> = zeros(if header.counted { pairs } else { 0 });
    let arrays = [
        bytemuck::cast_slice_mut(&mut indptr),
        bytemuck::cast_slice_mut(&mut src),
        bytemuck::cast_slice_mut::<f32, u8>(&mut counts),
    ];
    let mut at = (HEADER_BYTES + header.steps.len()) as u64;
    let mut pieces: Vec<(u64, &mut [u8])> = vec![];
    for piece in arrays.into_iter().flat_map(|array| array.chunks_mut(PIECE)) {
        let next = at + piece.len() as u64;
        pieces.push((at, piece));
        at = next;
    }
    let file = &*file;
    let checked = pieces.into_par_iter().map(|(at, piece)| {
        read_at(file, at, piece)?;
        Ok(xxh3_128(piece))
    });
    let checksums: Vec<u128> = checked.collect::<io::Result<_>>()?;
    if header.checksum_with(&checksums) != header.checksum || !are_edges(&indptr, &src, header.num_src) {
        return Err(foreign());
    }
    Ok((
        Adjacency { indptr: indptr.into(), indices: src.into(), eids: vec![].into() },
        header.counted.then_some(counts),
    ))
}

/// Whether the sources of each row ascend strictly and are in range. A checksum does not authenticate a file, and
/// kernels index by edges without bounds checks.
fn are_edges(indptr: &[u64], src: &[u32], num_src: u64) -> bool {
    let framed = indptr.first() == Some(&0) && indptr.last() == Some(&(src.len() as u64));
    framed && indptr.is_sorted() && {
        let blocks = row_blocks(indptr, 4 * rayon::current_num_threads());
        blocks.into_par_iter().all(|rows| {
            indptr[rows.start..=rows.end].windows(2).all(|row| {
                let row = &src[row[0] as usize..row[1] as usize];
                // No early exit on the first pair, so the check runs at memory bandwidth.
                let descents = row.windows(2).fold(0u32, |sum, pair| sum + u32::from(pair[0] >= pair[1]));
                descents == 0 && row.last().is_none_or(|&last| u64::from(last) < num_src)
            })
        })
    }
}

/// Writes header, steps and arrays.
pub fn write(file: &mut File, header: &Header, graph: &Stored<'_>) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header.bytes())?;
    file.write_all(&header.steps)?;
    graph.arrays().iter().try_for_each(|array| file.write_all(array))
}

fn checksums(arrays: &[&[u8]]) -> Vec<u128> {
    let pieces: Vec<&[u8]> = arrays.iter().flat_map(|array| array.chunks(PIECE)).collect();
    pieces.into_par_iter().map(xxh3_128).collect()
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not the file of a semantic graph")
}

#[cfg(unix)]
fn read_at(file: &File, at: u64, into: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, at)
}

#[cfg(windows)]
fn read_at(file: &File, mut at: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, into, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => (at, into) = (at + n as u64, &mut into[n..]),
        }
    }
    Ok(())
}
