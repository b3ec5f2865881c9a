//! Splits of vertices, edges and links: what is in each part, and that nothing of the held-out parts is trained on.

use std::collections::BTreeSet;

use hgnnc_dataset::{
    Dataset, DenseFeatures, EdgeLabel, EdgeSplit, Features, FieldData, LabelData, LabelValues, LinkSplitData,
    RelationData, SplitData, VertexIds, VertexTypeData,
};
use hgnnc_split::{
    LabelSplit, LabelledEdges, LinkSplit, Order, Shares, SplitError, split_edges, split_links, split_vertices,
    without_vertices, write_inductive,
};
use proptest::prelude::*;

const SHARES: Shares = Shares { train: Some(0.5), val: 0.25, test: None };

/// Eight papers of two classes, the last one without a label, written at descending times; two authors.
fn papers() -> Dataset {
    Dataset {
        name: "papers".into(),
        vertex_types: vec![
            VertexTypeData {
                name: "paper".into(),
                count: 9,
                features: Some(Features::Dense(DenseFeatures {
                    dim: 2,
                    rows: (0..18).map(|x| x as f32).collect::<Vec<_>>().into(),
                })),
                fields: vec![FieldData {
                    name: "pages".into(),
                    values: Features::Dense(DenseFeatures {
                        dim: 1,
                        rows: (0..9).map(|x| x as f32).collect::<Vec<_>>().into(),
                    }),
                }],
                time: Some((0..9).map(|v| 100 - v).collect()),
                ..Default::default()
            },
            VertexTypeData { name: "author".into(), count: 2, ..Default::default() },
        ],
        relations: vec![relation("written_by", (0, 1), &[(0, 0), (3, 1), (7, 1), (8, 0)])],
        labels: vec![LabelData {
            name: "topic".into(),
            vertex_type: 0,
            values: LabelValues::Single { classes: 2, of: vec![0, 0, 0, 0, 1, 1, 1, 1, -1] },
            class_names: vec!["a".into(), "b".into()],
        }],
        ..Default::default()
    }
}

fn relation(name: &str, (src, dst): (usize, usize), edges: &[(u32, u32)]) -> RelationData {
    RelationData {
        name: name.into(),
        src,
        dst,
        src_ids: edges.iter().map(|e| e.0).collect(),
        dst_ids: edges.iter().map(|e| e.1).collect(),
        weight: Some((0..edges.len()).map(|e| e as f32).collect::<Vec<_>>().into()),
        ..Default::default()
    }
}

fn label_split(order: Order, by_class: bool) -> LabelSplit {
    LabelSplit { name: "drawn".into(), shares: SHARES, order, by_class }
}

#[test]
fn labelled_vertices_are_divided_once_each() {
    let mut dataset = papers();
    let sizes = split_vertices(&mut dataset, 0, &label_split(Order::Random(1), false)).unwrap();
    assert_eq!(sizes, [4, 2, 2]);
    let SplitData { train, val, test, .. } = &dataset.splits[0];
    let all: BTreeSet<u32> = [train, val, test].into_iter().flatten().copied().collect();
    assert_eq!(all, (0..8).collect());
    // The same seed draws the same parts, another one others.
    let again = |seed| {
        let mut dataset = papers();
        split_vertices(&mut dataset, 0, &label_split(Order::Random(seed), false)).unwrap();
        dataset.splits[0].train.clone()
    };
    assert_eq!(again(1), *train);
    assert!((2..10).any(|seed| again(seed) != *train));
}

#[test]
fn each_class_is_divided_alike() {
    let mut dataset = papers();
    split_vertices(&mut dataset, 0, &label_split(Order::Random(3), true)).unwrap();
    let SplitData { train, val, test, .. } = &dataset.splits[0];
    let first = |part: &[u32]| part.iter().filter(|v| **v < 4).count();
    assert_eq!((first(train), first(val), first(test)), (2, 1, 1));
    assert_eq!((train.len(), val.len(), test.len()), (4, 2, 2));
}

#[test]
fn the_earliest_vertices_are_to_train_on() {
    let mut dataset = papers();
    split_vertices(&mut dataset, 0, &label_split(Order::Time, false)).unwrap();
    let split = &dataset.splits[0];
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[4, 5, 6, 7][..], &[2, 3][..], &[0, 1][..]));
}

