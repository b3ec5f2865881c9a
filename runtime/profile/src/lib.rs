//! Per-kernel profile of training: [`profile()`] on the CPU, [`profile_device()`] on a device.
//!
//! A *run* is an epoch on the full graph, or a mini-batch. Runs are measured as in training, with the timestamps that
//! training takes between launches anyway. Costlier measurements follow in a few extra runs: task spans ([`Timeline`])
//! and hardware counters ([`Counted`]).
//!
//! Of processes that train together, each measures its own kernels, and all measure the same number of runs: the calls here
//! are collective.

#![forbid(unsafe_code)]

mod ranks;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hgnnc_cpu::plan::{Step, StepKind};
use hgnnc_cpu::{Engine, StepTime};
use hgnnc_cuda::{DeviceEngine, KernelCounters};
use hgnnc_data::{ExecError, Result};
use hgnnc_executable::gpu::Entry;
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_loader::BatchSpan;
use hgnnc_sample::BatchKey;
use hgnnc_session::Session;
use hgnnc_trace::{Event, KernelSpan, Missing, TaskSpan, Times, Trace};
use hgnnc_train::Trainer;
use hgnnc_train::batches::{Batches, sizes_of};
use hgnnc_train::report::BatchReport;
use hgnnc_train::trainer::TRAIN;

pub use ranks::RankTime;
use ranks::{agree, exchanged};

/// Warm-up epochs, in which caches and clock rates settle.
const WARM_UP: u64 = 3;
/// Warm-up batches, in which memory grows to that of the largest and the pipeline fills.
const WARM_UP_BATCHES: u64 = 10;
/// Batches with task spans.
const TRACED_BATCHES: u64 = 6;
/// Runs with hardware counters.
const COUNTED: u64 = 3;
/// Batches with reported sizes.
const SIZED_BATCHES: u64 = 8;

/// Extent of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileOptions {
    /// Number of epochs; by default 10, or 1 with mini-batches.
    pub epochs: Option<u64>,
    /// Maximum number of mini-batches.
    pub batches: Option<u64>,
    /// Also measures kernels with a working set of about this many bytes, which fits in the caches of a core. Requires
    /// one CPU thread and the full graph.
    pub in_cache: Option<usize>,
}

/// Times of training in milliseconds per run: medians over epochs, or means over batches.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Profile {
    /// Number of runs that were measured.
    pub runs: u64,
    /// A run: forward, backward and update; for a batch, all of its work in sequence.
    pub run_ms: f64,
    /// Minimum and maximum of `run_ms`.
    pub run_range_ms: (f64, f64),
    /// Reading clocks between runs, which training does not do. Not part of a run.
    pub reading_ms: f64,
    /// Kernels of a run in program order, without the prelude of an epoch.
    pub kernels: Vec<KernelTime>,
    pub copies_ms: f64,
    /// Copying new parameters and states that do not alias the old ones.
    pub commit_ms: f64,
    /// Rest of a run: launch overhead, loss, loop. Median over epochs of the per-epoch rest.
    pub between_ms: f64,
    /// Batches per epoch, and means of their parts.
    pub batches: Option<BatchReport>,
    /// Sizes of some batches, or of the part of the graph that this process has of those that train together.
    pub sizes: Vec<SizeInfo>,
    /// Waiting for other processes between runs, to decide whether there is another one. Part of a run.
    pub agreeing_ms: f64,
    /// Runs of this process, for [`Profile::ranks`].
    own: RankTime,
    /// By process, where several train together.
    pub ranks: Vec<RankTime>,
    /// Spans of all events in one or several runs.
    pub timeline: Timeline,
    /// Hardware counters, available and missing.
    pub counted: Counted,
}

/// Time of one kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelTime {
    /// Kernel index in the program.
    pub number: usize,
    /// Milliseconds per run of training.
    pub ms: f64,
    /// Those of them in which nothing was left to do but to wait for other processes.
    pub waited_ms: f64,
    /// Milliseconds with a cache-resident working set, if measured.
    pub in_cache_ms: Option<f64>,
    /// Fraction of each stage, in the order of [`hgnnc_ir::Stage::ALL`].
    pub shares: [f32; 5],
    /// Counter values per run, in the order of [`Counted::events`].
    pub counts: Vec<f64>,
}

