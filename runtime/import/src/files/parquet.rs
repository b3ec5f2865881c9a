//! Tables in files of the format Parquet.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hgnnc_dataset::files;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::Type;

use crate::error::{Faults, shown};
use crate::progress::Progress;

/// The rows of a file.
pub(crate) struct ParquetRows {
    path: PathBuf,
    rows: RowIter<'static>,
    /// Position in a row of each wanted column.
    at: Vec<usize>,
    /// Whether each wanted column holds timestamps in nanoseconds, which rows give as plain integers.
    nanoseconds: Vec<bool>,
    values: Vec<Option<String>>,
    row: u64,
    /// Size of the file, which counts when its last row is read: columns stand at many places of it.
    bytes: u64,
    progress: Progress,
}

impl ParquetRows {
    /// Opens a file with some columns. None if that fails, which is reported.
    pub fn open(path: &Path, wanted: &[String], progress: &Progress, faults: &mut Faults) -> Option<ParquetRows> {
        let file = match files::open(path) {
            Ok(file) => file,
            Err(error) => {
                faults.add(path, None, format!("cannot be read: {error}"));
                return None;
            }
        };
        match guarded(|| ParquetRows::of(file, path, wanted, progress)) {
            Ok(rows) => Some(rows),
            Err(error) => {
                faults.add(path, None, error);
                None
            }
        }
    }

    fn of(file: File, path: &Path, wanted: &[String], progress: &Progress) -> Result<ParquetRows, String> {
        let unreadable = |error| format!("is not a Parquet file that can be read: {error}");
        let bytes = file.metadata().map_or(0, |of| of.len());
        let reader = SerializedFileReader::new(file).map_err(unreadable)?;
        let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
        let columns = schema.get_fields();
        let missing: Vec<String> = wanted
            .iter()
            .filter(|name| !columns.iter().any(|column| column.name() == *name))
            .map(|name| format!("`{}`", shown(name)))
            .collect();
        if !missing.is_empty() {
            let known = columns.iter().map(|c| format!("`{}`", shown(c.name()))).collect::<Vec<_>>().join(", ");
            let plural = if missing.len() == 1 { "" } else { "s" };
            return Err(format!("there is no column{plural} {} (there is {known})", missing.join(", ")));
        }
        let twice = |name: &&String| columns.iter().filter(|column| column.name() == **name).count() > 1;
        if let Some(name) = wanted.iter().find(twice) {
            return Err(format!("two columns are named `{}`", shown(name)));
        }
        // Only these are decoded, in the order of the file. A file needs a column, so that its rows are counted.
        let mut kept: Vec<Arc<Type>> =
            columns.iter().filter(|c| wanted.iter().any(|w| w == c.name())).cloned().collect();
        if kept.is_empty() {
            kept.extend(columns.first().cloned());
        }
        let at = wanted.iter().filter_map(|name| kept.iter().position(|c| c.name() == name)).collect::<Vec<_>>();
        let nanoseconds = at.iter().map(|&at| is_nanoseconds(&kept[at])).collect();
        let projected = Type::group_type_builder(schema.name()).with_fields(kept).build().map_err(unreadable)?;
        let rows = RowIter::from_file_into(Box::new(reader)).project(Some(projected)).map_err(unreadable)?;
        let progress = progress.clone();
        Ok(ParquetRows { path: path.to_path_buf(), rows, at, nanoseconds, values: Vec::new(), row: 0, bytes, progress })
    }

    /// Reads the next row, and returns its number from 1.
    pub fn next(&mut self, faults: &mut Faults) -> Option<u64> {
        let row = match guarded(|| self.rows.next().transpose().map_err(|e| format!("cannot be read: {e}"))) {
            Ok(Some(row)) => row,
            Ok(None) => {
                self.progress.add(std::mem::take(&mut self.bytes));
                return None;
            }
            Err(error) => {
                faults.add(&self.path, Some(self.row + 1), error);
                return None;
            }
        };
        self.row += 1;
        self.take(&row);
        Some(self.row)
    }

    fn take(&mut self, row: &Row) {
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        self.values.clear();
        for (&at, &nanoseconds) in self.at.iter().zip(&self.nanoseconds) {
            self.values.push(fields.get(at).and_then(|field| match field {
                Field::Long(ns) if nanoseconds => Some(ns.div_euclid(1_000_000_000).to_string()),
                field => text_of(field),
            }));
        }
    }

    pub fn field(&self, at: usize) -> Option<&str> {
        self.values.get(at)?.as_deref()
    }
}

/// Runs a call of the library, which indexes out of bounds on some damaged files.
fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err("is damaged, and cannot be decoded".into()))
}

fn is_nanoseconds(column: &Type) -> bool {
    use parquet::basic::{LogicalType, TimeUnit};
    matches!(column.get_basic_info().logical_type_ref(), Some(LogicalType::Timestamp(t)) if t.unit == TimeUnit::NANOS)
}

/// A value as a field of a table: times as seconds since 1970, lists in JSON.
fn text_of(field: &Field) -> Option<String> {
    Some(match field {
        Field::Null => return None,
        Field::Bool(b) => b.to_string(),
        Field::Byte(n) => n.to_string(),
        Field::Short(n) => n.to_string(),
        Field::Int(n) => n.to_string(),
        Field::Long(n) => n.to_string(),
        Field::UByte(n) => n.to_string(),
        Field::UShort(n) => n.to_string(),
        Field::UInt(n) => n.to_string(),
        Field::ULong(n) => n.to_string(),
        Field::Float16(x) => x.to_string(),
        Field::Float(x) => x.to_string(),
        Field::Double(x) => x.to_string(),
        Field::Str(text) => text.trim().to_owned(),
        Field::Bytes(bytes) => String::from_utf8_lossy(bytes.data()).into_owned(),
        Field::Date(days) => (i64::from(*days) * 86_400).to_string(),
        Field::TimestampMillis(ms) => ms.div_euclid(1000).to_string(),
        Field::TimestampMicros(us) => us.div_euclid(1_000_000).to_string(),
        Field::ListInternal(list) => {
            let elements: Vec<String> =
                list.elements().iter().map(|e| text_of(e).unwrap_or_else(|| "null".into())).collect();
            format!("[{}]", elements.join(", "))
        }
        other => other.to_string(),
    })
}
