//! Training and evaluation of every standard layer as PTX, executed with every access checked.
//!
//! Three steps of Adam, then an evaluation, on small worlds; compared are losses, parameters, the states of the
//! optimiser and the outputs with the f64 interpreter's, and with the engine's. Tolerance: [`TOLERANCE`] of the largest
//! number of a value, absolute below 1: five times that of the engine after one step (see `all/differential.rs`), since
//! three steps add up their errors, and rows of hundreds of edges are summed by few threads.
//!
//! A second run gives the same bits, and so does one with blocks, and warps of blocks, in reverse order.

use hgnnc_cuda::{Device, testing};
use hgnnc_driver::LowerOptions;
use hgnnc_fusion::{LoweringOptions, SoftmaxForm, lower_with};
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_machine::Machine;
use hgnnc_model_tests::compiled::{Compiled, compile};
use hgnnc_model_tests::device::{Numbers, bits, by_engine, by_oracle, by_ptx, executed};
use hgnnc_model_tests::{World, assert_close, case, engine};

const TOLERANCE: f64 = 1e-4;
const STEPS: u64 = 3;

/// Adam with an ε that keeps it a comparison of arithmetic (see `all/differential.rs`).
const TRAIN: &str = "train M { loss cross_entropy(y, Paper.topic) optimizer adam(lr: 0.01, eps: 0.01) epochs 5 }";

/// Isolated vertices and empty relations; few vertices with edges; rows longer than a block has threads; one vertex;
/// drawn.
fn worlds() -> Vec<(&'static str, World)> {
    vec![
        ("the library", World::library()),
        ("sparse", World::sparse_library()),
        ("long rows", World::long_rows()),
        (
            "one vertex",
            World::new(
                4,
                &[("Paper", 1), ("Author", 0), ("Venue", 1)],
                &[("cites", &[(0, 0)]), ("writes", &[]), ("reviews", &[]), ("appears_in", &[(0, 0)])],
            ),
        ),
        ("without edges", World::library().without_edges()),
        ("drawn", World::random_library(103)),
    ]
}

fn check(name: &str) {
    let compiled = compile(&case(name).trained_by(TRAIN));
    for (which, world) in worlds() {
        let what = format!("{name}, {which}");
        check_world(&what, &compiled, &world);
    }
}

fn check_world(what: &str, compiled: &Compiled, world: &World) {
    let bindings = compiled.bind(world);
    let exact = by_oracle(compiled.training(), &compiled.infer, &bindings, STEPS);
    let on_cpu = compiled.optimised(world);
    let train = on_cpu.train.as_ref().expect("a train block");
    let data = engine::bound_data(train, &bindings);
    let cpu = &on_cpu.kernels;
    let cpu = by_engine(cpu.train.as_ref().expect("a train block"), &cpu.infer, &data, &bindings, STEPS);
    agree(&format!("{what}, engine"), &cpu, &exact);

    let options = LowerOptions { machine: Machine::sheet("sm_80"), ..LowerOptions::default() };
    let on_gpu = compiled.lowered(world, options);
    let [train, infer] = [on_gpu.train.as_ref().expect("a train block"), &on_gpu.infer];
    let by_cost = on_gpu.kernels;
    let by_cost = [by_cost.train.expect("a train block"), by_cost.infer];
    let online = LoweringOptions::GPU.with_softmax(SoftmaxForm::InOnePass);
    let online = [train, infer].map(|flow| lower_with(flow, online).unwrap_or_else(|error| panic!("{what}: {error}")));
    let mut forms = vec![("", &by_cost)];
    if online != by_cost {
        forms.push((", softmaxes in one pass", &online));
    }
    for (form, programs) in forms {
        let what = format!("{what}{form}, PTX");
        let [train, infer]: &[Program; 2] = programs;
        let run = |device: Box<dyn Device>, runs: usize| -> Vec<Numbers<f32>> {
            let engine = executed(train, infer, &data, device);
            let mut engine = engine.unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut run =
                || by_ptx(&mut engine, train, &bindings, STEPS).unwrap_or_else(|error| panic!("{what}: {error}"));
            (0..runs).map(|_| run()).collect()
        };
        let forward = run(testing::device(), 2);
        agree(&what, &forward[0], &exact);
        assert_eq!(bits(&forward[0]), bits(&forward[1]), "{what}: two runs");
        let backward = run(testing::reversed_device(), 1);
        assert_eq!(bits(&forward[0]), bits(&backward[0]), "{what}: blocks and warps in reverse order");
    }
}

/// Compares everything that both have. Parameters and states that nothing changes may be left out of programs.
#[track_caller]
fn agree(what: &str, found: &Numbers<f32>, exact: &Numbers<f64>) {
    for (name, exact) in exact {
        match found.get(name) {
            Some(numbers) => {
                let numbers: Vec<f64> = numbers.iter().map(|&x| f64::from(x)).collect();
                assert_close(&format!("{what}: {name}"), &numbers, exact, TOLERANCE);
            }
            // States of a parameter without a gradient.
            None => assert!(name.starts_with("state "), "{what}: there is no {name}"),
        }
    }
}

hgnnc_model_tests::test_each_case!(check);
