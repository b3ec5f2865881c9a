//! Programs of several ranks: one program, run by every process of a job on its own rows.
//!
//! Each vertex of a type of the dataset is *owned* by one rank. The vertices of a rank are contiguous in the dataset, and
//! so are their in-edges. In the program of ranks:
//!
//! - A vertex type of the dataset has the rows that the rank owns, in the order of the dataset.
//! - A type of *mirrors* ([`VertexRows::Mirrors`]) has these rows and copies of rows of other ranks, ascending: those at
//!   the sources of the in-edges of owned vertices, those at the destinations of their out-edges, or all.
//!   [`crate::Op::Exchange`] fills them. A value is read only along edges, whose ends name the type that they need, so a
//!   missing exchange is a type error.
//! - A semantic graph has the in-edges of owned vertices ([`EdgeShare::In`]). A second graph has their out-edges
//!   ([`EdgeShare::Out`]), for sums at sources: every row is summed by its owner, over edges in the order of the dataset,
//!   so that sums along edges are those of one process to the bit.
//! - The edges of shuffled vertices are others in each step, and so are their ends: a type of mirrors has a row for each edge
//!   ([`Mirrors::ShuffledSources`], [`Mirrors::ShuffledDestinations`]). Each vertex has as many edges in both directions, so a
//!   rank has the same edges between such rows in all steps, and a step decides which vertices' values an exchange gives them.
//! - A stack ([`crate::stacks`]) has these graphs as members, and a second stack the graphs with out-edges
//!   ([`Dataflow::out_stack`]). A pair belongs to the owner of its vertex: destinations of the first stack and sources of the
//!   second one are owned pairs, the other ends are mirrors of them, which an exchange fills.
//! - Sums over all vertices of a type are taken by *section*: a fixed number of contiguous ranges of the vertices of a
//!   type, each within one rank. [`VertexRows::Sections`] has a row for each section of the rank, and
//!   [`EdgeShare::Sections`] an edge from each vertex to its section. [`crate::Op::SumRanks`] adds the sums of all
//!   sections in their order, so that the result depends on the number of sections, and not on that of ranks. Sections of pairs
//!   have a row for each member, and their sum has these rows.
//!
//! `place` in `hgnnc-passes` makes such a program of one for a single process.
//!
//! In the program of a mini-batch, each rank samples the neighbourhoods of its own share of the seed vertices:
//!
//! - A vertex type has the rows of the rank's own batch, and a graph has the edges among them. A vertex that several
//!   ranks have sampled is computed by each of them.
//! - A sum over the rows of the batch, such as the gradient of a weight, is one over the ranks, in their order:
//!   [`VertexRows::Rank`] has one row. For other reductions, its mirrors have one for each rank.
//! - A table with a row per vertex of the dataset has one owner for each row. [`VertexRows::Owned`] has the vertices that
//!   the rank owns and any rank has in its batch; an exchange gives the rows to these ranks. The gradients come back as
//!   [`VertexRows::Copies`], with a row for each rank that has the vertex, and are summed in the order of the ranks along
//!   the graph [`EdgeShare::Copies`]. Where ranks need rows of fewer vertices, within fewer hops, the same owned rows are
//!   exchanged with types of these.
//! - Shuffled vertices are those of all ranks: [`VertexRows::Shuffled`] has the vertices whose rows those of the rank take. The
//!   owner of a vertex has its row from a rank that has sampled it, and an exchange gives it to the ranks that take it.
//!   Gradients come back to the owner as copies, and go to the ranks that have sampled the vertex in equal parts.
//! - Ranks that share the relations to the same seeds are a *replica*. Where there are several, a sum that all ranks of a
//!   replica have is taken from its first one: [`VertexRows::Replica`] has a row there.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::dataflow::{Dataflow, GraphDecl, VertexTypeDecl};
use crate::ops::Direction;
use crate::stacks::{Incidence, StackDecl, VertexRows};
use crate::types::{Graph, Space, Stack, VertexType};

