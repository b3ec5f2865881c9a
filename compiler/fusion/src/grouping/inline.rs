//! Chooses the placement of cheap values: recomputed inline by each reader, or sunk to right before the first reader.
//!
//! A value that is computed early occupies memory until it is read. Where it is an element-wise function of a value
//! that is live anyway (the derivative of an activation from its result, a gradient times a mask), or of something
//! smaller (a narrow gradient broadcast to its width), recomputing it where it is read costs less memory and less
//! traffic.
//!
//! ```text
//! kernel: %2 = min elu[row], 0; slope = add %2, 1       kernel: %2 = min elu[row], 0
//! ...                                              =>           %3 = add %2, 1
//! kernel: dx = mul dy[row], slope[row]                          dx = mul dy[row], %3
//! ```
//!
//! Applies in the backward part, to element-wise operations on rows of vertices or of the endpoints of a graph. Their
//! sources, without leaves, loop invariants and values that are themselves inlined or sunk, may have together at most a
//! quarter more elements per row than the value. Copies of forward values could start at any time, so they are sunk as
//! far as possible. Other forward values stay eager: rematerialization chooses what the backward pass
//! recomputes.
//!
//! A forward dropout mask that one operation reads is drawn there, and not stored beside all values of its rows.
//!
//! In all parts, the rows of a parameter at endpoints are read where they are wanted, and a broadcast of
//! much narrower values (one-hot rows of classes, a weight of each row times such a row)
//! is recomputed inline, loop-invariant or not: with hundreds of classes it is the largest value of a program, and
//! reading it takes longer than recomputing it.

use std::collections::BTreeSet;
use std::mem::discriminant;

use hgnnc_analysis::aliases::AliasAnalysis;
use hgnnc_ir::{BinaryOp, Op, OpClass, Phase, Space, Value};
use rustc_hash::FxHashMap;

use crate::groups::Kind;

/// The place in the schedule where a value is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// In the first kernel that has its operands.
    Eager,
    /// In every group that reads it: all read it at their own rows.
    Inline,
    /// In memory, right before the first group that reads it there.
    JustInTime,
}

/// Sources may together be larger than the value by one part in this many.
const SLACK: usize = 4;
/// A product of at most this many terms per element takes no more time than reading its result.
const MOST_TERMS: usize = 8;
/// Most operations that an inlined value stands for.
const MAX_OPS: usize = 24;
/// A broadcast value is at least this many times as wide as all its sources together.
const REPEATS: usize = 8;
/// Most operations that compute a broadcast value.
const MAX_REPEATING_OPS: usize = 4;

/// The placement of each value of a program. `nodes` are the values that groups compute, with the `kinds` of their
/// groups. To save memory, products that are `read_once` are computed where they are read.
pub(crate) fn find_placements(
    aliases: &AliasAnalysis<'_>,
    nodes: &[Value],
    kinds: &[Vec<Kind>],
    read_once: &[bool],
) -> Vec<Placement> {
    let flow = aliases.flow;
    let mut placement = vec![Placement::Eager; flow.values.len()];
    // The sources of each inlined or sunk value, and how many operations it stands for.
    let mut sources: Vec<(BTreeSet<Value>, usize)> = vec![(BTreeSet::new(), 0); flow.values.len()];
    let repeats = Repeats::new(aliases, nodes);
    let mut readers: Vec<Vec<Value>> = vec![vec![]; flow.values.len()];
    for value in flow.handles().filter(|&v| aliases.storage_of(v) == v && aliases.is_live(v)) {
        for &arg in &flow.value(value).args {
            readers[aliases.storage_of(arg).index()].push(value);
        }
    }
    let again = computed_again(aliases);
    for &v in nodes {
        let node = flow.value(v);
        let own_kind = match node.ty.space {
            space @ Space::Vertices(_) => Kind::Map(space),
            Space::Endpoints(graph, direction) => Kind::Endpoints(graph, direction),
            Space::Unit | Space::Edges(_) | Space::Index(_) => continue,
        };
        let own_rows = |reader: &Value| kinds[reader.index()].contains(&own_kind);
        if repeats.narrower(v) && readers[v.index()].iter().all(own_rows) {
            placement[v.index()] = Placement::Inline;
            sources[v.index()] = repeats.of[v.index()].clone().unwrap_or_default();
            continue;
        }
        // Rows of a parameter at its readers' own endpoints are an addressing mode. (Rows of an input are copied once.)
        let selects = matches!(node.op, Op::GatherRows(..)) && aliases.is_leaf(aliases.storage_of(node.args[0]));
        if selects && !aliases.is_invariant(v) && !aliases.is_output(v) && readers[v.index()].iter().all(own_rows) {
            placement[v.index()] = Placement::Inline;
            continue;
        }
        if read_once[v.index()] && own_rows(&v) && readers[v.index()].iter().all(own_rows) {
            placement[v.index()] = Placement::Inline;
            continue;
        }
        // A dropout mask is a function of its position. Its only reader draws it as fast as a kernel that stores it.
        let drawn = matches!(node.op, Op::RandomMask { .. }) && node.phase == Phase::Forward;
        if drawn && !aliases.is_output(v) && readers[v.index()].len() == 1 && readers[v.index()].iter().all(own_rows) {
            placement[v.index()] = Placement::Inline;
            continue;
        }
        if node.phase != Phase::Backward || aliases.is_invariant(v) || aliases.is_output(v) {
            continue;
        }
        let (mut from, mut ops) = (BTreeSet::new(), 1);
        for arg in node.args.iter().map(|&arg| aliases.storage_of(arg)) {
            if placement[arg.index()] == Placement::Inline {
                from.extend(sources[arg.index()].0.iter().copied());
                ops += sources[arg.index()].1;
            } else if !aliases.is_leaf(arg) && !aliases.is_invariant(arg) && !flow.ty(arg).is_unit() {
                from.insert(arg);
            }
        }
        let width = |value: Value| aliases.width(value).as_fixed();
        let from_width: Option<usize> = from.iter().map(|&source| width(source)).sum();
        // A scalar per row beside it (a degree, a weight) makes no difference.
        let smaller = from_width.zip(width(v)).is_some_and(|(from, own)| from <= own + own / SLACK);
        let cheap = is_cheap(aliases, v) && own_rows(&v) && ops <= MAX_OPS;
        placement[v.index()] = match (cheap, smaller || again[v.index()]) {
            (true, true) if readers[v.index()].iter().all(own_rows) => Placement::Inline,
            (true, true) => Placement::JustInTime,
            (false, _) if again[v.index()] => Placement::JustInTime,
            (true | false, _) => Placement::Eager,
        };
        sources[v.index()] = (from, ops);
    }
    placement
}

