//! Native loops and kernels compute the same numbers.
//!
//! If both perform the same operations in the same order, results are bit-identical. Sums over edges and over rows are
//! not: kernels add narrow rows in another order, and restart at each tile.

mod common;

use hgnnc_interp::random_program::{random_program, seeds};
use hgnnc_ir::*;
use hgnnc_kernel_ir::loops::Function;
use hgnnc_machine::CodeMode;
use hgnnc_passes::{Optimizer, OptimizerOptions, PassCx, PassManager, differentiate, update};

use common::{Case, random_edges};

const V: Space = Space::Vertices(VertexType(0));
const G: Graph = Graph(0);

/// All functions of one operand, so that a new one is compared as well.
fn unary_functions() -> impl Iterator<Item = UnaryOp> {
    UnaryOp::PLAIN.into_iter().chain([UnaryOp::LeakyRelu(0.2), UnaryOp::LeakyRelu(0.0)])
}

/// Special values, and numbers of all magnitudes.
fn special(len: usize, salt: u64) -> Vec<f32> {
    let fixed = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
        1e-45,
        -1e-45,
        0.625,
        89.5,
        -104.5,
        -87.5,
        2.0,
        1e-38,
        0.927_734_4,
        0.5,
        -0.5,
    ];
    let drawn = common::numbers(salt, len);
    (0..len)
        .map(|i| match i % 3 {
            0 => fixed[(i / 3 + salt as usize) % fixed.len()],
            1 => drawn[i] * 100.0,
            _ => drawn[i] * 3.0,
        })
        .collect()
}

/// Compares all results of both execution modes; native code is generated where possible. Subnormal numbers count as
/// zero: arithmetic flushes them in these threads, but selects and sign changes keep them.
fn assert_equal(case: &Case, what: &str) {
    let flushed = |x: f32| if x.is_subnormal() { 0.0 } else { x };
    let (kernels, native) = (case.run(2, CodeMode::Interpreted), case.run(2, CodeMode::Native));
    for (name, kernels) in &kernels {
        for (i, (&a, &b)) in kernels.iter().zip(&native[name]).enumerate() {
            assert!(
                flushed(a) == flushed(b) || a.is_nan() && b.is_nan(),
                "{what}: {name}[{i}] is {b:e} in machine code, {a:e} by kernels"
            );
        }
    }
}

#[test]
fn element_wise_functions_are_equal_to_the_bit() {
    // Widths with and without full vectors; width 1 is a single contiguous row.
    for (width, rows) in [(1, 67), (3, 21), (4, 9), (7, 5), (8, 40), (17, 6), (64, 3), (300, 2)] {
        let mut case = Case::new(&[rows], &[]);
        let x = case.input(Type::fixed(V, &[width]), special(rows * width, 1));
        let y = case.input(Type::fixed(V, &[width]), special(rows * width, 5));
        let scalar = case.input(Type::fixed(V, &[]), special(rows, 9));
        for f in unary_functions() {
            let value = case.flow.unary(f, x);
            case.result(value);
        }
        for f in BinaryOp::ALL {
            for (a, b) in [(x, y), (x, scalar), (scalar, y)] {
                let value = case.flow.binary(f, a, b);
                case.result(value);
            }
        }
        assert!(case.engine(1, CodeMode::Native).code().is_some_and(|(functions, _)| functions > 0));
        assert_equal(&case, &format!("width {width}"));
    }
}

#[test]
fn reductions_within_rows_add_in_the_order_of_the_kernels() {
    // Groups of 8 with eight heads have dedicated kernels, which add adjacent elements first.
    for (groups, inner) in
        [(1, 1), (1, 3), (2, 4), (3, 5), (2, 8), (1, 13), (2, 16), (1, 32), (2, 64), (1, 100), (40, 30)]
    {
        let rows = 11;
        let mut case = Case::new(&[rows], &[]);
        let ty = Type::fixed(V, &[groups, inner]);
        let x = case.input(ty.clone(), common::numbers(3, rows * groups * inner));
        let y = case.input(ty, common::numbers(4, rows * groups * inner));
        let e = case.flow.unary(UnaryOp::Exp, x);
        for reduce in [Reduce::Sum, Reduce::Max, Reduce::Min, Reduce::Lse] {
            for value in [x, e] {
                let reduced = case.flow.reduce_trailing(reduce, 1, value);
                case.result(reduced);
            }
        }
        let product = case.flow.binary(BinaryOp::Mul, e, y);
        let dot = case.flow.reduce_trailing(Reduce::Sum, 1, product);
        case.result(dot);
        assert_equal(&case, &format!("{groups} groups of {inner}"));
    }
}

