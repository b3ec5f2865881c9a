//! `hgnnc profile`: its files, those of mini-batches, and what it compares.

use serde_json::Value;

use crate::common::{BODY, Place, model_of, names, replace, usual};

/// The usual model, trained on batches.
fn on_batches() -> String {
    usual().replace("epochs    30", "epochs    4\n    batch     7\n    fanout    [3, 2]")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Parts of a run add up to it, and kernels to its stages, directions and kinds.
#[track_caller]
fn adds_up(json: &Value) {
    let sum = |key: &str, of: &str| -> f64 {
        json[key].as_object().unwrap_or_else(|| panic!("no {key}")).values().map(|part| number(&part[of])).sum()
    };
    assert!((sum("stages", "share") + sum("rest", "share") - 1.0).abs() < 1e-9, "{json:#}");
    let kernels = json["kernels"].as_array().expect("kernels");
    let all: f64 = kernels.iter().map(|kernel| number(&kernel["measured_ms"])).sum();
    for key in ["stages", "phases", "kinds"] {
        assert!((sum(key, "measured_ms") - all).abs() <= 1e-9 * all, "{key}: {json:#}");
    }
    for kernel in kernels {
        let shares: f64 = kernel["shares"].as_object().expect("shares").values().map(number).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{kernel:#}");
        assert!(number(&kernel["measured_ms"]) > 0.0, "{kernel:#}");
    }
}

/// Each part has scores of three classes with names, and a matrix of the vertices that these count.
#[track_caller]
fn tells_classes(json: &Value, page: &str) {
    for part in ["train", "val", "test"] {
        let classes = &json["classes"][part];
        let sum = |of: &Value| of.as_array().expect("numbers").iter().map(number).sum::<f64>();
        let scores = classes["scores"].as_array().unwrap_or_else(|| panic!("no scores of {part}: {json:#}"));
        let support: Vec<f64> = scores.iter().map(|score| number(&score["support"])).collect();
        let rows: Vec<f64> = classes["confusion"].as_array().expect("a matrix").iter().map(sum).collect();
        assert_eq!((rows.len(), &rows), (3, &support), "{classes:#}");
    }
    assert!(page.contains("Scores of each class") && page.contains("Confusion matrix"), "{page}");
}

/// Events of each track lie within each other or follow each other, and all begin in the trace.
#[track_caller]
fn is_nested(trace: &Value) -> Vec<(String, Vec<Value>)> {
    let events = trace["traceEvents"].as_array().expect("events");
    let mut tracks: Vec<(String, Vec<Value>)> = vec![];
    for event in events.iter().filter(|event| event["name"] == "thread_name") {
        let own = events.iter().filter(|it| it["ph"] == "X" && it["tid"] == event["tid"]).cloned().collect();
        tracks.push((event["args"]["name"].as_str().expect("a name").into(), own));
    }
    for (name, own) in &tracks {
        let mut open: Vec<f64> = vec![];
        let mut last = 0.0;
        for event in own {
            let (start, end) = (number(&event["ts"]), number(&event["ts"]) + number(&event["dur"]));
            assert!(start >= last, "{name}: {event}");
            last = start;
            // A nanosecond is what rounding may cost.
            open.retain(|&until| until > start + 1e-3);
            assert!(open.iter().all(|&until| end <= until + 1e-3), "{name}: {event} is within and without another");
            open.push(end);
        }
    }
    tracks
}

#[test]
fn an_epoch_in_all_files() {
    let place = Place::new();
    place.model(&usual());
    let run = place.with_data("profile", &["--epochs", "2", "--threads", "2", "-o", "p"]).works();
    assert_eq!(names(&place.path("p")), ["profile.html", "profile.json", "profile.txt", "trace.json"]);
    assert_eq!(String::from_utf8_lossy(&place.bytes("p/profile.txt")), run.out);
    for word in [
        "Net.train: ",
        "ms per epoch, median of 2",
        "(cpu, 2 threads)",
        "between",
        "by stage and direction",
        "neighbour aggregation",
        "dense products",
        "semantic graph build",
    ] {
        assert!(run.out.contains(word), "no `{word}` in {}", run.out);
    }
    let json = place.json("p/profile.json");
    assert_eq!((&json["format"], &json["version"]), (&"hgnnc profile".into(), &1.into()));
    assert_eq!((&json["run"], &json["runs"], &json["runs_per_epoch"]), (&"epoch".into(), &2.into(), &1.into()));
    adds_up(&json);
    let [least, run, most] = ["run_min_ms", "run_ms", "run_max_ms"].map(|key| number(&json[key]));
    assert!(0.0 < least && least <= run && run <= most && number(&json["overhead_ms"]) > 0.0, "{json:#}");
    let kernels = json["kernels"].as_array().expect("kernels");
    assert!(kernels.len() > 5 && kernels.is_sorted_by(|a, b| number(&a["measured_ms"]) >= number(&b["measured_ms"])));
    for kernel in kernels {
        for positive in ["predicted_ms", "footprint_bytes", "bytes_per_s"] {
            assert!(number(&kernel[positive]) > 0.0, "{positive}: {kernel:#}");
        }
        assert!(kernel["bound"].is_string() && kernel["rows"].is_string(), "{kernel:#}");
    }
    // Each event that is not counted has a reason.
    let (counted, missing) = (json["counters"]["events"].as_array(), json["counters"]["missing"].as_array());
    let missing = missing.expect("a list");
    assert_eq!(
        counted.expect("a list").len()
            + missing.iter().map(|it| it["events"].as_array().map_or(0, Vec::len)).sum::<usize>(),
        6
    );
    assert!(missing.iter().all(|it| it["reason"].as_str().is_some_and(|reason| !reason.is_empty())), "{json:#}");
    let steps = json["memory"]["steps"].as_array().expect("steps");
    assert!(steps.iter().any(|step| step["bytes"].as_object().is_some_and(|bytes| !bytes.is_empty())), "{json:#}");

    let tracks = is_nested(&place.json("p/trace.json"));
    let found: Vec<&str> = tracks.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(found, ["training", "thread 0", "thread 1"]);
    let launches = &tracks[0].1;
    assert_eq!(launches[0]["name"], "epoch");
    assert!(launches.len() > 5 && launches[1..].iter().all(|event| event["args"]["kernels"].is_array()));

    let page = String::from_utf8(place.bytes("p/profile.html")).expect("text");
    tells_classes(&json, &page);
    for word in ["SGB", "FP", "NA", "SF", "LC", "PU"] {
        assert!(page.contains(&format!("<td class=\"w\">{word}</td>")), "no {word}");
    }
    for foreign in ["src=\"", "href=\"", "<script", "url(", "@import"] {
        assert!(!page.contains(foreign), "`{foreign}`");
    }
    assert!(page.matches("</svg>").count() >= 10 && page.ends_with("</html>\n"));
}

#[test]
fn batches_with_what_is_done_beside_them() {
    let place = Place::new();
    place.model(&on_batches());
    let args = ["--batches", "5", "--epochs", "3", "--threads", "2", "-o", "p"];
    let run = place.with_data("profile", &args).works();
    for word in ["ms per batch, mean of 5", "3 batches are an epoch", "waiting", "sampling", "binding"] {
        assert!(run.out.contains(word), "no `{word}` in {}", run.out);
    }
    let json = place.json("p/profile.json");
    assert_eq!((&json["run"], &json["runs"], &json["runs_per_epoch"]), (&"batch".into(), &5.into(), &3.into()));
    adds_up(&json);
    for part in ["sampling_ms", "features_ms", "graphs_ms", "waiting_ms", "binding_ms"] {
        assert!(number(&json["batch"][part]) > 0.0, "{part}: {json:#}");
    }
    assert!(json["kernels"].as_array().expect("kernels").iter().all(|kernel| number(&kernel["predicted_ms"]) > 0.0));
    tells_classes(&json, &String::from_utf8_lossy(&place.bytes("p/profile.html")));
    let tracks = is_nested(&place.json("p/trace.json"));
    let of = |name: &str| tracks.iter().find(|(known, _)| known == name).map(|(_, events)| events).expect("a track");
    let named = |events: &[Value], word: &str| {
        events.iter().filter(|event| event["name"].as_str().is_some_and(|name| name.starts_with(word))).count()
    };
    let training = of("training");
    assert_eq!((named(training, "batch"), named(training, "waiting"), named(training, "rows")), (6, 6, 6));
    let making = of("making batches");
    assert_eq!(["sampling", "features", "graphs"].map(|part| named(making, part)), [6, 6, 6]);
    // More epochs, and no more batches than they have.
    let more = place.with_data("profile", &["--epochs", "2"]).works();
    assert!(more.out.contains("mean of 6"), "{}", more.out);
}

#[test]
fn what_got_faster_and_what_slower() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("profile", &["--epochs", "2", "--threads", "1", "-o", "a"]).works();
    // Without dropout there are other kernels.
    place.model(&usual().replace("dropout(relu(", "(relu(").replace("), 0.2)", "))"));
    place.with_data("profile", &["--epochs", "2", "--threads", "1", "-o", "b"]).works();
    let diff = place.run(&["profile", "diff", "a", "b/profile.json"]).works().out;
    for word in ["Net.train -> Net.train", "per epoch", "stages", "kernels", "NA", "new", "gone", "between"] {
        assert!(diff.contains(word), "no `{word}` in:\n{diff}");
    }
    let same = place.run(&["profile", "diff", "a", "a"]).works().out;
    assert!(same.contains("(the same)"), "{same}");
    let ends = ["new", "gone", "faster", "slower"];
    assert!(same.lines().all(|line| ends.iter().all(|word| !line.ends_with(word))), "{same}");

    place.run(&["profile", "diff", "a", "nowhere"]).fails(1, &["cannot read `nowhere`"]);
    place.run(&["profile", "diff", "data", "a"]).fails(1, &["cannot read `data/profile.json`"]);
    place.run(&["profile", "diff", "m.hgnn", "a"]).fails(1, &["`m.hgnn` is not a profile"]);
    place.run(&["profile", "diff", "a"]).fails(2, &["required"]);
    let json = place.path("b/profile.json");
    replace(&json, "\"version\": 1", "\"version\": 99");
    place.run(&["profile", "diff", "a", "b"]).fails(1, &["version 99", "profile the model again"]);
    let broken: String = std::fs::read_to_string(&json).expect("text").chars().take(100).collect();
    std::fs::write(&json, broken).expect("written");
    place.run(&["profile", "diff", "a", "b"]).fails(1, &["`b/profile.json` is not a profile: EOF"]);
}

#[test]
fn what_kernels_take_in_the_caches_of_a_core() {
    let place = Place::new();
    place.model(&usual());
    let run = place.with_data("profile", &["--epochs", "2", "--threads", "1", "--in-cache", "-o", "p"]).works();
    assert!(run.out.contains("waits"), "{}", run.out);
    let json = place.json("p/profile.json");
    for kernel in json["kernels"].as_array().expect("kernels") {
        assert!(number(&kernel["in_cache_ms"]) > 0.0, "{kernel:#}");
    }
    let without = place.with_data("profile", &["--epochs", "2", "--threads", "1", "-o", "q"]).works();
    assert!(!without.out.contains("waits"), "{}", without.out);
    assert!(place.json("q/profile.json")["kernels"][0].get("in_cache_ms").is_none());
    place.with_data("profile", &["--threads", "2", "--in-cache"]).fails(1, &["of one thread", "add `--threads 1`"]);
    place.with_data("profile", &["--device", "ptx-interp", "--in-cache"]).fails(1, &["add `--device cpu`"]);
    place.model(&on_batches());
    place.with_data("profile", &["--threads", "1", "--in-cache"]).fails(1, &["trained on batches"]);
}

#[test]
fn what_stands_in_the_way_of_a_profile() {
    let place = Place::new();
    place.model(&model_of(BODY, ""));
    place.with_data("profile", &[]).fails(1, &["no `train` block"]);
    place.model(&usual());
    std::fs::write(place.path("file"), "mine").expect("written");
    place.with_data("profile", &["-o", "file"]).fails(1, &["`file` cannot be a folder"]);
    place.with_data("profile", &["-o", "file/below"]).fails(1, &["cannot be a folder"]);
    assert_eq!(place.bytes("file"), b"mine");
    place.with_data("profile", &["--batches", "0"]).fails(2, &["--batches", "between 1 and 100000000"]);
    for wrong in ["0", "-1", "abc", "1e3"] {
        place.with_data("profile", &["--epochs", wrong]).fails(2, &[wrong, "a whole number between 1 and 100000"]);
    }
    // A loss that is no number is found, in batches too.
    for model in [usual(), on_batches()] {
        place.model(&model.replace("lr: 0.02", "lr: 1e30"));
        place.with_data("profile", &["--epochs", "9", "-o", "p"]).fails(1, &["the loss is"]);
    }
    assert!(!place.path("p").exists(), "half a profile");
}

#[test]
fn a_model_may_be_called_diff() {
    let place = Place::new();
    std::fs::write(place.path("diff"), usual()).expect("written");
    place.run(&["profile", "./diff", "--data", "data", "--epochs", "1"]).works();
}
