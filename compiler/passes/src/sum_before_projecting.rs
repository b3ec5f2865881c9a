//! Chooses the side of a sum over edges on which a projection is cheaper.
//!
//! Sums and projections are linear, so `Σ (x_j W) = (Σ x_j) W`: the same products, added in another order. With k columns
//! before and n after the projection, S vertices at the end that is read, D at the end that is summed to and E edges,
//! the multiply-adds (an addition counts as one) are
//!
//! - project, then sum: `S k n + E n` (the edges carry n columns),
//! - sum, then project: `E k + D k n` (the edges carry k columns).
//!
//! ```text
//! Before:  %2 = matmul %0, %1            : f32[src(g); n]
//!          %3 = gather.src g, %2         : f32[edges(g); n]
//!          %4 = segment.sum.in g, %3     : f32[dst(g); n]
//! After:   %2 = gather.src g, %0         : f32[edges(g); k]
//!          %3 = segment.sum.in g, %2     : f32[dst(g); k]
//!          %4 = matmul %3, %1            : f32[dst(g); n]
//! ```
//!
//! or the other way round, and for sums to sources with `gather.dst`. A projection of edge values that are not gathered
//! (`E k n + E n`) moves behind its sum by the same comparison. Messages may be weighted by an edge value that is the
//! same for all columns that the projection mixes, `Σ α_e (x_j W) = (Σ α_e x_j) W`; then every edge costs twice as much.
//!
//! Applies where the other order needs fewer multiply-adds and the values in between have no other use (they would be
//! computed in both orders). A sparse projected value cannot be gathered and stays. Extents are resolved by the sizes
//! given.

use hgnnc_ir::{BinaryOp, Dataflow, Direction, Graph, Op, Reduce, Value};

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
    let messages = messages(old, sum.args[0], graph, direction);
    let projected = messages.of;
    let projection = old.value(projected);
    let Op::MatMul { batch } = projection.op else { return None };
    let (x, w) = (projection.args[0], projection.args[1]);
    if old.is_sparse(x) || !messages.weight_fits(old, batch) {
        return None;
    }
    let name = &old.graphs[graph.index()].name;
    if messages.between.iter().chain([&projected]).any(|v| uses[v.index()] > 1) {
        log.push(format!("sum {value} over `{name}`: what it sums has other uses; the order stays"));
        return None;
    }
    let (k, n, products) = (sizes.width(old, x), sizes.width(old, projected), sizes.elements(old, w));
    let (edges, ends) = (sizes.edges[graph.index()] * messages.cost_per_column(), sizes.rows(sum.ty.space));
    let rows = sizes.rows(projection.ty.space);
    let (now, then) = (rows * products + edges * n, edges * k + ends * products);
    log.push(format!("sum {value} over `{name}`: {now} to project first, {then} to sum first; {}", winner(now, then)));
    if then >= now {
        return None;
    }
    let v = messages.rebuild(r, r.mapped(x));
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
    let Op::MatMul { batch } = projection.op else { return None };
    let (summed, w) = (projection.args[0], projection.args[1]);
    let sum = old.value(summed);
    let Op::Segment { graph, direction, reduce: Reduce::Sum } = sum.op else { return None };
    let messages = messages(old, sum.args[0], graph, direction);
    // Edge values that are not gathered are never cheaper to project one by one.
    if messages.gather.is_none() || !messages.weight_fits(old, batch) {
        return None;
    }
    let name = &old.graphs[graph.index()].name;
    if messages.between.iter().chain([&summed]).any(|v| uses[v.index()] > 1) {
        log.push(format!("sum {summed} over `{name}`: what is projected has other uses; the order stays"));
        return None;
    }
    let x = messages.of;
    let (k, n, products) = (sizes.width(old, x), sizes.width(old, value), sizes.elements(old, w));
    let edges = sizes.edges[graph.index()] * messages.cost_per_column();
    let (rows, ends) = (sizes.rows(old.ty(x).space), sizes.rows(sum.ty.space));
    let (then, now) = (rows * products + edges * n, edges * k + ends * products);
    log.push(format!("sum {summed} over `{name}`: {then} to project first, {now} to sum first; {}", winner(now, then)));
    if then >= now {
        return None;
    }
    let (x, w) = (r.mapped(x), r.mapped(w));
    let v = r.add(projection.op.clone(), &[x, w]);
    r.new.cursor.stage = sum.stage;
    let v = messages.rebuild(r, v);
    Some(r.add(sum.op.clone(), &[v]))
}

/// What a sum over edges sums: a value, perhaps gathered from the far end, perhaps times a weight of the edge.
struct Messages {
    /// The value, on vertices if it is gathered, else on edges.
    of: Value,
    gather: Option<Op>,
    weight: Option<Value>,
    /// Product and gather: what must have no other use.
    between: Vec<Value>,
}

fn messages(old: &Dataflow, summed: Value, graph: Graph, direction: Direction) -> Messages {
    let mut found = Messages { of: summed, gather: None, weight: None, between: vec![] };
    let data = old.value(summed);
    if data.op == Op::Binary(BinaryOp::Mul) {
        // The factor of fewer dimensions weighs the columns of the other.
        let (a, b) = (data.args[0], data.args[1]);
        let (of, weight) = if old.ty(a).dims.len() > old.ty(b).dims.len() { (a, b) } else { (b, a) };
        if old.ty(of).space == data.ty.space && old.ty(of).dims == data.ty.dims {
            found = Messages { of, gather: None, weight: Some(weight), between: vec![summed] };
        }
    }
    let far_end = match direction {
        Direction::In => Op::GatherSrc(graph),
        Direction::Out => Op::GatherDst(graph),
    };
    let data = old.value(found.of);
    if data.op == far_end {
        found.between.push(found.of);
        found.of = data.args[0];
        found.gather = Some(far_end);
    }
    found
}

impl Messages {
    /// A weight is the same for all columns that the projection mixes: it has batch dimensions at most.
    fn weight_fits(&self, old: &Dataflow, batch: usize) -> bool {
        self.weight.is_none_or(|weight| old.ty(weight).dims.len() <= batch)
    }

    /// Operations on an edge for each column: an addition, and a multiplication if there is a weight.
    fn cost_per_column(&self) -> u64 {
        1 + u64::from(self.weight.is_some())
    }

    /// The same messages of another value.
    fn rebuild(&self, r: &mut Rewriter<'_>, of: Value) -> Value {
        let mut v = of;
        if let Some(gather) = &self.gather {
            v = r.add(gather.clone(), &[v]);
        }
        if let Some(weight) = self.weight {
            let weight = r.mapped(weight);
            v = r.add(Op::Binary(BinaryOp::Mul), &[v, weight]);
        }
        v
    }
}

fn winner(now: u64, then: u64) -> &'static str {
    if then < now { "the order changes" } else { "the order stays" }
}
