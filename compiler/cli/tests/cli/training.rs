//! `train`, `eval` and `infer` on data that are as they should be.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{AUTHORS, BODY, PAPERS, Place, SCHEMA, TRAIN, model_of, names, replace, usual};

#[test]
fn a_report_has_every_field_of_the_contract() {
    let place = Place::new();
    place.model(&usual());
    let run =
        place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors", "--threads", "2"]).works();
    assert!(run.out.contains("finished: 30 epochs"), "{}", run.out);
    let parts: Vec<&str> =
        run.out.lines().skip(1).filter_map(|l| Some(l.trim().split_once(": accuracy ")?.0)).collect();
    assert_eq!(parts, ["train", "val", "test"], "{}", run.out);
    // Every tenth epoch and the last one, a line each, where no terminal listens.
    let epochs: Vec<&str> = run.err.lines().filter(|l| l.starts_with("epoch")).collect();
    let numbers: Vec<&str> = epochs.iter().map(|l| l.split_whitespace().nth(1).expect("a number")).collect();
    assert_eq!(numbers, ["1/30", "11/30", "21/30", "30/30"], "{}", run.err);
    assert!(epochs.iter().all(|l| l.contains("loss ") && l.contains("val.loss ") && l.contains(" ms")), "{}", run.err);
    assert!(!run.err.contains('\r') && !run.err.contains('\x1b'), "no bar and no colours: {}", run.err);

    let report = place.json("r.json");
    // The page has what is written, and no other field.
    let page = include_str!("../../../../docs/report.md").lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeSet<&str> = page
        .flat_map(|row| row.split(" | ").next().unwrap_or("").split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    let written: BTreeSet<&str> = report.as_object().expect("an object").keys().map(String::as_str).collect();
    assert!(written.is_subset(&told), "not in docs/report.md: {:?}", written.difference(&told));
    let absent: Vec<_> = told.difference(&written).collect();
    // Those of mini-batches, of set constants, of outputs of semantic graphs, of several processes, and of several seeds.
    let those = [&"batches", &"constants", &"graph_weights", &"mean", &"ranks", &"seeds", &"std"];
    assert_eq!(absent, those, "in docs/report.md only");
    for key in ["model", "dataset", "device", "outcome"] {
        assert!(report[key].is_string(), "{key}: {report:#}");
    }
    for key in [
        "threads",
        "seed",
        "epochs",
        "best_epoch",
        "peak_rss_bytes",
        "arena_bytes",
        "infer_arena_bytes",
        "device_bytes",
        "params",
    ] {
        assert!(report[key].is_u64(), "{key}: {report:#}");
    }
    assert!(report["infer_arena_bytes"].as_u64() <= report["arena_bytes"].as_u64(), "{report:#}");
    for key in ["load_s", "sgb_s", "compile_s", "train_s"] {
        assert!(report[key].as_f64().is_some_and(|s| s >= 0.0), "{key}: {report:#}");
    }
    for key in ["epoch_ms", "forward_ms", "backward_ms", "update_ms", "infer_ms"] {
        let of = |field: &str| report[key][field].as_f64().unwrap_or(-1.0);
        assert!(0.0 < of("min") && of("min") <= of("median") && of("median") <= of("max"), "{key}: {report:#}");
    }
    for stage in ["FP", "NA", "SF", "LC", "PU"] {
        assert!(report["stage_ms"][stage].as_f64().is_some_and(|ms| ms > 0.0), "{stage}: {report:#}");
    }
    for part in ["train", "val", "test"] {
        for metric in ["loss", "micro_f1", "macro_f1", "accuracy"] {
            assert!(report["metrics"][part][metric].is_f64(), "{part}.{metric}: {report:#}");
        }
    }
    // Counted as the terminal counts.
    let best = format!("best epoch {},", report["best_epoch"]);
    assert!(run.out.contains(&best), "no `{best}` in {}", run.out);
    assert_eq!((&report["model"], &report["dataset"]), (&Value::from("Net"), &Value::from("tiny")));
    assert_eq!((&report["threads"], &report["epochs"]), (&Value::from(2), &Value::from(30)));
    assert_eq!(report["losses"].as_array().map(Vec::len), Some(30));
    assert!(report["metrics"]["test"]["accuracy"].as_f64().is_some_and(|a| a > 0.9), "{report:#}");
    let graphs = report["semantic_graphs"].as_array().expect("a list");
    let graphs: Vec<_> = graphs.iter().map(|g| (g["name"].as_str().unwrap_or(""), &g["rows"], &g["cols"])).collect();
    let n = |count: usize| Value::from(count);
    assert_eq!(
        graphs,
        [
            ("writes", &n(PAPERS), &n(AUTHORS)),
            ("cites", &n(PAPERS), &n(PAPERS)),
            ("reverse_writes", &n(AUTHORS), &n(PAPERS)),
            ("reverse_cites", &n(PAPERS), &n(PAPERS)),
        ]
    );
    assert_eq!(report["semantic_graphs"][1]["edges"], n(PAPERS - 3));

    let weights = place.weights("w.safetensors");
    let keys: Vec<&str> = weights.keys().map(String::as_str).collect();
    for key in ["hidden.w.writes", "hidden.w.reverse_cites", "logits.w.cites"] {
        assert!(keys.contains(&key), "{keys:?}");
    }
    assert_eq!(weights["hidden.w.writes"].0, [3, 8]);
    assert_eq!(weights["logits.w.cites"].0, [8, 3]);
    let elements: usize = weights.values().map(|(_, data)| data.len()).sum();
    assert_eq!(report["params"], n(elements));
    assert_eq!(place.names(), ["data", "m.hgnn", "r.json", "w.safetensors"]);
}

#[test]
fn eval_and_infer_agree_with_the_report() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors"]).works();
    let run = place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert!(run.out.contains("test: ") && run.out.contains("macro_f1"), "{}", run.out);
    let (trained, measured) = (place.json("r.json"), place.json("e.json"));
    assert_eq!(trained["metrics"], measured["metrics"]);
    assert_eq!((&measured["epochs"], &measured["best_epoch"]), (&Value::from(0), &Value::Null));

    let run = place.with_data("infer", &["--weights", "w.safetensors", "--out", "logits.npy"]).works();
    assert!(run.out.contains("40 rows of 3"), "{}", run.out);
    // The bytes that numpy reads: magic, version 1.0, a header that ends at a multiple of 64, then the numbers.
    let bytes = place.bytes("logits.npy");
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..end]).expect("a text");
    assert!(header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (40, 3), }"), "{header}");
    assert!(header.ends_with('\n') && end.is_multiple_of(64));
    assert_eq!(bytes.len(), end + PAPERS * 3 * 4);
    let (numbers, _) = bytes[end..].as_chunks::<4>();
    let logits: Vec<f32> = numbers.iter().map(|&b| f32::from_le_bytes(b)).collect();
    // The test part is the papers from 28 on, and the class of a paper is its number modulo 3.
    let guess = |row: &[f32]| (0..3).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("classes");
    let right = (28..PAPERS).filter(|&p| guess(&logits[3 * p..3 * p + 3]) == p % 3).count();
    assert_eq!(trained["metrics"]["test"]["accuracy"], Value::from(right as f64 / 12.0));

    place.with_data("infer", &["--weights", "w.safetensors", "--output", "logits", "--out", "again.npy"]).works();
    assert_eq!(place.bytes("again.npy"), bytes);
    let run = place.with_data("infer", &["--weights", "w.safetensors", "--output", "logit", "--out", "no.npy"]);
    run.fails(1, &["no output `logit`", "did you mean `logits`?"]);
    assert!(!place.path("no.npy").exists());
}

