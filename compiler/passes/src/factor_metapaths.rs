//! Factors sums over a metapath: they go along its paths where that costs less, without listing the metapath's edges.
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
//! [`hgnnc_ir::paths`], where there is one path for each pair and it has two hops:
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
//! After:   %3 = paths.lse.in(0.2) PSP.1, PSP.2, %0, %1           : f32[Paper; 8]
//!          %4 = paths.sum.in(0.2) PSP.1, PSP.2, %0, %1, %3, %2   : f32[Paper; 8, 8]
//! ```
//!
//! No random mask and no edge value may enter a weight: dropout of attention needs the pairs one by one. A graph is
//! left alone unless all of its sums have these forms, because a single other sum makes its edges be listed.

use std::collections::BTreeMap;

use hgnnc_ir::dataflow::{Binding, PathDecl};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{BinaryOp, Dataflow, Direction, Graph, Op, PathSum, PathTerm, Reduce, Space, Type, UnaryOp, Value};

use crate::cost::path_cycles;
use crate::pipeline::{Changed, PassCx};
use crate::rewrite::{Rewriter, rewrite};

const NAME: &str = "factor_metapaths";

/// Factors the sums over metapaths where that costs less.
pub fn factor_metapaths(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    if flow.paths.is_empty() {
        return Changed(false);
    }
    let Some(sizes) = cx.sizes_for(NAME) else { return Changed(false) };
    let attention = cx.machine.as_ref().is_none_or(|machine| machine.capabilities.factored_attention);
    let mut sums: BTreeMap<Value, Sum> = BTreeMap::new();
    let mut log = vec![];
    for path in &flow.paths {
        let name = &flow.graphs[path.of.index()].name;
        match all_sums(flow, path) {
            Err(None) => {}
            Err(Some(why)) => log.push(format!("the edges of `{name}` stay: {why}")),
            Ok(found) if !attention && !found.values().all(|sum| matches!(sum, Sum::Linear(_))) => {
                log.push(format!("the edges of `{name}` stay: attention is summed along paths on processors only"));
            }
            Ok(found) => {
                let (over, along) = found.iter().fold((0.0, 0.0), |(over, along), (&value, sum)| {
                    let (a, b) = sum.costs(flow, path, value, &sizes);
                    (over + a, along + b)
                });
                let pairs = sizes.rows(Space::Edges(path.of));
                let hops: Vec<String> =
                    path.hops.iter().map(|&hop| sizes.rows(Space::Edges(hop)).to_string()).collect();
                // The edges of unlisted graphs were left out because this pass factored them before.
                let chosen = along < over || sizes.unlisted.contains(&path.of);
                let (verb, than) =
                    if chosen { ("are summed along their paths", "instead of") } else { ("stay", "against") };
                log.push(format!(
                    "the {pairs} edges of `{name}` {verb}: {along:.3e} cycles over {} edges of hops {than} {over:.3e}",
                    hops.join(" and ")
                ));
                if chosen {
                    sums.extend(found);
                }
            }
        }
    }
    let paths: BTreeMap<Graph, PathDecl> = flow.paths.iter().map(|path| (path.of, path.clone())).collect();
    let replaced = rewrite(flow, |r, value, _| {
        let sum = sums.get(&value)?;
        let Op::Segment { graph, .. } = r.old.value(value).op else { return None };
        Some(sum.build(r, &paths[&graph]))
    });
    cx.explain_all(NAME, log);
    Changed(replaced > 0)
}

/// The attention score of the edges of a graph.
#[derive(Clone, Copy, PartialEq)]
struct Score {
    slope: f64,
    x: Value,
    y: Value,
}

/// A sum over the edges of a metapath that can be factored.
enum Sum {
    /// The sum of source values; without one, the number of paths.
    Linear(Option<Value>),
    /// The log-sum-exp of scores: `ln Σ e^s`.
    Lse(Score),
    /// The weighted sum `Σ e^(s - n) w`.
    Weighted { score: Score, n: Value, w: Option<Value> },
}

/// All sums over the edges of a graph.
///
/// # Errors
/// The reason why a sum, or another use of the edges, needs the edges listed. `None` where nothing uses them.
fn all_sums(flow: &Dataflow, path: &PathDecl) -> Result<BTreeMap<Value, Sum>, Option<String>> {
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

fn sum_of(flow: &Dataflow, path: &PathDecl, reduce: Reduce, summed: Value) -> Result<Sum, &'static str> {
    match reduce {
        Reduce::Sum => match linear(flow, path, summed) {
            Some(of) => Ok(Sum::Linear(of)),
            None => weighted(flow, path, summed),
        },
        Reduce::Lse => Ok(Sum::Lse(score(flow, path, summed)?)),
        Reduce::Max | Reduce::Min => Err("the largest or smallest of them is asked for"),
    }
}

