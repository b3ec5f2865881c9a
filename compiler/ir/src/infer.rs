//! Typing rules: the result type of an operation from the types of its operands.
//!
//! Builder, parser and verifier all use these rules, so every program that was built is well-typed.

use std::fmt;

use crate::dataflow::Dataflow;
use crate::metapath::{MetapathReduce, MetapathTerm};
use crate::ops::{BinaryOp, Direction, Op, ProductForm};
use crate::ranks::EdgeShare;
use crate::stacks::{Incidence, VertexRows};
use crate::types::{DType, Dim, Graph, Layout, Space, Type, Value, VertexType};
use crate::width::Width;

/// An operation whose operands do not fit; the message says why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeError(pub String);

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TypeError {}

fn error<T>(message: impl Into<String>) -> Result<T, TypeError> {
    Err(TypeError(message.into()))
}

/// The type of `op` applied to `args`.
///
/// # Errors
/// If the number or the types of the operands do not fit, or a table row does not exist.
pub fn infer(flow: &Dataflow, op: &Op, args: &[Value]) -> Result<Type, TypeError> {
    let expected = match op {
        Op::Input(_) | Op::Param(_) | Op::State(..) | Op::Const(_) | Op::Count(_) | Op::RandomMask { .. } => Some(0),
        Op::Binary(_)
        | Op::MatMul { .. }
        | Op::MatMulT { .. }
        | Op::Outer { .. }
        | Op::RowProduct { .. }
        | Op::Grouped { .. }
        | Op::ScatterRows(..)
        | Op::SegmentArg { .. } => Some(2),
        Op::ScatterAdd(ends) => Some(1 + ends.len()),
        Op::Concat | Op::LinkLoss(_) => None,
        Op::MetapathReduce(sum) => {
            Some(sum.term.operands() + usize::from(sum.term != MetapathTerm::LogSumExp && args.len() > 3))
        }
        Op::Unary(_)
        | Op::Broadcast(_)
        | Op::StopGradient
        | Op::Reshape(_)
        | Op::Slice { .. }
        | Op::Transpose { .. }
        | Op::OneHot { .. }
        | Op::Rows
        | Op::Unrows
        | Op::Reindex(_)
        | Op::GatherSrc(_)
        | Op::GatherDst(_)
        | Op::Segment { .. }
        | Op::SegmentEndpoints { .. }
        | Op::GatherRows(..)
        | Op::Exchange(_)
        | Op::SumRanks
        | Op::ReduceTrailing { .. }
        | Op::ReduceSpace(_) => Some(1),
    };
    if expected.is_some_and(|n| n != args.len()) || (expected.is_none() && args.is_empty()) {
        return error(format!("takes {} operands, has {}", expected.unwrap_or(1), args.len()));
    }
    if let Some(bad) = args.iter().find(|a| a.index() >= flow.values.len()) {
        return error(format!("operand {bad} is not defined before its use"));
    }
    let ty = |i: usize| flow.ty(args[i]);
    if !matches!(op, Op::OneHot { .. } | Op::StopGradient) {
        for &arg in args {
            if flow.ty(arg).dtype != DType::F32 {
                return error(format!("operand {arg} is an integer"));
            }
        }
    }
    let dense = |i: usize| match ty(i).layout {
        Layout::Dense => Ok(()),
        Layout::Sparse(_) => error(format!(
            "operand {} is sparse; only products, zero-preserving element-wise operations and row reductions take it",
            args[i]
        )),
    };
    let known = |index: usize, len: usize, what: &str| {
        if index < len { Ok(()) } else { error(format!("no such {what}: {index}")) }
    };

    match op {
        Op::Input(input) => {
            known(input.index(), flow.inputs.len(), "input")?;
            Ok(flow.inputs[input.index()].ty.clone())
        }
        Op::Param(param) | Op::State(param, _) => {
            known(param.index(), flow.params.len(), "parameter")?;
            Ok(flow.param_type(*param))
        }
        Op::Const(_) => Ok(Type::scalar()),
        Op::Count(space) => {
            known_space(flow, *space)?;
            Ok(Type::scalar())
        }
        Op::RandomMask { rate, ty, .. } => {
            if !(0.0..1.0).contains(rate) {
                return error(format!("rate {rate} is not in [0, 1)"));
            }
            known_space(flow, ty.space)?;
            Ok(ty.clone())
        }

        Op::Unary(f) => {
            if ty(0).is_sparse() && !f.preserves_zero() {
                dense(0)?;
            }
            Ok(ty(0).clone())
        }
        Op::Binary(f) => binary(*f, ty(0), ty(1)),
        Op::Broadcast(target) => {
            dense(0)?;
            known_space(flow, target.space)?;
            let from = ty(0);
            let space_fits = from.space == target.space || from.is_unit();
            if space_fits
                && target.dims.starts_with(&from.dims)
                && *target == Type::new(target.space, target.dims.clone())
            {
                Ok(target.clone())
            } else {
                error(format!("cannot broadcast {} to {}", show(flow, from), show(flow, target)))
            }
        }
        Op::StopGradient => Ok(ty(0).clone()),

        Op::Reshape(dims) => {
            dense(0)?;
            if flow.expanded(Width::of(dims)) == flow.expanded(Width::of(&ty(0).dims)) {
                Ok(ty(0).with_dims(dims.clone()))
            } else {
                error(format!("cannot reshape {} to {} elements per row", show(flow, ty(0)), show_dims(flow, dims)))
            }
        }
        Op::Concat => {
            let first = ty(0);
            let Some((_, lead)) = first.dims.split_last() else {
                return error("operands need at least one trailing dimension");
            };
            let mut total = 0;
            for i in 0..args.len() {
                dense(i)?;
                let part = ty(i);
                match part.dims.split_last() {
                    Some((Dim::Fixed(last), rest)) if rest == lead && part.space == first.space => total += last,
                    _ => return error(format!("cannot join {} and {}", show(flow, first), show(flow, part))),
                }
            }
            let mut dims = lead.to_vec();
            dims.push(Dim::Fixed(total));
            Ok(first.with_dims(dims))
        }
        Op::Slice { start, len } => {
            dense(0)?;
            match ty(0).dims.split_last() {
                Some((Dim::Fixed(last), lead)) if start + len <= *last => {
                    let mut dims = lead.to_vec();
                    dims.push(Dim::Fixed(*len));
                    Ok(ty(0).with_dims(dims))
                }
                _ => error(format!("{} has no elements {start}..{}", show(flow, ty(0)), start + len)),
            }
        }
        Op::Transpose { axis } => {
            dense(0)?;
            let mut dims = ty(0).dims.clone();
            match dims.get(*axis..).and_then(|rest| rest.get(..2)) {
                Some([Dim::Fixed(_), Dim::Fixed(_)]) => {
                    dims.swap(*axis, axis + 1);
                    Ok(ty(0).with_dims(dims))
                }
                _ => error(format!("{} has no fixed dimensions {axis} and {}", show(flow, ty(0)), axis + 1)),
            }
        }
        Op::OneHot { classes } => {
            if ty(0).dtype == DType::I32 && ty(0).dims.is_empty() {
                Ok(Type::fixed(ty(0).space, &[*classes]))
            } else {
                error("the operand is not a class label")
            }
        }
        Op::Rows => {
            dense(0)?;
            match ty(0).dims.split_first() {
                Some((Dim::Count(vertex), rest)) if ty(0).is_unit() => Ok(Type::new(Space::Vertices(*vertex), rest)),
                Some((Dim::Fixed(extent), rest)) if ty(0).is_unit() => Ok(Type::new(Space::Index(*extent), rest)),
                _ => error(format!("{} has no leading dimension that could be rows", show(flow, ty(0)))),
            }
        }
        Op::Unrows => {
            dense(0)?;
            match ty(0).space {
                Space::Vertices(vertex) => Ok(leading(Dim::Count(vertex), ty(0))),
                Space::Index(extent) => Ok(leading(Dim::Fixed(extent), ty(0))),
                Space::Unit | Space::Edges(_) | Space::Endpoints(..) => {
                    error("the operand has no rows that could be a dimension")
                }
            }
        }
        Op::Reindex(space) => {
            dense(0)?;
            known_space(flow, *space)?;
            let has_edges = |vertex: VertexType, graph: Graph| {
                flow.vertex_types.get(vertex.index()).is_some_and(|decl| decl.rows == VertexRows::Edges(graph))
            };
            match (ty(0).space, *space) {
                (Space::Edges(graph), Space::Vertices(vertex)) | (Space::Vertices(vertex), Space::Edges(graph))
                    if has_edges(vertex, graph) =>
                {
                    Ok(Type { space: *space, ..ty(0).clone() })
                }
                _ => error(format!("{} has no rows under another index", show(flow, ty(0)))),
            }
        }

        Op::MatMul { batch } => {
            dense(1)?;
            let (x, w) = (ty(0), ty(1));
            let b = *batch;
            if ty(0).is_sparse() && b > 0 {
                dense(0)?;
            }
            if w.is_unit() && x.dims.len() == b + 1 && w.dims.len() > b && w.dims[..=b] == x.dims[..] {
                let mut dims = x.dims[..b].to_vec();
                dims.extend(&w.dims[b + 1..]);
                Ok(Type::new(x.space, dims))
            } else {
                error(format!("cannot multiply {} by {}", show(flow, x), show(flow, w)))
            }
        }
        Op::MatMulT { batch } => {
            dense(0)?;
            dense(1)?;
            let (y, w) = (ty(0), ty(1));
            let b = *batch;
            if w.is_unit()
                && w.dims.len() > b
                && y.dims.len() >= b
                && w.dims[..b] == y.dims[..b]
                && w.dims[b + 1..] == y.dims[b..]
            {
                let mut dims = y.dims[..b].to_vec();
                dims.push(w.dims[b]);
                Ok(Type::new(y.space, dims))
            } else {
                error(format!("cannot multiply {} by the transpose of {}", show(flow, y), show(flow, w)))
            }
        }
        Op::Outer { batch } => {
            dense(1)?;
            let (x, y) = (ty(0), ty(1));
            let b = *batch;
            if x.is_sparse() && b > 0 {
                dense(0)?;
            }
            if x.space == y.space && x.dims.len() == b + 1 && y.dims.len() >= b && x.dims[..b] == y.dims[..b] {
                let mut dims = x.dims.clone();
                dims.extend(&y.dims[b..]);
                Ok(Type::new(Space::Unit, dims))
            } else {
                error(format!("no outer product of {} and {}", show(flow, x), show(flow, y)))
            }
        }

        Op::RowProduct { batch } => {
            dense(0)?;
            dense(1)?;
            let (a, b) = (ty(0), ty(1));
            let n = *batch;
            match (a.dims.get(n..), b.dims.get(n..)) {
                (Some(&[m @ Dim::Fixed(_), Dim::Fixed(k)]), Some(&[Dim::Fixed(inner), columns @ Dim::Fixed(_)]))
                    if a.space == b.space && k == inner && a.dims[..n] == b.dims[..n] =>
                {
                    Ok(a.with_dims([&a.dims[..n], &[m, columns]].concat()))
                }
                _ => error(format!("no product of the rows of {} and {}", show(flow, a), show(flow, b))),
            }
        }

        Op::Grouped { form, batch, members } => {
            dense(0)?;
            dense(1)?;
            known(members.index(), flow.graphs.len(), "graph")?;
            let decl = &flow.graphs[members.index()];
            if !matches!(decl.derived, Some((_, Incidence::Members(_)))) && decl.share != EdgeShare::Sections {
                return error(format!("`{}` does not lead from pairs to members, or to sections", decl.name));
            }
            let (rows, groups) = (Space::Vertices(decl.src), Space::Vertices(decl.dst));
            grouped(*form, *batch, (rows, groups), ty(0), ty(1)).map_or_else(
                || error(format!("no grouped product of {} and {}", show(flow, ty(0)), show(flow, ty(1)))),
                Ok,
            )
        }

        Op::GatherSrc(graph) | Op::GatherDst(graph) => {
            dense(0)?;
            known(graph.index(), flow.graphs.len(), "graph")?;
            let direction = if matches!(op, Op::GatherSrc(_)) { Direction::Out } else { Direction::In };
            if ty(0).space == flow.graph_end(*graph, direction) || ty(0).space == Space::Endpoints(*graph, direction) {
                Ok(Type::new(Space::Edges(*graph), ty(0).dims.clone()))
            } else {
                error(format!("{} has no row per end of `{}`", show(flow, ty(0)), flow.graphs[graph.index()].name))
            }
        }
        Op::Segment { graph, direction, .. } | Op::SegmentEndpoints { graph, direction, .. } => {
            dense(0)?;
            known(graph.index(), flow.graphs.len(), "graph")?;
            if ty(0).space == Space::Edges(*graph) {
                let rows = match op {
                    Op::SegmentEndpoints { .. } => Space::Endpoints(*graph, *direction),
                    _ => flow.graph_end(*graph, *direction),
                };
                Ok(Type::new(rows, ty(0).dims.clone()))
            } else {
                error(format!("{} has no row per edge of `{}`", show(flow, ty(0)), flow.graphs[graph.index()].name))
            }
        }

        Op::SegmentArg { graph, direction, .. } => {
            dense(0)?;
            dense(1)?;
            known(graph.index(), flow.graphs.len(), "graph")?;
            if ty(0).space != Space::Edges(*graph) {
                error(format!("{} has no row per edge of `{}`", show(flow, ty(0)), flow.graphs[graph.index()].name))
            } else if *ty(1) != Type::new(Space::Edges(*graph), vec![]) {
                error(format!("{} has no number per edge of `{}`", show(flow, ty(1)), flow.graphs[graph.index()].name))
            } else {
                Ok(Type::new(flow.graph_end(*graph, *direction), ty(0).dims.clone()))
            }
        }

        Op::MetapathReduce(sum) => {
            (0..args.len()).try_for_each(dense)?;
            metapath_reduce(flow, sum, args)
        }

        Op::GatherRows(graph, direction) => {
            dense(0)?;
            known(graph.index(), flow.graphs.len(), "graph")?;
            if ty(0).space == flow.graph_end(*graph, *direction) {
                Ok(Type::new(Space::Endpoints(*graph, *direction), ty(0).dims.clone()))
            } else {
                error(format!("{} has no row per end of `{}`", show(flow, ty(0)), flow.graphs[graph.index()].name))
            }
        }
        Op::ScatterRows(graph, direction) => {
            at_endpoints(flow, args, std::slice::from_ref(&(*graph, *direction)))?;
            Ok(ty(0).clone())
        }
        Op::ScatterAdd(ends) => {
            at_endpoints(flow, args, ends)?;
            Ok(ty(0).clone())
        }

        Op::Exchange(to) => {
            dense(0)?;
            known(to.index(), flow.vertex_types.len(), "vertex type")?;
            match ty(0).space {
                Space::Vertices(from) if flow.exchanges(from, *to) => {
                    Ok(Type::new(Space::Vertices(*to), ty(0).dims.clone()))
                }
                _ => {
                    let name = &flow.vertex_types[to.index()].name;
                    error(format!("`{name}` has no rows of {}", show(flow, ty(0))))
                }
            }
        }
        Op::SumRanks => {
            dense(0)?;
            let of_rows = match ty(0).space {
                Space::Vertices(rows) => flow.rows_of_sum(rows),
                Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => None,
            };
            match of_rows {
                Some(space) => Ok(Type::new(space, ty(0).dims.clone())),
                None => error(format!("{} has no rows of ranks or of sections", show(flow, ty(0)))),
            }
        }

        Op::ReduceTrailing { axes, reduce } => {
            let from = ty(0);
            if from.is_sparse() && *reduce != crate::Reduce::Sum {
                dense(0)?;
            }
            if *axes >= 1 && *axes <= from.dims.len() {
                Ok(Type::new(from.space, &from.dims[..from.dims.len() - axes]))
            } else {
                error(format!("{} does not have {axes} trailing dimensions to reduce", show(flow, from)))
            }
        }
        Op::ReduceSpace(_) => {
            dense(0)?;
            Ok(Type::new(Space::Unit, ty(0).dims.clone()))
        }
        Op::LinkLoss(_) => {
            for &arg in args {
                let ty = flow.ty(arg);
                match ty.space {
                    Space::Edges(graph) if flow.graphs[graph.index()].links && *ty == Type::new(ty.space, vec![]) => {}
                    _ => return error(format!("{} is no number for each pair to score", show(flow, ty))),
                }
            }
            Ok(Type::scalar())
        }
    }
}

