//! Batches that are drawn by weight and by walks, and the code that draws them.

use crate::common::*;

/// The usual model with a metapath, without dropout, trained on batches of so many papers.
fn on_batches(size: usize, fanout: &str) -> String {
    let train = TRAIN.replace("epochs    30", &format!("epochs    4\n    batch     {size}\n    fanout    {fanout}"));
    with_metapath().replace(", 0.2)", ", 0.0)").replace(TRAIN, &train)
}

/// Weights after training.
fn trained(place: &Place, model: &str, arguments: &[&str]) -> Vec<(String, Vec<f32>)> {
    place.model(model);
    place.with_data("train", &[&["--quiet", "--weights-out", "w"], arguments].concat()).is_silent();
    place.weights("w").into_iter().map(|(name, (_, elements))| (name, elements)).collect()
}

#[track_caller]
fn assert_close(found: &[(String, Vec<f32>)], expected: &[(String, Vec<f32>)]) {
    let shapes = |of: &[(String, Vec<f32>)]| of.iter().map(|(name, x)| (name.clone(), x.len())).collect::<Vec<_>>();
    assert_eq!(shapes(found), shapes(expected));
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-4);
        assert!(close, "{name}: {found:?}, not {expected:?}");
    }
}

#[test]
fn walks_and_weights_that_find_everything_are_all_in_edges() {
    let place = Place::new();
    let all = trained(&place, &on_batches(1000, "[all, all]"), &[]);
    // So many walks end everywhere, and no row has a thousand edges.
    let found = "[all, all] { PAP: walks(3000, top: 1000), writes: weighted(1000) }";
    assert_close(&trained(&place, &on_batches(1000, found), &[]), &all);
    // Few do not.
    let few = trained(&place, &on_batches(1000, "[all, all] { PAP: walks(1) }"), &[]);
    assert!(few.iter().zip(&all).any(|((_, few), (_, all))| few.iter().zip(all).any(|(a, b)| (a - b).abs() > 1e-3)));
}

#[test]
fn generated_samplers_draw_what_those_in_rust_draw() {
    let place = Place::new();
    let model = on_batches(7, "[3, 2] { PAP: [walks(10, top: 3), 2], writes: [weighted(2), all] }");
    let [native, interpreted] = ["native", "interpreted"].map(|code| trained(&place, &model, &["--code", code]));
    assert_close(&native, &interpreted);
    // And on any number of threads.
    let again = ["1", "3"].map(|threads| trained(&place, &model, &["--threads", threads]));
    assert_eq!(again[0], again[1]);
}

#[test]
fn the_code_of_a_sampler() {
    let place = Place::new();
    place.model(&on_batches(7, "[3, 2] { PAP: [walks(10, top: 3), 2], writes: [weighted(2), all] }"));
    let shown = place.with_data("build", &["--emit", "clif"]).works().out;
    // The comments say what each function does; the instructions are in a test of the generator.
    let comments: Vec<&str> = shown.lines().filter(|line| line.starts_with("; ")).collect();
    insta::assert_snapshot!(comments.join("\n"));
    assert_eq!(shown.matches("\nfunction %").count(), shown.matches("; sampler: ").count(), "{shown}");
    // All other levels know these fan-outs too.
    place.with_data("build", &["-o", "all"]).is_silent();
    let model = std::fs::read_to_string(place.path("all/model.txt")).expect("a level");
    assert!(model.contains("PAP: walks(10, top: 3), 2\n") && model.contains("writes: weighted(2), all\n"), "{model}");
}

#[test]
fn weights_that_nothing_can_be_drawn_by() {
    let place = Place::new();
    place.model(&on_batches(7, "[3, 2] { writes: weighted(2) }"));
    let count = place.weights_of_edges();
    place.npy("writes.w.npy", &[count], &vec![-0.5f32; count]);
    place.with_data("train", &["--quiet"]).fails(1, &["`writes`", "has the weight -0.5"]);
    // Who does not draw by them may have them; what is no number is refused wherever it stands.
    place.model(&on_batches(7, "[3, 2]"));
    place.with_data("train", &["--quiet"]).is_silent();
    place.npy("writes.w.npy", &[count], &vec![f32::NAN; count]);
    place.with_data("train", &["--quiet"]).fails(1, &["`writes.w.npy`", "NaN"]);
}

