//! Scores of pairs: the programs that they are computed by, against the program that they are
//! parts of, on random programs.

use hgnnc_interp::random_program::{random_program, seeds};
use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::dataflow::{Binding, GraphDecl, RelationDecl, Step};
use hgnnc_ir::{
    Dataflow, Direction, Graph, Input, Layout, Op, OutputKind, Param, Reduce, Space, Value, VertexType, verify,
};
use hgnnc_passes::{rank_links, score_links, to_minibatch};

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
    let [product, of_source] = [product, a].map(|summed| flow.reduce_trailing(Reduce::Sum, axes, summed));
    let score = flow.binary(hgnnc_ir::BinaryOp::Add, product, of_source);
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

/// Links with an end replaced by any vertex have the scores of these pairs, but for what is the same for all vertices.
#[test]
fn scores_with_all_vertices_are_those_of_pairs() {
    let mut compared = 0;
    for seed in seeds(SEEDS) {
        let Some((flow, bindings, graph)) = program_with_scores(seed) else { continue };
        let (first, second) = score_links(&flow).expect("there are scores");
        let values = run(&first, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{first}"));
        let links = &bindings.edges[graph.index()];
        let decl = &flow.graphs[graph.index()];
        for (end, vertex) in [(Direction::In, decl.dst), (Direction::Out, decl.src)] {
            let all = bindings.num_vertices[vertex.index()];
            // More rows than vertices: the last ones are zero.
            let count = all as u32 + 2;
            let program = rank_links(&flow, end, &|_| count).expect("an inner product is linear in either end");
            verify(&program).unwrap_or_else(|broken| panic!("seed {seed}: {broken:#?}\n{flow}\n{program}"));
            let scores = |program: &Dataflow, edges: Vec<Vec<(u32, u32)>>| {
                let mut bound = bindings.clone();
                bound.num_vertices.truncate(second.vertex_types.len());
                bound.num_vertices.resize(program.vertex_types.len(), count as usize);
                bound.edges = edges;
                bound.inputs.clear();
                for (index, decl) in program.inputs.iter().enumerate() {
                    let Binding::Given(name) = &decl.binding else { panic!("seed {seed}: {:?}", decl.binding) };
                    let value = first.result(name).expect("what is given is a result");
                    bound.inputs.insert(Input::new(index), values[value].clone());
                }
                for (index, decl) in program.params.iter().enumerate() {
                    if decl.dims != flow.params[index].dims {
                        bound.params.insert(Param::new(index), Tensor { rows: 1, width: 1, data: vec![f64::NAN] });
                    }
                }
                let all = run(program, &bound).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{program}"));
                all[program.outputs[0].value].clone()
            };
            let found = scores(&program, vec![links.clone(), (0..all as u32).map(|v| (v, v)).collect()]);
            for (link, &(src, dst)) in links.iter().enumerate() {
                let of_pair = |by: u32| {
                    let pair = if end == Direction::In { (src, by) } else { (by, dst) };
                    scores(&second, vec![vec![pair]]).data[0]
                };
                let expected: Vec<f64> = (0..all as u32).map(of_pair).collect();
                let row = &found.data[link * count as usize..][..all];
                let differences = |scores: &[f64]| Tensor::new(all, 1, scores.iter().map(|x| x - scores[0]).collect());
                close(seed, &differences(&expected), &differences(row), &[&flow, &program]);
            }
        }
        compared += 1;
    }
    assert!(compared > 100, "{compared} programs");
}

/// A network of the source and of a parameter, in which a product stands; a product of both ends, and one that nothing else joins.
fn network_of_the_source() -> Dataflow {
    let text = "dataflow d {
        vertex A from \"a\"
        relation r: A -> A from \"r\"
        graph l: A -> A = >r links
        input x : f32[A; 2] = features(A)
        param r : f32[2] = uniform(1.0)
        param w : f32[4, 3] = uniform(1.0)
        param u : f32[2, 3] = uniform(1.0)
        %0 = input x : f32[A; 2] @FP
        %1 = param r : f32[2] @NA
        %2 = param w : f32[4, 3] @NA
        %3 = param u : f32[2, 3] @NA
        %4 = gather.src l, %0 : f32[edges(l); 2] @NA
        %5 = broadcast %1 : f32[edges(l); 2] @NA
        %6 = concat %4, %5 : f32[edges(l); 4] @NA
        %7 = matmul %6, %2 : f32[edges(l); 3] @NA
        %8 = relu %7 : f32[edges(l); 3] @NA
        %9 = gather.dst l, %0 : f32[edges(l); 2] @NA
        %10 = mul %9, %4 : f32[edges(l); 2] @NA
        %11 = matmul %10, %3 : f32[edges(l); 3] @NA
        %12 = matmul %9, %3 : f32[edges(l); 3] @NA
        %13 = mul %8, %12 : f32[edges(l); 3] @NA
        %14 = add %13, %11 : f32[edges(l); 3] @NA
        %15 = reduce.sum(axes 1) %14 : f32[edges(l)] @NA
        result s.l = %15
    }";
    hgnnc_ir::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The network is computed for each source, and what is made of it is multiplied by all destinations. It is not linear in the sources.
#[test]
fn scores_of_networks_are_products_at_the_other_end() {
    let flow = network_of_the_source();
    assert_eq!(rank_links(&flow, Direction::Out, &|_| 8), None);
    let mut of_destinations = rank_links(&flow, Direction::In, &|_| 8).expect("the score is linear in the destination");
    verify(&of_destinations).unwrap_or_else(|broken| panic!("{broken:#?}\n{of_destinations}"));
    hgnnc_passes::dce::dce(&mut of_destinations, &mut Default::default());
    insta::assert_snapshot!(of_destinations.to_string());
}

/// A part of the score without a derivative is not the same for all vertices for that.
#[test]
fn parts_that_hand_on_no_gradient_are_not_linear() {
    for op in ["neg", "sign", "stop_gradient"] {
        let text = format!(
            "dataflow d {{ vertex A from \"a\" relation r: A -> A from \"r\" graph l: A -> A = >r links \
             input x : f32[A; 2] = features(A) %0 = input x : f32[A; 2] @FP \
             %1 = gather.src l, %0 : f32[edges(l); 2] @NA %2 = gather.dst l, %0 : f32[edges(l); 2] @NA \
             %3 = mul %1, %2 : f32[edges(l); 2] @NA %4 = {op} %2 : f32[edges(l); 2] @NA \
             %5 = add %3, %4 : f32[edges(l); 2] @NA %6 = reduce.sum(axes 1) %5 : f32[edges(l)] @NA result s.l = %6 }}"
        );
        let flow = hgnnc_ir::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rank_links(&flow, Direction::In, &|_| 8).is_some(), op == "neg", "{op}");
        assert!(rank_links(&flow, Direction::Out, &|_| 8).is_some(), "{op} is of the destination");
    }
}

