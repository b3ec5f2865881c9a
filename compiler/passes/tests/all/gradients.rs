//! Derivatives against central differences on the interpreter, for every operation and for small models.
//!
//! Step 1e-5 in f64: the differences are good to about 1e-10, compared with tolerance 1e-6 relative to
//! max(1, |derivative|).

use std::collections::BTreeSet;

use crate::common::{A, AA, AB, B, BB, KINDS, NONE, World, at_stage, fixed, kind};
use hgnnc_interp::{Tensor, run};
use hgnnc_ir::{
    BinaryOp, DType, Direction, Graph, MetapathReduce, MetapathTerm, Op, Param, Phase, PiecewiseLinear, Reduce, Space,
    Stage, Type, UnaryOp, Value, VertexType,
};
use hgnnc_passes::differentiate;

type Case = (String, Box<dyn Fn(&mut World) -> Value>);

fn case(name: &str, build: impl Fn(&mut World) -> Value + 'static) -> Case {
    (name.to_owned(), Box::new(build))
}

/// Makes the infinities of rows without elements finite.
fn finite(world: &mut World, value: Value) -> Value {
    let low = world.flow.constant(-3.0);
    let high = world.flow.constant(3.0);
    let value = world.flow.binary(BinaryOp::Max, value, low);
    world.flow.binary(BinaryOp::Min, value, high)
}

