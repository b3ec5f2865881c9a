//! Results that overwrite operands.
//!
//! The new value of a parameter may have the memory of the old one if every reader of the old value reads row `i` only
//! to compute row `i` of the new one. A function preserves that order if it reads only the current item's row of the old
//! value, in instructions that the new value depends on: the new row is written after these. If the writing instruction
//! itself reads the old row, it must do so element by element.

use std::collections::{HashMap, HashSet};

use hgnnc_ir::width::Width;
use hgnnc_kernel_ir::kernel::{Buffer, Dest, Level, Operand, Program, Source};
use hgnnc_kernel_ir::loops::{Access, access, producers};

use crate::rewrite::Rewritten;

/// Producers and readers of values in a traversal.
pub struct Uses {
    /// Earlier instructions whose results each instruction reads.
    made_by: Vec<Vec<Option<usize>>>,
    /// Reading instructions of each result.
    readers: Vec<Vec<usize>>,
    /// Reads of stored values that no instruction of the traversal makes, by the buffer that owns the memory.
    reads: HashMap<Buffer, Vec<(usize, Operand)>>,
}

impl Uses {
    /// Uses over all instructions of a traversal. `homes` are the owners of the memory of buffers.
    pub fn of(body: &Rewritten, homes: &[Buffer]) -> Self {
        let instrs = body.instrs();
        let made_by = producers(instrs);
        let (mut readers, mut reads) = (vec![vec![]; instrs.len()], HashMap::<_, Vec<_>>::new());
        for (index, instr) in instrs.iter().enumerate() {
            for (operand, from) in instr.op.operands().into_iter().zip(&made_by[index]) {
                match (from, operand.source) {
                    (Some(from), _) => readers[*from].push(index),
                    (None, Source::Buffer(buffer)) => {
                        reads.entry(homes[buffer.index()]).or_default().push((index, operand));
                    }
                    (None, _) => {}
                }
            }
        }
        Self { made_by, readers, reads }
    }

    /// [`Uses::of`] for the instructions of one edge pass: edge values have only readers within the pass, because other
    /// passes recompute them.
    pub fn of_pass(body: &Rewritten, homes: &[Buffer], pass: &HashSet<usize>) -> Self {
        let mut uses = Self::of(body, homes);
        for (readers, instr) in uses.readers.iter_mut().zip(body.instrs()) {
            let is_edge_value = instr.level == Level::Edge && !instr.op.reduces_edges();
            readers.retain(|reader| !is_edge_value || pass.contains(reader));
        }
        uses
    }

    /// Whether a result is stored, or read by instructions other than these.
    pub fn leaves(&self, body: &Rewritten, instrs: &HashSet<usize>, result: usize) -> bool {
        matches!(body.instrs()[result].dest, Dest::Buffer(_))
            || self.readers[result].iter().any(|reader| !instrs.contains(reader))
    }

    /// Earlier instructions whose results an instruction reads.
    pub fn made_by(&self, instr: usize) -> &[Option<usize>] {
        &self.made_by[instr]
    }

    /// Instructions that an instruction depends on, transitively.
    fn ancestors(&self, instr: usize) -> HashSet<usize> {
        let mut found = HashSet::new();
        let mut pending = vec![instr];
        while let Some(at) = pending.pop() {
            pending.extend(self.made_by[at].iter().flatten().filter(|&&maker| found.insert(maker)));
        }
        found
    }
}

/// Operands that results of `instrs` overwrite, each with the instruction; `None` if a result would be written too
/// early. `width` is the width of an operand.
pub fn replaced(
    program: &Program,
    body: &Rewritten,
    (uses, homes): (&Uses, &[Buffer]),
    instrs: &[usize],
    width: impl Fn(Operand) -> Option<Width>,
) -> Option<Vec<(Operand, usize)>> {
    let mut changed: Vec<(Operand, usize)> = vec![];
    for &at in instrs {
        let writer = &body.instrs()[at];
        let Dest::Buffer(result) = writer.dest else { continue };
        if writer.op.is_total() {
            continue;
        }
        let mut ancestors: Option<HashSet<usize>> = None;
        for &(reader, operand) in uses.reads.get(&homes[result.index()]).into_iter().flatten() {
            let level = body.instrs()[reader].level;
            let own_row = access(program, &body.traversal.rows, level, operand, false) == Access::Each
                && width(operand).as_ref() == Some(&writer.width)
                && (level, writer.level) == (Level::Row, Level::Row);
            let before = ancestors.get_or_insert_with(|| uses.ancestors(at)).contains(&reader);
            if !own_row || !(before || reader == at && writer.op.is_element_wise()) {
                return None;
            }
            if !changed.contains(&(operand, at)) {
                changed.push((operand, at));
            }
        }
    }
    Some(changed)
}

/// Whether an edge instruction reads memory that another instruction, which is not deferred, overwrites: a later edge
/// pass would read the new value.
pub fn edges_read_what_is_written(body: &Rewritten, homes: &[Buffer]) -> bool {
    let written = body.instrs()[..body.first_deferred].iter().filter(|instr| !instr.op.is_total());
    let written: HashSet<Buffer> = written
        .filter_map(|instr| match instr.dest {
            Dest::Buffer(buffer) => Some(homes[buffer.index()]),
            Dest::Local(_) => None,
        })
        .collect();
    let uses = Uses::of(body, homes);
    uses.reads.iter().any(|(home, reads)| {
        written.contains(home) && reads.iter().any(|(reader, _)| body.instrs()[*reader].level == Level::Edge)
    })
}
