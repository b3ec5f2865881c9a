//! `hgnnc train` as several processes, with each launcher that is installed.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hgnnc_dataset::npy;
use serde_json::Value;

use crate::common::{CACHE, Place, Run, names};
use crate::links;

/// Two layers with dropout of vertices and edges, sparse and dense features, learned rows, and a clipped norm.
pub const MODEL: &str = r#"
use std::rgcn::RgcnConv

schema S {
    vertex Paper from "paper" { x: f32[6] sparse, y: class[3] }
    vertex Author from "author" { x: embedding[4] }

    relation writes: Author -> Paper from "author-paper"
    relation cites: Paper -> Paper from "paper-paper"
}

model M(schema: S) {
    let first = dropout(relu(RgcnConv(hidden: 8) over [relations, reverses] of dropout(features, 0.3)), 0.2)
    let second = relu(RgcnConv(hidden: 8) over [relations, reverses] of first)
    output logits: Paper = linear(second.Paper, 3)
}

train M {
    loss      cross_entropy(logits, Paper.y)
    optimizer adam(lr: 0.02, weight_decay: 0.001)
    clip      norm(1.5)
    epochs    12
    seed      5
    select    val.micro_f1
}
"#;

/// A launcher, with the arguments that let it start processes here, and the library that belongs to it if it must be named.
pub struct Launcher {
    pub name: PathBuf,
    args: &'static [&'static str],
    library: Option<PathBuf>,
}

/// Debian's `openmpi-bin` and `mpich`, and one with the standard ABI in the folder HGNN_MPI_ABI; without those that
/// start no processes here.
pub fn launchers() -> Vec<Launcher> {
    let on_path = |name: &str, args, library: Option<&str>| Launcher {
        name: name.into(),
        args,
        library: library.map(PathBuf::from),
    };
    let mut all = vec![
        on_path("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"], None),
        on_path("mpirun.mpich", &[], Some("libmpich.so.12")),
    ];
    match std::env::var_os("HGNN_MPI_ABI").map(PathBuf::from) {
        Some(folder) => all.push(Launcher {
            name: folder.join("bin/mpiexec"),
            args: &[],
            library: Some(folder.join("lib/libmpi_abi.so.1")),
        }),
        None => println!("skipped: HGNN_MPI_ABI names no MPI with the standard ABI"),
    }
    all.retain(|launcher| {
        let starts = Command::new(&launcher.name).args(launcher.args).args(["-n", "2", "true"]).output();
        let starts = starts.is_ok_and(|output| output.status.success());
        if !starts {
            println!("skipped: {} is not installed, or starts no processes here", launcher.name.display());
        }
        starts
    });
    all
}

/// The model and the dataset of a place.
pub const DATA: [&str; 3] = ["m.hgnn", "--data", "data"];

impl Launcher {
    /// `hgnnc train` on some ranks.
    pub fn train(&self, place: &Place, ranks: usize, args: &[&str]) -> Command {
        self.command(place, ranks, "train", args)
    }

    /// A command on some ranks.
    pub fn command(&self, place: &Place, ranks: usize, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.name);
        command.args(self.args).args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_hgnnc"), name]);
        command.args(args).args(["--threads", "1"]).current_dir(place.path(".")).env("HGNNC_CACHE", CACHE);
        if let Some(library) = &self.library {
            command.env("HGNNC_MPI", library);
        }
        command
    }
}

pub fn place() -> Place {
    let place = Place::new();
    place.model(MODEL);
    place
}

/// The weights that one process trains with the sections of several.
fn trained_alone(place: &Place, args: &[&str]) -> Vec<u8> {
    place.with_data("train", &[&["--sections", "24", "--weights-out", "alone.safetensors"], args].concat()).works();
    place.bytes("alone.safetensors")
}

