//! Links to predict, from a dataset to metrics that are computed a second time here.

use std::collections::HashSet;
use std::path::Path;

use hgnnc_dataset::npy;

use crate::common::*;

const USERS: u32 = 30;
const ARTISTS: u32 = 24;

pub const MODEL: &str = "\
use std::link::DistMult
use std::rgcn::RgcnConv
schema S {
    vertex User from \"user\" { x: embedding[12] }
    vertex Artist from \"artist\" { x: embedding[12] }
    relation likes: User -> Artist
    relation knows: User -> User
}
model M(schema: S) {
    let h = RgcnConv(hidden: 12) over [relations, reverses] of features
    output score: links = DistMult() over links(likes) of dropout(h, 0.1)
    output users: User = h
}
train M {
    loss      binary_cross_entropy(score, links)
    optimizer adam(lr: 0.01)
    epochs    25
    batch     32
    fanout    [4]
    negatives uniform(2)
    metrics   auc, average_precision, mrr, hits_1, hits_3, hits_10
}
";

pub type Pairs = Vec<(u32, u32)>;

/// The same model with a network of the source for a score, whose links share samples in place of their destinations.
fn conv_e() -> String {
    let score = "ConvE(rows: 3, filters: 4, input_dropout: 0.1, feature_dropout: 0.1) over links(likes) of (h, r: r)";
    MODEL
        .replace("use std::link::DistMult", "use std::compgcn::RelationVectors\nuse std::link::ConvE")
        .replace("DistMult() over links(likes) of dropout(h, 0.1)", score)
        .replace("    output score", "    let r = RelationVectors(width: 12) over likes\n    output score")
        .replace("binary_cross_entropy", "cross_entropy")
        .replace("uniform(2)", "shared_destinations(8)")
}

fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

/// Users like artists of their own half, or any, by `affinity` in percent: training, validation and test links.
pub fn links(affinity: u32) -> [Pairs; 3] {
    links_among(affinity, ARTISTS)
}

fn links_among(affinity: u32, artists: u32) -> [Pairs; 3] {
    let (mut state, mut known, mut all) = (7, HashSet::new(), vec![]);
    while all.len() < 260 {
        let (user, artist) = (random(&mut state) % USERS, random(&mut state) % artists);
        let fits = user % 2 == artist % 2 || random(&mut state) % 100 >= affinity;
        if fits && known.insert((user, artist)) {
            all.push((user, artist));
        }
    }
    let mut parts = [all[..200].to_vec(), all[200..225].to_vec(), all[225..].to_vec()];
    parts.iter_mut().for_each(|part| part.sort_unstable());
    parts
}

fn edges(folder: &Path, name: &str, edges: &[(u32, u32)]) {
    let flat: Vec<i32> = edges.iter().map(|e| e.0 as i32).chain(edges.iter().map(|e| e.1 as i32)).collect();
    npy::write(&folder.join(name), &[2, edges.len()], &flat).expect("written");
}

pub fn rows(folder: &Path, name: &str, links: &[(u32, u32)]) {
    let endpoints = |end: fn(&(u32, u32)) -> u32| links.iter().map(move |link| end(link) as i32);
    let rows: Vec<i32> = endpoints(|l| l.0).chain(links.iter().map(|_| 0)).chain(endpoints(|l| l.1)).collect();
    npy::write(&folder.join(name), &[3, links.len()], &rows).expect("written");
}

/// Users, artists and the links between them; `again` holds those of training a second time, from artist to user.
pub fn place(parts: &[Pairs; 3]) -> Place {
    place_of(parts, ARTISTS)
}

