//! A folder of GraphBolt's `OnDiskDataset` becomes a dataset.

mod layouts;

use std::path::Path;

use hgnnc_dataset::LabelValues;
use hgnnc_dataset::npy;
use hgnnc_import::Kind;
use layouts::{edges, imported, rows, write};

const METADATA: &str = r#"dataset_name: shop
graph:
  nodes:
    - {type: user, num: 3}
    - {type: item, num: 4}
  edges:
    - {type: "user:buys:item", format: csv, path: edges/buys.csv}
    - {type: "user:follows:user", format: numpy, path: edges/follows.npy}
feature_data:
  - {domain: node, type: user, name: age, format: numpy, path: data/age.npy, in_memory: true}
  - {domain: node, type: user, name: place, format: numpy, path: data/place.npy}
  - {domain: edge, type: "user:buys:item", name: weight, format: numpy, path: data/weight.npy}
  - {domain: edge, type: "user:follows:user", name: since, format: numpy, path: data/since.npy}
tasks:
  - name: groups
    num_classes: 2
    train_set:
      - type: user
        data:
          - {name: seeds, format: numpy, path: set/train.npy}
          - {name: labels, format: numpy, path: set/train_labels.npy}
    validation_set:
      - type: user
        data:
          - {name: seeds, format: numpy, path: set/val.npy}
          - {name: labels, format: numpy, path: set/val_labels.npy}
  - name: links
    train_set:
      - type: "user:buys:item"
        data:
          - {name: seeds, format: numpy, path: set/link_train.npy}
    test_set:
      - type: "user:buys:item"
        data:
          - {name: seeds, format: numpy, path: set/link_test.npy}
          - {name: labels, format: numpy, path: set/link_labels.npy}
          - {name: indexes, format: numpy, path: set/link_indexes.npy}
"#;
const FILES: [(&str, &str); 2] = [("metadata.yaml", METADATA), ("edges/buys.csv", "0,1\n2,3\n0,1\n1,0\n")];

/// Writes the folder, after a change of one of its text files.
fn shop(folder: &Path, (file, from, to): (&str, &str, &str)) {
    write(folder, &FILES);
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file}: {from}");
    std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
    for folder in ["data", "set"].map(|name| folder.join(name)) {
        std::fs::create_dir_all(folder).unwrap();
    }
    let integers = |name: &str, shape: &[usize], all: &[i64]| npy::write(&folder.join(name), shape, all).unwrap();
    let floats = |name: &str, shape: &[usize], all: &[f32]| npy::write(&folder.join(name), shape, all).unwrap();
    integers("edges/follows.npy", &[2, 2], &[0, 1, 1, 2]);
    integers("data/age.npy", &[3], &[30, 40, 50]);
    floats("data/place.npy", &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    floats("data/weight.npy", &[4], &[0.5, 1.5, 2.5, 3.5]);
    floats("data/since.npy", &[2, 1], &[7.0, 8.0]);
    integers("set/train.npy", &[2], &[2, 0]);
    integers("set/train_labels.npy", &[2], &[1, 0]);
    integers("set/val.npy", &[1], &[1]);
    floats("set/val_labels.npy", &[1], &[1.0]);
    integers("set/link_train.npy", &[2, 2], &[0, 1, 2, 3]);
    integers("set/link_test.npy", &[3, 2], &[2, 0, 2, 1, 1, 0]);
    integers("set/link_labels.npy", &[3], &[1, 0, 0]);
    integers("set/link_indexes.npy", &[3], &[0, 0, 1]);
}

const SAME: (&str, &str, &str) = ("metadata.yaml", "shop", "shop");

