//! Programs on another device: PTX, its data in the memory of the device, and who executes it.
//!
//! [`Device`] is what a device must be able to do. A [`DeviceEngine`] binds compiled modules to data on one, as
//! [`crate::Engine`] does for this processor.

mod arrays;
mod engine;
mod interpreter;

pub use engine::{DeviceEngine, DeviceMemory};
pub use interpreter::{Interpreter, KernelCounters};

use hgnnc_ptx::Module;

use crate::error::Result;

/// A part of an entry's work, for a [`Device`]: its name in the module and its blocks, of [`hgnnc_ptx::THREADS`] threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The entry.
    pub name: String,
    /// Its blocks.
    pub blocks: usize,
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
pub trait Device: std::fmt::Debug {
    /// Its name, for the report.
    fn name(&self) -> String;

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

    /// Copies to the device.
    ///
    /// # Errors
    /// When the device fails.
    fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<()>;

    /// Copies from the device, once it has done all that was asked of it.
    ///
    /// # Errors
    /// When the device fails, now or in what it was asked before.
    fn download(&mut self, from: u64, bytes: &mut [u8]) -> Result<()>;

    /// Prepares a sequence: its number.
    ///
    /// # Errors
    /// An entry that the module does not have, or blocks that do not fit the device.
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
}
