//! Full-batch execution, training, metrics and checkpoints.
//!
//! [`Engine`] runs programs of the dataflow IR in f32 on all cores: a [`plan`] decides once what runs when and in
//! which memory, and [`block`] executes it in blocks of rows, so that values of edges are never stored. [`Trainer`]
//! is the training loop on top: early stopping, the best epoch, metrics, [`weights`], [`checkpoint`]s and the
//! [`report`]; it runs on this processor or on a [`device`]. Results do not depend on the number of threads.
//!
//! This crate knows no source language and no file format of datasets; it samples nothing. What
//! becomes machine code is decided in [`native`].

mod batches;
pub mod bind;
pub mod block;
pub mod checkpoint;
pub mod data;
pub mod device;
pub mod engine;
pub mod error;
mod executor;
mod identity;
mod init;
pub mod kernel_features;
pub mod kernels;
mod launch;
mod links;
pub mod math;
pub mod measure;
mod metapaths;
pub mod metrics;
pub mod native;
mod not_finite;
pub mod order;
mod paths;
pub mod plan;
mod planned;
pub mod proc;
pub mod profile;
pub mod raw;
mod rebind;
pub mod report;
pub mod routine;
pub mod simd;
mod stages;
mod subnormal;
mod times;
pub mod trainer;
pub mod watch;
pub mod weights;

pub use batches::{BatchPart, BatchSpan, CacheOptions};
pub use bind::{BindOptions, bind, check_held_out};
pub use data::{BoundData, Incidence, InputData, Target, Topology};
pub use device::{Device, DeviceEngine};
pub use engine::{Engine, EngineOptions};
pub use error::{Cause, ExecError, Result};
pub use hgnnc_cache::Policy as CachePolicy;
pub use identity::{Difference, Identity};
pub use kernel_features::{KernelFeature, KernelFeatures};
pub use metapaths::{declare_metapaths, list_edges};
pub use native::CodeMode;
pub use order::{OrderKind, OrderOptions, Ordered, order_vertices};
pub use planned::Arena;
pub use profile::{
    Counted, DeviceProfile, EntryProfile, KernelTime, Profile, ProfileOptions, Timeline, profile, profile_device,
};
pub use report::Report;
pub use times::{StepTime, Times};
pub use trainer::{Arenas, Epoch, MemoryNeeded, Outcome, OutputRows, TrainOptions, Trainer};
