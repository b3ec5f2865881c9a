//! Writes the operations on a stack: on demand, from the reductions across its members.

use std::collections::BTreeSet;

use hgnnc_ir::dataflow::{Binding, Cursor, Init, InputDecl, ParamDecl, ValueData};
use hgnnc_ir::elementwise;
use hgnnc_ir::{
    BinaryOp, Dataflow, Dim, Direction, Graph, Incidence, Op, Param, ProductForm, Reduce, Space, Stack, StackDecl,
    Type, Value, VertexRows, VertexType,
};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::tuples::{Operand, Tuple, Tuples};
use crate::rewrite::count_uses;

/// The rows that a value of all members has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rows {
    /// One for each member.
    Members,
    /// One for each edge.
    Edges,
    /// One for each pair at this end.
    Pairs(Direction),
}

/// Rebuilds a program with a stack.
pub struct Emitter<'a> {
    old: &'a Dataflow,
    tuples: &'a Tuples,
    members: Vec<Graph>,
    /// Is the program one of mini-batches?
    on_batches: bool,
    /// The program under construction.
    pub new: Dataflow,
    /// The new value of each old value that exists on its own.
    pub map: Vec<Option<Value>>,
    /// The tuples that exist on the stack.
    pub stacked: BTreeSet<Tuple>,
    made: FxHashMap<(Tuple, Rows), Value>,
    lifted: FxHashMap<(Value, Direction), Value>,
    possible: FxHashMap<(Tuple, Rows), bool>,
    params: FxHashMap<(Tuple, bool), Param>,
    stack: Option<Stack>,
}

/// A reduction across members: the operands of a tree of one operation.
struct Tree {
    op: BinaryOp,
    leaves: Vec<Value>,
}

/// A tree whose leaves have all copies of some operations.
struct Reduction {
    op: BinaryOp,
    /// Copied operations that become a reduction over pairs.
    reduced: Vec<Tuple>,
    /// Leaves that are combined with these one by one.
    others: Vec<Value>,
}

/// The scores of links that a loss takes.
struct LinkScores {
    /// Copied operations, which become one value of the edges of all members.
    stacked: Vec<Tuple>,
    /// Scores of other graphs.
    others: Vec<Value>,
}

impl<'a> Emitter<'a> {
    pub fn new(old: &'a Dataflow, tuples: &'a Tuples, members: Vec<Graph>, on_batches: bool) -> Self {
        Self {
            old,
            tuples,
            members,
            on_batches,
            new: old.with_tables_of(old.name.clone()),
            map: vec![None; old.values.len()],
            stacked: BTreeSet::new(),
            made: FxHashMap::default(),
            lifted: FxHashMap::default(),
            possible: FxHashMap::default(),
            params: FxHashMap::default(),
            stack: None,
        }
    }

    /// Rebuilds the values that are needed beside the stack.
    pub fn run(&mut self) {
        let trees = self.trees().into_iter().filter_map(|(root, tree)| Some((root, self.reduction_of(&tree)?)));
        let reductions: FxHashMap<Value, Reduction> = trees.collect();
        let losses = self.link_losses();
        let passed_on = self.passed_on();
        let needed = self.needed(&reductions, &losses, &passed_on);
        for value in self.old.handles().filter(|value| needed[value.index()]) {
            let data = self.old.value(value);
            self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
            let reduced = reductions.get(&value).map(|reduction| self.reduce(reduction));
            let reduced = reduced.or_else(|| losses.get(&value).map(|scores| self.link_loss(&data.op, scores)));
            let reduced =
                reduced.or_else(|| passed_on.get(&value).map(|&(tuple, first)| self.pass_on(value, tuple, first)));
            self.map[value.index()] = Some(reduced.unwrap_or_else(|| {
                let mut data = data.clone();
                data.args.iter_mut().for_each(|arg| *arg = self.map[arg.index()].expect("operands come first"));
                self.new.values.push(data);
                Value::new(self.new.values.len() - 1)
            }));
        }
        self.new.outputs.clone_from(&self.old.outputs);
        for output in &mut self.new.outputs {
            output.value = self.map[output.value.index()].expect("all values are mapped");
        }
        self.new.cursor = self.old.cursor;
    }

    // ---- reductions across members ------------------------------------------------------------

