//! Splits a program that scores pairs of vertices into a part that runs once and a part that runs per set of pairs.
//!
//! A model that predicts links computes embeddings of all vertices, and the score of a pair from those at its ends.
//! Evaluation scores more pairs than fit in memory as edges (a link is ranked among all pairs with one end replaced),
//! so the second part is a program of its own that runs for one set of pairs after another:
//!
//! ```text
//! Before:  %4 = segment.sum.in cites, %3     : f32[Paper; 64]
//!          %5 = gather.src links, %4         : f32[edges(links); 64]
//!          %6 = gather.dst links, %4         : f32[edges(links); 64]
//!          ...
//!          result "score.links" = %8
//! First:   %4 = segment.sum.in cites, %3     : f32[Paper; 64]
//!          result "given.0" = %4
//! Second:  %0 = input i0                     : f32[Paper; 64]        i0 = given("given.0")
//!          %1 = gather.src links, %0         : f32[edges(links); 64]
//!          ...
//! ```
//!
//! Values that depend on parameters only are computed in the second part as well, since they are small. The second part
//! has its own table of graphs: those of links, in their order. Parameters keep their positions; parameters that the
//! second part does not use have one element there. Products of one end are computed for each distinct endpoint of the
//! pairs ([`compute_at_endpoints`]).

use hgnnc_ir::{Dataflow, Graph, Op, Output, Space, Type};

use crate::score_endpoints::compute_at_endpoints;
use crate::two_parts::{fill, of_params, second_part};

/// The two parts of a forward program: without the results of pairs, and with them only. `None` where it has none.
/// Values that only pairs read stay in the first part, dead.
pub fn score_links(flow: &Dataflow) -> Option<(Dataflow, Dataflow)> {
    let (first, mut second) = parts(flow)?;
    compute_at_endpoints(&mut second);
    Some((first, second))
}

/// Both parts, with all values of pairs on the pairs.
pub(crate) fn parts(flow: &Dataflow) -> Option<(Dataflow, Dataflow)> {
    let of_pairs = |space: Space| match space {
        Space::Edges(graph) | Space::Endpoints(graph, _) => flow.graphs[graph.index()].links,
        Space::Unit | Space::Vertices(_) | Space::Index(_) => false,
    };
    let is_score = |output: &&Output| of_pairs(flow.ty(output.value).space);
    let (scores, others): (Vec<&Output>, Vec<&Output>) = flow.outputs.iter().partition(is_score);
    if scores.is_empty() {
        return None;
    }
    let mut first = flow.clone();
    first.outputs = others.into_iter().cloned().collect();
    let mut second = second_part(flow, "score", |decl| decl.links && decl.derived.is_none());
    let of_links: Vec<usize> = (0..flow.graphs.len()).filter(|&graph| flow.graphs[graph].links).collect();
    let moved = |graph: Graph| {
        let position = of_links.iter().position(|&of| of == graph.index());
        Graph::new(position.expect("pairs only see graphs of links"))
    };

    // The second part computes the values that depend on pairs, and those that depend on parameters and constants alone.
    let mut within = of_params(flow);
    let mut pairs = vec![false; flow.values.len()];
    for value in flow.handles() {
        let data = flow.value(value);
        pairs[value.index()] = of_pairs(data.ty.space) || data.args.iter().any(|arg| pairs[arg.index()]);
        within[value.index()] |= pairs[value.index()];
    }
    fill((flow, &mut first, &mut second), &within, &scores, "given", |op| on_graphs(op, &moved));
    Some((first, second))
}

/// An operation on other graphs.
fn on_graphs(op: &Op, moved: &impl Fn(Graph) -> Graph) -> Op {
    let space = |space: Space| match space {
        Space::Edges(graph) => Space::Edges(moved(graph)),
        Space::Endpoints(graph, direction) => Space::Endpoints(moved(graph), direction),
        Space::Unit | Space::Vertices(_) | Space::Index(_) => space,
    };
    let ty = |ty: &Type| Type { space: space(ty.space), ..ty.clone() };
    match op {
        Op::GatherSrc(graph) => Op::GatherSrc(moved(*graph)),
        Op::GatherDst(graph) => Op::GatherDst(moved(*graph)),
        Op::Segment { graph, direction, reduce } => {
            Op::Segment { graph: moved(*graph), direction: *direction, reduce: *reduce }
        }
        Op::GatherRows(graph, direction) => Op::GatherRows(moved(*graph), *direction),
        Op::ScatterRows(graph, direction) => Op::ScatterRows(moved(*graph), *direction),
        Op::ScatterAdd(ends) => {
            Op::ScatterAdd(ends.iter().map(|&(graph, direction)| (moved(graph), direction)).collect())
        }
        Op::Count(of) => Op::Count(space(*of)),
        Op::Broadcast(of) => Op::Broadcast(ty(of)),
        Op::RandomMask { stream, rate, ty: of } => Op::RandomMask { stream: *stream, rate: *rate, ty: ty(of) },
        other => other.clone(),
    }
}
