//! For any text: no panic, spans inside the text, and formatting preserves the tree.

mod outline;

use std::path::Path;
use std::sync::LazyLock;

use hgnnc_diag::{Diagnostics, SourceMap, render};
use hgnnc_syntax::ast::Module;
use hgnnc_syntax::tokens::{Token, lex};
use hgnnc_syntax::{format, parse};
use proptest::prelude::*;

const VALID: &[&str] = &[
    include_str!("../../../tests/cases/parse/layer.hgnn"),
    include_str!("../../../tests/cases/parse/model.hgnn"),
    include_str!("../../../tests/cases/parse/schema.hgnn"),
];

fn check(text: &str) -> Result<(), TestCaseError> {
    let mut sources = SourceMap::default();
    let file = sources.add("random", text);
    let mut diagnostics = Diagnostics::default();
    let module = parse(file, text, &mut diagnostics);
    for diagnostic in diagnostics.iter() {
        for label in diagnostic.primary.iter().chain(&diagnostic.secondary) {
            let (start, end) = (label.span.start as usize, label.span.end as usize);
            prop_assert!(text.get(start..end).is_some(), "{diagnostic:?}");
        }
    }
    let reports = render::plain(&sources, diagnostics.iter());
    prop_assert!(!reports.contains("BAD_"), "{}", reports);
    // An incomplete tree can still be printed.
    let formatted = format(&module, text);
    if diagnostics.is_empty() {
        round_trip(text, &module, &formatted)?;
    }
    Ok(())
}

fn round_trip(text: &str, module: &Module, formatted: &str) -> Result<(), TestCaseError> {
    let mut sources = SourceMap::default();
    let file = sources.add("formatted", formatted);
    let mut diagnostics = Diagnostics::default();
    let again = parse(file, formatted, &mut diagnostics);
    let reports = render::plain(&sources, diagnostics.iter());
    prop_assert!(diagnostics.is_empty(), "{text}\n----\n{formatted}\n----\n{reports}");
    prop_assert_eq!(outline::module(&again), outline::module(module));
    prop_assert_eq!(&again.doc, &module.doc);
    prop_assert_eq!(format(&again, formatted), formatted, "{}", text);
    prop_assert_eq!(comments(formatted), comments(text), "{}\n----\n{}", text, formatted);
    Ok(())
}

/// Every file of the repository that parses keeps its meaning and its comments when formatted,
/// and formatting is idempotent.
#[test]
fn files_survive_formatting() {
    let mut formatted = 0;
    for text in FILES.iter() {
        let mut diagnostics = Diagnostics::default();
        let module = parse(hgnnc_diag::FileId(0), text, &mut diagnostics);
        if !diagnostics.has_errors() {
            round_trip(text, &module, &format(&module, text)).unwrap_or_else(|e| panic!("{e}"));
            formatted += 1;
        }
    }
    assert!(formatted > 150, "{formatted} files");
}

/// A tuple, which names no input, stays one: without its own parentheses its items would be inputs.
#[test]
fn a_tuple_as_input_keeps_its_parentheses() {
    let text = "model M(schema: S) {\n    let f = Conv(hidden: 8) over relations of ((x, 0.5))\n}\n";
    check(text).unwrap_or_else(|e| panic!("{e}"));
}

static FILES: LazyLock<Vec<String>> = LazyLock::new(|| files(Path::new("../..")));

/// Examples, the standard library and test cases.
fn files(root: &Path) -> Vec<String> {
    let mut folders: Vec<_> = ["examples", "stdlib", "tests"].map(|folder| root.join(folder)).into();
    let mut texts = vec![];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "hgnn") {
                texts.push(std::fs::read_to_string(path).expect("a text"));
            }
        }
    }
    texts.sort();
    texts
}

/// All comments, sorted, since formatting moves some.
fn comments(text: &str) -> Vec<String> {
    let mut ignored = Diagnostics::default();
    let mut found: Vec<String> = lex(hgnnc_diag::FileId(0), text, &mut ignored)
        .iter()
        .filter(|lexeme| matches!(lexeme.token, Token::Comment | Token::Doc(_) | Token::ModuleDoc(_)))
        // A misplaced `///` becomes `//`, with a space where that would have another meaning.
        .map(|lexeme| text[lexeme.start..lexeme.end].trim().trim_start_matches('/').trim_start().to_owned())
        .collect();
    found.sort();
    found
}

/// The tokens of a valid file, comments included, each with the space after it.
fn pieces(text: &str) -> Vec<String> {
    let mut ignored = Diagnostics::default();
    let lexemes = lex(hgnnc_diag::FileId(0), text, &mut ignored);
    let mut pieces = Vec::new();
    for (index, lexeme) in lexemes.iter().enumerate() {
        let end = lexemes.get(index + 1).map_or(text.len(), |next| next.start);
        pieces.push(text[lexeme.start..end].to_owned());
    }
    pieces
}

