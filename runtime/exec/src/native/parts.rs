//! Partitions a fused loop into native loops and interpreted operations.

use std::collections::{HashMap, HashSet};

use hgnnc_ir::ops::{BinaryOp, Reduce};
use hgnnc_native::{Array, Kind, Op, Program, Row, Shape, Source, generates_binary, generates_unary};

use super::overlap::{Uses, replaced};
use super::{Chooser, CodeMode, cost};
use crate::plan::region::operands;
use crate::plan::{Access, Base, BlockKind, BlockOp, Level, Operand, Place, Region};
use crate::schedule::connected;

/// Steps executed for each tile of a fused loop.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct LoopBody {
    pub steps: Vec<BodyStep>,
    /// Whether all steps are native: then the entire block is one tile.
    pub whole: bool,
}

/// A step of a loop body.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "variants and fields are named for what they hold")]
pub enum BodyStep {
    /// An operation of the region, interpreted.
    Op(usize),
    Native(NativeLoop),
}

/// A generated loop with its operands.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct NativeLoop {
    /// Indices of the operations of the region that it executes.
    pub ops: Vec<usize>,
    /// Program from which code is generated.
    pub program: Program,
    pub arrays: Vec<Operand>,
    pub indices: Vec<IndexArray>,
    pub results: Vec<LoopResult>,
    /// Iteration space: rows or edges.
    pub level: Level,
    /// Index of its compiled function.
    pub function: usize,
    /// Operand arrays that a result aliases, with that result.
    pub replaced: Vec<(usize, usize)>,
    /// Whether every aliased operand is read before it is overwritten. Other loops are not executed natively.
    pub ordered: bool,
}

/// Source of an index array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexArray {
    /// Rows that the items of the tile read through an access.
    Picked(Access),
    /// Class labels of the rows of the tile, by input.
    Labels(usize),
}

/// Destination of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopResult {
    /// The tile's rows (edges) of a local.
    Tile(u32),
    /// Rows of a local that own the tile's edges.
    Owners(u32),
    /// The task's partial result.
    Partial(u32),
}

impl NativeLoop {
    /// Locals that exist in registers only.
    pub fn internal(&self, region: &Region) -> Vec<u32> {
        let ops = self.ops.iter().map(|&op| &region.ops[op]);
        let locals = ops.filter(|op| !matches!(op.kind, BlockKind::PartialReduce(..))).map(|op| op.out);
        locals
            .filter(|l| {
                !self.results.contains(&LoopResult::Tile(*l)) && !self.results.contains(&LoopResult::Owners(*l))
            })
            .collect()
    }
}

/// Body of a fused loop; `None` if all operations are interpreted.
pub fn divide(region: &Region, uses: &Uses, level: Level, ops: &[usize], chooser: &Chooser<'_>) -> Option<LoopBody> {
    if chooser.mode == CodeMode::Interpreted {
        return None;
    }
    let mut native: Vec<bool> = ops.iter().map(|&op| covers(region, &region.ops[op], chooser)).collect();
    loop {
        let body = loop_body(region, level, ops, &native, uses, chooser)?;
        let keeps = |part: &NativeLoop| {
            part.ordered
                && !chooser.refused.contains(&part.program.to_string())
                && (chooser.mode == CodeMode::Native || cost::gains(region, part, chooser.facts))
        };
        let mut dropped: HashSet<usize> = HashSet::new();
        for step in &body.steps {
            match step {
                BodyStep::Native(part) if !keeps(part) => dropped.extend(&part.ops),
                BodyStep::Native(_) | BodyStep::Op(_) => {}
            }
        }
        if dropped.is_empty() {
            return Some(body);
        }
        ops.iter().zip(&mut native).filter(|(op, _)| dropped.contains(op)).for_each(|(_, native)| *native = false);
    }
}

