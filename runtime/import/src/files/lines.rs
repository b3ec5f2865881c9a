//! Files line by line.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::error::Faults;
use crate::progress::Progress;

/// The lines of a file, also of a compressed one.
pub(crate) struct Lines {
    pub path: PathBuf,
    input: Box<dyn BufRead>,
    /// The last line that was read, with its end.
    bytes: Vec<u8>,
    /// Its number, from 1.
    line: u64,
}

impl Lines {
    /// Opens a file. None if that fails, which is reported.
    pub fn open(path: &Path, progress: &Progress, faults: &mut Faults) -> Option<Lines> {
        match super::open(path, progress) {
            Ok(input) => Some(Lines { path: path.to_path_buf(), input, bytes: Vec::new(), line: 0 }),
            Err(error) => {
                faults.add(path, None, format!("cannot be read: {error}"));
                None
            }
        }
    }

    /// Reads the next line. False at the end of the file, and where it cannot be read, which is reported.
    fn read(&mut self, faults: &mut Faults) -> bool {
        self.bytes.clear();
        self.line += 1;
        match self.input.read_until(b'\n', &mut self.bytes) {
            Ok(count) => count > 0,
            Err(error) => {
                faults.add(&self.path, Some(self.line), format!("cannot be read: {error}"));
                false
            }
        }
    }

    /// The next line, without its end, and its number; one that is not UTF-8 is reported and left out.
    pub fn next_text(&mut self, faults: &mut Faults) -> Option<(u64, &str)> {
        loop {
            if !self.read(faults) {
                return None;
            }
            while self.bytes.pop_if(|byte| matches!(byte, b'\n' | b'\r')).is_some() {}
            if std::str::from_utf8(&self.bytes).is_ok() {
                break;
            }
            faults.add(&self.path, Some(self.line), "is not UTF-8: save the file as UTF-8");
        }
        Some((self.line, std::str::from_utf8(&self.bytes).unwrap_or_default()))
    }

    /// The bytes of the next line that is not blank, without blanks around them, and its number.
    pub fn next_filled(&mut self, faults: &mut Faults) -> Option<(u64, &[u8])> {
        loop {
            if !self.read(faults) {
                return None;
            }
            if !self.bytes.trim_ascii().is_empty() {
                break;
            }
        }
        Some((self.line, self.bytes.trim_ascii()))
    }
}
