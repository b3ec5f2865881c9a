//! Sizes of bound data, and the index arrays that kernels on a device read.

use hgnnc_ir::Space;
use hgnnc_ir::kernel::{Rows, Width};
use hgnnc_ir::ops::Direction;
use hgnnc_ptx::{Hints, Sizes, Slot, Topology as Of};

use crate::data::{BoundData, Topology};

/// Sizes of bound data.
pub(super) struct DataSizes<'a>(pub &'a BoundData);

impl DataSizes<'_> {
    fn topology(&self, of: Of) -> &Topology {
        match of {
            Of::Graph(graph) => &self.0.graphs[graph.index()],
            Of::Pattern(pattern) => &self.0.patterns[pattern.index()],
        }
    }
}

/// Vertices at one end of a graph.
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
            Rows::Ends(graph, direction) => self.space(Space::Ends(*graph, *direction)),
            Rows::Elements(pattern, direction) => at_end(&self.0.patterns[pattern.index()], *direction),
        }
    }

    fn space(&self, space: Space) -> usize {
        match space {
            Space::Unit => 1,
            Space::Vertices(vertex) => self.0.num_vertices[vertex.index()],
            Space::Edges(graph) => self.0.graphs[graph.index()].num_edges(),
            Space::Index(extent) => extent,
            Space::Ends(graph, direction) => self.0.graphs[graph.index()].ends(direction).vertices.len(),
        }
    }

    fn width(&self, width: &Width) -> usize {
        width.eval(&self.0.num_vertices)
    }
}

/// Mean numbers of edges of the rows of all graphs and sparse features.
pub(super) fn hints(data: &BoundData) -> Hints {
    use hgnnc_ir::types::{Graph, Pattern};
    let mut hints = Hints::default();
    let mean = |edges: usize, rows: usize| edges as f64 / rows.max(1) as f64;
    for direction in [Direction::In, Direction::Out] {
        for (index, graph) in data.graphs.iter().enumerate() {
            let (edges, handle) = (graph.num_edges(), Graph::new(index));
            hints.mean_edges.push((Rows::Edges(handle, direction), mean(edges, at_end(graph, direction))));
            if let Some(ends) = graph.listed_ends(direction) {
                hints.mean_edges.push((Rows::Ends(handle, direction), mean(edges, ends.vertices.len())));
            }
        }
        for (index, pattern) in data.patterns.iter().enumerate() {
            let rows = Rows::Elements(Pattern::new(index), direction);
            hints.mean_edges.push((rows, mean(pattern.num_edges(), at_end(pattern, direction))));
        }
    }
    hints
}

/// The numbers of an index array. `None` for what is none.
pub(super) fn index_array(data: &BoundData, slot: &Slot) -> Option<Vec<u32>> {
    let sizes = DataSizes(data);
    // Edges have 32-bit numbers.
    let narrow = |positions: &[u64]| positions.iter().map(|&position| position as u32).collect();
    Some(match slot {
        Slot::FirstEdges { of, direction, ends } => narrow(sizes.topology(*of).indptr(*direction, *ends)),
        Slot::Others(of, direction) => sizes.topology(*of).incidence(*direction).other.clone(),
        Slot::Positions(of) => sizes.topology(*of).outgoing.position.clone(),
        Slot::EndVertices(graph, direction) => data.graphs[graph.index()].ends(*direction).vertices.clone(),
        Slot::EndOf(graph, direction) => {
            let topology = &data.graphs[graph.index()];
            let mut of = vec![u32::MAX; at_end(topology, *direction)];
            for (end, &vertex) in topology.ends(*direction).vertices.iter().enumerate() {
                of[vertex as usize] = end as u32;
            }
            of
        }
        Slot::EndOfEdges(graph, direction) => data.graphs[graph.index()].ends(*direction).of_edge.clone(),
        Slot::Buffer(_)
        | Slot::Stored(_)
        | Slot::Rows(_)
        | Slot::Count(_)
        | Slot::CountF32(_)
        | Slot::Elements(_)
        | Slot::MaskKeys
        | Slot::Blocks(_)
        | Slot::Parts(_)
        | Slot::PartRows(_)
        | Slot::Partials(..) => return None,
    })
}
