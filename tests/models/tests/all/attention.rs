//! Outputs of semantic graphs and of edges: semantic attention and edge attention of the standard library against the
//! papers' equations, and the engine, the kernels and the PTX interpreter against the f64 interpreter.

use hgnnc_cuda::testing;
use hgnnc_data::reorder::renumber;
use hgnnc_driver::LowerOptions;
use hgnnc_graph::order::Order;
use hgnnc_interp::Bindings;
use hgnnc_ir::OutputKind;
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_ir::random::bits;
use hgnnc_machine::Machine;
use hgnnc_model_tests::cases::{SCHEMA, TRAIN};
use hgnnc_model_tests::compiled::{Compiled, compile_for, interpret};
use hgnnc_model_tests::engine::{bound_data, device_trainer, trainer};
use hgnnc_model_tests::plain::{
    Graph, Plain, Rows, Typed, add, dot, each, elu, head, leaky, softmax, softmax_in_edges, times, zeros,
};
use hgnnc_model_tests::{World, assert_close, cases, compile, worlds};
use hgnnc_train::{FamilyOutputRows, TrainOptions, Trainer};

use crate::differential::{engine_agrees, kernels_agree};

/// Of the f64 interpreter.
const EXACT: f64 = 1e-10;
/// Of attention weights in f32.
const TOLERANCE: f64 = 2e-5;

/// A model with the statements `body` and the outputs `y: Paper`, `attention: edges` and, of HAN, `beta: graphs`.
fn source(uses: &str, body: &str) -> String {
    format!("use std::{uses}\n{SCHEMA}\nmodel M(schema: Library) {{\n{body}\n}}\n{TRAIN}")
}

fn han() -> String {
    source(
        "han::HanConv",
        "let conv = HanConv(hidden: 3, heads: 2, dropout: 0.3, attention: 4) over [PAP, PVP, PRP, cites] of Paper.x
    output y: Paper = linear(conv, 3)
    output attention: edges = conv.alpha
    output beta: graphs = conv.beta",
    )
}

fn over_relations(layer: &str) -> String {
    let body = "let conv = LAYER over [relations, reverses] of features
    output y: Paper = linear(conv.Paper, 3)
    output attention: edges = conv.alpha";
    source(&layer.split('(').next().expect("a path").replace(' ', ""), &body.replace("LAYER", &call(layer)))
}

/// `rgat::RgatConv (hidden: 3)` as a use of the layer.
fn call(layer: &str) -> String {
    layer.split("::").last().expect("a layer").replace(' ', "")
}

/// The bindings of a world, with the edges in the order in which results have them.
fn bind(compiled: &Compiled, world: &World) -> Bindings {
    let mut bindings = compiled.bind(world);
    bindings.edges.iter_mut().for_each(|edges| edges.sort_by_key(|&(src, dst)| (dst, src)));
    bindings
}

fn sorted(mut graph: Graph) -> Graph {
    graph.edges.sort_by_key(|&(src, dst)| (dst, src));
    graph
}

/// Compares outputs of a model in all worlds: with a reference, by graph of the family, and between the interpreter, the
/// kernels and the engine, with the program as written and optimised.
#[track_caller]
fn agrees(source: &str, reference: impl Fn(&Plain<'_>) -> Vec<(String, Rows)>) {
    let compiled = compile_for(source, "attention");
    for world in cases::worlds(worlds(8)) {
        let bindings = bind(&compiled, &world);
        let exact = interpret(&compiled.infer, &bindings);
        let what = format!("world {}", world.seed);
        for (result, rows) in reference(&Plain::of(&compiled, &world)) {
            let value = compiled.infer.result(&result).unwrap_or_else(|| panic!("no result `{result}`"));
            assert_close(&format!("{what}: {result}"), &exact[value].data, &rows.concat(), EXACT);
        }
        let optimised = compiled.optimised(&world);
        engine_agrees(&format!("{what}, infer"), &compiled.infer, &compiled.infer, &bindings);
        engine_agrees(&format!("{what}, optimised"), &optimised.infer, &compiled.infer, &bindings);
        kernels_agree(&what, &compiled.infer, &bindings);
        kernels_agree(&what, &optimised.infer, &bindings);
    }
}

fn features(p: &Plain<'_>) -> Typed {
    let rows = |vertex: &'static str| {
        let rows = p.input(&format!("{vertex}.x"));
        (vertex, if rows.len() == p.count(vertex) { rows } else { zeros(p.count(vertex), 1) })
    };
    ["Paper", "Author", "Venue"].into_iter().map(rows).collect()
}

