//! Loops of the passes over the edges of split rows ([`hgnnc_kernel_ir::kernel::Pieces`]).

use hgnnc_kernel_ir::loops::EdgePass;
use hgnnc_kernel_ir::loops::passes::{passes, passes_before};
use hgnnc_machine::KernelFeatures;

use crate::dependencies::Dependency;
use crate::loops::loops;
use crate::rewrite::Rewritten;

/// Passes of a body, in order. The last has no edge loops.
pub fn edge_passes(body: &Rewritten, deps: &[Vec<Dependency>], features: KernelFeatures) -> Vec<EdgePass> {
    let instrs = body.instrs();
    let earlier: Vec<Vec<usize>> = deps.iter().map(|deps| deps.iter().map(|dep| dep.instr).collect()).collect();
    let mut before = passes_before(instrs, &earlier);
    // A result that overwrites a value read by edges is stored after the last pass that reads it.
    let last = passes(instrs, &earlier, &before, true).len() - 1;
    before[body.first_deferred..].fill(last);
    passes(instrs, &earlier, &before, true)
        .into_iter()
        .map(|pass| EdgePass {
            rows: loops(body, deps, &pass.rows, features),
            edges: loops(body, deps, &pass.edges, features),
        })
        .collect()
}