fn place_of(parts: &[Pairs; 3], artists: u32) -> Place {
    let place = Place { folder: tempfile::tempdir().expect("a folder") };
    let data = place.path("data");
    std::fs::create_dir_all(&data).expect("a folder");
    let knows: Pairs = (0..USERS).map(|u| (u, (u + 2) % USERS)).collect();
    let again: Pairs = parts[0].iter().map(|&(user, artist)| (artist, user)).collect();
    let toml = format!(
        "name = \"music\"\n\
         [[vertex_type]]\nname = \"user\"\ncount = {USERS}\n\
         [vertex_type.features]\nkind = \"dense\"\nfile = \"user.npy\"\ndim = 16\n\
         [[vertex_type]]\nname = \"artist\"\ncount = {artists}\n\
         [vertex_type.features]\nkind = \"dense\"\nfile = \"artist.npy\"\ndim = 16\n\
         [[relation]]\nname = \"likes\"\nsrc = \"user\"\ndst = \"artist\"\nfile = \"likes.npy\"\n\
         [[relation]]\nname = \"knows\"\nsrc = \"user\"\ndst = \"user\"\nfile = \"knows.npy\"\n\
         [[relation]]\nname = \"again\"\nsrc = \"artist\"\ndst = \"user\"\nfile = \"again.npy\"\n\
         [[link_split]]\nname = \"a\"\nval = \"val.npy\"\ntest = \"test.npy\"\n"
    );
    std::fs::write(data.join("dataset.toml"), toml).expect("written");
    let mut state = 3;
    for (name, count) in [("user.npy", USERS), ("artist.npy", artists)] {
        let x: Vec<f32> = (0..count * 16).map(|_| random(&mut state) as f32 / (1u64 << 30) as f32 - 1.0).collect();
        npy::write(&data.join(name), &[count as usize, 16], &x).expect("written");
    }
    edges(&data, "likes.npy", &parts[0]);
    edges(&data, "knows.npy", &knows);
    edges(&data, "again.npy", &again);
    rows(&data, "val.npy", &parts[1]);
    rows(&data, "test.npy", &parts[2]);
    place
}

fn scores(place: &Place, pairs: &[(u32, u32)]) -> Vec<f32> {
    rows(place.folder.path(), "pairs.npy", pairs);
    let args = ["--weights", "w.safetensors", "--links", "pairs.npy", "--out", "s.npy"];
    let run = place.with_data("infer", &args).works();
    assert!(run.out.contains(&format!("({} scores)", pairs.len())), "{}", run.out);
    let file = npy::Npy::open(&place.path("s.npy")).expect("an array");
    file.to_f32().expect("f32").to_vec()
}

/// The memory that a refusal names: in all and by part, in KiB.
pub fn memory_named(refused: &Run) -> (f64, Vec<f64>) {
    let (before, rest) = refused.err.split_once(" (").expect("parts");
    let size = |text: &str| -> f64 {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number: f64 = words[words.len() - 2].parse().expect("a size");
        number * if words[words.len() - 1] == "KiB" { 1.0 } else { 1.0 / 1024.0 }
    };
    (size(before), rest.split(')').next().expect("parts").split(',').map(size).collect())
}

/// Evaluation, scores of links and what batches train each fit in the budget, and not together: refused before anything
/// runs, with the smallest budget that would do.
#[test]
fn a_budget_is_for_all_of_a_run() {
    let place = place(&links(90));
    place.model(&MODEL.replace("epochs    25", "epochs    1"));
    let train = |budget: f64| place.with_data("train", &["--memory-budget", &format!("{budget:.1}K")]);
    let (needed, parts) = memory_named(&train(1.0));
    assert!((parts.iter().sum::<f64>() - needed).abs() < 0.1 * parts.len() as f64, "{parts:?} of {needed}");
    let budget = needed - 0.2;
    assert!(parts.len() > 4 && parts.iter().all(|&part| part < budget), "{parts:?} of {needed}");
    train(budget).fails(3, &["the model needs", "scores of links", "of batches", "the budget is"]);
    train(needed + 0.2).works();
}

/// Batches of links, embeddings, negatives, scores and ranks.
#[test]
fn links_are_learned_and_ranked_on_a_device() {
    // The bias of a relation changes no cross entropy: Adam would make steps of the rounding errors of its gradient.
    let conv_e = conv_e().replace("adam(lr: 0.01)", "sgd(lr: 0.1, momentum: 0.9)");
    for model in [MODEL.to_owned(), conv_e] {
        learned_and_ranked_on_a_device(&model.replace("epochs    25", "epochs    2"));
    }
}

