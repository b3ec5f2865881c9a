//! The text files of HGB become a dataset; faults are told with file, line, value and way out.

mod common;

use std::path::Path;

use hgnnc_dataset::{Dataset, Features, LabelValues};
use hgnnc_import::Kind;

use common::import;

const NODES: &str = "0\tp a\t0\t1,0.5\n1\tp/b\t0\t0,2\r\n2\tpc\t0\t3,4\n3\tAda\t1\n4\tBen\t1\n5\t7\t2\n6\t-8\t2\n";
const LINKS: &str = "0\t1\t0\t1.0\n0\t1\t0\t1.0\n3\t0\t1\t0.5\n4\t2\t1\t1\n0\t3\t2\t1.0\n";
const LABELS: &str = "0\tp a\t0\t2\n1\tp/b\t0\t0\n";
const TEST_LABELS: &str = "2\tpc\t0\t1\r\n";
const INFO: &str = r#"{
  "node.dat": {"node type": {"0": "paper", "1": "author", "2": "term"}, "Attributes": {"0": "x"}},
  "link.dat": {"link type": {
    "0": {"start": "0", "end": "0", "meaning": "paper-cite-paper"},
    "1": {"start": 1, "end": 0, "meaning": "author-paper"},
    "2": {"start": 0, "end": 1, "meaning": "paper-author"},
    "5": {"start": 2, "end": 0, "meaning": "term-of-paper"}}},
  "label.dat": {"node type": {"0": {"0": "data mining", "1": "AI", "2": "systems"}}}
}"#;

const FILES: [(&str, &str); 5] = [
    ("node.dat", NODES),
    ("link.dat", LINKS),
    ("label.dat", LABELS),
    ("label.dat.test", TEST_LABELS),
    ("info.dat", INFO),
];

fn write(folder: &Path, files: &[(&str, &str)]) {
    files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
}

/// Reads the files, some of them with other contents.
fn read(changed: &[(&str, &str)]) -> (Dataset, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &FILES);
    write(folder.path(), changed);
    let (made, notes) = import(Kind::Hgb, folder.path()).unwrap_or_else(|error| panic!("{error}"));
    // The written folder must load as a valid dataset.
    let target = folder.path().join("made");
    made.write(&target).unwrap();
    (Dataset::load(&target).unwrap_or_else(|error| panic!("{error}")), notes)
}

fn ids(dataset: &Dataset, ty: usize) -> Vec<String> {
    let ids = dataset.vertex_types[ty].ids.as_ref().expect("ids");
    (0..ids.len()).map(|v| ids.text(v).into_owned()).collect()
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_files() {
    let marked = |text: &str| format!("\u{feff}{text}");
    let (nodes, links) = (marked(NODES), marked(LINKS));
    let (dataset, _) = read(&[("node.dat", &nodes), ("link.dat", &links)]);
    assert_eq!(ids(&dataset, 0), ["p a", "p/b", "pc"]);
}

#[test]
fn vertices_edges_and_labels_of_the_benchmark() {
    let (dataset, notes) = read(&[]);
    let counts: Vec<_> = dataset.vertex_types.iter().map(|v| (&v.name[..], v.count)).collect();
    assert_eq!(counts, [("paper", 3), ("author", 2), ("term", 2)]);
    assert_eq!(
        (ids(&dataset, 0), ids(&dataset, 2)),
        (vec!["p a".into(), "p/b".into(), "pc".into()], vec!["7".into(), "-8".into()])
    );
    let Some(Features::Dense(x)) = &dataset.vertex_types[0].features else { panic!("dense") };
    assert_eq!((x.dim, &x.rows[..]), (2, &[1.0, 0.5, 0.0, 2.0, 3.0, 4.0][..]));
    assert!(dataset.vertex_types[1].features.is_none());

    let edges: Vec<_> = dataset.relations.iter().map(|r| (&r.name[..], &r.src_ids[..], &r.dst_ids[..])).collect();
    assert_eq!(
        edges,
        [
            // Two equal links are two edges.
            ("cite", &[0, 0][..], &[1, 1][..]),
            ("author-paper", &[0, 1], &[0, 2]),
            ("paper-author", &[0], &[0]),
            // Only `info.dat` knows it.
            ("of", &[], &[]),
        ]
    );
    let weights: Vec<_> = dataset.relations.iter().map(|r| r.weight.as_deref().map(<[f32]>::to_vec)).collect();
    assert_eq!(weights, [None, Some(vec![0.5, 1.0]), None, None]);

    let label = &dataset.labels[0];
    assert_eq!(label.values, LabelValues::Single { classes: 3, of: vec![2, 0, 1] });
    assert_eq!(label.class_names, ["data mining", "AI", "systems"]);
    let names: Vec<&str> = dataset.splits.iter().map(|split| &split.name[..]).collect();
    assert_eq!(names, ["hgb0", "hgb1", "hgb2", "hgb3", "hgb4"]);
    assert_eq!((&dataset.splits[0].train[..], &dataset.splits[0].test[..]), (&[0, 1][..], &[2][..]));
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn a_fifth_of_the_labels_is_drawn_for_validation() {
    let nodes: String = (0..50).map(|id| format!("{id}\t\t0\n")).collect();
    let labels: String = (0..40).map(|id| format!("{id}\t\t0\t{}\n", id % 3)).collect();
    let test: String = (40..50).map(|id| format!("{id}\t\t0\t{}\n", id % 3)).collect();
    let (dataset, _) =
        read(&[("node.dat", &nodes), ("link.dat", ""), ("label.dat", &labels), ("label.dat.test", &test)]);
    assert!(dataset.vertex_types[0].ids.is_none());
    for split in &dataset.splits {
        assert_eq!((split.train.len(), split.val.len(), split.test.len()), (32, 8, 10), "{}", split.name);
    }
    assert_ne!(dataset.splits[0].val, dataset.splits[1].val);
}

#[test]
fn a_file_names_the_vertices_to_validate_on() {
    let (dataset, _) = read(&[("label.dat.val", "1\n")]);
    let split = &dataset.splits[0];
    assert_eq!((dataset.splits.len(), &split.name[..]), (1, "hgb"));
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[0][..], &[1][..], &[2][..]));
}

