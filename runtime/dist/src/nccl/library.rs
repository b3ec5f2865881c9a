//! The NCCL library, opened at run time, and the thirteen functions of it that are used.
//!
//! Result codes are numbers, not an enum: a newer library may give others than those that are known here.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use libloading::os::unix::{Library as Opened, RTLD_NOW};

use super::device::Handle;
use crate::CommError;
use crate::dynamic::{cause, first, functions, open};

/// Bytes by which ranks find each other.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub [u8; 128]);

/// Settings of a communicator, as of version 2.18: newer libraries take those of older ones.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

functions! {
    ncclGetVersion: fn(*mut c_int) -> c_int,
    ncclGetUniqueId: fn(*mut UniqueId) -> c_int,
    ncclCommInitRankConfig: fn(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> c_int,
    ncclCommGetAsyncError: fn(Handle, *mut c_int) -> c_int,
    ncclCommFinalize: fn(Handle) -> c_int,
    ncclCommDestroy: fn(Handle) -> c_int,
    ncclCommAbort: fn(Handle) -> c_int,
    ncclGetErrorString: fn(c_int) -> *const c_char,
    ncclGetLastError: fn(Handle) -> *const c_char,
    ncclGroupStart: fn() -> c_int,
    ncclGroupEnd: fn() -> c_int,
    ncclSend: fn(*const c_void, usize, c_int, c_int, Handle, Handle) -> c_int,
    ncclRecv: fn(*mut c_void, usize, c_int, c_int, Handle, Handle) -> c_int,
}

/// Oldest version: that of [`Config`].
const OLDEST: c_int = 21800;

/// The constants `ncclInProgress`, `ncclUint8` and `NCCL_CONFIG_UNDEF_INT`.
const IN_PROGRESS: c_int = 7;
const BYTES: c_int = 1;
const UNDEFINED: c_int = c_int::MIN;

/// Whether a call is over, or goes on in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Done,
    InProgress,
}

/// An opened NCCL.
pub(super) struct Library {
    functions: Functions,
    /// Its version and path.
    pub name: String,
    pub version: c_int,
    /// Never closed: threads of its own may still run.
    _opened: ManuallyDrop<Opened>,
}

impl Library {
    /// Opens the first of the paths or names that is new enough.
    pub fn open(paths: &[String]) -> Result<Library, CommError> {
        let open = |path: &str| {
            let opened = open(path, RTLD_NOW)?;
            let functions =
                Functions::of(&opened).map_err(|error| format!("  {path}: is no NCCL: {}", cause(&error)))?;
            let mut version = 0;
            // SAFETY: the place is valid.
            unsafe { (functions.ncclGetVersion)(&raw mut version) };
            if version < OLDEST {
                return Err(format!("  {path}: is version {}, and 2.18 or later is needed", words(version)));
            }
            let name = format!("NCCL {} ({path})", words(version));
            Ok(Library { functions, name, version, _opened: ManuallyDrop::new(opened) })
        };
        first(paths, open).map_err(|tried| CommError::NotFound { what: "NCCL", tried })
    }

    /// An id for a new communicator.
    pub fn unique_id(&self) -> Result<UniqueId, CommError> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the place is valid.
        let code = unsafe { (self.functions.ncclGetUniqueId)(&raw mut id) };
        self.code("ncclGetUniqueId", code, ptr::null_mut()).map(|_| id)
    }

    fn code(&self, function: &'static str, code: c_int, of: Handle) -> Result<State, CommError> {
        match code {
            0 => return Ok(State::Done),
            IN_PROGRESS => return Ok(State::InProgress),
            _ => {}
        }
        let text = |text: *const c_char| {
            // SAFETY: the library gives null or a string, which is copied before the next call.
            let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned());
            text.filter(|text| !text.is_empty())
        };
        // SAFETY: the communicator is valid or null, which is allowed.
        let (kind, last) =
            unsafe { (text((self.functions.ncclGetErrorString)(code)), text((self.functions.ncclGetLastError)(of))) };
        let mut reason = format!("{} (code {code})", kind.as_deref().unwrap_or("unknown error"));
        if let Some(last) = last {
            reason = format!("{reason}: {last}");
        }
        Err(CommError::Failed { function, library: self.name.clone(), reason })
    }
}

