//! Error recovery: chooses the replacement for text that does not parse.
//!
//! The construct around the error (a value, a statement, a field, a head) is replaced by one of the stand-in tokens
//! that the grammar accepts, and the declaration is parsed again. Every repair leaves fewer tokens that are not
//! stand-ins, so recovery terminates.

use std::ops::Range;

use crate::structure::{Frame, Groups};
use crate::tokens::{Lexeme, Token};

/// A replacement of tokens by a stand-in.
#[derive(Debug)]
pub(crate) struct Repair {
    /// The tokens to remove.
    pub range: Range<usize>,
    /// The token to insert.
    pub by: Option<Token>,
}

/// The repair for an error at token `at` (the number of tokens: at the end). With `fresh`, a new part could have
/// started there, so the code before is complete. `None` if the whole declaration must be dropped.
pub(crate) fn repair(tokens: &[Lexeme], groups: &Groups, at: usize, fresh: bool) -> Option<Repair> {
    let (mut at, mut fresh) = (at, fresh);
    let mut group = groups.of.get(at).copied().unwrap_or(0);
    loop {
        let frame = groups.list[group].frame;
        let found = match frame {
            Frame::Plain => None,
            _ if fresh && frame != Frame::Top && frame != Frame::Fields => {
                let range = at..next_part(tokens, groups, group, at);
                Some(Repair { range, by: Some(Token::BadElement) })
            }
            Frame::Top => return repair_item(tokens, groups, at),
            Frame::Fields => Some(repair_field(tokens, groups, group, at)),
            _ => {
                let range = part(tokens, groups, group, at);
                match frame {
                    Frame::Statements => Some(repair_statement(tokens, groups, range, at)),
                    Frame::Layer if is_statement(tokens, range.start) => {
                        Some(repair_statement(tokens, groups, range, at))
                    }
                    Frame::Layer => {
                        Some(repair_head(tokens, groups, range, at, Frame::Statements, Token::BadBlockHead))
                    }
                    Frame::Schema => Some(repair_head(tokens, groups, range, at, Frame::Fields, Token::BadDeclHead)),
                    _ => Some(Repair { range, by: Some(Token::BadElement) }),
                }
            }
        };
        if let Some(repair) = found.filter(|repair| changes(tokens, repair)) {
            return Some(repair);
        }
        fresh = false;
        at = groups.list[group].open;
        group = groups.list[group].parent;
    }
}

/// Is the part that starts at `start` a statement of a layer, and no block?
fn is_statement(tokens: &[Lexeme], start: usize) -> bool {
    let assigns = || tokens.get(start + 1).is_some_and(|next| next.token == Token::Assign);
    match tokens[start].token {
        Token::Let | Token::Param | Token::Output | Token::Repeat => true,
        ref token => token.is_name() && assigns(),
    }
}

/// Does the repair change the tokens? Replacing a stand-in by itself would not terminate.
fn changes(tokens: &[Lexeme], repair: &Repair) -> bool {
    let replaced = &tokens[repair.range.clone()];
    match &repair.by {
        Some(Token::Comma | Token::BadExpr) if replaced.is_empty() => true,
        Some(token) => replaced.len() > 1 || replaced.first().is_some_and(|only| only.token != *token),
        None => !replaced.is_empty(),
    }
}

/// The start of the next part of `group` after token `at`, or the end of the group.
fn next_part(tokens: &[Lexeme], groups: &Groups, group: usize, at: usize) -> usize {
    groups.starts(tokens, group).into_iter().find(|&start| start > at).unwrap_or(groups.list[group].close)
}

/// The part of `group` that an error at `at` belongs to. If `at` starts a part, the part before it is incomplete.
fn part(tokens: &[Lexeme], groups: &Groups, group: usize, at: usize) -> Range<usize> {
    let begin = groups.begin(group);
    let starts = groups.starts(tokens, group);
    let before = starts.iter().copied().rfind(|&start| start < at);
    if at > begin && starts.contains(&at) {
        return before.unwrap_or(begin)..at;
    }
    let start = if starts.contains(&at) { at } else { before.unwrap_or(begin) };
    start..next_part(tokens, groups, group, at)
}

