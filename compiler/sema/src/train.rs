//! Train blocks: what the update and the runtime need to know.

use std::collections::BTreeMap;

use hgnnc_declare::arguments::match_arguments;
use hgnnc_declare::consts::Consts;
use hgnnc_declare::names::{closest, did_you_mean, suggest};
use hgnnc_declare::schema::{FieldInfo, Schema};
use hgnnc_diag::synonyms::{self, Place};
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_elaborate::checker::Checker;
use hgnnc_hir::{Tables, UniqueNames};
use hgnnc_ir::optimizer::{Clip, Optimizer, OptimizerOptions, Schedule};
use hgnnc_ir::training::{Criterion, Keep, LAST, Measure, Metric, Part, Stop, Target, Task, Trained, Training};
use hgnnc_ir::{Graph, VertexType};
use hgnnc_syntax::ast::{self, Expr, ExprKind, TrainEntry};
use hgnnc_syntax::format_expr;

use crate::batch::BatchSpec;
use crate::loss::{TrainedOf, TrainedTerm};

/// A train block, understood.
#[derive(Clone, Debug)]
pub struct TrainSpec {
    /// The options of a run, as the executable has them. Mini-batches are missing: they depend on the receptive field of
    /// the loss, so the driver adds them (see [`BatchSpec`]).
    pub training: Training,
    /// The optimizer and its options, for the parameter update.
    pub optimizer: OptimizerOptions,
    /// The name of the split in the source.
    pub split_span: Option<Span>,
    /// The entry `cutoff`: no message is later than the vertex that reads it.
    pub cutoff: Option<Span>,
    /// For each trained output, the declaration of its label; `None` for links.
    pub label_fields: Vec<Option<LabelField>>,
    /// Whether a dataset can hold a part of the ground truth out: not of links that are all of metapaths.
    pub held_out: bool,
    /// The train block in the source.
    pub span: Span,
}

/// The declaration of a label in the schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelField {
    /// The relation, by position, of a label of edges; otherwise it is of the vertex type of the trained output.
    pub relation: Option<usize>,
    /// Position among the fields of the vertex type or relation.
    pub field: usize,
}

impl LabelField {
    /// The declaration, of a label of the edges of this relation or of vertices of this type.
    pub fn declaration<'s>(&self, schema: &'s Schema, vertex: VertexType) -> Option<&'s FieldInfo> {
        let fields = match self.relation {
            Some(relation) => &schema.relations.get(relation)?.fields,
            None => &schema.vertices.get(vertex.index())?.fields,
        };
        fields.get(self.field)
    }
}

/// The parts of a train block that were understood.
pub struct TrainBlock {
    /// The options of training; `None` if the loss or an option is wrong.
    pub spec: Option<TrainSpec>,
    /// The entries about mini-batches, if there are any.
    pub batch: Option<BatchSpec>,
}

/// A term that compares an output with its ground truth, as far as the options of training need to know.
struct Known {
    name: String,
    task: Task,
    /// Whether a dataset can hold a part of its ground truth out: not of links that are all of metapaths.
    held_out: bool,
}

impl Known {
    /// Terms are named for their outputs.
    fn of(terms: &[TrainedTerm], tables: &Tables) -> Vec<Self> {
        let mut names = UniqueNames::default();
        let of_relation = |graph: &Graph| !tables.graphs[graph.index()].is_walked();
        let known = |term: &TrainedTerm| Self {
            name: names.take(&term.comparison.output),
            task: term.comparison.task,
            held_out: match &term.comparison.of {
                TrainedOf::Label { .. } => true,
                TrainedOf::Links(graphs, _) => graphs.iter().any(of_relation),
            },
        };
        terms.iter().map(known).collect()
    }

    /// The report of an entry that needs held-out links, where all links are of metapaths.
    fn needs_held_out(terms: Option<&[Self]>, message: String, span: Span, help: &str) -> Option<Diagnostic> {
        let links = terms?.iter().find(|known| !known.held_out)?;
        let label = format!("the links of `{}` are those of metapaths", links.name);
        let report = Diagnostic::at(codes::NOT_HELD_OUT, span, message, label).help(help);
        Some(report.note("walks along a metapath draw its links, and all of them are training links"))
    }
}

