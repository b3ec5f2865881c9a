//! Several fields of features for a vertex type, from the files of a dataset to a trained model.

use std::path::Path;

use hgnnc_dataset::dataset::{Dataset, DenseFeatures, Features, FieldData, SparseFeatures};

use crate::common::{PAPERS, Place};

const MODEL: &str = r#"use std::rgcn::RgcnConv

schema Tiny {
    vertex Paper from "paper" {
        x: f32[6] sparse,
        id: embedding[4] = uniform(0.1),
        year: f32,
        words: f32[6] sparse from "key words",
        topic: class[3],
    }
    vertex Author from "author" { x: f32[3], name: onehot }
    relation writes: Author -> Paper from "author-paper"
    relation cites: Paper -> Paper from "paper-paper"
}

model Net(schema: Tiny) {
    let papers = linear(Paper.x, 8) + linear(Paper.words, 8) + linear(concat(Paper.id, Paper.year), 8)
    let authors = linear(Author.x, 8) + linear(dropout(Author.name, 0.5), 8)
    let hidden = relu(RgcnConv(hidden: 8) over [relations, reverses] of {papers, authors})
    output logits: Paper = RgcnConv(hidden: 3) over [relations, reverses] of hidden
}

train Net {
    loss      cross_entropy(logits, Paper.topic)
    optimizer adam(lr: 0.05)
    epochs    4
    metrics   accuracy
}
"#;

/// The dataset with two more fields of its papers, as `more`; all years are `year`.
fn with_fields(place: &Place, name: &str, year: f32) {
    let mut dataset = Dataset::load(place.path("data")).unwrap_or_else(|errors| panic!("{errors}"));
    let years = DenseFeatures { dim: 1, rows: vec![year; PAPERS].into() };
    let words = SparseFeatures {
        dim: 6,
        indptr: (0..=PAPERS as u64).collect(),
        indices: (0..PAPERS as u32).map(|paper| paper % 6).collect(),
        data: vec![1.0; PAPERS].into(),
    };
    let paper = dataset.vertex_type("paper").expect("papers");
    dataset.vertex_types[paper].fields = vec![
        FieldData { name: "key words".into(), values: Features::Sparse(words) },
        FieldData { name: "year".into(), values: Features::Dense(years) },
    ];
    let folder = place.path(name);
    let _ = std::fs::remove_dir_all(&folder);
    dataset.write(Path::new(&folder)).expect("written");
}

#[test]
fn they_are_checked_shown_and_trained_on() {
    let place = Place::new();
    place.model(MODEL);
    with_fields(&place, "more", 0.5);
    place.run(&["check", "m.hgnn", "--data", "more"]).passes();
    place.with_data("check", &[]).fails(1, &["E0425", "`Paper` has no features `key words` in the dataset"]);
    let info = place.run(&["data", "info", "more"]).works().out;
    for line in [["key words", "6 sparse"], ["year", "1 dense"]] {
        assert!(info.lines().any(|found| line.iter().all(|part| found.contains(part))), "{line:?}: {info}");
    }
    let train = |more: &[&str]| place.run(&[&["train", "m.hgnn", "--data", "more"], more].concat());
    train(&["--weights-out", "w.safetensors"]).works();
    let weights = place.weights("w.safetensors");
    assert_eq!(weights["Paper.id"].0, [PAPERS, 4]);
    place.run(&["eval", "m.hgnn", "--data", "more", "--weights", "w.safetensors"]).works();
    // On mini-batches, which have the rows of each field that they need.
    place.model(&MODEL.replace("epochs    4", "batch 16 fanout [5, 5] epochs 4 select last"));
    let run = train(&["--report", "r.json"]).works();
    assert!(run.out.contains("4 epochs, the last one kept"), "{}", run.out);
    let report = place.json("r.json");
    assert_eq!((&report["select"], &report["best_epoch"]), (&"last".into(), &4.into()));
}

#[test]
fn a_run_is_continued_with_the_same_fields_only() {
    let place = Place::new();
    place.model(MODEL);
    with_fields(&place, "more", 0.5);
    let train =
        |more: &[&str]| place.run(&[&["train", "m.hgnn", "--data", "more", "--checkpoint", "c"], more].concat());
    train(&[]).works();
    train(&["--resume", "--epochs", "6"]).works();
    with_fields(&place, "more", 0.75);
    train(&["--resume", "--epochs", "8"])
        .fails(1, &["the data has changed (features `year` of `paper`: other values)"]);
}
