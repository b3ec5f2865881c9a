//! Execution of compiled models: CPU engine, device engine, full-batch and mini-batch training, metrics, checkpoints.
//!
//! [`Engine`] runs kernel programs ([`hgnnc_ir::kernel::Program`]) in f32 on all cores. A [`plan`] decides once the
//! order of steps and the memory of values; a [`schedule`] divides a fused region into tiles; [`block`] interprets it
//! block of rows by block of rows, and [`native`] replaces loops by machine code. Edge values are never stored.
//! [`Trainer`] is the training loop: mini-batches, early stopping, the best epoch, metrics, [`weights`],
//! [`checkpoint`]s and the [`report`]. It runs on the CPU or on a [`device`]. Results do not depend on the number of
//! threads.
//!
//! This crate does not parse the source language or dataset files, and compiles no models.

mod backend;
mod batches;
pub mod bind;
pub mod block;
pub mod buffer;
pub mod checkpoint;
pub mod data;
pub mod device;
pub mod engine;
pub mod error;
mod exec_plan;
mod factored_metapath;
mod grouped_product;
mod identity;
mod init;
mod launch;
mod links;
pub mod machine_bench;
mod metapath_graphs;
pub mod metrics;
pub mod native;
mod not_finite;
pub mod orders;
pub mod os;
pub mod plan;
pub mod profile;
mod rebind;
pub mod reorder;
pub mod report;
pub mod schedule;
pub mod stacks;
mod subnormal;
mod times;
pub mod trace;
pub mod trainer;
pub mod weights;

pub use batches::{BatchPart, BatchSpan, CacheOptions};
pub use bind::{BindOptions, bind, check_held_out};
pub use data::{Adjacency, BoundData, InputData, Target, Topology};
pub use device::{Device, DeviceEngine};
pub use engine::{Engine, EngineOptions};
pub use error::{Cause, ExecError, Result};
pub use exec_plan::Arena;
pub use hgnnc_cache::Policy as CachePolicy;
pub use hgnnc_machine::{CodeMode, KernelFeature, KernelFeatures};
pub use identity::{Difference, Identity};
pub use metapath_graphs::{materialize, middle_of_metapath};
pub use orders::OrderKind;
pub use profile::{
    Counted, DeviceProfile, EntryProfile, KernelTime, Profile, ProfileOptions, Timeline, profile, profile_device,
};
pub use reorder::{OrderOptions, Ordered, order_vertices};
pub use report::Report;
pub use times::{StepTime, Times};
pub use trainer::{Arenas, Epoch, MemoryNeeded, Outcome, OutputRows, TrainOptions, Trainer};
