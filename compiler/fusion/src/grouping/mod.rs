//! The first step of lowering: groups operations into kernels, in an order that respects their dependencies.
//!
//! Edge values belong to no group: every traversal recomputes the edge values that it needs from stored values, so they
//! take no memory. A traversal may use the row values that it computes, but only at their own row: a gather from the
//! other end waits for the next kernel.
//!
//! Dense products with small weights, and the gradients of these weights, join the kernel of the rows that they read;
//! products with large weights are kernels of their own. Where a back end has tiles, a large product over rows of
//! limited width starts a group that its epilogue joins (bias, activation, attention scores), or it joins the group
//! that computes its operand.
//!
//! It is greedy: of the operations that can start, it takes unit values first, then maps over vertices,
//! large dense products, and traversals last, so that a traversal finds as many of its reductions ready as possible.
//! Groups do not mix phases, so that times can be attributed, with one exception: the gradient of a sparse projection,
//! whose rows are the rows of its weight, is fused with the update of the weight, and is never stored. The scalars that
//! such an update needs, which depend on the step alone, are computed first.
//!
//! [`inline`] finds values that are cheaper to recompute or to sink than to keep. Values that are read at their
//! own rows only are recomputed by every group that reads them; the others are sunk to right before the first group
//! that reads them from memory.

mod inline;
mod worklist;

use std::collections::BTreeSet;

use hgnnc_analysis::aliases::{AliasAnalysis, Topology};
use hgnnc_ir::{Dataflow, Direction, MetapathTerm, Op, Phase, Space, Value};
use hgnnc_kernel_ir::kernel::{Extents, FactoredMetapath};
use rustc_hash::FxHashSet;

use crate::groups::{Group, Groups, Kind, Scored};
use crate::options::LoweringOptions;
use crate::rules::FusionRule;
use inline::{Placement, find_placements};
use worklist::Worklist;

/// Unit values of more elements than this are computed by several threads.
const LARGE_UNIT: usize = 4096;

fn is_small(weight: &Extents, most: usize) -> bool {
    weight.all().as_fixed().is_some_and(|len| len <= most)
}

/// The groups of a program, before values are stored. Each value of `unfused` has a group of its own.
pub(crate) fn group(aliases: &AliasAnalysis<'_>, options: LoweringOptions, unfused: &FxHashSet<Value>) -> Groups {
    let nodes: Vec<Value> = aliases
        .flow
        .handles()
        .filter(|&v| aliases.storage_of(v) == v && aliases.is_live(v) && !aliases.is_leaf(v))
        // Edge values belong to the groups that read them, unless they are results.
        .filter(|&v| aliases.topology(v).is_none() || aliases.is_output(v))
        .collect();
    let count = aliases.flow.values.len();
    let lists = Worklist::default();
    let (done, kinds, tiled) = (vec![false; count], vec![vec![]; count], vec![false; count]);
    let read_once = if options.lean { products_read_once(aliases) } else { vec![false; count] };
    let mut grouping = Grouping { aliases, options, unfused, done, kinds, read_once, tiled, placement: vec![], lists };
    for &v in &nodes {
        grouping.tiled[v.index()] = grouping.in_tiles(v);
        grouping.kinds[v.index()] = grouping.kinds_of(v);
    }
    grouping.placement = match options.disabled.contains(FusionRule::Inline) {
        false => find_placements(aliases, &nodes, &grouping.kinds, &grouping.read_once),
        true => vec![Placement::Eager; count],
    };
    grouping.lists = Worklist::new(aliases, &nodes, &grouping.kinds, &grouping.placement);
    let (fixed, varying): (Vec<Value>, Vec<Value>) =
        nodes.into_iter().partition(|&v| options.hoist_invariants && aliases.is_invariant(v));
    // Kernels of all layers read degrees: with kernels of their own, the order of the others is free.
    let degrees = if options.lean { degrees(aliases.flow) } else { vec![false; count] };
    let (first, rest): (Vec<Value>, Vec<Value>) = varying.into_iter().partition(|&v| degrees[v.index()]);
    let prelude = grouping.groups(fixed);
    let launches = [grouping.groups(first), grouping.groups(rest)].concat();
    Groups { prelude, launches, ..Groups::default() }
}

