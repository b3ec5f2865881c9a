//! An NVIDIA GPU through the CUDA driver, loaded on first use, so that programs build and run on machines without it.

// The driver is foreign code and its handles are pointers: each call states why it is sound.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use hgnnc_data::{ExecError, Result};
use hgnnc_executable::gpu::{THREADS, Target};
use hgnnc_graph::show_bytes;

use crate::{Device, Launch, Sequence};

/// Oldest driver API version that loads the emitted PTX: 1000 · major + 10 · minor.
const MIN_DRIVER_VERSION: c_int = 11080;
/// Largest asynchronous upload in bytes: most graphs of a mini-batch are smaller.
const STAGING: usize = 1 << 20;
/// Asynchronous uploads that may be on their way.
const MOST_STAGED: usize = 16;
/// Bytes for the log of the driver's compiler.
const LOG: usize = 16 << 10;
/// Above this a kernel needs `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DEFAULT_MAX_DYNAMIC_SMEM: usize = 48 << 10;
/// Largest grid of a launch.
const MAX_GRID_BLOCKS: usize = i32::MAX as usize;

/// An NVIDIA GPU. All work goes to one stream, so it executes in issue order.
#[derive(Debug)]
pub struct Cuda {
    name: String,
    target: Target,
    /// Maximum dynamic shared memory of a block, in bytes.
    most_shared: usize,
    device: sys::CUdevice,
    // Null until created; `Drop` releases only what exists, also if opening fails half way.
    context: sys::CUcontext,
    stream: sys::CUstream,
    modules: Vec<sys::CUmodule>,
    memory: Vec<sys::CUdeviceptr>,
    sequences: Vec<Prepared>,
    /// [`MOST_STAGED`] times [`STAGING`] bytes of pinned host memory, used in turn.
    staging: *mut c_void,
    /// Recorded after the last upload from each part of the staging memory.
    staged: [sys::CUevent; MOST_STAGED],
    /// The next part of the staging memory.
    next_staged: usize,
    /// Recorded before the first sequence since the last time query, and after the last one.
    clock: [sys::CUevent; 2],
    /// Whether the first event has been recorded.
    running: bool,
    /// Whether every launch is synchronized, as with `CUDA_LAUNCH_BLOCKING=1`.
    blocking: bool,
}

// SAFETY: the driver's handles belong to a context, not to a thread, and every method makes the context current first.
unsafe impl Send for Cuda {}

/// A sequence with its functions. Its first execution synchronizes after each launch, so that most kernel errors are
/// attributed to the right kernel.
#[derive(Debug)]
struct Prepared {
    launches: Vec<(sys::CUfunction, Launch)>,
    /// Whether it has been executed.
    done: bool,
    /// Graph of all launches. Null before the first execution, and if capture fails.
    graph: sys::CUgraphExec,
}

impl Cuda {
    /// Whether a CUDA driver is installed, which everything here needs.
    pub fn driver_is_present() -> bool {
        // SAFETY: opens the library and closes it again; a driver's library may be loaded by any program.
        unsafe { sys::is_culib_present() }
    }

