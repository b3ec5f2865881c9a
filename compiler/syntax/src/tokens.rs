//! Tokens and the lexer.
//!
//! Spellings from other languages (`;`, `:=`, `&&`, `True`, `# …`) are recognised here, reported, and replaced by the
//! intended token, so that each costs one report and causes no further errors.

use std::collections::HashSet;

use hgnnc_diag::{Code, Diagnostic, Diagnostics, FileId, Span, codes};
use logos::{Lexer, Logos};

use crate::foreign::{self, Foreign};
use crate::limit::push;

/// Maximum length of a name, in bytes. Parameter names are composed of the names of layers, vertex types and graphs.
const MAX_NAME: usize = 255;

macro_rules! tokens {
    (reserved { $($reserved:ident $reserved_text:tt)* }
     contextual { $($contextual:ident $contextual_text:tt)* }
     symbols { $($symbol:ident $symbol_text:tt)* }) => {
        /// A token of the language, or a stand-in of error recovery.
        #[derive(Logos, Clone, PartialEq, Debug)]
        #[logos(extras = Vec<Problem>, skip r"[ \t\r\n\f\u{feff}]+")]
        #[allow(missing_docs, reason = "each is spelled out beside its name")]
        pub enum Token {
            $(#[token($reserved_text)] $reserved,)*
            $(#[token($contextual_text)] $contextual,)*
            $(#[token($symbol_text)] $symbol,)*

            #[regex("[A-Za-z_][A-Za-z0-9_]*", |lexer| lexer.slice().to_owned())]
            #[token("`", quoted_name)]
            Name(String),
            // A point belongs to a number only with something behind it: `0..8` is a range.
            #[regex(r"[0-9](?:[eE][+-]|\.?[0-9A-Za-z_])*", number)]
            Number(f64),
            #[token("\"", string)]
            #[regex(r"'[^'\n]*'", single_quoted)]
            Text(String),

            #[regex(r"//[^\n]*", allow_greedy = true)]
            Comment,
            /// Documentation (`///`), without the slashes.
            Doc(String),
            /// Module documentation (`//!`), without the slashes.
            ModuleDoc(String),
            #[regex(r"#([^\[\n][^\n]*)?", allow_greedy = true)]
            HashComment,
            /// An attribute such as `#[allow(W0003)]`.
            #[regex(r"#\[[^\]\n]*\]?")]
            Attribute,
            /// Opens a tuple, `(0.9, 0.999)`, which the language does not have.
            TupleOpen,
            /// Closes a tuple, see [`Token::TupleOpen`].
            TupleClose,

            /// Characters that start no token.
            Unknown,
            /// Replaces an expression that did not parse.
            BadExpr,
            /// Replaces a statement, field, schema item or train entry that did not parse.
            BadElement,
            /// Replaces the head of a vertex type or relation with fields.
            BadDeclHead,
            /// Replaces the head of a stage.
            BadBlockHead,
            /// Replaces the head of a schema.
            BadSchemaHead,
            /// Replaces the head of a layer.
            BadLayerHead,
            /// Replaces the head of a model.
            BadModelHead,
            /// Replaces the head of a train block.
            BadTrainHead,
        }

        /// Reserved words, which are never names.
        pub const RESERVED: &[&str] = &[$($reserved_text),*];

        /// Contextual keywords, which are names in other positions.
        pub const CONTEXTUAL: &[&str] = &[$($contextual_text),*];

        impl Token {
            /// The spelling of a token that has only one.
            pub fn text(&self) -> Option<&'static str> {
                match self {
                    $(Token::$reserved => Some($reserved_text),)*
                    $(Token::$contextual => Some($contextual_text),)*
                    $(Token::$symbol => Some($symbol_text),)*
                    _ => None,
                }
            }

            /// Can it be a name? Contextual keywords can.
            pub fn is_name(&self) -> bool {
                matches!(self, Token::Name(_) $(| Token::$contextual)*)
            }

            /// Is it a reserved word, which is never a name?
            pub fn is_reserved(&self) -> bool {
                matches!(self, $(Token::$reserved)|*)
            }

            /// Converts a contextual keyword to a name.
            fn into_name(self) -> Token {
                match self {
                    $(Token::$contextual => Token::Name($contextual_text.to_owned()),)*
                    other => other,
                }
            }
        }
    };
}

tokens! {
    reserved {
        Use "use" Const "const" Schema "schema" Vertex "vertex" Relation "relation" Metapath "metapath"
        Family "family" Layer "layer" Model "model" Train "train" Param "param" Let "let" Output "output"
        Repeat "repeat"
        Project "project" Aggregate "aggregate" Fuse "fuse" Over "over" Across "across" Of "of" Per "per"
        If "if" Else "else" And "and" Or "or" Not "not" True "true" False "false" Into "into"
        From "from" Counted "counted"
    }
    contextual {
        Loss "loss" Optimizer "optimizer" Schedule "schedule" Clip "clip" Epochs "epochs" Stop "stop"
        Batch "batch" Fanout "fanout" Reuse "reuse" Negatives "negatives" Exclude "exclude" Cutoff "cutoff"
        Every "every"
        When "when" Has "has" Improved "improved" For "for" Select "select" Metrics "metrics" Split "split"
        Dataset "dataset" Seed "seed" F32 "f32" Sparse "sparse" Onehot "onehot" Embedding "embedding"
        Class "class" Multilabel "multilabel" Target "target" Graph "graph" Type "type" Src "src" Dst "dst"
        Shared "shared" Sharing "sharing" Basis "basis" Blocks "blocks" Optional "optional" NoDecay "no_decay" Dim "dim"
        Real "real" Bool "bool" Fn "fn" In "in" Hop "hop" AtVertex "at" Edge "edge" Time "time"
    }
    symbols {
        LeftParen "(" RightParen ")" LeftBracket "[" RightBracket "]" LeftBrace "{" RightBrace "}"
        Comma "," Colon ":" Path "::" Dot "." Range ".." Assign "=" Arrow "->" BackArrow "<-" Plus "+" Minus "-"
        Star "*" Slash "/" At "@" Equal "==" NotEqual "!=" Less "<" LessEqual "<=" Greater ">"
        GreaterEqual ">=" AtMost "at most" Semicolon ";" ColonAssign ":=" AndAnd "&&" OrOr "||" Bang "!" Caret "^" Power "**"
    }
}

impl Token {
    /// Is it `(`, `[` or `{`?
    pub fn is_opening(&self) -> bool {
        matches!(self, Token::LeftParen | Token::LeftBracket | Token::LeftBrace | Token::TupleOpen)
    }

    /// Is it `)`, `]` or `}`?
    pub fn is_closing(&self) -> bool {
        matches!(self, Token::RightParen | Token::RightBracket | Token::RightBrace | Token::TupleClose)
    }

    /// The closing bracket of an opening one.
    pub fn closing(&self) -> Token {
        match self {
            Token::LeftParen => Token::RightParen,
            Token::LeftBracket => Token::RightBracket,
            Token::TupleOpen => Token::TupleClose,
            _ => Token::RightBrace,
        }
    }
}

impl Token {
    /// Is it made of letters, quoted or not?
    fn is_word(&self) -> bool {
        self.is_name() || self.is_reserved()
    }
}

/// A token with its byte range.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Lexeme {
    pub token: Token,
    /// First byte of the token.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Is it the first token on its line?
    pub first: bool,
    /// An error was reported here already; further errors that involve it are consequences.
    pub reported: bool,
}

impl Lexeme {
    /// A stand-in for text that was reported.
    pub fn stand_in(token: Token, start: usize, end: usize) -> Self {
        Self { token, start, end, first: false, reported: true }
    }
}

/// The position of a token boundary.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Pos {
    /// Byte offset in the file.
    pub offset: usize,
    /// Index of the token in the list being parsed.
    pub index: usize,
}