/// The vertices that a rank has beside those that it owns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mirrors {
    /// The sources of the in-edges of owned vertices, over all graphs that start at the type.
    Sources,
    /// The destinations of the out-edges of owned vertices, over all graphs that end at the type.
    Destinations,
    /// All vertices of the type.
    All,
    /// The sources of the in-edges of owned vertices along so many permutations of the vertices of the type
    /// ([`GraphDecl::shuffle`]): a row for each edge, ordered by destination and then source. Owned vertices have rows as
    /// sources only.
    ShuffledSources(u32),
    /// The destinations of the out-edges of owned vertices along so many permutations: a row for each edge, ordered by source
    /// and then destination.
    ShuffledDestinations(u32),
}

impl Mirrors {
    /// The permutations of the vertices of the type, whose edges have a row each.
    pub fn permutations(self) -> Option<u32> {
        match self {
            Self::ShuffledSources(permutations) | Self::ShuffledDestinations(permutations) => Some(permutations),
            Self::Sources | Self::Destinations | Self::All => None,
        }
    }

    /// The mirrors at the sources of the in-edges that a graph has of owned vertices.
    pub fn of_sources(graph: &GraphDecl) -> Self {
        graph.shuffle.map_or(Self::Sources, Self::ShuffledSources)
    }

    /// The mirrors at the destinations of the out-edges that a graph has of owned vertices.
    pub fn of_destinations(graph: &GraphDecl) -> Self {
        graph.shuffle.map_or(Self::Destinations, Self::ShuffledDestinations)
    }
}

/// As in the text format.
impl fmt::Display for Mirrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sources => f.write_str("sources"),
            Self::Destinations => f.write_str("destinations"),
            Self::All => f.write_str("all"),
            Self::ShuffledSources(permutations) => write!(f, "shuffled_sources.{permutations}"),
            Self::ShuffledDestinations(permutations) => write!(f, "shuffled_destinations.{permutations}"),
        }
    }
}

impl FromStr for Mirrors {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.split_once('.').map(|(kind, permutations)| (kind, permutations.parse())) {
            None if text == "sources" => Ok(Self::Sources),
            None if text == "destinations" => Ok(Self::Destinations),
            None if text == "all" => Ok(Self::All),
            Some(("shuffled_sources", Ok(permutations))) => Ok(Self::ShuffledSources(permutations)),
            Some(("shuffled_destinations", Ok(permutations))) => Ok(Self::ShuffledDestinations(permutations)),
            _ => Err(()),
        }
    }
}

/// The edges of a semantic graph that a process has, or the rule by which it has others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum EdgeShare {
    /// All edges, as in the program of a single process.
    #[default]
    All,
    /// The in-edges of the destinations that a rank owns, from sources that are mirrored.
    In,
    /// The out-edges of the sources that a rank owns, to destinations that are mirrored. The rank also has the in-edges of
    /// the same graph.
    Out(Graph),
    /// No edges of the dataset: one from each owned vertex of a type to its section.
    Sections,
    /// No edges of the dataset: one from each copy of a vertex in the batches of all ranks to the vertex at its owner.
    Copies,
    /// No edges of the dataset: one from each pair of a graph of links that is a link to the link ([`crate::link_rows`]).
    Links(Graph),
    /// No edges of the dataset: one from each negative sample among the pairs of a graph of links to its link.
    Negatives(Graph),
    /// No edges of the dataset: one from each vertex that all links of a mini-batch are compared with to its row among these
    /// samples.
    Samples,
}

impl EdgeShare {
    /// Whether the edges are those of a relation or metapath: the recipe of the graph says which.
    pub fn is_of_dataset(self) -> bool {
        matches!(self, Self::All | Self::In | Self::Out(_))
    }
}

