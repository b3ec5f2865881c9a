//! The headline of a profile: the bottlenecks of a model in a few sentences.

use std::collections::BTreeMap;

use crate::profile::{Kernel, Profile, rate};
use crate::summary::{PHASES, Rest, StageTime, stage_words};
use crate::table::{amount, bytes, digits, percent, time};

/// Smallest share of a run that gets a sentence.
const WORTH: f64 = 0.1;

/// If kernels are this many times slower or faster than predicted overall, the measurement violated the model's
/// assumption of an otherwise idle machine.
const FAR_OFF: f64 = 4.0;

/// The kernels of a stage with a common bottleneck.
#[derive(Default)]
struct Limit {
    bound: String,
    ms: f64,
    predicted_ms: f64,
    moved_bytes: f64,
    flops: f64,
}

impl Profile {
    /// The largest part of a run and its bottleneck; then details of it, other large parts, and the kernel with the
    /// largest potential gain.
    pub fn headline(&self) -> Vec<String> {
        let (stages, rest) = (self.stages(), self.rest());
        let stage = stages.iter().max_by(|a, b| a.ms().total_cmp(&b.ms()));
        let other = rest.iter().max_by(|a, b| a.ms.total_cmp(&b.ms));
        let (Some(stage), Some(other)) = (stage, other) else { return vec![] };
        let mut sentences = vec![];
        if other.ms > stage.ms() {
            sentences.push(self.of_rest(other));
            sentences.extend((self.share(stage.ms()) >= WORTH).then(|| self.of_stage(stage)));
        } else {
            sentences.push(self.of_stage(stage));
            sentences.extend((self.share(other.ms) >= WORTH).then(|| self.of_rest(other)));
        }
        sentences.extend(self.imbalance_text());
        sentences.extend(self.details(stage));
        sentences.extend(self.most_room());
        sentences.extend(self.far_off());
        sentences
    }

    /// A warning if predictions and measurements disagree overall.
    fn far_off(&self) -> Option<String> {
        let known = || self.kernels.iter().filter_map(|kernel| Some((kernel.measured_ms, kernel.predicted_ms?)));
        let (measured, predicted) = known().fold((0.0, 0.0), |sum, (ms, of)| (sum.0 + ms, sum.1 + of));
        let factor = measured / predicted;
        let runs = format!("runs took {} to {}", time(self.run_min_ms * 1e-3), time(self.run_max_ms * 1e-3));
        if factor >= FAR_OFF {
            Some(format!(
                "All kernels together take {} times what is predicted: other processes may have had the processor ({runs}), \
                 and then no ratio here means anything. Measure again without them.",
                digits(factor)
            ))
        } else if factor * FAR_OFF <= 1.0 && measured > 0.0 {
            Some(format!(
                "All kernels together take {} of what is predicted ({runs}): the description of the machine may have been \
                 measured while other processes had it. Remove its file `machine-*.toml` from the cache, and measure again.",
                percent(factor)
            ))
        } else {
            None
        }
    }

    /// Share of a stage in the run, and its main bottleneck.
    fn of_stage(&self, time: &StageTime) -> String {
        let (stage, share) = (time.stage, part(self.share(time.ms())));
        let text = format!("{stage} ({}) takes {share} of {}", stage_words(stage), a(self.run.name()));
        let Some(limit) = self.limit(stage).filter(|_| time.ms() > 0.0) else { return text + "." };
        let what = match limit.ms / time.ms() {
            most if most > 0.95 => "It".into(),
            most => format!("{} of that", part(most)),
        };
        let reached = match limit.predicted_ms / limit.ms {
            reached if reached >= 0.995 => "and reaches all that the machine allows".to_string(),
            reached => format!("and reaches {} of what the machine allows", part(reached)),
        };
        match &limit.bound[..] {
            "launch" => format!("{text}. {what} is kernels so small that their beginning and end limits them."),
            "compute" => format!("{text}. {what} is compute-bound {reached}."),
            level => format!("{text}. {what} is memory-bound by {level} {reached}."),
        }
    }

