//! All outputs of a profile with known numbers.

use std::collections::BTreeMap;

use hgnnc_machine::Machine;
use hgnnc_report::profile::{Alive, FORMAT, VERSION};
use hgnnc_report::trace::{Event, Trace, Track};
use hgnnc_report::{
    Batch, ClassScore, Classes, Counters, Kernel, Memory, Missing, Once, Profile, Rank, Run, diff, json, page, text,
    trace,
};
use serde_json::{Value, json};

fn kernel(number: usize, stage: &str, phase: &str, kind: &str, measured_ms: f64, predicted_ms: f64) -> Kernel {
    Kernel {
        kernel: number,
        rows: format!("rows V{number}"),
        stores: "h".into(),
        stage: stage.into(),
        phase: phase.into(),
        kind: kind.into(),
        shares: BTreeMap::from([(stage.to_string(), 1.0)]),
        measured_ms,
        predicted_ms: Some(predicted_ms),
        bound: if kind == "DM" { "compute" } else { "L2" }.into(),
        fits: "L2".into(),
        flops: 4e6 * predicted_ms,
        footprint_bytes: 1e6,
        gathered_bytes: 2e6,
        moved_bytes: 2.5e6,
        in_cache_ms: None,
        waiting_ms: None,
        counts: BTreeMap::from([("page_faults".to_string(), 3.0)]),
    }
}

/// Four kernels of an epoch of 10 ms; one of them is one-fifth update.
fn profile() -> Profile {
    let mut backward = kernel(2, "NA", "backward", "TB", 2.5, 1.0);
    backward.shares = BTreeMap::from([("NA".to_string(), 0.8), ("PU".to_string(), 0.2)]);
    let alive = |kernel, fp, na| Alive { kernel, bytes: BTreeMap::from([("FP".into(), fp), ("NA".into(), na)]) };
    Profile {
        format: FORMAT.into(),
        version: VERSION,
        program: "Net.train".into(),
        model: "net.hgnn".into(),
        dataset: "tiny".into(),
        device: "cpu".into(),
        target: "cpu".into(),
        threads: 2,
        machine: Machine::sheet("sm_80").expect("a sheet"),
        run: Run::Epoch,
        runs: 10,
        runs_per_epoch: 1,
        run_ms: 10.0,
        run_min_ms: 9.5,
        run_max_ms: 14.0,
        overhead_ms: 0.004,
        copies_ms: 0.25,
        commit_ms: 0.0,
        between_ms: 0.75,
        agreeing_ms: 0.0,
        batch: None,
        once: Once { load_ms: 20.0, sgb_ms: 1.5, compile_ms: 30.0 },
        kernels: vec![
            kernel(0, "FP", "forward", "DM", 1.5, 1.2),
            kernel(1, "NA", "forward", "TB", 4.0, 2.0),
            backward,
            kernel(3, "LC", "forward", "EW", 0.75, 0.5),
        ],
        memory: Some(Memory { fixed_bytes: 1000, steps: vec![alive(0, 2000, 0), alive(1, 2000, 3000)] }),
        counters: Counters {
            events: vec!["page_faults".into()],
            missing: vec![Missing { events: vec!["cycles".into()], reason: "no PMU".into() }],
        },
        graph_weights: vec![],
        classes: BTreeMap::new(),
        ranks: vec![],
    }
}

/// The same model on mini-batches, each of which waits for the loader.
fn of_batches() -> Profile {
    let batch = Batch {
        sampling_ms: 12.0,
        features_ms: 3.0,
        graphs_ms: 1.0,
        waiting_ms: 6.0,
        binding_ms: 0.5,
        rows_ms: 0.25,
        values_ms: 0.0,
    };
    Profile {
        run: Run::Batch,
        runs: 30,
        runs_per_epoch: 15,
        run_ms: 16.0,
        between_ms: 0.25,
        batch: Some(batch),
        ..profile()
    }
}

