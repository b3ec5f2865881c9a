//! Losses that compare each link with its own negative samples: the program that they are written out as, against their
//! definitions, with gradients against central differences and kernels against both.

use hgnnc_interp::{Bindings, PairOfLink, Tensor, run};
use hgnnc_ir::training::RankingLoss;
use hgnnc_ir::{Dataflow, EdgeShare, Graph, Param, VertexRows, parse, print, verify};
use hgnnc_passes::expand_link_loss;

use crate::common::{gradients_are_those_of, kernels_compute_gradients};

const LOSSES: [RankingLoss; 4] =
    [RankingLoss::CrossEntropy, RankingLoss::Bpr, RankingLoss::Margin(0.4), RankingLoss::SelfAdversarial(0.7)];
const NEGATIVES: u32 = 3;

/// Scores of the pairs of two graphs, by the products of learned rows.
fn program(loss: RankingLoss) -> Dataflow {
    let text = "dataflow d {
        vertex A from \"a\"
        vertex B from \"b\"
        relation r: A -> B from \"r\"
        relation s: A -> A from \"s\"
        graph links_r: A -> B = >r links
        graph links_s: A -> A = >s links
        param a : f32[|A|, 2] = normal(1.0)
        param b : f32[|B|, 2] = normal(1.0)
        %0 = param a : f32[|A|, 2] @FP
        %1 = rows %0 : f32[A; 2] @FP
        %2 = param b : f32[|B|, 2] @FP
        %3 = rows %2 : f32[B; 2] @FP
        %4 = gather.src links_r, %1 : f32[edges(links_r); 2] @NA
        %5 = gather.dst links_r, %3 : f32[edges(links_r); 2] @NA
        %6 = mul %4, %5 : f32[edges(links_r); 2] @NA
        %7 = reduce.sum(axes 1) %6 : f32[edges(links_r)] @NA
        %8 = gather.src links_s, %1 : f32[edges(links_s); 2] @NA
        %9 = gather.dst links_s, %1 : f32[edges(links_s); 2] @NA
        %10 = mul %8, %9 : f32[edges(links_s); 2] @NA
        %11 = reduce.sum(axes 1) %10 : f32[edges(links_s)] @NA
    }";
    let mut flow = parse(text).expect("text");
    let scores = [7, 11].map(hgnnc_ir::Value::new);
    let loss = flow.add(hgnnc_ir::Op::LinkLoss(loss), &scores);
    flow.output("loss", loss);
    flow
}

/// Links of both graphs with up to [`NEGATIVES`] samples; the last link has none.
fn bindings() -> Bindings {
    let mut bindings = Bindings { num_vertices: vec![5, 4], ..Bindings::default() };
    let mut next = 7u64;
    let mut random = |below: u64| {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (next >> 33) % below
    };
    let mut link = 0;
    for (graph, ends) in [(0, [5, 4]), (1, [5, 5])] {
        let mut pairs: Vec<((u32, u32), PairOfLink)> = vec![];
        for at in 0..4 {
            let samples = if (graph, at) == (1, 3) { 0 } else { 1 + random(u64::from(NEGATIVES)) };
            for sample in 0..=samples {
                let pair = (random(ends[0]) as u32, random(ends[1]) as u32);
                pairs.push((pair, PairOfLink { link, is_link: sample == 0 }));
            }
            link += 1;
        }
        pairs.sort_by_key(|&((src, dst), _)| (dst, src));
        let (edges, of) = pairs.into_iter().unzip();
        bindings.edges.push(edges);
        bindings.pairs.insert(Graph::new(graph), of);
    }
    for (param, rows) in [(0, 5), (1, 4)] {
        let data = (0..2 * rows).map(|_| random(2000) as f64 / 1000.0 - 1.0).collect();
        bindings.params.insert(Param::new(param), Tensor::new(1, 2 * rows, data));
    }
    bindings
}