#[test]
fn several_processes_train_what_one_does_with_as_many_sections() {
    let place = place();
    let alone = trained_alone(&place, &[]);
    place.with_data("train", &["--weights-out", "usual.safetensors"]).works();
    let report = |name: &str| place.json(name)["metrics"].clone();
    place.with_data("train", &["--sections", "24", "--report", "alone.json"]).works();
    for launcher in launchers() {
        for ranks in [2, 4] {
            let files = ["--weights-out", "together.safetensors", "--report", "together.json", "-o", "run"];
            let files = [&DATA[..], &files].concat();
            let mut command = launcher.train(&place, ranks, &files);
            let run = Run::of(command.output().unwrap()).works();
            assert_eq!(place.bytes("together.safetensors"), alone, "{ranks} ranks of {}", launcher.name.display());
            assert_eq!(report("together.json"), report("alone.json"), "{ranks} ranks of {}", launcher.name.display());
            // One of them shows and writes what a run does.
            assert_eq!(run.out.matches("ms per epoch (median)").count(), 1, "{}", run.out);
            let outputs = ["log.txt", "model.hgnnx", "report.json", "weights.safetensors"];
            assert_eq!(crate::common::names(&place.path("run")), outputs);
            std::fs::remove_dir_all(place.path("run")).unwrap();
        }
    }
}

/// Ranks that have the edges of their own vertices only come to the weights of those that sample the whole graph, in the
/// parts of a partitioned dataset as well, and when they go on with training.
#[test]
fn several_processes_draw_edges_for_each_other() {
    let place = Place::new();
    place.model(&on_batches());
    place.run(&["data", "partition", "data", "--ranks", "3", "-o", "parts"]).works();
    let by_owners = "--distribute=edges,features";
    for launcher in launchers() {
        for data in ["data", "parts"] {
            let mut weights = vec![];
            for runs in
                [&[&["12"][..]][..], &[&["12", by_owners]], &[&["5", by_owners], &["12", by_owners, "--resume"]]]
            {
                for args in runs {
                    let files = ["m.hgnn", "--data", data, "--checkpoint", "ck", "--weights-out", "w.safetensors"];
                    let args = [&files[..], &["--epochs"], args].concat();
                    Run::of(launcher.train(&place, 3, &args).output().unwrap()).works();
                }
                weights.push(place.bytes("w.safetensors"));
                std::fs::remove_dir_all(place.path("ck")).unwrap();
            }
            assert!(weights.iter().all(|of_run| *of_run == weights[0]), "{} in {data}", launcher.name.display());
        }
    }
    let whole = place.with_data("train", &["--sections", "24", "--weights-out", "whole.safetensors"]).works();
    let alone = place.with_data("train", &["--sections", "24", by_owners, "--weights-out", "own.safetensors"]).works();
    assert_eq!(place.bytes("own.safetensors"), place.bytes("whole.safetensors"), "{whole:?} {alone:?}");
    place.model(MODEL);
    place.with_data("train", &[by_owners]).fails(1, &["cannot be divided among the processes", "no `batch`"]);
    place.with_data("build", &[by_owners]).fails(2, &["--ranks"]);
}

