//! The passes against the interpreter.

mod bounds;
mod cases;
mod common;
mod gradients;
mod kernels;
mod on_batch;
mod optimizers;
mod random;
mod turns;
