//! A checkpoint knows its program, its train block and its data, and only the same run continues it.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use hgnnc_train::{checkpoint, weights};

use crate::common::{PAPERS, Place, Run, TRAIN, names, usual};

const FIRST: [&str; 5] = ["--quiet", "--epochs", "2", "--checkpoint", "c"];

/// With the checkpoint of two epochs of a model.
fn with_checkpoint(model: &str) -> Place {
    let place = Place::new();
    place.model(model).with_data("train", &FIRST).is_silent();
    place
}

fn resume(place: &Place, args: &[&str]) -> Run {
    place.with_data("train", &[&["--checkpoint", "c", "--resume", "--epochs", "3"], args].concat())
}

/// A run is refused with these words, leaves the checkpoint alone, and goes on where it is meant, with the same words.
#[track_caller]
fn only_where_it_is_meant(place: &Place, words: &[&str]) {
    let before = place.bytes("c/checkpoint.safetensors");
    let refused = resume(place, &[]);
    refused.fails(1, &[words, &["c/checkpoint.safetensors: is of another run: ", "--allow-changed"]].concat());
    assert_eq!(place.bytes("c/checkpoint.safetensors"), before);
    let meant = resume(place, &["--allow-changed"]).works();
    for word in words.iter().chain(&["warning: ", "continuing after epoch 2"]) {
        assert!(meant.err.contains(word), "no `{word}` in {}", meant.err);
    }
    // From now on it is a checkpoint of the new one.
    let again = resume(place, &[]).works();
    assert!(!again.err.contains("warning"), "{}", again.err);
}

#[test]
fn another_program() {
    for (from, to, words) in [
        ("relu(", "tanh(", &["relu: 2 -> 0", "tanh: 0 -> 2"][..]),
        (", 0.2)", ", 0.3)", &["random_mask(stream 0, rate 0.3): 0 -> 1"]),
        ("cross_entropy(logits, Paper.y)", "cross_entropy(logits, Paper.y, label_smoothing: 0.1)", &[]),
        ("[relations, reverses] of hidden", "[reverses, relations] of hidden", &[]),
    ] {
        let place = with_checkpoint(&usual());
        assert!(usual().contains(from), "{from}");
        place.model(&usual().replace(from, to));
        only_where_it_is_meant(&place, &[&["the program has changed ("], words].concat());
    }
    // Parameters of other shapes are refused with `--allow-changed` as well.
    let place = with_checkpoint(&usual());
    place.model(&usual().replace("hidden: 8", "hidden: 9"));
    resume(&place, &[]).fails(1, &["the program has changed (parameter `hidden.", "f32[6, 8] = ", " -> f32[6, 9] = "]);
    resume(&place, &["--allow-changed"]).fails(1, &["does not fit the model", "hidden.w.writes"]);
}

#[test]
fn another_train_block() {
    for (from, to, words) in [
        ("lr: 0.02", "lr: 0.04", "(learning rate 0.02 -> 0.04)"),
        ("lr: 0.02", "lr: 0.02, beta2: 0.99", "(beta2 0.999 -> 0.99)"),
        ("epochs    30", "epochs 30 clip norm(1.0)", "(clip none -> norm(1.0))"),
        (
            "epochs    30",
            "epochs 30 schedule cosine(epochs: 30)",
            "(schedule constant -> cosine(epochs: 30, floor: 0.0))",
        ),
        ("epochs    30", "epochs 30 select val.accuracy", "(select val.loss -> val.accuracy)"),
    ] {
        let place = with_checkpoint(&usual());
        assert!(TRAIN.contains(from), "{from}");
        place.model(&usual().replace(from, to));
        only_where_it_is_meant(&place, &[&format!("the train block has changed {words}")]);
    }
    let batches = |fanout: &str| usual().replace("epochs    30", &format!("epochs 30 batch 4 fanout {fanout}"));
    let place = with_checkpoint(&batches("[2, 2]"));
    place.model(&batches("[3, 2]"));
    only_where_it_is_meant(&place, &["the train block has changed (", "fanout of `writes` [2, 2] -> [3, 2]"]);
    // An optimiser with other states.
    let place = with_checkpoint(&usual());
    place.model(&usual().replace("adam(lr: 0.02)", "sgd(lr: 0.02)"));
    resume(&place, &[]).fails(1, &["the train block has changed (", "optimizer adam -> sgd"]);
    resume(&place, &["--allow-changed"]).fails(1, &["does not fit the model", "state"]);
}

#[test]
fn other_data_of_the_same_shapes() {
    let cites = |step: i32| {
        let pairs = (0..PAPERS as i32 - 3).map(|paper| (paper, (paper + step) % PAPERS as i32));
        pairs.clone().map(|pair| pair.0).chain(pairs.map(|pair| pair.1)).collect::<Vec<i32>>()
    };
    let classes: Vec<i32> = (0..PAPERS as i32).map(|paper| (paper + 1) % 3).collect();
    let edges = PAPERS - 3;
    type Change<'a> = (&'a dyn for<'p> Fn(&'p Place) -> &'p Place, &'a str);
    let changes: [Change<'_>; 5] = [
        (&|place| place.npy("cites.npy", &[2, edges], &cites(4)), "(edges of `paper-paper`: other values)"),
        (&|place| place.npy("author.x.npy", &[12, 3], &[0.5f32; 36]), "(features of `author`: other values)"),
        (&|place| place.npy("paper.x.data.npy", &[80], &[0.5f32; 80]), "(features of `paper`: other values)"),
        (&|place| place.npy("paper.y.npy", &[PAPERS], &classes), "(label `y` of `paper`: other values)"),
        (
            &|place| place.npy("paper.half.train.npy", &[19], &(0..19).collect::<Vec<i32>>()),
            "(train part of the split: 20 -> 19)",
        ),
    ];
    for (change, words) in changes {
        let place = with_checkpoint(&usual());
        change(&place);
        only_where_it_is_meant(&place, &[&format!("the data has changed {words}")]);
    }
    // All three at once are all told.
    let place = with_checkpoint(&usual());
    place.npy("cites.npy", &[2, edges], &cites(4)).model(&usual().replace("relu(", "tanh(").replace("0.02", "0.04"));
    only_where_it_is_meant(
        &place,
        &["the program has changed (", "; the train block has changed (", "; the data has "],
    );
}