/// A lexical error with its report.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    pub(crate) code: Code,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) message: String,
    pub(crate) label: &'static str,
    pub(crate) help: Option<String>,
}

impl Problem {
    /// A spelling that the language writes in another way.
    pub(crate) fn spelling(code: Code, start: usize, end: usize, message: String, help: Option<String>) -> Self {
        Self { code, start, end, message, label: "", help }
    }
}

/// All tokens of a text, comments included.
pub fn lex(file: FileId, text: &str, diagnostics: &mut Diagnostics) -> Vec<Lexeme> {
    let mut lexer = Token::lexer(text);
    let mut lexemes: Vec<Lexeme> = Vec::new();
    let mut hash_reported = false;
    let mut semicolon_reported = false;
    let mut foreign_reported: HashSet<String> = HashSet::new();
    let mut line_end = 0;
    while let Some(result) = lexer.next() {
        let range = lexer.span();
        let first = lexemes.is_empty() || text[line_end..range.start].contains('\n');
        line_end = range.end;
        let problems = std::mem::take(&mut lexer.extras);
        // A string in single quotes is read as a string.
        let is_read = text[range.clone()].starts_with('\'');
        let mut reported = !problems.is_empty() && !is_read;
        let mut report = |problem: Problem| {
            let span = Span::new(file, problem.start, problem.end);
            let mut diagnostic = Diagnostic::at(problem.code, span, problem.message, problem.label);
            diagnostic.help.extend(problem.help);
            push(diagnostics, diagnostic);
        };
        problems.into_iter().for_each(&mut report);
        let mut misspelled = |meant: &str, help: Option<&str>| {
            let message = format!("`{}` is written `{meant}`", &text[range.clone()]);
            let help = help.map(str::to_owned);
            report(Problem::spelling(codes::UNEXPECTED_TOKEN, range.start, range.end, message, help));
        };
        let token = match result {
            Ok(Token::Comment) => comment(&text[range.clone()]),
            Ok(Token::HashComment) => {
                if !std::mem::replace(&mut hash_reported, true) {
                    report(Problem {
                        code: codes::UNKNOWN_CHARACTER,
                        start: range.start,
                        end: range.start + 1,
                        message: "comments start with `//`, not with `#`".into(),
                        label: "",
                        help: Some("write `//`, here and on the lines below".into()),
                    });
                }
                continue;
            }
            Ok(Token::Semicolon) => {
                if !std::mem::replace(&mut semicolon_reported, true) {
                    report(Problem {
                        code: codes::UNEXPECTED_TOKEN,
                        start: range.start,
                        end: range.end,
                        message: "`;` is not needed".into(),
                        label: "",
                        help: Some(
                            "a statement ends where the next one starts; remove this and every other `;`".into(),
                        ),
                    });
                }
                continue;
            }
            Ok(Token::ColonAssign) => {
                misspelled("=", None);
                Token::Assign
            }
            Ok(Token::AndAnd) => {
                misspelled("and", None);
                Token::And
            }
            Ok(Token::OrOr) => {
                misspelled("or", Some("values are joined by `concat(a, b)`"));
                Token::Or
            }
            Ok(Token::Bang) => {
                misspelled("not", None);
                Token::Not
            }
            Ok(Token::Name(mut name)) => {
                if name.len() > MAX_NAME {
                    report(Problem {
                        code: codes::TOO_LARGE,
                        start: range.start,
                        end: range.end,
                        message: format!("a name of {} bytes", name.len()),
                        label: "too long",
                        help: Some(format!("names have at most {MAX_NAME} bytes")),
                    });
                    name.truncate(name.floor_char_boundary(MAX_NAME));
                }
                Token::Name(name)
            }
            Ok(Token::Caret | Token::Power) => {
                report(Problem::spelling(
                    codes::UNEXPECTED_TOKEN,
                    range.start,
                    range.end,
                    format!("there is no operator `{}`", &text[range.clone()]),
                    Some("a power is `pow(x, 2)`, a square also `square(x)`".into()),
                ));
                // Any binary operator keeps the rest parseable.
                Token::Star
            }
            Ok(token) => token,
            Err(()) => {
                if let Some(last) = lexemes.last_mut()
                    && last.token == Token::Unknown
                    && last.end == range.start
                {
                    last.end = range.end;
                    continue;
                }
                let adjacent = lexemes.last().filter(|last| last.end == range.start && last.token.is_word());
                let before = adjacent.map_or(range.start, |last| last.start);
                match foreign::meant(text, before, range.start) {
                    Some(Foreign { token, end, problem }) => {
                        lexer.bump(end - range.end);
                        line_end = end;
                        // Each such character is reported once.
                        if foreign_reported.insert(text[range.start..end].to_owned()) {
                            report(problem);
                        }
                        let Some(mut token) = token else { continue };
                        if let Token::Name(name) = &mut token {
                            name.truncate(name.floor_char_boundary(MAX_NAME));
                        }
                        let name = token.is_name() && before < range.start;
                        let first = if name { lexemes.pop().is_some_and(|last| last.first) } else { first };
                        let start = if name { before } else { range.start };
                        lexemes.push(Lexeme { token, start, end, first, reported });
                        continue;
                    }
                    None => {
                        reported = true;
                        report(unknown_character(text, range.start, range.end));
                        Token::Unknown
                    }
                }
            }
        };
        // A malformed number becomes a placeholder expression, which is not checked further.
        let token = if reported && matches!(token, Token::Number(_)) { Token::BadExpr } else { token };
        lexemes.push(Lexeme { token, start: range.start, end: range.end, first, reported });
    }
    capital_booleans(file, &mut lexemes, diagnostics);
    plain_names(&mut lexemes);
    lexemes
}

