//! Plans of several ranks: what each exchanges, in bytes that are known before anything runs, and how long a step takes by
//! the models of the processor and of the network. Of the ways to divide the work, the fastest is chosen.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hgnnc_cpu::thread_pool;
use hgnnc_data::ExecError;
use hgnnc_data::ranks::rows_sent;
use hgnnc_dist::network::Network;
use hgnnc_dist::slices;
use hgnnc_dist::threads;
use hgnnc_dist::trace::{Event, ExchangeId, Trace, replay};
use hgnnc_dist::{Alone, Comm, Tag};
use hgnnc_driver::{Split, cost};
use hgnnc_ir::VertexType;
use hgnnc_ir::kernel::{Body, Exchange, Launch, Program};
use hgnnc_loader::loader::GraphInput;
use hgnnc_loader::{MiniBatch, MiniBatchLoader};
use hgnnc_machine::Machine;
use hgnnc_sample::BatchKey;
use hgnnc_session::Rank;
use serde::{Deserialize, Serialize};

use crate::bound_job::{BoundJob, bind_job};
use crate::job::{Job, Purpose, check_ranks};
use crate::outputs::write_file;
use crate::ranks::{CompiledRanks, Ranks};
use crate::{Error, Observer};

/// The ranks of a plan, and the machines that they run on.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// The processes that divide the work.
    pub ranks: usize,
    /// The network between these processes.
    pub network: Network,
    /// The processor of a rank.
    pub machine: Machine,
    /// Most mini-batches of the first epoch that are sampled to count the rows of tables.
    pub batches: u64,
}

/// How ranks divide the work: what `hgnnc train --plan` follows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct RankPlan {
    pub model: String,
    pub dataset: String,
    pub ranks: usize,
    /// Number of sections of the vertices of a type.
    pub sections: usize,
    pub share: Shared,
    /// By semantic graph to the seeds, if relations are shared: the rank that aggregates its edges.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub relations: BTreeMap<String, usize>,
    pub predicted: Predicted,
}

/// The work that ranks divide among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shared {
    /// The vertices of the whole graph, with their in-edges and out-edges.
    Vertices,
    /// The seeds of mini-batches.
    Seeds,
    /// The relations to the seeds of mini-batches.
    Relations,
}

impl Shared {
    /// The word in plans and texts.
    pub fn name(self) -> &'static str {
        match self {
            Shared::Vertices => "vertices",
            Shared::Seeds => "seeds",
            Shared::Relations => "relations",
        }
    }

    /// The part of a mini-batch that ranks divide among themselves.
    pub fn split(self) -> Split {
        match self {
            Shared::Vertices | Shared::Seeds => Split::Seeds,
            Shared::Relations => Split::Relations,
        }
    }
}

/// A step of training, predicted. Bytes are counted; times follow from models.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Predicted {
    /// Steps whose bytes were counted: 1 for the whole graph, or mini-batches of the first epoch.
    pub steps: u64,
    /// Mean milliseconds of a step, to the end of the last rank.
    pub step_ms: f64,
    /// Milliseconds of computing of the rank that computes most.
    pub compute_ms: f64,
    /// By rank: bytes that it sends to others in these steps.
    pub sent_bytes: Vec<u64>,
    /// By message, in the order of a step.
    pub messages: Vec<MessageBytes>,
}

/// Bytes of a message of all ranks to all.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct MessageBytes {
    pub what: String,
    /// By rank: bytes that it sends to others in the counted steps.
    pub sent_bytes: Vec<u64>,
}

/// A way to divide the work.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum Candidate {
    Planned(RankPlan),
    /// It has no placement, for this reason.
    Refused(Shared, String),
}

/// The candidates for a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidates {
    /// The fastest first, those that are refused last.
    pub all: Vec<Candidate>,
    /// Predicted milliseconds of a step of one rank.
    pub one_rank_ms: f64,
}

impl RankPlan {
    /// The division of work among the ranks of a job. The job's model and dataset must be those of the plan.
    pub fn ranks(&self, comm: Arc<dyn Comm>) -> Ranks {
        let relations = (self.share == Shared::Relations).then(|| self.relations.clone());
        let planned_for = Some([self.model.clone(), self.dataset.clone()]);
        Ranks { comm, sections: self.sections, split: self.share.split(), relations, planned_for }
    }

