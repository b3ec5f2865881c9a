//! Statements that have the parameters of others: `let b = … sharing a`.

use hgnnc_declare::names::did_you_mean;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::show_dim;
use hgnnc_hir::{Decomposition, Dim, Entry, ExprId, ExprKind as Kind, Row, Type};
use hgnnc_syntax::ast::{Expr, Ident};

use crate::checker::{Checker, Scope};
use crate::model::Made;
use crate::value::Term;

/// A parameter of a statement, as far as another can be it: its name, its entries with their shapes, and how it is made.
#[derive(Clone, PartialEq)]
pub struct Parameter {
    name: String,
    entries: Vec<(Entry, Vec<Dim>)>,
    decomposition: Decomposition,
}

impl Checker<'_> {
    /// The value of a statement, and the name of the statement whose parameters it has.
    pub(crate) fn with_parameters(
        &mut self,
        name: &Ident,
        value: &Expr,
        sharing: Option<&Ident>,
        scope: &mut Scope<'_>,
        made: &mut Made,
    ) -> (Term, Option<String>) {
        let first = self.model.exprs.len();
        scope.statement.clone_from(&name.name);
        let term = self.eval(value, scope);
        scope.statement.clear();
        let Some(id) = term.expr() else { return (term, None) };
        let own = self.parameters(id, first);
        let shared = match sharing {
            None => None,
            Some(of) => match made.parameters.get(&of.name) {
                Some(theirs) if *theirs == own && !own.is_empty() => Some(of.name.clone()),
                Some(theirs) => {
                    let report = self.different_parameters((of, theirs), (name, &own), value.span);
                    self.report(report);
                    return (Term::Error, None);
                }
                None => {
                    let message = format!("no statement before this one is called `{}`", of.name);
                    let report = Diagnostic::at(codes::UNKNOWN_NAME, of.span, message, "unknown name");
                    self.report(did_you_mean(report, &of.name, made.parameters.keys().map(String::as_str)));
                    return (Term::Error, None);
                }
            },
        };
        made.parameters.insert(name.name.clone(), own);
        (term, shared)
    }

    /// The parameters of the expressions from `first` on that a value is computed from, in the order of evaluation.
    fn parameters(&self, value: ExprId, first: usize) -> Vec<Parameter> {
        let mut seen = vec![false; self.model.exprs.len() - first];
        let mut stack = vec![value];
        while let Some(id) = stack.pop() {
            let Some(at) = id.index().checked_sub(first) else { continue };
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            let kind = &self.model.expr(id).kind;
            stack.extend(kind.operands());
            if let Kind::Layer(layer) = kind {
                stack.extend(self.model.uses[layer.index()].exprs());
            }
        }
        let reached = seen.iter().enumerate().filter(|(_, seen)| **seen).map(|(at, _)| ExprId::new(first + at));
        reached.flat_map(|id| self.parameters_of(id)).collect()
    }

    fn parameters_of(&self, id: ExprId) -> Vec<Parameter> {
        let expr = self.model.expr(id);
        let rows = |ty: &Type| ty.rows().map(Row::dims).collect::<Vec<_>>();
        let made = |name: &str, entries: &[Entry], dims: Vec<Vec<Dim>>| Parameter {
            name: name.to_owned(),
            entries: entries.iter().copied().zip(dims).collect(),
            decomposition: Decomposition::None,
        };
        match &expr.kind {
            Kind::Param(param, entries) => {
                let param = &self.model.params[param.index()];
                // Where a width was written makes no other parameter of it.
                let decomposition = match param.decomposition {
                    Decomposition::None => Decomposition::None,
                    Decomposition::Basis(mut n) | Decomposition::Blocks(mut n) => {
                        n.origin = Span::new(n.origin.file, 0, 0);
                        if matches!(param.decomposition, Decomposition::Basis(_)) {
                            Decomposition::Basis(n)
                        } else {
                            Decomposition::Blocks(n)
                        }
                    }
                };
                vec![Parameter { decomposition, ..made(&param.name, entries, rows(&expr.ty)) }]
            }
            Kind::Linear { x, bias, names } => {
                let shapes = rows(&self.model.expr(*x).ty).into_iter().zip(rows(&expr.ty));
                let weights = shapes.map(|(from, to)| [from, to].concat()).collect();
                let mut all = vec![made("weight", &names.entries, weights)];
                all.extend(bias.then(|| made("bias", &names.entries, rows(&expr.ty))));
                all
            }
            Kind::Norm { names, .. } => vec![made("scale", &names.entries, rows(&expr.ty))],
            _ => vec![],
        }
    }

    fn different_parameters(
        &self,
        (of, theirs): (&Ident, &[Parameter]),
        (name, own): (&Ident, &[Parameter]),
        value: Span,
    ) -> Diagnostic {
        let report = Diagnostic::at(
            codes::SHARED_SHAPE,
            of.span,
            format!("`{}` cannot have the parameters of `{}`", name.name, of.name),
            "has other parameters",
        )
        .label(value, "to be computed with them");
        let show = |param: &Parameter| {
            let shape = |dims: &[Dim]| {
                let dims: Vec<String> = dims.iter().map(|dim| show_dim(&self.model.tables, *dim)).collect();
                format!("[{}]", dims.join(", "))
            };
            let shapes: Vec<String> = param.entries.iter().map(|(_, dims)| shape(dims)).collect();
            let mut distinct = shapes.clone();
            distinct.dedup();
            format!("`{}` {}", param.name, distinct.join(", "))
        };
        let first = own.iter().zip(theirs).find(|(own, theirs)| own != theirs);
        match (first, own.len(), theirs.len()) {
            (Some((own, theirs)), ..) if own.name == theirs.name && show(own) == show(theirs) => {
                report.note(format!("`{}` is one for other vertex types or semantic graphs", own.name))
            }
            (Some((own, theirs)), ..) => {
                report.note(format!("`{}` has {}, `{}` has {}", of.name, show(theirs), name.name, show(own)))
            }
            (None, 0, 0) => report.note("neither has parameters"),
            (None, own, theirs) => {
                report.note(format!("`{}` has {theirs} parameters, `{}` has {own}", of.name, name.name))
            }
        }
    }
}
