//! A partition holds what its source holds: undoing the renumbering gives the source, with edges in the order of the
//! owners of their destinations.

mod common;

use common::{Place, communities, integers, random};
use hgnnc_dataset::{Dataset, EdgeSplit, Features, LabelValues, RelationData, VertexIds};
use hgnnc_partition::{By, Options, Partition};
use proptest::prelude::*;

/// Values in the order of the source. `numbers` are those that the vertices had.
fn undone<T: Clone>(values: &[T], numbers: &[i64]) -> Vec<T> {
    let mut all: Vec<(i64, T)> = numbers.iter().copied().zip(values.iter().cloned()).collect();
    all.sort_by_key(|&(number, _)| number);
    all.into_iter().map(|(_, value)| value).collect()
}

/// The rows of features, sparse ones as pairs of column and value.
fn rows(features: &Features, count: usize) -> Vec<Vec<(u32, f32)>> {
    match features {
        Features::Dense(x) => {
            (0..count).map(|row| x.row(row).iter().enumerate().map(|(c, &v)| (c as u32, v)).collect()).collect()
        }
        Features::Sparse(x) => {
            let row =
                |(columns, values): (&[u32], &[f32])| columns.iter().copied().zip(values.iter().copied()).collect();
            (0..count).map(|at| row(x.row(at))).collect()
        }
    }
}

/// One row per vertex: its class, or its values and whether it has a label.
fn label_rows(values: &LabelValues, count: usize) -> Vec<(bool, Vec<f32>)> {
    match values {
        LabelValues::Single { of, .. } => of.iter().map(|&class| (class >= 0, vec![class as f32])).collect(),
        LabelValues::Multi { classes: dim, rows, labelled } | LabelValues::Real { dim, rows, labelled } => {
            (0..count).map(|row| (labelled[row], rows[row * dim..(row + 1) * dim].to_vec())).collect()
        }
    }
}

/// An edge with all that is known of it.
type Edge = (u32, u32, Option<f32>, Option<i64>, Vec<f32>, Targets);

/// The labels of an edge, and its part of each split.
type Targets = (Vec<(bool, Vec<f32>)>, Vec<Option<usize>>);

fn edges(of: &RelationData) -> Vec<Edge> {
    let labels: Vec<_> = of.labels.iter().map(|label| label_rows(&label.values, of.num_edges())).collect();
    let part = |split: &EdgeSplit, e: usize| {
        [&split.train, &split.val, &split.test].iter().position(|part| part.binary_search(&(e as u32)).is_ok())
    };
    let edge = |e: usize| {
        (
            of.src_ids[e],
            of.dst_ids[e],
            of.weight.as_ref().map(|weight| weight[e]),
            of.time.as_ref().map(|time| time[e]),
            of.features.as_ref().map_or(vec![], |x| x.row(e).to_vec()),
            (
                labels.iter().map(|rows| rows[e].clone()).collect(),
                of.splits.iter().map(|split| part(split, e)).collect(),
            ),
        )
    };
    (0..of.num_edges()).map(edge).collect()
}

