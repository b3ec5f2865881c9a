//! The bindings of each rank for a program of several ranks ([`hgnnc_ir::ranks`]), made of those of one process.

mod stacks;

use std::ops::Range;

use hgnnc_ir::dataflow::{Binding, Dataflow, GraphDecl};
use hgnnc_ir::types::{Dim, Graph, Input, Param, Space, VertexType};
use hgnnc_ir::{EdgeShare, Mirrors, VertexRows};

use crate::bindings::bound_input;
use crate::{Bindings, Tensor};

/// The division of vertices among ranks: those of each type are divided into sections, and a rank owns consecutive ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sections {
    /// Number of sections of the vertices of a type.
    pub count: usize,
    /// The first section of each rank, and the number of all.
    pub first: Vec<usize>,
}

impl Sections {
    /// Sections that are divided evenly among ranks.
    pub fn even(count: usize, ranks: usize) -> Self {
        Self { count, first: (0..=ranks).map(|rank| count * rank / ranks).collect() }
    }

    fn of_rank(&self, rank: usize) -> Range<usize> {
        self.first[rank]..self.first[rank + 1]
    }

    /// The first of `vertices` vertices in a section.
    fn border(&self, section: usize, vertices: usize) -> usize {
        vertices * section / self.count
    }

    fn vertices(&self, rank: usize, vertices: usize) -> Range<usize> {
        let sections = self.of_rank(rank);
        self.border(sections.start, vertices)..self.border(sections.end, vertices)
    }
}

/// The bindings of each rank for a program of ranks, from those of the program of one process that it was made of.
///
/// # Panics
/// When the programs do not belong together.
pub fn divide(flow: &Dataflow, (one, whole): (&Dataflow, &Bindings), sections: &Sections) -> Vec<Bindings> {
    let ranks = sections.first.len() - 1;
    (0..ranks).map(|rank| Division { flow, one, whole, sections, rank }.bindings()).collect()
}

struct Division<'a> {
    flow: &'a Dataflow,
    one: &'a Dataflow,
    whole: &'a Bindings,
    sections: &'a Sections,
    rank: usize,
}