impl VertexRows {
    /// Whether the rows exist in programs of several ranks only.
    pub fn is_of_ranks(self) -> bool {
        match self {
            Self::Dataset | Self::Members(_) | Self::Pairs(..) | Self::Cells(..) => false,
            Self::Edges(_) | Self::Links { .. } | Self::Samples(..) => false,
            Self::Mirrors(..) | Self::Sections(_) | Self::Owned(_) | Self::Copies(_) | Self::Shuffled(_) => true,
            Self::Rank | Self::Replica => true,
        }
    }

    /// Whether each rank has rows of its own that are summed over all ranks, in their order.
    pub fn are_of_all_ranks(self) -> bool {
        matches!(self, Self::Sections(_) | Self::Rank)
    }
}

impl Dataflow {
    /// The type of the dataset whose rows a type of mirrors has copies of; any other type is its own.
    pub fn owned_type(&self, vertex: VertexType) -> VertexType {
        match self.vertex_types.get(vertex.index()).map(|decl| decl.rows) {
            Some(VertexRows::Mirrors(of, _)) => of,
            _ => vertex,
        }
    }

    /// Whether an exchange gives rows of a type to ranks that have rows of another.
    pub fn exchanges(&self, from: VertexType, to: VertexType) -> bool {
        let rows = |vertex: VertexType| self.vertex_types.get(vertex.index()).map(|decl| decl.rows);
        match (rows(from), rows(to)) {
            (_, Some(VertexRows::Mirrors(of, _) | VertexRows::Copies(of))) => of == from,
            (Some(VertexRows::Pairs(own, at)), Some(VertexRows::Pairs(mirrors, end))) => {
                let (of_in_edges, of_out_edges) = if at == Direction::In { (own, mirrors) } else { (mirrors, own) };
                at == end && of_in_edges != of_out_edges && self.in_stack(of_out_edges) == of_in_edges
            }
            (Some(VertexRows::Owned(of)), Some(VertexRows::Shuffled(also))) => of == also,
            (Some(VertexRows::Owned(of)), _) => of == to || self.owner_of_copies(VertexRows::Copies(to)) == Some(from),
            _ => false,
        }
    }

    /// Whether a type has mirrors of vertices of the dataset, among which the rows of a rank lie together and in their order.
    pub fn has_owned_rows_together(&self, vertex: VertexType) -> bool {
        let rows = |vertex: VertexType| self.vertex_types.get(vertex.index()).map(|decl| decl.rows);
        let Some(VertexRows::Mirrors(of, mirrors)) = rows(vertex) else { return false };
        mirrors.permutations().is_none() && rows(of) == Some(VertexRows::Dataset)
    }

    /// The type of the owned vertices to which copies come back.
    pub fn owner_of_copies(&self, copies: VertexRows) -> Option<VertexType> {
        let is_it = |decl: &&GraphDecl| {
            let src = self.vertex_types.get(decl.src.index());
            decl.share == EdgeShare::Copies && src.is_some_and(|src| src.rows == copies)
        };
        self.graphs.iter().find(is_it).map(|decl| decl.dst)
    }

    /// The type with these mirrors of a type, declared if it does not exist.
    pub fn mirrors(&mut self, of: VertexType, mirrors: Mirrors) -> VertexType {
        let name = format!("{}.{mirrors}", self.vertex_types[of.index()].name);
        self.type_of_ranks(name, VertexRows::Mirrors(of, mirrors))
    }

    /// The type with a row for each section of a type, declared if it does not exist.
    pub fn sections(&mut self, of: VertexType) -> VertexType {
        let name = format!("{}.sections", self.vertex_types[of.index()].name);
        self.type_of_ranks(name, VertexRows::Sections(of))
    }

