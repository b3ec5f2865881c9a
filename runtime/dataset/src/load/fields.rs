//! Reads keys of `dataset.toml` and opens the files they name, collecting all faults.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use toml::{Table, Value};

use super::format::is_known;
use crate::checks::{self, Bound, Place};
use crate::error::DataError;
use crate::npy::{Dtype, FloatArray, Npy};

/// Expected content of a file of ids, for a message about one that holds booleans.
pub(super) const NO_MASK: &str = "int32 (or int64): ids, not a mask";

/// The folder being loaded, the faults found so far, and the open files.
pub(super) struct Loader {
    folder: PathBuf,
    pub errors: Vec<DataError>,
    /// `None`: a file that cannot be read, which is reported.
    open: HashMap<String, Option<Npy>>,
    /// Whether only heads of files are read ([`Dataset::outline`](crate::Dataset::outline)).
    pub outline: bool,
}

/// A table of `dataset.toml` with its name in messages.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    table: &'a Table,
    kind: &'static str,
    pub name: &'a str,
}

impl<'a> At<'a> {
    pub fn new(table: &'a Table, kind: &'static str, name: &'a str) -> Self {
        Self { table, kind, name }
    }

    /// The value of `field`, which must be one of the format's.
    pub fn get(self, field: &str) -> Option<&'a Value> {
        debug_assert!(is_known(self.kind, field), "`{field}` of {} is missing in the list of fields", self.kind);
        self.table.get(field)
    }
}

/// An open file with the field that named it.
pub(super) struct NamedFile<'a> {
    pub npy: Npy,
    pub file: String,
    pub at: At<'a>,
    pub field: &'static str,
}

impl NamedFile<'_> {
    /// The file in messages of checks.
    pub fn place(&self) -> Place<'_> {
        Place { file: &self.file, at: self.at.name }
    }
}

impl Loader {
    pub fn new(folder: &Path) -> Loader {
        Loader { folder: folder.to_path_buf(), errors: Vec::new(), open: HashMap::new(), outline: false }
    }

    pub fn fail<T>(&mut self, error: DataError) -> Option<T> {
        self.errors.push(error);
        None
    }

    /// The value, if it was found; an error is reported.
    pub fn keep<T>(&mut self, found: Result<T, DataError>) -> Option<T> {
        match found {
            Ok(found) => Some(found),
            Err(error) => self.fail(error),
        }
    }

    /// The tables of `[[key]]`; empty if the key is missing.
    pub fn tables<'a>(&mut self, root: At<'a>, key: &'static str) -> Vec<&'a Table> {
        let Some(value) = root.get(key) else { return Vec::new() };
        let tables = value.as_array().map(|a| a.iter().map(Value::as_table).collect::<Option<Vec<_>>>());
        if let Some(Some(tables)) = tables {
            return tables;
        }
        self.bad::<()>(root, key, "an array of tables", value);
        Vec::new()
    }

    /// Reports that `field` is not `expected`.
    pub fn bad<T>(&mut self, at: At<'_>, field: &str, expected: &str, found: &Value) -> Option<T> {
        self.fail(DataError::BadField {
            at: at.name.to_string(),
            field: field.to_string(),
            expected: expected.to_string(),
            found: describe(found),
        })
    }

