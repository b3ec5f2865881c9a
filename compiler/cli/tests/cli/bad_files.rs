//! Models, weights, checkpoints and outputs that cannot be read or written, and machines that are too small.

use hgnnc_train::{checkpoint, weights};

use crate::common::{BODY, Place, Run, TRAIN, model_of, names, usual, with_metapath};

#[test]
fn models_that_are_no_models() {
    let place = Place::new();
    let check = |words: &[&str]| {
        for command in [&["check", "m.hgnn"][..], &["build", "m.hgnn"], &["train", "m.hgnn", "--data", "data"]] {
            place.run(command).fails(1, words);
        }
    };
    check(&["cannot read `m.hgnn`", "No such file"]);
    std::fs::create_dir(place.path("m.hgnn")).expect("made");
    check(&["cannot read `m.hgnn`", "it is a folder"]);
    std::fs::remove_dir(place.path("m.hgnn")).expect("gone");
    std::fs::write(place.path("m.hgnn"), b"// caf\xe9\n").expect("written");
    check(&["`m.hgnn` is not UTF-8 text: byte 6"]);
    // Longer than memory, and empty on the disk.
    let long = std::fs::File::create(place.path("m.hgnn")).expect("made");
    long.set_len(1 << 40).expect("a sparse file");
    check(&["`m.hgnn` has 1099511627776 bytes"]);
    for empty in ["", "\n", "// nothing\n", "\u{feff}"] {
        place.model(empty);
        check(&["E0505", "declares no model"]);
    }
    place.model("\u{0}\u{0}\u{0}");
    check(&["E0101"]);
    // Text as Windows writes it.
    place.model(&usual().replace('\n', "\r\n"));
    place.run(&["check", "m.hgnn"]).passes();
    place.model(&format!("\u{feff}{}", usual()));
    place.run(&["check", "m.hgnn"]).passes();
}

#[test]
fn outputs_are_tried_before_the_work() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--quiet", "--epochs", "1", "--weights-out", "w.safetensors"]).is_silent();
    std::fs::create_dir(place.path("folder")).expect("made");
    std::fs::write(place.path("file"), "mine").expect("written");
    let before = place.names();
    for (command, option) in
        [("train", "--report"), ("train", "--weights-out"), ("eval", "--report"), ("infer", "--out")]
    {
        let weights = if command == "train" { &[][..] } else { &["--weights", "w.safetensors"] };
        for (target, words) in [
            ("none/such", &["`none/such` cannot be written", "no folder `none`"][..]),
            ("folder", &["`folder` cannot be written", "it is a folder"]),
            ("file/in", &["`file/in` cannot be written", "no folder `file`"]),
        ] {
            let run = place.with_data(command, &[weights, &[option, target]].concat());
            run.fails(1, words);
            assert!(!run.err.contains("epoch "), "nothing has begun: {}", run.err);
        }
    }
    let unknown = place.with_data("infer", &["--weights", "w.safetensors", "--out", "rows.tsv"]);
    unknown.fails(1, &["`rows.tsv` ends in `.tsv`", "`.npy`, `.csv` or `.parquet`"]);
    place.with_data("train", &["--report", "x", "--weights-out", "x"]).fails(1, &["`x` cannot be both"]);
    place.with_data("train", &["--checkpoint", "file"]).fails(1, &["`file` cannot be a folder"]);
    place.with_data("train", &["--checkpoint", "file/deep"]).fails(1, &["`file/deep` cannot be a folder"]);
    assert_eq!(place.names(), before);
    assert_eq!(place.bytes("file"), b"mine");
}

#[cfg(unix)]
#[test]
fn files_of_other_kinds_are_written_where_they_are() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let place = Place::new();
    place.model(&usual());
    let run = |report: &str| place.with_data("train", &["--quiet", "--epochs", "1", "--report", report]).is_silent();
    run("r.json");
    let mode = std::fs::metadata(place.path("r.json")).expect("there").permissions().mode();
    std::fs::write(place.path("plain"), "").expect("written");
    assert_eq!(mode, std::fs::metadata(place.path("plain")).expect("there").permissions().mode());
    // A link stays one.
    symlink("r.json", place.path("link")).expect("linked");
    std::fs::write(place.path("r.json"), "old").expect("written");
    run("link");
    assert!(place.path("link").is_symlink());
    assert_eq!(place.json("r.json")["model"], "Net");
    // A device is not replaced by a file.
    run("/dev/null");
    let null = std::fs::metadata("/dev/null").expect("there").file_type();
    assert!(null.is_char_device());
}

