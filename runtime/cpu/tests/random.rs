//! Random programs on random graphs: the engine computes what the interpreters compute, by kernels and by machine code,
//! as the programs are written and as the passes leave them, for results, gradients and updates.
//!
//! `HGNN_RANDOM_CASES` and `HGNN_RANDOM_SEED` choose other programs than those of every run; a failure names the seed.

mod common;

use std::collections::BTreeMap;

use hgnnc_interp::Bindings;
use hgnnc_interp::random_program::{random_program, random_program_with_metapaths, seeds};
use hgnnc_ir::{Dataflow, OutputKind};
use hgnnc_kernel_ir::kernel::Pieces;
use hgnnc_machine::CodeMode;
use hgnnc_passes::{PassCx, PassManager};

#[test]
fn random_programs_agree_with_the_interpreter() {
    for seed in seeds(400) {
        let (flow, bindings) = random_program(seed);
        // Sequences of twenty operations, on numbers of moderate magnitude.
        common::case_of(flow, bindings).check_named(&format!("seed {seed}"), 2e-5);
    }
}

/// Training programs whose values have rows for the vertices with edges only, wherever that can be.
#[test]
fn compact_programs_agree_with_the_interpreter() {
    for seed in seeds(120) {
        let (mut flow, bindings) = common::training_program(seed);
        let sizes = common::few_endpoints(&flow);
        PassManager::default().run_joint(&mut flow, &mut PassCx::new(Some(sizes)), || None);
        common::case_of(flow, bindings).check_named(&format!("seed {seed}"), 2e-4);
    }
}

/// Attention over factored metapaths, and its gradients, which look up sums from the other end.
#[test]
fn sums_over_paths_agree_with_the_interpreter() {
    for seed in seeds(50) {
        let program = random_program_with_metapaths(seed);
        common::case_of(program.0.clone(), program.1.clone()).check_named(&format!("seed {seed}"), 5e-5);
        let (mut flow, bindings) = common::trained(program);
        PassManager::default().run_joint(&mut flow, &mut PassCx::new(None), || None);
        common::case_of(flow, bindings).check_named(&format!("seed {seed}, trained"), 2e-4);
    }
}

/// Results, gradients, new parameters and new states, as written and optimised. The program as written is the oracle of
/// all; kernels are compared also with what the interpreter of kernels makes of them.
#[test]
fn training_programs_agree_with_both_interpreters() {
    for seed in seeds(50) {
        let (written, bindings) = common::training_program(seed);
        let oracle = oracle(&written, &bindings);
        for sizes in [None, Some(common::few_endpoints(&written))] {
            let mut optimised = written.clone();
            PassManager::default().run_joint(&mut optimised, &mut PassCx::new(sizes.clone()), || None);
            let programs = [("as written", &written), ("optimised", &optimised)];
            for (which, flow) in programs.into_iter().skip(usize::from(sizes.is_some())) {
                let what = format!("seed {seed}, {which}, sizes {}", sizes.is_some());
                let program = hgnnc_fusion::lower(flow).unwrap_or_else(|error| panic!("{what}: {error}"));
                let kernels = hgnnc_interp::kernels::run(&program, &bindings)
                    .unwrap_or_else(|e| panic!("{what}: {e}\n{program}"));
                let case = common::case_of(flow.clone(), bindings.clone());
                for code in [CodeMode::Interpreted, CodeMode::Native] {
                    let found = case.trained_once(2, code);
                    for (name, exact) in &oracle {
                        // A gradient that became zero may be left out.
                        let Some(numbers) = found.get(name) else { continue };
                        let what = format!("{what}, {code:?}: {name}");
                        common::close(&what, numbers, exact, 2e-4, &|| format!("{flow}\n{program}"));
                    }
                    for output in &program.outputs {
                        let name = common::name_of(flow, &output.kind);
                        let exact = &kernels.output(&output.kind).expect("an output of the program").data;
                        let rows_of_ends = matches!(output.ty.space, hgnnc_ir::Space::Endpoints(..));
                        // For an update of some rows, the kernels return only these rows.
                        if let (Some(numbers), false) = (found.get(&name), rows_of_ends) {
                            let what = format!("{what}, {code:?} against kernels: {name}");
                            common::close(&what, numbers, exact, 2e-4, &|| format!("{flow}\n{program}"));
                        }
                    }
                }
            }
        }
    }
}

/// A cache-resident replay accesses other rows, but stays in bounds: above all gathers and split rows.
#[test]
fn folded_programs_stay_within_what_is_stored() {
    for seed in seeds(60) {
        let (flow, bindings) = common::training_program(seed);
        let case = common::case_of(flow, bindings);
        for pieces in [None, Some(Pieces { least: 2, most: usize::MAX })] {
            for code in [CodeMode::Interpreted, CodeMode::Native] {
                let mut engine = case.engine_of(case.program().with_pieces(pieces), 1, code);
                for bytes in [0, 64, 1 << 20] {
                    assert!(engine.replay_in_cache(bytes));
                    engine.run(0, 1, 1, 0, &mut Default::default());
                }
                assert!(
                    !case.engine_of(case.program(), 2, code).replay_in_cache(64),
                    "two threads would write the same rows"
                );
            }
        }
    }
}

/// All outputs by name, in f64.
fn oracle(flow: &Dataflow, bindings: &Bindings) -> BTreeMap<String, Vec<f64>> {
    let values = hgnnc_interp::run(flow, bindings).expect("the bindings fit");
    let known = |kind: &OutputKind| common::name_of(flow, kind);
    flow.outputs.iter().map(|output| (known(&output.kind), values[output.value].data.clone())).collect()
}
