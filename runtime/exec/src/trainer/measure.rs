//! Evaluations: metrics, outputs, and the report.

use std::collections::BTreeMap;
use std::time::Instant;

use hgnnc_ir::artifact::{Criterion, Metric, Part};
use hgnnc_ir::types::Stage;

use super::timing::WARM_UP;
use super::{INFER, OutputRows, Trainer};
use crate::engine::Times;
use crate::error::{ExecError, Result};
use crate::executor::{Executor, Rows};
use crate::metrics::{Predictions, Tally};
use crate::proc;
use crate::report::{GraphReport, Report, Spread};

impl Trainer {
    /// The values of the two criteria after an epoch; evaluates only where one of them can be measured.
    pub(super) fn measure(
        &mut self,
        select: Criterion,
        watched: Option<Criterion>,
    ) -> Result<(Option<f64>, Option<f64>)> {
        let possible = |c: Criterion| !self.rows(c.part).is_empty();
        if !possible(select) && !watched.is_some_and(possible) {
            return Ok((None, None));
        }
        self.infer_all()?;
        let selected = self.metric(select.part, select.metric)?;
        let watched = match watched {
            Some(same) if same == select => selected,
            Some(other) => self.metric(other.part, other.metric)?,
            None => None,
        };
        Ok((selected, watched))
    }

    /// Runs the evaluation program.
    pub(super) fn infer_all(&mut self) -> Result<()> {
        let start = Instant::now();
        let (step, epoch) = (self.progress.steps_done, self.progress.epochs_done);
        self.executor.run_until_update(INFER, (self.seed, step, epoch), &mut Times::default())?;
        self.executor.run_updates(INFER, self.seed, step, &mut Times::default())?;
        let on_device = self.executor.elapsed_ms()?;
        let ms = on_device.unwrap_or_else(|| start.elapsed().as_secs_f64() * 1e3);
        if self.timing.infer.len() < self.timing.infer.capacity() || self.timing.infer.len() < 16 {
            self.timing.infer.push(ms);
        }
        Ok(())
    }

    /// A metric of the last evaluation. Of a device, no more than it takes is copied: counts where they will do.
    pub(super) fn metric(&mut self, part: Part, metric: Metric) -> Result<Option<f64>> {
        let Some(training) = &self.artifact.training else { return Ok(None) };
        let (vertices, task) = (self.rows(part).len(), training.task);
        if vertices == 0 {
            return Ok(None);
        }
        if Tally::has(metric) && self.executor.count(part, &mut self.tally)? {
            return Ok(self.tally.metric(metric, task, vertices));
        }
        let needed = if metric == Metric::Loss { "row_loss" } else { &training.output };
        self.executor.fetch(INFER, needed)?;
        // Taken out while the rest of the trainer is looked at.
        let mut tally = std::mem::take(&mut self.tally);
        let value = self.metric_with(part, metric, &mut tally);
        self.tally = tally;
        Ok(value)
    }

    pub(super) fn metric_with(&self, part: Part, metric: Metric, tally: &mut Tally) -> Option<f64> {
        let training = self.artifact.training.as_ref()?;
        let row_loss = self.executor.result(INFER, "row_loss").map(|rows| rows.numbers);
        // The loss needs no outputs.
        let outputs = self.executor.result(INFER, &training.output);
        let Rows { width, numbers: outputs } = match metric {
            Metric::Loss => Rows { width: 0, numbers: &[] },
            Metric::Accuracy | Metric::MicroF1 | Metric::MacroF1 | Metric::Mae | Metric::Rmse => outputs?,
        };
        let target = self.executor.data().target.as_ref()?;
        let rows = self.rows(part);
        Predictions { outputs, width, row_loss, target, rows, task: training.task }.metric(metric, tally)
    }

