//! Tile sizes of loops.
//!
//! Values that only one loop reads exist for one tile. A tile has as many rows or edges as half of an L1 cache holds of
//! those values, where most of them are live; the other half is for operands and results. A loop of calls alone takes a
//! whole block at once: its values are in registers.
//!
//! The cache is that of [`Machine::cpu`], so that a program gives the same results on every machine: reductions over
//! edges add up tile by tile.

use std::collections::HashMap;

use hgnnc_kernel_ir::loops::{CallResult, Loop, Nest, Step, producers};
use hgnnc_machine::Machine;

use crate::rewrite::Rewritten;

/// Fewest and most rows or edges of a tile. Smaller tiles cost more calls of kernels than they save traffic.
const LEAST: usize = 32;
pub const MOST: usize = 1024;
/// A tile has a multiple of the elements of the widest vectors.
const MULTIPLE: usize = 16;

/// Elements that are live in a tile at most.
pub fn capacity() -> usize {
    let l1 = Machine::cpu().levels.first().map_or(0.0, |level| level.bytes);
    (l1 / 2.0) as usize / size_of::<f32>()
}

/// Sets the tile sizes of all loops.
pub fn assign(body: &Rewritten, nest: &mut Nest, capacity: usize) {
    let made_by = producers(body.instrs());
    let passes = nest.passes.iter_mut().flat_map(|pass| [&mut pass.rows, &mut pass.edges]);
    for loops in nest.groups.iter_mut().chain(passes) {
        let peaks = peaks(body, loops, &made_by);
        for (looped, peak) in loops.iter_mut().zip(peaks) {
            let is_code = looped.steps.iter().all(|step| matches!(step, Step::Call(_)));
            looped.tile = looped.tile.filter(|_| !is_code).map(|_| {
                // Rows of symbolic width are long.
                peak.map_or(LEAST, |peak| (capacity / peak.max(1)).clamp(LEAST, MOST) / MULTIPLE * MULTIPLE)
            });
        }
    }
}

/// The most elements per row or edge of each loop that are live at a step, for values that no other loop reads; `None`
/// if that depends on numbers of vertices.
fn peaks(body: &Rewritten, loops: &[Loop], made_by: &[Vec<Option<usize>>]) -> Vec<Option<usize>> {
    // The loop of each instruction, and its step.
    let mut places: HashMap<usize, (usize, usize)> = HashMap::new();
    for (number, looped) in loops.iter().enumerate() {
        for (at, step) in looped.steps.iter().enumerate() {
            places.extend(step.instrs().iter().map(|&instr| (instr, (number, at))));
        }
    }
    // The last step that reads each value; `None` for values that another loop reads.
    let mut last: HashMap<usize, Option<usize>> = HashMap::new();
    for (&reader, &(number, at)) in &places {
        for made in made_by[reader].iter().flatten() {
            let Some(&(own, _)) = places.get(made) else { continue };
            let end = last.entry(*made).or_insert(Some(at));
            *end = end.filter(|_| own == number).map(|end| end.max(at));
        }
    }
    let peak = |looped: &Loop| {
        let mut live = vec![Some(0usize); looped.steps.len()];
        for step in &looped.steps {
            for &instr in step.instrs() {
                let op = &body.instrs()[instr].op;
                let end = last.get(&instr).copied().unwrap_or(Some(0));
                let (Some(end), false) = (end, op.reduces_edges() || op.is_total() || is_in_registers(step, instr))
                else {
                    continue;
                };
                let start = places[&instr].1;
                let width = body.instrs()[instr].width.as_fixed();
                for sum in &mut live[start..=end.max(start)] {
                    *sum = sum.zip(width).map(|(sum, width)| sum + width);
                }
            }
        }
        live.into_iter().try_fold(0, |peak, live| Some(peak.max(live?)))
    };
    loops.iter().map(peak).collect()
}

/// Whether a value of a call does not leave it.
fn is_in_registers(step: &Step, instr: usize) -> bool {
    let Step::Call(call) = step else { return false };
    !call.results.iter().any(|result| matches!(*result, CallResult::Tile(of) | CallResult::Owners(of) if of == instr))
}
