//! Counts the work of reductions over metapaths: factored ([`hgnnc_ir::metapath`], or hop by hop), and over the
//! metapath's edges.

use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{Dataflow, Direction, Graph, MetapathReduce, Space};
use hgnnc_machine::{Gather, Work};

/// Bytes of an f32 element.
const ELEMENT: f64 = 4.0;

/// Counts the work of reductions that share paths and scores: `heads` scores, `elements` summed elements per head in
/// all, and `written` elements per row of the results.
///
/// The endpoints of each middle vertex are sorted per head, and prefix sums are built from below and from above the
/// kink of the score. A row searches its place for each of its middle vertices, and adds both parts.
pub fn metapath_work(
    flow: &Dataflow,
    sum: &MetapathReduce,
    (heads, elements, written): (f64, f64, f64),
    sizes: &SizeInfo,
) -> Work {
    let ((own, direction), (other, _)) = (sum.rows(), sum.others());
    let edges = |graph| sizes.rows(Space::Edges(graph)) as f64;
    let (entries, lookups) = (edges(other), edges(own));
    let rows = sizes.rows(flow.graph_end(own, direction)) as f64;
    let between = sizes.rows(flow.graph_end(sum.first, Direction::In)) as f64;
    let steps = (entries / between.max(1.0)).max(2.0).log2();
    let table = 2.0 * heads * (elements + 1.0);
    Work {
        // An entry is added up from below and from above; a row rescales its two sums and adds a place to each.
        products: heads * (elements + 1.0) * (2.0 * entries + 4.0 * lookups),
        // The distances of an entry and of the sum before it from the largest exponent, on both sides; the distances of
        // a row's sums and of both places.
        special: heads * (4.0 * entries + 3.0 * lookups),
        comparisons: heads * entries * steps,
        search_steps: heads * lookups * steps,
        read: ELEMENT * (entries * heads * (elements + 1.0) + lookups + rows * heads),
        written: ELEMENT * (entries * table + rows * written),
        gathers: vec![Gather {
            reads: lookups,
            distinct: entries.min(lookups),
            row_bytes: ELEMENT * table,
            ahead: false,
        }],
        barriers: 1.0,
        ..Work::default()
    }
}

/// Counts the work of attention over the edges of a graph: `heads` scores of an edge, made of a number of the source
/// and one of the destination, and `elements` summed elements of the source.
pub fn attention_over_edges(flow: &Dataflow, graph: Graph, (heads, elements): (f64, f64), sizes: &SizeInfo) -> Work {
    let edges = sizes.rows(Space::Edges(graph)) as f64;
    Work {
        products: edges * elements,
        // Score, distance from the log-sum-exp, and the sum of the weights.
        simple: edges * 4.0 * heads,
        special: edges * heads,
        ..linear_over_edges(flow, graph, heads + elements, sizes)
    }
}

/// Counts the work of summing rows of `elements` along the edges of a graph.
pub fn linear_over_edges(flow: &Dataflow, graph: Graph, elements: f64, sizes: &SizeInfo) -> Work {
    let rows = |direction| sizes.rows(flow.graph_end(graph, direction)) as f64;
    let edges = sizes.rows(Space::Edges(graph)) as f64;
    Work {
        simple: edges * elements,
        read: ELEMENT * edges,
        written: ELEMENT * rows(Direction::In) * elements,
        gathers: vec![Gather {
            reads: edges,
            distinct: edges.min(rows(Direction::Out)),
            row_bytes: ELEMENT * elements,
            ahead: true,
        }],
        ..Work::default()
    }
}
