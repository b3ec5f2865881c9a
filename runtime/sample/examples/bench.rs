//! Sampled edges per second: `bench DATASET [THREADS]`, on all relations and reverses of a dataset, from shuffled seeds of
//! the type that its first label is of, in batches of 1024.

use std::time::Instant;

use hgnnc_graph::Dataset;
use hgnnc_ir::random::bits;
use hgnnc_sample::Fanout::AtMost;
use hgnnc_sample::{Batch, BatchKey, Plan, SampleGraph, Sampler, sample_each};

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
    let batches: Vec<Vec<Vec<u32>>> = order
        .chunks(1024)
        .map(|seeds| (0..graph.counts().len()).map(|t| if t == target { seeds.to_vec() } else { vec![] }).collect())
        .collect();
    for fanouts in [[10, 10], [25, 20], [15, 0]] {
        let plan = Plan::uniform(&fanouts.map(AtMost), graph.relations().len());
        let pair = |_| (Sampler::new(&graph, plan.clone()).expect("memory"), Batch::default());
        let mut samplers: Vec<_> = (0..threads).map(pair).collect();
        let num = 200.min(batches.len());
        // Rounds, of which the first warms up; others may use the machine, so the best and the median are shown.
        let mut rounds = vec![];
        let mut per_batch = (0, 0);
        for round in 0..8u64 {
            let counts = std::sync::atomic::AtomicUsize::new(0);
            let vertices = std::sync::atomic::AtomicUsize::new(0);
            let job = |i: usize| {
                (
                    &batches[(i + 37 * round as usize) % batches.len()][..],
                    BatchKey { seed: 0, epoch: round, batch: i as u64 },
                )
            };
            let done = |_, batch: &Batch| {
                counts.fetch_add(batch.num_edges(), std::sync::atomic::Ordering::Relaxed);
                vertices.fetch_add(batch.num_vertices(), std::sync::atomic::Ordering::Relaxed);
            };
            let (start, busy) = (Instant::now(), cpu_seconds());
            sample_each(&mut samplers, num, job, done).expect("seeds are vertices");
            let wall = start.elapsed().as_secs_f64();
            let edges = counts.into_inner();
            // Where others use the machine as well, what a second of a processor gives says more.
            let busy = (cpu_seconds() - busy).max(1e-3);
            rounds.push((edges as f64 / wall / 1e6, edges as f64 / busy / 1e6));
            per_batch = (edges / num, vertices.into_inner() / num);
        }
        let (edges, rows, whole, lines) = accesses(&graph, &samplers[0].1);
        println!(
            "of {edges} edges {:.2} are of rows that are taken whole; {:.2} rows, {:.2} lines of rows per edge",
            whole / edges,
            rows / edges,
            lines / edges
        );
        let best = |rate: fn(&(f64, f64)) -> f64| {
            let mut rates: Vec<f64> = rounds[1..].iter().map(rate).collect();
            rates.sort_by(f64::total_cmp);
            (rates[rates.len() - 1], rates[rates.len() / 2])
        };
        let ((wall, wall_median), (busy, busy_median)) = (best(|r| r.0), best(|r| r.1));
        println!(
            "{fanouts:?}, {threads} threads: {wall:.1} M edges/s (median {wall_median:.1}), {busy:.1} per second of a \
             processor (median {busy_median:.1}); {} edges and {} vertices a batch",
            per_batch.0, per_batch.1
        );
    }
}

/// Of a batch: edges, rows that have some, edges of rows that are taken whole, and lines of 16 edges that are read.
fn accesses(graph: &SampleGraph, batch: &Batch) -> (f64, f64, f64, f64) {
    let (mut edges, mut rows, mut whole, mut lines) = (0, 0, 0, 0);
    for blocks in &batch.blocks {
        for (r, (block, relation)) in blocks.iter().zip(graph.relations()).enumerate() {
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
    }
    (edges as f64, rows as f64, whole as f64, lines as f64)
}

/// Processor time of all threads so far, in seconds; 0 where the system does not tell.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields 14 and 15, in hundredths; the second, the name, may contain blanks.
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|f| f.parse().ok())
        .collect();
    fields.iter().sum::<f64>() / 100.0
}
