//! Cases in which today's tools fail their users, by their number in the field notes. `tests/README.md` lists those
//! that belong elsewhere.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use hgnnc_cpu::EngineOptions;
use hgnnc_cpu::plan::{Domain, Level, Place, Plan, StepKind};
use hgnnc_data::ExecError;
use hgnnc_dataset::{Dataset, RelationData, Step, VertexTypeData, npy};
use hgnnc_graph::{MetapathOptions, SemanticGraphs, SgbError};
use hgnnc_interp::Tensor;
use hgnnc_ir::{Dataflow, Input, Op, Space, parse, print};
use hgnnc_model_tests::cases::{self, SCHEMA, TRAIN};
use hgnnc_model_tests::compiled::{Compiled, interpret};
use hgnnc_model_tests::engine::{bound_data, engine, run};
use hgnnc_model_tests::plain::{Plain, dot};
use hgnnc_model_tests::{CASES, World, assert_close, case, compile, dataset, report};
use hgnnc_train::TrainOptions;

use crate::times::inference;

fn library_model(uses: &str, body: &str) -> String {
    format!("{uses}\n{SCHEMA}\nmodel M(schema: Library) {{ {body} }}\n{TRAIN}")
}

/// Everything that a training step computes is finite and the engine and the interpreter agree on the output.
#[track_caller]
fn trains_without_nan(what: &str, compiled: &Compiled, world: &World) {
    let bindings = compiled.bind(world);
    let exact = compiled.output_of(&bindings, "y");
    let numbers = run(&compiled.infer, &bindings, 2);
    let numbers: Vec<f64> = numbers["y"].iter().map(|&x| f64::from(x)).collect();
    assert_close(what, &numbers, &exact.data, 2e-5);
    let optimised = compiled.optimised(world).train.expect("a train block");
    for program in [compiled.training(), &optimised] {
        for (name, numbers) in run(program, &bindings, 2) {
            assert!(numbers.iter().all(|x| x.is_finite()), "{what}: {name} is {numbers:?}");
        }
    }
}

/// Case 1: where no destination has an edge, tools return an empty tensor. Here: the self term, in the right shape.
#[test]
fn field_case_01_no_destination_has_an_edge() {
    for name in ["rgcn", "sage_mean", "sage_max", "rgat", "gin", "hgt", "simple_hgn"] {
        let compiled = compile(&case(name).source());
        trains_without_nan(name, &compiled, &World::library().without_edges());
    }
    let compiled = compile(&library_model(
        "use std::sage::SageMeanConv",
        "let h = SageMeanConv(hidden: 3) over relations of features
         output y: Paper = h.Paper",
    ));
    let world = World::library().without_edges();
    let p = Plain::of(&compiled, &world);
    let own = |x: &Vec<f64>| {
        let product = p.param("h.w_self.Paper").apply(x);
        product.iter().zip(p.vector("h.b.Paper")).map(|(a, b)| a + b).collect::<Vec<f64>>()
    };
    let expected: Vec<f64> = p.input("Paper.x").iter().flat_map(own).collect();
    assert_close("y", &compiled.output(&world, "y").data, &expected, 1e-12);
}

/// Case 3: a vertex type with no vertices goes through all layers.
#[test]
fn field_case_03_vertex_type_without_vertices() {
    for name in ["rgcn", "rgcn_basis", "rgcn_block", "rgat", "sage_max", "simple_hgn", "hgt", "rgcn_sparse"] {
        let compiled = compile(&case(name).source());
        let world = World::library().with_count("Author", 0).with_edges("writes", &[]);
        trains_without_nan(name, &compiled, &world);
        trains_without_nan(name, &compiled, &world.with_count("Venue", 0).with_edges("appears_in", &[]));
    }
}

/// Case 4: a type that is never a destination. Layers over every type keep it: it has its self term and nothing
/// else, and a warning says so where that is used. An attention across its (no) semantic graphs has no meaning and is
/// refused with the type's name.
#[test]
fn field_case_04_type_that_is_never_a_destination() {
    let source = library_model(
        "use std::rgcn::RgcnConv",
        "let h = RgcnConv(hidden: 3) over [writes] of {Paper.x, Author.x}
         output y: Paper = h.Paper
         output authors: Author = h.Author",
    );
    let compiled = compile(&source);
    let world = World::library();
    let p = Plain::of(&compiled, &world);
    let own = |x: &Vec<f64>| {
        let product = p.param("h.w_self.Author").apply(x);
        product.iter().zip(p.vector("h.b.Author")).map(|(a, b)| a + b).collect::<Vec<f64>>()
    };
    let expected: Vec<f64> = p.input("Author.x").iter().flat_map(own).collect();
    assert_close("authors", &compiled.output(&world, "authors").data, &expected, 1e-12);

    let text = report(&source);
    assert!(text.contains("warning[W0005]") && text.contains("`Author` receives no messages"), "{text}");

    let attention = format!(
        "{SCHEMA}
        layer Attend(hidden: dim) over graphs: [*] of x: *[in] -> *[hidden] {{
            project v: * {{ param w: [in, hidden] = glorot  h = v.x @ w }}
            aggregate e: g in graphs {{ z = sum(e.src.h) over in_edges }}
            fuse v: * across graphs {{ out = max(v.z) across graphs }}
        }}
        model M(schema: Library) {{
            let h = Attend(hidden: 3) over [writes] of {{Paper.x, Author.x}}
            output y: Paper = h.Paper
            output authors: Author = h.Author
        }}"
    );
    let text = report(&attention);
    assert!(text.contains("error[E0408]") && text.contains("`Author`"), "{text}");
}

