//! The entry `cutoff` of a train block: the graphs whose messages are not later than what reads them.

use hgnnc_declare::consts::Consts;
use hgnnc_diag::{Diagnostic, codes};
use hgnnc_syntax::ast::Expr;

use crate::train::TrainChecker;

/// The longest period in units of time: beyond it, numbers of the language are not whole.
const LONGEST_PERIOD: f64 = 9_007_199_254_740_992.0;

impl TrainChecker<'_, '_> {
    /// The units of time that a period of links is long.
    pub fn period(&mut self, written: Option<&Expr>, consts: &Consts) -> Option<u64> {
        let Some(written) = written else { return Some(1) };
        let period = self.count_within(written, consts, (1.0, LONGEST_PERIOD), "the length of a period")?;
        // The links of a model with another mistake may not have been understood.
        let has_links = self.checker.model.tables.graphs.iter().any(|graph| graph.links);
        if has_links || self.checker.diagnostics.has_errors() {
            return Some(period);
        }
        let message = "a model without links to predict has no periods".to_owned();
        self.checker.report(
            Diagnostic::at(codes::CUTOFF, written.span, message, "belongs to links")
                .note(
                    "a vertex reads what is not later than itself; the ends of a link, what is earlier than its period",
                )
                .help("write `cutoff time`"),
        );
        None
    }

    /// Marks the graphs whose messages are not later than what reads them. Permutations have no times, and are refused where an
    /// output depends on them.
    pub fn cut_off(&mut self, period: u64) {
        for graph in self.checker.model.tables.graphs.iter_mut().filter(|graph| !graph.steps.is_empty()) {
            match graph.links {
                true => graph.period = (graph.steps.len() == 1).then_some(period),
                false => graph.past = true,
            }
        }
    }
}
