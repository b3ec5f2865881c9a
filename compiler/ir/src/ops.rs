//! The operation set of the dataflow IR.
//!
//! Notation: `S[a, b]` is a value of space `S` with trailing dimensions `a, b`; `[a, b]` is a value of
//! [`Space::Unit`]. [`crate::infer::infer`] computes result types and documents the typing rules.

pub use crate::elementwise::{BinaryOp, UnaryOp};
use crate::metapath::MetapathReduce;
use crate::training::RankingLoss;
use crate::types::{Graph, Input, Param, Space, Type, VertexType};

/// One operation. Operands are the `args` of its [`crate::ValueData`], in the order given here.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum Op {
    // ---- leaves -------------------------------------------------------------------------------
    /// Data that the runtime provides. Type as declared in the input table.
    Input(Input),
    /// A trainable parameter, `[dims]`. Type as declared in the parameter table.
    Param(Param),
    /// Optimizer state of a parameter (`slot` counts from 0; Adam has two), of the same type as the parameter. Zero
    /// before the first step. A program that updates it has an output for it.
    State(Param, u32),
    /// A scalar constant, `[]`.
    Const(f64),
    /// The number of rows of a space as a scalar, `[]`.
    Count(Space),
    /// The dropout mask: each element is `1 / (1 - rate)` with probability `1 - rate` and else 0. It is a pure function
    /// ([`crate::random::mask_element`]) of (seed, step, `stream`, linear index). The linear index counts the elements
    /// of the dense layout, so a sparse value gets the same mask. No operands.
    RandomMask {
        /// Distinguishes the masks of one program.
        stream: u32,
        /// Probability of a zero, in [0, 1).
        rate: f64,
        /// Type of the mask. With a sparse layout, only stored elements are drawn.
        ty: Type,
    },

    // ---- element-wise -------------------------------------------------------------------------
    /// `f(a)`, element by element.
    Unary(UnaryOp),
    /// `a ∘ b`, element by element. Operands broadcast: a unit value to every row, and dimensions by
    /// prefix (`S[h]` meets `S[h, k]` as `S[h, 1]` would in NumPy).
    Binary(BinaryOp),
    /// Repeats `a` to the given type: unit rows to every row of a space, and new trailing dimensions.
    Broadcast(Type),
    /// The identity, through which no gradient flows.
    StopGradient,

    // ---- shape --------------------------------------------------------------------------------
    /// Same elements per row, with other trailing dimensions.
    Reshape(Vec<crate::Dim>),
    /// Concatenates along the last trailing dimension. Operands share their space and leading dimensions.
    Concat,
    /// `len` elements from `start` of the last trailing dimension.
    Slice { start: usize, len: usize },
    /// Swaps two neighbouring dimensions of each row: `S[A.., m, n, B..]` to `S[A.., n, m, B..]`, where `axis` counts the
    /// dimensions `A`. Every order of the dimensions is a sequence of these.
    Transpose {
        /// The position of the first of the two dimensions.
        axis: usize,
    },
    /// Class label `S[]` (i32) to `S[classes]` (f32). A label outside `0..classes` gives a row of zeros.
    OneHot { classes: usize },
    /// Reinterprets the leading dimension as the space: `[|V|, dims]` to `V[dims]`, `[n, dims]` to
    /// `index(n)[dims]`. An embedding table becomes a vertex value; a weight with one row per feature column
    /// becomes a value with those rows.
    Rows,
    /// The inverse of `Rows`: `V[dims]` to `[|V|, dims]`, `index(n)[dims]` to `[n, dims]`.
    Unrows,
    /// The same rows under another index: `edges(g)[..]` to `P[..]` and back, where the rows of `P` are the edges of `g`
    /// in their order, as those of [`crate::VertexRows::Edges`] are.
    Reindex(Space),

    // ---- dense products -----------------------------------------------------------------------
    /// `S[B.., k] · [B.., k, N..]` to `S[B.., N..]`, where `batch` counts the dimensions `B`.
    MatMul {
        /// Leading dimensions that both operands share.
        batch: usize,
    },
    /// The product with the transposed weight: `S[B.., N..] · [B.., k, N..]ᵀ` to `S[B.., k]`.
    MatMulT {
        /// Leading dimensions that both operands share.
        batch: usize,
    },
    /// The sum over rows of outer products: `S[B.., k]`, `S[B.., N..]` to `[B.., k, N..]`.
    Outer {
        /// Leading dimensions that both operands share.
        batch: usize,
    },

    /// The product of two matrices of the same row: `S[B.., m, k] · S[B.., k, n]` to `S[B.., m, n]`; `batch` counts `B`.
    RowProduct {
        /// Leading dimensions that both operands share.
        batch: usize,
    },

    /// A product of the rows of each member of a stack with that member's weight (a grouped GEMM). `members` is the
    /// graph from the pairs that are the rows to their members ([`crate::Incidence::Members`]), or from vertices to their
    /// sections ([`crate::EdgeShare::Sections`]); its edges `P -> M` give
    ///
    /// - [`ProductForm::MatMul`]: `P[B.., k] · M[B.., k, N..]` to `P[B.., N..]`,
    /// - [`ProductForm::MatMulT`]: `P[B.., N..] · M[B.., k, N..]ᵀ` to `P[B.., k]`,
    /// - [`ProductForm::Outer`]: `P[B.., k]`, `P[B.., N..]` to `M[B.., k, N..]`, summed over the rows of each member.
    Grouped {
        form: ProductForm,
        /// Leading dimensions that both operands share.
        batch: usize,
        members: Graph,
    },

    // ---- along edges --------------------------------------------------------------------------
    /// Gathers source rows per edge: `src(g)[..]` to `edges(g)[..]`. Rows for distinct sources suffice.
    GatherSrc(Graph),
    /// Gathers destination rows per edge: `dst(g)[..]` to `edges(g)[..]`. Rows for distinct destinations suffice.
    GatherDst(Graph),
    /// Reduces the in-edges of each destination (or out-edges of each source):
    /// `edges(g)[..]` to `dst(g)[..]` (`src(g)[..]`). A vertex without edges gets [`Reduce::identity`].
    Segment {
        /// The graph whose edges are reduced.
        graph: Graph,
        /// To destinations (`In`) or to sources (`Out`).
        direction: Direction,
        reduce: Reduce,
    },
    /// As `Segment`, but with rows only for vertices that have edges: `edges(g)[..]` to `ends(g)[..]`.
    SegmentEndpoints {
        /// The graph whose edges are reduced.
        graph: Graph,
        /// To destinations (`In`) or to sources (`Out`).
        direction: Direction,
        reduce: Reduce,
    },
    /// Arg-max (arg-min) over the edges of each row: `edges(g)[..]` and the ranks of the edges, `edges(g)[]`
    /// ([`crate::dataflow::Binding::EdgeRank`]), to `dst(g)[..]` (`src(g)[..]`). The result is the rank of the winning
    /// edge. Ties go to the lowest rank; a row without edges gets ∞.
    ///
    /// The gradient of a maximum flows through this edge alone (as in DGL's `copy_u_max` and in `torch.max` along a
    /// dimension). The winner is a value of its own so that forward and backward passes agree on it: a backward pass
    /// that compared recomputed elements with their maximum could disagree because of rounding.
    SegmentArg {
        /// The graph whose edges are compared.
        graph: Graph,
        /// To destinations (`In`) or to sources (`Out`).
        direction: Direction,
        extreme: Extreme,
    },

    /// Factored attention over the two-hop paths of two graphs, from vertex values to a vertex value: see [`MetapathReduce`].
    MetapathReduce(MetapathReduce),

    // ---- between vertices and the distinct endpoints of edges ---------------------------------
    /// Gathers the rows of a vertex value at the distinct endpoints of a graph: `V[..]` to `ends(g)[..]`.
    GatherRows(Graph, Direction),
    /// Scatters rows at the distinct endpoints of a graph over a vertex value: `V[..]`, `ends(g)[..]` to `V[..]`.
    ScatterRows(Graph, Direction),
    /// Scatter-adds values at distinct endpoints, one operand per entry, to a vertex value: `V[..]`, `ends(g)[..]`,
    /// `ends(h)[..]`, … to `V[..]`. The sum is taken in this order.
    ScatterAdd(Vec<(Graph, Direction)>),

    // ---- between ranks ------------------------------------------------------------------------
    /// The rows of a vertex value at a type with copies of them ([`crate::ranks`]), which other ranks send: `V[..]` to
    /// `M[..]`, where `M` mirrors `V`, for example. All ranks execute it together.
    Exchange(VertexType),
    /// The sum of the rows that all ranks have, in the order of the ranks, on each of them: `V[..]` to `[..]`, where `V`
    /// has a row for each rank, or for each section. All ranks execute it together.
    SumRanks,

    // ---- reductions ---------------------------------------------------------------------------
    /// Reduces the last `axes` trailing dimensions.
    ReduceTrailing {
        reduce: Reduce,
        /// Number of trailing dimensions to reduce; at least 1.
        axes: usize,
    },
    /// Reduces the rows of a space: `S[..]` to `[..]`.
    ReduceSpace(Reduce),
    /// The loss of the pairs of one or several graphs of links, from the scores of each, `edges(g)[]`, to `[]`. It is written
    /// out on the program of a mini-batch, whose pairs are known ([`crate::link_rows`]).
    LinkLoss(RankingLoss),
}

