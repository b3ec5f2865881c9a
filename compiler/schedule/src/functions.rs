//! Parts of loops that become machine code.
//!
//! A tiled loop executes its instructions one by one with micro-kernels, which store every value of a tile to the L1
//! cache. Instructions that the code generator covers become calls of [`Function`]s, which keep values in registers.
//! The other instructions stay: products, weighted sums of gathered rows, dropout masks.

use std::collections::{HashMap, HashSet};

use hgnnc_ir::width::Width;
use hgnnc_ir::{DType, Reduce};
use hgnnc_kernel_ir::kernel::{Buffer, KernelOp, Level, Operand, Program, Source as Stored};
use hgnnc_kernel_ir::loops::function::{Array, Instr, Row, Shape, Source};
use hgnnc_kernel_ir::loops::{Access, Call, CallResult, Function, IndexArray, Loop, Nest, Step, access, squared};
use hgnnc_machine::CodeMode;

use crate::Options;
use crate::cost;
use crate::dependencies::connected;
use crate::overlap::{Uses, replaced};
use crate::rewrite::Rewritten;

/// The functions of a program, and those that must not be made.
pub struct Functions<'a> {
    /// Functions so far.
    pub made: Vec<Function>,
    /// Index of each function, by text: texts distinguish the zeros of constants.
    pub known: HashMap<String, usize>,
    /// Texts of functions for which no code can be generated.
    pub refused: &'a HashSet<String>,
}

/// Replaces instructions of tiled loops by calls of functions.
pub fn assign(
    (program, homes): (&Program, &[Buffer]),
    body: &Rewritten,
    nest: &mut Nest,
    options: &Options,
    functions: &mut Functions<'_>,
) {
    let of_blocks = Uses::of(body, homes);
    let widths = Program::local_widths(&body.traversal);
    let mut divide = |uses: &Uses, looped: &mut Loop| {
        let mut divider = Divider { program, homes, body, widths: &widths, uses, options, functions };
        divider.divide(looped);
    };
    for looped in nest.groups.iter_mut().flatten().filter(|looped| looped.tile.is_some()) {
        divide(&of_blocks, looped);
    }
    for pass in &mut nest.passes {
        for loops in [&mut pass.rows, &mut pass.edges] {
            let members: HashSet<usize> = loops.iter().flat_map(Loop::instrs).collect();
            let uses = Uses::of_pass(body, homes, &members);
            loops.iter_mut().filter(|looped| looped.tile.is_some()).for_each(|looped| divide(&uses, looped));
        }
    }
}

struct Divider<'a, 'f> {
    program: &'a Program,
    homes: &'a [Buffer],
    body: &'a Rewritten,
    /// Widths of the locals.
    widths: &'a [Width],
    uses: &'a Uses,
    options: &'a Options,
    functions: &'a mut Functions<'f>,
}

/// A function with the call of it, before it has an index.
pub struct Part {
    /// The function, which is compiled to machine code.
    pub function: Function,
    /// The call; its function is not set yet.
    pub call: Call,
    /// Whether every overwritten operand is read before. Other parts are not executed as machine code.
    ordered: bool,
}

impl Divider<'_, '_> {
    /// Divides a tiled loop into calls and other instructions.
    fn divide(&mut self, looped: &mut Loop) {
        let instrs: Vec<usize> = looped.instrs().collect();
        let mut native: Vec<bool> = instrs.iter().map(|&instr| self.covers(instr)).collect();
        while native.contains(&true) {
            let steps = self.steps(looped.level, &instrs, &native);
            let mut dropped: HashSet<usize> = HashSet::new();
            for part in
                steps.iter().filter_map(|step| step.as_ref().ok()).filter(|part| !self.keeps(looped.level, part))
            {
                dropped.extend(&part.call.instrs);
            }
            if dropped.is_empty() {
                looped.steps = steps.into_iter().map(|step| self.step(step)).collect();
                return;
            }
            let kept = instrs.iter().zip(&mut native);
            kept.filter(|(instr, _)| dropped.contains(instr)).for_each(|(_, native)| *native = false);
        }
    }

    fn keeps(&self, level: Level, part: &Part) -> bool {
        part.ordered
            && !self.functions.refused.contains(&part.function.to_string())
            && (self.options.code == CodeMode::Native
                || cost::gains((self.program, self.body), level, part, self.options))
    }

    fn step(&mut self, step: Result<Part, usize>) -> Step {
        match step {
            Err(instr) => Step::Instr(instr),
            Ok(Part { function, mut call, .. }) => {
                let next = self.functions.made.len();
                call.function = *self.functions.known.entry(function.to_string()).or_insert(next);
                if call.function == next {
                    self.functions.made.push(function);
                }
                Step::Call(call)
            }
        }
    }

