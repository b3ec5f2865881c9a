//! Outputs of semantic graphs and of edges: in reports, on the terminal, and written by `infer`.

use std::collections::BTreeMap;

use hgnnc_dataset::npy::Npy;
use serde_json::Value;

use crate::common::{PAPERS, Place, SCHEMA, TRAIN};

/// HAN over a metapath and a relation, with both of its attentions.
fn han(outputs: &str, train: &str) -> String {
    let schema =
        SCHEMA.replace("relation cites", "metapath PAP = Paper <-writes- Author -writes-> Paper\n    relation cites");
    format!(
        "use std::han::HanConv
        {schema}
        model Net(schema: Tiny) {{
            let conv = HanConv(hidden: 4, heads: 2, dropout: 0.1) over [PAP, cites] of Paper.x
            output logits: Paper = linear(conv, 3)
            {outputs}
        }}
        {train}"
    )
}

const OUTPUTS: &str = "output beta: graphs = conv.beta
            output attention: edges = conv.alpha";

/// A trained model in its folder, with the report of its training. Papers have ids.
fn trained(train: &str) -> (Place, Value) {
    let place = Place::new();
    place.model(&han(OUTPUTS, train));
    let ids: Vec<i64> = (0..PAPERS as i64).map(|paper| 1000 - paper).collect();
    place.npy("paper.ids.npy", &[PAPERS], &ids);
    place.toml("count = 40\n", "count = 40\n[vertex_type.ids]\nkind = \"integer\"\nfile = \"paper.ids.npy\"\n");
    let run = place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors"]).works();
    assert!(run.out.contains(" beta: PAP 0."), "{}", run.out);
    let report = place.json("r.json");
    (place, report)
}

fn infer(place: &Place, output: &str, out: &str) -> crate::common::Run {
    place.with_data("infer", &["--weights", "w.safetensors", "--output", output, "--out", out])
}

fn rows(place: &Place, name: &str) -> Vec<Vec<String>> {
    let text = String::from_utf8(place.bytes(name)).expect("a text");
    text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn weights_of_semantic_graphs_are_reported_and_written() {
    let (place, report) = trained(TRAIN);
    let weights = &report["graph_weights"];
    assert_eq!(weights[0]["output"], "beta");
    let weight = |at: usize| weights[0]["weights"][at]["weight"].as_f64().expect("a number");
    assert_eq!(weights[0]["weights"][0]["graph"], "PAP");
    assert_eq!(weights[0]["weights"][1]["graph"], "cites");
    assert!((weight(0) + weight(1) - 1.0).abs() < 1e-6, "{weights}");

    let run = place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["graph_weights"], *weights);
    assert!(run.out.contains(&format!(" beta: PAP {:.4}  cites {:.4}", weight(0), weight(1))), "{}", run.out);

    let run = infer(&place, "beta", "beta.csv").works();
    assert!(run.out.contains("(rows of 1: PAP, cites)"), "{}", run.out);
    let table = rows(&place, "beta.csv");
    assert_eq!(table[0], ["graph", "beta"]);
    for (row, (at, name)) in table[1..].iter().zip([(0, "PAP"), (1, "cites")]) {
        assert_eq!(row[0], name);
        assert!((row[1].parse::<f64>().expect("a number") - weight(at)).abs() < 1e-7, "{row:?}");
    }
    infer(&place, "beta", "beta.npy").works();
    let array = Npy::open(&place.path("beta.npy")).expect("an array");
    assert_eq!(array.shape(), [2, 1]);
    assert_eq!(f64::from(array.to_f32().expect("numbers")[0]), weight(0));
    assert!(!place.path("beta.edges.npy").exists());
}

