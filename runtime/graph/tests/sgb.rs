//! Semantic graphs against naive products, and the errors of the build.

use std::collections::BTreeMap;

use hgnnc_dataset::{Dataset, RelationData, Step, VertexTypeData};
use hgnnc_graph::{
    DegreeCounts, Loops, MetapathOptions, Middle, NO_ORIGINAL, RelationOptions, SemanticGraph, SemanticGraphs, SgbError,
};
use proptest::prelude::*;

type Edges = Vec<(u32, u32)>;

/// A dataset of vertex types with `counts` vertices and relations `(src, dst, edges)`.
fn dataset(counts: &[usize], relations: &[(usize, usize, Edges)]) -> Dataset {
    Dataset {
        folder: "".into(),
        name: "tiny".into(),
        title: None,
        generator: None,
        vertex_types: counts
            .iter()
            .enumerate()
            .map(|(i, &count)| VertexTypeData { name: format!("t{i}"), count, ..Default::default() })
            .collect(),
        relations: relations
            .iter()
            .enumerate()
            .map(|(i, (src, dst, edges))| RelationData {
                name: format!("r{i}"),
                src: *src,
                dst: *dst,
                src_ids: edges.iter().map(|e| e.0).collect(),
                dst_ids: edges.iter().map(|e| e.1).collect(),
                ..Default::default()
            })
            .collect(),
        labels: vec![],
        splits: vec![],
        link_splits: vec![],
        metapaths: vec![],
    }
}

/// Number of paths for each (start, end), by following every edge.
fn naive(dataset: &Dataset, steps: &[Step]) -> BTreeMap<(u32, u32), u64> {
    let start = dataset.step_ends(steps[0]).0;
    let mut paths: BTreeMap<(u32, u32), u64> =
        (0..dataset.vertex_types[start].count as u32).map(|v| ((v, v), 1)).collect();
    for step in steps {
        let r = &dataset.relations[step.relation];
        let mut next = BTreeMap::new();
        for (&(s, at), &n) in &paths {
            for (&u, &v) in r.src_ids.iter().zip(&r.dst_ids) {
                let (from, to) = if step.reverse { (v, u) } else { (u, v) };
                if from == at {
                    *next.entry((s, to)).or_insert(0) += n;
                }
            }
        }
        paths = next;
    }
    paths
}

/// (source, destination) of each edge with its count, in source order.
fn listed(graph: &SemanticGraph) -> BTreeMap<(u32, u32), u64> {
    let counts = graph.counts.as_ref();
    let edges = graph.csc.indices.iter().zip(graph.edge_dst());
    edges.enumerate().map(|(e, (&s, d))| ((s, d), counts.map_or(1, |c| c[e] as u64))).collect()
}

/// Vertex counts, relations between random types, and a random walk over the schema. The third type may be empty.
fn case() -> impl Strategy<Value = (Dataset, Vec<Step>)> {
    let counts = (1..7usize, 1..9usize, 0..4usize).prop_map(|(a, b, c)| vec![a, b, c]);
    counts.prop_flat_map(|counts| {
        let relation = |counts: Vec<usize>| {
            (0..3usize, 0..3usize).prop_flat_map(move |(s, d)| {
                let (ns, nd) = (counts[s] as u32, counts[d] as u32);
                let most = if ns == 0 || nd == 0 { 0 } else { 24 };
                let edge = (0..ns.max(1), 0..nd.max(1));
                (Just(s), Just(d), proptest::collection::vec(edge, 0..=most))
            })
        };
        let relations = proptest::collection::vec(relation(counts.clone()), 1..5);
        (Just(counts), relations, proptest::collection::vec(any::<u32>(), 1..6)).prop_map(
            |(counts, relations, choices)| {
                let dataset = dataset(&counts, &relations);
                let all: Vec<Step> = (0..relations.len()).flat_map(|r| [Step::forward(r), Step::reverse(r)]).collect();
                let mut steps: Vec<Step> = Vec::new();
                for choice in choices {
                    let fits: Vec<Step> = all
                        .iter()
                        .copied()
                        .filter(|&s| steps.last().is_none_or(|&l| dataset.step_ends(l).1 == dataset.step_ends(s).0))
                        .collect();
                    // The step just taken can always be reversed, so the list is not empty.
                    steps.push(fits[choice as usize % fits.len()]);
                }
                (dataset, steps)
            },
        )
    })
}

