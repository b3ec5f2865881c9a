//! Arrays of ids and numbers in CSV and NumPy files.

use std::path::Path;

use hgnnc_dataset::DenseFeatures;
use hgnnc_dataset::npy::{Dtype, Npy};

use super::{FileFormat, Import};
use crate::error::{Faults, shown};
use crate::files::{Rows, Style};
use crate::progress::Progress;

impl Import<'_> {
    /// The sources and destinations of edges, below `bounds`.
    pub(super) fn pairs(&mut self, name: &str, format: FileFormat, bounds: [usize; 2]) -> Option<[Vec<u32>; 2]> {
        let path = self.path(name);
        if format == FileFormat::Csv {
            return csv_pairs(&path, bounds, self.progress, &mut self.faults);
        }
        let array = self.array(name, format)?;
        let &[2, edges] = array.shape() else {
            let shape = array.shape().to_vec();
            return self.misshapen(
                &path,
                &shape,
                "edges are [2, number]: sources in the first row, destinations in the second",
            );
        };
        let src = self.ids(&path, &array, 0, edges, bounds[0])?;
        let dst = self.ids(&path, &array, edges, edges, bounds[1])?;
        Some([src, dst])
    }

    /// `count` ids of an array from `start` on, in row-major order, below `bound`.
    pub(super) fn ids(
        &mut self,
        path: &Path,
        array: &Npy,
        start: usize,
        count: usize,
        bound: usize,
    ) -> Option<Vec<u32>> {
        if let Some(ids) = array.range_to_ids(start, start + count, bound) {
            return Some(ids);
        }
        let Some(all) = array.range_to_i64(start, start + count) else {
            let dtype = array.dtype();
            self.faults.add(
                path,
                None,
                format!("has elements of type {dtype}, but ids are integers: save it with `astype(int64)`"),
            );
            return None;
        };
        let wrong = all.iter().enumerate().filter(|(_, id)| !usize::try_from(**id).is_ok_and(|id| id < bound));
        let count = wrong.clone().count();
        if let Some((row, id)) = wrong.clone().next() {
            let more = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
            self.faults.add(
                path,
                None,
                format!(
                    "element {row} is {id}{more}: ids of its type go from 0 to below {bound} (`num` in metadata.yaml)"
                ),
            );
            return None;
        }
        // Of an array in Fortran order.
        Some(all.iter().map(|&id| id as u32).collect())
    }

    /// Rows of finite numbers, `count` of them; an array of one axis is a column.
    pub(super) fn floats(&mut self, name: &str, format: FileFormat, count: usize, per: &str) -> Option<DenseFeatures> {
        let path = self.path(name);
        let array = self.array(name, format)?;
        let dim = match *array.shape() {
            [rows] if rows == count => 1,
            [rows, dim] if rows == count => dim,
            _ => {
                let shape = array.shape().to_vec();
                return self.misshapen(&path, &shape, &format!("it has a row for each {per}, [{count}, width]"));
            }
        };
        let rows = numbers(&array);
        if let Some(at) = rows.iter().position(|x| !x.is_finite()) {
            let (row, x) = (at / dim.max(1), rows[at]);
            self.faults.add(&path, None, format!("row {row} holds `{x}`: features are finite numbers"));
            return None;
        }
        Some(DenseFeatures { dim, rows })
    }

    /// Opens a NumPy file.
    pub(super) fn array(&mut self, name: &str, format: FileFormat) -> Option<Npy> {
        let path = self.path(name);
        let error = match format {
            FileFormat::Numpy => match Npy::open(&path) {
                Ok(array) => {
                    self.progress.expect(&path);
                    self.progress.add(std::fs::metadata(&path).map_or(0, |file| file.len()));
                    return Some(array);
                }
                Err(error) => error.to_string(),
            },
            FileFormat::Torch => {
                "is a file of torch, which holds a program: save it by `numpy.save(…, tensor.numpy())`, and write `format: numpy`".into()
            }
            FileFormat::Csv => "is CSV, as edges may be: save this one by `numpy.save`, and write `format: numpy`".into(),
        };
        self.faults.add(&path, None, error);
        None
    }

    pub(super) fn misshapen<T>(&mut self, path: &Path, shape: &[usize], expected: &str) -> Option<T> {
        self.faults.add(path, None, format!("has the shape {shape:?}, but {expected}"));
        None
    }
}

/// All elements as numbers.
pub(super) fn numbers(array: &Npy) -> hgnnc_dataset::FloatArray {
    match array.to_f32() {
        Some(all) => all,
        // Every type is of floats or of integers.
        None => array.to_i64().unwrap_or_default().iter().map(|&n| n as f32).collect::<Vec<f32>>().into(),
    }
}

/// Whether elements are floats.
pub(super) fn is_float(array: &Npy) -> bool {
    matches!(array.dtype(), Dtype::F16 | Dtype::F32 | Dtype::F64)
}

fn csv_pairs(path: &Path, bounds: [usize; 2], progress: &Progress, faults: &mut Faults) -> Option<[Vec<u32>; 2]> {
    let columns = ["source", "destination"].map(String::from);
    let style = Style { separator: b',', quotes: true, columns: Some(&columns), ragged: false };
    progress.expect(path);
    let mut rows = Rows::open(path, &style, progress, faults)?;
    let mut ids = [Vec::new(), Vec::new()];
    while let Some(line) = rows.next(faults) {
        let mut id = |side: usize| -> Option<u32> {
            let text = rows.field(side, line, faults)?;
            let id = text.parse::<u32>().ok().filter(|&id| (id as usize) < bounds[side]);
            if id.is_none() {
                let (text, bound) = (shown(text), bounds[side]);
                let message = format!(
                    "`{text}` is no {} of this type: an integer from 0 to below {bound} (`num` in metadata.yaml); such files have no header",
                    columns[side]
                );
                faults.add(path, Some(line), message);
            }
            id
        };
        if let (Some(src), Some(dst)) = (id(0), id(1)) {
            ids[0].push(src);
            ids[1].push(dst);
        }
    }
    Some(ids)
}