#[test]
fn an_unseen_vertex_leaves_with_its_edges() {
    let mut dataset = papers();
    split_vertices(&mut dataset, 0, &label_split(Order::Time, false)).unwrap();
    let seen = without_vertices(&dataset, 0, &[0, 1]);
    assert_eq!(seen.vertex_types[0].count, 7);
    assert_eq!(seen.vertex_types[0].ids, Some(VertexIds::Integer(vec![2, 3, 4, 5, 6, 7, 8])));
    let Some(Features::Dense(x)) = &seen.vertex_types[0].features else { panic!("dense features") };
    assert_eq!((x.row(0), x.rows.len()), (&[4.0, 5.0][..], 14));
    let Some(Features::Dense(pages)) = seen.vertex_types[0].features_of(Some("pages")) else { panic!("a field") };
    assert_eq!(pages.rows[..], [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let edges = &seen.relations[0];
    assert_eq!((&edges.src_ids[..], &edges.dst_ids[..]), (&[1, 5, 6][..], &[1, 1, 0][..]));
    assert_eq!(edges.weight.as_ref().map(|w| w.to_vec()), Some(vec![1.0, 2.0, 3.0]));
    assert_eq!(seen.labels[0].values, LabelValues::Single { classes: 2, of: vec![0, 0, 1, 1, 1, 1, -1] });
    assert_eq!(seen.splits[0].train, [2, 3, 4, 5]);
    assert!(seen.splits[0].test.is_empty());
}

#[test]
fn an_inductive_split_is_two_datasets() {
    let mut dataset = papers();
    split_vertices(&mut dataset, 0, &label_split(Order::Time, false)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("papers");
    write_inductive(&dataset, 0, &[0, 1], &target).unwrap();
    let counts = ["seen", "whole"].map(|name| Dataset::load(target.join(name)).unwrap().vertex_types[0].count);
    assert_eq!(counts, [7, 9]);
    assert!(write_inductive(&dataset, 0, &[0, 1], &target).is_err(), "it holds both already");
}

#[test]
fn faults_leave_the_dataset_as_it_is() {
    let mut dataset = papers();
    let fails = |dataset: &mut Dataset, split: LabelSplit, word: &str| {
        let error = split_vertices(dataset, 0, &split).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(dataset.splits.is_empty());
    };
    let asked = label_split(Order::Random(0), false);
    let none = Shares { train: Some(0.9), val: 0.05, test: None };
    fails(&mut dataset, LabelSplit { shares: none, ..asked.clone() }, "the validation part of 8 labelled vertices");
    let none = Shares { train: Some(0.9), val: 0.5, test: None };
    fails(&mut dataset, LabelSplit { shares: none, ..asked.clone() }, "from 0 to 1");
    dataset.vertex_types[0].time = None;
    fails(&mut dataset, label_split(Order::Time, false), "vertex type `paper` has no times");
    split_vertices(&mut dataset, 0, &asked).unwrap();
    let error = split_vertices(&mut dataset, 0, &asked).unwrap_err();
    assert_eq!(error, SplitError::Name("drawn".into()));
    let links = LinkSplit { reverses: vec![(0, 0)], ..link_split(&[0], Order::Random(0)) };
    let error = split_links(&mut dataset, &links).unwrap_err();
    assert!(matches!(error, SplitError::NotReverse { .. }), "{error}");
    let error = split_links(&mut dataset, &link_split(&[0], Order::Time)).unwrap_err();
    assert_eq!(error.to_string(), "relation `written_by` has no times, so it cannot be split by time");
}

/// Eight payments of two classes between four accounts, the last one without a label, at descending times; `returned` holds
/// the reverses of the first four, with their labels.
fn payments() -> Dataset {
    let edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3), (0, 1), (2, 0)];
    let back: Vec<(u32, u32)> = edges[..4].iter().map(|&(src, dst)| (dst, src)).collect();
    let class = |of: &[i32]| EdgeLabel {
        name: "fraud".into(),
        values: LabelValues::Single { classes: 2, of: of.to_vec() },
        class_names: vec![],
    };
    let mut pays = relation("pays", (0, 0), &edges);
    pays.labels = vec![class(&[0, 0, 1, 1, 0, 0, 1, -1])];
    pays.time = Some((0..8).map(|edge| 100 - edge).collect());
    let mut returned = relation("returned", (0, 0), &back);
    returned.labels = vec![class(&[0, 0, 1, 1])];
    returned.time = Some((0..4).map(|edge| 100 - edge).collect());
    Dataset {
        vertex_types: vec![VertexTypeData { name: "account".into(), count: 4, ..Default::default() }],
        relations: vec![pays, returned],
        ..Default::default()
    }
}

const PAYMENTS: LabelledEdges = LabelledEdges { relation: 0, label: 0, reverses: vec![] };

/// Shares that leave no part of seven edges, or of six pairs, empty.
fn thirds(order: Order) -> LabelSplit {
    LabelSplit { shares: Shares { train: Some(0.4), val: 0.3, test: None }, ..label_split(order, false) }
}

#[test]
fn labelled_edges_are_divided_once_each() {
    let mut dataset = payments();
    dataset.relations.truncate(1);
    let outcome = split_edges(&mut dataset, &PAYMENTS, &thirds(Order::Random(1))).unwrap();
    assert_eq!((outcome.edges, &outcome.reverses[..], &outcome.suspects[..]), ([3, 2, 2], &[][..], &[][..]));
    assert_eq!(dataset.relations[0].num_edges(), 8);
    let EdgeSplit { train, val, test, .. } = &dataset.relations[0].splits[0];
    let all: BTreeSet<u32> = [train, val, test].into_iter().flatten().copied().collect();
    assert_eq!(all, (0..7).collect());
    let mut dataset = payments();
    dataset.relations.truncate(1);
    let by_class = LabelSplit { by_class: true, ..thirds(Order::Random(1)) };
    split_edges(&mut dataset, &PAYMENTS, &by_class).unwrap();
    let fraud = |edge: &&u32| [2, 3, 6].contains(*edge);
    let EdgeSplit { train, val, test, .. } = &dataset.relations[0].splits[0];
    assert_eq!([train, val, test].map(|part| part.iter().filter(fraud).count()), [1, 1, 1]);
}

#[test]
fn the_earliest_edges_are_to_train_on() {
    let mut dataset = payments();
    dataset.relations.truncate(1);
    split_edges(&mut dataset, &PAYMENTS, &thirds(Order::Time)).unwrap();
    let split = &dataset.relations[0].splits[0];
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[4, 5, 6][..], &[2, 3][..], &[0, 1][..]));
}