/// The metrics of a task where none are written.
fn usual_metrics(task: Task) -> [Metric; 2] {
    match task {
        Task::Classify { .. } => [Metric::Accuracy, Metric::MacroF1],
        Task::MultiLabel { .. } => [Metric::MicroF1, Metric::MacroF1],
        Task::Regress { .. } => [Metric::Mae, Metric::Rmse],
        Task::Link => [Metric::Auc, Metric::AveragePrecision],
    }
}

/// The criterion of epochs where there is no validation part.
const TRAIN_LOSS: &str = "write `train.loss`, which is also what stands here by default";

/// Adam divides by 1 - β.
const BELOW_ONE: f64 = 0.999_999_999;

/// Checks a train block against the model that a checker has built.
pub(crate) struct TrainChecker<'c, 'a> {
    /// The check of the model, which has its values and receives the reports.
    pub checker: &'c mut Checker<'a>,
}

impl TrainChecker<'_, '_> {
    /// Checks the loss and reads the options.
    pub fn train(&mut self, train: &ast::Train, consts: &Consts) -> TrainBlock {
        self.unique_entries(train);
        let loss = train.entries.iter().find_map(|entry| match entry {
            TrainEntry::Loss(_, expr) => Some(expr),
            _ => None,
        });
        let Some(loss) = loss else {
            self.checker.report(
                Diagnostic::at(
                    codes::TRAIN_ENTRY,
                    train.span,
                    format!("`train {}` has no loss", train.model.name),
                    "what should be made small?",
                )
                .help("add `loss cross_entropy(OUTPUT, VertexType.label)`"),
            );
            return TrainBlock { spec: None, batch: None };
        };
        let on_batches = train.entries.iter().any(|entry| matches!(entry, TrainEntry::Batch(..)));
        let terms = self.loss(loss, consts, on_batches);
        for term in terms.iter().flat_map(|terms| &terms.trained) {
            self.labels_beside_links(&term.comparison.of, term.span);
        }
        let batch = self.mini_batch(train, consts);
        let known = terms.as_ref().map(|terms| Known::of(&terms.trained, &self.checker.model.tables));
        // Options are read whether the loss is right or not, so that all mistakes are reported.
        let options = self.options(train, consts, known.as_deref());
        // A loss of links compares nothing else.
        let graphs = terms.as_ref().map(|terms| match terms.trained.first().map(|term| &term.comparison.of) {
            Some(TrainedOf::Links(graphs, loss)) => Some((graphs.clone(), *loss)),
            Some(TrainedOf::Label { .. }) | None => None,
        });
        let links = graphs.map(|graphs| self.link_options(train, consts, graphs));
        let spec = terms.zip(options).zip(links.flatten()).map(|((terms, mut spec), links)| {
            spec.training.has_number = terms.has_number;
            for (term, Known { name, task, .. }) in terms.trained.into_iter().zip(known.unwrap_or_default()) {
                let (target, field) = match (term.comparison.of, &links) {
                    (TrainedOf::Label { vertex, label, field }, _) => {
                        let field = LabelField { relation: self.checker.relation_of_rows(vertex), field };
                        (Target::Vertices { vertex, label }, Some(field))
                    }
                    (TrainedOf::Links(..), Some(links)) => (Target::Links(links.clone()), None),
                    (TrainedOf::Links(..), None) => unreachable!("a loss of links has options of links"),
                };
                let (output, weight) = (term.comparison.output, term.weight);
                spec.training.trained.push(Trained { name, output, weight, target, task });
                spec.label_fields.push(field);
            }
            spec
        });
        TrainBlock { spec, batch }
    }

