//! Training on many ranks, simulated in one process.
//!
//! The ranks are virtual: threads that run the programs of ranks on their parts of the data and exchange the real numbers,
//! one rank at a time. Then each repeats its steps alone, with the messages that it has received, so that it has the processor and
//! its caches as it would on a machine of its own. The bytes of the simulation are counted, and its times of computing are
//! measured; the network is a model ([`hgnnc_dist::trace`]). All other times follow from these.

use std::sync::{Arc, Mutex, PoisonError};

use hgnnc_cpu::thread_pool;
use hgnnc_data::{Distributed, ExecError};
use hgnnc_dist::network::Network;
use hgnnc_dist::threads::{InTurns, Recorder, run_alone, run_in_turns};
use hgnnc_dist::trace::{RankTimes, Trace, replay};
use hgnnc_dist::{Alone, Comm};
use hgnnc_driver::{Split, element_cost};
use hgnnc_graph::show_bytes;
use hgnnc_ir::training::Part;
use hgnnc_ranks::SharedInputs;
use hgnnc_trace::os;
use hgnnc_train::{TrainOptions, Trainer};
use serde::Serialize;

use crate::bound_job::{BoundJob, bind_job};
use crate::job::{Job, Purpose, check_ranks};
use crate::ranks::{CompiledRanks, Ranks};
use crate::{Error, Observer};

/// A rank that takes so many times the median of all is measured again, [`AGAIN`] times at most. So is a single rank, the one
/// that others are compared with.
const SLOW: f64 = 1.05;
const AGAIN: usize = 2;
/// Messages between ranks may take one of so many parts of the free memory.
const PARTS_OF_FREE: u64 = 3;
/// Bytes that they may take where the free memory is not known.
const MOST_KEPT: u64 = 1 << 30;
/// Steps that are not counted: they touch memory for the first time.
const WARM_UP: u64 = 3;

/// The ranks and the network that are simulated.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Numbers of ranks, of which each is simulated.
    pub ranks: Vec<usize>,
    /// The part of a mini-batch that ranks divide among themselves.
    pub split: Split,
    /// Parts of the dataset of which each rank has those of its own vertices, in training on mini-batches.
    pub distribute: Distributed,
    /// Whether each rank has as many seeds as `batch` says, instead of a part of them.
    pub weak: bool,
    /// Steps of training that are counted, after some that are not.
    pub steps: u64,
    /// The network between the ranks.
    pub network: Network,
}

/// The figures of a simulation. Milliseconds of steps are simulated: they follow from measured times of computing, counted
/// bytes, and a model of the network.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SimulationReport {
    /// Always true: no figure of several ranks was measured on several machines.
    pub simulated: bool,
    pub dataset: String,
    pub network: Network,
    /// Threads of a rank.
    pub threads: usize,
    pub steps: u64,
    /// Whether each rank has as many seeds as `batch` says.
    pub weak: bool,
    /// By number of ranks, as asked for.
    pub runs: Vec<RunReport>,
    /// The last of the runs on other networks and processors.
    pub sensitivity: Vec<Variation>,
}

/// The steps of a number of ranks.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct RunReport {
    pub ranks: usize,
    /// Seeds of a step; for training on the whole graph, those of its training part.
    pub seeds: usize,
    /// Simulated milliseconds of a step, to the end of the last rank: of median times of computing.
    pub step_ms: f64,
    /// The mean of all steps, with everything that has delayed a rank.
    pub mean_step_ms: f64,
    /// The step on the network of another simulator, such as SimGrid.
    pub other_step_ms: Option<f64>,
    /// The seeds a second of this run by those of the first one.
    pub speed_up: f64,
    /// The same by the number of ranks.
    pub efficiency: f64,
    /// Bytes that all ranks send to others in a step.
    pub sent_bytes: f64,
    /// Whether computing was measured with nothing between the steps of a rank; if not, other ranks took their turns.
    pub alone: bool,
    pub of_ranks: Vec<RankRun>,
}

/// A step of one rank.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct RankRun {
    /// Median of measured times.
    pub compute_ms: f64,
    /// Follows from the model of the network.
    pub wait_ms: f64,
    pub sent_bytes: f64,
    pub exchanges: usize,
}

/// A step on another network, or with other processors.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Variation {
    pub what: &'static str,
    pub step_ms: f64,
}

/// Another simulation of the network: the times of ranks that go through their traces. `None` where it is not installed.
pub type NetworkSimulator<'a> = dyn Fn(&[Trace]) -> Result<Option<Vec<RankTimes>>, Error> + 'a;