    /// Metrics of all parts with the current parameters: the loss, those of the model, and the usual ones of its task.
    ///
    /// # Errors
    /// When a device fails.
    pub fn evaluate(&mut self) -> Result<BTreeMap<&'static str, BTreeMap<&'static str, f64>>> {
        self.infer_all()?;
        let mut all = BTreeMap::new();
        for part in [Part::Train, Part::Val, Part::Test] {
            let mut values = BTreeMap::new();
            for metric in Metric::ALL {
                if let Some(value) = self.metric(part, metric)? {
                    values.insert(metric.name(), value);
                }
            }
            if !values.is_empty() {
                all.insert(part.name(), values);
            }
        }
        Ok(all)
    }

    /// An output with the current parameters; without a name, the trained one or the only one.
    ///
    /// # Errors
    /// When there is no such output, or a device fails.
    pub fn infer(&mut self, output: Option<&str>) -> Result<OutputRows> {
        let names: Vec<String> =
            self.executor.results(INFER).into_iter().filter(|&n| n != "row_loss").map(str::to_owned).collect();
        let trained = self.artifact.training.as_ref().map(|t| t.output.as_str());
        let name = output.or(trained).or(names.first().map(String::as_str)).unwrap_or("").to_owned();
        self.infer_all()?;
        self.executor.fetch(INFER, &name)?;
        match self.executor.result(INFER, &name) {
            Some(Rows { width, numbers }) => {
                Ok(OutputRows { rows: numbers.len() / width.max(1), width, data: numbers.to_vec() })
            }
            None => Err(ExecError::Unsupported(format!(
                "the model has no output `{name}`; it has {}",
                names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    /// The report; evaluates all parts.
    ///
    /// # Errors
    /// When a device fails.
    pub fn report(&mut self) -> Result<Report> {
        let metrics = self.evaluate()?;
        let arenas = self.arenas();
        let data = self.executor.data();
        let semantic_graphs = data
            .graphs
            .iter()
            .map(|g| GraphReport { name: g.name.clone(), rows: g.num_dst, cols: g.num_src, edges: g.num_edges() })
            .collect();
        let warm = |times: &[f64]| Spread::of(if times.len() > WARM_UP { &times[WARM_UP..] } else { times });
        let timing = &self.timing;
        let per_epoch = |total: f64| if timing.stage_epochs == 0 { 0.0 } else { total / timing.stage_epochs as f64 };
        // A device without a clock does not know.
        let is_known = !matches!(self.executor, Executor::Device(_))
            || timing.epochs.is_empty()
            || timing.phases.iter().any(|times| !times.is_empty());
        let known = |phase: usize| is_known.then(|| warm(&timing.phases[phase]));
        let stage_ms = Stage::ALL.iter().zip(timing.stages).map(|(s, total)| (s.name(), per_epoch(total)));
        Ok(Report {
            model: self.artifact.model.clone(),
            dataset: data.dataset.clone(),
            device: self.executor.name(),
            threads: self.executor.threads(),
            seed: self.seed,
            epochs: self.progress.epochs_done,
            best_epoch: self.progress.best_epoch,
            outcome: self.outcome.name().into(),
            load_s: data.load_s,
            sgb_s: data.sgb_s,
            compile_s: 0.0,
            train_s: timing.train_s,
            epoch_ms: warm(&timing.epochs),
            forward_ms: known(0),
            backward_ms: known(1),
            update_ms: known(2),
            infer_ms: warm(&timing.infer),
            stage_ms: known(0).map(|_| stage_ms.collect()),
            batches: match &self.executor {
                Executor::Batches(it) => Some(it.report()),
                Executor::Cpu(_) | Executor::Device(_) => None,
            },
            peak_rss_bytes: proc::peak_rss_bytes(),
            arena_bytes: arenas.all.bytes(),
            infer_arena_bytes: arenas.infer.bytes(),
            device_bytes: self.executor.device_bytes(),
            metrics,
            semantic_graphs,
            params: self.shapes().iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum(),
            losses: self.progress.losses().collect(),
            warnings: self.warnings.clone(),
        })
    }
}
