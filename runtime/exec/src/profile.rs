//! What training does, kernel by kernel.
//!
//! A *run* is what is done again and again: an epoch on the whole graph, or a batch. Runs are measured as training does
//! them, with the clock that training reads at the ends of launches anyway. What costs more is seen in a few runs after
//! those: when each task ran ([`Timeline`]), and what the processor counts ([`Counted`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ptx::Entry;
use hgnnc_sample::BatchKey;

use crate::batches::BatchSpan;
use crate::device::KernelCounters;
use crate::engine::Engine;
use crate::error::{ExecError, Result};
use crate::plan::{Step, StepKind};
use crate::report::BatchReport;
use crate::times::{StepTime, Times};
use crate::trace::{Event, KernelSpan, Missing, TaskSpan, Trace};
use crate::trainer::{TRAIN, Trainer};

/// Epochs that are not measured: caches and clocks settle.
const WARM_UP: u64 = 3;
/// Batches that are not measured: memory grows to that of the largest, and the pipeline fills.
const WARM_UP_BATCHES: u64 = 10;
/// Batches whose tasks are noted.
const TRACED_BATCHES: u64 = 6;
/// Runs in which the processor counts.
const COUNTED: u64 = 3;
/// Batches whose sizes are told.
const SIZED_BATCHES: u64 = 8;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileOptions {
    /// Number of epochs; without it 10, or 1 of batches.
    pub epochs: Option<u64>,
    /// Of batches, no more than this many.
    pub batches: Option<u64>,
    /// Also measure what kernels take with all that they touch in about so many bytes, which the caches of a core hold. It takes
    /// one thread of this processor, and the whole graph.
    pub in_cache: Option<usize>,
}

/// Times of training in milliseconds of a run each: medians over epochs, or means over batches.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Number of runs that were measured.
    pub runs: u64,
    /// A whole run: forward, backward and update, and of a batch all that is done for it one after another.
    pub run_ms: f64,
    /// The shortest and the longest of them.
    pub run_range_ms: (f64, f64),
    /// What is done between two runs that training does not do: reading their times. It is part of no run.
    pub reading_ms: f64,
    /// The kernels of a run, in the order of the program. Of an epoch those of the prelude are none of them.
    pub kernels: Vec<KernelTime>,
    /// Copies between kernels.
    pub copies_ms: f64,
    /// Taking over new parameters and states that have another place than the old ones.
    pub commit_ms: f64,
    /// All else of a run: the ends of launches, the loss, the loop. Of each epoch by itself, and the median of that.
    pub between_ms: f64,
    /// Of batches: how many an epoch has, and means of their parts.
    pub batches: Option<BatchReport>,
    /// Sizes of some batches.
    pub sizes: Vec<SizeInfo>,
    /// When everything was in a run, or some.
    pub timeline: Timeline,
    /// What the processor counts.
    pub counted: Counted,
}

/// What a kernel took.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelTime {
    /// Its number in the program.
    pub number: usize,
    /// Milliseconds of a run.
    pub ms: f64,
    /// Milliseconds with all that it touches in the caches of its core, where that was measured.
    pub in_cache_ms: Option<f64>,
    /// Shares of the stages in it, in the order of [`hgnnc_ir::Stage::ALL`].
    pub shares: [f32; 5],
    /// What was counted in it in a run, in the order of [`Counted::events`].
    pub counts: Vec<f64>,
}

/// What is counted, and what is not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// What is counted.
    pub events: Vec<Event>,
    /// What is not, and why.
    pub missing: Vec<Missing>,
}

/// When everything was.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Launches in their order.
    pub launches: Vec<KernelSpan>,
    /// Tasks by thread.
    pub tasks: Vec<Vec<TaskSpan>>,
    /// Parts of batches.
    pub batches: Vec<BatchSpan>,
    /// Epochs.
    pub epochs: Vec<(Instant, Instant)>,
    /// The number of the kernel of each step; none of one that copies.
    pub kernels: Vec<Option<usize>>,
}

/// What entries of training did on a device, an epoch each.
#[derive(Clone, Debug, Default)]
pub struct DeviceProfile {
    /// Number of epochs that were measured.
    pub epochs: u64,
    /// Median milliseconds of a whole epoch. `None` for a device without a clock.
    pub epoch_ms: Option<f64>,
    /// The shortest and the longest of them; 0 without a clock.
    pub range_ms: (f64, f64),
    /// The entries, in their order.
    pub entries: Vec<EntryProfile>,
}

