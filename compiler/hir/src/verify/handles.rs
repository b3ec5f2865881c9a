//! Handles: all exist, and expressions refer to earlier ones.

use hgnnc_ir::{Dataflow, Graph, Space, VertexType};

use super::{Place, Verifier};
use crate::{Dim, Entry, Expr, ExprId, ExprKind, Item, OutputOf, PathPart, Type, Width};

impl Verifier<'_> {
    /// Checks handles. Without violations, everything that is named can be looked up.
    pub(super) fn handles(&mut self) -> bool {
        let model = self.model;
        self.tables();
        for (row, expr) in model.exprs.iter().enumerate() {
            let id = ExprId::new(row);
            for operand in expr.kind.operands() {
                if operand >= id {
                    self.report(Place::Expr(id), format!("its operand {operand} is not before it"));
                }
            }
            self.of_kind(id, &expr.kind);
            self.of_type(id, expr);
        }
        for (row, layer) in model.uses.iter().enumerate() {
            self.exprs(Place::Use(row), layer.exprs());
            self.graphs(Place::Use(row), &layer.graphs);
            let blocks = layer.body.iter().filter_map(|item| match item {
                Item::Block(block) => Some(block),
                Item::Stmt(_) => None,
            });
            let vertices = blocks.flat_map(|block| &block.instances).filter_map(|instance| instance.vertex);
            self.vertices(Place::Use(row), vertices);
        }
        for (row, stmt) in model.body.iter().enumerate() {
            self.exprs(Place::Statement(row), [stmt.value]);
        }
        for (row, output) in model.outputs.values().enumerate() {
            self.exprs(Place::Output(row), [output.of.value()]);
            if let OutputOf::Vertices(vertex, _) = output.of {
                self.vertices(Place::Output(row), [vertex]);
            }
        }
        for term in model.loss.iter().flat_map(|loss| &loss.terms) {
            self.exprs(Place::Loss, [term.value]);
            self.vertices(Place::Loss, term.kind.label().map(|label| label.vertex));
        }
        self.violations.is_empty()
    }

    /// The tables are those of a dataflow program.
    fn tables(&mut self) {
        let tables = &self.model.tables;
        let mut flow = Dataflow::new(&self.model.name);
        flow.vertex_types.clone_from(&tables.vertex_types);
        flow.relations.clone_from(&tables.relations);
        flow.graphs.clone_from(&tables.graphs);
        flow.families.clone_from(&tables.families);
        flow.paths.clone_from(&tables.paths);
        for broken in hgnnc_ir::verify(&flow).err().into_iter().flatten() {
            self.report(Place::Table(broken.place), broken.message);
        }
    }

    /// The handles of a kind of expression, other than its operands.
    fn of_kind(&mut self, id: ExprId, kind: &ExprKind) {
        let place = Place::Expr(id);
        match kind {
            ExprKind::Features(features) => self.vertices(place, [features.vertex]),
            ExprKind::Param(param, entries) => {
                if param.index() >= self.model.params.len() {
                    self.report(place, "there is no such parameter");
                }
                self.entries(place, entries);
            }
            ExprKind::Linear { names, .. } | ExprKind::Norm { names, .. } => self.entries(place, &names.entries),
            ExprKind::Layer(layer) => match self.model.uses.get(layer.index()) {
                None => self.report(place, "there is no such use of a layer"),
                Some(layer) => {
                    if let Some(later) = layer.exprs().find(|inner| *inner >= id) {
                        self.report(place, format!("its part {later} is not before it"));
                    }
                }
            },
            ExprKind::Result(layer, of, position) => {
                let layer = self.model.exprs.get(layer.index()).map(|layer| &layer.kind);
                let results = self.model.uses.get(of.index()).map_or(0, |of| of.results.len());
                if !matches!(layer, Some(ExprKind::Layer(layer)) if layer == of) || *position >= results {
                    self.report(place, "it is no result of this layer");
                }
            }
            ExprKind::OfType(_, vertex) => self.vertices(place, [*vertex]),
            ExprKind::Types(parts) => self.vertices(place, parts.iter().map(|(vertex, _)| *vertex)),
            ExprKind::OfGraphs(_, graphs)
            | ExprKind::ByGraph(_, graphs)
            | ExprKind::EdgeRows(_, graphs)
            | ExprKind::AtEnd(_, _, graphs)
            | ExprKind::Degree(_, graphs)
            | ExprKind::Before(graphs)
            | ExprKind::DegreeAtEnd { graphs, .. }
            | ExprKind::OverInEdges { graphs, .. } => self.graphs(place, graphs),
            ExprKind::RowsByGraph(parts) => parts.iter().for_each(|(_, graphs)| self.graphs(place, graphs)),
            ExprKind::AlongPath(_, _, graphs) => self.graphs(place, graphs),
            ExprKind::Fold(fold) => {
                self.graphs(place, &fold.graphs);
                fold.positions.iter().for_each(|graphs| self.graphs(place, graphs));
            }
            ExprKind::AtPosition(_, at) => at.iter().for_each(|part| self.part(place, part)),
            ExprKind::HopData(_, data) => data.iter().for_each(|(part, _)| self.part(place, part)),
            ExprKind::EdgeData(_, data) => {
                data.iter().for_each(|(graph, _)| self.graphs(place, &[*graph]));
            }
            ExprKind::Number(_)
            | ExprKind::Members(..)
            | ExprKind::Repeat(_)
            | ExprKind::Unary(..)
            | ExprKind::Binary(..)
            | ExprKind::Pow(..)
            | ExprKind::Dropout(..)
            | ExprKind::StopGradient(_)
            | ExprKind::Broadcast(_)
            | ExprKind::Zeros
            | ExprKind::Flatten(_)
            | ExprKind::Reshape(_)
            | ExprKind::Slice { .. }
            | ExprKind::Transpose(_)
            | ExprKind::MatrixProduct(..)
            | ExprKind::Concat(..)
            | ExprKind::Product(..)
            | ExprKind::Dot(..)
            | ExprKind::L2Normalize(..)
            | ExprKind::RowNormalize(_)
            | ExprKind::OverDimension(..)
            | ExprKind::OverRows(..)
            | ExprKind::Across(..)
            | ExprKind::SumOfSquares(_)
            | ExprKind::Scores(_) => {}
        }
    }

    fn part(&mut self, place: Place, part: &PathPart) {
        self.graphs(place, &[part.graph]);
        self.graphs(place, part.through.as_slice());
    }

    fn of_type(&mut self, id: ExprId, expr: &Expr) {
        let place = Place::Expr(id);
        match &*expr.ty {
            Type::PerType(rows) => self.vertices(place, rows.keys().copied()),
            Type::ByGraph(rows) => rows.keys().for_each(|graph| self.graphs(place, &[*graph])),
            Type::One(_) | Type::PerGraph(_) => {}
        }
        for row in expr.ty.rows() {
            match row.space {
                Space::Unit => {}
                Space::Vertices(vertex) => self.vertices(place, [vertex]),
                Space::Edges(graph) => self.graphs(place, &[graph]),
                Space::Index(_) | Space::Endpoints(..) => self.report(place, "its rows are of no space of a model"),
            }
            row.widths.iter().for_each(|width| self.dim(place, *width));
        }
    }

    fn dim(&mut self, place: Place, width: Width) {
        match width.dim {
            Dim::Fixed(_) => {}
            Dim::Count(vertex) => self.vertices(place, [vertex]),
            Dim::Symbolic(symbol) => {
                if !self.model.tables.symbols.contains(symbol) {
                    self.report(place, "there is no such polynomial");
                }
            }
        }
    }

    fn entries(&mut self, place: Place, entries: &[Entry]) {
        for entry in entries {
            match entry {
                Entry::Shared => {}
                Entry::Type(vertex) | Entry::Src(vertex) | Entry::Dst(vertex) => self.vertices(place, [*vertex]),
                Entry::Graph(graph) => self.graphs(place, &[*graph]),
                Entry::Relation(relation) if *relation as usize >= self.model.tables.relations.len() => {
                    self.report(place, "there is no such relation");
                }
                Entry::Relation(_) => {}
            }
        }
    }

    fn exprs(&mut self, place: Place, exprs: impl IntoIterator<Item = ExprId>) {
        for id in exprs.into_iter().filter(|id| id.index() >= self.model.exprs.len()) {
            self.report(place, format!("there is no expression {id}"));
        }
    }

    fn vertices(&mut self, place: Place, vertices: impl IntoIterator<Item = VertexType>) {
        for vertex in vertices.into_iter().filter(|vertex| vertex.index() >= self.model.tables.vertex_types.len()) {
            self.report(place, format!("there is no vertex type {vertex}"));
        }
    }

    fn graphs(&mut self, place: Place, graphs: &[Graph]) {
        for graph in graphs.iter().filter(|graph| graph.index() >= self.model.tables.graphs.len()) {
            self.report(place, format!("there is no graph {graph}"));
        }
    }
}
