//! An MPI library that is opened at run time, and the fifteen functions of it that are used.
//!
//! A binary for all of them keeps three tables of handles: that of the standard ABI (MPI 5.0, chapter 20), which
//! `libmpi_abi` has; that of MPICH and what is made of it, where handles are numbers; and that of Open MPI, where they are
//! addresses of symbols.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_NOW};

use crate::CommError;
use crate::dynamic::{cause, functions, open};

/// A handle of any family.
type Handle = usize;

functions! {
    MPI_Init_thread: fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int,
    MPI_Finalize: fn() -> c_int,
    MPI_Abort: fn(Handle, c_int) -> c_int,
    MPI_Comm_rank: fn(Handle, *mut c_int) -> c_int,
    MPI_Comm_size: fn(Handle, *mut c_int) -> c_int,
    MPI_Get_library_version: fn(*mut c_char, *mut c_int) -> c_int,
    MPI_Isend: fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut c_void) -> c_int,
    MPI_Irecv: fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut c_void) -> c_int,
    MPI_Test: fn(*mut c_void, *mut c_int, *mut c_void) -> c_int,
    MPI_Get_count: fn(*const c_void, Handle, *mut c_int) -> c_int,
}

/// A message on its way. A request of MPICH has four bytes, others eight.
pub(super) struct Request([u64; 1]);

/// Larger than the status of every family, of which the standard's has 32 bytes.
type Status = [u64; 16];

/// An opened MPI library, with the handles of its family.
pub(super) struct Library {
    functions: Functions,
    world: Handle,
    byte: Handle,
    /// The constant `MPI_THREAD_FUNNELED`: one thread makes all calls.
    funneled: c_int,
    /// Its version, in words.
    pub name: String,
    // Last: what is above points into it.
    _opened: Opened,
}

impl Library {
    /// Opens the library of a path or name; what is wrong with it otherwise.
    pub fn open(path: &str) -> Result<Library, String> {
        // Open MPI's own plugins need its symbols to be global.
        let opened = open(path, RTLD_NOW | RTLD_GLOBAL)?;
        let functions =
            Functions::of(&opened).map_err(|error| format!("  {path}: is no MPI library: {}", cause(&error)))?;
        let symbol = |name: &[u8]| -> Option<Handle> {
            // SAFETY: only the address is taken.
            unsafe { opened.get::<*const c_void>(name) }.ok().map(|symbol| symbol.as_raw_ptr() as usize)
        };
        let of_open_mpi = symbol(b"ompi_mpi_comm_world\0").zip(symbol(b"ompi_mpi_byte\0"));
        let (world, byte, funneled) = match of_open_mpi {
            Some((world, byte)) => (world, byte, 1),
            None if path.contains("libmpi_abi") => (0x101, 0x247, 1024),
            None => (0x4400_0000, 0x4c00_010d, 1),
        };
        let mut text = vec![0u8; 8192];
        let mut length = 0;
        // SAFETY: 8192 is the largest of MPI_MAX_LIBRARY_VERSION_STRING; the function may be called before MPI_Init.
        unsafe { (functions.MPI_Get_library_version)(text.as_mut_ptr().cast(), &raw mut length) };
        let version = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
        let name = format!("{} ({path})", short(&version));
        Ok(Library { functions, world, byte, funneled, name, _opened: opened })
    }

    /// Joins the job, and returns rank and size.
    pub fn init(&self) -> Result<(usize, usize), CommError> {
        let (mut provided, mut rank, mut size) = (0, 0, 0);
        // SAFETY: null arguments are allowed; the places are valid.
        unsafe {
            let init = &self.functions.MPI_Init_thread;
            self.code("MPI_Init_thread", init(ptr::null_mut(), ptr::null_mut(), self.funneled, &raw mut provided))?;
            self.code("MPI_Comm_rank", (self.functions.MPI_Comm_rank)(self.world, &raw mut rank))?;
            self.code("MPI_Comm_size", (self.functions.MPI_Comm_size)(self.world, &raw mut size))?;
        }
        Ok((rank as usize, size as usize))
    }

    /// Leaves the job, after which no other function may be called.
    pub fn finalize(&self) {
        // SAFETY: called once, by the thread that joined.
        unsafe { (self.functions.MPI_Finalize)() };
    }

    /// Ends the job on all ranks.
    pub fn abort(&self) {
        // SAFETY: the function has no conditions but that `init` was called.
        unsafe { (self.functions.MPI_Abort)(self.world, 1) };
    }

    /// Starts to send a message.
    ///
    /// # Safety
    /// The bytes are valid and unchanged until the request is done.
    pub unsafe fn send(&self, bytes: *const u8, len: usize, to: usize, tag: u16) -> Result<Request, CommError> {
        let mut request = Request([0]);
        // SAFETY: by the caller's promise.
        let code = unsafe {
            let place = request.0.as_mut_ptr().cast();
            (self.functions.MPI_Isend)(
                bytes.cast(),
                len as c_int,
                self.byte,
                to as c_int,
                tag.into(),
                self.world,
                place,
            )
        };
        self.code("MPI_Isend", code).map(|()| request)
    }

    /// Starts to receive a message.
    ///
    /// # Safety
    /// The bytes are valid and not used until the request is done.
    pub unsafe fn receive(&self, bytes: *mut u8, len: usize, from: usize, tag: u16) -> Result<Request, CommError> {
        let mut request = Request([0]);
        // SAFETY: by the caller's promise.
        let code = unsafe {
            let place = request.0.as_mut_ptr().cast();
            (self.functions.MPI_Irecv)(
                bytes.cast(),
                len as c_int,
                self.byte,
                from as c_int,
                tag.into(),
                self.world,
                place,
            )
        };
        self.code("MPI_Irecv", code).map(|()| request)
    }

    /// Whether a request is done: the number of bytes that were received, of a receiving one.
    pub fn test(&self, request: &mut Request) -> Result<Option<usize>, CommError> {
        let (mut done, mut count) = (0, 0);
        let mut status: Status = [0; 16];
        // SAFETY: the request was started by this library and is not done; the status is large enough for all families.
        unsafe {
            let test = &self.functions.MPI_Test;
            self.code("MPI_Test", test(request.0.as_mut_ptr().cast(), &raw mut done, status.as_mut_ptr().cast()))?;
            if done == 0 {
                return Ok(None);
            }
            let get = &self.functions.MPI_Get_count;
            self.code("MPI_Get_count", get(status.as_ptr().cast(), self.byte, &raw mut count))?;
        }
        Ok(Some(usize::try_from(count).unwrap_or(0)))
    }

    fn code(&self, function: &'static str, code: c_int) -> Result<(), CommError> {
        match code {
            0 => Ok(()),
            code => Err(CommError::Library { function, library: self.name.clone(), code }),
        }
    }
}

/// The name and version at the beginning of a library's description of itself.
fn short(version: &str) -> String {
    let first = version.lines().next().unwrap_or_default().split(',').next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    match words.join(" ") {
        text if text.is_empty() => "an MPI library".into(),
        text => text.replace("MPICH Version:", "MPICH"),
    }
}