/// Hardware counters, available and missing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Counted {
    pub events: Vec<Event>,
    /// Unavailable events with the reason.
    pub missing: Vec<Missing>,
}

/// Spans of launches, tasks, batches and epochs.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Timeline {
    pub launches: Vec<KernelSpan>,
    /// Task spans by thread.
    pub tasks: Vec<Vec<TaskSpan>>,
    pub batches: Vec<BatchSpan>,
    pub epochs: Vec<(Instant, Instant)>,
    /// Kernel index of each step; `None` for copies.
    pub kernels: Vec<Option<usize>>,
}

/// Profile of the training entries on a device, per epoch.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct DeviceProfile {
    /// Number of measured epochs.
    pub epochs: u64,
    /// Median milliseconds per epoch. `None` for a device without a clock.
    pub epoch_ms: Option<f64>,
    /// Minimum and maximum; 0 without a clock.
    pub range_ms: (f64, f64),
    pub entries: Vec<EntryProfile>,
}

/// Profile of one entry.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct EntryProfile {
    pub entry: Entry,
    /// Median milliseconds when launched separately. `None` for a device without a clock.
    pub ms: Option<f64>,
    /// Counters. `None` for a device without counters.
    pub counters: Option<KernelCounters>,
}

/// Trains for a few epochs or batches, or until `stop` is set, and measures each kernel. Skips evaluation and
/// keeps no best epoch. All processes that train together call it.
///
/// # Errors
/// A model that cannot be trained, or a non-finite loss.
pub fn profile(trainer: &mut Trainer, options: ProfileOptions, stop: &AtomicBool) -> Result<Profile> {
    trainer.check_trainable()?;
    if options.in_cache.is_some() {
        check_in_cache(trainer)?;
    }
    let mut found = match trainer.batches() {
        Some(_) => profile_batches(trainer, options, stop)?,
        None => profile_whole_graph(trainer, options, stop)?,
    };
    found.ranks = found.own.of_all(trainer)?;
    Ok(found)
}

fn profile_whole_graph(trainer: &mut Trainer, options: ProfileOptions, stop: &AtomicBool) -> Result<Profile> {
    // Runs inside the pool as training does, which avoids handing each launch to it.
    engine(trainer)?;
    let pool = Arc::clone(trainer.pool());
    let epochs = options.epochs.unwrap_or(10);
    let mut found = pool.install(|| profile_epochs(trainer, epochs, stop))?;
    if let (Some(bytes), false) = (options.in_cache, stop.load(Ordering::Relaxed)) {
        in_cache(engine(trainer)?, bytes, epochs, &mut found.kernels, stop);
    }
    Ok(found)
}

/// Measures kernels with a cache-resident working set. The results of the engine are garbage afterwards.
fn in_cache(engine: &mut Engine, bytes: usize, epochs: u64, kernels: &mut [KernelTime], stop: &AtomicBool) {
    engine.replay_in_cache(bytes);
    let mut kernels_ms: Vec<Vec<f64>> = vec![vec![]; kernels.len()];
    for epoch in 0..epochs.saturating_add(1) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        engine.forget_times();
        engine.run(TRAIN, 0, 1 + epoch, epoch, &mut Times::default());
        let (_, steps) = copies_and_kernels(engine.step_times(TRAIN));
        for (all, time) in kernels_ms.iter_mut().zip(steps).filter(|_| epoch > 0) {
            // Factored metapath steps have no cache-resident replay.
            if !matches!(time.step.kind, StepKind::Factored(_)) {
                all.push(time.ms);
            }
        }
    }
    for (kernel, all) in kernels.iter_mut().zip(kernels_ms) {
        kernel.in_cache_ms = (!all.is_empty()).then(|| median(all));
    }
}

