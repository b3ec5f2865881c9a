//! Algebraic simplification: constant folding, identities, and views of views.
//!
//! Every rule keeps the value of every element, infinities and NaN included, up to the rounding of one operation and
//! the sign of zero. That is why `x * 0` stays (`∞ * 0` is NaN), `x - x` too, and `exp(log x)` (NaN for negative `x`).
//!
//! | before | after | condition |
//! | --- | --- | --- |
//! | `f(c)`, `c ∘ d` | constant | the result is finite |
//! | `x + 0`, `x - 0`, `x * 1`, `x / 1`, `x ^ 1` | `x` | `x` has the type of the result |
//! | `0 - x`, `x * -1`, `x / -1` | `-x` | as above |
//! | `x ^ 2` | `x * x` | |
//! | `(x * c) * d` | `x * (c d)` | |
//! | `--x`, `||x||`, `|-x|`, `relu(relu x)`, `log(exp x)` | `x`, `|x|`, `|x|`, `relu x`, `x` | |
//! | `a + -b`, `a - -b`, `-a * -b` | `a - b`, `a + b`, `a * b` | |
//! | `broadcast(x) ∘ b` | `x ∘ b`, broadcast if still needed | operations broadcast their operands |
//! | `f(broadcast x)`, `gather(broadcast x)` | broadcast of the smaller value | |
//! | transpose of a broadcast to rows | broadcast of the transpose | no new dimensions |
//! | reduction of a broadcast over just its new dimensions | `x * n`, `x` | extents are fixed; sum, or max and min |
//! | reduction over dimensions of extent 1 | reshape | |
//! | reshape, slice, rows, broadcast of their likes | one of them, or none | |
//! | slice of a concatenation | (slice of) the part | it lies in one part |
//! | transpose of the same transpose | its operand | |
//! | transpose of dimensions of which one has extent 1 | reshape | |
//! | mask that drops nothing | ones | dense |
//! | `(g * m) * step(x)` | `(g * m) * step(x * m)` | `m` is a dropout mask, and the program has `x * m` |
//!
//! The last one is the gradient of `dropout(relu(z))`: with it, the backward pass reads what the dropout left over, which
//! other gradients read as well, and the activation before the dropout is not kept.

use hgnnc_ir::elementwise;
use hgnnc_ir::{BinaryOp, Dataflow, Op, Reduce, Space, Type, UnaryOp, Value};

use crate::pass::{Changed, PassCx};
use crate::rewrite::{Rewriter, rewrite};

/// Applies the rules of the table above to all values.
pub fn simplify(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let simpler = rewrite(flow, |r, value, args| {
        let op = r.old.value(value).op.clone();
        simpler(r, &op, args)
    });
    cx.note("simplify", simpler, || format!("{simpler} values by simpler ones"))
}

/// A value of the new program, simplified.
fn make(r: &mut Rewriter<'_>, op: Op, args: &[Value]) -> Value {
    simpler(r, &op, args).unwrap_or_else(|| r.add(op, args))
}

