//! Families of relations as stacks: the same outputs, losses and gradients as with an operation for each relation, and
//! a program whose size does not depend on their number.

use std::fmt::Write as _;

use hgnnc_driver::{Analyzed, Disabled, analyze, prepare};
use hgnnc_interp::{Bindings, Tensor};
use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::random::{mask_key, uniform};
use hgnnc_ir::{Dataflow, Input, Param};
use hgnnc_kernel_ir::kernel;
use hgnnc_passes::{differentiate, update};

/// Relations of the test schema: `r0` to `r9` from papers to papers, and some between others.
const RELATIONS: usize = 10;

/// A layer over all relations, and how its parts are to be stacked.
struct Layer {
    name: &'static str,
    body: &'static str,
    features: &'static str,
    stacked: bool,
}

const LAYERS: &[Layer] = &[
    Layer {
        name: "a weight for each relation",
        body: "aggregate e: g in graphs { param w: [in, hidden] = glorot
            z = mean(e.src.x @ w) over in_edges }
            fuse v: * across graphs { out = sum(v.z) across graphs }",
        features: "x: f32[5]",
        stacked: true,
    },
    Layer {
        name: "tables of one-hot features",
        body: "aggregate e: g in graphs { param w: [in, hidden] = glorot
            z = mean(e.src.x @ w) over in_edges }
            fuse v: * across graphs { out = sum(v.z) across graphs }",
        features: "x: onehot",
        stacked: true,
    },
    Layer {
        name: "bases",
        body: "aggregate e: g in graphs { param w: [in, hidden] basis(3) = glorot
            z = sum(e.src.x @ w) over in_edges }
            fuse v: * across graphs { out = mean(v.z) across graphs }",
        features: "x: f32[5]",
        stacked: true,
    },
    Layer {
        name: "bases of tables of one-hot features",
        body: "aggregate e: g in graphs { param w: [in, hidden] basis(3) = glorot
            z = mean(e.src.x @ w) over in_edges }
            fuse v: * across graphs { out = sum(v.z) across graphs }",
        features: "x: onehot",
        stacked: true,
    },
    Layer {
        name: "blocks",
        body: "aggregate e: g in graphs { param w: [in, hidden] blocks(2) = glorot
            z = sum(e.src.x @ w) over in_edges }
            fuse v: * across graphs { out = sum(v.z) across graphs }",
        features: "x: f32[6]",
        stacked: true,
    },
    Layer {
        name: "a vector for each relation, one weight",
        body: "aggregate e: g in graphs { param r: [in] = normal(0.5)
            param w: [in, hidden] shared
            m = mean((e.src.x * r) @ w) over in_edges across graphs }
            fuse v: * across graphs { out = v.m }",
        features: "x: f32[5]",
        stacked: true,
    },
    Layer {
        name: "attention within each relation",
        body: "project v: * { param p: [in, hidden] shared
            h = v.x @ p }
            aggregate e: g in graphs { param a: [hidden] = glorot
            param b: [hidden] = glorot
            let alpha = softmax(leaky_relu(dot(e.src.h, a) + dot(e.dst.h, b), 0.2)) over in_edges
            z = sum(alpha * e.src.h) over in_edges }
            fuse v: * across graphs { out = sum(v.z) across graphs }",
        features: "x: f32[5]",
        stacked: true,
    },
    Layer {
        name: "attention across relations",
        body: "project v: * { param p: [in, hidden] shared
            h = v.x @ p }
            aggregate e: g in graphs { param a: [hidden] = glorot
            param b: [hidden] = glorot
            let alpha = softmax(leaky_relu(dot(e.src.h, a) + dot(e.dst.h, b), 0.2)) over in_edges across graphs
            z = sum(alpha * e.src.h) over in_edges }
            fuse v: * across graphs { out = v.h + sum(v.z) across graphs }",
        features: "x: f32[5]",
        stacked: true,
    },
    Layer {
        name: "the largest message of all relations",
        body: "aggregate e: g in graphs { param w: [in, hidden] = glorot
            m = max(e.src.x @ w) over in_edges across graphs }
            fuse v: * across graphs { out = v.m }",
        features: "x: f32[5]",
        stacked: true,
    },
    Layer {
        name: "gates with edge weights",
        body: "aggregate e: g in graphs { param w: [in, hidden] = glorot
            param c: [hidden] = glorot
            let h = e.src.x @ w
            z = sum(sigmoid(h * c) * h) over in_edges }
            fuse v: * across graphs { out = relu(sum(v.z) across graphs) }",
        features: "x: f32[5]",
        stacked: true,
    },
    Layer {
        name: "a bias where there are no edges",
        body: "aggregate e: g in graphs { param w: [in, hidden] = glorot
            param c: [hidden] = glorot
            z = sum(e.src.x @ w) over in_edges + c }
            fuse v: * across graphs { out = sum(v.z) across graphs }",
        features: "x: f32[5]",
        stacked: false,
    },
    Layer {
        name: "attention over relations",
        body: "aggregate e: g in graphs { param w: [in, hidden] = glorot
            z = tanh(sum(e.src.x @ w) over in_edges) }
            fuse v: * across graphs { param q: [hidden] = glorot
            let beta = softmax(dot(v.z, q)) across graphs
            out = sum(beta * v.z) across graphs }",
        features: "x: f32[5]",
        stacked: false,
    },
];

