//! Tables row by row, also compressed ones: text with separators, JSON objects, and Parquet.

pub(crate) mod json;
#[cfg(feature = "parquet")]
mod parquet;

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use csv::ByteRecord;
use flate2::read::MultiGzDecoder;
use hgnnc_graph::files;
use serde::Deserialize;

use self::json::Records;
#[cfg(feature = "parquet")]
use self::parquet::ParquetRows;
use crate::error::{Faults, shown};
use crate::progress::{Counted, Progress};

/// Opens a file; what is compressed with gzip, by its first bytes, is unpacked on the way.
pub(crate) fn open(path: &Path, progress: &Progress) -> io::Result<Box<dyn Read>> {
    const BUFFER: usize = 1 << 18;
    let mut file = Counted { inner: files::open(path)?, progress: progress.clone() };
    let mut magic = [0; 2];
    let mut read = 0;
    while read < magic.len() {
        match file.read(&mut magic[read..])? {
            0 => break,
            n => read += n,
        }
    }
    let whole = io::Cursor::new(magic[..read].to_vec()).chain(file);
    let whole = BufReader::with_capacity(BUFFER, whole);
    Ok(if magic == [0x1f, 0x8b] { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// How a table is stored.
#[derive(Clone, Copy, Deserialize, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// Text with separators.
    Csv,
    /// A JSON object in each line.
    Json,
    Parquet,
}

impl Format {
    /// The format that the name of a file says.
    pub fn of(path: &Path) -> Format {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let ends = |all: &[&str]| all.iter().any(|end| name.trim_end_matches(".gz").ends_with(end));
        if ends(&[".json", ".jsonl", ".ndjson"]) {
            Format::Json
        } else if ends(&[".parquet"]) {
            Format::Parquet
        } else {
            Format::Csv
        }
    }
}

/// Some columns of a table, row by row.
pub(crate) enum Table {
    Csv {
        rows: Box<Rows>,
        at: Vec<usize>,
    },
    Json(Box<Records>),
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetRows>),
}

impl Table {
    /// Opens a table with the columns `wanted`. None if that fails, which is reported.
    pub fn open(
        path: &Path,
        format: Option<Format>,
        style: &Style<'_>,
        wanted: &[String],
        progress: &Progress,
        faults: &mut Faults,
    ) -> Option<Table> {
        match format.unwrap_or_else(|| Format::of(path)) {
            Format::Csv => {
                let rows = Rows::open(path, style, progress, faults)?;
                let at = rows.positions(wanted, faults)?;
                Some(Table::Csv { rows: Box::new(rows), at })
            }
            Format::Json => Some(Table::Json(Box::new(Records::open(path, wanted, progress, faults)?))),
            #[cfg(feature = "parquet")]
            Format::Parquet => Some(Table::Parquet(Box::new(ParquetRows::open(path, wanted, progress, faults)?))),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => {
                faults.add(path, None, NO_PARQUET);
                None
            }
        }
    }

    /// Reads the next row, and returns its line (of Parquet its number, from 1); what cannot be read is reported.
    pub fn next(&mut self, faults: &mut Faults) -> Option<u64> {
        match self {
            Table::Csv { rows, .. } => rows.next(faults),
            Table::Json(records) => records.next(faults),
            #[cfg(feature = "parquet")]
            Table::Parquet(rows) => rows.next(faults),
        }
    }

    /// The field of the wanted column `at`. None if there is none, or it is not UTF-8, which is reported.
    pub fn field(&self, at: usize, line: u64, faults: &mut Faults) -> Option<&str> {
        match self {
            Table::Csv { rows, at: positions } => rows.field(positions[at], line, faults),
            Table::Json(records) => records.field(at),
            #[cfg(feature = "parquet")]
            Table::Parquet(rows) => rows.field(at),
        }
    }
}

/// What a build without the feature says of a Parquet file.
#[cfg(not(feature = "parquet"))]
const NO_PARQUET: &str =
    "this build reads no Parquet files; build with `cargo build --release --features parquet`, or save it as CSV";

/// The rows of a table.
pub(crate) struct Rows {
    pub path: PathBuf,
    reader: csv::Reader<Box<dyn Read>>,
    columns: Vec<String>,
    row: ByteRecord,
}

/// How a table is written.
#[derive(Clone)]
pub(crate) struct Style<'a> {
    pub separator: u8,
    /// Whether `"…"` holds separators and ends of lines.
    pub quotes: bool,
    /// Names of the columns of a file without a header; None: they are in the first line.
    pub columns: Option<&'a [String]>,
    /// Whether rows may differ in their number of fields.
    pub ragged: bool,
}

