//! Semantic graphs that belong together: those of a relation or metapath, their reverses, pairs and edges to predict.

use std::collections::BTreeMap;

use hgnnc_ir::dataflow::{SelfLoops, Step, reversed};
use hgnnc_ir::{Direction, Graph, PathDecl, PathRows, VertexType};

use crate::Tables;

impl Tables {
    /// The value of a graph among values by graph. Pairs to score, edges to predict and path instances have the rows of
    /// their relation or metapath, and this those of its path instances, where they have no value of their own.
    pub fn of_graph<'v, T>(&self, values: &'v BTreeMap<Graph, T>, graph: Graph) -> Option<&'v T> {
        let joined = |other: &&Graph| {
            let twins = self.hops(**other) == self.hops(graph) && self.is_plain(graph) != self.is_plain(**other);
            let kept = |graph: Graph| self.graphs[graph.index()].self_loops == SelfLoops::Kept;
            twins && self.hops(graph).is_some() && self.has_messages(**other) && kept(graph) && kept(**other)
        };
        values.get(&graph).or_else(|| values.get(values.keys().find(joined)?))
    }

    /// The semantic graph, of those given, whose edges are those of another one the other way round. A symmetric
    /// metapath is its own reverse; that of pairs to score, of edges to predict and of path instances is the reverse of
    /// their relation or metapath.
    pub fn reverse_of(&self, graph: Graph, graphs: impl IntoIterator<Item = Graph>) -> Option<Graph> {
        let decl = &self.graphs[graph.index()];
        let steps = reversed(self.hops(graph)?);
        graphs.into_iter().find(|&other| {
            let of_other = &self.graphs[other.index()];
            let same_kind = match self.is_plain(graph) && self.is_plain(other) {
                true => (of_other.counted, of_other.self_loops) == (decl.counted, decl.self_loops),
                false => of_other.self_loops == SelfLoops::Kept,
            };
            let same_vertices = !steps.is_empty() || (of_other.src, of_other.dst) == (decl.dst, decl.src);
            same_kind && same_vertices && self.has_messages(other) && self.hops(other) == Some(&steps)
        })
    }

    /// The hops that are edges of a graph, or pairs of one to score; `None` where it has some of them only, or others.
    fn hops(&self, graph: Graph) -> Option<&[Step]> {
        let decl = &self.graphs[graph.index()];
        match self.edges_of(graph).or_else(|| self.walks_of(graph)) {
            Some(PathDecl { rows: PathRows::Walks { at_most: Some(_) }, .. }) => None,
            Some(path) => Some(&path.steps),
            None if decl.shuffle.is_some() || decl.kept.is_some() || decl.derived.is_some() => None,
            None => Some(&decl.steps),
        }
    }

    /// Is it a semantic graph itself, and neither one of pairs or edges to predict nor one of path instances?
    fn is_plain(&self, graph: Graph) -> bool {
        !self.graphs[graph.index()].links && self.edges_of(graph).is_none() && self.walks_of(graph).is_none()
    }

    /// Do layers send messages along its edges?
    fn has_messages(&self, graph: Graph) -> bool {
        !self.graphs[graph.index()].links && self.edges_of(graph).is_none()
    }

    /// The path instances that are the in-edges of a graph.
    fn walks_of(&self, graph: Graph) -> Option<&PathDecl> {
        let src = self.graphs.get(graph.index())?.src;
        self.paths.iter().find(|path| path.vertex == src && matches!(path.rows, PathRows::Walks { .. }))
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
