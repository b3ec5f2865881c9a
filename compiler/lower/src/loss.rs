//! Losses: comparisons of outputs with their ground truth, and the weighted sum of all terms, as part of the program.

use std::collections::BTreeMap;

use hgnnc_diag::Span;
use hgnnc_hir::{Label, Loss, LossKind, LossTerm};
use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::training::{LOSS_NUMBER, LinkLoss, row_loss};
use hgnnc_ir::{BinaryOp, DType, Dim, Graph, Op, Reduce, Space, Type, UnaryOp, Value, VertexType};

use crate::Instance;
use crate::value::{Val, Values};

impl Instance<'_> {
    /// Adds the result `loss`, for terms of vertices their `row_loss`, and the sum of the terms without a ground truth.
    pub fn loss(&mut self, loss: &Loss) {
        let (mut total, mut number): (Option<Value>, Option<Value>) = (None, None);
        let mut all_rows = vec![];
        for term in &loss.terms {
            let (value, rows) = self.loss_term(term, loss.on_batches);
            all_rows.extend(rows);
            let value = self.weighted(value, term.weight, term.span);
            if let LossKind::Number = term.kind {
                number = Some(self.plus(number, value, term.span));
            }
            total = Some(self.plus(total, value, term.span));
        }
        self.flow.output("loss", total.expect("a loss has terms"));
        // A term of links has none, and is the only comparison.
        for (term, rows) in all_rows.into_iter().enumerate() {
            self.flow.output(row_loss(term), rows);
        }
        if let Some(number) = number {
            self.flow.output(LOSS_NUMBER, number);
        }
    }

    fn weighted(&mut self, value: Value, weight: f64, at: Span) -> Value {
        if weight == 1.0 {
            return value;
        }
        let weight = self.emit(Op::Const(weight), &[], at);
        self.emit(Op::Binary(BinaryOp::Mul), &[value, weight], at)
    }

    fn plus(&mut self, sum: Option<Value>, value: Value, at: Span) -> Value {
        match sum {
            Some(sum) => self.emit(Op::Binary(BinaryOp::Add), &[sum, value], at),
            None => value,
        }
    }

    /// The value of a term, and the loss of each vertex in it.
    fn loss_term(&mut self, term: &LossTerm, on_batches: bool) -> (Value, Option<Value>) {
        let at = term.span;
        let output = self.eval(term.value);
        let (label, (row, weight)) = match &term.kind {
            LossKind::CrossEntropy { label, classes, class_weights, smoothing, focus } => {
                let truth = self.label(label, &[], DType::I32, at);
                let logits = output.one().stored();
                let chosen = self.emit(Op::OneHot { classes: *classes }, &[truth], at);
                let row = self.cross_entropy(logits, chosen, (*smoothing, *focus), *classes, at);
                (label, self.weighted_by_class(row, chosen, class_weights.as_deref(), at))
            }
            LossKind::BinaryCrossEntropy { label, labels, focus } => {
                let truth = self.label(label, &[*labels], DType::F32, at);
                let logits = self.as_row(&output, at);
                let each = self.binary_cross_entropy(logits, truth, at);
                let each = self.focused(each, each, *focus, at);
                (label, (self.mean_of_row(each, *labels, at), None))
            }
            LossKind::Distance { label, width, squared } => {
                let truth = self.label(label, &[*width], DType::F32, at);
                let output = self.as_row(&output, at);
                (label, (self.distance(output, truth, *width, *squared, at), None))
            }
            LossKind::Links(loss) => {
                let Values::ByGraph(scores) = &*output else { unreachable!("scores of pairs are edge values") };
                let value = match *loss {
                    LinkLoss::BinaryCrossEntropy => self.link_loss(scores, at),
                    LinkLoss::Ranking(loss) => {
                        let scores: Vec<Value> = scores.values().map(Val::stored).collect();
                        self.emit(Op::LinkLoss(loss), &scores, at)
                    }
                };
                return (value, None);
            }
            LossKind::Number => return (output.one().stored(), None),
        };
        let hidden = self.model.hidden_labels(term.value, label);
        let shown = hidden.map(|hidden| self.shown_labels(&label.name, label.vertex, hidden, at));
        (self.mean_loss(row, (weight, shown), label.vertex, at, on_batches), Some(row))
    }

    /// An output as a row of numbers, where it is a single number.
    fn as_row(&mut self, output: &Values, at: Span) -> Value {
        match output.one() {
            output if self.dims(output).is_empty() => self.reshape(output, vec![Dim::Fixed(1)], at).stored(),
            output => output.stored(),
        }
    }

    fn label(&mut self, label: &Label, dims: &[usize], dtype: DType, at: Span) -> Value {
        let ty = Type { dtype, ..Type::fixed(Space::Vertices(label.vertex), dims) };
        self.input(label.name.clone(), ty, Binding::Label(label.vertex, label.dataset_name.clone()), at)
    }

    /// `lse(logits) - logits[label]`, mixed with the mean over classes by smoothing, and focused.
    fn cross_entropy(
        &mut self,
        logits: Value,
        chosen: Value,
        (smoothing, focus): (f64, f64),
        classes: usize,
        at: Span,
    ) -> Value {
        let lse = self.emit(Op::ReduceTrailing { reduce: Reduce::Lse, axes: 1 }, &[logits], at);
        let picked = self.emit(Op::Binary(BinaryOp::Mul), &[logits, chosen], at);
        let picked = self.emit(Op::ReduceTrailing { reduce: Reduce::Sum, axes: 1 }, &[picked], at);
        let of_class = self.emit(Op::Binary(BinaryOp::Sub), &[lse, picked], at);
        let mut row = of_class;
        if smoothing > 0.0 {
            let sum = self.emit(Op::ReduceTrailing { reduce: Reduce::Sum, axes: 1 }, &[logits], at);
            let share = self.emit(Op::Const(1.0 / classes as f64), &[], at);
            let mean = self.emit(Op::Binary(BinaryOp::Mul), &[sum, share], at);
            let spread = self.emit(Op::Binary(BinaryOp::Sub), &[lse, mean], at);
            let keep = self.emit(Op::Const(1.0 - smoothing), &[], at);
            let rest = self.emit(Op::Const(smoothing), &[], at);
            let a = self.emit(Op::Binary(BinaryOp::Mul), &[row, keep], at);
            let b = self.emit(Op::Binary(BinaryOp::Mul), &[spread, rest], at);
            row = self.emit(Op::Binary(BinaryOp::Add), &[a, b], at);
        }
        self.focused(row, of_class, focus, at)
    }

    /// The focal loss (Lin et al., ICCV 2017): `loss · (1 − p)^focus`, where `p = exp(-entropy)` is the predicted
    /// probability of the truth.
    fn focused(&mut self, loss: Value, entropy: Value, focus: f64, at: Span) -> Value {
        if focus == 0.0 {
            return loss;
        }
        let minus = self.emit(Op::Unary(UnaryOp::Neg), &[entropy], at);
        let p = self.emit(Op::Unary(UnaryOp::Exp), &[minus], at);
        let one = self.emit(Op::Const(1.0), &[], at);
        let mut factor = self.emit(Op::Binary(BinaryOp::Sub), &[one, p], at);
        if focus != 1.0 {
            // Above the smallest difference of two numbers next to 1, the power has a derivative.
            let least = self.emit(Op::Const(f64::from(f32::EPSILON)), &[], at);
            let base = self.emit(Op::Binary(BinaryOp::Max), &[factor, least], at);
            let log = self.emit(Op::Unary(UnaryOp::Log), &[base], at);
            let exponent = self.emit(Op::Const(focus), &[], at);
            let product = self.emit(Op::Binary(BinaryOp::Mul), &[log, exponent], at);
            factor = self.emit(Op::Unary(UnaryOp::Exp), &[product], at);
        }
        self.emit(Op::Binary(BinaryOp::Mul), &[loss, factor], at)
    }

    /// The loss of each vertex times the weight of its class, and that weight.
    fn weighted_by_class(
        &mut self,
        row: Value,
        chosen: Value,
        class_weights: Option<&[f64]>,
        at: Span,
    ) -> (Value, Option<Value>) {
        let Some(weights) = class_weights else { return (row, None) };
        let parts: Vec<Value> = weights
            .iter()
            .map(|w| {
                let w = self.emit(Op::Const(*w), &[], at);
                self.emit(Op::Reshape(vec![Dim::Fixed(1)]), &[w], at)
            })
            .collect();
        let table = self.emit(Op::Concat, &parts, at);
        let weighted = self.emit(Op::Binary(BinaryOp::Mul), &[chosen, table], at);
        let weight = self.emit(Op::ReduceTrailing { reduce: Reduce::Sum, axes: 1 }, &[weighted], at);
        (self.emit(Op::Binary(BinaryOp::Mul), &[row, weight], at), Some(weight))
    }

    /// `softplus(x) - x·y` for each label.
    fn binary_cross_entropy(&mut self, logits: Value, label: Value, at: Span) -> Value {
        let softplus = self.emit(Op::Unary(UnaryOp::Softplus), &[logits], at);
        let product = self.emit(Op::Binary(BinaryOp::Mul), &[logits, label], at);
        self.emit(Op::Binary(BinaryOp::Sub), &[softplus, product], at)
    }

    fn distance(&mut self, output: Value, label: Value, width: usize, squared: bool, at: Span) -> Value {
        let difference = self.emit(Op::Binary(BinaryOp::Sub), &[output, label], at);
        let each = if squared {
            self.emit(Op::Binary(BinaryOp::Mul), &[difference, difference], at)
        } else {
            self.emit(Op::Unary(UnaryOp::Abs), &[difference], at)
        };
        self.mean_of_row(each, width, at)
    }

    fn mean_of_row(&mut self, each: Value, width: usize, at: Span) -> Value {
        let sum = self.emit(Op::ReduceTrailing { reduce: Reduce::Sum, axes: 1 }, &[each], at);
        let share = self.emit(Op::Const(1.0 / width as f64), &[], at);
        self.emit(Op::Binary(BinaryOp::Mul), &[sum, share], at)
    }

    /// The weighted mean of the row losses over the training part, without the vertices whose labels are shown.
    fn mean_loss(
        &mut self,
        row: Value,
        (weight, shown): (Option<Value>, Option<Value>),
        vertex: VertexType,
        at: Span,
        on_batches: bool,
    ) -> Value {
        let ty = Type::fixed(Space::Vertices(vertex), &[]);
        let name = format!("{}.train", self.flow.vertex_types[vertex.index()].name);
        let mut mask = self.input(name, ty, Binding::TrainMask(vertex), at);
        if let Some(shown) = shown {
            let none = self.emit(Op::Const(0.0), &[], at);
            let hidden = self.emit(Op::Binary(BinaryOp::Eq), &[shown, none], at);
            mask = self.emit(Op::Binary(BinaryOp::Mul), &[mask, hidden], at);
        }
        let masked = self.emit(Op::Binary(BinaryOp::Mul), &[row, mask], at);
        let sum = self.emit(Op::ReduceSpace(Reduce::Sum), &[masked], at);
        let weights = match weight {
            Some(weight) => self.emit(Op::Binary(BinaryOp::Mul), &[weight, mask], at),
            None => mask,
        };
        let mut total = self.emit(Op::ReduceSpace(Reduce::Sum), &[weights], at);
        if weight.is_some() && on_batches || shown.is_some() {
            // All seeds of a batch may be of classes without weight, and all labels may be shown: the loss is 0.
            let least = self.emit(Op::Const(f64::from(f32::MIN_POSITIVE)), &[], at);
            total = self.emit(Op::Binary(BinaryOp::Max), &[total, least], at);
        }
        self.emit(Op::Binary(BinaryOp::Div), &[sum, total], at)
    }

    /// The mean over all pairs of the binary cross entropy of their scores, `softplus(x) - x·y` where `y`
    /// is 1 for links.
    fn link_loss(&mut self, scores: &BTreeMap<Graph, Val>, at: Span) -> Value {
        let (mut sums, mut counts) = (vec![], vec![]);
        for (&graph, score) in scores {
            let score = score.stored();
            let space = Space::Edges(graph);
            let name = format!("{}.is_link", self.flow.graphs[graph.index()].name);
            let is_link = self.input(name, Type::fixed(space, &[]), Binding::IsLink(graph), at);
            let each = self.binary_cross_entropy(score, is_link, at);
            sums.push(self.emit(Op::ReduceSpace(Reduce::Sum), &[each], at));
            counts.push(self.emit(Op::Count(space), &[], at));
        }
        let [sum, count] = [sums, counts].map(|mut terms| {
            // In pairs, so that a sum of many relations is no long chain.
            while terms.len() > 1 {
                let joined = terms.chunks(2).map(|pair| match *pair {
                    [a, b] => self.emit(Op::Binary(BinaryOp::Add), &[a, b], at),
                    _ => pair[0],
                });
                terms = joined.collect();
            }
            terms[0]
        });
        self.emit(Op::Binary(BinaryOp::Div), &[sum, count], at)
    }
}
