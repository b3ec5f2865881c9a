//! The passes against the interpreter.

mod cases;
mod common;
mod gradients;
mod historical_embeddings;
mod kernels;
mod link_loss;
mod links;
mod means;
mod minibatch;
mod optimizers;
mod place;
mod place_batch;
mod place_batch_stacks;
mod place_stacks;
mod precompute;
mod random;
mod shared_samples;
mod split_head;
mod vjp;
