//! Reads models, and checks them against datasets.

use std::path::Path;
use std::sync::Arc;

use hgnnc_data::{BindOptions, PathInstances, add_path_instances, middle_of_metapath};
use hgnnc_dataset::{Dataset, files};
use hgnnc_driver::{
    Analysis, Analyzed, DatasetSummary, Diagnostics, Disabled, LowerError, MAX_SOURCE, Setting, analyze_sparse,
    analyze_with, bind_names, check_dataset, closest, codes, declare_metapaths, factor_path_sums, leave_precomputed,
    silence,
};
use hgnnc_graph::InstanceCounts;
use rayon::ThreadPool;

use crate::artifact::{self, Artifact};
use crate::modules::Folder;
use crate::{Error, ModelSource, Observer, Purpose, dataset};

impl ModelSource {
    /// Reads, with other values for some constants of the text, and checks what can be checked without a dataset.
    ///
    /// # Errors
    /// A file that cannot be read, or is a damaged artifact; constants for an artifact. Mistakes of a text are among the
    /// diagnostics.
    pub fn open(&self, constants: &[Setting]) -> Result<Opened, Error> {
        let artifact = match self {
            ModelSource::File(path) if artifact::is_one(path) => Arc::new(Artifact::load(path)?),
            ModelSource::Artifact(artifact) => Arc::clone(artifact),
            source => return Ok(Opened::Text(Box::new(source.read(constants)?))),
        };
        match constants.first() {
            None => Ok(Opened::Artifact { artifact, edge_outputs: vec![] }),
            Some((name, _)) => Err(Error::input(format!(
                "`{}` is a trained model, whose constants are what it was trained with: `{name}` cannot be set",
                artifact.path().display()
            ))),
        }
    }

    /// Reads and analyzes the text of a model, with other values for some of its constants.
    ///
    /// # Errors
    /// A file that cannot be read, and an artifact, which has no text.
    pub(crate) fn read(&self, constants: &[Setting]) -> Result<Analysis, Error> {
        let path = match self {
            ModelSource::File(path) | ModelSource::Text { path, .. } => path,
            ModelSource::Artifact(_) => Path::new(""),
        };
        Ok(analyze_text(path, &self.text()?, constants))
    }

    /// The text of a model.
    ///
    /// # Errors
    /// As for [`ModelSource::read`].
    pub(crate) fn text(&self) -> Result<String, Error> {
        match self {
            ModelSource::File(path) => text(path),
            ModelSource::Text { text, .. } => Ok(text.clone()),
            ModelSource::Artifact(artifact) => {
                Err(Error::input(format!("`{}` is a trained model: its source is needed", artifact.path().display())))
            }
        }
    }

    /// The folder that paths in the model are relative to.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            ModelSource::File(path) | ModelSource::Text { path, .. } => path.parent().unwrap_or(Path::new(".")),
            ModelSource::Artifact(_) => Path::new("."),
        }
    }
}

/// For what a model meets a dataset.
#[derive(Clone, Copy, Debug)]
pub struct Meeting<'a> {
    /// The split to use; by default the model's own.
    pub split: Option<&'a str>,
    /// The use that the model is prepared for.
    pub purpose: Purpose,
    /// Most bytes of the path instances of a metapath.
    pub graph_budget: Option<u64>,
}

impl Meeting<'_> {
    /// With the split of the model and the default budget.
    pub fn new(purpose: Purpose) -> Self {
        Self { split: None, purpose, graph_budget: None }
    }
}

/// A model that was read.
pub enum Opened {
    /// Its text, analyzed.
    Text(Box<Analysis>),
    /// A trained model.
    #[allow(missing_docs, reason = "fields are named for what they hold")]
    Artifact { artifact: Arc<Artifact>, edge_outputs: Vec<String> },
}

impl Opened {
    /// Adds an output of edges to the program. Other outputs are there. To be called before [`Opened::meet`].
    ///
    /// # Errors
    /// When the model has no output of this name.
    pub fn ask_for(&mut self, output: &str) -> Result<(), Error> {
        match self {
            Opened::Text(analysis) => analysis.model.as_mut().map_or(Ok(()), |model| ask_for(model, output)),
            Opened::Artifact { artifact, edge_outputs } => {
                let known = &artifact.description().outputs;
                has_output(known, output, known.iter().map(String::as_str))?;
                edge_outputs.push(output.to_owned());
                Ok(())
            }
        }
    }

