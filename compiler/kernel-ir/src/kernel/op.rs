//! The operations of kernels: one set for the kernel IR, the loops IR and what back ends bind.

use hgnnc_ir::ops::{BinaryOp, Extreme, Reduce, UnaryOp};

use smallvec::{SmallVec, smallvec};

use super::{Operand, Width};

/// The operands of an operation. Nearly all operations have at most three.
pub type Operands<O = Operand> = SmallVec<[O; 3]>;

/// Extents of a batched product with a weight `[batch, k, n]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the fields are the usual names of a product's extents")]
pub struct Extents<W = Width> {
    /// Leading dimensions that both operands share.
    pub batch: W,
    /// The dimension that `MatMul` contracts.
    pub k: W,
    /// The dimension that `MatMulT` contracts.
    pub n: W,
}

impl Extents {
    /// Elements per row of the left operand, `batch · k`.
    pub fn left(&self) -> Width {
        self.batch.times(&self.k)
    }

    /// Elements per row of the right operand, `batch · n`.
    pub fn right(&self) -> Width {
        self.batch.times(&self.n)
    }

    /// Elements of the weight, `batch · k · n`.
    pub fn all(&self) -> Width {
        self.left().times(&self.n)
    }
}

/// The operation of an instruction, with operands `O` and widths `W`.
///
/// This is the only set of operations below the dataflow IR. What differs between the levels is how an operand is named
/// and whether widths are symbolic: a kernel reads rows of buffers ([`Operand`], [`Width`]); a back end binds the same
/// operations to its own operands with [`KernelOp::map`].
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum KernelOp<O = Operand, W = Width> {
    /// Element-wise function `f(a)`; the result is as wide as `a`.
    Unary(UnaryOp, O),
    /// Element-wise `a ∘ b`; the narrower operand broadcasts.
    Binary(BinaryOp, O, O),
    /// The element-wise composition `then(first(a, b))`, without a value between the two.
    Compose { first: BinaryOp, then: UnaryOp, a: O, b: O },
    /// `positive` where `a > 0`, else `otherwise` (also for NaN).
    Select { a: O, positive: f64, otherwise: f64 },
    /// `a`, broadcast to the width of the result.
    Copy(O),
    /// `b` if the vertex of the row is one of its endpoints, else `a` (a row scatter).
    ScatterRows(O, O),
    /// The first operand plus each other operand that has the row's vertex among its endpoints (a scatter-add).
    ScatterAdd(Vec<O>),
    /// Concatenates along the last dimension.
    Concat {
        parts: Vec<O>,
        /// Product of the leading dimensions.
        lead: W,
    },
    /// `len` of every `last` elements, beginning at `start`.
    Slice {
        a: O,
        /// Extent of the last dimension of `a`.
        last: usize,
        start: usize,
        len: usize,
    },
    /// Swaps two dimensions: groups `[m, n, inner]` of consecutive elements become `[n, m, inner]`.
    Transpose { a: O, m: usize, n: usize, inner: usize },
    /// The product of matrices of the same row: groups `[m, k]` of `a` times groups `[k, n]` of `b` give groups `[m, n]`.
    RowProduct { m: usize, k: usize, n: usize, a: O, b: O },
    /// One-hot encoding: 1 at the class of a label, else 0.
    OneHot(O),
    /// A dropout mask: see [`hgnnc_ir::Op::RandomMask`].
    Mask { stream: u32, rate: f64 },
    /// Product with a weight, `x · w`.
    MatMul(Extents<W>, O, O),
    /// Product with a transposed weight, `y · wᵀ`.
    MatMulT(Extents<W>, O, O),
    /// Reduces equal groups of consecutive elements.
    ReduceTrailing(Reduce, O),
    /// Dot product `Σ a · b` of equal groups of consecutive elements.
    Dot(O, O),
    /// Reduces over the edges of each row.
    Segment(Reduce, O),
    /// SpMM: `Σ a · x` over the edges of each row. Each weight of `a` scales an equal share of the elements of `x`.
    WeightedSum { a: O, x: O },
    /// An online softmax (Milakov and Gimelshein 2018): one pass over the edges of each row that keeps the running
    /// maximum score `m` of each head, `Σ e^(s - m)` and `Σ t e^(s - m) x`, and rescales both sums when `m` grows.
    /// The result is the concatenation of the weighted sums, the sums of exponentials and `m`: the width of `x` plus
    /// two numbers per head. The weighted mean of a row is the first divided by the second; its log-sum-exp is `m +
    /// ln Σ e^(s - m)`.
    ///
    /// Without edges `m` is -∞, the sums of exponentials are 1, and the weighted sums 0. In exponents, `m` is clamped
    /// to the finite range.
    SoftmaxSum {
        /// `s`, one number per head and edge.
        score: O,
        x: O,
        /// `t`, one number per head; 1 if `None`.
        times: Option<O>,
    },
    /// Arg-max (arg-min) over the edges of each row: the extreme elements of `x`, followed by the ranks of their edges;
    /// twice the width of `x`. See [`hgnnc_ir::Op::SegmentArg`].
    SegmentArg {
        extreme: Extreme,
        x: O,
        /// The rank of the edge, one number.
        rank: O,
    },
    /// Global reduction over all rows or edges.
    ReduceAll(Reduce, O),
    /// Global sum of the outer products of all rows or edges.
    OuterAll(Extents<W>, O, O),
}

