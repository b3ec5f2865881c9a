//! Factors sums over a metapath: they go along its paths where that costs less, without materializing the metapath.
//!
//! A linear sum goes hop by hop. The weight of an edge is the number of its paths, 1 where each pair has one path:
//!
//! ```text
//! Before:  %1 = gather.src PAP, %0           : f32[edges(PAP); 64]        metapath PAP = PAP.1, PAP.2
//!          %2 = input PAP.count              : f32[edges(PAP)]
//!          %3 = mul %1, %2                   : f32[edges(PAP); 64]
//!          %4 = segment.sum.in PAP, %3       : f32[Paper; 64]
//! After:   %1 = gather.src PAP.1, %0         : f32[edges(PAP.1); 64]
//!          %2 = segment.sum.in PAP.1, %1     : f32[Author; 64]
//!          %3 = gather.src PAP.2, %2         : f32[edges(PAP.2); 64]
//!          %4 = segment.sum.in PAP.2, %3     : f32[Paper; 64]
//! ```
//!
//! Attention whose score is a leaky ReLU of a scalar of the source plus one of the destination is summed by
//! [`hgnnc_ir::metapath`], where there is one path for each pair and it has two hops:
//!
//! ```text
//! Before:  %3 = gather.src PSP, %0           : f32[edges(PSP); 8]         metapath PSP = PSP.1, PSP.2 once
//!          %4 = gather.dst PSP, %1           : f32[edges(PSP); 8]
//!          %5 = add %3, %4                   : f32[edges(PSP); 8]
//!          %6 = leaky_relu(0.2) %5           : f32[edges(PSP); 8]
//!          %7 = segment.lse.in PSP, %6       : f32[Paper; 8]
//!          %8 = gather.dst PSP, %7           : f32[edges(PSP); 8]
//!          %9 = sub %6, %8                   : f32[edges(PSP); 8]
//!          %10 = exp %9                      : f32[edges(PSP); 8]
//!          %11 = gather.src PSP, %2          : f32[edges(PSP); 8, 8]
//!          %12 = mul %10, %11                : f32[edges(PSP); 8, 8]
//!          %13 = segment.sum.in PSP, %12     : f32[Paper; 8, 8]
//! After:   %3 = metapath.lse.in(0.2, 1.0) PSP.1, PSP.2, %0, %1           : f32[Paper; 8]
//!          %4 = metapath.sum.in(0.2, 1.0) PSP.1, PSP.2, %0, %1, %3, %2   : f32[Paper; 8, 8]
//! ```
//!
//! A score is made of leaky ReLU, ReLU, negation, and products with constants ([`PiecewiseLinear`]); either number may be
//! missing. No random mask and no edge value may enter a weight: dropout of attention needs the pairs one by one. A
//! graph is left alone unless all of its sums have these forms, because a single other sum needs its edges.
//!
//! Pays where the predicted time of the factored sums is less than that over edges ([`hgnnc_analysis::cost`]), on the GPU
//! compiled for, or on a typical CPU ([`Machine::cpu`]). A target without kernels of factored attention
//! ([`Capabilities::factored_attention`](hgnnc_machine::Capabilities)) keeps the edges. A driver that has not
//! materialized some graphs says which sums to factor ([`PassCx::factored`]).

use std::collections::BTreeMap;

use hgnnc_analysis::cost::{attention_over_edges, linear_over_edges, metapath_work};
use hgnnc_ir::dataflow::{Binding, MetapathDecl};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{
    BinaryOp, Dataflow, Dim, Direction, Graph, MetapathReduce, MetapathTerm, Op, PiecewiseLinear, Reduce, Space, Type,
    UnaryOp, Value, VertexType,
};
use hgnnc_machine::Machine;

use crate::pass::{Changed, PassCx};
use crate::rewrite::{Rewriter, rewrite};

const NAME: &str = "factor_metapaths";

