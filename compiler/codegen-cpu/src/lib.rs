//! Machine code for processors, generated with Cranelift.
//!
//! [`compile`] schedules a kernel program ([`hgnnc_schedule`]) and translates the functions that its loops call.
//! [`Compiler::function`] turns a [`hgnnc_kernel_ir::loops::Function`] into code that keeps intermediate values in registers:
//! element-wise operations, reductions within a row, copies, and reductions over the items that a row owns, on arrays of
//! known widths. The runtime passes addresses, row counts and offsets with each call; the code depends on none of these.
//!
//! Functions know no graphs or models. Vectors have at most 128 bits, the widest that Cranelift supports.
//! Products, weighted sums of gathered rows and dropout masks are kernels of the runtime instead. The code of a program
//! makes no calls, so no Rust frame is ever above it and nothing can unwind through it.
//!
//! The loops of neighbour samplers are generated here as well ([`hgnnc_executable::sampler`]), specialized to the fan-outs of a
//! plan.

mod cache;
mod code;
mod emit;
mod math;
mod phases;
mod program;
mod sampler;

pub use code::{Compiler, NativeError};
pub use hgnnc_schedule::Options;
pub use program::{compile, compile_executable, listing, sampler};
