//! Every operation against the interpreter, on graphs with edge cases.

mod common;

use hgnnc_fusion::LoweringOptions;
use hgnnc_ir::*;
use hgnnc_machine::{CodeMode, KernelFeature, KernelFeatures};
use hgnnc_passes::PassCx;
use hgnnc_passes::split_outer_products::split_outer_products_into;

use common::{Case, random_edges};

const T0: Space = Space::Vertices(VertexType(0));
const T1: Space = Space::Vertices(VertexType(1));
const G: Graph = Graph(0);

/// Name, number of sources and destinations, and edges.
type Example = (&'static str, usize, usize, Vec<(u32, u32)>);

/// Graphs from type 0 to type 1.
fn graphs() -> Vec<Example> {
    vec![
        ("no edges", 3, 4, vec![]),
        ("one vertex", 1, 1, vec![(0, 0)]),
        ("duplicates and isolated ends", 4, 5, vec![(0, 1), (0, 1), (2, 1), (3, 4), (3, 0)]),
        ("no sources", 0, 3, vec![]),
        ("no destinations", 3, 0, vec![]),
        ("random", 40, 60, random_edges(1, 40, 60, 900, 1.0)),
        ("rows longer than a block", 300, 50, random_edges(2, 300, 50, 9000, 6.0)),
    ]
}

fn each_graph(build: impl Fn(&mut Case)) {
    for (name, num_src, num_dst, edges) in graphs() {
        eprintln!("graph: {name}");
        let mut case = Case::new(&[num_src, num_dst], &[(0, 1, edges)]);
        build(&mut case);
        case.check(4e-6);
    }
}

#[test]
fn element_wise_functions() {
    use UnaryOp::*;
    let mut case = Case::new(&[5000, 3], &[]);
    let x = case.random(T0, &[3]);
    let three = case.flow.constant(3.0);
    let x3 = case.flow.binary(BinaryOp::Mul, x, three);
    for op in
        [Neg, Exp, Softplus, Recip, Abs, Sign, Step, Tanh, Sigmoid, Relu, LeakyRelu(0.2), Elu, Gelu, Erf, Floor, Cos]
    {
        let y = case.flow.unary(op, x3);
        let y = if op == Recip { case.flow.unary(Tanh, y) } else { y };
        case.result(y);
    }
    let positive = case.flow.unary(Abs, x3);
    for op in [Log, Log1p, Sqrt] {
        let y = case.flow.unary(op, positive);
        case.result(y);
    }
    let other = case.random(T0, &[3]);
    let row = case.random(T0, &[]);
    let unit = case.weight(&[3]);
    for op in [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Max,
        BinaryOp::Min,
        BinaryOp::LogAddExp,
        BinaryOp::Eq,
        BinaryOp::Gt,
    ] {
        for (a, b) in [(x, other), (x, row), (row, x), (x, unit), (unit, x), (x, three), (three, x), (x, x)] {
            let y = case.flow.binary(op, a, b);
            case.result(y);
        }
    }
    let quotient = case.flow.binary(BinaryOp::Div, row, three);
    case.result(quotient);
    let power = case.flow.binary(BinaryOp::Pow, positive, three);
    case.result(power);
    case.check(1e-6);
}

#[test]
fn shapes_and_trailing_reductions() {
    let mut case = Case::new(&[700, 1], &[]);
    let x = case.random(T0, &[4, 6]);
    let y = case.random(T0, &[4, 3]);
    let joined = case.flow.add(Op::Concat, &[x, y]);
    let slice = case.flow.add(Op::Slice { start: 5, len: 3 }, &[joined]);
    let flat = case.flow.add(Op::Reshape(vec![Dim::Fixed(2), Dim::Fixed(12)]), &[x]);
    let wide = case.flow.add(Op::Broadcast(Type::fixed(T0, &[4, 3, 5])), &[y]);
    let unit = case.weight(&[4]);
    let rows = case.flow.add(Op::Broadcast(Type::fixed(T0, &[4, 6])), &[unit]);
    for v in [joined, slice, flat, wide, rows] {
        case.result(v);
        for reduce in [Reduce::Sum, Reduce::Max, Reduce::Min, Reduce::Lse] {
            let r = case.flow.reduce_trailing(reduce, 1, v);
            case.result(r);
            let r = case.flow.add(Op::ReduceSpace(reduce), &[v]);
            case.result(r);
        }
    }
    let swapped = case.flow.add(Op::Transpose { axis: 0 }, &[wide]);
    case.result(swapped);
    let deep = case.flow.add(Op::Transpose { axis: 1 }, &[swapped]);
    case.result(deep);
    for (a, b) in [(swapped, deep), (flat, flat)] {
        let batch = case.flow.ty(a).dims.len() - 2;
        let turned = case.flow.add(Op::Transpose { axis: batch }, &[b]);
        let product = case.flow.add(Op::RowProduct { batch }, &[a, if batch == 0 { turned } else { b }]);
        case.result(product);
    }
    let column = case.flow.add(Op::Reshape(vec![Dim::Fixed(24), Dim::Fixed(1)]), &[x]);
    let line = case.flow.add(Op::Transpose { axis: 0 }, &[column]);
    for factors in [[line, column], [column, line]] {
        let product = case.flow.add(Op::RowProduct { batch: 0 }, &factors);
        case.result(product);
    }
    let product = case.flow.binary(BinaryOp::Mul, x, rows);
    let dot = case.flow.reduce_trailing(Reduce::Sum, 2, product);
    case.result(dot);
    let labels = case.labels(VertexType(0), (0..700).map(|i| i % 5 - 1).collect());
    let hot = case.flow.add(Op::OneHot { classes: 3 }, &[labels]);
    case.result(hot);
    let mask = Op::RandomMask { stream: 2, rate: 0.3, ty: Type::fixed(T0, &[7]) };
    let mask = case.flow.add(mask, &[]);
    case.result(mask);
    let count = case.flow.add(Op::Count(T0), &[]);
    case.result(count);
    case.check(4e-6);
}

#[test]
fn dense_products() {
    for rows in [0, 1, 37, 3000] {
        let mut case = Case::new(&[rows, 1], &[]);
        let x = case.random(T0, &[20]);
        let w = case.weight(&[20, 7]);
        let y = case.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
        case.result(y);
        let back = case.flow.add(Op::MatMulT { batch: 0 }, &[y, w]);
        case.result(back);
        let dw = case.flow.add(Op::Outer { batch: 0 }, &[x, y]);
        case.result(dw);
        let heads = case.random(T0, &[3, 5]);
        let v = case.weight(&[3, 5, 2, 2]);
        let z = case.flow.add(Op::MatMul { batch: 1 }, &[heads, v]);
        case.result(z);
        let back = case.flow.add(Op::MatMulT { batch: 1 }, &[z, v]);
        case.result(back);
        let dv = case.flow.add(Op::Outer { batch: 1 }, &[heads, z]);
        case.result(dv);
        // Attention scores: one column per head.
        let a = case.weight(&[3, 5]);
        let score = case.flow.add(Op::MatMul { batch: 1 }, &[heads, a]);
        case.result(score);
        let back = case.flow.add(Op::MatMulT { batch: 1 }, &[score, a]);
        case.result(back);
        let da = case.flow.add(Op::Outer { batch: 1 }, &[heads, score]);
        case.result(da);
        let wide = case.random(T0, &[300]);
        let tall = case.flow.add(Op::Outer { batch: 0 }, &[wide, y]);
        case.result(tall);
        // Products of unit values.
        let row = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[x]);
        let unit = case.flow.add(Op::MatMul { batch: 0 }, &[row, w]);
        case.result(unit);
        let unit_outer = case.flow.add(Op::Outer { batch: 0 }, &[row, unit]);
        case.result(unit_outer);
        case.check(5e-6);
    }
}

