//! Arrays of a graph, in files of either form.

use std::path::{Path, PathBuf};

use hgnnc_dataset::FloatArray;
use hgnnc_dataset::npy::Npy;

use crate::error::{Faults, shown};
use crate::files::Lines;
use crate::progress::Progress;
use crate::values::finite;

/// An array that is not read yet.
#[derive(Clone)]
pub(super) enum Item {
    /// A table without a header.
    Csv(PathBuf),
    /// One of an archive.
    Array { file: PathBuf, key: String, array: Npy },
}

/// Rows and columns, row by row.
pub(super) struct Matrix<T> {
    pub columns: usize,
    pub values: T,
}

/// Where faults and progress go.
pub(super) struct Cx<'a> {
    pub progress: &'a Progress,
    pub faults: Faults,
}

impl Item {
    pub fn file(&self) -> &Path {
        match self {
            Item::Csv(file) | Item::Array { file, .. } => file,
        }
    }

    /// Reports a fault of a row, which is a line of a table.
    pub fn wrong(&self, row: Option<usize>, message: String, cx: &mut Cx<'_>) {
        match self {
            Item::Csv(file) => cx.faults.add(file, row.map(|row| row as u64 + 1), message),
            Item::Array { file, key, .. } => {
                let of_row = row.map(|row| format!("row {row} of ")).unwrap_or_default();
                cx.faults.add(file, None, format!("{of_row}`{}`: {message}", shown(key)));
            }
        }
    }

    /// Finite numbers, of `rows` rows. None if there is a fault, which is reported.
    pub fn floats(&self, rows: usize, of: &str, cx: &mut Cx<'_>) -> Option<Matrix<FloatArray>> {
        let before = cx.faults.count;
        let (columns, values): (usize, FloatArray) = match self {
            Item::Csv(file) => {
                let table = table(file, finite, "a finite number", cx)?;
                (table.columns, table.values.into())
            }
            Item::Array { array, .. } => {
                let as_floats = || Some(array.to_i64()?.into_iter().map(|x| x as f32).collect::<Vec<_>>().into());
                let values = array.to_f32().or_else(as_floats).unwrap_or_default();
                (self.columns(array, cx)?, values)
            }
        };
        if let (Some(at), Item::Array { .. }) = (values.iter().position(|x| !x.is_finite()), self) {
            self.wrong(Some(at / columns.max(1)), format!("{} is not a finite number", values[at]), cx);
        }
        self.check_rows(values.len(), columns, rows, of, cx);
        (cx.faults.count == before).then_some(Matrix { columns, values })
    }

    /// Numbers of classes or targets, NaN where there is none.
    pub fn targets(&self, rows: usize, of: &str, cx: &mut Cx<'_>) -> Option<Matrix<Vec<f64>>> {
        let before = cx.faults.count;
        let (columns, values) = match self {
            Item::Csv(file) => {
                let number = |text: &str| match text.trim() {
                    "" => Some(f64::NAN),
                    text => text.parse().ok().filter(|x: &f64| !x.is_infinite()),
                };
                let table = table(file, number, "a number", cx)?;
                (table.columns, table.values)
            }
            Item::Array { array, .. } => {
                let from_integers = array.to_i64().map(|all| all.into_iter().map(|x| x as f64).collect());
                let from_floats = || array.to_f32().map(|all| all.iter().map(|&x| f64::from(x)).collect());
                (self.columns(array, cx)?, from_integers.or_else(from_floats).unwrap_or_default())
            }
        };
        self.check_rows(values.len(), columns, rows, of, cx);
        (cx.faults.count == before).then_some(Matrix { columns, values })
    }

