//! Reads and writes NumPy's `.npy` files.
//!
//! Versions 1 to 3 of the format, little-endian numbers, one or more axes, C or Fortran order. Files are memory-mapped;
//! arrays used as indices are copied before they are checked, so that a later change of the file cannot invalidate the
//! check, while floating-point values stay in the mapping. Structured dtypes, strings, objects and big-endian files are
//! refused.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use half::f16;
use memmap2::Mmap;
use rayon::prelude::*;

use crate::files;

/// Below this many elements one thread is faster than several.
const PARALLEL_ELEMENTS: usize = 1 << 15;

/// The element type of a `.npy` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// Boolean, `|b1` in the header.
    Bool,
    /// Unsigned 8-bit integer, `|u1` in the header.
    U8,
    /// Signed 32-bit integer, `<i4` in the header.
    I32,
    /// Unsigned 32-bit integer, `<u4` in the header.
    U32,
    /// Signed 64-bit integer, `<i8` in the header.
    I64,
    /// Half-precision float, `<f2` in the header.
    F16,
    /// Single-precision float, `<f4` in the header.
    F32,
    /// Double-precision float, `<f8` in the header.
    F64,
}

impl Dtype {
    /// Size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::Bool | Dtype::U8 => 1,
            Dtype::F16 => 2,
            Dtype::I32 | Dtype::U32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::F64 => 8,
        }
    }

    /// Whether elements are integers or booleans.
    pub fn is_integer(self) -> bool {
        !matches!(self, Dtype::F16 | Dtype::F32 | Dtype::F64)
    }

    fn descr(self) -> &'static str {
        match self {
            Dtype::Bool => "|b1",
            Dtype::U8 => "|u1",
            Dtype::I32 => "<i4",
            Dtype::U32 => "<u4",
            Dtype::I64 => "<i8",
            Dtype::F16 => "<f2",
            Dtype::F32 => "<f4",
            Dtype::F64 => "<f8",
        }
    }

    fn from_descr(descr: &str) -> Option<Dtype> {
        let (order, kind) = descr.split_at_checked(1)?;
        if order == ">" {
            return None;
        }
        match (order, kind) {
            ("<" | "|" | "=", "b1") => Some(Dtype::Bool),
            ("<" | "|" | "=", "u1") => Some(Dtype::U8),
            ("<" | "=", "i4") => Some(Dtype::I32),
            ("<" | "=", "u4") => Some(Dtype::U32),
            ("<" | "=", "i8") => Some(Dtype::I64),
            ("<" | "=", "f2") => Some(Dtype::F16),
            ("<" | "=", "f4") => Some(Dtype::F32),
            ("<" | "=", "f8") => Some(Dtype::F64),
            _ => None,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dtype::Bool => "bool",
            Dtype::U8 => "uint8",
            Dtype::I32 => "int32",
            Dtype::U32 => "uint32",
            Dtype::I64 => "int64",
            Dtype::F16 => "float16",
            Dtype::F32 => "float32",
            Dtype::F64 => "float64",
        })
    }
}

/// Why a file is not a readable `.npy` file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpyProblem {
    /// The operating system's message on opening or mapping the file.
    #[error("cannot be read: {0}")]
    Io(String),
    /// The first bytes are not `\x93NUMPY`.
    #[error("is not a .npy file (its first bytes are not \\x93NUMPY)")]
    Magic,
    /// An unknown format version.
    #[error("has .npy format version {0}, but only versions 1 to 3 are known")]
    Version(u8),
    /// The file ends inside the header.
    #[error("is truncated: the header needs {expected} bytes, the file has {found}")]
    HeaderTruncated {
        /// Length of the magic, the version and the header, in bytes.
        expected: u64,
        /// Length of the file in bytes.
        found: u64,
    },
    /// The header is not a dictionary of the prescribed form.
    #[error("has a malformed header: {0}")]
    Header(String),
    /// The `descr` of an unsupported element type.
    #[error(
        "has element type {0}, which is not supported (little-endian bool, uint8, int32, uint32, int64, float16, float32, float64)"
    )]
    Descr(String),
    /// The data are shorter or longer than the shape requires.
    #[error(
        "should have {expected} bytes of data (shape {shape:?}, {dtype}), but has {found}{}",
        if found < expected { ": the file is truncated" } else { "" }
    )]
    Length {
        /// Shape in the header.
        shape: Vec<usize>,
        /// Element type in the header.
        dtype: Dtype,
        /// Bytes that the shape and the type require.
        expected: u64,
        /// Bytes after the header.
        found: u64,
    },
}

