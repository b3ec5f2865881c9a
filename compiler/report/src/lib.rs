//! Profiles: one plain structure, [`Profile`], and one module for each output format.
//!
//! Profiles are collected elsewhere. All outputs depend on the structure alone, so a profile saved as JSON ([`json`])
//! can be compared ([`diff`]) and shown again later. [`mod@text`] is for terminals, [`page`] is one HTML file with the
//! [`pictures`] in it, [`trace`] is for Perfetto. This crate opens no files and measures nothing.

#![forbid(unsafe_code)]

mod columns;
pub mod diff;
pub mod headline;
pub mod json;
pub mod page;
pub mod pictures;
pub mod profile;
pub mod ranks;
pub mod summary;
pub mod table;
pub mod text;
pub mod trace;

pub use profile::{Batch, ClassScore, Classes, Counters, Kernel, Memory, Missing, Once, Profile, Rank, Run};
