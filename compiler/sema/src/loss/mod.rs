//! Losses: sums of terms with constant weights, as part of the program.
//!
//! A term compares an output with its ground truth ([`comparison`]), or is an expression of the model's names that gives
//! a single number.

mod comparison;

use hgnnc_declare::consts::{Consts, division_by_zero, not_finite};
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_elaborate::checker::{Place, Scope};
use hgnnc_elaborate::value::{Term, Typed, describe};
use hgnnc_elaborate::{LINKS, is_function, names_of, parts};
use hgnnc_hir::text::{show_space, show_widths};
use hgnnc_hir::{ExprKind as Kind, Form, Loss, LossKind, LossTerm, OutputOf, Row, Type};
use hgnnc_ir::{Space, VertexType};
use hgnnc_syntax::ast::{BinaryOp, Call, Expr, ExprKind, UnaryOp};

use crate::train::TrainChecker;

pub use comparison::{Comparison, TrainedOf};

/// The comparisons of an output with its ground truth.
const LOSSES: &[&str] =
    &["cross_entropy", "binary_cross_entropy", "mse", "mae", "bpr", "margin_ranking", "self_adversarial"];

/// The statement that parameters of a loss are named for.
const STATEMENT: &str = "loss";

/// A term of the loss that compares an output with its ground truth.
pub struct TrainedTerm {
    /// The comparison that it is.
    pub comparison: Comparison,
    /// The factor of the term.
    pub weight: f64,
    /// The term in the source.
    pub span: Span,
}

/// The terms of a loss.
#[derive(Default)]
pub struct LossTerms {
    /// Those that compare an output with its ground truth.
    pub trained: Vec<TrainedTerm>,
    /// Whether there are others.
    pub has_number: bool,
}

/// A sum that is being read.
#[derive(Default)]
struct Sum {
    terms: Vec<LossTerm>,
    found: LossTerms,
    /// A term is wrong, which was reported.
    broken: bool,
}

impl TrainChecker<'_, '_> {
    /// Checks the loss of a train block.
    pub fn loss(&mut self, expr: &Expr, consts: &Consts, on_batches: bool) -> Option<LossTerms> {
        let mut sum = Sum::default();
        self.loss_terms(expr, 1.0, consts, &mut sum);
        self.terms_together(&mut sum, on_batches);
        if sum.broken {
            return None;
        }
        self.checker.model.loss = Some(Loss { terms: sum.terms, on_batches, span: expr.span });
        Some(sum.found)
    }

