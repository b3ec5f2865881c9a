//! What a profile says: one plain structure, [`Profile`], and one module for each way to show it.
//!
//! A profile is collected elsewhere. All that is shown is made of it alone, so that what was written as JSON
//! ([`json`]) can be compared ([`diff`]) and shown again later. [`mod@text`] is for terminals, [`page`] is one file for
//! browsers with the [`pictures`] in it, [`trace`] is for Perfetto. This crate opens no file and measures nothing.

mod columns;
pub mod diff;
pub mod headline;
pub mod json;
pub mod page;
pub mod pictures;
pub mod profile;
pub mod summary;
pub mod table;
pub mod text;
pub mod trace;

pub use profile::{Batch, Counters, Kernel, Memory, Missing, Once, Profile, Run};
