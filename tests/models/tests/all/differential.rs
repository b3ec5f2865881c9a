//! The f32 engine against the f64 interpreter, on every case and random worlds.
//!
//! Compared are the output, the losses and every parameter after one step, with the programs as written and after
//! all optimising passes. Tolerance: 2e-5 of the largest number of a value, absolute below 1. f32 has 6e-8; sums of
//! up to a hundred terms through two layers, an exponential and a division lose two to three digits.
//!
//! With one and with two threads the results are equal bit by bit.

use hgnnc_driver::LowerOptions;
use hgnnc_fusion::lower;
use hgnnc_interp::Bindings;
use hgnnc_ir::{Dataflow, OutputKind, Space};
use hgnnc_kernel_ir::kernel;
use hgnnc_model_tests::cases::{self, TRAIN};
use hgnnc_model_tests::compiled::{compile, interpret};
use hgnnc_model_tests::{CASES, Case, World, assert_close, case, dataset, engine, worlds};
use hgnnc_passes::{Disabled, PassManager};

const TOLERANCE: f64 = 2e-5;
/// Worlds in which a budget is met: finding what to recompute plans a program many times.
const TIGHT_WORLDS: usize = 2;

/// Compares all results and updates of `program` on the engine with those of `oracle` on the interpreter.
#[track_caller]
pub fn engine_agrees(what: &str, program: &Dataflow, oracle: &Dataflow, bindings: &Bindings) {
    let exact = interpret(oracle, bindings);
    let found = engine::run(program, bindings, 1);
    for output in &oracle.outputs {
        let name = match &output.kind {
            OutputKind::Result(name) => name.clone(),
            OutputKind::UpdateParam(param) => format!("new {}", oracle.params[param.index()].name),
            OutputKind::UpdateState(..) => continue,
        };
        let exact = &exact[output.value].data;
        let Some(numbers) = found.get(&name) else {
            // The training program of the driver has the loss as its only result.
            assert!(matches!(output.kind, OutputKind::Result(_)), "{what}: the engine has no {name}");
            continue;
        };
        let numbers: Vec<f64> = numbers.iter().map(|&x| f64::from(x)).collect();
        assert_close(&format!("{what}: {name}"), &numbers, exact, TOLERANCE);
    }
    let bits = |all: &std::collections::BTreeMap<String, Vec<f32>>| -> Vec<(String, Vec<u32>)> {
        all.iter().map(|(name, x)| (name.clone(), x.iter().map(|x| x.to_bits()).collect())).collect()
    };
    assert_eq!(bits(&found), bits(&engine::run(program, bindings, 2)), "{what}: one thread and two");
}

/// Compares what a program says with what its kernels do, both in f64.
#[track_caller]
pub fn kernels_agree(what: &str, program: &Dataflow, bindings: &Bindings) {
    let exact = interpret(program, bindings);
    let kernels = lower(program).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = hgnnc_interp::kernels::run(&kernels, bindings).unwrap_or_else(|error| panic!("{what}: {error}"));
    for output in &program.outputs {
        let found = found.output(&output.kind).expect("kernels have the outputs of their program");
        let what = format!("{what}, kernels: {:?}", output.kind);
        assert_close(&what, &found.data, &exact[output.value].data, 1e-9);
    }
    let text = kernel::print(&kernels);
    match kernel::parse(&text) {
        Ok(read) => assert!(
            read == kernels,
            "{what}: {:?} {:?}",
            read.tables == kernels.tables,
            read.buffers == kernels.buffers
        ),
        Err(error) => panic!("{what}: {error}\n{text}"),
    }
}

fn check(case: &Case, drawn: u64) {
    check_trained_by(case, TRAIN, drawn);
}

/// Compares a case with this train block in the usual worlds and `drawn` random ones.
#[track_caller]
pub fn check_trained_by(case: &Case, train: &str, drawn: u64) {
    let compiled = compile(&case.trained_by(train));
    for (index, world) in cases::worlds(drawn).enumerate() {
        let bindings = compiled.bind(&world);
        let what = format!("{}, world {}", case.name, world.seed);
        engine_agrees(&format!("{what}, infer"), &compiled.infer, &compiled.infer, &bindings);
        engine_agrees(&format!("{what}, train"), compiled.training(), compiled.training(), &bindings);
        let optimised = compiled.optimised(&world);
        engine_agrees(&format!("{what}, optimised infer"), &optimised.infer, &compiled.infer, &bindings);
        let train = optimised.train.as_ref().expect("a train block");
        engine_agrees(&format!("{what}, optimised train"), train, compiled.training(), &bindings);
        for program in [&compiled.infer, compiled.training(), &optimised.infer, train] {
            kernels_agree(&what, program, &bindings);
        }
        if index >= TIGHT_WORLDS {
            continue;
        }
        // Everything that can be is computed again; with the other passes, and without them.
        let others: Vec<String> =
            PassManager::names().into_iter().filter(|&name| name != "rematerialize").map(String::from).collect();
        for passes in [vec![], others] {
            let what = format!("{what}, budget 0 without {}", passes.join(", "));
            let options = LowerOptions {
                arena_budget: Some(0),
                disabled: Disabled { passes, fusions: vec![] },
                ..LowerOptions::default()
            };
            let tight = compiled.lowered(&world, options).train.expect("a train block");
            engine_agrees(&what, &tight, compiled.training(), &bindings);
            kernels_agree(&what, &tight, &bindings);
        }
    }
}