/// The payments (0, 1), of which there are two, are in one part, and so are the reverses.
#[test]
fn reverses_are_in_the_part_of_the_edges() {
    for seed in 0..8 {
        let mut dataset = payments();
        let asked = LabelledEdges { reverses: vec![1], ..PAYMENTS };
        let outcome = split_edges(&mut dataset, &asked, &thirds(Order::Random(seed))).unwrap();
        let [pays, returned] = [0, 1].map(|relation| dataset.relations[relation].splits[0].clone());
        assert_eq!(outcome.reverses, [(1, [&returned.train, &returned.val, &returned.test].map(Vec::len))]);
        let part = |split: &EdgeSplit, edge: u32| {
            [&split.train, &split.val, &split.test].iter().position(|part| part.contains(&edge)).unwrap()
        };
        assert_eq!(part(&pays, 0), part(&pays, 6));
        for edge in 0..4 {
            assert_eq!(part(&returned, edge), part(&pays, edge));
        }
    }
}

/// Account 0 pays account 1 at 94 for the first time, so that pair is to train on, but not the payment at 100.
#[test]
fn by_time_later_edges_of_two_vertices_are_in_no_part() {
    let mut dataset = payments();
    let asked = LabelledEdges { reverses: vec![1], ..PAYMENTS };
    let outcome = split_edges(&mut dataset, &asked, &thirds(Order::Time)).unwrap();
    assert_eq!(outcome.edges, [2, 2, 2]);
    let [pays, returned] = [0, 1].map(|relation| &dataset.relations[relation].splits[0]);
    assert_eq!((&pays.train[..], &pays.val[..], &pays.test[..]), (&[5, 6][..], &[3, 4][..], &[1, 2][..]));
    assert_eq!((&returned.train[..], &returned.val[..], &returned.test[..]), (&[][..], &[3][..], &[1, 2][..]));
}