fn comment(text: &str) -> Token {
    let line = |rest: &str| rest.strip_prefix(' ').unwrap_or(rest).trim_end().to_owned();
    match text.strip_prefix("//") {
        Some(rest) if rest.starts_with('!') => Token::ModuleDoc(line(&rest[1..])),
        Some(rest) if rest.starts_with('/') && !rest.starts_with("//") => Token::Doc(line(&rest[1..])),
        _ => Token::Comment,
    }
}

fn unknown_character(text: &str, start: usize, end: usize) -> Problem {
    let character = &text[start..end];
    let help = match character {
        "‖" | "∥" | "⊕" | "⧺" => Some("values are joined by `concat(a, b)`".to_owned()),
        "'" => Some("strings stand in double quotes: \"…\"".to_owned()),
        "%" => Some("there is no remainder; sizes are known when the model is compiled".to_owned()),
        "$" => Some("names stand for themselves".to_owned()),
        "&" => Some("the logical operator is `and`".to_owned()),
        "|" => Some("the logical operator is `or`".to_owned()),
        _ => None,
    };
    Problem {
        code: codes::UNKNOWN_CHARACTER,
        start,
        end,
        message: format!("unexpected character `{}`", character.escape_debug()),
        label: "",
        help,
    }
}

/// `True` and `False` are the booleans of other languages, except as field or argument names.
fn capital_booleans(file: FileId, lexemes: &mut [Lexeme], diagnostics: &mut Diagnostics) {
    for index in 0..lexemes.len() {
        let token = match &lexemes[index].token {
            Token::Name(name) if name == "True" => Token::True,
            Token::Name(name) if name == "False" => Token::False,
            _ => continue,
        };
        let before = index.checked_sub(1).map(|i| &lexemes[i].token);
        let after = lexemes.get(index + 1).map(|l| &l.token);
        let value_follows = [Token::Assign, Token::Colon, Token::Comma, Token::LeftParen, Token::LeftBrace];
        let operators = [Token::And, Token::Or, Token::Not, Token::Equal, Token::NotEqual, Token::If];
        let in_value = before.is_some_and(|t| value_follows.contains(t) || operators.contains(t));
        if !in_value || matches!(after, Some(Token::Colon | Token::Minus | Token::Arrow)) {
            continue;
        }
        let lexeme = &mut lexemes[index];
        // A quoted name is two bytes longer than its text.
        if lexeme.end - lexeme.start > 5 {
            continue;
        }
        let span = Span::new(file, lexeme.start, lexeme.end);
        let text = token.text().unwrap_or_default();
        push(
            diagnostics,
            Diagnostic::at(codes::UNEXPECTED_TOKEN, span, "truth values are written in small letters", "")
                .help(format!("write `{text}`")),
        );
        lexeme.token = token;
    }
}

