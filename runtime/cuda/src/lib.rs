//! The GPU back end: programs in PTX, device memory, and the devices that execute them.
//!
//! [`Device`] is the interface of a device. [`DeviceEngine`] binds compiled modules to data on a device, addresses
//! and sizes go into a table, launches into sequences that are captured once and replayed each epoch. [`Cuda`] is an
//! NVIDIA device. The interpreter, which executes PTX on the CPU, is for tests and counts: it is there with the feature
//! `ptx-interp`, and [`open_interpreter`] opens it.
//!
//! This crate generates no code: a [`hgnnc_executable::gpu::GpuCompiler`] does.

mod bind;
mod counts;
mod cuda;
mod engine;
mod graph_arrays;
#[cfg(feature = "ptx-interp")]
mod interpreter;
mod plan;
mod room;
mod rows;
mod session;
mod shared;
#[cfg(feature = "ptx-interp")]
pub mod testing;
mod time_attribution;

pub use cuda::Cuda;
pub use engine::DeviceEngine;
#[cfg(feature = "ptx-interp")]
pub use interpreter::Interpreter;
pub use plan::DeviceMemory;
pub use session::DeviceBackend;
pub use shared::SharedDevice;

use std::collections::BTreeMap;

use hgnnc_data::Result;
use hgnnc_executable::gpu::{Module, Target};
use hgnnc_graph::show_bytes;
use hgnnc_machine::counters::Counters;

impl Launch {
    /// Changes the number of blocks; the description had the sizes of before.
    fn resize(&mut self, blocks: usize) {
        self.blocks = blocks;
        self.what.clear();
    }

    /// Entry name, grid, shared memory and work, for messages.
    fn describe(&self) -> String {
        let shared = match self.shared {
            0 => String::new(),
            bytes => format!(" of {} of shared memory", show_bytes(bytes as u64)),
        };
        let what = if self.what.is_empty() { String::new() } else { format!(" ({})", self.what) };
        format!("`{}` with {} blocks{shared}{what}", self.name, self.blocks)
    }
}

/// Bytes of an `f32` element.
const F32: usize = 4;
/// Alignment of allocations in bytes.
const ALIGN_BYTES: usize = 256;

/// Name of the interpreter device.
const INTERPRETER: &str = "ptx-interp";

/// A launch of an entry with a grid of blocks of [`hgnnc_executable::gpu::THREADS`] threads.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Launch {
    pub name: String,
    /// Description of its kernels with sizes, for messages.
    pub what: String,
    /// Number of thread blocks.
    pub blocks: usize,
    /// Bytes of dynamic shared memory per block.
    pub shared: usize,
}

/// Launches executed in order; captured once and replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Sequence {
    /// Module handle from [`Device::load`].
    pub module: usize,
    pub launches: Vec<Launch>,
}

/// Counters of an entry, accumulated over its runs.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct KernelCounters {
    pub runs: u64,
    /// Counters of all runs.
    pub counters: Counters,
}

/// Opens a device that executes PTX on the CPU and counts what kernels do.
///
/// # Errors
/// A build without the feature `ptx-interp`.
pub fn open_interpreter() -> Result<Box<dyn Device>> {
    #[cfg(feature = "ptx-interp")]
    let opened: Result<Box<dyn Device>> = Ok(Box::new(Interpreter::new()));
    #[cfg(not(feature = "ptx-interp"))]
    let opened = Err(hgnnc_data::ExecError::Device {
        device: INTERPRETER.into(),
        reason: "this build has no PTX interpreter; build with `cargo build --release --features ptx-interp`".into(),
    });
    opened
}

/// A device that executes PTX and has memory of its own.
pub trait Device: std::fmt::Debug + Send {
    /// Device name for the report.
    fn name(&self) -> String;

    /// Target that PTX is generated for.
    fn target(&self) -> Target;

    /// Free bytes. `None` if unknown.
    fn free_bytes(&self) -> Option<u64>;

    /// Loads a module and returns its handle.
    ///
    /// # Errors
    /// PTX that the device does not accept.
    fn load(&mut self, module: &Module) -> Result<usize>;

    /// Writes the table of a module.
    ///
    /// # Errors
    /// When the device fails.
    fn set_table(&mut self, module: usize, table: &[u64]) -> Result<()>;

    /// Allocates at least 256 bytes, 256-byte aligned, and returns the address. `what` labels the allocation in errors.
    ///
    /// # Errors
    /// When device memory is exhausted.
    fn alloc(&mut self, what: &str, bytes: usize) -> Result<u64>;

    /// Frees an allocation, after all earlier operations.
    ///
    /// # Errors
    /// When the device fails.
    fn free(&mut self, at: u64) -> Result<()>;

    /// Zeroes a range of device memory.
    ///
    /// # Errors
    /// When the device fails.
    fn clear(&mut self, at: u64, bytes: usize) -> Result<()>;

    /// Copies to the device, in stream order.
    ///
    /// # Errors
    /// When the device fails.
    fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<()>;

    /// Copies within the device, in stream order.
    ///
    /// # Errors
    /// When the device fails.
    fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<()>;

    /// Copies from the device, after all earlier operations.
    ///
    /// # Errors
    /// When this or an earlier operation fails.
    fn download(&mut self, from: u64, bytes: &mut [u8]) -> Result<()>;

    /// Prepares a sequence and returns its handle.
    ///
    /// # Errors
    /// An entry that the module does not have, or a grid or shared memory beyond the limits of the device.
    fn prepare(&mut self, sequence: Sequence) -> Result<usize>;

    /// Changes the number of blocks of each launch of a sequence, as every mini-batch does. Such sequences are launched
    /// kernel by kernel from then on.
    ///
    /// # Errors
    /// A grid beyond the limits of the device.
    fn resize(&mut self, sequence: usize, blocks: &[usize]) -> Result<()>;

    /// Enqueues a sequence; may return before it is executed.
    ///
    /// # Errors
    /// When the device fails.
    fn run(&mut self, sequence: usize) -> Result<()>;

    /// Synchronizes with the device.
    ///
    /// # Errors
    /// When an earlier operation failed.
    fn wait(&mut self) -> Result<()>;

    /// Milliseconds by the device clock from the start of the first sequence since the last call to the end of the last
    /// one; synchronizes. `None` for a device without a clock, and if nothing ran.
    ///
    /// # Errors
    /// When an earlier operation failed.
    fn elapsed_ms(&mut self) -> Result<Option<f64>>;

    /// Has the next sequence start the time of [`Device::elapsed_ms`], without waiting for those before.
    fn restart_clock(&mut self);

    /// Executes a sequence launch by launch, synchronizing after each, and returns the milliseconds of each (of
    /// interpretation, on the interpreter). `None` for a device without a clock.
    ///
    /// # Errors
    /// When the device fails.
    fn run_timed(&mut self, sequence: usize) -> Result<Option<Vec<f64>>>;

    /// Accumulated counters of each entry, by module and name. `None` for a device without counters.
    fn counters(&self) -> Option<BTreeMap<(usize, String), KernelCounters>> {
        None
    }
}
