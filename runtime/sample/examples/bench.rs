//! Sampled edges per second: `bench DATASET [THREADS] [walks]`, on all relations and reverses of a dataset, from
//! shuffled seeds of the type of its first label: for several fan-outs in batches of 1024, then for other batch sizes,
//! interleaving runs with one thread and with THREADS. With `walks`, steps per second of random walks along all
//! metapaths of two relations from that type back to it, also with one relation before those.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hgnnc_dataset::Dataset;
use hgnnc_ir::random::bits;
use hgnnc_sample::Fanout::AtMost;
use hgnnc_sample::{
    Batch, BatchKey, Compiled, Plan, SampleGraph, Sampler, WalkPlan, Walker, Walks, sample_each, walk_each,
};

/// Rounds of a measurement, after a warm-up round. The machine may be shared, so the best and the median are printed.
const ROUNDS: u64 = 5;

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(folder) = args.next() else {
        eprintln!("usage: bench DATASET [THREADS] [walks]");
        std::process::exit(2);
    };
    let threads: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(2);
    let walks_only = args.next().is_some_and(|what| what == "walks");
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
    if !walks_only {
        println!(
            "| fan-outs | batch | sampler | edges | vertices | M edges/s, 1 thread | {threads} threads | ratio | ns/edge |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        for (fanouts, size) in [([10, 10], 1024), ([25, 20], 1024), ([15, 0], 1024), ([10, 10], 256), ([10, 10], 4096)]
        {
            measure(&graph, &batches(size), fanouts, size, threads);
        }
    }
    let seeds: Vec<&[u32]> = order.chunks(1024).collect();
    println!("| metapath | walks | edges | M steps/s, 1 thread | {threads} threads | ratio |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for path in round_trips(&graph, target) {
        [10, 25].into_iter().for_each(|walks| walk(&graph, &seeds, &path, walks, threads));
    }
}

/// Metapaths of two relations from a type through another one and back, each followed by the same with one preceding
/// step within the type, if there is such a relation.
fn round_trips(graph: &SampleGraph<'_>, target: usize) -> Vec<Vec<usize>> {
    let mut paths = vec![];
    let relations = || graph.relations().iter().enumerate();
    let within = relations().find(|(_, r)| (r.dst_type, r.src_type) == (target, target)).map(|(i, _)| i);
    for (there, first) in relations().filter(|(_, r)| r.dst_type == target && r.src_type != target) {
        for (back, _) in relations().filter(|(_, r)| (r.dst_type, r.src_type) == (first.src_type, target)) {
            paths.push(vec![there, back]);
            paths.extend(within.map(|step| vec![step, there, back]));
        }
    }
    paths
}

