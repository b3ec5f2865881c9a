//! Random walks along metapaths: exact results, equality of fast and naive walks, and uniformity.

mod common;

use common::{KEY, deviation, graph, owners, random_graph, sample_by_owners, seeds};
use hgnnc_ir::random::bits;
use hgnnc_sample::Fanout::{AtMost, Walks as ByWalks};
use hgnnc_sample::{
    Batch, BatchKey, Compiled, Edges, HistoricalVertices, Plan, SampleGraph, Sampler, WalkPlan, Walker, Walks, naive,
    walk_each,
};

fn both(graph: &SampleGraph<'_>, plan: &WalkPlan, seeds: &[u32]) -> Walks {
    let mut walks = Walks::default();
    Walker::new(graph, plan.clone()).unwrap().walk(seeds, KEY, &mut walks).unwrap();
    assert_eq!(walks, naive::walk(graph, plan, seeds, KEY).unwrap());
    walks
}

/// Papers 0 to 3 and authors 0 to 2: writes (author to paper) and its reverse. Paper 3 has no author.
fn papers() -> SampleGraph<'static> {
    let writes = vec![(0, 0), (0, 1), (1, 1), (1, 2)];
    graph(&[4, 3], &[(1, 0, writes.clone()), (0, 1, writes.into_iter().map(|(a, p)| (p, a)).collect())])
}

#[test]
fn where_walks_end() {
    // One step: papers 0 and 2 have one author each, with all visits; paper 3 has none, and its walks end early.
    let walks = both(&papers(), &WalkPlan { metapath: vec![0], walks: 5, top_k: 9 }, &[2, 3, 0]);
    assert_eq!((&walks.vertices[..], &walks.indptr[..]), (&[1, 0][..], &[0, 1, 1, 2][..]));
    assert_eq!((&walks.indices[..], &walks.visits[..]), (&[0, 1][..], &[5, 5][..]));
    // Two steps, to papers of the same author: from paper 0 to 0 and 1. Seeds come first among the vertices, and edges
    // of a seed ascend by vertex.
    let walks = both(&papers(), &WalkPlan { metapath: vec![0, 1], walks: 100, top_k: 9 }, &[2, 3, 0]);
    assert_eq!((&walks.vertices[..], &walks.indptr[..]), (&[2, 3, 0, 1][..], &[0, 2, 2, 4][..]));
    assert_eq!(walks.indices, [3, 0, 2, 3]);
    assert_eq!([walks.visits[0] + walks.visits[1], walks.visits[2] + walks.visits[3]], [100, 100]);
    assert!(walks.visits.iter().all(|&n| n > 20), "{:?}", walks.visits);
}

#[test]
fn the_most_visited_are_kept() {
    // Of ten in-edges of vertex 0 of type 1 six come from source 4, three from 7, and one from 1.
    let edges = [4, 7, 4, 1, 4, 7, 4, 4, 7, 4].map(|s| (s, 0)).to_vec();
    let graph = graph(&[9, 1], &[(0, 1, edges)]);
    let plan = |walks, top_k| WalkPlan { metapath: vec![0], walks, top_k };
    assert_eq!(both(&graph, &plan(1000, 1), &[0]).vertices, [4]);
    assert_eq!(both(&graph, &plan(1000, 2), &[0]).vertices, [4, 7]);
    assert_eq!(both(&graph, &plan(1000, 3), &[0]).vertices, [1, 4, 7]);
    // Nothing is kept, or there are no walks.
    for plan in [plan(10, 0), plan(0, 10)] {
        assert_eq!(both(&graph, &plan, &[0]), Walks { indptr: vec![0, 0], ..Walks::default() });
    }
    // One walk each: ties go to smaller ids.
    let sources: Vec<(u32, u32)> = (0..50).map(|s| (s, 0)).collect();
    let many = common::graph(&[50, 1], &[(0, 1, sources)]);
    let all = both(&many, &plan(60, 60), &[0]);
    let [few, visits] = [both(&many, &plan(60, 20), &[0]), all.clone()];
    let mut ranked: Vec<(u32, u32)> = visits.vertices.iter().copied().zip(visits.visits).collect();
    ranked.sort_by_key(|&(v, n)| (std::cmp::Reverse(n), v));
    let mut expected: Vec<u32> = ranked[..20].iter().map(|&(v, _)| v).collect();
    expected.sort_unstable();
    assert_eq!(few.vertices, expected);
    assert!(ranked[19].1 == ranked[20].1 && all.vertices.len() > 25, "no tie at the limit: {ranked:?}");
}

