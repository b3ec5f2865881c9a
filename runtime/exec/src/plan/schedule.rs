//! Groups operations into regions and products, in an order that respects their dependencies.
//!
//! Edge values belong to no group: every region recomputes those that it needs from stored values, which
//! is what keeps them out of memory. A value of the rows of a region may be used in the region that
//! computes it, but only at its own row: a gather from the other end waits for the next step.
//!
//! Greedy: among what can start, unit values first, then maps over vertices, dense products, and last the
//! traversals, so that a traversal finds as many of its reductions ready as possible. Groups never mix
//! phases, so that times can be told apart.

use std::collections::HashSet;

use hgnnc_ir::ops::{Direction, Op};
use hgnnc_ir::types::{Phase, Space, Value};

use super::facts::Facts;

/// What the members of a group share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Kind {
    /// Unit values, one row.
    Unit,
    /// Unit values of this many elements, taken as that many rows of width 1.
    Elements(usize),
    /// Rows of a vertex type.
    Map(Space),
    /// A dense product over all rows.
    Product(Value),
    /// Rows of a topology with their edges.
    Edges(usize, bool),
}

impl Kind {
    pub fn direction(out: bool) -> Direction {
        if out { Direction::Out } else { Direction::In }
    }
}

/// Operations executed together, in SSA order.
#[derive(Debug)]
pub(super) struct Group {
    pub kind: Kind,
    pub members: Vec<Value>,
}

/// Unit values of more elements than this are worth several threads.
const LARGE_UNIT: usize = 4096;

/// All groups: first those that run once, then those of each run.
pub(super) fn schedule(facts: &Facts<'_>) -> (Vec<Group>, Vec<Group>) {
    let nodes: Vec<Value> = facts
        .flow
        .handles()
        .filter(|&v| facts.root(v) == v && facts.is_live(v) && !facts.is_leaf(v))
        // Edge values belong to the regions that use them, unless they are results.
        .filter(|&v| facts.topology(v).is_none() || facts.is_output(v))
        .collect();
    let mut scheduler = Scheduler { facts, done: vec![false; facts.flow.values.len()] };
    let (fixed, varying): (Vec<Value>, Vec<Value>) = nodes.into_iter().partition(|&v| facts.is_fixed(v));
    (scheduler.groups(fixed), scheduler.groups(varying))
}

struct Scheduler<'f, 'a> {
    facts: &'f Facts<'a>,
    done: Vec<bool>,
}

impl Scheduler<'_, '_> {
    fn groups(&mut self, mut pending: Vec<Value>) -> Vec<Group> {
        let mut groups = vec![];
        while !pending.is_empty() {
            let (phase, kind) = self.next_kind(&pending);
            let members = self.grow(phase, kind, &pending);
            for member in &members {
                self.done[member.index()] = true;
            }
            pending.retain(|v| !self.done[v.index()]);
            groups.push(Group { kind, members });
        }
        groups
    }

    /// Phase and kind of the group to start now.
    fn next_kind(&self, pending: &[Value]) -> (Phase, Kind) {
        let none = HashSet::new();
        let phase = |v: Value| self.facts.flow.value(v).phase;
        pending
            .iter()
            .filter_map(|&v| {
                let kinds = self.kinds(v);
                let ready = kinds.iter().find(|&&kind| self.fits(v, kind, &none));
                ready.map(|&kind| ((phase(v), rank(kind), v), kind))
            })
            .min_by_key(|&(key, _)| key)
            .map(|((phase, ..), kind)| (phase, kind))
            .expect("in SSA order the first pending operation has all its operands")
    }

    /// All pending operations of a phase that a group of this kind can take.
    fn grow(&self, phase: Phase, kind: Kind, pending: &[Value]) -> Vec<Value> {
        if let Kind::Product(value) = kind {
            return vec![value];
        }
        let mut members = vec![];
        let mut known = HashSet::new();
        for &v in pending {
            let node = self.facts.flow.value(v);
            if node.phase != phase {
                continue;
            }
            let kinds = self.kinds(v);
            let own = kinds.contains(&kind);
            // What follows from the rows of a traversal is computed while they are at hand.
            let follows = || match kind {
                Kind::Edges(topology, out) => {
                    let space = self.facts.row_space(topology, Kind::direction(out));
                    space.is_some_and(|space| kinds.contains(&Kind::Map(space)))
                        && node.args.iter().any(|&a| known.contains(&self.facts.root(a)))
                }
                Kind::Unit | Kind::Elements(_) | Kind::Map(_) | Kind::Product(_) => false,
            };
            if (own || follows()) && self.fits(v, kind, &known) {
                members.push(v);
                known.insert(v);
            }
        }
        members
    }

