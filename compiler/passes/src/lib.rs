//! Differentiation, optimisers and the passes over the dataflow IR.

pub mod differentiate;
pub mod optimizer;

pub use differentiate::{NotDifferentiable, differentiate, try_differentiate};
pub use optimizer::{Clip, Optimizer, OptimizerOptions, Schedule, update};