fn source(layer: &Layer) -> String {
    let mut text = format!(
        "layer Test(hidden: dim) over graphs: [*] of x: *[in] -> *[hidden] {{ {} }}\n\
         schema S {{\n vertex Paper {{ {}, topic: class[3] }}\n",
        layer.body, layer.features
    );
    for relation in 0..RELATIONS {
        let _ = writeln!(text, " relation r{relation}: Paper -> Paper");
    }
    text.push_str(
        "}\nmodel M(schema: S) {\n let h = Test(hidden: 4) over [relations] of features\n \
         output y: Paper = linear(tanh(h), 3)\n}\n\
         train M { loss cross_entropy(y, Paper.topic)\n optimizer sgd(lr: 0.1)\n epochs 1\n select train.loss }\n",
    );
    text
}

fn model(layer: &Layer) -> Analyzed {
    let analysis = analyze("model.hgnn", &source(layer));
    let report = hgnnc_diag::render::plain(&analysis.sources, analysis.diagnostics.iter());
    analysis.model.unwrap_or_else(|| panic!("{report}"))
}

/// Random data for a model: `papers` vertices; every third relation has no edges.
fn bind(flow: &Dataflow, seed: u64) -> Bindings {
    let (key, mut drawn) = (mask_key(seed, 0, 3), 0);
    let mut draw = || {
        drawn += 1;
        uniform(key, drawn)
    };
    let papers = 2 + (draw() * 9.0) as usize;
    let mut bindings = Bindings { num_vertices: vec![papers], seed: 5, step: 1, ..Bindings::default() };
    for relation in 0..RELATIONS {
        let count = if relation % 3 == 2 { 0 } else { (draw() * 12.0) as usize };
        let mut edges: Vec<(u32, u32)> =
            (0..count).map(|_| ((draw() * papers as f64) as u32, (draw() * papers as f64) as u32)).collect();
        edges.sort_by_key(|&(src, dst)| (dst, src));
        bindings.edges.push(edges);
    }
    for (index, decl) in flow.inputs.iter().enumerate() {
        let (rows, width) = (bindings.rows(decl.ty.space), bindings.width(&decl.ty.dims));
        let tensor = match decl.binding {
            Binding::Label(..) => Tensor::from_fn(rows, width, |row, _| (row % 3) as f64),
            Binding::TrainMask(_) => Tensor::filled(rows, width, 1.0),
            _ => Tensor::from_fn(rows, width, |_, _| draw() * 2.0 - 1.0),
        };
        bindings.inputs.insert(Input::new(index), tensor);
    }
    for (index, decl) in flow.params.iter().enumerate().filter(|(_, decl)| decl.entries.is_empty()) {
        let len = bindings.width(&decl.dims);
        bindings.params.insert(Param::new(index), Tensor::from_fn(1, len, |_, _| draw() * 1.4 - 0.7));
    }
    bindings
}

