//! Reductions: `sum(x) over in_edges`, `softmax(x) over in_edges across graphs`, `mean(x) over V`,
//! `sum(x) across graphs`, `max(x) over last`.

mod axes;
mod edges;
mod graphs;
mod variance;
use hgnnc_declare::names::suggest;
use hgnnc_diag::{Diagnostic, Span, codes, synonyms};
use hgnnc_hir::text::{show_space, show_widths};
use hgnnc_hir::{Axis, ExprId, ExprKind as Kind, Reduction, Row, Type, Width};
use hgnnc_ir::{BinaryOp, Space, VertexType};
use hgnnc_syntax::ast::{Call, Expr, ExprKind, GraphExpr, Ident};
use hgnnc_syntax::format_expr;

use crate::checker::{Checker, Mistake, Place, Scope};
use crate::functions::VARIANCE;
use crate::paths::PATH;
use crate::value::{Term, Typed};

const SCOPES: &[&str] = &["in_edges", "vertices", "last", "first"];

/// Longer values are not repeated in a help.
const LONGEST_VALUE: usize = 60;

/// The scopes of reductions in a block.
fn scopes(place: Place) -> &'static [&'static str] {
    match place {
        Place::Aggregate => &["over in_edges", "over last"],
        Place::Fuse(..) => &["across graphs", "over vertices", "over last"],
        Place::Model | Place::Composed | Place::Layer | Place::Project(..) => &["over vertices", "over last"],
    }
}

