//! The loops of the sampler in Rust, for processors without code generation ([`Compiled`](crate::Compiled)).

use crate::draw::Drawer;
use crate::graph::{Offsets, Relation};
use crate::id_map::{IdMap, gather};
use crate::plan::Fanout;
use crate::prefetch::{LINE, prefetch};
use crate::weight::Weigher;

/// Prefetch distance of row offsets, in vertices.
const ROWS_AHEAD: usize = 16;
/// Approximate number of edges of a group. The cache lines of two groups are in flight at a time, about the capacity of
/// first-level caches and their miss queues.
const GROUP: usize = 64;
/// Prefetch distance of rows, in groups.
const AHEAD: usize = 2;

/// Appends to `rows` the first edge id and degree of each destination, for some relations of its type (by slot).
pub(crate) fn read_rows(offsets: &Offsets, destinations: &[u32], drawn: &[usize], rows: &mut [&mut Vec<[u32; 2]>]) {
    for (i, &vertex) in destinations.iter().enumerate() {
        if let Some(&later) = destinations.get(i + ROWS_AHEAD) {
            offsets.prefetch(later);
        }
        let (starts, ends) = offsets.of(vertex);
        for (&slot, rows) in drawn.iter().zip(&mut *rows) {
            rows.push([starts[slot], ends[slot] - starts[slot]]);
        }
    }
}

/// The rows of one relation to sample in one hop.
pub(crate) struct Rows<'b> {
    /// First edge id and degree of each row.
    pub rows: &'b [[u32; 2]],
    /// Compact id of the first destination.
    pub first: usize,
    /// Offset of each row's edges in the block. `[rows + 1]`
    pub indptr: &'b [u64],
    pub fanout: Fanout,
}

/// Samples the edges of the rows: edge ids, and compact ids of their sources.
pub(crate) fn take(
    Rows { rows, first, indptr, fanout }: Rows<'_>,
    relation: &Relation<'_>,
    drawer: &mut Drawer<'_>,
    table: &mut IdMap,
    vertices: &mut [Vec<u32>],
    (eids, indices): (&mut [u32], &mut [u32]),
) {
    let sources = relation.sources();
    let (first_edge, edges) = (indptr[0] as usize, indptr[rows.len()] as usize);
    // A software pipeline over groups, newest first: the sources of a group are read `AHEAD` groups after their
    // prefetch, and its compact ids are assigned one group later.
    let mut ends = [first_edge; AHEAD + 2];
    let (mut row, mut last) = (0, first_edge);
    while last < edges {
        let (begin, drawn) = (row, ends[0]);
        while row < rows.len() && (indptr[row] as usize) < drawn + GROUP {
            row += 1;
        }
        ends.copy_within(..AHEAD + 1, 1);
        ends[0] = indptr[row] as usize;
        if drawn < ends[0] {
            // Borrowed per group, because assigning ids appends to the vertices of the source type, which may be this
            // one.
            let destinations = &vertices[relation.dst_type][first + begin..first + row];
            let into = &mut eids[drawn..ends[0]];
            match (fanout, relation.weights()) {
                (Fanout::Weighted(_) | Fanout::Latest(_), Some(weights)) => {
                    let latest = matches!(fanout, Fanout::Latest(_));
                    let mut weigher = Weigher { weights, latest, key: drawer.0.key, keys: drawer.0.keys };
                    weigh_rows(&mut weigher, &rows[begin..row], destinations, &indptr[begin..=row], sources, into);
                }
                _ => draw_rows(drawer, &rows[begin..row], destinations, fanout, sources, into),
            }
        }
        let [gathered, labelled] = [ends[AHEAD + 1]..ends[AHEAD], last..ends[AHEAD + 1]];
        gather(sources, &eids[gathered.clone()], table.words(), &mut indices[gathered]);
        last = labelled.end;
        table.relabel(&mut indices[labelled], &mut vertices[relation.src_type]);
    }
}

/// Samples edge ids of some rows, and prefetches their sources.
#[inline]
fn draw_rows(
    drawer: &mut Drawer<'_>,
    rows: &[[u32; 2]],
    destinations: &[u32],
    fanout: Fanout,
    sources: &[u32],
    mut into: &mut [u32],
) {
    for (&[start, degree], &vertex) in rows.iter().zip(destinations) {
        let (row, rest) = into.split_at_mut(fanout.of(degree) as usize);
        into = rest;
        if row.len() < degree as usize {
            drawer.draw(vertex, start, degree, row);
            row.iter().for_each(|&edge| prefetch(sources.as_ptr(), edge as usize));
        } else {
            row.iter_mut().zip(start..).for_each(|(position, edge)| *position = edge);
            let lines = (start as usize..start as usize + row.len()).step_by(LINE);
            lines.chain(row.last().map(|&edge| edge as usize)).for_each(|edge| prefetch(sources.as_ptr(), edge));
        }
    }
}

/// As [`draw_rows`], by weight; `indptr` gives the number of edges of each row.
fn weigh_rows(
    weigher: &mut Weigher<'_>,
    rows: &[[u32; 2]],
    destinations: &[u32],
    indptr: &[u64],
    sources: &[u32],
    mut into: &mut [u32],
) {
    for ((&[start, degree], &vertex), ends) in rows.iter().zip(destinations).zip(indptr.windows(2)) {
        let (row, rest) = into.split_at_mut((ends[1] - ends[0]) as usize);
        into = rest;
        if row.len() < degree as usize {
            weigher.take(vertex, start, degree, row);
        } else {
            row.iter_mut().zip(start..).for_each(|(position, edge)| *position = edge);
        }
        row.iter().for_each(|&edge| prefetch(sources.as_ptr(), edge as usize));
    }
}