/// Marks degrees: reductions of one constant over the edges of a vertex, and element-wise functions of degrees and
/// constants, such as their reciprocals.
fn degrees(flow: &Dataflow) -> Vec<bool> {
    let mut found = vec![false; flow.values.len()];
    for v in flow.handles() {
        let data = flow.value(v);
        let number = |arg: &Value| matches!(flow.value(*arg).op, Op::Const(_));
        let of_degrees = |arg: &Value| found[arg.index()] || number(arg);
        found[v.index()] = match data.op {
            Op::Segment { .. } => {
                let edges = flow.value(data.args[0]);
                matches!(edges.op, Op::Broadcast(_)) && edges.args.iter().all(number)
            }
            Op::Unary(_) | Op::Binary(_) => data.args.iter().all(of_degrees) && !data.args.iter().all(number),
            _ => false,
        };
    }
    found
}

/// Marks the products of stored rows that exactly one operation reads, at its own rows and with other rows. (With a bias
/// alone, the result would be as large, and a group takes all of those that it can.)
fn products_read_once(aliases: &AliasAnalysis<'_>) -> Vec<bool> {
    let flow = aliases.flow;
    let (mut reads, mut combined) = (vec![0; flow.values.len()], vec![true; flow.values.len()]);
    for value in flow.handles().filter(|&v| aliases.storage_of(v) == v && aliases.is_live(v)) {
        let data = flow.value(value);
        let rows = data.args.iter().filter(|arg| flow.ty(**arg).space == data.ty.space).count();
        for &arg in &data.args {
            let stored = aliases.storage_of(arg).index();
            reads[stored] += 1;
            combined[stored] &= flow.ty(arg).space == data.ty.space && rows > 1;
        }
    }
    let once = |v: Value| {
        let data = flow.value(v);
        matches!(data.op, Op::MatMul { .. } | Op::MatMulT { .. })
            && !matches!(flow.value(data.args[0]).op, Op::Segment { .. })
            && !aliases.is_output(v)
            && (reads[v.index()], combined[v.index()]) == (1, true)
    };
    flow.handles().map(once).collect()
}

struct Grouping<'f, 'a> {
    pub aliases: &'f AliasAnalysis<'a>,
    pub options: LoweringOptions,
    /// Values that have a group of their own.
    pub unfused: &'f FxHashSet<Value>,
    pub done: Vec<bool>,
    /// The kinds of groups that an operation can be in, the best first.
    pub kinds: Vec<Vec<Kind>>,
    /// Where memory comes before time: products that one operation combines with other rows.
    read_once: Vec<bool>,
    /// Products that are computed tile by tile, with prologue and epilogue.
    pub tiled: Vec<bool>,
    /// The placement of each value.
    pub placement: Vec<Placement>,
    /// The operations that can start.
    pub lists: Worklist,
}

/// A group that can start.
struct Start {
    phase: Phase,
    kind: Kind,
    /// A value placed just in time that the group stores.
    stores: Option<Value>,
    /// The tiled product that the group starts with.
    product: Option<Value>,
}

/// Most columns of the operands and results of a group's tiled products: shared memory holds a tile of each.
const MOST_TILE_COLUMNS: usize = 256;