    fn unique_entries(&mut self, train: &ast::Train) {
        let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
        for entry in &train.entries {
            let (name, span) = match entry {
                TrainEntry::Loss(span, _) => ("loss", *span),
                TrainEntry::Optimizer(span, _) => ("optimizer", *span),
                TrainEntry::Schedule(span, _) => ("schedule", *span),
                TrainEntry::Clip(span, _) => ("clip", *span),
                TrainEntry::Epochs(span, _) => ("epochs", *span),
                TrainEntry::Batch(span, _) => ("batch", *span),
                TrainEntry::Fanout(span, _) => ("fanout", *span),
                TrainEntry::Reuse(span, _) => ("reuse", *span),
                TrainEntry::Negatives(span, _) => ("negatives", *span),
                TrainEntry::Exclude(span, _) => ("exclude", *span),
                TrainEntry::Cutoff(span, _) => ("cutoff", *span),
                TrainEntry::Stop(span, ..) => ("stop", *span),
                TrainEntry::Select(span, _) | TrainEntry::SelectEpoch(span, _) => ("select", *span),
                TrainEntry::Metrics(span, _) => ("metrics", *span),
                TrainEntry::Split(span, _) => ("split", *span),
                TrainEntry::Dataset(span, _) => ("dataset", *span),
                TrainEntry::Seed(span, _) => ("seed", *span),
            };
            if let Some(first) = seen.get(name) {
                let report =
                    Diagnostic::at(codes::TRAIN_ENTRY, span, format!("`{name}` is given twice"), "given again here")
                        .label(*first, "first given here");
                self.checker.report(report);
            } else {
                seen.insert(name, span);
            }
        }
    }

    fn options(&mut self, train: &ast::Train, consts: &Consts, terms: Option<&[Known]>) -> Option<TrainSpec> {
        let mut default_metrics: Vec<Metric> = vec![];
        for metric in terms.into_iter().flatten().flat_map(|term| usual_metrics(term.task)) {
            if !default_metrics.contains(&metric) {
                default_metrics.push(metric);
            }
        }
        // Without a ground truth, the loss is the same for all parts of a split.
        let held_out = terms.is_none_or(|terms| terms.iter().any(|known| known.held_out));
        let part = if held_out { Part::Val } else { Part::Train };
        let mut spec = TrainSpec {
            training: Training {
                trained: vec![],
                has_number: false,
                epochs: 200,
                stop: None,
                select: Criterion { part, measure: Measure { metric: Metric::Loss, term: None } },
                keep: Keep::Best,
                metrics: default_metrics,
                split: None,
                dataset: None,
                seed: 0,
                batch: None,
            },
            optimizer: OptimizerOptions::new(Optimizer::adam(0.01)),
            split_span: None,
            cutoff: None,
            label_fields: vec![],
            held_out,
            span: train.span,
        };
        let mut select = None;
        let mut fine = true;
        for entry in &train.entries {
            match entry {
                // `mini_batch` and `link_options` read these.
                TrainEntry::Loss(..)
                | TrainEntry::Batch(..)
                | TrainEntry::Fanout(..)
                | TrainEntry::Reuse(..)
                | TrainEntry::Negatives(..)
                | TrainEntry::Exclude(..) => {}
                TrainEntry::Cutoff(span, period) => {
                    spec.cutoff = Some(*span);
                    match self.period(period.as_ref(), consts) {
                        Some(period) => self.cut_off(period),
                        None => fine = false,
                    }
                }
                TrainEntry::Optimizer(_, expr) => match self.optimizer(expr, consts) {
                    Some(optimizer) => spec.optimizer.optimizer = optimizer,
                    None => fine = false,
                },
                TrainEntry::Schedule(_, expr) => match self.schedule(expr, consts) {
                    Some(schedule) => spec.optimizer.schedule = schedule,
                    None => fine = false,
                },
                TrainEntry::Clip(_, expr) => match self.clip(expr, consts) {
                    Some(clip) => spec.optimizer.clip = Some(clip),
                    None => fine = false,
                },
                TrainEntry::Epochs(_, expr) => match self.count_of(expr, consts, 1.0, "the number of epochs") {
                    Some(epochs) => spec.training.epochs = epochs,
                    None => fine = false,
                },
                TrainEntry::Stop(_, criterion, patience) => {
                    let criterion = self.criterion(criterion, terms);
                    let patience = self.count_of(patience, consts, 1.0, "the number of epochs to wait");
                    match (criterion, patience) {
                        (Some(criterion), Some(patience)) => {
                            spec.training.stop = Some(Stop { criterion, patience });
                        }
                        _ => fine = false,
                    }
                }
                TrainEntry::Select(_, criterion) => match self.criterion(criterion, terms) {
                    Some(criterion) => select = Some(criterion),
                    None => fine = false,
                },
                TrainEntry::SelectEpoch(_, name) if name.name == LAST => spec.training.keep = Keep::Last,
                TrainEntry::SelectEpoch(_, name) => {
                    let message = format!("`{}` selects no epoch", name.name);
                    let known = Metric::ALL.into_iter().find(|metric| metric.name() == name.name);
                    let metric = known.unwrap_or(Metric::Loss).name();
                    let report =
                        Diagnostic::at(codes::UNKNOWN_CHOICE, name.span, message, "not a choice").help(format!(
                            "write a metric of a part, as in `select val.{metric}`, or `select last` for the last epoch"
                        ));
                    self.checker.report(report);
                    fine = false;
                }
                TrainEntry::Metrics(_, names) => {
                    let metrics: Vec<Option<Metric>> = names.iter().map(|name| self.metric(name, terms)).collect();
                    match metrics.into_iter().collect() {
                        Some(metrics) => spec.training.metrics = metrics,
                        None => fine = false,
                    }
                }
                TrainEntry::Split(_, text) => {
                    let message = format!("no links are held out by the split `{}`", text.value);
                    if let Some(report) = Known::needs_held_out(terms, message, text.span, "remove `split`") {
                        self.checker.report(report);
                        fine = false;
                    }
                    spec.training.split = Some(text.value.clone());
                    spec.split_span = Some(text.span);
                }
                TrainEntry::Dataset(_, text) => spec.training.dataset = Some(text.value.clone()),
                TrainEntry::Seed(_, expr) => match self.count_of(expr, consts, 0.0, "a seed") {
                    Some(seed) => spec.training.seed = seed,
                    None => fine = false,
                },
            }
        }
        if fine {
            self.doubt_length(train, &spec);
        }
        // The best epoch is the one that early stopping watches for, unless something else is asked for.
        if let Some(criterion) = select.or(spec.training.stop.map(|s| s.criterion)) {
            spec.training.select = criterion;
        }
        fine.then_some(spec)
    }

