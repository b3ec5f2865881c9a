//! Recurrences over in-edges: a step for each position of the in-edges of a destination, one after the other.
//!
//! The graph of a position has at most one in-edge of each destination, so a step is an ordinary reduction over it, whose
//! edge values are computed anew for each position. A destination without that in-edge keeps its state.

use std::collections::HashMap;
use std::rc::Rc;

use hgnnc_diag::Span;
use hgnnc_hir::{self as hir, ExprId, Fold};
use hgnnc_ir::{BinaryOp, Direction, Graph, Op, Reduce, Space, Type};

use crate::Instance;
use crate::value::{Val, Values};

/// The rows that edge values of a recurrence are computed for.
pub struct FoldRows<'m> {
    /// The semantic graphs of the recurrence.
    graphs: &'m [Graph],
    at: At,
    /// The edge values that were computed for these rows.
    values: HashMap<ExprId, Rc<Values>>,
}

/// The place of edge values of a recurrence.
enum At {
    /// The destinations, for values that depend on nothing else.
    Destinations,
    /// The edges of these graphs, with the state before them.
    Edges(Vec<Graph>, Vec<Val>),
}

impl<'m> Instance<'m> {
    /// Is it an edge value of the recurrence that is being evaluated?
    fn is_of_fold(&self, id: ExprId) -> bool {
        let Some(fold) = &self.fold else { return false };
        let of = |row: &hir::Row| matches!(row.space, Space::Edges(graph) if fold.graphs.contains(&graph));
        self.model.expr(id).ty.rows().any(of)
    }

    /// The values of an expression within a recurrence. Those that are no edge values are the same in all of its steps.
    pub fn eval_in_fold(&mut self, id: ExprId) -> Rc<Values> {
        if !self.is_of_fold(id) {
            let fold = self.fold.take();
            let values = self.eval(id);
            self.fold = fold;
            return values;
        }
        let known = self.fold.as_ref().and_then(|fold| fold.values.get(&id).cloned());
        if let Some(known) = known {
            return known;
        }
        let values = Rc::new(self.compute(id));
        self.in_folds.push((id, values.clone()));
        let fold = self.fold.as_mut().expect("it is being evaluated");
        fold.values.insert(id, values.clone());
        values
    }

    /// The state before the edges.
    pub fn before(&self) -> Values {
        match self.fold.as_ref().map(|fold| &fold.at) {
            Some(At::Edges(_, states)) => Values::PerGraph(states.clone()),
            Some(At::Destinations) | None => unreachable!("a state stands in a step"),
        }
    }

    /// The graph whose edges stand for those of a semantic graph, or (`None`) its destinations.
    pub fn edges_here(&self, graph: Graph) -> Option<Graph> {
        let Some(fold) = &self.fold else { return Some(graph) };
        match (&fold.at, fold.graphs.iter().position(|of| *of == graph)) {
            (_, None) => Some(graph),
            (At::Destinations, Some(_)) => None,
            (At::Edges(graphs, ..), Some(member)) => Some(graphs[member]),
        }
    }

    /// The rows that stand for those of a space.
    pub fn space_here(&self, space: Space) -> Space {
        match space {
            Space::Edges(graph) => match self.edges_here(graph) {
                Some(graph) => Space::Edges(graph),
                None => Space::Vertices(self.end(graph, Direction::In)),
            },
            other => other,
        }
    }

    /// Edge values of a recurrence at these rows.
    fn at(&mut self, at: At, of: &'m Fold, id: ExprId, span: Span) -> Vec<Val> {
        let outer = self.fold.replace(FoldRows { graphs: &of.graphs, at, values: HashMap::new() });
        let values = self.eval(id);
        let mut rows = vec![];
        for (member, &graph) in of.graphs.iter().enumerate() {
            let value = match &*values {
                Values::One(value) => value,
                other => &other.per_graph()[member],
            };
            let ty = Type::new(self.space_here(Space::Edges(graph)), self.dims(value));
            rows.push(self.repeated(value, ty, span));
        }
        self.fold = outer;
        rows
    }

    /// The last state of each destination.
    pub fn fold_in_edges(&mut self, of: &'m Fold, span: Span) -> Values {
        let mut states = self.at(At::Destinations, of, of.first, span);
        let steps = of.positions.iter().map(|positions| positions.len()).max().unwrap_or(0);
        for step in 0..steps {
            // A family may have different limits: members that have reached theirs take their last step again, for nothing.
            let last = |positions: &std::sync::Arc<[Graph]>| positions[step.min(positions.len() - 1)];
            let graphs: Vec<Graph> = of.positions.iter().map(last).collect();
            let mut before = vec![];
            for (state, &graph) in states.iter().zip(&graphs) {
                before.push(self.gather(state, graph, Direction::In, span));
            }
            let behind = self.at(At::Edges(graphs.clone(), before), of, of.step, span);
            for (member, &graph) in graphs.iter().enumerate() {
                if step < of.positions[member].len() {
                    states[member] = self.next_state(&states[member], &behind[member], graph, span);
                }
            }
        }
        Values::PerGraph(states)
    }

    /// The state behind the edges of a graph where there are some, else the one before.
    fn next_state(&mut self, before: &Val, behind: &Val, graph: Graph, span: Span) -> Val {
        let sum = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum };
        let behind = Val::Stored(self.emit(sum, &[behind.stored()], span));
        let degree = self.degree(graph, Direction::In, span);
        let one = self.constant(1.0, span);
        let none = self.binary(BinaryOp::Sub, &one, &degree, span);
        let kept = self.binary(BinaryOp::Mul, before, &none, span);
        self.binary(BinaryOp::Add, &behind, &kept, span)
    }
}
