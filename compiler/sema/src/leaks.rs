//! Leaks: outputs that may read the label that they are compared with.
//!
//! `train_labels(Paper.topic)` has a row for each paper, 0 outside of the training part. A paper of the training part must not
//! see its own row: the loss would reward copying it, and a paper to predict has none. So every value is described by the
//! vertices whose labels its rows may depend on ([`Reach`]), seen from the vertex that a row belongs to; for a value of edges,
//! that is their destination.
//!
//! | label rows of | where |
//! | --- | --- |
//! | the vertex itself | the labels, and what is computed of them row by row |
//! | other vertices | behind a graph of the label's vertex type that has no edge (v, v) |
//! | perhaps the vertex itself, on a way back | behind any other graph, behind a further one, and what combines all rows |
//!
//! Labels of which each step of training hides a share are not followed: it compares the vertices whose labels it hides.
//!
//! Any other operation is a way back. Parameters are not followed: they learn from all labels anyway.

use std::collections::BTreeMap;
use std::sync::Arc;

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::{Expr, ExprId, ExprKind as Kind, FeatureKind, Features, Model, Type};
use hgnnc_ir::dataflow::SelfLoops;
use hgnnc_ir::{Direction, Graph, Space, VertexType};

use crate::train::TrainChecker;

/// The vertices whose labels a row may depend on.
#[derive(Clone, Copy, Default, Debug)]
struct Reach {
    /// The vertex that the row belongs to, by its own row of the labels, which this is.
    own: Option<Span>,
    /// Vertices that are not this one.
    others: bool,
    /// Any vertices, perhaps this one.
    back: Option<Way>,
}

/// A way on which the label of a vertex may come back to it.
#[derive(Clone, Copy, Debug)]
struct Way {
    by: By,
    /// The place of the operation after which labels may come back.
    at: Span,
    /// The use of a layer that has it.
    used: Option<Span>,
}

/// The step that rows are not apart after.
#[derive(Clone, Copy, Debug)]
enum By {
    /// The labels' first graph, which may have an edge (v, v).
    Loops(Graph),
    /// A graph behind the first one.
    SecondHop(Graph),
    /// A graph to another vertex type.
    OtherType(Graph),
    /// Vertices of path instances, pairs to score and edges to predict.
    Vertices,
    /// A reduction over all rows, or another function of them.
    Rows,
}

impl Reach {
    fn is_none(&self) -> bool {
        self.own.is_none() && !self.others && self.back.is_none()
    }

    fn and(self, other: Self) -> Self {
        Self { own: self.own.or(other.own), others: self.others || other.others, back: self.back.or(other.back) }
    }

    fn is_more_than(&self, known: &Self) -> bool {
        let is_new = |now: bool, before: bool| now && !before;
        is_new(self.own.is_some(), known.own.is_some())
            || is_new(self.others, known.others)
            || is_new(self.back.is_some(), known.back.is_some())
    }

    /// A row that depends on all rows of this value.
    fn mixed(self, by: By, at: Span) -> Self {
        let way = Way { by, at, used: None };
        Self { back: self.back.or((!self.is_none()).then_some(way)), ..Self::default() }
    }
}

fn joined<'r>(all: impl IntoIterator<Item = &'r Reach>) -> Reach {
    all.into_iter().fold(Reach::default(), |joined, reach| joined.and(*reach))
}

/// Are these the rows of a label (`Paper.topic`) that each vertex may see?
fn is_label(features: &Features, vertex: VertexType, label: &str) -> bool {
    matches!(features.kind, FeatureKind::TrainLabels { hidden: 0.0 })
        && features.vertex == vertex
        && features.name == label
}

/// The reaches of all expressions of a model, for one label.
struct Reaches<'m> {
    model: &'m Model,
    /// Vertex type and name of the label: `Paper.topic`.
    vertex: VertexType,
    label: &'m str,
    /// By expression: one for each value, in the order of its type.
    known: Vec<Vec<Reach>>,
    /// By recurrence over in-edges, the expression of the state before an edge: what a state may depend on.
    states: BTreeMap<ExprId, Vec<Reach>>,
}

