//! Driver calls on streams and events.

use std::ffi::c_uint;

use cudarc::driver::sys::CUresult;

use super::put;
use crate::driver::{Event, call};
use crate::work::{Stream, Work};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamCreate(to: *mut usize, _flags: c_uint) -> CUresult {
    call(|driver| {
        let (device, handle) = (driver.current()?, driver.handle());
        driver.streams.insert(handle, Stream { device, ..Stream::default() });
        // SAFETY: the caller's contract.
        unsafe { put(to, handle) }
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamSynchronize(stream: usize) -> CUresult {
    call(|driver| {
        driver.current_uncaptured()?;
        driver.finish(stream)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamDestroy_v2(stream: usize) -> CUresult {
    call(|driver| {
        driver.current_uncaptured()?;
        driver.finish(stream)?;
        driver.streams.remove(&stream);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventCreate(to: *mut usize, _flags: c_uint) -> CUresult {
    call(|driver| {
        driver.current()?;
        let handle = driver.handle();
        driver.events.insert(handle, Event::default());
        // SAFETY: the caller's contract.
        unsafe { put(to, handle) }
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventRecord(event: usize, handle: usize) -> CUresult {
    call(|driver| {
        let stream = driver.stream(handle)?;
        if stream.capture.is_some() {
            // A GPU would record the event in each launch of the graph; not needed by the runtime, so not supported.
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        stream.records += 1;
        let number = stream.records;
        driver.events.get_mut(&event).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.asked = Some((handle, number));
        driver.put(handle, Work::Record { event, number })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventSynchronize(event: usize) -> CUresult {
    call(|driver| {
        driver.current_uncaptured()?;
        driver.reach(event)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventElapsedTime(to: *mut f32, first: usize, last: usize) -> CUresult {
    call(|driver| {
        driver.current()?;
        let when = |event: usize| {
            let event = driver.events.get(&event).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
            let (_, asked) = event.asked.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
            match event.reached {
                Some((reached, when)) if reached == asked => Ok(when),
                _ => Err(CUresult::CUDA_ERROR_NOT_READY),
            }
        };
        let (first, last) = (when(first)?, when(last)?);
        // SAFETY: the caller's contract.
        unsafe { put(to, last.saturating_duration_since(first).as_secs_f32() * 1e3) }
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventDestroy_v2(event: usize) -> CUresult {
    call(|driver| {
        driver.current()?;
        driver.events.remove(&event).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    })
}
