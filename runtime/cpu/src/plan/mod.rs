//! Execution plan of a program: steps, memory, and blocks of rows.
//!
//! Operations, their order, fusion and stored values are fixed by the [`hgnnc_kernel_ir::kernel::Program`]. A plan is a list
//! of steps, one per kernel; independent steps share a launch. A *region* is a traversal, executed operation by
//! operation in blocks of rows, so edge values exist for the edges of one block only. A *product* is a dense product
//! over all rows. [`crate::block`] executes blocks; generated code can replace its loops.
//!
//! The operations of a region name stored values ([`Stored`]), and do not depend on sizes. A plan is *bound* to data:
//! that gives stored values their addresses ([`Plan::ranges`]), and divides rows into blocks and tasks. [`rebind`] binds
//! a plan to other data of the same program, such as the next mini-batch.

mod bind;
pub mod check;
mod factored_metapath;
mod fused_loops;
mod grouped;
mod liveness;
pub(crate) mod region;
mod split_rows;

pub use bind::{plan, rebind};
pub use factored_metapath::{Chunk, FactoredStep, Norm};
pub use fused_loops::{FusedLoop, IndexArray, LoopResult, LoopStep, NativeLoop};
pub use grouped::{GroupedProduct, MemberSum, Piece};
pub use liveness::{Liveness, block_extents, block_widths};
pub use split_rows::{Areas, SplitRows};

use hgnnc_ir::ops::{Direction, Reduce};
use hgnnc_ir::types::{Stage, Type, VertexType};
pub use hgnnc_kernel_ir::kernel::Level;
use hgnnc_kernel_ir::kernel::{KernelOp, Source};
pub use hgnnc_kernel_ir::loops::Access;

use crate::slabs::SlabLayout;
use bind::Placed;
use hgnnc_data::buffer::BufferRange;
use hgnnc_kernels::product::Extents;
use hgnnc_machine::KernelFeatures;
use region::Needs;

/// A stored value of a program, or a constant: an index in [`Plan::ranges`]. Operands name it, so that they do not
/// depend on the sizes of the data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stored(pub u32);

impl Stored {
    /// Its location in bound data.
    pub fn range(self, ranges: &[BufferRange]) -> BufferRange {
        ranges[self.0 as usize]
    }
}

/// Plan of a program.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Plan {
    /// The slabs of the engine, and the number of the program in it.
    slabs: SlabLayout,
    number: usize,
    /// Most elements of the local values of a row block, if a row has no more.
    block_len: usize,
    features: KernelFeatures,
    /// Location of each stored value: of the buffers of the program, then of its constants.
    pub ranges: Vec<BufferRange>,
    /// Steps that run once, when the program is bound.
    pub prelude: Vec<Step>,
    /// Steps of each run.
    pub steps: Vec<Step>,
    /// Index of the first step of the second part of a run, which may overwrite parameters or states
    /// ([`hgnnc_kernel_ir::kernel::Program::second_part`]).
    pub first_update: usize,
    /// Elements of the arena.
    pub arena_len: usize,
    /// Elements of the persistent slab.
    pub persistent_len: usize,
    /// Elements of the slab of partial results.
    pub partials_len: usize,
    /// Elements of a tile of gathered operands.
    pub tile_len: usize,
    pub block_edges: usize,
    pub block_rows: usize,
    pub constants: Vec<f32>,
    /// Source of each constant: a number in the program, or the number of rows of a space.
    constant_sources: Vec<Source>,
    /// Memory of computed buffers.
    placed: Placed,
    pub results: Vec<ResultBuffer>,
    /// Updates of parameters and states that are not in place.
    pub updates: Vec<Update>,
}

/// Location of a result of a program.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ResultBuffer {
    pub name: String,
    pub ty: Type,
    pub rows: usize,
    pub width: usize,
    pub buffer: BufferRange,
}

/// A step of a plan: one kernel.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Step {
    pub kind: StepKind,
    /// Phase that its time is attributed to.
    pub phase: hgnnc_ir::Phase,
    /// Estimated share of each stage in its time, in the order of [`hgnnc_ir::Stage::ALL`].
    pub shares: [f32; 5],
    /// Operations and place, for profiles.
    pub label: String,
    /// Whether it shares the launch of the previous step, because they are independent.
    pub together: bool,
}

/// Kind of a step.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "variants and fields are named for what they hold")]
pub enum StepKind {
    /// A fused traversal, executed block by block.
    Region(Box<Region>),
    /// Dense product over all rows.
    Product(Product),
    /// Products of the members of a stack, each with its weight.
    Grouped(Box<GroupedProduct>),
    /// Aggregation over a factored metapath.
    Factored(Box<FactoredStep>),
    /// Rows that other ranks send.
    Exchange(ExchangeStep),
    /// A sum of the rows of all ranks.
    RankSum(RankSumStep),
    Copy {
        from: BufferRange,
        to: BufferRange,
    },
}

/// Rows of a vertex type that ranks send each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ExchangeStep {
    /// Rows that are sent.
    pub x: BufferRange,
    /// Rows that are received.
    pub out: BufferRange,
    /// The type of the received rows, whose route the data has.
    pub to: VertexType,
    /// Elements of a row.
    pub width: usize,
    /// Whether the rows of this rank were computed among those that are received.
    pub in_place: bool,
}

/// Rows that each rank has, and their sum over all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct RankSumStep {
    /// The rows of this rank.
    pub x: BufferRange,
    /// As long as a row.
    pub out: BufferRange,
    /// The type of the rows, whose numbers on all ranks the data has.
    pub rows: VertexType,
}

