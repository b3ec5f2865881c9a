//! An outline has the names, counts and splits of a dataset, and finds the faults of heads of files.

use hgnnc_dataset::{
    Dataset, DenseFeatures, Features, LabelData, LabelValues, RelationData, SplitData, VertexTypeData, npy,
};

fn dataset() -> Dataset {
    let x = DenseFeatures { dim: 2, rows: vec![0.5; 6].into() };
    Dataset {
        name: "small".into(),
        vertex_types: vec![VertexTypeData {
            name: "paper".into(),
            count: 3,
            features: Some(Features::Dense(x)),
            time: Some(vec![1, 2, 3]),
            ..Default::default()
        }],
        relations: vec![RelationData {
            name: "cites".into(),
            src_ids: vec![0, 1],
            dst_ids: vec![1, 2],
            weight: Some(vec![1.0, 2.0].into()),
            ..Default::default()
        }],
        labels: vec![LabelData {
            name: "y".into(),
            vertex_type: 0,
            values: LabelValues::Single { classes: 2, of: vec![0, 1, -1] },
            class_names: vec![],
        }],
        splits: vec![SplitData { name: "standard".into(), vertex_type: 0, train: vec![1], val: vec![0], test: vec![] }],
        ..Default::default()
    }
}

#[test]
fn an_outline_has_names_counts_and_splits() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("data");
    dataset().write(&folder).unwrap();
    // Elements are not read, so their faults are not found.
    npy::write(&folder.join("0.cites.edges.npy"), &[2, 2], &[0i32, 1, 1, 9]).unwrap();
    assert!(Dataset::load(&folder).is_err());
    let outline = Dataset::outline(&folder).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((outline.vertex_types[0].count, outline.num_edges()), (3, 0));
    assert_eq!(outline.vertex_types[0].features.as_ref().map(|x| (x.dim(), x.num_stored())), Some((2, 0)));
    assert_eq!((&outline.splits[0].train[..], &outline.splits[0].val[..]), (&[1][..], &[0][..]));
    assert!(outline.labels.is_empty());
}

#[test]
fn faults_of_heads_are_those_of_loading() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("data");
    dataset().write(&folder).unwrap();
    npy::write(&folder.join("0.paper.x.npy"), &[3, 5], &[0f32; 15]).unwrap();
    npy::write(&folder.join("0.cites.weight.npy"), &[2], &[1i32, 2]).unwrap();
    npy::write(&folder.join("label0.npy"), &[2], &[0i32, 1]).unwrap();
    npy::write(&folder.join("split0.train.npy"), &[1], &[7i32]).unwrap();
    let [found, expected] = [Dataset::outline(&folder), Dataset::load(&folder)].map(|outcome| outcome.unwrap_err());
    assert_eq!(found, expected);
    assert_eq!(found.errors.len(), 4, "{found}");
}
