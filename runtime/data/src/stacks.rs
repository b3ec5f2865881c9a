//! The graphs of stacks, made of those of their members: see [`hgnnc_ir::stacks`].

use std::sync::Arc;

use hgnnc_graph::{Adjacency, GraphPart};
use hgnnc_ir::dataflow::{Binding, Dataflow, GraphDecl, InputDecl};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::sizes::Endpoints;
use hgnnc_ir::types::{Graph, Param, Space, Stack, VertexType};
use hgnnc_ir::{Incidence, StackDecl, VertexRows};

use crate::bound::{Topology, direction_slot};
use crate::error::{ExecError, Result};

/// Appends the vertex types and graphs that are derived from stacks. Those of the dataset come first. Where this rank has read a
/// part of the members, the stacks have no edges, but their numbers in the whole graph.
///
/// # Errors
/// A graph with 2^32 rows or edges or more.
pub fn derive(tables: &Dataflow, num_vertices: &mut Vec<usize>, graphs: &mut Vec<Topology>) -> Result<()> {
    let stacks = Stacks::new(tables, graphs);
    for decl in tables.vertex_types.iter().skip(num_vertices.len()) {
        num_vertices.push(stacks.rows(decl.rows, graphs).unwrap_or(0));
    }
    for decl in tables.graphs.iter().skip(graphs.len()) {
        if let Some(graph) = stacks.graph(decl, graphs)? {
            graphs.push(graph);
        }
    }
    Ok(())
}

/// The pairs of all stacks, for the tables that are derived from them.
pub(crate) struct Stacks<'a> {
    tables: &'a Dataflow,
    /// By stack: those at destinations and at sources.
    pairs: Vec<[Pairs; 2]>,
}

impl<'a> Stacks<'a> {
    /// `graphs` have the edges of the members.
    pub fn new(tables: &'a Dataflow, graphs: &[Topology]) -> Self {
        let of_stack = |decl: &StackDecl| {
            [Direction::In, Direction::Out].map(|direction| match are_parts(&decl.members, graphs) {
                true => Pairs::default(),
                false => Pairs::of(&decl.members, graphs, direction),
            })
        };
        Self { tables, pairs: tables.stacks.iter().map(of_stack).collect() }
    }

    fn members(&self, stack: Stack) -> &'a [Graph] {
        &self.tables.stacks[stack.index()].members
    }

    /// The pairs at one end of a stack.
    pub fn pairs(&self, stack: Stack, direction: Direction) -> &Pairs {
        &self.pairs[stack.index()][usize::from(direction == Direction::Out)]
    }

    /// The number of vertices of the members at one end.
    fn vertices(&self, stack: Stack, direction: Direction, graphs: &[Topology]) -> usize {
        let member = &graphs[self.members(stack)[0].index()];
        if direction == Direction::In { member.num_dst } else { member.num_src }
    }

    /// The number of rows of a type, if it is derived from a stack.
    pub fn rows(&self, rows: VertexRows, graphs: &[Topology]) -> Option<usize> {
        match rows {
            VertexRows::Members(stack) => Some(self.members(stack).len()),
            VertexRows::Pairs(stack, direction) if are_parts(self.members(stack), graphs) => {
                Some(part_of_stack(self.members(stack), graphs).with_edges[direction_slot(direction)] as usize)
            }
            VertexRows::Pairs(stack, direction) => Some(self.pairs(stack, direction).vertices.len()),
            VertexRows::Cells(stack, direction) => {
                Some(self.members(stack).len() * self.vertices(stack, direction, graphs))
            }
            _ => None,
        }
    }

    /// A graph, if it is derived from a stack.
    ///
    /// # Errors
    /// When it has 2^32 rows or edges or more.
    pub fn graph(&self, decl: &GraphDecl, graphs: &[Topology]) -> Result<Option<Topology>> {
        let Some((stack, incidence)) = decl.derived else { return Ok(None) };
        let (name, members) = (&decl.name, self.members(stack));
        if are_parts(members, graphs) {
            return Ok(Some(self.without_edges(decl, (stack, incidence), graphs)));
        }
        let graph = match incidence {
            Incidence::Edges => {
                let (out, into) = (self.pairs(stack, Direction::Out), self.pairs(stack, Direction::In));
                edges(name, members, graphs, out, into)?
            }
            Incidence::Vertices(direction) => {
                let of = self.pairs(stack, direction);
                one_each(name, of.vertices.clone(), self.vertices(stack, direction, graphs))?
            }
            Incidence::Members(direction) => {
                let of = self.pairs(stack, direction);
                one_each(name, of.rows().map(|(member, _)| member as u32).collect(), members.len())?
            }
            Incidence::Cells(direction) => {
                let count = self.vertices(stack, direction, graphs);
                let rows = members.len() * count;
                if u32::try_from(rows).is_err() {
                    return Err(ExecError::Shape {
                        what: format!("the parameters with a row for each vertex and each member of `{name}`"),
                        found: format!("{rows} rows"),
                        expected: "fewer than 2^32; `--disable-pass stack_families` keeps them apart".into(),
                    });
                }
                let cells = self.pairs(stack, direction).rows().map(|(member, v)| (member * count) as u32 + v);
                one_each(name, cells.collect(), rows)?
            }
            Incidence::Range { of, first } => {
                one_each(name, (first..).take(self.members(of).len()).collect(), members.len())?
            }
        };
        Ok(Some(graph))
    }

    /// The graph of a stack whose members have edges of one rank only: its size.
    fn without_edges(&self, decl: &GraphDecl, (stack, incidence): (Stack, Incidence), graphs: &[Topology]) -> Topology {
        let of = part_of_stack(self.members(stack), graphs);
        let part = match incidence {
            Incidence::Edges => of,
            Incidence::Vertices(end) | Incidence::Members(end) | Incidence::Cells(end) => {
                let pairs = of.with_edges[direction_slot(end)];
                GraphPart { num_edges: pairs, with_edges: [pairs; 2], most_edges: [1; 2], ..GraphPart::default() }
            }
            Incidence::Range { of, .. } => {
                let count = self.members(of).len() as u64;
                GraphPart { num_edges: count, with_edges: [count; 2], most_edges: [1; 2], ..GraphPart::default() }
            }
        };
        let rows = |vertex: VertexType| self.rows(self.tables.vertex_types[vertex.index()].rows, graphs);
        let vertices = |end| self.vertices(stack, end, graphs);
        let num_dst = match incidence {
            Incidence::Vertices(end) => vertices(end),
            _ => rows(decl.dst).unwrap_or(0),
        };
        let csc = Adjacency { indptr: vec![0; num_dst + 1].into(), ..Adjacency::default() };
        let (name, num_src) = (decl.name.clone(), rows(decl.src).unwrap_or(0));
        Topology { name, num_src, num_dst, csc, part: Some(Arc::new(part)), ..Topology::default() }
    }
}

