//! Machine code of programs, and the calls into it.

// Generated code is called through a pointer; see [`Code::call`].
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::Mutex;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, Function, Signature, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};
use hgnnc_ir::loops;
use rayon::prelude::*;
use thiserror::Error;

use crate::emit::emit;

/// The reason why there is no machine code.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum NativeError {
    /// Cranelift does not support this processor, or the system forbids executable memory.
    #[error("no machine code can be generated for this processor: {0}")]
    Host(String),
    /// The generator does not cover a function, or Cranelift rejects it.
    #[error("no machine code for a function: {0}")]
    Function(String),
}

/// A code generator for the host processor.
pub struct Compiler {
    isa: OwnedTargetIsa,
    fma: bool,
}

/// The type of all generated functions. Arguments: arrays, index arrays, results, offsets, and the number of items (for
/// [`loops::function::Shape::Segments`]: of rows that own items).
type Entry = unsafe extern "C" fn(*const *const f32, *const *const u32, *const *mut f32, *const u32, usize);

/// Owner of the machine code of functions. Functions with equal texts share it.
#[derive(Default)]
pub struct Code {
    /// The modules own the code memory. They are accessed only when code is added and when `self` is dropped.
    modules: Mutex<Vec<JITModule>>,
    entries: Vec<Entry>,
    /// The function of each program text, or the reason why there is none.
    known: HashMap<String, Result<usize, NativeError>>,
    bytes: usize,
}

/// The arguments of a call. Each table is in the order of the program.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// Address of row 0 of each array.
    pub arrays: &'a [*const f32],
    /// Address of each index array.
    pub indices: &'a [*const u32],
    /// Address of row 0 of each result.
    pub results: &'a [*mut f32],
    /// For [`loops::function::Shape::Segments`]: the first item of each row, and the number of items.
    pub offsets: &'a [u32],
    /// Number of items, or of rows that own items.
    pub count: usize,
}

impl Compiler {
    /// A code generator for the host. With `fma`, products and sums in polynomials and dot products round once; it
    /// requires a processor with fused multiply-add.
    ///
    /// # Errors
    /// If Cranelift does not support the processor.
    pub fn host(fma: bool) -> Result<Self, NativeError> {
        let host = |error: String| NativeError::Host(error);
        let mut flags = settings::builder();
        let verify = if cfg!(debug_assertions) { "true" } else { "false" };
        // No unwind tables: code is never interrupted or unwound.
        let chosen = [
            ("opt_level", "speed"),
            ("is_pic", "false"),
            ("use_colocated_libcalls", "false"),
            ("unwind_info", "false"),
            ("enable_verifier", verify),
        ];
        for (name, value) in chosen {
            flags.set(name, value).map_err(|e| host(e.to_string()))?;
        }
        let isa = cranelift_native::builder().map_err(|e| host(e.to_owned()))?;
        let isa = isa.finish(settings::Flags::new(flags)).map_err(|e| host(e.to_string()))?;
        if isa.pointer_bytes() != 8 {
            return Err(host(format!("pointers have {} bytes", isa.pointer_bytes())));
        }
        Ok(Self { isa, fma })
    }

    /// The Cranelift signature of [`Entry`].
    pub(crate) fn signature(&self) -> Signature {
        let mut signature = Signature::new(self.isa.default_call_conv());
        signature.params = vec![AbiParam::new(I64); 5];
        signature
    }

    /// The Cranelift IR of a program, before optimization.
    ///
    /// # Errors
    /// If the generator does not cover the program.
    pub fn function(&self, program: &loops::Function) -> Result<Function, NativeError> {
        let mut function = Function::with_name_signature(UserFuncName::user(0, 0), self.signature());
        let mut context = FunctionBuilderContext::new();
        let builder = FunctionBuilder::new(&mut function, &mut context);
        let builder = emit(program, builder, self.fma).map_err(NativeError::Function)?;
        builder.finalize(self.isa.frontend_config());
        Ok(function)
    }

    /// Compiles the programs that have no machine code yet. Returns the function number of each program. Failing
    /// programs do not affect the others.
    ///
    /// # Errors
    /// For each program, the reason why there is no code.
    pub fn add(&self, programs: &[&loops::Function], code: &mut Code) -> Vec<Result<usize, NativeError>> {
        let texts: Vec<String> = programs.iter().map(ToString::to_string).collect();
        let mut new: Vec<(&str, &loops::Function)> = vec![];
        for (text, program) in texts.iter().zip(programs) {
            if !code.known.contains_key(text) && new.iter().all(|(other, _)| other != text) {
                new.push((text, program));
            }
        }
        if !new.is_empty() {
            let compiled = new.par_iter().map(|(_, program)| self.machine_code(program)).collect();
            let made = self.load(compiled, code);
            code.known.extend(new.iter().map(|(text, _)| (*text).to_owned()).zip(made));
        }
        texts.iter().map(|text| code.known[text].clone()).collect()
    }

