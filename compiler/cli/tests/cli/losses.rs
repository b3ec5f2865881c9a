//! Losses of several terms: outputs, labels and vertex types, regularisers, and losses without labels.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::{AUTHORS, Place, SCHEMA};

/// The dataset with a class of two for each author, and a split of the authors.
fn place() -> Place {
    let place = Place::new();
    let label = "[[label]]\nvertex_type = \"author\"\nname = \"role\"\nclasses = 2\nfile = \"author.role.npy\"\n";
    let split = "[[split]]\nname = \"half\"\nvertex_type = \"author\"\ntrain = \"author.train.npy\"\nval = \
                 \"author.val.npy\"\ntest = \"author.test.npy\"\n";
    place.toml("[[metapath]]", &format!("{label}\n{split}\n[[metapath]]"));
    place.npy("author.role.npy", &[AUTHORS], &(0..AUTHORS as i32).map(|author| author % 2).collect::<Vec<_>>());
    for (part, range) in [("train", 0..6), ("val", 6..9), ("test", 9..12)] {
        let ids: Vec<i32> = range.collect();
        place.npy(&format!("author.{part}.npy"), &[ids.len()], &ids);
    }
    place
}

fn model(train: &str) -> String {
    let schema = SCHEMA.replace("{ x: f32[3] }", "{ x: f32[3], role: class[2] }");
    format!(
        "use std::rgcn::RgcnConv
{schema}
model Net(schema: Tiny) {{
    param w: [8, 3]
    let hidden = relu(RgcnConv(hidden: 8) over [relations, reverses] of features)
    output topics: Paper = hidden.Paper @ w
    output years: Paper = linear(hidden, 1).Paper
    output roles: Author = linear(hidden, 2).Author
}}
train Net {{
    split \"half\"
    optimizer adam(lr: 0.02)
    {train}
}}
"
    )
}

const SUM: &str = "loss 0.7 * cross_entropy(topics, Paper.y) + mse(years, Paper.year) / 4 - -0.5 * cross_entropy(roles, Author.role) + \
                   0.01 * l2(w)";

/// Each part of a report, with its metrics.
fn metrics(report: &Value) -> BTreeMap<String, BTreeMap<String, f64>> {
    serde_json::from_value(report["metrics"].clone()).expect("metrics by part")
}

/// Are the losses of all parts the weighted sums of their terms, with the same number for the rest?
fn weighted_sums(report: &Value) -> f64 {
    let rest: Vec<f64> = metrics(report)
        .values()
        .map(|of| of["loss"] - 0.7 * of["topics.loss"] - 0.25 * of["years.loss"] - 0.5 * of["roles.loss"])
        .collect();
    assert!(rest.len() == 3 && rest.iter().all(|number| (number - rest[0]).abs() < 1e-6), "{rest:?}");
    rest[0]
}

