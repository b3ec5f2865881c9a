//! Vertex reordering: training, evaluation and saved files are those of the dataset's order.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use hgnnc_data::reorder::{renumber, unsupported_reason};
use hgnnc_data::{BoundData, OrderOptions, order_vertices};
use hgnnc_driver::LowerOptions;
use hgnnc_executable::Executable;
use hgnnc_graph::order::Order;
use hgnnc_ir::random::bits;
use hgnnc_machine::CodeMode;
use hgnnc_model_tests::cases::{Case, SCHEMA, SPARSE_SCHEMA, TRAIN};
use hgnnc_model_tests::compiled::Compiled;
use hgnnc_model_tests::engine::bound_data;
use hgnnc_model_tests::{CASES, World, assert_close, case, compile};
use hgnnc_train::{TrainOptions, Trainer, checkpoint};

/// Tolerance for losses and parameters: sums over all vertices are reassociated, over five epochs.
const TOLERANCE: f64 = 2e-5;

/// A model, and its data in a world.
fn bound(compiled: &Compiled, world: &World) -> (Executable, BoundData) {
    let data = bound_data(compiled.training(), &compiled.bind(world));
    (compiled.lowered(world, LowerOptions::default()), data)
}

/// A random order of each type except the `kept`th.
fn shuffled(data: &BoundData, salt: u64, kept: Option<usize>) -> Vec<Option<Order>> {
    let order = |(vertex_type, &count): (usize, &usize)| {
        let mut vertices: Vec<u32> = (0..count as u32).collect();
        vertices.sort_by_key(|&vertex| bits(salt, (vertex_type as u64) << 32 | u64::from(vertex)));
        (kept != Some(vertex_type)).then(|| Order::of(vertices))
    };
    data.num_vertices.iter().enumerate().map(order).collect()
}

fn renumbered(
    (executable, mut data): (Executable, BoundData),
    salt: u64,
    kept: Option<usize>,
) -> (Executable, BoundData) {
    assert_eq!(unsupported_reason(&executable), None);
    let orders = shuffled(&data, salt, kept);
    renumber(&mut data, &executable.infer, orders).unwrap_or_else(|error| panic!("{error}"));
    (executable, data)
}

fn trainer((executable, data): (Executable, BoundData), options: TrainOptions) -> Trainer {
    hgnnc_model_tests::engine::trainer(executable, data, options).unwrap_or_else(|error| panic!("{error}"))
}

/// Losses, then all parameters, then the output.
fn trained(mut trainer: Trainer) -> Vec<(&'static str, Vec<f64>)> {
    let initial = trainer.params().expect("params").concat();
    let mut losses = vec![];
    let run = trainer.run(&AtomicBool::new(false), &mut |epoch| losses.push(epoch.loss));
    run.unwrap_or_else(|error| panic!("{error}"));
    let wide = |numbers: Vec<f32>| -> Vec<f64> { numbers.into_iter().map(f64::from).collect() };
    let metrics = trainer.evaluate().unwrap_or_else(|error| panic!("{error}"));
    let metrics = metrics.values().flat_map(|values| values.values().copied()).collect();
    let params = wide(trainer.params().expect("params").concat());
    let output = wide(trainer.infer(None).unwrap_or_else(|error| panic!("{error}")).data);
    let initial = wide(initial);
    vec![("initial", initial), ("losses", losses), ("params", params), ("output", output), ("metrics", metrics)]
}

fn compare(what: &str, found: &[(&str, Vec<f64>)], expected: &[(&str, Vec<f64>)]) {
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        let tolerance = if *name == "initial" { 0.0 } else { TOLERANCE };
        assert_close(&format!("{what}: {name}"), found, expected, tolerance);
    }
}

/// With dropout of vertices, edges and sparse features, learned and one-hot features, attention, metapaths.
#[test]
fn any_order_trains_the_same() {
    let world = |case: &Case| if case.schema == SCHEMA { World::random_library(4) } else { World::sparse_library() };
    for case in CASES {
        order_does_not_matter(case, TRAIN, &world(case));
    }
}