/// Simulates training. The times of [`RunReport::other_step_ms`] are those of `other`.
///
/// # Errors
/// As [`prepare`](crate::prepare()), what several ranks refuse, and those of `other`.
pub fn simulate(
    job: &Job,
    simulation: &Simulation,
    other: Option<&NetworkSimulator<'_>>,
    observer: &mut dyn Observer,
) -> Result<SimulationReport, Error> {
    let Simulation { split, distribute, .. } = *simulation;
    let ranks = Ranks { split, distribute, ..Ranks::new(Arc::new(Alone)) };
    let options = TrainOptions { load_ahead: false, ..job.options.clone() };
    let job = Job { ranks: Some(ranks), options, ..job.clone() };
    check_ranks(&job)?;
    let mut bound = bind_job(Purpose::Train, &job, None, observer)?;
    bound.dataset = None;
    let batch = seeds_of(&mut bound).copied();
    if simulation.weak && batch.is_none() {
        return Err(Error::input(
            "with more seeds for more ranks, a model needs mini-batches: give it a `batch` in its `train` block",
        ));
    }
    let inputs = bound.on_batches().then(|| SharedInputs::of(&mut bound.data));
    let of_epoch = match bound.model.train.as_ref().and_then(|spec| spec.training.batch.as_ref()) {
        Some(batch) => bound.data.seeds(batch).len(),
        None => bound.data.part(Part::Train).len(),
    };
    let mut runs: Vec<RunReport> = vec![];
    let mut traces = vec![];
    for &size in &simulation.ranks {
        if let (Some(batch), Some(of_model)) = (batch, seeds_of(&mut bound)) {
            *of_model = if simulation.weak { batch * size } else { batch };
        }
        let seeds = seeds_of(&mut bound).map_or(of_epoch, |batch| *batch);
        if seeds > of_epoch {
            observer
                .note(format!("warning: a batch of {size} ranks has all {of_epoch} seeds of an epoch, not {seeds}"));
        }
        let (all, alone) = record(&bound, size, simulation, inputs.as_ref(), observer)?;
        traces = all.iter().map(Trace::median_step).collect();
        let mut run = RunReport { alone, ..report(&all, &traces, seeds.min(of_epoch), simulation) };
        let other = other.map_or(Ok(None), |other| other(&traces))?;
        run.other_step_ms = other.map(|times| 1e3 * last(&times));
        let seeds_a_second = |run: &RunReport| run.seeds as f64 / run.step_ms;
        if let Some(first) = runs.first() {
            run.speed_up = seeds_a_second(&run) / seeds_a_second(first);
            run.efficiency = run.speed_up * first.ranks as f64 / size as f64;
        }
        runs.push(run);
    }
    Ok(SimulationReport {
        simulated: true,
        dataset: bound.data.dataset.clone(),
        network: simulation.network,
        threads: bound.pool.current_num_threads(),
        steps: simulation.steps,
        weak: simulation.weak,
        runs,
        sensitivity: variations(&traces, simulation.network),
    })
}

/// The number of seeds of a mini-batch of a model.
fn seeds_of(bound: &mut BoundJob) -> Option<&mut usize> {
    Some(&mut bound.model.train.as_mut()?.training.batch.as_mut()?.size)
}