/// What an entry did.
#[derive(Clone, Debug)]
pub struct EntryProfile {
    /// The entry, with its kernels.
    pub entry: Entry,
    /// Median milliseconds, launched by itself. `None` for a device without a clock.
    pub ms: Option<f64>,
    /// What it did. `None` for a device that does not count.
    pub counters: Option<KernelCounters>,
}

/// Trains for a few epochs or batches, or until `stop` is set, and measures each kernel. Nothing is evaluated, and no epoch
/// is kept as the best.
///
/// # Errors
/// A model that cannot be trained, or a loss that is not finite.
pub fn profile(trainer: &mut Trainer, options: ProfileOptions, stop: &AtomicBool) -> Result<Profile> {
    trainer.check_trainable()?;
    if options.in_cache.is_some() {
        check_in_cache(trainer)?;
    }
    if trainer.batches().is_some() {
        return profile_batches(trainer, options, stop);
    }
    // As in training: work is not handed over to the threads each time.
    let pool = engine(trainer)?.pool();
    let epochs = options.epochs.unwrap_or(10);
    let mut found = pool.install(|| profile_epochs(trainer, epochs, stop))?;
    if let (Some(bytes), false) = (options.in_cache, stop.load(Ordering::Relaxed)) {
        in_cache(engine(trainer)?, bytes, epochs, &mut found.kernels, stop);
    }
    Ok(found)
}

/// Measures kernels with all that they touch in the caches of their core. What the engine holds is worth nothing then.
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
            // Sums over paths read what they read.
            if !matches!(time.step.kind, StepKind::Factored(_)) {
                all.push(time.ms);
            }
        }
    }
    for (kernel, all) in kernels.iter_mut().zip(kernels_ms) {
        kernel.in_cache_ms = (!all.is_empty()).then(|| median(all));
    }
}

