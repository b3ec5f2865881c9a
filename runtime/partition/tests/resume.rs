//! A run that ends early leaves nothing that looks like a dataset, and is continued to the same bytes. Results do not
//! depend on the number of threads.

mod common;

use common::{Place, StopAt, communities, random};
use hgnnc_partition::{By, Needs, Observer, Options, PartitionError, Stage, partition, work};
use std::ops::ControlFlow;
use std::sync::Mutex;

fn run(place: &Place, out: &str, options: &Options, observer: &dyn Observer) -> Result<(), PartitionError> {
    partition(&place.path("data"), &place.path(out), options, observer).map(drop)
}

/// Runs on a number of threads.
fn on(threads: usize, run: impl FnOnce() -> Result<(), PartitionError> + Send) -> Result<(), PartitionError> {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads").install(run)
}

/// Stages that were begun.
#[derive(Default)]
struct Stages(Mutex<Vec<Stage>>);

impl Observer for Stages {
    fn progress(&self, stage: Stage, _: u64, _: u64) -> ControlFlow<()> {
        let mut stages = self.0.lock().expect("no panic");
        if stages.last() != Some(&stage) {
            stages.push(stage);
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn a_run_that_ends_anywhere_is_continued_to_the_same_bytes() {
    let place = Place::of(&random(42));
    for by in By::ALL {
        let options = Options { by, passes: 3, ..Options::new(3) };
        let whole = format!("whole-{}", by.name());
        let all = StopAt::new(usize::MAX);
        run(&place, &whole, &options, &all).unwrap_or_else(|error| panic!("{error}"));
        let expected = place.files(&whole);
        for stop in 0..all.calls() {
            let error = run(&place, "parts", &options, &StopAt::new(stop)).expect_err("it was stopped");
            assert!(matches!(error, PartitionError::Stopped) && error.can_resume(), "{error}");
            assert!(!place.path("parts").exists());
            let resumed = Options { resume: true, ..options.clone() };
            run(&place, "parts", &resumed, &()).unwrap_or_else(|error| panic!("{stop}: {error}"));
            assert!(place.files("parts") == expected, "{by:?}, stopped at call {stop}");
            assert!(!work::folder(&place.path("parts")).exists());
            std::fs::remove_dir_all(place.path("parts")).expect("removed");
        }
    }
}

/// Stopped again at each of the stages, a run does none of the finished ones again.
#[test]
fn finished_stages_are_kept() {
    let place = Place::of(&communities(200, 2));
    let options = Options { passes: 3, ..Options::new(2) };
    let all = Stages::default();
    run(&place, "whole", &options, &all).unwrap_or_else(|error| panic!("{error}"));
    let passes = [1, 2, 3].map(|pass| Stage::Pass(pass, 3));
    let mut expected = vec![Stage::Check, Stage::Sort];
    expected.extend(passes);
    expected.extend([Stage::Count, Stage::Write]);
    assert_eq!(all.0.into_inner().expect("no panic"), expected);

    struct StopIn(Stage);
    impl Observer for StopIn {
        fn progress(&self, stage: Stage, _: u64, _: u64) -> ControlFlow<()> {
            if stage == self.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    run(&place, "parts", &options, &StopIn(passes[1])).expect_err("it was stopped");
    let resumed = Options { resume: true, ..options.clone() };
    let left = Stages::default();
    run(&place, "parts", &resumed, &left).unwrap_or_else(|error| panic!("{error}"));
    let expected = [passes[1], passes[2], Stage::Count, Stage::Write];
    assert_eq!(left.0.into_inner().expect("no panic"), expected);
    assert!(place.files("parts") == place.files("whole"));
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    let place = Place::of(&communities(20_000, 4));
    for by in By::ALL {
        let options = Options { by, ..Options::new(5) };
        for threads in [1, 2, 5] {
            let out = format!("{}-{threads}", by.name());
            on(threads, || run(&place, &out, &options, &())).unwrap_or_else(|error| panic!("{error}"));
        }
        let expected = place.files(&format!("{}-1", by.name()));
        assert!(expected == place.files(&format!("{}-2", by.name())));
        assert!(expected == place.files(&format!("{}-5", by.name())));
    }
}

#[test]
fn another_seed_gives_another_partition() {
    let place = Place::of(&communities(500, 4));
    for by in [By::Hash, By::Fennel] {
        let options = Options { by, ..Options::new(4) };
        let [a, b, c] = [None, Some(1), Some(2)].map(|seed| {
            let out = format!("{}-{seed:?}", by.name());
            run(&place, &out, &Options { seed, ..options.clone() }, &()).unwrap_or_else(|error| panic!("{error}"));
            place.files(&out)
        });
        assert!(a != b && b != c);
    }
}

#[test]
fn without_resume_a_run_starts_again() {
    let place = Place::of(&communities(200, 2));
    let options = Options::new(2);
    run(&place, "parts", &options, &StopAt::new(5)).expect_err("it was stopped");
    // Other options are taken, since nothing is continued.
    run(&place, "parts", &Options::new(3), &()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(place.names(), ["data", "parts"]);
}

#[test]
fn only_the_same_run_is_continued() {
    let place = Place::of(&communities(200, 2));
    let options = Options { resume: true, ..Options::new(2) };
    let error = run(&place, "parts", &options, &()).expect_err("nothing to resume");
    assert!(matches!(error, PartitionError::NothingToResume(_)), "{error}");
    assert_eq!(place.names(), ["data"]);
    run(&place, "parts", &Options::new(2), &StopAt::new(5)).expect_err("it was stopped");
    let error = run(&place, "parts", &Options { ranks: 3, ..options.clone() }, &()).expect_err("other options");
    assert!(error.to_string().contains("run of other options"), "{error}");
    let file = place.path("data/0.cites.edges.npy");
    let bytes = std::fs::read(&file).expect("edges");
    std::fs::write(&file, bytes).expect("written at another time");
    let error = run(&place, "parts", &options, &()).expect_err("another dataset");
    assert!(error.to_string().contains("before its files were changed"), "{error}");
    // The work folder stays, so that it can still be continued or removed.
    assert!(work::folder(&place.path("parts")).is_dir());
}

#[test]
fn two_runs_do_not_share_a_target() {
    let place = Place::of(&communities(200, 2));
    struct Other<'a>(&'a Place, Mutex<Vec<String>>);
    impl Observer for Other<'_> {
        fn progress(&self, _: Stage, _: u64, _: u64) -> ControlFlow<()> {
            let error = run(self.0, "parts", &Options::new(2), &()).expect_err("busy");
            self.1.lock().expect("no panic").push(error.to_string());
            ControlFlow::Continue(())
        }
    }
    let other = Other(&place, Mutex::default());
    run(&place, "parts", &Options::new(2), &other).unwrap_or_else(|error| panic!("{error}"));
    let errors = other.1.into_inner().expect("no panic");
    assert!(!errors.is_empty() && errors.iter().all(|error| error.contains("another process writes")), "{errors:?}");
}

/// 8 bytes for each vertex, whatever the number of edges, and what is fixed.
#[test]
fn memory_grows_with_vertices_only() {
    let of = |vertices: u64, edges: u64, ranks: usize| Needs::new(vertices, edges, 0, 2, &Options::new(ranks)).memory;
    assert_eq!(of(2_000_000, 1, 4) - of(1_000_000, 1, 4), 8_000_000);
    assert_eq!(of(1000, 1, 4), of(1000, 1_000_000_000, 4));
    let most = of(9_200_000, 100_000_000, 8);
    assert!(most < 512 << 20, "{most}");
    assert!(of(1_000_000_000, 10_000_000_000, 64) < 9_000_000_000);
    let hash = Options { by: By::Hash, ..Options::new(4) };
    assert!(Needs::new(1000, 1000, 0, 2, &hash).work_disk < 10_000);
}

#[test]
fn too_little_memory_is_refused_before_the_work() {
    struct Begun(Mutex<Option<Needs>>);
    impl Observer for Begun {
        fn begin(&self, needs: &Needs) {
            *self.0.lock().expect("no panic") = Some(*needs);
        }
    }
    let place = Place::of(&communities(200, 2));
    let begun = Begun(Mutex::default());
    let options = Options { available: Some(1 << 20), ..Options::new(2) };
    let error = run(&place, "parts", &options, &begun).expect_err("refused");
    let needs = begun.0.into_inner().expect("no panic").expect("told");
    assert_eq!((needs.vertices, needs.edges), (300, 2400));
    assert!(matches!(error, PartitionError::Memory { needed, .. } if needed == needs.memory), "{error}");
    assert!(error.to_string().contains("1024.0 KiB are free"), "{error}");
    assert_eq!(place.names(), ["data"]);
}
