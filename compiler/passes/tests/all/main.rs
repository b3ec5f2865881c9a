//! The passes against the interpreter.

mod common;
mod gradients;
mod optimizers;
mod random;