#[test]
fn arrays_and_tasks_become_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path(), SAME);
    let dataset = imported(Kind::Graphbolt, folder.path(), None);
    let counts: Vec<_> = dataset.vertex_types.iter().map(|v| (&v.name[..], v.count)).collect();
    assert_eq!((&dataset.name[..], &counts[..]), ("shop", &[("user", 3), ("item", 4)][..]));
    assert_eq!(edges(&dataset, "buys"), [(0, 1), (2, 3), (0, 1), (1, 0)]);
    assert_eq!(edges(&dataset, "follows"), [(0, 1), (1, 2)]);
    assert_eq!(rows(&dataset, 0), [[30.0, 1.0, 2.0], [40.0, 3.0, 4.0], [50.0, 5.0, 6.0]]);
    assert_eq!(dataset.relations[0].weight.as_deref().unwrap(), [0.5, 1.5, 2.5, 3.5]);
    assert_eq!(dataset.relations[1].features.as_ref().unwrap().rows[..], [7.0, 8.0]);
    assert_eq!(dataset.labels[0].values, LabelValues::Single { classes: 2, of: vec![0, 1, 1] });
    let split = &dataset.splits[0];
    assert_eq!((&split.name[..], &split.train[..], &split.val[..]), ("groups", &[0, 2][..], &[1][..]));
    // Links with the label 0 are negative samples.
    let links = &dataset.link_splits[0];
    assert_eq!((&links.name[..], links.val.len()), ("links", 0));
    assert_eq!((&links.test.src[..], &links.test.relation[..], &links.test.dst[..]), (&[2][..], &[0][..], &[0][..]));
}

#[test]
fn links_that_are_edges_as_well_are_taken_out_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path(), ("edges/buys.csv", "1,0", "2,0"));
    let said = layouts::said(Kind::Graphbolt, folder.path(), None, "a held-out edge");
    assert!(said.contains("metadata.yaml: 1 edges of `buys` are links to validate or test on"), "{said}");
    assert!(said.contains("`held_out = \"remove\"` of `--config`"), "{said}");
    write(folder.path(), &[("settings.toml", "held_out = \"remove\"\n")]);
    let dataset = imported(Kind::Graphbolt, folder.path(), Some(&folder.path().join("settings.toml")));
    assert_eq!(edges(&dataset, "buys"), [(0, 1), (2, 3), (0, 1)]);
    assert_eq!(dataset.relations[0].weight.as_deref().unwrap(), [0.5, 1.5, 2.5]);
}

#[test]
fn a_graph_without_types_is_of_nodes_and_edges() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = "graph:\n  nodes: [{num: 2}]\n  edges: [{format: csv, path: e.csv}]\ntasks:\n  - train_set:\n    - data:\n      - {name: seeds, format: numpy, path: s.npy}\n      - {name: labels, format: numpy, path: y.npy}\n";
    write(folder.path(), &[("metadata.yaml", metadata), ("e.csv", "0,1\n")]);
    npy::write(&folder.path().join("s.npy"), &[1], &[1i64]).unwrap();
    npy::write(&folder.path().join("y.npy"), &[1, 3], &[1f32, 0.0, 1.0]).unwrap();
    let dataset = imported(Kind::Graphbolt, folder.path(), None);
    assert_eq!((&dataset.vertex_types[0].name[..], &dataset.relations[0].name[..]), ("node", "edge"));
    let LabelValues::Multi { classes: 3, rows, labelled } = &dataset.labels[0].values else { panic!("several") };
    assert_eq!((&rows[3..], &labelled[..]), (&[1.0, 0.0, 1.0][..], &[false, true][..]));
    assert_eq!(dataset.splits[0].name, "standard");
}

#[test]
fn a_label_that_is_too_large_for_a_class_is_told() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path(), ("metadata.yaml", "num_classes: 2", "note: two"));
    npy::write(&folder.path().join("set/train_labels.npy"), &[2], &[i64::MAX, 0]).unwrap();
    npy::write(&folder.path().join("set/val_labels.npy"), &[1], &[1i64]).unwrap();
    let said = layouts::said(Kind::Graphbolt, folder.path(), None, "a large label");
    assert!(said.contains("classes, and from 1 to 2^24 may be"), "{said}");
}

