//! Datasets of models: where they are, and what a schema is compared with.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use hgnnc_dataset::dataset::LabelValues;
use hgnnc_dataset::{Dataset, FieldData, files};
use hgnnc_driver::{
    DatasetSummary, FieldSummary, LabelSummary, LabelSummaryKind, RelationSummary, RowsOf, VertexSummary,
};
use hgnnc_machine::Machine;
use hgnnc_synth::{Outcome, Size, SynthError, generate_size};
use hgnnc_trace::machine_bench;
use rayon::ThreadPool;
use xxhash_rust::xxh3::Xxh3;

use crate::{Error, Observer};

/// The prefix of synthetic datasets that models name.
pub(crate) const SYNTHETIC: &str = "synth ";

/// Seed of synthetic datasets named by models.
const SYNTH_SEED: u64 = 0;

impl From<SynthError> for Error {
    fn from(error: SynthError) -> Self {
        match error {
            SynthError::Io { .. } => Error::Machine(error.to_string()),
            _ => Error::Input(error.to_string()),
        }
    }
}

/// Loads and validates a dataset on the threads of a pool, which is the only one of a command: the global pool of the
/// process is never started (`main` checks it in debug builds).
pub fn load(folder: &Path, pool: &ThreadPool) -> Result<Dataset, Error> {
    Ok(pool.install(|| Dataset::load(folder))?)
}

/// A hash of the description of a dataset and of all files that it names. These must be readable, and the description TOML.
pub(crate) fn contents_hash(folder: &Path) -> Result<String, Error> {
    let path = folder.join("dataset.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| Error::read(&path, &error))?;
    let described: toml::Value =
        toml::from_str(&text).map_err(|error| Error::input(format!("{}: {error}", path.display())))?;
    let mut named = BTreeSet::new();
    let mut pending = vec![&described];
    while let Some(value) = pending.pop() {
        match value {
            toml::Value::String(name) => drop(named.insert(name)),
            toml::Value::Array(items) => pending.extend(items),
            toml::Value::Table(entries) => pending.extend(entries.values()),
            _ => {}
        }
    }
    let mut hash = Xxh3::new();
    hash.update(text.as_bytes());
    for path in named.into_iter().map(|name| folder.join(name)).filter(|path| path.is_file()) {
        let read = |error: std::io::Error| Error::read(&path, &error);
        let mut file = BufReader::with_capacity(1 << 20, std::fs::File::open(&path).map_err(read)?);
        loop {
            let part = file.fill_buf().map_err(read)?;
            if part.is_empty() {
                break;
            }
            hash.update(part);
            let bytes = part.len();
            file.consume(bytes);
        }
    }
    Ok(format!("{:032x}", hash.digest128()))
}

/// The dataset folder of a model: the given one, or the model's own, which is generated on first use if it is
/// synthetic. `beside` is the folder that its paths are relative to. `observer` receives a note about a generated one.
pub fn folder(
    own: Option<&str>,
    beside: &Path,
    asked: Option<&Path>,
    pool: &ThreadPool,
    observer: &mut dyn Observer,
) -> Result<PathBuf, Error> {
    if let Some(asked) = asked {
        return Ok(asked.to_path_buf());
    }
    let Some(own) = own else {
        return Err(Error::input(
            "the model names no dataset: give one with `--data DIR`, or write `dataset \"synth acm\"` into its train block",
        ));
    };
    let Some(shape) = own.strip_prefix(SYNTHETIC) else {
        return Ok(beside.join(own));
    };
    let size: Size = shape.parse()?;
    let folder = cache_folder()?.join(format!("synth-{}-{SYNTH_SEED}", size.to_string().replace(' ', "-")));
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Error::write(parent, &error))?;
    }
    let outcome = pool.install(|| generate_size(size, SYNTH_SEED, &folder))?;
    if outcome == Outcome::Written {
        observer.note(format!("generated a synthetic graph of the shape of {size} in {}", folder.display()));
    }
    Ok(folder)
}

/// The description of the processor for `threads` threads (0: one per processor).
pub fn processor(threads: usize, observer: &mut dyn Observer) -> Machine {
    // Without a cache folder the processor is measured each time.
    let folder = cache_folder().ok();
    machine_bench::machine(folder.as_deref(), threads, &mut |warning| observer.note(format!("warning: {warning}")))
}

/// The folder of generated datasets and of the processor's description: `HGNNC_CACHE`, or the user's cache folder,
/// or a private temporary folder.
fn cache_folder() -> Result<PathBuf, Error> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let found = named("HGNNC_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|p| p.join("hgnnc")))
        .or_else(|| named("HOME").map(|p| p.join(".cache").join("hgnnc")));
    match found {
        Some(folder) => Ok(folder),
        None => files::private_folder("hgnnc").map_err(|error| Error::write(&std::env::temp_dir(), &error)),
    }
}

fn field_summary(field: &FieldData) -> FieldSummary {
    let FieldData { name, values } = field;
    FieldSummary { name: name.clone(), width: values.dim(), sparse: values.is_sparse() }
}

/// The part of a dataset that the schema check compares.
pub fn summary(dataset: &Dataset) -> DatasetSummary {
    let label = |name: &str, of: RowsOf, values: &LabelValues| LabelSummary {
        name: name.to_owned(),
        of,
        kind: match *values {
            LabelValues::Single { classes, .. } => LabelSummaryKind::Class(classes),
            LabelValues::Multi { classes, .. } => LabelSummaryKind::Multi(classes),
            LabelValues::Real { dim, .. } => LabelSummaryKind::Real(dim),
        },
    };
    let of_type = RowsOf::Vertices;
    let relations = || dataset.relations.iter().enumerate();
    let mut labels: Vec<LabelSummary> =
        dataset.labels.iter().map(|l| label(&l.name, of_type(l.vertex_type), &l.values)).collect();
    for (r, of) in relations() {
        labels.extend(of.labels.iter().map(|l| label(&l.name, RowsOf::Edges(r), &l.values)));
    }
    let splits = dataset.splits.iter().map(|s| (s.name.clone(), of_type(s.vertex_type)));
    let splits =
        splits.chain(relations().flat_map(|(r, of)| of.splits.iter().map(move |s| (s.name.clone(), RowsOf::Edges(r)))));
    DatasetSummary {
        path: match dataset.folder.as_os_str().is_empty() {
            true => format!("the dataset `{}`", dataset.name),
            false => dataset.folder.join("dataset.toml").display().to_string(),
        },
        vertices: dataset
            .vertex_types
            .iter()
            .map(|v| VertexSummary {
                name: v.name.clone(),
                count: v.count,
                features: v.features.as_ref().map(|f| (f.dim(), f.is_sparse())),
                fields: v.fields.iter().map(field_summary).collect(),
                time: v.time.as_deref().map(range),
            })
            .collect(),
        relations: dataset
            .relations
            .iter()
            .map(|r| RelationSummary {
                name: r.name.clone(),
                src: r.src,
                dst: r.dst,
                edges: r.num_edges(),
                weighted: r.weight.is_some(),
                features: r.features.as_ref().map(|f| f.dim),
                time: r.time.as_deref().map(range),
            })
            .collect(),
        labels,
        splits: splits.collect(),
        link_splits: dataset.link_splits.iter().map(|s| s.name.clone()).collect(),
    }
}

/// The earliest and the latest time.
fn range(times: &[i64]) -> (i64, i64) {
    let (first, last) = (times.iter().min(), times.iter().max());
    (first.copied().unwrap_or_default(), last.copied().unwrap_or_default())
}