/// The bytes of a file.
#[derive(Clone, Debug)]
enum Contents {
    Mapped(Arc<Mmap>),
    Owned(Arc<Vec<u8>>),
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Contents::Mapped(map) => map,
            Contents::Owned(bytes) => bytes,
        }
    }
}

/// An open `.npy` file, mapped or in memory, whose length agrees with its header.
#[derive(Clone, Debug)]
pub struct Npy {
    contents: Contents,
    offset: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    fortran: bool,
}

impl Npy {
    /// Opens and maps `path` and checks header and length; does not read the elements.
    pub fn open(path: &Path) -> Result<Npy, NpyProblem> {
        let map = map_file(path).map_err(|e| NpyProblem::Io(e.to_string()))?;
        Npy::parse(Contents::Mapped(Arc::new(map)))
    }

    /// Takes the contents of a file, such as one in an archive.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Npy, NpyProblem> {
        Npy::parse(Contents::Owned(Arc::new(bytes)))
    }

    fn parse(contents: Contents) -> Result<Npy, NpyProblem> {
        let bytes: &[u8] = &contents;
        let found = bytes.len() as u64;
        if bytes.len() < 10 || &bytes[..6] != b"\x93NUMPY" {
            return Err(NpyProblem::Magic);
        }
        let (start, len) = match bytes[6] {
            1 => (10, u64::from(u16::from_le_bytes([bytes[8], bytes[9]]))),
            2 | 3 if bytes.len() < 12 => {
                return Err(NpyProblem::HeaderTruncated { expected: 12, found });
            }
            2 | 3 => (12, u64::from(u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]))),
            v => return Err(NpyProblem::Version(v)),
        };
        let expected = start + len;
        if found < expected {
            return Err(NpyProblem::HeaderTruncated { expected, found });
        }
        // `expected <= bytes.len()`, so both fit a usize.
        let offset = expected as usize;
        let text = std::str::from_utf8(&bytes[start as usize..offset])
            .map_err(|_| NpyProblem::Header("it is not text".into()))?;
        let header = Header::parse(text)?;
        let dtype = Dtype::from_descr(&header.descr).ok_or_else(|| NpyProblem::Descr(format!("`{}`", header.descr)))?;
        let data = found - expected;
        let need = header
            .shape
            .iter()
            .try_fold(dtype.bytes() as u64, |n, &d| n.checked_mul(d as u64))
            .ok_or_else(|| NpyProblem::Header(format!("shape {:?} does not fit 64 bits", header.shape)))?;
        if need != data {
            return Err(NpyProblem::Length { shape: header.shape, dtype, expected: need, found: data });
        }
        Ok(Npy { contents, offset, dtype, shape: header.shape, fortran: header.fortran })
    }

    /// The element type stored in the file.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape, slowest axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements as they are stored, in the order of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.contents[self.offset..]
    }

    /// Whether the first axis runs fastest in the file. Of no meaning for an array of one axis.
    pub fn is_fortran(&self) -> bool {
        self.fortran && self.shape.len() > 1
    }

    /// Lets the operating system take back the pages of a mapped file that were read so far. They are read from the file
    /// again if they are needed.
    pub fn release_pages(&self) {
        if let Contents::Mapped(map) = &self.contents {
            release(map);
        }
    }

    /// All elements in row-major order as integers, or `None` for a floating-point file.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        let all = match self.dtype {
            Dtype::Bool | Dtype::U8 => self.bytes().iter().map(|&b| i64::from(b)).collect(),
            Dtype::I32 => self.words::<4>().map(|b| i64::from(i32::from_le_bytes(b))).collect(),
            Dtype::U32 => self.words::<4>().map(|b| i64::from(u32::from_le_bytes(b))).collect(),
            Dtype::I64 => self.words::<8>().map(i64::from_le_bytes).collect(),
            Dtype::F16 | Dtype::F32 | Dtype::F64 => return None,
        };
        Some(self.row_major(all))
    }

    /// Elements `begin..end` of the flattened row-major order as integers; `None` for a floating-point file or a range
    /// outside it. Copies no more than the range of a C-ordered file.
    pub fn range_to_i64(&self, begin: usize, end: usize) -> Option<Vec<i64>> {
        if self.fortran && self.shape.len() > 1 {
            return self.to_i64()?.get(begin..end).map(<[i64]>::to_vec);
        }
        let width = self.dtype.bytes();
        let data = self.bytes().get(begin.checked_mul(width)?..end.checked_mul(width)?)?;
        Some(match self.dtype {
            Dtype::Bool | Dtype::U8 => data.iter().map(|&b| i64::from(b)).collect(),
            Dtype::I32 => words::<4>(data).map(|b| i64::from(i32::from_le_bytes(b))).collect(),
            Dtype::U32 => words::<4>(data).map(|b| i64::from(u32::from_le_bytes(b))).collect(),
            Dtype::I64 => words::<8>(data).map(i64::from_le_bytes).collect(),
            Dtype::F16 | Dtype::F32 | Dtype::F64 => return None,
        })
    }

    /// Elements `begin..end` of the flattened row-major order as ids below `bound`, read by several threads without
    /// other copies. `None` for an element out of bounds, a floating-point file, a Fortran-ordered file of several
    /// axes, and a range outside the file; [`range_to_i64`](Self::range_to_i64) then gives the values for a message.
    pub fn range_to_ids(&self, begin: usize, end: usize, bound: usize) -> Option<Vec<u32>> {
        if self.fortran && self.shape.len() > 1 {
            return None;
        }
        let width = self.dtype.bytes();
        let data = self.bytes().get(begin.checked_mul(width)?..end.checked_mul(width)?)?;
        // Each element is read once, so the checked value is the returned one. `u32::MAX` marks a value that is no id.
        let id = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
        let ids: Vec<u32> = match self.dtype {
            Dtype::I32 => in_parallel::<4, _>(data, |word| id(i64::from(i32::from_le_bytes(word)))),
            Dtype::U32 => in_parallel::<4, _>(data, u32::from_le_bytes),
            Dtype::I64 => in_parallel::<8, _>(data, |word| id(i64::from_le_bytes(word))),
            Dtype::Bool | Dtype::U8 => in_parallel::<1, _>(data, |[byte]| u32::from(byte)),
            Dtype::F16 | Dtype::F32 | Dtype::F64 => return None,
        };
        let bound = u32::try_from(bound).unwrap_or(u32::MAX);
        // Whole blocks without early exit, so that the loop vectorizes.
        let below = |ids: &[u32]| ids.iter().fold(0, |most, &id| most.max(id)) < bound;
        ids.par_chunks(PARALLEL_ELEMENTS).all(below).then_some(ids)
    }

    /// All elements in row-major order as `f32`; `None` unless they are floats. Those of a float32 file are left in the
    /// mapping if the layout allows; float16 and float64 are converted.
    pub fn to_f32(&self) -> Option<FloatArray> {
        let converted = match self.dtype {
            Dtype::F16 => Some(in_parallel::<2, _>(self.bytes(), |word| f16::from_le_bytes(word).to_f32())),
            Dtype::F64 => Some(in_parallel::<8, _>(self.bytes(), |word| f64::from_le_bytes(word) as f32)),
            Dtype::F32 => None,
            _ => return None,
        };
        if let Some(all) = converted {
            return Some(FloatArray(Storage::Owned(self.row_major(all))));
        }
        let in_place = cfg!(target_endian = "little")
            && !(self.fortran && self.shape.len() > 1)
            && bytemuck::try_cast_slice::<u8, f32>(self.bytes()).is_ok();
        if let (true, Contents::Mapped(map)) = (in_place, &self.contents) {
            return Some(FloatArray(Storage::Mapped { map: Arc::clone(map), bytes: self.offset..map.len() }));
        }
        let all = self.words::<4>().map(f32::from_le_bytes).collect();
        Some(FloatArray(Storage::Owned(self.row_major(all))))
    }

    fn words<const N: usize>(&self) -> impl Iterator<Item = [u8; N]> + '_ {
        words(self.bytes())
    }

    /// Reorders the elements of a Fortran-ordered file; leaves others as they are.
    fn row_major<T: Copy>(&self, all: Vec<T>) -> Vec<T> {
        if !self.fortran || self.shape.len() < 2 {
            return all;
        }
        // In Fortran order the first axis runs fastest: element (i0, i1, …) lies at Σ i_a · Π_{b<a} shape_b.
        let mut strides = Vec::with_capacity(self.shape.len());
        let mut stride = 1;
        for &d in &self.shape {
            strides.push(stride);
            stride *= d;
        }
        (0..all.len())
            .map(|flat| {
                let mut rest = flat;
                let mut at = 0;
                for (&d, &s) in self.shape.iter().zip(&strides).rev() {
                    at += rest % d * s;
                    rest /= d;
                }
                all[at]
            })
            .collect()
    }
}