    /// Opens the device with this number.
    ///
    /// # Errors
    /// No driver, a too old driver, no such device, or a too old device.
    pub fn open(number: u32) -> Result<Self> {
        let name = format!("cuda:{number}");
        let failed = |reason: String| ExecError::Device { device: name.clone(), reason };
        let asked = |what: &'static str| move |error| failed_to(&format!("cuda:{number}"), what, error);
        if !Self::driver_is_present() {
            return Err(failed("there is no NVIDIA driver on this machine (libcuda was not found)".into()));
        }
        let mut version = 0;
        // SAFETY: the library is loaded, and `version` is a valid out-pointer.
        unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(asked("tell its version"))?;
        if version < MIN_DRIVER_VERSION {
            let show = |version: c_int| format!("{}.{}", version / 1000, version % 1000 / 10);
            return Err(failed(format!(
                "the driver is for CUDA {}; CUDA {} is needed",
                show(version),
                show(MIN_DRIVER_VERSION)
            )));
        }
        result::init().map_err(asked("start"))?;
        let count = result::device::get_count().map_err(asked("count devices"))?;
        let ordinal = c_int::try_from(number).ok().filter(|&number| number < count);
        let Some(ordinal) = ordinal else {
            return Err(failed(match count {
                0 => "there is no device".into(),
                1 => "there is no such device: only cuda:0".into(),
                _ => format!("there is no such device: cuda:0 to cuda:{}", count - 1),
            }));
        };
        let device = result::device::get(ordinal).map_err(asked("find the device"))?;
        let model = result::device::get_name(device).map_err(asked("tell its name"))?;
        let attribute = |which| {
            // SAFETY: the driver has just named this device.
            unsafe { result::device::get_attribute(device, which) }.map_err(asked("tell what it can do"))
        };
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        };
        let target = match attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? {
            9.. => Target::SM_90,
            8 => Target::SM_80,
            major => {
                let minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
                return Err(failed(format!("{model} has compute capability {major}.{minor}; 8.0 is needed")));
            }
        };
        let most_shared = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let mut it = Self {
            name: format!("{name} ({model})"),
            target,
            most_shared: usize::try_from(most_shared).unwrap_or(0),
            device,
            context: ptr::null_mut(),
            stream: ptr::null_mut(),
            modules: vec![],
            memory: vec![],
            sequences: vec![],
            staging: ptr::null_mut(),
            staged: [ptr::null_mut(); MOST_STAGED],
            next_staged: 0,
            clock: [ptr::null_mut(); 2],
            running: false,
            blocking: std::env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|asked| asked == "1"),
        };
        // SAFETY: the driver has named this device; `Drop` releases the context retained here.
        it.context = unsafe { result::primary_ctx::retain(device) }.map_err(asked("make a context"))?;
        it.enter()?;
        let kind = result::stream::StreamKind::NonBlocking;
        it.stream = result::stream::create(kind).map_err(asked("make a stream"))?;
        // SAFETY: a context is current; the memory is used as bytes, and only where they were written.
        it.staging =
            unsafe { result::malloc_host(MOST_STAGED * STAGING, 0) }.map_err(asked("allocate memory for uploads"))?;
        for event in it.staged.iter_mut().chain(&mut it.clock) {
            *event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(asked("make an event"))?;
        }
        Ok(it)
    }

    /// Makes the context current on this thread, as every driver call requires.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context was retained, and is released when this value is dropped.
        unsafe { result::ctx::set_current(self.context) }.map_err(|error| self.failed("enter its context", error))
    }

    fn failed(&self, asked: &str, error: DriverError) -> ExecError {
        failed_to(&self.name, asked, error)
    }

    /// Synchronizes the stream. An asynchronous kernel error cannot be attributed to a kernel.
    fn synchronize(&self, asked: &str) -> Result<()> {
        self.await_stream().map_err(|error| self.failed_before(asked, error))
    }

    fn await_stream(&self) -> std::result::Result<(), DriverError> {
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.stream) }
    }

    /// An error that may come from an earlier asynchronous launch.
    fn failed_before(&self, asked: &str, error: DriverError) -> ExecError {
        match self.failed(asked, error) {
            ExecError::Device { device, reason } if is_of_kernel(error) && !self.blocking => {
                let hint = "a kernel failed; with CUDA_LAUNCH_BLOCKING=1 in the environment, its name is told";
                ExecError::Device { device, reason: format!("{reason}; {hint}") }
            }
            error => error,
        }
    }

    fn record(&self, event: sys::CUevent) -> Result<()> {
        // SAFETY: event and stream are alive and of the same context.
        unsafe { result::event::record(event, self.stream) }.map_err(|error| self.failed("note the time", error))
    }

    /// Milliseconds between two completed events.
    fn between(&self, first: sys::CUevent, last: sys::CUevent) -> Result<f64> {
        // SAFETY: both are alive, were recorded in this stream, and can measure time.
        let ms = unsafe { result::event::elapsed(first, last) };
        ms.map(f64::from).map_err(|error| self.failed("tell the time", error))
    }

    /// Enqueues a kernel on the stream.
    fn launch(&self, function: sys::CUfunction, launch: &Launch) -> std::result::Result<(), DriverError> {
        // `prepare` and `resize` have checked the limits.
        let (blocks, shared) = (launch.blocks as c_uint, launch.shared as c_uint);
        // SAFETY: the function belongs to a module that stays loaded, and takes no arguments: it accesses only
        // addresses in the table of its module, all of it memory of this device that lives as long.
        unsafe {
            result::launch_kernel(function, (blocks, 1, 1), (THREADS as c_uint, 1, 1), shared, self.stream, &mut [])
        }
    }

    /// Launches a kernel and synchronizes, so that its error is reported here.
    fn launch_and_wait(&self, function: sys::CUfunction, launch: &Launch) -> Result<()> {
        self.launch(function, launch).map_err(|error| self.failed(&launching(launch), error))?;
        self.await_stream().map_err(|error| self.failed(&format!("execute {}", launch.describe()), error))
    }

    fn launch_all(&self, launches: &[(sys::CUfunction, Launch)]) -> Result<()> {
        for (function, launch) in launches {
            self.launch(*function, launch).map_err(|error| self.failed(&launching(launch), error))?;
        }
        Ok(())
    }

    /// Marks a sequence as executed launch by launch, and captures it as a graph.
    fn has_executed(&mut self, sequence: usize) {
        let Prepared { launches, done, .. } = &self.sequences[sequence];
        if *done || self.blocking {
            return;
        }
        let graph = if launches.len() > 1 { self.capture(launches) } else { ptr::null_mut() };
        let prepared = &mut self.sequences[sequence];
        (prepared.done, prepared.graph) = (true, graph);
    }

    fn check_grid(&self, launch: &Launch, blocks: usize) -> Result<()> {
        if blocks <= MAX_GRID_BLOCKS {
            return Ok(());
        }
        let launch = Launch { blocks, ..launch.clone() };
        let reason = format!("cannot {}: {MAX_GRID_BLOCKS} are the most", launching(&launch));
        Err(ExecError::Device { device: self.name.clone(), reason })
    }

    /// Looks up the function of a launch and raises its dynamic shared memory limit if needed.
    fn function(&self, module: usize, launch: &Launch) -> Result<sys::CUfunction> {
        let refused = |reason: String| ExecError::Device { device: self.name.clone(), reason };
        self.check_grid(launch, launch.blocks)?;
        if launch.shared > self.most_shared {
            let most = show_bytes(self.most_shared as u64);
            return Err(refused(format!("cannot {}: a block has at most {most}", launching(launch))));
        }
        let name = CString::new(&launch.name[..])
            .map_err(|_| refused(format!("`{}` is not the name of a kernel", launch.name)))?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.modules[module], name) }
            .map_err(|error| self.failed(&format!("find the kernel `{}`", launch.name), error))?;
        if launch.shared > DEFAULT_MAX_DYNAMIC_SMEM {
            use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MOST_DYNAMIC;
            // At most the device limit, which was a `c_int`.
            let bytes = launch.shared as c_int;
            // SAFETY: the function has just been found in a module that stays loaded.
            unsafe { result::function::set_function_attribute(function, MOST_DYNAMIC, bytes) }
                .map_err(|error| self.failed(&format!("prepare to {}", launching(launch)), error))?;
        }
        Ok(function)
    }

    /// Looks up the functions of a sequence.
    fn functions(&self, sequence: Sequence) -> Result<Vec<(sys::CUfunction, Launch)>> {
        self.enter()?;
        let of = |launch: Launch| Ok((self.function(sequence.module, &launch)?, launch));
        sequence.launches.into_iter().map(of).collect()
    }

    /// Captures launches as a graph. Null if the driver refuses, which is no error: they are then launched separately,
    /// and errors are reported there.
    fn capture(&self, launches: &[(sys::CUfunction, Launch)]) -> sys::CUgraphExec {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive, and no other capture is active.
        if unsafe { result::stream::begin_capture(self.stream, mode) }.is_err() {
            return ptr::null_mut();
        }
        let launched = launches.iter().try_for_each(|(function, launch)| self.launch(*function, launch));
        // SAFETY: the capture began above, in this thread. It also ends if a launch was refused.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        let Some(graph) = graph.ok().filter(|graph| !graph.is_null()) else { return ptr::null_mut() };
        // SAFETY: the graph was captured above, and all memory that its kernels use stays alive.
        let ready =
            launched.and_then(|()| unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) });
        // SAFETY: the graph is not used any more; the instantiated graph is independent.
        let _ = unsafe { result::graph::destroy(graph) };
        ready.unwrap_or(ptr::null_mut())
    }
}

