//! Field cases of whole training runs: equal bits over threads, seeds and interruptions.

use std::sync::atomic::AtomicBool;

use hgnnc_interp::Bindings;
use hgnnc_model_tests::compiled::Compiled;
use hgnnc_model_tests::engine::bound_data;
use hgnnc_model_tests::{CASES, World, case, compile};
use hgnnc_train::{TrainOptions, Trainer};

fn trainer(compiled: &Compiled, bindings: &Bindings, world: &World, options: TrainOptions) -> Trainer {
    let data = bound_data(compiled.training(), bindings);
    hgnnc_model_tests::engine::trainer(compiled.optimised(world), data, options)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Parameters after training, as bits.
fn trained(trainer: &mut Trainer) -> Vec<Vec<u32>> {
    trainer.run(&AtomicBool::new(false), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    let params = trainer.params().unwrap_or_else(|error| panic!("{error}"));
    params.iter().map(|param| param.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Case 28: the same seed gives the same parameters, bit by bit, on one thread and on three; another seed does not.
#[test]
fn field_case_28_reproducible() {
    let world = World::random_library(321);
    for case in CASES {
        let compiled = compile(&case.source());
        let bindings = compiled.bind(&world);
        let with = |threads, seed| {
            let options = TrainOptions { threads, seed: Some(seed), epochs: Some(8), ..Default::default() };
            trained(&mut trainer(&compiled, &bindings, &world, options))
        };
        let first = with(1, 9);
        assert_eq!(first, with(1, 9), "{}: twice", case.name);
        assert_eq!(first, with(3, 9), "{}: one thread and three", case.name);
        assert_ne!(first, with(1, 10), "{}: another seed", case.name);
    }
}

/// Case 32: training that was interrupted and resumed equals training that was not, bit by bit: parameters, both
/// moments of Adam, masks, the schedule.
#[test]
fn field_case_32_resume_equals_uninterrupted() {
    let train = "train M { loss cross_entropy(y, Paper.topic) optimizer adam(lr: 0.01, weight_decay: 0.001)
        schedule cosine(epochs: 12) epochs 12 seed 4 select train.loss }";
    let world = World::library();
    for name in ["han", "rgcn_sparse", "simple_hgn", "gin_normalized"] {
        let compiled = compile(&case(name).trained_by(train));
        let bindings = compiled.bind(&world);
        let with = |options: TrainOptions| trained(&mut trainer(&compiled, &bindings, &world, options));
        let whole = with(TrainOptions { threads: 1, ..Default::default() });
        let folder = tempfile::tempdir().expect("a folder for a test");
        let checkpoint = Some(folder.path().to_owned());
        with(TrainOptions { threads: 1, epochs: Some(5), checkpoint: checkpoint.clone(), ..Default::default() });
        let resumed = with(TrainOptions { threads: 2, checkpoint, resume: true, ..Default::default() });
        assert_eq!(whole, resumed, "{name}");
    }
}