fn check(place: &Place, source: &Dataset, found: &Partition) -> Result<(), TestCaseError> {
    let folder = place.path("parts");
    let parts = Dataset::load(&folder).unwrap_or_else(|error| panic!("{error}"));
    prop_assert_eq!(&Partition::load(&folder).expect("readable"), found);
    let names = |dataset: &Dataset| {
        (
            dataset.name.clone(),
            dataset.title.clone(),
            dataset.generator.clone(),
            dataset.metapaths.clone(),
            dataset
                .vertex_types
                .iter()
                .map(|ty| (ty.name.clone(), ty.count, ty.transforms.clone()))
                .collect::<Vec<_>>(),
            dataset.relations.iter().map(|r| (r.name.clone(), r.src, r.dst, r.transforms.clone())).collect::<Vec<_>>(),
            dataset
                .relations
                .iter()
                .flat_map(|r| r.labels.iter().map(|label| (label.name.clone(), label.class_names.clone())))
                .collect::<Vec<_>>(),
            dataset.labels.iter().map(|l| (l.name.clone(), l.vertex_type, l.class_names.clone())).collect::<Vec<_>>(),
        )
    };
    prop_assert_eq!(names(&parts), names(source));
    let numbers: Vec<Vec<i64>> = found.vertex_types.iter().map(|ty| integers(&folder, &ty.numbers)).collect();
    for (ty, of) in parts.vertex_types.iter().enumerate() {
        let (from, numbers) = (&source.vertex_types[ty], &numbers[ty]);
        // The numbers are those of all vertices, ascending within a rank.
        prop_assert_eq!(undone(numbers, numbers), (0..of.count as i64).collect::<Vec<_>>());
        for rank in 0..found.ranks {
            let own = found.vertices(ty, rank);
            let own = &numbers[own.start as usize..own.end as usize];
            prop_assert!(own.windows(2).all(|w| w[0] < w[1]));
        }
        prop_assert_eq!(of.time.as_ref().map(|time| undone(time, numbers)), from.time.clone());
        let kinds = |kinds: &hgnnc_dataset::Kinds, of: Vec<u32>| (kinds.names.clone(), of);
        prop_assert_eq!(
            of.kinds.as_ref().map(|k| kinds(k, undone(&k.of, numbers))),
            from.kinds.as_ref().map(|k| kinds(k, k.of.clone()))
        );
        let texts = |ids: &VertexIds| (0..ids.len()).map(|v| ids.text(v).into_owned()).collect::<Vec<_>>();
        prop_assert_eq!(of.ids.as_ref().map(|ids| undone(&texts(ids), numbers)), from.ids.as_ref().map(texts));
        prop_assert_eq!(of.fields.len(), from.fields.len());
        for field in std::iter::once(None).chain(from.fields.iter().map(|field| Some(&field.name[..]))) {
            prop_assert_eq!(
                of.features_of(field).map(|x| (x.dim(), x.is_sparse(), undone(&rows(x, of.count), numbers))),
                from.features_of(field).map(|x| (x.dim(), x.is_sparse(), rows(x, from.count)))
            );
        }
    }
    let old = |ty: usize, id: u32| numbers[ty][id as usize] as u32;
    for (relation, of) in parts.relations.iter().enumerate() {
        // A stable sort of the source's edges by the owner of the destination.
        let from = &source.relations[relation];
        let mut owners = vec![0; source.vertex_types[from.dst].count];
        for (new, &number) in numbers[from.dst].iter().enumerate() {
            owners[number as usize] = found.owner(from.dst, new as u64);
        }
        let mut expected = edges(from);
        expected.sort_by_key(|edge| owners[edge.1 as usize]);
        let renumbered: Vec<Edge> =
            edges(of).into_iter().map(|(s, d, w, t, x, y)| (old(of.src, s), old(of.dst, d), w, t, x, y)).collect();
        prop_assert_eq!(renumbered, expected);
    }
    for (label, from) in parts.labels.iter().zip(&source.labels) {
        let count = source.vertex_types[from.vertex_type].count;
        let found = undone(&label_rows(&label.values, count), &numbers[label.vertex_type]);
        prop_assert_eq!(found, label_rows(&from.values, count));
    }
    prop_assert_eq!(parts.splits.len(), source.splits.len());
    for (split, from) in parts.splits.iter().zip(&source.splits) {
        for (part, from) in [(&split.train, &from.train), (&split.val, &from.val), (&split.test, &from.test)] {
            let mut part: Vec<u32> = part.iter().map(|&id| old(split.vertex_type, id)).collect();
            part.sort_unstable();
            prop_assert_eq!(&part, from);
        }
    }
    for (split, from) in parts.link_splits.iter().zip(&source.link_splits) {
        for (links, from) in [(&split.val, &from.val), (&split.test, &from.test)] {
            prop_assert_eq!(&links.relation, &from.relation);
            prop_assert_eq!(&links.time, &from.time);
            for link in 0..links.len() {
                let of = &source.relations[links.relation[link] as usize];
                prop_assert_eq!(old(of.src, links.src[link]), from.src[link]);
                prop_assert_eq!(old(of.dst, links.dst[link]), from.dst[link]);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Any content, any way, from one rank to more ranks than there are vertices.
    #[test]
    fn undoing_a_partition_gives_the_source(seed in 0u64..100_000, ranks in 1usize..9, by in 0usize..3, passes in 1usize..4) {
        let source = random(seed);
        let place = Place::of(&source);
        let ranks = if ranks == 8 { 70 } else { ranks };
        let options = Options { by: By::ALL[by], passes, ..Options::new(ranks) };
        let found = place.partition(&options).unwrap_or_else(|error| panic!("{error}"));
        check(&place, &source, &found)?;
    }
}

/// More edges than are read at once, and buckets larger than their buffers.
#[test]
fn a_larger_dataset_is_undone_as_well() {
    let source = communities(12_000, 3);
    let place = Place::of(&source);
    let found = place.partition(&Options::new(3)).unwrap_or_else(|error| panic!("{error}"));
    check(&place, &source, &found).unwrap_or_else(|error| panic!("{error}"));
}

/// A partition is a dataset, so it can be partitioned. The hash of the source does not depend on how it is partitioned.
#[test]
fn a_partition_can_be_partitioned() {
    let place = Place::of(&random(5));
    let first = place.partition(&Options::new(2)).unwrap_or_else(|error| panic!("{error}"));
    std::fs::rename(place.path("parts"), place.path("first")).expect("renamed");
    let other = place.partition(&Options { by: By::Hash, ..Options::new(5) }).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(first.source, other.source);
    let source = Dataset::load(place.path("first")).unwrap_or_else(|error| panic!("{error}"));
    std::fs::remove_dir_all(place.path("data")).expect("removed");
    std::fs::remove_dir_all(place.path("parts")).expect("removed");
    std::fs::rename(place.path("first"), place.path("data")).expect("renamed");
    let found = place.partition(&Options::new(4)).unwrap_or_else(|error| panic!("{error}"));
    assert_ne!(found.source.hash, other.source.hash);
    check(&place, &source, &found).unwrap_or_else(|error| panic!("{error}"));
}
