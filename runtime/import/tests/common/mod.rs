//! Datasets to export, and a form of them that compares what they hold by name.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hgnnc_dataset::{
    Dataset, DenseFeatures, Features, Kinds, LabelData, LabelValues, LinkSplitData, Links, MetapathData, RelationData,
    SparseFeatures, SplitData, Step, VertexIds, VertexTypeData,
};
use hgnnc_import::{ImportError, Kind, Observer, read_observed};

/// Everything that a dataset can hold, and corner cases: isolated vertices, a type without vertices and one without
/// anything, duplicate edges, self loops, a relation without edges, sparse features, ids of text that look like fields
/// and missing values, unlabelled vertices, a class without vertices and a label of no class.
pub fn corners() -> Dataset {
    let labels = vec![
        LabelData {
            name: "topic".into(),
            vertex_type: 0,
            values: LabelValues::Single { classes: 4, of: vec![2, -1, 0, 1, 1] },
            class_names: ["graphs", "both", "compilers", "none of them"].map(String::from).to_vec(),
        },
        LabelData {
            name: "tags".into(),
            vertex_type: 0,
            values: LabelValues::Multi {
                classes: 3,
                rows: vec![1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0],
                labelled: vec![true, true, false, true, true],
            },
            class_names: ["a;b", "NA", "c d"].map(String::from).to_vec(),
        },
        LabelData {
            name: "size".into(),
            vertex_type: 1,
            values: LabelValues::Real {
                dim: 2,
                rows: vec![1.5, 60.0, 0.0, 0.0, 1.75, 70.5, 2.0, 1e-7],
                labelled: vec![true, false, true, true],
            },
            class_names: ["height", "weight"].map(String::from).to_vec(),
        },
    ];
    let splits = vec![
        SplitData { name: "first".into(), vertex_type: 0, train: vec![0, 3], val: vec![4], test: vec![2] },
        SplitData { name: "second".into(), vertex_type: 0, train: vec![4], val: vec![], test: vec![0, 1] },
        SplitData { name: "first".into(), vertex_type: 1, train: vec![2], val: vec![0], test: vec![3] },
    ];
    let text = |ids: &[&str]| Some(ids.iter().copied().collect::<VertexIds>());
    let vertex_types = vec![
        VertexTypeData {
            name: "paper".into(),
            count: 5,
            features: Some(Features::Sparse(SparseFeatures {
                dim: 5,
                indptr: vec![0, 2, 2, 3, 4, 4],
                indices: vec![1, 4, 0, 3],
                data: vec![0.1, 2.0, -3.0, 1e-30].into(),
            })),
            ids: Some(VertexIds::Integer(vec![9_007_199_254_740_993, 7, -3, 0, 12])),
            time: Some(vec![1999, 2003, 0, -5, 1_700_000_000]),
            ..VertexTypeData::default()
        },
        VertexTypeData {
            name: "author".into(),
            count: 4,
            features: Some(Features::Dense(DenseFeatures {
                dim: 3,
                rows: vec![0.1, 0.2, 0.3, 16_777_217.0, -0.5, 3.4e38, 1.0, 2.0, 3.0, 1.17e-38, 0.0, 7.0].into(),
            })),
            ids: text(&["NA", "Ada, \"Countess\"", "null", "a b/c"]),
            ..VertexTypeData::default()
        },
        VertexTypeData { name: "venue".into(), count: 2, ..VertexTypeData::default() },
        VertexTypeData { name: "ghost".into(), count: 0, ..VertexTypeData::default() },
    ];
    let relations = vec![
        RelationData {
            name: "writes".into(),
            src: 1,
            dst: 0,
            src_ids: vec![0, 2, 0, 3],
            dst_ids: vec![1, 4, 1, 0],
            weight: Some(vec![0.5, 1.0, 0.1, 100.0].into()),
            features: Some(DenseFeatures { dim: 2, rows: vec![1.0, 0.0, 0.25, -1.0, 1.0, 0.0, 0.3, 0.7].into() }),
            time: Some(vec![5, 6, -7, 8]),
            transforms: Vec::new(),
            ..RelationData::default()
        },
        RelationData {
            name: "cites".into(),
            src: 0,
            dst: 0,
            src_ids: vec![3, 3, 0],
            dst_ids: vec![3, 0, 4],
            ..RelationData::default()
        },
        RelationData { name: "nothing".into(), src: 2, dst: 0, ..RelationData::default() },
        RelationData {
            name: "paper-venue".into(),
            src: 0,
            dst: 2,
            src_ids: vec![2],
            dst_ids: vec![0],
            ..RelationData::default()
        },
    ];
    let held_out = LinkSplitData {
        name: "held out".into(),
        val: Links { src: vec![1], relation: vec![0], dst: vec![2], time: None },
        test: Links { src: vec![0, 4], relation: vec![0, 1], dst: vec![3, 1], time: None },
    };
    Dataset {
        name: "corners".into(),
        title: Some("a bit of everything".into()),
        vertex_types,
        relations,
        labels,
        splits,
        link_splits: vec![held_out],
        ..Dataset::default()
    }
}

