//! Tables row by row, also compressed ones: text with separators, JSON objects, and Parquet.

pub(crate) mod json;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use csv_core::ReadRecordResult;
use flate2::read::MultiGzDecoder;
use hgnnc_dataset::files;
use serde::Deserialize;

use self::json::Records;
pub(crate) use self::lines::Lines;
#[cfg(feature = "parquet")]
use self::parquet::ParquetRows;
use crate::error::{Faults, shown};
use crate::progress::{Counted, Progress};

/// Opens a file; what is compressed with gzip, by its first bytes, is unpacked on the way. A byte order mark at the
/// beginning is left out.
pub(crate) fn open(path: &Path, progress: &Progress) -> io::Result<Box<dyn BufRead>> {
    const BUFFER: usize = 1 << 18;
    const MARK: &[u8] = "\u{feff}".as_bytes();
    let mut file = Counted { inner: files::open(path)?, progress: progress.clone() };
    let magic = first(&mut file, 2)?;
    let is_gzip = magic == [0x1f, 0x8b];
    let whole = Cursor::new(magic).chain(file);
    let mut text: Box<dyn Read> =
        if is_gzip { Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, whole))) } else { Box::new(whole) };
    let mut start = first(&mut text, MARK.len())?;
    if start == MARK {
        start.clear();
    }
    Ok(Box::new(BufReader::with_capacity(BUFFER, Cursor::new(start).chain(text))))
}

