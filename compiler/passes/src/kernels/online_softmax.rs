//! Online edge softmax: one pass over the edges of a row keeps a running maximum of the scores, the sum of exponentials
//! and the weighted sum (Milakov & Gimelshein 2018), since the weights `exp(x - lse x)` are needed for one sum only.
//!
//! Before:  edge score = …                           After:  edge score = …
//!          row  m = segment.max score                       row  state = softmax_sum score, x[src], times
//!          edge e = exp(score - m[row])                     row  z = slice(state) · recip(slice(state))
//!          row  total = segment.sum e                       row  lse = slice(state) + log(slice(state))
//!          edge w = e · recip(total)[row] · times
//!          row  z = weighted_sum w, x[src]
//!          row  lse = m + log(total)
//!
//! Applies where the weights have one use, times at most one value of the same width (a dropout mask, the weight of an
//! edge) that does not depend on them, and where the numbers of heads and elements are fixed.

use hgnnc_ir::kernel::{KernelOp, Level, Operand, Width};
use hgnnc_ir::{BinaryOp, Op, Reduce, UnaryOp, Value};

use super::alias_analysis::Topology;
use super::traversal::{Lowering, Result};

/// How an edge softmax is computed where one pass is possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SoftmaxForm {
    /// Three passes: largest score, exponentials and their sum, weighted sum. For a CPU, whose caches hold the edge
    /// values of a block between passes.
    #[default]
    InPasses,
    /// Online, for a back end that recomputes edge values in each pass.
    InOnePass,
}

/// An edge softmax that is computed online, with its operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Online {
    /// The log-sum-exp of the scores.
    lse: Value,
    /// The sum that the softmax weights.
    sum: Value,
    score: Value,
    x: Value,
    times: Option<Value>,
    /// Row values: weighted sums, sums of exponentials and largest scores, once they are lowered.
    made: Option<[Operand; 3]>,
}

impl Lowering<'_, '_, '_> {
    /// Finds the softmaxes that are computed online.
    pub(super) fn find_onlines(&mut self, form: SoftmaxForm) {
        if form == SoftmaxForm::InPasses {
            return;
        }
        let mut members: Vec<Value> = self.members.iter().copied().collect();
        members.sort();
        let found: Vec<Online> = members.into_iter().filter_map(|sum| self.as_online(sum)).collect();
        for online in found {
            // The weights have one use, so no other sum has this log-sum-exp.
            if self.softmaxes.remove(&online.lse).is_some() {
                self.onlines.push(online);
            }
        }
    }

    /// The softmax that weights a sum.
    fn as_online(&self, sum: Value) -> Option<Online> {
        let (aliases, flow) = (self.aliases, self.aliases.flow);
        let (own, direction) = self.edges()?;
        let over = match flow.value(sum).op {
            Op::Segment { graph, direction, reduce: Reduce::Sum }
            | Op::SegmentEndpoints { graph, direction, reduce: Reduce::Sum } => (Topology::Graph(graph), direction),
            _ => return None,
        };
        if over != (own, direction) {
            return None;
        }
        let product = flow.value(sum).args[0];
        let (a, b) = self.fusible(product)?;
        let (a, b) = (self.peel(a), self.peel(b));
        // The narrower factor holds the weights.
        let (weights, x) = if aliases.width(b).divided_by(&aliases.width(a)).is_some() { (a, b) } else { (b, a) };
        let once = |value: Value| self.uses.get(&aliases.storage_of(value)) == Some(&1);
        let softmax = |value: Value| self.softmax_of(aliases.storage_of(value)).filter(|_| once(value));
        let (alpha, lse, times) = match softmax(weights) {
            Some(lse) => (weights, lse, None),
            None => {
                let (s, t) = self.fusible(weights)?;
                let (s, t) = (self.peel(s), self.peel(t));
                softmax(s).map(|lse| (s, lse, Some(t))).or_else(|| softmax(t).map(|lse| (t, lse, Some(s))))?
            }
        };
        let (heads, all) = (aliases.width(alpha).as_fixed()?, aliases.width(x).as_fixed()?);
        let dims = &aliases.flow.ty(aliases.storage_of(product)).dims;
        let prefix = dims.starts_with(&aliases.flow.ty(alpha).dims);
        let edges = |value: Value| aliases.topology(value) == Some(own);
        let fits = heads > 0
            && all.is_multiple_of(heads)
            && aliases.width(sum).as_fixed() == Some(all)
            && prefix
            && times.is_none_or(|times| edges(times) && aliases.width(times).as_fixed() == Some(heads))
            && [Some(x), times].into_iter().flatten().all(|value| !self.depends(value, lse));
        let score = flow.value(lse).args[0];
        fits.then_some(Online { lse, sum, score, x, times, made: None })
    }

    /// Does a value of this traversal depend on another value of it?
    fn depends(&self, value: Value, on: Value) -> bool {
        let (aliases, mut pending) = (self.aliases, vec![self.aliases.storage_of(value)]);
        let mut seen = std::collections::HashSet::new();
        while let Some(value) = pending.pop() {
            if value == on {
                return true;
            }
            let here = aliases.topology(value).is_some() || self.members.contains(&value);
            if here && seen.insert(value) {
                pending.extend(aliases.flow.value(value).args.iter().map(|&arg| aliases.storage_of(arg)));
            }
        }
        false
    }

    /// The online softmax that computes this value.
    pub(super) fn online_of(&self, value: Value) -> Option<usize> {
        self.onlines.iter().position(|online| online.sum == value || online.lse == value)
    }

    /// The operation for the sum or the log-sum-exp of an online softmax, after the state that they share.
    pub(super) fn lower_online(&mut self, online: usize, value: Value) -> Result<KernelOp> {
        let Online { lse, sum, score, x, times, made } = self.onlines[online];
        let stage = self.aliases.flow.value(sum).stage;
        let (heads, all) = (self.width(lse), self.width(sum));
        let [sums, totals, largest] = match made {
            Some(made) => made,
            None => {
                let score = self.operand(score, Level::Edge)?;
                let times = times.map(|times| self.operand(times, Level::Edge)).transpose()?;
                let x = self.operand(x, Level::Edge)?;
                let fixed = |width: &Width| width.as_fixed().expect("heads and elements are fixed numbers");
                let (heads_len, len) = (fixed(&heads), fixed(&all));
                let last = len + 2 * heads_len;
                let op = KernelOp::SoftmaxSum { score, x, times };
                let a = self.emit(Level::Edge, op, Width::fixed(last), stage);
                let mut slice = |start: usize, len: usize| {
                    self.emit(Level::Row, KernelOp::Slice { a, last, start, len }, Width::fixed(len), stage)
                };
                let made = [slice(0, len), slice(len, heads_len), slice(len + heads_len, heads_len)];
                self.onlines[online].made = Some(made);
                made
            }
        };
        Ok(if value == sum {
            let scale = self.emit(Level::Row, KernelOp::Unary(UnaryOp::Recip, totals), heads, stage);
            KernelOp::Binary(BinaryOp::Mul, sums, scale)
        } else {
            let log = self.emit(Level::Row, KernelOp::Unary(UnaryOp::Log, totals), heads, stage);
            KernelOp::Binary(BinaryOp::Add, largest, log)
        })
    }
}
