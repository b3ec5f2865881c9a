//! Initialisers of parameters and of learned rows.

use hgnnc_diag::synonyms::Place;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::Initialiser;
use hgnnc_syntax::ast::{Expr, ExprKind};

use crate::arguments::match_arguments;
use crate::names::suggest;

const INITIALISERS: &[&str] = &["glorot", "he", "zeros", "ones", "constant", "uniform", "normal"];

/// An initialiser as it is written, whose argument is not evaluated yet.
pub struct Written<'e> {
    name: &'e str,
    span: Span,
    /// Its only argument. A number by itself is that of `constant`.
    pub argument: Option<&'e Expr>,
}

impl<'e> Written<'e> {
    /// The initialiser that an expression is; `None` where it could not be parsed.
    ///
    /// # Errors
    /// An unknown initialiser, and arguments that it does not have.
    pub fn of(expr: &'e Expr) -> Result<Option<Written<'e>>, Vec<Diagnostic>> {
        let span = expr.span;
        let (name, name_span, args) = match &expr.kind {
            ExprKind::Name(name) => (name.as_str(), span, &[][..]),
            ExprKind::Call(call) => (call.callee.name.as_str(), call.callee.span, &call.args[..]),
            ExprKind::Number(_) => return Ok(Some(Written { name: "constant", span, argument: Some(expr) })),
            ExprKind::Error => return Ok(None),
            _ => ("", span, &[][..]),
        };
        let names: &[&str] = match name {
            "glorot" | "he" => &["batch"],
            "zeros" | "ones" => &[],
            "constant" => &["value"],
            "uniform" => &["bound"],
            "normal" => &["std"],
            _ => {
                let message = format!("`{name}` is not an initialiser");
                let report = Diagnostic::at(codes::UNKNOWN_CHOICE, name_span, message, "unknown initialiser");
                return Err(vec![suggest(report, Place::Initialiser, name, INITIALISERS.iter().copied())]);
            }
        };
        let sorted = match_arguments(args, names, &format!("`{name}`"), span)?;
        Ok(Some(Written { name, span, argument: sorted.first().copied().flatten() }))
    }

    /// The initialiser with the value of its argument; NaN where only a use of the layer gives one.
    ///
    /// # Errors
    /// A missing argument, or one that is out of range.
    pub fn initialiser(&self, number: Option<f64>) -> Result<Initialiser, Box<Diagnostic>> {
        let needed = |what: &str| -> Result<f64, Box<Diagnostic>> {
            number.ok_or_else(|| {
                let message = format!("`{}` needs `{what}`", self.name);
                let label = format!("as in `{}(0.1)`", self.name);
                Box::new(Diagnostic::at(codes::MISSING_ARGUMENT, self.span, message, label))
            })
        };
        let at_least_0 = |value: f64| -> Result<f64, Box<Diagnostic>> {
            if value.is_nan() || value >= 0.0 && value.is_finite() {
                return Ok(value);
            }
            Err(Box::new(Diagnostic::at(
                codes::ARGUMENT_RANGE,
                self.argument.map_or(self.span, |argument| argument.span),
                format!("`{}` takes a number that is at least 0", self.name),
                format!("this is {value}"),
            )))
        };
        Ok(match self.name {
            "glorot" => Initialiser::Glorot { batch: at_least_0(number.unwrap_or(0.0))? as usize },
            "he" => Initialiser::He { batch: at_least_0(number.unwrap_or(0.0))? as usize },
            "zeros" => Initialiser::Constant(0.0),
            "ones" => Initialiser::Constant(1.0),
            "constant" => Initialiser::Constant(needed("value")?),
            "uniform" => Initialiser::Uniform(at_least_0(needed("bound")?)?),
            _ => Initialiser::Normal(at_least_0(needed("std")?)?),
        })
    }
}
