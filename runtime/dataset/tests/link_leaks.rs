//! Held-out links that leak into training.

mod common;

use std::collections::BTreeSet;

use hgnnc_dataset::{DataError, Dataset, LinkSplitData, Links, RelationData, VertexTypeData};
use proptest::prelude::*;

type Edges<'a> = &'a [(u32, u32)];
type Held<'a> = &'a [(u32, u32, u32)];

const COUNT: usize = 5;

fn relation(name: &str, (src, dst): (usize, usize), edges: Edges<'_>) -> RelationData {
    let ids = |end: fn(&(u32, u32)) -> u32| edges.iter().map(end).collect();
    let (name, src_ids, dst_ids) = (name.to_string(), ids(|e| e.0), ids(|e| e.1));
    RelationData { name, src, dst, src_ids, dst_ids, ..Default::default() }
}

/// Users and artists; `likes` and `knows` are predicted, `liked_by` and `met` duplicate links.
fn dataset(likes: Edges<'_>, liked_by: Edges<'_>, knows: Edges<'_>, met: Edges<'_>) -> Dataset {
    let vertices = |name: &str| VertexTypeData { name: name.into(), count: COUNT, ..VertexTypeData::default() };
    Dataset {
        name: "music".into(),
        vertex_types: vec![vertices("user"), vertices("artist")],
        relations: vec![
            relation("likes", (0, 1), likes),
            relation("liked_by", (1, 0), liked_by),
            relation("knows", (0, 0), knows),
            relation("met", (0, 0), met),
        ],
        ..Dataset::default()
    }
}

fn links(held: Held<'_>) -> Links {
    let row = |of: fn(&(u32, u32, u32)) -> u32| held.iter().map(of).collect();
    Links { relation: row(|l| l.0), src: row(|l| l.1), dst: row(|l| l.2), time: None }
}

fn errors(dataset: &Dataset, val: Held<'_>, test: Held<'_>, predicted: &[usize], repeats: &[usize]) -> Vec<DataError> {
    let split = LinkSplitData { name: "a".into(), val: links(val), test: links(test) };
    dataset.check_links(&split, predicted, repeats).err().map_or(vec![], |found| found.errors)
}

#[track_caller]
fn says(found: &[DataError], expected: &[&str]) {
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
}

#[test]
fn a_link_is_in_one_part_once() {
    let data = dataset(&[(0, 1), (2, 3), (2, 3), (4, 0)], &[], &[(0, 1)], &[]);
    says(&errors(&data, &[(0, 0, 2), (0, 1, 0)], &[(0, 0, 3)], &[0], &[1]), &[]);
    says(
        &errors(&data, &[(0, 4, 0), (0, 2, 3), (0, 1, 1)], &[(0, 0, 1), (0, 1, 1)], &[0], &[]),
        &[
            "link split `a`: 2 links are in both `train` (the edges of the relation) and `val`, such as 2 -> 3 of relation `likes`",
            "link split `a`: 1 link is in both `train` (the edges of the relation) and `test`, such as 0 -> 1 of relation `likes`",
            "link split `a`: 1 link is in both `val` and `test`, such as 1 -> 1 of relation `likes`",
        ],
    );
    says(
        &errors(&data, &[], &[(2, 3, 4), (2, 3, 4), (2, 3, 4)], &[0, 2], &[]),
        &["link split `a`: 1 link is twice in `test`, such as 3 -> 4 of relation `knows`"],
    );
    // The same endpoints in another relation are another link, and so is the reversed link.
    says(&errors(&data, &[(2, 4, 0), (2, 1, 0)], &[(2, 0, 4)], &[0, 2], &[]), &[]);
    // Links of a relation that the model does not predict are not checked.
    says(&errors(&data, &[(0, 0, 1)], &[(0, 0, 1)], &[2], &[]), &[]);
}

