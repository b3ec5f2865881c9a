//! From a model and a dataset to a trainer that is bound to a machine.

use std::collections::BTreeMap;
use std::time::Instant;

use hgnnc_data::ExecError;
use hgnnc_diag::SourceMap;
use hgnnc_driver::SizeInfo;
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_machine::Machine;
use hgnnc_train::report::BaselineReport;
use hgnnc_train::{FamilyOutputRows, OutputRows, Report, Trainer};

use crate::artifact::Description;
use crate::bound_job::bind_job;
use crate::device;
use crate::job::{Job, Purpose, check_ranks};
use crate::machines::{on_device, on_processor};
use crate::ranks::on_ranks;
use crate::source::Opened;
use crate::{Error, Naming, Observer};

/// A trainer with the times of its preparation.
pub struct Prepared {
    /// Bound to the data.
    pub trainer: Trainer,
    /// Source files of the model.
    pub sources: SourceMap,
    /// Name of the trained output.
    pub output: Option<String>,
    /// Whether that output is per pair of vertices (link prediction).
    pub scores_pairs: bool,
    /// Names of rows and columns of outputs; empty unless outputs are what it is for.
    pub naming: Naming,
    /// The relations of the dataset, in their order.
    pub relations: Vec<String>,
    /// Names of the classes of the trained label; empty without classes.
    pub classes: Vec<String>,
    /// Metrics of the features alone, without the graph, if the job asks for it and the label is of vertices.
    pub baseline: Option<BaselineReport>,
    /// The constants of the model that the job sets.
    pub constants: BTreeMap<String, f64>,
    /// Sizes of the data.
    pub sizes: SizeInfo,
    /// The metadata of an artifact of the model ([`artifact::save`](crate::artifact::save)).
    pub(crate) description: Description,
    /// By output of vertices: the rows of those that [`Job::new`] asks about; `None`: all.
    rows_asked: Option<BTreeMap<String, Vec<u32>>>,
    /// By vertex type of the model: whether each vertex is one of them.
    ends_asked: Option<Vec<Vec<bool>>>,
    /// Seconds to load the dataset.
    pub load_s: f64,
    /// Seconds from the source to a bound plan, without the semantic graph build and the initial values.
    pub compile_s: f64,
}

impl Prepared {
    /// The report of what the trainer did. Metrics that are not finite are among its warnings.
    ///
    /// # Errors
    /// When the device fails.
    pub fn report(&mut self) -> Result<Report, Error> {
        let mut report = self.trainer.report()?;
        report.load_s += self.load_s;
        report.compile_s = self.compile_s;
        report.baseline.clone_from(&self.baseline);
        report.constants.clone_from(&self.constants);
        for classes in report.classes.values_mut() {
            for (score, name) in classes.scores.iter_mut().zip(&self.classes) {
                score.name.clone_from(name);
            }
        }
        let found = self.not_finite(&report);
        report.warnings.extend(found);
        Ok(report)
    }

    /// An output with the current parameters; without a name, the trained one or the only one. Its rows are those of all
    /// vertices of its type, or of those that [`Job::new`] asks about, in their order.
    ///
    /// # Errors
    /// When there is no such output, it is of pairs of vertices, nothing of it was asked about, or a device fails.
    pub fn infer(&mut self, output: Option<&str>) -> Result<OutputRows, Error> {
        self.infer_by(output, Trainer::infer)
    }

    /// [`Prepared::infer`] for a file: where several processes share the job, only the one that writes files has rows.
    pub(crate) fn infer_to_write(&mut self, output: Option<&str>) -> Result<OutputRows, Error> {
        // Rows that are asked about are taken from all of them.
        match self.rows_asked {
            Some(_) => self.infer_by(output, Trainer::infer),
            None => self.infer_by(output, Trainer::infer_to_write),
        }
    }

    fn infer_by(
        &mut self,
        output: Option<&str>,
        infer: impl Fn(&mut Trainer, Option<&str>) -> hgnnc_data::Result<OutputRows>,
    ) -> Result<OutputRows, Error> {
        if let (true, Some(trained)) = (self.scores_pairs, &self.output)
            && output.is_none_or(|asked| asked == trained)
        {
            return Err(Error::input(format!(
                "the output `{trained}` belongs to pairs of vertices: give them with `--links FILE.npy`"
            )));
        }
        let all = infer(&mut self.trainer, output.or(self.output.as_deref()))?;
        let Some(asked) = &self.rows_asked else { return Ok(all) };
        let name = output.or(self.output.as_deref()).or(self.naming.only_output()).unwrap_or_default();
        let rows = asked.get(name).filter(|rows| !rows.is_empty()).ok_or_else(|| {
            Error::input(format!("the new data have no vertices or edges that `{name}` is an output of"))
        })?;
        let row = |&row: &u32| &all.data[row as usize * all.width..][..all.width];
        Ok(OutputRows { rows: rows.len(), width: all.width, data: rows.iter().flat_map(row).copied().collect() })
    }