#[test]
fn reverses_of_all_edges_are_found_and_of_some_are_told() {
    let mut dataset = payments();
    let outcome = split_edges(&mut dataset, &PAYMENTS, &thirds(Order::Random(1))).unwrap();
    // Four of seven distinct pairs.
    assert_eq!((&outcome.reverses[..], outcome.suspects.len(), outcome.suspects[0].0), (&[][..], 1, 1));
    let mut dataset = payments();
    let pays = &mut dataset.relations[0];
    pays.keep(&[0, 1, 2, 3]);
    let halves = LabelSplit { shares: Shares { train: Some(0.5), val: 0.25, test: None }, ..thirds(Order::Random(1)) };
    let outcome = split_edges(&mut dataset, &PAYMENTS, &halves).unwrap();
    assert_eq!(outcome.reverses, [(1, outcome.edges)]);
    // Without the label they tell nothing.
    let mut dataset = payments();
    dataset.relations[0].keep(&[0, 1, 2, 3]);
    dataset.relations[1].labels.clear();
    let outcome = split_edges(&mut dataset, &PAYMENTS, &halves).unwrap();
    assert!(outcome.reverses.is_empty() && dataset.relations[1].splits.is_empty());
}

#[test]
fn faults_of_edges_leave_the_dataset_as_it_is() {
    let mut dataset = payments();
    let mut fails = |of: LabelledEdges, asked: LabelSplit, word: &str| {
        let error = split_edges(&mut dataset, &of, &asked).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(dataset.relations.iter().all(|relation| relation.splits.is_empty()));
        dataset.relations[1].labels.clear();
    };
    let none = LabelSplit { shares: Shares { train: Some(0.9), val: 0.05, test: None }, ..thirds(Order::Time) };
    fails(PAYMENTS, none, "the validation part of 7 labelled edges of `pays`");
    let named = LabelledEdges { reverses: vec![1], ..PAYMENTS };
    fails(named, thirds(Order::Time), "the edges of `returned` have no label `fraud`");
    split_edges(&mut dataset, &PAYMENTS, &thirds(Order::Time)).unwrap();
    assert_eq!(split_edges(&mut dataset, &PAYMENTS, &thirds(Order::Time)), Err(SplitError::Name("drawn".into())));
    dataset.relations[0].time = None;
    let later = LabelSplit { name: "later".into(), ..thirds(Order::Time) };
    assert_eq!(
        split_edges(&mut dataset, &PAYMENTS, &later).unwrap_err().to_string(),
        "relation `pays` has no times, so it cannot be split by time"
    );
}

fn link_split(relations: &[usize], order: Order) -> LinkSplit {
    LinkSplit { relations: relations.to_vec(), reverses: vec![], name: "links".into(), shares: SHARES, order }
}

/// Vertices of one type with these edges, and the relation `back` beside them.
fn graph(edges: &[(u32, u32)], back: &[(u32, u32)]) -> Dataset {
    Dataset {
        vertex_types: ["user", "item"]
            .map(|name| VertexTypeData { name: name.into(), count: 20, ..Default::default() })
            .to_vec(),
        relations: vec![relation("buys", (0, 1), edges), relation("bought_by", (1, 0), back)],
        ..Default::default()
    }
}

fn edges(of: &RelationData) -> Vec<(u32, u32)> {
    of.src_ids.iter().copied().zip(of.dst_ids.iter().copied()).collect()
}

#[test]
fn reverses_are_found_and_held_out_as_well() {
    let forward: Vec<(u32, u32)> = (0..8).map(|v| (v, v + 3)).collect();
    let back: Vec<(u32, u32)> = forward.iter().rev().map(|&(src, dst)| (dst, src)).collect();
    let mut dataset = graph(&forward, &back);
    let outcome = split_links(&mut dataset, &link_split(&[0, 1], Order::Random(5))).unwrap();
    // `bought_by` is not divided again.
    assert_eq!((outcome.links, &outcome.reverses[..]), ([4, 2, 2], &[(0, 1)][..]));
    assert_eq!(outcome.removed, [(0, 4), (1, 4)]);
    let (forward, back) = (edges(&dataset.relations[0]), edges(&dataset.relations[1]));
    let flipped: BTreeSet<_> = back.iter().map(|&(src, dst)| (dst, src)).collect();
    assert_eq!(forward.iter().copied().collect::<BTreeSet<_>>(), flipped);
    let split = &dataset.link_splits[0];
    assert!(split.val.relation.iter().chain(&split.test.relation).all(|&relation| relation == 0));
}

