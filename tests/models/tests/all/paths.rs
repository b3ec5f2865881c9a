//! Path instances in layers: what they read, against counted metapaths, and sums over them that are factored.

use hgnnc_driver::factor_path_sums;
use hgnnc_interp::Tensor;
use hgnnc_model_tests::cases::{self, SCHEMA, TRAIN};
use hgnnc_model_tests::compiled::{bind, compile, interpret};
use hgnnc_model_tests::{World, assert_close, worlds};

use crate::differential::{engine_agrees, kernels_agree};
use crate::gradients::gradients_are_differences;

/// A model with a layer over the metapaths of the schema, counted or not.
fn model(layer: &str, over: &str) -> String {
    let schema = SCHEMA
        .replace("metapath PRP", "metapath CAP = counted Paper <-writes- Author -writes-> Paper\n    metapath PRP");
    format!(
        "{schema}
        {layer}
        model M(schema: Library) {{
            let conv = L() over {over} of linear(features, 4)
            output y: Paper = linear(conv, 3)
        }}
        {TRAIN}"
    )
}

fn layer(aggregate: &str) -> String {
    format!(
        "layer L() over graphs: [V -> V] of x: *[in] -> V[in] {{
            {aggregate}
            fuse v: V across graphs {{ out = sum(v.z) across graphs }}
        }}"
    )
}

fn output(source: &str, world: &World) -> Tensor {
    compile(source).output(world, "y")
}

/// The sum over instances is the sum over pairs, times the number of their instances; and so are their numbers.
#[test]
fn instances_are_as_many_as_counted_metapaths_count() {
    let of_paths =
        layer("aggregate p: path in graphs { z = sum(p.src.x + 0.1 * p.dst.in_degree * p.dst.x) over in_edges }");
    let of_pairs = layer(
        "aggregate e: g in graphs { degree = sum(e.count) over in_edges }
        aggregate e: g in graphs { z = sum(e.count * (e.src.x + 0.1 * e.dst.degree * e.dst.x)) over in_edges }",
    );
    for world in cases::worlds(worlds(8)) {
        let found = output(&model(&of_paths, "PAP"), &world);
        let expected = output(&model(&of_pairs, "CAP"), &world);
        assert_close(&format!("world {}", world.seed), &found.data, &expected.data, 1e-10);
    }
}

/// Everything that a path has, in one layer: gradients by differences, kernels and engine against the interpreter.
#[test]
fn parts_of_paths_have_their_gradients_on_all_engines() {
    let schema = "schema S {
        vertex Paper { x: f32[5], topic: class[3] }
        vertex Author { x: f32[3] }
        relation writes: Author -> Paper { order: f32, kind: f32[2] }
        metapath PAP = Paper <-writes- Author -writes-> Paper
        metapath PAPAP = Paper <-writes- Author -writes-> Paper <-writes- Author -writes-> Paper
    }";
    let model = |body: &str, over: &str| {
        format!(
            "{schema}
            layer L() over graphs: [V -> V] of x: *[in] -> V[in], alpha: graphs {{
                aggregate p: path in graphs {{
                    {body}
                    alpha = softmax(dot(o, p.dst.x)) over in_edges
                    z = sum(alpha * o) over in_edges
                }}
                fuse v: V across graphs {{ out = sum(v.z) across graphs }}
            }}
            model M(schema: S) {{
                let conv = L() over {over} of tanh(linear(features, 4))
                output y: Paper = linear(conv, 3)
            }}
            {TRAIN}"
        )
    };
    let named = "param k: [2, in]
        let o = p.at(1).x + p.Author.x * p.src.x + p.edge(0).order * p.at(2).x + p.edge(1).kind @ k";
    let along = "param t: [in] per hop
        let turned = p.hop.direction * t
        let o = fold(p.src.x, tanh(before * turned + p.vertices.x)) over path + max(p.vertices.x) over path";
    for (body, over) in [(named, "PAP"), (along, "[PAP, PAPAP]")] {
        let compiled = compile(&model(body, over));
        let edges = [(0, 0), (0, 1), (1, 1), (2, 1), (2, 1), (1, 3)];
        let world = World::new(3, &[("Paper", 5), ("Author", 4)], &[("writes", &edges)]);
        let bindings = compiled.bind(&world);
        gradients_are_differences(body, &compiled.model.flow, &bindings);
        let optimised = compiled.optimised(&world);
        let train = optimised.train.as_ref().expect("a train block");
        for (program, oracle) in [(&optimised.infer, &compiled.infer), (train, compiled.training())] {
            engine_agrees(body, program, oracle, &bindings);
            kernels_agree(body, program, &bindings);
        }
    }
}

/// Linear values of instances are summed hop by hop, and no instance is read any more; others keep them.
#[test]
fn sums_over_instances_are_factored() {
    let linear = "param w: [in, in] shared
        let o = mean(p.vertices.x) over path + 2 * p.at(1).x - (p.src.x @ w) / 3
        z = mean(o) over in_edges";
    let product = "z = sum(p.src.x * p.at(1).x) over in_edges";
    for (body, is_factored) in [(linear, true), (product, false)] {
        let source = model(&layer(&format!("aggregate p: path in graphs {{ {body} }}")), "[PAP, PVP, PRP]");
        let compiled = compile(&source);
        let mut factored = compile(&source);
        factor_path_sums(&mut factored.model);
        let flow = &factored.model.flow;
        for path in &flow.paths {
            assert_eq!(path.is_read(flow), !is_factored, "{body}");
        }
        for world in cases::worlds(worlds(6)) {
            let what = format!("{body}, world {}", world.seed);
            let (expected, found) = (&compiled.model.flow, flow);
            let loss =
                |of: &hgnnc_ir::Dataflow| interpret(of, &bind(of, &world)).scalar(of.result("loss").expect("a loss"));
            assert_close(&what, &[loss(found)], &[loss(expected)], 1e-10);
        }
        let world = World::library();
        gradients_are_differences(body, flow, &bind(flow, &world));
    }
}
