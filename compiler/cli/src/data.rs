//! `hgnnc data …`.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use hgnnc::{check_folder, check_writable, write_file};
use hgnnc_cpu::thread_pool;
use hgnnc_dataset::DataErrors;
use hgnnc_dataset::write::{WriteError, vacant};
use hgnnc_graph::info::DatasetInfo;
use hgnnc_graph::{Entry, EntryContents, EntryRows, GraphCache, show_bytes};
use hgnnc_import::{ExportError, Kind, Layout};
use hgnnc_synth::{Outcome, Size, generate_size};
use indicatif::{ProgressBar, ProgressStyle};

use crate::data_args::{DataArgs, DataCommand};
use crate::failure::Failure;
use crate::output::{note, print, print_data};

/// Documentation of the dataset format.
const FORMAT: &str = include_str!("../../../docs/dataset.md");

/// Runs a subcommand of `hgnnc data`.
pub fn data(args: &DataArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        DataCommand::Info { dir, json } => {
            let pool = thread_pool(0)?;
            let dataset = hgnnc::load(dir, &pool)?;
            let info = pool.install(|| DatasetInfo::new(&dataset))?;
            if *json {
                print_data(&format!("{:#}\n", info.json()))?;
            } else {
                print(&info.text())?;
            }
        }
        DataCommand::Format => print(FORMAT)?,
        DataCommand::Schema { dir, layer } => {
            let pool = thread_pool(0)?;
            let dataset = hgnnc::load(dir, &pool)?;
            print_data(&pool.install(|| hgnnc::starter(&dataset, layer.of_starter()))?)?;
        }
        DataCommand::Import { kind, src, dir, config, like, model, dry_run } => {
            // A dry run may go without a folder.
            let target = dir.as_deref().filter(|_| !dry_run);
            import(
                &Source { kind: *kind, src, config: config.as_deref(), like: like.as_deref() },
                target,
                model.as_deref(),
            )?;
        }
        DataCommand::Split(args) => crate::split::split(args)?,
        DataCommand::Partition(args) => crate::partition::partition(args)?,
        DataCommand::Export { kind, dir, out } => export(*kind, dir, out)?,
        DataCommand::Cache { dir, clear } => print(&cache(dir, *clear)?)?,
        DataCommand::Synth { shape, dir, out, seed, scale } => {
            let size = shape.parse().and_then(|shape| Size::scaled(shape, *scale)).map_err(hgnnc::Error::from)?;
            // The parser ensures that one of the two is given.
            let dir = dir.as_deref().or(out.as_deref()).unwrap_or(Path::new("."));
            check_folder(dir)?;
            match thread_pool(0)?.install(|| generate_size(size, *seed, dir)).map_err(hgnnc::Error::from)? {
                Outcome::Written => print(&format!("wrote {}\n", dir.display()))?,
                Outcome::Kept => print(&format!("{} holds this dataset already\n", dir.display()))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The files of an import, and how they are read.
struct Source<'a> {
    kind: Kind,
    src: &'a Path,
    config: Option<&'a Path>,
    /// The dataset that gets new rows.
    like: Option<&'a Path>,
}

/// Imports a dataset, and writes it if there is a folder for it.
fn import(source: &Source<'_>, target: Option<&Path>, model: Option<&Path>) -> Result<(), Failure> {
    let &Source { kind, src, config, like } = source;
    if config.is_some() && !kind.has_config() {
        let kind = kind.name();
        return Err(Failure::input(format!("`--config` describes tables or has settings, and `{kind}` has none")));
    }
    if like.is_some() && !kind.has_transforms() {
        let kind = kind.name();
        return Err(Failure::input(format!("`--like` is of features that are made of columns, and `{kind}` has none")));
    }
    // Before the work.
    if let Some(target) = target {
        check_folder(target)?;
        vacant(target).map_err(failed)?;
    }
    if let Some(model) = model {
        if model.exists() {
            return Err(Failure::input(format!("`{}` exists; it is left alone", model.display())));
        }
        check_writable(model)?;
    }
    let pool = thread_pool(0)?;
    let watch = Arc::new(ImportBar::default());
    let graph = like.map(|graph| hgnnc::load(graph, &pool)).transpose()?;
    let dataset = hgnnc_import::read_observed(kind, src, config, graph.as_ref(), Arc::clone(&watch) as _);
    watch.finish();
    let dataset = dataset.map_err(|error| Failure::input(error.to_string()))?;
    let info = pool.install(|| DatasetInfo::new(&dataset))?;
    print(&info.text())?;
    let Some(target) = target else { return print("nothing is written: this is a dry run\n") };
    dataset.write(target).map_err(failed)?;
    let target = target.display();
    match model {
        Some(model) => {
            let text = pool.install(|| hgnnc::starter(&dataset, hgnnc::StarterLayer::default()))?;
            write_file(model, text.as_bytes())?;
            let model = model.display();
            let next = match text.contains("\ntrain ") {
                true => format!("`hgnnc train {model} --data {target}` trains it"),
                false => "it has no `train` block, since the dataset has no split".to_owned(),
            };
            print(&format!("wrote {target} and {model}: {next}\n"))
        }
        None if like.is_some() => {
            print(&format!("wrote {target}; `hgnnc infer --new {target}` gives predictions for it\n"))
        }
        None => print(&format!("wrote {target}; `hgnnc data schema {target}` prints a model of it to begin with\n")),
    }
}

/// Writes a dataset in another layout, and prints what that does not hold.
fn export(layout: Layout, dir: &Path, out: &Path) -> Result<(), Failure> {
    let hint = match layout {
        Layout::Tables | Layout::Hgb | Layout::Ogb => format!("`hgnnc data import {}` reads it", layout.name()),
        Layout::Pyg => "`load()` in its load.py makes a HeteroData of it; it is a dataset as well".into(),
    };
    // Before the work.
    check_folder(out)?;
    vacant(out).map_err(failed)?;
    let pool = thread_pool(0)?;
    let dataset = hgnnc::load(dir, &pool)?;
    let notes = pool.install(|| hgnnc_import::export(layout, &dataset, out)).map_err(|error| match error {
        ExportError::Write(error) => failed(error),
        refused => Failure::input(refused.to_string()),
    })?;
    notes.iter().for_each(|text| note(&format!("note: {text}")));
    print(&format!("wrote {}; {hint}\n", out.display()))
}

/// The progress bar of a large import on a terminal.
#[derive(Default)]
struct ImportBar(OnceLock<ProgressBar>);

impl ImportBar {
    /// Smaller imports end before a bar could be read.
    const LEAST_BYTES: u64 = 16 << 20;

    fn finish(&self) {
        if let Some(bar) = self.0.get() {
            bar.finish_and_clear();
        }
    }
}

impl hgnnc_import::Observer for ImportBar {
    fn progress(&self, read: u64, total: u64) {
        if total < ImportBar::LEAST_BYTES || !std::io::stderr().is_terminal() {
            return;
        }
        let bar = self.0.get_or_init(|| {
            let bar = ProgressBar::new(total);
            let template = "reading {bytes} of {total_bytes} {bar:30} {eta}";
            ProgressStyle::with_template(template).into_iter().for_each(|style| bar.set_style(style));
            bar
        });
        bar.set_length(total);
        bar.set_position(read);
    }

    fn note(&self, text: &str) {
        let line = format!("note: {text}");
        match self.0.get() {
            Some(bar) => bar.suspend(|| note(&line)),
            None => note(&line),
        }
    }
}

/// A dataset that could not be written: the folder is taken, or the machine failed.
pub fn failed(error: WriteError) -> Failure {
    match error {
        WriteError::Occupied(_) => Failure::input(error.to_string()),
        _ => Failure::Machine(error.to_string()),
    }
}

/// Lists the cached metapath graphs and precomputed rows of a dataset, or removes them.
fn cache(dir: &Path, clear: bool) -> Result<String, Failure> {
    // The cache of a dataset that fails to load can still be cleared.
    if !dir.join("dataset.toml").is_file() {
        return Err(DataErrors::not_a_dataset(dir).into());
    }
    let cache = GraphCache::of(dir, GraphCache::DEFAULT_LIMIT);
    let folder = cache.folder().display();
    let entries = cache.entries();
    let of_rows = |entry: &&Entry| matches!(entry.contents, Some(EntryContents::Rows(_)));
    let rows = entries.iter().filter(of_rows).count();
    let counted =
        |count: usize, one: &str, more: &str| if count == 1 { one.to_owned() } else { format!("{count} {more}") };
    let files = |all: usize| {
        let graphs = counted(all.saturating_sub(rows), "1 graph", "graphs");
        match rows {
            0 => graphs,
            rows => {
                format!("{graphs}, {}", counted(rows, "1 matrix of precomputed rows", "matrices of precomputed rows"))
            }
        }
    };
    if clear {
        let (all, bytes) = cache.clear().map_err(|error| Failure::write(cache.folder(), &error))?;
        return Ok(format!("removed {} from {folder}, {}\n", files(all), show_bytes(bytes)));
    }
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let mut text = format!("{folder}: {}, {}\n", files(entries.len()), show_bytes(bytes));
    // Most recently used first.
    entries.iter().rev().for_each(|entry| text += &format!("  {}\n", entry_line(entry)));
    Ok(text)
}

fn entry_line(entry: &Entry) -> String {
    let bytes = show_bytes(entry.bytes);
    let graph = match &entry.contents {
        Some(EntryContents::Graph(graph)) => graph,
        Some(EntryContents::Rows(EntryRows { source, rows, width, build })) => {
            let ms = 1e3 * build.as_secs_f64();
            return format!("{source}: {rows} rows of {width} numbers, {bytes}, computed in {ms:.1} ms");
        }
        None => {
            let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
            return format!("{name}: {bytes}, damaged or of another version; it will be replaced or removed");
        }
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