#[test]
fn weights_of_another_model() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--quiet", "--epochs", "1", "--weights-out", "w.safetensors"]).is_silent();
    let good = place.bytes("w.safetensors");
    let refused = |words: &[&str]| {
        let before = place.names();
        place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).fails(1, words);
        place.with_data("infer", &["--weights", "w.safetensors", "--out", "o.npy"]).fails(1, words);
        place.with_data("train", &["--init", "w.safetensors", "--report", "r.json"]).fails(1, words);
        assert_eq!(place.names(), before);
    };
    // Another width, another name, one layer more.
    place.model(&usual().replace("hidden: 8", "hidden: 9"));
    refused(&[
        "w.safetensors",
        "does not fit the model",
        "`hidden.w.writes` has shape [3, 8]",
        "expects [3, 9]",
        "more",
    ]);
    place.model(&model_of(&BODY.replace("logits", "scores"), &TRAIN.replace("logits", "scores")));
    refused(&["`scores.w.cites` is missing", "more"]);
    place.model(&model_of(
        &BODY.replace("let hidden", "param extra: [] = ones\nlet hidden").replace(" of hidden", " of (extra * hidden)"),
        TRAIN,
    ));
    refused(&["`extra` is missing"]);
    place.with_data("train", &["--quiet", "--epochs", "1", "--weights-out", "more.safetensors"]).is_silent();
    std::fs::rename(place.path("more.safetensors"), place.path("w.safetensors")).expect("moved");
    place.model(&usual());
    refused(&["the model has no parameter `extra`"]);

    // Half a file, a text, an empty file, a folder, nothing.
    for end in [good.len() - 1, good.len() / 2, 100, 8, 7, 1, 0] {
        std::fs::write(place.path("w.safetensors"), &good[..end]).expect("written");
        refused(&["w.safetensors", "not a safetensors file"]);
    }
    for text in ["not tensors at all, but quite some text", "\u{ff}\u{ff}\u{ff}\u{ff}\u{ff}\u{ff}"] {
        std::fs::write(place.path("w.safetensors"), text).expect("written");
        refused(&["w.safetensors", "not a safetensors file"]);
    }
    std::fs::remove_file(place.path("w.safetensors")).expect("gone");
    refused(&["cannot read w.safetensors"]);
    std::fs::create_dir(place.path("w.safetensors")).expect("made");
    refused(&["cannot read w.safetensors"]);
}

#[test]
fn checkpoints_of_another_run() {
    let place = Place::new();
    place.model(&usual());
    let resume = |args: &[&str]| place.with_data("train", &[&["--checkpoint", "c", "--resume"], args].concat());
    resume(&[]).fails(1, &["checkpoint.safetensors", "there is no run to continue", "leave `--resume` out"]);
    assert!(!place.path("c").exists());
    place.with_data("train", &["--quiet", "--epochs", "2", "--checkpoint", "c"]).is_silent();
    let good = place.bytes("c/checkpoint.safetensors");
    resume(&["--seed", "9"]).fails(1, &["seed 0", "seed 9"]);
    let eval = place.with_data("eval", &["--weights", "c/checkpoint.safetensors"]);
    eval.fails(1, &["is a checkpoint, which holds more than weights", "--weights-out FILE"]);
    place.model(&usual().replace("Net", "Other"));
    resume(&[]).fails(1, &["checkpoint of the model `Net`, not of `Other`"]);
    place.model(&usual());
    std::fs::write(place.path("c/checkpoint.safetensors"), &good[..good.len() / 2]).expect("written");
    resume(&[]).fails(1, &["checkpoint.safetensors", "not a safetensors file"]);
    place.with_data("train", &["--quiet", "--epochs", "2", "--weights-out", "c/checkpoint.safetensors"]).is_silent();
    resume(&[]).fails(1, &["not a checkpoint"]);
    std::fs::write(place.path("c/checkpoint.safetensors"), &good).expect("written");
    resume(&["--quiet"]).is_silent();
    assert_eq!(names(&place.path("c")), ["checkpoint.safetensors"]);
}