fn in_parallel<const N: usize, T: Send>(data: &[u8], convert: impl Fn([u8; N]) -> T + Sync) -> Vec<T> {
    data.as_chunks::<N>().0.par_iter().with_min_len(PARALLEL_ELEMENTS).map(|&word| convert(word)).collect()
}

fn words<const N: usize>(data: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    data.as_chunks::<N>().0.iter().copied()
}

fn map_file(path: &Path) -> io::Result<Mmap> {
    let file = files::open(path)?;
    // SAFETY: the mapping is read-only and every byte pattern is a valid `u8` and `f32`. Indices are copied out before
    // they are checked, so a concurrent change of the file gives wrong numbers, never an access out of bounds.
    #[allow(unsafe_code)]
    unsafe {
        Mmap::map(&file)
    }
}

/// Pages of smaller files are not worth a call.
const RELEASED: usize = 4 << 20;

/// Row-major `f32` values: owned, in a mapped file, or in memory that something else owns. Dereferences to `[f32]`.
#[derive(Clone, Debug)]
pub struct FloatArray(Storage);

#[derive(Clone)]
enum Storage {
    Owned(Vec<f32>),
    Mapped { map: Arc<Mmap>, bytes: Range<usize> },
    Shared { owner: SharedFloats, part: Range<usize> },
}