#[test]
fn what_may_change() {
    let model = usual().replace("let hidden = dropout(relu(", "let wide = relu(").replace("), 0.2)", ")");
    let model = model.replace(" of hidden", " of act").replace("output logits", "let act = tanh(wide)\n output logits");
    let place = with_checkpoint(&model);
    // Comments, spaces, names without parameters, values that are not used, names of the schema, metrics, more epochs.
    let other = model
        .replace("let act", "// other words\n  let  other")
        .replace("of act", "of other")
        .replace("output logits", "let unused = exp(other)\n output logits")
        .replace("train Net {", "train   Net   {")
        .replace("metrics   accuracy, macro_f1", "metrics accuracy")
        .replace("epochs    30", "epochs 40");
    assert_ne!(other, model);
    place.model(&other);
    let run = resume(&place, &["--threads", "1", "--disable-fusion", "edge_passes", "--device", "cpu"]);
    assert!(!run.works().err.contains("has changed"));
    // Parts of the dataset that the program does not read.
    place.npy("writes.x.npy", &[place.weights_of_edges(), 2], &vec![0.5f32; 2 * place.weights_of_edges()]);
    place.npy("paper.year.npy", &[PAPERS, 1], &[0.0f32; PAPERS]);
    place.toml("name = \"tiny\"", "name = \"other\"");
    assert!(!resume(&place, &[]).works().err.contains("has changed"));
}

/// The seed is the checkpoint's, wherever it came from.
#[test]
fn a_run_keeps_its_seed() {
    let place = with_checkpoint(&usual());
    place.model(&usual().replace("epochs    30", "epochs 30 seed 5"));
    let run = resume(&place, &[]).works();
    let words = "the train block has the seed 5, and had the seed 0: the run goes on with its own, 0";
    assert!(run.err.contains(words), "{}", run.err);
}

/// Older checkpoints do not say what they are of: then nobody can know, and the user has to.
#[test]
fn checkpoints_without_an_identity() {
    let place = with_checkpoint(&usual());
    let path = checkpoint::file_of(&place.path("c"));
    let file = weights::read(&path).unwrap_or_else(|e| panic!("{e}"));
    let mut text: serde_json::Value = serde_json::from_str(&file.text.expect("a text")).expect("JSON");
    assert!(text.as_object_mut().expect("fields").remove("identity").is_some());
    let tensors =
        file.tensors.iter().map(|(name, (shape, data))| (name.clone(), weights::Tensor { shape: shape.clone(), data }));
    weights::write(&path, tensors.collect(), Some(text.to_string())).expect("written");
    resume(&place, &[]).fails(1, &["did not note program, train block and data", "--allow-changed"]);
    assert!(
        resume(&place, &["--allow-changed"]).works().err.contains("warning: c/checkpoint.safetensors was written by")
    );
    assert!(!resume(&place, &[]).works().err.contains("warning"));
}

/// Two runs that start at once would write over each other.
#[test]
fn one_run_at_a_time() {
    let place = Place::new();
    place.model(&usual());
    let args = ["train", "m.hgnn", "--data", "data", "--checkpoint", "c", "--epochs", "100000000"];
    let mut first = place.command(&args).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut err = BufReader::new(first.stderr.take().expect("piped"));
    let mut text = String::new();
    while !text.contains("epoch ") {
        assert!(err.read_line(&mut text).expect("a line") > 0, "{text}");
    }
    place.run(&args).fails(1, &["c: is the checkpoint folder of a run that goes on"]);
    first.kill().expect("it can be killed");
    err.read_to_string(&mut text).expect("the rest");
    first.wait().expect("it ends");
    // A killed run leaves no lock, and what it was writing is removed.
    assert_eq!(names(&place.path("c")), ["checkpoint.lock"]);
    std::fs::write(place.path("c/.checkpoint.safetensors.abc123.hgnnc-tmp"), "half").expect("written");
    std::fs::write(place.path(".w.abc123.hgnnc-tmp"), "half").expect("written");
    place.with_data("train", &[&FIRST[..], &["--weights-out", "w"]].concat()).is_silent();
    assert_eq!(names(&place.path("c")), ["checkpoint.safetensors"]);
    assert_eq!(place.names(), ["c", "data", "m.hgnn", "w"]);
}

#[test]
fn a_run_that_fails_leaves_no_folder() {
    let place = Place::new();
    place.model("nonsense");
    place.with_data("train", &["--checkpoint", "deep/er"]).fails(1, &[]);
    assert_eq!(place.names(), ["data", "m.hgnn"]);
}