    /// The kinds of groups that an operation can be in, the best first.
    fn kinds(&self, v: Value) -> Vec<Kind> {
        let facts = self.facts;
        let node = facts.flow.value(v);
        if let Some(topology) = facts.topology(v) {
            // A result: its rows are the edges in CSC order.
            return vec![Kind::Edges(topology, false)];
        }
        let by_space = || match node.ty.space {
            Space::Unit => {
                let len = facts.len(v);
                let flat = node
                    .args
                    .iter()
                    .all(|&a| facts.flow.ty(a).is_unit() && (facts.width(a) == len || facts.width(a) == 1));
                let element_wise =
                    matches!(node.op, Op::Unary(_) | Op::Binary(_) | Op::RandomMask { .. } | Op::Broadcast(_));
                if len > LARGE_UNIT && flat && element_wise { Kind::Elements(len) } else { Kind::Unit }
            }
            space @ (Space::Vertices(_) | Space::Edges(_)) => Kind::Map(space),
        };
        let arg_space = |i: usize| facts.flow.ty(node.args[i]).space;
        match &node.op {
            Op::Segment { graph, direction, .. } => vec![Kind::Edges(graph.index(), *direction == Direction::Out)],
            Op::MatMul { batch } | Op::MatMulT { batch } => {
                if let Some(pattern) = facts.topology(node.args[0]) {
                    return vec![Kind::Edges(pattern, false)];
                }
                let of = facts.extents(facts.flow.ty(node.args[1]), *batch);
                // A product with one column is a row-wise dot product or scaling.
                if of.n == 1 || node.ty.is_unit() { vec![by_space()] } else { vec![Kind::Product(v)] }
            }
            Op::Outer { batch } => {
                if let Some(topology) = facts.topology(node.args[0]) {
                    return if facts.is_pattern(topology) {
                        vec![Kind::Edges(topology, true)]
                    } else {
                        vec![Kind::Edges(topology, false), Kind::Edges(topology, true)]
                    };
                }
                let of = facts.extents(&node.ty, *batch);
                match arg_space(0) {
                    space @ Space::Vertices(_) if of.n == 1 && of.k * of.batch <= 1024 => vec![Kind::Map(space)],
                    Space::Unit | Space::Vertices(_) | Space::Edges(_) => vec![Kind::Product(v)],
                }
            }
            Op::ReduceSpace(_) => match facts.topology(node.args[0]) {
                Some(topology) => vec![Kind::Edges(topology, false), Kind::Edges(topology, true)],
                None => vec![Kind::Map(arg_space(0))],
            },
            Op::ReduceTrailing { .. } => match facts.topology(node.args[0]) {
                Some(pattern) => vec![Kind::Edges(pattern, false)],
                None => vec![by_space()],
            },
            Op::Input(_)
            | Op::Param(_)
            | Op::State(..)
            | Op::Const(_)
            | Op::Count(_)
            | Op::RandomMask { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Broadcast(_)
            | Op::StopGradient
            | Op::Reshape(_)
            | Op::Concat
            | Op::Slice { .. }
            | Op::OneHot { .. }
            | Op::Rows(_)
            | Op::Unrows
            | Op::GatherSrc(_)
            | Op::GatherDst(_) => vec![by_space()],
        }
    }

    /// Can a group of this kind with these members compute `v` next?
    fn fits(&self, v: Value, kind: Kind, members: &HashSet<Value>) -> bool {
        let mut seen = HashSet::new();
        // Values by columns of a sparse matrix meet only stored values.
        self.facts.flow.value(v).args.iter().all(|&a| self.available(a, kind, members, &mut seen))
    }

    /// Is an operand stored, or at hand in the group at its own row?
    fn available(&self, arg: Value, kind: Kind, members: &HashSet<Value>, seen: &mut HashSet<Value>) -> bool {
        let facts = self.facts;
        let root = facts.root(arg);
        if facts.is_leaf(root) || self.done[root.index()] {
            return true;
        }
        if facts.topology(root).is_some() {
            if !seen.insert(root) {
                return true;
            }
            let node = facts.flow.value(root);
            let foreign = match (&node.op, kind) {
                (Op::GatherSrc(_), Kind::Edges(_, out)) => !out,
                (Op::GatherDst(_), Kind::Edges(_, out)) => out,
                _ => false,
            };
            return node.args.iter().all(
                |&a| {
                    if foreign { self.stored(a) } else { self.available(a, kind, members, seen) }
                },
            );
        }
        let space = facts.flow.ty(arg).space;
        let own_space = match kind {
            Kind::Unit | Kind::Elements(_) => space == Space::Unit,
            Kind::Map(rows) => space == rows,
            Kind::Edges(topology, out) => facts.row_space(topology, Kind::direction(out)) == Some(space),
            Kind::Product(_) => false,
        };
        // A reduction over the rows of the group is complete only after it, and is a unit value: in a group
        // of vertex rows it never has the space of the rows, except seen through `Rows`, which is refused.
        own_space && members.contains(&root) && facts.flow.ty(root).space == space
    }

    fn stored(&self, arg: Value) -> bool {
        let root = self.facts.root(arg);
        self.facts.is_leaf(root) || self.done[root.index()]
    }
}

fn rank(kind: Kind) -> u32 {
    match kind {
        Kind::Unit => 0,
        Kind::Elements(_) => 1,
        Kind::Map(_) => 2,
        Kind::Product(_) => 3,
        Kind::Edges(..) => 4,
    }
}
