//! Models trained on a device: the PTX interpreter executes what a GPU would.

use std::sync::atomic::AtomicBool;

use hgnnc_cuda::testing;
use hgnnc_data::ExecError;
use hgnnc_driver::LowerOptions;
use hgnnc_interp::Bindings;
use hgnnc_machine::Machine;
use hgnnc_model_tests::compiled::Compiled;
use hgnnc_model_tests::engine::{bound_data, device_trainer};
use hgnnc_model_tests::{CASES, World, compile};
use hgnnc_train::{Report, TrainOptions, Trainer};

/// Options of a run of so many epochs.
pub fn options(epochs: u64) -> TrainOptions {
    TrainOptions { threads: 1, seed: Some(4), epochs: Some(epochs), ..Default::default() }
}

/// A model that is trained on the processor.
pub fn on_processor(compiled: &Compiled, world: &World, options: TrainOptions) -> Trainer {
    on_processor_with(compiled, world, &compiled.bind(world), options)
}

/// A model that is trained on the processor, with other bindings than those of a world.
pub fn on_processor_with(compiled: &Compiled, world: &World, bindings: &Bindings, options: TrainOptions) -> Trainer {
    let data = bound_data(compiled.training(), bindings);
    hgnnc_model_tests::engine::trainer(compiled.optimised(world), data, options)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A model that is trained on the PTX interpreter.
pub fn on_device(compiled: &Compiled, world: &World, options: TrainOptions) -> Trainer {
    on_device_with(compiled, world, &compiled.bind(world), options)
}

/// A model that is trained on the PTX interpreter, with other bindings than those of a world.
pub fn on_device_with(compiled: &Compiled, world: &World, bindings: &Bindings, options: TrainOptions) -> Trainer {
    let device = testing::device();
    let machine = Machine::sheet(device.target().name());
    let executable = compiled.lowered(world, LowerOptions { machine, ..LowerOptions::default() });
    let data = bound_data(compiled.training(), bindings);
    device_trainer(executable, data, device, options).unwrap_or_else(|error| panic!("{error}"))
}

/// Trains and evaluates a model.
pub fn run(trainer: &mut Trainer) -> Report {
    let outcome = trainer.run(&AtomicBool::new(false), &mut |_| {}).and_then(|_| trainer.report());
    outcome.unwrap_or_else(|error| panic!("{error}"))
}

fn bits(trainer: &mut Trainer) -> Vec<Vec<u32>> {
    let params = trainer.params().unwrap_or_else(|error| panic!("{error}"));
    params.iter().map(|param| param.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Three epochs with dropout: losses, metrics and the best epoch are those of the processor, and a second run has the
/// same bits.
#[test]
fn training_on_a_device_is_training() {
    let world = World::random_library(77);
    for case in CASES {
        let compiled = compile(&case.source());
        let expected = run(&mut on_processor(&compiled, &world, options(3)));
        let mut trainer = on_device(&compiled, &world, options(3));
        let found = run(&mut trainer);
        let close = |what: &str, a: f64, b: f64| {
            let same = (a - b).abs() <= 2e-4 * a.abs().max(1.0) || (a.is_nan() && b.is_nan());
            assert!(same, "{}: {what} {b} instead of {a}", case.name);
        };
        for (a, b) in expected.losses.iter().zip(&found.losses) {
            close("loss", *a, *b);
        }
        assert_eq!((expected.losses.len(), expected.epochs), (3, found.epochs), "{}", case.name);
        for (part, metrics) in &expected.metrics {
            close(&format!("loss of {part}"), metrics["loss"], found.metrics[part]["loss"]);
        }
        assert_eq!(found.device, testing::device().name());
        assert!(found.device_bytes > 0 && expected.device_bytes == 0);
        let mut again = on_device(&compiled, &world, options(3));
        run(&mut again);
        assert_eq!(bits(&mut trainer), bits(&mut again), "{}: twice", case.name);
    }
}

/// Three epochs, and one epoch continued by two: the same bits.
#[test]
fn a_resumed_run_on_a_device_is_the_same() {
    let world = World::random_library(78);
    for case in CASES {
        let compiled = compile(&case.source());
        let mut whole = on_device(&compiled, &world, options(3));
        run(&mut whole);
        let folder = tempfile::tempdir().expect("a folder");
        let checkpoint = Some(folder.path().to_path_buf());
        run(&mut on_device(&compiled, &world, TrainOptions { checkpoint: checkpoint.clone(), ..options(1) }));
        let mut rest = on_device(&compiled, &world, TrainOptions { checkpoint, resume: true, ..options(3) });
        run(&mut rest);
        assert_eq!(bits(&mut whole), bits(&mut rest), "{}", case.name);
    }
}

/// A program that does not fit in the memory budget is refused before anything runs, by the figures of the plan.
#[test]
fn a_budget_holds_on_a_device() {
    let world = World::random_library(79);
    let compiled = compile(&CASES[0].source());
    let bytes = run(&mut on_device(&compiled, &world, options(1))).device_bytes;
    let executable =
        compiled.lowered(&world, LowerOptions { machine: Machine::sheet("sm_90"), ..LowerOptions::default() });
    for (budget, fits) in [(bytes, true), (bytes - 1, false)] {
        let data = bound_data(compiled.training(), &compiled.bind(&world));
        let options = TrainOptions { memory_budget: Some(budget), ..options(1) };
        match device_trainer(executable.clone(), data, testing::device(), options) {
            Ok(_) => assert!(fits),
            Err(error) => assert!(!fits && matches!(error, ExecError::Memory { .. }), "{error}"),
        }
    }
}
