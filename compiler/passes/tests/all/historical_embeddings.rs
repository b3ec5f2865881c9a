//! Batches that take what the bottom layer gives to some vertices from elsewhere.

use std::collections::BTreeSet;

use hgnnc_interp::random_program::seeds;
use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::batch::{BatchInput, BatchLayout, HistoricalRows};
use hgnnc_ir::{Dataflow, Input, Output, Param, verify};
use hgnnc_passes::{PassCx, PassManager};
use hgnnc_passes::{to_minibatch_with_cache, try_differentiate};

use crate::minibatch::{Batch, bindings_of, of_one_type};

const SEEDS: u64 = 4000;

/// Two layers: of the neighbours' sum, and of that, projected before it is gathered.
const TWO_LAYERS: &str = "dataflow d {
    vertex A from \"a\"
    relation r: A -> A from \"r\"
    graph g: A -> A = >r
    input x : f32[A; 2] = features(A)
    input t : f32[A; 2] = label(A, \"t\")
    param w : f32[2, 3] = uniform(1.0)
    param v : f32[3, 2] = uniform(1.0)
    %0 = input x : f32[A; 2] @FP
    %1 = param w : f32[2, 3] @FP
    %2 = matmul %0, %1 : f32[A; 3] @FP
    %3 = gather.src g, %2 : f32[edges(g); 3] @NA
    %4 = segment.max.in g, %3 : f32[A; 3] @NA
    %5 = add %4, %2 : f32[A; 3] @SF
    %6 = sigmoid %5 : f32[A; 3] @FP
    %7 = param v : f32[3, 2] @NA
    %8 = matmul %6, %7 : f32[A; 2] @NA
    %9 = gather.src g, %8 : f32[edges(g); 2] @NA
    %10 = segment.sum.in g, %9 : f32[A; 2] @NA
    result out = %10
}";

fn program(text: &str) -> Dataflow {
    hgnnc_ir::parse(text).unwrap_or_else(|error| panic!("{error:?}"))
}

/// Historical embeddings replace the output of the bottom layer. The activation and the projection of the layer above
/// are computed by each batch.
#[test]
fn what_the_bottom_layer_gives_is_replaced() {
    let (flow, layout) = to_minibatch_with_cache(&program(TWO_LAYERS)).expect("two layers");
    assert_eq!(layout.hops, 2);
    assert_eq!(layout.historical.iter().map(|reused| &reused.values[..]).collect::<Vec<_>>(), [[3]]);
    insta::assert_snapshot!(flow.to_string());
}

#[test]
fn what_cannot_be_reused_is_an_error() {
    let wrong = |text: &str| to_minibatch_with_cache(&program(text)).expect_err("nothing to reuse").why;
    let head = &TWO_LAYERS[..TWO_LAYERS.find("%5").expect("a line")];
    assert_eq!(
        wrong(&format!("{head} result out = %4 }}")),
        "no layer takes what the bottom layer gives to neighbours"
    );
    // The weight of the layer is a sum over all vertices.
    let over_all = format!(
        "{head} %5 = reduce_space.sum %4 : f32[3] @SF %6 = mul %4, %5 : f32[A; 3] @SF \
         %7 = gather.src g, %6 : f32[edges(g); 3] @NA %8 = segment.sum.in g, %7 : f32[A; 3] @NA result out = %8 }}"
    );
    assert!(wrong(&over_all).contains("over all vertices of a type"), "{}", wrong(&over_all));
}

/// The batch around seeds while some vertices rest, and what its program runs on: with the embeddings that a batch gives
/// in which none rests. Also the number of rows that are taken.
fn reused(
    (flow, all): (&Dataflow, &Bindings),
    (small, layout): &(Dataflow, BatchLayout),
    seeds: &[Vec<u32>],
    rests: impl Fn(u32) -> bool,
    what: &str,
) -> (Bindings, usize) {
    let none = vec![BTreeSet::new(); flow.vertex_types.len()];
    let mut resting = none.clone();
    for reused in &layout.historical {
        let vertex = layout.vertices[reused.of.index()].vertex.index();
        resting[vertex] = (0..all.num_vertices[vertex] as u32).filter(|&v| rests(v)).collect();
    }
    let before = Batch::while_resting(flow, all, layout, seeds, none);
    let mut of_before = bindings_of((flow, all), (small, layout), &before);
    let width = |input: usize| all.width(&small.inputs[input].ty.dims);
    let historical = || {
        layout.inputs.iter().enumerate().filter_map(|(index, input)| match *input {
            BatchInput::Historical { rows, value } => Some((index, rows, value)),
            BatchInput::Whole(_) => None,
        })
    };
    for (index, ..) in historical() {
        of_before.inputs.insert(Input::new(index), Tensor { rows: 0, width: width(index), data: vec![] });
    }
    let values = run(small, &of_before).unwrap_or_else(|error| panic!("{what}: {error}\n{small}"));
    let batch = Batch::while_resting(flow, all, layout, seeds, resting);
    let mut bindings = bindings_of((flow, all), (small, layout), &batch);
    let mut taken = 0;
    for (index, rows, value) in historical() {
        let known = layout.vertices[layout.historical[rows].of.index()];
        let result = small.result(&HistoricalRows::name(rows, value)).expect("a result for each value");
        let (width, data) = (width(index), &values[result].data);
        let own = batch.resting(known.vertex, known.hops);
        let data = own.iter().flat_map(|row| &data[row * width..][..width]).copied().collect();
        bindings.inputs.insert(Input::new(index), Tensor { rows: own.len(), width, data });
        taken += own.len();
    }
    (bindings, taken)
}

