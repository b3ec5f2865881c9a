//! Shuffled vertices: against plain loops, in training on both back ends, and in any order of the vertices.

use hgnnc_ir::{VertexType, random};
use hgnnc_model_tests::cases::{Case, SCHEMA};
use hgnnc_model_tests::plain::{Plain, Rows, dot};
use hgnnc_model_tests::{World, assert_close, compile};

use crate::devices::{on_device, on_processor, options, run};
use crate::differential::check_trained_by;
use crate::language::means;
use crate::orders::order_does_not_matter;
use crate::ranks::{train_on, world_of};

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

#[test]
fn several_processes_refuse_them() {
    let source = CASE.trained_by(TRAIN);
    let data = world_of(&CASE, &source, &World::random_library(4));
    for refused in train_on(2, 6, &source, &data) {
        let message = refused.expect_err("vertices are shuffled").to_string();
        assert!(message.contains("cannot be computed by several processes: it shuffles the vertices"), "{message}");
    }
}