/// The first bytes of a file; fewer of a shorter one.
fn first(input: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    input.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
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

/// The byte between the fields of a file that the ending of its name says, also before `.gz`: a comma in `.csv`, a tab in
/// `.tsv` and `.tab`, and `other` in all others.
pub(crate) fn separator_of(path: &Path, other: u8) -> u8 {
    let name = path.to_string_lossy().to_ascii_lowercase();
    match name.trim_end_matches(".gz").rsplit_once('.') {
        Some((_, "csv")) => b',',
        Some((_, "tsv" | "tab")) => b'\t',
        _ => other,
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
                let mut rows = Rows::open(path, style, progress, faults)?;
                let at = rows.positions(wanted, faults)?;
                rows.refuses_blank = rows.columns.len() == 1;
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

/// Error message for a Parquet file in a build without the feature.
#[cfg(not(feature = "parquet"))]
const NO_PARQUET: &str =
    "this build reads no Parquet files; build with `cargo build --release --features parquet`, or save it as CSV";

/// The rows of a table.
pub(crate) struct Rows {
    pub path: PathBuf,
    input: Box<dyn BufRead>,
    parser: csv_core::Reader,
    columns: Vec<String>,
    /// Field `i` of the row is `bytes[ends[i - 1]..ends[i]]`. Both are longer than the row.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    fields: usize,
    /// Whether the end of the line of the row is still to be read: a row ends with the first byte of CR LF.
    in_line_end: bool,
    /// Whether a blank line between rows is reported: in a table of one column it may be a missing value.
    refuses_blank: bool,
}

/// The next record of a table, or its end.
enum Next {
    Row {
        line: u64,
        /// The first blank line before the row.
        blank: Option<u64>,
    },
    End,
    /// The file ends within the quotes that begin in this line.
    Unclosed(u64),
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
        let parser = csv_core::ReaderBuilder::new().delimiter(style.separator).quoting(style.quotes).build();
        let mut rows = Rows {
            path: path.to_path_buf(),
            input,
            parser,
            columns: Vec::new(),
            bytes: vec![0; 1024],
            ends: vec![0; 32],
            fields: 0,
            in_line_end: false,
            refuses_blank: false,
        };
        let columns = match style.columns {
            Some(columns) => columns.to_vec(),
            None => match rows.record() {
                Ok(Next::Unclosed(line)) => {
                    faults.add(path, Some(line), unclosed(line));
                    return None;
                }
                Ok(_) => {
                    (0..rows.fields).map(|at| String::from_utf8_lossy(rows.bytes_of(at)).trim().to_owned()).collect()
                }
                Err(error) => {
                    faults.add(path, None, unreadable(&error));
                    return None;
                }
            },
        };
        // The number of fields is not known of ragged tables.
        rows.columns = if style.ragged { Vec::new() } else { columns };
        Some(rows)
    }

    /// Names of the columns, none of ragged tables.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The positions of columns; those that are not there, or twice, are reported.
    pub fn positions(&self, names: &[String], faults: &mut Faults) -> Option<Vec<usize>> {
        let mut missing = Vec::new();
        let mut found = Vec::new();
        for name in names {
            let mut all = self.columns.iter().enumerate().filter(|(_, column)| *column == name);
            match all.next() {
                Some((at, _)) => found.push(at),
                None => missing.push(format!("`{name}`")),
            }
            if let Some((again, _)) = all.next() {
                let first = found.last().map_or(0, |at| at + 1);
                let message = format!("two columns are named `{}`: columns {first} and {}", shown(name), again + 1);
                faults.add(&self.path, Some(1), message);
                return None;
            }
        }
        if missing.is_empty() {
            return Some(found);
        }
        if self.columns.is_empty() {
            let message = format!("is empty, but its first line names the columns, {} among them", missing.join(", "));
            faults.add(&self.path, None, message);
            return None;
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
            let (line, blank) = match self.record() {
                Ok(Next::Row { line, blank }) => (line, blank),
                Ok(Next::End) => return None,
                Ok(Next::Unclosed(line)) => {
                    faults.add(&self.path, Some(line), unclosed(line));
                    return None;
                }
                Err(error) => {
                    faults.add(&self.path, Some(self.parser.line()), unreadable(&error));
                    return None;
                }
            };
            if let Some(blank) = blank.filter(|_| self.refuses_blank) {
                let message =
                    "the line is blank: write a missing value of the only column as `\"\"`, or leave the line out";
                faults.add(&self.path, Some(blank), message);
            }
            if self.columns.is_empty() || self.fields == self.columns.len() {
                return Some(line);
            }
            let (found, expected) = (self.fields, self.columns.len());
            let hint = if found < expected { "" } else { "; a field that holds the separator stands in quotes" };
            faults.add(&self.path, Some(line), format!("there are {found} fields, but {expected} columns{hint}"));
        }
    }

    /// Reads the next row, of any number of fields.
    fn record(&mut self) -> io::Result<Next> {
        self.fields = 0;
        let blank = self.skip_line_ends()?;
        let line = self.parser.line();
        let mut written = 0;
        let mut is_begun = false;
        loop {
            let input = self.input.fill_buf()?;
            let at_end = input.is_empty();
            if at_end && !is_begun {
                return Ok(Next::End);
            }
            // The end of a line ends the last row as well, unless it is within quotes.
            let input = if at_end { b"\n" } else { input };
            let (result, read, bytes, ends) =
                self.parser.read_record(input, &mut self.bytes[written..], &mut self.ends[self.fields..]);
            is_begun = true;
            written += bytes;
            self.fields += ends;
            self.in_line_end = read > 0 && input[read - 1] == b'\r';
            if !at_end {
                self.input.consume(read);
            }
            match result {
                ReadRecordResult::InputEmpty if at_end => {
                    let start = self.fields.checked_sub(1).map_or(0, |last| self.ends[last]);
                    let before = self.bytes[..start].iter().filter(|&&byte| byte == b'\n').count();
                    return Ok(Next::Unclosed(line + before as u64));
                }
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.bytes.resize(2 * self.bytes.len(), 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                ReadRecordResult::Record => return Ok(Next::Row { line, blank }),
                ReadRecordResult::End => return Ok(Next::End),
            }
        }
    }

    /// Reads up to the beginning of the next row, and counts lines. Returns the first blank one.
    fn skip_line_ends(&mut self) -> io::Result<Option<u64>> {
        let mut blank = None;
        loop {
            let input = self.input.fill_buf()?;
            let skipped = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            for _ in input[..skipped].iter().filter(|&&byte| byte == b'\n') {
                let line = self.parser.line();
                if !std::mem::take(&mut self.in_line_end) {
                    blank.get_or_insert(line);
                }
                self.parser.set_line(line + 1);
            }
            let is_all = skipped == input.len() && skipped > 0;
            self.input.consume(skipped);
            if !is_all {
                return Ok(blank);
            }
        }
    }

    fn bytes_of(&self, at: usize) -> &[u8] {
        match self.ends[..self.fields].get(at) {
            Some(&end) => &self.bytes[if at == 0 { 0 } else { self.ends[at - 1] }..end],
            None => &[],
        }
    }

    /// A field of the row without blanks around it. None if it is not UTF-8, which is reported.
    pub fn field(&self, at: usize, line: u64, faults: &mut Faults) -> Option<&str> {
        match std::str::from_utf8(self.bytes_of(at)) {
            Ok(text) => Some(text.trim()),
            Err(_) => {
                faults.add(&self.path, Some(line), format!("field {} is not UTF-8: save the file as UTF-8", at + 1));
                None
            }
        }
    }
}

fn unreadable(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}

fn unclosed(line: u64) -> String {
    format!("the quote that begins in line {line} is not closed; a quote in a field in quotes is written twice")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_name_says_the_separator() {
        let of = |name: &str| separator_of(Path::new(name), b';');
        assert!(["a.csv", "a.CSV", "a.tsv.csv.gz"].iter().all(|name| of(name) == b','));
        assert!(["a.tsv", "a.tab", "b/a.csv.TSV.gz"].iter().all(|name| of(name) == b'\t'));
        assert!(["a.txt", "a", "a.csv/b", "csv", "a.csv.bz2"].iter().all(|name| of(name) == b';'));
    }
}
