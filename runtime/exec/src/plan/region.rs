//! From the operations of a group to the program of its blocks.
//!
//! Values are lowered on demand from the members of the group: gathers, reshapes and broadcasts become
//! ways to read an operand, and products that feed a sum are fused into it.

use std::collections::HashMap;

use hgnnc_ir::ops::{BinaryOp, Direction, Op, Reduce};
use hgnnc_ir::types::{Layout, Space, Type, Value};

use super::facts::Facts;
use super::lower::{Builder, stage_index};
use super::memory::{Lifetime, place};
use super::schedule::{Group, Kind};
use super::{Access, Base, BlockKind, BlockOp, Domain, Level, Local, Operand, Partial, Place, Region};
use crate::error::Result;
use crate::kernels::product::Extents;

/// Scratch that stays in the second-level cache together with what a block reads, in elements.
const SCRATCH: usize = 96 * 1024;
/// Elements of a tile of fetched operands: two fit in the first-level cache.
const TILE: usize = 2048;
/// Most tasks of a region.
const TASKS: usize = 256;
/// Most tasks of a region with partial results, whose parts are added one after another.
const PARTIAL_TASKS: usize = 32;

/// Lowers a group; also the share of each stage in its cost.
pub(super) fn lower_region(builder: &mut Builder<'_, '_>, group: &Group) -> Result<(Region, [f32; 5])> {
    let facts = builder.facts;
    let mut lowering = Lowering {
        builder,
        facts,
        kind: group.kind,
        members: group.members.iter().copied().collect(),
        uses: HashMap::new(),
        made: HashMap::new(),
        ops: vec![],
        locals: vec![],
        partials: vec![],
        uses_own: false,
        full_columns: None,
    };
    lowering.count_uses(&group.members);
    for &member in &group.members {
        // Members that nothing else needs are lowered where they are used, or fused there.
        if lowering.builder.stored(member).is_some() && !lowering.made.contains_key(&member) {
            if matches!(facts.flow.value(member).op, Op::GatherSrc(_) | Op::GatherDst(_)) {
                let gathered = lowering.operand(member, Level::Edge)?;
                lowering.define(member, Level::Edge, gathered.width, BlockKind::Copy(gathered));
            } else {
                lowering.lower(member)?;
            }
        }
    }
    lowering.finish()
}

struct Lowering<'b, 'f, 'a> {
    builder: &'b mut Builder<'f, 'a>,
    facts: &'f Facts<'a>,
    kind: Kind,
    members: std::collections::HashSet<Value>,
    /// How often a value is used in this region.
    uses: HashMap<Value, u32>,
    /// The local that holds a value.
    made: HashMap<Value, u32>,
    ops: Vec<BlockOp>,
    locals: Vec<Local>,
    partials: Vec<(Value, Reduce, usize)>,
    uses_own: bool,
    full_columns: Option<usize>,
}

