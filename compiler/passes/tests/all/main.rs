//! The passes against the interpreter.

mod cases;
mod common;
mod cost;
mod gradients;
mod historical_embeddings;
mod interleave;
mod kernels;
mod links;
mod minibatch;
mod optimizers;
mod random;
