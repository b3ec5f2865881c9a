//! A grid of settings: a run, or runs of several seeds, for each combination of values of a model's constants.
//!
//! Each point has a folder, which appears with all of its files when the point is done, so that a sweep that was killed
//! goes on with the point it was at. Points are compared by the selection criterion of the model, of which the validation
//! part decides; metrics of the test part are shown of the chosen point only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use hgnnc_dataset::atomic;
use hgnnc_driver::{Disabled, Setting};
use hgnnc_train::{Epoch, Outcome, TrainOptions};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::dataset::{SYNTHETIC, contents_hash};
use crate::outputs::report_text;
use crate::seeds::Select;
use crate::{DataSource, Error, Job, Observer, Purpose, prepare, source};

/// The parameters of a point.
const WEIGHTS: &str = "weights.safetensors";
/// The report of a point.
const REPORT: &str = "report.json";
/// Settings that the points of a folder share.
const RUN: &str = "run.json";
/// The table of all points.
const TABLE: &str = "sweep.json";

/// The entry of [`RUN`] with a hash of the data.
const CONTENTS: &str = "contents of the dataset";

/// A grid and where it goes.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Settings that all points share. The constants of the grid are set at every point.
    pub job: Job,
    /// Constants with their values; the values of the last one vary first.
    pub grid: Vec<(String, Vec<String>)>,
    /// Runs of each point, which differ in their seeds.
    pub seeds: u64,
    /// The folder of the sweep.
    pub out: PathBuf,
}

/// A point of the grid.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// The values of the grid's constants.
    pub constants: BTreeMap<String, f64>,
    /// Name of its folder.
    pub folder: String,
    /// The selection criterion; with several seeds its mean. `None` where it was not measured.
    pub criterion: Option<f64>,
    /// Its standard deviation, with several seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub std: Option<f64>,
    /// Metrics of the training and the validation part; with several seeds their means.
    pub metrics: BTreeMap<String, BTreeMap<String, f64>>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// All points of a sweep.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepReport {
    /// Name of the criterion, such as `val.loss`.
    pub select: String,
    /// The best one first; those that were not measured, or that failed, last.
    pub points: Vec<Point>,
    /// The folder of the best point.
    pub chosen: Option<String>,
    /// Metrics of the test part of the chosen point; with several seeds their means.
    pub test: Option<BTreeMap<String, f64>>,
    /// Points of the grid that were not reached.
    pub left: usize,
}

/// Callbacks for the progress of a sweep.
pub trait SweepObserver: Observer + Send {
    /// A point begins, of so many (from 1), or was done before.
    fn point(&mut self, number: usize, of: usize, folder: &str, done_before: bool);

