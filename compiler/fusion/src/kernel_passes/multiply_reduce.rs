//! Fuses multiplications into the sums that read them: dot products, and weighted sums of gathered rows.
//!
//! ```text
//! Before:  edge %3 = mul %2, h[src] : 64              After:  edge z = weighted_sum %2, h[src] : 64
//!          edge z = segment.sum %3 : 64
//! Before:  row  %1 = mul h[row], a : 8, 8             After:  row  score = dot h[row], a : 8
//!          row  score = reduce.sum %1 : 8
//! ```
//!
//! Applies to a product that is not stored and has no other reader. A dot product needs factors as wide as the product;
//! a weighted sum needs one, and a narrower one that holds the weights. The product is never in memory or in a register
//! of its own, and a multiply-add takes as long as an addition: it always pays.

use hgnnc_ir::Reduce;
use hgnnc_ir::width::Width;
use hgnnc_kernel_ir::kernel::{Instr, KernelOp, Operand, Program, Source};

use super::instrs::{Defs, change_traversals};
use crate::kernel_passes::KernelCx;

/// Fuses the products of all traversals.
pub(crate) fn run(program: &mut Program, _: &mut KernelCx) {
    let sums = |op: &KernelOp| {
        matches!(op, KernelOp::Segment(Reduce::Sum, of) | KernelOp::ReduceTrailing(Reduce::Sum, of)
            if matches!(of.source, Source::Local(_)))
    };
    change_traversals(program, sums, |program, traversal| {
        let defs = Defs::new(program, traversal);
        let fused: Vec<Option<KernelOp>> = traversal.instrs.iter().map(|instr| fused(&defs, instr)).collect();
        let any = fused.iter().any(Option::is_some);
        for (instr, op) in traversal.instrs.iter_mut().zip(fused) {
            if let Some(op) = op {
                instr.op = op;
            }
        }
        any
    });
}

/// A sum with the product that it reads.
fn fused(defs: &Defs<'_>, instr: &Instr) -> Option<KernelOp> {
    match instr.op {
        KernelOp::Segment(Reduce::Sum, of) => {
            let (a, b) = defs.product(of, instr.level)?;
            weighted_sum((a, defs.width(a)?), (b, defs.width(b)?), &instr.width)
        }
        KernelOp::ReduceTrailing(Reduce::Sum, of) => {
            let (a, b) = defs.product(of, instr.level)?;
            let width = defs.width(of);
            (defs.width(a) == width && defs.width(b) == width).then_some(KernelOp::Dot(a, b))
        }
        _ => None,
    }
}

/// The weighted sum of rows of `width` elements: the narrower factor holds the weights.
fn weighted_sum((a, of_a): (Operand, Width), (b, of_b): (Operand, Width), width: &Width) -> Option<KernelOp> {
    let (a, heads, x, all) = if of_b.divided_by(&of_a).is_some() { (a, of_a, b, of_b) } else { (b, of_b, a, of_a) };
    let fits = heads != all && all == *width && all.divided_by(&heads).is_some();
    fits.then_some(KernelOp::WeightedSum { a, x })
}
