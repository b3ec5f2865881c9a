//! What runs in which memory, in which blocks of rows: made once from a program of kernels and the sizes of its data.
//!
//! What is computed, in which order, with what, and what is stored, has been decided when this begins: it stands in
//! the [`hgnnc_ir::kernel::Program`]. A plan is a list of steps, one per kernel, of which some run together. A *region* is a traversal, executed
//! in blocks of rows, operation by operation, so edge values exist for the edges of a block only. A *product* is a
//! dense product over all rows. [`crate::block`] executes blocks, and is what generated code can replace.

mod bind;
mod factored_metapath;
mod fuse;
pub(crate) mod region;
mod split_rows;

pub use bind::plan;
pub use factored_metapath::{Chunk, FactoredStep, Norm};
pub use region::operands;
pub use split_rows::{Areas, SplitRows};

use hgnnc_ir::ops::{BinaryOp, Direction, Extreme, Reduce, UnaryOp};
use hgnnc_ir::types::{Param, Stage, Type, VertexType};

use crate::buffer::BufferRange;
use crate::kernels::flat::Pair;
use crate::kernels::product::Extents;

/// Positions of the slabs that programs share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slabs {
    /// Values of a run.
    pub arena: u32,
    /// Partial results of the tasks of one step.
    pub partials: u32,
    /// Step number and epoch number.
    pub counters: u32,
    /// Values that depend on no parameter, state, mask or counter.
    pub persistent: u32,
    /// Constants.
    pub constants: u32,
    /// The first parameter; the others follow.
    pub params: u32,
    /// The first optimiser state.
    pub states: u32,
    /// The first input.
    pub inputs: u32,
}

/// A planned program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// Steps that run once, when the program is bound.
    pub prelude: Vec<Step>,
    /// Steps of each run.
    pub steps: Vec<Step>,
    /// Position of the first step that may change parameters or states.
    pub first_update: usize,
    /// Elements of the arena.
    pub arena_len: usize,
    /// Elements of the persistent slab.
    pub persistent_len: usize,
    /// Elements of the slab of partial results.
    pub partials_len: usize,
    /// Elements of a tile of fetched operands.
    pub tile_len: usize,
    /// Most edges of a block.
    pub block_edges: usize,
    /// Most rows of a block.
    pub block_rows: usize,
    /// Constants.
    pub constants: Vec<f32>,
    /// Results by name.
    pub results: Vec<ResultBuffer>,
    /// New values of parameters and states.
    pub updates: Vec<Update>,
}

/// A result of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct ResultBuffer {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Number of rows.
    pub rows: usize,
    /// Elements per row.
    pub width: usize,
    /// Where it is.
    pub buffer: BufferRange,
}

/// An optimiser state: its parameter and slot, in the order of the state slabs.
pub type StateId = (Param, u32);

/// One step.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// What it does.
    pub kind: StepKind,
    /// Phase it is accounted to.
    pub phase: hgnnc_ir::Phase,
    /// Share of each stage (in the order of [`hgnnc_ir::Stage::ALL`]) of its time, by estimated cost.
    pub shares: [f32; 5],
    /// For people: operations and place.
    pub label: String,
    /// It belongs to the launch of the step before it: neither needs the other.
    pub together: bool,
}

/// What a step does.
#[derive(Clone, PartialEq, Debug)]
pub enum StepKind {
    /// A program per block of rows.
    Region(Region),
    /// A dense product over all rows.
    Product(Product),
    /// Sums over paths.
    Factored(Box<FactoredStep>),
    /// Copies elements.
    Copy {
        /// From.
        from: BufferRange,
        /// To.
        to: BufferRange,
    },
}

/// Which rows a region has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// This many rows without edges (one: unit values; elements of a parameter: rows of width 1).
    Rows(usize),
    /// The rows of a topology, with the edges that they own.
    Edges {
        /// Graph, or, after all graphs, pattern.
        topology: usize,
        /// Which end owns the edges.
        direction: Direction,
        /// Only the rows that own edges.
        ends: bool,
    },
}

/// A region.
#[derive(Clone, PartialEq, Debug)]
pub struct Region {
    /// Its rows.
    pub domain: Domain,
    /// What is computed for each block, in order.
    pub ops: Vec<BlockOp>,
    /// Values within a block.
    pub locals: Vec<Local>,
    /// First row of each block, and one past the last row.
    pub blocks: Vec<u32>,
    /// First block of each task, and one past the last block.
    pub tasks: Vec<u32>,
    /// Rows that are cut into pieces. Each is a block of its own, which its task leaves out.
    pub split: Option<Box<SplitRows>>,
    /// Results that are sums (or other reductions) over tasks.
    pub partials: Vec<Partial>,
    /// Does an operand use [`Access::Owner`], or a mask the own row?
    pub uses_own: bool,
    /// Does an operand use [`Access::OwnerVertex`] or [`Access::OwnerEnd`]?
    pub uses_own_end: bool,
    /// Number of columns where an operand uses [`Access::DenseCell`].
    pub full_columns: Option<usize>,
}