fn both_ways(p: &Plain<'_>) -> Vec<Graph> {
    [
        ("cites", "Paper", "Paper"),
        ("writes", "Author", "Paper"),
        ("reviews", "Author", "Paper"),
        ("appears_in", "Paper", "Venue"),
        ("reverse_cites", "Paper", "Paper"),
        ("reverse_writes", "Paper", "Author"),
        ("reverse_reviews", "Paper", "Author"),
        ("reverse_appears_in", "Venue", "Paper"),
    ]
    .into_iter()
    .map(|(name, src, dst)| sorted(p.relation(name, src, dst)))
    .collect()
}

/// Shares of scores among the in-edges of one graph, or of all.
fn attention(graphs: &[Graph], across: bool, score: impl Fn(&Graph, usize, usize) -> Vec<f64>) -> Vec<Rows> {
    let scores = |graph: &Graph| graph.edges.iter().map(|&(j, i)| score(graph, j, i)).collect::<Rows>();
    let scores: Vec<Rows> = graphs.iter().map(scores).collect();
    if across {
        return softmax_in_edges(&graphs.iter().collect::<Vec<_>>(), &scores);
    }
    graphs.iter().zip(scores).flat_map(|(graph, scores)| softmax_in_edges(&[graph], &[scores])).collect()
}

fn named(output: &str, graphs: &[Graph], rows: Vec<Rows>) -> Vec<(String, Rows)> {
    graphs.iter().zip(rows).map(|(graph, rows)| (format!("{output}.{}", graph.name), rows)).collect()
}

/// α of GAT: e = leaky_relu(aᵀ[h_i ‖ h_j]), softmax over the in-edges (Veličković et al. 2018, eq. 3).
fn additive(p: &Plain<'_>, graphs: &[Graph], h: &Rows) -> Vec<Rows> {
    attention(graphs, false, |graph, j, i| {
        let (src, dst) = (format!("conv.a_src.{}", graph.name), format!("conv.a_dst.{}", graph.name));
        let (a_src, a_dst) = (p.param(&src), p.param(&dst));
        let of = |k| dot(head(&h[j], k, 2), a_src.row(k)) + dot(head(&h[i], k, 2), a_dst.row(k));
        (0..2).map(|k| leaky(of(k), 0.2)).collect()
    })
}

/// Wang et al. 2019: α of eq. 3 for each metapath, β of eq. 8 from the means of eq. 7 over all vertices.
#[test]
fn han_tells_both_of_its_attentions() {
    agrees(&han(), |p| {
        let graphs = [
            sorted(p.metapath("PAP", "Paper", &[("writes", true), ("writes", false)])),
            sorted(p.metapath("PVP", "Paper", &[("appears_in", false), ("appears_in", true)])),
            sorted(p.metapath("PRP", "Paper", &[("reviews", true), ("reviews", false)])),
            sorted(p.relation("cites", "Paper", "Paper")),
        ];
        let h: Rows = p.input("Paper.x").iter().map(|x| p.param("conv.w").apply(x)).collect();
        let alpha = additive(p, &graphs, &h);
        let importance: Vec<f64> = (graphs.iter().zip(&alpha))
            .map(|(graph, alpha)| {
                let mut z = zeros(h.len(), 6);
                for (&(j, i), alpha) in graph.edges.iter().zip(alpha) {
                    let message: Vec<f64> = (0..2).flat_map(|k| times(alpha[k], head(&h[j], k, 2))).collect();
                    z[i] = add(&z[i], &message);
                }
                let of_vertex = |z: &Vec<f64>| {
                    let hidden = add(&p.param("conv.w_s").apply(z), p.vector("conv.b_s"));
                    dot(p.vector("conv.q"), &hidden.iter().map(|x| x.tanh()).collect::<Vec<_>>())
                };
                each(&z, elu).iter().map(of_vertex).sum::<f64>() / z.len() as f64
            })
            .collect();
        let beta = softmax(&importance).into_iter().map(|weight| vec![vec![weight]]).collect();
        [named("attention", &graphs, alpha), named("beta", &graphs, beta)].concat()
    });
}

