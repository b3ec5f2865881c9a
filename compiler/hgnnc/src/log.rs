//! The course of a run in files, while it goes on: a line of JSON per epoch, and event files of TensorBoard.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use hgnnc_ir::training::Part;
use hgnnc_train::Epoch;
use serde_json::{Map, Value, json};

use crate::Error;
use crate::events::EventFile;

/// Destinations of the metrics of each epoch.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LogPlaces {
    /// A file with an object per line.
    pub json_lines: Option<PathBuf>,
    /// A folder of event files; runs of several seeds have a folder each in it.
    pub tensorboard: Option<PathBuf>,
}

/// Writes each epoch of one or more runs. An error ends the writing and not the run: [`EpochLog::finish`] returns it.
#[derive(Debug)]
pub struct EpochLog {
    places: LogPlaces,
    lines: Option<File>,
    events: Option<EventFile>,
    /// The seed that the event file is of.
    seed: Option<u64>,
    /// Epochs done before the run continues.
    after: Option<u64>,
    /// Whether runs of several seeds are written.
    several: bool,
    failed: Option<Error>,
}

impl EpochLog {
    /// Opens the files. `after` is the number of epochs that a continued run has done: the lines of later epochs, which a
    /// killed run may have left, are removed, and the others stay. A new run begins a new file.
    ///
    /// # Errors
    /// A file that cannot be written, or that holds something else.
    pub fn open(places: &LogPlaces, after: Option<u64>, several: bool) -> Result<EpochLog, Error> {
        let lines = match (&places.json_lines, after) {
            (None, _) => None,
            (Some(path), None) => Some(File::create(path).map_err(|error| Error::write(path, &error))?),
            (Some(path), Some(done)) => Some(continued(path, done)?),
        };
        let mut log =
            EpochLog { places: places.clone(), lines, events: None, seed: None, after, several, failed: None };
        if let (Some(folder), false) = (&places.tensorboard, several) {
            log.events = Some(EventFile::create(folder, after).map_err(|error| Error::write(folder, &error))?);
        }
        Ok(log)
    }

    /// Whether there is anything to write.
    pub fn is_wanted(&self) -> bool {
        self.places != LogPlaces::default()
    }

    /// Writes an epoch of the run with this seed. Batches within an epoch are not written.
    pub fn epoch(&mut self, seed: u64, epoch: &Epoch<'_>) {
        if epoch.within.is_none() && self.failed.is_none() {
            self.failed = self.write(seed, epoch).err();
        }
    }

