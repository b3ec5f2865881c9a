//! Exact samples on small graphs.

mod common;

use common::{KEY, graph};
use hgnnc_sample::Fanout::{All, AtMost};
use hgnnc_sample::{Batch, Compiled, Edges, Plan, SampleError, SampleGraph, Sampler, naive};

fn both(graph: &SampleGraph<'_>, plan: &Plan, seeds: &[Vec<u32>]) -> Batch {
    let mut batch = Batch::default();
    let code = Compiled::new(graph, plan.clone(), &compiler()).unwrap();
    for mut sampler in [Sampler::new(graph, plan.clone()).unwrap(), Sampler::compiled(graph, &code).unwrap()] {
        sampler.sample(seeds, KEY, &mut batch).unwrap();
        assert_eq!(batch, naive::sample(graph, plan, seeds, KEY).unwrap());
    }
    batch.verify(graph, plan).unwrap();
    batch
}

/// Papers 0 to 4 and authors 0 to 2: writes (author to paper), and cites (paper to paper).
fn papers() -> SampleGraph<'static> {
    graph(&[5, 3], &[(1, 0, vec![(0, 0), (1, 0), (1, 1), (2, 3)]), (0, 0, vec![(2, 0), (4, 0), (0, 4), (4, 4)])])
}

#[test]
fn all_neighbours_with_ids_in_the_order_of_their_occurrence() {
    let batch = both(&papers(), &Plan::uniform(&[All, All], 2), &[vec![4, 0], vec![]]);
    // Hop 0: paper 4 has no author, paper 0 has authors 0 and 1. Paper 4 is cited by papers 0 and 4, paper 0 by 2 and
    // 4.
    assert_eq!(batch.known, [[2, 0], [3, 2], [3, 2]]);
    assert_eq!(batch.vertices, [vec![4, 0, 2], vec![0, 1]]);
    // Hop 1: paper 2 has no in-edges; the seeds were sampled in hop 0. Authors are destinations of no relation.
    let [writes, cites] = &batch.blocks[..] else { panic!("two relations") };
    assert_eq!(
        (&writes.indptr[..], &writes.indices[..], &writes.eids[..]),
        (&[0, 0, 2, 2][..], &[0, 1][..], &[0, 1][..])
    );
    assert_eq!(
        (&cites.indptr[..], &cites.indices[..], &cites.eids[..]),
        (&[0, 2, 4, 4][..], &[1, 0, 2, 0][..], &[2, 3, 0, 1][..])
    );
    // Hop 0 is the first two rows.
    assert_eq!((batch.num_dst(1, 0), batch.num_src(1, 0), batch.edges_up_to(1, 0)), (2, 3, 4));
    assert_eq!((batch.num_dst(0, 1), batch.num_src(0, 1), batch.edges_up_to(0, 1)), (3, 2, 2));
}

#[test]
fn a_fanout_for_each_relation_and_hop() {
    let graph = graph(&[9, 1], &[(0, 1, (0..9).map(|v| (v, 0)).collect()), (1, 0, (0..9).map(|v| (0, v)).collect())]);
    let plan = Plan { fanouts: vec![vec![AtMost(4), All], vec![AtMost(9), AtMost(0)]] };
    let batch = both(&graph, &plan, &[vec![], vec![0]]);
    // The vertex of type 1 samples only in hop 0, four of its nine edges; hop 1 has four vertices without in-edges.
    assert_eq!(batch.known, [[0, 1], [4, 1], [4, 1]]);
    assert_eq!((&batch.blocks[0].indptr[..], &batch.blocks[1].indptr[..]), (&[0, 4][..], &[0, 0, 0, 0, 0][..]));
    // Seeds of type 0 reach the vertex of type 1 in hop 0; hop 1 takes its whole row, in row order.
    let batch = both(&graph, &plan, &[vec![6, 2], vec![]]);
    assert_eq!(batch.known, [[2, 0], [2, 1], [9, 1]]);
    assert_eq!(
        (&batch.blocks[1].indices[..], &batch.blocks[0].eids[..]),
        (&[0, 0][..], &[0, 1, 2, 3, 4, 5, 6, 7, 8][..])
    );
    assert_eq!(batch.blocks[0].indices, [2, 3, 1, 4, 5, 6, 0, 7, 8]);
}

#[test]
fn a_vertex_draws_once() {
    // A complete graph of three vertices: those reached by hop 0 are seeds or sample in hop 1, and hop 2 has no
    // vertices.
    let edges = (0..3).flat_map(|v| (0..3).map(move |u| (u, v))).collect();
    let graph = graph(&[3], &[(0, 0, edges)]);
    let one = both(&graph, &Plan::uniform(&[AtMost(2)], 1), &[vec![0, 1, 2]]);
    let many = both(&graph, &Plan::uniform(&[AtMost(2), AtMost(3), All], 1), &[vec![0, 1, 2]]);
    assert_eq!((&many.blocks, &many.vertices), (&one.blocks, &one.vertices));
    assert_eq!(many.known, [[3], [3], [3], [3]]);
}