/// New data have no labels, which is why one wants to know them.
#[test]
fn outputs_of_data_without_labels() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--quiet", "--weights-out", "w.safetensors"]).is_silent();
    place.with_data("infer", &["--weights", "w.safetensors", "--out", "with.npy"]).works();
    let toml = String::from_utf8(place.bytes("data/dataset.toml")).expect("a text");
    let (start, end) = (toml.find("[[label]]").expect("labels"), toml.find("[[metapath]]").expect("metapaths"));
    std::fs::write(place.path("data/dataset.toml"), format!("{}{}", &toml[..start], &toml[end..])).expect("written");
    place.with_data("eval", &["--weights", "w.safetensors"]).fails(1, &["E0427", "E0426"]);
    place.with_data("train", &["--weights-out", "w.safetensors"]).fails(1, &["E0427", "E0426"]);
    place.with_data("infer", &["--weights", "w.safetensors", "--out", "without.npy"]).works();
    assert_eq!(place.bytes("with.npy"), place.bytes("without.npy"));
    // Relations that the outputs depend on are still compared.
    place
        .toml("name = \"author-paper\"", "name = \"written\"")
        .toml("<author-paper\", \">author-paper", "<written\", \">written");
    place.with_data("infer", &["--weights", "w.safetensors", "--out", "no.npy"]).fails(1, &["E0421"]);
    assert!(!place.path("no.npy").exists());
}

