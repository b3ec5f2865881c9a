//! Reverse-mode differentiation on the operation set itself.
//!
//! The values that the loss depends on are visited from last to first. Each hands its gradient on to
//! its operands by the rule of its operation, written with the same operations, so that every later
//! pass sees one program. Notation in the rules: `y` is the visited value, `g = ∂loss/∂y`, `a`, `b`,
//! `x`, `w` its operands, and `dx` what is added to the gradient of `x`. A gradient has the space and the
//! dimensions of its value.
//!
//! - Only values between a leaf of `wrt` and the loss are visited. Inputs get a gradient only where it is asked for
//!   ([`gradients`]).
//! - A sum copies nothing: the gradient of `a + b` is handed on as it is, by name.
//! - A gradient belongs to the stage and the source position of its forward value, and to
//!   [`Phase::Backward`]. The search for the edge that an extreme comes from is forward.
//! - No rule gives NaN where an edge or a row exists and forward values are finite. Rows without edges hold
//!   infinities (the identities of max, min and log-sum-exp), so rules that could meet them are guarded; a
//!   gather never reads such a row.
//!
//! This module sweeps over the values, and has the rules of operations that only move rows and columns, and of
//! products.
//! `elementwise` has those of element-wise functions, `reductions` those of sums, extremes and log-sum-exps.

mod elementwise;
mod reductions;

use hgnnc_ir::dataflow::Cursor;
use hgnnc_ir::infer::TypeError;
use hgnnc_ir::{
    BinaryOp, Dataflow, Dim, Direction, Input, Op, Param, Phase, ProductForm, Reduce, Type, UnaryOp, Value,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// A value whose gradient the operation set cannot express: sparse values that depend on a parameter have
/// gradients only through operations that keep their zeros.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotDifferentiable {
    /// The forward value at which differentiation stopped.
    pub value: Value,
    /// The typing error of the operation that would compute the gradient.
    pub reason: TypeError,
}

impl std::fmt::Display for NotDifferentiable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no gradient through {}: {}", self.value, self.reason)
    }
}

impl std::error::Error for NotDifferentiable {}

/// Appends the gradient of the scalar `loss` by each parameter of `wrt`, in the order of `wrt`. A parameter
/// that the loss does not depend on is left out.
///
/// # Panics
/// When `loss` is not a scalar, or where [`try_differentiate`] has an error.
pub fn differentiate(flow: &mut Dataflow, loss: Value, wrt: &[Param]) -> Vec<(Param, Value)> {
    match try_differentiate(flow, loss, wrt) {
        Ok(gradients) => gradients,
        Err(error) => panic!("differentiating `{}`: {error}", flow.name),
    }
}

/// [`differentiate`], with an error for programs that do element-wise mathematics on sparse values that depend
/// on parameters beyond products, and so have gradients that no operation can hold.
///
/// # Errors
/// [`NotDifferentiable`]; the program then has unused values at its end.
///
/// # Panics
/// When `loss` is not a scalar.
pub fn try_differentiate(
    flow: &mut Dataflow,
    loss: Value,
    wrt: &[Param],
) -> Result<Vec<(Param, Value)>, NotDifferentiable> {
    assert!(*flow.ty(loss) == Type::scalar(), "only a scalar has a gradient, not {}", flow.ty(loss).dims.len());
    let leaves: Vec<Leaf> = wrt.iter().map(|&param| Leaf::Param(param)).collect();
    let found = gradients(flow, &[(loss, Seed::One)], &leaves)?;
    let param = |(leaf, gradient): (Leaf, Value)| match leaf {
        Leaf::Param(param) => Some((param, gradient)),
        Leaf::Input(_) => None,
    };
    Ok(found.into_iter().filter_map(param).collect())
}

/// A value that no operation computes, by which gradients are taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Leaf {
    /// A parameter.
    Param(Param),
    /// An input; it is dense.
    Input(Input),
}

impl Leaf {
    /// The leaf that an operation reads.
    fn of(op: &Op) -> Option<Self> {
        match op {
            Op::Param(param) => Some(Leaf::Param(*param)),
            Op::Input(input) => Some(Leaf::Input(*input)),
            _ => None,
        }
    }
}

/// The gradient of a value from which differentiation starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seed {
    /// 1, for a scalar.
    One,
    /// An input of the type of the value.
    Given(Input),
}

