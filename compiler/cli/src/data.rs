//! Datasets: `hgnnc data …`, resolution of the model's dataset, and its summary for the schema check.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hgnnc_cpu::thread_pool;
use hgnnc_driver::{Analysis, DatasetSummary, LabelSummary, LabelSummaryKind, RelationSummary, VertexSummary};
use hgnnc_graph::dataset::LabelValues;
use hgnnc_graph::info::DatasetInfo;
use hgnnc_graph::{DataErrors, Dataset, Entry, GraphCache, files, show_bytes};
use hgnnc_machine::Machine;
use hgnnc_synth::{Outcome, Size, SynthError, generate_size};
use hgnnc_trace::machine_bench;
use rayon::ThreadPool;

use crate::args::{DataArgs, DataCommand};
use crate::failure::Failure;
use crate::output::{check_folder, note, print, print_data};
use crate::starter;

/// Seed of synthetic datasets named by models.
const SYNTH_SEED: u64 = 0;

/// Documentation of the dataset format.
const FORMAT: &str = include_str!("../../../docs/dataset.md");

/// Runs a subcommand of `hgnnc data`.
pub fn data(args: &DataArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        DataCommand::Info { dir, json } => {
            let pool = thread_pool(0)?;
            let dataset = load(dir, &pool)?;
            let info = pool.install(|| DatasetInfo::new(&dataset))?;
            if *json {
                print_data(&format!("{:#}\n", info.json()))?;
            } else {
                print(&info.text())?;
            }
        }
        DataCommand::Format => print(FORMAT)?,
        DataCommand::Schema { dir } => {
            let pool = thread_pool(0)?;
            print_data(&starter::text(&load(dir, &pool)?))?;
        }
        DataCommand::Cache { dir, clear } => print(&cache(dir, *clear)?)?,
        DataCommand::Synth { shape, dir, out, seed, scale } => {
            let size = shape.parse().and_then(|shape| Size::scaled(shape, *scale)).map_err(synth_failure)?;
            // The parser ensures that one of the two is given.
            let dir = dir.as_deref().or(out.as_deref()).unwrap_or(Path::new("."));
            check_folder(dir)?;
            match thread_pool(0)?.install(|| generate_size(size, *seed, dir)).map_err(synth_failure)? {
                Outcome::Written => print(&format!("wrote {}\n", dir.display()))?,
                Outcome::Kept => print(&format!("{} holds this dataset already\n", dir.display()))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the cached metapath graphs of a dataset, or removes them.
fn cache(dir: &Path, clear: bool) -> Result<String, Failure> {
    // The cache of a dataset that fails to load can still be cleared.
    if !dir.join("dataset.toml").is_file() {
        return Err(DataErrors::not_a_dataset(dir).into());
    }
    let cache = GraphCache::of(dir, GraphCache::DEFAULT_LIMIT);
    let folder = cache.folder().display();
    let graphs = |count: usize| if count == 1 { "1 graph".to_owned() } else { format!("{count} graphs") };
    if clear {
        let (files, bytes) = cache.clear().map_err(|error| Failure::write(cache.folder(), &error))?;
        return Ok(format!("removed {} from {folder}, {}\n", graphs(files), show_bytes(bytes)));
    }
    let entries = cache.entries();
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let mut text = format!("{folder}: {}, {}\n", graphs(entries.len()), show_bytes(bytes));
    // Most recently used first.
    entries.iter().rev().for_each(|entry| text += &format!("  {}\n", entry_line(entry)));
    Ok(text)
}

fn entry_line(entry: &Entry) -> String {
    let bytes = show_bytes(entry.bytes);
    let Some(graph) = &entry.graph else {
        let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
        return format!("{name}: {bytes}, damaged or of another version; it will be replaced or removed");
    };
    let counted = if graph.counted { ", counted" } else { "" };
    format!(
        "{}: {} -> {} vertices, {} pairs{counted}, {bytes}, built in {:.1} ms",
        graph.steps,
        graph.num_src,
        graph.num_dst,
        graph.pairs,
        1e3 * graph.build.as_secs_f64()
    )
}

fn synth_failure(error: SynthError) -> Failure {
    match error {
        SynthError::Io { .. } => Failure::Machine(error.to_string()),
        _ => Failure::input(error.to_string()),
    }
}

/// Loads and validates a dataset on the threads of a pool, which is the only one of a command: the global pool of the
/// process is never started (`main` checks it in debug builds).
pub fn load(folder: &Path, pool: &ThreadPool) -> Result<Dataset, Failure> {
    Ok(pool.install(|| Dataset::load(folder))?)
}

/// The dataset folder of a model: the given one, or the model's own, which is generated on first use if it is
/// synthetic. `say` receives a note about that.
pub fn folder(
    analysis: &Analysis,
    model_path: &Path,
    asked: Option<&Path>,
    pool: &ThreadPool,
    mut say: impl FnMut(String),
) -> Result<PathBuf, Failure> {
    if let Some(asked) = asked {
        return Ok(asked.to_path_buf());
    }
    let own = analysis.model.as_ref().and_then(|m| m.train.as_ref()).and_then(|t| t.training.dataset.as_deref());
    let Some(own) = own else {
        return Err(Failure::input(
            "the model names no dataset: give one with `--data DIR`, or write `dataset \"synth acm\"` into its train block",
        ));
    };
    let Some(shape) = own.strip_prefix("synth ") else {
        // Paths are relative to the model.
        return Ok(model_path.parent().unwrap_or(Path::new(".")).join(own));
    };
    let size: Size = shape.parse().map_err(synth_failure)?;
    let folder = cache_folder()?.join(format!("synth-{}-{SYNTH_SEED}", size.to_string().replace(' ', "-")));
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Failure::write(parent, &error))?;
    }
    let outcome = pool.install(|| generate_size(size, SYNTH_SEED, &folder)).map_err(synth_failure)?;
    if outcome == Outcome::Written {
        say(format!("generated a synthetic graph of the shape of {size} in {}", folder.display()));
    }
    Ok(folder)
}

/// The description of the processor for `threads` threads (0: one per processor).
pub fn processor(threads: usize) -> Machine {
    // Without a cache folder the processor is measured each time.
    let folder = cache_folder().ok();
    machine_bench::machine(folder.as_deref(), threads, &mut |warning| note(&format!("warning: {warning}")))
}

/// The folder of generated datasets and of the processor's description: `HGNNC_CACHE`, or the user's cache folder,
/// or a private temporary folder.
fn cache_folder() -> Result<PathBuf, Failure> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let found = named("HGNNC_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|p| p.join("hgnnc")))
        .or_else(|| named("HOME").map(|p| p.join(".cache").join("hgnnc")));
    match found {
        Some(folder) => Ok(folder),
        None => files::private_folder("hgnnc").map_err(|error| Failure::write(&std::env::temp_dir(), &error)),
    }
}

/// The part of a dataset that the schema check compares.
pub fn summary(dataset: &Dataset) -> DatasetSummary {
    DatasetSummary {
        path: dataset.folder.join("dataset.toml").display().to_string(),
        vertices: dataset
            .vertex_types
            .iter()
            .map(|v| VertexSummary {
                name: v.name.clone(),
                count: v.count,
                features: v.features.as_ref().map(|f| (f.dim(), f.is_sparse())),
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
            })
            .collect(),
        labels: dataset
            .labels
            .iter()
            .map(|l| LabelSummary {
                name: l.name.clone(),
                vertex: l.vertex_type,
                kind: match l.values {
                    LabelValues::Single { classes, .. } => LabelSummaryKind::Class(classes),
                    LabelValues::Multi { classes, .. } => LabelSummaryKind::Multi(classes),
                    LabelValues::Real { dim, .. } => LabelSummaryKind::Real(dim),
                },
            })
            .collect(),
        splits: dataset.splits.iter().map(|s| (s.name.clone(), s.vertex_type)).collect(),
        link_splits: dataset.link_splits.iter().map(|s| s.name.clone()).collect(),
    }
}