    /// The trees of sums, maxima and the like that are no copies themselves, by their roots.
    fn trees(&self) -> FxHashMap<Value, Tree> {
        let uses = count_uses(self.old);
        let op_of = |value: Value| match self.old.value(value).op {
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Max | BinaryOp::Min | BinaryOp::LogAddExp))
                if self.tuples.slot(value).is_none() =>
            {
                Some(op)
            }
            _ => None,
        };
        let mut trees = FxHashMap::default();
        let mut inner: FxHashSet<Value> = FxHashSet::default();
        for root in self.old.handles().rev() {
            let Some(op) = op_of(root).filter(|_| !inner.contains(&root)) else { continue };
            let mut leaves = vec![];
            let mut pending = vec![root];
            while let Some(value) = pending.pop() {
                let joins = |value: Value| {
                    op_of(value) == Some(op)
                        && (value == root || uses[value.index()] == 1)
                        && self.old.ty(value) == self.old.ty(root)
                };
                if joins(value) {
                    inner.insert(value);
                    pending.extend(self.old.value(value).args.iter().rev());
                } else {
                    leaves.push(value);
                }
            }
            if leaves.len() >= self.members.len() {
                trees.insert(root, Tree { op, leaves });
            }
        }
        trees
    }

    /// Marks the values that reach an output. Of the copies that are reduced over pairs, the first ones stand for all, and
    /// of values that are given to members, all are needed.
    fn needed(
        &self,
        reductions: &FxHashMap<Value, Reduction>,
        losses: &FxHashMap<Value, LinkScores>,
        passed_on: &FxHashMap<Value, (Tuple, u32)>,
    ) -> Vec<bool> {
        let mut needed = vec![false; self.old.values.len()];
        let mut pending: Vec<Value> = self.old.outputs.iter().map(|output| output.value).collect();
        while let Some(value) = pending.pop() {
            if std::mem::replace(&mut needed[value.index()], true) {
                continue;
            }
            if let Some((tuple, _)) = self.tuples.slot(value).filter(|&(tuple, _)| self.tuples.is_given(tuple)) {
                pending.extend(self.tuples.members(tuple));
            }
            let of_reduction =
                reductions.get(&value).map(|Reduction { reduced, others, .. }| (&reduced[..], &others[..]));
            let of_loss = || losses.get(&value).map(|LinkScores { stacked, others }| (&stacked[..], &others[..]));
            let of_others = || passed_on.get(&value).map(|(tuple, _)| (std::slice::from_ref(tuple), &[][..]));
            match of_reduction.or_else(of_loss).or_else(of_others) {
                None => pending.extend(&self.old.value(value).args),
                Some((tuples, others)) => {
                    pending.extend(tuples.iter().map(|&tuple| self.tuples.first(tuple)));
                    pending.extend(others);
                }
            }
        }
        needed
    }

    /// The values of members of other stacks that are copies for consecutive members of this one ([`given_rows`]), with the
    /// position of the first one.
    fn passed_on(&mut self) -> FxHashMap<Value, (Tuple, u32)> {
        let mut found = FxHashMap::default();
        for value in self.old.handles() {
            if given_rows(self.old, value).is_none() {
                continue;
            }
            let args = &self.old.value(value).args;
            let Some((tuple, first)) = self.tuples.slot(args[0]) else { continue };
            let consecutive = (first..).map(|member| Some((tuple, member)));
            if args.iter().map(|&arg| self.tuples.slot(arg)).eq(consecutive.take(args.len()))
                && self.can(tuple, Rows::Members)
            {
                found.insert(value, (tuple, first as u32));
            }
        }
        found
    }

    /// The rows of the members of another stack, from those of this one.
    fn pass_on(&mut self, value: Value, tuple: Tuple, first: u32) -> Value {
        let of = given_rows(self.old, value).expect("rows are given to the members of a stack");
        let rows = self.emit(tuple, Rows::Members);
        self.read_with(value, Incidence::Range { of, first }, rows)
    }

    /// The losses of links that take the scores of all members alike.
    fn link_losses(&mut self) -> FxHashMap<Value, LinkScores> {
        let mut found = FxHashMap::default();
        for value in self.old.handles().filter(|&value| matches!(self.old.value(value).op, Op::LinkLoss(_))) {
            let scores = &self.old.value(value).args;
            let mut counts: FxHashMap<Tuple, usize> = FxHashMap::default();
            scores.iter().filter_map(|&score| self.tuples.slot(score)).for_each(|(tuple, _)| {
                *counts.entry(tuple).or_default() += 1;
            });
            let mut of = LinkScores { stacked: vec![], others: vec![] };
            for &score in scores {
                match self.tuples.slot(score) {
                    Some((tuple, _)) if of.stacked.contains(&tuple) => {}
                    Some((tuple, _)) if counts[&tuple] == self.members.len() && self.can(tuple, Rows::Edges) => {
                        of.stacked.push(tuple);
                    }
                    _ => of.others.push(score),
                }
            }
            if !of.stacked.is_empty() {
                found.insert(value, of);
            }
        }
        found
    }

    /// The loss of the scores of all members, and of those of other graphs.
    fn link_loss(&mut self, op: &Op, of: &LinkScores) -> Value {
        let of_members: Vec<Value> = of.stacked.iter().map(|&tuple| self.emit(tuple, Rows::Edges)).collect();
        let others = of.others.iter().map(|leaf| self.map[leaf.index()].expect("operands come first"));
        let scores: Vec<Value> = of_members.into_iter().chain(others).collect();
        self.new.add(op.clone(), &scores)
    }

    /// Divides the leaves of a tree into operations that can be reduced over pairs and others; `None` if none can.
    fn reduction_of(&mut self, tree: &Tree) -> Option<Reduction> {
        // The leaves of each tuple, and how many of them are different.
        let mut counts: FxHashMap<Tuple, [usize; 2]> = FxHashMap::default();
        let mut distinct: FxHashSet<Value> = FxHashSet::with_capacity_and_hasher(tree.leaves.len(), FxBuildHasher);
        for &leaf in &tree.leaves {
            if let Some((tuple, _)) = self.tuples.slot(leaf) {
                let [all, different] = counts.entry(tuple).or_default();
                *all += 1;
                *different += usize::from(distinct.insert(leaf));
            }
        }
        let every_member_once = [self.members.len(); 2];
        let mut reduced: Vec<Tuple> = vec![];
        let mut others: Vec<Value> = vec![];
        for &leaf in &tree.leaves {
            match self.tuples.slot(leaf) {
                Some((tuple, _)) if reduced.contains(&tuple) => {}
                Some((tuple, _)) if counts[&tuple] == every_member_once && self.reduces(tuple, tree.op) => {
                    reduced.push(tuple)
                }
                _ => others.push(leaf),
            }
        }
        (!reduced.is_empty()).then_some(Reduction { op: tree.op, reduced, others })
    }

    /// The reductions over pairs, combined with the other leaves.
    fn reduce(&mut self, reduction: &Reduction) -> Value {
        let Reduction { op, reduced, others } = reduction;
        let mut total = None;
        for leaf in others {
            let leaf = self.map[leaf.index()].expect("operands come first");
            total = Some(total.map_or(leaf, |total| self.new.binary(*op, total, leaf)));
        }
        for &tuple in reduced {
            let sum = self.reduction(tuple, *op);
            total = Some(total.map_or(sum, |total| self.new.binary(*op, total, sum)));
        }
        total.expect("something is reduced")
    }

    /// Can the copies be reduced over pairs: do the vertices without pairs have the identity?
    fn reduces(&mut self, tuple: Tuple, op: BinaryOp) -> bool {
        match self.old.ty(self.tuples.first(tuple)).space {
            Space::Unit => self.can(tuple, Rows::Members) || op == BinaryOp::Add && self.counts_edges(tuple),
            Space::Vertices(vertex) => {
                vertex == self.end(Direction::In)
                    && self.without_edges(Operand::Each(tuple)) == Some(reduce_of(op).identity())
                    && self.can(tuple, Rows::Pairs(Direction::In))
            }
            Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => false,
        }
    }

    /// Are the copies the numbers of edges? Their sum is that of all edges.
    fn counts_edges(&self, tuple: Tuple) -> bool {
        self.old.value(self.tuples.first(tuple)).op == Op::Count(Space::Edges(self.members[0]))
    }

    fn reduction(&mut self, tuple: Tuple, op: BinaryOp) -> Value {
        let reduce = reduce_of(op);
        if self.counts_edges(tuple) {
            self.stacked.insert(tuple);
            let space = self.space(Rows::Edges);
            return self.at(self.tuples.first(tuple), Op::Count(space), &[]);
        }
        if self.old.ty(self.tuples.first(tuple)).is_unit() {
            let rows = self.emit(tuple, Rows::Members);
            return self.new.add(Op::ReduceSpace(reduce), &[rows]);
        }
        let rows = self.emit(tuple, Rows::Pairs(Direction::In));
        let graph = self.graph(Incidence::Vertices(Direction::In));
        let gathered = self.new.add(Op::GatherSrc(graph), &[rows]);
        self.new.segment(graph, Direction::In, reduce, gathered)
    }

    /// The number that the copies have at vertices without in-edges, if it is known without data.
    fn without_edges(&self, operand: Operand) -> Option<f64> {
        let value = match operand {
            Operand::Same(value) => match self.old.value(value).op {
                Op::Const(number) => return Some(number),
                _ => return None,
            },
            Operand::Each(tuple) => self.tuples.first(tuple),
        };
        let data = self.old.value(value);
        let number = |i: usize| self.without_edges(self.tuples.operand(data.args[i]));
        match &data.op {
            Op::Segment { direction: Direction::In, reduce, .. } => Some(reduce.identity()),
            Op::Unary(f) => Some(elementwise::unary(*f, number(0)?)),
            Op::Binary(f) => match (f, number(0), number(1)) {
                (_, Some(a), Some(b)) => Some(elementwise::binary(*f, a, b)),
                (BinaryOp::Mul, Some(0.0), _) | (BinaryOp::Mul, _, Some(0.0)) => Some(0.0),
                _ => None,
            },
            Op::Broadcast(_) | Op::Reshape(_) | Op::StopGradient | Op::Slice { .. } | Op::Transpose { .. } => number(0),
            Op::MatMul { .. } => number(0).filter(|&x| x == 0.0),
            Op::ReduceTrailing { reduce: Reduce::Sum, .. } => number(0).filter(|&x| x == 0.0),
            _ => None,
        }
    }

    // ---- the tables of the stack ----------------------------------------------------------------

    fn end(&self, direction: Direction) -> VertexType {
        let decl = &self.old.graphs[self.members[0].index()];
        if direction == Direction::In { decl.dst } else { decl.src }
    }

    fn stack(&mut self) -> Stack {
        *self.stack.get_or_insert_with(|| {
            let name = format!("stack{}", self.new.stacks.len());
            self.new.stacks.push(StackDecl { name, members: self.members.clone() });
            Stack::new(self.new.stacks.len() - 1)
        })
    }

    fn graph(&mut self, incidence: Incidence) -> Graph {
        let stack = self.stack();
        self.new.stacked_graph(stack, incidence)
    }

    fn space(&mut self, rows: Rows) -> Space {
        let stack = self.stack();
        match rows {
            Rows::Members => Space::Vertices(self.new.stacked_type(VertexRows::Members(stack))),
            Rows::Edges => Space::Edges(self.graph(Incidence::Edges)),
            Rows::Pairs(direction) => Space::Vertices(self.new.stacked_type(VertexRows::Pairs(stack, direction))),
        }
    }

    /// The stack of the parameters of the members. `table`: each has a row for each vertex.
    fn param(&mut self, tuple: Tuple, table: Option<Direction>) -> Param {
        if let Some(&known) = self.params.get(&(tuple, table.is_some())) {
            return known;
        }
        let old = self.old;
        let entry = |value: Value| match old.value(value).op {
            Op::Param(param) => param,
            _ => unreachable!("copies of a parameter are parameters"),
        };
        let entries: Vec<Param> = self.tuples.members(tuple).map(entry).collect();
        let stack = self.stack();
        let rows = table.map_or(VertexRows::Members(stack), |direction| VertexRows::Cells(stack, direction));
        let rows = Dim::Count(self.new.stacked_type(rows));
        let decl = &old.params[entries[0].index()];
        let tail = if table.is_some() { &decl.dims[1..] } else { &decl.dims[..] };
        let dims = [&[rows], tail].concat();
        // Its entries have initial values.
        let (init, decay) = (Init::Constant(0.0), decl.decay);
        let name = common_name(entries.iter().map(|entry| &old.params[entry.index()].name[..]));
        let taken = self.new.params.iter().any(|decl| decl.name == name);
        let name = if taken { format!("{name}.stack") } else { name.to_owned() };
        let param = self.new.declare_param(ParamDecl { name, dims, init, decay, of: None, entries });
        self.params.insert((tuple, table.is_some()), param);
        param
    }

    // ---- values on the stack ----------------------------------------------------------------------

    /// Do the copies have a form with these rows?
    fn can(&mut self, tuple: Tuple, rows: Rows) -> bool {
        if let Some(&known) = self.possible.get(&(tuple, rows)) {
            return known;
        }
        let found = self.decide(tuple, rows);
        self.possible.insert((tuple, rows), found);
        found
    }

    fn decide(&mut self, tuple: Tuple, rows: Rows) -> bool {
        let data = self.old.value(self.tuples.first(tuple));
        if self.tuples.is_given(tuple) {
            return rows == Rows::Members && data.ty.dims.iter().all(|dim| dim.fixed().is_some());
        }
        let space = data.ty.space;
        let fits = match rows {
            Rows::Members => space == Space::Unit,
            Rows::Edges => space == Space::Edges(self.members[0]),
            // An edge value that depends on this end alone has a row for each pair as well.
            Rows::Pairs(direction) => {
                space == Space::Vertices(self.end(direction)) || space == Space::Edges(self.members[0])
            }
        };
        if !fits || data.ty.is_sparse() {
            return false;
        }
        let args: Vec<Operand> = data.args.iter().map(|&arg| self.tuples.operand(arg)).collect();
        match &data.op {
            Op::Param(param) => {
                rows == Rows::Members && self.old.params[param.index()].dims.iter().all(|dim| dim.fixed().is_some())
            }
            Op::Rows => match (rows, args[0]) {
                (Rows::Pairs(direction), Operand::Each(table)) if !self.on_batches => {
                    let of_end = self.table_rows(table) == Some(self.end(direction));
                    of_end && (self.table(args[0]).is_some() || self.can(table, Rows::Members))
                }
                _ => false,
            },
            Op::Input(input) => {
                let binding = &self.old.inputs[input.index()].binding;
                let of_edges = matches!(
                    binding,
                    Binding::EdgeWeight(_)
                        | Binding::EdgeTime(_)
                        | Binding::EdgeCount(_)
                        | Binding::EdgeFeatures(_)
                        | Binding::IsLink(_)
                );
                of_edges && rows == Rows::Edges
            }
            Op::RandomMask { .. } => matches!(rows, Rows::Edges | Rows::Members),
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Broadcast(_)
            | Op::StopGradient
            | Op::Reshape(_)
            | Op::Concat
            | Op::Slice { .. }
            | Op::Transpose { .. }
            | Op::ReduceTrailing { .. } => args.iter().all(|&arg| self.can_read(arg, rows)),
            // Both operands have rows.
            Op::RowProduct { .. } => {
                args.iter().all(|&arg| matches!(arg, Operand::Each(_)) && self.can_read(arg, rows))
            }
            Op::MatMul { .. } => match (args[1], rows) {
                (Operand::Same(w), _) if self.old.ty(w).is_unit() => self.can_read(args[0], rows),
                (Operand::Each(w), Rows::Pairs(_)) => self.can_read(args[0], rows) && self.can(w, Rows::Members),
                // The weight of a member: the product is one of pairs.
                (Operand::Each(w), Rows::Edges) => self.can(w, Rows::Members) && self.one_end(args[0]).is_some(),
                _ => false,
            },
            Op::MatMulT { .. } => {
                matches!(args[1], Operand::Same(w) if self.old.ty(w).is_unit()) && self.can_read(args[0], rows)
            }
            Op::GatherSrc(_) | Op::GatherDst(_) => {
                let at = end_of(&data.op);
                (rows == Rows::Edges || rows == Rows::Pairs(at)) && self.can_read(args[0], Rows::Pairs(at))
            }
            Op::Segment { direction, .. } => {
                rows == Rows::Pairs(*direction) && matches!(args[0], Operand::Each(x) if self.can(x, Rows::Edges))
            }
            Op::ReduceSpace(_) => match args[0] {
                Operand::Each(x) => {
                    matches!(self.old.ty(self.tuples.first(x)).space, Space::Edges(_)) && self.can(x, Rows::Edges)
                }
                Operand::Same(_) => false,
            },
            _ => false,
        }
    }

    /// Can an operand be read with these rows?
    fn can_read(&mut self, operand: Operand, rows: Rows) -> bool {
        match operand {
            Operand::Same(value) => {
                let ty = self.old.ty(value);
                let rowed = matches!(rows, Rows::Pairs(at) if ty.space == Space::Vertices(self.end(at)));
                !ty.is_sparse() && (ty.is_unit() || rowed)
            }
            Operand::Each(tuple) if self.old.ty(self.tuples.first(tuple)).is_unit() => self.can(tuple, Rows::Members),
            Operand::Each(tuple) => self.can(tuple, rows),
        }
    }

    /// The end that an edge value depends on, if it is one.
    fn one_end(&mut self, operand: Operand) -> Option<Direction> {
        let ends = [Direction::Out, Direction::In];
        ends.into_iter().find(|&at| matches!(operand, Operand::Each(x) if self.can(x, Rows::Pairs(at))))
    }

    /// The vertex type that the copies have a row for each vertex of, if they are tables.
    fn table_rows(&self, table: Tuple) -> Option<VertexType> {
        let (first, rest) = self.old.ty(self.tuples.first(table)).dims.split_first()?;
        match first {
            Dim::Count(vertex) if rest.iter().all(|dim| dim.fixed().is_some()) => Some(*vertex),
            Dim::Count(_) | Dim::Fixed(_) => None,
        }
    }

    /// The parameter with a row for each vertex that an operand is.
    fn table(&self, operand: Operand) -> Option<Param> {
        let Operand::Each(tuple) = operand else { return None };
        match self.old.value(self.tuples.first(tuple)).op {
            Op::Param(param) => {
                let dims = &self.old.params[param.index()].dims;
                let rest = dims.get(1..)?.iter().all(|dim| dim.fixed().is_some());
                (matches!(dims[0], Dim::Count(_)) && rest).then_some(param)
            }
            _ => None,
        }
    }

    /// The copies as one value, which [`Emitter::can`] exist.
    fn emit(&mut self, tuple: Tuple, rows: Rows) -> Value {
        if let Some(&known) = self.made.get(&(tuple, rows)) {
            return known;
        }
        let first = self.tuples.first(tuple);
        let old = self.old;
        if self.tuples.is_given(tuple) {
            let value = self.given(tuple);
            self.made.insert((tuple, rows), value);
            return value;
        }
        self.stacked.insert(tuple);
        let data = old.value(first);
        let args: Vec<Operand> = data.args.iter().map(|&arg| self.tuples.operand(arg)).collect();
        let before = self.new.cursor;
        let value = match &data.op {
            Op::Param(_) => {
                let param = self.param(tuple, None);
                let whole = self.at(first, Op::Param(param), &[]);
                self.at(first, Op::Rows, &[whole])
            }
            Op::Rows => {
                let (Rows::Pairs(direction), Operand::Each(table)) = (rows, args[0]) else {
                    unreachable!("tables have rows for vertices")
                };
                let whole = match self.table(args[0]) {
                    Some(_) => {
                        self.stacked.insert(table);
                        let param = self.param(table, Some(direction));
                        self.at(first, Op::Param(param), &[])
                    }
                    None => self.computed_table(table, direction),
                };
                let cells = self.at(first, Op::Rows, &[whole]);
                self.read_with(first, Incidence::Cells(direction), cells)
            }
            Op::Input(input) => {
                let decl = &old.inputs[input.index()];
                let graph = self.graph(Incidence::Edges);
                let (name, binding) = match decl.binding {
                    Binding::EdgeWeight(_) => ("weight", Binding::EdgeWeight(graph)),
                    Binding::EdgeTime(_) => ("time", Binding::EdgeTime(graph)),
                    Binding::EdgeCount(_) => ("count", Binding::EdgeCount(graph)),
                    Binding::EdgeFeatures(_) => ("features", Binding::EdgeFeatures(graph)),
                    Binding::IsLink(_) => ("is_link", Binding::IsLink(graph)),
                    _ => unreachable!("only inputs of edges are copies"),
                };
                let name = format!("{}.{name}", self.new.graphs[graph.index()].name);
                let ty = Type { space: Space::Edges(graph), ..decl.ty.clone() };
                let input = self.new.declare_input(InputDecl { name, ty, binding });
                self.at(first, Op::Input(input), &[])
            }
            Op::RandomMask { stream, rate, ty } => {
                let ty = Type { space: self.space(rows), ..ty.clone() };
                self.at(first, Op::RandomMask { stream: *stream, rate: *rate, ty }, &[])
            }
            Op::Broadcast(ty) => {
                let ty = Type { space: self.space(rows), ..ty.clone() };
                let arg = self.read(args[0], rows);
                self.at(first, Op::Broadcast(ty), &[arg])
            }
            Op::MatMul { batch } => match (args[1], rows) {
                (Operand::Each(w), Rows::Pairs(at)) => {
                    let x = self.read(args[0], rows);
                    self.grouped(first, *batch, at, x, w)
                }
                (Operand::Each(w), _) => {
                    let at = self.one_end(args[0]).expect("the operand depends on one end");
                    let x = self.read(args[0], Rows::Pairs(at));
                    let product = self.grouped(first, *batch, at, x, w);
                    let gather = self.gather(at);
                    self.at(first, gather, &[product])
                }
                (Operand::Same(_), _) => {
                    let args = [self.read(args[0], rows), self.read(args[1], rows)];
                    self.at(first, data.op.clone(), &args)
                }
            },
            Op::GatherSrc(_) | Op::GatherDst(_) => {
                let at = end_of(&data.op);
                let x = self.read(args[0], Rows::Pairs(at));
                match rows {
                    Rows::Edges => {
                        let gather = self.gather(at);
                        self.at(first, gather, &[x])
                    }
                    Rows::Members | Rows::Pairs(_) => x,
                }
            }
            Op::Segment { direction, reduce, .. } => {
                let x = self.read(args[0], Rows::Edges);
                let graph = self.graph(Incidence::Edges);
                self.at(first, Op::Segment { graph, direction: *direction, reduce: *reduce }, &[x])
            }
            Op::ReduceSpace(reduce) => {
                let x = self.read(args[0], Rows::Edges);
                let (direction, reduce) = (Direction::In, *reduce);
                let graph = self.graph(Incidence::Edges);
                let of_pairs = self.at(first, Op::Segment { graph, direction, reduce }, &[x]);
                let graph = self.graph(Incidence::Members(direction));
                let gathered = self.at(first, Op::GatherSrc(graph), &[of_pairs]);
                self.at(first, Op::Segment { graph, direction, reduce }, &[gathered])
            }
            op => {
                let args: Vec<Value> = args.iter().map(|&arg| self.read(arg, rows)).collect();
                self.at(first, op.clone(), &args)
            }
        };
        self.new.cursor = before;
        self.made.insert((tuple, rows), value);
        value
    }

    /// The values that are given to the members, as rows of these: see [`given_rows`].
    fn given(&mut self, tuple: Tuple) -> Value {
        let data = self.old.value(self.tuples.first(tuple));
        let ty = Type { space: self.space(Rows::Members), ..data.ty.clone() };
        let args = self.tuples.members(tuple).map(|value| self.map[value.index()].expect("operands come first"));
        let ValueData { stage, phase, origin, .. } = *data;
        let args = args.collect();
        self.new.values.push(ValueData { op: Op::Concat, args, ty, stage, phase, origin });
        Value::new(self.new.values.len() - 1)
    }

    /// The tables of all members as one, with a row for each pair of a member and a vertex: all are computed at once,
    /// such as linear combinations of bases.
    fn computed_table(&mut self, table: Tuple, direction: Direction) -> Value {
        let of_members = self.emit(table, Rows::Members);
        let first = self.tuples.first(table);
        let all = self.at(first, Op::Unrows, &[of_members]);
        let stack = self.stack();
        let cells = Dim::Count(self.new.stacked_type(VertexRows::Cells(stack, direction)));
        let row = self.old.ty(first).dims[1..].iter().copied();
        let dims = std::iter::once(cells).chain(row).collect();
        self.at(first, Op::Reshape(dims), &[all])
    }

    /// Appends an operation at the place of an old value.
    fn at(&mut self, value: Value, op: Op, args: &[Value]) -> Value {
        let data = self.old.value(value);
        self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        self.new.add(op, args)
    }

    fn grouped(&mut self, value: Value, batch: usize, at: Direction, x: Value, w: Tuple) -> Value {
        let w = self.emit(w, Rows::Members);
        let members = self.graph(Incidence::Members(at));
        self.at(value, Op::Grouped { form: ProductForm::MatMul, batch, members }, &[x, w])
    }

    /// An operand with these rows, or a unit value.
    fn read(&mut self, operand: Operand, rows: Rows) -> Value {
        match operand {
            Operand::Same(value) => {
                let mapped = self.map[value.index()].expect("operands come first");
                match rows {
                    Rows::Pairs(at) if !self.old.ty(value).is_unit() => {
                        if let Some(&known) = self.lifted.get(&(value, at)) {
                            return known;
                        }
                        let lifted = self.read_with(value, Incidence::Vertices(at), mapped);
                        self.lifted.insert((value, at), lifted);
                        lifted
                    }
                    _ => mapped,
                }
            }
            Operand::Each(tuple) if self.old.ty(self.tuples.first(tuple)).is_unit() && rows != Rows::Members => {
                let first = self.tuples.first(tuple);
                let of_members = self.emit(tuple, Rows::Members);
                // The member of an edge is that of its source.
                let at = if let Rows::Pairs(at) = rows { at } else { Direction::Out };
                let of_pairs = self.read_with(first, Incidence::Members(at), of_members);
                match rows {
                    Rows::Edges => {
                        let gather = self.gather(at);
                        self.at(first, gather, &[of_pairs])
                    }
                    Rows::Members | Rows::Pairs(_) => of_pairs,
                }
            }
            Operand::Each(tuple) => self.emit(tuple, rows),
        }
    }

    /// The gather of the rows of pairs at this end.
    fn gather(&mut self, at: Direction) -> Op {
        let graph = self.graph(Incidence::Edges);
        if at == Direction::Out { Op::GatherSrc(graph) } else { Op::GatherDst(graph) }
    }

    /// The row that each pair has along a graph with one edge per pair.
    fn read_with(&mut self, value: Value, incidence: Incidence, x: Value) -> Value {
        let graph = self.graph(incidence);
        let gathered = self.at(value, Op::GatherDst(graph), &[x]);
        self.at(value, Op::Segment { graph, direction: Direction::Out, reduce: Reduce::Sum }, &[gathered])
    }
}

