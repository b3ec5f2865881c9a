//! Loops of the passes over the edges of split rows ([`hgnnc_ir::kernel::Pieces`]).

use hgnnc_ir::loops::passes::{passes, passes_before};
use hgnnc_ir::loops::{EdgePass, Nest};
use hgnnc_machine::KernelFeatures;

use crate::dependencies::Dependency;
use crate::loops::loops;

/// Passes of a nest, in order. The last has no edge loops.
pub fn edge_passes(nest: &Nest, deps: &[Vec<Dependency>], features: KernelFeatures) -> Vec<EdgePass> {
    let instrs = nest.instrs();
    let earlier: Vec<Vec<usize>> = deps.iter().map(|deps| deps.iter().map(|dep| dep.instr).collect()).collect();
    let mut before = passes_before(instrs, &earlier);
    // A result that overwrites a value read by edges is stored after the last pass that reads it.
    let last = passes(instrs, &earlier, &before, true).len() - 1;
    before[nest.first_deferred..].fill(last);
    passes(instrs, &earlier, &before, true)
        .into_iter()
        .map(|pass| EdgePass {
            rows: loops(nest, deps, &pass.rows, features),
            edges: loops(nest, deps, &pass.edges, features),
        })
        .collect()
}
