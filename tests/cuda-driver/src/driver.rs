//! The state of the driver: devices, and what was made on them.

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

/// What a call of the driver comes to.
pub(crate) type Answer<T = ()> = Result<T, CUresult>;

/// The contexts of devices have handles from here on.
const FIRST_CONTEXT: usize = 0x100;
/// All other handles begin here.
const FIRST_HANDLE: usize = 0x1000;
/// What each allocation is a multiple of.
const ALLOCATION: u64 = 512;
/// Bytes of the second-level cache of an H100.
const CACHE: u64 = 50 << 20;

/// Everything that calls have made.
pub(crate) struct Driver {
    pub settings: Settings,
    pub devices: Vec<Device>,
    pub streams: BTreeMap<usize, Stream>,
    pub events: HashMap<usize, Event>,
    pub modules: HashMap<usize, Loaded>,
    pub functions: HashMap<usize, Function>,
    /// Graphs, and what was instantiated from them.
    pub graphs: HashMap<usize, Vec<Work>>,
    pub executables: HashMap<usize, Vec<Work>>,
    /// Memory of this machine that was allocated for copies.
    pub pinned: BTreeMap<usize, Layout>,
    next: usize,
}

/// A device.
pub(crate) struct Device {
    /// How many hold its context.
    pub holders: u32,
    pub memory: Memory,
    pub cache: Cache,
    /// Launches so far.
    pub launches: u64,
    /// Allocations and their bytes.
    pub allocations: HashMap<u64, u64>,
    /// What has happened to its context: nothing works any more.
    pub broken: Option<CUresult>,
}

/// An event.
#[derive(Default)]
pub(crate) struct Event {
    /// The stream and number of its last record.
    pub asked: Option<(usize, u64)>,
    /// The last record that was reached, and when.
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
    /// Bytes of dynamic shared memory that it may be launched with.
    pub most_dynamic: usize,
}

impl Device {
    fn new() -> Self {
        Self {
            holders: 0,
            memory: Memory::new(),
            cache: Cache::new(CACHE),
            launches: 0,
            allocations: HashMap::new(),
            broken: None,
        }
    }

    /// Bytes that are allocated.
    pub fn taken(&self) -> u64 {
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

    /// A handle that was never given out.
    pub fn handle(&mut self) -> usize {
        self.next += 0x10;
        self.next
    }

    /// The device with this number.
    pub fn device(&mut self, number: i32) -> Answer<&mut Device> {
        let device = usize::try_from(number).ok().and_then(|number| self.devices.get_mut(number));
        device.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    /// The device whose context is the current one of this thread, and that works.
    pub fn current(&self) -> Answer<usize> {
        let number = CURRENT.get().checked_sub(FIRST_CONTEXT).filter(|&number| number < self.devices.len());
        let number = number.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        match self.devices[number] {
            Device { holders: 0, .. } => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            Device { broken: Some(error), .. } => Err(error),
            _ => Ok(number),
        }
    }

    /// As [`Driver::current`], for calls that wait, allocate or load: they end a capture.
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

/// The handle of a device's context.
pub(crate) fn context(number: usize) -> usize {
    FIRST_CONTEXT + number
}

thread_local! {
    /// The handle of the current context of this thread; 0: none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Makes a context the current one of this thread.
pub(crate) fn set_current(context: usize) {
    CURRENT.set(context);
}

/// The current context of this thread.
pub(crate) fn current_context() -> usize {
    CURRENT.get()
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

/// Starts the driver, once.
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

/// Executes a call.
pub(crate) fn call(f: impl FnOnce(&mut Driver) -> Answer) -> CUresult {
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(driver) = driver.as_mut() else { return CUresult::CUDA_ERROR_NOT_INITIALIZED };
    // A panic must not leave through C.
    match catch_unwind(AssertUnwindSafe(|| f(driver))) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(error)) => error,
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// Tells whoever runs the test what no error of the driver could.
pub(crate) fn say(what: &str) {
    eprintln!("CUDA driver for tests: {what}");
}