#[test]
fn threads_do_not_change_a_bit_and_seeds_do() {
    let place = Place::new();
    place.model(&usual());
    for (name, threads, seed) in [("a", "1", "3"), ("b", "2", "3"), ("c", "2", "4")] {
        let file = format!("{name}.safetensors");
        let args = ["--quiet", "--epochs", "8", "--threads", threads, "--seed", seed, "--weights-out", &file];
        place.with_data("train", &args).is_silent();
    }
    assert_eq!(place.bytes("a.safetensors"), place.bytes("b.safetensors"));
    assert_ne!(place.bytes("a.safetensors"), place.bytes("c.safetensors"));
}

#[test]
fn the_best_of_one_epoch_is_epoch_1() {
    let place = Place::new();
    place.model(&usual());
    let run = place.with_data("train", &["--epochs", "1", "--report", "r.json"]).works();
    assert!(run.out.contains("1 epochs, best epoch 1,"), "{}", run.out);
    assert_eq!(
        (&place.json("r.json")["epochs"], &place.json("r.json")["best_epoch"]),
        (&Value::from(1), &Value::from(1))
    );
}

#[test]
fn weights_to_start_from() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--weights-out", "w.safetensors"]).works();
    // No epochs at all: what was read is what is written.
    let args = ["--init", "w.safetensors", "--epochs", "0", "--weights-out", "same.safetensors", "--report", "r.json"];
    place.with_data("train", &args).works();
    assert_eq!(place.bytes("w.safetensors"), place.bytes("same.safetensors"));
    let report = place.json("r.json");
    assert_eq!((&report["epochs"], &report["best_epoch"]), (&Value::from(0), &Value::Null));
    assert!(report["metrics"]["test"]["accuracy"].as_f64().is_some_and(|a| a > 0.9), "{report:#}");

    place.with_data("train", &["--epochs", "1", "--weights-out", "fresh.safetensors", "--report", "f.json"]).works();
    place.with_data("train", &["--init", "w.safetensors", "--epochs", "1", "--report", "i.json"]).works();
    let loss = |name: &str| place.json(name)["losses"][0].as_f64().expect("a loss");
    assert!(loss("i.json") < 0.5 * loss("f.json"), "{} and {}", loss("i.json"), loss("f.json"));
}

#[test]
fn a_resumed_run_equals_one_that_was_never_stopped() {
    let place = Place::new();
    place.model(&usual());
    let train = |args: &[&str]| place.with_data("train", args).works();
    train(&["--epochs", "12", "--weights-out", "whole.safetensors", "--report", "whole.json"]);
    train(&["--epochs", "5", "--checkpoint", "c"]);
    assert_eq!(names(&place.path("c")), ["checkpoint.safetensors"]);
    let args =
        ["--checkpoint", "c", "--resume", "--epochs", "12", "--weights-out", "parts.safetensors", "--report", "p.json"];
    let run = train(&args);
    assert!(run.err.contains("continuing after epoch 5"), "{}", run.err);
    assert_eq!(place.bytes("whole.safetensors"), place.bytes("parts.safetensors"));
    let (whole, parts) = (place.json("whole.json"), place.json("p.json"));
    for key in ["losses", "metrics", "best_epoch", "epochs"] {
        assert_eq!(whole[key], parts[key], "{key}");
    }
    // All epochs are done: nothing is left to do.
    train(&args);
    assert_eq!(place.bytes("whole.safetensors"), place.bytes("parts.safetensors"));
}