    /// An output of semantic graphs or of their edges; `None` if the model has none of this name. Edges are all of the
    /// graph, or those to the vertices that [`Job::new`] asks about.
    ///
    /// # Errors
    /// When a device fails.
    pub fn infer_family(&mut self, output: &str) -> Result<Option<FamilyOutputRows>, Error> {
        let mut found = self.trainer.infer_family(output)?;
        if let (Some(found), Some(asked)) = (&mut found, &self.ends_asked)
            && found.rows == FamilyRows::Edges
        {
            for graph in &mut found.graphs {
                let asked = &asked[graph.ends.1.index()];
                let kept = |&(_, dst): &(u32, u32)| asked.get(dst as usize).copied().unwrap_or(false);
                let rows = graph.edges.iter().zip(graph.data.chunks_exact(found.width.max(1)));
                graph.data = rows.filter(|(edge, _)| kept(edge)).flat_map(|(_, row)| row.to_vec()).collect();
                graph.edges.retain(kept);
            }
        }
        Ok(found)
    }

    /// Adds the source location of the cause to an error of training, if it is known.
    pub fn located(&self, mut error: ExecError) -> ExecError {
        if let ExecError::Diverged { cause: Some(cause), .. } = &mut error
            && let Some(place) = cause.origin.and_then(|origin| self.sources.place(origin.file, origin.start))
        {
            cause.text = format!("{} ({place})", cause.text);
        }
        error
    }

    /// A warning for each metric that is not finite.
    pub fn not_finite(&self, report: &Report) -> Vec<String> {
        let all = report.metrics.iter().flat_map(|(part, metrics)| metrics.iter().map(move |metric| (part, metric)));
        let found = all.filter(|(_, (_, value))| !value.is_finite());
        found.map(|(part, (name, value))| format!("`{part}.{name}` is {value}")).collect()
    }
}

/// Reads, checks, loads, builds graphs, compiles and binds. The trainer of an artifact has its parameters; that of a
/// source has initial ones.
///
/// # Errors
/// A model or dataset that is wrong or that do not fit together, and a machine without the device or the memory.
pub fn prepare(purpose: Purpose, job: &Job, observer: &mut dyn Observer) -> Result<Prepared, Error> {
    if job.ranks.is_some() {
        check_ranks(job)?;
    }
    let device = match job.ranks {
        Some(_) => None,
        None => device::open(job.device, observer)?,
    };
    let machine = device.as_ref().and_then(|opened| Machine::sheet(opened.device.target().name()));
    let mut bound = bind_job(purpose, job, machine, observer)?;
    let relations = bound.relations();
    if device.is_none() {
        // The dataset stays loaded only if a device may fail and the processor takes over.
        bound.dataset = None;
    }
    let start = Instant::now();
    let on_device = match device {
        None => None,
        Some(device::Opened { device, optional }) => match on_device(&mut bound, purpose, device, observer)? {
            Ok(trainer) => Some(trainer),
            Err(error) if !optional => return Err(error.into()),
            Err(error) => {
                observer.note(device::on_the_processor(&error));
                bound.bind_again(observer)?;
                None
            }
        },
    };
    let mut trainer = match (on_device, &job.ranks) {
        (Some(trainer), _) => trainer,
        (None, Some(ranks)) => on_ranks(&mut bound, purpose, ranks, observer)?,
        (None, None) => on_processor(&mut bound, purpose, observer)?,
    };
    let compile_s = bound.front_s + start.elapsed().as_secs_f64() - trainer.init_s();
    let sources = match bound.opened {
        Opened::Text(analysis) => analysis.sources,
        Opened::Artifact { artifact, .. } => {
            trainer.set_weights(artifact.path(), artifact.params())?;
            SourceMap::default()
        }
    };
    Ok(Prepared {
        trainer,
        sources,
        output: bound.output,
        scores_pairs: bound.scores_pairs,
        naming: bound.naming,
        relations,
        classes: bound.classes,
        baseline: bound.baseline,
        constants: bound.constants,
        sizes: bound.sizes,
        description: bound.description,
        rows_asked: bound.rows_asked,
        ends_asked: bound.ends_asked,
        load_s: bound.load_s,
        compile_s,
    })
}