impl Lowering<'_, '_, '_> {
    /// Counts the uses of all values that the region computes.
    fn count_uses(&mut self, members: &[Value]) {
        let mut pending = members.to_vec();
        let mut seen: std::collections::HashSet<Value> = pending.iter().copied().collect();
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

    fn direction(&self) -> Option<(usize, Direction)> {
        match self.kind {
            Kind::Edges(topology, out) => Some((topology, Kind::direction(out))),
            Kind::Unit | Kind::Elements(_) | Kind::Map(_) | Kind::Product(_) => None,
        }
    }

    fn level_of(&self, value: Value) -> Level {
        if self.facts.topology(value).is_some() { Level::Edge } else { Level::Row }
    }

    /// Elements per row of the region's rows.
    fn width(&self, value: Value) -> usize {
        match self.kind {
            Kind::Elements(_) => 1,
            Kind::Unit | Kind::Map(_) | Kind::Product(_) | Kind::Edges(..) => self.facts.width(value),
        }
    }

    fn push(&mut self, value: Value, level: Level, width: usize, kind: BlockKind, place: Option<Place>) -> u32 {
        let out = self.locals.len() as u32;
        let out_level = match kind {
            BlockKind::Segment(..) | BlockKind::WeightedSum { .. } => Level::Row,
            _ => level,
        };
        self.locals.push(Local { level: out_level, width, place: place.unwrap_or(Place::Scratch(0)) });
        self.ops.push(BlockOp { kind, level, out, value });
        out
    }

    /// A local of an operation's own result.
    fn define(&mut self, value: Value, level: Level, width: usize, kind: BlockKind) -> u32 {
        let stored = self.members.contains(&value).then(|| self.builder.stored(value)).flatten();
        let out = self.push(value, level, width, kind, stored.map(Place::Stored));
        self.made.insert(value, out);
        out
    }

    fn partial(&mut self, value: Value, level: Level, reduce: Reduce, width: usize, kind: BlockKind) {
        let out = self.partials.len() as u32;
        self.partials.push((value, reduce, width));
        self.ops.push(BlockOp { kind, level, out, value });
    }

    /// A value as an operand of an operation at a level.
    fn operand(&mut self, value: Value, level: Level) -> Result<Operand> {
        let facts = self.facts;
        let root = facts.root(value);
        let width = facts.width(value);
        if let Some(topology) = facts.topology(value) {
            return self.edge_operand(value, root, topology, width);
        }
        let member = self.members.contains(&root);
        let space = facts.flow.ty(value).space;
        let access = match (self.kind, space) {
            (Kind::Unit, Space::Unit) => Access::Each,
            (Kind::Elements(rows), Space::Unit) => {
                if width == rows {
                    let base = self.base(root, member)?;
                    return Ok(Operand { base, access: Access::Each, width: 1 });
                }
                Access::Same
            }
            (Kind::Map(_) | Kind::Edges(..) | Kind::Product(_), Space::Unit) => Access::Same,
            (Kind::Edges(topology, out), _) if level == Level::Edge => {
                // A dense operand of a sparse element-wise operation: the value of the element's row.
                debug_assert!(facts.is_pattern(topology), "edge operations read edge values");
                if Kind::direction(out) == Direction::In { Access::Own } else { Access::Other }
            }
            _ => Access::Each,
        };
        self.uses_own |= access == Access::Own;
        let base = self.base(root, member)?;
        Ok(Operand { base, access, width })
    }

    fn base(&mut self, root: Value, member: bool) -> Result<Base> {
        if !member {
            return match self.builder.stored(root) {
                Some(buffer) => Ok(Base::Stored(buffer)),
                None => Err(self.facts.error(root, "internal error: a value is used before it is computed")),
            };
        }
        match self.made.get(&root) {
            Some(&local) => Ok(Base::Local(local)),
            None => {
                self.lower(root)?;
                self.made
                    .get(&root)
                    .map(|&local| Base::Local(local))
                    .ok_or_else(|| self.facts.error(root, "internal error: a partial result is used in its own step"))
            }
        }
    }

    /// A value of edges (stored elements): gathers are read in place, everything else is computed.
    fn edge_operand(&mut self, value: Value, root: Value, topology: usize, width: usize) -> Result<Operand> {
        let Some((own_topology, direction)) = self.direction().filter(|&(t, _)| t == topology) else {
            return Err(self.facts.error(value, "internal error: edge values of another graph"));
        };
        debug_assert_eq!(own_topology, topology);
        let node = self.facts.flow.value(root);
        match (&node.op, direction) {
            (Op::Input(_), _) => {
                let base = Base::Stored(self.builder.buffer(root));
                let access = if direction == Direction::In { Access::Each } else { Access::Position };
                Ok(Operand { base, access, width })
            }
            (Op::GatherSrc(_), Direction::In) | (Op::GatherDst(_), Direction::Out) => {
                let base = Base::Stored(self.builder.buffer(node.args[0]));
                Ok(Operand { base, access: Access::Other, width })
            }
            (Op::GatherSrc(_), Direction::Out) | (Op::GatherDst(_), Direction::In) => {
                let inner = self.facts.root(node.args[0]);
                let member = self.members.contains(&inner);
                self.uses_own = true;
                Ok(Operand { base: self.base(inner, member)?, access: Access::Own, width })
            }
            _ => {
                let local = match self.made.get(&root) {
                    Some(&local) => local,
                    None => {
                        self.lower(root)?;
                        self.made[&root]
                    }
                };
                Ok(Operand { base: Base::Local(local), access: Access::Each, width })
            }
        }
    }

    /// An operand that lies row after row.
    fn contiguous(&mut self, value: Value, level: Level) -> Result<Operand> {
        let operand = self.operand(value, level)?;
        if operand.access == Access::Each {
            return Ok(operand);
        }
        let width = operand.width;
        let local = self.push(value, level, width, BlockKind::Copy(operand), None);
        Ok(Operand { base: Base::Local(local), access: Access::Each, width })
    }

    /// An operand of an element-wise operation, whose result repeats narrower operands: broadcasts are not made.
    fn element_operand(&mut self, value: Value, of: &Type, level: Level) -> Result<Operand> {
        let facts = self.facts;
        if let Layout::Sparse(pattern) = of.layout
            && facts.topology(value).is_none()
        {
            return self.dense_of_sparse(value, pattern.index());
        }
        let peeled = self.peel(value);
        // Only a prefix repeats the same way after looking through; a reshape between would not be seen.
        let prefix = of.dims.starts_with(&facts.flow.ty(peeled).dims);
        self.operand(if prefix { peeled } else { value }, level)
    }

    /// Looks through the broadcasts that this region would make, for consumers that repeat elements themselves.
    /// A broadcast stored by an earlier step is read as it is: its operand may be gone.
    fn peel(&self, value: Value) -> Value {
        let facts = self.facts;
        let node = facts.flow.value(value);
        let root = facts.root(value);
        let here = root != value || facts.topology(root).is_some() || self.members.contains(&root);
        if here && matches!(node.op, Op::Broadcast(_) | Op::StopGradient) { self.peel(node.args[0]) } else { value }
    }

    /// A dense operand of an element-wise operation on stored elements.
    fn dense_of_sparse(&mut self, value: Value, pattern: usize) -> Result<Operand> {
        let facts = self.facts;
        let ty = facts.flow.ty(value);
        let columns = facts.flow.patterns[pattern].columns;
        let incoming = self.direction().is_some_and(|(_, d)| d == Direction::In);
        let (row, column) = if incoming { (Access::Own, Access::Other) } else { (Access::Other, Access::Own) };
        let access = match (ty.space, ty.dims.is_empty()) {
            (Space::Unit, true) => Access::Same,
            (Space::Unit, false) => column,
            (_, true) => row,
            (_, false) => {
                let rows = facts.rows(ty);
                if u32::try_from(rows * columns).is_err() {
                    return Err(facts.error(value, "a dense operand of a sparse one may have at most 2^32 elements"));
                }
                self.full_columns = Some(columns);
                Access::Full
            }
        };
        self.uses_own |= matches!(access, Access::Own | Access::Full);
        let root = facts.root(value);
        let member = self.members.contains(&root);
        Ok(Operand { base: self.base(root, member)?, access, width: 1 })
    }

    /// The two sides of a product that is used once, here: then it is fused into its sum.
    fn fusible(&self, value: Value) -> Option<(Value, Value)> {
        let root = self.facts.root(value);
        let here = self.facts.topology(root).is_some() || self.members.contains(&root);
        let free = here
            && self.uses.get(&root) == Some(&1)
            && !self.made.contains_key(&root)
            && (self.facts.topology(root).is_some() || self.builder.stored(root).is_none());
        if free { self.facts.as_product(root) } else { None }
    }

    fn lower(&mut self, value: Value) -> Result<()> {
        let facts = self.facts;
        let flow = facts.flow;
        let node = flow.value(value);
        let width = self.width(value);
        let level = self.level_of(value);
        let arg = |i: usize| node.args[i];
        let kind = match &node.op {
            Op::Unary(op) => BlockKind::Unary(*op, self.operand(arg(0), level)?),
            Op::Binary(op) => {
                let a = self.element_operand(arg(0), &node.ty, level)?;
                let b = self.element_operand(arg(1), &node.ty, level)?;
                BlockKind::Binary(*op, a, b)
            }
            Op::Broadcast(_) => BlockKind::Copy(self.element_operand(arg(0), &node.ty, level)?),
            Op::Concat => {
                let lead = facts.volume(&node.ty.dims[..node.ty.dims.len() - 1]);
                let mut parts = vec![];
                for &part in &node.args {
                    let last = flow.ty(part).dims.last().map_or(1, |&d| facts.extent(d));
                    parts.push((self.operand(part, level)?, last));
                }
                BlockKind::Concat(parts, lead)
            }
            Op::Slice { start, len } => {
                let last = flow.ty(arg(0)).dims.last().map_or(1, |&d| facts.extent(d));
                BlockKind::Slice { a: self.operand(arg(0), level)?, last, start: *start, len: *len }
            }
            Op::OneHot { classes } => {
                let Op::Input(input) = flow.value(facts.root(arg(0))).op else {
                    return Err(facts.error(value, "labels that are not an input"));
                };
                BlockKind::OneHot { input: input.index(), classes: *classes }
            }
            Op::RandomMask { stream, rate, ty } => {
                let columns = match ty.layout {
                    Layout::Sparse(pattern) => Some(flow.patterns[pattern.index()].columns),
                    Layout::Dense => None,
                };
                self.uses_own |= columns.is_some();
                BlockKind::Mask { stream: *stream, rate: *rate, columns }
            }
            Op::MatMul { batch } => {
                let of = facts.extents(flow.ty(arg(1)), *batch);
                if facts.topology(arg(0)).is_some() && level == Level::Row {
                    // Sparse rows gather the rows of the weight.
                    let a = self.operand(arg(0), Level::Edge)?;
                    let root = facts.root(arg(1));
                    let base = self.base(root, false)?;
                    let x = Operand { base, access: Access::Other, width: of.n };
                    self.define(value, Level::Edge, width, BlockKind::WeightedSum { a, x, inner: of.n });
                    return Ok(());
                }
                if of.n == 1 {
                    let (a, b) = (self.operand(arg(0), level)?, self.operand(arg(1), level)?);
                    BlockKind::Dot { a, b, inner: of.k }
                } else {
                    BlockKind::MatMul(of, self.contiguous(arg(0), level)?, self.operand(arg(1), level)?)
                }
            }
            Op::MatMulT { batch } => {
                let of = facts.extents(flow.ty(arg(1)), *batch);
                if of.n == 1 {
                    let (y, w) = (self.operand(arg(0), level)?, self.operand(arg(1), level)?);
                    BlockKind::Binary(BinaryOp::Mul, y, w)
                } else {
                    BlockKind::MatMulT(of, self.contiguous(arg(0), level)?, self.operand(arg(1), level)?)
                }
            }
            Op::Outer { batch } => return self.outer(value, facts.extents(&node.ty, *batch)),
            Op::Segment { reduce, .. } => return self.segment(value, *reduce, arg(0), width),
            Op::ReduceTrailing { reduce, axes } => {
                if facts.topology(arg(0)).is_some() && level == Level::Row {
                    // Over the columns of a sparse matrix: over the stored elements of the row.
                    let a = self.operand(arg(0), Level::Edge)?;
                    self.define(value, Level::Edge, width, BlockKind::Segment(Reduce::Sum, a));
                    return Ok(());
                }
                let dims = &flow.ty(arg(0)).dims;
                let inner = facts.volume(&dims[dims.len() - axes..]);
                match self.fused_dot(arg(0), *reduce, level, inner)? {
                    Some(kind) => kind,
                    None => BlockKind::ReduceTrailing(*reduce, self.operand(arg(0), level)?, inner),
                }
            }
            Op::ReduceSpace(reduce) => {
                let from = self.level_of(arg(0));
                let a = self.contiguous(arg(0), from)?;
                self.partial(value, from, *reduce, width, BlockKind::PartialReduce(*reduce, a));
                return Ok(());
            }
            Op::Input(_)
            | Op::Param(_)
            | Op::State(..)
            | Op::Const(_)
            | Op::Count(_)
            | Op::StopGradient
            | Op::Reshape(_)
            | Op::Rows(_)
            | Op::Unrows
            | Op::GatherSrc(_)
            | Op::GatherDst(_) => {
                return Err(facts.error(value, "internal error: not an operation of a block"));
            }
        };
        self.define(value, level, width, kind);
        Ok(())
    }

    /// `Σ a · b` over trailing groups without storing the products.
    fn fused_dot(&mut self, arg: Value, reduce: Reduce, level: Level, inner: usize) -> Result<Option<BlockKind>> {
        if reduce != Reduce::Sum {
            return Ok(None);
        }
        let Some((a, b)) = self.fusible(arg) else { return Ok(None) };
        let (a, b) = (self.peel(a), self.peel(b));
        let width = self.facts.width(arg);
        if self.facts.width(a) != width || self.facts.width(b) != width {
            return Ok(None);
        }
        Ok(Some(BlockKind::Dot { a: self.operand(a, level)?, b: self.operand(b, level)?, inner }))
    }

    fn segment(&mut self, value: Value, reduce: Reduce, arg: Value, width: usize) -> Result<()> {
        let facts = self.facts;
        if reduce == Reduce::Sum
            && let Some((a, b)) = self.fusible(arg)
        {
            // The narrower side holds the weights.
            let (a, b) = (self.peel(a), self.peel(b));
            let (a, x) = if facts.width(a) <= facts.width(b) { (a, b) } else { (b, a) };
            let (heads, all) = (facts.width(a), facts.width(x));
            let dims = &facts.flow.ty(facts.root(arg)).dims;
            let prefix = dims.starts_with(&facts.flow.ty(a).dims);
            if heads < all && all == width && heads > 0 && prefix {
                let a = self.operand(a, Level::Edge)?;
                let x = self.operand(x, Level::Edge)?;
                self.define(value, Level::Edge, width, BlockKind::WeightedSum { a, x, inner: all / heads });
                return Ok(());
            }
        }
        let a =
            if reduce == Reduce::Lse { self.contiguous(arg, Level::Edge)? } else { self.operand(arg, Level::Edge)? };
        self.define(value, Level::Edge, width, BlockKind::Segment(reduce, a));
        Ok(())
    }

    fn outer(&mut self, value: Value, of: Extents) -> Result<()> {
        let facts = self.facts;
        let node = facts.flow.value(value);
        let (x, y) = (node.args[0], node.args[1]);
        let width = of.batch * of.k * of.n;
        if let Some(topology) = facts.topology(x)
            && facts.is_pattern(topology)
        {
            // The transposed sparse matrix times `y`: a column gathers the rows that store it.
            let a = self.operand(x, Level::Edge)?;
            let root = facts.root(y);
            let base = self.base(root, false)?;
            let from = Operand { base, access: Access::Other, width: of.n };
            self.define(value, Level::Edge, of.n, BlockKind::WeightedSum { a, x: from, inner: of.n });
            return Ok(());
        }
        let level = self.level_of(x);
        let (x, y) = (self.contiguous(x, level)?, self.contiguous(y, level)?);
        self.partial(value, level, Reduce::Sum, width, BlockKind::PartialOuter(of, x, y));
        Ok(())
    }

    /// Chooses blocks and tasks, and places locals in the scratch of a block.
    fn finish(mut self) -> Result<(Region, [f32; 5])> {
        let (lives, in_scratch) = self.scratch_lives();
        // The widest moment per level, to choose how many rows and edges fit.
        let peak = |level: Level| {
            (0..self.ops.len())
                .map(|op| {
                    let alive = lives.iter().zip(&in_scratch).filter(|(life, local)| {
                        life.start <= op && op <= life.end && self.locals[**local].level == level
                    });
                    alive.map(|(life, _)| life.len).sum::<usize>()
                })
                .max()
                .unwrap_or(0)
                .max(1)
        };
        let (row_peak, edge_peak) = (peak(Level::Row), peak(Level::Edge));
        let (domain, blocks) = match self.kind {
            Kind::Edges(topology, out) => {
                let direction = Kind::direction(out);
                let incidence = self.facts.data.topology(topology).incidence(direction);
                let edges = (SCRATCH / edge_peak).clamp(64, 1024);
                let rows = (SCRATCH / 2 / row_peak).clamp(16, 1024);
                (Domain::Edges { topology, direction }, edge_blocks(&incidence.indptr, rows, edges))
            }
            Kind::Elements(rows) => (Domain::Rows(rows), row_blocks(rows, (SCRATCH / row_peak).clamp(1024, 8192))),
            Kind::Map(space) => {
                let rows = self.facts.rows(&Type::new(space, vec![]));
                (Domain::Rows(rows), row_blocks(rows, (SCRATCH / row_peak).clamp(16, 1024)))
            }
            Kind::Unit | Kind::Product(_) => (Domain::Rows(1), vec![0, 1]),
        };
        let most_rows = blocks.windows(2).map(|b| (b[1] - b[0]) as usize).max().unwrap_or(0);
        let most_edges = match domain {
            Domain::Rows(_) => 0,
            Domain::Edges { topology, direction } => {
                let indptr = &self.facts.data.topology(topology).incidence(direction).indptr;
                let edges = |b: &[u32]| (indptr[b[1] as usize] - indptr[b[0] as usize]) as usize;
                blocks.windows(2).map(edges).max().unwrap_or(0)
            }
        };
        let concrete: Vec<Lifetime> = lives
            .iter()
            .zip(&in_scratch)
            .map(|(life, &local)| {
                let count = match self.locals[local].level {
                    Level::Row => most_rows,
                    Level::Edge => most_edges,
                };
                Lifetime { len: life.len * count, ..*life }
            })
            .collect();
        let (offsets, scratch_len) = place(&concrete);
        for (&local, offset) in in_scratch.iter().zip(offsets) {
            self.locals[local].place = Place::Scratch(offset);
        }
        let builder = self.builder;
        builder.scratch_len = builder.scratch_len.max(scratch_len);
        builder.block_edges = builder.block_edges.max(most_edges);
        builder.block_rows = builder.block_rows.max(most_rows);
        let widest = self.locals.iter().map(|local| local.width).max().unwrap_or(1);
        builder.tile_len = builder.tile_len.max(TILE).max(widest.next_multiple_of(16));

        let num_blocks = blocks.len() - 1;
        let most_tasks = if self.partials.is_empty() {
            TASKS
        } else {
            // Parts of wide results take memory and time to add.
            let widest = self.partials.iter().map(|p| p.2).max().unwrap_or(1).max(1);
            ((4 << 20) / widest).clamp(4, PARTIAL_TASKS)
        };
        let per_task = num_blocks.div_ceil(most_tasks).max(1);
        let mut tasks: Vec<u32> = (0..num_blocks).step_by(per_task).map(|b| b as u32).collect();
        tasks.push(num_blocks as u32);
        let mut used = 0;
        let num_tasks = tasks.len() - 1;
        let mut partials = vec![];
        for &(value, reduce, width) in &self.partials {
            let out = builder.buffer(value);
            let offset = builder.partial(&mut used, num_tasks, width);
            partials.push(Partial { out, reduce, width, offset });
        }
        let total_edges = match domain {
            Domain::Rows(_) => 0,
            Domain::Edges { topology, .. } => self.facts.data.topology(topology).num_edges(),
        };
        let total_rows = blocks.last().copied().unwrap_or(0) as usize;
        let mut costs = [0.0f64; 5];
        for op in &self.ops {
            let count = match op.level {
                Level::Row => total_rows,
                Level::Edge => total_edges,
            };
            let stage = stage_index(self.facts.flow.value(op.value).stage);
            costs[stage] += 1.0 + count as f64 * op_cost(&op.kind, self.facts.width(op.value).max(1));
        }
        let sum: f64 = costs.iter().sum();
        let shares = costs.map(|c| (c / sum.max(1.0)) as f32);
        let region = Region {
            domain,
            ops: self.ops,
            locals: self.locals,
            blocks,
            tasks,
            partials,
            uses_own: self.uses_own,
            full_columns: self.full_columns,
        };
        Ok((region, shares))
    }

    /// When each local in scratch is alive (by operation; `len` is its width), and which local it is.
    fn scratch_lives(&self) -> (Vec<Lifetime>, Vec<usize>) {
        let mut lives: Vec<Lifetime> =
            self.locals.iter().map(|l| Lifetime { start: 0, end: 0, len: l.width }).collect();
        for (index, op) in self.ops.iter().enumerate() {
            if !matches!(op.kind, BlockKind::PartialReduce(..) | BlockKind::PartialOuter(..)) {
                lives[op.out as usize].start = index;
                lives[op.out as usize].end = index;
            }
            for operand in operands(&op.kind) {
                if let Base::Local(local) = operand.base {
                    lives[local as usize].end = index;
                }
            }
        }
        let in_scratch: Vec<usize> =
            (0..self.locals.len()).filter(|&l| matches!(self.locals[l].place, Place::Scratch(_))).collect();
        (in_scratch.iter().map(|&l| lives[l]).collect(), in_scratch)
    }
}

