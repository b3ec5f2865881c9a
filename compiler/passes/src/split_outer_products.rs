//! Splits sums of outer products over edges that are too large for the accumulators of a traversal.
//!
//! The gradient of a weight that is applied to edges is `Σ_e x_e ⊗ y_e`. A GPU accumulates it in registers, of which a
//! thread has few. The sum is bilinear: where one operand is gathered from an endpoint, the other operand is summed per
//! vertex first, and the rest is a dense product over vertices of any size:
//!
//! ```text
//! Before:  %2 = gather.src g, %0              : f32[edges(g); k]
//!          %3 = outer %2, %1                  : f32[k, n]            %1: f32[edges(g); n]
//! After:   %2 = segment.sum.out g, %1         : f32[src(g); n]
//!          %3 = outer %0, %2                  : f32[k, n]
//! ```
//!
//! A factor of the edge that is the same for all columns, `(α_e x_j) ⊗ y_e`, goes to the other operand. Other products
//! (of edge features, or under a dropout mask of edges) are tiled: slices of rows and columns of the result are
//! computed, each in a traversal of its own.
//!
//! Applies to products over edges with more elements than the back end accumulates ([`LoweringOptions::edge_outer`]),
//! or with extents that are not known.

use hgnnc_fusion::LoweringOptions;
use hgnnc_ir::width::Width;
use hgnnc_ir::{BinaryOp, Dataflow, Dim, Direction, Op, Reduce, Space, Value};

use crate::pass::{Changed, PassCx};
use crate::rewrite::{Rewriter, rewrite};
use crate::unread_rows::Infinite;

/// Splits outer products by the limit of the machine.
pub fn split_outer_products(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    split_outer_products_into(flow, LoweringOptions::of(cx.machine.as_ref()).edge_outer, cx)
}

/// As [`split_outer_products`], for a back end that accumulates at most `most` elements.
pub fn split_outer_products_into(flow: &mut Dataflow, most: usize, cx: &mut PassCx) -> Changed {
    let mut log = vec![];
    let mut infinite = Infinite::default();
    let taken_apart = rewrite(flow, |r, value, args| {
        let node = r.old.value(value);
        let Op::Outer { batch } = node.op else { return None };
        let operand = r.old.ty(node.args[0]);
        let elements = Width::of(&node.ty.dims);
        if operand.is_sparse()
            || !matches!(operand.space, Space::Edges(_))
            || elements.as_fixed().is_some_and(|len| len <= most)
        {
            return None;
        }
        let (x, y) = (args[0], args[1]);
        let how = "summed at the end that an operand is gathered from";
        let (result, how) = if let Some((x, y)) = gathered(r, &mut infinite, (x, y), batch) {
            (r.add(Op::Outer { batch }, &[x, y]), how.to_owned())
        } else if let Some((y, x)) = gathered(r, &mut infinite, (y, x), batch) {
            (r.add(Op::Outer { batch }, &[x, y]), how.to_owned())
        } else {
            let (result, slices) = in_slices(r, value, (x, y), batch, most)?;
            (result, format!("computed in {slices} slices"))
        };
        log.push(format!("{value} has more than {most} elements: {how}"));
        Some(result)
    });
    cx.explain_all("split_outer_products", log);
    Changed(taken_apart > 0)
}

/// The vertex rows that one operand gathers, and the sum of the other operand per vertex.
fn gathered(
    r: &mut Rewriter<'_>,
    infinite: &mut Infinite,
    (this, other): (Value, Value),
    batch: usize,
) -> Option<(Value, Value)> {
    let (mut this, mut weight) = (this, None);
    let data = r.new.value(this);
    if data.op == Op::Binary(BinaryOp::Mul) {
        let (a, b) = (data.args[0], data.args[1]);
        let (of, factor) = if r.new.ty(a).dims.len() > r.new.ty(b).dims.len() { (a, b) } else { (b, a) };
        if r.new.ty(of).dims == data.ty.dims && r.new.ty(factor).dims.len() <= batch {
            (this, weight) = (of, Some(factor));
        }
    }
    let data = r.new.value(this);
    let (graph, direction) = match data.op {
        Op::GatherSrc(graph) => (graph, Direction::Out),
        Op::GatherDst(graph) => (graph, Direction::In),
        _ => return None,
    };
    let rows = data.args[0];
    if infinite.has(&r.new, rows) {
        return None;
    }
    let other = match weight {
        Some(weight) => r.add(Op::Binary(BinaryOp::Mul), &[other, weight]),
        None => other,
    };
    let reduce = Reduce::Sum;
    let sum = match r.new.ty(rows).space {
        Space::Endpoints(..) => Op::SegmentEndpoints { graph, direction, reduce },
        _ => Op::Segment { graph, direction, reduce },
    };
    Some((rows, r.add(sum, &[other])))
}

/// The product assembled from slices of at most `most` elements, and the number of slices.
fn in_slices(
    r: &mut Rewriter<'_>,
    value: Value,
    (x, y): (Value, Value),
    batch: usize,
    most: usize,
) -> Option<(Value, usize)> {
    let ty = r.old.ty(value).clone();
    let len = |dims: &[Dim]| Width::of(dims).as_fixed();
    let lead = &ty.dims[..batch];
    let (batches, k, n) = (len(lead)?, len(&ty.dims[batch..=batch])?, len(&ty.dims[batch + 1..])?);
    if batches > most {
        return None;
    }
    let columns = n.min(most / batches);
    let rows = k.min(most / (batches * columns));
    let with = |len: usize| [lead, &[Dim::Fixed(len)]].concat();
    let y = r.add(Op::Reshape(with(n)), &[y]);
    let mut slices = 0;
    let mut bands = vec![];
    for row in even(k, rows) {
        let x = slice(r, x, row, k);
        let mut pieces = vec![];
        for column in even(n, columns) {
            let y = slice(r, y, column, n);
            pieces.push(r.add(Op::Outer { batch }, &[x, y]));
            slices += 1;
        }
        let band = join(r, pieces);
        bands.push(r.add(Op::Reshape(with(row.1 * n)), &[band]));
    }
    let all = join(r, bands);
    Some((r.add(Op::Reshape(ty.dims), &[all]), slices))
}

/// Starts and lengths of the fewest parts of at most `most` elements, whose lengths differ by at most 1.
fn even(len: usize, most: usize) -> Vec<(usize, usize)> {
    let part = len.div_ceil(len.div_ceil(most));
    (0..len).step_by(part).map(|start| (start, part.min(len - start))).collect()
}

fn slice(r: &mut Rewriter<'_>, of: Value, (start, len): (usize, usize), all: usize) -> Value {
    if len == all { of } else { r.add(Op::Slice { start, len }, &[of]) }
}

fn join(r: &mut Rewriter<'_>, parts: Vec<Value>) -> Value {
    if let [one] = parts[..] { one } else { r.add(Op::Concat, &parts) }
}
