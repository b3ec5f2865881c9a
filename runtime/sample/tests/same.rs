//! The fast samplers, generated and in Rust, are bit-equal to the naive one.

mod common;

use common::{KEY, busy_graph, graph_of_many_relations, owners, random_graph, sample_by_owners, seeds};
use hgnnc_sample::Fanout::{All, AtMost, Weighted};
use hgnnc_sample::{Batch, BatchKey, Compiled, HistoricalVertices, Plan, SampleGraph, Sampler, naive, sample_each};

/// Fan-outs below and above the limits of the linear search and of the register bitmap, different per relation.
fn plans(graph: &SampleGraph<'_>) -> Vec<Plan> {
    let n = graph.relations().len();
    let mixed =
        |hop: usize| (0..n).map(|r| [All, AtMost(0), AtMost(1), AtMost(7), AtMost(40)][(hop + r) % 5]).collect();
    vec![
        Plan::uniform(&[], n),
        Plan::uniform(&[All, All], n),
        Plan::uniform(&[AtMost(3), AtMost(2), AtMost(1)], n),
        Plan::uniform(&[AtMost(10), AtMost(10)], n),
        Plan::uniform(&[AtMost(32), AtMost(33)], n),
        Plan::uniform(&[AtMost(100), AtMost(u32::MAX)], n),
        Plan::uniform(&[Weighted(3), Weighted(0), Weighted(60)], n),
        Plan::uniform(&[Weighted(1), AtMost(3), Weighted(u32::MAX)], n),
        Plan { fanouts: (0..3).map(mixed).collect() },
    ]
}

#[test]
fn fast_ones_are_naive_on_random_graphs() {
    let mut edges = 0;
    let graphs = (0..30).map(random_graph).chain((0..3).map(|seed| graph_of_many_relations(seed, 20)));
    for (seed, graph) in graphs.enumerate() {
        for plan in plans(&graph) {
            let code = Compiled::new(&graph, plan.clone(), &compiler()).unwrap();
            let mut portable = Sampler::new(&graph, plan.clone()).unwrap();
            let mut generated = Sampler::compiled(&graph, &code).unwrap();
            let mut batch = Batch::default();
            // Samplers and batch are reused: no state of a batch leaks into the next.
            for (number, step) in [(0, 1), (1, 7), (2, 1000), (3, 29), (4, 2)] {
                let key = BatchKey { batch: number, ..KEY };
                let seeds = seeds(&graph, step);
                let expected = naive::sample(&graph, &plan, &seeds, key).unwrap();
                expected.verify(&graph, &plan).unwrap_or_else(|e| panic!("graph {seed}, {plan:?}: {e}"));
                for (kind, sampler) in [("generated", &mut generated), ("portable", &mut portable)] {
                    sampler.sample(&seeds, key, &mut batch).unwrap();
                    assert!(batch == expected, "{kind}, graph {seed}, {plan:?}, batch {number}");
                }
                edges += expected.num_edges();
            }
        }
    }
    assert!(edges > 100_000, "{edges}");
}

#[test]
fn batches_whose_edges_others_draw_are_naive() {
    for (seed, graph) in (0..20).map(random_graph).enumerate() {
        for plan in plans(&graph) {
            let (mut owners, mut batch) = (owners(&graph, &plan), Batch::default());
            for (number, step) in [(0, 1), (1, 7), (2, 29)] {
                let key = BatchKey { batch: number, ..KEY };
                let seeds = seeds(&graph, step);
                sample_by_owners((&graph, &plan), &mut owners, (&seeds, key), &mut batch);
                let expected = naive::sample(&graph, &plan, &seeds, key).unwrap();
                assert!(batch == expected, "graph {seed}, {plan:?}, batch {number}");
            }
        }
    }
}

/// Historical vertices: none, every third one, all of the first type, and all.
#[test]
fn fast_ones_are_naive_while_vertices_rest() {
    let (mut fewer, mut compared) = (0, 0);
    for seed in 0..20 {
        let graph = random_graph(seed);
        let historical = |rests: &dyn Fn(usize, u32) -> bool| {
            let mut historical = HistoricalVertices::none(graph.counts().len());
            for (vertex_type, &count) in graph.counts().iter().enumerate() {
                (0..count as u32).filter(|&v| rests(vertex_type, v)).for_each(|v| historical.add(vertex_type, v));
            }
            historical
        };
        let each = [
            historical(&|_, _| false),
            historical(&|_, vertex| vertex % 3 == 0),
            historical(&|vertex_type, _| vertex_type == 0),
            historical(&|_, _| true),
        ];
        for plan in plans(&graph) {
            let code = Compiled::new(&graph, plan.clone(), &compiler()).unwrap();
            let mut portable = Sampler::new(&graph, plan.clone()).unwrap();
            let mut generated = Sampler::compiled(&graph, &code).unwrap();
            let mut batch = Batch::default();
            for (number, step) in [(0, 29), (1, 7)] {
                let key = BatchKey { batch: number, ..KEY };
                let seeds = seeds(&graph, step);
                let all = naive::sample(&graph, &plan, &seeds, key).unwrap();
                for (which, historical) in each.iter().enumerate() {
                    let expected = naive::sample_with_historical(&graph, &plan, &seeds, key, historical).unwrap();
                    let checked = expected.verify_with_historical(&graph, &plan, historical);
                    checked.unwrap_or_else(|e| panic!("graph {seed}, {plan:?}: {e}"));
                    for (kind, sampler) in [("generated", &mut generated), ("portable", &mut portable)] {
                        sampler.sample_with_historical(&seeds, key, historical, &mut batch).unwrap();
                        assert!(batch == expected, "{kind}, graph {seed}, {plan:?}, batch {number}, {which} rest");
                    }
                    match which {
                        0 => assert!(expected == all),
                        3 if plan.num_hops() > 0 => {
                            let before = naive::sample(
                                &graph,
                                &Plan { fanouts: plan.fanouts[..plan.num_hops() - 1].to_vec() },
                                &seeds,
                                key,
                            );
                            assert_eq!(expected.num_edges(), before.unwrap().num_edges());
                        }
                        _ => {}
                    }
                    fewer += usize::from(expected.num_edges() < all.num_edges());
                    compared += 1;
                }
            }
        }
    }
    assert!(fewer > compared / 3, "{fewer} of {compared}");
}

