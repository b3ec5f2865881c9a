//! Brackets: balances them, splits a file into declarations, and finds the parts that error recovery may replace.
//!
//! Newlines have no meaning in the grammar. They help after an error: a keyword that can only start a declaration or
//! statement, first on its line, shows that an earlier bracket is unclosed.

use hgnnc_diag::{Diagnostic, Diagnostics, FileId, Span, codes};

use crate::limit::push;
use crate::tokens::{Lexeme, Token};

/// Deeper trees would overflow the stack of recursive passes.
const MAX_DEPTH: usize = 200;

/// Number of open brackets searched for the partner of a closing one. Deeper trees are rejected anyway.
const MAX_OPEN: usize = 4 * MAX_DEPTH;

/// Maximum number of labels for several unclosed brackets.
const MAX_LABELS: usize = 3;

/// The construct between a pair of brackets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    Top,
    /// Body of a schema: vertex types, relations, metapaths, families.
    Schema,
    /// Fields of a vertex type or relation.
    Fields,
    /// Body of a layer: stages and statements.
    Layer,
    /// Statements of a stage or model.
    Statements,
    /// Entries of a train block.
    Train,
    /// Part of an expression, a list, or the parameters of a layer.
    Plain,
}

/// Is this the keyword that determines the frame of the next brace?
fn is_head(frame: Frame, token: &Token) -> bool {
    use Token::*;
    match frame {
        Frame::Top => starts_item(token) || matches!(token, BadSchemaHead | BadLayerHead | BadModelHead | BadTrainHead),
        Frame::Schema => matches!(token, Vertex | Relation | Metapath | Family | BadDeclHead),
        // A brace behind `=` is part of an expression.
        Frame::Layer => matches!(token, Param | Project | Aggregate | Fuse | Repeat | Assign | BadBlockHead),
        Frame::Statements => matches!(token, Repeat | Assign),
        Frame::Fields | Frame::Train | Frame::Plain => false,
    }
}

fn opened_by(frame: Frame, head: Option<&Token>, bracket: &Token) -> Frame {
    use Token::*;
    if *bracket != LeftBrace {
        return Frame::Plain;
    }
    match (frame, head) {
        (Frame::Top, Some(Schema | BadSchemaHead)) => Frame::Schema,
        (Frame::Top, Some(Layer | BadLayerHead)) => Frame::Layer,
        (Frame::Top, Some(Model | BadModelHead)) => Frame::Statements,
        (Frame::Top, Some(Train | BadTrainHead)) => Frame::Train,
        (Frame::Schema, Some(Vertex | Relation | BadDeclHead)) => Frame::Fields,
        (Frame::Layer, Some(Project | Aggregate | Fuse | BadBlockHead)) => Frame::Statements,
        (Frame::Layer, Some(Repeat)) => Frame::Layer,
        (Frame::Statements, Some(Repeat)) => Frame::Statements,
        _ => Frame::Plain,
    }
}

/// Keywords that start a top-level declaration.
pub(crate) fn starts_item(token: &Token) -> bool {
    matches!(token, Token::Use | Token::Const | Token::Schema | Token::Layer | Token::Model | Token::Train)
}

/// Keywords that start an entry of a train block.
pub(crate) fn starts_entry(token: &Token) -> bool {
    use Token::*;
    matches!(
        token,
        Loss | Optimizer
            | Schedule
            | Clip
            | Epochs
            | Batch
            | Fanout
            | Reuse
            | Negatives
            | Exclude
            | Cutoff
            | Stop
            | Select
            | Metrics
            | Split
            | Dataset
            | Seed
            | BadElement
    )
}

