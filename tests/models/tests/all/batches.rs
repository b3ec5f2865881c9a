//! Mini-batch training: with all in-edges and all seeds in one batch it equals full-batch training.

use std::sync::atomic::AtomicBool;

use hgnnc_driver::LowerOptions;
use hgnnc_interp::Bindings;
use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::training::{Fanout, MiniBatch};
use hgnnc_ir::{Input, Op, OutputKind, Space};
use hgnnc_model_tests::cases::{Case, FIELDS_SCHEMA, SCHEMA, SPARSE_SCHEMA, TRAIN};
use hgnnc_model_tests::compiled::Compiled;
use hgnnc_model_tests::engine::bound_data;
use hgnnc_model_tests::{CASES, World, assert_close, case, compile};
use hgnnc_train::{Epoch, Outcome, TrainOptions, Trainer};

/// A model without dropout, since masks of a batch apply to other elements.
fn without_masks(source: &str) -> Compiled {
    let mut compiled = compile(source);
    for value in &mut compiled.model.flow.values {
        if let Op::RandomMask { ty, .. } = &value.op {
            // A mask with rate 0.
            value.op = Op::RandomMask { stream: 0, rate: 0.0, ty: ty.clone() };
        }
    }
    compiled
}

/// Whether the loss depends on all vertices of a type, and so on the composition of a batch.
fn is_global(compiled: &Compiled) -> bool {
    let flow = &compiled.model.flow;
    let target = flow.outputs.iter().find_map(|output| match &output.kind {
        OutputKind::Result(name) if name == "loss" => Some(output.value),
        _ => None,
    });
    let of_vertices = flow.handles().filter(|&value| {
        let data = flow.value(value);
        matches!(data.op, Op::ReduceSpace(_)) && matches!(flow.ty(data.args[0]).space, Space::Vertices(_))
    });
    // The loss itself is one sum over rows divided by another.
    target.is_some() && of_vertices.count() > 2
}

fn trainer(compiled: &Compiled, world: &World, bindings: &Bindings, options: TrainOptions) -> Trainer {
    let data = bound_data(compiled.training(), bindings);
    let executable = compiled.lowered(world, LowerOptions::default());
    hgnnc_model_tests::engine::trainer(executable, data, options).unwrap_or_else(|error| panic!("{error}"))
}

fn losses(trainer: &mut Trainer) -> Vec<f64> {
    let mut losses = vec![];
    let mut on_epoch = |epoch: &Epoch| losses.extend(epoch.within.is_none().then_some(epoch.loss));
    trainer.run(&AtomicBool::new(false), &mut on_epoch).unwrap_or_else(|error| panic!("{error}"));
    losses
}

/// Mini-batches of `size` seeds with fan-out `most` in every hop.
fn on_batches(mut compiled: Compiled, size: usize, most: Option<u32>) -> Compiled {
    let hops = 4;
    let graphs = compiled.model.flow.graphs.len();
    let training = &mut compiled.model.train.as_mut().expect("a train block").training;
    let fanout = most.map_or(Fanout::All, Fanout::AtMost);
    training.batch = Some(MiniBatch { size, all_of: None, fanouts: vec![vec![fanout; graphs]; hops], reuse: None });
    compiled
}

/// Layers over different graphs: a vertex that a later hop reaches has in-edges of some graphs only.
fn layers_of_different_graphs() -> Case {
    Case {
        name: "different graphs",
        uses: "use std::rgcn::RgcnConv",
        body:
            "    let first = relu(RgcnConv(hidden: 4) over [writes, reverse(appears_in), reverse(writes)] of features)
    output y: Paper = RgcnConv(hidden: 3) over [cites] of first.Paper",
        schema: SCHEMA,
    }
}

/// Edge features follow their edges in each hop, also if sampled: the features of an edge name its source, and the loss
/// detects an edge with those of another one.
#[test]
fn data_of_sampled_edges_go_with_them() {
    let compiled = || {
        compile(
            "schema S {
                vertex A { x: f32[2], topic: class[2] }
                vertex B { x: f32[2] }
                relation r: B -> A { weight: f32, kind: f32[2] }
                relation s: A -> A { weight: f32, kind: f32[2] }
            }
            layer Differ() over graphs: [*] of x: *[2] -> *[2] {
                aggregate e: g in graphs {
                    let wrong = e.kind - e.src.x
                    let weighted = e.kind * (e.weight - 1)
                    z = sum(wrong * wrong + weighted * weighted) over in_edges
                }
                fuse v: * across graphs { out = sum(v.z) across graphs }
            }
            layer Sum() over graphs: [V -> V] of x: V[2] -> V[2] {
                aggregate e: g in graphs { z = sum(e.src.x) over in_edges }
                fuse v: V across graphs { out = sum(v.z) across graphs }
            }
            model M(schema: S) {
                let differs = Differ() over [r, s] of features
                let around = Sum() over [s] of differs.A
                param scale: [2] = ones
                output y: A = (around + differs.A) * scale
            }
            train M { loss cross_entropy(y, A.topic) optimizer sgd(lr: 0.0) epochs 3 }",
        )
    };
    let edges: Vec<(u32, u32)> = (0..60).map(|i| (i * 7 % 12, i * 5 % 11)).collect();
    let world = World::new(3, &[("A", 12), ("B", 12)], &[("r", &edges), ("s", &edges)]);
    let whole = compiled();
    let mut bindings = whole.bind(&world);
    let flow = whole.training();
    for (index, decl) in flow.inputs.iter().enumerate() {
        // Vertex 4 is (5, 0), and so are its edges; all weights are 1.
        let row = |id: u32| [f64::from(id) + 1.0, 0.0];
        let numbers: Vec<f64> = match decl.binding {
            Binding::Features(..) => (0..12).flat_map(row).collect(),
            Binding::EdgeFeatures(graph) => {
                bindings.edges[graph.index()].iter().flat_map(|&(src, _)| row(src)).collect()
            }
            Binding::EdgeWeight(graph) => vec![1.0; bindings.edges[graph.index()].len()],
            _ => continue,
        };
        let input = bindings.inputs.get_mut(&Input::new(index)).expect("it is bound");
        assert_eq!(input.data.len(), numbers.len(), "{}", decl.name);
        input.data = numbers;
    }
    let same = 2f64.ln();
    for most in [None, Some(1), Some(3)] {
        let batches = on_batches(compiled(), 3, most);
        let found = losses(&mut trainer(&batches, &world, &bindings, TrainOptions::default()));
        assert!(found.iter().all(|loss| (loss - same).abs() < 1e-6), "{most:?}: {found:?}");
    }
    // A wrong edge feature would change the loss.
    let kind =
        flow.inputs.iter().position(|decl| matches!(decl.binding, Binding::EdgeFeatures(_))).expect("edge features");
    bindings.inputs.get_mut(&Input::new(kind)).expect("it is bound").data.rotate_left(2);
    let found = losses(&mut trainer(&on_batches(compiled(), 3, Some(3)), &world, &bindings, TrainOptions::default()));
    assert!(found.iter().all(|loss| (loss - same).abs() > 0.1), "{found:?}");
}

