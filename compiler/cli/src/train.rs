//! `hgnnc train`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hgnnc::rank_plan::RankPlan;
use hgnnc::{
    EpochLog, Error, Job, LogPlaces, Observer, Prepared, Purpose, Ranks, Rescued, RunFolder, SeedRuns, Split, Unsaved,
    artifact, check_apart, check_folder, check_readable, check_writable, lock_checkpoints, write_report,
};
use hgnnc_data::ExecError;
use hgnnc_dist::{Alone, Comm, threads};
use hgnnc_graph::show_bytes;
use hgnnc_ir::training::LAST;
use hgnnc_loader::CacheOptions;
use hgnnc_train::{Outcome, RankReport, Report, TrainOptions, checkpoint};

use crate::args::{DatasetPart, Share, TrainArgs};
use crate::cluster::{end_together, processes};
use crate::failure::Failure;
use crate::output::{keep_log, log, logged, note, print};
use crate::plan::arenas_text;
use crate::progress::Progress;
use crate::run::{finish, job, metrics_text, options};
use crate::source::Terminal;

/// Exit code after Ctrl-C, by shell convention (128 + SIGINT).
pub const INTERRUPTED: u8 = 130;
/// Epochs of `--fast-dev-run`.
const FAST_EPOCHS: u64 = 2;

/// Trains a model, and writes its weights, report and run folder; under a launcher together with the other processes.
pub fn train(args: &TrainArgs) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.plan {
        return train_by_plan(args, &RankPlan::read(path)?);
    }
    let (sections, replicas) = (args.sections.map(|sections| sections as usize), args.replicas as usize);
    let distribute = DatasetPart::all(&args.distribute);
    let split = match (args.share, replicas) {
        (share, 1) => share.into(),
        (Share::Relations, _) => Split::Grid,
        (Share::Seeds, _) => {
            return Err(Failure::input(
                "replicas are groups of processes that share relations: add `--share relations`",
            ));
        }
    };
    let Some(comm) = processes()? else {
        // One process computes what several would.
        let alone = Ranks::new(Arc::new(Alone));
        let asked = sections.is_some() || split.shares_relations() || distribute.any();
        let sections = sections.unwrap_or(alone.sections);
        let ranks = asked.then(|| Ranks { sections, split, replicas, distribute, ..alone });
        return train_with(args, ranks);
    };
    let ranks = Ranks::new(Arc::clone(&comm));
    let sections = sections.unwrap_or(ranks.sections);
    let ranks = Some(Ranks { sections, split, replicas, distribute, ..ranks });
    let outcome = if comm.rank() == 0 { train_with(args, ranks) } else { train_along(args, ranks) };
    end_together(&*comm, outcome)
}

/// Trains as a plan says: by the processes of a launcher, or else by virtual ranks of this process, which compute the same.
fn train_by_plan(args: &TrainArgs, plan: &RankPlan) -> Result<ExitCode, Failure> {
    let train = |comm: &Arc<dyn Comm>| {
        let ranks = Some(plan.ranks(Arc::clone(comm)));
        if comm.rank() == 0 { train_with(args, ranks) } else { train_along(args, ranks) }
    };
    let Some(comm) = processes()? else {
        let first_failed = Mutex::new(None);
        let outcomes = threads::run(plan.ranks, |comm| {
            train(comm).map_err(|failure| {
                comm.abort("the command failed");
                // The others fail because this one has.
                first_failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
            })
        });
        return match first_failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(failure) => Err(failure),
            None => Ok(outcomes.into_iter().next().and_then(Result::ok).unwrap_or(ExitCode::SUCCESS)),
        };
    };
    let outcome = match comm.size() == plan.ranks {
        true => train(&comm),
        false => Err(Failure::input(format!(
            "the plan is for {} processes, and there are {}: `hgnnc build --ranks {}` makes one for these",
            plan.ranks,
            comm.size(),
            comm.size()
        ))),
    };
    end_together(&*comm, outcome)
}

