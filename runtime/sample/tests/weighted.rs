//! Weighted sampling: support and probabilities.

mod common;

use common::{KEY, weighted_graph};
use hgnnc_sample::Fanout::{All, Latest, Weighted};
use hgnnc_sample::{Batch, BatchKey, Compiled, Plan, SampleGraph, Sampler, naive};

/// Rows of edges with the given weights, from disjoint sources.
fn star(rows: u32, weights: &[f32]) -> SampleGraph<'static> {
    let degree = weights.len() as u32;
    let edges = (0..rows * degree).map(|e| (e, e / degree)).collect();
    let weight = |_, edge: usize| Some(weights[edge % weights.len()]);
    weighted_graph(&[(rows * degree) as usize, rows as usize], &[(0, 1, edges)], weight).unwrap()
}

/// The probability of each subset (as a bitmap) of `most` edges, sampled sequentially with probabilities proportional
/// to the weights of the remaining edges.
fn exact(weights: &[f32], most: usize) -> Vec<f64> {
    let mut of = vec![0.0; 1 << weights.len()];
    of[0] = 1.0;
    for _ in 0..most {
        let mut next = vec![0.0; of.len()];
        for (taken, p) in of.iter().enumerate().filter(|(_, p)| **p > 0.0) {
            let left = |e: &usize| taken >> e & 1 == 0;
            let total: f64 = (0..weights.len()).filter(left).map(|e| f64::from(weights[e])).sum();
            for e in (0..weights.len()).filter(left) {
                next[taken | 1 << e] += p * f64::from(weights[e]) / total;
            }
        }
        of = next;
    }
    of
}

#[test]
fn subsets_are_as_probable_as_their_weights_say() {
    let (rows, batches) = (200u32, 600u64);
    for (weights, most) in [
        (&[1.0, 2.0, 3.0][..], 1),
        (&[1.0, 1.0, 1.0, 1.0, 1.0], 2),
        (&[0.1, 5.0, 1.0, 2.0, 0.5], 2),
        (&[100.0, 1.0, 1.0, 10.0, 3.0, 0.2], 3),
        (&[0.0, 3.0, 1.0, 0.0, 2.0, 1.0], 2),
    ] {
        let graph = star(rows, weights);
        let code = Compiled::new(&graph, Plan::uniform(&[Weighted(most)], 1), &compiler()).unwrap();
        let mut sampler = Sampler::compiled(&graph, &code).unwrap();
        let mut batch = Batch::default();
        let seeds = [vec![], (0..rows).collect::<Vec<u32>>()];
        let mut counts = vec![0u64; 1 << weights.len()];
        for number in 0..batches {
            sampler.sample(&seeds, BatchKey { seed: 3, epoch: number / 100, batch: number % 100 }, &mut batch).unwrap();
            for row in batch.blocks[0].eids.chunks_exact(most as usize) {
                counts[row.iter().map(|&e| 1usize << (e % weights.len() as u32)).sum::<usize>()] += 1;
            }
        }
        let draws = f64::from(rows) * batches as f64;
        let mut chi = 0.0;
        let expected: Vec<f64> = exact(weights, most as usize).into_iter().map(|p| p * draws).collect();
        for (subset, (&count, &expected)) in counts.iter().zip(&expected).enumerate() {
            assert!(count == 0 || expected > 0.0, "{weights:?}: subset {subset:b} is impossible");
            chi += if expected > 0.0 { (count as f64 - expected).powi(2) / expected } else { 0.0 };
        }
        let freedom = (expected.iter().filter(|e| **e > 0.0).count() - 1) as f64;
        let found = (chi - freedom) / (2.0 * freedom).sqrt();
        println!("{most} of {weights:?}: {found:.2}");
        assert!(found.abs() < 4.5, "{most} of {weights:?}: {found}");
    }
}

