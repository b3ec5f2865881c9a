//! Edges to predict: outputs whose rows are the edges of a relation, and the labels of these.
//!
//! The edges of a relation are vertices of a type of their own ([`hgnnc_ir::paths`]), so that all that outputs of vertices
//! have is theirs as well: losses, splits, metrics, mini-batches. A layer over `edges(r)` runs over the graph that leads to
//! them from their destinations, whose edges are theirs one by one; its results are values of that vertex type.

use std::collections::BTreeMap;
use std::sync::Arc;

use hgnnc_declare::names::did_you_mean;
use hgnnc_declare::schema::{EDGES, FieldInfo, GraphRef, RelationInfo};
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::{ExprKind as Kind, PathPart, Row, Type};
use hgnnc_ir::dataflow::{GraphDecl, Step};
use hgnnc_ir::{Direction, Graph, PathDecl, PathRows, Space, VertexType};
use hgnnc_syntax::ast::{self, Ident};

use crate::checker::{Checker, Mistake};
use crate::layer::LayerCx;
use crate::value::Typed;

/// The edges of a relation in the tables of a model.
#[derive(Clone, Copy)]
pub struct EdgeRows {
    /// The type whose vertices they are.
    pub vertex: VertexType,
    /// The graph to them from their sources.
    from_src: Graph,
    /// The graph to them from their destinations, which layers run over.
    from_dst: Graph,
}

impl<'a> Checker<'a> {
    /// The edges of a relation of the schema as rows.
    pub fn edge_rows(&mut self, relation: usize) -> EdgeRows {
        if let Some(known) = self.edge_rows.get(&relation) {
            return *known;
        }
        let info = &self.schema.relations[relation];
        let tables = &mut self.model.tables;
        let (types, relations) = (&mut tables.vertex_types, &mut tables.relations);
        let steps = [Step { relation: relation as u32, reverse: false }];
        let path = PathDecl::declare((types, relations), &info.edges_name, &steps, PathRows::Edges);
        let name = self.graph_names.take(&format!("{EDGES}_{}", info.name));
        let from_src = self.graph_names.take(&format!("{name}.src"));
        let ends = [(from_src, info.src, path.relations[0]), (name, info.dst, path.relations[1])];
        let [from_src, from_dst] = ends.map(|(name, end, relation)| {
            let steps = vec![Step { relation, reverse: false }];
            tables.graphs.push(GraphDecl::new(name, VertexType::new(end), path.vertex, steps));
            Graph::new(tables.graphs.len() - 1)
        });
        let rows = EdgeRows { vertex: path.vertex, from_src, from_dst };
        tables.paths.push(path);
        self.edge_rows.insert(relation, rows);
        rows
    }

    /// The graph that a layer over `edges(…)` runs over; `None` after a report.
    pub(crate) fn declare_edges(&mut self, graph: &GraphRef) -> Option<Graph> {
        let [step] = graph.steps[..] else { unreachable!("the schema refuses others than relations") };
        Some(self.edge_rows(step.relation as usize).from_dst)
    }

    /// The relation whose edges a vertex type is.
    pub fn relation_of_rows(&self, vertex: VertexType) -> Option<usize> {
        self.edge_rows.iter().find(|(_, rows)| rows.vertex == vertex).map(|(relation, _)| *relation)
    }