impl<O, W> KernelOp<O, W> {
    /// Do micro-kernels of a processor take the operand at a position as contiguous rows only?
    pub fn takes_contiguous_rows(&self, position: usize) -> bool {
        match self {
            KernelOp::Segment(Reduce::Lse, _) | KernelOp::ReduceAll(..) | KernelOp::OuterAll(..) => true,
            KernelOp::MatMul(..) | KernelOp::MatMulT(..) => position == 0,
            _ => false,
        }
    }
}

impl<O: Copy, W> KernelOp<O, W> {
    /// Is it a global reduction, complete only after the kernel?
    pub fn is_total(&self) -> bool {
        matches!(self, KernelOp::ReduceAll(..) | KernelOp::OuterAll(..))
    }

    /// Is it element-wise: does each element of the result depend on one element of each operand?
    pub fn is_element_wise(&self) -> bool {
        matches!(
            self,
            KernelOp::Unary(..)
                | KernelOp::Binary(..)
                | KernelOp::Compose { .. }
                | KernelOp::Select { .. }
                | KernelOp::Copy(_)
        )
    }

    /// Is it a reduction over the edges of each row?
    pub fn reduces_edges(&self) -> bool {
        matches!(
            self,
            KernelOp::Segment(..)
                | KernelOp::WeightedSum { .. }
                | KernelOp::SoftmaxSum { .. }
                | KernelOp::SegmentArg { .. }
        )
    }

    /// The operands, in text order.
    pub fn operands(&self) -> Operands<O> {
        match self {
            KernelOp::Unary(_, a)
            | KernelOp::Select { a, .. }
            | KernelOp::Copy(a)
            | KernelOp::Slice { a, .. }
            | KernelOp::Transpose { a, .. }
            | KernelOp::OneHot(a)
            | KernelOp::ReduceTrailing(_, a)
            | KernelOp::Segment(_, a)
            | KernelOp::ReduceAll(_, a) => smallvec![*a],
            KernelOp::Binary(_, a, b)
            | KernelOp::Compose { a, b, .. }
            | KernelOp::RowProduct { a, b, .. }
            | KernelOp::ScatterRows(a, b)
            | KernelOp::MatMul(_, a, b)
            | KernelOp::MatMulT(_, a, b)
            | KernelOp::Dot(a, b)
            | KernelOp::WeightedSum { a, x: b }
            | KernelOp::SegmentArg { x: a, rank: b, .. }
            | KernelOp::OuterAll(_, a, b) => smallvec![*a, *b],
            KernelOp::SoftmaxSum { score, x, times } => [*score, *x].into_iter().chain(*times).collect(),
            KernelOp::Concat { parts, .. } | KernelOp::ScatterAdd(parts) => parts.as_slice().into(),
            KernelOp::Mask { .. } => smallvec![],
        }
    }

    /// The mnemonic in the text format, without the reduction and constants.
    pub fn name(&self) -> &'static str {
        match self {
            KernelOp::Unary(f, _) => f.name(),
            KernelOp::Binary(f, ..) => f.name(),
            KernelOp::Compose { .. } => "compose",
            KernelOp::Select { .. } => "select",
            KernelOp::Copy(_) => "copy",
            KernelOp::ScatterRows(..) => "scatter_rows",
            KernelOp::ScatterAdd(_) => "scatter_add",
            KernelOp::Concat { .. } => "concat",
            KernelOp::Slice { .. } => "slice",
            KernelOp::Transpose { .. } => "transpose",
            KernelOp::RowProduct { .. } => "row_product",
            KernelOp::OneHot(_) => "one_hot",
            KernelOp::Mask { .. } => "random_mask",
            KernelOp::MatMul(..) => "matmul",
            KernelOp::MatMulT(..) => "matmul_t",
            KernelOp::ReduceTrailing(..) => "reduce",
            KernelOp::Dot(..) => "dot",
            KernelOp::Segment(..) => "segment",
            KernelOp::WeightedSum { .. } => "weighted_sum",
            KernelOp::SoftmaxSum { .. } => "softmax_sum",
            KernelOp::SegmentArg { extreme, .. } => extreme.arg_name(),
            KernelOp::ReduceAll(..) => "reduce_all",
            KernelOp::OuterAll(..) => "outer",
        }
    }
}