#[test]
fn caches_are_simulated_without_training() {
    let place = Place::new();
    place.model(&on_batches(7, "[3, 2]"));
    let shown = place.with_data("simulate-cache", &["--sizes", "50%,0,1k", "--report", "cache.json"]).works().out;
    for policy in ["penalty", "shares", "hotness", "degree", "random", "best"] {
        assert!(shown.lines().any(|line| line.starts_with(policy)), "{shown}");
    }
    let text = std::fs::read_to_string(place.path("cache.json")).expect("a report");
    let caches: Vec<serde_json::Value> = serde_json::from_str(&text).expect("a list");
    let limits: Vec<Option<u64>> = caches.iter().map(|cache| cache["limit"].as_u64()).collect();
    let half = caches[0]["bytes_of_all"].as_u64().map(|bytes| bytes / 2);
    assert_eq!(limits, [Some(0), half, Some(0), Some(1024)]);
    let hits = |cache: usize| caches[cache]["hit_rate"].as_f64();
    assert_eq!((hits(0), hits(2)), (Some(0.0), Some(0.0)), "{text}");
    assert!(hits(1) > Some(0.0) && hits(3) > Some(0.0), "{text}");
    place.with_data("simulate-cache", &["--sizes", "101%"]).fails(2, &["not a part of all rows"]);
    place.model(&with_metapath());
    place.with_data("simulate-cache", &[]).fails(1, &["a cache is for training on batches", "`batch`"]);
}

/// Outputs that are wider than the embeddings are computed for some vertices at a time.
#[test]
fn metrics_beside_batches_are_those_of_all_outputs_at_once() {
    let place = Place::new();
    for (loss, width) in [
        ("cross_entropy(logits, Paper.y)", 3),
        ("binary_cross_entropy(logits, Paper.tags)", 2),
        ("mse(logits, Paper.year)", 1),
    ] {
        let body = format!(
            "
    let hidden = relu(RgcnConv(hidden: 1) over [relations, reverses] of features)
    output logits: Paper = linear(concat(linear(hidden.Paper, {width}), linear(hidden.Paper, 2)), {width})"
        );
        let train = "optimizer adam(lr: 0.02) epochs 3 batch 7 fanout [3]";
        place.model(&model_of(&body, &format!("train Net {{ loss {loss} {train} }}")));
        let run = |name: &str, args: &[&str]| {
            let own = ["--report", "r.json", "--weights-out", name];
            place.with_data("train", &[&own[..], args].concat()).works();
            (place.json("r.json")["metrics"].clone(), place.bytes(name))
        };
        let infer = |args: &[&str]| place.with_data("build", &[&["--emit", "infer"], args].concat()).works().out;
        let at_once = ["--disable-fusion", "memory_order"];
        // One number is not wider than the embedding.
        assert_eq!(infer(&[]).contains("given(head.0)"), width > 1, "{}", infer(&[]));
        assert!(!infer(&at_once).contains("given("), "{loss}");
        let (found, weights) = run("parts.safetensors", &[]);
        let (expected, same_weights) = run("whole.safetensors", &at_once);
        assert!(weights == same_weights, "{loss}: training does not depend on it");
        let own = ["--weights", "parts.safetensors", "--report", "e.json"];
        place.with_data("eval", &own).works();
        assert_eq!(place.json("e.json")["metrics"], found, "{loss}");
        let parts = expected.as_object().expect("parts");
        assert_eq!(parts.len(), 3, "{expected}");
        for (part, metrics) in parts {
            let metrics = metrics.as_object().expect("metrics");
            assert_eq!(metrics.len(), found[part].as_object().map_or(0, |found| found.len()), "{loss}: {found}");
            for (name, value) in metrics {
                let (value, found) = (value.as_f64().expect("a number"), found[part][name].as_f64().expect("a number"));
                assert!((value - found).abs() < 1e-6 * value.abs().max(1.0), "{loss}, {part}.{name}: {found}, {value}");
            }
        }
    }
}
