//! Scores of pairs: the programs that they are computed by, against the program that they are
//! parts of, on random programs.

use hgnnc_interp::random_program::{random_program, seeds};
use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::dataflow::{Binding, GraphDecl, RelationDecl, Step};
use hgnnc_ir::{Dataflow, Graph, Input, Layout, Op, OutputKind, Param, Reduce, Space, Value, VertexType, verify};
use hgnnc_passes::{score_links, to_minibatch};

use crate::minibatch::{Batch, bindings_of, is_global};

const SEEDS: u64 = 300;

/// A random program that scores pairs: some of its values at both ends of a graph of links are multiplied and summed
/// up. `None` of one whose values do not go together.
fn program_with_scores(seed: u64) -> Option<(Dataflow, Bindings, Graph)> {
    let (mut flow, mut bindings) = random_program(seed);
    let dense = |value: &Value| {
        let ty = flow.ty(*value);
        ty.layout == Layout::Dense && ty.dims.iter().all(|dim| dim.fixed().is_some()) && !ty.dims.is_empty()
    };
    let at_vertices = |value: &Value| match flow.ty(*value).space {
        Space::Vertices(vertex) => Some(vertex),
        _ => None,
    };
    let ends: Vec<(Value, VertexType)> =
        flow.handles().filter(dense).filter_map(|value| Some((value, at_vertices(&value)?))).collect();
    let (a, src) = *ends.last()?;
    let (b, dst) = *ends.iter().find(|&&(b, _)| b != a && flow.ty(b).dims == flow.ty(a).dims)?;
    let num = [src, dst].map(|end| bindings.num_vertices[end.index()] as u32);
    if num.contains(&0) {
        return None;
    }
    let relation = flow.relations.len() as u32;
    flow.relations.push(RelationDecl { name: "joined".into(), dataset_name: "joined".into(), src, dst });
    let [there, back] = [false, true].map(|reverse| Step { relation, reverse });
    // Links of a metapath are pairs like those of a relation.
    let steps = if seed.is_multiple_of(2) { vec![there] } else { vec![there, back, there] };
    let name = "links_joined".to_string();
    flow.graphs.push(GraphDecl { links: true, ..GraphDecl::new(name, src, dst, steps) });
    let graph = Graph::new(flow.graphs.len() - 1);
    // Every second vertex at one end, with doubles, by destination.
    let mut pairs: Vec<(u32, u32)> = (0..7).map(|i| ((5 * i + 2) % num[0] / 2 * 2, (3 * i + 1) % num[1])).collect();
    pairs.sort_by_key(|&(src, dst)| (dst, src));
    bindings.edges.push(pairs);
    let axes = flow.ty(a).dims.len();
    flow.outputs.clear();
    let (a, b) = (flow.add(Op::GatherSrc(graph), &[a]), flow.add(Op::GatherDst(graph), &[b]));
    let product = flow.binary(hgnnc_ir::BinaryOp::Mul, a, b);
    let score = flow.reduce_trailing(Reduce::Sum, axes, product);
    flow.output("score.links_joined", score);
    hgnnc_passes::dce::dce(&mut flow, &mut Default::default());
    Some((flow, bindings, graph))
}

fn close(seed: u64, expected: &Tensor, found: &Tensor, programs: &[&Dataflow]) {
    assert_eq!(expected.data.len(), found.data.len(), "seed {seed}");
    for (x, y) in expected.data.iter().zip(&found.data) {
        let close = (x - y).abs() <= 1e-9 * x.abs().max(1.0) || x == y || x.is_nan() && y.is_nan();
        assert!(
            close,
            "seed {seed}: {y} instead of {x}\n{}",
            programs.iter().map(|p| p.to_string()).collect::<String>()
        );
    }
}

