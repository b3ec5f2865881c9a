//! Several seeds, values of constants, sweeps, logs, limits, and what a report says beside the metrics.

use std::path::Path;

use serde_json::Value;

use crate::common::{BODY, Place, Run, SCHEMA, TRAIN, model_of, names, usual};

/// The usual model with constants for its width and its learning rate, and few epochs.
fn with_constants() -> String {
    let model = usual()
        .replace("hidden: 8", "hidden: width")
        .replace("lr: 0.02", "lr: rate")
        .replace("epochs    30", "epochs    6");
    format!("const width = 8\nconst rate = 0.02\n{model}")
}

/// The usual model on mini-batches, with an embedding table and values that batches share.
fn on_batches() -> String {
    let schema = SCHEMA.replace("{ x: f32[3] }", "{ x: embedding[3] }");
    let train = TRAIN.replace(
        "epochs    30",
        "epochs    6\n    batch     4\n    fanout    [2, 2]\n    reuse     hot(0.5, batches: 2)",
    );
    model_of(BODY, &train).replace(SCHEMA, &schema)
}

#[test]
fn runs_of_several_seeds_are_single_runs_to_the_bit() {
    for (model, args) in [(with_constants(), &[][..]), (on_batches(), &["--cache", "200"])] {
        let place = Place::new();
        place.model(&model);
        let train = |more: &[&str]| place.with_data("train", &[args, more].concat()).works();
        let run = train(&["--seeds", "3", "--seed", "5", "--report", "r.json", "--weights-out", "w.safetensors"]);
        assert!(run.out.starts_with("3 of 3 runs with seeds 5, 6, 7, "), "{}", run.out);
        assert!(run.out.contains(" test: ") && run.out.contains(" ± "), "{}", run.out);
        assert!(run.err.contains("seed 6\nepoch    1/6"), "{}", run.err);
        let all = place.json("r.json");
        let (mut losses, mut best): (Vec<f64>, (f64, u64)) = (vec![], (f64::INFINITY, 0));
        for seed in 5..8u64 {
            let (report, weights) = (format!("{seed}.json"), format!("{seed}.safetensors"));
            train(&["--seed", &seed.to_string(), "--report", &report, "--weights-out", &weights]);
            let (own, among) = (place.json(&report), &all["seeds"][seed as usize - 5]);
            for field in ["seed", "epochs", "best_epoch", "metrics", "losses", "outcome"] {
                assert_eq!(own[field], among[field], "{field} of seed {seed}");
            }
            losses.push(own["metrics"]["test"]["loss"].as_f64().expect("a number"));
            let val = own["metrics"]["val"]["loss"].as_f64().expect("a number");
            if val < best.0 {
                best = (val, seed);
            }
        }
        // The rest of the report, and the parameters, are of the run that is best on the validation part.
        assert_eq!(all["seed"], best.1);
        assert_eq!(place.bytes("w.safetensors"), place.bytes(&format!("{}.safetensors", best.1)));
        assert_eq!(all["metrics"], place.json(&format!("{}.json", best.1))["metrics"]);
        let mean = losses.iter().sum::<f64>() / 3.0;
        let std = (losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
        let near = |found: &Value, expected: f64| (found.as_f64().expect("a number") - expected).abs() < 1e-12;
        assert!(near(&all["mean"]["test"]["loss"], mean) && near(&all["std"]["test"]["loss"], std), "{all:#}");
        place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
        assert_eq!(place.json("e.json")["metrics"], all["metrics"]);
    }
}

#[test]
fn several_seeds_keep_no_checkpoints() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--seeds", "2", "--checkpoint", "c"]).fails(2, &["--seeds", "--checkpoint"]);
    place.with_data("train", &["--seeds", "0"]).fails(2, &["--seeds"]);
}