#[derive(Clone, Debug)]
enum Edit {
    Delete(usize, usize),
    Duplicate(usize, usize),
    Swap(usize, usize),
    Insert(usize, String),
    Replace(usize, String),
}

const SOUP: &[&str] = &[
    "use",
    "const",
    "schema",
    "vertex",
    "relation",
    "metapath",
    "family",
    "layer",
    "model",
    "train",
    "param",
    "let",
    "output",
    "project",
    "aggregate",
    "fuse",
    "over",
    "across",
    "of",
    "per",
    "if",
    "else",
    "and",
    "or",
    "not",
    "true",
    "in",
    "into",
    "from",
    "counted",
    "loss",
    "optimizer",
    "epochs",
    "batch",
    "fanout",
    "stop",
    "when",
    "has",
    "improved",
    "for",
    "select",
    "metrics",
    "split",
    "seed",
    "f32",
    "sparse",
    "onehot",
    "class",
    "graph",
    "shared",
    "basis",
    "blocks",
    "optional",
    "no_decay",
    "dim",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "::",
    ".",
    "=",
    "->",
    "<-",
    "+",
    "-",
    "*",
    "/",
    "@",
    "==",
    "<",
    ">=",
    "a",
    "B",
    "x1",
    "`odd name`",
    "3",
    "0.5",
    "1e-3",
    "1e",
    "\"text\"",
    "\"open",
    "'s'",
    "\n",
    "\n",
    "// c\n",
    "/// d\n",
    "//! m\n",
    "#\n",
    ";",
    ":=",
    "True",
    "$",
    "ö",
    "\\",
];

fn token() -> impl Strategy<Value = String> {
    prop::sample::select(SOUP).prop_map(str::to_owned)
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = || 0..1000usize;
    prop_oneof![
        (index(), 1..4usize).prop_map(|(at, count)| Edit::Delete(at, count)),
        (index(), 1..8usize).prop_map(|(at, count)| Edit::Duplicate(at, count)),
        (index(), index()).prop_map(|(a, b)| Edit::Swap(a, b)),
        (index(), token()).prop_map(|(at, token)| Edit::Insert(at, token)),
        (index(), token()).prop_map(|(at, token)| Edit::Replace(at, token)),
    ]
}

fn apply(pieces: &mut Vec<String>, edit: &Edit) {
    let length = pieces.len().max(1);
    let spaced = |token: &str| format!(" {token} ");
    match edit {
        Edit::Delete(at, count) => {
            let at = at % length;
            pieces.drain(at..(at + count).min(pieces.len()));
        }
        Edit::Duplicate(at, count) => {
            let at = at % length;
            let copy = pieces[at..(at + count).min(pieces.len())].to_vec();
            pieces.splice(at..at, copy);
        }
        Edit::Swap(a, b) => pieces.swap(a % length, b % length),
        Edit::Insert(at, token) => pieces.insert(at % length, spaced(token)),
        Edit::Replace(at, token) => pieces[at % length] = spaced(token),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn characters(text in "[ -~\n\u{e4}\u{20ac}]{0,200}") {
        check(&text)?;
    }

    #[test]
    fn soup(tokens in prop::collection::vec(token(), 0..80)) {
        check(&tokens.join(" "))?;
    }

    #[test]
    fn mutations(file in prop::sample::select(VALID), edits in prop::collection::vec(edit(), 1..6)) {
        let mut pieces = pieces(file);
        for edit in &edits {
            apply(&mut pieces, edit);
        }
        check(&pieces.concat())?;
    }

    #[test]
    fn prefixes(file in prop::sample::select(VALID), length in 0..4000usize) {
        let end = length.min(file.len());
        check(file.get(..end).unwrap_or(""))?;
    }

    /// Comments and line breaks between any two tokens are kept and change nothing.
    #[test]
    fn comments_anywhere(
        file in prop::sample::select(VALID),
        places in prop::collection::vec((0..1000usize, 0..3usize), 1..12),
    ) {
        let mut pieces = pieces(file);
        for (number, (at, lines)) in places.iter().enumerate() {
            let at = at % pieces.len();
            let comment = format!("{}// comment {number}\n", "\n".repeat(*lines));
            pieces.insert(at, comment);
        }
        let text = pieces.concat();
        // A comment among the lines at the top ends the module documentation, which is an error.
        check(&text)?;
    }

    /// The same property in every file of the repository.
    #[test]
    fn comments_anywhere_in_any_file(
        file in any::<prop::sample::Index>(),
        places in prop::collection::vec((any::<prop::sample::Index>(), 0..3usize), 1..12),
    ) {
        let mut pieces = pieces(file.get::<String>(&FILES));
        for (number, (at, lines)) in places.iter().enumerate() {
            let at = at.index(pieces.len().max(1));
            pieces.insert(at.min(pieces.len()), format!("{}// comment {number}\n", "\n".repeat(*lines)));
        }
        check(&pieces.concat())?;
    }
}
