//! Trees and reports of the files in `tests/cases/parse`, and operator precedence.

mod outline;

use std::path::Path;

use hgnnc_diag::{Diagnostics, SourceMap, codes, render};
use hgnnc_syntax::ast::{Item, Module};
use hgnnc_syntax::{format, parse};

struct Parsed {
    module: Module,
    diagnostics: Diagnostics,
    sources: SourceMap,
}

impl Parsed {
    fn reports(&self) -> String {
        render::plain(&self.sources, self.diagnostics.iter())
    }
}

fn read(name: &str, text: &str) -> Parsed {
    let mut sources = SourceMap::default();
    let file = sources.add(name, text);
    let mut diagnostics = Diagnostics::default();
    let module = parse(file, text, &mut diagnostics);
    Parsed { module, diagnostics, sources }
}

/// Each case file: the tree and the canonical text, or, below `errors`, the reports.
mod cases {
    include!(concat!(env!("OUT_DIR"), "/parse.rs"));
}

fn read_file(path: &Path) -> (String, Parsed) {
    let text = std::fs::read_to_string(path).expect("the case is readable");
    let name = path.file_name().expect("it is a file").to_string_lossy();
    let parsed = read(&name, &text);
    (text, parsed)
}

fn case(name: &str) {
    let (text, parsed) = read_file(&Path::new("../../tests/cases/parse").join(name));
    let tree = outline::module(&parsed.module);
    if let Some(name) = name.strip_prefix("errors/") {
        assert!(parsed.diagnostics.has_errors());
        let text = format!("{text}\n---- reports ----\n{}\n---- tree ----\n{tree}", parsed.reports());
        insta::with_settings!({ snapshot_suffix => name }, { insta::assert_snapshot!("errors", text) });
        return;
    }
    assert_eq!(parsed.reports(), "");
    let formatted = format(&parsed.module, &text);
    let again = read("formatted", &formatted);
    assert_eq!(again.reports(), "", "{formatted}");
    assert_eq!(outline::module(&again.module), tree);
    assert_eq!(format(&again.module, &formatted), formatted);
    let text = format!("{formatted}\n---- tree ----\n{tree}");
    insta::with_settings!({ snapshot_suffix => name }, { insta::assert_snapshot!("cases", text) });
}

#[test]
fn every_text_code_has_a_case() {
    let mut seen = Vec::new();
    for entry in std::fs::read_dir("../../tests/cases/parse/errors").expect("there are error cases") {
        let (_, parsed) = read_file(&entry.expect("it can be listed").path());
        seen.extend(parsed.diagnostics.iter().map(|d| d.code));
    }
    // Too large for a case file: see `deep_nesting_is_refused`.
    seen.push(codes::TOO_DEEP);
    for code in hgnnc_diag::Code::all().filter(|code| code.name().starts_with("E01")) {
        assert!(seen.contains(&code), "{code} has no case");
    }
}

/// The tree of an expression, which must not change by formatting.
fn tree(text: &str) -> String {
    let value = |text: &str| {
        let parsed = read("expression", text);
        assert_eq!(parsed.reports(), "", "{text}");
        match parsed.module.items.as_slice() {
            [Item::Const(item)] => (outline::expr(&item.value), format(&parsed.module, text)),
            other => panic!("{text}: {other:?}"),
        }
    };
    let (tree, formatted) = value(&format!("const x = {text}"));
    let (again, formatted_again) = value(&formatted);
    assert_eq!(tree, again, "{formatted}");
    assert_eq!(formatted, formatted_again);
    tree
}

