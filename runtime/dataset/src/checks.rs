//! Checks of arrays, for datasets that are loaded ([`crate::load`]) and for those that are built ([`crate::build`]).

#![allow(clippy::result_large_err, reason = "an error ends a check, and is built once")]

use rayon::prelude::*;

use crate::dataset::{LabelValues, VertexIds};
use crate::error::DataError;

/// An array in messages.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The file that holds it, or the key that it was given by.
    pub file: &'a str,
    /// The item that it belongs to.
    pub at: &'a str,
}

impl Place<'_> {
    fn names(self) -> (String, String) {
        (self.file.to_owned(), self.at.to_owned())
    }
}

/// The set that ids refer to.
#[derive(Clone, Copy)]
pub(crate) struct Bound<'a> {
    /// Role of the ids: `source`, `vertex`.
    pub what: &'a str,
    pub count: usize,
    /// Such as ``vertex type `author` ``.
    pub of: &'a str,
}

/// Integers as ids below a bound. `position` describes one in messages.
pub(crate) fn ids(
    place: Place<'_>,
    values: &[i64],
    position: impl Fn(usize) -> String,
    bound: Bound<'_>,
) -> Result<Vec<u32>, DataError> {
    let wrong = |v: i64| v < 0 || v as u64 >= bound.count as u64;
    if let Some(first) = values.iter().position(|&v| wrong(v)) {
        let (file, at) = place.names();
        return Err(DataError::IdOutOfRange {
            file,
            at,
            what: bound.what.to_owned(),
            place: position(first),
            value: values[first],
            bound_of: bound.of.to_owned(),
            bound: bound.count as u64,
            more: values[first + 1..].iter().filter(|&&v| wrong(v)).count(),
        });
    }
    // Each value is below the bound, which fits 32 bits.
    Ok(values.iter().map(|&v| v as u32).collect())
}

/// Checks that values are finite; `position` maps a flat position to (row, column).
pub(crate) fn finite(
    place: Place<'_>,
    values: &[f32],
    position: impl Fn(usize) -> (usize, usize),
) -> Result<(), DataError> {
    const CHUNK: usize = 1 << 16;
    let wrong: usize = values.par_chunks(CHUNK).map(|c| c.iter().filter(|v| !v.is_finite()).count()).sum();
    let Some(first) = (wrong > 0).then(|| values.iter().position(|v| !v.is_finite())).flatten() else {
        return Ok(());
    };
    let ((row, column), (file, at)) = (position(first), place.names());
    Err(DataError::NotFinite { file, at, row, column, value: values[first], more: wrong.saturating_sub(1) })
}

/// The row of a stored value of a CSR matrix.
pub(crate) fn row_of(indptr: &[u64], stored: usize) -> usize {
    indptr.partition_point(|&end| end <= stored as u64) - 1
}

/// Row offsets of a CSR matrix with `stored` values. `ends` is not empty.
pub(crate) fn indptr(place: Place<'_>, ends: &[i64], stored: usize) -> Result<Vec<u64>, DataError> {
    let (file, at) = place.names();
    if ends[0] != 0 {
        return Err(DataError::IndptrStart { file, at, found: ends[0] });
    }
    if let Some(row) = ends.windows(2).position(|w| w[1] < w[0]) {
        return Err(DataError::IndptrDecreases { file, at, row, from: ends[row], to: ends[row + 1] });
    }
    let last = ends[ends.len() - 1];
    if last != stored as i64 {
        return Err(DataError::IndptrEnd { file, at, expected: stored as u64, found: last });
    }
    // From here on `ends` ascends from 0.
    Ok(ends.iter().map(|&end| end as u64).collect())
}

/// Checks that the columns of each row of a CSR matrix ascend without duplicates.
pub(crate) fn column_order(place: Place<'_>, indptr: &[u64], indices: &[u32]) -> Result<(), DataError> {
    for (row, w) in indptr.windows(2).enumerate() {
        let columns = &indices[w[0] as usize..w[1] as usize];
        if let Some(i) = columns.windows(2).position(|c| c[1] <= c[0]) {
            let (file, at) = place.names();
            return Err(DataError::ColumnOrder { file, at, row, previous: columns[i], column: columns[i + 1] });
        }
    }
    Ok(())
}

