//! Driver calls on devices, contexts and errors.

use std::ffi::{CStr, c_char, c_int, c_uint};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUresult};

use super::put;
use crate::driver::{call, context, current_context, say, set_current, start};
use crate::settings::Settings;

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuInit(_flags: c_uint) -> CUresult {
    start()
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    // May be called before `cuInit`.
    let settings = Settings::of_environment().unwrap_or_default();
    // SAFETY: the caller's contract.
    match unsafe { put(version, settings.version) } {
        Ok(()) => CUresult::CUDA_SUCCESS,
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    // SAFETY: the caller's contract.
    call(|driver| unsafe { put(count, driver.settings.devices) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    call(|driver| {
        driver.device(ordinal)?;
        // SAFETY: the caller's contract.
        unsafe { put(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) -> CUresult {
    call(|driver| {
        driver.device(device)?;
        let text = c"interpreter of PTX".to_bytes_with_nul();
        if name.is_null() || usize::try_from(len).unwrap_or(0) < text.len() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller provides room for `len` characters.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), text.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    device: CUdevice,
) -> CUresult {
    call(|driver| {
        driver.device(device)?;
        let settings = &driver.settings;
        let known = [
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, settings.capability / 10),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, settings.capability % 10),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10),
            (
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                c_int::try_from(settings.most_shared()).unwrap_or(c_int::MAX),
            ),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
            (Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
        ];
        let found = known.into_iter().find(|(known, _)| *known as c_uint == attribute);
        let Some((_, found)) = found else {
            say(&format!("attribute {attribute} of devices is not known here"));
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        };
        // SAFETY: the caller's contract.
        unsafe { put(value, found) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: *mut usize, device: CUdevice) -> CUresult {
    call(|driver| {
        driver.device(device)?.context_refs += 1;
        // SAFETY: the caller's contract.
        unsafe { put(to, context(usize::try_from(device).unwrap_or(0))) }
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult {
    call(|driver| {
        let device = driver.device(device)?;
        device.context_refs = device.context_refs.checked_sub(1).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        if device.context_refs == 0 && !device.allocations.is_empty() {
            say(&format!("{} allocations were not freed", device.allocations.len()));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSetCurrent(context: usize) -> CUresult {
    // A broken context may be made current: later calls on it fail.
    call(|_| {
        set_current(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetCurrent(to: *mut usize) -> CUresult {
    // SAFETY: the caller's contract.
    call(|_| unsafe { put(to, current_context()) })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSynchronize() -> CUresult {
    call(|driver| {
        driver.current_uncaptured()?;
        driver.finish_all()
    })
}

/// Error codes with their names and descriptions.
const ERRORS: [(CUresult, &CStr, &CStr); 22] = [
    (CUresult::CUDA_SUCCESS, c"CUDA_SUCCESS", c"no error"),
    (CUresult::CUDA_ERROR_INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (CUresult::CUDA_ERROR_OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (CUresult::CUDA_ERROR_NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (CUresult::CUDA_ERROR_NO_DEVICE, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (CUresult::CUDA_ERROR_INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (CUresult::CUDA_ERROR_INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
        c"CUDA_ERROR_NO_BINARY_FOR_GPU",
        c"no kernel image is available for execution on the device",
    ),
    (CUresult::CUDA_ERROR_INVALID_PTX, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
    (
        CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        c"the provided PTX was compiled with an unsupported toolchain.",
    ),
    (CUresult::CUDA_ERROR_INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (CUresult::CUDA_ERROR_NOT_FOUND, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (CUresult::CUDA_ERROR_NOT_READY, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (CUresult::CUDA_ERROR_LAUNCH_TIMEOUT, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated"),
    (CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
    (
        CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        c"CUDA_ERROR_ILLEGAL_INSTRUCTION",
        c"an illegal instruction was encountered",
    ),
    (CUresult::CUDA_ERROR_MISALIGNED_ADDRESS, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (CUresult::CUDA_ERROR_LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (CUresult::CUDA_ERROR_NOT_SUPPORTED, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"operation failed due to a previous error during capture",
    ),
];

/// Stores the name (`which` = 0) or the description (1) of an error.
unsafe fn describe(error: c_uint, to: *mut *const c_char, which: usize) -> CUresult {
    let found = ERRORS.iter().find(|(known, ..)| *known as c_uint == error);
    let text = found.map(|(_, name, said)| [name, said][which].as_ptr());
    // SAFETY: the caller's contract.
    match unsafe { put(to, text.unwrap_or(std::ptr::null())) } {
        Err(error) => error,
        Ok(()) if text.is_none() => CUresult::CUDA_ERROR_INVALID_VALUE,
        Ok(()) => CUresult::CUDA_SUCCESS,
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGetErrorName(error: c_uint, to: *mut *const c_char) -> CUresult {
    // SAFETY: the caller's contract.
    unsafe { describe(error, to, 0) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGetErrorString(error: c_uint, to: *mut *const c_char) -> CUresult {
    // SAFETY: the caller's contract.
    unsafe { describe(error, to, 1) }
}
