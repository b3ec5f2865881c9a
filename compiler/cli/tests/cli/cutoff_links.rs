//! Links as of cutoffs, from a dataset to metrics that are computed a second time here: by a dataset for each cutoff,
//! with what was there until then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hgnnc_dataset::npy;

use crate::common::*;

const USERS: i64 = 12;
const ARTISTS: i64 = 9;
const WEEK: i64 = 7;

const MODEL: &str = "\
use std::link::Dot
use std::rgcn::RgcnConv
const WEEK = 7
schema S {
    vertex User from \"user\" { x: embedding[6] }
    vertex Artist from \"artist\" { x: embedding[6] }
    relation likes: User -> Artist { at: time }
    relation knows: User -> User
}
model M(schema: S) {
    let h = tanh(RgcnConv(hidden: 6) over [relations, reverses] of features)
    output score: links = Dot() over links(likes) of h
    output users: User = h
    output artists: Artist = h
}
train M {
    loss      binary_cross_entropy(score, links)
    cutoff    time every WEEK
    optimizer adam(lr: 0.02)
    epochs    6
    batch     16
    negatives uniform(2)
    select    val.mrr
    metrics   auc, average_precision, mrr, hits_1, hits_3
}
";

/// User, artist and day.
type Link = (i64, i64, i64);

/// Training links of weeks 0 to 3, validation links of weeks 4 and 5, and test links of 5 and 6. Pairs come again.
fn links() -> [Vec<Link>; 3] {
    let link = |i: i64| (i * 5 % USERS, (i * i + i / 7) % ARTISTS, i / 3);
    let all: Vec<Link> = (0..150).map(link).collect();
    let of = |days: std::ops::Range<i64>| all.iter().copied().filter(|link| days.contains(&link.2)).collect::<Vec<_>>();
    [of(0..28), of(28..38), of(38..50)]
}

/// The last day that an end of a link reads.
fn cutoff(day: i64) -> i64 {
    day.div_euclid(WEEK) * WEEK - 1
}

/// The distinct pairs of each week, each in the earliest part that has it.
fn weekly(parts: &[Vec<Link>; 3]) -> [Vec<Link>; 3] {
    let mut known = BTreeSet::new();
    parts.each_ref().map(|part| part.iter().copied().filter(|&(u, a, day)| known.insert((u, a, cutoff(day)))).collect())
}

fn write(data: &Path, parts: &[Vec<Link>; 3]) {
    std::fs::create_dir_all(data).expect("a folder");
    let toml = format!(
        "name = \"music\"\n\
         [[vertex_type]]\nname = \"user\"\ncount = {USERS}\n\
         [[vertex_type]]\nname = \"artist\"\ncount = {ARTISTS}\n\
         [[relation]]\nname = \"likes\"\nsrc = \"user\"\ndst = \"artist\"\nfile = \"likes.npy\"\ntime = \"days.npy\"\n\
         [[relation]]\nname = \"knows\"\nsrc = \"user\"\ndst = \"user\"\nfile = \"knows.npy\"\n\
         [[link_split]]\nname = \"late\"\nval = \"val.npy\"\ntest = \"test.npy\"\n\
         val_time = \"val_days.npy\"\ntest_time = \"test_days.npy\"\n"
    );
    std::fs::write(data.join("dataset.toml"), toml).expect("written");
    let column = |part: &[Link], of: fn(&Link) -> i64| part.iter().map(of).collect::<Vec<i64>>();
    let array = |name: &str, shape: &[usize], numbers: Vec<i64>| {
        npy::write(&data.join(name), shape, &numbers).expect("written");
    };
    let likes = [column(&parts[0], |link| link.0), column(&parts[0], |link| link.1)].concat();
    array("likes.npy", &[2, parts[0].len()], likes);
    array("days.npy", &[parts[0].len()], column(&parts[0], |link| link.2));
    let knows = (0..USERS).chain((0..USERS).map(|user| (user + 2) % USERS)).collect();
    array("knows.npy", &[2, USERS as usize], knows);
    for (name, part) in [("val", &parts[1]), ("test", &parts[2])] {
        let rows = [column(part, |link| link.0), vec![0; part.len()], column(part, |link| link.1)].concat();
        array(&format!("{name}.npy"), &[3, part.len()], rows);
        array(&format!("{name}_days.npy"), &[part.len()], column(part, |link| link.2));
    }
}

