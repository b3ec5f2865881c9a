//! Training by several processes, each with its own rows of the graph.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use hgnnc_data::ranks::Division;
use hgnnc_data::{BoundData, Distributed, ExecError};
use hgnnc_dist::{Comm, Tag, all_gather};
use hgnnc_driver::{
    ForRanks, LowerError, LowerOptions, LoweredForRanks, RelationModel, RelationTimes, Relations, SizeInfo, Split,
    assign_relations, compile_cpu_ranks, element_cost, lower_for_ranks,
};
use hgnnc_executable::Executable;
use hgnnc_ir::training::Fanout;
use hgnnc_ir::types::Graph;
use hgnnc_kernel_ir::kernel;
use hgnnc_ranks::{Placed, RankBackend, SharedInputs};
use hgnnc_session::SharedRelations;
use hgnnc_train::{TrainOptions, Trainer};
use rayon::ThreadPool;
use xxhash_rust::xxh3::Xxh3;

use crate::bound_job::BoundJob;
use crate::job::Purpose;
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
    /// Replicas of [`Split::Grid`]: each has seeds of its own and as many consecutive ranks, which share the relations to
    /// these. 1 for other ways.
    pub replicas: usize,
    /// By name of a semantic graph to the seeds: the rank that aggregates its edges, counted from the first one of a
    /// replica, where relations are divided. `None`: by their expected work.
    pub relations: Option<BTreeMap<String, usize>>,
    /// Parts of the dataset of which each rank has those of its own vertices, in training on mini-batches. Of what is not
    /// divided, every rank has all.
    pub distribute: Distributed,
    /// [`element_cost`] of the network and the processors, by which programs of mini-batches are chosen: that of a plan, if any.
    pub element_cost: f64,
    /// The names of the model and of the dataset that a plan is for, if there is one.
    pub planned_for: Option<[String; 2]>,
}

impl Ranks {
    /// Sections that divide evenly among 2, 3, 4, 6, 8, 12 and 24 ranks.
    pub const SECTIONS: usize = 24;

    /// Of dense products, on a core with vectors of 512 bits.
    pub const MULTIPLY_ADDS_PER_S: f64 = 5e10;

    /// Without a plan, which knows the network and the processors: 10 Gbit/s and one core, since all ranks must choose alike.
    pub fn default_element_cost() -> f64 {
        element_cost(8e-10, Self::MULTIPLY_ADDS_PER_S)
    }

    /// The ranks of a job, with as many sections as they need.
    pub fn new(comm: Arc<dyn Comm>) -> Self {
        Self {
            sections: comm.size().next_multiple_of(Self::SECTIONS),
            comm,
            split: Split::default(),
            replicas: 1,
            relations: None,
            distribute: Distributed::default(),
            element_cost: Self::default_element_cost(),
            planned_for: None,
        }
    }

    /// The division of vertices among so many ranks, by the parts of each vertex type if there are some.
    pub(crate) fn division(&self, size: usize, parts: &Arc<[Vec<usize>]>) -> Division {
        Division { sections: self.sections, ranks: size, parts: Arc::clone(parts) }
    }

    /// The parts of a mini-batch with seeds of their own, of so many ranks.
    pub(crate) fn shares(&self, bound: &BoundJob, size: usize) -> usize {
        match self.split {
            _ if !bound.on_batches() => 1,
            Split::Seeds => size,
            Split::Relations | Split::Grid => self.replicas,
        }
    }

    /// Whether something holds on any rank.
    pub(crate) fn any(&self, here: bool) -> Result<bool, Error> {
        let all = all_gather(&*self.comm, Tag::CONTROL, &[u64::from(here)]);
        let all = all.map_err(|error| Error::from(ExecError::Ranks(error.to_string())))?;
        Ok(all.contains(&1))
    }
}

/// A model compiled for all ranks of a job.
#[derive(Clone)]
pub(crate) struct CompiledRanks {
    pub executable: Executable,
    pub placed: Placed,
    /// Sizes of the tables of the training program, as if one rank had all rows: on mini-batches, those of a part of the seeds.
    pub train_sizes: Option<SizeInfo>,
    relations: Option<Relations>,
}

/// Compiles a job for all ranks, of which this process is one, and binds it to the rows of this one.
pub(crate) fn on_ranks(
    bound: &mut BoundJob,
    purpose: Purpose,
    ranks: &Ranks,
    observer: &mut dyn Observer,
) -> Result<Trainer, Error> {
    let compiled = CompiledRanks::new(bound, ranks.comm.size(), purpose, ranks, observer)?;
    let (data, options) = (std::mem::take(&mut bound.data), bound.options.clone());
    compiled.bind(&ranks.comm, data, None, &bound.pool, options)
}

