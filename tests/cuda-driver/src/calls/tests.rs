//! The checks of the driver.

use std::ffi::{CString, c_void};
use std::ptr;

use cudarc::driver::sys::{CUfunction_attribute, CUresult};

use super::device::{cuCtxSetCurrent, cuDevicePrimaryCtxRetain, cuInit};
use super::graph::{cuGraphInstantiateWithFlags, cuGraphLaunch, cuStreamBeginCapture_v2, cuStreamEndCapture};
use super::kernel::{cuFuncSetAttribute, cuLaunchKernel, cuModuleGetFunction, cuModuleLoadDataEx};
use super::memory::{cuMemAlloc_v2, cuMemHostAlloc, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2};
use super::stream::{cuEventCreate, cuEventElapsedTime, cuEventRecord, cuEventSynchronize, cuStreamCreate};

const DONE: CUresult = CUresult::CUDA_SUCCESS;

/// Sets the last word of dynamic shared memory to 5, and adds it to a number.
const TEXT: &str = ".version 7.8
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 shared[];
.visible .entry add(.param .u64 to, .param .u32 last) {
    .reg .b64 %to;
    .reg .b32 %r<4>;
    ld.param.u64 %to, [to];
    ld.param.u32 %r0, [last];
    mov.u32 %r1, shared;
    add.u32 %r1, %r1, %r0;
    st.shared.u32 [%r1], 5;
    ld.shared.u32 %r2, [%r1];
    ld.global.u32 %r3, [%to];
    add.u32 %r3, %r3, %r2;
    st.global.u32 [%to], %r3;
    ret;
}";

/// A context with a stream, the kernel, and a number on the device.
struct Here {
    stream: usize,
    add: usize,
    number: u64,
}

impl Here {
    fn new() -> Here {
        let (mut context, mut stream, mut module, mut add, mut number) = (0, 0, 0, 0, 0);
        let text = CString::new(TEXT).expect("no zeros");
        assert_eq!(cuInit(0), DONE);
        // SAFETY: all pointers are to live variables, the text is zero-terminated, and there are no options.
        unsafe {
            assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), DONE);
            assert_eq!(cuCtxSetCurrent(context), DONE);
            assert_eq!(cuStreamCreate(&raw mut stream, 0), DONE);
            assert_eq!(cuModuleLoadDataEx(&raw mut module, text.as_ptr(), 0, ptr::null(), ptr::null()), DONE);
            assert_eq!(cuModuleGetFunction(&raw mut add, module, c"add".as_ptr()), DONE);
            assert_eq!(cuMemAlloc_v2(&raw mut number, 4), DONE);
        }
        Here { stream, add, number }
    }

    fn launch(&self, shared: u32) -> CUresult {
        let (mut to, mut last) = (self.number, shared - 4);
        let mut params = [(&raw mut to).cast::<c_void>(), (&raw mut last).cast()];
        // SAFETY: `params` has one pointer per parameter.
        unsafe { cuLaunchKernel(self.add, 1, 1, 1, 1, 1, 1, shared, self.stream, params.as_mut_ptr(), ptr::null_mut()) }
    }

    fn upload(&self, from: *const u32) {
        // SAFETY: `from` points to a number.
        assert_eq!(unsafe { cuMemcpyHtoDAsync_v2(self.number, from.cast(), 4, self.stream) }, DONE);
    }

    fn download(&self) -> u32 {
        let mut number = 0u32;
        // SAFETY: the destination is a number.
        let done = unsafe { cuMemcpyDtoHAsync_v2((&raw mut number).cast(), self.number, 4, self.stream) };
        assert_eq!(done, DONE);
        number
    }
}

#[test]
fn much_shared_memory_must_be_allowed_first() {
    let here = Here::new();
    here.upload(&7);
    assert_eq!(here.launch(48 << 10), DONE);
    assert_eq!(here.launch(64 << 10), CUresult::CUDA_ERROR_INVALID_VALUE);
    let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
    assert_eq!(cuFuncSetAttribute(here.add, most, 1 << 20), CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cuFuncSetAttribute(here.add, most, 64 << 10), DONE);
    assert_eq!(here.launch(64 << 10), DONE);
    assert_eq!(here.download(), 17);
}

#[test]
fn memory_for_copies_is_read_when_the_copy_is_made() {
    let here = Here::new();
    let mut pinned = ptr::null_mut::<c_void>();
    // SAFETY: the pointer is to a live variable.
    assert_eq!(unsafe { cuMemHostAlloc(&raw mut pinned, 4, 0) }, DONE);
    let pinned = pinned.cast::<u32>();
    // SAFETY: four bytes were allocated there, without other writers.
    unsafe { pinned.write(1) };
    here.upload(pinned);
    // SAFETY: as above.
    unsafe { pinned.write(2) };
    assert_eq!(here.download(), 2, "the copy was not waited for");
    let mut other = 3u32;
    here.upload(&raw const other);
    other += 1;
    assert_eq!((here.download(), other), (3, 4), "other memory is read at once");
}

#[test]
fn events_complete_on_synchronization() {
    let here = Here::new();
    let (mut first, mut last, mut ms) = (0, 0, 0.0);
    here.upload(&0);
    // SAFETY: all pointers are to live variables.
    unsafe {
        assert_eq!(cuEventCreate(&raw mut first, 0), DONE);
        assert_eq!(cuEventCreate(&raw mut last, 0), DONE);
        assert_eq!(cuEventRecord(first, here.stream), DONE);
        assert_eq!(here.launch(64), DONE);
        assert_eq!(cuEventRecord(last, here.stream), DONE);
        assert_eq!(cuEventElapsedTime(&raw mut ms, first, last), CUresult::CUDA_ERROR_NOT_READY);
        assert_eq!(cuEventSynchronize(last), DONE);
        assert_eq!(cuEventElapsedTime(&raw mut ms, first, last), DONE);
    }
    assert!(ms > 0.0);
}

#[test]
fn a_graph_does_what_was_captured_as_often_as_it_is_launched() {
    let here = Here::new();
    here.upload(&1);
    let (mut graph, mut executable, mut at) = (0, 0, 0);
    // SAFETY: all pointers are to live variables.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(here.stream, 1), DONE);
        assert_eq!(here.launch(64), DONE);
        assert_eq!(here.launch(64), DONE);
        assert_eq!(cuStreamEndCapture(here.stream, &raw mut graph), DONE);
        assert_eq!(here.download(), 1, "nothing was executed");
        assert_eq!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0), DONE);
        assert_eq!(cuGraphLaunch(executable, here.stream), DONE);
        assert_eq!(cuGraphLaunch(executable, here.stream), DONE);
        assert_eq!(here.download(), 21);

        assert_eq!(cuStreamBeginCapture_v2(here.stream, 1), DONE);
        assert_eq!(cuMemAlloc_v2(&raw mut at, 4), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(cuStreamEndCapture(here.stream, &raw mut graph), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
}