/// Classes of weight 0: a batch of these only has loss 0 instead of 0 / 0.
#[test]
fn batches_of_classes_without_weight_have_no_loss() {
    let train = TRAIN
        .replace("Paper.topic)", "Paper.topic, class_weights: [0, 1, 0])")
        .replace("epochs 5", "epochs 5\n    batch 1");
    let compiled = compile(&case("rgcn").trained_by(&train));
    let world = World::library();
    let bindings = compiled.bind(&world);
    let found = losses(&mut trainer(&compiled, &world, &bindings, TrainOptions::default()));
    assert!(found.iter().all(|&loss| loss.is_finite()), "{found:?}");
}

#[test]
fn one_batch_of_everything_is_full_batch_training() {
    let mut compared = 0;
    let different = layers_of_different_graphs();
    for case in CASES.iter().chain([&different]) {
        // Learned rows of vertices that no batch has do not decay.
        let train = if case.schema == FIELDS_SCHEMA { TRAIN.replace(", weight_decay: 0.01", "") } else { TRAIN.into() };
        let source = case.trained_by(&train);
        let whole = without_masks(&source);
        if is_global(&whole) {
            continue;
        }
        let worlds = if case.schema == SCHEMA {
            vec![World::library(), World::library().without_edges(), World::random_library(7)]
        } else {
            vec![World::sparse_library()]
        };
        for (number, world) in worlds.iter().enumerate() {
            let bindings = whole.bind(world);
            let options = || TrainOptions { threads: 2, ..Default::default() };
            let mut expected = trainer(&whole, world, &bindings, options());
            let expected_losses = losses(&mut expected);
            let batches = on_batches(without_masks(&source), 1000, None);
            let mut found = trainer(&batches, world, &bindings, options());
            let found_losses = losses(&mut found);
            let what = format!("{}, world {number}", case.name);
            assert_close(&what, &found_losses, &expected_losses, 1e-4);
            // Evaluation is on the whole graph.
            let outputs = |trainer: &mut Trainer| -> Vec<f64> {
                trainer.infer(None).expect("y").data.iter().map(|&x| f64::from(x)).collect()
            };
            assert_close(&what, &outputs(&mut found), &outputs(&mut expected), 1e-3);
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared} cases");
}

/// Batches depend on the seed, the epoch and their number, not on threads or interruptions.
#[test]
fn batches_are_reproducible_and_resumed() {
    let sparse = CASES.iter().filter(|case| [SPARSE_SCHEMA, FIELDS_SCHEMA].contains(&case.schema));
    for case in sparse.chain([&case("rgcn"), &case("rgat"), &case("han")]) {
        let name = case.name;
        let compiled = || on_batches(compile(&case.source()), 2, Some(2));
        let world = if case.schema == SCHEMA { World::random_library(9) } else { World::sparse_library() };
        let bindings = compiled().bind(&world);
        let new = |options: TrainOptions| trainer(&compiled(), &world, &bindings, options);
        let bits = |trainer: &mut Trainer| -> Vec<Vec<u32>> {
            trainer.params().expect("params").iter().map(|p| p.iter().map(|x| x.to_bits()).collect()).collect()
        };
        let mut first = new(TrainOptions { threads: 1, ..Default::default() });
        let expected = losses(&mut first);
        let mut second = new(TrainOptions { threads: 3, ..Default::default() });
        assert_eq!(losses(&mut second), expected, "{name}");
        assert_eq!(bits(&mut second), bits(&mut first), "{name}");

        // Stops after a number of batches, as Ctrl-C does.
        let folder = tempfile::tempdir().expect("a folder for a test");
        let options = |resume| TrainOptions {
            threads: 2,
            checkpoint: Some(folder.path().to_owned()),
            checkpoint_every: std::time::Duration::ZERO,
            resume,
            ..Default::default()
        };
        for round in 0u32.. {
            let mut part = new(options(round > 0));
            let stop = AtomicBool::new(false);
            let outcome = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_micros(300) * (1 + round));
                    stop.store(true, std::sync::atomic::Ordering::Relaxed);
                });
                part.run(&stop, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
            });
            if outcome == Outcome::Finished {
                assert_eq!(bits(&mut part), bits(&mut first), "{name}, {round} interruptions");
                break;
            }
        }
    }
}
