//! NCCL, as a library that has devices in memory and passes messages in files. Nothing of a GPU is tested.

mod mpirun;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hgnnc_dist::nccl::{Nccl, Options};
use hgnnc_dist::{Comm, CommError, Exchange, Pending, Tag, threads};
use hgnnc_nccl_library::{BROKEN, DEVICES, FULL, SILENT};
use libloading::os::unix::Library;
use mpirun::{installed, text};
use proptest::prelude::*;

/// Options for the library, which holds NCCL and the driver.
fn options() -> Options {
    let path = hgnnc_nccl_library::library().expect("it is built").to_string_lossy().into_owned();
    let (nccl, driver) = (vec![path.clone()], vec![path]);
    Options { staging: 1 << 16, patience: Some(Duration::from_secs(60)), nccl, driver, ..Options::default() }
}

/// Runs a rank on each of some devices. The ranks of NCCL end with the work of a rank.
fn run<T: Send>(devices: &[usize], work: impl Fn(&Nccl) -> T + Sync) -> Vec<Result<T, CommError>> {
    threads::run(devices.len(), |control| {
        let options = Options { device: Some(devices[control.rank()]), ..options() };
        Nccl::open(Arc::clone(control), &options).map(|nccl| work(&nccl))
    })
}

/// A function of the library that tests call.
#[allow(unsafe_code)]
fn count<T>(function: &str, device: usize) -> T {
    // SAFETY: the library has no initialisers, and the functions take a number.
    unsafe {
        let library = Library::new(hgnnc_nccl_library::library().expect("it is built")).expect("it opens");
        let function = library.get::<unsafe extern "C" fn(usize) -> T>(function.as_bytes()).expect("it is there");
        function(device)
    }
}

fn in_use(devices: &[usize]) -> usize {
    devices.iter().map(|&device| count::<usize>("hgnn_test_in_use", device)).sum()
}

/// The bytes `byte`, one for each rank and from each.
fn exchange(size: usize, byte: u8) -> Exchange {
    Exchange { send: vec![byte; size], send_counts: vec![1; size], recv: vec![0; size], recv_counts: vec![1; size] }
}

