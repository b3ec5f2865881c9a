//! Two layers of means over relations with a self connection, ReLU and dropout (R-GCN, Schlichtkrull et al., 2018,
//! eq. 2): what their gradients are rewritten to is what they were.

use hgnnc_interp::run;
use hgnnc_ir::{BinaryOp, Dataflow, Direction, Op, Reduce, Space, Type, UnaryOp, Value};
use hgnnc_passes::pipeline::JOINT;
use hgnnc_passes::scale_on_edges::scale_on_edges;
use hgnnc_passes::{PassCx, SizeInfo};

use crate::common::{A, AA, World};
use crate::random::joint_of;

const WIDTH: usize = 16;

fn linear(world: &mut World, x: Value) -> Value {
    let w = world.param(&[WIDTH, WIDTH]);
    world.flow.add(Op::MatMul { batch: 0 }, &[x, w])
}

fn layer(world: &mut World, x: Value, stream: u32) -> Value {
    let mut sum = linear(world, x);
    for direction in [Direction::In, Direction::Out] {
        let projected = linear(world, x);
        let gather = if direction == Direction::In { Op::GatherSrc(AA) } else { Op::GatherDst(AA) };
        let messages = world.flow.add(gather, &[projected]);
        let total = world.flow.segment(AA, direction, Reduce::Sum, messages);
        let one = world.flow.constant(1.0);
        let ones = world.flow.add(Op::Broadcast(Type::fixed(Space::Edges(AA), &[])), &[one]);
        let degree = world.flow.segment(AA, direction, Reduce::Sum, ones);
        let degree = world.flow.binary(BinaryOp::Max, degree, one);
        let mean = world.flow.binary(BinaryOp::Div, total, degree);
        sum = world.flow.binary(BinaryOp::Add, sum, mean);
    }
    let active = world.flow.unary(UnaryOp::Relu, sum);
    let mask = Op::RandomMask { stream, rate: 0.25, ty: Type::fixed(Space::Vertices(A), &[WIDTH]) };
    let mask = world.flow.add(mask, &[]);
    world.flow.binary(BinaryOp::Mul, active, mask)
}

fn count(flow: &Dataflow, op: impl Fn(&Op) -> bool) -> usize {
    flow.values.iter().filter(|data| op(&data.op)).count()
}

#[test]
fn their_gradients_are_scaled_on_the_edges_and_read_what_dropout_left() {
    let mut world = World::new();
    let mut h = world.rows(A, &[WIDTH]);
    for stream in 0..2 {
        h = layer(&mut world, h, stream);
    }
    let loss = world.loss_of(h);
    world.flow.output("loss", loss);
    let (before, bindings) = joint_of((world.flow, world.bindings));
    let expected = run(&before, &bindings).expect("bound");

    // Those of a graph that is large enough for a time to be predicted.
    let sizes = SizeInfo { vertices: vec![1000; 2], edges: vec![2000; bindings.edges.len()], ..SizeInfo::default() };
    let mut cx = PassCx::new(Some(sizes));
    let mut after = before.clone();
    for pass in JOINT {
        (pass.run)(&mut after, &mut cx);
    }
    // Steps of what the dropouts give: nothing reads the activations but the dropouts.
    let is_relu = |v: Value| after.value(v).op == Op::Unary(UnaryOp::Relu);
    let steps = || after.values.iter().filter(|data| data.op == Op::Unary(UnaryOp::Step));
    assert_eq!(steps().count(), 2);
    assert!(!steps().any(|step| is_relu(step.args[0])));

    let reciprocal = |op: &Op| *op == Op::Unary(UnaryOp::Recip);
    assert_eq!(count(&after, reciprocal), 0);
    assert!(scale_on_edges(&mut after, &mut cx).0, "{:#?}", cx.explain);
    assert!(count(&after, reciprocal) > 0);

    let found = run(&after, &bindings).expect("bound");
    for (a, b) in before.outputs.iter().zip(&after.outputs) {
        for (x, y) in expected[a.value].data.iter().zip(&found[b.value].data) {
            assert!((x - y).abs() <= 1e-9 * x.abs().max(1.0), "{:?}: {x} is {y}", a.kind);
        }
    }
}