#[test]
fn segments_of_gathered_rows() {
    each_graph(|case| {
        for width in [&[][..], &[3], &[8], &[2, 32]] {
            let x = case.random(T0, width);
            let y = case.random(T1, width);
            let (src, dst) = (case.flow.add(Op::GatherSrc(G), &[x]), case.flow.add(Op::GatherDst(G), &[y]));
            let sum = case.flow.binary(BinaryOp::Add, src, dst);
            for direction in [Direction::In, Direction::Out] {
                for reduce in [Reduce::Sum, Reduce::Max, Reduce::Min, Reduce::Lse] {
                    for edges in [src, dst, sum] {
                        let r = case.flow.segment(G, direction, reduce, edges);
                        case.result(r);
                    }
                }
            }
            let total = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[sum]);
            case.result(total);
        }
    });
}

#[test]
fn attention_forward_and_backward_pieces() {
    each_graph(|case| attention(case, &[(8, 8), (1, 64), (4, 16), (3, 5), (2, 1)]));
}

/// Attention of `heads` heads of `k` elements with its gradients.
fn attention(case: &mut Case, extents: &[(usize, usize)]) {
    for &(h, k) in extents {
        let x = case.random(T0, &[h, k]);
        let (a, b) = (case.random(T0, &[h]), case.random(T1, &[h]));
        let (ea, eb) = (case.flow.add(Op::GatherSrc(G), &[a]), case.flow.add(Op::GatherDst(G), &[b]));
        let score = case.flow.binary(BinaryOp::Add, ea, eb);
        let score = case.flow.unary(UnaryOp::LeakyRelu(0.2), score);
        let lse = case.flow.segment(G, Direction::In, Reduce::Lse, score);
        let at = case.flow.add(Op::GatherDst(G), &[lse]);
        let shifted = case.flow.binary(BinaryOp::Sub, score, at);
        let alpha = case.flow.unary(UnaryOp::Exp, shifted);
        let mask = Op::RandomMask { stream: 1, rate: 0.4, ty: Type::fixed(Space::Edges(G), &[h]) };
        let mask = case.flow.add(mask, &[]);
        let dropped = case.flow.binary(BinaryOp::Mul, alpha, mask);
        let xe = case.flow.add(Op::GatherSrc(G), &[x]);
        let message = case.flow.binary(BinaryOp::Mul, dropped, xe);
        let z = case.flow.segment(G, Direction::In, Reduce::Sum, message);
        let z = case.flow.unary(UnaryOp::Elu, z);
        case.result(z);
        // Backward: gradients of the scores at both ends and of x.
        let dz = case.random(T1, &[h, k]);
        let dze = case.flow.add(Op::GatherDst(G), &[dz]);
        let p = case.flow.binary(BinaryOp::Mul, dze, xe);
        let dalpha = case.flow.reduce_trailing(Reduce::Sum, 1, p);
        let dalpha = case.flow.binary(BinaryOp::Mul, dalpha, mask);
        let w = case.flow.binary(BinaryOp::Mul, dalpha, alpha);
        let inner = case.flow.segment(G, Direction::In, Reduce::Sum, w);
        let back = case.flow.add(Op::GatherDst(G), &[inner]);
        let centred = case.flow.binary(BinaryOp::Sub, dalpha, back);
        let dscore = case.flow.binary(BinaryOp::Mul, alpha, centred);
        for direction in [Direction::In, Direction::Out] {
            let d = case.flow.segment(G, direction, Reduce::Sum, dscore);
            case.result(d);
        }
        let dm = case.flow.binary(BinaryOp::Mul, dropped, dze);
        let dx = case.flow.segment(G, Direction::Out, Reduce::Sum, dm);
        case.result(dx);
        let wide = case.flow.add(Op::Broadcast(Type::fixed(Space::Edges(G), &[h, k])), &[alpha]);
        let message = case.flow.binary(BinaryOp::Mul, xe, wide);
        let z = case.flow.segment(G, Direction::In, Reduce::Sum, message);
        case.result(z);
    }
}

