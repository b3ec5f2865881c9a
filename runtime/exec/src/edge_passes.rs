//! Which operations the rounds of cut rows have: see [`crate::plan::SplitRows`].
//!
//! A reduction over edges is complete after its round; what reads it comes in the next. Edge values are computed in
//! each round that reads them, for a piece at a time, unless they are stored results.

use crate::plan::{BlockKind, Level, Place, Region, reduces_edges};
use crate::schedule::{Dependency, is_partial};

/// The operations of a round.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EdgePass {
    /// What is computed for the rows first.
    pub rows: Vec<usize>,
    /// What is computed for the edges of the pieces then.
    pub edges: Vec<usize>,
}

/// The rounds of a region, in order. The last has no edges.
pub fn edge_passes(region: &Region, deps: &[Vec<Dependency>]) -> Vec<EdgePass> {
    let ops = &region.ops;
    let mut first = vec![0usize; ops.len()];
    for (op, deps) in deps.iter().enumerate() {
        let after = |dep: &Dependency| first[dep.op] + usize::from(reduces_edges(&ops[dep.op].kind));
        first[op] = deps.iter().map(after).max().unwrap_or(0);
    }
    let stored = |op: usize| {
        let out = || region.locals[ops[op].out as usize].place;
        ops[op].level == Level::Edge && !is_partial(&ops[op].kind) && matches!(out(), Place::Stored(_))
    };
    let at_edges = |op: &usize| ops[*op].level == Level::Edge;
    let rounds = (0..ops.len()).filter(at_edges).map(|op| first[op] + 1).max().unwrap_or(0);
    // What lies in the place of a value that edges read comes when no round reads them any more.
    ops.iter()
        .zip(&mut first)
        .filter(|(op, _)| matches!(op.kind, BlockKind::Store(_)))
        .for_each(|(_, at)| *at = rounds);
    let mut passes = vec![EdgePass::default(); rounds + 1];
    for (round, pass) in passes.iter_mut().enumerate() {
        pass.rows = (0..ops.len()).filter(|&op| !at_edges(&op) && first[op] == round).collect();
        let mut wanted: Vec<bool> = (0..ops.len())
            .map(|op| {
                let for_itself = reduces_edges(&ops[op].kind) || is_partial(&ops[op].kind) || stored(op);
                at_edges(&op) && for_itself && first[op] == round
            })
            .collect();
        for op in (0..ops.len()).rev() {
            if wanted[op] {
                for dep in deps[op].iter().map(|dep| dep.op) {
                    let read = reduces_edges(&ops[dep].kind) || (stored(dep) && first[dep] < round);
                    wanted[dep] |= at_edges(&dep) && !read;
                }
            }
        }
        pass.edges = (0..ops.len()).filter(|&op| wanted[op]).collect();
    }
    passes
}
