//! Derived values: parts that add up to a run, and totals by stage, direction and kind.

use hgnnc_ir::{Phase, Stage};

use crate::profile::{Kernel, Profile, Run, rate};

/// Stages of kernels, in the order of an epoch.
pub const STAGES: [&str; 5] = {
    let [fp, na, sf, lc, pu] = Stage::ALL;
    [fp.name(), na.name(), sf.name(), lc.name(), pu.name()]
};
/// Names of the directions.
pub const PHASES: [&str; 3] = [Phase::Forward.name(), Phase::Backward.name(), Phase::Update.name()];
/// Kinds of kernels with their descriptions.
pub const KINDS: [(&str, &str); 4] =
    [("DM", "dense products"), ("TB", "topology-based"), ("EW", "element-wise"), ("DR", "data rearrangement")];

/// Description of a stage.
pub fn stage_words(stage: &str) -> &'static str {
    match stage {
        "FP" => "feature projection",
        "NA" => "neighbour aggregation",
        "SF" => "semantic fusion",
        "LC" => "loss computation",
        "PU" => "parameter update",
        _ => "",
    }
}

/// Milliseconds of a stage by direction, in the order of [`PHASES`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct StageTime {
    pub stage: &'static str,
    pub phases: [f64; 3],
    /// Predicted milliseconds of its kernels, as far as predicted.
    pub predicted_ms: f64,
    /// Number of kernels attributed to it.
    pub kernels: usize,
}

impl StageTime {
    /// Milliseconds of all directions.
    pub fn ms(&self) -> f64 {
        self.phases.iter().sum()
    }
}

/// Totals over a set of kernels.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Total {
    pub kernels: usize,
    pub ms: f64,
    /// Predicted milliseconds, as far as predicted.
    pub predicted_ms: f64,
    pub flops: f64,
    /// Sum of the distinct bytes of each kernel.
    pub footprint_bytes: f64,
    /// Sum of the bytes moved.
    pub moved_bytes: f64,
}

impl Total {
    /// Sums the values of `kernels`.
    pub fn of<'k>(kernels: impl IntoIterator<Item = &'k Kernel>) -> Self {
        kernels.into_iter().fold(Total::default(), |sum, kernel| Total {
            kernels: sum.kernels + 1,
            ms: sum.ms + kernel.measured_ms,
            predicted_ms: sum.predicted_ms + kernel.predicted_ms.unwrap_or(0.0),
            flops: sum.flops + kernel.flops,
            footprint_bytes: sum.footprint_bytes + kernel.footprint_bytes,
            moved_bytes: sum.moved_bytes + kernel.moved_bytes,
        })
    }

    /// Achieved floating-point operations per second.
    pub fn flops_per_s(&self) -> f64 {
        rate(self.flops, self.ms)
    }

    /// Achieved bytes per second, of the bytes moved.
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.moved_bytes, self.ms)
    }

    /// Arithmetic intensity: FLOPs per distinct byte.
    pub fn intensity(&self) -> f64 {
        if self.footprint_bytes > 0.0 { self.flops / self.footprint_bytes } else { 0.0 }
    }
}

/// A part of a run outside of kernels.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Rest {
    pub name: &'static str,
    /// Description of the part.
    pub words: &'static str,
    pub ms: f64,
}

impl Profile {
    /// Milliseconds of an epoch.
    pub fn epoch_ms(&self) -> f64 {
        self.run_ms * self.runs_per_epoch as f64
    }

    /// Times of the stages. Parameter updates fused into a backward kernel count as update.
    pub fn stages(&self) -> [StageTime; 5] {
        let mut stages = STAGES.map(|stage| StageTime { stage, ..StageTime::default() });
        for kernel in &self.kernels {
            let phase = PHASES.iter().position(|phase| *phase == kernel.phase).unwrap_or(0);
            for stage in &mut stages {
                let share = kernel.shares.get(stage.stage).copied().unwrap_or(0.0);
                let phase = if stage.stage == Stage::PU.name() { PHASES.len() - 1 } else { phase };
                stage.phases[phase] += share * kernel.measured_ms;
                stage.predicted_ms += share * kernel.predicted_ms.unwrap_or(0.0);
                stage.kernels += usize::from(stage.stage == kernel.stage && !kernel.is_exchange());
            }
        }
        stages
    }

    /// Totals by kind, in the order of [`KINDS`].
    pub fn kinds(&self) -> [Total; 4] {
        KINDS.map(|(kind, _)| Total::of(self.kernels.iter().filter(|kernel| kernel.kind == kind)))
    }

