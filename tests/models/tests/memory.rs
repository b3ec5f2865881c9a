//! Field case 13: memory does not grow from epoch to epoch. A process of its own, since it reads the resident
//! memory of the whole process.

use std::sync::atomic::AtomicBool;

use hgnnc_model_tests::engine::bound_data;
use hgnnc_model_tests::{CASES, World, compile};
use hgnnc_trace::os;
use hgnnc_train::TrainOptions;

/// Adam, so that 200 epochs of any model converge.
const TRAIN: &str = "train M { loss cross_entropy(y, Paper.topic) optimizer adam(lr: 0.01) epochs 5 }";

/// After a first run of 20 epochs the peak of 200 epochs is at most 1 MiB higher (records of the epochs, pages of
/// the allocator).
#[test]
fn field_case_13_constant_memory() {
    if os::peak_rss_bytes() == 0 {
        println!("skipped: this system does not tell the resident memory of a process");
        return;
    }
    let world = World::random_library(55);
    for case in CASES {
        let compiled = compile(&case.trained_by(TRAIN));
        let executable = compiled.optimised(&world);
        let train = |epochs| {
            let data = bound_data(compiled.training(), &compiled.bind(&world));
            let options = TrainOptions { threads: 1, epochs: Some(epochs), ..Default::default() };
            let mut trainer = hgnnc_model_tests::engine::trainer(executable.clone(), data, options)
                .unwrap_or_else(|error| panic!("{error}"));
            let arena = trainer.arenas().all;
            let mut losses = vec![];
            let ended = trainer.run(&AtomicBool::new(false), &mut |e| losses.push(e.loss));
            ended.unwrap_or_else(|error| panic!("{}: {error} after {losses:?}", case.name));
            assert_eq!(trainer.arenas().all, arena, "{}: planned memory", case.name);
        };
        train(20);
        let before = os::peak_rss_bytes();
        train(200);
        let grown = os::peak_rss_bytes().saturating_sub(before);
        assert!(grown <= 1 << 20, "{}: {grown} bytes more after 200 epochs than after 20", case.name);
    }
}
