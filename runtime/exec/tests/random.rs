//! Random programs on random graphs: the engine computes what the interpreter computes.

mod common;

use hgnnc_ir::Param;
use hgnnc_ir::random_program::random_program;
use hgnnc_passes::pipeline::Ends;
use hgnnc_passes::{Optimizer, OptimizerOptions, PassCx, PassManager, SizeInfo, differentiate, update};

#[test]
fn random_programs_agree_with_the_interpreter() {
    for seed in 0..400 {
        let (flow, bindings) = random_program(seed);
        // Twenty operations in sequence, on numbers of moderate size.
        common::case_of(flow, bindings).check(2e-5);
    }
}

/// Training programs whose values have rows for the vertices with edges only, wherever that can be.
#[test]
fn compact_programs_agree_with_the_interpreter() {
    for seed in 0..120 {
        let (mut flow, bindings) = random_program(seed);
        let wrt: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
        let loss = flow.result("loss").expect("a loss");
        let sizes = SizeInfo {
            vertices: vec![1000; flow.vertex_types.len()],
            edges: vec![2; flow.graphs.len()],
            ends: vec![Ends { sources: 1, destinations: 1, ..Ends::default() }; flow.graphs.len()],
            ..SizeInfo::default()
        };
        let gradients = differentiate(&mut flow, loss, &wrt);
        let optimizer = Optimizer::Sgd { lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
        update(&mut flow, &gradients, &OptimizerOptions::new(optimizer));
        PassManager::default().run_joint(&mut flow, &mut PassCx::new(Some(sizes)));
        common::case_of(flow, bindings).check(2e-4);
    }
}