    /// The stack of the graphs with the out-edges of owned vertices, declared if it does not exist.
    pub fn out_stack(&mut self, of: Stack) -> Stack {
        let StackDecl { name, members } = self.stacks[of.index()].clone();
        // A family may have thousands of members.
        let mut out_edges: HashMap<Graph, Graph> = HashMap::new();
        for (index, decl) in self.graphs.iter().enumerate() {
            if let EdgeShare::Out(of) = decl.share {
                out_edges.insert(of, Graph::new(index));
            }
        }
        let out_edges = |member: Graph| out_edges.get(&member).copied().unwrap_or_else(|| self.add_out_edges(member));
        let members: Vec<Graph> = members.into_iter().map(out_edges).collect();
        let known = self.stacks.iter().position(|decl| decl.members == members);
        Stack::new(known.unwrap_or_else(|| {
            self.stacks.push(StackDecl { name: format!("{name}.out"), members });
            self.stacks.len() - 1
        }))
    }

    /// The stack of the in-edges, for one of the out-edges of owned vertices; any other is its own.
    pub fn in_stack(&self, stack: Stack) -> Stack {
        let Some(decl) = self.stacks.get(stack.index()) else { return stack };
        let share = |graph: Graph| self.graphs.get(graph.index()).map(|decl| decl.share);
        let of = |graph: &Graph| match share(*graph) {
            Some(EdgeShare::Out(of)) => Some(of),
            _ => None,
        };
        let Some(first) = decl.members.first().and_then(of) else { return stack };
        let is_it = |known: &StackDecl| {
            known.members.first() == Some(&first)
                && known.members.iter().copied().eq(decl.members.iter().filter_map(of))
        };
        self.stacks.iter().position(is_it).map_or(stack, Stack::new)
    }

    /// The graph with the in-edges of owned vertices, for one with their out-edges; any other is its own.
    pub fn graph_of_in_edges(&self, graph: Graph) -> Graph {
        let decl = &self.graphs[graph.index()];
        match (decl.share, decl.derived) {
            (EdgeShare::Out(of), _) => of,
            (_, Some((stack, Incidence::Edges))) => {
                let of = Some((self.in_stack(stack), Incidence::Edges));
                self.graphs.iter().position(|decl| decl.derived == of).map_or(graph, Graph::new)
            }
            _ => graph,
        }
    }

    /// Whether the rows of a type are those of a stack, or sections or copies of them.
    pub fn is_of_stack(&self, vertex: VertexType) -> bool {
        match self.vertex_types.get(vertex.index()).map(|decl| decl.rows) {
            Some(VertexRows::Members(_) | VertexRows::Pairs(..) | VertexRows::Cells(..)) => true,
            // Rows are those of earlier types.
            Some(VertexRows::Mirrors(of, _) | VertexRows::Sections(of)) => of < vertex && self.is_of_stack(of),
            _ => false,
        }
    }

    /// The rows that the sum over all ranks of the rows of a type has: one, or one for each member of the stack whose pairs
    /// have these sections. `None` for rows that are not summed, and where no type has the rows of the members.
    pub fn rows_of_sum(&self, summed: VertexType) -> Option<Space> {
        let rows = |vertex: VertexType| self.vertex_types.get(vertex.index()).map(|decl| decl.rows);
        match rows(summed)? {
            VertexRows::Sections(of) => match rows(of)? {
                VertexRows::Pairs(stack, _) | VertexRows::Cells(stack, _) => {
                    let members = VertexRows::Members(self.in_stack(stack));
                    let known = self.vertex_types.iter().position(|decl| decl.rows == members)?;
                    Some(Space::Vertices(VertexType::new(known)))
                }
                _ => Some(Space::Unit),
            },
            other => other.are_of_all_ranks().then_some(Space::Unit),
        }
    }

    /// The type with the vertices of a type of a mini-batch that the rank owns, declared if it does not exist.
    pub fn owned(&mut self, of: VertexType) -> VertexType {
        let name = format!("{}.owned", self.vertex_types[of.index()].name);
        self.type_of_ranks(name, VertexRows::Owned(of))
    }

    /// The type with a row for the rank, declared if it does not exist.
    pub fn rank(&mut self) -> VertexType {
        self.type_of_ranks("rank".into(), VertexRows::Rank)
    }

