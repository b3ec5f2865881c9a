//! Moves edge values that depend on one endpoint only to the vertices: computes per vertex, then gathers.
//!
//! A vertex is computed once, not once per edge: a projection costs |V|·k·n multiply-adds, not |E|·k·n. Every row is
//! computed from the same operands in the same order, so results agree exactly. A moved value is followed by its
//! gather, so its readers can move in turn.
//!
//! ```text
//! Before:  %2 = gather.src g, %0              : f32[edges(g); h, d]
//!          %3 = mul %2, %1                    : f32[edges(g); h, d]      %1: f32[h, d]
//!          %4 = reduce.sum(axes 1) %3         : f32[edges(g); h]
//! After:   %2 = mul %0, %1                    : f32[src(g); h, d]
//!          %3 = reduce.sum(axes 1) %2         : f32[src(g); h]
//!          %4 = gather.src g, %3              : f32[edges(g); h]
//! ```
//!
//! Applies to operations that work row by row, where every operand is a unit value or gathered in the same way over the
//! same graph, at least one is gathered, and |V| ≤ |E|. Rows of vertices without edges must be finite: see
//! [`crate::unread_rows`]. Needs sizes.

use hgnnc_analysis::cost::{Times, operation_work};
use hgnnc_ir::{Dataflow, Op, Space, Type, Value};

use crate::pass::{Changed, PassCx};
use crate::rewrite::rewrite;
use crate::unread_rows::{Infinite, is_total};

/// Moves row-wise operations on gathered values in front of the gather.
pub fn move_to_vertices(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let Some(sizes) = cx.sizes_for("move_to_vertices") else { return Changed(false) };
    let machine = cx.machine.clone();
    let mut log = vec![];
    let mut infinite = Infinite::default();
    let moved = rewrite(flow, |r, value, args| {
        let op = &r.old.value(value).op;
        let mut gather: Option<(&Op, Space)> = None;
        let mut ends: Vec<Value> = vec![];
        for &arg in args {
            let data = r.new.value(arg);
            let same = |(known, space): (&Op, Space)| *known == data.op && space == r.new.ty(data.args[0]).space;
            if matches!(data.op, Op::GatherSrc(_) | Op::GatherDst(_)) && gather.is_none_or(same) {
                gather = Some((&data.op, r.new.ty(data.args[0]).space));
                ends.push(data.args[0]);
            } else if data.ty.is_unit() {
                ends.push(arg);
            } else {
                return None;
            }
        }
        // All vertices at that end, or its endpoints.
        let (gather, space) = gather?;
        let gather = gather.clone();
        let (Op::GatherSrc(graph) | Op::GatherDst(graph)) = gather else { return None };
        let on_vertices = by_row(op, |ty| Type { space, ..ty.clone() })?;
        let (vertices, edges) = (sizes.rows(space), sizes.edges[graph.index()]);
        // All endpoints have edges.
        let all_read = matches!(space, Space::Endpoints(..));
        if !all_read && (!is_total(&r.new, op, &ends) || ends.iter().any(|&end| infinite.has(&r.new, end))) {
            let name = &r.old.graphs[graph.index()].name;
            log.push(format!("{value} over `{name}`: may be infinite at vertices without edges; stays on the edges"));
            return None;
        }
        // Equal counts move as well: every traversal recomputes edge values, and vertex values are computed once.
        let moves = vertices <= edges;
        let verdict = if moves { "moved to the vertices" } else { "stays on the edges" };
        let name = &r.old.graphs[graph.index()].name;
        let line = format!("{value} over `{name}`: {vertices} vertices, {edges} edges; {verdict}");
        // The moved value is the last value of the new program, so it can be removed again.
        let before = r.new.values.len();
        let computed = r.add(on_vertices, &ends);
        let predicted = machine.as_ref().and_then(|machine| {
            let work = |flow: &Dataflow, v| Some(machine.predict(&operation_work(flow, v, &sizes)?.1).seconds());
            let (here, there) = (work(r.old, value)?, work(&r.new, computed)?);
            Some(if moves {
                Times { chosen: there, other: here }.text("on vertices", "on edges")
            } else {
                Times { chosen: here, other: there }.text("on edges", "on vertices")
            })
        });
        log.push(predicted.map_or(line.clone(), |text| format!("{line}; {text}")));
        if !moves {
            r.new.values.truncate(before);
            infinite.truncate(before);
            return None;
        }
        Some(r.add(gather, &[computed]))
    });
    cx.explain_all("move_to_vertices", log);
    Changed(moved > 0)
}

/// The operation on rows of another space, if it is row-wise.
pub(crate) fn by_row(op: &Op, moved: impl Fn(&Type) -> Type) -> Option<Op> {
    match op {
        Op::Broadcast(ty) => Some(Op::Broadcast(moved(ty))),
        op => op.is_row_wise().then(|| op.clone()),
    }
}
