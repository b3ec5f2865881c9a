//! State of the driver: devices and the objects created on them.

use std::alloc::Layout;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cudarc::driver::sys::CUresult;
use hgnnc_ptx_interp::{Cache, Memory, Module};

use crate::settings::Settings;
use crate::work::{Stream, Work};

/// Result of a driver call.
pub(crate) type Answer<T = ()> = Result<T, CUresult>;

/// First handle of device contexts.
const FIRST_CONTEXT: usize = 0x100;
/// First handle of all other objects.
const FIRST_HANDLE: usize = 0x1000;
/// Granularity of device allocations, in bytes.
const ALLOCATION: u64 = 512;
/// Size of the L2 cache of an H100, in bytes.
const CACHE: u64 = 50 << 20;

/// All objects created by calls.
pub(crate) struct Driver {
    pub settings: Settings,
    pub devices: Vec<Device>,
    pub streams: BTreeMap<usize, Stream>,
    pub events: HashMap<usize, Event>,
    pub modules: HashMap<usize, Loaded>,
    pub functions: HashMap<usize, Function>,
    /// Graphs and instantiated graphs.
    pub graphs: HashMap<usize, Vec<Work>>,
    pub executables: HashMap<usize, Vec<Work>>,
    /// Pinned host memory, by address.
    pub pinned: BTreeMap<usize, Layout>,
    next: usize,
}

pub(crate) struct Device {
    /// Reference count of the primary context.
    pub context_refs: u32,
    pub memory: Memory,
    pub cache: Cache,
    /// Number of launches so far.
    pub launches: u64,
    /// Addresses and sizes of the allocations.
    pub allocations: HashMap<u64, u64>,
    /// Sticky error of the context: every later call fails with it.
    pub broken: Option<CUresult>,
}

#[derive(Default)]
pub(crate) struct Event {
    /// Stream and number of its last record, if any.
    pub asked: Option<(usize, u64)>,
    /// The last completed record, and its time.
    pub reached: Option<(u64, Instant)>,
}

/// A module on a device.
pub(crate) struct Loaded {
    pub device: usize,
    pub module: Module,
}

/// A kernel of a module.
pub(crate) struct Function {
    pub module: usize,
    pub kernel: String,
    /// Allowed dynamic shared memory of a launch, in bytes.
    pub max_dynamic_smem: usize,
}

impl Device {
    fn new() -> Self {
        Self {
            context_refs: 0,
            memory: Memory::new(),
            cache: Cache::new(CACHE),
            launches: 0,
            allocations: HashMap::new(),
            broken: None,
        }
    }

    /// Number of allocated bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocations.values().map(|bytes| bytes.next_multiple_of(ALLOCATION)).sum()
    }
}

impl Driver {
    fn new(settings: Settings) -> Self {
        let devices = (0..settings.devices).map(|_| Device::new()).collect();
        Self {
            settings,
            devices,
            streams: BTreeMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashMap::new(),
            executables: HashMap::new(),
            pinned: BTreeMap::new(),
            next: FIRST_HANDLE,
        }
    }

    /// A fresh handle; handles are never reused.
    pub fn handle(&mut self) -> usize {
        self.next += 0x10;
        self.next
    }

    /// The device of an ordinal; an error if there is none.
    pub fn device(&mut self, number: i32) -> Answer<&mut Device> {
        let device = usize::try_from(number).ok().and_then(|number| self.devices.get_mut(number));
        device.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    /// Ordinal of the device of this thread's current context; an error if that is broken or missing.
    pub fn current(&self) -> Answer<usize> {
        let number = CURRENT.get().checked_sub(FIRST_CONTEXT).filter(|&number| number < self.devices.len());
        let number = number.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        match self.devices[number] {
            Device { context_refs: 0, .. } => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            Device { broken: Some(error), .. } => Err(error),
            _ => Ok(number),
        }
    }

    /// As [`Driver::current`], for calls that synchronize, allocate or load: they invalidate a capture.
    pub fn current_uncaptured(&mut self) -> Answer<usize> {
        let thread = std::thread::current().id();
        let mut captured = false;
        for stream in self.streams.values_mut() {
            if let Some(capture) = stream.capture.as_mut().filter(|capture| capture.thread == thread) {
                (capture.spoilt, captured) = (true, true);
            }
        }
        if captured { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { self.current() }
    }
}

/// Handle of a device's context.
pub(crate) fn context(number: usize) -> usize {
    FIRST_CONTEXT + number
}

thread_local! {
    /// Current context of this thread; 0: none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Sets the current context of this thread.
pub(crate) fn set_current(context: usize) {
    CURRENT.set(context);
}

/// The current context of this thread.
pub(crate) fn current_context() -> usize {
    CURRENT.get()
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

/// Initialises the driver, once.
pub(crate) fn start() -> CUresult {
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    if driver.is_none() {
        match Settings::of_environment() {
            Ok(settings) if settings.devices == 0 => return CUresult::CUDA_ERROR_NO_DEVICE,
            Ok(settings) => *driver = Some(Driver::new(settings)),
            Err(reason) => {
                say(&reason);
                return CUresult::CUDA_ERROR_INVALID_VALUE;
            }
        }
    }
    CUresult::CUDA_SUCCESS
}

/// Runs a call on the driver's state.
pub(crate) fn call(f: impl FnOnce(&mut Driver) -> Answer) -> CUresult {
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(driver) = driver.as_mut() else { return CUresult::CUDA_ERROR_NOT_INITIALIZED };
    // A panic must not unwind into C.
    match catch_unwind(AssertUnwindSafe(|| f(driver))) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(error)) => error,
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// Prints details that no error code of the driver can carry.
pub(crate) fn say(what: &str) {
    eprintln!("CUDA driver for tests: {what}");
}
