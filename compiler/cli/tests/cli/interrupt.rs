//! Ctrl-C, and requests to end.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::common::{Place, Run, names, usual};

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

/// Starts a long run, interrupts it after its first progress line, and waits for its end.
fn interrupted(place: &Place, args: &[&str]) -> Run {
    ended("-INT", place, args)
}

fn ended(signal: &str, place: &Place, args: &[&str]) -> Run {
    let all = [&["train", "m.hgnn", "--data", "data", "--epochs", "100000000"], args].concat();
    let mut command = place.command(&all);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut err = BufReader::new(child.stderr.take().expect("piped"));
    let mut text = String::new();
    while !text.contains("epoch ") {
        assert!(err.read_line(&mut text).expect("a line") > 0, "{text}");
    }
    send(signal, &child);
    err.read_to_string(&mut text).expect("the rest");
    let mut run = Run::of(child.wait_with_output().expect("it ends"));
    run.err = text;
    run
}

#[test]
fn an_interrupted_run_saves_and_continues() {
    let place = Place::new();
    place.model(&usual());
    let run = interrupted(&place, &["--checkpoint", "c", "--weights-out", "w.safetensors", "--report", "r.json"]);
    assert_eq!(run.code, Some(130), "{run:?}");
    assert!(run.err.contains("interrupted after epoch") && run.err.contains("--checkpoint c --resume"), "{}", run.err);
    assert!(run.out.contains("interrupted: "), "{}", run.out);
    assert_eq!(names(&place.path("c")), ["checkpoint.safetensors"]);
    assert_eq!(place.names(), ["c", "data", "m.hgnn", "r.json", "w.safetensors"]);
    let report = place.json("r.json");
    assert_eq!(report["outcome"], "interrupted");
    place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["metrics"], report["metrics"]);

    // Continued, it does what it would have done.
    let done = report["epochs"].as_u64().expect("a number");
    let until = (done + 3).to_string();
    let args =
        ["--checkpoint", "c", "--resume", "--epochs", &until, "--weights-out", "w.safetensors", "--report", "r.json"];
    let run = place.with_data("train", &args).works();
    assert!(run.err.contains(&format!("continuing after epoch {done}")), "{}", run.err);
    assert_eq!(place.json("r.json")["epochs"].as_u64(), Some(done + 3));
    place.with_data("train", &["--epochs", &until, "--quiet", "--weights-out", "whole.safetensors"]).is_silent();
    assert_eq!(place.bytes("whole.safetensors"), place.bytes("w.safetensors"));
}

#[test]
fn without_a_checkpoint_nothing_is_promised() {
    let place = Place::new();
    place.model(&usual());
    let run = interrupted(&place, &[]);
    assert_eq!(run.code, Some(130), "{run:?}");
    assert!(run.err.contains("interrupted after epoch") && !run.err.contains("--resume"), "{}", run.err);
    assert_eq!(place.names(), ["data", "m.hgnn"]);
}

/// Batch systems ask a process to end before they kill it.
#[test]
fn a_request_to_end_saves_too() {
    let place = Place::new();
    place.model(&usual());
    let run = ended("-TERM", &place, &["--checkpoint", "c"]);
    assert_eq!(run.code, Some(130), "{run:?}");
    assert_eq!(names(&place.path("c")), ["checkpoint.safetensors"]);
}

/// Before training there is nothing to save: the process just ends, and leaves nothing behind.
#[test]
fn interrupted_before_it_begins() {
    use std::os::unix::process::ExitStatusExt;
    let place = Place::new();
    place.model(&usual());
    let mut command = place.command(&["train", "m.hgnn", "--data", "data", "--report", "r.json", "--checkpoint", "c"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    send("-INT", &child);
    let output = child.wait_with_output().expect("it ends");
    let run =
        Run { code: output.status.code(), out: String::new(), err: String::from_utf8_lossy(&output.stderr).into() };
    // Killed by the signal, stopped after the epoch, or, on a fast machine, done.
    assert!(output.status.signal() == Some(2) || matches!(run.code, Some(0 | 130)), "{run:?}");
    assert!(!run.err.contains("panicked"), "{run:?}");
}

/// Training on batches is killed at moments that are spread over its run, twenty times, and ends with the bits of a run
/// that was left alone.
#[test]
fn killed_training_on_batches_resumes_to_the_same_bits() {
    let place = Place::new();
    place.model(&usual().replace("    epochs    30\n", "    epochs    30\n    batch     4\n    fanout    [2, 2]\n"));
    place.with_data("train", &["--seed", "5", "--quiet", "--weights-out", "whole.safetensors"]).is_silent();
    let args = ["train", "m.hgnn", "--data", "data", "--quiet", "--checkpoint", "c", "--checkpoint-every", "0"];
    // A checkpoint knows its seed.
    let mut killed = 0;
    // On a busy machine, a run may not come to its first checkpoint in the time that an idle one needs.
    let mut slower = 1;
    for attempt in 0..20u64 {
        let saved = place.path("c/checkpoint.safetensors").exists();
        let resume: &[&str] = if saved { &["--resume"] } else { &["--seed", "5"] };
        let mut child = place.command(&[&args, resume].concat()).stderr(Stdio::piped()).spawn().expect("it starts");
        std::thread::sleep(std::time::Duration::from_millis(slower * (20 + 17 * attempt % 90)));
        killed += usize::from(child.try_wait().expect("a state").is_none());
        let _ = child.kill();
        let run = Run::of(child.wait_with_output().expect("it ends"));
        assert_eq!(run.err, "", "killed or done");
        if !place.path("c/checkpoint.safetensors").exists() {
            slower = (2 * slower).min(64);
        }
    }
    assert!(killed > 3, "{killed} runs were killed");
    place.run(&[&args[..], &["--resume", "--weights-out", "w.safetensors"]].concat()).is_silent();
    assert_eq!(place.bytes("w.safetensors"), place.bytes("whole.safetensors"));
}

/// The position of a run within an epoch is a number of batches, so it is valid for batches of the same size only.
#[test]
fn a_checkpoint_within_an_epoch_is_for_batches_of_its_size() {
    let place = Place::new();
    let model =
        |size: usize| usual().replace("    epochs    30\n", &format!("    epochs    30\n    batch     {size}\n"));
    place.model(&model(1));
    let args = ["--checkpoint", "c", "--checkpoint-every", "0"];
    // Killed as soon as there is a checkpoint, which is one within an epoch unless the machine is very slow.
    let mut child = place.command(&[&["train", "m.hgnn", "--data", "data", "--quiet"], &args[..]].concat()).spawn();
    let child = child.as_mut().expect("it starts");
    while !place.path("c/checkpoint.safetensors").exists() && child.try_wait().expect("a state").is_none() {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    let _ = child.kill();
    let _ = child.wait();
    let text = String::from_utf8_lossy(&place.bytes("c/checkpoint.safetensors")).into_owned();
    if text.contains(r#"\"batches\":0"#) {
        return;
    }
    place.model(&model(2));
    let args = [&args[..], &["--resume", "--allow-changed"]].concat();
    place.with_data("train", &args).fails(1, &["within an epoch of", "batches of 1"]);
}
