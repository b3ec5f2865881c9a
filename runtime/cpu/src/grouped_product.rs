//! Runs grouped products.

use hgnnc_kernels::product;

use crate::block::Context;
use crate::plan::{GroupedProduct, ProductKind};

/// Computes the pieces of a task.
pub(crate) fn run_task(context: Context<'_>, step: &GroupedProduct, task: usize) {
    let GroupedProduct { kind, of, members, x, y, out, .. } = *step;
    let (slabs, dispatch) = (context.slabs, context.dispatch);
    // Operands of a launch do not alias its outputs.
    let (xs, ys) = (slabs.of(x), slabs.of(y));
    // Each piece writes its own range of the result.
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
                let in_edges = rows_of.indptr[member] as usize..rows_of.indptr[member + 1] as usize;
                let first = rows_of.indices.get(in_edges.start).map_or(0, |&row| row as usize);
                let last = first + in_edges.len();
                let (x, y) = (&xs[first * left..last * left], &ys[first * right..last * right]);
                // Only a single matrix is divided into bands.
                let out = match of.batch {
                    1 => write(member * all + part.start * of.n, rows * of.n),
                    _ => write(member * all, all),
                };
                product::outer(dispatch, of, last - first, part, x, y, out, false);
            }
        }
    }
}
