//! Facts about bound data that native loops rely on instead of bounds checks.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use hgnnc_data::buffer::BufferRange;
use hgnnc_data::{ActiveVertices, BoundData, Topology};
use hgnnc_ir::ops::Direction;
use hgnnc_kernel_ir::loops::Access;

use crate::plan::{Base, Domain, IndexArray, NativeLoop, Operand, Region};

/// Facts about the edges of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Edges {
    rows: usize,
    /// Upper bounds (exclusive) of neighbour indices, edge ids, and neighbours as active vertices.
    others: usize,
    positions: usize,
    other_ends: usize,
    /// Number and upper bound of the active vertices, if they are computed.
    ends: usize,
    vertices: usize,
    /// Whether `indptr` ascends from 0 to the number of edges, with one neighbour and edge id per edge.
    framed: bool,
}

/// Facts, computed once per topology.
pub struct Facts<'a> {
    data: &'a BoundData,
    edges: Mutex<HashMap<(usize, Direction, bool), Edges>>,
}

impl<'a> Facts<'a> {
    /// Facts about this data, computed on demand.
    pub fn new(data: &'a BoundData) -> Self {
        Self { data, edges: Mutex::default() }
    }

    /// The bound data that the facts are about.
    pub fn data(&self) -> &'a BoundData {
        self.data
    }

    /// Number of edges of a domain.
    pub fn num_edges(&self, domain: Domain) -> usize {
        match domain {
            Domain::Rows(_) => 0,
            Domain::Edges { topology, .. } => self.data.topology(topology).num_edges(),
        }
    }

    /// Number of rows of a domain.
    pub fn num_rows(&self, domain: Domain) -> usize {
        match domain {
            Domain::Rows(rows) => rows,
            Domain::Edges { topology, direction, ends } => {
                self.data.topology(topology).indptr(direction, ends).len().saturating_sub(1)
            }
        }
    }

    /// Whether this input holds class labels.
    pub fn has_labels(&self, input: usize) -> bool {
        matches!(self.data.inputs.get(input), Some(hgnnc_data::InputData::Classes(_)))
    }

    /// Whether the domain has edges with valid offsets.
    pub fn framed(&self, domain: Domain) -> bool {
        self.of(domain).is_some_and(|edges| edges.framed)
    }

    /// Whether all rows that an operand gathers exist. Contiguous operands are bounds-checked per tile.
    pub fn rows_exist(
        &self,
        domain: Domain,
        columns: Option<usize>,
        operand: &Operand,
        ranges: &[BufferRange],
    ) -> bool {
        let Operand { base, access, width } = *operand;
        let long = |rows: usize| match base {
            Base::Stored(stored) => rows.checked_mul(width).is_some_and(|len| len <= stored.range(ranges).len),
            // Locals have the rows of the block only.
            Base::Local(_) | Base::Labels(_) => false,
        };
        let edges = || self.of(domain).filter(|edges| edges.framed);
        match access {
            Access::Each => true,
            // Rows of the vertices that are active, which are looked up.
            Access::End(..) => false,
            Access::Owner => edges().is_some(),
            Access::Same => match base {
                Base::Stored(stored) => width <= stored.range(ranges).len,
                Base::Local(_) => domain == Domain::Rows(1),
                Base::Labels(_) => false,
            },
            Access::Neighbor => edges().is_some_and(|e| long(e.others)),
            Access::NeighborEnd => edges().is_some_and(|e| e.other_ends > 0 && long(e.other_ends)),
            Access::OwnerEnd => edges().is_some_and(|e| e.ends > 0 && long(e.ends)),
            Access::Vertex | Access::OwnerVertex => edges().is_some_and(|e| e.vertices > 0 && long(e.vertices)),
            Access::Eid => edges().is_some_and(|e| e.positions > 0 && long(e.positions)),
            Access::DenseCell => match (edges(), columns, domain) {
                (Some(e), Some(columns), Domain::Edges { direction: Direction::In, ends: false, .. }) => {
                    e.others <= columns && long(e.rows * columns)
                }
                (Some(e), Some(columns), Domain::Edges { direction: Direction::Out, ends: false, .. }) => {
                    e.rows <= columns && long(e.others * columns)
                }
                _ => false,
            },
        }
    }

    fn of(&self, domain: Domain) -> Option<Edges> {
        let Domain::Edges { topology, direction, ends } = domain else { return None };
        let look = || edges(self.data.topology(topology), direction, ends);
        let mut known = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
        Some(*known.entry((topology, direction, ends)).or_insert_with(look))
    }
}

fn edges(topology: &Topology, direction: Direction, ends: bool) -> Edges {
    let incidence = topology.incidence(direction);
    let (other, position) = (&incidence.indices, &incidence.eids);
    let indptr = topology.indptr(direction, ends);
    let past = |indices: &[u32]| indices.iter().fold(0, |most, &index| most.max(index as usize + 1));
    // The block counts active rows, which must be as many as are listed.
    let listed = topology.listed_endpoints(direction).filter(|ends| lists(ends, &incidence.indptr));
    Edges {
        rows: indptr.len().saturating_sub(1),
        others: past(other),
        positions: past(position),
        other_ends: topology.listed_endpoints(direction.opposite()).map_or(0, |ends| past(&ends.of_edge)),
        ends: listed.map_or(0, |ends| ends.vertices.len()),
        vertices: listed.map_or(0, |ends| past(&ends.vertices)),
        framed: indptr.first() == Some(&0)
            && indptr.is_sorted()
            && indptr.last() == Some(&(other.len() as u64))
            && u32::try_from(other.len()).is_ok()
            && (position.is_empty() || position.len() == other.len()),
    }
}

