//! Round trips: folders that [`Dataset::write`] makes load as the same dataset.

mod common;
#[path = "common/tiny.rs"]
mod tiny;

use std::path::Path;

use hgnnc_dataset::{Dataset, DenseFeatures, Features, FieldData, VertexIds, VertexTypeData};

fn round_trip(dataset: &Dataset) -> Dataset {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("copy");
    dataset.write(&target).unwrap();
    Dataset::load(&target).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Compares the parts that matter without printing whole graphs.
fn assert_equal(before: &Dataset, after: &Dataset) {
    assert_eq!(before.vertex_types.len(), after.vertex_types.len());
    for (b, a) in before.vertex_types.iter().zip(&after.vertex_types) {
        assert_eq!((&b.name, b.count, &b.time, &b.transforms), (&a.name, a.count, &a.time, &a.transforms));
        assert!(b.ids == a.ids && format!("{:?}", b.kinds) == format!("{:?}", a.kinds), "{}", b.name);
        let names = |of: &VertexTypeData| of.fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(b), names(a));
        for field in std::iter::once(None).chain(b.fields.iter().map(|field| Some(&field.name[..]))) {
            match (b.features_of(field), a.features_of(field)) {
                (Some(Features::Dense(b)), Some(Features::Dense(a))) => {
                    assert!(b.dim == a.dim && b.rows == a.rows)
                }
                (Some(Features::Sparse(b)), Some(Features::Sparse(a))) => {
                    assert!(b.dim == a.dim && b.indptr == a.indptr && b.indices == a.indices && b.data == a.data)
                }
                (b, a) => assert!(b.is_none() && a.is_none()),
            }
        }
    }
    assert_eq!(before.relations.len(), after.relations.len());
    for (b, a) in before.relations.iter().zip(&after.relations) {
        assert_eq!((&b.name, b.src, b.dst, &b.transforms), (&a.name, a.src, a.dst, &a.transforms));
        assert!(b.src_ids == a.src_ids && b.dst_ids == a.dst_ids && b.weight == a.weight && b.time == a.time);
        assert_eq!(b.features.as_ref().map(|x| x.dim), a.features.as_ref().map(|x| x.dim));
        assert!(b.features.as_ref().map(|x| &x.rows) == a.features.as_ref().map(|x| &x.rows));
    }
    assert_eq!(before.labels.len(), after.labels.len());
    for (b, a) in before.labels.iter().zip(&after.labels) {
        assert_eq!((&b.name, b.vertex_type, &b.class_names), (&a.name, a.vertex_type, &a.class_names));
        assert!(b.values == a.values, "{}", b.name);
    }
    let parts = |d: &Dataset| {
        let links = d.link_splits.iter().map(|s| format!("{s:?}"));
        d.splits.iter().map(|s| format!("{s:?}")).chain(links).collect::<Vec<_>>()
    };
    assert!(parts(before) == parts(after));
    assert_eq!(before.metapaths, after.metapaths);
    assert_eq!((&before.name, &before.title), (&after.name, &after.title));
}

#[test]
fn a_dataset_with_one_of_everything_is_written_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    tiny::write(folder.path());
    let mut dataset = Dataset::load(folder.path()).unwrap();
    let author = dataset.vertex_types[1].features.clone().expect("features");
    let named = |name: &str, values| FieldData { name: name.into(), values };
    dataset.vertex_types[0].fields = vec![named("a/b", dataset.vertex_types[0].features.clone().expect("features"))];
    dataset.vertex_types[1].fields = vec![named("x", author.clone()), named("year", author)];
    dataset.vertex_types[0].ids = Some(["p1", "", "ü", "p10"].into_iter().collect());
    dataset.vertex_types[1].ids = Some(VertexIds::Integer(vec![-5, 1 << 60, 0]));
    dataset.vertex_types[0].time = Some(vec![3, -1, i64::MAX, 0]);
    dataset.relations[0].time = Some(vec![1, 2, 3, 4]);
    let copy = round_trip(&dataset);
    assert_equal(&dataset, &copy);
    let ids = copy.vertex_types[0].ids.as_ref().unwrap();
    assert_eq!((0..ids.len()).map(|v| ids.text(v).into_owned()).collect::<Vec<_>>(), ["p1", "", "ü", "p10"]);
}

#[test]
fn names_that_no_file_can_have_are_kept() {
    let long = "x".repeat(300);
    let names = ["a/b", "a\\b", "..", "a b", "A b", "", &long].into_iter().filter(|n| !n.is_empty());
    let vertex_types = names.map(|n| VertexTypeData {
        name: n.into(),
        count: 1,
        ids: Some([n].into_iter().collect()),
        ..Default::default()
    });
    let dataset = Dataset { name: "\"quoted\"\n".into(), vertex_types: vertex_types.collect(), ..Default::default() };
    assert_equal(&dataset, &round_trip(&dataset));
}

#[test]
fn what_is_there_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
    let dataset = Dataset { name: "d".into(), ..Default::default() };
    let error = dataset.write(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("exists and is not an empty folder; it is left alone"), "{error}");
    let error = dataset.write(&folder.path().join("thesis.txt")).unwrap_err().to_string();
    assert!(error.ends_with("exists and is not an empty folder; it is left alone"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn real_datasets_are_written_as_they_were() {
    let size = |folder: &Path| -> u64 {
        std::fs::read_dir(folder).unwrap().flatten().filter_map(|file| file.metadata().ok()).map(|m| m.len()).sum()
    };
    for folder in common::real_datasets().into_iter().filter(|folder| size(folder) < 64 << 20) {
        let dataset = Dataset::load(&folder).unwrap();
        assert_equal(&dataset, &round_trip(&dataset));
    }
}

/// Files of both were called `0.paper.x.npy`.
#[test]
fn a_relation_may_have_the_name_of_a_vertex_type() {
    let folder = tempfile::tempdir().unwrap();
    tiny::write(folder.path());
    let mut dataset = Dataset::load(folder.path()).unwrap();
    dataset.relations[0].name = dataset.vertex_types[0].name.to_ascii_uppercase();
    let rows: Vec<f32> = (0..dataset.relations[0].num_edges()).map(|edge| edge as f32).collect();
    dataset.relations[0].features = Some(DenseFeatures { dim: 1, rows: rows.into() });
    dataset.metapaths.clear();
    assert_equal(&dataset, &round_trip(&dataset));
}