/// Does the token at `index` start a part of `frame`? `begin` is the first token of the frame.
fn starts_part(frame: Frame, tokens: &[Lexeme], begin: usize, index: usize) -> bool {
    use Token::*;
    let token = &tokens[index].token;
    let previous = (index > begin).then(|| &tokens[index - 1].token);
    let next = tokens.get(index + 1).map(|l| &l.token);
    // An expression cannot continue with a name after an operand, so a name here starts a new part.
    let fresh = tokens[index].first && token.is_name() && previous.is_none_or(ends_operand);
    match frame {
        Frame::Top => starts_item(token),
        Frame::Schema => fresh || matches!(token, Vertex | Relation | Metapath | Family | BadElement | BadDeclHead),
        Frame::Fields => previous.is_none_or(|p| *p == Comma),
        Frame::Layer | Frame::Statements => match token {
            Let | Param | Output | Repeat | BadElement => true,
            Project | Aggregate | Fuse | BadBlockHead if frame == Frame::Layer => true,
            Shared | Sharing => false,
            _ => {
                let assigns = token.is_name() && next == Some(&Assign);
                fresh || assigns && !matches!(previous, Some(Let | Param | Output | Const | Dot | Colon | Per))
            }
        },
        Frame::Train => fresh || *token == BadElement,
        Frame::Plain => false,
    }
}

fn ends_operand(token: &Token) -> bool {
    use Token::*;
    token.is_name()
        || matches!(token, Number(_) | Text(_) | True | False | BadExpr | BadElement | Unknown)
        || token.is_closing()
}

struct Open {
    frame: Frame,
    /// Index of the opening bracket in the output.
    bracket: usize,
    is_brace: bool,
    /// Index of the last keyword that determines the frame of a brace.
    head: Option<usize>,
}

/// Balances the brackets: inserts missing closing brackets and drops unmatched ones. Each is reported once.
pub(crate) fn balance(file: FileId, tokens: Vec<Lexeme>, diagnostics: &mut Diagnostics) -> Vec<Lexeme> {
    let mut out: Vec<Lexeme> = Vec::with_capacity(tokens.len());
    let mut stack = vec![Open { frame: Frame::Top, bracket: 0, is_brace: true, head: None }];
    let mut at_fault = Unclosed { file, diagnostics };
    for index in 0..tokens.len() {
        let lexeme = &tokens[index];
        if let Some(keep) = forgotten(&stack, &tokens, index) {
            at_fault.close(&mut stack, &mut out, keep, Some(lexeme));
        }
        if lexeme.token.is_opening() {
            let top = stack.last().expect("the file itself is never closed");
            let frame = opened_by(top.frame, top.head.map(|head| &out[head].token), &lexeme.token);
            stack.push(Open { frame, bracket: out.len(), is_brace: lexeme.token == Token::LeftBrace, head: None });
        } else if lexeme.token.is_closing() {
            let closes = |open: &Open| out[open.bracket].token.closing() == lexeme.token;
            // A parenthesis does not close a bracket outside the innermost braces.
            let outermost = stack.len().saturating_sub(MAX_OPEN).max(1);
            let near = &stack[outermost..];
            let partner = near.iter().rposition(|open| closes(open) || open.is_brace).map(|i| i + outermost);
            match partner.filter(|&i| closes(&stack[i])) {
                Some(partner) => {
                    at_fault.close(&mut stack, &mut out, partner + 1, Some(lexeme));
                    stack.pop();
                }
                None => {
                    at_fault.stray(lexeme);
                    if let Some(last) = out.last_mut() {
                        last.reported = true;
                    }
                    continue;
                }
            }
        } else if let Some(top) = stack.last_mut()
            && is_head(top.frame, &lexeme.token)
        {
            top.head = Some(out.len());
        }
        out.push(lexeme.clone());
    }
    at_fault.close(&mut stack, &mut out, 1, None);
    out
}