    /// An epoch of the run with this seed.
    fn epoch(&mut self, seed: u64, epoch: &Epoch<'_>);
}

impl Sweep {
    /// Runs all points that are not done, and writes the table.
    ///
    /// # Errors
    /// A model or values that are wrong (before anything runs), a folder of another sweep, or a machine that fails.
    pub fn run(&self, stop: &AtomicBool, observer: &mut dyn SweepObserver) -> Result<SweepReport, Error> {
        let points = self.points()?;
        let Checked { select, imported, dataset } = self.check(&points)?;
        self.begin(&imported, dataset.as_deref())?;
        let mut found = vec![];
        for (number, (settings, folder)) in points.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let place = self.out.join(folder);
            let done = place.join(REPORT).is_file();
            observer.point(number + 1, points.len(), folder, done);
            if !done {
                match self.train(settings, &place, stop, observer) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(Failed::Point(why)) => {
                        observer.note(format!("warning: {folder}: {why}"));
                        found.push(self.failed(settings, folder, why)?);
                        continue;
                    }
                    Err(Failed::Sweep(error)) => return Err(error),
                }
            }
            found.push(read(&place, folder, &select)?);
            self.write_table(&self.report(&select, &found, points.len()))?;
        }
        let report = self.report(&select, &found, points.len());
        self.write_table(&report)?;
        Ok(report)
    }

    /// The settings and the folder of each point.
    fn points(&self) -> Result<Vec<(Vec<Setting>, String)>, Error> {
        let mut points: Vec<Vec<Setting>> = vec![vec![]];
        for (name, values) in &self.grid {
            let with = |point: &Vec<Setting>| {
                let value = |value: &String| [&point[..], &[(name.clone(), value.clone())]].concat();
                values.iter().map(value).collect::<Vec<_>>()
            };
            points = points.iter().flat_map(with).collect();
        }
        let mut named: Vec<(Vec<Setting>, String)> = vec![];
        for point in points {
            let folder = folder_of(&point);
            if let Some((other, _)) = named.iter().find(|(_, other)| *other == folder) {
                let shown =
                    |point: &[Setting]| point.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ");
                return Err(Error::input(format!(
                    "the points `{}` and `{}` have the same folder, `{folder}`: is a value given twice?",
                    shown(other),
                    shown(&point)
                )));
            }
            named.push((point, folder));
        }
        Ok(named)
    }

    fn settings(&self, point: &[Setting]) -> Vec<Setting> {
        [&self.job.constants[..], point].concat()
    }

    /// Checks the model with the values of all points.
    fn check(&self, points: &[(Vec<Setting>, String)]) -> Result<Checked, Error> {
        let mut checked = None;
        for (settings, _) in points {
            let analysis = self.job.model.read(&self.settings(settings))?;
            source::accept(&analysis, &analysis.diagnostics, &mut crate::Silent)?;
            let spec = analysis.model.as_ref().and_then(|model| model.train.as_ref());
            let Some(spec) = spec else {
                return Err(Error::input("the model has no `train` block, so it cannot be trained"));
            };
            checked.get_or_insert_with(|| Checked {
                select: Select::of(&spec.training),
                imported: analysis.imported_texts().map(str::to_owned).collect(),
                dataset: spec.training.dataset.clone(),
            });
        }
        checked.ok_or_else(|| Error::input("the sweep has no points: give values with `--set NAME=VALUE,VALUE`"))
    }

    /// Creates the folder, or makes sure that it is of this sweep: points of another model or with other options are not
    /// comparable. The grid may have grown.
    fn begin(&self, imported: &[String], dataset: Option<&str>) -> Result<(), Error> {
        let job = &self.job;
        let mut own = Map::new();
        let data = match &job.data {
            DataSource::Named => json!(null),
            DataSource::Folder(folder) => json!(std::path::absolute(folder).unwrap_or(folder.clone())),
            DataSource::Loaded(dataset) => json!(dataset.name),
        };
        own.insert("data".into(), data);
        own.insert("split".into(), json!(job.split));
        let set: BTreeMap<&String, &String> = job.constants.iter().map(|(name, value)| (name, value)).collect();
        own.insert("constants".into(), json!(set));
        own.insert("seeds".into(), json!(self.seeds));
        own.insert("seed".into(), json!(job.options.seed));
        own.insert("epochs".into(), json!(job.options.epochs));
        own.insert("model".into(), json!(job.model.text()?));
        // Synthetic datasets are always the same.
        let named = dataset.filter(|name| !name.starts_with(SYNTHETIC));
        let folder = match &job.data {
            DataSource::Folder(folder) => Some(folder.clone()),
            DataSource::Named => named.map(|name| job.model.folder().join(name)),
            DataSource::Loaded(_) => None,
        };
        own.insert(CONTENTS.into(), json!(folder.map(|folder| contents_hash(&folder)).transpose()?));
        // Options by which the numbers of a run differ are kept where they are not the default.
        let (options, default) = (&job.options, TrainOptions::default());
        if options.precision != default.precision {
            own.insert("precision".into(), json!(format!("{:?}", options.precision)));
        }
        if options.features != default.features {
            own.insert("set of kernels".into(), json!(format!("{:?}", options.features)));
        }
        if job.disabled != Disabled::default() {
            own.insert("set of passes".into(), json!(format!("{:?}", job.disabled)));
        }
        // A sweep of a model that imports from no file is the same as one of an earlier version.
        if !imported.is_empty() {
            own.insert("list of imported files".into(), json!(imported));
        }
        let own = Value::from(own);
        let path = self.out.join(RUN);
        match fs::read(&path) {
            Ok(before) => {
                let before: Value = serde_json::from_slice(&before).unwrap_or_default();
                let all = [&before, &own].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
                let names: BTreeSet<&String> = all.collect();
                // An earlier version did not know the contents.
                let is_new = |name: &str| name == CONTENTS && before.get(name).is_none();
                let changed = names.into_iter().filter(|name| before.get(name) != own.get(name) && !is_new(name));
                let changed: Vec<&str> = changed.map(String::as_str).collect();
                if changed.is_empty() {
                    return Ok(());
                }
                Err(Error::input(format!(
                    "`{}` holds a sweep with another {}: its points cannot be compared with those of this one; name another \
                     folder",
                    self.out.display(),
                    changed.join(", ")
                )))
            }
            Err(_) => {
                let filled = fs::read_dir(&self.out).is_ok_and(|mut entries| entries.next().is_some());
                if filled {
                    return Err(Error::input(format!(
                        "`{}` holds files that are of no sweep: name a folder that is not there, or empty",
                        self.out.display()
                    )));
                }
                fs::create_dir_all(&self.out).map_err(|error| Error::write(&self.out, &error))?;
                let text = format!("{own:#}\n");
                atomic::write(&path, text.as_bytes()).map_err(|error| Error::write(&path, &error))
            }
        }
    }

    /// Trains a point and writes its folder. False if it was interrupted: then nothing is written.
    fn train(
        &self,
        settings: &[Setting],
        place: &Path,
        stop: &AtomicBool,
        observer: &mut dyn SweepObserver,
    ) -> Result<bool, Failed> {
        let job = Job { constants: self.settings(settings), ..self.job.clone() };
        let mut prepared = prepare(Purpose::Train, &job, observer)?;
        let limit = job.options.max_time;
        let runs = prepared.train_seeds(self.seeds, limit, stop, &mut |seed, epoch| observer.epoch(seed, epoch));
        let runs = match runs {
            Ok(runs) => runs,
            // A loss that is not finite is a result of the point.
            Err(Error::Input(why)) => return Err(Failed::Point(why)),
            Err(error) => return Err(error.into()),
        };
        if runs.outcome == Outcome::Interrupted {
            return Ok(false);
        }
        let write = |error: std::io::Error| Failed::Sweep(Error::write(place, &error));
        let folder = tempfile::Builder::new().prefix(".point-").tempdir_in(&self.out).map_err(write)?;
        prepared.trainer.save_weights(&folder.path().join(WEIGHTS)).map_err(Error::from)?;
        let text = report_text(&runs.report)?;
        atomic::write(&folder.path().join(REPORT), text.as_bytes()).map_err(write)?;
        // Left by a run that was killed between two files, by another version.
        let _ = fs::remove_dir(place);
        let folder = folder.keep();
        make_readable(&folder);
        fs::rename(&folder, place).map_err(|error| {
            Failed::Sweep(Error::Machine(format!(
                "cannot write `{}`: {error}; the point is in `{}` instead",
                place.display(),
                folder.display()
            )))
        })?;
        Ok(true)
    }

    fn failed(&self, settings: &[Setting], folder: &str, why: String) -> Result<Point, Error> {
        let analysis = self.job.model.read(&self.settings(settings))?;
        let value = |(name, _): &Setting| Some((name.clone(), *analysis.constants.get(name)?));
        let constants = settings.iter().filter_map(value).collect();
        let (criterion, std, metrics) = (None, None, BTreeMap::new());
        Ok(Point { constants, folder: folder.into(), criterion, std, metrics, error: Some(why) })
    }

    /// The points so far, the best one first.
    fn report(&self, select: &Select, found: &[Point], of: usize) -> SweepReport {
        let mut points = found.to_vec();
        let key = |point: &Point| match point.criterion {
            Some(value) if select.criterion.measure.metric.smaller_is_better() => value,
            Some(value) => -value,
            None => f64::INFINITY,
        };
        // Stable: the first of equal ones stays first.
        points.sort_by(|a, b| key(a).total_cmp(&key(b)));
        let chosen = points.first().filter(|point| point.criterion.is_some()).map(|point| point.folder.clone());
        let test = chosen.as_ref().and_then(|folder| {
            let report = json_of(&self.out.join(folder).join(REPORT)).ok()?;
            metrics_of(&report).remove("test")
        });
        let select = format!("{}.{}", select.criterion.part.name(), select.name);
        SweepReport { select, left: of - points.len(), points, chosen, test }
    }

    fn write_table(&self, report: &SweepReport) -> Result<(), Error> {
        let path = self.out.join(TABLE);
        let mut text = serde_json::to_string_pretty(report)
            .map_err(|error| Error::Machine(format!("cannot write the table: {error}")))?;
        text.push('\n');
        atomic::write(&path, text.as_bytes()).map_err(|error| Error::write(&path, &error))
    }
}

