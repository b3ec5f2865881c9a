//! Programs on another device: PTX, its data in the memory of the device, and who executes it.
//!
//! [`Device`] is what a device must be able to do. A [`DeviceEngine`] binds compiled modules to data on one, as
//! [`crate::Engine`] does for this processor.

mod bind;
mod counts;
mod cuda;
mod engine;
mod graph_arrays;
mod interpreter;
mod plan;
mod time_attribution;

pub use cuda::Cuda;
pub use engine::DeviceEngine;
pub use hgnnc_ptx_interp::{Class, Counters, GlobalTraffic, SharedTraffic};
pub use interpreter::{Interpreter, KernelCounters};
pub(crate) use plan::Compiled;
pub use plan::DeviceMemory;

use std::collections::BTreeMap;

use hgnnc_graph::show_bytes;
use hgnnc_ptx::{Module, Target};

use crate::error::Result;

impl Launch {
    /// The entry, its blocks and shared memory, and what it works on.
    fn describe(&self) -> String {
        let shared = match self.shared {
            0 => String::new(),
            bytes => format!(" of {} of shared memory", show_bytes(bytes as u64)),
        };
        let what = if self.what.is_empty() { String::new() } else { format!(" ({})", self.what) };
        format!("`{}` with {} blocks{shared}{what}", self.name, self.blocks)
    }
}

/// Bytes of an f32.
const F32: usize = 4;
/// What allocations begin at a multiple of.
const ALIGN_BYTES: usize = 256;

/// An entry's work, for a [`Device`]: its name in the module and its blocks, of [`hgnnc_ptx::THREADS`] threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The entry.
    pub name: String,
    /// What its kernels work on, with sizes, for messages.
    pub what: String,
    /// Its blocks.
    pub blocks: usize,
    /// Bytes of dynamic shared memory of each.
    pub shared: usize,
}

/// A sequence of launches, executed in order: what is captured once and replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sequence {
    /// The module.
    pub module: usize,
    /// The launches.
    pub launches: Vec<Launch>,
}

/// What executes PTX and has memory for it.
pub trait Device: std::fmt::Debug + Send {
    /// Its name, for the report.
    fn name(&self) -> String;

    /// What code for it is made for.
    fn target(&self) -> Target;

    /// Bytes of memory that may be allocated. `None`: not known.
    fn free_bytes(&self) -> Option<u64>;

    /// Loads a module: its number.
    ///
    /// # Errors
    /// PTX that the device cannot take.
    fn load(&mut self, module: &Module) -> Result<usize>;

    /// Fills in the table of a module.
    ///
    /// # Errors
    /// When the device fails.
    fn set_table(&mut self, module: usize, table: &[u64]) -> Result<()>;

    /// Memory for so many bytes, at least 256 of them, which begins at a multiple of 256: its address. `what` is for messages.
    ///
    /// # Errors
    /// When there is no more.
    fn alloc(&mut self, what: &str, bytes: usize) -> Result<u64>;

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// When the device fails.
    fn clear(&mut self, at: u64, bytes: usize) -> Result<()>;

    /// Copies to the device, after what was asked of it before and before what is asked later.
    ///
    /// # Errors
    /// When the device fails.
    fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<()>;

    /// Copies within the device, as [`Device::upload`] to it.
    ///
    /// # Errors
    /// When the device fails.
    fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<()>;

    /// Copies from the device, once it has done all that was asked of it.
    ///
    /// # Errors
    /// When the device fails, now or in what it was asked before.
    fn download(&mut self, from: u64, bytes: &mut [u8]) -> Result<()>;

    /// Prepares a sequence: its number.
    ///
    /// # Errors
    /// An entry that the module does not have, or blocks that do not fit the device: too many, or with more shared memory
    /// than it has.
    fn prepare(&mut self, sequence: Sequence) -> Result<usize>;

    /// Begins to execute a sequence. It may return before the device is done.
    ///
    /// # Errors
    /// When the device fails.
    fn run(&mut self, sequence: usize) -> Result<()>;

    /// Waits until everything is done.
    ///
    /// # Errors
    /// When something failed.
    fn wait(&mut self) -> Result<()>;

    /// Milliseconds by the device's own clock from the beginning of the first sequence since the last call to the end of
    /// the last one, for which it waits. `None` for a device without a clock, and where nothing ran.
    ///
    /// # Errors
    /// When something failed.
    fn elapsed_ms(&mut self) -> Result<Option<f64>>;

    /// Executes a sequence launch by launch and waits for each: the milliseconds of each, of the interpretation where a
    /// launch is interpreted. `None` for a device without a clock.
    ///
    /// # Errors
    /// When the device fails.
    fn run_timed(&mut self, sequence: usize) -> Result<Option<Vec<f64>>>;

    /// What each entry did so far, by module and name. `None` for a device that does not count.
    fn counters(&self) -> Option<&BTreeMap<(usize, String), KernelCounters>> {
        None
    }
}