/// Trains on virtual ranks, and returns what each has done, and whether it was measured alone.
fn record(
    bound: &BoundJob,
    size: usize,
    simulation: &Simulation,
    inputs: Option<&SharedInputs>,
    observer: &mut dyn Observer,
) -> Result<(Vec<Trace>, bool), Error> {
    let sections = size.next_multiple_of(Ranks::SECTIONS);
    let Simulation { split, distribute, .. } = *simulation;
    let multiply_adds_per_s = Ranks::MULTIPLY_ADDS_PER_S * bound.pool.current_num_threads() as f64;
    let element_cost = element_cost(1.0 / simulation.network.bytes_per_s, multiply_adds_per_s);
    let ranks = Ranks { sections, split, distribute, element_cost, ..Ranks::new(Arc::new(Alone)) };
    let compiled = CompiledRanks::new(bound, size, Purpose::Train, &ranks, observer)?;
    let (data, options) = (&bound.data, &bound.options);
    let failed = Mutex::new(None);
    let work = |comm: &Arc<dyn Comm>, recorder: &Recorder| {
        // Each has threads of its own, since a thread waits where its rank does.
        let trainer = thread_pool(options.threads)
            .map_err(Error::from)
            .and_then(|pool| compiled.clone().bind(comm, data.clone(), inputs.cloned(), &pool, options.clone()));
        if let Err(error) = trainer.and_then(|mut of| steps(&mut of, &**comm, recorder, simulation.steps)) {
            comm.abort(&error.to_string());
            // The others fail because this one has.
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    };
    let room = os::free_bytes().map_or(MOST_KEPT, |free| free / PARTS_OF_FREE);
    let InTurns { traces, received, .. } = run_in_turns(size, room, work);
    let check = || failed.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err);
    check()?;
    let Some(received) = received else {
        observer.note(format!(
            "warning: the messages of {size} ranks take more than a third of the free memory ({}), so that no rank computes alone \
             and its data is in no cache: fewer steps (`--steps`) take less",
            show_bytes(room)
        ));
        return Ok((traces, false));
    };
    let measure = |rank: usize| -> Result<(f64, Trace), Error> {
        let (_, trace) = run_alone((rank, size), received[rank].clone(), work);
        check()?;
        Ok((trace.median_step().compute_s(), trace))
    };
    let mut alone = (0..size).map(measure).collect::<Result<Vec<_>, _>>()?;
    // Other work on the machine may have delayed all steps of a rank, and all ranks wait for the slowest.
    let mut seconds: Vec<f64> = alone.iter().map(|(seconds, _)| *seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let usual = seconds[(size - 1) / 2];
    for (rank, best) in alone.iter_mut().enumerate() {
        for _ in 0..AGAIN {
            if size == 1 || best.0 > SLOW * usual {
                let again = measure(rank)?;
                if again.0 < best.0 {
                    *best = again;
                }
            }
        }
    }
    Ok((alone.into_iter().map(|(_, trace)| trace).collect(), true))
}

/// Trains for the steps of the warm-up, and then for those that are recorded.
fn steps(trainer: &mut Trainer, comm: &dyn Comm, recorder: &Recorder, count: u64) -> Result<(), Error> {
    trainer.train_steps(WARM_UP + count, &mut |step| {
        if step > WARM_UP {
            recorder.end_step();
        }
        if step == WARM_UP + count {
            recorder.end();
        }
        if step == WARM_UP {
            // No rank has begun the next step when another begins to record.
            comm.barrier().map_err(|error| ExecError::Ranks(error.to_string()))?;
            recorder.begin();
        }
        Ok(())
    })?;
    Ok(())
}

/// `all` has the steps of each rank, and `traces` one for all of them.
fn report(all: &[Trace], traces: &[Trace], seeds: usize, simulation: &Simulation) -> RunReport {
    let times = replay(traces, &simulation.network);
    let of_rank = |(rank, (trace, times)): (usize, (&Trace, &RankTimes))| RankRun {
        compute_ms: 1e3 * times.compute_s,
        wait_ms: 1e3 * times.wait_s,
        sent_bytes: all[rank].sent_bytes(rank) as f64 / simulation.steps as f64,
        exchanges: trace.exchanges(),
    };
    let of_ranks: Vec<RankRun> = traces.iter().zip(&times).enumerate().map(of_rank).collect();
    RunReport {
        ranks: traces.len(),
        seeds,
        step_ms: 1e3 * last(&times),
        mean_step_ms: 1e3 * last(&replay(all, &simulation.network)) / simulation.steps as f64,
        other_step_ms: None,
        alone: false,
        speed_up: 1.0,
        efficiency: 1.0,
        sent_bytes: of_ranks.iter().map(|rank| rank.sent_bytes).sum(),
        of_ranks,
    }
}

/// Seconds to the end of the last rank.
fn last(times: &[RankTimes]) -> f64 {
    times.iter().map(|times| times.end_s).fold(0.0, f64::max)
}

/// Steps with twice and half of each number of the network, and of the speed of the processors.
fn variations(traces: &[Trace], network: Network) -> Vec<Variation> {
    let Network { latency_s, bytes_per_s } = network;
    let step_ms = |traces: &[Trace], network: Network| 1e3 * last(&replay(traces, &network));
    let on = |what, network| Variation { what, step_ms: step_ms(traces, network) };
    let at = |what, factor| {
        let traces: Vec<Trace> = traces.iter().map(|trace| trace.slowed(factor)).collect();
        Variation { what, step_ms: step_ms(&traces, network) }
    };
    vec![
        on("half the bandwidth", Network { latency_s, bytes_per_s: bytes_per_s / 2.0 }),
        on("twice the bandwidth", Network { latency_s, bytes_per_s: bytes_per_s * 2.0 }),
        on("twice the latency", Network { latency_s: latency_s * 2.0, bytes_per_s }),
        on("half the latency", Network { latency_s: latency_s / 2.0, bytes_per_s }),
        at("processors half as fast", 2.0),
        at("processors twice as fast", 0.5),
    ]
}