/// The same model on two processes, with an exchange.
fn of_ranks() -> Profile {
    let exchange = Kernel {
        rows: "exchange of V to V.copies".into(),
        shares: BTreeMap::new(),
        measured_ms: 1.5,
        waiting_ms: Some(1.25),
        predicted_ms: None,
        bound: String::new(),
        ..kernel(4, "NA", "forward", "EX", 1.5, 0.0)
    };
    let rank = |rank, computing_ms, waiting_ms, sent_bytes, peak_bytes| Rank {
        rank,
        run_ms: 11.6,
        computing_ms,
        waiting_ms,
        loading_ms: 0.0,
        sent_bytes,
        exchanges: 12.0,
        peak_bytes,
    };
    let one = profile();
    Profile {
        device: "cpu, 2 processes".into(),
        run_ms: 11.6,
        agreeing_ms: 0.1,
        kernels: one.kernels.iter().cloned().chain([exchange]).collect(),
        ranks: vec![rank(0, 10.0, 1.6, 1.2e6, 150_000_000), rank(1, 11.0, 0.6, 2.4e6, 250_000_000)],
        ..one
    }
}

/// The sum of the shares of all parts of a run.
fn shares(profile: &Profile) -> f64 {
    let stages: f64 = profile.stages().iter().map(|stage| profile.share(stage.ms())).sum();
    stages + profile.rest().iter().map(|part| profile.share(part.ms)).sum::<f64>()
}

#[test]
fn an_epoch_as_text() {
    insta::assert_snapshot!(text::text(&profile()));
}

#[test]
fn a_batch_as_text() {
    insta::assert_snapshot!(text::text(&of_batches()));
}

#[test]
fn a_profile_of_a_busy_machine_says_so() {
    let says = |factor: f64, words: &str| {
        let mut profile = profile();
        profile.kernels.iter_mut().for_each(|kernel| kernel.measured_ms *= factor);
        profile.headline().iter().any(|sentence| sentence.contains(words))
    };
    let (busy, then) =
        ("other processes may have had the processor (runs took", "the description of the machine may have been");
    assert!(says(40.0, busy) && !says(40.0, then));
    assert!(says(0.01, then) && !says(0.01, busy));
    assert!(!says(1.0, busy) && !says(1.0, then));
}

#[test]
fn parts_add_up_to_a_run() {
    for profile in [profile(), of_batches(), of_ranks()] {
        assert!((shares(&profile) - 1.0).abs() < 1e-12, "{}", shares(&profile));
        assert!((profile.total_ms() - profile.run_ms).abs() < 1e-12);
    }
    let stages = profile().stages();
    assert_eq!((stages[1].phases, stages[4].phases), ([4.0, 2.0, 0.0], [0.0, 0.0, 0.5]), "the update is not backward");
    // Medians of kernels may add up to more than the median of epochs.
    let faster = Profile { run_ms: 5.0, ..profile() };
    assert!((shares(&faster) - 1.0).abs() < 1e-12);
    // Each epoch was disturbed, but no kernel in most of them.
    let noisy = Profile { run_ms: 30.0, ..profile() };
    assert!((shares(&noisy) - 1.0).abs() < 1e-12);
    assert!(noisy.headline()[0].contains("68 % of an epoch is kernels that are slower"), "{:?}", noisy.headline());
    // A launch of a device outside of any stage.
    let mut helper = profile();
    helper.kernels[3].shares.clear();
    assert!((shares(&helper) - 1.0).abs() < 1e-12);
    assert!(helper.rest().iter().any(|part| part.name == "helpers" && (part.ms - 0.75).abs() < 1e-12));
}