fn place() -> Place {
    let place = Place { folder: tempfile::tempdir().expect("a folder") };
    write(&place.path("data"), &links());
    place.model(MODEL);
    place
}

/// The scores of all pairs by a dataset that ends at a day.
fn scores_until(place: &Place, day: i64) -> Vec<f32> {
    let until: Vec<Link> = links().concat().into_iter().filter(|link| link.2 <= day).collect();
    write(&place.path("until"), &[until, vec![], vec![]]);
    let pairs = (0..USERS).flat_map(|user| (0..ARTISTS).map(move |artist| (user, artist)));
    let pairs: Vec<(i64, i64)> = pairs.collect();
    let rows: Vec<i64> =
        pairs.iter().map(|p| p.0).chain(pairs.iter().map(|_| 0)).chain(pairs.iter().map(|p| p.1)).collect();
    npy::write(&place.path("pairs.npy"), &[3, pairs.len()], &rows).expect("written");
    let model = ["infer", "m.hgnn", "--data", "until", "--weights", "w.safetensors"];
    place.run(&[&model[..], &["--links", "pairs.npy", "--out", "s.npy"]].concat()).works();
    npy::Npy::open(&place.path("s.npy")).expect("an array").to_f32().expect("f32").to_vec()
}

#[test]
fn links_are_ranked_among_what_was_known_before_their_week() {
    let place = place();
    let args = ["--quiet", "--weights-out", "w.safetensors", "--report", "r.json"];
    place.with_data("train", &args).is_silent();
    let report = place.json("r.json");
    let metric = |part: &str, name: &str| report["metrics"][part][name].as_f64().expect("a number");
    let weekly = weekly(&links());
    let known: BTreeSet<(i64, i64, i64)> = weekly.iter().flatten().map(|&(u, a, day)| (u, a, cutoff(day))).collect();
    let cutoffs: BTreeSet<i64> = weekly[1].iter().chain(&weekly[2]).map(|link| cutoff(link.2)).collect();
    assert!(cutoffs.len() > 2, "{cutoffs:?}");
    let scores: BTreeMap<i64, Vec<f32>> = cutoffs.iter().map(|&day| (day, scores_until(&place, day))).collect();
    assert!(scores.values().collect::<Vec<_>>().windows(2).all(|pair| pair[0] != pair[1] || cutoffs.contains(&27)));
    for (part, links) in [("val", &weekly[1]), ("test", &weekly[2])] {
        let mut ranks = vec![];
        for &(user, artist, day) in links {
            let day = cutoff(day);
            let score = |user: i64, artist: i64| scores[&day][(user * ARTISTS + artist) as usize];
            let own = score(user, artist);
            let mut rank = |others: Vec<(i64, i64)>| {
                let others = others.iter().filter(|other| !known.contains(&(other.0, other.1, day)));
                let (mut above, mut equal) = (0, 0);
                others.map(|other| score(other.0, other.1)).for_each(|x| {
                    above += i32::from(x > own);
                    equal += i32::from(x == own);
                });
                ranks.push(1.0 + f64::from(above) + f64::from(equal) / 2.0);
            };
            rank((0..ARTISTS).map(|other| (user, other)).collect());
            rank((0..USERS).map(|other| (other, artist)).collect());
        }
        let mean = |f: &dyn Fn(f64) -> f64| ranks.iter().map(|&rank| f(rank)).sum::<f64>() / ranks.len() as f64;
        let found = [metric(part, "mrr"), metric(part, "hits_1"), metric(part, "hits_3")];
        let expected =
            [mean(&|rank| 1.0 / rank), mean(&|rank| f64::from(rank <= 1.0)), mean(&|rank| f64::from(rank <= 3.0))];
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{part}: {found}, not {expected}");
        }
    }
    // Measured again, and of a trained model: the same.
    place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["metrics"], report["metrics"]);
    place.with_data("build", &["-o", "m.hgnnx", "--weights", "w.safetensors"]).works();
    place.run(&["eval", "m.hgnnx", "--data", "data", "--report", "a.json"]).works();
    assert_eq!(place.json("a.json")["metrics"], report["metrics"]);
}

