//! Streams elements and rows of mapped `.npy` files.
//!
//! Pages are given back as they are passed, so that the memory of a process that reads a file once is a window of it.

use std::ops::Range;

use half::f16;
use hgnnc_dataset::npy::{Dtype, Npy};

/// Bytes of a file after which its pages are given back.
const WINDOW: usize = 32 << 20;

/// Counts bytes that were read of a file, and gives its pages back.
#[derive(Default)]
pub struct Window {
    read: usize,
}

impl Window {
    /// Counts `bytes` that were read of `npy`.
    pub fn pass(&mut self, npy: &Npy, bytes: usize) {
        self.read += bytes;
        if self.read >= WINDOW {
            self.read = 0;
            npy.release_pages();
        }
    }
}

/// An integer of a file as `i64`. `bytes` are those of one element.
fn integer(dtype: Dtype, bytes: &[u8]) -> i64 {
    match (dtype, bytes) {
        (Dtype::I32, &[a, b, c, d]) => i64::from(i32::from_le_bytes([a, b, c, d])),
        (Dtype::U32, &[a, b, c, d]) => i64::from(u32::from_le_bytes([a, b, c, d])),
        (Dtype::I64, &[a, b, c, d, e, f, g, h]) => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        (_, &[byte, ..]) => i64::from(byte),
        _ => 0,
    }
}

/// Integers of a file at equal distances.
#[derive(Clone, Debug)]
pub struct Integers {
    npy: Npy,
    /// Position of the first element in the file, and the distance to the next.
    first: usize,
    stride: usize,
    len: usize,
}

impl Integers {
    /// Elements `columns` of row `row` of an array of one or two axes.
    pub fn row(npy: &Npy, row: usize, columns: Range<usize>) -> Integers {
        let (first, stride) = match (npy.shape(), npy.is_fortran()) {
            (&[rows, _], true) => (columns.start * rows + row, rows),
            (&[_, all], false) => (row * all + columns.start, 1),
            _ => (columns.start, 1),
        };
        Integers { npy: npy.clone(), first, stride, len: columns.len() }
    }

    /// All elements of an array of one axis.
    pub fn all(npy: &Npy) -> Integers {
        Integers::row(npy, 0, 0..npy.shape().first().copied().unwrap_or(0))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The mapped file.
    pub fn npy(&self) -> &Npy {
        &self.npy
    }

    /// The element at `position`. Panics if there is none.
    pub fn at(&self, position: usize) -> i64 {
        let (width, dtype) = (self.npy.dtype().bytes(), self.npy.dtype());
        let from = (self.first + position * self.stride) * width;
        integer(dtype, &self.npy.bytes()[from..from + width])
    }

    /// Reads the elements at `range` as ids below `bound`.
    ///
    /// # Errors
    /// The position of the first element that is no such id.
    pub fn ids(&self, range: Range<usize>, bound: usize, ids: &mut Vec<u32>) -> Result<(), usize> {
        let id = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
        ids.clear();
        let width = self.npy.dtype().bytes();
        if self.stride == 1 {
            let from = (self.first + range.start) * width;
            let bytes = &self.npy.bytes()[from..from + range.len() * width];
            match self.npy.dtype() {
                Dtype::I32 => {
                    ids.extend(bytes.as_chunks::<4>().0.iter().map(|&word| id(i64::from(i32::from_le_bytes(word)))));
                }
                Dtype::U32 => ids.extend(bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word))),
                Dtype::I64 => ids.extend(bytes.as_chunks::<8>().0.iter().map(|&word| id(i64::from_le_bytes(word)))),
                _ => ids.extend(bytes.iter().map(|&byte| u32::from(byte))),
            }
        } else {
            ids.extend(range.clone().map(|position| id(self.at(position))));
        }
        // Without early exit, so that the loop vectorizes. An id is below 2^32 - 1, since a type has fewer vertices.
        let most = ids.iter().fold(0, |most, &id| most.max(id));
        if most as usize >= bound && !ids.is_empty() {
            let wrong = ids.iter().position(|&id| id as usize >= bound).unwrap_or(0);
            return Err(range.start + wrong);
        }
        Ok(())
    }
}

/// Rows of a file: the bytes of the elements at one position of the first axis.
#[derive(Clone, Debug)]
pub struct Rows {
    npy: Npy,
    rows: usize,
    elems: usize,
}

