//! Sizes of bound data, and the index arrays that device kernels read.

use std::borrow::Cow;

use hgnnc_data::{BoundData, Topology};
use hgnnc_executable::gpu::{Band, Cut, Edges, Sizes, Slot, Topology as Of};
use hgnnc_ir::Space;
use hgnnc_ir::ops::Direction;
use hgnnc_ir::width::Width;
use hgnnc_kernel_ir::kernel::{Body, Program, Rows};

/// Sizes of bound data.
pub(super) struct DataSizes<'a>(pub &'a BoundData);

impl DataSizes<'_> {
    fn topology(&self, of: Of) -> &Topology {
        topology(self.0, of)
    }

    /// Number of pieces of each split row, in the order of degree classes.
    fn pieces_of_rows(&self, rows: &Rows, cut: Cut) -> impl Iterator<Item = usize> {
        let found = owned(rows).map(|(of, direction, ends)| {
            let topology = self.topology(of);
            let (first, count) = self.band(rows, cut.band());
            let order = &topology.degree_classes(direction, ends).order[first..first + count];
            let indptr = topology.indptr(direction, ends);
            order.iter().map(move |&row| {
                let edges = indptr[row as usize + 1] - indptr[row as usize];
                (edges as usize).div_ceil(cut.edges)
            })
        });
        found.into_iter().flatten()
    }
}

fn topology(data: &BoundData, of: Of) -> &Topology {
    match of {
        Of::Graph(graph) => &data.graphs[graph.index()],
        Of::Pattern(pattern) => &data.patterns[pattern.index()],
    }
}

/// Number of vertices on one side of a graph.
fn at_end(topology: &Topology, direction: Direction) -> usize {
    match direction {
        Direction::In => topology.num_dst,
        Direction::Out => topology.num_src,
    }
}

impl Sizes for DataSizes<'_> {
    fn rows(&self, rows: &Rows) -> usize {
        match rows {
            Rows::Once => 1,
            Rows::Each(width) => self.width(width),
            Rows::Vertices(vertex) => self.0.num_vertices[vertex.index()],
            Rows::Edges(graph, direction) => at_end(&self.0.graphs[graph.index()], *direction),
            Rows::Endpoints(graph, direction) => self.space(Space::Endpoints(*graph, *direction)),
            Rows::Elements(pattern, direction) => at_end(&self.0.patterns[pattern.index()], *direction),
        }
    }

    fn band(&self, rows: &Rows, band: Band) -> (usize, usize) {
        let Some((of, direction, ends)) = owned(rows) else { return (0, 0) };
        let starts = &self.topology(of).degree_classes(direction, ends).starts;
        // Classes above the last one are empty.
        let start = |class: usize| starts[class.min(starts.len() - 1)] as usize;
        let first = start(band.from);
        (first, band.to.map_or(starts[starts.len() - 1] as usize, start) - first)
    }

    fn pieces(&self, rows: &Rows, cut: Cut) -> usize {
        self.pieces_of_rows(rows, cut).sum()
    }

    fn space(&self, space: Space) -> usize {
        match space {
            Space::Unit => 1,
            Space::Vertices(vertex) => self.0.num_vertices[vertex.index()],
            Space::Edges(graph) => self.0.graphs[graph.index()].num_edges(),
            Space::Index(extent) => extent,
            Space::Endpoints(graph, direction) => self.0.graphs[graph.index()].endpoints(direction).vertices.len(),
        }
    }

    fn width(&self, width: &Width) -> usize {
        width.eval(&self.0.num_vertices)
    }
}

/// Edges owned by rows: topology, direction, and whether only active vertices are rows.
fn owned(rows: &Rows) -> Option<(Of, Direction, bool)> {
    match rows {
        Rows::Once | Rows::Each(_) | Rows::Vertices(_) => None,
        Rows::Edges(graph, direction) => Some((Of::Graph(*graph), *direction, false)),
        Rows::Endpoints(graph, direction) => Some((Of::Graph(*graph), *direction, true)),
        Rows::Elements(pattern, direction) => Some((Of::Pattern(*pattern), *direction, false)),
    }
}

/// Number of edges of each kind of rows in programs.
pub(super) fn edges(programs: &[&Program], data: &BoundData) -> Vec<(Rows, Edges)> {
    let (mut found, sizes): (Vec<(Rows, Edges)>, _) = (vec![], DataSizes(data));
    for kernel in programs.iter().flat_map(|program| program.kernels()) {
        let Body::Traversal(traversal) = &kernel.body else { continue };
        let rows = &traversal.rows;
        let Some((of, direction, ends)) = owned(rows) else { continue };
        if !found.iter().any(|(known, _)| known == rows) {
            let topology = sizes.topology(of);
            let most = topology.degree_classes(direction, ends).max_degree;
            let mean = topology.num_edges() as f64 / sizes.rows(rows).max(1) as f64;
            found.push((rows.clone(), Edges { mean, most }));
        }
    }
    found
}

/// Contents of an index array. `None` for other slots.
pub(super) fn index_array<'d>(data: &'d BoundData, slot: &Slot) -> Option<Cow<'d, [u32]>> {
    let sizes = DataSizes(data);
    // Edge ids have 32 bits.
    let narrow = |positions: &[u64]| positions.iter().map(|&position| position as u32).collect();
    let topology = |of: &Of| topology(data, *of);
    Some(match slot {
        Slot::FirstEdges { of, direction, ends } => narrow(topology(of).indptr(*direction, *ends)),
        Slot::RowOrder { of, direction, ends } => Cow::Borrowed(&topology(of).degree_classes(*direction, *ends).order),
        // A split row has edges, so there are fewer pieces than edges.
        Slot::PieceRows(rows, cut) => {
            let pieces = sizes.pieces_of_rows(rows, *cut).enumerate();
            pieces.flat_map(|(row, count)| std::iter::repeat_n(row as u32, count)).collect()
        }
        Slot::FirstPieces(rows, cut) => {
            let ends = sizes.pieces_of_rows(rows, *cut).scan(0, |end, count| {
                *end += count as u32;
                Some(*end)
            });
            std::iter::once(0).chain(ends).collect()
        }
        Slot::Others(of, direction) => Cow::Borrowed(&topology(of).incidence(*direction).indices),
        Slot::Positions(of) => Cow::Borrowed(&topology(of).csr.eids),
        Slot::EndVertices(graph, direction) => {
            Cow::Borrowed(&data.graphs[graph.index()].endpoints(*direction).vertices)
        }
        Slot::EndOf(graph, direction) => {
            let topology = &data.graphs[graph.index()];
            let mut of = vec![u32::MAX; at_end(topology, *direction)];
            for (end, &vertex) in topology.endpoints(*direction).vertices.iter().enumerate() {
                of[vertex as usize] = end as u32;
            }
            Cow::Owned(of)
        }
        Slot::EndOfEdges(graph, direction) => Cow::Borrowed(&data.graphs[graph.index()].endpoints(*direction).of_edge),
        Slot::Buffer(_)
        | Slot::Stored(_)
        | Slot::Rows(_)
        | Slot::Count(_)
        | Slot::CountF32(_)
        | Slot::Elements(_)
        | Slot::MaskKeys
        | Slot::Blocks(_)
        | Slot::AllBlocks(_)
        | Slot::Parts(_)
        | Slot::PartRows(_)
        | Slot::BandFirst(..)
        | Slot::BandRows(..)
        | Slot::BandBlocks(..)
        | Slot::NumPieces(..)
        | Slot::PieceParts(..)
        | Slot::FirstPart(..)
        | Slot::Partials(..)
        | Slot::RowMemory(_) => return None,
    })
}
