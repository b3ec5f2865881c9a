//! Generates loops and machine code for this processor.

use hgnnc_codegen_cpu::compile_executable;
use hgnnc_executable::cpu::CpuPrograms;
use hgnnc_passes::SizeInfo;

pub use hgnnc_codegen_cpu::Options as CpuOptions;

use crate::Lowered;

/// The programs of a lowered model for this processor. With sizes, code is generated only where running it saves more
/// time than compiling it takes.
pub fn compile_cpu(lowered: &Lowered, sizes: Option<&SizeInfo>, options: &CpuOptions) -> CpuPrograms {
    let of = |sizes: Option<&SizeInfo>| CpuOptions { sizes: sizes.cloned(), ..options.clone() };
    compile_executable(&lowered.executable, &of(sizes), &of(lowered.train_sizes.as_ref()))
}
