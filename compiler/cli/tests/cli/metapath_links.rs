//! Links of metapaths (metapath2vec): from a dataset without held-out links to vectors.

use hgnnc_dataset::npy;

use crate::common::*;
use crate::links;

const MODEL: &str = "\
use std::link::Dot
schema S {
    vertex User from \"user\" { x: embedding[8] = uniform(0.1) }
    vertex Artist from \"artist\"
    relation likes: User -> Artist
    metapath UAU = User -likes-> Artist <-likes- User
    metapath UAUAU = User -likes-> Artist <-likes- User -likes-> Artist <-likes- User
}
model M(schema: S) {
    output score: links = Dot() over links([UAU, UAUAU]) of features
    output vectors: User = User.x
}
train M {
    loss      binary_cross_entropy(score, links)
    optimizer adam(lr: 0.02)
    epochs    40
    batch     16
    negatives uniform(3)
}
";

/// Users like artists of their own half, and no links are held out.
fn music() -> Place {
    let place = links::place(&links::links(100));
    place.toml("[[link_split]]\nname = \"a\"\nval = \"val.npy\"\ntest = \"test.npy\"\n", "");
    place.model(MODEL);
    place
}

fn losses(report: &serde_json::Value) -> Vec<f64> {
    report["losses"].as_array().expect("losses").iter().map(|loss| loss.as_f64().expect("a number")).collect()
}

#[test]
fn users_of_one_half_come_to_have_similar_vectors() {
    let place = music();
    let args = ["--quiet", "--threads", "2", "--weights-out", "w.safetensors", "--report", "r.json"];
    place.with_data("train", &args).is_silent();
    let report = place.json("r.json");
    let parts: Vec<&String> = report["metrics"].as_object().expect("parts").keys().collect();
    assert_eq!(parts, ["train"], "no links are held out");
    assert!(report["metrics"]["train"]["auc"].as_f64().expect("a number") > 0.7, "{report}");

    let infer = ["--weights", "w.safetensors", "--output", "vectors", "--out", "v.npy"];
    let run = place.with_data("infer", &infer).works();
    assert!(!run.err.contains("warning"), "{}", run.err);
    let file = npy::Npy::open(&place.path("v.npy")).expect("an array");
    let vectors = file.to_f32().expect("f32");
    let row = |user: usize| &vectors[8 * user..8 * user + 8];
    let users = file.shape()[0];
    let mut means = [(0.0, 0); 2];
    for (a, b) in (0..users).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let product: f64 = row(a).iter().zip(row(b)).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
        let (sum, count) = &mut means[usize::from(a % 2 == b % 2)];
        (*sum, *count) = (*sum + product, *count + 1);
    }
    let [apart, together] = means.map(|(sum, count)| sum / f64::from(count));
    assert!(together > apart + 0.5, "{together} within halves, {apart} between them");
}

/// Walks are functions of the seed, the epoch and their start, whatever computes them.
#[test]
fn threads_devices_and_resumed_runs_draw_the_same_walks() {
    let place = music();
    place.with_data("train", &["--quiet", "--threads", "2", "--weights-out", "w.safetensors", "--report", "r.json"]);
    place.with_data("train", &["--quiet", "--epochs", "9", "--checkpoint", "d"]).is_silent();
    let resumed = ["--quiet", "--threads", "1", "--checkpoint", "d", "--resume", "--weights-out", "v.safetensors"];
    place.with_data("train", &resumed).is_silent();
    assert_eq!(place.bytes("v.safetensors"), place.bytes("w.safetensors"));

    place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["metrics"], place.json("r.json")["metrics"]);

    let [cpu, ptx] = ["cpu", "ptx-interp"].map(|device| {
        place.with_data("train", &["--quiet", "--epochs", "2", "--device", device, "--report", device]).is_silent();
        losses(&place.json(device))
    });
    for (cpu, ptx) in cpu.iter().zip(&ptx) {
        assert!((cpu - ptx).abs() <= 1e-4 * cpu.abs(), "{ptx}, not {cpu}");
    }
}

/// All users like one artist: their pairs are far more than the budget, and walks list none of them.
#[test]
fn pairs_of_a_dense_metapath_are_never_listed() {
    const USERS: i32 = 6000;
    let place = music();
    let likes: Vec<i32> = (0..USERS).chain((0..USERS).map(|_| 0)).collect();
    npy::write(&place.path("data").join("likes.npy"), &[2, USERS as usize], &likes).expect("written");
    place.toml(
        "name = \"user\"\ncount = 30\n[vertex_type.features]\nkind = \"dense\"\nfile = \"user.npy\"\ndim = 16\n",
        &format!("name = \"user\"\ncount = {USERS}\n"),
    );
    let train = |model: &str| {
        place.model(model);
        place.with_data("train", &["--quiet", "--epochs", "1", "--memory-budget", "8M", "--no-graph-cache"])
    };
    train(&MODEL.replace("batch     16", "batch     1024")).is_silent();
    let listed = MODEL
        .replace("use std::link::Dot\n", "use std::link::Dot\nuse std::rgcn::RgcnConv\n")
        .replace("of features\n", "of RgcnConv(hidden: 8) over UAU of features\n");
    train(&listed).fails(3, &["UAU"]);
}

#[test]
fn mistakes_about_links_of_metapaths_are_told() {
    let place = music();
    place.with_data("train", &["--split", "a"]).fails(1, &["E0519", "no links are held out by the split `a`"]);
    place.with_data("train", &["--quiet", "--epochs", "1", "--weights-out", "w.safetensors"]).is_silent();
    links::rows(place.folder.path(), "pairs.npy", &[(0, 1)]);
    let args = ["--weights", "w.safetensors", "--links", "pairs.npy", "--out", "s.npy"];
    place.with_data("infer", &args).fails(1, &["relation 0, `likes`, which the model does not score"]);
    npy::write(&place.path("data").join("likes.npy"), &[2, 0], &[0i32; 0]).expect("written");
    place.with_data("train", &[]).fails(1, &["no links to train on among the edges of `likes`"]);
}