    /// The relation whose edges the edges of a graph are, if a layer over `edges(…)` runs over it.
    pub(crate) fn edges_of(&self, graph: Graph) -> Option<&'a RelationInfo> {
        let (relation, _) = self.edge_rows.iter().find(|(_, rows)| rows.from_dst == graph)?;
        Some(&self.schema.relations[*relation])
    }

    /// The declared fields of a vertex type, or of the relation whose edges it is.
    pub fn fields_of(&self, vertex: VertexType) -> &'a [FieldInfo] {
        match self.relation_of_rows(vertex) {
            Some(relation) => &self.schema.relations[relation].fields,
            None => &self.schema.vertices[vertex.index()].fields,
        }
    }

    /// A label by its vertex type or relation and its name, as a source writes it: `Paper.topic`, `rates.stars`.
    pub fn label_name(&self, vertex: VertexType, field: usize) -> String {
        let of = match self.relation_of_rows(vertex) {
            Some(relation) => &self.schema.relations[relation].name,
            None => self.vertex_name(vertex),
        };
        format!("{of}.{}", self.fields_of(vertex)[field].name)
    }

    /// The place where a vertex type, or the relation whose edges it is, is declared.
    pub(crate) fn declared_at(&self, vertex: VertexType) -> Span {
        match self.relation_of_rows(vertex) {
            Some(relation) => self.schema.relations[relation].span,
            None => self.schema.vertices[vertex.index()].span,
        }
    }

    /// Refuses a family of edges to predict and of semantic graphs; false after the report.
    pub(crate) fn one_kind_of_edges(&mut self, graphs: &[GraphRef]) -> bool {
        let (Some(edges), Some(other)) = (graphs.iter().find(|g| g.edges), graphs.iter().find(|g| !g.edges)) else {
            return true;
        };
        let message = "a layer runs over edges to predict or over semantic graphs, not over both";
        self.report(
            Diagnostic::at(codes::EDGE_ROWS, other.span, message, format!("`{}` has other edges", other.name))
                .label(edges.span, "edges to predict")
                .help("use the layer twice, with one family each"),
        );
        false
    }

    /// Refuses what edges to predict do not have.
    pub(crate) fn not_of_edge_rows(&self, graph: Graph, what: &str, span: Span) -> Result<(), Mistake> {
        let Some(relation) = self.edges_of(graph) else { return Ok(()) };
        let message = format!("edges to predict have no {what}");
        let label = format!("this layer runs over `{}`", relation.edges_name);
        Err(Box::new(Diagnostic::at(codes::EDGE_ROWS, span, message, label).help(format!(
            "each has two ends, `e.src.x` and `e.dst.x`, and its own data; messages go over `{}` itself",
            relation.name
        ))))
    }

    /// The ends of edges to predict that the graphs of a layer are, as positions of paths; `None` for other graphs.
    pub(crate) fn ends_of_edges(&self, graphs: &[Graph], direction: Direction) -> Option<Arc<[PathPart]>> {
        let part = |&graph: &Graph| {
            let rows = self.edge_rows.values().find(|rows| rows.from_dst == graph)?;
            let through = (direction == Direction::Out).then_some(rows.from_src);
            Some(PathPart { graph, through })
        };
        graphs.iter().map(part).collect()
    }

    /// The values of a layer's edges to predict, as rows of these edges.
    pub(crate) fn as_edge_rows(
        &mut self,
        value: &Typed,
        rows: BTreeMap<Graph, Row>,
        cx: &LayerCx<'_>,
        span: Span,
    ) -> Typed {
        let of_type = |(graph, row): (Graph, Row)| {
            let vertex = self.model.tables.graphs[graph.index()].dst;
            (vertex, Row { space: Space::Vertices(vertex), ..row })
        };
        let ty = Type::PerType(rows.into_iter().map(of_type).collect());
        self.expr(Kind::EdgeRows(value.id, cx.graphs.clone().into()), ty, span)
    }

    /// The vertex type that the edges of an output's relation are; `None` after a report.
    pub(crate) fn edges_target(&mut self, word: &Ident, of: &Ident) -> Option<VertexType> {
        if word.name != EDGES {
            let message = format!("an output has no rows of `{}(…)`", word.name);
            let report = Diagnostic::at(codes::EDGE_ROWS, word.span, message, "not known here");
            let help = format!("`output NAME: {EDGES}({}) = …` has a row for each edge of a relation", of.name);
            self.report(report.help(help));
            return None;
        }
        let Some(relation) = self.schema.relation_named(&of.name) else {
            if self.schema.broken.contains(&of.name) {
                return None;
            }
            let message = format!("schema `{}` has no relation `{}`", self.schema.name, of.name);
            let report = Diagnostic::at(codes::UNKNOWN_RELATION, of.span, message, "not declared");
            let known = self.schema.relations.iter().map(|relation| relation.name.as_str());
            self.report(did_you_mean(report, &of.name, known));
            return None;
        };
        self.schema.relations[relation].used.set(true);
        Some(self.edge_rows(relation).vertex)
    }
}

/// The rows of an output in messages: "`Paper` vertex", "edge of `rates`".
pub fn row_of(output: &ast::OutputStmt) -> String {
    match &output.of {
        Some(relation) => format!("edge of `{}`", relation.name),
        None => format!("`{}` vertex", output.vertex.name),
    }
}

/// The place where an output is declared, and what it is declared for.
pub fn declared_rows(output: &ast::OutputStmt) -> (Span, &'static str) {
    match &output.of {
        Some(relation) => (output.vertex.span.to(relation.span), "the output is declared for these edges"),
        None => (output.vertex.span, "the output is declared for this type"),
    }
}

/// How values with a row for each edge of a relation are made.
pub fn rows_of_edges(relation: &Ident) -> String {
    format!(
        "rows of edges are what a layer over them gives: `EdgeMlp(hidden: 16, out: 2) over {EDGES}({}) of h`",
        relation.name
    )
}