    /// Checks a model without errors against a dataset, and binds it to the dataset's names. The dataset gets the path
    /// instances that the model reads.
    ///
    /// # Errors
    /// When they do not fit together.
    pub fn meet(
        &mut self,
        dataset: &mut Arc<Dataset>,
        how: Meeting<'_>,
        observer: &mut dyn Observer,
        pool: &ThreadPool,
    ) -> Result<Analyzed, Error> {
        match self {
            Opened::Text(analysis) => meet(analysis, dataset, how, observer, pool),
            Opened::Artifact { artifact, edge_outputs } => {
                artifact.check(dataset, how.split, how.purpose, observer)?;
                let mut model = artifact.analyzed(edge_outputs);
                factor_path_sums(&mut model);
                list_paths(&model, dataset, how, observer, pool)?;
                declare(&mut model, dataset, pool)?;
                Ok(model)
            }
        }
    }
}

/// Reads and analyzes a model, with other values for some of its constants.
pub fn read(path: &Path, constants: &[Setting]) -> Result<Analysis, Error> {
    Ok(analyze_text(path, &text(path)?, constants))
}

/// Analyzes the text of a model, with other values for some of its constants. It imports from files relative to the folder
/// of `path`, which messages name; there need be no such file.
pub fn analyze_text(path: &Path, text: &str, constants: &[Setting]) -> Analysis {
    analyze_with(&path.display().to_string(), text, constants, &mut Folder::of(path))
}

/// [`analyze_text`] of a model whose schema declares some features (`Paper.x`) sparse that it declares dense.
pub(crate) fn analyze_sparse_text(path: &Path, text: &str, features: &[String]) -> Analysis {
    analyze_sparse(&path.display().to_string(), text, features, &mut Folder::of(path))
}

/// Reads the text of a model.
pub fn text(path: &Path) -> Result<String, Error> {
    if artifact::is_one(path) {
        return Err(Error::input(format!(
            "`{}` is a trained model, without its source: `eval`, `infer` and `check --serve` take it",
            path.display()
        )));
    }
    // The front end's size limit is checked first, so that a huge file is not read into memory.
    if let Some(len) = std::fs::metadata(path).ok().map(|found| found.len()).filter(|&len| len > MAX_SOURCE as u64) {
        return Err(Error::input(format!("`{}` has {len} bytes; a model has at most {MAX_SOURCE}", path.display())));
    }
    decode(&path.display().to_string(), files::read(path).map_err(|error| Error::read(path, &error))?)
}

/// Decodes the bytes of a model. `name` is for messages.
pub fn decode(name: &str, bytes: Vec<u8>) -> Result<String, Error> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::input(format!("`{name}` is not UTF-8 text: byte {at} begins no character"))
    })?;
    Ok(text)
}

/// Refuses diagnostics with an error; others are shown to the observer.
///
/// # Errors
/// [`Error::Model`] with all diagnostics.
pub fn accept(analysis: &Analysis, diagnostics: &Diagnostics, observer: &mut dyn Observer) -> Result<(), Error> {
    if diagnostics.has_errors() {
        return Err(Error::Model(Box::new((analysis.sources.clone(), diagnostics.clone()))));
    }
    observer.warnings(&analysis.sources, diagnostics);
    Ok(())
}

/// Checks an error-free model against a dataset, and binds it to the dataset's names. The dataset gets the path instances
/// that the model reads.
pub fn meet(
    analysis: &mut Analysis,
    dataset: &mut Arc<Dataset>,
    how: Meeting<'_>,
    observer: &mut dyn Observer,
    pool: &ThreadPool,
) -> Result<Analyzed, Error> {
    let model = take(analysis)?;
    let mut model = fit((analysis, model), (&dataset::summary(dataset), how.split), how.purpose, observer)?;
    factor_path_sums(&mut model);
    list_paths(&model, dataset, how, observer, pool)?;
    declare(&mut model, dataset, pool)?;
    Ok(model)
}

/// The model of an analysis whose errors were reported already.
pub(crate) fn take(analysis: &mut Analysis) -> Result<Analyzed, Error> {
    analysis.model.take().ok_or_else(|| Error::input("internal error: a model that was not checked"))
}