#[test]
fn edges_without_weight_are_never_drawn() {
    // Three of five edges have a positive weight, fewer than the fan-out; the second row has none. `all` takes every
    // edge.
    let edges = (0..10).map(|e| (e, e / 5)).collect();
    let weight = |_, edge: usize| Some([0.0, 2.0, 1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0][edge]);
    let graph = weighted_graph(&[10, 2], &[(0, 1, edges)], weight).unwrap();
    let seeds = [vec![], vec![0, 1]];
    let taken = |fanout| {
        let plan = Plan::uniform(&[fanout], 1);
        let batch = naive::sample(&graph, &plan, &seeds, KEY).unwrap();
        batch.verify(&graph, &plan).unwrap();
        let code = Compiled::new(&graph, plan.clone(), &compiler()).unwrap();
        for mut sampler in [Sampler::new(&graph, plan).unwrap(), Sampler::compiled(&graph, &code).unwrap()] {
            let mut fast = Batch::default();
            sampler.sample(&seeds, KEY, &mut fast).unwrap();
            assert_eq!(fast, batch);
        }
        (batch.blocks[0].eids.clone(), batch.blocks[0].indptr.clone())
    };
    assert_eq!(taken(Weighted(4)), (vec![1, 2, 4], vec![0, 3, 3]));
    assert_eq!(taken(Weighted(3)), (vec![1, 2, 4], vec![0, 3, 3]));
    assert_eq!(taken(Weighted(2)).1, [0, 2, 2]);
    assert_eq!(taken(All).1, [0, 5, 10]);
}

#[test]
fn weights_that_are_none() {
    let edges = || vec![(0, 0), (1, 0)];
    for (bad, said) in
        [(-1.0, "from 1 to 0 has the weight -1"), (f32::NAN, "weight NaN"), (f32::INFINITY, "weight inf")]
    {
        let weight = |_, edge: usize| Some(if edge == 1 { bad } else { 1.0 });
        let error = weighted_graph(&[2], &[(0, 0, edges())], weight).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("`r0`"), "{error}");
    }
    let graph = common::graph(&[2], &[(0, 0, edges())]);
    let plan = Plan::uniform(&[Weighted(1)], 1);
    let error = naive::sample(&graph, &plan, &[vec![0]], KEY).unwrap_err();
    assert_eq!(error.to_string(), "hop 0 draws from relation `r0` by weight, but its edges have none");
    let fast = Sampler::new(&graph, plan).unwrap().sample(&[vec![0]], KEY, &mut Batch::default());
    assert_eq!(fast.unwrap_err(), error);
}

/// The compiler of samplers for this processor.
fn compiler() -> std::sync::Arc<dyn hgnnc_executable::sampler::SamplerCompiler> {
    hgnnc_codegen_cpu::sampler(Default::default()).expect("a processor that Cranelift knows")
}

/// The edges of the lowest ranks, in row order, whatever the key; all of a shorter row.
#[test]
fn the_latest_edges_are_those_of_the_lowest_ranks() {
    let edges = (0..8).map(|e| (e, e / 5)).collect();
    let ranks = |_, edge: usize| Some([3.0, 1.0, 5.0, 2.0, 4.0, 2.0, 1.0, 3.0][edge]);
    let graph = weighted_graph(&[8, 2], &[(0, 1, edges)], ranks).unwrap();
    let seeds = [vec![], vec![0, 1]];
    for (fanout, expected) in [
        (Latest(1), (vec![1, 6], vec![0, 1, 2])),
        (Latest(3), (vec![0, 1, 3, 5, 6, 7], vec![0, 3, 6])),
        (Latest(9), ((0..8).collect(), vec![0, 5, 8])),
    ] {
        let plan = Plan::uniform(&[fanout], 1);
        for batch in 0..3 {
            let key = BatchKey { batch, ..KEY };
            let slow = naive::sample(&graph, &plan, &seeds, key).unwrap();
            slow.verify(&graph, &plan).unwrap();
            assert_eq!((slow.blocks[0].eids.clone(), slow.blocks[0].indptr.clone()), expected, "{fanout}");
            let code = Compiled::new(&graph, plan.clone(), &compiler()).unwrap();
            for mut sampler in [Sampler::new(&graph, plan.clone()).unwrap(), Sampler::compiled(&graph, &code).unwrap()]
            {
                let mut fast = Batch::default();
                sampler.sample(&seeds, key, &mut fast).unwrap();
                assert_eq!(fast, slow, "{fanout}");
            }
        }
    }
}
