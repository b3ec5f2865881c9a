//! The options that disable passes, fusions and kernel features: training learns the same without any of them.

use hgnnc_driver::{FusionRule, PassManager};
use hgnnc_machine::KernelFeature;
use serde_json::Value;

use crate::common::{Place, Run};

/// Each option with its names, without those of single fusions.
fn options() -> [(&'static str, Vec<&'static str>); 3] {
    [
        ("--disable-pass", PassManager::names()),
        ("--disable-fusion", FusionRule::ALL.map(FusionRule::name).to_vec()),
        ("--disable-kernel", KernelFeature::ALL.map(KernelFeature::name).to_vec()),
    ]
}

/// All names, each with its option.
fn names() -> Vec<(&'static str, &'static str)> {
    options().iter().flat_map(|(option, names)| names.iter().map(|name| (*option, *name))).collect()
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
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * a.abs();
    for (option, name) in names() {
        let found = losses(&trained(&place, model, &[option, name]));
        let same = found.len() == expected.len() && expected.iter().zip(&found).all(close);
        assert!(same, "{model} without `{name}`: {found:?} instead of {expected:?}");
    }
    // As it is written: without any pass or fusion.
    let of_compiler = |(option, _): &(&str, &str)| *option != "--disable-kernel";
    let words: Vec<&str> = names().into_iter().filter(of_compiler).flat_map(|(option, name)| [option, name]).collect();
    let found = losses(&trained(&place, model, &words));
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

/// Each kernel of several values can be split up, by the names that profiles and explanations show.
#[test]
fn single_fusions_are_named_by_a_value_that_their_kernel_stores() {
    let place = place();
    let unknown =
        place.run(&["train", &model("rgcn"), "--data", "graph", "--epochs", "1", "--disable-fusion", "value:me"]);
    unknown.fails(2, &["no kernel of several values stores `me`", "the kernels that can be split up store"]);
    let expected = losses(&trained(&place, "rgcn", &[]));
    let names: Vec<&str> = unknown.err.split('`').skip(3).step_by(2).collect();
    assert!(names.len() > 3, "{}", unknown.err);
    for name in names {
        let found = losses(&trained(&place, "rgcn", &["--disable-fusion", &format!("value:{name}")]));
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * a.abs();
        assert!(expected.iter().zip(&found).all(close), "without `value:{name}`: {found:?} instead of {expected:?}");
    }
}

fn model(name: &str) -> String {
    format!("{}/../../tests/bench/{name}-imdb.hgnn", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn docs_and_help_have_all_names() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/profile.md");
    let docs = std::fs::read_to_string(docs).expect("readable docs");
    let place = Place::new();
    let commands = ["train", "build", "profile", "eval", "infer"];
    let helps = commands.map(|command| place.run(&[command, "--help"]).works().out);
    for (option, name) in names() {
        assert!(docs.contains(&format!("`{name}`")), "docs/profile.md has no `{name}`");
        for help in &helps {
            let (_, own) = help.split_once(&format!("{option} <NAME>")).expect("the option");
            let own = own.split("--disable-").next().unwrap_or(own);
            let described = |line: &str| {
                line.trim().strip_prefix(name).is_some_and(|rest| rest.starts_with("  ") && rest.len() > 8)
            };
            assert!(own.lines().any(described), "`{name}` has no line in the help of {option}:\n{help}");
        }
    }
}

fn refused(place: &Place, option: &str, name: &str) -> Run {
    let run = place.run(&["build", &model("rgcn"), option, name]);
    run.fails(2, &["error[E0506]"]);
    run
}

/// Each name with a letter missing.
#[test]
fn misspelt_names_are_met_with_the_one_that_was_meant() {
    let place = place();
    let error = |option: &str, name: &str| refused(&place, option, name).err;
    for (option, name) in names() {
        let middle = name.len() / 2;
        let written = [&name[..middle], &name[middle + 1..]].concat();
        let err = error(option, &written);
        assert!(err.contains(&format!("did you mean `{name}`?")), "`{written}`:\n{err}");
    }
    assert!(error("--disable-fusion", "Co-Schedule").contains("did you mean `co_schedule`?"));
    assert!(error("--disable-pass", "co_shedule").contains("did you mean `--disable-fusion co_schedule`?"));
    assert!(!error("--disable-pass", "zzzzzz").contains("did you mean"));
    // A single fusion: its prefix, and what its kernel stores.
    assert!(error("--disable-fusion", "valeu:hidden").contains("did you mean `value:hidden`?"));
    let all = error("--disable-fusion", "value:x");
    assert!(!all.contains("did you mean"), "{all}");
    let stored = all.rsplit('`').nth(1).expect("a name");
    let err = error("--disable-fusion", &format!("value:{stored}x"));
    assert!(err.contains(&format!("did you mean `value:{stored}`?")), "{err}");
}

#[test]
fn names_of_another_option_are_refused_with_that_option() {
    let place = place();
    for (option, name) in names() {
        for (other, _) in options().iter().filter(|(other, _)| *other != option) {
            let err = refused(&place, other, name).err;
            assert!(err.contains(&format!("help: use `{option} {name}`")), "`{other} {name}`:\n{err}");
        }
    }
    let err = refused(&place, "--disable-pass", "value:hidden").err;
    assert!(err.contains("`value:hidden` is a fusion, not a pass"), "{err}");
}

#[test]
fn old_names_are_refused_with_the_new_ones() {
    let place = place();
    for (old, option, new) in [
        ("share_common", "--disable-pass", "cse"),
        ("recompute", "--disable-pass", "rematerialize"),
        ("order", "--disable-pass", "reorder_vertices"),
        ("fuse_edges", "--disable-fusion", "edge_passes"),
        ("by_turns", "--disable-fusion", "interleave"),
        ("fuse:hidden", "--disable-fusion", "value:hidden"),
        ("in_place", "--disable-fusion", "in_place"),
        ("eights", "--disable-kernel", "heads8"),
        ("machine_code", "--disable-kernel", "jit"),
        ("wide_rows", "--disable-kernel", "wide_rows"),
    ] {
        let err = refused(&place, "--disable-pass", old).err;
        assert!(err.contains(&format!("help: use `{option} {new}`")), "`{old}`:\n{err}");
        if old != new {
            assert!(err.contains(&format!("`{old}` is now called `{new}`")), "`{old}`:\n{err}");
        }
    }
    let err = refused(&place, "--disable-kernel", "sparse_rows").err;
    assert!(err.contains("help: use `--disable-kernel spmm`"), "{err}");
}

/// Several mistakes are shown together, before the model is read.
#[test]
fn unknown_names_show_all_of_their_option() {
    let place = place();
    let run = place.run(&["train", "nowhere.hgnn", "--disable-pass", "speed", "--disable-kernel", "speed"]);
    run.fails(2, &["there is no pass `speed`", "there is no kernel feature `speed`"]);
    for (option, name) in names() {
        let listed = option != "--disable-fusion";
        assert_eq!(run.err.contains(&format!("`{name}`")), listed, "`{name}` in:\n{}", run.err);
    }
    let run = refused(&place, "--disable-fusion", "speed");
    assert!(FusionRule::ALL.iter().all(|rule| run.err.contains(&format!("`{}`", rule.name()))), "{}", run.err);
    assert!(run.err.contains("`value:NAME`"), "{}", run.err);
}
