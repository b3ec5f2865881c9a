//! Jobs: a model, a dataset and a machine that are named, before anything of them is read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hgnnc_dataset::Dataset;
use hgnnc_driver::{Analyzed, Disabled, Setting};
use hgnnc_graph::GraphCache;
use hgnnc_train::TrainOptions;

use crate::Error;
use crate::artifact::Artifact;
use crate::device::Device;
use crate::ranks::Ranks;

/// Purpose of a preparation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Training; needs a `train` block, labels and a split.
    Train,
    /// Metrics of given weights; needs the same.
    Measure,
    /// Outputs of given weights; needs neither labels nor a split.
    Infer,
    /// Scores of given pairs of vertices; needs a loss of links.
    Score,
}

impl Purpose {
    /// Whether labels and splits are not needed.
    pub fn is_of_outputs(self) -> bool {
        matches!(self, Purpose::Infer | Purpose::Score)
    }

    /// Checks that there is a train block, which names the labels, if the purpose needs one.
    pub(crate) fn check(self, model: Option<&Analyzed>) -> Result<(), Error> {
        let wrong = |model: &Analyzed, what: &str| {
            Err(Error::input(format!("the model `{}` has no `train` block, so {what}", model.name)))
        };
        match (self, model) {
            (Purpose::Train, Some(model)) if model.train.is_none() => wrong(model, "it cannot be trained"),
            (Purpose::Measure, Some(model)) if model.train.is_none() => {
                wrong(model, "there is nothing to measure it by")
            }
            (Purpose::Score, Some(model)) => {
                let links = model.train.as_ref().and_then(|spec| spec.training.links());
                match links {
                    Some(_) => Ok(()),
                    _ => Err(Error::input(format!(
                        "the model `{}` has no loss of links, so it scores no pairs: leave `--links` out",
                        model.name
                    ))),
                }
            }
            _ => Ok(()),
        }
    }
}

/// A model, wherever it is.
#[derive(Clone, Debug)]
pub enum ModelSource {
    /// A `.hgnn` file, or an artifact ([`artifact::is_one`](crate::artifact::is_one) tells them apart).
    File(PathBuf),
    /// A text. The dataset that it names is relative to the folder of `path`, which messages name; there need be no such
    /// file.
    #[allow(missing_docs, reason = "fields are named for what they hold")]
    Text { path: PathBuf, text: String },
    /// A trained model with its parameters.
    Artifact(Arc<Artifact>),
}

impl<P: AsRef<Path>> From<P> for ModelSource {
    fn from(path: P) -> Self {
        ModelSource::File(path.as_ref().to_path_buf())
    }
}

impl From<Artifact> for ModelSource {
    fn from(artifact: Artifact) -> Self {
        ModelSource::Artifact(Arc::new(artifact))
    }
}

/// The dataset of a model.
#[derive(Clone, Default, Debug)]
pub enum DataSource {
    /// The one that the model names.
    #[default]
    Named,
    /// A folder.
    Folder(PathBuf),
    /// One that is in memory.
    Loaded(Arc<Dataset>),
}

impl<P: Into<PathBuf>> From<Option<P>> for DataSource {
    fn from(folder: Option<P>) -> Self {
        folder.map_or(DataSource::Named, |folder| DataSource::Folder(folder.into()))
    }
}

/// A request of [`prepare`](crate::prepare()).
#[derive(Clone, Debug)]
pub struct Job {
    /// The model.
    pub model: ModelSource,
    /// The dataset.
    pub data: DataSource,
    /// The folder of a dataset with new vertices and edges beside that one, of the same schema; for outputs only, which
    /// are then those of its vertices ([`Dataset::extended`]).
    pub new: Option<PathBuf>,
    /// The split; `None` for the one that the model names.
    pub split: Option<String>,
    /// Other values for constants of the model.
    pub constants: Vec<Setting>,
    /// Whether reports say what the features alone predict ([`Prepared::baseline`](crate::Prepared::baseline)).
    pub baseline: bool,
    /// Most bytes of the cache of metapath graphs beside the dataset; `None` for no cache.
    pub graph_cache: Option<u64>,
    /// Where to run.
    pub device: Device,
    /// The processes that train together, each on its processor; `None` for this one alone.
    pub ranks: Option<Ranks>,
    /// Disabled passes and fusions.
    pub disabled: Disabled,
    /// The outputs that are asked for, by a job whose purpose is outputs. Those of edges are computed only then. Pairs
    /// are scored by the output that is trained.
    pub outputs: Vec<String>,
    /// The options of the engine.
    pub options: TrainOptions,
}

impl Job {
    /// A job with the default of everything else: the dataset and the split that the model names, any device.
    pub fn new(model: impl Into<ModelSource>) -> Self {
        Self {
            model: model.into(),
            data: DataSource::Named,
            new: None,
            split: None,
            constants: vec![],
            baseline: false,
            graph_cache: Some(GraphCache::DEFAULT_LIMIT),
            device: Device::Auto,
            ranks: None,
            disabled: Disabled::default(),
            outputs: vec![],
            options: TrainOptions::default(),
        }
    }
}

/// Refuses what several processes do not do together.
pub(crate) fn check_ranks(job: &Job) -> Result<(), Error> {
    let refused = |what: &str| Err(Error::input(format!("{what}: start the command without `mpirun`")));
    match job {
        Job { device: Device::Cuda(_) | Device::PtxInterp, .. } => {
            refused("several processes train on their processors, not on devices")
        }
        Job { options: TrainOptions { memory_budget: Some(_), .. }, .. } => {
            refused("a memory budget is for one process")
        }
        Job { options: TrainOptions { cache: Some(_), .. }, ranks: Some(ranks), .. } if !ranks.distribute.features => {
            Err(Error::input(
                "a cache of rows is for one process, or for features that several have divided: add `--distribute features`",
            ))
        }
        _ => Ok(()),
    }
}