#[test]
fn several_labels_and_real_numbers() {
    let place = Place::new();
    let body = "
    let hidden = relu(RgcnConv(hidden: 8) over [relations, reverses] of features)
    output logits: Paper = linear(hidden, 2).Paper
    output years: Paper = linear(hidden, 1).Paper";
    place.model(&model_of(
        body,
        "train Net { loss binary_cross_entropy(logits, Paper.tags) optimizer adam(lr: 0.02) epochs 60 select val.micro_f1 metrics micro_f1, macro_f1 }",
    ));
    place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors"]).works();
    let test = &place.json("r.json")["metrics"]["test"];
    assert!(test["micro_f1"].as_f64().is_some_and(|f| f > 0.8), "{test}");
    assert!(test.get("mae").is_none(), "{test}");

    place.model(&model_of(
        body,
        "train Net { loss mse(years, Paper.year) optimizer adam(lr: 0.02) epochs 60 metrics mae, rmse }",
    ));
    place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors"]).works();
    let report = place.json("r.json");
    let test = &report["metrics"]["test"];
    assert!(test["mae"].as_f64().is_some_and(|e| e < 0.6) && test["rmse"].is_f64(), "{test}");
    assert!(test.get("accuracy").is_none(), "{test}");
    place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["metrics"], report["metrics"]);
    let run = place.with_data("infer", &["--weights", "w.safetensors", "--out", "o.npy"]).works();
    assert!(run.out.contains("40 rows of 1"), "{}", run.out);
}

/// A layer that uses all that edges have.
const EDGES: &str = "
layer Edges(hidden: dim) over graphs: [*] of x: *[in] -> *[hidden] {
    project v: * { param w: [in, hidden]  h = v.x @ w }
    aggregate e: g in graphs {
        param k: [width(e.kind), hidden]
        z = sum(e.weight * e.src.h * sigmoid(e.kind @ k)) over in_edges
    }
    fuse v: * across graphs { out = v.h + sum(v.z) across graphs }
}
layer Counted(hidden: dim) over graphs: [V -> V] of x: V[in] -> V[hidden] {
    project v: V { param w: [in, hidden]  h = v.x @ w }
    aggregate e: g in graphs { z = sum(e.count * e.src.h) over in_edges }
    fuse v: V across graphs { out = mean(v.z) across graphs }
}
layer Mean(hidden: dim) over graphs: [V -> V] of x: V[in] -> V[hidden] {
    project v: V { param w: [in, hidden]  h = v.x @ w }
    aggregate e: g in graphs { z = mean(e.src.h) over in_edges }
    fuse v: V across graphs { out = sum(v.z) across graphs }
}
";

#[test]
fn edge_data_reverses_self_loops_and_counted_metapaths() {
    let place = Place::new();
    let body = "
    let a = Edges(hidden: 6) over [writes] of features
    let b = Counted(hidden: 6) over [PAPC] of Paper.x
    let c = Mean(hidden: 6) over [self_loops(cites), reverse(cites), identity(Paper), PAP] of Paper.x
    output logits: Paper = linear(concat(a.Paper, b, c), 3)";
    let paths = "metapath PAP = Paper <-writes- Author -writes-> Paper
    metapath PAPC = counted Paper <-writes- Author -writes-> Paper
    relation cites";
    let schema = SCHEMA.replace("relation cites", paths);
    place.model(&format!("{EDGES}{schema}\nmodel Net(schema: Tiny) {{{body}}}\n{TRAIN}"));
    place.with_data("check", &[]).works();
    place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors"]).works();
    let report = place.json("r.json");
    let graphs: Vec<(String, u64)> = (report["semantic_graphs"].as_array().expect("a list").iter())
        .map(|g| (g["name"].as_str().unwrap_or("").to_string(), g["edges"].as_u64().unwrap_or(0)))
        .collect();
    let edges = |name: &str| graphs.iter().find(|g| g.0 == name).unwrap_or_else(|| panic!("{graphs:?}")).1;
    assert_eq!(edges("reverse_cites"), 37);
    assert_eq!(edges("cites_self_loops"), 37 + 40);
    assert_eq!(edges("identity_Paper"), 40);
    assert_eq!(edges("PAP"), edges("PAPC"));
    assert!(report["metrics"]["test"]["accuracy"].as_f64().is_some_and(|a| a > 0.8), "{report:#}");
    place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["metrics"], report["metrics"]);
}

