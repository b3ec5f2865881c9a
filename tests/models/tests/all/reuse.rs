//! Historical embeddings of hot vertices: without hot vertices no bit changes, up-to-date values do not change the
//! loss, and no value is older than a window.

use std::sync::atomic::{AtomicBool, Ordering};

use hgnnc_driver::LowerOptions;
use hgnnc_interp::{Bindings, Tensor};
use hgnnc_ir::batch::{BatchGraph, BatchLayout};
use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::random::{mask_key, uniform};
use hgnnc_ir::training::{Fanout, MiniBatch, Reuse};
use hgnnc_ir::{Dataflow, Input, Op, Param, Space};
use hgnnc_loader::{CacheOptions, CachePolicy};
use hgnnc_model_tests::cases::{Case, SCHEMA, TRAIN};
use hgnnc_model_tests::compiled::Compiled;
use hgnnc_model_tests::engine::bound_data;
use hgnnc_model_tests::{World, assert_close, case, compile};
use hgnnc_train::report::{Report, ReuseReport};
use hgnnc_train::{Outcome, TrainOptions, Trainer};

use crate::differential::engine_agrees;

/// Cases of two layers.
const TWO_LAYERS: [&str; 6] = ["rgcn", "gcn", "sage_mean", "simple_hgn", "hgt", "rgcn_sparse"];

/// Maximum, log-sum-exp and edge softmax over neighbours: undefined for vertices without in-edges.
fn extremes() -> Case {
    Case {
        name: "extremes",
        uses: "use std::sage::SageMaxConv
use std::gat::GatConv
layer Lse(hidden: dim) over graphs: [*] of x: *[in] -> *[hidden] {
    project v: * { param w: [in, hidden] = glorot  h = v.x @ w }
    aggregate e: g in graphs { z = logsumexp(e.src.h) over in_edges }
    fuse v: * across graphs { out = v.h + sum(sigmoid(v.z)) across graphs }
}",
        body: "    let first = SageMaxConv(hidden: 4, pool: 3) over [relations, reverses] of features
    let second = relu(Lse(hidden: 4) over [relations, reverses] of first)
    let third = GatConv(hidden: 2, heads: 2) over [self_loops(cites)] of second.Paper
    output y: Paper = linear(third, 3)",
        schema: SCHEMA,
    }
}

fn cases() -> Vec<Case> {
    TWO_LAYERS.into_iter().map(case).chain([extremes()]).collect()
}

/// Mini-batches of `size` seeds with fan-out `most` in every hop; without dropout unless `masks` is set.
fn on_batches(case: &Case, size: usize, most: Option<u32>, reuse: Option<(f64, u64)>, masks: bool) -> Compiled {
    on_batches_of(&case.source(), size, most, reuse, masks)
}

fn on_batches_of(source: &str, size: usize, most: Option<u32>, reuse: Option<(f64, u64)>, masks: bool) -> Compiled {
    let mut compiled = compile(source);
    let graphs = compiled.model.flow.graphs.len();
    let fanout = most.map_or(Fanout::All, Fanout::AtMost);
    let reuse = reuse.map(|(share, batches)| Reuse { share, batches });
    let training = &mut compiled.model.train.as_mut().expect("a train block").training;
    training.batch = Some(MiniBatch { size, all_of: None, fanouts: vec![vec![fanout; graphs]; 4], reuse });
    for value in &mut compiled.model.flow.values {
        if let (Op::RandomMask { ty, .. }, false) = (&value.op, masks) {
            value.op = Op::RandomMask { stream: 0, rate: 0.0, ty: ty.clone() };
        }
    }
    compiled
}

/// A world of many papers, which a few authors and venues join.
fn world() -> World {
    let cites: Vec<(u32, u32)> = (0..90).map(|edge| (edge * edge % 23, edge % 30)).collect();
    let writes: Vec<(u32, u32)> = (0..80).map(|edge| (edge * edge % 11, edge * 3 % 30)).collect();
    let appears: Vec<(u32, u32)> = (0..30).map(|paper| (paper, paper * paper % 4)).collect();
    World::new(
        5,
        &[("Paper", 30), ("Author", 12), ("Venue", 6)],
        &[
            ("cites", &cites),
            ("writes", &writes),
            ("reviews", &[(0, 3), (11, 3), (5, 0), (0, 7)]),
            ("appears_in", &appears),
        ],
    )
}

fn trainer(compiled: &Compiled, world: &World, options: TrainOptions) -> Trainer {
    let data = bound_data(compiled.training(), &compiled.bind(world));
    let executable = compiled.lowered(world, LowerOptions::default());
    hgnnc_model_tests::engine::trainer(executable, data, options).unwrap_or_else(|error| panic!("{error}"))
}

