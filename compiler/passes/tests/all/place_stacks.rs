//! Stacked families in programs of the whole graph on several ranks: together the ranks compute what one process computes.

use hgnnc_interp::{Bindings, Tensor};
use hgnnc_ir::dataflow::{Binding, Init, InputDecl, ParamDecl};
use hgnnc_ir::{
    BinaryOp, Dataflow, Dim, Direction, Graph, Input, Op, Param, Reduce, Space, Type, UnaryOp, Value, VertexRows,
    VertexType, parse, stacks, verify,
};
use hgnnc_passes::{Disabled, PassCx, PassManager, place};

use crate::place::ranks_compute_what_one_process_computes;
use crate::place_batch::trained;
use crate::place_batch_stacks::{RELATIONS, VERTICES, bindings, model, number, total};

/// The two layers of a model of mini-batches, and a third one with a table of each relation, weights of edges and dropout.
fn with_tables() -> (Dataflow, Bindings) {
    let mut flow = model();
    let mut bindings = bindings(&flow);
    let hidden = flow.result("out").expect("an output");
    flow.outputs.clear();
    let vertices = VertexType::new(0);
    let first = flow.params.len();
    for r in 0..RELATIONS {
        let (dims, init) = (vec![Dim::Count(vertices), Dim::Fixed(3)], Init::Constant(0.0));
        let decl = ParamDecl { of: Some(Graph::new(r)), ..ParamDecl::new(format!("e.r{r}"), dims, init, true) };
        flow.params.push(decl);
        let table = Tensor::from_fn(1, 3 * VERTICES as usize, |_, at| number(31 * r + at) - 0.5);
        bindings.params.insert(Param::new(first + r), table);
        let weights = Tensor::from_fn(bindings.edges[r].len(), 1, |row, _| number(17 * r + row));
        bindings.inputs.insert(Input::new(1 + r), weights);
        flow.declare_input(InputDecl {
            name: format!("weight(r{r})"),
            ty: Type::new(Space::Edges(Graph::new(r)), vec![]),
            binding: Binding::EdgeWeight(Graph::new(r)),
        });
    }
    let sum_of_relation = |flow: &mut Dataflow, r: usize| {
        let graph = Graph::new(r);
        let table = flow.add(Op::Param(Param::new(first + r)), &[]);
        let rows = flow.add(Op::Rows, &[table]);
        let rows = flow.add(Op::GatherSrc(graph), &[rows]);
        let ty = flow.ty(rows).clone();
        let weight = flow.add(Op::Input(Input::new(1 + r)), &[]);
        let weight = flow.add(Op::Broadcast(ty.clone()), &[weight]);
        let weighted = flow.binary(BinaryOp::Mul, rows, weight);
        let mask = flow.add(Op::RandomMask { stream: r as u32, rate: 0.4, ty }, &[]);
        let target = flow.add(Op::GatherDst(graph), &[hidden]);
        let dropped = flow.binary(BinaryOp::Mul, weighted, mask);
        let target = flow.unary(UnaryOp::Tanh, target);
        let message = flow.binary(BinaryOp::Add, dropped, target);
        flow.segment(graph, Direction::In, Reduce::Sum, message)
    };
    let sums: Vec<Value> = (0..RELATIONS).map(|r| sum_of_relation(&mut flow, r)).collect();
    let last = total(&mut flow, &sums);
    let out = flow.binary(BinaryOp::Add, hidden, last);
    flow.output("out", out);
    (flow, bindings)
}

fn stacked((mut flow, mut bindings): (Dataflow, Bindings)) -> (Dataflow, Bindings) {
    let (passes, mut cx) = (PassManager::default(), PassCx::default());
    passes.run_model(&mut flow, &mut cx);
    assert_eq!(flow.stacks.len(), 1, "{:?}", cx.explain);
    let (apart, together): (Vec<&ParamDecl>, Vec<&ParamDecl>) =
        flow.params.iter().filter(|decl| decl.name != "t").partition(|decl| decl.entries.is_empty());
    assert_eq!(apart.len(), RELATIONS * together.len(), "all parameters of relations are stacked: {:?}", cx.explain);
    trained(&mut flow, VertexType::new(0)).expect("it has a derivative");
    let disabled = Disabled { passes: vec!["compact_endpoints".into()], ..Disabled::default() };
    let passes = PassManager::new(&disabled).expect("the pass exists");
    passes.run(hgnnc_passes::pipeline::JOINT, &mut flow, &mut PassCx::default());
    stacks::derive(&flow, &mut bindings.num_vertices, &mut bindings.edges);
    if let Some(weight) = flow.inputs.iter().position(|decl| decl.name == "stack0.weight") {
        // Those of the members, one after the other.
        let all: Vec<f64> = (0..RELATIONS).flat_map(|r| bindings.inputs[&Input::new(1 + r)].data.clone()).collect();
        bindings.inputs.insert(Input::new(weight), Tensor::new(all.len(), 1, all));
    }
    (flow, bindings)
}

