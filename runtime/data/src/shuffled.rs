//! Shuffled vertices on one rank of several ([`hgnnc_ir::ranks`]): each step draws which rows of other ranks its edges end at.

use std::sync::Arc;

use hgnnc_ir::dataflow::{Dataflow, GraphDecl};
use hgnnc_ir::types::{Graph, VertexType};
use hgnnc_ir::{EdgeShare, Mirrors};

use crate::bound::{BoundData, Shuffle};
use crate::orders::Orders;
use crate::ranks::Route;

/// The mirrors at the ends of the edges of shuffled vertices, with a row for each edge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShuffledRows {
    /// The vertices that are shuffled.
    pub shuffle: Shuffle,
    /// First vertex of each rank, and the number of all.
    borders: Vec<usize>,
    rank: usize,
    /// The type of mirrors at the sources of in-edges.
    sources: Option<VertexType>,
    /// The type of mirrors at the destinations of out-edges, and the graphs with these edges.
    destinations: Option<VertexType>,
    out_edges: Vec<Graph>,
}

impl ShuffledRows {
    pub(crate) fn new(shuffle: Shuffle, borders: Vec<usize>, rank: usize) -> Self {
        Self { shuffle, borders, rank, sources: None, destinations: None, out_edges: vec![] }
    }

    /// Adds a type of mirrors of these vertices, and the graphs that have edges to them.
    pub(crate) fn add(&mut self, mirrors: VertexType, kind: Mirrors, tables: &Dataflow) {
        match kind {
            Mirrors::ShuffledSources(_) => self.sources = Some(mirrors),
            _ => self.destinations = Some(mirrors),
        }
        let to_them = |(_, decl): &(usize, &GraphDecl)| matches!(decl.share, EdgeShare::Out(_)) && decl.dst == mirrors;
        let found = tables.graphs.iter().enumerate().filter(to_them);
        self.out_edges.extend(found.map(|(graph, _)| Graph::new(graph)));
    }

    /// The number of vertices of the type, on all ranks.
    pub fn num_vertices(&self) -> usize {
        self.borders.last().copied().unwrap_or(0)
    }

    /// The sources of all edges, in the step that the data of the whole graph has been drawn for.
    pub(crate) fn drawn_in<'d>(&self, whole: &'d BoundData) -> &'d [u32] {
        let graph = whole.graphs.iter().find(|graph| graph.shuffle == Some(self.shuffle));
        graph.map_or(&[], |graph| &graph.csc.indices)
    }

    /// The rank that owns a vertex.
    fn owner(&self, vertex: usize) -> usize {
        self.borders[1..].partition_point(|&border| border <= vertex)
    }

    /// Takes the edges of a step, by the source of each in-edge of all vertices: routes to the mirrors, and the numbers of
    /// out-edges, of which dropout masks are functions.
    pub(crate) fn draw(&self, drawn: &[u32], routes: &mut [Option<Arc<Route>>], orders: &mut Orders) {
        let ranks = self.borders.len() - 1;
        let each = self.shuffle.permutations as usize;
        let own = self.borders[self.rank]..self.borders[self.rank + 1];
        let mut to_sources = vec![vec![]; ranks];
        let mut to_destinations = vec![vec![]; ranks];
        let mut places_of_sources = vec![vec![]; ranks];
        let mut places_of_destinations = vec![vec![]; ranks];
        // By row at a destination: the number of its edge. By owned source: the number of its rows so far.
        let mut numbers = vec![0; own.len() * each];
        let mut rows = vec![0; own.len()];
        for (rank, of_rank) in self.borders.windows(2).enumerate() {
            let edges = of_rank[0] * each..of_rank[1] * each;
            for (edge, &source) in edges.clone().zip(&drawn[edges]) {
                let source = source as usize;
                if own.contains(&source) {
                    let own_source = source - own.start;
                    let row = own_source * each + rows[own_source];
                    rows[own_source] += 1;
                    numbers[row] = edge as u32;
                    to_sources[rank].push(own_source as u32);
                    places_of_destinations[rank].push(row as u32);
                }
                if rank == self.rank {
                    let owner = self.owner(source);
                    to_destinations[owner].push((edge / each - own.start) as u32);
                    places_of_sources[owner].push((edge - own.start * each) as u32);
                }
            }
        }
        if let Some(sources) = self.sources {
            routes[sources.index()] = Some(Arc::new(route(&to_sources, &places_of_sources)));
        }
        if let Some(destinations) = self.destinations {
            routes[destinations.index()] = Some(Arc::new(route(&to_destinations, &places_of_destinations)));
        }
        for graph in &self.out_edges {
            let moved = (0..).zip(&numbers).map(|(at, number): (u32, &u32)| number.wrapping_sub(at));
            orders.moved[graph.index()] = Some(moved.collect());
        }
    }

    /// By sending rank and receiving rank: the rows of mirrors of a type that one rank has for another, in the step that
    /// the data of the whole graph has been drawn for. `None` for mirrors of other vertices.
    pub(crate) fn sent(&self, of: VertexType, mirrors: Mirrors, whole: &BoundData) -> Option<Vec<Vec<usize>>> {
        let Shuffle { vertex, permutations } = self.shuffle;
        if vertex != of || mirrors.permutations() != Some(permutations) {
            return None;
        }
        let ranks = self.borders.len() - 1;
        let mut sent = vec![vec![0; ranks]; ranks];
        for (edge, &source) in self.drawn_in(whole).iter().enumerate() {
            let (source, destination) = (self.owner(source as usize), self.owner(edge / permutations as usize));
            match mirrors {
                Mirrors::ShuffledSources(_) => sent[source][destination] += 1,
                _ => sent[destination][source] += 1,
            }
        }
        Some(sent)
    }
}

/// The route of rows that go to each rank, with the places of those that come from each.
fn route(sent: &[Vec<u32>], places: &[Vec<u32>]) -> Route {
    Route {
        send_rows: sent.iter().map(Vec::len).collect(),
        recv_rows: places.iter().map(Vec::len).collect(),
        send: sent.concat(),
        places: Some(places.concat()),
        first_own: None,
    }
}
