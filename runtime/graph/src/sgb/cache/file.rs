//! The file of a graph or of rows: a header of 96 bytes, a text (informative), and the arrays as they are in memory.
//!
//! ```text
//! 0  magic, 8 bytes       32 num_src or rows    56 build time, us   80 checksum, 16 bytes
//! 8  version, flags       40 num_dst or width   64 bytes of text
//! 16 key, 16 bytes        48 pairs or 0         72 0
//! 96 text, zeros up to a multiple of 8, then
//!    of a graph: indptr u64[num_dst + 1]; src u32[pairs]; counts f32[pairs] if counted
//!    of rows: f32[rows, width]
//! ```
//!
//! All numbers are little-endian. The checksum (XXH3, 128 bits) covers the bytes before it, the text, and the
//! checksums of the arrays in blocks of 1 MiB, so that several threads can read and verify.

use std::fs::File;
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use hgnnc_dataset::files;
use rayon::prelude::*;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::key::{Key, VERSION};
use super::{EntryContents, EntryGraph, EntryRows, Incoming};
use crate::csr::{Adjacency, row_blocks};
use crate::memory::zeros;

/// The contents of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The in-edges of a semantic graph.
    Graph,
    /// A matrix with a row for each vertex of a type.
    Rows,
}

impl Kind {
    /// Every kind, in a fixed order.
    pub const ALL: [Kind; 2] = [Kind::Graph, Kind::Rows];

    /// The extension of the file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Kind::Graph => "graph",
            Kind::Rows => "rows",
        }
    }

    fn magic(self) -> [u8; 8] {
        match self {
            Kind::Graph => *b"hgnncSG\n",
            Kind::Rows => *b"hgnncPR\n",
        }
    }
}

const HEADER_BYTES: usize = 96;

/// Offset of the checksum in the header.
const CHECKSUM: usize = 80;

const PIECE: usize = 1 << 20;

/// Limit of the informative text; longer ones are truncated.
const MAX_TEXT_BYTES: usize = 4096;

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
    pub fn arrays(&self) -> [&[u8]; 3] {
        let counts = self.counts.map_or(&[][..], bytemuck::cast_slice);
        [bytemuck::cast_slice(self.indptr), bytemuck::cast_slice(self.src), counts]
    }
}

/// The header of a file.
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Header {
    kind: Kind,
    pub key: Key,
    pub counted: bool,
    /// The numbers of sources, destinations and pairs of a graph, or of rows and their elements.
    pub sizes: [u64; 3],
    build_us: u64,
    text: Vec<u8>,
    checksum: u128,
}

impl Header {
    pub fn of_graph(key: Key, steps: &str, graph: &Stored<'_>, build: Duration) -> Header {
        let sizes = [graph.num_src, graph.indptr.len() - 1, graph.src.len()];
        Header::new((Kind::Graph, key), sizes, graph.counts.is_some(), (steps, build), &graph.arrays())
    }

    /// `rows` has `width` elements for each of `count` vertices.
    pub fn of_rows(key: Key, source: &str, (count, width): (usize, usize), rows: &[f32], build: Duration) -> Header {
        Header::new((Kind::Rows, key), [count, width, 0], false, (source, build), &[bytemuck::cast_slice(rows)])
    }

    fn new(
        (kind, key): (Kind, Key),
        sizes: [usize; 3],
        counted: bool,
        (text, build): (&str, Duration),
        arrays: &[&[u8]],
    ) -> Header {
        let end = (0..=text.len().min(MAX_TEXT_BYTES)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let mut text = text.as_bytes()[..end].to_vec();
        text.resize(end.next_multiple_of(8), 0);
        let (sizes, build_us) = (sizes.map(|size| size as u64), build.as_micros() as u64);
        let mut header = Header { kind, key, counted, sizes, build_us, text, checksum: 0 };
        header.checksum = header.checksum_with(&checksums(arrays));
        header
    }

    /// Length of the whole file in bytes; `None` on overflow.
    pub fn total_bytes(&self) -> Option<u64> {
        let arrays = match (self.kind, self.sizes) {
            (Kind::Graph, [_, num_dst, pairs]) => {
                let indptr = num_dst.checked_add(1)?.checked_mul(8)?;
                indptr.checked_add(pairs.checked_mul(if self.counted { 8 } else { 4 })?)?
            }
            (Kind::Rows, [rows, width, _]) => rows.checked_mul(width)?.checked_mul(4)?,
        };
        ((HEADER_BYTES + self.text.len()) as u64).checked_add(arrays)
    }

    pub fn contents(&self) -> EntryContents {
        let text = String::from_utf8_lossy(&self.text).trim_end_matches('\0').to_owned();
        let ([a, b, c], build) = (self.sizes, Duration::from_micros(self.build_us));
        match self.kind {
            Kind::Graph => EntryContents::Graph(EntryGraph {
                steps: text,
                num_src: a,
                num_dst: b,
                pairs: c,
                counted: self.counted,
                build,
            }),
            Kind::Rows => EntryContents::Rows(EntryRows { source: text, rows: a, width: b, build }),
        }
    }

    fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.kind.magic());
        put(8, &VERSION.to_le_bytes());
        put(12, &(if self.counted { COUNTED } else { 0 }).to_le_bytes());
        put(16, &self.key.0.to_le_bytes());
        for (at, number) in [
            (32, self.sizes[0]),
            (40, self.sizes[1]),
            (48, self.sizes[2]),
            (56, self.build_us),
            (64, self.text.len() as u64),
        ] {
            put(at, &number.to_le_bytes());
        }
        put(CHECKSUM, &self.checksum.to_le_bytes());
        bytes
    }

    fn checksum_with(&self, pieces: &[u128]) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(&self.bytes()[..CHECKSUM]);
        hash.update(&self.text);
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

