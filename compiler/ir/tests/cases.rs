//! Case files. `round_trip`: canonical text that prints unchanged. `verify`: `; error: …` stands on the line of each
//! violation, and there are no others. `parse`: `; error: column: …` on the line of the error.

use hgnnc_ir::parse::{parse, parse_with_lines};
use hgnnc_ir::{Violation, print, verify};

/// The text of a case file.
fn read(folder: &str, name: &str) -> String {
    let path = format!("{}/tests/cases/{folder}/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the case is readable")
}

/// A text without the comments that it begins with.
fn body(text: &str) -> String {
    text.split_inclusive('\n').skip_while(|line| line.starts_with(';')).collect()
}

/// (line, message) of every `; error: …`.
fn expectations(text: &str) -> Vec<(usize, String)> {
    let of_line = |(line, content): (usize, &str)| {
        content.split("; error: ").skip(1).map(|message| (line + 1, message.trim().to_owned())).collect::<Vec<_>>()
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

/// The violations are those that the text expects, each on its line.
fn expect_all<P>(name: &str, text: &str, violations: Vec<Violation<P>>, line: impl Fn(&P) -> usize) {
    let mut found: Vec<(usize, String)> =
        violations.into_iter().map(|broken| (line(&broken.place), broken.message)).collect();
    let mut expected = expectations(text);
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "{name}");
}

/// Canonical text prints as it stands.
mod round_trip {
    use super::*;

    mod files {
        include!(concat!(env!("OUT_DIR"), "/round_trip.rs"));
    }

    fn case(name: &str) {
        let text = read("round_trip", name);
        let flow = parse(&text).unwrap_or_else(|error| panic!("{name}:{error}"));
        let printed = print(&flow);
        assert!(printed == body(&text), "{name} prints as\n{printed}");
        assert_eq!(parse(&printed).as_ref(), Ok(&flow));
        if let Err(broken) = verify(&flow) {
            panic!("{name}: {broken:#?}");
        }
    }
}

/// The verifier reports every broken rule.
mod broken {
    use super::*;

    mod files {
        include!(concat!(env!("OUT_DIR"), "/verify.rs"));
    }

    fn case(name: &str) {
        let text = read("verify", name);
        let parsed = parse_with_lines(&text).unwrap_or_else(|error| panic!("{name}:{error}"));
        let violations = verify(&parsed.flow).expect_err("a broken program");
        expect_all(name, &text, violations, |place| parsed.lines[place]);
    }
}

/// Errors in text have a place.
mod unreadable {
    use super::*;

    mod files {
        include!(concat!(env!("OUT_DIR"), "/parse.rs"));
    }

    fn case(name: &str) {
        let text = read("parse", name);
        let error = parse(&text).expect_err("text that does not parse");
        let found = vec![(error.line, format!("{}: {}", error.column, error.message))];
        assert_eq!(found, expectations(&text), "{name}");
    }
}

#[test]
fn handles_that_name_nothing_are_violations() {
    // Violations that the text format cannot express.
    use hgnnc_ir::{Dataflow, Dim, Graph, Input, Op, Param, Space, Stage, Type, VertexType};
    let mut flow = Dataflow::new("handles");
    let mut value = |op: Op, ty: Type| {
        let data = hgnnc_ir::ValueData {
            op,
            args: vec![],
            ty,
            stage: Stage::FP,
            phase: hgnnc_ir::Phase::Forward,
            origin: None,
        };
        flow.values.push(data);
    };
    value(Op::Input(Input(3)), Type::scalar());
    value(Op::Param(Param(3)), Type::scalar());
    value(Op::Count(Space::Edges(Graph(3))), Type::scalar());
    value(Op::Const(1.0), Type::new(Space::Vertices(VertexType(3)), vec![]));
    value(Op::Const(1.0), Type::new(Space::Unit, vec![Dim::Count(VertexType(3))]));
    flow.outputs
        .push(hgnnc_ir::Output { kind: hgnnc_ir::OutputKind::UpdateParam(Param(3)), value: hgnnc_ir::Value(0) });
    assert_eq!(verify(&flow).expect_err("broken").len(), 6);
    assert!(print(&flow).contains("?in3"));
}