/// Factors the sums over metapaths where that costs less, or as [`PassCx::factored`] says.
pub fn factor_metapaths(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    if flow.metapaths.is_empty() {
        return Changed(false);
    }
    let Some(sizes) = cx.sizes_for(NAME) else { return Changed(false) };
    // The choice is the same on every CPU, and the numbers that explain it are those that made it.
    let machine = cx.machine.clone().filter(|machine| machine.target != "cpu").unwrap_or_else(Machine::cpu);
    let mut sums: BTreeMap<Value, Sum> = BTreeMap::new();
    let mut log = vec![];
    for path in &flow.metapaths {
        let name = &flow.graphs[path.of.index()].name;
        match all_sums(flow, path) {
            Err(None) => {}
            Err(Some(why)) => log.push(format!("sums over `{name}` go over its edges: {why}")),
            Ok(found)
                if !machine.capabilities.factored_attention
                    && !found.values().all(|sum| matches!(sum, Sum::Linear(_))) =>
            {
                let target = &machine.target;
                log.push(format!("sums over `{name}` go over its edges: {target} has no factored attention"));
            }
            Ok(found) => {
                let (edges, factored) = found.iter().fold((0.0, 0.0), |(edges, factored), (&value, sum)| {
                    let (a, b) = sum.predicted_seconds(flow, path, value, &sizes, &machine);
                    (edges + a, factored + b)
                });
                let chosen = cx.factored.as_ref().map_or(factored < edges, |graphs| graphs.contains(&path.of));
                let pairs = sizes.rows(Space::Edges(path.of));
                let hops: Vec<String> =
                    path.hops.iter().map(|&hop| sizes.rows(Space::Edges(hop)).to_string()).collect();
                let (verb, than) =
                    if chosen { ("are factored", "instead of") } else { ("go over its edges", "against") };
                log.push(format!(
                    "sums over `{name}` {verb}: {:.3} ms over {} edges of hops {than} {:.3} ms over {pairs} edges",
                    1e3 * factored,
                    hops.join(" and "),
                    1e3 * edges,
                ));
                if chosen {
                    sums.extend(found);
                }
            }
        }
    }
    let metapaths: BTreeMap<Graph, MetapathDecl> = flow.metapaths.iter().map(|path| (path.of, path.clone())).collect();
    let replaced = rewrite(flow, |r, value, _| {
        let sum = sums.get(&value)?;
        let Op::Segment { graph, .. } = r.old.value(value).op else { return None };
        Some(sum.build(r, &metapaths[&graph]))
    });
    cx.explain_all(NAME, log);
    Changed(replaced > 0)
}

/// The attention score of the edges of a graph: `function(x + y)`.
#[derive(Clone, PartialEq)]
struct Score {
    function: PiecewiseLinear,
    /// The number of the source.
    x: Option<Scaled>,
    /// The number of the destination.
    y: Option<Scaled>,
    /// One element for each head.
    heads: Vec<Dim>,
}

/// A vertex value times a constant.
#[derive(Clone, Copy, PartialEq)]
struct Scaled {
    value: Value,
    factor: f64,
}

/// A sum over the edges of a metapath that can be factored.
enum Sum {
    /// The sum of source values; without one, the number of paths.
    Linear(Option<Value>),
    /// The log-sum-exp of scores: `ln Σ e^s`.
    LogSumExp(Score),
    /// The weighted sum `Σ e^(s - n) w`; `n` is 0 without one.
    Weighted { score: Score, n: Option<Value>, w: Option<Value> },
}

/// All sums over the edges of a graph.
///
/// # Errors
/// The reason why a sum, or another use of the edges, needs the edges. `None` where nothing uses them.
fn all_sums(flow: &Dataflow, path: &MetapathDecl) -> Result<BTreeMap<Value, Sum>, Option<String>> {
    let of_edges = |value: Value| flow.ty(value).space == Space::Edges(path.of);
    let mut sums = BTreeMap::new();
    for value in flow.handles().filter(|&value| !of_edges(value)) {
        let node = flow.value(value);
        if !node.args.iter().any(|&arg| of_edges(arg)) {
            continue;
        }
        let sum = match node.op {
            Op::Segment { direction: Direction::In, reduce, .. } => sum_of(flow, path, reduce, node.args[0]),
            _ => Err("something else than sums of destinations reads them"),
        };
        sums.insert(value, sum.map_err(|why| Some(why.to_owned()))?);
    }
    if flow.outputs.iter().any(|output| of_edges(output.value)) {
        return Err(Some("they are a result".into()));
    }
    if sums.is_empty() { Err(None) } else { Ok(sums) }
}

