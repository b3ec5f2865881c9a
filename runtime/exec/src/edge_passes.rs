//! Splits the operations of a region with split rows ([`crate::plan::SplitRows`]) into passes over their edges.
//!
//! A reduction over edges is complete after its pass; its readers run in the next. Edge values are recomputed in each
//! pass that reads them, piece by piece, unless they are stored results.

use crate::plan::{Level, Place, Region};
use crate::schedule::Dependency;

/// Operations of one pass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EdgePass {
    /// Row operations, executed first.
    pub rows: Vec<usize>,
    /// Edge operations, executed for each piece afterwards.
    pub edges: Vec<usize>,
}

/// Passes of a region, in order. The last has no edge operations.
pub fn edge_passes(region: &Region, deps: &[Vec<Dependency>]) -> Vec<EdgePass> {
    let ops = &region.ops;
    let mut first = vec![0usize; ops.len()];
    for (op, deps) in deps.iter().enumerate() {
        let after = |dep: &Dependency| first[dep.op] + usize::from(ops[dep.op].op.reduces_edges());
        first[op] = deps.iter().map(after).max().unwrap_or(0);
    }
    let stored = |op: usize| {
        let out = || region.locals[ops[op].out as usize].place;
        ops[op].level == Level::Edge && !ops[op].op.is_total() && matches!(out(), Place::Stored(_))
    };
    let at_edges = |op: &usize| ops[*op].level == Level::Edge;
    let rounds = (0..ops.len()).filter(at_edges).map(|op| first[op] + 1).max().unwrap_or(0);
    // A result that aliases a value read by edges is stored after the last pass that reads it.
    ops.iter().zip(&mut first).filter(|(op, _)| op.deferred).for_each(|(_, at)| *at = rounds);
    let mut passes = vec![EdgePass::default(); rounds + 1];
    for (round, pass) in passes.iter_mut().enumerate() {
        pass.rows = (0..ops.len()).filter(|&op| !at_edges(&op) && first[op] == round).collect();
        let mut wanted: Vec<bool> = (0..ops.len())
            .map(|op| {
                let for_itself = ops[op].op.reduces_edges() || ops[op].op.is_total() || stored(op);
                at_edges(&op) && for_itself && first[op] == round
            })
            .collect();
        for op in (0..ops.len()).rev() {
            if wanted[op] {
                for dep in deps[op].iter().map(|dep| dep.op) {
                    let read = ops[dep].op.reduces_edges() || (stored(dep) && first[dep] < round);
                    wanted[dep] |= at_edges(&dep) && !read;
                }
            }
        }
        pass.edges = (0..ops.len()).filter(|&op| wanted[op]).collect();
    }
    passes
}