/// A user that forgets `--resume` loses nothing.
#[test]
fn a_new_run_does_not_replace_another_one() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--quiet", "--epochs", "2", "--checkpoint", "c"]).is_silent();
    let saved = place.bytes("c/checkpoint.safetensors");
    let again = || place.with_data("train", &["--epochs", "1", "--checkpoint", "c"]);
    again().fails(1, &["c/checkpoint.safetensors", "of `Net` after epoch 2", "continue it with `--resume`"]);
    assert_eq!(place.bytes("c/checkpoint.safetensors"), saved);
    std::fs::write(place.path("c/checkpoint.safetensors"), &saved[..99]).expect("written");
    again().fails(1, &["is a checkpoint, which this run would write over"]);
    std::fs::remove_file(place.path("c/checkpoint.safetensors")).expect("gone");
    again().works();
}

/// A slip of the fingers costs neither the model nor the weights nor the data.
#[test]
fn outputs_are_not_written_over_inputs() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--quiet", "--epochs", "1", "--weights-out", "w.safetensors"]).is_silent();
    let contents = || ["m.hgnn", "w.safetensors", "data/dataset.toml", "data/writes.npy"].map(|name| place.bytes(name));
    let before = contents();
    for (command, args, words) in [
        ("train", &["--weights-out", "m.hgnn"][..], "`m.hgnn` is the model, and the weights would be written over it"),
        ("train", &["--report", "./m.hgnn"], "`./m.hgnn` is the model"),
        ("train", &["--weights-out", "data/writes.npy"], "`data/writes.npy` belongs to the dataset"),
        ("train", &["--report", "data/dataset.toml"], "belongs to the dataset"),
        ("train", &["--report", "x", "--weights-out", "./x"], "`./x` cannot be both the report and the weights"),
        ("eval", &["--weights", "w.safetensors", "--report", "w.safetensors"], "is the weights"),
        ("infer", &["--weights", "w.safetensors", "--out", "data/../w.safetensors"], "is the weights"),
        ("infer", &["--weights", "w.safetensors", "--out", "m.hgnn"], "is the model"),
    ] {
        place.with_data(command, args).fails(1, &[words]);
        assert!(contents() == before, "{command} {args:?} has changed something");
    }
    // Nor is the data where `dataset.toml` names it in other ways, and through links that lead elsewhere.
    #[cfg(unix)]
    {
        std::fs::rename(place.path("data/writes.npy"), place.path("elsewhere.npy")).expect("moved");
        std::os::unix::fs::symlink("../elsewhere.npy", place.path("data/writes.npy")).expect("a link");
        let toml = String::from_utf8(place.bytes("data/dataset.toml")).expect("text");
        assert!(toml.contains("\"writes.npy\""));
        for named in ["\"writes.npy\"", "\"./writes.npy\"", "'writes.npy'"] {
            std::fs::write(place.path("data/dataset.toml"), toml.replace("\"writes.npy\"", named)).expect("written");
            let before = contents();
            for out in ["data/writes.npy", "elsewhere.npy"] {
                let run = place.with_data("infer", &["--weights", "w.safetensors", "--out", out]);
                run.fails(1, &[&format!("`{out}` belongs to the dataset")]);
                assert!(contents() == before, "{named}, {out}");
            }
        }
    }
    // Nor is the checkpoint, without which the run cannot go on.
    std::fs::create_dir(place.path("c")).expect("made");
    for option in ["--report", "--weights-out"] {
        let run = place.with_data("train", &["--epochs", "1", "--checkpoint", "c", option, "c/checkpoint.safetensors"]);
        run.fails(1, &["`c/checkpoint.safetensors` cannot be both the checkpoint and"]);
    }
    // To go on with weights, and to write beside the data, are no slips.
    let args = ["--quiet", "--epochs", "1", "--init", "w.safetensors", "--weights-out", "w.safetensors"];
    place.with_data("train", &args).is_silent();
    for _ in 0..2 {
        place.with_data("infer", &["--weights", "w.safetensors", "--out", "data/out.npy"]).works();
    }
}