/// Whether these are exactly the rows with edges.
fn lists(ends: &ActiveVertices, indptr: &[u64]) -> bool {
    let rows = indptr.windows(2).enumerate().filter(|(_, edges)| edges[1] > edges[0]);
    rows.map(|(row, _)| row).eq(ends.vertices.iter().map(|&vertex| vertex as usize))
}

/// Whether all rows exist that a call reads without bounds checks.
pub fn is_sound(call: &NativeLoop, region: &Region, ranges: &[BufferRange], facts: &Facts<'_>) -> bool {
    let labels = call.indices.iter().all(|index| match *index {
        IndexArray::Labels(input) => facts.has_labels(input),
        IndexArray::Picked(_) => true,
    });
    labels
        && (!call.segments || facts.framed(region.domain))
        && call.arrays.iter().all(|operand| facts.rows_exist(region.domain, region.full_columns, operand, ranges))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Stored;
    use hgnnc_data::Topology;

    /// An operand of stored rows, and the length of the value.
    fn stored(access: Access, width: usize, len: usize) -> (Operand, usize) {
        (Operand { base: Base::Stored(Stored(0)), access, width }, len)
    }

    fn exist(facts: &Facts<'_>, domain: Domain, (operand, len): (Operand, usize)) -> bool {
        facts.rows_exist(domain, None, &operand, &[BufferRange { slab: 0, offset: 0, len }])
    }

    #[test]
    fn a_buffer_has_to_reach_the_last_row_that_is_picked() {
        let graph = Topology::from_edges("g", 5, 3, &[(4, 0), (1, 2)]).expect("edges exist");
        let data = BoundData { graphs: vec![graph], ..BoundData::default() };
        let facts = Facts::new(&data);
        let domain = Domain::Edges { topology: 0, direction: Direction::In, ends: false };
        assert!(facts.framed(domain));
        assert!(exist(&facts, domain, stored(Access::Neighbor, 2, 10)));
        assert!(!exist(&facts, domain, stored(Access::Neighbor, 2, 9)), "source 4 has elements 8 and 9");
        assert!(!exist(&facts, domain, stored(Access::Eid, 2, 10)), "in-edges have no positions");
        let out = Domain::Edges { topology: 0, direction: Direction::Out, ends: false };
        assert!(exist(&facts, out, stored(Access::Eid, 3, 6)));
        assert!(!exist(&facts, out, stored(Access::Eid, 3, 5)));
    }

    #[test]
    fn ends_are_picked_among_those_that_are_listed() {
        // Sources 1 and 4 have edges, and destinations 0 and 2.
        let mut graph = Topology::from_edges("g", 5, 3, &[(4, 0), (1, 2)]).expect("edges exist");
        graph.list_endpoints(Direction::In);
        graph.list_endpoints(Direction::Out);
        let data = BoundData { graphs: vec![graph], ..BoundData::default() };
        let facts = Facts::new(&data);
        let [vertices, ends] = [false, true].map(|ends| Domain::Edges { topology: 0, direction: Direction::In, ends });
        assert_eq!([facts.num_rows(vertices), facts.num_rows(ends)], [3, 2]);
        for (domain, access, rows) in [
            (vertices, Access::OwnerEnd, 2),
            (vertices, Access::NeighborEnd, 2),
            (ends, Access::NeighborEnd, 2),
            (ends, Access::Neighbor, 5),
            (ends, Access::Vertex, 3),
            (ends, Access::OwnerVertex, 3),
        ] {
            assert!(exist(&facts, domain, stored(access, 2, 2 * rows)), "{access:?}");
            assert!(!exist(&facts, domain, stored(access, 2, 2 * rows - 1)), "{access:?}");
        }
    }

    #[test]
    fn ends_that_are_not_listed_are_not_picked() {
        let mut graph = Topology::from_edges("g", 2, 2, &[(0, 0), (1, 1)]).expect("edges exist");
        let domain = Domain::Edges { topology: 0, direction: Direction::In, ends: false };
        let own_end = |graph: &Topology| {
            let data = BoundData { graphs: vec![graph.clone()], ..BoundData::default() };
            exist(&Facts::new(&data), domain, stored(Access::OwnerEnd, 1, 9))
        };
        assert!(!own_end(&graph));
        graph.list_endpoints(Direction::In);
        assert!(own_end(&graph));
        // The block would count two rows with edges.
        graph.ends[0].as_mut().expect("listed").vertices.pop();
        assert!(!own_end(&graph));
    }

    #[test]
    fn offsets_that_do_not_ascend_are_not_trusted() {
        let mut graph = Topology::from_edges("g", 2, 2, &[(0, 0), (1, 1)]).expect("edges exist");
        graph.csc.indptr = vec![0, 3, 2].into();
        let data = BoundData { graphs: vec![graph], ..BoundData::default() };
        let domain = Domain::Edges { topology: 0, direction: Direction::In, ends: false };
        assert!(!Facts::new(&data).framed(domain));
        assert!(!exist(&Facts::new(&data), domain, stored(Access::Owner, 1, 9)));
    }
}