    fn width(&self, operand: Operand) -> Option<usize> {
        self.program.operand_width(&self.body.traversal.rows, self.widths, operand)?.as_fixed()
    }

    /// Whether code can be generated for an instruction.
    fn covers(&self, index: usize) -> bool {
        let instr = &self.body.instrs()[index];
        let generated = match &squared(&instr.op) {
            KernelOp::Unary(f, _) => f.facts().has_code,
            KernelOp::Binary(f, ..) => f.facts().has_code,
            KernelOp::Compose { first, then, .. } => first.facts().has_code && then.facts().has_code,
            KernelOp::Copy(_) => index < self.body.first_deferred,
            KernelOp::Select { .. }
            | KernelOp::Concat { .. }
            | KernelOp::Slice { .. }
            | KernelOp::ReduceTrailing(..)
            | KernelOp::Dot(..) => true,
            KernelOp::OneHot(_) => instr.level == Level::Row,
            KernelOp::Segment(reduce, _) | KernelOp::ReduceAll(reduce, _) => *reduce != Reduce::Lse,
            KernelOp::Mask { .. }
            | KernelOp::Transpose { .. }
            | KernelOp::RowProduct { .. }
            | KernelOp::ScatterRows(..)
            | KernelOp::ScatterAdd(_)
            | KernelOp::MatMul(..)
            | KernelOp::MatMulT(..)
            | KernelOp::WeightedSum { .. }
            | KernelOp::SoftmaxSum { .. }
            | KernelOp::SegmentArg { .. }
            | KernelOp::OuterAll(..) => false,
        };
        let known = |operand: Operand| self.width(operand).is_some_and(|width| width > 0);
        generated
            && instr.width.as_fixed().is_some_and(|width| width > 0)
            && instr.op.operands().into_iter().all(known)
            && (self.options.code == CodeMode::Native || cost::suits(instr, |o| self.width(o), self.options.simd))
    }

    /// Orders the instructions of a loop in rounds: first calls, then other instructions. Instructions of calls go as
    /// late as possible, so that as many as possible share a loop.
    fn steps(&self, level: Level, instrs: &[usize], native: &[bool]) -> Vec<Result<Part, usize>> {
        let position: HashMap<usize, usize> = instrs.iter().enumerate().map(|(at, &instr)| (instr, at)).collect();
        let deps: Vec<Vec<usize>> = instrs
            .iter()
            .map(|&instr| {
                self.uses.made_by(instr).iter().flatten().filter_map(|made| position.get(made).copied()).collect()
            })
            .collect();
        let mut rounds = vec![0; instrs.len()];
        for at in 0..instrs.len() {
            let after = |&dep: &usize| rounds[dep] + usize::from(native[at] && !native[dep]);
            rounds[at] = deps[at].iter().map(after).max().unwrap_or(0);
        }
        let last = (0..instrs.len()).filter(|&at| native[at]).map(|at| rounds[at]).max().unwrap_or(0);
        let mut latest: Vec<usize> = vec![last; instrs.len()];
        for at in (0..instrs.len()).rev() {
            if native[at] {
                rounds[at] = latest[at].max(rounds[at]);
            }
            deps[at].iter().for_each(|&dep| latest[dep] = latest[dep].min(rounds[at]));
        }
        // Calls and other instructions of each round.
        let mut by_round = vec![(vec![], vec![]); rounds.iter().copied().max().unwrap_or(0) + 1];
        for at in 0..instrs.len() {
            let (calls, others) = &mut by_round[rounds[at]];
            if native[at] { calls } else { others }.push(at);
        }
        let mut steps = vec![];
        for (calls, others) in by_round {
            for component in components(&calls, &deps) {
                steps.push(Ok(self.part(level, component.iter().map(|&at| instrs[at]).collect())));
            }
            steps.extend(others.into_iter().map(|at| Err(instrs[at])));
        }
        steps
    }

