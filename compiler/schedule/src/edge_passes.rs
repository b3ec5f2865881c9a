//! Passes over the edges of split rows ([`hgnnc_ir::kernel::Pieces`]).
//!
//! A reduction over edges is complete after its pass; its readers run in the next. Edge values are recomputed in each
//! pass that reads them, piece by piece, unless they are stored results.

use hgnnc_ir::kernel::{Dest, Instr, Level};
use hgnnc_ir::loops::{EdgePass, Nest};
use hgnnc_machine::KernelFeatures;

use crate::dependencies::Dependency;
use crate::loops::loops;

/// Passes of a nest, in order. The last has no edge loops.
pub fn edge_passes(nest: &Nest, deps: &[Vec<Dependency>], features: KernelFeatures) -> Vec<EdgePass> {
    let instrs = nest.instrs();
    let mut first = vec![0usize; instrs.len()];
    for (index, deps) in deps.iter().enumerate() {
        let after = |dep: &Dependency| first[dep.instr] + usize::from(instrs[dep.instr].op.reduces_edges());
        first[index] = deps.iter().map(after).max().unwrap_or(0);
    }
    let at_edges = |instr: &Instr| instr.level == Level::Edge;
    let stays = |instr: &Instr| at_edges(instr) && matches!(instr.dest, Dest::Buffer(_));
    let rounds = (0..instrs.len()).filter(|&index| at_edges(&instrs[index])).map(|index| first[index] + 1).max();
    let rounds = rounds.unwrap_or(0);
    // A result that overwrites a value read by edges is stored after the last pass that reads it.
    first[nest.first_deferred..].fill(rounds);
    let pass = |round: usize| {
        let own = |index: &usize| first[*index] == round;
        let rows: Vec<usize> = (0..instrs.len()).filter(|&index| !at_edges(&instrs[index])).filter(own).collect();
        let for_itself = |instr: &Instr| instr.op.reduces_edges() || instr.op.is_total() || stays(instr);
        let mut wanted: Vec<bool> = (0..instrs.len())
            .map(|index| at_edges(&instrs[index]) && for_itself(&instrs[index]) && own(&index))
            .collect();
        for index in (0..instrs.len()).rev() {
            if !wanted[index] {
                continue;
            }
            for dep in deps[index].iter().map(|dep| dep.instr) {
                let is_complete = instrs[dep].op.reduces_edges() || (stays(&instrs[dep]) && first[dep] < round);
                wanted[dep] |= at_edges(&instrs[dep]) && !is_complete;
            }
        }
        let edges: Vec<usize> = (0..instrs.len()).filter(|&index| wanted[index]).collect();
        EdgePass { rows: loops(nest, deps, &rows, features), edges: loops(nest, deps, &edges, features) }
    };
    (0..=rounds).map(pass).collect()
}
