//! Path instances against following every edge, their choice, and the errors of the list.

use std::collections::BTreeSet;

use hgnnc_dataset::{Dataset, RelationData, Step, VertexTypeData};
use hgnnc_graph::{Instances, MetapathOptions, SemanticGraphs, SgbError};
use proptest::prelude::*;

type Edges = Vec<(u32, u32)>;

fn dataset(counts: &[usize], relations: &[(usize, usize, Edges)]) -> Dataset {
    let vertex = |(i, &count): (usize, &usize)| VertexTypeData { name: format!("t{i}"), count, ..Default::default() };
    let relation = |(i, (src, dst, edges)): (usize, &(usize, usize, Edges))| RelationData {
        name: format!("r{i}"),
        src: *src,
        dst: *dst,
        src_ids: edges.iter().map(|e| e.0).collect(),
        dst_ids: edges.iter().map(|e| e.1).collect(),
        weight: Some((0..edges.len()).map(|e| e as f32).collect::<Vec<_>>().into()),
        ..Default::default()
    };
    Dataset {
        name: "tiny".into(),
        vertex_types: counts.iter().enumerate().map(vertex).collect(),
        relations: relations.iter().enumerate().map(relation).collect(),
        ..Default::default()
    }
}

fn instances(steps: &[Step], at_most: Option<u32>) -> Instances {
    Instances {
        graph: "P".into(),
        vertex_type: "P.paths".into(),
        steps: steps.to_vec(),
        at_most,
        relations: (0..=steps.len()).map(|position| format!("P.{position}")).collect(),
        edge_data: vec![true; steps.len()],
        past: false,
        memory_budget: 1 << 20,
    }
}

/// The listed instances: the vertices of each, from the first to the last, and the weights of its edges.
fn listed(data: &Dataset, of: &Instances) -> Vec<(Vec<u32>, Vec<f32>)> {
    let mut data = data.clone();
    of.add_to(&mut data, true).unwrap();
    let count = data.vertex_types[data.vertex_type("P.paths").unwrap()].count;
    let relations: Vec<&RelationData> =
        of.relations.iter().map(|name| &data.relations[data.relation(name).unwrap()]).collect();
    let (last, positions) = relations.split_last().unwrap();
    let instance = |number: usize| {
        assert!(
            positions.iter().all(|by| by.dst_ids[number] as usize == number) && last.src_ids[number] as usize == number
        );
        let vertices = positions.iter().map(|by| by.src_ids[number]).chain([last.dst_ids[number]]);
        let weights = positions.iter().map(|by| by.weight.as_ref().unwrap()[number]);
        (vertices.collect(), weights.collect())
    };
    (0..count).map(instance).collect()
}

/// Edges of a step as (source, position, destination), the way a path walks them.
fn walked(data: &Dataset, step: Step) -> Vec<(u32, usize, u32)> {
    let r = &data.relations[step.relation];
    let edges = r.src_ids.iter().zip(&r.dst_ids).enumerate();
    edges.map(|(e, (&s, &d))| if step.reverse { (d, e, s) } else { (s, e, d) }).collect()
}

/// All instances by following every edge, in the documented order.
fn naive(data: &Dataset, steps: &[Step]) -> Vec<(Vec<u32>, Vec<f32>)> {
    let end = data.step_ends(*steps.last().unwrap()).1;
    let mut all = vec![];
    for end in 0..data.vertex_types[end].count as u32 {
        let mut paths: Vec<(Vec<u32>, Vec<f32>)> = vec![(vec![end], vec![])];
        for &step in steps.iter().rev() {
            let mut longer = vec![];
            for (vertices, weights) in &paths {
                let mut arriving = walked(data, step);
                arriving.retain(|edge| edge.2 == vertices[0]);
                arriving.sort_unstable();
                longer.extend(arriving.iter().map(|&(source, edge, _)| {
                    ([&[source], &vertices[..]].concat(), [&[edge as f32], &weights[..]].concat())
                }));
            }
            paths = longer;
        }
        all.extend(paths);
    }
    all
}

