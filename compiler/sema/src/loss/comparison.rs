//! Comparisons: terms of a loss that compare an output with its ground truth.

use hgnnc_declare::arguments::match_arguments;
use hgnnc_declare::consts::Consts;
use hgnnc_declare::names::{did_you_mean, suggest};
use hgnnc_declare::schema::{FieldInfo, FieldKind};
use hgnnc_diag::synonyms::Place;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_elaborate::LINKS;
use hgnnc_hir::text::show_widths;
use hgnnc_hir::{Dim, ExprId, Label, LossKind, Output, OutputOf, Type};
use hgnnc_ir::training::{LinkLoss, RankingLoss, Task};
use hgnnc_ir::{Graph, VertexType};
use hgnnc_syntax::ast::{self, Call, Expr, ExprKind};

use super::LOSSES;
use crate::train::TrainChecker;

/// A comparison: the output, its ground truth, and how they are compared.
pub struct Comparison {
    /// The name of the output.
    pub output: String,
    /// How it is read.
    pub task: Task,
    /// The ground truth of the output.
    pub of: TrainedOf,
    /// The value of the output.
    pub value: ExprId,
    /// The comparison in the typed model.
    pub kind: LossKind,
}

/// The ground truth that a trained output is compared with.
pub enum TrainedOf {
    /// Compared with a label of vertices: its name in the dataset, and its field.
    Label { vertex: VertexType, label: String, field: usize },
    /// Scores of pairs, of these graphs.
    Links(Vec<Graph>, LinkLoss),
}

/// The largest exponent of a focal loss; published ones are at most 5.
const MOST_FOCUS: f64 = 100.0;

/// The margin of a loss that names none, and the largest one.
const MARGIN: f64 = 1.0;
const MOST_MARGIN: f64 = 1e6;
/// The temperature of the weights of negative samples where none is named: that of the authors of RotatE on FB15k.
const TEMPERATURE: f64 = 1.0;
const MOST_TEMPERATURE: f64 = 1e6;

/// The rows that have a label.
enum Labelled {
    Vertices(VertexType),
    /// The edges of a relation, by position.
    Relation(usize),
}

/// A vertex type or relation, as far as its labels need to know.
struct Info<'s> {
    kind: &'static str,
    name: &'s str,
    span: Span,
    fields: &'s [FieldInfo],
}

/// A call of a loss with its arguments.
struct LossCall<'e> {
    name: &'e ast::Ident,
    output: &'e Expr,
    label: &'e Expr,
    class_weights: Option<&'e Expr>,
    smoothing: Option<&'e Expr>,
    focus: Option<&'e Expr>,
    margin: Option<&'e Expr>,
    temperature: Option<&'e Expr>,
    span: Span,
}