/// If the token at `index` shows that brackets are unclosed: the number of brackets that stay open before it.
fn forgotten(stack: &[Open], tokens: &[Lexeme], index: usize) -> Option<usize> {
    use Token::*;
    let lexeme = &tokens[index];
    let previous = index.checked_sub(1).map(|i| &tokens[i].token);
    let next = tokens.get(index + 1).map(|l| &l.token);
    if !lexeme.first || stack.len() == 1 || !next.is_some_and(Token::is_name) && !lexeme.token.is_name() {
        return None;
    }
    let innermost = |frame: Frame| stack.iter().rposition(|open| open.frame == frame).map(|i| i + 1);
    let after_next = tokens.get(index + 2).map(|l| &l.token);
    let keep = match &lexeme.token {
        token if starts_item(token) => Some(1),
        Vertex | Relation | Metapath | Family => innermost(Frame::Schema),
        Project | Aggregate | Fuse if after_next == Some(&Colon) => innermost(Frame::Layer),
        token => {
            let assigns = token.is_name() && next == Some(&Assign);
            let continues = matches!(previous, Some(Comma | LeftParen | LeftBracket | LeftBrace | Dot));
            // A brace inside an expression may hold misplaced statements; it is not unclosed.
            match stack.iter().rposition(|open| open.is_brace) {
                Some(body) if matches!(stack[body].frame, Frame::Layer | Frame::Statements) => {
                    (matches!(token, Let | Param | Output) || assigns && !continues).then_some(body + 1)
                }
                Some(body) if stack[body].frame == Frame::Train => {
                    (starts_entry(token) && !continues && !is_operand(next)).then_some(body + 1)
                }
                // Fan-outs of single semantic graphs, or a bundle of values.
                Some(body) if body > 0 && stack[body - 1].frame == Frame::Train => {
                    (starts_entry(token) && !continues && !is_operand(next)).then_some(body)
                }
                _ => None,
            }
        }
    };
    keep.filter(|&keep| keep < stack.len())
}

/// Does the next token show that the word is an operand, not the start of an entry?
fn is_operand(next: Option<&Token>) -> bool {
    matches!(next, Some(Token::Colon | Token::Comma | Token::RightParen | Token::RightBrace | Token::Dot))
}

struct Unclosed<'a> {
    file: FileId,
    diagnostics: &'a mut Diagnostics,
}

impl Unclosed<'_> {
    /// Closes all but the first `keep` brackets before `found` (`None`: the end of the file).
    fn close(&mut self, stack: &mut Vec<Open>, out: &mut Vec<Lexeme>, keep: usize, found: Option<&Lexeme>) {
        if stack.len() <= keep {
            return;
        }
        let open = &out[stack[stack.len() - 1].bracket];
        let last = out.last().expect("a bracket was opened");
        let bracket = open.token.text().unwrap_or_default();
        let closing = open.token.closing();
        let closing = closing.text().unwrap_or_default();
        let (code, place, message, label) = match found {
            None => (
                codes::UNEXPECTED_END,
                last,
                format!("the file ends before `{bracket}` is closed"),
                "the last token of the file".to_owned(),
            ),
            Some(found) => (
                codes::UNEXPECTED_TOKEN,
                found,
                format!("`{bracket}` is not closed"),
                format!("expected `{closing}` before this"),
            ),
        };
        let span = Span::new(self.file, place.start, place.end);
        if !last.reported {
            let mut diagnostic = Diagnostic::at(code, span, message, label);
            for open in stack[keep..].iter().rev().take(MAX_LABELS).map(|open| &out[open.bracket]) {
                let opened = Span::new(self.file, open.start, open.end);
                let (bracket, closing) = (open.token.text(), open.token.closing());
                if let (Some(bracket), Some(closing), true) = (bracket, closing.text(), opened != span) {
                    diagnostic = diagnostic.label(opened, format!("this `{bracket}` has no `{closing}`"));
                }
            }
            push(self.diagnostics, diagnostic);
        }
        let end = last.end;
        while stack.len() > keep {
            let open = stack.pop().expect("more than `keep` are left");
            out.push(Lexeme::stand_in(out[open.bracket].token.closing(), end, end));
        }
    }

    fn stray(&mut self, lexeme: &Lexeme) {
        let bracket = lexeme.token.text().unwrap_or_default();
        let span = Span::new(self.file, lexeme.start, lexeme.end);
        push(
            self.diagnostics,
            Diagnostic::at(
                codes::UNEXPECTED_TOKEN,
                span,
                format!("`{bracket}` closes nothing"),
                "nothing is open here that it could close",
            ),
        );
    }
}

/// A pair of brackets; group 0 is the whole declaration.
#[derive(Debug)]
pub(crate) struct Group {
    pub frame: Frame,
    /// Index of the opening bracket; 0 for the declaration.
    pub open: usize,
    /// Index of the closing bracket, or the number of tokens.
    pub close: usize,
    /// Index of the enclosing group.
    pub parent: usize,
}

