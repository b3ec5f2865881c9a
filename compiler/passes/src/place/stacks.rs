//! The pairs, cells and graphs of stacks in programs of ranks.
//!
//! A stack has the in-edges of owned vertices as its members have, from pairs of mirrored sources to owned pairs. A second
//! stack has their out-edges, from owned pairs to pairs of mirrored destinations. So a pair is owned where its vertex is, and
//! an end of a stack is the owned one of one of the two:
//!
//! ```text
//! Before:  s0.src, s0.dst    the pairs at the ends of the stack s0 of cites, writes, …
//! After:   s0.out.src        owned pairs at sources          s0.dst        owned pairs at destinations
//!          s0.src            mirrors of them                 s0.out.dst    mirrors of them
//! ```
//!
//! - A value of pairs is computed by owners and exchanged, but for one that gives each pair the row of its vertex: the rows of
//!   vertices are exchanged once, and not for each of their pairs.
//! - A sum over the pairs of each member is one over its sections, as of vertices. Members have equal rows on all ranks.

use hgnnc_ir::{Dim, Direction, Graph, Incidence, Op, Reduce, Space, Stack, Value, VertexRows, VertexType};

use super::{Placing, Result};

impl Placing<'_> {
    /// Gives the tables of stacks the rows of ranks.
    pub(super) fn stacks(&mut self) {
        for index in 0..self.old.graphs.len() {
            if let Some((stack, Incidence::Vertices(Direction::Out))) = self.old.graphs[index].derived {
                let member = self.old.stacks[stack.index()].members[0];
                self.new.graphs[index].dst = self.new.graphs[member.index()].src;
            }
        }
        for index in 0..self.old.params.len() {
            self.new.params[index].dims = self.own_dims(&self.old.params[index].dims);
        }
    }

    /// The stack of the out-edges for one of the old program.
    fn out_stack(&mut self, stack: Stack) -> Stack {
        if let Some(&known) = self.out_stacks.get(&stack) {
            return known;
        }
        let out = self.new.out_stack(stack);
        self.out_stacks.insert(stack, out);
        out
    }

    /// The type of the new program with the rows of a type that a rank owns.
    pub(super) fn own_type(&mut self, vertex: VertexType) -> VertexType {
        match self.old.vertex_types[vertex.index()].rows {
            VertexRows::Pairs(stack, Direction::Out) => {
                let out = self.out_stack(stack);
                self.new.stacked_type(VertexRows::Pairs(out, Direction::Out))
            }
            VertexRows::Cells(stack, Direction::Out) => {
                let out = self.out_stack(stack);
                self.new.stacked_type(VertexRows::Cells(out, Direction::Out))
            }
            _ => vertex,
        }
    }

    /// The rows of the new program that a rank owns of a space.
    pub(super) fn own_space(&mut self, space: Space) -> Space {
        match space {
            Space::Vertices(vertex) => Space::Vertices(self.own_type(vertex)),
            Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => space,
        }
    }

    pub(super) fn own_dims(&mut self, dims: &[Dim]) -> Vec<Dim> {
        let own = |dim: &Dim| match *dim {
            Dim::Count(vertex) => Dim::Count(self.own_type(vertex)),
            Dim::Fixed(_) => *dim,
        };
        dims.iter().map(own).collect()
    }

    /// The type of the new program that has copies of rows of other ranks, if these are the rows of a space.
    pub(super) fn mirrored(&self, space: Space) -> Option<VertexType> {
        let Space::Vertices(vertex) = space else { return None };
        let is_mirror = match self.new.vertex_types[vertex.index()].rows {
            VertexRows::Mirrors(..) => true,
            VertexRows::Pairs(stack, end) => (self.new.in_stack(stack) == stack) == (end == Direction::Out),
            _ => false,
        };
        is_mirror.then_some(vertex)
    }

    /// Whether a value has for each pair of a stack a row of its vertex or of its member.
    pub(super) fn is_of_one_row(&self, value: Value) -> bool {
        match self.old.value(value).op {
            Op::Segment { graph, direction: Direction::Out, .. } => matches!(
                self.old.graphs[graph.index()].derived,
                Some((_, Incidence::Vertices(_) | Incidence::Members(_)))
            ),
            _ => false,
        }
    }

    /// Whether a type has the members of a stack, whose rows are the same on all ranks.
    pub(super) fn has_members(&self, vertex: VertexType) -> bool {
        matches!(self.old.vertex_types[vertex.index()].rows, VertexRows::Members(_))
    }

    /// The graph of the new program that stands for one whose edges are reduced to rows of a space.
    pub(super) fn edges_of(&mut self, graph: Graph, direction: Direction, to: Space) -> Graph {
        let Some((stack, incidence)) = self.old.graphs[graph.index()].derived else {
            return match direction {
                Direction::In => graph,
                Direction::Out => self.new.graph_of_out_edges(graph),
            };
        };
        let with_out_edges = match incidence {
            Incidence::Range { .. } => return graph,
            Incidence::Edges => direction == Direction::Out,
            Incidence::Vertices(end) | Incidence::Members(end) | Incidence::Cells(end) => match self.stack_of(to) {
                // Owned pairs or mirrors of them have the result.
                Some(of) if direction == Direction::Out => self.new.in_stack(of) != of,
                _ => end == Direction::Out,
            },
        };
        match with_out_edges {
            true => {
                let out = self.out_stack(stack);
                self.new.stacked_graph(out, incidence)
            }
            false => graph,
        }
    }

    /// The stack of the new program whose pairs are the rows of a space.
    fn stack_of(&self, space: Space) -> Option<Stack> {
        match space {
            Space::Vertices(vertex) => match self.new.vertex_types[vertex.index()].rows {
                VertexRows::Pairs(stack, _) => Some(stack),
                _ => None,
            },
            Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => None,
        }
    }

    /// The type of the owned pairs that a graph leads from to their members, if it does.
    pub(super) fn pairs_of_members(&mut self, graph: Graph) -> Option<VertexType> {
        match self.old.graphs[graph.index()].derived {
            Some((_, Incidence::Members(_))) => Some(self.own_type(self.old.graphs[graph.index()].src)),
            _ => None,
        }
    }

    /// A value of the edges from pairs to their members, with the rows of the owned pairs: each has one of these edges.
    pub(super) fn at_pairs(&mut self, value: Value, graph: Graph, pairs: VertexType) -> Result<Value> {
        let (data, own) = (self.old.value(value), Space::Vertices(pairs));
        if let Op::GatherSrc(_) = data.op {
            return self.at(data.args[0], own);
        }
        let graph = self.edges_of(graph, Direction::Out, own);
        let rows = self.at(value, Space::Edges(graph))?;
        self.push(value, Op::Segment { graph, direction: Direction::Out, reduce: Reduce::Sum }, &[rows])
    }
}
