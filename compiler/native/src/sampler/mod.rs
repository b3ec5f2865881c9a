//! The loops of a neighbour sampler, as machine code for one plan.
//!
//! A hop of a sampler goes twice over its destinations. [`RowsOf`] reads where the in-edges of the destinations of one type
//! begin, in all relations that draw, and adds up how many are taken. [`Take`] then takes the edges of one relation: it
//! draws them, reads their sources and gives these compact ids, in groups of rows, so that what one group asks of memory
//! arrives while others are worked on:
//!
//! ```text
//! while edges are left
//!     draw rows until they have GROUP edges; ask(the sources of each row)
//!     gather(sources of the group of two rounds before, and ask for their words)
//!     give ids to the group of three rounds before
//! ```
//!
//! Fan-outs are constants of the code, so that the draws of a row are straight code with what is taken in registers, and
//! relations that draw nothing are nowhere in it. Addresses, sizes and keys are arguments ([`RowsCall`], [`DrawCall`]):
//! one function serves all batches of all graphs, and all relations and hops that draw alike.
//!
//! Cranelift has no instruction that asks for memory ahead. What does nothing else (`ask`, `gather`) is therefore a function
//! of the caller, called once for a row or a group of edges; so is drawing by weight (`weigh`), which spends its time in one loop over
//! the row. These functions do not unwind.

// Generated code is called through a pointer.
#![allow(unsafe_code)]

mod draw;
mod floyd;
mod generator;
mod rows;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;

use cranelift_codegen::Context;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, Block, Function, InstBuilder, Signature, UserFuncName};
use cranelift_codegen::write::{FuncWriter, PlainWriter, decorate_function};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::JITModule;

use crate::code::{Compiler, NativeError};
use generator::Generator;

/// Edges of a group, about. Two groups of lines are on their way at a time, as many as first-level caches and their queues
/// take.
pub const GROUP: usize = 64;
/// Fan-outs up to this are drawn by straight code; larger ones in a loop, with a bit for each edge of the row.
pub const UNROLLED: u32 = 32;
/// Elements that are written behind the last edge, of any value.
pub const SLACK: usize = 16;
/// The most in-edges of a row whose taken edges are the bits of one register.
pub const SHORT: u32 = 64;
/// Destinations whose offsets are asked for together.
const AHEAD: usize = 16;

/// How the edges of a row are taken. Which ones is what the documentation of the sampler says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Take {
    /// All, in their order.
    Whole,
    /// All of rows of at most so many; of others so many by Floyd's method.
    Uniform {
        /// At least 1.
        most: u32,
        /// Are there rows of more than [`SHORT`] edges?
        long: bool,
    },
    /// As many as the offsets say: all of the row, or those that [`DrawCall::weigh`] takes.
    Weighted,
}

/// What is counted of one relation for its rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Counted {
    /// Position among the relations into the type.
    pub slot: usize,
    /// Edges taken of a row at most; `None` for all.
    pub most: Option<u32>,
    /// Is there a list of how many edges of each row can be taken?
    pub listed: bool,
}

/// The rows of the destinations of one type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowsOf {
    /// Relations into the type, drawn from or not: offsets of a vertex lie together.
    pub relations: usize,
    /// Those that are drawn from.
    pub drawn: Vec<Counted>,
}

/// A function of a sampler.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SamplerFunction {
    /// Called with a [`RowsCall`].
    Rows(RowsOf),
    /// Called with a [`DrawCall`].
    Draw(Take),
}

/// The arguments of [`SamplerFunction::Rows`].
#[repr(C)]
#[derive(Debug)]
pub struct RowsCall {
    /// `[count]`
    pub destinations: *const u32,
    /// Destinations.
    pub count: usize,
    /// First edges of a vertex, of each relation into its type. `[vertices + 1][relations]`
    pub offsets: *const u32,
    /// For each relation that is drawn from, first edge and degree of each row. `[drawn][count]`
    pub rows: *const *mut [u32; 2],
    /// For each relation that is drawn from, where its rows end, behind where the first begins. `[drawn][count + 1]`
    pub indptr: *const *mut u64,
    /// For each relation that is drawn from, how many edges of a row can be taken, where that is listed. `[drawn][vertices]`
    pub listed: *const *const u32,
    /// Asks for the offsets of some vertices: offsets, vertices, their number, relations.
    pub ask: unsafe extern "C" fn(*const u32, *const u32, usize, usize),
}