/// An error with the failed request and the driver's message.
fn failed_to(device: &str, asked: &str, error: DriverError) -> ExecError {
    let said = |text: std::result::Result<&std::ffi::CStr, DriverError>| match text {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => format!("error {}", error.0 as i64),
    };
    let reason = format!("cannot {asked}: {} ({})", said(error.error_string()), said(error.error_name()));
    ExecError::Device { device: device.into(), reason }
}

fn launching(launch: &Launch) -> String {
    format!("launch {}", launch.describe())
}

/// Whether a running kernel causes this error.
fn is_of_kernel(DriverError(error): DriverError) -> bool {
    use sys::CUresult::{
        CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_MISALIGNED_ADDRESS,
    };
    matches!(
        error,
        CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_MISALIGNED_ADDRESS
    )
}

impl Device for Cuda {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn target(&self) -> Target {
        self.target
    }

    fn free_bytes(&self) -> Option<u64> {
        self.enter().ok()?;
        result::mem_get_info().ok().map(|(free, _)| free as u64)
    }

    fn load(&mut self, module: &hgnnc_executable::gpu::Module) -> Result<usize> {
        self.enter()?;
        let refused = |reason: String| ExecError::Device { device: self.name.clone(), reason };
        let text = CString::new(&module.text[..]).map_err(|_| refused("the PTX contains a zero".into()))?;
        let mut log = vec![0u8; LOG];
        let mut options =
            [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The second value is an integer passed as a pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG)];
        let mut loaded = ptr::null_mut();
        // SAFETY: a context is current; the text is zero-terminated; there are two options with a value each, and the
        // log is as long as the second one says. All outlive the call.
        let done = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut loaded,
                text.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        done.result().map_err(|error| {
            let length = log.iter().position(|&byte| byte == 0).unwrap_or(LOG);
            let log = String::from_utf8_lossy(&log[..length]);
            let asked = format!("load {} bytes of PTX", module.text.len());
            match failed_to(&self.name, &asked, error) {
                ExecError::Device { device, reason } if !log.trim().is_empty() => {
                    ExecError::Device { device, reason: format!("{reason}\n{}", log.trim()) }
                }
                error => error,
            }
        })?;
        self.modules.push(loaded);
        Ok(self.modules.len() - 1)
    }

    fn set_table(&mut self, module: usize, table: &[u64]) -> Result<()> {
        self.enter()?;
        // SAFETY: the module is loaded.
        let found = unsafe { result::module::get_global(self.modules[module], c"table".to_owned()) };
        let (address, bytes) = found.map_err(|error| self.failed("find the table of a module", error))?;
        let table: &[u8] = bytemuck::cast_slice(table);
        if table.len() > bytes {
            let reason = format!("the table of a module has {bytes} bytes instead of {}", table.len());
            return Err(ExecError::Device { device: self.name.clone(), reason });
        }
        self.upload(address, table)
    }

    fn alloc(&mut self, what: &str, bytes: usize) -> Result<u64> {
        self.enter()?;
        // SAFETY: a context is current; the memory is freed when this value is dropped.
        let at = unsafe { result::malloc_sync(bytes) }.map_err(|error| {
            let free = self.free_bytes().map(|free| format!(", with {} free", show_bytes(free))).unwrap_or_default();
            self.failed(&format!("allocate {} for {what}{free}", show_bytes(bytes as u64)), error)
        })?;
        self.memory.push(at);
        Ok(at)
    }

    fn free(&mut self, at: u64) -> Result<()> {
        self.enter()?;
        self.synchronize("free memory")?;
        self.memory.retain(|&other| other != at);
        // SAFETY: it was allocated by `alloc`, and everything that uses it has been executed.
        unsafe { result::free_sync(at) }.map_err(|error| self.failed("free memory", error))
    }

    fn clear(&mut self, at: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: the range was allocated by `alloc`.
        unsafe { result::memset_d8_async(at, 0, bytes, self.stream) }
            .map_err(|error| self.failed(&format!("clear {}", show_bytes(bytes as u64)), error))
    }

    fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.enter()?;
        let asked = || format!("copy {} to it", show_bytes(bytes.len() as u64));
        if bytes.len() > STAGING {
            // SAFETY: the range was allocated by `alloc`, and `bytes` is borrowed until the copy is done.
            unsafe { result::memcpy_htod_async(to, bytes, self.stream) }
                .map_err(|error| self.failed(&asked(), error))?;
            return self.synchronize(&asked());
        }
        let part = self.next_staged;
        self.next_staged = (part + 1) % MOST_STAGED;
        // SAFETY: the event is alive; an event that was never recorded counts as complete.
        unsafe { result::event::synchronize(self.staged[part]) }
            .map_err(|error| self.failed_before(&asked(), error))?;
        // SAFETY: the part is larger than `bytes`, not shared, and the device has finished reading it.
        let staged = unsafe {
            let at = self.staging.cast::<u8>().add(part * STAGING);
            ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            std::slice::from_raw_parts(at, bytes.len())
        };
        // SAFETY: the range was allocated by `alloc`; the staging memory is not written before the event completes.
        unsafe { result::memcpy_htod_async(to, staged, self.stream) }.map_err(|error| self.failed(&asked(), error))?;
        self.record(self.staged[part])
    }

    fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: both ranges were allocated by `alloc`.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }
            .map_err(|error| self.failed_before(&format!("copy {} within it", show_bytes(bytes as u64)), error))
    }

    fn download(&mut self, from: u64, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.enter()?;
        let asked = format!("copy {} from it", show_bytes(bytes.len() as u64));
        // SAFETY: the range was allocated by `alloc`, and `bytes` are borrowed until the copy is done.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.stream) }
            .map_err(|error| self.failed_before(&asked, error))?;
        self.synchronize(&asked)
    }

    fn prepare(&mut self, sequence: Sequence) -> Result<usize> {
        let launches = self.functions(sequence)?;
        self.sequences.push(Prepared { launches, done: false, graph: ptr::null_mut() });
        Ok(self.sequences.len() - 1)
    }

    fn resize(&mut self, sequence: usize, blocks: &[usize]) -> Result<()> {
        let prepared = &self.sequences[sequence];
        assert_eq!(prepared.launches.len(), blocks.len(), "each launch has its blocks");
        for ((_, launch), &blocks) in prepared.launches.iter().zip(blocks) {
            self.check_grid(launch, blocks)?;
        }
        if !prepared.graph.is_null() {
            self.enter()?;
            self.synchronize("replace its launches")?;
            // SAFETY: the graph was instantiated by `capture`, and is executed by nothing any more.
            let _ = unsafe { result::graph::exec_destroy(prepared.graph) };
        }
        let Prepared { launches, done, graph } = &mut self.sequences[sequence];
        for ((_, launch), &blocks) in launches.iter_mut().zip(blocks) {
            launch.resize(blocks);
        }
        (*done, *graph) = (!self.blocking, ptr::null_mut());
        Ok(())
    }

    fn restart_clock(&mut self) {
        self.running = false;
    }

    fn run(&mut self, sequence: usize) -> Result<()> {
        self.enter()?;
        if !self.running {
            self.record(self.clock[0])?;
            self.running = true;
        }
        let Prepared { launches, done, graph } = &self.sequences[sequence];
        if !done {
            for (function, launch) in launches {
                self.launch_and_wait(*function, launch)?;
            }
            self.record(self.clock[1])?;
            self.has_executed(sequence);
            return Ok(());
        }
        if graph.is_null() {
            self.launch_all(launches)?;
        } else {
            // SAFETY: the graph was instantiated from this stream, and all memory that its kernels use is alive.
            unsafe { result::graph::launch(*graph, self.stream) }
                .map_err(|error| self.failed(&format!("launch {} kernels", launches.len()), error))?;
        }
        self.record(self.clock[1])
    }

    fn wait(&mut self) -> Result<()> {
        self.enter()?;
        self.synchronize("do what it was asked")
    }

    fn elapsed_ms(&mut self) -> Result<Option<f64>> {
        self.wait()?;
        if !std::mem::take(&mut self.running) {
            return Ok(None);
        }
        self.between(self.clock[0], self.clock[1]).map(Some)
    }

    fn run_timed(&mut self, sequence: usize) -> Result<Option<Vec<f64>>> {
        self.enter()?;
        let Prepared { launches, .. } = &self.sequences[sequence];
        let mut times = vec![];
        for (function, launch) in launches {
            let [first, last] = self.clock;
            self.record(first)?;
            self.launch(*function, launch).map_err(|error| self.failed(&launching(launch), error))?;
            self.record(last)?;
            self.await_stream().map_err(|error| self.failed(&format!("execute {}", launch.describe()), error))?;
            times.push(self.between(first, last)?);
        }
        self.has_executed(sequence);
        Ok(Some(times))
    }
}