/// Two ends of a range of vertices, whatever there are of them.
fn range(count: usize, ends: [usize; 2]) -> std::ops::Range<usize> {
    let ends = ends.map(|end| end % (count + 1));
    ends[0].min(ends[1])..ends[0].max(ends[1])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_part_has_the_edges_of_its_vertices_as_the_whole_graph_has_them(
        (dataset, steps) in case(),
        ends in any::<[[usize; 2]; 2]>(),
    ) {
        let step = steps[0];
        let types = <[usize; 2]>::from(dataset.step_ends(step));
        let counts = types.map(|of| dataset.vertex_types[of].count);
        let own = [range(counts[0], ends[0]), range(counts[1], if types[0] == types[1] { ends[0] } else { ends[1] })];
        let graphs = SemanticGraphs::new(&dataset);
        for loops in [Loops::Kept, Loops::Added, Loops::Removed] {
            if loops == Loops::Added && types[0] != types[1] {
                continue;
            }
            let options = RelationOptions { reverse: step.reverse, self_loops: loops == Loops::Added, dedup: false };
            let mut whole = graphs.relation(step.relation, options).unwrap();
            if loops == Loops::Removed && types[0] == types[1] {
                whole = whole.without_self_loops();
            }
            // Edges (v, v) between types that differ are no loops.
            let loops = if types[0] == types[1] { loops } else { Loops::Kept };
            let (graph, part) = graphs.relation_at(step, loops, &own).unwrap();
            graph.verify().map_err(TestCaseError::fail)?;
            prop_assert_eq!(part.num_edges, whole.num_edges() as u64);

            let destinations = whole.edge_dst();
            let is_own = |&edge: &usize| {
                own[0].contains(&(whole.csc.indices[edge] as usize)) || own[1].contains(&(destinations[edge] as usize))
            };
            let kept: Vec<usize> = (0..whole.num_edges()).filter(is_own).collect();
            let numbers: Vec<u32> = kept.iter().map(|&edge| edge as u32).collect();
            prop_assert_eq!(&part.numbers, &numbers);
            let taken = |all: &[u32]| kept.iter().map(|&edge| all[edge]).collect::<Vec<_>>();
            prop_assert_eq!(&graph.csc.indices[..], taken(&whole.csc.indices));
            prop_assert_eq!(graph.edge_dst(), taken(&destinations));
            let original = whole.original.as_deref().map(taken);
            prop_assert_eq!(graph.original.as_ref(), original.as_ref());

            // The place of an edge in its row.
            let mut rank = vec![0; whole.num_edges()];
            for row in whole.csr.indptr.windows(2) {
                (0..).zip(row[0]..row[1]).for_each(|(at, edge)| rank[whole.csr.eids[edge as usize] as usize] = at);
            }
            for vertex in 0..whole.num_dst {
                let first = graph.in_edges(vertex).next().map(|edge| part.numbers[edge] - whole.csc.indptr[vertex] as u32);
                prop_assert_eq!(part.before[0][vertex], first.unwrap_or(part.before[0][vertex]));
            }
            for vertex in 0..whole.num_src {
                let first = graph.out_edges(vertex).first().map(|&edge| rank[part.numbers[edge as usize] as usize]);
                prop_assert_eq!(part.before[1][vertex], first.unwrap_or(part.before[1][vertex]));
            }
            let with_edges = |starts: &[u64]| starts.windows(2).filter(|row| row[0] < row[1]).count() as u64;
            prop_assert_eq!(part.with_edges, [with_edges(&whole.csc.indptr), with_edges(&whole.csr.indptr)]);
            prop_assert_eq!(part.most_edges, [whole.max_in_degree() as u64, whole.max_out_degree() as u64]);
        }
    }

    #[test]
    fn products_agree_with_following_every_path((dataset, steps) in case()) {
        let graphs = SemanticGraphs::new(&dataset);
        let mut paths = naive(&dataset, &steps);
        let instances: u64 = paths.values().sum();
        let (start, end) = (dataset.step_ends(steps[0]).0, dataset.step_ends(steps[steps.len() - 1]).1);

        let stats = graphs.stats(&steps).unwrap();
        prop_assert_eq!(stats.pairs, paths.len() as u64);
        prop_assert_eq!(stats.instances, u128::from(instances));
        let selfs = if start == end { paths.keys().filter(|p| p.0 == p.1).count() } else { 0 };
        prop_assert_eq!(stats.self_pairs, selfs as u64);
        let mut degree = BTreeMap::new();
        for (s, _) in paths.keys() {
            *degree.entry(s).or_insert(0u64) += 1;
        }
        prop_assert_eq!(stats.max_degree, degree.values().max().copied().unwrap_or(0));
        for (classes, vertices, end) in [
            (&stats.out_classes, stats.rows, (|pair| pair.0) as fn(&(u32, u32)) -> u32),
            (&stats.in_classes, stats.cols, |pair| pair.1),
        ] {
            let mut counts = DegreeCounts::default();
            for v in 0..vertices as u32 {
                counts.add(paths.keys().filter(|pair| end(pair) == v).count() as u64);
            }
            prop_assert_eq!(classes, &counts.classes());
        }
        let estimate = graphs.estimate(&steps).unwrap();
        prop_assert!(estimate.max_pairs >= stats.pairs);
        prop_assert_eq!(estimate.instances, stats.instances);

        let counted = MetapathOptions { counted: true, ..Default::default() };
        let graph = graphs.metapath("p", &steps, counted).unwrap();
        graph.verify().map_err(TestCaseError::fail)?;
        prop_assert_eq!(listed(&graph), paths.clone());
        let reachable = graphs.metapath("p", &steps, MetapathOptions::default()).unwrap();
        prop_assert!(reachable.counts.is_none());
        prop_assert_eq!((&reachable.csc, &reachable.csr), (&graph.csc, &graph.csr));

        // Without memory for entries twice, rows are counted first.
        for options in [counted, MetapathOptions::default()] {
            let tight = MetapathOptions { memory_budget: graph.bytes(), ..options };
            let in_two_passes = graphs.metapath("p", &steps, tight).unwrap();
            prop_assert_eq!((&in_two_passes.csc, &in_two_passes.csr), (&graph.csc, &graph.csr));
            prop_assert_eq!(in_two_passes.counts.as_ref(), graph.counts.as_ref().filter(|_| options.counted));
        }

        let options = MetapathOptions { self_loops: true, ..counted };
        let looped = graphs.metapath("p", &steps, options);
        if start == end {
            for v in 0..dataset.vertex_types[start].count as u32 {
                paths.entry((v, v)).or_insert(1);
            }
            let looped = looped.unwrap();
            looped.verify().map_err(TestCaseError::fail)?;
            prop_assert_eq!(listed(&looped), paths);
        } else {
            prop_assert!(matches!(looped, Err(SgbError::BipartiteSelfLoops { .. })), "self loops on a bipartite graph");
        }
    }

    #[test]
    fn few_pairs_are_counted_and_not_estimated((dataset, steps) in case()) {
        let pairs = SemanticGraphs::new(&dataset).estimate_pairs(&steps).unwrap();
        prop_assert_eq!(pairs, naive(&dataset, &steps).len() as u64);
    }

    #[test]
    fn pairs_over_a_middle_have_one_path_each((dataset, steps) in case()) {
        let Some(middle) = SemanticGraphs::new(&dataset).middle(&steps).unwrap() else { return Ok(()) };
        let Middle { place, pairs } = middle;
        let joined = naive(&dataset, &steps);
        prop_assert_eq!(pairs, joined.len() as u64);
        let (first, second) = (naive(&dataset, &steps[..place]), naive(&dataset, &steps[place..]));
        // A part of one step is its relation, which may have duplicate edges.
        prop_assert!(place > 1 || first.values().all(|&paths| paths == 1));
        prop_assert!(steps.len() - place > 1 || second.values().all(|&paths| paths == 1));
        let mut paths: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for &(start, between) in first.keys() {
            for &(_, end) in second.keys().filter(|pair| pair.0 == between) {
                *paths.entry((start, end)).or_default() += 1;
            }
        }
        prop_assert!(paths.values().all(|&paths| paths == 1), "{:?}", paths);
        prop_assert!(paths.keys().eq(joined.keys()));
    }

    #[test]
    fn relations_keep_their_edges((dataset, steps) in case(), self_loops: bool, dedup: bool) {
        let graphs = SemanticGraphs::new(&dataset);
        let Step { relation, reverse } = steps[0];
        let data = &dataset.relations[relation];
        let self_loops = self_loops && data.src == data.dst;
        let graph = graphs.relation(relation, RelationOptions { reverse, dedup, self_loops }).unwrap();
        graph.verify().map_err(TestCaseError::fail)?;
        let mut expected: Edges = data.src_ids.iter().copied().zip(data.dst_ids.iter().copied()).collect();
        if reverse {
            expected.iter_mut().for_each(|e| *e = (e.1, e.0));
        }
        let original = expected.clone();
        if self_loops {
            let n = dataset.vertex_types[data.src].count as u32;
            expected.extend((0..n).filter(|&v| !original.contains(&(v, v))).map(|v| (v, v)));
        }
        expected.sort_unstable();
        if dedup {
            expected.dedup();
        }
        let mut found: Edges = graph.csc.indices.iter().copied().zip(graph.edge_dst()).collect();
        for (e, &i) in graph.original.as_ref().unwrap().iter().enumerate() {
            if i == NO_ORIGINAL {
                prop_assert!(self_loops && found[e].0 == found[e].1);
            } else {
                prop_assert_eq!(original[i as usize], found[e]);
            }
        }
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn graphs_without_self_loops_have_all_other_edges((dataset, steps) in case(), counted: bool) {
        let mut dataset = dataset;
        let relation = &mut dataset.relations[steps[0].relation];
        relation.weight = Some((0..relation.src_ids.len()).map(|i| i as f32).collect::<Vec<_>>().into());
        let graphs = SemanticGraphs::new(&dataset);
        let (start, end) = (dataset.step_ends(steps[0]), dataset.step_ends(*steps.last().unwrap()));
        let mut all = vec![];
        if start.0 == start.1 {
            let options = RelationOptions { reverse: steps[0].reverse, ..RelationOptions::default() };
            all.push(graphs.relation(steps[0].relation, options).unwrap());
        }
        if start.0 == end.1 {
            all.push(graphs.metapath("M", &steps, MetapathOptions { counted, ..MetapathOptions::default() }).unwrap());
        }
        for graph in all {
            let without = graph.clone().without_self_loops();
            without.verify().map_err(TestCaseError::fail)?;
            let edges = |graph: &SemanticGraph| -> Vec<(u32, u32, [Option<u32>; 3])> {
                let (counts, weight) = (graph.counts.as_ref(), graph.weight.as_ref());
                let ends = graph.csc.indices.iter().copied().zip(graph.edge_dst()).enumerate();
                let number = |of: Option<&Vec<f32>>, e: usize| of.map(|of| of[e].to_bits());
                let original = |e: usize| graph.original.as_ref().map(|of| of[e]);
                ends.map(|(e, (s, d))| (s, d, [number(counts, e), number(weight, e), original(e)])).collect()
            };
            let expected: Vec<_> = edges(&graph).into_iter().filter(|edge| edge.0 != edge.1).collect();
            prop_assert_eq!(edges(&without), expected);
        }
    }

    #[test]
    fn edge_lists_have_the_order_of_graphs((dataset, steps) in case()) {
        let mut dataset = dataset;
        let step = steps[0];
        let relation = &mut dataset.relations[step.relation];
        relation.weight = Some((0..relation.src_ids.len()).map(|i| i as f32).collect::<Vec<_>>().into());
        let graphs = SemanticGraphs::new(&dataset);
        let options = RelationOptions { reverse: step.reverse, ..RelationOptions::default() };
        let graph = graphs.relation(step.relation, options).unwrap();
        let edges = graphs.edges(step).unwrap();
        prop_assert_eq!((edges.num_src, edges.num_dst), (graph.num_src, graph.num_dst));
        prop_assert_eq!(&edges.src[..], &graph.csc.indices[..]);
        prop_assert_eq!(&edges.dst, &graph.edge_dst());
        prop_assert_eq!((edges.weight, Some(edges.original)), (graph.weight, graph.original));
    }
}

#[test]
fn weights_follow_their_edges() {
    let mut data = dataset(&[2, 2], &[(0, 0, vec![(1, 0), (0, 1), (1, 0), (0, 0)])]);
    data.relations[0].weight = Some(vec![1.0, 2.0, 4.0, 8.0].into());
    let graphs = SemanticGraphs::new(&data);
    let plain = graphs.relation(0, RelationOptions::default()).unwrap();
    assert_eq!(plain.csc.indices, [0, 1, 1, 0]);
    assert_eq!(plain.weight.as_deref(), Some(&[8.0, 1.0, 4.0, 2.0][..]));
    assert_eq!(plain.original.as_deref(), Some(&[3, 0, 2, 1][..]));
    let options = RelationOptions { reverse: true, dedup: true, self_loops: true };
    let changed = graphs.relation(0, options).unwrap();
    assert_eq!(changed.name, "<r0");
    assert_eq!((&changed.csc.indptr[..], &changed.csc.indices[..]), (&[0, 2, 4][..], &[0, 1, 0, 1][..]));
    assert_eq!(changed.weight.as_deref(), Some(&[8.0, 2.0, 5.0, 1.0][..]));
    assert_eq!(changed.original.as_deref(), Some(&[3, 1, 0, NO_ORIGINAL][..]));
}

#[test]
fn paths_that_make_no_sense_are_refused() {
    let data = dataset(&[2, 3], &[(0, 1, vec![(0, 0)])]);
    let graphs = SemanticGraphs::new(&data);
    let error = |steps: &[Step]| graphs.metapath("P", steps, MetapathOptions::default()).unwrap_err().to_string();
    assert_eq!(error(&[]), "metapath `P` has no steps");
    assert_eq!(error(&[Step::forward(1)]), "semantic graph `P` uses relation number 1, but the dataset has 1");
    assert_eq!(
        error(&[Step::forward(0), Step::forward(0)]),
        "metapath `P`: step 2 starts at vertex type `t0`, but the step before it ends at `t1`"
    );
    let options = RelationOptions { self_loops: true, ..Default::default() };
    assert_eq!(
        graphs.relation(0, options).unwrap_err().to_string(),
        "self loops on `r0` make no sense: it leads from vertex type `t0` to `t1`"
    );
    assert!(matches!(graphs.relation(7, options), Err(SgbError::NoSuchRelation { .. })));
    assert!(graphs.stats(&[]).is_err() && graphs.estimate(&[]).is_err());
}

#[test]
fn a_graph_over_the_budget_is_refused_with_its_size() {
    // A star: n leaves around one hub make n² pairs.
    let n = 1000u32;
    let data = dataset(&[n as usize, 1], &[(0, 1, (0..n).map(|v| (v, 0)).collect())]);
    let graphs = SemanticGraphs::new(&data);
    let steps = [Step::forward(0), Step::reverse(0)];
    let options = MetapathOptions { memory_budget: 1_000_000, ..Default::default() };
    let error = graphs.metapath("star", &steps, options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "semantic graph `star` would have 1000000 pairs and take 7820.3 KiB, but the memory budget is 976.6 KiB"
    );
    assert!(matches!(error, SgbError::OverBudget { exact: true, pairs: 1_000_000, .. }));
    let estimate = graphs.estimate(&steps).unwrap();
    assert_eq!((estimate.max_pairs, estimate.instances), (1_000_000, 1_000_000));
    assert_eq!(estimate.max_bytes, 8_000_000 + 8 * 1001);
    let enough = MetapathOptions { memory_budget: estimate.max_bytes, ..Default::default() };
    let graph = graphs.metapath("star", &steps, enough).unwrap();
    assert_eq!(graph.bytes(), estimate.max_bytes);
}

#[test]
fn counts_beyond_64_bits_are_refused_and_totals_are_exact() {
    // Two vertices joined by every edge twice: 4^k paths from each, 2^(2k + 1) in all after k steps.
    let edges = vec![(0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1), (1, 0), (1, 1)];
    let data = dataset(&[2], &[(0, 0, edges)]);
    let graphs = SemanticGraphs::new(&data);
    for (k, fits) in [(10usize, true), (31, true), (33, false), (60, false)] {
        let steps = vec![Step::forward(0); k];
        assert_eq!(graphs.stats(&steps).unwrap().instances, 1u128 << (2 * k + 1));
        let counted = graphs.metapath("P", &steps, MetapathOptions { counted: true, ..Default::default() });
        if fits {
            assert_eq!(counted.unwrap().counts.unwrap(), vec![(1u64 << (2 * k - 1)) as f32; 4]);
        } else {
            assert_eq!(counted.unwrap_err(), SgbError::CountOverflow { graph: "P".into() });
        }
        assert_eq!(graphs.metapath("P", &steps, MetapathOptions::default()).unwrap().num_edges(), 4);
    }
}

#[test]
fn a_metapath_does_not_depend_on_the_number_of_threads() {
    let edges = (0..4000u32).map(|i| (i.wrapping_mul(2_654_435_761) % 700, i.wrapping_mul(40_503) % 90)).collect();
    let data = dataset(&[700, 90], &[(0, 1, edges)]);
    let steps = [Step::forward(0), Step::reverse(0), Step::forward(0), Step::reverse(0)];
    let build = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let options = MetapathOptions { counted: true, ..Default::default() };
            SemanticGraphs::new(&data).metapath("P", &steps, options).unwrap()
        })
    };
    let one = build(1);
    one.verify().unwrap();
    assert_eq!(one, build(2));
    assert_eq!(one, build(7));
}