/// On mini-batches, each rank samples around its own seeds, and sums depend on the number of ranks by their order.
#[test]
fn several_processes_train_on_batches() {
    let place = Place::new();
    place.model(&on_batches());
    let metrics = |name: &str| place.json(name)["metrics"].clone();
    for launcher in launchers() {
        let mut weights = vec![];
        // A run that goes on is the same as one that was never interrupted.
        let runs =
            [("seeds", 2, &["12"][..]), ("seeds", 2, &["5", "12"]), ("seeds", 3, &["12"]), ("relations", 2, &["12"])];
        for (share, ranks, halves) in runs {
            for (half, epochs) in halves.iter().enumerate() {
                let resume: &[&str] = if half == 1 { &["--resume"] } else { &[] };
                let files = ["--checkpoint", "ck", "--weights-out", "w.safetensors", "--report", "report.json"];
                let args = [&DATA[..], &files, &["--epochs", epochs, "--share", share], resume].concat();
                let run = Run::of(launcher.train(&place, ranks, &args).output().unwrap()).works();
                assert_eq!(
                    run.err.matches("rank 1 aggregates ").count(),
                    usize::from(share == "relations"),
                    "{}",
                    run.err
                );
                assert_eq!(run.out.matches("rank 1: sent ").count(), 1, "{}", run.out);
            }
            let report = metrics("report.json");
            assert!(report["train"]["micro_f1"].as_f64().is_some_and(|f1| f1 > 0.3), "{report}");
            let of_ranks = place.json("report.json")["ranks"].clone();
            assert_eq!(of_ranks.as_array().map(Vec::len), Some(ranks), "{of_ranks}");
            assert!(of_ranks[1]["sent_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{of_ranks}");
            weights.push(place.bytes("w.safetensors"));
            std::fs::remove_dir_all(place.path("ck")).unwrap();
        }
        assert_eq!(weights[0], weights[1], "{}", launcher.name.display());
        assert!(weights.iter().all(|of_run| of_run.len() == weights[0].len()), "{}", launcher.name.display());
        // Two replicas, of which each shares the relations to seeds of its own.
        let grid = [&DATA[..], &["--share", "relations", "--replicas", "2", "--report", "report.json"]].concat();
        let run = Run::of(launcher.train(&place, 4, &grid).output().unwrap()).works();
        assert_eq!(run.err.matches("rank 1 of each replica aggregates ").count(), 1, "{}", run.err);
        assert!(metrics("report.json")["train"]["micro_f1"].as_f64().is_some_and(|f1| f1 > 0.3));
        let fails = |ranks: usize, args: &[&str], message: &str| {
            let output = launcher.train(&place, ranks, &[&DATA[..], args].concat()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && text.contains(message), "{text}");
        };
        fails(3, &["--share", "relations", "--replicas", "2"], "3 is no multiple of 2");
        fails(2, &["--replicas", "2"], "add `--share relations`");
        place.model(MODEL);
        fails(2, &["--share", "relations", "--replicas", "2"], "in training on mini-batches");
        place.model(&MODEL.replace("seed      5", "seed      5\n    batch     2\n    fanout    [3, 3]"));
        let cached = [&DATA[..], &["--cache", "1MiB"]].concat();
        let output = launcher.train(&place, 2, &cached).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("a cache of rows is for one process"), "{text}");
    }
}

/// The usual model, trained on batches.
fn on_batches() -> String {
    MODEL.replace("seed      5", "seed      5\n    batch     2\n    fanout    [3, 3]")
}

