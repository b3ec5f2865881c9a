//! Stacked families in programs of mini-batches on several ranks: together the ranks compute the loss and the gradients of
//! one process.

use hgnnc_interp::ranks::run_ranks;
use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::{
    BinaryOp, Dataflow, Direction, Graph, Input, Op, Param, Reduce, Space, Type, UnaryOp, Value, VertexType, parse,
    stacks, verify,
};
use hgnnc_passes::{PassCx, PassManager, Split, place_batch, to_minibatch};

use crate::minibatch::{Batch, bindings_of};
use crate::place_batch::{close, share, trained};

pub const RELATIONS: usize = 9;
pub const VERTICES: u32 = 14;

/// Numbers from 0 to 1 that look random.
pub fn number(seed: usize) -> f64 {
    (seed as f64 * 12.9898).sin().abs().mul_add(43758.5453, 0.0).fract()
}

/// Two layers over a family: messages are scaled by a vector of the relation, in the second layer a product of one, and
/// multiplied by its weight. The message of each edge also counts by a score, which is normalized over all relations.
pub fn model() -> Dataflow {
    let each = |line: &dyn Fn(usize) -> String| (0..RELATIONS).map(line).collect::<Vec<_>>();
    let lines = [
        vec!["dataflow small {".into(), "  vertex Entity from \"entity\"".into()],
        each(&|r| format!("  relation r{r}: Entity -> Entity from \"r{r}\"")),
        each(&|r| format!("  graph r{r}: Entity -> Entity = >r{r}")),
        vec![format!("  family {}", each(&|r| format!("r{r}")).join(", "))],
        vec!["  input x : f32[Entity; 3] = features(Entity)".into()],
        each(&|r| format!("  param w1.r{r} : f32[3, 3] = glorot(3, 3) decay of r{r}")),
        each(&|r| format!("  param w2.r{r} : f32[3, 3] = glorot(3, 3) decay of r{r}")),
        each(&|r| format!("  param v1.r{r} : f32[3] = glorot(1, 3) decay of r{r}")),
        each(&|r| format!("  param v2.r{r} : f32[3] = glorot(1, 3) decay of r{r}")),
        vec!["  param t : f32[3, 3] = glorot(3, 3)".into(), "}".into()],
    ];
    let mut flow = parse(&lines.concat().join("\n")).unwrap_or_else(|error| panic!("{error:?}"));
    let x = flow.add(Op::Input(Input::new(0)), &[]);
    let param = |flow: &mut Dataflow, index: usize| flow.add(Op::Param(Param::new(index)), &[]);
    let vectors: Vec<Value> = (0..RELATIONS).map(|r| param(&mut flow, 2 * RELATIONS + r)).collect();
    let hidden = layer(&mut flow, x, &vectors, 0);
    let hidden = flow.unary(UnaryOp::Tanh, hidden);
    let transform = param(&mut flow, 4 * RELATIONS);
    let transformed = |r| {
        let vector = param(&mut flow, 3 * RELATIONS + r);
        flow.add(Op::MatMul { batch: 0 }, &[vector, transform])
    };
    let vectors: Vec<Value> = (0..RELATIONS).map(transformed).collect();
    let out = layer(&mut flow, hidden, &vectors, RELATIONS);
    flow.output("out", out);
    flow
}

/// The sum of values, in halves as the compiler takes it.
pub fn total(flow: &mut Dataflow, values: &[Value]) -> Value {
    match values {
        [one] => *one,
        _ => {
            let (first, second) = values.split_at(values.len() / 2);
            let [first, second] = [first, second].map(|half| total(flow, half));
            flow.binary(BinaryOp::Add, first, second)
        }
    }
}

fn layer(flow: &mut Dataflow, x: Value, vectors: &[Value], first_weight: usize) -> Value {
    let (mut sums, mut norms) = (vec![], vec![]);
    for (r, &vector) in vectors.iter().enumerate() {
        let graph = Graph::new(r);
        let edges = Space::Edges(graph);
        let source = flow.add(Op::GatherSrc(graph), &[x]);
        let vector = flow.add(Op::Broadcast(Type::new(edges, flow.ty(x).dims.clone())), &[vector]);
        let scaled = flow.binary(BinaryOp::Mul, source, vector);
        let target = flow.add(Op::GatherDst(graph), &[x]);
        let alike = flow.binary(BinaryOp::Mul, scaled, target);
        let score = flow.reduce_trailing(Reduce::Sum, 1, alike);
        let score = flow.unary(UnaryOp::Exp, score);
        norms.push(flow.segment(graph, Direction::In, Reduce::Sum, score));
        let weight = flow.add(Op::Param(Param::new(first_weight + r)), &[]);
        let message = flow.add(Op::MatMul { batch: 0 }, &[scaled, weight]);
        let score = flow.add(Op::Broadcast(flow.ty(message).clone()), &[score]);
        let message = flow.binary(BinaryOp::Mul, message, score);
        sums.push(flow.segment(graph, Direction::In, Reduce::Sum, message));
    }
    let (sum, norm) = (total(flow, &sums), total(flow, &norms));
    let one = flow.constant(1.0);
    let norm = flow.binary(BinaryOp::Add, norm, one);
    let norm = flow.add(Op::Broadcast(flow.ty(sum).clone()), &[norm]);
    let mean = flow.binary(BinaryOp::Div, sum, norm);
    flow.binary(BinaryOp::Add, mean, x)
}