/// The unit value whose leading dimension is the rows of `ty`.
fn leading(dim: Dim, ty: &Type) -> Type {
    let mut dims = vec![dim];
    dims.extend(&ty.dims);
    Type::new(Space::Unit, dims)
}

/// The type of a grouped product of rows with weights of their groups; `None` if the operands do not fit.
fn grouped(form: ProductForm, b: usize, (rows, groups): (Space, Space), x: &Type, y: &Type) -> Option<Type> {
    let second = if form == ProductForm::Outer { rows } else { groups };
    if x.space != rows || y.space != second || x.dims.len() < b || y.dims.len() < b || x.dims[..b] != y.dims[..b] {
        return None;
    }
    let (lead, x, y) = (&x.dims[..b], &x.dims[b..], &y.dims[b..]);
    let (space, rest) = match form {
        ProductForm::MatMul if x.len() == 1 && y.first() == x.first() => (rows, &y[1..]),
        ProductForm::MatMulT if !y.is_empty() && y[1..] == *x => (rows, &y[..1]),
        ProductForm::Outer if x.len() == 1 => (groups, y),
        ProductForm::MatMul | ProductForm::MatMulT | ProductForm::Outer => return None,
    };
    let outer = if form == ProductForm::Outer { x } else { &[] };
    Some(Type::new(space, [lead, outer, rest].concat()))
}

