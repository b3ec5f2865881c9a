//! Lowers the operations of a group to the instructions of a traversal.
//!
//! Values are lowered on demand from the members of the group: gathers, reshapes and broadcasts become addressing modes
//! of operands.

use hgnnc_analysis::aliases::{AliasAnalysis, Topology};
use hgnnc_ir::width::Width;
use hgnnc_ir::{BinaryOp, Dim, Direction, Op, Provenance, Reduce, Space, Stage, Type, UnaryOp, Value};
use hgnnc_kernel_ir::kernel::{Dest, Extent, Index, Instr, KernelOp, Level, Local, Operand, Source, Traversal};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Builder, operand};
use crate::groups::{Group, Kind};
use crate::{NotLowered, error};

pub(crate) type Result<T> = std::result::Result<T, NotLowered>;

/// Lowers a group that is not a dense product.
pub(crate) fn lower_traversal(builder: &Builder<'_, '_>, group: &Group) -> Result<Traversal> {
    let aliases = builder.aliases;
    let mut lowering = Lowering {
        builder,
        aliases,
        kind: &group.kind,
        members: group.members.iter().copied().collect(),
        lowered: FxHashMap::default(),
        extremes: FxHashMap::default(),
        instrs: vec![],
        num_locals: 0,
        from: Provenance::default(),
        waiting: 0,
        postponed: None,
    };
    for &member in &group.members {
        // Members that are not stored are lowered where they are used, or fused there.
        if builder.stored(member).is_some() && !lowering.lowered.contains_key(&member) {
            if matches!(aliases.flow.value(member).op, Op::GatherSrc(_) | Op::GatherDst(_)) {
                let gathered = lowering.operand(member, Level::Edge)?;
                lowering.define(member, Level::Edge, aliases.width(member), KernelOp::Copy(gathered));
            } else {
                lowering.lower(member)?;
            }
        }
    }
    let rows = group
        .kind
        .rows()
        .ok_or_else(|| error(aliases, group.members[0], "internal error: rows that no traversal has"))?;
    Ok(Traversal { rows, pieces: None, instrs: lowering.instrs })
}

pub(crate) struct Lowering<'b, 'f, 'a> {
    builder: &'b Builder<'f, 'a>,
    pub(crate) aliases: &'f AliasAnalysis<'a>,
    kind: &'b Kind,
    pub(crate) members: FxHashSet<Value>,
    /// Locals and buffers of the values that are lowered already.
    lowered: FxHashMap<Value, Source>,
    /// For each lowered search for an edge: the extreme elements, and the ranks of their edges.
    extremes: FxHashMap<Value, Operand>,
    instrs: Vec<Instr>,
    num_locals: u32,
    /// The source position of the value that is being lowered.
    from: Provenance,
    /// Number of values whose lowering waits for an operand.
    waiting: usize,
    /// The operand to lower first, because too many values would wait for it.
    postponed: Option<Value>,
}

/// Most values that wait for an operand at a time, which limits the recursion: a chain of operations may have any
/// length.
const MAX_WAITING: usize = 256;

