//! Training with several seeds: one preparation, a run per seed, and their metrics together.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hgnnc_data::ExecError;
use hgnnc_ir::training::{Criterion, Training};
use hgnnc_train::report::{Metrics, SeedReport};
use hgnnc_train::{Epoch, Outcome, Report};

use crate::{Error, Prepared};

/// Combined result of training runs with several seeds.
#[derive(Debug)]
pub struct SeedRuns {
    /// The report of the run whose parameters are kept, with all runs, their means and deviations.
    pub report: Report,
    /// How the last run ended.
    pub outcome: Outcome,
    /// A line for each run that failed.
    pub failures: Vec<String>,
}

impl Prepared {
    /// Trains `num` runs, with the trainer's seed and those that follow it. Each gives the bits of a run of its own. The
    /// trainer then has the parameters of the run that is best by the selection criterion of the model (the first of
    /// equal ones), and the report is that of this run.
    ///
    /// A run whose numbers do not stay finite is reported, and the others go on. A run that is interrupted counts only if
    /// no other is complete. `limit` holds for all runs together: the one that exceeds it ends with its epoch and counts,
    /// and no other begins.
    ///
    /// # Errors
    /// When all runs fail, or the machine does.
    pub fn train_seeds(
        &mut self,
        num: u64,
        limit: Option<Duration>,
        stop: &AtomicBool,
        on_epoch: &mut (dyn FnMut(u64, &Epoch<'_>) + Send),
    ) -> Result<SeedRuns, Error> {
        let started = Instant::now();
        let first = self.trainer.seed();
        let select = self.trainer.executable().training.as_ref().map(Select::of);
        let mut runs: Vec<SeedReport> = vec![];
        let mut kept: Option<(Option<f64>, Report, Vec<Vec<f32>>)> = None;
        let (mut failures, mut failed) = (vec![], None);
        let mut outcome = Outcome::Finished;
        for seed in (0..num.max(1)).map(|run| first.wrapping_add(run)) {
            if seed != first {
                self.trainer.restart(seed)?;
            }
            self.trainer.limit_time(limit.map(|limit| limit.saturating_sub(started.elapsed())));
            let ended = self.trainer.run(stop, &mut |epoch| on_epoch(seed, epoch));
            match ended {
                Ok(ended) => outcome = ended,
                Err(error @ (ExecError::Diverged { .. } | ExecError::NotFinite { .. })) => {
                    let error = Error::from(self.located(error));
                    failures.push(format!("the run with seed {seed} failed: {error}"));
                    runs.push(failure(seed, self.trainer.epochs_done(), &error));
                    failed = failed.or(Some(error));
                    continue;
                }
                Err(error) => return Err(self.located(error).into()),
            }
            if outcome == Outcome::Interrupted && runs.iter().any(|run| run.error.is_none()) {
                break;
            }
            let report = self.report()?;
            runs.push(SeedReport {
                seed,
                epochs: report.epochs,
                best_epoch: report.best_epoch,
                outcome: report.outcome.clone(),
                error: None,
                train_s: report.train_s,
                metrics: report.metrics.clone(),
                losses: report.losses.clone(),
            });
            let value = select.as_ref().and_then(|select| select.measured(&report.metrics));
            let before = kept.as_ref().map(|(before, ..)| *before);
            if before.is_none_or(|before| select.as_ref().is_some_and(|select| better(select.criterion, value, before)))
            {
                kept = Some((value, report, self.trainer.own_params()?));
            }
            if matches!(outcome, Outcome::Interrupted | Outcome::TimeLimit) {
                break;
            }
        }
        let Some((_, mut report, params)) = kept else {
            return Err(failed.unwrap_or_else(|| Error::input("no run was made")));
        };
        self.trainer.set_own_params(&params)?;
        let complete: Vec<&Metrics> = runs.iter().filter(|run| run.error.is_none()).map(|run| &run.metrics).collect();
        let (mean, std) = mean_and_std(&complete);
        (report.seeds, report.mean, report.std) = (runs, Some(mean), Some(std));
        report.warnings.extend(failures.iter().cloned());
        Ok(SeedRuns { report, outcome, failures })
    }
}

fn failure(seed: u64, epochs: u64, error: &Error) -> SeedReport {
    SeedReport {
        seed,
        epochs,
        best_epoch: None,
        outcome: "failed".into(),
        error: Some(error.to_string()),
        train_s: 0.0,
        metrics: Metrics::new(),
        losses: vec![],
    }
}

/// The criterion by which runs are compared.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub criterion: Criterion,
    /// The name of its metric in reports.
    pub name: String,
}

impl Select {
    pub fn of(training: &Training) -> Self {
        Self { criterion: training.select, name: training.measure_name(training.select.measure) }
    }

