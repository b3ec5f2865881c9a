//! Doubts: what is right and was probably not meant, found while a model is elaborated.
//!
//! A body of a layer runs several times; a doubt that holds for one run and not for another of the same use is none.
//! Doubts are reported at the end, where nothing is wrong, and only about values that reach an output.

use std::collections::HashSet;

use hgnnc_diag::{Code, Diagnostic, Diagnostics, Span, codes};
use hgnnc_ir::{BinaryOp, Dataflow, Graph, Op, Reduce, Space, UnaryOp, Value};

use crate::elaborate::Elaborator;

/// The place of a doubt in a body, and the uses that led there.
type Key = (Code, Span, Vec<Span>);

/// Warnings about constructs, and the places where another run of the same body refutes them.
#[derive(Default)]
pub struct Doubts {
    found: Vec<(Diagnostic, Option<(Key, Value)>)>,
    refuted: HashSet<Key>,
}

impl Doubts {
    /// A doubt that no other run can refute.
    pub fn add(&mut self, doubt: Diagnostic) {
        self.found.push((doubt, None));
    }

    /// Reports what was not refuted; `live` says which values reach an output.
    pub fn report(self, live: &[bool], diagnostics: &mut Diagnostics) {
        for (doubt, of) in self.found {
            let holds = of.is_none_or(|(key, value)| !self.refuted.contains(&key) && live[value.index()]);
            if holds {
                diagnostics.push(doubt);
            }
        }
    }
}

impl Elaborator<'_> {
    /// Notes whether a doubt about `value` holds in this run.
    fn doubt(&mut self, holds: bool, value: Value, doubt: Diagnostic) {
        let Some(place) = &doubt.primary else { return };
        let key = (doubt.code, place.span, self.frames.iter().map(|frame| frame.span).collect());
        if !holds {
            self.doubts.refuted.insert(key);
        } else if let Some(doubt) = self.attribute(doubt) {
            self.doubts.found.push((doubt, Some((key, value))));
        }
    }

    /// `softmax` of `number` elements, whose result is `value`.
    pub fn doubt_softmax(&mut self, number: Option<usize>, of: &str, value: Value, span: Span) {
        let doubt = Diagnostic::at(
            codes::SOFTMAX_OF_ONE,
            span,
            "`softmax` over one element is 1",
            format!("{of}: gives 1, whatever its argument"),
        )
        .help("parameters of its argument never learn: leave the softmax out, or let it have more elements");
        self.doubt(number == Some(1), value, doubt);
    }

    /// `softmax` over the in-edges of scores, one for each semantic graph, of which `value` is a result.
    pub fn doubt_attention(&mut self, scores: &[Value], value: Value, span: Span) {
        let uniform = scores.iter().all(|score| !varies(&self.flow, *score));
        let of_destination = scores.iter().any(|score| gathers_destination(&self.flow, *score));
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
    pub fn doubt_logits(&mut self, logits: Value, declared: Span) {
        let mut value = logits;
        loop {
            let data = &self.flow.values[value.index()];
            let origin = data.origin.map(|o| Span::new(hgnnc_diag::FileId(o.file), o.start as usize, o.end as usize));
            let (op, args) = (data.op.clone(), data.args.clone());
            let op_of = |value: Value| &self.flow.values[value.index()].op;
            let found = match (&op, &args[..]) {
                (Op::Reshape(_), [arg]) => {
                    value = *arg;
                    continue;
                }
                (Op::Binary(BinaryOp::Mul), [x, mask]) if matches!(op_of(*mask), Op::RandomMask { .. }) => {
                    let (x, message) = (*x, "dropout on the logits of a cross entropy");
                    let help = "the loss is then of logits that are 0 at random: put the dropout in front of the last projection";
                    self.doubt_at(codes::DROPPED_LOGITS, (origin, declared), message, "these are the logits", help);
                    value = x;
                    continue;
                }
                (Op::Unary(UnaryOp::Exp), [inner]) => match &self.flow.values[inner.index()] {
                    difference
                        if difference.op == Op::Binary(BinaryOp::Sub) && is_lse(&self.flow, difference.args[1]) =>
                    {
                        Some(("softmax", "the loss takes the softmax itself: leave this one out"))
                    }
                    _ => Some(("exp", "logits are any numbers: leave it out")),
                },
                (Op::Unary(op), [_]) => match op {
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
                self.doubt_at(codes::BOUNDED_LOGITS, (origin, declared), &message, "these are the logits", help);
            }
            return;
        }
    }

    /// A doubt about an operation: where it was written, or at the output where that is in a library.
    fn doubt_at(
        &mut self,
        code: Code,
        (origin, declared): (Option<Span>, Span),
        message: &str,
        label: &str,
        help: &str,
    ) {
        let doubt = match origin {
            Some(origin) if self.is_local(origin) => {
                Diagnostic::at(code, origin, message, label).label(declared, "the output is declared here")
            }
            Some(origin) => Diagnostic::at(code, declared, message, label).label(origin, "computed here"),
            None => Diagnostic::at(code, declared, message, label),
        };
        self.doubts.add(doubt.help(help));
    }
}

/// Is it a log-sum-exp, perhaps repeated?
fn is_lse(flow: &Dataflow, value: Value) -> bool {
    let data = &flow.values[value.index()];
    match &data.op {
        Op::ReduceTrailing { reduce: Reduce::Lse, .. } | Op::ReduceSpace(Reduce::Lse) => true,
        Op::Segment { reduce: Reduce::Lse, .. } | Op::Binary(BinaryOp::LogAddExp) => true,
        Op::Broadcast(_) | Op::GatherDst(_) | Op::Reshape(_) => is_lse(flow, data.args[0]),
        _ => false,
    }
}

/// The values of edges of one graph that an edge value is computed from, itself included, as
/// long as `go_on` wants more.
fn reaches(flow: &Dataflow, value: Value, mut found: impl FnMut(&Op, Graph) -> bool) -> bool {
    let mut seen = HashSet::from([value]);
    let mut stack = vec![value];
    while let Some(value) = stack.pop() {
        let Space::Edges(graph) = flow.ty(value).space else { continue };
        let data = &flow.values[value.index()];
        if found(&data.op, graph) {
            return true;
        }
        stack.extend(data.args.iter().copied().filter(|arg| seen.insert(*arg)));
    }
    false
}

/// Can an edge value differ between the in-edges of a vertex? What comes from the destination, or is repeated, cannot.
fn varies(flow: &Dataflow, value: Value) -> bool {
    reaches(flow, value, |op, _| {
        let same = op.is_row_wise() || matches!(op, Op::GatherDst(_));
        !same
    })
}

/// Is an edge value computed from one of the destination?
fn gathers_destination(flow: &Dataflow, value: Value) -> bool {
    reaches(flow, value, |op, _| matches!(op, Op::GatherDst(_)))
}