#[test]
fn precedence() {
    let rules = [
        ("a or b and c", "(Or a (And b c))"),
        ("(a or b) and c", "(And (Or a b) c)"),
        ("a or b or c", "(Or (Or a b) c)"),
        ("a or (b or c)", "(Or a (Or b c))"),
        ("a and not b or c", "(Or (And a (Not b)) c)"),
        ("not a and b", "(And (Not a) b)"),
        ("not a == b", "(Not (Eq a b))"),
        ("(not a) == b", "(Eq (Not a) b)"),
        ("not not a", "(Not (Not a))"),
        ("a + b < c - d", "(Lt (Add a b) (Sub c d))"),
        ("(a < b) == (c >= d)", "(Eq (Lt a b) (Ge c d))"),
        ("a != b and c <= d and e > f", "(And (And (Ne a b) (Le c d)) (Gt e f))"),
        ("a - b - c", "(Sub (Sub a b) c)"),
        ("a - (b - c)", "(Sub a (Sub b c))"),
        ("a - b + c", "(Add (Sub a b) c)"),
        ("a + b * c", "(Add a (Mul b c))"),
        ("(a + b) * c", "(Mul (Add a b) c)"),
        ("a * b @ c / d", "(Div (MatMul (Mul a b) c) d)"),
        ("a * (b @ c)", "(Mul a (MatMul b c))"),
        ("a @ w + b", "(Add (MatMul a w) b)"),
        ("-a * b", "(Mul (Neg a) b)"),
        ("-(a * b)", "(Neg (Mul a b))"),
        ("a * -b", "(Mul a (Neg b))"),
        ("a - -b", "(Sub a (Neg b))"),
        ("--a", "(Neg (Neg a))"),
        ("-a.b", "(Neg (. a b))"),
        ("(-a).b", "(. (Neg a) b)"),
        ("a.b.c", "(. (. a b) c)"),
        ("f(a).b", "(. (f a) b)"),
        ("(3).b", "(. 3 b)"),
        ("e.src.over", "(. (. e src) over)"),
        ("(a + b).c", "(. (Add a b) c)"),
        ("sum(a * b) over in_edges * c", "(Mul (sum (Mul a b) over=in_edges) c)"),
        ("-sum(a) over in_edges + b", "(Add (Neg (sum a over=in_edges)) b)"),
        ("(sum(a) over in_edges).b", "(. (sum a over=in_edges) b)"),
        ("softmax(a) over in_edges across graphs", "(softmax a over=in_edges across=graphs)"),
        ("sum(a) across graphs + b", "(Add (sum a across=graphs) b)"),
        ("C() over g of h.Paper + 1", "(Add (C over=g of={ (. h Paper) }) 1)"),
        ("C() over g of (h.Paper + 1)", "(C over=g of={ (Add (. h Paper) 1) })"),
        ("C() over g of {a, b.c} * 2", "(Mul (C over=g of={ {a (. b c)} }) 2)"),
        ("C() over g of f(a, 1)", "(C over=g of={ (f a 1) })"),
        ("C() over g of (a, n: b)", "(C over=g of={ a n:b })"),
        ("C() over g of (n: b)", "(C over=g of={ n:b })"),
        ("C() over g of ([a, b])", "(C over=g of={ [a b] })"),
        ("C() of D() of x", "(C of={ (D of={ x }) })"),
        ("C() over g of D() over h of x", "(C over=g of={ (D over=h of={ x }) })"),
        ("C() over g of D()", "(C over=g of={ (D) })"),
        ("C() over g of (D() over h)", "(C over=g of={ (D over=h) })"),
        ("C() over [g, reverse(h)] into V of x", "(C over=(into [g (reverse h)] V) of={ x })"),
        ("C() over relations from V", "(C over=(from relations V))"),
        ("if a { b } else { c } + d", "(Add (if a b c) d)"),
        ("a + if b { c } else { d }", "(Add a (if b c d))"),
        ("if a { b } else if c { d } else { e }", "(if a b (if c d e))"),
        ("if a { {b, c} } else { [d] }", "(if a {b c} [d])"),
        ("if f() of x { a } else { b }", "(if (f of={ x }) a b)"),
        ("f(a, lr: 0.1, epochs: 3,)", "(f a lr:0.1 epochs:3)"),
        ("f(loss, class, in, target)", "(f loss class in target)"),
        ("`odd name`.`2nd` + `if`", "(Add (. odd name 2nd) if)"),
        ("[]", "[]"),
        ("[1, 2.0, 1_000, 1e-3]", "[1 2 1000 0.001]"),
        ("true and not false", "(And true (Not false))"),
    ];
    for (text, expected) in rules {
        assert_eq!(tree(text), expected, "{text}");
    }
}