/// Metapaths of up to four steps that exist.
fn metapaths(graph: &SampleGraph<'_>, seed: u64) -> Vec<Vec<usize>> {
    let mut at = 0;
    let mut random = |n: usize| {
        at += 1;
        ((u64::from(bits(seed, at)) * n as u64) >> 32) as usize
    };
    let relations = graph.relations();
    let path = |length: usize| {
        let mut path = vec![random(relations.len())];
        while path.len() < length {
            let at = relations[path[path.len() - 1]].src_type;
            let next: Vec<usize> = (0..relations.len()).filter(|&r| relations[r].dst_type == at).collect();
            path.push(next[random(next.len())]);
        }
        path
    };
    [1, 2, 2, 3, 4].map(path).to_vec()
}

#[test]
fn fast_is_naive_on_random_graphs() {
    let mut visits = 0;
    for seed in 0..30 {
        let graph = random_graph(seed);
        for metapath in metapaths(&graph, seed) {
            let count = graph.counts()[graph.relations()[metapath[0]].dst_type] as u32;
            for (walks, top_k) in [(1, 1), (10, 10), (10, 3), (25, 5), (300, 20)] {
                let plan = WalkPlan { metapath: metapath.clone(), walks, top_k };
                let mut walker = Walker::new(&graph, plan.clone()).unwrap();
                let mut fast = Walks::default();
                // The walker is reused: no state of a batch leaks into the next.
                for (batch, step) in [(0, 1), (1, 7), (2, 1000)] {
                    let key = BatchKey { batch, ..KEY };
                    let seeds: Vec<u32> = (0..count).rev().step_by(step).collect();
                    walker.walk(&seeds, key, &mut fast).unwrap();
                    let expected = naive::walk(&graph, &plan, &seeds, key).unwrap();
                    assert!(fast == expected, "graph {seed}, {plan:?}, batch {batch}");
                    visits += expected.visits.iter().sum::<u32>();
                }
            }
        }
    }
    assert!(visits > 1_000_000, "{visits}");
}

#[test]
fn walks_of_a_seed_depend_on_no_other_seed_and_no_thread() {
    let graph = papers();
    let plan = WalkPlan { metapath: vec![0, 1], walks: 30, top_k: 2 };
    let batches: Vec<Vec<u32>> = (0..40).map(|i| if i % 2 == 0 { vec![1, 2] } else { vec![3, 2, 0] }).collect();
    let expected: Vec<Walks> = batches.iter().map(|seeds| naive::walk(&graph, &plan, seeds, KEY).unwrap()).collect();
    // The row of paper 2 is the same in both kinds of batches.
    let row = |walks: &Walks, i: usize| {
        let row = walks.indptr[i] as usize..walks.indptr[i + 1] as usize;
        let vertex = |&id: &u32| walks.vertices[id as usize];
        (walks.indices[row.clone()].iter().map(vertex).collect::<Vec<u32>>(), walks.visits[row].to_vec())
    };
    assert_eq!(row(&expected[0], 1), row(&expected[1], 1));
    for threads in [1, 2, 5] {
        let pair = |_| (Walker::new(&graph, plan.clone()).unwrap(), Walks::default());
        let mut walkers: Vec<_> = (0..threads).map(pair).collect();
        let done = |i: usize, walks: &Walks| assert!(*walks == expected[i], "batch {i} of {threads} threads");
        walk_each(&mut walkers, batches.len(), |i| (&batches[i][..], KEY), done).unwrap();
    }
}

#[test]
fn every_end_is_as_probable_as_its_edges_make_it() {
    // 200 seeds, each with 13 in-edges from middle vertices, each of which has seven in-edges: 91 equally probable
    // ends.
    let (seeds, wide, narrow) = (200u32, 13, 7);
    let first = (0..seeds * wide).map(|e| (e, e / wide)).collect();
    let second = (0..seeds * wide * narrow).map(|e| (e, e / narrow)).collect();
    let counts = [seeds, seeds * wide, seeds * wide * narrow].map(|n| n as usize);
    let graph = graph(&counts, &[(1, 0, first), (2, 1, second)]);
    let plan = WalkPlan { metapath: vec![0, 1], walks: 20, top_k: 20 };
    let mut walker = Walker::new(&graph, plan).unwrap();
    let (mut walks, all) = (Walks::default(), (0..seeds).collect::<Vec<u32>>());
    let (mut by_end, mut repeated) = (vec![0u64; (wide * narrow) as usize], 0u64);
    for batch in 0..200 {
        walker.walk(&all, BatchKey { batch, ..KEY }, &mut walks).unwrap();
        for (&id, &visits) in walks.indices.iter().zip(&walks.visits) {
            by_end[(walks.vertices[id as usize] % (wide * narrow)) as usize] += u64::from(visits);
            repeated += u64::from(visits * (visits - 1) / 2);
        }
    }
    let total: u64 = by_end.iter().sum();
    assert_eq!(total, 200 * 200 * 20);
    let found = deviation(&by_end, 1.0);
    println!("{found:.2}");
    assert!(found.abs() < 4.5, "{found}");
    // Walks are independent: two walks of a seed share their end with probability 1/91.
    let pairs = 200.0 * 200.0 * 190.0;
    let expected = pairs / 91.0;
    let off = (repeated as f64 - expected) / (expected * (1.0 - 1.0 / 91.0)).sqrt();
    println!("{repeated} of {expected:.0}: {off:.2}");
    assert!(off.abs() < 4.5, "{repeated} of {expected}");
}

