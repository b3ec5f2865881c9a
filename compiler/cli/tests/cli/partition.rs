//! `data partition`: a dataset with the vertices and edges of each rank together.

use hgnnc_dataset::Dataset;

use crate::common::{Place, usual};

fn ok(place: &Place, args: &[&str]) -> String {
    let run = place.run(&[&["data", "partition", "data"], args].concat()).works();
    assert!(run.err.contains("52 vertices and") && run.err.contains("of memory"), "{}", run.err);
    run.out
}

#[track_caller]
fn refused(place: &Place, args: &[&str], code: i32, said: &str) {
    let before = place.names();
    let run = place.run(&[&["data", "partition"], args].concat());
    assert_eq!(run.code, Some(code), "{run:?}");
    assert!(run.err.contains(said), "no `{said}` in: {}", run.err);
    assert_eq!(place.names(), before);
}

#[test]
fn a_partition_is_a_dataset_that_trains() {
    let place = Place::new();
    place.model(&usual());
    let out = ok(&place, &["--ranks", "3", "-o", "parts"]);
    assert!(out.contains("3 ranks, ") && out.contains("edges are cut"), "{out}");
    assert!(out.contains("  vertices of `paper`: 13 to 14 a rank"), "{out}");
    assert!(out.contains("    of these to train on, `paper`: 6 to 7 a rank"), "{out}");
    assert!(out.contains("mirrors of sources: "), "{out}");
    assert!(out.contains("wrote parts"), "{out}");
    assert_eq!(place.names(), ["data", "m.hgnn", "parts"]);
    let description = place.json("parts/partition.json");
    assert_eq!((description["ranks"].as_u64(), description["by"].as_str()), (Some(3), Some("fennel")));
    assert_eq!(description["source"]["name"], "tiny");
    place.run(&["data", "info", "parts"]).works();
    place.run(&["train", "m.hgnn", "--data", "parts", "--epochs", "3"]).works();
}

#[test]
fn ways_and_models_decide() {
    let place = Place::new();
    // A model that reads one of the two relations.
    place.model(&usual().replace("over [relations, reverses]", "over [writes, reverse(writes)]"));
    ok(&place, &["--ranks", "2", "--by", "hash", "--seed", "7", "-o", "hash"]);
    ok(&place, &["--ranks", "2", "--by", "range", "-o", "range"]);
    ok(&place, &["--ranks", "2", "--passes", "2", "--model", "m.hgnn", "-o", "of-model"]);
    let used = &place.json("of-model/partition.json")["relations_used"];
    assert_eq!(used.as_array().map(Vec::len), Some(1), "{used}");
    assert_eq!(used[0], "author-paper");
    let range = Dataset::load(place.path("range")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(range.vertex_types[0].count, 40);
}

#[test]
fn faults_have_messages_and_leave_nothing() {
    let place = Place::new();
    refused(&place, &["data", "-o", "parts"], 2, "--ranks");
    refused(&place, &["data", "--ranks", "2"], 2, "--out");
    for ranks in ["0", "-1", "5000", "many"] {
        refused(&place, &["data", "--ranks", ranks, "-o", "parts"], 2, "not a whole number between 1 and 4096");
    }
    refused(&place, &["data", "--ranks", "2", "--passes", "0", "-o", "parts"], 2, "between 1 and 1000");
    refused(&place, &["data", "--ranks", "2", "--by", "metis", "-o", "parts"], 2, "fennel");
    refused(&place, &["data", "--ranks", "2", "-o", "data"], 1, "is not an empty folder; it is left alone");
    refused(&place, &["nowhere", "--ranks", "2", "-o", "parts"], 1, "there is no folder `nowhere`");
    refused(&place, &["data", "--ranks", "2", "-o", "parts", "--resume"], 1, "nothing to resume");
    refused(&place, &["data", "--ranks", "2", "-o", "parts", "--model", "m.hgnn"], 1, "m.hgnn");
    place.toml("count = 12", "count = 11");
    refused(&place, &["data", "--ranks", "2", "-o", "parts"], 1, "author.x.npy");
}

#[cfg(unix)]
#[test]
fn a_killed_run_is_resumed_to_the_same_bytes() {
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    let place = Place::new();
    place.run(&["data", "synth", "acm", "graph"]).works();
    let args = ["data", "partition", "graph", "--ranks", "3", "--passes", "1000", "-o"];
    place.run(&[&args[..], &["whole"]].concat()).works();
    let mut command = place.command(&[&args[..], &["parts"]].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let state = place.path(".parts.hgnnc-partition/state.json");
    let begin = Instant::now();
    while !state.exists() && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it runs or has ended");
    child.wait().expect("it ends");
    // A run that was faster than the kill has nothing to resume.
    if !place.path("parts").exists() {
        let run = place.run(&[&args[..], &["parts", "--resume"]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    let names = crate::common::names(&place.path("whole"));
    assert_eq!(crate::common::names(&place.path("parts")), names);
    for name in names {
        assert!(place.bytes(&format!("whole/{name}")) == place.bytes(&format!("parts/{name}")), "{name}");
    }
    assert_eq!(place.names(), ["data", "graph", "parts", "whole"]);
}
