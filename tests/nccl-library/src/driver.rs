//! Functions of CUDA's driver, as declared in `cuda.h`.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::world::{
    Answer, CURRENT, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, Operation, Stream, code, current,
    with,
};
use crate::{DEVICES, FULL};

/// The constant `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;

fn device(number: c_int) -> Answer<usize> {
    usize::try_from(number).ok().filter(|&number| number < DEVICES).ok_or(INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: c_int, to: *mut *const c_char) -> c_int {
    let text = match code {
        INVALID_VALUE => c"invalid argument",
        OUT_OF_MEMORY => c"out of memory",
        INVALID_CONTEXT => c"invalid device context",
        INVALID_HANDLE => c"invalid resource handle",
        _ => c"an error of the library for tests",
    };
    // SAFETY: the caller's contract.
    unsafe { to.write(text.as_ptr()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(to: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { to.write(DEVICES as c_int) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(to: *mut c_int, ordinal: c_int) -> c_int {
    // SAFETY: the caller's contract.
    code("cuDeviceGet", device(ordinal).map(|_| unsafe { to.write(ordinal) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: *mut usize, number: c_int) -> c_int {
    let retain = |device: usize| {
        with(|world| world.contexts[device] += 1);
        // SAFETY: the caller's contract.
        unsafe { to.write(device + 1) };
    };
    code("cuDevicePrimaryCtxRetain", device(number).map(retain))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(number: c_int) -> c_int {
    let release = |device: usize| {
        with(|world| {
            let count = world.contexts[device].checked_sub(1).ok_or(INVALID_CONTEXT)?;
            world.contexts[device] = count;
            Ok(())
        })
    };
    code("cuDevicePrimaryCtxRelease", device(number).and_then(release))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    let is_retained = context == 0 || with(|world| world.contexts.get(context - 1).is_some_and(|&count| count > 0));
    if !is_retained {
        return code("cuCtxSetCurrent", Err(INVALID_CONTEXT));
    }
    CURRENT.set(context.checked_sub(1));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(to: *mut usize, _flags: c_uint) -> c_int {
    let create = |device| {
        let handle = with(|world| {
            let handle = world.number();
            world.streams.insert(handle, Stream { device, queue: VecDeque::new() });
            handle
        });
        // SAFETY: the caller's contract.
        unsafe { to.write(handle) };
    };
    code("cuStreamCreate", current().map(create))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: usize) -> c_int {
    let is_done = current().and_then(|_| with(|world| world.advance(stream)));
    match is_done {
        Ok(false) => NOT_READY,
        is_done => code("cuStreamQuery", is_done.map(|_| ())),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_int {
    code("cuStreamDestroy", with(|world| world.streams.remove(&stream).map(|_| ()).ok_or(INVALID_HANDLE)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> c_int {
    let allocate = |device: usize| {
        if device == FULL {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: the caller's contract.
        unsafe { to.write(with(|world| world.allocate(device, bytes))) };
        Ok(())
    };
    code("cuMemAlloc", current().and_then(allocate))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    code("cuMemFree", current().and_then(|_| with(|world| world.free(address))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, _flags: c_uint) -> c_int {
    // SAFETY: the caller's contract.
    let allocate = |device| unsafe { to.write(with(|world| world.pin(device, bytes))) };
    code("cuMemHostAlloc", current().map(allocate))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(place: *mut c_void) -> c_int {
    code("cuMemFreeHost", current().and_then(|_| with(|world| world.unpin(place.addr()))))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(address: u64, host: *const c_void, bytes: usize, stream: usize) -> c_int {
    let copy = Operation::ToDevice { host: host.expose_provenance(), address, bytes };
    code("cuMemcpyHtoDAsync", enqueue(copy, (host.addr(), address, bytes), stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(host: *mut c_void, address: u64, bytes: usize, stream: usize) -> c_int {
    let copy = Operation::ToHost { host: host.expose_provenance(), address, bytes };
    code("cuMemcpyDtoHAsync", enqueue(copy, (host.addr(), address, bytes), stream))
}

/// Enqueues a copy between pinned memory and that of the stream's device.
fn enqueue(copy: Operation, (host, address, bytes): (usize, u64, usize), stream: usize) -> Answer {
    let device = current()?;
    with(|world| {
        world.range(device, address, bytes)?;
        if !world.is_pinned(host, bytes) {
            return Err(INVALID_VALUE);
        }
        let stream = world.streams.get_mut(&stream).filter(|of| of.device == device).ok_or(INVALID_HANDLE)?;
        stream.queue.push_back(copy);
        Ok(())
    })
}
