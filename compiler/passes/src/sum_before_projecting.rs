//! Chooses the side of a sum over edges on which a projection is cheaper.
//!
//! Sums and projections are linear, so `Σ (x_j W) = (Σ x_j) W`: the same products, added in another order. With k columns
//! before and n after the projection, S vertices at the end that is read, D at the end that is summed to and E edges,
//! the multiply-adds (an addition counts as one) are
//!
//! - project, then sum: `S k n + E n` (the edges carry n columns),
//! - sum, then project: `E k + D k n` (the edges carry k columns).
//!
//! Before:  %2 = matmul %0, %1            : f32[src(g); n]
//!          %3 = gather.src g, %2         : f32[edges(g); n]
//!          %4 = segment.sum.in g, %3     : f32[dst(g); n]
//! After:   %2 = gather.src g, %0         : f32[edges(g); k]
//!          %3 = segment.sum.in g, %2     : f32[dst(g); k]
//!          %4 = matmul %3, %1            : f32[dst(g); n]
//!
//! or the other way round, and for sums to sources with `gather.dst`. A projection of edge values that are not gathered
//! (`E k n + E n`) moves behind its sum by the same comparison.
//!
//! Applies where the other order needs fewer multiply-adds and the values in between have no other use (they would be
//! computed in both orders). A sparse projected value cannot be gathered and stays. Extents are resolved by the sizes
//! given.

use hgnnc_ir::{Dataflow, Direction, Op, Reduce, Value};

use crate::pipeline::{Changed, PassCx, SizeInfo};
use crate::rewrite::{Rewriter, count_uses, rewrite};

/// See the module.
pub fn sum_before_projecting(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let Some(sizes) = cx.sizes_for("sum_before_projecting") else { return Changed(false) };
    let uses = count_uses(flow);
    let mut log = vec![];
    let moved = rewrite(flow, |r, value, _| {
        let data = r.old.value(value);
        if matches!(data.op, Op::Segment { .. }) {
            sum_first(r, &sizes, &uses, value, &mut log)
        } else if matches!(data.op, Op::MatMul { .. }) {
            project_first(r, &sizes, &uses, value, &mut log)
        } else {
            None
        }
    });
    cx.explain_all("sum_before_projecting", log);
    Changed(moved > 0)
}

/// `value` sums projected values: sum what is projected instead?
fn sum_first(
    r: &mut Rewriter<'_>,
    sizes: &SizeInfo,
    uses: &[usize],
    value: Value,
    log: &mut Vec<String>,
) -> Option<Value> {
    let old = r.old;
    let sum = old.value(value);
    let Op::Segment { graph, direction, reduce: Reduce::Sum } = sum.op else { return None };
    let edges = sizes.edges[graph.index()];
    let ends = sizes.rows(sum.ty.space);
    let summed = sum.args[0];
    let gather = old.value(summed);
    // Through a gather, or straight on the edges.
    let gathered = gather.op == reading(graph, direction);
    let projected = if gathered { gather.args[0] } else { summed };
    let projection = old.value(projected);
    let Op::MatMul { .. } = projection.op else { return None };
    let (x, w) = (projection.args[0], projection.args[1]);
    let name = &old.graphs[graph.index()].name;
    if old.is_sparse(x) {
        return None;
    }
    if uses[summed.index()] > 1 || uses[projected.index()] > 1 {
        log.push(format!("sum {value} over `{name}`: what it sums has other uses; the order stays"));
        return None;
    }
    let (k, n, products) = (sizes.width(old, x), sizes.width(old, projected), sizes.elements(old, w));
    let rows = sizes.rows(projection.ty.space);
    let (now, then) = (rows * products + edges * n, edges * k + ends * products);
    log.push(format!("sum {value} over `{name}`: {now} to project first, {then} to sum first; {}", winner(now, then)));
    if then >= now {
        return None;
    }
    let mut v = r.mapped(x);
    if gathered {
        v = r.add(gather.op.clone(), &[v]);
    }
    let v = r.add(sum.op.clone(), &[v]);
    let w = r.mapped(w);
    // A projection is accounted to its stage wherever it stands.
    r.new.cursor.stage = projection.stage;
    Some(r.add(projection.op.clone(), &[v, w]))
}

/// `value` projects sums of gathered values: project what is gathered instead?
fn project_first(
    r: &mut Rewriter<'_>,
    sizes: &SizeInfo,
    uses: &[usize],
    value: Value,
    log: &mut Vec<String>,
) -> Option<Value> {
    let old = r.old;
    let projection = old.value(value);
    let (summed, w) = (projection.args[0], projection.args[1]);
    let sum = old.value(summed);
    let Op::Segment { graph, direction, reduce: Reduce::Sum } = sum.op else { return None };
    let gathered = sum.args[0];
    let gather = old.value(gathered);
    if gather.op != reading(graph, direction) || uses[summed.index()] > 1 || uses[gathered.index()] > 1 {
        return None;
    }
    let x = gather.args[0];
    let (k, n, products) = (sizes.width(old, x), sizes.width(old, value), sizes.elements(old, w));
    let edges = sizes.edges[graph.index()];
    let (rows, ends) = (sizes.rows(old.ty(x).space), sizes.rows(sum.ty.space));
    let (then, now) = (rows * products + edges * n, edges * k + ends * products);
    let name = &old.graphs[graph.index()].name;
    log.push(format!("sum {summed} over `{name}`: {then} to project first, {now} to sum first; {}", winner(now, then)));
    if then >= now {
        return None;
    }
    let (x, w) = (r.mapped(x), r.mapped(w));
    let v = r.add(projection.op.clone(), &[x, w]);
    r.new.cursor.stage = sum.stage;
    let v = r.add(gather.op.clone(), &[v]);
    Some(r.add(sum.op.clone(), &[v]))
}

/// The gather that reads the far end of the edges which a sum in `direction` owns.
fn reading(graph: hgnnc_ir::Graph, direction: Direction) -> Op {
    match direction {
        Direction::In => Op::GatherSrc(graph),
        Direction::Out => Op::GatherDst(graph),
    }
}

fn winner(now: u64, then: u64) -> &'static str {
    if then < now { "the order changes" } else { "the order stays" }
}
