//! Edges to predict: a label and a split of a relation, from training to predictions with the ends of each edge.

use std::path::Path;

use hgnnc_dataset::{
    Dataset, DenseFeatures, EdgeLabel, EdgeSplit, Features, LabelValues, RelationData, VertexTypeData,
};

use crate::common::Place;

const MODEL: &str = "
schema Bank {
    vertex Account { x: f32[2] }
    relation pays: Account -> Account { amount: f32, fraud: class[2] }
}
layer Score() over graphs: [*] of x: *[in] -> y: graphs[2] {
    aggregate e: g in graphs {
        param w: [in, 4]
        param u: [in, 4]
        param t: [4]
        param b: [4] = zeros
        param v: [4, 2]
        y = tanh(e.src.x @ w + e.dst.x @ u + e.amount * t + b) @ v
    }
}
model Net(schema: Bank) {
    output fraud: edges(pays) = Score() over edges(pays) of features
}
train Net {
    loss    cross_entropy(fraud, pays.fraud)
    optimizer adam(lr: 0.03)
    epochs  120
    metrics accuracy
    seed    2
}
";

const ACCOUNTS: usize = 12;
const PAYMENTS: usize = 360;

/// A large amount from an account whose first feature is positive is fraud. Every ninth payment has no label.
fn bank(accounts: usize, payments: usize) -> Dataset {
    let sign = |account: usize| if account.is_multiple_of(3) { 1.0 } else { -1.0 };
    // A multiplicative hash, so that no pattern of the payments is one of the splits.
    let drawn = |payment: usize| (payment as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 8;
    let ends = |payment: usize| (drawn(payment) % accounts, drawn(payment) / 1000 % accounts);
    let amount = |payment: usize| (drawn(payment) / 7 % 100) as f32 / 50.0 - 1.0;
    let class = |payment: usize| match payment % 9 {
        8 => -1,
        _ => i32::from(amount(payment) > 0.0 && sign(ends(payment).0) > 0.0),
    };
    let part = |of: fn(usize) -> bool| -> Vec<u32> {
        (0..payments).filter(|&payment| payment % 9 < 8 && of(payment % 9)).map(|payment| payment as u32).collect()
    };
    let x = (0..accounts).flat_map(|account| [sign(account), 1.0]).collect::<Vec<f32>>();
    Dataset {
        name: "bank".into(),
        vertex_types: vec![VertexTypeData {
            name: "account".into(),
            count: accounts,
            features: Some(Features::Dense(DenseFeatures { dim: 2, rows: x.into() })),
            ids: Some(hgnnc_dataset::VertexIds::Integer((0..accounts as i64).map(|account| 100 + account).collect())),
            ..VertexTypeData::default()
        }],
        relations: vec![RelationData {
            name: "pays".into(),
            src_ids: (0..payments).map(|payment| ends(payment).0 as u32).collect(),
            dst_ids: (0..payments).map(|payment| ends(payment).1 as u32).collect(),
            weight: Some((0..payments).map(amount).collect::<Vec<f32>>().into()),
            labels: vec![EdgeLabel {
                name: "fraud".into(),
                values: LabelValues::Single { classes: 2, of: (0..payments).map(class).collect() },
                class_names: vec!["honest".into(), "fraud".into()],
            }],
            splits: vec![EdgeSplit {
                name: "standard".into(),
                train: part(|rest| rest < 5),
                val: part(|rest| rest == 5),
                test: part(|rest| rest > 5),
            }],
            ..RelationData::default()
        }],
        ..Dataset::default()
    }
}

fn write(dataset: &Dataset, folder: &Path) {
    dataset.write(folder).unwrap_or_else(|error| panic!("{error}"));
}

fn place() -> Place {
    let place = Place::new();
    place.model(MODEL);
    write(&bank(ACCOUNTS, PAYMENTS), &place.path("bank"));
    place
}

fn table(place: &Place, name: &str) -> Vec<String> {
    String::from_utf8(place.bytes(name)).expect("a text").lines().map(str::to_owned).collect()
}

#[test]
fn edges_are_trained_evaluated_and_predicted() {
    let place = place();
    place.run(&["check", "m.hgnn", "--data", "bank"]).works();
    place.run(&["train", "m.hgnn", "--data", "bank", "-o", "run"]).works();
    let report = place.json("run/report.json");
    assert!(report["metrics"]["test"]["accuracy"].as_f64().expect("a number") > 0.85, "{}", report["metrics"]);
    assert_eq!(report["baseline"]["kind"], "majority class");
    let again = place.run(&["eval", "run/model.hgnnx", "--data", "bank"]).works();
    assert!(again.out.contains("test: accuracy "), "{}", again.out);
    place.run(&["infer", "run/model.hgnnx", "--data", "bank", "--out", "fraud.csv"]).works();
    let rows = table(&place, "fraud.csv");
    assert_eq!((&rows[0][..], rows.len()), ("edge,src,dst,class", 1 + PAYMENTS));
    let pays = &bank(ACCOUNTS, PAYMENTS).relations[0];
    for (payment, row) in rows[1..].iter().enumerate() {
        let ends = (100 + pays.src_ids[payment], 100 + pays.dst_ids[payment]);
        let start = format!("{payment},{},{},", ends.0, ends.1);
        let class = row.strip_prefix(&start).unwrap_or_else(|| panic!("{row}"));
        assert!(["honest", "fraud"].contains(&class), "{row}");
    }
    place.run(&["infer", "run/model.hgnnx", "--data", "bank", "--out", "fraud.npy"]).works();
    let numbers = hgnnc_dataset::npy::Npy::open(&place.path("fraud.npy")).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(numbers.shape(), [PAYMENTS, 2]);
}

/// On batches of edges, and without the labels where only outputs are computed.
#[test]
fn batches_of_edges_train_and_new_payments_are_predicted() {
    let place = place();
    place.model(&MODEL.replace("epochs  120", "epochs  40\n    batch   8\n    fanout  [all]"));
    place.run(&["train", "m.hgnn", "--data", "bank", "-o", "run"]).works();
    let report = place.json("run/report.json");
    assert!(report["metrics"]["test"]["accuracy"].as_f64().expect("a number") > 0.85, "{}", report["metrics"]);
    // Two payments between accounts that the graph has, one of which is new.
    let mut new = bank(2, 2);
    new.vertex_types[0].ids = Some(hgnnc_dataset::VertexIds::Integer(vec![103, 777]));
    let pays = &mut new.relations[0];
    (pays.src_ids, pays.dst_ids) = (vec![0, 1], vec![1, 0]);
    (pays.labels, pays.splits) = (vec![], vec![]);
    write(&new, &place.path("new"));
    place.run(&["infer", "run/model.hgnnx", "--data", "bank", "--new", "new", "--out", "new.csv"]).works();
    let rows = table(&place, "new.csv");
    assert_eq!((rows.len(), &rows[0][..]), (3, "edge,src,dst,class"));
    assert!(rows[1].starts_with("0,103,777,") && rows[2].starts_with("1,777,103,"), "{rows:?}");
}

/// Labels that a dataset lacks are told in the words of the model, and of an artifact.
#[test]
fn other_datasets_are_refused() {
    let place = place();
    let mut other = bank(ACCOUNTS, PAYMENTS);
    other.relations[0].splits.clear();
    write(&other, &place.path("without split"));
    place.run(&["train", "m.hgnn", "--data", "without split"]).fails(1, &["E0426", "no split of `pays`"]);
    other.relations[0].labels.clear();
    write(&other, &place.path("without label"));
    place.run(&["train", "m.hgnn", "--data", "without label"]).fails(1, &["E0427", "`pays` has no label"]);
    place.run(&["train", "m.hgnn", "--data", "bank", "-o", "run", "--epochs", "1"]).works();
    let refused = place.run(&["eval", "run/model.hgnnx", "--data", "without label"]);
    refused.fails(1, &["`pays` has no label `fraud`", "there is no split of `pays`"]);
    // Outputs need neither; but the amount is read.
    place.run(&["infer", "run/model.hgnnx", "--data", "without label", "--out", "o.npy"]).works();
    other.relations[0].weight = None;
    write(&other, &place.path("without amount"));
    let refused = place.run(&["infer", "run/model.hgnnx", "--data", "without amount", "--out", "o.npy"]);
    refused.fails(1, &["the edges of `pays` have no weight"]);
}

/// A split that `data split` draws is trained on, beside the one that the dataset has.
#[test]
fn labelled_edges_are_split() {
    let place = place();
    let split = |more: &[&str]| place.run(&[&["data", "split", "bank", "made", "--edges", "pays"], more].concat());
    let said = split(&["--name", "drawn", "--train", "0.5", "--val", "0.25", "--by-class"]).works().out;
    assert!(said.contains("split `drawn` of `fraud` of `pays`: 160 to train on, 80 to validate, 80 to test"), "{said}");
    let train = ["train", "m.hgnn", "--data", "made", "--split", "drawn", "-o", "run"];
    place.run(&train).works();
    let report = place.json("run/report.json");
    assert!(report["metrics"]["test"]["accuracy"].as_f64().expect("a number") > 0.85, "{}", report["metrics"]);
    std::fs::remove_dir_all(place.path("made")).expect("removed");
    let said = split(&["--name", "pairs", "--reverse", "pays=pays"]).works().out;
    assert!(said.contains("`pays` is symmetric: all edges between two vertices are in one part"), "{said}");
    std::fs::remove_dir_all(place.path("made")).expect("removed");
    split(&[]).fails(1, &["there is a split `standard` already"]);
    split(&["--name", "n", "--by", "time"]).fails(1, &["relation `pays` has no times"]);
    split(&["--name", "n", "--label", "y"]).fails(1, &["no label `y`; it has `fraud`"]);
    split(&["--links", "pays"]).fails(2, &["cannot be used with"]);
    split(&["--name", "n", "--inductive"]).fails(2, &["--inductive", "cannot be used with"]);
    let links = ["data", "split", "bank", "other", "--links", "pays", "--by-class"];
    place.run(&links).fails(2, &["--by-class", "cannot be used with"]);
    place.run(&["data", "split", "bank", "other", "--edges", "paid"]).fails(1, &["no relation `paid`; it has `pays`"]);
}

/// A partition numbers edges anew: labels and splits go with them.
#[test]
fn a_partition_keeps_labels_and_splits_of_edges() {
    let place = place();
    place.run(&["data", "partition", "bank", "--ranks", "2", "--model", "m.hgnn", "-o", "parts"]).works();
    let [before, after] = ["bank", "parts"].map(|name| Dataset::load(place.path(name)).expect("a dataset"));
    let classes = |dataset: &Dataset, part: usize| {
        let pays = &dataset.relations[0];
        let EdgeSplit { train, val, test, .. } = &pays.splits[0];
        let mut classes: Vec<_> = [train, val, test][part]
            .iter()
            .map(|&edge| {
                let LabelValues::Single { of, .. } = &pays.labels[0].values else { panic!("classes") };
                let amount = pays.weight.as_ref().map(|weight| weight[edge as usize].to_bits());
                (amount, of[edge as usize])
            })
            .collect();
        classes.sort_unstable();
        classes
    };
    for part in 0..3 {
        assert_eq!(classes(&before, part), classes(&after, part));
    }
    place.run(&["train", "m.hgnn", "--data", "parts", "-o", "run"]).works();
    let report = place.json("run/report.json");
    assert!(report["metrics"]["test"]["accuracy"].as_f64().expect("a number") > 0.85, "{}", report["metrics"]);
}
