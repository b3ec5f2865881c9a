//! Doubts: what is right and was probably not meant, found while a model is checked.
//!
//! A body of a layer runs several times; a doubt that holds for one run and not for another of the same use is none.
//! Doubts are reported at the end, where nothing is wrong, and only about values that reach an output: that is known of
//! the program. So are values that do not exist and of which a type that no output needs makes no mistake.

use std::collections::HashSet;

use hgnnc_diag::{Code, Diagnostic, Span, codes};
use hgnnc_hir::{ExprId, ExprKind, Model, Reduction};
use hgnnc_ir::{BinaryOp, Direction, Space, UnaryOp};

use crate::checker::Checker;

/// The place of a doubt in a body, and the uses that led there.
type Key = (Code, Span, Vec<Span>);

/// A report about a construct, and the value that it is about: it holds if that reaches an output.
#[derive(Clone)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Doubt {
    pub report: Diagnostic,
    pub of: Option<ExprId>,
}

/// Warnings about constructs, and the places where another run of the same body refutes them.
#[derive(Default)]
pub struct Doubts {
    found: Vec<(Doubt, Option<Key>)>,
    refuted: HashSet<Key>,
}

impl Doubts {
    /// A doubt that no other run can refute.
    pub fn add(&mut self, report: Diagnostic) {
        self.found.push((Doubt { report, of: None }, None));
    }

    /// The doubts that no run refuted.
    pub fn remaining(self) -> Vec<Doubt> {
        let holds = |key: &Option<Key>| key.as_ref().is_none_or(|key| !self.refuted.contains(key));
        self.found.into_iter().filter(|(_, key)| holds(key)).map(|(doubt, _)| doubt).collect()
    }
}

impl Checker<'_> {
    /// Notes an error that is one if `value`, which stands in for a value that does not exist, reaches an output.
    pub(crate) fn refuse_if_needed(&mut self, value: ExprId, report: Diagnostic) {
        if let Some(report) = self.attribute(report) {
            self.doubts.found.push((Doubt { report, of: Some(value) }, None));
        }
    }

    /// Notes whether a doubt about `value` holds in this run.
    pub(crate) fn doubt(&mut self, holds: bool, value: ExprId, doubt: Diagnostic) {
        let Some(place) = &doubt.primary else { return };
        let key = (doubt.code, place.span, self.frames.iter().map(|frame| frame.span).collect());
        if !holds {
            self.doubts.refuted.insert(key);
        } else if let Some(report) = self.attribute(doubt) {
            self.doubts.found.push((Doubt { report, of: Some(value) }, Some(key)));
        }
    }

    /// `softmax` of `number` elements, whose result is `value`.
    pub(crate) fn doubt_softmax(&mut self, number: Option<usize>, of: &str, value: ExprId, span: Span) {
        let doubt = Diagnostic::at(
            codes::SOFTMAX_OF_ONE,
            span,
            "`softmax` over one element is 1",
            format!("{of}: gives 1, whatever its argument"),
        )
        .help("parameters of its argument never learn: leave the softmax out, or let it have more elements");
        self.doubt(number == Some(1), value, doubt);
    }

    /// `softmax` over the in-edges of scores, one for each semantic graph, with the result `value`.
    pub(crate) fn doubt_attention(&mut self, scores: ExprId, value: ExprId, span: Span) {
        let uniform = !varies(&self.model, scores);
        let of_destination = reaches(&self.model, scores, |kind| {
            matches!(
                kind,
                ExprKind::AtEnd(Direction::In, ..)
                    | ExprKind::AtPosition(..)
                    | ExprKind::DegreeAtEnd { end: Direction::In, .. }
                    | ExprKind::OverInEdges { reduction: Reduction::Softmax, .. }
            )
        });
        let label = match of_destination {
            true => "depends on the destination alone",
            false => "does not depend on the edge",
        };
        let message = "all in-edges of a vertex have the same score, so this attention is uniform";
        let doubt = Diagnostic::at(codes::UNIFORM_ATTENTION, span, message, label)
            .help("parameters of this score never learn: let it depend on `e.src.…` or on data of the edge, or take the `mean`");
        self.doubt(uniform, value, doubt);
    }

    /// The logits of a cross entropy, of the output declared at `declared`.
    pub fn doubt_logits(&mut self, logits: ExprId, declared: Span) {
        let mut value = logits;
        loop {
            let expr = self.model.computed(value);
            let span = expr.span;
            let found = match &expr.kind {
                ExprKind::Flatten(x) | ExprKind::Reshape(x) | ExprKind::Scores(x) => {
                    value = *x;
                    continue;
                }
                ExprKind::Dropout(x, _) => {
                    value = *x;
                    let message = "dropout on the logits of a cross entropy";
                    let help = "the loss is then of logits that are 0 at random: put the dropout in front of the last projection";
                    self.doubt_at(codes::DROPPED_LOGITS, (span, declared), message, "these are the logits", help);
                    continue;
                }
                ExprKind::OverDimension(_, Reduction::Softmax, _)
                | ExprKind::OverRows(Reduction::Softmax, _)
                | ExprKind::OverInEdges { reduction: Reduction::Softmax, .. }
                | ExprKind::Across(Reduction::Softmax, _) => Some(SOFTMAX),
                ExprKind::Unary(UnaryOp::Exp, x) => match self.model.computed(*x).kind {
                    ExprKind::Binary(BinaryOp::Sub, _, lse) if is_lse(&self.model, lse) => Some(SOFTMAX),
                    _ => Some(("exp", "logits are any numbers: leave it out")),
                },
                ExprKind::Unary(op, _) => match op {
                    UnaryOp::Sigmoid => {
                        Some(("sigmoid", "the loss takes the sigmoid or softmax itself: leave this one out"))
                    }
                    UnaryOp::Relu => {
                        Some(("relu", "logits below 0 are lost, and with them their gradients: leave it out"))
                    }
                    UnaryOp::Tanh => {
                        Some(("tanh", "logits are any numbers, and these lie between -1 and 1: leave it out"))
                    }
                    UnaryOp::Softplus => {
                        Some(("softplus", "logits are any numbers, and these are above 0: leave it out"))
                    }
                    UnaryOp::Abs => Some(("abs", "logits are any numbers, and these are above 0: leave it out")),
                    _ => None,
                },
                _ => None,
            };
            if let Some((name, help)) = found {
                let message = format!("`{name}` on the logits of a cross entropy");
                self.doubt_at(codes::BOUNDED_LOGITS, (span, declared), &message, "these are the logits", help);
            }
            return;
        }
    }

    /// A doubt about an operation: where it was written, or at the output where that is in a library.
    fn doubt_at(&mut self, code: Code, (origin, declared): (Span, Span), message: &str, label: &str, help: &str) {
        let doubt = match self.is_edited(origin) {
            true => Diagnostic::at(code, origin, message, label).label(declared, "the output is declared here"),
            false => Diagnostic::at(code, declared, message, label).label(origin, "computed here"),
        };
        self.doubts.add(doubt.help(help));
    }
}