#[test]
fn other_keys_and_metapaths_walk_elsewhere() {
    let edges: Vec<(u32, u32)> = (0..400).map(|e| (e % 20, e / 20)).collect();
    let twins = graph(&[20], &[(0, 0, edges.clone()), (0, 0, edges)]);
    let seeds: Vec<u32> = (0..20).collect();
    let walk = |metapath: &[usize], key| {
        let plan = WalkPlan { metapath: metapath.to_vec(), walks: 4, top_k: 4 };
        naive::walk(&twins, &plan, &seeds, key).unwrap()
    };
    let base = walk(&[0, 0], KEY);
    for other in [BatchKey { seed: 8, ..KEY }, BatchKey { epoch: 3, ..KEY }, BatchKey { batch: 6, ..KEY }] {
        assert_ne!(base, walk(&[0, 0], other), "{other:?}");
    }
    // Both relations have the same complete set of edges.
    for metapath in [&[0, 1][..], &[1, 0], &[0], &[0, 0, 0]] {
        assert_ne!(base, walk(metapath, KEY), "{metapath:?}");
    }
}

#[test]
fn what_is_wrong_with_walks() {
    let papers = papers();
    for (metapath, seeds, said) in [
        (vec![], vec![0], "a walk needs a metapath of at least one relation"),
        (vec![0, 2], vec![0], "step 1 of the metapath is relation 2, but the graph has 2"),
        (
            vec![0, 0],
            vec![0],
            "step 1 of the metapath is relation `r0` into vertex type 0, but the step before leads to",
        ),
        (vec![0, 1], vec![0, 4], "seed 1 of vertex type 0 is 4, but there are 4 vertices"),
        (vec![0, 1], vec![1, 1], "seed 1 of vertex type 0 is given more than once"),
        (vec![0], vec![1, 2, 1], "seed 1 of vertex type 0 is given more than once"),
    ] {
        let plan = WalkPlan { metapath, walks: 3, top_k: 3 };
        let naive = naive::walk(&papers, &plan, &seeds, KEY).unwrap_err().to_string();
        assert!(naive.contains(said), "{naive}");
        let fast = match Walker::new(&papers, plan) {
            Ok(mut walker) => walker.walk(&seeds, KEY, &mut Walks::default()).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(fast, naive);
    }
}

/// The edges of a relation of another graph.
fn edges_of(graph: &SampleGraph<'_>, r: usize) -> Edges<'static> {
    let relation = &graph.relations()[r];
    let count = graph.counts()[relation.dst_type] as u32;
    let starts = (0..count).map(|v| graph.in_edges(r, v).start as u64);
    let indptr: Vec<u64> = starts.chain([relation.sources().len() as u64]).collect();
    Edges {
        name: relation.name.clone().into(),
        src_type: relation.src_type,
        dst_type: relation.dst_type,
        indptr: indptr.into(),
        indices: relation.sources().to_vec().into(),
        weights: None,
    }
}

/// The relations of a graph, and after them a relation without edges for each metapath of two of them.
fn with_paths(graph: &SampleGraph<'_>) -> SampleGraph<'static> {
    let n = graph.relations().len();
    let mut edges: Vec<Edges<'static>> = (0..n).map(|r| edges_of(graph, r)).collect();
    let mut paths = vec![None; n];
    for first in 0..n {
        for second in (0..n).filter(|&s| graph.relations()[s].dst_type == graph.relations()[first].src_type) {
            let (src_type, dst_type) = (graph.relations()[second].src_type, graph.relations()[first].dst_type);
            let indptr = vec![0; graph.counts()[dst_type] + 1];
            edges.push(Edges {
                name: format!("path {first} {second}").into(),
                src_type,
                dst_type,
                indptr: indptr.into(),
                indices: vec![].into(),
                weights: None,
            });
            paths.push(Some(vec![first, second]));
        }
    }
    let steps = (0..n).map(|r| edges_of(graph, r)).collect();
    SampleGraph::new(graph.counts().to_vec(), edges).unwrap().with_paths(steps, paths).unwrap()
}

#[test]
fn walks_are_a_kind_of_fanout() {
    let mut found = 0;
    for seed in 0..12 {
        let relations = random_graph(seed);
        let (graph, n) = (with_paths(&relations), relations.relations().len());
        let paths = graph.relations().len() - n;
        let hop = |few, walks, top_k| {
            let own = std::iter::repeat_n(AtMost(few), n);
            own.chain(std::iter::repeat_n(ByWalks { walks, top: top_k }, paths)).collect()
        };
        // Few and many walks, all kept and few, no walks, and more walks per seed than a group holds.
        for fanouts in [vec![hop(2, 10, 4)], vec![hop(0, 3, 3), hop(5, 300, 2)], vec![hop(1, 0, 5), hop(1, 5, 0)]] {
            let plan = Plan { fanouts };
            let code = Compiled::new(&graph, plan.clone(), &compiler()).unwrap();
            let mut batch = Batch::default();
            let mut samplers = [Sampler::new(&graph, plan.clone()).unwrap(), Sampler::compiled(&graph, &code).unwrap()];
            for step in [7, 1000] {
                let seeds = seeds(&graph, step);
                let expected = naive::sample(&graph, &plan, &seeds, KEY).unwrap();
                expected.verify(&graph, &plan).unwrap_or_else(|e| panic!("graph {seed}, {plan:?}: {e}"));
                for sampler in &mut samplers {
                    sampler.sample(&seeds, KEY, &mut batch).unwrap();
                    assert!(batch == expected, "graph {seed}, {plan:?}");
                }
                sample_by_owners((&graph, &plan), &mut owners(&graph, &plan), (&seeds, KEY), &mut batch);
                assert!(batch == expected, "graph {seed}, {plan:?}, by owners");
                // Half of the vertices are historical.
                let mut historical = HistoricalVertices::none(graph.counts().len());
                for (vertex_type, &count) in graph.counts().iter().enumerate() {
                    (0..count as u32).step_by(2).for_each(|vertex| historical.add(vertex_type, vertex));
                }
                let rested = naive::sample_with_historical(&graph, &plan, &seeds, KEY, &historical).unwrap();
                rested
                    .verify_with_historical(&graph, &plan, &historical)
                    .unwrap_or_else(|e| panic!("graph {seed}, {plan:?}: {e}"));
                for sampler in &mut samplers {
                    sampler.sample_with_historical(&seeds, KEY, &historical, &mut batch).unwrap();
                    assert!(batch == rested, "graph {seed}, {plan:?}, historical");
                }
                found += expected.blocks[n..].iter().map(|block| block.num_edges()).sum::<usize>();
            }
        }
    }
    assert!(found > 10_000, "{found}");
}

#[test]
fn ends_of_walks_are_vertices_of_the_batch() {
    // Papers 0 and 1 have author 0, papers 1 and 2 author 1; from paper 0, walks end at 0 and 1; from paper 3 they end
    // early.
    let papers = with_paths(&papers());
    let path = papers.relations().iter().position(|r| r.name == "path 0 1").unwrap();
    let mut fanouts = vec![AtMost(0); papers.relations().len()];
    fanouts[path] = ByWalks { walks: 100, top: 9 };
    let plan = Plan { fanouts: vec![fanouts] };
    let batch = naive::sample(&papers, &plan, &[vec![3, 0], vec![]], KEY).unwrap();
    assert_eq!((&batch.vertices[0][..], &batch.blocks[path].indptr[..]), (&[3, 0, 1][..], &[0, 0, 2][..]));
    assert_eq!((&batch.blocks[path].indices[..], batch.blocks[path].eids.iter().sum::<u32>()), (&[1, 2][..], 100));
    // A metapath joins the endpoint types of its relation; only a relation with a metapath can be sampled by walks.
    let relations = [edges_of(&papers, 0), edges_of(&papers, 1)];
    let wrong = SampleGraph::new(vec![4, 3], relations.to_vec()).unwrap();
    let error = wrong.with_paths(relations.to_vec(), vec![Some(vec![0, 1])]).unwrap_err().to_string();
    assert!(error.contains("`r0`: a path from vertex type 0 to 0"), "{error}");
    let plan = Plan::uniform(&[ByWalks { walks: 1, top: 1 }], papers.relations().len());
    let error = naive::sample(&papers, &plan, &[vec![0], vec![]], KEY).unwrap_err();
    assert_eq!(error.to_string(), "hop 0 walks along relation `r0`, which has no path");
}

/// The compiler of samplers for this processor.
fn compiler() -> std::sync::Arc<dyn hgnnc_executable::sampler::SamplerCompiler> {
    hgnnc_codegen_cpu::sampler(Default::default()).expect("a processor that Cranelift knows")
}