/// Converts contextual keywords to names: any word after a dot; `basis` and `blocks` unless before `(`; `no_decay`
/// before `=`. This keeps the grammar LR(1) while all of them remain usable as names.
fn plain_names(lexemes: &mut [Lexeme]) {
    for index in 0..lexemes.len() {
        let after_dot = index > 0 && lexemes[index - 1].token == Token::Dot;
        let next = lexemes.get(index + 1).map(|l| l.token.clone());
        // `p.at(1)`, `p.edge(0)`; names everywhere else.
        let is_part = after_dot && next == Some(Token::LeftParen);
        let plain = match lexemes[index].token {
            Token::AtVertex | Token::Edge if is_part => continue,
            Token::AtVertex | Token::Edge => true,
            Token::Basis | Token::Blocks => next != Some(Token::LeftParen),
            Token::NoDecay => next == Some(Token::Assign),
            _ => false,
        };
        let token = &mut lexemes[index].token;
        if after_dot && token.is_reserved() {
            *token = Token::Name(token.text().unwrap_or_default().to_owned());
        } else if plain || after_dot {
            *token = std::mem::replace(token, Token::Unknown).into_name();
        }
    }
}

fn quoted_name(lexer: &mut Lexer<'_, Token>) -> String {
    let start = lexer.span().start;
    let rest = lexer.remainder();
    let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
    match line.find('`') {
        Some(length) => {
            let name = line[..length].to_owned();
            lexer.bump(length + 1);
            if name.is_empty() {
                lexer.extras.push(Problem {
                    code: codes::UNKNOWN_CHARACTER,
                    start,
                    end: start + 2,
                    message: "a name cannot be empty".into(),
                    label: "",
                    help: None,
                });
            }
            name
        }
        None => {
            let length = unterminated_length(line);
            lexer.bump(length);
            lexer.extras.push(Problem {
                code: codes::UNTERMINATED_STRING,
                start,
                end: start + 1 + length,
                message: "quoted name without a closing backquote".into(),
                label: "starts here",
                help: Some("close it with a backquote on the same line".into()),
            });
            line[..length].to_owned()
        }
    }
}