/// A run that fails does not take the others with it.
#[test]
fn a_seed_that_fails_is_reported() {
    let place = Place::new();
    // The logarithm of numbers of which some begin below 0, with most seeds.
    let body = "
    param shift: [3] = uniform(1.0)
    output logits: Paper = linear(Paper.x, 3) + log(shift + 0.5)
";
    place.model(&model_of(body, &TRAIN.replace("epochs    30", "epochs    2")));
    let run = place.with_data("train", &["--seeds", "12", "--report", "r.json"]).works();
    let report = place.json("r.json");
    let runs = report["seeds"].as_array().expect("runs");
    let failed: Vec<&Value> = runs.iter().filter(|run| run["outcome"] == "failed").collect();
    assert!(!failed.is_empty() && failed.len() < runs.len(), "{report:#}");
    assert!(failed[0]["error"].as_str().is_some_and(|why| why.contains("`log` of -")), "{report:#}");
    assert!(run.err.contains(&format!("warning: the run with seed {} failed: ", failed[0]["seed"])), "{}", run.err);
    assert!(run.out.contains(&format!("{} of 12 runs", runs.len() - failed.len())), "{}", run.out);
}

#[test]
fn constants_are_set() {
    let place = Place::new();
    place.model(&with_constants());
    let set = ["--set", "width=5", "--set", "rate = width / 1000"];
    let out = ["--quiet", "--report", "r.json", "--weights-out", "w.safetensors"];
    place.with_data("train", &[&set[..], &out].concat()).is_silent();
    assert_eq!(place.weights("w.safetensors")["hidden.w.writes"].0, [3, 5]);
    let report = place.json("r.json");
    assert_eq!(report["constants"], serde_json::json!({ "width": 5.0, "rate": 0.005 }));
    // Everything that reads a model takes them.
    let weights = ["--weights", "w.safetensors"];
    place.with_data("eval", &[&set[..2], &weights, &["--report", "e.json"]].concat()).works();
    assert_eq!(place.json("e.json")["metrics"], report["metrics"]);
    place.with_data("eval", &weights).fails(1, &["does not fit the model"]);
    place.with_data("infer", &[&set[..2], &weights, &["--out", "y.npy"]].concat()).works();
    let text = place.run(&["build", "m.hgnn", "--set", "width=7", "--emit", "model"]).works().out;
    assert!(text.contains("hidden.w.writes: f32[3, 7]"), "{text}");
    // The source is shown as it is.
    let text = place.run(&["build", "m.hgnn", "--set", "width=7", "--emit", "ast"]).works().out;
    assert!(text.contains("const width = 8"), "{text}");
}

#[test]
fn constants_that_are_wrong() {
    let place = Place::new();
    place.model(&with_constants());
    let check = |set: &str| place.run(&["check", "m.hgnn", "--set", set]);
    check("widht=5")
        .fails(1, &["E0201", "the model has no constant `widht`", "const widht = 5", "did you mean `width`?"]);
    check("epochs=5").fails(1, &["no constant `epochs`", "`--epochs N` sets that of the train block"]);
    check("width=true").fails(1, &["E0308", "a number known at compile time", "const width = true"]);
    check("width=wide").fails(1, &["E0201", "no constant `wide`"]);
    check("width=").fails(2, &["hidden=16"]);
    check("width=5 const x = 1").fails(1, &["is not one number"]);
    check("width=5)").fails(1, &["E0104", "--set:1:"]);
    // Wrong where it is used: the message says what was set.
    check("width=1.5").fails(1, &["m.hgnn:", "`width` is 1.5 by `--set`"]);
    let twice = place.run(&["check", "m.hgnn", "--set", "width=5", "--set", "width=6"]);
    twice.fails(1, &["E0202", "constant `width` is declared twice"]);
    place.model(&usual());
    check("width=5").fails(1, &["the file declares no constants", "declare `const width = …`"]);
}

/// A constant is part of what a run is, even one that the program does not depend on.
#[test]
fn a_run_is_resumed_with_its_constants() {
    let place = Place::new();
    place.model(
        &with_constants()
            .replace("epochs    6", "epochs    last")
            .replace("const width", "const last = 2\nconst width"),
    );
    let train = |args: &[&str]| place.with_data("train", &[&["--checkpoint", "c"], args].concat());
    train(&["--set", "last=3", "--set", "rate=0.01"]).works();
    train(&["--resume", "--set", "rate=0.01"]).fails(1, &["a constant has changed (`last` 3 -> 2)", "--allow-changed"]);
    let words = ["a constant has changed (`rate` 0.01 -> 0.02)", "learning rate 0.01 -> 0.02"];
    train(&["--resume", "--set", "last=3"]).fails(1, &words);
    let again = train(&["--resume", "--set", "last=3", "--set", "rate=0.01"]).works();
    assert!(again.err.contains("continuing after epoch 3"), "{}", again.err);
    // The same values in the file.
    let text = String::from_utf8(place.bytes("m.hgnn")).expect("a text");
    place.model(&text.replace("last = 2", "last = 3").replace("rate = 0.02", "rate = 0.01"));
    train(&["--resume"]).works();
}