/// Case 5: source-only types do not vanish behind the first layer.
#[test]
fn field_case_05_source_only_types_in_deep_models() {
    for layers in 2..=3 {
        let mut body = "let h1 = relu(RgcnConv(hidden: 4) over [writes, cites] of {Paper.x, Author.x})\n".to_string();
        for layer in 2..=layers {
            let hidden = if layer == layers { 3 } else { 4 };
            let before = layer - 1;
            body += &format!("let h{layer} = RgcnConv(hidden: {hidden}) over [writes, cites] of h{before}\n");
        }
        body += &format!("output y: Paper = h{layers}.Paper");
        let compiled = compile(&library_model("use std::rgcn::RgcnConv", &body));
        trains_without_nan(&format!("{layers} layers"), &compiled, &World::library());
        // The authors' features reach the output through every layer: their self weights are parameters.
        for layer in 1..layers {
            compiled.param(&format!("h{layer}.w_self.Author"));
        }
        let world = World::library();
        let mut moved = compiled.bind(&world);
        let author = compiled.infer.inputs.iter().position(|i| i.name == "Author.x").expect("authors are read");
        moved.inputs.get_mut(&Input::new(author)).expect("bound").data[0] += 1.0;
        assert_ne!(compiled.output_of(&moved, "y"), compiled.output(&world, "y"));
    }
}

/// Case 6: rows without in-edges have attention 0, all rows are there, and nothing is NaN.
#[test]
fn field_case_06_attention_of_rows_without_in_edges() {
    for (uses, layer) in [
        ("use std::hgt::HgtConv", "HgtConv(hidden: 3, heads: 1)"),
        ("use std::hgt::HgtConv", "HgtConv(hidden: 3, heads: 1, per_relation: true)"),
        ("use std::rgat::RgatConv", "RgatConv(hidden: 3, heads: 1)"),
        ("use std::simple_hgn::SimpleHgnConv", "SimpleHgnConv(hidden: 3, heads: 1)"),
    ] {
        let field = if layer.starts_with("Simple") { ".out" } else { "" };
        let body = format!(
            "let h = {layer} over [writes, cites] of {{Paper.x, Author.x}}
             output y: Paper = h{field}.Paper"
        );
        let compiled = compile(&library_model(uses, &body));
        // Papers 3 and 6 get no message.
        let world = World::library().with_edges("cites", &[(0, 1), (2, 1)]);
        trains_without_nan(layer, &compiled, &world);
        let found = compiled.output(&world, "y");
        assert_eq!(found.rows, 7);
        // With the messages of all edges removed those rows stay what they are.
        let alone = compiled.output(&world.without_edges(), "y");
        for row in [3, 6] {
            assert_close(layer, found.row(row), alone.row(row), 1e-12);
        }
    }
}

/// Case 7: a graph without any edge, through every model, on the engine with one thread and several.
#[test]
fn field_case_07_graph_without_edges() {
    for case in CASES {
        let compiled = compile(&case.source());
        trains_without_nan(case.name, &compiled, &World::library().without_edges());
    }
}

/// Case 8: vertices behind the last one that has an edge are not dropped when semantic graphs are built.
#[test]
fn field_case_08_isolated_vertices_keep_their_rows() {
    let compiled = compile(&case("han").source());
    let world = World::library().with_count("Paper", 20).with_count("Author", 9);
    let executable = compiled.optimised(&world);
    let data = dataset::dataset(&executable.infer, &compiled.bind(&world), &world);
    let bound = hgnnc_data::bind(&executable, &data, &Default::default()).expect("the dataset fits");
    for graph in &bound.graphs {
        assert_eq!((graph.num_src, graph.num_dst, graph.csc.indptr.len()), (20, 20, 21), "{}", graph.name);
    }
    assert_eq!(compiled.output(&world, "y").rows, 20);
    trains_without_nan("han", &compiled, &world);
}

