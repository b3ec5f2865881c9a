//! The exported functions, as declared in `cuda.h`.

// Pointers come from C; their requirements are those of CUDA's documentation of each function.
#![allow(clippy::missing_safety_doc)]

mod device;
mod graph;
mod kernel;
mod memory;
mod stream;
#[cfg(test)]
mod tests;

use cudarc::driver::sys::CUresult;

use crate::driver::Answer;

/// Stores a result through an output pointer.
///
/// # Safety
/// `to` is null or writable.
unsafe fn put<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's contract; `to` need not be initialised.
    unsafe { to.write(value) };
    Ok(())
}
