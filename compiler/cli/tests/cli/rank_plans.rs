//! `hgnnc build --ranks`, `train --plan` and `simulate`.

use std::fs;

use crate::common::{Place, Run};
use crate::ranks::{DATA, MODEL, launchers, place};

const ON_BATCHES: [&str; 2] = ["seed      5", "seed      5\n    batch     2\n    fanout    [3, 3]"];

fn with_batches() -> Place {
    let place = Place::new();
    place.model(&MODEL.replace(ON_BATCHES[0], ON_BATCHES[1]));
    place
}

#[test]
fn a_plan_says_what_processes_send_each_other() {
    let place = place();
    let run = place.with_data("build", &["--ranks", "3", "--emit", "plan", "--network", "100G,2us"]).works();
    for part in ["3 processes on 100.0000 Gbit/s, latency 2.0000 us", "divided by vertices", "one process:"] {
        assert!(run.out.contains(part), "no `{part}` in\n{}", run.out);
    }
    assert!(run.out.contains("Paper to Paper.sources, 8 numbers a row"), "{}", run.out);
    let slow = place.with_data("build", &["--ranks", "3", "--network", "1k"]).works();
    assert!(slow.err.contains("one process is predicted to be faster"), "{}", slow.err);
    assert!(!slow.out.contains("fewer processes"), "{}", slow.out);
    let most = |run: &Run| run.out.lines().filter(|line| line.contains(" numbers")).count();
    let all = place.with_data("build", &["--ranks", "3", "--explain"]).works();
    assert!(most(&all) > most(&run) && !all.out.contains("smaller ones"), "{}", all.out);
    // Sampled batches are divided in two ways.
    let place = with_batches();
    let run = place.with_data("build", &["--ranks", "2", "-o", "plan.json"]).works();
    let count = |word: &str| run.out.lines().filter(|line| line.trim_start().starts_with(word)).count();
    assert_eq!((count("seeds "), count("relations ")), (1, 1), "{}", run.out);
    let plan = place.json("plan.json");
    assert_eq!((plan["ranks"].as_u64(), plan["sections"].as_u64()), (Some(2), Some(24)), "{plan}");
}

/// The numbers of a list of a plan.
fn numbers(list: &serde_json::Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().map(|number| number.as_u64().unwrap()).collect()
}

#[test]
fn a_plan_says_where_edges_and_learned_rows_are() {
    let place = place();
    let run = place.with_data("build", &["--ranks", "3", "-o", "plan.json", "--explain"]).works();
    for part in ["edges of a process", "writes, out-edges", "fewer processes", "learned rows", "Author.x: rank 0 0.."] {
        assert!(run.out.contains(part), "no `{part}` in\n{}", run.out);
    }
    let plan = place.json("plan.json");
    let graphs = plan["graphs"].as_array().unwrap();
    assert!(graphs.iter().any(|graph| graph["graph"] == "writes"), "{plan}");
    for graph in graphs {
        let (edges, out_edges) = (numbers(&graph["edges"]), numbers(&graph["out_edges"]));
        assert!(edges.len() == 3 && edges.iter().sum::<u64>() > 0, "{graph}");
        assert!(out_edges.is_empty() || out_edges.iter().sum::<u64>() == edges.iter().sum::<u64>(), "{graph}");
    }
    let table = &plan["tables"][0];
    assert_eq!((table["vertex"].as_str(), table["width"].as_u64()), (Some("Author"), Some(4)), "{plan}");
    let rows: Vec<Vec<u64>> = table["rows"].as_array().unwrap().iter().map(numbers).collect();
    assert!(rows[0][0] == 0 && rows.windows(2).all(|two| two[0][1] == two[1][0]), "{table}");

    let place = with_batches();
    let run = place.with_data("build", &["--ranks", "2", "-o", "plan.json", "--explain"]).works();
    assert!(run.out.contains("sampled edges of a process"), "{}", run.out);
    let plan = place.json("plan.json");
    let computing = plan["predicted"]["rank_compute_ms"].as_array().unwrap();
    assert!(computing.len() == 2 && computing.iter().all(|ms| ms.as_f64().unwrap() > 0.0), "{plan}");
    // Plans of before have neither graphs nor tables.
    let mut before = plan.clone();
    for field in ["graphs", "tables"] {
        assert!(before.as_object_mut().unwrap().remove(field).is_some(), "{plan}");
    }
    before["predicted"].as_object_mut().unwrap().remove("rank_compute_ms");
    fs::write(place.path("plan.json"), before.to_string()).unwrap();
    place.with_data("train", &["--plan", "plan.json", "--threads", "1", "--epochs", "1"]).works();
}

