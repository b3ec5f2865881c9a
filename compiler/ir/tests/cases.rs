//! Case files. `round_trip`: canonical text that prints unchanged. `verify`: `; error: …` stands on the line of each
//! violation, and there are no others. `parse`: `; error: column: …` on the line of the error. `kernel` holds the same
//! kinds of cases for kernel programs.

use std::fs;
use std::path::PathBuf;

use hgnnc_ir::parse::{parse, parse_with_lines};
use hgnnc_ir::{kernel, print, verify};

fn cases(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the case folder exists")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ir"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{}", folder.display());
    files.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).expect("a readable case"))).collect()
}

/// (line, message) of every `; error: …`.
fn expectations(text: &str) -> Vec<(usize, String)> {
    let of_line = |(line, content): (usize, &str)| {
        content.split("; error: ").skip(1).map(|message| (line + 1, message.trim().to_owned())).collect::<Vec<_>>()
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

#[test]
fn canonical_text_prints_as_it_stands() {
    for (path, text) in cases("round_trip") {
        let flow = parse(&text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        let body = text.split_inclusive('\n').skip_while(|line| line.starts_with(';')).collect::<String>();
        let printed = print(&flow);
        assert!(printed == body, "{} prints as\n{printed}", path.display());
        assert_eq!(parse(&printed).as_ref(), Ok(&flow));
        if let Err(broken) = verify(&flow) {
            panic!("{}: {broken:#?}", path.display());
        }
    }
}

#[test]
fn the_verifier_reports_every_broken_rule() {
    for (path, text) in cases("verify") {
        let parsed = parse_with_lines(&text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        let violations = verify(&parsed.flow).expect_err("a broken program");
        let mut found: Vec<(usize, String)> =
            violations.into_iter().map(|broken| (parsed.lines[&broken.place], broken.message)).collect();
        let mut expected = expectations(&text);
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{}", path.display());
    }
}

#[test]
fn errors_in_text_have_a_place() {
    for (path, text) in cases("parse") {
        let error = parse(&text).expect_err("text that does not parse");
        let found = vec![(error.line, format!("{}: {}", error.column, error.message))];
        assert_eq!(found, expectations(&text), "{}", path.display());
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

#[test]
fn canonical_text_of_kernels_prints_as_it_stands() {
    for (path, text) in cases("kernel/round_trip") {
        let program = kernel::parse(&text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        let body = text.split_inclusive('\n').skip_while(|line| line.starts_with(';')).collect::<String>();
        let printed = kernel::print(&program);
        assert!(printed == body, "{} prints as\n{printed}", path.display());
        if let Err(broken) = kernel::verify(&program) {
            panic!("{}: {broken:#?}", path.display());
        }
    }
}

#[test]
fn the_verifier_of_kernels_reports_every_broken_rule() {
    for (path, text) in cases("kernel/verify") {
        let parsed =
            kernel::parse::parse_with_lines(&text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        let violations = kernel::verify(&parsed.program).expect_err("a broken program");
        let mut found: Vec<(usize, String)> =
            violations.into_iter().map(|broken| (parsed.lines[&broken.place], broken.message)).collect();
        let mut expected = expectations(&text);
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{}", path.display());
    }
}

#[test]
fn errors_in_text_of_kernels_have_a_place() {
    for (path, text) in cases("kernel/parse") {
        let error = kernel::parse(&text).expect_err("text that does not parse");
        let found = vec![(error.line, format!("{}: {}", error.column, error.message))];
        assert_eq!(found, expectations(&text), "{}", path.display());
    }
}
