//! Stacks: the semantic graphs of a family as one graph.
//!
//! A relational model treats hundreds of relations alike: each has a weight, a product with it and a neighbour sum.
//! With an operation per relation, compile time, code and the number of kernels grow with the number of relations,
//! although the work is bounded by their edges. A *stack* is a list of semantic graphs (its *members*) with equal end
//! types. Its rows and edges are those of the members, one member after the other:
//!
//! - A vertex type of *pairs* has a row for each pair of a member and a vertex that has an edge of that member at this
//!   end ([`VertexRows::Pairs`]).
//! - One graph has the edges of all members, from the pairs at their sources to those at their destinations
//!   ([`Incidence::Edges`]). Its edges are numbered as those of the members, one member after the other.
//! - Each pair belongs to a vertex and to a member. Graphs with one edge per pair say to which
//!   ([`Incidence::Vertices`], [`Incidence::Members`]): values are gathered and summed along them as along every graph.
//! - Values of members, such as vectors of relations, go from one stack to another along a graph between their members
//!   ([`Incidence::Range`]).
//! - A parameter per member becomes one parameter with a row for each member ([`VertexRows::Members`]), or with one for
//!   each pair of a member and a vertex of the type, if it is a table with a row per vertex ([`VertexRows::Cells`]).
//!
//! These are vertex types and graphs like others: all operations, passes and kernels apply to them. Only the product of
//! the rows of a member with its weight needs an operation of its own, [`crate::Op::Grouped`] (a grouped GEMM).
//! [`derive()`] says what the derived tables hold; runtimes compute the same faster.

use crate::Direction;
use crate::dataflow::{Dataflow, GraphDecl, SelfLoops, VertexTypeDecl};
use crate::ranks::{EdgeShare, Mirrors};
use crate::types::{Graph, Space, Stack, VertexType};
use crate::width::Width;

/// A list of semantic graphs that share one graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackDecl {
    /// Unique name in the program.
    pub name: String,
    /// At least one graph; all have the same end types.
    pub members: Vec<Graph>,
}

/// The meaning of the rows of a vertex type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum VertexRows {
    /// The vertices of a type of the dataset.
    #[default]
    Dataset,
    /// The members of a stack.
    Members(Stack),
    /// The distinct pairs of a member and a destination (`In`) or source (`Out`) of its edges,
    /// by member, then by vertex.
    Pairs(Stack, Direction),
    /// All pairs of a member and a vertex of the type at this end, by member, then by vertex.
    Cells(Stack, Direction),
    /// The vertices of a type that a rank owns, and copies of vertices of other ranks ([`crate::ranks`]).
    Mirrors(VertexType, Mirrors),
    /// The sections of the vertices of a type that a rank owns ([`crate::ranks`]).
    Sections(VertexType),
    /// Of a mini-batch ([`crate::ranks`]): the vertices that a rank owns among those that any rank's batch has of a type.
    Owned(VertexType),
    /// Of a mini-batch: the rows that the batches of all ranks have of vertices that a rank owns ([`crate::ranks`]).
    Copies(VertexType),
    /// Of a mini-batch: the vertices whose rows those of a type take along the edges of shuffled vertices ([`crate::ranks`]).
    Shuffled(VertexType),
    /// Of a mini-batch: the edges of a graph, in their order ([`crate::link_rows`]).
    Edges(Graph),
    /// Of a mini-batch: its links ([`crate::link_rows`]).
    Links {
        /// Largest number of negative samples of a link.
        negatives: u32,
    },
    /// Of a mini-batch: vertices of a type that all of its links are compared with, so many ([`crate::link_rows`]).
    Samples(VertexType, u32),
    /// One row, for the rank itself ([`crate::ranks`]).
    Rank,
    /// Of a mini-batch: one row on the first rank of those that share their seeds, and none on the others
    /// ([`crate::ranks`]).
    Replica,
}

/// A graph that is derived from the members of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Incidence {
    /// From pairs at the sources to pairs at the destinations: the edges of all members.
    Edges,
    /// From each pair at this end to its vertex.
    Vertices(Direction),
    /// From each pair at this end to its member.
    Members(Direction),
    /// From each pair at this end to its row among all pairs of members and vertices.
    Cells(Direction),
    /// From each member of another stack to the one that has the same values: those of the other stack, in their order, to
    /// consecutive ones of this stack.
    Range {
        /// The other stack.
        of: Stack,
        /// The position of the first of these members.
        first: u32,
    },
}