/// Appends the vector-Jacobian product of the values of `seeds`: for each leaf of `wrt`, in that order, the sum over the
/// seeds of their gradients times the derivative of their values. A leaf that no value depends on is left out.
///
/// # Errors
/// [`NotDifferentiable`]; the program then has unused values at its end.
pub fn gradients(
    flow: &mut Dataflow,
    seeds: &[(Value, Seed)],
    wrt: &[Leaf],
) -> Result<Vec<(Leaf, Value)>, NotDifferentiable> {
    let before = flow.cursor;
    let num_forward = seeds.iter().map(|(value, _)| value.index() + 1).max().unwrap_or(0);
    let leaves: FxHashSet<Leaf> = wrt.iter().copied().collect();
    let is_leaf = |value: Value| Leaf::of(&flow.value(value).op).is_some_and(|leaf| leaves.contains(&leaf));
    let needed = depends_on(flow, num_forward, is_leaf);
    let mut tape = Tape { flow, needed, gradients: vec![None; num_forward] };
    let outcome = tape.sweep(seeds);
    let gradients = tape.gradients;
    flow.cursor = before;
    outcome?;

    // A leaf may be read by several values.
    let mut readers: FxHashMap<Leaf, Vec<(Value, Value)>> = FxHashMap::default();
    for value in (0..num_forward).map(Value::new) {
        if let (Some(gradient), Some(leaf)) = (gradients[value.index()], Leaf::of(&flow.value(value).op)) {
            readers.entry(leaf).or_default().push((value, gradient));
        }
    }
    let mut result = vec![];
    for &leaf in wrt {
        let mut total = None;
        for &(value, gradient) in readers.get(&leaf).into_iter().flatten() {
            total = Some(match total {
                None => gradient,
                Some(sum) => {
                    let data = flow.value(value);
                    flow.cursor = Cursor { stage: data.stage, phase: Phase::Backward, origin: data.origin };
                    flow.binary(BinaryOp::Add, sum, gradient)
                }
            });
        }
        flow.cursor = before;
        result.extend(total.map(|gradient| (leaf, gradient)));
    }
    Ok(result)
}

/// Appends the derivative of the scalar `of` by each value of `wrt`; `None` for one that it does not depend on.
///
/// # Errors
/// [`NotDifferentiable`]; the program then has unused values at its end.
pub(crate) fn derivatives(
    flow: &mut Dataflow,
    of: Value,
    wrt: &[Value],
) -> Result<Vec<Option<Value>>, NotDifferentiable> {
    let before = flow.cursor;
    let needed = depends_on(flow, of.index() + 1, |value| wrt.contains(&value));
    let mut tape = Tape { flow, gradients: vec![None; needed.len()], needed };
    let outcome = tape.sweep(&[(of, Seed::One)]);
    let found = wrt.iter().map(|value| tape.gradients[value.index()]).collect();
    flow.cursor = before;
    outcome.map(|()| found)
}

/// Marks the values whose gradients are needed: those that depend differentiably on a leaf.
fn depends_on(flow: &Dataflow, num_forward: usize, is_leaf: impl Fn(Value) -> bool) -> Vec<bool> {
    let mut needed: Vec<bool> = Vec::with_capacity(num_forward);
    for (index, data) in flow.values[..num_forward].iter().enumerate() {
        let through = match &data.op {
            _ if is_leaf(Value::new(index)) => true,
            Op::Param(_) | Op::Input(_) => false,
            op => hands_on(op) && data.args.iter().any(|a| needed[a.index()]),
        };
        needed.push(through);
    }
    needed
}

/// Whether an operation hands a gradient on to its operands.
pub(crate) fn hands_on(op: &Op) -> bool {
    match op {
        Op::Unary(UnaryOp::Sign | UnaryOp::Step | UnaryOp::Floor) | Op::Binary(BinaryOp::Eq | BinaryOp::Gt) => false,
        op => !op.blocks_gradient(),
    }
}

struct Tape<'a> {
    flow: &'a mut Dataflow,
    needed: Vec<bool>,
    gradients: Vec<Option<Value>>,
}

type Built = Result<Value, TypeError>;