/// The type of a factored metapath reduction.
fn metapath_reduce(flow: &Dataflow, sum: &MetapathReduce, args: &[Value]) -> Result<Type, TypeError> {
    let (Some(first), Some(second)) = (flow.graphs.get(sum.first.index()), flow.graphs.get(sum.second.index())) else {
        return error("no such graph");
    };
    if first.dst != second.src {
        return error(format!("no path goes along `{}` and `{}`", first.name, second.name));
    }
    if !sum.score.is_finite() {
        return error(format!("the slopes {} and {} are not finite", sum.score.below, sum.score.above));
    }
    if sum.term == MetapathTerm::LogSumExp && sum.direction == Direction::Out {
        return error("a log-sum-exp belongs to destinations");
    }
    let end = |(graph, direction): (Graph, Direction)| flow.graph_end(graph, direction);
    let (src, dst) = (end((sum.first, Direction::Out)), end((sum.second, Direction::In)));
    let heads = &flow.ty(args[0]).dims;
    for (&arg, space) in args.iter().zip([src, dst, dst]) {
        if *flow.ty(arg) != Type::new(space, heads.clone()) {
            return error(format!("{} has no number for each head of each end of the paths", show(flow, flow.ty(arg))));
        }
    }
    let rows = end(sum.rows());
    let Some(&w) = args.get(3) else { return Ok(Type::new(rows, heads.clone())) };
    let w = flow.ty(w);
    if w.space != end(sum.others()) || !w.dims.starts_with(heads) {
        return error(format!("{} has no elements for each head of each end of the paths", show(flow, w)));
    }
    Ok(Type::new(rows, w.dims.clone()))
}

