//! Rayon's global thread pool stays unstarted: all parallel loops run on the pool of the back end. A process of its own,
//! since the global pool belongs to the process.

use std::sync::atomic::AtomicBool;

use hgnnc_cpu::thread_pool;
use hgnnc_cuda::Interpreter;
use hgnnc_data::ExecError;
use hgnnc_driver::LowerOptions;
use hgnnc_ir::training::{Fanout, MiniBatch};
use hgnnc_model_tests::compiled::Compiled;
use hgnnc_model_tests::engine::{bound_data, cpu_backend, device_trainer, with_code};
use hgnnc_model_tests::{World, case, compile};
use hgnnc_train::{TrainOptions, Trainer};

/// Mini-batches of two seeds, with two edges per hop and relation.
fn on_batches(mut compiled: Compiled) -> Compiled {
    let graphs = compiled.model.flow.graphs.len();
    let training = &mut compiled.model.train.as_mut().expect("a train block").training;
    training.batch =
        Some(MiniBatch { size: 2, all_of: None, fanouts: vec![vec![Fanout::AtMost(2); graphs]; 4], reuse: None });
    compiled
}

/// Trains, evaluates, computes outputs, and reports.
fn use_all_of(trainer: Result<Trainer, ExecError>) {
    let mut trainer = trainer.unwrap_or_else(|error| panic!("{error}"));
    let outcome = trainer.run(&AtomicBool::new(false), &mut |_| {});
    outcome.unwrap_or_else(|error| panic!("{error}"));
    trainer.infer(None).unwrap_or_else(|error| panic!("{error}"));
    trainer.report().unwrap_or_else(|error| panic!("{error}"));
    trainer.params().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn training_runs_on_the_pool_that_it_is_given() {
    let options = || TrainOptions { threads: 1, epochs: Some(2), ..TrainOptions::default() };
    // The threads of a command, which compile and bind data.
    let compiling = thread_pool(1).expect("a thread");
    for name in ["han", "rgcn", "rgat"] {
        let compiled = || compile(&case(name).source());
        for compiled in [compiled(), on_batches(compiled())] {
            let world = World::library();
            let executable = compiled.lowered(&world, LowerOptions::default());
            let (flow, bindings) = (compiled.training(), compiled.bind(&world));
            let bind = || (with_code(executable, &options()), [(); 2].map(|()| bound_data(flow, &bindings)));
            let (executable, [first, second]) = compiling.install(bind);
            let backend = cpu_backend(&executable, &options()).expect("a thread");
            use_all_of(Trainer::new(executable.clone(), Box::new(backend), first, options()));
            use_all_of(device_trainer(executable, second, Box::new(Interpreter::new()), options()));
        }
    }
    // It fails if there is a global pool.
    let started = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    started.expect("no parallel loop has run outside the pool of a back end");
}
