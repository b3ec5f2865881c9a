//! Exported datasets are read back equal, but for what a layout does not hold, which is noted.

mod common;

use std::path::Path;

use hgnnc_dataset::write::WriteError;
use hgnnc_dataset::{Dataset, EdgeLabel, EdgeSplit, LabelValues, SplitData};
use hgnnc_import::{ExportError, Kind, Layout, export};

use common::{assert_equal, corners, corners_with_kinds, import, real_dataset};

/// Exports a dataset and reads it back: the result is a valid dataset. With the notes of the export.
fn round_trip(layout: Layout, dataset: &Dataset) -> (Dataset, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out");
    let notes = export(layout, dataset, &target).unwrap_or_else(|error| panic!("{layout:?}: {error}"));
    let kind = match layout {
        Layout::Tables => Kind::Tables,
        Layout::Hgb => Kind::Hgb,
        Layout::Ogb => Kind::Ogb,
        Layout::Pyg => return (Dataset::load(&target).unwrap(), notes),
    };
    let (back, _) = import(kind, &target).unwrap_or_else(|error| panic!("{layout:?}: {error}"));
    let made = folder.path().join("made");
    back.write(&made).unwrap();
    (Dataset::load(&made).unwrap_or_else(|error| panic!("{layout:?}: {error}")), notes)
}

/// Whether each note holds the parts, in order, and there are no others.
fn assert_notes(notes: &[String], expected: &[&[&str]]) {
    let all = notes.iter().zip(expected).all(|(note, parts)| parts.iter().all(|part| note.contains(part)));
    assert!(all && notes.len() == expected.len(), "{notes:#?}");
}

/// Removes what HGB does not hold, and names what it does as its importer does.
fn as_hgb(dataset: &mut Dataset) {
    dataset.vertex_types.iter_mut().for_each(|v| v.time = None);
    for of in &mut dataset.relations {
        (of.time, of.features) = (None, None);
    }
    dataset.splits.iter_mut().for_each(|split| split.name = "hgb".into());
    dataset.labels.iter_mut().for_each(|label| label.name = "y".into());
    dataset.link_splits.iter_mut().for_each(|split| split.name = "hgb".into());
}

#[test]
fn tables_hold_all_but_kinds_and_metapaths() {
    let (back, notes) = round_trip(Layout::Tables, &corners_with_kinds());
    assert_equal(&back, &corners());
    assert_eq!((back.name, back.title.as_deref()), ("corners".into(), Some("a bit of everything")));
    assert_notes(&notes, &[&["kinds of vertices", "`venue`"], &["metapaths", "`APA`"]]);
}

#[test]
fn labels_and_splits_of_edges_are_held_by_tables_and_pyg() {
    let mut dataset = corners();
    let classes = LabelValues::Single { classes: 3, of: vec![2, -1, 0, 1] };
    let sums = LabelValues::Real { dim: 1, rows: vec![0.5, 0.25, 0.0, 4.0], labelled: vec![true, true, false, true] };
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    dataset.relations[0].labels = vec![
        EdgeLabel { name: "role".into(), values: classes, class_names: names(&["first", "last", "editor"]) },
        EdgeLabel { name: "share".into(), values: sums, class_names: names(&["share"]) },
    ];
    let split = |name: &str, train, val, test| EdgeSplit { name: name.into(), train, val, test };
    dataset.relations[0].splits = vec![split("a", vec![0, 3], vec![1], vec![2]), split("b", vec![2], vec![], vec![0])];
    for layout in [Layout::Tables, Layout::Pyg] {
        let (back, notes) = round_trip(layout, &dataset);
        let (back, before) = (&back.relations[0], &dataset.relations[0]);
        assert_eq!((&back.labels, &back.splits), (&before.labels, &before.splits));
        assert!(notes.is_empty(), "{notes:?}");
    }
    for layout in [Layout::Hgb, Layout::Ogb] {
        let (_, notes) = round_trip(layout, &dataset);
        let said = "labels and splits of edges, which `writes` would need: left out";
        assert!(notes.iter().any(|note| note.contains(said)), "{notes:#?}");
    }
}

#[test]
fn times_of_held_out_links_are_noted_where_they_are_not_held() {
    let mut dataset = corners();
    dataset.link_splits[0].test.time = Some(vec![7, -2]);
    let said = "times of links that are held out, which `held out` would need: left out";
    for layout in [Layout::Tables, Layout::Hgb] {
        let (back, notes) = round_trip(layout, &dataset);
        assert_eq!(back.link_splits[0].test.time, None);
        assert!(notes.iter().any(|note| note.contains(said)), "{notes:#?}");
    }
    let (back, notes) = round_trip(Layout::Pyg, &dataset);
    assert_eq!((&back.link_splits[0].test.time, notes.len()), (&Some(vec![7, -2]), 0));
}

#[test]
fn tables_separate_classes_without_blanks_and_note_columns_of_other_names() {
    let mut dataset = corners();
    dataset.labels[1].class_names = ["a;b", "c|d", "e"].map(String::from).to_vec();
    dataset.labels[2].class_names = ["x0", "weight"].map(String::from).to_vec();
    let (back, notes) = round_trip(Layout::Tables, &dataset);
    dataset.labels[2].class_names[0] = "x0_".into();
    assert_equal(&back, &dataset);
    assert_notes(&notes, &[&["the column `x0` of `", "author.csv` is called `x0_`: another one has its name"]]);
}