#[test]
fn a_model_without_a_train_block_computes_but_does_not_learn() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--epochs", "3", "--weights-out", "w.safetensors"]).works();
    place.with_data("infer", &["--weights", "w.safetensors", "--out", "with.npy"]).works();
    place.model(&model_of(BODY, ""));
    place.with_data("check", &[]).works();
    place.run(&["build", "m.hgnn", "-o", "levels"]).works();
    assert_eq!(
        names(&place.path("levels")),
        ["ast.hgnn", "dataflow.ir", "fused.txt", "groups.txt", "infer.ir", "kernels.ir", "loops.txt", "model.txt"]
    );
    place.run(&["build", "m.hgnn", "--emit", "joint"]).fails(1, &["`Net` has no train block"]);
    place.with_data("infer", &["--weights", "w.safetensors", "--out", "without.npy"]).works();
    assert_eq!(place.bytes("with.npy"), place.bytes("without.npy"));
    for data in [&["--data", "data"][..], &[]] {
        let run = place.run(&[&["train", "m.hgnn", "--weights-out", "v.safetensors"], data].concat());
        run.fails(1, &["`Net` has no `train` block", "cannot be trained"]);
        let run = place.run(&[&["eval", "m.hgnn", "--weights", "w.safetensors"], data].concat());
        run.fails(1, &["`Net` has no `train` block", "measure"]);
    }
    assert!(!place.path("v.safetensors").exists());
    let run = place.run(&["infer", "m.hgnn", "--weights", "w.safetensors", "--out", "o.npy"]);
    run.fails(1, &["names no dataset", "--data DIR"]);
}

#[test]
fn where_a_model_finds_its_data() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("models/of mine")).expect("a folder");
    let text = usual().replace("split     \"half\"", "dataset \"../../data\"");
    std::fs::write(place.path("models/of mine/a model.hgnn"), text).expect("written");
    let args = ["train", "models/of mine/a model.hgnn", "--epochs", "2", "--quiet", "--report", "a report.json"];
    // Relative to the model, wherever the command starts.
    place.run(&args).is_silent();
    assert_eq!(place.json("a report.json")["dataset"], "tiny");
    let mut command = place.command(&["train", "a model.hgnn", "--epochs", "1", "--quiet"]);
    let output = command.current_dir(place.path("models/of mine")).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    // The command line decides against the model, with or without a slash at the end.
    place.run(&[&args[..], &["--data", "data/"]].concat()).is_silent();
    place.run(&[&args[..], &["--data", "./models/../data"]].concat()).is_silent();
    place.run(&[&args[..], &["--data", "nowhere"]].concat()).fails(1, &["there is no folder `nowhere`"]);
    replace(&place.path("models/of mine/a model.hgnn"), "../../data", "../data");
    place.run(&args).fails(1, &["there is no folder `models/of mine/../data`"]);
}