    /// Writes a plan for `hgnnc train --plan`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Machine(error.to_string()))?;
        write_file(path, format!("{text}\n").as_bytes())
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// A file that cannot be read, or is no plan.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::read(path, &error))?;
        let wrong = |why: String| Error::input(format!("`{}` is no plan of several ranks: {why}", path.display()));
        let plan: Self = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        match plan {
            Self { ranks: 0, .. } => Err(wrong("it has no ranks".into())),
            Self { ranks, sections, .. } if sections < ranks => {
                Err(wrong(format!("{ranks} ranks have {sections} sections")))
            }
            plan if plan.relations.values().any(|&rank| rank >= plan.ranks) => {
                Err(wrong(format!("a relation belongs to a rank above {}", plan.ranks - 1)))
            }
            plan => Ok(plan),
        }
    }
}

/// Plans a job for several ranks.
///
/// # Errors
/// As [`prepare`](crate::prepare()), and what several ranks refuse.
pub fn plan_ranks(job: &Job, request: &PlanRequest, observer: &mut dyn Observer) -> Result<Candidates, Error> {
    let job = Job { ranks: Some(Ranks::new(Arc::new(Alone))), ..job.clone() };
    check_ranks(&job)?;
    let mut bound = bind_job(Purpose::Train, &job, None, observer)?;
    bound.dataset = None;
    let shares = if bound.on_batches() { vec![Shared::Seeds, Shared::Relations] } else { vec![Shared::Vertices] };
    let mut all = vec![];
    let mut one_rank_ms = 0.0;
    for share in shares {
        match plan(&bound, share, request) {
            Ok((plan, alone_s)) => {
                if all.is_empty() {
                    one_rank_ms = 1e3 * alone_s;
                }
                all.push(Candidate::Planned(plan));
            }
            Err(Error::Input(why)) => all.push(Candidate::Refused(share, why)),
            Err(error) => return Err(error),
        }
    }
    let time = |candidate: &Candidate| match candidate {
        Candidate::Planned(plan) => plan.predicted.step_ms,
        Candidate::Refused(..) => f64::INFINITY,
    };
    all.sort_by(|a, b| time(a).total_cmp(&time(b)));
    Ok(Candidates { all, one_rank_ms })
}

/// A plan, and the predicted seconds of computing of all ranks together.
fn plan(bound: &BoundJob, share: Shared, request: &PlanRequest) -> Result<(RankPlan, f64), Error> {
    let size = request.ranks;
    let sections = size.next_multiple_of(Ranks::SECTIONS);
    let ranks = Ranks { sections, split: share.split(), ..Ranks::new(Arc::new(Alone)) };
    let compiled = CompiledRanks::new(bound, size, Purpose::Train, &ranks, &mut crate::Silent)?;
    let Some(program) = &compiled.executable.kernels.train else {
        return Err(Error::input("the model has no `train` block, so there is nothing to plan"));
    };
    let (steps, messages) = match share {
        Shared::Vertices => (1, of_whole_graph(bound, &compiled, program, size)),
        Shared::Seeds | Shared::Relations => of_batches(bound, &compiled, program, request)?,
    };
    let launches = launch_seconds(program, &compiled, &request.machine);
    let alone_s: f64 = launches.iter().sum();
    let work = compiled.work_of_ranks(size);
    let all_work: f64 = work.iter().sum();
    let parts: Vec<f64> = work.iter().map(|work| work / all_work.max(f64::MIN_POSITIVE)).collect();
    let traces: Vec<Trace> = (0..size).map(|rank| trace(&launches, parts[rank], rank, &messages, steps)).collect();
    let end_s = replay(&traces, &request.network).iter().map(|times| times.end_s).fold(0.0, f64::max);
    let of_rank = |rank: usize| messages.iter().map(|message| message.sent(rank)).sum();
    let predicted = Predicted {
        steps,
        step_ms: 1e3 * end_s,
        compute_ms: 1e3 * alone_s * parts.iter().copied().fold(0.0, f64::max),
        sent_bytes: (0..size).map(of_rank).collect(),
        messages: messages
            .iter()
            .map(|message| MessageBytes {
                what: message.what.clone(),
                sent_bytes: (0..size).map(|rank| message.sent(rank)).collect(),
            })
            .collect(),
    };
    let plan = RankPlan {
        model: bound.model.name.clone(),
        dataset: bound.data.dataset.clone(),
        ranks: size,
        sections,
        share,
        relations: compiled.names_of_relations(),
        predicted,
    };
    Ok((plan, alone_s))
}

/// A message of a step, with bytes by receiving rank for one that a rank sends, and by sending and receiving rank for one
/// of all ranks.
struct Message<B> {
    /// The launch that starts it; `None` for one ahead of a step.
    launch: Option<usize>,
    /// Whether it is started at the end of its launch: sums to all, after the slices of the ranks have come.
    follows: bool,
    what: String,
    bytes: B,
}

