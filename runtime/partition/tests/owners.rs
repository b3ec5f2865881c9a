//! Which rank owns what, and what each rank is told of it.

mod common;

use std::collections::BTreeSet;

use common::{Place, communities, integers, random};
use hgnnc_dataset::Dataset;
use hgnnc_partition::{By, Options, Partition};

fn partitioned(dataset: &Dataset, options: &Options) -> (Place, Dataset, Partition) {
    let place = Place::of(dataset);
    let found = place.partition(options).unwrap_or_else(|error| panic!("{error}"));
    let parts = Dataset::load(place.path("parts")).unwrap_or_else(|error| panic!("{error}"));
    (place, parts, found)
}

fn sizes(borders: &[u64]) -> Vec<u64> {
    borders.windows(2).map(|w| w[1] - w[0]).collect()
}

#[test]
fn in_edges_of_a_rank_are_one_range() {
    for seed in 0..20 {
        let (_, parts, found) = partitioned(&random(seed), &Options::new(3));
        for (relation, of) in parts.relations.iter().enumerate() {
            for (edge, &destination) in of.dst_ids.iter().enumerate() {
                let owner = found.owner(of.dst, destination.into());
                assert!(found.in_edges(relation, owner).contains(&(edge as u64)));
                assert!(found.vertices(of.dst, owner).contains(&destination.into()));
            }
        }
    }
}

#[test]
fn out_edges_of_a_rank_are_one_range_of_the_files_beside() {
    for seed in 0..20 {
        let (place, parts, found) = partitioned(&random(seed), &Options::new(3));
        for (relation, of) in parts.relations.iter().enumerate() {
            let files = &found.relations[relation];
            let positions = integers(&place.path("parts"), files.out_edges.as_deref().expect("three ranks"));
            let ends = integers(&place.path("parts"), files.out_ends.as_deref().expect("three ranks"));
            let owner = |edge: i64| found.owner(of.src, of.src_ids[edge as usize].into());
            let mut expected: Vec<i64> = (0..of.num_edges() as i64).collect();
            expected.sort_by_key(|&edge| owner(edge));
            assert_eq!(positions, expected);
            for (at, &edge) in positions.iter().enumerate() {
                assert!(found.out_edges(relation, owner(edge)).contains(&(at as u64)));
                let found = (ends[at], ends[of.num_edges() + at]);
                assert_eq!(found, (of.src_ids[edge as usize].into(), of.dst_ids[edge as usize].into()));
            }
        }
    }
}

#[test]
fn cut_edges_mirrors_and_seeds_are_counted() {
    // Eleven ranks: mirrors are counted for eight at a time.
    for (seed, ranks) in (0..20).map(|seed| (seed, if seed % 2 == 0 { 3 } else { 11 })) {
        let (_, parts, found) = partitioned(&random(seed), &Options::new(ranks));
        let mut sources = vec![BTreeSet::new(); ranks];
        let mut destinations = vec![BTreeSet::new(); ranks];
        let mut cut = 0;
        for of in &parts.relations {
            for (&s, &d) in of.src_ids.iter().zip(&of.dst_ids) {
                let (from, to) = (found.owner(of.src, s.into()), found.owner(of.dst, d.into()));
                if from != to {
                    cut += 1;
                    sources[to].insert((of.src, s));
                    destinations[from].insert((of.dst, d));
                }
            }
        }
        assert_eq!(found.cut_edges, cut);
        assert_eq!(found.relations.iter().map(|relation| relation.cut_edges).sum::<u64>(), cut);
        for (ty, of) in found.vertex_types.iter().enumerate() {
            let count = |sets: &[BTreeSet<(usize, u32)>]| -> Vec<u64> {
                sets.iter().map(|set| set.iter().filter(|&&(of, _)| of == ty).count() as u64).collect()
            };
            assert_eq!(of.mirror_sources, count(&sources));
            assert_eq!(of.mirror_destinations, count(&destinations));
            let mut seeds = vec![0; ranks];
            for &seed in parts.split(ty, None).map_or(&[][..], |split| &split.train) {
                seeds[found.owner(ty, seed.into())] += 1;
            }
            assert_eq!(of.seeds, seeds);
        }
    }
}