/// Two types with edges between and within them, and a path over these.
fn case() -> impl Strategy<Value = (Dataset, Vec<Step>)> {
    let edges = |s: u32, d: u32| proptest::collection::vec((0..s, 0..d), 0..14);
    let steps = prop_oneof![
        Just(vec![Step::forward(0)]),
        Just(vec![Step::reverse(1)]),
        Just(vec![Step::forward(0), Step::reverse(0)]),
        Just(vec![Step::reverse(0), Step::forward(1), Step::forward(0)]),
        Just(vec![Step::forward(0), Step::reverse(0), Step::forward(0), Step::reverse(0)]),
    ];
    (edges(5, 4), edges(5, 5), steps)
        .prop_map(|(between, within, steps)| (dataset(&[5, 4], &[(0, 1, between), (0, 0, within)]), steps))
}

proptest! {
    #[test]
    fn all_instances_are_those_of_following_every_edge((data, steps) in case()) {
        let found = listed(&data, &instances(&steps, None));
        prop_assert_eq!(&found, &naive(&data, &steps));
        // As many as a counted metapath counts, for each pair.
        let options = MetapathOptions { counted: true, ..Default::default() };
        let pairs = SemanticGraphs::new(&data).metapath("P", &steps, options).unwrap();
        for ((&src, dst), &count) in pairs.csc.indices.iter().zip(pairs.edge_dst()).zip(pairs.counts.as_ref().unwrap()) {
            let joins = found.iter().filter(|(path, _)| (path[0], path[steps.len()]) == (src, dst));
            prop_assert_eq!(joins.count() as f32, count);
        }
        let counts = instances(&steps, None).count(&data).unwrap();
        prop_assert_eq!((counts.all, counts.listed), (found.len() as u128, found.len() as u128));
    }

    #[test]
    fn a_choice_is_a_part_of_all_in_their_order((data, steps) in case(), limit in 1..6u32) {
        let (all, chosen) = (naive(&data, &steps), listed(&data, &instances(&steps, Some(limit))));
        let mut rest = all.iter();
        prop_assert!(chosen.iter().all(|instance| rest.any(|known| known == instance)));
        let into = |of: &[(Vec<u32>, Vec<f32>)], end: u32| of.iter().filter(|(path, _)| path[steps.len()] == end).count();
        for end in 0..5 {
            prop_assert_eq!(into(&chosen, end), into(&all, end).min(limit as usize));
        }
    }
}

/// Times of some of the vertex types and relations.
fn with_times() -> impl Strategy<Value = (Dataset, Vec<Step>)> {
    (case(), proptest::collection::vec(0..4i64, 5 + 4 + 28), 1..16u32).prop_map(|((mut data, steps), times, of)| {
        let mut times = times.into_iter().cycle();
        let mut some =
            |number: u32, count: usize| (of >> number & 1 == 1).then(|| times.by_ref().take(count).collect());
        for (number, vertices) in (0..).zip(&mut data.vertex_types) {
            vertices.time = some(number, vertices.count);
        }
        for (number, relation) in (2..).zip(&mut data.relations) {
            relation.time = some(number, relation.src_ids.len());
        }
        (data, steps)
    })
}

