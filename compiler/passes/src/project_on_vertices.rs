//! Moves a projection from edges to the vertices at one end of them.
//!
//! A vertex is projected once, not once per edge: |V|·k·n multiply-adds, not |E|·k·n. Every row is the same product, so
//! results agree exactly.
//!
//! Before:  %2 = gather.src g, %0     : f32[edges(g); k]
//!          %3 = matmul %2, %1        : f32[edges(g); n]
//! After:   %2 = matmul %0, %1        : f32[src(g); n]
//!          %3 = gather.src g, %2     : f32[edges(g); n]
//!
//! Applies to `matmul` and `matmul_t` of any batch, where |V| < |E|. (The weight is a unit value by typing, so it cannot
//! depend on the edge.) Needs sizes.

use hgnnc_ir::{Dataflow, Op};

use crate::pipeline::{Changed, PassCx};
use crate::rewrite::rewrite;

/// See the module.
pub fn project_on_vertices(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let Some(sizes) = cx.sizes_for("project_on_vertices") else { return Changed(false) };
    let mut log = vec![];
    let moved = rewrite(flow, |r, value, args| {
        let op = &r.old.value(value).op;
        if !matches!(op, Op::MatMul { .. } | Op::MatMulT { .. }) {
            return None;
        }
        let gathered = r.new.value(args[0]).clone();
        let (Op::GatherSrc(graph) | Op::GatherDst(graph)) = gathered.op else { return None };
        let x = gathered.args[0];
        let (vertices, edges) = (sizes.rows(r.new.ty(x).space), sizes.edges[graph.index()]);
        let name = &r.old.graphs[graph.index()].name;
        let moves = vertices < edges;
        let verdict = if moves { "moved to the vertices" } else { "stays on the edges" };
        log.push(format!("projection {value} over `{name}`: {vertices} vertices, {edges} edges; {verdict}"));
        if !moves {
            return None;
        }
        let projected = r.add(op.clone(), &[x, args[1]]);
        Some(r.add(gathered.op, &[projected]))
    });
    cx.explain_all("project_on_vertices", log);
    Changed(moved > 0)
}