/// All operands of an operation.
pub fn operands(kind: &BlockKind) -> Vec<Operand> {
    match kind {
        BlockKind::Unary(_, a)
        | BlockKind::Copy(a)
        | BlockKind::Slice { a, .. }
        | BlockKind::ReduceTrailing(_, a, _)
        | BlockKind::Segment(_, a)
        | BlockKind::PartialReduce(_, a) => vec![*a],
        BlockKind::Binary(_, a, b)
        | BlockKind::MatMul(_, a, b)
        | BlockKind::MatMulT(_, a, b)
        | BlockKind::Dot { a, b, .. }
        | BlockKind::PartialOuter(_, a, b) => vec![*a, *b],
        BlockKind::WeightedSum { a, x, .. } => vec![*a, *x],
        BlockKind::Concat(parts, _) => parts.iter().map(|p| p.0).collect(),
        BlockKind::OneHot { .. } | BlockKind::Mask { .. } => vec![],
    }
}

/// Rough cost of an operation per row or edge, to divide the time of a region among stages.
fn op_cost(kind: &BlockKind, width: usize) -> f64 {
    let width = width as f64;
    match kind {
        BlockKind::Unary(..) => 3.0 * width,
        BlockKind::MatMul(of, ..) | BlockKind::MatMulT(of, ..) | BlockKind::PartialOuter(of, ..) => {
            (of.batch * of.k * of.n) as f64 / 8.0
        }
        BlockKind::Dot { a, .. } | BlockKind::ReduceTrailing(_, a, _) => a.width as f64,
        BlockKind::Mask { .. } => 2.0 * width,
        BlockKind::WeightedSum { x, .. } => x.width as f64,
        BlockKind::Segment(..)
        | BlockKind::Binary(..)
        | BlockKind::Copy(_)
        | BlockKind::Concat(..)
        | BlockKind::Slice { .. }
        | BlockKind::OneHot { .. }
        | BlockKind::PartialReduce(..) => width,
    }
}

fn row_blocks(rows: usize, per_block: usize) -> Vec<u32> {
    let mut blocks: Vec<u32> = (0..rows).step_by(per_block).map(|r| r as u32).collect();
    blocks.push(rows as u32);
    blocks
}

/// Blocks of at most `rows` rows and, unless one row has more, `edges` edges.
fn edge_blocks(indptr: &[u64], rows: usize, edges: usize) -> Vec<u32> {
    let num_rows = indptr.len() - 1;
    let mut blocks = vec![0u32];
    let mut start = 0;
    while start < num_rows {
        let mut end = start + 1;
        while end < num_rows && end - start < rows && indptr[end + 1] - indptr[start] <= edges as u64 {
            end += 1;
        }
        blocks.push(end as u32);
        start = end;
    }
    blocks
}