impl TrainChecker<'_, '_> {
    /// Checks a comparison of an output with its ground truth.
    pub(super) fn comparison(&mut self, call: &Call, span: Span, consts: &Consts) -> Option<Comparison> {
        let call = self.loss_call(call, span)?;
        let output_info = self.loss_output(call.output);
        let of_links = matches!(&call.label.kind, ExprKind::Name(name) if name == LINKS);
        match (output_info, of_links) {
            (Some((name, Output { of: OutputOf::Links(scores), span })), _) => {
                self.loss_of_links((name, span, scores), &call, of_links, consts)
            }
            (Some((name, Output { of: of @ (OutputOf::Graphs(_) | OutputOf::Edges(_)), span })), false) => {
                let of = if matches!(of, OutputOf::Graphs(_)) { "semantic graphs" } else { "edges" };
                let message =
                    format!("output `{name}` belongs to {of}, and labels to vertices or to edges of one relation");
                let report = Diagnostic::at(codes::LABEL_VERTEX, call.output.span, message, "has no label")
                    .label(span, "the output is declared here");
                let vertex = self.loss_label(call.label).map(|(vertex, _)| vertex);
                self.checker.report(match vertex.and_then(|vertex| self.checker.relation_of_rows(vertex)) {
                    Some(relation) => report.help(format!(
                        "declare it as `output {name}: {0} = …`, with a layer over `{0}`",
                        self.checker.schema.relations[relation].edges_name
                    )),
                    None => report.help(
                        "a loss is of an output of vertices, of edges to predict or of links; others are read by `eval` and `infer`",
                    ),
                });
                None
            }
            (Some((name, Output { of, span })), true) => {
                let of = match of {
                    OutputOf::Graphs(_) => "semantic graphs",
                    OutputOf::Edges(_) => "edges that carry messages",
                    OutputOf::Vertices(vertex, _) if self.checker.relation_of_rows(vertex).is_some() => {
                        "edges to predict"
                    }
                    OutputOf::Vertices(..) | OutputOf::Links(_) => "vertices",
                };
                let report = Diagnostic::at(
                    codes::LINK_LOSS,
                    call.label.span,
                    format!("output `{name}` belongs to {of}, not to pairs of vertices"),
                    "links are pairs",
                )
                .label(span, "the output is declared here")
                .help(format!(
                    "declare it for pairs: `output {name}: {LINKS} = DistMult() over links(relations) of h`"
                ));
                self.checker.report(report);
                None
            }
            (None, true) => None,
            (output, false) => {
                let label = self.loss_label(call.label);
                let (name, Output { of: OutputOf::Vertices(vertex, value), span }) = output? else { return None };
                self.loss_of_vertices((name, vertex, value, span), label?, &call, consts)
            }
        }
    }