    /// Reads the terms of a sum, each times a weight.
    fn loss_terms(&mut self, expr: &Expr, weight: f64, consts: &Consts, sum: &mut Sum) {
        if !compares(expr) {
            let read = match &expr.kind {
                ExprKind::Call(call) if self.is_no_function(call) => {
                    self.comparison(call, expr.span, consts);
                    None
                }
                ExprKind::Name(name) if LOSSES.contains(&&name[..]) && !self.is_value(name) => {
                    let message = "a loss compares an output with a label";
                    let report = Diagnostic::at(codes::UNKNOWN_CHOICE, expr.span, message, "compares nothing");
                    self.checker.report(report.help(format!("write `{name}(OUTPUT, VertexType.label)`")));
                    None
                }
                _ => self.number_term(expr, consts),
            };
            match read {
                Some(Typed { id: value, .. }) => {
                    sum.found.has_number = true;
                    sum.terms.push(LossTerm { weight, value, kind: LossKind::Number, span: expr.span });
                }
                None => sum.broken = true,
            }
            return;
        }
        match &expr.kind {
            ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                self.loss_terms(a, weight, consts, sum);
                self.loss_terms(b, if *op == BinaryOp::Add { weight } else { -weight }, consts, sum);
            }
            ExprKind::Unary(UnaryOp::Neg, a) => self.loss_terms(a, -weight, consts, sum),
            ExprKind::Binary(BinaryOp::Mul, a, b) if compares(a) && compares(b) => {
                self.report_product(a, b, expr.span);
                sum.broken = true;
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                let (factor, term) = if compares(a) { (b, a) } else { (a, b) };
                match self.loss_weight(factor, |factor| weight * factor, consts) {
                    Some(weight) => self.loss_terms(term, weight, consts, sum),
                    None => sum.broken = true,
                }
            }
            ExprKind::Binary(BinaryOp::Div, a, b) if !compares(b) => {
                match self.loss_weight(b, |divisor| weight / divisor, consts) {
                    Some(weight) => self.loss_terms(a, weight, consts, sum),
                    None => sum.broken = true,
                }
            }
            ExprKind::Call(call) if LOSSES.contains(&call.callee.name.as_str()) => {
                match self.comparison(call, expr.span, consts) {
                    Some(comparison) => {
                        let Comparison { value, ref kind, .. } = comparison;
                        let kind = kind.clone();
                        sum.terms.push(LossTerm { weight, value, kind, span: expr.span });
                        sum.found.trained.push(TrainedTerm { comparison, weight, span: expr.span });
                    }
                    None => sum.broken = true,
                }
            }
            _ => {
                self.checker.report(
                    Diagnostic::at(
                        codes::LOSS_TERM,
                        expr.span,
                        "a comparison with a label is a term of the loss by itself",
                        "computes something else from it",
                    )
                    .help(
                        "a loss is a sum of terms, each times a number: \
                         `0.7 * cross_entropy(OUTPUT, VertexType.label) + 0.3 * …`",
                    ),
                );
                sum.broken = true;
            }
        }
    }

    /// Is it the name of an output or of another value of the model?
    fn is_value(&self, name: &str) -> bool {
        self.checker.model_names.contains_key(name) || self.checker.declared_outputs.contains(name)
    }

    /// Is it the call of something that is neither a function nor a layer?
    fn is_no_function(&self, call: &Call) -> bool {
        let name = call.callee.name.as_str();
        !is_function(name)
            && !self.checker.names.layers.contains_key(name)
            && !self.checker.names.not_imported.contains(name)
    }

    fn report_product(&mut self, a: &Expr, b: &Expr, span: Span) {
        let message = "two comparisons with labels are multiplied";
        let report = Diagnostic::at(codes::LOSS_TERM, span, message, "a loss is a sum of terms")
            .label(a.span, "one of them")
            .label(b.span, "the other one")
            .help("write `+`, and give each a number as its weight");
        self.checker.report(report);
    }

    /// The weight of a term, of a number that is known before training.
    fn loss_weight(&mut self, expr: &Expr, weight: impl Fn(f64) -> f64, consts: &Consts) -> Option<f64> {
        if let Some(name) = names_of(expr).into_iter().find(|name| self.is_value(name)) {
            let message = "the weight of a comparison with a label is not a number";
            let report = Diagnostic::at(
                codes::LOSS_TERM,
                expr.span,
                message,
                format!("`{name}` is a value, which training may change"),
            );
            self.checker.report(report.help("write a number, or the name of a `const`"));
            return None;
        }
        let number = consts.number(expr, self.checker.diagnostics)?;
        if weight(number).is_finite() {
            return Some(weight(number));
        }
        let report = match number {
            0.0 => division_by_zero(expr.span),
            _ => not_finite(expr.span, weight(number)),
        };
        self.checker.report(report);
        None
    }

    /// A term that compares nothing with a label: an expression of the names of the model.
    fn number_term(&mut self, expr: &Expr, consts: &Consts) -> Option<Typed> {
        let mut scope = Scope {
            place: Place::Model,
            variable: None,
            locals: self.checker.model_names.clone(),
            spans: Default::default(),
            layer: None,
            consts,
            graphs: vec![],
            along: None,
            statement: STATEMENT.to_owned(),
        };
        for name in names_of(expr) {
            self.name_of_loss(name, expr.span, &mut scope);
        }
        self.checker.within_loss = true;
        let term = self.checker.eval(expr, &scope);
        self.checker.within_loss = false;
        let value = match term {
            Term::Error => return None,
            Term::Value(value) => value,
            Term::Number(_) | Term::Width(_) => {
                let message = "a term of the loss is the same whatever is trained";
                let report = Diagnostic::at(codes::LOSS_TERM, expr.span, message, "a constant");
                self.checker.report(report.help("leave it out, or multiply a term by it"));
                return None;
            }
            other => {
                let report = match other {
                    Term::Label(..) | Term::Record(_) => self.checker.not_a_value(&other, expr.span),
                    other => self.no_single_number(expr.span, format!("this is {}", other.describe())),
                };
                self.checker.report(report);
                return None;
            }
        };
        let (value, row) = match &*value.ty {
            Type::One(row) => (value.clone(), row.clone()),
            Type::PerType(rows) if rows.len() == 1 => {
                let (&vertex, row) = rows.first_key_value().expect("it has one");
                (self.checker.expr(Kind::OfType(value.id, vertex), Type::One(row.clone()), expr.span), row.clone())
            }
            ty @ (Type::PerType(_) | Type::PerGraph(_) | Type::ByGraph(_)) => {
                let report = self.no_single_number(expr.span, format!("this is {}", describe(ty)));
                self.checker.report(report);
                return None;
            }
        };
        let usable = self.checker.usable(&row, expr.span);
        self.checker.or_report(usable)?;
        if row.space != Space::Unit || !row.widths.is_empty() || row.form != Form::Dense {
            let report = self.of_rows(&row, expr.span);
            self.checker.report(report);
            return None;
        }
        Some(value)
    }

    /// Lets an expression of a loss see an output.
    fn name_of_loss(&mut self, name: &str, span: Span, scope: &mut Scope<'_>) {
        let term = match self.checker.model.outputs.get(name).map(|output| output.of) {
            Some(OutputOf::Vertices(vertex, value)) => Term::Value(self.checker.types([(vertex, value)], span)),
            Some(OutputOf::Links(value) | OutputOf::Graphs(value)) => {
                Term::Value(Typed { id: value, ty: self.checker.model.expr(value).ty.clone() })
            }
            // Its values are computed on request only.
            Some(OutputOf::Edges(_)) => return,
            None if self.checker.declared_outputs.contains(name) => Term::Error,
            None => return,
        };
        scope.locals.insert(name.to_owned(), term);
    }

    fn no_single_number(&self, span: Span, found: String) -> Diagnostic {
        Diagnostic::at(codes::LOSS_TERM, span, "a term of the loss is not a single number", found).help(
            "compare an output with a label, as in `cross_entropy(OUTPUT, VertexType.label)`, or write an expression that \
             gives one number",
        )
    }

    /// The report of a term with several numbers.
    fn of_rows(&self, row: &Row, span: Span) -> Diagnostic {
        let tables = &self.checker.model.tables;
        let found = match row.space {
            Space::Unit => format!("is {}", show_widths(tables, &row.widths)),
            space => format!("is {} with {}", show_widths(tables, &row.widths), show_space(tables, space)),
        };
        let report = self.no_single_number(span, found);
        match (row.space, &row.widths[..]) {
            (Space::Vertices(vertex), []) => {
                report.help(format!("the mean of its rows is `mean(…) over {}`", self.checker.vertex_name(vertex)))
            }
            (_, [_, ..]) => report.help("the sum over its last dimension is `sum(…) over last`"),
            (_, []) => report,
        }
    }

    /// Refuses terms that cannot be trained together.
    fn terms_together(&mut self, sum: &mut Sum, on_batches: bool) {
        let of = |term: &TrainedTerm| match term.comparison.of {
            TrainedOf::Label { vertex, .. } => Some(vertex),
            TrainedOf::Links(..) => None,
        };
        let trained = &sum.found.trained;
        let Some(first) = trained.first() else { return };
        let wrong = trained[1..].iter().find_map(|term| match (of(first), of(term)) {
            (Some(a), Some(b)) if a == b || !on_batches => None,
            (Some(a), Some(b)) => Some(self.of_other_vertices((first, a), (term, b))),
            (None, _) | (_, None) => Some(
                Diagnostic::at(
                    codes::LINK_LOSS,
                    term.span,
                    "the loss of links is not the only comparison",
                    "learned in other batches",
                )
                .label(first.span, "the batches would be of this term")
                .note("a batch of links leaves these links out of the messages; other terms would see another graph")
                .help(format!("leave one of them out; terms that compare nothing may stand beside one of `{LINKS}`")),
            ),
        });
        if let Some(report) = wrong {
            self.checker.report(report);
            sum.broken = true;
        }
    }

    fn of_other_vertices(
        &self,
        (first, a): (&TrainedTerm, VertexType),
        (term, b): (&TrainedTerm, VertexType),
    ) -> Diagnostic {
        let (a, b) = (self.checker.vertex_name(a), self.checker.vertex_name(b));
        let message = format!("a batch has seeds of `{a}`, and this term is of `{b}`");
        Diagnostic::at(codes::NOT_ON_BATCH, term.span, message, format!("compares labels of `{b}`"))
            .label(first.span, format!("compares labels of `{a}`"))
            .help("remove `batch`: each step then sees the labels of all vertex types")
    }
}

/// Does an expression hold a comparison of an output with its ground truth?
fn compares(expr: &Expr) -> bool {
    let is_one = |expr: &Expr| matches!(&expr.kind, ExprKind::Call(call) if LOSSES.contains(&&*call.callee.name));
    is_one(expr) || parts(expr).into_iter().any(compares)
}
