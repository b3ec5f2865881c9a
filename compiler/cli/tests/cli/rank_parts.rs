//! Several processes on a dataset that `data partition` has divided.

use std::fs;

use crate::common::{Place, Run};
use crate::ranks::{launchers, place};

const IN_PARTS: [&str; 3] = ["m.hgnn", "--data", "parts"];

/// A model, and the tiny dataset in parts for three ranks.
fn partitioned() -> Place {
    let place = place();
    place.run(&["data", "partition", "data", "--ranks", "3", "-o", "parts"]).works();
    place
}

/// The lengths between ascending borders.
fn lengths(borders: &serde_json::Value) -> Vec<u64> {
    let borders: Vec<u64> = borders.as_array().unwrap().iter().map(|border| border.as_u64().unwrap()).collect();
    borders.windows(2).map(|ends| ends[1] - ends[0]).collect()
}

#[test]
fn a_plan_has_the_edges_and_vertices_of_parts() {
    let place = partitioned();
    place.run(&[&["build"], &IN_PARTS[..], &["--ranks", "3", "-o", "plan.json"]].concat()).works();
    let (plan, parts) = (place.json("plan.json"), place.json("parts/partition.json"));
    let named = |list: &str, key: &str, name: &str, of: &serde_json::Value| {
        of[list].as_array().unwrap().iter().find(|it| it[key] == name).unwrap().clone()
    };
    let cites = named("relations", "name", "paper-paper", &parts);
    let edges = &named("graphs", "graph", "cites", &plan)["edges"];
    assert_eq!(*edges, serde_json::json!(lengths(&cites["in_borders"])));
    let authors = named("vertex_types", "name", "author", &parts);
    let rows = named("tables", "vertex", "Author", &plan)["rows"].clone();
    let expected: Vec<[u64; 2]> = (authors["borders"].as_array().unwrap().windows(2))
        .map(|ends| [ends[0].as_u64().unwrap(), ends[1].as_u64().unwrap()])
        .collect();
    assert_eq!(rows, serde_json::json!(expected));
    // A rank is sent the papers that the partition has counted for it: sources of its in-edges, and for the reverses of
    // relations also destinations of its out-edges, some of which are both.
    let papers = named("vertex_types", "name", "paper", &parts);
    let counted = |key: &str| -> u64 { papers[key].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).sum() };
    let (sources, destinations) = (counted("mirror_sources"), counted("mirror_destinations"));
    let messages = plan["predicted"]["messages"].as_array().unwrap();
    let of_papers =
        messages.iter().find(|it| it["what"].as_str().unwrap().starts_with("Paper to Paper.sources, 8 numbers"));
    let sent: f64 = of_papers.unwrap()["sent_bytes"].as_array().unwrap().iter().map(|of| of.as_f64().unwrap()).sum();
    let rows = sent as u64 / 32;
    assert!((sources.max(destinations)..=sources + destinations).contains(&rows), "{rows}: {sources}, {destinations}");
}

#[test]
fn processes_own_the_parts_and_train_what_one_does() {
    let place = partitioned();
    place
        .run(&[&["train"], &IN_PARTS[..], &["--sections", "24", "--weights-out", "alone.safetensors"]].concat())
        .works();
    let alone = place.bytes("alone.safetensors");
    for launcher in launchers() {
        for ranks in [2, 3] {
            let args = [&IN_PARTS[..], &["--weights-out", "together.safetensors"]].concat();
            let run = Run::of(launcher.train(&place, ranks, &args).output().unwrap()).works();
            assert_eq!(place.bytes("together.safetensors"), alone, "{ranks} ranks of {}", launcher.name.display());
            assert_eq!(run.err.contains("partitioned for 3 processes, and there are 2"), ranks == 2, "{}", run.err);
        }
    }
}

#[test]
fn a_partition_of_other_data_is_refused() {
    let place = partitioned();
    let file = place.path("parts/partition.json");
    let text = fs::read_to_string(&file).unwrap();
    let train = |expected: &str| {
        let run = place.run(&[&["train"], &IN_PARTS[..], &["--sections", "24"]].concat());
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.err.contains(expected) && run.err.contains("partition.json"), "{}", run.err);
        // A single process without sections does not need it.
        place.run(&[&["train"], &IN_PARTS[..], &["--epochs", "1"]].concat()).works();
    };
    fs::copy(place.path("data/dataset.toml"), &file).unwrap();
    train("cannot read");
    let fewer = text.replacen("40\n", "39\n", 1).replacen("40]", "39]", 1);
    assert_ne!(fewer, text);
    fs::write(&file, fewer).unwrap();
    train("39 vertices of `paper`, and the dataset 40");
}