/// The types and graphs that are derived from pairs.
fn with_link_rows(flow: &Dataflow, bindings: &Bindings) -> Bindings {
    let mut bindings = bindings.clone();
    let links: std::collections::BTreeSet<u32> = bindings.pairs.values().flatten().map(|pair| pair.link).collect();
    for decl in flow.vertex_types.iter().skip(bindings.num_vertices.len()) {
        bindings.num_vertices.push(match decl.rows {
            VertexRows::Edges(graph) => bindings.edges[graph.index()].len(),
            VertexRows::Links { negatives: NEGATIVES } => links.len(),
            rows => panic!("{rows:?}"),
        });
    }
    for decl in flow.graphs.iter().skip(bindings.edges.len()) {
        let (of, are_links) = match decl.share {
            EdgeShare::Links(of) => (of, true),
            EdgeShare::Negatives(of) => (of, false),
            share => panic!("{share:?}"),
        };
        let pairs = (0..).zip(&bindings.pairs[&of]).filter(|(_, pair)| pair.is_link == are_links);
        let mut edges: Vec<(u32, u32)> = pairs.map(|(row, pair)| (row, pair.link)).collect();
        edges.sort_by_key(|&(row, link)| (link, row));
        bindings.edges.push(edges);
    }
    bindings
}

fn written_out(flow: &Dataflow) -> Dataflow {
    let mut flow = flow.clone();
    expand_link_loss(&mut flow, NEGATIVES).expect("scores of pairs");
    verify(&flow).unwrap_or_else(|broken| panic!("{broken:#?}\n{flow}"));
    flow
}

fn loss_of(flow: &Dataflow, bindings: &Bindings) -> f64 {
    let found = run(flow, bindings).unwrap_or_else(|error| panic!("{error}\n{flow}"));
    found[flow.result("loss").expect("a loss")].data[0]
}

#[test]
fn what_is_written_out_is_the_loss() {
    for loss in LOSSES {
        let (flow, bindings) = (program(loss), bindings());
        verify(&flow).unwrap_or_else(|broken| panic!("{broken:#?}\n{flow}"));
        assert_eq!(parse(&print(&flow)).as_ref(), Ok(&flow));
        let new = written_out(&flow);
        assert_eq!(parse(&print(&new)).map(|read| print(&read)), Ok(print(&new)));
        let (expected, found) = (loss_of(&flow, &bindings), loss_of(&new, &with_link_rows(&new, &bindings)));
        assert!((expected - found).abs() < 1e-12 && expected > 0.1, "{loss:?}: {found} instead of {expected}");
    }
}

#[test]
fn gradients_are_those_of_the_loss() {
    for loss in LOSSES {
        let (flow, bindings) = (program(loss), bindings());
        let params = [0, 1].map(Param::new);
        let complete = |joint: &Dataflow| with_link_rows(joint, &bindings);
        let apart = bindings.clone();
        gradients_are_those_of(&written_out(&flow), &params, &bindings, complete, |moved| match loss {
            RankingLoss::SelfAdversarial(temperature) => self_adversarial(temperature, &flow, &apart, moved),
            _ => loss_of(&flow, moved),
        });
    }
}

/// The loss with moved parameters and the weights of samples of others, which the gradient takes for constant.
fn self_adversarial(temperature: f64, flow: &Dataflow, weighed: &Bindings, moved: &Bindings) -> f64 {
    let softplus = |x: f64| x.exp().ln_1p();
    let [fixed, moved_scores] = [weighed, moved].map(|bindings| run(flow, bindings).expect("bound"));
    let (mut total, mut links) = (0.0, 0.0);
    for (graph, score) in [(0, 7), (1, 11)] {
        let (pairs, score) = (&moved.pairs[&Graph::new(graph)], hgnnc_ir::Value::new(score));
        let heat = |at: usize| (temperature * fixed[score].data[at]).exp();
        let samples_of = |link: u32| (0..pairs.len()).filter(move |&at| pairs[at].link == link && !pairs[at].is_link);
        for (at, pair) in pairs.iter().enumerate() {
            if pair.is_link {
                links += 1.0;
                total += softplus(-moved_scores[score].data[at]);
            } else {
                let all: f64 = samples_of(pair.link).map(heat).sum();
                total += heat(at) / all * softplus(moved_scores[score].data[at]);
            }
        }
    }
    total / links
}

#[test]
fn kernels_compute_the_loss_and_its_gradients() {
    for loss in LOSSES {
        let program = written_out(&program(loss));
        kernels_compute_gradients(&program, &[0, 1].map(Param::new), &with_link_rows(&program, &bindings()));
    }
}

#[test]
fn a_ranking_loss_is_a_reduction_over_the_samples_of_each_link() {
    insta::assert_snapshot!(written_out(&program(RankingLoss::CrossEntropy)).to_string());
}