fn bits(trainer: &mut Trainer) -> Vec<Vec<u32>> {
    trainer.params().expect("params").iter().map(|p| p.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Trains to the end; returns the bits of all parameters, and the report.
fn trained(compiled: &Compiled, world: &World, options: TrainOptions) -> (Vec<Vec<u32>>, Report) {
    let mut trainer = trainer(compiled, world, options);
    trainer.run(&AtomicBool::new(false), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    (bits(&mut trainer), trainer.report().expect("a report"))
}

fn reused(report: &Report) -> &ReuseReport {
    report.batches.as_ref().and_then(|batches| batches.reuse.as_ref()).expect("values were reused")
}

/// A made-up batch for a program: more vertices and edges per hop, two vertices of each type with historical
/// embeddings.
pub fn made_up(flow: &Dataflow, layout: &BatchLayout) -> Bindings {
    let mut bindings = Bindings { seed: 5, step: 1, ..Bindings::default() };
    bindings.num_vertices = layout.vertices.iter().map(|known| 4 + 3 * known.hops).collect();
    layout.historical.iter().for_each(|reused| bindings.num_vertices[reused.rows.index()] = 2);
    let mut drawn = 0;
    let mut random = move || {
        drawn += 1;
        uniform(mask_key(9, 9, 9), drawn)
    };
    for (what, decl) in layout.graphs.iter().zip(&flow.graphs) {
        let (sources, rows) = (bindings.num_vertices[decl.src.index()], bindings.num_vertices[decl.dst.index()]);
        let mut below = |n: usize| ((random() * n as f64) as u32).min(n as u32 - 1);
        let mut edges: Vec<(u32, u32)> = match what {
            BatchGraph::First { .. } => (0..rows as u32).map(|v| (v, v)).collect(),
            BatchGraph::Historical { .. } => (0..2).map(|v| (v, rows as u32 - 3 + v)).collect(),
            // Each permutation moves all rows by as many places.
            BatchGraph::Shuffled { permutations, .. } => {
                let moved = |by: u32| (0..rows as u32).map(move |v| ((v + by + 1) % rows as u32, v));
                (0..*permutations).flat_map(moved).collect()
            }
            BatchGraph::Sampled { .. } | BatchGraph::Links { .. } => {
                (0..2 * rows).map(|_| (below(sources), below(rows))).collect()
            }
        };
        edges.sort_by_key(|&(src, dst)| (dst, src));
        bindings.edges.push(edges);
    }
    for (index, decl) in flow.inputs.iter().enumerate() {
        let width = bindings.width(&decl.ty.dims);
        let rows = match decl.ty.space {
            Space::Vertices(vertex) => bindings.num_vertices[vertex.index()],
            Space::Edges(graph) => bindings.edges[graph.index()].len(),
            Space::Unit | Space::Index(_) | Space::Endpoints(..) => 1,
        };
        let number = |at: usize, random: f64| match decl.binding {
            Binding::Label(..) => (at % 3) as f64,
            Binding::TrainMask(_) | Binding::StepNumber | Binding::EpochNumber => 1.0,
            _ => f64::from((2.0 * random - 1.0) as f32),
        };
        let data = (0..rows * width).map(|at| number(at, random())).collect();
        bindings.inputs.insert(Input::new(index), Tensor { rows, width, data });
    }
    for (index, decl) in flow.params.iter().enumerate() {
        let width = bindings.width(&decl.dims);
        let data = (0..width).map(|_| f64::from((random() - 0.5) as f32)).collect();
        bindings.params.insert(Param::new(index), Tensor { rows: 1, width, data });
    }
    bindings
}

/// Parameters after a step with historical embeddings: kernels against the interpreter.
#[test]
fn steps_with_rows_from_elsewhere_agree_with_the_interpreter() {
    let mut taken = 0;
    for name in ["rgcn", "sage_mean", "hgt"] {
        let compiled = on_batches(&case(name), 4, None, Some((0.5, 3)), true);
        let executable = compiled.lowered(&world(), LowerOptions::default());
        let (train, layout) = (executable.train.expect("a train block"), executable.batch.expect("batches"));
        let bindings = made_up(&train, &layout);
        taken += layout.historical.len();
        engine_agrees(name, &train, &train, &bindings);
    }
    assert!(taken > 6, "{taken} types");
}

fn threads(threads: usize) -> TrainOptions {
    TrainOptions { threads, ..Default::default() }
}

#[test]
fn without_hot_vertices_no_bit_changes() {
    for case in cases() {
        let world = world();
        let without = trained(&on_batches(&case, 3, Some(2), None, true), &world, threads(2));
        let with = trained(&on_batches(&case, 3, Some(2), Some((0.0, 4)), true), &world, threads(2));
        assert!(without.1.batches.as_ref().is_some_and(|batches| batches.reuse.is_none()));
        assert_eq!((reused(&with.1).hot, reused(&with.1).rows_taken), (0, 0), "{}", case.name);
        assert_eq!(with.1.losses, without.1.losses, "{}", case.name);
        assert_eq!(with.0, without.0, "{}", case.name);
    }
}

/// While parameters stay as they are, historical embeddings equal the computed ones, and so do the losses of all batches,
/// for any set of hot vertices. Gradients differ, since none flow through historical embeddings.
#[test]
fn values_of_this_moment_give_the_same_loss() {
    for case in cases() {
        let world = world();
        let resting = case.trained_by(&TRAIN.replace("lr: 0.1", "lr: 1e-30"));
        let with = |reuse| trained(&on_batches_of(&resting, 7, None, reuse, false), &world, threads(2)).1;
        let expected = with(None);
        for share in [0.3, 1.0] {
            let found = with(Some((share, 3)));
            assert_close(case.name, &found.losses, &expected.losses, 1e-5);
            let report = reused(&found);
            // In a graph of one vertex type, few vertices are no seeds.
            assert!(share < 1.0 || report.rows_taken > 0 && report.oldest > 0, "{}: {report:?}", case.name);
        }
        // With training, everything stays finite, although vertices with historical embeddings have no edges.
        let (params, report) = trained(&on_batches(&case, 7, None, Some((1.0, 3)), false), &world, threads(2));
        assert!(params.iter().flatten().all(|&bits| f32::from_bits(bits).is_finite()), "{}", case.name);
        assert!(reused(&report).rows_taken > 0, "{}", case.name);
    }
}

/// A historical embedding is at most as many updates old as a window has batches, minus one; also if a window is longer
/// than an epoch.
#[test]
fn no_value_is_older_than_a_window() {
    for case in cases() {
        let world = world();
        let without = trained(&on_batches(&case, 3, Some(2), None, true), &world, threads(1)).1;
        let batches = without.batches.as_ref().expect("batches");
        for size in [1, 2, 3, 100] {
            let (_, found) = trained(&on_batches(&case, 3, Some(2), Some((1.0, size)), true), &world, threads(1));
            let report = reused(&found);
            let bound = size.min(batches.per_epoch) - 1;
            // All vertices are hot, and some occur in many batches.
            assert_eq!(report.oldest, bound, "{}, {size}: {report:?}", case.name);
            match size {
                // No batch comes after another one. (Other sizes are expected: sums may have another order.)
                1 => {
                    assert_eq!((report.rows_taken, report.edges_saved), (0, 0), "{}", case.name);
                    assert_close(case.name, &found.losses, &without.losses, 1e-4);
                }
                _ => assert!(report.rows_taken > 0 && report.edges_saved > 0, "{}, {size}: {report:?}", case.name),
            }
        }
    }
}

/// The hot vertices and their embeddings depend on the seed, the epoch and the batch number, not on threads, a feature
/// cache, or interruptions. A run is interrupted between windows only.
#[test]
fn reuse_is_reproducible_and_resumed() {
    let learned = Case {
        name: "learned features",
        schema: Box::leak(SCHEMA.replace("Author { x: f32[3] }", "Author { x: embedding[3] }").into_boxed_str()),
        ..case("rgcn")
    };
    let mut interrupted = 0;
    for case in [case("rgcn_sparse"), learned, case("hgt"), extremes()] {
        let world = world();
        let compiled = on_batches(&case, 2, Some(2), Some((0.5, 3)), true);
        let (expected, report) = trained(&compiled, &world, threads(1));
        assert!(reused(&report).rows_taken > 0, "{}: {report:?}", case.name);
        let cache = Some(CacheOptions { bytes: 200, policy: CachePolicy::Hotness });
        for options in [threads(2), threads(3), TrainOptions { cache, ..threads(2) }] {
            let (found, other) = trained(&compiled, &world, options);
            assert_eq!(other.losses, report.losses, "{}", case.name);
            assert_eq!(found, expected, "{}", case.name);
        }
        let folder = tempfile::tempdir().expect("a folder for a test");
        let options = |resume| TrainOptions {
            checkpoint: Some(folder.path().to_owned()),
            checkpoint_every: std::time::Duration::ZERO,
            resume,
            ..threads(2)
        };
        for round in 0u64.. {
            let mut part = trainer(&compiled, &world, options(round > 0));
            // Stops after a number of batches, as Ctrl-C does.
            let (stop, mut left) = (AtomicBool::new(false), 1 + round % 5);
            let outcome = part.run(&stop, &mut |epoch| {
                left = left.saturating_sub(u64::from(epoch.within.is_some()));
                stop.store(left == 0, Ordering::Relaxed);
            });
            if outcome.unwrap_or_else(|error| panic!("{error}")) == Outcome::Finished {
                assert_eq!(bits(&mut part), expected, "{}, {round} interruptions", case.name);
                break;
            }
            assert!(part.batches_done().is_multiple_of(3), "{}: {}", case.name, part.batches_done());
            interrupted += u64::from(part.batches_done() > 0);
        }
    }
    assert!(interrupted > 10, "{interrupted} interruptions within epochs");
}