#[test]
fn json_reads_back_and_tells_what_follows() {
    for profile in [profile(), of_batches(), of_ranks()] {
        let text = json::write(&profile);
        assert_eq!(json::read(&text), Ok(profile.clone()));
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let shares = |key: &str| -> f64 {
            let parts = value[key].as_object().unwrap_or_else(|| panic!("{key}")).values();
            parts.map(|part| part["share"].as_f64().expect("a share")).sum()
        };
        assert!((shares("stages") + shares("rest") - 1.0).abs() < 1e-12, "{text}");
        assert!(
            (shares("stages") - shares("phases")).abs() < 1e-12 && (shares("stages") - shares("kinds")).abs() < 1e-12
        );
        assert_eq!(value["kernels"][0]["kernel"], 1, "the longest first");
    }
}

#[test]
fn ranks_are_told_apart_as_text() {
    let text = text::text(&of_ranks());
    let table = "
ranks
  rank    epoch  computing  waiting for ranks     sent  exchanges  peak memory
  0     11.6 ms    10.0 ms            1.60 ms  1.20 MB       12.0       150 MB
  1     11.6 ms    11.0 ms             600 us  2.40 MB       12.0       250 MB
  mean  11.6 ms    10.5 ms            1.10 ms  1.80 MB       12.0       200 MB

kernels of rank 0 by time
";
    assert!(text.contains(table), "{text}");
    assert!(text.contains("Of 2 ranks, rank 1 computes longest: 1.05 times the mean in each epoch.\n"), "{text}");
    assert!(text.contains("\nepoch of rank 0 by stage and direction\n"), "{text}");
    let line =
        |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default().to_owned();
    // Waits of the exchange, and those between runs.
    assert!(line("other ranks").contains(" 1.35 ms"), "{text}");
    assert!(line("exchanges ").contains(" 250 us"), "{text}");
    let exchange = line("k4 ");
    assert!(exchange.contains("exchange of V to V.copies") && exchange.contains(" 1.25 ms"), "{text}");
    // It belongs to no stage, and nothing is predicted of it.
    assert_eq!(of_ranks().stages(), profile().stages());
    assert_eq!(of_ranks().kinds(), profile().kinds());
    let mut even = of_ranks();
    even.ranks[1].computing_ms = 10.0;
    assert!(text::text(&even).contains("All 2 ranks compute as long in each epoch.\n"));
    // Batches wait for two things.
    let of_batches = Profile { ranks: of_ranks().ranks, ..of_batches() };
    assert!(text::text(&of_batches).contains("waiting for ranks  waiting for batches"), "{}", text::text(&of_batches));
}

#[test]
fn ranks_are_in_json_and_on_the_page_where_there_are_several() {
    let value: Value = serde_json::from_str(&json::write(&of_ranks())).expect("JSON");
    assert_eq!(value["imbalance"], json!({"rank": 1, "ratio": 11.0 / 10.5}));
    assert_eq!(value["ranks"][1]["sent_bytes"], 2.4e6);
    assert_eq!(value["rest"]["other ranks"]["measured_ms"], 1.35);
    let page_of = |profile: &Profile| page::page(profile).expect("a page");
    let page = page_of(&of_ranks());
    let section = page.split_once("<h2>Ranks</h2>").expect("a section").1;
    let section = section.split_once("</section>").expect("its end").0;
    assert!(
        section.starts_with("<p>Of 2 ranks, rank 1 computes longest: 1.05 times the mean in each epoch."),
        "{section}"
    );
    for cell in ["rank 1", "11.0 ms computing", "<td>2.40 MB</td>", "<td>250 MB</td>", "waiting for other ranks"] {
        assert!(section.contains(cell), "no `{cell}` in {section}");
    }
    assert!(!section.contains("next batch"), "{section}");
    let of_batches = page_of(&Profile { ranks: of_ranks().ranks, ..of_batches() });
    assert!(of_batches.contains("waiting for the next batch, or for other ranks"));
    // Nothing of it for one process.
    let (text, page) = (json::write(&profile()), page_of(&profile()));
    for word in ["\"ranks\"", "\"imbalance\"", "\"agreeing_ms\"", "\"waiting_ms\"", "other ranks"] {
        assert!(!text.contains(word), "{word}");
    }
    assert!(!page.contains("<h2>Ranks</h2>") && !page.contains("other ranks") && !page.contains("for ranks"));
}