fn lines(place: &Place, name: &str) -> Vec<Value> {
    let text = String::from_utf8(place.bytes(name)).expect("a text");
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

#[test]
fn a_log_has_an_object_per_epoch_and_goes_on_with_a_resumed_run() {
    let place = Place::new();
    place.model(&usual());
    let train = |args: &[&str]| place.with_data("train", &[&["--quiet"], args].concat()).is_silent();
    train(&["--epochs", "5", "--log", "whole.jsonl", "--report", "r.json"]);
    let whole = lines(&place, "whole.jsonl");
    assert_eq!(whole.len(), 5);
    let report = place.json("r.json");
    for (line, loss) in whole.iter().zip(report["losses"].as_array().expect("losses")) {
        assert_eq!(&line["loss"], loss);
        assert!(line["val"]["loss"].is_f64() && line["train"]["accuracy"].is_f64() && line["ms"].is_f64(), "{line}");
        assert_eq!((line["seed"].as_u64(), line.get("test")), (Some(0), None));
    }
    let best = report["best_epoch"].as_u64().expect("a number") as usize;
    assert_eq!(whole[best - 1]["epoch"], best);
    assert_eq!(whole[best - 1]["val"]["macro_f1"], report["metrics"]["val"]["macro_f1"]);
    // Whatever is logged, the run is the same.
    train(&["--epochs", "5", "--report", "plain.json"]);
    assert_eq!(place.json("plain.json")["losses"], report["losses"]);

    train(&["--epochs", "3", "--log", "l.jsonl", "--checkpoint", "c"]);
    // Of a run that went on after its last checkpoint until it was killed.
    let text = String::from_utf8(place.bytes("l.jsonl")).expect("a text");
    std::fs::write(place.path("l.jsonl"), format!("{text}{{\"epoch\":4,\"loss\":9}}\n{{\"epoch\":5,\"lo"))
        .expect("written");
    train(&["--epochs", "5", "--log", "l.jsonl", "--checkpoint", "c", "--resume"]);
    let plain = |name: &str| -> Vec<Value> {
        let without_time = |mut line: Value| {
            line.as_object_mut().expect("an object").remove("ms");
            line
        };
        lines(&place, name).into_iter().map(without_time).collect()
    };
    assert_eq!(plain("l.jsonl"), plain("whole.jsonl"));
    place.with_data("train", &["--log", "m.hgnn"]).fails(1, &["is the model"]);
    place.with_data("train", &["--log", "no/l.jsonl"]).fails(1, &["there is no folder"]);
}

/// A scalar of an event file.
#[derive(PartialEq, Debug)]
struct Scalar {
    step: u64,
    tag: String,
    value: f32,
}

/// Reads the fields of a message: number, and the number or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for place in 0.. {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }
    let mut found = vec![];
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, len) = match key & 7 {
            0 => (varint(&mut bytes), 0),
            1 => (0, 8),
            5 => (0, 4),
            2 => {
                let len = varint(&mut bytes);
                (0, len as usize)
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, number, bytes[..len].to_vec()));
        bytes = &bytes[len..];
    }
    found
}

/// The scalars of the event files of a folder, in the order of their names. The checksums are compared in the tests of
/// the writer.
fn scalars(folder: &Path) -> Vec<Scalar> {
    let mut all = vec![];
    for name in names(folder) {
        assert!(name.starts_with("events.out.tfevents."), "{name}");
        let bytes = std::fs::read(folder.join(name)).expect("read");
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let len = u64::from_le_bytes(rest[..8].try_into().expect("a length")) as usize;
            let event = fields(&rest[12..12 + len]);
            let step = event.iter().find(|field| field.0 == 2).map_or(0, |field| field.1);
            for (_, _, summary) in event.iter().filter(|field| field.0 == 5) {
                for (_, _, value) in fields(summary) {
                    let value = fields(&value);
                    let of = |number: u64| value.iter().find(|field| field.0 == number).expect("a field").2.clone();
                    let tag = String::from_utf8(of(1)).expect("a text");
                    all.push(Scalar { step, tag, value: f32::from_le_bytes(of(2).try_into().expect("4 bytes")) });
                }
            }
            rest = &rest[16 + len..];
        }
    }
    all
}

