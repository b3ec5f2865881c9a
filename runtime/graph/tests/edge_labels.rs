//! Labels and splits of the edges of a relation: loading, faults, writing, and what becomes of them when edges change.

#[path = "../../dataset/tests/common/tiny.rs"]
mod tiny;

use std::path::Path;

use hgnnc_dataset::{Dataset, EdgeLabel, EdgeSplit, LabelValues, npy, schema_text};
use hgnnc_graph::{DatasetInfo, EdgeRows};

const TARGETS: &str = r#"
[[label]]
relation = "writes"
name = "role"
classes = 3
class_names = ["first", "middle", "last"]
file = "role.npy"
labelled = 3

[[label]]
relation = "writes"
name = "share"
kind = "real"
file = "share.npy"

[[split]]
name = "std"
relation = "writes"
train = "edges.train.npy"
train_size = 2
test = "edges.test.npy"
"#;

fn write(dir: &Path) {
    tiny::write(dir);
    std::fs::write(dir.join("dataset.toml"), format!("{}{TARGETS}", tiny::TOML)).unwrap();
    npy::write(&dir.join("role.npy"), &[4], &[2i32, 0, -1, 1]).unwrap();
    npy::write(&dir.join("share.npy"), &[4, 1], &[0.25f32, 0.75, 1.0, 0.5]).unwrap();
    npy::write(&dir.join("edges.train.npy"), &[2], &[3i32, 0]).unwrap();
    npy::write(&dir.join("edges.test.npy"), &[1], &[1i32]).unwrap();
}