/// Checks the operands of a scatter: a vertex value and one value per graph at its distinct endpoints.
fn at_endpoints(flow: &Dataflow, args: &[Value], ends: &[(Graph, Direction)]) -> Result<(), TypeError> {
    let base = flow.ty(args[0]);
    for (&(graph, direction), &part) in ends.iter().zip(&args[1..]) {
        if graph.index() >= flow.graphs.len() {
            return error(format!("no such graph: {}", graph.index()));
        }
        let fits = *base == Type::new(flow.graph_end(graph, direction), base.dims.clone())
            && *flow.ty(part) == Type::new(Space::Endpoints(graph, direction), base.dims.clone());
        if !fits {
            let (base, part) = (show(flow, base), show(flow, flow.ty(part)));
            return error(format!("{part} has no rows of {base} at the ends of `{}`", flow.graphs[graph.index()].name));
        }
    }
    Ok(())
}

/// Element-wise on two operands: broadcasts to the wider space and the longer dimensions.
fn binary(op: BinaryOp, a: &Type, b: &Type) -> Result<Type, TypeError> {
    let space = match (a.space, b.space) {
        (x, y) if x == y => x,
        (Space::Unit, y) => y,
        (x, Space::Unit) => x,
        _ => return error("the operands have rows for different things"),
    };
    let dims = if a.dims.starts_with(&b.dims) {
        &a.dims
    } else if b.dims.starts_with(&a.dims) {
        &b.dims
    } else {
        return error("the operands' trailing dimensions do not fit");
    };
    let layout = match (a.layout, b.layout) {
        (Layout::Dense, Layout::Dense) => Layout::Dense,
        (Layout::Sparse(p), Layout::Sparse(q)) if p == q && op.zero_with_zero() => Layout::Sparse(p),
        // Multiplication by and division by a dense operand preserve zeros.
        (Layout::Sparse(p), Layout::Dense) if matches!(op, BinaryOp::Mul | BinaryOp::Div) && a.dims == *dims => {
            Layout::Sparse(p)
        }
        (Layout::Dense, Layout::Sparse(p)) if op == BinaryOp::Mul && b.dims == *dims => Layout::Sparse(p),
        _ => return error("the operation would turn the zeros of a sparse operand into something else"),
    };
    Ok(Type { space, dims: dims.clone(), dtype: DType::F32, layout })
}

