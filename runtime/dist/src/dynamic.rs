//! Libraries that are opened at run time, and tables of their functions.

use std::ffi::c_int;

use libloading::os::unix::Library as Opened;

/// Declares `struct Functions`, the functions of a library that are used, as its header declares them.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?),* $(,)?) => {
        #[allow(non_snake_case, reason = "names of the library's header")]
        struct Functions {
            $($name: ::libloading::os::unix::Symbol<unsafe extern "C" fn($($arg),*) $(-> $result)?>),*
        }

        impl Functions {
            fn of(library: &::libloading::os::unix::Library) -> Result<Functions, ::libloading::Error> {
                // SAFETY: the types are those of the header, with handles and pointers in registers.
                unsafe {
                    Ok(Functions { $($name: library.get(concat!(stringify!($name), "\0").as_bytes())?),* })
                }
            }
        }
    };
}
pub(crate) use functions;

/// Opens the library of a path or name; otherwise a line on what is wrong with it.
#[allow(unsafe_code)]
pub(crate) fn open(path: &str, flags: c_int) -> Result<Opened, String> {
    // SAFETY: initialisers of the libraries that are opened here have no conditions.
    unsafe { Opened::open(Some(path), flags) }.map_err(|error| {
        let cause = cause(&error);
        // Most systems name the file themselves.
        format!("  {path}: {}", cause.strip_prefix(&format!("{path}: ")).unwrap_or(&cause))
    })
}

/// The first that opens; otherwise a line on what is wrong with each.
pub(crate) fn first<T>(paths: &[String], open: impl Fn(&str) -> Result<T, String>) -> Result<T, Vec<String>> {
    let mut tried = Vec::new();
    for path in paths {
        match open(path) {
            Ok(library) => return Ok(library),
            Err(why) => tried.push(why),
        }
    }
    Err(tried)
}

/// The reason that the system gives.
pub(crate) fn cause(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
