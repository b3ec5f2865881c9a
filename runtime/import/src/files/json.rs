//! Tables of one JSON object a line.

use std::path::Path;

use serde_json::{Map, Value};

use super::Lines;
use crate::error::{Faults, shown};
use crate::progress::Progress;

/// The records of a file.
pub(crate) struct Records {
    lines: Lines,
    wanted: Vec<String>,
    values: Vec<Option<String>>,
    /// Whether a record had each column.
    seen: Vec<bool>,
    /// The columns of the first record.
    first: Option<Vec<String>>,
}

impl Records {
    pub fn open(path: &Path, wanted: &[String], progress: &Progress, faults: &mut Faults) -> Option<Records> {
        Some(Records {
            lines: Lines::open(path, progress, faults)?,
            wanted: wanted.to_vec(),
            values: Vec::new(),
            seen: vec![false; wanted.len()],
            first: None,
        })
    }

    /// Reads the next record; what is none is reported. At the end, columns that no record has are.
    pub fn next(&mut self, faults: &mut Faults) -> Option<u64> {
        loop {
            let Some((line, text)) = self.lines.next_filled(faults) else {
                self.report_unseen(faults);
                return None;
            };
            let parsed: Result<Map<String, Value>, String> = match text.first() {
                Some(b'[') => {
                    Err("is not a record: write an object `{…}` in each line, without a list around them".into())
                }
                _ => serde_json::from_slice(text).map_err(|error| {
                    format!("`{}` is not a JSON object in one line: {error}", shown(&String::from_utf8_lossy(text)))
                }),
            };
            let record = match parsed {
                Ok(record) => record,
                Err(error) => {
                    faults.add(&self.lines.path, Some(line), error);
                    continue;
                }
            };
            let mut result = Ok(());
            self.values.clear();
            for (name, seen) in self.wanted.iter().zip(&mut self.seen) {
                let value = record.get(name);
                *seen |= value.is_some();
                if let Some(value) = value.filter(|value| value.is_number()) {
                    result = result.and(check_integers(value, text));
                }
                self.values.push(value.and_then(text_of));
            }
            if let Err(error) = result {
                faults.add(&self.lines.path, Some(line), error);
            }
            if self.first.is_none() {
                self.first = Some(record.iter().map(|(name, _)| format!("`{}`", shown(name))).collect());
            }
            return Some(line);
        }
    }

    fn report_unseen(&mut self, faults: &mut Faults) {
        let Some(first) = self.first.take() else { return };
        let unseen = self.wanted.iter().zip(&self.seen).filter(|(_, seen)| !**seen);
        let unseen: Vec<String> = unseen.map(|(name, _)| format!("`{}`", shown(name))).collect();
        if !unseen.is_empty() {
            let (unseen, first) = (unseen.join(", "), first.join(", "));
            faults.add(&self.lines.path, None, format!("no record has {unseen} (the first one has {first})"));
        }
    }

    pub fn field(&self, at: usize) -> Option<&str> {
        self.values.get(at)?.as_deref()
    }
}

/// Checks that no integer of a value, also in lists, has more than 64 bits, since it was read as a float, with other
/// digits than the file has.
pub(crate) fn check_integers(value: &Value, text: &[u8]) -> Result<(), String> {
    const LEAST: f64 = 9_223_372_036_854_775_808.0;
    match value {
        Value::Array(parts) => parts.iter().try_for_each(|part| check_integers(part, text)),
        Value::Number(number) if number.is_f64() => {
            let x = number.as_f64().filter(|x| x.abs() >= LEAST);
            match x.and_then(|x| integer_of(x, text)) {
                Some(digits) => {
                    Err(format!("the integer `{}` has more than 64 bits: write it in quotes", shown(digits)))
                }
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// The integer in a JSON text that was read as this float.
fn integer_of(x: f64, text: &[u8]) -> Option<&str> {
    let mut at = 0;
    let mut in_string = false;
    while at < text.len() {
        match text[at] {
            b'"' => in_string = !in_string,
            b'\\' => at += 1,
            b'-' | b'0'..=b'9' if !in_string => {
                let is_part = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let length = text[at..].iter().take_while(is_part).count();
                let number = std::str::from_utf8(&text[at..at + length]).unwrap_or_default();
                if !number.contains(['.', 'e', 'E']) && number.parse() == Ok(x) {
                    return Some(number);
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// A value as a field of a table: lists and objects in JSON.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.trim().to_owned()),
        other => Some(other.to_string()),
    }
}
