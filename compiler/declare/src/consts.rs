//! `const` declarations and compile-time numbers outside of layers.

use std::collections::{HashMap, HashSet};

use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};
use hgnnc_syntax::ast::{BinaryOp, Expr, ExprKind, Item, Module, UnaryOp};

use crate::imports::Imports;
use crate::names::{Declaration, declared_twice, did_you_mean};

/// The constants of a file.
#[derive(Debug, Default, Clone)]
pub struct Consts {
    values: HashMap<String, (f64, Declaration)>,
    /// Constants whose values are wrong and reported.
    broken: HashSet<String>,
    /// Constants declared further down in the file that is being read.
    later: HashMap<String, Span>,
}

impl Consts {
    /// Evaluates the constants of a file in order, after those that it imports. `others` are the constants of the files
    /// that these come from.
    pub fn of(module: &Module, imports: &Imports<'_>, others: &[Consts], diagnostics: &mut Diagnostics) -> Consts {
        let mut consts = Consts::default();
        consts.broken.extend(imports.failed.iter().map(|&name| name.to_owned()));
        for import in &imports.found {
            let Item::Const(decl) = import.item else { continue };
            let declaration = Declaration { span: import.at, imported: Some(decl.name.span) };
            consts.declare(&decl.name.name, declaration, others[import.from].get(&decl.name.name), diagnostics);
        }
        let names = module.items.iter().filter_map(|item| match item {
            Item::Const(decl) => Some((decl.name.name.clone(), decl.name.span)),
            Item::Use(_) | Item::Schema(_) | Item::Layer(_) | Item::Model(_) | Item::Train(_) => None,
        });
        consts.later = names.collect();
        for item in &module.items {
            let Item::Const(decl) = item else { continue };
            let value = consts.number(&decl.value, diagnostics);
            let declaration = Declaration { span: decl.name.span, imported: None };
            consts.declare(&decl.name.name, declaration, value, diagnostics);
            consts.later.remove(&decl.name.name);
        }
        consts
    }

    /// Adds a constant, whose value is `None` where that is wrong and reported.
    fn declare(&mut self, name: &str, at: Declaration, value: Option<f64>, diagnostics: &mut Diagnostics) {
        if let Some((_, first)) = self.values.get(name) {
            let (second, before) = if at.span < first.span { (*first, at) } else { (at, *first) };
            diagnostics.push(declared_twice("constant", name, second, before));
            // A file's own declaration is the one that was meant.
            if at.imported.is_some() || first.imported.is_none() {
                return;
            }
        }
        match value {
            Some(value) => _ = self.values.insert(name.to_owned(), (value, at)),
            None => _ = self.broken.insert(name.to_owned()),
        }
    }

    /// A constant by name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).map(|(value, _)| *value)
    }

    /// Is it declared, with a value that is wrong?
    pub fn is_broken(&self, name: &str) -> bool {
        self.broken.contains(name)
    }

    /// The names of all constants.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    fn unknown(&self, name: &str, span: Span) -> Diagnostic {
        if let Some(&later) = self.later.get(name) {
            let message = format!("constant `{name}` is used before it is declared");
            return Diagnostic::at(codes::UNKNOWN_NAME, span, message, "not known yet")
                .label(later, "declared here")
                .help("a constant is made of those before it: declare that one first");
        }
        let report = Diagnostic::at(codes::UNKNOWN_NAME, span, format!("no constant `{name}`"), "not declared");
        did_you_mean(report, name, self.names())
    }

    /// An expression of numbers and constants.
    pub fn number(&self, expr: &Expr, diagnostics: &mut Diagnostics) -> Option<f64> {
        match &expr.kind {
            ExprKind::Number(number) => Some(*number),
            ExprKind::Name(name) => {
                let value = self.get(name);
                if value.is_none() && !self.is_broken(name) {
                    diagnostics.push(self.unknown(name, expr.span));
                }
                value
            }
            ExprKind::Unary(UnaryOp::Neg, a) => Some(-self.number(a, diagnostics)?),
            ExprKind::Binary(op, a, b) => {
                let at = b.span;
                let (a, b) = (self.number(a, diagnostics), self.number(b, diagnostics));
                let (a, b) = (a?, b?);
                if *op == BinaryOp::Div && b == 0.0 {
                    diagnostics.push(division_by_zero(at));
                    return None;
                }
                let value = arithmetic(*op, a, b);
                match value {
                    None => diagnostics.push(not_constant(expr.span)),
                    Some(number) if !number.is_finite() => {
                        diagnostics.push(not_finite(expr.span, number));
                        return None;
                    }
                    Some(_) => {}
                }
                value
            }
            ExprKind::Error => None,
            _ => {
                diagnostics.push(not_constant(expr.span));
                None
            }
        }
    }

    /// A positive whole number.
    pub fn dimension(&self, expr: &Expr, diagnostics: &mut Diagnostics) -> Option<usize> {
        let number = self.number(expr, diagnostics)?;
        let dim = as_dimension(number);
        if dim.is_none() {
            diagnostics.push(bad_dimension(expr.span, number));
        }
        dim
    }
}

/// `a ∘ b` for the operators that compute numbers.
pub fn arithmetic(op: BinaryOp, a: f64, b: f64) -> Option<f64> {
    match op {
        BinaryOp::Add => Some(a + b),
        BinaryOp::Sub => Some(a - b),
        BinaryOp::Mul => Some(a * b),
        BinaryOp::Div => Some(a / b),
        BinaryOp::Or
        | BinaryOp::And
        | BinaryOp::Eq
        | BinaryOp::Ne
        | BinaryOp::Lt
        | BinaryOp::Le
        | BinaryOp::Gt
        | BinaryOp::Ge
        | BinaryOp::MatMul => None,
    }
}

/// A number as the extent of a dimension.
pub fn as_dimension(number: f64) -> Option<usize> {
    (number >= 1.0 && number.fract() == 0.0 && number <= (1u64 << 31) as f64).then_some(number as usize)
}

/// The report of a number that is no extent.
pub fn bad_dimension(span: Span, number: f64) -> Diagnostic {
    Diagnostic::at(
        codes::BAD_DIMENSION,
        span,
        "a dimension is a whole number between 1 and 2147483648",
        format!("this is {number}"),
    )
}

/// The report of an expression that is not known at compile time.
pub fn not_constant(span: Span) -> Diagnostic {
    Diagnostic::at(codes::NOT_CONSTANT, span, "a number known at compile time is expected", "not a constant")
}

/// The report of a division by a constant 0.
pub fn division_by_zero(divisor: Span) -> Diagnostic {
    Diagnostic::at(codes::DIVISION_BY_ZERO, divisor, "division by 0", "this is 0")
        .help("what may become 0 is kept from it: `x / max(y, 1e-6)`")
}

/// The report of arithmetic that leaves the numbers.
pub fn not_finite(span: Span, number: f64) -> Diagnostic {
    Diagnostic::at(codes::ARGUMENT_RANGE, span, "this is not a finite number", format!("gives {number}"))
}
