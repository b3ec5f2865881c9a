//! Pairs to score: outputs with a number for each link, and what pairs do not have.

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::show_widths;
use hgnnc_hir::{Dim, ExprId, ExprKind as Kind, Row, Type};
use hgnnc_ir::{Graph, Space};
use hgnnc_syntax::ast;

use crate::checker::{Checker, Mistake};
use crate::value::{Term, Typed, describe};

/// The word for links: as the label of a loss, and as the target of an output.
pub const LINKS: &str = "links";

impl Checker<'_> {
    /// Refuses what only edges that carry messages have, for pairs to score and edges to predict.
    pub(crate) fn not_of_pairs(&self, graph: Graph, what: &str, span: Span) -> Result<(), Mistake> {
        self.not_of_edge_rows(graph, what, span)?;
        let decl = &self.model.tables.graphs[graph.index()];
        if !decl.links {
            return Ok(());
        }
        let of = self.schema.written(decl);
        Err(Box::new(
            Diagnostic::at(
                codes::PAIR_VALUE,
                span,
                format!("pairs to score have no {what}"),
                format!("this layer runs over `links({of})`"),
            )
            .help("a score is made of the values of both ends: `e.src.x` and `e.dst.x`"),
        ))
    }

    /// The scores of an output of links, one number for each pair.
    pub(crate) fn link_output(&mut self, output: &ast::OutputStmt, term: Term) -> Option<ExprId> {
        let at = output.value.span;
        let name = &output.name.name;
        let wrong = |found: String| {
            Diagnostic::at(codes::PAIR_VALUE, at, format!("output `{name}` is not a number for each pair"), found)
                .label(output.vertex.span, "the output is declared for pairs to score")
                .help("score pairs with a layer: `DistMult() over links(relations) of h`")
        };
        let (id, ty) = match term {
            Term::Value(Typed { id, ty }) if matches!(*ty, Type::ByGraph(_)) => (id, ty),
            other => {
                let report = wrong(format!("this is {}", other.describe()));
                self.report(report);
                return None;
            }
        };
        let Type::ByGraph(rows) = &*ty else { unreachable!("it was compared") };
        for (graph, row) in rows {
            let decl = &self.model.tables.graphs[graph.index()];
            if row.space == Space::Unit {
                let report = wrong(format!("this is {}", describe(&ty)));
                self.report(report);
                return None;
            }
            if !decl.links {
                let report = wrong(format!("has values of the edges of `{}`, which carry messages", decl.name));
                self.report(report);
                return None;
            }
            if !(row.widths.is_empty() || row.widths.len() == 1 && row.widths[0].dim == Dim::Fixed(1)) {
                let shape = show_widths(&self.model.tables, &row.widths);
                let report = wrong(format!("is {shape} for each pair"));
                self.report(report);
                return None;
            }
            let usable = self.usable(row, at);
            self.or_report(usable)?;
        }
        let scalar = |row: &Row| Row::dense(row.space, vec![]);
        let ty = Type::ByGraph(rows.iter().map(|(graph, row)| (*graph, scalar(row))).collect());
        Some(self.expr(Kind::Scores(id), ty, at).id)
    }
}