#[test]
fn several_processes_are_profiled() {
    let place = place();
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    place.with_data("profile", &["--epochs", "2", "-o", "one"]).works();
    assert!(place.json("one/profile.json").get("ranks").is_none());
    for (launcher, ranks) in launchers().iter().zip([2, 3, 2]) {
        let name = launcher.name.display();
        for (model, run_name, runs) in [(MODEL, "epoch", "--epochs"), (&on_batches(), "batch", "--batches")] {
            place.model(model);
            let args = [&DATA[..], &[runs, "4", "-o", "p"]].concat();
            let run = Run::of(launcher.command(&place, ranks, "profile", &args).output().unwrap()).works();
            assert_eq!(names(&place.path("p")), ["profile.html", "profile.json", "profile.txt", "trace.json"]);
            assert_eq!(String::from_utf8_lossy(&place.bytes("p/profile.txt")), run.out, "{name}");
            // One of them shows its kernels.
            for word in [&format!("ms per {run_name}, "), "\nranks\n", "\nkernels of rank 0 by time\n", "exchange of "]
            {
                assert!(run.out.contains(word), "{name}: no `{word}` in {}", run.out);
            }
            assert_eq!(run.out.matches("\nranks\n").count(), 1, "{}", run.out);
            let json = place.json("p/profile.json");
            assert_eq!((&json["run"], &json["runs"]), (&run_name.into(), &4.into()), "{name}");
            assert_eq!(json["device"], format!("cpu, {ranks} processes"), "{name}");
            let all = json["ranks"].as_array().unwrap_or_else(|| panic!("no ranks: {json:#}"));
            assert_eq!(all.len(), ranks, "{name}: {json:#}");
            for (at, of) in all.iter().enumerate() {
                let [run, computing, waiting, loading] =
                    ["run_ms", "computing_ms", "waiting_ms", "loading_ms"].map(|key| number(&of[key]));
                assert_eq!(of["rank"], at, "{of:#}");
                assert!(0.0 < computing && computing < run && 0.0 < waiting && waiting < run, "{name}: {of:#}");
                assert_eq!(loading > 0.0, run_name == "batch", "{name}: {of:#}");
                if run_name == "batch" {
                    assert!((computing + waiting + loading - run).abs() < 1e-6 * run, "{name}: {of:#}");
                }
                for positive in ["sent_bytes", "exchanges", "peak_bytes"] {
                    assert!(number(&of[positive]) > 0.0, "{name}: {positive} of {of:#}");
                }
            }
            let slowest = all.iter().map(|of| number(&of["computing_ms"])).fold(0.0, f64::max);
            let imbalance = &json["imbalance"];
            let of_slowest = &all[imbalance["rank"].as_u64().unwrap() as usize]["computing_ms"];
            assert!(number(of_slowest) == slowest && number(&imbalance["ratio"]) >= 1.0, "{name}: {imbalance}");
            let sum =
                |key: &str| -> f64 { json[key].as_object().unwrap().values().map(|part| number(&part["share"])).sum() };
            assert!((sum("stages") + sum("rest") - 1.0).abs() < 1e-9, "{name}: {json:#}");
            assert!(number(&json["rest"]["other ranks"]["measured_ms"]) > 0.0, "{name}: {json:#}");
            let kernels = json["kernels"].as_array().unwrap();
            let (exchanges, others): (Vec<&Value>, Vec<&Value>) = kernels.iter().partition(|of| of["kind"] == "EX");
            assert!(!exchanges.is_empty() && !others.is_empty(), "{name}: {json:#}");
            for of in exchanges {
                assert!(of["predicted_ms"].is_null() && number(&of["waiting_ms"]) >= 0.0, "{name}: {of:#}");
            }
            for of in others {
                assert!(of.get("waiting_ms").is_none() && number(&of["predicted_ms"]) > 0.0, "{name}: {of:#}");
            }
            let page = String::from_utf8(place.bytes("p/profile.html")).unwrap();
            assert!(page.contains("<h2>Ranks</h2>") && page.contains("<h2>Scores of each class</h2>"), "{name}");
            let diff = place.run(&["profile", "diff", "one", "p"]).works().out;
            assert!(diff.contains(&format!("note: device: cpu -> cpu, {ranks} processes")), "{diff}");
            place.run(&["profile", "diff", "p", "p"]).works();
        }
        let args = [&DATA[..], &["--batches", "2", "--share", "relations", "-o", "p"]].concat();
        let run = Run::of(launcher.command(&place, 2, "profile", &args).output().unwrap()).works();
        assert_eq!(run.err.matches("rank 1 aggregates ").count(), 1, "{name}: {}", run.err);
        assert_eq!(place.json("p/profile.json")["ranks"].as_array().map(Vec::len), Some(2), "{name}");
        // The bytes of a run are those of a step of training.
        place.model(MODEL);
        let args = [&DATA[..], &["--epochs", "3", "-o", "p"]].concat();
        Run::of(launcher.command(&place, ranks, "profile", &args).output().unwrap()).works();
        let args = [&DATA[..], &["--epochs", "3", "--report", "report.json"]].concat();
        Run::of(launcher.train(&place, ranks, &args).output().unwrap()).works();
        let (profiled, trained) = (place.json("p/profile.json"), place.json("report.json"));
        for rank in 0..ranks {
            let [a, b] = [&profiled["ranks"][rank]["sent_bytes"], &trained["ranks"][rank]["train_bytes"]].map(number);
            assert_eq!(3.0 * a, b, "{name}: rank {rank}");
        }
    }
}

