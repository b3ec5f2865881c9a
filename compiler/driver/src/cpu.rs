//! Generates loops and machine code for this processor.

use hgnnc_codegen_cpu::compile_executable;
use hgnnc_executable::Executable;
use hgnnc_passes::SizeInfo;

pub use hgnnc_codegen_cpu::Options as CpuOptions;

use crate::{Lowered, LoweredForRanks};

/// Generates the programs of a lowered model for this processor: [`Executable::cpu`](hgnnc_executable::Executable). With
/// sizes, code is generated only where running it saves more
/// time than compiling it takes.
pub fn compile_cpu(lowered: &mut Lowered, sizes: Option<&SizeInfo>, options: &CpuOptions) {
    let of = |sizes: Option<&SizeInfo>| CpuOptions { sizes: sizes.cloned(), ..options.clone() };
    compile_executable(&mut lowered.executable, &of(sizes), &of(lowered.train_sizes.as_ref()));
}

/// Generates the programs of ranks for this processor.
pub fn compile_cpu_ranks(lowered: &mut LoweredForRanks, options: &CpuOptions) {
    let of = |sizes: &Option<SizeInfo>| CpuOptions { sizes: sizes.clone(), ..options.clone() };
    let (of_whole, of_train) = (of(&lowered.sizes), of(&lowered.train_sizes));
    compile_executable(&mut lowered.executable, &of_whole, &of_train);
}

/// Generates the programs of a layer for this processor, which both run on the whole graph.
pub fn compile_cpu_layer(executable: &mut Executable, sizes: Option<&SizeInfo>, options: &CpuOptions) {
    let options = CpuOptions { sizes: sizes.cloned(), ..options.clone() };
    compile_executable(executable, &options, &options);
}