impl CompiledRanks {
    /// Compiles a job for as many ranks, the same on each of them.
    pub fn new(
        bound: &BoundJob,
        size: usize,
        purpose: Purpose,
        ranks: &Ranks,
        observer: &mut dyn Observer,
    ) -> Result<Self, Error> {
        let mut lowered = lower(bound, purpose, ranks, ranks.shares(bound, size))?;
        let cpu_options = cpu_options(&bound.options);
        bound.pool.install(|| compile_cpu_ranks(&mut lowered, &cpu_options));
        let compiled = Self::of(lowered, bound, (size, ranks), RelationTimes::default())?;
        compiled.note_relations(observer);
        Ok(compiled)
    }

    /// A lowered job on as many ranks. Relations that ranks share are assigned by these times, unless `ranks` has a plan.
    pub fn of(
        lowered: LoweredForRanks,
        bound: &BoundJob,
        (size, ranks): (usize, &Ranks),
        times: RelationTimes,
    ) -> Result<Self, Error> {
        let LoweredForRanks { executable, tables, train_sizes, .. } = lowered;
        let division = ranks.division(size, &bound.parts);
        let one = bound.model.flow.with_tables_of(bound.model.name.clone());
        let replicas = ranks.replicas.max(1);
        if !size.is_multiple_of(replicas) {
            return Err(Error::input(format!(
                "{replicas} replicas need as many processes each: {size} is no multiple of {replicas}"
            )));
        }
        if let Some(why) = undistributed(&executable, ranks.distribute) {
            return Err(Error::input(format!(
                "the dataset cannot be divided among the processes (`--distribute`): {why}"
            )));
        }
        let relations = match ranks.split {
            Split::Seeds => None,
            Split::Relations | Split::Grid => {
                let planned = ranks.relations.as_ref();
                relations_of(&executable, Some(&bound.sizes), (size / replicas, planned), times)?
            }
        };
        let shared = |relations: &Relations| SharedRelations { rank_of: relations.rank_of.clone().into(), replicas };
        let distribute = ranks.distribute;
        let placed = Placed { one, tables, division, relations: relations.as_ref().map(shared), distribute };
        Ok(Self { executable, placed, train_sizes, relations })
    }

    fn note_relations(&self, observer: &mut dyn Observer) {
        let Some(Relations { rank_of, graphs, loads }) = &self.relations else { return };
        for (rank, load) in loads.iter().enumerate() {
            let own = graphs.iter().filter(|graph| rank_of[graph.index()] == rank);
            let names: Vec<&str> = own.map(|graph| &self.executable.infer.graphs[graph.index()].name[..]).collect();
            let rows = match load.row_bytes {
                0.0 => String::new(),
                bytes => format!(", and {:.3} MB of learned rows", 1e-6 * bytes),
            };
            let of = match self.placed.division.ranks > loads.len() {
                true => " of each replica",
                false => "",
            };
            observer.note(format!(
                "rank {rank}{of} aggregates {}: about {:.0} edges a batch{rows}",
                names.join(", "),
                load.edges
            ));
        }
    }

    /// The part of a rank in the work that is expected by the sizes of the training program.
    pub fn part(&self, rank: usize) -> f64 {
        match &self.relations {
            Some(Relations { loads, .. }) => {
                let all: f64 = loads.iter().map(|load| load.edges).sum();
                loads[rank % loads.len()].edges / all.max(f64::MIN_POSITIVE)
            }
            // They are those of its own seeds.
            None if self.executable.batch.is_some() => 1.0,
            None => 1.0 / self.placed.division.ranks as f64,
        }
    }

    /// By name of a semantic graph to the seeds, where relations are shared: its rank.
    pub fn names_of_relations(&self) -> BTreeMap<String, usize> {
        let Some(Relations { rank_of, graphs, .. }) = &self.relations else { return BTreeMap::new() };
        let decls = &self.executable.infer.graphs;
        graphs.iter().map(|graph| (decls[graph.index()].name.clone(), rank_of[graph.index()])).collect()
    }

    /// The trainer of a rank, from the data of the whole graph. Ranks of one process share the inputs of the data, which
    /// `inputs` has for them.
    pub fn bind(
        self,
        comm: &Arc<dyn Comm>,
        mut data: BoundData,
        inputs: Option<SharedInputs>,
        pool: &Arc<ThreadPool>,
        options: TrainOptions,
    ) -> Result<Trainer, Error> {
        let Self { executable, placed, .. } = self;
        check_equal(&executable, &placed.division, &data, &**comm)?;
        // Vertices that evaluations shuffle have the same rows in all of them, by which they are divided.
        let seed = executable.training.as_ref().map_or(0, |training| training.seed);
        data.shuffle(options.seed.unwrap_or(seed), 0);
        let inner = cpu_backend(&executable, pool, &options).with_ranks(Arc::clone(comm));
        let mut backend = RankBackend::new(&executable, Box::new(inner), Arc::clone(comm), placed);
        if let Some(inputs) = inputs {
            backend = backend.with_inputs(inputs);
        }
        Ok(Trainer::new(executable, Box::new(backend), data, options)?)
    }
}

