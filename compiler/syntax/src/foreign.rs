//! Unicode characters of papers, word processors and other keyboards, and the ASCII tokens that they stand for.

use hgnnc_diag::codes;

use crate::tokens::{Problem, Token};

/// A character outside the language with its intended meaning.
pub(crate) struct Foreign {
    /// The intended token; `None` if the character can be skipped.
    pub token: Option<Token>,
    /// One past the last byte consumed.
    pub end: usize,
    /// The problem to report.
    pub problem: Problem,
}

/// Reads the character at `start`. `before` is the start of the adjacent preceding word.
pub(crate) fn meant(text: &str, before: usize, start: usize) -> Option<Foreign> {
    let character = text[start..].chars().next()?;
    let end = start + character.len_utf8();
    let problem = |end, message, help| Problem::spelling(codes::UNKNOWN_CHARACTER, start, end, message, help);
    if let Some((closing, what)) = quote(character) {
        return Some(quoted(text, start, end, closing, what));
    }
    // A dash or minus before `>` is meant as an arrow.
    let is_dash = matches!(character, '–' | '—' | '−' | '‐' | '‑');
    if is_dash && text[end..].starts_with('>') {
        let message = format!("`{character}>` is written `->`");
        return Some(Foreign { token: Some(Token::Arrow), end: end + 1, problem: problem(end + 1, message, None) });
    }
    if let Some(token) = sign(character) {
        let message = format!("`{character}` is written `{}`", token.text().unwrap_or_default());
        return Some(Foreign { token: Some(token), end, problem: problem(end, message, None) });
    }
    let dropped = match character {
        '²' => Some("a square is `square(x)`".to_owned()),
        '³' => Some("a cube is `pow(x, 3)`".to_owned()),
        'ᵀ' | '⊤' => Some(
            "`transpose(x)` swaps the last two dimensions; `dot(a, b)` multiplies two values row by row".to_owned(),
        ),
        '\u{a0}' | '\u{2007}' | '\u{202f}' | '\u{3000}' => {
            Some("this is a special blank: type an ordinary one".to_owned())
        }
        '\u{200b}'..='\u{200d}' | '\u{2060}' => Some("this character is invisible: remove it".to_owned()),
        _ => None,
    };
    if let Some(help) = dropped {
        let message = format!("unexpected character `{}`", character.escape_debug());
        return Some(Foreign { token: None, end, problem: problem(end, message, Some(help)) });
    }
    let rest = text[start..].find(|c: char| !is_in_name(c)).map_or(text.len(), |length| start + length);
    let is_call = text[rest.max(end)..].trim_start().starts_with('(');
    if let (true, true, Some(function)) = (is_call, before == start && rest.max(end) == end, function(character)) {
        let message = format!("`{character}` is written `{function}`");
        let token = Some(Token::Name(function.to_owned()));
        return Some(Foreign { token, end, problem: problem(end, message, None) });
    }
    if !character.is_alphabetic() {
        return None;
    }
    let name = &text[before..rest];
    let ascii: Option<String> = name.chars().map(in_letters).collect();
    let help = match ascii {
        Some(ascii) => format!("write `{ascii}`, or put the name in backquotes"),
        None => "put the name in backquotes".to_owned(),
    };
    let message = format!("`{name}` has letters other than those of ASCII");
    let problem = Problem::spelling(codes::UNKNOWN_CHARACTER, before, rest, message, Some(help));
    Some(Foreign { token: Some(Token::Name(name.to_owned())), end: rest, problem })
}

fn is_in_name(character: char) -> bool {
    (character.is_alphanumeric() && !matches!(character, '²' | '³' | 'ᵀ')) || character == '_'
}

/// The possible closing quotation marks, and their description.
fn quote(character: char) -> Option<(&'static [char], &'static str)> {
    match character {
        '“' | '”' | '„' | '‟' | '«' | '＂' => Some((&['”', '“', '‟', '»', '"', '＂'], "\"")),
        '‘' | '’' | '‚' => Some((&['’', '‘', '\''], "\"")),
        _ => None,
    }
}

