//! `#[allow(W0003)]` attributes, which silence warnings.
//!
//! An attribute is not part of the grammar. Like a comment it is removed from the tokens, and it applies
//! to the declaration, statement or entry that starts after it. Unused attributes are reported by the
//! code that reports warnings.

use std::collections::{BTreeMap, VecDeque};

use hgnnc_diag::{Diagnostic, Diagnostics, FileId, Span, codes};

use crate::ast::{Allow, Ident};
use crate::limit::push;
use crate::structure::{Frame, Groups, starts_entry};
use crate::tokens::{Lexeme, Token};

const HELP: &str = "write `#[allow(W0003)]` before a declaration, statement or entry";

/// An attribute with the first byte of the token after it.
pub(crate) struct Attribute {
    codes: Vec<Ident>,
    span: Span,
    next: Option<usize>,
}

/// Removes the attributes from the tokens of a file.
pub(crate) fn take(
    file: FileId,
    text: &str,
    lexemes: &mut Vec<Lexeme>,
    diagnostics: &mut Diagnostics,
) -> VecDeque<Attribute> {
    let mut attributes: VecDeque<Attribute> = VecDeque::new();
    let mut next: Option<usize> = None;
    for index in (0..lexemes.len()).rev() {
        let lexeme = &lexemes[index];
        match lexeme.token {
            Token::Comment | Token::Doc(_) | Token::ModuleDoc(_) => {}
            Token::Attribute => {
                let (span, first) = (Span::new(file, lexeme.start, lexeme.end), lexeme.first);
                let codes = codes_of(file, lexeme.start, &text[lexeme.start..lexeme.end]);
                if codes.is_none() {
                    let message = "the only attribute is `#[allow(CODE, …)]`";
                    push(diagnostics, Diagnostic::at(codes::UNEXPECTED_TOKEN, span, message, "").help(HELP));
                }
                attributes.push_front(Attribute { codes: codes.unwrap_or_default(), span, next });
                // Code after the attribute on the same line counts as the start of that line.
                if let Some(follows) = lexemes.get_mut(index + 1) {
                    follows.first |= first;
                }
            }
            _ => next = Some(lexeme.start),
        }
    }
    lexemes.retain(|lexeme| lexeme.token != Token::Attribute);
    attributes
}

/// The codes between the parentheses of `#[allow(…)]`.
fn codes_of(file: FileId, start: usize, text: &str) -> Option<Vec<Ident>> {
    let inside = text.strip_prefix("#[")?.strip_suffix(']')?.trim();
    let list = inside.strip_prefix("allow")?.trim_start().strip_prefix('(')?.strip_suffix(')')?;
    let mut at = start + text.find('(')? + 1;
    let mut codes = vec![];
    for part in list.split(',') {
        let name = part.trim();
        let begin = at + (part.len() - part.trim_start().len());
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return None;
        }
        codes.push(Ident { name: name.to_owned(), span: Span::new(file, begin, begin + name.len()) });
        at += part.len() + 1;
    }
    Some(codes)
}

/// Assigns attributes to the parts of one declaration that they precede. Attributes that precede no part are added to
/// `misplaced`. Attributes and declarations come in source order.
pub(crate) fn hold(
    file: FileId,
    tokens: &[Lexeme],
    attributes: &mut VecDeque<Attribute>,
    misplaced: &mut Vec<Attribute>,
) -> Vec<Allow> {
    let Some(last) = tokens.last() else { return vec![] };
    let mut allows = vec![];
    let mut parts: Option<BTreeMap<usize, usize>> = None;
    while let Some(attribute) = attributes.pop_front_if(|next| next.next.is_some_and(|next| next < last.end)) {
        let parts = parts.get_or_insert_with(|| parts_of(tokens));
        let part = attribute.next.and_then(|next| Some((next, *parts.get(&next)?)));
        match part {
            Some((start, end)) => {
                let extent = Span::new(file, start, end);
                let allow = |code: &Ident| Allow { code: code.clone(), attribute: attribute.span, extent };
                allows.extend(attribute.codes.iter().map(allow));
            }
            None => misplaced.push(attribute),
        }
    }
    allows
}

/// First byte and end of each declaration, statement and entry.
fn parts_of(tokens: &[Lexeme]) -> BTreeMap<usize, usize> {
    let groups = Groups::new(tokens);
    let mut parts = BTreeMap::new();
    for (number, group) in groups.list.iter().enumerate() {
        let starts: Vec<usize> = match group.frame {
            Frame::Plain | Frame::Fields => continue,
            Frame::Top => vec![0],
            Frame::Train => {
                let inside = groups.begin(number)..group.close;
                let is_start = |&i: &usize| groups.of[i] == number && tokens[i].first && starts_entry(&tokens[i].token);
                inside.filter(is_start).collect()
            }
            Frame::Schema | Frame::Layer | Frame::Statements => groups.starts(tokens, number),
        };
        for (index, &start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(group.close);
            // Outer parts come first and win.
            parts.entry(tokens[start].start).or_insert(tokens[end - 1].end);
        }
    }
    parts
}

/// Reports the attributes that precede no declaration, statement or entry.
pub(crate) fn report_misplaced(attributes: impl IntoIterator<Item = Attribute>, diagnostics: &mut Diagnostics) {
    for attribute in attributes {
        let message = "an attribute holds for what stands behind it";
        let label = "nothing that it could hold for";
        push(diagnostics, Diagnostic::at(codes::UNEXPECTED_TOKEN, attribute.span, message, label).help(HELP));
    }
}