/// Whether code can be generated for an operation and all rows that it gathers are known to exist.
fn covers(region: &Region, op: &BlockOp, chooser: &Chooser<'_>) -> bool {
    let facts = chooser.facts;
    let kind = match &op.kind {
        BlockKind::Unary(f, _) => generates_unary(*f),
        BlockKind::Binary(f, _, b) => generates_binary(*f) || squares(*f, b, chooser),
        BlockKind::Pair(..)
        | BlockKind::Choose { .. }
        | BlockKind::Copy(_)
        | BlockKind::Concat(..)
        | BlockKind::Slice { .. }
        | BlockKind::ReduceTrailing(..)
        | BlockKind::Dot { .. } => true,
        BlockKind::OneHot { input, .. } => op.level == Level::Row && facts.has_labels(*input),
        BlockKind::Segment(reduce, _) => *reduce != Reduce::Lse && facts.framed(region.domain),
        BlockKind::PartialReduce(reduce, _) => *reduce != Reduce::Lse,
        BlockKind::Mask { .. }
        | BlockKind::Replace(..)
        | BlockKind::AddEnds(..)
        | BlockKind::MatMul(..)
        | BlockKind::MatMulT(..)
        | BlockKind::WeightedSum { .. }
        | BlockKind::Store(_)
        | BlockKind::SoftmaxSum { .. }
        | BlockKind::SegmentArg { .. }
        | BlockKind::PartialOuter(..) => false,
    };
    let operands = operands(&op.kind);
    kind && width(region, op) > 0
        && operands.iter().all(|o| o.width > 0 && facts.rows_exist(region.domain, region.full_columns, o))
        && (chooser.mode == CodeMode::Native || cost::suits(op, width(region, op)))
}

/// Whether it is `a^2` with a constant 2: emitted as a product.
fn squares(f: BinaryOp, exponent: &Operand, chooser: &Chooser<'_>) -> bool {
    let (slab, constants) = chooser.constants;
    let Base::Stored(buffer) = exponent.base else { return false };
    f == BinaryOp::Pow && buffer.slab == slab && constants.get(buffer.offset) == Some(&2.0)
}

/// Width of an operation's result in elements.
pub(super) fn width(region: &Region, op: &BlockOp) -> usize {
    match op.kind {
        BlockKind::PartialReduce(..) | BlockKind::PartialOuter(..) => region.partials[op.out as usize].width,
        _ => region.locals[op.out as usize].width,
    }
}

/// Whether its result is a local.
fn makes_value(op: &BlockOp) -> bool {
    !matches!(op.kind, BlockKind::PartialReduce(..) | BlockKind::PartialOuter(..))
}

/// Orders the operations of a fused loop in rounds: first native, then interpreted ones. Native operations go as late
/// as possible, so that as many as possible share a loop.
fn loop_body(
    region: &Region,
    level: Level,
    ops: &[usize],
    native: &[bool],
    uses: &Uses,
    chooser: &Chooser<'_>,
) -> Option<LoopBody> {
    if !native.contains(&true) {
        return None;
    }
    let values = ops.iter().enumerate().filter(|&(_, &op)| makes_value(&region.ops[op]));
    let producers: HashMap<u32, usize> = values.map(|(at, &op)| (region.ops[op].out, at)).collect();
    let producer = |operand: &Operand| match operand.base {
        Base::Local(local) => producers.get(&local).copied(),
        Base::Stored(_) => None,
    };
    let deps: Vec<Vec<usize>> =
        ops.iter().map(|&op| operands(&region.ops[op].kind).iter().filter_map(producer).collect()).collect();
    let mut rounds = vec![0; ops.len()];
    for at in 0..ops.len() {
        let after = |&dep: &usize| rounds[dep] + usize::from(native[at] && !native[dep]);
        rounds[at] = deps[at].iter().map(after).max().unwrap_or(0);
    }
    let last = (0..ops.len()).filter(|&at| native[at]).map(|at| rounds[at]).max().unwrap_or(0);
    let mut latest: Vec<usize> = vec![last; ops.len()];
    for at in (0..ops.len()).rev() {
        if native[at] {
            rounds[at] = latest[at].max(rounds[at]);
        }
        deps[at].iter().for_each(|&dep| latest[dep] = latest[dep].min(rounds[at]));
    }
    // Native and interpreted operations of each round.
    let mut by_round = vec![(vec![], vec![]); rounds.iter().copied().max().unwrap_or(0) + 1];
    for at in 0..ops.len() {
        let (parts, interpreted) = &mut by_round[rounds[at]];
        if native[at] { parts } else { interpreted }.push(at);
    }
    let mut steps = vec![];
    for (parts, interpreted) in by_round {
        for component in components(&parts, &deps) {
            let ops: Vec<usize> = component.iter().map(|&at| ops[at]).collect();
            steps.push(BodyStep::Native(part(region, level, ops, uses, chooser)));
        }
        steps.extend(interpreted.into_iter().map(|at| BodyStep::Op(ops[at])));
    }
    let whole = steps.iter().all(|step| matches!(step, BodyStep::Native(_)));
    Some(LoopBody { steps, whole })
}