/// Trains a case on a world in three orders of its vertices.
#[track_caller]
pub fn order_does_not_matter(case: &Case, train: &str, world: &World) {
    let compiled = compile(&case.trained_by(train));
    for code in [CodeMode::Interpreted, CodeMode::Native] {
        let options = TrainOptions { threads: 2, code, ..TrainOptions::default() };
        let expected = trained(trainer(bound(&compiled, world), options.clone()));
        for (salt, kept) in [(1, None), (2, Some(0)), (3, Some(1))] {
            let data = renumbered(bound(&compiled, world), salt, kept);
            let what = format!("{}, {code:?}, order {salt}", case.name);
            compare(&what, &trained(trainer(data, options.clone())), &expected);
        }
    }
}

/// High-degree rows of thousands of edges are split into partial sums.
#[test]
fn long_rows_are_cut_in_any_order() {
    for name in ["rgcn", "rgat", "han"] {
        let compiled = compile(&case(name).source());
        let options = TrainOptions { threads: 2, epochs: Some(2), ..TrainOptions::default() };
        let expected = trained(trainer(bound(&compiled, &World::long_rows()), options.clone()));
        let found = trained(trainer(renumbered(bound(&compiled, &World::long_rows()), 5, None), options));
        compare(name, &found, &expected);
    }
}

/// Files are in the dataset's order: parameters, those of the best epoch, and optimizer states can be read under
/// another order.
#[test]
fn checkpoints_are_in_the_order_of_the_dataset() {
    let sparse = CASES.iter().filter(|case| case.schema == SPARSE_SCHEMA);
    for case in sparse {
        let compiled = compile(&case.source());
        let world = World::sparse_library();
        let data = |ordered: bool| {
            let data = bound(&compiled, &world);
            if ordered { renumbered(data, 7, None) } else { data }
        };
        let expected = trained(trainer(data(false), TrainOptions::default()));
        for first in [false, true] {
            let folder = tempfile::tempdir().expect("a folder for a test");
            let options = |epochs, resume, folder: &Path| TrainOptions {
                epochs: Some(epochs),
                checkpoint: Some(folder.to_owned()),
                resume,
                ..TrainOptions::default()
            };
            let run = |ordered: bool, epochs: u64, resume: bool| {
                let mut trainer = trainer(data(ordered), options(epochs, resume, folder.path()));
                let outcome = trainer.run(&AtomicBool::new(false), &mut |_| {});
                outcome.unwrap_or_else(|error| panic!("{error}"));
                trainer
            };
            run(first, 2, false);
            let mut second = run(!first, 5, true);
            let numbers: Vec<f64> = second.params().expect("params").concat().into_iter().map(f64::from).collect();
            let what = format!("{}, order first: {first}", case.name);
            assert_close(&what, &numbers, &expected[2].1, TOLERANCE);
            let weights = folder.path().join("weights.safetensors");
            second.save_weights(&weights).unwrap_or_else(|error| panic!("{error}"));
            let mut third = trainer(data(first), TrainOptions::default());
            third.load_weights(&weights).unwrap_or_else(|error| panic!("{error}"));
            let output = third.infer(None).unwrap_or_else(|error| panic!("{error}")).data;
            let output: Vec<f64> = output.into_iter().map(f64::from).collect();
            assert_close(&what, &output, &expected[3].1, TOLERANCE);
        }
    }
}

