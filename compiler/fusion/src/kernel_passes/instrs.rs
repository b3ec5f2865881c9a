//! Looks at and edits the instructions of a traversal.

use std::cell::OnceCell;

use hgnnc_ir::width::Width;
use hgnnc_ir::{BinaryOp, Provenance, Reduce, Stage, UnaryOp};
use hgnnc_kernel_ir::kernel::{
    Body, Dest, Extent, Index, Instr, KernelOp, Level, Local, Operand, Program, Source, Traversal,
};
use rustc_hash::FxHashMap;

/// Changes the traversals of a program that have an operation which a pass starts from. `change` sees the program
/// without its launches, and returns whether it changed anything.
pub(crate) fn change_traversals(
    program: &mut Program,
    starts: impl Fn(&KernelOp) -> bool,
    change: impl Fn(&Program, &mut Traversal) -> bool,
) {
    let mut launches = [std::mem::take(&mut program.prelude), std::mem::take(&mut program.launches)];
    for kernel in launches.iter_mut().flatten().flat_map(|launch| &mut launch.kernels) {
        if let Body::Traversal(traversal) = &mut kernel.body
            && traversal.instrs.iter().any(|instr| starts(&instr.op))
            && change(program, traversal)
        {
            tidy(traversal);
            kernel.stage = traversal.main_stage().unwrap_or(kernel.stage);
        }
    }
    [program.prelude, program.launches] = launches;
}

/// Whether an operation is a log-sum-exp over edges, which every edge softmax has.
pub(crate) fn is_log_sum_exp(op: &KernelOp) -> bool {
    matches!(op, KernelOp::Segment(Reduce::Lse, _))
}

/// The destination of the instruction that computes an operand, if one does.
fn dest_of(operand: Operand) -> Option<Dest> {
    match operand.source {
        Source::Local(local) => Some(Dest::Local(local)),
        Source::Buffer(buffer) => Some(Dest::Buffer(buffer)),
        Source::Const(_) | Source::Count(_) => None,
    }
}

/// The definitions and uses of the values of a traversal.
pub(crate) struct Defs<'t> {
    program: &'t Program,
    pub traversal: &'t Traversal,
    widths: OnceCell<Vec<Width>>,
    /// The instruction that computes each value.
    made: FxHashMap<Dest, usize>,
    uses: FxHashMap<Local, usize>,
}

impl<'t> Defs<'t> {
    pub fn new(program: &'t Program, traversal: &'t Traversal) -> Self {
        let mut uses: FxHashMap<Local, usize> = FxHashMap::default();
        let mut made = FxHashMap::default();
        for (index, instr) in traversal.instrs.iter().enumerate() {
            for operand in instr.op.operands() {
                if let Source::Local(local) = operand.source {
                    *uses.entry(local).or_default() += 1;
                }
            }
            made.insert(instr.dest, index);
        }
        Self { program, traversal, widths: OnceCell::new(), made, uses }
    }

    /// Elements of an operand.
    pub fn width(&self, operand: Operand) -> Option<Width> {
        let widths = self.widths.get_or_init(|| Program::local_widths(self.traversal));
        self.program.operand_width(&self.traversal.rows, widths, operand)
    }

    /// The instruction of this traversal that computes an operand.
    pub fn made(&self, operand: Operand) -> Option<usize> {
        self.made.get(&dest_of(operand)?).copied()
    }

    /// The instruction that computes an operand which is not stored and has no other reader.
    pub fn made_for_one(&self, operand: Operand) -> Option<(usize, &'t Instr)> {
        let Source::Local(local) = operand.source else { return None };
        let index = self.made(operand).filter(|_| self.uses.get(&local) == Some(&1))?;
        Some((index, &self.traversal.instrs[index]))
    }

    /// The factors of a product that is not stored and has no other reader than the operand.
    pub fn product(&self, operand: Operand, level: Level) -> Option<(Operand, Operand)> {
        match self.made_for_one(operand)? {
            (_, Instr { op: KernelOp::Binary(BinaryOp::Mul, a, b), level: own, .. }) if *own == level => Some((*a, *b)),
            _ => None,
        }
    }

