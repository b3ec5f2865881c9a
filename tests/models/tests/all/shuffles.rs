//! Shuffled vertices: against plain loops, in training on both back ends, and in any order of the vertices.

use std::sync::Arc;

use hgnnc::{Ranks, Split};
use hgnnc_dist::threads;
use hgnnc_driver::LowerOptions;
use hgnnc_ir::batch::BatchGraph;
use hgnnc_ir::{Dataflow, Output, OutputKind, VertexType, random};
use hgnnc_model_tests::cases::{Case, SCHEMA};
use hgnnc_model_tests::compiled::Compiled;
use hgnnc_model_tests::plain::{Plain, Rows, dot};
use hgnnc_model_tests::{World, assert_close, compile};
use hgnnc_passes::{to_minibatch, to_minibatch_with_cache};
use hgnnc_train::TrainOptions;

use crate::devices::{on_device, on_processor, options, run};
use crate::differential::{check_trained_by, engine_agrees};
use crate::gradients::gradients_are_differences;
use crate::language::means;
use crate::orders::order_does_not_matter;
use crate::ranks::{job, ranks_agree, train, train_on, world_of};
use crate::reuse::made_up;

/// Deep graph infomax, with contrast between two views of a paper and those of three others.
const CASE: Case = Case {
    name: "infomax",
    uses: "use std::dgi::{Discriminator, Shuffled}
        use std::contrast::Similarity
        use std::rgcn::RgcnConv",
    schema: SCHEMA,
    body: "
    let x = tanh(linear(features, 4))
    let conv = tanh(RgcnConv(hidden: 4) over [cites, PAP] of x.Paper)
    let other = Shuffled() over shuffle(Paper) of dropout(x.Paper, 0.3)
    let fake = tanh(RgcnConv(hidden: 4) over [cites, PAP] of other) sharing conv
    let score = Discriminator() of (h: conv, summary: conv)
    let fake_score = Discriminator() of (h: fake, summary: conv) sharing score
    let authors = Shuffled() over shuffle(Author) of x.Author
    let near = Similarity() over self_loops(PAP) of (a: x.Paper, b: conv)
    let far = Similarity() over shuffle(Paper, 3) of (a: x.Paper, b: conv)
    output y: Paper = linear(conv, 3)",
};

const TRAIN: &str = "train M {
    loss mean(softplus(0 - score)) over Paper + mean(softplus(fake_score)) over Paper + 0.3 * mean(log(near + far) - log(near)) over Paper
        + 0.1 * mean(dot(authors, x.Author)) over Author + 0.1 * cross_entropy(y, Paper.topic)
    optimizer sgd(lr: 0.1, momentum: 0.9)
    epochs 5
    seed 3
    select train.loss
}";

/// The sources of each vertex of `A` in a step.
fn sources(step: u64, count: usize, permutations: u32) -> Vec<Vec<usize>> {
    let all = random::shuffled_sources((5, step), VertexType(0), count, permutations);
    all.chunks(permutations as usize).map(|row| row.iter().map(|&source| source as usize).collect()).collect()
}

#[test]
fn each_vertex_has_the_row_of_another() {
    let layer = "layer L() over graphs: [V -> V] of x: V[in] -> V[3] {
        project v: V { param w: [in, 3] = glorot h = v.x @ w }
        aggregate e: g in graphs { z = sum(dot(e.src.h, e.dst.h) * e.src.h) over in_edges }
        fuse v: V across graphs { out = sum(v.z) across graphs }
    }";
    for permutations in [1, 3] {
        means(layer, &format!("L() over shuffle(A, {permutations}) of A.x"), |p: &Plain<'_>| {
            let h: Rows = p.input("A.x").iter().map(|x| p.param("z.w").apply(x)).collect();
            let sources = sources(1, h.len(), permutations);
            let term = |j: usize, i: usize, d: usize| dot(&h[j], &h[i]) * h[j][d];
            let of = |i: usize, d: usize| sources[i].iter().map(|&j| term(j, i, d)).sum();
            (0..h.len()).map(|i| (0..3).map(|d| of(i, d)).collect()).collect()
        });
    }
}

