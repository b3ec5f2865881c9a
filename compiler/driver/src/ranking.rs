//! Programs that score links with many vertices in place of an end, for metrics of ranks.

use hgnnc_ir::training::{Ranking, Training};
use hgnnc_ir::{Dataflow, Direction, VertexType};
use hgnnc_passes::{SizeInfo, rank_links};

/// Most vertices at a time. Their rows are copied, and a query (a network of the kept end, perhaps) is computed again for each
/// group of vertices, so groups are large.
const MOST: u64 = 1 << 14;
/// Vertices at a time where no dataset is known.
const UNKNOWN: u64 = 1 << 10;

/// The programs for destinations and for sources that the metrics of a model need, of its evaluation program. `None` where no metric needs
/// it, or no score is linear in the row of this end.
pub(crate) fn rank_programs(
    training: Option<&Training>,
    infer: &Dataflow,
    sizes: Option<&SizeInfo>,
) -> [Option<Dataflow>; 2] {
    let Some(training) = training else { return [None, None] };
    let criteria = [Some(training.select), training.stop.map(|stop| stop.criterion)];
    let metrics =
        criteria.into_iter().flatten().map(|criterion| criterion.measure.metric).chain(training.metrics.clone());
    let rankings: Vec<Ranking> = metrics.filter_map(|metric| metric.ranking()).collect();
    let rows = |of: VertexType| sizes.map_or(UNKNOWN, |sizes| sizes.vertices[of.index()]);
    let count = |of: VertexType| rows(of).clamp(1, MOST) as u32;
    [Direction::In, Direction::Out].map(|end| {
        let needed = |ranking: &Ranking| *ranking == Ranking::BothEnds || end == Direction::In;
        rankings.iter().any(needed).then(|| rank_links(infer, end, &count)).flatten()
    })
}