#[test]
fn weights_that_are_not_there_are_missed_before_the_work() {
    let place = Place::new();
    place.model(&usual());
    for args in
        [&["eval", "--weights", "w"][..], &["infer", "--weights", "w", "--out", "o.npy"], &["train", "--init", "w"]]
    {
        place.run(&[args, &["m.hgnn", "--data", "no such data"]].concat()).fails(1, &["cannot read w: No such file"]);
    }
}

/// A limit on the size of files (`ulimit -f`) is met as a full disk is.
#[cfg(target_os = "linux")]
#[test]
fn files_beyond_the_limit_of_the_process() {
    let place = Place::new();
    place.model(&usual().replace("hidden: 8", "hidden: 400"));
    let limited = |args: &[&str]| {
        let command = place.command(&[&["train", "m.hgnn", "--data", "data", "--epochs", "2"], args].concat());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            value.map(|value| shell.env(name, value));
        }
        let folder = command.get_current_dir().expect("commands run in the place").to_owned();
        Run::of(shell.current_dir(folder).output().expect("a shell"))
    };
    limited(&["--weights-out", "w"]).fails(3, &["cannot write w: File too large"]);
    limited(&["--checkpoint", "c"]).fails(3, &["cannot write c/checkpoint.safetensors: File too large"]);
    assert_eq!(place.names(), ["data", "m.hgnn"]);
}

#[test]
fn a_memory_budget_that_is_too_small() {
    let place = Place::new();
    place.model(&usual());
    let args = ["--memory-budget", "10K", "--report", "r.json", "--weights-out", "w", "--checkpoint", "c"];
    let run = place.with_data("train", &args);
    run.fails(3, &["needs", "KiB", "the budget is 10.0 KiB"]);
    place.with_data("train", &["--memory-budget", "1GiB", "--epochs", "1", "--quiet"]).is_silent();

    place.model(&with_metapath());
    let run = place.with_data("train", &["--memory-budget", "500", "--report", "r.json"]);
    run.fails(3, &["PAP", "bytes", "500 bytes"]);
    assert_eq!(place.names(), ["data", "m.hgnn"]);
}

#[test]
fn weights_that_are_not_finite() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--quiet", "--epochs", "1", "--weights-out", "w.safetensors"]).is_silent();
    let good = place.weights("w.safetensors");
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut tensors = good.clone();
        let changed = &mut tensors.get_mut("hidden.w.writes").expect("a parameter").1;
        (changed[9], changed[17]) = (bad, f32::NAN);
        let named =
            tensors.iter().map(|(name, (shape, data))| (name.clone(), weights::Tensor { shape: shape.clone(), data }));
        weights::write(&place.path("w.safetensors"), named.collect(), None).expect("written");
        let words = format!("2 of the 24 elements of `hidden.w.writes`, the first one {bad} at [1, 1]");
        let words = &["w.safetensors: holds elements that are not finite: ", &words][..];
        place.with_data("eval", &["--weights", "w.safetensors"]).fails(1, words);
        place.with_data("infer", &["--weights", "w.safetensors", "--out", "o.npy"]).fails(1, words);
        place.with_data("train", &["--init", "w.safetensors"]).fails(1, words);
    }
    assert_eq!(place.names(), ["data", "m.hgnn", "w.safetensors"]);
}

/// The only loss is finite, and the step after it is too long.
#[test]
fn a_criterion_that_is_never_finite() {
    let place = Place::new();
    let model = |train: &str| model_of(&BODY.replace("relu(", "square("), train);
    let train = TRAIN.replace("adam(lr: 0.02)", "sgd(lr: 1e20)");
    let args = ["--epochs", "1", "--weights-out", "w", "--report", "r.json"];
    for (lr, words) in [
        ("1e20", "`val.loss` is NaN after every epoch, so that none is the best one"),
        ("1e300", "parameters are not finite after training: "),
    ] {
        place.model(&model(&train.replace("1e20", lr)));
        place.with_data("train", &args).fails(1, &[words]);
        place.with_data("train", &[&args[..], &["--checkpoint", lr]].concat()).fails(1, &[words]);
    }
    assert_eq!(place.names(), ["1e20", "1e300", "data", "m.hgnn"]);
    // Guesses can be counted all the same; what is not finite is not passed over in silence.
    place.model(&model(&train.replace("metrics", "select val.accuracy metrics")));
    let run = place.with_data("train", &args).works();
    assert!(run.err.contains("warning: `val.loss` is NaN"), "{}", run.err);
    let run = place.with_data("eval", &["--weights", "w"]).works();
    assert!(run.err.contains("warning: `val.loss` is NaN"), "{}", run.err);
    let run = place.with_data("infer", &["--weights", "w", "--out", "o.npy"]).works();
    let words = ["warning: not all results are finite: ", " of the 120 elements of `logits`, the first one NaN at ["];
    assert!(words.iter().all(|words| run.err.contains(words)), "{}", run.err);
}

