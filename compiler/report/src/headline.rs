//! What limits a model, in a few sentences: the first thing that a reader wants to know.

use std::collections::BTreeMap;

use crate::profile::{Kernel, Profile, Run};
use crate::summary::{PHASES, Rest, StageTime, stage_words};
use crate::table::{amount, bytes, digits, percent, time};

/// A part of a run that is worth a sentence.
const WORTH: f64 = 0.1;

impl Profile {
    /// What takes most of a run and what limits it, what else is large, and which kernel could gain most.
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
        sentences.extend(self.most_room());
        sentences
    }

    fn of_stage(&self, time: &StageTime) -> String {
        let (stage, run) = (time.stage, self.run.name());
        let mut text = format!("{stage} ({}) takes {} of {}", stage_words(stage), part(self.share(time.ms())), a(run));
        let most = (0..PHASES.len()).max_by(|&i, &j| time.phases[i].total_cmp(&time.phases[j])).unwrap_or(0);
        if time.ms() > 0.0 && time.phases[most] < 0.98 * time.ms() {
            text.push_str(&format!(", {} of that {}", part(time.phases[most] / time.ms()), PHASES[most]));
        }
        match self.limit(stage) {
            Some(limit) => text + "; " + &limit + ".",
            None => text + ".",
        }
    }

    /// What limits most of a stage, and how near it is to that limit.
    fn limit(&self, stage: &str) -> Option<String> {
        let own = |kernel: &Kernel| kernel.shares.get(stage).copied().unwrap_or(0.0);
        let mut bounds: BTreeMap<&str, [f64; 4]> = BTreeMap::new();
        let mut all = 0.0;
        for kernel in &self.kernels {
            let share = own(kernel);
            all += share * kernel.measured_ms;
            let Some(predicted) = kernel.predicted_ms.filter(|_| !kernel.bound.is_empty()) else { continue };
            let numbers = [kernel.measured_ms, predicted, kernel.moved_bytes, kernel.flops];
            let sums = bounds.entry(&kernel.bound).or_default();
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += share * number);
        }
        let (bound, &[ms, predicted, moved, flops]) = bounds.iter().max_by(|a, b| a.1[0].total_cmp(&b.1[0]))?;
        if ms <= 0.0 {
            return None;
        }
        let what = if ms > 0.9 * all { "it".into() } else { format!("{} of it", part(ms / all)) };
        let reached = match predicted / ms {
            reached if reached >= 0.995 => "all of what that allows".to_string(),
            reached => format!("{} of what that allows", part(reached)),
        };
        Some(match *bound {
            "launch" => format!("{what} is kernels so small that their beginning and end limits them"),
            "compute" => format!(
                "{what} is compute-bound and reaches {reached} ({}FLOP/s of {}FLOP/s)",
                spaced(amount(flops / (ms * 1e-3))),
                spaced(amount(self.machine.fma_flops))
            ),
            level => {
                let rates = self.machine.levels.iter().find(|known| known.name == level);
                let of = rates.map_or(String::new(), |known| {
                    format!(
                        "; {level} gives {}/s in order and {}/s by rows",
                        bytes(known.stream_bytes_per_s),
                        bytes(known.gather_bytes_per_s)
                    )
                });
                let moved = bytes(moved / (ms * 1e-3));
                format!("{what} is memory-bound by {level} and reaches {reached} ({moved}/s moved{of})")
            }
        })
    }

    fn of_rest(&self, rest: &Rest) -> String {
        let (share, run) = (part(self.share(rest.ms)), self.run.name());
        let text = format!("{} takes {share} of {}: {}", capital(rest.name), a(run), rest.words);
        match (self.run, &self.batch, rest.name) {
            (Run::Batch, Some(batch), "waiting") => {
                let beside = batch.sampling_ms + batch.features_ms + batch.graphs_ms;
                format!(
                    "{text}. Making a batch takes {} beside {} of computing the one before",
                    time(beside * 1e-3),
                    time((self.run_ms - batch.waiting_ms).max(0.0) * 1e-3)
                )
            }
            _ => text,
        }
        .trim_end_matches('.')
        .to_string()
            + "."
    }

    /// The kernel that would gain most if it took what is predicted.
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

/// `an epoch`, `a batch`
fn a(run: &str) -> String {
    format!("{} {run}", if run.starts_with('e') { "an" } else { "a" })
}

/// `71 %`
fn part(share: f64) -> String {
    if share < 0.1 { percent(share) } else { format!("{:.0} %", 100.0 * share) }
}

/// With a space before a unit.
fn spaced(text: String) -> String {
    if text.ends_with(|c: char| c.is_ascii_alphabetic()) { text } else { text + " " }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