#[test]
fn several_outputs_are_trained_and_measured_together() {
    let place = place();
    let more =
        "epochs 40 select val.roles.accuracy stop when val.mae has not improved for 40 epochs metrics accuracy, mae";
    place.model(&model(&format!("{SUM} {more}")));
    let run =
        place.with_data("train", &["--report", "r.json", "-o", "run", "--log", "log.jsonl", "--threads", "1"]).works();
    assert!(run.err.contains("val.roles.accuracy "), "{}", run.err);
    assert!(run.out.contains("topics.accuracy ") && run.out.contains("years.mae "), "{}", run.out);
    let report = place.json("r.json");
    let names = [
        "loss",
        "roles.accuracy",
        "roles.loss",
        "roles.macro_f1",
        "roles.micro_f1",
        "topics.accuracy",
        "topics.loss",
        "topics.macro_f1",
        "topics.micro_f1",
        "years.loss",
        "years.mae",
        "years.rmse",
    ];
    let all = metrics(&report);
    assert_eq!(all.keys().collect::<Vec<_>>(), ["test", "train", "val"]);
    all.values().for_each(|of_part| assert_eq!(of_part.keys().collect::<Vec<_>>(), names));
    // The rest of the loss is the size of the parameter.
    let size: f32 = place.weights("run/weights.safetensors")["w"].1.iter().map(|x| x * x).sum();
    assert!((weighted_sums(&report) - 0.01 * f64::from(size)).abs() < 1e-5, "{size}");
    // The training loss of the first epoch is that of the initial parameters; it falls.
    let losses: Vec<f64> = serde_json::from_value(report["losses"].clone()).expect("numbers");
    assert!(losses[losses.len() - 1] < 0.6 * losses[0], "{losses:?}");
    // The parameters are those of the epoch with the best criterion.
    let log = String::from_utf8(place.bytes("log.jsonl")).expect("a text");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let most = lines.iter().filter_map(|line| line["val"]["roles.accuracy"].as_f64()).fold(0.0, f64::max);
    assert_eq!(all["val"]["roles.accuracy"], most);
    // The scores of classes are those of the first output.
    assert_eq!(report["classes"]["test"]["scores"].as_array().map(Vec::len), Some(3));

    let logged: Vec<&String> = lines[0]["val"].as_object().expect("metrics").keys().collect();
    assert_eq!(
        logged,
        ["loss", "topics.loss", "topics.accuracy", "years.loss", "years.mae", "roles.loss", "roles.accuracy"]
    );

    // Parameters alone, and an artifact, are measured alike.
    place.with_data("eval", &["--weights", "run/weights.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["metrics"], report["metrics"]);
    place.run(&["eval", "run/model.hgnnx", "--data", "data", "--report", "a.json"]).works();
    assert_eq!(place.json("a.json")["metrics"], report["metrics"]);
    let run = place.run(&["infer", "run/model.hgnnx", "--data", "data", "--output", "roles", "--out", "o.npy"]).works();
    assert!(run.out.contains("12 rows of 2"), "{}", run.out);

    // All numbers of threads give the same bits.
    place.with_data("train", &["--report", "t.json", "--weights-out", "t.safetensors", "--threads", "3"]).works();
    assert_eq!(place.json("t.json")["losses"], report["losses"]);
    assert_eq!(place.bytes("t.safetensors"), place.bytes("run/weights.safetensors"));
}

/// A dataset without a split of one of the vertex types has nothing to train it on.
#[test]
fn each_output_needs_labels_and_a_split() {
    let place = place();
    place.model(&model(&format!("{SUM} epochs 2")));
    place.toml("name = \"half\"\nvertex_type = \"author\"", "name = \"other\"\nvertex_type = \"author\"");
    place.with_data("train", &[]).fails(1, &["E0426", "half", "`author`"]);
}

/// Weights of a single term scale its loss, and nothing else has another name.
#[test]
fn one_term_keeps_its_report() {
    let place = place();
    let losses = |loss: &str| -> (Vec<f64>, Vec<String>) {
        // Parameters stay as they are, so that losses can be compared.
        place.model(&model(&format!("loss {loss} epochs 2")).replace("adam(lr: 0.02)", "sgd(lr: 0)"));
        place.with_data("train", &["--report", "r.json"]).works();
        let report = place.json("r.json");
        let names = metrics(&report)["val"].keys().cloned().collect();
        (serde_json::from_value(report["losses"].clone()).expect("numbers"), names)
    };
    let (one, names) = losses("cross_entropy(topics, Paper.y)");
    assert_eq!(names, ["accuracy", "loss", "macro_f1", "micro_f1"]);
    let (three, same) = losses("3 * cross_entropy(topics, Paper.y)");
    assert_eq!(same, names);
    let (sum, _) = losses("cross_entropy(topics, Paper.y) + (2 * cross_entropy(topics, Paper.y))");
    for (one, (three, sum)) in one.iter().zip(three.iter().zip(&sum)) {
        assert!((3.0 * one - three).abs() < 1e-5 && (sum - three).abs() < 1e-5, "{one} {three} {sum}");
    }
}

/// A batch of all seeds with all of their in-edges is the whole graph.
#[test]
fn labels_of_one_vertex_type_are_learned_in_batches() {
    let place = place();
    let loss =
        "loss cross_entropy(topics, Paper.y) + mse(years, Paper.year) + 0.01 * l2(w) + 0.001 * l2(hidden.w) epochs 8";
    let losses = |train: &str| -> Vec<f64> {
        place.model(&model(train));
        place.with_data("train", &["--report", "r.json"]).works();
        serde_json::from_value(place.json("r.json")["losses"].clone()).expect("numbers")
    };
    let whole = losses(loss);
    let batches = losses(&format!("{loss} batch 20"));
    for (a, b) in whole.iter().zip(&batches) {
        assert!((a - b).abs() < 1e-4 * a.abs(), "{whole:?} {batches:?}");
    }
    assert_eq!(losses(&format!("{loss} batch 7 fanout [2]")).len(), 8);
}

/// Rows of a vertex type are pulled to length 1 and apart: nothing is compared with a label.
#[test]
fn a_loss_without_labels() {
    let place = Place::new();
    let text = format!(
        "{SCHEMA}
model Net(schema: Tiny) {{
    output h: Paper = linear(Paper.x, 4)
    output a: Author = linear(Author.x, 4)
}}
train Net {{
    loss mean((dot(h, h) - 1) * (dot(h, h) - 1)) over Paper + dot(mean(h) over Paper, mean(h) over Paper)
    optimizer adam(lr: 0.02)
    epochs 60
}}
"
    );
    place.model(&text);
    let run = place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors"]).works();
    assert!(run.err.contains("train.loss "), "{}", run.err);
    let report = place.json("r.json");
    let losses: Vec<f64> = serde_json::from_value(report["losses"].clone()).expect("numbers");
    assert!(losses[59] < 0.2 * losses[0], "{losses:?}");
    let all = metrics(&report);
    assert_eq!(all.keys().collect::<Vec<_>>(), ["train"]);
    assert_eq!(all["train"].keys().collect::<Vec<_>>(), ["loss"]);
    assert!(all["train"]["loss"] <= losses[59], "{all:?}");
    assert!(report.get("baseline").is_none() && report.get("classes").is_none(), "{report:#}");
    let run = place.with_data("infer", &["--weights", "w.safetensors", "--output", "h", "--out", "h.npy"]).works();
    assert!(run.out.contains("40 rows of 4"), "{}", run.out);
    // An artifact has the outputs, and nothing to measure.
    place.with_data("train", &["-o", "m.hgnnx"]).works();
    place.run(&["infer", "m.hgnnx", "--data", "data", "--output", "h", "--out", "i.npy"]).works();
    assert_eq!(place.bytes("h.npy"), place.bytes("i.npy"));
    place.run(&["eval", "m.hgnnx", "--data", "data"]).fails(1, &["nothing to measure"]);
}