#[test]
fn some_reverses_are_told_of_and_held_out_when_named() {
    let forward: Vec<(u32, u32)> = (0..8).map(|v| (v, v + 3)).collect();
    let back: Vec<(u32, u32)> = forward[..6].iter().map(|&(src, dst)| (dst, src)).chain([(19, 19)]).collect();
    let (edges_of_eight, back_of_six) = (forward.clone(), back.clone());
    let mut dataset = graph(&forward, &back);
    let outcome = split_links(&mut dataset, &link_split(&[0], Order::Random(5))).unwrap();
    assert_eq!((&outcome.reverses[..], &outcome.suspects[..]), (&[][..], &[(0, 1, 0.75)][..]));
    assert_eq!(dataset.relations[1].num_edges(), 7);
    let mut dataset = graph(&forward, &back);
    let asked = LinkSplit { reverses: vec![(0, 1)], ..link_split(&[0], Order::Random(5)) };
    let outcome = split_links(&mut dataset, &asked).unwrap();
    assert!(outcome.suspects.is_empty());
    let (forward, back) = (edges(&dataset.relations[0]), edges(&dataset.relations[1]));
    // An edge that is no reverse stays.
    assert!(back.contains(&(19, 19)));
    assert!(back.iter().all(|&(src, dst)| (src, dst) == (19, 19) || forward.contains(&(dst, src))));
    // They may be named in either order, and both be divided.
    for relations in [&[0][..], &[0, 1]] {
        let mut dataset = graph(&edges_of_eight, &back_of_six);
        let asked = LinkSplit { reverses: vec![(1, 0)], ..link_split(relations, Order::Random(5)) };
        split_links(&mut dataset, &asked).unwrap();
        assert_eq!((edges(&dataset.relations[0]), edges(&dataset.relations[1])), (forward.clone(), back.clone()));
    }
}

#[test]
fn both_directions_of_a_symmetric_relation_are_one_link() {
    let pairs = [(0, 1), (2, 3), (4, 5), (6, 7)];
    let both: Vec<(u32, u32)> = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).chain([(9, 9)]).collect();
    let mut dataset = graph(&[], &[]);
    dataset.relations = vec![relation("knows", (0, 0), &both)];
    let asked =
        LinkSplit { shares: Shares { train: Some(0.6), val: 0.2, test: None }, ..link_split(&[0], Order::Random(2)) };
    let outcome = split_links(&mut dataset, &asked).unwrap();
    assert_eq!((outcome.links, &outcome.reverses[..]), ([3, 1, 1], &[(0, 0)][..]));
    let trained = edges(&dataset.relations[0]);
    let split = &dataset.link_splits[0];
    for links in [&split.val, &split.test] {
        for (&src, &dst) in links.src.iter().zip(&links.dst) {
            assert!(!trained.contains(&(src, dst)) && !trained.contains(&(dst, src)));
        }
    }
}

#[test]
fn by_time_nothing_later_than_the_first_held_out_link_is_trained_on() {
    // The link (0, 0) comes again at time 90.
    let all = [(0, 0), (1, 1), (2, 2), (3, 3), (0, 0)];
    let mut dataset = graph(&all, &[]);
    dataset.relations[0].time = Some(vec![10, 20, 30, 40, 90]);
    let outcome = split_links(&mut dataset, &link_split(&[0], Order::Time)).unwrap();
    assert_eq!(outcome.links, [2, 1, 1]);
    assert_eq!(edges(&dataset.relations[0]), [(0, 0), (1, 1)]);
    assert_eq!(dataset.relations[0].time, Some(vec![10, 20]));
    let split = &dataset.link_splits[0];
    assert_eq!((&split.val.src[..], &split.test.src[..]), (&[2][..], &[3][..]));
    assert_eq!((&split.val.time, &split.test.time), (&Some(vec![30]), &Some(vec![40])));
}

