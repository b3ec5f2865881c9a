//! Models: statements, outputs, and the loss that training adds.

use std::collections::{BTreeMap, HashMap};

use hgnnc_declare::consts::Consts;
use hgnnc_diag::{Diagnostic, codes};
use hgnnc_hir::text::{show_space, show_widths};
use hgnnc_hir::{ExprId, ExprKind as Kind, Form, Output, OutputOf, StmtKind, Type};
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_ir::training::is_of_loss;
use hgnnc_ir::{Space, VertexType};
use hgnnc_syntax::ast::{self, Binding, Expr, Stmt};

use crate::checker::{Checker, Place, Scope};
use crate::edges::{declared_rows, row_of, rows_of_edges};
use crate::outputs::OutputSpace;
use crate::sharing::Parameter;
use crate::value::Term;

/// The most times that statements are repeated.
const MOST_TIMES: f64 = 1000.0;

/// The statements of a model with meaning, and its outputs.
#[derive(Default)]
pub struct Made {
    /// The statements in order.
    pub body: Vec<hgnnc_hir::Stmt>,
    outputs: BTreeMap<String, Output>,
    /// The parameters of each statement, by its name: those of the last one of that name.
    pub parameters: HashMap<String, Vec<Parameter>>,
}

impl Checker<'_> {
    /// Checks a model's body and its outputs.
    pub fn model(&mut self, model: &ast::Model, consts: &Consts) {
        let mut scope = Scope {
            place: Place::Model,
            variable: None,
            locals: HashMap::new(),
            spans: HashMap::new(),
            layer: None,
            consts,
            graphs: vec![],
            along: None,
            statement: String::new(),
        };
        self.declared_outputs = (model.body.iter())
            .filter_map(|stmt| match stmt {
                Stmt::Output(output) => Some(output.name.name.clone()),
                _ => None,
            })
            .collect();
        let mut made = Made::default();
        for stmt in &model.body {
            if self.gives_up() {
                break;
            }
            match stmt {
                Stmt::Output(output) => self.output_statement(output, &mut scope, &mut made),
                Stmt::Assign(binding) => self.misplaced_assignment(binding, &mut scope),
                Stmt::Param(_) | Stmt::Let(_) | Stmt::Repeat(_) => self.model_statement(stmt, &mut scope, &mut made),
            }
        }
        let Made { body, outputs, .. } = made;
        if outputs.is_empty() && self.declared_outputs.is_empty() && !self.diagnostics.has_errors() {
            self.report(
                Diagnostic::at(
                    codes::MISSING_RESULT,
                    model.name.span,
                    format!("model `{}` has no output", model.name.name),
                    "computes nothing",
                )
                .help("add `output NAME: VertexType = …`"),
            );
        }
        self.model_names = scope.locals;
        self.model.body = body;
        self.model.outputs = outputs;
    }

    /// A statement that may stand in a repetition as well.
    pub(crate) fn model_statement(&mut self, stmt: &Stmt, scope: &mut Scope<'_>, made: &mut Made) {
        match stmt {
            Stmt::Param(decl) => {
                let term = self.declare(decl, scope);
                made.body.extend(Self::statement(StmtKind::Param, &decl.name, &term));
                self.bind(scope, &decl.name, term);
            }
            Stmt::Let(binding) => {
                let term = self.named_value(binding, scope, made);
                self.bind(scope, &binding.name, term);
            }
            Stmt::Repeat(repeat) => self.repeat(repeat, scope, made),
            Stmt::Assign(_) | Stmt::Output(_) => unreachable!("these depend on what they stand in"),
        }
    }

    /// The value of a statement that parameters are named for.
    fn named_value(&mut self, binding: &Binding, scope: &mut Scope<'_>, made: &mut Made) -> Term {
        let Binding { name, value, sharing } = binding;
        if scope.place == Place::Composed && !self.shares_nothing(sharing, scope.place) {
            return Term::Error;
        }
        let (term, sharing) = self.with_parameters(name, value, sharing.as_ref(), scope, made);
        made.body.extend(Self::statement(StmtKind::Let, name, &term).map(|stmt| hgnnc_hir::Stmt { sharing, ..stmt }));
        term
    }

    /// Reports an assignment of a name that cannot have another value here.
    pub(crate) fn misplaced_assignment(&mut self, Binding { name, value, .. }: &Binding, scope: &mut Scope<'_>) {
        let report = match scope.spans.get(&name.name) {
            Some(first) => Diagnostic::at(
                codes::MODEL_ONLY,
                name.span,
                format!("`{}` has a value already", name.name),
                "a name gets another value in a `repeat` only",
            )
            .label(*first, "declared here")
            .help("declare another name"),
            None => Diagnostic::at(
                codes::MODEL_ONLY,
                name.span,
                format!("`{}` is not declared", name.name),
                if scope.place == Place::Composed { "unknown name" } else { "a model has no fields to assign" },
            )
            .help(format!("write `let {} = …`", name.name)),
        };
        self.report(report);
        let term = self.eval(value, scope);
        if !scope.spans.contains_key(&name.name) {
            self.bind(scope, name, term);
        }
    }

    /// How often something is repeated; once, where the use of a layer gives the number.
    pub(crate) fn times(&mut self, times: &Expr, scope: &Scope<'_>) -> Option<usize> {
        let number = self.number(times, scope)?;
        if number.is_nan() {
            return Some(1);
        }
        if number.fract() != 0.0 || !(0.0..=MOST_TIMES).contains(&number) {
            let message = format!("statements and blocks are repeated a whole number of times, up to {MOST_TIMES}");
            self.report(Diagnostic::at(codes::ARGUMENT_RANGE, times.span, message, format!("this is {number}")));
            return None;
        }
        Some(number as usize)
    }

    /// `repeat n { … }`: the statements `n` times. What a `let` declares ends with each time; an assignment gives a name of
    /// outside another value, for the statements behind it and the next times.
    fn repeat(&mut self, repeat: &ast::Repeat<Stmt>, scope: &mut Scope<'_>, made: &mut Made) {
        let Some(times) = self.times(&repeat.times, scope) else { return };
        let outside = scope.spans.clone();
        for _ in 0..times {
            if !self.begins_time(repeat.span) {
                return;
            }
            for stmt in &repeat.body {
                if self.gives_up() {
                    return;
                }
                match stmt {
                    Stmt::Assign(binding) if outside.contains_key(&binding.name.name) => {
                        let term = self.named_value(binding, scope, made);
                        scope.locals.insert(binding.name.name.clone(), term);
                    }
                    Stmt::Assign(binding) => self.misplaced_assignment(binding, scope),
                    Stmt::Let(Binding { name, .. }) if outside.contains_key(&name.name) => {
                        let report = hgnnc_declare::names::duplicate("name", name, outside[&name.name]);
                        let again = format!("write `{} = …` for another value of it", name.name);
                        self.report(Diagnostic { help: vec![again], ..report });
                    }
                    Stmt::Output(output) if scope.place == Place::Composed => self.output_in_layer(output),
                    Stmt::Output(output) => self.report(Diagnostic::at(
                        codes::MODEL_ONLY,
                        output.name.span,
                        "an output is declared once, behind the repetition",
                        "would be declared several times",
                    )),
                    Stmt::Param(_) | Stmt::Let(_) | Stmt::Repeat(_) => self.model_statement(stmt, scope, made),
                }
            }
            scope.locals.retain(|name, _| outside.contains_key(name));
            scope.spans.clone_from(&outside);
            // A mistake would be reported again each time.
            if self.diagnostics.has_errors() {
                break;
            }
        }
    }

    fn output_statement(&mut self, output: &ast::OutputStmt, scope: &mut Scope<'_>, made: &mut Made) {
        if let Some(first) = made.outputs.get(&output.name.name) {
            let report = hgnnc_declare::names::duplicate("output", &output.name, first.span);
            self.report(report);
        }
        if is_of_loss(&output.name.name) {
            self.report(Diagnostic::at(
                codes::RESERVED_NAME,
                output.name.span,
                format!("`{}` is a result that training adds", output.name.name),
                "choose another name",
            ));
        }
        let (term, sharing) = self.with_parameters(&output.name, &output.value, output.sharing.as_ref(), scope, made);
        if matches!(term, Term::Error) {
            self.output_space(output);
            return;
        }
        if let Some(of) = self.output(output, term) {
            let (kind, name, value) = (StmtKind::Output, output.name.name.clone(), of.value());
            made.body.push(hgnnc_hir::Stmt { kind, name, value, sharing });
            made.outputs.insert(output.name.name.clone(), Output { of, span: output.name.span });
        }
    }

    fn output(&mut self, output: &ast::OutputStmt, term: Term) -> Option<OutputOf> {
        match self.output_space(output)? {
            OutputSpace::Links => self.link_output(output, term).map(OutputOf::Links),
            OutputSpace::Graphs => self.family_output(output, term, FamilyRows::Graphs).map(OutputOf::Graphs),
            OutputSpace::Edges => self.family_output(output, term, FamilyRows::Edges).map(OutputOf::Edges),
            OutputSpace::Vertices(vertex) => {
                self.output_value(output, vertex, term).map(|value| OutputOf::Vertices(vertex, value))
            }
        }
    }

    fn output_value(&mut self, output: &ast::OutputStmt, vertex: VertexType, term: Term) -> Option<ExprId> {
        let at = output.value.span;
        let (declared_at, declared_for) = declared_rows(output);
        let of_all = |output: &ast::OutputStmt| {
            Diagnostic::at(
                codes::RESULT_MISMATCH,
                at,
                format!("output `{}` needs one row per {}", output.name.name, row_of(output)),
                if output.of.is_some() { "is the same for all edges" } else { "is the same for all vertices" },
            )
            .label(declared_at, declared_for)
        };
        let value = match &term {
            Term::Number(_) | Term::Width(_) => {
                self.report(of_all(output));
                return None;
            }
            Term::Value(value) => value,
            other => {
                let report = self.not_a_value(other, at);
                self.report(report);
                return None;
            }
        };
        let row = match &*value.ty {
            Type::PerType(rows) => match rows.get(&vertex) {
                Some(row) => row.clone(),
                None => {
                    let has: Vec<_> = rows.keys().map(|v| format!("`{}`", self.vertex_name(*v))).collect();
                    let report = Diagnostic::at(
                        codes::NOT_PROJECTED,
                        at,
                        format!("output `{}` has no value for `{}`", output.name.name, self.vertex_name(vertex)),
                        format!("has values of {}", has.join(", ")),
                    )
                    .label(declared_at, declared_for);
                    self.report(match &output.of {
                        Some(relation) => report.help(rows_of_edges(relation)),
                        None => report,
                    });
                    return None;
                }
            },
            Type::One(_) => {
                self.report(of_all(output));
                return None;
            }
            Type::ByGraph(_) => {
                let report = self.not_of_vertices(output, &value.ty, at);
                self.report(report);
                return None;
            }
            Type::PerGraph(_) => {
                let report = self.not_a_value(&term, at);
                self.report(report);
                return None;
            }
        };
        let usable = self.usable(&row, at);
        self.or_report(usable)?;
        let is_sparse = matches!(row.form, Form::Sparse(_));
        if is_sparse || row.space != Space::Vertices(vertex) || row.widths.len() > 1 {
            let tables = &self.model.tables;
            let found = match is_sparse {
                true => "is sparse".to_string(),
                false => format!("is {} with {}", show_widths(tables, &row.widths), show_space(tables, row.space)),
            };
            self.report(
                Diagnostic::at(
                    codes::RESULT_MISMATCH,
                    at,
                    "an output is a dense value with one row per vertex and at most one dimension",
                    found,
                )
                .help("`flatten(…)`, or a `linear(…)` head"),
            );
            return None;
        }
        Some(self.expr(Kind::OfType(value.id, vertex), Type::One(row), at).id)
    }
}
