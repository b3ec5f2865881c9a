//! Datasets that are damaged, odd or extreme.

use hgnnc_dataset::npy;

use crate::common::{PAPERS, Place, usual, with_metapath};

/// After the change, `train` fails with exit code 1 and these words, and writes nothing; so do the other commands that
/// read the dataset.
#[track_caller]
fn is_refused(change: impl Fn(&Place), words: &[&str]) {
    let place = Place::new();
    place.model(&usual());
    change(&place);
    place.with_data("train", &["--report", "r.json", "--weights-out", "w", "--checkpoint", "c"]).fails(1, words);
    place.with_data("check", &[]).fails(1, words);
    place.run(&["data", "info", "data"]).fails(1, words);
    place.run(&["data", "schema", "data"]).fails(1, words);
    assert_eq!(place.names(), ["data", "m.hgnn"]);
}

#[test]
fn files_that_are_missing_or_damaged() {
    let remove =
        |name: &'static str| move |place: &Place| std::fs::remove_file(place.path("data").join(name)).expect("gone");
    is_refused(remove("dataset.toml"), &["`data` is not a dataset: it has no `dataset.toml`", "hgnnc data format"]);
    is_refused(remove("writes.npy"), &["`writes.npy` does not exist", "relation `author-paper`"]);
    is_refused(remove("paper.half.val.npy"), &["`paper.half.val.npy` does not exist"]);
    let cut = |name: &'static str, keep: usize| {
        move |place: &Place| {
            let path = place.path("data").join(name);
            let bytes = std::fs::read(&path).expect("read");
            std::fs::write(&path, &bytes[..keep]).expect("written");
        }
    };
    is_refused(cut("author.x.npy", 200), &["`author.x.npy`", "truncated", "144 bytes", "72"]);
    is_refused(cut("author.x.npy", 9), &["`author.x.npy`"]);
    is_refused(cut("author.x.npy", 0), &["`author.x.npy`"]);
    is_refused(cut("dataset.toml", 20), &["TOML"]);
    is_refused(
        |place| {
            place.toml("name = \"tiny\"", "name = \"tiny\"\nformat = 2");
        },
        &["`format` of the dataset should be 1", "but is 2"],
    );
    is_refused(
        |p| std::fs::write(p.path("data/dataset.toml"), b"name = \"\xff\"").expect("written"),
        &["dataset.toml` is not UTF-8 text"],
    );
    is_refused(|p| std::fs::write(p.path("data/dataset.toml"), "").expect("written"), &["dataset.toml", "`name`"]);
    is_refused(|p| std::fs::write(p.path("data/writes.npy"), "PK\x03\x04").expect("written"), &["`writes.npy`"]);
}

#[test]
fn numbers_that_cannot_be() {
    is_refused(
        |p| {
            p.npy("cites.npy", &[2, 3], &[0, 1, 2, 3, 40, 5]);
        },
        &["`cites.npy`", "relation `paper-paper`", "destination of edge 1 is 40", "`paper` has 40", "0 to 39"],
    );
    is_refused(
        |p| {
            p.npy("cites.npy", &[2, 2], &[0, -1, 2, 3]);
        },
        &["`cites.npy`", "source of edge 1 is -1", "0 to 39"],
    );
    is_refused(
        |p| {
            let mut x = vec![0.5f32; 36];
            x[7] = f32::NAN;
            p.npy("author.x.npy", &[12, 3], &x);
        },
        &["`author.x.npy`", "row 2, column 1 is NaN"],
    );
    is_refused(
        |p| {
            p.npy("paper.x.data.npy", &[80], &[f32::INFINITY; 80]);
        },
        &["`paper.x.data.npy`", "row 0", "is inf", "and 79 more"],
    );
    is_refused(
        |p| {
            p.npy("paper.y.npy", &[PAPERS], &[3; PAPERS]);
        },
        &["`paper.y.npy`", "row 0 is class 3", "3 classes", "0 to 2"],
    );
    is_refused(
        |p| {
            p.npy("author.x.npy", &[12, 4], &[0.0f32; 48]);
        },
        &["`author.x.npy`", "[12, 3]", "[12, 4]"],
    );
    is_refused(
        |p| {
            p.npy("author.x.npy", &[12, 3], &[0i32; 36]);
        },
        &["`author.x.npy`", "float32", "int32"],
    );
    is_refused(
        |p| {
            p.npy("paper.half.val.npy", &[2], &[19, 20]);
        },
        &["split `half`", "vertex 19 is in both `train` and `val`"],
    );
    is_refused(
        |p| {
            p.npy("paper.half.test.npy", &[1], &[99]);
        },
        &["`paper.half.test.npy`", "99", "0 to 39"],
    );
    is_refused(
        |p| {
            p.toml("count = 12", "count = 99999999999");
        },
        &["count", "99999999999"],
    );
}

#[test]
fn everything_wrong_is_said_at_once() {
    is_refused(
        |p| {
            p.npy("cites.npy", &[2, 1], &[0, 40]).npy("paper.y.npy", &[PAPERS], &[7; PAPERS]);
            p.npy("author.x.npy", &[12, 3], &[f32::NAN; 36]);
        },
        &["dataset `data` has 3 errors", "`cites.npy`", "`paper.y.npy`", "`author.x.npy`"],
    );
}

