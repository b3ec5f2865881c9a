//! From the operations of a group to the instructions of a traversal.
//!
//! Values are lowered on demand from the members of the group: gathers, reshapes and broadcasts become
//! ways to read an operand, and products that feed a sum are fused into it. Where the exponentials `exp(x - lse x)` of a
//! softmax are needed with their `lse`, both come from the same `exp(x - max x)`: it is divided by its sum, so that
//! there is one exponential per edge and the weights of a row sum to one however large the scores are. That rounds weights in
//! another way than traversals without the `lse` do, so it is not done for weights on which decisions depend. Where [`super::online`]
//! says so, the weights are not made at all, and one pass over the edges gives the weighted sum and the `lse`.

use std::collections::{HashMap, HashSet};

use hgnnc_ir::kernel::{
    Dest, Extent, Index, Instr, KernelOp, Level, Local, Operand, Pieces, Rows, Source, Traversal, Width,
};
use hgnnc_ir::{BinaryOp, Direction, Op, Provenance, Reduce, Space, Stage, Type, UnaryOp, Value};

use super::facts::{Facts, Topology};
use super::online::Online;
use super::schedule::{Group, Kind};
use super::{Builder, Decision, NotLowered, operand};

pub(super) type Result<T> = std::result::Result<T, NotLowered>;

/// Lowers a group that is not a dense product.
pub(super) fn lower_traversal(builder: &Builder<'_, '_>, group: &Group) -> Result<Traversal> {
    let facts = builder.facts;
    let mut lowering = Lowering {
        builder,
        facts,
        kind: &group.kind,
        members: group.members.iter().copied().collect(),
        uses: HashMap::new(),
        made: HashMap::new(),
        softmaxes: HashMap::new(),
        onlines: vec![],
        extremes: HashMap::new(),
        instrs: vec![],
        num_locals: 0,
        from: Provenance::default(),
        waiting: 0,
        postponed: None,
    };
    lowering.count_uses(&group.members);
    let without = builder.form.without;
    lowering.find_softmaxes();
    lowering.find_onlines(builder.form.softmax);
    for &member in &group.members {
        // Members that nothing else needs are lowered where they are used, or fused there.
        if builder.stored(member).is_some() && !lowering.made.contains_key(&member) {
            if matches!(facts.flow.value(member).op, Op::GatherSrc(_) | Op::GatherDst(_)) {
                let gathered = lowering.operand(member, Level::Edge)?;
                lowering.define(member, Level::Edge, facts.width(member), KernelOp::Copy(gathered));
            } else {
                lowering.lower(member)?;
            }
        }
    }
    let rows = match &group.kind {
        Kind::Unit | Kind::Product(_) | Kind::Paths(_) => Rows::Once,
        Kind::Elements(volume) => Rows::Each(volume.clone()),
        Kind::Map(Space::Vertices(vertex)) => Rows::Vertices(*vertex),
        Kind::Map(Space::Index(extent)) => Rows::Each(Width::fixed(*extent)),
        Kind::Map(Space::Unit | Space::Edges(_) | Space::Ends(..)) => {
            return Err(facts.error(group.members[0], "internal error: a map over other rows than vertices"));
        }
        Kind::Ends(graph, direction) => Rows::Ends(*graph, *direction),
        Kind::Edges(Topology::Graph(graph), direction) => Rows::Edges(*graph, *direction),
        Kind::Edges(Topology::Pattern(pattern), direction) => Rows::Elements(*pattern, *direction),
    };
    let cut = rows.has_edges() && !without.has(Decision::CutRows);
    let pieces = cut.then(|| pieces(&lowering.instrs));
    Ok(Traversal { rows, pieces, instrs: lowering.instrs })
}

/// Elements of the widest edge value that a piece of a long row reads or makes: some 100 µs of one core.
const PIECE: usize = 1 << 18;
/// Edges of a piece, at least and at most.
const PIECE_EDGES: (usize, usize) = (512, 4096);
/// Pieces of a graph: more than processors have cores, by so much that a row that is left whole holds up none of them.
const PIECES: usize = 1024;

/// How long rows are cut: by the work for an edge, in a power of two of edges.
fn pieces(instrs: &[Instr]) -> Pieces {
    let edges = instrs.iter().filter(|instr| instr.level == Level::Edge);
    let widest = edges.filter_map(|instr| instr.width.as_fixed()).max().unwrap_or(1).max(1);
    let (fewest, most) = PIECE_EDGES;
    Pieces { least: (PIECE / widest).clamp(fewest, most).next_power_of_two(), most: PIECES }
}

