//! Wrong options and faults of datasets: what is said, and that nothing is left behind.

mod common;

use common::{Place, communities};
use hgnnc_dataset::{Dataset, Features, SparseFeatures, npy};
use hgnnc_partition::{By, MOST_RANKS, Options, Partition};

/// The message of a refused run, which leaves nothing behind.
#[track_caller]
fn refused(place: &Place, options: &Options) -> String {
    let error = place.partition(options).expect_err("refused");
    assert_eq!(place.names(), ["data"]);
    error.to_string()
}

#[track_caller]
fn says(place: &Place, options: &Options, parts: &[&str]) {
    let error = refused(place, options);
    parts.iter().for_each(|part| assert!(error.contains(part), "no `{part}` in: {error}"));
}

fn small() -> Dataset {
    communities(20, 2)
}

#[test]
fn numbers_of_ranks_and_passes_are_bounded() {
    let place = Place::of(&small());
    says(&place, &Options::new(0), &["1 to 4096 ranks, not for 0"]);
    says(&place, &Options::new(MOST_RANKS + 1), &["not for 4097"]);
    says(&place, &Options { passes: 0, ..Options::new(2) }, &["1 to 1000 times, not 0 times"]);
    // Other ways have no passes.
    let options = Options { passes: 0, by: By::Hash, ..Options::new(2) };
    place.partition(&options).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn names_are_those_of_the_dataset() {
    let place = Place::of(&small());
    let options = Options { relations: vec!["cites".into(), "reads".into()], ..Options::new(2) };
    says(&place, &options, &["has no relation `reads`; it has `cites`, `writes`"]);
    let options = Options { split: Some("half".into()), ..Options::new(2) };
    says(&place, &options, &["has no split `half`; it has `standard`"]);
}

#[test]
fn the_target_is_not_overwritten() {
    let place = Place::of(&small());
    std::fs::create_dir(place.path("parts")).expect("made");
    // An empty folder is replaced.
    place.partition(&Options::new(2)).unwrap_or_else(|error| panic!("{error}"));
    let error = place.partition(&Options::new(2)).expect_err("occupied").to_string();
    assert!(error.contains("exists and is not an empty folder; it is left alone"), "{error}");
}

#[test]
fn what_is_no_dataset_is_refused() {
    let place = Place::of(&small());
    std::fs::remove_file(place.path("data/dataset.toml")).expect("removed");
    says(&place, &Options::new(2), &["is not a dataset: it has no `dataset.toml`"]);
    std::fs::remove_dir_all(place.path("data")).expect("removed");
    let error = place.partition(&Options::new(2)).expect_err("refused").to_string();
    assert!(error.contains("there is no folder"), "{error}");
}

#[test]
fn an_edge_without_a_vertex_is_named() {
    for by in By::ALL {
        let mut dataset = small();
        dataset.relations[1].dst_ids[7] = 20;
        let place = Place::of(&dataset);
        let options = Options { by, ..Options::new(2) };
        says(&place, &options, &["relation `writes`, destination of edge 7 is 20", "`paper` has 20", "0 to 19"]);
        dataset.relations[0].src_ids[3] = 99;
        dataset.relations[1].dst_ids[7] = 0;
        let place = Place::of(&dataset);
        says(&place, &options, &["relation `cites`, source of edge 3 is 99"]);
    }
}

#[test]
fn faults_of_files_are_those_of_loading() {
    let place = Place::of(&small());
    npy::write(&place.path("data/0.cites.edges.npy"), &[3, 2], &[0i32; 6]).expect("written");
    says(&place, &Options::new(2), &["should have shape [2, edges]"]);
    std::fs::write(place.path("data/0.cites.edges.npy"), "text").expect("written");
    says(&place, &Options::new(2), &["is not a .npy file"]);
}

#[test]
fn values_that_are_not_finite_are_named() {
    let mut dataset = small();
    let mut weight = vec![1.0; dataset.relations[0].num_edges()];
    weight[5] = f32::NAN;
    dataset.relations[0].weight = Some(weight.into());
    says(&Place::of(&dataset), &Options::new(2), &["relation `cites`, row 5, column 0 is NaN"]);
}

#[test]
fn offsets_of_sparse_features_do_not_go_down() {
    let mut dataset = small();
    let x = SparseFeatures { dim: 2, indptr: vec![0; 21], indices: vec![], data: vec![].into() };
    dataset.vertex_types[0].features = Some(Features::Sparse(x));
    let place = Place::of(&dataset);
    let mut indptr = [0i64; 21];
    indptr[3] = 2;
    let file = place.path("data/0.paper.x.indptr.npy");
    npy::write(&file, &[21], &indptr).expect("written");
    says(&place, &Options::new(2), &["features of vertex type `paper`", "goes down from 2 to 0 at row 3"]);
    npy::write(&file, &[21], &[[0i64; 20].as_slice(), &[4]].concat()).expect("written");
    says(&place, &Options::new(2), &["should end at the 0 stored values, but ends at 4"]);
}

#[test]
fn a_damaged_description_of_a_partition_is_refused() {
    let place = Place::of(&small());
    place.partition(&Options::new(2)).unwrap_or_else(|error| panic!("{error}"));
    let file = place.path("parts/partition.json");
    let text = std::fs::read_to_string(&file).expect("a text");
    for (from, to, said) in [
        ("\"version\": 1", "\"version\": 2", "another version than 1"),
        ("\"ranks\": 2", "\"ranks\": 3", "its borders are not"),
        ("\"ranks\": 2", "\"ranks\": -2", "invalid value"),
        ("{", "", "expected value"),
    ] {
        std::fs::write(&file, text.replacen(from, to, 1)).expect("written");
        let error = Partition::load(&place.path("parts")).expect_err("refused").to_string();
        assert!(error.contains(said) || said == "expected value", "{error}");
    }
    std::fs::remove_file(&file).expect("removed");
    let error = Partition::load(&place.path("parts")).expect_err("refused").to_string();
    assert!(error.contains("partition.json"), "{error}");
}
