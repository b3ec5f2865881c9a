//! Expressions: on one line where they fit, else broken at an operator or bracket, with the parentheses that they need.

use std::fmt::Write;

use super::parts::{broken, field_name, graph_expr, name, quote, width};
use super::{INDENT, Printer, WIDTH};
use crate::ast::*;

impl Printer<'_> {
    /// On one line, in parentheses if it binds less tightly than `least`.
    pub(super) fn expr(&self, expr: &Expr, least: u8) -> String {
        let text = match &expr.kind {
            ExprKind::Number(value) => {
                let written = &self.text.get(expr.span.start as usize..expr.span.end as usize);
                match written {
                    Some(text) if text.replace('_', "").parse() == Ok(*value) => (*text).to_owned(),
                    _ => value.to_string(),
                }
            }
            ExprKind::Bool(value) => value.to_string(),
            ExprKind::Name(text) => quote(text),
            ExprKind::Field(base, field) => {
                // `3.x` would lex as a malformed number.
                let least = if matches!(base.kind, ExprKind::Number(_)) { POSTFIX + 1 } else { POSTFIX };
                format!("{}.{}", self.expr(base, least), field_name(field))
            }
            ExprKind::Slice(base, parts) => {
                let parts: Vec<String> = parts.iter().map(|part| self.part(part)).collect();
                format!("{}[{}]", self.expr(base, POSTFIX), parts.join(", "))
            }
            ExprKind::PathPart { base, part, index } => {
                format!("{}.{}({})", self.expr(base, POSTFIX), field_name(part), self.expr(index, LOOSEST))
            }
            ExprKind::Unary(UnaryOp::Neg, operand) => format!("-{}", self.expr(operand, NEGATION)),
            ExprKind::Unary(UnaryOp::Not, operand) => format!("not {}", self.expr(operand, NOT)),
            ExprKind::Binary(op, left, right) => {
                let (symbol, ..) = operator(*op);
                let (left_least, right_least) = sides(*op);
                format!("{} {symbol} {}", self.expr(left, left_least), self.expr(right, right_least))
            }
            ExprKind::Call(call) => {
                let args: Vec<String> = call.args.iter().map(|arg| self.arg(arg)).collect();
                let scope: String = self.scope(call).iter().map(|clause| format!(" {clause}")).collect();
                format!("{}({}){scope}", name(&call.callee), args.join(", "))
            }
            ExprKind::List(items) => {
                let items: Vec<String> = items.iter().map(|item| self.expr(item, LOOSEST)).collect();
                format!("[{}]", items.join(", "))
            }
            ExprKind::Tuple(items) => {
                let items: Vec<String> = items.iter().map(|item| self.expr(item, LOOSEST)).collect();
                // Without the comma, parentheses around one value would only group.
                let comma = if items.len() == 1 { "," } else { "" };
                format!("({}{comma})", items.join(", "))
            }
            ExprKind::Bundle(items) => {
                let items: Vec<String> = items.iter().map(|item| self.expr(item, LOOSEST)).collect();
                format!("{{{}}}", items.join(", "))
            }
            ExprKind::If(condition, then, otherwise) => {
                let condition = self.expr(condition, LOOSEST);
                let then = self.expr(then, LOOSEST);
                let otherwise = match &otherwise.kind {
                    ExprKind::If(..) => self.expr(otherwise, LOOSEST),
                    _ => format!("{{ {} }}", self.expr(otherwise, LOOSEST)),
                };
                format!("if {condition} {{ {then} }} else {otherwise}")
            }
            ExprKind::Error => {
                self.text.get(expr.span.start as usize..expr.span.end as usize).unwrap_or_default().to_owned()
            }
        };
        if level(expr) < least { format!("({text})") } else { text }
    }

    fn part(&self, part: &Part) -> String {
        let bound = |bound: &Option<Expr>| bound.as_ref().map_or(String::new(), |bound| self.expr(bound, LOOSEST));
        match part {
            Part::At(at) => self.expr(at, LOOSEST),
            Part::Range(start, end) => format!("{}..{}", bound(start), bound(end)),
        }
    }

    fn arg(&self, arg: &Arg) -> String {
        let label = arg.name.as_ref().map_or(String::new(), |n| format!("{}: ", name(n)));
        label + &self.expr(&arg.value, LOOSEST)
    }

    /// The clauses `over …`, `across …` and `of …` of a call.
    fn scope(&self, call: &Call) -> Vec<String> {
        let mut clauses = Vec::new();
        clauses.extend(call.over.as_ref().map(|over| format!("over {}", graph_expr(over))));
        clauses.extend(call.across.as_ref().map(|across| format!("across {}", name(across))));
        match call.of.as_slice() {
            [] => {}
            // The parentheses of a tuple would be those of the inputs.
            [Arg { name: None, value }] if matches!(value.kind, ExprKind::Tuple(_)) => {
                clauses.push(format!("of ({})", self.expr(value, LOOSEST)));
            }
            [Arg { name: None, value }] => {
                let direct = level(value) == POSTFIX || matches!(value.kind, ExprKind::Call(_) | ExprKind::Bundle(_));
                clauses.push(format!("of {}", self.expr(value, if direct { LOOSEST } else { POSTFIX })));
            }
            args => {
                let args: Vec<String> = args.iter().map(|arg| self.arg(arg)).collect();
                clauses.push(format!("of ({})", args.join(", ")));
            }
        }
        clauses
    }

    /// On one line if it fits after `used` columns, else broken at its outermost operator or bracket.
    pub(super) fn layout(&self, expr: &Expr, least: u8, indent: usize, used: usize) -> String {
        let flat = self.expr(expr, least);
        if used + width(&flat) <= WIDTH {
            return flat;
        }
        let inside = indent + INDENT;
        let text = match &expr.kind {
            ExprKind::Binary(op, ..) => {
                let mut operands = Vec::new();
                let mut leftmost = expr;
                while let ExprKind::Binary(inner, left, right) = &leftmost.kind
                    && operator(*inner).1 == operator(*op).1
                    && (operands.is_empty() || sides(*op).0 == operator(*op).1)
                {
                    operands.push((*inner, right));
                    leftmost = left;
                }
                let mut text = self.layout(leftmost, sides(*op).0, inside, used);
                for (op, operand) in operands.into_iter().rev() {
                    let (symbol, ..) = operator(op);
                    let taken = inside + width(symbol) + 1;
                    let operand = self.layout(operand, sides(op).1, inside, taken);
                    let _ = write!(text, "\n{:inside$}{symbol} {operand}", "");
                }
                text
            }
            ExprKind::Call(call) => {
                let scope = self.scope(call);
                let args: Vec<String> = call.args.iter().map(|arg| self.arg(arg)).collect();
                let callee = name(&call.callee);
                let plain = format!("{callee}({})", args.join(", "));
                if !call.of.is_empty() {
                    let head =
                        if used + width(&plain) <= WIDTH { plain } else { self.broken_call(call, callee, inside) };
                    scope.iter().fold(head, |text, clause| format!("{text}\n{:inside$}{clause}", ""))
                } else if call.args.is_empty() {
                    flat.clone()
                } else {
                    let scope: String = scope.iter().map(|clause| format!(" {clause}")).collect();
                    self.broken_call(call, callee, indent) + &scope
                }
            }
            ExprKind::List(items) if !items.is_empty() => {
                let items: Vec<String> =
                    items.iter().map(|item| self.layout(item, LOOSEST, inside, inside + 1)).collect();
                broken("[", &items, "]", indent)
            }
            ExprKind::Bundle(items) => {
                let items: Vec<String> =
                    items.iter().map(|item| self.layout(item, LOOSEST, inside, inside + 1)).collect();
                broken("{", &items, "}", indent)
            }
            ExprKind::If(condition, then, otherwise) => {
                let condition = self.expr(condition, LOOSEST);
                let then = self.layout(then, LOOSEST, inside, inside);
                let otherwise = match &otherwise.kind {
                    ExprKind::If(..) => self.layout(otherwise, LOOSEST, indent, WIDTH),
                    _ => {
                        let value = self.layout(otherwise, LOOSEST, inside, inside);
                        format!("{{\n{:inside$}{value}\n{:indent$}}}", "", "")
                    }
                };
                format!("if {condition} {{\n{:inside$}{then}\n{:indent$}}} else {otherwise}", "", "")
            }
            ExprKind::Unary(UnaryOp::Not, operand) => {
                format!("not {}", self.layout(operand, NOT, indent, used + 4))
            }
            ExprKind::Unary(UnaryOp::Neg, operand) => {
                format!("-{}", self.layout(operand, NEGATION, indent, used + 1))
            }
            _ => return flat,
        };
        if level(expr) < least { format!("({text})") } else { text }
    }

    fn broken_call(&self, call: &Call, callee: String, indent: usize) -> String {
        let inside = indent + INDENT;
        let args: Vec<String> = call
            .args
            .iter()
            .map(|arg| {
                let label = arg.name.as_ref().map_or(String::new(), |n| format!("{}: ", name(n)));
                let value = self.layout(&arg.value, LOOSEST, inside, inside + width(&label) + 1);
                label + &value
            })
            .collect();
        callee + &broken("(", &args, ")", indent)
    }
}

