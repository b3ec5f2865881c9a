//! One case at least for every code: the file and what is reported about it.

use hgnnc_driver::Code;
use hgnnc_tests::{check, sources};

#[test]
fn cases() {
    let mut silent = vec![];
    insta::glob!("../../cases/diagnostics", "*.hgnn", |path| {
        let name = path.file_name().expect("a case is a file").to_string_lossy();
        let text = std::fs::read_to_string(path).expect("a case is readable");
        let outcome = check(&name, &text);
        let code = name.split('-').next().unwrap_or("");
        if !outcome.codes().contains(&code) {
            silent.push(format!("{name} does not report {code}:\n{}", outcome.reports()));
        }
        insta::assert_snapshot!(format!("{text}\n---- reports ----\n{}", outcome.reports()));
    });
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

#[test]
fn every_code_has_a_case() {
    let names: Vec<String> = sources(&["tests/cases/diagnostics"]).into_iter().map(|(name, _)| name).collect();
    for code in Code::all() {
        let prefix = format!("tests/cases/diagnostics/{code}-");
        assert!(names.iter().any(|name| name.starts_with(&prefix)), "no case shows {code}, {}", code.title());
    }
}

#[test]
fn every_code_is_explained() {
    for code in Code::all() {
        assert!(code.story().lines().count() > 3, "{code} has no story");
    }
}
