//! `hgnnc cluster`, and what launchers may not start.

use std::process::Command;

use crate::common::Place;

/// A command as the launcher of MPICH starts it, on no MPI.
fn launched(place: &Place, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hgnnc"));
    let variables = [("PMI_SIZE", "2"), ("PMI_RANK", "1"), ("HGNNC_MPI", "libnone.so")];
    let output = command.args(args).current_dir(place.path(".")).envs(variables).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

#[test]
fn one_process_is_a_job_too() {
    let place = Place::new();
    let run = place.run(&["cluster", "check"]).works();
    assert!(run.out.starts_with("1 rank on 1 machine: one process\n"), "{}", run.out);
    assert!(run.out.contains("all ranks run the same binary"), "{}", run.out);
    place.run(&["cluster", "measure"]).fails(1, &["two ranks at least exchange messages"]);
}

#[test]
fn several_processes_of_a_command_are_refused() {
    let place = Place::new();
    place.model("model M");
    for args in [&["build", "m.hgnn"][..], &["profile", "diff", "a", "b"]] {
        let (code, text) = launched(&place, args);
        assert_eq!(code, Some(1));
        assert!(text.contains("error: mpirun of MPICH started 2 processes of this command"), "{text}");
        assert!(text.contains("`hgnnc train`, `eval`, `infer`, `profile MODEL` and `cluster` take several"), "{text}");
    }
    let (code, text) = launched(&place, &["cluster", "check"]);
    assert_eq!(code, Some(3));
    assert!(text.contains("mpirun of MPICH started this process, but no MPI library for it was found"), "{text}");
}

#[test]
fn the_ranks_of_a_launcher_are_checked_and_measured() {
    let place = Place::new();
    for (launcher, args, engine) in [
        ("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"][..], "Open MPI"),
        ("mpirun.mpich", &["-env", "HGNNC_MPI", "libmpich.so.12"], "MPICH"),
    ] {
        let job = |of: &[&str]| {
            let mut command = Command::new(launcher);
            command.args(args).args(["-n", "2", env!("CARGO_BIN_EXE_hgnnc"), "cluster"]).args(of);
            command.current_dir(place.path(".")).output()
        };
        let starts = Command::new(launcher).args(args).args(["-n", "2", "true"]).output();
        if !starts.is_ok_and(|output| output.status.success()) {
            println!("skipped: {launcher} is not installed, or starts no processes here");
            continue;
        }
        let output = job(&["check"]).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{launcher}: {text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.starts_with(&format!("2 ranks on 1 machine: {engine}")), "{launcher}: {text}");
        assert_eq!(text.matches("all ranks run the same binary").count(), 1, "{launcher}: {text}");
        let file = format!("{launcher}.toml");
        let output = job(&["measure", "--out", &file]).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("a sum in the order of the ranks"), "{launcher}: {text}");
        let written = std::fs::read_to_string(place.path(&file)).unwrap();
        assert!(written.contains("ranks = 2\n") && written.contains("bytes_per_s = "), "{written}");
        // A file that cannot be written ends the job on all ranks.
        let output = job(&["measure", "--out", "nowhere/there.toml"]).unwrap();
        assert!(!output.status.success(), "{launcher}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("rank 0 ends the job: ") && text.contains("nowhere"), "{launcher}: {text}");
    }
}
