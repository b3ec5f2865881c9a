//! Expressions: names, fields, operators. Functions are in `functions`, reductions in `reduce`.

use std::collections::BTreeMap;

use hgnnc_declare::consts::{as_dimension, bad_dimension, not_constant};
use hgnnc_declare::names::{MAX_COMPARED, suggest};
use hgnnc_diag::{Diagnostic, Span, codes, synonyms};
use hgnnc_hir::text::{show_dim, show_widths};
use hgnnc_hir::{Dim, ExprId, ExprKind as Kind, Type, Width};
use hgnnc_syntax::ast::{self, Expr, ExprKind};
use hgnnc_syntax::format_expr;

use crate::bound_widths::BoundWidth;
use crate::checker::{Checker, Mistake, Place, Scope};
use crate::functions;
use crate::value::{Term, Typed};

/// A width, for each semantic graph in scope where it differs.
pub enum Widths {
    /// The same width for all.
    One(Width),
    /// A width for each of them.
    PerGraph(Vec<Width>),
}

impl Checker<'_> {
    /// The meaning of an expression. Mistakes are reported and give [`Term::Error`].
    pub fn eval(&mut self, expr: &Expr, scope: &Scope<'_>) -> Term {
        if self.gives_up() {
            return Term::Error;
        }
        let term = self.meaning(expr, scope);
        if self.keeps_size(&term, expr.span) { term } else { Term::Error }
    }

    fn meaning(&mut self, expr: &Expr, scope: &Scope<'_>) -> Term {
        match &expr.kind {
            ExprKind::Number(number) => Term::Number(*number),
            ExprKind::Bool(value) => Term::Bool(*value),
            ExprKind::Name(name) => {
                let result = self.name(name, expr.span, scope);
                self.settle(result)
            }
            ExprKind::Field(base, field) => self.field(base, field, scope),
            ExprKind::Slice(base, parts) => self.slice(base, parts, expr.span, scope),
            ExprKind::PathPart { part, .. } => self.part_alone(part, expr.span, scope),
            ExprKind::Unary(op, a) => {
                let a_term = self.eval(a, scope);
                self.unary_operator(*op, a_term, expr.span)
            }
            ExprKind::Binary(op, a, b) => {
                let left = self.eval(a, scope);
                // `false and …` does not look at the right, so that `given(x) and width(x) == n` works.
                match (op, &left) {
                    (ast::BinaryOp::And, Term::Bool(false)) => return Term::Bool(false),
                    (ast::BinaryOp::Or, Term::Bool(true)) => return Term::Bool(true),
                    _ => {}
                }
                if let (ast::BinaryOp::MatMul, Some((inner, field))) = (op, transposed(b, scope)) {
                    let right = self.eval(inner, scope);
                    if !matches!(left, Term::Error) && !matches!(right, Term::Error) {
                        let report = self.no_transpose((a, &left), (inner, &right), field);
                        self.report(report);
                    }
                    return Term::Error;
                }
                let right = self.eval(b, scope);
                let Some(help) = input_help(a, b, *op, expr.span) else {
                    return self.binary_operator(*op, (left, a.span), (right, b.span), expr.span);
                };
                let before = std::mem::take(self.diagnostics);
                let term = self.binary_operator(*op, (left, a.span), (right, b.span), expr.span);
                for found in std::mem::replace(self.diagnostics, before) {
                    self.diagnostics.push(found.help(&help[..]));
                }
                term
            }
            ExprKind::Call(call) => self.call(call, expr.span, scope),
            // Shapes and class weights are read where they stand; anywhere else, a list means nothing.
            ExprKind::List(items) => {
                for item in items {
                    self.eval(item, scope);
                }
                Term::List
            }
            ExprKind::Tuple(items) => {
                let list: Vec<String> = items.iter().map(format_expr).collect();
                let message = "a list stands in square brackets";
                self.report(
                    Diagnostic::at(codes::NOT_A_VALUE, expr.span, message, "not a list")
                        .help(format!("write `[{}]`; values are joined by `concat(a, b)`", list.join(", "))),
                );
                Term::Error
            }
            ExprKind::Bundle(items) => self.bundle(items, expr.span, scope),
            ExprKind::If(condition, yes, no) => match self.eval(condition, scope) {
                Term::Bool(true) => self.eval(yes, scope),
                Term::Bool(false) => self.eval(no, scope),
                Term::AnyBool => {
                    let (yes, no) = (self.eval(yes, scope), self.eval(no, scope));
                    either(yes, no)
                }
                Term::Error => Term::Error,
                other => {
                    let message = "a condition is `true` or `false` at compile time";
                    let label = format!("this is {}", other.describe());
                    let mut report = Diagnostic::at(codes::NOT_BOOLEAN, condition.span, message, label);
                    if let (Term::Value(_), ExprKind::Binary(..)) = (&other, &condition.kind) {
                        let mask = format_expr(condition);
                        report = report.help(format!(
                            "`{mask}` is 1 in each element where it holds, else 0: write `({mask}) * a + (1 - ({mask})) * b`"
                        ));
                    }
                    self.report(report);
                    Term::Error
                }
            },
            ExprKind::Error => Term::Error,
        }
    }

    fn name(&mut self, name: &str, span: Span, scope: &Scope<'_>) -> Result<Term, Mistake> {
        match scope.locals.get(name) {
            Some(Term::PerHop(param, row)) => return self.param_of_hop((*param, row), span, scope),
            Some(Term::OfStep(expr)) => {
                self.within_step(name, span, scope)?;
                return Ok(self.eval(expr, scope));
            }
            Some(term) => return Ok(term.clone()),
            None => {}
        }
        if let Some(layer) = scope.layer {
            if let Some(term) = layer.arguments.get(name).or_else(|| layer.params.get(name)) {
                return Ok(term.clone());
            }
            if let Some(widths) = layer.dims.get(name) {
                return self.dim_variable(name, widths, span, scope);
            }
        }
        if let Some(number) = scope.consts.get(name) {
            return Ok(Term::Number(number));
        }
        if scope.consts.is_broken(name) {
            return Ok(Term::Error);
        }
        if functions::is_unary_function(name) {
            return Ok(Term::Function(name.to_string()));
        }
        if scope.place == Place::Model && name == "features" {
            return self.all_features(span);
        }
        let mut report =
            Diagnostic::at(codes::UNKNOWN_NAME, span, format!("`{name}` is not known here"), "unknown name");
        if functions::is_function(name) {
            let message = format!("`{name}` is a function that cannot be passed by its name");
            return Err(Box::new(
                Diagnostic::at(codes::UNKNOWN_NAME, span, message, "call it")
                    .help("functions of one value and no options can be passed: `relu`, `elu`, `gelu`, `tanh`, …"),
            ));
        }
        let locals = scope.locals.keys().map(String::as_str).chain(scope.consts.names());
        let mut known: Vec<&str> = locals.take(MAX_COMPARED + 1).collect();
        if scope.place == Place::Model {
            known.push("features");
            known.extend(self.schema.vertices.iter().map(|vertex| vertex.name.as_str()).take(MAX_COMPARED + 1));
        }
        if let Some(layer) = scope.layer {
            known.extend(layer.arguments.keys().map(String::as_str));
            known.extend(layer.dims.keys().map(String::as_str));
            known.extend(layer.params.keys().map(String::as_str));
            let is_field = layer.vertex_fields.contains_key(name) || layer.graph_fields.contains_key(name);
            if let (true, Some(variable)) = (is_field, scope.variable) {
                let end = if scope.place == Place::Aggregate { ".src" } else { "" };
                report = report.help(format!("`{name}` is a field: write `{}{end}.{name}`", variable.name));
                return Err(Box::new(report));
            }
        } else if self.schema.vertex_named(name).is_some() {
            report = report.help(format!("`{name}` is a vertex type: name one of its fields, as in `{name}.x`"));
            return Err(Box::new(report));
        }
        if let Some(end) = self.end_of_edge(name, scope) {
            return Err(Box::new(report.help(end)));
        }
        Err(Box::new(suggest(report, synonyms::Place::Value, name, known)))
    }

    /// The value at an end of an edge that `h_j` or `h_src` means in papers and other tools.
    fn end_of_edge(&self, name: &str, scope: &Scope<'_>) -> Option<String> {
        let (layer, variable) = (scope.layer?, scope.variable?);
        if scope.place != Place::Aggregate {
            return None;
        }
        if ["src", "dst"].contains(&name) {
            return Some(format!("an end of the edge is `{}.{name}`", variable.name));
        }
        let (field, end) = name.rsplit_once('_')?;
        let end = match end {
            "j" | "src" | "u" | "source" => "src",
            "i" | "dst" | "v" | "target" => "dst",
            _ => return None,
        };
        let known = layer.vertex_fields.contains_key(field);
        let which = if end == "src" { "source" } else { "destination" };
        known.then(|| format!("at the {which} of the edge it is `{}.{end}.{field}`", variable.name))
    }

    /// The report of `a @ b.T`.
    fn no_transpose(&self, (a, left): (&Expr, &Term), (b, right): (&Expr, &Term), field: &ast::Ident) -> Diagnostic {
        let is_single = |term: &Term| match term {
            Term::Value(value) => value.ty.rows().all(|row| row.space == hgnnc_ir::Space::Unit),
            _ => false,
        };
        let report = Diagnostic::at(codes::UNKNOWN_FIELD, field.span, "a transpose is a function", "not a field");
        let (a, b) = (format_expr(a), format_expr(b));
        match is_single(right) && !is_single(left) {
            true => report.help(format!("write `{a} @ transpose({b})`")),
            false => report.help(format!(
                "row by row, the product summed over the last dimension is `dot({a}, {b})`, and that of matrices \
                 `matmul({a}, transpose({b}))`"
            )),
        }
    }

    /// A name bound to a width by `of x: V[in]`: it may differ between vertex types. In an `aggregate`
    /// block it is the width at the source.
    fn dim_variable(&self, name: &str, bound: &BoundWidth, span: Span, scope: &Scope<'_>) -> Result<Term, Mistake> {
        let widths = match bound {
            BoundWidth::One(width) => return Ok(Term::Width(*width)),
            BoundWidth::ByType(widths) => widths,
        };
        let of = |vertex| {
            widths.get(&vertex).copied().ok_or_else(|| {
                Box::new(Diagnostic::at(
                    codes::NOT_PROJECTED,
                    span,
                    format!("`{name}` has no value for vertex type `{}`", self.vertex_name(vertex)),
                    "the layer's input does not cover this type",
                ))
            })
        };
        match scope.place {
            Place::Project(vertex, _) | Place::Fuse(vertex, _) => Ok(Term::Width(of(vertex)?)),
            Place::Aggregate => {
                let layer = scope.layer.expect("aggregate blocks are in layers");
                let sources = scope.graphs.iter().map(|&g| of(layer.ends[g].0));
                Ok(Term::Widths(sources.collect::<Result<_, _>>()?))
            }
            Place::Model | Place::Composed | Place::Layer => {
                let first = widths.values().next();
                match first.filter(|first| widths.values().all(|width| width.dim == first.dim)) {
                    Some(same) => Ok(Term::Width(*same)),
                    None => Err(Box::new(
                        Diagnostic::at(
                            codes::SHARED_SHAPE,
                            span,
                            format!("`{name}` differs between vertex types"),
                            "one width is needed here",
                        )
                        .help("declare the parameter in a `project` block, where there is one for each vertex type"),
                    )),
                }
            }
        }
    }

    /// `features`: the features of every vertex type that has some.
    fn all_features(&mut self, span: Span) -> Result<Term, Mistake> {
        let mut all = BTreeMap::new();
        for (index, vertex) in self.schema.vertices.iter().enumerate() {
            if let Some(field) = vertex.fields.iter().position(|f| f.kind.is_feature()) {
                vertex.used.set(true);
                let vertex = hgnnc_ir::VertexType::new(index);
                all.insert(vertex, self.features(vertex, field, span));
            } else if self.schema.broken.iter().any(|field| field.starts_with(&format!("{}.", vertex.name))) {
                return Ok(Term::Error);
            }
        }
        if all.is_empty() {
            return Err(Box::new(
                Diagnostic::at(codes::NOT_PROJECTED, span, "no vertex type has features", "nothing to start from")
                    .help("declare `{ x: onehot }` or `{ x: embedding[64] }` for vertex types without features"),
            ));
        }
        Ok(Term::Value(self.types(all.into_iter().map(|(vertex, value)| (vertex, value.id)), span)))
    }

    /// Values of vertex types, each from an expression of a single value or of vertex types.
    pub fn types(&mut self, parts: impl IntoIterator<Item = (hgnnc_ir::VertexType, ExprId)>, span: Span) -> Typed {
        let parts: Vec<_> = parts.into_iter().collect();
        let row = |(vertex, part): &(hgnnc_ir::VertexType, ExprId)| {
            let row = match &*self.model.expr(*part).ty {
                Type::One(row) => row,
                Type::PerType(rows) => &rows[vertex],
                Type::PerGraph(_) | Type::ByGraph(_) => unreachable!("values of vertex types"),
            };
            (*vertex, row.clone())
        };
        let ty = Type::PerType(parts.iter().map(row).collect());
        self.expr(Kind::Types(parts), ty, span)
    }

    fn bundle(&mut self, items: &[Expr], span: Span, scope: &Scope<'_>) -> Term {
        let mut all: BTreeMap<hgnnc_ir::VertexType, ExprId> = BTreeMap::new();
        let mut fine = true;
        for item in items {
            match self.eval(item, scope) {
                Term::Value(Typed { id, ty }) if matches!(&*ty, Type::PerType(_)) => {
                    let Type::PerType(rows) = &*ty else { unreachable!("it was compared") };
                    for &vertex in rows.keys() {
                        if all.insert(vertex, id).is_some() {
                            fine = false;
                            self.report(Diagnostic::at(
                                codes::DUPLICATE_NAME,
                                item.span,
                                format!("`{}` has two values in this bundle", self.vertex_name(vertex)),
                                "a second value",
                            ));
                        }
                    }
                }
                Term::Error => fine = false,
                other => {
                    fine = false;
                    let mut report = self.not_a_value(&other, item.span);
                    if !matches!(other, Term::Label(..) | Term::Record(_)) {
                        report.message = format!("a bundle holds values of vertex types, not {}", other.describe());
                    }
                    self.report(report);
                }
            }
        }
        if fine { Term::Value(self.types(all, span)) } else { Term::Error }
    }

    /// Evaluates a number that is known at compile time, and reports anything else. A number that the use of the layer
    /// gives is NaN here.
    pub(crate) fn number(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<f64> {
        let term = self.eval(expr, scope);
        if matches!(term, Term::Error) {
            return None;
        }
        match known_number(&term) {
            Known::Number(number) => Some(number),
            Known::Unknown => Some(f64::NAN),
            Known::No => {
                self.report(found_instead(term.describe(), expr.span));
                None
            }
        }
    }

    /// A width, for each graph in scope where it differs.
    pub(crate) fn width(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<Widths> {
        match self.eval(expr, scope) {
            Term::Error => None,
            Term::Width(width) => Some(Widths::One(width)),
            Term::Widths(widths) => Some(Widths::PerGraph(widths)),
            Term::AnyNumber => {
                let dim = self.model.tables.symbols.variable("?");
                Some(Widths::One(Width { dim, origin: expr.span }))
            }
            Term::Number(number) => match as_dimension(number) {
                Some(extent) => Some(Widths::One(Width { dim: Dim::Fixed(extent), origin: expr.span })),
                None => {
                    let mut report = bad_dimension(expr.span, number);
                    if let Some(reason) = self.indivisible(expr, scope) {
                        report = report.help(reason);
                    }
                    self.report(report);
                    None
                }
            },
            other => {
                self.report(found_instead(other.describe(), expr.span));
                None
            }
        }
    }

    /// The numbers of a division of whole numbers that leaves a remainder, in words: they come from the use of a layer,
    /// and the division stands in its body.
    pub(crate) fn indivisible(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<String> {
        let ExprKind::Binary(ast::BinaryOp::Div, a, b) = &expr.kind else { return None };
        let (a, b) = (self.number(a, scope)?, self.number(b, scope)?);
        let whole = a.fract() == 0.0 && b.fract() == 0.0;
        (whole && a % b != 0.0).then(|| format!("{a} is not divisible by {b}"))
    }

    /// A width that is the same for all graphs in scope.
    pub(crate) fn one_width(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<Width> {
        let widths = match self.width(expr, scope)? {
            Widths::One(width) => return Some(width),
            Widths::PerGraph(widths) => widths,
        };
        let first = *widths.first()?;
        let Some(other) = widths.iter().find(|w| !self.may_equal(w.dim, first.dim)) else { return Some(first) };
        self.report(
            Diagnostic::at(
                codes::SHARED_SHAPE,
                expr.span,
                "this width differs between semantic graphs",
                format!("{} and {}", show_dim(&self.model.tables, first.dim), show_dim(&self.model.tables, other.dim)),
            )
            .label(first.origin, "one width comes from here")
            .label(other.origin, "the other from here"),
        );
        None
    }

    /// Refuses shapes with more elements than anything can hold, before anything multiplies their extents.
    pub(crate) fn check_size(&self, widths: &[Width], span: Span) -> Result<(), Mistake> {
        const MOST: usize = 1 << 40;
        let mut elems: usize = 1;
        for extent in widths.iter().filter_map(|w| w.dim.fixed()) {
            elems = elems.saturating_mul(extent);
        }
        if elems <= MOST {
            return Ok(());
        }
        Err(Box::new(Diagnostic::at(
            codes::BAD_DIMENSION,
            span,
            format!("{} has too many elements", show_widths(&self.model.tables, widths)),
            "no machine could hold it",
        )))
    }
}

/// One of two terms, in a layer that is checked without a use: of which nothing is known if they differ.
fn either(a: Term, b: Term) -> Term {
    match (&a, &b) {
        (Term::Value(x), Term::Value(y)) if x.ty.same_widths(&y.ty) => a,
        (Term::Number(x), Term::Number(y)) if x == y => a,
        (Term::Number(_) | Term::AnyNumber, Term::Number(_) | Term::AnyNumber) => Term::AnyNumber,
        (Term::Bool(_) | Term::AnyBool, Term::Bool(_) | Term::AnyBool) => Term::AnyBool,
        _ => Term::Error,
    }
}

/// The operand that `x.T` and `x.t` transpose, where they are no ends of an edge.
fn transposed<'e>(expr: &'e Expr, scope: &Scope<'_>) -> Option<(&'e Expr, &'e ast::Ident)> {
    let ExprKind::Field(base, field) = &expr.kind else { return None };
    let is_variable = |e: &Expr| matches!(&e.kind, ExprKind::Name(n) if scope.variable.is_some_and(|v| v.name == *n));
    let is_end = matches!(&base.kind, ExprKind::Field(inner, _) if is_variable(inner) && scope.place == Place::Aggregate)
        && !matches!(&base.kind, ExprKind::Field(_, end) if !["src", "dst"].contains(&end.name.as_str()));
    let is_field = is_variable(base) || is_end;
    (["T", "mT", "t"].contains(&field.name.as_str()) && !is_field).then_some((base, field))
}

/// The report of something else than a number that is known at compile time.
fn found_instead(found: &str, span: Span) -> Diagnostic {
    let mut report = not_constant(span);
    if let Some(label) = &mut report.primary {
        label.text = format!("this is {found}");
    }
    report
}

/// The number that a term is at compile time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Known {
    /// A number that is known here.
    Number(f64),
    /// A number that the use of the layer gives.
    Unknown,
    /// The term is no number.
    No,
}

/// The number that a term is at compile time.
pub fn known_number(term: &Term) -> Known {
    match term {
        Term::Number(number) => Known::Number(*number),
        Term::AnyNumber | Term::Width(Width { dim: Dim::Symbolic(_), .. }) => Known::Unknown,
        Term::Width(Width { dim: Dim::Fixed(extent), .. }) => Known::Number(*extent as f64),
        Term::Widths(widths) => match widths.first() {
            Some(Width { dim: dim @ Dim::Fixed(extent), .. }) if widths.iter().all(|w| w.dim == *dim) => {
                Known::Number(*extent as f64)
            }
            Some(Width { dim: Dim::Symbolic(_), .. }) => Known::Unknown,
            _ => Known::No,
        },
        _ => Known::No,
    }
}

/// The form to write where `a ∘ b` was probably meant as the input of a layer: in `L() over g of a * b`, `of` takes `a` alone.
fn input_help(a: &Expr, b: &Expr, op: ast::BinaryOp, span: Span) -> Option<String> {
    let ExprKind::Call(call) = &a.kind else { return None };
    let input = &call.of.last()?.value;
    // Otherwise the inputs, or the use of the layer, stand in parentheses.
    let follows = call.of.len() == 1 && input.span.end == a.span.end && a.span.start == span.start;
    let whole = Expr { kind: ExprKind::Binary(op, Box::new(input.clone()), Box::new(b.clone())), span };
    follows.then(|| {
        format!(
            "`of` takes what follows it up to an operator: if all is the input, write `of ({})`",
            format_expr(&whole)
        )
    })
}
