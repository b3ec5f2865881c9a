//! The operation set.
//!
//! Notation: `S[a, b]` is a value of space `S` with trailing dimensions `a, b`; `[a, b]` is a value of
//! [`Space::Unit`]. Types of results are computed by [`crate::infer::infer`], which
//! is also where the rules stand.

use crate::paths::PathSum;
use crate::types::{Graph, Input, Param, Space, Type};

/// One operation. Operands are the `args` of its [`crate::ValueData`], in the order given here.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    // ---- leaves -------------------------------------------------------------------------------
    /// Data that the runtime provides. Type as declared in the input table.
    Input(Input),
    /// A trainable parameter, `[dims]`. Type as declared in the parameter table.
    Param(Param),
    /// Optimiser state of a parameter (`slot` counts from 0; Adam has two), same type as the parameter.
    /// Zero before the first step; a program that updates it has an output for it.
    State(Param, u32),
    /// A scalar constant, `[]`.
    Const(f64),
    /// The number of rows of a space as a scalar, `[]`.
    Count(Space),
    /// Dropout's mask: each element is `1 / (1 - rate)` with probability `1 - rate` and else 0, drawn by
    /// [`crate::random::mask_element`] from (seed, step, `stream`, linear index). The linear index counts
    /// the elements of the dense layout, so sparse storage draws the same mask. No operands.
    RandomMask {
        /// Distinguishes masks of one program.
        stream: u32,
        /// Probability of a zero, in [0, 1).
        rate: f64,
        /// Type of the mask (its layout may be sparse: then only stored elements are drawn).
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
    /// `a`, through which no gradient flows.
    StopGradient,

    // ---- shape --------------------------------------------------------------------------------
    /// Same elements per row, other trailing dimensions.
    Reshape(Vec<crate::Dim>),
    /// Along the last trailing dimension; all operands of one space and equal leading dimensions.
    Concat,
    /// `len` elements from `start` of the last trailing dimension.
    Slice {
        /// First element.
        start: usize,
        /// Number of elements.
        len: usize,
    },
    /// Class label `S[]` (i32) to `S[classes]` (f32); the row of a label outside 0..classes is zero.
    OneHot {
        /// Number of classes.
        classes: usize,
    },
    /// `[|V|, dims]` to `V[dims]`, `[n, dims]` to `index(n)[dims]`: the leading dimension becomes the space. A
    /// parameter with one row per vertex is seen as vertex values, and one with one row per column of features can be
    /// computed with row by row.
    Rows,
    /// The inverse of `Rows`: `V[dims]` to `[|V|, dims]`, `index(n)[dims]` to `[n, dims]`.
    Unrows,

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

    // ---- along edges --------------------------------------------------------------------------
    /// Source vertex values to edges: `src(g)[..]` to `edges(g)[..]`. The operand may have a row for each distinct
    /// source only.
    GatherSrc(Graph),
    /// Destination vertex values to edges: `dst(g)[..]` to `edges(g)[..]`. The operand may have a row for each distinct
    /// destination only.
    GatherDst(Graph),
    /// Reduces the in-edges of each destination (or out-edges of each source):
    /// `edges(g)[..]` to `dst(g)[..]` (`src(g)[..]`). A vertex without edges gets [`Reduce::identity`].
    Segment {
        /// The graph whose edges are reduced.
        graph: Graph,
        /// To destinations (`In`) or to sources (`Out`).
        direction: Direction,
        /// How.
        reduce: Reduce,
    },
    /// As `Segment`, with a row for each vertex that has edges and for no other: `edges(g)[..]` to `ends(g)[..]`.
    SegmentEnds {
        /// The graph whose edges are reduced.
        graph: Graph,
        /// To destinations (`In`) or to sources (`Out`).
        direction: Direction,
        /// How.
        reduce: Reduce,
    },
    /// Finds the edge of each row with the largest (smallest) element: `edges(g)[..]` and the ranks of the edges, `edges(g)[]`
    /// ([`crate::dataflow::Binding::EdgeRank`]), to `dst(g)[..]` (`src(g)[..]`). The result is the rank of the edge; among
    /// equal elements the lowest rank; ∞ for a row without edges.
    ///
    /// The gradient of a maximum flows through this edge and no other (as in DGL's `copy_u_max` and in `torch.max` along a
    /// dimension). It is a value of its own so that forward and backward passes cannot disagree on the edge: a backward pass
    /// that compares elements with their maximum computes them again, and may round them in another way.
    SegmentArg {
        /// The graph whose edges are compared.
        graph: Graph,
        /// To destinations (`In`) or to sources (`Out`).
        direction: Direction,
        /// Is the largest element looked for, or the smallest?
        extreme: Extreme,
    },

    /// A sum over the paths of two graphs, from vertex values to vertex values: see [`PathSum`].
    Paths(PathSum),

    // ---- between vertices and the distinct ends of edges --------------------------------------
    /// The rows of a vertex value at the distinct ends of a graph: `V[..]` to `ends(g)[..]`.
    Select(Graph, Direction),
    /// A vertex value with its rows at the distinct ends of a graph replaced: `V[..]`, `ends(g)[..]` to `V[..]`.
    Replace(Graph, Direction),
    /// A vertex value plus values of the distinct ends of graphs, one for each entry, each added to the rows of its
    /// vertices: `V[..]`, `ends(g)[..]`, `ends(h)[..]`, … to `V[..]`. The sum is taken in this order.
    AddEnds(Vec<(Graph, Direction)>),

    // ---- reductions ---------------------------------------------------------------------------
    /// Over the last `axes` trailing dimensions.
    ReduceTrailing {
        /// How.
        reduce: Reduce,
        /// How many trailing dimensions disappear; at least 1.
        axes: usize,
    },
    /// Over the rows of a space: `S[..]` to `[..]`.
    ReduceSpace(Reduce),
}