    /// The type with a row on the first rank of each replica, declared if it does not exist.
    pub fn replica(&mut self) -> VertexType {
        self.type_of_ranks("replica".into(), VertexRows::Replica)
    }

    fn type_of_ranks(&mut self, name: String, rows: VertexRows) -> VertexType {
        let known = self.vertex_types.iter().position(|decl| decl.rows == rows);
        VertexType::new(known.unwrap_or_else(|| {
            self.vertex_types.push(VertexTypeDecl { name, dataset_name: String::new(), rows });
            self.vertex_types.len() - 1
        }))
    }

    /// The graph from the vertices of a type to their sections, declared if it does not exist.
    pub fn graph_to_sections(&mut self, of: VertexType) -> Graph {
        let sections = self.sections(of);
        let known = |decl: &GraphDecl| decl.share == EdgeShare::Sections && decl.src == of;
        if let Some(known) = self.graphs.iter().position(known) {
            return Graph::new(known);
        }
        let name = format!("{}.section", self.vertex_types[of.index()].name);
        self.add_graph(GraphDecl { share: EdgeShare::Sections, ..GraphDecl::new(name, of, sections, vec![]) })
    }

    /// The type with the vertices whose rows those of a type of a mini-batch take, declared if it does not exist.
    pub fn shuffled(&mut self, of: VertexType) -> VertexType {
        let name = format!("{}.shuffled", self.vertex_types[of.index()].name);
        self.type_of_ranks(name, VertexRows::Shuffled(of))
    }

    /// The type of a mini-batch that the rows of a type are sampled vertices of, or taken by them.
    pub fn sampled_type(&self, vertex: VertexType) -> VertexType {
        match self.vertex_types.get(vertex.index()).map(|decl| decl.rows) {
            Some(VertexRows::Shuffled(of)) => of,
            _ => vertex,
        }
    }

    /// The graph from the copies that ranks have of vertices, sampled or shuffled, to these vertices at their owner, declared
    /// if it does not exist.
    pub fn graph_of_copies(&mut self, of: VertexType) -> Graph {
        let owned = self.owned(self.sampled_type(of));
        self.graph_of_copies_to(of, owned)
    }

    /// The same with the owned vertices of a type that has those of `of` and more: a table has the vertices within so many
    /// hops, and some of its rows are read within fewer hops only.
    pub fn graph_of_copies_to(&mut self, of: VertexType, owned: VertexType) -> Graph {
        let name = format!("{}.copies", self.vertex_types[of.index()].name);
        let copies = self.type_of_ranks(name.clone(), VertexRows::Copies(of));
        let known = |decl: &GraphDecl| decl.share == EdgeShare::Copies && decl.src == copies;
        if let Some(known) = self.graphs.iter().position(known) {
            return Graph::new(known);
        }
        self.add_graph(GraphDecl { share: EdgeShare::Copies, ..GraphDecl::new(name, copies, owned, vec![]) })
    }

    /// The graph with the out-edges of owned vertices, beside that with their in-edges; declared if it does not exist.
    pub fn graph_of_out_edges(&mut self, of: Graph) -> Graph {
        if let Some(known) = self.graphs.iter().position(|decl| decl.share == EdgeShare::Out(of)) {
            return Graph::new(known);
        }
        self.add_out_edges(of)
    }

    fn add_out_edges(&mut self, of: Graph) -> Graph {
        let decl = self.graphs[of.index()].clone();
        let (src, dst) = (self.owned_type(decl.src), self.mirrors(decl.dst, Mirrors::of_destinations(&decl)));
        let name = format!("{}.out", decl.name);
        self.add_graph(GraphDecl { name, src, dst, share: EdgeShare::Out(of), ..decl })
    }

    fn add_graph(&mut self, decl: GraphDecl) -> Graph {
        self.graphs.push(decl);
        Graph::new(self.graphs.len() - 1)
    }
}
