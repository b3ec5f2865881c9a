//! Models: checked, trained, measured, inferred and profiled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hgnnc::artifact::{self, Artifact, TargetForm};
use hgnnc::{
    DataSource, Device, Error, Job, Meeting, ModelSource, Observer, Opened, Prepared, Purpose, Silent, accept,
    analyze_text, prepare, processor, profile,
};
use hgnnc_cpu::thread_pool;
use hgnnc_data::check_held_out;
use hgnnc_diag::{Diagnostics, SourceMap};
use hgnnc_driver::Setting;
use hgnnc_ir::Dataflow;
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_ir::training::Training;
use hgnnc_profile::ProfileOptions;
use hgnnc_report::{json, page, text};
use hgnnc_train::weights::{self, File};
use hgnnc_train::{Outcome, TrainOptions};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::slice;
use crate::dataset::Dataset;
use crate::errors::{Found, diagnostics, exception};
use crate::work::{EpochFields, Interrupt, run};

/// Weights as Python gives them: shapes and row-major elements by name.
type Given<'py> = BTreeMap<String, (Vec<usize>, PyReadonlyArray1<'py, f32>)>;

/// Options that a run is prepared with; the other options of the command have their defaults.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    split: Option<String>,
    device: String,
    threads: usize,
    memory_budget: Option<u64>,
    seed: Option<u64>,
    epochs: Option<u64>,
}

/// Collects diagnostics.
#[derive(Default)]
struct Warnings(Vec<Found>);

impl Observer for Warnings {
    fn note(&mut self, _line: String) {}

    fn warnings(&mut self, sources: &SourceMap, found: &Diagnostics) {
        self.0.extend(diagnostics(sources, found));
    }
}

/// A model without errors.
#[pyclass(frozen, module = "hgnnc._native")]
pub struct Model {
    source: ModelSource,
    /// Other values for constants of the text.
    constants: Vec<Setting>,
    path: PathBuf,
    text: String,
    name: String,
    outputs: Vec<String>,
    params: Vec<(String, String)>,
    trained: Option<String>,
    target: Option<String>,
    warnings: Vec<Found>,
}

/// A model that was read; of an artifact also its weights and its metadata.
type Loaded<'py> = (Model, Option<(Bound<'py, PyDict>, String)>);

/// Sources and destinations of edges.
type Ends<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

/// The name of a semantic graph, its values and, of edges, their ends.
type GraphValues<'py> = (String, Bound<'py, PyArray2<f32>>, Option<Ends<'py>>);

/// The result of training: report as JSON, weights, metadata of the artifact, whether it was interrupted, all epochs.
type Fitted<'py> = (String, Bound<'py, PyDict>, String, bool, Vec<EpochFields>);

impl Model {
    /// A model without errors, of its text.
    fn of_text(py: Python<'_>, path: PathBuf, text: String, constants: Vec<Setting>) -> PyResult<Model> {
        let source = ModelSource::Text { path: path.clone(), text: text.clone() };
        let mut analysis = analyze_text(&path, &text, &constants);
        accept(&analysis, &analysis.diagnostics, &mut Silent).map_err(|error| exception(py, &error))?;
        let warnings = diagnostics(&analysis.sources, &analysis.diagnostics);
        let model = analysis.model.take().ok_or_else(|| exception(py, &Error::input("internal error: no model")))?;
        let trained = model.train.as_ref().and_then(|spec| Some(spec.training.first()?.output.clone()));
        let target = model.train.as_ref().and_then(|spec| target(&model.flow, &spec.training));
        let params = params(&model.flow);
        let (name, outputs) = (model.name, model.outputs);
        Ok(Model { source, constants, path, text, params, name, outputs, trained, target, warnings })
    }

    /// A trained model.
    fn of_artifact(artifact: Artifact) -> Model {
        let about = artifact.description();
        Model {
            constants: vec![],
            path: artifact.path().to_owned(),
            text: about.program.clone(),
            params: params(artifact.program()),
            name: about.model.clone(),
            outputs: about.outputs.clone(),
            trained: about.evaluation.as_ref().map(|of| of.output.clone()),
            target: about.evaluation.as_ref().and_then(|of| match &of.target {
                TargetForm::Label { vertex, .. } => {
                    about.vertices.iter().find(|known| known.name == *vertex).map(|known| known.dataset.clone())
                }
                TargetForm::Links { .. } => None,
            }),
            warnings: vec![],
            source: artifact.into(),
        }
    }

