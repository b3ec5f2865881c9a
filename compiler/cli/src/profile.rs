//! `hgnnc profile`.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use hgnnc::{Device, Job, Prepared, Purpose, Ranks, check_folder, profile};
use hgnnc_machine::Machine;
use hgnnc_profile::ProfileOptions;
use hgnnc_report::{diff, text};

use crate::args::DatasetPart;
use crate::cluster::{on_processes, shows};
use crate::failure::Failure;
use crate::output::print;
use crate::profile_args::{DiffArgs, ProfileArgs, ProfileCommand};
use crate::run::{job, options, prepare, prepare_on};
use crate::source::Terminal;
use crate::train::stop_on_interrupt;

/// Profiles a model, or compares two profiles.
pub fn profile(command: &ProfileCommand) -> Result<ExitCode, Failure> {
    match command {
        ProfileCommand::Run(args) => run(args),
        ProfileCommand::Diff(args) => compare(args),
    }
}

/// Trains for some runs and reports where the time goes, under a launcher together with the other processes.
fn run(args: &ProfileArgs) -> Result<ExitCode, Failure> {
    on_processes(|ranks| match ranks {
        None => alone(args),
        Some(ranks) => together(args, ranks),
    })
}

fn alone(args: &ProfileArgs) -> Result<ExitCode, Failure> {
    for (option, asked) in [("--share", args.share.is_some()), ("--distribute", !args.distribute.is_empty())] {
        if asked {
            return Err(Failure::input(format!(
                "`{option}` is for several processes, as `mpirun -n 4 hgnnc profile` starts them"
            )));
        }
    }
    if let Some(folder) = &args.out {
        check_folder(folder)?;
    }
    let options = options(&args.device);
    let device = args.device.device;
    let mut prepared = prepare(Purpose::Train, &args.model, device, &args.disable, options, Terminal::default())?;
    let model = &args.model.model;
    // Launches of a device are measured of training on the whole graph only.
    if device == Device::Auto
        && hgnnc_profile::device(&mut prepared.trainer).is_some()
        && prepared.trainer.batches().is_some()
    {
        let options = self::options(&args.device);
        prepared = prepare(Purpose::Train, &args.model, Device::Cpu, &args.disable, options, Terminal::default())?;
    }
    if hgnnc_profile::device(&mut prepared.trainer).is_some() {
        if args.in_cache {
            return Err(Failure::input("`--in-cache` measures this processor: add `--device cpu`"));
        }
        let stop = stop_on_interrupt()?;
        let found = profile::measure_device(model, &mut prepared, args.epochs, &stop)?;
        let text = found.text.clone();
        if let Some(folder) = &args.out {
            found.write(&mut prepared, folder)?;
        }
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before training, since its threads would disturb the measurement.
    let machine = hgnnc::processor(prepared.trainer.threads(), &mut Terminal::default());
    let stop = stop_on_interrupt()?;
    let in_cache = args.in_cache.then(|| profile::cache_room(&machine));
    measured(args, &mut prepared, machine, in_cache, &stop)
}

/// Profiles as one of several processes, of which the first shows and writes its kernels and the times of all. Each makes
/// the same calls of what they do together.
fn together(args: &ProfileArgs, ranks: Ranks) -> Result<ExitCode, Failure> {
    if args.in_cache {
        return Err(Failure::input("`--in-cache` measures one process: start the command without `mpirun`"));
    }
    let shows = shows(Some(&ranks));
    if let (Some(folder), true) = (&args.out, shows) {
        check_folder(folder)?;
    }
    let (split, distribute) = (args.share.unwrap_or_default().into(), DatasetPart::all(&args.distribute));
    let ranks = Some(Ranks { split, distribute, ..ranks });
    let job = job(&args.model, args.device.device, &args.disable, options(&args.device))?;
    let mut prepared = prepare_on(Purpose::Train, &Job { ranks, ..job })?;
    if shows {
        // The others wait for this one meanwhile.
        let machine = hgnnc::processor(prepared.trainer.threads(), &mut Terminal::default());
        let stop = stop_on_interrupt()?;
        return measured(args, &mut prepared, machine, None, &stop);
    }
    let stop = stop_on_interrupt()?;
    let options = ProfileOptions { epochs: args.epochs, batches: args.batches, in_cache: None };
    profile::measure_along(&mut prepared, options, &stop)?;
    profile::graph_weights(&mut prepared)?;
    if args.out.is_some() {
        profile::classes(&mut prepared)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures training, shows the profile, and writes it.
fn measured(
    args: &ProfileArgs,
    prepared: &mut Prepared,
    machine: Machine,
    in_cache: Option<usize>,
    stop: &AtomicBool,
) -> Result<ExitCode, Failure> {
    let options = ProfileOptions { epochs: args.epochs, batches: args.batches, in_cache };
    let (mut found, measured) = profile::measure(&args.model.model, prepared, machine, options, stop)?;
    found.graph_weights = profile::graph_weights(prepared)?;
    let text = text::text(&found);
    if let Some(folder) = &args.out {
        found.classes = profile::classes(prepared)?;
        profile::write(folder, &found, &text, &measured.timeline)?;
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Reports the differences between two profiles.
fn compare(args: &DiffArgs) -> Result<ExitCode, Failure> {
    let (before, after) = (profile::read(&args.before)?, profile::read(&args.after)?);
    print(&diff::text(&before, &after))?;
    Ok(ExitCode::SUCCESS)
}
