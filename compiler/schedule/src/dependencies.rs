//! Dependences between the instructions of a traversal.

use hgnnc_kernel_ir::kernel::{Buffer, Dest, Instr, Operand, Program, Source};
use hgnnc_kernel_ir::loops::{Access, access, producers};

use crate::rewrite::Rewritten;

/// An instruction that must precede another.
#[derive(Clone, Copy, Debug)]
pub struct Dependency {
    /// Index of the earlier instruction.
    pub instr: usize,
    /// Whether its result is read at the same row (edge) only.
    pub own_row: bool,
}

/// The instructions that each instruction depends on: producers of its operands, and, for a deferred store, readers of
/// the value that it overwrites.
pub fn dependencies(program: &Program, homes: &[Buffer], body: &Rewritten) -> Vec<Vec<Dependency>> {
    let instrs = body.instrs();
    let made_by = producers(instrs);
    let mut deps: Vec<Vec<Dependency>> = vec![];
    for (instr, made_by) in instrs.iter().zip(&made_by) {
        let of = |(operand, from): (Operand, &Option<usize>)| {
            let from = (*from)?;
            let each = access(program, &body.traversal.rows, instr.level, operand, true) == Access::Each;
            let same_level = instrs[from].level == instr.level && !instrs[from].op.reduces_edges();
            Some(Dependency { instr: from, own_row: each && same_level })
        };
        deps.push(instr.op.operands().into_iter().zip(made_by).filter_map(of).collect());
    }
    for index in body.first_deferred..instrs.len() {
        let Dest::Buffer(to) = instrs[index].dest else { continue };
        let readers = (0..index).filter(|&other| reads(homes, &instrs[other], to));
        deps[index].extend(readers.map(|instr| Dependency { instr, own_row: false }));
    }
    deps
}

/// Whether an instruction reads memory that a buffer takes.
fn reads(homes: &[Buffer], instr: &Instr, buffer: Buffer) -> bool {
    let home = homes[buffer.index()];
    instr.op.operands().iter().any(|operand| match operand.source {
        Source::Buffer(from) => homes[from.index()] == home,
        Source::Local(_) | Source::Const(_) | Source::Count(_) => false,
    })
}

/// Connected components of the dependence graph, ordered by their first instruction.
pub fn components(deps: &[Vec<Dependency>]) -> Vec<Vec<usize>> {
    let pairs = deps.iter().enumerate().flat_map(|(instr, deps)| deps.iter().map(move |dep| (instr, dep.instr)));
    connected(deps.len(), pairs)
}

/// Connected components of `count` items under `pairs`, ordered by their first item.
pub fn connected(count: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    // First item of its component, possibly through several links.
    let mut first: Vec<usize> = (0..count).collect();
    let find = |first: &mut Vec<usize>, mut at: usize| {
        while first[at] != at {
            first[at] = first[first[at]];
            at = first[at];
        }
        at
    };
    for (a, b) in pairs {
        let (a, b) = (find(&mut first, a), find(&mut first, b));
        first[a.max(b)] = a.min(b);
    }
    let mut parts: Vec<Vec<usize>> = vec![vec![]; count];
    for at in 0..count {
        parts[find(&mut first, at)].push(at);
    }
    parts.retain(|part| !part.is_empty());
    parts
}