/// Element-wise functions of one operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `e^x`
    Exp,
    /// Natural logarithm.
    Log,
    /// `ln(1 + e^x)`, without overflow.
    Softplus,
    /// Square root.
    Sqrt,
    /// `1 / x`
    Recip,
    /// `|x|`
    Abs,
    /// -1, 0 or 1.
    Sign,
    /// 1 where `x > 0`, else 0.
    Step,
    /// `tanh x`
    Tanh,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `max(x, 0)`
    Relu,
    /// `x` where positive, else `slope · x`.
    LeakyRelu(f64),
    /// `x` where positive, else `e^x - 1` (Clevert et al. 2016).
    Elu,
    /// `x Φ(x)` with the normal distribution function (Hendrycks & Gimpel 2016, exact form).
    Gelu,
    /// The error function.
    Erf,
    /// The largest integer that is not larger. Its derivative is 0 everywhere it has one.
    Floor,
    /// Cosine, of radians.
    Cos,
}

/// Element-wise functions of two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a · b`
    Mul,
    /// `a / b`
    Div,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// `a^b`
    Pow,
    /// `ln(e^a + e^b)`, without overflow; -∞ with -∞ is -∞.
    LogAddExp,
    /// 1 where `a == b`, else 0.
    Eq,
    /// 1 where `a > b`, else 0.
    Gt,
}

/// How a set of elements becomes one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduce {
    /// Sum; 0 over nothing.
    Sum,
    /// Largest; -∞ over nothing.
    Max,
    /// Smallest; +∞ over nothing.
    Min,
    /// `ln Σ e^x`, computed without overflow; -∞ over nothing. With it, softmax is `exp(x - lse)`, and
    /// one number per row is all that a backward pass needs to recompute it.
    Lse,
}

impl Reduce {
    /// The value over nothing.
    pub fn identity(self) -> f64 {
        match self {
            Reduce::Sum => 0.0,
            Reduce::Max | Reduce::Lse => f64::NEG_INFINITY,
            Reduce::Min => f64::INFINITY,
        }
    }
}

/// The end of an order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extreme {
    /// The largest element.
    Max,
    /// The smallest element.
    Min,
}

impl Extreme {
    /// The reduction that gives the element itself.
    pub fn reduce(self) -> Reduce {
        match self {
            Extreme::Max => Reduce::Max,
            Extreme::Min => Reduce::Min,
        }
    }

    /// The word for the position of the element.
    pub fn arg_name(self) -> &'static str {
        match self {
            Extreme::Max => "argmax",
            Extreme::Min => "argmin",
        }
    }

    /// Does `x` win over `best`?
    pub fn wins(self, x: f64, best: f64) -> bool {
        match self {
            Extreme::Max => x > best,
            Extreme::Min => x < best,
        }
    }
}

/// Which end of the edges owns the reduction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// In-edges of each destination (CSC).
    In,
    /// Out-edges of each source (CSR).
    Out,
}

impl Direction {
    /// The word for the end of the edges: `src` or `dst`.
    pub fn end_name(self) -> &'static str {
        match self {
            Direction::In => "dst",
            Direction::Out => "src",
        }
    }
}