#[test]
fn a_loss_that_explodes_leaves_the_best_weights() {
    let place = Place::new();
    let train = TRAIN.replace("adam(lr: 0.02)", "sgd(lr: 5)");
    place.model(&model_of(&BODY.replace("relu(", "square("), &train));
    let run = place.with_data("train", &["--weights-out", "w.safetensors", "--report", "r.json", "--checkpoint", "c"]);
    run.fails(1, &["the loss is", "in epoch ", "best one", "are kept", "learning rate", "written to w.safetensors"]);
    let weights = place.weights("w.safetensors");
    assert!(weights.values().all(|(_, data)| data.iter().all(|x| x.is_finite())));
    place.with_data("eval", &["--weights", "w.safetensors"]).works();
    assert_eq!(place.names(), ["data", "m.hgnn", "w.safetensors"]);

    // Without a good epoch there is nothing to keep.
    place.model(&model_of(&BODY.replace("relu(", "square("), &TRAIN.replace("adam(lr: 0.02)", "sgd(lr: 1e30)")));
    let run = place.with_data("train", &["--weights-out", "v.safetensors"]);
    run.fails(1, &["the loss is", "learning rate"]);
}

/// A file system of a few pages. `None`, with a printed reason, where none can be had.
#[cfg(target_os = "linux")]
fn tiny_disk(place: &Place) -> Option<Disk> {
    let path = place.path("disk");
    std::fs::create_dir(&path).expect("made");
    let status = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&path)
        .stderr(std::process::Stdio::null())
        .status();
    if status.is_ok_and(|s| s.success()) {
        return Some(Disk(path));
    }
    println!("skipped: no file system can be mounted here");
    None
}

#[cfg(target_os = "linux")]
struct Disk(std::path::PathBuf);

#[cfg(target_os = "linux")]
impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_old_files_alone() {
    let place = Place::new();
    // 200 columns: the weights take 2 · 12 · 200 · 4 bytes and more.
    place.model(&usual().replace("hidden: 8", "hidden: 400"));
    let Some(disk) = tiny_disk(&place) else { return };
    std::fs::write(disk.0.join("w.safetensors"), "old").expect("written");
    std::fs::write(disk.0.join("o.npy"), "old").expect("written");
    let listed = names(&disk.0);
    let unchanged = || {
        assert_eq!(names(&disk.0), listed);
        assert_eq!((place.bytes("disk/w.safetensors"), place.bytes("disk/o.npy")), (b"old".to_vec(), b"old".to_vec()));
    };
    let run = place.with_data("train", &["--epochs", "1", "--weights-out", "disk/w.safetensors"]);
    run.fails(3, &["cannot write disk/w.safetensors", "space"]);
    unchanged();
    // The trained parameters are kept, and the run still prints its summary.
    assert!(run.out.contains("finished: 1 epochs"), "{}", run.out);
    let kept =
        run.err.lines().find_map(|line| line.strip_prefix("the parameters were written to ")?.strip_suffix(" instead"));
    let kept = kept.expect("another file");
    place.with_data("eval", &["--weights", kept]).works();
    std::fs::remove_file(kept).expect("gone");
    // A checkpoint that does not fit takes neither the rest of the training nor its results with it.
    let checkpoint = ["--checkpoint", "disk", "--checkpoint-every", "0"];
    let results = ["--epochs", "12", "--weights-out", "w.safetensors", "--report", "r.json"];
    let run = place.with_data("train", &[&checkpoint[..], &results].concat());
    run.fails(
        3,
        &[
            "warning: no checkpoint could be written after epoch 1: cannot write disk/checkpoint.safetensors: No space",
            "error: the last checkpoint could not be written: cannot write disk/checkpoint.safetensors: No space",
            "there is no checkpoint in `disk`",
        ],
    );
    assert_eq!(run.err.matches("warning: no checkpoint").count(), 1, "{}", run.err);
    assert!(run.out.contains("finished: 12 epochs"), "{}", run.out);
    unchanged();
    place.with_data("eval", &["--weights", "w.safetensors", "--report", "e.json"]).works();
    assert_eq!(place.json("e.json")["metrics"], place.json("r.json")["metrics"]);
    let warnings = place.json("r.json")["warnings"].to_string();
    assert!(warnings.contains("no checkpoint could be written"), "{warnings}");
    assert_eq!(place.json("r.json")["epochs"], 12);
    // Fill the rest, and write an output of a few hundred bytes.
    let used = std::fs::write(disk.0.join("ballast"), vec![1u8; 1 << 20]);
    assert!(used.is_err(), "the disk is larger than it should be");
    place
        .with_data("infer", &["--weights", "w.safetensors", "--out", "disk/o.npy"])
        .fails(3, &["cannot write", "disk/o.npy"]);
    place.with_data("eval", &["--weights", "w.safetensors", "--report", "disk/e.json"]).fails(3, &["cannot write"]);
    std::fs::remove_file(disk.0.join("ballast")).expect("gone");
    unchanged();
    let synth = place.run(&["data", "synth", "cora", "disk/cora"]);
    synth.fails(3, &["cannot write"]);
    unchanged();
}