fn sum_of(flow: &Dataflow, path: &MetapathDecl, reduce: Reduce, summed: Value) -> Result<Sum, &'static str> {
    match reduce {
        Reduce::Sum => match linear(flow, path, summed) {
            Some(of) => Ok(Sum::Linear(of)),
            None => weighted(flow, path, summed),
        },
        Reduce::Lse => Ok(Sum::LogSumExp(score(flow, path, summed)?)),
        Reduce::Max | Reduce::Min => Err("the largest or smallest of them is asked for"),
    }
}

/// The source values of a linear sum, each as often as it has paths. `Some(None)`: the sum counts paths.
fn linear(flow: &Dataflow, path: &MetapathDecl, summed: Value) -> Option<Option<Value>> {
    let node = flow.value(summed);
    let counts = |value: Value| match flow.value(value).op {
        Op::Input(input) => flow.inputs[input.index()].binding == Binding::EdgeCount(path.of),
        _ => false,
    };
    let ones = || node.op == Op::Broadcast(node.ty.clone()) && flow.value(node.args[0]).op == Op::Const(1.0);
    match node.op {
        Op::GatherSrc(_) if path.once && of_vertices(flow, node.args[0]) => Some(Some(node.args[0])),
        Op::Broadcast(_) if path.once && node.ty.dims.is_empty() && ones() => Some(None),
        Op::Input(_) if counts(summed) => Some(None),
        Op::Binary(BinaryOp::Mul) if !path.once => {
            let (a, b) = (node.args[0], node.args[1]);
            let gathered = if counts(a) { b } else { a };
            let of = flow.value(gathered);
            (counts(a) || counts(b)).then_some(())?;
            (matches!(of.op, Op::GatherSrc(_)) && of_vertices(flow, of.args[0])).then(|| Some(of.args[0]))
        }
        _ => None,
    }
}

const NOT_A_SUM: &str = "a sum of them is neither linear in source values nor attention of sources";

/// Matches attention: `e^(s - n) w`, perhaps without `n` or without `w`.
fn weighted(flow: &Dataflow, path: &MetapathDecl, summed: Value) -> Result<Sum, &'static str> {
    let node = flow.value(summed);
    let (weight, w) = match node.op {
        Op::Binary(BinaryOp::Mul) => {
            let gathered = |value: Value| matches!(flow.value(value).op, Op::GatherSrc(_));
            let (a, b) = (node.args[0], node.args[1]);
            let (weight, gather) = if gathered(b) { (a, b) } else { (b, a) };
            if !gathered(gather) {
                return Err(NOT_A_SUM);
            }
            (weight, Some(flow.value(gather).args[0]))
        }
        _ => (summed, None),
    };
    if matches!(flow.value(weight).op, Op::Binary(BinaryOp::Mul)) {
        return Err("their weights have a factor, such as dropout");
    }
    if flow.value(weight).op != Op::Unary(UnaryOp::Exp) {
        return Err(NOT_A_SUM);
    }
    let whole = flow.value(weight).args[0];
    let exponent = flow.value(whole);
    let normalized =
        exponent.op == Op::Binary(BinaryOp::Sub) && flow.value(exponent.args[1]).op == Op::GatherDst(path.of);
    let (scored, n) = match normalized {
        true => (exponent.args[0], Some(flow.value(exponent.args[1]).args[0])),
        false => (whole, None),
    };
    let score = score(flow, path, scored)?;
    let fits = n.is_none_or(|n| flow.ty(n).dims == score.heads && of_vertices(flow, n))
        && w.is_none_or(|w| flow.ty(w).dims.starts_with(&score.heads) && of_vertices(flow, w));
    if fits { Ok(Sum::Weighted { score, n, w }) } else { Err(NOT_A_SUM) }
}