/// Checks that the trainer supports cache-resident measurement.
fn check_in_cache(trainer: &mut Trainer) -> Result<()> {
    let of_batches = trainer.batches().is_some();
    let of_several = trainer.session().process().1 > 1;
    let reason = match engine(trainer).ok().map(|engine| engine.threads()) {
        _ if of_several => "one process: start the command without `mpirun`".into(),
        _ if of_batches => "the whole graph, and this model is trained on batches".into(),
        None => "this processor: add `--device cpu`".into(),
        Some(1) => return Ok(()),
        Some(threads) => format!("one thread, and there are {threads}: add `--threads 1`"),
    };
    Err(ExecError::Unsupported(format!("what kernels take in the caches of a core is measured of {reason}")))
}

fn profile_epochs(trainer: &mut Trainer, epochs: u64, stop: &AtomicBool) -> Result<Profile> {
    let (mut epochs_ms, mut copies_ms, mut commit_ms): (Vec<f64>, Vec<f64>, Vec<f64>) = Default::default();
    let (mut reading_ms, mut between_ms) = (vec![], vec![]);
    let (mut agreeing_ms, mut computing_ms, mut waiting_ms) = (vec![], vec![], vec![]);
    let (mut kernels_ms, mut waits_ms): (Vec<Vec<f64>>, Vec<Vec<f64>>) = Default::default();
    let mut before = exchanged(trainer);
    let mut next = 0..;
    let mut step = |trainer: &mut Trainer| trainer.train_step(next.next().unwrap_or(0));
    for epoch in 0..WARM_UP.saturating_add(epochs) {
        let (ends, agreeing) = agree(trainer, stop)?;
        if ends {
            break;
        }
        let waited_before = exchanged(trainer).waited_ns;
        let (_, ms) = step(trainer)?;
        let reading = Instant::now();
        if epoch < WARM_UP {
            engine(trainer)?.forget_times();
            before = exchanged(trainer);
            continue;
        }
        let waited = 1e-6 * (exchanged(trainer).waited_ns - waited_before) as f64;
        epochs_ms.push(ms + agreeing);
        agreeing_ms.push(agreeing);
        computing_ms.push(ms - waited);
        waiting_ms.push(waited + agreeing);
        let engine = engine(trainer)?;
        let commit = engine.commit_ms(TRAIN);
        let (copies, kernels) = copies_and_kernels(engine.step_times(TRAIN));
        between_ms.push((ms - commit - sum(&copies) - sum(&kernels)).max(0.0));
        commit_ms.push(commit);
        copies_ms.push(sum(&copies));
        kernels_ms.resize(kernels.len(), vec![]);
        waits_ms.resize(kernels.len(), vec![]);
        for ((all, waits), step) in kernels_ms.iter_mut().zip(&mut waits_ms).zip(kernels) {
            all.push(step.ms);
            waits.push(step.waited_ms);
        }
        engine.forget_times();
        reading_ms.push(1e3 * reading.elapsed().as_secs_f64());
    }
    let runs = epochs_ms.len() as u64;
    let mut found = Profile {
        runs,
        run_range_ms: range(&epochs_ms),
        run_ms: median(epochs_ms),
        agreeing_ms: median(agreeing_ms),
        reading_ms: median(reading_ms),
        between_ms: median(between_ms),
        copies_ms: median(copies_ms),
        commit_ms: median(commit_ms),
        ..Profile::default()
    };
    let own = RankTime {
        run_ms: found.run_ms,
        computing_ms: median(computing_ms),
        waiting_ms: median(waiting_ms),
        ..RankTime::default()
    };
    found.own = own.with_exchanges(before, exchanged(trainer), runs);
    if trainer.session().process().1 > 1 {
        found.sizes = vec![sizes_of(engine(trainer)?.data())];
    }
    if runs == 0 || agree(trainer, stop)?.0 {
        return Ok(found);
    }
    engine(trainer)?.trace_spans();
    let start = Instant::now();
    step(trainer)?;
    found.timeline.epochs.push((start, Instant::now()));
    found.timeline.launches(engine(trainer)?);
    engine(trainer)?.trace_counters(TRAIN);
    for _ in 0..COUNTED {
        step(trainer)?;
    }
    let engine = engine(trainer)?;
    let prelude = engine.plan(TRAIN).prelude.len();
    let times = engine.all_step_times(TRAIN);
    let (mut kernels, found_kernels) = (kernels_ms.into_iter().zip(waits_ms), &mut found.kernels);
    for (number, step) in times.iter().map(|time| time.step).filter(|step| !is_copy(step)).enumerate().skip(prelude) {
        let (ms, waits) = kernels.next().unwrap_or_default();
        let (ms, waited_ms) = (median(ms), median(waits));
        found_kernels.push(KernelTime {
            number,
            ms,
            waited_ms,
            in_cache_ms: None,
            shares: step.shares,
            counts: vec![],
        });
    }
    found.timeline.kernels = numbers(times.iter().map(|time| time.step));
    found.counted = counted(engine, &found.timeline.kernels, &mut found.kernels);
    Ok(found)
}

