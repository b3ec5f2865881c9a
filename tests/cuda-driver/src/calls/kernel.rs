//! Driver calls on modules, functions and launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{CUdeviceptr, CUfunction_attribute as Attribute, CUjit_option as JitOption, CUresult};
use hgnnc_ptx_interp::{Kernel, Launch, Module};

use super::put;
use crate::driver::{Answer, Driver, Function, Loaded, call, say};
use crate::settings::Settings;
use crate::work::Work;

/// Above this, a kernel needs `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DEFAULT_MAX_DYNAMIC_SMEM: usize = 48 << 10;

/// Buffer for the JIT compiler's error log.
#[derive(Default)]
struct Log {
    at: usize,
    bytes: usize,
}

impl Log {
    /// Reads the log's entries from the options of a load; ignores all others.
    ///
    /// # Safety
    /// `options` and `values` have `count` elements.
    unsafe fn of(count: c_uint, options: *const c_uint, values: *const *mut c_void) -> Log {
        let mut log = Log::default();
        if options.is_null() || values.is_null() {
            return log;
        }
        for index in 0..count as usize {
            // SAFETY: `index` is below `count`.
            let (option, value) = unsafe { (*options.add(index), *values.add(index)) };
            if option == JitOption::CU_JIT_ERROR_LOG_BUFFER as c_uint {
                log.at = value.expose_provenance();
            } else if option == JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as c_uint {
                // A number in place of a pointer, of which the driver reads 32 bits.
                log.bytes = value.addr() as u32 as usize;
            }
        }
        log
    }

    /// Writes the text, truncated to the buffer, and a terminating zero.
    ///
    /// # Safety
    /// The buffer is writable.
    unsafe fn write(&self, text: &str) {
        if self.at == 0 || self.bytes == 0 {
            return;
        }
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.at);
        let len = text.len().min(self.bytes - 1);
        // SAFETY: the caller's contract; `len` is at least one byte less than the buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), to, len);
            to.add(len).write(0);
        }
    }
}