#[test]
fn two_programs_score_as_one() {
    let mut compared = 0;
    for seed in seeds(SEEDS) {
        let Some((flow, bindings, graph)) = program_with_scores(seed) else { continue };
        let (first, second) = score_links(&flow).expect("there are scores");
        for program in [&first, &second] {
            verify(program).unwrap_or_else(|broken| panic!("seed {seed}: {broken:#?}\n{flow}\n{program}"));
        }
        let whole = run(&flow, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let values = run(&first, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{first}"));
        let mut of_pairs = bindings.clone();
        of_pairs.edges = vec![bindings.edges[graph.index()].clone()];
        of_pairs.inputs.clear();
        for (index, decl) in second.inputs.iter().enumerate() {
            let Binding::Given(name) = &decl.binding else { panic!("seed {seed}: {:?}", decl.binding) };
            let value = first.result(name).expect("what is given is a result");
            of_pairs.inputs.insert(Input::new(index), values[value].clone());
        }
        for (index, decl) in second.params.iter().enumerate() {
            if decl.dims != flow.params[index].dims {
                of_pairs.params.insert(Param::new(index), Tensor { rows: 1, width: 1, data: vec![f64::NAN] });
            }
        }
        let scores = run(&second, &of_pairs).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{second}"));
        close(seed, &whole[flow.outputs[0].value], &scores[second.outputs[0].value], &[&flow, &first, &second]);
        compared += 1;
    }
    assert!(compared > 100, "{compared} programs");
}

#[test]
fn pairs_of_a_batch_score_as_on_the_whole_graph() {
    let (mut compared, mut deepest) = (0, 0);
    for seed in seeds(SEEDS) {
        let Some((flow, bindings, graph)) = program_with_scores(seed) else { continue };
        if flow.values.iter().any(|data| is_global(&data.op)) {
            continue;
        }
        let Ok((small, layout)) = to_minibatch(&flow) else { continue };
        verify(&small).unwrap_or_else(|broken| panic!("seed {seed}: {broken:#?}\n{flow}\n{small}"));
        let decl = &flow.graphs[graph.index()];
        let mut seeds = vec![vec![]; flow.vertex_types.len()];
        for &(src, dst) in &bindings.edges[graph.index()] {
            for (of, vertex) in [(decl.src, src), (decl.dst, dst)] {
                let seeds: &mut Vec<u32> = &mut seeds[of.index()];
                if !seeds.contains(&vertex) {
                    seeds.push(vertex);
                }
            }
        }
        // So that pairs are by destination in the batch as well.
        seeds.iter_mut().for_each(|seeds| seeds.sort_unstable());
        let batch = Batch::around(&flow, &bindings, &layout, &seeds);
        let of_batch = bindings_of((&flow, &bindings), (&small, &layout), &batch);
        let whole = run(&flow, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let part = run(&small, &of_batch).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{flow}\n{small}"));
        close(seed, &whole[flow.outputs[0].value], &part[small.outputs[0].value], &[&flow, &small]);
        (compared, deepest) = (compared + 1, layout.hops.max(deepest));
    }
    assert!(compared > 20 && deepest >= 2, "{compared} programs, {deepest} hops");
}

#[test]
fn values_of_pairs_stay_with_them() {
    let table = "vertex A from \"a\" relation r: A -> A from \"r\" graph g: A -> A = >r graph l: A -> A = >r links \
                 input x : f32[A; 2] = features(A) %0 = input x : f32[A; 2] @FP";
    let program = |values: &str| hgnnc_ir::parse(&format!("dataflow d {{ {table} {values} }}")).expect("text");
    let summed = program(
        "%1 = gather.src l, %0 : f32[edges(l); 2] @NA %2 = segment.sum.in l, %1 : f32[A; 2] @NA result out = %2",
    );
    let error = to_minibatch(&summed).expect_err("sums over pairs").to_string();
    assert!(error.contains("sums over pairs to score"), "{error}");

    let scores = program(
        "%1 = gather.src g, %0 : f32[edges(g); 2] @NA %2 = segment.sum.in g, %1 : f32[A; 2] @NA \
         %3 = gather.src l, %2 : f32[edges(l); 2] @NA %4 = gather.dst l, %2 : f32[edges(l); 2] @NA \
         %5 = mul %3, %4 : f32[edges(l); 2] @NA %6 = reduce.sum(axes 1) %5 : f32[edges(l)] @NA result s.l = %6",
    );
    let (first, second) = score_links(&scores).expect("there are scores");
    let (batch, layout) = to_minibatch(&scores).expect("all from in-edges");
    assert_eq!(layout.hops, 1, "both ends are seeds");
    insta::assert_snapshot!(format!("{first}\n{second}\n{batch}"));
    assert!(matches!(scores.outputs[0].kind, OutputKind::Result(_)));
}