/// Training outlives a disk that is full for a while.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_that_is_cleared_gets_the_next_checkpoint() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    place.model(&usual());
    let Some(disk) = tiny_disk(&place) else { return };
    let fill = || std::fs::write(disk.0.join("ballast"), vec![1u8; 1 << 20]).expect_err("it is full");
    let args = ["train", "m.hgnn", "--data", "data", "--epochs", "100000000", "--checkpoint", "disk/c"];
    let mut command = place.command(&[&args[..], &["--checkpoint-every", "0"]].concat());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut wait_for = |words: &str| {
        lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(words))).expect("the words").expect("a line")
    };
    wait_for("epoch ");
    // An epoch is told of before its checkpoint is written.
    while !place.path("disk/c/checkpoint.safetensors").exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    fill();
    wait_for("warning: no checkpoint could be written after epoch ");
    let before = checkpoint::progress_of(&place.path("disk/c")).expect("the one before").epochs_done;
    std::fs::remove_file(disk.0.join("ballast")).expect("gone");
    wait_for("warning: a checkpoint could be written again after epoch ");
    assert!(checkpoint::progress_of(&place.path("disk/c")).expect("a newer one").epochs_done > before);
    let interrupted = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupted.is_ok_and(|status| status.success()));
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(names(&place.path("disk/c")), ["checkpoint.safetensors"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written() {
    let place = Place::new();
    place.model(&usual());
    // Even the superuser creates nothing here.
    for option in ["--report", "--weights-out"] {
        let run = place.with_data("train", &[option, "/proc/none"]);
        assert!(matches!(run.code, Some(1 | 3)), "{run:?}");
        assert!(run.err.contains("cannot write") && !run.err.contains("epoch "), "{run:?}");
    }
    let run: Run = place.with_data("train", &["--epochs", "1", "--checkpoint", "/proc/none"]);
    run.fails(3, &["cannot", "/proc/none"]);
}

/// The loss is NaN, and what gave the first NaN is named: the operation, the vertex, its number, and the place in the
/// model.
#[test]
fn a_loss_that_is_nan_names_where_it_comes_from() {
    let place = Place::new();
    // The logarithm of a negative unit is NaN, in the first forward pass.
    place.model(&model_of(&BODY.replace("relu(", "log("), TRAIN));
    let run = place.with_data("train", &["--quiet"]);
    run.fails(
        1,
        &[
            "the loss is NaN in epoch 1",
            "The first number that is not finite is NaN: `log` of -",
            " at vertex ",
            " of `",
        ],
    );
    assert!(run.err.contains("(m.hgnn:") && !run.err.contains("learning rate"), "{}", run.err);
    // At 0 a square root has no derivative: the loss is finite, and the first update is not.
    place.model(&model_of(&BODY.replace("relu(", "sqrt(0.0 * "), TRAIN));
    let run = place.with_data("train", &["--quiet"]);
    run.fails(1, &["the loss is NaN in epoch 2", "The first number of the gradient that is not finite is "]);
}