    fn write(&mut self, seed: u64, epoch: &Epoch<'_>) -> Result<(), Error> {
        let number = epoch.epoch + 1;
        if let (Some(file), Some(path)) = (&mut self.lines, &self.places.json_lines) {
            let mut line = Map::new();
            line.insert("seed".into(), seed.into());
            line.insert("epoch".into(), number.into());
            line.insert("loss".into(), json!(epoch.loss));
            for part in [Part::Train, Part::Val] {
                let of_part = epoch.metrics.iter().filter(|(of, ..)| *of == part);
                let metrics: Map<String, Value> =
                    of_part.map(|(_, metric, value)| (metric.to_string(), json!(value))).collect();
                if !metrics.is_empty() {
                    line.insert(part.name().into(), metrics.into());
                }
            }
            line.insert("best".into(), epoch.best.into());
            line.insert("ms".into(), json!(epoch.ms));
            let text = format!("{}\n", Value::from(line));
            // Not buffered: the line is there when the epoch is over.
            file.write_all(text.as_bytes()).map_err(|error| Error::write(path, &error))?;
        }
        if let Some(folder) = &self.places.tensorboard {
            let failed = |error: std::io::Error| Error::write(folder, &error);
            if self.several && self.seed != Some(seed) {
                let folder = folder.join(format!("seed-{seed}"));
                (self.events, self.seed) = (Some(EventFile::create(&folder, None).map_err(failed)?), Some(seed));
            }
            if let Some(events) = &mut self.events {
                let names: Vec<(String, f64)> = epoch
                    .metrics
                    .iter()
                    .map(|(part, metric, value)| (format!("{metric}/{}", part.name()), *value))
                    .collect();
                let own = [("loss/step", epoch.loss), ("time/epoch_ms", epoch.ms)];
                let all = own.into_iter().chain(names.iter().map(|(name, value)| (&name[..], *value)));
                events.scalars(number, all).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Ends the writing.
    ///
    /// # Errors
    /// The first error of a file; what came after it is not written.
    pub fn finish(self) -> Result<(), Error> {
        match self.failed {
            Some(Error::Machine(why)) => Err(Error::Machine(format!("{why}; the log ends there, and the run went on"))),
            Some(error) => Err(error),
            None => match self.lines {
                Some(file) => {
                    // A disk may notice only now that it is full. Pipes cannot be flushed.
                    let path = self.places.json_lines.unwrap_or_default();
                    let is_file = file.metadata().is_ok_and(|found| found.is_file());
                    if is_file { file.sync_all().map_err(|error| Error::write(&path, &error)) } else { Ok(()) }
                }
                None => Ok(()),
            },
        }
    }

    /// Epochs that a continued run had done.
    pub fn after(&self) -> Option<u64> {
        self.after
    }
}

/// Opens the log of a run that continues after `done` epochs, and removes the lines of later ones and an incomplete last
/// line.
fn continued(path: &Path, done: u64) -> Result<File, Error> {
    let failed = |error: std::io::Error| Error::write(path, &error);
    let open = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = open.map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Ok(file);
    }
    let text = std::fs::read(path).map_err(|error| Error::read(path, &error))?;
    let mut kept = 0;
    for (number, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let epoch = serde_json::from_slice::<Value>(line).ok().and_then(|line| line.get("epoch")?.as_u64());
        let complete = line.ends_with(b"\n");
        match epoch {
            Some(epoch) if epoch <= done && complete => kept += line.len(),
            None if complete => {
                return Err(Error::input(format!(
                    "`{}` is not the log of a run: line {} is no epoch; name another file",
                    path.display(),
                    number + 1
                )));
            }
            _ => break,
        }
    }
    file.set_len(kept as u64).map_err(failed)?;
    file.seek(SeekFrom::End(0)).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(epoch: u64) -> Epoch<'static> {
        Epoch {
            epoch,
            epochs: 9,
            loss: 0.5,
            criterion: None,
            metrics: &[],
            best: epoch == 0,
            ms: 2.0,
            within: None,
            warning: None,
        }
    }

    #[test]
    fn a_continued_run_goes_on_where_its_checkpoint_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log.jsonl");
        let places = LogPlaces { json_lines: Some(path.clone()), tensorboard: None };
        let write = |after: Option<u64>, epochs: std::ops::Range<u64>| {
            let mut log = EpochLog::open(&places, after, false).expect("opened");
            epochs.for_each(|number| log.epoch(3, &epoch(number)));
            log.finish().expect("written");
            std::fs::read_to_string(&path).expect("read")
        };
        let whole = write(None, 0..4);
        assert_eq!(whole.lines().next(), Some(r#"{"seed":3,"epoch":1,"loss":0.5,"best":true,"ms":2.0}"#));
        // Killed within the line of the fourth epoch, with a checkpoint after the second.
        std::fs::write(&path, &whole[..whole.len() - 5]).expect("written");
        assert_eq!(write(Some(2), 2..4), whole);
        assert_eq!(write(Some(4), 4..4), whole);
        // A new run begins anew.
        assert_eq!(write(None, 0..1).lines().count(), 1);
    }

    #[test]
    fn another_file_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "{\"epoch\":1}\nmy notes\n").expect("written");
        let places = LogPlaces { json_lines: Some(path.clone()), tensorboard: None };
        let error = EpochLog::open(&places, Some(5), false).expect_err("refused").to_string();
        assert!(error.contains("line 2 is no epoch"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("read").lines().count(), 2);
    }
}