#[test]
fn products_of_one_end_are_computed_for_each_endpoint() {
    let flow = network_of_the_source();
    let (_, second) = score_links(&flow).expect("there are scores");
    verify(&second).unwrap_or_else(|broken| panic!("{broken:#?}\n{second}"));
    let of = |elements: usize, by: f64| -> Vec<f64> { (0..elements).map(|i| (by * (i + 1) as f64).sin()).collect() };
    // Vertex 2 has no pair as a source, vertices 0 and 3 none as a destination.
    let mut bindings =
        Bindings { num_vertices: vec![4], edges: vec![vec![(0, 1), (3, 1), (0, 2), (1, 2)]], ..Bindings::default() };
    bindings.inputs.insert(Input::new(0), Tensor::new(4, 2, of(8, 0.7)));
    for (param, elements) in [2, 12, 6].into_iter().enumerate() {
        bindings.params.insert(Param::new(param), Tensor::new(1, elements, of(elements, 1.3 + param as f64)));
    }
    let score = |flow: &Dataflow| {
        run(flow, &bindings).unwrap_or_else(|error| panic!("{error}\n{flow}"))[flow.outputs[0].value].data.clone()
    };
    assert_eq!(score(&flow), score(&second), "the same bits\n{second}");
    let mut second = second;
    hgnnc_passes::dce::dce(&mut second, &mut Default::default());
    insta::assert_snapshot!(second.to_string());
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
