//! A CUDA driver for tests.
//!
//! A shared library with those functions of CUDA's driver that `hgnnc_exec::device::Cuda` calls. Memory is that of
//! [`hgnnc_ptx_interp`], and launches are executed by it, so that everything between the command and the driver runs on
//! machines without a GPU. A program finds it where its loader looks for `libcuda.so`: [`install`] puts it into a folder,
//! which a test names in `LD_LIBRARY_PATH` of the program that it starts. Nothing else ever loads it.
//!
//! # What it is strict about
//! - Work that was put into a stream is done when somebody waits for it, not before: memory that is used again too early,
//!   and results that are read too early, are wrong here in every run.
//! - After a fault of a kernel each call fails with the same error, as with a GPU. The fault itself is printed to the
//!   standard error, as `compute-sanitizer` would.
//! - While a stream is captured, calls that wait or allocate are refused, and end the capture.
//! - More than 48 KiB of shared memory must have been allowed for the function.
//! - Handles are numbers that are looked up: one that was released, or is of another kind, is an error.
//! - Everything that the interpreter is strict about: bounds, races, memory that nobody has written.
//!
//! # What it is not
//! Fast, or a model of time: times of events are those of the interpretation. Several streams are done one after the
//! other. Functions that nobody here calls are not there.
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

/// The library: it was built beside the program of the test, which depends on this crate. An error says why it cannot be
/// used there.
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

/// Puts the library into a folder under the name by which programs load it.
///
/// # Errors
/// As [`library`], and a folder that cannot be written.
pub fn install(folder: &Path) -> Result<(), String> {
    let library = library()?;
    let to = folder.join(format!("{DLL_PREFIX}cuda{DLL_SUFFIX}"));
    std::fs::copy(&library, &to).map_err(|error| format!("{}: {error}", to.display()))?;
    Ok(())
}
