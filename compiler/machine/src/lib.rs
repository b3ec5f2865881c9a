//! What machines can do, and how long work takes on them.
//!
//! A [`Machine`] is numbers only: where they come from is not its business. Graphics processors have data sheets
//! ([`Machine::sheet`]); a processor is measured by the runtime. A [`Work`] is what a kernel does, counted by whoever
//! knows it. [`Machine::predict`] puts the two together: the roofline model (Williams, Waterman and Patterson 2009)
//! with a bandwidth per memory level, gathers apart from streams, and the cost of a launch.
//!
//! This crate knows no program, no dataset and no device driver.

mod predict;
mod sheets;

pub use predict::{Bound, Gather, Prediction, Work};
pub use sheets::{BadSheet, SHEETS};

use serde::{Deserialize, Serialize};

/// Version of the text form.
pub const FORMAT: u32 = 2;

/// What a machine can do. SI units.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// [`FORMAT`].
    pub format: u32,
    /// Its name, for people.
    pub name: String,
    /// What is compiled for it: `cpu`, `sm_80`, `sm_90`.
    pub target: String,
    /// Cores (threads that run at once), or streaming multiprocessors.
    pub cores: u32,
    /// f32 multiply-adds of all cores, each counted as 2, per second.
    pub fma_flops: f64,
    /// The same of one core.
    pub fma_flops_one_core: f64,
    /// Special functions (`exp` is the measure of all) of all cores per second.
    pub special_per_s: f64,
    /// The least that is fetched at once, in bytes.
    pub line_bytes: u32,
    /// Beginning and end of a kernel, in seconds.
    pub launch_s: f64,
    /// A point in a kernel where all cores wait for each other, in seconds.
    pub barrier_s: f64,
    /// A cycle of a core whose kernels are made of parts that pass values through memory, in seconds: what
    /// [`Work::cycles`] costs. 0 where a kernel is one piece of code, and waiting for memory is hidden by other threads,
    /// as on a graphics processor.
    #[serde(default)]
    pub cycle_s: f64,
    /// Matrix units, where there are any.
    pub tensor: Option<Tensor>,
    /// Memory, from the smallest and fastest to the one that holds everything.
    pub levels: Vec<MemoryLevel>,
}

/// Matrix units: FLOP/s of all of them, dense, with f32 accumulation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Of TF32 operands.
    pub tf32_flops: f64,
    /// Of BF16 operands.
    pub bf16_flops: f64,
}

/// A level of memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryLevel {
    /// `L1`, `L2`, `L3`, `DRAM`, `HBM`.
    pub name: String,
    /// What it holds: of each core, or of all where it is shared.
    pub bytes: f64,
    /// Do all cores share it?
    pub shared: bool,
    /// Reading in order, all cores together.
    pub stream_bytes_per_s: f64,
    /// Reading rows of 256 bytes in random order, all cores together.
    pub gather_bytes_per_s: f64,
}

impl Machine {
    /// The level in which so many bytes stay that all cores share out among themselves.
    pub fn level_of_shares(&self, bytes: f64) -> usize {
        self.level(|level| bytes <= level.bytes * if level.shared { 1.0 } else { f64::from(self.cores) })
    }

    /// The level in which so many bytes stay that each core needs all of.
    pub fn level_of_common(&self, bytes: f64) -> usize {
        self.level(|level| bytes <= level.bytes)
    }

    fn level(&self, holds: impl Fn(&MemoryLevel) -> bool) -> usize {
        self.levels.iter().position(holds).unwrap_or(self.levels.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_caches_hold_more_of_what_is_shared_out() {
        let machine = Machine::sheet("sm_80").expect("a sheet");
        assert_eq!(machine.level_of_common(200e3), 1, "192 KB of one core are too little");
        assert_eq!(machine.level_of_shares(200e3), 0, "together they hold it");
        assert_eq!(machine.level_of_shares(30e6), 1);
        assert_eq!(machine.level_of_shares(1e15), 2, "the last level holds everything");
    }
}