proptest! {
    /// Under a cutoff, the instances are those of which no edge and no vertex is later than the last one; a limit chooses of these.
    #[test]
    fn instances_of_the_past_are_not_later_than_their_end((data, steps) in with_times(), limit in 1..4u32) {
        let types: Vec<usize> =
            steps.iter().map(|&s| data.step_ends(s).0).chain([data.step_ends(steps[steps.len() - 1]).1]).collect();
        let latest = |(vertices, edges): &(Vec<u32>, Vec<f32>)| {
            let of = |times: &Option<Vec<i64>>, at: usize| times.as_ref().map(|times| times[at]);
            let at = types.iter().zip(vertices).filter_map(|(&ty, &v)| of(&data.vertex_types[ty].time, v as usize));
            // The weight of an edge is its position.
            let by = steps.iter().zip(edges).filter_map(|(s, &e)| of(&data.relations[s.relation].time, e as usize));
            at.chain(by).max()
        };
        let end = |path: &[u32]| data.vertex_types[types[steps.len()]].time.as_ref().map(|all| all[path[steps.len()] as usize]);
        let expected: Vec<_> = naive(&data, &steps)
            .into_iter()
            .filter(|instance| end(&instance.0).is_none_or(|cutoff| latest(instance).is_some_and(|time| time <= cutoff)))
            .collect();
        let of = Instances { past: true, ..instances(&steps, None) };
        prop_assert_eq!(&listed(&data, &of), &expected);
        prop_assert_eq!(of.count(&data).unwrap().all, expected.len() as u128);
        let mut with = data.clone();
        of.add_to(&mut with, true).unwrap();
        let times = with.vertex_types[2].time.clone();
        prop_assert_eq!(times.unwrap_or_default(), expected.iter().filter_map(latest).collect::<Vec<i64>>());
        let chosen = listed(&data, &Instances { past: true, ..instances(&steps, Some(limit)) });
        let mut rest = expected.iter();
        prop_assert!(chosen.iter().all(|instance| rest.any(|known| known == instance)));
        let into = |of: &[(Vec<u32>, Vec<f32>)], v: u32| of.iter().filter(|(path, _)| path[steps.len()] == v).count();
        prop_assert!((0..5).all(|v| into(&chosen, v) == into(&expected, v).min(limit as usize)));
    }
}

/// A path over a hub: 40 x 40 instances for each of 40 ends.
fn star() -> (Dataset, Vec<Step>) {
    let n = 40;
    let data = dataset(&[n as usize, 1], &[(0, 1, (0..n).map(|v| (v, 0)).collect())]);
    (data, vec![Step::forward(0), Step::reverse(0), Step::forward(0), Step::reverse(0)])
}

#[test]
fn a_choice_is_uniform_and_the_same_every_time() {
    let (data, steps) = star();
    let of = instances(&steps, Some(50));
    let chosen = listed(&data, &of);
    assert_eq!(chosen.len(), 40 * 50);
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one_thread.install(|| listed(&data, &of)), chosen);
    // Each of 40 vertices is the middle one of 50 expected instances, with a deviation of 7.
    for vertex in 0..40 {
        let middle = chosen.iter().filter(|(path, _)| path[2] == vertex).count();
        assert!((20..=80).contains(&middle), "vertex {vertex} is the middle of {middle} instances");
    }
    let of_first: BTreeSet<&Vec<u32>> = chosen.iter().map(|(path, _)| path).filter(|path| path[4] == 0).collect();
    assert_eq!(of_first.len(), 50, "without replacement");
}

#[test]
fn too_many_instances_are_counted_and_refused_with_a_limit_that_fits() {
    let (data, steps) = star();
    let mut unchanged = data.clone();
    let error = instances(&steps, None).add_to(&mut unchanged, true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`P` has 64000 path instances, up to 1600 of them for one vertex; listing them takes 10.7 MiB, but the memory budget is \
         1024.0 KiB: write `P at most 100 per vertex` to choose that many at random for each vertex"
    );
    assert!(matches!(error, SgbError::TooManyInstances { fitting: 100, .. }));
    assert_eq!((unchanged.vertex_types.len(), unchanged.relations.len()), (2, 1));
    assert_eq!(listed(&data, &instances(&steps, Some(100))).len(), 4000);
    // A program that reads none of them has empty relations.
    let counts = instances(&steps, None).add_to(&mut unchanged, false).unwrap();
    assert_eq!((counts.all, counts.most), (64_000, 1600));
    assert_eq!(unchanged.vertex_types[2].count, 0);
    assert!(unchanged.relations[1..].iter().all(|relation| relation.src_ids.is_empty()));
}

#[test]
fn a_vertex_of_2_to_the_64_instances_is_refused() {
    let (data, steps) = star();
    let error = instances(&steps.repeat(8), Some(5)).count(&data).unwrap_err();
    assert!(matches!(error, SgbError::CountOverflow { .. }), "{error}");
}
