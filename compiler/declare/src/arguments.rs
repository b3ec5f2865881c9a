//! Arguments of calls, sorted by parameter.

use hgnnc_diag::synonyms::{self, Meant};
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_syntax::ast::{Arg, Expr, ExprKind, Ident};
use hgnnc_syntax::format_expr;

use crate::names::suggest;

/// Sorts arguments by parameter: those without a name by position, in front of those with one.
///
/// # Errors
/// All mistakes: arguments that there are no parameters for, and those that are given twice.
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
        (synonyms::meant(synonyms::Place::Argument, &name.name), &value.kind)
        && parts.iter().all(|part| names.contains(part))
    {
        let each = parts.iter().zip(items).map(|(part, item)| format!("{part}: {}", format_expr(item)));
        return report.help(format!("write `{}`", each.collect::<Vec<_>>().join(", ")));
    }
    suggest(report, synonyms::Place::Argument, &name.name, names.iter().copied())
}