/// The training step of a model: forward, backward and update.
fn step(model: &Analyzed) -> Dataflow {
    let mut flow = model.flow.clone();
    let loss = flow.result("loss").expect("the model is trained");
    let params: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
    let gradients = differentiate(&mut flow, loss, &params);
    update(&mut flow, &gradients, &model.train.as_ref().expect("the model is trained").optimizer);
    flow
}

fn close(what: &str, found: &Tensor, expected: &Tensor) {
    assert_eq!((found.rows, found.width), (expected.rows, expected.width), "{what}");
    for (i, (a, b)) in found.data.iter().zip(&expected.data).enumerate() {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{what}[{i}]: {a} instead of {b}");
    }
}

#[test]
fn stacked_relations_mean_the_same() {
    for layer in LAYERS {
        let apart = model(layer);
        let mut stacked = model(layer);
        prepare(&mut stacked, &Disabled::default()).expect("nothing is disabled");
        let name = layer.name;
        assert_eq!(!stacked.flow.stacks.is_empty(), layer.stacked, "{name}: {:?}", stacked.explanations);
        let (one, other) = (step(&apart), step(&stacked));
        for flow in [&stacked.flow, &other] {
            hgnnc_ir::verify(flow).unwrap_or_else(|broken| panic!("{name}: {broken:?}\n{flow}"));
            let text = hgnnc_ir::print(flow);
            let parsed = hgnnc_ir::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
            assert!(parsed == hgnnc_ir::print::without_origins(flow), "{name}: the text is not read back:\n{text}");
        }
        let program = hgnnc_fusion::lower(&other).unwrap_or_else(|error| panic!("{name}: {error}"));
        kernel::verify(&program).unwrap_or_else(|broken| panic!("{name}: {broken:?}\n{}", kernel::print(&program)));
        for seed in 0..12 {
            let bindings = bind(&apart.flow, seed);
            let (a, b) = (
                hgnnc_interp::run(&one, &bindings).expect("bound"),
                hgnnc_interp::run(&other, &bindings).expect("bound"),
            );
            for result in ["loss", "y"] {
                let of = |flow: &Dataflow| flow.result(result).expect("a result");
                close(&format!("{name}, seed {seed}: {result}"), &b[of(&other)], &a[of(&one)]);
            }
            let (mut before, mut after) = (bindings.clone(), bindings.clone());
            before.apply_updates(&one, &a);
            after.apply_updates(&other, &b);
            for (param, expected) in &before.params {
                let what = format!("{name}, seed {seed}: new {}", apart.flow.params[param.index()].name);
                close(&what, &after.params[param], expected);
            }
            let run = hgnnc_interp::kernels::run(&program, &bindings).expect("bound");
            for output in &other.outputs {
                let found = run.output(&output.kind).expect("an output of both");
                close(&format!("{name}, seed {seed}: {:?} of kernels", output.kind), found, &b[output.value]);
            }
        }
    }
}

#[test]
fn the_size_of_a_stacked_program_does_not_depend_on_the_number_of_relations() {
    let layer = &LAYERS[0];
    let size = |relations: usize| {
        let text = source(layer);
        let more: String = (RELATIONS..relations).fold(String::new(), |mut more, relation| {
            let _ = writeln!(more, " relation r{relation}: Paper -> Paper");
            more
        });
        let text = text.replacen("}\nmodel", &format!("{more}}}\nmodel"), 1);
        let mut model = analyze("model.hgnn", &text).model.expect("the model is right");
        prepare(&mut model, &Disabled::default()).expect("nothing is disabled");
        hgnnc_fusion::lower(&step(&model)).expect("all operations have kernels").kernels().count()
    };
    assert_eq!(size(10), size(300));
}
