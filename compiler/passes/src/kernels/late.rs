//! Which values are computed late, or by each reader for itself: cheap functions of nothing larger than themselves.
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
//! Applies in the backward part, to element-wise operations on rows of vertices or of the ends of a graph whose sources that are neither leaves nor
//! late themselves nor the same in every run have together at most a quarter more elements per row than the value.
//! Copies of forward values could start at any time, and so start as late as possible. Other forward values are left where
//! they are: what backward computes again is the choice of [`crate::rematerialize`].
//!
//! In all parts, what only repeats much narrower values (a row with a one for its class, a weight of each row times such a
//! row) is computed by each reader for itself, be it the same in every run or not: with hundreds of classes it is the largest
//! value of a program, and reading it takes longer than making it.

use std::collections::{BTreeSet, HashMap};
use std::mem::discriminant;

use hgnnc_ir::{BinaryOp, Op, Phase, Space, Value};

use super::facts::Facts;
use super::schedule::Kind;
use crate::rewrite::attribute;

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

/// Sources may together be larger than the value by one part in this many.
const SLACK: usize = 4;
/// A product of at most this many terms per element takes no more time than reading what it makes.
const MOST_TERMS: usize = 8;
/// Most operations that a value stands for when it is computed where it is read.
const MAX_OPS: usize = 24;
/// What repeats narrower values is at least so many times as wide as all of them together.
const REPEATS: usize = 8;
/// Most operations of which it is made.
const MAX_REPEATING_OPS: usize = 4;

/// When each value of a program is computed. `nodes` are those that groups compute, with the `kinds` of their groups.
pub(super) fn find_late(facts: &Facts<'_>, nodes: &[Value], kinds: &[Vec<Kind>]) -> Vec<Late> {
    let flow = facts.flow;
    let mut late = vec![Late::No; flow.values.len()];
    // The sources of each late value, and how many operations it stands for.
    let mut sources: Vec<(BTreeSet<Value>, usize)> = vec![(BTreeSet::new(), 0); flow.values.len()];
    let repeats = Repeats::new(facts, nodes);
    let mut readers: Vec<Vec<Value>> = vec![vec![]; flow.values.len()];
    for value in flow.handles().filter(|&v| facts.root(v) == v && facts.is_live(v)) {
        for &arg in &flow.value(value).args {
            readers[facts.root(arg).index()].push(value);
        }
    }
    let again = computed_again(facts);
    for &v in nodes {
        let node = flow.value(v);
        let own_kind = match node.ty.space {
            space @ Space::Vertices(_) => Kind::Map(space),
            Space::Ends(graph, direction) => Kind::Ends(graph, direction),
            Space::Unit | Space::Edges(_) | Space::Index(_) => continue,
        };
        let own_rows = |reader: &Value| kinds[reader.index()].contains(&own_kind);
        if repeats.narrower(v) && readers[v.index()].iter().all(own_rows) {
            late[v.index()] = Late::Inline;
            sources[v.index()] = repeats.of[v.index()].clone().unwrap_or_default();
            continue;
        }
        if node.phase != Phase::Backward || facts.is_fixed(v) || facts.is_output(v) {
            continue;
        }
        let (mut from, mut ops) = (BTreeSet::new(), 1);
        for arg in node.args.iter().map(|&arg| facts.root(arg)) {
            if late[arg.index()] == Late::Inline {
                from.extend(sources[arg.index()].0.iter().copied());
                ops += sources[arg.index()].1;
            } else if !facts.is_leaf(arg) && !facts.is_fixed(arg) && !flow.ty(arg).is_unit() {
                from.insert(arg);
            }
        }
        let width = |value: Value| facts.width(value).as_fixed();
        let from_width: Option<usize> = from.iter().map(|&source| width(source)).sum();
        // A number per row beside it (a degree, a weight) makes no difference.
        let smaller = from_width.zip(width(v)).is_some_and(|(from, own)| from <= own + own / SLACK);
        let cheap = is_cheap(facts, v) && own_rows(&v) && ops <= MAX_OPS;
        late[v.index()] = match (cheap, smaller || again[v.index()]) {
            (true, true) if readers[v.index()].iter().all(own_rows) => Late::Inline,
            (true, true) => Late::Stored,
            (false, _) if again[v.index()] => Late::Stored,
            (true | false, _) => Late::No,
        };
        sources[v.index()] = (from, ops);
    }
    late
}