/// Classes of rows, -1 for none.
pub(crate) fn classes(place: Place<'_>, all: &[i64], classes: usize) -> Result<Vec<i32>, DataError> {
    let wrong = |y: i64| y < -1 || y >= classes as i64 || y > i64::from(i32::MAX);
    if let Some(row) = all.iter().position(|&y| wrong(y)) {
        let (file, at) = place.names();
        let more = all[row + 1..].iter().filter(|&&y| wrong(y)).count();
        return Err(DataError::LabelOutOfRange { file, at, row, value: all[row], classes, more });
    }
    Ok(all.iter().map(|&y| y as i32).collect())
}

/// Checks rows of 0 and 1, `classes` wide. A row of -1 has no label; rows without one become 0.
pub(crate) fn zero_one(
    place: Place<'_>,
    rows: &mut [f32],
    labelled: &mut [bool],
    classes: usize,
) -> Result<(), DataError> {
    for (row, (values, labelled)) in rows.chunks_exact_mut(classes).zip(labelled).enumerate() {
        if values.iter().all(|&v| v == -1.0) {
            *labelled = false;
        }
        if !*labelled {
            values.fill(0.0);
        } else if let Some(column) = values.iter().position(|&v| v != 0.0 && v != 1.0) {
            let ((file, at), value) = (place.names(), f64::from(values[column]));
            let expected = "0 or 1 (or -1 in the whole row for no label)".into();
            return Err(DataError::NotZeroOne { file, at, row, column, value, expected });
        }
    }
    Ok(())
}

/// Checks that each row of a part of a split has one of the labels, unless there are none. `what` is the word for a row.
pub(crate) fn labelled(
    place: Place<'_>,
    (part, what): (&str, &'static str),
    ids: &[u32],
    labels: &[&LabelValues],
) -> Result<(), DataError> {
    let unlabelled = |v: u32| !labels.is_empty() && !labels.iter().any(|l| l.is_labelled(v as usize));
    match ids.iter().position(|&v| unlabelled(v)) {
        None => Ok(()),
        Some(position) => {
            let (file, at) = place.names();
            let more = ids[position + 1..].iter().filter(|&&v| unlabelled(v)).count();
            let (part, row) = (part.to_owned(), ids[position]);
            Err(DataError::SplitUnlabelled { file, at, part, position, what, row, more })
        }
    }
}

/// Checks that the parts of a split, with ascending ids, are disjoint and hold no row twice. `what` is the word for a row.
pub(crate) fn disjoint(at: &str, what: &'static str, parts: [(&str, &[u32]); 3]) -> Vec<DataError> {
    let mut errors = Vec::new();
    for (i, &(first, ids)) in parts.iter().enumerate() {
        for (j, &(second, others)) in parts.iter().enumerate().skip(i) {
            let shared: Vec<u32> = if i == j {
                ids.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect()
            } else {
                ids.iter().copied().filter(|v| others.binary_search(v).is_ok()).collect()
            };
            if let Some(&row) = shared.first() {
                let (at, first, second) = (at.to_owned(), first.to_owned(), second.to_owned());
                errors.push(DataError::SplitOverlap { at, first, second, what, row, more: shared.len() - 1 });
            }
        }
    }
    errors
}

/// Text ids of `count` vertices from their offsets and bytes. The offsets are `count + 1`; `bytes_file` is the file or
/// the key of the bytes.
pub(crate) fn text_ids(
    place: Place<'_>,
    bytes_file: &str,
    ends: &[i64],
    bytes: Vec<u8>,
) -> Result<VertexIds, DataError> {
    let count = ends.len() - 1;
    let bad =
        |file: &str, problem: String| Err(DataError::Ids { file: file.to_owned(), at: place.at.to_owned(), problem });
    if ends[0] != 0 || ends[count] != bytes.len() as i64 {
        let problem =
            format!("goes from {} to {}, but should from 0 to {} (`bytes`)", ends[0], ends[count], bytes.len());
        return bad(place.file, problem);
    }
    if let Some(row) = ends.windows(2).position(|w| w[1] < w[0]) {
        return bad(place.file, format!("goes down after vertex {row}, from {} to {}", ends[row], ends[row + 1]));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return bad(bytes_file, format!("is not UTF-8 at byte {}", error.utf8_error().valid_up_to())),
    };
    if let Some(row) = ends.iter().position(|&end| !text.is_char_boundary(end as usize)) {
        return bad(place.file, format!("splits a character before vertex {row}"));
    }
    Ok(VertexIds::Text { offsets: ends.iter().map(|&end| end as u64).collect(), bytes: text })
}
