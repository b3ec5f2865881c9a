//! Plans of several ranks: what each exchanges, in bytes that are known before anything runs, and how long a step takes by
//! the models of the processor and of the network. Of the ways to divide the work, the fastest is chosen.

mod batches;
mod messages;
mod places;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hgnnc_data::Distributed;
use hgnnc_dist::network::Network;
use hgnnc_dist::trace::{Event, ExchangeId, Trace, replay};
use hgnnc_dist::{Alone, Comm, Tag};
use hgnnc_driver::{LoweredForRanks, RelationTimes, SizeInfo, Split, cost, element_cost};
use hgnnc_kernel_ir::kernel::{Launch, Program};
use hgnnc_machine::Machine;
use serde::{Deserialize, Serialize};

use self::batches::{Batches, of_batches};
use self::messages::{OfAll, launches};
pub use self::places::{GraphPlace, TablePlace};
use crate::bound_job::{BoundJob, bind_job};
use crate::job::{Job, Purpose, check_ranks};
use crate::outputs::write_file;
use crate::ranks::{CompiledRanks, Ranks, lower, relation_model};
use crate::{Error, Observer};

/// Most ranks of a plan.
const MOST_RANKS: usize = 4096;
/// Most sections of the vertices of a type.
const MOST_SECTIONS: usize = 1 << 16;

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
    /// Parts of the dataset of which each rank has those of its own vertices, in training on mini-batches.
    pub distribute: Distributed,
}

impl PlanRequest {
    /// [`element_cost`] of the network and the processor of a rank.
    fn element_cost(&self) -> f64 {
        element_cost(1.0 / self.network.bytes_per_s, self.machine.fma_flops / 2.0)
    }
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
    /// Replicas of a grid, of as many consecutive ranks each; 1 without one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub replicas: usize,
    /// By semantic graph to the seeds, if relations are shared: the rank that aggregates its edges, counted from the first
    /// one of a replica.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub relations: BTreeMap<String, usize>,
    /// Parts of the dataset of which each rank has those of its own vertices, in training on mini-batches.
    #[serde(default, skip_serializing_if = "Distributed::is_none")]
    pub distribute: Distributed,
    /// Multiply-adds in whose time an element of a learned row goes to another process: programs of mini-batches are chosen for it.
    #[serde(default = "Ranks::default_element_cost")]
    pub element_cost: f64,
    /// Where the edges of semantic graphs are.
    #[serde(default)]
    pub graphs: Vec<GraphPlace>,
    /// The owners of rows that are learned.
    #[serde(default)]
    pub tables: Vec<TablePlace>,
    pub predicted: Predicted,
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(replicas: &usize) -> bool {
    *replicas == 1
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
    /// The seeds among replicas, and the relations to them among the ranks of each.
    Grid,
}

impl Shared {
    /// The word in plans and texts.
    pub fn name(self) -> &'static str {
        match self {
            Shared::Vertices => "vertices",
            Shared::Seeds => "seeds",
            Shared::Relations => "relations",
            Shared::Grid => "grid",
        }
    }

    /// The part of a mini-batch that ranks divide among themselves.
    pub fn split(self) -> Split {
        match self {
            Shared::Vertices | Shared::Seeds => Split::Seeds,
            Shared::Relations => Split::Relations,
            Shared::Grid => Split::Grid,
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
    /// By rank: milliseconds of computing.
    #[serde(default)]
    pub rank_compute_ms: Vec<f64>,
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
    Planned(Box<RankPlan>),
    /// It has no placement, for this reason.
    Refused(Shared, String),
}

/// The candidates for a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidates {
    /// Those for as many ranks as are asked for: the fastest first, those that are refused last.
    pub all: Vec<Candidate>,
    /// Plans for fewer ranks, the fastest first.
    pub fewer: Vec<RankPlan>,
    /// Predicted milliseconds of a step of one rank.
    pub one_rank_ms: f64,
}

impl Candidates {
    /// The plan for fewer ranks that is predicted to be faster than all for as many as are asked for, if there is one.
    pub fn faster(&self) -> Option<&RankPlan> {
        let Some(Candidate::Planned(best)) = self.all.first() else { return None };
        self.fewer.first().filter(|fewer| fewer.predicted.step_ms < best.predicted.step_ms)
    }
}

impl RankPlan {
    /// The division of work among the ranks of a job. The job's model and dataset must be those of the plan.
    pub fn ranks(&self, comm: Arc<dyn Comm>) -> Ranks {
        let split = self.share.split();
        let relations = split.shares_relations().then(|| self.relations.clone());
        let planned_for = Some([self.model.clone(), self.dataset.clone()]);
        let Self { sections, replicas, distribute, element_cost, .. } = *self;
        Ranks { comm, sections, split, replicas, relations, distribute, element_cost, planned_for }
    }