#[test]
fn event_files_hold_the_scalars_of_each_epoch() {
    let place = Place::new();
    place.model(&usual());
    let args = ["--quiet", "--tensorboard", "tb", "--epochs", "2", "--checkpoint", "c", "--report", "r.json"];
    place.with_data("train", &args).is_silent();
    let found = scalars(&place.path("tb"));
    let tags: Vec<&str> = found.iter().take_while(|scalar| scalar.step == 1).map(|scalar| &scalar.tag[..]).collect();
    let expected = [
        "loss/step",
        "time/epoch_ms",
        "loss/train",
        "accuracy/train",
        "macro_f1/train",
        "loss/val",
        "accuracy/val",
        "macro_f1/val",
    ];
    assert_eq!(tags, expected);
    let report = place.json("r.json");
    let losses: Vec<f32> = found.iter().filter(|s| s.tag == "loss/step").map(|s| s.value).collect();
    let reported: Vec<f32> =
        report["losses"].as_array().expect("losses").iter().map(|x| x.as_f64().expect("a number") as f32).collect();
    assert_eq!(losses, reported);
    // A resumed run has a file of its own, and so has each of several seeds, in a folder of its own.
    place
        .with_data("train", &["--quiet", "--tensorboard", "tb", "--epochs", "3", "--checkpoint", "c", "--resume"])
        .is_silent();
    assert_eq!(names(&place.path("tb")).len(), 2);
    let steps: Vec<u64> = scalars(&place.path("tb")).iter().filter(|s| s.tag == "loss/step").map(|s| s.step).collect();
    assert_eq!(steps, [1, 2, 3]);
    place.with_data("train", &["--quiet", "--tensorboard", "many", "--epochs", "1", "--seeds", "2"]).is_silent();
    assert_eq!(names(&place.path("many")), ["seed-0", "seed-1"]);
    assert_eq!(scalars(&place.path("many/seed-1")).len(), expected.len());
}

#[test]
fn a_run_ends_with_its_time() {
    let place = Place::new();
    place.model(&usual().replace("epochs    30", "epochs    100000000"));
    let args = ["--max-time", "0.01s", "--report", "r.json", "--checkpoint", "c"];
    let run = place.with_data("train", &args).works();
    assert!(run.err.contains("stopped by --max-time after epoch"), "{}", run.err);
    assert!(run.err.contains("--checkpoint c --resume"), "{}", run.err);
    let report = place.json("r.json");
    assert_eq!(report["outcome"], "time limit");
    let done = report["epochs"].as_u64().expect("a number");
    assert!(done >= 1);
    let run = place.with_data("train", &[&args[..], &["--resume"]].concat()).works();
    assert!(run.err.contains(&format!("continuing after epoch {done}")), "{}", run.err);
    // The limit is of all runs together.
    place.with_data("train", &["--max-time", "0.01s", "--seeds", "9", "--report", "s.json", "--quiet"]).is_silent();
    assert_eq!(place.json("s.json")["seeds"].as_array().map(Vec::len), Some(1));
    place.with_data("train", &["--max-time", "10"]).fails(2, &["`10` is not a time", "90s, 10m, 1.5h"]);
}

#[test]
fn a_fast_run_exercises_everything_in_two_epochs() {
    let place = Place::new();
    place.model(&usual());
    let run = place.with_data("train", &["--fast-dev-run"]).works();
    assert!(run.out.contains("finished: 2 epochs") && run.out.contains(" test: "), "{}", run.out);
    assert!(!run.err.contains("the parameters were not kept"), "{}", run.err);
    assert_eq!(place.names(), ["data", "m.hgnn"]);
    place.with_data("train", &["--fast-dev-run", "--checkpoint", "c", "--report", "r.json", "-o", "run"]).works();
    assert_eq!(place.names(), ["c", "data", "m.hgnn", "r.json", "run"]);
    assert_eq!(names(&place.path("c")), ["checkpoint.safetensors"]);
    assert_eq!(place.json("r.json")["epochs"], 2);
    place.with_data("train", &["--fast-dev-run", "--epochs", "3"]).fails(2, &["--fast-dev-run", "--epochs"]);
}