/// A string in other quotation marks, at most up to the end of its line.
fn quoted(text: &str, start: usize, inside: usize, closing: &[char], mark: &str) -> Foreign {
    let line = &text[inside..];
    let line = &line[..line.find('\n').unwrap_or(line.len())];
    let (length, close) = match line.find(closing) {
        Some(length) => (length, line[length..].chars().next().map_or(0, char::len_utf8)),
        // It ends at a bracket, so that brackets still match.
        None => (line.find(['(', ')', '[', ']', '{', '}', ',']).unwrap_or(line.len()), 0),
    };
    let value = line[..length].trim_end();
    let end = if close > 0 { inside + length + close } else { inside + value.len() };
    Foreign {
        token: Some(Token::Text(value.to_owned())),
        end,
        problem: Problem::spelling(
            codes::UNKNOWN_CHARACTER,
            start,
            end,
            "strings stand in straight quotes".to_owned(),
            Some(format!("write {mark}{value}{mark}")),
        ),
    }
}

/// Symbols that mean the same as a token of the language.
fn sign(character: char) -> Option<Token> {
    Some(match character {
        '·' | '×' | '⋅' | '∗' | '⊙' | '∘' | '•' | '＊' => Token::Star,
        '−' | '–' | '—' | '‐' | '‑' => Token::Minus,
        '÷' | '∕' | '⁄' => Token::Slash,
        '＋' => Token::Plus,
        '→' | '⟶' | '⇒' => Token::Arrow,
        '←' | '⟵' | '⇐' => Token::BackArrow,
        '≤' => Token::LessEqual,
        '≥' => Token::GreaterEqual,
        '≠' => Token::NotEqual,
        '∧' => Token::And,
        '∨' => Token::Or,
        '¬' => Token::Not,
        '∈' => Token::In,
        '＝' => Token::Assign,
        '：' => Token::Colon,
        '，' | '、' => Token::Comma,
        '（' => Token::LeftParen,
        '）' => Token::RightParen,
        '［' | '【' => Token::LeftBracket,
        '］' | '】' => Token::RightBracket,
        '｛' => Token::LeftBrace,
        '｝' => Token::RightBrace,
        _ => return None,
    })
}

/// Greek letters that papers use for functions, if called.
fn function(character: char) -> Option<&'static str> {
    match character {
        'σ' => Some("sigmoid"),
        'Σ' | '∑' => Some("sum"),
        '√' => Some("sqrt"),
        _ => None,
    }
}

/// The ASCII spelling of a letter in a name.
fn in_letters(character: char) -> Option<String> {
    let name = match character {
        c if c.is_ascii() => return Some(c.to_string()),
        'α' => "alpha",
        'β' => "beta",
        'γ' | 'Γ' => "gamma",
        'δ' | 'Δ' => "delta",
        'ε' | 'ϵ' => "epsilon",
        'ζ' => "zeta",
        'η' => "eta",
        'θ' | 'Θ' | 'ϑ' => "theta",
        'κ' => "kappa",
        'λ' | 'Λ' => "lambda",
        'μ' | 'µ' => "mu",
        'ν' => "nu",
        'ξ' => "xi",
        'π' => "pi",
        'ρ' => "rho",
        'σ' | 'Σ' => "sigma",
        'τ' => "tau",
        'φ' | 'ϕ' | 'Φ' => "phi",
        'χ' => "chi",
        'ψ' | 'Ψ' => "psi",
        'ω' | 'Ω' => "omega",
        'ä' => "ae",
        'ö' => "oe",
        'ü' => "ue",
        'ß' => "ss",
        'é' | 'è' | 'ê' | 'ë' => "e",
        'á' | 'à' | 'â' => "a",
        'ᵢ' => "_i",
        'ⱼ' => "_j",
        _ => return None,
    };
    Some(name.to_owned())
}