#[test]
fn vertices_of_a_split_that_have_another_label_only_are_noted() {
    let mut dataset = corners();
    dataset.splits.remove(0);
    let (back, notes) = round_trip(Layout::Hgb, &dataset);
    assert_eq!(back.splits[0].test, [0]);
    let expected = "1 vertices of `paper` in split `second` have no label `topic`: they are left out of it";
    assert!(notes.iter().any(|note| note == expected), "{notes:#?}");
}

#[test]
fn pyg_holds_all() {
    let (back, notes) = round_trip(Layout::Pyg, &corners_with_kinds());
    assert_equal(&back, &corners_with_kinds());
    assert!(back.vertex_types[2].kinds.is_some() && back.metapaths.len() == 1 && notes.is_empty());
}

#[test]
fn hgb_holds_vertices_edges_weights_the_first_labels_and_links() {
    let (back, notes) = round_trip(Layout::Hgb, &corners_with_kinds());
    let mut expected = corners();
    expected.labels.truncate(1);
    expected.splits.truncate(1);
    as_hgb(&mut expected);
    assert_equal(&back, &expected);
    assert_notes(
        &notes,
        &[
            &["kinds of vertices", "`venue`"],
            &["times of vertices", "`paper`"],
            &["times of edges", "`writes`"],
            &["features of edges", "`writes`"],
            &["metapaths", "`APA`"],
            &["one label of each type", "`tags` of `paper`"],
            &["one split of each type", "`second` of `paper`"],
            &["labels of classes only", "`size` of `author`"],
        ],
    );
}

#[test]
fn hgb_holds_several_classes_of_a_vertex_and_labels_of_several_types() {
    let mut dataset = corners();
    dataset.labels.remove(0);
    dataset.labels[1].values = LabelValues::Single { classes: 2, of: vec![1, -1, 0, 1] };
    dataset.labels[1].class_names.clear();
    dataset.splits = vec![
        SplitData { name: "a".into(), vertex_type: 0, train: vec![1, 3], val: vec![], test: vec![0] },
        SplitData { name: "a".into(), vertex_type: 1, train: vec![2], val: vec![3], test: vec![0] },
    ];
    let (back, notes) = round_trip(Layout::Hgb, &dataset);
    // Vertex 4 is in no part.
    let LabelValues::Multi { rows, labelled, .. } = &mut dataset.labels[0].values else { panic!("several classes") };
    (rows[12], rows[13], rows[14], labelled[4]) = (0.0, 0.0, 0.0, false);
    as_hgb(&mut dataset);
    assert_equal(&back, &dataset);
    assert!(notes.iter().any(|note| note.starts_with("1 vertices of `paper` have a label but are in no part")));
    assert!(notes.iter().any(|note| note.contains("a label of no class")), "{notes:#?}");
}

#[test]
fn a_labelled_type_comes_first_in_hgb_and_names_that_pyg_confuses_are_noted() {
    let mut dataset = corners();
    dataset.labels.retain(|label| label.vertex_type == 1);
    dataset.labels[0].values = LabelValues::Single { classes: 2, of: vec![1, -1, 0, 1] };
    dataset.splits.clear();
    dataset.relations[1].name = "paper-cites".into();
    dataset.relations[2] = dataset.relations[1].clone();
    dataset.relations[2].name = "paper-names".into();
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out");
    let notes = export(Layout::Hgb, &dataset, &target).unwrap();
    let nodes = std::fs::read_to_string(target.join("node.dat")).unwrap();
    assert!(nodes.starts_with("0\tNA\t0\t0.1,0.2,0.3\n"), "{nodes}");
    assert!(notes.iter().any(|note| note == "`author` has no split: all its labels are in `label.dat`"));
    let confused = "PyG takes relations `paper-cites` and `paper-names` for one";
    assert!(notes.iter().any(|note| note.starts_with(confused)), "{notes:#?}");
    let (back, _) = import(Kind::Hgb, &target).unwrap();
    assert_eq!(back.relation("paper-names"), Some(2));
}

#[test]
fn ids_that_a_layout_cannot_hold_exactly_are_left_out() {
    for (ids, layout, why) in [
        (["a\tb", "c"], Layout::Hgb, "holds characters that separate fields"),
        (["", "c"], Layout::Hgb, "is empty"),
        (["c", "c"], Layout::Hgb, "is that of two vertices"),
        ([" a", "c"], Layout::Tables, "blanks at an end"),
        (["c", "c"], Layout::Tables, "is that of two vertices"),
        (["a\nb", "c"], Layout::Ogb, "holds characters that separate fields"),
        (["c", "c"], Layout::Ogb, "is that of two vertices"),
    ] {
        let mut dataset = corners();
        dataset.vertex_types[2].ids = Some(ids.into_iter().collect());
        let (back, notes) = round_trip(layout, &dataset);
        assert!(back.vertex_types[2].ids.is_none(), "{layout:?} {ids:?}");
        let noted =
            notes.iter().any(|note| note.starts_with("ids of vertex type `venue` are left out") && note.contains(why));
        assert!(noted, "{layout:?} {ids:?} {notes:#?}");
        // Edges are kept.
        let edges = back.relation("paper-venue").map(|r| &back.relations[r]).unwrap();
        assert_eq!((&edges.src_ids[..], &edges.dst_ids[..]), (&[2][..], &[0][..]));
    }
}

