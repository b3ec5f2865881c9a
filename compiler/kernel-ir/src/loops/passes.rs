//! The passes over the edges of a row: one for each link in the dependence chain of its reductions.
//!
//! A reduction over edges is complete after its pass; its readers run in the next one. Every back end executes rows, or
//! the rows that it splits into pieces, in these passes.

use crate::kernel::{Dest, Extent, Instr, Level};

/// The instructions of one pass, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pass {
    /// Instructions of the row, executed first.
    pub rows: Vec<usize>,
    /// Instructions of each edge, executed afterwards.
    pub edges: Vec<usize>,
}

/// For each instruction, the number of passes over the edges that are complete when it is executed. `deps` are the
/// earlier instructions that each depends on.
pub fn passes_before(instrs: &[Instr], deps: &[Vec<usize>]) -> Vec<usize> {
    let mut before: Vec<usize> = vec![];
    for deps in deps {
        let after = |&dep: &usize| before[dep] + usize::from(instrs[dep].op.reduces_edges());
        let first = deps.iter().map(after).max().unwrap_or(0);
        before.push(first);
    }
    before
}

/// Divides instructions into passes; the last has no edges. `before` is that of [`passes_before`], where instructions of
/// rows may wait longer. Edge values are rematerialized in each pass that reads them; with `rereads`, those that an
/// earlier pass has stored are read instead.
pub fn passes(instrs: &[Instr], deps: &[Vec<usize>], before: &[usize], rereads: bool) -> Vec<Pass> {
    let at_edges = |index: usize| instrs[index].level == Level::Edge;
    let is_stored = |index: usize| matches!(instrs[index].dest, Dest::Buffer(_));
    let count = (0..instrs.len()).filter(|&index| at_edges(index)).map(|index| before[index] + 1).max().unwrap_or(0);
    let pass = |number: usize| {
        let rows = (0..instrs.len()).filter(|&index| !at_edges(index) && before[index] == number).collect();
        // Reductions and stored values are computed for their own sake.
        let starts = |index: usize| instrs[index].extent() != Extent::Edge || is_stored(index);
        let mut wanted: Vec<bool> =
            (0..instrs.len()).map(|index| at_edges(index) && before[index] == number && starts(index)).collect();
        for index in (0..instrs.len()).rev() {
            if !wanted[index] {
                continue;
            }
            for &dep in &deps[index] {
                let is_reread = rereads && is_stored(dep) && before[dep] < number;
                wanted[dep] |= instrs[dep].extent() == Extent::Edge && !is_reread;
            }
        }
        Pass { rows, edges: (0..instrs.len()).filter(|&index| wanted[index]).collect() }
    };
    (0..=count).map(pass).collect()
}
