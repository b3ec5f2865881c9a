//! The parser driver: turns any text into a tree, with error recovery.

use std::collections::HashMap;

use hgnnc_diag::{Diagnostics, FileId, Span, codes};
use lalrpop_util::{ParseError, lalrpop_mod};

use crate::allow;
use crate::ast::{Item, Module};
use crate::limit::push;
use crate::recover::repair;
use crate::report::{Expected, Mistake};
use crate::respell::Respeller;
use crate::structure::{Frame, Groups, balance, starts_item, too_deep, too_deep_report};
use crate::tokens::{Lexeme, Pos, Token, lex};

lalrpop_mod!(
    #[allow(clippy::all, clippy::pedantic, missing_docs, unused, reason = "generated")]
    grammar
);

/// Maximum number of repairs per declaration; more reports are of no use at once.
const MAX_REPAIRS: usize = 64;

/// Maximum number of tokens parsed again per declaration; each repair parses the whole declaration again.
const MAX_READ_AGAIN: usize = 8 << 20;

/// Parses a file. Text that does not parse is reported and omitted from the tree,
/// or replaced by [`ExprKind::Error`](crate::ast::ExprKind::Error).
pub fn parse(file: FileId, text: &str, diagnostics: &mut Diagnostics) -> Module {
    let mut found = Diagnostics::default();
    let mut module = Module::default();
    let mut lexemes = lex(file, text, &mut found);
    let (start, end) = lexemes.last().map_or((0, 0), |last| (last.start, last.end));
    module.end = Some(Span::new(file, start, end));
    take_module_doc(file, &mut lexemes, &mut module, &mut found);
    let mut attributes = allow::take(file, text, &mut lexemes, &mut found);
    lexemes.retain(|lexeme| lexeme.token != Token::Comment);
    let mut docs = take_docs(&mut lexemes);
    module.incomplete = lexemes.iter().any(|lexeme| matches!(lexeme.token, Token::Unknown | Token::BadExpr));
    let before = found.len();
    let tokens = balance(file, lexemes, &mut found);
    module.incomplete |= found.len() > before;
    let starts = item_starts(&tokens);
    let mut misplaced = vec![];
    let mut respeller = Respeller::new(file, text);
    for (number, &start) in starts.iter().enumerate() {
        let end = starts.get(number + 1).copied().unwrap_or(tokens.len());
        let mut own = tokens[start..end].to_vec();
        module.allows.extend(allow::hold(file, &own, &mut attributes, &mut misplaced));
        respeller.respell(&mut own, &mut found);
        let mut item = parse_item(file, text, own, tokens.get(end), &mut found, &mut module.incomplete);
        if let Some(Item::Layer(_) | Item::Model(_)) = item {
            let lines = docs.remove(&tokens[start].start).unwrap_or_default();
            match &mut item {
                Some(Item::Layer(layer)) => layer.doc = lines,
                Some(Item::Model(model)) => model.doc = lines,
                _ => {}
            }
        }
        module.items.extend(item);
    }
    allow::report_misplaced(misplaced.into_iter().chain(attributes), &mut found);
    found.sort();
    diagnostics.append(found);
    module
}

fn take_module_doc(file: FileId, lexemes: &mut Vec<Lexeme>, module: &mut Module, diagnostics: &mut Diagnostics) {
    let mut at_top = true;
    lexemes.retain(|lexeme| {
        let Token::ModuleDoc(line) = &lexeme.token else {
            at_top &= matches!(lexeme.token, Token::Comment);
            return true;
        };
        if at_top {
            module.doc.push(line.clone());
        } else {
            let span = Span::new(file, lexeme.start, lexeme.end);
            push(
                diagnostics,
                hgnnc_diag::Diagnostic::at(codes::UNEXPECTED_TOKEN, span, "`//!` stands only at the top of a file", "")
                    .help("write `//` for a comment, `///` for the documentation of a layer or model"),
            );
        }
        false
    });
}

/// Removes the `///` lines. The result is keyed by the first byte of the token that follows them.
fn take_docs(lexemes: &mut Vec<Lexeme>) -> HashMap<usize, Vec<String>> {
    let mut docs: HashMap<usize, Vec<String>> = HashMap::new();
    let mut waiting = vec![];
    for lexeme in lexemes.iter() {
        match &lexeme.token {
            Token::Doc(line) => waiting.push(line.clone()),
            _ if waiting.is_empty() => {}
            _ => _ = docs.insert(lexeme.start, std::mem::take(&mut waiting)),
        }
    }
    lexemes.retain(|lexeme| !matches!(lexeme.token, Token::Doc(_)));
    docs
}