    /// Its value among metrics.
    pub fn measured(&self, metrics: &Metrics) -> Option<f64> {
        metrics.get(self.criterion.part.name())?.get(&self.name).copied().filter(|value| value.is_finite())
    }
}

/// Whether a value is better than another one, which may not have been measured.
pub(crate) fn better(of: Criterion, value: Option<f64>, before: Option<f64>) -> bool {
    match (value, before) {
        (Some(value), Some(before)) if of.measure.metric.smaller_is_better() => value < before,
        (Some(value), Some(before)) => value > before,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// Mean and standard deviation (of samples, n - 1; 0 of one) of each metric that all runs have.
fn mean_and_std(runs: &[&Metrics]) -> (Metrics, Metrics) {
    let (mut means, mut deviations) = (Metrics::new(), Metrics::new());
    for (&part, metrics) in runs.first().into_iter().copied().flatten() {
        let (mut mean_of, mut std_of) = (BTreeMap::new(), BTreeMap::new());
        for name in metrics.keys() {
            let values: Option<Vec<f64>> = runs.iter().map(|run| run.get(part)?.get(name).copied()).collect();
            let Some(values) = values else { continue };
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            mean_of.insert(name.clone(), mean);
            std_of.insert(name.clone(), (square / (values.len().max(2) - 1) as f64).sqrt());
        }
        means.insert(part, mean_of);
        deviations.insert(part, std_of);
    }
    (means, deviations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(values: &[(&'static str, f64)]) -> Metrics {
        [("val", values.iter().map(|(name, value)| (name.to_string(), *value)).collect())].into()
    }

    #[test]
    fn deviations_are_those_of_samples() {
        let runs = [1.0, 2.0, 4.0].map(|loss| metrics(&[("loss", loss)]));
        let (mean, std) = mean_and_std(&[&runs[0], &runs[1], &runs[2]]);
        assert_eq!(mean, metrics(&[("loss", 7.0 / 3.0)]));
        let expected = ((16.0 / 9.0 + 1.0 / 9.0 + 25.0 / 9.0) / 2.0f64).sqrt();
        assert!((std["val"]["loss"] - expected).abs() < 1e-12);
        let (mean, std) = mean_and_std(&[&runs[1]]);
        assert_eq!((mean, std), (metrics(&[("loss", 2.0)]), metrics(&[("loss", 0.0)])));
        // A metric that one of them lacks.
        assert_eq!(mean_and_std(&[&runs[0], &metrics(&[])]).0, metrics(&[]));
    }

    #[test]
    fn what_was_not_measured_is_never_better() {
        use hgnnc_ir::training::{Measure, Metric, Part};
        let of = |metric| Criterion { part: Part::Val, measure: Measure { metric, term: None } };
        let loss = Select { criterion: of(Metric::Loss), name: "loss".into() };
        assert!(better(of(Metric::Loss), Some(1.0), Some(2.0)) && !better(of(Metric::Loss), Some(2.0), Some(2.0)));
        assert!(better(of(Metric::Accuracy), Some(0.9), Some(0.8)) && better(of(Metric::Accuracy), Some(0.0), None));
        assert!(!better(of(Metric::Loss), None, Some(1.0)) && !better(of(Metric::Loss), None, None));
        assert_eq!(loss.measured(&metrics(&[("loss", f64::NAN)])), None);
        assert_eq!(loss.measured(&metrics(&[("loss", 2.0)])), Some(2.0));
    }
}