/// Matches the score of an edge: a piecewise linear function of a number of its source plus one of its destination.
fn score(flow: &Dataflow, path: &MetapathDecl, value: Value) -> Result<Score, &'static str> {
    const OTHER: &str = "their score is not piecewise linear in a number of the source plus one of the destination";
    if !path.once {
        return Err("a pair may have several paths, and attention needs each pair once");
    }
    if path.hops.len() != 2 {
        return Err("attention is factored at one middle vertex");
    }
    let (function, argument) = piecewise_linear(flow, value);
    let mut score = Score { function, x: None, y: None, heads: flow.ty(value).dims.clone() };
    if !add_terms(flow, argument, 1.0, &mut score) || score.x.is_none() && score.y.is_none() || !function.is_finite() {
        return Err(OTHER);
    }
    let alike = |of: Scaled| flow.ty(of.value).dims == score.heads && of_vertices(flow, of.value);
    if [score.x, score.y].into_iter().flatten().all(alike) { Ok(score) } else { Err(OTHER) }
}

/// Whether a value has rows for vertices: the endpoints of a metapath are not those of its hops.
fn of_vertices(flow: &Dataflow, value: Value) -> bool {
    matches!(flow.ty(value).space, Space::Vertices(_))
}

/// The outermost piecewise linear function that makes a value, and its argument.
fn piecewise_linear(flow: &Dataflow, value: Value) -> (PiecewiseLinear, Value) {
    let node = flow.value(value);
    let scaled = |factor: f64, of: Value| {
        let (inner, argument) = piecewise_linear(flow, of);
        (PiecewiseLinear { below: factor * inner.below, above: factor * inner.above }, argument)
    };
    // The argument of a kink keeps its sign if its own slopes are not negative.
    let kinked = |outer: PiecewiseLinear, of: Value| {
        let (inner, argument) = piecewise_linear(flow, of);
        let keeps_sign = inner.below >= 0.0 && inner.above >= 0.0;
        let both = PiecewiseLinear { below: outer.below * inner.below, above: outer.above * inner.above };
        if keeps_sign { (both, argument) } else { (outer, of) }
    };
    match node.op {
        Op::Unary(UnaryOp::LeakyRelu(slope)) => kinked(PiecewiseLinear::leaky_relu(slope), node.args[0]),
        Op::Unary(UnaryOp::Relu) => kinked(PiecewiseLinear::leaky_relu(0.0), node.args[0]),
        Op::Unary(UnaryOp::Neg) => scaled(-1.0, node.args[0]),
        Op::Binary(BinaryOp::Mul | BinaryOp::Div) => match scale(flow, value) {
            Some((factor, of)) => scaled(factor, of),
            None => (PiecewiseLinear::IDENTITY, value),
        },
        _ => (PiecewiseLinear::IDENTITY, value),
    }
}

/// Matches a product with a constant, or a quotient by one.
fn scale(flow: &Dataflow, value: Value) -> Option<(f64, Value)> {
    let node = flow.value(value);
    let constant = |of: Value| match &flow.value(of).op {
        Op::Broadcast(_) => match flow.value(flow.value(of).args[0]).op {
            Op::Const(c) => Some(c),
            _ => None,
        },
        Op::Const(c) => Some(*c),
        _ => None,
    };
    match node.op {
        Op::Binary(BinaryOp::Mul) => {
            let (a, b) = (node.args[0], node.args[1]);
            constant(a).map(|c| (c, b)).or_else(|| constant(b).map(|c| (c, a)))
        }
        Op::Binary(BinaryOp::Div) => constant(node.args[1]).map(|c| (1.0 / c, node.args[0])),
        _ => None,
    }
}

/// Adds the terms of `factor · value` to the argument of a score: at most one of each end. False for other terms.
fn add_terms(flow: &Dataflow, value: Value, factor: f64, score: &mut Score) -> bool {
    let node = flow.value(value);
    let slot = match node.op {
        Op::Binary(BinaryOp::Add) => {
            return node.args.iter().all(|&arg| add_terms(flow, arg, factor, score));
        }
        Op::Binary(BinaryOp::Sub) => {
            return add_terms(flow, node.args[0], factor, score) && add_terms(flow, node.args[1], -factor, score);
        }
        Op::Unary(UnaryOp::Neg) => return add_terms(flow, node.args[0], -factor, score),
        Op::GatherSrc(_) => &mut score.x,
        Op::GatherDst(_) => &mut score.y,
        _ => return scale(flow, value).is_some_and(|(c, of)| add_terms(flow, of, factor * c, score)),
    };
    slot.replace(Scaled { value: node.args[0], factor }).is_none()
}

