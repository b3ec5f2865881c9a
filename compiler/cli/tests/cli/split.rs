//! `data split`: vertices and links in parts, written as a dataset of its own.

use hgnnc_dataset::Dataset;

use crate::common::Place;

fn load(place: &Place, name: &str) -> Dataset {
    Dataset::load(place.path(name)).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn labelled_vertices_are_divided_and_trained_on() {
    let place = Place::new();
    let split =
        ["data", "split", "data", "made", "--vertices", "paper", "--label", "y", "--train", "0.5", "--val", "0.25"];
    let said = place.run(&[&split[..], &["--by-class", "--seed", "3"]].concat()).works().out;
    assert!(said.contains("split `standard` of `y` of `paper`: 21 to train on, 10 to validate, 9 to test"), "{said}");
    let dataset = load(&place, "made");
    assert_eq!(dataset.splits.len(), 2);
    assert_eq!(dataset.splits[1].name, "standard");
    // The dataset that was split is as it was.
    assert_eq!(load(&place, "data").splits.len(), 1);
    place.model(&crate::common::usual());
    let train = ["train", "m.hgnn", "--data", "made", "--split", "standard", "--epochs", "1", "--quiet"];
    place.run(&train).works();
}

#[test]
fn an_inductive_split_is_two_datasets() {
    let place = Place::new();
    let split = ["data", "split", "data", "made", "--vertices", "paper", "--label", "y", "--inductive"];
    let said = place.run(&split).works().out;
    assert!(said.contains("wrote made/seen, without the test vertices"), "{said}");
    let (seen, whole) = (load(&place, "made/seen"), load(&place, "made/whole"));
    let paper = |dataset: &Dataset| dataset.vertex_types[0].count;
    assert_eq!((paper(&seen), paper(&whole)), (36, 40));
    // The model that is trained on the one is measured on the other.
    place.model(&crate::common::usual());
    let rest = ["--split", "standard", "--quiet"];
    let train = ["train", "m.hgnn", "--data", "made/seen", "--epochs", "2", "--weights-out", "w.safetensors"];
    place.run(&[&train[..], &rest].concat()).works();
    let eval = ["eval", "m.hgnn", "--data", "made/whole", "--weights", "w.safetensors", "--split", "standard"];
    assert!(place.run(&eval).works().out.contains(" test: accuracy"));
}

#[test]
fn links_are_held_out() {
    let place = Place::new();
    let said =
        place.run(&["data", "split", "data", "made", "--links", "author-paper", "--val", "0.2", "--test", "0.2"]);
    let said = said.works().out;
    assert!(said.contains("link split `standard`") && said.contains("edges left `author-paper`"), "{said}");
    let (before, after) = (load(&place, "data"), load(&place, "made"));
    let split = &after.link_splits[0];
    assert_eq!(after.relations[0].num_edges() + split.val.len() + split.test.len(), before.relations[0].num_edges());
    assert_eq!(after.relations[1].num_edges(), before.relations[1].num_edges());
}

#[test]
fn faults_name_what_there_is() {
    let place = Place::new();
    let split = |more: &[&str]| place.run(&[&["data", "split", "data", "made"], more].concat());
    split(&[]).fails(2, &["--vertices"]);
    split(&["--vertices", "papers"]).fails(1, &["no vertex type `papers`; it has `paper`, `author`"]);
    split(&["--vertices", "author"]).fails(1, &["`author` has no label"]);
    split(&["--vertices", "paper"]).fails(1, &["several labels: name one of `y`, `tags`, `year` with `--label`"]);
    let label = ["--vertices", "paper", "--label", "y"];
    split(&[&label[..], &["--by", "time"]].concat()).fails(1, &["vertex type `paper` has no times"]);
    split(&[&label[..], &["--name", "half"]].concat()).fails(1, &["there is a split `half` already"]);
    split(&[&label[..], &["--val", "0.9", "--test", "0.3"]].concat()).fails(1, &["at most 1 together"]);
    let tags = ["--vertices", "paper", "--label", "tags", "--by-class"];
    split(&tags).fails(1, &["`tags` is not a label of one class, so"]);
    split(&["--links", "writes"]).fails(1, &["no relation `writes`; it has `author-paper`, `paper-paper`"]);
    let reverse = ["--links", "author-paper", "--reverse", "author-paper=paper-paper"];
    split(&reverse).fails(1, &["`paper-paper` is not the reverse of `author-paper`"]);
    split(&["--links", "author-paper", "--reverse", "author-paper"]).fails(2, &["RELATION=REVERSE"]);
    place.run(&["data", "split", "data", "data", "--links", "author-paper"]).fails(1, &["it is left alone"]);
    assert!(!place.path("made").exists());
}