impl<'m> Reaches<'m> {
    fn new(model: &'m Model, vertex: VertexType, label: &'m str) -> Self {
        let mut reaches = Self { model, vertex, label, known: vec![], states: BTreeMap::new() };
        // States depend on states: once more until they depend on nothing new. Without recurrences, that is once.
        loop {
            reaches.known.clear();
            for (row, expr) in model.exprs.iter().enumerate() {
                let found = reaches.of(ExprId::new(row), expr);
                reaches.known.push(found);
            }
            if !reaches.add_states() {
                return reaches;
            }
        }
    }

    /// Adds what the states of recurrences depend on to what was known of them. Gives whether it was less.
    fn add_states(&mut self) -> bool {
        let mut is_more = false;
        for expr in &self.model.exprs {
            let Kind::Fold(fold) = &expr.kind else { continue };
            let num = fold.graphs.len();
            let state = |position| self.at(fold.first, position, num).and(self.at(fold.step, position, num));
            let states: Vec<Reach> = (0..num).map(state).collect();
            let known = self.states.insert(fold.before, states.clone()).unwrap_or_else(|| vec![Reach::default(); num]);
            is_more |= states.iter().zip(known).any(|(state, known)| state.is_more_than(&known));
        }
        is_more
    }

    /// The reaches of an expression's values.
    fn of(&self, id: ExprId, expr: &Expr) -> Vec<Reach> {
        let mut found = self.of_kind(id, &expr.kind, &expr.ty, expr.span);
        for (reach, row) in found.iter_mut().zip(expr.ty.rows()) {
            // Rows of anything else are not of one vertex.
            if !self.is_of_vertices(row.space) && (reach.own.is_some() || reach.others) {
                *reach = reach.mixed(By::Rows, expr.span);
            }
        }
        found
    }

    /// Do rows of this space belong to vertices of the label's type?
    fn is_of_vertices(&self, space: Space) -> bool {
        match space {
            Space::Vertices(vertex) => vertex == self.vertex,
            Space::Edges(graph) => self.model.tables.graphs[graph.index()].dst == self.vertex,
            Space::Unit | Space::Index(_) | Space::Endpoints(..) => false,
        }
    }

    fn all(&self, x: ExprId) -> &[Reach] {
        &self.known[x.index()]
    }