pub(super) struct Lowering<'b, 'f, 'a> {
    builder: &'b Builder<'f, 'a>,
    pub(super) facts: &'f Facts<'a>,
    kind: &'b Kind,
    pub(super) members: HashSet<Value>,
    /// How often a value is used in this traversal.
    pub(super) uses: HashMap<Value, u32>,
    /// Where values that were computed here are.
    made: HashMap<Value, Source>,
    /// Log-sum-exps of rows whose softmax is needed here, with what they are made of.
    pub(super) softmaxes: HashMap<Value, Option<Softmax>>,
    /// Softmaxes that are computed in one pass.
    pub(super) onlines: Vec<Online>,
    /// For each search for an edge that is made: the extreme elements, and the ranks of their edges.
    extremes: HashMap<Value, Operand>,
    instrs: Vec<Instr>,
    num_locals: u32,
    /// What is lowered now comes from here.
    from: Provenance,
    /// Values whose lowering waits for that of an operand.
    waiting: usize,
    /// The operand for which too many would wait: it is lowered first.
    postponed: Option<Value>,
}

/// Values that wait for an operand at a time, each with a part of the stack. A chain of operations may have any length.
const MAX_WAITING: usize = 256;

/// Values that a softmax over the edges of rows and its log-sum-exp share.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    /// `exp(x - base)` of the edges.
    exps: Operand,
    /// Of the rows: the largest `x`, made finite.
    base: Operand,
    /// Of the rows: the sum of the exponentials.
    total: Operand,
    /// Of the rows: `1 / total`.
    scale: Operand,
}

