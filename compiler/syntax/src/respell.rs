//! Spellings from other languages that lex like this one: `f(x, dim=1)`, `F.relu(x)`, `(0.9, 0.999)`, `epochs: 20`.
//!
//! Each is reported and rewritten before the grammar sees it, so that it costs one report and hides no later error.
//! Spellings that cannot be rewritten are left to the grammar.

use std::collections::HashSet;

use hgnnc_diag::{Diagnostic, Diagnostics, FileId, Span, codes, synonyms};

use crate::limit::push;
use crate::structure::{Frame, Groups, starts_entry};
use crate::tokens::{Lexeme, Token};

/// Spellings that are reported once per file, since a file usually repeats them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Spelling {
    NamedWithEquals,
    EntryWithColon,
    EntryWithComma,
}

/// Respells the declarations of one file.
pub(crate) struct Respeller<'a> {
    pub file: FileId,
    pub text: &'a str,
    reported: HashSet<Spelling>,
}

impl<'a> Respeller<'a> {
    pub(crate) fn new(file: FileId, text: &'a str) -> Self {
        Self { file, text, reported: HashSet::new() }
    }

    /// Rewrites the tokens of one declaration with balanced brackets.
    pub(crate) fn respell(&mut self, tokens: &mut Vec<Lexeme>, diagnostics: &mut Diagnostics) {
        let groups = Groups::new(tokens);
        let mut removed = vec![false; tokens.len()];
        let lists = lists(tokens, &groups);
        // Groups are numbered by opening bracket.
        let mut group = 0;
        for at in 0..tokens.len() {
            group += usize::from(tokens[at].token.is_opening());
            match tokens[at].token {
                Token::Assign if names_argument(tokens, &groups, at) => {
                    tokens[at].token = Token::Colon;
                    let as_in = format!("{}: {}", self.word(&tokens[at - 1]), self.value(tokens, at + 1));
                    let help = format!("as in `{as_in}`, here and wherever else one is named");
                    self.once(
                        Spelling::NamedWithEquals,
                        &tokens[at],
                        "arguments are named with `:`",
                        help,
                        diagnostics,
                    );
                }
                Token::Colon | Token::Assign if ends_entry_word(tokens, &groups, at) => {
                    removed[at] = true;
                    let message = format!("entries have no `{}`", self.word(&tokens[at]));
                    let value = tokens.get(at + 1).map_or("…", |t| self.word(t));
                    let help = format!("write `{} {value}`", self.word(&tokens[at - 1]));
                    self.once(Spelling::EntryWithColon, &tokens[at], &message, help, diagnostics);
                }
                Token::Comma if ends_entry(tokens, &groups, at) => {
                    removed[at] = true;
                    let help = "an entry ends where the next one starts".to_owned();
                    self.once(
                        Spelling::EntryWithComma,
                        &tokens[at],
                        "entries are not joined by `,`",
                        help,
                        diagnostics,
                    );
                }
                Token::LeftParen => {
                    if let Some(prefix) = module_prefix(tokens, at) {
                        removed[prefix.clone()].fill(true);
                        self.without_module(tokens, prefix, at, diagnostics);
                    }
                    if lists[group]
                        && let Some(close) = tuple(tokens, &groups, group)
                    {
                        tokens[at].token = Token::TupleOpen;
                        tokens[close].token = Token::TupleClose;
                    }
                }
                _ => {}
            }
        }
        let mut removed = removed.into_iter();
        tokens.retain(|_| !removed.next().unwrap_or(false));
    }

    /// The source text of a short value: a word, or a number with its sign.
    fn value(&self, tokens: &[Lexeme], at: usize) -> &'a str {
        let signed = tokens.get(at).is_some_and(|sign| sign.token == Token::Minus);
        match (tokens.get(at), tokens.get(at + usize::from(signed))) {
            (Some(first), Some(last)) => &self.text[first.start..last.end],
            _ => "…",
        }
    }

    fn word(&self, lexeme: &Lexeme) -> &'a str {
        &self.text[lexeme.start..lexeme.end]
    }

    fn once(&mut self, spelling: Spelling, at: &Lexeme, message: &str, help: String, diagnostics: &mut Diagnostics) {
        if self.reported.insert(spelling) {
            let span = Span::new(self.file, at.start, at.end);
            push(diagnostics, Diagnostic::at(codes::UNEXPECTED_TOKEN, span, message, "").help(help));
        }
    }

    /// Reports the module path before the function called at `call`, and drops it.
    fn without_module(
        &self,
        tokens: &mut [Lexeme],
        prefix: std::ops::Range<usize>,
        call: usize,
        diagnostics: &mut Diagnostics,
    ) {
        let span = Span::new(self.file, tokens[prefix.start].start, tokens[call - 1].end);
        let written = &self.text[tokens[prefix.start].start..tokens[call - 1].end];
        let name = self.word(&tokens[call - 1]);
        let meant = match synonyms::meant(synonyms::Place::Function, name) {
            Some(synonyms::Meant::Names([only])) => only,
            _ => name,
        };
        tokens[call - 1].token = Token::Name(meant.to_owned());
        let message = format!("there are no modules: `{written}`");
        let report = Diagnostic::at(codes::UNEXPECTED_TOKEN, span, message, "")
            .help(format!("functions go by their names alone: `{meant}(…)`"));
        push(diagnostics, report);
    }
}