/// Bytes that a rank sends to each.
type OfRank = Message<Vec<u64>>;
/// Bytes that each rank sends to each.
type OfAll = Message<Vec<Vec<u64>>>;

impl OfAll {
    /// The bytes of a rank for others.
    fn sent(&self, rank: usize) -> u64 {
        self.bytes[rank].iter().sum::<u64>() - self.bytes[rank][rank]
    }
}

/// Rows that a rank has for the others.
struct RowsOfRank<'a> {
    rank: usize,
    /// By receiving type: rows for each rank.
    sent: &'a dyn Fn(VertexType) -> Vec<usize>,
    /// By type whose rows are summed: rows of each rank.
    summed: &'a dyn Fn(VertexType) -> Vec<usize>,
}

/// The messages that a rank sends in a step.
fn own_messages(program: &Program, on_batches: bool, rows: &RowsOfRank<'_>) -> Vec<OfRank> {
    let mut all = vec![];
    for (number, launch) in launches(program, on_batches).enumerate() {
        let width = |exchange: &Exchange| exchange.width.as_fixed().unwrap_or(0);
        let name = |vertex: VertexType| &program.tables.vertex_types[vertex.index()].name[..];
        let mut sums: Vec<&Exchange> = vec![];
        for exchange in exchanges(launch) {
            match exchange.to {
                Some(to) => {
                    let bytes = (rows.sent)(to).iter().map(|&rows| 4 * (rows * width(exchange)) as u64).collect();
                    let what = format!("{} to {}, {} numbers a row", name(exchange.rows), name(to), width(exchange));
                    all.push(Message { launch: Some(number), follows: false, what, bytes });
                }
                None => sums.push(exchange),
            }
        }
        let Some(first) = sums.first() else { continue };
        let elements: usize = sums.iter().map(|sum| width(sum)).sum();
        let of_ranks = (rows.summed)(first.rows);
        let (size, own) = (of_ranks.len(), of_ranks[rows.rank]);
        let slice = |rank: usize| slices::slice(elements, rank, size).len() as u64;
        let plural = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let what = format!("{} of {}", plural(sums.len(), "sum"), plural(elements, "number"));
        let bytes = (0..size).map(|to| 4 * own as u64 * slice(to)).collect();
        all.push(Message { launch: Some(number), follows: false, what, bytes });
        if !slices::are_few(elements) {
            let what = format!("the sums of {elements} numbers to all");
            let bytes = vec![4 * slice(rows.rank); size];
            all.push(Message { launch: Some(number), follows: true, what, bytes });
        }
    }
    all
}

/// The launches of a step. The prelude runs once on the whole graph, and for each mini-batch.
fn launches(program: &Program, on_batches: bool) -> impl Iterator<Item = &Launch> {
    program.prelude.iter().filter(move |_| on_batches).chain(&program.launches)
}

fn exchanges(launch: &Launch) -> impl Iterator<Item = &Exchange> {
    launch
        .kernels
        .iter()
        .filter_map(|kernel| if let Body::Exchange(exchange) = &kernel.body { Some(exchange) } else { None })
}

/// Adds the messages of a rank to those of all.
fn add(all: &mut Vec<OfAll>, rank: usize, size: usize, own: Vec<OfRank>) {
    for (place, own) in own.into_iter().enumerate() {
        let Message { launch, follows, what, bytes } = own;
        if all.len() == place {
            all.push(Message { launch, follows, what, bytes: vec![vec![0; size]; size] });
        }
        all[place].bytes[rank].iter_mut().zip(bytes).for_each(|(all, bytes)| *all += bytes);
    }
}

/// The messages of a step on the whole graph.
fn of_whole_graph(bound: &BoundJob, compiled: &CompiledRanks, program: &Program, size: usize) -> Vec<OfAll> {
    let placed = &compiled.placed;
    let sent = rows_sent(&bound.data, &placed.tables, placed.division);
    let mut all = vec![];
    for rank in 0..size {
        let rows = RowsOfRank {
            rank,
            sent: &|to| sent[to.index()].get(rank).cloned().unwrap_or_default(),
            summed: &|_| (0..size).map(|rank| placed.division.sections_of(rank).len()).collect(),
        };
        add(&mut all, rank, size, own_messages(program, false, &rows));
    }
    all
}