fn sweep(place: &Place, args: &[&str]) -> Run {
    place.with_data("sweep", &[&["-o", "s"], args].concat())
}

#[test]
fn a_sweep_has_a_folder_per_point_and_a_table() {
    let place = Place::new();
    place.model(&with_constants());
    let grid = ["--set", "rate=0.001,0.05", "--set", "width=4,8"];
    let run = sweep(&place, &grid).works();
    assert!(run.err.contains("point 1/4  rate=0.001,width=4\n"), "{}", run.err);
    let points = ["rate=0.001,width=4", "rate=0.001,width=8", "rate=0.05,width=4", "rate=0.05,width=8"];
    assert_eq!(names(&place.path("s")), [&points[..], &["run.json", "sweep.json"]].concat());
    let table = place.json("s/sweep.json");
    assert_eq!((&table["select"], &table["left"]), (&"val.loss".into(), &0.into()));
    let losses: Vec<f64> = table["points"]
        .as_array()
        .expect("points")
        .iter()
        .map(|p| p["criterion"].as_f64().expect("a number"))
        .collect();
    assert!(losses.len() == 4 && losses.is_sorted(), "{table:#}");
    // Chosen by validation; only that point has metrics of the test part.
    let best = table["points"][0]["folder"].as_str().expect("a folder");
    assert_eq!(table["chosen"], best);
    assert!(table["points"][0]["metrics"].get("test").is_none(), "{table:#}");
    let report = place.json(&format!("s/{best}/report.json"));
    assert_eq!(table["points"][0]["criterion"], report["metrics"]["val"]["loss"]);
    assert_eq!(table["test"], report["metrics"]["test"]);
    assert!(
        run.out.starts_with("val.loss  rate") && run.out.contains(&format!("chosen by val.loss: {best}")),
        "{}",
        run.out
    );
    // A point is a run of its own.
    let value = |name: &str| format!("{name}={}", report["constants"][name]);
    let (rate, width) = (value("rate"), value("width"));
    let args = ["--quiet", "--set", &rate, "--set", &width, "--weights-out", "w.safetensors"];
    place.with_data("train", &args).is_silent();
    assert_eq!(place.bytes("w.safetensors"), place.bytes(&format!("s/{best}/weights.safetensors")));
    // Finished points are not trained again, the lost point is, and the grid may grow.
    std::fs::remove_dir_all(place.path("s/rate=0.05,width=8")).expect("removed");
    std::fs::write(place.path("s/rate=0.001,width=4/mark"), "").expect("written");
    let run = sweep(&place, &["--set", "rate=0.001,0.05", "--set", "width=4,8,2"]).works();
    assert_eq!(run.err.matches(": done before").count(), 3, "{}", run.err);
    assert!(place.path("s/rate=0.001,width=4/mark").exists());
    assert_eq!(place.json("s/sweep.json")["points"].as_array().map(Vec::len), Some(6));
    assert_eq!(place.json(&format!("s/{best}/report.json"))["metrics"], report["metrics"]);
}

#[test]
fn a_sweep_compares_means_of_several_seeds() {
    let place = Place::new();
    place.model(&with_constants());
    let run = sweep(&place, &["--set", "rate=0.01,0.05", "--seeds", "2", "--quiet"]).works();
    assert!(run.out.contains(" ± ") && run.err.is_empty(), "{run:?}");
    let point = &place.json("s/sweep.json")["points"][0];
    let report = place.json(&format!("s/{}/report.json", point["folder"].as_str().expect("a folder")));
    assert_eq!(point["criterion"], report["mean"]["val"]["loss"]);
    assert_eq!(point["std"], report["std"]["val"]["loss"]);
    assert_eq!(report["seeds"].as_array().map(Vec::len), Some(2));
}