    fn job(&self, data: Option<&Dataset>, options: &Options) -> PyResult<Job> {
        let device = device(&options.device)?;
        let engine = TrainOptions {
            threads: options.threads,
            memory_budget: options.memory_budget,
            seed: options.seed,
            epochs: options.epochs,
            ..TrainOptions::default()
        };
        let data = data.map_or(DataSource::Named, |data| DataSource::Loaded(Arc::clone(&data.0)));
        let (split, constants) = (options.split.clone(), self.constants.clone());
        Ok(Job { data, split, constants, device, options: engine, ..Job::new(self.source.clone()) })
    }
}

/// The vertex type, by its name in the dataset, whose label is trained.
fn target(flow: &Dataflow, training: &Training) -> Option<String> {
    let vertex = training.target()?.vertex()?;
    Some(flow.vertex_types[vertex.index()].dataset_name.clone())
}

/// Name and shape of each parameter.
fn params(flow: &Dataflow) -> Vec<(String, String)> {
    let dim = |dim: &hgnnc_ir::types::Dim| match *dim {
        hgnnc_ir::types::Dim::Fixed(extent) => extent.to_string(),
        hgnnc_ir::types::Dim::Count(vertex) => flow.vertex_types[vertex.index()].name.clone(),
    };
    let shape = |dims: &[_]| dims.iter().map(dim).collect::<Vec<_>>().join(", ");
    flow.params.iter().map(|param| (param.name.clone(), shape(&param.dims))).collect()
}

fn device(name: &str) -> PyResult<Device> {
    let number = |text: &str| text.parse().ok().map(Device::Cuda);
    let device = match name {
        "auto" => Some(Device::Auto),
        "cpu" => Some(Device::Cpu),
        "cuda" => Some(Device::Cuda(0)),
        other => other.strip_prefix("cuda:").and_then(number),
    };
    device.ok_or_else(|| {
        PyValueError::new_err(format!("there is no device {name:?}; say \"auto\", \"cpu\", \"cuda\" or \"cuda:1\""))
    })
}

/// The name of weights in messages.
fn weights_name() -> &'static Path {
    Path::new("the weights")
}

fn file(given: &Given<'_>) -> PyResult<File> {
    let one = |(name, (shape, data)): (&String, &(Vec<usize>, PyReadonlyArray1<'_, f32>))| {
        Ok((name.clone(), (shape.clone(), slice(data)?.to_vec())))
    };
    Ok(File { tensors: given.iter().map(one).collect::<PyResult<_>>()?, text: None })
}

fn arrays(py: Python<'_>, file: File) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, (shape, data)) in file.tensors {
        dict.set_item(name, data.into_pyarray(py).reshape(shape)?)?;
    }
    Ok(dict)
}

/// A model and a dataset, with given weights.
fn with_weights(purpose: Purpose, job: &Job, weights: &File, observer: &mut dyn Observer) -> Result<Prepared, Error> {
    let mut prepared = prepare(purpose, job, observer)?;
    prepared.trainer.set_weights(weights_name(), weights)?;
    Ok(prepared)
}

fn json_of(report: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(report).map_err(|error| Error::Machine(format!("cannot write the report: {error}")))
}