/// Features belong to an engine: without one, kernels of its own do the work, and another engine of
/// the process keeps its bits.
#[test]
fn kernels_compute_the_same_without_any_feature() {
    let mut case = Case::new(&[40, 60], &[(0, 1, random_edges(1, 40, 60, 900, 1.0))]);
    attention(&mut case, &[(8, 8), (4, 16), (1, 64)]);
    let (x, w) = (case.random(T0, &[130]), case.weight(&[130, 140]));
    let product = case.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
    case.result(product);
    let codes = [CodeMode::Interpreted, CodeMode::Native];
    let whole = codes.map(|code| case.run(2, code));
    for feature in KernelFeature::ALL {
        case.features = KernelFeatures::ALL.without(feature);
        case.check_named(&format!("without {}", feature.name()), 4e-6);
        case.features = KernelFeatures::ALL;
        assert!(codes.map(|code| case.run(2, code)) == whole, "`{}` was disabled for another engine", feature.name());
    }
}

/// Rows of zero to five edges, and one of 3000.
fn short_rows_and_a_long_one() -> Vec<(u32, u32)> {
    let mut edges = vec![];
    for dst in 0..40u32 {
        edges.extend((0..dst % 6).map(|src| (src, dst)));
    }
    edges.extend((0..3000).map(|e| (e % 7, 40)));
    edges
}

/// Large scores, and infinite ones in rows 4, 8 and 9.
fn extreme_scores(edges: &[(u32, u32)], heads: usize) -> Vec<f32> {
    let score = |e: usize, h: usize| -> f32 {
        match (edges[e].1, e % 3) {
            // All scores of a row, and some of another.
            (4, _) | (8, 0) => f32::NEG_INFINITY,
            (9, 1) => f32::INFINITY,
            // Value of masked scores.
            (10, _) => -1e9,
            (row, part) => (if row % 2 == 0 { 1e4 } else { -1e4 }) + (part * 2 + h) as f32,
        }
    };
    (0..edges.len()).flat_map(|e| (0..heads).map(move |h| (e, h))).map(|(e, h)| score(e, h)).collect()
}

