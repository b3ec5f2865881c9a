//! Tokens of the text format: names, numbers, values and signs, with their positions.

use std::fmt;

use super::ParseError;

/// A token of the text format, as every level uses it.
#[derive(Clone, PartialEq, Debug)]
pub enum Token {
    /// A name without quotes, or a keyword.
    Word(String),
    /// A name in quotes, unescaped.
    Quoted(String),
    /// The digits of a number, with its sign and exponent.
    Number(String),
    /// The number of a value, written `%7`.
    Value(u32),
    /// One of the signs of the format.
    Sign(&'static str),
    /// The end of the text.
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(word) | Token::Number(word) => write!(f, "`{word}`"),
            Token::Quoted(text) => write!(f, "{text:?}"),
            Token::Value(value) => write!(f, "`%{value}`"),
            Token::Sign(sign) => write!(f, "`{sign}`"),
            Token::End => f.write_str("the end"),
        }
    }
}

pub(super) struct Spanned {
    pub(super) token: Token,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Longer signs come first.
const SIGNS: [&str; 16] = ["->", "+", "{", "}", "[", "]", "(", ")", "|", ",", ":", ";", "=", "@", "<", ">"];

pub(super) fn tokens(text: &str) -> Result<Vec<Spanned>, ParseError> {
    let mut tokens = vec![];
    let mut brackets = 0usize;
    let mut end = (1, 1);
    for (line, content) in text.lines().enumerate() {
        let chars: Vec<char> = content.chars().collect();
        let line = line + 1;
        let mut at = 0;
        while at < chars.len() {
            let start = at;
            let rest = &chars[at..];
            let is = |i: usize, test: fn(&char) -> bool| rest.get(i).is_some_and(test);
            let digits = |from: usize| rest[from..].iter().take_while(|c| c.is_ascii_digit()).count();
            let error = |message: String| Err(ParseError { line, column: start + 1, message });
            let c = rest[0];
            if c.is_whitespace() {
                at += 1;
                continue;
            }
            if (c == '/' && rest.get(1) == Some(&'/')) || (c == ';' && brackets == 0) {
                break;
            }
            let negative = usize::from(c == '-');
            let token = if c.is_ascii_alphabetic() || c == '_' {
                let word = |c: &&char| c.is_ascii_alphanumeric() || **c == '_' || **c == '.';
                at += rest.iter().take_while(word).count();
                Token::Word(rest[..at - start].iter().collect())
            } else if c.is_ascii_digit() || (c == '-' && is(1, |c| c.is_ascii_digit())) {
                let mut len = negative + digits(negative);
                if rest.get(len) == Some(&'.') {
                    len += 1 + digits(len + 1);
                }
                if rest.get(len) == Some(&'e') {
                    let signed = usize::from(rest.get(len + 1) == Some(&'-'));
                    len += 1 + signed + digits(len + 1 + signed);
                }
                at += len;
                Token::Number(rest[..len].iter().collect())
            } else if rest.starts_with(&['-', 'i', 'n', 'f']) {
                at += 4;
                Token::Number("-inf".into())
            } else if c == '%' {
                let len = digits(1);
                at += 1 + len;
                let index: String = rest[1..=len].iter().collect();
                match index.parse() {
                    Ok(index) => Token::Value(index),
                    Err(_) => return error("`%` without the number of a value".into()),
                }
            } else if c == '"' {
                let mut name = String::new();
                at += 1;
                loop {
                    match (chars.get(at), chars.get(at + 1)) {
                        (Some('"'), _) => break,
                        (Some('\\'), Some('n')) => {
                            name.push('\n');
                            at += 2;
                        }
                        (Some('\\'), Some(&c)) => {
                            name.push(c);
                            at += 2;
                        }
                        (Some(&c), _) => {
                            name.push(c);
                            at += 1;
                        }
                        (None, _) => return error("the quotes do not end on this line".into()),
                    }
                }
                at += 1;
                Token::Quoted(name)
            } else if let Some(sign) = SIGNS.iter().find(|sign| rest.iter().copied().take(sign.len()).eq(sign.chars()))
            {
                match *sign {
                    "[" => brackets += 1,
                    "]" => brackets = brackets.saturating_sub(1),
                    _ => {}
                }
                at += sign.len();
                Token::Sign(sign)
            } else {
                return error(format!("`{c}` means nothing here"));
            };
            tokens.push(Spanned { token, line, column: start + 1 });
            end = (line, at + 1);
        }
    }
    tokens.push(Spanned { token: Token::End, line: end.0, column: end.1 });
    Ok(tokens)
}