#[test]
fn parts_between_masks_and_products_keep_their_values() {
    // Native loops read tiles computed by masks and products, and vice versa.
    for width in [1, 5, 8, 64] {
        let mut case = Case::new(&[700], &[]);
        let x = case.random(V, &[width]);
        let a = case.flow.unary(UnaryOp::Tanh, x);
        let mut at = a;
        for stream in 0..3 {
            let ty = Type::fixed(V, &[width]);
            let mask = case.flow.add(Op::RandomMask { stream, rate: 0.4, ty }, &[]);
            let masked = case.flow.binary(BinaryOp::Mul, at, mask);
            let more = case.flow.unary(UnaryOp::Exp, masked);
            at = case.flow.binary(BinaryOp::Sub, more, mask);
        }
        case.result(at);
        assert_equal(&case, &format!("width {width}"));
    }
}

#[test]
fn edges_of_all_degrees_agree_with_the_interpreter() {
    // No edges, one, a few, and more than a run and a tile; isolated vertices on both sides.
    for (edges, skew) in [(0, 1.0), (1, 1.0), (40, 1.0), (300, 3.0), (3000, 6.0)] {
        for width in [1, 2, 3, 8, 20, 65] {
            let mut case = Case::new(&[30, 50], &[(1, 0, random_edges(7, 50, 30, edges, skew))]);
            let h = case.random(Space::Vertices(VertexType(1)), &[width]);
            let d = case.random(V, &[width]);
            let s = case.random(V, &[]);
            let hs = case.flow.add(Op::GatherSrc(G), &[h]);
            let ds = case.flow.add(Op::GatherDst(G), &[d]);
            let ss = case.flow.add(Op::GatherDst(G), &[s]);
            let sum = case.flow.binary(BinaryOp::Add, hs, ds);
            let leaky = case.flow.unary(UnaryOp::LeakyRelu(0.2), sum);
            let scaled = case.flow.binary(BinaryOp::Mul, leaky, ss);
            for direction in [Direction::In, Direction::Out] {
                for reduce in [Reduce::Sum, Reduce::Max, Reduce::Min] {
                    let value = case.flow.segment(G, direction, reduce, scaled);
                    case.result(value);
                }
            }
            case.check(2e-5);
        }
    }
}

#[test]
fn fused_sequences_are_equal_to_the_bit() {
    // `leaky_relu(a + b)`, its slope, and `exp(a - b)`, of vertices and of edges.
    for width in [1, 3, 8, 16] {
        let mut case = Case::new(&[40, 60], &[(1, 0, random_edges(3, 60, 40, 500, 2.0))]);
        let h = case.random(Space::Vertices(VertexType(1)), &[width]);
        let d = case.random(V, &[width]);
        let hs = case.flow.add(Op::GatherSrc(G), &[h]);
        let ds = case.flow.add(Op::GatherDst(G), &[d]);
        let exp = case.flow.unary(UnaryOp::Exp, d);
        for (a, b) in [(hs, ds), (d, exp)] {
            let score = case.flow.binary(BinaryOp::Add, a, b);
            let leaky = case.flow.unary(UnaryOp::LeakyRelu(0.2), score);
            let step = case.flow.unary(UnaryOp::Step, score);
            let [steep, flat] = [0.8, 0.2].map(|x| case.flow.constant(x));
            let slope = case.flow.binary(BinaryOp::Mul, step, steep);
            let slope = case.flow.binary(BinaryOp::Add, slope, flat);
            let gradient = case.flow.binary(BinaryOp::Mul, leaky, slope);
            let shifted = case.flow.binary(BinaryOp::Sub, gradient, b);
            let weight = case.flow.unary(UnaryOp::Exp, shifted);
            case.result(gradient);
            case.result(weight);
        }
        assert_equal(&case, &format!("width {width}"));
    }
}