/// Whether this rank has read a part of these graphs.
fn are_parts(members: &[Graph], graphs: &[Topology]) -> bool {
    members.iter().any(|member| graphs[member.index()].part.is_some())
}

/// The sizes of a stack in the whole graph.
fn part_of_stack(members: &[Graph], graphs: &[Topology]) -> GraphPart {
    let mut all = GraphPart::default();
    for member in members.iter().map(|member| &graphs[member.index()]) {
        let Endpoints { sources, destinations, max_out, max_in } = member.ends_in_whole();
        all.num_edges += member.all_edges();
        all.with_edges = [all.with_edges[0] + destinations, all.with_edges[1] + sources];
        all.most_edges = [all.most_edges[0].max(max_in), all.most_edges[1].max(max_out)];
    }
    all
}

/// The pairs of members and vertices at one end of a stack.
#[derive(Default)]
pub(crate) struct Pairs {
    /// The vertex of each pair.
    pub vertices: Vec<u32>,
    /// The first pair of each member, and the number of all.
    pub starts: Vec<usize>,
}

impl Pairs {
    /// The member and the vertex of each.
    pub fn rows(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let members = self.starts.windows(2).enumerate();
        members
            .flat_map(|(member, range)| self.vertices[range[0]..range[1]].iter().map(move |&vertex| (member, vertex)))
    }

    fn of(members: &[Graph], graphs: &[Topology], direction: Direction) -> Self {
        let (mut vertices, mut starts) = (vec![], vec![0]);
        let mut seen: Vec<bool> = vec![];
        for member in members {
            let graph = &graphs[member.index()];
            let rows = &graph.incidence(direction).indptr;
            if let (Some(destinations), Direction::In) = (&graph.listed, direction) {
                vertices.extend(destinations.chunk_by(|a, b| a == b).map(|run| run[0]));
            } else if rows.len() == 1 + if direction == Direction::In { graph.num_dst } else { graph.num_src } {
                let with_edges = rows.windows(2).enumerate().filter(|(_, range)| range[1] > range[0]);
                vertices.extend(with_edges.map(|(vertex, _)| vertex as u32));
            } else {
                // Listed edges have no CSR, nor do graphs of a batch that no kernel walks from their sources.
                seen.resize(graph.num_src.max(seen.len()), false);
                let first = vertices.len();
                for &source in graph.csc.indices.iter() {
                    if !std::mem::replace(&mut seen[source as usize], true) {
                        vertices.push(source);
                    }
                }
                vertices[first..].iter().for_each(|&source| seen[source as usize] = false);
                vertices[first..].sort_unstable();
            }
            starts.push(vertices.len());
        }
        Self { vertices, starts }
    }
}

