//! Loops over the rows and edges of a block, translated to machine code with Cranelift.
//!
//! The input is a [`Program`]: element-wise operations, reductions within a row, copies, and reductions over the items
//! that a row owns, on arrays whose widths are known. [`Compiler::compile`] makes one function of it, in which values
//! between operations stay in registers. The runtime decides what becomes a program, and passes addresses, numbers
//! of rows and offsets at each call: nothing of them is in the code, so programs with equal texts share a function.
//!
//! This crate knows no graph, plan or model. It has no vectors wider than 128 bits, because Cranelift has none; products,
//! weighted sums of gathered rows and dropout masks are not here, but kernels of the runtime. Code of a program calls
//! nothing: no Rust frame is ever above it, so nothing can unwind through it.
//!
//! The loops of neighbour samplers are generated here too ([`SamplerFunction`]), for the fan-outs of a plan.

mod code;
mod emit;
mod math;
mod phases;
mod program;
mod sampler;

pub use code::{Arguments, Code, Compiler, NativeError};
pub use math::{generates_binary, generates_unary};
pub use program::{Array, Kind, Op, Program, Row, Shape, Source};
pub use sampler::{Counted, DrawCall, RowsCall, RowsOf, SHORT, SLACK, SamplerCode, SamplerFunction, Take, UNROLLED};
