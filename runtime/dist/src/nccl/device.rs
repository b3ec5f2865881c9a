//! A device of the CUDA driver: a stream, and staging memory of fixed size on the host and on the device.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use libloading::os::unix::{Library as Opened, RTLD_NOW};

use crate::CommError;
use crate::dynamic::{cause, first, functions, open};

/// A handle of the driver.
pub(super) type Handle = *mut c_void;

functions! {
    cuInit: fn(c_uint) -> c_int,
    cuGetErrorString: fn(c_int, *mut *const c_char) -> c_int,
    cuDeviceGetCount: fn(*mut c_int) -> c_int,
    cuDeviceGet: fn(*mut c_int, c_int) -> c_int,
    cuDevicePrimaryCtxRetain: fn(*mut Handle, c_int) -> c_int,
    cuDevicePrimaryCtxRelease_v2: fn(c_int) -> c_int,
    cuCtxSetCurrent: fn(Handle) -> c_int,
    cuStreamCreate: fn(*mut Handle, c_uint) -> c_int,
    cuStreamQuery: fn(Handle) -> c_int,
    cuStreamDestroy_v2: fn(Handle) -> c_int,
    cuMemAlloc_v2: fn(*mut u64, usize) -> c_int,
    cuMemFree_v2: fn(u64) -> c_int,
    cuMemHostAlloc: fn(*mut *mut c_void, usize, c_uint) -> c_int,
    cuMemFreeHost: fn(*mut c_void) -> c_int,
    cuMemcpyHtoDAsync_v2: fn(u64, *const c_void, usize, Handle) -> c_int,
    cuMemcpyDtoHAsync_v2: fn(*mut c_void, u64, usize, Handle) -> c_int,
}

/// The constant `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;

/// The constant `CU_STREAM_NON_BLOCKING`: work of the null stream does not wait for the stream.
const NON_BLOCKING: c_uint = 1;

/// The driver, which was opened at run time.
pub(super) struct Driver {
    functions: Functions,
    path: String,
    /// Number of devices that this process sees.
    pub devices: usize,
    /// Never closed: threads of its own may still run.
    _opened: ManuallyDrop<Opened>,
}

impl Driver {
    /// Opens the first of the paths or names.
    pub fn open(paths: &[String]) -> Result<Driver, CommError> {
        let open = |path: &str| {
            let opened = open(path, RTLD_NOW)?;
            match Functions::of(&opened) {
                Ok(functions) => {
                    Ok(Driver { functions, path: path.to_owned(), devices: 0, _opened: ManuallyDrop::new(opened) })
                }
                Err(error) => Err(format!("  {path}: is no CUDA driver: {}", cause(&error))),
            }
        };
        let what = "the NVIDIA driver";
        let mut driver = first(paths, open).map_err(|tried| CommError::NotFound { what, tried })?;
        let mut devices = 0;
        // SAFETY: the first has no conditions; the place is valid.
        unsafe {
            driver.code("cuInit", (driver.functions.cuInit)(0))?;
            driver.code("cuDeviceGetCount", (driver.functions.cuDeviceGetCount)(&raw mut devices))?;
        }
        driver.devices = usize::try_from(devices).unwrap_or(0);
        Ok(driver)
    }

    fn code(&self, function: &'static str, code: c_int) -> Result<(), CommError> {
        if code == 0 {
            return Ok(());
        }
        let mut text: *const c_char = ptr::null();
        // SAFETY: the place is valid, and the driver gives null or a constant string.
        let text = unsafe {
            (self.functions.cuGetErrorString)(code, &raw mut text);
            if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy()) }
        };
        let reason = text.map_or_else(|| format!("code {code}"), |text| format!("{text} (code {code})"));
        Err(CommError::Failed { function, library: format!("the NVIDIA driver ({})", self.path), reason })
    }
}

/// Memory on the host, which is pinned, and as much on the device.
#[derive(Clone, Copy)]
struct Staging {
    host: *mut c_void,
    device: u64,
    bytes: usize,
}

/// The direction of a message, which has staging memory of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Send,
    Receive,
}

/// A device, of the thread that opened it: its primary context is current there.
pub(super) struct Device {
    driver: Driver,
    number: c_int,
    stream: Handle,
    /// By direction.
    staging: [Staging; 2],
}

