//! Functions of values as compositions of operations.

use hgnnc_diag::Span;
use hgnnc_ir::dataflow::Init;
use hgnnc_ir::{BinaryOp, Dim, Direction, Graph, Op, Reduce, Space, Type, UnaryOp, Value};

use crate::Instance;
use crate::params::Path;
use crate::value::Val;

impl Instance<'_> {
    /// The space that a value has one row for.
    pub fn space(&self, val: &Val) -> Option<Space> {
        match val {
            Val::Stored(value) => Some(self.flow.ty(*value).space),
            Val::OneHot { .. } | Val::AtEnd(..) | Val::BlockDiagonal { .. } => None,
        }
    }

    pub fn constant(&mut self, number: f64, span: Span) -> Val {
        Val::Stored(self.emit(Op::Const(number), &[], span))
    }

    /// The number of rows of a space.
    pub fn count(&mut self, space: Space, span: Span) -> Val {
        Val::Stored(self.emit(Op::Count(space), &[], span))
    }

    /// `f(x)` element by element.
    pub fn unary(&mut self, op: UnaryOp, x: &Val, span: Span) -> Val {
        Val::Stored(self.emit(Op::Unary(op), &[x.stored()], span))
    }

    /// `a ∘ b` element by element.
    pub fn binary(&mut self, op: BinaryOp, a: &Val, b: &Val, span: Span) -> Val {
        Val::Stored(self.emit(Op::Binary(op), &[a.stored(), b.stored()], span))
    }

    pub fn dropout(&mut self, x: &Val, rate: f64, span: Span) -> Val {
        let stream = self.streams;
        self.streams += 1;
        // A row of one-hot features has one element that is not 0, so a number for each row is a mask of all elements.
        if let Val::OneHot { columns: columns @ Dim::Count(vertex), mask: before } = *x {
            let ty = Type::new(Space::Vertices(vertex), vec![]);
            let mask = self.emit(Op::RandomMask { stream, rate, ty }, &[], span);
            let both = before.map(|before| self.emit(Op::Binary(BinaryOp::Mul), &[before, mask], span));
            return Val::OneHot { columns, mask: Some(both.unwrap_or(mask)) };
        }
        let value = x.stored();
        let ty = self.flow.ty(value).clone();
        let mask = self.emit(Op::RandomMask { stream, rate, ty }, &[], span);
        Val::Stored(self.emit(Op::Binary(BinaryOp::Mul), &[value, mask], span))
    }

    pub fn reshape(&mut self, x: &Val, dims: Vec<Dim>, span: Span) -> Val {
        Val::Stored(self.emit(Op::Reshape(dims), &[x.stored()], span))
    }

    /// A single row for every row of a space, and for every element of further dimensions. Values of the space stay.
    pub fn repeated(&mut self, x: &Val, ty: Type, span: Span) -> Val {
        let value = x.stored();
        if *self.flow.ty(value) == ty {
            return x.clone();
        }
        Val::Stored(self.emit(Op::Broadcast(ty), &[value], span))
    }

    /// Joins two values along their last dimension; a single row is joined to every row of the other.
    pub fn concat2(&mut self, a: &Val, b: &Val, span: Span) -> Val {
        let rows = |this: &Self, val: &Val| this.flow.ty(val.stored()).space;
        let (left, right) = (rows(self, a), rows(self, b));
        let a = if left == Space::Unit { self.repeated(a, Type::new(right, self.dims(a)), span) } else { a.clone() };
        let b = if right == Space::Unit { self.repeated(b, Type::new(left, self.dims(b)), span) } else { b.clone() };
        self.concat(&[a, b], span)
    }

    /// Joins values along their last dimension.
    pub fn concat(&mut self, parts: &[Val], span: Span) -> Val {
        let values: Vec<Value> = parts.iter().map(Val::stored).collect();
        Val::Stored(self.emit(Op::Concat, &values, span))
    }

    /// The elements of a range of one of the dimensions.
    pub fn slice(&mut self, x: &Val, axis: usize, range: std::ops::Range<usize>, span: Span) -> Val {
        let dims = self.dims(x).to_vec();
        // Elements of the dimension with all that lies behind them are the last dimension.
        let inner: usize = dims[axis + 1..].iter().filter_map(|dim| dim.fixed()).product();
        let all = dims[axis].fixed().expect("the verifier refuses other extents");
        let flat = [&dims[..axis], &[Dim::Fixed(all * inner)]].concat();
        let flat = self.reshape(x, flat, span);
        let slice = Op::Slice { start: range.start * inner, len: range.len() * inner };
        let slice = Val::Stored(self.emit(slice, &[flat.stored()], span));
        let to = [&dims[..axis], &[Dim::Fixed(range.len())], &dims[axis + 1..]].concat();
        self.reshape(&slice, to, span)
    }

    /// The last two dimensions, swapped.
    pub fn transpose(&mut self, x: &Val, span: Span) -> Val {
        let axis = self.dims(x).len() - 2;
        Val::Stored(self.emit(Op::Transpose { axis }, &[x.stored()], span))
    }

    /// `a @ b`, the product over the last dimension of `a`.
    pub fn product(&mut self, a: &Val, b: &Val, span: Span) -> Val {
        if let Val::BlockDiagonal { blocks, dims } = b {
            return self.block_product(a, *blocks, dims[1], span);
        }
        let batch = self.dims(a).len() - 1;
        if self.space(b) == Some(Space::Unit) {
            return self.project(a, b.stored(), batch, span);
        }
        // A matrix for each row: those of one row are products with a matrix of one row.
        let (of_a, of_b) = (self.dims(a).to_vec(), self.dims(b).to_vec());
        let (lead, rest) = (&of_a[..batch], &of_b[batch + 1..]);
        let columns = rest.iter().filter_map(|dim| dim.fixed()).product();
        let row = self.reshape(a, [lead, &[Dim::Fixed(1), of_a[batch]]].concat(), span);
        let matrix = self.reshape(b, [lead, &[of_b[batch], Dim::Fixed(columns)]].concat(), span);
        let product = self.matrix_product(&row, &matrix, span);
        self.reshape(&product, [lead, rest].concat(), span)
    }

    /// Products of matrices of the same row; single matrices meet those of every row.
    pub fn matrix_product(&mut self, a: &Val, b: &Val, span: Span) -> Val {
        let rows = |this: &Self, val: &Val| this.flow.ty(val.stored()).space;
        let (left, right) = (rows(self, a), rows(self, b));
        if left != Space::Unit
            && right == Space::Unit
            && let Some(product) = self.product_with_weight(a, b, span)
        {
            return product;
        }
        let space = if left == Space::Unit { right } else { left };
        let on = |this: &mut Self, val: &Val| {
            let ty = Type::new(space, this.dims(val));
            this.repeated(val, ty, span).stored()
        };
        let (a, b) = (on(self, a), on(self, b));
        let batch = self.flow.ty(a).dims.len() - 2;
        Val::Stored(self.emit(Op::RowProduct { batch }, &[a, b], span))
    }

    /// Matrices of rows times a single matrix, as products of vectors with a copy of it for each row of the matrices: the
    /// dense products of projections, where a copy for each row of the space would take memory and time. `None` where the
    /// copies would be large.
    fn product_with_weight(&mut self, a: &Val, b: &Val, span: Span) -> Option<Val> {
        const MOST: usize = 1 << 18;
        let (of_a, of_b) = (self.dims(a).to_vec(), self.dims(b).to_vec());
        let batch = of_a.len() - 2;
        let copies = of_a[batch].fixed()?;
        let elements = of_b[batch].fixed()? * of_b[batch + 1].fixed()?;
        let all = of_a[..batch].iter().try_fold(copies * elements, |all, dim| Some(all * dim.fixed()?))?;
        if all > MOST {
            return None;
        }
        let lead = &of_b[..batch];
        let flat = self.reshape(b, [lead, &[Dim::Fixed(elements)]].concat(), span);
        let ty = Type::new(Space::Unit, [lead, &[Dim::Fixed(elements), of_a[batch]]].concat());
        let copied = self.repeated(&flat, ty, span);
        let copied = self.transpose(&copied, span);
        let weight = self.reshape(&copied, [lead, &[of_a[batch]], &of_b[batch..]].concat(), span);
        Some(Val::Stored(self.emit(Op::MatMul { batch: batch + 1 }, &[a.stored(), weight.stored()], span)))
    }

    /// One-hot features times a weight are the weight's rows; the product happens before the gather.
    fn project(&mut self, a: &Val, weight: Value, batch: usize, span: Span) -> Val {
        match a {
            Val::Stored(value) => Val::Stored(self.emit(Op::MatMul { batch }, &[*value, weight], span)),
            Val::OneHot { mask, .. } => {
                let rows = Val::Stored(self.emit(Op::Rows, &[weight], span));
                match mask {
                    Some(mask) => self.binary(BinaryOp::Mul, &rows, &Val::Stored(*mask), span),
                    None => rows,
                }
            }
            Val::AtEnd(inner, graph, direction) => {
                let projected = self.project(inner, weight, batch, span);
                self.gather(&projected, *graph, *direction, span)
            }
            Val::BlockDiagonal { .. } => unreachable!("weights are not projected: they have no rows"),
        }
    }

    fn block_product(&mut self, a: &Val, blocks: Value, out: Dim, span: Span) -> Val {
        let dims = self.flow.ty(blocks).dims.clone();
        let split = self.emit(Op::Reshape(dims[..2].to_vec()), &[a.stored()], span);
        let product = self.emit(Op::MatMul { batch: 1 }, &[split, blocks], span);
        Val::Stored(self.emit(Op::Reshape(vec![out]), &[product], span))
    }

    /// A vertex value at an end of the edges. Sparse and one-hot values wait for their projection.
    pub fn gather(&mut self, val: &Val, graph: Graph, direction: Direction, span: Span) -> Val {
        // A single row is the same at every edge.
        if self.space(val) == Some(Space::Unit) {
            return val.clone();
        }
        match val {
            Val::Stored(value) if !self.flow.is_sparse(*value) => {
                let op = if direction == Direction::In { Op::GatherDst(graph) } else { Op::GatherSrc(graph) };
                Val::Stored(self.emit(op, &[*value], span))
            }
            other => Val::AtEnd(Box::new(other.clone()), graph, direction),
        }
    }

    /// The number of in-edges (or out-edges) of each vertex at that end.
    pub fn degree(&mut self, graph: Graph, direction: Direction, span: Span) -> Val {
        let one = self.emit(Op::Const(1.0), &[], span);
        let ones = self.emit(Op::Broadcast(Type::fixed(Space::Edges(graph), &[])), &[one], span);
        Val::Stored(self.emit(Op::Segment { graph, direction, reduce: Reduce::Sum }, &[ones], span))
    }

    /// `x W + b`, with `W [in, width]` and `b [width]`.
    pub fn linear(&mut self, x: &Val, width: Dim, bias: bool, path: &Path, span: Span) -> Val {
        let fan_in = self.dims(x)[0];
        let init = Init::Glorot { fan_in, fan_out: width.fixed().unwrap_or(1) };
        let weight = self.parameter(path.leaf("weight"), vec![fan_in, width], init, true, span);
        let product = self.product(x, &weight, span);
        if !bias {
            return product;
        }
        let shift = self.parameter(path.leaf("bias"), vec![width], Init::Constant(0.0), true, span);
        self.binary(BinaryOp::Add, &product, &shift, span)
    }

    /// Layer normalisation (Ba et al. 2016) over the last dimension, or batch normalisation (Ioffe &
    /// Szegedy 2015) over all rows, each with a learned scale and shift.
    pub fn norm(&mut self, x: &Val, eps: f64, over_rows: bool, path: &Path, span: Span) -> Val {
        let mean_of = |this: &mut Self, val: &Val| match over_rows {
            true => this.mean_over_rows(val, span),
            false => this.mean_over_last(val, span),
        };
        let mean = mean_of(self, x);
        // [rows, width] - [rows] needs the mean repeated along the width, which prefix broadcasting does.
        let centred = self.binary(BinaryOp::Sub, x, &mean, span);
        let squared = self.binary(BinaryOp::Mul, &centred, &centred, span);
        let variance = mean_of(self, &squared);
        let eps = self.constant(eps, span);
        let shifted = self.binary(BinaryOp::Add, &variance, &eps, span);
        let deviation = self.unary(UnaryOp::Sqrt, &shifted, span);
        let normal = self.binary(BinaryOp::Div, &centred, &deviation, span);
        let dims = self.dims(x).to_vec();
        let scale = self.parameter(path.leaf("scale"), dims.clone(), Init::Constant(1.0), false, span);
        let shift = self.parameter(path.leaf("shift"), dims, Init::Constant(0.0), false, span);
        let scaled = self.binary(BinaryOp::Mul, &normal, &scale, span);
        self.binary(BinaryOp::Add, &scaled, &shift, span)
    }

    /// Rows divided by their Euclidean length, over the last dimension.
    pub fn l2_normalize(&mut self, x: &Val, eps: f64, span: Span) -> Val {
        let squared = self.binary(BinaryOp::Mul, x, x, span);
        let sum = self.reduce_last(&squared, Reduce::Sum, span);
        // Under the root, so that the gradient at zero is finite.
        let eps = self.constant(eps, span);
        let sum = self.binary(BinaryOp::Max, &sum, &eps, span);
        let length = self.unary(UnaryOp::Sqrt, &sum, span);
        self.binary(BinaryOp::Div, x, &length, span)
    }

    /// Rows divided by their sum; rows of zeros stay zero.
    pub fn row_normalize(&mut self, x: &Val, span: Span) -> Val {
        let sum = self.reduce_last(x, Reduce::Sum, span);
        // sum + (sum == 0) is 1 for rows of zeros.
        let zero = self.constant(0.0, span);
        let is_zero = self.binary(BinaryOp::Eq, &sum, &zero, span);
        let divisor = self.binary(BinaryOp::Add, &sum, &is_zero, span);
        self.binary(BinaryOp::Div, x, &divisor, span)
    }
}
