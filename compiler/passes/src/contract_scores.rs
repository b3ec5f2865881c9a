//! Multiplies a score vector into the weight instead of into every projected row.
//!
//! `a · (x W) = x (W a)`: with V rows, k columns and h heads of d columns, V k h d multiply-adds become V k h and k h
//! d. The same products are added in another order.
//!
//! ```text
//! Before:  %2 = matmul %0, %1                   : f32[V; h, d]      %1: f32[k, h, d]
//!          %4 = mul %2, %3                      : f32[V; h, d]      %3: f32[h, d]
//!          %5 = reduce.sum(axes 1) %4           : f32[V; h]
//! After:   %6 = rows %1                         : f32[index(k); h, d]
//!          %7 = mul %6, %3                      : f32[index(k); h, d]
//!          %8 = reduce.sum(axes 1) %7           : f32[index(k); h]
//!          %9 = unrows %8                       : f32[k, h]
//!          %5 = matmul %0, %9                   : f32[V; h]
//! ```
//!
//! Applies where the projected value has no other use, the reduction leaves at most one dimension, the extents are
//! fixed and the new form needs at most half the multiply-adds, which pays for its small operations. It runs before
//! differentiation: the gradient of the old form reads the projected value again. Needs sizes.

use hgnnc_analysis::cost::{Times, dense_product, seconds};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{BinaryOp, Dataflow, Op, Reduce, Value};
use hgnnc_machine::{Machine, Work};

use crate::pass::{Changed, PassCx};
use crate::rewrite::{Rewriter, count_uses, rewrite};

/// Multiplies score vectors into the weight where that halves the multiply-adds.
pub fn contract_scores(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let Some(sizes) = cx.sizes_for("contract_scores") else { return Changed(false) };
    let machine = cx.machine.clone();
    let uses = count_uses(flow);
    let mut log = vec![];
    let moved = rewrite(flow, |r, value, _| contracted(r, &sizes, machine.as_ref(), &uses, value, &mut log));
    cx.explain_all("contract_scores", log);
    Changed(moved > 0)
}

fn contracted(
    r: &mut Rewriter<'_>,
    sizes: &SizeInfo,
    machine: Option<&Machine>,
    uses: &[usize],
    value: Value,
    log: &mut Vec<String>,
) -> Option<Value> {
    let old = r.old;
    let Op::ReduceTrailing { reduce: Reduce::Sum, axes } = old.value(value).op else { return None };
    let product = old.value(value).args[0];
    if old.value(product).op != Op::Binary(BinaryOp::Mul) || uses[product.index()] > 1 {
        return None;
    }
    let operands = &old.value(product).args;
    let is_projection = |v: Value| old.value(v).op == Op::MatMul { batch: 0 };
    let (projected, a) = match (is_projection(operands[0]), is_projection(operands[1])) {
        (true, _) if old.ty(operands[1]).is_unit() => (operands[0], operands[1]),
        (_, true) if old.ty(operands[0]).is_unit() => (operands[1], operands[0]),
        _ => return None,
    };
    let (x, w) = (old.value(projected).args[0], old.value(projected).args[1]);
    // The score vector has the width of the projected row, so it is reduced with it.
    let dims = &old.ty(projected).dims;
    if old.ty(a).dims != *dims || dims.len() < axes || dims.len() > axes + 1 || old.ty(x).is_unit() {
        return None;
    }
    if uses[projected.index()] > 1 {
        log.push(format!("score {value}: the projected value {projected} has other uses; stays"));
        return None;
    }
    let extents: Vec<usize> = dims.iter().map(|d| d.fixed()).collect::<Option<_>>()?;
    let columns: usize = extents[extents.len() - axes..].iter().product();
    let heads = if dims.len() > axes { extents[0] } else { 1 };
    let k = old.ty(w).dims[0];
    let (rows, k_extent) = (sizes.rows(old.ty(x).space), sizes.extent(k));
    let (h, d) = (heads as u64, columns as u64);
    let product = |sizes: &[u64]| sizes.iter().fold(1u128, |all, &size| all.saturating_mul(size.into()));
    let now = product(&[rows, k_extent, h, d]).saturating_add(product(&[rows, h, d]));
    let then = product(&[rows, k_extent, h]).saturating_add(product(&[k_extent, h, d]));
    let moves = then.saturating_mul(2) <= now;
    let verdict = if moves { "into the weight" } else { "stays" };
    let predicted = machine.map(|machine| {
        let [rows, k, h, d] = [rows, k_extent, h, d].map(|n| n as f64);
        // A row of scores is a product with the score vector; the weight is multiplied with the vector once.
        let dot = Work { products: rows * h * d, ..dense_product(rows, h * d, 0.0, h) };
        let by_rows = seconds(machine, &[dense_product(rows, k, k * h * d, h * d), dot]);
        let contract = Work { products: k * h * d, ..dense_product(k, h * d, 0.0, h) };
        let by_weight = seconds(machine, &[contract, dense_product(rows, k, k * h, h)]);
        let text = if moves {
            Times { chosen: by_weight, other: by_rows }.text("by the weight", "by projected rows")
        } else {
            Times { chosen: by_rows, other: by_weight }.text("by projected rows", "by the weight")
        };
        format!("; {text}")
    });
    log.push(format!(
        "score {value}: {now} by projected rows, {then} by the weight; {verdict}{}",
        predicted.unwrap_or_default()
    ));
    if !moves {
        return None;
    }

    // A projection keeps its stage wherever it is computed.
    r.new.cursor.stage = old.value(projected).stage;
    let (x, w, a) = (r.mapped(x), r.mapped(w), r.mapped(a));
    // The rows of the weight times the vector: one pass over the weight for all heads.
    let rows = r.add(Op::Rows, &[w]);
    let products = r.add(Op::Binary(BinaryOp::Mul), &[rows, a]);
    let vectors = r.add(Op::ReduceTrailing { reduce: Reduce::Sum, axes }, &[products]);
    let matrix = r.add(Op::Unrows, &[vectors]);
    Some(r.add(Op::MatMul { batch: 0 }, &[x, matrix]))
}
