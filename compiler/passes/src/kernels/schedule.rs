//! Groups operations into kernels, in an order that respects their dependencies: what is fused with what.
//!
//! Edge values belong to no group: every traversal recomputes those that it needs from stored values, which
//! is what keeps them out of memory. A value of the rows of a traversal may be used in the traversal that
//! computes it, but only at its own row: a gather from the other end waits for the next kernel.
//!
//! Dense products with small weights, and the gradients of these, belong to the rows that they read; with large ones they
//! are kernels of their own. Where a back end has tiles, a large product of rows that are not too wide begins a group, which
//! what follows from it joins (bias, activation, attention scores), or joins the group that computes its operand.
//!
//! Greedy: among what can start, unit values first, then maps over vertices, large dense products, and last the
//! traversals, so that a traversal finds as many of its reductions ready as possible. Groups do not mix
//! phases, so that times can be told apart, with one exception: the gradient of a sparse projection, whose rows are the
//! rows of its weight, takes the weight's update along. The gradient then never meets memory. What such updates need
//! besides, an optimiser's numbers that depend on the step alone, is computed first.
//!
//! [`super::late`] names values that are cheaper to compute late than to keep. Those that only their own rows read are
//! computed by every group that reads them; the others, right before the first group that needs them in memory.

use std::collections::{BTreeSet, HashSet};

use hgnnc_ir::kernel::{Extents, Paths, Width};
use hgnnc_ir::{Direction, Graph, Op, PathTerm, Phase, Space, Value};

use super::facts::{Facts, Topology};
use super::late::{Late, find_late};
use super::ready::Worklists;
use super::{Decision, LowerForm};

/// What the members of a group share.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    /// Unit values, one row.
    Unit,
    /// Unit values of this many elements, taken as that many rows of width 1.
    Elements(Width),
    /// Rows of a vertex type, or of the leading dimension of parameters.
    Map(Space),
    /// A dense product with a large weight, over all rows.
    Product(Value),
    /// Rows of a topology with their edges.
    Edges(Topology, Direction),
    /// The distinct ends of a graph, with their edges where something needs them.
    Ends(Graph, Direction),
    /// Sums over paths.
    Paths(Scored),
}

/// What sums over paths of one kernel share.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Scored {
    first: Graph,
    second: Graph,
    direction: Direction,
    /// Bits of the slope.
    slope: u64,
    x: Value,
    y: Value,
    /// Sums for sources have one norm, which the ends that are sorted have.
    n: Option<Value>,
}

/// Operations executed together, in SSA order.
#[derive(Debug)]
pub(super) struct Group {
    pub kind: Kind,
    /// What it computes is of this phase, but for what it computes for itself.
    pub phase: Phase,
    pub members: Vec<Value>,
}

/// Unit values of more elements than this are worth several threads.
const LARGE_UNIT: usize = 4096;

fn is_small(weight: &Extents, most: usize) -> bool {
    weight.all().as_fixed().is_some_and(|len| len <= most)
}

/// All groups: first those that run once, then those of each run. Values that are to be `apart` have groups of their own.
pub(super) fn schedule(facts: &Facts<'_>, form: LowerForm, apart: &HashSet<Value>) -> (Vec<Group>, Vec<Group>) {
    let nodes: Vec<Value> = facts
        .flow
        .handles()
        .filter(|&v| facts.root(v) == v && facts.is_live(v) && !facts.is_leaf(v))
        // Edge values belong to the regions that use them, unless they are results.
        .filter(|&v| facts.topology(v).is_none() || facts.is_output(v))
        .collect();
    let count = facts.flow.values.len();
    let lists = Worklists::default();
    let (done, kinds, tiled) = (vec![false; count], vec![vec![]; count], vec![false; count]);
    let mut scheduler = Scheduler { facts, form, apart, done, kinds, tiled, late: vec![], lists };
    for &v in &nodes {
        scheduler.tiled[v.index()] = scheduler.in_tiles(v);
        scheduler.kinds[v.index()] = scheduler.kinds_of(v);
    }
    scheduler.late = match form.without.has(Decision::ComputeLate) {
        false => find_late(facts, &nodes, &scheduler.kinds),
        true => vec![Late::No; count],
    };
    scheduler.lists = Worklists::new(facts, &nodes, &scheduler.kinds, &scheduler.late);
    let (fixed, varying): (Vec<Value>, Vec<Value>) = nodes.into_iter().partition(|&v| form.keeps && facts.is_fixed(v));
    (scheduler.groups(fixed), scheduler.groups(varying))
}

