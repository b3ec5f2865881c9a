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
