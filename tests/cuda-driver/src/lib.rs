//! A CUDA driver for tests.
//!
//! A shared library with the functions of CUDA's driver that `hgnnc_cuda::Cuda` calls. Device memory and kernel
//! execution are those of [`hgnnc_ptx_interp`], so everything between the command and the driver runs on machines
//! without a GPU. [`install`] copies it under the name `libcuda.so` into a folder, which a test adds to
//! `LD_LIBRARY_PATH` of the program that it starts. No other program loads it.
//!
//! # Stricter than a GPU
//! - Work on a stream executes when it is synchronized, not before: premature reuse of memory and premature reads of
//!   results fail in every run.
//! - After a fault of a kernel each call fails with the same error, as on a GPU. The fault itself is printed to
//!   standard error, as by `compute-sanitizer`.
//! - During a stream capture, calls that synchronize or allocate fail and invalidate the capture.
//! - More than 48 KiB of dynamic shared memory must have been allowed for the function.
//! - Handles are validated: a released handle, or one of another kind, is an error.
//! - All checks of the interpreter: bounds, races, uninitialised memory.
//!
//! # Not modelled
//! Speed and time: event times are those of the interpretation. Streams execute one after the other. Driver functions
//! that the runtime does not call are missing.
//!
//! # Settings
//! `HGNN_TEST_DRIVER` holds settings such as `devices=2,memory=1000000`: see [`Settings`].

// The functions are called from C.
#![allow(unsafe_code)]

mod calls;
mod driver;
mod settings;
mod work;

pub use settings::Settings;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};

/// Path of the library, which is built beside the test program that depends on this crate. Errors with the reason if it
/// cannot be used there.
pub fn library() -> Result<PathBuf, String> {
    if !cfg!(target_os = "linux") {
        return Err("programs are told where to look for libraries on Linux only".into());
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let name = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", env!("CARGO_PKG_NAME").replace('-', "_"));
    let path = folder.join(name);
    if path.is_file() { Ok(path) } else { Err(format!("{} was not built", path.display())) }
}

/// Copies the library into a folder under the name by which programs load it.
///
/// # Errors
/// As [`library`], and when the folder is not writable.
pub fn install(folder: &Path) -> Result<(), String> {
    let library = library()?;
    let to = folder.join(format!("{DLL_PREFIX}cuda{DLL_SUFFIX}"));
    std::fs::copy(&library, &to).map_err(|error| format!("{}: {error}", to.display()))?;
    Ok(())
}
