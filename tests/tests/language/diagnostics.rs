//! One case at least for every code: the file and what is reported about it.

use hgnnc_driver::Code;
use hgnnc_tests::{case_text, check, sources};

use crate::snapshot;

/// A test of each file of `cases/diagnostics`.
#[allow(non_snake_case, reason = "tests are named for the files, which begin with a code")]
mod cases {
    include!(concat!(env!("OUT_DIR"), "/diagnostics.rs"));
}

/// The reports of a file, among which is the code that its name begins with.
fn case(file: &str) {
    let text = case_text("diagnostics", file);
    let outcome = check(file, &text);
    let code = file.split('-').next().unwrap_or("");
    assert!(outcome.codes().contains(&code), "{file} does not report {code}:\n{}", outcome.reports());
    snapshot(file, || insta::assert_snapshot!("cases", format!("{text}\n---- reports ----\n{}", outcome.reports())));
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
        assert!(code.explanation().lines().count() > 3, "{code} has no explanation");
    }
}