pub(super) struct Scheduler<'f, 'a> {
    pub facts: &'f Facts<'a>,
    pub form: LowerForm,
    /// What has a group of its own.
    pub apart: &'f HashSet<Value>,
    pub done: Vec<bool>,
    /// The kinds of groups that an operation can be in, the best first.
    pub kinds: Vec<Vec<Kind>>,
    /// Products that are computed for tiles of rows, with what is around them.
    pub tiled: Vec<bool>,
    /// What is computed late.
    pub late: Vec<Late>,
    /// What waits for what, and what can start.
    pub lists: Worklists,
}

/// A group that can start.
struct Start {
    phase: Phase,
    kind: Kind,
    /// A late value that is to be stored.
    stores: Option<Value>,
    /// The product in tiles that it is for.
    product: Option<Value>,
}

/// Columns of all operands and results of products that a group computes in tiles: the memory of a tile is limited.
const MOST_TILE_COLUMNS: usize = 256;

impl Scheduler<'_, '_> {
    fn groups(&mut self, mut pending: Vec<Value>) -> Vec<Group> {
        // What every reader computes for itself has no group of its own.
        pending.retain(|&v| self.late[v.index()] != Late::Inline);
        self.begin(&pending);
        let mut remaining = pending.len();
        let mut groups = vec![];
        while remaining > 0 {
            let start = self.next();
            let mut members = self.grow(&start);
            assert!(!members.is_empty(), "internal error: nothing can be computed next");
            self.take_updates(&start.kind, &mut members);
            self.finish(&members);
            remaining -= members.len();
            self.add_inline(&mut members);
            groups.push(Group { kind: start.kind, phase: start.phase, members });
        }
        groups
    }

    /// The group to start now.
    fn next(&self) -> Start {
        if !self.lists.early().is_empty() {
            return Start { phase: Phase::Update, kind: Kind::Unit, stores: None, product: None };
        }
        let (phase, v) = self.lists.first().expect("the first pending operation has all its operands, or late ones");
        let kinds = &self.kinds[v.index()];
        match kinds.iter().find(|kind| self.lists.has_all(v) && self.fits(v, kind, &HashSet::new())) {
            Some(kind) => Start { phase, kind: kind.clone(), stores: None, product: self.product(v) },
            // What it waits for are late values only.
            None => {
                let late = self.awaited(v);
                let kind = self.kinds[late.index()][0].clone();
                Start {
                    phase: self.facts.flow.value(late).phase,
                    kind,
                    stores: Some(late),
                    product: self.product(late),
                }
            }
        }
    }

    /// A late value that can be computed now, where an operation waits for nothing but late values.
    fn awaited(&self, mut v: Value) -> Value {
        while let Some(first) = self.lists.awaited(v) {
            v = first;
        }
        v
    }

    /// Adds what the members compute for themselves, in SSA order.
    fn add_inline(&self, members: &mut Vec<Value>) {
        let mut known: HashSet<Value> = members.iter().copied().collect();
        let mut pending = members.clone();
        while let Some(value) = pending.pop() {
            for &arg in &self.facts.flow.value(value).args {
                let root = self.facts.root(arg);
                if self.late[root.index()] == Late::Inline && known.insert(root) {
                    members.push(root);
                    pending.push(root);
                }
            }
        }
        members.sort();
    }

