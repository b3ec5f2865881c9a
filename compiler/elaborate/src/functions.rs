//! Calls: the built-in functions of the language.

use hgnnc_declare::arguments::match_arguments;
use hgnnc_declare::names::suggest;
use hgnnc_diag::synonyms;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::show_widths;
use hgnnc_hir::{Dim, Entry, ExprKind as Kind, Form, ParamNames, Row, Type, Width};
use hgnnc_ir::{BinaryOp, Space, UnaryOp};
use hgnnc_syntax::ast::{Call, Expr, Ident};

use crate::checker::{Checker, Mistake, Place, Scope};
use crate::fold::FOLD;
use crate::operators::Operand;
use crate::value::{Term, Typed};

/// Element-wise functions of one value without options: these can also be passed to layers by name.
const UNARY: &[(&str, UnaryOp)] = &[
    ("relu", UnaryOp::Relu),
    ("elu", UnaryOp::Elu),
    ("gelu", UnaryOp::Gelu),
    ("tanh", UnaryOp::Tanh),
    ("sigmoid", UnaryOp::Sigmoid),
    ("softplus", UnaryOp::Softplus),
    ("exp", UnaryOp::Exp),
    ("log", UnaryOp::Log),
    ("log1p", UnaryOp::Log1p),
    ("sqrt", UnaryOp::Sqrt),
    ("abs", UnaryOp::Abs),
    ("sign", UnaryOp::Sign),
    ("sin", UnaryOp::Sin),
    ("cos", UnaryOp::Cos),
];

/// Functions with arguments: name and parameters; those after the `|` may be left out.
const FUNCTIONS: &[(&str, &[&str], usize)] = &[
    ("leaky_relu", &["x", "slope"], 1),
    ("identity", &["x"], 1),
    ("square", &["x"], 1),
    ("pow", &["x", "exponent"], 2),
    ("dropout", &["x", "rate"], 2),
    ("dot", &["a", "b"], 2),
    ("matmul", &["a", "b"], 2),
    ("outer", &["a", "b"], 2),
    ("transpose", &["x"], 1),
    ("roll", &["x", "by"], 2),
    ("zeros", &["shape"], 1),
    ("ones", &["shape"], 1),
    ("eye", &["n"], 1),
    ("range", &["n"], 1),
    ("flatten", &["x"], 1),
    ("reshape", &["x", "shape"], 2),
    ("linear", &["x", "width", "bias"], 2),
    ("layer_norm", &["x", "eps"], 1),
    ("batch_norm", &["x", "eps"], 1),
    ("l2_normalize", &["x", "eps"], 1),
    ("row_normalize", &["x"], 1),
    ("l2", &["x"], 1),
    ("train_labels", &["label", "hidden"], 1),
    ("stop_gradient", &["x"], 1),
    ("width", &["x"], 1),
    ("given", &["x"], 1),
];

/// Names of reductions; they need a scope (`over …`, `across …`), and `max`, `min`, `concat` also take
/// several values instead.
pub const REDUCTIONS: &[&str] = &["sum", "mean", "max", "min", "softmax", "logsumexp", "concat", VARIANCE];

/// The reduction that is made of two means.
pub const VARIANCE: &str = "variance";

/// The function that takes any number of values.
const STACK: &str = "stack";

/// Is it the name of a function or reduction, and so no name for a layer?
pub fn is_function(name: &str) -> bool {
    is_unary_function(name)
        || [STACK, FOLD].contains(&name)
        || REDUCTIONS.contains(&name)
        || FUNCTIONS.iter().any(|f| f.0 == name)
}

/// May `name` be passed as a function argument?
pub fn is_unary_function(name: &str) -> bool {
    name == "identity" || UNARY.iter().any(|(known, _)| *known == name)
}

