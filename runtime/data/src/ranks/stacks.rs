//! The pairs that a rank has of stacks, the graphs between them, and the routes of pairs of other ranks ([`hgnnc_ir::ranks`]).
//! All of it follows from the edges that the rank has of the members.

use std::sync::Arc;

use hgnnc_ir::types::{Graph, Stack, VertexType};
use hgnnc_ir::{Direction, Incidence, VertexRows};

use super::{Divider, EdgesOfRank, Route, Sections, is_of_stack, owner};
use crate::bound::{BoundData, Topology};
use crate::error::Result;
use crate::stacks::{Pairs, Stacks};

impl Divider<'_> {
    /// Adds the graphs of this rank, with the tables of stacks.
    pub(super) fn add_graphs(&self, data: &mut BoundData, edges: &mut [EdgesOfRank]) -> Result<()> {
        let tables = self.tables;
        let mut graphs: Vec<Topology> = edges.iter_mut().map(|of| std::mem::take(&mut of.topology)).collect();
        let stacks = Stacks::new(tables, &graphs);
        let of_stacks = |vertex: &VertexType| tables.is_of_stack(*vertex);
        for vertex in (0..tables.vertex_types.len()).map(VertexType::new).filter(of_stacks) {
            let at = vertex.index();
            data.num_vertices[at] = match tables.vertex_types[at].rows {
                VertexRows::Sections(of) => self.members_of(of) * self.division.sections_of(self.rank).len(),
                VertexRows::Mirrors(of, _) => self.count_of_stack(of),
                rows => stacks.rows(rows, &graphs).unwrap_or(0),
            };
            data.sections[at] = self.sections_of_stack(vertex, &stacks);
            data.routes[at] = self.route_of_stack(vertex, &stacks, &graphs).map(Arc::new);
        }
        let of_stacks = |graph: &Graph| is_of_stack(tables, *graph);
        for graph in (0..graphs.len()).map(Graph::new).filter(of_stacks) {
            let decl = &tables.graphs[graph.index()];
            let made = match decl.derived {
                Some(_) => stacks.graph(decl, &graphs)?.unwrap_or_default(),
                None => self.to_sections(&decl.name, decl.src, &stacks)?,
            };
            if let Some((stack, Incidence::Edges)) = decl.derived {
                let of_members = self.edges_of_members(stack, &made, &stacks, (edges, &graphs));
                edges[graph.index()] = of_members;
            }
            let of_whole = Some(self.count_of_stack(decl.src) as u64);
            graphs[graph.index()] = Topology { of_whole, ..made };
        }
        data.graphs = graphs;
        Ok(())
    }

    fn members(&self, stack: Stack) -> &[Graph] {
        &self.tables.stacks[stack.index()].members
    }

    /// The stack and the end that rows of pairs or cells belong to.
    fn stack_of(&self, vertex: VertexType) -> Option<(Stack, Direction)> {
        match self.tables.vertex_types[vertex.index()].rows {
            VertexRows::Pairs(stack, end) | VertexRows::Cells(stack, end) => Some((stack, end)),
            _ => None,
        }
    }

    /// The number of members of the stack that rows of pairs or cells belong to.
    fn members_of(&self, vertex: VertexType) -> usize {
        self.stack_of(vertex).map_or(0, |(stack, _)| self.members(stack).len())
    }

    /// The type of the vertices at one end of a stack.
    fn end_of(&self, stack: Stack, end: Direction) -> VertexType {
        let first = &self.tables.graphs[self.members(stack)[0].index()];
        if end == Direction::In { first.dst } else { first.src }
    }

    /// Whether the pairs at one end of a stack are mirrors.
    fn are_mirrors(&self, stack: Stack, end: Direction) -> bool {
        (self.tables.in_stack(stack) == stack) == (end == Direction::Out)
    }

    /// Number of rows on all ranks, but for pairs: their edges, of which each rank knows the number.
    fn count_of_stack(&self, vertex: VertexType) -> usize {
        match self.tables.vertex_types[vertex.index()].rows {
            VertexRows::Sections(of) => self.division.sections * self.members_of(of),
            VertexRows::Members(stack) => self.members(stack).len(),
            VertexRows::Cells(stack, end) => {
                self.members(stack).len() * self.count(self.tables.owned_type(self.end_of(stack, end)))
            }
            VertexRows::Pairs(stack, _) => {
                let of_member = |&graph: &Graph| self.edges_of_whole(self.tables.graph_of_in_edges(graph));
                self.members(stack).iter().map(of_member).sum::<u64>() as usize
            }
            _ => 0,
        }
    }

    /// The first pair or cell of this rank in each section, by member: a sequence for each of them, with the end.
    fn borders_of_members(&self, vertex: VertexType, stacks: &Stacks<'_>) -> Vec<Vec<usize>> {
        let Some((stack, end)) = self.stack_of(vertex) else { return vec![] };
        let end_type = self.end_of(stack, end);
        let (divided, sections) =
            (self.divided(self.tables.owned_type(end_type)), self.division.sections_of(self.rank));
        let borders: Vec<usize> = (sections.start..=sections.end).map(|section| divided.border(section)).collect();
        let rows = &self.rows[end_type.index()];
        match self.tables.vertex_types[vertex.index()].rows {
            VertexRows::Cells(..) => {
                let of_member = |member: usize| {
                    borders.iter().map(|&border| member * rows.len() + border - borders[0]).collect::<Vec<_>>()
                };
                (0..self.members(stack).len()).map(of_member).collect()
            }
            _ => {
                let Pairs { vertices, starts } = stacks.pairs(stack, end);
                let of_member = |range: &[usize]| {
                    let pairs = &vertices[range[0]..range[1]];
                    let before =
                        |&border: &usize| range[0] + pairs.partition_point(|&row| (rows.number(row) as usize) < border);
                    borders.iter().map(before).collect::<Vec<_>>()
                };
                starts.windows(2).map(of_member).collect()
            }
        }
    }

    fn sections_of_stack(&self, vertex: VertexType, stacks: &Stacks<'_>) -> Option<Sections> {
        let rows_of_whole = self.count_of_stack(vertex);
        let borders = match self.tables.vertex_types[vertex.index()].rows {
            VertexRows::Pairs(stack, end) if self.are_mirrors(stack, end) => return None,
            VertexRows::Pairs(..) | VertexRows::Cells(..) => {
                let of_members = self.borders_of_members(vertex, stacks);
                let mut all: Vec<u32> = of_members.into_iter().flatten().map(|row| row as u32).collect();
                all.dedup();
                let inner = all.iter().skip_while(|&&row| row == 0).copied();
                let last = all.last().copied();
                inner.filter(|&row| Some(row) != last).collect()
            }
            VertexRows::Sections(of) => {
                let sections = self.division.sections_of(self.rank).len() as u32;
                (1..sections).map(|section| section * self.members_of(of) as u32).collect()
            }
            _ => return None,
        };
        Some(Sections { borders, rows_of_whole })
    }

    /// The graph from pairs or cells of this rank to their members in each of its sections.
    fn to_sections(&self, name: &str, of: VertexType, stacks: &Stacks<'_>) -> Result<Topology> {
        let borders = self.borders_of_members(of, stacks);
        let (mut indptr, mut sources) = (vec![0], vec![]);
        for section in 0..self.division.sections_of(self.rank).len() {
            for of_member in &borders {
                sources.extend((of_member[section]..of_member[section + 1]).map(|row| row as u32));
                indptr.push(sources.len() as u64);
            }
        }
        Topology::from_csc(name, sources.len(), indptr.len() - 1, indptr, sources)
    }

    /// Numbers of the edges of a stack, for its inputs and masks, from those of its members.
    fn edges_of_members(
        &self,
        stack: Stack,
        made: &Topology,
        stacks: &Stacks<'_>,
        (edges, graphs): (&[EdgesOfRank], &[Topology]),
    ) -> EdgesOfRank {
        let members = self.members(stack);
        let (mut numbers, mut moved) = (vec![], vec![]);
        // Edges of the members before: read from the dataset, of the whole graph, and of this rank.
        let (mut read, mut in_whole, mut here) = (0, 0u64, 0);
        let pairs = stacks.pairs(stack, Direction::In);
        for (number, &member) in members.iter().enumerate() {
            let (of, graph) = (&edges[member.index()], &graphs[member.index()]);
            numbers.extend(of.numbers.iter().map(|&at| at + read as u32));
            for pair in pairs.starts[number]..pairs.starts[number + 1] {
                let first = made.csc.indptr[pair] as usize - here;
                let of_member = match (&graph.listed, &of.moved) {
                    (Some(_), _) => of.numbers[first],
                    (None, Some(moved)) => moved[pairs.vertices[pair] as usize].wrapping_add(first as u32),
                    (None, None) => first as u32,
                };
                let of_whole = of_member.wrapping_add(in_whole as u32);
                moved.push(of_whole.wrapping_sub(made.csc.indptr[pair] as u32));
            }
            read += of.read;
            in_whole += self.edges_of_whole(self.tables.graph_of_in_edges(member));
            here += graph.num_edges();
        }
        let moved = (self.division.ranks > 1).then_some(moved);
        EdgesOfRank { numbers, read, moved, ..EdgesOfRank::default() }
    }

    /// The route to rows of a stack that other ranks own.
    fn route_of_stack(&self, vertex: VertexType, stacks: &Stacks<'_>, graphs: &[Topology]) -> Option<Route> {
        let ranks = self.division.ranks;
        match self.tables.vertex_types[vertex.index()].rows {
            VertexRows::Pairs(stack, end) if self.are_mirrors(stack, end) => {
                let own = self.twin(stack)?;
                let mut send = self.needed_elsewhere_of_stack(own, end, stacks, graphs);
                let mut places = vec![vec![]; ranks];
                let owners = self.owners(stack, end);
                for (place, (_, row)) in stacks.pairs(stack, end).rows().enumerate() {
                    places[owners(row)].push(place as u32);
                }
                Some(Route {
                    send_rows: send.iter().map(Vec::len).collect(),
                    send: std::mem::take(&mut send).concat(),
                    recv_rows: places.iter().map(Vec::len).collect(),
                    places: Some(places.concat()),
                    first_own: None,
                })
            }
            VertexRows::Mirrors(of, _) => {
                let VertexRows::Sections(pairs) = self.tables.vertex_types[of.index()].rows else { return None };
                let rows = |rank: usize| self.division.sections_of(rank).len() * self.members_of(pairs);
                let own: Vec<u32> = (0..rows(self.rank) as u32).collect();
                Some(Route {
                    send: own.repeat(ranks),
                    send_rows: vec![own.len(); ranks],
                    recv_rows: (0..ranks).map(rows).collect(),
                    places: None,
                    first_own: None,
                })
            }
            _ => None,
        }
    }

    /// The stack of the out-edges, for one of in-edges, and the other way round.
    fn twin(&self, stack: Stack) -> Option<Stack> {
        let of_in_edges = self.tables.in_stack(stack);
        if of_in_edges != stack {
            return Some(of_in_edges);
        }
        let mut others = (0..self.tables.stacks.len()).map(Stack::new);
        others.find(|&other| other != stack && self.tables.in_stack(other) == stack)
    }

    /// The rank that owns the vertex of a row at one end of a stack.
    fn owners(&self, stack: Stack, end: Direction) -> impl Fn(u32) -> usize {
        let end = self.end_of(stack, end);
        let (borders, rows) = (self.divided(self.tables.owned_type(end)).borders(), &self.rows[end.index()]);
        move |row| owner(&borders, rows.number(row))
    }

    /// By rank: the owned pairs at an end of a stack that it mirrors, ascending: those with an edge to a vertex of that rank.
    fn needed_elsewhere_of_stack(
        &self,
        stack: Stack,
        end: Direction,
        stacks: &Stacks<'_>,
        graphs: &[Topology],
    ) -> Vec<Vec<u32>> {
        let mut needed = vec![vec![]; self.division.ranks];
        let Pairs { vertices, starts } = stacks.pairs(stack, end);
        let owners = self.owners(stack, end.opposite());
        let mut pair_of: Vec<u32> = vec![];
        for (number, member) in self.members(stack).iter().enumerate() {
            let own = starts[number]..starts[number + 1];
            for (pair, &vertex) in (own.start as u32..).zip(&vertices[own.clone()]) {
                pair_of.resize(pair_of.len().max(vertex as usize + 1), 0);
                pair_of[vertex as usize] = pair;
            }
            let first: Vec<usize> = needed.iter().map(Vec::len).collect();
            for (src, dst) in graphs[member.index()].edges() {
                let (own, other) = if end == Direction::Out { (src, dst) } else { (dst, src) };
                needed[owners(other)].push(pair_of[own as usize]);
            }
            for (of_rank, first) in needed.iter_mut().zip(first) {
                of_rank[first..].sort_unstable();
                let mut kept = first;
                for at in first..of_rank.len() {
                    if kept == first || of_rank[kept - 1] != of_rank[at] {
                        of_rank[kept] = of_rank[at];
                        kept += 1;
                    }
                }
                of_rank.truncate(kept);
            }
        }
        needed
    }

    /// By sending and receiving rank: the pairs at an end of a stack that one rank has for another. Empty for owned pairs.
    pub(super) fn pairs_sent(&self, stack: Stack, end: Direction) -> Vec<Vec<usize>> {
        let ranks = self.division.ranks;
        if !self.are_mirrors(stack, end) {
            return vec![];
        }
        let borders_at = |end: Direction| {
            let vertex = self.tables.owned_type(self.end_of(stack, end));
            self.divided(vertex).borders()
        };
        let (own, other) = (borders_at(end), borders_at(end.opposite()));
        let mut sent = vec![vec![0; ranks]; ranks];
        for &member in self.members(stack) {
            let edges = self.whole.graphs[self.tables.graph_of_in_edges(member).index()].edges();
            let pair = |(src, dst): (u32, u32)| match end {
                Direction::Out => (src, owner(&other, dst)),
                Direction::In => (dst, owner(&other, src)),
            };
            let mut pairs: Vec<(u32, usize)> = edges.into_iter().map(pair).collect();
            pairs.sort_unstable();
            pairs.dedup();
            pairs.into_iter().for_each(|(vertex, to)| sent[owner(&own, vertex)][to] += 1);
        }
        sent
    }
}