fn dataset() -> Dataset {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    Dataset::load(dir.path()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn single(name: &str, classes: usize, of: Vec<i32>) -> EdgeLabel {
    let class_names = ["first", "middle", "last"].map(String::from).to_vec();
    EdgeLabel { name: name.into(), values: LabelValues::Single { classes, of }, class_names }
}

#[track_caller]
fn says(change: impl FnOnce(&Path), expected: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    change(dir.path());
    let errors = Dataset::load(dir.path()).expect_err("it has a fault");
    let found: Vec<String> = errors.errors.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

fn toml<'a>(from: &'a str, to: &'a str) -> impl FnOnce(&Path) + 'a {
    move |dir| {
        let path = dir.join("dataset.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(path, text.replacen(from, to, 1)).unwrap();
    }
}

fn file<'a, T: npy::Element>(name: &'a str, shape: &'a [usize], values: &'a [T]) -> impl FnOnce(&Path) + 'a {
    move |dir| npy::write(&dir.join(name), shape, values).unwrap()
}

#[test]
fn a_relation_has_labels_and_splits() {
    let dataset = dataset();
    let writes = &dataset.relations[0];
    assert_eq!(writes.labels[0], single("role", 3, vec![2, 0, -1, 1]));
    let share = LabelValues::Real { dim: 1, rows: vec![0.25, 0.75, 1.0, 0.5], labelled: vec![true; 4] };
    assert_eq!((&writes.labels[1].values, writes.label("share").is_some()), (&share, true));
    let split = EdgeSplit { name: "std".into(), train: vec![0, 3], val: vec![], test: vec![1] };
    assert_eq!((&writes.splits[..], dataset.relations[1].labels.len()), (&[split][..], 0));
    // Those of vertices are what they were.
    assert_eq!((dataset.labels.len(), dataset.splits.len()), (3, 1));
    let text = DatasetInfo::new(&dataset).unwrap().text();
    assert!(text.contains("writes.role    single        3         3  1 1 1"), "{text}");
    let schema = schema_text(&dataset);
    assert!(schema.contains("{ weight: f32, x: f32[2], role: class[3], share: target[1] }"), "{schema}");
}

#[test]
fn every_fault_is_told() {
    says(
        file("role.npy", &[3], &[0i32, 1, 2]),
        &[
            "`role.npy` (`file` of label `role` of relation `writes`) should have shape [4] (one class per edge), but has [3]",
        ],
    );
    says(
        file("role.npy", &[4], &[0i32, 3, 1, 1]),
        &[
            "`role.npy`: label `role` of relation `writes`, row 1 is class 3, but there are 3 classes (0 to 2, or -1 for none)",
        ],
    );
    says(
        file("share.npy", &[4], &[0f32, f32::INFINITY, 1.0, 1.0]),
        &["`share.npy`: label `share` of relation `writes`, row 1, column 0 is inf"],
    );
    says(
        file("edges.train.npy", &[2], &[0i32, 4]),
        &[
            "`edges.train.npy`: split `std`, edge of position 1 of `train` is 4, but relation `writes` has 4, so ids go from 0 to 3",
        ],
    );
    says(file("edges.test.npy", &[1], &[3i32]), &["split `std`: edge 3 is in both `train` and `test`"]);
    says(file("edges.train.npy", &[2], &[3i32, 3]), &["split `std`: edge 3 is twice in `train`"]);
    says(
        toml("labelled = 3\n\n[[label]]\nrelation", "labelled = 4\n\n[[label]]\nrelation"),
        &["dataset.toml: `labelled` of label `role` of relation `writes` says 4, but `role.npy` has 3"],
    );
    says(
        toml("relation = \"writes\"\nname = \"role\"", "relation = \"wrote\"\nname = \"role\""),
        &[
            "dataset.toml: `relation` of label `role` of relation `wrote` is `wrote`, but there is no relation of that name (there is `writes`, `cites`)",
        ],
    );
    says(
        toml(
            "relation = \"writes\"\nname = \"role\"",
            "relation = \"writes\"\nvertex_type = \"paper\"\nname = \"role\"",
        ),
        &[
            "dataset.toml: `relation` of label `role` of vertex type `paper` should be left out: the table has a `vertex_type`, but is `writes`",
        ],
    );
    says(
        toml("name = \"std\"\nrelation = \"writes\"", "name = \"std\"\nrelation = \"cites\""),
        &[
            "dataset.toml: `relation` of split `std` is `cites`, but there is no [[label]] of that name (there is `paper`, `author`, `author`, `writes`, `writes`)",
            "`edges.train.npy`: split `std`, edge of position 0 of `train` is 3, but relation `cites` has 2, so ids go from 0 to 1",
        ],
    );
    says(toml("name = \"share\"", "name = \"role\""), &["dataset.toml: two labels are called `relation writes.role`"]);
}

/// An edge without any label cannot be in a split, since nothing could be compared.
#[test]
fn edges_of_a_split_have_a_label() {
    let without_share = |dir: &Path| {
        let path = dir.join("dataset.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let (start, end) = (text.find("[[label]]\nrelation = \"writes\"\nname = \"share\""), text.rfind("[[split]]"));
        std::fs::write(path, format!("{}{}", &text[..start.unwrap()], &text[end.unwrap()..])).unwrap();
        npy::write(&dir.join("edges.test.npy"), &[1], &[2i32]).unwrap();
    };
    says(without_share, &["`edges.test.npy`: split `std`, position 0 of `test` is edge 2, which has no label"]);
}

#[test]
fn they_are_written_and_read_again() {
    let (before, folder) = (dataset(), tempfile::tempdir().unwrap());
    let target = folder.path().join("copy");
    before.write(&target).unwrap();
    let after = Dataset::load(&target).unwrap_or_else(|errors| panic!("{errors}"));
    for (a, b) in before.relations.iter().zip(&after.relations) {
        assert_eq!((&a.labels, &a.splits), (&b.labels, &b.splits));
    }
    let outline = Dataset::outline(&target).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!((&outline.relations[0].splits, outline.relations[0].labels.len()), (&before.relations[0].splits, 0));
}

#[test]
fn they_go_with_the_edges_that_are_kept() {
    let mut writes = dataset().relations.swap_remove(0);
    writes.keep(&[3, 1]);
    assert_eq!(writes.labels[0], single("role", 3, vec![1, 0]));
    assert_eq!(writes.splits[0], EdgeSplit { name: "std".into(), train: vec![0], val: vec![], test: vec![1] });
}

/// New edges of an extended graph have no label.
#[test]
fn new_edges_have_no_label() {
    let (graph, mut new) = (dataset(), dataset());
    for ty in &mut new.vertex_types {
        ty.ids = Some(hgnnc_dataset::VertexIds::Integer((0..ty.count as i64).collect()));
    }
    new.relations.remove(1);
    let extended = graph.extended(&new).unwrap_or_else(|errors| panic!("{:?}", errors.0));
    let writes = &extended.dataset.relations[0];
    assert_eq!(writes.labels[0], single("role", 3, vec![2, 0, -1, 1, -1, -1, -1, -1]));
    assert_eq!(writes.splits, graph.relations[0].splits);
}

/// As vertices, edges are numbered as in the file; the relation from their destinations has their data.
#[test]
fn edges_become_vertices() {
    let mut dataset = dataset();
    let rows = EdgeRows {
        relation: 0,
        vertex_type: "edges".into(),
        relations: ["from sources".into(), "from destinations".into()],
        past: false,
    };
    rows.add_to(&mut dataset).unwrap();
    let (ty, writes) = (dataset.vertex_type("edges").unwrap(), dataset.relations[0].clone());
    assert_eq!(dataset.vertex_types[ty].count, 4);
    let ends = dataset.relations[2..].iter().map(|r| (r.src, &r.src_ids, r.dst, &r.dst_ids, r.weight.is_some()));
    let numbers = vec![0, 1, 2, 3];
    let expected =
        [(writes.src, &writes.src_ids, ty, &numbers, false), (writes.dst, &writes.dst_ids, ty, &numbers, true)];
    assert_eq!(ends.collect::<Vec<_>>(), expected);
    assert_eq!(dataset.label(ty, "role").unwrap().values, writes.labels[0].values);
    assert_eq!(dataset.split(ty, Some("std")).unwrap().train, [0, 3]);
}

/// Under a cutoff, an edge has the time of the latest of itself and its ends.
#[test]
fn edges_have_the_time_of_the_latest_of_them_and_their_ends() {
    let time_of_rows = |of_sources: Option<Vec<i64>>, own: Option<Vec<i64>>, past: bool| {
        let mut dataset = dataset();
        let src = dataset.relations[0].src;
        (dataset.vertex_types[src].time, dataset.relations[0].time) = (of_sources, own);
        let (vertex_type, relations) = ("edges".to_owned(), ["0".into(), "1".into()]);
        EdgeRows { relation: 0, vertex_type, relations, past }.add_to(&mut dataset).unwrap();
        dataset.vertex_types[dataset.vertex_type("edges").unwrap()].time.clone()
    };
    let data = dataset();
    let of_sources: Vec<i64> = (0..data.vertex_types[data.relations[0].src].count as i64).map(|v| 10 * v).collect();
    let ends: Vec<i64> = data.relations[0].src_ids.iter().map(|&src| of_sources[src as usize]).collect();
    let own = vec![5, 5, 15, 15];
    let latest: Vec<i64> = ends.iter().zip(&own).map(|(&end, &own)| end.max(own)).collect();
    assert_eq!(time_of_rows(Some(of_sources.clone()), Some(own.clone()), true), Some(latest));
    assert_eq!(time_of_rows(Some(of_sources.clone()), None, true), Some(ends));
    assert_eq!(time_of_rows(None, Some(own.clone()), true), Some(own.clone()));
    assert_eq!(time_of_rows(None, None, true), None);
    assert_eq!(time_of_rows(Some(of_sources), Some(own), false), None);
}
