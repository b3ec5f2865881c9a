//! Results and outputs of semantic graphs and of their edges: attention weights.

use std::collections::BTreeMap;

use hgnnc_declare::names::{closest, did_you_mean};
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::show_widths;
use hgnnc_hir::{ExprId, Row, Type};
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_ir::{Graph, Space, VertexType};
use hgnnc_syntax::ast::{self, Ident};

use crate::checker::Checker;
use crate::edges::{declared_rows, row_of, rows_of_edges};
use crate::graph_rows::GraphRows;
use crate::pairs::LINKS;
use crate::value::{Term, Typed, describe};

/// The words that stand for what an output has rows of, where no vertex type has this name.
const WORDS: [&str; 3] = [LINKS, FamilyRows::Graphs.name(), FamilyRows::Edges.name()];

/// How rows of vertices for each semantic graph become an output.
const COMBINE: &str = "a layer combines the rows of a vertex: `sum(v.x) across graphs` in a `fuse` block";

/// Index space of an output: the elements that its rows belong to.
pub enum OutputSpace {
    /// Vertices of a type.
    Vertices(VertexType),
    /// Pairs to score.
    Links,
    /// Semantic graphs.
    Graphs,
    /// Edges of semantic graphs.
    Edges,
}

impl<'a> Checker<'a> {
    /// Index space that the word behind the name of an output denotes; `None` after a report.
    pub(crate) fn output_space(&mut self, output: &ast::OutputStmt) -> Option<OutputSpace> {
        let word = &output.vertex;
        if let Some(relation) = &output.of {
            return self.edges_target(word, relation).map(OutputSpace::Vertices);
        }
        if self.schema.vertex_named(&word.name).is_none() {
            match word.name.as_str() {
                LINKS => return Some(OutputSpace::Links),
                name if name == FamilyRows::Graphs.name() => return Some(OutputSpace::Graphs),
                name if name == FamilyRows::Edges.name() => return Some(OutputSpace::Edges),
                _ => {}
            }
            let vertices: Vec<&str> = self.schema.vertices.iter().map(|vertex| vertex.name.as_str()).collect();
            if let (None, Some(meant)) = (closest(&word.name, &vertices), closest(&word.name, &WORDS)) {
                let message = format!("schema `{}` has no vertex type `{}`", self.schema.name, word.name);
                let report = Diagnostic::at(codes::UNKNOWN_VERTEX_TYPE, word.span, message, "not declared");
                self.report(report.help(format!("did you mean `{meant}`?")));
                return None;
            }
        }
        let vertex = self.schema.vertex(word, self.diagnostics)?;
        Some(OutputSpace::Vertices(VertexType::new(vertex)))
    }

    /// A further result of a layer, selected from the layer's value `id` with these rows; `None` where `field` can only
    /// be a vertex type.
    pub(crate) fn further_result(
        &mut self,
        id: ExprId,
        rows: &BTreeMap<VertexType, Row>,
        field: &Ident,
    ) -> Option<Term> {
        let is_it = |(name, _): &&(String, Typed)| *name == field.name;
        let Some(results) = self.further_results.get(&id) else {
            if self.schema.vertex_named(&field.name).is_some()
                || !self.further_results.values().flatten().any(|result| is_it(&result))
            {
                return None;
            }
            let message = format!("this value has no result `{}`", field.name);
            let report = Diagnostic::at(codes::UNKNOWN_FIELD, field.span, message, "not the value of a layer's use")
                .help("bind the use of the layer itself to a name, `let conv = …`, and read its results from there");
            self.report(report);
            return Some(Term::Error);
        };
        if let Some((_, value)) = results.iter().find(is_it) {
            return Some(Term::Value(value.clone()));
        }
        if self.schema.vertex_named(&field.name).is_some() {
            return None;
        }
        let message = format!("the layer has no result `{}`", field.name);
        let report = Diagnostic::at(codes::UNKNOWN_FIELD, field.span, message, "unknown result");
        let names = results.iter().map(|(name, _)| name.as_str());
        let report =
            did_you_mean(report, &field.name, names.chain(rows.keys().map(|vertex| self.vertex_name(*vertex))));
        self.report(report);
        Some(Term::Error)
    }