impl Lowering<'_, '_, '_> {
    /// Appends an instruction with a local for its result.
    pub(crate) fn emit(&mut self, level: Level, op: KernelOp, width: Width, stage: Stage) -> Operand {
        let local = Local(self.num_locals);
        self.num_locals += 1;
        let instr = Instr { dest: Dest::Local(local), level, op, width, stage, exact: false, from: self.from };
        let index = if instr.extent() == Extent::Edge { Index::Edge } else { Index::Own };
        self.instrs.push(instr);
        operand(Source::Local(local), index)
    }

    pub(crate) fn edges(&self) -> Option<(Topology, Direction)> {
        match self.kind {
            Kind::Edges(topology, direction) => Some((*topology, *direction)),
            Kind::Endpoints(graph, direction) => Some((Topology::Graph(*graph), *direction)),
            Kind::Unit
            | Kind::Elements(_)
            | Kind::Map(_)
            | Kind::Product(_)
            | Kind::Exchange(_)
            | Kind::FactoredMetapath(_) => None,
        }
    }

    fn level_of(&self, value: Value) -> Level {
        if self.aliases.topology(value).is_some() { Level::Edge } else { Level::Row }
    }

    /// Elements per row of the traversal's rows.
    pub(crate) fn width(&self, value: Value) -> Width {
        let width = self.aliases.width(value);
        match self.kind {
            Kind::Elements(_) => Width::one(),
            // The update of the weight whose rows the traversal computes.
            Kind::Edges(Topology::Pattern(pattern), Direction::Out) if self.aliases.flow.ty(value).is_unit() => {
                let columns = Width::fixed(self.aliases.flow.patterns[pattern.index()].columns);
                width.divided_by(&columns).unwrap_or(width)
            }
            Kind::Unit
            | Kind::Map(_)
            | Kind::Product(_)
            | Kind::Edges(..)
            | Kind::Endpoints(..)
            | Kind::Exchange(_)
            | Kind::FactoredMetapath(_) => width,
        }
    }

    /// Appends the instruction that computes a value.
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
        let stage = self.aliases.flow.value(value).stage;
        let from = Provenance(self.aliases.flow.value(value).origin);
        // Only the exponentials of softmaxes are ever rounded in different ways.
        let exact = matches!(op, KernelOp::Unary(UnaryOp::Exp, _)) && self.aliases.decides(value);
        self.instrs.push(Instr { dest, level, op, width, stage, exact, from });
        // A reduction over all rows is complete only after the kernel.
        if !total {
            self.lowered.insert(value, source);
        }
    }

    /// A value as an operand of an operation at a level.
    pub(crate) fn operand(&mut self, value: Value, level: Level) -> Result<Operand> {
        let aliases = self.aliases;
        let root = aliases.storage_of(value);
        if let Some(topology) = aliases.topology(value) {
            return self.edge_operand(value, root, topology);
        }
        if let (Op::GatherRows(..), true) = (&aliases.flow.value(root).op, self.members.contains(&root)) {
            // The rows of its vertices, read in place.
            let selected = aliases.storage_of(aliases.flow.value(root).args[0]);
            return Ok(operand(self.builder.source(selected)?, Index::Own));
        }
        let index = match (self.kind, aliases.flow.ty(value).space) {
            (Kind::Elements(volume), Space::Unit) if aliases.width(value) == *volume => Index::Own,
            (Kind::Edges(Topology::Pattern(_), Direction::Out), Space::Unit)
                if level == Level::Row && !aliases.width(value).is_one() =>
            {
                Index::Own
            }
            (_, Space::Unit) => Index::Uniform,
            (Kind::Edges(_, direction), _) if level == Level::Edge => {
                // A dense operand of a sparse element-wise operation is read at the element's row.
                if *direction == Direction::In { Index::Own } else { Index::Neighbor }
            }
            _ => Index::Own,
        };
        let source = self.source(root)?;
        // A kernel of one row reads its own values at that row.
        let local = matches!(source, Source::Local(_)) && index == Index::Uniform;
        Ok(operand(source, if local { Index::Own } else { index }))
    }

    fn source(&mut self, root: Value) -> Result<Source> {
        if !self.members.contains(&root) {
            return self.builder.source(root);
        }
        if let Some(&source) = self.lowered.get(&root) {
            return Ok(source);
        }
        self.lower(root)?;
        let made = self.lowered.get(&root).copied();
        made.ok_or_else(|| error(self.aliases, root, "internal error: a total is used in its own kernel"))
    }

    /// An operand that is an edge value (or one of stored elements): gathers are read in place, other values are
    /// computed.
    fn edge_operand(&mut self, value: Value, root: Value, topology: Topology) -> Result<Operand> {
        let Some((_, direction)) = self.edges().filter(|&(own, _)| own == topology) else {
            return Err(error(self.aliases, value, "internal error: edge values of another graph"));
        };
        let node = self.aliases.flow.value(root);
        let index = match (&node.op, direction) {
            (Op::Input(_), _) => return Ok(operand(self.builder.source(root)?, Index::Edge)),
            // Rows of vertices that are those of the edges.
            (Op::Reindex(_), _) => {
                let rows = self.aliases.storage_of(node.args[0]);
                return Ok(operand(self.builder.source(rows)?, Index::Edge));
            }
            (Op::GatherSrc(_), Direction::In) | (Op::GatherDst(_), Direction::Out) => Index::Neighbor,
            (Op::GatherSrc(_), Direction::Out) | (Op::GatherDst(_), Direction::In) => Index::Own,
            _ => {
                if !self.lowered.contains_key(&root) {
                    self.lower(root)?;
                }
                return Ok(operand(self.lowered[&root], Index::Edge));
            }
        };
        let inner = self.aliases.storage_of(node.args[0]);
        let source = if index == Index::Own { self.source(inner)? } else { self.builder.source(inner)? };
        Ok(operand(source, index))
    }

    /// An operand of an element-wise operation, which broadcasts narrower operands itself.
    fn element_operand(&mut self, value: Value, of: &Type, level: Level) -> Result<Operand> {
        let aliases = self.aliases;
        if of.is_sparse() && aliases.topology(value).is_none() {
            return self.dense_of_sparse(value);
        }
        let peeled = self.peel(value);
        // Only a prefix of the dimensions broadcasts in the same way; a reshape in between would be missed.
        let prefix = of.dims.starts_with(&aliases.flow.ty(peeled).dims);
        self.operand(if prefix { peeled } else { value }, level)
    }

    /// A matrix of each row: a single one for all rows is read in place.
    fn matrix(&mut self, value: Value, level: Level) -> Result<Operand> {
        let peeled = self.peel(value);
        let whole = self.aliases.flow.ty(peeled).dims == self.aliases.flow.ty(value).dims;
        self.operand(if whole { peeled } else { value }, level)
    }

    /// Looks through the broadcasts that this traversal would compute, for consumers that broadcast themselves. A
    /// broadcast that an earlier kernel stored is read as it is: its operand may be dead.
    pub(crate) fn peel(&self, mut value: Value) -> Value {
        let aliases = self.aliases;
        loop {
            let node = aliases.flow.value(value);
            let root = aliases.storage_of(value);
            let here = root != value || aliases.topology(root).is_some() || self.members.contains(&root);
            if !(here && matches!(node.op, Op::Broadcast(_) | Op::StopGradient)) {
                return value;
            }
            value = node.args[0];
        }
    }

    /// A dense operand of an element-wise operation on stored elements.
    fn dense_of_sparse(&mut self, value: Value) -> Result<Operand> {
        let ty = self.aliases.flow.ty(value);
        let incoming = self.edges().is_some_and(|(_, direction)| direction == Direction::In);
        let (row, column) = if incoming { (Index::Own, Index::Neighbor) } else { (Index::Neighbor, Index::Own) };
        let index = match (ty.space, ty.dims.is_empty()) {
            (Space::Unit, true) => Index::Uniform,
            (Space::Unit, false) => column,
            (_, true) => row,
            (_, false) => Index::DenseCell,
        };
        let root = self.aliases.storage_of(value);
        Ok(operand(self.source(root)?, index))
    }

    /// Appends the instructions of a value and of its operands in this traversal. Operands are lowered by recursion of
    /// depth [`MAX_WAITING`]; beyond it, the waiting values give up and start again when the operand is lowered. A
    /// value appends nothing before all its operands are lowered, so the order of instructions is the same.
    fn lower(&mut self, value: Value) -> Result<()> {
        if self.waiting > 0 {
            if self.waiting == MAX_WAITING {
                self.postponed = Some(value);
                return Err(error(self.aliases, value, "internal error: postponed, and never lowered"));
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
        let aliases = self.aliases;
        let flow = aliases.flow;
        let node = flow.value(value);
        self.from = Provenance(node.origin);
        let mut width = self.width(value);
        let mut level = self.level_of(value);
        let arg = |i: usize| node.args[i];
        let op = match &node.op {
            Op::Unary(f) => KernelOp::Unary(*f, self.operand(arg(0), level)?),
            Op::Binary(f) => {
                let a = self.element_operand(arg(0), &node.ty, level)?;
                let b = self.element_operand(arg(1), &node.ty, level)?;
                KernelOp::Binary(*f, a, b)
            }
            Op::Broadcast(_) => KernelOp::Copy(self.element_operand(arg(0), &node.ty, level)?),
            Op::Reindex(Space::Vertices(_)) => {
                level = Level::Edge;
                KernelOp::Copy(self.operand(arg(0), level)?)
            }
            Op::Concat => {
                let lead = Width::of(&node.ty.dims[..node.ty.dims.len() - 1]);
                let parts = node.args.iter().map(|&part| self.operand(part, level)).collect::<Result<_>>()?;
                KernelOp::Concat { parts, lead }
            }
            Op::Slice { start, len } => {
                let last = flow.ty(arg(0)).dims.last().and_then(|dim| dim.fixed());
                let last =
                    last.ok_or_else(|| error(aliases, value, "a slice of a dimension without a fixed extent"))?;
                KernelOp::Slice { a: self.operand(arg(0), level)?, last, start: *start, len: *len }
            }
            Op::Transpose { axis } => {
                let from = &flow.ty(arg(0)).dims[*axis..];
                let fixed = |dims: &[Dim]| Width::of(dims).as_fixed();
                let (Some(m), Some(n), Some(inner)) = (fixed(&from[..1]), fixed(&from[1..2]), fixed(&from[2..])) else {
                    return Err(error(aliases, value, "a transpose of a dimension without a fixed extent"));
                };
                KernelOp::Transpose { a: self.operand(arg(0), level)?, m, n, inner }
            }
            Op::RowProduct { batch } => {
                let (left, right) = (&flow.ty(arg(0)).dims[*batch..], &flow.ty(arg(1)).dims[*batch..]);
                let (Some(m), Some(k), Some(n)) = (left[0].fixed(), left[1].fixed(), right[1].fixed()) else {
                    return Err(error(aliases, value, "a product of rows without fixed extents"));
                };
                let (a, b) = (self.matrix(arg(0), level)?, self.matrix(arg(1), level)?);
                KernelOp::RowProduct { m, k, n, a, b }
            }
            Op::OneHot { .. } => {
                if level == Level::Edge || !matches!(flow.value(aliases.storage_of(arg(0))).op, Op::Input(_)) {
                    return Err(error(aliases, value, "labels that are not an input with one per vertex"));
                }
                KernelOp::OneHot(self.operand(arg(0), level)?)
            }
            Op::RandomMask { stream, rate, .. } => KernelOp::Mask { stream: *stream, rate: *rate },
            Op::MatMul { batch } => {
                let of = aliases.extents(flow.ty(arg(1)), *batch);
                if aliases.topology(arg(0)).is_some() && level == Level::Row {
                    // Sparse rows gather the rows of the weight.
                    level = Level::Edge;
                    let a = self.operand(arg(0), level)?;
                    let x = operand(self.builder.source(aliases.storage_of(arg(1)))?, Index::Neighbor);
                    KernelOp::WeightedSum { a, x }
                } else {
                    let (x, w) = (self.operand(arg(0), level)?, self.operand(arg(1), level)?);
                    if of.n.is_one() { KernelOp::Dot(x, w) } else { KernelOp::MatMul(of, x, w) }
                }
            }
            Op::MatMulT { batch } => {
                let of = aliases.extents(flow.ty(arg(1)), *batch);
                let (y, w) = (self.operand(arg(0), level)?, self.operand(arg(1), level)?);
                if of.n.is_one() { KernelOp::Binary(BinaryOp::Mul, y, w) } else { KernelOp::MatMulT(of, y, w) }
            }
            Op::Outer { batch } => {
                let of = aliases.extents(&node.ty, *batch);
                level = self.level_of(arg(0));
                if let Some(Topology::Pattern(_)) = aliases.topology(arg(0)) {
                    // The transposed sparse matrix times `y`: a column gathers the rows that store it.
                    let a = self.operand(arg(0), level)?;
                    let x = operand(self.builder.source(aliases.storage_of(arg(1)))?, Index::Neighbor);
                    width = of.n;
                    KernelOp::WeightedSum { a, x }
                } else {
                    let (x, y) = (self.operand(arg(0), level)?, self.operand(arg(1), level)?);
                    width = of.all();
                    KernelOp::OuterAll(of, x, y)
                }
            }
            Op::Grouped { .. } => {
                return Err(error(aliases, value, "internal error: a grouped product in a traversal"));
            }
            Op::Exchange(_) | Op::SumRanks => {
                return Err(error(aliases, value, "internal error: an exchange in a traversal"));
            }
            Op::MetapathReduce(_) => {
                return Err(error(aliases, value, "internal error: a reduction over a metapath in a traversal"));
            }
            Op::GatherRows(..) => KernelOp::Copy(self.operand(value, level)?),
            Op::ScatterRows(..) => {
                let base = self.element_operand(arg(0), &node.ty, level)?;
                KernelOp::ScatterRows(base, self.endpoints(arg(1))?)
            }
            Op::ScatterAdd(_) => {
                let mut parts = vec![self.element_operand(arg(0), &node.ty, level)?];
                for &part in &node.args[1..] {
                    parts.push(self.endpoints(part)?);
                }
                KernelOp::ScatterAdd(parts)
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
            Op::Segment { reduce, .. } | Op::SegmentEndpoints { reduce, .. } => {
                level = Level::Edge;
                KernelOp::Segment(*reduce, self.operand(arg(0), level)?)
            }
            Op::ReduceTrailing { reduce, .. } => {
                if aliases.topology(arg(0)).is_some() && level == Level::Row {
                    // A reduction over the columns of a sparse matrix runs over the stored elements of the row.
                    level = Level::Edge;
                    KernelOp::Segment(Reduce::Sum, self.operand(arg(0), level)?)
                } else {
                    KernelOp::ReduceTrailing(*reduce, self.operand(arg(0), level)?)
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
            | Op::Reindex(_)
            | Op::LinkLoss(_)
            | Op::GatherSrc(_)
            | Op::GatherDst(_) => {
                return Err(error(aliases, value, "internal error: not an instruction"));
            }
        };
        self.define(value, level, width, op);
        Ok(())
    }

    /// For a maximum (minimum) over edges, the member of this traversal that finds its edges: both share a pass.
    fn arg_of(&self, value: Value) -> Option<Value> {
        let (aliases, flow) = (self.aliases, self.aliases.flow);
        let Op::Segment { graph, direction, reduce } = flow.value(value).op else { return None };
        let x = aliases.storage_of(flow.value(value).args[0]);
        let finds = |&member: &Value| match flow.value(member).op {
            Op::SegmentArg { graph: over, direction: to, extreme } => {
                (over, to, extreme.reduce()) == (graph, direction, reduce)
                    && aliases.storage_of(flow.value(member).args[0]) == x
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
        let node = self.aliases.flow.value(value);
        let Op::SegmentArg { extreme, .. } = node.op else {
            return Err(error(self.aliases, value, "internal error: no search for an edge"));
        };
        let (x, rank) = (self.operand(node.args[0], Level::Edge)?, self.operand(node.args[1], Level::Edge)?);
        let width = Width::fixed(2 * self.fixed_width(value)?);
        let made = self.emit(Level::Edge, KernelOp::SegmentArg { extreme, x, rank }, width, node.stage);
        self.extremes.insert(value, made);
        Ok(made)
    }

    fn fixed_width(&self, value: Value) -> Result<usize> {
        let fixed = self.width(value).as_fixed();
        fixed.ok_or_else(|| {
            error(self.aliases, value, "a maximum over edges of rows whose length depends on the dataset")
        })
    }

    /// A value of the endpoints of a graph, read at the rows of their vertices.
    fn endpoints(&self, value: Value) -> Result<Operand> {
        Ok(operand(self.builder.source(self.aliases.storage_of(value))?, Index::Endpoint))
    }
}