    /// The words for the way to divide the work in texts.
    pub fn divided_by(&self) -> String {
        match self.share {
            Shared::Grid => format!("grid {} x {}", self.replicas, self.ranks / self.replicas),
            share => share.name().into(),
        }
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
            Self { ranks, sections, .. } if ranks > MOST_RANKS || sections > MOST_SECTIONS => Err(wrong(format!(
                "it has {ranks} ranks and {sections} sections, more than {MOST_RANKS} and {MOST_SECTIONS}"
            ))),
            Self { ranks, sections, .. } if sections < ranks => {
                Err(wrong(format!("{ranks} ranks have {sections} sections")))
            }
            Self { share, relations, .. } if !share.split().shares_relations() && !relations.is_empty() => {
                Err(wrong(format!("relations have ranks of their own, but it divides {}", share.name())))
            }
            Self { ranks, replicas, share, .. }
                if replicas == 0 || !ranks.is_multiple_of(replicas) || (replicas > 1) != (share == Shared::Grid) =>
            {
                Err(wrong(format!("{ranks} ranks divided by {} are no {replicas} replicas", share.name())))
            }
            Self { element_cost, .. } if !(element_cost.is_finite() && element_cost >= 0.0) => {
                Err(wrong(format!("an element of a row costs {element_cost} multiply-adds")))
            }
            plan if plan.relations.values().any(|&rank| rank >= plan.ranks / plan.replicas) => {
                Err(wrong(format!("a relation belongs to a rank above {}", plan.ranks / plan.replicas - 1)))
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
    let shares = match bound.on_batches() {
        true => vec![Shared::Seeds, Shared::Relations, Shared::Grid],
        false => vec![Shared::Vertices],
    };
    let (mut all, mut fewer) = (vec![], vec![]);
    for share in shares {
        let (candidates, of_fewer) = plans_of(&bound, share, request)?;
        all.extend(candidates);
        fewer.extend(of_fewer);
    }
    let time = |candidate: &Candidate| match candidate {
        Candidate::Planned(plan) => plan.predicted.step_ms,
        Candidate::Refused(..) => f64::INFINITY,
    };
    all.sort_by(|a, b| time(a).total_cmp(&time(b)));
    fewer.sort_by(|a, b| a.predicted.step_ms.total_cmp(&b.predicted.step_ms));
    let alone = fewer.iter().find(|plan| plan.ranks == 1).map(|plan| plan.predicted.step_ms);
    let one_rank_ms = alone.or_else(|| all.first().map(time)).filter(|ms| ms.is_finite()).unwrap_or(0.0);
    Ok(Candidates { all, fewer, one_rank_ms })
}

/// The plans for a way to divide the work: for as many ranks as are asked for, and for fewer.
fn plans_of(bound: &BoundJob, share: Shared, request: &PlanRequest) -> Result<(Vec<Candidate>, Vec<RankPlan>), Error> {
    let ranks = |replicas: usize| Ranks { split: share.split(), replicas, ..Ranks::new(Arc::new(Alone)) };
    // Programs depend on the number of parts of the seeds, and not on that of the ranks.
    let mut known: BTreeMap<usize, Vec<Programs>> = BTreeMap::new();
    let mut lowered = |size: usize, replicas: usize| {
        let ranks = ranks(replicas);
        let shares = ranks.shares(bound, size);
        if let Some(lowered) = known.get(&shares) {
            return Ok(lowered.clone());
        }
        let lowered = programs(bound, &ranks, shares, request)?;
        known.insert(shares, lowered.clone());
        Ok(lowered)
    };
    let first = replicas_of(share, request.ranks).first().copied();
    match lowered(request.ranks, first.unwrap_or(1)) {
        Ok(_) => {}
        Err(Error::Input(why)) => return Ok((vec![Candidate::Refused(share, why)], vec![])),
        Err(error) => return Err(error),
    }
    let mut fastest = |size: usize, replicas: usize| -> Result<RankPlan, Error> {
        let mut best: Option<RankPlan> = None;
        for programs in lowered(size, replicas)? {
            let plan = plan(bound, &programs, (share, size, replicas), request)?;
            if best.as_ref().is_none_or(|best| plan.predicted.step_ms < best.predicted.step_ms) {
                best = Some(plan);
            }
        }
        best.ok_or_else(|| Error::input("there is no program to plan"))
    };
    let (mut all, mut fewer) = (vec![], vec![]);
    for replicas in replicas_of(share, request.ranks) {
        match fastest(request.ranks, replicas) {
            Ok(plan) => all.push(Candidate::Planned(Box::new(plan))),
            // Other grids may have fewer ranks for the relations.
            Err(Error::Input(_)) if share == Shared::Grid => {}
            Err(Error::Input(why)) => all.push(Candidate::Refused(share, why)),
            Err(error) => return Err(error),
        }
    }
    // One rank has all seeds and all relations. Grids are planned for all ranks only.
    let only = |&size: &usize| share != Shared::Grid && (size > 1 || share != Shared::Relations);
    for size in fewer_ranks(request.ranks).into_iter().filter(only) {
        match fastest(size, 1) {
            Ok(plan) => fewer.push(plan),
            Err(Error::Input(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((all, fewer))
}

/// An [`element_cost`] with which projections come first wherever they are narrower.
const ALWAYS: f64 = 1e6;

/// The programs of a model for ranks, chosen for this [`element_cost`].
#[derive(Clone)]
struct Programs {
    lowered: LoweredForRanks,
    element_cost: f64,
}

/// The programs to choose from: sums of learned rows that other ranks have may come before their projections or after, by expected
/// sizes of mini-batches. Of plans, the sizes are those that were sampled.
fn programs(bound: &BoundJob, ranks: &Ranks, shares: usize, request: &PlanRequest) -> Result<Vec<Programs>, Error> {
    let of_cost = |element_cost: f64| -> Result<Programs, Error> {
        let ranks = Ranks { element_cost, ..ranks.clone() };
        Ok(Programs { lowered: lower(bound, Purpose::Train, &ranks, shares)?, element_cost })
    };
    let mut all = vec![of_cost(request.element_cost())?];
    for element_cost in [0.0, ALWAYS].into_iter().filter(|_| bound.on_batches()) {
        let other = of_cost(element_cost)?;
        let train = |programs: &Programs| programs.lowered.executable.kernels.train.clone();
        if all.iter().all(|known| train(known) != train(&other)) {
            all.push(other);
        }
    }
    Ok(all)
}

/// Powers of two: a plan for any number of ranks has one for half as many or more beside it, and all of them together
/// sample no more than it does.
fn fewer_ranks(ranks: usize) -> Vec<usize> {
    std::iter::successors(Some(1), |&fewer| Some(2 * fewer)).take_while(|&fewer| fewer < ranks).collect()
}

/// The replicas that so many ranks may be. Those of a grid have several ranks each.
fn replicas_of(share: Shared, size: usize) -> Vec<usize> {
    match share {
        Shared::Grid => (2..=size / 2).filter(|&replicas| size.is_multiple_of(replicas)).collect(),
        _ => vec![1],
    }
}

/// A plan for so many ranks.
fn plan(
    bound: &BoundJob,
    &Programs { ref lowered, element_cost }: &Programs,
    (share, size, replicas): (Shared, usize, usize),
    request: &PlanRequest,
) -> Result<RankPlan, Error> {
    let sections = size.next_multiple_of(Ranks::SECTIONS);
    let (split, distribute) = (share.split(), request.distribute);
    let ranks = Ranks { sections, split, replicas, distribute, element_cost, ..Ranks::new(Arc::new(Alone)) };
    let times = relation_times(bound, lowered, replicas, request);
    let compiled = CompiledRanks::of(lowered.clone(), bound, (size, &ranks), times)?;
    let Some(program) = &compiled.executable.kernels.train else {
        return Err(Error::input("the model has no `train` block, so there is nothing to plan"));
    };
    let (Batches { steps, messages, sizes, .. }, graphs) = match share {
        Shared::Vertices => {
            let messages = messages::of_whole_graph(bound, &compiled, program, size);
            (Batches { steps: 1, messages, ..Batches::default() }, places::of_whole_graph(bound, &compiled))
        }
        Shared::Seeds | Shared::Relations | Shared::Grid => {
            let batches = of_batches(bound, &compiled, program, (size, request.batches))?;
            let graphs = places::of_batches(&compiled, &batches);
            (batches, graphs)
        }
    };
    let on_batches = compiled.executable.batch.is_some();
    let expected = launch_seconds(program, on_batches, compiled.train_sizes.as_ref(), &request.machine);
    let of_rank = |rank: usize| -> Vec<f64> {
        match sizes.get(rank).and_then(Option::as_ref) {
            Some(sizes) => launch_seconds(program, on_batches, Some(sizes), &request.machine),
            None => expected.iter().map(|seconds| seconds * compiled.part(rank)).collect(),
        }
    };
    let computed: Vec<Vec<f64>> = (0..size).map(of_rank).collect();
    let traces: Vec<Trace> = (0..size).map(|rank| trace(&computed[rank], rank, &messages, steps)).collect();
    let end_s = replay(&traces, &request.network).iter().map(|times| times.end_s).fold(0.0, f64::max);
    let of_rank = |rank: usize| messages.iter().map(|message| message.sent(rank)).sum();
    let rank_compute_ms: Vec<f64> = computed.iter().map(|launches| 1e3 * launches.iter().sum::<f64>()).collect();
    let predicted = Predicted {
        steps,
        step_ms: 1e3 * end_s,
        compute_ms: rank_compute_ms.iter().copied().fold(0.0, f64::max),
        rank_compute_ms,
        sent_bytes: (0..size).map(of_rank).collect(),
        messages: messages
            .iter()
            .map(|message| MessageBytes {
                what: message.what.clone(),
                sent_bytes: (0..size).map(|rank| message.sent(rank)).collect(),
            })
            .collect(),
    };
    Ok(RankPlan {
        model: bound.model.name.clone(),
        dataset: bound.data.dataset.clone(),
        ranks: size,
        sections,
        share,
        replicas,
        relations: compiled.names_of_relations(),
        distribute,
        element_cost,
        graphs,
        tables: places::of_tables(bound, &compiled),
        predicted,
    })
}

/// By the models of processor and network: seconds of an expected edge where one rank has all relations, and of a byte.
fn relation_times(
    bound: &BoundJob,
    lowered: &LoweredForRanks,
    replicas: usize,
    request: &PlanRequest,
) -> RelationTimes {
    let byte_s = 1.0 / request.network.bytes_per_s;
    let (executable, sizes) = (&lowered.executable, lowered.train_sizes.as_ref());
    let model = relation_model(executable, Some(&bound.sizes));
    let Some((program, model)) = executable.kernels.train.as_ref().zip(model) else {
        return RelationTimes { byte_s, ..RelationTimes::default() };
    };
    // The program is that of a replica, whose seeds are a part of the batch.
    let edges = model.load(&model.graphs_to_seeds()).edges / replicas as f64;
    let seconds: f64 = launch_seconds(program, true, sizes, &request.machine).iter().sum();
    let edge_s = if edges > 0.0 && seconds > 0.0 { seconds / edges } else { RelationTimes::default().edge_s };
    RelationTimes { edge_s, byte_s }
}

/// Predicted seconds of each launch, of a rank with tables of these sizes.
fn launch_seconds(program: &Program, on_batches: bool, sizes: Option<&SizeInfo>, machine: &Machine) -> Vec<f64> {
    let kernels = sizes.map_or(vec![], |sizes| cost::kernels(program, sizes, machine));
    let mut of_step = kernels.iter().filter(|kernel| on_batches || !kernel.bound.once);
    let seconds = |launch: &Launch| {
        let kernels = of_step.by_ref().take(launch.kernels.len());
        kernels.map(|kernel| kernel.bound.prediction.seconds()).sum()
    };
    launches(program, on_batches).map(seconds).collect()
}

/// The mean step of a rank whose launches take so many seconds.
fn trace(launches: &[f64], rank: usize, messages: &[OfAll], steps: u64) -> Trace {
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
        events.push(Event::Compute(*seconds));
        events.extend(
            of_launch().filter(|(_, message)| !message.follows).map(|(number, _)| Event::Wait { exchange: id(number) }),
        );
        for (number, message) in of_launch().filter(|(_, message)| message.follows) {
            events.extend([start(number, message), Event::Wait { exchange: id(number) }]);
        }
    }
    Trace(events)
}
