//! Runs grouped products.

use hgnnc_ir::Reduce;
use hgnnc_kernels::{product, rows};

use crate::block::Context;
use crate::plan::{GroupedProduct, MemberSum, ProductKind};

/// Computes the pieces of a task.
pub(crate) fn run_task(context: Context<'_>, step: &GroupedProduct, task: usize) {
    let GroupedProduct { kind, of, members, x, y, out, partials, .. } = *step;
    let (slabs, dispatch) = (context.slabs, context.dispatch);
    // Operands of a launch do not alias its outputs.
    let (xs, ys) = (slabs.of(x), slabs.of(y));
    // Each piece writes its own range of the result, or its own partial result.
    let write = |start: usize, len: usize| slabs.write(out.slab, out.offset + start, len);
    let (left, right, all) = (of.batch * of.k, of.batch * of.n, of.batch * of.k * of.n);
    let rows_of = &context.data.graphs[members].csc;
    for piece in &step.pieces[step.tasks[task] as usize..step.tasks[task + 1] as usize] {
        let (member, part) = (piece.member as usize, piece.first as usize..piece.last as usize);
        let rows = part.len();
        match kind {
            ProductKind::MatMul => {
                let (x, w) = (&xs[part.start * left..part.end * left], &ys[member * all..(member + 1) * all]);
                product::mat_mul(dispatch, of, rows, x, w, write(part.start * right, rows * right));
            }
            ProductKind::MatMulT => {
                let (x, w) = (&xs[part.start * right..part.end * right], &ys[member * all..(member + 1) * all]);
                product::mat_mul_t(dispatch, of, rows, x, w, write(part.start * left, rows * left));
            }
            ProductKind::Outer => {
                // The rows of a member are consecutive, but those of a section are not in the order of members.
                let first = rows_of.indices.get(rows_of.indptr[member] as usize).map_or(0, |&row| row as usize);
                let in_edges = rows_of.indptr[member + 1] - rows_of.indptr[member];
                let (rows, band) = match product::band_rows(of) {
                    Some(_) => (0..in_edges as usize, part),
                    None => (part, 0..of.k),
                };
                let (x, y) = (&xs[(first + rows.start) * left..], &ys[(first + rows.start) * right..]);
                let out = match piece.partial {
                    Some(number) => slabs.write(context.partials, partials + number as usize * all, all),
                    // Only a single matrix is divided into bands.
                    None => write(member * all + band.start * of.n, band.len() * of.batch * of.n),
                };
                product::outer(dispatch, of, rows.len(), band, x, y, out, false);
            }
        }
    }
}

/// Elements of a weight gradient that a task adds up.
const RANGE: usize = 4096;

/// The number of tasks that add partial results.
pub(crate) fn num_sums(step: &GroupedProduct) -> usize {
    step.sums.len() * (step.of.batch * step.of.k * step.of.n).div_ceil(RANGE)
}

/// Adds the partial results of a range of a weight gradient.
pub(crate) fn combine(context: Context<'_>, step: &GroupedProduct, task: usize) {
    let GroupedProduct { of, out, partials, .. } = *step;
    let size = of.batch * of.k * of.n;
    let ranges = size.div_ceil(RANGE);
    let MemberSum { member, partials: parts } = &step.sums[task / ranges];
    let start = task % ranges * RANGE;
    let len = RANGE.min(size - start);
    // Each task has its own range of the result. All partial results are written, and only read from here on.
    let sum = context.slabs.write(out.slab, out.offset + *member as usize * size + start, len);
    sum.fill(0.0);
    for part in parts.clone() {
        let part = context.slabs.read(context.partials, partials + part as usize * size + start, len);
        rows::accumulate_rows(context.dispatch, Reduce::Sum, part, len, sum);
    }
}