#[test]
fn comparisons_do_not_chain() {
    for text in ["a < b < c", "a == b != c"] {
        let parsed = read("chain", &format!("const x = {text}"));
        assert!(parsed.reports().contains("comparisons do not chain"), "{}", parsed.reports());
    }
}

#[test]
fn words_of_one_place_are_names_elsewhere() {
    let text = "schema S { vertex class { type: f32, target: onehot } relation src: class -> class }
        layer loss(seed: dim, for = 1) of has: improved[in] -> improved[seed] {
            param optional: [4] per graph blocks(2) = no_decay no_decay
            param basis: [] shared
            project real: improved {
                no_decay = real.let + basis
                basis = no_decay
                blocks = fn
            }
        }";
    assert_eq!(read("words", text).reports(), "");
}

#[test]
fn deep_nesting_is_refused() {
    let nest = |open: &str, close: &str, count: usize| {
        format!("const deep = {}1{}\nconst next = +\n", open.repeat(count), close.repeat(count))
    };
    let shapes = [
        ("(", ")"),
        ("[", "]"),
        ("{", "}"),
        ("f(", ")"),
        ("- ", ""),
        ("not ", ""),
        ("", " + 1"),
        ("", " @ 1"),
        ("if a { ", " } else { 1 }"),
        ("if a { 1 } else { ", " }"),
        ("if a { 1 } else ", ""),
        ("C() over g of ", ""),
        ("f(n: ", ")"),
        ("(1, ", ")"),
        ("a", ".b"),
        ("", "[0]"),
        ("f() over [", "]"),
        ("f() over g", " into V"),
        ("(1 + ", " + 1)"),
    ];
    for (open, close) in shapes {
        for count in [300, 100_000] {
            let parsed = read("deep", &nest(open, close, count));
            let found: Vec<_> = parsed.diagnostics.iter().map(|d| d.code).collect();
            assert!(found.contains(&codes::TOO_DEEP), "{open}…{close}: {found:?}");
            // The next declaration is parsed as well: its own error is reported.
            assert!(found.contains(&codes::UNEXPECTED_TOKEN), "{open}…{close}: {found:?}");
        }
    }
    assert_eq!(read("shallow", &format!("const x = {}1{}", "(".repeat(150), ")".repeat(150))).reports(), "");
    assert_eq!(read("long", &format!("const x = [{}]", "1 + 1, ".repeat(10_000))).reports(), "");
}

#[test]
fn unterminated_brackets_in_masses() {
    for bracket in ["(", "[", "{", ")", "]", "}", "{(", "model M(schema: S) {"] {
        let parsed = read("brackets", &bracket.repeat(50_000));
        assert!(parsed.diagnostics.has_errors());
    }
}

#[test]
fn comments_are_kept_by_position() {
    let text = "// first
//! doc
// before use

use std::han::HanConv // behind use
/// doc
// between doc and layer
layer A() of x: V[in] -> V[in] { // behind head
  // in front

  project v: V { // behind stage
     h = f( // inside
        v.x // behind argument
     ) // behind statement
     // last

  } // behind brace

  // end of body
}
schema S { vertex V { x: f32, // behind field
// before y
y: f32 } /// not a doc
}
// end";
    let parsed = read("comments", text);
    assert_eq!(parsed.reports(), "");
    insta::assert_snapshot!(format(&parsed.module, text));
}

#[test]
fn a_comment_in_front_of_an_initialiser_belongs_to_the_field() {
    let text = "schema S { vertex V { last: embedding[2] // c\n = uniform(0.1), y: f32 } }";
    let once = format(&read("field", text).module, text);
    assert!(once.contains("// c\n        last: embedding[2] = uniform(0.1),\n"), "{once}");
    assert_eq!(format(&read("field", &once).module, &once), once);
}