/// The indices at which declarations start. Tokens before the first keyword form a declaration of their own.
fn item_starts(tokens: &[Lexeme]) -> Vec<usize> {
    let mut depth = 0;
    let mut starts = Vec::new();
    for (index, lexeme) in tokens.iter().enumerate() {
        if depth == 0 && (index == 0 || starts_item(&lexeme.token)) {
            starts.push(index);
        }
        depth += usize::from(lexeme.token.is_opening());
        depth -= usize::from(lexeme.token.is_closing());
    }
    starts
}

fn parse_item(
    file: FileId,
    text: &str,
    mut tokens: Vec<Lexeme>,
    following: Option<&Lexeme>,
    diagnostics: &mut Diagnostics,
    incomplete: &mut bool,
) -> Option<Item> {
    let parser = grammar::TopItemParser::new();
    for _ in 0..MAX_REPAIRS.min(MAX_READ_AGAIN / tokens.len().max(1)).max(2) {
        let groups = Groups::new(&tokens);
        if let Some(at) = too_deep(&tokens, &groups) {
            *incomplete = true;
            let lexeme = &tokens[at];
            push(diagnostics, too_deep_report(Span::new(file, lexeme.start, lexeme.end)));
            apply(&mut tokens, &groups, at, false, |_| ())?;
            continue;
        }
        let (mut at, mut expected) = match parser.parse(file, stream(&tokens)) {
            Ok(item) => return item,
            Err(error) => place(error, tokens.len()),
        };
        *incomplete = true;
        let mut fresh = expected.fresh_part();
        // The grammar took the keyword of the next statement for a missing operand.
        if expected.after_operand() && at > 0 {
            let group = groups.of.get(at).copied().unwrap_or(0);
            let before = at - 1;
            if before > groups.begin(group)
                && !matches!(groups.list[group].frame, Frame::Fields | Frame::Plain | Frame::Top)
                && groups.starts(&tokens, group).contains(&before)
            {
                (at, expected, fresh) = (before, Expected::expression(), false);
            }
        }
        // The grammar took the word that should start a block for a name that is assigned.
        if let Some(before) = at.checked_sub(1)
            && let Some(&group) = groups.of.get(before).filter(|&&group| groups.list[group].frame == Frame::Layer)
            && expected.has("=")
            && tokens[before].first
            && groups.starts(&tokens, group).contains(&before)
        {
            (at, expected, fresh) = (before, Expected::block(), true);
        }
        let mistake = Mistake { file, text, tokens: &tokens, following, at, expected: &expected };
        let report = mistake.report(&groups);
        apply(&mut tokens, &groups, at, fresh, |known| {
            if !known {
                push(diagnostics, report);
            }
        })?;
    }
    None
}

/// Applies a repair, after calling `report` with whether the range was reported before.
fn apply(tokens: &mut Vec<Lexeme>, groups: &Groups, at: usize, fresh: bool, report: impl FnOnce(bool)) -> Option<()> {
    let repair = repair(tokens, groups, at, fresh);
    let reported = |range: std::ops::Range<usize>| tokens[range].iter().any(|lexeme| lexeme.reported);
    let here = at.min(tokens.len())..(at + 1).min(tokens.len());
    let around = repair.as_ref().map_or(0..tokens.len(), |repair| repair.range.clone());
    report(reported(here) || reported(around));
    let repair = repair?;
    let place = |index: usize| tokens.get(index).or(tokens.last()).map_or(0, |l| l.start);
    let start = place(repair.range.start);
    let end = repair.range.clone().last().map_or(start, |last| tokens[last].end);
    let mut by = repair.by.map(|token| Lexeme::stand_in(token, start, end));
    // An inserted comma acts like a written one.
    if let Some(lexeme) = &mut by
        && lexeme.token == Token::Comma
    {
        lexeme.reported = false;
    }
    tokens.splice(repair.range, by);
    Some(())
}

fn stream(tokens: &[Lexeme]) -> impl Iterator<Item = Result<(Pos, Token, Pos), ()>> {
    tokens.iter().enumerate().map(|(index, lexeme)| {
        let start = Pos { offset: lexeme.start, index };
        Ok((start, lexeme.token.clone(), Pos { offset: lexeme.end, index }))
    })
}

/// The index of the rejected token, and the terminals accepted there.
fn place(error: ParseError<Pos, Token, ()>, end: usize) -> (usize, Expected) {
    match error {
        ParseError::UnrecognizedToken { token: (start, ..), expected } => (start.index, Expected::new(&expected)),
        ParseError::UnrecognizedEof { expected, .. } => (end, Expected::new(&expected)),
        ParseError::ExtraToken { token: (start, ..) } => (start.index, Expected::default()),
        ParseError::InvalidToken { location } => (location.index, Expected::default()),
        ParseError::User { .. } => (end, Expected::default()),
    }
}