#[test]
fn each_row_is_taken_as_often() {
    for (count, permutations) in [(0, 1), (1, 1), (2, 1), (7, 3), (1000, 4)] {
        let found = sources(4, count, permutations);
        assert!(found.iter().all(|row| row.is_sorted()));
        let mut rows = found.concat();
        rows.sort_unstable();
        assert!(rows.chunks(permutations as usize).enumerate().all(|(row, same)| same.iter().all(|&it| it == row)));
    }
    assert_ne!(sources(1, 100, 1), sources(2, 100, 1));
    // Each vertex is as often the source of the first one.
    let mut found = [0; 5];
    (0..20_000).for_each(|step| found[sources(step, 5, 1)[0][0]] += 1);
    assert!(found.iter().all(|&times| (3800..4200).contains(&times)), "{found:?}");
}

#[test]
fn the_engine_agrees() {
    check_trained_by(&CASE, TRAIN, 3);
}

/// Five epochs, each with draws of its own, and evaluations with one.
#[test]
fn a_device_agrees() {
    let compiled = compile(&CASE.trained_by(TRAIN));
    let world = World::random_library(77);
    let expected = run(&mut on_processor(&compiled, &world, options(5)));
    let found = run(&mut on_device(&compiled, &world, options(5)));
    assert_close("losses", &found.losses, &expected.losses, 2e-4);
    for (part, metrics) in &expected.metrics {
        metrics.iter().filter(|(_, value)| value.is_finite()).for_each(|(name, value)| {
            assert_close(&format!("{part}.{name}"), &[found.metrics[part][name]], &[*value], 2e-4);
        });
    }
}

#[test]
fn draws_are_those_of_the_vertices_of_the_dataset() {
    order_does_not_matter(&CASE, TRAIN, &World::random_library(4));
}

/// The terms of the loss that go over papers.
const OVER_PAPERS: &str = "mean(softplus(0 - score)) over Paper + mean(softplus(fake_score)) over Paper
        + 0.3 * mean(log(near + far) - log(near)) over Paper";

fn labelled() -> String {
    format!("{OVER_PAPERS} + 0.1 * cross_entropy(y, Paper.topic)")
}

/// The case with terms that go over papers, further entries of the train block, and dropout by a rate.
fn source(loss: &str, entries: &str, rate: f64) -> String {
    let train = format!(
        "train M {{ loss {loss} optimizer sgd(lr: 0.1, momentum: 0.9) epochs 5 seed 3 select train.loss {entries} }}"
    );
    CASE.trained_by(&train).replace("0.3)\n", &format!("{rate})\n"))
}

fn over_papers(loss: &str, entries: &str, rate: f64) -> Compiled {
    compile(&source(loss, entries, rate))
}

/// Without a label, all vertices are seeds. A batch of all of them shuffles as the whole graph does in this step.
#[test]
fn one_batch_of_everything_is_training_on_the_whole_graph() {
    let world = World::random_library(8);
    let whole = run(&mut on_processor(&over_papers(OVER_PAPERS, "", 0.0), &world, options(5)));
    let batches = run(&mut on_processor(&over_papers(OVER_PAPERS, "batch 1000", 0.0), &world, options(5)));
    assert_close("losses", &batches.losses, &whole.losses, 1e-5);
    // Evaluations are on the whole graph.
    assert_close("loss", &[batches.metrics["train"]["loss"]], &[whole.metrics["train"]["loss"]], 1e-5);
    // Steps have permutations of their own: the losses of training are not those of an evaluation.
    assert_ne!(whole.losses[4], whole.metrics["train"]["loss"]);
}

