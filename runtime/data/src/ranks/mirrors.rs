//! The rows of vertices of other ranks.

use hgnnc_graph::Adjacency;
use hgnnc_ir::dataflow::GraphDecl;
use hgnnc_ir::types::VertexType;
use hgnnc_ir::{EdgeShare, Mirrors, VertexRows};

use super::{Divider, Route, Rows, owner, within};
use crate::bound::Topology;

impl Divider<'_> {
    /// The rows of a vertex type, and the route to them for mirrors.
    pub(super) fn vertices(&self, vertex: VertexType) -> (Rows, Option<Route>) {
        let VertexRows::Mirrors(of, mirrors) = self.tables.vertex_types[vertex.index()].rows else {
            return (Rows::Range(self.owned(vertex, self.rank)), None);
        };
        let own = self.owned(of, self.rank);
        if let Some(permutations) = mirrors.permutations() {
            return (Rows::Drawn(own.len() * permutations as usize), None);
        }
        let (rows, sent) = match mirrors {
            Mirrors::All => {
                (Rows::Range(0..self.count(of)), vec![(0..own.len() as u32).collect(); self.division.ranks])
            }
            _ => (Rows::List(self.mirrored(of, mirrors, self.rank)), self.needed_elsewhere(of, mirrors)),
        };
        let received = |rank: usize| {
            let owned = self.owned(of, rank);
            match &rows {
                Rows::List(rows) => within(rows, &owned).len(),
                _ => owned.len(),
            }
        };
        let recv_rows: Vec<usize> = (0..self.division.ranks).map(received).collect();
        let route = Route {
            // A rank mirrors all of its rows, and its vertices are consecutive among those of a type.
            first_own: Some(recv_rows[..self.rank].iter().sum()),
            recv_rows,
            send_rows: sent.iter().map(Vec::len).collect(),
            send: sent.concat(),
            places: None,
        };
        (rows, Some(route))
    }

    /// By rank: the rows of this one that it needs, ascending. They are at the other ends of the edges of its vertices.
    fn needed_elsewhere(&self, of: VertexType, mirrors: Mirrors) -> Vec<Vec<u32>> {
        let own = self.owned(of, self.rank);
        let mut needed = vec![vec![]; self.division.ranks];
        // By rank: one more than the last row that it needs.
        let mut last = vec![0; self.division.ranks];
        let edges: Vec<(&Adjacency, Vec<usize>)> = self
            .edges_to_mirrors(of, mirrors)
            .map(|(_, to, other)| (to, (0..self.division.ranks).map(|rank| self.owned(other, rank).end).collect()))
            .collect();
        for (row, vertex) in (0..).zip(own.clone()) {
            last[self.rank] = row + 1;
            needed[self.rank].push(row);
            for (adjacency, ends) in &edges {
                let others = adjacency.indptr[vertex] as usize..adjacency.indptr[vertex + 1] as usize;
                for &other in &adjacency.indices[others] {
                    let rank = ends.partition_point(|&end| end <= other as usize);
                    if last[rank] != row + 1 {
                        last[rank] = row + 1;
                        needed[rank].push(row);
                    }
                }
            }
        }
        let mut sorted = true;
        let listed = self.mirrored_along_lists(of, mirrors).filter(|(row, _)| own.contains(&(*row as usize)));
        for (number, rank) in listed {
            needed[rank].push(number - own.start as u32);
            sorted = false;
        }
        if !sorted {
            needed.iter_mut().for_each(|rows| {
                rows.sort_unstable();
                rows.dedup();
            });
        }
        needed
    }

    /// The graphs whose ends are mirrored.
    fn mirroring(&self) -> impl Iterator<Item = (&Topology, &GraphDecl)> {
        let graphs = self.whole.graphs.iter().zip(&self.tables.graphs);
        graphs.filter(|(graph, decl)| decl.share == EdgeShare::In && decl.shuffle.is_none() && graph.deferred.is_none())
    }

    /// The vertices of a type at the ends of listed edges, each with the rank that mirrors it because of the edge.
    fn mirrored_along_lists(&self, of: VertexType, mirrors: Mirrors) -> impl Iterator<Item = (u32, usize)> {
        self.mirroring().filter(|(graph, _)| graph.listed.is_some()).flat_map(move |(graph, decl)| {
            let (src, dst) = (self.tables.owned_type(decl.src), decl.dst);
            let (end, other) = if mirrors == Mirrors::Sources { (src, dst) } else { (dst, src) };
            let edges = if end == of { graph.edges() } else { vec![] };
            let borders = self.divided(other).borders();
            edges.into_iter().map(move |(src, dst)| {
                let (row, other) = if mirrors == Mirrors::Sources { (src, dst) } else { (dst, src) };
                (row, owner(&borders, other))
            })
        })
    }

    /// The edges along which vertices of a type are mirrored: those of their mirrors' ranks, those of their own rank, and
    /// the type at the other end.
    fn edges_to_mirrors(
        &self,
        of: VertexType,
        mirrors: Mirrors,
    ) -> impl Iterator<Item = (&Adjacency, &Adjacency, VertexType)> {
        self.mirroring().filter(|(graph, _)| graph.listed.is_none()).filter_map(move |(graph, decl)| {
            let (src, dst) = (self.tables.owned_type(decl.src), decl.dst);
            match mirrors {
                Mirrors::Sources if src == of => Some((&graph.csc, &graph.csr, dst)),
                Mirrors::Destinations if dst == of => Some((&graph.csr, &graph.csc, src)),
                _ => None,
            }
        })
    }

    /// The vertices of a type that a rank owns or mirrors, ascending.
    pub(super) fn mirrored(&self, of: VertexType, mirrors: Mirrors, rank: usize) -> Vec<u32> {
        let mut needed = vec![false; self.count(of)];
        needed[self.owned(of, rank)].fill(true);
        for (adjacency, _, other) in self.edges_to_mirrors(of, mirrors) {
            let rows = self.owned(other, rank);
            let edges = adjacency.indptr[rows.start] as usize..adjacency.indptr[rows.end] as usize;
            adjacency.indices[edges].iter().for_each(|&end| needed[end as usize] = true);
        }
        for (row, _) in self.mirrored_along_lists(of, mirrors).filter(|&(_, by)| by == rank) {
            needed[row as usize] = true;
        }
        (0..).zip(needed).filter_map(|(row, needed)| needed.then_some(row)).collect()
    }
}
