//! The same work under `mpirun`, with each MPI that is installed.

mod mpirun;
mod work;

use std::time::Duration;

use hgnnc_dist::Tag;
use mpirun::{installed, text};

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