impl Checker<'_> {
    /// A call: a function, a reduction, or the use of a layer.
    pub(crate) fn call(&mut self, call: &Call, span: Span, scope: &Scope<'_>) -> Term {
        let name = call.callee.name.as_str();
        let file = call.callee.span.file;
        if let Some(def) = self.names.layer(name, file) {
            return self.use_layer(def, call, span, scope);
        }
        // Its import was reported.
        if self.names.is_not_imported(name, file) {
            return Term::Error;
        }
        if REDUCTIONS.contains(&name) {
            return self.reduction(call, span, scope);
        }
        if name == STACK {
            return self.stack(call, span, scope);
        }
        if name == FOLD {
            return self.fold(call, span, scope);
        }
        // `activation(x)`, where `activation` is a function parameter of the layer.
        let passed = scope.layer.and_then(|l| l.arguments.get(name));
        let name = match passed {
            Some(Term::Function(function)) => function.clone(),
            Some(Term::AnyFunction) => return self.any_function(call, span, scope),
            _ => name.to_string(),
        };
        if !call.of.is_empty() || call.over.is_some() || call.across.is_some() {
            let unknown = !FUNCTIONS.iter().any(|f| f.0 == name) && !is_unary_function(&name);
            // A local value that is called is wrong here as well.
            if unknown && matches!(scope.locals.get(call.callee.name.as_str()), Some(Term::Error)) {
                return Term::Error;
            }
            let report = if unknown && !call.of.is_empty() {
                self.unknown_layer(&call.callee)
            } else if unknown {
                self.unknown_function(&call.callee, scope)
            } else {
                Diagnostic::at(
                    codes::WRONG_SCOPE,
                    span,
                    format!("`{name}` works element by element and takes no scope"),
                    "`over`, `across` and `of` belong to reductions and layers",
                )
            };
            self.report(report);
            return Term::Error;
        }
        if let Some((_, op)) = UNARY.iter().find(|(known, _)| *known == name) {
            let Some(args) = self.arguments(call, span, &["x"], 1) else { return self.wrong_call(call, scope) };
            let x = self.eval(args[0].expect("required"), scope);
            let at = args[0].expect("required").span;
            return self.unary(*op, x, at, span);
        }
        if scope.along.is_some() && ["linear", "layer_norm", "batch_norm"].contains(&&name[..]) {
            self.report(
                Diagnostic::at(
                    codes::MODEL_ONLY,
                    span,
                    format!("`{name}` has parameters of its own, and this is evaluated at each vertex of a path"),
                    "not possible in what goes over a path",
                )
                .help("project values in a `project` block, or declare a `param` and multiply by it"),
            );
            return Term::Error;
        }
        let Some((_, names, required)) = FUNCTIONS.iter().find(|f| f.0 == name) else {
            if !matches!(scope.locals.get(call.callee.name.as_str()), Some(Term::Error)) {
                let report = self.unknown_function(&call.callee, scope);
                self.report(report);
            }
            // Functions of other tools have arguments of another kind.
            if synonyms::meant(synonyms::Place::Function, &name).is_none() {
                return self.wrong_call(call, scope);
            }
            return Term::Error;
        };
        match self.arguments(call, span, names, *required) {
            Some(args) => self.function(&name, &args, span, scope),
            None => self.wrong_call(call, scope),
        }
    }

    /// A call of a function that the use of the layer gives: it keeps shapes, and perhaps zeros.
    fn any_function(&mut self, call: &Call, span: Span, scope: &Scope<'_>) -> Term {
        let Some(args) = self.arguments(call, span, &["x"], 1) else { return self.wrong_call(call, scope) };
        let x = args[0].expect("required");
        let term = self.eval(x, scope);
        self.unary(UnaryOp::Relu, term, x.span, span)
    }

    /// A call that is wrong, and reported: what is wrong inside of it is wrong wherever it goes.
    fn wrong_call(&mut self, call: &Call, scope: &Scope<'_>) -> Term {
        for arg in &call.args {
            self.eval(&arg.value, scope);
        }
        Term::Error
    }

    fn unknown_function(&self, callee: &Ident, scope: &Scope<'_>) -> Diagnostic {
        if scope.locals.contains_key(&callee.name) {
            let message = format!("`{}` is a value and cannot be called", callee.name);
            return Diagnostic::at(codes::UNKNOWN_FUNCTION, callee.span, message, "no function")
                .help("a layer is used where it is named: `linear(x, 8)`, `GcnConv(hidden: 8) over [cites] of x`");
        }
        let report = Diagnostic::at(
            codes::UNKNOWN_FUNCTION,
            callee.span,
            format!("no function or layer `{}`", callee.name),
            "not known here",
        );
        let known = UNARY
            .iter()
            .map(|f| f.0)
            .chain(FUNCTIONS.iter().map(|f| f.0))
            .chain(REDUCTIONS.iter().copied())
            .chain([STACK, FOLD]);
        let layers = self.names.layers.keys().map(String::as_str);
        if let Some(module) = self.module_of(&callee.name) {
            return report.help(format!("it is a layer of the standard library: add `use {module}`"));
        }
        suggest(report, synonyms::Place::Function, &callee.name, known.chain(layers))
    }

    fn unknown_layer(&self, callee: &Ident) -> Diagnostic {
        let report = Diagnostic::at(
            codes::UNKNOWN_LAYER,
            callee.span,
            format!("no layer `{}`", callee.name),
            "not declared or imported",
        );
        if let Some(module) = self.module_of(&callee.name) {
            return report.help(format!("it is in the standard library: add `use {module}`"));
        }
        let known = self.names.layers.keys().map(String::as_str).chain(self.names.in_library.keys().copied());
        suggest(report, synonyms::Place::Function, &callee.name, known)
            .help("layers are declared with `layer`, or imported: `use std::han::HanConv`")
    }

    /// The path of the library layer that has this name, in whatever spelling.
    fn module_of(&self, name: &str) -> Option<String> {
        let (layer, module) = self.names.in_library.iter().find(|(layer, _)| synonyms::alike(layer, name))?;
        Some(format!("std::{module}::{layer}"))
    }

    /// Sorts arguments by parameter.
    fn arguments<'c>(
        &mut self,
        call: &'c Call,
        span: Span,
        names: &[&str],
        required: usize,
    ) -> Option<Vec<Option<&'c Expr>>> {
        let sorted = match_arguments(&call.args, names, &format!("`{}`", call.callee.name), call.callee.span);
        match sorted {
            Ok(sorted) => match sorted[..required].iter().position(Option::is_none) {
                None => Some(sorted),
                Some(missing) => {
                    self.report(Diagnostic::at(
                        codes::MISSING_ARGUMENT,
                        span,
                        format!("`{}` needs `{}`", call.callee.name, names[missing]),
                        format!("takes ({})", names.join(", ")),
                    ));
                    None
                }
            },
            Err(mistakes) => {
                mistakes.into_iter().for_each(|mistake| self.report(mistake));
                None
            }
        }
    }

    fn function(&mut self, name: &str, args: &[Option<&Expr>], span: Span, scope: &Scope<'_>) -> Term {
        let first = args[0].expect("every function has a first argument");
        if name == "l2" {
            return self.sum_of_squares(first, span, scope);
        }
        if name == "train_labels" {
            return self.train_labels(first, args[1], span, scope);
        }
        let x = self.eval(first, scope);
        if matches!(x, Term::Error) {
            // The other arguments may be wrong by themselves.
            for arg in args[1..].iter().flatten() {
                self.eval(arg, scope);
            }
            return Term::Error;
        }
        let at = first.span;
        let option = |this: &mut Self, index: usize, default: f64| match args.get(index).copied().flatten() {
            Some(expr) => this.number(expr, scope),
            None => Some(default),
        };
        match name {
            "identity" => x,
            "zeros" | "ones" => self.filled(first, f64::from(name == "ones"), span, scope),
            "eye" => self.eye(first, span, scope),
            "range" => self.counting(first, span, scope),
            "transpose" => self.transpose(x, at, span),
            "roll" => {
                let Some(by) = option(self, 1, 0.0) else { return Term::Error };
                self.roll(x, at, (by, args[1].map_or(span, |e| e.span)), span)
            }
            "matmul" | "outer" => {
                let b_expr = args[1].expect("required");
                let b = self.eval(b_expr, scope);
                if name == "outer" {
                    return self.outer((x, at), (b, b_expr.span), span);
                }
                self.matrix_product((x, at), (b, b_expr.span), span)
            }
            // Whether an optional input is given is known of a use. Where it is not, nothing reads it.
            "given" if self.without_use => Term::AnyBool,
            "given" => Term::Bool(!matches!(x, Term::Absent)),
            "width" => self.width_of(x, at),
            "leaky_relu" => {
                let Some(slope) = option(self, 1, 0.01) else { return Term::Error };
                self.unary(UnaryOp::LeakyRelu(slope), x, at, span)
            }
            "square" => match self.value(x, at) {
                Ok(Some(x)) => {
                    let x = Term::Value(x);
                    self.binary(BinaryOp::Mul, (x.clone(), at), (x, at), span)
                }
                other => self.settle(other.map(|_| Term::Error)),
            },
            "pow" => {
                let Some(exponent) = option(self, 1, 1.0) else { return Term::Error };
                let constant = Row::dense(Space::Unit, vec![]);
                let rule = |this: &mut Self, row: &Row| {
                    this.elementwise(BinaryOp::Pow, Operand::of(row, at), Operand::of(&constant, span), span)
                };
                self.map(x, at, span, rule, |x| Kind::Pow(x, exponent))
            }
            "dropout" => {
                let Some(rate) = option(self, 1, 0.0) else { return Term::Error };
                if !rate.is_nan() && !(0.0..1.0).contains(&rate) {
                    self.report(
                        Diagnostic::at(
                            codes::ARGUMENT_RANGE,
                            args[1].map_or(span, |e| e.span),
                            "a dropout rate is at least 0 and less than 1",
                            format!("this is {rate}"),
                        )
                        .help("the rate is the share of elements that are set to zero"),
                    );
                    return Term::Error;
                }
                if rate == 0.0 {
                    return x;
                }
                self.map(x, at, span, |this, row| this.droppable(row, at), |x| Kind::Dropout(x, rate))
            }
            "dot" => {
                let b_expr = args[1].expect("required");
                let b = self.eval(b_expr, scope);
                let rule = |this: &mut Self, a: &Row, b: &Row| this.dot(a, at, b, b_expr.span, span);
                self.map2(x, b, span, rule, Kind::Dot)
            }
            "flatten" => self.flatten(x, at, span),
            "reshape" => {
                let shape_expr = args[1].expect("required");
                let Some(shape) = self.shape(shape_expr, scope) else { return Term::Error };
                self.map(x, at, span, |this, row| this.reshape(row, shape.clone(), at, span), Kind::Reshape)
            }
            "stop_gradient" => self.map(x, at, span, |this, row| this.same(row, at), Kind::StopGradient),
            "linear" => {
                let width_expr = args[1].expect("required");
                let Some(width) = self.one_width(width_expr, scope) else { return Term::Error };
                let bias = match args[2].map(|e| (self.eval(e, scope), e.span)) {
                    None | Some((Term::AnyBool, _)) => true,
                    Some((Term::Bool(bias), _)) => bias,
                    Some((Term::Error, _)) => return Term::Error,
                    Some((other, at)) => {
                        self.report(Diagnostic::at(
                            codes::NOT_BOOLEAN,
                            at,
                            "`bias` is `true` or `false`",
                            format!("this is {}", other.describe()),
                        ));
                        return Term::Error;
                    }
                };
                let names = self.param_names(&x, scope);
                let rule = |this: &mut Self, row: &Row| this.linear(row, width, at, span);
                self.map(x, at, span, rule, |x| Kind::Linear { x, bias, names })
            }
            "layer_norm" | "batch_norm" => {
                let Some(eps) = option(self, 1, 1e-5).and_then(|eps| self.positive(eps, args, span)) else {
                    return Term::Error;
                };
                let over_rows = name == "batch_norm";
                let names = self.param_names(&x, scope);
                let rule = |this: &mut Self, row: &Row| this.norm(row, over_rows, at, span);
                self.map(x, at, span, rule, |x| Kind::Norm { x, eps, over_rows, names })
            }
            "l2_normalize" => {
                let Some(eps) = option(self, 1, 1e-12).and_then(|eps| self.positive(eps, args, span)) else {
                    return Term::Error;
                };
                let rule = |this: &mut Self, row: &Row| this.l2_normalize(row, at, span);
                self.map(x, at, span, rule, |x| Kind::L2Normalize(x, eps))
            }
            "row_normalize" => self.map(x, at, span, |this, row| this.row_normalize(row, at, span), Kind::RowNormalize),
            other => unreachable!("function `{other}` is in the table but has no meaning"),
        }
    }

    /// `eps`, which stands under a root or a fraction line.
    fn positive(&mut self, eps: f64, args: &[Option<&Expr>], span: Span) -> Option<f64> {
        if eps > 0.0 || eps.is_nan() {
            return Some(eps);
        }
        let at = args.get(1).copied().flatten().map_or(span, |e| e.span);
        self.report(Diagnostic::at(codes::ARGUMENT_RANGE, at, "`eps` is greater than 0", format!("this is {eps}")));
        None
    }

    /// The last width of a value.
    fn width_of(&mut self, x: Term, span: Span) -> Term {
        let last = |row: &Row| row.widths.last().copied().unwrap_or(Width { dim: Dim::Fixed(1), origin: span });
        match &x {
            Term::Value(value) => match &*value.ty {
                Type::One(row) => return Term::Width(last(row)),
                Type::PerGraph(rows) => return Term::Widths(rows.iter().map(last).collect()),
                Type::PerType(rows) if rows.len() == 1 => {
                    return rows.values().next().map_or(Term::Error, |row| Term::Width(last(row)));
                }
                Type::PerType(_) | Type::ByGraph(_) => {}
            },
            Term::Error => return Term::Error,
            _ => {}
        }
        let report = self.not_a_value(&x, span);
        self.report(report);
        Term::Error
    }

    /// The names of the parameters that a function declares for every value of a term.
    fn param_names(&self, x: &Term, scope: &Scope<'_>) -> ParamNames {
        let own = match scope.place {
            Place::Project(vertex, true) | Place::Fuse(vertex, true) => Entry::Type(vertex),
            _ => Entry::Shared,
        };
        let entries = match x {
            Term::Value(Typed { ty, .. }) => match (&**ty, scope.layer) {
                (Type::PerType(rows), _) if rows.len() > 1 => rows.keys().map(|vertex| Entry::Type(*vertex)).collect(),
                (Type::ByGraph(rows), _) if rows.len() > 1 => rows.keys().map(|graph| Entry::Graph(*graph)).collect(),
                (Type::PerGraph(_), Some(layer)) => {
                    scope.graphs.iter().map(|&position| Entry::Graph(layer.graphs[position])).collect()
                }
                _ => vec![own],
            },
            _ => vec![own],
        };
        ParamNames { statement: scope.statement.clone(), entries }
    }

    /// A value that stays as it is.
    /// The type of `dropout`: that of its argument. A dropped row of one-hot features is 0 where it is projected.
    fn droppable(&self, row: &Row, at: Span) -> Result<Row, Mistake> {
        if row.form == Form::OneHot { Ok(row.clone()) } else { self.same(row, at) }
    }

    fn same(&self, row: &Row, at: Span) -> Result<Row, Mistake> {
        self.usable(row, at)?;
        Ok(row.clone())
    }

    fn dot(&self, a: &Row, a_span: Span, b: &Row, b_span: Span, span: Span) -> Result<Row, Mistake> {
        if !self.fit(&a.widths, &b.widths) || a.widths.is_empty() {
            let tables = &self.model.tables;
            let mut report = Diagnostic::at(
                codes::SHAPE_MISMATCH,
                span,
                format!(
                    "`dot` takes two values of one shape, not {} and {}",
                    show_widths(tables, &a.widths),
                    show_widths(tables, &b.widths)
                ),
                "multiplies and sums over the last dimension",
            )
            .label(a_span, format!("is {}", show_widths(tables, &a.widths)))
            .label(b_span, format!("is {}", show_widths(tables, &b.widths)));
            if let Some((x, y)) = self.mismatch(&a.widths, &b.widths) {
                report = report.label(x.origin, "one width comes from here").label(y.origin, "the other from here");
            }
            return Err(Box::new(report));
        }
        let product = self.elementwise(BinaryOp::Mul, Operand::of(a, a_span), Operand::of(b, b_span), span)?;
        self.reduce_last(&product, true, span)
    }

    /// Over the last dimension. Only sums are taken of sparse features.
    pub(crate) fn reduce_last(&self, row: &Row, is_sum: bool, span: Span) -> Result<Row, Mistake> {
        if is_sum {
            self.usable(row, span)?
        } else {
            self.dense(row, span)?
        }
        let Some((_, rest)) = row.widths.split_last() else {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                span,
                "a single number per row has no last dimension",
                "nothing to combine",
            )));
        };
        Ok(Row::dense(row.space, rest.to_vec()))
    }

    /// `x W + b`, with `W [in, width]` and `b [width]`.
    fn linear(&self, x: &Row, width: Width, at: Span, span: Span) -> Result<Row, Mistake> {
        if x.form == Form::Time {
            self.usable(x, at)?;
        }
        let [input] = x.widths[..] else {
            let found = show_widths(&self.model.tables, &x.widths);
            return Err(Box::new(
                Diagnostic::at(
                    codes::WIDTH_MISMATCH,
                    at,
                    format!("`linear` takes one dimension per row, not {found}"),
                    format!("is {found}"),
                )
                .help(if x.widths.is_empty() {
                    "`reshape(x, [1])` makes it one"
                } else {
                    "`flatten(x)` joins them"
                }),
            ));
        };
        self.check_size(&[input, width], span)?;
        let weight = Row::dense(Space::Unit, vec![input, width]);
        self.product(x, at, &weight, span, span)
    }

    /// Layer normalisation (Ba et al. 2016) over the last dimension, or batch normalisation (Ioffe &
    /// Szegedy 2015) over all rows, each with a learned scale and shift. The batch is the whole graph in
    /// training and in evaluation, so no running statistics are kept; one row gives zeros, not NaN.
    fn norm(&self, x: &Row, over_rows: bool, at: Span, span: Span) -> Result<Row, Mistake> {
        let [_] = x.widths[..] else {
            return Err(Box::new(
                Diagnostic::at(
                    codes::SHAPE_MISMATCH,
                    at,
                    format!(
                        "normalisation takes one dimension per row, not {}",
                        show_widths(&self.model.tables, &x.widths)
                    ),
                    "flatten it first",
                )
                .help("write `flatten(x)`"),
            ));
        };
        if over_rows {
            self.dense(x, at)?;
            return Ok(x.clone());
        }
        // The mean of a row is subtracted from each of its elements, which turns zeros into something else.
        let mean = Row::dense(x.space, vec![]);
        self.usable(x, span)?;
        self.elementwise(BinaryOp::Sub, Operand::of(x, at), Operand::of(&mean, at), span)
    }

    /// Rows divided by their Euclidean length, over the last dimension.
    fn l2_normalize(&self, x: &Row, at: Span, span: Span) -> Result<Row, Mistake> {
        let squared = self.elementwise(BinaryOp::Mul, Operand::of(x, at), Operand::of(x, at), span)?;
        let length = self.reduce_last(&squared, true, span)?;
        self.elementwise(BinaryOp::Div, Operand::of(x, at), Operand::of(&length, at), span)
    }

    /// Rows divided by their sum; rows of zeros stay zero.
    fn row_normalize(&self, x: &Row, at: Span, span: Span) -> Result<Row, Mistake> {
        if x.widths.is_empty() {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                at,
                "a single number per row has no sum over the row",
                "nothing to normalise",
            )));
        }
        let sum = self.reduce_last(x, true, span)?;
        self.elementwise(BinaryOp::Div, Operand::of(x, at), Operand::of(&sum, at), span)
    }
}