impl Division<'_> {
    fn bindings(&self) -> Bindings {
        let Self { flow, whole, .. } = *self;
        let mut bindings = Bindings { seed: whole.seed, step: whole.step, ..Bindings::default() };
        for vertex in (0..flow.vertex_types.len()).map(VertexType::new) {
            let rows = if flow.is_of_stack(vertex) { vec![] } else { self.rows(vertex) };
            bindings.num_vertices.push(rows.len());
            bindings.numbers.insert(Space::Vertices(vertex), rows);
        }
        let is_of_stack = |decl: &GraphDecl| decl.derived.is_some() || flow.is_of_stack(decl.src);
        for (index, decl) in flow.graphs.iter().enumerate() {
            let of_stack = is_of_stack(decl);
            let (numbers, edges) = if of_stack { (vec![], vec![]) } else { self.edges(Graph::new(index), &bindings) };
            bindings.edges.push(edges);
            bindings.numbers.insert(Space::Edges(Graph::new(index)), numbers);
        }
        self.stacks(&mut bindings);
        for index in 0..flow.inputs.len() {
            if let Some(tensor) = self.input(index, &bindings) {
                bindings.inputs.insert(Input::new(index), tensor);
            }
        }
        for (&param, tensor) in &whole.params {
            bindings.params.insert(param, self.of_param(param, tensor, &bindings));
        }
        for (&(param, slot), tensor) in &whole.states {
            bindings.states.insert((param, slot), self.of_param(param, tensor, &bindings));
        }
        bindings
    }

    /// The section of a vertex of so many.
    fn section(&self, number: u32, vertices: usize) -> u32 {
        let within = |&section: &usize| self.sections.border(section + 1, vertices) > number as usize;
        (0..self.sections.count).find(within).expect("a vertex is in a section") as u32
    }

    /// The numbers of the rows of a type, ascending.
    fn rows(&self, vertex: VertexType) -> Vec<u32> {
        let Self { flow, whole, sections, rank, .. } = *self;
        let all = |vertex: VertexType| match flow.vertex_types[vertex.index()].rows {
            VertexRows::Sections(_) => sections.count,
            _ => whole.num_vertices[vertex.index()],
        };
        let of = flow.owned_type(vertex);
        let own = match flow.vertex_types[of.index()].rows {
            VertexRows::Sections(_) => sections.of_rank(rank),
            _ => sections.vertices(rank, all(of)),
        };
        let mut rows: Vec<u32> = own.clone().map(|row| row as u32).collect();
        let VertexRows::Mirrors(_, mirrors) = flow.vertex_types[vertex.index()].rows else { return rows };
        if let Some(permutations) = mirrors.permutations() {
            let at_sources = mirrors == Mirrors::ShuffledSources(permutations);
            let end = |(_, (src, dst))| if at_sources { src } else { dst };
            return self.shuffled_edges(of, permutations, at_sources).into_iter().map(end).collect();
        }
        let with_ends = |decl: &GraphDecl| decl.share == EdgeShare::In && decl.shuffle.is_none();
        for (graph, decl) in flow.graphs.iter().enumerate().filter(|(_, decl)| with_ends(decl)) {
            for &(src, dst) in &whole.edges[graph] {
                let owned = |vertex: VertexType, row: u32| {
                    sections.vertices(rank, whole.num_vertices[vertex.index()]).contains(&(row as usize))
                };
                match mirrors {
                    Mirrors::Sources if flow.owned_type(decl.src) == of && owned(decl.dst, dst) => rows.push(src),
                    Mirrors::Destinations if decl.dst == of && owned(flow.owned_type(decl.src), src) => rows.push(dst),
                    _ => {}
                }
            }
        }
        if mirrors == Mirrors::All {
            rows = (0..all(of) as u32).collect();
        }
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The numbers and ends of the edges that owned vertices have along permutations, as destinations (`in_edges`) or as
    /// sources, in the order of the mirrors at the other end.
    fn shuffled_edges(&self, of: VertexType, permutations: u32, in_edges: bool) -> Vec<(u32, (u32, u32))> {
        let is_it =
            |decl: &GraphDecl| decl.share == EdgeShare::In && decl.shuffle == Some(permutations) && decl.dst == of;
        let graph = self.flow.graphs.iter().position(is_it).expect("the mirrors are those of a graph");
        let own = self.sections.vertices(self.rank, self.whole.num_vertices[of.index()]);
        // The end that is owned, then the other one.
        let ends = |(src, dst): (u32, u32)| if in_edges { (dst, src) } else { (src, dst) };
        let all = (0..).zip(self.whole.edges[graph].iter().copied());
        let mut edges: Vec<(u32, (u32, u32))> =
            all.filter(|&(_, edge)| own.contains(&(ends(edge).0 as usize))).collect();
        edges.sort_by_key(|&(_, edge)| ends(edge));
        edges
    }

    /// The edges of a graph, by the rows of their ends, with their numbers.
    fn edges(&self, graph: Graph, bindings: &Bindings) -> (Vec<u32>, Vec<(u32, u32)>) {
        let Self { flow, whole, .. } = *self;
        let decl = &flow.graphs[graph.index()];
        let rows = |vertex: VertexType| &bindings.numbers[&Space::Vertices(vertex)];
        if let (Some(permutations), EdgeShare::In | EdgeShare::Out(_)) = (decl.shuffle, decl.share) {
            let in_edges = decl.share == EdgeShare::In;
            let first = rows(if in_edges { decl.dst } else { decl.src }).first().copied().unwrap_or(0);
            let ends = |(row, (number, (src, dst)))| match in_edges {
                true => (number, (row, dst - first)),
                false => (number, (src - first, row)),
            };
            let edges = self.shuffled_edges(flow.owned_type(decl.dst), permutations, in_edges);
            return (0..).zip(edges).map(ends).unzip();
        }
        let of = match decl.share {
            EdgeShare::All
            | EdgeShare::In
            | EdgeShare::Copies
            | EdgeShare::Links(_)
            | EdgeShare::Negatives(_)
            | EdgeShare::Samples => graph,
            EdgeShare::Out(of) => of,
            EdgeShare::Sections => {
                let vertices = whole.num_vertices[decl.src.index()];
                let own = rows(decl.dst)[..].first().copied().unwrap_or(0);
                let edge = |(row, &number)| (row, self.section(number, vertices) - own);
                let edges = (0..).zip(rows(decl.src)).map(edge).collect();
                return (rows(decl.src).clone(), edges);
            }
        };
        let ends = |&(src, dst): &(u32, u32)| {
            let row = |vertex: VertexType, number: u32| rows(vertex).binary_search(&number).ok().map(|row| row as u32);
            let ends = (row(decl.src, src)?, row(decl.dst, dst)?);
            // Mirrors have edges among themselves, which are those of other ranks.
            let owned = |vertex: VertexType, number: u32| rows(flow.owned_type(vertex)).contains(&number);
            match decl.share {
                EdgeShare::Out(_) => owned(decl.src, src).then_some(ends),
                _ => owned(decl.dst, dst).then_some(ends),
            }
        };
        let found = (0..).zip(&whole.edges[of.index()]).filter_map(|(number, edge)| Some((number, ends(edge)?)));
        found.unzip()
    }

    /// The rows of an input that the rank has. Edges have the ranks that they have among all edges of their ends.
    fn input(&self, index: usize, bindings: &Bindings) -> Option<Tensor> {
        let decl = &self.flow.inputs[index];
        let of = |graph: &Graph| self.flow.graph_of_in_edges(*graph);
        let own = match &decl.binding {
            Binding::Features(vertex, matrix) => Binding::Features(self.flow.owned_type(*vertex), matrix.clone()),
            Binding::Precomputed(vertex, name) => Binding::Precomputed(self.flow.owned_type(*vertex), name.clone()),
            Binding::Time(vertex) => Binding::Time(self.flow.owned_type(*vertex)),
            Binding::EdgeTime(graph) => Binding::EdgeTime(of(graph)),
            Binding::EdgeWeight(graph) => Binding::EdgeWeight(of(graph)),
            Binding::EdgeCount(graph) => Binding::EdgeCount(of(graph)),
            Binding::EdgeFeatures(graph) => Binding::EdgeFeatures(of(graph)),
            Binding::EdgeRank(graph, direction) => Binding::EdgeRank(of(graph), *direction),
            other => other.clone(),
        };
        let of = self.one.inputs.iter().position(|known| known.binding == own)?;
        let ty = &self.one.inputs[of].ty;
        let shape = (self.whole.rows(ty.space), self.whole.width(&ty.dims));
        let tensor = &bound_input(self.one, self.whole, Input::new(of), shape).ok()?;
        let Some(numbers) = bindings.numbers.get(&decl.ty.space) else { return Some(tensor.clone()) };
        Some(Tensor::from_fn(numbers.len(), tensor.width, |row, column| tensor.at(numbers[row] as usize, column)))
    }

    /// The rows of a table that the rank owns; any other parameter is the same on every rank.
    fn of_param(&self, param: Param, tensor: &Tensor, bindings: &Bindings) -> Tensor {
        let Some(Dim::Count(vertex)) = self.flow.params[param.index()].dims.first() else { return tensor.clone() };
        let Some(Dim::Count(of)) = self.one.params[param.index()].dims.first() else { return tensor.clone() };
        let width = tensor.width / self.whole.num_vertices[of.index()].max(1);
        let numbers = &bindings.numbers[&Space::Vertices(*vertex)];
        let row = |&number: &u32| tensor.data[number as usize * width..][..width].iter().copied();
        Tensor::new(1, numbers.len() * width, numbers.iter().flat_map(row).collect())
    }
}
