//! Progress of training: a bar on a terminal, lines elsewhere.

use std::io::IsTerminal;

use hgnnc_train::Epoch;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{log, note};

/// A progress bar on a terminal, lines elsewhere.
pub struct Progress {
    shown: Shown,
    /// The seed of the run, if there are several.
    seed: Option<u64>,
}

enum Shown {
    Quiet,
    Lines,
    Bar(Option<ProgressBar>),
}

impl Progress {
    /// Of one run or more.
    pub fn new(quiet: bool) -> Self {
        let shown = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Quiet,
            (false, true) => Shown::Bar(None),
            (false, false) => Shown::Lines,
        };
        Self { shown, seed: None }
    }

    /// An epoch of one of several runs.
    pub fn epoch_of(&mut self, seed: u64, epoch: &Epoch<'_>) {
        if self.seed != Some(seed) {
            self.begin(&format!("seed {seed}"));
            self.seed = Some(seed);
        }
        self.epoch(epoch);
    }

    /// A line in front of a run.
    pub fn begin(&mut self, line: &str) {
        self.finish();
        self.seed = None;
        match &mut self.shown {
            Shown::Quiet => log(line),
            Shown::Lines => note(line),
            Shown::Bar(bar) => {
                *bar = None;
                note(line);
            }
        }
    }

    /// An epoch, or a batch of one.
    pub fn epoch(&mut self, epoch: &Epoch<'_>) {
        let state = state(epoch);
        if let Some(warning) = epoch.warning {
            self.warn(&format!("warning: {warning}"));
        }
        // Every tenth epoch and the last, to keep logs short.
        let listed = epoch.within.is_none() && (epoch.epoch.is_multiple_of(10) || epoch.epoch + 1 == epoch.epochs);
        let line = listed.then(|| format!("epoch {:>4}/{}  {state}", epoch.epoch + 1, epoch.epochs));
        match &mut self.shown {
            Shown::Lines => line.iter().for_each(|line| note(line)),
            Shown::Quiet => line.iter().for_each(|line| log(line)),
            Shown::Bar(bar) => {
                line.iter().for_each(|line| log(line));
                let bar = bar.get_or_insert_with(|| {
                    let bar = ProgressBar::new(epoch.epochs);
                    if let Ok(style) = ProgressStyle::with_template("epoch {pos:>4}/{len} {bar:30} {msg}") {
                        bar.set_style(style);
                    }
                    bar
                });
                // Number of completed epochs.
                bar.set_position(epoch.epoch + u64::from(epoch.within.is_none()));
                bar.set_message(state);
            }
        }
    }

    fn warn(&self, warning: &str) {
        match &self.shown {
            Shown::Quiet => log(warning),
            Shown::Bar(Some(bar)) => bar.suspend(|| note(warning)),
            Shown::Bar(None) | Shown::Lines => note(warning),
        }
    }

    /// Leaves the bar as it is.
    pub fn finish(&self) {
        if let Shown::Bar(Some(bar)) = &self.shown {
            bar.abandon();
        }
    }
}

/// Loss, selection criterion and time of an epoch.
fn state(epoch: &Epoch<'_>) -> String {
    let criterion = match epoch.criterion {
        Some((name, value)) => format!("  {name} {value:.4}"),
        None => String::new(),
    };
    let best = if epoch.best { " *" } else { "" };
    if let Some((done, all)) = epoch.within {
        return format!("batch {done}/{all}  loss {:.4}  {:.1} s", epoch.loss, epoch.ms * 1e-3);
    }
    format!("loss {:.4}{criterion}  {:.1} ms{best}", epoch.loss, epoch.ms)
}
