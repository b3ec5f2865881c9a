//! `hgnnc sweep`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use hgnnc::{Observer, Sweep, SweepObserver, SweepReport, check_folder};
use hgnnc_diag::{Diagnostics, SourceMap};
use hgnnc_train::{Epoch, TrainOptions};

use crate::failure::Failure;
use crate::output::{note, print};
use crate::progress::Progress;
use crate::run::{job, options};
use crate::source::Terminal;
use crate::sweep_args::SweepArgs;
use crate::train::{INTERRUPTED, stop_on_interrupt};

/// Trains all points of a grid, and prints them in order of their validation metric.
pub fn sweep(args: &SweepArgs) -> Result<ExitCode, Failure> {
    check_folder(&args.out)?;
    let options = TrainOptions { seed: args.seed, epochs: args.epochs, ..options(&args.device) };
    let mut job = job(&args.model, args.device.device, &args.disable, options)?;
    let given = std::mem::take(&mut job.constants);
    let values = |values: &str| values.split(',').map(|value| value.trim().to_owned()).collect();
    let grid = given.into_iter().map(|(name, of)| (name, values(&of))).collect();
    job.baseline = true;
    let sweep = Sweep { job, grid, seeds: args.seeds, out: args.out.clone() };
    let stop = stop_on_interrupt()?;
    let terminal = Terminal { quiet: args.quiet };
    let mut shown = Shown { terminal, progress: Progress::new(args.quiet), several: args.seeds > 1 };
    let report = sweep.run(&stop, &mut shown);
    shown.progress.finish();
    let report = report.map_err(|error| terminal.failed(error))?;
    print(&table(&report))?;
    if report.left > 0 && stop.load(Ordering::Relaxed) {
        note(&format!("interrupted: {} points are left; the same command goes on with them", report.left));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows points and epochs.
struct Shown {
    terminal: Terminal,
    progress: Progress,
    several: bool,
}

impl Observer for Shown {
    fn note(&mut self, line: String) {
        self.terminal.note(line);
    }

    fn warnings(&mut self, sources: &SourceMap, found: &Diagnostics) {
        self.terminal.warnings(sources, found);
    }
}

impl SweepObserver for Shown {
    fn point(&mut self, number: usize, of: usize, folder: &str, done_before: bool) {
        let done = if done_before { ": done before" } else { "" };
        self.progress.begin(&format!("point {number}/{of}  {folder}{done}"));
    }

    fn epoch(&mut self, seed: u64, epoch: &Epoch<'_>) {
        if self.several { self.progress.epoch_of(seed, epoch) } else { self.progress.epoch(epoch) }
    }
}

/// A line for each point, the best one first, and the test metrics of that one.
fn table(report: &SweepReport) -> String {
    let names: Vec<&String> = report.points.iter().take(1).flat_map(|point| point.constants.keys()).collect();
    let val = |point: &hgnnc::Point| point.metrics.get("val").cloned().unwrap_or_default();
    let metrics: Vec<String> = report.points.iter().take(1).flat_map(|point| val(point).into_keys()).collect();
    let of_criterion = report.select.strip_prefix("val.");
    let metrics: Vec<&String> = metrics.iter().filter(|name| Some(&name[..]) != of_criterion).collect();
    let mut head = vec![report.select.clone()];
    head.extend(names.iter().map(ToString::to_string));
    head.extend(metrics.iter().map(|name| format!("val.{name}")));
    let mut rows = vec![head];
    for point in &report.points {
        let mut row = vec![match (point.criterion, point.std) {
            (Some(value), Some(std)) => format!("{value:.4} ± {std:.4}"),
            (Some(value), None) => format!("{value:.4}"),
            (None, _) if point.error.is_some() => "failed".into(),
            (None, _) => "-".into(),
        }];
        let number = |value: Option<&f64>| value.map_or("-".to_owned(), f64::to_string);
        row.extend(names.iter().map(|name| number(point.constants.get(*name))));
        let all = val(point);
        row.extend(metrics.iter().map(|name| all.get(*name).map_or("-".into(), |value| format!("{value:.4}"))));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    if let Some(chosen) = &report.chosen {
        text.push_str(&format!("chosen by {}: {chosen}\n", report.select));
        if let Some(test) = &report.test {
            text.push_str(&format!(" test: {}\n", shown(test)));
        }
    }
    text
}

fn shown(metrics: &BTreeMap<String, f64>) -> String {
    metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join("  ")
}