    /// Milliseconds of all kernels together.
    pub fn kernels_ms(&self) -> f64 {
        self.kernels.iter().map(|kernel| kernel.measured_ms).fold(0.0, |sum, ms| sum + ms)
    }

    /// Times of a run outside of stages; together with the stages they add up to the time of the whole run.
    pub fn rest(&self) -> Vec<Rest> {
        let mut rest = vec![];
        if let (Run::Batch, Some(batch)) = (self.run, &self.batch) {
            rest.push(Rest { name: "waiting", words: "waiting for the next batch to be made", ms: batch.waiting_ms });
            if batch.values_ms > 0.0 {
                let words = "keeping embeddings of hot vertices, and giving them to later batches";
                rest.push(Rest { name: "reused values", words, ms: batch.values_ms });
            }
            rest.push(Rest {
                name: "binding",
                words: "planning the program for the sizes of a batch",
                ms: batch.binding_ms,
            });
            rest.push(Rest {
                name: "rows",
                words: "copying rows of parameters and states, there and back",
                ms: batch.rows_ms,
            });
        }
        if !self.ranks.is_empty() {
            let words = "waiting for other ranks, with nothing else to do";
            rest.push(Rest { name: "other ranks", words, ms: self.waits_for_ranks_ms() });
            let words = "sending rows to other ranks, and storing theirs";
            rest.push(Rest { name: "exchanges", words, ms: self.exchanging_ms() });
        }
        let helpers = self.kernels_ms() - self.stages_ms() - self.exchanges_ms();
        if helpers > 1e-9 * self.run_ms {
            rest.push(Rest { name: "helpers", words: "launches that belong to no stage", ms: helpers });
        }
        rest.push(Rest { name: "copies", words: "copies between kernels", ms: self.copies_ms });
        rest.push(Rest { name: "new values", words: "taking over new parameters and states", ms: self.commit_ms });
        let between = "the ends of launches, the loss, and the loop";
        rest.push(Rest { name: "between", words: between, ms: self.between_ms });
        let known = self.stages_ms() + rest.iter().map(|part| part.ms).sum::<f64>();
        // Medians need not add up: each epoch may have another disturbance.
        let disturbed = (self.run_ms - known).max(0.0);
        if disturbed > 1e-9 * self.run_ms {
            rest.push(Rest {
                name: "disturbed",
                words: "kernels slower than their median now and then",
                ms: disturbed,
            });
        }
        rest
    }

    /// Milliseconds of all stages together.
    fn stages_ms(&self) -> f64 {
        self.stages().iter().fold(0.0, |sum, stage| sum + stage.ms())
    }

    /// The denominator of shares: stages and the rest.
    pub fn total_ms(&self) -> f64 {
        self.stages_ms() + self.rest().iter().map(|part| part.ms).sum::<f64>()
    }

    /// Share of `ms` in a run.
    pub fn share(&self, ms: f64) -> f64 {
        let whole = self.total_ms();
        if whole > 0.0 { ms / whole } else { 0.0 }
    }

    /// Whether the waiting time of kernels was measured.
    pub fn tells_waits(&self) -> bool {
        self.kernels.iter().any(|kernel| kernel.in_cache_ms.is_some())
    }

    /// Whether a kernel waits for other processes.
    pub fn tells_ranks(&self) -> bool {
        self.kernels.iter().any(|kernel| kernel.waiting_ms.is_some())
    }

    /// Kernels by descending time.
    pub fn by_time(&self) -> Vec<&Kernel> {
        let mut kernels: Vec<&Kernel> = self.kernels.iter().collect();
        kernels.sort_by(|a, b| b.measured_ms.total_cmp(&a.measured_ms).then(a.kernel.cmp(&b.kernel)));
        kernels
    }

    /// Event counts summed over all kernels, per run.
    pub fn counted(&self) -> Vec<(&str, f64)> {
        let sum = |event: &String| self.kernels.iter().filter_map(|kernel| kernel.counts.get(event)).sum();
        self.counters.events.iter().map(|event| (&event[..], sum(event))).collect()
    }

    /// Event counts of a stage: kernels split their counts like their time.
    pub fn counted_in(&self, stage: &str, event: &str) -> f64 {
        let of = |kernel: &Kernel| {
            kernel.counts.get(event).unwrap_or(&0.0) * kernel.shares.get(stage).copied().unwrap_or(0.0)
        };
        self.kernels.iter().map(of).sum()
    }
}