/// Compiles PTX, or returns an error log like that of the driver's JIT compiler.
fn compile(text: &str, settings: &Settings) -> Result<Module, (CUresult, String)> {
    let version = text.lines().enumerate().find_map(|(line, text)| {
        let (major, minor) = text.trim().strip_prefix(".version ")?.trim().split_once('.')?;
        Some((line + 1, 10 * major.parse::<u32>().ok()? + minor.parse::<u32>().ok()?))
    });
    if let Some((line, version)) = version.filter(|&(_, version)| version > settings.ptx) {
        let show = |version: u32| format!("{}.{}", version / 10, version % 10);
        let (found, known) = (show(version), show(settings.ptx));
        let said = format!(
            "ptxas application ptx input, line {line}; fatal   : Unsupported .version {found}; current version is '{known}'"
        );
        return Err((CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, said));
    }
    let module = Module::parse(text).map_err(|error| {
        let said = format!("ptxas application ptx input, line {}; error   : {}", error.line, error.message);
        (CUresult::CUDA_ERROR_INVALID_PTX, said)
    })?;
    let wanted = module.target().strip_prefix("sm_").and_then(|target| target.parse::<i32>().ok());
    match wanted {
        Some(wanted) if wanted <= settings.capability => Ok(module),
        _ => Err((CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, String::new())),
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleLoadDataEx(
    to: *mut usize,
    image: *const c_char,
    count: c_uint,
    options: *const c_uint,
    values: *const *mut c_void,
) -> CUresult {
    call(|driver| {
        let number = driver.current_uncaptured()?;
        if image.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller provides `count` options with values, and a zero-terminated text.
        let (log, text) = unsafe { (Log::of(count, options, values), CStr::from_ptr(image)) };
        let text = text.to_str().map_err(|_| CUresult::CUDA_ERROR_INVALID_PTX)?;
        let module = compile(text, &driver.settings).map_err(|(error, said)| {
            // SAFETY: the caller provides a buffer of this size.
            unsafe { log.write(&said) };
            error
        })?;
        let handle = driver.handle();
        driver.modules.insert(handle, Loaded { device: number, module });
        // SAFETY: the caller's contract.
        unsafe { put(to, handle) }
    })
}

impl Driver {
    fn module(&self, handle: usize) -> Answer<&Loaded> {
        let device = self.current()?;
        let loaded = self.modules.get(&handle).filter(|loaded| loaded.device == device);
        loaded.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    fn kernel(&self, function: &Function) -> Answer<&Kernel> {
        self.module(function.module)?.module.kernel(&function.kernel).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}

/// Reads a C string.
///
/// # Safety
/// `name` is null or zero-terminated.
unsafe fn name_of(name: *const c_char) -> Answer<String> {
    if name.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleGetFunction(to: *mut usize, module: usize, name: *const c_char) -> CUresult {
    call(|driver| {
        // SAFETY: the caller's contract.
        let kernel = unsafe { name_of(name) }?;
        driver.module(module)?.module.kernel(&kernel).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        // A kernel has one function handle, however often it is looked up.
        let known = driver.functions.iter().find(|(_, known)| known.module == module && known.kernel == kernel);
        let handle = match known {
            Some((&handle, _)) => handle,
            None => {
                let handle = driver.handle();
                driver
                    .functions
                    .insert(handle, Function { module, kernel, max_dynamic_smem: DEFAULT_MAX_DYNAMIC_SMEM });
                handle
            }
        };
        // SAFETY: the caller's contract.
        unsafe { put(to, handle) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleGetGlobal_v2(
    to: *mut CUdeviceptr,
    bytes: *mut usize,
    module: usize,
    name: *const c_char,
) -> CUresult {
    call(|driver| {
        // SAFETY: the caller's contract.
        let name = unsafe { name_of(name) }?;
        let device = driver.module(module)?.device;
        let module = &driver.modules[&module].module;
        let size = module.variable_bytes(&name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        let at = module.variable(&name, &mut driver.devices[device].memory);
        // SAFETY: the caller's contract.
        unsafe {
            put(to, at.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?)?;
            put(bytes, size)
        }
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleUnload(module: usize) -> CUresult {
    call(|driver| {
        driver.module(module)?;
        driver.finish_all()?;
        driver.modules.remove(&module);
        driver.functions.retain(|_, function| function.module != module);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncSetAttribute(function: usize, attribute: c_uint, value: c_int) -> CUresult {
    call(|driver| {
        let known = driver.functions.get(&function).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let declared = driver.kernel(known)?.static_shared;
        if attribute != Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as c_uint {
            say(&format!("attribute {attribute} of functions is not known here"));
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let bytes = usize::try_from(value).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if declared.saturating_add(bytes) > driver.settings.most_shared() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(known) = driver.functions.get_mut(&function) {
            known.max_dynamic_smem = bytes;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    call(|driver| {
        let known = driver.functions.get(&function).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let kernel = driver.kernel(known)?;
        let threads = [block_x, block_y, block_z].iter().map(|&n| u64::from(n)).product::<u64>();
        let most_threads = kernel.max_threads.map_or(1024, |most| most.iter().map(|&n| u64::from(n)).product());
        let blocks = [grid_x, grid_y, grid_z];
        let fits = blocks.iter().all(|&n| n > 0)
            && (1..=most_threads).contains(&threads)
            && grid_x <= i32::MAX as c_uint
            && grid_y.max(grid_z) <= 65535
            && shared as usize <= known.max_dynamic_smem
            && (kernel.params.is_empty() || !params.is_null())
            && extra.is_null();
        if !fits {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut bytes = vec![0; kernel.params_bytes];
        for (index, param) in kernel.params.iter().enumerate() {
            // SAFETY: the caller provides a pointer for each parameter, to at least its bytes.
            let value = unsafe { std::slice::from_raw_parts((*params.add(index)).cast::<u8>(), param.bytes) };
            bytes[param.offset..param.offset + param.bytes].copy_from_slice(value);
        }
        let launch = Launch {
            grid: blocks,
            block: [block_x, block_y, block_z],
            dynamic_shared: shared as usize,
            params: bytes,
            max_instructions: driver.settings.instructions,
            backward: false,
        };
        let work = Work::Launch { module: known.module, kernel: known.kernel.clone(), launch };
        driver.put(stream, work)
    })
}
