//! Field case 13: memory does not grow from epoch to epoch. A process of its own, since it reads the resident
//! memory of the whole process.

use std::sync::atomic::AtomicBool;

use hgnnc_model_tests::engine::bound_data;
use hgnnc_model_tests::{CASES, World, compile};
use hgnnc_trace::os;
use hgnnc_train::TrainOptions;

/// Adam, so that 200 epochs of any model converge.
const TRAIN: &str = "train M { loss cross_entropy(y, Paper.topic) optimizer adam(lr: 0.01) epochs 5 }";

/// After 20 epochs of a run the peak rises by at most 1 MiB until epoch 200 (records of the epochs, pages of the
/// allocator). Both are read in one run: two runs place their buffers differently in the heap, which alone moved the
/// peak by up to 1.5 MiB.
#[test]
fn field_case_13_constant_memory() {
    if os::peak_rss_bytes() == 0 {
        println!("skipped: this system does not tell the resident memory of a process");
        return;
    }
    let world = World::random_library(55);
    for case in CASES {
        let compiled = compile(&case.trained_by(TRAIN));
        let data = bound_data(compiled.training(), &compiled.bind(&world));
        let options = TrainOptions { threads: 1, epochs: Some(200), ..Default::default() };
        let executable = compiled.optimised(&world);
        let mut trainer =
            hgnnc_model_tests::engine::trainer(executable, data, options).unwrap_or_else(|error| panic!("{error}"));
        let arena = trainer.arenas().all;
        let mut peaks = vec![];
        let ended = trainer.run(&AtomicBool::new(false), &mut |_| peaks.push(os::peak_rss_bytes()));
        ended.unwrap_or_else(|error| panic!("{}: {error} after {} epochs", case.name, peaks.len()));
        assert_eq!(trainer.arenas().all, arena, "{}: planned memory", case.name);
        assert_eq!(peaks.len(), 200, "{}", case.name);
        let grown = peaks[199] - peaks[19];
        assert!(grown <= 1 << 20, "{}: {grown} bytes more after 200 epochs than after 20", case.name);
    }
}