/// The reason why ranks cannot divide parts of the dataset among themselves, if there is one.
fn undistributed(executable: &Executable, distribute: Distributed) -> Option<&'static str> {
    let training = executable.training.as_ref().filter(|_| distribute.any())?;
    let Some(batch) = &training.batch else { return Some("the model is trained on the whole graph (no `batch`)") };
    // Masks of edges are functions of their numbers among all edges, which walks do not find.
    let is_walk = |fanout: &Fanout| matches!(fanout, Fanout::Walks { .. });
    let mixed = |graph: usize| {
        let deepest = executable.batch.as_ref().and_then(|layout| layout.deepest(Graph::new(graph)));
        let drawn = deepest.map_or(0, |deepest| deepest + 1);
        let hops = || batch.fanouts.iter().take(drawn).map(|hop| is_walk(&hop[graph]));
        hops().any(|walks| walks) && hops().any(|walks| !walks)
    };
    let graphs = batch.fanouts.first().map_or(0, Vec::len);
    let is_mixed = distribute.edges && (0..graphs).any(mixed);
    is_mixed.then_some("one hop walks along a metapath (`walks`), and another draws its edges")
}

/// Lowers a job for ranks that have so many [parts of the seeds](Ranks::shares).
pub(crate) fn lower(
    bound: &BoundJob,
    purpose: Purpose,
    ranks: &Ranks,
    shares: usize,
) -> Result<LoweredForRanks, Error> {
    let (model, options) = (&bound.model, bound.lower_options());
    let own = [("model", &model.name), ("dataset", &bound.data.dataset)];
    for (planned, (what, own)) in ranks.planned_for.iter().flatten().zip(own) {
        if planned != own {
            return Err(Error::input(format!("the plan is for the {what} `{planned}`, not `{own}`")));
        }
    }
    // Evaluations need no training program.
    let evaluation_only = options.evaluation_only || purpose != Purpose::Train;
    let options = LowerOptions { evaluation_only, ..options };
    let for_ranks = ForRanks { split: ranks.split, shares, element_cost: ranks.element_cost };
    lower_for_ranks(model, &options, for_ranks).map_err(|error| match error {
        LowerError::Place(ref refused) => {
            // The place of a construct that several processes do not compute.
            let place = refused.origin.and_then(|origin| bound.sources()?.place(origin.file, origin.start));
            Error::Input(place.map_or_else(|| error.to_string(), |place| format!("{error} ({place})")))
        }
        error => error.into(),
    })
}

/// The model of mini-batches whose relations ranks share, with the sizes of the dataset.
pub(crate) fn relation_model<'a>(executable: &'a Executable, sizes: Option<&'a SizeInfo>) -> Option<RelationModel<'a>> {
    let batch = executable.training.as_ref()?.batch.as_ref()?;
    Some(RelationModel { flow: &executable.infer, layout: executable.batch.as_ref()?, batch, sizes })
}

/// By semantic graph: the rank that aggregates its edges to the seeds.
fn relations_of(
    executable: &Executable,
    sizes: Option<&SizeInfo>,
    (size, planned): (usize, Option<&BTreeMap<String, usize>>),
    times: RelationTimes,
) -> Result<Option<Relations>, Error> {
    let Some(model) = relation_model(executable, sizes) else { return Ok(None) };
    let count = model.graphs_to_seeds().len();
    if count < size {
        return Err(Error::input(format!(
            "{size} processes cannot share {count} semantic graphs to the seeds: there is at most one process for each"
        )));
    }
    let mut relations = assign_relations(&model, size, times);
    if let Some(planned) = planned {
        for graph in &relations.graphs {
            let name = &model.flow.graphs[graph.index()].name;
            let rank = planned.get(name).filter(|&&rank| rank < size);
            let missing = || Error::input(format!("the plan has no process for the semantic graph `{name}`"));
            relations.rank_of[graph.index()] = *rank.ok_or_else(missing)?;
        }
        relations.loads = model.loads(&relations.rank_of, size);
    }
    Ok(Some(relations))
}

/// Refuses ranks that would compute something else: their exchanges would not fit, or fit by chance.
fn check_equal(executable: &Executable, division: &Division, data: &BoundData, comm: &dyn Comm) -> Result<(), Error> {
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
    let mut parts = Xxh3::new();
    division.parts.hash(&mut parts);
    let own = [text_hash(&programs), text_hash(&data.dataset), sizes.finish(), parts.finish()];
    let failed = |error: hgnnc_dist::CommError| Error::from(ExecError::Ranks(error.to_string()));
    let all = all_gather(comm, Tag::CONTROL, &own).map_err(failed)?;
    let all_of = [
        ("the dataset's name", 1),
        ("the numbers of vertices and edges", 2),
        ("`partition.json`", 3),
        ("the compiled model", 0),
    ];
    for (what, at) in all_of {
        let first = all[at];
        if let Some(other) = all.chunks_exact(own.len()).position(|of_rank| of_rank[at] != first) {
            return Err(Error::input(format!(
                "{what} of rank {other} differs from that of rank 0: all processes need the same files and options"
            )));
        }
    }
    Ok(())
}