    /// The log-sum-exp behind weights of an edge softmax, `exp(x - lse x)`: the instruction that computes it in this
    /// traversal. `None` for other values, and for weights that must be rounded as in other kernels.
    pub fn softmax(&self, weights: usize) -> Option<usize> {
        let instrs = &self.traversal.instrs;
        let Instr { op: KernelOp::Unary(UnaryOp::Exp, difference), level: Level::Edge, exact: false, width, .. } =
            &instrs[weights]
        else {
            return None;
        };
        let difference = &instrs[self.made(*difference)?];
        let KernelOp::Binary(BinaryOp::Sub, x, norm) = difference.op else { return None };
        let lse = self.made(norm).filter(|_| norm.index == Index::Own)?;
        let fits = instrs[lse].op == KernelOp::Segment(Reduce::Lse, x)
            && difference.level == Level::Edge
            && difference.width == *width
            && self.width(x).as_ref() == Some(width);
        fits.then_some(lse)
    }

    /// Whether a value of this traversal depends on another one of it.
    pub fn depends(&self, operand: Operand, on: usize) -> bool {
        let mut pending: Vec<usize> = self.made(operand).into_iter().collect();
        let mut seen = vec![false; self.traversal.instrs.len()];
        while let Some(index) = pending.pop() {
            if index == on {
                return true;
            }
            if !std::mem::replace(&mut seen[index], true) {
                pending.extend(self.traversal.instrs[index].op.operands().iter().filter_map(|&arg| self.made(arg)));
            }
        }
        false
    }
}

/// Writes instructions with locals of their own into a traversal.
pub(crate) struct Editor {
    pub instrs: Vec<Instr>,
    next: u32,
}

impl Editor {
    /// For a copy of a traversal: its locals keep their numbers.
    pub fn new(traversal: &Traversal) -> Self {
        Self { instrs: vec![], next: Program::local_widths(traversal).len() as u32 }
    }

    /// Appends an instruction with a local for its result.
    pub fn push(&mut self, level: Level, op: KernelOp, width: Width, (stage, from): (Stage, Provenance)) -> Operand {
        let local = Local(self.next);
        self.next += 1;
        let instr = Instr { dest: Dest::Local(local), level, op, width, stage, exact: false, from };
        let edge = instr.extent() == Extent::Edge;
        let index = if edge { Index::Edge } else { Index::Own };
        self.instrs.push(instr);
        Operand { source: Source::Local(local), index }
    }
}

/// Puts instructions in the order in which stored values need them, whatever order they have: each after its operands.
/// Leaves out values that nothing reads, and numbers the others in the order of their definition.
fn tidy(traversal: &mut Traversal) {
    let instrs = std::mem::take(&mut traversal.instrs);
    let made: FxHashMap<Dest, usize> = instrs.iter().enumerate().map(|(index, instr)| (instr.dest, index)).collect();
    let made_by = |operand: &Operand| made.get(&dest_of(*operand)?).copied();
    let mut order: Vec<usize> = vec![];
    let mut placed = vec![false; instrs.len()];
    for (root, instr) in instrs.iter().enumerate() {
        let mut pending = if matches!(instr.dest, Dest::Buffer(_)) { vec![root] } else { vec![] };
        while let Some(&next) = pending.last() {
            assert!(pending.len() <= instrs.len(), "internal error: values of a traversal need each other");
            let missing = instrs[next].op.operands().iter().filter_map(made_by).find(|&operand| !placed[operand]);
            match missing {
                _ if placed[next] => _ = pending.pop(),
                Some(operand) => pending.push(operand),
                None => {
                    placed[next] = true;
                    order.push(next);
                    pending.pop();
                }
            }
        }
    }
    let mut renamed: FxHashMap<Local, Local> = FxHashMap::default();
    for index in order {
        let mut instr = instrs[index].clone();
        let operand = |operand: &Operand| match operand.source {
            Source::Local(local) => Operand { source: Source::Local(renamed[&local]), ..*operand },
            Source::Buffer(_) | Source::Const(_) | Source::Count(_) => *operand,
        };
        instr.op = instr.op.map(operand, Width::clone);
        if let Dest::Local(local) = &mut instr.dest {
            let next = Local(renamed.len() as u32);
            renamed.insert(*local, next);
            *local = next;
        }
        traversal.instrs.push(instr);
    }
}
