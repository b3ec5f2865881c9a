//! Computes products of a score that depend on one end only once for each distinct endpoint, not once for each pair.
//!
//! A link is ranked among pairs with one end replaced: a few kept ends meet all candidates. Where the score has a
//! network of one end, such as the convolution of ConvE or a layer of a perceptron, it is computed for each distinct
//! source (or destination), |endpoints| rows instead of |pairs|. Every row is computed from the same operands in the
//! same order, so results agree exactly.
//!
//! ```text
//! Before:  %2 = gather.src links, %0       : f32[edges(links); k]
//!          %3 = matmul %2, %1              : f32[edges(links); n]         %1: f32[k, n]
//! After:   %2 = gather_rows.src links, %0  : f32[sources(links); k]
//!          %3 = matmul %2, %1              : f32[sources(links); n]
//!          %4 = gather.src links, %3       : f32[edges(links); n]
//! ```
//!
//! Applies to products ([`OpClass::Product`], products of rows) and to row-wise operations on them, where all
//! operands are of one end or have no rows. Cheaper operations stay on the pairs, since a row of an endpoint costs a
//! store and a load. An endpoint has a pair, so there are never more endpoints than pairs, and no sizes are needed.

use hgnnc_ir::{Dataflow, Direction, Graph, Op, OpClass, Space, Type, Value};
use rustc_hash::FxHashMap;

use crate::move_to_vertices::by_row;
use crate::rewrite::{Rewriter, rewrite};

/// The rows that an edge value depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DependsOn {
    /// Parameters and constants alone.
    Nothing,
    /// Rows at one end of the edges of a graph.
    End(Graph, Direction),
    /// Rows of both ends, or others.
    Edges,
}

impl DependsOn {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, one) | (one, Self::Nothing) => one,
            (one, other) if one == other => one,
            _ => Self::Edges,
        }
    }
}

/// Computes products of one end at the distinct endpoints of pairs.
pub(crate) fn compute_at_endpoints(flow: &mut Dataflow) {
    // By value: the rows that it depends on, and whether it is a product or made of one.
    let mut known: Vec<(DependsOn, bool)> = Vec::with_capacity(flow.values.len());
    for data in &flow.values {
        let row_wise = by_row(&data.op, Type::clone).is_some();
        let of_args = || data.args.iter().fold(DependsOn::Nothing, |all, arg| all.and(known[arg.index()].0));
        let depends = match (&data.op, data.ty.space) {
            (_, Space::Unit) => DependsOn::Nothing,
            (Op::GatherSrc(graph), _) => DependsOn::End(*graph, Direction::Out),
            (Op::GatherDst(graph), _) => DependsOn::End(*graph, Direction::In),
            (_, Space::Edges(_)) if row_wise => of_args(),
            _ => DependsOn::Edges,
        };
        let is_product = data.op.class() == OpClass::Product || matches!(data.op, Op::RowProduct { .. });
        let of_one_end = matches!(depends, DependsOn::End(..));
        let has_product = of_one_end && (is_product || data.args.iter().any(|arg| known[arg.index()].1));
        known.push((depends, has_product));
    }
    let mut made = FxHashMap::default();
    rewrite(flow, |r, value, _| {
        let (DependsOn::End(graph, direction), true) = known[value.index()] else { return None };
        let row = at_endpoints(r, &mut made, value, (graph, direction));
        let gather = if direction == Direction::Out { Op::GatherSrc(graph) } else { Op::GatherDst(graph) };
        Some(r.add(gather, &[row]))
    });
}

/// An edge value that depends on one end at the endpoints, with all that it is computed from.
fn at_endpoints(
    r: &mut Rewriter<'_>,
    made: &mut FxHashMap<(Value, Graph, Direction), Value>,
    value: Value,
    (graph, direction): (Graph, Direction),
) -> Value {
    let data = r.old.value(value);
    if data.ty.is_unit() {
        return r.mapped(value);
    }
    if let Some(&known) = made.get(&(value, graph, direction)) {
        return known;
    }
    let row = match &data.op {
        Op::GatherSrc(_) | Op::GatherDst(_) => {
            let all = r.mapped(data.args[0]);
            r.add(Op::GatherRows(graph, direction), &[all])
        }
        op => {
            let moved = |ty: &Type| Type { space: Space::Endpoints(graph, direction), ..ty.clone() };
            let op = by_row(op, moved).expect("it is row-wise");
            let args: Vec<Value> =
                data.args.iter().map(|&arg| at_endpoints(r, made, arg, (graph, direction))).collect();
            r.add(op, &args)
        }
    };
    made.insert((value, graph, direction), row);
    row
}
