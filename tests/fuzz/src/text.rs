//! Token-level mutations of programs, TOML and JSON.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// Numbers at the limits of their types, and some texts that resemble numbers.
pub const NUMBERS: [&str; 32] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "5",
    "8",
    "64",
    "0.0",
    "-0.0",
    "0.5",
    "1.5",
    "1e-300",
    "1e308",
    "1e400",
    "1e-400",
    "nan",
    "inf",
    "0x10",
    "1_000",
    "255",
    "65536",
    "100000",
    "1000000",
    "16777217",
    "1073741824",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
];

const CHARACTERS: [char; 18] = [
    '\0',
    '\t',
    '\r',
    '\u{1b}',
    '"',
    '\'',
    '\\',
    '`',
    '#',
    '$',
    '\u{e9}',
    '\u{3bb}',
    '\u{2019}',
    '\u{d7}',
    '\u{202e}',
    '\u{feff}',
    '\u{1f600}',
    '\u{10ffff}',
];

/// The tokens of a text and the text between them: words and numbers, blanks, strings, single characters. Their
/// concatenation is the text.
pub fn tokens(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut found = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end_of = |is_part: &dyn Fn(char) -> bool| rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let length = match first {
            '\n' => 1,
            c if c.is_whitespace() => end_of(&|c| c.is_whitespace() && c != '\n'),
            c if is_word(c) => end_of(&is_word),
            '"' => rest[1..].find(['"', '\n']).map_or(rest.len(), |at| {
                // Includes the closing quote, but not the end of the line.
                at + 1 + usize::from(rest[1 + at..].starts_with('"'))
            }),
            c => c.len_utf8(),
        };
        found.push(&rest[..length]);
        rest = &rest[length..];
    }
    found
}

fn is_blank(token: &str) -> bool {
    token.chars().all(char::is_whitespace)
}

fn is_number(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether the token is an identifier; keywords of declarations are mutated like all other tokens.
fn is_name(token: &str) -> bool {
    const KEYWORDS: [&str; 23] = [
        "across",
        "const",
        "from",
        "features",
        "label",
        "layer",
        "let",
        "links",
        "loss",
        "metapath",
        "model",
        "of",
        "optimizer",
        "output",
        "over",
        "param",
        "relation",
        "reverse",
        "schema",
        "std",
        "train",
        "use",
        "vertex",
    ];
    token.starts_with(|c: char| c.is_alphabetic() || c == '_') && !KEYWORDS.contains(&token)
}

/// Applies `count` mutations. `others` are texts of the same language.
pub fn mutate(text: &str, others: &[String], count: usize, rng: &mut ChaCha8Rng) -> String {
    let mut text = text.to_owned();
    for _ in 0..count {
        text = once(&text, others, rng);
    }
    text
}

fn once(text: &str, others: &[String], rng: &mut ChaCha8Rng) -> String {
    match rng.random_range(0..100) {
        0..22 => by_lines(text, others, rng),
        22..25 => by_characters(text, rng),
        _ => by_tokens(text, others, rng),
    }
}

fn by_tokens(text: &str, others: &[String], rng: &mut ChaCha8Rng) -> String {
    let mut tokens = tokens(text);
    let places = |is_meant: fn(&str) -> bool, tokens: &[&str]| -> Vec<usize> {
        (0..tokens.len()).filter(|&at| is_meant(tokens[at])).collect()
    };
    let solid = places(|token| !is_blank(token), &tokens);
    let Some(&at) = solid.choose(rng) else { return text.to_owned() };
    let numbers = places(is_number, &tokens);
    let names = places(is_name, &tokens);
    // Most often replaces a number or a name by another one, since the result mostly parses.
    match rng.random_range(0..24) {
        0 => {
            tokens.remove(at);
        }
        1 => tokens.insert(at, tokens[at]),
        2 => {
            let other = *solid.choose(rng).expect("one at least, as above");
            tokens.swap(at, other);
        }
        3 => {
            // Swaps with the next token.
            let next = solid.iter().copied().find(|&it| it > at).unwrap_or(at);
            tokens.swap(at, next);
        }
        4 => {
            if let Some(other) = others.choose(rng) {
                let other = self::tokens(other);
                if let Some(token) = other.choose(rng) {
                    tokens[at] = token;
                    return tokens.concat();
                }
            }
        }
        5..10 => {
            if let Some(&at) = numbers.choose(rng) {
                tokens[at] = NUMBERS.choose(rng).expect("a list");
            }
        }
        10..15 => {
            // A name by another one of the same text: mostly parses, and fails later or is valid.
            if let (Some(&at), Some(&other)) = (names.choose(rng), names.choose(rng)) {
                tokens[at] = tokens[other];
            }
        }
        15..18 => {
            // All occurrences.
            if let (Some(&one), Some(&other)) = (names.choose(rng), names.choose(rng)) {
                let (from, to) = (tokens[one], tokens[other]);
                tokens.iter_mut().filter(|token| **token == from).for_each(|token| *token = to);
            }
        }
        18..23 => {
            // A name of another text.
            let other = others.choose(rng).map_or("", |it| it);
            let other: Vec<&str> = self::tokens(other).into_iter().filter(|token| is_name(token)).collect();
            if let (Some(&at), Some(name)) = (names.choose(rng), other.choose(rng)) {
                tokens[at] = name;
                return tokens.concat();
            }
        }
        _ => {
            let depth = if rng.random_ratio(1, 20) { rng.random_range(1..3000) } else { rng.random_range(1..5) };
            let (open, close) =
                *[("(", ")"), ("[", "]"), ("{", "}"), ("relu(", ")"), ("-", ""), ("", " + 1"), ("", ".x"), ("", "[0]")]
                    .choose(rng)
                    .expect("a list");
            let nested = format!("{}{}{}", open.repeat(depth), tokens[at], close.repeat(depth));
            tokens[at] = &nested;
            return tokens.concat();
        }
    }
    tokens.concat()
}

fn by_lines(text: &str, others: &[String], rng: &mut ChaCha8Rng) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    if lines.is_empty() {
        return text.to_owned();
    }
    let first = rng.random_range(0..lines.len());
    let last = (first + rng.random_range(1..6)).min(lines.len());
    match rng.random_range(0..5) {
        0 => {
            lines.drain(first..last);
        }
        1 => {
            let times = if rng.random_ratio(1, 20) { rng.random_range(1..400) } else { 1 };
            let again = lines[first..last].repeat(times);
            lines.splice(last..last, again);
        }
        2 => {
            let other = rng.random_range(0..lines.len());
            lines.swap(first, other);
        }
        3 => {
            if let Some(other) = others.choose(rng) {
                let other: Vec<&str> = other.split_inclusive('\n').collect();
                let begin = rng.random_range(0..=other.len());
                let end = (begin + rng.random_range(0..12)).min(other.len());
                lines.splice(first..first, other[begin..end].iter().copied());
                return lines.concat();
            }
        }
        _ => {
            let part = lines[first..last].concat();
            lines.drain(first..last);
            let at = rng.random_range(0..=lines.len());
            lines.insert(at, &part);
            return lines.concat();
        }
    }
    lines.concat()
}

fn by_characters(text: &str, rng: &mut ChaCha8Rng) -> String {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let at = *ends.choose(rng).expect("the end at least");
    match rng.random_range(0..3) {
        0 => text[..at].to_owned(),
        1 => {
            let mut rest = text[at..].chars();
            rest.next();
            format!("{}{}", &text[..at], rest.as_str())
        }
        _ => format!("{}{}{}", &text[..at], CHARACTERS.choose(rng).expect("a list"), &text[at..]),
    }
}
