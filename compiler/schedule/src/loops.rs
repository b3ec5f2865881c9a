//! Loops over the rows and edges of a block.
//!
//! Executing the instructions of a block one by one would stream every edge value of the block through the L2 cache
//! between any two of them. Instead, instructions of one level that depend on each other element by element (the same
//! edge or row) are fused into a loop that runs tile by tile; values used only within the loop exist for one tile and
//! stay in the L1 cache. Reductions over edges end a loop: they accumulate into their rows tile by tile.

use hgnnc_ir::Reduce;
use hgnnc_kernel_ir::kernel::{Dest, KernelOp, Level};
use hgnnc_kernel_ir::loops::{Loop, Step};
use hgnnc_machine::{KernelFeature, KernelFeatures};

use crate::dependencies::Dependency;
use crate::rewrite::Rewritten;
use crate::tiles::MOST;

/// Whether the instruction can run tile by tile.
fn streams(body: &Rewritten, index: usize) -> bool {
    match &body.instrs()[index].op {
        // The block does not read the overwritten value any more.
        _ if index >= body.first_deferred => false,
        // Log-sum-exp needs the maximum over all edges first.
        KernelOp::Segment(reduce, _) => *reduce != Reduce::Lse,
        // Packs its operands, so it profits from many rows.
        KernelOp::MatMul(..) | KernelOp::MatMulT(..) | KernelOp::OuterAll(..) => false,
        _ => true,
    }
}

/// Fuses all operations of a part into loops in dependence order. Row operations go first, so that edge loops find as
/// many operands ready as possible.
pub fn loops(body: &Rewritten, deps: &[Vec<Dependency>], part: &[usize], features: KernelFeatures) -> Vec<Loop> {
    let ops = body.instrs();
    // Operations of other parts count as done.
    let mut done = vec![true; ops.len()];
    part.iter().for_each(|&op| done[op] = false);
    let mut loops: Vec<Loop> = vec![];
    // Sizes of tiles follow when all loops are known.
    let new = |level, tiled: bool, instrs: Vec<usize>| Loop {
        level,
        tile: tiled.then_some(MOST),
        steps: instrs.into_iter().map(Step::Instr).collect(),
    };
    while done.contains(&false) {
        let single = |level: Level| {
            (0..ops.len()).find(|&i| {
                !done[i] && ops[i].level == level && !streams(body, i) && deps[i].iter().all(|d| done[d.instr])
            })
        };
        let fused = if let Some(op) = single(Level::Row) {
            new(Level::Row, false, vec![op])
        } else if let rows = delay_to_last(body, deps, &done, grow(body, deps, &done, Level::Row))
            && !rows.is_empty()
        {
            new(Level::Row, true, rows)
        } else if let Some(op) = single(Level::Edge) {
            new(Level::Edge, false, vec![op])
        } else {
            let edges = grow(body, deps, &done, Level::Edge);
            assert!(!edges.is_empty(), "operations of a block are in an order that can be executed");
            new(Level::Edge, true, needed(body, deps, &done, edges))
        };
        fused.instrs().for_each(|op| done[op] = true);
        match features.has(KernelFeature::FusedChains) {
            true => loops.push(fused),
            false => loops.extend(fused.instrs().map(|op| new(fused.level, false, vec![op]))),
        }
    }
    loops
}

/// All operations of a level that are ready and can run tile by tile.
fn grow(body: &Rewritten, deps: &[Vec<Dependency>], done: &[bool], level: Level) -> Vec<usize> {
    let mut here = vec![false; body.instrs().len()];
    for (index, op) in body.instrs().iter().enumerate() {
        let ready = |d: &Dependency| done[d.instr] || (here[d.instr] && d.own_row);
        if !done[index] && op.level == level && streams(body, index) && deps[index].iter().all(ready) {
            here[index] = true;
        }
    }
    (0..here.len()).filter(|&i| here[i]).collect()
}

/// Delays row operations to the last loop if all their users are there, so that e.g. optimizer states are not kept live
/// across the edge loops. Other row operations stay early, because edge loops need their operands.
fn delay_to_last(body: &Rewritten, deps: &[Vec<Dependency>], done: &[bool], fused: Vec<usize>) -> Vec<usize> {
    let mut wanted = vec![false; body.instrs().len()];
    let mut any = false;
    for (index, op) in body.instrs().iter().enumerate().rev().filter(|(index, _)| !done[*index]) {
        // Final stores depend on all others in any case.
        let other = op.level == Level::Edge || !(streams(body, index) || index >= body.first_deferred);
        any |= other;
        if other || wanted[index] {
            deps[index].iter().for_each(|d| wanted[d.instr] = true);
        }
    }
    if any { fused.into_iter().filter(|&i| wanted[i]).collect() } else { fused }
}

/// Delays operations that neither a reduction of this loop nor anything in between needs.
fn needed(body: &Rewritten, deps: &[Vec<Dependency>], done: &[bool], fused: Vec<usize>) -> Vec<usize> {
    let ops = body.instrs();
    let mut here = vec![false; ops.len()];
    fused.iter().for_each(|&i| here[i] = true);
    let mut wanted = vec![false; ops.len()];
    for &i in &fused {
        wanted[i] = ops[i].op.reduces_edges() || matches!(ops[i].dest, Dest::Buffer(_));
    }
    for (index, deps) in deps.iter().enumerate() {
        if !done[index] && !here[index] && deps.iter().all(|d| done[d.instr] || here[d.instr]) {
            deps.iter().filter(|d| here[d.instr]).for_each(|d| wanted[d.instr] = true);
        }
    }
    for &i in fused.iter().rev() {
        if wanted[i] {
            deps[i].iter().filter(|d| here[d.instr]).for_each(|d| wanted[d.instr] = true);
        }
    }
    let some: Vec<usize> = fused.iter().copied().filter(|&i| wanted[i]).collect();
    if some.is_empty() { fused } else { some }
}
