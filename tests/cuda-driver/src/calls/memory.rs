//! Driver calls on device memory, pinned host memory and copies.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_uchar, c_uint, c_void};

use cudarc::driver::sys::{CUdeviceptr, CUresult};

use super::put;
use crate::driver::{Answer, Driver, call};
use crate::work::{HostMemory, Source, Work};

/// Alignment of pinned memory: a page.
const PAGE: usize = 4096;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    call(|driver| {
        let device = driver.current()?;
        let (all, taken) = (driver.settings.memory, driver.devices[device].allocated_bytes());
        // SAFETY: the caller's contract.
        unsafe {
            put(free, all.saturating_sub(taken) as usize)?;
            put(total, all as usize)
        }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemAlloc_v2(to: *mut CUdeviceptr, bytes: usize) -> CUresult {
    call(|driver| {
        let number = driver.current_uncaptured()?;
        if bytes == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let all = driver.settings.memory;
        let device = &mut driver.devices[number];
        if bytes as u64 > all.saturating_sub(device.allocated_bytes()) {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let at = device.memory.alloc("an allocation", bytes, 256);
        device.allocations.insert(at, bytes as u64);
        // SAFETY: the caller's contract.
        unsafe { put(to, at) }
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemFree_v2(at: CUdeviceptr) -> CUresult {
    call(|driver| {
        let number = driver.current_uncaptured()?;
        // `cuMemFree` synchronizes, as on a GPU.
        driver.finish_all()?;
        let device = &mut driver.devices[number];
        device.allocations.remove(&at).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        device.memory.free(at).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, _flags: c_uint) -> CUresult {
    call(|driver| {
        driver.current_uncaptured()?;
        let layout = Layout::from_size_align(bytes, PAGE).ok().filter(|layout| layout.size() > 0);
        let layout = layout.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the layout has a non-zero size.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        driver.pinned.insert(at.expose_provenance(), layout);
        // SAFETY: the caller's contract.
        unsafe { put(to, at.cast()) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemFreeHost(at: *mut c_void) -> CUresult {
    call(|driver| {
        driver.current_uncaptured()?;
        driver.finish_all()?;
        let layout = driver.pinned.remove(&at.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: it was allocated with this layout, and the caller no longer uses it.
        unsafe { dealloc(at.cast(), layout) };
        Ok(())
    })
}

impl Driver {
    /// Whether the range lies in pinned memory.
    fn is_pinned(&self, memory: HostMemory) -> bool {
        let below = self.pinned.range(..=memory.at).next_back();
        below.is_some_and(|(&at, layout)| memory.at + memory.bytes <= at + layout.size())
    }

    /// The source of an upload: pageable memory is copied at the call.
    fn source(&self, memory: HostMemory) -> Source {
        if self.is_pinned(memory) { Source::Pinned(memory) } else { Source::Kept(memory.read()) }
    }
}

fn host(at: *const c_void, bytes: usize) -> Answer<HostMemory> {
    if at.is_null() && bytes > 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(HostMemory { at: at.expose_provenance(), bytes })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: usize,
) -> CUresult {
    call(|driver| {
        let from = driver.source(host(from, bytes)?);
        driver.put(stream, Work::Upload { to, from })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: usize,
) -> CUresult {
    call(|driver| {
        let to = host(to, bytes)?;
        if !driver.is_pinned(to) {
            // Synchronous, as on a GPU: the copy completes before the call returns.
            driver.current_uncaptured()?;
            driver.put(stream, Work::Download { to, from })?;
            return driver.finish(stream);
        }
        driver.put(stream, Work::Download { to, from })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyDtoDAsync_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: usize,
) -> CUresult {
    call(|driver| driver.put(stream, Work::Copy { to, from, bytes }))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemsetD8Async(at: CUdeviceptr, value: c_uchar, bytes: usize, stream: usize) -> CUresult {
    call(|driver| driver.put(stream, Work::Fill { at, bytes, value }))
}
