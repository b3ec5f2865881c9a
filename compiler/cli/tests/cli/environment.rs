//! Limits and faults of the environment: too few threads, inputs that are no regular files, invalid descriptions of
//! machines.

#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::{Place, Run, names, usual};

/// Runs a command under `timeout`, after a few words that change what it may do.
fn run_with(place: &Place, words: &[&str], args: &[&str]) -> Run {
    let command = place.command(args);
    let mut limited = Command::new("timeout");
    limited.arg("60").args(words).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.env("HGNNC_CACHE", place.path("cache")).current_dir(place.folder.path());
    let run = Run::of(limited.output().expect("a command of the system"));
    assert_ne!(run.code, Some(124), "it does not end: {args:?} {run:?}");
    run
}

/// The limit on threads does not hold for the superuser: another user runs the command.
#[test]
fn threads_that_cannot_be_started() {
    let place = Place::new();
    let batches = usual().replace("epochs    30", "epochs 3 batch 4 fanout [2, 2]");
    std::fs::write(place.path("batches.hgnn"), batches).expect("written");
    place.model(&usual());
    place.with_data("train", &["--quiet", "--epochs", "1", "--weights-out", "w"]).is_silent();
    std::fs::set_permissions(place.folder.path(), PermissionsExt::from_mode(0o777)).expect("ours");
    let limited = |threads: u32, args: &[&str]| {
        let limit = format!("--nproc={threads}");
        let user = ["setpriv", "--reuid", "61234", "--regid", "61234", "--clear-groups", "prlimit", &limit];
        run_with(&place, &user, args)
    };
    let known = limited(64, &["check", "m.hgnn"]);
    if known.code != Some(0) {
        println!("skipped: no command can be run as another user: {}", known.err);
        return;
    }
    let commands: [&[&str]; 8] = [
        &["train", "m.hgnn", "--data", "data", "--epochs", "2", "--threads", "2"],
        &["train", "m.hgnn", "--data", "data", "--epochs", "2", "--checkpoint", "c"],
        &["train", "batches.hgnn", "--data", "data", "--cache", "1K", "--threads", "2"],
        &["eval", "m.hgnn", "--data", "data", "--weights", "w"],
        &["infer", "m.hgnn", "--data", "data", "--weights", "w", "--out", "o.npy"],
        &["check", "m.hgnn", "--data", "data"],
        &["data", "info", "data"],
        &["data", "synth", "cora", "cora"],
    ];
    for args in commands {
        let mut worked = 0;
        for threads in 1..=9 {
            let run = limited(threads, args);
            let _ = std::fs::remove_dir_all(place.path("c"));
            if run.code == Some(0) {
                worked += 1;
            } else {
                run.fails(3, &["cannot start", "thread"]);
            }
            assert!(threads > 1 || run.code == Some(3), "not even one: {args:?} {run:?}");
        }
        let enough = limited(64, args);
        let _ = std::fs::remove_dir_all(place.path("c"));
        assert_eq!(enough.code, Some(0), "{worked} worked: {args:?} {enough:?}");
    }
}

fn pipe(path: &Path) {
    let _ = std::fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().expect("a command of the system").success());
}

/// Reading them would wait for ever, or until memory ends.
#[test]
fn inputs_are_regular_files() {
    let place = Place::new();
    place.model(&usual());
    place.with_data("train", &["--quiet", "--epochs", "1", "--weights-out", "w"]).is_silent();
    pipe(&place.path("pipe"));
    let model = ["m.hgnn", "--data", "data"];
    for (file, what) in [("pipe", "it is a pipe"), ("/dev/zero", "it is a device")] {
        for args in [
            &["check", file][..],
            &["build", file],
            &["train", file, "--data", "data"],
            &[&["eval"], &model[..], &["--weights", file]].concat(),
            &[&["infer"], &model[..], &["--out", "o.npy", "--weights", file]].concat(),
            &[&["infer"], &model[..], &["--out", "o.npy", "--weights", "w", "--links", file]].concat(),
            &[&["train"], &model[..], &["--init", file]].concat(),
            &["build", "m.hgnn", "--emit", "plan", "--stats", file],
            &["profile", "diff", file, file],
        ] {
            run_with(&place, &[], args).fails(1, &[file, what, "only regular files are read"]);
        }
    }
    let train = [&["train"], &model[..], &["--quiet", "--epochs", "1", "--checkpoint", "c"]].concat();
    std::fs::create_dir(place.path("c")).expect("made");
    for (name, words) in [("checkpoint.safetensors", "it is a pipe"), ("checkpoint.lock", "is not a file")] {
        pipe(&place.path("c").join(name));
        let resume: &[&str] = if name.ends_with("lock") { &[] } else { &["--resume"] };
        run_with(&place, &[], &[&train[..], resume].concat()).fails(1, &[name, words]);
        std::fs::remove_file(place.path("c").join(name)).expect("gone");
    }
    for name in ["writes.npy", "author.x.npy", "dataset.toml"] {
        let before = place.bytes(&format!("data/{name}"));
        pipe(&place.path("data").join(name));
        run_with(&place, &[], &["data", "info", "data"]).fails(1, &["it is a pipe, and only regular files are read"]);
        run_with(&place, &[], &train).fails(1, &["it is a pipe, and only regular files are read"]);
        std::fs::remove_file(place.path("data").join(name)).expect("gone");
        std::fs::write(place.path("data").join(name), before).expect("written");
    }
    run_with(&place, &[], &train).is_silent();
}

/// A description with rates beyond every machine made predictions run for ever.
#[test]
fn a_description_of_no_machine_is_measured_again() {
    let place = Place::new();
    place.model(&usual());
    let args = ["profile", "m.hgnn", "--data", "data", "--epochs", "3", "--threads", "1"];
    let described = || {
        let found = run_with(&place, &[], &args).works();
        let file = names(&place.path("cache")).into_iter().find(|name| name.starts_with("machine-"));
        (found, file.map(|name| place.path("cache").join(name)))
    };
    std::fs::create_dir(place.path("cache")).expect("made");
    // Measurements that others have disturbed are not kept.
    let Some(file) = (0..20).find_map(|_| described().1) else {
        println!("skipped: this machine is too busy to be described");
        return;
    };
    let good = std::fs::read_to_string(&file).expect("a text");
    for key in ["fma_flops", "special_per_s", "cycle_s", "bytes", "gather_bytes_per_s"] {
        let line = good.lines().find(|line| line.starts_with(&format!("{key} = "))).expect("a number");
        for bad in ["nan", "inf", "1e300", "-1.0", "0.0"] {
            // A cycle may take no time.
            if (key, bad) == ("cycle_s", "0.0") {
                continue;
            }
            std::fs::write(&file, good.replacen(line, &format!("{key} = {bad}"), 1)).expect("written");
            let (run, _) = described();
            assert!(run.err.contains("warning: the processor is measured again, since "), "{key} {bad}: {}", run.err);
        }
    }
    pipe(&file);
    let (run, _) = described();
    assert!(run.err.contains("it is a pipe"), "{}", run.err);
}
