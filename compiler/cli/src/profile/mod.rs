//! `hgnnc profile`.

mod launches;
mod spans;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hgnnc::{Purpose, check_folder, make_folder, write_file};
use hgnnc_graph::files;
use hgnnc_profile::ProfileOptions;
use hgnnc_report::trace::{self, Trace};
use hgnnc_report::{Profile, diff, json, page, text};

use crate::failure::Failure;
use crate::output::print;
use crate::profile_args::{DiffArgs, ProfileArgs, ProfileCommand};
use crate::run::{options, prepare};
use crate::source::Terminal;
use crate::train::stop_on_interrupt;

/// Profiles a model, or compares two profiles.
pub fn profile(command: &ProfileCommand) -> Result<ExitCode, Failure> {
    match command {
        ProfileCommand::Run(args) => run(args),
        ProfileCommand::Diff(args) => compare(args),
    }
}

/// Trains for some runs and reports where the time goes.
fn run(args: &ProfileArgs) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.out {
        check_folder(folder)?;
    }
    let options = options(&args.device);
    let device = args.device.device;
    let mut prepared = prepare(Purpose::Train, &args.model, device, &args.disable, options, Terminal::default())?;
    if hgnnc_profile::device(&mut prepared.trainer).is_some() {
        if args.in_cache {
            return Err(Failure::input("`--in-cache` measures this processor: add `--device cpu`"));
        }
        return launches::profile(args, &mut prepared);
    }
    // Before training, since its threads would disturb the measurement.
    let machine = hgnnc::processor(prepared.trainer.threads(), &mut Terminal::default());
    let stop = stop_on_interrupt()?;
    let in_cache = args.in_cache.then(|| hgnnc::profile::cache_room(&machine));
    let options = ProfileOptions { epochs: args.epochs, batches: args.batches, in_cache };
    let (mut profile, found) = hgnnc::profile::measure(&args.model.model, &mut prepared, machine, options, &stop)?;
    profile.graph_weights = hgnnc::profile::graph_weights(&mut prepared)?;
    let trace = spans::trace(&profile, &found.timeline);
    let text = text::text(&profile);
    if let Some(folder) = &args.out {
        profile.classes = hgnnc::profile::classes(&mut prepared)?;
        write_all(folder, &profile, json::write(&profile), &text, &trace)?;
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes all files of a profile.
fn write_all(folder: &Path, profile: &Profile, json: String, text: &str, trace: &Trace) -> Result<(), Failure> {
    let page = page::page(profile).map_err(|error| Failure::Machine(error.to_string()))?;
    make_folder(folder)?;
    for (name, text) in
        [("profile.txt", text), ("profile.json", &json), ("trace.json", &trace::write(trace)), ("profile.html", &page)]
    {
        write_file(&folder.join(name), text.as_bytes())?;
    }
    Ok(())
}

/// Reports the differences between two profiles.
fn compare(args: &DiffArgs) -> Result<ExitCode, Failure> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    print(&diff::text(&before, &after))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a `profile.json`, or the one in a folder.
fn read(path: &Path) -> Result<Profile, Failure> {
    let file: PathBuf = if path.is_dir() { path.join("profile.json") } else { path.into() };
    let text = files::read_to_string(&file).map_err(|error| Failure::read(&file, &error))?;
    json::read(&text).map_err(|error| Failure::input(format!("`{}` is {error}", file.display())))
}
