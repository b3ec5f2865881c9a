//! Sampled edges per second: `bench DATASET [THREADS]`, on all relations and reverses of a dataset, from shuffled seeds of
//! the type that its first label is of: for several fan-outs in batches of 1024, then for other sizes of batches, with one
//! thread and with so many, by turns.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hgnnc_graph::Dataset;
use hgnnc_ir::random::bits;
use hgnnc_sample::Fanout::AtMost;
use hgnnc_sample::{Batch, BatchKey, Plan, SampleGraph, Sampler, Transposed, sample_each};

/// Rounds of a measurement, behind one that warms up. Others may use the machine, so the best and the median are shown.
const ROUNDS: u64 = 8;

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(folder) = args.next() else {
        eprintln!("usage: bench DATASET [THREADS]");
        std::process::exit(2);
    };
    let threads: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(2);
    let start = Instant::now();
    let dataset = Dataset::load(&folder).unwrap_or_else(|error| panic!("{error}"));
    let graph = SampleGraph::of_dataset(&dataset).unwrap_or_else(|error| panic!("{error}"));
    println!("loaded in {:.2} s", start.elapsed().as_secs_f64());
    let target = dataset.labels.first().map_or(0, |l| l.vertex_type);
    let mut order: Vec<u32> = (0..graph.counts()[target] as u32).collect();
    order.sort_by_key(|&v| bits(1, u64::from(v)));
    let batches = |size: usize| -> Vec<Vec<Vec<u32>>> {
        let seeds = |chunk: &[u32], t| if t == target { chunk.to_vec() } else { vec![] };
        order.chunks(size).map(|chunk| (0..graph.counts().len()).map(|t| seeds(chunk, t)).collect()).collect()
    };
    println!("| fan-outs | batch | edges | vertices | M edges/s, 1 thread | {threads} threads | ratio | ns/edge |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (fanouts, size) in [([10, 10], 1024), ([25, 20], 1024), ([15, 0], 1024), ([10, 10], 256), ([10, 10], 4096)] {
        measure(&graph, &batches(size), fanouts, size, threads);
    }
    let plan = Plan::uniform(&[AtMost(10); 2], graph.relations().len());
    reverse(&graph, &batches(1024)[..8.min(order.len().div_ceil(1024))], plan);
}

/// Prints the rates of a plan of two hops.
fn measure(graph: &SampleGraph<'_>, batches: &[Vec<Vec<u32>>], fanouts: [u32; 2], size: usize, threads: usize) {
    let plan = Plan::uniform(&fanouts.map(AtMost), graph.relations().len());
    let num = (200 * 1024 / size).min(batches.len());
    let pair = |_| (Sampler::new(graph, plan.clone()).expect("memory"), Batch::default());
    let mut samplers: Vec<_> = (0..threads.max(1)).map(pair).collect();
    let (mut rates, mut per_batch) = ([vec![], vec![]], (0, 0));
    for round in 0..=ROUNDS {
        for (rates, threads) in rates.iter_mut().zip([1, samplers.len()]) {
            let (edges, vertices) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let job = |i: usize| {
                let key = BatchKey { seed: 0, epoch: round, batch: i as u64 };
                (&batches[(i + 37 * round as usize) % batches.len()][..], key)
            };
            let done = |_, batch: &Batch| {
                edges.fetch_add(batch.num_edges(), Ordering::Relaxed);
                vertices.fetch_add(batch.num_vertices(), Ordering::Relaxed);
            };
            let start = Instant::now();
            sample_each(&mut samplers[..threads], num, job, done).expect("seeds are vertices");
            let wall = start.elapsed().as_secs_f64();
            let edges = edges.into_inner();
            if round > 0 {
                rates.push(edges as f64 / wall / 1e6);
            }
            per_batch = (edges / num, vertices.into_inner() / num);
        }
    }
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    let [one, all] = rates.map(|rates| (rates[rates.len() - 1], rates[rates.len() / 2]));
    println!(
        "| {} × {} | {size} | {} | {} | {:.1} (median {:.1}) | {:.1} (median {:.1}) | {:.2} | {:.1} |",
        fanouts[0],
        fanouts[1],
        per_batch.0,
        per_batch.1,
        one.0,
        one.1,
        all.0,
        all.1,
        all.0 / one.0,
        1e3 / one.0,
    );
    let (edges, rows, whole, lines) = accesses(graph, &samplers[0].1);
    eprintln!(
        "of {edges} edges {:.2} are of rows that are taken whole; {:.2} rows, {:.2} lines of rows per edge",
        whole / edges,
        rows / edges,
        lines / edges
    );
}

/// Prints what it takes to have the edges of a batch by source as well, one thread.
fn reverse(graph: &SampleGraph<'_>, batches: &[Vec<Vec<u32>>], plan: Plan) {
    let hops = plan.num_hops();
    let mut sampler = Sampler::new(graph, plan).expect("memory");
    let (mut batch, mut by_source, mut rates) = (Batch::default(), Transposed::default(), vec![]);
    for round in 0..=ROUNDS {
        for (i, seeds) in batches.iter().enumerate() {
            sampler.sample(seeds, BatchKey { seed: 0, epoch: round, batch: i as u64 }, &mut batch).expect("seeds");
            let start = Instant::now();
            (0..graph.relations().len()).for_each(|r| batch.transposed(r, hops - 1, &mut by_source));
            rates.push(batch.num_edges() as f64 / start.elapsed().as_secs_f64() / 1e6);
        }
    }
    rates.sort_by(f64::total_cmp);
    println!("by source: {:.1} M edges/s (median {:.1})", rates[rates.len() - 1], rates[rates.len() / 2]);
}

/// Of a batch: edges, rows that have some, edges of rows that are taken whole, and lines of 16 edges that are read.
fn accesses(graph: &SampleGraph<'_>, batch: &Batch) -> (f64, f64, f64, f64) {
    let (mut edges, mut rows, mut whole, mut lines) = (0, 0, 0, 0);
    for (r, (block, relation)) in batch.blocks.iter().zip(graph.relations()).enumerate() {
        for (dst, row) in block.indptr.windows(2).enumerate().filter(|(_, w)| w[0] < w[1]) {
            let taken = &block.edge[row[0] as usize..row[1] as usize];
            edges += taken.len();
            rows += 1;
            let all = graph.in_edges(r, batch.vertices[relation.dst_type][dst]);
            whole += if all.len() == taken.len() { taken.len() } else { 0 };
            let mut of: Vec<u32> = taken.iter().map(|e| e / 16).collect();
            of.sort_unstable();
            of.dedup();
            lines += of.len();
        }
    }
    (edges as f64, rows as f64, whole as f64, lines as f64)
}