/// A permutation takes each row of a batch once, so a mean over it is that of the rows as they are, whatever the batches.
#[test]
fn rows_are_those_of_the_batch() {
    let of = |taken: &str| {
        let source = format!(
            "use std::dgi::Shuffled
            schema S {{ vertex A {{ x: f32[3] }} relation r: A -> A }}
            layer Around() over graphs: [V -> V] of x: V[in] -> V[in] {{
                aggregate e: g in graphs {{ z = max(e.src.x) over in_edges }}
                fuse v: V across graphs {{ out = sum(v.z) across graphs }}
            }}
            model M(schema: S) {{
                param scale: [3] = ones
                let h = A.x * scale
                let around = Around() over [r] of h
                let shuffled = Shuffled() over shuffle(A) of around
                let same = Shuffled() over identity(A) of around
                let thrice = Shuffled() over shuffle(A, 3) of around
                output y: A = h
            }}
            train M {{ loss mean(sum({taken}) over last) over A optimizer sgd(lr: 0) epochs 4 batch 5 select train.loss }}"
        );
        let edges: Vec<(u32, u32)> = (0..60).map(|i| (i * 7 % 23, i * 5 % 23)).collect();
        let world = World::new(3, &[("A", 23)], &[("r", &edges)]);
        run(&mut on_processor(&compile(&source), &world, options(4))).losses
    };
    let expected = of("exp(around)");
    assert_close("one permutation", &of("exp(shuffled)"), &expected, 1e-5);
    assert_close("the rows themselves", &of("exp(2 * same - around)"), &expected, 1e-5);
    assert_close("three permutations", &of("thrice / 3"), &of("around"), 1e-5);
    // A mean of three rows has a smaller exponential than they have on average.
    let of_means = of("exp(thrice / 3)");
    assert!(of_means.iter().zip(&expected).all(|(mean, all)| mean < all), "{of_means:?} and {expected:?}");
    // Products with the vertex's own row depend on the draw, which is another one in each epoch.
    let products = of("shuffled * around");
    assert!((1..4).all(|epoch| products[epoch] != products[0]), "{products:?}");
}

/// Small batches, of seeds without and with a label: on the PTX interpreter, and to the bit on any number of threads.
#[test]
fn batches_are_the_same_everywhere() {
    let labelled = labelled();
    for loss in [OVER_PAPERS, &labelled] {
        let compiled = over_papers(loss, "batch 3 fanout [2, 2]", 0.3);
        let world = World::random_library(9);
        let mut alone = on_processor(&compiled, &world, options(4));
        let expected = run(&mut alone);
        for threads in [2, 3, 7] {
            let mut trainer = on_processor(&compiled, &world, TrainOptions { threads, ..options(4) });
            assert_eq!(run(&mut trainer).losses, expected.losses, "{threads} threads");
            assert_eq!(trainer.params().expect("parameters"), alone.params().expect("parameters"), "{threads} threads");
        }
        let found = run(&mut on_device(&compiled, &world, options(4)));
        assert_close("losses on a device", &found.losses, &expected.losses, 2e-4);

        // One epoch less, and the last one in a run that goes on.
        let folder = tempfile::tempdir().expect("a folder");
        let checkpoint = Some(folder.path().to_path_buf());
        run(&mut on_processor(&compiled, &world, TrainOptions { checkpoint: checkpoint.clone(), ..options(3) }));
        let resumed = TrainOptions { checkpoint, resume: true, ..options(4) };
        let mut resumed = on_processor(&compiled, &world, resumed);
        run(&mut resumed);
        assert_eq!(resumed.params().expect("parameters"), alone.params().expect("parameters"));
    }
}

/// The program of a batch against differences, and its kernels against the interpreter, on made-up batches.
#[test]
fn programs_of_batches_agree_with_the_interpreter() {
    for reuse in ["", "reuse hot(0.5, batches: 2)"] {
        let compiled = over_papers(&labelled(), &format!("batch 3 {reuse}"), 0.3);
        let (forward, layout) = match reuse {
            "" => to_minibatch(&of_loss(&compiled.model.flow)),
            _ => to_minibatch_with_cache(&of_loss(&compiled.model.flow)),
        }
        .expect("a program of a batch");
        let shuffled = layout.graphs.iter().filter(|what| matches!(what, BatchGraph::Shuffled { .. })).count();
        assert_eq!(shuffled, 2, "the input one hop away, and negatives among the seeds");
        gradients_are_differences(reuse, &forward, &made_up(&forward, &layout));
        let executable = compiled.lowered(&World::random_library(9), LowerOptions::default());
        let (train, layout) = (executable.train.expect("a train block"), executable.batch.expect("batches"));
        engine_agrees(reuse, &train, &train, &made_up(&train, &layout));
    }
}

/// A program that computes the loss alone.
fn of_loss(flow: &Dataflow) -> Dataflow {
    let is_loss = |output: &&Output| matches!(&output.kind, OutputKind::Result(name) if name == "loss");
    Dataflow { outputs: flow.outputs.iter().filter(is_loss).cloned().collect(), ..flow.clone() }
}

