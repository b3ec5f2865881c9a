//! Calls: the built-in functions of the language.

use hgnnc_diag::habits::{self, Meant};
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::dataflow::Init;
use hgnnc_ir::{BinaryOp, Dim, Op, Reduce, Space, Type, UnaryOp, Value};
use hgnnc_syntax::ast::{Arg, Call, Expr, ExprKind, Ident};
use hgnnc_syntax::format_expr;

use crate::elaborate::{Elaborator, Mistake, Place, Scope};
use crate::names::suggest;
use crate::value::{Term, Val, ValKind, Width, show_widths};

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
    ("sqrt", UnaryOp::Sqrt),
    ("abs", UnaryOp::Abs),
    ("sign", UnaryOp::Sign),
];

/// Functions with arguments: name and parameters; those after the `|` may be left out.
const FUNCTIONS: &[(&str, &[&str], usize)] = &[
    ("leaky_relu", &["x", "slope"], 1),
    ("identity", &["x"], 1),
    ("square", &["x"], 1),
    ("pow", &["x", "exponent"], 2),
    ("dropout", &["x", "rate"], 2),
    ("dot", &["a", "b"], 2),
    ("flatten", &["x"], 1),
    ("reshape", &["x", "shape"], 2),
    ("linear", &["x", "width", "bias"], 2),
    ("layer_norm", &["x", "eps"], 1),
    ("batch_norm", &["x", "eps"], 1),
    ("l2_normalize", &["x", "eps"], 1),
    ("row_normalize", &["x"], 1),
    ("stop_gradient", &["x"], 1),
    ("width", &["x"], 1),
    ("given", &["x"], 1),
];

/// Names of reductions; they need a scope (`over …`, `across …`), and `max`, `min`, `concat` also take
/// several values instead.
pub const REDUCTIONS: &[&str] = &["sum", "mean", "max", "min", "softmax", "logsumexp", "concat"];

/// Is it the name of a function or reduction, and so no name for a layer?
pub fn is_function(name: &str) -> bool {
    is_unary_function(name) || REDUCTIONS.contains(&name) || FUNCTIONS.iter().any(|f| f.0 == name)
}

/// May `name` be passed as a function argument?
pub fn is_unary_function(name: &str) -> bool {
    name == "identity" || UNARY.iter().any(|(known, _)| *known == name)
}