/// The source values of a linear sum, each as often as it has paths. `Some(None)`: the sum counts paths.
fn linear(flow: &Dataflow, path: &PathDecl, summed: Value) -> Option<Option<Value>> {
    let node = flow.value(summed);
    let counts = |value: Value| match flow.value(value).op {
        Op::Input(input) => flow.inputs[input.index()].binding == Binding::EdgeCount(path.of),
        _ => false,
    };
    let ones = || node.op == Op::Broadcast(node.ty.clone()) && flow.value(node.args[0]).op == Op::Const(1.0);
    match node.op {
        Op::GatherSrc(_) if path.once => Some(Some(node.args[0])),
        Op::Broadcast(_) if path.once && node.ty.dims.is_empty() && ones() => Some(None),
        Op::Input(_) if counts(summed) => Some(None),
        Op::Binary(BinaryOp::Mul) if !path.once => {
            let (a, b) = (node.args[0], node.args[1]);
            let gathered = if counts(a) { b } else { a };
            let of = flow.value(gathered);
            (counts(a) || counts(b)).then_some(())?;
            matches!(of.op, Op::GatherSrc(_)).then(|| Some(of.args[0]))
        }
        _ => None,
    }
}

const NOT_A_SUM: &str = "a sum of them is neither linear in source values nor attention of sources";

/// Matches attention: `e^(s - n) w`, or without `w`.
fn weighted(flow: &Dataflow, path: &PathDecl, summed: Value) -> Result<Sum, &'static str> {
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
    let exponent = flow.value(flow.value(weight).args[0]);
    if exponent.op != Op::Binary(BinaryOp::Sub) {
        return Err(NOT_A_SUM);
    }
    let (score, norm) = (score(flow, path, exponent.args[0])?, flow.value(exponent.args[1]));
    if norm.op != Op::GatherDst(path.of) {
        return Err(NOT_A_SUM);
    }
    let n = norm.args[0];
    let heads = &flow.ty(score.x).dims;
    let fits = flow.ty(n).dims == *heads && w.is_none_or(|w| flow.ty(w).dims.starts_with(heads));
    if fits { Ok(Sum::Weighted { score, n, w }) } else { Err(NOT_A_SUM) }
}

/// Matches the score `leaky_relu(x_src + y_dst)`.
fn score(flow: &Dataflow, path: &PathDecl, value: Value) -> Result<Score, &'static str> {
    const OTHER: &str = "their score is not a leaky ReLU of a number of the source plus one of the destination";
    if !path.once {
        return Err("a pair may have several paths, and attention needs each pair once");
    }
    if path.hops.len() != 2 {
        return Err("attention is summed over paths of two hops");
    }
    let node = flow.value(value);
    let Op::Unary(UnaryOp::LeakyRelu(slope)) = node.op else { return Err(OTHER) };
    let sum = flow.value(node.args[0]);
    if sum.op != Op::Binary(BinaryOp::Add) || slope < 0.0 {
        return Err(OTHER);
    }
    let (a, b) = (flow.value(sum.args[0]), flow.value(sum.args[1]));
    let (src, dst) = match (&a.op, &b.op) {
        (Op::GatherSrc(_), Op::GatherDst(_)) => (a.args[0], b.args[0]),
        (Op::GatherDst(_), Op::GatherSrc(_)) => (b.args[0], a.args[0]),
        _ => return Err(OTHER),
    };
    // The endpoints of the metapath are not those of its hops.
    let rows = |value: Value| matches!(flow.ty(value).space, Space::Vertices(_));
    let alike = flow.ty(src).dims == flow.ty(dst).dims && rows(src) && rows(dst);
    if alike { Ok(Score { slope, x: src, y: dst }) } else { Err(OTHER) }
}

impl Sum {
    /// Approximate cycles of the sum over edges, and of the factored sum. An edge of attention over 8 heads of 8 takes
    /// 25, a score of it half as much; a linear sum loads and adds.
    fn costs(&self, flow: &Dataflow, path: &PathDecl, value: Value, sizes: &SizeInfo) -> (f64, f64) {
        let edges = |graph: Graph| sizes.rows(Space::Edges(graph)) as f64;
        let width = |value: Value| sizes.width(flow, value) as f64;
        let all = edges(path.of);
        let hops: f64 = path.hops.iter().map(|&hop| edges(hop)).sum();
        let attention = |score: &Score, elements: f64| {
            let heads = width(score.x);
            let sum = path_sum(path, score, PathTerm::Weight);
            let along = path_cycles(flow, &sum, (heads, elements / heads.max(1.0)), sizes);
            (all * (1.5 * heads + 0.2 * elements), along)
        };
        match self {
            Sum::Linear(_) => (0.2 * all * width(value), 0.2 * hops * width(value)),
            Sum::Lse(score) => attention(score, 0.0),
            Sum::Weighted { score, .. } => attention(score, width(value)),
        }
    }

    /// The sum in the new program.
    fn build(&self, r: &mut Rewriter<'_>, path: &PathDecl) -> Value {
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
            Sum::Lse(score) => {
                let args = [r.mapped(score.x), r.mapped(score.y)];
                r.add(Op::Paths(path_sum(path, score, PathTerm::Lse)), &args)
            }
            Sum::Weighted { score, n, w } => {
                let args: Vec<Value> =
                    [score.x, score.y, *n].into_iter().chain(*w).map(|value| r.mapped(value)).collect();
                r.add(Op::Paths(path_sum(path, score, PathTerm::Weight)), &args)
            }
        }
    }
}

fn path_sum(path: &PathDecl, score: &Score, term: PathTerm) -> PathSum {
    PathSum { first: path.hops[0], second: path.hops[1], direction: Direction::In, slope: score.slope, term }
}