/// With up-to-date historical embeddings, the outputs are those of the whole graph, whichever vertices have them.
#[test]
fn outputs_are_those_of_the_whole_graph() {
    let (mut compared, mut taken) = (0, 0);
    for seed in seeds(SEEDS) {
        let Some((target, flow, all)) = of_one_type(seed) else { continue };
        let Ok(reusing) = to_minibatch_with_cache(&flow) else { continue };
        verify(&reusing.0).unwrap_or_else(|broken| panic!("seed {seed}: {broken:#?}\n{flow}\n{}", reusing.0));
        let count = all.num_vertices[target.index()] as u32;
        let of_target: Vec<u32> = (0..count).rev().filter(|v| v % 3 == 1).collect();
        let seeds: Vec<Vec<u32>> = (0..flow.vertex_types.len())
            .map(|t| if t == target.index() { of_target.clone() } else { vec![] })
            .collect();
        let whole = run(&flow, &all).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for which in 0..3 {
            let rests = |vertex: u32| [false, vertex.is_multiple_of(2), true][which];
            let (bindings, here) = reused((&flow, &all), &reusing, &seeds, rests, &format!("seed {seed}"));
            assert!(which > 0 || here == 0);
            taken += here;
            let small = &reusing.0;
            let part = run(small, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{flow}\n{small}"));
            let own = |output: &&Output| flow.outputs.iter().any(|of_flow| of_flow.kind == output.kind);
            for (a, b) in flow.outputs.iter().zip(small.outputs.iter().filter(own)) {
                let width = all.width(&flow.ty(a.value).dims);
                let Tensor { data, .. } = &whole[a.value];
                let expected = of_target.iter().flat_map(|&v| &data[v as usize * width..][..width]);
                for (x, y) in expected.zip(&part[b.value].data) {
                    let close = (x - y).abs() <= 1e-9 * x.abs().max(1.0) || x == y;
                    assert!(close, "seed {seed}, {which}: {y} instead of {x}\n{flow}\n{small}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 200 && taken > 50, "{compared} outputs, {taken} rows taken");
}

/// Vertices 0 to 3 are in a ring, and know each other across it; 0 is the seed.
fn ring() -> Bindings {
    let tensor = |rows, width, data: Vec<f64>| Tensor { rows, width, data };
    let mut bindings = Bindings { num_vertices: vec![4], ..Bindings::default() };
    bindings.edges.push(vec![(1, 0), (2, 0), (2, 1), (3, 1), (3, 2), (0, 3)]);
    bindings.inputs.insert(Input::new(0), tensor(4, 2, vec![0.3, -0.2, 0.9, 0.4, -0.7, 0.1, 0.2, 0.8]));
    bindings.inputs.insert(Input::new(1), tensor(4, 2, vec![0.0; 8]));
    bindings.params.insert(Param::new(0), tensor(1, 6, vec![0.5, -0.4, 0.3, 0.2, 0.7, -0.6]));
    bindings.params.insert(Param::new(1), tensor(1, 6, vec![0.1, 0.9, -0.5, 0.4, 0.6, -0.3]));
    bindings
}

/// Rows that are taken are constants: the gradient is that of differences with them held, and finite although the
/// maximum over no edges is not. The passes keep it.
#[test]
fn no_gradient_flows_through_what_is_taken() {
    let text = TWO_LAYERS.replace(
        "result out = %10",
        "%11 = mul %10, %10 : f32[A; 2] @LC %12 = reduce.sum(axes 1) %11 : f32[A] @LC \
         %13 = reduce_space.sum %12 : f32[] @LC result loss = %13",
    );
    let (flow, all) = (program(&text), ring());
    // The logarithm of a sum over no edges is projected before it is replaced: 0 times an infinity would be no number.
    let projected = text
        .replace("segment.max", "segment.lse")
        .replace("%5 = add %4, %2 : f32[A; 3] @SF", "%5 = mul %4, %4 : f32[A; 3] @SF");
    for (flow, rests) in [&flow, &program(&projected)]
        .into_iter()
        .flat_map(|flow| [|_: u32| false, |vertex: u32| vertex == 1, |_: u32| true].map(|rests| (flow, rests)))
    {
        let reusing = to_minibatch_with_cache(flow).expect("two layers");
        let (bindings, taken) = reused((flow, &all), &reusing, &[vec![0]], rests, "the ring");
        let mut joint = reusing.0.clone();
        let loss = joint.result("loss").expect("a loss");
        let params = [Param::new(0), Param::new(1)];
        let gradients = try_differentiate(&mut joint, loss, &params).expect("a gradient");
        for &(param, gradient) in &gradients {
            joint.output(format!("d{}", param.index()), gradient);
        }
        let mut passed = joint.clone();
        PassManager::default().run_joint(&mut passed, &mut PassCx::new(None), || None);
        let loss_with = |param: Param, element: usize, by: f64| {
            let mut other = bindings.clone();
            other.params.get_mut(&param).expect("there is one").data[element] += by;
            run(&reusing.0, &other).expect("runs")[reusing.0.result("loss").expect("a loss")].data[0]
        };
        for param in params {
            for element in 0..6 {
                let by = 1e-5;
                let expected = (loss_with(param, element, by) - loss_with(param, element, -by)) / (2.0 * by);
                for flow in [&joint, &passed] {
                    let value = flow.result(&format!("d{}", param.index())).expect("a gradient");
                    let found = run(flow, &bindings).expect("runs")[value].data[element];
                    assert!((found - expected).abs() < 1e-7, "{taken} taken: {found} instead of {expected}\n{flow}");
                }
            }
        }
    }
}