#[test]
fn batches_do_not_depend_on_threads() {
    let graph = busy_graph();
    let plan = Plan::uniform(&[AtMost(5), AtMost(4)], graph.relations().len());
    let batches: Vec<Vec<Vec<u32>>> = (1..40).map(|step| seeds(&graph, step)).collect();
    let job = |i: usize| (&batches[i][..], BatchKey { batch: i as u64, ..KEY });
    let expected: Vec<Batch> = (0..batches.len())
        .map(|i| {
            let (seeds, key) = job(i);
            naive::sample(&graph, &plan, seeds, key).unwrap()
        })
        .collect();
    let code = Compiled::new(&graph, plan, &compiler()).unwrap();
    for threads in [1, 2, 5] {
        let pair = |_| (Sampler::compiled(&graph, &code).unwrap(), Batch::default());
        let mut samplers: Vec<_> = (0..threads).map(pair).collect();
        let seen = std::sync::Mutex::new(vec![0; batches.len()]);
        let done = |i: usize, batch: &Batch| {
            assert!(*batch == expected[i], "batch {i} of {threads} threads");
            seen.lock().unwrap()[i] += 1;
        };
        sample_each(&mut samplers, batches.len(), job, done).unwrap();
        assert!(seen.into_inner().unwrap().iter().all(|&n| n == 1));
    }
}

#[test]
fn other_keys_draw_others() {
    let graph = busy_graph();
    let plan = Plan::uniform(&[AtMost(4)], graph.relations().len());
    let seeds = seeds(&graph, 1);
    let edges = |key| naive::sample(&graph, &plan, &seeds, key).unwrap().blocks;
    let base = edges(KEY);
    assert_eq!(base, edges(KEY));
    for other in [BatchKey { seed: 8, ..KEY }, BatchKey { epoch: 3, ..KEY }, BatchKey { batch: 6, ..KEY }] {
        assert_ne!(base, edges(other), "{other:?}");
    }
    // Relations have independent random numbers: two with the same edges give different samples.
    let edges: Vec<(u32, u32)> = (0..400).map(|e| (e % 20, e / 20)).collect();
    let twins = common::graph(&[20, 20], &[(0, 1, edges.clone()), (0, 1, edges)]);
    let batch = naive::sample(&twins, &Plan::uniform(&[AtMost(3)], 2), &[vec![], (0..20).collect()], KEY).unwrap();
    assert_ne!(batch.blocks[0].eids, batch.blocks[1].eids);
}

#[test]
fn a_longer_plan_begins_as_a_shorter_one() {
    // The graph of hops up to h is that of the plan with h hops: rows, edges, ids and vertices.
    let mut rows = 0;
    for seed in 0..30 {
        let graph = random_graph(seed);
        let all = plans(&graph).pop().unwrap();
        let seeds = seeds(&graph, 50);
        let whole = naive::sample(&graph, &all, &seeds, KEY).unwrap();
        for hops in 1..=all.num_hops() {
            let plan = Plan { fanouts: all.fanouts[..hops].to_vec() };
            let part = naive::sample(&graph, &plan, &seeds, KEY).unwrap();
            assert_eq!(part.known, whole.known[..=hops]);
            for (r, block) in part.blocks.iter().enumerate() {
                let (num_dst, edges) = (whole.num_dst(r, hops - 1), whole.edges_up_to(r, hops - 1));
                assert_eq!(block.indptr, whole.blocks[r].indptr[..=num_dst]);
                assert_eq!(
                    (&block.indices[..], &block.eids[..]),
                    (&whole.blocks[r].indices[..edges], &whole.blocks[r].eids[..edges])
                );
                rows += num_dst;
            }
        }
    }
    assert!(rows > 10_000, "{rows}");
}

/// The compiler of samplers for this processor.
fn compiler() -> std::sync::Arc<dyn hgnnc_executable::sampler::SamplerCompiler> {
    hgnnc_codegen_cpu::sampler(Default::default()).expect("a processor that Cranelift knows")
}
