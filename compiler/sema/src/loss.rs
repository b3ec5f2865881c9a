//! Losses: what an output is compared with, as part of the program.

use std::collections::BTreeMap;

use hgnnc_diag::habits::Place;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::artifact::Task;
use hgnnc_ir::dataflow::{Binding, InputDecl};
use hgnnc_ir::{BinaryOp, DType, Dim, Graph, Op, Reduce, Space, Type, UnaryOp, Value, VertexType};
use hgnnc_syntax::ast::{self, Expr, ExprKind};

use crate::consts::Consts;
use crate::elaborate::Elaborator;
use crate::functions::match_arguments;
use crate::links::LINKS;
use crate::model::{OutputInfo, OutputOf};
use crate::names::{did_you_mean, suggest};
use crate::schema::FieldKind;
use crate::value::{ValKind, show_widths};

const LOSSES: &[&str] = &["cross_entropy", "binary_cross_entropy", "mse", "mae"];

/// The output that a loss is of.
pub struct Trained {
    /// The name of the output.
    pub output: String,
    /// How it is read.
    pub task: Task,
    /// The ground truth of the output.
    pub of: TrainedOf,
}

/// The ground truth that a trained output is compared with.
pub enum TrainedOf {
    /// Compared with a label of vertices: its name in the dataset, and its field.
    Label { vertex: VertexType, label: String, field: usize },
    /// Scores of pairs, of these graphs.
    Links(Vec<Graph>),
}