/// Connected components of native operations: separate loops access fewer arrays, and more of them have equal code.
fn components(members: &[usize], deps: &[Vec<usize>]) -> Vec<Vec<usize>> {
    // `members` is ascending.
    let position = |at: &usize| members.binary_search(at).ok();
    let pairs = members
        .iter()
        .enumerate()
        .flat_map(|(own, &at)| deps[at].iter().filter_map(position).map(move |dep| (own, dep)));
    let parts = connected(members.len(), pairs);
    parts.into_iter().map(|part| part.into_iter().map(|own| members[own]).collect()).collect()
}

/// Native loop of connected operations.
fn part(region: &Region, level: Level, ops: Vec<usize>, uses: &Uses, chooser: &Chooser<'_>) -> NativeLoop {
    let segments = ops.iter().any(|&op| matches!(region.ops[op].kind, BlockKind::Segment(..)));
    let shape = if segments { Shape::Segments } else { Shape::Items };
    let mut maker = ProgramBuilder {
        region,
        arrays: vec![],
        known: HashMap::new(),
        indices: vec![],
        made: vec![],
        values: HashMap::new(),
    };
    let members: HashSet<usize> = ops.iter().copied().collect();
    let mut results: Vec<LoopResult> = vec![];
    for &at in &ops {
        let op = &region.ops[at];
        let kind = maker.kind(op, chooser);
        let target = match &op.kind {
            BlockKind::PartialReduce(..) => Some(LoopResult::Partial(op.out)),
            BlockKind::Segment(..) => Some(LoopResult::Owners(op.out)),
            _ => is_read(region, &members, uses.readers(op.out), op.out).then_some(LoopResult::Tile(op.out)),
        };
        let result = target.map(|target| {
            results.push(target);
            results.len() - 1
        });
        let value = maker.push(Op { kind, width: width(region, op), result });
        if makes_value(op) {
            maker.values.insert(op.out, value);
        }
    }
    let rows = maker.arrays.clone().into_iter().map(|operand| Array {
        width: operand.width,
        changes: false,
        row: match operand.access {
            Access::Each => Row::Each,
            Access::Same => Row::Same,
            Access::Owner if segments => Row::Owner,
            Access::Owner
            | Access::Neighbor
            | Access::Eid
            | Access::DenseCell
            | Access::Vertex
            | Access::OwnerVertex
            | Access::OwnerEnd
            | Access::NeighborEnd => Row::Picked(maker.index(IndexArray::Picked(operand.access))),
        },
    });
    let mut rows: Vec<Array> = rows.collect();
    let ProgramBuilder { arrays, known, indices, made, .. } = maker;
    let replaced = replaced(region, uses, &ops, &known);
    let ordered = replaced.is_some();
    let result = |local: u32| results.iter().position(|&result| result == LoopResult::Tile(local));
    let replaced: Vec<(usize, usize)> =
        replaced.into_iter().flatten().filter_map(|(array, local)| Some((array, result(local)?))).collect();
    replaced.iter().for_each(|&(array, _)| rows[array].changes = true);
    let program = Program { shape, arrays: rows, ops: made, num_indices: indices.len(), num_results: results.len() };
    NativeLoop { ops, program, arrays, indices, results, level, function: 0, replaced, ordered }
}