#[test]
fn softmaxes_in_one_pass_over_their_edges() {
    let edges = short_rows_and_a_long_one();
    for (heads, inner) in [(1, 1), (1, 64), (3, 5), (8, 8), (2, 16), (70, 2)] {
        for (dropout, direction) in [(false, Direction::In), (true, Direction::In), (true, Direction::Out)] {
            let mut case = Case::new(&[7, 42], &[(0, 1, edges.clone())]);
            let score = case.input(Type::fixed(Space::Edges(G), &[heads]), extreme_scores(&edges, heads));
            let (own, far) = if direction == Direction::In { (T1, T0) } else { (T0, T1) };
            let gather = |space| if space == T0 { Op::GatherSrc(G) } else { Op::GatherDst(G) };
            let x = case.random(far, &[heads, inner]);
            let lse = case.flow.segment(G, direction, Reduce::Lse, score);
            let at = case.flow.add(gather(own), &[lse]);
            let shifted = case.flow.binary(BinaryOp::Sub, score, at);
            let mut weight = case.flow.unary(UnaryOp::Exp, shifted);
            if dropout {
                let mask = case.random(Space::Edges(G), &[heads]);
                weight = case.flow.binary(BinaryOp::Mul, mask, weight);
            }
            let x = case.flow.add(gather(far), &[x]);
            let weighted = case.flow.binary(BinaryOp::Mul, weight, x);
            let z = case.flow.segment(G, direction, Reduce::Sum, weighted);
            case.result(z);
            case.result(lse);
            assert_ne!(case.online_program(), case.program(), "one pass is possible");
            // Sums of 3000 terms.
            case.check(1e-5);
        }
    }
}

#[test]
fn softmax_of_large_and_infinite_scores() {
    let edges = short_rows_and_a_long_one();
    for heads in [1, 3, 8] {
        let mut case = Case::new(&[7, 42], &[(0, 1, edges.clone())]);
        let numbers = extreme_scores(&edges, heads);
        let x = case.input(Type::fixed(Space::Edges(G), &[heads]), numbers);
        let lse = case.flow.segment(G, Direction::In, Reduce::Lse, x);
        let at = case.flow.add(Op::GatherDst(G), &[lse]);
        let shifted = case.flow.binary(BinaryOp::Sub, x, at);
        let alpha = case.flow.unary(UnaryOp::Exp, shifted);
        let total = case.flow.segment(G, Direction::In, Reduce::Sum, alpha);
        // `r0`: the weights, `r1`: their sums, `r2`: the log-sum-exps.
        [alpha, total, lse].into_iter().for_each(|v| case.result(v));
        case.check(1e-6);
        for code in [CodeMode::Interpreted, CodeMode::Native] {
            for (i, total) in case.run(1, code)["r1"].iter().enumerate() {
                match i / heads {
                    4 | 9 => assert!(total.is_nan(), "row {}: {total}", i / heads),
                    row if row < 40 && row % 6 == 0 || row == 41 => assert_eq!(*total, 0.0),
                    row => assert!((total - 1.0).abs() <= 1e-6, "the weights of row {row} add up to {total}"),
                }
            }
        }
    }
}

#[test]
fn products_and_inputs_on_edges() {
    each_graph(|case| {
        let x = case.random(T0, &[6]);
        let w = case.weight(&[6, 4]);
        let features = case.random(Space::Edges(G), &[4]);
        let weight = case.random(Space::Edges(G), &[]);
        let xe = case.flow.add(Op::GatherSrc(G), &[x]);
        let y = case.flow.add(Op::MatMul { batch: 0 }, &[xe, w]);
        let y = case.flow.binary(BinaryOp::Mul, y, weight);
        let y = case.flow.add(Op::Concat, &[y, features]);
        let y = case.flow.add(Op::Slice { start: 2, len: 5 }, &[y]);
        for direction in [Direction::In, Direction::Out] {
            for edges in [y, features, weight] {
                let r = case.flow.segment(G, direction, Reduce::Sum, edges);
                case.result(r);
            }
        }
        let dw = case.flow.add(Op::Outer { batch: 0 }, &[xe, features]);
        case.result(dw);
        let back = case.flow.add(Op::MatMulT { batch: 0 }, &[features, w]);
        let dx = case.flow.segment(G, Direction::Out, Reduce::Sum, back);
        case.result(dx);
        let degree = case.flow.constant(1.0);
        let ones = case.flow.add(Op::Broadcast(Type::new(Space::Edges(G), vec![])), &[degree]);
        let degree = case.flow.segment(G, Direction::In, Reduce::Sum, ones);
        case.result(degree);
    });
}