fn repair_field(tokens: &[Lexeme], groups: &Groups, group: usize, at: usize) -> Repair {
    let begin = groups.begin(group);
    let close = groups.list[group].close;
    let is = |index: usize, token: Token| tokens.get(index).is_some_and(|l| l.token == token);
    if at > begin && at < close && tokens[at].token.is_name() && is(at + 1, Token::Colon) && !is(at - 1, Token::Comma) {
        return Repair { range: at..at, by: Some(Token::Comma) };
    }
    let is_comma = |&i: &usize| groups.of[i] == group && tokens[i].token == Token::Comma;
    let start = (begin..at).rfind(is_comma).map_or(begin, |comma| comma + 1);
    let end = (at.max(begin)..close).find(is_comma).unwrap_or(close);
    if start == end {
        // Two consecutive commas.
        return Repair { range: at..(at + 1).min(close), by: None };
    }
    Repair { range: start..end, by: Some(Token::BadElement) }
}

/// Keeps the declared name, so that its uses resolve.
fn repair_statement(tokens: &[Lexeme], groups: &Groups, range: Range<usize>, at: usize) -> Repair {
    let is = |offset: usize, token: Token| {
        tokens.get(range.start + offset).is_some_and(|l| l.token == token && range.start + offset < range.end)
    };
    let named = |offset: usize| tokens.get(range.start + offset).is_some_and(|l| l.token.is_name());
    let assign = match tokens[range.start].token {
        Token::Let if named(1) && is(2, Token::Assign) => Some(2),
        Token::Output if named(1) && is(2, Token::Colon) && named(3) && is(4, Token::Assign) => Some(4),
        Token::Output
            if named(1) && is(2, Token::Colon) && named(3) && is(4, Token::LeftParen) && is(7, Token::Assign) =>
        {
            Some(7)
        }
        Token::Param if named(1) && is(2, Token::Colon) && is(3, Token::LeftBracket) => {
            let open = range.start + 3;
            let close = groups.list.iter().find(|group| group.open == open && group.close > open).map(|g| g.close);
            if let Some(close) = close {
                if at > close {
                    return Repair { range: close + 1..range.end, by: None };
                }
                if at > open && !(close == open + 2 && tokens[open + 1].token == Token::BadExpr) {
                    return Repair { range: open + 1..close, by: Some(Token::BadExpr) };
                }
            }
            None
        }
        _ if named(0) && is(1, Token::Assign) => Some(1),
        _ => None,
    };
    match assign.map(|offset| range.start + offset) {
        Some(assign) if at > assign => {
            let value = assign + 1..range.end;
            let stands_in = value.len() == 1 && tokens[value.start].token == Token::BadExpr;
            if stands_in {
                return Repair { range, by: Some(Token::BadElement) };
            }
            Repair { range: value, by: Some(Token::BadExpr) }
        }
        _ => Repair { range, by: Some(Token::BadElement) },
    }
}

/// Keeps the body of a part, so that errors inside it are reported.
fn repair_head(tokens: &[Lexeme], groups: &Groups, range: Range<usize>, at: usize, body: Frame, head: Token) -> Repair {
    let body = groups.list.iter().find(|group| group.frame == body && range.contains(&group.open));
    match body {
        Some(body) if at <= body.open && tokens[range.start].token != head => {
            Repair { range: range.start..body.open, by: Some(head) }
        }
        Some(body) if at > body.close => Repair { range: body.close + 1..range.end, by: None },
        _ => Repair { range, by: Some(Token::BadElement) },
    }
}

fn repair_item(tokens: &[Lexeme], groups: &Groups, at: usize) -> Option<Repair> {
    let body = groups.list[1..].iter().find(|group| group.parent == 0 && group.frame != Frame::Plain);
    if let Some(body) = body {
        let head = match tokens[0].token {
            Token::Schema => Token::BadSchemaHead,
            Token::Layer => Token::BadLayerHead,
            Token::Model => Token::BadModelHead,
            Token::Train => Token::BadTrainHead,
            _ if at > body.close => return Some(Repair { range: body.close + 1..tokens.len(), by: None }),
            _ => return None,
        };
        if at > body.close {
            return Some(Repair { range: body.close + 1..tokens.len(), by: None });
        }
        return (at <= body.open).then_some(Repair { range: 0..body.open, by: Some(head) });
    }
    let is_const = tokens[0].token == Token::Const
        && tokens.get(1).is_some_and(|l| l.token.is_name())
        && tokens.get(2).is_some_and(|l| l.token == Token::Assign);
    let stands_in = tokens.len() == 4 && tokens[3].token == Token::BadExpr;
    if is_const && at > 2 && !stands_in {
        return Some(Repair { range: 3..tokens.len(), by: Some(Token::BadExpr) });
    }
    None
}
