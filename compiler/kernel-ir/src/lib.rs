//! The two levels below the dataflow IR: programs of kernels, and their loops on a processor.
//!
//! [`kernel`] says which operations share loops over rows, in which order they run, and what is stored. GPUs take their
//! instructions from there. [`loops`] is the same program with the loops, functions and blocks of a processor. Its text
//! is that of kernels with a nest after the instructions of each traversal. Sizes are symbolic on both levels, so a
//! program serves every dataset and every mini-batch.
//!
//! Types, operations and tables of vertex types, graphs and parameters are those of [`hgnnc_ir`]. This crate transforms
//! nothing: `fusion` makes kernels, `schedule` makes loops.

#![forbid(unsafe_code)]

pub mod kernel;
pub mod loops;
