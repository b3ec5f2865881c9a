//! Semantic graphs that belong together: those of a relation or metapath, their reverses, pairs and edges to predict.

use std::collections::BTreeMap;

use hgnnc_ir::dataflow::{GraphDecl, SelfLoops, reversed};
use hgnnc_ir::{Direction, Graph, PathDecl, PathRows, VertexType};

use crate::Tables;

impl Tables {
    /// The value of a graph among values by graph. Pairs to score and edges to predict have the single row of their
    /// relation or metapath, where they have no value of their own.
    pub fn of_graph<'v, T>(&self, values: &'v BTreeMap<Graph, T>, graph: Graph) -> Option<&'v T> {
        let decl = &self.graphs[graph.index()];
        let steps = match self.edges_of(graph) {
            Some(edges) => Some(&edges.steps),
            None => decl.links.then_some(&decl.steps),
        };
        let joined = |other: &&Graph| {
            let decl = &self.graphs[other.index()];
            Some(&decl.steps) == steps && !decl.links && decl.self_loops == SelfLoops::Kept && has_all_edges(decl)
        };
        values.get(&graph).or_else(|| values.get(values.keys().find(joined)?))
    }

    /// The semantic graph, of those given, whose edges are those of another one the other way round. A symmetric
    /// metapath is its own reverse; that of pairs to score and of edges to predict is the reverse of their relation
    /// or metapath.
    pub fn reverse_of(&self, graph: Graph, graphs: impl IntoIterator<Item = Graph>) -> Option<Graph> {
        let decl = &self.graphs[graph.index()];
        let scored = decl.links || self.edges_of(graph).is_some();
        let steps = reversed(self.edges_of(graph).map_or(&decl.steps, |edges| &edges.steps));
        graphs.into_iter().find(|other| {
            let other = &self.graphs[other.index()];
            let same_kind = match scored {
                true => other.self_loops == SelfLoops::Kept,
                false => (other.counted, other.self_loops) == (decl.counted, decl.self_loops),
            };
            let same_vertices = !steps.is_empty() || (other.src, other.dst) == (decl.dst, decl.src);
            let complete = has_all_edges(other) && has_all_edges(decl);
            same_kind && same_vertices && other.steps == steps && !other.links && complete
        })
    }

    /// The edges to predict that the edges of a graph are: it leads to them from their destinations.
    pub fn edges_of(&self, graph: Graph) -> Option<&PathDecl> {
        let [step] = self.graphs.get(graph.index())?.steps[..] else { return None };
        let is_it = |path: &&PathDecl| path.rows == PathRows::Edges && path.relations.last() == Some(&step.relation);
        self.paths.iter().find(is_it)
    }

    /// The vertex type at an end of a graph of a family (`In`: the destination). For edges to predict, the ends are
    /// those of their relation.
    pub fn end(&self, graph: Graph, direction: Direction) -> VertexType {
        let decl = &self.graphs[graph.index()];
        match (direction, self.edges_of(graph)) {
            (Direction::In, None) => decl.dst,
            (Direction::Out, None) | (Direction::In, Some(_)) => decl.src,
            (Direction::Out, Some(edges)) => self.relations[edges.relations[0] as usize].src,
        }
    }
}

/// Whether a graph has all edges of its relation or metapath, and no others.
fn has_all_edges(decl: &GraphDecl) -> bool {
    decl.shuffle.is_none() && decl.kept.is_none() && decl.derived.is_none()
}
