//! Labels as values of a model: `train_labels(Paper.topic)`.

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::{self as hir, ExprId, ExprKind, FeatureKind, Features};
use hgnnc_syntax::ast::{Expr, ExprKind as SyntaxKind};

use crate::checker::{Checker, Place, Scope};
use crate::value::Term;

impl Checker<'_> {
    /// `train_labels(Paper.topic)`: a row for each vertex, 0 outside of the training part, and for the share `hidden` of it in training.
    pub(crate) fn train_labels(&mut self, label: &Expr, hidden: Option<&Expr>, span: Span, scope: &Scope<'_>) -> Term {
        if scope.place != Place::Model {
            let message = "a layer does not know the labels of the schema";
            let report = Diagnostic::at(codes::MODEL_ONLY, span, message, "only in a model");
            self.report(report.help("let the layer have an input, and give it `train_labels(…)` behind `of`"));
            return Term::Error;
        }
        if let Some(report) = self.label_of_edges(label, scope) {
            self.report(report);
            return Term::Error;
        }
        let share = match hidden {
            Some(share) => self.hidden_share(share, scope),
            None => Some(0.0),
        };
        match self.eval(label, scope) {
            Term::Error => Term::Error,
            Term::Label(vertex, field) => {
                let Some(share) = share else { return Term::Error };
                let labels = self.features(vertex, field, span).id;
                if let Some(other) = self.hidden_otherwise(labels, share) {
                    let message = "another share of these labels is hidden elsewhere";
                    let at = hidden.map_or(span, |hidden| hidden.span);
                    let report =
                        Diagnostic::at(codes::TRAIN_LABELS, at, message, "the same vertices are hidden everywhere");
                    self.report(report.label(other, "another share here"));
                    return Term::Error;
                }
                if let ExprKind::Features(of) = &mut self.model.exprs[labels.index()].kind {
                    of.kind = FeatureKind::TrainLabels { hidden: share };
                }
                Term::Value(self.types([(vertex, labels)], span))
            }
            other => {
                let message = "`train_labels` takes a label of vertices";
                let report =
                    Diagnostic::at(codes::TRAIN_LABELS, label.span, message, format!("this is {}", other.describe()));
                self.report(report.help("labels are declared as `class[n]`, `multilabel[n]` or `target[n]`"));
                Term::Error
            }
        }
    }

    /// The share of labels that training hides; `None` after a report.
    fn hidden_share(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<f64> {
        let share = self.number(expr, scope)?;
        if share.is_nan() || (0.0..1.0).contains(&share) {
            return Some(share);
        }
        let message = "the share of hidden labels is at least 0 and less than 1";
        let report = Diagnostic::at(codes::ARGUMENT_RANGE, expr.span, message, format!("this is {share}"));
        self.report(report.help(
            "each step hides that share of the labels of the training part, and learns from the vertices that it hides",
        ));
        None
    }

    /// The place of the same labels with another share of them hidden, where some are hidden at both.
    fn hidden_otherwise(&self, labels: ExprId, share: f64) -> Option<Span> {
        let ExprKind::Features(of) = &self.model.expr(labels).kind else { return None };
        let differs = |expr: &&hir::Expr| match &expr.kind {
            ExprKind::Features(Features { kind: FeatureKind::TrainLabels { hidden }, name, .. }) => {
                *name == of.name && *hidden > 0.0 && *hidden != share
            }
            _ => false,
        };
        self.model.exprs.iter().find(differs).filter(|_| share > 0.0).map(|expr| expr.span)
    }

    fn label_of_edges(&self, label: &Expr, scope: &Scope<'_>) -> Option<Diagnostic> {
        let SyntaxKind::Field(base, field) = &label.kind else { return None };
        let SyntaxKind::Name(name) = &base.kind else { return None };
        if scope.locals.contains_key(name) || self.schema.vertex_named(name).is_some() {
            return None;
        }
        let info = &self.schema.relations[self.schema.relation_named(name)?];
        let declared = info.fields.iter().find(|known| known.name == field.name && known.kind.is_label())?;
        let message = format!("`{name}.{}` is a label of edges, which models cannot read", field.name);
        let report = Diagnostic::at(codes::TRAIN_LABELS, label.span, message, "not a label of vertices")
            .label(declared.span, "declared here");
        Some(report.help("what is known of all edges is their data: `f32` or `f32[n]`, read by layers"))
    }
}