#[test]
fn by_events_a_pair_that_comes_again_is_a_link_again() {
    let all = [(0, 0), (1, 1), (0, 0), (2, 2), (0, 0), (1, 1), (3, 3), (0, 0)];
    let back: Vec<(u32, u32)> = all.iter().map(|&(src, dst)| (dst, src)).collect();
    let times = vec![10, 20, 30, 40, 50, 60, 60, 80];
    let timed = || {
        let mut dataset = graph(&all, &back);
        dataset.relations.iter_mut().for_each(|of| of.time = Some(times.clone()));
        dataset
    };
    let mut dataset = timed();
    // Half to train on; of those behind it, both links of time 60 are in one part.
    let outcome = split_links(&mut dataset, &link_split(&[0], Order::Events)).unwrap();
    assert_eq!((outcome.links, &outcome.reverses[..]), ([4, 1, 3], &[(0, 1)][..]));
    let train = [(0, 0), (1, 1), (0, 0), (2, 2)];
    assert_eq!(
        (edges(&dataset.relations[0]), dataset.relations[0].time.clone()),
        (train.to_vec(), Some(times[..4].to_vec()))
    );
    assert_eq!(dataset.relations[1].time, dataset.relations[0].time, "the reverses of training links stay");
    let LinkSplitData { val, test, .. } = &dataset.link_splits[0];
    assert_eq!((&val.src[..], &val.time), (&[0][..], &Some(vec![50])));
    assert_eq!((&test.src[..], &test.time), (&[1, 3, 0][..], &Some(vec![60, 60, 80])));

    let mut dataset = timed();
    dataset.relations[1].time = None;
    let error = split_links(&mut dataset, &link_split(&[0], Order::Events)).unwrap_err();
    assert_eq!(error, SplitError::NoTime("relation `bought_by`".into()), "its edges would give links away");
    let error = split_vertices(&mut papers(), 0, &label_split(Order::Events, false)).unwrap_err();
    assert_eq!(error, SplitError::Events);
}

/// A link has the time of its first edge, in whatever order links are divided.
#[test]
fn held_out_links_keep_their_times() {
    let pairs: Vec<(u32, u32)> = (0..8).map(|v| (v, v + 3)).collect();
    let mut dataset = graph(&[&pairs[..], &pairs].concat(), &[]);
    dataset.relations[0].time = Some((0..16).map(|edge| 100 - edge).collect());
    split_links(&mut dataset, &link_split(&[0], Order::Random(5))).unwrap();
    let LinkSplitData { val, test, .. } = &dataset.link_splits[0];
    for links in [val, test] {
        let first: Vec<i64> = links.src.iter().map(|&src| 92 - i64::from(src)).collect();
        assert_eq!((links.is_empty(), &links.time), (false, &Some(first)));
    }
    // A part of links of several relations has times if each of these has.
    let mut dataset = graph(&pairs, &[(3, 1), (4, 0), (5, 2), (6, 7)]);
    dataset.relations[0].time = Some((0..8).collect());
    split_links(&mut dataset, &link_split(&[0, 1], Order::Random(5))).unwrap();
    assert_eq!((&dataset.link_splits[0].val.time, &dataset.link_splits[0].test.time), (&None, &None));
}

proptest! {
    /// No held-out link, no equal edge, no reverse of it is among the training edges; all other edges are.
    #[test]
    fn held_out_links_leave_no_trace(
        forward in proptest::collection::vec((0u32..12, 0u32..12), 8..60),
        back in proptest::collection::vec((0u32..12, 0u32..12), 0..60),
        same_type: bool,
        named: bool,
        seed: u64,
    ) {
        let mut dataset = graph(&forward, &back);
        if same_type {
            dataset.relations.iter_mut().for_each(|relation| (relation.src, relation.dst) = (0, 0));
        }
        let reverses = if named { vec![(0, 1)] } else { vec![] };
        let asked = LinkSplit { reverses, ..link_split(&[0], Order::Random(seed)) };
        let before = dataset.clone();
        let Ok(outcome) = split_links(&mut dataset, &asked) else { return Ok(()) };
        let split = &dataset.link_splits[0];
        let held_out: BTreeSet<(u32, u32)> = [&split.val, &split.test]
            .into_iter()
            .flat_map(|links| links.src.iter().copied().zip(links.dst.iter().copied()))
            .collect();
        prop_assert_eq!(held_out.len(), outcome.links[1] + outcome.links[2]);
        let symmetric = outcome.reverses.contains(&(0, 0));
        let is_of = |(src, dst)| held_out.contains(&(src, dst)) || (symmetric && held_out.contains(&(dst, src)));
        let expected: Vec<_> = edges(&before.relations[0]).into_iter().filter(|&edge| !is_of(edge)).collect();
        prop_assert_eq!(edges(&dataset.relations[0]), expected);
        let reversed = named || outcome.reverses.contains(&(0, 1));
        let stays = |&(src, dst): &(u32, u32)| !reversed || !is_of((dst, src));
        let expected: Vec<_> = edges(&before.relations[1]).into_iter().filter(stays).collect();
        prop_assert_eq!(edges(&dataset.relations[1]), expected);
        prop_assert_eq!(dataset.relations[0].weight.as_ref().map(|w| w.len()), Some(dataset.relations[0].num_edges()));
    }
}
