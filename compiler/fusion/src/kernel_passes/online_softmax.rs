//! Online edge softmax: one pass over the edges of a row keeps a running maximum of the scores, the sum of exponentials
//! and the weighted sum (Milakov & Gimelshein 2018), since the weights `exp(x - lse x)` are needed for one sum only.
//!
//! Before:  edge score = …                           After:  edge score = …
//!          row  lse = segment.lse score                     row  state = softmax_sum score, x[src], times
//!          edge w = exp(score - lse[row]) · times           row  z = slice(state) · recip(slice(state))
//!          edge p = w · x[src]                              row  lse = slice(state) + log(slice(state))
//!          row  z = segment.sum p
//!
//! Applies where the weights have one use, times at most one value of the same width (a dropout mask, the weight of an
//! edge) that does not depend on them, and where the numbers of heads and elements are fixed.

use hgnnc_ir::width::Width;
use hgnnc_ir::{BinaryOp, Reduce, UnaryOp};
use hgnnc_kernel_ir::kernel::{Index, Instr, KernelOp, Level, Operand, Program, Traversal};
use rustc_hash::FxHashMap;

use super::instrs::{Defs, Editor, change_traversals, is_log_sum_exp};
use crate::kernel_passes::KernelCx;
use crate::options::SoftmaxForm;
use crate::rules::FusionRule;

/// Computes softmaxes online, for a back end that asks for it.
pub(crate) fn run(program: &mut Program, cx: &mut KernelCx) {
    // The weighted sum is one of the fused products.
    let fuses = !cx.options.disabled.contains(FusionRule::MultiplyReduce);
    if cx.options.softmax == SoftmaxForm::InOnePass && fuses {
        change_traversals(program, is_log_sum_exp, one_pass);
    }
}

/// An edge softmax that is computed online.
struct Online {
    /// The instruction of the log-sum-exp of the scores.
    lse: usize,
    /// The instruction of the sum that the softmax weights.
    sum: usize,
    score: Operand,
    x: Operand,
    times: Option<Operand>,
    heads: usize,
    /// Elements of the sum.
    all: usize,
}

fn one_pass(program: &Program, traversal: &mut Traversal) -> bool {
    let defs = Defs::new(program, traversal);
    let found: Vec<Online> = (0..traversal.instrs.len()).filter_map(|sum| online(&defs, sum)).collect();
    // The same scores may have several weights; and no state may wait for another one, which could wait for it.
    let mut onlines: Vec<Online> = vec![];
    for online in found {
        let waits = |one: &Online, other: &Online| {
            [Some(one.x), one.times].into_iter().flatten().any(|operand| defs.depends(operand, other.lse))
        };
        let apart = |other: &Online| other.lse != online.lse && !waits(&online, other) && !waits(other, &online);
        if onlines.iter().all(apart) {
            onlines.push(online);
        }
    }
    if onlines.is_empty() {
        return false;
    }
    let mut editor = Editor::new(traversal);
    let mut made: FxHashMap<usize, KernelOp> = FxHashMap::default();
    for online in &onlines {
        let [sum, lse] = emit(&mut editor, online, &traversal.instrs);
        made.extend([(online.sum, sum), (online.lse, lse)]);
    }
    for (index, instr) in traversal.instrs.iter().enumerate() {
        editor.instrs.push(match made.remove(&index) {
            Some(op) => Instr { op, level: Level::Row, ..instr.clone() },
            None => instr.clone(),
        });
    }
    traversal.instrs = editor.instrs;
    true
}

/// The softmax that weights a sum over edges.
fn online(defs: &Defs<'_>, sum: usize) -> Option<Online> {
    let instr = &defs.traversal.instrs[sum];
    let KernelOp::Segment(Reduce::Sum, product) = instr.op else { return None };
    let (a, b) = defs.product(product, Level::Edge)?;
    // The narrower factor holds the weights.
    let narrower = defs.width(b)?.divided_by(&defs.width(a)?).is_some();
    let (weights, x) = if narrower { (a, b) } else { (b, a) };
    let softmax = |of: Operand| {
        let (index, _) = defs.made_for_one(of)?;
        Some((of, defs.softmax(index)?))
    };
    let ((alpha, lse), times) = match softmax(weights) {
        Some(found) => (found, None),
        None => {
            let (s, t) = defs.product(weights, Level::Edge)?;
            softmax(s).map(|found| (found, Some(t))).or_else(|| softmax(t).map(|found| (found, Some(s))))?
        }
    };
    let (heads, all) = (defs.width(alpha)?.as_fixed()?, defs.width(x)?.as_fixed()?);
    let of_edges = |times: Operand| {
        times.index != Index::Uniform && defs.width(times).and_then(|width| width.as_fixed()) == Some(heads)
    };
    let fits = heads > 0
        && all.is_multiple_of(heads)
        && instr.width.as_fixed() == Some(all)
        && times.is_none_or(of_edges)
        && [Some(x), times].into_iter().flatten().all(|value| !defs.depends(value, lse));
    let KernelOp::Segment(_, score) = defs.traversal.instrs[lse].op else { return None };
    fits.then_some(Online { lse, sum, score, x, times, heads, all })
}

/// Appends the state of a softmax; returns the operations of the sum and of the log-sum-exp.
fn emit(editor: &mut Editor, online: &Online, instrs: &[Instr]) -> [KernelOp; 2] {
    let &Online { lse, sum, score, x, times, heads, all } = online;
    let place = (instrs[sum].stage, instrs[sum].from);
    let last = all + 2 * heads;
    let a = editor.push(Level::Edge, KernelOp::SoftmaxSum { score, x, times }, Width::fixed(last), place);
    let mut slice =
        |start, len| editor.push(Level::Row, KernelOp::Slice { a, last, start, len }, Width::fixed(len), place);
    let [sums, totals, largest] = [slice(0, all), slice(all, heads), slice(all + heads, heads)];
    let mut of_totals = |f, instr: &Instr| {
        editor.push(Level::Row, KernelOp::Unary(f, totals), Width::fixed(heads), (instr.stage, instr.from))
    };
    let scale = of_totals(UnaryOp::Recip, &instrs[sum]);
    let log = of_totals(UnaryOp::Log, &instrs[lse]);
    [KernelOp::Binary(BinaryOp::Mul, sums, scale), KernelOp::Binary(BinaryOp::Add, largest, log)]
}
