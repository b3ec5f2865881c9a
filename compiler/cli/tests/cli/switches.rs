//! What `--disable-pass` can leave out: training learns the same without any of it.

use hgnnc_driver::PassManager;
use hgnnc_exec::Micro;
use serde_json::Value;

use crate::common::Place;

/// Names of all that can be left out, but for single decisions.
fn names() -> Vec<String> {
    let of_compiler = PassManager::switches().into_iter().filter(|name| !name.contains(':'));
    of_compiler.chain(Micro::ALL.map(|class| class.name().to_owned())).collect()
}

fn place() -> Place {
    let place = Place::new();
    place.run(&["data", "synth", "imdb", "graph"]).works();
    place
}

/// The report of a short training of a model of the benchmark.
fn trained(place: &Place, model: &str, args: &[&str]) -> Value {
    let model = self::model(model);
    let usual = ["train", &model, "--data", "graph", "--epochs", "3", "--quiet", "--report", "r.json"];
    place.run(&[&usual[..], args].concat()).works();
    place.json("r.json")
}

fn losses(report: &Value) -> Vec<f64> {
    let losses = report["losses"].as_array().expect("a list");
    losses.iter().map(|loss| loss.as_f64().expect("a number")).collect()
}

fn learns_the_same(model: &str) {
    let place = place();
    let expected = losses(&trained(&place, model, &[]));
    assert_eq!(expected.len(), 3);
    for name in names() {
        let found = losses(&trained(&place, model, &["--disable-pass", &name]));
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * a.abs();
        let same = found.len() == expected.len() && expected.iter().zip(&found).all(close);
        assert!(same, "{model} without `{name}`: {found:?} instead of {expected:?}");
    }
    // As it is written: without any of the compiler's.
    let all: Vec<String> = PassManager::switches().into_iter().filter(|name| !name.contains(':')).collect();
    let words: Vec<&str> = all.iter().flat_map(|name| ["--disable-pass", name]).collect();
    let found = losses(&trained(&place, model, &words));
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * a.abs();
    assert!(expected.iter().zip(&found).all(close), "{model} as written: {found:?} instead of {expected:?}");
}

#[test]
fn han_learns_the_same_without_any_of_them() {
    learns_the_same("han");
}

#[test]
fn rgcn_learns_the_same_without_any_of_them() {
    learns_the_same("rgcn");
}

#[test]
fn rgat_learns_the_same_without_any_of_them() {
    learns_the_same("rgat");
}

/// Each kernel of several values can be taken apart, by the names that profiles and explanations show.
#[test]
fn single_decisions_are_named_by_what_kernels_store() {
    let place = place();
    let unknown =
        place.run(&["train", &model("rgcn"), "--data", "graph", "--epochs", "1", "--disable-pass", "fuse:me"]);
    unknown.fails(1, &["no kernel of several values stores `me`", "the kernels that can be taken apart store"]);
    let expected = losses(&trained(&place, "rgcn", &[]));
    let names: Vec<&str> = unknown.err.split('`').skip(3).step_by(2).collect();
    assert!(names.len() > 3, "{}", unknown.err);
    for name in names {
        let found = losses(&trained(&place, "rgcn", &["--disable-pass", &format!("fuse:{name}")]));
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * a.abs();
        assert!(expected.iter().zip(&found).all(close), "without `fuse:{name}`: {found:?} instead of {expected:?}");
    }
}

fn model(name: &str) -> String {
    format!("{}/../../tests/bench/{name}-imdb.hgnn", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_docs_have_all_names() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/profile.md");
    let docs = std::fs::read_to_string(docs).expect("readable docs");
    for name in names() {
        assert!(docs.contains(&format!("`{name}`")), "docs/profile.md has no `{name}`");
    }
}

/// A name with a slip of the fingers, for every one there is.
#[test]
fn misspelt_names_are_met_with_the_one_that_was_meant() {
    let place = place();
    let error = |name: &str| {
        let run = place.run(&["build", &model("rgcn"), "--disable-pass", name]);
        run.fails(1, &["error[E0506]"]);
        run.err
    };
    for name in names() {
        let middle = name.len() / 2;
        let written = [&name[..middle], &name[middle + 1..]].concat();
        let err = error(&written);
        assert!(err.contains(&format!("did you mean `{name}`?")), "`{written}`:\n{err}");
    }
    assert!(error("Side-By-Side").contains("did you mean `side_by_side`?"));
    assert!(!error("speed").contains("did you mean"));
    // A single decision: its word, and what its kernel stores.
    assert!(error("fuze:hidden").contains("did you mean `fuse:hidden`?"));
    let all = error("fuse:x");
    assert!(!all.contains("did you mean"), "{all}");
    let stored = all.rsplit('`').nth(1).expect("a name");
    let err = error(&format!("fuse:{stored}x"));
    assert!(err.contains(&format!("did you mean `fuse:{stored}`?")), "{err}");
}

#[test]
fn unknown_names_show_all() {
    let place = place();
    let run = place.run(&["train", &model("rgcn"), "--data", "graph", "--disable-pass", "speed"]);
    run.fails(1, &["there is no pass `speed`"]);
    for name in names() {
        assert!(run.err.contains(&format!("`{name}`")), "no `{name}` in:\n{}", run.err);
    }
}
