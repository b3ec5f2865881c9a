//! `hgnnc train`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hgnnc_exec::{Epoch, Outcome};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::TrainArgs;
use crate::failure::Failure;
use crate::model::print;
use crate::run::{finish, metrics_text, options, prepare, write_report};

/// Exit code after Ctrl-C, as shells count it.
const INTERRUPTED: u8 = 130;

/// Trains a model.
pub fn train(args: &TrainArgs) -> Result<ExitCode, Failure> {
    let mut options = options(&args.device);
    options.seed = args.seed;
    options.epochs = args.epochs;
    options.checkpoint.clone_from(&args.checkpoint);
    options.resume = args.resume;
    let quiet = args.quiet;
    let mut say = |line: String| {
        if !quiet {
            eprintln!("{line}");
        }
    };
    writable(args)?;
    let mut prepared = prepare(&args.model, &args.disable_pass, options, !quiet, &mut say)?;
    if let Some(path) = &args.init {
        prepared.trainer.load_weights(path)?;
    }
    for warning in prepared.trainer.warnings() {
        say(format!("warning: {warning}"));
    }
    if prepared.trainer.epochs_done() > 0 {
        say(format!("continuing after epoch {}", prepared.trainer.epochs_done()));
    }

    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // A second Ctrl-C ends the program at once, should an epoch take long.
    let handler = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
    if let Err(error) = handler {
        say(format!("warning: Ctrl-C will not save: {error}"));
    }
    let mut progress = Progress::new(quiet);
    let outcome = prepared.trainer.run(&stop, &mut |epoch| progress.epoch(epoch));
    progress.finish();
    let outcome = outcome?;

    let report = finish(&mut prepared);
    if let Some(path) = &args.weights_out {
        prepared.trainer.save_weights(path)?;
    }
    if let Some(path) = &args.report {
        write_report(path, &report)?;
    }
    if !quiet {
        let best = report.best_epoch.map(|epoch| format!(", best epoch {epoch}")).unwrap_or_default();
        print(&format!(
            "{}: {} epochs{best}, {:.2} ms per epoch (median), {:.2} s in all",
            report.outcome, report.epochs, report.epoch_ms.median, report.train_s
        ));
        print(&metrics_text(&report));
    }
    Ok(match outcome {
        Outcome::Finished | Outcome::StoppedEarly => ExitCode::SUCCESS,
        Outcome::Interrupted => {
            let saved = match &args.checkpoint {
                Some(folder) => format!("; continue with --checkpoint {} --resume", folder.display()),
                None => String::new(),
            };
            say(format!("interrupted after epoch {}{saved}", report.epochs));
            ExitCode::from(INTERRUPTED)
        }
    })
}

/// A folder that does not exist is found before training, not after it.
fn writable(args: &TrainArgs) -> Result<(), Failure> {
    for path in [&args.report, &args.weights_out].into_iter().flatten() {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        if let Some(folder) = folder
            && !folder.is_dir()
        {
            return Err(Failure::input(format!(
                "`{}` cannot be written: there is no folder `{}`",
                path.display(),
                folder.display()
            )));
        }
        if path.is_dir() {
            return Err(Failure::input(format!("`{}` cannot be written: it is a folder", path.display())));
        }
    }
    Ok(())
}

/// A bar on a terminal, lines elsewhere.
enum Progress {
    Quiet,
    Lines,
    Bar(Option<ProgressBar>),
}

impl Progress {
    fn new(quiet: bool) -> Self {
        match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Progress::Quiet,
            (false, true) => Progress::Bar(None),
            (false, false) => Progress::Lines,
        }
    }

    fn epoch(&mut self, epoch: &Epoch) {
        let state = state(epoch);
        match self {
            Progress::Quiet => {}
            Progress::Lines => {
                // Every tenth epoch and the last: a log that can be read.
                if epoch.epoch % 10 == 0 || epoch.epoch + 1 == epoch.epochs {
                    eprintln!("epoch {:>4}/{}  {state}", epoch.epoch + 1, epoch.epochs);
                }
            }
            Progress::Bar(bar) => {
                let bar = bar.get_or_insert_with(|| {
                    let bar = ProgressBar::new(epoch.epochs);
                    if let Ok(style) = ProgressStyle::with_template("epoch {pos:>4}/{len} {bar:30} {msg}") {
                        bar.set_style(style);
                    }
                    bar
                });
                bar.set_position(epoch.epoch + 1);
                bar.set_message(state);
            }
        }
    }

    fn finish(&self) {
        if let Progress::Bar(Some(bar)) = self {
            bar.abandon();
        }
    }
}

/// Loss, the criterion and the time of an epoch.
fn state(epoch: &Epoch) -> String {
    let criterion = match epoch.criterion {
        Some((c, value)) => format!("  {}.{} {value:.4}", c.part.name(), c.metric.name()),
        None => String::new(),
    };
    let best = if epoch.best { " *" } else { "" };
    format!("loss {:.4}{criterion}  {:.1} ms{best}", epoch.loss, epoch.ms)
}
