//! The CPU back end: executes verified loops programs in f32 on all cores.
//!
//! ```text
//! loops::Program -> plan::Plan        addresses, memory, row blocks and tasks for the sizes of the data
//!                -> RegionSchedule    the places of local values
//!                -> block             executes blocks of rows: micro-kernels and calls of machine code
//! ```
//!
//! [`Engine`] holds programs with their data, parameters and memory. A [`plan`] decides once the order of steps and the
//! memory of values, and divides regions into blocks of rows and tasks; a [`schedule`] places the values of a block in
//! scratch; [`block`] executes it, and `launch` runs the tasks of independent steps on the thread pool. Edge values are
//! never stored. Blocks and the order of every sum depend only on the graph and its vertex order, so results do not
//! depend on the number of threads.
//!
//! [`CpuBackend`] is what training sees of it.
//!
//! This crate compiles nothing: machine code comes with the program ([`hgnnc_executable::cpu`]).

pub mod block;
pub mod engine;
mod exchange;
mod exec_plan;
mod factored_metapath;
mod facts;
mod grouped_product;
mod launch;
mod parallel;
pub mod plan;
mod rank_sum;
pub mod schedule;
mod session;
mod slabs;
mod step_times;

pub use engine::Engine;
pub use exec_plan::{EngineOptions, thread_pool};
pub use session::CpuBackend;
pub use step_times::StepTime;