/// An order is chosen if tables exceed the cache and there are many epochs, and the reason is given; otherwise data
/// stay as they are.
#[test]
fn orders_are_chosen_where_they_pay() {
    let compiled = compile(&case("rgcn").source());
    let world = World::hidden_ring();
    let choose = |epochs, cache_bytes| {
        let (executable, mut data) = bound(&compiled, &world);
        let options = OrderOptions { epochs, cache_bytes: Some(cache_bytes), resumed: None };
        let ordered = order_vertices(&executable, &mut data, &options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ordered.applied, data.orders.any());
        assert!(!ordered.applied || ordered.missed_bytes.1 < ordered.missed_bytes.0);
        (ordered, (executable, data))
    };
    let (kept, (_, data)) = choose(1_000_000, 1 << 30);
    assert!(kept.explain[0].contains("which the cache of"), "{:?}", kept.explain);
    assert_eq!(data, bound(&compiled, &world).1);
    let (kept, _) = choose(1, 1 << 12);
    assert!(kept.explain[0].contains("to order would take longer"), "{:?}", kept.explain);
    let (ordered, chosen) = choose(1_000_000_000, 1 << 12);
    assert!(ordered.applied, "{:?}", ordered.explain);
    assert!(ordered.explain.len() >= 4, "three candidates and what was chosen: {:?}", ordered.explain);
    let options = TrainOptions { epochs: Some(2), ..TrainOptions::default() };
    let expected = trained(trainer(bound(&compiled, &world), options.clone()));
    compare("chosen", &trained(trainer(chosen, options)), &expected);
}

/// A resumed run keeps its order even if another one would be chosen now, for another number of epochs or another cache
/// size. It ends with the same bits as an uninterrupted run.
#[test]
fn resumed_runs_keep_their_order() {
    let compiled = compile(&case("rgcn").source());
    let world = World::hidden_ring();
    // The choices without a checkpoint: clusters, first use, or the order of the dataset.
    let pays = |cache| OrderOptions { epochs: 1_000_000_000, cache_bytes: Some(cache), resumed: None };
    let (clusters, first_use) = (pays(1 << 8), pays(1 << 12));
    let does_not = OrderOptions { epochs: 1, cache_bytes: Some(1 << 30), resumed: None };
    let ordered = |options: &OrderOptions| {
        let (executable, mut data) = bound(&compiled, &world);
        let ordered = order_vertices(&executable, &mut data, options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ordered.applied, data.orders.any());
        (executable, data)
    };
    let run = |data, options: TrainOptions| {
        let mut trainer = trainer(data, TrainOptions { threads: 2, ..options });
        let outcome = trainer.run(&AtomicBool::new(false), &mut |_| {});
        outcome.unwrap_or_else(|error| panic!("{error}"));
        let bits: Vec<u32> = trainer.params().expect("params").concat().into_iter().map(f32::to_bits).collect();
        (bits, trainer.warnings().to_vec())
    };
    let pairs = [(clusters, does_not), (first_use, clusters), (does_not, first_use)];
    for ((first, second), expected) in pairs.into_iter().zip(["clusters", "first use", "dataset"]) {
        let (whole, _) = run(ordered(&first), TrainOptions { epochs: Some(4), ..TrainOptions::default() });
        let folder = tempfile::tempdir().expect("a folder for a test");
        let options = |epochs, resume| TrainOptions {
            epochs: Some(epochs),
            checkpoint: Some(folder.path().to_owned()),
            resume,
            ..TrainOptions::default()
        };
        let data = ordered(&first);
        let kind = data.1.orders.kind();
        assert!(kind.is_some_and(|kind| kind.words().contains(expected)), "{kind:?} instead of {expected}");
        run(data, options(2, false));
        assert_eq!(checkpoint::order_of(folder.path()), kind);
        let resumed = ordered(&OrderOptions { resumed: kind, ..second });
        assert_eq!(resumed.1.orders.kind(), kind);
        let (bits, warnings) = run(resumed, options(4, true));
        assert!(bits == whole, "a resumed run differs from one that was not stopped");
        assert!(warnings.is_empty(), "{warnings:?}");

        // Asking for another order gives a note on the consequences, and the next checkpoint has that order.
        let other = ordered(&second);
        let kind = other.1.orders.kind();
        let (_, warnings) = run(other, options(5, true));
        assert!(warnings.len() == 1 && warnings[0].contains("last bits"), "{warnings:?}");
        assert_eq!(checkpoint::order_of(folder.path()), kind);
    }
}