#[pymethods]
impl Model {
    /// Reads a model from a file, or from a text with a name. An artifact comes with its weights and its metadata.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, text: Option<String>, constants: Vec<Setting>) -> PyResult<Loaded<'_>> {
        if text.is_none() && artifact::is_one(&path) {
            let source = ModelSource::File(path.clone());
            let opened = source.open(&constants).map_err(|error| exception(py, &error))?;
            if let Opened::Artifact { artifact: found, .. } = opened {
                let metadata = found.description().to_json().map_err(|error| exception(py, &error))?;
                let weights = arrays(py, found.params().clone())?;
                return Ok((Model::of_artifact(Arc::unwrap_or_clone(found)), Some((weights, metadata))));
            }
        }
        let text = match text {
            Some(text) => text,
            None => hgnnc::text(&path).map_err(|error| exception(py, &error))?,
        };
        Ok((Model::of_text(py, path, text, constants)?, None))
    }

    #[getter]
    fn path(&self) -> String {
        self.path.display().to_string()
    }

    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn outputs(&self) -> Vec<String> {
        self.outputs.clone()
    }

    /// Name and shape of each parameter.
    #[getter]
    fn params(&self) -> Vec<(String, String)> {
        self.params.clone()
    }

    /// The vertex type, by its name in the dataset, whose label is trained.
    #[getter]
    fn target(&self) -> Option<String> {
        self.target.clone()
    }

    /// The output that is trained.
    #[getter]
    fn trained(&self) -> Option<String> {
        self.trained.clone()
    }

    #[getter]
    fn warnings(&self) -> Vec<Found> {
        self.warnings.clone()
    }

    /// Checks the model against a dataset, and returns the warnings.
    fn check(&self, py: Python<'_>, data: &Dataset, split: Option<String>) -> PyResult<Vec<Found>> {
        let (source, constants, dataset) = (self.source.clone(), self.constants.clone(), Arc::clone(&data.0));
        let checked = py.detach(move || -> Result<Vec<Found>, Error> {
            let (pool, mut warnings, mut dataset) = (thread_pool(0)?, Warnings::default(), dataset);
            let mut opened = source.open(&constants)?;
            if let Opened::Text(analysis) = &opened {
                accept(analysis, &analysis.diagnostics, &mut warnings)?;
            }
            let split = split.as_deref();
            let model =
                opened.meet(&mut dataset, Meeting { split, ..Meeting::new(Purpose::Train) }, &mut warnings, &pool)?;
            if let Some(train) = &model.train {
                pool.install(|| check_held_out(&model.flow, &train.training, &dataset, split))?;
            }
            Ok(warnings.0)
        });
        checked.map_err(|error| exception(py, &error))
    }

    /// Trains, and returns the report, the weights of the best epoch with the metadata of their artifact, and whether
    /// Ctrl-C ended it.
    #[pyo3(signature = (data, options, init, handler))]
    fn fit<'py>(
        &self,
        py: Python<'py>,
        data: Option<&Bound<'py, Dataset>>,
        options: Options,
        init: Option<Given<'py>>,
        handler: &Bound<'py, PyAny>,
    ) -> PyResult<Fitted<'py>> {
        let job = self.job(data.map(Bound::get), &options)?;
        let init = init.as_ref().map(file).transpose()?;
        let worked = run(py, handler, Interrupt::Stops, move |reporter| {
            let mut prepared = prepare(Purpose::Train, &job, reporter)?;
            if let Some(init) = &init {
                prepared.trainer.set_weights(weights_name(), init)?;
            }
            prepared.trainer.warnings().iter().for_each(|warning| reporter.note(format!("warning: {warning}")));
            let outcome = prepared.trainer.run(reporter.stop(), &mut |epoch| reporter.epoch(epoch));
            let outcome = outcome.map_err(|error| prepared.located(error))?;
            let trained = prepared.trainer.epochs_done() > 0 || prepared.trainer.batches_done() > 0;
            let report = prepared.report()?;
            let stopped = outcome == Outcome::Interrupted;
            let metadata = artifact::metadata(&prepared, Some(&report))?;
            let weights = prepared.trainer.weights()?;
            Ok((json_of(&report)?, weights, metadata, trained, stopped, reporter.history()))
        })?;
        let (report, weights, metadata, trained, stopped, history) = worked.value;
        if worked.interrupted && !trained {
            return Err(PyKeyboardInterrupt::new_err("before the first epoch was done"));
        }
        Ok((report, arrays(py, weights)?, metadata, stopped, history))
    }

    /// The report of given weights, as JSON.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        data: Option<&Bound<'py, Dataset>>,
        options: Options,
        weights: Given<'py>,
        handler: &Bound<'py, PyAny>,
    ) -> PyResult<String> {
        let (job, weights) = (self.job(data.map(Bound::get), &options)?, file(&weights)?);
        let worked = run(py, handler, Interrupt::Abandons, move |reporter| {
            json_of(&with_weights(Purpose::Measure, &job, &weights, reporter)?.report()?)
        })?;
        Ok(worked.value)
    }

    /// The outputs of vertices, or some of them. With `probabilities`, the trained output is the probability of each
    /// class.
    #[pyo3(signature = (data, options, weights, outputs, probabilities, handler))]
    #[expect(clippy::too_many_arguments, reason = "named in Python")]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        data: Option<&Bound<'py, Dataset>>,
        options: Options,
        weights: Given<'py>,
        outputs: Option<Vec<String>>,
        probabilities: bool,
        handler: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (mut job, weights) = (self.job(data.map(Bound::get), &options)?, file(&weights)?);
        job.outputs = outputs.clone().unwrap_or_default();
        let trained = self.trained.clone();
        let worked = run(py, handler, Interrupt::Abandons, move |reporter| {
            let mut prepared = with_weights(Purpose::Infer, &job, &weights, reporter)?;
            let names = outputs.unwrap_or_else(|| prepared.trainer.outputs());
            if probabilities && trained.as_ref().is_none_or(|trained| !names.contains(trained)) {
                return Err(Error::input(match trained {
                    Some(trained) => format!("only the trained output, `{trained}`, has probabilities"),
                    None => "the model has no `train` block, so none of its outputs has probabilities".into(),
                }));
            }
            let mut found = vec![];
            for name in names {
                let mut rows = prepared.trainer.infer(Some(&name))?;
                if probabilities && trained.as_ref() == Some(&name) {
                    prepared.naming.probabilities(&name, &mut rows)?;
                }
                if let Some(problem) = weights::not_finite(&name, &[rows.rows, rows.width], &rows.data) {
                    reporter.note(format!("warning: not all results are finite: {problem}"));
                }
                found.push((name, rows));
            }
            Ok(found)
        })?;
        let dict = PyDict::new(py);
        for (name, rows) in worked.value {
            dict.set_item(name, rows.data.into_pyarray(py).reshape([rows.rows, rows.width])?)?;
        }
        Ok(dict)
    }

    /// An output of semantic graphs, or of their edges. Of each graph: its name, its values and, for edges, their sources
    /// and destinations.
    fn predict_graphs<'py>(
        &self,
        py: Python<'py>,
        data: Option<&Bound<'py, Dataset>>,
        options: Options,
        weights: Given<'py>,
        output: String,
        handler: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<GraphValues<'py>>> {
        let (mut job, weights) = (self.job(data.map(Bound::get), &options)?, file(&weights)?);
        job.outputs = vec![output.clone()];
        let worked = run(py, handler, Interrupt::Abandons, move |reporter| {
            let mut prepared = with_weights(Purpose::Infer, &job, &weights, reporter)?;
            prepared.infer_family(&output)?.ok_or_else(|| {
                Error::input(format!(
                    "`{output}` is an output of vertices, not of semantic graphs or edges: `predict` computes it"
                ))
            })
        })?;
        let found = worked.value;
        let ends = |edges: &[(u32, u32)]| {
            let (src, dst): (Vec<i64>, Vec<i64>) = edges.iter().map(|&(s, d)| (i64::from(s), i64::from(d))).unzip();
            (src.into_pyarray(py), dst.into_pyarray(py))
        };
        let width = found.width;
        let graphs = found.graphs.into_iter().map(|graph| {
            let edges = (found.rows == FamilyRows::Edges).then(|| ends(&graph.edges));
            let rows = graph.data.len() / width.max(1);
            Ok((graph.name, graph.data.into_pyarray(py).reshape([rows, width])?, edges))
        });
        graphs.collect()
    }

    /// Scores of pairs of vertices, by relation.
    fn score<'py>(
        &self,
        py: Python<'py>,
        data: Option<&Bound<'py, Dataset>>,
        options: Options,
        weights: Given<'py>,
        pairs: Vec<(String, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>)>,
        handler: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (job, weights) = (self.job(data.map(Bound::get), &options)?, file(&weights)?);
        let mut given = vec![];
        for (name, src, dst) in &pairs {
            let (sources, destinations) = (slice(src)?.len(), slice(dst)?.len());
            if sources != destinations {
                return Err(exception(
                    py,
                    &Error::input(format!("pairs of `{name}`: {sources} sources and {destinations} destinations")),
                ));
            }
            given.push((name.clone(), slice(src)?.to_vec(), slice(dst)?.to_vec()));
        }
        let worked = run(py, handler, Interrupt::Abandons, move |reporter| {
            let mut prepared = with_weights(Purpose::Score, &job, &weights, reporter)?;
            let graphs = prepared.trainer.link_graphs();
            let mut by_graph = vec![vec![]; graphs.len()];
            for (name, src, dst) in &given {
                let Some(graph) = graphs.iter().position(|known| known.name == *name) else {
                    let known: Vec<_> = graphs.iter().map(|known| format!("`{}`", known.name)).collect();
                    return Err(Error::input(format!(
                        "the model does not score pairs of `{name}`; it scores those of {}",
                        known.join(", ")
                    )));
                };
                let (num_src, num_dst) = graphs[graph].ends;
                let end = |id: i64, count: usize| u32::try_from(id).ok().filter(|&id| (id as usize) < count);
                for (pair, (&src, &dst)) in src.iter().zip(dst).enumerate() {
                    let (Some(a), Some(b)) = (end(src, num_src), end(dst, num_dst)) else {
                        return Err(Error::input(format!(
                            "pair {pair} of `{name}` joins {src} and {dst}, but it has {num_src} sources and \
                             {num_dst} destinations"
                        )));
                    };
                    by_graph[graph].push((a, b));
                }
            }
            let scores = prepared.trainer.score_pairs(&by_graph)?;
            Ok(graphs.into_iter().map(|known| known.name).zip(scores).collect::<Vec<_>>())
        })?;
        let dict = PyDict::new(py);
        for (name, scores) in worked.value {
            if pairs.iter().any(|(asked, ..)| *asked == name) {
                dict.set_item(name, scores.into_pyarray(py))?;
            }
        }
        Ok(dict)
    }

    /// A profile of training on this processor: as text, JSON and a page.
    fn profile<'py>(
        &self,
        py: Python<'py>,
        data: Option<&Bound<'py, Dataset>>,
        options: Options,
        handler: &Bound<'py, PyAny>,
    ) -> PyResult<(String, String, String)> {
        let mut job = self.job(data.map(Bound::get), &options)?;
        job.device = Device::Cpu;
        job.options.epochs = None;
        let (path, epochs) = (self.path.clone(), options.epochs);
        let worked = run(py, handler, Interrupt::Abandons, move |reporter| {
            let mut prepared = prepare(Purpose::Train, &job, reporter)?;
            let machine = processor(prepared.trainer.threads(), reporter);
            let measured = ProfileOptions { epochs, batches: None, in_cache: None };
            let (found, _) = profile::measure(&path, &mut prepared, machine, measured, reporter.stop())?;
            let page = page::page(&found).map_err(|error| Error::Machine(error.to_string()))?;
            Ok((text::text(&found), json::write(&found), page))
        })?;
        Ok(worked.value)
    }

    /// Reads weights from a file.
    #[staticmethod]
    fn read_weights(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
        let found = py.detach(|| weights::read(&path));
        arrays(py, found.map_err(|error| exception(py, &error.into()))?)
    }

    /// Writes weights to a file: an artifact, if there are metadata.
    #[staticmethod]
    fn write_weights(py: Python<'_>, path: PathBuf, given: Given<'_>, metadata: Option<String>) -> PyResult<()> {
        let file = file(&given)?;
        let tensors = file.tensors.iter();
        let tensors = tensors
            .map(|(name, (shape, data))| (name.clone(), weights::Tensor { shape: shape.clone(), data }))
            .collect();
        let written = match metadata {
            Some(metadata) => artifact::write(&path, tensors, metadata),
            None => weights::write(&path, tensors, None).map_err(Error::from),
        };
        written.map_err(|error| exception(py, &error))
    }
}