/// This rank of a communicator, of which no call blocks. Dropped, it ends what is on its way.
pub(super) struct Communicator {
    pub library: Library,
    handle: Handle,
}

impl Communicator {
    /// Begins to join the ranks of an id, on the device whose context is current.
    pub fn join(library: Library, id: UniqueId, rank: usize, size: usize) -> Result<(Communicator, State), CommError> {
        let mut config = Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: OLDEST as c_uint,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: ptr::null(),
            split_share: UNDEFINED,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: places are valid, and the settings are those of the version that they name.
        let code = unsafe {
            let init = &library.functions.ncclCommInitRankConfig;
            init(&raw mut handle, size as c_int, id, rank as c_int, &raw mut config)
        };
        let communicator = Communicator { library, handle };
        let state = communicator.code("ncclCommInitRankConfig", code)?;
        Ok((communicator, state))
    }

    fn code(&self, function: &'static str, code: c_int) -> Result<State, CommError> {
        self.library.code(function, code, self.handle)
    }

    /// The state of the last call, or an error that came up in the background.
    pub fn state(&self, function: &'static str) -> Result<State, CommError> {
        let mut state = 0;
        // SAFETY: the communicator is valid, and so is the place.
        let code = unsafe { (self.library.functions.ncclCommGetAsyncError)(self.handle, &raw mut state) };
        self.code("ncclCommGetAsyncError", code)?;
        self.code(function, state)
    }

    /// Enqueues the sends and receives of one group. Places are those of staging memory on the device.
    ///
    /// # Safety
    /// The memory is valid, and used by nothing else, until the work of the stream is done.
    pub unsafe fn group(
        &self,
        sends: impl Iterator<Item = (*mut c_void, usize, usize)>,
        receives: impl Iterator<Item = (*mut c_void, usize, usize)>,
        stream: Handle,
    ) -> Result<State, CommError> {
        let functions = &self.library.functions;
        // SAFETY: by the caller's promise. A group that was started is ended in any case.
        unsafe {
            self.code("ncclGroupStart", (functions.ncclGroupStart)())?;
            let enqueue = || -> Result<(), CommError> {
                for (from, len, to) in sends {
                    let code = (functions.ncclSend)(from, len, BYTES, to as c_int, self.handle, stream);
                    self.code("ncclSend", code)?;
                }
                for (to, len, from) in receives {
                    let code = (functions.ncclRecv)(to, len, BYTES, from as c_int, self.handle, stream);
                    self.code("ncclRecv", code)?;
                }
                Ok(())
            };
            let enqueued = enqueue();
            let ended = (functions.ncclGroupEnd)();
            enqueued?;
            self.code("ncclGroupEnd", ended)
        }
    }

    /// Begins to leave. All ranks do so.
    pub fn finalize(&self) -> Result<State, CommError> {
        // SAFETY: the communicator is valid, and no call of it is in progress.
        let code = unsafe { (self.library.functions.ncclCommFinalize)(self.handle) };
        self.code("ncclCommFinalize", code)
    }

    /// Frees a communicator that has left.
    pub fn destroy(mut self) {
        // SAFETY: the communicator is not used again.
        unsafe { (self.library.functions.ncclCommDestroy)(std::mem::replace(&mut self.handle, ptr::null_mut())) };
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the function may be called at any time, and the communicator is not used again.
            unsafe { (self.library.functions.ncclCommAbort)(self.handle) };
        }
    }
}

/// A version of NCCL: 21805 is 2.18.5, and 2708, of the time before, 2.7.8.
fn words(version: c_int) -> String {
    let (major, rest) =
        if version < 10_000 { (version / 1000, version % 1000) } else { (version / 10_000, version % 10_000) };
    format!("{major}.{}.{}", rest / 100, rest % 100)
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_in_words() {
        assert_eq!([2708, 21805, 22703].map(super::words), ["2.7.8", "2.18.5", "2.27.3"]);
        assert_eq!(size_of::<super::Config>(), 48);
    }
}