    /// Doubts a patience that training never runs out of, and a schedule that ends long before training does.
    fn doubt_length(&mut self, train: &ast::Train, spec: &TrainSpec) {
        let epochs = spec.training.epochs;
        let declared = train.entries.iter().find_map(|entry| match entry {
            TrainEntry::Epochs(_, expr) => Some(expr.span),
            _ => None,
        });
        let length = |report: Diagnostic| match declared {
            Some(span) => report.label(span, "training ends here at the latest"),
            None => report.note(format!("training takes {epochs} epochs, for no `epochs` are given")),
        };
        for entry in &train.entries {
            match entry {
                TrainEntry::Stop(_, _, patience) if spec.training.stop.is_some_and(|stop| stop.patience >= epochs) => {
                    let message = "early stopping waits for as many epochs as there are";
                    let report =
                        Diagnostic::at(codes::LONG_PATIENCE, patience.span, message, "never stops training early");
                    self.checker.doubts.add(length(report).help("let it wait for fewer epochs, or leave `stop` out"));
                }
                TrainEntry::Schedule(span, _) => {
                    let Some((end, factor)) = end_of(&spec.optimizer.schedule) else { continue };
                    let rest = epochs.saturating_sub(end);
                    if rest <= epochs / 10 {
                        continue;
                    }
                    let message = format!("the schedule ends {rest} epochs before training does");
                    let label = match factor {
                        0.0 => format!("from epoch {end} on, the learning rate is 0"),
                        factor => format!("from epoch {end} on, the learning rate is {factor} of what was given"),
                    };
                    let report = Diagnostic::at(codes::SHORT_SCHEDULE, *span, message, label);
                    self.checker
                        .doubts
                        .add(length(report).help(format!("let it take all {epochs} epochs, or train for fewer")));
                }
                _ => {}
            }
        }
    }

