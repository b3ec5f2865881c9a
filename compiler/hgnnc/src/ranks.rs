//! Training by several processes, each with its own rows of the graph.

use std::hash::Hasher as _;
use std::sync::Arc;

use hgnnc_data::ranks::Division;
use hgnnc_data::{BoundData, ExecError};
use hgnnc_diag::SourceMap;
use hgnnc_dist::{Comm, Tag, all_gather};
use hgnnc_driver::{
    Analyzed, Disabled, LowerError, LowerOptions, NOT_ON_RANKS, Relations, Split, assign_relations, compile_cpu_ranks,
    lower_for_ranks,
};
use hgnnc_executable::Executable;
use hgnnc_ir::kernel;
use hgnnc_ranks::{Placed, RankBackend};
use hgnnc_train::{TrainOptions, Trainer};
use rayon::ThreadPool;
use xxhash_rust::xxh3::Xxh3;

use crate::machines::{cpu_backend, cpu_options};
use crate::{Error, Observer};

/// The processes of a job, and how the vertices are divided among them.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// This process among the others.
    pub comm: Arc<dyn Comm>,
    /// Number of sections of the vertices of a type, in which sums over all vertices are taken. Results depend on it, and
    /// not on the number of ranks, which is at most this.
    pub sections: usize,
    /// The part of a mini-batch that the ranks divide among themselves.
    pub split: Split,
}

impl Ranks {
    /// Sections that divide evenly among 2, 3, 4, 6, 8, 12 and 24 ranks.
    pub const SECTIONS: usize = 24;

    /// The ranks of a job, with as many sections as they need.
    pub fn new(comm: Arc<dyn Comm>) -> Self {
        let sections = comm.size().next_multiple_of(Self::SECTIONS);
        Self { comm, sections, split: Split::default() }
    }

    /// Switches off the passes that several ranks do not know.
    pub(crate) fn without_passes(disabled: &mut Disabled) {
        for pass in NOT_ON_RANKS {
            if !disabled.has_pass(pass) {
                disabled.passes.push(pass.into());
            }
        }
    }
}

/// Compiles a model for all ranks and binds it to the rows of this one. `sources` are those of the model, to name the
/// place of a construct that several processes do not compute.
pub(crate) fn on_ranks(
    (model, sources): (&Analyzed, Option<&SourceMap>),
    lower_options: &LowerOptions,
    data: BoundData,
    pool: &Arc<ThreadPool>,
    options: TrainOptions,
    ranks: &Ranks,
    observer: &mut dyn Observer,
) -> Result<Trainer, Error> {
    let mut lowered = lower_for_ranks(model, lower_options, ranks.split).map_err(|error| match error {
        LowerError::Place(ref refused) => {
            let place = refused.origin.and_then(|origin| sources?.place(origin.file, origin.start));
            Error::Input(place.map_or_else(|| error.to_string(), |place| format!("{error} ({place})")))
        }
        error => error.into(),
    })?;
    pool.install(|| compile_cpu_ranks(&mut lowered, &cpu_options(&options)));
    let executable = lowered.executable;
    check_equal(&executable, &data, &*ranks.comm)?;
    let division = Division { sections: ranks.sections, ranks: ranks.comm.size() };
    let one = model.flow.with_tables_of(model.name.clone());
    let relations = match ranks.split {
        Split::Seeds => None,
        Split::Relations => relations_of(&executable, lower_options, ranks, observer)?,
    };
    let placed = Placed { one, tables: lowered.tables, division, relations };
    let inner = cpu_backend(&executable, pool, &options).with_ranks(Arc::clone(&ranks.comm));
    let backend = RankBackend::new(&executable, Box::new(inner), Arc::clone(&ranks.comm), placed);
    Ok(Trainer::new(executable, Box::new(backend), data, options)?)
}

/// By semantic graph: the rank that aggregates its edges to the seeds.
fn relations_of(
    executable: &Executable,
    options: &LowerOptions,
    ranks: &Ranks,
    observer: &mut dyn Observer,
) -> Result<Option<Arc<[usize]>>, Error> {
    let (flow, size) = (&executable.infer, ranks.comm.size());
    let Some((batch, layout)) =
        executable.training.as_ref().and_then(|it| it.batch.as_ref()).zip(executable.batch.as_ref())
    else {
        return Ok(None);
    };
    let relations = assign_relations(flow, layout, batch, options.sizes.as_ref(), size);
    let Relations { rank_of, work } = &relations;
    if work.len() < size {
        return Err(Error::input(format!(
            "{size} processes cannot share {} semantic graphs to the seeds: there is at most one process for each",
            work.len()
        )));
    }
    for (rank, edges) in relations.work_of_ranks(size).into_iter().enumerate() {
        let own = work.iter().filter(|(graph, _)| rank_of[graph.index()] == rank);
        let names: Vec<&str> = own.map(|(graph, _)| &flow.graphs[graph.index()].name[..]).collect();
        observer.note(format!("rank {rank} aggregates {}: about {edges:.0} edges a batch", names.join(", ")));
    }
    Ok(Some(relations.rank_of.into()))
}

/// Refuses ranks that would compute something else: their exchanges would not fit, or fit by chance.
fn check_equal(executable: &Executable, data: &BoundData, comm: &dyn Comm) -> Result<(), Error> {
    let text_hash = |text: &str| {
        let mut hash = Xxh3::new();
        hash.update(text.as_bytes());
        hash.finish()
    };
    let kernels = &executable.kernels;
    let programs: String = kernels.train.iter().chain([&kernels.infer]).map(kernel::print).collect();
    let mut sizes = Xxh3::new();
    data.num_vertices.iter().for_each(|&count| sizes.write_usize(count));
    data.graphs.iter().for_each(|graph| sizes.write_u64(graph.all_edges()));
    let own = [text_hash(&programs), text_hash(&data.dataset), sizes.finish()];
    let failed = |error: hgnnc_dist::CommError| Error::from(ExecError::Ranks(error.to_string()));
    let all = all_gather(comm, Tag::CONTROL, &own).map_err(failed)?;
    for (what, at) in [("the dataset's name", 1), ("the numbers of vertices and edges", 2), ("the compiled model", 0)] {
        let first = all[at];
        if let Some(other) = all.chunks_exact(own.len()).position(|of_rank| of_rank[at] != first) {
            return Err(Error::input(format!(
                "{what} of rank {other} differs from that of rank 0: all processes need the same files and options"
            )));
        }
    }
    Ok(())
}