impl Checker<'_> {
    /// A call of a reduction.
    pub(crate) fn reduction(&mut self, call: &Call, span: Span, scope: &Scope<'_>) -> Term {
        let name = call.callee.name.as_str();
        // The mean of squares around a mean is made of two reductions.
        let is_variance = name == VARIANCE;
        let kind = if is_variance { Reduction::Mean } else { Reduction::named(name).expect("a reduction") };
        if let Some(of) = call.of.first() {
            self.report(Diagnostic::at(
                codes::WRONG_SCOPE,
                of.value.span,
                format!("`{name}` takes no `of`"),
                "belongs to layers",
            ));
            return Term::Error;
        }
        if let Some(named) = call.args.iter().find_map(|a| a.name.as_ref()) {
            let report = Diagnostic::at(
                codes::UNKNOWN_ARGUMENT,
                named.span,
                format!("`{name}` has no argument `{}`", named.name),
                "its values have no names",
            );
            let value =
                call.args.iter().find(|arg| arg.name.is_none()).map_or("x".to_owned(), |arg| format_expr(&arg.value));
            let value = if value.len() <= LONGEST_VALUE { value } else { "x".to_owned() };
            let dimension = ["dim", "axis", "dims", "axes"].contains(&named.name.as_str());
            let report = match synonyms::meant(synonyms::Place::Argument, &named.name) {
                _ if dimension && kind == Reduction::Concat => {
                    report.help("values are joined along their last dimension: `concat(a, b)`")
                }
                Some(synonyms::Meant::Advice(advice)) if !dimension => report.help(synonyms::fill(advice, None)),
                _ => {
                    let forms: Vec<String> =
                        scopes(scope.place).iter().map(|over| format!("`{name}({value}) {over}`")).collect();
                    report.help(format!("it says what it goes over: {}", forms.join(" or ")))
                }
            };
            self.report(report);
            return Term::Error;
        }
        if call.over.is_none() && call.across.is_none() {
            return self.without_scope(kind, call, span, scope);
        }
        let [arg] = &call.args[..] else {
            let code = if call.args.is_empty() { codes::MISSING_ARGUMENT } else { codes::EXTRA_ARGUMENT };
            self.report(Diagnostic::at(
                code,
                span,
                format!("`{name}` with a scope takes one value"),
                format!("has {}", call.args.len()),
            ));
            return Term::Error;
        };
        if let Some(GraphExpr::Name(over)) = &call.over
            && over.name == PATH
            && call.across.is_none()
        {
            if is_variance {
                return self.not_over_path(VARIANCE, over);
            }
            return self.over_path(kind, &arg.value, over, span, scope);
        }
        let x = self.eval(&arg.value, scope);
        if matches!(x, Term::Error) {
            // The scope may be wrong by itself.
            if let Some(GraphExpr::Name(over)) = &call.over
                && !SCOPES.contains(&over.name.as_str())
                && scope.layer.is_none_or(|layer| !layer.types.contains_key(&over.name))
                && self.schema.vertices.iter().all(|vertex| vertex.name != over.name)
            {
                self.unknown_scope(over);
            }
            return Term::Error;
        }
        let over = match &call.over {
            None => None,
            Some(GraphExpr::Name(name)) => Some(name),
            Some(other) => {
                self.report(
                    Diagnostic::at(
                        codes::WRONG_SCOPE,
                        other.span(),
                        format!("`{name}` reduces over a scope, not over semantic graphs"),
                        "not a scope",
                    )
                    .help("scopes are `in_edges`, `vertices`, `last` and `first`"),
                );
                return Term::Error;
            }
        };
        if let Some(across) = &call.across
            && !self.is_family(across, scope)
        {
            return Term::Error;
        }
        let reduce =
            |this: &mut Self, x: Term| this.reduced(kind, x, &arg.value, (over, call.across.as_ref()), span, scope);
        if is_variance {
            return self.variance(x, arg.value.span, (over, span), reduce, scope);
        }
        reduce(self, x)
    }

    /// Reduces a value over its scope.
    fn reduced(
        &mut self,
        kind: Reduction,
        x: Term,
        arg: &Expr,
        (over, across): (Option<&Ident>, Option<&Ident>),
        span: Span,
        scope: &Scope<'_>,
    ) -> Term {
        let result = match (over, across) {
            (Some(over), across) if over.name == "in_edges" => {
                self.over_in_edges(kind, x, arg.span, across.is_some(), over, span, scope)
            }
            (Some(over), Some(_)) => Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                over.span,
                format!("`over {}` and `across` are two reductions", over.name),
                "only `over in_edges` goes together with `across`",
            ))),
            (Some(over), None) => return self.over_scope(kind, x, arg, over, span, scope),
            (None, Some(across)) => self.across_graphs(kind, x, arg, across, span, scope),
            (None, None) => unreachable!("a reduction has a scope"),
        };
        self.settle(result)
    }

    /// `max(a, b)`, `min(a, b)`, `concat(a, b, …)`.
    fn without_scope(&mut self, kind: Reduction, call: &Call, span: Span, scope: &Scope<'_>) -> Term {
        let name = call.callee.name.as_str();
        let args: Vec<&Expr> = call.args.iter().map(|a| &a.value).collect();
        match (kind, &args[..]) {
            (Reduction::Max | Reduction::Min, [a, b]) => {
                let op = if kind == Reduction::Max { BinaryOp::Max } else { BinaryOp::Min };
                let (left, right) = (self.eval(a, scope), self.eval(b, scope));
                self.binary(op, (left, a.span), (right, b.span), span)
            }
            (Reduction::Concat, [first, rest @ ..]) if !rest.is_empty() => {
                let mut joined = self.eval(first, scope);
                for next in rest {
                    let next = self.eval(next, scope);
                    let rule = |this: &mut Self, a: &Row, b: &Row| this.joined(a, b, span);
                    joined = self.map2(joined, next, span, rule, Kind::Concat);
                }
                joined
            }
            _ => {
                let message = format!("`{name}` needs to know what it reduces over");
                let report = Diagnostic::at(codes::MISSING_REDUCTION, span, message, "no scope");
                let report = match &args[..] {
                    [Expr { kind: ExprKind::List(items) | ExprKind::Tuple(items), .. }] if !items.is_empty() => {
                        let items: Vec<String> = items.iter().map(format_expr).collect();
                        report.help(format!("values stand without brackets: `{name}({})`", items.join(", ")))
                    }
                    [x, Expr { kind: ExprKind::Number(_) | ExprKind::Unary(..), .. }] => {
                        let forms =
                            scopes(scope.place).iter().map(|over| format!("`{name}({}) {over}`", format_expr(x)));
                        report.help(format!("dimensions have no numbers: {}", forms.collect::<Vec<_>>().join(" or ")))
                    }
                    [x, Expr { kind: ExprKind::Name(over), .. }] if SCOPES.contains(&over.as_str()) => {
                        report.help(format!("write `{name}({}) over {over}`", format_expr(x)))
                    }
                    _ => {
                        let list: Vec<String> = scopes(scope.place).iter().map(|over| format!("`{over}`")).collect();
                        report.help(format!("add {}", list.join(", ")))
                    }
                };
                self.report(report);
                Term::Error
            }
        }
    }

    pub(crate) fn is_family(&mut self, across: &Ident, scope: &Scope<'_>) -> bool {
        let family = scope.layer.and_then(|l| l.layer.over.as_ref());
        match family {
            Some(family) if family.name.name == across.name => true,
            _ => {
                let mut report = Diagnostic::at(
                    codes::WRONG_SCOPE,
                    across.span,
                    format!("`{}` is not the family of semantic graphs of this layer", across.name),
                    "unknown family",
                );
                if let Some(family) = family {
                    report = report.label(family.span, format!("the family is called `{}`", family.name.name));
                } else {
                    report = report.help("`across` belongs into the blocks of a layer with `over graphs: […]`");
                }
                self.report(report);
                false
            }
        }
    }

    /// `over last`, `over first`, `over vertices`.
    fn over_scope(
        &mut self,
        kind: Reduction,
        x: Term,
        arg: &Expr,
        over: &Ident,
        span: Span,
        scope: &Scope<'_>,
    ) -> Term {
        // `vertices`, or the vertex type that they must belong to.
        let vertex = match scope.layer {
            Some(layer) => layer.types.get(&over.name).copied(),
            None => self.schema.vertex_named(&over.name).map(VertexType::new),
        };
        let is_vertices = over.name == "vertices" || vertex.is_some();
        match over.name.as_str() {
            "last" => self.over_last_dimension(kind, x, arg.span, span),
            "first" => {
                let rule = |this: &mut Self, row: &Row| this.over_first(kind, row, arg.span, span);
                self.map(x, span, span, rule, |x| Kind::OverDimension(Axis::First, kind, x))
            }
            _ if is_vertices => {
                let x = self.of_named_type(x, vertex, arg.span);
                let rule = |this: &mut Self, row: &Row| this.over_rows(kind, row, arg.span, over, vertex, span);
                self.map(x, span, span, rule, |x| Kind::OverRows(kind, x))
            }
            _ => {
                self.unknown_scope(over);
                Term::Error
            }
        }
    }

    /// A value of the vertex type that a reduction names, where it is the only one: what it reduces to is a single row.
    fn of_named_type(&mut self, x: Term, named: Option<VertexType>, span: Span) -> Term {
        match (x, named) {
            (Term::Value(Typed { id, ty }), Some(vertex)) => match &*ty {
                Type::PerType(rows) if rows.keys().eq([&vertex]) => {
                    self.single(Kind::OfType(id, vertex), rows[&vertex].clone(), span)
                }
                _ => Term::Value(Typed { id, ty }),
            },
            (x, _) => x,
        }
    }

    fn unknown_scope(&mut self, over: &Ident) {
        let message = format!("`{}` is not a scope", over.name);
        let report = Diagnostic::at(codes::WRONG_SCOPE, over.span, message, "unknown scope");
        self.report(suggest(report, synonyms::Place::Scope, &over.name, SCOPES.iter().copied()));
    }

    /// A value as declared: a single zero (the sum over no graphs) is repeated to the declared shape.
    pub(crate) fn fit_row(&self, row: &Row, space: Space, widths: &[Width], span: Span) -> Result<Row, Mistake> {
        self.usable(row, span)?;
        if row.space == space && self.fit(&row.widths, widths) {
            return Ok(row.clone());
        }
        if row.space == Space::Unit && self.starts_with(widths, &row.widths) {
            return Ok(Row { space, widths: widths.to_vec(), form: row.form });
        }
        let tables = &self.model.tables;
        let mut report = Diagnostic::at(
            codes::RESULT_MISMATCH,
            span,
            "the result is not what the layer declares",
            format!("{} with {}", show_widths(tables, &row.widths), show_space(tables, row.space)),
        )
        .note(format!("declared: {} with {}", show_widths(tables, widths), show_space(tables, space)));
        if let Some((x, y)) = self.mismatch(&row.widths, widths) {
            report = report.label(x.origin, "this width is computed").label(y.origin, "this width is declared");
        }
        Err(Box::new(report))
    }

    /// The expression of a value as declared.
    pub(crate) fn fitted(&mut self, value: ExprId, row: &Row, fitted: &Row, span: Span) -> ExprId {
        if row.space == fitted.space && row.widths.len() == fitted.widths.len() {
            return value;
        }
        self.expr(Kind::Broadcast(value), Type::One(fitted.clone()), span).id
    }
}