impl Sum {
    /// Predicted seconds of the sum over edges, and of the factored sum.
    fn predicted_seconds(
        &self,
        flow: &Dataflow,
        path: &MetapathDecl,
        value: Value,
        sizes: &SizeInfo,
        machine: &Machine,
    ) -> (f64, f64) {
        let seconds = |work| machine.predict(&work).seconds();
        let width = sizes.width(flow, value) as f64;
        let attention = |score: &Score, elements: f64| {
            let heads = score.heads.iter().fold(1, |all, &dim| all * sizes.extent(dim)) as f64;
            let sum = metapath_reduce(path, score, MetapathTerm::WeightedSum);
            let factored = metapath_work(flow, &sum, (heads, elements / heads.max(1.0), width), sizes);
            (seconds(attention_over_edges(flow, path.of, (heads, elements), sizes)), seconds(factored))
        };
        match self {
            Sum::Linear(_) => {
                let along = |graph| seconds(linear_over_edges(flow, graph, width, sizes));
                (along(path.of), path.hops.iter().map(|&hop| along(hop)).sum())
            }
            Sum::LogSumExp(score) => attention(score, 0.0),
            Sum::Weighted { score, .. } => attention(score, width),
        }
    }

    /// The sum in the new program.
    fn build(&self, r: &mut Rewriter<'_>, path: &MetapathDecl) -> Value {
        match self {
            Sum::Linear(of) => {
                let src = r.old.graphs[path.of.index()].src;
                let mut rows = match of {
                    Some(value) => r.mapped(*value),
                    None => {
                        let one = r.add(Op::Const(1.0), &[]);
                        r.add(Op::Broadcast(Type::new(Space::Vertices(src), vec![])), &[one])
                    }
                };
                for &graph in &path.hops {
                    let messages = r.add(Op::GatherSrc(graph), &[rows]);
                    let sum = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum };
                    rows = r.add(sum, &[messages]);
                }
                rows
            }
            Sum::LogSumExp(score) => {
                let args = score.operands(r, path);
                r.add(Op::MetapathReduce(metapath_reduce(path, score, MetapathTerm::LogSumExp)), &args)
            }
            Sum::Weighted { score, n, w } => {
                let mut args = score.operands(r, path).to_vec();
                let dst = r.old.graphs[path.of.index()].dst;
                args.push(match n {
                    Some(n) => r.mapped(*n),
                    None => zeros(r, dst, &score.heads),
                });
                args.extend(w.map(|w| r.mapped(w)));
                r.add(Op::MetapathReduce(metapath_reduce(path, score, MetapathTerm::WeightedSum)), &args)
            }
        }
    }
}

impl Score {
    /// The numbers of sources and of destinations.
    fn operands(&self, r: &mut Rewriter<'_>, path: &MetapathDecl) -> [Value; 2] {
        let decl = &r.old.graphs[path.of.index()];
        let ends = [(self.x, decl.src), (self.y, decl.dst)];
        ends.map(|(of, end)| match of {
            Some(Scaled { value, factor: 1.0 }) => r.mapped(value),
            Some(Scaled { value, factor }) => {
                let factor = r.add(Op::Const(factor), &[]);
                let factor = r.add(Op::Broadcast(Type::new(Space::Vertices(end), self.heads.clone())), &[factor]);
                let value = r.mapped(value);
                r.add(Op::Binary(BinaryOp::Mul), &[value, factor])
            }
            None => zeros(r, end, &self.heads),
        })
    }
}

fn zeros(r: &mut Rewriter<'_>, vertex: VertexType, dims: &[Dim]) -> Value {
    let zero = r.add(Op::Const(0.0), &[]);
    r.add(Op::Broadcast(Type::new(Space::Vertices(vertex), dims.to_vec())), &[zero])
}

fn metapath_reduce(path: &MetapathDecl, score: &Score, term: MetapathTerm) -> MetapathReduce {
    MetapathReduce { first: path.hops[0], second: path.hops[1], direction: Direction::In, score: score.function, term }
}