fn ranks_compute_it(name: &str, (flow, bindings): (Dataflow, Bindings)) -> Dataflow {
    let placed = place(&flow, &flow).unwrap_or_else(|error| panic!("{name}: {error}\n{flow}"));
    assert_eq!(verify(&placed), Ok(()), "{placed}");
    let text = placed.to_string();
    assert_eq!(parse(&text).unwrap_or_else(|error| panic!("{error:?}\n{text}")).to_string(), text);
    ranks_compute_what_one_process_computes(name, &flow, &placed, &bindings);
    placed
}

#[test]
fn pairs_are_exchanged_between_the_owners_of_their_vertices() {
    let flow = model();
    let bindings = bindings(&flow);
    let placed = ranks_compute_it("stacks", stacked((flow, bindings)));
    let to = |data: &hgnnc_ir::ValueData| match data.op {
        Op::Exchange(to) => Some(placed.vertex_types[to.index()].rows),
        _ => None,
    };
    let of_pairs = placed.values.iter().filter_map(to).filter(|rows| matches!(rows, VertexRows::Pairs(..))).count();
    assert!(of_pairs >= 2, "values of pairs are exchanged forwards and backwards: {placed}");
}

#[test]
fn tables_of_relations_weights_and_dropout_are_those_of_one_process() {
    ranks_compute_it("tables", stacked(with_tables()));
}

/// Two relations: a product with the weight of each, a neighbour sum, its gradient, and reductions of pairs.
const SMALL: &str = r#"
dataflow small {
  vertex V from "v"
  relation a: V -> V from "a"
  relation b: V -> V from "b"
  graph a: V -> V = >a
  graph b: V -> V = >b
  family a, b
  stack s = a, b
  vertex s.src = pairs.src(s)
  vertex s.members = members(s)
  vertex s.dst = pairs.dst(s)
  graph s.src.vertices: s.src -> V = vertices.src(s)
  graph s.src.members: s.src -> s.members = members.src(s)
  graph s: s.src -> s.dst = edges(s)
  input x : f32[V; 2] = features(V)
  param w.a : f32[2, 2] = glorot(2, 2) of a
  param w.b : f32[2, 2] = glorot(2, 2) of b
  param w : f32[|s.members|, 2, 2] = stack(w.a, w.b)
  %0 = input x                              : f32[V; 2]                       @FP
  %1 = gather.dst s.src.vertices, %0        : f32[edges(s.src.vertices); 2]   @FP
  %2 = segment.sum.out s.src.vertices, %1   : f32[s.src; 2]                   @FP
  %3 = param w                              : f32[|s.members|, 2, 2]          @FP
  %4 = rows %3                              : f32[s.members; 2, 2]            @FP
  %5 = grouped.matmul s.src.members, %2, %4 : f32[s.src; 2]                   @FP
  %6 = gather.src s, %5                     : f32[edges(s); 2]                @NA
  %7 = segment.sum.in s, %6                 : f32[s.dst; 2]                   @NA
  %8 = reduce_space.max %7                  : f32[2]                          @LC
  %9 = gather.src s.src.members, %5         : f32[edges(s.src.members); 2]    @LC
  %10 = segment.sum.in s.src.members, %9    : f32[s.members; 2]               @LC
  %11 = reduce_space.sum %10                : f32[2]                          @LC
  %12 = gather.dst s, %7                    : f32[edges(s); 2]                @NA.backward
  %13 = segment.sum.out s, %12              : f32[s.src; 2]                   @NA.backward
  %14 = grouped.outer s.src.members, %2, %13 : f32[s.members; 2, 2]           @FP.backward
  %15 = unrows %14                          : f32[|s.members|, 2, 2]          @FP.backward
  result largest = %8
  result of_members = %10
  result sum = %11
  update w = %15
}
"#;

#[test]
fn pairs_belong_to_the_owners_of_their_vertices() {
    let flow = parse(SMALL).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(verify(&flow), Ok(()));
    let mut bindings = Bindings { num_vertices: vec![9], seed: 1, step: 1, ..Bindings::default() };
    let edges = |seed: usize, share: f64| {
        let pairs = (0..9).flat_map(|dst| (0..9).map(move |src| (src, dst)));
        pairs.filter(|&(src, dst): &(u32, u32)| number(seed + (9 * src + dst) as usize) < share).collect()
    };
    bindings.edges = vec![edges(5, 0.3), edges(400, 0.1)];
    bindings.inputs.insert(Input::new(0), Tensor::from_fn(9, 2, |row, column| number(2 * row + column) - 0.5));
    for param in 0..2 {
        bindings.params.insert(Param::new(param), Tensor::from_fn(1, 4, |_, at| number(7 * param + at)));
    }
    stacks::derive(&flow, &mut bindings.num_vertices, &mut bindings.edges);
    insta::assert_snapshot!(ranks_compute_it("small", (flow, bindings)));
}

#[test]
fn the_largest_pair_of_each_member_has_no_placement() {
    let text = SMALL.replace("segment.sum.in s.src.members", "segment.max.in s.src.members");
    let flow = parse(&text).unwrap_or_else(|error| panic!("{error:?}"));
    let refused = place(&flow, &flow).expect_err("sections have no largest value of a member");
    assert!(refused.why.contains("only sums over the pairs of each member"), "{refused}");
}
