//! Edges to predict: outputs with a row for each edge of a relation, against plain loops, on all engines, on batches.

use hgnnc_driver::LowerOptions;
use hgnnc_ir::training::{Fanout, MiniBatch};
use hgnnc_model_tests::compiled::{Compiled, compile, interpret};
use hgnnc_model_tests::engine::bound_data;
use hgnnc_model_tests::plain::{Plain, Rows, add, relu, times};
use hgnnc_model_tests::{World, assert_close, dataset, engine};
use hgnnc_train::{TrainOptions, Trainer};

use crate::devices::{on_device, on_processor, options, run};
use crate::differential::{engine_agrees, kernels_agree};
use crate::gradients::gradients_are_differences;

/// Users rate movies and trust each other. A layer makes three numbers of each rating, of its two ends, its weight and
/// its own features.
const LAYERS: &str = r#"
use std::link::{Dot, EdgeMlp}
use std::rgcn::RgcnConv
schema S {
    vertex User { x: f32[3] }
    vertex Movie { x: f32[4] }
    relation rates: User -> Movie { hours: f32, kind: f32[2], mood: class[3] from "mood", stars: target[2] from "stars", tags: multilabel[2] from "tags", late: target[1] from "late" }
    relation trusts: User -> User
}
layer Score(out: dim) over graphs: [*] of x: *[in] -> y: graphs[out] {
    aggregate e: g in graphs {
        param w: [in, 4]
        param u: [width(e.dst.x), 4]
        param k: [2, 4]
        param t: [4]
        param v: [4, out]
        y = relu(e.src.x @ w + e.dst.x @ u + e.kind @ k + e.hours * t) @ v
    }
}
"#;

const Y: &str = "
    let h = tanh(RgcnConv(hidden: 4) over [relations, reverses] of features)
    output y: edges(rates) = Score(out: 3) over edges(rates) of h
";

const Z: &str = "
    output z: edges(rates) = EdgeMlp(hidden: 3, out: 2) over edges(rates) of features
";

/// A number for each edge, which is a target of one.
const D: &str = "
    let h = tanh(RgcnConv(hidden: 4) over [relations, reverses] of features)
    output d: edges(rates) = Dot() over edges(rates) of h
";

const TRAIN: &str = "
train M {
    loss cross_entropy(y, rates.mood, class_weights: [1, 2, 0.5])
    optimizer sgd(lr: 0.1, momentum: 0.9)
    epochs 4
    select train.loss
}
";

fn of_outputs(outputs: &[&str], train: &str) -> String {
    format!("{LAYERS}\nmodel M(schema: S) {{ {} }}\n{train}", outputs.concat())
}

fn model() -> String {
    of_outputs(&[Y, Z], TRAIN)
}

/// Two ratings of one movie by one user, a movie without ratings, a user without any edge, edges in no order.
pub fn world() -> World {
    let rates = [(2, 1), (0, 0), (0, 1), (2, 1), (1, 3), (0, 3), (3, 0)];
    World::new(3, &[("User", 5), ("Movie", 4)], &[("rates", &rates), ("trusts", &[(0, 1), (1, 1), (3, 0)])])
}

fn worlds() -> [World; 2] {
    let none = World::new(4, &[("User", 2), ("Movie", 3)], &[("rates", &[(1, 2)]), ("trusts", &[])]);
    [world(), none]
}

/// Row `i` of an output is of the `i`-th edge of the file, whatever the order of the edges.
#[test]
fn rows_are_the_edges_of_the_file() {
    let source = "
        schema S {
            vertex User { x: f32[3] }
            vertex Movie { x: f32[3] }
            relation rates: User -> Movie { hours: f32, kind: f32[2] }
        }
        layer Score() over graphs: [*] of x: *[in] -> y: graphs[in] {
            aggregate e: g in graphs {
                param k: [2, in]
                y = e.hours * (e.src.x - 2 * e.dst.x) + e.kind @ k
            }
        }
        model M(schema: S) { output y: edges(rates) = Score() over edges(rates) of features }";
    let compiled = compile(source);
    let world = world();
    let p = Plain::of(&compiled, &world);
    let (users, movies) = (p.input("User.x"), p.input("Movie.x"));
    let (hours, kind) = (p.input("edges_rates.hours"), p.input("edges_rates.kind"));
    let row = |(e, &(src, dst)): (usize, &(usize, usize))| {
        let ends = add(&users[src], &times(-2.0, &movies[dst]));
        add(&times(hours[e][0], &ends), &p.param("y.k.edges_rates").apply(&kind[e]))
    };
    let edges = p.edges("rates");
    let expected: Rows = edges.iter().enumerate().map(row).collect();
    let found = compiled.output(&world, "y");
    assert_eq!(found.rows, edges.len());
    assert_close("rows of edges", &found.data, &expected.concat(), 1e-10);
}

/// The perceptron of the standard library.
#[test]
fn edge_mlp_is_its_equation() {
    let compiled = compile(&model());
    for world in worlds() {
        let p = Plain::of(&compiled, &world);
        let (users, movies) = (p.input("User.x"), p.input("Movie.x"));
        let [w, u, v] = ["w", "u", "v"].map(|name| p.param(&format!("z.{name}.edges_rates")));
        let row = |&(src, dst): &(usize, usize)| {
            let sum = add(&add(&w.apply(&users[src]), &u.apply(&movies[dst])), p.vector("z.b.edges_rates"));
            let hidden: Vec<f64> = sum.into_iter().map(relu).collect();
            add(&v.apply(&hidden), p.vector("z.c.edges_rates"))
        };
        let expected: Rows = p.edges("rates").iter().map(row).collect();
        assert_close("EdgeMlp", &compiled.output(&world, "z").data, &expected.concat(), 1e-10);
    }
}