/// Is the `=` at `at` part of a named argument?
fn names_argument(tokens: &[Lexeme], groups: &Groups, at: usize) -> bool {
    let group = &groups.list[groups.of[at]];
    let is_call = group.frame == Frame::Plain
        && tokens[group.open].token == Token::LeftParen
        && group.open > 0
        && tokens[group.open - 1].token.is_name()
        // Parameters of a layer use `=` for defaults.
        && groups.list[group.parent].frame != Frame::Top;
    is_call
        && at >= group.open + 2
        && tokens[at - 1].token.is_name()
        && (at == group.open + 2 || tokens[at - 2].token == Token::Comma)
}

fn is_entry(tokens: &[Lexeme], at: usize) -> bool {
    tokens[at].first && starts_entry(&tokens[at].token) && tokens[at].token != Token::BadElement
}

/// Does a `:` or `=` at `at` follow the keyword of an entry?
fn ends_entry_word(tokens: &[Lexeme], groups: &Groups, at: usize) -> bool {
    let group = groups.of[at];
    groups.list[group].frame == Frame::Train && at > groups.begin(group) && is_entry(tokens, at - 1)
}

/// Is the comma at `at` between two entries?
fn ends_entry(tokens: &[Lexeme], groups: &Groups, at: usize) -> bool {
    let group = groups.of[at];
    let close = groups.list[group].close;
    if groups.list[group].frame != Frame::Train {
        return false;
    }
    if at + 1 == close {
        return true;
    }
    let head = (groups.begin(group)..at).rev().find(|&i| groups.of[i] == group && is_entry(tokens, i));
    // The word `loss` is also a metric.
    let is_metric =
        head.is_some_and(|head| tokens[head].token == Token::Metrics) && tokens[at + 1].token == Token::Loss;
    is_entry(tokens, at + 1) && !is_metric
}

/// The tokens of `torch.nn.functional.` before the function called at `call`.
fn module_prefix(tokens: &[Lexeme], call: usize) -> Option<std::ops::Range<usize>> {
    let mut start = call.checked_sub(1).filter(|&name| tokens[name].token.is_name())?;
    while start >= 2 && tokens[start - 1].token == Token::Dot && tokens[start - 2].token.is_name() {
        start -= 2;
    }
    let is_module = |lexeme: &Lexeme| matches!(&lexeme.token, Token::Name(name) if synonyms::is_module(name));
    let joined = start > 0 && tokens[start - 1].token == Token::Dot;
    (start < call - 1 && !joined && is_module(&tokens[start])).then_some(start..call - 1)
}

/// For each group: do commas separate its parts, and is none of them a string?
fn lists(tokens: &[Lexeme], groups: &Groups) -> Vec<bool> {
    let mut joined = vec![false; groups.list.len()];
    let mut of_texts = vec![false; groups.list.len()];
    for (lexeme, &group) in tokens.iter().zip(&groups.of) {
        joined[group] |= lexeme.token == Token::Comma;
        of_texts[group] |= matches!(lexeme.token, Token::Text(_));
    }
    joined.into_iter().zip(of_texts).map(|(joined, of_texts)| joined && !of_texts).collect()
}

/// The closing bracket of a comma-separated group that is a tuple, neither a call nor the inputs of a layer.
fn tuple(tokens: &[Lexeme], groups: &Groups, group: usize) -> Option<usize> {
    let open = groups.list[group].open;
    let (frame, close) = (groups.list[groups.list[group].parent].frame, groups.list[group].close);
    let before = &tokens[open.checked_sub(1)?].token;
    let starts_value = matches!(
        before,
        Token::Colon | Token::Assign | Token::Comma | Token::LeftParen | Token::LeftBracket | Token::TupleOpen
    ) || starts_entry(before);
    let is_operand = starts_value && matches!(frame, Frame::Plain | Frame::Statements | Frame::Train);
    (is_operand && close < tokens.len()).then_some(close)
}