#[test]
fn profiles_of_ranks_are_compared() {
    let mut after = of_ranks();
    after.ranks[1].computing_ms = 22.0;
    let text = diff::text(&of_ranks(), &after);
    let line = text.lines().find(|line| line.contains("rank 1: computing")).expect("a line");
    assert!(line.contains("11.0 ms  22.0 ms") && line.ends_with("2.00× as long"), "{text}");
    let text = diff::text(&profile(), &of_ranks());
    assert!(text.contains("note: device: cpu -> cpu, 2 processes\n") && !text.contains("rank 1"), "{text}");
    assert!(text.contains("other ranks"), "{text}");
}

#[test]
fn what_is_no_profile() {
    let good = json::write(&profile());
    for (text, words) in [
        ("{", "not a profile: EOF"),
        ("[1, 2]", "not a profile: it has no `\"format\": \"hgnnc profile\"`"),
        ("{\"format\": \"other\", \"version\": 1}", "it has no `\"format\""),
        (&good.replace("\"version\": 1", "\"version\": 7"), "a profile of version 7, and this program reads version 1"),
        (&good.replace("\"run_ms\"", "\"other\""), "not a profile: missing field `run_ms`"),
    ] {
        let error = json::read(text).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_difference_as_text() {
    let mut after = profile();
    after.run_ms = 8.0;
    after.kernels[1].measured_ms = 1.0;
    after.kernels[2].measured_ms = 2.75;
    after.kernels[3].rows = "rows of another kind".into();
    after.threads = 4;
    insta::assert_snapshot!(diff::text(&profile(), &after));
    let same = diff::text(&profile(), &profile());
    assert!(same.contains("(the same)") && !same.contains("note:"), "{same}");
}

#[test]
fn a_page_is_complete_and_asks_for_nothing() {
    for mut profile in [profile(), of_batches(), of_ranks()] {
        profile.model = "<script src=\"http://evil\">.hgnn".into();
        profile.program = "A & <B>.train".into();
        profile.kernels[0].rows = "rows <i>".into();
        let page = page::page(&profile).expect("a page");
        for word in
            ["<!doctype html>", "prefers-color-scheme:dark", "What kernels reach", "FP", "NA", "SF", "LC", "PU", "SGB"]
        {
            assert!(page.contains(word), "no `{word}`");
        }
        for foreign in ["src=\"", "href", "url(", "@import", "<script", "<link", "<i>", "<B>"] {
            assert!(!page.contains(foreign), "`{foreign}`");
        }
        let head = profile.headline().remove(0);
        assert!(page.contains(&head.replace(" %", "\u{a0}%").replace(" ms", "\u{a0}ms")), "{head}");
        assert!(page.contains("&lt;script src=&quot;http://evil&quot;&gt;.hgnn"));
        // Each picture in two widths.
        assert_eq!(page.matches("<div class=\"wide\">").count(), page.matches("<div class=\"narrow\">").count());
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
}

/// Three vertices of a class, of which one is confused, and one of another class.
fn classes() -> Classes {
    let score = |name: &str, support, [precision, recall, f1]: [f64; 3]| ClassScore {
        name: name.into(),
        support,
        precision,
        recall,
        f1,
    };
    Classes {
        scores: vec![score("a<b", 3, [1.0, 2.0 / 3.0, 0.8]), score("PLDI", 1, [0.5, 1.0, 2.0 / 3.0])],
        confusion: Some(vec![vec![2, 1], vec![0, 1]]),
    }
}

#[test]
fn classes_are_on_the_page_where_there_are_some() {
    let none = page::page(&profile()).expect("a page");
    assert!(!none.contains("Scores of each class") && !none.contains("Confusion matrix"));
    let mut of_classes = profile();
    of_classes.classes = BTreeMap::from([("train".into(), classes()), ("val".into(), classes())]);
    assert_eq!(json::read(&json::write(&of_classes)), Ok(of_classes.clone()));
    let page = page::page(&of_classes).expect("a page");
    let sections = page.split_once("<h2>Scores of each class").expect("scores").1;
    insta::assert_snapshot!(sections.split_once("<section><h2>Counters").expect("counters").0.replace("<tr", "\n<tr"), @r#"
    </h2><p>Of the validation part, with the parameters after the measured runs: what so few runs have learned, not what training reaches.</p><div class="scroll" tabindex="0"><table><thead>
    <tr><th class="w">class</th><th>vertices</th><th>precision</th><th>recall</th><th>F1</th></tr></thead><tbody>
    <tr><td class="w">a&lt;b</td><td>3</td><td>1.0000</td><td>0.6667</td><td>0.8000</td></tr>
    <tr><td class="w">PLDI</td><td>1</td><td>0.5000</td><td>1.0000</td><td>0.6667</td></tr></tbody></table></div></section>
    <section><h2>Confusion matrix</h2><p>Vertices of the validation part: a row for each true class, a column for each predicted one.</p><div class="scroll" tabindex="0"><table><thead>
    <tr><th class="w">class</th><th>a&lt;b</th><th>PLDI</th></tr></thead><tbody>
    <tr><td class="w">a&lt;b</td><td>2</td><td>1</td></tr>
    <tr><td class="w">PLDI</td><td>0</td><td>1</td></tr></tbody></table></div></section>
    "#);
    // Too many for a page, and several classes of a vertex.
    let mut many = classes();
    many.confusion = Some(vec![vec![0; 31]; 31]);
    for classes in [many, Classes { confusion: None, ..classes() }] {
        of_classes.classes = BTreeMap::from([("test".into(), classes)]);
        let page = page::page(&of_classes).expect("a page");
        assert!(page.contains("Of the test part") && !page.contains("Confusion matrix"));
    }
}

#[test]
fn the_headline_says_what_is_largest() {
    let head = |profile: Profile| profile.headline().remove(0);
    assert_eq!(
        head(profile()),
        "NA (neighbour aggregation) takes 60 % of an epoch. It is memory-bound by L2 and reaches 47 % of what the machine allows."
    );
    let mut waiting = of_batches();
    waiting.run_ms += 10.0;
    waiting.batch = waiting.batch.map(|batch| Batch { waiting_ms: 16.0, ..batch });
    assert_eq!(
        head(waiting),
        "62 % of a batch is waiting for the next batch to be made: making one takes 16.0 ms, computing it 10.0 ms."
    );
    let empty = Profile { kernels: vec![], run_ms: 0.0, copies_ms: 0.0, between_ms: 0.0, ..profile() };
    assert!(page::page(&empty).is_ok() && !text::text(&empty).contains("NaN"), "{}", text::text(&empty));
}

#[test]
fn a_trace_has_a_name_for_each_track() {
    let event = Event {
        name: "k0 FP".into(),
        categories: vec!["FP".into(), "forward".into()],
        start_ns: 1500,
        ns: 250,
        args: json!({"tasks": 2}),
    };
    let trace =
        Trace { name: "Net \"x\"".into(), tracks: vec![Track { name: "thread 0".into(), events: vec![event] }] };
    let value: Value = serde_json::from_str(&trace::write(&trace)).expect("JSON");
    let events = value["traceEvents"].as_array().expect("events");
    assert_eq!(events[0]["args"]["name"], "Net \"x\"");
    assert_eq!(
        events[3],
        json!({
            "ph": "X", "pid": 1, "tid": 1, "name": "k0 FP", "cat": "FP,forward", "ts": 1.5, "dur": 0.25,
            "args": {"tasks": 2}
        })
    );
}