impl Rows {
    /// The rows of an array of one or two axes.
    pub fn of(npy: &Npy) -> Rows {
        let rows = npy.shape().first().copied().unwrap_or(0);
        Rows { npy: npy.clone(), rows, elems: npy.shape().get(1).copied().unwrap_or(1) }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Bytes of a row.
    pub fn bytes(&self) -> usize {
        self.elems * self.npy.dtype().bytes()
    }

    /// The mapped file.
    pub fn npy(&self) -> &Npy {
        &self.npy
    }

    /// The bytes of consecutive rows, row-major; `copy` holds those of an array in Fortran order.
    pub fn read<'a>(&'a self, range: Range<usize>, copy: &'a mut Vec<u8>) -> &'a [u8] {
        let row = self.bytes();
        if !self.npy.is_fortran() {
            return &self.npy.bytes()[range.start * row..range.end * row];
        }
        let width = self.npy.dtype().bytes();
        copy.clear();
        for position in range {
            for column in 0..self.elems {
                let from = (column * self.rows + position) * width;
                copy.extend_from_slice(&self.npy.bytes()[from..from + width]);
            }
        }
        copy
    }
}

/// The position of the first float of little-endian bytes that is not finite, with its value; `None` for integers too.
pub fn not_finite(dtype: Dtype, bytes: &[u8]) -> Option<(usize, f32)> {
    match dtype {
        Dtype::F16 => find(bytes, |word| f16::from_le_bytes(word).to_f32()),
        Dtype::F32 => find(bytes, f32::from_le_bytes),
        // The reader makes f32 of it, which a large value exceeds.
        Dtype::F64 => find(bytes, |word| f64::from_le_bytes(word) as f32),
        Dtype::Bool | Dtype::U8 | Dtype::I32 | Dtype::U32 | Dtype::I64 => None,
    }
}

fn find<const N: usize>(bytes: &[u8], float: impl Fn([u8; N]) -> f32) -> Option<(usize, f32)> {
    let words = bytes.as_chunks::<N>().0;
    // Without early exit within a block, so that the loop vectorizes.
    let wrong = |words: &[[u8; N]]| words.iter().fold(false, |wrong, &word| wrong | !float(word).is_finite());
    let block = words.chunks(4096).position(wrong)?;
    let position = block * 4096 + words[block * 4096..].iter().position(|&word| !float(word).is_finite())?;
    Some((position, float(words[position])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hgnnc_dataset::npy;

    #[test]
    fn elements_and_rows_of_both_orders_are_equal() {
        let c = Npy::from_bytes(npy::to_bytes(&[2, 3], &[1i64, 2, 3, 4, 5, 6]).unwrap()).unwrap();
        // The same array, column by column.
        let mut bytes = npy::to_bytes(&[2, 3], &[1i64, 4, 2, 5, 3, 6]).unwrap();
        let at = bytes.windows(5).position(|w| w == b"False").unwrap();
        bytes[at..at + 5].copy_from_slice(b"True ");
        let fortran = Npy::from_bytes(bytes).unwrap();
        assert!(fortran.is_fortran() && !c.is_fortran());
        for npy in [c, fortran] {
            let (mut ids, mut copy) = (vec![], vec![]);
            let row = Integers::row(&npy, 1, 1..3);
            assert_eq!((row.len(), row.at(0), row.at(1)), (2, 5, 6));
            row.ids(0..2, 7, &mut ids).unwrap();
            assert_eq!(ids, [5, 6]);
            assert_eq!(row.ids(0..2, 6, &mut ids), Err(1));
            let rows = Rows::of(&npy);
            assert_eq!((rows.len(), rows.bytes()), (2, 24));
            let expected: Vec<u8> = [4i64, 5, 6].iter().flat_map(|x| x.to_le_bytes()).collect();
            assert_eq!(rows.read(1..2, &mut copy), expected);
        }
    }

    #[test]
    fn a_float_that_is_not_finite_is_found() {
        let floats: Vec<u8> = [1f32, 2.0, f32::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(not_finite(Dtype::F32, &floats).map(|(at, _)| at), Some(2));
        assert_eq!(not_finite(Dtype::F32, &floats[..8]), None);
        assert_eq!(not_finite(Dtype::F64, &1e300f64.to_le_bytes()), Some((0, f32::INFINITY)));
        assert_eq!(not_finite(Dtype::I32, &floats), None);
    }
}