#[test]
fn edges_that_repeat_links_repeat_none_that_are_held_out() {
    let data = dataset(&[(0, 1)], &[(1, 0), (3, 2), (4, 4)], &[(0, 1)], &[(1, 0), (2, 3)]);
    says(
        &errors(&data, &[(0, 2, 3)], &[(0, 4, 4), (0, 3, 2)], &[0], &[1]),
        &[
            "link split `a`: 1 edge of relation `liked_by`, which repeats links by `exclude`, repeats links of `val`, such as 3 -> 2; what is held out must not carry messages",
            "link split `a`: 1 edge of relation `liked_by`, which repeats links by `exclude`, repeats links of `test`, such as 4 -> 4; what is held out must not carry messages",
        ],
    );
    // Between vertices of one type, an edge duplicates a link in either direction: here the training link.
    says(&errors(&data, &[(2, 1, 0)], &[], &[2], &[3]), &[]);
    assert_eq!(errors(&data, &[(2, 2, 3)], &[], &[2], &[3]).len(), 1);
    assert_eq!(errors(&data, &[(2, 3, 2)], &[], &[2], &[3]).len(), 1);
    // The relation is not declared as a duplicate, or is predicted itself.
    says(&errors(&data, &[(2, 2, 3)], &[], &[2], &[]), &[]);
    says(&errors(&data, &[(2, 2, 3)], &[], &[2, 3], &[3]), &[]);
}

#[test]
fn published_splits_have_no_leaks() {
    for folder in common::real_datasets() {
        let dataset = Dataset::load(&folder).unwrap_or_else(|e| panic!("{e}"));
        let all: Vec<usize> = (0..dataset.relations.len()).collect();
        for split in &dataset.link_splits {
            assert_eq!(dataset.check_links(split, &all, &[]), Ok(()), "{}", folder.display());
        }
    }
}

fn random_edges() -> impl Strategy<Value = Vec<(u32, u32)>> {
    proptest::collection::vec((0..COUNT as u32, 0..COUNT as u32), 0..8)
}

fn random_links() -> impl Strategy<Value = Vec<(u32, u32, u32)>> {
    let relation = prop_oneof![Just(0u32), Just(2)];
    proptest::collection::vec((relation, 0..COUNT as u32, 0..COUNT as u32), 0..8)
}

proptest! {
    /// The same verdict as from comparing all pairs.
    #[test]
    fn as_by_comparing_all(
        edges in proptest::collection::vec(random_edges(), 4),
        val in random_links(),
        test in random_links(),
    ) {
        let data = dataset(&edges[0], &edges[1], &edges[2], &edges[3]);
        let found = errors(&data, &val, &test, &[0, 2], &[1, 3]);
        let trained = |&(relation, src, dst): &(u32, u32, u32)| edges[relation as usize].contains(&(src, dst));
        let distinct = |links: &[(u32, u32, u32)]| links.iter().copied().collect::<BTreeSet<_>>();
        let (v, t) = (distinct(&val), distinct(&test));
        let overlap = |first: &str, second: &str| -> usize {
            let of = |error: &DataError| match error {
                DataError::LinkOverlap { first: a, second: b, links, .. } if a == first && b == second => Some(*links),
                _ => None,
            };
            found.iter().find_map(of).unwrap_or(0)
        };
        prop_assert_eq!(overlap("train", "val"), v.iter().filter(|link| trained(link)).count());
        prop_assert_eq!(overlap("train", "test"), t.iter().filter(|link| trained(link)).count());
        prop_assert_eq!(overlap("val", "test"), v.intersection(&t).count());
        let twice = |links: &[(u32, u32, u32)], link: &(u32, u32, u32)| links.iter().filter(|l| *l == link).count() > 1;
        prop_assert_eq!(overlap("val", "val"), v.iter().filter(|link| twice(&val, link)).count());
        for (part, held) in [("val", &v), ("test", &t)] {
            for (name, of, repeating) in [("liked_by", 0, &edges[1]), ("met", 2, &edges[3])] {
                let may_repeat = |&(a, b): &(u32, u32)| if of == 0 { vec![(0, b, a)] } else { vec![(2, a, b), (2, b, a)] };
                let is_leak = |edge: &&(u32, u32)| {
                    let links = may_repeat(edge);
                    links.iter().any(|link| held.contains(link)) && !links.iter().any(trained)
                };
                let leaks = repeating.iter().filter(is_leak).collect::<BTreeSet<_>>().len();
                let told = found.iter().find_map(|error| match error {
                    DataError::LinkRepeated { part: p, relation, edges, .. } if p == part && relation == name => Some(*edges),
                    _ => None,
                });
                prop_assert_eq!(told.unwrap_or(0), leaks);
            }
        }
    }
}