#[test]
fn attention_of_edges_is_written_with_the_ids_of_both_ends() {
    let (place, report) = trained(TRAIN);
    let edges: u64 =
        report["semantic_graphs"].as_array().expect("a list").iter().map(|g| g["edges"].as_u64().expect("edges")).sum();
    let run = infer(&place, "attention", "attention.csv").works();
    assert!(run.out.contains(&format!("(rows of 2, {edges} edges: PAP, cites)")), "{}", run.out);
    let table = rows(&place, "attention.csv");
    assert_eq!(table[0], ["graph", "src", "dst", "attention.0", "attention.1"]);
    assert_eq!(table.len() as u64, edges + 1);
    let mut sums: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for row in &table[1..] {
        *sums.entry((&row[0], &row[2])).or_default() += row[3].parse::<f64>().expect("a number");
    }
    assert!(sums.values().all(|sum| (sum - 1.0).abs() < 1e-5), "{sums:?}");
    // Paper 3 is cited by paper 0, and by no other.
    assert!(table.contains(&["cites", "1000", "997", "1", "1"].map(String::from).to_vec()), "{table:?}");

    let run = infer(&place, "attention", "attention.npy").works();
    assert!(run.out.contains("wrote attention.npy and attention.edges.npy"), "{}", run.out);
    let (values, ends) =
        ["attention.npy", "attention.edges.npy"].map(|name| Npy::open(&place.path(name)).expect("an array")).into();
    let count = edges as usize;
    assert_eq!((values.shape(), ends.shape()), (&[count, 2][..], &[3, count][..]));
    let (values, ends) = (values.to_f32().expect("numbers"), ends.to_i64().expect("whole numbers"));
    for (edge, row) in table[1..].iter().enumerate() {
        let [src, graph, dst] = [0, 1, 2].map(|of| ends[of * count + edge]);
        assert_eq!(*row[0], ["PAP", "cites"][graph as usize][..]);
        assert_eq!((row[1].clone(), row[2].clone()), ((1000 - src).to_string(), (1000 - dst).to_string()));
        assert_eq!(row[3], values[2 * edge].to_string());
    }
}

/// Metrics, other outputs and weights are those of the model without these outputs.
#[test]
fn these_outputs_change_nothing_else() {
    let (place, report) = trained(TRAIN);
    infer(&place, "logits", "logits.npy").works();
    let (logits, weights) = (place.bytes("logits.npy"), place.bytes("w.safetensors"));
    place.model(&han("", TRAIN));
    let run = place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors"]).works();
    assert!(!run.out.contains("beta"), "{}", run.out);
    let without = place.json("r.json");
    assert_eq!(without["graph_weights"], Value::Null);
    for key in ["losses", "metrics", "params", "arena_bytes"] {
        assert_eq!(without[key], report[key], "{key}");
    }
    assert_eq!(place.bytes("w.safetensors"), weights);
    infer(&place, "logits", "logits.npy").works();
    assert_eq!(place.bytes("logits.npy"), logits);
}

/// A model that is trained on mini-batches is evaluated on the whole graph.
#[test]
fn models_of_batches_tell_the_attention_of_the_whole_graph() {
    let (place, report) = trained(&TRAIN.replace("epochs    30", "epochs 3\n    batch 8"));
    assert_eq!(report["graph_weights"][0]["weights"].as_array().expect("a list").len(), 2);
    infer(&place, "attention", "attention.csv").works();
    let edges = |name: &str| rows(&place, "attention.csv").iter().filter(|row| row[0] == name).count() as u64;
    for graph in report["semantic_graphs"].as_array().expect("a list") {
        assert_eq!(graph["edges"], edges(graph["name"].as_str().expect("a name")));
    }
}

#[test]
fn a_model_without_a_train_block_has_these_outputs() {
    let (place, _) = trained(TRAIN);
    infer(&place, "attention", "with.csv").works();
    place.model(&han(OUTPUTS, ""));
    infer(&place, "attention", "without.csv").works();
    assert_eq!(place.bytes("with.csv"), place.bytes("without.csv"));
    infer(&place, "beta", "beta.csv").works();
}

#[test]
fn what_is_refused() {
    let (place, _) = trained(TRAIN);
    infer(&place, "alpha", "a.csv").fails(1, &["no output `alpha`; it has `attention`, `beta`, `logits`"]);
    let args = ["--weights", "w.safetensors", "--output", "beta", "--out", "b.csv", "--probabilities"];
    place.with_data("infer", &args).fails(1, &["`beta` has no probabilities"]);
    std::fs::copy(place.path("w.safetensors"), place.path("w.edges.npy")).expect("copied");
    let args = ["--weights", "w.edges.npy", "--output", "attention", "--out", "w.npy"];
    place
        .with_data("infer", &args)
        .fails(1, &["w.edges.npy", "is the weights, and its edges would be written over it"]);
    assert!(!place.path("a.csv").exists() && !place.path("b.csv").exists() && !place.path("w.npy").exists());
    let run = place.run(&["build", "m.hgnn", "--output", "alpha"]);
    run.fails(1, &["no output `alpha`; it has `attention`, `beta`, `logits`"]);
}

#[test]
fn a_profile_has_the_weights_of_semantic_graphs() {
    let (place, _) = trained(TRAIN);
    let run = place.with_data("profile", &["-o", "p", "--epochs", "1"]).works();
    assert!(run.out.contains("beta of semantic graphs, after these runs"), "{}", run.out);
    let page = String::from_utf8(place.bytes("p/profile.html")).expect("a page");
    assert!(page.contains("Semantic graphs: beta") && page.contains(">PAP<"), "no table in the page");
    assert_eq!(place.json("p/profile.json")["graph_weights"][0]["output"], "beta");
}