    fn machine_code(&self, program: &loops::Function) -> Result<Vec<u8>, NativeError> {
        self.machine_code_of(Context::for_function(self.function(program)?))
    }

    pub(crate) fn machine_code_of(&self, mut context: Context) -> Result<Vec<u8>, NativeError> {
        let refused = |error: String| NativeError::Function(error);
        let code = context
            .compile(&*self.isa, &mut ControlPlane::default())
            .map_err(|error| refused(format!("{}", error.inner)))?;
        if !code.buffer.relocs().is_empty() {
            return Err(refused("its code would call functions of the C library".into()));
        }
        Ok(code.code_buffer().to_vec())
    }

    /// Places code in executable memory. Returns the function number of each program.
    fn load(&self, compiled: Vec<Result<Vec<u8>, NativeError>>, code: &mut Code) -> Vec<Result<usize, NativeError>> {
        code.bytes += compiled.iter().flatten().map(Vec::len).sum::<usize>();
        let (module, placed) = self.place(compiled, &self.signature());
        let entries = placed.into_iter().map(|address| {
            // SAFETY: the address is that of a function with the signature of `Entry`, since all have `signature`.
            code.entries.push(unsafe { std::mem::transmute::<*const u8, Entry>(address?) });
            Ok(code.entries.len() - 1)
        });
        let entries = entries.collect();
        code.modules.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).push(module);
        entries
    }

    /// Places code in executable memory owned by the module. Returns the address of each function.
    pub(crate) fn place(
        &self,
        compiled: Vec<Result<Vec<u8>, NativeError>>,
        signature: &Signature,
    ) -> (JITModule, Vec<Result<*const u8, NativeError>>) {
        let builder = JITBuilder::with_isa(self.isa.clone(), default_libcall_names());
        let mut module = JITModule::new(builder);
        let alignment = u64::from(self.isa.function_alignment().preferred).max(16);
        let mut defined = vec![];
        for code in compiled {
            defined.push(code.and_then(|code| {
                let refused = |error: cranelift_module::ModuleError| NativeError::Function(error.to_string());
                let id = module.declare_anonymous_function(signature).map_err(refused)?;
                module.define_function_bytes(id, alignment, &code, &[]).map_err(refused)?;
                Ok(id)
            }));
        }
        let ready = module.finalize_definitions();
        let addresses = defined.into_iter().map(|id| {
            let id = id?;
            // Fails on systems that forbid executable memory.
            ready.as_ref().map_err(|error| NativeError::Host(error.to_string()))?;
            Ok(module.get_finalized_function(id))
        });
        let addresses = addresses.collect();
        (module, addresses)
    }

    pub(crate) fn frontend_config(&self) -> cranelift_codegen::isa::TargetFrontendConfig {
        self.isa.frontend_config()
    }
}

impl Code {
    /// Number of functions; programs with equal texts share one.
    pub fn num_functions(&self) -> usize {
        self.entries.len()
    }

    /// Size of the machine code in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Calls a function by its number.
    ///
    /// # Safety
    /// The tables have the entries of the function's program. For each item `i < count` (with segments: for each item
    /// of each row of `offsets`, which ascend), these rows exist: row `i` of every array and index array, the rows that
    /// the indices select, and the rows of results. During the call nothing else writes the memory that is read or
    /// accesses the memory that is written. Results overlap neither arrays nor each other.
    pub unsafe fn call(&self, function: usize, arguments: Arguments<'_>) {
        let Arguments { arrays, indices, results, offsets, count } = arguments;
        // SAFETY: the code was compiled from a checked program with this signature; its memory lives as long as `self`.
        unsafe { self.entries[function](arrays.as_ptr(), indices.as_ptr(), results.as_ptr(), offsets.as_ptr(), count) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let modules = self.modules.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for module in modules.drain(..) {
            // SAFETY: functions run only while `self` is borrowed.
            unsafe { module.free_memory() };
        }
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Code({} functions, {} bytes)", self.entries.len(), self.bytes)
    }
}