fn profile_batches(trainer: &mut Trainer, options: ProfileOptions, stop: &AtomicBool) -> Result<Profile> {
    let Some((batches, seed)) = trainer.batches() else { return Ok(Profile::default()) };
    let per_epoch = batches.num_batches().max(1);
    let measured = per_epoch.saturating_mul(options.epochs.unwrap_or(1)).min(options.batches.unwrap_or(u64::MAX));
    let key = |batch: u64| BatchKey { seed, epoch: batch / per_epoch, batch: batch % per_epoch };
    let all = WARM_UP_BATCHES.saturating_add(measured).saturating_add(TRACED_BATCHES + COUNTED + SIZED_BATCHES);
    trainer.begin_batches(key(0), all.div_ceil(per_epoch))?;
    let found = measure_batches(trainer, (WARM_UP_BATCHES, measured), &key, stop);
    if let Some((batches, _)) = trainer.batches() {
        // Stops tracing also after an error.
        let _ = step_engine(batches)?.0.end_trace();
    }
    let ended = trainer.end_batches();
    found.and_then(|found| ended.map(|()| found))
}

fn measure_batches(
    trainer: &mut Trainer,
    (warm_up, measured): (u64, u64),
    key: &impl Fn(u64) -> BatchKey,
    stop: &AtomicBool,
) -> Result<Profile> {
    let none = || ExecError::Unsupported("internal error: a profile of batches without batches".into());
    let (mut times, mut next) = (Times::default(), 0..);
    let mut step = |trainer: &mut Trainer| trainer.train_batch(key(next.next().unwrap_or(0)), &mut times);
    for _ in 0..warm_up {
        step(trainer)?;
    }
    let (batches, _) = trainer.batches().ok_or_else(none)?;
    batches.forget_times();
    step_engine(batches)?.0.forget_times();
    let before = exchanged(trainer);
    let (mut batches_ms, mut agreeing_ms) = (vec![], 0.0);
    let mut start = Instant::now();
    while (batches_ms.len() as u64) < measured {
        let (ends, agreeing) = agree(trainer, stop)?;
        if ends {
            break;
        }
        agreeing_ms += agreeing;
        step(trainer)?;
        let end = Instant::now();
        batches_ms.push(1e3 * (end - start).as_secs_f64());
        start = end;
    }
    let after = exchanged(trainer);
    let runs = batches_ms.len() as u64;
    let mean = |all: f64| all / runs.max(1) as f64;
    let mut found = Profile {
        runs,
        run_ms: mean(batches_ms.iter().sum()),
        run_range_ms: range(&batches_ms),
        agreeing_ms: mean(agreeing_ms),
        ..Profile::default()
    };
    if found.runs == 0 {
        return Ok(found);
    }
    let (batches, _) = trainer.batches().ok_or_else(none)?;
    let report = batches.report();
    let waiting_ms = mean(1e-6 * (after.waited_ns - before.waited_ns) as f64) + found.agreeing_ms;
    let own = RankTime {
        run_ms: found.run_ms,
        computing_ms: (found.run_ms - waiting_ms - report.wait_ms).max(0.0),
        waiting_ms,
        loading_ms: report.wait_ms,
        ..RankTime::default()
    };
    found.own = own.with_exchanges(before, after, runs);
    found.batches = Some(report);
    let (engine, program) = step_engine(batches)?;
    found.commit_ms = engine.commit_ms(program);
    let times = engine.all_step_times(program);
    found.timeline.kernels = numbers(times.iter().map(|time| time.step));
    let (copies, kernels) = copies_and_kernels(times);
    found.copies_ms = sum(&copies);
    let sum_of = |batches: &BatchReport| batches.wait_ms + batches.values_ms + batches.bind_ms + batches.rows_ms;
    let parts = found.batches.as_ref().map_or(0.0, sum_of);
    let known = parts + found.agreeing_ms + found.commit_ms + found.copies_ms + sum(&kernels);
    found.between_ms = (found.run_ms - known).max(0.0);
    found.kernels = kernels
        .iter()
        .enumerate()
        .map(|(number, time)| KernelTime {
            number,
            ms: time.ms,
            waited_ms: time.waited_ms,
            in_cache_ms: None,
            shares: time.step.shares,
            counts: vec![],
        })
        .collect();

    batches.trace_spans();
    step_engine(batches)?.0.trace_spans();
    for _ in 0..TRACED_BATCHES {
        step(trainer)?;
    }
    let (batches, _) = trainer.batches().ok_or_else(none)?;
    found.timeline.batches = batches.end_spans();
    let (engine, program) = step_engine(batches)?;
    found.timeline.launches(engine);
    engine.trace_counters(program);
    for _ in 0..COUNTED {
        step(trainer)?;
    }
    let (batches, _) = trainer.batches().ok_or_else(none)?;
    found.counted = counted(step_engine(batches)?.0, &found.timeline.kernels, &mut found.kernels);
    for _ in 0..SIZED_BATCHES {
        found.sizes.push(batches.sizes_of_next()?);
    }
    Ok(found)
}

