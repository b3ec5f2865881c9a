//! Executables: the compiled programs that the compiler hands to the runtime.
//!
//! - [`Executable`]: the programs of a model as kernels, and what training needs;
//! - [`Fingerprint`]: the meaning of a program, for a comparison with one that was saved;
//! - [`cpu`]: loops with the machine code of the functions that they call;
//! - [`sampler`]: the functions of samplers, and the arguments of their calls;
//! - [`gpu`]: modules of PTX, what their tables hold, and the blocks of each kernel.
//!
//! These are descriptions: addresses, numbers of rows and blocks are bound by the runtime. Neither side depends on the
//! other. Where code depends on data, such as on the degrees of rows, the runtime asks a compiler that it is given
//! ([`sampler::SamplerCompiler`], [`gpu::GpuCompiler`]).

#![forbid(unsafe_code)]

pub mod cpu;
mod executable;
mod fingerprint;
pub mod gpu;
pub mod sampler;

pub use executable::{Executable, GraphPlan, Kernels, Role};
pub use fingerprint::Fingerprint;
