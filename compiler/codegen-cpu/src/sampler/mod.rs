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

/// Approximate number of edges of a group. The cache lines of two groups are in flight at a time, which fills L1 caches
/// and their miss queues.
pub const GROUP: usize = 64;
/// Largest fan-out that is unrolled. Larger ones use a loop, with a bit in memory for each edge of the row.
pub const UNROLLED: u32 = 32;
/// Elements that may be written past the last edge, with any value.
pub const SLACK: usize = 16;
/// Largest degree for which the set of sampled edges is a bit mask in a register.
pub const SHORT: u32 = 64;
/// Number of destinations whose offsets are prefetched together.
const AHEAD: usize = 16;

/// The sampling method for the edges of a row. The sampler's documentation defines the distribution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Take {
    /// All edges, in CSC order.
    Whole,
    /// All edges of rows with at most `most`; longer rows sample `most` edges without replacement (Floyd).
    Uniform {
        /// Fan-out, at least 1.
        most: u32,
        /// Does any row have more than [`SHORT`] edges?
        long: bool,
    },
    /// As many edges as `indptr` reserves: all of the row, or the samples of [`DrawCall::weigh`].
    Weighted,
}

/// Parameters for counting the sampled edges of one relation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Counted {
    /// Position among the relations into the vertex type.
    pub slot: usize,
    /// Fan-out; `None` to take all edges.
    pub most: Option<u32>,
    /// Is the number of edges that can be sampled listed per vertex? Otherwise it is the degree.
    pub listed: bool,
}

/// Parameters of the first pass: the rows of the destinations of one type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowsOf {
    /// Number of relations into the type, sampled or not: the offsets of a vertex are contiguous.
    pub relations: usize,
    /// The relations that are sampled.
    pub drawn: Vec<Counted>,
}

/// A function of a sampler.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SamplerFunction {
    /// The first pass, called with a [`RowsCall`].
    Rows(RowsOf),
    /// The sampling of one relation, called with a [`DrawCall`].
    Draw(Take),
}

/// The arguments of a [`SamplerFunction::Rows`] function.
#[repr(C)]
#[derive(Debug)]
pub struct RowsCall {
    /// Destination vertices of the hop. `[count]`
    pub destinations: *const u32,
    /// Number of destinations, which are the rows.
    pub count: usize,
    /// First edge of each vertex, for each relation into its type. `[vertices + 1][relations]`
    pub offsets: *const u32,
    /// Output, per sampled relation: first edge and degree of each row. `[drawn][count]`
    pub rows: *const *mut [u32; 2],
    /// Output, per sampled relation: prefix sums of sampled edges, whose first entry is given. `[drawn][count + 1]`
    pub indptr: *const *mut u64,
    /// Per sampled relation: number of edges of a vertex that can be
    /// sampled, where [`Counted::listed`]. `[drawn][vertices]`
    pub listed: *const *const u32,
    /// Callback that prefetches the offsets of some vertices: offsets, vertices, their number, relations.
    pub ask: unsafe extern "C" fn(*const u32, *const u32, usize, usize),
}

/// The arguments of a [`SamplerFunction::Draw`] function.
#[repr(C)]
#[derive(Debug)]
pub struct DrawCall {
    /// First edge and degree of each row. `[count]`
    pub rows: *const [u32; 2],
    /// Destination vertex of each row. `[count]`
    pub destinations: *const u32,
    /// Number of rows, one per destination.
    pub count: usize,
    /// Prefix sums of sampled edges: row `r` writes `edge[indptr[r]..indptr[r + 1]]`. `[count + 1]`
    pub indptr: *const u64,
    /// Output: the sampled edges. `[indptr[count] + SLACK]`
    pub edge: *mut u32,
    /// Output: compact ids of their sources. `[indptr[count]]`
    pub src: *mut u32,
    /// Source vertex of each edge of the relation.
    pub sources: *const u32,
    /// For each vertex of the source type, `stamp | id` if it has an id. `[vertices]`
    pub words: *mut u32,
    /// High bits that mark the words of vertices with an id.
    pub stamp: u32,
    /// Upper bound of the ids, a power of two.
    pub limit: u32,
    /// Vertices of the source type by compact id. `[num_known + indptr[count] - indptr[0] + 1]`
    pub known: *mut u32,
    /// Number of compact ids; the function adds those it assigns.
    pub num_known: usize,
    /// The high half of the key of the random numbers.
    pub key_high: u32,
    /// First rounds of the random numbers, by draw. `[fan-out, rounded up to a multiple of 4]`
    pub first: *const u32,
    /// One bit per edge of the longest row, all zero between calls; for fan-outs above [`UNROLLED`].
    pub marked: *mut u64,
    /// Callback that prefetches the sources of some edges: sources, edges, their number.
    pub ask: unsafe extern "C" fn(*const u32, *const u32, usize),
    /// Callback that prefetches the sources of a whole row: sources, first edge, degree.
    pub ask_whole: unsafe extern "C" fn(*const u32, u32, u32),
    /// Callback that reads the sources of some edges and prefetches their words: sources, edges,
    /// words, output, their number.
    pub gather: unsafe extern "C" fn(*const u32, *const u32, *const u32, *mut u32, usize),
    /// Callback for weighted sampling: `weigher`, first edge and degree of a row, its vertex,
    /// output, number of samples.
    pub weigh: unsafe extern "C" fn(*mut c_void, u32, u32, u32, *mut u32, usize),
    /// The context argument of `weigh`.
    pub weigher: *mut c_void,
}

type Entry = unsafe extern "C" fn(*mut c_void);

/// Owner of the machine code of a sampler.
pub struct SamplerCode {
    /// Owns the code memory; taken when `self` is dropped.
    module: Option<JITModule>,
    entries: BTreeMap<SamplerFunction, Entry>,
}

// SAFETY: the module is kept for its memory only, which is not written after the code was made.
unsafe impl Sync for SamplerCode {}

impl Compiler {
    /// Compiles the given functions.
    ///
    /// # Errors
    /// If Cranelift rejects a function, or the system forbids executable memory.
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

    /// The Cranelift IR of a function, before optimization, with comments on its blocks.
    pub fn sampler_text(&self, function: &SamplerFunction) -> String {
        let (function, notes) = self.sampler_function(function);
        let mut text = String::new();
        // Formatting into a string does not fail.
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
    /// Calls a function of the first pass; does nothing if it was not compiled.
    ///
    /// # Safety
    /// The arrays of `call` have the documented lengths; vertices and slots are in range. During the call nothing else
    /// accesses the memory that is written.
    pub unsafe fn rows(&self, function: &SamplerFunction, call: &mut RowsCall) {
        if let (SamplerFunction::Rows(_), Some(entry)) = (function, self.entries.get(function)) {
            // SAFETY: the code was compiled for such a call, and its memory lives as long as `self`.
            unsafe { entry(std::ptr::from_mut(call).cast()) }
        }
    }

    /// Calls a function that samples edges; does nothing if it was not compiled.
    ///
    /// # Safety
    /// The arrays of `call` have the documented lengths, rows are rows of the relation, and `indptr` reserves as many
    /// edges for each row as the function samples. During the call nothing else accesses the memory that is written,
    /// except that `destinations` may point to the first `num_known` entries of `known`. The callbacks are safe to call
    /// with the arguments that the function passes.
    pub unsafe fn draw(&self, function: &SamplerFunction, call: &mut DrawCall) {
        if let (SamplerFunction::Draw(_), Some(entry)) = (function, self.entries.get(function)) {
            // SAFETY: the code was compiled for such a call, and its memory lives as long as `self`.
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