hgnnc_model_tests::test_each_case!(|name| check(&case(name), worlds(6)));

/// The other optimisers, schedules and clipping. Adam divides a gradient by its own size, which turns the last bit
/// of a gradient that should be 0 into a step; a large ε keeps it a comparison of arithmetic.
#[test]
fn optimizers_on_the_engine() {
    for options in [
        "optimizer adam(lr: 0.01, eps: 0.01, weight_decay: 0.1) schedule cosine(epochs: 10)",
        "optimizer adamw(lr: 0.01, eps: 0.01) clip norm(0.1)",
        "optimizer sgd(lr: 0.1, momentum: 0.9, nesterov: true) clip value(0.01)",
    ] {
        let train = format!("train M {{ loss cross_entropy(y, Paper.topic) {options} epochs 5 }}");
        check_trained_by(&case("rgcn"), &train, 3);
    }
}

/// One-hot features make a weight per relation with a row per vertex. Without weight decay, only the rows of vertices
/// with edges are updated, where they are few.
#[test]
fn updates_of_some_rows() {
    let case = case("rgcn_sparse");
    for options in ["adam(lr: 0.01, eps: 0.01)", "sgd(lr: 0.1, momentum: 0.9)"] {
        let train = format!("train M {{ loss cross_entropy(y, Paper.topic) optimizer {options} epochs 5 }}");
        let compiled = compile(&case.trained_by(&train));
        let optimised = compiled.optimised(&World::sparse_library());
        let kernels = optimised.kernels.train.expect("a train block");
        let some_rows = |kind: fn(&OutputKind) -> bool| {
            let endpoints = |output: &&kernel::Output| matches!(output.ty.space, Space::Endpoints(..));
            kernels.outputs.iter().filter(endpoints).filter(|output| kind(&output.kind)).count()
        };
        assert!(some_rows(|kind| matches!(kind, OutputKind::UpdateParam(_))) > 0, "{options}");
        assert!(some_rows(|kind| matches!(kind, OutputKind::UpdateState(..))) > 0, "{options}");
        check_trained_by(&case, &train, 2);
    }
}

/// The runtime's own semantic graph build gives what following every edge gives: relations, reverses, metapaths,
/// self loops, features, labels and split of every case.
#[test]
fn binding_a_dataset_gives_the_same_data() {
    for case in CASES {
        let compiled = compile(&case.source());
        for world in cases::worlds(worlds(6)) {
            let bindings = compiled.bind(&world);
            let executable = compiled.optimised(&world);
            let expected = engine::bound_data(&executable.infer, &bindings);
            let mut dataset = dataset::dataset(&executable.infer, &bindings, &world);
            let added = hgnnc_data::add_path_instances(&executable.infer, &mut dataset, &Default::default())
                .unwrap_or_else(|error| panic!("{}, world {}: {error}", case.name, world.seed));
            assert!(added.iter().all(|paths| paths.listed && paths.counts.all == paths.counts.listed));
            let found = hgnnc_data::bind(&executable, &dataset, &Default::default())
                .unwrap_or_else(|error| panic!("{}, world {}: {error}", case.name, world.seed));
            let what = format!("{}, world {}", case.name, world.seed);
            for (found, expected) in found.graphs.iter().zip(&expected.graphs) {
                assert_eq!(
                    (&found.name, found.num_src, found.num_dst),
                    (&expected.name, expected.num_src, expected.num_dst)
                );
                assert_eq!(found.csc.indptr, expected.csc.indptr, "{what}: {}", found.name);
                assert_eq!(found.csc.indices, expected.csc.indices, "{what}: {}", found.name);
                assert_eq!(found.csr.indptr, expected.csr.indptr, "{what}: {}", found.name);
                assert_eq!(found.csr.indices, expected.csr.indices, "{what}: {}", found.name);
            }
            assert_eq!(found.patterns.len(), expected.patterns.len(), "{what}");
            assert_eq!(found.inputs, expected.inputs[..found.inputs.len()], "{what}");
            assert_eq!(found.truths.len(), expected.truths.len(), "{what}");
            for (found, expected) in found.truths.iter().zip(&expected.truths) {
                assert_eq!((found.vertex, &found.labels), (expected.vertex, &expected.labels), "{what}");
                assert_eq!(found.parts[0], expected.parts[0], "{what}");
            }
        }
    }
}
