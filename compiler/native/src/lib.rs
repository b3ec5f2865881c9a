//! JIT compiler for element-wise loops over rows and edges, based on Cranelift.
//!
//! The input is a [`Function`] of the loops IR: element-wise operations, reductions within a row, copies, and reductions over the items
//! that a row owns, on arrays of known widths. [`Compiler::compile`] turns it into one function that keeps intermediate
//! values in registers. The runtime chooses the programs and passes addresses, row counts and offsets with each call.
//! The code depends on none of these, so programs with equal texts share a function.
//!
//! This crate knows no graphs, plans or models. Vectors have at most 128 bits, the widest that Cranelift supports.
//! Products, weighted sums of gathered rows and dropout masks are kernels of the runtime instead. The code of a program
//! makes no calls, so no Rust frame is ever above it and nothing can unwind through it.
//!
//! The loops of neighbour samplers are generated here as well ([`SamplerFunction`]), specialized to the
//! fan-outs of a plan.

mod code;
mod emit;
mod math;
mod phases;
mod sampler;

pub use code::{Arguments, Code, Compiler, NativeError};
pub use hgnnc_ir::loops::Function;
pub use math::{generates_binary, generates_unary};
pub use sampler::{Counted, DrawCall, RowsCall, RowsOf, SHORT, SLACK, SamplerCode, SamplerFunction, Take, UNROLLED};