/// An owner of `f32` values, such as an array of another language. It returns the same values on each call.
pub type SharedFloats = Arc<dyn AsRef<[f32]> + Send + Sync>;

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Storage::Owned(values) => f.debug_tuple("Owned").field(values).finish(),
            Storage::Mapped { bytes, .. } => f.debug_struct("Mapped").field("bytes", bytes).finish_non_exhaustive(),
            Storage::Shared { owner, part } => {
                f.debug_tuple("Shared").field(&&(**owner).as_ref()[part.clone()]).finish()
            }
        }
    }
}

impl FloatArray {
    /// Values that stay where they are, and that `owner` keeps.
    pub fn shared(owner: SharedFloats) -> FloatArray {
        let part = 0..(*owner).as_ref().len();
        FloatArray(Storage::Shared { owner, part })
    }

    /// Some of the values, copied only if they are owned.
    ///
    /// # Panics
    /// Without such values.
    pub fn part(&self, range: Range<usize>) -> FloatArray {
        // In bounds, or this panics.
        let values = &self[range.clone()];
        match &self.0 {
            Storage::Owned(_) => values.to_vec().into(),
            Storage::Mapped { map, bytes } => {
                let size = size_of::<f32>();
                let bytes = bytes.start + size * range.start..bytes.start + size * range.end;
                FloatArray(Storage::Mapped { map: Arc::clone(map), bytes })
            }
            Storage::Shared { owner, part } => {
                let part = part.start + range.start..part.start + range.end;
                FloatArray(Storage::Shared { owner: Arc::clone(owner), part })
            }
        }
    }

