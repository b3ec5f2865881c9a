//! `train -o DIR`: parameters, report and log in one folder.

use crate::common::{BODY, Place, Run, TRAIN, model_of, names, usual};

#[test]
fn a_run_is_kept_in_a_folder() {
    let place = Place::new();
    place.model(&usual());
    let run = place.with_data("train", &["-o", "runs/first"]).works();
    let folder = place.path("runs/first");
    assert_eq!(names(&folder), ["log.txt", "model.hgnnx", "report.json", "weights.safetensors"]);
    assert_eq!(names(&place.path("runs")), ["first"]);
    // The log is what was told, in its order: notes and epochs, then how training ended.
    let log = String::from_utf8(place.bytes("runs/first/log.txt")).expect("a text");
    assert_eq!(log, run.err + &run.out);
    assert!(log.contains("epoch   30/30") && log.contains("finished: 30 epochs"), "{log}");
    assert!(!log.contains("not kept"), "{log}");
    place.with_data("eval", &["--weights", "runs/first/weights.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("runs/first/report.json")["metrics"], place.json("e.json")["metrics"]);

    // Another run does not write over it, and says so before training.
    let before = place.bytes("runs/first/weights.safetensors");
    place
        .with_data("train", &["--seed", "5", "-o", "runs/first"])
        .fails(1, &["`runs/first` holds files already, of another run perhaps"]);
    assert_eq!(place.bytes("runs/first/weights.safetensors"), before);
    // An empty folder is as good as none; what is not shown is kept as well.
    std::fs::create_dir(place.path("runs/second")).expect("a folder");
    place.with_data("train", &["--quiet", "--out", "runs/second"]).is_silent();
    let quiet = String::from_utf8(place.bytes("runs/second/log.txt")).expect("a text");
    assert!(quiet.contains("epoch   30/30") && quiet.contains("finished: 30 epochs"), "{quiet}");
    assert_eq!(place.bytes("runs/second/weights.safetensors"), before);
}

#[test]
fn where_a_run_cannot_be_kept() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["-o", "m.hgnn"]).fails(1, &["`m.hgnn` cannot be a folder"]);
    place.with_data("train", &["-o", "data"]).fails(1, &["`data` holds files already"]);
    for (option, path) in [("--checkpoint", "run/c"), ("--weights-out", "run/../run/w"), ("--checkpoint", "run")] {
        std::fs::create_dir_all(place.path("run")).expect("a folder");
        place.with_data("train", &["-o", "run", option, path]).fails(1, &["lies in the folder of `-o`", option]);
    }
    std::fs::remove_dir(place.path("run")).expect("empty");
    assert_eq!(place.names(), ["data", "m.hgnn"]);
}

/// Two runs that began with one name: the second finds another one.
#[test]
fn a_folder_that_was_filled_meanwhile_is_not_touched() {
    let place = Place::new();
    place.model(&usual());
    let mut command = place.command(&["train", "m.hgnn", "--data", "data", "--epochs", "3000", "-o", "run"]);
    let mut child =
        command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().expect("starts");
    // It has looked at the folder when it shows an epoch.
    let mut err = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let mut text = String::new();
    while !text.contains("epoch ") {
        assert!(std::io::BufRead::read_line(&mut err, &mut text).expect("a line") > 0, "{text}");
    }
    std::fs::create_dir(place.path("run")).expect("a folder");
    std::fs::write(place.path("run/report.json"), "of another run").expect("written");
    std::io::Read::read_to_string(&mut err, &mut text).expect("the rest");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(3), "{text}");
    assert!(text.contains("it was filled while this run went on; all of this run is in `"), "{text}");
    assert_eq!(place.bytes("run/report.json"), b"of another run");
    assert_eq!(place.names(), ["data", "m.hgnn", "run", "run-2"]);
    assert_eq!(names(&place.path("run-2")), ["log.txt", "model.hgnnx", "report.json", "weights.safetensors"]);
}

#[test]
fn a_run_that_fails_keeps_its_best_parameters() {
    let place = Place::new();
    let train = |optimizer: &str| {
        let body = BODY.replace("relu(", "square(");
        place.model(&model_of(&body, &TRAIN.replace("adam(lr: 0.02)", optimizer)));
        place.with_data("train", &["-o", "run"])
    };
    // Without a good epoch there is nothing to keep.
    train("sgd(lr: 1e30)").fails(1, &["the loss is"]);
    assert!(!place.path("run").exists());
    train("sgd(lr: 5)").fails(1, &["the loss is", "the best one", "were written to run/weights.safetensors"]);
    assert_eq!(names(&place.path("run")), ["log.txt", "weights.safetensors"]);
    let log = String::from_utf8(place.bytes("run/log.txt")).expect("a text");
    assert!(log.contains("error: the loss is") && log.contains("written to run/weights.safetensors"), "{log}");
    place.with_data("eval", &["--weights", "run/weights.safetensors"]).works();
}

#[test]
fn parameters_that_nobody_keeps_are_mentioned() {
    let place = Place::new();
    place.model(&usual());
    let told = |args: &[&str]| place.with_data("train", args).works().err.contains("the parameters were not kept");
    assert!(told(&["--report", "r.json"]));
    assert!(!told(&["--weights-out", "w.safetensors"]));
    assert!(!told(&["--checkpoint", "c"]));
    assert!(!told(&["-o", "run"]));
    assert!(!told(&["--epochs", "0"]));
}

/// The parameters fit, and the artifact with its program does not.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_without_room_for_the_rest_loses_no_parameters() {
    let place = Place::new();
    place.model(&usual());
    let command = place.command(&["train", "m.hgnn", "--data", "data", "--epochs", "2", "-o", "run"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        value.map(|value| shell.env(name, value));
    }
    let run = Run::of(shell.current_dir(place.folder.path()).output().expect("a shell"));
    run.fails(3, &["model.hgnnx", "File too large"]);
    assert_eq!(place.names(), ["data", "m.hgnn"]);
    let kept =
        run.err.lines().find_map(|line| line.strip_prefix("the parameters were written to ")?.strip_suffix(" instead"));
    let kept = kept.expect("another file");
    place.with_data("eval", &["--weights", kept]).works();
    std::fs::remove_dir_all(std::path::Path::new(kept).parent().expect("a folder")).expect("removed");
}