/// Rows as of cutoffs, batches of links, negative samples and ranks.
#[test]
fn a_device_agrees_on_links_as_of_cutoffs() {
    let place = place();
    place.model(&MODEL.replace("epochs    6", "epochs    2").replace("uniform(2)", "in_batch(2)"));
    let reports = ["cpu", "ptx-interp"].map(|device| {
        place.with_data("train", &["--quiet", "--device", device, "--report", device]).is_silent();
        place.json(device)
    });
    for (name, expected) in reports[0]["metrics"]["test"].as_object().expect("metrics") {
        let [expected, found] =
            [expected, &reports[1]["metrics"]["test"][name]].map(|of| of.as_f64().expect("a number"));
        assert!((expected - found).abs() <= 1e-3 * expected.abs().max(1.0), "{name}: {found}, not {expected}");
    }
}

/// Outputs of vertices are of all there is, as scores of pairs are.
#[test]
fn outputs_of_the_ends_score_as_pairs_do() {
    let place = place();
    place.with_data("train", &["--quiet", "--epochs", "2", "--weights-out", "w.safetensors"]).is_silent();
    let output = |name: &str| {
        let args = ["--weights", "w.safetensors", "--output", name, "--out", "o.npy"];
        place.with_data("infer", &args).works();
        npy::Npy::open(&place.path("o.npy")).expect("an array").to_f32().expect("f32").to_vec()
    };
    let (users, artists, scores) = (output("users"), output("artists"), scores_until(&place, 49));
    assert_eq!((users.len(), artists.len()), (6 * USERS as usize, 6 * ARTISTS as usize));
    for (pair, score) in scores.iter().enumerate() {
        let (user, artist) = (&users[pair / ARTISTS as usize * 6..][..6], &artists[pair % ARTISTS as usize * 6..][..6]);
        let own: f32 = user.iter().zip(artist).map(|(a, b)| a * b).sum();
        assert!((own - score).abs() < 1e-5, "pair {pair}: {own}, not {score}");
    }
}

/// Pairs come again, in training and behind it: links as of cutoffs for a model with a cutoff, a leak for one without.
#[test]
fn links_are_split_by_events() {
    let place = place();
    write(&place.path("data"), &[links().concat(), vec![], vec![]]);
    let split = ["data", "split", "data", "made", "--links", "likes", "--by", "events", "--name", "events"];
    let said = place.run(&split).works().out;
    let distinct: BTreeSet<Link> = links().concat().into_iter().collect();
    let sizes: Vec<usize> = said.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).take(3).collect();
    assert_eq!(sizes.iter().sum::<usize>(), distinct.len(), "{said}");
    let train = ["train", "m.hgnn", "--data", "made", "--split", "events", "--epochs", "2", "--report", "r.json"];
    place.run(&train).works();
    assert!(place.json("r.json")["metrics"]["test"]["mrr"].as_f64().is_some_and(|mrr| mrr > 0.0));
    place.model(&MODEL.replace("    cutoff    time every WEEK\n", "").replace("const WEEK = 7\n", ""));
    place.run(&train).fails(1, &["links are in both", "link split `events`"]);
    place
        .run(&["data", "split", "data", "other", "--vertices", "user", "--by", "events"])
        .fails(1, &["`user` has no label"]);
}

#[test]
fn links_as_of_cutoffs_need_times() {
    let place = place();
    place.with_data("check", &[]).works();
    npy::write(&place.path("data/since.npy"), &[ARTISTS as usize], &[0i64; ARTISTS as usize]).expect("written");
    let artist = format!("name = \"artist\"\ncount = {ARTISTS}\n");
    place.toml(&artist, &format!("{artist}time = \"since.npy\"\n"));
    place.with_data("train", &[]).fails(1, &["`artist` have times", "ends of the links of `likes`"]);
    place.toml("time = \"since.npy\"\n", "");
    place.toml("test_time = \"test_days.npy\"\n", "");
    for command in ["train", "check"] {
        place.with_data(command, &[]).fails(1, &["links of `likes`", "`test` part of the split `late`", "`test_time`"]);
    }
    place.toml("val_time = \"val_days.npy\"\n", "");
    place.toml("time = \"days.npy\"\n", "");
    place.with_data("train", &[]).fails(1, &["likes", "time"]);
}

#[test]
fn more_rows_than_the_budget_are_refused_with_a_longer_period() {
    let place = place();
    place.model(&MODEL.replace("const WEEK = 7", "const WEEK = 1"));
    let refused = place.with_data("train", &["--memory-budget", "2K"]);
    refused.fails(3, &["user as of cutoffs", "choose longer periods than 1"]);
}