fn send_one(nccl: &Nccl) -> Result<(), CommError> {
    nccl.start(Tag::STEP, exchange(nccl.size(), 7))?.wait().map(|done| assert_eq!(done.recv, vec![7; nccl.size()]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn exchanges_and_sums_are_those_of_virtual_ranks(size in 1usize..6, seed in any::<u64>(), staging in 0usize..40_000) {
        threads::run(size, |control| {
            let nccl = Nccl::open(Arc::clone(control), &Options { staging, ..options() }).unwrap();
            work::everything(&nccl, seed);
        });
    }
}

#[test]
fn ranks_start_exchanges_of_several_tags_in_any_order() {
    let all = run(&[0, 1, 2], |nccl| {
        let rank = nccl.rank();
        for round in 0..40 {
            let mut tags = [1, 2, 3];
            tags.rotate_left((rank + round) % 3);
            let start = |tag: u16| (tag, nccl.start(Tag(tag), exchange(3, tag as u8)).unwrap());
            let mut started: Vec<(u16, Box<dyn Pending>)> = tags.map(start).into_iter().collect();
            started.rotate_left(round % 2);
            for (tag, pending) in started {
                assert_eq!(pending.wait().unwrap().recv, vec![tag as u8; 3], "rank {rank}");
            }
        }
        // Rank 0 has started both, and the others wait for the second before they start the first.
        let first = (rank == 0).then(|| nccl.start(Tag::STEP, exchange(3, 1)).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(nccl.start(Tag::AHEAD, exchange(3, 2)).unwrap().wait().unwrap().recv, [2; 3]);
        let first = first.unwrap_or_else(|| nccl.start(Tag::STEP, exchange(3, 1)).unwrap());
        assert_eq!(first.wait().unwrap().recv, [1; 3]);
    });
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

/// Another engine, with the bytes that go over it, other than those of the start and the end of a job.
#[derive(Debug)]
struct Counted {
    comm: Arc<dyn Comm>,
    bytes: AtomicU64,
}

impl Comm for Counted {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn size(&self) -> usize {
        self.comm.size()
    }

    fn engine(&self) -> &str {
        self.comm.engine()
    }

    fn alltoallv(&self, tag: Tag, send: (&[u8], &[usize]), recv: (&mut [u8], &[usize])) -> Result<(), CommError> {
        if tag != Tag::CONTROL {
            self.bytes.fetch_add(send.0.len() as u64, Ordering::Relaxed);
        }
        self.comm.alltoallv(tag, send, recv)
    }

    fn start(&self, tag: Tag, exchange: Exchange) -> Result<Box<dyn Pending>, CommError> {
        self.comm.start(tag, exchange)
    }

    fn abort(&self, reason: &str) {
        self.comm.abort(reason);
    }
}

#[test]
fn bytes_go_from_device_to_device_and_control_has_numbers_only() {
    const BYTES: usize = 100_000;
    let devices = [10, 11, 12];
    let control_bytes = threads::run(3, |comm| {
        let control = Arc::new(Counted { comm: Arc::clone(comm), bytes: AtomicU64::new(0) });
        let options = Options { device: Some(devices[comm.rank()]), ..options() };
        let nccl = Nccl::open(Arc::clone(&control) as Arc<dyn Comm>, &options).unwrap();
        assert!(nccl.engine().starts_with("NCCL 2.27.3 ("), "{}", nccl.engine());
        let place = format!(" on cuda:{}, over virtual ranks of one process", devices[comm.rank()]);
        assert!(nccl.engine().ends_with(&place), "{}", nccl.engine());
        let send: Vec<u8> = (0..3 * BYTES).map(|at| (at / 7 + comm.rank()) as u8).collect();
        let (mut recv, counts) = (vec![0; 3 * BYTES], [BYTES; 3]);
        nccl.alltoallv(Tag::STEP, (&send, &counts), (&mut recv, &counts)).unwrap();
        let expected = (0..3 * BYTES).map(|at| ((at % BYTES + comm.rank() * BYTES) / 7 + at / BYTES) as u8);
        assert!(recv.into_iter().eq(expected));
        control.bytes.load(Ordering::Relaxed)
    });
    // One number for each rank, then five.
    assert_eq!(control_bytes, [3 * (8 + 40); 3]);
    // The part of a rank for itself goes nowhere.
    assert_eq!(devices.map(|device| count::<u64>("hgnn_test_sent", device)), [2 * BYTES as u64; 3]);
    assert_eq!(in_use(&devices), 0, "everything is released");
}

#[test]
fn ranks_that_expect_other_bytes_are_named_on_all_ranks() {
    let all = run(&[0, 1, 2], |nccl| {
        // Rank 1 expects 3 bytes of rank 0, which sends 4.
        let counts = [if nccl.rank() == 1 { 3 } else { 4 }, 4, 4];
        let mut recv = vec![0; counts.iter().sum()];
        let differs = nccl.alltoallv(Tag::STEP, (&[0; 12], &[4; 3]), (&mut recv, &counts));
        // Nothing was sent: ranks can go on.
        send_one(nccl).unwrap();
        differs
    });
    assert_eq!(all, vec![Ok(Err(CommError::Differs { from: 0, to: 1, sent: 4, expected: 3 })); 3]);
}

#[test]
fn an_exchange_that_nobody_waits_for_leaves_no_messages() {
    let all = run(&[0, 1], |nccl| {
        drop(nccl.start(Tag::STEP, exchange(2, 1)).unwrap());
        assert_eq!(nccl.start(Tag::STEP, exchange(2, 2)).unwrap().wait().unwrap().recv, [2; 2]);
        nccl.start(Tag::AHEAD, exchange(2, 3)).unwrap()
    });
    // Waited for when the ranks are gone.
    for pending in all {
        assert_eq!(pending.unwrap().wait().unwrap().recv, [3; 2]);
    }
}

#[test]
fn a_library_that_is_missing_is_named() {
    let open = |options: &Options| threads::run(1, |control| Nccl::open(Arc::clone(control), options).map(|_| ()));
    let error = |options: &Options| open(options)[0].clone().unwrap_err().to_string();
    let missing = error(&Options { nccl: ["libnone.so.2", "libc.so.6"].map(String::from).to_vec(), ..options() });
    assert!(
        missing.starts_with("NCCL was asked for, but not found:\n  libnone.so.2: cannot open shared object"),
        "{missing}"
    );
    assert!(missing.contains("\n  libc.so.6: is no NCCL: "), "{missing}");
    let missing = error(&Options { driver: vec!["libnone.so.1".into()], ..options() });
    assert!(missing.starts_with("the NVIDIA driver was asked for, but not found:\n  libnone.so.1: "), "{missing}");
}

#[test]
fn all_ranks_have_the_error_of_the_one_that_cannot_join() {
    // One has no library.
    let results = threads::run(3, |control| {
        let nccl = if control.rank() == 1 { vec!["libnone.so".into()] } else { options().nccl };
        Nccl::open(Arc::clone(control), &Options { nccl, ..options() }).map(|_| ()).unwrap_err().to_string()
    });
    assert!(results[1].starts_with("NCCL was asked for, but not found:"), "{results:?}");
    for of in [&results[0], &results[2]] {
        assert!(of.starts_with("rank 1 has ended: NCCL was asked for, but not found:"), "{results:?}");
    }
    // One has no memory, no device, the device of another one.
    let library = hgnnc_nccl_library::library().unwrap();
    let driver = format!("cuMemAlloc of the NVIDIA driver ({}) failed: out of memory (code 2)", library.display());
    let device = format!("would use cuda:{DEVICES}, and sees {DEVICES} devices: NCCL takes one rank for each device");
    let usage = "failed: invalid usage (run with NCCL_DEBUG=WARN for details) (code 5): the last error of the library";
    for (devices, expected) in [([7, FULL], driver.as_str()), ([7, DEVICES], &device), ([8, 8], usage)] {
        let errors: Vec<String> =
            run(&devices, |_| ()).into_iter().map(|result| result.unwrap_err().to_string()).collect();
        assert!(errors.iter().all(|error| error.contains(expected)), "{devices:?}: {errors:?}");
    }
    // Their staging memory differs.
    let results = threads::run(2, |control| {
        let staging = 1 << (16 + control.rank());
        Nccl::open(Arc::clone(control), &Options { staging, ..options() }).map(|_| ()).unwrap_err().to_string()
    });
    assert!(results.iter().all(|error| error.starts_with("rank 1 has ended: its version of NCCL, or the size")));
    assert_eq!(in_use(&[7, 8, FULL]), 0, "everything is released");
}

#[test]
fn an_error_of_a_device_ends_the_job() {
    let start = Instant::now();
    let errors: Vec<CommError> = run(&[9, BROKEN], |nccl| {
        let first = send_one(nccl).unwrap_err();
        // It stays ended.
        assert!(send_one(nccl).is_err());
        first
    })
    .into_iter()
    .map(Result::unwrap)
    .collect();
    let expected =
        "failed: unhandled system error (run with NCCL_DEBUG=INFO for details) (code 2): the last error of the";
    assert!(errors[1].to_string().contains(expected), "{errors:?}");
    assert!(
        matches!(&errors[0], CommError::Failed { function: "ncclGroupEnd", .. } | CommError::Ended { .. }),
        "{errors:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(30), "ranks do not wait for one that has failed");
    assert_eq!(in_use(&[9, BROKEN]), 0, "everything is released");
}

#[test]
fn a_rank_that_is_silent_is_named() {
    let patience = Duration::from_secs(1);
    let results = threads::run(2, |control| {
        let device = Some([6, SILENT][control.rank()]);
        // Rank 1 has patience, so that its end does not come first.
        let patience = Some(if control.rank() == 0 { patience } else { Duration::from_secs(60) });
        let nccl = Nccl::open(Arc::clone(control), &Options { device, patience, ..options() }).unwrap();
        send_one(&nccl)
    });
    assert_eq!(results[0], Err(CommError::Silent { rank: 0, ranks: vec![1], since: patience }));
    assert!(matches!(&results[1], Err(CommError::Failed { .. } | CommError::Ended { .. })), "{results:?}");
    assert_eq!(in_use(&[6, SILENT]), 0, "everything is released");
}

#[test]
fn a_rank_that_gives_up_says_why() {
    let results = run(&[0, 1, 2], |nccl| {
        if nccl.rank() == 2 {
            nccl.abort("the disk is full");
        }
        send_one(nccl).and_then(|()| nccl.barrier())
    });
    let expected = CommError::Ended { rank: 2, reason: "the disk is full".into() };
    for result in results {
        // Another rank may still be about to join.
        assert_eq!(result.flatten(), Err(expected.clone()));
    }
}

#[test]
fn a_panic_of_a_rank_ends_the_job() {
    let start = Instant::now();
    let panic = std::panic::catch_unwind(|| {
        run(&[3, 4], |nccl| {
            send_one(nccl).unwrap();
            assert!(nccl.rank() != 1, "as planned");
            send_one(nccl).unwrap_err()
        })
    });
    let text = panic.unwrap_err().downcast::<String>().map_or_else(|_| "as planned".into(), |text| *text);
    assert!(text.contains("as planned") && start.elapsed() < Duration::from_secs(30), "{text}");
}

/// Opens NCCL on the processes of this job, on the device of a rank's place or the one that is given.
fn open(device: Option<usize>) -> Nccl {
    let control = Arc::from(hgnnc_dist::open().expect("MPI"));
    Nccl::open(control, &Options { device, ..options() }).expect("NCCL")
}

#[test]
#[ignore = "a rank of a job that the tests below start"]
fn rank_that_works() {
    let nccl = open(None);
    for seed in 0..3 {
        work::everything(&nccl, seed);
    }
    println!("rank {} of {} on {}", nccl.rank(), nccl.size(), nccl.engine());
}

#[test]
#[ignore = "a rank of a job that the tests below start"]
fn rank_that_breaks() {
    let rank = hgnnc_dist::launcher::Launcher::of_environment(&|name| std::env::var(name).ok()).and_then(|of| of.rank);
    let nccl = open(rank.map(|rank| if rank == 1 { BROKEN } else { rank }));
    send_one(&nccl).unwrap();
    println!("rank {} goes on", nccl.rank());
}

#[test]
fn processes_exchange_and_add_as_virtual_ranks() {
    for mpi in installed() {
        for ranks in [1, 3] {
            let folder = Folder::new(&format!("{}-{ranks}", mpi.name));
            let (output, _) = mpi.run(ranks, "rank_that_works", &[("HGNN_TEST_NCCL", folder.path())]);
            let text = text(&output);
            assert!(output.status.success(), "{}, {ranks} ranks: {text}", mpi.name);
            for rank in 0..ranks {
                let line = format!("rank {rank} of {ranks} on NCCL 2.27.3 (");
                assert!(text.contains(&line), "{}, {ranks} ranks: {text}", mpi.name);
                assert!(text.contains(&format!(") on cuda:{rank}, over ")), "{}, {ranks} ranks: {text}", mpi.name);
            }
        }
    }
}

#[test]
fn a_process_whose_device_fails_ends_the_job() {
    for mpi in installed() {
        let folder = Folder::new(mpi.name);
        let (output, time) = mpi.run(3, "rank_that_breaks", &[("HGNN_TEST_NCCL", folder.path())]);
        let text = text(&output);
        assert!(!output.status.success() && time < Duration::from_secs(30), "{}: {time:?}: {text}", mpi.name);
        // The first that sees it: the rank itself, or one that NCCL tells of it.
        assert!(text.contains(" ends the job: ncclGroupEnd of NCCL 2.27.3 ("), "{}: {text}", mpi.name);
        assert!(!text.contains("goes on"), "{}: {text}", mpi.name);
    }
}

/// A real NCCL, in the file HGNN_NCCL (`libnccl.so.2` of `pip download nvidia-nccl-cu12`), on a machine without a driver:
/// it opens, has all functions, makes an id, and says that it finds no driver.
#[test]
fn a_real_library_opens_and_finds_no_driver() {
    let Ok(path) = std::env::var("HGNN_NCCL") else { return println!("skipped: HGNN_NCCL names no library") };
    for ranks in [1, 2] {
        let errors = threads::run(ranks, |control| {
            Nccl::open(Arc::clone(control), &Options { nccl: vec![path.clone()], ..options() }).map(|_| ())
        });
        for error in errors {
            let Err(CommError::Failed { function, library, reason }) = error else { panic!("{error:?}") };
            assert_eq!(function, "ncclCommInitRankConfig");
            assert!(library.starts_with("NCCL 2.") && library.ends_with(&format!(" ({path})")), "{library}");
            assert!(reason.starts_with("unhandled cuda error") && reason.contains("CUDA driver version"), "{reason}");
        }
    }
}

/// The real library and driver: HGNN_NCCL_RANKS virtual ranks, on as many devices. One rank joins and leaves.
#[test]
fn ranks_exchange_over_devices_of_this_machine() {
    let Ok(ranks) = std::env::var("HGNN_NCCL_RANKS") else { return println!("skipped: no devices are named") };
    for staging in [0, Options::default().staging] {
        threads::run(ranks.parse().expect("a number of ranks"), |control| {
            let nccl = Nccl::open(Arc::clone(control), &Options { staging, ..Options::default() }).unwrap();
            work::everything(&nccl, 1);
            println!("{nccl:?}");
        });
    }
}

/// A folder for messages, which is removed when it is dropped.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("hgnnc-nccl-{}-{}", std::process::id(), name.replace(' ', "-"));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