impl Elaborator<'_> {
    /// A call: a function, a reduction, or the use of a layer.
    pub fn call(&mut self, call: &Call, span: Span, scope: &Scope<'_>) -> Term {
        let name = call.callee.name.as_str();
        if self.layers.contains_key(name) {
            return self.use_layer(call, span, scope);
        }
        // Its import was reported.
        if self.not_imported.contains(name) {
            return Term::Error;
        }
        if REDUCTIONS.contains(&name) {
            return self.reduction(call, span, scope);
        }
        // `activation(x)`, where `activation` is a function parameter of the layer.
        let passed = scope.layer.and_then(|l| l.arguments.get(name));
        let name = match passed {
            Some(Term::Function(function)) => function.clone(),
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
            return self.map(x, at, |this, val| this.apply_unary(*op, val, span));
        }
        let Some((_, names, required)) = FUNCTIONS.iter().find(|f| f.0 == name) else {
            if !matches!(scope.locals.get(call.callee.name.as_str()), Some(Term::Error)) {
                let report = self.unknown_function(&call.callee, scope);
                self.report(report);
            }
            // Functions of other tools have arguments of another kind.
            if habits::meant(habits::Place::Function, &name).is_none() {
                return self.wrong_call(call, scope);
            }
            return Term::Error;
        };
        match self.arguments(call, span, names, *required) {
            Some(args) => self.function(&name, &args, span, scope),
            None => self.wrong_call(call, scope),
        }
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
        let known = UNARY.iter().map(|f| f.0).chain(FUNCTIONS.iter().map(|f| f.0)).chain(REDUCTIONS.iter().copied());
        let layers = self.layers.keys().map(String::as_str);
        if let Some(module) = self.module_of(&callee.name) {
            return report.help(format!("it is a layer of the standard library: add `use {module}`"));
        }
        suggest(report, habits::Place::Function, &callee.name, known.chain(layers))
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
        let known = self.layers.keys().map(String::as_str).chain(self.importable.keys().copied());
        suggest(report, habits::Place::Function, &callee.name, known)
            .help("layers are declared with `layer`, or imported: `use std::han::HanConv`")
    }

    /// The path of the library layer that has this name, in whatever spelling.
    fn module_of(&self, name: &str) -> Option<String> {
        let (layer, module) = self.importable.iter().find(|(layer, _)| habits::alike(layer, name))?;
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
            "given" => Term::Bool(!matches!(x, Term::Absent)),
            "width" => self.width_of(x, at),
            "leaky_relu" => {
                let Some(slope) = option(self, 1, 0.01) else { return Term::Error };
                self.map(x, at, |this, val| this.apply_unary(UnaryOp::LeakyRelu(slope), val, span))
            }
            "square" => self.map2(x.clone(), x, at, |this, a, b| this.elementwise(BinaryOp::Mul, a, at, b, at, span)),
            "pow" => {
                let Some(exponent) = option(self, 1, 1.0) else { return Term::Error };
                self.map(x, at, |this, val| {
                    let exponent = this.constant(exponent, span);
                    this.elementwise(BinaryOp::Pow, val, at, exponent, span, span)
                })
            }
            "dropout" => {
                let Some(rate) = option(self, 1, 0.0) else { return Term::Error };
                if !(0.0..1.0).contains(&rate) {
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
                self.map(x, at, |this, val| this.dropout(val, rate, at, span))
            }
            "dot" => {
                let b_expr = args[1].expect("required");
                let b = self.eval(b_expr, scope);
                self.map2(x, b, span, |this, a, b| this.dot(a, at, b, b_expr.span, span))
            }
            "flatten" => self.map(x, at, |this, val| this.flatten(val, at, span)),
            "reshape" => {
                let shape_expr = args[1].expect("required");
                let Some(shape) = self.shape(shape_expr, scope) else { return Term::Error };
                self.map(x, at, |this, val| this.reshape(val, shape.clone(), at, span))
            }
            "stop_gradient" => self.map(x, at, |this, val| {
                let value = this.stored(&val, at)?;
                Ok(Val { kind: ValKind::Stored(this.emit(Op::StopGradient, &[value], span)), ..val })
            }),
            "linear" => {
                let width_expr = args[1].expect("required");
                let Some(width) = self.one_width(width_expr, scope) else { return Term::Error };
                let bias = match args[2].map(|e| (self.eval(e, scope), e.span)) {
                    None => true,
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
                self.with_parameters(x, at, scope, |this, val, path| this.linear(val, width, bias, path, at, span))
            }
            "layer_norm" | "batch_norm" => {
                let Some(eps) = option(self, 1, 1e-5).and_then(|eps| self.positive(eps, args, span)) else {
                    return Term::Error;
                };
                let over_rows = name == "batch_norm";
                self.with_parameters(x, at, scope, |this, val, path| this.norm(val, eps, over_rows, path, at, span))
            }
            "l2_normalize" => {
                let Some(eps) = option(self, 1, 1e-12).and_then(|eps| self.positive(eps, args, span)) else {
                    return Term::Error;
                };
                self.map(x, at, |this, val| this.l2_normalize(val, eps, at, span))
            }
            "row_normalize" => self.map(x, at, |this, val| this.row_normalize(val, at, span)),
            other => unreachable!("function `{other}` is in the table but has no meaning"),
        }
    }

    /// `eps`, which stands under a root or a fraction line.
    fn positive(&mut self, eps: f64, args: &[Option<&Expr>], span: Span) -> Option<f64> {
        if eps > 0.0 {
            return Some(eps);
        }
        let at = args.get(1).copied().flatten().map_or(span, |e| e.span);
        self.report(Diagnostic::at(codes::ARGUMENT_RANGE, at, "`eps` is greater than 0", format!("this is {eps}")));
        None
    }

    /// The last width of a value.
    fn width_of(&mut self, x: Term, span: Span) -> Term {
        let last = |val: &Val| val.widths.last().copied().unwrap_or(Width { dim: Dim::Fixed(1), origin: span });
        match x {
            Term::One(val) => Term::Width(last(&val)),
            Term::PerGraph(vals) => Term::Widths(vals.iter().map(last).collect()),
            Term::PerType(vals) if vals.len() == 1 => {
                vals.values().next().map_or(Term::Error, |v| Term::Width(last(v)))
            }
            Term::Error => Term::Error,
            other => {
                let report = self.not_a_value(&other, span);
                self.report(report);
                Term::Error
            }
        }
    }

    /// Applies `f` to every value of a term, each with its own path for parameters.
    fn with_parameters(
        &mut self,
        x: Term,
        span: Span,
        scope: &Scope<'_>,
        mut f: impl FnMut(&mut Self, Val, &dyn Fn(&str) -> String) -> Result<Val, Mistake>,
    ) -> Term {
        let suffixes: Vec<String> = match &x {
            Term::PerType(vals) if vals.len() > 1 => {
                vals.keys().map(|v| format!(".{}", self.vertex_name(*v))).collect()
            }
            Term::PerGraph(vals) => match scope.layer {
                Some(layer) => scope
                    .graphs
                    .iter()
                    .map(|&g| format!(".{}", self.flow.graphs[layer.graphs[g].index()].name))
                    .collect(),
                None => vec![String::new(); vals.len()],
            },
            _ => vec![match scope.place {
                Place::Project(vertex, true) | Place::Fuse(vertex, true) => format!(".{}", self.vertex_name(vertex)),
                _ => String::new(),
            }],
        };
        // One base for all members, so that `out.weight.Paper` and `out.weight.Author` belong together.
        let base = self.free_base(&scope.path, suffixes.clone());
        let mut index = 0;
        self.map(x, span, |this, val| {
            let suffix = suffixes.get(index).cloned().unwrap_or_default();
            index += 1;
            let base = base.clone();
            f(this, val, &move |leaf| format!("{base}.{leaf}{suffix}"))
        })
    }

    /// `path`, or `path_2`, …: the first under which no member has parameters yet.
    fn free_base(&mut self, path: &str, suffixes: Vec<String>) -> String {
        let key = (path.to_string(), suffixes);
        // Names never become free again: those below were taken the last time.
        let mut number = self.free_bases.get(&key).copied().unwrap_or(1);
        let base = loop {
            let base = if number == 1 { path.to_string() } else { format!("{path}_{number}") };
            if !key.1.iter().any(|suffix| self.has_member_params(&base, suffix)) {
                break base;
            }
            number += 1;
        };
        self.free_bases.insert(key, number);
        base
    }

    fn dropout(&mut self, val: Val, rate: f64, at: Span, span: Span) -> Result<Val, Mistake> {
        let value = self.stored(&val, at)?;
        let ty = self.flow.ty(value).clone();
        let stream = self.next_stream();
        let mask = self.emit(Op::RandomMask { stream, rate, ty }, &[], span);
        Ok(Val { kind: ValKind::Stored(self.emit(Op::Binary(BinaryOp::Mul), &[value, mask], span)), ..val })
    }

    fn dot(&mut self, a: Val, a_span: Span, b: Val, b_span: Span, span: Span) -> Result<Val, Mistake> {
        if a.dims() != b.dims() || a.widths.is_empty() {
            let mut report = Diagnostic::at(
                codes::SHAPE_MISMATCH,
                span,
                format!(
                    "`dot` takes two values of one shape, not {} and {}",
                    show_widths(&self.flow, &a.widths),
                    show_widths(&self.flow, &b.widths)
                ),
                "multiplies and sums over the last dimension",
            )
            .label(a_span, format!("is {}", show_widths(&self.flow, &a.widths)))
            .label(b_span, format!("is {}", show_widths(&self.flow, &b.widths)));
            if let Some((x, y)) = a.widths.iter().zip(&b.widths).find(|(x, y)| x.dim != y.dim) {
                report = report.label(x.origin, "one width comes from here").label(y.origin, "the other from here");
            }
            return Err(Box::new(report));
        }
        let product = self.elementwise(BinaryOp::Mul, a, a_span, b, b_span, span)?;
        self.reduce_last(product, Reduce::Sum, span)
    }

    /// Over the last dimension.
    pub fn reduce_last(&mut self, mut val: Val, reduce: Reduce, span: Span) -> Result<Val, Mistake> {
        let value = if reduce == Reduce::Sum { self.stored(&val, span)? } else { self.dense(&val, span)? };
        if val.widths.is_empty() {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                span,
                "a single number per row has no last dimension",
                "nothing to combine",
            )));
        }
        val.widths.pop();
        Ok(Val { kind: ValKind::Stored(self.emit(Op::ReduceTrailing { reduce, axes: 1 }, &[value], span)), ..val })
    }

    fn flatten(&mut self, val: Val, at: Span, span: Span) -> Result<Val, Mistake> {
        let mut extent = 1;
        for width in &val.widths {
            match width.dim {
                Dim::Fixed(n) => extent *= n,
                Dim::Count(_) if val.widths.len() == 1 => return Ok(val),
                Dim::Count(_) => {
                    return Err(Box::new(Diagnostic::at(
                        codes::BAD_RESHAPE,
                        span,
                        "a dimension that depends on the dataset cannot be joined with others",
                        "its extent is not known at compile time",
                    )));
                }
            }
        }
        if val.widths.len() == 1 {
            return Ok(val);
        }
        self.reshape(val, vec![Width { dim: Dim::Fixed(extent), origin: span }], at, span)
    }

    /// A list of widths.
    pub fn shape(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<Vec<Width>> {
        let hgnnc_syntax::ast::ExprKind::List(items) = &expr.kind else {
            self.report(Diagnostic::at(codes::BAD_RESHAPE, expr.span, "a shape is a list: `[8, 64]`", "not a list"));
            return None;
        };
        let mut widths = vec![];
        for item in items {
            widths.push(self.one_width(item, scope)?);
        }
        match self.check_size(&widths, expr.span) {
            Ok(()) => Some(widths),
            Err(mistake) => {
                self.report(*mistake);
                None
            }
        }
    }

    fn reshape(&mut self, val: Val, shape: Vec<Width>, at: Span, span: Span) -> Result<Val, Mistake> {
        let value = self.stored(&val, at)?;
        let dims: Vec<Dim> = shape.iter().map(|w| w.dim).collect();
        if self.flow.is_sparse(value) {
            return Err(Box::new(Diagnostic::at(
                codes::SPARSE_VALUE,
                span,
                "sparse features have no other shape",
                "project them first",
            )));
        }
        match self.flow.push(Op::Reshape(dims), &[value]) {
            Ok(value) => Ok(Val { kind: ValKind::Stored(value), widths: shape }),
            Err(_) => Err(Box::new(
                Diagnostic::at(
                    codes::BAD_RESHAPE,
                    span,
                    format!(
                        "{} and {} have different numbers of elements",
                        show_widths(&self.flow, &val.widths),
                        show_widths(&self.flow, &shape)
                    ),
                    "cannot be reshaped",
                )
                .label(at, format!("is {}", show_widths(&self.flow, &val.widths))),
            )),
        }
    }

    /// `x W + b`, with `W [in, width]` and `b [width]`.
    fn linear(
        &mut self,
        x: Val,
        width: Width,
        bias: bool,
        path: &dyn Fn(&str) -> String,
        at: Span,
        span: Span,
    ) -> Result<Val, Mistake> {
        if x.widths.len() != 1 {
            return Err(Box::new(
                Diagnostic::at(
                    codes::WIDTH_MISMATCH,
                    at,
                    format!("`linear` takes one dimension per row, not {}", show_widths(&self.flow, &x.widths)),
                    format!("is {}", show_widths(&self.flow, &x.widths)),
                )
                .help(if x.widths.is_empty() {
                    "`reshape(x, [1])` makes it one"
                } else {
                    "`flatten(x)` joins them"
                }),
            ));
        }
        self.check_size(&[x.widths[0], width], span)?;
        let fan_out = width.dim.fixed().unwrap_or(1);
        let init = Init::Glorot { fan_in: x.widths[0].dim, fan_out };
        let weight = self.parameter(path("weight"), vec![x.widths[0], width], init, true, span);
        let product = self.product(x, at, weight, span, span)?;
        if !bias {
            return Ok(product);
        }
        let shift = self.parameter(path("bias"), vec![width], Init::Constant(0.0), true, span);
        self.elementwise(BinaryOp::Add, product, at, shift, span, span)
    }

    /// Layer normalisation (Ba et al. 2016) over the last dimension, or batch normalisation (Ioffe &
    /// Szegedy 2015) over all rows, each with a learned scale and shift. The batch is the whole graph in
    /// training and in evaluation, so no running statistics are kept; one row gives zeros, not NaN.
    fn norm(
        &mut self,
        x: Val,
        eps: f64,
        over_rows: bool,
        path: &dyn Fn(&str) -> String,
        at: Span,
        span: Span,
    ) -> Result<Val, Mistake> {
        let [width] = x.widths[..] else {
            return Err(Box::new(
                Diagnostic::at(
                    codes::SHAPE_MISMATCH,
                    at,
                    format!("normalisation takes one dimension per row, not {}", show_widths(&self.flow, &x.widths)),
                    "flatten it first",
                )
                .help("write `flatten(x)`"),
            ));
        };
        let mean_of = |this: &mut Self, val: &Val| -> Result<Val, Mistake> {
            if over_rows {
                this.mean_over_rows(val.clone(), at, span)
            } else {
                this.mean_over_last(val.clone(), at, span)
            }
        };
        let mean = mean_of(self, &x)?;
        // [rows, width] - [rows] needs the mean repeated along the width, which prefix broadcasting does.
        let centred = self.elementwise(BinaryOp::Sub, x, at, mean, at, span)?;
        let squared = self.elementwise(BinaryOp::Mul, centred.clone(), at, centred.clone(), at, span)?;
        let variance = mean_of(self, &squared)?;
        let eps = self.constant(eps, span);
        let shifted = self.elementwise(BinaryOp::Add, variance, at, eps, span, span)?;
        let deviation = self.apply_unary(UnaryOp::Sqrt, shifted, span)?;
        let normal = self.elementwise(BinaryOp::Div, centred, at, deviation, at, span)?;
        let scale = self.parameter(path("scale"), vec![width], Init::Constant(1.0), false, span);
        let shift = self.parameter(path("shift"), vec![width], Init::Constant(0.0), false, span);
        let scaled = self.elementwise(BinaryOp::Mul, normal, at, scale, span, span)?;
        self.elementwise(BinaryOp::Add, scaled, at, shift, span, span)
    }

    fn mean_over_last(&mut self, val: Val, at: Span, span: Span) -> Result<Val, Mistake> {
        let count = match val.widths.last().map(|w| w.dim) {
            Some(Dim::Fixed(extent)) => self.constant(extent as f64, span),
            Some(Dim::Count(vertex)) => self.count(Space::Vertices(vertex), span),
            None => {
                return Err(Box::new(Diagnostic::at(
                    codes::WRONG_SCOPE,
                    at,
                    "a single number per row has no last dimension",
                    "nothing to average over",
                )));
            }
        };
        let sum = self.reduce_last(val, Reduce::Sum, span)?;
        self.elementwise(BinaryOp::Div, sum, at, count, span, span)
    }

    /// The mean over all rows of the value's space: a single row.
    pub fn mean_over_rows(&mut self, val: Val, at: Span, span: Span) -> Result<Val, Mistake> {
        let value = self.dense(&val, at)?;
        let space = self.flow.ty(value).space;
        let sum = self.emit(Op::ReduceSpace(Reduce::Sum), &[value], span);
        let count = self.count(space, span);
        let sum = Val { kind: ValKind::Stored(sum), ..val };
        self.elementwise(BinaryOp::Div, sum, at, count, span, span)
    }

    /// The number of rows of a space.
    pub fn count(&mut self, space: Space, span: Span) -> Val {
        Val { kind: ValKind::Stored(self.emit(Op::Count(space), &[], span)), widths: vec![] }
    }

    /// Rows divided by their Euclidean length, over the last dimension.
    fn l2_normalize(&mut self, x: Val, eps: f64, at: Span, span: Span) -> Result<Val, Mistake> {
        let squared = self.elementwise(BinaryOp::Mul, x.clone(), at, x.clone(), at, span)?;
        let sum = self.reduce_last(squared, Reduce::Sum, span)?;
        // Under the root, so that the gradient at zero is finite.
        let eps = self.constant(eps, span);
        let sum = self.elementwise(BinaryOp::Max, sum, at, eps, span, span)?;
        let length = self.apply_unary(UnaryOp::Sqrt, sum, span)?;
        self.elementwise(BinaryOp::Div, x, at, length, at, span)
    }

    /// Rows divided by their sum; rows of zeros stay zero.
    fn row_normalize(&mut self, x: Val, at: Span, span: Span) -> Result<Val, Mistake> {
        if x.widths.is_empty() {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                at,
                "a single number per row has no sum over the row",
                "nothing to normalise",
            )));
        }
        let sum = self.reduce_last(x.clone(), Reduce::Sum, span)?;
        // sum + (sum == 0) is 1 for rows of zeros.
        let zero = self.constant(0.0, span);
        let is_zero = self.elementwise(BinaryOp::Eq, sum.clone(), at, zero, span, span)?;
        let divisor = self.elementwise(BinaryOp::Add, sum, at, is_zero, at, span)?;
        self.elementwise(BinaryOp::Div, x, at, divisor, at, span)
    }

    /// Joins values along their last dimension.
    pub fn concat(&mut self, parts: Vec<Val>, span: Span) -> Result<Val, Mistake> {
        let first = parts[0].clone();
        let mut values: Vec<Value> = vec![];
        let mut total = 0;
        for part in &parts {
            let lead_fits = part.widths.len() == first.widths.len()
                && !part.widths.is_empty()
                && part.dims()[..part.widths.len() - 1] == first.dims()[..first.widths.len() - 1];
            let last = part.widths.last().and_then(|w| w.dim.fixed());
            match last {
                Some(extent) if lead_fits && part.space(&self.flow) == first.space(&self.flow) => total += extent,
                _ => {
                    return Err(Box::new(
                        Diagnostic::at(
                            codes::BAD_CONCAT,
                            span,
                            format!(
                                "{} and {} cannot be joined along their last dimension",
                                show_widths(&self.flow, &first.widths),
                                show_widths(&self.flow, &part.widths)
                            ),
                            "all dimensions but the last must be equal",
                        )
                        .help("`flatten(…)` or `reshape(…)` first"),
                    ));
                }
            }
            values.push(self.dense(part, span)?);
        }
        let mut widths = first.widths;
        widths.pop();
        widths.push(Width { dim: Dim::Fixed(total), origin: span });
        Ok(Val { kind: ValKind::Stored(self.emit(Op::Concat, &values, span)), widths })
    }

    /// Repeats a single row for every row of a space, and to more dimensions.
    pub fn broadcast(&mut self, val: Val, space: Space, span: Span) -> Result<Val, Mistake> {
        let value = self.dense(&val, span)?;
        if self.flow.ty(value).space == space {
            return Ok(val);
        }
        let ty = Type::new(space, val.dims());
        Ok(Val { kind: ValKind::Stored(self.emit(Op::Broadcast(ty), &[value], span)), ..val })
    }
}