impl VertexTypeDecl {
    /// A vertex type of the dataset.
    pub fn new(name: String, dataset_name: String) -> Self {
        Self { name, dataset_name, rows: VertexRows::Dataset }
    }
}

impl Dataflow {
    /// The vertex type with these derived rows, declared if it does not exist.
    pub fn stacked_type(&mut self, rows: VertexRows) -> VertexType {
        let rows = match rows {
            // Members are the same in both directions.
            VertexRows::Members(stack) => VertexRows::Members(self.in_stack(stack)),
            rows => rows,
        };
        if let Some(known) = self.vertex_types.iter().position(|decl| decl.rows == rows) {
            return VertexType::new(known);
        }
        let of = |stack: Stack| self.stacks[stack.index()].name.clone();
        let name = match rows {
            VertexRows::Members(stack) => format!("{}.members", of(stack)),
            VertexRows::Pairs(stack, direction) => format!("{}.{}", of(stack), direction.end_name()),
            VertexRows::Cells(stack, direction) => format!("{}.{}.cells", of(stack), direction.end_name()),
            _ => unreachable!("types that are not of a stack are declared elsewhere"),
        };
        self.vertex_types.push(VertexTypeDecl { name, dataset_name: String::new(), rows });
        VertexType::new(self.vertex_types.len() - 1)
    }

    /// A size with the pairs of members and vertices ([`VertexRows::Cells`]) as the product of both numbers, so that a
    /// value with a row for each pair and one with a table for each member have equal sizes. Only where the type of the
    /// members is declared: no value has both forms otherwise. The number of samples of a mini-batch is known.
    pub fn expanded(&self, size: Width) -> Width {
        let factors = |&vertex: &VertexType| {
            let (stack, direction) = match self.vertex_types.get(vertex.index())?.rows {
                VertexRows::Cells(stack, direction) => (stack, direction),
                VertexRows::Samples(_, count) => return Some((vertex, Width::fixed(count as usize))),
                _ => return None,
            };
            let members = VertexRows::Members(self.in_stack(stack));
            let members = VertexType::new(self.vertex_types.iter().position(|decl| decl.rows == members)?);
            let first = *self.stacks.get(stack.index())?.members.first()?;
            match self.graph_end(first, direction) {
                Space::Vertices(end) => Some((vertex, Width::count(members).times(&Width::count(end)))),
                Space::Unit | Space::Edges(_) | Space::Endpoints(..) | Space::Index(_) => None,
            }
        };
        let Some((cells, product)) = size.counts().iter().find_map(factors) else { return size };
        let rest = size.divided_by(&Width::count(cells)).unwrap_or_else(Width::one);
        self.expanded(rest.times(&product))
    }

    /// The derived graph of a stack, declared if it does not exist.
    pub fn stacked_graph(&mut self, stack: Stack, incidence: Incidence) -> Graph {
        if let Some(known) = self.graphs.iter().position(|decl| decl.derived == Some((stack, incidence))) {
            return Graph::new(known);
        }
        let decl = &self.stacks[stack.index()];
        let (name, first) = (decl.name.clone(), decl.members[0]);
        let end = |flow: &Self, direction: Direction| match flow.graph_end(first, direction) {
            Space::Vertices(vertex) => vertex,
            _ => unreachable!("graphs end in vertices"),
        };
        let (name, src, dst) = match incidence {
            Incidence::Edges => (
                name,
                self.stacked_type(VertexRows::Pairs(stack, Direction::Out)),
                self.stacked_type(VertexRows::Pairs(stack, Direction::In)),
            ),
            Incidence::Vertices(direction) => {
                let pairs = self.stacked_type(VertexRows::Pairs(stack, direction));
                (format!("{name}.{}.vertices", direction.end_name()), pairs, end(self, direction))
            }
            Incidence::Members(direction) => (
                format!("{name}.{}.members", direction.end_name()),
                self.stacked_type(VertexRows::Pairs(stack, direction)),
                self.stacked_type(VertexRows::Members(stack)),
            ),
            Incidence::Cells(direction) => (
                format!("{name}.{}.rows", direction.end_name()),
                self.stacked_type(VertexRows::Pairs(stack, direction)),
                self.stacked_type(VertexRows::Cells(stack, direction)),
            ),
            Incidence::Range { of, first } => (
                format!("{}.members.{name}.{first}", self.stacks[of.index()].name),
                self.stacked_type(VertexRows::Members(of)),
                self.stacked_type(VertexRows::Members(stack)),
            ),
        };
        let links = incidence == Incidence::Edges && self.graphs[first.index()].links;
        self.graphs.push(GraphDecl {
            name,
            src,
            dst,
            steps: vec![],
            counted: false,
            self_loops: SelfLoops::Kept,
            links,
            shuffle: None,
            kept: None,
            past: false,
            period: None,
            derived: Some((stack, incidence)),
            share: EdgeShare::All,
        });
        Graph::new(self.graphs.len() - 1)
    }
}

