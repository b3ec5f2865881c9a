//! Which backward values are computed late: cheap functions of nothing larger than themselves.
//!
//! A value that is computed early waits in memory until it is read. Where it is an element-wise function of a value that
//! waits anyway (the derivative of an activation from its result, a gradient times a mask), or of something smaller (a
//! narrow gradient repeated to its width), computing it where it is read costs less memory and less traffic.
//!
//! ```text
//! kernel: %2 = min elu[row], 0; slope = add %2, 1       kernel: %2 = min elu[row], 0
//! ...                                              =>           %3 = add %2, 1
//! kernel: dx = mul dy[row], slope[row]                          dx = mul dy[row], %3
//! ```
//!
//! Applies in the backward part, to element-wise operations on vertex rows whose sources that are neither leaves nor
//! late themselves have together no more elements per row than the value. Forward values are left where they are: what
//! backward computes again is the choice of [`crate::recompute`].

use std::collections::BTreeSet;

use hgnnc_ir::{Op, Phase, Space, Value};

use super::facts::Facts;
use super::schedule::Kind;

/// When a value is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Late {
    /// As soon as it can be.
    No,
    /// By every group that reads it: all read it at their own rows.
    Inline,
    /// Right before the first group that needs it in memory.
    Stored,
}

/// Most operations that a value stands for when it is computed where it is read.
const MAX_OPS: usize = 24;

/// When each value of a program is computed. `nodes` are those that groups compute, with the `kinds` of their groups.
pub(super) fn find_late(facts: &Facts<'_>, nodes: &[Value], kinds: &[Vec<Kind>]) -> Vec<Late> {
    let flow = facts.flow;
    let mut late = vec![Late::No; flow.values.len()];
    // The sources of each late value, and how many operations it stands for.
    let mut sources: Vec<(BTreeSet<Value>, usize)> = vec![(BTreeSet::new(), 0); flow.values.len()];
    let mut readers: Vec<Vec<Value>> = vec![vec![]; flow.values.len()];
    for value in flow.handles().filter(|&v| facts.root(v) == v && facts.is_live(v)) {
        for &arg in &flow.value(value).args {
            readers[facts.root(arg).index()].push(value);
        }
    }
    for &v in nodes {
        let node = flow.value(v);
        if node.phase != Phase::Backward || facts.is_fixed(v) {
            continue;
        }
        let args: Vec<Value> = node.args.iter().map(|&arg| facts.root(arg)).collect();
        if matches!(kinds[v.index()][..], [Kind::Product(_)]) {
            // A product of forward values was put into the backward part to be computed there, as late as possible.
            let any_time = |&arg: &Value| {
                facts.is_leaf(arg)
                    || flow.value(arg).phase == Phase::Forward
                    || late[arg.index()] == Late::Stored && again(facts, arg, &late)
            };
            let again_product = matches!(node.op, Op::MatMul { .. } | Op::MatMulT { .. }) && args.iter().all(any_time);
            if again_product {
                late[v.index()] = Late::Stored;
                sources[v.index()] = (BTreeSet::from([v]), 0);
            }
            continue;
        }
        let Space::Vertices(_) = node.ty.space else { continue };
        if !is_cheap(facts, v) || !kinds[v.index()].contains(&Kind::Map(node.ty.space)) {
            continue;
        }
        let (mut from, mut ops) = (BTreeSet::new(), 1);
        for &arg in &args {
            if late[arg.index()] == Late::Inline {
                from.extend(sources[arg.index()].0.iter().copied());
                ops += sources[arg.index()].1;
            } else if !facts.is_leaf(arg) && !flow.ty(arg).is_unit() {
                from.insert(arg);
            }
        }
        let width = |value: Value| facts.width(value).as_fixed();
        let from_width: Option<usize> = from.iter().map(|&source| width(source)).sum();
        let smaller = from_width.zip(width(v)).is_some_and(|(from, own)| from <= own);
        if !smaller || ops > MAX_OPS {
            continue;
        }
        let own_rows = |reader: &Value| kinds[reader.index()].contains(&Kind::Map(node.ty.space));
        let inline = !facts.is_output(v) && readers[v.index()].iter().all(own_rows);
        late[v.index()] = if inline { Late::Inline } else { Late::Stored };
        sources[v.index()] = (from, ops);
    }
    late
}

/// Is a late value a function of forward values only?
fn again(facts: &Facts<'_>, value: Value, late: &[Late]) -> bool {
    facts.flow.value(value).args.iter().all(|&arg| {
        let root = facts.root(arg);
        let forward = facts.is_leaf(root) || facts.flow.value(root).phase == Phase::Forward;
        forward || (late[root.index()] != Late::No && again(facts, root, late))
    })
}

/// Element-wise, or a change of shape.
fn is_cheap(facts: &Facts<'_>, v: Value) -> bool {
    let node = facts.flow.value(v);
    match &node.op {
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Broadcast(_)
        | Op::RandomMask { .. }
        | Op::OneHot { .. }
        | Op::Slice { .. } => true,
        // With one column, a scaling.
        Op::MatMulT { batch } => facts.extents(facts.flow.ty(node.args[1]), *batch).n.is_one(),
        Op::Input(_)
        | Op::Param(_)
        | Op::State(..)
        | Op::Const(_)
        | Op::Count(_)
        | Op::StopGradient
        | Op::Reshape(_)
        | Op::Concat
        | Op::Rows(_)
        | Op::Unrows
        | Op::MatMul { .. }
        | Op::Outer { .. }
        | Op::GatherSrc(_)
        | Op::GatherDst(_)
        | Op::Segment { .. }
        | Op::ReduceTrailing { .. }
        | Op::ReduceSpace(_) => false,
    }
}