/// Can that be measured of this trainer?
fn check_in_cache(trainer: &mut Trainer) -> Result<()> {
    let of_batches = trainer.batches().is_some();
    let reason = match trainer.engine().map(|engine| engine.threads()) {
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
    let mut kernels_ms: Vec<Vec<f64>> = vec![];
    let mut next = 0..;
    let mut step = |trainer: &mut Trainer| trainer.train_step(next.next().unwrap_or(0));
    for epoch in 0..WARM_UP.saturating_add(epochs) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (_, ms) = step(trainer)?;
        let reading = Instant::now();
        if epoch < WARM_UP {
            engine(trainer)?.forget_times();
            continue;
        }
        epochs_ms.push(ms);
        let engine = engine(trainer)?;
        let commit = engine.commit_ms(TRAIN);
        let (copies, kernels) = copies_and_kernels(engine.step_times(TRAIN));
        between_ms.push((ms - commit - sum(&copies) - sum(&kernels)).max(0.0));
        commit_ms.push(commit);
        copies_ms.push(sum(&copies));
        kernels_ms.resize(kernels.len(), vec![]);
        for (all, step) in kernels_ms.iter_mut().zip(kernels) {
            all.push(step.ms);
        }
        engine.forget_times();
        reading_ms.push(1e3 * reading.elapsed().as_secs_f64());
    }
    let mut found = Profile {
        runs: epochs_ms.len() as u64,
        run_range_ms: range(&epochs_ms),
        run_ms: median(epochs_ms),
        reading_ms: median(reading_ms),
        between_ms: median(between_ms),
        copies_ms: median(copies_ms),
        commit_ms: median(commit_ms),
        ..Profile::default()
    };
    if found.runs == 0 || stop.load(Ordering::Relaxed) {
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
    let (mut kernels, found_kernels) = (kernels_ms.into_iter().map(median), &mut found.kernels);
    for (number, step) in times.iter().map(|time| time.step).filter(|step| !is_copy(step)).enumerate().skip(prelude) {
        let ms = kernels.next().unwrap_or(0.0);
        found_kernels.push(KernelTime { number, ms, in_cache_ms: None, shares: step.shares, counts: vec![] });
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
    batches.begin(key(0), all.div_ceil(per_epoch))?;
    let found = measure_batches(trainer, (WARM_UP_BATCHES, measured), &key, stop);
    if let Some((batches, _)) = trainer.batches() {
        // What was begun ends, whatever came of it.
        let _ = batches.step().0.end_trace();
        batches.end();
    }
    found
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
    trainer.batches().ok_or_else(none)?.0.forget_times();
    let mut batches_ms = vec![];
    let mut start = Instant::now();
    while (batches_ms.len() as u64) < measured && !stop.load(Ordering::Relaxed) {
        step(trainer)?;
        let end = Instant::now();
        batches_ms.push(1e3 * (end - start).as_secs_f64());
        start = end;
    }
    let mut found = Profile {
        runs: batches_ms.len() as u64,
        run_ms: batches_ms.iter().sum::<f64>() / batches_ms.len().max(1) as f64,
        run_range_ms: range(&batches_ms),
        ..Profile::default()
    };
    if found.runs == 0 {
        return Ok(found);
    }
    let (batches, _) = trainer.batches().ok_or_else(none)?;
    found.batches = Some(batches.report());
    let (engine, program) = batches.step();
    found.commit_ms = engine.commit_ms(program);
    let times = engine.all_step_times(program);
    found.timeline.kernels = numbers(times.iter().map(|time| time.step));
    let (copies, kernels) = copies_and_kernels(times);
    found.copies_ms = sum(&copies);
    let sum_of = |batches: &BatchReport| batches.wait_ms + batches.values_ms + batches.bind_ms + batches.rows_ms;
    let parts = found.batches.as_ref().map_or(0.0, sum_of);
    found.between_ms = (found.run_ms - parts - found.commit_ms - found.copies_ms - sum(&kernels)).max(0.0);
    found.kernels = kernels
        .iter()
        .enumerate()
        .map(|(number, time)| KernelTime {
            number,
            ms: time.ms,
            in_cache_ms: None,
            shares: time.step.shares,
            counts: vec![],
        })
        .collect();

    batches.trace_spans();
    for _ in 0..TRACED_BATCHES {
        step(trainer)?;
    }
    let (batches, _) = trainer.batches().ok_or_else(none)?;
    found.timeline.batches = batches.end_spans();
    let (engine, program) = batches.step();
    found.timeline.launches(engine);
    engine.trace_counters(program);
    for _ in 0..COUNTED {
        step(trainer)?;
    }
    let (batches, _) = trainer.batches().ok_or_else(none)?;
    found.counted = counted(batches.step().0, &found.timeline.kernels, &mut found.kernels);
    for _ in 0..SIZED_BATCHES {
        found.sizes.push(batches.sizes_of_next()?);
    }
    Ok(found)
}

impl Timeline {
    /// Takes over what was noted of launches.
    fn launches(&mut self, engine: &mut Engine) {
        if let Some(Trace::Spans(spans)) = engine.end_trace() {
            (self.launches, self.tasks) = spans.into_parts();
        }
    }
}

/// Takes over what was counted, kernel by kernel.
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

/// Milliseconds of all of them. (The sum of none is a negative zero.)
fn sum(steps: &[StepTime<'_>]) -> f64 {
    steps.iter().fold(0.0, |sum, step| sum + step.ms)
}

/// The number of the kernel of each step.
fn numbers<'s>(steps: impl Iterator<Item = &'s Step>) -> Vec<Option<usize>> {
    let mut number = 0..;
    steps.map(|step| if is_copy(step) { None } else { number.next() }).collect()
}

fn engine(trainer: &mut Trainer) -> Result<&mut Engine> {
    trainer.engine().ok_or_else(|| ExecError::Unsupported("steps are measured on this processor only".into()))
}

/// As [`profile`], on a device. One that counts executes one epoch, and nothing else: each is like the other. One with a
/// clock measures epochs as they are, and as many in which every entry is launched by itself.
///
/// # Errors
/// A model that cannot be trained, a loss that is not finite, or a device that fails.
pub fn profile_device(trainer: &mut Trainer, epochs: u64, stop: &AtomicBool) -> Result<DeviceProfile> {
    trainer.check_trainable()?;
    let counts = trainer.device().is_some_and(|device| device.counters(TRAIN).is_some());
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
        let times = trainer.train_launch_by_launch(epoch)?;
        // How long counting took is of no use to anybody.
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
    let Some(device) = trainer.device() else { return Ok(DeviceProfile::default()) };
    let counters = device.counters(TRAIN);
    let mut entries_ms = entries_ms.into_iter().map(median);
    let entry = |entry: &Entry| EntryProfile {
        entry: entry.clone(),
        ms: entries_ms.next(),
        counters: counters.as_ref().and_then(|all| all.get(&entry.name[..])).copied().cloned(),
    };
    let entries = device.entries(TRAIN).into_iter().map(entry).collect();
    let range_ms = range(&epochs_ms);
    let epoch_ms = (!epochs_ms.is_empty()).then(|| median(epochs_ms));
    Ok(DeviceProfile { epochs: measured, epoch_ms, range_ms, entries })
}

/// The smallest and the largest; 0 of none.
fn range(ms: &[f64]) -> (f64, f64) {
    let least = ms.iter().copied().min_by(f64::total_cmp);
    (least.unwrap_or(0.0), ms.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0))
}

/// The middle one; 0 of none. A mean would show what else the machine did.
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
