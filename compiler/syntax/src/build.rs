//! Node constructors shared by the grammar actions. They only build nodes.

use hgnnc_diag::FileId;

use crate::ast::*;
use crate::tokens::Pos;

pub(crate) fn span(file: FileId, start: Pos, end: Pos) -> Span {
    Span::new(file, start.offset, end.offset)
}

pub(crate) fn ident(name: &str, span: Span) -> Ident {
    Ident { name: name.to_owned(), span }
}

pub(crate) fn expr(kind: ExprKind, span: Span) -> Expr {
    Expr { kind, span }
}

pub(crate) fn binary(op: BinaryOp, left: Expr, right: Expr, span: Span) -> Expr {
    expr(ExprKind::Binary(op, Box::new(left), Box::new(right)), span)
}

pub(crate) fn unary(op: UnaryOp, operand: Expr, span: Span) -> Expr {
    expr(ExprKind::Unary(op, Box::new(operand)), span)
}

/// The first result of a layer may be unnamed. It is called `out`, with the span of its type.
pub(crate) fn unnamed_result(rows: ValueRows, dims: Option<Vec<Expr>>, span: Span) -> LayerResult {
    LayerResult { name: ident("out", span), rows, dims: dims.unwrap_or_default(), span }
}

pub(crate) fn first_of(first: LayerResult, rest: Vec<LayerResult>) -> Vec<LayerResult> {
    std::iter::once(first).chain(rest).collect()
}

pub(crate) fn prepend(first: Arg, rest: Vec<Arg>) -> Vec<Arg> {
    std::iter::once(first).chain(rest).collect()
}

/// A repetition in a layer: of blocks, or of statements alone.
pub(crate) fn repeated(times: Expr, body: Vec<LayerStmt>, span: Span) -> LayerStmt {
    if body.iter().any(|stmt| !matches!(stmt, LayerStmt::Statement(_))) {
        return LayerStmt::Repeat(Repeat { times, body, span });
    }
    let statements = body.into_iter().filter_map(|stmt| match stmt {
        LayerStmt::Statement(stmt) => Some(stmt),
        LayerStmt::Block(_) | LayerStmt::Repeat(_) => None,
    });
    LayerStmt::Statement(Stmt::Repeat(Repeat { times, body: statements.collect(), span }))
}
