//! Parts of lines that are printed alike everywhere: names, strings, lists, semantic graphs and criteria.

use super::INDENT;
use crate::ast::*;
use crate::tokens::RESERVED;

/// A bracketed list with one item per line.
pub(super) fn broken(open: &str, items: &[String], close: &str, indent: usize) -> String {
    let inside = indent + INDENT;
    let items: String = items.iter().map(|item| format!("{:inside$}{item},\n", "")).collect();
    format!("{open}\n{items}{:indent$}{close}", "")
}

pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

fn is_plain(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

pub(super) fn quote(text: &str) -> String {
    if is_plain(text) && !RESERVED.contains(&text) && text != "True" && text != "False" {
        text.to_owned()
    } else {
        format!("`{text}`")
    }
}

pub(super) fn name(ident: &Ident) -> String {
    quote(&ident.name)
}

/// A field name; after a dot, keywords need no quotes.
pub(super) fn field_name(ident: &Ident) -> String {
    if is_plain(&ident.name) { ident.name.clone() } else { format!("`{}`", ident.name) }
}

pub(super) fn rows(rows: &RowsOf) -> String {
    match rows {
        RowsOf::Name(ident) => name(ident),
        RowsOf::Any(_) => "*".to_owned(),
    }
}

/// The statement whose parameters another has as well.
pub(super) fn sharing(of: &Option<Ident>) -> String {
    of.as_ref().map_or(String::new(), |of| format!(" sharing {}", name(of)))
}

/// The type of an input or result, with its dimensions in brackets.
pub(super) fn value_type(of: &ValueRows, dims: &str) -> String {
    match of {
        ValueRows::Of(of) => format!("{}{dims}", rows(of)),
        ValueRows::PerGraph => format!("per graph{dims}"),
        ValueRows::OfEachGraph(of) => format!("{}{dims} per graph", rows(of)),
    }
}

pub(super) fn from(from: &Option<Text>, source: &str) -> String {
    from.as_ref().map_or(String::new(), |text| format!(" from {}", string(text, source)))
}

/// A string literal as in the source, or quoted anew without one.
pub(super) fn string(text: &Text, source: &str) -> String {
    match source.get(text.span.start as usize..text.span.end as usize) {
        Some(written) if written.len() > 1 && written.starts_with('"') && written.ends_with('"') => written.to_owned(),
        _ => {
            let escaped = text.value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{}\"", escaped.replace('\n', "\\n").replace('\t', "\\t"))
        }
    }
}

pub(super) fn graph_expr(graphs: &GraphExpr) -> String {
    match graphs {
        GraphExpr::Name(ident) => name(ident),
        GraphExpr::Call { function, argument, count, .. } => {
            let count = count.as_ref().map_or_else(String::new, |count| format!(", {}", number_or_constant(count)));
            format!("{}({}{count})", name(function), graph_expr(argument))
        }
        GraphExpr::List(graphs, _) => {
            let graphs: Vec<String> = graphs.iter().map(graph_expr).collect();
            format!("[{}]", graphs.join(", "))
        }
        GraphExpr::Filter { graphs, into, vertex } => {
            format!("{} {} {}", graph_expr(graphs), if *into { "into" } else { "from" }, name(vertex))
        }
        GraphExpr::AtMost { graphs, limit, .. } => {
            format!("{} at most {} per vertex", graph_expr(graphs), number_or_constant(limit))
        }
    }
}

/// Whole numbers of a source go up to 2^53.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0;

fn number_or_constant(limit: &Expr) -> String {
    match &limit.kind {
        ExprKind::Name(constant) => quote(constant),
        // Its digits would be no whole number that can be written.
        ExprKind::Number(number) if *number > LARGEST_WHOLE => format!("{number:e}"),
        ExprKind::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

pub(super) fn criterion_text(criterion: &Criterion) -> String {
    let part = if criterion.part.name == "train" { "train".to_owned() } else { name(&criterion.part) };
    let term = criterion.term.as_ref().map(|term| format!("{}.", field_name(term))).unwrap_or_default();
    format!("{part}.{term}{}", field_name(&criterion.metric))
}