#[test]
fn several_classes_of_a_vertex_are_a_set() {
    let (dataset, _) = read(&[("label.dat", "0\t\t0\t1,3\n1\t\t0\t0\n")]);
    let rows = vec![0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
    assert_eq!(dataset.labels[0].values, LabelValues::Multi { classes: 4, rows, labelled: vec![true; 3] });
    assert!(dataset.labels[0].class_names.is_empty());
}

#[test]
fn links_to_test_are_held_out() {
    let held_out = [("link.dat.test", "0\t2\t0\t1.0\n4\t1\t1\t1.0\n")];
    let (dataset, notes) = read(&held_out);
    let split = &dataset.link_splits[0];
    assert_eq!(
        (&split.test.src[..], &split.test.relation[..], &split.test.dst[..]),
        (&[0, 1][..], &[0, 1][..], &[2, 1][..])
    );
    assert!(split.val.is_empty() && notes[0].contains("link.dat.val"), "{notes:?}");
    let (dataset, notes) = read(&[held_out[0], ("link.dat.val", "3\t2\t1\t1.0\n")]);
    assert_eq!((dataset.link_splits[0].val.len(), notes.len()), (1, 0));
}

#[test]
fn without_names_there_are_numbers() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &FILES[..2]);
    let (dataset, notes) = import(Kind::Hgb, folder.path()).unwrap();
    let names: Vec<&str> = dataset.vertex_types.iter().map(|v| &v.name[..]).collect();
    assert_eq!(names, ["type0", "type1", "type2"]);
    let names: Vec<&str> = dataset.relations.iter().map(|r| &r.name[..]).collect();
    assert_eq!(names, ["relation0", "relation1", "relation2"]);
    assert!(dataset.labels.is_empty() && notes[0].starts_with("there is no `info.dat`"), "{notes:?}");
}

#[test]
fn names_that_are_no_ids_are_noted() {
    let (dataset, notes) = read(&[("node.dat", "0\ta\t0\n1\ta\t0\n2\t\t0\n3\tAda\t1\n4\tBen\t1\n")]);
    assert!(dataset.vertex_types[0].ids.is_none() && dataset.vertex_types[1].ids.is_some());
    assert_eq!(
        notes,
        ["names of vertex type `paper` are not taken as ids: 1 vertices have none, 1 that of another one"]
    );
}