    /// Whether the values lie in a mapped file instead of on the heap.
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Storage::Mapped { .. })
    }

    /// Lets the operating system take back the pages of values in a mapped file, which are read from it again if they are
    /// needed. They count as memory of this process otherwise, though a copy of them is used.
    pub fn release_pages(&self) {
        if let Storage::Mapped { map, .. } = &self.0 {
            release(map);
        }
    }
}

fn release(map: &Mmap) {
    if map.len() >= RELEASED {
        // SAFETY: the mapping is shared and read-only, so that its pages are those of the file, also afterwards.
        // A failure leaves them in memory.
        #[cfg(unix)]
        #[allow(unsafe_code)]
        let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    }
}

impl Deref for FloatArray {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            Storage::Owned(values) => values,
            // Alignment and length were checked on construction, and a mapping does not move.
            Storage::Mapped { map, bytes } => bytemuck::cast_slice(&map[bytes.clone()]),
            Storage::Shared { owner, part } => &(**owner).as_ref()[part.clone()],
        }
    }
}

impl Default for FloatArray {
    fn default() -> FloatArray {
        vec![].into()
    }
}

impl From<Vec<f32>> for FloatArray {
    fn from(values: Vec<f32>) -> FloatArray {
        FloatArray(Storage::Owned(values))
    }
}

impl PartialEq for FloatArray {
    fn eq(&self, other: &FloatArray) -> bool {
        **self == **other
    }
}

/// The dictionary in a `.npy` header.
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Parses the Python literal `{'descr': '<i4', 'fortran_order': False, 'shape': (2, 5), }`; keys in any order.
    fn parse(text: &str) -> Result<Header, NpyProblem> {
        let bad = |what: &str| NpyProblem::Header(what.to_string());
        let mut rest = text.trim().strip_prefix('{').ok_or_else(|| bad("it does not start with `{`"))?;
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        loop {
            rest = rest.trim_start();
            if rest.starts_with('}') {
                break;
            }
            let (key, after) = quoted(rest).ok_or_else(|| bad("a key is not a string"))?;
            rest = after.trim_start().strip_prefix(':').ok_or_else(|| bad("a key has no `:`"))?.trim_start();
            match key {
                "descr" => {
                    if rest.starts_with('[') {
                        return Err(NpyProblem::Descr("a structure".into()));
                    }
                    let (value, after) = quoted(rest).ok_or_else(|| bad("`descr` is not a string"))?;
                    descr = Some(value.to_string());
                    rest = after;
                }
                "fortran_order" => {
                    let value = rest.starts_with("True");
                    rest = rest
                        .strip_prefix(if value { "True" } else { "False" })
                        .ok_or_else(|| bad("`fortran_order` is neither True nor False"))?;
                    fortran = Some(value);
                }
                "shape" => {
                    let (inside, after) = rest
                        .strip_prefix('(')
                        .and_then(|r| r.split_once(')'))
                        .ok_or_else(|| bad("`shape` is not a tuple"))?;
                    let dims: Result<Vec<usize>, _> =
                        inside.split(',').map(str::trim).filter(|d| !d.is_empty()).map(str::parse).collect();
                    shape = Some(dims.map_err(|_| NpyProblem::Header(format!("`shape` is ({inside})")))?);
                    rest = after;
                }
                _ => return Err(NpyProblem::Header(format!("unknown key `{key}`"))),
            }
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        Ok(Header {
            descr: descr.ok_or_else(|| bad("`descr` is missing"))?,
            fortran: fortran.ok_or_else(|| bad("`fortran_order` is missing"))?,
            shape: shape.ok_or_else(|| bad("`shape` is missing"))?,
        })
    }
}

