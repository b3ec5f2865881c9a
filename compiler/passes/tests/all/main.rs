//! The passes against the interpreter.

mod bounds;
mod cases;
mod common;
mod gradients;
mod kernels;
mod optimizers;
mod random;
mod turns;