/// [`corners`], with what only the format of hgnnc holds.
pub fn corners_with_kinds() -> Dataset {
    let mut dataset = corners();
    dataset.vertex_types[2].kinds = Some(Kinds { names: vec!["journal".into(), "conference".into()], of: vec![1, 0] });
    dataset.metapaths = vec![MetapathData {
        name: "APA".into(),
        steps: vec![Step::forward(0), Step::reverse(0)],
        start: 1,
        end: 1,
        pairs: None,
        self_pairs: None,
        instances: None,
        max_degree: None,
    }];
    dataset
}

/// Contents of a dataset as text, by name.
pub type Held = BTreeMap<String, String>;

/// Contents of a dataset as text. Sparse features are as dense ones, and classes without names have their numbers.
pub fn held(dataset: &Dataset) -> Held {
    let mut all = Held::new();
    let types = &dataset.vertex_types;
    for of in types {
        let name = &of.name;
        all.insert(format!("{name}.count"), of.count.to_string());
        if let Some(x) = &of.features {
            all.insert(format!("{name}.x"), format!("{} {:?}", x.dim(), dense(x, of.count)));
        }
        if let Some(ids) = &of.ids {
            all.insert(format!("{name}.ids"), format!("{:?}", (0..of.count).map(|v| ids.text(v)).collect::<Vec<_>>()));
        }
        if let Some(time) = &of.time {
            all.insert(format!("{name}.time"), format!("{time:?}"));
        }
    }
    for of in &dataset.relations {
        let name = &of.name;
        let ends = [&types[of.src].name, &types[of.dst].name];
        all.insert(format!("{name}.edges"), format!("{ends:?} {:?} {:?}", of.src_ids, of.dst_ids));
        if let Some(weight) = &of.weight {
            all.insert(format!("{name}.weight"), format!("{:?}", &weight[..]));
        }
        if let Some(x) = &of.features {
            all.insert(format!("{name}.x"), format!("{} {:?}", x.dim, &x.rows[..]));
        }
        if let Some(time) = &of.time {
            all.insert(format!("{name}.time"), format!("{time:?}"));
        }
    }
    for of in &dataset.labels {
        let key = format!("{}.{}", types[of.vertex_type].name, of.name);
        let classes = match &of.values {
            LabelValues::Single { classes, .. } | LabelValues::Multi { classes, .. } => *classes,
            LabelValues::Real { .. } => 0,
        };
        all.insert(key.clone(), format!("{:?}", of.values));
        let numbers = || (0..classes).map(|class| class.to_string()).collect();
        let names: Vec<String> = if of.class_names.is_empty() { numbers() } else { of.class_names.clone() };
        if classes > 0 {
            all.insert(format!("{key}.classes"), format!("{names:?}"));
        }
    }
    for of in &dataset.splits {
        let key = format!("{}/{}", types[of.vertex_type].name, of.name);
        all.insert(key, format!("{:?} {:?} {:?}", of.train, of.val, of.test));
    }
    for of in &dataset.link_splits {
        for (part, links) in [("val", &of.val), ("test", &of.test)] {
            let relation = links.relation.iter().map(|&r| &dataset.relations[r as usize].name).collect::<Vec<_>>();
            all.insert(format!("{}/{part}", of.name), format!("{:?} {relation:?} {:?}", links.src, links.dst));
        }
    }
    all
}

fn dense(x: &Features, count: usize) -> Vec<f32> {
    match x {
        Features::Dense(x) => x.rows.to_vec(),
        Features::Sparse(x) => {
            let mut all = vec![0.0; count * x.dim];
            for row in 0..count {
                let (columns, values) = x.row(row);
                columns.iter().zip(values).for_each(|(&c, &value)| all[row * x.dim + c as usize] = value);
            }
            all
        }
    }
}

/// Compares what two datasets hold, and shows what differs.
pub fn assert_equal(found: &Dataset, expected: &Dataset) {
    let (found, expected) = (held(found), held(expected));
    let short =
        |text: Option<&String>| text.map_or("nothing".into(), |text| text.chars().take(300).collect::<String>());
    let keys = found.keys().chain(expected.keys()).collect::<std::collections::BTreeSet<_>>();
    for key in keys {
        let (found, expected) = (found.get(key), expected.get(key));
        assert!(found == expected, "{key}\nfound:    {}\nexpected: {}", short(found), short(expected));
    }
}

/// Keeps notes.
#[derive(Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.into());
    }
}

impl Notes {
    pub fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Imports a folder, with the notes.
pub fn import(kind: Kind, source: &Path) -> Result<(Dataset, Vec<String>), ImportError> {
    let notes = Arc::new(Notes::default());
    let dataset = read_observed(kind, source, None, None, Arc::clone(&notes) as _)?;
    Ok((dataset, notes.texts()))
}

/// The folder of a real dataset in `HGNN_DATA` or `../shared/data` beside the workspace; none, with a printed reason,
/// otherwise.
pub fn real_dataset(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("HGNN_DATA").map_or(beside, PathBuf::from).join(name);
    let is_there = folder.join("dataset.toml").exists();
    if !is_there {
        println!("skipped: there is no dataset `{}`", folder.display());
    }
    is_there.then_some(folder)
}