/// Several processes shuffle the vertices that any of them has in its batch, as one process does.
#[test]
fn several_processes_train_on_batches_as_one() {
    let wide = |numbers: &[f32]| -> Vec<f64> { numbers.iter().map(|&x| f64::from(x)).collect() };
    for loss in [OVER_PAPERS, &labelled()] {
        for (entries, rate) in [("batch 4", 0.0), ("batch 5 fanout [2, 2]", 0.0), ("batch 4", 0.3)] {
            // The dataset has the label, whether the loss reads it or not.
            let data = world_of(&CASE, &source(&labelled(), entries, rate), &World::random_library(4));
            let source = source(loss, entries, rate);
            // Masks of one process are those of its rows.
            let alone =
                (rate == 0.0).then(|| train(&job(&source, &data, None)).unwrap_or_else(|error| panic!("{error}")));
            let mut expected = alone;
            for ranks in [1, 2, 3, 4] {
                for (rank, trained) in train_on(ranks, 6, &source, &data).into_iter().enumerate() {
                    let what = |of: &str| format!("{entries}, rank {rank} of {ranks}: {of}");
                    let trained = trained.unwrap_or_else(|error| panic!("{}", what(&error.to_string())));
                    let expected = expected.get_or_insert_with(|| trained.clone());
                    assert_close(&what("losses"), &trained.losses, &expected.losses, 2e-5);
                    assert_close(&what("parameters"), &wide(&trained.params), &wide(&expected.params), 1e-4);
                    assert_close(&what("outputs"), &wide(&trained.output), &wide(&expected.output), 1e-3);
                }
            }
        }
    }
}

/// Each step draws the rows that ranks exchange, and evaluations have draws of their own.
#[test]
fn several_processes_train_on_the_whole_graph_as_one() {
    ranks_agree(&CASE, TRAIN, &World::random_library(4));
}

/// The dropout of an edge is that of its number in the whole graph, for sums at its source as well.
#[test]
fn several_processes_drop_the_same_edges() {
    let case = Case {
        name: "dropped",
        uses: "
layer Dropped() over graphs: [V -> V] of x: V[in] -> V[in] {
    aggregate e: g in graphs { z = sum(dropout(dot(e.src.x, e.dst.x), 0.4) * e.src.x) over in_edges }
    fuse v: V across graphs { out = sum(v.z) across graphs }
}",
        schema: SCHEMA,
        body: "
    let x = tanh(linear(features, 4))
    let other = Dropped() over shuffle(Paper) of x.Paper
    let others = Dropped() over shuffle(Paper, 3) of x.Paper
    output y: Paper = linear(concat(other, others), 3)",
    };
    ranks_agree(&case, crate::ranks::TRAIN, &World::random_library(4));
}

#[test]
fn what_several_processes_refuse() {
    let data = world_of(&CASE, &CASE.trained_by(TRAIN), &World::random_library(4));
    // The gradient goes to the edges with the largest values, which their sources do not know.
    let largest = CASE
        .trained_by(TRAIN)
        .replace("RgcnConv(hidden: 4) over [cites, PAP] of other", "Largest() over shuffle(Paper, 2) of other")
        .replace(
            "use std::rgcn::RgcnConv",
            "use std::rgcn::RgcnConv
layer Largest() over graphs: [V -> V] of x: V[in] -> V[in] {
    aggregate e: g in graphs { z = max(e.src.x) over in_edges }
    fuse v: V across graphs { out = sum(v.z) across graphs }
}",
        )
        .replace(") sharing conv", ")");
    for refused in train_on(2, 6, &largest, &data) {
        let message = refused.expect_err("it has no placement").to_string();
        assert!(
            message.contains("the gradient of `max` or `min` over shuffled vertices has no placement"),
            "{message}"
        );
    }
    // Ranks that share relations have no batch of their own.
    let batches = source(OVER_PAPERS, "batch 4", 0.0);
    let refused = threads::run(2, |comm| {
        let ranks = Ranks { split: Split::Relations, ..Ranks::new(Arc::clone(comm)) };
        train(&job(&batches, &data, Some(ranks))).map(drop)
    });
    for refused in refused {
        let message = refused.expect_err("vertices are shuffled").to_string();
        assert!(message.contains("processes share the seeds (`seeds`), not the relations"), "{message}");
    }
}