    /// Times by direction, and achieved rates, of a stage.
    fn details(&self, time: &StageTime) -> Option<String> {
        let limit = self.limit(time.stage).filter(|_| time.ms() > 0.0)?;
        let most = (0..PHASES.len()).max_by(|&i, &j| time.phases[i].total_cmp(&time.phases[j]))?;
        let directions = match time.phases[most] / time.ms() {
            share if share > 0.98 => String::new(),
            share => format!("{} of {} is {}. ", part(share), time.stage, PHASES[most]),
        };
        let rates = match &limit.bound[..] {
            "launch" => return (!directions.is_empty()).then(|| directions.trim_end().to_string()),
            "compute" => format!(
                "Its compute-bound kernels do {}FLOP/s; the peak is {}FLOP/s for multiply-adds, and lower for exp, \
                 divisions and random masks.",
                spaced(amount(rate(limit.flops, limit.ms))),
                spaced(amount(self.machine.fma_flops))
            ),
            level => {
                let of = self.machine.levels.iter().find(|known| known.name == level).map_or(String::new(), |known| {
                    let (stream, gather) = (known.stream_bytes_per_s, known.gather_bytes_per_s);
                    format!("; {level} gives {}/s in order and {}/s by rows", bytes(stream), bytes(gather))
                });
                format!("Its kernels that {level} limits move {}/s{of}.", bytes(rate(limit.moved_bytes, limit.ms)))
            }
        };
        Some(directions + &rates)
    }

    /// The main bottleneck of a stage.
    fn limit(&self, stage: &str) -> Option<Limit> {
        let mut limits: BTreeMap<&str, Limit> = BTreeMap::new();
        for kernel in self.kernels.iter().filter(|kernel| !kernel.bound.is_empty()) {
            let share = kernel.shares.get(stage).copied().unwrap_or(0.0);
            let Some(predicted) = kernel.predicted_ms else { continue };
            let limit = limits.entry(&kernel.bound).or_default();
            limit.ms += share * kernel.measured_ms;
            limit.predicted_ms += share * predicted;
            limit.moved_bytes += share * kernel.moved_bytes;
            limit.flops += share * kernel.flops;
        }
        let (bound, limit) = limits.into_iter().max_by(|a, b| a.1.ms.total_cmp(&b.1.ms))?;
        (limit.ms > 0.0).then(|| Limit { bound: bound.into(), ..limit })
    }

    /// Share of a run outside of kernels.
    fn of_rest(&self, rest: &Rest) -> String {
        let (share, run) = (part(self.share(rest.ms)), a(self.run.name()));
        match (rest.name, &self.batch) {
            ("waiting", Some(batch)) => format!(
                "{share} of {run} is {}: making one takes {}, computing it {}.",
                rest.words,
                time((batch.sampling_ms + batch.features_ms + batch.graphs_ms) * 1e-3),
                time((self.run_ms - batch.waiting_ms).max(0.0) * 1e-3)
            ),
            ("between", _) => format!("{share} of {run} is between kernels: {}.", rest.words),
            ("disturbed", _) => format!(
                "{share} of {run} is kernels that are slower than their median now and then: other processes may have had the \
                 processor; measure again without them."
            ),
            _ => format!("{share} of {run} is {}.", rest.words),
        }
    }

    /// The kernel with the largest difference between measured and predicted time.
    fn most_room(&self) -> Option<String> {
        let room = |kernel: &Kernel| kernel.predicted_ms.map_or(0.0, |ms| kernel.measured_ms - ms);
        let kernel = self.kernels.iter().max_by(|a, b| room(a).total_cmp(&room(b)))?;
        let (ratio, gain) = (kernel.ratio()?, self.share(room(kernel)));
        (gain >= 0.02 && ratio > 1.0).then(|| {
            format!(
                "Most room: {} ({}, {}, {}) takes {}, {} times what is predicted; at that it would save {} of {}.",
                kernel.name(),
                kernel.rows,
                kernel.stage,
                kernel.phase,
                time(kernel.measured_ms * 1e-3),
                digits(ratio),
                part(gain),
                a(self.run.name())
            )
        })
    }
}

/// `an epoch` or `a batch`.
fn a(run: &str) -> String {
    format!("{} {run}", if run.starts_with('e') { "an" } else { "a" })
}

/// A share as `71 %`.
fn part(share: f64) -> String {
    if share < 0.1 { percent(share) } else { format!("{:.0} %", 100.0 * share) }
}

/// Puts a space before the unit.
fn spaced(text: String) -> String {
    if text.ends_with(|c: char| c.is_ascii_alphabetic()) { text } else { text + " " }
}