/// Values that are made of narrower ones by repeating them, with little arithmetic.
struct Repeats<'f, 'a> {
    facts: &'f Facts<'a>,
    /// What each is made of, and by how many operations.
    of: Vec<Option<(BTreeSet<Value>, usize)>>,
}

impl<'f, 'a> Repeats<'f, 'a> {
    fn new(facts: &'f Facts<'a>, nodes: &[Value]) -> Self {
        let mut of: Vec<Option<(BTreeSet<Value>, usize)>> = vec![None; facts.flow.values.len()];
        for &v in nodes {
            let node = facts.flow.value(v);
            let arithmetic = matches!(node.op, Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul));
            let repeating = arithmetic || matches!(node.op, Op::OneHot { .. } | Op::Broadcast(_));
            if !repeating || facts.is_output(v) {
                continue;
            }
            let (mut from, mut ops) = (BTreeSet::new(), 1);
            for arg in node.args.iter().map(|&arg| facts.root(arg)) {
                match &of[arg.index()] {
                    Some((sources, more)) => {
                        from.extend(sources.iter().copied());
                        ops += more;
                    }
                    None => drop(from.insert(arg)),
                }
            }
            of[v.index()] = (ops <= MAX_REPEATING_OPS).then_some((from, ops));
        }
        Self { facts, of }
    }

    /// Is a value much wider than all that it is made of?
    fn narrower(&self, v: Value) -> bool {
        let width = |value: Value| self.facts.width(value).as_fixed();
        let Some((from, _)) = &self.of[v.index()] else { return false };
        let together: Option<usize> = from.iter().map(|&source| width(source)).sum();
        together.zip(width(v)).is_some_and(|(from, own)| REPEATS * from <= own)
    }
}

/// Which backward values are copies of forward values: the same operation on the same operands, or on copies of them.
/// They could start at any time.
fn computed_again(facts: &Facts<'_>) -> Vec<bool> {
    let flow = facts.flow;
    // The forward value that each value is, and the forward values by what computes them.
    let mut original: Vec<Value> = flow.handles().collect();
    let mut known: HashMap<_, Vec<Value>> = HashMap::new();
    for value in flow.handles() {
        let node = flow.value(value);
        let args: Vec<Value> = node.args.iter().map(|&arg| original[arg.index()]).collect();
        let alike = known.entry((discriminant(&node.op), attribute(&node.op), args)).or_default();
        let first = alike.iter().copied().find(|&other| flow.value(other).op == node.op);
        match (node.phase, first) {
            (Phase::Forward, None) => alike.push(value),
            (Phase::Backward | Phase::Update, Some(first)) => original[value.index()] = first,
            (Phase::Forward, Some(_)) | (Phase::Backward | Phase::Update, None) => {}
        }
    }
    flow.handles().map(|value| original[value.index()] != value).collect()
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
        // Few terms per element: with one, a scaling.
        Op::MatMul { batch } | Op::MatMulT { batch } if facts.topology(node.args[0]).is_none() => {
            let of = facts.extents(facts.flow.ty(node.args[1]), *batch);
            let terms = if matches!(node.op, Op::MatMul { .. }) { of.k } else { of.n };
            terms.as_fixed().is_some_and(|terms| terms <= MOST_TERMS)
        }
        Op::Input(_)
        | Op::Param(_)
        | Op::State(..)
        | Op::Const(_)
        | Op::Count(_)
        | Op::StopGradient
        | Op::Reshape(_)
        | Op::Concat
        | Op::Rows
        | Op::Unrows
        | Op::MatMul { .. }
        | Op::MatMulT { .. }
        | Op::Outer { .. }
        | Op::GatherSrc(_)
        | Op::GatherDst(_)
        | Op::Segment { .. }
        | Op::SegmentEnds { .. }
        | Op::SegmentArg { .. }
        | Op::Paths(_)
        | Op::Select(..)
        | Op::Replace(..)
        | Op::AddEnds(_)
        | Op::ReduceTrailing { .. }
        | Op::ReduceSpace(_) => false,
    }
}