    /// All pending operations of a phase that a group of this kind can take.
    fn grow(&self, start: &Start) -> Vec<Value> {
        let Start { phase, kind, stores, product } = start;
        if let Kind::Product(value) = kind {
            return vec![*value];
        }
        let mut members = vec![];
        let mut known = HashSet::new();
        let mut edge_outer = 0;
        let early = *kind == Kind::Unit && !self.lists.early().is_empty();
        // In SSA order: what has all its operands, then also what reads the members.
        let mut candidates = if early { self.lists.early().clone() } else { self.lists.ready(*phase, kind) };
        candidates.extend(stores);
        while let Some(v) = candidates.pop_first() {
            let node = self.facts.flow.value(v);
            if node.phase != *phase || !self.lists.is_pending(v) {
                continue;
            }
            let late = self.late[v.index()] != Late::No && *stores != Some(v);
            if late && !self.at_hand(v, &known) {
                continue;
            }
            let kinds = &self.kinds[v.index()];
            let own = kinds.contains(kind) && (!early || self.lists.early().contains(&v));
            // What follows from the rows of a traversal is computed while they are at hand.
            let follows = || match kind {
                Kind::Edges(topology, direction) => {
                    let space = self.facts.row_space(*topology, *direction);
                    // Rows of ends are found from those of vertices, but not from those of a sparse matrix.
                    let ends = matches!(node.op, Op::Replace(..) | Op::AddEnds(_));
                    let found = !ends || matches!(topology, Topology::Graph(_));
                    found
                        && space.is_some_and(|space| kinds.contains(&Kind::Map(space)))
                        && node.args.iter().any(|&a| self.touches(a, &known))
                }
                Kind::Unit | Kind::Elements(_) | Kind::Map(_) | Kind::Product(_) | Kind::Ends(..) | Kind::Paths(_) => {
                    false
                }
            };
            let joins = !self.tiled[v.index()] || *product == Some(v) || self.joins_tiles(v, kind, &known);
            let full = matches!(kind, Kind::Paths(_)) && members.len() == Paths::MOST_SUMS;
            let alone = !members.is_empty() && self.is_alone(v, members[0], kind, own);
            if (own || follows())
                && !alone
                && joins
                && !full
                && self.adds_up(v, edge_outer)
                && self.fits(v, kind, &known)
            {
                members.push(v);
                known.insert(v);
                edge_outer += self.edge_outer(v);
                candidates.extend(self.lists.readers(v));
            }
        }
        members
    }

    /// Is an operation not to join the group of another one, because that is left out? `own`: the group is of its kind.
    fn is_alone(&self, v: Value, other: Value, kind: &Kind, own: bool) -> bool {
        let decision = match kind {
            Kind::Edges(..) | Kind::Ends(..) | Kind::Paths(_) if own => Decision::FuseEdges,
            Kind::Edges(..) => Decision::FollowEdges,
            Kind::Unit | Kind::Elements(_) | Kind::Map(_) | Kind::Product(_) | Kind::Ends(..) | Kind::Paths(_) => {
                Decision::FuseRows
            }
        };
        self.form.without.has(decision) || self.apart.contains(&v) || self.apart.contains(&other)
    }