fn known_space(flow: &Dataflow, space: Space) -> Result<(), TypeError> {
    let exists = match space {
        Space::Unit => true,
        Space::Vertices(v) => v.index() < flow.vertex_types.len(),
        Space::Edges(g) | Space::Endpoints(g, _) => g.index() < flow.graphs.len(),
        Space::Index(_) => true,
    };
    if exists { Ok(()) } else { error(format!("no such space: {space:?}")) }
}

/// A type as text: `f32[Paper; 8, 8]`, `f32[edges(PAP); 8]`, `f32[64]`.
pub fn show(flow: &Dataflow, ty: &Type) -> String {
    let dtype = match ty.dtype {
        DType::F32 => "f32",
        DType::I32 => "i32",
    };
    let dims = show_dims(flow, &ty.dims);
    let space = match ty.space {
        Space::Unit => None,
        Space::Vertices(v) => Some(flow.vertex_types[v.index()].name.clone()),
        Space::Edges(g) => Some(format!("edges({})", flow.graphs[g.index()].name)),
        Space::Index(extent) => Some(format!("index({extent})")),
        Space::Endpoints(g, Direction::Out) => Some(format!("sources({})", flow.graphs[g.index()].name)),
        Space::Endpoints(g, Direction::In) => Some(format!("destinations({})", flow.graphs[g.index()].name)),
    };
    let sparse = if ty.is_sparse() { " sparse" } else { "" };
    match space {
        None => format!("{dtype}[{dims}]{sparse}"),
        Some(space) if dims.is_empty() => format!("{dtype}[{space}]{sparse}"),
        Some(space) => format!("{dtype}[{space}; {dims}]{sparse}"),
    }
}

fn show_dims(flow: &Dataflow, dims: &[Dim]) -> String {
    let dims: Vec<String> = dims
        .iter()
        .map(|dim| match dim {
            Dim::Fixed(n) => n.to_string(),
            Dim::Count(v) => format!("|{}|", flow.vertex_types[v.index()].name),
        })
        .collect();
    dims.join(", ")
}
