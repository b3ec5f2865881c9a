//! `l2(x)`: the sum of the squares of all elements of a value, or of a parameter of a layer that the model uses.

use hgnnc_declare::names::did_you_mean;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::show_space;
use hgnnc_hir::{ExprId, ExprKind as Kind, Form, Item, LayerUse, Row, StmtKind, Type};
use hgnnc_ir::Space;
use hgnnc_syntax::ast::{Expr, ExprKind, Ident};

use crate::checker::{Checker, Mistake, Scope};
use crate::value::Term;

impl Checker<'_> {
    /// A call of `l2`. In a loss, `conv.w` is the parameter `w` of the layers that the statement `conv` uses: all entries.
    pub(crate) fn sum_of_squares(&mut self, x: &Expr, span: Span, scope: &Scope<'_>) -> Term {
        let parts = match &x.kind {
            ExprKind::Field(base, field) if self.within_loss => match &base.kind {
                ExprKind::Name(statement) => self.params_of(statement, field, scope),
                _ => None,
            },
            _ => None,
        };
        let parts = match parts {
            Some(parts) if parts.is_empty() => return Term::Error,
            Some(parts) => parts,
            None => {
                let term = self.eval(x, scope);
                match self.value(term, x.span) {
                    Ok(Some(value)) => vec![value.id],
                    other => return self.settle(other.map(|_| Term::Error)),
                }
            }
        };
        let rows: Vec<Row> = parts.iter().flat_map(|part| self.model.expr(*part).ty.rows()).cloned().collect();
        for row in &rows {
            if let Err(mistake) = self.summed(row, x.span) {
                self.report(*mistake);
                return Term::Error;
            }
        }
        self.operations += 4 * rows.len();
        let number = Type::One(Row::dense(Space::Unit, vec![]));
        Term::Value(self.expr(Kind::SumOfSquares(parts), number, span))
    }

    /// Refuses values of edges, and those that are not dense.
    fn summed(&self, row: &Row, at: Span) -> Result<(), Mistake> {
        match row.space {
            Space::Unit | Space::Vertices(_) => {}
            space => {
                let message = "`l2` sums values of vertices and parameters";
                let found = format!("has {}", show_space(&self.model.tables, space));
                return Err(Box::new(Diagnostic::at(codes::WRONG_SCOPE, at, message, found)));
            }
        }
        if row.form == Form::BlockDiagonal { Ok(()) } else { self.dense(row, at) }
    }

    /// The parameter of the layers that a statement of the model uses; `None` if it is no such statement, or if a value of
    /// it is meant. A layer without the parameter is reported, which gives no part.
    fn params_of(&mut self, statement: &str, field: &Ident, scope: &Scope<'_>) -> Option<Vec<ExprId>> {
        let uses = self.model.uses.iter().filter(|of| of.statement == statement);
        let found: Vec<ExprId> = uses.clone().flat_map(|of| self.params_named(of, &field.name)).collect();
        if !found.is_empty() {
            return Some(found);
        }
        let is_result = match scope.locals.get(statement) {
            Some(Term::Record(results)) => results.iter().any(|(name, _)| *name == field.name),
            _ => uses.clone().flat_map(|of| &of.results).any(|(name, _)| *name == field.name),
        };
        if uses.clone().next().is_none() || is_result || self.schema.vertex_named(&field.name).is_some() {
            return None;
        }
        let mut known: Vec<String> = uses.flat_map(params_of_use).map(|id| self.param_name(id)).collect();
        known.sort();
        known.dedup();
        let message = format!("the layers of `{statement}` have no parameter `{}`", field.name);
        let report = Diagnostic::at(codes::UNKNOWN_FIELD, field.span, message, "unknown parameter");
        self.report(did_you_mean(report, &field.name, known.iter().map(String::as_str)));
        Some(vec![])
    }

    fn params_named(&self, of: &LayerUse, name: &str) -> Vec<ExprId> {
        params_of_use(of).into_iter().filter(|id| self.param_name(*id) == name).collect()
    }

    fn param_name(&self, id: ExprId) -> String {
        match &self.model.expr(id).kind {
            Kind::Param(param, _) => self.model.params[param.index()].name.clone(),
            _ => String::new(),
        }
    }
}

/// The declarations of parameters in the use of a layer.
fn params_of_use(of: &LayerUse) -> Vec<ExprId> {
    let stmts = of.body.iter().flat_map(|item| match item {
        Item::Stmt(stmt) => vec![stmt],
        Item::Block(block) => block.instances.iter().flat_map(|instance| &instance.body).collect(),
    });
    stmts.filter(|stmt| stmt.kind == StmtKind::Param).map(|stmt| stmt.value).collect()
}