#[test]
fn gat_tells_its_attention() {
    let body = "let conv = GatConv(hidden: 3, heads: 2, dropout: 0.3) over [self_loops(cites), PAP] of Paper.x
    output y: Paper = linear(elu(conv), 3)
    output attention: edges = conv.alpha";
    agrees(&source("gat::GatConv", body), |p| {
        let cites = p.relation("cites", "Paper", "Paper");
        let graphs = [
            sorted(p.self_loops(&cites, "cites_self_loops")),
            sorted(p.metapath("PAP", "Paper", &[("writes", true), ("writes", false)])),
        ];
        let h: Rows = p.input("Paper.x").iter().map(|x| p.param("conv.w").apply(x)).collect();
        let alpha = additive(p, &graphs, &h);
        named("attention", &graphs, alpha)
    });
}

/// Busbridge et al. 2019, inside each relation and across all of them: also of relations to vertices that the other
/// output does not need.
#[test]
fn rgat_tells_its_attention() {
    for (layer, across) in [("RgatConv", false), ("RgatAcrossConv", true)] {
        agrees(&over_relations(&format!("rgat::{layer} (hidden: 3, heads: 2, dropout: 0.3)")), |p| {
            let (graphs, x) = (both_ways(p), features(p));
            let alpha = attention(&graphs, across, |graph, j, i| {
                let of = |what: &str| p.param(&format!("conv.{what}.{}", graph.name));
                let message = of("w").apply(&x[graph.src][j]);
                let query = of("w_dst").apply(&x[graph.dst][i]);
                let of =
                    |k| dot(head(&message, k, 2), of("a_src").row(k)) + dot(head(&query, k, 2), of("a_dst").row(k));
                (0..2).map(|k| leaky(of(k), 0.2)).collect()
            });
            named("attention", &graphs, alpha)
        });
    }
}

/// Hu et al. 2020, eq. 3: K W_att Qᵀ μ / √d, one softmax over all in-edges.
#[test]
fn hgt_tells_its_attention() {
    agrees(&over_relations("hgt::HgtConv (hidden: 3, heads: 2, dropout: 0.2)"), |p| {
        let (graphs, x) = (both_ways(p), features(p));
        let project = |what: &str, vertex: &str, i: usize| {
            let w = p.param(&format!("conv.w_{what}.{vertex}"));
            add(&w.apply(&x[vertex][i]), p.vector(&format!("conv.b_{what}.{vertex}")))
        };
        let alpha = attention(&graphs, true, |graph, j, i| {
            let w_att = p.param(&format!("conv.w_att.{}", graph.name));
            let mu = p.vector(&format!("conv.mu.{}", graph.name));
            let (key, query) = (project("k", graph.src, j), project("q", graph.dst, i));
            let of = |k| dot(&w_att.part(k).apply(head(&key, k, 2)), head(&query, k, 2));
            (0..2).map(|k| of(k) * mu[k] / 3f64.sqrt()).collect()
        });
        named("attention", &graphs, alpha)
    });
}

/// Lv et al. 2021, eq. 4, one softmax over all in-edges.
#[test]
fn simple_hgn_tells_its_attention() {
    let body =
        "let conv = SimpleHgnConv(hidden: 3, heads: 2, edge: 4, dropout: 0.2) over [relations, reverses] of features
    output y: Paper = linear(conv.out.Paper, 3)
    output attention: edges = conv.alpha";
    agrees(&source("simple_hgn::SimpleHgnConv", body), |p| {
        let (graphs, x) = (both_ways(p), features(p));
        let h = |vertex: &str, i: usize| p.param(&format!("conv.w.{vertex}")).apply(&x[vertex][i]);
        let alpha = attention(&graphs, true, |graph, j, i| {
            let embedded = p.param("conv.w_r").apply(p.vector(&format!("conv.r.{}", graph.name)));
            let (hj, hi) = (h(graph.src, j), h(graph.dst, i));
            let of = |k| {
                dot(head(&hj, k, 2), p.param("conv.a_src").row(k))
                    + dot(head(&hi, k, 2), p.param("conv.a_dst").row(k))
                    + dot(head(&embedded, k, 2), p.param("conv.a_edge").row(k))
            };
            (0..2).map(|k| leaky(of(k), 0.05)).collect()
        });
        named("attention", &graphs, alpha)
    });
}

