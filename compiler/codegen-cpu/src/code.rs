//! Machine code of functions.

// Addresses of generated code become function pointers.
#![allow(unsafe_code)]

use std::any::Any;
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
use hgnnc_executable::cpu::{Entry, MachineCode};
use hgnnc_kernel_ir::loops::{self};
use rayon::prelude::*;
use thiserror::Error;

use crate::cache::{Code, code_of};
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

/// Owner of executable memory, which is released when `self` is dropped. The module is kept for its memory only.
pub(crate) struct CodeMemory(Mutex<Option<JITModule>>);

impl CodeMemory {
    pub(crate) fn of(module: JITModule) -> Self {
        Self(Mutex::new(Some(module)))
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        let module = self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(module) = module {
            // SAFETY: entries are called only while their `MachineCode`, the owner of this memory, is borrowed.
            unsafe { module.free_memory() };
        }
    }
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

    /// Machine code of functions, in their order.
    ///
    /// # Errors
    /// The functions that have no code, by index.
    pub fn machine_code(&self, functions: &[&loops::Function]) -> Result<MachineCode, Vec<usize>> {
        let generate =
            |function: &loops::Function| self.machine_code_of(Context::for_function(self.function(function)?));
        let code_of = |&function: &&loops::Function| code_of(self.fma, function, || generate(function));
        let compiled: Vec<Code> = functions.par_iter().map(code_of).collect();
        let bytes = compiled.iter().flatten().map(Vec::len).sum();
        let (module, placed) = self.place(compiled, &self.signature());
        let memory: Box<dyn Any + Send + Sync> = Box::new(CodeMemory::of(module));
        let mut code = MachineCode { entries: vec![], bytes, memory: Some(memory) };
        let mut failed = vec![];
        for (function, address) in placed.into_iter().enumerate() {
            match address {
                // SAFETY: the address is that of a function with the signature of `Entry`, since all have `signature`.
                Ok(address) => code.entries.push(unsafe { std::mem::transmute::<*const u8, Entry>(address) }),
                Err(_) => failed.push(function),
            }
        }
        if failed.is_empty() { Ok(code) } else { Err(failed) }
    }

    pub(crate) fn machine_code_of(&self, mut context: Context) -> Code {
        let refused = |error: String| NativeError::Function(error);
        let code = context
            .compile(&*self.isa, &mut ControlPlane::default())
            .map_err(|error| refused(format!("{}", error.inner)))?;
        if !code.buffer.relocs().is_empty() {
            return Err(refused("its code would call functions of the C library".into()));
        }
        Ok(code.code_buffer().to_vec())
    }

    /// Places code in executable memory owned by the module. Returns the address of each function.
    pub(crate) fn place(
        &self,
        compiled: Vec<Code>,
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

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compiler({})", self.isa.triple())
    }
}