/// Iteration space of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// This many rows without edges (one for unit values; elements of a parameter are rows of width 1).
    Rows(usize),
    /// Rows of a topology, with their edges.
    Edges {
        /// Index of a graph, or, after all graphs, of a pattern.
        topology: usize,
        /// Direction of the edges that rows own: in-edges or out-edges.
        direction: Direction,
        /// Whether only active vertices are rows.
        ends: bool,
    },
}

/// A fused traversal, executed in blocks of rows. Operations, loops and locals do not depend on the sizes of the data;
/// the domain, blocks, tasks and partial results are bound to them.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Region {
    pub domain: Domain,
    /// Facts about its operations that its division into blocks and tasks depends on.
    needs: Needs,
    /// Operations of a block, in order.
    pub ops: Vec<BlockOp>,
    /// Loops over blocks, in independent groups. Tile sizes are not set yet: 0 or 1.
    pub groups: Vec<Vec<FusedLoop>>,
    /// For each edge pass over split rows, the loops over the row and over the edges of a piece.
    pub passes: Vec<[Vec<FusedLoop>; 2]>,
    /// Local values of a block.
    pub locals: Vec<Local>,
    /// First row of each block, and the end of the last.
    pub blocks: Vec<u32>,
    /// First block of each task, and the end of the last.
    pub tasks: Vec<u32>,
    /// Split rows. Each is a block of its own, which the task of that block skips.
    pub split: Option<Box<SplitRows>>,
    /// Reductions over all tasks.
    pub partials: Vec<Partial>,
    /// Whether an operand uses [`Access::Owner`], or a dropout mask the owner row.
    pub uses_own: bool,
    /// Whether an operand uses [`Access::OwnerVertex`] or [`Access::OwnerEnd`].
    pub uses_own_end: bool,
    /// Number of columns if an operand uses [`Access::DenseCell`].
    pub full_columns: Option<usize>,
    /// Number of columns of the sparse matrix whose elements the rows own.
    pub pattern_columns: Option<usize>,
    /// Index spaces of dropout masks per row, and per edge.
    pub mask_rows: [MaskRows; 2],
}

/// A reduction over all rows or edges of a region, with one partial result per task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Partial {
    pub out: Stored,
    pub reduce: Reduce,
    /// Iteration space that is reduced.
    pub level: Level,
    pub width: usize,
    /// Offset of the partial results in the partials slab; that of task `t` is at `offset + t · width`. Those of the
    /// tasks of split rows (or of their pieces) follow all others. Bound with the tasks.
    pub offset: usize,
}

impl Region {
    /// Rows of a block; `None` for a split row.
    pub fn block(&self, block: usize) -> Option<std::ops::Range<usize>> {
        let rows = self.blocks[block] as usize..self.blocks[block + 1] as usize;
        (!self.split.as_ref().is_some_and(|split| split.has(&rows))).then_some(rows)
    }

    /// Rows of all blocks without split rows.
    pub fn unsplit_blocks(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        (0..self.blocks.len().saturating_sub(1)).filter_map(|block| self.block(block))
    }

    /// Number of partial results: of regular tasks, and of tasks of split rows.
    pub fn parts(&self, partial: &Partial) -> (usize, usize) {
        let cut = self.split.as_ref().map_or(0, |split| match partial.level {
            Level::Row => split.row_tasks.len(),
            Level::Edge => split.piece_tasks.len(),
        });
        (self.tasks.len() - 1, cut)
    }
}

/// A local value of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Local {
    pub level: Level,
    pub width: usize,
    pub place: Place,
}

/// Location of a local value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Scratch of the thread.
    Scratch,
    /// The corresponding rows of a stored value.
    Stored(Stored),
}

/// Source of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "variants and fields are named for what they hold")]
pub enum Base {
    /// Local value of this block.
    Local(u32),
    Stored(Stored),
    /// Class labels, by index in the table of inputs.
    Labels(u32),
}

/// An operand of a block operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Operand {
    pub base: Base,
    pub access: Access,
    pub width: usize,
}

/// An operation of a block: a global reduction computes a partial result.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct BlockOp {
    pub op: KernelOp<Operand, usize>,
    /// Iteration space of the operands.
    pub level: Level,
    /// Result: a local, or an index of [`Region::partials`] for global reductions.
    pub out: u32,
    /// Stage that its time is attributed to.
    pub stage: Stage,
}

/// Index space of a dropout mask: masks are functions of dataset ids, so they do not change
/// when vertices are renumbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaskRows {
    /// Rows whose ids never change.
    Rows,
    /// Vertices; for a sparse mask those of its rows.
    Vertices(VertexType),
    /// Edges of a graph.
    Edges(usize),
}

/// A new value of a parameter or state, to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Update {
    /// Slab index of the parameter or state.
    pub target: u32,
    pub from: BufferRange,
    /// If it has rows for active vertices only: graph, direction, and elements per row.
    pub rows: Option<(usize, Direction, usize)>,
}

/// A dense product over all rows.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Product {
    pub kind: ProductKind,
    pub of: Extents,
    pub rows: usize,
    pub x: BufferRange,
    pub y: BufferRange,
    pub out: BufferRange,
    /// Division of the product into tasks.
    pub split: Split,
    /// Offset of its partial results in the partials slab, for [`Split::Parts`].
    pub partials: usize,
}

/// Form of a dense product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "variants and fields are named for what they hold")]
pub enum ProductKind {
    MatMul,
    MatMulT,
    Outer,
}

/// Division of a product into tasks: a function of shapes, not of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Split {
    /// Chunks of this many rows, each with its own rows of the result.
    Rows(usize),
    /// Bands of this many of the `k` rows of the result (`batch` is 1).
    Bands(usize),
    /// Chunks of this many rows, with partial results that are added in order.
    Parts(usize),
}