impl Grouping<'_, '_> {
    fn groups(&mut self, mut pending: Vec<Value>) -> Vec<Group> {
        // Inlined values have no group of their own.
        pending.retain(|&v| self.placement[v.index()] != Placement::Inline);
        self.begin(&pending);
        let mut remaining = pending.len();
        let mut groups = vec![];
        while remaining > 0 {
            let start = self.next();
            let mut members = self.grow(&start);
            assert!(!members.is_empty(), "internal error: nothing can be computed next");
            self.fuse_updates(&start.kind, &mut members);
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
        let (phase, v) = self
            .lists
            .first()
            .expect("the first pending operation has all its inputs, or waits for values placed just in time");
        let kinds = &self.kinds[v.index()];
        match kinds.iter().find(|kind| self.lists.inputs_stored(v) && self.fits(v, kind, &FxHashSet::default())) {
            Some(kind) => Start { phase, kind: kind.clone(), stores: None, product: self.product(v) },
            // It waits for values placed just in time only.
            None => {
                let sunk = self.sunk_input(v);
                let kind = self.kinds[sunk.index()][0].clone();
                Start {
                    phase: self.aliases.flow.value(sunk).phase,
                    kind,
                    stores: Some(sunk),
                    product: self.product(sunk),
                }
            }
        }
    }

    /// A value placed just in time that can be computed now, for an operation that waits for such values only.
    fn sunk_input(&self, mut v: Value) -> Value {
        while let Some(first) = self.lists.first_pending_input(v) {
            v = first;
        }
        v
    }

    /// Adds the values that the members inline, in SSA order.
    fn add_inline(&self, members: &mut Vec<Value>) {
        let mut known: FxHashSet<Value> = members.iter().copied().collect();
        let mut pending = members.clone();
        while let Some(value) = pending.pop() {
            for &arg in &self.aliases.flow.value(value).args {
                let root = self.aliases.storage_of(arg);
                if self.placement[root.index()] == Placement::Inline && known.insert(root) {
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
        if let Kind::Product(value) | Kind::Exchange(value) = kind {
            return vec![*value];
        }
        let mut members = vec![];
        let mut known = FxHashSet::default();
        let mut edge_outer = 0;
        let early = *kind == Kind::Unit && !self.lists.early().is_empty();
        // In SSA order: operations with all inputs, and later the readers of members.
        let mut candidates = if early { self.lists.early().clone() } else { self.lists.ready(*phase, kind) };
        candidates.extend(stores);
        while let Some(v) = candidates.pop_first() {
            let node = self.aliases.flow.value(v);
            if node.phase != *phase || !self.lists.is_pending(v) {
                continue;
            }
            let sunk = self.placement[v.index()] != Placement::Eager && *stores != Some(v);
            if sunk && !self.computes_wider_operand(v, &known) {
                continue;
            }
            let kinds = &self.kinds[v.index()];
            let own = kinds.contains(kind) && (!early || self.lists.early().contains(&v));
            // The epilogue of a traversal: row-wise operations that read its rows.
            let follows = || match kind {
                Kind::Edges(topology, direction) => {
                    let space = self.aliases.row_space(*topology, *direction);
                    // Rows of endpoints are found from rows of vertices, but not from those of a sparse matrix.
                    let ends = matches!(node.op, Op::ScatterRows(..) | Op::ScatterAdd(_));
                    let found = !ends || matches!(topology, Topology::Graph(_));
                    found
                        && space.is_some_and(|space| kinds.contains(&Kind::Map(space)))
                        && node.args.iter().any(|&a| self.reads_members(a, &known))
                }
                Kind::Unit
                | Kind::Elements(_)
                | Kind::Map(_)
                | Kind::Product(_)
                | Kind::Endpoints(..)
                | Kind::Exchange(_)
                | Kind::FactoredMetapath(_) => false,
            };
            let joins = !self.tiled[v.index()] || *product == Some(v) || self.joins_tiles(v, kind, &known);
            let full = matches!(kind, Kind::FactoredMetapath(_)) && members.len() == FactoredMetapath::MOST_SUMS;
            let alone = !members.is_empty() && self.is_alone(v, members[0], kind, own);
            if (own || follows())
                && !alone
                && joins
                && !full
                && self.accumulators_fit(v, edge_outer)
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

    /// Does a disabled rule keep an operation from the group of another one? `own`: the group is of its kind.
    fn is_alone(&self, v: Value, other: Value, kind: &Kind, own: bool) -> bool {
        let rule = match kind {
            Kind::Edges(..) | Kind::Endpoints(..) | Kind::FactoredMetapath(_) if own => FusionRule::EdgePasses,
            Kind::Edges(..) => FusionRule::RowEpilogue,
            Kind::Unit
            | Kind::Elements(_)
            | Kind::Map(_)
            | Kind::Product(_)
            | Kind::Endpoints(..)
            | Kind::Exchange(_)
            | Kind::FactoredMetapath(_) => FusionRule::Rowwise,
        };
        self.options.disabled.contains(rule) || self.unfused.contains(&v) || self.unfused.contains(&other)
    }

    /// Elements of a weight gradient that is accumulated over edges; 0 for any other value.
    fn edge_outer(&self, v: Value) -> usize {
        let aliases = self.aliases;
        match aliases.flow.value(v).op {
            Op::Outer { .. } if matches!(aliases.topology(aliases.flow.value(v).args[0]), Some(Topology::Graph(_))) => {
                aliases.width(v).as_fixed().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Can the back end accumulate the weight gradients of a group with another operation over edges? `others`:
    /// elements of the gradients that the group has already.
    fn accumulators_fit(&self, v: Value, others: usize) -> bool {
        let own = self.edge_outer(v);
        own == 0 || others == 0 || own + others <= self.options.edge_outer
    }

    fn product(&self, v: Value) -> Option<Value> {
        self.tiled[v.index()].then_some(v)
    }

    /// Does a group compute the operand of a tiled product, and has it room for the product?
    fn joins_tiles(&self, v: Value, kind: &Kind, members: &FxHashSet<Value>) -> bool {
        let columns = || members.iter().chain([&v]).map(|&member| self.tile_columns(member, members)).sum::<usize>();
        let operand = self.aliases.flow.value(v).args[0];
        matches!(kind, Kind::Map(_)) && self.reads_members(operand, members) && columns() <= MOST_TILE_COLUMNS
    }

    /// Columns of the tiles of a product: of its result, and of its operand if the group computes it.
    fn tile_columns(&self, v: Value, members: &FxHashSet<Value>) -> usize {
        if !self.tiled[v.index()] {
            return 0;
        }
        let operand = self.aliases.flow.value(v).args[0];
        let width = |value: Value| self.aliases.width(value).as_fixed().unwrap_or(0);
        width(v) + if self.reads_members(operand, members) { width(operand) } else { 0 }
    }

    /// Is a product fused with what computes or reads its rows? To save memory, only if rows are then not stored: those
    /// that a reduction of edges computes, or those that a single operation reads. Other products of the same rows are
    /// computed one by one.
    fn is_fused_product(&self, v: Value, weight: &Extents) -> bool {
        let rows = self.aliases.flow.value(v).args[0];
        let is_reduced = matches!(self.aliases.flow.value(rows).op, Op::Segment { .. });
        is_small(weight, self.options.row_weight) && (!self.options.lean || is_reduced || self.read_once[v.index()])
    }

    /// Does the back end compute a product tile by tile?
    fn in_tiles(&self, v: Value) -> bool {
        let aliases = self.aliases;
        let node = aliases.flow.value(v);
        let (Op::MatMul { batch } | Op::MatMulT { batch }) = node.op else { return false };
        if aliases.topology(node.args[0]).is_some() || !matches!(node.ty.space, Space::Vertices(_)) {
            return false;
        }
        let of = aliases.extents(aliases.flow.ty(node.args[1]), batch);
        let narrow =
            |value: Value| aliases.width(value).as_fixed().is_some_and(|width| width <= self.options.tile_width);
        // A row in memory may have any width.
        let operand = aliases.storage_of(node.args[0]);
        let is_row = narrow(operand) || matches!(aliases.flow.value(operand).op, Op::Input(_));
        narrow(v) && is_row && !of.n.is_one() && !is_small(&of, self.options.row_weight)
    }

    /// Fuses the updates of weights into the group that computes their gradients row by row.
    fn fuse_updates(&self, kind: &Kind, members: &mut Vec<Value>) {
        let aliases = self.aliases;
        let left_out = self.options.disabled.contains(FusionRule::OptimizerUpdate)
            || members.iter().any(|v| self.unfused.contains(v));
        if left_out || !matches!(kind, Kind::Edges(Topology::Pattern(_), Direction::Out)) {
            return;
        }
        let gradients: FxHashSet<Kind> = members
            .iter()
            .filter(|&&v| matches!(aliases.flow.value(v).op, Op::Outer { .. }))
            .map(|&v| Kind::Elements(aliases.width(v)))
            .collect();
        let mut known: FxHashSet<Value> = members.iter().copied().collect();
        let mut queue: BTreeSet<Value> =
            gradients.iter().flat_map(|kind| self.lists.ready(Phase::Update, kind)).collect();
        queue.extend(members.iter().flat_map(|&member| self.lists.readers(member)));
        let mut candidates = vec![];
        while let Some(v) = queue.pop_first() {
            if self.lists.is_pending(v)
                && aliases.flow.value(v).phase == Phase::Update
                && self.kinds[v.index()].iter().any(|kind| gradients.contains(kind))
                && self.fits(v, kind, &known)
                && self.may_replace(v, &known)
            {
                candidates.push(v);
                known.insert(v);
                queue.extend(self.lists.readers(v));
            }
        }
        // The updates that depend on a gradient of the group, and the values that they need.
        let mut wanted: FxHashSet<Value> = members.iter().copied().collect();
        let roots = |v: Value| aliases.flow.value(v).args.iter().map(|&arg| aliases.storage_of(arg));
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

    /// Has the old value of a parameter or state no reader left but the group itself?
    fn may_replace(&self, v: Value, members: &FxHashSet<Value>) -> bool {
        let later = |&reader: &Value| {
            // Inlined values have no group of their own: their readers count.
            let everywhere =
                self.aliases.topology(reader).is_some() || self.placement[reader.index()] == Placement::Inline;
            everywhere || (self.lists.is_pending(reader) && reader != v && !members.contains(&reader))
        };
        !self.lists.readers_of_old(v).any(later)
    }

    /// Does the group compute a value, or inline it from one that it computes?
    fn reads_members(&self, arg: Value, members: &FxHashSet<Value>) -> bool {
        !self.members_behind(self.aliases.storage_of(arg), members).is_empty()
    }

    /// The member of a group that a value is, or the members from which the group inlines it.
    fn members_behind(&self, root: Value, members: &FxHashSet<Value>) -> Vec<Value> {
        let mut found = vec![];
        let mut pending = vec![root];
        let mut seen = FxHashSet::from_iter([root]);
        while let Some(root) = pending.pop() {
            if members.contains(&root) {
                found.push(root);
            } else if self.placement[root.index()] == Placement::Inline {
                let args = self.aliases.flow.value(root).args.iter().map(|&arg| self.aliases.storage_of(arg));
                pending.extend(args.filter(|&arg| seen.insert(arg)));
            }
        }
        found
    }

    /// Is a value placed just in time no wider than an operand that the group computes? Then the group computes it as
    /// well.
    fn computes_wider_operand(&self, v: Value, members: &FxHashSet<Value>) -> bool {
        let width = self.aliases.width(v).as_fixed();
        width.is_some() && self.operand_width(v, members) >= width
    }

    /// The greatest width of an operand that the group computes, through inlined values.
    fn operand_width(&self, v: Value, members: &FxHashSet<Value>) -> Option<usize> {
        let roots = self.aliases.flow.value(v).args.iter().map(|&arg| self.aliases.storage_of(arg));
        let found = roots.flat_map(|root| self.members_behind(root, members));
        found.filter_map(|root| self.aliases.width(root).as_fixed()).max()
    }

    /// The kinds of groups that an operation can be in, the best first.
    fn kinds_of(&self, v: Value) -> Vec<Kind> {
        let aliases = self.aliases;
        let node = aliases.flow.value(v);
        if let Some(topology) = aliases.topology(v) {
            // A result: its rows are the edges in CSC order.
            return vec![Kind::Edges(topology, Direction::In)];
        }
        if let Some(graph) = aliases.edges_as_rows(v) {
            return vec![Kind::Edges(Topology::Graph(graph), Direction::In)];
        }
        let by_space = || match node.ty.space {
            Space::Unit => {
                let len = aliases.width(v);
                let flat =
                    |&a: &Value| aliases.flow.ty(a).is_unit() && (aliases.width(a) == len || aliases.width(a).is_one());
                let element_wise =
                    matches!(node.op, Op::Unary(_) | Op::Binary(_) | Op::RandomMask { .. } | Op::Broadcast(_));
                // An embedding table counts as large.
                let large = len.as_fixed().is_none_or(|len| len > LARGE_UNIT);
                if large && element_wise && node.args.iter().all(flat) { Kind::Elements(len) } else { Kind::Unit }
            }
            space @ (Space::Vertices(_) | Space::Edges(_) | Space::Index(_)) => Kind::Map(space),
            Space::Endpoints(graph, direction) => Kind::Endpoints(graph, direction),
        };
        let arg_space = |i: usize| aliases.flow.ty(node.args[i]).space;
        match &node.op {
            Op::Segment { graph, direction, .. } | Op::SegmentArg { graph, direction, .. } => {
                vec![Kind::Edges(Topology::Graph(*graph), *direction)]
            }
            Op::SegmentEndpoints { graph, direction, .. } => vec![Kind::Endpoints(*graph, *direction)],
            Op::MetapathReduce(sum) => {
                let root = |i: usize| aliases.storage_of(node.args[i]);
                vec![Kind::FactoredMetapath(Scored {
                    first: sum.first,
                    second: sum.second,
                    direction: sum.direction,
                    score: sum.score.to_bits(),
                    x: root(0),
                    y: root(1),
                    n: (sum.direction == Direction::Out).then(|| root(2)),
                })]
            }
            Op::MatMul { batch } | Op::MatMulT { batch } => {
                if let Some(pattern) = aliases.topology(node.args[0]) {
                    return vec![Kind::Edges(pattern, Direction::In)];
                }
                let of = aliases.extents(aliases.flow.ty(node.args[1]), *batch);
                if self.tiled[v.index()] {
                    return vec![by_space()];
                }
                // A product with one column is a row-wise dot product or scaling.
                let with_rows = of.n.is_one() || node.ty.is_unit() || self.is_fused_product(v, &of);
                if with_rows { vec![by_space()] } else { vec![Kind::Product(v)] }
            }
            Op::Outer { batch } => {
                if let Some(topology) = aliases.topology(node.args[0]) {
                    return if matches!(topology, Topology::Pattern(_)) {
                        vec![Kind::Edges(topology, Direction::Out)]
                    } else {
                        vec![Kind::Edges(topology, Direction::In), Kind::Edges(topology, Direction::Out)]
                    };
                }
                let of = aliases.extents(&node.ty, *batch);
                match arg_space(0) {
                    space @ (Space::Vertices(_) | Space::Index(_)) if is_small(&of, self.options.row_outer) => {
                        vec![Kind::Map(space)]
                    }
                    Space::Endpoints(graph, direction) if is_small(&of, self.options.row_outer) => {
                        vec![Kind::Endpoints(graph, direction)]
                    }
                    _ => vec![Kind::Product(v)],
                }
            }
            Op::Grouped { .. } => vec![Kind::Product(v)],
            Op::Exchange(_) | Op::SumRanks => vec![Kind::Exchange(v)],
            Op::ReduceSpace(_) => match aliases.topology(node.args[0]) {
                Some(topology) => vec![Kind::Edges(topology, Direction::In), Kind::Edges(topology, Direction::Out)],
                None => vec![match arg_space(0) {
                    Space::Endpoints(graph, direction) => Kind::Endpoints(graph, direction),
                    space => Kind::Map(space),
                }],
            },
            Op::ReduceTrailing { .. } => match aliases.topology(node.args[0]) {
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
            | Op::Transpose { .. }
            | Op::RowProduct { .. }
            | Op::OneHot { .. }
            | Op::Rows
            | Op::Unrows
            | Op::Reindex(_)
            // Written out before.
            | Op::LinkLoss(_)
            | Op::GatherRows(..)
            | Op::ScatterRows(..)
            | Op::ScatterAdd(_)
            | Op::GatherSrc(_)
            | Op::GatherDst(_) => vec![by_space()],
        }
    }

    /// Can a group of this kind with these members compute `v` next?
    pub fn fits(&self, v: Value, kind: &Kind, members: &FxHashSet<Value>) -> bool {
        let mut seen = FxHashSet::default();
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

    /// Are the operands of an operation stored, or computed by the group at the row that reads them? `computed`
    /// receives the values that the group would inline, whose operands must be available too.
    fn operands_available(
        &self,
        v: Value,
        kind: &Kind,
        members: &FxHashSet<Value>,
        mut computed: impl FnMut(Value),
    ) -> bool {
        let aliases = self.aliases;
        let node = aliases.flow.value(v);
        if let Op::MetapathReduce(_) = node.op {
            // Operands at other rows are stored; at its own row a sum may read the log-sum-exp of its kernel.
            let made = |value: Value| {
                let root = aliases.storage_of(value);
                members.contains(&root)
                    && matches!(aliases.flow.value(root).op, Op::MetapathReduce(sum) if sum.term == MetapathTerm::LogSumExp)
            };
            return node.args.iter().enumerate().all(|(i, &arg)| self.stored(arg) || i == 2 && made(arg));
        }
        // Reads from the other end of an edge, or from any row, need stored values.
        let foreign = |arg: Value| match (&node.op, kind) {
            (Op::GatherSrc(_), Kind::Edges(_, direction) | Kind::Endpoints(_, direction)) => {
                *direction == Direction::In
            }
            (Op::GatherDst(_), Kind::Edges(_, direction) | Kind::Endpoints(_, direction)) => {
                *direction == Direction::Out
            }
            _ => node.ty.is_sparse() && aliases.topology(arg).is_none() && !aliases.flow.ty(arg).dims.is_empty(),
        };
        node.args
            .iter()
            .all(|&a| if foreign(a) { self.stored(a) } else { self.available(a, kind, members, &mut computed) })
    }

    /// Is an operand stored, computed by the group at its own row, or `computed` (inlined) there?
    fn available(&self, arg: Value, kind: &Kind, members: &FxHashSet<Value>, computed: &mut impl FnMut(Value)) -> bool {
        let aliases = self.aliases;
        let root = aliases.storage_of(arg);
        if aliases.is_leaf(root) || self.done[root.index()] {
            return true;
        }
        if aliases.topology(root).is_some() {
            computed(root);
            return true;
        }
        let space = aliases.flow.ty(arg).space;
        let own_space = match kind {
            Kind::Unit | Kind::Elements(_) => space == Space::Unit,
            Kind::Map(rows) => space == *rows,
            // The columns of a sparse matrix are the rows of a weight, which is a unit value.
            Kind::Edges(Topology::Pattern(_), Direction::Out) => {
                space == Space::Unit && !matches!(aliases.flow.value(root).op, Op::ReduceSpace(_))
            }
            Kind::Edges(topology, direction) => aliases.row_space(*topology, *direction) == Some(space),
            Kind::Endpoints(graph, direction) => space == Space::Endpoints(*graph, *direction),
            Kind::Product(_) | Kind::Exchange(_) | Kind::FactoredMetapath(_) => false,
        };
        // A reduction over the rows of the group is complete only after it, and is a unit value: in a group
        // of vertex rows it never has the space of the rows, except seen through `Rows`, which is refused.
        if !own_space || aliases.flow.ty(root).space != space {
            return false;
        }
        match self.placement[root.index()] {
            Placement::Inline => {
                computed(root);
                true
            }
            Placement::Eager | Placement::JustInTime => members.contains(&root),
        }
    }

    fn stored(&self, arg: Value) -> bool {
        let root = self.aliases.storage_of(arg);
        self.aliases.is_leaf(root) || self.done[root.index()]
    }
}

impl Grouping<'_, '_> {
    /// The rank of an operation in groups of a kind.
    pub fn rank(&self, v: Value, kind: &Kind) -> u32 {
        if self.tiled[v.index()] { rank(&Kind::Product(v)) } else { rank(kind) }
    }
}

/// The rank of deferred operations, after all kinds of groups.
const RANK_DEFERRED: u32 = 5;

/// The order in which groups start, within a phase.
fn rank(kind: &Kind) -> u32 {
    match kind {
        // Other ranks wait for these rows.
        Kind::Exchange(_) => 0,
        Kind::Unit => 0,
        Kind::Elements(_) => 1,
        Kind::Map(_) => 2,
        Kind::Product(_) => 3,
        Kind::Edges(..) | Kind::Endpoints(..) | Kind::FactoredMetapath(_) => 4,
    }
}