    fn ty(&self, x: ExprId) -> &'m Type {
        &self.model.expr(x).ty
    }

    /// The reach of the value at a position, of a single value or of one for each.
    fn at(&self, x: ExprId, position: usize, num_values: usize) -> Reach {
        match self.all(x) {
            [single] => *single,
            all if all.len() == num_values => all[position],
            all => joined(all),
        }
    }

    fn of_type(&self, x: ExprId, vertex: VertexType) -> Reach {
        let position = match self.ty(x) {
            Type::PerType(rows) => rows.keys().position(|known| *known == vertex),
            Type::One(_) | Type::PerGraph(_) | Type::ByGraph(_) => None,
        };
        position.map_or_else(|| joined(self.all(x)), |position| self.all(x)[position])
    }

    fn of_graph(&self, x: ExprId, graph: Graph) -> Reach {
        let position = match self.ty(x) {
            Type::ByGraph(rows) => rows.keys().position(|known| *known == graph),
            Type::One(_) | Type::PerGraph(_) | Type::PerType(_) => None,
        };
        position.map_or_else(|| joined(self.all(x)), |position| self.all(x)[position])
    }

    fn of_kind(&self, id: ExprId, kind: &Kind, ty: &Type, at: Span) -> Vec<Reach> {
        let num = ty.num_values();
        let destination = |graph: &Graph| self.model.tables.end(*graph, Direction::In);
        // Of a value for each graph that ends in a vertex type.
        let over_edges = |x: ExprId, graphs: &[Graph], vertex: VertexType| {
            let ends = graphs.iter().enumerate().filter(|(_, graph)| destination(graph) == vertex);
            joined(&ends.map(|(position, _)| self.at(x, position, graphs.len())).collect::<Vec<_>>())
        };
        match kind {
            Kind::Features(features) => {
                let own = is_label(features, self.vertex, self.label).then_some(at);
                vec![Reach { own, ..Reach::default() }]
            }
            Kind::Number(_)
            | Kind::Param(..)
            | Kind::Layer(_)
            | Kind::Zeros
            | Kind::Degree(..)
            | Kind::DegreeAtEnd { .. }
            | Kind::EdgeData(..)
            | Kind::HopData(..) => vec![Reach::default(); num],

            Kind::Result(layer, of, position) => {
                let used = self.model.expr(*layer).span;
                let (_, result) = self.model.uses[of.index()].results[*position];
                let within = |way: Way| Way { used: way.used.or(Some(used)), ..way };
                self.all(result).iter().map(|reach| Reach { back: reach.back.map(within), ..*reach }).collect()
            }
            Kind::OfType(x, vertex) => vec![self.of_type(*x, *vertex)],
            Kind::Types(parts) => {
                let Type::PerType(rows) = ty else { return vec![joined(parts.iter().flat_map(|of| self.all(of.1)))] };
                let part = |vertex: &VertexType| parts.iter().find(|(known, _)| known == vertex);
                let of = |vertex| part(vertex).map_or_else(Reach::default, |(_, x)| self.of_type(*x, *vertex));
                rows.keys().map(of).collect()
            }
            Kind::Members(x, positions) => positions.iter().map(|position| self.all(*x)[*position]).collect(),
            Kind::Repeat(x) => vec![joined(self.all(*x)); num],
            Kind::OfGraphs(x, graphs) => graphs.iter().map(|graph| self.of_graph(*x, *graph)).collect(),
            Kind::ByGraph(x, graphs) => {
                let Type::ByGraph(rows) = ty else { return vec![joined(self.all(*x)); num] };
                let of = |graph: &Graph| match graphs.iter().position(|known| known == graph) {
                    Some(position) => self.at(*x, position, graphs.len()),
                    None => joined(self.all(*x)),
                };
                rows.keys().map(of).collect()
            }
            Kind::RowsByGraph(parts) => {
                let Type::ByGraph(rows) = ty else { unreachable!("values by semantic graph") };
                let of = |graph: &Graph| {
                    let own = |(part, graphs): &(ExprId, Arc<[Graph]>)| {
                        Some(self.at(*part, graphs.iter().position(|known| known == graph)?, graphs.len()))
                    };
                    parts.iter().find_map(own).unwrap_or_default()
                };
                rows.keys().map(of).collect()
            }

            Kind::OverInEdges { x, across: false, .. } => (0..num).map(|p| self.at(*x, p, num)).collect(),
            Kind::OverInEdges { x, graphs, .. } => match ty {
                Type::PerType(rows) => rows.keys().map(|vertex| over_edges(*x, graphs, *vertex)).collect(),
                _ => graphs.iter().map(|graph| over_edges(*x, graphs, destination(graph))).collect(),
            },
            // The values of one vertex, or of single rows.
            Kind::Across(_, x) => vec![joined(self.all(*x)); num],
            Kind::AtEnd(end, x, graphs) => {
                let at_end = |(position, graph): (usize, &Graph)| {
                    let reach = match self.ty(*x) {
                        Type::PerType(_) => self.of_type(*x, self.model.tables.end(*graph, *end)),
                        _ => self.at(*x, position, graphs.len()),
                    };
                    self.along(reach, *graph, *end, at)
                };
                graphs.iter().enumerate().map(at_end).collect()
            }

            // Steps over the in-edges of one destination.
            Kind::Fold(fold) => (0..num).map(|p| self.at(fold.first, p, num).and(self.at(fold.step, p, num))).collect(),
            Kind::Before(_) => self.states.get(&id).cloned().unwrap_or_else(|| vec![Reach::default(); num]),

            Kind::AtPosition(x, _) | Kind::EdgeRows(x, _) => vec![joined(self.all(*x)).mixed(By::Vertices, at); num],
            Kind::AlongPath(_, parts, _) => {
                let all = joined(parts.iter().flat_map(|(part, _)| self.all(*part)));
                vec![all.mixed(By::Vertices, at); num]
            }
            Kind::OverRows(_, x) | Kind::Norm { x, over_rows: true, .. } => {
                (0..num).map(|position| self.at(*x, position, num).mixed(By::Rows, at)).collect()
            }
            Kind::SumOfSquares(parts) => {
                vec![joined(parts.iter().flat_map(|part| self.all(*part))).mixed(By::Rows, at); num]
            }

            // Row by row.
            Kind::Unary(..)
            | Kind::Binary(..)
            | Kind::Pow(..)
            | Kind::Dropout(..)
            | Kind::StopGradient(_)
            | Kind::Broadcast(_)
            | Kind::Flatten(_)
            | Kind::Reshape(_)
            | Kind::Concat(..)
            | Kind::Slice { .. }
            | Kind::Transpose(_)
            | Kind::Product(..)
            | Kind::MatrixProduct(..)
            | Kind::Dot(..)
            | Kind::Linear { .. }
            | Kind::Norm { over_rows: false, .. }
            | Kind::L2Normalize(..)
            | Kind::RowNormalize(_)
            | Kind::OverDimension(..)
            | Kind::Scores(_) => {
                let operands = kind.operands();
                let of = |position| joined(&operands.iter().map(|x| self.at(*x, position, num)).collect::<Vec<_>>());
                (0..num).map(of).collect()
            }
        }
    }

    /// A value of vertices at an end of the edges of a graph.
    fn along(&self, reach: Reach, graph: Graph, end: Direction, at: Span) -> Reach {
        let tables = &self.model.tables;
        let decl = &tables.graphs[graph.index()];
        if reach.is_none() {
            return reach;
        }
        if decl.links || tables.edges_of(graph).is_some() {
            return reach.mixed(By::Vertices, at);
        }
        if end == Direction::In {
            return reach;
        }
        let is_apart = decl.src == self.vertex
            && decl.dst == self.vertex
            && decl.self_loops == SelfLoops::Removed
            && decl.shuffle.is_none();
        let by = if reach.others {
            Some(By::SecondHop(graph))
        } else if reach.own.is_none() || is_apart {
            None
        } else if decl.dst == self.vertex {
            Some(By::Loops(graph))
        } else {
            Some(By::OtherType(graph))
        };
        let back = reach.back.or(by.map(|by| Way { by, at, used: None }));
        Reach { own: None, others: reach.own.is_some() && is_apart, back }
    }
}

