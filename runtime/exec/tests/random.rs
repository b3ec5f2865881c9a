//! Random programs on random graphs: the engine computes what the interpreter computes.

mod common;

use hgnnc_ir::random_program::random_program;

#[test]
fn random_programs_agree_with_the_interpreter() {
    for seed in 0..400 {
        let (flow, bindings) = random_program(seed);
        // Twenty operations in sequence, on numbers of moderate size.
        common::case_of(flow, bindings).check(2e-5);
    }
}
