//! Reductions of the values that a vertex has for each semantic graph of a family: `sum(x) across graphs`.

use std::collections::HashMap;

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::{BinaryOp, Op, Space, Type, UnaryOp};
use hgnnc_syntax::ast::{Expr, Ident};

use super::Kind;
use crate::elaborate::{Elaborator, Mistake, Place, Scope};
use crate::value::{Term, Val, ValKind, Width};

impl Elaborator<'_> {
    /// Combines the values of all semantic graphs in scope.
    pub(super) fn across_graphs(
        &mut self,
        kind: Kind,
        x: Term,
        arg: &Expr,
        across: &Ident,
        span: Span,
        scope: &Scope<'_>,
    ) -> Result<Term, Mistake> {
        let Place::Fuse(vertex, _) = scope.place else {
            return Err(Box::new(
                Diagnostic::at(
                    codes::WRONG_SCOPE,
                    across.span,
                    "`across` alone belongs into a `fuse` block",
                    "not a `fuse` block",
                )
                .help("in `aggregate`, write `over in_edges across …` for all in-edges together"),
            ));
        };
        let vals = match x {
            Term::PerGraph(vals) => vals,
            Term::One(_) | Term::Number(_) => {
                return Err(Box::new(
                    Diagnostic::at(
                        codes::WRONG_SCOPE,
                        arg.span,
                        "this value is the same for all semantic graphs",
                        "nothing to combine across the family",
                    )
                    .help("a value assigned in an `aggregate` block, such as `v.z`, has one for each semantic graph"),
                ));
            }
            other => return Err(Box::new(self.not_a_value(&other, arg.span))),
        };
        let mut vals = vals.into_iter();
        let Some(first) = vals.next() else {
            // No semantic graph ends here: a sum over nothing is 0, anything else has no value.
            return match kind {
                Kind::Sum | Kind::Mean => {
                    let zero = self.constant(0.0, span);
                    let widths = self.widths_elsewhere(arg, scope);
                    let value = self.stored(&zero, span)?;
                    let ty = Type::new(Space::Unit, widths.iter().map(|w| w.dim).collect::<Vec<_>>());
                    let value = if widths.is_empty() { value } else { self.emit(Op::Broadcast(ty), &[value], span) };
                    Ok(Term::One(Val { kind: ValKind::Stored(value), widths }))
                }
                Kind::Softmax => Ok(Term::PerGraph(vec![])),
                Kind::Max | Kind::Min | Kind::LogSumExp | Kind::Concat => Err(Box::new(
                    Diagnostic::at(
                        codes::NO_INCOMING,
                        span,
                        format!("no semantic graph of the family ends in `{}`", self.vertex_name(vertex)),
                        "nothing to combine",
                    )
                    .label(self.schema.vertices[vertex.index()].span, "the vertex type is declared here")
                    .help("add a relation into it to the family (`reverses` has one for each relation), or combine by `sum`"),
                )),
            };
        };
        let all: Vec<Val> = std::iter::once(first).chain(vals).collect();
        let number = all.len() as f64;
        match kind {
            Kind::Concat => Ok(Term::One(self.concat(all, span)?)),
            Kind::Softmax => {
                let lse = self.fold(all.clone(), BinaryOp::LogAddExp, span)?;
                let mut shares = vec![];
                for val in all {
                    let shifted = self.elementwise(BinaryOp::Sub, val, span, lse.clone(), span, span)?;
                    shares.push(self.apply_unary(UnaryOp::Exp, shifted, span)?);
                }
                let value = self.stored(&shares[0], span)?;
                self.doubt_softmax(Some(shares.len()), "there is one semantic graph", value, span);
                Ok(Term::PerGraph(shares))
            }
            Kind::Sum => Ok(Term::One(self.fold(all, BinaryOp::Add, span)?)),
            Kind::Max => Ok(Term::One(self.fold(all, BinaryOp::Max, span)?)),
            Kind::Min => Ok(Term::One(self.fold(all, BinaryOp::Min, span)?)),
            Kind::LogSumExp => Ok(Term::One(self.fold(all, BinaryOp::LogAddExp, span)?)),
            Kind::Mean => {
                let sum = self.fold(all, BinaryOp::Add, span)?;
                let count = self.constant(number, span);
                Ok(Term::One(self.elementwise(BinaryOp::Div, sum, span, count, span, span)?))
            }
        }
    }

    /// The widths that a value has for a semantic graph that ends in another vertex type: those of the sum over
    /// no semantic graphs. Nothing that is found or built on the way is kept.
    fn widths_elsewhere(&mut self, arg: &Expr, scope: &Scope<'_>) -> Vec<Width> {
        let Some(layer) = scope.layer else { return vec![] };
        let mut widths = vec![];
        for (position, (_, dst)) in layer.ends.iter().enumerate() {
            let values = self.flow.values.len();
            let params = self.flow.params.len();
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
                graphs: vec![position],
                path: scope.path.clone(),
            };
            let term = self.eval(arg, &elsewhere);
            *self.diagnostics = found;
            self.flow.values.truncate(values);
            self.flow.params.truncate(params);
            self.param_spans.truncate(params);
            self.param_widths.truncate(params);
            if let Term::PerGraph(vals) = term
                && let [val] = &vals[..]
            {
                widths.clone_from(&val.widths);
                break;
            }
        }
        widths
    }

    fn fold(&mut self, vals: Vec<Val>, op: BinaryOp, span: Span) -> Result<Val, Mistake> {
        let mut vals = vals.into_iter();
        let mut total = vals.next().expect("at least one graph");
        for val in vals {
            total = self.elementwise(op, total, span, val, span, span)?;
        }
        Ok(total)
    }
}
