//! The feature cache affects data movement only: training is bit-equal.

use std::sync::atomic::AtomicBool;

use hgnnc_data::ExecError;
use hgnnc_driver::LowerOptions;
use hgnnc_ir::training::{Fanout, MiniBatch};
use hgnnc_loader::cache::report::CacheReport;
use hgnnc_loader::{CacheOptions, CachePolicy};
use hgnnc_model_tests::cases::{Case, SPARSE_SCHEMA};
use hgnnc_model_tests::compiled::Compiled;
use hgnnc_model_tests::engine::bound_data;
use hgnnc_model_tests::{CASES, World, case, compile};
use hgnnc_train::{Outcome, TrainOptions, Trainer};

/// Mini-batches of two seeds with fan-out two, with dropout.
fn on_batches(source: &str) -> Compiled {
    let mut compiled = compile(source);
    let graphs = compiled.model.flow.graphs.len();
    let training = &mut compiled.model.train.as_mut().expect("a train block").training;
    training.batch =
        Some(MiniBatch { size: 2, all_of: None, fanouts: vec![vec![Fanout::AtMost(2); graphs]; 4], reuse: None });
    compiled
}

/// The text of a case whose authors and venues have embeddings, trained by Adam: rows with two optimizer states.
fn with_embeddings(case: &Case) -> String {
    let train = "
train M {
    loss cross_entropy(y, Paper.topic)
    optimizer adam(lr: 0.02, weight_decay: 0.01)
    epochs 5
    seed 3
    select train.loss
}
";
    let learned =
        [("Author { x: f32[3] }", "Author { x: embedding[3] }"), ("Venue { x: f32[4] }", "Venue { x: embedding[4] }")];
    learned.iter().fold(case.trained_by(train), |text, (from, to)| text.replace(from, to))
}

/// A world in which some vertices are in many batches and some in none.
fn world() -> World {
    let cites: Vec<(u32, u32)> = (0..60).map(|edge| (edge * edge % 7, edge % 20)).collect();
    let writes: Vec<(u32, u32)> = (0..50).map(|edge| (edge * edge % 11, edge * 3 % 20)).collect();
    World::new(
        5,
        &[("Paper", 20), ("Author", 12), ("Venue", 6)],
        &[
            ("cites", &cites),
            ("writes", &writes),
            ("reviews", &[(0, 3), (11, 3), (5, 0), (0, 7)]),
            ("appears_in", &[(0, 1), (1, 1), (2, 1), (5, 0), (9, 4)]),
        ],
    )
}

/// Makes trainers of a model that is compiled once.
fn of_source(source: &str, world: &World) -> impl Fn(TrainOptions) -> Trainer + use<> {
    let compiled = on_batches(source);
    let bindings = compiled.bind(world);
    let executable = compiled.lowered(world, LowerOptions::default());
    move |options| {
        let data = bound_data(compiled.training(), &bindings);
        hgnnc_model_tests::engine::trainer(executable.clone(), data, options).unwrap_or_else(|error| panic!("{error}"))
    }
}

fn trainer(source: &str, world: &World, options: TrainOptions) -> Trainer {
    of_source(source, world)(options)
}

