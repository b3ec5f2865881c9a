//! Full-batch execution, training, metrics and checkpoints.

pub mod block;
pub mod data;
pub mod engine;
pub mod error;
pub mod kernels;
pub mod math;
pub mod plan;
pub mod proc;
pub mod raw;
pub mod simd;

pub use data::{BoundData, Incidence, InputData, Target, Topology};
pub use engine::{Engine, EngineOptions, Times};
pub use error::{ExecError, Result};
