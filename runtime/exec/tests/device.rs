//! Random programs as PTX, executed with every access checked: results, gradients and updates are those of the oracle.
//!
//! `HGNN_RANDOM_CASES` and `HGNN_RANDOM_SEED` choose other programs than those of every run; a failure names the seed.

mod common;

use hgnnc_ir::interp;
use hgnnc_ir::random_program::{random_program, seeds};
use hgnnc_passes::{PassCx, PassManager};

#[test]
fn random_programs_agree_as_ptx() {
    for seed in seeds(60) {
        let (flow, bindings) = random_program(seed);
        common::case_of(flow, bindings).check_device(&format!("seed {seed}"), 2e-5);
    }
}

/// As written, optimised, and with rows for the vertices with edges only.
#[test]
fn training_programs_agree_as_ptx() {
    for seed in seeds(20) {
        let (written, bindings) = common::training_program(seed);
        let values = interp::run(&written, &bindings).expect("the bindings fit");
        for sizes in [None, Some(common::few_ends(&written))] {
            let mut flow = written.clone();
            PassManager::default().run_joint(&mut flow, &mut PassCx::new(sizes.clone()), || None);
            for (which, flow) in [("as written", &written), ("optimised", &flow)] {
                let what = format!("seed {seed}, {which}, sizes {}", sizes.is_some());
                let case = common::case_of(flow.clone(), bindings.clone());
                let found = case.on_device(&what, &case.gpu_program());
                for output in &written.outputs {
                    let name = common::name_of(&written, &output.kind);
                    // A gradient that became zero may be left out.
                    let Some(numbers) = found.get(&name) else { continue };
                    let exact = &values[output.value].data;
                    common::close(&format!("{what}: {name}"), numbers, exact, 2e-4, &|| case.gpu_program().to_string());
                }
            }
        }
    }
}