/// Fills the derived entries of the tables of a program: row counts of vertex types, and edges (source, destination) of
/// graphs in CSC order. Entries of the dataset must be there; derived ones are appended or replaced.
pub fn derive(flow: &Dataflow, num_vertices: &mut Vec<usize>, edges: &mut Vec<Vec<(u32, u32)>>) {
    num_vertices.resize(flow.vertex_types.len(), 0);
    edges.resize(flow.graphs.len(), vec![]);
    for (index, decl) in flow.vertex_types.iter().enumerate() {
        num_vertices[index] = match decl.rows {
            VertexRows::Members(stack) => flow.stacks[stack.index()].members.len(),
            VertexRows::Pairs(stack, direction) => pairs(flow, edges, stack, direction).len(),
            VertexRows::Cells(stack, direction) => {
                let decl = &flow.stacks[stack.index()];
                let of = &flow.graphs[decl.members[0].index()];
                let end = if direction == Direction::In { of.dst } else { of.src };
                decl.members.len() * num_vertices[end.index()]
            }
            _ => num_vertices[index],
        };
    }
    for (index, decl) in flow.graphs.iter().enumerate() {
        let Some((stack, incidence)) = decl.derived else { continue };
        let members = &flow.stacks[stack.index()].members;
        let mut of_graph: Vec<(u32, u32)> = match incidence {
            Incidence::Edges => {
                let (out, into) = (pairs(flow, edges, stack, Direction::Out), pairs(flow, edges, stack, Direction::In));
                let row = |pairs: &[(u32, u32)], pair| pairs.binary_search(&pair).expect("an edge has pairs") as u32;
                let of_member = |(member, graph): (usize, &Graph)| {
                    let pair = |vertex| (member as u32, vertex);
                    let found = edges[graph.index()].iter().map(|&(s, d)| (row(&out, pair(s)), row(&into, pair(d))));
                    found.collect::<Vec<_>>()
                };
                members.iter().enumerate().flat_map(of_member).collect()
            }
            Incidence::Vertices(direction) => {
                (0..).zip(pairs(flow, edges, stack, direction)).map(|(row, pair)| (row, pair.1)).collect()
            }
            Incidence::Members(direction) => {
                (0..).zip(pairs(flow, edges, stack, direction)).map(|(row, pair)| (row, pair.0)).collect()
            }
            Incidence::Cells(direction) => {
                let of = &flow.graphs[members[0].index()];
                let end = if direction == Direction::In { of.dst } else { of.src };
                let vertices = num_vertices[end.index()] as u32;
                let cell = |pair: (u32, u32)| pair.0 * vertices + pair.1;
                (0..).zip(pairs(flow, edges, stack, direction)).map(|(row, pair)| (row, cell(pair))).collect()
            }
            Incidence::Range { of, first } => {
                (0..flow.stacks[of.index()].members.len() as u32).map(|row| (row, first + row)).collect()
            }
        };
        of_graph.sort_by_key(|&(src, dst)| (dst, src));
        edges[index] = of_graph;
    }
}

/// The pairs (member, vertex) at one end of a stack, in the order of their rows.
pub fn pairs(flow: &Dataflow, edges: &[Vec<(u32, u32)>], stack: Stack, direction: Direction) -> Vec<(u32, u32)> {
    let mut found = vec![];
    for (member, graph) in (0..).zip(&flow.stacks[stack.index()].members) {
        found.extend(edges[graph.index()].iter().map(|&(src, dst)| match direction {
            Direction::In => (member, dst),
            Direction::Out => (member, src),
        }));
    }
    found.sort_unstable();
    found.dedup();
    found
}