/// Splits a leading Python string literal without escapes off `text`.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// Element types that [`write()`] can store.
pub trait Element: Copy {
    /// Element type in the header.
    const DTYPE: Dtype;
    /// Appends the little-endian bytes of `self`.
    fn put(self, out: &mut Vec<u8>);
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => {$(
        impl Element for $t {
            const DTYPE: Dtype = Dtype::$d;
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
element!(u8 => U8, i32 => I32, u32 => U32, i64 => I64, f16 => F16, f32 => F32, f64 => F64);

/// Writes `values` (row-major, of the given shape) as a version 1 `.npy` file.
///
/// Errors when the product of `shape` is not `values.len()` or the file cannot be written.
pub fn write<T: Element>(path: &Path, shape: &[usize], values: &[T]) -> io::Result<()> {
    write_rows::<T, T>(path, shape, &[values])
}

/// Writes an array of the given shape whose values, row-major, stand in several slices, and are converted to the type of
/// the file.
///
/// Errors when the product of `shape` is not the number of values, a value does not fit, or the file cannot be written.
pub fn write_rows<T: Element + TryFrom<U>, U: Copy>(path: &Path, shape: &[usize], rows: &[&[U]]) -> io::Result<()> {
    const BUFFER: usize = 1 << 16;
    let mut out = Stream::<T>::create(path, shape)?;
    let mut bytes = Vec::with_capacity(BUFFER * T::DTYPE.bytes());
    for chunk in rows.iter().flat_map(|row| row.chunks(BUFFER)) {
        bytes.clear();
        for &value in chunk {
            let value = T::try_from(value).map_err(|_| io::Error::other(format!("a value is no {}", T::DTYPE)))?;
            value.put(&mut bytes);
        }
        out.append(&bytes)?;
    }
    out.finish()
}

/// `values` (row-major, of the given shape) as the contents of a version 1 `.npy` file.
///
/// Errors when the product of `shape` is not `values.len()`.
pub fn to_bytes<T: Element>(shape: &[usize], values: &[T]) -> io::Result<Vec<u8>> {
    if shape.iter().product::<usize>() != values.len() {
        return Err(wrong_count(shape, values.len()));
    }
    let mut out = header_bytes::<T>(shape);
    out.reserve(values.len() * T::DTYPE.bytes());
    for &value in values {
        value.put(&mut out);
    }
    Ok(out)
}

fn wrong_count(shape: &[usize], found: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("shape {shape:?} does not hold {found} values"))
}

/// Magic, version and header of a version 1 file.
fn header_bytes<T: Element>(shape: &[usize]) -> Vec<u8> {
    header(T::DTYPE, shape)
}

/// Magic, version and header of a version 1 file in C order, for arrays whose elements are written at their positions.
pub fn header(dtype: Dtype, shape: &[usize]) -> Vec<u8> {
    let dims = match shape {
        [one] => format!("({one},)"),
        more => format!("({})", more.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    };
    let mut header = format!("{{'descr': '{}', 'fortran_order': False, 'shape': {dims}, }}", dtype.descr());
    // The data start at a multiple of 64 bytes, so that a mapping is aligned.
    let pad = 64 - (10 + header.len() + 1) % 64;
    header.extend(std::iter::repeat_n(' ', pad % 64));
    header.push('\n');
    let mut out = Vec::with_capacity(10 + header.len());
    out.extend_from_slice(b"\x93NUMPY\x01\x00");
    out.extend_from_slice(&(header.len() as u16).to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out
}

/// A version 1 `.npy` file written piecewise, for arrays larger than memory.
pub struct Stream<T> {
    file: File,
    shape: Vec<usize>,
    written: usize,
    of: std::marker::PhantomData<T>,
}

impl<T: Element> Stream<T> {
    /// Creates the file and writes the header for `shape`.
    pub fn create(path: &Path, shape: &[usize]) -> io::Result<Stream<T>> {
        let mut file = File::create(path)?;
        file.write_all(&header_bytes::<T>(shape))?;
        Ok(Stream { file, shape: shape.to_vec(), written: 0, of: std::marker::PhantomData })
    }

    /// Appends the next values as little-endian bytes (see [`Element::put`]).
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() / T::DTYPE.bytes();
        self.file.write_all(bytes)
    }

    /// Errors when the values do not fill the shape.
    pub fn finish(self) -> io::Result<()> {
        if self.shape.iter().product::<usize>() == self.written {
            Ok(())
        } else {
            Err(wrong_count(&self.shape, self.written))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write(&path, &[2, 3], &[1i32, -2, 3, 4, 5, 6]).unwrap();
        let npy = Npy::open(&path).unwrap();
        assert_eq!((npy.dtype(), npy.shape()), (Dtype::I32, &[2, 3][..]));
        assert_eq!(npy.to_i64().unwrap(), [1, -2, 3, 4, 5, 6]);
        assert_eq!(npy.range_to_i64(2, 4).unwrap(), [3, 4]);
        assert_eq!(npy.range_to_i64(2, 7), None);
        assert_eq!((npy.range_to_ids(2, 4, 5), npy.range_to_ids(2, 4, 4)), (Some(vec![3, 4]), None));
        assert_eq!(npy.range_to_ids(2, 7, 5), None);
        assert!(npy.to_f32().is_none());

        write(&path, &[3], &[0.5f32, 1.5, -2.0]).unwrap();
        let floats = Npy::open(&path).unwrap().to_f32().unwrap();
        assert!(floats.is_mapped());
        assert_eq!(&floats[..], [0.5, 1.5, -2.0]);
        let floats = Npy::from_bytes(std::fs::read(&path).unwrap()).unwrap().to_f32().unwrap();
        assert!(!floats.is_mapped());
        assert_eq!(&floats[..], [0.5, 1.5, -2.0]);
    }

    #[test]
    fn a_file_written_in_pieces_is_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let (whole, pieces) = (dir.path().join("a.npy"), dir.path().join("b.npy"));
        let values = [3i32, -1, 4, 1, -5, 9];
        write(&whole, &[2, 3], &values).unwrap();
        let mut stream = Stream::<i32>::create(&pieces, &[2, 3]).unwrap();
        for part in values.chunks(4) {
            let mut bytes = Vec::new();
            part.iter().for_each(|&v| v.put(&mut bytes));
            stream.append(&bytes).unwrap();
        }
        stream.finish().unwrap();
        assert_eq!(std::fs::read(&whole).unwrap(), std::fs::read(&pieces).unwrap());
        // A stream whose shape is not filled is an error.
        let mut short = Stream::<i32>::create(&pieces, &[2, 3]).unwrap();
        short.append(&[0; 8]).unwrap();
        assert!(short.finish().unwrap_err().to_string().contains("does not hold 2 values"));
    }

    #[test]
    fn shared_values_are_not_copied() {
        let owner: SharedFloats = Arc::new(vec![1.0f32, 2.0]);
        let at = (*owner).as_ref().as_ptr();
        let array = FloatArray::shared(Arc::clone(&owner));
        assert_eq!((array.as_ptr(), &array[..]), (at, &[1.0, 2.0][..]));
        assert_eq!((array.clone().as_ptr(), array.is_mapped()), (at, false));
        assert_eq!(Arc::strong_count(&owner), 2);
    }

    #[test]
    fn fortran_order_is_transposed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write(&path, &[2, 3], &[1i32, 4, 2, 5, 3, 6]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes[10..128]).replace("False", "True ");
        let mut changed = bytes.clone();
        changed[10..128].copy_from_slice(text.as_bytes());
        std::fs::write(&path, changed).unwrap();
        assert_eq!(Npy::open(&path).unwrap().to_i64().unwrap(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn problems_say_what_was_expected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write(&path, &[3], &[1i64, 2, 3]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 4]).unwrap();
        let said = Npy::open(&path).unwrap_err().to_string();
        assert_eq!(said, "should have 24 bytes of data (shape [3], int64), but has 20: the file is truncated");
        std::fs::write(&path, &whole[..40]).unwrap();
        assert!(Npy::open(&path).unwrap_err().to_string().contains("the file has 40"));
        std::fs::write(&path, b"PK").unwrap();
        assert_eq!(Npy::open(&path).unwrap_err(), NpyProblem::Magic);
        std::fs::write(&path, b"").unwrap();
        assert!(Npy::open(&path).is_err());
        assert!(Npy::open(dir.path()).is_err());
        for (from, to) in [("<i8", ">i8"), ("<i8", "<c8"), ("(3,)", "(x,)"), ("descr", "desks"), ("False", "Maybe")] {
            let text = String::from_utf8_lossy(&whole[10..64]).replace(from, to);
            let mut changed = whole.clone();
            changed[10..10 + text.len()].copy_from_slice(text.as_bytes());
            std::fs::write(&path, changed).unwrap();
            assert!(Npy::open(&path).is_err(), "{to}");
        }
    }
}
