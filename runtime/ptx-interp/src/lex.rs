//! Tokens of PTX text.

use crate::ParseError;

/// Kind of a token, with its value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind<'a> {
    /// `add`, `%r1`, `LOOP`, `_`.
    Name(&'a str),
    /// `.global`, without the dot; also with `::`, as in `.L2::128B`.
    Dot(&'a str),
    /// An integer, as 64 bits.
    Int(u64),
    F32(u32),
    /// `0d…` or a decimal number with a point or exponent.
    F64(u64),
    Text(&'a str),
    /// One of `, ; : { } [ ] ( ) < > + - ! @ | =`.
    Sign(u8),
    /// End of the text.
    End,
}

impl std::fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Name(name) => write!(f, "`{name}`"),
            Kind::Dot(name) => write!(f, "`.{name}`"),
            Kind::Int(value) => write!(f, "`{value}`"),
            Kind::F32(_) | Kind::F64(_) => write!(f, "a number"),
            Kind::Text(text) => write!(f, "\"{text}\""),
            Kind::Sign(sign) => write!(f, "`{}`", *sign as char),
            Kind::End => write!(f, "the end of the text"),
        }
    }
}

/// Start of a token; line and column count from 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Place {
    pub line: u32,
    pub column: u32,
}

impl Place {
    pub fn error(self, message: impl Into<String>) -> ParseError {
        ParseError { line: self.line, column: self.column, message: message.into() }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub kind: Kind<'a>,
    pub place: Place,
}

/// Splits text into tokens; the last is [`Kind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut lexer = Lexer { text, at: 0, line: 1, line_start: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space()?;
        let place = lexer.place();
        let kind = lexer.next(place)?;
        tokens.push(Token { kind, place });
        if kind == Kind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Lexer<'a> {
    fn place(&self) -> Place {
        Place { line: self.line, column: (self.at - self.line_start + 1) as u32 }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_space(&mut self) -> Result<(), ParseError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = self.at;
                }
                (b' ' | b'\t' | b'\r', _) => self.at += 1,
                (b'/', b'/') => {
                    while !matches!(self.peek(0), b'\n' | 0) {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => {
                    let place = self.place();
                    let rest = &self.text[self.at..];
                    let Some(end) = rest.find("*/") else {
                        return Err(place.error("the comment that begins here has no `*/`"));
                    };
                    for (offset, _) in rest[..end].match_indices('\n') {
                        self.line += 1;
                        self.line_start = self.at + offset + 1;
                    }
                    self.at += end + 2;
                }
                _ => return Ok(()),
            }
        }
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.at < self.text.len() && accept(self.peek(0)) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn next(&mut self, place: Place) -> Result<Kind<'a>, ParseError> {
        let first = self.peek(0);
        Ok(match first {
            0 if self.at >= self.text.len() => Kind::End,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' | b'%' => {
                let start = self.at;
                self.at += 1;
                self.take_while(in_name);
                Kind::Name(&self.text[start..self.at])
            }
            b'.' if in_name(self.peek(1)) && !self.peek(1).is_ascii_digit() => {
                self.at += 1;
                let start = self.at;
                self.take_while(in_name);
                while self.peek(0) == b':' && self.peek(1) == b':' {
                    self.at += 2;
                    self.take_while(in_name);
                }
                Kind::Dot(&self.text[start..self.at])
            }
            b'0'..=b'9' | b'.' => self.number(place)?,
            b'"' => {
                self.at += 1;
                let text = self.take_while(|c| c != b'"' && c != b'\n');
                if self.peek(0) != b'"' {
                    return Err(place.error("the text that begins here has no closing `\"`"));
                }
                self.at += 1;
                Kind::Text(text)
            }
            b',' | b';' | b':' | b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b'+' | b'-' | b'!' | b'@'
            | b'|' | b'=' => {
                self.at += 1;
                Kind::Sign(first)
            }
            _ => {
                let found = self.text[self.at..].chars().next().unwrap_or(' ');
                return Err(place.error(format!("`{found}` has no meaning in PTX")));
            }
        })
    }

    fn number(&mut self, place: Place) -> Result<Kind<'a>, ParseError> {
        let bad = |text: &str| place.error(format!("`{text}` is not a number"));
        if self.peek(0) == b'0' && matches!(self.peek(1), b'f' | b'F' | b'd' | b'D' | b'x' | b'X' | b'b' | b'B') {
            let form = self.peek(1).to_ascii_lowercase();
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            return match form {
                b'f' if digits.len() == 8 => u32::from_str_radix(digits, 16).map(Kind::F32).map_err(|_| bad(digits)),
                b'd' if digits.len() == 16 => u64::from_str_radix(digits, 16).map(Kind::F64).map_err(|_| bad(digits)),
                b'f' => Err(place.error("`0f` wants 8 hexadecimal digits")),
                b'd' => Err(place.error("`0d` wants 16 hexadecimal digits")),
                form => {
                    let value = u64::from_str_radix(digits, if form == b'x' { 16 } else { 2 });
                    self.take_while(|c| c == b'U');
                    value.map(Kind::Int).map_err(|_| bad(digits))
                }
            };
        }
        let start = self.at;
        self.take_while(|c| c.is_ascii_digit());
        let mut real = false;
        if self.peek(0) == b'.' {
            real = true;
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if matches!(self.peek(0), b'e' | b'E') {
            real = true;
            self.at += 1;
            if matches!(self.peek(0), b'+' | b'-') {
                self.at += 1;
            }
            self.take_while(|c| c.is_ascii_digit());
        }
        let digits = &self.text[start..self.at];
        if real {
            return digits.parse::<f64>().map(|v| Kind::F64(v.to_bits())).map_err(|_| bad(digits));
        }
        self.take_while(|c| c == b'U');
        let octal = digits.len() > 1 && digits.starts_with('0');
        u64::from_str_radix(digits, if octal { 8 } else { 10 }).map(Kind::Int).map_err(|_| bad(digits))
    }
}

fn in_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$'
}
