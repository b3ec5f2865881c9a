//! The loops IR: how the rows of each traversal of a program are computed on a processor.
//!
//! A [`Nest`] has the instructions of a traversal, in the form that the kernels of the runtime take them, and the loops
//! that execute them. Rows are executed in blocks. Within a block, each [`Loop`] goes over all its rows or edges: tile
//! by tile, so that values which only this loop reads stay in the L1 cache, or at once for kernels that want many rows.
//! A step of a loop is one instruction, executed by a micro-kernel, or a call of a [`Function`] that becomes machine
//! code.
//!
//! High-degree rows that are split into pieces ([`crate::kernel::Traversal::pieces`]) go through [`EdgePass`]es: a
//! reduction over edges is complete after its pass, and the instructions that read it run in the next one. Edge values
//! are rematerialized in each pass that reads them.
//!
//! Numbers of rows, the division into blocks and pieces, addresses and threads are not part of this level: the runtime
//! binds them for each dataset or mini-batch.
//!
//! The text is that of kernels, with a nest after the instructions of each traversal:
//!
//! ```text
//! kernel k3 @NA.forward : rows Paper, in_edges of PAP, pieces of 4096 at most 1024 {
//!   i0   edge %0 = compose(add, leaky_relu(0.2)) score_src[src], score_dst[row] : 8
//!   i1   row  %1 = segment.max %0                                               : 8
//!   ...
//!   loop edges: f0(i0 i1) of score_src[src], score_dst[row] by neighbor -> i0, owners i1
//!   loop rows by 384: i2 i3
//!   pass 0
//!     loop edges by 768: i0 i1
//!   pass 1
//!     loop rows by 384: i2 i3
//! }
//! ```
//!
//! `f0(i0 i1)` executes these instructions. `of` lists its arrays, `by` the rows that its index arrays pick (or `labels`),
//! and after the arrow are the instructions whose values leave it: for each item, for the `owners` of edges, or in
//! `total`. `overwrites a0 by r1` names arrays that results overwrite.

mod access;
pub mod function;
pub mod parse;
pub mod passes;
mod print;
pub mod verify;

pub use access::{Access, access};
pub use function::Function;
pub use parse::parse;
pub use print::print;
pub use verify::{VerifiedLoops, squared, verify};

use crate::kernel::{self, Body, Instr, Level, Operand, Source, Traversal};
use hgnnc_ir::types::Input;
use rustc_hash::FxHashMap;

/// A program with the loops of its traversals.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// Tables, buffers, launches and outputs. Its traversals have their instructions as micro-kernels take them: short
    /// sequences are fused, operands that kernels need contiguous are copied, and results that overwrite values with
    /// other readers are computed into locals.
    pub kernels: kernel::Program,
    /// The loops of each kernel, in the order of [`kernel::Program::kernels`]; `None` for kernels that are no
    /// traversals.
    pub nests: Vec<Option<Nest>>,
    /// Functions that loops call, each once.
    pub functions: Vec<Function>,
}

/// The loops that execute the instructions of a traversal.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Nest {
    /// Number of instructions before the deferred ones, which copy results from locals to their buffers after all reads
    /// of the values that they overwrite.
    pub first_deferred: usize,
    /// Loops over a block of rows. Groups are independent of each other and may run in any order: the gathered rows of
    /// one group fit a cache better than those of all. Empty: there are no blocks, and all rows go through the passes.
    pub groups: Vec<Vec<Loop>>,
    /// Passes of a row that runs on its own, such as a split one; the last has no edges. Empty: no row does.
    pub passes: Vec<EdgePass>,
}

/// One pass over the edges of a split row.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EdgePass {
    /// Loops over the row, executed first.
    pub rows: Vec<Loop>,
    /// Loops over the edges of each piece, executed afterwards.
    pub edges: Vec<Loop>,
}

/// A loop over the rows or edges of a block.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// The iteration space: rows or edges.
    pub level: Level,
    /// Rows or edges of a tile, which all steps take before the next one. `None`: the steps take the whole block at once,
    /// as kernels that want many rows do, and loops of calls alone.
    pub tile: Option<usize>,
    /// The steps of each tile, in order.
    pub steps: Vec<Step>,
}

/// A step of a loop.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// An instruction, by index, executed by a micro-kernel.
    Instr(usize),
    /// Machine code.
    Call(Call),
}

/// A call of a function that computes several instructions.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// Index of the function.
    pub function: usize,
    /// The instructions that it executes, by index.
    pub instrs: Vec<usize>,
    /// The operand behind each of its arrays.
    pub arrays: Vec<Operand>,
    /// The contents of each of its index arrays.
    pub indices: Vec<IndexArray>,
    /// The destination of each of its results.
    pub results: Vec<CallResult>,
    /// Arrays that a result overwrites, with that result.
    pub replaced: Vec<(usize, usize)>,
}

/// The contents of an index array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexArray {
    /// Rows that the items of the tile read through an access.
    Picked(Access),
    /// Class labels of the rows of the tile.
    Labels(Input),
}

/// The destination of a result of a call: that of an instruction, by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallResult {
    /// The rows (edges) of the tile.
    Tile(usize),
    /// The rows that own the edges of the tile.
    Owners(usize),
    /// The partial result of a global reduction.
    Total(usize),
}

impl Loop {
    /// The instructions that it executes, in order.
    pub fn instrs(&self) -> impl Iterator<Item = usize> + '_ {
        self.steps.iter().flat_map(Step::instrs).copied()
    }
}

impl Step {
    /// The instructions that it executes.
    pub fn instrs(&self) -> &[usize] {
        match self {
            Step::Instr(instr) => std::slice::from_ref(instr),
            Step::Call(call) => &call.instrs,
        }
    }
}

impl EdgePass {
    /// Its instructions: of the row, and of each edge.
    pub fn instrs(&self) -> [Vec<usize>; 2] {
        [&self.rows, &self.edges].map(|loops| loops.iter().flat_map(Loop::instrs).collect())
    }
}

impl Nest {
    /// All loops: of groups, and of passes.
    pub fn loops(&self) -> impl Iterator<Item = &Loop> {
        let passes = self.passes.iter().flat_map(|pass| pass.rows.iter().chain(&pass.edges));
        self.groups.iter().flatten().chain(passes)
    }
}

impl Program {
    /// The traversals with their nests and the number of their kernels.
    pub fn numbered_nests(&self) -> impl Iterator<Item = (usize, &Traversal, &Nest)> {
        let all = self.kernels.kernels().zip(&self.nests).enumerate();
        all.filter_map(|(number, (kernel, nest))| match (&kernel.body, nest) {
            (Body::Traversal(traversal), Some(nest)) => Some((number, traversal, nest)),
            _ => None,
        })
    }
}

/// Per instruction, the earlier instructions that make its operands: `None` for operands that were stored before the
/// traversal, in the order of [`kernel::KernelOp::operands`].
pub fn producers(instrs: &[Instr]) -> Vec<Vec<Option<usize>>> {
    let mut made = FxHashMap::default();
    let mut all = vec![];
    for (index, instr) in instrs.iter().enumerate() {
        let of = |operand: &Operand| match operand.source {
            Source::Local(local) => made.get(&kernel::Dest::Local(local)).copied(),
            Source::Buffer(buffer) => made.get(&kernel::Dest::Buffer(buffer)).copied(),
            Source::Const(_) | Source::Count(_) => None,
        };
        all.push(instr.op.operands().iter().map(of).collect());
        made.insert(instr.dest, index);
    }
    all
}