#[test]
fn long_chains_over_many_rows_become_code_and_short_ones_do_not() {
    let functions = |rows: usize, length: usize| {
        let mut case = Case::new(&[rows], &[]);
        let x = case.random(V, &[64]);
        let y = case.random(V, &[64]);
        let mut at = x;
        for i in 0..length {
            at = case.flow.binary([BinaryOp::Mul, BinaryOp::Add][i % 2], at, y);
        }
        case.result(at);
        assert!(case.engine(1, CodeMode::Interpreted).code().is_none());
        let code = case.engine(1, CodeMode::Auto).code();
        if code.is_some() {
            let (kernels, code) = (case.run(2, CodeMode::Interpreted), case.run(2, CodeMode::Auto));
            assert_eq!(kernels, code);
        }
        code.map_or(0, |(functions, _)| functions)
    };
    assert_eq!(functions(4000, 12), 1);
    assert_eq!(functions(4, 12), 0, "compiling takes longer than it ever saves");
    assert_eq!(functions(4000, 1), 0, "a kernel is as good");
}

/// Parameters and states after three steps of training.
fn trained(case: &Case, threads: usize, code: CodeMode) -> Vec<Vec<f32>> {
    let mut engine = case.engine(threads, code);
    for step in 1..4 {
        engine.run(0, case.bindings.seed, step, 0, &mut Default::default());
        engine.commit(0);
    }
    let params: Vec<Vec<f32>> = (0..engine.num_params()).map(|i| engine.param(i).to_vec()).collect();
    let states = 0..engine.states().len();
    params.into_iter().chain(states.map(|i| engine.state(i).to_vec())).collect()
}

/// Appends the gradients of all parameters and their updates.
fn train(flow: &mut Dataflow, loss: Value, optimizer: Optimizer) {
    let wrt: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
    let gradients = differentiate(flow, loss, &wrt);
    update(flow, &gradients, &OptimizerOptions::new(optimizer));
}

fn adam(weight_decay: f64) -> Optimizer {
    Optimizer::Adam { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay }
}

#[test]
fn updates_in_place_are_equal_to_the_bit() {
    let adam_w = Optimizer::AdamW { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    let momentum = Optimizer::Sgd { lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.01 };
    for optimizer in [Optimizer::sgd(0.1), momentum, adam(0.0), adam(0.01), adam_w] {
        for shape in [[40, 13], [7, 1], [1, 64], [300, 20]] {
            let mut case = Case::new(&[30], &[]);
            let (x, w) = (case.random(V, &[shape[0]]), case.weight(&shape));
            let h = case.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
            let squares = case.flow.binary(BinaryOp::Mul, h, h);
            let rows = case.flow.reduce_trailing(Reduce::Sum, 1, squares);
            let loss = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[rows]);
            case.result(loss);
            train(&mut case.flow, loss, optimizer);
            let engine = case.engine(1, CodeMode::Native);
            assert!(engine.plan(0).first_update < engine.plan(0).steps.len(), "updates are steps");
            let program = common::compiled(&case.program(), &case.data, CodeMode::Native, case.features);
            let changes = |function: &Function| function.arrays.iter().any(|array| array.changes);
            assert!(program.loops.functions.iter().any(changes), "{optimizer:?}");
            let kernels = trained(&case, 2, CodeMode::Interpreted);
            assert!(kernels.iter().flatten().all(|x| x.is_finite()));
            for threads in [1, 3] {
                assert_eq!(trained(&case, threads, CodeMode::Native), kernels, "{shape:?}, {optimizer:?}");
            }
        }
    }
}

#[test]
fn random_models_learn_the_same() {
    for seed in seeds(80) {
        let (mut flow, bindings) = random_program(seed);
        let loss = flow.result("loss").expect("a loss");
        train(&mut flow, loss, Optimizer::Sgd { lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.001 });
        if seed % 2 == 0 {
            PassManager::default().run_joint(&mut flow, &mut PassCx::new(None), || None);
        }
        let case = common::case_of(flow, bindings);
        let kernels = trained(&case, 2, CodeMode::Interpreted);
        for (kernels, native) in kernels.iter().zip(trained(&case, 2, CodeMode::Native)) {
            let scale = kernels.iter().fold(1.0f32, |most, x| most.max(x.abs()));
            let close = |(a, b): (&f32, &f32)| a == b || (a - b).abs() <= 1e-4 * scale || a.is_nan() && b.is_nan();
            assert!(kernels.iter().zip(&native).all(close), "seed {seed}: {kernels:?} and {native:?}");
        }
    }
}
