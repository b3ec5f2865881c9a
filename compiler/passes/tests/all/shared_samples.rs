//! Losses of links that are all compared with the same samples: the program that they are written out as, against their
//! definition by the scores of all pairs, with gradients against central differences and kernels against both.

use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::{Dataflow, Direction, EdgeShare, Param, VertexRows, parse, print, verify};
use hgnnc_passes::{expand_link_loss, share_samples};

use crate::common::{gradients_are_those_of, kernels_compute_gradients};

/// The number of samples of each type.
const SAMPLES: u32 = 3;

/// Scores of the links of a graph from type `A`, with 5 vertices, to type `B`, with 4. Both ends are rows of width 4.
fn program(score: &str) -> Dataflow {
    let text = format!(
        "dataflow d {{
        vertex A from \"a\"
        vertex B from \"b\"
        relation r: A -> B from \"r\"
        graph links_r: A -> B = >r links
        param a : f32[|A|, 4] = normal(1.0)
        param b : f32[|B|, 4] = normal(1.0)
        param w : f32[4] = normal(1.0)
        param m : f32[4, 4] = normal(1.0)
        param c : f32[] = normal(1.0)
        %0 = param a : f32[|A|, 4] @FP
        %1 = rows %0 : f32[A; 4] @FP
        %2 = param b : f32[|B|, 4] @FP
        %3 = rows %2 : f32[B; 4] @FP
        %4 = param w : f32[4] @FP
        %5 = param m : f32[4, 4] @FP
        %6 = param c : f32[] @FP
        %7 = gather.src links_r, %1 : f32[edges(links_r); 4] @NA
        %8 = gather.dst links_r, %3 : f32[edges(links_r); 4] @NA
        {score}
        result score = %12
    }}"
    );
    let mut flow = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let score = flow.result("score").expect("a score");
    let loss = flow.add(hgnnc_ir::Op::LinkLoss(hgnnc_ir::training::RankingLoss::CrossEntropy), &[score]);
    flow.output("loss", loss);
    flow
}

/// An inner product with a vector of the relation and a bias; a bilinear form; one that reads parts of rows.
const LINEAR: [&str; 3] = [
    "%9 = mul %7, %4 : f32[edges(links_r); 4] @NA
     %10 = mul %9, %8 : f32[edges(links_r); 4] @NA
     %11 = reduce.sum(axes 1) %10 : f32[edges(links_r)] @NA
     %12 = add %11, %6 : f32[edges(links_r)] @NA",
    "%9 = matmul %7, %5 : f32[edges(links_r); 4] @NA
     %10 = mul %9, %8 : f32[edges(links_r); 4] @NA
     %11 = reduce.sum(axes 1) %10 : f32[edges(links_r)] @NA
     %12 = mul %11, %6 : f32[edges(links_r)] @NA",
    "%9 = slice(1, 2) %7 : f32[edges(links_r); 2] @NA
     %10 = slice(2, 2) %8 : f32[edges(links_r); 2] @NA
     %11 = mul %9, %10 : f32[edges(links_r); 2] @NA
     %12 = reduce.sum(axes 1) %11 : f32[edges(links_r)] @NA",
];

/// A network of the source: linear in the rows of the destination only.
const OF_DESTINATION: &str = "%9 = matmul %7, %5 : f32[edges(links_r); 4] @NA
     %10 = relu %9 : f32[edges(links_r); 4] @NA
     %11 = mul %10, %8 : f32[edges(links_r); 4] @NA
     %12 = reduce.sum(axes 1) %11 : f32[edges(links_r)] @NA";

const BOTH: &[Direction] = &[Direction::In, Direction::Out];
const DESTINATIONS: &[Direction] = &[Direction::In];

/// Scores with the ends that samples replace.
fn cases() -> impl Iterator<Item = (&'static str, &'static [Direction])> {
    LINEAR.into_iter().map(|score| (score, BOTH)).chain([(OF_DESTINATION, DESTINATIONS), (LINEAR[0], DESTINATIONS)])
}

/// The links, by destination. The first vertices of each type are its samples, so some links are among them and others are not.
const LINKS: [(u32, u32); 5] = [(0, 1), (4, 1), (2, 2), (0, 3), (3, 3)];

fn bindings() -> Bindings {
    let mut next = 7u64;
    let mut random = || {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (next >> 33) as f64 / f64::from(1u32 << 31) - 0.5
    };
    let mut bindings = Bindings { num_vertices: vec![5, 4], edges: vec![LINKS.to_vec()], ..Bindings::default() };
    for (param, elements) in [20, 16, 4, 16, 1].into_iter().enumerate() {
        let data = (0..elements).map(|_| 2.0 * random()).collect();
        bindings.params.insert(Param::new(param), Tensor::new(1, elements, data));
    }
    bindings
}