/// Sorts arguments by parameter: those without a name by position, in front of those with one. Gives all mistakes.
pub fn match_arguments<'c>(
    args: &'c [Arg],
    names: &[&str],
    callee: &str,
    span: Span,
) -> Result<Vec<Option<&'c Expr>>, Vec<Diagnostic>> {
    let mut sorted: Vec<Option<&Arg>> = vec![None; names.len()];
    let mut mistakes = vec![];
    for (position, arg) in args.iter().enumerate() {
        let index = match &arg.name {
            None if position < names.len() => position,
            None => {
                mistakes.push(Diagnostic::at(
                    codes::EXTRA_ARGUMENT,
                    arg.value.span,
                    match names.len() {
                        1 => format!("{callee} takes 1 argument"),
                        n => format!("{callee} takes {n} arguments"),
                    },
                    format!("takes ({})", names.join(", ")),
                ));
                continue;
            }
            Some(name) => match names.iter().position(|known| *known == name.name) {
                Some(index) => index,
                None => {
                    mistakes.push(unknown_argument(name, &arg.value, names, callee, span));
                    continue;
                }
            },
        };
        if let Some(first) = sorted[index] {
            let at = arg.name.as_ref().map_or(arg.value.span, |n| n.span);
            let message = format!("{callee} is given `{}` twice", names[index]);
            let report = Diagnostic::at(codes::EXTRA_ARGUMENT, at, message, "given again here");
            mistakes.push(match &first.name {
                Some(name) => report.label(name.span, "first given here"),
                None => report.label(first.value.span, format!("this is `{}` too, by its position", names[index])),
            });
            continue;
        }
        sorted[index] = Some(arg);
    }
    match mistakes.is_empty() {
        true => Ok(sorted.into_iter().map(|arg| arg.map(|arg| &arg.value)).collect()),
        false => Err(mistakes),
    }
}

/// The report of a named argument that there is none of.
fn unknown_argument(name: &Ident, value: &Expr, names: &[&str], callee: &str, span: Span) -> Diagnostic {
    let report = Diagnostic::at(
        codes::UNKNOWN_ARGUMENT,
        name.span,
        format!("{callee} has no argument `{}`", name.name),
        "unknown argument",
    )
    .label(span, format!("takes ({})", names.join(", ")));
    if let (Some(Meant::Each(parts)), ExprKind::List(items) | ExprKind::Tuple(items)) =
        (habits::meant(habits::Place::Argument, &name.name), &value.kind)
        && parts.iter().all(|part| names.contains(part))
    {
        let each = parts.iter().zip(items).map(|(part, item)| format!("{part}: {}", format_expr(item)));
        return report.help(format!("write `{}`", each.collect::<Vec<_>>().join(", ")));
    }
    suggest(report, habits::Place::Argument, &name.name, names.iter().copied())
}