    fn criterion(&mut self, criterion: &ast::Criterion, terms: Option<&[Known]>) -> Option<Criterion> {
        let part = match criterion.part.name.as_str() {
            "train" => Part::Train,
            "val" => Part::Val,
            "test" => {
                self.checker.report(
                    Diagnostic::at(
                        codes::UNKNOWN_CHOICE,
                        criterion.part.span,
                        "nothing is chosen by the test part",
                        "would make the test result meaningless",
                    )
                    .help("use `val`"),
                );
                return None;
            }
            other => {
                let report = Diagnostic::at(
                    codes::UNKNOWN_CHOICE,
                    criterion.part.span,
                    format!("`{other}` is not a part of a split"),
                    "unknown part",
                );
                let report = did_you_mean(report, other, ["train", "val"]);
                self.checker.report(report);
                return None;
            }
        };
        let measure = match &criterion.term {
            Some(term) => self.measure_of(term, &criterion.metric, terms)?,
            None => self.measure(&criterion.metric, terms)?,
        };
        if part == Part::Val && terms.is_some_and(<[Known]>::is_empty) {
            let message = "the loss compares nothing with a label, so there is no validation part";
            let report = Diagnostic::at(codes::METRIC_TASK, criterion.part.span, message, "of which label?");
            self.checker.report(report.help(TRAIN_LOSS));
            return None;
        }
        if part == Part::Val {
            let message = "there is no validation part of links of metapaths".to_owned();
            if let Some(report) = Known::needs_held_out(terms, message, criterion.part.span, TRAIN_LOSS) {
                self.checker.report(report);
                return None;
            }
        }
        Some(Criterion { part, measure })
    }

    /// A metric of the term of this name.
    fn measure_of(&mut self, term: &ast::Ident, metric: &ast::Ident, terms: Option<&[Known]>) -> Option<Measure> {
        let Some(terms) = terms else { return self.measure(metric, None) };
        let Some(index) = terms.iter().position(|known| known.name == term.name) else {
            let message = format!("the loss compares no output `{}` with a label", term.name);
            let report = Diagnostic::at(codes::UNKNOWN_NAME, term.span, message, "unknown term of the loss");
            self.checker.report(did_you_mean(report, &term.name, terms.iter().map(|known| &known.name[..])));
            return None;
        };
        let metric = self.metric(metric, Some(&terms[index..=index]))?;
        Some(Measure { metric, term: (terms.len() > 1).then_some(index) })
    }

    /// A metric without the name of a term: the loss as a whole, or the metric of the only term that it fits.
    fn measure(&mut self, name: &ast::Ident, terms: Option<&[Known]>) -> Option<Measure> {
        let metric = self.metric(name, terms)?;
        let terms = terms.unwrap_or_default();
        let fitting = || terms.iter().enumerate().filter(|(_, term)| metric.fits(term.task));
        let term = match (metric, terms.len(), fitting().next()) {
            (Metric::Loss, ..) | (_, ..=1, _) | (.., None) => None,
            (.., Some((index, _))) if fitting().count() == 1 => Some(index),
            (.., Some(_)) => {
                let names: Vec<String> = fitting().map(|(_, term)| format!("`{}.{}`", term.name, name.name)).collect();
                let message = format!("`{}` of which output?", name.name);
                let report = Diagnostic::at(codes::METRIC_TASK, name.span, message, "fits several terms of the loss");
                self.checker.report(report.help(format!("write {}", names.join(" or "))));
                return None;
            }
        };
        Some(Measure { metric, term })
    }