/// Two scores for each end of the paths.
fn path_scores(world: &mut World, sum: MetapathReduce) -> [Value; 2] {
    [(sum.first, Direction::Out), (sum.second, Direction::In)].map(|(graph, direction)| {
        match world.flow.graph_end(graph, direction) {
            Space::Vertices(end) => world.rows(end, &[2]),
            _ => unreachable!("graphs join vertices"),
        }
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let smooth = [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Softplus, UnaryOp::Tanh, UnaryOp::Sigmoid];
    let kinked = [UnaryOp::Abs, UnaryOp::Relu, UnaryOp::LeakyRelu(0.2), UnaryOp::Elu, UnaryOp::Gelu, UnaryOp::Erf];
    let flat = [UnaryOp::Sign, UnaryOp::Step, UnaryOp::Floor, UnaryOp::Cos, UnaryOp::Sin];
    for f in smooth.into_iter().chain(kinked).chain(flat) {
        cases.push(case(&format!("{f:?}"), move |world| {
            let x = world.rows_in(A, &[3], -2.0, 2.0);
            world.flow.unary(f, x)
        }));
    }
    for f in [UnaryOp::Log, UnaryOp::Log1p, UnaryOp::Sqrt, UnaryOp::Recip] {
        cases.push(case(&format!("{f:?}"), move |world| {
            let x = world.rows_in(A, &[3], 0.5, 2.0);
            world.flow.unary(f, x)
        }));
    }
    for f in BinaryOp::ALL {
        // Same shape; a unit operand; fewer dimensions; both; on either side.
        let shapes: [(Option<VertexType>, &[usize]); 4] =
            [(Some(A), &[2, 3]), (None, &[2, 3]), (Some(A), &[2]), (None, &[])];
        for (space, dims) in shapes {
            for swapped in [false, true] {
                cases.push(case(&format!("{f:?} {space:?} {dims:?} {swapped}"), move |world| {
                    let a = world.rows_in(A, &[2, 3], 0.5, 2.0);
                    let b = match space {
                        Some(vertex) => world.rows_in(vertex, dims, 0.5, 2.0),
                        None => world.param_in(fixed(dims), 0.5, 2.0),
                    };
                    if swapped { world.flow.binary(f, b, a) } else { world.flow.binary(f, a, b) }
                }));
            }
        }
        cases.push(case(&format!("{f:?} row by dimensions"), move |world| {
            // Neither operand has the type of the result.
            let a = world.rows_in(A, &[2], 0.5, 2.0);
            let b = world.param_in(fixed(&[2, 3]), 0.5, 2.0);
            world.flow.binary(f, a, b)
        }));
    }
    cases.push(case("a value with itself", |world| {
        let x = world.rows(A, &[2]);
        let square = world.flow.binary(BinaryOp::Mul, x, x);
        world.flow.binary(BinaryOp::Sub, square, x)
    }));
    for exponent in [2.0, 3.0, 0.5, -1.0] {
        cases.push(case(&format!("Pow by {exponent}"), move |world| {
            let x = world.rows_in(A, &[2], 0.5, 2.0);
            let exponent = world.flow.constant(exponent);
            world.flow.binary(BinaryOp::Pow, x, exponent)
        }));
    }
    cases.push(case("LogAddExp of two graphs", |world| {
        // Vertex 1 of B has no edges in either graph: -∞ with -∞.
        let mut sums = vec![];
        for graph in [AB, NONE] {
            let e = world.edges(graph, &[2]);
            sums.push(world.flow.segment(graph, Direction::In, Reduce::Lse, e));
        }
        let both = world.flow.binary(BinaryOp::LogAddExp, sums[0], sums[1]);
        finite(world, both)
    }));

    cases.push(case("broadcast", |world| {
        let x = world.rows(A, &[2]);
        world.flow.add(Op::Broadcast(Type::fixed(Space::Vertices(A), &[2, 3])), &[x])
    }));
    cases.push(case("broadcast of a unit", |world| {
        let x = world.param(&[2]);
        world.flow.add(Op::Broadcast(Type::fixed(Space::Vertices(B), &[2, 3])), &[x])
    }));
    cases.push(case("count", |world| {
        let x = world.rows(A, &[2]);
        let n = world.flow.add(Op::Count(Space::Vertices(A)), &[]);
        world.flow.binary(BinaryOp::Div, x, n)
    }));
    cases.push(case("mask", |world| {
        let x = world.rows(A, &[7]);
        let ty = world.flow.ty(x).clone();
        let mask = world.flow.add(Op::RandomMask { stream: 3, rate: 0.4, ty }, &[]);
        world.flow.binary(BinaryOp::Mul, x, mask)
    }));
    cases.push(case("reshape", |world| {
        let x = world.rows(A, &[2, 3]);
        world.flow.add(Op::Reshape(fixed(&[3, 2])), &[x])
    }));
    cases.push(case("concat", |world| {
        let (x, y) = (world.rows(A, &[2, 3]), world.rows(A, &[2, 1]));
        world.flow.add(Op::Concat, &[x, y, x])
    }));
    for axis in 0..2 {
        cases.push(case(&format!("transpose {axis}"), move |world| {
            let x = world.rows(A, &[2, 3, 4]);
            world.flow.add(Op::Transpose { axis }, &[x])
        }));
    }
    for (batch, lead) in [(0, &[][..]), (1, &[2]), (2, &[3, 1])] {
        cases.push(case(&format!("row_product {batch}"), move |world| {
            let a = world.rows(A, &[lead, &[2, 4]].concat());
            let b = world.rows(A, &[lead, &[4, 3]].concat());
            world.flow.add(Op::RowProduct { batch }, &[a, b])
        }));
    }
    for (start, len) in [(0, 2), (1, 2), (3, 2), (0, 5)] {
        cases.push(case(&format!("slice {start} {len}"), move |world| {
            let x = world.rows(A, &[2, 5]);
            world.flow.add(Op::Slice { start, len }, &[x])
        }));
    }
    cases.push(case("one-hot", |world| {
        let ty = Type { dtype: DType::I32, ..Type::fixed(Space::Vertices(A), &[]) };
        let labels = world.input(ty, 0.0, 1.0);
        let Op::Input(input) = world.flow.value(labels).op else { panic!("an input") };
        world.bindings.inputs.insert(input, Tensor::new(4, 1, vec![0.0, 2.0, -1.0, 1.0]));
        let hot = world.flow.add(Op::OneHot { classes: 3 }, &[labels]);
        let x = world.rows(A, &[3]);
        world.flow.binary(BinaryOp::Mul, x, hot)
    }));
    cases.push(case("unrows", |world| {
        let x = world.rows(B, &[2]);
        let x = world.flow.unary(UnaryOp::Tanh, x);
        world.flow.add(Op::Unrows, &[x])
    }));
    cases.push(case("rows of a parameter's leading dimension", |world| {
        let x = world.param(&[5, 2, 3]);
        let rows = world.flow.add(Op::Rows, &[x]);
        let shared = world.param(&[2, 3]);
        let products = world.flow.binary(BinaryOp::Mul, rows, shared);
        let sums = world.flow.add(Op::ReduceTrailing { reduce: Reduce::Sum, axes: 1 }, &[products]);
        world.flow.add(Op::Unrows, &[sums])
    }));
    cases.push(case("state and constant", |world| {
        let x = world.rows(A, &[2]);
        let state = world.flow.add(Op::State(Param(0), 0), &[]);
        let state = world.flow.add(Op::Rows, &[state]);
        let sum = world.flow.binary(BinaryOp::Add, x, state);
        let two = world.flow.constant(2.0);
        world.flow.binary(BinaryOp::Mul, sum, two)
    }));

    // x, y by batch: S[B.., k], [B.., k, N..], S[B.., N..].
    type Shapes = (usize, &'static [usize], &'static [usize], &'static [usize]);
    let products: [Shapes; 6] = [
        (0, &[3], &[3, 2], &[2]),
        (0, &[3], &[3, 2, 4], &[2, 4]),
        (0, &[3], &[3], &[]),
        (1, &[2, 3], &[2, 3, 4], &[2, 4]),
        (1, &[2, 3], &[2, 3], &[2]),
        (2, &[2, 2, 3], &[2, 2, 3, 1], &[2, 2, 1]),
    ];
    for (batch, x_dims, w_dims, y_dims) in products {
        for unit in [false, true] {
            let rows = move |world: &mut World, dims: &[usize]| {
                if unit { world.param(dims) } else { world.rows(A, dims) }
            };
            cases.push(case(&format!("matmul {batch} {w_dims:?} {unit}"), move |world| {
                let (x, w) = (rows(world, x_dims), world.param(w_dims));
                world.flow.add(Op::MatMul { batch }, &[x, w])
            }));
            cases.push(case(&format!("matmul_t {batch} {w_dims:?} {unit}"), move |world| {
                let (y, w) = (rows(world, y_dims), world.param(w_dims));
                world.flow.add(Op::MatMulT { batch }, &[y, w])
            }));
            cases.push(case(&format!("outer {batch} {w_dims:?} {unit}"), move |world| {
                let (x, y) = (rows(world, x_dims), rows(world, y_dims));
                world.flow.add(Op::Outer { batch }, &[x, y])
            }));
        }
    }
    cases.push(case("outer with itself", |world| {
        let x = world.rows(A, &[3]);
        world.flow.add(Op::Outer { batch: 0 }, &[x, x])
    }));

    // Rows of the distinct ends of a graph; some vertices are none, and a graph without edges has none.
    for graph in [AB, BB, NONE] {
        for direction in [Direction::In, Direction::Out] {
            let vertices = move |world: &mut World, dims: &[usize]| match world.flow.graph_end(graph, direction) {
                Space::Vertices(vertex) => world.rows(vertex, dims),
                space => panic!("{space:?} has no vertices"),
            };
            let gather = move || match direction {
                Direction::In => Op::GatherDst(graph),
                Direction::Out => Op::GatherSrc(graph),
            };
            cases.push(case(&format!("select {graph} {direction:?}"), move |world| {
                let x = vertices(world, &[2]);
                let rows = world.flow.add(Op::GatherRows(graph, direction), &[x]);
                world.flow.add(gather(), &[rows])
            }));
            cases.push(case(&format!("replace {graph} {direction:?}"), move |world| {
                let (x, y) = (vertices(world, &[2]), vertices(world, &[2]));
                let rows = world.flow.add(Op::GatherRows(graph, direction), &[y]);
                world.flow.add(Op::ScatterRows(graph, direction), &[x, rows])
            }));
            cases.push(case(&format!("scatter_add {graph} {direction:?}"), move |world| {
                let (x, y) = (vertices(world, &[2]), vertices(world, &[2]));
                let rows = world.flow.add(Op::GatherRows(graph, direction), &[y]);
                let twice = world.flow.binary(BinaryOp::Mul, rows, rows);
                let ends = vec![(graph, direction), (graph, direction)];
                world.flow.add(Op::ScatterAdd(ends), &[x, rows, twice])
            }));
            for reduce in Reduce::ALL {
                cases.push(case(&format!("segment_endpoints {graph} {direction:?} {reduce:?}"), move |world| {
                    let e = world.edges(graph, &[2]);
                    let rows = world.flow.add(Op::SegmentEndpoints { graph, direction, reduce }, &[e]);
                    world.flow.add(gather(), &[rows])
                }));
            }
        }
    }

    // Sparse features.
    cases.push(case("sparse matmul", |world| {
        let (x, w) = (world.sparse(), world.param(&[5, 2]));
        world.flow.add(Op::MatMul { batch: 0 }, &[x, w])
    }));
    cases.push(case("sparse with dropout and a scale per column and per row", |world| {
        let x = world.sparse();
        let ty = world.flow.ty(x).clone();
        let mask = world.flow.add(Op::RandomMask { stream: 1, rate: 0.3, ty }, &[]);
        let x = world.flow.binary(BinaryOp::Mul, x, mask);
        let (columns, rows) = (world.param(&[5]), world.rows_in(A, &[], 1.0, 2.0));
        let x = world.flow.binary(BinaryOp::Mul, x, columns);
        let x = world.flow.binary(BinaryOp::Div, x, rows);
        let w = world.param(&[5, 2]);
        world.flow.add(Op::MatMul { batch: 0 }, &[x, w])
    }));
    cases.push(case("element-wise on sparse values", |world| {
        let x = world.sparse();
        let scale = world.param(&[5]);
        let x = world.flow.binary(BinaryOp::Mul, x, scale);
        let mut sum = x;
        for f in [UnaryOp::Tanh, UnaryOp::Elu, UnaryOp::LeakyRelu(0.1), UnaryOp::Relu, UnaryOp::Neg] {
            let y = world.flow.unary(f, x);
            sum = world.flow.binary(BinaryOp::Add, sum, y);
        }
        let w = world.param(&[5, 2]);
        let product = world.flow.add(Op::MatMul { batch: 0 }, &[sum, w]);
        let norm = world.flow.reduce_trailing(Reduce::Sum, 1, sum);
        world.flow.binary(BinaryOp::Mul, product, norm)
    }));

    for graph in [AB, AA, NONE, BB] {
        cases.push(case(&format!("gather {graph}"), move |world| world.edges(graph, &[2])));
        for direction in [Direction::In, Direction::Out] {
            for reduce in [Reduce::Sum, Reduce::Max, Reduce::Min, Reduce::Lse] {
                cases.push(case(&format!("segment {graph} {direction:?} {reduce:?}"), move |world| {
                    let e = world.edges(graph, &[2]);
                    let y = world.flow.segment(graph, direction, reduce, e);
                    finite(world, y)
                }));
            }
        }
    }
    for (first, second) in [(AA, AB), (AB, BB), (AA, NONE), (AA, AA)] {
        for (below, above) in [(0.0, 1.0), (0.2, 1.0), (1.0, 1.0), (0.5, -2.0)] {
            let score = PiecewiseLinear { below, above };
            let sum = MetapathReduce { first, second, direction: Direction::In, score, term: MetapathTerm::LogSumExp };
            cases.push(case(&format!("metapath lse {first} {second} {below} {above}"), move |world| {
                let [x, y] = path_scores(world, sum);
                let lse = world.flow.add(Op::MetapathReduce(sum), &[x, y]);
                finite(world, lse)
            }));
            for direction in [Direction::In, Direction::Out] {
                for summed in [None, Some(3)] {
                    let name = format!("metapath sum {first} {second} {below} {above} {direction:?} {summed:?}");
                    cases.push(case(&name, move |world| {
                        let [x, y] = path_scores(world, sum);
                        let ty = world.flow.ty(y).clone();
                        let Space::Vertices(dst) = ty.space else { unreachable!("scores belong to vertices") };
                        let mut args = vec![x, y, world.rows(dst, &[2])];
                        let sum = sum.with(direction, MetapathTerm::WeightedSum);
                        if let Some(width) = summed {
                            let (graph, end) = sum.others();
                            let Space::Vertices(other) = world.flow.graph_end(graph, end) else { unreachable!("ends") };
                            args.push(world.rows(other, &[2, width]));
                        }
                        world.flow.add(Op::MetapathReduce(sum), &args)
                    }));
                }
            }
        }
    }
    for reduce in [Reduce::Sum, Reduce::Max, Reduce::Min, Reduce::Lse] {
        for axes in [1, 2] {
            cases.push(case(&format!("trailing {reduce:?} {axes}"), move |world| {
                let x = world.rows(A, &[2, 3]);
                world.flow.reduce_trailing(reduce, axes, x)
            }));
        }
        cases.push(case(&format!("space {reduce:?}"), move |world| {
            let x = world.rows(A, &[2, 3]);
            world.flow.add(Op::ReduceSpace(reduce), &[x])
        }));
        cases.push(case(&format!("space {reduce:?} of no rows"), move |world| {
            let x = world.edges(NONE, &[2]);
            let y = world.flow.add(Op::ReduceSpace(reduce), &[x]);
            finite(world, y)
        }));
    }
    cases
}

#[test]
fn every_operation_agrees_with_differences() {
    for (name, build) in cases() {
        let mut world = World::new();
        let value = build(&mut world);
        let loss = world.loss_of(value);
        world.check(&name, loss);
    }
}

#[test]
fn every_operation_has_a_case() {
    let mut seen = BTreeSet::new();
    for (_, build) in cases() {
        let mut world = World::new();
        build(&mut world);
        seen.extend(world.flow.values.iter().map(|data| kind(&data.op)));
    }
    // Its derivative is not the derivative of its value; see `nothing_flows_through_a_stop`.
    seen.insert("stop_gradient");
    let unary = UnaryOp::PLAIN.into_iter().chain([UnaryOp::LeakyRelu(0.2)]).map(UnaryOp::name);
    let element_wise = unary.chain(BinaryOp::ALL.into_iter().map(BinaryOp::name));
    let all: BTreeSet<&str> = KINDS.iter().copied().chain(element_wise).collect();
    assert_eq!(all.difference(&seen).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(seen.difference(&all).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn nothing_flows_through_a_stop() {
    let mut world = World::new();
    let x = world.rows(A, &[2]);
    let stopped = world.flow.add(Op::StopGradient, &[x]);
    let product = world.flow.binary(BinaryOp::Mul, x, stopped);
    let loss = world.loss_of(product);
    let gradients = differentiate(&mut world.flow, loss, &[Param(0)]);
    let run = run(&world.flow, &world.bindings).expect("bound");
    // d(x · stop(x)) = x, not 2 x.
    let weights = &world.bindings.inputs.values().next().expect("the weights of the loss").data;
    for (i, g) in run[gradients[0].1].data.iter().enumerate() {
        assert_eq!(*g, run[x].data[i] * weights[i]);
    }
    // A loss that depends on a parameter only through the stop has no gradient at all.
    let loss = world.loss_of(stopped);
    assert_eq!(differentiate(&mut world.flow, loss, &[Param(0)]), []);
}

#[test]
fn ties_share_the_gradient() {
    let mut world = World::new();
    let x = world.param(&[4]);
    world.bindings.params.insert(Param(0), Tensor::new(1, 4, vec![3.0, 1.0, 3.0, 2.0]));
    let loss = world.flow.reduce_trailing(Reduce::Max, 1, x);
    let gradient = differentiate(&mut world.flow, loss, &[Param(0)])[0].1;
    let found = run(&world.flow, &world.bindings).expect("bound");
    assert_eq!(found[gradient].data, [0.5, 0.0, 0.5, 0.0]);
}

#[test]
fn a_maximum_over_edges_hands_its_gradient_to_the_first_edge_that_attains_it() {
    let mut world = World::new();
    // All edges are alike: those of each destination tie.
    let ones = world.input(Type::fixed(Space::Edges(AA), &[]), 1.0, 1.0);
    let scale = world.param(&[]);
    let x = world.flow.binary(BinaryOp::Mul, ones, scale);
    let y = world.flow.segment(AA, Direction::In, Reduce::Max, x);
    let loss = world.loss_of(y);
    differentiate(&mut world.flow, loss, &[Param(0)]);
    let mask = world.flow.handles().find(|&v| world.flow.value(v).op == Op::Binary(BinaryOp::Eq));
    let found = run(&world.flow, &world.bindings).expect("bound");
    let edges = &world.bindings.edges[AA.index()];
    let winners = &found[mask.expect("the gradient has a mask")].data;
    let order = |edge: usize| (edges[edge].0, edge);
    let first =
        |edge: usize| (0..edges.len()).all(|other| edges[other].1 != edges[edge].1 || order(other) >= order(edge));
    let expected: Vec<f64> = (0..edges.len()).map(|edge| f64::from(u8::from(first(edge)))).collect();
    assert_eq!(*winners, expected, "edges {edges:?}");
}

#[test]
fn a_sum_copies_no_gradient_and_inputs_get_none() {
    let mut world = World::new();
    let x = world.input(Type::fixed(Space::Vertices(A), &[3]), -1.0, 1.0);
    let (w, bias, unused) = (world.param(&[3, 2]), world.rows(A, &[2]), world.param(&[1]));
    let h = world.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
    let sum = world.flow.binary(BinaryOp::Add, h, bias);
    let loss = world.loss_of(sum);
    let num_forward = world.flow.values.len();
    let wrt = [0, 1, 2].map(Param);
    let gradients = differentiate(&mut world.flow, loss, &wrt);
    assert_eq!(gradients.iter().map(|(p, _)| *p).collect::<Vec<_>>(), [Param(0), Param(1)], "{unused} is not used");
    // Both operands of the sum take the gradient of the sum itself.
    let (dw, dbias) = (world.flow.value(gradients[0].1), world.flow.value(gradients[1].1));
    assert_eq!((&dw.op, dw.args[0]), (&Op::Outer { batch: 0 }, x));
    assert_eq!((&dbias.op, dbias.args[0]), (&Op::Unrows, dw.args[1]));
    let backward = &world.flow.values[num_forward..];
    assert!(!backward.iter().any(|v| matches!(v.op, Op::MatMulT { .. })), "no gradient for an input");
}

#[test]
fn softmax_is_built_as_the_forward_pass_builds_it() {
    let mut world = World::new();
    let e = world.edges(AB, &[2]);
    let lse = world.flow.segment(AB, Direction::In, Reduce::Lse, e);
    let loss = {
        let capped = finite(&mut world, lse);
        world.loss_of(capped)
    };
    let num_forward = world.flow.values.len();
    differentiate(&mut world.flow, loss, &[Param(0)]);
    let backward = &world.flow.values[num_forward..];
    let gather = backward.iter().position(|v| v.op == Op::GatherDst(AB) && v.args == [lse]).expect("gather of the lse");
    let gather = Value::new(num_forward + gather);
    let sub =
        backward.iter().position(|v| v.op == Op::Binary(BinaryOp::Sub) && v.args == [e, gather]).expect("x - lse");
    let sub = Value::new(num_forward + sub);
    assert!(backward.iter().any(|v| v.op == Op::Unary(UnaryOp::Exp) && v.args == [sub]));
}

#[test]
fn gradients_belong_to_the_stage_of_their_value() {
    let mut world = World::new();
    at_stage(&mut world.flow, Stage::SF);
    let x = world.rows(A, &[2]);
    let y = world.flow.unary(UnaryOp::Tanh, x);
    at_stage(&mut world.flow, Stage::LC);
    let loss = world.loss_of(y);
    let before = world.flow.cursor;
    let num_forward = world.flow.values.len();
    differentiate(&mut world.flow, loss, &[Param(0)]);
    assert_eq!(world.flow.cursor, before);
    let stages: Vec<Stage> = world.flow.values[num_forward..].iter().map(|v| v.stage).collect();
    assert!(stages.is_sorted_by_key(|s| *s != Stage::LC), "{stages:?}");
    assert!(stages.contains(&Stage::LC) && stages.contains(&Stage::SF));
    assert!(world.flow.values[num_forward..].iter().all(|v| v.phase == Phase::Backward));
}

#[test]
fn what_has_no_gradient_is_an_error_not_a_panic() {
    let mut world = World::new();
    let x = world.sparse();
    let scale = world.param(&[5]);
    let x = world.flow.binary(BinaryOp::Mul, x, scale);
    let root = world.flow.unary(UnaryOp::Sqrt, x);
    let w = world.param(&[5, 2]);
    let y = world.flow.add(Op::MatMul { batch: 0 }, &[root, w]);
    let loss = world.loss_of(y);
    let error =
        hgnnc_passes::try_differentiate(&mut world.flow, loss, &[Param(0), Param(1)]).expect_err("a sparse root");
    assert_eq!(error.value, root);
}

// ---- models ------------------------------------------------------------------------------------------------

fn linear(world: &mut World, x: Value, out: &[usize]) -> Value {
    let width = world.flow.width(x).expect("fixed");
    let mut dims = vec![width];
    dims.extend(out);
    let w = world.param(&dims);
    world.flow.add(Op::MatMul { batch: 0 }, &[x, w])
}

fn dot(world: &mut World, x: Value, dims: &[usize]) -> Value {
    let a = world.param(dims);
    let product = world.flow.binary(BinaryOp::Mul, x, a);
    world.flow.reduce_trailing(Reduce::Sum, 1, product)
}

fn dropout(world: &mut World, x: Value, stream: u32, rate: f64) -> Value {
    let ty = world.flow.ty(x).clone();
    let mask = world.flow.add(Op::RandomMask { stream, rate, ty }, &[]);
    world.flow.binary(BinaryOp::Mul, x, mask)
}

/// Scores of the edges of a graph: leaky_relu(a·h_src + b·h_dst), `edges(g)[heads]`.
fn scores(world: &mut World, graph: Graph, src: Value, dst: Value, dims: &[usize]) -> Value {
    let (s, d) = (dot(world, src, dims), dot(world, dst, dims));
    let s = world.flow.add(Op::GatherSrc(graph), &[s]);
    let d = world.flow.add(Op::GatherDst(graph), &[d]);
    let sum = world.flow.binary(BinaryOp::Add, s, d);
    world.flow.unary(UnaryOp::LeakyRelu(0.2), sum)
}

/// The sum over in-edges of exp(score - lse) · h_src.
fn weighted_sum(world: &mut World, graph: Graph, score: Value, lse: Value, src: Value, stream: u32) -> Value {
    let lse = world.flow.add(Op::GatherDst(graph), &[lse]);
    let difference = world.flow.binary(BinaryOp::Sub, score, lse);
    let alpha = world.flow.unary(UnaryOp::Exp, difference);
    let alpha = dropout(world, alpha, stream, 0.3);
    let src = world.flow.add(Op::GatherSrc(graph), &[src]);
    let messages = world.flow.binary(BinaryOp::Mul, alpha, src);
    world.flow.segment(graph, Direction::In, Reduce::Sum, messages)
}

fn mean(world: &mut World, x: Value) -> Value {
    let n = world.flow.width(x).expect("fixed");
    let sum = world.flow.reduce_trailing(Reduce::Sum, 1, x);
    let n = world.flow.constant(n as f64);
    world.flow.binary(BinaryOp::Div, sum, n)
}

fn layer_norm(world: &mut World, x: Value) -> Value {
    let dims: Vec<usize> = world.flow.ty(x).dims.iter().filter_map(|d| d.fixed()).collect();
    let centre = mean(world, x);
    let centre = world.flow.add(Op::Broadcast(world.flow.ty(x).clone()), &[centre]);
    let x = world.flow.binary(BinaryOp::Sub, x, centre);
    let square = world.flow.binary(BinaryOp::Mul, x, x);
    let variance = mean(world, square);
    let eps = world.flow.constant(1e-5);
    let variance = world.flow.binary(BinaryOp::Add, variance, eps);
    let root = world.flow.unary(UnaryOp::Sqrt, variance);
    let normal = world.flow.binary(BinaryOp::Div, x, root);
    let (gamma, beta) = (world.param(&dims), world.param(&dims));
    let scaled = world.flow.binary(BinaryOp::Mul, normal, gamma);
    world.flow.binary(BinaryOp::Add, scaled, beta)
}

/// Mean over the labelled vertices of A of lse(logits) - logits[label].
fn cross_entropy(world: &mut World, logits: Value, classes: usize) -> Value {
    let ty = Type { dtype: DType::I32, ..Type::fixed(Space::Vertices(A), &[]) };
    let labels = world.input(ty, 0.0, 1.0);
    let Op::Input(input) = world.flow.value(labels).op else { panic!("an input") };
    world.bindings.inputs.insert(input, Tensor::new(4, 1, vec![0.0, 2.0, -1.0, 1.0]));
    let hot = world.flow.add(Op::OneHot { classes }, &[labels]);
    let labelled = world.flow.reduce_trailing(Reduce::Sum, 1, hot);
    let lse = world.flow.reduce_trailing(Reduce::Lse, 1, logits);
    let right = world.flow.binary(BinaryOp::Mul, logits, hot);
    let right = world.flow.reduce_trailing(Reduce::Sum, 1, right);
    let row = world.flow.binary(BinaryOp::Sub, lse, right);
    let row = world.flow.binary(BinaryOp::Mul, row, labelled);
    let sum = world.flow.add(Op::ReduceSpace(Reduce::Sum), &[row]);
    let count = world.flow.add(Op::ReduceSpace(Reduce::Sum), &[labelled]);
    world.flow.binary(BinaryOp::Div, sum, count)
}

#[test]
fn attention_in_each_graph_and_across_graphs() {
    // Softmax per graph, then attention over the graphs by a mean score.
    let mut world = World::new();
    let x = world.sparse();
    let x = dropout(&mut world, x, 0, 0.2);
    let h = linear(&mut world, x, &[2, 3]);
    let mut fused = vec![];
    for (stream, scale) in [(1, 1.0), (2, 4.0)] {
        let score = scores(&mut world, AA, h, h, &[2, 3]);
        let scale = world.flow.constant(scale);
        let score = world.flow.binary(BinaryOp::Mul, score, scale);
        let lse = world.flow.segment(AA, Direction::In, Reduce::Lse, score);
        let z = weighted_sum(&mut world, AA, score, lse, h, stream);
        let z = world.flow.unary(UnaryOp::Elu, z);
        let flat = world.flow.add(Op::Reshape(fixed(&[6])), &[z]);
        let t = linear(&mut world, flat, &[4]);
        let t = world.flow.unary(UnaryOp::Tanh, t);
        let t = dot(&mut world, t, &[4]);
        let sum = world.flow.add(Op::ReduceSpace(Reduce::Sum), &[t]);
        let n = world.flow.add(Op::Count(Space::Vertices(A)), &[]);
        fused.push((flat, world.flow.binary(BinaryOp::Div, sum, n)));
    }
    let total = world.flow.binary(BinaryOp::LogAddExp, fused[0].1, fused[1].1);
    let mut out = vec![];
    for (z, score) in fused {
        let beta = world.flow.binary(BinaryOp::Sub, score, total);
        let beta = world.flow.unary(UnaryOp::Exp, beta);
        out.push(world.flow.binary(BinaryOp::Mul, z, beta));
    }
    let z = world.flow.binary(BinaryOp::Add, out[0], out[1]);
    let logits = linear(&mut world, z, &[3]);
    let loss = cross_entropy(&mut world, logits, 3);
    world.check("attention in each graph", loss);
}

#[test]
fn one_softmax_over_the_edges_of_several_graphs() {
    let mut world = World::new();
    let x = world.input(Type::fixed(Space::Vertices(A), &[3]), -1.0, 1.0);
    let a = linear(&mut world, x, &[2, 2]);
    let b = world.rows(B, &[2, 2]);
    let graphs = [(AB, a), (NONE, a), (BB, b)];
    let mut parts = vec![];
    for (graph, src) in graphs {
        let score = scores(&mut world, graph, src, b, &[2, 2]);
        let lse = world.flow.segment(graph, Direction::In, Reduce::Lse, score);
        parts.push((graph, src, score, lse));
    }
    let total = parts.iter().map(|p| p.3).reduce(|a, b| world.flow.binary(BinaryOp::LogAddExp, a, b)).expect("graphs");
    let mut sum = None;
    for (stream, (graph, src, score, _)) in parts.into_iter().enumerate() {
        let z = weighted_sum(&mut world, graph, score, total, src, stream as u32);
        sum = Some(sum.map_or(z, |sum| world.flow.binary(BinaryOp::Add, sum, z)));
    }
    let z = world.flow.add(Op::Reshape(fixed(&[4])), &[sum.expect("graphs")]);
    let z = layer_norm(&mut world, z);
    let loss = world.loss_of(z);
    world.check("one softmax over several graphs", loss);
}

#[test]
fn relational_convolution_with_bases() {
    // Sum over relations of the mean over in-edges of W_r x_src, W_r = Σ_b c_rb V_b, plus a self connection; twice.
    let mut world = World::new();
    let mut h = world.rows(A, &[3]);
    for out in [3, 3] {
        let bases = world.param(&[2, 3, out]);
        let flat = world.flow.add(Op::Reshape(fixed(&[2, 3 * out])), &[bases]);
        let mut sum = linear(&mut world, h, &[out]);
        for _ in 0..2 {
            let coefficients = world.param(&[2]);
            let w = world.flow.add(Op::MatMul { batch: 0 }, &[coefficients, flat]);
            let w = world.flow.add(Op::Reshape(fixed(&[3, out])), &[w]);
            let messages = world.flow.add(Op::MatMul { batch: 0 }, &[h, w]);
            let messages = world.flow.add(Op::GatherSrc(AA), &[messages]);
            let total = world.flow.segment(AA, Direction::In, Reduce::Sum, messages);
            let one = world.flow.constant(1.0);
            let ones = world.flow.add(Op::Broadcast(Type::fixed(Space::Edges(AA), &[])), &[one]);
            let degree = world.flow.segment(AA, Direction::In, Reduce::Sum, ones);
            let degree = world.flow.binary(BinaryOp::Max, degree, one);
            let mean = world.flow.binary(BinaryOp::Div, total, degree);
            sum = world.flow.binary(BinaryOp::Add, sum, mean);
        }
        h = world.flow.unary(UnaryOp::Gelu, sum);
        h = layer_norm(&mut world, h);
        h = dropout(&mut world, h, out as u32, 0.25);
    }
    let loss = cross_entropy(&mut world, h, 3);
    world.check("relational convolution", loss);
}