/// The longest beginning of all of some names that ends before a dot.
fn common_name<'a>(mut names: impl Iterator<Item = &'a str>) -> &'a str {
    let first = names.next().unwrap_or_default();
    let mut common = first.rfind('.').map_or(first, |dot| &first[..dot]);
    for name in names {
        while !name.strip_prefix(common).is_some_and(|rest| rest.starts_with('.')) {
            let Some(dot) = common.rfind('.') else { return first };
            common = &common[..dot];
        }
    }
    common
}

/// The stack whose members have these rows, if the value joins what is given to each of them. Such a value is none of the
/// language of programs, whose operations have rows or none: it stands between the stack that reads the rows and the one
/// that computes them, and either both are made or none.
pub fn given_rows(flow: &Dataflow, value: Value) -> Option<Stack> {
    let data = flow.value(value);
    let (Op::Concat, Space::Vertices(rows)) = (&data.op, data.ty.space) else { return None };
    let VertexRows::Members(stack) = flow.vertex_types[rows.index()].rows else { return None };
    data.args.iter().all(|&arg| flow.ty(arg).is_unit()).then_some(stack)
}

/// The end that a gather reads.
fn end_of(gather: &Op) -> Direction {
    if matches!(gather, Op::GatherSrc(_)) { Direction::Out } else { Direction::In }
}

/// The reduction of many operands that an operation of two is.
fn reduce_of(op: BinaryOp) -> Reduce {
    match op {
        BinaryOp::Max => Reduce::Max,
        BinaryOp::Min => Reduce::Min,
        BinaryOp::LogAddExp => Reduce::Lse,
        _ => Reduce::Sum,
    }
}
