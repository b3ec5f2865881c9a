//! The parts of an expression as it is written.

use std::collections::BTreeSet;

use hgnnc_syntax::ast::{Expr, ExprKind, Part};

/// The names in an expression.
pub fn names_of(expr: &Expr) -> BTreeSet<&str> {
    match &expr.kind {
        ExprKind::Name(name) => BTreeSet::from([name.as_str()]),
        _ => parts(expr).into_iter().flat_map(names_of).collect(),
    }
}

/// The expressions that an expression is written with.
pub fn parts(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::Bool(_) | ExprKind::Name(_) | ExprKind::Error => vec![],
        ExprKind::Field(base, _) => vec![base],
        ExprKind::PathPart { base, index, .. } => vec![base, index],
        ExprKind::Slice(x, parts) => std::iter::once(&**x).chain(parts.iter().flat_map(Part::bounds)).collect(),
        ExprKind::Unary(_, a) => vec![a],
        ExprKind::Binary(_, a, b) => vec![a, b],
        ExprKind::Call(call) => call.args.iter().chain(&call.of).map(|arg| &arg.value).collect(),
        ExprKind::List(items) | ExprKind::Tuple(items) | ExprKind::Bundle(items) => items.iter().collect(),
        ExprKind::If(condition, yes, no) => vec![condition, yes, no],
    }
}