fn learned_and_ranked_on_a_device(model: &str) {
    let place = place(&links(90));
    place.model(model);
    let reports = ["cpu", "ptx-interp"].map(|device| {
        place.with_data("train", &["--quiet", "--device", device, "--report", device]).is_silent();
        place.json(device)
    });
    let numbers = |report: &serde_json::Value| -> Vec<(String, f64)> {
        let mut numbers = vec![];
        for (part, metrics) in report["metrics"].as_object().expect("parts") {
            for (name, value) in metrics.as_object().expect("metrics") {
                numbers.push((format!("{part}.{name}"), value.as_f64().expect("a number")));
            }
        }
        numbers
    };
    let (expected, found) = (numbers(&reports[0]), numbers(&reports[1]));
    assert!(found.len() >= 10 && found.len() == expected.len(), "{found:?}");
    for ((name, expected), (_, found)) in expected.iter().zip(&found) {
        assert!((expected - found).abs() <= 1e-3 * expected.abs().max(1.0), "{name}: {found}, not {expected}");
    }
}

/// All artists are ranked for a user, but for those who were known before the part. Among 24 artists all would be recommended.
#[test]
fn recommendations_are_those_of_the_definition() {
    const ARTISTS: u32 = 70;
    let parts = links_among(90, ARTISTS);
    let place = place_of(&parts, ARTISTS);
    place.model(&MODEL.replace("auc, average_precision, mrr, hits_1, hits_3, hits_10", "recall_20, ndcg_20"));
    place.with_data("train", &["--quiet", "--weights-out", "w.safetensors", "--report", "r.json"]).is_silent();
    let report = place.json("r.json");
    assert!(report["metrics"]["train"].get("recall_20").is_none(), "links of training are not recommended");
    assert!(report["metrics"]["test"].get("mrr").is_none(), "nothing else is ranked");
    let all: Pairs = (0..USERS).flat_map(|user| (0..ARTISTS).map(move |artist| (user, artist))).collect();
    let scores = scores(&place, &all);
    let score = |user: u32, artist: u32| scores[(user * ARTISTS + artist) as usize];
    for (part, (links, earlier)) in [("val", (&parts[1], &parts[..1])), ("test", (&parts[2], &parts[..2]))] {
        let known: HashSet<&(u32, u32)> = earlier.iter().flatten().collect();
        let (mut recall, mut ndcg) = (vec![], vec![]);
        for user in 0..USERS {
            let mut others: Vec<u32> = (0..ARTISTS).filter(|&artist| !known.contains(&(user, artist))).collect();
            others.sort_by(|&a, &b| score(user, b).total_cmp(&score(user, a)));
            let gain = |place: usize| 1.0 / (place as f64 + 2.0).log2();
            let is_link = |place: &usize| links.contains(&(user, others[*place]));
            let all = links.iter().filter(|link| link.0 == user).count();
            let found: Vec<usize> = (0..20).filter(is_link).collect();
            if all > 0 {
                recall.push(found.len() as f64 / all as f64);
                ndcg.push(found.into_iter().map(gain).sum::<f64>() / (0..all).map(gain).sum::<f64>());
            }
        }
        for (name, of_users) in [("recall_20", recall), ("ndcg_20", ndcg)] {
            let mean = of_users.iter().sum::<f64>() / of_users.len() as f64;
            let found = report["metrics"][part][name].as_f64().expect("a number");
            assert!((mean - found).abs() < 1e-9 && (0.05..0.9).contains(&mean), "{part} {name}: {found}, not {mean}");
        }
    }
    place.with_data("eval", &["--weights", "w.safetensors", "--threads", "1", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["metrics"], report["metrics"]);
}

#[test]
fn links_are_learned_and_their_ranks_are_those_of_the_definition() {
    let parts = links(90);
    let place = place(&parts);
    place.model(MODEL);
    let args =
        ["--quiet", "--threads", "2", "--weights-out", "w.safetensors", "--report", "r.json", "--checkpoint", "c"];
    place.with_data("train", &args).is_silent();
    let report = place.json("r.json");
    let metric = |part: &str, name: &str| report["metrics"][part][name].as_f64().expect("a number");
    assert!(metric("test", "auc") > 0.65 && metric("val", "auc") > 0.75, "{report}");
    assert!(report["metrics"]["train"].get("mrr").is_none(), "links of training are not ranked");

    // The scores of all pairs, and from them the ranks.
    let all: Pairs = (0..USERS).flat_map(|user| (0..ARTISTS).map(move |artist| (user, artist))).collect();
    let scores = scores(&place, &all);
    let score = |user: u32, artist: u32| scores[(user * ARTISTS + artist) as usize];
    let known: HashSet<(u32, u32)> = parts.iter().flatten().copied().collect();
    for (part, links) in [("val", &parts[1]), ("test", &parts[2])] {
        let mut ranks = vec![];
        for &(user, artist) in links {
            let own = score(user, artist);
            let mut rank = |others: Pairs| {
                let others = others.iter().filter(|other| !known.contains(other)).map(|o| score(o.0, o.1));
                let (mut above, mut equal) = (0, 0);
                others.for_each(|x| (above, equal) = (above + i32::from(x > own), equal + i32::from(x == own)));
                ranks.push(1.0 + f64::from(above) + f64::from(equal) / 2.0);
            };
            rank((0..ARTISTS).map(|other| (user, other)).collect());
            rank((0..USERS).map(|other| (other, artist)).collect());
        }
        let mean = |f: &dyn Fn(f64) -> f64| ranks.iter().map(|&rank| f(rank)).sum::<f64>() / ranks.len() as f64;
        assert!((mean(&|rank| 1.0 / rank) - metric(part, "mrr")).abs() < 1e-9);
        for (most, name) in [(1.0, "hits_1"), (3.0, "hits_3"), (10.0, "hits_10")] {
            assert!((mean(&|rank| f64::from(rank <= most)) - metric(part, name)).abs() < 1e-9, "{part} {name}");
        }
    }

    // Measured again, by one thread, and resumed in the middle: the same.
    place.with_data("eval", &["--weights", "w.safetensors", "--threads", "1", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["metrics"], report["metrics"]);
    place.with_data("train", &["--quiet", "--epochs", "9", "--checkpoint", "d"]).is_silent();
    let args = ["--quiet", "--threads", "1", "--checkpoint", "d", "--resume", "--weights-out", "v.safetensors"];
    place.with_data("train", &args).is_silent();
    assert_eq!(place.bytes("v.safetensors"), place.bytes("w.safetensors"));
}

/// Links that nothing foretells cannot be learned from features, unless the model sees them: then it has seen what it
/// is to tell.
#[test]
fn what_repeats_links_is_left_out_of_batches() {
    let place = place(&links(0));
    let loss = |relations: &str, exclude: &str| {
        let model = MODEL
            .replace("embedding[12]", "f32[16]")
            .replace("relation knows: User -> User", "relation again: Artist -> User")
            .replace("over [relations, reverses]", &format!("over [{relations}]"))
            .replace("hidden: 12", "hidden: 64")
            .replace("epochs    25", &format!("epochs 80\n{exclude}"))
            .replace("fanout    [4]", "");
        place.model(&model);
        place.with_data("train", &["--quiet", "--report", "r.json"]).is_silent();
        let losses = place.json("r.json")["losses"].as_array().expect("losses").clone();
        losses.last().and_then(|last| last.as_f64()).expect("a loss")
    };
    let seen = loss("again, reverse(again)", "");
    let left_out = loss("again, reverse(again)", "exclude [again]");
    let own = loss("likes, reverse(likes)", "");
    assert!(seen < 0.75 * own && (left_out - own).abs() < 0.05, "{seen} seen, {left_out} left out, {own} of its own");
}

#[test]
fn mistakes_about_links_are_told() {
    let place = place(&links(90));
    place.model(MODEL);
    place.with_data("train", &["--quiet", "--epochs", "1", "--weights-out", "w.safetensors"]).is_silent();
    place.with_data("train", &["--split", "b"]).fails(1, &["no split `b` of links", "[[link_split]] has `a`"]);
    let infer =
        |args: &[&str]| place.with_data("infer", &[&["--weights", "w.safetensors", "--out", "o.npy"], args].concat());
    infer(&[]).fails(1, &["`score` belongs to pairs of vertices", "--links FILE.npy"]);
    infer(&["--output", "users"]).works();
    infer(&["--output", "given.0"]).fails(1, &["no output `given.0`; it has `users`"]);
    infer(&["--links", "none.npy"]).fails(1, &["none.npy"]);
    for table in ["o.csv", "o.parquet"] {
        let args = ["--weights", "w.safetensors", "--links", "none.npy", "--out", table];
        place.with_data("infer", &args).fails(1, &["scores of pairs are written as `.npy`"]);
    }
    rows(place.folder.path(), "far.npy", &[(0, 0), (1, ARTISTS)]);
    infer(&["--links", "far.npy"]).fails(1, &["pair 1 joins 1 and 24", "24 destinations"]);
    edges(place.folder.path(), "two.npy", &[(0, 0)]);
    infer(&["--links", "two.npy"]).fails(1, &["[3, pairs]", "[2, 1]"]);
    npy::write(&place.path("other.npy"), &[3, 1], &[0, 1, 0]).expect("written");
    infer(&["--links", "other.npy"]).fails(1, &["relation 1, `knows`, which the model does not score"]);
    // A batch of everything has no messages of the relation; what is scored without a loss of links has no pairs.
    place.model(&MODEL.replace("batch     32", "batch     4096"));
    let run = place.with_data("train", &["--epochs", "1"]).works();
    assert!(run.err.contains("a batch holds all 200 links"), "{}", run.err);
    let alone = MODEL.split("train M").next().expect("a model").replace("    output users: User = h\n", "");
    place.model(&alone);
    infer(&[]).fails(1, &["no output of vertices"]);
    place.model(MODEL);
    place.toml("[[link_split]]\nname = \"a\"\nval = \"val.npy\"\ntest = \"test.npy\"\n", "");
    place.with_data("train", &[]).fails(1, &["no split of links", "training needs one"]);
}

#[test]
fn held_out_links_that_training_sees_are_refused() {
    let mut parts = links(90);
    let shared = parts[0][7];
    parts[1].push(shared);
    let both = parts[1][3];
    parts[2].push(both);
    let leaking = place(&parts);
    leaking.model(MODEL);
    let train = format!(
        "1 link is in both `train` (the edges of the relation) and `val`, such as {} -> {}",
        shared.0, shared.1
    );
    let test = format!("1 link is in both `val` and `test`, such as {} -> {} of relation `likes`", both.0, both.1);
    for (command, args) in [("train", &[][..]), ("check", &[]), ("profile", &["--epochs", "1"])] {
        leaking.with_data(command, args).fails(1, &["link split `a`", &train, &test]);
    }

    // A relation that repeats links, those that are held out among them.
    let parts = links(90);
    let repeated = place(&parts);
    let exclude = MODEL
        .replace("relation knows: User -> User", "relation again: Artist -> User")
        .replace("metrics", "exclude [again]\n metrics");
    repeated.model(&exclude);
    repeated.with_data("check", &[]).works();
    let all: Pairs = parts.iter().flatten().map(|&(user, artist)| (artist, user)).collect();
    edges(&repeated.path("data"), "again.npy", &all);
    repeated.with_data("check", &[]).fails(
        1,
        &["25 edges of relation `again`, which repeats links by `exclude`, repeat links of `val`, such as", "35 edges"],
    );

    // Links of a relation that is not predicted.
    repeated.model(&MODEL.replace("links(likes)", "links(knows)"));
    repeated
        .with_data("train", &[])
        .fails(1, &["all links of the split `a` are of `likes`, but the model predicts links of `knows`"]);
}

/// One vertex joined to all others, alone in its batch, has no pairs that are none; where all pairs are links, nothing
/// tells.
#[test]
fn links_between_all_vertices() {
    let everything: Pairs = (0..USERS).flat_map(|user| (0..ARTISTS).map(move |artist| (user, artist))).collect();
    let mut parts = [everything.clone(), vec![], vec![]];
    parts[0].retain(|&(user, artist)| (user + artist) % 7 != 0);
    let held_out: Pairs = everything.into_iter().filter(|&(user, artist)| (user + artist) % 7 == 0).collect();
    parts[1] = held_out[..40].to_vec();
    parts[2] = held_out[40..].to_vec();
    let place = place(&parts);
    for negatives in ["uniform(3)", "in_batch(3)"] {
        place.model(&MODEL.replace("uniform(2)", negatives).replace("batch     32", "batch 1").replace("25", "1"));
        let run = place.with_data("train", &["--report", "r.json"]).works();
        assert!(run.err.contains("all pairs of vertices are links"), "{}", run.err);
        let report = place.json("r.json");
        assert!(report["losses"][0].as_f64().is_some_and(f64::is_finite), "{report}");
        assert_eq!(report["metrics"]["test"]["mrr"].as_f64(), Some(1.0), "there is nothing else to rank");
    }
}

/// Links that share their samples learn as well as those with samples of their own; there cannot be more samples than vertices.
#[test]
fn links_share_their_samples() {
    let place = place(&links(90));
    let model = MODEL.replace("binary_cross_entropy(score, links)", "cross_entropy(score, links)");
    place.model(&model.replace("uniform(2)", "shared(8)"));
    place.with_data("train", &["--report", "r.json"]).works();
    let shared = place.json("r.json")["metrics"]["test"]["auc"].as_f64().expect("measured");
    place.model(&model.replace("uniform(2)", "uniform(8)"));
    place.with_data("train", &["--report", "r.json"]).works();
    let own = place.json("r.json")["metrics"]["test"]["auc"].as_f64().expect("measured");
    assert!(shared > 0.6 && shared > own - 0.05, "{shared} instead of {own}");

    place.model(&model.replace("uniform(2)", "shared(60000)"));
    place.with_data("train", &[]).fails(1, &["`negatives shared(60000)`", "24 vertices", "compares with all of them"]);
}

#[test]
fn without_links_there_is_nothing_to_learn() {
    let [_, val, test] = links(90);
    let place = place(&[vec![], val, test]);
    place.model(MODEL);
    let run = place.with_data("train", &["--quiet", "-o", "out"]);
    run.fails(1, &["there are no links to train on among the edges of `likes`"]);
    assert!(!place.path("out").exists());
}

/// In place of the destination alone, the 24 artists are all there are to compare with; there are 30 users.
#[test]
fn links_share_samples_of_their_destinations() {
    let place = place(&links(90));
    place.model(&conv_e().replace("shared_destinations(8)", "shared_destinations(24)"));
    place.with_data("train", &["--report", "r.json"]).works();
    let auc = place.json("r.json")["metrics"]["test"]["auc"].as_f64().expect("measured");
    assert!(auc > 0.55, "{auc}");
    let shown = place.with_data("build", &["--emit", "model"]).works();
    assert!(shown.out.contains("the same 24 vertices in place of the destination"), "{}", shown.out);

    place.model(&conv_e().replace("shared_destinations(8)", "shared_destinations(25)"));
    place.with_data("train", &[]).fails(1, &["`negatives shared_destinations(25)`", "24 vertices of type"]);
    place.model(&conv_e().replace("shared_destinations(8)", "shared(8)"));
    place.with_data("train", &[]).fails(1, &["not linear in the rows of the source", "shared_destinations(8)"]);
}