/// A simpler value that equals `op` of `args`.
fn simpler(r: &mut Rewriter<'_>, op: &Op, args: &[Value]) -> Option<Value> {
    match op {
        Op::Unary(f) => unary(r, *f, args[0]),
        Op::Binary(f) => binary(r, *f, args[0], args[1]),
        Op::Broadcast(ty) => {
            if r.new.ty(args[0]) == ty {
                return Some(args[0]);
            }
            let (inner, _) = inside_broadcast(r, args[0])?;
            Some(make(r, Op::Broadcast(ty.clone()), &[inner]))
        }
        Op::Reshape(dims) => {
            let x = args[0];
            if r.new.ty(x).dims == *dims {
                return Some(x);
            }
            if let Some(number) = constant(r, x) {
                let ty = r.new.ty(x).with_dims(dims.clone());
                return Some(filled(r, ty, number));
            }
            let inner = inside(r, x, |op| matches!(op, Op::Reshape(_)))?;
            Some(make(r, Op::Reshape(dims.clone()), &[inner]))
        }
        Op::Concat if args.len() == 1 => Some(args[0]),
        Op::Slice { start, len } => slice(r, *start, *len, args[0]),
        Op::Transpose { axis } => transpose(r, *axis, args[0]),
        Op::Rows => inside(r, args[0], |op| matches!(op, Op::Unrows)),
        Op::Unrows => inside(r, args[0], |op| matches!(op, Op::Rows)),
        Op::Reindex(_) => inside(r, args[0], |op| matches!(op, Op::Reindex(_))),
        Op::GatherSrc(graph) | Op::GatherDst(graph) => {
            let (inner, ty) = inside_broadcast(r, args[0])?;
            let space = Space::Edges(*graph);
            let inner = if r.new.ty(inner).is_unit() { inner } else { make(r, op.clone(), &[inner]) };
            Some(make(r, Op::Broadcast(Type::new(space, ty.dims)), &[inner]))
        }
        Op::GatherRows(graph, direction) => {
            let (inner, ty) = inside_broadcast(r, args[0])?;
            let space = Space::Endpoints(*graph, *direction);
            let inner = if r.new.ty(inner).is_unit() { inner } else { make(r, op.clone(), &[inner]) };
            Some(make(r, Op::Broadcast(Type::new(space, ty.dims)), &[inner]))
        }
        Op::ReduceTrailing { reduce, axes } => reduce_trailing(r, *reduce, *axes, args[0]),
        Op::RandomMask { rate, ty, .. } if *rate == 0.0 && !ty.is_sparse() => Some(filled(r, ty.clone(), 1.0)),
        _ => None,
    }
}

fn unary(r: &mut Rewriter<'_>, f: UnaryOp, x: Value) -> Option<Value> {
    if let Some(number) = constant(r, x) {
        let result = elementwise::unary(f, number);
        return result.is_finite().then(|| filled(r, r.new.ty(x).clone(), result));
    }
    let inner = |r: &Rewriter<'_>, g: UnaryOp| inside(r, x, |op| *op == Op::Unary(g));
    match f {
        UnaryOp::Neg => {
            if let Some(y) = inner(r, UnaryOp::Neg) {
                return Some(y);
            }
        }
        UnaryOp::Abs => {
            if inner(r, UnaryOp::Abs).is_some() {
                return Some(x);
            }
            if let Some(y) = inner(r, UnaryOp::Neg) {
                return Some(make(r, Op::Unary(UnaryOp::Abs), &[y]));
            }
        }
        UnaryOp::Relu if inner(r, UnaryOp::Relu).is_some() => return Some(x),
        UnaryOp::Log => {
            if let Some(y) = inner(r, UnaryOp::Exp) {
                return Some(y);
            }
        }
        _ => {}
    }
    let (small, ty) = inside_broadcast(r, x)?;
    let small = make(r, Op::Unary(f), &[small]);
    Some(make(r, Op::Broadcast(ty), &[small]))
}

