//! Mini-batches on a device: the PTX interpreter executes what a GPU would, and training is that of the processor.

use std::sync::atomic::AtomicBool;

use hgnnc_cuda::testing;
use hgnnc_driver::LowerOptions;
use hgnnc_ir::training::{Fanout, MiniBatch, Reuse};
use hgnnc_loader::{CacheOptions, CachePolicy};
use hgnnc_machine::Machine;
use hgnnc_model_tests::compiled::Compiled;
use hgnnc_model_tests::engine::{bound_data, device_trainer, trainer};
use hgnnc_model_tests::{World, assert_close, case, compile};
use hgnnc_train::{TrainOptions, Trainer};

/// Mini-batches of three seeds with fan-out two, with dropout.
fn on_batches(source: &str, reuse: Option<Reuse>) -> Compiled {
    let mut compiled = compile(source);
    let graphs = compiled.model.flow.graphs.len();
    let training = &mut compiled.model.train.as_mut().expect("a train block").training;
    training.batch =
        Some(MiniBatch { size: 3, all_of: None, fanouts: vec![vec![Fanout::AtMost(2); graphs]; 4], reuse });
    compiled
}

fn on_processor(compiled: &Compiled, world: &World, options: TrainOptions) -> Trainer {
    let data = bound_data(compiled.training(), &compiled.bind(world));
    let executable = compiled.lowered(world, LowerOptions::default());
    trainer(executable, data, options).unwrap_or_else(|error| panic!("{error}"))
}

fn on_device(compiled: &Compiled, world: &World, options: TrainOptions) -> Trainer {
    let device = testing::device();
    let machine = Machine::sheet(device.target().name());
    let executable = compiled.lowered(world, LowerOptions { machine, ..LowerOptions::default() });
    let data = bound_data(compiled.training(), &compiled.bind(world));
    device_trainer(executable, data, device, options).unwrap_or_else(|error| panic!("{error}"))
}

fn options(epochs: u64) -> TrainOptions {
    TrainOptions { threads: 2, seed: Some(4), epochs: Some(epochs), ..TrainOptions::default() }
}

/// Losses of all epochs, and the parameters in the end.
fn trained(mut trainer: Trainer) -> (Vec<f64>, Vec<Vec<f32>>) {
    trainer.run(&AtomicBool::new(false), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    let losses = trainer.report().expect("a report").losses;
    (losses, trainer.params().expect("parameters"))
}

/// A run on the device has the losses and parameters of one on the processor.
fn check(what: &str, compiled: &Compiled, world: &World) {
    let (expected, params) = trained(on_processor(compiled, world, options(2)));
    let (found, on_device) = trained(on_device(compiled, world, options(2)));
    assert_close(what, &found, &expected, 2e-4);
    for (index, (found, expected)) in on_device.iter().zip(&params).enumerate() {
        let wide = |numbers: &[f32]| numbers.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        assert_close(&format!("{what}: parameter {index}"), &wide(found), &wide(expected), 5e-4);
    }
}

#[test]
fn batches_on_a_device_are_those_of_the_processor() {
    for name in ["rgcn", "sage_mean", "rgat", "hgt", "rgcn_sparse", "several_fields"] {
        let case = case(name);
        let sparse = name == "rgcn_sparse";
        let world = if sparse { World::sparse_library() } else { World::random_library(31) };
        check(name, &on_batches(&case.source(), None), &world);
    }
}

/// Learned rows on two types, with optimizer states.
fn with_embeddings() -> Compiled {
    let train = "
train M {
    loss cross_entropy(y, Paper.topic)
    optimizer adam(lr: 0.02, weight_decay: 0.01)
    epochs 5
    seed 3
    select train.loss
}
";
    let source = case("rgcn")
        .trained_by(train)
        .replace("Author { x: f32[3] }", "Author { x: embedding[3] }")
        .replace("Venue { x: f32[4] }", "Venue { x: embedding[4] }");
    on_batches(&source, None)
}

fn bits(params: &[Vec<f32>]) -> Vec<Vec<u32>> {
    params.iter().map(|param| param.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Features, tables and optimizer states are in the memory of the device, which copies the rows of a batch itself.
#[test]
fn rows_of_embeddings_stay_on_a_device() {
    check("embeddings", &with_embeddings(), &World::random_library(32));
}

/// With a cache they are in host memory, and with a budget optimizer states are; they go to the device with each batch and
/// come back: the same bits.
#[test]
fn rows_of_host_memory_go_to_a_device_and_back() {
    let (compiled, world) = (with_embeddings(), World::random_library(32));
    let (losses, params) = trained(on_device(&compiled, &world, options(2)));
    let cache = Some(CacheOptions { bytes: 64, policy: CachePolicy::Hotness });
    let budget = Some(1 << 30);
    for options in [TrainOptions { cache, ..options(2) }, TrainOptions { memory_budget: budget, ..options(2) }] {
        let (found, others) = trained(on_device(&compiled, &world, options));
        assert_eq!(losses, found);
        assert_eq!(bits(&params), bits(&others));
    }
}

/// Half of the threads of the process load batches for a device, in turn: the same bits for any number of them.
#[test]
fn several_threads_load_the_batches_of_a_device() {
    let (compiled, world) = (with_embeddings(), World::random_library(35));
    let (losses, params) = trained(on_device(&compiled, &world, options(3)));
    for threads in [6, 16] {
        let (found, others) = trained(on_device(&compiled, &world, TrainOptions { threads, ..options(3) }));
        assert_eq!(losses, found, "{threads} threads");
        assert_eq!(bits(&params), bits(&others), "{threads} threads");
    }
}

/// Historical embeddings are computed on the device, too.
#[test]
fn historical_embeddings_of_a_device_are_those_of_the_processor() {
    let compiled = on_batches(&case("rgcn").source(), Some(Reuse { share: 0.5, batches: 2 }));
    check("historical embeddings", &compiled, &World::random_library(33));
}

/// Two epochs, and one epoch continued by another: the same bits, with optimizer states of rows as well.
#[test]
fn batches_on_a_device_are_resumed() {
    for compiled in [on_batches(&case("rgcn").source(), None), with_embeddings()] {
        let world = World::random_library(34);
        let (_, whole) = trained(on_device(&compiled, &world, options(2)));
        let folder = tempfile::tempdir().expect("a folder");
        let checkpoint = Some(folder.path().to_path_buf());
        trained(on_device(&compiled, &world, TrainOptions { checkpoint: checkpoint.clone(), ..options(1) }));
        let (_, rest) = trained(on_device(&compiled, &world, TrainOptions { checkpoint, resume: true, ..options(2) }));
        assert_eq!(bits(&rest), bits(&whole));
    }
}