#[test]
fn equal_edges_are_two_edges() {
    let graph = graph(&[2], &[(0, 0, vec![(1, 0), (1, 0), (1, 0)])]);
    let batch = both(&graph, &Plan::uniform(&[AtMost(2)], 1), &[vec![0]]);
    assert_eq!((&batch.blocks[0].indices[..], &batch.vertices[0][..]), (&[1, 1][..], &[0, 1][..]));
    let edges = &batch.blocks[0].eids;
    assert_ne!(edges[0], edges[1]);
}

#[test]
fn nothing_to_sample() {
    // No seeds, no hops, no relations, isolated seeds.
    let papers = papers();
    assert_eq!(both(&papers, &Plan::uniform(&[All], 2), &[vec![], vec![]]).num_edges(), 0);
    assert_eq!(both(&papers, &Plan::uniform(&[], 2), &[vec![3], vec![1]]).vertices, [[3], [1]]);
    assert_eq!(both(&papers, &Plan::uniform(&[AtMost(2)], 2), &[vec![2], vec![]]).num_edges(), 0);
    let none = SampleGraph::new(vec![3, 0], vec![]).unwrap();
    assert_eq!(both(&none, &Plan::uniform(&[All, All], 0), &[vec![1], vec![]]).vertices, [vec![1], vec![]]);
}

#[test]
fn what_is_wrong_with_seeds_and_plans() {
    let papers = papers();
    let cases: [(Plan, Vec<Vec<u32>>, &str); 5] = [
        (Plan::uniform(&[All], 2), vec![vec![0]], "seeds for 1 vertex types, but the graph has 2"),
        (Plan::uniform(&[All], 2), vec![vec![0, 5], vec![]], "seed 1 of vertex type 0 is 5, but there are 5"),
        (Plan::uniform(&[All], 2), vec![vec![0, 3, 0], vec![]], "seed 0 of vertex type 0 is given more than once"),
        (Plan::uniform(&[All], 2), vec![vec![], vec![2, 2]], "seed 2 of vertex type 1 is given more than once"),
        (Plan::uniform(&[All, All], 1), vec![vec![], vec![]], "hop 0 has 1 fan-outs, but the graph has 2 relations"),
    ];
    for (plan, seeds, said) in cases {
        let mut sampler = Sampler::new(&papers, plan.clone()).unwrap();
        let mut batch = Batch::default();
        let fast: SampleError = sampler.sample(&seeds, KEY, &mut batch).unwrap_err();
        assert!(fast.to_string().contains(said), "{fast}");
        assert_eq!(fast, naive::sample(&papers, &plan, &seeds, KEY).unwrap_err());
        // The sampler still works after an error.
        let seeds = [vec![0], vec![1]];
        if plan.fanouts[0].len() == 2 {
            sampler.sample(&seeds, KEY, &mut batch).unwrap();
            assert_eq!(batch, naive::sample(&papers, &plan, &seeds, KEY).unwrap());
        }
    }
}

#[test]
fn what_is_wrong_with_edges() {
    for (types, (indptr, src), said) in [
        ((0, 2), (&[0, 0][..], &[][..]), "joins vertex types 0 and 2, but there are 2"),
        ((0, 1), (&[0, 1], &[0]), "row offsets"),
        ((0, 1), (&[0, 2, 1, 1], &[0]), "row offsets"),
        ((0, 1), (&[0, 1, 1, 2], &[0]), "row offsets"),
        ((0, 1), (&[0, 0, 1, 1], &[2]), "source 2 is out of range (there are 2)"),
    ] {
        let edges = Edges {
            name: "r".into(),
            src_type: types.0,
            dst_type: types.1,
            indptr: indptr.into(),
            indices: src.into(),
            weights: None,
        };
        let error = SampleGraph::new(vec![2, 3], vec![edges]).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(SampleGraph::new(vec![1 << 31], vec![]).unwrap_err().to_string().contains("at most 2^30"));
}

#[test]
fn a_graph_that_is_no_relation_and_is_not_copied() {
    // Any CSC is accepted; borrowed sources are not copied.
    let (indptr, src) = ([0, 2, 2, 3], [1, 2, 0]);
    let edges = Edges {
        name: "g".into(),
        src_type: 0,
        dst_type: 0,
        indptr: (&indptr).into(),
        indices: (&src).into(),
        weights: None,
    };
    let graph = SampleGraph::new(vec![3], vec![edges]).unwrap();
    assert!(std::ptr::eq(graph.relations()[0].sources(), &src[..]));
    let batch = both(&graph, &Plan::uniform(&[All], 1), &[vec![0]]);
    assert_eq!((&batch.blocks[0].indptr[..], &batch.vertices[0][..]), (&[0, 2][..], &[0, 1, 2][..]));
}

/// The compiler of samplers for this processor.
fn compiler() -> std::sync::Arc<dyn hgnnc_executable::sampler::SamplerCompiler> {
    hgnnc_codegen_cpu::sampler(Default::default()).expect("a processor that Cranelift knows")
}
