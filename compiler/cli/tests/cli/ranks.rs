//! `hgnnc train` as several processes, with each launcher that is installed.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{CACHE, Place, Run};

/// Two layers with dropout of vertices and edges, sparse and dense features, learned rows, and a clipped norm.
const MODEL: &str = r#"
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

/// Launchers, with the arguments that let them start processes here.
const LAUNCHERS: [(&str, &[&str]); 2] = [
    ("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]),
    ("mpirun.mpich", &["-env", "HGNNC_MPI", "libmpich.so.12"]),
];

/// The model and the dataset of a place.
const DATA: [&str; 3] = ["m.hgnn", "--data", "data"];

/// `hgnnc train` on some ranks; `None` if the launcher starts no processes here.
fn launched(place: &Place, (launcher, args): (&str, &[&str]), ranks: usize, train: &[&str]) -> Option<Command> {
    let starts = Command::new(launcher).args(args).args(["-n", "2", "true"]).output();
    if !starts.is_ok_and(|output| output.status.success()) {
        println!("skipped: {launcher} is not installed, or starts no processes here");
        return None;
    }
    let mut command = Command::new(launcher);
    command.args(args).args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_hgnnc"), "train"]);
    command.args(train).args(["--threads", "1"]).current_dir(place.path(".")).env("HGNNC_CACHE", CACHE);
    Some(command)
}

fn place() -> Place {
    let place = Place::new();
    place.model(MODEL);
    place
}

/// What one process trains with the sections of several.
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
    for launcher in LAUNCHERS {
        for ranks in [2, 4] {
            let files = ["--weights-out", "together.safetensors", "--report", "together.json", "-o", "run"];
            let files = [&DATA[..], &files].concat();
            let Some(mut command) = launched(&place, launcher, ranks, &files) else { continue };
            let run = Run::of(command.output().unwrap()).works();
            assert_eq!(place.bytes("together.safetensors"), alone, "{ranks} ranks of {}", launcher.0);
            assert_eq!(report("together.json"), report("alone.json"), "{ranks} ranks of {}", launcher.0);
            // One of them shows and writes what a run does.
            assert_eq!(run.out.matches("ms per epoch (median)").count(), 1, "{}", run.out);
            let outputs = ["log.txt", "model.hgnnx", "report.json", "weights.safetensors"];
            assert_eq!(crate::common::names(&place.path("run")), outputs);
            std::fs::remove_dir_all(place.path("run")).unwrap();
        }
    }
}

/// Attention with dropout over metapaths of thousands of vertices: blocks, tiles and split rows have their usual sizes.
#[test]
fn thousands_of_vertices_are_rounded_as_by_one_process() {
    let place = place();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/han/acm.hgnn");
    let train = [model, "--epochs", "2", "--weights-out"];
    place.run(&[&["train"], &train[..], &["alone.safetensors", "--sections", "24"]].concat()).works();
    for launcher in LAUNCHERS {
        let args = [&train[..], &["together.safetensors"]].concat();
        let Some(mut command) = launched(&place, launcher, 3, &args) else { continue };
        Run::of(command.output().unwrap()).works();
        assert_eq!(place.bytes("together.safetensors"), place.bytes("alone.safetensors"), "{}", launcher.0);
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_processes() {
    let place = place();
    let alone = trained_alone(&place, &[]);
    let files = ["--checkpoint", "ck", "--weights-out", "w.safetensors"];
    for launcher in LAUNCHERS {
        let half = [&DATA[..], &files, &["--epochs", "5"]].concat();
        let Some(mut command) = launched(&place, launcher, 3, &half) else { continue };
        Run::of(command.output().unwrap()).works();
        let Some(mut command) = launched(&place, launcher, 2, &[&DATA[..], &files, &["--resume"]].concat()) else {
            continue;
        };
        Run::of(command.output().unwrap()).works();
        assert_eq!(place.bytes("w.safetensors"), alone, "{}", launcher.0);
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
    let epochs = ["--epochs", "1500"];
    let alone = trained_alone(&place, &epochs);
    let files = ["--checkpoint", "ck", "--checkpoint-every", "0", "--weights-out", "w.safetensors"];
    for launcher in LAUNCHERS {
        let mut resume: &[&str] = &[];
        for ranks in [2, 3] {
            let args = [&DATA[..], &files, &epochs, resume].concat();
            let Some(mut command) = launched(&place, launcher, ranks, &args) else { continue };
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let start = Instant::now();
            let written = |since: Instant| {
                let progress = std::fs::metadata(place.path("ck/checkpoint.safetensors"));
                progress.is_ok_and(|file| file.modified().unwrap().elapsed().is_ok_and(|age| age < since.elapsed()))
            };
            while !written(start) && start.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            if let Some(&last) = processes_of(&place).last() {
                let _ = Command::new("kill").args(["-9", &last.to_string()]).status();
            }
            assert!(ends(&mut child), "{} with {ranks} ranks goes on without one", launcher.0);
            assert!(processes_of(&place).is_empty(), "a process is left behind");
            resume = &["--resume"];
        }
        let args = [&DATA[..], &files, &epochs, resume].concat();
        let Some(mut command) = launched(&place, launcher, 2, &args) else { continue };
        Run::of(command.output().unwrap()).works();
        assert_eq!(place.bytes("w.safetensors"), alone, "{}", launcher.0);
        std::fs::remove_dir_all(place.path("ck")).unwrap();
    }
}

#[test]
fn what_fails_on_the_ranks_is_told_once() {
    let place = place();
    for launcher in LAUNCHERS {
        let Some(mut command) =
            launched(&place, launcher, 3, &[&DATA[..], &["--weights-out", "nowhere/w.safetensors"]].concat())
        else {
            continue;
        };
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{}: {text}", launcher.0);
        assert_eq!(text.matches("error: `nowhere/w.safetensors` cannot be written").count(), 1, "{text}");
        let Some(mut command) = launched(&place, launcher, 3, &[&DATA[..], &["--sections", "2"]].concat()) else {
            continue;
        };
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("there are 3 processes and 2 sections"), "{text}");
    }
}