impl Device {
    /// Opens a device, with such a number of bytes of staging memory for each direction.
    pub fn open(driver: Driver, ordinal: usize, bytes: usize) -> Result<Device, CommError> {
        let none = Staging { host: ptr::null_mut(), device: 0, bytes: 0 };
        let mut number = 0;
        // SAFETY: the place is valid.
        let code = unsafe { (driver.functions.cuDeviceGet)(&raw mut number, ordinal as c_int) };
        driver.code("cuDeviceGet", code)?;
        let mut context = ptr::null_mut();
        // SAFETY: the device is valid, and so is the place. CUDA's runtime, which NCCL uses, has the same context.
        let code = unsafe { (driver.functions.cuDevicePrimaryCtxRetain)(&raw mut context, number) };
        driver.code("cuDevicePrimaryCtxRetain", code)?;
        // All that is opened from here on is released when `device` is dropped.
        let mut device = Device { driver, number, stream: ptr::null_mut(), staging: [none; 2] };
        let functions = &device.driver.functions;
        // SAFETY: the context was retained, and places are valid.
        unsafe {
            device.driver.code("cuCtxSetCurrent", (functions.cuCtxSetCurrent)(context))?;
            let code = (functions.cuStreamCreate)(&raw mut device.stream, NON_BLOCKING);
            device.driver.code("cuStreamCreate", code)?;
            for staging in &mut device.staging {
                let code = (functions.cuMemHostAlloc)(&raw mut staging.host, bytes, 0);
                device.driver.code("cuMemHostAlloc", code)?;
                device.driver.code("cuMemAlloc", (functions.cuMemAlloc_v2)(&raw mut staging.device, bytes))?;
                staging.bytes = bytes;
            }
        }
        Ok(device)
    }

    /// The stream, for NCCL.
    pub fn stream(&self) -> Handle {
        self.stream
    }

    /// The address of staging memory on the device.
    pub fn address(&self, of: Direction, offset: usize) -> *mut c_void {
        ptr::without_provenance_mut((self.staging[of as usize].device as usize) + offset)
    }

    /// Writes to staging memory on the host.
    ///
    /// # Safety
    /// The bytes are valid.
    pub unsafe fn write(&self, offset: usize, from: *const u8, len: usize) {
        let to = &self.staging[Direction::Send as usize];
        assert!(offset + len <= to.bytes, "pieces lie in staging memory");
        // SAFETY: the range lies in memory that is this thread's, since nothing is on its way; the caller promises `from`.
        unsafe { ptr::copy_nonoverlapping(from, to.host.cast::<u8>().add(offset), len) };
    }

    /// Reads from staging memory on the host.
    ///
    /// # Safety
    /// The place is valid.
    pub unsafe fn read(&self, offset: usize, to: *mut u8, len: usize) {
        let from = &self.staging[Direction::Receive as usize];
        assert!(offset + len <= from.bytes, "pieces lie in staging memory");
        // SAFETY: as in `write`.
        unsafe { ptr::copy_nonoverlapping(from.host.cast::<u8>().add(offset), to, len) };
    }

    /// Copies the first bytes of staging memory between the host and the device, in the order of the stream.
    pub fn copy(&self, of: Direction, len: usize) -> Result<(), CommError> {
        let Staging { host, device, bytes } = self.staging[of as usize];
        assert!(len <= bytes, "pieces lie in staging memory");
        if len == 0 {
            return Ok(());
        }
        let functions = &self.driver.functions;
        // SAFETY: both places have `bytes` bytes, and neither is used or freed until the stream is done.
        match of {
            Direction::Send => {
                let code = unsafe { (functions.cuMemcpyHtoDAsync_v2)(device, host, len, self.stream) };
                self.driver.code("cuMemcpyHtoDAsync", code)
            }
            Direction::Receive => {
                let code = unsafe { (functions.cuMemcpyDtoHAsync_v2)(host, device, len, self.stream) };
                self.driver.code("cuMemcpyDtoHAsync", code)
            }
        }
    }

    /// Whether all work of the stream is done.
    pub fn is_done(&self) -> Result<bool, CommError> {
        // SAFETY: the stream is valid.
        match unsafe { (self.driver.functions.cuStreamQuery)(self.stream) } {
            NOT_READY => Ok(false),
            code => self.driver.code("cuStreamQuery", code).map(|()| true),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let functions = &self.driver.functions;
        // SAFETY: each was allocated or created, and is released once. Freeing device memory waits for work that uses it.
        unsafe {
            for staging in self.staging {
                if staging.device != 0 {
                    (functions.cuMemFree_v2)(staging.device);
                }
                if !staging.host.is_null() {
                    (functions.cuMemFreeHost)(staging.host);
                }
            }
            if !self.stream.is_null() {
                (functions.cuStreamDestroy_v2)(self.stream);
            }
            (functions.cuCtxSetCurrent)(ptr::null_mut());
            (functions.cuDevicePrimaryCtxRelease_v2)(self.number);
        }
    }
}
