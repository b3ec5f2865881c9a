//! Training and evaluation of compiled models.
//!
//! [`Trainer`] is the training loop: epochs or mini-batches, early stopping, the best epoch, metrics, [`weights`],
//! [`checkpoint`]s and the [`report`]. It runs on the CPU ([`hgnnc_cpu`]) or on a device ([`hgnnc_cuda`]).
//! [`profile()`] measures kernels as training runs them.
//!
//! This crate parses neither the source language nor dataset files, and compiles no models.

mod backend;
mod batches;
pub mod checkpoint;
mod links;
mod not_finite;
pub mod profile;
pub mod report;
pub mod trainer;
pub mod weights;

pub use profile::{
    Counted, DeviceProfile, EntryProfile, KernelTime, Profile, ProfileOptions, Timeline, profile, profile_device,
};
pub use report::Report;
pub use trainer::{Arenas, Epoch, MemoryNeeded, Outcome, OutputRows, TrainOptions, Trainer};
