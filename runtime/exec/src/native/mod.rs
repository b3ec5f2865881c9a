//! Calls of machine code.
//!
//! The compiler decides which parts of a loop are machine code ([`hgnnc_ir::loops`]) and generates it. A
//! [`NativeLoop`] is such a call with its operands bound. The other operations of a loop are executed by micro-kernels:
//! products, weighted sums of gathered rows, dropout masks.
//!
//! # Safety
//!
//! Machine code checks no bounds. It relies on these invariants:
//! - rows of tiles, blocks and results are slices that [`crate::block`] has bounds-checked for each tile;
//! - gathered rows exist: [`Facts`] compares the largest index of a topology with the length of the buffer
//!   ([`NativeLoop::is_sound`]);
//! - `offsets` ascend and end at the number of edges of the tile: checked by [`Facts`] as well;
//! - owners of edges are written by the block itself and are rows of it;
//! - widths are consistent: [`hgnnc_ir::loops::verify()`] checks each function and call;
//! - results do not alias operands, because the plan places the outputs of a step in ranges of their own, and a
//!   schedule places live locals apart, with the operations of a call counted as one moment. Only updates of parameters
//!   and states may alias the old values: the compiler makes calls that read each element before it is overwritten.

mod facts;
mod run;

pub use facts::Facts;
pub use run::Tables;

use hgnnc_ir::loops::Access;

use crate::plan::{Level, Operand, Region};

/// A call of machine code with its operands.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct NativeLoop {
    /// Indices of the operations of the region that it executes.
    pub ops: Vec<usize>,
    /// Index of the function in the program's machine code.
    pub function: usize,
    /// Whether rows own consecutive items ([`hgnnc_ir::loops::function::Shape::Segments`]).
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

    /// Whether all rows exist that it reads without bounds checks.
    pub fn is_sound(&self, region: &Region, facts: &Facts<'_>) -> bool {
        let labels = self.indices.iter().all(|index| match *index {
            IndexArray::Labels(input) => facts.has_labels(input),
            IndexArray::Picked(_) => true,
        });
        labels
            && (!self.segments || facts.framed(region.domain))
            && self.arrays.iter().all(|operand| facts.rows_exist(region.domain, region.full_columns, operand))
    }
}
