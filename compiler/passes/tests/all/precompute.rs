//! Precomputed rows against the programs that they are taken from.

use std::collections::BTreeSet;

use hgnnc_interp::random_program::{random_program, seeds};
use hgnnc_interp::{Tensor, run};
use hgnnc_ir::{Dataflow, Graph, Input, Op, Output, OutputKind, Reduce, Space, Value, parse, verify};
use hgnnc_passes::{Precomputed, precompute, precomputed_inputs, to_minibatch};

const SEEDS: u64 = 4000;

/// A program whose only result is the sum of a value.
fn with_loss(mut flow: Dataflow, value: Value) -> Dataflow {
    let (mut value, ty) = (value, flow.ty(value).clone());
    if !ty.dims.is_empty() {
        value = flow.reduce_trailing(Reduce::Sum, ty.dims.len(), value);
    }
    if ty.space != Space::Unit {
        value = flow.add(Op::ReduceSpace(Reduce::Sum), &[value]);
    }
    flow.outputs = vec![Output { kind: OutputKind::Result("loss".into()), value }];
    flow.remove_dead_values();
    flow
}

/// The rest reads what the program gives, and nothing else is computed.
#[test]
fn a_program_in_two_parts_computes_what_it_computed() {
    let mut compared = 0;
    for seed in seeds(SEEDS) {
        let (flow, bindings) = random_program(seed);
        for output in &flow.outputs {
            let flow = with_loss(flow.clone(), output.value);
            let Some(Precomputed { program, rest, .. }) = precompute(&flow, &BTreeSet::new()) else { continue };
            for part in [&program, &rest] {
                if let Err(broken) = verify(part) {
                    panic!("seed {seed}: {broken:#?}\n{flow}\n{part}");
                }
            }
            let rows = run(&program, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{program}"));
            let mut of_rest = bindings.clone();
            for (input, ..) in precomputed_inputs(&rest) {
                let value = program.result(&rest.inputs[input.index()].name).expect("a result for each input");
                of_rest.inputs.insert(input, rows[value].clone());
            }
            let expected: Tensor = run(&flow, &bindings).expect("it ran before")[flow.outputs[0].value].clone();
            let found = run(&rest, &of_rest).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{rest}"));
            let found = &found[rest.outputs[0].value];
            let same = found.data.iter().zip(&expected.data).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
            assert!(same, "seed {seed}: {found:?} instead of {expected:?}\n{flow}\n{program}\n{rest}");
            // Nothing is left to precompute, and no hops are added.
            assert_eq!(precompute(&rest, &BTreeSet::new()), None, "seed {seed}\n{rest}");
            if let (Ok((_, before)), Ok((_, after))) = (to_minibatch(&flow), to_minibatch(&rest)) {
                assert!(after.hops <= before.hops, "seed {seed}\n{flow}\n{rest}");
            }
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared} programs");
}

/// Means of links, of which a batch leaves out its own, are no precomputed rows.
#[test]
fn graphs_that_differ_in_batches_are_not_read() {
    let text = "dataflow d { vertex A from \"a\" relation r: A -> A from \"r\" graph g: A -> A = >r input x : f32[A; 2] = features(A) \
                param w : f32[2] = uniform(1.0) %0 = input x : f32[A; 2] @FP %1 = gather.src g, %0 : f32[edges(g); 2] @NA \
                %2 = segment.sum.in g, %1 : f32[A; 2] @NA %3 = param w : f32[2] @FP %4 = mul %2, %3 : f32[A; 2] @FP \
                %5 = reduce.sum(axes 1) %4 : f32[A] @LC %6 = reduce_space.sum %5 : f32[] @LC result loss = %6 }";
    let flow = parse(text).expect("text");
    let found = precompute(&flow, &BTreeSet::new()).expect("sums of rows");
    let (input, _, width) = precomputed_inputs(&found.rest).next().expect("one");
    assert_eq!((input, width), (Input::new(1), 2));
    assert_eq!(precompute(&flow, &BTreeSet::from([Graph::new(0)])), None);
}

/// Out-degrees are those of the whole graph, with links that a batch leaves out: it could not count them. Sums of features
/// along these links stay unknown.
#[test]
fn out_degrees_count_the_links_of_a_batch() {
    let program = |addend: &str| {
        let text = format!(
            "dataflow d {{ vertex A from \"a\" relation r: A -> A from \"r\" graph g: A -> A = >r input x : f32[A] = features(A) \
             param w : f32[] = uniform(1.0) %0 = input x : f32[A] @FP %1 = gather.dst g, %0 : f32[edges(g)] @NA %2 = const 1.0 : f32[] @NA \
             %3 = broadcast %2 : f32[edges(g)] @NA %4 = segment.sum.out g, {addend} : f32[A] @NA %5 = param w : f32[] @FP \
             %6 = mul %4, %5 : f32[A] @FP %7 = reduce_space.sum %6 : f32[] @LC result loss = %7 }}"
        );
        let mut flow = parse(&text).expect("text");
        flow.remove_dead_values();
        precompute(&flow, &BTreeSet::from([Graph::new(0)]))
    };
    let degrees = program("%3").expect("degrees");
    assert!(degrees.needed);
    assert_eq!(precomputed_inputs(&degrees.rest).map(|(.., width)| width).collect::<Vec<_>>(), [1]);
    to_minibatch(&degrees.rest).expect("no out-edges are left");
    assert_eq!(program("%1"), None);
}