impl Timeline {
    /// Takes the recorded spans of launches.
    fn launches(&mut self, engine: &mut Engine) {
        if let Some(Trace::Spans(spans)) = engine.end_trace() {
            (self.launches, self.tasks) = spans.into_parts();
        }
    }
}

/// Takes the counter values, kernel by kernel.
fn counted(engine: &mut Engine, numbers: &[Option<usize>], kernels: &mut [KernelTime]) -> Counted {
    let Some(Trace::Counts(counting)) = engine.end_trace() else { return Counted::default() };
    let (events, missing, steps) = counting.finish();
    for (number, counts) in numbers.iter().zip(steps) {
        if let Some(kernel) = kernels.iter_mut().find(|kernel| Some(kernel.number) == *number) {
            kernel.counts = counts;
        }
    }
    Counted { events, missing }
}

fn is_copy(step: &Step) -> bool {
    matches!(step.kind, StepKind::Copy { .. })
}

fn copies_and_kernels(steps: Vec<StepTime<'_>>) -> (Vec<StepTime<'_>>, Vec<StepTime<'_>>) {
    steps.into_iter().partition(|time| is_copy(time.step))
}

/// Total milliseconds. (An empty `f64` sum is -0.0.)
fn sum(steps: &[StepTime<'_>]) -> f64 {
    steps.iter().fold(0.0, |sum, step| sum + step.ms)
}

/// Kernel index of each step; `None` for copies.
fn numbers<'s>(steps: impl Iterator<Item = &'s Step>) -> Vec<Option<usize>> {
    let mut number = 0..;
    steps.map(|step| if is_copy(step) { None } else { number.next() }).collect()
}

/// The CPU engine behind a session.
fn cpu_engine(session: &mut dyn Session) -> Result<&mut Engine> {
    let has_inner = session.inner().is_some();
    let any: &mut dyn Any = match has_inner {
        true => session.inner().ok_or_else(|| ExecError::Unsupported("internal error: no engine".into()))?,
        false => session,
    };
    any.downcast_mut().ok_or_else(|| ExecError::Unsupported("steps are measured on this processor only".into()))
}

