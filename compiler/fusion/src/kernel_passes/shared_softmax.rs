//! Edge softmax: the weights `exp(x - lse x)` and the log-sum-exp of a row share their exponentials.
//!
//! ```text
//! Before:  row  lse = segment.lse %x               After:  row  m = segment.max %x
//!          edge %d = sub %x, lse[row]                      edge e = exp(%x - m[row])
//!          edge %w = exp %d                                row  total = segment.sum e
//!                                                          row  lse = m + log(total)
//!                                                          edge %w = e · recip(total)[row]
//! ```
//!
//! One exponential per edge instead of two, and the weights of a row sum to one however large the scores are. The largest
//! score is clamped to finite numbers, so that rows without edges and infinite scores give no NaN: `lse` is then infinite
//! as it should be. Applies where a traversal computes both. It rounds weights differently than traversals without the
//! `lse` do, so instructions that are [`exact`](hgnnc_kernel_ir::kernel::Instr::exact) are left alone.

use hgnnc_ir::{BinaryOp, Reduce, UnaryOp};
use hgnnc_kernel_ir::kernel::{Index, Instr, KernelOp, Level, Operand, Program, Source, Traversal};
use rustc_hash::FxHashMap;

use super::instrs::{Defs, Editor, change_traversals, is_log_sum_exp};
use crate::kernel_passes::KernelCx;

/// Shares exponentials in all traversals.
pub(crate) fn run(program: &mut Program, _: &mut KernelCx) {
    change_traversals(program, is_log_sum_exp, share);
}

fn share(program: &Program, traversal: &mut Traversal) -> bool {
    let defs = Defs::new(program, traversal);
    let weights: FxHashMap<usize, usize> =
        (0..traversal.instrs.len()).filter_map(|weights| Some((weights, defs.softmax(weights)?))).collect();
    if weights.is_empty() {
        return false;
    }
    let mut editor = Editor::new(traversal);
    let mut softmaxes: FxHashMap<usize, Softmax> = FxHashMap::default();
    for (index, instr) in traversal.instrs.iter().enumerate() {
        let is_needed = weights.values().any(|&lse| lse == index);
        let (op, level) = match (&instr.op, weights.get(&index)) {
            (KernelOp::Segment(Reduce::Lse, x), _) if is_needed => {
                let softmax = softmax(&mut editor, instr, *x);
                let sum = KernelOp::Binary(BinaryOp::Add, softmax.base, softmax.log);
                softmaxes.insert(index, softmax);
                (sum, Level::Row)
            }
            (_, Some(lse)) => {
                let Softmax { exps, scale, .. } = softmaxes[lse];
                (KernelOp::Binary(BinaryOp::Mul, exps, scale), instr.level)
            }
            (op, None) => (op.clone(), instr.level),
        };
        editor.instrs.push(Instr { op, level, ..instr.clone() });
    }
    traversal.instrs = editor.instrs;
    true
}

/// The values that the weights and the log-sum-exp of a softmax share.
struct Softmax {
    /// Edge value: `exp(x - base)`.
    exps: Operand,
    /// Row value: the largest `x`, clamped to finite numbers.
    base: Operand,
    /// Row value: the logarithm of the sum of the exponentials.
    log: Operand,
    /// Row value: the reciprocal of that sum.
    scale: Operand,
}

/// Computes them for the scores `x` of a log-sum-exp.
fn softmax(editor: &mut Editor, lse: &Instr, x: Operand) -> Softmax {
    let mut push = |level: Level, op: KernelOp| editor.push(level, op, lse.width.clone(), (lse.stage, lse.from));
    let limit = |of: f32| Operand { source: Source::Const(of.into()), index: Index::Uniform };
    let largest = push(Level::Edge, KernelOp::Segment(Reduce::Max, x));
    let base = push(Level::Row, KernelOp::Binary(BinaryOp::Max, largest, limit(f32::MIN)));
    let base = push(Level::Row, KernelOp::Binary(BinaryOp::Min, base, limit(f32::MAX)));
    let shifted = push(Level::Edge, KernelOp::Binary(BinaryOp::Sub, x, base));
    let exps = push(Level::Edge, KernelOp::Unary(UnaryOp::Exp, shifted));
    let total = push(Level::Edge, KernelOp::Segment(Reduce::Sum, exps));
    let scale = push(Level::Row, KernelOp::Unary(UnaryOp::Recip, total));
    let log = push(Level::Row, KernelOp::Unary(UnaryOp::Log, total));
    Softmax { exps, base, log, scale }
}