/// A reduction over the rows or edges of a region: each task has its own part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial {
    /// The result.
    pub out: BufferRange,
    /// How.
    pub reduce: Reduce,
    /// What it reduces.
    pub level: Level,
    /// Elements.
    pub width: usize,
    /// Where the parts begin in the slab of partial results; part `t` at `offset + t · width`. Parts of the tasks of cut
    /// rows (or of their pieces) follow those of all others.
    pub offset: usize,
}

impl Region {
    /// The rows of a block, unless they are one row that is cut.
    pub fn block(&self, block: usize) -> Option<std::ops::Range<usize>> {
        let rows = self.blocks[block] as usize..self.blocks[block + 1] as usize;
        (!self.split.as_ref().is_some_and(|split| split.has(&rows))).then_some(rows)
    }

    /// The rows of all blocks that are executed as such.
    pub fn whole_blocks(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        (0..self.blocks.len().saturating_sub(1)).filter_map(|block| self.block(block))
    }

    /// Number of parts of a partial: by tasks, and by tasks of cut rows.
    pub fn parts(&self, partial: &Partial) -> (usize, usize) {
        let cut = self.split.as_ref().map_or(0, |split| match partial.level {
            Level::Row => split.row_tasks.len(),
            Level::Edge => split.piece_tasks.len(),
        });
        (self.tasks.len() - 1, cut)
    }
}

/// Does it have edges as operands and rows as results?
pub fn reduces_edges(kind: &BlockKind) -> bool {
    matches!(
        kind,
        BlockKind::Segment(..)
            | BlockKind::WeightedSum { .. }
            | BlockKind::SoftmaxSum { .. }
            | BlockKind::SegmentArg { .. }
    )
}

/// What a value of a block has a row for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Each row of the block.
    Row,
    /// Each edge of the block.
    Edge,
}

/// A value within a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Local {
    /// Rows or edges.
    pub level: Level,
    /// Elements per row.
    pub width: usize,
    /// Where it is.
    pub place: Place,
}

/// Where a value of a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the scratch of the thread.
    Scratch,
    /// In its rows of a stored value.
    Stored(BufferRange),
}

/// Where an operand comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Base {
    /// A value of this block.
    Local(u32),
    /// A stored value.
    Stored(BufferRange),
}

/// Which row of the base belongs to row (edge) `i` of the operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Row `i`, counted within the block (from the block's first row where stored).
    Each,
    /// Always the same.
    Same,
    /// The row that owns edge `i`.
    Owner,
    /// The other end of edge `i`.
    Neighbor,
    /// The vertex of row `i`, where rows are the ends of a graph.
    Vertex,
    /// The vertex of the row that owns edge `i`, where rows are the ends of a graph.
    OwnerVertex,
    /// The row that owns edge `i`, counted among those that own edges, where rows are all vertices.
    OwnerEnd,
    /// The other end of edge `i`, counted among the ends of the graph.
    NeighborEnd,
    /// The CSC position of edge `i`.
    Eid,
    /// Element (row, column) of a dense matrix, for element `i` of a sparse one.
    DenseCell,
}

/// An operand of a block operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operand {
    /// From where.
    pub base: Base,
    /// Which row.
    pub access: Access,
    /// Elements per row.
    pub width: usize,
}

/// An operation of a block.
#[derive(Clone, PartialEq, Debug)]
pub struct BlockOp {
    /// What.
    pub kind: BlockKind,
    /// What the operands have a row for.
    pub level: Level,
    /// The local, or for the partial kinds the partial, that it computes.
    pub out: u32,
    /// Stage that it is accounted to.
    pub stage: Stage,
}

/// What a mask has rows for: it is drawn for their numbers in the dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaskRows {
    /// What has the same number everywhere.
    Rows,
    /// Vertices; of a sparse mask, those of its rows.
    Vertices(VertexType),
    /// Edges of a graph.
    Edges(usize),
}

