//! Values along path instances.
//!
//! An instance is a vertex ([`hgnnc_ir::paths`]). A value at one of its positions is gathered along the graph from the
//! vertices there, whose in-edge of the instance is the only one, so that its sum is the value itself; then along the graph
//! to the vertex where the instance ends.

use hgnnc_diag::Span;
use hgnnc_hir::{self as hir, EdgeData, ExprId, PathPart, Reduction};
use hgnnc_ir::{Direction, Graph, Op, Reduce, Space};

use crate::Instance;
use crate::value::{Val, Values};

impl Instance<'_> {
    /// Vertex values at a position of path instances, as values of the edges at which these end.
    pub(crate) fn at_position(&mut self, x: ExprId, at: &[PathPart], span: Span) -> Values {
        let x = self.eval(x);
        let mut gathered = vec![];
        for (member, part) in at.iter().enumerate() {
            let (through, direction) = match part.through {
                Some(through) => (through, Direction::Out),
                None => (part.graph, Direction::In),
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
        self.gather(&Val::Stored(only), graph, Direction::Out, span)
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
