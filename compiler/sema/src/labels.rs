//! Labels as inputs of a model that learns links.

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::{ExprKind as Kind, FeatureKind};

use crate::loss::TrainedOf;
use crate::train::TrainChecker;

impl TrainChecker<'_, '_> {
    /// Refuses labels as inputs beside a loss of links, whose split has no training part of vertices.
    pub fn labels_beside_links(&mut self, of: &TrainedOf, loss: Span) {
        let TrainedOf::Links(..) = of else { return };
        let reached = self.checker.model.reached();
        let is_read = |(_, reached): &(&hgnnc_hir::Expr, bool)| *reached;
        let labels =
            self.checker.model.exprs.iter().zip(reached).filter(is_read).find_map(|(expr, _)| match &expr.kind {
                Kind::Features(of) if matches!(of.kind, FeatureKind::TrainLabels { .. }) => {
                    Some((of.name.clone(), expr.span))
                }
                _ => None,
            });
        let Some((name, at)) = labels else { return };
        let message = format!("`{name}` has no training part where links are learned");
        let report = Diagnostic::at(codes::TRAIN_LABELS, at, message, "these labels have no split")
            .label(loss, "the split of this loss is one of links");
        self.checker.report(report.help("leave it out; what is known of all vertices is a field of features"));
    }
}