pub(super) const LOOSEST: u8 = 0;
const NOT: u8 = 3;
const COMPARISON: u8 = 4;
const NEGATION: u8 = 7;
const OPERAND: u8 = 8;
const POSTFIX: u8 = 9;

/// The binding strength of the outermost operator.
fn level(expr: &Expr) -> u8 {
    match &expr.kind {
        ExprKind::Binary(op, ..) => operator(*op).1,
        ExprKind::Unary(UnaryOp::Not, _) => NOT,
        ExprKind::Unary(UnaryOp::Neg, _) => NEGATION,
        ExprKind::Call(call) if call.over.is_some() || call.across.is_some() || !call.of.is_empty() => OPERAND,
        ExprKind::List(_) | ExprKind::Bundle(_) | ExprKind::If(..) => OPERAND,
        _ => POSTFIX,
    }
}

fn operator(op: BinaryOp) -> (&'static str, u8) {
    match op {
        BinaryOp::Or => ("or", 1),
        BinaryOp::And => ("and", 2),
        BinaryOp::Eq => ("==", COMPARISON),
        BinaryOp::Ne => ("!=", COMPARISON),
        BinaryOp::Lt => ("<", COMPARISON),
        BinaryOp::Le => ("<=", COMPARISON),
        BinaryOp::Gt => (">", COMPARISON),
        BinaryOp::Ge => (">=", COMPARISON),
        BinaryOp::Add => ("+", 5),
        BinaryOp::Sub => ("-", 5),
        BinaryOp::Mul => ("*", 6),
        BinaryOp::Div => ("/", 6),
        BinaryOp::MatMul => ("@", 6),
    }
}

/// The minimum binding strength of the operands: all operators are left-associative, comparisons do not chain.
fn sides(op: BinaryOp) -> (u8, u8) {
    let (_, level) = operator(op);
    if level == COMPARISON { (level + 1, level + 1) } else { (level, level + 1) }
}