/// Relations of very different sizes, of which one has no edges.
pub fn bindings(flow: &Dataflow) -> Bindings {
    let mut bindings = Bindings { num_vertices: vec![VERTICES as usize], seed: 3, step: 2, ..Bindings::default() };
    for r in 0..RELATIONS {
        let pairs = (0..VERTICES).flat_map(|dst| (0..VERTICES).map(move |src| (src, dst)));
        let exists =
            |&(src, dst): &(u32, u32)| number(1 + r * 1000 + (src * VERTICES + dst) as usize) < 0.04 * r as f64;
        bindings.edges.push(pairs.filter(exists).collect());
    }
    let tensor = |rows: usize, width: usize, seed: usize| {
        Tensor::from_fn(rows, width, |row, column| number(seed + row * width + column) - 0.5)
    };
    bindings.inputs.insert(Input::new(0), tensor(VERTICES as usize, 3, 7));
    for (index, decl) in flow.params.iter().enumerate() {
        let width = decl.dims.iter().filter_map(|dim| dim.fixed()).product();
        bindings.params.insert(Param::new(index), tensor(1, width, 100 * index + 11));
    }
    bindings
}

fn compute_the_gradients_of_one_process(split: Split) {
    let flow = model();
    let bindings = bindings(&flow);
    let (mut small, layout) = to_minibatch(&flow).expect("in-edges only");
    let passes = PassManager::default();
    let mut cx = PassCx { batch: Some(BatchLayout::default()), ..PassCx::default() };
    passes.run_model(&mut small, &mut cx);
    assert_eq!(small.stacks.len(), 2, "a stack for each hop: {:?}", cx.explain);
    let seeds_of_batch = layout.vertices.iter().position(|known| known.hops == 0).map(VertexType::new).expect("seeds");
    trained(&mut small, seeds_of_batch).expect("it has a derivative");
    passes.run(hgnnc_passes::pipeline::JOINT, &mut small, &mut PassCx::default());
    let placed =
        place_batch(&small, &layout, Some(VertexType::new(0)), split).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(verify(&placed), Ok(()), "{placed}");
    let text = placed.to_string();
    assert_eq!(parse(&text).unwrap_or_else(|error| panic!("{error:?}\n{text}")).to_string(), text);
    let drawn: Vec<u32> = (0..VERTICES).rev().filter(|v| v % 3 != 1).collect();
    let stacked = |mut bindings: Bindings, flow: &Dataflow| {
        stacks::derive(flow, &mut bindings.num_vertices, &mut bindings.edges);
        bindings
    };
    let on = |seeds: &[u32]| {
        let batch = Batch::around(&flow, &bindings, &layout, &[seeds.to_vec()]);
        let bound = bindings_of((&flow, &bindings), (&small, &layout), &batch);
        (batch, stacked(bound, &small))
    };
    let one = run(&small, &on(&drawn).1).expect("bound");
    let ways: &[(usize, usize)] = match split {
        Split::Seeds => &[(1, 1), (2, 1), (3, 1)],
        Split::Relations => &[(1, 2), (1, 3)],
        Split::Grid => &[(2, 2), (3, 2)],
    };
    for &(shares, of_replica) in ways {
        let ranks = shares * of_replica;
        let of_rank = |rank: usize| {
            let share = rank / of_replica;
            on(&drawn[drawn.len() * share / shares..drawn.len() * (share + 1) / shares])
        };
        let (batches, mut all): (Vec<Batch>, Vec<Bindings>) = (0..ranks).map(of_rank).unzip();
        let seeds = split.shares_relations().then_some(seeds_of_batch);
        share(&placed, (&layout, seeds, of_replica), &bindings, &batches, &mut all);
        let all: Vec<Bindings> = all.into_iter().map(|bindings| stacked(bindings, &placed)).collect();
        let runs = run_ranks(&placed, &all).unwrap_or_else(|error| panic!("{error}\n{placed}"));
        for (a, b) in small.outputs.iter().zip(&placed.outputs) {
            assert!(runs.iter().all(|run| run[b.value] == runs[0][b.value]), "{:?}", a.kind);
            let what = format!("{split:?}, {ranks} ranks: {:?}\n{placed}", a.kind);
            close(&one[a.value].data, &runs[0][b.value].data, &what);
        }
    }
}

#[test]
fn ranks_with_seeds_of_their_own_compute_stacks() {
    compute_the_gradients_of_one_process(Split::Seeds);
}

#[test]
fn ranks_with_relations_of_their_own_compute_stacks() {
    compute_the_gradients_of_one_process(Split::Relations);
}

#[test]
fn replicas_with_relations_of_their_ranks_compute_stacks() {
    compute_the_gradients_of_one_process(Split::Grid);
}
