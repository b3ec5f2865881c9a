//! Random training programs: loops, and their kernels without the loops, compute what kernels compute, with and without
//! functions, for whole and for split rows. All are interpreted in f64; the constants of a `select` are sums in f32, as the
//! kernels of the runtime form them.

use hgnnc_fusion::{LoweringOptions, SoftmaxForm, lower_with};
use hgnnc_interp::Bindings;
use hgnnc_interp::kernels::{run, run_loops};
use hgnnc_interp::random_program::{random_program, random_program_with_metapaths, seeds};
use hgnnc_ir::{Dataflow, Param};
use hgnnc_kernel_ir::kernel::{Pieces, Program};
use hgnnc_kernel_ir::loops;
use hgnnc_machine::{CodeMode, KernelFeature, KernelFeatures, SimdLevel};
use hgnnc_passes::{Optimizer, OptimizerOptions, PassCx, PassManager, differentiate, update};
use hgnnc_schedule::{Options, schedule, schedule_rows};

const SEEDS: u64 = 120;

/// A program with gradients as results, and updates by stochastic gradient descent with momentum.
fn trained((mut flow, bindings): (Dataflow, Bindings)) -> (Dataflow, Bindings) {
    let wrt: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
    let loss = flow.result("loss").expect("a loss");
    let gradients = differentiate(&mut flow, loss, &wrt);
    for (param, gradient) in &gradients {
        flow.output(format!("d{param}"), *gradient);
    }
    let optimizer = Optimizer::Sgd { lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    update(&mut flow, &gradients, &OptimizerOptions::new(optimizer));
    PassManager::default().run_joint(&mut flow, &mut PassCx::new(None), || None);
    (flow, bindings)
}

/// Compares the loops of a program in all forms with its kernels.
fn check(what: &str, program: &Program, bindings: &Bindings) {
    let exact = run(program, bindings).unwrap_or_else(|error| panic!("{what}: {error}"));
    let plain = KernelFeatures::ALL.without(KernelFeature::FusedPairs).without(KernelFeature::FusedChains);
    let forms = [
        (CodeMode::Interpreted, KernelFeatures::ALL),
        (CodeMode::Native, KernelFeatures::ALL),
        (CodeMode::Native, KernelFeatures::ALL.without(KernelFeature::SplitParts)),
        (CodeMode::Interpreted, plain),
    ];
    let of = |(code, features)| {
        let options = Options::new(code, features, SimdLevel::Base);
        (format!("{code:?}"), schedule(program.clone(), &options, &Default::default()))
    };
    let rows = ("rows on their own".to_owned(), schedule_rows(program.clone()));
    for (form, loops) in forms.into_iter().map(of).chain([rows]) {
        if let Err(broken) = loops::verify(&loops) {
            panic!("{what}, {form}: {broken:#?}\n{program}\n{}", loops::print(&loops));
        }
        let text = loops::print(&loops);
        let parsed = loops::parse(&text).unwrap_or_else(|error| panic!("{what}, {form}: {error}\n{text}"));
        assert_eq!(parsed, *loops, "{what}, {form}\n{text}");
        let looped = run_loops(&loops, bindings).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut found = looped.outputs;
        if loops.functions.is_empty() {
            let kernels = run(&loops.kernels, bindings).unwrap_or_else(|error| panic!("{what}: {error}"));
            found.extend(kernels.outputs);
        }
        for ((kind, exact), (_, found)) in exact.outputs.iter().cycle().zip(&found) {
            for (x, y) in exact.data.iter().zip(&found.data) {
                let close = (x - y).abs() <= 1e-6 * x.abs().max(1.0) || x == y || (x.is_nan() && y.is_nan());
                assert!(close, "{what}, {form}: {kind:?} was {x} and is {y}\n{program}\n{text}");
            }
        }
    }
}

fn check_forms(what: &str, flow: &Dataflow, bindings: &Bindings) {
    for softmax in [SoftmaxForm::InPasses, SoftmaxForm::InOnePass] {
        let lowered = lower_with(flow, LoweringOptions::CPU.with_softmax(softmax));
        let program = lowered.unwrap_or_else(|error| panic!("{what}: {error}"));
        check(what, &program, bindings);
        // Rows of more than two edges in pieces.
        check(&format!("{what}, split"), &program.with_pieces(Some(Pieces { least: 2, most: 1 << 20 })), bindings);
    }
}

#[test]
fn loops_of_random_programs_compute_the_same() {
    for seed in seeds(SEEDS) {
        let (flow, bindings) = random_program(seed);
        check_forms(&format!("seed {seed}"), &flow, &bindings);
        let (flow, bindings) = trained((flow, bindings));
        check_forms(&format!("seed {seed}, trained"), &flow, &bindings);
    }
}

#[test]
fn loops_beside_factored_metapaths_compute_the_same() {
    for seed in seeds(SEEDS / 4) {
        let (flow, bindings) = trained(random_program_with_metapaths(seed));
        check_forms(&format!("seed {seed}"), &flow, &bindings);
    }
}
