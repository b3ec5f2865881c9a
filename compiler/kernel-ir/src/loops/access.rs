//! The row of an operand that each row or edge of a loop reads.

use hgnnc_ir::ops::Direction;
use hgnnc_ir::types::{Graph, Space};

use crate::kernel::{Index, Level, Operand, Program, Rows, Source};

/// Index mapping from row (edge) `i` of an instruction to a row of its operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Row `i` of the block (relative to the block's first row for stored values).
    Each,
    /// Broadcast of a single row.
    Same,
    /// Row that owns edge `i`.
    Owner,
    /// Vertex at the other end of edge `i`.
    Neighbor,
    /// Vertex of row `i`, if rows are active vertices.
    Vertex,
    /// Vertex of the row that owns edge `i`, if rows are active vertices.
    OwnerVertex,
    /// Row that owns edge `i` as an active vertex, if rows are all vertices.
    OwnerEnd,
    /// Vertex at the other end of edge `i`, as an active vertex.
    NeighborEnd,
    /// Edge id of edge `i`: its position in CSC order.
    Eid,
    /// Cell (row, column) of a dense matrix, for element `i` of a sparse one.
    DenseCell,
    /// Vertex of row `i` as an active vertex of this graph and direction, if it is one.
    End(Graph, Direction),
}

impl Access {
    /// The accesses that need no graph.
    pub(crate) const PLAIN: [Access; 10] = [
        Access::Each,
        Access::Same,
        Access::Owner,
        Access::Neighbor,
        Access::Vertex,
        Access::OwnerVertex,
        Access::OwnerEnd,
        Access::NeighborEnd,
        Access::Eid,
        Access::DenseCell,
    ];

    /// The name in the text format.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Access::Each => "each",
            Access::Same => "same",
            Access::Owner => "owner",
            Access::Neighbor => "neighbor",
            Access::Vertex => "vertex",
            Access::OwnerVertex => "owner_vertex",
            Access::OwnerEnd => "owner_endpoint",
            Access::NeighborEnd => "neighbor_endpoint",
            Access::Eid => "eid",
            Access::DenseCell => "cell",
            Access::End(..) => "endpoint",
        }
    }

    /// The graph and direction of [`Access::End`].
    pub(crate) fn end(self) -> Option<(Graph, Direction)> {
        match self {
            Access::End(graph, direction) => Some((graph, direction)),
            _ => None,
        }
    }
}

/// How an instruction at a level reads an operand. `is_made_here`: an earlier instruction of the traversal computes it.
///
/// # Panics
/// For an operand that no verified program has.
pub fn access(program: &Program, rows: &Rows, level: Level, operand: Operand, is_made_here: bool) -> Access {
    let at_edge = level == Level::Edge;
    let space = match operand.source {
        Source::Buffer(buffer) => program.buffer(buffer).ty.space,
        Source::Local(_) | Source::Const(_) | Source::Count(_) => Space::Unit,
    };
    let of_ends = matches!(space, Space::Endpoints(..));
    let rows_are_ends = matches!(rows, Rows::Endpoints(..));
    // Rows of active vertices read vertex values at their vertices; rows of all vertices read values of active vertices
    // at theirs.
    let crossed = !is_made_here && rows_are_ends != of_ends;
    let outgoing = match rows {
        Rows::Edges(_, direction) | Rows::Endpoints(_, direction) | Rows::Elements(_, direction) => {
            *direction == Direction::Out
        }
        Rows::Once | Rows::Each(_) | Rows::Vertices(_) => false,
    };
    match operand.index {
        Index::Endpoint => match space {
            Space::Endpoints(graph, direction) => Access::End(graph, direction),
            _ => unreachable!("in a verified program only values of ends are read at ends"),
        },
        Index::Own if crossed && at_edge && of_ends => Access::OwnerEnd,
        Index::Own if crossed && at_edge && rows_are_ends => Access::OwnerVertex,
        Index::Own if crossed && rows_are_ends => Access::Vertex,
        Index::Neighbor if of_ends => Access::NeighborEnd,
        Index::Uniform if *rows == Rows::Once => Access::Each,
        Index::Uniform => Access::Same,
        Index::Own if at_edge => Access::Owner,
        Index::Own => Access::Each,
        Index::Neighbor => Access::Neighbor,
        // Stored edge values are in CSC order.
        Index::Edge if !is_made_here && outgoing => Access::Eid,
        Index::Edge => Access::Each,
        Index::DenseCell => Access::DenseCell,
    }
}
