//! Choices of code for a processor.

/// Instruction sets that CPU kernels are compiled for, from narrow to wide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the variants are names of instruction sets")]
pub enum SimdLevel {
    /// Portable kernels for the baseline of the architecture.
    Base,
    /// NEON, with fused multiply-adds: every AArch64 processor.
    Neon,
    Avx2,
    /// AVX-512 F, VL, BW and DQ.
    Avx512,
}

impl SimdLevel {
    /// f32 elements of a vector.
    pub fn lanes(self) -> usize {
        match self {
            SimdLevel::Base | SimdLevel::Neon => 4,
            SimdLevel::Avx2 => 8,
            SimdLevel::Avx512 => 16,
        }
    }
}

/// Whether machine code is generated for loops and samplers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CodeMode {
    /// Where the cost model predicts a gain.
    #[default]
    Auto,
    /// Nowhere: all operations are executed by micro-kernels.
    Interpreted,
    /// Wherever code can be generated.
    Native,
}