/// Checks an error-free model against the summary of a dataset, and binds it to the dataset's names.
pub(crate) fn fit(
    (analysis, mut model): (&Analysis, Analyzed),
    (summary, split): (&DatasetSummary, Option<&str>),
    purpose: Purpose,
    observer: &mut dyn Observer,
) -> Result<Analyzed, Error> {
    let mut found = Diagnostics::default();
    let how = (split, purpose.is_of_outputs());
    check_dataset(&model.schema, model.train.as_ref(), summary, how, &mut found);
    silence(&analysis.allows, &mut found, |code| code == codes::EMPTY_RELATION);
    analysis.mention_imports(&mut found);
    accept(analysis, &found, observer)?;
    bind_names(&mut model, summary);
    Ok(model)
}

/// Gives a dataset the path instances that a model reads, and says how many of how many where not all are.
pub fn list_paths(
    model: &Analyzed,
    dataset: &mut Arc<Dataset>,
    how: Meeting<'_>,
    observer: &mut dyn Observer,
    pool: &ThreadPool,
) -> Result<(), Error> {
    if model.flow.paths.is_empty() {
        return Ok(());
    }
    let dataset = Arc::make_mut(dataset);
    let options = BindOptions {
        graph_budget: how.graph_budget,
        split: how.split.or(model.split.as_deref()).map(str::to_owned),
        outputs_only: how.purpose.is_of_outputs(),
        ..BindOptions::default()
    };
    let flow = &model.flow;
    for PathInstances { graph, counts, listed } in pool.install(|| add_path_instances(flow, dataset, &options))? {
        let InstanceCounts { all, listed: kept, .. } = counts;
        if !listed {
            observer
                .note(format!("`{graph}`: none of its {all} path instances is listed: sums over them go hop by hop"));
        } else if kept < all {
            observer.note(format!("`{graph}`: {kept} of its {all} path instances are read, chosen at random"));
        }
    }
    Ok(())
}

/// Declares the hops of the metapaths that could be factored on a dataset, after all graphs of the model.
pub(crate) fn declare(model: &mut Analyzed, dataset: &Dataset, pool: &ThreadPool) -> Result<(), Error> {
    let tables = model.flow.with_tables_of(&model.name);
    declare_metapaths(model, |decl| pool.install(|| middle_of_metapath(&tables, dataset, decl)))?;
    Ok(())
}

/// Adds an output of edges to a model's program. Other outputs are there.
///
/// # Errors
/// When the model has no output of this name.
pub fn ask_for(model: &mut Analyzed, output: &str) -> Result<(), Error> {
    has_output(&model.outputs, output, model.inferred())?;
    model.ask_for(output);
    Ok(())
}

/// Refuses a name that is not that of an output.
fn has_output<'n>(known: &[String], output: &str, named: impl Iterator<Item = &'n str>) -> Result<(), Error> {
    if known.iter().any(|name| name == output) {
        return Ok(());
    }
    let named: Vec<&str> = named.collect();
    let names: Vec<String> = named.iter().map(|name| format!("`{name}`")).collect();
    let meant = closest(output, &named).map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
    Err(Error::input(format!("the model has no output `{output}`; it has {}{meant}", names.join(", "))))
}

/// Runs the passes that come before the model's tables are bound to data. Metapaths that only precomputed rows are computed
/// along may then be factored on the dataset.
pub fn prepare(
    model: &mut Analyzed,
    disabled: &Disabled,
    dataset: Option<(&Dataset, &ThreadPool)>,
) -> Result<(), Error> {
    leave_precomputed(model, disabled);
    if let Some((dataset, pool)) = dataset.filter(|_| model.precomputed.is_some()) {
        declare(model, dataset, pool)?;
    }
    Ok(hgnnc_driver::prepare(model, disabled).map_err(LowerError::from)?)
}

/// As [`prepare`], for several ranks: the result is what is disabled in their programs of the whole graph. Where families are
/// not stacked there, which takes time, it notes the reason.
pub fn prepare_for_ranks(
    model: &mut Analyzed,
    disabled: &Disabled,
    (dataset, pool): (&Dataset, &ThreadPool),
    observer: &mut dyn Observer,
) -> Result<Disabled, Error> {
    leave_precomputed(model, disabled);
    if model.precomputed.is_some() {
        declare(model, dataset, pool)?;
    }
    let (disabled, refused) = hgnnc_driver::prepare_for_ranks(model, disabled)?;
    if let Some(refused) = refused {
        observer.note(format!("stack_families: several processes compute each relation by itself: {}", refused.why));
    }
    Ok(disabled)
}
