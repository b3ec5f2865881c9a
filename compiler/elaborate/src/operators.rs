//! Operators on values and families of values, and the reports of shapes that do not fit.

use std::collections::BTreeMap;

use hgnnc_declare::consts::{arithmetic, division_by_zero, not_constant, not_finite};
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::{show_dim, show_space, show_widths};
use hgnnc_hir::{Decomposition, Dim, ExprId, ExprKind, Form, Row, Type, Width};
use hgnnc_ir::{BinaryOp, Graph, Space, UnaryOp, VertexType};
use hgnnc_syntax::ast;

use crate::checker::{Checker, Mistake};
use crate::eval::{Known, known_number};
use crate::value::{Term, Typed, describe};

/// An operand of an element-wise operation, for the reports.
#[derive(Clone, Copy)]
pub struct Operand<'r> {
    /// The type of its value.
    pub row: &'r Row,
    /// Its expression, if it has one of its own.
    pub id: Option<ExprId>,
    /// Its place in the source.
    pub span: Span,
}

impl<'r> Operand<'r> {
    /// A value that a function computes.
    pub fn of(row: &'r Row, span: Span) -> Self {
        Self { row, id: None, span }
    }
}

impl Checker<'_> {
    pub(crate) fn unary_operator(&mut self, op: ast::UnaryOp, a: Term, span: Span) -> Term {
        match (op, a) {
            (_, Term::Error) => Term::Error,
            (ast::UnaryOp::Neg, Term::Number(number)) => Term::Number(-number),
            (ast::UnaryOp::Neg, Term::AnyNumber) => Term::AnyNumber,
            (ast::UnaryOp::Neg, a) => self.unary(UnaryOp::Neg, a, span, span),
            (ast::UnaryOp::Not, Term::Bool(value)) => Term::Bool(!value),
            (ast::UnaryOp::Not, Term::AnyBool) => Term::AnyBool,
            (ast::UnaryOp::Not, other) => {
                self.report(Diagnostic::at(
                    codes::NOT_BOOLEAN,
                    span,
                    "`not` takes `true` or `false`",
                    format!("this is {}", other.describe()),
                ));
                Term::Error
            }
        }
    }

    pub(crate) fn binary_operator(
        &mut self,
        op: ast::BinaryOp,
        (a, a_span): (Term, Span),
        (b, b_span): (Term, Span),
        span: Span,
    ) -> Term {
        use ast::BinaryOp as B;
        if matches!(a, Term::Error) || matches!(b, Term::Error) {
            return Term::Error;
        }
        // An operand that is no value is reported at its own side.
        let truths = matches!(op, B::Or | B::And | B::Eq | B::Ne | B::Lt | B::Le | B::Gt | B::Ge);
        for (side, at) in [(&a, a_span), (&b, b_span)] {
            let is_value = match side {
                Term::Absent
                | Term::Function(_)
                | Term::AnyFunction
                | Term::List
                | Term::Record(_)
                | Term::Label(..) => false,
                Term::Bool(_) | Term::AnyBool => truths,
                _ => true,
            };
            if !is_value {
                let report = self.not_a_value(side, at);
                self.report(report);
                return Term::Error;
            }
        }
        let elementwise = match op {
            B::Or | B::And => {
                return match (a, b) {
                    (Term::Bool(a), Term::Bool(b)) => Term::Bool(if op == B::Or { a || b } else { a && b }),
                    (Term::Bool(_) | Term::AnyBool, Term::Bool(_) | Term::AnyBool) => Term::AnyBool,
                    (Term::Bool(_) | Term::AnyBool, other) | (other, _) => {
                        self.report(Diagnostic::at(
                            codes::NOT_BOOLEAN,
                            span,
                            "`and` and `or` take `true` or `false`",
                            format!("one side is {}", other.describe()),
                        ));
                        Term::Error
                    }
                };
            }
            B::Eq | B::Ne | B::Lt | B::Le | B::Gt | B::Ge => {
                let is_value = |term: &Term| matches!(term, Term::Value(_));
                let is_number = |term: &Term| is_value(term) || known_number(term) != Known::No;
                if (is_value(&a) || is_value(&b)) && is_number(&a) && is_number(&b) {
                    return self.mask(op, (a, a_span), (b, b_span), span);
                }
                return self.compare(op, a, b, span);
            }
            B::MatMul => {
                let rule = |this: &mut Self, a: &Row, b: &Row| this.product(a, a_span, b, b_span, span);
                return self.map2(a, b, span, rule, ExprKind::Product);
            }
            B::Add => BinaryOp::Add,
            B::Sub => BinaryOp::Sub,
            B::Mul => BinaryOp::Mul,
            B::Div => BinaryOp::Div,
        };
        let (left, right) = (known_number(&a), known_number(&b));
        if op == B::Div && right == Known::Number(0.0) {
            self.report(division_by_zero(b_span));
            return Term::Error;
        }
        // Widths that are known are numbers, so `heads * hidden` and `width(v.x) / 2` are too.
        if let (Known::Number(a), Known::Number(b)) = (left, right) {
            let number = arithmetic(op, a, b).expect("arithmetic operators");
            if !number.is_finite() {
                self.report(not_finite(span, number));
                return Term::Error;
            }
            return Term::Number(number);
        }
        if left != Known::No && right != Known::No {
            return self.symbolic(op, &a, &b, span);
        }
        self.binary(elementwise, (a, a_span), (b, b_span), span)
    }

    /// Arithmetic of a layer that is checked without a use: of names of widths, where the result is a width.
    fn symbolic(&mut self, op: ast::BinaryOp, a: &Term, b: &Term, span: Span) -> Term {
        let dim = |term: &Term| match term {
            Term::Width(width) => Some(width.dim),
            Term::Number(number) if number.fract() == 0.0 && *number >= 0.0 && *number < 1e9 => {
                Some(Dim::Fixed(*number as usize))
            }
            _ => None,
        };
        let (Some(a), Some(b)) = (dim(a), dim(b)) else { return Term::AnyNumber };
        let symbols = &mut self.model.tables.symbols;
        let result = match op {
            ast::BinaryOp::Add => symbols.add(a, b),
            ast::BinaryOp::Sub => symbols.subtract(a, b),
            ast::BinaryOp::Mul => symbols.multiply(a, b),
            ast::BinaryOp::Div => symbols.divide(a, b),
            _ => None,
        };
        match result {
            Some(Dim::Fixed(number)) => Term::Number(number as f64),
            Some(dim) => Term::Width(Width { dim, origin: span }),
            None => Term::AnyNumber,
        }
    }

    /// A comparison of values: 1 in each element where it holds, else 0.
    fn mask(&mut self, op: ast::BinaryOp, a: (Term, Span), b: (Term, Span), span: Span) -> Term {
        use ast::BinaryOp as B;
        let (of, a, b) = match op {
            B::Eq | B::Ne => (BinaryOp::Eq, a, b),
            B::Gt | B::Le => (BinaryOp::Gt, a, b),
            _ => (BinaryOp::Gt, b, a),
        };
        let holds = self.binary(of, a, b, span);
        if matches!(op, B::Ne | B::Le | B::Ge) {
            return self.binary(BinaryOp::Sub, (Term::Number(1.0), span), (holds, span), span);
        }
        holds
    }

    fn compare(&mut self, op: ast::BinaryOp, a: Term, b: Term, span: Span) -> Term {
        use ast::BinaryOp as B;
        match (known_number(&a), known_number(&b)) {
            (Known::Number(a), Known::Number(b)) => {
                return Term::Bool(match op {
                    B::Eq => a == b,
                    B::Ne => a != b,
                    B::Lt => a < b,
                    B::Le => a <= b,
                    B::Gt => a > b,
                    _ => a >= b,
                });
            }
            (Known::Unknown, Known::Unknown | Known::Number(_)) | (Known::Number(_), Known::Unknown) => {
                return Term::AnyBool;
            }
            (Known::No, _) | (_, Known::No) => {}
        }
        match (op, &a, &b) {
            (B::Eq | B::Ne, Term::Bool(a), Term::Bool(b)) => return Term::Bool((a == b) == (op == B::Eq)),
            (B::Eq | B::Ne, Term::Bool(_) | Term::AnyBool, Term::Bool(_) | Term::AnyBool) => return Term::AnyBool,
            (B::Eq | B::Ne, Term::Width(a), Term::Width(b)) => return Term::Bool((a.dim == b.dim) == (op == B::Eq)),
            // A symbolic width equals no number.
            (B::Eq | B::Ne, Term::Width(_), Term::Number(_)) | (B::Eq | B::Ne, Term::Number(_), Term::Width(_)) => {
                return Term::Bool(op == B::Ne);
            }
            _ => {}
        }
        let mut report = not_constant(span);
        report.notes.push(format!("compares {} with {}", a.describe(), b.describe()));
        self.report(report);
        Term::Error
    }

    /// A term as values. Numbers become values where they are used. `None` for a mistake that was reported.
    pub(crate) fn value(&mut self, term: Term, span: Span) -> Result<Option<Typed>, Mistake> {
        match term {
            Term::Error => Ok(None),
            Term::Value(value) => Ok(Some(value)),
            Term::Number(number) => Ok(Some(self.literal(number, span))),
            Term::Width(Width { dim: Dim::Fixed(extent), .. }) => Ok(Some(self.literal(extent as f64, span))),
            // A layer that is checked without a use computes nothing.
            Term::AnyNumber | Term::Width(Width { dim: Dim::Symbolic(_), .. }) => {
                Ok(Some(self.literal(f64::NAN, span)))
            }
            // The widths of several semantic graphs are one number where they are equal.
            other => match known_number(&other) {
                Known::Number(number) => Ok(Some(self.literal(number, span))),
                Known::Unknown => Ok(Some(self.literal(f64::NAN, span))),
                Known::No => Err(Box::new(self.not_a_value(&other, span))),
            },
        }
    }

    /// Applies a typing rule to every value of a term; `at` is the term's place, and `span` that of the result.
    pub(crate) fn map(
        &mut self,
        x: Term,
        at: Span,
        span: Span,
        rule: impl FnMut(&mut Self, &Row) -> Result<Row, Mistake>,
        kind: impl FnOnce(ExprId) -> ExprKind,
    ) -> Term {
        let result = self.try_map(x, at, span, rule, kind);
        self.settle(result.map(|value| value.map_or(Term::Error, Term::Value)))
    }

    fn try_map(
        &mut self,
        x: Term,
        at: Span,
        span: Span,
        mut rule: impl FnMut(&mut Self, &Row) -> Result<Row, Mistake>,
        kind: impl FnOnce(ExprId) -> ExprKind,
    ) -> Result<Option<Typed>, Mistake> {
        let Some(x) = self.value(x, at)? else { return Ok(None) };
        let ty = self.map_type(&x.ty, |this, row| rule(this, row))?;
        Ok(Some(self.expr(kind(x.id), ty, span)))
    }

    /// Applies a typing rule to the type of every value.
    pub(crate) fn map_type(
        &mut self,
        ty: &Type,
        mut rule: impl FnMut(&mut Self, &Row) -> Result<Row, Mistake>,
    ) -> Result<Type, Mistake> {
        Ok(match ty {
            Type::One(row) => Type::One(rule(self, row)?),
            Type::PerGraph(rows) => Type::PerGraph(rows.iter().map(|row| rule(self, row)).collect::<Result<_, _>>()?),
            Type::PerType(rows) => {
                let rows = rows.iter().map(|(vertex, row)| Ok((*vertex, rule(self, row)?)));
                Type::PerType(rows.collect::<Result<_, Mistake>>()?)
            }
            Type::ByGraph(rows) => {
                let rows = rows.iter().map(|(graph, row)| Ok((*graph, rule(self, row)?)));
                Type::ByGraph(rows.collect::<Result<_, Mistake>>()?)
            }
        })
    }

    /// Applies a typing rule to every pair of values of two terms; single values meet every member of a family.
    pub(crate) fn map2(
        &mut self,
        a: Term,
        b: Term,
        span: Span,
        rule: impl FnMut(&mut Self, &Row, &Row) -> Result<Row, Mistake>,
        kind: impl FnOnce(ExprId, ExprId) -> ExprKind,
    ) -> Term {
        let result = self.try_map2(a, b, span, rule, kind);
        self.settle(result.map(|value| value.map_or(Term::Error, Term::Value)))
    }

    fn try_map2(
        &mut self,
        a: Term,
        b: Term,
        span: Span,
        mut rule: impl FnMut(&mut Self, &Row, &Row) -> Result<Row, Mistake>,
        kind: impl FnOnce(ExprId, ExprId) -> ExprKind,
    ) -> Result<Option<Typed>, Mistake> {
        if matches!(a, Term::Error) || matches!(b, Term::Error) {
            return Ok(None);
        }
        let (Some(a), Some(b)) = (self.value(a, span)?, self.value(b, span)?) else { return Ok(None) };
        let ty = match (&*a.ty, &*b.ty) {
            (Type::PerGraph(x), Type::PerGraph(y)) => {
                let rows = x.iter().zip(y).map(|(x, y)| rule(self, x, y));
                Type::PerGraph(rows.collect::<Result<_, _>>()?)
            }
            (Type::PerType(x), Type::PerType(y)) => {
                if x.len() != y.len() || !x.keys().eq(y.keys()) {
                    return Err(Box::new(self.different_types(x, y, span)));
                }
                let rows = x.iter().zip(y.values()).map(|((vertex, x), y)| Ok((*vertex, rule(self, x, y)?)));
                Type::PerType(rows.collect::<Result<_, Mistake>>()?)
            }
            (Type::ByGraph(x), Type::ByGraph(y)) if x.keys().eq(y.keys()) => {
                let rows = x.iter().zip(y.values()).map(|((graph, x), y)| Ok((*graph, rule(self, x, y)?)));
                Type::ByGraph(rows.collect::<Result<_, Mistake>>()?)
            }
            (Type::ByGraph(x), Type::ByGraph(y)) => return Err(Box::new(self.different_graphs(x, y, span))),
            (Type::One(x), family) => self.map_type(family, |this, y| rule(this, x, y))?,
            (family, Type::One(y)) => self.map_type(family, |this, x| rule(this, x, y))?,
            (x, y) => {
                return Err(Box::new(Diagnostic::at(
                    codes::DIFFERENT_SPACES,
                    span,
                    format!("{} and {} do not combine", describe(x), describe(y)),
                    "different kinds of families",
                )));
            }
        };
        Ok(Some(self.expr(kind(a.id, b.id), ty, span)))
    }

    fn different_graphs(&self, a: &BTreeMap<Graph, Row>, b: &BTreeMap<Graph, Row>, span: Span) -> Diagnostic {
        let only = |rows: &BTreeMap<Graph, Row>, others: &BTreeMap<Graph, Row>| {
            let graph = rows.keys().find(|graph| !others.contains_key(graph))?;
            Some(self.schema.written(&self.model.tables.graphs[graph.index()]))
        };
        let report = |graph: String, side: &str| {
            let message = "the two sides have values of different semantic graphs";
            Diagnostic::at(codes::DIFFERENT_SPACES, span, message, format!("`{graph}` is on the {side} only"))
        };
        match (only(a, b), only(b, a)) {
            (Some(graph), _) => report(graph, "left"),
            (None, graph) => report(graph.expect("the graphs differ"), "right"),
        }
    }

    fn different_types(&self, a: &BTreeMap<VertexType, Row>, b: &BTreeMap<VertexType, Row>, span: Span) -> Diagnostic {
        let names = |rows: &BTreeMap<VertexType, Row>| {
            rows.keys().map(|v| format!("`{}`", self.vertex_name(*v))).collect::<Vec<_>>().join(", ")
        };
        Diagnostic::at(
            codes::DIFFERENT_SPACES,
            span,
            "the two sides have values of different vertex types",
            format!("left: {}; right: {}", names(a), names(b)),
        )
        .help("select one type with `.Type`, as in `h.Paper`")
    }

    /// The report of a term where a value is needed.
    pub fn not_a_value(&self, term: &Term, span: Span) -> Diagnostic {
        match term {
            Term::Label(vertex, field) => {
                let info = &self.schema.vertices[vertex.index()];
                Diagnostic::at(
                    codes::LABEL_AS_VALUE,
                    span,
                    format!(
                        "`{}.{}` is a label: an output is compared with it, in a loss",
                        info.name, info.fields[*field].name
                    ),
                    "a label, used as a value",
                )
                .label(info.fields[*field].span, "declared as a label here")
                .help(format!(
                    "labels of the training part are a value: `train_labels({}.{})`",
                    info.name, info.fields[*field].name
                ))
            }
            Term::Absent => Diagnostic::at(
                codes::NOT_A_VALUE,
                span,
                "this input was not given where the layer is used",
                "has no value",
            )
            .help("ask with `if given(…) { … } else { … }`"),
            Term::Record(results) => {
                let names: Vec<_> = results.iter().map(|(n, _)| format!("`.{n}`")).collect();
                Diagnostic::at(codes::NOT_A_VALUE, span, "the layer has several results", "which one is meant?")
                    .help(format!("add {}", names.join(" or ")))
            }
            other => Diagnostic::at(
                codes::NOT_A_VALUE,
                span,
                format!("{} cannot be used as a value", other.describe()),
                "a value is needed here",
            ),
        }
    }

    /// `f(x)` for every value.
    pub(crate) fn unary(&mut self, op: UnaryOp, x: Term, at: Span, span: Span) -> Term {
        let rule = |this: &mut Self, row: &Row| this.unary_row(op, row, span);
        self.map(x, at, span, rule, |x| ExprKind::Unary(op, x))
    }

    /// `f(x)` for one value.
    pub(crate) fn unary_row(&self, op: UnaryOp, row: &Row, span: Span) -> Result<Row, Mistake> {
        self.usable(row, span)?;
        if matches!(row.form, Form::Sparse(_)) && !op.preserves_zero() {
            return Err(Box::new(self.fills_zeros(row, span)));
        }
        Ok(row.clone())
    }

    /// Refuses a value that is not dense.
    pub(crate) fn dense(&self, row: &Row, span: Span) -> Result<(), Mistake> {
        self.usable(row, span)?;
        if let Form::Sparse(_) = row.form { Err(Box::new(self.fills_zeros(row, span))) } else { Ok(()) }
    }

    fn fills_zeros(&self, row: &Row, span: Span) -> Diagnostic {
        let report = Diagnostic::at(
            codes::SPARSE_VALUE,
            span,
            "this would turn the zeros of sparse features into something else",
            "needs dense values",
        )
        .help("project the features first (`@ w`), or declare them without `sparse`");
        match row.widths.last() {
            Some(width) => report.label(width.origin, "declared sparse here"),
            None => report,
        }
    }

    /// `a ∘ b` for all pairs of values, element by element.
    pub(crate) fn binary(
        &mut self,
        op: BinaryOp,
        (a, a_span): (Term, Span),
        (b, b_span): (Term, Span),
        span: Span,
    ) -> Term {
        let id = |term: &Term| match term {
            Term::Value(value) => Some(value.id),
            _ => None,
        };
        let (a_id, b_id) = (id(&a), id(&b));
        let rule = |this: &mut Self, a: &Row, b: &Row| {
            let a = Operand { row: a, id: a_id, span: a_span };
            this.elementwise(op, a, Operand { row: b, id: b_id, span: b_span }, span)
        };
        self.map2(a, b, span, rule, |a, b| ExprKind::Binary(op, a, b))
    }

    /// `a ∘ b`, element by element.
    pub(crate) fn elementwise(
        &self,
        op: BinaryOp,
        Operand { row: a, id: a_id, span: a_span }: Operand<'_>,
        Operand { row: b, id: b_id, span: b_span }: Operand<'_>,
        span: Span,
    ) -> Result<Row, Mistake> {
        let of_times =
            (a.form, b.form) == (Form::Time, Form::Time) && matches!(op, BinaryOp::Sub | BinaryOp::Eq | BinaryOp::Gt);
        if !of_times {
            self.usable(a, a_span)?;
            self.usable(b, b_span)?;
        }
        let space = self.common_rows((a, a_span), (b, b_span), span)?;
        if !self.starts_with(&a.widths, &b.widths) && !self.starts_with(&b.widths, &a.widths) {
            return Err(Box::new(self.shape_mismatch((a, a_id, a_span), (b, b_id, b_span), span)));
        }
        let longer = if a.widths.len() >= b.widths.len() { a } else { b };
        let whole = |row: &Row| row.widths.len() == longer.widths.len();
        let form = match (a.form, b.form) {
            (Form::Sparse(of), Form::Sparse(other)) if op.zero_with_zero() => {
                if of != other {
                    return Err(Box::new(different_elements([of, other], span)));
                }
                Form::Sparse(of)
            }
            // Multiplication by and division by a dense operand keep zeros.
            (Form::Sparse(_), Form::Dense) if matches!(op, BinaryOp::Mul | BinaryOp::Div) && whole(a) => a.form,
            (Form::Dense, Form::Sparse(_)) if op == BinaryOp::Mul && whole(b) => b.form,
            (Form::Dense, Form::Dense) | (Form::Time, Form::Time) => Form::Dense,
            _ => {
                let sparse = if matches!(a.form, Form::Sparse(_)) { a } else { b };
                return Err(Box::new(self.fills_zeros(sparse, span)));
            }
        };
        Ok(Row { space, widths: longer.widths.clone(), form })
    }

    /// The rows of a result of two values, of which one may be a single row.
    pub(crate) fn common_rows(
        &self,
        (a, a_span): (&Row, Span),
        (b, b_span): (&Row, Span),
        span: Span,
    ) -> Result<Space, Mistake> {
        let (a_space, b_space) = (a.space, b.space);
        if a_space != b_space && a_space != Space::Unit && b_space != Space::Unit {
            let mut report = Diagnostic::at(
                codes::DIFFERENT_SPACES,
                span,
                "the two sides have rows for different things",
                "cannot be combined element by element",
            )
            .label(a_span, format!("has {}", show_space(&self.model.tables, a_space)))
            .label(b_span, format!("has {}", show_space(&self.model.tables, b_space)));
            report = match (a_space, b_space) {
                (Space::Edges(_), Space::Vertices(_)) | (Space::Vertices(_), Space::Edges(_)) => report
                    .help("write `e.dst.…` for a vertex value at the edge, or reduce the edge value `over in_edges`"),
                _ => report,
            };
            return Err(Box::new(report));
        }
        Ok(if a_space == Space::Unit { b_space } else { a_space })
    }

    fn shape_mismatch(
        &self,
        (a, a_id, a_span): (&Row, Option<ExprId>, Span),
        (b, b_id, b_span): (&Row, Option<ExprId>, Span),
        span: Span,
    ) -> Diagnostic {
        let tables = &self.model.tables;
        let show = |row: &Row| show_widths(tables, &row.widths);
        let mut report = Diagnostic::at(
            codes::SHAPE_MISMATCH,
            span,
            format!("{} and {} cannot be combined element by element", show(a), show(b)),
            "shapes do not fit",
        )
        .label(a_span, format!("is {}", show(a)))
        .label(b_span, format!("is {}", show(b)));
        // The first dimension that differs is where to look.
        if let Some((x, y)) = self.mismatch(&a.widths, &b.widths) {
            for width in [x, y] {
                if width.origin != a_span && width.origin != b_span {
                    report = report.label(width.origin, format!("{} comes from here", show_dim(tables, width.dim)));
                }
            }
        }
        // A parameter in the shape of the last dimensions is meant for all of the first ones.
        for (row, id, other) in [(a, a_id, b), (b, b_id, a)] {
            let Some(id) = id else { continue };
            let ExprKind::Param(param, _) = self.model.computed(id).kind else { continue };
            let param = &self.model.params[param.index()];
            if param.decomposition == Decomposition::None && other.dims().ends_with(&row.dims()) {
                let shape = self.spell(&other.widths);
                return report.label(param.span, "the parameter is declared here").help(format!(
                    "declare the parameter `{shape}`: shapes fit where one is the beginning of the other"
                ));
            }
        }
        report.help("shapes fit where one is the beginning of the other: [8] with [8, 64]")
    }

    /// Widths by the names that the layer has for them.
    fn spell(&self, widths: &[Width]) -> String {
        let names = self.frames.last().map_or(&[][..], |frame| &frame.widths);
        let dims = widths.iter().map(|width| match names.iter().find(|(origin, _)| *origin == width.origin) {
            Some((_, name)) => name.clone(),
            None => show_dim(&self.model.tables, width.dim),
        });
        format!("[{}]", dims.collect::<Vec<_>>().join(", "))
    }

    /// `a @ b`: over the last dimension of `a` and the dimension of `b` at the same place; all dimensions
    /// before it are batch dimensions that both share. `b` is a parameter, or has a matrix for each row.
    pub(crate) fn product(&self, a: &Row, a_span: Span, b: &Row, b_span: Span, span: Span) -> Result<Row, Mistake> {
        let space = match b.space {
            Space::Unit => a.space,
            _ => {
                self.dense(a, a_span)?;
                self.dense(b, b_span)?;
                self.known_extents(a, a_span)?;
                self.known_extents(b, b_span)?;
                self.common_rows((a, a_span), (b, b_span), span)?
            }
        };
        let fits = !a.widths.is_empty() && self.starts_with(&b.widths, &a.widths);
        if !fits {
            return Err(Box::new(self.width_mismatch(a, a_span, b, b_span, span)));
        }
        if a.form == Form::BlockDiagonal {
            self.usable(a, a_span)?;
        }
        let batch = a.widths.len() - 1;
        if b.form == Form::BlockDiagonal {
            if batch > 0 {
                return Err(Box::new(self.width_mismatch(a, a_span, b, b_span, span)));
            }
            self.usable(a, a_span)?;
            if let Form::Sparse(_) = a.form {
                return Err(Box::new(self.fills_zeros(a, a_span)));
            }
            return Ok(Row::dense(a.space, vec![b.widths[1]]));
        }
        self.usable(b, b_span)?;
        let widths: Vec<Width> = a.widths[..batch].iter().chain(&b.widths[batch + 1..]).copied().collect();
        Ok(Row::dense(space, widths))
    }

    fn width_mismatch(&self, a: &Row, a_span: Span, b: &Row, b_span: Span, span: Span) -> Diagnostic {
        let tables = &self.model.tables;
        let show = |row: &Row| show_widths(tables, &row.widths);
        let mut report = Diagnostic::at(
            codes::WIDTH_MISMATCH,
            span,
            format!("cannot multiply {} by {}", show(a), show(b)),
            "widths do not fit",
        )
        .label(a_span, format!("is {}", show(a)))
        .label(b_span, format!("is {}", show(b)));
        if let Some((x, y)) = self.mismatch(&a.widths, &b.widths) {
            for width in [x, y] {
                if width.origin != a_span && width.origin != b_span {
                    report = report.label(width.origin, format!("{} comes from here", show_dim(tables, width.dim)));
                }
            }
        }
        match (a.widths.len(), b.widths.len()) {
            (0, _) => report.help("the left side is a single number per row: use `*`"),
            (1, _) => report.help("the last width on the left must equal the first on the right"),
            _ => report.help("`flatten(…)` joins the dimensions of the left side into one"),
        }
    }
}

/// Two sparse features, declared at these places, whose stored elements differ.
fn different_elements(declared: [Span; 2], span: Span) -> Diagnostic {
    let report = Diagnostic::at(
        codes::SPARSE_VALUE,
        span,
        "these are different sparse features, which store other elements",
        "needs a dense value",
    );
    let report = declared.into_iter().fold(report, |report, place| report.label(place, "declared sparse here"));
    report.help("project each of them first (`@ w`), or declare one without `sparse`")
}