fn engine(trainer: &mut Trainer) -> Result<&mut Engine> {
    cpu_engine(trainer.session())
}

/// The engine of mini-batches, and the index of their program.
fn step_engine(batches: &mut Batches) -> Result<(&mut Engine, usize)> {
    let (session, program) = batches.step();
    Ok((cpu_engine(session)?, program))
}

/// The device engine that trains on the full graph; `None` if another machine does.
pub fn device(trainer: &mut Trainer) -> Option<&mut DeviceEngine> {
    let any: &mut dyn Any = trainer.session();
    any.downcast_mut()
}

/// [`profile`] on a device. A device with counters executes one epoch only, since all are alike. A device with a clock
/// measures regular epochs, and as many with every entry launched separately.
///
/// # Errors
/// A model that cannot be trained, a non-finite loss, or a device failure.
pub fn profile_device(trainer: &mut Trainer, epochs: u64, stop: &AtomicBool) -> Result<DeviceProfile> {
    trainer.check_trainable()?;
    if trainer.batches().is_some() {
        return Err(ExecError::Unsupported(
            "launches on a device are measured of training on the whole graph, and this model is trained on batches: \
             add `--device cpu`"
                .into(),
        ));
    }
    let counts = device(trainer).is_some_and(|device| device.counters(TRAIN).is_some());
    let (warm_up, epochs) = if counts { (0, 1) } else { (WARM_UP, epochs) };
    let (mut epochs_ms, mut entries_ms): (Vec<f64>, Vec<Vec<f64>>) = Default::default();
    let mut measured = 0;
    for epoch in 0..warm_up + epochs {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if !counts {
            let (_, ms) = trainer.train_step(epoch)?;
            epochs_ms.push(ms);
        }
        let times = trainer.train_step_by(epoch, |session, key| {
            let session: &mut dyn Any = session;
            let device = session.downcast_mut::<DeviceEngine>();
            device.map_or(Ok(None), |device| device.run_timed(TRAIN, key.seed, key.step, key.epoch))
        })?;
        // Time of the counting run is discarded: counters slow it down.
        let times = times.filter(|_| !counts).unwrap_or_default();
        if epoch < warm_up {
            epochs_ms.clear();
            continue;
        }
        measured += 1;
        entries_ms.resize(times.len(), vec![]);
        for (all, ms) in entries_ms.iter_mut().zip(times) {
            all.push(ms);
        }
    }
    let Some(device) = device(trainer) else { return Ok(DeviceProfile::default()) };
    let counters = device.counters(TRAIN);
    let mut entries_ms = entries_ms.into_iter().map(median);
    let entry = |entry: &Entry| EntryProfile {
        entry: entry.clone(),
        ms: entries_ms.next(),
        counters: counters.as_ref().and_then(|all| all.get(&entry.name)).cloned(),
    };
    let entries = device.entries(TRAIN).into_iter().map(entry).collect();
    let range_ms = range(&epochs_ms);
    let epoch_ms = (!epochs_ms.is_empty()).then(|| median(epochs_ms));
    Ok(DeviceProfile { epochs: measured, epoch_ms, range_ms, entries })
}

/// Minimum and maximum; 0 for an empty slice.
fn range(ms: &[f64]) -> (f64, f64) {
    let least = ms.iter().copied().min_by(f64::total_cmp);
    (least.unwrap_or(0.0), ms.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0))
}

/// Median; 0 for an empty list. A mean would include outliers from other load on the machine.
fn median(mut ms: Vec<f64>) -> f64 {
    ms.sort_by(f64::total_cmp);
    let middle = |at: usize| ms.get(at).copied().unwrap_or(0.0);
    (middle(ms.len().saturating_sub(1) / 2) + middle(ms.len() / 2)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::{median, range};

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(range(&[]), (0.0, 0.0));
        assert_eq!(range(&[9.0, 1.0, 2.0]), (1.0, 9.0));
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0]), 3.0);
        assert_eq!(median(vec![9.0, 1.0, 4.0, 2.0]), 3.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
    }
}
