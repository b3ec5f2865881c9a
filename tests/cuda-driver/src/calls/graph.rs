//! Driver calls on graphs and stream capture.

use std::ffi::{c_uint, c_ulonglong};

use cudarc::driver::sys::CUresult;

use super::put;
use crate::driver::call;
use crate::work::Capture;

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamBeginCapture_v2(stream: usize, _mode: c_uint) -> CUresult {
    call(|driver| {
        if !driver.settings.graphs {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let stream = driver.stream(stream)?;
        if stream.capture.is_some() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        stream.capture = Some(Capture { thread: std::thread::current().id(), works: vec![], spoilt: false });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamEndCapture(stream: usize, to: *mut usize) -> CUresult {
    call(|driver| {
        let capture = driver.stream(stream)?.capture.take().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let handle = if capture.spoilt { 0 } else { driver.handle() };
        // SAFETY: the caller's contract.
        unsafe { put(to, handle) }?;
        if capture.spoilt {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        driver.graphs.insert(handle, capture.works);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphInstantiateWithFlags(
    to: *mut usize,
    graph: usize,
    _flags: c_ulonglong,
) -> CUresult {
    call(|driver| {
        driver.current_uncaptured()?;
        let works = driver.graphs.get(&graph).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let handle = driver.handle();
        driver.executables.insert(handle, works);
        // SAFETY: the caller's contract.
        unsafe { put(to, handle) }
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphLaunch(graph: usize, stream: usize) -> CUresult {
    call(|driver| {
        driver.current_uncaptured()?;
        let works = driver.executables.get(&graph).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        driver.stream(stream)?.queue.extend(works);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphExecDestroy(graph: usize) -> CUresult {
    call(|driver| {
        driver.current()?;
        driver.executables.remove(&graph).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphDestroy(graph: usize) -> CUresult {
    call(|driver| {
        driver.current()?;
        driver.graphs.remove(&graph).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    })
}