/// A model without errors.
struct Checked {
    /// The criterion by which points are selected.
    select: Select,
    /// The texts of the files that it imports from.
    imported: Vec<String>,
    /// The dataset that it names.
    dataset: Option<String>,
}

/// Why a point has no results.
enum Failed {
    /// Its numbers did not stay finite: the others go on.
    Point(String),
    Sweep(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Sweep(error)
    }
}

/// Temporary folders are for their owner only.
fn make_readable(folder: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Not possible on some file systems, where it does no harm.
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
    }
    #[cfg(not(unix))]
    let _ = folder;
}

/// The name of the folder of a point: its settings, with characters that file systems take.
fn folder_of(point: &[Setting]) -> String {
    let plain = |text: &str| {
        let plain = |c: char| if c.is_alphanumeric() || "._+-=".contains(c) { c } else { '-' };
        text.trim().chars().map(plain).collect::<String>()
    };
    point.iter().map(|(name, value)| format!("{}={}", plain(name), plain(value))).collect::<Vec<_>>().join(",")
}

/// A point that is done.
fn read(place: &Path, folder: &str, select: &Select) -> Result<Point, Error> {
    let report = json_of(&place.join(REPORT))?;
    let mut metrics = metrics_of(&report);
    metrics.remove("test");
    let of = |all: Option<&Value>| all?.get(select.criterion.part.name())?.get(&select.name)?.as_f64();
    let criterion = of(report.get("mean")).or_else(|| of(report.get("metrics")));
    let several = report.get("seeds").and_then(Value::as_array).is_some_and(|seeds| seeds.len() > 1);
    let std = of(report.get("std")).filter(|_| several);
    let constants = report.get("constants").and_then(Value::as_object).into_iter().flatten();
    let constants = constants.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
    Ok(Point { constants, folder: folder.into(), criterion, std, metrics, error: None })
}