    /// A metric that fits some of the terms; any, if the loss is wrong.
    fn metric(&mut self, name: &ast::Ident, terms: Option<&[Known]>) -> Option<Metric> {
        let some_fits = |metric: Metric| terms.is_none_or(|terms| terms.iter().any(|term| metric.fits(term.task)));
        let fits = |metric: Metric| metric == Metric::Loss || some_fits(metric);
        let Some(metric) = Metric::ALL.into_iter().find(|m| m.name() == name.name) else {
            let report = Diagnostic::at(
                codes::UNKNOWN_CHOICE,
                name.span,
                format!("`{}` is not a metric", name.name),
                "unknown metric",
            );
            // Of all metrics, those that fit.
            let fitting = || Metric::ALL.iter().filter(|metric| fits(**metric)).map(|metric| metric.name());
            let named = |name: &str| fitting().any(|known| known == name);
            let elsewhere = Metric::ALL.iter().map(|m| m.name()).find(|known| closest(&name.name, &[known]).is_some());
            let report = match elsewhere.filter(|known| !named(known)) {
                Some(_) if synonyms::meant(Place::Metric, &name.name).is_none() => {
                    did_you_mean(report, &name.name, Metric::ALL.iter().map(|m| m.name()))
                }
                _ => suggest(report, Place::Metric, &name.name, fitting()),
            };
            self.checker.report(report);
            return None;
        };
        if metric.ranking().is_some() {
            let message = format!("`{}` ranks held-out links, and there are none", name.name);
            let help =
                "use loss, auc or average_precision; measure what the vectors are for by a model that reads them";
            if let Some(report) = Known::needs_held_out(terms, message, name.span, help) {
                self.checker.report(report);
                return None;
            }
        }
        if !fits(metric) {
            self.checker.report(Diagnostic::at(
                codes::METRIC_TASK,
                name.span,
                format!("`{}` does not fit the loss", name.name),
                match terms.unwrap_or_default().first().map(|term| term.task) {
                    None => "nothing is compared with a label: use loss",
                    Some(Task::Regress { .. }) => "the output is real numbers: use mae or rmse",
                    Some(Task::Classify { .. } | Task::MultiLabel { .. }) => {
                        "the output is classes: use accuracy, micro_f1 or macro_f1"
                    }
                    Some(Task::Link) => {
                        "the output scores links: use auc, average_precision, mrr, hits_10 or recall_20"
                    }
                },
            ));
            return None;
        }
        Some(metric)
    }

    fn optimizer(&mut self, expr: &Expr, consts: &Consts) -> Option<Optimizer> {
        let (name, args) = self.choice(
            expr,
            "optimizer",
            &[
                ("adam", &["lr", "beta1", "beta2", "eps", "weight_decay"]),
                ("adamw", &["lr", "beta1", "beta2", "eps", "weight_decay"]),
                ("sgd", &["lr", "momentum", "nesterov", "weight_decay"]),
            ],
        )?;
        let mut number = |index: usize, default: f64, low: f64, high: f64, what: &str| match args[index] {
            Some(expr) => self.ranged(expr, consts, low, high, what),
            None => Some(default),
        };
        // All of them are looked at before giving up.
        let lr = number(0, if name == "sgd" { 0.1 } else { 0.001 }, 0.0, f64::MAX, "the learning rate");
        if let (Some(0.0), Some(at)) = (lr, args[0]) {
            self.checker.doubts.add(
                Diagnostic::at(codes::ZERO_RATE, at.span, "the learning rate is 0", "no parameter moves")
                    .help("a usual rate of `adam` is 0.001 to 0.01"),
            );
        }
        let mut number = |index: usize, default: f64, low: f64, high: f64, what: &str| match args[index] {
            Some(expr) => self.ranged(expr, consts, low, high, what),
            None => Some(default),
        };
        if name == "sgd" {
            let momentum = number(1, 0.0, 0.0, 1.0, "the momentum");
            let weight_decay = number(3, 0.0, 0.0, f64::MAX, "the weight decay");
            let nesterov = match args[2] {
                None => false,
                Some(at) => self.boolean(at, "`nesterov`")?,
            };
            return Some(Optimizer::Sgd { lr: lr?, momentum: momentum?, nesterov, weight_decay: weight_decay? });
        }
        let beta1 = number(1, 0.9, 0.0, BELOW_ONE, "beta1");
        let beta2 = number(2, 0.999, 0.0, BELOW_ONE, "beta2");
        let eps = number(3, 1e-8, 0.0, 1.0, "eps");
        let weight_decay = number(4, if name == "adamw" { 0.01 } else { 0.0 }, 0.0, f64::MAX, "the weight decay");
        let (lr, beta1, beta2, eps, weight_decay) = (lr?, beta1?, beta2?, eps?, weight_decay?);
        Some(if name == "adam" {
            Optimizer::Adam { lr, beta1, beta2, eps, weight_decay }
        } else {
            Optimizer::AdamW { lr, beta1, beta2, eps, weight_decay }
        })
    }