/// A softmax as logits, and what to do.
const SOFTMAX: (&str, &str) = ("softmax", "the loss takes the softmax itself: leave this one out");

/// Is it a log-sum-exp, perhaps repeated?
fn is_lse(model: &Model, value: ExprId) -> bool {
    match &model.computed(value).kind {
        ExprKind::OverDimension(_, Reduction::LogSumExp, _)
        | ExprKind::OverRows(Reduction::LogSumExp, _)
        | ExprKind::OverInEdges { reduction: Reduction::LogSumExp, .. }
        | ExprKind::Across(Reduction::LogSumExp, _) => true,
        ExprKind::Broadcast(x) | ExprKind::AtEnd(Direction::In, x, _) | ExprKind::Flatten(x) | ExprKind::Reshape(x) => {
            is_lse(model, *x)
        }
        _ => false,
    }
}

/// Is an edge value computed from one that `found` wants, itself included?
fn reaches(model: &Model, value: ExprId, mut found: impl FnMut(&ExprKind) -> bool) -> bool {
    let mut seen = HashSet::from([value]);
    let mut stack = vec![value];
    while let Some(value) = stack.pop() {
        let expr = model.expr(value);
        if !expr.ty.rows().any(|row| matches!(row.space, Space::Edges(_))) {
            continue;
        }
        if found(&expr.kind) {
            return true;
        }
        let operands = match &expr.kind {
            ExprKind::Result(_, layer, result) => vec![model.uses[layer.index()].results[*result].1],
            // The values of the vertices at the ends are no edge values.
            ExprKind::AtEnd(..) | ExprKind::AtPosition(..) => vec![],
            kind => kind.operands(),
        };
        stack.extend(operands.into_iter().filter(|operand| seen.insert(*operand)));
    }
    false
}

/// Can an edge value differ between the in-edges of a vertex? What comes from the destination, or is repeated, cannot.
fn varies(model: &Model, value: ExprId) -> bool {
    reaches(model, value, |kind| match kind {
        ExprKind::AtEnd(end, ..) | ExprKind::DegreeAtEnd { end, .. } => *end == Direction::Out,
        ExprKind::AtPosition(_, at) => at.iter().any(|part| part.through.is_some()),
        ExprKind::EdgeData(..) | ExprKind::HopData(..) | ExprKind::Dropout(..) => true,
        _ => false,
    })
}
