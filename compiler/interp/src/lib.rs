//! The oracles: interpreters in f64 of the dataflow IR, of kernels and of loops, and random programs to compare them with.
//!
//! [`run`] says what a program of the dataflow IR means, [`kernels::run`] what its kernels compute, and
//! [`kernels::run_loops`] what its loops do. All take the same [`Bindings`]. Back ends are tested against them; the
//! product uses the first to explain numbers that are not finite ([`not_finite`]), and has neither the other two nor
//! random programs (feature `testing`).

#![forbid(unsafe_code)]

mod bindings;
mod dataflow;
#[cfg(any(test, feature = "testing"))]
pub mod division;
#[cfg(any(test, feature = "testing"))]
pub mod kernels;
pub mod not_finite;
#[cfg(any(test, feature = "testing"))]
pub mod random_program;
pub mod ranks;

pub use bindings::{Bindings, Evaluation, InterpError, PairOfLink, Tensor};
pub use dataflow::run;
