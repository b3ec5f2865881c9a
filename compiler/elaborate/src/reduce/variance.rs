//! `variance(x) over in_edges`: the mean of the squared differences from the mean, over any scope of a mean.

use std::sync::Arc;

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::{ExprKind as Kind, Row, Type};
use hgnnc_ir::{BinaryOp, Direction, Graph, Space};
use hgnnc_syntax::ast::Ident;

use crate::checker::{Checker, Scope};
use crate::value::{Term, Typed};

impl Checker<'_> {
    /// The mean of `(x - mean)²`, given the mean over a scope. In two passes, since the difference of E x² and (E x)² has few
    /// digits where the mean is large.
    pub(super) fn variance(
        &mut self,
        x: Term,
        x_span: Span,
        (over, span): (Option<&Ident>, Span),
        mean: impl Fn(&mut Self, Term) -> Term,
        scope: &Scope<'_>,
    ) -> Term {
        if let Some(first) = over.filter(|over| over.name == "first") {
            let message = "`variance` does not go over the first dimension";
            let report = Diagnostic::at(codes::WRONG_SCOPE, first.span, message, "not this scope");
            self.report(report.help("transpose it: `variance(transpose(x)) over last`"));
            return Term::Error;
        }
        let around = mean(self, x.clone());
        let around = match (around, over) {
            (Term::Value(around), Some(over)) if over.name == "in_edges" => self.at_in_edges(&around, span, scope),
            (around, _) => around,
        };
        if matches!(around, Term::Error) {
            return Term::Error;
        }
        let difference = self.binary(BinaryOp::Sub, (x, x_span), (around, span), span);
        let square = self.binary(BinaryOp::Mul, (difference.clone(), span), (difference, span), span);
        mean(self, square)
    }

    /// Values of destinations at their in-edges.
    fn at_in_edges(&mut self, value: &Typed, span: Span, scope: &Scope<'_>) -> Term {
        let layer = scope.layer.expect("in-edges are those of a layer");
        let graphs: Arc<[Graph]> = scope.graphs.iter().map(|&member| layer.graphs[member]).collect();
        let row = |(position, &member): (usize, &usize)| {
            let row = match &*value.ty {
                Type::PerType(rows) => &rows[&layer.ends[member].1],
                _ => value.ty.rows().nth(position).expect("a value for each semantic graph"),
            };
            Row::dense(Space::Edges(layer.graphs[member]), row.widths.clone())
        };
        let rows = scope.graphs.iter().enumerate().map(row).collect();
        Term::Value(self.expr(Kind::AtEnd(Direction::In, value.id, graphs), Type::PerGraph(rows), span))
    }
}
