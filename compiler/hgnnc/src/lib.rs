//! The compiler as a library: from a model and a dataset to training, metrics and results.
//!
//! [`prepare`] reads a model, checks it against a dataset, builds its semantic graphs, compiles it, and binds it to a
//! machine. The [`Trainer`](hgnnc_train::Trainer) of what it returns trains (with a callback for each epoch, and a flag
//! that stops it), measures, infers and reports. Models may be texts, and datasets in memory.
//! [`profile`] measures where the time of training goes. Errors are values ([`Error`]), and nothing is printed: an
//! [`Observer`] hears of warnings and choices. The command `hgnnc` only parses arguments and prints.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! let job = hgnnc::Job { data: Some("acm").into(), ..hgnnc::Job::new("han.hgnn") };
//! let mut prepared = hgnnc::prepare(hgnnc::Purpose::Train, &job, &mut hgnnc::Silent)?;
//! prepared.trainer.run(&AtomicBool::new(false), &mut |epoch| println!("{} {}", epoch.epoch, epoch.loss))?;
//! println!("{:?}", prepared.report()?.metrics["test"]);
//! # Ok::<(), hgnnc::Error>(())
//! ```
//!
//! [`layer`] makes a model a layer of a larger network, which the caller trains.

#![forbid(unsafe_code)]

pub mod artifact;
mod bound_job;
mod dataset;
mod device;
mod error;
mod events;
mod families;
mod infer;
mod job;
pub mod layer;
mod links;
mod log;
mod machines;
mod modules;
mod outputs;
mod parts;
mod precompute;
mod prepare;
pub mod profile;
pub mod rank_plan;
mod ranks;
mod rescue;
mod results;
mod run_folder;
mod seeds;
pub mod simulate;
mod sizes;
mod source;
mod starter;
mod sweep;

use hgnnc_diag::{Diagnostics, SourceMap};

pub use bound_job::{Bound, bind_sizes};
pub use dataset::{load, processor, summary};
pub use device::Device;
pub use error::Error;
pub use hgnnc_data::Distributed;
pub use hgnnc_driver::Split;
pub use infer::{Inferred, OutputValues, ResultFormat, not_finite};
pub use job::{DataSource, Job, ModelSource, Purpose};
pub use links::{LinkPair, LinkPairs, write_scores};
pub use log::{EpochLog, LogPlaces};
pub use machines::{cpu_backend, cpu_options, order_options};
pub use outputs::{
    NamedFile, check_apart, check_folder, check_readable, check_writable, make_folder, write_file, write_report,
};
pub use precompute::fill_precomputed;
pub use prepare::{Prepared, prepare};
pub use ranks::Ranks;
pub use rescue::{Rescued, Unsaved, lock_checkpoints};
pub use results::{Naming, ResultTable, check_parquet};
pub use run_folder::RunFolder;
pub use seeds::SeedRuns;
pub use sizes::read_sizes;
pub use source::{
    Meeting, Opened, accept, analyze_text, ask_for, decode, list_paths, meet, prepare as prepare_model, read, text,
};
pub use starter::{StarterLayer, starter};
pub use sweep::{Point, Sweep, SweepObserver, SweepReport};

/// Hears what happens on the way.
pub trait Observer {
    /// A line for the user: a warning, or a choice that was made.
    fn note(&mut self, line: String);

    /// Diagnostics of a model without errors.
    fn warnings(&mut self, sources: &SourceMap, found: &Diagnostics);
}

/// An observer that drops everything.
#[derive(Clone, Copy, Default, Debug)]
pub struct Silent;

impl Observer for Silent {
    fn note(&mut self, _line: String) {}

    fn warnings(&mut self, _sources: &SourceMap, _found: &Diagnostics) {}
}