    /// Elements of a gradient of weights that is added up over edges; 0 for any other value.
    fn edge_outer(&self, v: Value) -> usize {
        let facts = self.facts;
        match facts.flow.value(v).op {
            Op::Outer { .. } if matches!(facts.topology(facts.flow.value(v).args[0]), Some(Topology::Graph(_))) => {
                facts.width(v).as_fixed().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Has a group with an operation no more gradients of weights to add up over edges than the back end can? `others`: the
    /// elements of those that it has.
    fn adds_up(&self, v: Value, others: usize) -> bool {
        let own = self.edge_outer(v);
        own == 0 || others == 0 || own + others <= self.form.edge_outer
    }

    fn product(&self, v: Value) -> Option<Value> {
        self.tiled[v.index()].then_some(v)
    }

    /// Does a group compute the operand of a product in tiles, and has it room for it?
    fn joins_tiles(&self, v: Value, kind: &Kind, members: &HashSet<Value>) -> bool {
        let columns = || members.iter().chain([&v]).map(|&member| self.tile_columns(member, members)).sum::<usize>();
        let operand = self.facts.flow.value(v).args[0];
        matches!(kind, Kind::Map(_)) && self.touches(operand, members) && columns() <= MOST_TILE_COLUMNS
    }

    /// Columns that a tile has for a product: of its result, and of its operand if the group computes it.
    fn tile_columns(&self, v: Value, members: &HashSet<Value>) -> usize {
        if !self.tiled[v.index()] {
            return 0;
        }
        let operand = self.facts.flow.value(v).args[0];
        let width = |value: Value| self.facts.width(value).as_fixed().unwrap_or(0);
        width(v) + if self.touches(operand, members) { width(operand) } else { 0 }
    }

    /// Is it a product that the back end computes for tiles of rows?
    fn in_tiles(&self, v: Value) -> bool {
        let facts = self.facts;
        let node = facts.flow.value(v);
        let (Op::MatMul { batch } | Op::MatMulT { batch }) = node.op else { return false };
        if facts.topology(node.args[0]).is_some() || !matches!(node.ty.space, Space::Vertices(_)) {
            return false;
        }
        let of = facts.extents(facts.flow.ty(node.args[1]), batch);
        let narrow = |value: Value| facts.width(value).as_fixed().is_some_and(|width| width <= self.form.tile_width);
        // A row that is in memory may be of any length.
        let operand = facts.root(node.args[0]);
        let is_row = narrow(operand) || matches!(facts.flow.value(operand).op, Op::Input(_));
        narrow(v) && is_row && !of.n.is_one() && !is_small(&of, self.form.row_weight)
    }

    /// Takes the updates of weights along whose gradients a group computes row by row.
    fn take_updates(&self, kind: &Kind, members: &mut Vec<Value>) {
        let facts = self.facts;
        let left_out = self.form.without.has(Decision::FuseUpdates) || members.iter().any(|v| self.apart.contains(v));
        if left_out || !matches!(kind, Kind::Edges(Topology::Pattern(_), Direction::Out)) {
            return;
        }
        let gradients: HashSet<Kind> = members
            .iter()
            .filter(|&&v| matches!(facts.flow.value(v).op, Op::Outer { .. }))
            .map(|&v| Kind::Elements(facts.width(v)))
            .collect();
        let mut known: HashSet<Value> = members.iter().copied().collect();
        let mut queue: BTreeSet<Value> =
            gradients.iter().flat_map(|kind| self.lists.ready(Phase::Update, kind)).collect();
        queue.extend(members.iter().flat_map(|&member| self.lists.readers(member)));
        let mut candidates = vec![];
        while let Some(v) = queue.pop_first() {
            if self.lists.is_pending(v)
                && facts.flow.value(v).phase == Phase::Update
                && self.kinds[v.index()].iter().any(|kind| gradients.contains(kind))
                && self.fits(v, kind, &known)
                && self.may_replace(v, &known)
            {
                candidates.push(v);
                known.insert(v);
                queue.extend(self.lists.readers(v));
            }
        }
        // Those that follow from a gradient of the group, and those that they need.
        let mut wanted: HashSet<Value> = members.iter().copied().collect();
        let roots = |v: Value| facts.flow.value(v).args.iter().map(|&arg| facts.root(arg));
        for &v in &candidates {
            if roots(v).any(|root| wanted.contains(&root)) {
                wanted.insert(v);
            }
        }
        for &v in candidates.iter().rev() {
            if wanted.contains(&v) {
                wanted.extend(roots(v));
            }
        }
        members.extend(candidates.into_iter().filter(|v| wanted.contains(v)));
    }

    /// Would the new value of a parameter or state find the old one unused, but by the group itself?
    fn may_replace(&self, v: Value, members: &HashSet<Value>) -> bool {
        let later = |&reader: &Value| {
            // What is computed where it is used has no group of its own.
            let everywhere = self.facts.topology(reader).is_some() || self.late[reader.index()] == Late::Inline;
            everywhere || (self.lists.is_pending(reader) && reader != v && !members.contains(&reader))
        };
        !self.lists.readers_of_old(v).any(later)
    }

    /// Is a value computed by the group, or for each reader from such a value?
    fn touches(&self, arg: Value, members: &HashSet<Value>) -> bool {
        !self.behind(self.facts.root(arg), members).is_empty()
    }

    /// The members of a group that a value is, or is computed from where each reader computes it for itself.
    fn behind(&self, root: Value, members: &HashSet<Value>) -> Vec<Value> {
        let mut found = vec![];
        let mut pending = vec![root];
        let mut seen = HashSet::from([root]);
        while let Some(root) = pending.pop() {
            if members.contains(&root) {
                found.push(root);
            } else if self.late[root.index()] == Late::Inline {
                let args = self.facts.flow.value(root).args.iter().map(|&arg| self.facts.root(arg));
                pending.extend(args.filter(|&arg| seen.insert(arg)));
            }
        }
        found
    }

    /// Is a late value no larger than an operand that the group computes? Then it is computed with it.
    fn at_hand(&self, v: Value, members: &HashSet<Value>) -> bool {
        let width = self.facts.width(v).as_fixed();
        width.is_some() && self.width_at_hand(v, members) >= width
    }

    /// The most elements of an operand that the group computes, be it one of a value that each reader computes for itself.
    fn width_at_hand(&self, v: Value, members: &HashSet<Value>) -> Option<usize> {
        let roots = self.facts.flow.value(v).args.iter().map(|&arg| self.facts.root(arg));
        let found = roots.flat_map(|root| self.behind(root, members));
        found.filter_map(|root| self.facts.width(root).as_fixed()).max()
    }

    /// The kinds of groups that an operation can be in, the best first.
    fn kinds_of(&self, v: Value) -> Vec<Kind> {
        let facts = self.facts;
        let node = facts.flow.value(v);
        if let Some(topology) = facts.topology(v) {
            // A result: its rows are the edges in CSC order.
            return vec![Kind::Edges(topology, Direction::In)];
        }
        let by_space = || match node.ty.space {
            Space::Unit => {
                let len = facts.width(v);
                let flat =
                    |&a: &Value| facts.flow.ty(a).is_unit() && (facts.width(a) == len || facts.width(a).is_one());
                let element_wise =
                    matches!(node.op, Op::Unary(_) | Op::Binary(_) | Op::RandomMask { .. } | Op::Broadcast(_));
                // A table with a row per vertex is taken to be large.
                let large = len.as_fixed().is_none_or(|len| len > LARGE_UNIT);
                if large && element_wise && node.args.iter().all(flat) { Kind::Elements(len) } else { Kind::Unit }
            }
            space @ (Space::Vertices(_) | Space::Edges(_) | Space::Index(_)) => Kind::Map(space),
            Space::Ends(graph, direction) => Kind::Ends(graph, direction),
        };
        let arg_space = |i: usize| facts.flow.ty(node.args[i]).space;
        match &node.op {
            Op::Segment { graph, direction, .. } | Op::SegmentArg { graph, direction, .. } => {
                vec![Kind::Edges(Topology::Graph(*graph), *direction)]
            }
            Op::SegmentEnds { graph, direction, .. } => vec![Kind::Ends(*graph, *direction)],
            Op::Paths(sum) => {
                let root = |i: usize| facts.root(node.args[i]);
                vec![Kind::Paths(Scored {
                    first: sum.first,
                    second: sum.second,
                    direction: sum.direction,
                    slope: sum.slope.to_bits(),
                    x: root(0),
                    y: root(1),
                    n: (sum.direction == Direction::Out).then(|| root(2)),
                })]
            }
            Op::MatMul { batch } | Op::MatMulT { batch } => {
                if let Some(pattern) = facts.topology(node.args[0]) {
                    return vec![Kind::Edges(pattern, Direction::In)];
                }
                let of = facts.extents(facts.flow.ty(node.args[1]), *batch);
                if self.tiled[v.index()] {
                    return vec![by_space()];
                }
                // A product with one column is a row-wise dot product or scaling.
                let with_rows = of.n.is_one() || node.ty.is_unit() || is_small(&of, self.form.row_weight);
                if with_rows { vec![by_space()] } else { vec![Kind::Product(v)] }
            }
            Op::Outer { batch } => {
                if let Some(topology) = facts.topology(node.args[0]) {
                    return if matches!(topology, Topology::Pattern(_)) {
                        vec![Kind::Edges(topology, Direction::Out)]
                    } else {
                        vec![Kind::Edges(topology, Direction::In), Kind::Edges(topology, Direction::Out)]
                    };
                }
                let of = facts.extents(&node.ty, *batch);
                match arg_space(0) {
                    space @ (Space::Vertices(_) | Space::Index(_)) if is_small(&of, self.form.row_outer) => {
                        vec![Kind::Map(space)]
                    }
                    Space::Ends(graph, direction) if is_small(&of, self.form.row_outer) => {
                        vec![Kind::Ends(graph, direction)]
                    }
                    _ => vec![Kind::Product(v)],
                }
            }
            Op::ReduceSpace(_) => match facts.topology(node.args[0]) {
                Some(topology) => vec![Kind::Edges(topology, Direction::In), Kind::Edges(topology, Direction::Out)],
                None => vec![match arg_space(0) {
                    Space::Ends(graph, direction) => Kind::Ends(graph, direction),
                    space => Kind::Map(space),
                }],
            },
            Op::ReduceTrailing { .. } => match facts.topology(node.args[0]) {
                Some(pattern) => vec![Kind::Edges(pattern, Direction::In)],
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
            | Op::Rows
            | Op::Unrows
            | Op::Select(..)
            | Op::Replace(..)
            | Op::AddEnds(_)
            | Op::GatherSrc(_)
            | Op::GatherDst(_) => vec![by_space()],
        }
    }

    /// Can a group of this kind with these members compute `v` next?
    pub fn fits(&self, v: Value, kind: &Kind, members: &HashSet<Value>) -> bool {
        let mut seen = HashSet::new();
        let mut pending = vec![v];
        while let Some(v) = pending.pop() {
            if !self.operands_available(v, kind, members, |computed| {
                if seen.insert(computed) {
                    pending.push(computed);
                }
            }) {
                return false;
            }
        }
        true
    }

    /// Are the operands of an operation stored, or at hand where the operation reads them? Those that the group would compute
    /// for it are named: their operands are to be available too.
    fn operands_available(
        &self,
        v: Value,
        kind: &Kind,
        members: &HashSet<Value>,
        mut computed: impl FnMut(Value),
    ) -> bool {
        let facts = self.facts;
        let node = facts.flow.value(v);
        if let Op::Paths(_) = node.op {
            // Of another row they meet stored values, of their own also a logarithm that is made with them.
            let made = |value: Value| {
                let root = facts.root(value);
                members.contains(&root)
                    && matches!(facts.flow.value(root).op, Op::Paths(sum) if sum.term == PathTerm::Lse)
            };
            return node.args.iter().enumerate().all(|(i, &arg)| self.stored(arg) || i == 2 && made(arg));
        }
        // Reads from the other end of an edge, or from any row, meet only stored values.
        let foreign = |arg: Value| match (&node.op, kind) {
            (Op::GatherSrc(_), Kind::Edges(_, direction) | Kind::Ends(_, direction)) => *direction == Direction::In,
            (Op::GatherDst(_), Kind::Edges(_, direction) | Kind::Ends(_, direction)) => *direction == Direction::Out,
            _ => node.ty.is_sparse() && facts.topology(arg).is_none() && !facts.flow.ty(arg).dims.is_empty(),
        };
        node.args
            .iter()
            .all(|&a| if foreign(a) { self.stored(a) } else { self.available(a, kind, members, &mut computed) })
    }

    /// Is an operand stored, or at hand in the group at its own row, or `computed` there?
    fn available(&self, arg: Value, kind: &Kind, members: &HashSet<Value>, computed: &mut impl FnMut(Value)) -> bool {
        let facts = self.facts;
        let root = facts.root(arg);
        if facts.is_leaf(root) || self.done[root.index()] {
            return true;
        }
        if facts.topology(root).is_some() {
            computed(root);
            return true;
        }
        let space = facts.flow.ty(arg).space;
        let own_space = match kind {
            Kind::Unit | Kind::Elements(_) => space == Space::Unit,
            Kind::Map(rows) => space == *rows,
            // Columns have the rows of a weight, which is a unit value.
            Kind::Edges(Topology::Pattern(_), Direction::Out) => {
                space == Space::Unit && !matches!(facts.flow.value(root).op, Op::ReduceSpace(_))
            }
            Kind::Edges(topology, direction) => facts.row_space(*topology, *direction) == Some(space),
            Kind::Ends(graph, direction) => space == Space::Ends(*graph, *direction),
            Kind::Product(_) | Kind::Paths(_) => false,
        };
        // A reduction over the rows of the group is complete only after it, and is a unit value: in a group
        // of vertex rows it never has the space of the rows, except seen through `Rows`, which is refused.
        if !own_space || facts.flow.ty(root).space != space {
            return false;
        }
        match self.late[root.index()] {
            Late::Inline => {
                computed(root);
                true
            }
            Late::No | Late::Stored => members.contains(&root),
        }
    }

    fn stored(&self, arg: Value) -> bool {
        let root = self.facts.root(arg);
        self.facts.is_leaf(root) || self.done[root.index()]
    }
}

impl Scheduler<'_, '_> {
    /// The rank of an operation in groups of a kind.
    pub fn rank(&self, v: Value, kind: &Kind) -> u32 {
        if self.tiled[v.index()] { rank(&Kind::Product(v)) } else { rank(kind) }
    }
}

/// After all kinds of groups.
pub(super) const PATIENT: u32 = 5;

/// The order in which groups start, within a phase.
fn rank(kind: &Kind) -> u32 {
    match kind {
        Kind::Unit => 0,
        Kind::Elements(_) => 1,
        Kind::Map(_) => 2,
        Kind::Product(_) => 3,
        Kind::Edges(..) | Kind::Ends(..) | Kind::Paths(_) => 4,
    }
}