/// The kind of a dense product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProductForm {
    /// Rows times weight, `x[r] · w`.
    MatMul,
    /// Rows times transposed weight, `y[r] · wᵀ`.
    MatMulT,
    /// Sum of outer products, `Σ_r x[r]ᵀ y[r]`.
    Outer,
}

impl ProductForm {
    /// The mnemonic in the text format.
    pub fn name(self) -> &'static str {
        match self {
            ProductForm::MatMul => "matmul",
            ProductForm::MatMulT => "matmul_t",
            ProductForm::Outer => "outer",
        }
    }

    /// All forms, in the order of the enum.
    pub const ALL: [ProductForm; 3] = [ProductForm::MatMul, ProductForm::MatMulT, ProductForm::Outer];
}

/// A reduction of a set of elements to one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduce {
    /// The sum; 0 over the empty set.
    Sum,
    /// The maximum; -∞ over the empty set.
    Max,
    /// The minimum; +∞ over the empty set.
    Min,
    /// Log-sum-exp, `ln Σ e^x` without overflow; -∞ over the empty set. Softmax is `exp(x - lse)`, so a backward pass
    /// rematerializes it from one number per row.
    Lse,
}

impl Reduce {
    /// The value over the empty set.
    pub fn identity(self) -> f64 {
        match self {
            Reduce::Sum => 0.0,
            Reduce::Max | Reduce::Lse => f64::NEG_INFINITY,
            Reduce::Min => f64::INFINITY,
        }
    }
}

/// Selects the maximum or the minimum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum Extreme {
    Max,
    Min,
}

impl Extreme {
    /// The reduction that yields the extreme element itself.
    pub fn reduce(self) -> Reduce {
        match self {
            Extreme::Max => Reduce::Max,
            Extreme::Min => Reduce::Min,
        }
    }

    /// The mnemonic of the operation that yields the element's position.
    pub fn arg_name(self) -> &'static str {
        match self {
            Extreme::Max => "argmax",
            Extreme::Min => "argmin",
        }
    }

    /// Is `x` strictly better than `best`?
    pub fn wins(self, x: f64, best: f64) -> bool {
        match self {
            Extreme::Max => x > best,
            Extreme::Min => x < best,
        }
    }
}

/// The end of the edges that owns a reduction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// In-edges of each destination (CSC order).
    In,
    /// Out-edges of each source (CSR order).
    Out,
}

impl Direction {
    /// The word for the owning end: `src` or `dst`.
    pub fn end_name(self) -> &'static str {
        match self {
            Direction::In => "dst",
            Direction::Out => "src",
        }
    }

    /// Out-edges for in-edges, and in-edges for out-edges.
    pub fn opposite(self) -> Direction {
        match self {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        }
    }
}