    /// The function of connected instructions, and its call.
    fn part(&self, level: Level, instrs: Vec<usize>) -> Part {
        let segments = instrs.iter().any(|&instr| matches!(self.body.instrs()[instr].op, KernelOp::Segment(..)));
        let mut builder =
            Builder { divider: self, arrays: vec![], indices: vec![], made: vec![], values: HashMap::new() };
        let members: HashSet<usize> = instrs.iter().copied().collect();
        let mut results: Vec<CallResult> = vec![];
        for &index in &instrs {
            let instr = &self.body.instrs()[index];
            let op = builder.op(index);
            let target = match &instr.op {
                KernelOp::ReduceAll(..) => Some(CallResult::Total(index)),
                KernelOp::Segment(..) => Some(CallResult::Owners(index)),
                _ => self.uses.leaves(self.body, &members, index).then_some(CallResult::Tile(index)),
            };
            let result = target.map(|target| {
                results.push(target);
                results.len() - 1
            });
            let width = instr.width.as_fixed().expect("covered instructions have fixed widths");
            builder.made.push(Instr { op, width, result });
            if !instr.op.is_total() {
                builder.values.insert(index, builder.made.len() - 1);
            }
        }
        let mut arrays = vec![];
        for (operand, access, width) in builder.arrays.clone() {
            let row = match access {
                Access::Each => Row::Each,
                Access::Same => Row::Same,
                Access::Owner if segments => Row::Owner,
                picked => Row::Picked(builder.index(IndexArray::Picked(picked))),
            };
            arrays.push((operand, Array { width, changes: false, row }));
        }
        let Builder { indices, made, .. } = builder;
        let width = |operand| self.program.operand_width(&self.body.traversal.rows, self.widths, operand);
        let overwritten = replaced(self.program, self.body, (self.uses, self.homes), &instrs, width);
        let ordered = overwritten.is_some();
        let mut pairs = vec![];
        for (operand, by) in overwritten.into_iter().flatten() {
            let array = arrays.iter().position(|(array, _)| *array == operand);
            let result = results.iter().position(|result| *result == CallResult::Tile(by));
            if let (Some(array), Some(result)) = (array, result) {
                arrays[array].1.changes = true;
                pairs.push((array, result));
            }
        }
        let (operands, arrays) = arrays.into_iter().unzip();
        let shape = if segments { Shape::Segments } else { Shape::Items };
        let (num_indices, num_results) = (indices.len(), results.len());
        let function = Function { shape, arrays, instrs: made, num_indices, num_results };
        debug_assert!(level == Level::Edge || !segments);
        let call = Call { function: 0, instrs, arrays: operands, indices, results, replaced: pairs };
        Part { function, call, ordered }
    }
}

/// Connected components of the instructions of calls: separate loops access fewer arrays, and more of them have equal
/// code.
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

/// Builder of a function.
struct Builder<'d, 'a, 'f> {
    divider: &'d Divider<'a, 'f>,
    /// Operand arrays with their access and width.
    arrays: Vec<(Operand, Access, usize)>,
    indices: Vec<IndexArray>,
    made: Vec<Instr>,
    /// Value of each instruction computed so far.
    values: HashMap<usize, usize>,
}

impl Builder<'_, '_, '_> {
    fn index(&mut self, index: IndexArray) -> u32 {
        let known = self.indices.iter().position(|&known| known == index);
        known.unwrap_or_else(|| {
            self.indices.push(index);
            self.indices.len() - 1
        }) as u32
    }

    fn op(&mut self, index: usize) -> KernelOp<Source, usize> {
        let divider = self.divider;
        let instr = &divider.body.instrs()[index];
        let fixed = |width: &Width| width.as_fixed().expect("covered instructions have fixed widths");
        let (op, operands) = (squared(&instr.op), instr.op.operands());
        op.map(
            |operand| {
                let position = operands.iter().position(|read| read == operand);
                let made_by = position.and_then(|position| divider.uses.made_by(index)[position]);
                self.source(instr.level, *operand, made_by)
            },
            fixed,
        )
    }

    fn source(&mut self, level: Level, operand: Operand, made_by: Option<usize>) -> Source {
        let Divider { program, body, .. } = *self.divider;
        if let Some(input) = labels(program, operand) {
            return Source::Label(self.index(IndexArray::Labels(input)));
        }
        let access = access(program, &body.traversal.rows, level, operand, made_by.is_some());
        if let (Some(instr), Access::Each) = (made_by, access)
            && let Some(&value) = self.values.get(&instr)
        {
            return Source::Value(value);
        }
        let known = self.arrays.iter().position(|array| array.0 == operand);
        Source::Array(known.unwrap_or_else(|| {
            let width = self.divider.width(operand).expect("covered instructions have fixed widths");
            self.arrays.push((operand, access, width));
            self.arrays.len() - 1
        }))
    }
}

/// The input of an operand that holds class labels.
fn labels(program: &Program, operand: Operand) -> Option<hgnnc_ir::Input> {
    let Stored::Buffer(buffer) = operand.source else { return None };
    let decl = program.buffer(buffer);
    match decl.contents {
        hgnnc_kernel_ir::kernel::Contents::Input(input) if decl.ty.dtype == DType::I32 => Some(input),
        _ => None,
    }
}
