//! Machine descriptions and a roofline cost model.
//!
//! A [`Machine`] holds numbers only, independent of their origin: GPUs come with data sheets ([`Machine::sheet`]),
//! while a CPU is measured by the runtime. A [`Work`] holds the operation and byte counts of a kernel.
//! [`Machine::predict`] combines the two: the roofline model (Williams, Waterman and Patterson 2009) with one bandwidth
//! per memory level, random row gathers separate from streaming, and launch costs. [`counters`] has the types of what is
//! counted of kernels on a GPU.
//!
//! This crate knows no programs, datasets or device drivers.

#![forbid(unsafe_code)]

pub mod counters;
mod cpu;
mod kernel_features;
mod predict;
mod sheets;

pub use cpu::{CodeMode, SimdLevel};
pub use kernel_features::{KernelFeature, KernelFeatures};
pub use predict::{Bound, Gather, Prediction, Work};
pub use sheets::{BadSheet, SHEETS};

use serde::{Deserialize, Serialize};

/// Version of the text format.
pub const FORMAT: u32 = 3;

/// Throughputs and capacities of a machine, in SI units.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Version of the text format, [`FORMAT`].
    pub format: u32,
    /// Its name for reports, such as the processor model.
    pub name: String,
    /// The target of code generation: `cpu`, `sm_80`, `sm_90`.
    pub target: String,
    /// Number of cores (threads that run at once), or of streaming multiprocessors.
    pub cores: u32,
    /// f32 FLOP/s of all cores in fused multiply-adds, each counted as 2.
    pub fma_flops: f64,
    /// f32 FLOP/s of one core, counted in the same way.
    pub fma_flops_one_core: f64,
    /// Special functions per second of all cores, measured with `exp`.
    pub special_per_s: f64,
    /// Smallest unit of a memory access, in bytes (a cache line or sector).
    pub line_bytes: u32,
    /// Fixed cost of a kernel launch, in seconds.
    pub launch_s: f64,
    /// Cost of a barrier among all cores within a kernel, in seconds.
    pub barrier_s: f64,
    /// Cost of one unit of [`Work::cycles`], in seconds: a core cycle in kernels composed of parts that pass values
    /// through memory. 0 if a kernel is one piece of code and memory latency is hidden by other threads, as on a GPU.
    #[serde(default)]
    pub cycle_s: f64,
    /// Decisions of the compiler that depend on the kind of machine; those of a CPU if a file does not say.
    #[serde(default = "Capabilities::cpu")]
    pub capabilities: Capabilities,
    /// Tensor cores or matrix units, if there are any.
    pub tensor: Option<Tensor>,
    /// Rates of sorting and searching, if known.
    pub sorting: Option<Sorting>,
    /// Memory levels, from the smallest and fastest to main memory.
    pub levels: Vec<MemoryLevel>,
}

/// Properties of the code that a machine runs, as far as passes and lowering depend on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// Launches consist of thread blocks, which the hardware starts in the order of their numbers; rows are shared by
    /// the threads of a block, and values of a row are registers.
    pub thread_blocks: bool,
    /// There are kernels for attention along a factored metapath.
    pub factored_attention: bool,
}

impl Capabilities {
    /// Capabilities of CPUs.
    pub const fn cpu() -> Self {
        Self { thread_blocks: false, factored_attention: true }
    }
}

/// Throughput of the tensor cores: dense FLOP/s with f32 accumulation, all cores together.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Tensor {
    pub tf32_flops: f64,
    pub bf16_flops: f64,
}

/// Rates of sorting and of searching sorted numbers, all cores together. The numbers of one sort or search fit a core's
/// innermost cache.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sorting {
    /// Sorting: `n log2 n` comparisons for `n` keys of 64 bits, per second.
    pub comparisons_per_s: f64,
    /// Binary search: `log2 n` steps in `n` f32 numbers, each waiting for the one before, per second.
    pub steps_per_s: f64,
}

/// A level of the memory hierarchy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryLevel {
    /// One of `L1`, `L2`, `L3`, `DRAM`, `HBM`.
    pub name: String,
    /// Capacity in bytes: of each core's copy, or in all if shared.
    pub bytes: f64,
    /// Is it shared by all cores?
    pub shared: bool,
    /// Bandwidth of sequential reads, all cores together.
    pub stream_bytes_per_s: f64,
    /// Bandwidth of reading rows of 256 bytes in random order, all cores together.
    pub gather_bytes_per_s: f64,
}

impl Machine {
    /// The innermost level that holds `bytes` partitioned among the cores.
    pub fn level_of_shares(&self, bytes: f64) -> usize {
        self.level(|level| bytes <= level.bytes * if level.shared { 1.0 } else { f64::from(self.cores) })
    }

    /// The innermost level that holds `bytes` replicated for each core.
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
