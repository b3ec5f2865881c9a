//! What follows from a profile: parts that add up to a run, and totals by stage, direction and kind.

use hgnnc_ir::{Phase, Stage};

use crate::profile::{Kernel, Profile, Run, rate};

/// Stages of kernels, in the order in which an epoch meets them.
pub const STAGES: [&str; 5] = {
    let [fp, na, sf, lc, pu] = Stage::ALL;
    [fp.name(), na.name(), sf.name(), lc.name(), pu.name()]
};
/// Directions.
pub const PHASES: [&str; 3] = [Phase::Forward.name(), Phase::Backward.name(), Phase::Update.name()];
/// Kinds of kernels, and what they are.
pub const KINDS: [(&str, &str); 4] =
    [("DM", "dense products"), ("TB", "topology-based"), ("EW", "element-wise"), ("DR", "data rearrangement")];

/// What a stage is.
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
pub struct StageTime {
    /// The stage.
    pub stage: &'static str,
    /// By direction.
    pub phases: [f64; 3],
    /// What its kernels are predicted to take, as far as they are.
    pub predicted_ms: f64,
    /// Kernels that are accounted to it.
    pub kernels: usize,
}

impl StageTime {
    /// All directions.
    pub fn ms(&self) -> f64 {
        self.phases.iter().sum()
    }
}

/// Totals of some kernels.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Total {
    /// How many.
    pub kernels: usize,
    /// What they took.
    pub ms: f64,
    /// What they are predicted to take, as far as they are.
    pub predicted_ms: f64,
    /// What they computed.
    pub flops: f64,
    /// Distinct bytes of each.
    pub footprint_bytes: f64,
    /// Bytes that they moved.
    pub moved_bytes: f64,
}

impl Total {
    /// Of some of the kernels.
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

    /// What they reached.
    pub fn flops_per_s(&self) -> f64 {
        rate(self.flops, self.ms)
    }

    /// Likewise, of bytes that they moved.
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.moved_bytes, self.ms)
    }

    /// FLOPs per distinct byte.
    pub fn intensity(&self) -> f64 {
        if self.footprint_bytes > 0.0 { self.flops / self.footprint_bytes } else { 0.0 }
    }
}

/// A part of a run that belongs to no kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rest {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub words: &'static str,
    /// Milliseconds.
    pub ms: f64,
}

impl Profile {
    /// Milliseconds of an epoch.
    pub fn epoch_ms(&self) -> f64 {
        self.run_ms * self.runs_per_epoch as f64
    }

    /// Times of the stages. What updates parameters within a kernel of the backward pass belongs to the update.
    pub fn stages(&self) -> [StageTime; 5] {
        let mut stages = STAGES.map(|stage| StageTime { stage, ..StageTime::default() });
        for kernel in &self.kernels {
            let phase = PHASES.iter().position(|phase| *phase == kernel.phase).unwrap_or(0);
            for stage in &mut stages {
                let share = kernel.shares.get(stage.stage).copied().unwrap_or(0.0);
                let phase = if stage.stage == Stage::PU.name() { PHASES.len() - 1 } else { phase };
                stage.phases[phase] += share * kernel.measured_ms;
                stage.predicted_ms += share * kernel.predicted_ms.unwrap_or(0.0);
                stage.kernels += usize::from(stage.stage == kernel.stage);
            }
        }
        stages
    }

    /// Totals by kind, in the order of [`KINDS`].
    pub fn kinds(&self) -> [Total; 4] {
        KINDS.map(|(kind, _)| Total::of(self.kernels.iter().filter(|kernel| kernel.kind == kind)))
    }

    /// Milliseconds of all kernels.
    pub fn kernels_ms(&self) -> f64 {
        self.kernels.iter().map(|kernel| kernel.measured_ms).fold(0.0, |sum, ms| sum + ms)
    }

    /// What a run does besides the kernels of stages. With these it adds up to [`Profile::whole_ms`].
    pub fn rest(&self) -> Vec<Rest> {
        let mut rest = vec![];
        if let (Run::Batch, Some(batch)) = (self.run, &self.batch) {
            rest.push(Rest { name: "waiting", words: "waiting for the next batch to be made", ms: batch.waiting_ms });
            if batch.values_ms > 0.0 {
                let words = "computing values of hot vertices that batches reuse";
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
        let helpers = self.kernels_ms() - self.stages_ms();
        if helpers > 1e-9 * self.run_ms {
            rest.push(Rest { name: "helpers", words: "launches that belong to no stage", ms: helpers });
        }
        rest.push(Rest { name: "copies", words: "copies between kernels", ms: self.copies_ms });
        rest.push(Rest { name: "new values", words: "taking over new parameters and states", ms: self.commit_ms });
        let between = "the ends of launches, the loss, and the loop";
        rest.push(Rest { name: "between", words: between, ms: self.between_ms });
        let known = self.stages_ms() + rest.iter().map(|part| part.ms).sum::<f64>();
        // Medians need not add up: something else may be slow in each epoch.
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

    /// Milliseconds of all stages.
    fn stages_ms(&self) -> f64 {
        self.stages().iter().fold(0.0, |sum, stage| sum + stage.ms())
    }

    /// What shares are parts of: stages and the rest.
    pub fn whole_ms(&self) -> f64 {
        self.stages_ms() + self.rest().iter().map(|part| part.ms).sum::<f64>()
    }

    /// The part of a run.
    pub fn share(&self, ms: f64) -> f64 {
        let whole = self.whole_ms();
        if whole > 0.0 { ms / whole } else { 0.0 }
    }

    /// Was it measured how long kernels wait for memory beyond the caches of their core?
    pub fn tells_waits(&self) -> bool {
        self.kernels.iter().any(|kernel| kernel.in_cache_ms.is_some())
    }

    /// Kernels, the longest first.
    pub fn by_time(&self) -> Vec<&Kernel> {
        let mut kernels: Vec<&Kernel> = self.kernels.iter().collect();
        kernels.sort_by(|a, b| b.measured_ms.total_cmp(&a.measured_ms).then(a.kernel.cmp(&b.kernel)));
        kernels
    }

    /// What was counted in all kernels: an event and its number in a run.
    pub fn counted(&self) -> Vec<(&str, f64)> {
        let sum = |event: &String| self.kernels.iter().filter_map(|kernel| kernel.counts.get(event)).sum();
        self.counters.events.iter().map(|event| (&event[..], sum(event))).collect()
    }

    /// Likewise, of a stage: kernels divide their counts as they do their time.
    pub fn counted_in(&self, stage: &str, event: &str) -> f64 {
        let of = |kernel: &Kernel| {
            kernel.counts.get(event).unwrap_or(&0.0) * kernel.shares.get(stage).copied().unwrap_or(0.0)
        };
        self.kernels.iter().map(of).sum()
    }
}