/// Each rank has at most 1.05 times its share, of seeds and of other vertices of each type.
#[test]
fn a_streamed_partition_keeps_its_caps() {
    let cap = |count: u64, ranks: u64| count.div_ceil(ranks).max((1.05 * count as f64 / ranks as f64) as u64);
    for ranks in [2, 3, 8] {
        let dataset = communities(2000, 5);
        let (_, _, found) = partitioned(&dataset, &Options::new(ranks));
        let of = |count| cap(count, ranks as u64);
        let papers = &found.vertex_types[0];
        assert!(papers.seeds.iter().all(|&seeds| seeds <= of(200)), "{:?}", papers.seeds);
        let others = sizes(&papers.borders).into_iter().zip(&papers.seeds).map(|(all, seeds)| all - seeds);
        assert!(others.clone().all(|others| others <= of(1800)), "{:?}", others.collect::<Vec<_>>());
        let authors = sizes(&found.vertex_types[1].borders);
        assert!(authors.iter().all(|&authors| authors <= of(1000)), "{authors:?}");
    }
}

#[test]
fn hash_and_ranges_differ_by_one_vertex_at_most() {
    for by in [By::Hash, By::Range] {
        let (_, _, found) = partitioned(&communities(1003, 5), &Options { by, ..Options::new(4) });
        for of in &found.vertex_types {
            let others: Vec<u64> =
                sizes(&of.borders).into_iter().zip(&of.seeds).map(|(all, seeds)| all - seeds).collect();
            for sizes in [&of.seeds, &others] {
                let (least, most) = (sizes.iter().min(), sizes.iter().max());
                assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{by:?} {sizes:?}");
            }
        }
    }
}

/// Four groups, of which a tenth of the edges leave: 7.5 % of the edges are cut if each group has a rank of its own.
#[test]
fn a_streamed_partition_finds_communities() {
    let dataset = communities(4000, 4);
    let share = |by| {
        let (_, _, found) = partitioned(&dataset, &Options { by, ..Options::new(4) });
        found.cut_edges as f64 / found.source.edges as f64
    };
    let (hash, fennel) = (share(By::Hash), share(By::Fennel));
    assert!((0.7..0.8).contains(&hash), "{hash}");
    assert!(fennel < 0.3, "{fennel}");
}

/// Relations that do not decide are cut as if by chance, the others are not.
#[test]
fn only_the_named_relations_decide() {
    let mut dataset = communities(4000, 4);
    // The authors' groups are others than those of the papers that cite each other.
    let authors = dataset.vertex_types[1].count as u32;
    dataset.relations[1].src_ids.iter_mut().for_each(|id| *id = (*id * 7 + 3) % authors);
    let options = Options { relations: vec!["cites".into()], ..Options::new(4) };
    let (_, _, found) = partitioned(&dataset, &options);
    let share = |relation: usize| {
        let of = &found.relations[relation];
        of.cut_edges as f64 / of.in_borders[4] as f64
    };
    assert!(share(0) < 0.4, "{}", share(0));
    assert!(share(1) > 0.7, "{}", share(1));
    assert_eq!(found.relations_used, ["cites"]);
}

#[test]
fn one_rank_owns_all_in_the_order_of_the_source() {
    let dataset = random(11);
    let (place, parts, found) = partitioned(&dataset, &Options::new(1));
    assert_eq!(found.cut_edges, 0);
    for of in &found.vertex_types {
        let numbers = integers(&place.path("parts"), &of.numbers);
        assert!(numbers.iter().enumerate().all(|(new, &number)| number == new as i64));
    }
    for (of, from) in parts.relations.iter().zip(&dataset.relations) {
        assert_eq!((&of.src_ids, &of.dst_ids), (&from.src_ids, &from.dst_ids));
    }
    assert!(found.relations.iter().all(|of| of.out_edges.is_none() && of.out_ends.is_none()));
}

/// A type of two vertices on five ranks, beside an empty one: three ranks have none of the first, all have none of the
/// second.
#[test]
fn a_type_may_have_fewer_vertices_than_ranks() {
    let mut dataset = communities(100, 5);
    let small = |name: &str, count| hgnnc_dataset::VertexTypeData { name: name.into(), count, ..Default::default() };
    dataset.vertex_types.extend([small("small", 2), small("empty", 0)]);
    for by in By::ALL {
        let (_, _, found) = partitioned(&dataset, &Options { by, ..Options::new(5) });
        let mut small = sizes(&found.vertex_types[2].borders);
        small.sort_unstable();
        assert_eq!(small, [0, 0, 0, 1, 1]);
        assert_eq!(found.vertex_types[3].borders, [0; 6]);
    }
}