/// Broadcasts of narrower values, with little arithmetic.
struct Repeats<'f, 'a> {
    aliases: &'f AliasAnalysis<'a>,
    /// The sources of each broadcast value, and its number of operations.
    of: Vec<Option<(BTreeSet<Value>, usize)>>,
}

impl<'f, 'a> Repeats<'f, 'a> {
    fn new(aliases: &'f AliasAnalysis<'a>, nodes: &[Value]) -> Self {
        let mut of: Vec<Option<(BTreeSet<Value>, usize)>> = vec![None; aliases.flow.values.len()];
        for &v in nodes {
            let node = aliases.flow.value(v);
            let arithmetic = matches!(node.op, Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul));
            let repeating = arithmetic || matches!(node.op, Op::OneHot { .. } | Op::Broadcast(_));
            if !repeating || aliases.is_output(v) {
                continue;
            }
            let (mut from, mut ops) = (BTreeSet::new(), 1);
            for arg in node.args.iter().map(|&arg| aliases.storage_of(arg)) {
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
        Self { aliases, of }
    }

    /// Is a value much wider than all its sources together?
    fn narrower(&self, v: Value) -> bool {
        let width = |value: Value| self.aliases.width(value).as_fixed();
        let Some((from, _)) = &self.of[v.index()] else { return false };
        let together: Option<usize> = from.iter().map(|&source| width(source)).sum();
        together.zip(width(v)).is_some_and(|(from, own)| REPEATS * from <= own)
    }
}

/// Marks backward values that rematerialize forward values: the same operation on the same operands, or on copies of
/// them. They could start at any time.
fn computed_again(aliases: &AliasAnalysis<'_>) -> Vec<bool> {
    let flow = aliases.flow;
    // The forward value that each value copies, and the forward values by operation and operands.
    let mut original: Vec<Value> = flow.handles().collect();
    let mut known: FxHashMap<_, Vec<Value>> = FxHashMap::default();
    for value in flow.handles() {
        let node = flow.value(value);
        let args: Vec<Value> = node.args.iter().map(|&arg| original[arg.index()]).collect();
        let alike = known.entry((discriminant(&node.op), node.op.attribute(), args)).or_default();
        let first = alike.iter().copied().find(|&other| flow.value(other).op == node.op);
        match (node.phase, first) {
            (Phase::Forward, None) => alike.push(value),
            (Phase::Backward | Phase::Update, Some(first)) => original[value.index()] = first,
            (Phase::Forward, Some(_)) | (Phase::Backward | Phase::Update, None) => {}
        }
    }
    flow.handles().map(|value| original[value.index()] != value).collect()
}

/// Is a value element-wise, or a change of shape?
fn is_cheap(aliases: &AliasAnalysis<'_>, v: Value) -> bool {
    let node = aliases.flow.value(v);
    match &node.op {
        // A product with few terms per element; with one term, a scaling.
        Op::MatMul { batch } | Op::MatMulT { batch } if aliases.topology(node.args[0]).is_none() => {
            let of = aliases.extents(aliases.flow.ty(node.args[1]), *batch);
            let terms = if matches!(node.op, Op::MatMul { .. }) { of.k } else { of.n };
            terms.as_fixed().is_some_and(|terms| terms <= MOST_TERMS)
        }
        Op::OneHot { .. } | Op::Slice { .. } => true,
        op => matches!(op.class(), OpClass::Elementwise | OpClass::Random),
    }
}