    /// The value of an output of semantic graphs or of their edges.
    pub(crate) fn family_output(&mut self, output: &ast::OutputStmt, term: Term, of: FamilyRows) -> Option<ExprId> {
        let at = output.value.span;
        let name = &output.name.name;
        let each = match of {
            FamilyRows::Graphs => "semantic graph",
            FamilyRows::Edges => "edge of semantic graphs",
        };
        let wrong = |found: String| {
            Diagnostic::at(codes::RESULT_MISMATCH, at, format!("output `{name}` needs a row for each {each}"), found)
                .label(output.vertex.span, format!("the output is declared for {}", of.name()))
        };
        let declare = |word: &str| format!("declare it as `output {name}: {word} = …`");
        let value = match term {
            Term::Value(value) => value,
            Term::Number(_) | Term::Width(_) => {
                self.report(wrong("is the same for all of them".into()));
                return None;
            }
            other => {
                let report = self.not_a_value(&other, at);
                self.report(report);
                return None;
            }
        };
        let Type::ByGraph(rows) = &*value.ty else {
            let help = match &*value.ty {
                Type::PerType(rows) if let Some(relation) = rows.keys().find_map(|v| self.relation_of_rows(*v)) => {
                    &declare(&self.schema.relations[relation].edges_name)
                }
                Type::PerType(_) => {
                    "layers have results of semantic graphs and edges besides their value: `conv.beta`, `conv.alpha`"
                }
                Type::One(_) | Type::PerGraph(_) | Type::ByGraph(_) => {
                    "such values are results of a layer: `conv.beta`, `conv.alpha`"
                }
            };
            self.report(wrong(format!("this is {}", describe(&value.ty))).help(help));
            return None;
        };
        let mut first: Option<&Row> = None;
        for (graph, row) in rows {
            let decl = &self.model.tables.graphs[graph.index()];
            let report = match (row.space, of) {
                (Space::Edges(_), _) if decl.links => Some(
                    wrong(format!("has scores of `{}`, whose pairs carry no messages", decl.name)).help(declare(LINKS)),
                ),
                (Space::Unit, FamilyRows::Graphs) | (Space::Edges(_), FamilyRows::Edges) => None,
                (Space::Edges(_), FamilyRows::Graphs) => Some(
                    wrong(format!("has a row for each edge of `{}`", decl.name))
                        .help(declare(FamilyRows::Edges.name())),
                ),
                (Space::Vertices(_), _) => {
                    Some(wrong(format!("has a row for each vertex where `{}` ends", decl.name)).help(COMBINE))
                }
                _ => Some(wrong("has one row for each semantic graph".into()).help(declare(FamilyRows::Graphs.name()))),
            };
            if let Some(report) = report {
                self.report(report);
                return None;
            }
            let usable = self.usable(row, at);
            self.or_report(usable)?;
            let shape = show_widths(&self.model.tables, &row.widths);
            if row.widths.len() > 1 {
                let message = format!("an output of {} has at most one dimension in each row", of.name());
                let report = Diagnostic::at(codes::RESULT_MISMATCH, at, message, format!("is {shape}"));
                self.report(report.help("`flatten(…)` joins dimensions"));
                return None;
            }
            if first.is_some_and(|first| first.dims() != row.dims()) {
                let graph = &self.model.tables.graphs[graph.index()].name;
                self.report(wrong(format!("is {shape} for `{graph}` and has another width elsewhere")));
                return None;
            }
            first = first.or(Some(row));
        }
        Some(value.id)
    }

    /// The report of an output that is declared for vertices and has rows of semantic graphs or edges.
    pub(crate) fn not_of_vertices(&self, output: &ast::OutputStmt, ty: &Type, at: Span) -> Diagnostic {
        let name = &output.name.name;
        let of_pairs = |graph: &Graph| self.model.tables.graphs[graph.index()].links;
        let word = match ty {
            Type::ByGraph(rows) if rows.values().all(|row| row.space == Space::Unit) => FamilyRows::Graphs.name(),
            Type::ByGraph(rows) if rows.keys().all(of_pairs) => LINKS,
            _ => FamilyRows::Edges.name(),
        };
        let (declared_at, declared_for) = declared_rows(output);
        let report = Diagnostic::at(
            codes::RESULT_MISMATCH,
            at,
            format!("output `{name}` needs one row per {}", row_of(output)),
            format!("this is {}", describe(ty)),
        )
        .label(declared_at, declared_for);
        match &output.of {
            _ if matches!(ty, Type::ByGraph(rows) if rows.values().all(|row| GraphRows::of(row) == GraphRows::Vertices)) => {
                report.help(COMBINE)
            }
            Some(relation) => report.help(rows_of_edges(relation)),
            None => report.help(format!("declare it as `output {name}: {word} = …`")),
        }
    }
}