#[test]
fn odd_graphs_are_trained() {
    let place = Place::new();
    place.model(&usual());
    let train = || {
        let run = place.with_data("train", &["--report", "r.json", "--weights-out", "w.safetensors"]).works();
        let losses = place.json("r.json")["losses"].as_array().expect("losses").clone();
        assert!(losses.iter().all(|l| l.as_f64().is_some_and(f64::is_finite)), "{losses:?}");
        run
    };
    // No edges: one warning; another for each semantic graph of the relation would be noise.
    place.npy::<i32>("cites.npy", &[2, 0], &[]);
    let run = train();
    assert!(run.err.matches("warning").count() == 1 && run.err.contains("warning[W0007]"), "{}", run.err);
    let quiet = place.with_data("train", &["--quiet"]);
    quiet.is_silent();
    // All edges at one paper: all others are isolated.
    place.npy("cites.npy", &[2, 3], &[0, 0, 0, 0, 0, 1]);
    train();
    // The same edge many times.
    place.npy("cites.npy", &[2, 4], &[0, 0, 0, 0, 1, 1, 1, 1]);
    train();
    // Sparse rows without an entry.
    place.npy("paper.x.indptr.npy", &[PAPERS + 1], &[0i64; PAPERS + 1]);
    place.npy::<i32>("paper.x.indices.npy", &[0], &[]).npy::<f32>("paper.x.data.npy", &[0], &[]);
    train();
}

#[test]
fn an_empty_metapath_is_a_warning() {
    let place = Place::new();
    place.model(&with_metapath());
    place.npy::<i32>("writes.npy", &[2, 0], &[]).npy::<f32>("writes.w.npy", &[0], &[]).npy::<f32>(
        "writes.x.npy",
        &[0, 2],
        &[],
    );
    let run = place.with_data("train", &[]).works();
    assert!(run.err.contains("`PAP` has no edges"), "{}", run.err);
}

/// One vertex, which is all there is to train, with and without an edge to itself.
#[test]
fn a_graph_of_one_vertex() {
    let place = Place::new();
    let folder = place.path("one");
    std::fs::create_dir(&folder).expect("made");
    let toml = "name = \"one\"\n[[vertex_type]]\nname = \"v\"\ncount = 1\n[vertex_type.features]\nkind = \"dense\"\ndim = 2\n\
                file = \"x.npy\"\n[[relation]]\nname = \"r\"\nsrc = \"v\"\ndst = \"v\"\nfile = \"r.npy\"\n[[label]]\n\
                vertex_type = \"v\"\nclasses = 2\nfile = \"y.npy\"\n[[split]]\nname = \"s\"\nvertex_type = \"v\"\ntrain = \"t.npy\"\n";
    std::fs::write(folder.join("dataset.toml"), toml).expect("written");
    npy::write(&folder.join("x.npy"), &[1, 2], &[1.0f32, -1.0]).expect("written");
    npy::write(&folder.join("y.npy"), &[1], &[1]).expect("written");
    npy::write(&folder.join("t.npy"), &[1], &[0]).expect("written");
    place.model(
        "use std::gat::GatConv\nschema S { vertex V { x: f32[2], y: class[2] } relation r: V -> V }\nmodel M(schema: S) {\n\
         output o: V = linear(GatConv(hidden: 4, heads: 2) over [self_loops(r)] of V.x, 2) }\n\
         train M { loss cross_entropy(o, V.y) epochs 20 metrics accuracy }",
    );
    for edges in [&[][..], &[0, 0]] {
        npy::write::<i32>(&folder.join("r.npy"), &[2, edges.len() / 2], edges).expect("written");
        let run = place.run(&["train", "m.hgnn", "--data", "one", "--report", "r.json"]).works();
        let report = place.json("r.json");
        assert_eq!(report["metrics"]["train"]["accuracy"], 1.0, "{report:#}");
        // Without a validation part nothing says which epoch is the best.
        assert!(run.err.contains("warning: the split has no val part"), "{}", run.err);
        assert!(report["best_epoch"].is_null() && report["metrics"].get("val").is_none(), "{report:#}");
    }
}

#[test]
fn parts_of_a_split_that_are_empty() {
    let place = Place::new();
    place.model(&usual());
    place.npy::<i32>("paper.half.train.npy", &[0], &[]);
    let run = place.with_data("train", &["--report", "r.json", "--checkpoint", "c"]);
    run.fails(1, &["train", "empty or missing"]);
    place.toml("train = \"paper.half.train.npy\"\n", "");
    let run = place.with_data("train", &["--report", "r.json", "--checkpoint", "c"]);
    run.fails(1, &["train", "empty or missing"]);
    assert_eq!(place.names(), ["data", "m.hgnn"]);
}

#[test]
fn splits_and_labels_that_are_not_there() {
    let place = Place::new();
    place.model(&usual());
    std::fs::write(place.path("w"), "").expect("written");
    for command in [&["train", "m.hgnn"][..], &["eval", "m.hgnn", "--weights", "w"], &["check", "m.hgnn"]] {
        let run = place.run(&[command, &["--data", "data", "--split", "third"]].concat());
        run.fails(1, &["no split `third`", "half"]);
    }
    // Labelled as years, but not as classes.
    let mut classes: Vec<i32> = (0..PAPERS as i32).map(|p| p % 3).collect();
    classes[22] = -1;
    place.npy("paper.y.npy", &[PAPERS], &classes);
    place.with_data("train", &[]).fails(1, &["vertex 22 is in the `val` part", "`half`", "no label `y`"]);
    place.toml("classes = 3", "classes = 5");
    place.with_data("train", &[]).fails(1, &["E0424", "5"]);
    place.toml("name = \"y\"\nclasses", "name = \"topic\"\nclasses");
    place.with_data("train", &[]).fails(1, &["E0424", "5"]);
}