#[test]
fn synthetic_data_are_made_once() {
    let place = Place::new();
    let text = "schema S { vertex Paper from \"paper\" { x: f32[1433] sparse, topic: class[7] } }\n\
                model M(schema: S) { output logits: Paper = linear(Paper.x, 7) }\n\
                train M { dataset \"synth cora\" loss cross_entropy(logits, Paper.topic) epochs 2 }";
    place.model(text);
    let run = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["train", "m.hgnn"]);
        for name in ["HGNNC_CACHE", "XDG_CACHE_HOME", "HOME"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied()).env("TMPDIR", place.folder.path());
        crate::common::Run::of(command.output().expect("it starts"))
    };
    // Temporary files of a killed run are removed; files with similar names stay.
    std::fs::create_dir_all(place.path("cache/.synth-abc123/new")).expect("made");
    std::fs::create_dir_all(place.path("cache/.synth-backup/mine")).expect("made");
    let first = run(&[("HGNNC_CACHE", "cache")]).works();
    assert!(first.err.contains("generated a synthetic graph"), "{}", first.err);
    let second = run(&[("HGNNC_CACHE", "cache")]).works();
    assert!(!second.err.contains("generated"), "{}", second.err);
    assert_eq!(names(&place.path("cache")), [".synth-backup", "synth-cora-0"]);
    // Several at once, as in a loop over seeds that nobody waits for.
    let start = || {
        let mut command = place.command(&["train", "m.hgnn", "--quiet"]);
        command.env("HGNNC_CACHE", "shared cache").stderr(std::process::Stdio::piped()).spawn().expect("it starts")
    };
    let children: Vec<_> = (0..4).map(|_| start()).collect();
    for child in children {
        crate::common::Run::of(child.wait_with_output().expect("it ends")).is_silent();
    }
    assert_eq!(names(&place.path("shared cache")), ["synth-cora-0"]);
    // The variables that say where it is kept, from strongest to weakest; empty ones do not count.
    std::fs::rename(place.path("cache"), place.path("hgnnc")).expect("moved");
    let here = place.folder.path().to_str().expect("a text");
    assert!(!run(&[("XDG_CACHE_HOME", here), ("HOME", "/nowhere")]).works().err.contains("generated"));
    // Without any, a folder that nobody else can have made or can read: not one of the name that anyone could know.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let private = || names(place.folder.path()).into_iter().filter(|name| name.starts_with("hgnnc-"));
        let nowhere = [("HGNNC_CACHE", ""), ("HOME", "")];
        assert!(run(&nowhere).works().err.contains("generated"));
        assert!(!run(&nowhere).works().err.contains("generated"), "the one of the run before");
        let own: Vec<String> = private().collect();
        assert_eq!(own.len(), 1, "{own:?}");
        let mode = std::fs::metadata(place.path(&own[0])).expect("a folder").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        // One that others can write to may hold anything, and so may one that a link leads to.
        std::fs::set_permissions(place.path(&own[0]), PermissionsExt::from_mode(0o777)).expect("ours");
        assert!(run(&nowhere).works().err.contains("generated"));
        std::fs::rename(place.path(&own[0]), place.path("elsewhere")).expect("moved");
        std::fs::set_permissions(place.path("elsewhere"), PermissionsExt::from_mode(0o700)).expect("ours");
        std::os::unix::fs::symlink("elsewhere", place.path(&own[0])).expect("a link");
        assert!(run(&nowhere).works().err.contains("generated"));
        assert_eq!(private().count(), 3, "a fresh one each time");
    }
    // A cache that cannot be written is the machine's fault.
    std::fs::write(place.path("file"), "").expect("written");
    run(&[("HGNNC_CACHE", "file")]).fails(3, &["cannot write", "file"]);
    run(&[("HGNNC_CACHE", "file/deeper")]).fails(3, &["cannot write", "file/deeper"]);
    replace(&place.path("m.hgnn"), "synth cora", "synth corra");
    run(&[]).fails(1, &["no shape `corra`", "cora"]);
}

/// A budget that no choice of what is recomputed meets is refused with the smallest that would do, and that one is
/// enough.
#[test]
fn a_refused_memory_budget_names_one_that_is_enough() {
    let place = Place::new();
    place.model(&usual());
    let refused = place.with_data("train", &["--memory-budget", "1K", "--epochs", "3"]);
    refused.fails(3, &["training needs at least ", "recomputed", "the budget is 1024 bytes"]);
    let least = refused.err.split("at least ").nth(1).and_then(|rest| rest.split(" KiB").next()).expect("a size");
    let least: f64 = least.parse().expect("a number");
    let train = |budget: f64| place.with_data("train", &["--memory-budget", &format!("{budget:.1}K"), "--epochs", "3"]);
    train(least + 0.1).works();
    train(least - 1.0).fails(3, &["training needs at least "]);
    let args = ["--memory-budget", "1K", "--epochs", "3", "--disable-pass", "rematerialize"];
    place.with_data("train", &args).fails(3, &["needs", "the budget is"]);
}