    fn schedule(&mut self, expr: &Expr, consts: &Consts) -> Option<Schedule> {
        let (name, args) = self.choice(
            expr,
            "schedule",
            &[
                ("constant", &[]),
                ("step", &["every", "factor"]),
                ("exponential", &["factor"]),
                ("cosine", &["epochs", "floor"]),
                ("warmup", &["epochs", "then"]),
            ],
        )?;
        let argument = |this: &mut Self, index: usize, what: &str| -> Option<Expr> {
            let found: Option<&Expr> = args[index];
            if found.is_none() {
                this.checker.report(Diagnostic::at(
                    codes::MISSING_ARGUMENT,
                    expr.span,
                    format!("`{name}` needs `{what}`"),
                    "argument is missing",
                ));
            }
            found.cloned()
        };
        Some(match name.as_str() {
            "constant" => Schedule::Constant,
            "step" => {
                let every = argument(self, 0, "every")?;
                let every = self.count_of(&every, consts, 1.0, "the number of epochs")?;
                let factor = argument(self, 1, "factor")?;
                Schedule::Step { every, factor: self.ranged(&factor, consts, 0.0, 1.0, "the factor")? }
            }
            "exponential" => {
                let factor = argument(self, 0, "factor")?;
                Schedule::Exponential { factor: self.ranged(&factor, consts, 0.0, 1.0, "the factor")? }
            }
            "cosine" => {
                let epochs = argument(self, 0, "epochs")?;
                let epochs = self.count_of(&epochs, consts, 1.0, "the number of epochs")?;
                let floor = match args[1] {
                    Some(floor) => self.ranged(floor, consts, 0.0, 1.0, "the floor")?,
                    None => 0.0,
                };
                Schedule::Cosine { epochs, floor }
            }
            _ => {
                let epochs = argument(self, 0, "epochs")?;
                let epochs = self.count_of(&epochs, consts, 1.0, "the number of epochs")?;
                let then = match args[1] {
                    Some(then) => self.schedule(then, consts)?,
                    None => Schedule::Constant,
                };
                Schedule::Warmup { epochs, then: Box::new(then) }
            }
        })
    }

    fn clip(&mut self, expr: &Expr, consts: &Consts) -> Option<Clip> {
        let (name, args) =
            self.choice(expr, "way to clip gradients", &[("norm", &["limit"]), ("value", &["limit"])])?;
        let Some(limit) = args[0] else {
            self.checker.report(Diagnostic::at(
                codes::MISSING_ARGUMENT,
                expr.span,
                format!("`{name}` needs a limit"),
                format!("as in `{name}(1.0)`"),
            ));
            return None;
        };
        let at = limit.span;
        let limit = self.ranged(limit, consts, 0.0, f64::MAX, "the limit")?;
        if limit == 0.0 {
            let message = "the limit of gradients is greater than 0";
            self.checker.report(
                Diagnostic::at(codes::ARGUMENT_RANGE, at, message, "every gradient would be 0")
                    .help(format!("write `clip {name}(1.0)`, or leave `clip` out")),
            );
            return None;
        }
        Some(if name == "norm" { Clip::GlobalNorm(limit) } else { Clip::Value(limit) })
    }

