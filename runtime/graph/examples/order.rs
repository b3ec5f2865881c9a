//! Compares vertex orders: `cargo run --release -p hgnnc-graph --example order -- DIR [MIB [WIDTH]]`.
//!
//! Every relation is traversed in both directions, gathering rows of WIDTH (64) numbers. For each order: seconds to
//! compute it, and gigabytes missed in a cache of MIB (32) MiB, by the model that selects orders, and by a 16-way
//! set-associative cache of lines that also holds row offsets, edges and sums. Then alternatives to reordering: edges
//! to high-degree rows in a pass of their own, gathered rows in blocks that fit in the cache, and interleaved
//! traversals of one table.

use std::time::Instant;

use hgnnc_dataset::{Dataset, LabelValues};
use hgnnc_graph::order::{
    Gather, Growth, NO_CLUSTER, Order, by_cluster, by_degree, by_first_use, grow_clusters, missed_bytes,
};
use hgnnc_graph::{RelationOptions, SemanticGraph, SemanticGraphs};
use rayon::prelude::*;

const GB: f64 = 1e9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("usage: order DIR [MIB [WIDTH]]")?;
    let cache = args.next().map_or(Ok(32.0), |mib| mib.parse::<f64>())? * f64::from(1 << 20);
    let row_bytes = 4.0 * args.next().map_or(Ok(64.0), |width| width.parse::<f64>())?;
    let dataset = Dataset::load(&folder).map_err(|errors| format!("{errors:?}"))?;
    let counts: Vec<usize> = dataset.vertex_types.iter().map(|vertices| vertices.count).collect();
    let builder = SemanticGraphs::new(&dataset);
    let relation = |relation| builder.relation(relation, RelationOptions::default());
    let graphs: Vec<SemanticGraph> = (0..dataset.relations.len()).map(relation).collect::<Result<_, _>>()?;
    let gathers: Vec<Gather<'_>> = dataset
        .relations
        .iter()
        .zip(&graphs)
        .flat_map(|(ends, graph)| {
            let of = |(owner, other), indptr, others| Gather {
                owner_type: owner,
                other_type: other,
                indptr,
                other: others,
                num_others: counts[other],
                rows: vec![(row_bytes, 1.0)],
            };
            [
                of((ends.dst, ends.src), &graph.csc.indptr[..], &graph.csc.indices[..]),
                of((ends.src, ends.dst), &graph.csr.indptr[..], &graph.csr.indices[..]),
            ]
        })
        .collect();
    let names = dataset.relations.iter().flat_map(|relation| [relation.name.clone(), format!("-{}", relation.name)]);
    println!("GB: all, then {}", names.collect::<Vec<_>>().join(", "));
    let table = |name: &str, seconds: f64, orders: Option<&[Order]>| {
        let of = |vertex_type: usize| orders.map(|orders| &orders[vertex_type]);
        type Missed<'a> = &'a (dyn Fn(&Gather<'_>) -> f64 + Sync);
        let model = |gather: &Gather<'_>| missed_bytes(gather, of(gather.owner_type), of(gather.other_type), cache);
        let lines = |gather: &Gather<'_>| by_lines(gather, of(gather.owner_type), of(gather.other_type), cache);
        for (how, missed) in [("model", &model as Missed<'_>), ("16 ways", &lines)] {
            let bytes: Vec<f64> = gathers.par_iter().map(missed).collect();
            let each: Vec<String> = bytes.iter().map(|bytes| format!("{:.3}", bytes / GB)).collect();
            println!(
                "{name:<24} {seconds:5.2} s  {how:<8} {:7.3} | {}",
                bytes.iter().sum::<f64>() / GB,
                each.join(" ")
            );
        }
    };
    table("as it is", 0.0, None);
    let timed = |make: &dyn Fn() -> Vec<Order>| {
        let start = Instant::now();
        (make(), start.elapsed().as_secs_f64())
    };
    let (orders, seconds) = timed(&|| by_degree(&counts, &gathers));
    table("by degree", seconds, Some(&orders));
    let (first_use, seconds) = timed(&|| by_first_use(&counts, &gathers));
    table("by first use", seconds, Some(&first_use));
    let grown = |start: Vec<Vec<u32>>, clusters: usize, rounds: usize| -> Vec<Order> {
        let growth = Growth { clusters, rounds, slack: 10.0 };
        grow_clusters(&gathers, start, growth).iter().map(|of| by_cluster(of)).collect()
    };
    let blocks = |order: &Order| {
        order.rank.iter().map(|&rank| (rank as usize * 512 / order.rank.len().max(1)) as u32).collect::<Vec<u32>>()
    };
    let (orders, seconds) = timed(&|| grown(first_use.iter().map(blocks).collect(), 512, 2));
    table("clusters", seconds, Some(&orders));
    let mut best = orders;
    if let Some(label) = dataset.labels.first()
        && let LabelValues::Single { of, classes } = &label.values
    {
        let trained = dataset.splits.iter().find(|split| split.vertex_type == label.vertex_type);
        let mut start: Vec<Vec<u32>> = counts.iter().map(|&count| vec![NO_CLUSTER; count]).collect();
        for &vertex in trained.map_or(&[][..], |split| &split.train) {
            start[label.vertex_type][vertex as usize] = u32::try_from(of[vertex as usize]).unwrap_or(NO_CLUSTER);
        }
        for rounds in [1, 2, 3] {
            let (orders, seconds) = timed(&|| grown(start.clone(), *classes, rounds));
            table(&format!("around classes, {rounds} x"), seconds, Some(&orders));
            best = orders;
        }
    }
    for (name, orders) in [("as it is", None), ("in the last order", Some(&best[..]))] {
        println!("\n{name}: whole; hubs apart; in parts; by turns with the reverse");
        for (gather, number) in gathers.iter().zip(0..) {
            let of = |vertex_type: usize| orders.map(|orders| &orders[vertex_type]);
            let (owners, others) = (of(gather.owner_type), of(gather.other_type));
            let whole = missed_bytes(gather, owners, others, cache);
            let apart = hubs_apart(gather, owners, others, cache);
            let parts = in_parts(gather, cache);
            let turns = (gather.owner_type == gather.other_type && number % 2 == 0).then(|| {
                let reverse = &gathers[number + 1];
                let both = whole + missed_bytes(reverse, owners, others, cache);
                format!("{:.3} of {:.3}", by_turns(gather, reverse, owners, cache) / GB, both / GB)
            });
            println!("{:.3}; {:.3}; {:.3}; {}", whole / GB, apart / GB, parts / GB, turns.unwrap_or_default());
        }
    }
    Ok(())
}

/// Bytes missed in a 16-way set-associative cache of lines, with all arrays of the traversal.
fn by_lines(gather: &Gather<'_>, owners: Option<&Order>, others: Option<&Order>, cache_bytes: f64) -> f64 {
    const WAYS: usize = 16;
    const LINE: u64 = 64;
    let sets = (cache_bytes as usize / (WAYS * LINE as usize)).max(1) as u64;
    let mut lines = vec![u64::MAX; WAYS * sets as usize];
    // The most recently used line of a set comes first.
    let mut lacks = |line: u64| -> bool {
        let set = &mut lines[(line % sets) as usize * WAYS..][..WAYS];
        let found = set.iter().position(|&held| held == line);
        set[..=found.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = line;
        found.is_none()
    };
    let row_lines = (gather.rows[0].0 as u64).div_ceil(LINE);
    // Tables, edges and sums have disjoint address ranges.
    let (mut edges, mut sums) = (1u64 << 40, 1u64 << 41);
    let mut missed = 0u64;
    for row in 0..gather.indptr.len() - 1 {
        let row = owners.map_or(row, |order| order.original[row] as usize);
        let own = &gather.other[gather.indptr[row] as usize..gather.indptr[row + 1] as usize];
        for &other in own {
            edges += 4;
            lacks(edges / LINE);
            let other = others.map_or(other, |order| order.rank[other as usize]);
            let first = u64::from(other) * row_lines;
            missed += (first..first + row_lines).map(|line| u64::from(lacks(line))).sum::<u64>();
        }
        (0..row_lines).for_each(|line| {
            lacks(sums + line);
        });
        sums += row_lines;
    }
    (missed * LINE) as f64
}

/// Edges to the most gathered rows, as many as fit in half of the cache, come in a first pass: sums of rows in both
/// passes are stored, reloaded and stored again.
fn hubs_apart(gather: &Gather<'_>, owners: Option<&Order>, others: Option<&Order>, cache: f64) -> f64 {
    let mut reads = vec![0u32; gather.num_others];
    gather.other.iter().for_each(|&other| reads[other as usize] += 1);
    let mut rows: Vec<u32> = (0..gather.num_others as u32).collect();
    rows.sort_by_key(|&row| std::cmp::Reverse(reads[row as usize]));
    let hubs = ((cache / 2.0 / gather.rows[0].0) as usize).min(rows.len());
    let mut is_hub = vec![false; gather.num_others];
    rows[..hubs].iter().for_each(|&row| is_hub[row as usize] = true);
    let part = |hub: bool| {
        let (mut indptr, mut other) = (vec![0u64], vec![]);
        for ends in gather.indptr.windows(2) {
            let own = &gather.other[ends[0] as usize..ends[1] as usize];
            other.extend(own.iter().filter(|&&row| is_hub[row as usize] == hub));
            indptr.push(other.len() as u64);
        }
        (indptr, other)
    };
    let parts = [part(true), part(false)];
    let missed = parts.iter().map(|(indptr, other)| {
        missed_bytes(&Gather { indptr: &indptr[..], other: &other[..], ..gather.clone() }, owners, others, cache)
    });
    let degree = |part: usize, row: usize| parts[part].0[row + 1] - parts[part].0[row];
    let both = (0..gather.indptr.len() - 1).filter(|&row| degree(0, row) > 0 && degree(1, row) > 0).count();
    missed.sum::<f64>() + 2.0 * both as f64 * gather.rows[0].0
}

/// One pass per block of gathered rows that fits in half of the cache: each row is read once, and sums are reloaded and
/// stored for each block after the first.
fn in_parts(gather: &Gather<'_>, cache: f64) -> f64 {
    let rows_of_part = (cache / 2.0 / gather.rows[0].0).max(1.0) as usize;
    let parts = gather.num_others.div_ceil(rows_of_part);
    let mut last_owner = vec![u32::MAX; parts];
    let mut sums = 0u64;
    for (owner, ends) in gather.indptr.windows(2).enumerate() {
        let mut touched = 0u64;
        for &other in &gather.other[ends[0] as usize..ends[1] as usize] {
            let last = &mut last_owner[other as usize / rows_of_part];
            touched += u64::from(std::mem::replace(last, owner as u32) != owner as u32);
        }
        sums += touched.saturating_sub(1);
    }
    gather.num_others as f64 * gather.rows[0].0 + 2.0 * sums as f64 * gather.rows[0].0
}

/// Interleaves, row by row, two traversals that gather from the same table.
fn by_turns(one: &Gather<'_>, other: &Gather<'_>, owners: Option<&Order>, cache: f64) -> f64 {
    let (mut indptr, mut rows) = (vec![0u64], vec![]);
    for row in 0..one.indptr.len() - 1 {
        for gather in [one, other] {
            rows.extend(&gather.other[gather.indptr[row] as usize..gather.indptr[row + 1] as usize]);
        }
        indptr.push(rows.len() as u64);
    }
    missed_bytes(&Gather { indptr: &indptr, other: &rows, ..one.clone() }, owners, None, cache)
}
