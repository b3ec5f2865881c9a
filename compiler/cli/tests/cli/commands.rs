//! `check`, `build`, `data` and `explain`, wrong usage, and streams that close.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use hgnnc_synth::Shape;
use serde_json::Value;

use crate::common::{BODY, CACHE, Place, Run, SCHEMA, TRAIN, model_of, names, replace, usual};

#[test]
fn check_speaks_only_of_what_is_wrong() {
    let place = Place::new();
    place.model(&usual());
    place.run(&["check", "m.hgnn"]).passes();
    place.with_data("check", &[]).passes();
    place.with_data("check", &["--split", "half"]).passes();
    place.with_data("check", &["--split", "other"]).fails(1, &["E0426", "no split `other`", "half"]);

    // A warning is no failure.
    place.model(&model_of(&format!("param idle: [3]{BODY}"), TRAIN));
    let run = place.run(&["check", "m.hgnn"]).works();
    assert!(run.err.contains("warning[W0001]") && run.out.is_empty(), "{run:?}");
    // Nobody wants colours in a pipe.
    assert!(!run.err.contains('\x1b'), "{run:?}");

    place.model(&usual().replace("Paper.y)", "Paper.z)"));
    place.run(&["check", "m.hgnn"]).fails(1, &["error[E02", "m.hgnn:", "`z`"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_colours_and_a_bar() {
    let place = Place::new();
    place.model("model");
    // `script` runs a command on a terminal of its own.
    let on_terminal = |line: &str, variables: &[(&str, &str)]| {
        let line = format!("'{}' {line}", env!("CARGO_BIN_EXE_hgnnc"));
        std::process::Command::new("script")
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .current_dir(place.folder.path())
            .stdin(Stdio::null())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .output()
    };
    let Ok(output) = on_terminal("check m.hgnn", &[]) else { return println!("skipped: there is no `script`") };
    let run = Run::of(output);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.out.contains("\x1b["), "{run:?}");
    let run = Run::of(on_terminal("check m.hgnn", &[("NO_COLOR", "1")]).expect("it starts"));
    assert!(!run.out.contains('\x1b'), "{run:?}");
    // A bar that is drawn again and again, instead of lines.
    place.model(&usual());
    let run = Run::of(on_terminal("train m.hgnn --data data", &[]).expect("it starts"));
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.contains("30/30") && run.out.contains("\x1b[2K") && run.out.contains("finished: 30"), "{run:?}");
}

#[test]
fn every_level_can_be_seen() {
    let place = Place::new();
    place.model(&usual());
    let summary = place.run(&["build", "m.hgnn"]).works();
    assert!(summary.out.starts_with("Net: ") && summary.out.contains("parameters"), "{}", summary.out);
    for (level, words) in [
        ("ast", &["model Net(schema: Tiny) {", "train Net {"][..]),
        ("model", &["vertex types", "reverse_writes: Paper <-writes- Author", "hidden.w.writes: ", "logits: "]),
        ("dataflow", &["Net"]),
        ("joint", &["Net.train"]),
        ("optimized", &["Net.train"]),
        ("infer", &["Net.infer"]),
        ("groups", &["groups Net.train {", "store %", "edge  %"]),
        ("loops", &["loops Net.train", "loop edges", "function f0 : "]),
        ("fused", &["kernels of Net.train", "for each edge", "on the way", "stores  ", ", once)"]),
    ] {
        let shown = place.run(&["build", "m.hgnn", "--emit", level]).works();
        for word in words {
            assert!(shown.out.contains(word), "{level}: no `{word}` in {}", shown.out);
        }
        let out = format!("only {level}");
        place.run(&["build", "m.hgnn", "--emit", level, "-o", &out]).is_silent();
        let files = names(&place.path(&out));
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(String::from_utf8_lossy(&place.bytes(&format!("{out}/{}", files[0]))), shown.out);
    }
    place.run(&["build", "m.hgnn", "-o", "deep/in/levels"]).is_silent();
    assert_eq!(
        names(&place.path("deep/in/levels")),
        [
            "ast.hgnn",
            "dataflow.ir",
            "fused.txt",
            "groups.txt",
            "infer.ir",
            "joint.ir",
            "kernels.ir",
            "loops.txt",
            "model.txt",
            "optimized.ir"
        ]
    );
    // The canonical text is a model again, and canonical.
    let canonical = place.bytes("deep/in/levels/ast.hgnn");
    std::fs::write(place.path("c.hgnn"), &canonical).expect("written");
    assert_eq!(place.run(&["build", "c.hgnn", "--emit", "ast"]).works().out.as_bytes(), canonical);
    let two = place.run(&["build", "m.hgnn", "--emit", "infer", "--emit", "model"]).works();
    assert!(two.out.find("Net.infer") < two.out.find("vertex types"), "in the order asked for: {}", two.out);
}

#[test]
fn passes_explain_themselves_and_can_be_left_out() {
    let place = Place::new();
    place.model(&usual());
    let with_sizes = place.with_data("build", &["--explain"]).works();
    assert!(!with_sizes.out.trim().is_empty());
    assert!(!with_sizes.out.contains("operations, "), "no summary as well: {}", with_sizes.out);
    let all = place.run(&["build", "m.hgnn", "--emit", "optimized"]).works().out;
    let args = ["build", "m.hgnn", "--emit", "optimized", "--disable-pass", "dce", "--disable-pass", "simplify"];
    let fewer = place.run(&args).works().out;
    assert!(fewer.lines().count() > all.lines().count());

    let nowhere = ["m.hgnn", "--data", "nowhere"];
    std::fs::write(place.path("none"), "").expect("written");
    for command in [
        &["build", "m.hgnn"][..],
        &[&["train"][..], &nowhere].concat(),
        &[&["eval", "--weights", "none"][..], &nowhere].concat(),
        &[&["infer", "--weights", "none", "--out", "o.npy"][..], &nowhere].concat(),
    ] {
        let run = place.run(&[command, &["--disable-pass", "simplifi"]].concat());
        run.fails(2, &["error[E0506]", "no pass `simplifi`", "`simplify`", "`dce`", "`cse`"]);
    }
    let args = ["--epochs", "2", "--quiet", "--weights-out", "w", "--disable-pass", "simplify"];
    place.with_data("train", &args).is_silent();
    // A single evaluation orders nothing: to leave that out changes nothing.
    let weights = |command, args: &[&str]| place.with_data(command, &[&["--weights", "w"], args].concat()).works();
    let metrics = weights("eval", &[]).out;
    assert_eq!(weights("eval", &["--disable-pass", "reorder_vertices"]).out, metrics);
    assert_eq!(
        weights("eval", &["--disable-pass", "compact_endpoints", "--disable-kernel", "fused_chains"]).out,
        metrics
    );
    weights("infer", &["--out", "o.npy", "--disable-pass", "reorder_vertices"]);
}

#[test]
fn sizes_can_come_from_a_file() {
    let place = Place::new();
    place.model(&usual());
    let stats = |text: &str| {
        std::fs::write(place.path("s.json"), text).expect("written");
        place.run(&["build", "m.hgnn", "--stats", "s.json", "--explain"])
    };
    let edges = r#""edges": {"writes": 46, "cites": 37, "reverse_writes": 46, "reverse_cites": 37}"#;
    let known = stats(&format!(r#"{{"vertices": {{"Paper": 40, "Author": 12}}, {edges}}}"#)).works();
    let counted = place.with_data("build", &["--explain"]).works();
    // Predicted times depend on the machine, and on more than these sizes; so do values at the ends of graphs, and the
    // order of vertices.
    let without_times = |text: &str| -> Vec<String> {
        let other = |line: &&str| !line.starts_with("compact_endpoints: ") && !line.starts_with("reorder_vertices: ");
        let lines = text.lines().filter(other);
        let time =
            |line: &str| line.find("; predicted: ").or(line.find(", the predicted time by ")).unwrap_or(line.len());
        lines.map(|line| line[..time(line)].to_string()).collect()
    };
    assert_eq!(without_times(&known.out), without_times(&counted.out));
    assert!(counted.out.contains("; predicted: "), "{}", counted.out);
    stats(&format!(r#"{{"vertices": {{"Paper": 40}}, {edges}}}"#)).fails(1, &["s.json", "`Author`", "`vertices`"]);
    stats(r#"{"vertices": {"Paper": 40, "Author": 12}, "edges": {"writes": "many"}}"#)
        .fails(1, &["`writes`", "`edges`"]);
    stats("[]").fails(1, &["s.json"]);
    stats("{").fails(1, &["`s.json` is not JSON"]);
    place.run(&["build", "m.hgnn", "--stats", "no.json"]).fails(1, &["cannot read `no.json`"]);
    place.with_data("build", &["--stats", "s.json"]).fails(2, &["--data", "--stats"]);
}

#[test]
fn bounds_of_operations_and_kernels() {
    let place = Place::new();
    place.model(&usual());
    place.run(&["build", "m.hgnn", "--emit", "bounds"]).fails(1, &["`--data DIR`", "`--stats FILE.json`"]);
    for (target, machine) in [("sm_80", "A100 80GB SXM (sm_80, 108 SMs)"), ("sm_90", "H100 SXM (sm_90, 132 SMs)")] {
        let args = ["--emit", "bounds", "--target", target];
        let shown = place.with_data("build", &args).works().out;
        let words =
            [machine, "operations, each alone", "\nkernels\n", "an epoch by stage", "gather.src", "(once)", "launch"];
        for word in words {
            assert!(shown.contains(word), "no `{word}` in {shown}");
        }
        assert_eq!(place.with_data("build", &args).works().out, shown, "data sheets do not change");
        // The totals are those of the rows: as many kernels as there are in an epoch.
        let section = shown.split("\nkernels\n").nth(1).expect("a table");
        let lines: Vec<&str> = section.lines().collect();
        let kernels =
            lines.iter().filter(|l| l.starts_with("  k") && !l.contains("(once)") && !l.starts_with("  kernel"));
        let total = lines.last().expect("the epoch");
        let words: Vec<&str> = total.split_whitespace().collect();
        assert!(words[0] == "epoch" && words.contains(&&kernels.count().to_string()[..]), "{shown}");
    }
    let here = place.with_data("build", &["--emit", "bounds"]).works().out;
    assert!(here.contains("(cpu, ") && here.contains("DRAM of "), "{here}");
    // Of all levels, bounds are one where sizes are known; no target stands in the way of the levels above code.
    place.with_data("build", &["-o", "all", "--target", "sm_90"]).is_silent();
    assert!(names(&place.path("all")).contains(&"bounds.txt".to_string()));
    place.run(&["build", "m.hgnn", "--target", "sm_70"]).fails(2, &["sm_80", "sm_90"]);
}

#[test]
fn machine_code_of_kernels() {
    let place = Place::new();
    place.model(&usual());
    // Without sizes, all code is worth its compile time that is faster.
    let unsized_code = place.run(&["build", "m.hgnn", "--emit", "clif"]).works().out;
    assert!(unsized_code.contains("\nfunction u0:0("), "{unsized_code}");
    // On so small a dataset nothing is worth it.
    let none = place.with_data("build", &["--emit", "clif"]).works().out;
    assert!(none.starts_with("; no machine code: ") && none.contains("`--code native`"), "{none}");
    let all = place.with_data("build", &["--emit", "clif", "--code", "native"]).works().out;
    assert_eq!(all.matches("\nfunction u0:0(").count(), all.matches("\n; f").count() + 1, "{all}");
    for code in ["native", "interpreted"] {
        place.with_data("train", &["--epochs", "2", "--code", code, "--weights-out", code, "--quiet"]).is_silent();
    }
    let [native, interpreted] = ["native", "interpreted"].map(|name| place.weights(name));
    for (name, (shape, elements)) in &interpreted {
        assert_eq!(&native[name].0, shape);
        let close = native[name].1.iter().zip(elements).all(|(a, b)| (a - b).abs() <= 1e-5);
        assert!(close, "{name}");
    }
    // The comments say what each function computes, and which kernels call it; the
    // instructions depend on the processor.
    place.model(&format!(
        "{SCHEMA}\nmodel Net(schema: Tiny) {{
            output logits: Author = relu(Author.x * 2 + 1)
        }}"
    ));
    let small = place.with_data("build", &["--emit", "clif", "--code", "native"]).works().out;
    let comments: Vec<&str> = small.lines().filter(|line| line.starts_with(';')).collect();
    insta::assert_snapshot!(comments.join("\n"));
}

#[test]
fn bounds_need_the_stored_elements_of_sparse_features() {
    let place = Place::new();
    place.model(
        "schema S { vertex A { x: f32[5] sparse } } model M(schema: S) { param w: [5, 2] let h = A.x @ w output y: A = h }",
    );
    let stats = |text: &str| {
        std::fs::write(place.path("s.json"), text).expect("written");
        place.run(&["build", "m.hgnn", "--stats", "s.json", "--emit", "bounds", "--target", "sm_80"])
    };
    stats(r#"{"vertices": {"A": 100}}"#).fails(1, &["stored elements", "`A`", "`stored` of `s.json`"]);
    stats(r#"{"vertices": {"A": 100}, "stored": {}}"#).fails(1, &["no number for `A` in `stored`"]);
    let shown = stats(r#"{"vertices": {"A": 100}, "stored": {"A": 300}}"#).works().out;
    // 300 products of rows of 2 columns.
    assert!(shown.contains("TB") && shown.contains("1.20 k"), "{shown}");
}

#[test]
fn what_stands_in_the_way_of_levels() {
    let place = Place::new();
    place.model(&usual());
    std::fs::write(place.path("file"), "mine").expect("written");
    for out in ["file", "file/deeper"] {
        place.run(&["build", "m.hgnn", "-o", out]).fails(1, &["cannot be a folder", "`file` is a file"]);
    }
    assert_eq!(place.bytes("file"), b"mine");
    place.model("model Net(schema: Tiny) {");
    place.run(&["build", "m.hgnn", "-o", "levels"]).fails(1, &["error[E01"]);
    assert_eq!(place.names(), ["data", "file", "m.hgnn"]);
}

#[test]
fn stories_behind_codes() {
    let place = Place::new();
    let run = place.run(&["explain", "E0301"]).works();
    assert!(run.out.contains("E0301") && run.err.is_empty(), "{run:?}");
    assert_eq!(place.run(&["explain", "e0301"]).works().out, run.out);
    place.run(&["explain", "nonsense"]).fails(1, &["no diagnostic `nonsense`", "E0301"]);
    place.run(&["explain", ""]).fails(1, &["no diagnostic"]);
    // All of them, one a line, with their titles.
    let all = place.run(&["explain"]).works().out;
    assert_eq!(all.lines().count(), hgnnc_diag::Code::all().count());
    for code in hgnnc_diag::Code::all() {
        assert!(all.lines().any(|line| line == format!("{code}  {}", code.title())), "{code}");
    }
}

#[test]
fn what_a_dataset_holds() {
    let place = Place::new();
    let text = place.run(&["data", "info", "data"]).works();
    for word in ["tiny", "paper", "author-paper", "PAP", "half"] {
        assert!(text.out.contains(word), "no `{word}` in {}", text.out);
    }
    let json = place.run(&["data", "info", "data/", "--json"]).works();
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("one JSON object");
    let path = &json["metapaths"][0];
    assert_eq!(path["name"], "PAP");
    for key in ["pairs", "self_pairs", "instances"] {
        assert!(path[key].as_u64().is_some_and(|n| n > 0), "{key}: {json:#}");
    }
    place
        .run(&["data", "info", "nowhere"])
        .fails(1, &["there is no folder `nowhere`", "docs/dataset.md", "hgnnc data format"]);
    place.run(&["data", "info", "data/dataset.toml"]).fails(1, &["`data/dataset.toml` is a file", "hgnnc data format"]);
    place.run(&["data", "cache", "nowhere"]).fails(1, &["there is no folder `nowhere`", "hgnnc data format"]);
    std::fs::create_dir(place.path("empty")).expect("a folder");
    let words = ["`empty` is not a dataset: it has no `dataset.toml`", "docs/dataset.md"];
    place.run(&["data", "info", "empty"]).fails(1, &words);
    place.run(&["data", "cache", "empty"]).fails(1, &words);
    assert!(place.run(&["data", "format"]).works().out.contains("[[vertex_type]]"));
    place.run(&["data"]).fails(2, &["Usage"]);
}

#[test]
fn a_model_to_begin_with() {
    let place = Place::new();
    place.toml("name = \"year\"", "name = \"x\"");
    let text = place.run(&["data", "schema", "data"]).works().out;
    for word in [
        "vertex Paper from \"paper\" { x: f32[6] sparse, y: class[3], tags: multilabel[2], x_2: target[1] from \"x\" }",
        "weight: f32",
        "split     \"half\"",
        "loss      cross_entropy(logits, Paper.y)",
    ] {
        assert!(text.contains(word), "no `{word}` in {text}");
    }
    compiles_and_trains(&place, "data");
    // It has learned.
    let accuracy = place.json("r.json")["metrics"]["test"]["accuracy"].as_f64().expect("a number");
    assert!(accuracy > 0.8, "{accuracy}");
    // Without a split there is a model, but nothing to train.
    let toml = std::fs::read_to_string(place.path("data/dataset.toml")).expect("a text");
    let start = toml.find("[[split]]").expect("a split");
    std::fs::write(place.path("data/dataset.toml"), &toml[..start]).expect("written");
    place.model(&place.run(&["data", "schema", "data"]).works().out);
    place.with_data("check", &[]).passes();
    place.with_data("train", &[]).fails(1, &["no `train` block"]);
}

/// The model that `data schema` writes is formatted, free of errors and warnings, and trains as it is.
fn compiles_and_trains(place: &Place, folder: &str) {
    place.model(&place.run(&["data", "schema", folder]).works().out);
    place.run(&["fmt", "--check", "m.hgnn"]).is_silent();
    place.run(&["check", "m.hgnn", "--data", folder]).passes();
    let args = ["train", "m.hgnn", "--data", folder, "--no-graph-cache", "--quiet", "--report", "r.json"];
    let short = ["--epochs", "1"];
    let all = folder == "data";
    place.run(&[&args[..], if all { &[] } else { &short[..] }].concat()).is_silent();
    let losses = place.json("r.json")["losses"].as_array().expect("losses").clone();
    assert!(!losses.is_empty() && losses.iter().all(Value::is_number), "{folder}: {losses:?}");
}

#[test]
fn a_first_han_over_proposed_metapaths() {
    let place = Place::new();
    let text = place.run(&["data", "schema", "data"]).works().out;
    // R-GCN needs no metapath: they are comments.
    assert!(text.contains("// metapath PAP = Paper <-author_paper- Author -author_paper-> Paper // about "), "{text}");
    let han = place.run(&["data", "schema", "data", "--layer", "han"]).works().out;
    for word in ["\n    metapath PAP = ", "over [paper_paper, PAP] of Paper.x", "use std::han::HanConv"] {
        assert!(han.contains(word), "no `{word}` in {han}");
    }
    place.model(&han);
    place.run(&["fmt", "--check", "m.hgnn"]).is_silent();
    place.run(&["check", "m.hgnn", "--data", "data"]).passes();
    place.with_data("train", &["--no-graph-cache", "--quiet", "--epochs", "2"]).is_silent();
    // Without a path that returns there is nothing for HAN to work on.
    let toml = std::fs::read_to_string(place.path("data/dataset.toml")).expect("a text");
    let start = toml.find("[[split]]").expect("a split");
    std::fs::write(place.path("data/dataset.toml"), &toml[..start]).expect("written");
    place
        .run(&["data", "schema", "data", "--layer", "han"])
        .fails(1, &["HAN classifies vertices", "`hgnnc data split`"]);
}

#[test]
fn a_model_for_every_synthetic_shape() {
    let place = Place::new();
    for shape in Shape::ALL {
        let name = shape.to_string();
        let folder = format!("{CACHE}/start-{name}-0");
        let scale = if name == "mag" { &["--scale", "0.001"][..] } else { &[] };
        place.run(&[&["data", "synth", &name, &folder], scale].concat()).works();
        compiles_and_trains(&place, &folder);
    }
}

/// Real datasets in `HGNN_DATA`.
#[test]
fn a_model_for_every_real_dataset() {
    let Some(root) = std::env::var_os("HGNN_DATA") else { return println!("skipped: HGNN_DATA is not set") };
    let place = Place::new();
    let entries = std::fs::read_dir(root).expect("a folder").map(|entry| entry.expect("an entry").path());
    for folder in entries.filter(|folder| folder.join("dataset.toml").exists()) {
        compiles_and_trains(&place, folder.to_str().expect("a text"));
    }
}

#[test]
fn synthetic_datasets_on_the_disk() {
    let place = Place::new();
    let first = place.run(&["data", "synth", "cora", "made/cora"]).works();
    assert!(first.out.contains("wrote made/cora"), "{}", first.out);
    let again = place.run(&["data", "synth", "cora", "made/cora"]).works();
    assert!(again.out.contains("already"), "{}", again.out);
    let toml = place.bytes("made/cora/dataset.toml");
    // Another seed replaces what is made, but nothing replaces what is not.
    place.run(&["data", "synth", "cora", "made/cora", "--seed", "1"]).works();
    assert_ne!(place.bytes("made/cora/dataset.toml"), toml);
    place.run(&["data", "synth", "cora", "data"]).fails(1, &["`data` exists and is not a synthetic dataset"]);
    std::fs::write(place.path("file"), "mine").expect("written");
    place.run(&["data", "synth", "cora", "file"]).fails(1, &["`file` cannot be a folder"]);
    place.run(&["data", "synth", "cora", "file/in"]).fails(1, &["`file/in` cannot be a folder: `file` is a file"]);
    place.run(&["data", "synth", "pubmed", "made/pubmed"]).fails(1, &["no shape `pubmed`", "acm", "cora", "imdb"]);
    place.run(&["data", "synth", "cora", "made/cora", "--scale", "0.5"]).fails(1, &["`cora` has one size only"]);
    place.run(&["data", "synth", "mag", "made/mag", "--scale", "101"]).fails(1, &["`101` is not a scale"]);
    place.run(&["data", "synth", "mag"]).fails(2, &["DIR"]);
    assert_eq!(names(&place.path("made")), ["cora"]);
    assert_eq!(place.names(), ["data", "file", "made"]);
    // A small one of a large shape, which its examples take.
    place.run(&["data", "synth", "mag", "-o", "made/mag", "--scale", "0.001"]).works();
    for model in ["han", "mlp", "rgat", "rgcn"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/{model}/mag.hgnn"));
        place.run(&["check", path.to_str().expect("a text"), "--data", "made/mag"]).works();
    }
    place.run(&["data", "info", "made/cora"]).works();
}

#[test]
fn wrong_usage() {
    let place = Place::new();
    place.model(&usual());
    for (args, word) in [
        (&["train"][..], "<MODEL>"),
        (&["train", "m.hgnn", "--fast"], "--fast"),
        (&["train", "m.hgnn", "--resume"], "--checkpoint"),
        (&["train", "m.hgnn", "--checkpoint", "c", "--resume", "--init", "w"], "--init"),
        (&["train", "m.hgnn", "--epochs", "-3"], "-3"),
        (&["train", "m.hgnn", "--epochs", "ten"], "ten"),
        (&["train", "m.hgnn", "--threads", "0"], "threads"),
        (&["train", "m.hgnn", "--seed", "1.5"], "1.5"),
        (&["train", "m.hgnn", "--memory-budget", "2X"], "`x` is not a unit"),
        (&["train", "m.hgnn", "--memory-budget", "G"], "not a size"),
        (&["train", "m.hgnn", "--epochs", "many"], "not a whole number"),
        (&["train", "m.hgnn", "--epochs", "-3"], "'-3' for '--epochs <N>': not a whole number"),
        (&["train", "m.hgnn", "--seed", "1.5"], "not a whole number"),
        (&["train", "m.hgnn", "--threads", "0"], "not a number between 1 and 4096"),
        (&["data", "synth", "mag", "x", "--scale", "half"], "not a number"),
        (&["train", "m.hgnn", "--memory-budget", "0"], "not a size"),
        (&["train", "m.hgnn", "--cache", "x"], "`x` is not a unit"),
        (&["train", "m.hgnn", "--cache-policy", "degree"], "--cache <SIZE>"),
        (&["train", "m.hgnn", "--cache", "1M", "--cache-policy", "best"], "possible values: penalty, shares"),
        (&["train", "m.hgnn", "--device", "abacus"], "abacus"),
        (&["eval", "m.hgnn"], "--weights"),
        (&["infer", "m.hgnn", "--weights", "w"], "--out"),
        (&["build", "m.hgnn", "--emit", "soup"], "soup"),
        (&["check", "m.hgnn", "--split", "half"], "--data"),
        (&["bake"], "bake"),
    ] {
        place.run(args).fails(2, &[word]);
    }
    assert_eq!(place.run(&[]).code, Some(2));
    assert!(place.run(&["--help"]).works().out.contains("Train a model"));
    assert!(place.run(&["train", "--help"]).works().out.contains("--weights-out"));
    // Options in groups, exit codes and environment below.
    let help = place.run(&["train", "--help"]).works().out;
    for heading in ["Arguments:", "Data:", "Device and memory:", "Training:", "Output:", "Checkpoints:", "Exit codes:"]
    {
        assert!(help.lines().any(|line| line == heading), "no `{heading}` in {help}");
    }
    assert!(!help.lines().any(|line| line.starts_with("  ") && line.len() > 4 && line.contains('\x1b')), "{help}");
    for command in [&["--help"][..], &["check", "--help"], &["fmt", "--help"], &["data", "--help"]] {
        let help = place.run(command).works().out;
        for word in ["Exit codes:", "101  A bug", "Environment:"] {
            assert!(help.contains(word), "{command:?}: no `{word}` in {help}");
        }
        for variable in variables() {
            assert!(help.contains(&variable), "{command:?}: no `{variable}` in {help}");
        }
    }
    assert!(place.run(&["--version"]).works().out.starts_with("hgnnc "));
    assert_eq!(place.names(), ["data", "m.hgnn"]);
}

/// The environment variables that the sources name.
fn variables() -> BTreeSet<String> {
    fn visit(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                visit(&entry, found);
            } else if entry.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&entry).expect("a text");
                let calls = ["var_os(\"", "var(\"", "named(\""].into_iter().flat_map(|call| text.split(call).skip(1));
                let names = calls.filter_map(|rest| rest.split('"').next());
                let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
                found.extend(names.filter(|name| name.chars().all(is_name)).map(str::to_owned));
            }
        }
    }
    let mut found = BTreeSet::new();
    for part in ["compiler", "runtime"] {
        let part = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(part);
        for member in std::fs::read_dir(part).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if member.join("src").is_dir() {
                visit(&member.join("src"), &mut found);
            }
        }
    }
    assert!(found.contains("HGNNC_CACHE") && found.len() > 3, "{found:?}");
    found
}

/// The reader of the output may stop before the end.
#[test]
fn streams_that_close_early_are_no_error() {
    let place = Place::new();
    place.model(&model_of(&format!("param idle: [3]{BODY}"), TRAIN));
    for args in [
        &["data", "info", "data"][..],
        &["data", "info", "data", "--json"],
        &["build", "m.hgnn", "--emit", "optimized", "--emit", "joint"],
        &["explain", "E0301"],
        &["train", "m.hgnn", "--data", "data"],
        &["--help"],
    ] {
        for closed in ["out", "err"] {
            let mut command = place.command(args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("it starts");
            match closed {
                "out" => drop(child.stdout.take()),
                _ => drop(child.stderr.take()),
            }
            let run = Run::of(child.wait_with_output().expect("it ends"));
            assert_eq!(run.code, Some(0), "{args:?} {run:?}");
        }
    }
}

/// A standard output that takes nothing loses the result: that is no success.
#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_a_failure() {
    let place = Place::new();
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        return println!("skipped: there is no /dev/full");
    };
    let output = place.command(&["data", "info", "data"]).stdout(full).output().expect("it starts");
    Run::of(output).fails(3, &["cannot write to standard output"]);
}

#[test]
fn every_example_is_free_of_errors() {
    let place = Place::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/hgnnc");
    let release = std::env::var_os("HGNNC_RELEASE").map_or(release, Into::into);
    let mut found = 0;
    for model in names(&examples) {
        for file in names(&examples.join(&model)).iter().filter(|f| f.ends_with(".hgnn")) {
            let path = examples.join(&model).join(file);
            let path = path.to_str().expect("a text");
            place.run(&["check", path]).passes();
            found += 1;
            if release.exists() {
                let mut command = std::process::Command::new(&release);
                let start = Instant::now();
                if command.args(["check", path]).env("HGNNC_CACHE", CACHE).output().is_ok_and(|o| o.status.success()) {
                    println!("{model}/{file}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
                }
            }
        }
    }
    assert!(found >= 15, "{found}");
}

#[test]
fn misspelt_names_are_met_with_a_suggestion() {
    let place = Place::new();
    for (from, to, words) in [
        ("RgcnConv(hidden: 8)", "RgcnConf(hidden: 8)", &["RgcnConf", "RgcnConv"][..]),
        ("of features", "of featurs", &["featurs"]),
        ("[relations, reverses] of hidden", "[relatoins] of hidden", &["relatoins", "relations"]),
        ("loss      cross", "los      cross", &["m.hgnn"]),
        ("accuracy, macro_f1", "acuracy", &["acuracy", "accuracy"]),
        ("optimizer adam", "optimizer adem", &["adem", "adam"]),
    ] {
        place.model(&usual().replace(from, to));
        let run = place.with_data("train", &["--report", "r.json"]);
        run.fails(1, words);
    }
    place.model(&usual());
    for (from, to, words) in [
        ("from \"paper\" {", "from \"papers\" {", &["E0420", "`papers`", "\"paper\"", "m.hgnn"][..]),
        ("\"author-paper\"", "\"author-papers\"", &["E0421", "`author-papers`", "author-paper"]),
        ("Author -> Paper from", "Paper -> Author from", &["E04"]),
        ("f32[6] sparse", "f32[7] sparse", &["E0423", "6 columns", "not 7", "f32[6]"]),
        ("f32[6] sparse", "f32[6]", &["E0428", "sparse"]),
        ("class[3]", "class[4]", &["E0317", "4 classes"]),
        ("\"half\"", "\"hlaf\"", &["E0426", "`hlaf`", "half"]),
    ] {
        replace(&place.path("m.hgnn"), from, to);
        place.with_data("train", &["--report", "r.json"]).fails(1, words);
        place.model(&usual());
    }
    assert_eq!(place.names(), ["data", "m.hgnn"]);
}
