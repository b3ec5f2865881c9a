//! Tiled GEMMs on a device, with fused prologues and epilogues.

mod common;

use hgnnc_ir::*;
use hgnnc_kernel_ir::kernel::{Body, Program};
use hgnnc_ptx::{Precision, Target};

use common::Case;

const T0: Space = Space::Vertices(VertexType(0));

/// Rows around the height of a tile.
const ROWS: [usize; 5] = [0, 1, 63, 65, 150];

/// Whether all products are fused into row kernels.
fn in_tiles(program: &Program) -> bool {
    program.kernels().all(|kernel| matches!(kernel.body, Body::Traversal(_)))
}

/// `x w + b` with a weight of these extents, one for each of `batch`.
fn linear(case: &mut Case, x: Value, batch: &[usize], k: usize, n: usize) -> Value {
    let weight = case.weight(&[batch, &[k, n]].concat());
    let product = case.flow.add(Op::MatMul { batch: batch.len() }, &[x, weight]);
    let bias = case.weight(&[batch, &[n]].concat());
    case.flow.binary(BinaryOp::Add, product, bias)
}

#[test]
fn what_follows_from_a_product_is_computed_in_its_tile() {
    for rows in ROWS {
        // Extents that are multiples of nothing, and a feature row longer than any tile.
        for (k, n) in [(20, 70), (300, 64), (33, 128), (40, 126)] {
            let mut case = Case::new(&[rows], &[]);
            let x = case.random(T0, &[k]);
            let y = linear(&mut case, x, &[], k, n);
            let z = case.flow.unary(UnaryOp::Elu, y);
            case.result(z);
            let a = case.weight(&[n]);
            let weighted = case.flow.binary(BinaryOp::Mul, z, a);
            let score = case.flow.reduce_trailing(Reduce::Sum, 1, weighted);
            case.result(score);
            let sum = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[z]);
            case.result(sum);
            let largest = case.flow.reduce_trailing(Reduce::Lse, 1, y);
            case.result(largest);
            assert!(in_tiles(&case.gpu_program()), "{}", case.gpu_program());
            case.check_device("what follows", 2e-5);
        }
    }
}

#[test]
fn operands_and_results_stay_in_the_tile_from_product_to_product() {
    for rows in ROWS {
        let mut case = Case::new(&[rows], &[]);
        let x = case.random(T0, &[30]);
        let x = case.flow.unary(UnaryOp::Tanh, x);
        let y = linear(&mut case, x, &[], 30, 40);
        let y = case.flow.unary(UnaryOp::Elu, y);
        case.result(y);
        // Read as operand of a product, and again in its epilogue.
        let z = linear(&mut case, y, &[], 40, 40);
        let sum = case.flow.binary(BinaryOp::Add, z, y);
        let w = case.weight(&[30, 40]);
        let back = case.flow.add(Op::MatMulT { batch: 0 }, &[sum, w]);
        let close = case.flow.binary(BinaryOp::Mul, back, x);
        case.result(close);
        let program = case.gpu_program();
        assert!(in_tiles(&program) && program.launches.len() == 1, "{program}");
        case.check_device("a chain", 2e-5);
    }
}

#[test]
fn products_of_a_batch_have_their_parts_of_the_tile() {
    for rows in ROWS {
        for (k, n) in [(16, 30), (13, 40), (37, 20)] {
            let mut case = Case::new(&[rows], &[]);
            let x = case.random(T0, &[3, k]);
            let x = case.flow.unary(UnaryOp::Tanh, x);
            let y = linear(&mut case, x, &[3], k, n);
            case.result(y);
            let w = case.weight(&[3, k, n]);
            let back = case.flow.add(Op::MatMulT { batch: 1 }, &[y, w]);
            case.result(back);
            assert!(in_tiles(&case.gpu_program()), "{}", case.gpu_program());
            case.check_device("a batch", 2e-5);
        }
    }
}

#[test]
fn a_result_takes_the_place_of_an_operand_when_its_tile_is_done() {
    for rows in ROWS {
        let mut case = Case::new(&[rows], &[]);
        let x = case.random(T0, &[20]);
        let y = linear(&mut case, x, &[], 20, 64);
        let total = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[y]);
        // A separate kernel, since it waits for the total; `y` has its last use there.
        let little = case.flow.constant(0.01);
        let little = case.flow.binary(BinaryOp::Mul, total, little);
        let scaled = case.flow.binary(BinaryOp::Mul, y, little);
        let small = case.flow.unary(UnaryOp::Tanh, scaled);
        case.result(small);
        let z = linear(&mut case, small, &[], 64, 64);
        let z = case.flow.binary(BinaryOp::Mul, z, small);
        let late = case.flow.binary(BinaryOp::Add, z, y);
        case.result(late);
        assert!(case.gpu_program().buffers.iter().any(|buffer| buffer.replaces.is_some()), "{}", case.gpu_program());
        case.check_device("in place", 2e-5);
    }
}

#[test]
fn products_are_as_exact_as_was_asked_for() {
    let mut case = Case::new(&[150], &[]);
    let x = case.random(T0, &[200]);
    // In a tile, and with a result too wide for one.
    for n in [70, 200] {
        let w = case.weight(&[200, n]);
        let y = case.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
        case.result(y);
        let w = case.weight(&[n, 200]);
        let z = case.flow.add(Op::MatMulT { batch: 0 }, &[x, w]);
        case.result(z);
    }
    let other = case.random(T0, &[90]);
    let outer = case.flow.add(Op::Outer { batch: 0 }, &[x, other]);
    case.result(outer);
    let exact = hgnnc_interp::run(&case.flow, &case.bindings).expect("the bindings fit");
    let error = |precision: Precision| -> Vec<f64> {
        let found = case.on_device_for("precision", &case.gpu_program(), Target::SM_80.with_precision(precision));
        let apart = |(name, found): (&String, &Vec<f32>)| {
            let index: usize = name[1..].parse().expect("results are numbered");
            let exact = &exact[case.flow.outputs[index].value].data;
            let size = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
            let error = found.iter().zip(exact).map(|(&f, e)| (f64::from(f) - e).abs()).fold(0.0, f64::max);
            error / size
        };
        found.iter().map(apart).collect()
    };
    // Relative to the size of the numbers of a result: rounding to 24, 11 and 8 bits.
    for (precision, least, most) in [
        (Precision::F32, 0.0, 4e-6),
        (Precision::Tf32x3, 0.0, 4e-6),
        (Precision::Tf32, 1e-4, 3e-3),
        (Precision::Bf16, 1e-3, 3e-2),
    ] {
        for error in error(precision) {
            assert!((least..=most).contains(&error), "{precision:?}: {error}");
        }
    }
}
