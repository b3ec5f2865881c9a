//! The passes against the interpreter.

mod cases;
mod common;
mod gradients;
mod optimizers;
mod random;