/// Gradients of weights that are applied to edges, in the slices that devices have registers for.
#[test]
fn large_outer_products_over_edges() {
    each_graph(|case| {
        let [x, y] = [40, 60].map(|width| case.random(Space::Edges(G), &[width]));
        let y = case.flow.unary(UnaryOp::Tanh, y);
        let dw = case.flow.add(Op::Outer { batch: 0 }, &[x, y]);
        case.result(dw);
        // In two batches.
        let mut in_two =
            |v: Value, each: usize| case.flow.add(Op::Reshape(vec![Dim::Fixed(2), Dim::Fixed(each)]), &[v]);
        let wide = [in_two(x, 20), in_two(y, 30)];
        let large = case.flow.add(Op::Outer { batch: 1 }, &wide);
        case.result(large);
        let changed =
            split_outer_products_into(&mut case.flow, LoweringOptions::GPU.edge_outer, &mut PassCx::default());
        assert!(changed.0, "a result of 2400 elements");
    });
}

#[test]
fn sparse_features() {
    for rows in [0usize, 1, 50, 3000] {
        let mut case = Case::new(&[rows, 1], &[]);
        let columns = 30;
        let sparse: Vec<Vec<(u32, f32)>> = (0..rows)
            .map(|r| {
                (0..columns as u32)
                    .filter(|c| (r as u32 * 7 + c * c) % 5 == 1)
                    .map(|c| (c, (r % 7) as f32 - c as f32))
                    .collect()
            })
            .collect();
        let x = case.sparse(VertexType(0), columns, &sparse);
        let ty = case.flow.ty(x).clone();
        let w = case.weight(&[columns, 64]);
        let mask = case.flow.add(Op::RandomMask { stream: 3, rate: 0.5, ty }, &[]);
        let sum = case.flow.reduce_trailing(Reduce::Sum, 1, x);
        let one = case.flow.constant(1.0);
        let safe = case.flow.binary(BinaryOp::Max, sum, one);
        let normal = case.flow.binary(BinaryOp::Div, x, safe);
        let column = case.weight(&[columns]);
        let scaled = case.flow.binary(BinaryOp::Mul, normal, column);
        let full = case.random(T0, &[columns]);
        let scaled = case.flow.binary(BinaryOp::Mul, full, scaled);
        let dropped = case.flow.binary(BinaryOp::Mul, scaled, mask);
        let grad = case.random(T0, &[64]);
        for v in [x, normal, dropped] {
            let y = case.flow.add(Op::MatMul { batch: 0 }, &[v, w]);
            case.result(y);
            let dw = case.flow.add(Op::Outer { batch: 0 }, &[v, grad]);
            case.result(dw);
        }
        case.check(4e-6);
    }
}

#[test]
fn embeddings_and_large_parameters() {
    let mut case = Case::new(&[900, 3], &[]);
    let table = case.param(&[Dim::Count(VertexType(0)), Dim::Fixed(16)]);
    let rows = case.flow.add(Op::Rows, &[table]);
    let y = case.flow.unary(UnaryOp::Tanh, rows);
    let grad = case.flow.add(Op::Unrows, &[y]);
    let rate = case.flow.constant(0.1);
    let step = case.flow.binary(BinaryOp::Mul, grad, rate);
    let new = case.flow.binary(BinaryOp::Sub, table, step);
    case.result(new);
    let norm = case.flow.binary(BinaryOp::Mul, new, new);
    let norm = case.flow.reduce_trailing(Reduce::Sum, 2, norm);
    case.result(norm);
    let scaled = case.flow.binary(BinaryOp::Div, new, norm);
    case.result(scaled);
    let mask = case.flow.add(Op::RandomMask { stream: 0, rate: 0.2, ty: case.flow.ty(table).clone() }, &[]);
    let masked = case.flow.binary(BinaryOp::Mul, scaled, mask);
    case.result(masked);
    case.check(4e-6);
}

/// Weight gradients of members with more rows than a task has are sums of partial results.
#[test]
fn grouped_products_of_members_with_many_rows() {
    for (batch, k, n) in [(1, 3, 5), (2, 3, 2)] {
        common::grouped_products(&[0, 4097, 5, 2048, 0], batch, k, n).check(2e-5);
    }
    // Partial results of a gradient with so many rows would take too much memory.
    common::grouped_products(&[0, 2100, 5], 1, 260, 1).check(2e-5);
}
