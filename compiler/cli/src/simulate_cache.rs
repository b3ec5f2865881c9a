//! `hgnnc simulate-cache`.

use std::fmt::Write;
use std::process::ExitCode;

use hgnnc::{Purpose, check_apart, check_writable, write_file};
use hgnnc_loader::cache::report::{CacheReport, Saved};
use hgnnc_loader::{CacheOptions, CachePolicy};
use hgnnc_train::TrainOptions;

use crate::args::{CacheSize, SimulateCacheArgs};
use crate::failure::Failure;
use crate::output::{note, print};
use crate::run::{options, prepare};
use crate::source::Terminal;

/// Samples an epoch of batches for each size, and prints what each policy saves.
pub fn simulate_cache(args: &SimulateCacheArgs) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.report {
        check_writable(path)?;
    }
    let read = [("the model", Some(&*args.model.model))];
    check_apart(&[("the report", args.report.as_deref())], &read, args.model.data.as_deref())?;
    // With a cache, even an empty one, batches are set up to gather their rows.
    let none = CacheOptions { bytes: 0, policy: CachePolicy::Penalty };
    let train_options = TrainOptions { seed: args.seed, cache: Some(none), ..options(&args.device) };
    let device = args.device.device;
    let mut prepared = prepare(Purpose::Train, &args.model, device, &args.disable, train_options, Terminal::default())?;
    let mut simulate = |bytes| prepared.trainer.simulate_cache(CacheOptions { bytes, ..none });
    let without = simulate(0)?;
    let mut sizes = vec![];
    for &size in &args.sizes {
        sizes.push(simulate(match size {
            CacheSize::Bytes(bytes) => bytes,
            CacheSize::Percent(percent) => (without.bytes_of_all as f64 * percent / 100.0) as u64,
        })?);
    }
    for warning in prepared.trainer.warnings() {
        note(&format!("warning: {warning}"));
    }
    if let Some(path) = &args.report {
        let all: Vec<&CacheReport> = std::iter::once(&without).chain(&sizes).collect();
        let text = serde_json::to_string_pretty(&all)
            .map_err(|error| Failure::Machine(format!("cannot write the report: {error}")))?;
        write_file(path, format!("{text}\n").as_bytes())?;
    }
    print(&text(&without, &sizes))?;
    Ok(ExitCode::SUCCESS)
}

const MIB: f64 = (1 << 20) as f64;

/// A table of policies and sizes, and one of the arrays of rows.
fn text(without: &CacheReport, sizes: &[CacheReport]) -> String {
    let mut text = format!(
        "an epoch needs {:.1} MiB of {:.1} MiB in all rows; of each size: rows found in the cache, MiB fetched, ms of fetching\n\n",
        without.bytes_without as f64 / MIB,
        without.bytes_of_all as f64 / MIB
    );
    let mut line = |cells: Vec<String>| {
        let (first, rest) = cells.split_first().expect("a name");
        let rest: String = rest.iter().map(|cell| format!("{cell:>28}")).collect();
        _ = writeln!(text, "{first:<12}{rest}");
    };
    let names = sizes.iter().map(|size| format!("{:.1} MiB", size.limit as f64 / MIB));
    line(std::iter::once("policy".to_owned()).chain(names).collect());
    let cell = |saved: &Saved| {
        format!("{:.1} %, {:.1}, {:.1}", 100.0 * saved.hit_rate, saved.bytes_missed as f64 / MIB, saved.miss_ms)
    };
    for &policy in without.policies.keys() {
        let cells = sizes.iter().map(|size| cell(&size.policies[policy]));
        line(std::iter::once(policy.to_owned()).chain(cells).collect());
    }
    // The best choice of rows knows the accesses; each of its figures is by rows of its own.
    line(std::iter::once("best".to_owned()).chain(sizes.iter().map(|size| cell(&size.best))).collect());
    text.push('\n');
    for table in &without.tables {
        _ = writeln!(
            text,
            "{}: {} rows of {} bytes{}, {} needed, {:.0} ns for each miss",
            table.name,
            table.rows,
            table.row_bytes,
            if table.learned { " that are trained" } else { "" },
            table.accesses,
            table.miss_ns
        );
    }
    text.truncate(text.trim_end().len());
    text
}