#[test]
fn ogb_holds_all_but_empty_relations_and_names_of_classes_of_several_types() {
    let (back, notes) = round_trip(Layout::Ogb, &corners_with_kinds());
    let mut expected = corners();
    expected.relations.remove(2);
    expected.labels.remove(1);
    expected.link_splits.clear();
    expected.labels.iter_mut().for_each(|label| label.name = "y".into());
    expected.labels[0].class_names.clear();
    // The class that no vertex has is not told.
    expected.labels[0].values = LabelValues::Single { classes: 3, of: vec![2, -1, 0, 1, 1] };
    // Vertex 1 of the test part has a label of the other name only.
    expected.splits[1].test = vec![0];
    assert_equal(&back, &expected);
    let expected: [&[&str]; 11] = [
        &["kinds of vertices", "`venue`"],
        &["links that are held out", "`held out`"],
        &["metapaths", "`APA`"],
        &["sparse features of `paper` are written densely"],
        &["relation `nothing` has no edges"],
        &["one label of each type", "`tags` of `paper`"],
        &["part `valid` of split `second` is empty"],
        &["1 vertices of `paper` in split `second` have no label `topic`"],
        &["2 labelled vertices of `paper` are in no part of split `second`"],
        &["names the classes of one label"],
        &[],
    ];
    assert_notes(&notes, &expected[..10]);
}

#[test]
fn ogb_names_the_classes_of_its_label() {
    for label in [0, 1] {
        let mut dataset = corners();
        dataset.labels = vec![dataset.labels[label].clone()];
        dataset.splits.retain(|split| split.vertex_type == 0);
        dataset.splits.truncate(1);
        dataset.splits[0] = SplitData { train: vec![0], val: vec![3], test: vec![4], ..dataset.splits[0].clone() };
        dataset.relations.remove(2);
        dataset.link_splits.clear();
        let (back, _) = round_trip(Layout::Ogb, &dataset);
        dataset.labels[0].name = "y".into();
        assert_equal(&back, &dataset);
    }
}

#[test]
fn names_that_cannot_be_folders_are_refused_by_ogb() {
    for name in ["a/b", "..", "a___b", "a,b", "NA", " a", ""] {
        let mut dataset = corners();
        dataset.relations[0].name = name.into();
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        let error = export(Layout::Ogb, &dataset, &target).unwrap_err();
        assert!(
            matches!(&error, ExportError::Refused(why) if why.contains("relation `") && why.contains("another name"))
        );
        // Not even a part of it is there.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_folder_that_is_not_empty_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "text").unwrap();
    for layout in [Layout::Tables, Layout::Hgb, Layout::Ogb, Layout::Pyg] {
        let error = export(layout, &corners(), folder.path()).unwrap_err();
        assert!(matches!(error, ExportError::Write(WriteError::Occupied(_))), "{error}");
        // An empty one is filled.
        let empty = tempfile::tempdir().unwrap();
        export(layout, &corners(), empty.path()).unwrap();
        assert!(std::fs::read_dir(empty.path()).unwrap().count() > 0);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn equal_datasets_are_exported_to_equal_bytes() {
    for layout in [Layout::Tables, Layout::Hgb, Layout::Ogb, Layout::Pyg] {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| folder.path().join(name));
        export(layout, &corners(), &first).unwrap();
        export(layout, &corners(), &second).unwrap();
        assert_eq!(files(&first), files(&second));
    }
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            all.extend(files(&entry.path()).into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        } else {
            all.push((name, std::fs::read(entry.path()).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn real_datasets_come_back() {
    for name in ["freebase_movie", "aifb"] {
        let Some(folder) = real_dataset(name) else { return };
        let dataset = Dataset::load(&folder).unwrap();
        for layout in [Layout::Tables, Layout::Hgb, Layout::Ogb, Layout::Pyg] {
            if layout == Layout::Ogb && name == "aifb" {
                // Its relations have names with `/`.
                let folder = tempfile::tempdir().unwrap();
                assert!(export(layout, &dataset, &folder.path().join("out")).is_err());
                continue;
            }
            let (back, _) = round_trip(layout, &dataset);
            let mut expected = dataset.clone();
            if layout == Layout::Hgb {
                expected.splits.truncate(1);
                as_hgb(&mut expected);
                // Labels of no part of the split are left out, and so are those of other splits.
                let (mut back, mut expected) = (back, expected);
                back.labels.clear();
                expected.labels.clear();
                assert_equal(&back, &expected);
                continue;
            }
            if layout == Layout::Ogb {
                expected.link_splits.clear();
            }
            assert_equal(&back, &expected);
        }
    }
}