/// The length of an unterminated string: up to the first bracket, so that brackets still match, or to the
/// end of the line.
fn unterminated_length(line: &str) -> usize {
    let end = line.find(['(', ')', '[', ']', '{', '}']).unwrap_or(line.len());
    line[..end].trim_end().len()
}

fn string(lexer: &mut Lexer<'_, Token>) -> String {
    let start = lexer.span().start;
    let rest = lexer.remainder();
    let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
    let mut value = String::new();
    let mut characters = line.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                lexer.bump(at + 1);
                return value;
            }
            '\\' => match characters.next() {
                Some((_, '"')) => value.push('"'),
                Some((_, '\\')) => value.push('\\'),
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, other)) => lexer.extras.push(Problem {
                    code: codes::BAD_ESCAPE,
                    start: start + 1 + at,
                    end: start + 2 + at + other.len_utf8(),
                    message: format!("unknown escape `\\{}`", other.escape_debug()),
                    label: "",
                    help: Some(r#"there are \", \\, \n and \t; a backslash is written \\"#.into()),
                }),
                None => break,
            },
            other => value.push(other),
        }
    }
    // Errors inside an unterminated string would be misleading.
    lexer.extras.clear();
    let length = unterminated_length(line);
    lexer.bump(length);
    lexer.extras.push(Problem {
        code: codes::UNTERMINATED_STRING,
        start,
        end: start + 1 + length,
        message: "string without a closing quote".into(),
        label: "starts here",
        help: Some("close it with `\"` on the same line".into()),
    });
    line[..length].to_owned()
}

fn single_quoted(lexer: &mut Lexer<'_, Token>) -> String {
    let range = lexer.span();
    let inside = &lexer.slice()[1..range.len() - 1];
    lexer.extras.push(Problem {
        code: codes::UNKNOWN_CHARACTER,
        start: range.start,
        end: range.end,
        message: "strings stand in double quotes".into(),
        label: "",
        help: Some(format!("write \"{inside}\"")),
    });
    inside.to_owned()
}

fn number(lexer: &mut Lexer<'_, Token>) -> f64 {
    // A single point behind a number is part of a malformed one.
    let rest = lexer.remainder();
    if rest.starts_with('.') && !rest.starts_with("..") {
        lexer.bump(1);
    }
    let text = lexer.slice();
    let mut problem = |code, message, help: &str| {
        let range = lexer.span();
        let help = Some(help.to_owned());
        lexer.extras.push(Problem { code, start: range.start, end: range.end, message, label: "", help });
        0.0
    };
    if !is_number(text) {
        return problem(
            codes::BAD_NUMBER,
            format!("malformed number `{text}`"),
            "numbers look like `1`, `0.5`, `1e-3` or `1_000`",
        );
    }
    // f64 represents every integer up to here exactly.
    const LARGEST_WHOLE: u64 = 1 << 53;
    let is_whole = text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let whole = text.replace('_', "").parse::<u64>().unwrap_or(u64::MAX);
    let mantissa_is_zero = text.split(['e', 'E']).next().is_some_and(|m| m.bytes().all(|b| b"0_.".contains(&b)));
    match text.replace('_', "").parse::<f64>() {
        Ok(_) if is_whole && whole > LARGEST_WHOLE => problem(
            codes::NUMBER_OUT_OF_RANGE,
            format!("`{text}` is too large"),
            "whole numbers go up to 2^53 = 9007199254740992",
        ),
        Ok(value) if value.is_infinite() => {
            problem(codes::NUMBER_OUT_OF_RANGE, format!("`{text}` is too large"), "numbers go up to about 1.8e308")
        }
        Ok(value) if value == 0.0 && !mantissa_is_zero => problem(
            codes::NUMBER_OUT_OF_RANGE,
            format!("`{text}` is too small: it would be 0"),
            "numbers go down to about 5e-324",
        ),
        Ok(value) => value,
        Err(_) => problem(codes::BAD_NUMBER, format!("malformed number `{text}`"), "numbers look like `0.5`"),
    }
}

/// Digits with optional digit groups, fraction and exponent.
fn is_number(text: &str) -> bool {
    let digits =
        |part: &str| part.split('_').all(|group| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit()));
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let exponent_fits = exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)));
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(mantissa),
    };
    mantissa_fits && exponent_fits
}