    /// Reads the name and the arguments of a comparison.
    fn loss_call<'e>(&mut self, call: &'e Call, span: Span) -> Option<LossCall<'e>> {
        let name = call.callee.name.as_str();
        let names: &[&str] = match name {
            "cross_entropy" => &["output", "label", "focal", "class_weights", "label_smoothing"],
            "binary_cross_entropy" => &["output", "label", "focal"],
            "mse" | "mae" | "bpr" => &["output", "label"],
            "margin_ranking" => &["output", "label", "margin"],
            "self_adversarial" => &["output", "label", "temperature"],
            _ => {
                let report = Diagnostic::at(
                    codes::UNKNOWN_CHOICE,
                    call.callee.span,
                    format!("`{name}` is not a loss"),
                    "unknown loss",
                );
                let report = suggest(report, Place::Loss, name, LOSSES.iter().copied());
                self.checker.report(report);
                return None;
            }
        };
        let sorted = match match_arguments(&call.args, names, &format!("`{name}`"), span) {
            Ok(sorted) => sorted,
            Err(mistakes) => {
                mistakes.into_iter().for_each(|mistake| self.checker.report(mistake));
                return None;
            }
        };
        let (Some(output), Some(label)) = (sorted[0], sorted[1]) else {
            self.checker.report(Diagnostic::at(
                codes::MISSING_ARGUMENT,
                span,
                format!("`{name}` compares an output with a label"),
                "takes (output, label)",
            ));
            return None;
        };
        let optional = |wanted: &str| {
            let index = names.iter().position(|name| *name == wanted)?;
            sorted[index]
        };
        Some(LossCall {
            name: &call.callee,
            output,
            label,
            class_weights: optional("class_weights"),
            smoothing: optional("label_smoothing"),
            focus: optional("focal"),
            margin: optional("margin"),
            temperature: optional("temperature"),
            span,
        })
    }

    /// The loss of an output of vertices, compared with a label.
    fn loss_of_vertices(
        &mut self,
        (output_name, of, value, output_span): (String, VertexType, ExprId, Span),
        (vertex, field): (VertexType, usize),
        call: &LossCall<'_>,
        consts: &Consts,
    ) -> Option<Comparison> {
        let name = call.name.name.as_str();
        let decl = &self.checker.fields_of(vertex)[field];
        let label_name = self.checker.label_name(vertex, field);
        let per = if self.checker.relation_of_rows(vertex).is_some() { "edge" } else { "vertex" };
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
                self.checker.report(
                    Diagnostic::at(
                        codes::LABEL_LOSS_MISMATCH,
                        call.name.span,
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
            let of_edges = [of, vertex].iter().any(|vertex| self.checker.relation_of_rows(*vertex).is_some());
            let of_another = if of_edges { "has other rows" } else { "another vertex type" };
            self.checker.report(
                Diagnostic::at(
                    codes::LABEL_VERTEX,
                    call.label.span,
                    format!(
                        "output `{output_name}` belongs to `{}`, the label to `{}`",
                        self.checker.vertex_name(of),
                        self.checker.vertex_name(vertex)
                    ),
                    of_another,
                )
                .label(output_span, "the output is declared here"),
            );
            return None;
        }
        let Type::One(row) = &*self.checker.model.expr(value).ty else {
            unreachable!("an output of vertices is one value")
        };
        // A number for each row is a row of one number.
        let is_number = row.widths.is_empty() && extent == 1 && !matches!(task, Task::Classify { .. });
        if !is_number && (row.widths.len() != 1 || row.widths[0].dim != Dim::Fixed(extent)) {
            let what = match task {
                Task::Classify { .. } => "classes",
                Task::MultiLabel { .. } => "labels",
                Task::Regress { .. } => "targets",
                Task::Link => "links",
            };
            let mut report = Diagnostic::at(
                codes::CLASS_COUNT,
                call.output.span,
                format!(
                    "output `{output_name}` is {} per {per}, but `{label_name}` has {extent} {what}",
                    show_widths(&self.checker.model.tables, &row.widths)
                ),
                format!("should be [{extent}]"),
            )
            .label(decl.ty_span, format!("{extent} {what} declared here"));
            if let Some(width) = row.widths.last() {
                report = report.label(width.origin, "the output's width comes from here");
            }
            self.checker.report(
                report.help(format!("give the output the width {extent}, or put `linear(…, {extent})` behind it")),
            );
            return None;
        }
        let class_weights = match call.class_weights {
            Some(expr) => self.class_weights(expr, extent, consts).map(Some),
            None => Some(None),
        };
        let smoothing = match call.smoothing {
            Some(expr) => self.smoothing(expr, consts)?,
            None => 0.0,
        };
        let focus = match call.focus {
            Some(expr) => self.ranged(expr, consts, 0.0, MOST_FOCUS, "the exponent of a focal loss")?,
            None => 0.0,
        };
        let class_weights = class_weights?;
        if matches!(task, Task::Classify { .. } | Task::MultiLabel { .. }) {
            self.checker.doubt_logits(value, output_span);
        }
        let dataset_name = decl.dataset_name.clone().unwrap_or_default();
        self.check_leak((&output_name, value), (vertex, &label_name), call.span);
        let label = Label { vertex, name: label_name, dataset_name: dataset_name.clone() };
        let kind = match task {
            Task::Classify { classes } => LossKind::CrossEntropy { label, classes, class_weights, smoothing, focus },
            Task::MultiLabel { labels } => LossKind::BinaryCrossEntropy { label, labels, focus },
            Task::Regress { width } => LossKind::Distance { label, width, squared: name == "mse" },
            Task::Link => return None,
        };
        let of = TrainedOf::Label { vertex, label: dataset_name, field };
        Some(Comparison { output: output_name, task, of, value, kind })
    }

    fn smoothing(&mut self, expr: &Expr, consts: &Consts) -> Option<f64> {
        let smoothing = self.ranged(expr, consts, 0.0, 1.0, "label smoothing")?;
        if smoothing == 1.0 {
            let message = "label smoothing is at least 0 and less than 1";
            self.checker.report(
                Diagnostic::at(codes::ARGUMENT_RANGE, expr.span, message, "the label would have no part in the loss")
                    .help("a usual share is 0.1"),
            );
            return None;
        }
        Some(smoothing)
    }

    /// The loss of an output of links, compared with them if `of_links`.
    fn loss_of_links(
        &mut self,
        (name, declared, scores): (String, Span, ExprId),
        call: &LossCall<'_>,
        of_links: bool,
        consts: &Consts,
    ) -> Option<Comparison> {
        let loss = match call.name.name.as_str() {
            "binary_cross_entropy" => Some(LinkLoss::BinaryCrossEntropy),
            "cross_entropy" => Some(LinkLoss::Ranking(RankingLoss::CrossEntropy)),
            "bpr" => Some(LinkLoss::Ranking(RankingLoss::Bpr)),
            "margin_ranking" => {
                let margin = match call.margin {
                    Some(expr) => self.ranged(expr, consts, 0.0, MOST_MARGIN, "the margin of a loss of links")?,
                    None => MARGIN,
                };
                Some(LinkLoss::Ranking(RankingLoss::Margin(margin)))
            }
            "self_adversarial" => {
                let temperature = match call.temperature {
                    Some(expr) => {
                        self.ranged(expr, consts, 0.0, MOST_TEMPERATURE, "the temperature of a loss of links")?
                    }
                    None => TEMPERATURE,
                };
                Some(LinkLoss::Ranking(RankingLoss::SelfAdversarial(temperature)))
            }
            _ => None,
        };
        let Some(loss) = loss.filter(|_| of_links) else {
            let report = Diagnostic::at(
                codes::LINK_LOSS,
                if of_links { call.name.span } else { call.span },
                format!("output `{name}` is a score of pairs of vertices, which are links or not"),
                if of_links { "compares something else" } else { "compares it with something else" },
            )
            .label(declared, "the output is declared here")
            .help(format!(
                "write `binary_cross_entropy({name}, {LINKS})`, or `cross_entropy`, `bpr`, `margin_ranking` or `self_adversarial` to \
                 compare each link with its own negative samples"
            ));
            self.checker.report(report);
            return None;
        };
        let with_label = [
            (call.focus, "focal exponent", "more `negatives` for each link make hard ones more frequent"),
            (call.class_weights, "class weights", "a number of samples for each link is `negatives`"),
            (call.smoothing, "label smoothing", "leave it out"),
        ];
        for (written, what, help) in with_label {
            let Some(written) = written else { continue };
            let what = format!("the loss of links has no {what}");
            self.checker.report(Diagnostic::at(codes::LINK_LOSS, written.span, what, "only with a label").help(help));
            return None;
        }
        if loss == LinkLoss::BinaryCrossEntropy {
            self.checker.doubt_logits(scores, declared);
        }
        let Type::ByGraph(rows) = &*self.checker.model.expr(scores).ty else {
            unreachable!("scores of pairs are edge values")
        };
        let of = TrainedOf::Links(rows.keys().copied().collect(), loss);
        Some(Comparison { output: name, task: Task::Link, of, value: scores, kind: LossKind::Links(loss) })
    }

    fn loss_output(&mut self, expr: &Expr) -> Option<(String, Output)> {
        let ExprKind::Name(name) = &expr.kind else {
            if matches!(expr.kind, ExprKind::Error) {
                return None;
            }
            self.checker.report(Diagnostic::at(
                codes::UNKNOWN_NAME,
                expr.span,
                "the first argument of a loss is the name of an output",
                "not a name",
            ));
            return None;
        };
        if let Some(output) = self.checker.model.outputs.get(name) {
            return Some((name.clone(), *output));
        }
        // An output that was wrong itself has been reported.
        if !self.checker.declared_outputs.contains(name) {
            let report = Diagnostic::at(
                codes::UNKNOWN_NAME,
                expr.span,
                format!("the model has no output `{name}`"),
                "unknown output",
            );
            let report = did_you_mean(report, name, self.checker.model.outputs.keys().map(String::as_str));
            self.checker.report(report);
        }
        None
    }

    fn loss_label(&mut self, expr: &Expr) -> Option<(VertexType, usize)> {
        let ExprKind::Field(base, field) = &expr.kind else {
            if matches!(expr.kind, ExprKind::Error) {
                return None;
            }
            let mut labels = vec![];
            for vertex in &self.checker.schema.vertices {
                let own = vertex.fields.iter().filter(|f| f.kind.is_label());
                labels.extend(own.map(|f| (f.name.as_str(), format!("`{}.{}`", vertex.name, f.name))));
            }
            for relation in &self.checker.schema.relations {
                let own = relation.fields.iter().filter(|f| f.kind.is_label());
                labels.extend(own.map(|f| (f.name.as_str(), format!("`{}.{}`", relation.name, f.name))));
            }
            let named: Vec<&str> = match &expr.kind {
                ExprKind::Name(name) => labels.iter().filter(|l| l.0 == name).map(|l| l.1.as_str()).collect(),
                _ => vec![],
            };
            let help = match &named[..] {
                [] => "write `VertexType.label`, as in `Paper.topic`".to_string(),
                known => format!("write {}", known.join(" or ")),
            };
            self.checker.report(
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
        let ExprKind::Name(of) = &base.kind else {
            let message = "a vertex type or a relation is expected";
            self.checker.report(Diagnostic::at(codes::UNKNOWN_NAME, base.span, message, "not a name"));
            return None;
        };
        let (of, info) = match self.checker.schema.relation_named(of) {
            Some(relation) => {
                let info = &self.checker.schema.relations[relation];
                info.used.set(true);
                (
                    Labelled::Relation(relation),
                    Info { kind: "relation", name: &info.name, span: info.span, fields: &info.fields },
                )
            }
            None => {
                let ident = ast::Ident { name: of.clone(), span: base.span };
                let vertex = self.checker.schema.vertex(&ident, self.checker.diagnostics)?;
                let info = &self.checker.schema.vertices[vertex];
                let of = Labelled::Vertices(VertexType::new(vertex));
                (of, Info { kind: "vertex type", name: &info.name, span: info.span, fields: &info.fields })
            }
        };
        let is_label = FieldKind::is_label;
        match info.fields.iter().position(|f| f.name == field.name) {
            Some(position) if is_label(info.fields[position].kind) => match of {
                Labelled::Vertices(vertex) => Some((vertex, position)),
                Labelled::Relation(relation) => Some((self.checker.edge_rows(relation).vertex, position)),
            },
            Some(position) => {
                self.checker.report(
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
            None if self.checker.schema.broken.contains(&format!("{}.{}", info.name, field.name)) => None,
            None => {
                let report = Diagnostic::at(
                    codes::UNKNOWN_FIELD,
                    field.span,
                    format!("{} `{}` has no field `{}`", info.kind, info.name, field.name),
                    "not declared",
                )
                .label(info.span, format!("`{}` is declared here", info.name));
                let labels = info.fields.iter().filter(|f| is_label(f.kind)).map(|f| f.name.as_str());
                let report = did_you_mean(report, &field.name, labels);
                self.checker.report(report);
                None
            }
        }
    }

    fn class_weights(&mut self, expr: &Expr, classes: usize, consts: &Consts) -> Option<Vec<f64>> {
        let ExprKind::List(items) = &expr.kind else {
            self.checker.report(Diagnostic::at(
                codes::NOT_CONSTANT,
                expr.span,
                "class weights are a list of numbers",
                "not a list",
            ));
            return None;
        };
        if items.len() != classes {
            self.checker.report(Diagnostic::at(
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
            self.checker.report(
                Diagnostic::at(codes::ARGUMENT_RANGE, expr.span, message, "no vertex would have a part in the loss")
                    .help("give the classes that count a weight of 1"),
            );
            return None;
        }
        Some(weights)
    }
}
