//! The functions, as `cuda.h` declares them.

// Pointers come from C: what each must be good for is said in CUDA's documentation of the function of that name.
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

/// Stores a result where the caller wants it.
///
/// # Safety
/// `to` is null, or may be written.
unsafe fn put<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: as the caller promises; it need not be initialised.
    unsafe { to.write(value) };
    Ok(())
}