/// Opens a file of this kind and version and parses its header. Does not read the arrays.
pub fn open(kind: Kind, path: &Path) -> io::Result<Read> {
    let mut file = files::open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact(&mut bytes)?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let wide = |at: usize| u128::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let [version, flags] = [8, 12].map(|at| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i])));
    let text = number(64);
    if bytes[..8] != kind.magic() || version != VERSION || flags > COUNTED || number(72) != 0 {
        return Err(foreign());
    }
    if text % 8 != 0 || text > MAX_TEXT_BYTES as u64 {
        return Err(foreign());
    }
    let mut header = Header {
        kind,
        key: Key(wide(16)),
        counted: flags == COUNTED,
        sizes: [32, 40, 48].map(number),
        build_us: number(56),
        text: vec![0; text as usize],
        checksum: wide(CHECKSUM),
    };
    file.read_exact(&mut header.text)?;
    Ok(Read { file, header, length })
}

/// Reads the rows after the header of a file of rows whose length is [`Header::total_bytes`].
///
/// Errors when they cannot be read or fail the checksum.
pub fn read_rows(file: &mut File, header: &Header) -> io::Result<Vec<f32>> {
    let [count, width, _] = header.sizes;
    let mut rows: Vec<f32> = zeros((count * width) as usize);
    read_checked(file, header, [bytemuck::cast_slice_mut(&mut rows)])?;
    Ok(rows)
}

/// Reads the arrays behind a header.
fn read_checked<'a>(file: &File, header: &Header, arrays: impl IntoIterator<Item = &'a mut [u8]>) -> io::Result<()> {
    let mut at = (HEADER_BYTES + header.text.len()) as u64;
    let mut pieces: Vec<(u64, &mut [u8])> = vec![];
    for piece in arrays.into_iter().flat_map(|array| array.chunks_mut(PIECE)) {
        let next = at + piece.len() as u64;
        pieces.push((at, piece));
        at = next;
    }
    let checked = pieces.into_par_iter().map(|(at, piece)| {
        read_at(file, at, piece)?;
        Ok(xxh3_128(piece))
    });
    let checksums: Vec<u128> = checked.collect::<io::Result<_>>()?;
    if header.checksum_with(&checksums) != header.checksum {
        return Err(foreign());
    }
    Ok(())
}

/// Reads the arrays after the header of a file of a graph whose length is [`Header::total_bytes`].
///
/// Errors when they cannot be read, fail the checksum, or are not the edges of a graph.
pub fn read_graph(file: &mut File, header: &Header) -> io::Result<Incoming> {
    let [num_src, rows, pairs] = header.sizes;
    let (rows, pairs) = (rows as usize, pairs as usize);
    let (mut indptr, mut src) = (zeros::<u64>(rows + 1), zeros::<u32>(pairs));
    let mut counts: Vec<f32> = zeros(if header.counted { pairs } else { 0 });
    let arrays = [
        bytemuck::cast_slice_mut(&mut indptr),
        bytemuck::cast_slice_mut(&mut src),
        bytemuck::cast_slice_mut::<f32, u8>(&mut counts),
    ];
    read_checked(file, header, arrays)?;
    if !are_edges(&indptr, &src, num_src) {
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

/// Writes header, text and arrays.
pub fn write(file: &mut File, header: &Header, arrays: &[&[u8]]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header.bytes())?;
    file.write_all(&header.text)?;
    arrays.iter().try_for_each(|array| file.write_all(array))
}

fn checksums(arrays: &[&[u8]]) -> Vec<u128> {
    let pieces: Vec<&[u8]> = arrays.iter().flat_map(|array| array.chunks(PIECE)).collect();
    pieces.into_par_iter().map(xxh3_128).collect()
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a file of this cache")
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