#[test]
fn sweeps_that_are_wrong() {
    let place = Place::new();
    place.model(&with_constants());
    sweep(&place, &[]).fails(2, &["--set"]);
    // Before anything is trained.
    sweep(&place, &["--set", "rate=0.1", "--set", "width=4,1.5"]).fails(1, &["`width` is 1.5 by `--set`"]);
    sweep(&place, &["--set", "rat=0.1,0.2"]).fails(1, &["did you mean `rate`?"]);
    sweep(&place, &["--set", "rate=0.1,0.1"]).fails(1, &["have the same folder"]);
    assert!(!place.path("s").exists());
    sweep(&place, &["--set", "rate=0.1", "--epochs", "1"]).works();
    sweep(&place, &["--set", "rate=0.1", "--epochs", "2"]).fails(1, &["holds a sweep with another epochs"]);
    let precise = ["--set", "rate=0.1", "--epochs", "1", "--precision", "f32"];
    sweep(&place, &precise).fails(1, &["holds a sweep with another precision"]);
    let without = ["--set", "rate=0.1", "--epochs", "1", "--disable-pass", "cse"];
    sweep(&place, &without).fails(1, &["holds a sweep with another set of passes"]);
    place.model(&with_constants().replace("relu", "tanh"));
    sweep(&place, &["--set", "rate=0.1", "--epochs", "1"]).fails(1, &["holds a sweep with another model"]);
    // The same folder with other numbers.
    place.model(&with_constants());
    let named = std::fs::read_to_string(place.path("data/dataset.toml")).expect("a description");
    let array = named.split('"').find(|name| name.ends_with(".npy")).expect("an array");
    let change = || {
        let path = format!("data/{array}");
        let mut bytes = place.bytes(&path);
        *bytes.last_mut().expect("bytes") ^= 1;
        std::fs::write(place.path(&path), bytes).expect("written");
    };
    change();
    sweep(&place, &["--set", "rate=0.1", "--epochs", "1"]).fails(1, &["with another contents of the dataset"]);
    change();
    sweep(&place, &["--set", "rate=0.1", "--epochs", "1"]).works();
    // Those of a dataset that the model names, likewise.
    place.model(&with_constants().replace("    epochs ", "    dataset \"data\"\n    epochs "));
    let named = ["sweep", "m.hgnn", "-o", "t", "--set", "rate=0.1", "--epochs", "1"];
    place.run(&named).works();
    change();
    place.run(&named).fails(1, &["with another contents of the dataset"]);
    let other = ["sweep", "m.hgnn", "--data", "data", "-o", "data", "--set", "rate=0.1"];
    place.run(&other).fails(1, &["holds files that are of no sweep"]);
}

/// A point whose loss is not finite ends, and the others go on.
#[test]
fn a_point_that_fails_is_in_the_table() {
    let place = Place::new();
    place.model(&with_constants().replace("relu(", "square(").replace("adam", "sgd"));
    let run = sweep(&place, &["--set", "rate=1e30,0.01", "--epochs", "3"]).works();
    assert!(run.err.contains("warning: rate=1e30: the loss is"), "{}", run.err);
    let table = place.json("s/sweep.json");
    assert_eq!(table["chosen"], "rate=0.01");
    assert!(table["points"][1]["error"].as_str().is_some_and(|why| why.contains("the loss is")), "{table:#}");
    assert!(run.out.lines().any(|line| line.starts_with("failed")), "{}", run.out);
    assert_eq!(names(&place.path("s")), ["rate=0.01", "run.json", "sweep.json"]);
}