    /// One of several named choices with its arguments.
    pub(crate) fn choice<'e>(
        &mut self,
        expr: &'e Expr,
        what: &str,
        choices: &[(&str, &[&str])],
    ) -> Option<(String, Vec<Option<&'e Expr>>)> {
        let (name, span, args): (&str, Span, &[ast::Arg]) = match &expr.kind {
            ExprKind::Name(name) => (name, expr.span, &[]),
            ExprKind::Call(call) => (&call.callee.name, call.callee.span, &call.args),
            _ => ("", expr.span, &[]),
        };
        let Some((_, names)) = choices.iter().find(|(known, _)| *known == name) else {
            let known = choices.iter().map(|c| c.0);
            let report = match &expr.kind {
                ExprKind::Error => return None,
                ExprKind::Name(_) | ExprKind::Call(_) => {
                    let message = format!("there is no {what} `{name}`");
                    let report = Diagnostic::at(codes::UNKNOWN_CHOICE, span, message, format!("unknown {what}"));
                    match what {
                        "optimizer" => suggest(report, Place::Optimizer, name, known),
                        "schedule" => suggest(report, Place::Schedule, name, known),
                        _ => did_you_mean(report, name, known),
                    }
                }
                other => {
                    let (message, label) = (format!("this is no {what}"), "a name is expected, with arguments");
                    let value = if matches!(other, ExprKind::Number(_)) { format_expr(expr) } else { "…".to_owned() };
                    let forms: Vec<String> = known.map(|known| format!("`{known}({value})`")).collect();
                    Diagnostic::at(codes::UNKNOWN_CHOICE, span, message, label)
                        .help(format!("write {}", forms.join(" or ")))
                }
            };
            self.checker.report(report);
            return None;
        };
        match match_arguments(args, names, &format!("`{name}`"), expr.span) {
            Ok(mut sorted) => {
                sorted.resize(names.len().max(2), None);
                Some((name.to_string(), sorted))
            }
            Err(mistakes) => {
                mistakes.into_iter().for_each(|mistake| self.checker.report(mistake));
                None
            }
        }
    }

    /// An option that is on or off.
    pub(crate) fn boolean(&mut self, expr: &Expr, what: &str) -> Option<bool> {
        if let ExprKind::Bool(value) = expr.kind {
            return Some(value);
        }
        let message = format!("{what} is `true` or `false`");
        self.checker.report(Diagnostic::at(codes::NOT_BOOLEAN, expr.span, message, "something else"));
        None
    }

    pub(crate) fn ranged(&mut self, expr: &Expr, consts: &Consts, low: f64, high: f64, what: &str) -> Option<f64> {
        let number = consts.number(expr, self.checker.diagnostics)?;
        if number >= low && number <= high {
            return Some(number);
        }
        let range = if high == f64::MAX { format!("at least {low}") } else { format!("between {low} and {high}") };
        self.checker.report(Diagnostic::at(
            codes::ARGUMENT_RANGE,
            expr.span,
            format!("{what} is {range}"),
            format!("this is {number}"),
        ));
        None
    }

    pub(crate) fn count_of(&mut self, expr: &Expr, consts: &Consts, low: f64, what: &str) -> Option<u64> {
        self.count_within(expr, consts, (low, 9e15), what)
    }

    pub(crate) fn count_within(
        &mut self,
        expr: &Expr,
        consts: &Consts,
        (low, high): (f64, f64),
        what: &str,
    ) -> Option<u64> {
        let number = self.ranged(expr, consts, low, high, what)?;
        if number.fract() == 0.0 {
            return Some(number as u64);
        }
        self.checker.report(Diagnostic::at(
            codes::ARGUMENT_RANGE,
            expr.span,
            format!("{what} is a whole number"),
            format!("this is {number}"),
        ));
        None
    }
}

/// The epoch from which on a schedule changes nothing, and its factor then; `None` where it has no end.
fn end_of(schedule: &Schedule) -> Option<(u64, f64)> {
    match schedule {
        Schedule::Constant | Schedule::Step { .. } | Schedule::Exponential { .. } => None,
        Schedule::Cosine { epochs, floor } => Some((*epochs, *floor)),
        Schedule::Warmup { epochs, then } => end_of(then).map(|(end, factor)| (end + epochs, factor)),
    }
}
