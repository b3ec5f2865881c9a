//! Rows of tables, and the ids in them.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use super::config::OneOrMore;
use super::{Import, JOINER};
use crate::error::shown;
use crate::files::{Format, Style, Table};

/// The files of a table, and their format.
pub(super) struct TableOf<'a> {
    pub files: &'a OneOrMore,
    pub separator: Option<char>,
    pub format: Option<Format>,
    /// Names of the columns of files without a header.
    pub columns: Option<&'a [String]>,
}

/// A row of a table: the fields of the wanted columns, None where a value is missing.
pub(super) struct Row<'r> {
    pub path: &'r Path,
    pub line: u64,
    pub fields: &'r [Option<&'r str>],
    /// The texts that stand for missing values, by field.
    pub stand_ins: Vec<(usize, &'r str)>,
}

impl<'r> Row<'r> {
    /// The text that stands for the missing value of a field.
    pub fn stand_in(&self, field: usize) -> Option<&'r str> {
        self.stand_ins.iter().find(|(at, _)| *at == field).map(|&(_, text)| text)
    }

    /// The key in some columns from `at` on. None if it is not one; [`Import::key`] reports why.
    pub fn key(&self, at: usize, columns: usize) -> Option<Cow<'r, str>> {
        let parts = &self.fields[at..at + columns];
        if let [part] = parts {
            return part.map(Cow::Borrowed);
        }
        let mut key = String::new();
        for (i, part) in parts.iter().enumerate() {
            let part = part.filter(|part| !part.contains(JOINER))?;
            if i > 0 {
                key.push(JOINER);
            }
            key.push_str(part);
        }
        Some(Cow::Owned(key))
    }
}

/// Rows of one file that are read and not yet handled: many ids are looked up faster at once than one after the other.
#[derive(Default)]
struct Batch {
    /// The line of each row.
    lines: Vec<u64>,
    /// By row and wanted column, its place in `text`; None of a missing value.
    fields: Vec<Option<Range<usize>>>,
    /// By row, the texts that stand for missing values, by wanted column.
    stand_ins: Vec<Vec<(usize, Range<usize>)>>,
    text: String,
}

impl Batch {
    /// Bounds on the rows and the bytes of texts, which stay in the caches of a processor.
    const ROWS: usize = 1024;
    const BYTES: usize = 1 << 18;

    fn is_full(&self) -> bool {
        self.lines.len() >= Batch::ROWS || self.text.len() >= Batch::BYTES
    }

    /// Adds a row without fields, which [`Batch::push`] adds.
    fn begin(&mut self, line: u64) {
        self.lines.push(line);
        self.stand_ins.push(Vec::new());
    }

    /// Adds a field of the last row; `text` may be one of the `missing` values.
    fn push(&mut self, at: usize, text: Option<&str>, missing: &[String]) {
        let start = self.text.len();
        self.text.push_str(text.unwrap_or_default());
        let range = start..self.text.len();
        let is_missing = text.is_none_or(|text| missing.iter().any(|missing| missing == text));
        if is_missing
            && !range.is_empty()
            && let Some(stand_ins) = self.stand_ins.last_mut()
        {
            stand_ins.push((at, range.clone()));
        }
        self.fields.push((!is_missing).then_some(range));
    }

    /// Hands the rows to `handle`, and forgets them.
    fn handle(&mut self, path: &Path, width: usize, handle: impl FnOnce(&[Row<'_>])) {
        let of = |range: &Range<usize>| &self.text[range.clone()];
        let fields: Vec<Option<&str>> = self.fields.iter().map(|range| range.as_ref().map(of)).collect();
        let row = |(i, &line): (usize, &u64)| Row {
            path,
            line,
            fields: &fields[i * width..(i + 1) * width],
            stand_ins: self.stand_ins[i].iter().map(|(at, range)| (*at, of(range))).collect(),
        };
        let rows: Vec<Row<'_>> = self.lines.iter().enumerate().map(row).collect();
        handle(&rows);
        self.lines.clear();
        self.fields.clear();
        self.stand_ins.clear();
        self.text.clear();
    }
}

impl<'a> Import<'a> {
    /// Opens each file of a table with the positions of its columns, and calls `row` with each row. Whether all could be
    /// opened and have the columns; otherwise it is reported.
    pub(super) fn rows(
        &mut self,
        table: &TableOf<'a>,
        wanted: &[String],
        mut row: impl FnMut(&mut Import<'a>, &Row<'_>),
    ) -> bool {
        self.batches(table, wanted, |import, rows| rows.iter().for_each(|of| row(import, of)))
    }

    /// [`Import::rows`], with many rows of a file at a time.
    pub(super) fn batches(
        &mut self,
        table: &TableOf<'a>,
        wanted: &[String],
        mut handle: impl FnMut(&mut Import<'a>, &[Row<'_>]),
    ) -> bool {
        let files = self.files(table.files);
        let mut all = !files.is_empty();
        let mut batch = Batch::default();
        for path in files {
            let Some(separator) = self.separator(table.separator, &path) else { return false };
            let style = Style { separator, quotes: true, columns: table.columns, ragged: false };
            let before = self.faults.listed.len();
            let opened = Table::open(&path, table.format, &style, wanted, self.progress, &mut self.faults);
            let Some(mut rows) = opened else {
                all = false;
                continue;
            };
            loop {
                let line = rows.next(&mut self.faults);
                if batch.is_full() || line.is_none() {
                    batch.handle(&path, wanted.len(), |rows| handle(self, rows));
                }
                let Some(line) = line else { break };
                batch.begin(line);
                for at in 0..wanted.len() {
                    batch.push(at, rows.field(at, line, &mut self.faults), &self.config.missing_values);
                }
            }
            // A batch is read before its rows are handled.
            self.faults.listed[before..].sort_by_key(|fault| fault.line);
        }
        all
    }

    /// The key in some columns of a row. None if one of them is missing, which is reported.
    pub(super) fn key<'r>(&mut self, row: &Row<'r>, at: usize, columns: &[String]) -> Option<Cow<'r, str>> {
        let key = row.key(at, columns.len());
        if key.is_some() {
            return key;
        }
        for (i, column) in columns.iter().enumerate() {
            let message = match row.fields[at + i] {
                Some(part) if part.contains(JOINER) => {
                    format!("`{}` holds `{JOINER}`, which joins the columns of an id", shown(part))
                }
                Some(_) => continue,
                None => {
                    let column = shown(column);
                    match row.stand_in(at + i) {
                        Some(text) => format!(
                            "`{}` in column `{column}` stands for a missing value, but the column is an id: write `missing_values` without it",
                            shown(text)
                        ),
                        None => format!("column `{column}` has no value, but is an id"),
                    }
                }
            };
            self.faults.add(row.path, Some(row.line), message);
            break;
        }
        None
    }
}
