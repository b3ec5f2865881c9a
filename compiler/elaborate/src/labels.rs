//! Labels as values of a model: `train_labels(Paper.topic)`.

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_syntax::ast::{Expr, ExprKind};

use crate::checker::{Checker, Place, Scope};
use crate::value::Term;

impl Checker<'_> {
    /// `train_labels(Paper.topic)`: a row for each vertex, 0 outside of the training part.
    pub(crate) fn train_labels(&mut self, label: &Expr, span: Span, scope: &Scope<'_>) -> Term {
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
        match self.eval(label, scope) {
            Term::Error => Term::Error,
            Term::Label(vertex, field) => {
                let labels = self.features(vertex, field, span);
                Term::Value(self.types([(vertex, labels.id)], span))
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

    fn label_of_edges(&self, label: &Expr, scope: &Scope<'_>) -> Option<Diagnostic> {
        let ExprKind::Field(base, field) = &label.kind else { return None };
        let ExprKind::Name(name) = &base.kind else { return None };
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
