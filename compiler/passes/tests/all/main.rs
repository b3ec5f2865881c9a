//! The passes against the interpreter.

mod bounds;
mod cases;
mod common;
mod gradients;
mod kernels;
mod links;
mod on_batch;
mod optimizers;
mod random;
mod reuse;
mod turns;