#[test]
fn a_limit_that_is_too_large_keeps_its_exponent() {
    let text = "schema S { vertex V relation r: V -> V family f = r at most 1e300 per vertex family g = r at most 4e0 per vertex }";
    let once = format(&read("limit", text).module, text);
    assert!(once.contains("at most 1e300 per vertex") && once.contains("at most 4 per vertex"), "{once}");
    assert_eq!(format(&read("limit", &once).module, &once), once);
}

#[test]
fn formatting_comments_again_changes_nothing() {
    let text = |before: &str, after: &str| {
        let model = format!("model M(schema: S) {{\n    let a = 1\n\n{after}}}\n");
        format!("//! doc\n{before}\n{model}")
    };
    for (before, after, formatted) in [
        // With two slashes it would become module documentation.
        ("///! doc\n\nuse std::a::B\n", "", text("\n// ! doc\n\nuse std::a::B\n", "").replace("1\n\n", "1\n")),
        ("\nuse std::a::B\n", "    // one\n    // two\n", text("\nuse std::a::B\n", "    // one\n    // two\n")),
        ("\nuse std::a::B\n", "    // one\n\n    // two\n", text("\nuse std::a::B\n", "    // one\n\n    // two\n")),
    ] {
        let text = text(before, after);
        let first = format(&read("first", &text).module, &text);
        assert_eq!(first, formatted);
        assert_eq!(format(&read("second", &first).module, &first), first);
    }
}

/// A tuple, which the checker rejects, survives formatting.
#[test]
fn formatting_keeps_a_list_of_one_value() {
    let text = "model M(schema: S) {\n    let a = linear((Paper.x,), (8))\n}\n";
    let formatted = format(&read("list", text).module, text);
    assert_eq!(formatted, text.replace("(8)", "8"));
    assert_eq!(format(&read("again", &formatted).module, &formatted), formatted);
}

#[test]
fn comments_behind_successive_lines_are_aligned() {
    let text = "const a = 1 // one\nconst bcd = 2      // two\n\nconst e = 3 // three\n";
    let parsed = read("aligned", text);
    let expected = "const a = 1   // one\nconst bcd = 2 // two\n\nconst e = 3 // three\n";
    assert_eq!(format(&parsed.module, text), expected);
}

#[test]
fn long_lines_are_broken() {
    let long = "a_really_rather_long_name_for_a_value";
    let text = format!(
        "model M(schema: S) {{
            let a = {long} + {long} * {long} - {long} + {long}
            let b = Layer(first: {long}, second: {long}, third: {long}) over [PAP, PSP] of {{Paper.x, Author.x, {long}.x}}
            let c = relu(sum({long} * {long} * {long} * {long}) over in_edges across graphs)
            let d = if {long} == {long} {{ {long} }} else if {long} {{ {long} }} else {{ {long} }}
            let e = [{long}, {long}, {long}, {long}]
        }}
        layer L(a: dim, b: dim, {long}: real = 0.5, {long}2: real = 0.25, {long}3: bool = false) over g: [A -> B] of x: A[in] -> B[a] {{ }}
        schema S {{ vertex V {{ {long}: f32[3], {long}2: f32[3] sparse, {long}3: class[3] from \"y\" }} }}"
    );
    let parsed = read("long", &text);
    assert_eq!(parsed.reports(), "");
    let formatted = format(&parsed.module, &text);
    let again = read("again", &formatted);
    assert_eq!(again.reports(), "", "{formatted}");
    assert_eq!(outline::module(&again.module), outline::module(&parsed.module));
    assert_eq!(format(&again.module, &formatted), formatted);
    insta::assert_snapshot!(formatted);
}

#[test]
fn lines_may_end_as_on_windows() {
    let text = "//! doc\r\nconst a = 1 // one\r\nconst b = f(\r\n  a\r\n)\r\n";
    let parsed = read("crlf", text);
    assert_eq!(parsed.reports(), "");
    assert_eq!(parsed.module.doc, ["doc"]);
    assert_eq!(format(&parsed.module, text), "//! doc\n\nconst a = 1 // one\nconst b = f(a)\n");
}