/// Trains as a rank other than the first: it shows and writes nothing, and takes part in all exchanges.
fn train_along(args: &TrainArgs, ranks: Option<Ranks>) -> Result<ExitCode, Failure> {
    let mut terminal = Terminal { quiet: true };
    let job = train_job(args, ranks)?;
    let mut prepared = hgnnc::prepare(Purpose::Train, &job, &mut terminal).map_err(|error| match error {
        // Rank 0 shows the diagnostics.
        Error::Model(_) | Error::Switch(_) => Failure::Input(None),
        error => error.into(),
    })?;
    if let Some(path) = &args.init {
        prepared.trainer.load_weights(path)?;
    }
    let stop = stop_on_interrupt()?;
    let outcome = match args.seeds {
        None => {
            let outcome = prepared.trainer.run(&stop, &mut |_| {});
            if let (Err(ExecError::Diverged { .. } | ExecError::NotFinite { .. }), Some(ranks)) = (&outcome, &job.ranks)
            {
                // Rank 0 has the same error, and ends the job when it has written the best parameters.
                let _ = ranks.comm.barrier();
            }
            outcome?
        }
        Some(num) => prepared.train_seeds(num, args.max_time, &stop, &mut |_, _| {})?.outcome,
    };
    if args.seeds.is_none() {
        prepared.report()?;
    }
    Ok(if outcome == Outcome::Interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The job that the arguments ask for.
fn train_job(args: &TrainArgs, ranks: Option<Ranks>) -> Result<Job, Failure> {
    let (device, options) = (args.device.device, train_options(args)?);
    Ok(Job { baseline: true, ranks, ..job(&args.model, device, &args.disable, options)? })
}

/// Trains a model as the only process, or as the first of several.
fn train_with(args: &TrainArgs, ranks: Option<Ranks>) -> Result<ExitCode, Failure> {
    // Before creating and locking the checkpoint folder, which may lie inside the run folder.
    let folder = run_folder(args)?;
    // Held until the command ends.
    let lock = check_outputs(args)?;
    let quiet = args.quiet;
    let mut terminal = Terminal { quiet };
    if let Some(warning) = lock.as_ref().and_then(checkpoint::Lock::warning) {
        terminal.note(format!("warning: {warning}"));
    }
    let job = train_job(args, ranks)?;
    let mut prepared = hgnnc::prepare(Purpose::Train, &job, &mut terminal).map_err(|error| terminal.failed(error))?;
    if let Some(path) = &args.init {
        prepared.trainer.load_weights(path)?;
    }
    for warning in prepared.trainer.warnings() {
        terminal.note(format!("warning: {warning}"));
    }
    // Mini-batch memory is allocated on demand: the report has its peak.
    terminal.note(arenas_text(&prepared.trainer.arenas(), prepared.trainer.executable().batch.is_none()));
    match (prepared.trainer.epochs_done(), prepared.trainer.batches_done()) {
        (0, 0) => {}
        (epochs, 0) => terminal.note(format!("continuing after epoch {epochs}")),
        (epochs, batches) => terminal.note(format!("continuing in epoch {}, after batch {batches}", epochs + 1)),
    }

    let done = args.resume.then(|| prepared.trainer.epochs_done());
    let mut epochs = EpochLog::open(&log_places(args), done, args.seeds.is_some())?;
    let stop = stop_on_interrupt()?;
    let mut progress = Progress::new(quiet);
    let ended = match args.seeds {
        None => {
            let seed = prepared.trainer.seed();
            let ended = prepared.trainer.run(&stop, &mut |epoch| {
                progress.epoch(epoch);
                epochs.epoch(seed, epoch);
            });
            ended.map(|outcome| (outcome, None)).map_err(|error| rescue(args, folder.as_ref(), &mut prepared, error))
        }
        Some(num) => {
            let runs = prepared.train_seeds(num, args.max_time, &stop, &mut |seed, epoch| {
                progress.epoch_of(seed, epoch);
                epochs.epoch(seed, epoch);
            });
            runs.map(|runs| (runs.outcome, Some(runs))).map_err(Failure::from)
        }
    };
    progress.finish();
    let (outcome, runs) = ended?;

    // Weights are written first: a later write failure does not affect them.
    let saved = args.weights_out.as_deref().map_or(Ok(()), |path| prepared.save_weights(path).map_err(not_saved));
    let report = match runs {
        None => finish(&mut prepared)?,
        Some(SeedRuns { report, failures, .. }) => {
            failures.iter().for_each(|line| note(&format!("warning: {line}")));
            report
        }
    };
    let reported = args.report.as_deref().map_or(Ok(()), |path| Ok(write_report(path, &report)?));
    let summary = summary(&report);
    let printed = if quiet {
        log(&summary);
        Ok(())
    } else {
        print(&summary)
    };
    let unsaved = args.checkpoint.as_ref().and_then(|folder| prepared.unsaved_checkpoint(folder));
    if outcome == Outcome::Interrupted && unsaved.is_none() {
        terminal.note(unfinished(args, &report, "interrupted"));
    }
    if outcome == Outcome::TimeLimit {
        terminal.note(unfinished(args, &report, "stopped by --max-time"));
    }
    // Written last, since its log contains the preceding messages.
    let kept = match (&folder, artifact_path(args)) {
        (Some(folder), _) => folder.keep(&mut prepared, &report, &logged()).map_err(not_saved),
        (None, Some(path)) => prepared.save_artifact(path, &report).map_err(not_saved),
        (None, None) => Ok(()),
    };
    let logged = epochs.finish().map_err(Failure::from);
    saved.and(reported).and(kept).and(printed).and(logged)?;
    if let Some(unsaved) = unsaved {
        return Err(unsaved.into());
    }
    let kept = [&args.weights_out, &args.checkpoint, &args.out].into_iter().any(Option::is_some);
    if !kept && !args.fast_dev_run && report.epochs > 0 {
        terminal.note("the parameters were not kept: `-o DIR` keeps them, the report and the log".into());
    }
    Ok(if outcome == Outcome::Interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The file of `-o`, if it names an artifact.
fn artifact_path(args: &TrainArgs) -> Option<&Path> {
    args.out.as_deref().filter(|out| artifact::is_named(out))
}

/// The folder of `-o`, if it names one; starts the log that is stored in it.
fn run_folder(args: &TrainArgs) -> Result<Option<RunFolder>, Failure> {
    let Some(out) = args.out.as_ref().filter(|out| !artifact::is_named(out)) else { return Ok(None) };
    let folder = RunFolder::new(out)?;
    folder.check_outside(&[
        ("--checkpoint", args.checkpoint.as_deref()),
        ("--report", args.report.as_deref()),
        ("--weights-out", args.weights_out.as_deref()),
        ("--log", args.log.as_deref()),
        ("--tensorboard", args.tensorboard.as_deref()),
    ])?;
    keep_log();
    Ok(Some(folder))
}

/// The options of the engine.
fn train_options(args: &TrainArgs) -> Result<TrainOptions, Failure> {
    Ok(TrainOptions {
        seed: args.seed,
        epochs: if args.fast_dev_run { Some(FAST_EPOCHS) } else { args.epochs },
        max_time: args.max_time,
        measure_all: log_places(args) != LogPlaces::default(),
        checkpoint: args.checkpoint.clone(),
        checkpoint_every: Duration::from_secs(args.checkpoint_every),
        resume: args.resume,
        allow_changed: args.allow_changed,
        cache: args.cache.map(|bytes| CacheOptions { bytes, policy: args.cache_policy.of_cache() }),
        ..options(&args.device)
    })
}

/// Where epochs are written.
fn log_places(args: &TrainArgs) -> LogPlaces {
    LogPlaces { json_lines: args.log.clone(), tensorboard: args.tensorboard.clone() }
}

/// Checks before training that inputs can be read and outputs written. Returns the lock of the checkpoint folder.
fn check_outputs(args: &TrainArgs) -> Result<Option<checkpoint::Lock>, Failure> {
    let artifact = artifact_path(args);
    let written = [args.report.as_deref(), args.weights_out.as_deref(), args.log.as_deref(), artifact];
    for path in written.into_iter().flatten() {
        check_writable(path)?;
    }
    args.tensorboard.as_deref().map_or(Ok(()), check_folder)?;
    let checkpoint = args.checkpoint.as_deref().map(checkpoint::file_of);
    let written = [
        ("the checkpoint", checkpoint.as_deref()),
        ("the report", args.report.as_deref()),
        ("the weights", args.weights_out.as_deref()),
        ("the artifact", artifact),
        ("the log", args.log.as_deref()),
    ];
    check_apart(&written, &[("the model", Some(&args.model.model))], args.model.data.as_deref())?;
    args.init.as_deref().map_or(Ok(()), check_readable)?;
    Ok(args.checkpoint.as_ref().map(|folder| lock_checkpoints(folder, args.resume)).transpose()?)
}

/// A flag that is set by the first Ctrl-C or SIGTERM (which batch systems send before they kill). A second signal ends
/// the program at once, in case an epoch takes long.
///
/// # Errors
/// When no signal handler can be installed: signals would be lost, and only a kill would end the program.
pub fn stop_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    /// That of the process, whose ranks may be threads.
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let mut is_first = false;
    let stop = STOP.get_or_init(|| {
        is_first = true;
        Arc::default()
    });
    if !is_first {
        return Ok(Arc::clone(stop));
    }
    let flag = Arc::clone(stop);
    let handler = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
    match handler {
        Ok(()) => Ok(Arc::clone(stop)),
        Err(error) => Err(Failure::Machine(format!("cannot start the thread that waits for Ctrl-C: {error}"))),
    }
}

/// The failure to write trained parameters; says where they are instead.
fn not_saved(unsaved: Unsaved) -> Failure {
    unsaved.elsewhere_text().iter().for_each(|line| note(line));
    unsaved.error.into()
}

/// Training failed after it had started: saves the best parameters so far.
fn rescue(args: &TrainArgs, folder: Option<&RunFolder>, prepared: &mut Prepared, error: ExecError) -> Failure {
    let error = prepared.located(error);
    if prepared.trainer.best_epoch().is_none() {
        return error.into();
    }
    if let Some(path) = &args.weights_out {
        show_rescued(prepared.rescue(path), path);
    }
    if let Some((folder, out)) = folder.zip(args.out.as_ref()) {
        log(&format!("error: {error}"));
        let kept = folder.rescue(prepared, |rescued| {
            show_rescued(rescued, &out.join(RunFolder::WEIGHTS));
            logged()
        });
        kept.map_err(Failure::from).err().iter().for_each(Failure::print);
    }
    if let Some(path) = artifact_path(args) {
        // The parameters may be older ones, of which no artifact is made.
        let weights = path.with_extension("safetensors");
        show_rescued(prepared.rescue(&weights), &weights);
    }
    error.into()
}

/// Says which parameters are in a file after a failure.
fn show_rescued(rescued: Result<Rescued, Error>, file: &Path) {
    match rescued {
        Ok(rescued) => note(&rescued.text(file)),
        Err(second) => note(&format!("error: {second}")),
    }
}

/// The outcome of training in two lines, and the metrics.
fn summary(report: &Report) -> String {
    if report.mean.is_some() {
        return seeds_summary(report);
    }
    let best = match (report.best_epoch, report.select.as_deref()) {
        (None, _) => String::new(),
        (Some(_), Some(LAST)) => ", the last one kept".to_owned(),
        (Some(epoch), _) => format!(", best epoch {epoch}"),
    };
    format!(
        "{}: {} epochs{best}, {:.2} ms per epoch (median), {:.2} s in all\n{}{}",
        report.outcome,
        report.epochs,
        report.epoch_ms.median,
        report.train_s,
        ranks_text(report),
        metrics_text(report)
    )
}

/// A line for each of several processes.
fn ranks_text(report: &Report) -> String {
    let line = |of: &RankReport| {
        let waited = 100.0 * of.wait_ms / of.epochs_ms.max(of.wait_ms).max(f64::MIN_POSITIVE);
        format!(
            "rank {}: sent {} in {} exchanges, waited {:.0} ms ({waited:.0} % of the epochs), {} at the peak\n",
            of.rank,
            show_bytes(of.sent_bytes),
            of.exchanges,
            of.wait_ms,
            show_bytes(of.peak_rss_bytes)
        )
    };
    report.ranks.iter().map(line).collect()
}

/// The outcome of several runs, and their metrics.
fn seeds_summary(report: &Report) -> String {
    let done: Vec<u64> = report.seeds.iter().filter(|run| run.error.is_none()).map(|run| run.seed).collect();
    let seeds = done.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let seconds: f64 = report.seeds.iter().map(|run| run.train_s).sum();
    format!(
        "{} of {} runs with seeds {seeds}, {seconds:.2} s in all; mean ± standard deviation, parameters of seed {}\n{}",
        done.len(),
        report.seeds.len(),
        report.seed,
        metrics_text(report)
    )
}

fn unfinished(args: &TrainArgs, report: &Report, how: &str) -> String {
    let saved = match &args.checkpoint {
        Some(folder) => {
            // A folder of results is written once.
            let another =
                if args.out.as_ref().is_some_and(|out| out.is_dir()) { " and another folder for `-o`" } else { "" };
            format!("; continue with --checkpoint {} --resume{another}", folder.display())
        }
        None => String::new(),
    };
    format!("{how} after epoch {}{saved}", report.epochs)
}
