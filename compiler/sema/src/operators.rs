//! Operators on values and families of values, and the reports of shapes that do not fit.

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::{BinaryOp, Op, Space, UnaryOp, Value};
use hgnnc_syntax::ast;

use crate::consts::{arithmetic, division_by_zero, not_constant, not_finite};
use crate::elaborate::{Elaborator, Mistake};
use crate::eval::known_number;
use crate::value::{Term, Val, ValKind, Width, show_dim, show_space, show_widths};

impl Elaborator<'_> {
    pub fn unary_operator(&mut self, op: ast::UnaryOp, a: Term, span: Span) -> Term {
        match (op, a) {
            (_, Term::Error) => Term::Error,
            (ast::UnaryOp::Neg, Term::Number(number)) => Term::Number(-number),
            (ast::UnaryOp::Neg, a) => self.map(a, span, |this, val| this.apply_unary(UnaryOp::Neg, val, span)),
            (ast::UnaryOp::Not, Term::Bool(value)) => Term::Bool(!value),
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

    pub fn binary_operator(
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
                Term::Absent | Term::Function(_) | Term::List | Term::Record(_) | Term::Label(..) => false,
                Term::Bool(_) => truths,
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
                    (Term::Bool(_), other) | (other, _) => {
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
            B::Eq | B::Ne | B::Lt | B::Le | B::Gt | B::Ge => return self.compare(op, a, b, span),
            B::MatMul => return self.map2(a, b, span, |this, a, b| this.product(a, a_span, b, b_span, span)),
            B::Add => BinaryOp::Add,
            B::Sub => BinaryOp::Sub,
            B::Mul => BinaryOp::Mul,
            B::Div => BinaryOp::Div,
        };
        if op == B::Div && known_number(&b) == Some(0.0) {
            self.report(division_by_zero(b_span));
            return Term::Error;
        }
        // Widths that are known are numbers, so `heads * hidden` and `width(v.x) / 2` are too.
        if let (Some(a), Some(b)) = (known_number(&a), known_number(&b)) {
            let number = arithmetic(op, a, b).expect("arithmetic operators");
            if !number.is_finite() {
                self.report(not_finite(span, number));
                return Term::Error;
            }
            return Term::Number(number);
        }
        self.map2(a, b, span, |this, a, b| this.elementwise(elementwise, a, a_span, b, b_span, span))
    }

    fn compare(&mut self, op: ast::BinaryOp, a: Term, b: Term, span: Span) -> Term {
        use ast::BinaryOp as B;
        if let (Some(a), Some(b)) = (known_number(&a), known_number(&b)) {
            return Term::Bool(match op {
                B::Eq => a == b,
                B::Ne => a != b,
                B::Lt => a < b,
                B::Le => a <= b,
                B::Gt => a > b,
                _ => a >= b,
            });
        }
        match (op, &a, &b) {
            (B::Eq | B::Ne, Term::Bool(a), Term::Bool(b)) => return Term::Bool((a == b) == (op == B::Eq)),
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

    /// Applies `f` to every value of a term.
    pub fn map(&mut self, a: Term, span: Span, mut f: impl FnMut(&mut Self, Val) -> Result<Val, Mistake>) -> Term {
        let result = match a {
            Term::One(val) => f(self, val).map(Term::One),
            Term::PerGraph(vals) => {
                vals.into_iter().map(|val| f(self, val)).collect::<Result<_, _>>().map(Term::PerGraph)
            }
            Term::PerType(vals) => {
                vals.into_iter().map(|(v, val)| Ok((v, f(self, val)?))).collect::<Result<_, _>>().map(Term::PerType)
            }
            Term::PerEdge(vals) => {
                vals.into_iter().map(|(g, val)| Ok((g, f(self, val)?))).collect::<Result<_, _>>().map(Term::PerEdge)
            }
            Term::Error => Ok(Term::Error),
            Term::Number(number) => {
                let val = self.constant(number, span);
                f(self, val).map(Term::One)
            }
            Term::Width(Width { dim: hgnnc_ir::Dim::Fixed(extent), .. }) => {
                let val = self.constant(extent as f64, span);
                f(self, val).map(Term::One)
            }
            other => Err(Box::new(self.not_a_value(&other, span))),
        };
        self.settle(result)
    }

    /// Applies `f` to every pair of values of two terms; single values meet every member of a family.
    pub fn map2(
        &mut self,
        a: Term,
        b: Term,
        span: Span,
        mut f: impl FnMut(&mut Self, Val, Val) -> Result<Val, Mistake>,
    ) -> Term {
        let result = match (a, b) {
            (Term::Error, _) | (_, Term::Error) => Ok(Term::Error),
            (Term::PerGraph(a), Term::PerGraph(b)) => {
                a.into_iter().zip(b).map(|(a, b)| f(self, a, b)).collect::<Result<_, _>>().map(Term::PerGraph)
            }
            (Term::PerType(a), Term::PerType(mut b)) => {
                if a.len() != b.len() || a.keys().any(|v| !b.contains_key(v)) {
                    let names = |keys: Vec<&hgnnc_ir::VertexType>| {
                        keys.into_iter().map(|v| format!("`{}`", self.vertex_name(*v))).collect::<Vec<_>>().join(", ")
                    };
                    Err(Box::new(
                        Diagnostic::at(
                            codes::DIFFERENT_SPACES,
                            span,
                            "the two sides have values of different vertex types",
                            format!("left: {}; right: {}", names(a.keys().collect()), names(b.keys().collect())),
                        )
                        .help("select one type with `.Type`, as in `h.Paper`"),
                    ))
                } else {
                    a.into_iter()
                        .map(|(v, a)| {
                            let b = b.remove(&v).expect("keys were compared");
                            Ok((v, f(self, a, b)?))
                        })
                        .collect::<Result<_, _>>()
                        .map(Term::PerType)
                }
            }
            (a, b) => match (self.single(a, span), self.single(b, span)) {
                (Ok(Ok(a)), Ok(Ok(b))) => f(self, a, b).map(Term::One),
                (Ok(Ok(a)), Ok(Err(family))) => return self.map(family, span, |this, b| f(this, a.clone(), b)),
                (Ok(Err(family)), Ok(Ok(b))) => return self.map(family, span, |this, a| f(this, a, b.clone())),
                (Err(mistake), _) | (_, Err(mistake)) => Err(mistake),
                (Ok(Err(a)), Ok(Err(b))) => Err(Box::new(Diagnostic::at(
                    codes::DIFFERENT_SPACES,
                    span,
                    format!("{} and {} do not combine", a.describe(), b.describe()),
                    "different kinds of families",
                ))),
            },
        };
        self.settle(result)
    }

    /// A single value, or the family that it is.
    fn single(&mut self, term: Term, span: Span) -> Result<Result<Val, Term>, Mistake> {
        match term {
            Term::One(val) => Ok(Ok(val)),
            Term::Number(number) => Ok(Ok(self.constant(number, span))),
            Term::Width(Width { dim: hgnnc_ir::Dim::Fixed(extent), .. }) => Ok(Ok(self.constant(extent as f64, span))),
            family @ (Term::PerGraph(_) | Term::PerType(_) | Term::PerEdge(_)) => Ok(Err(family)),
            other => Err(Box::new(self.not_a_value(&other, span))),
        }
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
                        "`{}.{}` is a label: it can only be compared with an output, in a loss",
                        info.name, info.fields[*field].name
                    ),
                    "a label, used as a value",
                )
                .label(info.fields[*field].span, "declared as a label here")
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

    /// `f(a)` for one value.
    pub fn apply_unary(&mut self, op: UnaryOp, a: Val, span: Span) -> Result<Val, Mistake> {
        let value = self.stored(&a, span)?;
        if self.flow.is_sparse(value) && !op.preserves_zero() {
            return Err(Box::new(self.fills_zeros(&a, span)));
        }
        Ok(Val { kind: ValKind::Stored(self.emit(Op::Unary(op), &[value], span)), ..a })
    }

    /// The value in the program, where it is not sparse.
    pub fn dense(&mut self, val: &Val, span: Span) -> Result<Value, Mistake> {
        let value = self.stored(val, span)?;
        if self.flow.is_sparse(value) { Err(Box::new(self.fills_zeros(val, span))) } else { Ok(value) }
    }

    fn fills_zeros(&self, val: &Val, span: Span) -> Diagnostic {
        let report = Diagnostic::at(
            codes::SPARSE_VALUE,
            span,
            "this would turn the zeros of sparse features into something else",
            "needs dense values",
        )
        .help("project the features first (`@ w`), or declare them without `sparse`");
        match val.widths.last() {
            Some(width) => report.label(width.origin, "declared sparse here"),
            None => report,
        }
    }

    /// `a ∘ b`, element by element.
    pub fn elementwise(
        &mut self,
        op: BinaryOp,
        a: Val,
        a_span: Span,
        b: Val,
        b_span: Span,
        span: Span,
    ) -> Result<Val, Mistake> {
        let (left, right) = (self.stored(&a, a_span)?, self.stored(&b, b_span)?);
        let (a_space, b_space) = (a.space(&self.flow), b.space(&self.flow));
        if a_space != b_space && a_space != Space::Unit && b_space != Space::Unit {
            let mut report = Diagnostic::at(
                codes::DIFFERENT_SPACES,
                span,
                "the two sides have rows for different things",
                "cannot be combined element by element",
            )
            .label(a_span, format!("has {}", show_space(&self.flow, a_space)))
            .label(b_span, format!("has {}", show_space(&self.flow, b_space)));
            report = match (a_space, b_space) {
                (Space::Edges(_), Space::Vertices(_)) | (Space::Vertices(_), Space::Edges(_)) => report
                    .help("write `e.dst.…` for a vertex value at the edge, or reduce the edge value `over in_edges`"),
                _ => report,
            };
            return Err(Box::new(report));
        }
        let (a_dims, b_dims) = (a.dims(), b.dims());
        if !a_dims.starts_with(&b_dims) && !b_dims.starts_with(&a_dims) {
            return Err(Box::new(self.shape_mismatch(&a, a_span, &b, b_span, span)));
        }
        match self.flow.push(Op::Binary(op), &[left, right]) {
            Ok(value) => {
                let widths = if a_dims.len() >= b_dims.len() { a.widths } else { b.widths };
                self.flow.values[value.index()].origin =
                    Some(hgnnc_ir::Origin { file: span.file.0, start: span.start, end: span.end });
                Ok(Val { kind: ValKind::Stored(value), widths })
            }
            // Spaces and dimensions fit, so it is about the zeros.
            Err(_) => {
                let sparse = if self.flow.is_sparse(left) { &a } else { &b };
                Err(Box::new(self.fills_zeros(sparse, span)))
            }
        }
    }

    fn shape_mismatch(&self, a: &Val, a_span: Span, b: &Val, b_span: Span, span: Span) -> Diagnostic {
        let show = |val: &Val| show_widths(&self.flow, &val.widths);
        let mut report = Diagnostic::at(
            codes::SHAPE_MISMATCH,
            span,
            format!("{} and {} cannot be combined element by element", show(a), show(b)),
            "shapes do not fit",
        )
        .label(a_span, format!("is {}", show(a)))
        .label(b_span, format!("is {}", show(b)));
        // The first dimension that differs is where to look.
        if let Some((x, y)) = a.widths.iter().zip(&b.widths).find(|(x, y)| x.dim != y.dim) {
            for width in [x, y] {
                if width.origin != a_span && width.origin != b_span {
                    report = report.label(width.origin, format!("{} comes from here", show_dim(&self.flow, width.dim)));
                }
            }
        }
        // A parameter in the shape of the last dimensions is meant for all of the first ones.
        for (of, other) in [(a, b), (b, a)] {
            let ValKind::Stored(value) = of.kind else { continue };
            let hgnnc_ir::Op::Param(param) = self.flow.values[value.index()].op else { continue };
            if other.dims().ends_with(&of.dims()) {
                let shape = self.spell(&other.widths);
                return report.label(self.param_spans[param.index()], "the parameter is declared here").help(format!(
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
            None => show_dim(&self.flow, width.dim),
        });
        format!("[{}]", dims.collect::<Vec<_>>().join(", "))
    }

    /// `a @ b`: over the last dimension of `a` and the dimension of `b` at the same place; all dimensions
    /// before it are batch dimensions that both share.
    pub fn product(&mut self, a: Val, a_span: Span, b: Val, b_span: Span, span: Span) -> Result<Val, Mistake> {
        if b.space(&self.flow) != Space::Unit {
            return Err(Box::new(
                Diagnostic::at(
                    codes::DIFFERENT_SPACES,
                    b_span,
                    "the right side of `@` is a parameter",
                    format!("has {}", show_space(&self.flow, b.space(&self.flow))),
                )
                .help(match a.space(&self.flow) {
                    Space::Unit => "the value stands on the left of `@`, the parameter on the right: `x @ w`",
                    _ => "`dot(a, b)` multiplies two values row by row",
                }),
            ));
        }
        let fits = !a.widths.is_empty()
            && b.widths.len() >= a.widths.len()
            && a.widths.iter().zip(&b.widths).all(|(x, y)| x.dim == y.dim);
        if !fits {
            return Err(Box::new(self.width_mismatch(&a, a_span, &b, b_span, span)));
        }
        let batch = a.widths.len() - 1;
        if let ValKind::BlockDiagonal(blocks) = b.kind {
            if batch > 0 {
                return Err(Box::new(self.width_mismatch(&a, a_span, &b, b_span, span)));
            }
            return self.block_product(a, a_span, blocks, b.widths[1], span);
        }
        let weight = self.stored(&b, b_span)?;
        let widths: Vec<Width> = a.widths[..batch].iter().chain(&b.widths[batch + 1..]).copied().collect();
        let kind = self.project(a.kind, weight, batch, span);
        Ok(Val { kind, widths })
    }

    /// One-hot features times a weight are the weight's rows; the product happens before the gather.
    fn project(&mut self, a: ValKind, weight: Value, batch: usize, span: Span) -> ValKind {
        match a {
            ValKind::Stored(value) => ValKind::Stored(self.emit(Op::MatMul { batch }, &[value, weight], span)),
            ValKind::OneHot(_) => ValKind::Stored(self.emit(Op::Rows, &[weight], span)),
            ValKind::AtEnd(inner, graph, direction) => {
                let kind = self.project(*inner, weight, batch, span);
                self.gather(Val { kind, widths: vec![] }, graph, direction, span).kind
            }
            ValKind::BlockDiagonal(_) => unreachable!("weights are not projected: they have no rows"),
        }
    }

    fn block_product(&mut self, a: Val, a_span: Span, blocks: Value, out: Width, span: Span) -> Result<Val, Mistake> {
        let x = self.stored(&a, a_span)?;
        let dims = self.flow.ty(blocks).dims.clone();
        if self.flow.is_sparse(x) {
            return Err(Box::new(self.fills_zeros(&a, a_span)));
        }
        let split = self.emit(Op::Reshape(dims[..2].to_vec()), &[x], span);
        let product = self.emit(Op::MatMul { batch: 1 }, &[split, blocks], span);
        let value = self.emit(Op::Reshape(vec![out.dim]), &[product], span);
        Ok(Val { kind: ValKind::Stored(value), widths: vec![out] })
    }

    fn width_mismatch(&self, a: &Val, a_span: Span, b: &Val, b_span: Span, span: Span) -> Diagnostic {
        let show = |val: &Val| show_widths(&self.flow, &val.widths);
        let mut report = Diagnostic::at(
            codes::WIDTH_MISMATCH,
            span,
            format!("cannot multiply {} by {}", show(a), show(b)),
            "widths do not fit",
        )
        .label(a_span, format!("is {}", show(a)))
        .label(b_span, format!("is {}", show(b)));
        let pair = a.widths.iter().zip(&b.widths).find(|(x, y)| x.dim != y.dim);
        if let Some((x, y)) = pair {
            for width in [x, y] {
                if width.origin != a_span && width.origin != b_span {
                    report = report.label(width.origin, format!("{} comes from here", show_dim(&self.flow, width.dim)));
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
