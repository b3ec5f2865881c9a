//! The loops of a region with their operands bound.

use hgnnc_kernel_ir::loops::Access;

use super::{Level, Operand, Region};

/// A loop over the rows or edges of a block.
#[derive(Clone, PartialEq, Debug)]
pub struct FusedLoop {
    /// Iteration space: rows or edges.
    pub level: Level,
    /// Edges or rows per tile; `None`: the entire block at once.
    pub tile: Option<usize>,
    /// The steps of each tile, in order.
    pub steps: Vec<LoopStep>,
}

/// A step of a loop.
#[derive(Clone, PartialEq, Debug)]
pub enum LoopStep {
    /// An operation of the region, by index, executed by a micro-kernel.
    Op(usize),
    /// A call of machine code.
    Native(NativeLoop),
}

impl LoopStep {
    /// The operations of the region that it executes, by index.
    pub fn ops(&self) -> &[usize] {
        match self {
            LoopStep::Op(op) => std::slice::from_ref(op),
            LoopStep::Native(part) => &part.ops,
        }
    }
}

impl FusedLoop {
    /// The operations of the region that it executes, by index.
    pub fn ops(&self) -> impl Iterator<Item = usize> + '_ {
        self.steps.iter().flat_map(LoopStep::ops).copied()
    }

    /// Calls of machine code.
    pub fn calls(&self) -> impl Iterator<Item = &NativeLoop> {
        self.steps.iter().filter_map(|step| match step {
            LoopStep::Native(part) => Some(part),
            LoopStep::Op(_) => None,
        })
    }
}

/// A call of machine code with its operands.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct NativeLoop {
    /// Indices of the operations of the region that it executes.
    pub ops: Vec<usize>,
    /// Index of the function in the program's machine code.
    pub function: usize,
    /// Whether rows own consecutive items ([`hgnnc_kernel_ir::loops::function::Shape::Segments`]).
    pub segments: bool,
    pub arrays: Vec<Operand>,
    pub indices: Vec<IndexArray>,
    pub results: Vec<LoopResult>,
    /// Iteration space: rows or edges.
    pub level: Level,
    /// Operand arrays that a result aliases, with that result.
    pub replaced: Vec<(usize, usize)>,
}

/// Source of an index array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexArray {
    /// Rows that the items of the tile read through an access.
    Picked(Access),
    /// Class labels of the rows of the tile, by input.
    Labels(usize),
}

/// Destination of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopResult {
    /// The tile's rows (edges) of a local.
    Tile(u32),
    /// Rows of a local that own the tile's edges.
    Owners(u32),
    /// The task's partial result.
    Partial(u32),
}

impl NativeLoop {
    /// Locals that exist in registers only.
    pub fn internal(&self, region: &Region) -> Vec<u32> {
        let ops = self.ops.iter().map(|&op| &region.ops[op]);
        let locals = ops.filter(|op| !op.op.is_total()).map(|op| op.out);
        let is_result = |local: u32| {
            self.results
                .iter()
                .any(|result| matches!(*result, LoopResult::Tile(l) | LoopResult::Owners(l) if l == local))
        };
        locals.filter(|&local| !is_result(local)).collect()
    }
}