    /// Integers in a known number of columns; `rows`, if it is known.
    pub fn integers(&self, columns: usize, rows: Option<usize>, of: &str, cx: &mut Cx<'_>) -> Option<Vec<i64>> {
        let before = cx.faults.count;
        let (found, values) = match self {
            Item::Csv(file) => {
                // An integer that a float column made `3.0`.
                let from_float =
                    |text: &str| text.parse::<f64>().ok().filter(|x| x.fract() == 0.0 && x.abs() < 2f64.powi(53));
                let number = |text: &str| {
                    let text = text.trim();
                    text.parse().ok().or_else(|| from_float(text).map(|x| x as i64))
                };
                let table = table(file, number, "an integer", cx)?;
                (table.columns, table.values)
            }
            Item::Array { array, .. } => match array.to_i64() {
                Some(values) => (self.columns(array, cx)?, values),
                None => {
                    self.wrong(None, format!("its elements are {}, but integers are expected", array.dtype()), cx);
                    return None;
                }
            },
        };
        if !values.is_empty() && found != columns {
            self.wrong(
                None,
                format!(
                    "there are {found} columns, but {columns} {} expected",
                    if columns == 1 { "is" } else { "are" }
                ),
                cx,
            );
        }
        if let Some(rows) = rows {
            self.check_rows(values.len(), columns, rows, of, cx);
        }
        (cx.faults.count == before).then_some(values)
    }

    /// Sources and destinations of edges.
    pub fn edges(&self, cx: &mut Cx<'_>) -> Option<[Vec<i64>; 2]> {
        match self {
            Item::Csv(_) => {
                let both = self.integers(2, None, "", cx)?;
                Some([0, 1].map(|end| both.iter().skip(end).step_by(2).copied().collect()))
            }
            Item::Array { array, .. } => match (array.shape(), array.to_i64()) {
                ([2, edges], Some(mut all)) => {
                    let dst = all.split_off(*edges);
                    Some([all, dst])
                }
                (shape, _) => {
                    let (shape, dtype) = (format!("{shape:?}"), array.dtype());
                    self.wrong(
                        None,
                        format!("it has shape {shape} and elements {dtype}, but [2, edges] and integers are expected"),
                        cx,
                    );
                    None
                }
            },
        }
    }

    /// Number of columns of an array of one or two axes.
    fn columns(&self, array: &Npy, cx: &mut Cx<'_>) -> Option<usize> {
        match array.shape() {
            [_] => Some(1),
            [_, columns] => Some(*columns),
            shape => {
                let shape = format!("{shape:?}");
                self.wrong(None, format!("it has shape {shape}, but rows and columns are expected"), cx);
                None
            }
        }
    }

    fn check_rows(&self, values: usize, columns: usize, rows: usize, of: &str, cx: &mut Cx<'_>) {
        if rows.checked_mul(columns) != Some(values) {
            let found = values / columns.max(1);
            self.wrong(None, format!("there are {found} rows, but {rows} {of}: a row for each"), cx);
        }
    }
}

/// A table without a header, whose fields are all of one kind. None if it cannot be read or a row has another number of
/// fields; other faults are reported, and the table goes on.
fn table<T>(path: &Path, parse: impl Fn(&str) -> Option<T>, what: &str, cx: &mut Cx<'_>) -> Option<Matrix<Vec<T>>> {
    let mut lines = Lines::open(path, cx.progress, &mut cx.faults)?;
    let (mut columns, mut values) = (0, Vec::new());
    while let Some((line, text)) = lines.next_text(&mut cx.faults) {
        if text.is_empty() {
            continue;
        }
        let before = values.len();
        for field in text.split(',') {
            match parse(field) {
                Some(value) => values.push(value),
                None => {
                    cx.faults.add(path, Some(line), format!("`{}` is not {what}", shown(field)));
                    break;
                }
            }
        }
        let found = text.split(',').count();
        if columns == 0 {
            columns = found;
        }
        if values.len() - before == found && found != columns {
            cx.faults.add(path, Some(line), format!("there are {found} fields, but {columns} in the first line"));
        }
    }
    Some(Matrix { columns, values })
}