/// Builder of a loop program.
struct ProgramBuilder<'a> {
    region: &'a Region,
    arrays: Vec<Operand>,
    /// Index of each operand array.
    known: HashMap<Operand, usize>,
    indices: Vec<IndexArray>,
    made: Vec<Op>,
    /// Value of each local computed so far.
    values: HashMap<u32, usize>,
}

impl ProgramBuilder<'_> {
    fn push(&mut self, op: Op) -> usize {
        self.made.push(op);
        self.made.len() - 1
    }

    fn index(&mut self, index: IndexArray) -> u32 {
        let known = self.indices.iter().position(|&known| known == index);
        known.unwrap_or_else(|| {
            self.indices.push(index);
            self.indices.len() - 1
        }) as u32
    }

    fn source(&mut self, operand: &Operand) -> Source {
        if let (Base::Local(local), Access::Each) = (operand.base, operand.access)
            && let Some(&value) = self.values.get(&local)
        {
            return Source::Value(value);
        }
        Source::Array(*self.known.entry(*operand).or_insert_with(|| {
            self.arrays.push(*operand);
            self.arrays.len() - 1
        }))
    }

    fn kind(&mut self, op: &BlockOp, chooser: &Chooser<'_>) -> Kind {
        match &op.kind {
            BlockKind::Unary(f, a) => Kind::Unary(*f, self.source(a)),
            BlockKind::Binary(f, a, b) if squares(*f, b, chooser) => {
                let a = self.source(a);
                Kind::Binary(BinaryOp::Mul, a, a)
            }
            BlockKind::Binary(f, a, b) => Kind::Binary(*f, self.source(a), self.source(b)),
            BlockKind::Pair(pair, a, b) => {
                let (first, then) = pair.functions();
                let kind = Kind::Binary(first, self.source(a), self.source(b));
                let value = self.push(Op { kind, width: width(self.region, op), result: None });
                Kind::Unary(then, Source::Value(value))
            }
            BlockKind::Choose { a, positive, otherwise } => {
                Kind::Choose { a: self.source(a), positive: *positive, otherwise: *otherwise }
            }
            BlockKind::Copy(a) => Kind::Copy(self.source(a)),
            BlockKind::Concat(parts, lead) => {
                Kind::Concat(parts.iter().map(|(part, last)| (self.source(part), *last)).collect(), *lead)
            }
            BlockKind::Slice { a, last, start, len } => {
                Kind::Slice { a: self.source(a), last: *last, start: *start, len: *len }
            }
            BlockKind::OneHot { input, .. } => Kind::OneHot(self.index(IndexArray::Labels(*input))),
            BlockKind::ReduceTrailing(reduce, a, _) => Kind::Reduce(*reduce, self.source(a)),
            BlockKind::Dot { a, b, .. } => Kind::Dot(self.source(a), self.source(b)),
            BlockKind::Segment(reduce, a) => Kind::Segment(*reduce, self.source(a)),
            BlockKind::PartialReduce(reduce, a) => Kind::Total(*reduce, self.source(a)),
            BlockKind::Mask { .. }
            | BlockKind::Replace(..)
            | BlockKind::AddEnds(..)
            | BlockKind::MatMul(..)
            | BlockKind::MatMulT(..)
            | BlockKind::WeightedSum { .. }
            | BlockKind::Store(_)
            | BlockKind::SoftmaxSum { .. }
            | BlockKind::SegmentArg { .. }
            | BlockKind::PartialOuter(..) => unreachable!("no part has an operation that is not covered"),
        }
    }
}

/// Whether a local is stored or read by operations other than these.
fn is_read(region: &Region, ops: &HashSet<usize>, readers: &[usize], local: u32) -> bool {
    matches!(region.locals[local as usize].place, Place::Stored(_)) || readers.iter().any(|at| !ops.contains(at))
}