#[test]
fn faults_are_told_with_file_line_value_and_way_out() {
    let cases: &[(&str, &str, &str, &[&str])] = &[
        (
            "node.dat",
            "1\tp/b",
            "2\tp/b",
            &["node.dat:2: the id is 2, but that of this line should be 1", "ascend by 1"],
        ),
        ("node.dat", "1\tp/b", "x\tp/b", &["node.dat:2: `x` is not an id: a number from 0"]),
        ("node.dat", "1\tp/b", "-1\tp/b", &["node.dat:2: `-1` is not an id"]),
        ("node.dat", "pc\t0", "pc\tpaper", &["node.dat:3: `paper` is not a type: a number from 0"]),
        (
            "node.dat",
            "pc\t0\t3,4",
            "pc\t0",
            &["node.dat:3: this vertex of type 0 has no features, but those before it have"],
        ),
        (
            "node.dat",
            "Ben\t1",
            "Ben\t1\t3",
            &["node.dat:5: this vertex of type 1 has features, but those before it have none"],
        ),
        ("node.dat", "3,4", "3,4,5", &["node.dat:3: there are 3 features, but the first vertex of the type has 2"]),
        ("node.dat", "3,4", "3,four", &["node.dat:3: `four` is not a feature: a finite number"]),
        ("node.dat", "3,4", "3,inf", &["node.dat:3: `inf` is not a feature"]),
        (
            "node.dat",
            "Ben\t1",
            "Ben\t0",
            &["node.dat:5: vertices of type 0 stood before those of another type", "one range"],
        ),
        (
            "node.dat",
            "3\tAda\t1",
            "3 Ada 1",
            &["node.dat:4: there are 1 fields, but a line is id, name, type and features, with tabs"],
        ),
        ("node.dat", "p a", "p\u{0}\t\ta\tb", &["node.dat:1: there are 7 fields"]),
        (
            "link.dat",
            "3\t0\t1\t0.5",
            "3\t9\t1\t0.5",
            &["link.dat:3: there is no vertex 9: `node.dat` has the ids 0 to 6"],
        ),
        ("link.dat", "3\t0\t1\t0.5", "3\t0\t1\theavy", &["link.dat:3: `heavy` is not a weight: a number"]),
        ("link.dat", "3\t0\t1\t0.5", "3\t0\t1\tnan", &["link.dat:3: `nan` is not a weight"]),
        ("link.dat", "3\t0\t1\t0.5", "3\t0\twrites\t0.5", &["link.dat:3: `writes` is not a relation: a number from 0"]),
        (
            "link.dat",
            "3\t0\t1\t0.5",
            "3\t0\t1",
            &["link.dat:3: there are 3 fields, but a line is head, tail, relation and weight"],
        ),
        (
            "link.dat",
            "4\t2\t1\t1",
            "4\t3\t1\t1",
            &[
                "link.dat:4: relation 1 leads from type 1 to type 0, but this link from type 1 to type 1",
                "another number",
            ],
        ),
        (
            "label.dat",
            "1\tp/b\t0",
            "3\tp/b\t0",
            &["label.dat:2: vertex 3 is of type 1 in `node.dat`, but of type 0 here"],
        ),
        ("label.dat", "1\tp/b\t0\t0", "1\tp/b\t0\tgood", &["label.dat:2: `good` is not a class: a number from 0"]),
        ("label.dat", "1\tp/b\t0\t0", "1\tp/b\t0\t99999999", &["label.dat:2: class 99999999 is not below 2^24"]),
        ("label.dat", "1\tp/b\t0\t0", "77\tp/b\t0\t0", &["label.dat:2: there is no vertex 77"]),
        ("label.dat.test", "2\tpc", "1\tpc", &["label.dat.test:1: vertex 1 has a label already", "each vertex once"]),
        ("info.dat", "{\n", "{,\n", &["info.dat: it is not JSON", "correct it, or remove it"]),
    ];
    for (file, from, to, parts) in cases {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &FILES);
        let path = folder.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = import(Kind::Hgb, folder.path()).map(drop).expect_err(&format!("{file}: {from} -> {to}"));
        let said = error.to_string().replace(&format!("{}/", folder.path().display()), "");
        assert!(
            parts.iter().all(|part| said.contains(part)),
            "{file}: {from} -> {to}\nsaid: {said}\nexpected: {parts:?}"
        );
    }
}

#[test]
fn faults_of_files_that_are_optional_are_told() {
    let cases: &[(&str, &str, &str)] = &[
        ("label.dat.val", "2\n", "label.dat.val:1: vertex 2 is not in `label.dat`"),
        ("label.dat.val", "first\n", "label.dat.val:1: `first` is not an id"),
        ("link.dat.test", "5\t0\t7\t1.0\n", "link.dat.test:1: relation 7 has no line in `link.dat`"),
        ("link.dat.test", "5\t0\t0\t1.0\n", "link.dat.test:1: relation 0 leads from type 0 to type 0, but"),
    ];
    for (file, text, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &FILES);
        write(folder.path(), &[(file, text)]);
        let said = import(Kind::Hgb, folder.path()).map(drop).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_folder_of_something_else_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let said = import(Kind::Hgb, folder.path()).map(drop).unwrap_err().to_string();
    assert!(said.contains("node.dat: cannot be read"), "{said}");
    write(folder.path(), &[("node.dat", "")]);
    let said = import(Kind::Hgb, folder.path()).map(drop).unwrap_err().to_string();
    assert!(said.contains("node.dat: there are no vertices in it"), "{said}");
}