/// Gradients by differences; kernels and engine against the interpreter; the PTX interpreter against the processor.
#[test]
fn losses_of_edges_have_their_gradients_on_all_engines() {
    let losses = [
        (Y, "cross_entropy(y, rates.mood, class_weights: [1, 2, 0.5])"),
        (Z, "binary_cross_entropy(z, rates.tags)"),
        (Z, "mae(z, rates.stars) + 0.5 * mse(z, rates.stars)"),
        (D, "mse(d, rates.late)"),
    ];
    for (output, loss) in losses {
        let train = format!("train M {{ loss {loss} select train.loss epochs 3 }}");
        let compiled = compile(&of_outputs(&[output], &train));
        for world in worlds() {
            let bindings = compiled.bind(&world);
            gradients_are_differences(loss, &compiled.model.flow, &bindings);
            let optimised = compiled.optimised(&world);
            let train = optimised.train.as_ref().expect("a train block");
            for (program, oracle) in [(&optimised.infer, &compiled.infer), (train, compiled.training())] {
                engine_agrees(loss, program, oracle, &bindings);
                kernels_agree(loss, program, &bindings);
            }
        }
    }
    let compiled = compile(&model());
    let expected = run(&mut on_processor(&compiled, &world(), options(3)));
    let found = run(&mut on_device(&compiled, &world(), options(3)));
    assert_close("losses on a device", &found.losses, &expected.losses, 2e-4);
}

/// A number and a row of one number are compared alike.
#[test]
fn a_number_for_each_edge_is_a_target_of_one() {
    let train = "train M { loss mae(d, rates.late) select train.loss }";
    let as_row = D.replace("Dot() over edges(rates) of h", "reshape(Dot() over edges(rates) of h, [1])");
    for world in worlds() {
        let [number, row] = [D, as_row.as_str()].map(|output| {
            let compiled = compile(&of_outputs(&[output], train));
            let flow = compiled.training();
            interpret(flow, &compiled.bind(&world))[flow.result("loss").expect("a loss")].data.clone()
        });
        assert_eq!(number, row);
        assert!(number[0].is_finite() && number[0] > 0.0);
    }
}

fn trainer(compiled: &Compiled, world: &World) -> Trainer {
    let data = bound_data(compiled.training(), &compiled.bind(world));
    let executable = compiled.lowered(world, LowerOptions::default());
    let options = TrainOptions { threads: 2, ..Default::default() };
    engine::trainer(executable, data, options).unwrap_or_else(|error| panic!("{error}"))
}

/// Batches whose seeds are edges: with all edges in one, and all in-edges of their ends, training is that of the whole graph.
#[test]
fn one_batch_of_all_edges_is_full_batch_training() {
    let batches = |size: usize, fanout: Fanout| {
        let mut compiled = compile(&model());
        let graphs = compiled.model.flow.graphs.len();
        let training = &mut compiled.model.train.as_mut().expect("a train block").training;
        training.batch = Some(MiniBatch { size, all_of: None, fanouts: vec![vec![fanout; graphs]; 3], reuse: None });
        compiled
    };
    for world in worlds() {
        let mut whole = trainer(&compile(&model()), &world);
        let expected = run(&mut whole).losses;
        let mut batched = trainer(&batches(100, Fanout::All), &world);
        assert_close("losses", &run(&mut batched).losses, &expected, 1e-4);
        let outputs = |trainer: &mut Trainer| -> Vec<f64> {
            trainer.infer(Some("y")).expect("y").data.iter().map(|&x| f64::from(x)).collect()
        };
        assert_close("outputs", &outputs(&mut batched), &outputs(&mut whole), 1e-3);
        // Small batches with sampled neighbours train as well.
        let few = run(&mut trainer(&batches(2, Fanout::AtMost(1)), &world)).losses;
        assert!(few.iter().all(|loss| loss.is_finite()), "{few:?}");
    }
}

/// A dataset with labels, a split and data of edges gives the programs what the world has.
#[test]
fn binding_labels_of_edges_gives_the_same_data() {
    let compiled = compile(&of_outputs(&[Y, Z], &TRAIN.replace("0.5])", "0.5]) + mse(z, rates.stars)")));
    for world in worlds() {
        let bindings = compiled.bind(&world);
        let executable = compiled.optimised(&world);
        let expected = engine::bound_data(&executable.infer, &bindings);
        let mut dataset = dataset::dataset(&executable.infer, &bindings, &world);
        let listed = hgnnc_data::add_path_instances(&executable.infer, &mut dataset, &Default::default());
        assert_eq!(listed.expect("edges of the dataset"), vec![]);
        let found = hgnnc_data::bind(&executable, &dataset, &Default::default()).expect("it has all of it");
        for (found, expected) in found.graphs.iter().zip(&expected.graphs) {
            assert_eq!((&found.name, &found.csc), (&expected.name, &expected.csc));
        }
        assert_eq!(found.inputs, expected.inputs[..found.inputs.len()]);
        assert_eq!(found.truths.len(), 2);
        for (found, expected) in found.truths.iter().zip(&expected.truths) {
            assert_eq!((found.vertex, &found.labels), (expected.vertex, &expected.labels));
            assert_eq!(found.parts[0], expected.parts[0]);
        }
    }
}