#[test]
fn a_report_has_scores_of_classes() {
    let place = Place::new();
    place.toml("classes = 3\n", "classes = 3\nclass_names = [\"red\", \"green\", \"blue\"]\n").model(&usual());
    place.with_data("train", &["--quiet", "--report", "r.json", "--weights-out", "w.safetensors"]).is_silent();
    let report = place.json("r.json");
    for (part, vertices) in [("train", 20), ("val", 8), ("test", 12)] {
        let classes = &report["classes"][part];
        let scores = classes["scores"].as_array().expect("scores");
        let names: Vec<&str> = scores.iter().map(|score| score["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["red", "green", "blue"]);
        let number = |score: &Value, field: &str| score[field].as_f64().expect("a number");
        assert_eq!(scores.iter().map(|score| number(score, "support")).sum::<f64>(), f64::from(vertices));
        let confusion: Vec<Vec<u64>> = serde_json::from_value(classes["confusion"].clone()).expect("a matrix");
        for (class, row) in confusion.iter().enumerate() {
            assert_eq!(row.iter().sum::<u64>() as f64, number(&scores[class], "support"));
        }
        // The same as the metrics.
        let right: u64 = (0..3).map(|class| confusion[class][class]).sum();
        assert_eq!(report["metrics"][part]["accuracy"], right as f64 / f64::from(vertices));
        let macro_f1 = scores.iter().map(|score| number(score, "f1")).sum::<f64>() / 3.0;
        assert!((number(&report["metrics"][part], "macro_f1") - macro_f1).abs() < 1e-12);
    }
    place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["classes"], report["classes"]);
    // On batches, where outputs come some vertices at a time.
    place.model(&on_batches());
    place.with_data("train", &["--quiet", "--report", "b.json"]).is_silent();
    assert_eq!(place.json("b.json")["classes"]["test"]["confusion"].as_array().map(Vec::len), Some(3));
    // Several classes per vertex.
    let (loss, tags) = ("cross_entropy(logits, Paper.y)", "binary_cross_entropy(logits, Paper.tags)");
    let body = BODY.replace("hidden: 3", "hidden: 2");
    place.model(&model_of(&body, &TRAIN.replace(loss, tags)));
    place.with_data("train", &["--quiet", "--report", "t.json"]).is_silent();
    let tags = &place.json("t.json")["classes"]["val"];
    assert_eq!((tags["scores"].as_array().map(Vec::len), tags.get("confusion")), (Some(2), None));
}

#[test]
fn scores_stand_beside_those_of_the_features() {
    let place = Place::new();
    place.model(&usual());
    let run = place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors"]).works();
    let base = &place.json("r.json")["baseline"];
    assert_eq!((&base["kind"], &base["features"]), (&"softmax regression".into(), &6.into()));
    assert_eq!(base["vertices"], serde_json::json!({ "train": 20, "val": 8, "test": 12 }));
    // The class of a paper shows in its features.
    assert_eq!(base["metrics"]["test"]["accuracy"], 1.0);
    let line = "without the graph: test accuracy 1.0000  macro_f1 1.0000  micro_f1 1.0000 (softmax regression of the features)";
    assert!(run.out.contains(line), "{}", run.out);
    let run = place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert!(run.out.contains(line), "{}", run.out);
    assert_eq!(place.json("e.json")["baseline"]["metrics"], base["metrics"]);
    // A type without features.
    let features = "[vertex_type.features]\nkind = \"csr\"\ndim = 6\nindptr = \"paper.x.indptr.npy\"\nindices = \
                    \"paper.x.indices.npy\"\ndata = \"paper.x.data.npy\"\n";
    place.toml(features, "");
    let schema = SCHEMA.replace("x: f32[6] sparse", "x: embedding[4]");
    place.model(&usual().replace(SCHEMA, &schema));
    let run = place.with_data("train", &["--epochs", "2", "--report", "m.json"]).works();
    let base = &place.json("m.json")["baseline"];
    assert_eq!((&base["kind"], &base["steps"]), (&"majority class".into(), &0.into()));
    assert!(run.out.contains("(majority class)"), "{}", run.out);
}

/// On mini-batches, the operation is looked for in the batch that it was in.
#[test]
fn a_loss_of_a_batch_names_where_it_comes_from() {
    let place = Place::new();
    let train = TRAIN.replace("epochs    30", "epochs    3\n    batch     4\n    fanout    [2, 2]");
    // Dropout leaves zeros, of which only a training step takes the logarithm.
    let body = BODY.replace("dropout(relu(", "log(dropout(abs(").replace("features), 0.2)", "features) + 1.0, 0.5))");
    place.model(&model_of(&body, &train));
    let run = place.with_data("train", &["--quiet"]);
    run.fails(
        1,
        &["in epoch 1", "The first number that is not finite is -inf: `log` of 0.000000", " at vertex ", "(m.hgnn:"],
    );
}

/// Vertices that were renumbered for the cache are named as in the dataset.
#[test]
fn a_vertex_is_named_as_in_the_dataset() {
    let place = Place::new();
    place.model(&model_of(&BODY.replace("relu(", "log("), TRAIN));
    let found = |args: &[&str]| {
        let run = place.with_data("train", &[&["--quiet"], args].concat());
        run.fails(1, &["`log` of -", " at vertex ", "(m.hgnn:"]);
        run.err
    };
    found(&[]);
    found(&["--disable-pass", "reorder_vertices"]);
}

/// The model of the page about training is one.
#[test]
fn the_example_of_the_page_compiles() {
    let page = include_str!("../../../../docs/training.md");
    let model = page.split("```hgnn\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a model");
    let place = Place::new();
    place.model(model).run(&["check", "m.hgnn", "--set", "hidden=32"]).passes();
}