/// The groups of one declaration with balanced brackets.
#[derive(Debug)]
pub(crate) struct Groups {
    pub list: Vec<Group>,
    /// The group of each token. A closing bracket belongs to its own group, an opening one to the enclosing group.
    pub of: Vec<usize>,
}

impl Groups {
    pub(crate) fn new(tokens: &[Lexeme]) -> Self {
        let mut list = vec![Group { frame: Frame::Top, open: 0, close: tokens.len(), parent: 0 }];
        let mut heads: Vec<Option<usize>> = vec![None];
        let mut of = Vec::with_capacity(tokens.len());
        let mut current = 0;
        for (index, lexeme) in tokens.iter().enumerate() {
            of.push(current);
            let frame = list[current].frame;
            if lexeme.token.is_opening() {
                let frame = opened_by(frame, heads[current].map(|head| &tokens[head].token), &lexeme.token);
                list.push(Group { frame, open: index, close: tokens.len(), parent: current });
                heads.push(None);
                current = list.len() - 1;
            } else if lexeme.token.is_closing() {
                list[current].close = index;
                current = list[current].parent;
            } else if is_head(frame, &lexeme.token) {
                heads[current] = Some(index);
            }
        }
        Self { list, of }
    }

    /// The first token inside a group.
    pub(crate) fn begin(&self, group: usize) -> usize {
        if group == 0 { 0 } else { self.list[group].open + 1 }
    }

    /// Indices of the tokens of `group` that start a part of it.
    pub(crate) fn starts(&self, tokens: &[Lexeme], group: usize) -> Vec<usize> {
        let begin = self.begin(group);
        (begin..self.list[group].close)
            .filter(|&i| self.of[i] == group && starts_part(self.list[group].frame, tokens, begin, i))
            .collect()
    }
}

/// The first token at which the tree would become too deep.
///
/// The depth of a tree is bounded by the number of brackets around a token plus the number of operators beside them.
pub(crate) fn too_deep(tokens: &[Lexeme], groups: &Groups) -> Option<usize> {
    use Token::*;
    #[derive(Default)]
    struct Level {
        operators: usize,
        deepest: usize,
        max: usize,
    }
    let mut levels = vec![Level::default()];
    let mut outside = 0;
    for (index, lexeme) in tokens.iter().enumerate() {
        let group = groups.of[index];
        let level = levels.last_mut().expect("brackets match");
        let token = &lexeme.token;
        let frame = groups.list[group].frame;
        if *token == Comma || starts_part(frame, tokens, groups.begin(group), index) {
            level.max = level.max.max(level.operators + level.deepest);
            (level.operators, level.deepest) = (0, 0);
        }
        let is_operator = matches!(
            token,
            Plus | Minus
                | Star
                | Slash
                | At
                | Dot
                | Not
                | And
                | Or
                | If
                | Else
                | Over
                | Of
                | Into
                | From
                | Equal
                | NotEqual
                | Less
                | LessEqual
                | Greater
                | GreaterEqual
        );
        // A part of a part, as in `x[0][1]`.
        let is_part = *token == LeftBracket && index > 0 && tokens[index - 1].token == RightBracket;
        level.operators += usize::from(is_operator || is_part);
        if outside + level.operators + level.deepest > MAX_DEPTH {
            return Some(index);
        }
        if token.is_opening() {
            outside += level.operators + 1;
            levels.push(Level::default());
        } else if token.is_closing() {
            let inner = levels.pop().expect("brackets match");
            let depth = 1 + inner.max.max(inner.operators + inner.deepest);
            let level = levels.last_mut().expect("brackets match");
            outside -= level.operators + 1;
            level.deepest = level.deepest.max(depth);
        }
    }
    None
}

/// The diagnostic for the span that [`too_deep`] found.
pub(crate) fn too_deep_report(span: Span) -> Diagnostic {
    Diagnostic::at(codes::TOO_DEEP, span, "expression nested too deeply", format!("more than {MAX_DEPTH} levels"))
        .help("give parts of it a name with `let`")
}
