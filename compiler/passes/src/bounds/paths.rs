//! The work of sums over paths ([`hgnnc_ir::paths`]).

use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{Dataflow, Direction, PathSum, Space};
use hgnnc_machine::{Gather, Work};

/// Bytes of an element.
const ELEMENT: f64 = 4.0;

/// Sums that share paths and scores: `heads` scores, and `elements` per head that are summed, all together; `written` elements
/// per row of the results.
///
/// The ends of each vertex between are sorted by each head, and what is summed is added up twice, from below and from above
/// the bend of the score. A row looks its place up for each of its vertices between, and adds both parts.
pub fn path_work(
    flow: &Dataflow,
    sum: &PathSum,
    (heads, elements, written): (f64, f64, f64),
    sizes: &SizeInfo,
) -> Work {
    let ((own, direction), (other, _)) = (sum.rows(), sum.others());
    let edges = |graph| sizes.rows(Space::Edges(graph)) as f64;
    let (entries, lookups) = (edges(other), edges(own));
    let between = sizes.rows(flow.graph_end(sum.first, Direction::In)) as f64;
    let rows = sizes.rows(flow.graph_end(own, direction)) as f64;
    let steps = (entries / between.max(1.0)).max(2.0).log2();
    let places = heads * (entries + lookups);
    let table = 2.0 * heads * (elements + 1.0);
    Work {
        products: (heads * elements + heads) * (entries + lookups) * 2.0,
        // A comparison and a move for each step of sorting, a comparison for each step of a search.
        simple: heads * steps * (2.0 * entries + lookups),
        special: 2.0 * places,
        read: ELEMENT * (entries * heads * (elements + 1.0) + lookups + rows * heads),
        written: ELEMENT * (entries * table + rows * written),
        gathers: vec![Gather { reads: lookups, distinct: entries.min(lookups), row_bytes: ELEMENT * table }],
        barriers: 1.0,
        ..Work::default()
    }
}
