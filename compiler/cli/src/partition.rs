//! `hgnnc data partition`: a dataset with the vertices and edges of each rank together.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use hgnnc::check_folder;
use hgnnc_cpu::thread_pool;
use hgnnc_dataset::write::vacant;
use hgnnc_graph::show_bytes;
use hgnnc_partition::{Needs, Observer, Options, Partition, PartitionError, Stage, partition as run};
use indicatif::{ProgressBar, ProgressStyle};

use crate::data::failed;
use crate::data_args::PartitionArgs;
use crate::failure::Failure;
use crate::output::{note, print};

/// Partitions the dataset into a new folder, and says how.
pub fn partition(args: &PartitionArgs) -> Result<(), Failure> {
    let PartitionArgs { dir, out, .. } = args;
    // Before the work.
    check_folder(out)?;
    vacant(out).map_err(failed)?;
    let used = args.model.as_deref().map(used_by).transpose()?.unwrap_or_default();
    let options = Options {
        by: args.by,
        passes: args.passes as usize,
        relations: used.relations,
        split: used.split,
        seed: args.seed,
        available: hgnnc_trace::os::free_bytes(),
        resume: args.resume,
        ..Options::new(args.ranks as usize)
    };
    let bar = Bar::default();
    let outcome = thread_pool(0)?.install(|| run(dir, out, &options, &bar));
    bar.finish();
    let partition = outcome.map_err(|error| failure(error, out))?;
    print(&text(&partition))?;
    print(&format!("wrote {}: `--data {}` takes it as any dataset", out.display(), out.display()))
}

/// The relations and the split of a dataset that a model reads.
#[derive(Default)]
struct Used {
    /// Names of relations in the dataset.
    relations: Vec<String>,
    /// The split that its `train` block names.
    split: Option<String>,
}

fn used_by(model: &Path) -> Result<Used, Failure> {
    let analysis = hgnnc::read(model, &[])?;
    hgnnc::accept(&analysis, &analysis.diagnostics, &mut crate::source::Terminal::default())?;
    // An accepted file has a model.
    let Some(model) = &analysis.model else { return Ok(Used::default()) };
    let flow = &model.flow;
    // Relations of path instances and of edges to predict are of the compiler's own making: the dataset has their steps.
    let is_own = |relation: u32| flow.paths.iter().any(|paths| paths.relations.contains(&relation));
    let steps = flow.graphs.iter().flat_map(|graph| &graph.steps).filter(|step| !is_own(step.relation));
    let names: BTreeSet<&String> = (steps.chain(flow.paths.iter().flat_map(|paths| &paths.steps)))
        .map(|step| &flow.relations[step.relation as usize].dataset_name)
        .filter(|name| !name.is_empty())
        .collect();
    let split = model.train.as_ref().and_then(|train| train.training.split.clone());
    // Link prediction trains on edges: it has no seeds.
    let on_vertices = model
        .train
        .as_ref()
        .is_some_and(|train| train.training.target().is_some_and(|target| target.vertex().is_some()));
    Ok(Used { relations: names.into_iter().cloned().collect(), split: split.filter(|_| on_vertices) })
}

/// An error of the input or of the machine, with what to do.
fn failure(error: PartitionError, out: &Path) -> Failure {
    if error.can_resume() {
        let kept = hgnnc_partition::work::folder(out);
        return Failure::Machine(format!(
            "{error}; what is done is kept in `{}`: `--resume` continues",
            kept.display()
        ));
    }
    match error {
        PartitionError::Write(error) => failed(error),
        PartitionError::Memory { .. } | PartitionError::Read { .. } | PartitionError::Busy(_) => {
            Failure::Machine(error.to_string())
        }
        PartitionError::Data(errors) => errors.into(),
        error => Failure::input(error.to_string()),
    }
}

/// Sizes of the ranks, and what they exchange.
fn text(partition: &Partition) -> String {
    let Partition { ranks, source, cut_edges, vertex_types, relations, .. } = partition;
    let share = 100.0 * *cut_edges as f64 / source.edges.max(1) as f64;
    let mut text = format!("{ranks} ranks, {} of {} edges are cut ({share:.1} %)\n", cut_edges, source.edges);
    let rows = |title: &str, of: &dyn Fn(usize) -> u64| -> String {
        let all: Vec<u64> = (0..*ranks).map(of).collect();
        let (least, most) = (all.iter().min().copied().unwrap_or(0), all.iter().max().copied().unwrap_or(0));
        format!("  {title}: {least} to {most} a rank\n")
    };
    for (ty, of) in vertex_types.iter().enumerate() {
        let owned = |rank| partition.vertices(ty, rank).end - partition.vertices(ty, rank).start;
        text += &rows(&format!("vertices of `{}`", of.name), &owned);
        if of.seeds.iter().any(|&seeds| seeds > 0) {
            text += &rows(&format!("  of these to train on, `{}`", of.name), &|rank| of.seeds[rank]);
        }
    }
    let edges = |rank| (0..relations.len()).map(|r| partition.in_edges(r, rank)).map(|of| of.end - of.start).sum();
    text += &rows("in-edges", &edges);
    let edges = |rank| (0..relations.len()).map(|r| partition.out_edges(r, rank)).map(|of| of.end - of.start).sum();
    text += &rows("out-edges", &edges);
    text += &rows("mirrors of sources", &|rank| vertex_types.iter().map(|ty| ty.mirror_sources[rank]).sum());
    text + &rows("mirrors of destinations", &|rank| vertex_types.iter().map(|ty| ty.mirror_destinations[rank]).sum())
}

/// A line with what the run takes, and a bar on a terminal.
#[derive(Default)]
struct Bar(Mutex<Option<(Stage, ProgressBar)>>);

impl Bar {
    /// Smaller partitions end before a bar could be read.
    const LEAST_EDGES: u64 = 1 << 20;

    fn finish(&self) {
        if let Some((_, bar)) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Bar {
    fn begin(&self, needs: &Needs) {
        let Needs { memory, work_disk, vertices, edges } = *needs;
        note(&format!(
            "{vertices} vertices and {edges} edges take at most {} of memory, and {} of disk beside the result meanwhile",
            show_bytes(memory),
            show_bytes(work_disk)
        ));
        if edges >= Bar::LEAST_EDGES && std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(0);
            let template = "{msg} {percent:>3} % {bar:30} {eta}";
            ProgressStyle::with_template(template).into_iter().for_each(|style| bar.set_style(style));
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Stage::Check, bar));
        }
    }

    fn progress(&self, stage: Stage, done: u64, total: u64) -> ControlFlow<()> {
        if let Some((before, bar)) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            if *before != stage || done == 0 {
                *before = stage;
                bar.reset();
                bar.set_message(stage.to_string());
            }
            bar.set_length(total);
            bar.set_position(done);
        }
        ControlFlow::Continue(())
    }
}