/// Case 9: self loops on a relation between two types are a compile error at the place where they are asked for.
#[test]
fn field_case_09_self_loops_between_types() {
    let source = library_model(
        "use std::rgcn::RgcnConv",
        "let h = RgcnConv(hidden: 3) over [self_loops(writes)] of features
         output y: Paper = h.Paper",
    );
    let text = report(&source);
    assert!(text.contains("error[E0402]"), "{text}");
    assert!(text.contains("over [self_loops(writes)]") && text.contains("^^^^^^^^^^^^^^^^^^"), "{text}");
    assert!(text.contains("`Author`") && text.contains("`Paper`"), "{text}");
}

/// Case 10: batch normalisation of a single vertex is its shift, not NaN.
#[test]
fn field_case_10_batch_norm_of_one_vertex() {
    let compiled = compile(&case("gin_normalized").source());
    let world = World::new(
        7,
        &[("Paper", 1), ("Author", 1), ("Venue", 1)],
        &[("cites", &[(0, 0)]), ("writes", &[(0, 0)]), ("reviews", &[]), ("appears_in", &[])],
    );
    trains_without_nan("one paper", &compiled, &world);
    let alone = compile(&library_model("", "output y: Paper = linear(batch_norm(linear(Paper.x, 2)), 3)"));
    let p = Plain::of(&alone, &world);
    let names: Vec<&str> = alone.infer.params.iter().map(|p| p.name.as_str()).collect();
    let shift = names.iter().find(|n| n.ends_with("shift")).expect("a shift");
    let (weight, bias) = ("y.weight", "y.bias");
    let outer = [weight, bias].map(|n| names.iter().filter(|x| x.starts_with("y")).any(|x| *x == n));
    assert_eq!(outer, [true, true], "{names:?}");
    let wide = names.iter().find(|n| n.ends_with("weight") && p.param(n).dims == [2, 3]).expect("the last linear map");
    let last_bias = wide.replace("weight", "bias");
    let expected: Vec<f64> =
        p.param(wide).apply(p.vector(shift)).iter().zip(p.vector(&last_bias)).map(|(a, b)| a + b).collect();
    assert_close("y", &alone.output(&world, "y").data, &expected, 1e-12);
}