impl Rows {
    /// Opens a table. None if that fails, which is reported.
    pub fn open(path: &Path, style: &Style<'_>, progress: &Progress, faults: &mut Faults) -> Option<Rows> {
        let input = match open(path, progress) {
            Ok(input) => input,
            Err(error) => {
                faults.add(path, None, format!("cannot be read: {error}"));
                return None;
            }
        };
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(style.separator)
            .quoting(style.quotes)
            .has_headers(style.columns.is_none())
            .flexible(true)
            .from_reader(input);
        let columns = match style.columns {
            Some(columns) => columns.to_vec(),
            None => match reader.byte_headers() {
                Ok(header) => header.iter().map(|c| String::from_utf8_lossy(c).trim().to_owned()).collect(),
                Err(error) => {
                    faults.add(path, None, unreadable(&error));
                    return None;
                }
            },
        };
        // The number of fields is not known of ragged tables.
        let columns = if style.ragged { Vec::new() } else { columns };
        Some(Rows { path: path.to_path_buf(), reader, columns, row: ByteRecord::new() })
    }

    /// Names of the columns, none of ragged tables.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The positions of columns; those that are not there are reported.
    pub fn positions(&self, names: &[String], faults: &mut Faults) -> Option<Vec<usize>> {
        let mut missing = Vec::new();
        let mut found = Vec::new();
        for name in names {
            match self.columns.iter().position(|column| column == name) {
                Some(at) => found.push(at),
                None => missing.push(format!("`{name}`")),
            }
        }
        if missing.is_empty() {
            return Some(found);
        }
        let known = self.columns.iter().map(|c| format!("`{}`", shown(c))).collect::<Vec<_>>().join(", ");
        let plural = if missing.len() == 1 { "" } else { "s" };
        faults.add(
            &self.path,
            Some(1),
            format!("there is no column{plural} {} (there is {known})", missing.join(", ")),
        );
        None
    }

    /// The next row with the right number of fields, and its line; others are reported.
    pub fn next(&mut self, faults: &mut Faults) -> Option<u64> {
        loop {
            match self.reader.read_byte_record(&mut self.row) {
                Ok(false) => return None,
                Ok(true) => {
                    let line = self.row.position().map_or(0, csv::Position::line);
                    if self.columns.is_empty() || self.row.len() == self.columns.len() {
                        return Some(line);
                    }
                    let (found, expected) = (self.row.len(), self.columns.len());
                    let hint =
                        if found < expected { "" } else { "; a field that holds the separator stands in quotes" };
                    faults.add(
                        &self.path,
                        Some(line),
                        format!("there are {found} fields, but {expected} columns{hint}"),
                    );
                }
                Err(error) => {
                    let line = error.position().map(csv::Position::line);
                    faults.add(&self.path, line, unreadable(&error));
                    return None;
                }
            }
        }
    }

    /// A field of the row without blanks around it. None if it is not UTF-8, which is reported.
    pub fn field(&self, at: usize, line: u64, faults: &mut Faults) -> Option<&str> {
        match std::str::from_utf8(self.row.get(at).unwrap_or_default()) {
            Ok(text) => Some(text.trim()),
            Err(_) => {
                faults.add(&self.path, Some(line), format!("field {} is not UTF-8: save the file as UTF-8", at + 1));
                None
            }
        }
    }
}

fn unreadable(error: &csv::Error) -> String {
    format!("cannot be read: {error}")
}

/// Lines of a text file, also a compressed one.
pub(crate) struct Lines {
    pub path: PathBuf,
    input: BufReader<Box<dyn Read>>,
    bytes: Vec<u8>,
    line: u64,
}

impl Lines {
    /// Opens a file. None if that fails, which is reported.
    pub fn open(path: &Path, progress: &Progress, faults: &mut Faults) -> Option<Lines> {
        match open(path, progress) {
            Ok(input) => {
                Some(Lines { path: path.to_path_buf(), input: BufReader::new(input), bytes: Vec::new(), line: 0 })
            }
            Err(error) => {
                faults.add(path, None, format!("cannot be read: {error}"));
                None
            }
        }
    }

    /// The next line, without its end, and its number; one that is not UTF-8 is reported and left out.
    pub fn next(&mut self, faults: &mut Faults) -> Option<(u64, &str)> {
        loop {
            self.bytes.clear();
            self.line += 1;
            match self.input.read_until(b'\n', &mut self.bytes) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    faults.add(&self.path, Some(self.line), format!("cannot be read: {error}"));
                    return None;
                }
            }
            while self.bytes.pop_if(|byte| matches!(byte, b'\n' | b'\r')).is_some() {}
            if std::str::from_utf8(&self.bytes).is_ok() {
                break;
            }
            faults.add(&self.path, Some(self.line), "is not UTF-8: save the file as UTF-8");
        }
        Some((self.line, std::str::from_utf8(&self.bytes).unwrap_or_default()))
    }
}
