//! The same work under `mpirun`, with each MPI that is installed: Debian's `openmpi-bin` and `mpich`, and one with the
//! standard ABI in the folder HGNN_MPI_ABI (`pip install mpich` in a virtual environment). Tests of what is not there say
//! that they are skipped.

mod work;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use hgnnc_dist::Tag;

/// A launcher, and the library that belongs to it if it must be named.
struct Installed {
    name: &'static str,
    launcher: PathBuf,
    args: &'static [&'static str],
    library: Option<PathBuf>,
}

fn installed() -> Vec<Installed> {
    let on_path = |name: &str| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    let of_standard = std::env::var_os("HGNN_MPI_ABI").map(PathBuf::from);
    let all = [
        ("Open MPI", on_path("mpirun.openmpi"), &["--allow-run-as-root", "--oversubscribe"][..], None),
        ("MPICH", on_path("mpirun.mpich"), &[], Some(PathBuf::from("libmpich.so.12"))),
        (
            "standard ABI",
            of_standard.as_ref().map(|folder| folder.join("bin/mpiexec")),
            &[],
            of_standard.map(|folder| folder.join("lib/libmpi_abi.so.1")),
        ),
    ];
    let found = all.into_iter().filter_map(|(name, launcher, args, library)| {
        let starts = |launcher: &PathBuf| {
            let output = Command::new(launcher).args(args).args(["-n", "2", "true"]).output();
            output.is_ok_and(|output| output.status.success())
        };
        match launcher.filter(starts) {
            Some(launcher) => Some(Installed { name, launcher, args, library }),
            None => {
                println!("skipped: {name} is not installed, or starts no processes here");
                None
            }
        }
    });
    found.collect()
}

impl Installed {
    /// Runs a test of this file as the ranks of a job.
    fn run(&self, ranks: usize, test: &str, variables: &[(&str, &str)]) -> (Output, Duration) {
        let start = Instant::now();
        let mut command = Command::new(&self.launcher);
        command.args(self.args).args(["-n", &ranks.to_string()]).arg(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", test, "--nocapture"]);
        if let Some(library) = &self.library {
            command.env("HGNNC_MPI", library);
        }
        command.envs(variables.iter().copied());
        (command.output().unwrap(), start.elapsed())
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
#[ignore = "a rank of a job that the tests below start"]
fn rank_that_works() {
    let comm = hgnnc_dist::open().unwrap();
    for seed in 0..5 {
        work::everything(&*comm, seed);
    }
    println!("rank {} of {} on {}", comm.rank(), comm.size(), comm.engine());
}

#[test]
#[ignore = "a rank of a job that the tests below start"]
fn rank_that_dies() {
    let comm = hgnnc_dist::open().unwrap();
    comm.barrier().unwrap();
    if comm.rank() == 1 {
        std::process::exit(9);
    }
    comm.barrier().unwrap();
    println!("rank {} goes on", comm.rank());
}

#[test]
#[ignore = "a rank of a job that the tests below start"]
fn rank_that_is_silent() {
    let comm = hgnnc_dist::open().unwrap();
    if comm.rank() == 1 {
        std::thread::sleep(Duration::from_secs(30));
    }
    comm.barrier().unwrap();
}

#[test]
#[ignore = "a rank of a job that the tests below start"]
fn rank_that_gives_up() {
    let comm = hgnnc_dist::open().unwrap();
    match comm.rank() {
        0 => comm.abort("the disk is full"),
        _ => comm
            .alltoallv(
                Tag::STEP,
                (&vec![0; comm.size()], &vec![1; comm.size()]),
                (&mut vec![0; comm.size()], &vec![1; comm.size()]),
            )
            .unwrap(),
    }
}

#[test]
#[ignore = "a rank of a job that the tests below start"]
fn rank_of_another_library() {
    match hgnnc_dist::open() {
        Ok(comm) => println!("rank {} of {}", comm.rank(), comm.size()),
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn ranks_exchange_and_add_as_virtual_ones() {
    for mpi in installed() {
        for ranks in [1, 2, 4] {
            let (output, _) = mpi.run(ranks, "rank_that_works", &[]);
            let text = text(&output);
            assert!(output.status.success(), "{}, {ranks} ranks: {text}", mpi.name);
            for rank in 0..ranks {
                assert!(text.contains(&format!("rank {rank} of {ranks} on ")), "{}, {ranks} ranks: {text}", mpi.name);
            }
        }
    }
}

#[test]
fn a_rank_that_dies_ends_the_job() {
    for mpi in installed() {
        let (output, time) = mpi.run(3, "rank_that_dies", &[]);
        assert!(!output.status.success() && time < Duration::from_secs(20), "{}: {time:?}", mpi.name);
        assert!(!text(&output).contains("goes on"), "{}", mpi.name);
    }
}

#[test]
fn a_rank_that_is_silent_is_named() {
    for mpi in installed() {
        let (output, time) = mpi.run(2, "rank_that_is_silent", &[("HGNNC_RANK_TIMEOUT", "1")]);
        let text = text(&output);
        assert!(!output.status.success() && time < Duration::from_secs(20), "{}: {time:?}: {text}", mpi.name);
        assert!(text.contains("rank 0 ends the job: rank 0 waits for rank 1 since 1 s"), "{}: {text}", mpi.name);
    }
}

#[test]
fn a_rank_that_gives_up_says_why() {
    for mpi in installed() {
        let (output, time) = mpi.run(3, "rank_that_gives_up", &[]);
        let text = text(&output);
        assert!(!output.status.success() && time < Duration::from_secs(20), "{}: {time:?}: {text}", mpi.name);
        assert!(text.contains("rank 0 ends the job: the disk is full"), "{}: {text}", mpi.name);
    }
}

#[test]
fn a_library_of_another_launcher_is_refused() {
    let all = installed();
    let (Some(mpich), Some(_)) =
        (all.iter().find(|of| of.name == "MPICH"), all.iter().find(|of| of.name == "Open MPI"))
    else {
        return println!("skipped: Open MPI and MPICH are not both installed");
    };
    let (output, _) = mpich.run(2, "rank_of_another_library", &[("HGNNC_MPI", "libmpi.so.40")]);
    let found = text(&output);
    assert_eq!(found.matches("refused: mpirun of MPICH started 2 processes, but Open MPI").count(), 2, "{found}");
    assert!(found.contains("sees 1: they do not belong together"), "{found}");
    let (output, _) = mpich.run(2, "rank_of_another_library", &[("HGNNC_RANK_TIMEOUT", "10m")]);
    let found = text(&output);
    assert!(found.contains("HGNNC_RANK_TIMEOUT is `10m`, which is not a whole number of seconds"), "{found}");
    let (output, _) = mpich.run(2, "rank_of_another_library", &[("HGNNC_MPI", "libnone.so")]);
    let found = text(&output);
    assert!(found.contains("mpirun of MPICH started this process, but no MPI library for it was found:"), "{found}");
    assert!(found.contains("libnone.so: cannot open shared object file"), "{found}");
}