impl<O, W> KernelOp<O, W> {
    /// The same operation with other operands and widths. `operand` gets the position of each operand in text order.
    ///
    /// # Errors
    /// The first error of `operand`.
    pub fn try_map<P, V, E>(
        &self,
        mut operand: impl FnMut(usize, &O) -> Result<P, E>,
        width: impl Fn(&W) -> V,
    ) -> Result<KernelOp<P, V>, E> {
        let extents = |of: &Extents<W>| Extents { batch: width(&of.batch), k: width(&of.k), n: width(&of.n) };
        Ok(match self {
            KernelOp::Unary(f, a) => KernelOp::Unary(*f, operand(0, a)?),
            KernelOp::Binary(f, a, b) => KernelOp::Binary(*f, operand(0, a)?, operand(1, b)?),
            KernelOp::Compose { first, then, a, b } => {
                KernelOp::Compose { first: *first, then: *then, a: operand(0, a)?, b: operand(1, b)? }
            }
            KernelOp::Select { a, positive, otherwise } => {
                KernelOp::Select { a: operand(0, a)?, positive: *positive, otherwise: *otherwise }
            }
            KernelOp::Copy(a) => KernelOp::Copy(operand(0, a)?),
            KernelOp::ScatterRows(a, b) => KernelOp::ScatterRows(operand(0, a)?, operand(1, b)?),
            KernelOp::ScatterAdd(parts) => KernelOp::ScatterAdd(each(parts, operand)?),
            KernelOp::Concat { parts, lead } => KernelOp::Concat { parts: each(parts, operand)?, lead: width(lead) },
            KernelOp::Slice { a, last, start, len } => {
                KernelOp::Slice { a: operand(0, a)?, last: *last, start: *start, len: *len }
            }
            KernelOp::Transpose { a, m, n, inner } => {
                KernelOp::Transpose { a: operand(0, a)?, m: *m, n: *n, inner: *inner }
            }
            KernelOp::RowProduct { m, k, n, a, b } => {
                KernelOp::RowProduct { m: *m, k: *k, n: *n, a: operand(0, a)?, b: operand(1, b)? }
            }
            KernelOp::OneHot(label) => KernelOp::OneHot(operand(0, label)?),
            KernelOp::Mask { stream, rate } => KernelOp::Mask { stream: *stream, rate: *rate },
            KernelOp::MatMul(of, x, w) => KernelOp::MatMul(extents(of), operand(0, x)?, operand(1, w)?),
            KernelOp::MatMulT(of, y, w) => KernelOp::MatMulT(extents(of), operand(0, y)?, operand(1, w)?),
            KernelOp::ReduceTrailing(reduce, a) => KernelOp::ReduceTrailing(*reduce, operand(0, a)?),
            KernelOp::Dot(a, b) => KernelOp::Dot(operand(0, a)?, operand(1, b)?),
            KernelOp::Segment(reduce, a) => KernelOp::Segment(*reduce, operand(0, a)?),
            KernelOp::WeightedSum { a, x } => KernelOp::WeightedSum { a: operand(0, a)?, x: operand(1, x)? },
            KernelOp::SoftmaxSum { score, x, times } => KernelOp::SoftmaxSum {
                score: operand(0, score)?,
                x: operand(1, x)?,
                times: times.as_ref().map(|times| operand(2, times)).transpose()?,
            },
            KernelOp::SegmentArg { extreme, x, rank } => {
                KernelOp::SegmentArg { extreme: *extreme, x: operand(0, x)?, rank: operand(1, rank)? }
            }
            KernelOp::ReduceAll(reduce, a) => KernelOp::ReduceAll(*reduce, operand(0, a)?),
            KernelOp::OuterAll(of, x, y) => KernelOp::OuterAll(extents(of), operand(0, x)?, operand(1, y)?),
        })
    }

    /// [`KernelOp::try_map`] that cannot fail.
    pub fn map<P, V>(&self, mut operand: impl FnMut(&O) -> P, width: impl Fn(&W) -> V) -> KernelOp<P, V> {
        let mapped: Result<_, std::convert::Infallible> = self.try_map(|_, o| Ok(operand(o)), width);
        match mapped {
            Ok(op) => op,
            Err(never) => match never {},
        }
    }
}

fn each<O, P, E>(parts: &[O], mut operand: impl FnMut(usize, &O) -> Result<P, E>) -> Result<Vec<P>, E> {
    parts.iter().enumerate().map(|(position, part)| operand(position, part)).collect()
}