fn binary(r: &mut Rewriter<'_>, f: BinaryOp, a: Value, b: Value) -> Option<Value> {
    use BinaryOp::{Add, Div, Mul, Pow, Sub};
    let ty = result_type(r, &Op::Binary(f), &[a, b])?;
    let (left, right) = (constant(r, a), constant(r, b));
    if let (Some(x), Some(y)) = (left, right) {
        let result = elementwise::binary(f, x, y);
        return result.is_finite().then(|| filled(r, ty, result));
    }
    let neutral = match (f, left, right) {
        (Add | Sub, _, Some(0.0)) | (Mul | Div | Pow, _, Some(1.0)) => Some((a, false)),
        (Add, Some(0.0), _) | (Mul, Some(1.0), _) => Some((b, false)),
        (Sub, Some(0.0), _) | (Mul, Some(-1.0), _) => Some((b, true)),
        (Mul | Div, _, Some(-1.0)) => Some((a, true)),
        _ => None,
    };
    if let Some((x, negated)) = neutral
        && let Some(x) = as_type(r, x, &ty)
    {
        return Some(if negated { make(r, Op::Unary(UnaryOp::Neg), &[x]) } else { x });
    }
    if f == Pow && right == Some(2.0) && *r.new.ty(a) == ty {
        return Some(make(r, Op::Binary(Mul), &[a, a]));
    }
    // (x * c) * d
    if f == Mul
        && let Some((x, d)) = right.map(|d| (a, d)).or(left.map(|c| (b, c)))
        && r.new.value(x).op == Op::Binary(Mul)
        && *r.new.ty(x) == ty
    {
        let (p, q) = (r.new.value(x).args[0], r.new.value(x).args[1]);
        let found = constant(r, q).map(|c| (p, c)).or(constant(r, p).map(|c| (q, c)));
        if let Some((y, c)) = found
            && (c * d).is_finite()
            && *r.new.ty(y) == ty
        {
            let product = r.new.constant(c * d);
            return Some(make(r, Op::Binary(Mul), &[y, product]));
        }
    }
    if f == Mul
        && let Some(step) = step_after_dropout(r, a, b).map(|step| [a, step]).or_else(|| {
            let step = step_after_dropout(r, b, a)?;
            Some([step, b])
        })
    {
        return Some(r.add(Op::Binary(Mul), &step));
    }
    let negated = |r: &Rewriter<'_>, v: Value| inside(r, v, |op| *op == Op::Unary(UnaryOp::Neg));
    match (f, negated(r, a), negated(r, b)) {
        (Add, _, Some(y)) => return Some(make(r, Op::Binary(Sub), &[a, y])),
        (Add, Some(x), None) => return Some(make(r, Op::Binary(Sub), &[b, x])),
        (Sub, _, Some(y)) => return Some(make(r, Op::Binary(Add), &[a, y])),
        (Mul | Div, Some(x), Some(y)) => return Some(make(r, Op::Binary(f), &[x, y])),
        _ => {}
    }
    // Operations broadcast their operands: equal broadcasts are applied after the operation.
    let inner = |v: Value| inside_broadcast(r, v).map_or(v, |(inner, _)| inner);
    for operands in [[inner(a), inner(b)], [inner(a), b], [a, inner(b)]] {
        if operands != [a, b]
            && let Some(small) = result_type(r, &Op::Binary(f), &operands)
            && (small == ty || !(small.is_sparse() || ty.is_sparse()))
        {
            let small = make(r, Op::Binary(f), &operands);
            return as_type(r, small, &ty);
        }
    }
    None
}

/// `step(x * m)` for a gradient `g * m` and `step(x)`, if the program has `x * m`. Elements of a dropout mask are 0 or at
/// least 1: where one is 0, the product with the gradient is 0 anyway, and elsewhere it changes no sign.
fn step_after_dropout(r: &mut Rewriter<'_>, gradient: Value, step: Value) -> Option<Value> {
    let x = inside(r, step, |op| *op == Op::Unary(UnaryOp::Step))?;
    let gradient = r.new.value(gradient);
    let is_mask = |v: &&Value| matches!(r.new.value(**v).op, Op::RandomMask { .. });
    let mask = *gradient.args.iter().find(is_mask).filter(|_| gradient.op == Op::Binary(BinaryOp::Mul))?;
    let is_dropout = |v: &Value| {
        let data = r.new.value(*v);
        let operands = [x, mask];
        let product = data.op == Op::Binary(BinaryOp::Mul) && data.ty == *r.new.ty(x);
        product && (data.args == operands || data.args.iter().eq(operands.iter().rev()))
    };
    let dropped = (x.max(mask).index() + 1..step.index()).map(Value::new).find(is_dropout)?;
    Some(r.add(Op::Unary(UnaryOp::Step), &[dropped]))
}

fn slice(r: &mut Rewriter<'_>, start: usize, len: usize, x: Value) -> Option<Value> {
    let data = r.new.value(x).clone();
    let ty = result_type(r, &Op::Slice { start, len }, &[x])?;
    if ty == data.ty {
        return Some(x);
    }
    if let Some(number) = constant(r, x) {
        return Some(filled(r, ty, number));
    }
    if let Op::Slice { start: outer, .. } = data.op {
        return Some(make(r, Op::Slice { start: outer + start, len }, &data.args));
    }
    if data.op == Op::Concat {
        let mut before = 0;
        for &part in &data.args {
            let width = r.new.ty(part).dims.last()?.fixed()?;
            if before <= start && start + len <= before + width {
                return Some(make(r, Op::Slice { start: start - before, len }, &[part]));
            }
            before += width;
        }
    }
    None
}

