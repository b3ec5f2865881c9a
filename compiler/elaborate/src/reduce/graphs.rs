//! Reductions of the values that a vertex has for each semantic graph of a family: `sum(x) across graphs`.

use std::collections::HashMap;

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::{Dim, ExprId, ExprKind as Kind, Reduction, Row, Type, Width};
use hgnnc_ir::{BinaryOp, Space, VertexType};
use hgnnc_syntax::ast::{Expr, Ident};

use crate::checker::{Checker, Mistake, Place, Scope};
use crate::operators::Operand;
use crate::value::{Term, Typed};

impl Checker<'_> {
    /// Combines the values of all semantic graphs in scope: in `fuse` those of a vertex, in `aggregate` single rows.
    pub(crate) fn across_graphs(
        &mut self,
        kind: Reduction,
        x: Term,
        arg: &Expr,
        across: &Ident,
        span: Span,
        scope: &Scope<'_>,
    ) -> Result<Term, Mistake> {
        let is_single = |row: &Row| row.space == Space::Unit;
        let vertex = match (scope.place, &x) {
            (Place::Fuse(vertex, _), _) => Some(vertex),
            // The rows of all semantic graphs, one for each: parameters, and what is computed of them.
            (Place::Aggregate, Term::Value(value)) if value.ty.rows().all(is_single) => None,
            _ => {
                return Err(Box::new(
                    Diagnostic::at(
                        codes::WRONG_SCOPE,
                        across.span,
                        "`across` alone belongs into a `fuse` block",
                        "not a `fuse` block",
                    )
                    .help("in `aggregate`, write `over in_edges across …` for all in-edges together"),
                ));
            }
        };
        let x = match x {
            Term::Value(Typed { id, ty }) if matches!(*ty, Type::PerGraph(_)) => Typed { id, ty },
            Term::Value(Typed { ty, .. }) if matches!(*ty, Type::One(_)) => return Err(Box::new(same_for_all(arg))),
            Term::Number(_) | Term::AnyNumber => return Err(Box::new(same_for_all(arg))),
            other => return Err(Box::new(self.not_a_value(&other, arg.span))),
        };
        let Type::PerGraph(rows) = &*x.ty else { unreachable!("it was compared") };
        if let (true, Some(vertex)) = (rows.is_empty(), vertex) {
            // No semantic graph ends here: a sum over nothing is 0, anything else has no value.
            if kind == Reduction::Softmax {
                return Ok(Term::Value(self.expr(Kind::Across(kind, x.id), Type::PerGraph(vec![]), span)));
            }
            let widths = self.widths_elsewhere(kind, arg, span, scope);
            let zeros = self.expr(Kind::Zeros, Type::One(Row::dense(Space::Unit, widths)), span);
            match kind {
                Reduction::Sum | Reduction::Mean | Reduction::Softmax => {}
                Reduction::Max | Reduction::Min | Reduction::LogSumExp | Reduction::Concat => {
                    self.refuse_nothing(zeros.id, vertex, span);
                }
            }
            return Ok(Term::Value(zeros));
        }
        // One semantic graph alone is not combined with another, but the mean of it is still computed.
        for row in rows {
            self.usable(row, arg.span)?;
        }
        let row = match kind {
            Reduction::Concat if self.without_use => {
                // There may be any number of semantic graphs, so the width is unknown.
                let mut row = self.concat(rows, span)?;
                if let Some(width) = row.widths.last_mut() {
                    width.dim = self.model.tables.symbols.variable("width across graphs");
                }
                return Ok(self.single(Kind::Zeros, row, span));
            }
            Reduction::Concat => self.concat(rows, span)?,
            _ => {
                let mut total = rows[0].clone();
                for row in &rows[1..] {
                    total = self.elementwise(fold_of(kind), Operand::of(&total, span), Operand::of(row, span), span)?;
                }
                total
            }
        };
        if kind != Reduction::Softmax {
            return Ok(self.single(Kind::Across(kind, x.id), row, span));
        }
        let mut shares = vec![];
        for own in rows {
            let shifted = self.elementwise(BinaryOp::Sub, Operand::of(own, span), Operand::of(&row, span), span)?;
            shares.push(self.unary_row(hgnnc_ir::UnaryOp::Exp, &shifted, span)?);
        }
        let number = shares.len();
        let shares = self.expr(Kind::Across(kind, x.id), Type::PerGraph(shares), span);
        self.doubt_softmax(Some(number), "there is one semantic graph", shares.id, span);
        Ok(Term::Value(shares))
    }

    /// `stack(x) across graphs` for a vertex type in which no semantic graph ends: an error where an output needs it.
    pub(crate) fn stack_of_none(&mut self, vertex: VertexType, arg: &Expr, span: Span, scope: &Scope<'_>) -> Term {
        let mut widths = self.widths_elsewhere(Reduction::Sum, arg, span, scope);
        let others = scope.layer.and_then(|layer| layer.into.values().map(Vec::len).find(|&graphs| graphs > 0));
        widths.insert(0, Width { dim: Dim::Fixed(others.unwrap_or(1)), origin: span });
        let zeros = self.expr(Kind::Zeros, Type::One(Row::dense(Space::Unit, widths)), span);
        self.refuse_nothing(zeros.id, vertex, span);
        Term::Value(zeros)
    }

    /// Refuses the values of no semantic graphs, which only a sum combines, if an output needs what stands for them.
    fn refuse_nothing(&mut self, stand_in: ExprId, vertex: VertexType, span: Span) {
        let report = Diagnostic::at(
            codes::NO_INCOMING,
            span,
            format!("no semantic graph of the family ends in `{}`", self.vertex_name(vertex)),
            "nothing to combine, and an output needs it",
        )
        .label(self.declared_at(vertex), "the vertex type is declared here")
        .help("add a relation into it to the family (`reverses` has one for each relation), or combine by `sum`");
        self.refuse_if_needed(stand_in, report);
    }

    /// The widths that a reduction has for another vertex type, in which semantic graphs end: those of one over no
    /// semantic graphs. Nothing that is found or built on the way is kept.
    fn widths_elsewhere(&mut self, kind: Reduction, arg: &Expr, span: Span, scope: &Scope<'_>) -> Vec<Width> {
        let Some(layer) = scope.layer else { return vec![] };
        let mut widths = vec![];
        for (position, (_, dst)) in layer.ends.iter().enumerate() {
            // The graphs of a concatenation add up to its width.
            let graphs = match kind {
                Reduction::Concat => layer.into[dst].clone(),
                _ => vec![position],
            };
            let found = std::mem::take(self.diagnostics);
            let place = match scope.place {
                Place::Fuse(_, many) => Place::Fuse(*dst, many),
                other => other,
            };
            let elsewhere = Scope {
                place,
                variable: scope.variable,
                locals: HashMap::new(),
                spans: HashMap::new(),
                layer: scope.layer,
                consts: scope.consts,
                graphs,
                along: None,
                statement: scope.statement.clone(),
            };
            let term = self.eval(arg, &elsewhere);
            *self.diagnostics = found;
            let Term::Value(Typed { ty, .. }) = term else { continue };
            let Type::PerGraph(rows) = &*ty else { continue };
            let row = match kind {
                Reduction::Concat => self.concat(rows, span).ok(),
                _ => rows.first().cloned(),
            };
            if let Some(row) = row {
                widths = row.widths;
                break;
            }
        }
        widths
    }
}

fn same_for_all(arg: &Expr) -> Diagnostic {
    Diagnostic::at(
        codes::WRONG_SCOPE,
        arg.span,
        "this value is the same for all semantic graphs",
        "nothing to combine across the family",
    )
    .help("a value assigned in an `aggregate` block, such as `v.z`, has one for each semantic graph")
}

/// The function by which a reduction combines two values.
fn fold_of(kind: Reduction) -> BinaryOp {
    match kind {
        Reduction::Max => BinaryOp::Max,
        Reduction::Min => BinaryOp::Min,
        Reduction::Softmax | Reduction::LogSumExp => BinaryOp::LogAddExp,
        Reduction::Sum | Reduction::Mean | Reduction::Concat => BinaryOp::Add,
    }
}