/// The arguments of [`SamplerFunction::Draw`].
#[repr(C)]
#[derive(Debug)]
pub struct DrawCall {
    /// First edge and degree of each row. `[count]`
    pub rows: *const [u32; 2],
    /// Vertex of each row. `[count]`
    pub destinations: *const u32,
    /// Rows.
    pub count: usize,
    /// Where the edges of each row begin in `edge` and `src`. `[count + 1]`
    pub indptr: *const u64,
    /// Edges taken. `[indptr[count] + SLACK]`
    pub edge: *mut u32,
    /// Ids of their sources. `[indptr[count]]`
    pub src: *mut u32,
    /// Source of each edge of the relation.
    pub sources: *const u32,
    /// For each vertex of the source type, its id beside `stamp`, if it has one. `[vertices]`
    pub words: *mut u32,
    /// In the words of vertices that have an id.
    pub stamp: u32,
    /// Ids are below this: a power of two.
    pub limit: u32,
    /// Vertices of the source type by id. `[num_known + indptr[count] - indptr[0] + 1]`
    pub known: *mut u32,
    /// How many there are; more afterwards.
    pub num_known: usize,
    /// The high half of the key of random numbers.
    pub key_high: u32,
    /// First rounds of the random numbers, by draw. `[fan-out, to the next multiple of 4]`
    pub first: *const u32,
    /// One bit for each edge of the longest row, zero between calls; for fan-outs above [`UNROLLED`].
    pub marked: *mut u64,
    /// Asks for the sources of some edges: sources, edges, their number.
    pub ask: unsafe extern "C" fn(*const u32, *const u32, usize),
    /// Asks for the sources of a whole row: sources, first edge, degree.
    pub ask_whole: unsafe extern "C" fn(*const u32, u32, u32),
    /// Reads the sources of some edges and asks for their words: sources, edges, words, where to, their number.
    pub gather: unsafe extern "C" fn(*const u32, *const u32, *const u32, *mut u32, usize),
    /// Takes edges by weight: `weigher`, first edge and degree of a row, its vertex, where to, how many.
    pub weigh: unsafe extern "C" fn(*mut c_void, u32, u32, u32, *mut u32, usize),
    /// What `weigh` needs.
    pub weigher: *mut c_void,
}

type Entry = unsafe extern "C" fn(*mut c_void);

/// Machine code of the functions of a sampler.
pub struct SamplerCode {
    /// Owns the memory of the code; taken at the end.
    module: Option<JITModule>,
    entries: BTreeMap<SamplerFunction, Entry>,
}

// SAFETY: the module is only kept for its memory, which nothing writes after it was made.
unsafe impl Sync for SamplerCode {}

impl Compiler {
    /// Machine code of these functions.
    ///
    /// # Errors
    /// When Cranelift refuses one, or the system forbids executable memory.
    pub fn sampler(&self, functions: &[SamplerFunction]) -> Result<SamplerCode, NativeError> {
        let signature = self.sampler_signature();
        let machine_code = |function: &SamplerFunction| {
            let (function, _) = self.sampler_function(function);
            self.machine_code_of(Context::for_function(function))
        };
        let (module, placed) = self.place(functions.iter().map(machine_code).collect(), &signature);
        let mut code = SamplerCode { module: Some(module), entries: BTreeMap::new() };
        for (function, address) in functions.iter().zip(placed) {
            // SAFETY: the address is that of a function with the signature of `Entry`.
            let entry = unsafe { std::mem::transmute::<*const u8, Entry>(address?) };
            code.entries.insert(function.clone(), entry);
        }
        Ok(code)
    }

    /// The Cranelift IR of a function, before optimisation, with what its blocks do.
    pub fn sampler_text(&self, function: &SamplerFunction) -> String {
        let (function, notes) = self.sampler_function(function);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = decorate_function(&mut Noted(&notes), &mut text, &function);
        text
    }

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

impl SamplerCode {
    /// Calls a function for rows; nothing where it was not made.
    ///
    /// # Safety
    /// The arrays of `call` have the lengths that it says; vertices and slots exist. Nothing else accesses what is written
    /// during the call.
    pub unsafe fn rows(&self, function: &SamplerFunction, call: &mut RowsCall) {
        if let (SamplerFunction::Rows(_), Some(entry)) = (function, self.entries.get(function)) {
            // SAFETY: the code was made for such a call, and its memory lives as long as `self`.
            unsafe { entry(std::ptr::from_mut(call).cast()) }
        }
    }

    /// Calls a function that draws; nothing where it was not made.
    ///
    /// # Safety
    /// The arrays of `call` have the lengths that it says, rows are rows of the relation, and `indptr` has as many edges for
    /// each as the function takes. Nothing else accesses what is written during the call, except that `destinations` may
    /// be vertices before `num_known` of `known`. The functions of the call are safe to call with what they are called with.
    pub unsafe fn draw(&self, function: &SamplerFunction, call: &mut DrawCall) {
        if let (SamplerFunction::Draw(_), Some(entry)) = (function, self.entries.get(function)) {
            // SAFETY: the code was made for such a call, and its memory lives as long as `self`.
            unsafe { entry(std::ptr::from_mut(call).cast()) }
        }
    }
}

impl Drop for SamplerCode {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: functions run only while `self` is borrowed.
            unsafe { module.free_memory() };
        }
    }
}

impl fmt::Debug for SamplerCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.keys().map(ToString::to_string)).finish()
    }
}

impl fmt::Display for SamplerFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SamplerFunction::Rows(RowsOf { relations, drawn }) => {
                write!(f, "rows of {relations}")?;
                for Counted { slot, most, listed } in drawn {
                    match most {
                        Some(most) => write!(f, ", {slot} most {most}")?,
                        None => write!(f, ", {slot} all")?,
                    }
                    write!(f, "{}", if *listed { " listed" } else { "" })?;
                }
                Ok(())
            }
            SamplerFunction::Draw(Take::Whole) => write!(f, "draw all"),
            SamplerFunction::Draw(Take::Uniform { most, long: true }) => write!(f, "draw {most}"),
            SamplerFunction::Draw(Take::Uniform { most, long: false }) => write!(f, "draw {most} of short rows"),
            SamplerFunction::Draw(Take::Weighted) => write!(f, "draw by weight"),
        }
    }
}

/// Writes what each block does above it.
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