/// Outputs do not change what is trained: of edges, nothing is left in the program unless it is asked for; of semantic
/// graphs, the training program is the same.
#[test]
fn outputs_that_are_not_asked_for_cost_nothing() {
    let with = compile(&han());
    let is_other = |line: &&str| !line.contains("output attention") && !line.contains("output beta");
    let without = compile(&han().lines().filter(is_other).collect::<Vec<_>>().join("\n"));
    let world = World::library();
    let text = |compiled: &Compiled| {
        let executable = compiled.optimised(&world);
        let train = executable.train.expect("a train block");
        (hgnnc_ir::print::print(&train), hgnnc_kernel_ir::kernel::print(&executable.kernels.train.expect("kernels")))
    };
    assert_eq!(text(&with), text(&without));
    let results = |compiled: &Compiled| -> Vec<String> {
        let name = |kind: &OutputKind| match kind {
            OutputKind::Result(name) => Some(name.clone()),
            OutputKind::UpdateParam(_) | OutputKind::UpdateState(..) => None,
        };
        compiled.infer.outputs.iter().filter_map(|output| name(&output.kind)).collect()
    };
    assert!(results(&with).contains(&"beta.PAP".to_owned()), "{:?}", results(&with));
    assert!(!results(&with).iter().any(|name| name.starts_with("attention")), "{:?}", results(&with));
    assert!(results(&compile_for(&han(), "attention")).contains(&"attention.PAP".to_owned()));
}

fn options() -> TrainOptions {
    TrainOptions { threads: 2, seed: Some(4), ..TrainOptions::default() }
}

fn family(trainer: &mut Trainer, output: &str) -> FamilyOutputRows {
    trainer.infer_family(output).unwrap_or_else(|error| panic!("{error}")).expect("the output")
}

#[track_caller]
fn close(what: &str, found: &FamilyOutputRows, expected: &FamilyOutputRows) {
    assert_eq!((found.rows, found.width), (expected.rows, expected.width), "{what}");
    assert_eq!(found.graphs.len(), expected.graphs.len(), "{what}");
    for (found, expected) in found.graphs.iter().zip(&expected.graphs) {
        assert_eq!((&found.name, &found.edges), (&expected.name, &expected.edges), "{what}");
        let wide = |numbers: &[f32]| numbers.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        assert_close(&format!("{what}: {}", found.name), &wide(&found.data), &wide(&expected.data), TOLERANCE);
    }
}

/// The trainer gives the same rows on a processor, on a processor with renumbered vertices, and on a device; weights of
/// semantic graphs sum to 1, and so does the attention of the in-edges of each vertex.
#[test]
fn machines_and_orders_of_vertices_agree() {
    let compiled = compile_for(&han(), "attention");
    for world in [World::library(), World::random_library(7), World::long_rows()] {
        let data = || bound_data(compiled.training(), &compiled.bind(&world));
        let on_processor = |data| trainer(compiled.optimised(&world), data, options()).expect("a trainer");
        let mut expected = on_processor(data());
        let device = testing::device();
        let machine = Machine::sheet(device.target().name());
        let executable = compiled.lowered(&world, LowerOptions { machine, ..LowerOptions::default() });
        let mut on_device = device_trainer(executable, data(), device, options()).expect("a trainer");
        let mut shuffled = data();
        let order = |(vertex_type, &count): (usize, &usize)| {
            let mut vertices: Vec<u32> = (0..count as u32).collect();
            vertices.sort_by_key(|&vertex| bits(3, (vertex_type as u64) << 32 | u64::from(vertex)));
            Some(Order::of(vertices))
        };
        let orders = shuffled.num_vertices.iter().enumerate().map(order).collect();
        let executable = compiled.optimised(&world);
        renumber(&mut shuffled, &executable.infer, orders).expect("an order");
        let mut renumbered = on_processor(shuffled);
        for output in ["attention", "beta"] {
            let expected = family(&mut expected, output);
            close(&format!("{output} on a device"), &family(&mut on_device, output), &expected);
            close(&format!("{output} renumbered"), &family(&mut renumbered, output), &expected);
            match expected.rows {
                FamilyRows::Graphs => {
                    let total: f32 = expected.graphs.iter().map(|graph| graph.data[0]).sum();
                    assert!((total - 1.0).abs() < 1e-5, "{total}");
                }
                FamilyRows::Edges => {
                    for graph in &expected.graphs {
                        assert!(graph.edges.is_sorted_by_key(|&(src, dst)| (dst, src)));
                        let ends: std::collections::BTreeSet<u32> = graph.edges.iter().map(|edge| edge.1).collect();
                        let total: f32 = graph.data.iter().sum();
                        assert!((total - 2.0 * ends.len() as f32).abs() < 1e-2, "{}: {total}", graph.name);
                    }
                }
            }
        }
        let weights = expected.infer_graph_weights().expect("weights");
        assert_eq!((weights.len(), &weights[0].output[..], weights[0].weights.len()), (1, "beta", 4));
        assert!(expected.infer_family("y").expect("no failure").is_none());
    }
}