/// What a block operation computes.
#[derive(Clone, PartialEq, Debug)]
pub enum BlockKind {
    /// `f(a)`
    Unary(UnaryOp, Operand),
    /// `a ∘ b`; narrower operands repeat each element.
    Binary(BinaryOp, Operand, Operand),
    /// Two functions at once; narrower operands repeat each element.
    Pair(Pair, Operand, Operand),
    /// `positive` where `a` is above zero, `otherwise` elsewhere.
    Choose {
        /// Whose sign.
        a: Operand,
        /// Above zero.
        positive: f32,
        /// At zero, below, and where it is no number.
        otherwise: f32,
    },
    /// Each element of `a` repeated to the width of the result.
    Copy(Operand),
    /// Rows at hand, to their place when all that reads what lay there is done.
    Store(Operand),
    /// `a` with the rows of some vertices replaced.
    Replace(Operand, EndRows),
    /// `a` with rows added to those of some vertices, in this order.
    AddEnds(Operand, Vec<EndRows>),
    /// Along the last dimension: operands with the extent of their last dimension, and the leading extent.
    Concat(Vec<(Operand, usize)>, usize),
    /// `len` of every `last` elements.
    Slice {
        /// From.
        a: Operand,
        /// Extent of the last dimension of `a`.
        last: usize,
        /// First element.
        start: usize,
        /// Number of elements.
        len: usize,
    },
    /// Class labels of the rows, by input.
    OneHot {
        /// Position in the table of inputs.
        input: usize,
        /// Number of classes.
        classes: usize,
    },
    /// A dropout mask.
    Mask {
        /// Its stream.
        stream: u32,
        /// Its rate.
        rate: f64,
        /// Columns of the dense layout, where the mask is sparse.
        columns: Option<usize>,
        /// What its rows are.
        of: MaskRows,
    },
    /// `x · w`
    MatMul(Extents, Operand, Operand),
    /// `y · wᵀ`
    MatMulT(Extents, Operand, Operand),
    /// Over groups of `inner` elements.
    ReduceTrailing(Reduce, Operand, usize),
    /// `Σ a · b` over groups of `inner` elements.
    Dot {
        /// One side.
        a: Operand,
        /// The other.
        b: Operand,
        /// Elements of a group.
        inner: usize,
    },
    /// Over the edges of each row.
    Segment(Reduce, Operand),
    /// `Σ a · x` over the edges of each row; `inner` elements of `x` per weight.
    WeightedSum {
        /// Weights, `heads` per edge.
        a: Operand,
        /// Rows of `heads · inner` elements.
        x: Operand,
        /// Elements per weight.
        inner: usize,
    },
    /// An online softmax of the scores of the edges of each row: see [`hgnnc_ir::kernel::KernelOp::SoftmaxSum`].
    SoftmaxSum {
        /// Scores, one per head and edge.
        score: Operand,
        /// Rows of `heads · inner` elements.
        x: Operand,
        /// Multipliers of the weights.
        times: Option<Operand>,
    },
    /// Extreme elements over the edges of each row, then the ranks of their edges: see
    /// [`hgnnc_ir::kernel::KernelOp::SegmentArg`].
    SegmentArg {
        /// Largest or smallest.
        extreme: Extreme,
        /// Elements of edges.
        x: Operand,
        /// The rank of each edge.
        rank: Operand,
    },
    /// Over all rows or edges, into a partial.
    PartialReduce(Reduce, Operand),
    /// The sum of outer products over all rows or edges, into a partial.
    PartialOuter(Extents, Operand, Operand),
}

/// A stored value with a row for each end of a graph, met at the rows of all vertices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndRows {
    /// Where it is.
    pub buffer: BufferRange,
    /// The graph.
    pub topology: usize,
    /// Which ends.
    pub direction: Direction,
}

/// A new value of a parameter or state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update {
    /// The slab of the parameter or state.
    pub target: u32,
    /// The value.
    pub from: BufferRange,
    /// Where it has rows for the ends of a graph only: graph, which ends, and elements per row.
    pub rows: Option<(usize, Direction, usize)>,
}

/// A dense product over all rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Product {
    /// Which.
    pub kind: ProductKind,
    /// Extents.
    pub of: Extents,
    /// Number of rows.
    pub rows: usize,
    /// First operand.
    pub x: BufferRange,
    /// Second operand.
    pub y: BufferRange,
    /// Result.
    pub out: BufferRange,
    /// How it is divided.
    pub split: Split,
    /// Offset of its parts in the slab of partials, where it is divided into parts.
    pub partials: usize,
}

/// Which product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProductKind {
    /// `x · w`
    MatMul,
    /// `y · wᵀ`
    MatMulT,
    /// `Σ xᵀ y`
    Outer,
}

/// How a product is divided into tasks: by shapes alone, never by threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Split {
    /// Chunks of this many rows, each with its own rows of the result.
    Rows(usize),
    /// Bands of this many of the `k` rows of the result (`batch` is 1).
    Bands(usize),
    /// Chunks of this many rows whose parts of the result are added in order.
    Parts(usize),
}