#[test]
fn faults_are_told_with_file_value_and_way_out() {
    let cases: &[layouts::Case<'_>] = &[
        (
            ("metadata.yaml", "graph:\n", "graph_topology: {}\nother:\n"),
            &["metadata.yaml: there is no `graph`: GraphBolt has made torch files"],
        ),
        (("metadata.yaml", "num: 3", "num: -3"), &["metadata.yaml:4"]),
        (("metadata.yaml", "type: item", "type: user"), &["`nodes` has the type `user` twice"]),
        (
            ("metadata.yaml", "num: 4", "num: 2000000000"),
            &["there are 2000000000 vertices of type `item`, and 2^30 at most"],
        ),
        (
            ("metadata.yaml", "user:buys:item", "user-buys-item"),
            &["`user-buys-item` is no type of edges: write `source:relation:destination`"],
        ),
        (
            ("metadata.yaml", "user:buys:item", "user:buys:thing"),
            &["names a type of vertices that is not there: `thing`"],
        ),
        (("metadata.yaml", "format: csv", "format: torch"), &["edges/buys.csv: is a file of torch", "numpy.save"]),
        (
            ("metadata.yaml", "edges/follows.npy", "data/age.npy"),
            &["data/age.npy: has the shape [3], but edges are [2, number]"],
        ),
        (("metadata.yaml", "edges/follows.npy", "edges/none.npy"), &["edges/none.npy: cannot be read"]),
        (("metadata.yaml", "edges/follows.npy", "edges/buys.csv"), &["edges/buys.csv: is not a .npy file"]),
        (
            ("metadata.yaml", "path: data/place.npy", "path: data/since.npy"),
            &["data/since.npy: has the shape [2, 1], but it has a row for each vertex"],
        ),
        (("metadata.yaml", "domain: node", "domain: graph"), &["the feature `age` is of the graph"]),
        (("metadata.yaml", "set/train.npy", "data/place.npy"), &["names a type of edges that is not there: `user`"]),
        (
            ("metadata.yaml", "set/val.npy", "set/train.npy"),
            &["set/val_labels.npy: has the shape [1], but there are 2 seeds"],
        ),
        (
            ("metadata.yaml", "set/val.npy", "data/weight.npy"),
            &["data/weight.npy: has elements of type float32, but ids are integers"],
        ),
        (
            ("metadata.yaml", "num_classes: 2", "num_classes: 1"),
            &["set/train_labels.npy: row 0 is the class 1: there are 1"],
        ),
        (
            (
                "metadata.yaml",
                "name: labels, format: numpy, path: set/train_labels.npy",
                "name: label, format: numpy, path: set/train_labels.npy",
            ),
            &["which has no label"],
        ),
        (
            (
                "metadata.yaml",
                "name: seeds, format: numpy, path: set/val.npy",
                "name: nodes, format: numpy, path: set/val.npy",
            ),
            &["task `groups`: validation_set has no `seeds`"],
        ),
        (
            (
                "metadata.yaml",
                "  - name: links\n",
                "  - name: links\n    test_set:\n      - type: \"user:buys:item\"\n        data: [{name: seeds, format: numpy, path: set/link_test.npy}]\n  - name: links\n",
            ),
            &["there are several tasks `links` of links: give them names that differ"],
        ),
        (
            ("metadata.yaml", "num: 3", "num: 2"),
            &["edges/buys.csv:2: `2` is no source of this type: an integer from 0 to below 2"],
        ),
        (("edges/buys.csv", "2,3", "two,3"), &["edges/buys.csv:2: `two` is no source of this type", "no header"]),
        (("edges/buys.csv", "2,3", "2,3,1"), &["edges/buys.csv:2: there are 3 fields, but 2 columns"]),
    ];
    for (change, parts) in cases {
        let folder = tempfile::tempdir().unwrap();
        shop(folder.path(), *change);
        let said = layouts::said(Kind::Graphbolt, folder.path(), None, &format!("{change:?}"));
        assert!(parts.iter().all(|part| said.contains(part)), "{change:?}\nsaid: {said}\nexpected: {parts:?}");
    }
}