impl Elaborator<'_> {
    pub fn loss(
        &mut self,
        expr: &Expr,
        outputs: &BTreeMap<String, OutputInfo>,
        consts: &Consts,
        on_batches: bool,
    ) -> Option<Trained> {
        let ExprKind::Call(call) = &expr.kind else {
            if !matches!(expr.kind, ExprKind::Error) {
                self.report(
                    Diagnostic::at(
                        codes::UNKNOWN_CHOICE,
                        expr.span,
                        "a loss compares an output with a label",
                        "not a loss",
                    )
                    .help("write `cross_entropy(OUTPUT, VertexType.label)`"),
                );
            }
            return None;
        };
        let name = call.callee.name.as_str();
        let names: &[&str] = match name {
            "cross_entropy" => &["output", "label", "class_weights", "label_smoothing"],
            "binary_cross_entropy" | "mse" | "mae" => &["output", "label"],
            _ => {
                let report = Diagnostic::at(
                    codes::UNKNOWN_CHOICE,
                    call.callee.span,
                    format!("`{name}` is not a loss"),
                    "unknown loss",
                );
                let report = suggest(report, Place::Loss, name, LOSSES.iter().copied());
                self.report(report);
                return None;
            }
        };
        let sorted = match match_arguments(&call.args, names, &format!("`{name}`"), expr.span) {
            Ok(sorted) => sorted,
            Err(mistakes) => {
                mistakes.into_iter().for_each(|mistake| self.report(mistake));
                return None;
            }
        };
        let (Some(output), Some(label)) = (sorted[0], sorted[1]) else {
            self.report(Diagnostic::at(
                codes::MISSING_ARGUMENT,
                expr.span,
                format!("`{name}` compares an output with a label"),
                "takes (output, label)",
            ));
            return None;
        };
        let output_info = self.loss_output(output, outputs);
        let of_links = matches!(&label.kind, ExprKind::Name(name) if name == LINKS);
        if let Some((name, OutputInfo { of: OutputOf::Links(scores), span })) = &output_info {
            return self.loss_of_links((name, *span, scores), &call.callee, of_links.then_some(label), expr.span);
        }
        if of_links {
            if let Some((name, info)) = output_info {
                let report = Diagnostic::at(
                    codes::LINK_LOSS,
                    label.span,
                    format!("output `{name}` belongs to vertices, not to pairs of them"),
                    "links are pairs",
                )
                .label(info.span, "the output is declared here")
                .help(format!(
                    "declare it for pairs: `output {name}: {LINKS} = DistMult() over links(relations) of h`"
                ));
                self.report(report);
            }
            return None;
        }
        let label_info = self.loss_label(label);
        let (output_name, OutputInfo { of: OutputOf::Vertices(of, val), span: output_span }) = output_info? else {
            return None;
        };
        let (vertex, field) = label_info?;
        let decl = &self.schema.vertices[vertex.index()].fields[field];
        let label_name = format!("{}.{}", self.vertex_name(vertex), decl.name);
        let kind_name = match decl.kind {
            FieldKind::Class(_) => "a class",
            FieldKind::MultiLabel(_) => "several labels",
            _ => "real numbers",
        };
        let (task, extent) = match (name, decl.kind) {
            ("cross_entropy", FieldKind::Class(classes)) => (Task::Classify { classes }, classes),
            ("binary_cross_entropy", FieldKind::MultiLabel(labels)) => (Task::MultiLabel { labels }, labels),
            ("mse" | "mae", FieldKind::Target(width)) => (Task::Regress { width }, width),
            (_, kind) => {
                let fitting = match kind {
                    FieldKind::Class(_) => "cross_entropy",
                    FieldKind::MultiLabel(_) => "binary_cross_entropy",
                    _ => "mse` or `mae",
                };
                self.report(
                    Diagnostic::at(
                        codes::LABEL_LOSS_MISMATCH,
                        call.callee.span,
                        format!("`{name}` does not fit `{label_name}`, which is {kind_name}"),
                        "compares something else",
                    )
                    .label(decl.ty_span, "the label is declared here")
                    .help(format!("use `{fitting}`")),
                );
                return None;
            }
        };
        if of != vertex {
            self.report(
                Diagnostic::at(
                    codes::LABEL_VERTEX,
                    label.span,
                    format!(
                        "output `{output_name}` belongs to `{}`, the label to `{}`",
                        self.vertex_name(of),
                        self.vertex_name(vertex)
                    ),
                    "another vertex type",
                )
                .label(output_span, "the output is declared here"),
            );
            return None;
        }
        if val.widths.len() != 1 || val.widths[0].dim != Dim::Fixed(extent) {
            let what = match task {
                Task::Classify { .. } => "classes",
                Task::MultiLabel { .. } => "labels",
                Task::Regress { .. } => "targets",
                Task::Link => "links",
            };
            let mut report = Diagnostic::at(
                codes::CLASS_COUNT,
                output.span,
                format!(
                    "output `{output_name}` is {} per vertex, but `{label_name}` has {extent} {what}",
                    show_widths(&self.flow, &val.widths)
                ),
                format!("should be [{extent}]"),
            )
            .label(decl.ty_span, format!("{extent} {what} declared here"));
            if let Some(width) = val.widths.last() {
                report = report.label(width.origin, "the output's width comes from here");
            }
            self.report(
                report.help(format!("give the output the width {extent}, or put `linear(…, {extent})` behind it")),
            );
            return None;
        }
        let class_weights = match sorted.get(2).copied().flatten() {
            Some(expr) => self.class_weights(expr, extent, consts).map(Some),
            None => Some(None),
        };
        let smoothing = match sorted.get(3).copied().flatten() {
            Some(expr) => {
                let smoothing = self.ranged(expr, consts, 0.0, 1.0, "label smoothing")?;
                if smoothing == 1.0 {
                    let message = "label smoothing is at least 0 and less than 1";
                    self.report(
                        Diagnostic::at(
                            codes::ARGUMENT_RANGE,
                            expr.span,
                            message,
                            "the label would have no part in the loss",
                        )
                        .help("a usual share is 0.1"),
                    );
                    return None;
                }
                smoothing
            }
            None => 0.0,
        };
        let class_weights = class_weights?;
        let ValKind::Stored(logits) = val.kind else { return None };
        if matches!(task, Task::Classify { .. } | Task::MultiLabel { .. }) {
            self.doubt_logits(logits, output_span);
        }
        let at = expr.span;
        let label_input = self.label_input(vertex, field, task, at);
        let (row, weight) = match task {
            Task::Classify { classes } => {
                self.cross_entropy(logits, label_input, classes, class_weights, smoothing, at)
            }
            Task::Link => return None,
            Task::MultiLabel { labels } => (self.binary_cross_entropy(logits, label_input, labels, at), None),
            Task::Regress { width } => (self.distance(logits, label_input, width, name == "mse", at), None),
        };
        self.mean_loss(row, weight, vertex, at, on_batches);
        let label = decl.dataset_name.clone().unwrap_or_default();
        Some(Trained { output: output_name, task, of: TrainedOf::Label { vertex, label, field } })
    }

    /// The loss of an output of links; `label` where it is compared with them.
    fn loss_of_links(
        &mut self,
        (name, declared, scores): (&str, Span, &BTreeMap<Graph, Value>),
        loss: &ast::Ident,
        label: Option<&Expr>,
        at: Span,
    ) -> Option<Trained> {
        if loss.name != "binary_cross_entropy" || label.is_none() {
            let report = Diagnostic::at(
                codes::LINK_LOSS,
                if label.is_some() { loss.span } else { at },
                format!("output `{name}` is a score of pairs of vertices, which are links or not"),
                if label.is_some() { "compares something else" } else { "compares it with something else" },
            )
            .label(declared, "the output is declared here")
            .help(format!("write `binary_cross_entropy({name}, {LINKS})`"));
            self.report(report);
            return None;
        }
        for score in scores.values() {
            self.doubt_logits(*score, declared);
        }
        self.link_loss(scores, at);
        let of = TrainedOf::Links(scores.keys().copied().collect());
        Some(Trained { output: name.to_owned(), task: Task::Link, of })
    }

    fn loss_output(&mut self, expr: &Expr, outputs: &BTreeMap<String, OutputInfo>) -> Option<(String, OutputInfo)> {
        let ExprKind::Name(name) = &expr.kind else {
            if matches!(expr.kind, ExprKind::Error) {
                return None;
            }
            self.report(Diagnostic::at(
                codes::UNKNOWN_NAME,
                expr.span,
                "the first argument of a loss is the name of an output",
                "not a name",
            ));
            return None;
        };
        if let Some(info) = outputs.get(name) {
            return Some((name.clone(), info.clone()));
        }
        // An output that was wrong itself has been reported.
        if !self.declared_outputs.contains(name) {
            let report = Diagnostic::at(
                codes::UNKNOWN_NAME,
                expr.span,
                format!("the model has no output `{name}`"),
                "unknown output",
            );
            let report = did_you_mean(report, name, outputs.keys().map(String::as_str));
            self.report(report);
        }
        None
    }

    fn loss_label(&mut self, expr: &Expr) -> Option<(VertexType, usize)> {
        let ExprKind::Field(base, field) = &expr.kind else {
            if matches!(expr.kind, ExprKind::Error) {
                return None;
            }
            let mut labels = vec![];
            for vertex in &self.schema.vertices {
                let own = vertex.fields.iter().filter(|f| !f.kind.is_feature());
                labels.extend(own.map(|f| (f.name.as_str(), format!("`{}.{}`", vertex.name, f.name))));
            }
            let named: Vec<&str> = match &expr.kind {
                ExprKind::Name(name) => labels.iter().filter(|l| l.0 == name).map(|l| l.1.as_str()).collect(),
                _ => vec![],
            };
            let help = match &named[..] {
                [] => "write `VertexType.label`, as in `Paper.topic`".to_string(),
                known => format!("write {}", known.join(" or ")),
            };
            self.report(
                Diagnostic::at(
                    codes::UNKNOWN_NAME,
                    expr.span,
                    "the second argument of a loss is a label",
                    "not a label",
                )
                .help(help),
            );
            return None;
        };
        let ExprKind::Name(vertex) = &base.kind else {
            self.report(Diagnostic::at(codes::UNKNOWN_NAME, base.span, "a vertex type is expected", "not a name"));
            return None;
        };
        let ident = ast::Ident { name: vertex.clone(), span: base.span };
        let vertex = self.schema.vertex(&ident, self.diagnostics)?;
        let info = &self.schema.vertices[vertex];
        let is_label = |kind: FieldKind| !kind.is_feature();
        match info.fields.iter().position(|f| f.name == field.name) {
            Some(position) if is_label(info.fields[position].kind) => Some((VertexType::new(vertex), position)),
            Some(position) => {
                self.report(
                    Diagnostic::at(
                        codes::LABEL_LOSS_MISMATCH,
                        expr.span,
                        format!("`{}.{}` is a feature, not a label", info.name, field.name),
                        "not a label",
                    )
                    .label(info.fields[position].ty_span, "declared here")
                    .help("labels are declared as `class[n]`, `multilabel[n]` or `target[n]`"),
                );
                None
            }
            None if self.schema.broken.contains(&format!("{}.{}", info.name, field.name)) => None,
            None => {
                let report = Diagnostic::at(
                    codes::UNKNOWN_FIELD,
                    field.span,
                    format!("vertex type `{}` has no field `{}`", info.name, field.name),
                    "not declared",
                )
                .label(info.span, format!("`{}` is declared here", info.name));
                let labels = info.fields.iter().filter(|f| is_label(f.kind)).map(|f| f.name.as_str());
                let report = did_you_mean(report, &field.name, labels);
                self.report(report);
                None
            }
        }
    }

    fn class_weights(&mut self, expr: &Expr, classes: usize, consts: &Consts) -> Option<Vec<f64>> {
        let ExprKind::List(items) = &expr.kind else {
            self.report(Diagnostic::at(
                codes::NOT_CONSTANT,
                expr.span,
                "class weights are a list of numbers",
                "not a list",
            ));
            return None;
        };
        if items.len() != classes {
            self.report(Diagnostic::at(
                codes::CLASS_COUNT,
                expr.span,
                format!("there are {classes} classes, but {} weights", items.len()),
                "one weight per class",
            ));
            return None;
        }
        let weights: Vec<Option<f64>> =
            items.iter().map(|item| self.ranged(item, consts, 0.0, f64::MAX, "a class weight")).collect();
        let weights: Vec<f64> = weights.into_iter().collect::<Option<_>>()?;
        if weights.iter().all(|weight| *weight == 0.0) {
            let message = "all class weights are 0";
            self.report(
                Diagnostic::at(codes::ARGUMENT_RANGE, expr.span, message, "no vertex would have a part in the loss")
                    .help("give the classes that count a weight of 1"),
            );
            return None;
        }
        Some(weights)
    }

    fn label_input(&mut self, vertex: VertexType, field: usize, task: Task, at: Span) -> Value {
        let decl = &self.schema.vertices[vertex.index()].fields[field];
        let space = Space::Vertices(vertex);
        let ty = match task {
            Task::Classify { .. } => Type { dtype: DType::I32, ..Type::fixed(space, &[]) },
            Task::MultiLabel { labels: width } | Task::Regress { width } => Type::fixed(space, &[width]),
            Task::Link => Type::fixed(space, &[]),
        };
        let name = format!("{}.{}", self.vertex_name(vertex), decl.name);
        let binding = Binding::Label(vertex, decl.dataset_name.clone().unwrap_or_default());
        let input = self.declare_input(InputDecl { name, ty, binding });
        self.emit(Op::Input(input), &[], at)
    }

    /// `lse(logits) - logits[label]`, weighted by class, mixed with the mean over classes by smoothing.
    fn cross_entropy(
        &mut self,
        logits: Value,
        label: Value,
        classes: usize,
        class_weights: Option<Vec<f64>>,
        smoothing: f64,
        at: Span,
    ) -> (Value, Option<Value>) {
        let chosen = self.emit(Op::OneHot { classes }, &[label], at);
        let lse = self.emit(Op::ReduceTrailing { reduce: Reduce::Lse, axes: 1 }, &[logits], at);
        let picked = self.emit(Op::Binary(BinaryOp::Mul), &[logits, chosen], at);
        let picked = self.emit(Op::ReduceTrailing { reduce: Reduce::Sum, axes: 1 }, &[picked], at);
        let mut row = self.emit(Op::Binary(BinaryOp::Sub), &[lse, picked], at);
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
        let Some(weights) = class_weights else { return (row, None) };
        let parts: Vec<Value> = weights
            .into_iter()
            .map(|w| {
                let w = self.emit(Op::Const(w), &[], at);
                self.emit(Op::Reshape(vec![Dim::Fixed(1)]), &[w], at)
            })
            .collect();
        let table = self.emit(Op::Concat, &parts, at);
        let weighted = self.emit(Op::Binary(BinaryOp::Mul), &[chosen, table], at);
        let weight = self.emit(Op::ReduceTrailing { reduce: Reduce::Sum, axes: 1 }, &[weighted], at);
        (self.emit(Op::Binary(BinaryOp::Mul), &[row, weight], at), Some(weight))
    }

    /// `softplus(x) - x·y`, the mean over labels.
    fn binary_cross_entropy(&mut self, logits: Value, label: Value, labels: usize, at: Span) -> Value {
        let softplus = self.emit(Op::Unary(UnaryOp::Softplus), &[logits], at);
        let product = self.emit(Op::Binary(BinaryOp::Mul), &[logits, label], at);
        let each = self.emit(Op::Binary(BinaryOp::Sub), &[softplus, product], at);
        self.mean_of_row(each, labels, at)
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

    /// The weighted mean of the row losses over the training part.
    fn mean_loss(&mut self, row: Value, weight: Option<Value>, vertex: VertexType, at: Span, on_batches: bool) {
        let ty = Type::fixed(Space::Vertices(vertex), &[]);
        let name = format!("{}.train", self.vertex_name(vertex));
        let mask = self.declare_input(InputDecl { name, ty, binding: Binding::TrainMask(vertex) });
        let mask = self.emit(Op::Input(mask), &[], at);
        let masked = self.emit(Op::Binary(BinaryOp::Mul), &[row, mask], at);
        let sum = self.emit(Op::ReduceSpace(Reduce::Sum), &[masked], at);
        let weights = match weight {
            Some(weight) => self.emit(Op::Binary(BinaryOp::Mul), &[weight, mask], at),
            None => mask,
        };
        let mut total = self.emit(Op::ReduceSpace(Reduce::Sum), &[weights], at);
        if weight.is_some() && on_batches {
            // All seeds of a batch may be of classes without weight: its loss is 0.
            let least = self.emit(Op::Const(f64::from(f32::MIN_POSITIVE)), &[], at);
            total = self.emit(Op::Binary(BinaryOp::Max), &[total, least], at);
        }
        let loss = self.emit(Op::Binary(BinaryOp::Div), &[sum, total], at);
        self.flow.output("loss", loss);
        self.flow.output("row_loss", row);
    }
}