/// The messages of the first mini-batches, which are sampled for all ranks.
fn of_batches(
    bound: &BoundJob,
    compiled: &CompiledRanks,
    program: &Program,
    request: &PlanRequest,
) -> Result<(u64, Vec<OfAll>), Error> {
    let executable = &compiled.executable;
    let (Some(training), Some(layout)) = (&executable.training, &executable.batch) else { return Ok((1, vec![])) };
    let Some(batch) = &training.batch else { return Ok((1, vec![])) };
    let (data, placed) = (&bound.data, &compiled.placed);
    let seed = bound.options.seed.unwrap_or(training.seed);
    let size = request.ranks;
    let sampled = |comm: &Arc<dyn Comm>| -> Result<(u64, Vec<OfRank>, u64), ExecError> {
        // Routes need no rows of inputs.
        let inputs = vec![GraphInput::Nothing; executable.infer.inputs.len()];
        let mut loader =
            MiniBatchLoader::new(program, layout, batch, data, &inputs, (&executable.infer, training), None)?;
        let (division, relations) = (placed.division, placed.relations.clone());
        loader.share(Rank { comm: Arc::clone(comm), division, relations }, program, None);
        let count = loader.num_batches().min(request.batches);
        let (order, mut worker, mut mini_batch) =
            (loader.order(seed, 0), loader.worker_in_order()?, MiniBatch::default());
        let mut sum: Vec<OfRank> = vec![];
        for batch in 0..count {
            loader.routes(&mut worker, &order, BatchKey { seed, epoch: 0, batch }, &mut mini_batch)?;
            let routes = &mini_batch.data;
            let sent =
                |to: VertexType| routes.routes[to.index()].as_ref().map_or(vec![0; size], |it| it.send_rows.clone());
            let summed =
                |of: VertexType| routes.rows_of_ranks[of.index()].as_ref().map_or(vec![0; size], |it| it.to_vec());
            let own = own_messages(program, true, &RowsOfRank { rank: comm.rank(), sent: &sent, summed: &summed });
            if sum.is_empty() {
                sum = own;
            } else {
                let pairs = sum.iter_mut().zip(own).flat_map(|(sum, own)| sum.bytes.iter_mut().zip(own.bytes));
                pairs.for_each(|(sum, bytes)| *sum += bytes);
            }
        }
        Ok((count, sum, loader.sent_bytes()))
    };
    let of_ranks = threads::run(size, |comm| thread_pool(1)?.install(|| sampled(comm)));
    let mut all = vec![];
    let mut asked = vec![vec![0; size]; size];
    let mut steps = 1;
    for (rank, of_rank) in of_ranks.into_iter().enumerate() {
        let (count, own, ids) = of_rank?;
        steps = count;
        asked[rank][(rank + 1) % size] = ids;
        add(&mut all, rank, size, own);
    }
    if size > 1 && asked.iter().flatten().any(|&bytes| bytes > 0) {
        let what = "vertices whose rows a rank needs, ahead of the step".into();
        all.push(Message { launch: None, follows: false, what, bytes: asked });
    }
    Ok((steps, all))
}

/// Predicted seconds of each launch, on one rank with all rows.
fn launch_seconds(program: &Program, compiled: &CompiledRanks, machine: &Machine) -> Vec<f64> {
    let on_batches = compiled.executable.batch.is_some();
    let kernels = compiled.train_sizes.as_ref().map_or(vec![], |sizes| cost::kernels(program, sizes, machine));
    let mut of_step = kernels.iter().filter(|kernel| on_batches || !kernel.bound.once);
    let seconds = |launch: &Launch| {
        let kernels = of_step.by_ref().take(launch.kernels.len());
        kernels.map(|kernel| kernel.bound.prediction.seconds()).sum()
    };
    launches(program, on_batches).map(seconds).collect()
}

/// The mean step of a rank that computes a part of all launches.
fn trace(launches: &[f64], part: f64, rank: usize, messages: &[OfAll], steps: u64) -> Trace {
    let mut events = vec![];
    for (launch, seconds) in launches.iter().enumerate() {
        let of_launch = || (0..).zip(messages).filter(move |(_, message)| message.launch == Some(launch));
        let id = |number: u32| ExchangeId { tag: Tag::STEP, number };
        let start = |number: u32, message: &OfAll| {
            let bytes = message.bytes[rank].iter().map(|bytes| bytes / steps.max(1)).collect();
            Event::Start { exchange: id(number), bytes }
        };
        events.extend(
            of_launch().filter(|(_, message)| !message.follows).map(|(number, message)| start(number, message)),
        );
        events.push(Event::Compute(part * seconds));
        events.extend(
            of_launch().filter(|(_, message)| !message.follows).map(|(number, _)| Event::Wait { exchange: id(number) }),
        );
        for (number, message) in of_launch().filter(|(_, message)| message.follows) {
            events.extend([start(number, message), Event::Wait { exchange: id(number) }]);
        }
    }
    Trace(events)
}
