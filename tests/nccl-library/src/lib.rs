//! NCCL and CUDA's driver for tests of `hgnnc_dist::nccl`.
//!
//! A shared library with the functions of both that are used there. Devices are memory, streams are queues, and ranks are
//! threads or processes, whose messages are files: in the folder `HGNN_TEST_NCCL`, or in that of temporary files. So the
//! order of calls, their arguments and the bytes that arrive are tested, and nothing of a GPU.
//!
//! # Stricter than a GPU
//! - Work of a stream executes when the stream is queried, one operation at a time: premature reads of results and premature
//!   reuse of memory fail in every run. Memory has other bytes than zeros before it is written.
//! - Device addresses point nowhere, copies need pinned memory, and each operation needs the memory, the stream and the
//!   context of one device.
//! - A send is over when it is received: no buffer of NCCL hides that two ranks wait for each other.
//! - Communicators do not block: joining, groups and leaving are in progress for some polls. Operations of a group are
//!   enqueued after the last of these, and a call meanwhile is an error. So are sends outside of a group, and destroying a
//!   communicator that has not left.
//! - A receive of another size than its send is an error; NCCL does not see it.
//!
//! # Devices
//! Those below [`FAULTLESS`] work. [`SILENT`], [`FULL`] and [`BROKEN`] fail, each in its own way.
//!
//! # Not modelled
//! Speed, and functions that are not used.

// The functions are called from C.
#![allow(unsafe_code)]
// Pointers come from C; their requirements are those of the documentation of each function.
#![allow(clippy::missing_safety_doc)]

mod clique;
mod driver;
mod nccl;
mod world;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};

/// Number of devices.
pub const DEVICES: usize = 16;
/// Number of devices without a fault.
pub const FAULTLESS: usize = 13;
/// A device whose sends and receives never end.
pub const SILENT: usize = 13;
/// A device without memory.
pub const FULL: usize = 14;
/// A device whose first group ends its communicator with an error.
pub const BROKEN: usize = 15;

/// Path of the library, which is built beside the test program that depends on this crate. Errors with the reason if it
/// is not there.
pub fn library() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let name = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", env!("CARGO_PKG_NAME").replace('-', "_"));
    let path = folder.join(name);
    if path.is_file() { Ok(path) } else { Err(format!("{} was not built", path.display())) }
}
