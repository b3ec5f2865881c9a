//! The rows and edges that a rank has of stacks.

use hgnnc_ir::stacks::pairs;
use hgnnc_ir::types::{Graph, Space, VertexType};
use hgnnc_ir::{EdgeShare, Incidence, Mirrors, VertexRows};

use super::Division;
use crate::Bindings;

/// Pairs of members and vertices, or cells.
struct Pairs {
    /// As many semantic graphs as the stack has.
    members: usize,
    /// Number of vertices of all ranks.
    vertices: usize,
    /// The member and the number of the vertex of each row.
    rows: Vec<(u32, u32)>,
}

impl Division<'_> {
    /// Adds the rows and edges of stacks to those of their members.
    pub(super) fn stacks(&self, bindings: &mut Bindings) {
        let flow = self.flow;
        hgnnc_ir::stacks::derive(flow, &mut bindings.num_vertices, &mut bindings.edges);
        for vertex in (0..flow.vertex_types.len()).map(VertexType::new).filter(|&vertex| flow.is_of_stack(vertex)) {
            let rows = self.rows_of_stack(vertex, bindings);
            bindings.num_vertices[vertex.index()] = rows.len();
            bindings.numbers.insert(Space::Vertices(vertex), rows);
        }
        for (index, decl) in flow.graphs.iter().enumerate() {
            let graph = Graph::new(index);
            if let Some((_, Incidence::Edges)) = decl.derived {
                let numbers = self.numbers_of_edges(graph, bindings);
                assert_eq!(numbers.len(), bindings.edges[index].len(), "edges are those of owned pairs");
                bindings.numbers.insert(Space::Edges(graph), numbers);
                continue;
            }
            if decl.share == EdgeShare::Sections && flow.is_of_stack(decl.src) {
                bindings.edges[index] = self.edges_to_sections(decl.src, bindings);
            }
            if decl.derived.is_some() || flow.is_of_stack(decl.src) {
                bindings.numbers.remove(&Space::Edges(graph));
            }
        }
    }

    fn pairs_of(&self, vertex: VertexType, bindings: &Bindings) -> Pairs {
        let flow = self.flow;
        let (VertexRows::Pairs(stack, direction) | VertexRows::Cells(stack, direction)) =
            flow.vertex_types[vertex.index()].rows
        else {
            panic!("`{}` has no pairs", flow.vertex_types[vertex.index()].name)
        };
        let members = &flow.stacks[stack.index()].members;
        let end = flow.graph_end(members[0], direction);
        let Space::Vertices(end_type) = end else { panic!("graphs end in vertices") };
        let numbers = &bindings.numbers[&end];
        let rows = match flow.vertex_types[vertex.index()].rows {
            VertexRows::Pairs(..) => {
                let own = pairs(flow, &bindings.edges, stack, direction);
                own.into_iter().map(|(member, row)| (member, numbers[row as usize])).collect()
            }
            _ => {
                let of_member = |member| numbers.iter().map(move |&number| (member, number));
                (0..members.len() as u32).flat_map(of_member).collect()
            }
        };
        let vertices = self.whole.num_vertices[flow.owned_type(end_type).index()];
        Pairs { members: members.len(), vertices, rows }
    }

    /// The numbers of the rows of a type of a stack.
    fn rows_of_stack(&self, vertex: VertexType, bindings: &Bindings) -> Vec<u32> {
        let Self { flow, whole, sections, rank, .. } = *self;
        match flow.vertex_types[vertex.index()].rows {
            VertexRows::Members(stack) => (0..flow.stacks[stack.index()].members.len() as u32).collect(),
            VertexRows::Pairs(stack, direction) => {
                let all = pairs(flow, &whole.edges, flow.in_stack(stack), direction);
                let place = |pair| all.binary_search(&pair).expect("a pair of a rank is one of all") as u32;
                self.pairs_of(vertex, bindings).rows.into_iter().map(place).collect()
            }
            VertexRows::Cells(..) => {
                let Pairs { vertices, rows, .. } = self.pairs_of(vertex, bindings);
                rows.into_iter().map(|(member, number)| member * vertices as u32 + number).collect()
            }
            VertexRows::Sections(of) => {
                let members = self.pairs_of(of, bindings).members;
                let own = sections.of_rank(rank);
                (own.start * members..own.end * members).map(|row| row as u32).collect()
            }
            VertexRows::Mirrors(of, Mirrors::All) => match flow.vertex_types[of.index()].rows {
                VertexRows::Sections(of) => {
                    (0..(sections.count * self.pairs_of(of, bindings).members) as u32).collect()
                }
                _ => panic!("only sections of pairs are mirrored"),
            },
            _ => panic!("`{}` is not of a stack", flow.vertex_types[vertex.index()].name),
        }
    }

    /// The numbers of the edges of owned pairs, among those of all members.
    fn numbers_of_edges(&self, graph: Graph, bindings: &Bindings) -> Vec<u32> {
        let flow = self.flow;
        let (decl, of) = (&flow.graphs[graph.index()], flow.graph_of_in_edges(graph));
        let owned = &bindings.numbers[&Space::Vertices(if of == graph { decl.dst } else { decl.src })];
        let is_own =
            |&(_, (src, dst)): &(u32, (u32, u32))| owned.binary_search(if of == graph { &dst } else { &src }).is_ok();
        let all = (0..).zip(self.whole.edges[of.index()].iter().copied());
        all.filter(is_own).map(|(number, _)| number).collect()
    }

    /// The edges from pairs to their members in sections.
    fn edges_to_sections(&self, of: VertexType, bindings: &Bindings) -> Vec<(u32, u32)> {
        let Pairs { members, vertices, rows } = self.pairs_of(of, bindings);
        let first = self.sections.of_rank(self.rank).start;
        let section = |(row, (member, number)): (u32, (u32, u32))| {
            let section = self.section(number, vertices) as usize - first;
            (row, (section * members) as u32 + member)
        };
        let mut edges: Vec<(u32, u32)> = (0..).zip(rows).map(section).collect();
        edges.sort_by_key(|&(src, dst)| (dst, src));
        edges
    }
}
