//! Labels of the training part as inputs: read by `infer` and by artifacts, never those of other parts, and missed where they are not there.

use crate::common::{PAPERS, Place};

/// Papers see the labels of other papers by their authors.
const MODEL: &str = r#"
schema Tiny {
    vertex Paper from "paper" { x: f32[6] sparse, topic: class[3] }
    vertex Author from "author"
    relation writes: Author -> Paper from "author-paper"
    metapath PAP = Paper <-writes- Author -writes-> Paper
}

layer Mean() over graphs: [V -> V] of x: V[in] -> V[in] {
    aggregate e: g in graphs { z = mean(e.src.x) over in_edges }
    fuse v: V across graphs { out = sum(v.z) across graphs }
}

model Net(schema: Tiny) {
    let around = Mean() over [without_self_loops(PAP)] of (train_labels(Paper.topic) @ eye(3))
    output logits: Paper = linear(concat(linear(Paper.x, 4), around), 3)
    output seen: Paper = around
}

train Net {
    loss      cross_entropy(logits, Paper.topic)
    split     "half"
    optimizer adam(lr: 0.05)
    epochs    5
    metrics   accuracy
}
"#;

fn topics() -> Vec<i32> {
    (0..PAPERS as i32).map(|paper| paper % 3).collect()
}

#[test]
fn infer_reads_the_labels_of_the_training_part_and_no_others() {
    let place = Place::new();
    place.model(MODEL);
    place.with_data("train", &["-o", "m.hgnnx", "--weights-out", "w.safetensors"]).works();
    let infer = |out: &str| {
        for output in ["logits", "seen"] {
            let out = format!("{output}.{out}.npy");
            let run = ["infer", "m.hgnnx", "--data", "data", "--output", output, "--out", &out];
            place.run(&run).works();
        }
        (place.bytes(&format!("logits.{out}.npy")), place.bytes(&format!("seen.{out}.npy")))
    };
    let before = infer("before");
    place.with_data("infer", &["--weights", "w.safetensors", "--output", "logits", "--out", "source.npy"]).works();
    assert_eq!(place.bytes("source.npy"), before.0);
    // The parts are papers 0 to 19, 20 to 27 and 28 to 39.
    let mut others = topics();
    others[20..].iter_mut().for_each(|topic| *topic = (*topic + 1) % 3);
    place.npy("paper.y.npy", &[PAPERS], &others);
    assert_eq!(infer("others"), before);
    let mut own = topics();
    own[5] = (own[5] + 1) % 3;
    place.npy("paper.y.npy", &[PAPERS], &own);
    assert_ne!(infer("own").1, before.1);
    // Labels that are missing are rows of 0.
    place.npy("paper.y.npy", &[PAPERS], &(0..PAPERS).map(|_| -1).collect::<Vec<i32>>());
    place.toml(
        "train = \"paper.half.train.npy\"\nval = \"paper.half.val.npy\"\ntest = \"paper.half.test.npy\"",
        "train = \"paper.none.npy\"\nval = \"paper.none.npy\"\ntest = \"paper.none.npy\"",
    );
    place.npy("paper.none.npy", &[0], &[] as &[i32]);
    place.run(&["infer", "m.hgnnx", "--data", "data", "--output", "seen", "--out", "none.csv"]).works();
    let text = std::fs::read_to_string(place.path("none.csv")).expect("a table");
    let numbers = text.lines().skip(1).flat_map(|line| line.split(',').skip(1).collect::<Vec<_>>());
    assert!(numbers.filter_map(|x| x.parse::<f32>().ok()).all(|x| x == 0.0), "{text}");
}

#[test]
fn a_dataset_without_the_label_or_the_split_is_told() {
    let place = Place::new();
    place.model(MODEL);
    place.with_data("train", &["-o", "m.hgnnx", "--weights-out", "w.safetensors"]).works();
    let source = ["--weights", "w.safetensors", "--out", "y.npy"];
    let artifact = ["infer", "m.hgnnx", "--data", "data", "--out", "y.npy"];
    place.toml("name = \"half\"", "name = \"other\"");
    place.with_data("infer", &source).fails(1, &["E0426", "no split `half` of `paper`", "`other`"]);
    place.run(&artifact).fails(1, &["reads `y` of `paper` in the training part", "no split `half`", "`other`"]);
    place.run(&[&artifact[..], &["--split", "other"]].concat()).works();
    place.with_data("infer", &[&source[..], &["--split", "other"]].concat()).works();
    place.toml("name = \"y\"\nclasses = 3", "name = \"z\"\nclasses = 4");
    let words = ["`paper` has no label `y`, which the model reads", "`z`"];
    place.run(&[&artifact[..], &["--split", "other"]].concat()).fails(1, &words);
    place
        .with_data("infer", &[&source[..], &["--split", "other"]].concat())
        .fails(1, &["E0424", "has 4 classes in the dataset"]);
}

#[test]
fn mini_batches_read_the_rows_of_their_vertices() {
    let place = Place::new();
    let whole = MODEL.replace("epochs    5", "epochs    5\n    seed      3");
    place.model(&whole);
    place.with_data("train", &["--weights-out", "whole.safetensors", "--quiet"]).works();
    // One batch with all in-edges is the step on the whole graph.
    place.model(&whole.replace("    metrics", "    batch     20\n    metrics"));
    place.with_data("train", &["--weights-out", "batch.safetensors", "--quiet"]).works();
    let (whole, batch) = (place.weights("whole.safetensors"), place.weights("batch.safetensors"));
    for (name, (_, numbers)) in &whole {
        let differs = numbers.iter().zip(&batch[name].1).any(|(a, b)| (a - b).abs() > 1e-4);
        assert!(!differs, "{name}: {numbers:?} {:?}", batch[name]);
    }
}