/// Prints the rates of a plan of two hops, interleaving the generated sampler and the one in Rust.
fn measure(graph: &SampleGraph<'_>, batches: &[Vec<Vec<u32>>], fanouts: [u32; 2], size: usize, threads: usize) {
    let plan = Plan::uniform(&fanouts.map(AtMost), graph.relations().len());
    let start = Instant::now();
    let code = Compiled::new(graph, plan.clone(), &compiler()).unwrap_or_else(|error| panic!("{error}"));
    eprintln!("generated in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let num = (100 * 1024 / size).min(batches.len());
    let generated = |_| (Sampler::compiled(graph, &code).expect("memory"), Batch::default());
    let portable = |_| (Sampler::new(graph, plan.clone()).expect("memory"), Batch::default());
    let threads = threads.max(1);
    let mut kinds: [Vec<_>; 2] = [(0..threads).map(generated).collect(), (0..threads).map(portable).collect()];
    let (mut rates, mut per_batch) = ([const { vec![] }; 4], (0, 0));
    for round in 0..=ROUNDS {
        for (rates, (threads, kind)) in rates.iter_mut().zip([(1, 0), (1, 1), (threads, 0), (threads, 1)]) {
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
            sample_each(&mut kinds[kind][..threads], num, job, done).expect("seeds are vertices");
            let wall = start.elapsed().as_secs_f64();
            let edges = edges.into_inner();
            if round > 0 {
                rates.push(edges as f64 / wall / 1e6);
            }
            per_batch = (edges / num, vertices.into_inner() / num);
        }
    }
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    let best_and_median = rates.map(|rates| (rates[rates.len() - 1], rates[rates.len() / 2]));
    for (kind, [one, all]) in [("generated", [0, 2]), ("Rust", [1, 3])] {
        let [one, all] = [best_and_median[one], best_and_median[all]];
        println!(
            "| {} × {} | {size} | {kind} | {} | {} | {:.1} (median {:.1}) | {:.1} (median {:.1}) | {:.2} | {:.1} |",
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
    }
    let (edges, rows, whole, lines) = accesses(graph, &kinds[0][0].1);
    eprintln!(
        "of {edges} edges {:.2} are of rows that are taken whole; {:.2} rows, {:.2} lines of rows per edge",
        whole / edges,
        rows / edges,
        lines / edges
    );
}

/// Prints the rates of walks along a metapath. Steps after an early end are counted, as in the libraries compared with.
fn walk(graph: &SampleGraph<'_>, batches: &[&[u32]], path: &[usize], walks: u32, threads: usize) {
    let plan = WalkPlan { metapath: path.to_vec(), walks, top_k: walks };
    let num = 200.min(batches.len());
    let pair = |_| (Walker::new(graph, plan.clone()).expect("a metapath, and memory"), Walks::default());
    let mut walkers: Vec<_> = (0..threads.max(1)).map(pair).collect();
    let (mut rates, mut per_batch) = ([vec![], vec![]], 0);
    for round in 0..=ROUNDS {
        for (rates, threads) in rates.iter_mut().zip([1, walkers.len()]) {
            let (edges, seeds) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let job = |i: usize| (batches[i], BatchKey { seed: 0, epoch: round, batch: i as u64 });
            let done = |i: usize, walks: &Walks| {
                edges.fetch_add(walks.indices.len(), Ordering::Relaxed);
                seeds.fetch_add(batches[i].len(), Ordering::Relaxed);
            };
            let start = Instant::now();
            walk_each(&mut walkers[..threads], num, job, done).expect("seeds are vertices");
            let wall = start.elapsed().as_secs_f64();
            if round > 0 {
                rates.push((seeds.into_inner() * walks as usize * path.len()) as f64 / wall / 1e6);
            }
            per_batch = edges.into_inner() / num;
        }
    }
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    let [one, all] = rates.map(|rates| (rates[rates.len() - 1], rates[rates.len() / 2]));
    let names: Vec<&str> = path.iter().map(|&r| &graph.relations()[r].name[..]).collect();
    println!(
        "| {} | {walks} | {per_batch} | {:.1} (median {:.1}) | {:.1} (median {:.1}) | {:.2} |",
        names.join(" "),
        one.0,
        one.1,
        all.0,
        all.1,
        all.0 / one.0
    );
}

/// Counts of a batch: edges, non-empty rows, edges of rows taken in full, and cache lines of 16 edges that are read.
fn accesses(graph: &SampleGraph<'_>, batch: &Batch) -> (f64, f64, f64, f64) {
    let (mut edges, mut rows, mut whole, mut lines) = (0, 0, 0, 0);
    for (r, (block, relation)) in batch.blocks.iter().zip(graph.relations()).enumerate() {
        for (dst, row) in block.indptr.windows(2).enumerate().filter(|(_, w)| w[0] < w[1]) {
            let taken = &block.eids[row[0] as usize..row[1] as usize];
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

/// The compiler of samplers for this processor.
fn compiler() -> std::sync::Arc<dyn hgnnc_executable::sampler::SamplerCompiler> {
    hgnnc_codegen_cpu::sampler(Default::default()).expect("a processor that Cranelift knows")
}