/// So it is for models whose parameters take more than their values: those of the best epoch are kept beside them.
#[test]
fn a_least_memory_budget_counts_the_best_parameters() {
    for hidden in [16, 64, 128, 256] {
        let place = Place::new();
        place.model(&usual().replace("hidden: 8", &format!("hidden: {hidden}")));
        let refused = place.with_data("train", &["--memory-budget", "1K", "--epochs", "1"]);
        let mut words = refused.err.split("at least ").nth(1).expect("a refusal").split(' ');
        let least: f64 = words.next().and_then(|number| number.parse().ok()).expect("a number");
        let unit = match words.next().expect("a unit") {
            "KiB" => "K",
            "MiB" => "M",
            other => panic!("{other}"),
        };
        for more in [0.1, 1.0, 3.0] {
            let budget = format!("{:.1}{unit}", least + more);
            place.with_data("train", &["--memory-budget", &budget, "--epochs", "1"]).works();
        }
    }
}

#[test]
fn build_and_train_tell_the_planned_memory() {
    let place = Place::new();
    place.model(&usual());
    let run = place.with_data("build", &[]).works();
    let line = run.out.lines().find(|line| line.starts_with("arena: training ")).expect("arenas").to_string();
    assert!(line.contains(", inference "), "{line}");
    assert!(!place.run(&["build", "m.hgnn"]).works().out.contains("arena"), "sizes are not known");
    let trained = place.with_data("train", &["--epochs", "1", "--report", "r.json"]).works();
    assert!(trained.err.contains(&line), "as built: {}", trained.err);
    // The level has the same numbers, to the byte.
    let plan = place.with_data("build", &["--emit", "plan"]).works().out;
    let report = place.json("r.json");
    for (name, key) in [("training", "arena_bytes"), ("inference", "infer_arena_bytes")] {
        let row = plan.lines().find(|line| line.trim_start().starts_with(name)).expect("a row of the table");
        assert_eq!(row.split_whitespace().nth(1), Some(&report[key].to_string()[..]), "{plan}");
    }
    for words in ["memory of Net.train", "memory of Net.infer", "computed by each run: ", " at one time (k", "stays"] {
        assert!(plan.contains(words), "no `{words}` in {plan}");
    }
    place.run(&["build", "m.hgnn", "--emit", "plan"]).fails(1, &["a memory plan depends on the sizes", "--data DIR"]);
    let refused = place.with_data("build", &["--memory-budget", "100"]);
    refused.fails(3, &["the values of a training step take at least ", "the budget is 100 bytes"]);
    place.with_data("build", &["--memory-budget", "1G"]).works();
}

/// Found before anything of that size is allocated: a hidden layer of terabytes.
#[cfg(target_os = "linux")]
#[test]
fn what_the_free_memory_does_not_hold_is_refused() {
    let place = Place::new();
    place.model(&usual().replace("hidden: 8", "hidden: 600000000"));
    let run = place.with_data("train", &["--epochs", "1"]);
    run.fails(3, &["needs", "GiB", "the free memory of this machine is", "intermediate values"]);
}

/// A cache moves fewer bytes and changes no bit; what it cannot do is said.
#[test]
fn training_on_batches_with_a_cache() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--cache", "1K"]).fails(1, &["a cache is for training on batches", "`batch`"]);
    place.model(&usual().replace("    epochs    30\n", "    epochs    3\n    batch     4\n    fanout    [2, 2]\n"));
    place.with_data("train", &["--quiet", "--weights-out", "without.safetensors"]).is_silent();
    let mut missed = vec![];
    for size in ["0", "60", "1K"] {
        let args =
            ["--cache", size, "--cache-policy", "hotness", "--weights-out", "w.safetensors", "--report", "r.json"];
        let run = place.with_data("train", &args).works();
        assert!(run.err.contains("the sparse features of `paper` are not cached"), "{}", run.err);
        assert_eq!(place.bytes("w.safetensors"), place.bytes("without.safetensors"), "{size}");
        let cache = &place.json("r.json")["batches"]["cache"];
        assert_eq!((&cache["policy"], &cache["bytes_of_all"]), (&"hotness".into(), &144.into()));
        assert_eq!(cache["tables"][0]["name"], "author.x");
        missed.push(cache["bytes_missed"].as_u64().expect("bytes"));
    }
    assert!(missed[0] > missed[1] && missed[1] > 0 && missed[2] == 0, "{missed:?}");
}