/// By member of a stack: its destinations that have edges, which are the rows of pairs at this end.
pub fn destinations(members: &[Graph], graphs: &[Topology]) -> Vec<Vec<u32>> {
    let Pairs { vertices, starts } = Pairs::of(members, graphs, Direction::In);
    starts.windows(2).map(|range| vertices[range[0]..range[1]].to_vec()).collect()
}

/// The edges of all members, one member after the other.
fn edges(name: &str, members: &[Graph], graphs: &[Topology], out: &Pairs, into: &Pairs) -> Result<Topology> {
    let total: usize = members.iter().map(|member| graphs[member.index()].num_edges()).sum();
    let (mut indptr, mut sources) = (Vec::with_capacity(into.vertices.len() + 1), Vec::with_capacity(total));
    indptr.push(0);
    // The pair of each source of the current member. Entries of other vertices are never read.
    let mut pair_of: Vec<u32> = vec![];
    for (member, graph) in members.iter().enumerate() {
        let graph = &graphs[graph.index()];
        pair_of.resize(graph.num_src.max(pair_of.len()), 0);
        for pair in out.starts[member]..out.starts[member + 1] {
            pair_of[out.vertices[pair] as usize] = pair as u32;
        }
        if let Some(destinations) = &graph.listed {
            let first = sources.len();
            sources.extend(graph.csc.indices.iter().map(|&source| pair_of[source as usize]));
            let mut end = first;
            indptr.extend(destinations.chunk_by(|a, b| a == b).map(|run| {
                end += run.len();
                end as u64
            }));
            continue;
        }
        for &vertex in &into.vertices[into.starts[member]..into.starts[member + 1]] {
            let range = graph.csc.indptr[vertex as usize] as usize..graph.csc.indptr[vertex as usize + 1] as usize;
            sources.extend(graph.csc.indices[range].iter().map(|&source| pair_of[source as usize]));
            indptr.push(sources.len() as u64);
        }
    }
    Topology::from_csc(name, out.vertices.len(), into.vertices.len(), indptr, sources)
}

/// The graph with one edge from each source, to these destinations.
fn one_each(name: &str, to: Vec<u32>, num_dst: usize) -> Result<Topology> {
    // The reverse has one in-edge for each row, and is turned around.
    let rows = to.len();
    let reverse = Topology::from_csc(name, num_dst, rows, (0..=rows as u64).collect(), to)?;
    let Topology { csc: by_source, csr: by_destination, .. } = reverse;
    let mut eids = vec![0; rows];
    for (position, &source) in by_destination.indices.iter().enumerate() {
        eids[source as usize] = position as u32;
    }
    Ok(Topology {
        name: name.to_owned(),
        num_src: rows,
        num_dst,
        csc: Adjacency { eids: vec![].into(), ..by_destination },
        csr: Adjacency { eids: eids.into(), ..by_source },
        ..Topology::default()
    })
}

/// For an input with a row for each edge of a stack: the inputs of the members, whose rows it has one after the other.
pub fn of_members(tables: &Dataflow, decl: &InputDecl) -> Option<Vec<InputDecl>> {
    let Space::Edges(graph) = decl.ty.space else { return None };
    let (stack, _) = tables.graphs[graph.index()].derived?;
    let of_member = |&member: &Graph| {
        let binding = match decl.binding {
            Binding::EdgeWeight(_) => Binding::EdgeWeight(member),
            Binding::EdgeTime(_) => Binding::EdgeTime(member),
            Binding::EdgeCount(_) => Binding::EdgeCount(member),
            Binding::EdgeFeatures(_) => Binding::EdgeFeatures(member),
            Binding::IsLink(_) => Binding::IsLink(member),
            _ => return None,
        };
        let mut decl = decl.clone();
        decl.ty.space = Space::Edges(member);
        Some(InputDecl { binding, ..decl })
    };
    tables.stacks[stack.index()].members.iter().map(of_member).collect()
}

/// The place of a parameter's elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamPlace {
    /// The parameter whose memory has them: itself, or the stack that it is an entry of.
    pub home: Param,
    /// The position of its first element there.
    pub offset: usize,
    /// The number of its elements.
    pub len: usize,
}

/// The places of all parameters. `len` gives the number of elements of one.
pub fn param_places(tables: &Dataflow, len: impl Fn(Param) -> usize) -> Vec<ParamPlace> {
    let own = |param: Param| ParamPlace { home: param, offset: 0, len: len(param) };
    let mut places: Vec<ParamPlace> = (0..tables.params.len()).map(|index| own(Param::new(index))).collect();
    for (index, decl) in tables.params.iter().enumerate() {
        for (number, entry) in decl.entries.iter().enumerate() {
            let len = places[entry.index()].len;
            places[entry.index()] = ParamPlace { home: Param::new(index), offset: number * len, len };
        }
    }
    places
}

/// The number of parameters of the model, which come before stacks of them.
pub fn num_own_params(tables: &Dataflow) -> usize {
    tables.params.iter().take_while(|decl| decl.entries.is_empty()).count()
}
