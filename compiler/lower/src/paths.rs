//! Values along path instances and at the ends of edges to predict.
//!
//! An instance is a vertex ([`hgnnc_ir::paths`]). A value at one of its positions is gathered along the graph from the
//! vertices there, whose in-edge of the instance is the only one, so that its sum is the value itself; then along the graph
//! to the vertex where the instance ends. Edges to predict have that graph the other way, whose edges are theirs.

use std::collections::BTreeMap;

use hgnnc_diag::Span;
use hgnnc_hir::{self as hir, EdgeData, ExprId, PathPart, Reduction};
use hgnnc_ir::{Direction, Graph, Op, Reduce, Space, Type};

use crate::value::{Val, Values};
use crate::{Instance, dims};

impl Instance<'_> {
    /// Vertex values at a position of path instances, as values of the edges at which these end.
    pub(crate) fn at_position(&mut self, x: ExprId, at: &[PathPart], span: Span) -> Values {
        let x = self.eval(x);
        let mut gathered = vec![];
        for (member, part) in at.iter().enumerate() {
            let (through, direction) = match part.through {
                Some(through) => (through, Direction::Out),
                None => (part.graph, self.away_from_instances(part.graph)),
            };
            let value = match &*x {
                Values::PerType(values) => &values[&self.end(through, direction)],
                Values::PerGraph(values) => &values[member],
                Values::One(_) | Values::ByGraph(_) => unreachable!("vertex values"),
            };
            let at_vertex = self.gather(value, through, direction, span);
            let value = match part.through {
                Some(through) if self.space(value) != Some(Space::Unit) => {
                    self.of_instances(&at_vertex, through, part.graph, span)
                }
                Some(_) | None => at_vertex,
            };
            gathered.push(value);
        }
        Values::PerGraph(gathered)
    }

    /// Data of the edges that leave a position of path instances.
    pub(crate) fn hop_data(
        &mut self,
        field: &str,
        data: &[(PathPart, EdgeData)],
        ty: &hir::Type,
        span: Span,
    ) -> Values {
        let through = |part: &PathPart| part.through.expect("an edge leaves the vertex");
        let edges: Vec<(Graph, EdgeData)> = data.iter().map(|(part, data)| (through(part), *data)).collect();
        let values = self.edge_data(field, &edges, ty, span);
        let mut at_instances = vec![];
        for (value, (part, _)) in values.per_graph().iter().zip(data) {
            at_instances.push(self.of_instances(value, through(part), part.graph, span));
        }
        Values::PerGraph(at_instances)
    }

    /// Values of the edges to instances, of which each has one, as values of the edges from instances.
    fn of_instances(&mut self, value: &Val, through: Graph, graph: Graph, span: Span) -> Val {
        let sum = Op::Segment { graph: through, direction: Direction::In, reduce: Reduce::Sum };
        let only = self.emit(sum, &[value.stored()], span);
        let at_instances = self.away_from_instances(graph).opposite();
        self.gather(&Val::Stored(only), graph, at_instances, span)
    }

    /// The end of a graph of instances, or of edges to predict, that is at the vertices where these end.
    fn away_from_instances(&self, graph: Graph) -> Direction {
        if self.model.tables.edges_of(graph).is_some() { Direction::Out } else { Direction::In }
    }

    /// Values of edges to predict as rows: each is the only in-edge of its row.
    pub(crate) fn edge_rows(&mut self, x: ExprId, graphs: &[Graph], ty: &hir::Type, span: Span) -> Values {
        let x = self.eval(x);
        let mut rows = BTreeMap::new();
        for (&graph, value) in graphs.iter().zip(x.per_graph()) {
            let vertex = self.end(graph, Direction::In);
            let hir::Type::PerType(types) = ty else { unreachable!("values of vertex types") };
            let at_edges = self.repeated(value, Type::new(Space::Edges(graph), dims(&types[&vertex])), span);
            let sum = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum };
            rows.insert(vertex, Val::Stored(self.emit(sum, &[at_edges.stored()], span)));
        }
        Values::PerType(rows)
    }

    /// The values of each member at the positions of its paths, reduced, or the last of them.
    pub(crate) fn along_path(
        &mut self,
        reduction: Option<Reduction>,
        parts: &[(ExprId, Vec<usize>)],
        members: usize,
        span: Span,
    ) -> Values {
        let mut all: Vec<Vec<Val>> = vec![vec![]; members];
        for (part, positions) in parts {
            let values = self.eval(*part);
            for (&position, value) in positions.iter().zip(values.per_graph()) {
                all[position].push(value.clone());
            }
        }
        let of_member = |values: Vec<Val>| match reduction {
            Some(reduction) => self.across(reduction, &values, span).one().clone(),
            None => values.last().expect("a path has vertices").clone(),
        };
        Values::PerGraph(all.into_iter().map(of_member).collect())
    }
}