/// The mean over links and these ends of ln(e^s + Σ e^n) - s, where n are the scores of the samples other than the link.
fn definition(flow: &Dataflow, bindings: &Bindings, ends: &[Direction]) -> f64 {
    let score = flow.result("score").expect("a score");
    let mut flow = flow.clone();
    flow.outputs.retain(|output| output.value == score);
    let score_of = |pair: (u32, u32)| {
        let one = Bindings { edges: vec![vec![pair]], ..bindings.clone() };
        let flow = Dataflow { values: flow.values[..=score.index()].to_vec(), ..flow.clone() };
        run(&flow, &one).expect("bound")[score].data[0]
    };
    let mut total = 0.0;
    for (src, dst) in LINKS {
        let own = score_of((src, dst));
        for &direction in ends {
            let pair = |sample| if direction == Direction::In { (src, sample) } else { (sample, dst) };
            let others = (0..SAMPLES).map(pair).filter(|&pair| pair != (src, dst)).map(|pair| score_of(pair).exp());
            total += (own.exp() + others.sum::<f64>()).ln() - own;
        }
    }
    total / (ends.len() * LINKS.len()) as f64
}

fn written_out(flow: &Dataflow, ends: &[Direction]) -> Dataflow {
    let mut flow = flow.clone();
    flow.outputs.retain(|output| output.kind == hgnnc_ir::OutputKind::Result("loss".into()));
    share_samples(&mut flow, SAMPLES, ends).expect("the score is linear");
    expand_link_loss(&mut flow, 0).expect("products of pairs");
    verify(&flow).unwrap_or_else(|broken| panic!("{broken:#?}\n{flow}"));
    flow
}

/// The types and graphs of samples and pairs.
fn complete(flow: &Dataflow, bindings: &Bindings) -> Bindings {
    let mut bindings = bindings.clone();
    for decl in &flow.vertex_types[2..] {
        bindings.num_vertices.push(match decl.rows {
            VertexRows::Samples(_, count) => count as usize,
            VertexRows::Edges(_) => LINKS.len(),
            rows => panic!("{rows:?}"),
        });
    }
    for decl in &flow.graphs[1..] {
        assert_eq!(decl.share, EdgeShare::Samples);
        bindings.edges.push((0..SAMPLES).map(|sample| (sample, sample)).collect());
    }
    bindings
}

fn loss_of(flow: &Dataflow, bindings: &Bindings) -> f64 {
    let found = run(flow, &complete(flow, bindings)).unwrap_or_else(|error| panic!("{error}\n{flow}"));
    found[flow.result("loss").expect("a loss")].data[0]
}

#[test]
fn what_is_written_out_is_the_loss() {
    for (score, ends) in cases() {
        let (flow, bindings) = (program(score), bindings());
        let new = written_out(&flow, ends);
        assert_eq!(parse(&print(&new)).map(|read| print(&read)), Ok(print(&new)));
        let (expected, found) = (definition(&flow, &bindings, ends), loss_of(&new, &bindings));
        assert!((expected - found).abs() < 1e-12 && expected > 0.1, "{found} instead of {expected}\n{new}");
    }
}

#[test]
fn gradients_are_those_of_the_loss() {
    for (score, ends) in cases() {
        let (flow, bindings) = (program(score), bindings());
        let params: Vec<Param> = (0..5).map(Param::new).collect();
        let complete = |joint: &Dataflow| complete(joint, &bindings);
        let definition = |moved: &Bindings| definition(&flow, moved, ends);
        gradients_are_those_of(&written_out(&flow, ends), &params, &bindings, complete, definition);
    }
}

#[test]
fn kernels_compute_the_loss_and_its_gradients() {
    for (score, ends) in cases() {
        let program = written_out(&program(score), ends);
        let params: Vec<Param> = (0..5).map(Param::new).collect();
        kernels_compute_gradients(&program, &params, &complete(&program, &bindings()));
    }
}

#[test]
fn scores_that_are_not_linear_are_refused() {
    let distance = "%9 = sub %7, %8 : f32[edges(links_r); 4] @NA
        %10 = abs %9 : f32[edges(links_r); 4] @NA
        %11 = reduce.sum(axes 1) %10 : f32[edges(links_r)] @NA
        %12 = neg %11 : f32[edges(links_r)] @NA";
    let of_one_end = "%9 = mul %8, %4 : f32[edges(links_r); 4] @NA
        %10 = reduce.sum(axes 1) %9 : f32[edges(links_r)] @NA
        %11 = neg %10 : f32[edges(links_r)] @NA
        %12 = neg %11 : f32[edges(links_r)] @NA";
    let reasons = [
        (distance, "the score is not linear in the rows of the destination"),
        (of_one_end, "the score does not depend on the source"),
        (OF_DESTINATION, "the score is not linear in the rows of the source"),
    ];
    for (score, reason) in reasons {
        let refused = share_samples(&mut program(score), SAMPLES, BOTH).expect_err("no matrix product");
        assert_eq!(refused.why, reason);
    }
}

#[test]
fn the_loss_is_a_product_of_queries_and_samples() {
    insta::assert_snapshot!(written_out(&program(LINEAR[0]), BOTH).to_string());
}