impl Tape<'_> {
    fn sweep(&mut self, seeds: &[(Value, Seed)]) -> Result<(), NotDifferentiable> {
        for value in (0..self.needed.len()).rev().map(Value::new) {
            if !self.needed[value.index()] {
                continue;
            }
            let data = self.flow.value(value);
            self.flow.cursor = Cursor { stage: data.stage, phase: Phase::Backward, origin: data.origin };
            for (_, seed) in seeds.iter().filter(|(of, _)| *of == value) {
                let seed = match seed {
                    Seed::One => self.flow.constant(1.0),
                    Seed::Given(input) => self.flow.add(Op::Input(*input), &[]),
                };
                self.give(value, seed).map_err(|reason| NotDifferentiable { value, reason })?;
            }
            if let Some(gradient) = self.gradients[value.index()] {
                self.visit(value, gradient).map_err(|reason| NotDifferentiable { value, reason })?;
            }
        }
        Ok(())
    }

    /// Hands the gradient `g` of `y` on to the operands of `y`.
    fn visit(&mut self, y: Value, g: Value) -> Result<(), TypeError> {
        let data = self.flow.value(y);
        let (op, args) = (data.op.clone(), data.args.clone());
        match op {
            Op::Param(_)
            | Op::Input(_)
            | Op::State(..)
            | Op::Const(_)
            | Op::Count(_)
            | Op::RandomMask { .. }
            | Op::StopGradient
            | Op::OneHot { .. }
            | Op::SegmentArg { .. } => Ok(()),
            Op::LinkLoss(_) => Err(TypeError("links are ranked on mini-batches".into())),

            Op::Unary(f) => {
                let dx = self.unary_rule(f, args[0], y, g)?;
                self.give(args[0], dx)
            }
            Op::Binary(f) => {
                // The second operand first: contributions then arrive in the order of the operands' uses.
                for i in [1, 0] {
                    if self.needed[args[i].index()] {
                        let d = self.binary_rule(f, i, args[0], args[1], y, g)?;
                        let d = self.unbroadcast(d, args[i])?;
                        self.give(args[i], d)?;
                    }
                }
                Ok(())
            }
            // y repeats x: dx is the sum over the repetitions.
            Op::Broadcast(_) => {
                let dx = self.unbroadcast(g, args[0])?;
                self.give(args[0], dx)
            }

            // The elements are the same, so are their gradients.
            Op::Reshape(_) => {
                let dims = self.dims(args[0]);
                let dx = self.flow.push(Op::Reshape(dims), &[g])?;
                self.give(args[0], dx)
            }
            Op::Rows => {
                let dx = self.flow.push(Op::Unrows, &[g])?;
                self.give(args[0], dx)
            }
            Op::Unrows => {
                let dx = self.flow.push(Op::Rows, &[g])?;
                self.give(args[0], dx)
            }
            Op::Reindex(_) => {
                let space = self.flow.ty(args[0]).space;
                let dx = self.flow.push(Op::Reindex(space), &[g])?;
                self.give(args[0], dx)
            }
            // Each part gets its columns.
            Op::Concat => {
                let mut start = 0;
                for &part in &args {
                    let len = self.last_extent(part);
                    if self.needed[part.index()] {
                        let d = self.flow.push(Op::Slice { start, len }, &[g])?;
                        self.give(part, d)?;
                    }
                    start += len;
                }
                Ok(())
            }
            // The columns that were not taken have no influence.
            Op::Slice { start, len } => {
                let rest = self.last_extent(args[0]) - start - len;
                let mut parts = vec![g];
                if start > 0 {
                    parts.insert(0, self.zeros_like(g, start)?);
                }
                if rest > 0 {
                    parts.push(self.zeros_like(g, rest)?);
                }
                let dx = if parts.len() == 1 { g } else { self.flow.push(Op::Concat, &parts)? };
                self.give(args[0], dx)
            }

            // y[n] = Σ_k x[k] w[k,n] per row: dx[k] = Σ_n g[n] w[k,n], dw[k,n] = Σ_rows x[k] g[n].
            Op::MatMul { batch } => {
                let (x, w) = (args[0], args[1]);
                self.product(x, Op::MatMulT { batch }, g, w)?;
                self.product(w, Op::Outer { batch }, x, g)
            }
            // y[k] = Σ_n x[n] w[k,n] per row: dx[n] = Σ_k g[k] w[k,n], dw[k,n] = Σ_rows g[k] x[n].
            Op::MatMulT { batch } => {
                let (x, w) = (args[0], args[1]);
                self.product(x, Op::MatMul { batch }, g, w)?;
                self.product(w, Op::Outer { batch }, g, x)
            }
            // y[k,n] = Σ_rows a[k] b[n]: da[k] = Σ_n b[n] g[k,n], db[n] = Σ_k a[k] g[k,n] in every row.
            Op::Outer { batch } => {
                let (a, b) = (args[0], args[1]);
                self.product(a, Op::MatMulT { batch }, b, g)?;
                self.product(b, Op::MatMul { batch }, a, g)
            }

            // The dimensions are swapped back.
            Op::Transpose { axis } => {
                let dx = self.flow.push(Op::Transpose { axis }, &[g])?;
                self.give(args[0], dx)
            }
            // y = a b per row: da = g bᵀ, db = aᵀ g.
            Op::RowProduct { batch } => {
                let (a, b) = (args[0], args[1]);
                if self.needed[b.index()] {
                    let transposed = self.flow.push(Op::Transpose { axis: batch }, &[a])?;
                    self.product(b, Op::RowProduct { batch }, transposed, g)?;
                }
                if self.needed[a.index()] {
                    let transposed = self.flow.push(Op::Transpose { axis: batch }, &[b])?;
                    self.product(a, Op::RowProduct { batch }, g, transposed)?;
                }
                Ok(())
            }

            // As the products above, with the weight of each row's member.
            Op::Grouped { form, batch, members } => {
                let grouped = |form| Op::Grouped { form, batch, members };
                let (a, b) = (args[0], args[1]);
                match form {
                    ProductForm::MatMul => {
                        self.product(a, grouped(ProductForm::MatMulT), g, b)?;
                        self.product(b, grouped(ProductForm::Outer), a, g)
                    }
                    ProductForm::MatMulT => {
                        self.product(a, grouped(ProductForm::MatMul), g, b)?;
                        self.product(b, grouped(ProductForm::Outer), g, a)
                    }
                    ProductForm::Outer => {
                        self.product(a, grouped(ProductForm::MatMulT), b, g)?;
                        self.product(b, grouped(ProductForm::MatMul), a, g)
                    }
                }
            }

            // Each edge reads the row of its endpoint: dx sums the gradients of the edges.
            Op::GatherSrc(graph) => {
                let dx = self.sum_of_edges(graph, Direction::Out, args[0], g)?;
                self.give(args[0], dx)
            }
            Op::GatherDst(graph) => {
                let dx = self.sum_of_edges(graph, Direction::In, args[0], g)?;
                self.give(args[0], dx)
            }
            // Rows of other vertices have no influence; rows of endpoints keep their gradients.
            Op::GatherRows(graph, direction) => {
                let zeros = self.zeros(args[0])?;
                let dx = self.flow.push(Op::ScatterAdd(vec![(graph, direction)]), &[zeros, g])?;
                self.give(args[0], dx)
            }
            // Each part gets the gradients of its rows.
            Op::ScatterRows(graph, direction) => {
                if self.needed[args[1].index()] {
                    let d = self.flow.push(Op::GatherRows(graph, direction), &[g])?;
                    self.give(args[1], d)?;
                }
                if self.needed[args[0].index()] {
                    let zeros = self.zeros(args[1])?;
                    let d = self.flow.push(Op::ScatterRows(graph, direction), &[g, zeros])?;
                    self.give(args[0], d)?;
                }
                Ok(())
            }
            Op::ScatterAdd(ends) => {
                for (&(graph, direction), &part) in ends.iter().zip(&args[1..]) {
                    if self.needed[part.index()] {
                        let d = self.flow.push(Op::GatherRows(graph, direction), &[g])?;
                        self.give(part, d)?;
                    }
                }
                self.give(args[0], g)
            }
            Op::Segment { graph, direction, reduce } | Op::SegmentEndpoints { graph, direction, reduce } => {
                self.segment_rule((graph, direction, reduce), args[0], y, g)
            }
            Op::MetapathReduce(sum) => self.metapath_rule(sum, &args, y, g),
            // Gradients are placed as other values are: placement comes after differentiation.
            Op::Exchange(_) | Op::SumRanks => Err(TypeError("an exchange between processes has no derivative".into())),
            Op::ReduceTrailing { reduce, axes } => {
                let sum = Op::ReduceTrailing { reduce: Reduce::Sum, axes };
                self.reduction(args[0], reduce, sum, y, g)
            }
            Op::ReduceSpace(reduce) => self.reduction(args[0], reduce, Op::ReduceSpace(Reduce::Sum), y, g),
        }
    }

    fn zeros(&mut self, like: Value) -> Built {
        let ty = self.flow.ty(like).clone();
        let zero = self.flow.constant(0.0);
        self.flow.push(Op::Broadcast(ty), &[zero])
    }

    /// Adds a product to the gradient of `to`, if it needs one.
    fn product(&mut self, to: Value, op: Op, a: Value, b: Value) -> Result<(), TypeError> {
        if self.needed[to.index()] {
            let d = self.flow.push(op, &[a, b])?;
            self.give(to, d)?;
        }
        Ok(())
    }

    /// Adds `d` to the gradient of `to`. The first contribution is the gradient.
    fn give(&mut self, to: Value, d: Value) -> Result<(), TypeError> {
        if !self.needed[to.index()] {
            return Ok(());
        }
        debug_assert_eq!(
            (self.flow.ty(d).space, &self.flow.ty(d).dims),
            (self.flow.ty(to).space, &self.flow.ty(to).dims),
            "the gradient of {to}"
        );
        let sum = match self.gradients[to.index()] {
            None => d,
            Some(known) => {
                let (known, d) = self.one_layout(to, known, d)?;
                self.flow.push(Op::Binary(BinaryOp::Add), &[known, d])?
            }
        };
        self.gradients[to.index()] = Some(sum);
        Ok(())
    }

    /// A sparse value's gradient matters only where the value is stored, so a dense contribution meets a sparse
    /// one on the pattern.
    fn one_layout(&mut self, to: Value, a: Value, b: Value) -> Result<(Value, Value), TypeError> {
        let sparse = |v| self.flow.is_sparse(v);
        if !sparse(to) || sparse(a) == sparse(b) {
            return Ok((a, b));
        }
        let ones = self.ones_like(to)?;
        let mut on_pattern = |v| {
            if self.flow.is_sparse(v) { Ok(v) } else { self.flow.push(Op::Binary(BinaryOp::Mul), &[v, ones]) }
        };
        Ok((on_pattern(a)?, on_pattern(b)?))
    }

    /// Sums `g` over the dimensions and rows over which `like` was broadcast.
    fn unbroadcast(&mut self, g: Value, like: Value) -> Built {
        let axes = self.flow.ty(g).dims.len() - self.flow.ty(like).dims.len();
        let mut sum = g;
        if axes > 0 {
            sum = self.flow.push(Op::ReduceTrailing { reduce: Reduce::Sum, axes }, &[sum])?;
        }
        if self.flow.ty(like).is_unit() && !self.flow.ty(sum).is_unit() {
            sum = if self.flow.is_sparse(sum) {
                // Column sums of a sparse matrix: its product with a column of ones.
                let one = self.flow.constant(1.0);
                let rows = Type::new(self.flow.ty(sum).space, vec![]);
                let ones = self.flow.push(Op::Broadcast(rows), &[one])?;
                self.flow.push(Op::Outer { batch: 0 }, &[sum, ones])?
            } else {
                self.flow.push(Op::ReduceSpace(Reduce::Sum), &[sum])?
            };
        }
        Ok(sum)
    }

    /// A binary function of a value and a constant: `v ∘ number`.
    fn with_constant(&mut self, f: BinaryOp, v: Value, number: f64) -> Built {
        let number = self.flow.constant(number);
        self.flow.push(Op::Binary(f), &[v, number])
    }

    /// Ones at the stored elements of `v`. A mask that drops nothing is a sparse matrix of ones.
    fn ones_like(&mut self, v: Value) -> Built {
        if self.flow.is_sparse(v) {
            let ty = self.flow.ty(v).clone();
            self.flow.push(Op::RandomMask { stream: 0, rate: 0.0, ty }, &[])
        } else {
            Ok(self.flow.constant(1.0))
        }
    }

    /// Zeros like `v`, with another last dimension.
    fn zeros_like(&mut self, v: Value, last: usize) -> Built {
        let mut dims = self.dims(v);
        if let Some(dim) = dims.last_mut() {
            *dim = Dim::Fixed(last);
        }
        let ty = Type::new(self.flow.ty(v).space, dims);
        let zero = self.flow.constant(0.0);
        self.flow.push(Op::Broadcast(ty), &[zero])
    }

    fn dims(&self, v: Value) -> Vec<Dim> {
        self.flow.ty(v).dims.clone()
    }

    /// The last dimension of an operand of a concatenation or a slice, which is fixed by their typing rules.
    fn last_extent(&self, v: Value) -> usize {
        self.flow.ty(v).dims.last().and_then(|d| d.fixed()).expect("joined and sliced dimensions are fixed")
    }
}