#[test]
fn profiles_that_several_processes_do_not_make_are_refused() {
    let place = place();
    place.with_data("profile", &["--share", "seeds"]).fails(1, &["`--share` is for several processes"]);
    for launcher in launchers() {
        for (args, words) in [
            (&["--in-cache"][..], "`--in-cache` measures one process: start the command without `mpirun`"),
            (&["--device", "cuda"], "several processes train on their processors, not on devices"),
            (&["-o", "m.hgnn"], "`m.hgnn` cannot be a folder"),
        ] {
            let output = launcher.command(&place, 2, "profile", &[&DATA[..], args].concat()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && text.contains(words), "{}: {text}", launcher.name.display());
        }
    }
}

/// Whether a process handles Ctrl-C itself.
fn handles_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|signals| signals & 0b10 != 0)
}

#[test]
fn a_profile_is_interrupted_on_all_ranks_alike() {
    let place = place();
    for launcher in launchers() {
        let name = launcher.name.display();
        let args = [&DATA[..], &["--epochs", "100000", "-o", "p"]].concat();
        let mut command = launcher.command(&place, 2, "profile", &args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        let are_ready = || {
            let ours = processes_of(&place);
            ours.len() == 2 && ours.into_iter().all(handles_interrupts)
        };
        while !are_ready() && start.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Behind the epochs that are not measured.
        std::thread::sleep(Duration::from_secs(2));
        let last = processes_of(&place).into_iter().max().expect("a rank");
        let _ = Command::new("kill").args(["-INT", &last.to_string()]).status();
        assert!(ends(&mut child), "{name} goes on");
        assert!(child.wait().unwrap().success(), "{name}");
        let json = place.json("p/profile.json");
        let runs = json["runs"].as_u64().unwrap();
        assert!(0 < runs && runs < 100_000, "{name}: {runs}");
        assert_eq!(json["ranks"].as_array().map(Vec::len), Some(2), "{name}: {json:#}");
        std::fs::remove_dir_all(place.path("p")).unwrap();
    }
}

#[test]
fn several_processes_evaluate_a_model_and_write_its_outputs() {
    let place = place();
    trained_alone(&place, &["-o", "run"]);
    for model in [&["m.hgnn", "--weights", "alone.safetensors"][..], &["run/model.hgnnx"]] {
        let args = [model, &["--data", "data"]].concat();
        place.run(&[&["eval"], &args[..], &["--report", "alone.json"]].concat()).works();
        place.run(&[&["infer"], &args[..], &["--out", "alone.csv"]].concat()).works();
        for launcher in launchers() {
            let name = launcher.name.display();
            let eval = [&args[..], &["--report", "together.json"]].concat();
            let run = Run::of(launcher.command(&place, 3, "eval", &eval).output().unwrap()).works();
            assert_eq!(run.out.matches(" test: ").count(), 1, "{}", run.out);
            let of = |file: &str| place.json(file)["metrics"]["test"].clone();
            assert_eq!(of("together.json")["micro_f1"], of("alone.json")["micro_f1"], "{name}");
            let loss = |file: &str| of(file)["loss"].as_f64().unwrap();
            assert!((loss("together.json") - loss("alone.json")).abs() < 1e-5, "{name}");
            let infer = [&args[..], &["--out", "together.csv"]].concat();
            let run = Run::of(launcher.command(&place, 2, "infer", &infer).output().unwrap()).works();
            assert_eq!(run.out.matches("wrote together.csv").count(), 1, "{}", run.out);
            assert_eq!(place.bytes("together.csv"), place.bytes("alone.csv"), "{name}");
        }
    }
}

/// With all in-edges and without dropout, but for the order of sums. Rank 0 writes the scores.
#[test]
fn several_processes_learn_links() {
    let place = links::place(&links::links(90));
    place.model(&links::MODEL.replace("fanout    [4]\n", "").replace("dropout(h, 0.1)", "h"));
    let pairs: Vec<(u32, u32)> = (0..20).map(|at| (at, at * 7 % 24)).collect();
    links::rows(place.folder.path(), "pairs.npy", &pairs);
    let numbers = |name: &str| npy::Npy::open(&place.path(name)).unwrap().to_f32().unwrap().to_vec();
    let metrics = |name: &str| place.json(name)["metrics"]["test"].clone();
    place.with_data("train", &["--report", "alone.json", "--weights-out", "w.safetensors"]).works();
    let score = ["--weights", "w.safetensors", "--links", "pairs.npy", "--out"];
    place.with_data("infer", &[&score[..], &["alone.npy"]].concat()).works();
    for launcher in launchers() {
        let name = launcher.name.display();
        let train = [&DATA[..], &["--report", "together.json"]].concat();
        Run::of(launcher.train(&place, 3, &train).output().unwrap()).works();
        for metric in ["loss", "auc", "average_precision", "mrr"] {
            let [alone, together] = ["alone.json", "together.json"].map(|file| metrics(file)[metric].as_f64().unwrap());
            assert!((alone - together).abs() < 2e-3, "{name}: {metric} {alone} and {together}");
        }
        let infer = [&DATA[..], &score, &["together.npy"]].concat();
        let run = Run::of(launcher.command(&place, 2, "infer", &infer).output().unwrap()).works();
        assert_eq!(run.out.matches("wrote together.npy (20 scores)").count(), 1, "{}", run.out);
        assert_eq!((numbers("alone.npy").len(), numbers("together.npy").len()), (20, 20));
        for (one, two) in numbers("alone.npy").into_iter().zip(numbers("together.npy")) {
            assert!((one - two).abs() < 1e-5, "{name}: {one} and {two}");
        }
    }
}

/// All of them have such a loss, and the first one keeps the best parameters with the learned rows of the others.
#[test]
fn several_processes_that_diverge_keep_the_best_parameters() {
    let place = place();
    place.model(&MODEL.replace("lr: 0.02", "lr: 1e30"));
    let alone = place.with_data("train", &["--sections", "24", "--weights-out", "alone.safetensors"]);
    assert!(alone.err.contains("the parameters of the best epoch were written to alone.safetensors"), "{}", alone.err);
    for launcher in launchers() {
        let args = [&DATA[..], &["--weights-out", "together.safetensors"]].concat();
        let output = launcher.train(&place, 3, &args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !text.contains("internal error"), "{text}");
        assert_eq!(text.matches("the loss is").count(), 1, "{text}");
        assert_eq!(place.bytes("together.safetensors"), place.bytes("alone.safetensors"));
        std::fs::remove_file(place.path("together.safetensors")).unwrap();
    }
}

/// Attention with dropout over metapaths of thousands of vertices: blocks, tiles and split rows have their usual sizes.
#[test]
fn thousands_of_vertices_are_rounded_as_by_one_process() {
    let place = place();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/han/acm.hgnn");
    let train = [model, "--epochs", "2", "--weights-out"];
    place.run(&[&["train"], &train[..], &["alone.safetensors", "--sections", "24"]].concat()).works();
    for launcher in launchers() {
        let args = [&train[..], &["together.safetensors"]].concat();
        let mut command = launcher.train(&place, 3, &args);
        Run::of(command.output().unwrap()).works();
        assert_eq!(
            place.bytes("together.safetensors"),
            place.bytes("alone.safetensors"),
            "{}",
            launcher.name.display()
        );
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_processes() {
    let place = place();
    let alone = trained_alone(&place, &[]);
    let files = ["--checkpoint", "ck", "--weights-out", "w.safetensors"];
    for launcher in launchers() {
        let half = [&DATA[..], &files, &["--epochs", "5"]].concat();
        let mut command = launcher.train(&place, 3, &half);
        Run::of(command.output().unwrap()).works();
        let mut command = launcher.train(&place, 2, &[&DATA[..], &files, &["--resume"]].concat());
        Run::of(command.output().unwrap()).works();
        assert_eq!(place.bytes("w.safetensors"), alone, "{}", launcher.name.display());
        std::fs::remove_dir_all(place.path("ck")).unwrap();
    }
    // Other sections are another order of sums.
    place.with_data("train", &[&files[..], &["--sections", "24", "--epochs", "5"]].concat()).works();
    let resumed = place.with_data("train", &[&files[..], &["--sections", "12", "--resume"]].concat());
    resumed.fails(1, &["sections", "24", "12"]);
}

/// The processes of a job that run this model, without the launcher.
fn processes_of(place: &Place) -> Vec<u32> {
    let folder = place.path(".").canonicalize().unwrap();
    let numbers = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |number: &u32| {
        let cwd = std::fs::read_link(format!("/proc/{number}/cwd"));
        let exe = std::fs::read_link(format!("/proc/{number}/exe"));
        cwd.is_ok_and(|cwd| cwd == folder) && exe.is_ok_and(|exe| exe.ends_with("hgnnc"))
    };
    numbers.filter(is_ours).collect()
}

fn ends(child: &mut Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn a_rank_that_is_killed_ends_the_job_and_loses_nothing() {
    let place = place();
    // Number of times that a rank is killed before the run is left alone.
    let kills: usize = std::env::var("HGNN_KILLS").map_or(2, |kills| kills.parse().expect("a number"));
    let epochs = (750 * kills).to_string();
    let epochs = ["--epochs", &epochs];
    let alone = trained_alone(&place, &epochs);
    let files = ["--checkpoint", "ck", "--checkpoint-every", "0", "--weights-out", "w.safetensors"];
    for launcher in launchers() {
        let mut resume: &[&str] = &[];
        for kill in 0..kills {
            let ranks = [2, 3, 4][kill % 3];
            let mut command = launcher.train(&place, ranks, &[&DATA[..], &files, &epochs, resume].concat());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let start = Instant::now();
            let written = || {
                let progress = std::fs::metadata(place.path("ck/checkpoint.safetensors"));
                progress.is_ok_and(|file| file.modified().unwrap().elapsed().is_ok_and(|age| age < start.elapsed()))
            };
            while !written() && start.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            // At some step behind the first checkpoint of this start.
            std::thread::sleep(Duration::from_millis((kill as u64 * 37) % 101));
            let ours = processes_of(&place);
            if let Some(number) = ours.get(kill % ours.len().max(1)) {
                let _ = Command::new("kill").args(["-9", &number.to_string()]).status();
            }
            assert!(ends(&mut child), "{} with {ranks} ranks goes on without one", launcher.name.display());
            let ended = Instant::now();
            while !processes_of(&place).is_empty() && ended.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(processes_of(&place).is_empty(), "a process is left behind");
            resume = &["--resume"];
        }
        let mut command = launcher.train(&place, 2, &[&DATA[..], &files, &epochs, resume].concat());
        Run::of(command.output().unwrap()).works();
        assert_eq!(place.bytes("w.safetensors"), alone, "{}", launcher.name.display());
        std::fs::remove_dir_all(place.path("ck")).unwrap();
    }
}

#[test]
fn what_fails_on_the_ranks_is_told_once() {
    let place = place();
    for launcher in launchers() {
        let args = [&DATA[..], &["--weights-out", "nowhere/w.safetensors"]].concat();
        let mut command = launcher.train(&place, 3, &args);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{}: {text}", launcher.name.display());
        assert_eq!(text.matches("error: `nowhere/w.safetensors` cannot be written").count(), 1, "{text}");
        let mut command = launcher.train(&place, 3, &[&DATA[..], &["--sections", "2"]].concat());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("there are 3 processes and 2 sections"), "{text}");
    }
}