    fn required<'a>(&mut self, at: At<'a>, field: &str, expected: &str) -> Option<&'a Value> {
        let value = at.get(field);
        if value.is_none() {
            self.fail::<()>(DataError::MissingField {
                at: at.name.to_string(),
                field: field.to_string(),
                expected: expected.to_string(),
            });
        }
        value
    }

    /// Reads a required non-empty string.
    pub fn string(&mut self, at: At<'_>, field: &str) -> Option<String> {
        let value = self.required(at, field, "a string")?;
        match value.as_str() {
            Some(s) if !s.is_empty() => Some(s.to_string()),
            _ => self.bad(at, field, "a non-empty string", value),
        }
    }

    /// An optional string; `None` also for an ill-typed value, which is reported.
    pub fn optional_string(&mut self, at: At<'_>, field: &str) -> Option<String> {
        at.get(field)?;
        self.string(at, field)
    }

    /// Reads a required count (an integer that is not negative).
    pub fn count(&mut self, at: At<'_>, field: &str) -> Option<u64> {
        let value = self.required(at, field, "a non-negative integer")?;
        match value.as_integer().and_then(|n| u64::try_from(n).ok()) {
            Some(n) => Some(n),
            None => self.bad(at, field, "a non-negative integer", value),
        }
    }

    /// Reads an optional count.
    pub fn optional_count(&mut self, at: At<'_>, field: &str) -> Option<u64> {
        at.get(field)?;
        self.count(at, field)
    }

    /// A required count in `least..=most`; `words` describes the range in messages.
    pub fn count_within(&mut self, at: At<'_>, field: &str, least: u64, most: u64, words: &str) -> Option<usize> {
        let n = self.count(at, field)?;
        match usize::try_from(n) {
            Ok(small) if (least..=most).contains(&n) => Some(small),
            _ => self.bad(at, field, words, &Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))),
        }
    }

    /// A list of strings, empty if the key is missing.
    pub fn strings(&mut self, at: At<'_>, field: &str) -> Option<Vec<String>> {
        let Some(value) = at.get(field) else { return Some(Vec::new()) };
        let strings =
            value.as_array().and_then(|a| a.iter().map(|s| s.as_str().map(str::to_string)).collect::<Option<Vec<_>>>());
        match strings {
            Some(strings) => Some(strings),
            None => self.bad(at, field, "an array of strings", value),
        }
    }

    /// A required list of finite numbers, `len` of them if that is known.
    pub fn numbers(&mut self, at: At<'_>, field: &str, len: Option<usize>) -> Option<Vec<f64>> {
        let value = self.required(at, field, "an array of numbers")?;
        let number = |v: &Value| v.as_float().or_else(|| v.as_integer().map(|n| n as f64)).filter(|x| x.is_finite());
        let numbers = value.as_array().and_then(|a| a.iter().map(number).collect::<Option<Vec<_>>>());
        match (numbers, len) {
            (Some(numbers), Some(len)) if numbers.len() != len => {
                self.bad(at, field, &format!("{len} numbers, one per column"), value)
            }
            (Some(numbers), _) => Some(numbers),
            (None, _) => self.bad(at, field, "an array of numbers", value),
        }
    }

    /// Compares a declared count with what a file holds.
    pub fn check_count(&mut self, at: At<'_>, field: &str, file: &str, found: u64) {
        if let Some(declared) = self.optional_count(at, field)
            && declared != found
        {
            self.errors.push(DataError::WrongCount {
                at: at.name.to_string(),
                field: field.to_string(),
                declared,
                file: file.to_string(),
                found,
            });
        }
    }

    /// Opens the file that a required field names.
    pub fn file<'a>(&mut self, at: At<'a>, field: &'static str) -> Option<NamedFile<'a>> {
        let file = self.string(at, field)?;
        let path = Path::new(&file);
        if !path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
            return self.bad(at, field, "a file inside the dataset folder", &Value::String(file.clone()));
        }
        if let Some(known) = self.open.get(&file) {
            return known.clone().map(|npy| NamedFile { npy, file, at, field });
        }
        let path = self.folder.join(path);
        let found = Npy::open(&path);
        self.open.insert(file.clone(), found.as_ref().ok().cloned());
        match found {
            Ok(npy) => Some(NamedFile { npy, file, at, field }),
            Err(_) if !path.exists() => {
                self.fail(DataError::MissingFile { file, at: at.name.to_string(), field: field.to_string() })
            }
            Err(problem) => {
                self.fail(DataError::Npy { file, at: at.name.to_string(), field: field.to_string(), problem })
            }
        }
    }

    /// Opens the file that an optional field names. `Err(())` if there is a field but no usable file.
    pub fn optional_file<'a>(&mut self, at: At<'a>, field: &'static str) -> Result<Option<NamedFile<'a>>, ()> {
        if at.get(field).is_some() { self.file(at, field).map(Some).ok_or(()) } else { Ok(None) }
    }

    /// Checks the shape of `file`. `expected` explains it; an axis of `None` may have any length.
    pub fn shape(&mut self, file: &NamedFile<'_>, axes: &[Option<usize>], expected: &str) -> Option<()> {
        let found = file.npy.shape();
        if found.len() == axes.len() && axes.iter().zip(found).all(|(want, have)| want.is_none_or(|w| w == *have)) {
            return Some(());
        }
        self.fail(DataError::Shape {
            file: file.file.clone(),
            at: file.at.name.to_string(),
            field: file.field.to_string(),
            expected: expected.to_string(),
            found: found.to_vec(),
        })
    }

    /// Reads all elements as integers.
    pub fn integers(&mut self, file: &NamedFile<'_>) -> Option<Vec<i64>> {
        match file.npy.to_i64() {
            Some(all) => Some(all),
            None => self.wrong_dtype(file, "int32 (or int64)"),
        }
    }

    /// Reads all elements as `f32`; errors are reported.
    pub fn floats(&mut self, file: &NamedFile<'_>) -> Option<FloatArray> {
        match file.npy.to_f32() {
            Some(all) => Some(all),
            None => self.wrong_dtype(file, "float32 (or float16, float64)"),
        }
    }

    /// Refuses a file of floats, where its elements are not read.
    pub fn integer_type(&mut self, file: &NamedFile<'_>) -> Option<()> {
        if file.npy.dtype().is_integer() { Some(()) } else { self.wrong_dtype(file, "int32 (or int64)") }
    }

    /// Refuses a file without floats, where its elements are not read.
    pub fn float_type(&mut self, file: &NamedFile<'_>) -> Option<()> {
        if file.npy.dtype().is_integer() { self.wrong_dtype(file, "float32 (or float16, float64)") } else { Some(()) }
    }

    pub fn wrong_dtype<T>(&mut self, file: &NamedFile<'_>, expected: &str) -> Option<T> {
        self.fail(DataError::Dtype {
            file: file.file.clone(),
            at: file.at.name.to_string(),
            field: file.field.to_string(),
            expected: expected.to_string(),
            found: file.npy.dtype(),
        })
    }

    /// Converts integers to ids below `bound`. `what` and `place` describe a position in messages.
    pub fn ids(
        &mut self,
        file: &NamedFile<'_>,
        values: &[i64],
        what: &str,
        place: impl Fn(usize) -> String,
        bound: usize,
        bound_of: &str,
    ) -> Option<Vec<u32>> {
        if file.npy.dtype() == Dtype::Bool {
            return self.wrong_dtype(file, NO_MASK);
        }
        let found = checks::ids(file.place(), values, place, Bound { what, count: bound, of: bound_of });
        self.keep(found)
    }

    /// Checks that values are finite; `place` maps a flat position to (row, column).
    pub fn finite(
        &mut self,
        file: &NamedFile<'_>,
        values: &[f32],
        place: impl Fn(usize) -> (usize, usize),
    ) -> Option<()> {
        let found = checks::finite(file.place(), values, place);
        self.keep(found)
    }
}

/// Shows a TOML value in a message.
fn describe(value: &Value) -> String {
    match value {
        Value::String(s) => format!("`{s}`"),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Boolean(b) => b.to_string(),
        Value::Datetime(d) => d.to_string(),
        Value::Array(a) if a.len() <= 8 && a.iter().all(|v| v.is_integer() || v.is_str()) => {
            format!("[{}]", a.iter().map(describe).collect::<Vec<_>>().join(", "))
        }
        Value::Array(_) => "an array".to_string(),
        Value::Table(_) => "a table".to_string(),
    }
}
