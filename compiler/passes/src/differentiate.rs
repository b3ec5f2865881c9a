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

use hgnnc_ir::dataflow::{Binding, Cursor, InputDecl};
use hgnnc_ir::infer::TypeError;
use hgnnc_ir::{
    BinaryOp, Dataflow, Dim, Direction, Extreme, Graph, Input, MetapathReduce, MetapathTerm, Op, Param, Phase,
    ProductForm, Reduce, Space, Type, UnaryOp, Value,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// Larger than no finite f32 and still finite, the guard against `-∞ - -∞`.
const LOWEST: f64 = f32::MIN as f64;

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
    let needed = depends_on(flow, num_forward, wrt);
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

/// Marks the values whose gradients are needed: those that depend differentiably on a leaf of `wrt`.
fn depends_on(flow: &Dataflow, num_forward: usize, wrt: &[Leaf]) -> Vec<bool> {
    let wrt: FxHashSet<Leaf> = wrt.iter().copied().collect();
    let mut needed: Vec<bool> = Vec::with_capacity(num_forward);
    for data in &flow.values[..num_forward] {
        let through = match &data.op {
            Op::Param(_) | Op::Input(_) => Leaf::of(&data.op).is_some_and(|leaf| wrt.contains(&leaf)),
            Op::Unary(f) => {
                !matches!(f, UnaryOp::Sign | UnaryOp::Step | UnaryOp::Floor) && needed[data.args[0].index()]
            }
            Op::Binary(BinaryOp::Eq | BinaryOp::Gt) => false,
            op => !op.blocks_gradient() && data.args.iter().any(|a| needed[a.index()]),
        };
        needed.push(through);
    }
    needed
}

/// The sum of edge values for rows of a space.
fn sum_like(rows: Space, graph: Graph, direction: Direction) -> Op {
    match rows {
        Space::Endpoints(..) => Op::SegmentEndpoints { graph, direction, reduce: Reduce::Sum },
        _ => Op::Segment { graph, direction, reduce: Reduce::Sum },
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
                let gather = match direction {
                    Direction::In => Op::GatherDst(graph),
                    Direction::Out => Op::GatherSrc(graph),
                };
                let x = args[0];
                let dx = match reduce {
                    // y[v] = Σ_e x[e]: dx[e] = g[v(e)].
                    Reduce::Sum => self.flow.push(gather, &[g])?,
                    // y[v] = ln Σ_e exp x[e]: dx[e] = g[v(e)] exp(x[e] - y[v(e)]), the softmax. It is built as
                    // forward softmax is, so that common subexpressions make them one value. No guard: y[v(e)]
                    // belongs to a row with an edge, -∞ only if all its x are, and then forward softmax is NaN.
                    Reduce::Lse => {
                        let y = self.flow.push(gather.clone(), &[y])?;
                        let weight = self.softmax(x, y)?;
                        let g = self.flow.push(gather, &[g])?;
                        self.flow.push(Op::Binary(BinaryOp::Mul), &[g, weight])?
                    }
                    // dx[e] = g[v(e)] if e is the edge that y[v(e)] comes from, else 0.
                    Reduce::Max => self.gradient_of_extreme(x, (graph, direction, Extreme::Max), gather, g)?,
                    Reduce::Min => self.gradient_of_extreme(x, (graph, direction, Extreme::Min), gather, g)?,
                };
                self.give(x, dx)
            }
            Op::MetapathReduce(sum) => self.metapath_rule(sum, &args, y, g),
            Op::ReduceTrailing { reduce, axes } => {
                let sum = Op::ReduceTrailing { reduce: Reduce::Sum, axes };
                self.reduction(args[0], reduce, sum, y, g)
            }
            Op::ReduceSpace(reduce) => self.reduction(args[0], reduce, Op::ReduceSpace(Reduce::Sum), y, g),
        }
    }

    /// The gradients of `a = Σ e^(s - n_j) w` and `l = ln Σ e^s` over paths with `s = f(x_i + y_j)`, for the
    /// destinations `j` or for the sources `i`. With the sums `P[w]` for the other end and `P'[w]` with the slopes
    /// `f'`:
    ///
    /// ```text
    /// dw = P[g], and for the end that owns the sum g · P'[w], for the other one w · P'[g]; dn = -a · g, or -w · P[g]
    /// ```
    fn metapath_rule(&mut self, sum: MetapathReduce, args: &[Value], value: Value, g: Value) -> Result<(), TypeError> {
        if sum.term == MetapathTerm::WeightedSlope {
            return Err(TypeError("the slopes of attention scores have no gradient".into()));
        }
        let other = match sum.direction {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        };
        let (n, w) = if sum.term == MetapathTerm::LogSumExp { (value, None) } else { (args[2], args.get(3).copied()) };
        let scored = [args[0], args[1], n];
        let of = |with: Option<Value>| scored.into_iter().chain(with).collect::<Vec<Value>>();
        let needed = |tape: &Self, arg: Value| tape.needed[arg.index()];
        let is_in = sum.direction == Direction::In;
        let (own, far) = if is_in { (args[1], args[0]) } else { (args[0], args[1]) };
        if needed(self, own) {
            let slopes =
                self.flow.push(Op::MetapathReduce(sum.with(sum.direction, MetapathTerm::WeightedSlope)), &of(w))?;
            let d = self.times_summed(g, slopes, own)?;
            self.give(own, d)?;
        }
        if needed(self, far) {
            let slopes =
                self.flow.push(Op::MetapathReduce(sum.with(other, MetapathTerm::WeightedSlope)), &of(Some(g)))?;
            let d = match w {
                Some(w) => self.times_summed(w, slopes, far)?,
                None => slopes,
            };
            self.give(far, d)?;
        }
        if sum.term == MetapathTerm::LogSumExp {
            return Ok(());
        }
        let back = Op::MetapathReduce(sum.with(other, MetapathTerm::WeightedSum));
        if let Some(w) = w.filter(|&w| needed(self, w)) {
            let d = self.flow.push(back.clone(), &of(Some(g)))?;
            self.give(w, d)?;
        }
        if needed(self, n) {
            let d = match (is_in, w) {
                (true, _) => self.times_summed(g, value, n)?,
                (false, Some(w)) => {
                    let back = self.flow.push(back, &of(Some(g)))?;
                    self.times_summed(w, back, n)?
                }
                (false, None) => self.flow.push(back, &of(Some(g)))?,
            };
            let d = self.flow.push(Op::Unary(UnaryOp::Neg), &[d])?;
            self.give(n, d)?;
        }
        Ok(())
    }

    /// `a · b`, summed over the dimensions that `like` does not have.
    fn times_summed(&mut self, a: Value, b: Value, like: Value) -> Built {
        let product = self.flow.push(Op::Binary(BinaryOp::Mul), &[a, b])?;
        let axes = self.flow.ty(product).dims.len() - self.flow.ty(like).dims.len();
        if axes == 0 {
            return Ok(product);
        }
        self.flow.push(Op::ReduceTrailing { reduce: Reduce::Sum, axes }, &[product])
    }

    /// The sum of edge values for the rows of `like`: all vertices at this end, or those with edges.
    fn sum_of_edges(&mut self, graph: Graph, direction: Direction, like: Value, g: Value) -> Built {
        self.flow.push(sum_like(self.flow.ty(like).space, graph, direction), &[g])
    }

    fn zeros(&mut self, like: Value) -> Built {
        let ty = self.flow.ty(like).clone();
        let zero = self.flow.constant(0.0);
        self.flow.push(Op::Broadcast(ty), &[zero])
    }

    /// The rules of [`Op::Segment`] for reductions whose result broadcasts back by itself.
    fn reduction(&mut self, x: Value, reduce: Reduce, sum: Op, y: Value, g: Value) -> Result<(), TypeError> {
        let dx = match reduce {
            // y = Σ x: every element gets g.
            Reduce::Sum => {
                let from = self.flow.ty(x);
                let dense = Type::new(from.space, from.dims.clone());
                self.flow.push(Op::Broadcast(dense), &[g])?
            }
            // y = ln Σ exp x: dx = g exp(x - y).
            Reduce::Lse => {
                let weight = self.softmax(x, y)?;
                self.flow.push(Op::Binary(BinaryOp::Mul), &[g, weight])?
            }
            Reduce::Max | Reduce::Min => {
                let mask = self.flow.push(Op::Binary(BinaryOp::Eq), &[x, y])?;
                let share = self.share(g, mask, sum)?;
                self.flow.push(Op::Binary(BinaryOp::Mul), &[mask, share])?
            }
        };
        self.give(x, dx)
    }

    /// dx of `y = f(x)`: `g f'(x)`, where possible in terms of `y`, which the forward pass has already.
    fn unary_rule(&mut self, f: UnaryOp, x: Value, y: Value, g: Value) -> Built {
        use BinaryOp::{Add, Div, Min, Mul, Sub};
        let slope = match f {
            UnaryOp::Neg => return self.flow.push(Op::Unary(UnaryOp::Neg), &[g]),
            UnaryOp::Exp => y,
            UnaryOp::Log => return self.flow.push(Op::Binary(Div), &[g, x]),
            // (ln(1 + x))' = 1 / (1 + x)
            UnaryOp::Log1p => {
                let one = self.ones_like(x)?;
                let more = self.flow.push(Op::Binary(Add), &[x, one])?;
                return self.flow.push(Op::Binary(Div), &[g, more]);
            }
            // (ln(1 + e^x))' = e^x / (1 + e^x)
            UnaryOp::Softplus => self.flow.push(Op::Unary(UnaryOp::Sigmoid), &[x])?,
            // (√x)' = 1 / (2√x)
            UnaryOp::Sqrt => {
                let half = self.with_constant(Mul, g, 0.5)?;
                return self.flow.push(Op::Binary(Div), &[half, y]);
            }
            // (1/x)' = -1/x² = -y²
            UnaryOp::Recip => {
                let square = self.flow.push(Op::Binary(Mul), &[y, y])?;
                self.flow.push(Op::Unary(UnaryOp::Neg), &[square])?
            }
            // 0 at 0, the middle of the subgradients.
            UnaryOp::Abs => self.flow.push(Op::Unary(UnaryOp::Sign), &[x])?,
            // 1 - y²
            UnaryOp::Tanh => {
                let square = self.flow.push(Op::Binary(Mul), &[y, y])?;
                let one = self.ones_like(square)?;
                self.flow.push(Op::Binary(Sub), &[one, square])?
            }
            // y (1 - y)
            UnaryOp::Sigmoid => {
                let one = self.flow.constant(1.0);
                let other = self.flow.push(Op::Binary(Sub), &[one, y])?;
                self.flow.push(Op::Binary(Mul), &[y, other])?
            }
            // 1 where x > 0, which is where y > 0; 0 at 0.
            UnaryOp::Relu => self.flow.push(Op::Unary(UnaryOp::Step), &[y])?,
            // slope + (1 - slope) · [x > 0]
            UnaryOp::LeakyRelu(slope) => {
                let step = self.flow.push(Op::Unary(UnaryOp::Step), &[x])?;
                let above = self.with_constant(Mul, step, 1.0 - slope)?;
                let one = self.ones_like(above)?;
                let base = self.with_constant(Mul, one, slope)?;
                self.flow.push(Op::Binary(Add), &[above, base])?
            }
            // 1 where x > 0, else e^x = y + 1: in both cases min(y, 0) + 1.
            UnaryOp::Elu => {
                if self.flow.is_sparse(y) {
                    // min(y, 0) = y - max(y, 0), which keeps zeros.
                    let above = self.flow.push(Op::Unary(UnaryOp::Relu), &[y])?;
                    let below = self.flow.push(Op::Binary(Sub), &[y, above])?;
                    let one = self.ones_like(y)?;
                    self.flow.push(Op::Binary(Add), &[below, one])?
                } else {
                    let below = self.with_constant(Min, y, 0.0)?;
                    self.with_constant(Add, below, 1.0)?
                }
            }
            // (x Φ(x))' = Φ(x) + x φ(x), Φ(x) = (1 + erf(x/√2))/2, φ(x) = e^(-x²/2)/√(2π).
            UnaryOp::Gelu => {
                let scaled = self.with_constant(Mul, x, std::f64::consts::FRAC_1_SQRT_2)?;
                let erf = self.flow.push(Op::Unary(UnaryOp::Erf), &[scaled])?;
                let half = self.with_constant(Mul, erf, 0.5)?;
                let distribution = self.with_constant(Add, half, 0.5)?;
                let square = self.flow.push(Op::Binary(Mul), &[x, x])?;
                let exponent = self.with_constant(Mul, square, -0.5)?;
                let bell = self.flow.push(Op::Unary(UnaryOp::Exp), &[exponent])?;
                let density = self.with_constant(Mul, bell, 1.0 / std::f64::consts::TAU.sqrt())?;
                let second = self.flow.push(Op::Binary(Mul), &[x, density])?;
                self.flow.push(Op::Binary(Add), &[distribution, second])?
            }
            // 2/√π e^(-x²)
            UnaryOp::Erf => {
                let square = self.flow.push(Op::Binary(Mul), &[x, x])?;
                let exponent = self.flow.push(Op::Unary(UnaryOp::Neg), &[square])?;
                let bell = self.flow.push(Op::Unary(UnaryOp::Exp), &[exponent])?;
                self.with_constant(Mul, bell, std::f64::consts::FRAC_2_SQRT_PI)?
            }
            // -sin x = cos(x + π/2)
            UnaryOp::Cos => {
                let shifted = self.with_constant(Add, x, std::f64::consts::FRAC_PI_2)?;
                self.flow.push(Op::Unary(UnaryOp::Cos), &[shifted])?
            }
            UnaryOp::Sign | UnaryOp::Step | UnaryOp::Floor => {
                unreachable!("piecewise constant functions hand on no gradient")
            }
        };
        self.flow.push(Op::Binary(BinaryOp::Mul), &[g, slope])
    }

    /// The gradient of operand `i` of `y = a ∘ b`, before broadcasting is undone.
    fn binary_rule(&mut self, f: BinaryOp, i: usize, a: Value, b: Value, y: Value, g: Value) -> Built {
        use BinaryOp::{Add, Div, Eq, Gt, Max, Mul, Sub};
        match f {
            Add => Ok(g),
            Sub if i == 0 => Ok(g),
            // Undo the broadcast first: there may be fewer elements to negate.
            Sub => {
                let sum = self.unbroadcast(g, b)?;
                self.flow.push(Op::Unary(UnaryOp::Neg), &[sum])
            }
            Mul => self.flow.push(Op::Binary(Mul), &[g, if i == 0 { b } else { a }]),
            // y = a / b: da = g / b, db = -g a / b² = -(g y) / b. `b` is broadcast, so the broadcast is undone
            // before the division.
            Div if i == 0 => self.flow.push(Op::Binary(Div), &[g, b]),
            Div => {
                let product = self.flow.push(Op::Binary(Mul), &[g, y])?;
                let sum = self.unbroadcast(product, b)?;
                let quotient = self.flow.push(Op::Binary(Div), &[sum, b])?;
                self.flow.push(Op::Unary(UnaryOp::Neg), &[quotient])
            }
            // The winner takes the gradient; a tie shares it.
            Max | BinaryOp::Min => {
                let (mine, other) = if i == 0 { (a, b) } else { (b, a) };
                let operands = if f == Max { [mine, other] } else { [other, mine] };
                let won = self.flow.push(Op::Binary(Gt), &operands)?;
                let tie = self.flow.push(Op::Binary(Eq), &[a, b])?;
                let half = self.with_constant(Mul, tie, 0.5)?;
                let part = self.flow.push(Op::Binary(Add), &[won, half])?;
                self.flow.push(Op::Binary(Mul), &[g, part])
            }
            // y = a^b: da = g b a^(b-1).
            BinaryOp::Pow if i == 0 => {
                let power = match self.constant_of(b) {
                    Some(2.0) => a,
                    Some(exponent) => self.with_constant(BinaryOp::Pow, a, exponent - 1.0)?,
                    None => {
                        let one = self.flow.constant(1.0);
                        let less = self.flow.push(Op::Binary(Sub), &[b, one])?;
                        self.flow.push(Op::Binary(BinaryOp::Pow), &[a, less])?
                    }
                };
                let slope = self.flow.push(Op::Binary(Mul), &[power, b])?;
                self.flow.push(Op::Binary(Mul), &[g, slope])
            }
            // db = g y ln a, for positive a.
            BinaryOp::Pow => {
                let log = self.flow.push(Op::Unary(UnaryOp::Log), &[a])?;
                let slope = self.flow.push(Op::Binary(Mul), &[y, log])?;
                self.flow.push(Op::Binary(Mul), &[g, slope])
            }
            // y = ln(e^a + e^b): da = g e^(a-y). Two -∞ make y = -∞, as for a vertex without edges in two
            // graphs; with y raised to a finite number e^(-∞) = 0 comes out instead of NaN. A finite a is never
            // below that number, so nothing else changes.
            BinaryOp::LogAddExp => {
                let mine = if i == 0 { a } else { b };
                let finite = self.with_constant(Max, y, LOWEST)?;
                let weight = self.softmax(mine, finite)?;
                self.flow.push(Op::Binary(Mul), &[g, weight])
            }
            Eq | Gt => unreachable!("comparisons hand on no gradient"),
        }
    }

    /// The gradient `g` of the largest (smallest) elements of rows, at the edges that they come from.
    fn gradient_of_extreme(&mut self, x: Value, over: (Graph, Direction, Extreme), gather: Op, g: Value) -> Built {
        let (graph, direction, extreme) = over;
        // In the forward phase, in the traversal that has the elements.
        let backward = self.flow.cursor;
        self.flow.cursor.phase = Phase::Forward;
        let rank = self.edge_rank(graph, direction)?;
        let winner = self.flow.push(Op::SegmentArg { graph, direction, extreme }, &[x, rank])?;
        self.flow.cursor = backward;
        let winner = self.flow.push(gather.clone(), &[winner])?;
        let mask = self.flow.push(Op::Binary(BinaryOp::Eq), &[winner, rank])?;
        let g = self.flow.push(gather, &[g])?;
        self.flow.push(Op::Binary(BinaryOp::Mul), &[g, mask])
    }

    /// The ranks of the edges of a graph, an input of its own.
    fn edge_rank(&mut self, graph: Graph, direction: Direction) -> Built {
        let binding = Binding::EdgeRank(graph, direction);
        let known = self.flow.inputs.iter().position(|decl| decl.binding == binding);
        let input = known.map(Input::new).unwrap_or_else(|| {
            let name = format!("{}.rank.{}", self.flow.graphs[graph.index()].name, direction.name());
            let ty = Type::new(Space::Edges(graph), vec![]);
            self.flow.inputs.push(InputDecl { name, ty, binding });
            Input::new(self.flow.inputs.len() - 1)
        });
        self.flow.push(Op::Input(input), &[])
    }

    /// The softmax weights `exp(x - y)` of scores with their log-sum-exp.
    fn softmax(&mut self, x: Value, y: Value) -> Built {
        let difference = self.flow.push(Op::Binary(BinaryOp::Sub), &[x, y])?;
        self.flow.push(Op::Unary(UnaryOp::Exp), &[difference])
    }

    /// `g` divided by the number of ones of `mask` in the same reduction. Rows over nothing divide by 1.
    fn share(&mut self, g: Value, mask: Value, sum: Op) -> Built {
        let count = self.flow.push(sum, &[mask])?;
        let count = self.with_constant(BinaryOp::Max, count, 1.0)?;
        self.flow.push(Op::Binary(BinaryOp::Div), &[g, count])
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

    /// The number that every element of a value is.
    fn constant_of(&self, mut v: Value) -> Option<f64> {
        loop {
            let data = self.flow.value(v);
            match data.op {
                Op::Const(number) => return Some(number),
                Op::Broadcast(_) => v = data.args[0],
                _ => return None,
            }
        }
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