impl Lowering<'_, '_, '_> {
    /// Counts the uses of all values that the traversal computes.
    fn count_uses(&mut self, members: &[Value]) {
        let mut pending = members.to_vec();
        let mut seen: HashSet<Value> = pending.iter().copied().collect();
        while let Some(value) = pending.pop() {
            for &arg in &self.facts.flow.value(value).args {
                let root = self.facts.root(arg);
                *self.uses.entry(root).or_default() += 1;
                if self.facts.topology(root).is_some() && !self.facts.is_leaf(root) && seen.insert(root) {
                    pending.push(root);
                }
            }
        }
    }

    /// Notes which log-sum-exps of this traversal are needed for a softmax too.
    fn find_softmaxes(&mut self) {
        let found: Vec<Value> = self.uses.keys().filter_map(|&value| self.softmax_of(value)).collect();
        self.softmaxes.extend(found.into_iter().map(|lse| (lse, None)));
    }

    /// For `exp(x - lse x)` of edges, where this traversal computes the `lse` of its rows: that `lse`.
    pub(super) fn softmax_of(&self, value: Value) -> Option<Value> {
        if self.builder.form.without.has(Decision::ShareSoftmax) {
            return None;
        }
        let (facts, flow) = (self.facts, self.facts.flow);
        if facts.decides(value) {
            return None;
        }
        let (own, direction) = self.edges()?;
        let argument = |of: Value, i: usize| facts.root(flow.value(of).args[i]);
        if flow.value(value).op != Op::Unary(UnaryOp::Exp) || facts.topology(value) != Some(own) {
            return None;
        }
        let difference = argument(value, 0);
        if flow.value(difference).op != Op::Binary(BinaryOp::Sub) {
            return None;
        }
        let (x, gathered) = (argument(difference, 0), argument(difference, 1));
        match (&flow.value(gathered).op, direction) {
            (Op::GatherDst(_), Direction::In) | (Op::GatherSrc(_), Direction::Out) => {}
            _ => return None,
        }
        let lse = argument(gathered, 0);
        let same = matches!(&flow.value(lse).op,
            Op::Segment { graph, direction: over, reduce: Reduce::Lse }
            | Op::SegmentEnds { graph, direction: over, reduce: Reduce::Lse }
            if Topology::Graph(*graph) == own && *over == direction);
        let fits = same && argument(lse, 0) == x && facts.width(x) == facts.width(difference);
        (fits && self.members.contains(&lse)).then_some(lse)
    }

    /// What a softmax and its log-sum-exp share, made when the first of them is.
    fn softmax(&mut self, lse: Value) -> Result<Softmax> {
        if let Some(Some(made)) = self.softmaxes.get(&lse) {
            return Ok(*made);
        }
        let x = self.operand(self.facts.flow.value(lse).args[0], Level::Edge)?;
        let width = self.width(lse);
        let stage = self.facts.flow.value(lse).stage;
        let mut emit = |level: Level, op: KernelOp| self.emit(level, op, width.clone(), stage);
        let largest = emit(Level::Edge, KernelOp::Segment(Reduce::Max, x));
        // Finite, so that rows without edges and infinite scores give no NaN: `lse` is then infinite as it should be.
        let limit = |of: f32| operand(Source::Const(of.into()), Index::Whole);
        let base = emit(Level::Row, KernelOp::Binary(BinaryOp::Max, largest, limit(f32::MIN)));
        let base = emit(Level::Row, KernelOp::Binary(BinaryOp::Min, base, limit(f32::MAX)));
        let shifted = emit(Level::Edge, KernelOp::Binary(BinaryOp::Sub, x, base));
        let exps = emit(Level::Edge, KernelOp::Unary(UnaryOp::Exp, shifted));
        let total = emit(Level::Edge, KernelOp::Segment(Reduce::Sum, exps));
        let scale = emit(Level::Row, KernelOp::Unary(UnaryOp::Recip, total));
        let made = Softmax { exps, base, total, scale };
        self.softmaxes.insert(lse, Some(made));
        Ok(made)
    }

    /// Appends an instruction with a local for its result.
    pub(super) fn emit(&mut self, level: Level, op: KernelOp, width: Width, stage: Stage) -> Operand {
        let local = Local(self.num_locals);
        self.num_locals += 1;
        let instr = Instr { dest: Dest::Local(local), level, op, width, stage, from: self.from };
        let index = if instr.extent() == Extent::Edge { Index::Edge } else { Index::Row };
        self.instrs.push(instr);
        operand(Source::Local(local), index)
    }

    pub(super) fn edges(&self) -> Option<(Topology, Direction)> {
        match self.kind {
            Kind::Edges(topology, direction) => Some((*topology, *direction)),
            Kind::Ends(graph, direction) => Some((Topology::Graph(*graph), *direction)),
            Kind::Unit | Kind::Elements(_) | Kind::Map(_) | Kind::Product(_) | Kind::Paths(_) => None,
        }
    }

    fn level_of(&self, value: Value) -> Level {
        if self.facts.topology(value).is_some() { Level::Edge } else { Level::Row }
    }

    /// Elements per row of the traversal's rows.
    pub(super) fn width(&self, value: Value) -> Width {
        let width = self.facts.width(value);
        match self.kind {
            Kind::Elements(_) => Width::one(),
            // Updates of the weight whose rows these are.
            Kind::Edges(Topology::Pattern(pattern), Direction::Out) if self.facts.flow.ty(value).is_unit() => {
                let columns = Width::fixed(self.facts.flow.patterns[pattern.index()].columns);
                width.divided_by(&columns).unwrap_or(width)
            }
            Kind::Unit | Kind::Map(_) | Kind::Product(_) | Kind::Edges(..) | Kind::Ends(..) | Kind::Paths(_) => width,
        }
    }

    /// Appends the instruction whose result a value is.
    fn define(&mut self, value: Value, level: Level, width: Width, op: KernelOp) {
        let stored = self.members.contains(&value).then(|| self.builder.stored(value)).flatten();
        let total = op.is_total();
        let (dest, source) = match stored {
            Some(buffer) => (Dest::Buffer(buffer), Source::Buffer(buffer)),
            None => {
                let local = Local(self.num_locals);
                self.num_locals += 1;
                (Dest::Local(local), Source::Local(local))
            }
        };
        let stage = self.facts.flow.value(value).stage;
        let from = Provenance(self.facts.flow.value(value).origin);
        self.instrs.push(Instr { dest, level, op, width, stage, from });
        // A total is complete only after the kernel.
        if !total {
            self.made.insert(value, source);
        }
    }

    /// A value as an operand of an operation at a level.
    pub(super) fn operand(&mut self, value: Value, level: Level) -> Result<Operand> {
        let facts = self.facts;
        let root = facts.root(value);
        if let Some(topology) = facts.topology(value) {
            return self.edge_operand(value, root, topology);
        }
        if let (Op::Select(..), true) = (&facts.flow.value(root).op, self.members.contains(&root)) {
            // The rows of its vertices, where they are.
            let selected = facts.root(facts.flow.value(root).args[0]);
            return Ok(operand(self.builder.source(selected)?, Index::Row));
        }
        let index = match (self.kind, facts.flow.ty(value).space) {
            (Kind::Elements(volume), Space::Unit) if facts.width(value) == *volume => Index::Row,
            (Kind::Edges(Topology::Pattern(_), Direction::Out), Space::Unit)
                if level == Level::Row && !facts.width(value).is_one() =>
            {
                Index::Row
            }
            (_, Space::Unit) => Index::Whole,
            (Kind::Edges(_, direction), _) if level == Level::Edge => {
                // A dense operand of a sparse element-wise operation: the value of the element's row.
                if *direction == Direction::In { Index::Row } else { Index::Other }
            }
            _ => Index::Row,
        };
        let source = self.source(root)?;
        // In a kernel of one row, its own values are those of the row.
        let local = matches!(source, Source::Local(_)) && index == Index::Whole;
        Ok(operand(source, if local { Index::Row } else { index }))
    }

    fn source(&mut self, root: Value) -> Result<Source> {
        if !self.members.contains(&root) {
            return self.builder.source(root);
        }
        if let Some(&source) = self.made.get(&root) {
            return Ok(source);
        }
        self.lower(root)?;
        let made = self.made.get(&root).copied();
        made.ok_or_else(|| self.facts.error(root, "internal error: a total is used in its own kernel"))
    }

    /// A value of edges (stored elements): gathers are read in place, everything else is computed.
    fn edge_operand(&mut self, value: Value, root: Value, topology: Topology) -> Result<Operand> {
        let Some((_, direction)) = self.edges().filter(|&(own, _)| own == topology) else {
            return Err(self.facts.error(value, "internal error: edge values of another graph"));
        };
        let node = self.facts.flow.value(root);
        let index = match (&node.op, direction) {
            (Op::Input(_), _) => return Ok(operand(self.builder.source(root)?, Index::Edge)),
            (Op::GatherSrc(_), Direction::In) | (Op::GatherDst(_), Direction::Out) => Index::Other,
            (Op::GatherSrc(_), Direction::Out) | (Op::GatherDst(_), Direction::In) => Index::Row,
            _ => {
                if !self.made.contains_key(&root) {
                    self.lower(root)?;
                }
                return Ok(operand(self.made[&root], Index::Edge));
            }
        };
        let inner = self.facts.root(node.args[0]);
        let source = if index == Index::Row { self.source(inner)? } else { self.builder.source(inner)? };
        Ok(operand(source, index))
    }

    /// An operand of an element-wise operation, whose result repeats narrower operands: broadcasts are not made.
    fn element_operand(&mut self, value: Value, of: &Type, level: Level) -> Result<Operand> {
        let facts = self.facts;
        if of.is_sparse() && facts.topology(value).is_none() {
            return self.dense_of_sparse(value);
        }
        let peeled = self.peel(value);
        // Only a prefix repeats the same way after looking through; a reshape between would not be seen.
        let prefix = of.dims.starts_with(&facts.flow.ty(peeled).dims);
        self.operand(if prefix { peeled } else { value }, level)
    }

    /// Looks through the broadcasts that this traversal would make, for consumers that repeat elements themselves.
    /// A broadcast stored by an earlier kernel is read as it is: its operand may be gone.
    pub(super) fn peel(&self, mut value: Value) -> Value {
        let facts = self.facts;
        loop {
            let node = facts.flow.value(value);
            let root = facts.root(value);
            let here = root != value || facts.topology(root).is_some() || self.members.contains(&root);
            if !(here && matches!(node.op, Op::Broadcast(_) | Op::StopGradient)) {
                return value;
            }
            value = node.args[0];
        }
    }

    /// A dense operand of an element-wise operation on stored elements.
    fn dense_of_sparse(&mut self, value: Value) -> Result<Operand> {
        let ty = self.facts.flow.ty(value);
        let incoming = self.edges().is_some_and(|(_, direction)| direction == Direction::In);
        let (row, column) = if incoming { (Index::Row, Index::Other) } else { (Index::Other, Index::Row) };
        let index = match (ty.space, ty.dims.is_empty()) {
            (Space::Unit, true) => Index::Whole,
            (Space::Unit, false) => column,
            (_, true) => row,
            (_, false) => Index::Cell,
        };
        let root = self.facts.root(value);
        Ok(operand(self.source(root)?, index))
    }

    /// The two sides of a product that is used once, here: then it is fused into its sum.
    pub(super) fn fusible(&self, value: Value) -> Option<(Value, Value)> {
        let root = self.facts.root(value);
        let here = self.facts.topology(root).is_some() || self.members.contains(&root);
        let free = here
            && !self.builder.form.without.has(Decision::FuseProducts)
            && self.uses.get(&root) == Some(&1)
            && !self.made.contains_key(&root)
            && (self.facts.topology(root).is_some() || self.builder.stored(root).is_none());
        if free { self.facts.as_product(root) } else { None }
    }

    /// Appends the instructions of a value and of what it needs of this traversal. Operands are lowered by recursion, up to
    /// [`MAX_WAITING`]; where they are nested more deeply, those that wait give up, and start again when the operand is
    /// there. A value appends nothing before all its operands are there, so the order of instructions is the same.
    fn lower(&mut self, value: Value) -> Result<()> {
        if self.waiting > 0 {
            if self.waiting == MAX_WAITING {
                self.postponed = Some(value);
                return Err(self.facts.error(value, "internal error: postponed, and never lowered"));
            }
            self.waiting += 1;
            let lowered = self.lower_now(value);
            self.waiting -= 1;
            return lowered;
        }
        let mut pending = vec![value];
        while let Some(&next) = pending.last() {
            self.waiting = 1;
            let lowered = self.lower_now(next);
            self.waiting = 0;
            match (lowered, self.postponed.take()) {
                (Ok(()), _) => _ = pending.pop(),
                (Err(_), Some(operand)) => pending.push(operand),
                (Err(error), None) => return Err(error),
            }
        }
        Ok(())
    }

    fn lower_now(&mut self, value: Value) -> Result<()> {
        let facts = self.facts;
        let flow = facts.flow;
        let node = flow.value(value);
        self.from = Provenance(node.origin);
        let mut width = self.width(value);
        let mut level = self.level_of(value);
        let arg = |i: usize| node.args[i];
        let op = match &node.op {
            Op::Unary(f) => match self.softmax_of(value) {
                Some(lse) => {
                    let Softmax { exps, scale, .. } = self.softmax(lse)?;
                    KernelOp::Binary(BinaryOp::Mul, exps, scale)
                }
                None => KernelOp::Unary(*f, self.operand(arg(0), level)?),
            },
            Op::Binary(f) => {
                let a = self.element_operand(arg(0), &node.ty, level)?;
                let b = self.element_operand(arg(1), &node.ty, level)?;
                KernelOp::Binary(*f, a, b)
            }
            Op::Broadcast(_) => KernelOp::Copy(self.element_operand(arg(0), &node.ty, level)?),
            Op::Concat => {
                let lead = Width::of(&node.ty.dims[..node.ty.dims.len() - 1]);
                let parts = node.args.iter().map(|&part| self.operand(part, level)).collect::<Result<_>>()?;
                KernelOp::Concat { parts, lead }
            }
            Op::Slice { start, len } => {
                let last = flow.ty(arg(0)).dims.last().and_then(|dim| dim.fixed());
                let last = last.ok_or_else(|| facts.error(value, "a slice of a dimension without a fixed extent"))?;
                KernelOp::Slice { a: self.operand(arg(0), level)?, last, start: *start, len: *len }
            }
            Op::OneHot { .. } => {
                if level == Level::Edge || !matches!(flow.value(facts.root(arg(0))).op, Op::Input(_)) {
                    return Err(facts.error(value, "labels that are not an input with one per vertex"));
                }
                KernelOp::OneHot(self.operand(arg(0), level)?)
            }
            Op::RandomMask { stream, rate, .. } => KernelOp::Mask { stream: *stream, rate: *rate },
            Op::MatMul { batch } => {
                let of = facts.extents(flow.ty(arg(1)), *batch);
                if facts.topology(arg(0)).is_some() && level == Level::Row {
                    // Sparse rows gather the rows of the weight.
                    level = Level::Edge;
                    let a = self.operand(arg(0), level)?;
                    let x = operand(self.builder.source(facts.root(arg(1)))?, Index::Other);
                    KernelOp::WeightedSum { a, x }
                } else {
                    let (x, w) = (self.operand(arg(0), level)?, self.operand(arg(1), level)?);
                    if of.n.is_one() { KernelOp::Dot(x, w) } else { KernelOp::MatMul(of, x, w) }
                }
            }
            Op::MatMulT { batch } => {
                let of = facts.extents(flow.ty(arg(1)), *batch);
                let (y, w) = (self.operand(arg(0), level)?, self.operand(arg(1), level)?);
                if of.n.is_one() { KernelOp::Binary(BinaryOp::Mul, y, w) } else { KernelOp::MatMulT(of, y, w) }
            }
            Op::Outer { batch } => {
                let of = facts.extents(&node.ty, *batch);
                level = self.level_of(arg(0));
                if let Some(Topology::Pattern(_)) = facts.topology(arg(0)) {
                    // The transposed sparse matrix times `y`: a column gathers the rows that store it.
                    let a = self.operand(arg(0), level)?;
                    let x = operand(self.builder.source(facts.root(arg(1)))?, Index::Other);
                    width = of.n;
                    KernelOp::WeightedSum { a, x }
                } else {
                    let (x, y) = (self.operand(arg(0), level)?, self.operand(arg(1), level)?);
                    width = of.all();
                    KernelOp::OuterAll(of, x, y)
                }
            }
            Op::Paths(_) => return Err(facts.error(value, "internal error: a sum over paths in a traversal")),
            Op::Select(..) => KernelOp::Copy(self.operand(value, level)?),
            Op::Replace(..) => {
                let base = self.element_operand(arg(0), &node.ty, level)?;
                KernelOp::Replace(base, self.ends(arg(1))?)
            }
            Op::AddEnds(_) => {
                let mut parts = vec![self.element_operand(arg(0), &node.ty, level)?];
                for &part in &node.args[1..] {
                    parts.push(self.ends(part)?);
                }
                KernelOp::AddEnds(parts)
            }
            Op::Segment { .. } | Op::SegmentEnds { .. } if let Some(online) = self.online_of(value) => {
                self.lower_online(online, value)?
            }
            Op::Segment { .. } | Op::SegmentEnds { .. } if self.softmaxes.contains_key(&value) => {
                let Softmax { base, total, .. } = self.softmax(value)?;
                let log = Local(self.num_locals);
                self.num_locals += 1;
                let op = KernelOp::Unary(UnaryOp::Log, total);
                let (dest, width, stage) = (Dest::Local(log), width.clone(), node.stage);
                self.instrs.push(Instr { dest, level, op, width, stage, from: self.from });
                KernelOp::Binary(BinaryOp::Add, base, operand(Source::Local(log), Index::Row))
            }
            Op::SegmentArg { .. } => {
                let state = self.extreme_state(value)?;
                let count = self.fixed_width(value)?;
                KernelOp::Slice { a: state, last: 2 * count, start: count, len: count }
            }
            Op::Segment { .. } if let Some(arg) = self.arg_of(value) => {
                let state = self.extreme_state(arg)?;
                let count = self.fixed_width(value)?;
                KernelOp::Slice { a: state, last: 2 * count, start: 0, len: count }
            }
            Op::Segment { reduce, .. } | Op::SegmentEnds { reduce, .. } => {
                level = Level::Edge;
                match self.weighted_sum(arg(0), *reduce, &width)? {
                    Some(op) => op,
                    None => KernelOp::Segment(*reduce, self.operand(arg(0), level)?),
                }
            }
            Op::ReduceTrailing { reduce, .. } => {
                if facts.topology(arg(0)).is_some() && level == Level::Row {
                    // Over the columns of a sparse matrix: over the stored elements of the row.
                    level = Level::Edge;
                    KernelOp::Segment(Reduce::Sum, self.operand(arg(0), level)?)
                } else {
                    match self.dot(arg(0), *reduce, level)? {
                        Some(op) => op,
                        None => KernelOp::ReduceTrailing(*reduce, self.operand(arg(0), level)?),
                    }
                }
            }
            Op::ReduceSpace(reduce) => {
                level = self.level_of(arg(0));
                KernelOp::ReduceAll(*reduce, self.operand(arg(0), level)?)
            }
            Op::Input(_)
            | Op::Param(_)
            | Op::State(..)
            | Op::Const(_)
            | Op::Count(_)
            | Op::StopGradient
            | Op::Reshape(_)
            | Op::Rows
            | Op::Unrows
            | Op::GatherSrc(_)
            | Op::GatherDst(_) => {
                return Err(facts.error(value, "internal error: not an instruction"));
            }
        };
        self.define(value, level, width, op);
        Ok(())
    }

    /// For a maximum (minimum) over edges, the member of this traversal that finds the edges it comes from: both are one pass.
    fn arg_of(&self, value: Value) -> Option<Value> {
        let (facts, flow) = (self.facts, self.facts.flow);
        let Op::Segment { graph, direction, reduce } = flow.value(value).op else { return None };
        let x = facts.root(flow.value(value).args[0]);
        let finds = |&member: &Value| match flow.value(member).op {
            Op::SegmentArg { graph: over, direction: to, extreme } => {
                (over, to, extreme.reduce()) == (graph, direction, reduce)
                    && facts.root(flow.value(member).args[0]) == x
                    && flow.ty(member) == flow.ty(value)
            }
            _ => false,
        };
        self.members.iter().copied().filter(finds).min()
    }

    /// The largest (smallest) elements of each row and the ranks of their edges, for an [`Op::SegmentArg`].
    fn extreme_state(&mut self, value: Value) -> Result<Operand> {
        if let Some(&made) = self.extremes.get(&value) {
            return Ok(made);
        }
        let node = self.facts.flow.value(value);
        let Op::SegmentArg { extreme, .. } = node.op else {
            return Err(self.facts.error(value, "internal error: no search for an edge"));
        };
        let (x, rank) = (self.operand(node.args[0], Level::Edge)?, self.operand(node.args[1], Level::Edge)?);
        let width = Width::fixed(2 * self.fixed_width(value)?);
        let made = self.emit(Level::Edge, KernelOp::SegmentArg { extreme, x, rank }, width, node.stage);
        self.extremes.insert(value, made);
        Ok(made)
    }

    fn fixed_width(&self, value: Value) -> Result<usize> {
        let fixed = self.width(value).as_fixed();
        fixed.ok_or_else(|| self.facts.error(value, "a maximum over edges of rows whose length depends on the dataset"))
    }

    /// A value of the ends of a graph, at the rows of their vertices.
    fn ends(&self, value: Value) -> Result<Operand> {
        Ok(operand(self.builder.source(self.facts.root(value))?, Index::End))
    }

    /// `Σ a · b` over trailing groups without making the products.
    fn dot(&mut self, arg: Value, reduce: Reduce, level: Level) -> Result<Option<KernelOp>> {
        if reduce != Reduce::Sum {
            return Ok(None);
        }
        let Some((a, b)) = self.fusible(arg) else { return Ok(None) };
        let (a, b) = (self.peel(a), self.peel(b));
        let width = self.facts.width(arg);
        if self.facts.width(a) != width || self.facts.width(b) != width {
            return Ok(None);
        }
        Ok(Some(KernelOp::Dot(self.operand(a, level)?, self.operand(b, level)?)))
    }

    /// `Σ a · x` over the edges of a row without making the products. The narrower side holds the weights.
    fn weighted_sum(&mut self, arg: Value, reduce: Reduce, width: &Width) -> Result<Option<KernelOp>> {
        let facts = self.facts;
        if reduce != Reduce::Sum {
            return Ok(None);
        }
        let Some((a, b)) = self.fusible(arg) else { return Ok(None) };
        let (a, b) = (self.peel(a), self.peel(b));
        let (a, x) = if facts.width(b).divided_by(&facts.width(a)).is_some() { (a, b) } else { (b, a) };
        let (heads, all) = (facts.width(a), facts.width(x));
        let dims = &facts.flow.ty(facts.root(arg)).dims;
        let prefix = dims.starts_with(&facts.flow.ty(a).dims);
        if heads == all || all != *width || all.divided_by(&heads).is_none() || !prefix {
            return Ok(None);
        }
        let a = self.operand(a, Level::Edge)?;
        Ok(Some(KernelOp::WeightedSum { a, x: self.operand(x, Level::Edge)? }))
    }
}