impl TrainChecker<'_, '_> {
    /// Refuses an output of vertices that may read the label that it is compared with, at `compared`.
    pub(crate) fn check_leak(
        &mut self,
        (output, value): (&str, ExprId),
        (vertex, label): (VertexType, &str),
        compared: Span,
    ) {
        let is_read = |expr: &&Expr| matches!(&expr.kind, Kind::Features(of) if is_label(of, vertex, label));
        let Some(read) = self.checker.model.exprs.iter().find(is_read).map(|expr| expr.span) else { return };
        let reach = joined(Reaches::new(&self.checker.model, vertex, label).all(value));
        let report = match (reach.own, reach.back) {
            (Some(own), _) => self.own_label(own, output, vertex),
            (None, Some(way)) => self.way_back(way, output, vertex).label(read, "the labels come in here"),
            (None, None) => return,
        };
        let report = report.label(compared, format!("`{output}` is compared with `{label}` here")).note(format!(
            "a vertex of the training part would be scored for copying its own label, which a vertex to predict does not have; \
             `train_labels({label}, hidden: 0.5)` hides half of the labels in each step, which are learned from the others over any graphs",
        ));
        self.checker.report(report);
    }

    fn own_label(&self, own: Span, output: &str, vertex: VertexType) -> Diagnostic {
        let name = self.checker.vertex_name(vertex);
        let message = format!("`{output}` reads the label that it is compared with");
        let label = format!("each `{name}` has its own label here, and the output keeps it");
        Diagnostic::at(codes::LABEL_LEAK, own, message, label).help(self.one_hop(vertex))
    }