/// The means of a report of several seeds, or the metrics of its only run.
fn metrics_of(report: &Value) -> BTreeMap<String, BTreeMap<String, f64>> {
    let all = report.get("mean").or_else(|| report.get("metrics"));
    all.and_then(|all| serde_json::from_value(all.clone()).ok()).unwrap_or_default()
}

fn json_of(path: &Path) -> Result<Value, Error> {
    let text = fs::read(path).map_err(|error| Error::read(path, &error))?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::input(format!("`{}` is no report: {error}; remove its folder", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(grid: &[(&str, &[&str])]) -> Sweep {
        let values = |values: &[&str]| values.iter().map(ToString::to_string).collect();
        let grid = grid.iter().map(|(name, of)| (name.to_string(), values(of))).collect();
        Sweep { job: Job::new("m.hgnn"), grid, seeds: 1, out: "out".into() }
    }

    #[test]
    fn the_last_constant_varies_first() {
        let points = sweep(&[("lr", &["0.01", "1e-3"]), ("hidden", &["8", "16"])]).points().expect("points");
        let folders: Vec<&str> = points.iter().map(|(_, folder)| &folder[..]).collect();
        assert_eq!(folders, ["lr=0.01,hidden=8", "lr=0.01,hidden=16", "lr=1e-3,hidden=8", "lr=1e-3,hidden=16"]);
    }

    #[test]
    fn folders_are_told_apart() {
        let error = sweep(&[("lr", &["0.01", " 0.01"])]).points().expect_err("twice").to_string();
        assert!(error.contains("have the same folder, `lr=0.01`"), "{error}");
        assert_eq!(folder_of(&[("lr".into(), "1/3".into())]), "lr=1-3");
    }
}
