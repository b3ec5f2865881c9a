//! Partitions a fused loop into native loops and interpreted operations.

use std::collections::{HashMap, HashSet};

use hgnnc_ir::kernel::KernelOp;
use hgnnc_ir::loops::Function;
use hgnnc_ir::loops::function::{Array, Instr, Row, Shape, Source};
use hgnnc_ir::ops::{BinaryOp, Reduce};
use hgnnc_native::{generates_binary, generates_unary};

use super::overlap::{Uses, replaced};
use super::{Chooser, CodeMode, cost};
use crate::plan::{Access, Base, BlockOp, Level, Operand, Place, Region};
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
    /// Function from which code is generated.
    pub program: Function,
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
        let locals = ops.filter(|op| !op.op.is_total()).map(|op| op.out);
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
    let generated = match &op.op {
        KernelOp::Unary(f, _) => generates_unary(*f),
        KernelOp::Binary(f, _, b) => generates_binary(*f) || squares(*f, b, chooser),
        KernelOp::Compose { first, then, .. } => generates_binary(*first) && generates_unary(*then),
        KernelOp::Copy(_) => !op.deferred,
        KernelOp::Select { .. }
        | KernelOp::Concat { .. }
        | KernelOp::Slice { .. }
        | KernelOp::ReduceTrailing(..)
        | KernelOp::Dot(..) => true,
        KernelOp::OneHot(Operand { base: Base::Labels(input), .. }) => {
            op.level == Level::Row && facts.has_labels(*input as usize)
        }
        KernelOp::Segment(reduce, _) => *reduce != Reduce::Lse && facts.framed(region.domain),
        KernelOp::ReduceAll(reduce, _) => *reduce != Reduce::Lse,
        KernelOp::OneHot(_)
        | KernelOp::Mask { .. }
        | KernelOp::Replace(..)
        | KernelOp::AddEnds(_)
        | KernelOp::MatMul(..)
        | KernelOp::MatMulT(..)
        | KernelOp::WeightedSum { .. }
        | KernelOp::SoftmaxSum { .. }
        | KernelOp::SegmentArg { .. }
        | KernelOp::OuterAll(..) => false,
    };
    let operands = op.op.operands();
    generated
        && width(region, op) > 0
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
    match op.op.is_total() {
        true => region.partials[op.out as usize].width,
        false => region.locals[op.out as usize].width,
    }
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
    let values = ops.iter().enumerate().filter(|&(_, &op)| !region.ops[op].op.is_total());
    let producers: HashMap<u32, usize> = values.map(|(at, &op)| (region.ops[op].out, at)).collect();
    let producer = |operand: &Operand| match operand.base {
        Base::Local(local) => producers.get(&local).copied(),
        Base::Stored(_) | Base::Labels(_) => None,
    };
    let deps: Vec<Vec<usize>> =
        ops.iter().map(|&op| region.ops[op].op.operands().iter().filter_map(producer).collect()).collect();
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
    let segments = ops.iter().any(|&op| matches!(region.ops[op].op, KernelOp::Segment(..)));
    let shape = if segments { Shape::Segments } else { Shape::Items };
    let mut maker = FunctionBuilder {
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
        let made = maker.op(op, chooser);
        let target = match &op.op {
            KernelOp::ReduceAll(..) => Some(LoopResult::Partial(op.out)),
            KernelOp::Segment(..) => Some(LoopResult::Owners(op.out)),
            _ => is_read(region, &members, uses.readers(op.out), op.out).then_some(LoopResult::Tile(op.out)),
        };
        let result = target.map(|target| {
            results.push(target);
            results.len() - 1
        });
        let value = maker.push(Instr { op: made, width: width(region, op), result });
        if !op.op.is_total() {
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
            | Access::NeighborEnd
            | Access::End(..) => Row::Picked(maker.index(IndexArray::Picked(operand.access))),
        },
    });
    let mut rows: Vec<Array> = rows.collect();
    let FunctionBuilder { arrays, known, indices, made, .. } = maker;
    let replaced = replaced(region, uses, &ops, &known);
    let ordered = replaced.is_some();
    let result = |local: u32| results.iter().position(|&result| result == LoopResult::Tile(local));
    let replaced: Vec<(usize, usize)> =
        replaced.into_iter().flatten().filter_map(|(array, local)| Some((array, result(local)?))).collect();
    replaced.iter().for_each(|&(array, _)| rows[array].changes = true);
    let program =
        Function { shape, arrays: rows, instrs: made, num_indices: indices.len(), num_results: results.len() };
    NativeLoop { ops, program, arrays, indices, results, level, function: 0, replaced, ordered }
}

/// Builder of the function of a loop.
struct FunctionBuilder {
    arrays: Vec<Operand>,
    /// Index of each operand array.
    known: HashMap<Operand, usize>,
    indices: Vec<IndexArray>,
    made: Vec<Instr>,
    /// Value of each local computed so far.
    values: HashMap<u32, usize>,
}

impl FunctionBuilder {
    fn push(&mut self, op: Instr) -> usize {
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
        match (operand.base, operand.access) {
            (Base::Labels(input), _) => return Source::Label(self.index(IndexArray::Labels(input as usize))),
            (Base::Local(local), Access::Each) if let Some(&value) = self.values.get(&local) => {
                return Source::Value(value);
            }
            _ => {}
        }
        Source::Array(*self.known.entry(*operand).or_insert_with(|| {
            self.arrays.push(*operand);
            self.arrays.len() - 1
        }))
    }

    fn op(&mut self, op: &BlockOp, chooser: &Chooser<'_>) -> KernelOp<Source, usize> {
        match &op.op {
            KernelOp::Binary(f, a, b) if squares(*f, b, chooser) => {
                let a = self.source(a);
                KernelOp::Binary(BinaryOp::Mul, a, a)
            }
            op => op.map(|operand| self.source(operand), |&width| width),
        }
    }
}

/// Whether a local is stored or read by operations other than these.
fn is_read(region: &Region, ops: &HashSet<usize>, readers: &[usize], local: u32) -> bool {
    matches!(region.locals[local as usize].place, Place::Stored(_)) || readers.iter().any(|at| !ops.contains(at))
}