/// Trains to the end; returns the bits of all parameters and losses, and the report of the cache.
fn trained(mut trainer: Trainer) -> (Vec<Vec<u32>>, Vec<u64>, Option<CacheReport>) {
    trainer.run(&AtomicBool::new(false), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    let bits = |numbers: &Vec<f32>| numbers.iter().map(|number| number.to_bits()).collect();
    let params = trainer.params().expect("params").iter().map(bits).collect();
    let report = trainer.report().expect("a report");
    let losses = report.losses.iter().map(|loss| loss.to_bits()).collect();
    (params, losses, report.batches.expect("batches").cache)
}

fn cached(bytes: u64, policy: CachePolicy, threads: usize) -> TrainOptions {
    TrainOptions { threads, cache: Some(CacheOptions { bytes, policy }), ..Default::default() }
}

/// With caches of no, few, half and all rows, all layers train to the same bits as without a cache.
#[test]
fn a_cache_of_any_size_changes_no_bit() {
    let mut learned = 0;
    let world = world();
    for name in ["rgcn", "rgat", "han", "hgt"] {
        let case = case(name);
        for source in [case.source(), with_embeddings(&case)] {
            let new = of_source(&source, &world);
            let (params, losses, none) = trained(new(TrainOptions { threads: 2, ..Default::default() }));
            assert_eq!(none, None);
            let of_all = trained(new(cached(u64::MAX, CachePolicy::Penalty, 2))).2.expect("a cache").bytes_of_all;
            for (number, bytes) in [0, 60, of_all / 2, of_all].into_iter().enumerate() {
                let policy =
                    [CachePolicy::Shares, CachePolicy::Penalty, CachePolicy::Hotness, CachePolicy::Random][number];
                let (found, found_losses, report) = trained(new(cached(bytes, policy, 1 + number % 3)));
                let report = report.expect("a cache");
                let what = format!("{} with {bytes} of {of_all} bytes", case.name);
                assert_eq!(found, params, "{what}");
                assert_eq!(found_losses, losses, "{what}");
                assert!(report.bytes <= bytes, "{what}: {report:?}");
                learned += usize::from(report.tables.iter().any(|table| table.learned && table.kept > 0));
                match number {
                    0 => assert_eq!((report.hit_rate, report.bytes_moved), (0.0, report.bytes_without), "{what}"),
                    3 => assert_eq!((report.hit_rate, report.bytes_missed), (1.0, 0), "{what}"),
                    _ => {
                        assert!(report.hit_rate > 0.0 && report.hit_rate < 1.0, "{what}: {report:?}");
                        assert!(report.bytes_missed < report.bytes_without, "{what}: {report:?}");
                    }
                }
            }
        }
    }
    assert!(learned > 5, "{learned} runs with learned rows in the cache");
}

/// The report predicts the hits of each policy, and a run with that policy has exactly these.
#[test]
fn policies_of_a_report_are_what_they_would_have_done() {
    let world = world();
    let source = with_embeddings(&case("rgcn"));
    for policy in CachePolicy::ALL {
        // The miss time is measured, so placements based on it differ between runs.
        if matches!(policy, CachePolicy::Penalty | CachePolicy::Shares) {
            continue;
        }
        let own = trained(trainer(&source, &world, cached(200, policy, 2))).2.expect("a cache");
        let other = trained(trainer(&source, &world, cached(200, CachePolicy::Penalty, 2))).2.expect("a cache");
        let foretold = other.policies[policy.name()];
        assert_eq!((own.hit_rate, own.bytes_missed), (foretold.hit_rate, foretold.bytes_missed), "{policy:?}");
        assert_eq!(own.policies[policy.name()].hit_rate, own.hit_rate);
        for found in own.policies.values() {
            assert!(found.hit_rate <= own.best.hit_rate + 0.05 && found.bytes_missed + 300 >= own.best.bytes_missed);
        }
    }
}

/// Checkpoints include cached rows, so a repeatedly interrupted run ends with the same bits.
#[test]
fn interrupted_training_with_a_cache_is_resumed() {
    let world = world();
    let source = with_embeddings(&case("rgcn"));
    let expected = trained(trainer(&source, &world, TrainOptions { threads: 2, ..Default::default() })).0;
    let folder = tempfile::tempdir().expect("a folder for a test");
    for round in 0u32.. {
        let options = TrainOptions {
            checkpoint: Some(folder.path().to_owned()),
            checkpoint_every: std::time::Duration::ZERO,
            resume: round > 0,
            ..cached(300, CachePolicy::Hotness, 2)
        };
        let mut part = trainer(&source, &world, options);
        let (stop, mut left) = (AtomicBool::new(false), round);
        let outcome = part.run(&stop, &mut |_| {
            left = left.saturating_sub(1);
            stop.store(left == 0, std::sync::atomic::Ordering::Relaxed);
        });
        if outcome.unwrap_or_else(|error| panic!("{error}")) == Outcome::Finished {
            assert!(round > 1, "it was interrupted");
            let bits = |numbers: &Vec<f32>| -> Vec<u32> { numbers.iter().map(|number| number.to_bits()).collect() };
            assert_eq!(part.params().expect("params").iter().map(bits).collect::<Vec<_>>(), expected);
            break;
        }
    }
}

/// The savings of a cache in an epoch that is only sampled are those of training, for one size after the other.
#[test]
fn an_epoch_is_foreseen_without_training() {
    let world = world();
    let new = of_source(&with_embeddings(&case("rgcn")), &world);
    let mut simulated = new(cached(0, CachePolicy::Hotness, 1));
    let bits = |trainer: &mut Trainer| -> Vec<Vec<u32>> {
        let params = trainer.params().expect("params");
        params.iter().map(|numbers| numbers.iter().map(|number| number.to_bits()).collect()).collect()
    };
    let before = bits(&mut simulated);
    for bytes in [200, 600, 200] {
        let options = TrainOptions { epochs: Some(1), ..cached(bytes, CachePolicy::Hotness, 1) };
        let foretold = simulated.simulate_cache(options.cache.expect("a cache")).expect("batches");
        let (after, _, done) = trained(new(options));
        let done = done.expect("a cache");
        assert_ne!(before, after);
        assert!(foretold.hit_rate > 0.0);
        assert_eq!((foretold.hit_rate, foretold.bytes_missed), (done.hit_rate, done.bytes_missed));
        assert_eq!(foretold.policies["random"].bytes_missed, done.policies["random"].bytes_missed);
    }
    assert_eq!(bits(&mut simulated), before, "nothing is trained");
}

#[test]
fn features_of_rows_of_different_lengths_are_said_not_to_be_cached() {
    let case = CASES.iter().find(|case| case.schema == SPARSE_SCHEMA).expect("a case with sparse features");
    let world = World::sparse_library();
    let found = trainer(&case.source(), &world, cached(1000, CachePolicy::Penalty, 1));
    assert!(found.warnings().iter().any(|line| line.contains("are not cached")), "{:?}", found.warnings());
    let found = trainer(&case.source(), &world, TrainOptions::default());
    assert!(!found.warnings().iter().any(|line| line.contains("cached")), "{:?}", found.warnings());
}

#[test]
fn training_on_the_whole_graph_has_no_use_for_a_cache() {
    let world = World::library();
    let compiled = compile(&case("rgcn").source());
    let data = bound_data(compiled.training(), &compiled.bind(&world));
    let executable = compiled.lowered(&world, LowerOptions::default());
    match hgnnc_model_tests::engine::trainer(executable, data, cached(1000, CachePolicy::Penalty, 1)) {
        Err(ExecError::Unsupported(text)) => {
            assert!(text.contains("a cache is for training on batches") && text.contains("`batch`"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}
