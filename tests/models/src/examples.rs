//! The examples, and the sizes of the datasets that they name.

use std::path::{Path, PathBuf};

use hgnnc_data::{BindOptions, BoundData, add_path_instances, bind};
use hgnnc_dataset::Dataset;
use hgnnc_driver::{Analyzed, bind_names};
use hgnnc_executable::{Executable, Kernels};
use hgnnc_synth::{Shape, Size, generate_size};

/// All examples, as (`rgcn/acm`, text), in order.
///
/// # Panics
/// When they cannot be read.
pub fn examples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        entries.map(|entry| entry.expect("entries can be listed").path()).collect()
    };
    let models = list(&folder).into_iter().filter(|path| path.is_dir()).flat_map(|path| list(&path));
    let mut found: Vec<(String, String)> = models
        .filter(|path| path.extension().is_some_and(|extension| extension == "hgnn"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let name = path.strip_prefix(&folder).expect("found there").with_extension("");
            (name.display().to_string(), text)
        })
        .collect();
    found.sort();
    found
}

/// The synthetic dataset that a model names, generated in `folder` when it is not there; of a large one a hundredth.
/// `None`: it names another one.
///
/// # Panics
/// When it cannot be generated.
pub fn own_dataset(model: &Analyzed, folder: &Path) -> Option<Dataset> {
    let named = model.train.as_ref()?.training.dataset.as_deref()?;
    let named: Size = named.strip_prefix("synth ")?.parse().ok()?;
    let size = if named.shape == Shape::Mag { Size { scale: named.scale.min(0.01), ..named } } else { named };
    let folder = folder.join(format!("synth-{}", size.shape));
    generate_size(size, 0, &folder).unwrap_or_else(|error| panic!("{error}"));
    Some(Dataset::load(&folder).unwrap_or_else(|error| panic!("{error}")))
}

/// A model that is given a dataset's names, and the dataset as its programs see it: with path instances and with edges that
/// are predicted.
///
/// # Panics
/// When they do not fit.
pub fn meet(model: &mut Analyzed, dataset: &Dataset) -> BoundData {
    bind_names(model, &hgnnc::summary(dataset));
    let mut dataset = dataset.clone();
    let options = BindOptions::default();
    if let Err(error) = add_path_instances(&model.flow, &mut dataset, &options) {
        panic!("{}: {error}", model.name);
    }
    let executable = Executable {
        model: model.name.clone(),
        train: None,
        infer: model.flow.clone(),
        score: None,
        rank: [None, None],
        head: None,
        kernels: Kernels::default(),
        training: model.train.as_ref().map(|train| train.training.clone()),
        batch: None,
        graphs: None,
        families: vec![],
        cpu: None,
        sampler: None,
    };
    bind(&executable, &dataset, &options).unwrap_or_else(|error| panic!("{}: {error}", model.name))
}
