//! The loops of a neighbour sampler, compiled for one plan.
//!
//! A hop makes two passes over its destinations. [`RowsOf`] reads the offsets of the in-edges of the destinations of
//! one type, in all relations that are sampled, and computes the prefix sums of the numbers of sampled edges. [`Take`]
//! then samples the edges of one relation: it draws them, reads their sources and assigns compact ids. It processes
//! rows in groups as a software pipeline, so that the prefetches of one group overlap with work on others:
//!
//! ```text
//! while edges are left
//!     draw rows until they have GROUP edges; prefetch(the sources of each row)
//!     gather(sources of the group of two rounds before, and prefetch their words)
//!     assign ids to the group of three rounds before
//! ```
//!
//! Fan-outs are constants of the code: the draws of a row are unrolled with the set of samples in registers, and
//! relations that are not sampled cost nothing. Addresses, sizes and keys are arguments ([`RowsCall`], [`DrawCall`]),
//! so one function serves all batches of all graphs, and all relations and hops with equal fan-outs.
//!
//! Cranelift has no prefetch instruction, so `ask` and `gather` are callbacks, called once per row or group of edges.
//! So is weighted sampling (`weigh`), which spends its time in one loop over the row. Callbacks do not unwind.
//!
//! [`RowsOf`]: hgnnc_executable::sampler::RowsOf
//! [`Take`]: hgnnc_executable::sampler::Take
//! [`RowsCall`]: hgnnc_executable::sampler::RowsCall
//! [`DrawCall`]: hgnnc_executable::sampler::DrawCall

// Addresses of generated code become function pointers.
#![allow(unsafe_code)]

mod draw;
mod floyd;
mod generator;
mod rows;

use std::collections::BTreeMap;
use std::fmt;

use cranelift_codegen::Context;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, Block, Function, InstBuilder, Signature, UserFuncName};
use cranelift_codegen::write::{FuncWriter, PlainWriter, decorate_function};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use hgnnc_executable::sampler::{SamplerCode, SamplerCompiler, SamplerEntry, SamplerFunction};

use crate::code::{CodeMemory, Compiler};
use generator::Generator;

/// Approximate number of edges of a group. The cache lines of two groups are in flight at a time, which fills L1 caches
/// and their miss queues.
pub const GROUP: usize = 64;
/// Number of destinations whose offsets are prefetched together.
const AHEAD: usize = 16;

impl SamplerCompiler for Compiler {
    fn compile(&self, functions: &[SamplerFunction]) -> Result<SamplerCode, String> {
        let signature = self.sampler_signature();
        let machine_code = |function: &SamplerFunction| {
            let (function, _) = self.sampler_function(function);
            self.machine_code_of(Context::for_function(function))
        };
        let (module, placed) = self.place(functions.iter().map(machine_code).collect(), &signature);
        let mut code = SamplerCode { entries: BTreeMap::new(), memory: Some(Box::new(CodeMemory::of(module))) };
        for (function, address) in functions.iter().zip(placed) {
            let address = address.map_err(|error| error.to_string())?;
            // SAFETY: the address is that of a function with the signature of `SamplerEntry`.
            let entry = unsafe { std::mem::transmute::<*const u8, SamplerEntry>(address) };
            code.entries.insert(function.clone(), entry);
        }
        Ok(code)
    }

    fn text(&self, function: &SamplerFunction) -> String {
        let (function, notes) = self.sampler_function(function);
        let mut text = String::new();
        // Formatting into a string does not fail.
        let _ = decorate_function(&mut Noted(&notes), &mut text, &function);
        text
    }
}

impl Compiler {
    fn sampler_signature(&self) -> Signature {
        let mut signature = self.signature();
        signature.params = vec![AbiParam::new(I64)];
        signature
    }

    fn sampler_function(&self, what: &SamplerFunction) -> (Function, BTreeMap<Block, String>) {
        let name = UserFuncName::testcase(what.to_string().replace([' ', ',', '(', ')'], "_"));
        let mut function = Function::with_name_signature(name, self.sampler_signature());
        let mut context = FunctionBuilderContext::new();
        let mut generator = Generator::new(FunctionBuilder::new(&mut function, &mut context));
        match what {
            SamplerFunction::Rows(rows) => rows::emit(&mut generator, rows),
            SamplerFunction::Draw(take) => draw::emit(&mut generator, *take),
        }
        let Generator { mut b, notes, .. } = generator;
        b.ins().return_(&[]);
        b.seal_all_blocks();
        b.finalize(self.frontend_config());
        (function, notes)
    }
}

/// Writes the comment of each block above it.
struct Noted<'n>(&'n BTreeMap<Block, String>);

impl FuncWriter for Noted<'_> {
    fn write_block_header(
        &mut self,
        w: &mut dyn fmt::Write,
        function: &Function,
        block: Block,
        indent: usize,
    ) -> fmt::Result {
        if let Some(note) = self.0.get(&block) {
            writeln!(w, "; {note}")?;
        }
        PlainWriter.write_block_header(w, function, block, indent)
    }

    fn write_instruction(
        &mut self,
        w: &mut dyn fmt::Write,
        function: &Function,
        aliases: &cranelift_codegen::entity::SecondaryMap<
            cranelift_codegen::ir::Value,
            Vec<cranelift_codegen::ir::Value>,
        >,
        instruction: cranelift_codegen::ir::Inst,
        indent: usize,
    ) -> fmt::Result {
        PlainWriter.write_instruction(w, function, aliases, instruction, indent)
    }
}
