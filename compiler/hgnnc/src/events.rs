//! Event files of TensorBoard: scalars by step.
//!
//! A file is a sequence of records, each with the length of its data in 8 bytes, a checksum of these, the data, and a
//! checksum of the data (`tensorflow/core/lib/io/record_writer.h`). The data are an `Event`
//! (`tensorflow/core/util/event.proto`), of which this writes the wall time, the step, and a version, a summary of
//! scalars or the start of a session.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// An event file that is being written.
#[derive(Debug)]
pub(crate) struct EventFile {
    file: File,
}

impl EventFile {
    /// A new event file in a folder, which is created if needed. `after` is the step that the run continues after:
    /// TensorBoard then drops later steps of files written before.
    pub fn create(folder: &Path, after: Option<u64>) -> io::Result<EventFile> {
        std::fs::create_dir_all(folder)?;
        let seconds = now() as u64;
        // Files of one second are in the order in which they were made.
        let before = std::fs::read_dir(folder)?.count();
        let file = (before..before + 1000).find_map(|number| {
            // TensorBoard takes files with `tfevents` in their names, in the order of the names.
            let name = format!("events.out.tfevents.{seconds:010}.{number:04}.{}.hgnnc", std::process::id());
            match File::options().write(true).create_new(true).open(folder.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                other => Some(other),
            }
        });
        let file = file.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::AlreadyExists)))?;
        let mut events = EventFile { file };
        let mut version = vec![];
        text(&mut version, 3, b"brain.Event:2");
        events.event(0, &version)?;
        if let Some(after) = after {
            // SessionLog { status: START }
            let mut session = vec![];
            text(&mut session, 7, &[0x08, 0x01]);
            events.event(after + 1, &session)?;
        }
        Ok(events)
    }

    /// Writes scalars of a step.
    pub fn scalars<'a>(&mut self, step: u64, scalars: impl IntoIterator<Item = (&'a str, f64)>) -> io::Result<()> {
        let mut summary = vec![];
        for (tag, value) in scalars {
            let mut scalar = vec![];
            text(&mut scalar, 1, tag.as_bytes());
            scalar.push(2 << 3 | 5);
            scalar.extend((value as f32).to_le_bytes());
            text(&mut summary, 1, &scalar);
        }
        let mut event = vec![];
        text(&mut event, 5, &summary);
        self.event(step, &event)
    }

    /// Writes a record of an event with its time and step.
    fn event(&mut self, step: u64, what: &[u8]) -> io::Result<()> {
        let mut event = vec![1 << 3 | 1];
        event.extend(now().to_le_bytes());
        event.push(2 << 3);
        varint(&mut event, step);
        event.extend(what);
        let length = (event.len() as u64).to_le_bytes();
        let mut record = length.to_vec();
        record.extend(masked_crc32c(&length).to_le_bytes());
        record.extend(&event);
        record.extend(masked_crc32c(&event).to_le_bytes());
        // In one call, so that a reader meets whole records.
        self.file.write_all(&record)
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A field of bytes.
fn text(into: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    into.push(field << 3 | 2);
    varint(into, bytes.len() as u64);
    into.extend(bytes);
}

fn varint(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// The checksum of records: a CRC-32C, rotated and with a constant added, since data may contain checksums themselves.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: records are short.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the algorithm.
    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn records_are_framed_and_hold_scalars() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut events = EventFile::create(folder.path(), Some(4)).expect("created");
        events.scalars(300, [("loss", 0.5)]).expect("written");
        let entry = std::fs::read_dir(folder.path()).expect("listed").next().expect("a file").expect("an entry");
        assert!(entry.file_name().to_string_lossy().contains("tfevents"));
        let bytes = std::fs::read(entry.path()).expect("read");
        let (mut rest, mut records) = (&bytes[..], vec![]);
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().expect("8 bytes")) as usize;
            let of = |from: usize| u32::from_le_bytes(rest[from..from + 4].try_into().expect("4 bytes"));
            assert_eq!(of(8), masked_crc32c(&rest[..8]));
            assert_eq!(of(12 + length), masked_crc32c(&rest[12..12 + length]));
            // The time takes 9 bytes.
            records.push(rest[12 + 9..12 + length].to_vec());
            rest = &rest[16 + length..];
        }
        assert_eq!(records[0], b"\x10\x00\x1a\x0dbrain.Event:2");
        assert_eq!(records[1], b"\x10\x05\x3a\x02\x08\x01");
        assert_eq!(records[2], b"\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f");
        // Another file of the same second.
        EventFile::create(folder.path(), None).expect("created");
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 2);
    }
}
