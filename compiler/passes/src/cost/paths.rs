//! Counts the work of sums over two-hop metapaths ([`hgnnc_ir::paths`]).

use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{Dataflow, Direction, PathSum, Space};
use hgnnc_machine::{Gather, Work};

/// Bytes of an f32 element.
const ELEMENT: f64 = 4.0;

/// Approximate cycles of two-hop sums, measured on ACM's PSP (54 endpoints per subject, 8 heads, 9 elements each): 300
/// for an entry of the tables and a lookup. An entry is sorted and added up twice, a row searches its place and adds
/// both parts.
pub fn path_cycles(flow: &Dataflow, sum: &PathSum, (heads, elements): (f64, f64), sizes: &SizeInfo) -> f64 {
    let edges = |graph| sizes.rows(Space::Edges(graph)) as f64;
    let (entries, lookups) = (edges(sum.others().0), edges(sum.rows().0));
    let between = sizes.rows(flow.graph_end(sum.first, Direction::In)) as f64;
    let steps = (entries / between.max(1.0)).max(2.0).log2();
    let (entry, lookup) = (40.0 + 12.0 * steps + 4.0 * elements, 60.0 + 10.0 * steps + 4.0 * elements);
    heads * (entries * entry + lookups * lookup)
}

/// Counts the work of sums that share paths and scores: `heads` scores, `elements` summed elements per head in all, and
/// `written` elements per row of the results.
///
/// The endpoints of each middle vertex are sorted per head, and prefix sums are built from below and from above the
/// kink of the leaky ReLU. A row looks up its place for each of its middle vertices, and adds both parts.
pub fn path_work(
    flow: &Dataflow,
    sum: &PathSum,
    (heads, elements, written): (f64, f64, f64),
    sizes: &SizeInfo,
) -> Work {
    let ((own, direction), (other, _)) = (sum.rows(), sum.others());
    let edges = |graph| sizes.rows(Space::Edges(graph)) as f64;
    let (entries, lookups) = (edges(other), edges(own));
    let rows = sizes.rows(flow.graph_end(own, direction)) as f64;
    let table = 2.0 * heads * (elements + 1.0);
    Work {
        // An entry is added up from below and from above; a row takes two differences and their sum.
        simple: heads * (elements + 1.0) * (2.0 * entries + 3.0 * lookups),
        cycles: path_cycles(flow, sum, (heads, elements), sizes),
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