    fn way_back(&self, way: Way, output: &str, vertex: VertexType) -> Diagnostic {
        let name = self.checker.vertex_name(vertex);
        let decl = |graph: Graph| &self.checker.model.tables.graphs[graph.index()];
        let written = |graph: Graph| self.checker.schema.written(decl(graph));
        // A graph is chosen where the layer is used, and in the library nothing can be changed.
        let of_graph = matches!(way.by, By::Loops(_) | By::SecondHop(_) | By::OtherType(_));
        let at = way.used.filter(|_| of_graph || !self.checker.is_edited(way.at)).unwrap_or(way.at);
        let (label, help) = match way.by {
            By::Loops(graph) if decl(graph).shuffle.is_some() => (
                format!("along `{}`, a `{name}` may have its own row", written(graph)),
                "shuffle a value without labels".to_owned(),
            ),
            By::Loops(graph) if decl(graph).steps.is_empty() => {
                (format!("along `{}`, each `{name}` has its own label", written(graph)), self.one_hop(vertex))
            }
            By::Loops(graph) => {
                let kept = hgnnc_ir::dataflow::GraphDecl { self_loops: SelfLoops::Removed, ..decl(graph).clone() };
                let label = format!("along `{}`, a `{name}` may be its own neighbour", written(graph));
                (label, format!("write `{}`, which has no edge from a vertex to itself", self.checker.schema.written(&kept)))
            }
            By::SecondHop(graph) => (
                format!("along `{}`, labels of neighbours may come back to where they are from", written(graph)),
                "let labels go along one semantic graph only: make it the last layer that reads them, beside others that do \
                 not, or declare a longer metapath for a further hop"
                    .to_owned(),
            ),
            By::OtherType(graph) => {
                let to = self.checker.vertex_name(self.checker.model.tables.end(graph, Direction::In));
                let label = format!("along `{}`, labels of `{name}` go to `{to}`, and may come back", written(graph));
                (label, self.one_hop(vertex))
            }
            By::Vertices => (
                "path instances and pairs of vertices may hold a vertex more than once".to_owned(),
                self.one_hop(vertex),
            ),
            By::Rows => (
                format!("combines the rows of several vertices, among them that of the `{name}` itself"),
                "combine rows of values that hold no labels".to_owned(),
            ),
        };
        let message = format!("`{output}` may read the label that it is compared with");
        Diagnostic::at(codes::LABEL_LEAK, at, message, label).help(help)
    }

    /// The way for labels that is right, with a graph of the schema where there is one.
    fn one_hop(&self, vertex: VertexType) -> String {
        let name = self.checker.vertex_name(vertex);
        let (schema, of) = (self.checker.schema, vertex.index());
        let metapath = schema.metapaths.iter().find(|m| (m.src, m.dst) == (of, of)).map(|m| &m.name);
        let relation = schema.relations.iter().find(|r| (r.src, r.dst) == (of, of)).map(|r| &r.name);
        match metapath.or(relation) {
            Some(graph) => format!("give `{name}` the labels of others, by a layer over `without_self_loops({graph})`"),
            None => format!(
                "give `{name}` the labels of others: declare a metapath from `{name}` to `{name}`, and use a layer over \
                 `without_self_loops(…)` of it"
            ),
        }
    }
}