/// Case 11: a metapath whose graph would not fit is refused before anything of its size is allocated, with the
/// numbers. Here 20,000 papers that share one venue: 4e8 pairs.
#[test]
fn field_case_11_metapath_over_budget() {
    let papers = 20_000;
    let dataset = Dataset {
        name: "hub".into(),
        vertex_types: vec![
            VertexTypeData { name: "paper".into(), count: papers, ..Default::default() },
            VertexTypeData { name: "venue".into(), count: 1, ..Default::default() },
        ],
        relations: vec![RelationData {
            name: "appears_in".into(),
            src: 0,
            dst: 1,
            src_ids: (0..papers as u32).collect(),
            dst_ids: vec![0; papers],
            ..Default::default()
        }],
        ..Default::default()
    };
    let steps = [Step::forward(0), Step::reverse(0)];
    let graphs = SemanticGraphs::new(&dataset);
    let estimate = graphs.estimate(&steps).expect("the steps join");
    assert_eq!((estimate.instances, estimate.max_pairs), (400_000_000, 400_000_000));
    let options = MetapathOptions { memory_budget: 64 << 20, ..Default::default() };
    match graphs.metapath("PVP", &steps, options) {
        Err(error @ SgbError::OverBudget { pairs: 400_000_000, .. }) => {
            let text = error.to_string();
            assert!(text.contains("PVP") && text.contains("400000000") && text.contains("64.0 MiB"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    // The same through the runtime, in the words of the model.
    let compiled = compile(
        "use std::han::HanConv
        schema S {
            vertex Paper from \"paper\" { x: embedding[2] }
            vertex Venue from \"venue\"
            relation appears_in: Paper -> Venue
            metapath PVP = Paper -appears_in-> Venue <-appears_in- Paper
        }
        model M(schema: S) { output y: Paper = HanConv(hidden: 2, heads: 1) over [PVP] of Paper.x }",
    );
    let executable = inference(&compiled);
    let options = hgnnc_data::BindOptions { graph_budget: Some(64 << 20), ..Default::default() };
    match hgnnc_data::bind(&executable, &dataset, &options) {
        Err(ExecError::GraphTooLarge(text)) => assert!(text.contains("PVP"), "{text}"),
        other => panic!("{:?}", other.err()),
    }
}

/// Values with a row per edge that are wider than this hold a weight or a projection per edge.
fn widest_edge_value(flow: &Dataflow) -> usize {
    let of_edges = flow.handles().filter(|&v| matches!(flow.ty(v).space, Space::Edges(_)));
    of_edges.map(|v| flow.width(v).expect("extents are fixed")).max().unwrap_or(0)
}

/// Locals of the engine's plan that store a row for each edge.
fn stored_edge_values(plan: &Plan) -> Vec<String> {
    let mut stored = vec![];
    for step in plan.prelude.iter().chain(&plan.steps) {
        if let StepKind::Region(region) = &step.kind
            && let Domain::Edges { topology, .. } = region.domain
        {
            let kept = region.locals.iter().filter(|l| l.level == Level::Edge && matches!(l.place, Place::Stored(_)));
            stored.extend(kept.map(|l| format!("{} per edge of graph {topology} in: {}", l.width, step.label)));
        }
    }
    stored
}

/// Case 12: no weight is copied per edge (|E| · d · d), and the engine stores no value with a row per edge at all.
#[test]
fn field_case_12_nothing_the_size_of_the_edges() {
    for case in CASES {
        let compiled = compile(&case.source());
        let world = World::library();
        let optimised = compiled.optimised(&world);
        let programs =
            [compiled.training(), &compiled.infer, optimised.train.as_ref().expect("trained"), &optimised.infer];
        for flow in programs {
            // The widest thing per vertex in these models: 6 inputs, 2 heads of 3, or 2 heads of an edge type's 4.
            let widest = widest_edge_value(flow);
            assert!(widest <= 8, "{}, `{}`: {widest} elements per edge", case.name, flow.name);
            let engine =
                engine(&[flow], &compiled.bind(&world), EngineOptions { threads: 1, ..EngineOptions::default() });
            let stored = stored_edge_values(engine.plan(0));
            assert!(stored.is_empty(), "{}, `{}`: {stored:#?}", case.name, flow.name);
        }
    }
}

/// Case 14: scores of ±1e4 give shares that are finite and sum to 1: to 1e-12 in the oracle. In f32 a share is
/// `exp(score - lse)`, so it has the rounding of the log-sum-exp, 1e4 · 2^-24 = 6e-4; that is the price of saving
/// one number per row.
#[test]
fn field_case_14_scores_of_ten_thousand() {
    let compiled = compile(&library_model(
        "use std::gat::GatConv",
        "output y: Paper = GatConv(hidden: 3, heads: 1) over [self_loops(cites)] of Paper.x",
    ));
    let world = World::library();
    let mut bindings = compiled.bind(&world);
    // h = (1, 1e4 x, -1e4 x) and the score is its second element: the first element of the output sums the shares.
    let x = compiled.infer.inputs.iter().position(|i| i.name == "Paper.x").expect("features are read");
    let features = bindings.inputs.get_mut(&Input::new(x)).expect("bound");
    for row in 0..features.rows {
        features.data[row * features.width] = 1.0;
        features.data[row * features.width + 1] = if row % 2 == 0 { 1.0 } else { -1.0 };
    }
    let mut set = |name: &str, numbers: &[f64]| {
        let tensor = bindings.params.get_mut(&compiled.param(name)).expect("bound");
        tensor.data.fill(0.0);
        tensor.data[..numbers.len()].copy_from_slice(numbers);
    };
    set("y.w", &[1.0, 0.0, 0.0, 0.0, 1e4, -1e4]);
    set("y.a_src.cites_self_loops", &[0.0, 1.0, 0.0]);
    set("y.a_dst.cites_self_loops", &[0.0, 0.5, 0.0]);
    set("y.b", &[]);
    let exact = compiled.output_of(&bindings, "y");
    let found = &run(&compiled.infer, &bindings, 1)["y"];
    for row in 0..exact.rows {
        assert!((exact.at(row, 0) - 1.0).abs() < 1e-12, "shares of paper {row} sum to {}", exact.at(row, 0));
        assert!((found[row * 3] - 1.0).abs() < 1e-3, "in f32: {}", found[row * 3]);
    }
    assert!(exact.data.iter().all(|x| x.is_finite()) && found.iter().all(|x| x.is_finite()));
    let trained = run(compiled.training(), &bindings, 1);
    assert!(trained.values().flatten().all(|x| x.is_finite()), "gradients are finite as well");
}

/// Case 15: semantic attention has one weight per metapath, from the mean over all vertices. A weight per vertex, as
/// several tools had it, would make a vertex independent of the others.
#[test]
fn field_case_15_semantic_attention_is_a_mean_over_vertices() {
    let compiled = compile(&case("han").source());
    // Paper 6 has no neighbour in any metapath, so its embeddings are 0 whatever the weights; paper 5 has some.
    let world = World::library();
    let before = compiled.output(&world, "y");
    let mut moved = compiled.bind(&world);
    let x = compiled.infer.inputs.iter().position(|i| i.name == "Paper.x").expect("features are read");
    // Papers 2 and 3 share venue 1 and cite nothing that reaches paper 0; its neighbours are 1, 4 and itself.
    moved.inputs.get_mut(&Input::new(x)).expect("bound").data[3 * 5] += 2.0;
    let after = compiled.output_of(&moved, "y");
    assert_close("isolated paper", after.row(6), before.row(6), 1e-12);
    assert_ne!(after.row(0), before.row(0), "the weights of metapaths depend on every vertex");
    // An empty metapath takes part with zeros: nothing is NaN. The values themselves are checked in `layers`.
    assert!(before.data.iter().all(|x| x.is_finite()));
}

/// Case 16: one softmax over all in-edges and one per relation, whose messages are averaged, are two functions; both can be
/// chosen. That keys, values and the gate have the right weights is checked against the equations in `layers`.
#[test]
fn field_case_16_hgt_has_both_scopes() {
    let both = |graphs: &str| {
        ["", ", per_relation: true"].map(|option| {
            let body = format!(
                "let h = HgtConv(hidden: 3, heads: 1{option}) over {graphs} of {{Paper.x, Author.x}}
                 output y: Paper = h.Paper"
            );
            compile(&library_model("use std::hgt::HgtConv", &body)).output(&World::library(), "y")
        })
    };
    let [all, each] = both("[cites]");
    assert_close("one relation", &all.data, &each.data, 1e-12);
    let [all, each] = both("[writes, cites]");
    assert!((all.at(1, 0) - each.at(1, 0)).abs() > 1e-6, "paper 1, two relations");
}

const TOML: &str = r#"
name = "library"
[[vertex_type]]
name = "paper"
count = 4
[[vertex_type]]
name = "author"
count = 3
[[relation]]
name = "author-paper"
src = "author"
dst = "paper"
file = "writes.npy"
"#;

fn load<T: npy::Element>(ids: &[T]) -> Result<Dataset, String> {
    let folder = tempfile::tempdir().expect("a folder for a test");
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("dataset.toml"), TOML).expect("written");
    npy::write(Path::new(&file("writes.npy")), &[2, ids.len() / 2], ids).expect("written");
    Dataset::load(folder.path()).map_err(|errors| errors.to_string())
}

/// Case 18: ids of 32 and of 64 bits mean the same.
#[test]
fn field_case_18_widths_of_ids() {
    let relation = |d: Dataset| (d.relations[0].src_ids.clone(), d.relations[0].dst_ids.clone());
    let narrow = relation(load(&[0i32, 1, 2, 3, 0, 1]).expect("valid"));
    let wide = relation(load(&[0i64, 1, 2, 3, 0, 1]).expect("valid"));
    assert_eq!((narrow.clone(), narrow.0), (wide, vec![0, 1, 2]));
}

/// Case 19: an id out of range is refused when it is loaded, with relation, row, value and bound; so it is wherever
/// edges come in another way.
#[test]
fn field_case_19_ids_are_checked() {
    for text in [
        load(&[0i64, 1, 3, 3, 0, 1]).expect_err("author 3 of 3"),
        load(&[0i64, 1, -1, 3, 0, 1]).expect_err("author -1"),
    ] {
        assert!(text.contains("author-paper"), "{text}");
        assert!(text.contains("0 to 2"), "{text}");
        assert!(text.contains('3') || text.contains("-1"), "{text}");
    }
    // No 64-bit id is cut to 32 bits.
    let text = load(&[0i64, 1, 1 << 32, 3, 0, 1]).expect_err("author 2^32");
    assert!(text.contains("4294967296"), "{text}");

    let compiled = compile(&case("rgcn").source());
    let mut bindings = compiled.bind(&World::library());
    bindings.edges[0].push((0, 7));
    assert!(hgnnc_interp::run(&compiled.infer, &bindings).is_err());
    let error = hgnnc_data::Topology::from_edges("cites", 7, 7, &[(7, 0)]).expect_err("paper 7 of 7");
    assert!(error.to_string().contains("cites"), "{error}");
}

/// Case 20: names that are no identifiers, in backquotes in the model and as they are in the dataset, through
/// parameters, text and binding.
#[test]
fn field_case_20_names_of_any_kind() {
    let compiled = compile(
        "use std::rgcn::RgcnConv
        schema S {
            vertex `node type` from \"http://x.org/#node-type\" { x: f32[2], `the class`: class[3] from \"y\" }
            relation `<= of-type` : `node type` -> `node type` from \"of <- type\"
        }
        model M(schema: S) {
            output y: `node type` = RgcnConv(hidden: 3) over [relations, reverses] of `node type`.x
        }
        train M { loss cross_entropy(y, `node type`.`the class`) epochs 2 }",
    );
    let names: Vec<&str> = compiled.infer.params.iter().map(|p| p.name.as_str()).collect();
    assert!(names.contains(&"y.w.<= of-type"), "{names:?}");
    let world = World::new(3, &[("node type", 3)], &[("<= of-type", &[(0, 1), (2, 1)])]);
    trains_without_nan("odd names", &compiled, &world);
    for flow in [&compiled.infer, compiled.training()] {
        let text = print(flow);
        let read = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(print(&read), text);
    }
    let bindings = compiled.bind(&world);
    let executable = compiled.optimised(&world);
    let data = dataset::dataset(&executable.infer, &bindings, &world);
    assert_eq!(data.relations[0].name, "of <- type");
    hgnnc_data::bind(&executable, &data, &Default::default()).expect("found by their names in the dataset");

    // Saved and loaded by name.
    let folder = tempfile::tempdir().expect("a folder for a test");
    let path = folder.path().join("weights.safetensors");
    let new = || {
        let data = bound_data(compiled.training(), &bindings);
        hgnnc_model_tests::engine::trainer(executable.clone(), data, TrainOptions { threads: 1, ..Default::default() })
            .expect("fits")
    };
    let mut first = new();
    first.run(&AtomicBool::new(false), &mut |_| {}).expect("trains");
    first.save_weights(&path).expect("saved");
    let mut second = new();
    second.load_weights(&path).expect("loaded");
    assert_eq!(second.infer(None).expect("y").data, first.infer(None).expect("y").data);
}

/// Case 21: unequal widths are reported with the type, the layer and both widths, not as `mat1` and `mat2`.
#[test]
fn field_case_21_message_about_widths() {
    let text = report(&library_model(
        "",
        "param w: [5, 3] = glorot
         output y: Paper = Paper.x @ w
         output z: Author = Author.x @ w",
    ));
    assert!(text.contains("error[E0301]"), "{text}");
    assert!(text.contains("Author.x @ w") && text.contains('3') && text.contains('5'), "{text}");
    assert!(text.contains("vertex Author { x: f32[3] }"), "the declaration of the other width is shown: {text}");

    let shared = report(&library_model(
        "use std::rgcn::RgcnBasisConv",
        "let h = RgcnBasisConv(hidden: 3, bases: 2) over relations of features
         output y: Paper = h.Paper",
    ));
    assert!(shared.contains("error[E0321]") && shared.contains("RgcnBasisConv"), "{shared}");
}

/// Case 22: messages go from the source of a relation to its destination, and `reverse` turns them.
#[test]
fn field_case_22_direction() {
    let sums = |graph: &str, ends: &str, of: &str| {
        let source = format!(
            "{SCHEMA}
            layer Sum() over graphs: [*] of x: *[in] -> *[2] {{
                project v: * {{ param w: [in, 2] = ones  h = v.x @ w }}
                aggregate e: g in graphs {{ z = sum(e.src.h) over in_edges }}
                fuse v: * across graphs {{ out = sum(v.z) across graphs }}
            }}
            model M(schema: Library) {{
                let h = Sum() over {graph} of {ends}
                output y: {of} = h.{of}
            }}"
        );
        let compiled = compile(&source);
        let world = World::library();
        let mut bindings = compiled.bind(&world);
        // Every vertex says 1 in its first feature: the output counts messages.
        for (index, decl) in compiled.infer.inputs.iter().enumerate() {
            let tensor = &bindings.inputs[&Input::new(index)];
            let ones = Tensor::from_fn(tensor.rows, tensor.width, |_, column| f64::from(column == 0));
            assert!(decl.name.ends_with(".x"));
            bindings.inputs.insert(Input::new(index), ones);
        }
        for tensor in bindings.params.values_mut() {
            tensor.data.fill(1.0);
        }
        let found = compiled.output_of(&bindings, "y");
        (0..found.rows).map(|row| found.at(row, 0)).collect::<Vec<f64>>()
    };
    let all = "{Paper.x, Author.x}";
    // writes: Author -> Paper is (0,0) (0,1) (1,1) (2,1) (2,1) (1,4) (0,5); a duplicate edge counts twice.
    assert_eq!(sums("[writes]", all, "Paper"), [1.0, 4.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    assert_eq!(sums("[reverse(writes)]", all, "Author"), [3.0, 2.0, 2.0, 0.0]);
    // If source and destination have one type, nothing but the direction distinguishes them.
    assert_eq!(sums("[cites]", "Paper.x", "Paper"), [1.0, 3.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    assert_eq!(sums("[reverse(cites)]", "Paper.x", "Paper"), [2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
}

/// Case 22, metapaths: messages go from the type where the path starts to the type where it ends, in the language and
/// in the runtime's semantic graph build alike.
#[test]
fn field_case_22_direction_of_metapaths() {
    let source = SCHEMA.replace(
        "metapath PAP",
        "metapath APV = Author -writes-> Paper -appears_in-> Venue
    metapath PAP",
    ) + "
        layer Sum(hidden: dim) over graphs: [U -> V] of x: U[in] -> V[hidden] {
            aggregate e: g in graphs { z = sum(e.src.x) over in_edges }
            fuse v: V across graphs { out = sum(v.z) across graphs }
        }
        model M(schema: Library) {
            output venues: Venue = Sum(hidden: 3) over APV of Author.x
            output authors: Author = Sum(hidden: 4) over reverse(APV) of Venue.x
        }";
    let compiled = compile(&source);
    let world = World::library();
    let p = Plain::of(&compiled, &world);
    // Papers 0, 1 and 5 are in venue 0, written by authors 0, 1 and 2; papers 2 and 3, of venue 1, have no author.
    let total =
        |rows: &[Vec<f64>]| -> Vec<f64> { (0..rows[0].len()).map(|d| rows.iter().map(|r| r[d]).sum()).collect() };
    let (authors, venues) = (p.input("Author.x"), p.input("Venue.x"));
    let found = compiled.output(&world, "venues");
    assert_close("venue 0", found.row(0), &total(&authors[..3]), 1e-12);
    assert_eq!((found.row(1), found.row(2)), (&[0.0; 3][..], &[0.0; 3][..]));
    let found = compiled.output(&world, "authors");
    for author in 0..3 {
        assert_eq!(found.row(author), venues[0]);
    }
    assert_eq!(found.row(3), [0.0; 4]);

    let bindings = compiled.bind(&world);
    let executable = compiled.optimised(&world);
    let data = dataset::dataset(&executable.infer, &bindings, &world);
    let bound = hgnnc_data::bind(&executable, &data, &Default::default()).expect("the dataset fits");
    assert_eq!(bound.graphs, bound_data(&executable.infer, &bindings).graphs);
}

/// Case 27: programs printed and read again compute the same, bit by bit.
#[test]
fn field_case_27_programs_survive_text() {
    let world = World::library();
    for case in CASES {
        let compiled = compile(&case.source());
        let bindings = compiled.bind(&world);
        let optimised = compiled.optimised(&world);
        for flow in [&compiled.infer, compiled.training(), &optimised.infer, optimised.train.as_ref().expect("trained")]
        {
            let text = print(flow);
            let read = parse(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", case.name));
            assert_eq!(print(&read), text, "{}", case.name);
            let (before, after) = (interpret(flow, &bindings), interpret(&read, &bindings));
            for (a, b) in flow.outputs.iter().zip(&read.outputs) {
                assert_eq!(a.kind, b.kind, "{}", case.name);
                assert_eq!(before[a.value], after[b.value], "{}: {:?}", case.name, a.kind);
            }
            assert_eq!(run(flow, &bindings, 1), run(&read, &bindings, 1), "{}", case.name);
        }
    }
}

/// Case 29: duplicate edges count, each by itself, in a relation (twice in a sum, twice in a mean's divisor); the
/// pairs of a metapath are distinct; a counted metapath tells the number of instances.
#[test]
fn field_case_29_duplicate_edges() {
    let source = "
        schema S {
            vertex A { x: f32[1] }
            vertex B { x: f32[1] }
            relation r: A -> B
            metapath ABA = A -r-> B <-r- A
            metapath COUNTED = counted A -r-> B <-r- A
        }
        layer Sum() over graphs: [*] of x: *[in] -> *[1] {
            aggregate e: g in graphs { z = sum(e.src.x) over in_edges }
            fuse v: * across graphs { out = sum(v.z) across graphs }
        }
        layer Mean() over graphs: [*] of x: *[in] -> *[1] {
            aggregate e: g in graphs { z = mean(e.src.x) over in_edges }
            fuse v: * across graphs { out = sum(v.z) across graphs }
        }
        layer Counted() over graphs: [*] of x: *[in] -> *[1] {
            aggregate e: g in graphs { z = sum(e.src.x * e.count) over in_edges }
            fuse v: * across graphs { out = sum(v.z) across graphs }
        }
        model M(schema: S) {
            let sum = Sum() over [r] of {A.x, B.x}
            output sums: B = sum.B
            let mean = Mean() over [r] of {A.x, B.x}
            output means: B = mean.B
            output pairs: A = Sum() over [ABA] of A.x
            output instances: A = Counted() over [COUNTED] of A.x
        }";
    let compiled = compile(source);
    // 0 -> 0 twice, 1 -> 0 once.
    let world = World::new(0, &[("A", 2), ("B", 1)], &[("r", &[(0, 0), (1, 0), (0, 0)])]);
    let mut bindings = compiled.bind(&world);
    let x = compiled.infer.inputs.iter().position(|i| i.name == "A.x").expect("read");
    bindings.inputs.insert(Input::new(x), Tensor::new(2, 1, vec![10.0, 1.0]));
    let output = |name: &str| compiled.output_of(&bindings, name).data;
    assert_eq!(output("sums"), [21.0]);
    assert_eq!(output("means"), [7.0]);
    assert_eq!(output("pairs"), [11.0, 11.0]);
    // Instances from 0: 4 to itself, 2 to 1; from 1: 2 and 1.
    assert_eq!(output("instances"), [42.0, 21.0]);
}

/// Case 31: a metapath whose relations do not join is reported with both of them.
#[test]
fn field_case_31_metapath_that_does_not_join() {
    let text = report(&SCHEMA.replace(
        "metapath PAP = Paper <-writes- Author -writes-> Paper",
        "metapath PAP = Paper <-writes- Author -appears_in-> Venue",
    ));
    assert!(text.contains("error[E0401]"), "{text}");
    assert!(text.contains("does not join at `appears_in`"), "{text}");
    assert!(text.contains("`writes` arrives at `Author`") && text.contains("`Paper` to `Venue`"), "{text}");
}

/// Case 33: what a vertex gets depends on its neighbourhood alone: on the part of the graph that two layers reach,
/// its output is that on the whole graph. Sampling all neighbours is then the same as full batch.
#[test]
fn field_case_33_neighbourhood_is_enough() {
    let world = World::random_library(2024);
    for name in ["rgcn", "rgcn_sparse", "sage_mean", "hgt", "hgt_per_relation", "simple_hgn"] {
        let compiled = compile(&case(name).source());
        let whole = compiled.output(&world, "y");
        for seed in 0..world.count("Paper") {
            // Edges that do not end, or begin, within one hop of the seed are further away than two layers reach.
            let near = |vertex: &str| -> Vec<bool> {
                let mut near = vec![false; world.count(vertex)];
                if vertex == "Paper" {
                    near[seed] = true;
                }
                for (relation, src, dst) in [
                    ("cites", "Paper", "Paper"),
                    ("writes", "Author", "Paper"),
                    ("reviews", "Author", "Paper"),
                    ("appears_in", "Paper", "Venue"),
                ] {
                    for &(s, d) in world.relation(relation) {
                        if src == "Paper" && s as usize == seed && dst == vertex {
                            near[d as usize] = true;
                        }
                        if dst == "Paper" && d as usize == seed && src == vertex {
                            near[s as usize] = true;
                        }
                    }
                }
                near
            };
            let near = [("Paper", near("Paper")), ("Author", near("Author")), ("Venue", near("Venue"))];
            let is_near = |vertex: &str, v: u32| near.iter().any(|(n, near)| *n == vertex && near[v as usize]);
            let mut part = world.clone();
            for (relation, src, dst) in [
                ("cites", "Paper", "Paper"),
                ("writes", "Author", "Paper"),
                ("reviews", "Author", "Paper"),
                ("appears_in", "Paper", "Venue"),
            ] {
                let kept: Vec<(u32, u32)> = world
                    .relation(relation)
                    .iter()
                    .copied()
                    .filter(|&(s, d)| is_near(src, s) || is_near(dst, d))
                    .collect();
                part = part.with_edges(relation, &kept);
            }
            let found = compiled.output(&part, "y");
            assert_close(&format!("{name}, paper {seed}"), found.row(seed), whole.row(seed), 1e-12);
        }
    }
}

/// Beside the cases: evaluation has no dropout, training has, and both read the same parameters.
#[test]
fn evaluation_keeps_everything() {
    let world = World::library();
    for case in cases::CASES {
        let compiled = compile(&case.source());
        let masks = |flow: &Dataflow| flow.values.iter().filter(|v| matches!(v.op, Op::RandomMask { .. })).count();
        let optimised = compiled.optimised(&world);
        assert!(masks(optimised.train.as_ref().expect("trained")) > 0, "{}", case.name);
        assert_eq!(masks(&optimised.infer), 0, "{}", case.name);
    }
    // Rows of the last Simple-HGN layer have length 1.
    let compiled = compile(&library_model(
        "use std::simple_hgn::SimpleHgnConv",
        "let first = SimpleHgnConv(hidden: 3, heads: 1) over relations of features
         let second = SimpleHgnConv(hidden: 3, heads: 1, normalize: true) over relations
            of (first.out, prev: stop_gradient(first.alpha))
         output y: Paper = second.out.Paper",
    ));
    let found = compiled.output(&world, "y");
    for row in 0..found.rows {
        assert!((dot(found.row(row), found.row(row)) - 1.0).abs() < 1e-12);
    }
}