/// Papers of at most one subject each, and kinds of subjects: each symmetric path has a first half that reaches at most
/// one vertex.
fn classified() -> impl Strategy<Value = Dataset> {
    let papers = proptest::collection::vec(proptest::option::weighted(0.9, 0..6u32), 1..60);
    let kinds = proptest::collection::vec(proptest::option::weighted(0.8, 0..3u32), 6);
    let edges = |ends: &[Option<u32>]| -> Edges {
        ends.iter().enumerate().filter_map(|(v, end)| end.map(|end| (v as u32, end))).collect()
    };
    (papers, kinds).prop_map(move |(papers, kinds)| {
        dataset(&[papers.len(), 6, 3], &[(0, 1, edges(&papers)), (1, 2, edges(&kinds))])
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn vertices_that_meet_in_one_are_cliques(data in classified(), counted in any::<bool>(), self_loops in any::<bool>()) {
        let graphs = SemanticGraphs::new(&data);
        let there = [Step::forward(0), Step::forward(1)];
        let back = [Step::reverse(1), Step::reverse(0)];
        for steps in [vec![there[0], back[1]], [there, back].concat()] {
            let mut expected = naive(&data, &steps);
            if self_loops {
                for v in 0..data.vertex_types[0].count as u32 {
                    expected.entry((v, v)).or_insert(1);
                }
            }
            let options = MetapathOptions { counted, self_loops, ..Default::default() };
            let graph = graphs.metapath("P", &steps, options).unwrap();
            prop_assert_eq!(graph.verify(), Ok(()));
            prop_assert!(graph.csr.indices.is_same(&graph.csc.indices));
            if !counted {
                expected.values_mut().for_each(|paths| *paths = 1);
            }
            prop_assert_eq!(listed(&graph), expected);
        }
    }
}

#[test]
fn a_relation_in_which_each_edge_has_one_back_makes_mirrors() {
    let friends: Edges = vec![(0, 1), (1, 0), (1, 2), (2, 1), (3, 3)];
    let mut lopsided = friends.clone();
    lopsided[0] = (0, 2);
    let mut doubled = friends.clone();
    doubled.push((0, 1));
    for (edges, mirror) in [(friends, true), (lopsided, false), (doubled, false)] {
        let data = dataset(&[4, 3], &[(0, 0, edges), (0, 1, vec![(0, 0), (1, 0), (2, 1), (3, 2)])]);
        let steps = [Step::reverse(1), Step::forward(0), Step::forward(1)];
        for counted in [false, true] {
            let options = MetapathOptions { counted, ..Default::default() };
            let graph = SemanticGraphs::new(&data).metapath("P", &steps, options).unwrap();
            graph.verify().unwrap();
            assert_eq!(graph.csr.indices.is_same(&graph.csc.indices), mirror);
        }
    }
}