impl Drop for Cuda {
    /// Errors are ignored: `Drop` cannot report them, and after a sticky error every call fails.
    fn drop(&mut self) {
        if self.context.is_null() || self.enter().is_err() {
            return;
        }
        // SAFETY: all handles were created in this context, are released once, and are not used any more: the stream is
        // idle first.
        unsafe {
            if !self.stream.is_null() {
                let _ = result::stream::synchronize(self.stream);
            }
            for prepared in self.sequences.iter().filter(|prepared| !prepared.graph.is_null()) {
                let _ = result::graph::exec_destroy(prepared.graph);
            }
            for &module in &self.modules {
                let _ = result::module::unload(module);
            }
            for &at in &self.memory {
                let _ = result::free_sync(at);
            }
            if !self.staging.is_null() {
                let _ = result::free_host(self.staging);
            }
            for event in self.staged.into_iter().chain(self.clock).filter(|event| !event.is_null()) {
                let _ = result::event::destroy(event);
            }
            if !self.stream.is_null() {
                let _ = result::stream::destroy(self.stream);
            }
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_says_so() {
        if Cuda::driver_is_present() {
            println!("skipped: there is a driver");
            return;
        }
        let error = Cuda::open(0).expect_err("nothing to open");
        assert!(error.is_machine());
        assert_eq!(error.to_string(), "cuda:0: there is no NVIDIA driver on this machine (libcuda was not found)");
    }

    #[test]
    fn a_number_that_no_machine_has_is_an_error() {
        let error = Cuda::open(u32::MAX).expect_err("nothing to open");
        assert!(error.is_machine(), "{error}");
    }
}
