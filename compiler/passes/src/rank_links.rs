//! Scores links with all vertices in place of an end, for their ranks.
//!
//! A link is ranked among all pairs with one end replaced. One by one, each pair reads the rows of both its ends. Where the score is
//! linear in the row of the end that is replaced, s(u, r, v) = ⟨q(u, r), x_v⟩ + c(u, r), the scores of some links with some
//! vertices are a product of matrices, as with samples that all links of a batch share
//! ([`share_samples`](crate::share_samples)). c is the same for all vertices, and changes no rank: it is left out.
//!
//! ```text
//! Before:  %3 = gather.src likes, %0              : f32[edges(likes); 64]
//!          %4 = gather.dst likes, %1              : f32[edges(likes); 64]
//!          %5 = mul %3, %4                        : f32[edges(likes); 64]
//!          %6 = reduce.sum(axes 1) %5             : f32[edges(likes)]
//!          result "score.likes" = %6
//! After:   %3 = gather.src likes, %0              : f32[edges(likes); 64]
//!          %7 = gather.src Item.samples, %1       : f32[edges(Item.samples); 64]
//!          %8 = segment.sum.in Item.samples, %7   : f32[Item.samples; 64]
//!          %9 = unrows %8                         : f32[|Item.samples|, 64]
//!          %10 = reshape(4096, 64) %9             : f32[4096, 64]
//!          %11 = matmul_t %3, %10                 : f32[edges(likes); 4096]
//!          result "score.likes" = %11
//! ```
//!
//! The edges are links with an end that is kept, once each; of the other end nothing is read. The program runs on some of them and some vertices
//! at a time, which the runtime chooses. Rows of vertices beyond the last one are zero.

use hgnnc_ir::{Dataflow, Direction, Output, Space, VertexType};

use crate::score_links::parts;
use crate::shared_samples::Samples;

/// The scores of links with `count` vertices of the type in place of their destinations (`In`) or sources, of the graphs whose scores
/// are linear in these. `None` if there are none. The tables are those of the scores of pairs, followed by those of the vertices.
pub fn rank_links(flow: &Dataflow, end: Direction, count: &dyn Fn(VertexType) -> u32) -> Option<Dataflow> {
    let (_, mut program) = parts(flow)?;
    program.name = format!("{}.{}", flow.name, if end == Direction::In { "destinations" } else { "sources" });
    let scores = std::mem::take(&mut program.outputs);
    let mut samples = Samples::new(&mut program, count);
    let mut outputs = vec![];
    for Output { kind, value } in scores {
        let Space::Edges(graph) = samples.space(value) else { continue };
        if let Ok(found) = samples.scores(value, graph, end) {
            outputs.push(Output { kind, value: found.samples });
        }
    }
    if outputs.is_empty() {
        return None;
    }
    program.outputs = outputs;
    Some(program)
}
