//! Common subexpression elimination: computes equal expressions once.
//!
//! Two values with the same operation on the same operands are equal: every operation is a function, and random masks
//! are functions of their stream. Readers of the later value read the earlier one. The operands of commutative
//! functions count in either order.
//!
//! ```text
//! Before:  %3 = exp %2        After:  %3 = exp %2
//!          %4 = exp %2                %5 = mul %3, %3
//!          %5 = mul %3, %4
//! ```
//!
//! Applies unless the earlier value belongs to a later phase (which no producer builds).

use std::hash::{Hash, Hasher};
use std::mem::discriminant;

use hgnnc_ir::{BinaryOp, Dataflow, Op, Type, UnaryOp, Value};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHasher};

use crate::pass::{Changed, PassCx};

/// Replaces values that were computed before.
pub fn cse(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    // The value that replaces each value, by old numbers. Most of a program stays, so it is changed in place.
    let mut becomes: Vec<Value> = Vec::with_capacity(flow.values.len());
    // Values by a hash of operation and operands: the latest, and the one before it with that hash.
    let mut latest: FxHashMap<u64, Value> = FxHashMap::with_capacity_and_hasher(flow.values.len(), FxBuildHasher);
    let mut before: Vec<Option<Value>> = vec![None; flow.values.len()];
    for value in flow.handles() {
        let data = &mut flow.values[value.index()];
        data.args.iter_mut().for_each(|arg| *arg = becomes[arg.index()]);
        let data = flow.value(value);
        let hash = hash(&data.op, &data.args);
        let mut alike = std::iter::successors(latest.get(&hash).copied(), |known| before[known.index()]);
        let earlier = alike.find(|&known| {
            let known = flow.value(known);
            same_operands(&data.op, &known.args, &data.args) && same(&known.op, &data.op)
        });
        match earlier.filter(|&earlier| flow.value(earlier).phase <= data.phase) {
            Some(earlier) => {
                debug_assert_eq!(flow.ty(earlier), &data.ty, "a value is replaced by one of its type");
                becomes.push(earlier);
            }
            None => {
                before[value.index()] = latest.insert(hash, value);
                becomes.push(value);
            }
        }
    }
    let shared = flow.handles().filter(|value| becomes[value.index()] != *value).count();
    if shared > 0 {
        keep_only(flow, &becomes);
    }
    cx.note("cse", shared, || format!("{shared} values computed before"))
}

/// Removes replaced values, which have no readers any more.
fn keep_only(flow: &mut Dataflow, becomes: &[Value]) {
    let mut numbers: Vec<Value> = Vec::with_capacity(becomes.len());
    let mut kept = 0;
    for (old, &value) in becomes.iter().enumerate() {
        if value.index() == old {
            numbers.push(Value::new(kept));
            flow.values.swap(kept, old);
            let args = &mut flow.values[kept].args;
            args.iter_mut().for_each(|arg| *arg = numbers[arg.index()]);
            kept += 1;
        } else {
            numbers.push(numbers[value.index()]);
        }
    }
    flow.values.truncate(kept);
    for output in &mut flow.outputs {
        output.value = numbers[output.value.index()];
    }
}

/// A hash that is equal for equal operations on equal operands.
fn hash(op: &Op, args: &[Value]) -> u64 {
    let mut hasher = FxHasher::default();
    discriminant(op).hash(&mut hasher);
    op.attribute().hash(&mut hasher);
    if let Op::Broadcast(Type { space, .. }) | Op::Count(space) = op {
        space.hash(&mut hasher);
    }
    match args {
        [a, b] => (a.min(b), a.max(b)).hash(&mut hasher),
        _ => args.hash(&mut hasher),
    }
    hasher.finish()
}

fn same_operands(op: &Op, a: &[Value], b: &[Value]) -> bool {
    let swapped = || matches!((a, b), ([a, b], [c, d]) if a == d && b == c);
    a == b || matches!(op, Op::Binary(f) if commutes(*f) && swapped())
}

/// Are two operations the same? 0 and -0 are equal numbers, but not the same.
fn same(a: &Op, b: &Op) -> bool {
    match (a, b) {
        (Op::Const(a), Op::Const(b)) => a.to_bits() == b.to_bits(),
        (Op::Unary(UnaryOp::LeakyRelu(a)), Op::Unary(UnaryOp::LeakyRelu(b))) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

fn commutes(f: BinaryOp) -> bool {
    match f {
        BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min | BinaryOp::LogAddExp | BinaryOp::Eq => true,
        BinaryOp::Sub | BinaryOp::Div | BinaryOp::Pow | BinaryOp::Gt => false,
    }
}