fn transpose(r: &mut Rewriter<'_>, axis: usize, x: Value) -> Option<Value> {
    let data = r.new.value(x).clone();
    let ty = result_type(r, &Op::Transpose { axis }, &[x])?;
    if let Some(number) = constant(r, x) {
        return Some(filled(r, ty, number));
    }
    if data.op == (Op::Transpose { axis }) {
        return Some(data.args[0]);
    }
    if let Some((inner, of)) = inside_broadcast(r, x)
        && r.new.ty(inner).dims == of.dims
    {
        let inner = make(r, Op::Transpose { axis }, &[inner]);
        return Some(make(r, Op::Broadcast(ty), &[inner]));
    }
    let has_one = data.ty.dims[axis..axis + 2].iter().any(|dim| dim.fixed() == Some(1));
    has_one.then(|| make(r, Op::Reshape(ty.dims), &[x]))
}

fn reduce_trailing(r: &mut Rewriter<'_>, reduce: Reduce, axes: usize, x: Value) -> Option<Value> {
    let from = r.new.ty(x).clone();
    let lead = from.dims.len() - axes;
    let count: usize = from.dims[lead..].iter().map(|d| d.fixed()).product::<Option<usize>>()?;
    if from.is_sparse() || count == 0 {
        return None;
    }
    if count == 1 {
        return Some(make(r, Op::Reshape(from.dims[..lead].to_vec()), &[x]));
    }
    let (inner, _) = inside_broadcast(r, x)?;
    let to = Type::new(from.space, &from.dims[..lead]);
    // All reduced dimensions come from the broadcast.
    if r.new.ty(inner).dims.len() > lead {
        return None;
    }
    let small = match reduce {
        Reduce::Sum => {
            let count = r.new.constant(count as f64);
            make(r, Op::Binary(BinaryOp::Mul), &[inner, count])
        }
        Reduce::Max | Reduce::Min => inner,
        Reduce::Lse => {
            let log = r.new.constant((count as f64).ln());
            make(r, Op::Binary(BinaryOp::Add), &[inner, log])
        }
    };
    Some(make(r, Op::Broadcast(to), &[small]))
}

/// The constant that all elements of a value equal.
fn constant(r: &Rewriter<'_>, mut v: Value) -> Option<f64> {
    loop {
        let data = r.new.value(v);
        match data.op {
            Op::Const(number) => return Some(number),
            Op::Broadcast(_) => v = data.args[0],
            _ => return None,
        }
    }
}

/// A value of that type whose elements are all `number`.
fn filled(r: &mut Rewriter<'_>, ty: Type, number: f64) -> Value {
    let number = r.new.constant(number);
    if ty == Type::scalar() { number } else { r.add(Op::Broadcast(Type::new(ty.space, ty.dims)), &[number]) }
}

/// Broadcasts `v` to a type unless it has that type. There is no broadcast to a sparse type.
fn as_type(r: &mut Rewriter<'_>, v: Value, ty: &Type) -> Option<Value> {
    if r.new.ty(v) == ty {
        Some(v)
    } else if ty.is_sparse() || r.new.is_sparse(v) {
        None
    } else {
        Some(make(r, Op::Broadcast(ty.clone()), &[v]))
    }
}

/// The operand of a value with such an operation.
fn inside(r: &Rewriter<'_>, v: Value, test: impl Fn(&Op) -> bool) -> Option<Value> {
    let data = r.new.value(v);
    if test(&data.op) { data.args.first().copied() } else { None }
}

/// The operand of a broadcast, and the type of the broadcast.
fn inside_broadcast(r: &Rewriter<'_>, v: Value) -> Option<(Value, Type)> {
    let inner = inside(r, v, |op| matches!(op, Op::Broadcast(_)))?;
    Some((inner, r.new.ty(v).clone()))
}

fn result_type(r: &Rewriter<'_>, op: &Op, args: &[Value]) -> Option<Type> {
    hgnnc_ir::infer::infer(&r.new, op, args).ok()
}