#[test]
fn wrong_requests_for_plans_are_refused() {
    let place = place();
    let fails = |args: &[&str], code: i32, words: &[&str]| place.with_data("build", args).fails(code, words);
    fails(&["--ranks", "2", "--emit", "kernels"], 1, &["there is the level `plan`"]);
    fails(&["--ranks", "2", "-o", "plan"], 1, &["-o PLAN.json"]);
    fails(&["--ranks", "0"], 2, &["not a whole number between 1 and 4096"]);
    fails(&["--ranks", "2", "--network", "fast"], 2, &["`fast` is no network", "10G"]);
    fails(&["--network", "10G"], 2, &["--ranks"]);
    fs::write(place.path("net.toml"), "latency_s = 1e-6\n").unwrap();
    fails(&["--ranks", "2", "--network", "net.toml"], 2, &["net.toml", "bytes_per_s"]);
    place.run(&["build", "m.hgnn", "--ranks", "2"]).fails(2, &["--data"]);
    place.with_data("train", &["--plan", "none.json"]).fails(1, &["cannot read `none.json`"]);
    fs::write(place.path("plan.json"), "{}").unwrap();
    place.with_data("train", &["--plan", "plan.json"]).fails(1, &["`plan.json` is no plan of several ranks"]);
    place.with_data("train", &["--plan", "plan.json", "--sections", "3"]).fails(2, &["--plan", "--sections"]);
}

#[test]
fn one_process_follows_a_plan_as_several_do() {
    for place in [place(), with_batches()] {
        place.with_data("build", &["--ranks", "2", "-o", "plan.json"]).works();
        let args = ["--plan", "plan.json", "--threads", "1", "--weights-out"];
        let run = place.with_data("train", &[&args[..], &["alone.safetensors", "-o", "run"]].concat()).works();
        assert_eq!(run.out.matches("ms per epoch (median)").count(), 1, "{}", run.out);
        assert_eq!(run.out.matches("rank 1: sent ").count(), 1, "{}", run.out);
        for launcher in launchers() {
            let files = [&DATA[..], &["--plan", "plan.json", "--weights-out", "together.safetensors"]].concat();
            Run::of(launcher.train(&place, 2, &files).output().unwrap()).works();
            let name = launcher.name.display();
            assert_eq!(place.bytes("together.safetensors"), place.bytes("alone.safetensors"), "{name}");
            let output = launcher.train(&place, 3, &files).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(text.contains("the plan is for 2 processes, and there are 3"), "{text}");
        }
    }
}

#[test]
fn a_plan_for_another_model_is_refused() {
    let place = with_batches();
    place.with_data("build", &["--ranks", "2", "-o", "plan.json"]).works();
    let text = fs::read_to_string(place.path("plan.json")).unwrap();
    fs::write(place.path("plan.json"), text.replace("\"model\": \"M\"", "\"model\": \"Other\"")).unwrap();
    place.with_data("train", &["--plan", "plan.json"]).fails(1, &["the plan is for the model `Other`"]);
}

#[test]
fn a_simulation_says_that_it_is_one() {
    let place = place();
    // Small messages of one rank to many wait for each other's latency in the model, and not in SimGrid: without much of it,
    // both have the same step, however fast this machine computes.
    let args = ["--ranks", "1,2,5", "--network", "10G,200ns", "--steps", "2", "--threads", "1"];
    let run = place.with_data("simulate", &[&args[..], &["--report", "sim.json"]].concat()).works();
    assert!(run.out.starts_with("simulated, not measured on several machines: 1 thread a rank"), "{}", run.out);
    for part in ["half the bandwidth", "twice the latency", "processors half as fast", "simulated step of 5 ranks"] {
        assert!(run.out.contains(part), "no `{part}` in\n{}", run.out);
    }
    let report = place.json("sim.json");
    assert_eq!(report["simulated"].as_bool(), Some(true), "{report}");
    let ranks: Vec<u64> = report["runs"].as_array().unwrap().iter().map(|run| run["ranks"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [1, 2, 5]);
    match report["runs"][2]["other_step_ms"].as_f64() {
        None => println!("skipped: SimGrid is not installed"),
        Some(other) => {
            let step = report["runs"][2]["step_ms"].as_f64().unwrap();
            assert!(step < 1.2 * other && other < 1.2 * step, "{other} ms by SimGrid: {report}");
        }
    }
    place.run(&["simulate-network"]).fails(1, &["the standard input has no traces"]);
    place.with_data("simulate", &[&args[..], &["--weak"]].concat()).fails(1, &["give it a `batch`"]);
    place.with_data("simulate", &["--ranks", "2"]).fails(2, &["--network"]);
    let weak = Place::new();
    weak.model(&MODEL.replace(ON_BATCHES[0], &ON_BATCHES[1].replace("batch     2", "batch     64")));
    let run = weak.with_data("simulate", &[&args[..], &["--weak"]].concat()).works();
    assert!(run.err.contains("a batch of 5 ranks has all "), "{}", run.err);
}
