//! Unread rows must stay finite: finds operations that must not move in front of a gather.
//!
//! A gather reads the vertices that have edges. A pass that moves an operation in front of a gather computes it for the
//! other vertices as well. Their rows are never read, but the gradient of the moved operation is multiplied with them:
//! it is 0 there, and 0 · ∞ is NaN, which a sum over all rows carries into the gradient of a parameter. So an operation
//! may be moved only if it is finite, with finite derivatives, wherever its operands are; and an operand that is
//! infinite in rows without edges (the identity of a maximum or a log-sum-exp) may not be an operand of anything that
//! is moved.
//!
//! The check assumes that some vertices have no edges: a program is valid for all data, and vertices of a mini-batch
//! have fewer edges than those of the graph whose sizes are known.

use hgnnc_ir::{BinaryOp, Dataflow, MetapathTerm, Op, Reduce, Type, UnaryOp, Value};

use crate::move_to_vertices::by_row;

/// Finds the values of a program that may be infinite in rows without edges. The program may grow between calls.
#[derive(Default)]
pub(crate) struct Infinite {
    known: Vec<bool>,
}

impl Infinite {
    /// May this value be infinite in rows without edges?
    pub fn has(&mut self, flow: &Dataflow, value: Value) -> bool {
        for index in self.known.len()..=value.index() {
            let data = &flow.values[index];
            let operand = || data.args.iter().any(|arg| self.known[arg.index()]);
            let bounded = || data.args.iter().any(|&arg| constant(flow, arg).is_some());
            let infinite = match &data.op {
                Op::Segment { reduce: Reduce::Max | Reduce::Min | Reduce::Lse, .. } | Op::SegmentArg { .. } => true,
                Op::MetapathReduce(sum) => sum.term == MetapathTerm::LogSumExp,
                // A clamp guards against the identity.
                Op::Binary(BinaryOp::Max | BinaryOp::Min) if bounded() => false,
                Op::ScatterRows(..) | Op::ScatterAdd(_) => operand(),
                op => by_row(op, Type::clone).is_some() && operand(),
            };
            self.known.push(infinite);
        }
        self.known[value.index()]
    }

    /// Forgets values that a program has lost at its end.
    pub fn truncate(&mut self, len: usize) {
        self.known.truncate(len);
    }
}

/// Is an operation finite, with finite derivatives, wherever its operands are?
pub(crate) fn is_total(flow: &Dataflow, op: &Op, args: &[Value]) -> bool {
    match op {
        Op::Unary(UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Recip) => is_positive(flow, args[0]),
        // An exponential overflows.
        Op::Unary(UnaryOp::Exp) => false,
        Op::Binary(BinaryOp::Div) => flow.ty(args[1]).is_unit() || is_positive(flow, args[1]),
        Op::Binary(BinaryOp::Pow) => is_positive(flow, args[0]) && flow.ty(args[1]).is_unit(),
        _ => true,
    }
}

/// Is every element positive, whatever the rows hold? The search visits [`MOST_VALUES`] values at most: operands that
/// are used twice at each level would double it again and again.
fn is_positive(flow: &Dataflow, value: Value) -> bool {
    fn found(flow: &Dataflow, value: Value, rest: &mut usize) -> bool {
        let Some(fewer) = rest.checked_sub(1) else { return false };
        *rest = fewer;
        let data = flow.value(value);
        let mut operand = |i: usize| found(flow, data.args[i], rest);
        match data.op {
            Op::Const(number) => number > 0.0,
            Op::Broadcast(_)
            | Op::Reshape(_)
            | Op::Slice { .. }
            | Op::Transpose { .. }
            | Op::GatherSrc(_)
            | Op::GatherDst(_) => operand(0),
            Op::Unary(UnaryOp::Sqrt) => operand(0),
            Op::Binary(BinaryOp::Max) => operand(0) || operand(1),
            Op::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Min) => operand(0) && operand(1),
            _ => false,
        }
    }
    let mut rest = MOST_VALUES;
    found(flow, value, &mut rest)
}

/// Most values that the search for a positive value visits.
const MOST_VALUES: usize = 64;

fn constant(flow: &Dataflow, value: Value) -> Option<f64> {
    let data = flow.value(value);
    match data.op {
        Op::Const(number) => Some(number),
        Op::Broadcast(_) => constant(flow, data.args[0]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positive_numbers_are_found_in_a_limited_time() {
        let mut flow = Dataflow::new("d");
        let (one, less) = (flow.constant(1.0), flow.constant(-1.0));
        let guarded = flow.binary(BinaryOp::Max, less, one);
        let root = flow.unary(UnaryOp::Sqrt, guarded);
        assert!(is_positive(&flow, root) && !is_positive(&flow, less));
        // Each maximum has the one before it twice: 2^200 ways back.
        let mut doubled = less;
        for _ in 0..200 {
            doubled = flow.binary(BinaryOp::Max, doubled, doubled);
        }
        assert!(!is_positive(&flow, doubled));
    }
}
